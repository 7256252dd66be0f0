"""The cache of compiled programs: the same bits with it and without, and no error of the disk reaches a run."""

import errno
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

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


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("FRED_CACHE", str(tmp_path))
    return tmp_path / "compiled"


class Counted(Programs):
    def __init__(self) -> None:
        super().__init__(FACTS)
        self.forget()

    def forget(self) -> None:
        self.hits: list[bool] = []
        self.stored: list[str] = []

    def get(self, key: str) -> bytes | None:
        program = super().get(key)
        self.hits.append(program is not None)
        return program

    def put(self, key: str, program: bytes) -> None:
        self.stored.append(key)
        super().put(key, program)


@pytest.fixture
def counted(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    programs = Counted()
    monkeypatch.setattr(compilation_cache, "_cache", programs)
    monkeypatch.setattr(compilation_cache, "_cache_initialized", True)
    before = jax.config.jax_persistent_cache_min_compile_time_secs  # type: ignore[attr-defined]
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    yield programs
    jax.config.update("jax_persistent_cache_min_compile_time_secs", before)


def files(place: Path) -> list[Path]:
    return sorted(place.glob("*/*"))


def digests() -> tuple[str, str | None]:
    """A run's digests, traced and compiled again, or read."""
    cached.forget(compiled=True)
    outcome = execute("run", make_run("asgd"), 1)
    return outcome.schedule_digest, outcome.params_digest


def other_keys(file: Path) -> None:
    Programs(FACTS).put("another", CODE)
    next(other for other in files(file.parent.parent) if other != file).rename(file)


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "halved": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "emptied": lambda file: file.write_bytes(b""),
    "removed": Path.unlink,
    "link to nothing": lambda file: file.unlink() or file.symlink_to("nothing"),  # type: ignore[func-returns-value]
    "pipe": lambda file: file.unlink() or os.mkfifo(file),  # type: ignore[func-returns-value]
    "another key's": other_keys,
}


class TestEntries:
    def test_programs_are_found_by_their_key_where_the_facts_are_the_same(self, place):
        long = "jit_" + "f" * 1000  # longer than a file's name may be
        for key in ("jit_f-1", long):
            Programs(FACTS).put(key, CODE)
            assert Programs(dict(FACTS)).get(key) == CODE
        assert Programs(FACTS).get("jit_f-2") is None
        assert Programs({"cpu": "another"}).get("jit_f-1") is None
        assert len(files(place)) == 2

    def test_damaged_programs_are_missing_and_are_replaced(self, place):
        for name, damage in DAMAGE.items():
            Programs(FACTS).put("jit_f-1", CODE)
            assert Programs(FACTS).get("jit_f-1") == CODE, name
            [file] = files(place)
            damage(file)
            assert Programs(FACTS).get("jit_f-1") is None, name

    def test_a_folder_renamed_by_hand_serves_no_other_machine(self, place):
        other = {"cpu": "another"}
        Programs(FACTS).put("jit_f-1", CODE)
        [own] = place.iterdir()
        Programs(other).put("jit_f-1", CODE)
        [others] = {*place.iterdir()} - {own}
        shutil.rmtree(others)
        own.rename(others)
        assert Programs(other).get("jit_f-1") is None

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


class TestSize:
    def test_the_least_recently_used_are_removed_first_of_all_machines(self, place):
        limit = 10 * len(CODE)
        old, programs = Programs({"cpu": "old"}, limit), Programs(FACTS, limit)
        old.put("jit_old", CODE)
        for number in range(8):
            programs.put(f"jit_f-{number}", CODE)
        for age, file in enumerate(sorted(files(place), key=lambda file: file.stat().st_mtime_ns)):
            os.utime(file, times=(time.time() - 1000 + age,) * 2)
        assert programs.get("jit_f-0") == CODE  # used again
        programs.put("jit_f-8", CODE)
        assert sum(file.stat().st_size for file in files(place)) <= limit
        assert old.get("jit_old") is None
        assert len(list(place.iterdir())) == 1, "nothing remains of the other machine"
        assert [bool(programs.get(f"jit_f-{n}")) for n in (0, 1, 8)] == [True, False, True]

    def test_it_never_exceeds_the_limit_by_more_than_a_process_writes_between_two_looks(self, place):
        limit = 64 * 1024
        for process in range(3):
            programs = Programs(FACTS, limit)
            for number in range(30):
                programs.put(f"jit_f-{process}-{number}", bytes(2000))
                assert sum(file.stat().st_size for file in files(place)) <= limit * 17 // 16 + 2032

    def test_no_file_of_the_users_is_removed(self, place):
        (place / "chapters").mkdir(parents=True)
        theses = place / "thesis.tex", place / "chapters" / "one.tex"
        for thesis in theses:
            thesis.write_bytes(bytes(5000))
        Programs(FACTS, limit=100).put("jit_f", CODE)
        assert all(thesis.exists() for thesis in theses)


