"""Tools that reproductions share: runs on all cores into folders that can be resumed, Markdown tables, progress lines."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

import fred
from fred.base.process import cores
from fred.base.progress import of_runs
from fred.specification.loading import Scenario

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "reproductions"
_STARTED = time.monotonic()
_CASE = "number of the case"


def say(text: str) -> None:
    """A progress line with the time since the start."""
    print(f"[{time.monotonic() - _STARTED:6.0f} s] {text}", flush=True)


def run(scenario: Scenario, folder: str, only: Sequence[str] = ()) -> fred.Result:
    """A scenario's units (or those of some runs), on all cores; what this folder of results has already is not done again."""
    with of_runs(len(only or scenario.runs) * len(scenario.seeds)) as progress:
        return fred.run(scenario, only, out=ROOT / "results" / folder, jobs=cores(), progress=progress)


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

    def add(self, rows: pd.DataFrame, float_format: str | None = None) -> None:
        """Add rows, and write the file: cases as they were first added, and their seeds in order.

        The file is read again before, because another process may have added rows of other cases.
        """
        grown = pd.concat([pd.read_csv(self._path), rows], ignore_index=True) if self._exists else rows
        cases = grown.groupby(self._keys, sort=False, dropna=False).ngroup()
        ordered = grown.assign(**{_CASE: cases}).sort_values(self._order, kind="stable").drop(columns=_CASE)
        ordered.to_csv(self._path, index=False, float_format=float_format)
        self._exists = True


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; numbers to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    numeric = [all(row[i][:1].isdigit() or row[i][:1] in ".-–+" for row in cells) for i in range(len(header))]
    rule = ["---:" if right else "---" for right in numeric]
    return "\n".join("| " + " | ".join(row) + " |" for row in (list(header), rule, *cells))


def near(measured: float, paper: float, share: float) -> bool:
    """Return whether a number is within this share of the paper's."""
    return abs(measured - paper) <= share * abs(paper)


def write(page: str, text: str) -> str:
    """Write a page; its path, from the repository on."""
    path = RESULTS / f"{page}.md"
    path.write_text(text, encoding="utf-8")
    return str(path.relative_to(ROOT))


def quiet(scenario: Scenario, only: Sequence[str] = ()) -> fred.Result:
    """A scenario of timing alone, in memory; a line for each run that is done."""
    return fred.run(scenario, only, progress=lambda run, seed, done: say(f"{run}, seed {seed}") if done == 1.0 else None)
