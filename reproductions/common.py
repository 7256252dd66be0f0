"""The kit of reproductions and studies: runs that resume, worker processes, CSV files, tables, pages, progress lines."""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

import fred
from fred.base.process import cores
from fred.base.progress import of_runs
from fred.specification.loading import Scenario

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "reproductions"
TUNING, REPORTED = (1, 2, 3), (11, 12, 13, 14, 15)  # usual seeds: to choose settings with, and to report
Item = TypeVar("Item")
Result = TypeVar("Result")
_START = time.monotonic()
_CASE = "number of the case"


def say(text: str) -> None:
    """Print a progress line with the time since the start."""
    print(f"[{time.monotonic() - _START:6.0f} s] {text}", flush=True)


def run(scenario: Scenario, folder: str, only: Sequence[str] = ()) -> fred.Result:
    """Run a scenario's units (or those of some runs) on all cores, but for those that this folder of results has already."""
    with of_runs(len(only or scenario.runs) * len(scenario.seeds)) as progress:
        return fred.run(scenario, only, out=ROOT / "results" / folder, jobs=cores(), progress=progress)


def quiet(scenario: Scenario, only: Sequence[str] = ()) -> fred.Result:
    """Run a scenario of timing alone in memory, with a progress line for each unit."""
    return fred.run(scenario, only, progress=lambda run, seed, done: say(f"{run}, seed {seed}") if done == 1.0 else None)


def in_processes(measure: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[Item, Result]]:
    """Yield each item and its result, in order, measured by a process on each core."""
    with ProcessPoolExecutor(cores(), multiprocessing.get_context("spawn")) as pool:
        yield from zip(items, pool.map(measure, items), strict=True)


def data_folder() -> Path:
    """Return the folder of data that is no part of the project, `$FRED_DATA`."""
    return Path(os.environ.get("FRED_DATA") or "-")


def store(path: Path, rows: pd.DataFrame | Iterable[dict[str, Any]], float_format: str | None = "%.6g") -> None:
    """Write measurements to a CSV file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(path, index=False, float_format=float_format)


class Seeds:
    """A CSV file of measurements with a column `seed`, to which further seeds can be added.

    A file that grew has the same rows in the same order as one that was measured at once.
    """

    def __init__(self, path: Path, keys: Sequence[str], add: bool, seeds_first: bool = False):
        """Continue a file, or begin one.

        Args:
            path: CSV file.
            keys: columns that name a case.
            add: whether to keep the rows of the file.
            seeds_first: whether the file has all cases of a seed together, instead of all seeds of a case.
        """
        self._path, self._keys, self._exists = path, list(keys), add
        self._order = ["seed", _CASE] if seeds_first else [_CASE, "seed"]

    def missing(self, seeds: Sequence[int], **case: object) -> list[int]:
        """Return the seeds that the file lacks of a case, given by some of the keys."""
        if not self._exists:
            return list(seeds)
        rows = pd.read_csv(self._path)
        for column, value in case.items():
            rows = rows[rows[column] == value]
        return [seed for seed in seeds if seed not in set(rows["seed"])]

    def load(self, path: Path, settings: Sequence[str] = (), **case: object) -> Scenario | None:
        """Return a scenario with the seeds that the file lacks of a case; None if it lacks none."""
        seeds = self.missing(fred.load(path, settings).seeds, **case)
        return fred.load(path, [*settings, f"seeds={seeds}"]) if seeds else None

    def add(self, rows: pd.DataFrame, float_format: str | None = None) -> None:
        """Add rows, and write the file: cases as they were first added, and their seeds in order.

        The file is read again before, because another process may have added rows of other cases.
        """
        grown = pd.concat([pd.read_csv(self._path), rows], ignore_index=True) if self._exists else rows
        cases = grown.groupby(self._keys, sort=False, dropna=False).ngroup()
        ordered = grown.assign(**{_CASE: cases}).sort_values(self._order, kind="stable").drop(columns=_CASE)
        store(self._path, ordered, float_format)
        self._exists = True


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table, with numbers at the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    numeric = [all(row[i][:1].isdigit() or row[i][:1] in ".-–+" for row in cells) for i in range(len(header))]
    rule = ["---:" if right else "---" for right in numeric]
    return "\n".join("| " + " | ".join(row) + " |" for row in (list(header), rule, *cells))


def near(measured: float, paper: float, share: float) -> bool:
    """Return whether a number is within this share of the paper's."""
    return abs(measured - paper) <= share * abs(paper)


def last_values(rows: pd.DataFrame, column: str, time: str) -> pd.DataFrame:
    """Return the last values of a column: a row for each seed, a column for each run."""
    return rows.sort_values(time).groupby(["run", "seed"])[column].last().unstack("run")


def fill(template: Path, **parts: object) -> str:
    """Return a page: a template with these tables and numbers in its braces."""
    return template.read_text(encoding="utf-8").format(**parts)


def write(page: str, text: str) -> str:
    """Write a paper's page; return its path from the repository on."""
    return write_page(RESULTS / f"{page}.md", text)


def write_page(path: Path, text: str) -> str:
    """Write a page; return its path from the repository on."""
    path.write_text(text, encoding="utf-8")
    return str(path.relative_to(ROOT))