class TestDisk:
    def test_an_error_of_the_disk_stores_nothing_and_leaves_nothing(self, place, monkeypatch):
        for call in ("os.fdopen", "tempfile.mkstemp", "pathlib.Path.mkdir", "pathlib.Path.replace"):
            with monkeypatch.context() as patched:
                patched.setattr(call, Mock(side_effect=OSError(errno.ENOSPC, "full")))
                Programs(FACTS).put("jit_f", CODE)
            assert Programs(FACTS).get("jit_f") is None, call
            assert not files(place), call

    def test_programs_are_read_where_nothing_can_be_written_and_a_users_file_is_left_alone(self, place, monkeypatch):
        Programs(FACTS).put("jit_f", CODE)
        with monkeypatch.context() as patched:
            patched.setattr(os, "utime", Mock(side_effect=OSError(errno.EROFS, "read-only")))
            assert Programs(FACTS).get("jit_f") == CODE
        shutil.rmtree(place)
        place.write_text("mine")
        Programs(FACTS).put("jit_f", CODE)
        assert Programs(FACTS).get("jit_f") is None
        assert place.read_text() == "mine"

    def test_a_folder_in_which_others_can_write_is_not_used(self, place, monkeypatch):
        Programs(FACTS).put("jit_f", CODE)
        [file] = files(place)
        for mode in (0o770, 0o707):
            file.parent.chmod(mode)
            assert Programs(FACTS).get("jit_f") is None
            Programs(FACTS).put("jit_g", CODE)
            assert files(place) == [file]
        file.parent.chmod(0o700)
        assert Programs(FACTS).get("jit_f") == CODE
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        assert Programs(FACTS).get("jit_f") is None, "another user's"


