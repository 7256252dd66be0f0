"""One random scenario from the command line to its figures: what is promised of every valid one, and laws of every run."""

import contextlib
import hashlib
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd

from fred.commands import cli
from fred.results import experiment, figure_files, folder
from fred.results.result import Result
from fred.specification.loading import Scenario
from tests.laws import check_laws
from tests.pairs import Features, features_of
from tests.patience import within
from tests.random_scenarios import random_scenario

SECONDS = 60  # for one command
DRAWN = 8  # figures are saved in every so many-th case; in the others they are made, but not saved
_TIMES = ("manifest.json", "unit.json")  # files that say when, or how, they were written


def whole(seed: int) -> list[Features]:
    """Does everything that can be done with a random scenario; the features of its runs, none if it was refused.

    Raises AssertionError for whatever is wrong.
    """
    with tempfile.TemporaryDirectory() as scratch, _figures(saved=seed % DRAWN == 0):
        path, scenario = random_scenario(seed, Path(scratch))
        before = list(Path(scratch).iterdir())
        first = Path(scratch) / "first"
        code, said, error = _fred("run", path, "--out", first)
        if code == 2:
            _check_refusal(error, [place.name for place in Path(scratch).iterdir() if place not in before])
            return []
        assert code == 0, f"exit code {code}: {error}"
        _check_again(path, first, said)
        _check_result(scenario, first)
        return features_of(scenario)


def _check_refusal(error: str, left: list[str]) -> None:
    """One line, and nothing is left; or, of units that were done before, where they lie, and one more line that says so."""
    said, *notes = error.splitlines()
    assert said.startswith("fred: "), error
    assert left == ([".first.unfinished"] if notes else []), f"{left} is left: {error}"
    assert all("units are kept" in note for note in notes), error


def _check_again(path: Path, first: Path, said: str) -> None:
    """Inline, anew, verified, shown and compared, it is always the same."""
    inline, files = path.parent / "inline", _files(first)
    _succeed("run", path, "--out", inline, "--inline")
    assert not (differing := _differing(files, _files(inline))), f"inline differs in {differing}"
    _succeed("run", path, "--out", first, "--fresh")
    assert not (differing := _differing(files, _files(first))), f"done anew differs in {differing}"
    _succeed("verify", first)
    assert _succeed("show", first) == said, "show says something else than run did"
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
    for read, made in zip(stored.outcomes, run.outcomes, strict=True):
        pd.testing.assert_frame_equal(stored.schedule(read.name, read.seed), run.schedule(made.name, made.seed))
        if made.run.protocol.has_clock:
            pd.testing.assert_frame_equal(stored.run_times(read.name, read.seed), run.run_times(made.name, made.seed))
    _draw(stored)
    for outcome in run.outcomes:
        check_laws(outcome)


def _draw(result: Result) -> None:
    for draw in result.pictures().values():
        draw()


def _succeed(*arguments: Any) -> str:
    code, said, error = _fred(*arguments)
    assert code == 0, f"fred {' '.join(map(str, arguments))}: exit code {code}: {error or said}"
    return said


def _fred(*arguments: Any) -> tuple[int, str, str]:
    """A command: its exit code, and what it says on both channels."""
    out, error = io.StringIO(), io.StringIO()
    with within(SECONDS), contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        code = cli.main([str(each) for each in arguments])
    return code, out.getvalue(), error.getvalue()


def _files(result: Path) -> dict[str, str]:
    """Digests of everything in a folder that does not say when it was written."""
    files = [file for file in result.rglob("*") if file.is_file() and file.name not in _TIMES]
    return {str(file.relative_to(result)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _differing(one: dict[str, str], other: dict[str, str]) -> list[str]:
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


@contextlib.contextmanager
def _figures(saved: bool) -> Iterator[None]:
    """Without them a case takes a third of the time."""
    usual = figure_files.drawn
    if not saved:
        figure_files.drawn = lambda *_: contextlib.nullcontext()  # type: ignore[assignment]
    try:
        yield
    finally:
        figure_files.drawn = usual
