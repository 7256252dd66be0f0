"""The cache of compiled programs: reused on the same machine with the same software only, small, and nothing of it reaches a run."""

import errno
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jax
import pytest

from fred.base import compiled, environment
from tests.conftest import ROOT

FACTS = {"cpu": "this one"}
CODE = bytes(range(256)) * 40
USERS_OWN = {"JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "FRED_CACHE", "TF_CPP_MIN_LOG_LEVEL"}


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The folder of FRED's cache, which this process may choose as if the tests had none."""
    names = [name for name in jax.config.values if "cache" in name]
    before = {name: jax.config.values[name] for name in names}
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setenv("FRED_CACHE", str(tmp_path))
    yield tmp_path / "compiled"
    for name, value in before.items():
        jax.config.update(name, value)


def cache_folder() -> Path | None:
    """Return the folder that jax uses after `keep`."""
    compiled.keep(FACTS)
    used = jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_compilation_cache_dir", None)
    return used and Path(used)


def files(place: Path) -> list[Path]:
    return sorted(place.glob("*/*"))


class TestFolder:
    def test_it_is_made_for_this_user_alone_and_is_not_used_where_others_can_write(self, place, monkeypatch):
        folder = cache_folder()
        assert folder and folder.parent == place and cache_folder() == folder
        assert folder.stat().st_mode & 0o777 == 0o700
        for mode in (0o770, 0o707):
            folder.chmod(mode)
            assert cache_folder() is None
        folder.chmod(0o700)
        assert cache_folder() == folder
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        assert cache_folder() is None, "another user's"

    def test_it_is_not_used_where_it_cannot_be_made(self, place, monkeypatch):
        place.write_text("mine")
        assert cache_folder() is None
        assert place.read_text() == "mine"
        place.unlink()
        monkeypatch.setattr(Path, "mkdir", Mock(side_effect=OSError(errno.ENOSPC, "full")))
        assert cache_folder() is None

    def test_the_least_recently_used_programs_of_all_machines_are_removed_first(self, place):
        folder, other = place / ("a" * 64), place / ("b" * 64)
        for number in range(12):
            file = (folder if number % 2 else other) / f"jit_f-{number}-cache"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(CODE)
            os.utime(file, times=(time.time() - 1000 + (99 if number == 0 else number),) * 2)  # the first is used again
        compiled.keep(FACTS, limit=12 * len(CODE))
        assert len(files(place)) == 12
        jax.config.update("jax_compilation_cache_dir", None)
        compiled.keep(FACTS, limit=12 * len(CODE) - 1)
        assert {int(file.name.split("-")[1]) for file in files(place)} == {0, 5, 6, 7, 8, 9, 10, 11}

    def test_no_file_of_the_users_is_removed(self, place):
        (place / "chapters").mkdir(parents=True)
        theses = place / "thesis.tex", place / "chapters" / "one-cache"
        for thesis in theses:
            thesis.write_bytes(bytes(5000))
        compiled.keep(FACTS, limit=100)
        assert all(thesis.exists() for thesis in theses)


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

    def test_it_can_be_left_unused_for_a_while(self, monkeypatch):
        for before in (None, "/there", "off"):
            monkeypatch.delenv("FRED_CACHE", raising=False)
            if before:
                monkeypatch.setenv("FRED_CACHE", before)
            first, second = compiled.disabled(), compiled.disabled()  # of two threads: the one that began first may end first
            first.__enter__()
            second.__enter__()
            first.__exit__(None, None, None)
            assert compiled.folder() is None
            second.__exit__(None, None, None)
            assert os.environ.get("FRED_CACHE") == before

    def facts(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
        monkeypatch.setattr(compiled, "keep", keep := Mock())
        environment._cache_programs.__wrapped__()
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


PROGRAM = """
import json, warnings
warnings.simplefilter("error")
import fred
from fred.base import compiled, environment
environment.check()
import jax, jax.numpy as jnp
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name) if name.endswith("cache_hits") else None)
def product(size):
    return jax.jit(lambda x: jnp.sin(x) @ jnp.cos(x).T)(jnp.arange(12.0).reshape(3, 4)).tolist()
{before}
values = product(4)
print(json.dumps([values, len(hits)]))
"""


def run_process(home: Path, before: str = "", **variables: str) -> tuple[list[Any], int]:
    """Return the results of a fresh process, and the number of programs it read; it prints nothing else."""
    env = {name: value for name, value in os.environ.items() if name not in USERS_OWN}
    env |= {"XDG_CACHE_HOME": str(home), **variables}
    command = [sys.executable, "-c", PROGRAM.replace("{before}", before)]
    process = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert process.stderr == ""
    values, hits = json.loads(process.stdout)
    return values, hits


DAMAGE: list[Callable[[Path], Any]] = [
    lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    lambda file: file.write_bytes(b""),
    Path.unlink,
    lambda file: file.unlink() or file.symlink_to("nothing"),  # type: ignore[func-returns-value]
]


@pytest.mark.slow
def test_it_is_on_by_default_the_next_process_compiles_nothing_and_damaged_programs_are_compiled(tmp_path):
    values, hits = run_process(tmp_path)
    programs = files(tmp_path / "fred" / "compiled")
    assert hits == 0 and len(programs) > 1
    assert run_process(tmp_path) == (values, len(programs))
    for number, file in enumerate(programs):
        DAMAGE[number % len(DAMAGE)](file)
    assert run_process(tmp_path) == (values, 0)


@pytest.mark.slow
def test_an_unused_cache_is_neither_read_nor_written_and_is_used_again_afterwards(tmp_path):
    in_block = "with compiled.disabled():\n    product(4)\n    assert not hits\n"
    values, _ = run_process(tmp_path, before=in_block + "exit(print(json.dumps([[], 0])))")
    assert not files(tmp_path / "fred" / "compiled")
    values, _ = run_process(tmp_path)
    count = len(files(tmp_path / "fred" / "compiled"))
    assert run_process(tmp_path, before=in_block + "jax.clear_caches()\n") == (values, count)


@pytest.mark.slow
def test_it_is_left_alone_where_it_is_off_or_jax_has_a_folder_or_several_threads(tmp_path):
    jax_folder = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "own"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    for variables, folders in (({"FRED_CACHE": "off"}, []), ({"FRED_THREADS": "2"}, []), (jax_folder, ["own"])):
        run_process(tmp_path, **variables)
        assert [path.name for path in tmp_path.iterdir()] == folders, variables