class TestPlace:
    def test_it_is_where_the_user_chooses_or_in_the_home(self, monkeypatch):
        monkeypatch.setenv("HOME", "/home")
        for fred_cache, xdg_cache, expected in (
            *(("~/there", "", "/home/there/compiled"), (" OFF", "/xdg", None), ("", "/xdg", "/xdg/fred/compiled")),
            *(("", "relative", "/home/.cache/fred/compiled"), (None, None, "/home/.cache/fred/compiled")),
        ):
            for name, value in (("FRED_CACHE", fred_cache), ("XDG_CACHE_HOME", xdg_cache)):
                monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
            assert compiled.folder() == (expected and Path(expected))

        monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError("Could not determine home directory.")))
        assert compiled.folder() is None
        Programs(FACTS).put("jit_f", CODE)
        assert Programs(FACTS).get("jit_f") is None

    def test_it_can_be_left_unused_for_a_while(self, monkeypatch):
        for before in (None, "/there", "off"):
            monkeypatch.delenv("FRED_CACHE", raising=False)
            if before:
                monkeypatch.setenv("FRED_CACHE", before)
            one, other = compiled.unused(), compiled.unused()  # of two threads: the one that began first may end first
            one.__enter__()
            other.__enter__()
            one.__exit__(None, None, None)
            assert compiled.folder() is None
            other.__exit__(None, None, None)
            assert os.environ.get("FRED_CACHE") == before

    def facts(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
        monkeypatch.setattr(compiled, "keep", keep := Mock())
        environment._keep_programs.__wrapped__()
        return keep.call_args.args[0]

    def test_another_cpu_has_a_folder_of_its_own(self, monkeypatch, tmp_path):
        text = "processor\t: 0\nmodel\t\t: 1\nmodel name\t: Some CPU\nflags\t\t: avx avx2 fma\ncpu MHz\t\t: 2000\n"
        monkeypatch.setattr(environment, "_CPU_INFORMATION", tmp_path / "cpuinfo")
        assert self.facts(monkeypatch)["node"] == platform.node(), "where no CPU can be read"
        changes = (
            ("", ""),
            ("2000", "1800"),
            ("Some CPU", "Other CPU"),
            ("model\t\t: 1", "model\t\t: 2"),
            ("fma", "fma avx512f"),
        )
        machines = []
        for line, changed in changes:
            (tmp_path / "cpuinfo").write_text(text.replace(line, changed) if line else text)
            machines.append(self.facts(monkeypatch))
        assert "node" not in machines[0]
        assert [machine == machines[0] for machine in machines] == [True, True, False, False, False]

    def test_versions_flags_and_sources_count(self, monkeypatch):
        usual = self.facts(monkeypatch)
        assert {"python", "fred", "jax", "jaxlib", "numpy", "numeric", "XLA_FLAGS"} <= usual.keys()
        monkeypatch.setattr(environment, "_versions", lambda: {"jaxlib": "of tomorrow"})
        assert self.facts(monkeypatch)["jaxlib"] == "of tomorrow"
        monkeypatch.setenv("XLA_FLAGS", "--xla_some=1")
        assert self.facts(monkeypatch)["XLA_FLAGS"] == "--xla_some=1"
        monkeypatch.setattr(Path, "read_bytes", lambda _: b"changed")
        assert self.facts(monkeypatch)["numeric"] != usual["numeric"]


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_the_bits_are_the_same_with_an_empty_cache_a_full_one_and_a_damaged_one(counted, place):
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    expected = digests()
    jax.config.update("jax_enable_compilation_cache", True)
    compilation_cache.reset_cache()
    compilation_cache._cache, compilation_cache._cache_initialized = counted, True

    assert digests() == expected
    whole = files(place)
    assert len(whole) == len(counted.stored) == counted.hits.count(False) > 0
    counted.forget()
    assert digests() == expected
    assert all(counted.hits) and counted.hits

    for number, file in enumerate(whole):
        [*DAMAGE.values()][number % (len(DAMAGE) - 1)](file)
    counted.forget()
    assert digests() == expected
    assert counted.hits.count(False) == len(whole)
    assert files(place) == whole, "they were replaced"

    for key in counted.stored:  # as if another jaxlib had written them; `keep` leaves out the warning
        Programs(FACTS).put(key, compilation_cache.compress_executable(b"0000 no program"))
    counted.forget()
    with pytest.warns(UserWarning, match="^Error reading persistent compilation cache entry"):
        assert digests() == expected
    assert len(counted.stored) == len(counted.hits), "they were compiled again and replaced"


PROGRAM = """
import json, warnings
warnings.simplefilter("error")
import fred
from fred.base import environment
environment.check()
import jax, jax.numpy as jnp
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name) if name.endswith("cache_hits") else None)
values = jax.jit(lambda x: jnp.sin(x) @ jnp.cos(x).T)(jnp.arange(12.0).reshape(3, 4))
print(json.dumps([values.tolist(), len(hits)]))
"""


def started(home: Path, **variables: str) -> tuple[list[Any], int]:
    """Return the results of a fresh process, and the number of programs it read; it prints nothing else."""
    env = {name: value for name, value in os.environ.items() if name not in USERS_OWN}
    env |= {"XDG_CACHE_HOME": str(home), **variables}
    finished = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert finished.stderr == ""
    values, hits = json.loads(finished.stdout)
    return values, hits


@pytest.mark.slow
def test_it_is_on_by_default_and_the_next_process_compiles_nothing(tmp_path):
    values, hits = started(tmp_path)
    written = files(tmp_path / "fred" / "compiled")
    assert (hits, bool(written)) == (0, True)
    assert started(tmp_path) == (values, len(written))


@pytest.mark.slow
def test_it_is_left_alone_where_it_is_off_or_jax_has_a_folder_or_several_threads(tmp_path):
    own = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "own"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    for variables, folders in (({"FRED_CACHE": "off"}, []), ({"FRED_THREADS": "2"}, []), (own, ["own"])):
        started(tmp_path, **variables)
        assert [path.name for path in tmp_path.iterdir()] == folders, variables


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_fresh_run_neither_reads_nor_stores(counted, place, tmp_path):
    algorithm = {"name": "asgd", "learning_rate": 0.1}
    scenario = fred.scenario(cluster={"workers": 2}, algorithm=algorithm, stop={"updates": 4}, task=TASK)
    times = []
    for fresh in (False, True):
        cached.forget(compiled=True)
        counted.forget()
        fred.run(scenario, out=tmp_path / f"{fresh}", fresh=fresh)
        times.append({file: file.stat().st_mtime_ns for file in files(place)})
    assert counted.hits and not any(counted.hits)
    assert times[0] and times[1] == times[0]
