"""What jax has compiled and FRED keeps: the same bits with it and without, and nothing that the disk does is heard of."""

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from jax._src import compilation_cache

import fred
from fred.base import cached, compiled, environment
from fred.base.compiled import Programs
from fred.running.execution import execute
from tests.conftest import ROOT
from tests.worlds import TASK, make_run

FACTS = {"cpu": "this one"}
CODE = bytes(range(256)) * 40
USERS_OWN = {"JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "FRED_CACHE", "TF_CPP_MIN_LOG_LEVEL"}
WRITER = """
import sys, time
from pathlib import Path
from fred.base.compiled import Programs
print("begun", flush=True)
while True:
    for file in Path(sys.argv[1]).glob("*/*.program"):
        try:
            content = file.read_bytes()
            file.write_bytes(content[: len(content) // 2])
            time.sleep(0.001)
            file.write_bytes(content)
        except OSError:
            pass
    Programs({"cpu": "this one"}, limit=200_000).put("another", bytes(5_000))
"""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("FRED_CACHE", str(tmp_path))
    return tmp_path / "compiled"


class Counted(Programs):
    """Which keys were asked for and brought."""

    def __init__(self) -> None:
        super().__init__(FACTS)
        self.found: list[bool] = []
        self.brought: list[str] = []

    def forget(self) -> None:
        self.found, self.brought = [], []

    def get(self, key: str) -> bytes | None:
        program = super().get(key)
        self.found.append(program is not None)
        return program

    def put(self, key: str, program: bytes) -> None:
        self.brought.append(key)
        super().put(key, program)


@pytest.fixture(scope="module")
def expected() -> tuple[str, str]:
    """The bits of a process that keeps nothing."""
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    digests = computed()
    jax.config.update("jax_enable_compilation_cache", True)
    compilation_cache.reset_cache()
    return digests


@pytest.fixture
def kept(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    """Yield the counts of programs that jax caches during the test."""
    programs = Counted()
    monkeypatch.setattr(compilation_cache, "_cache", programs)
    monkeypatch.setattr(compilation_cache, "_cache_initialized", True)
    before = jax.config.jax_persistent_cache_min_compile_time_secs  # type: ignore[attr-defined]
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    yield programs
    jax.config.update("jax_persistent_cache_min_compile_time_secs", before)


def files(place: Path) -> list[Path]:
    return sorted(place.glob("*/*"))


def computed() -> tuple[str, str]:
    """A run's digests, traced and compiled anew, or read."""
    cached.forget(compiled=True)
    outcome = execute("run", make_run("asgd"), 1)
    return outcome.schedule_digest, str(outcome.params_digest)


def halved(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def flipped_in_front(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[0] ^= 1
    file.write_bytes(content)


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def removed(file: Path) -> None:
    file.unlink()


def link_to_nothing(file: Path) -> None:
    file.unlink()
    file.symlink_to("nothing")


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def of_another_key(file: Path) -> None:
    Programs(FACTS).put("another", CODE)
    other = next(each for each in files(file.parent.parent) if each != file)
    other.rename(file)


DAMAGE = (halved, flipped, flipped_in_front, emptied, removed, link_to_nothing, pipe, of_another_key)


class TestEntries:
    def test_what_was_kept_is_found_by_whoever_has_the_same_facts(self, place):
        Programs(FACTS).put("jit_f-1", CODE)
        assert Programs(dict(FACTS)).get("jit_f-1") == CODE
        assert Programs(FACTS).get("jit_f-2") is None
        assert Programs({"cpu": "another"}).get("jit_f-1") is None
        assert len(files(place)) == 1

    @pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
    def test_what_is_damaged_was_never_there_and_is_replaced(self, place, damage):
        programs = Programs(FACTS)
        programs.put("jit_f-1", CODE)
        [file] = files(place)
        damage(file)
        assert programs.get("jit_f-1") is None
        programs.put("jit_f-1", CODE)
        assert programs.get("jit_f-1") == CODE
        assert files(place) == [file]

    def test_a_folder_renamed_by_hand_serves_no_other_machine(self, place):
        other = {"cpu": "another"}
        Programs(FACTS).put("jit_f-1", CODE)
        Programs(other).put("jit_f-2", CODE)
        ours, theirs = (
            next(file.parent for file in files(place) if Programs(facts)._name in file.parts) for facts in (FACTS, other)
        )
        shutil.rmtree(theirs)
        ours.rename(theirs)
        assert Programs(other).get("jit_f-1") is None
        theirs.rename(ours)
        assert Programs(FACTS).get("jit_f-1") == CODE

    def test_every_flipped_bit_is_found(self, place):
        programs = Programs(FACTS)
        programs.put("jit_f-1", b"\x55")
        [file] = files(place)
        whole = file.read_bytes()
        for bit in range(8 * len(whole)):
            changed = bytearray(whole)
            changed[bit // 8] ^= 1 << bit % 8
            file.write_bytes(changed)
            assert programs.get("jit_f-1") is None

    def test_long_keys_are_names_of_files_too(self, place):
        Programs(FACTS).put("jit_" + "f" * 1000, CODE)
        assert Programs(FACTS).get("jit_" + "f" * 1000) == CODE


class TestSize:
    def test_what_was_used_last_longest_ago_goes_first_of_all_machines(self, place):
        limit = 10 * len(CODE)
        old, programs = Programs({"cpu": "old"}, limit), Programs(FACTS, limit)
        old.put("jit_old", CODE)
        for number in range(8):
            programs.put(f"jit_f-{number}", CODE)
        for age, file in enumerate(sorted(place.glob("*/*"), key=lambda file: file.stat().st_mtime_ns)):
            os.utime(file, times=(time.time() - 1000 + age,) * 2)
        assert programs.get("jit_f-0") == CODE  # used again
        programs.put("jit_f-8", CODE)
        assert sum(file.stat().st_size for file in files(place)) <= limit
        assert old.get("jit_old") is None
        assert len(list(place.iterdir())) == 1, "nothing is left of the other machine"
        assert [bool(programs.get(f"jit_f-{n}")) for n in (0, 1, 8)] == [True, False, True]

    def test_it_never_grows_beyond_the_limit_by_more_than_a_process_writes_between_two_looks(self, place):
        limit = 64 * 1024
        for process in range(4):
            programs = Programs(FACTS, limit)
            for number in range(30):
                programs.put(f"jit_f-{process}-{number}", bytes(2000))
                assert sum(file.stat().st_size for file in files(place)) <= limit * 17 // 16 + 2032

    def test_nothing_of_somebody_elses_is_removed(self, place):
        place.mkdir()
        (place / "thesis.tex").write_bytes(bytes(5000))
        (place / "chapters").mkdir()
        (place / "chapters" / "one.tex").write_bytes(bytes(5000))
        Programs(FACTS, limit=100).put("jit_f", CODE)
        assert (place / "thesis.tex").exists()
        assert (place / "chapters" / "one.tex").exists()


def refused(number: int) -> Any:
    def write(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return write


class TestDisk:
    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.ESTALE])
    @pytest.mark.parametrize("call", ["os.fdopen", "tempfile.mkstemp", "pathlib.Path.mkdir", "pathlib.Path.replace"])
    def test_what_it_refuses_is_not_kept(self, place, monkeypatch, call, number):
        with monkeypatch.context() as patched:
            patched.setattr(call, refused(number))
            Programs(FACTS).put("jit_f", CODE)
        assert Programs(FACTS).get("jit_f") is None
        assert not files(place), "nor is anything left of it"

    def test_a_full_disk_leaves_no_half_a_program(self, place, monkeypatch):
        class Full:
            def __init__(self, number: int, _: str):
                os.write(number, b"half")
                os.close(number)

            def __enter__(self) -> "Full":
                return self

            def __exit__(self, *_: Any) -> None: ...

            write = refused(errno.ENOSPC)

        monkeypatch.setattr(os, "fdopen", Full)
        Programs(FACTS).put("jit_f", CODE)
        assert not files(place)

    def test_what_is_there_is_read_where_nothing_can_be_written(self, place, monkeypatch):
        Programs(FACTS).put("jit_f", CODE)
        monkeypatch.setattr(os, "utime", refused(errno.EROFS))
        assert Programs(FACTS).get("jit_f") == CODE

    def test_a_file_where_the_folder_should_be(self, place):
        place.write_text("mine")
        Programs(FACTS).put("jit_f", CODE)
        assert Programs(FACTS).get("jit_f") is None
        assert place.read_text() == "mine"

    @pytest.mark.parametrize("mode", [0o770, 0o707])
    def test_a_folder_in_which_others_can_write_is_not_believed(self, place, mode):
        """Or they could have their code run."""
        Programs(FACTS).put("jit_f", CODE)
        [file] = files(place)
        file.parent.chmod(mode)
        assert Programs(FACTS).get("jit_f") is None
        Programs(FACTS).put("jit_g", CODE)
        assert files(place) == [file]

    def test_a_folder_of_somebody_elses_is_not_believed(self, place, monkeypatch):
        Programs(FACTS).put("jit_f", CODE)
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        assert Programs(FACTS).get("jit_f") is None

    def test_a_folder_of_an_entrys_name_is_left_alone(self, place):
        Programs(FACTS).put("jit_f", CODE)
        [file] = files(place)
        file.unlink()
        (file / "thesis").mkdir(parents=True)
        Programs(FACTS).put("jit_f", CODE)
        assert Programs(FACTS).get("jit_f") is None
        assert files(place) == [file]
        assert (file / "thesis").is_dir()

    def test_a_disk_that_cannot_be_written_at_all(self, place, monkeypatch):
        monkeypatch.setattr(Path, "mkdir", refused(errno.EROFS))
        Programs(FACTS).put("jit_f", CODE)
        assert not place.exists()


class TestPlace:
    @pytest.mark.parametrize(
        ("variables", "expected"),
        [
            ({"FRED_CACHE": "/there"}, "/there/compiled"),
            ({"FRED_CACHE": "~/there", "HOME": "/home"}, "/home/there/compiled"),
            ({"FRED_CACHE": "off", "XDG_CACHE_HOME": "/xdg"}, None),
            ({"FRED_CACHE": " OFF", "XDG_CACHE_HOME": "/xdg"}, None),
            ({"FRED_CACHE": "", "XDG_CACHE_HOME": "/xdg"}, "/xdg/fred/compiled"),
            ({"XDG_CACHE_HOME": "relative", "HOME": "/home"}, "/home/.cache/fred/compiled"),
            ({"HOME": "/home"}, "/home/.cache/fred/compiled"),
        ],
    )
    def test_it_is_where_the_user_says(self, monkeypatch, variables, expected):
        for name in ("FRED_CACHE", "XDG_CACHE_HOME"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert compiled.folder() == (expected and Path(expected))

    def test_without_a_home_nothing_is_kept(self, monkeypatch):
        def homeless() -> Path:
            raise RuntimeError("Could not determine home directory.")

        monkeypatch.delenv("FRED_CACHE", raising=False)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setattr(Path, "home", homeless)
        assert compiled.folder() is None
        Programs(FACTS).put("jit_f", CODE)
        assert Programs(FACTS).get("jit_f") is None

    @pytest.mark.parametrize("before", [None, "/there", "off"])
    def test_it_can_be_left_unused_for_a_while(self, monkeypatch, before):
        monkeypatch.delenv("FRED_CACHE", raising=False)
        if before:
            monkeypatch.setenv("FRED_CACHE", before)
        with compiled.unused():
            assert compiled.folder() is None
        assert os.environ.get("FRED_CACHE") == before

    def test_threads_that_leave_it_unused_leave_it_as_it_was(self, monkeypatch):
        """Whoever began first may end first."""
        monkeypatch.setenv("FRED_CACHE", "/there")
        one, other = compiled.unused(), compiled.unused()
        one.__enter__()
        other.__enter__()
        one.__exit__(None, None, None)
        assert compiled.folder() is None
        other.__exit__(None, None, None)
        assert os.environ["FRED_CACHE"] == "/there"

    @pytest.mark.parametrize(
        ("line", "changed"),
        [
            ("model name\t: Some CPU", "model name\t: Other CPU"),
            ("model\t\t: 1", "model\t\t: 2"),
            ("flags\t\t: avx avx2 fma", "flags\t\t: avx avx2 fma avx512f"),
        ],
    )
    def test_another_cpu_has_a_folder_of_its_own(self, monkeypatch, tmp_path, line, changed):
        text = "processor\t: 0\nmodel\t\t: 1\nmodel name\t: Some CPU\nflags\t\t: avx avx2 fma\ncpu MHz\t\t: 2000\n"

        def machine(said: str) -> dict[str, str]:
            (tmp_path / "cpuinfo").write_text(said)
            return environment._machine()

        monkeypatch.setattr(environment, "_CPU_INFORMATION", tmp_path / "cpuinfo")
        assert machine(text) == machine(text.replace("2000", "1800"))
        assert machine(text) != machine(text.replace(line, changed))

    def test_where_no_cpu_can_be_read_the_machine_is_known_by_name(self, monkeypatch, tmp_path):
        monkeypatch.setattr(environment, "_CPU_INFORMATION", tmp_path / "none")
        assert "node" in environment._machine()

    def test_versions_flags_and_sources_count(self, monkeypatch):
        before = environment._software()
        assert {"python", "fred", "jax", "jaxlib", "numpy", "numeric", "XLA_FLAGS"} <= before.keys()
        monkeypatch.setattr(environment, "_versions", lambda: dict.fromkeys(environment._PACKAGES, "of tomorrow"))
        after = environment._software()
        assert {name for name in before if before[name] != after[name]} >= {"jax", "jaxlib", "numpy"}
        monkeypatch.setenv("XLA_FLAGS", "--xla_some=1")
        assert environment._software()["XLA_FLAGS"] != after["XLA_FLAGS"]
        monkeypatch.setattr(Path, "read_bytes", lambda _: b"changed")
        assert environment._software()["numeric"] != after["numeric"]


@pytest.mark.slow
class TestRuns:
    @pytest.mark.filterwarnings("error")
    def test_the_bits_are_the_same_without_with_an_empty_one_and_with_a_full_one(self, expected, kept):
        assert computed() == expected
        assert len(kept.brought) == kept.found.count(False) > 0
        kept.forget()
        assert computed() == expected
        assert all(kept.found)
        assert kept.found

    @pytest.mark.filterwarnings("error")
    def test_damaged_programs_are_compiled_anew_and_replaced(self, expected, kept, place):
        assert computed() == expected
        whole = files(place)
        for number, file in enumerate(whole):
            DAMAGE[number % (len(DAMAGE) - 1)](file)
        kept.forget()
        assert computed() == expected
        assert kept.found.count(False) == len(whole)
        assert files(place) == whole
        kept.forget()
        assert computed() == expected
        assert all(kept.found)

    def test_what_xla_refuses_is_compiled_anew_and_replaced(self, expected, kept):
        """As if another jaxlib had written it under the same name; the warning is one that `keep` has left out."""
        assert computed() == expected
        for key in kept.brought:
            Programs(FACTS).put(key, compilation_cache.compress_executable(b"0000 no program"))
        kept.forget()
        with pytest.warns(UserWarning, match="^Error reading persistent compilation cache entry"):
            assert computed() == expected
        assert len(kept.brought) == len(kept.found)
        assert computed() == expected
        assert len(kept.brought) * 2 == len(kept.found)

    @pytest.mark.filterwarnings("error")
    def test_the_bits_are_the_same_while_another_process_writes_and_damages(self, expected, kept, place):
        assert computed() == expected
        with subprocess.Popen([sys.executable, "-c", WRITER, str(place)], cwd=ROOT, stdout=subprocess.PIPE) as other:
            try:
                assert other.stdout is not None
                other.stdout.readline()
                for _ in range(3):
                    assert computed() == expected
                assert other.poll() is None
            finally:
                other.kill()


PROGRAM = """
import json, warnings
warnings.simplefilter("error")
import fred
from fred.base import environment
environment.check()
import jax, jax.numpy as jnp
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name) if name.endswith("cache_hits") else None)
found = jax.jit(lambda x: jnp.sin(x) @ jnp.cos(x).T)(jnp.arange(12.0).reshape(3, 4))
print(json.dumps([found.tolist(), len(hits)]))
"""


def started(home: Path, **variables: str) -> tuple[list[Any], int]:
    """Return the results of a fresh process, and the number of programs it read; it prints nothing else."""
    env = {name: value for name, value in os.environ.items() if name not in USERS_OWN}
    env |= {"XDG_CACHE_HOME": str(home), **variables}
    finished = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert finished.stderr == ""
    found, hits = json.loads(finished.stdout)
    return found, hits


def test_it_is_on_by_default_and_the_next_process_compiles_nothing(tmp_path):
    """Only what differs in what it could reach is compiled anew."""
    found, hits = started(tmp_path)
    written = files(tmp_path / "fred" / "compiled")
    assert (hits, bool(written)) == (0, True)
    again, hits = started(tmp_path)
    assert again == found
    assert hits == len(written)
    assert started(tmp_path, XLA_FLAGS="--xla_cpu_enable_fast_min_max=false") == (found, 0)


@pytest.mark.parametrize(
    "variables", [{"FRED_CACHE": "off"}, {"JAX_COMPILATION_CACHE_DIR": "own"}, {"FRED_THREADS": "2"}], ids=str
)
def test_it_is_left_alone_where(tmp_path, variables):
    """It is switched off, or jax keeps programs in a folder of the user's, or may have several threads."""
    if "JAX_COMPILATION_CACHE_DIR" in variables:
        variables = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "own"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    started(tmp_path, **variables)
    assert [path.name for path in tmp_path.iterdir()] == (["own"] if "JAX_COMPILATION_CACHE_DIR" in variables else [])


@pytest.mark.usefixtures("undrawn")
def test_a_fresh_run_neither_reads_nor_keeps(kept, place, tmp_path):
    scenario = fred.scenario(
        cluster={"workers": 2}, algorithm={"name": "asgd", "learning_rate": 0.1}, stop={"updates": 4}, task=TASK
    )
    for fresh, others in ((True, False), (False, True), (True, True)):
        cached.forget(compiled=True)
        kept.forget()
        fred.run(scenario, out=tmp_path / f"{fresh}-{others}", fresh=fresh)
        assert kept.found
        assert bool(files(place)) == others
        assert not (fresh and any(kept.found))
