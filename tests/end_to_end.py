"""One random scenario from the command line to its figures: the promises of every valid scenario, and the laws of every run."""

import contextlib
import hashlib
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd

from fred.results import experiment, folder
from fred.specification.loading import Scenario
from tests.laws import check_laws
from tests.program import Answer, fred_command
from tests.random_scenarios import random_scenario

SECONDS = 60  # for one command
FIGURES_EVERY = 8  # figures are saved in every eighth case; in the others they are made, but not saved
TIMES = ("manifest.json", "unit.json")  # files that say when, or how, they were written


class TooSlow(BaseException):
    """Nothing that is fuzzed may catch it."""


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise TooSlow inside after this much of the processor's time; the time of other programs does not count."""

    def too_slow(*_: Any) -> None:
        raise TooSlow(f"more than {seconds} s")

    before = signal.signal(signal.SIGPROF, too_slow)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def check_scenario(seed: int) -> bool:
    """Do everything that can be done with a random scenario; return False if it was refused.

    Raises AssertionError for whatever is wrong.
    """
    with tempfile.TemporaryDirectory() as scratch, _figures(saved=seed % FIGURES_EVERY == 0):
        path, scenario = random_scenario(seed, Path(scratch))
        before = list(Path(scratch).iterdir())
        first = Path(scratch) / "first"
        answer = _run_fred("run", path, "--out", first)
        if answer.code == 2:
            _check_refusal(answer.err, [place.name for place in Path(scratch).iterdir() if place not in before])
            return False
        assert answer.code == 0, answer
        _check_again(path, first, answer.out)
        _check_result(scenario, first)
        return True


def _check_refusal(error: str, left: list[str]) -> None:
    """One line, and nothing is left; or, of units that were done before, where they lie, and one more line that says so."""
    first, *notes = error.splitlines()
    assert first.startswith("fred: "), error
    assert left == ([".first.unfinished"] if notes else []), f"{left} is left: {error}"
    assert all("units are kept" in note for note in notes), error


def _check_again(path: Path, first: Path, summary: str) -> None:
    """Inline, done again, verified, shown and compared, it is always the same."""
    inline, files = path.parent / "inline", _files(first)
    _succeed("run", path, "--out", inline, "--inline")
    assert not (differing := _list_differences(files, _files(inline))), f"inline differs in {differing}"
    _succeed("run", path, "--out", first, "--fresh")
    assert not (differing := _list_differences(files, _files(first))), f"done again differs in {differing}"
    _succeed("verify", first)
    assert _succeed("show", first) == summary, "show prints something else than run did"
    shared = len(list(first.glob("*/seed-*")))
    compared = ["--out", path.parent / "compared"] if list(first.glob("figures/*")) else []
    assert f"{shared} of {shared} shared runs have the same digests" in _succeed("compare", first, inline, *compared)
    for picture in path.parent.rglob("*.svg"):
        ElementTree.parse(picture)


def _check_result(scenario: Scenario, path: Path) -> None:
    """Check that a result read from a folder equals the run in memory, can be drawn, and keeps the laws."""
    stored, run = folder.load_result(path), experiment.run(scenario)
    for table in ("metrics", "summary", *(("sweep", "best") if run.swept else ())):
        pd.testing.assert_frame_equal(getattr(stored, table), getattr(run, table))
    for read, original in zip(stored.outcomes, run.outcomes, strict=True):
        pd.testing.assert_frame_equal(stored.schedule(read.name, read.seed), run.schedule(original.name, original.seed))
        if original.run.protocol.has_clock:
            pd.testing.assert_frame_equal(stored.run_times(read.name, read.seed), run.run_times(original.name, original.seed))
    for draw in stored.pictures().values():
        draw()
    for outcome in run.outcomes:
        check_laws(outcome)


def _succeed(*arguments: Any) -> str:
    answer = _run_fred(*arguments)
    assert answer.code == 0, f"fred {' '.join(map(str, arguments))}: {answer}"
    return answer.out


def _run_fred(*arguments: Any) -> Answer:
    with time_limit(SECONDS):
        return fred_command(*arguments)


def _files(result: Path) -> dict[str, str]:
    """Digests of everything in a folder that does not say when it was written."""
    files = [file for file in result.rglob("*") if file.is_file() and file.name not in TIMES]
    return {str(file.relative_to(result)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _list_differences(first: dict[str, str], second: dict[str, str]) -> list[str]:
    return sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))


@contextlib.contextmanager
def _figures(saved: bool) -> Iterator[None]:
    """Without them a case takes a third of the time."""
    usual = folder.figures_drawn
    if not saved:
        folder.figures_drawn = lambda *_: contextlib.nullcontext()  # type: ignore[assignment]
    try:
        yield
    finally:
        folder.figures_drawn = usual
