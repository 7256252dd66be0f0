"""From rows to a full table of iterations and workers: what is wrong is refused, or mended as the user says and told of."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fred.errors import FredError

Missing = Literal["refuse", "drop", "previous", "median"]
Duplicates = Literal["refuse", "first", "sum"]
Absurd = Literal["refuse", "missing"]
Ints = NDArray[np.int64]
Table = NDArray[np.float64]  # [iterations, workers], s; NaN: missing


@dataclass(frozen=True)
class Cells:
    """The times that a file holds, in its order."""

    iterations: list[str]  # names, in order
    workers: list[str]
    iteration: Ints  # of each cell
    worker: Ints
    seconds: NDArray[np.float64]
    row: Ints  # of the file
    where: Callable[[int], str]  # the place of a row

    def place(self, cell: int) -> str:
        """Where a cell stands, and whose it is."""
        return f"{self.where(int(self.row[cell]))}: iteration {self.iterations[self.iteration[cell]]}, {self.whose(cell)}"

    def whose(self, cell: int) -> str:
        """The worker."""
        return f"worker {self.workers[self.worker[cell]]}"


class Mender:
    """Puts cells into a table, and remembers what it mended.

    Args:
        path: the file, for messages.
        missing: what is done about times that are not there.
        duplicates: about several rows for one gradient.
        absurd: about times that cannot be.
        longest: times above this are absurd, s; and so are those that are not above 0.
    """

    def __init__(self, path: Path, missing: Missing, duplicates: Duplicates, absurd: Absurd, longest: float):
        self._path, self._missing, self._duplicates, self._absurd, self._longest = path, missing, duplicates, absurd, longest
        self.repairs: list[str] = []

    def mended(self, cells: Cells) -> Table:
        """The full table. Raises FredError for what is wrong and not to be mended.

        Args:
            cells: the times, in the order of the file.

        Returns: run-times, s [iterations, workers], without those iterations that were dropped; `repairs` says what was done.
        """
        self._check_size(cells)
        cells = self._possible(cells, zero=self._duplicates == "sum")
        cells = self._possible(self._single(cells), zero=False)
        table = np.full((len(cells.iterations), len(cells.workers)), np.nan)
        table[cells.iteration, cells.worker] = cells.seconds
        return self._complete(table, cells)

    def _check_size(self, cells: Cells) -> None:
        rows, size = len(cells.seconds), len(cells.iterations) * len(cells.workers)
        if not rows:
            raise FredError(f"{self._path} has no rows")
        if size > 1_000_000 + 10 * rows:
            raise FredError(
                f"{self._path}: {len(cells.iterations):,} iterations of {len(cells.workers):,} workers, but only {rows:,} "
                "times; are these the right columns?"
            )

    def _possible(self, cells: Cells, zero: bool) -> Cells:
        """Without times that cannot be; where parts of a time are given, they may be 0."""
        low = cells.seconds < 0 if zero else cells.seconds <= 0
        absurd = np.flatnonzero(low | (cells.seconds > self._longest))
        if not len(absurd):
            return cells
        place = cells.place(absurd[0])
        if self._absurd == "refuse":
            raise FredError(
                f"{place}: found {cells.seconds[absurd[0]]:g} s; expected a time above 0 and up to {self._longest:g} s. "
                "Mend the file, or take such times as missing (`absurd: missing`)"
            )
        self.repairs.append(f"{_number(absurd, 'absurd time')} taken as missing; the first: {place}")
        seconds = cells.seconds.copy()
        seconds[absurd] = np.nan
        return replace(cells, seconds=seconds)

    def _single(self, cells: Cells) -> Cells:
        """One time for each iteration and worker."""
        keys = cells.iteration * len(cells.workers) + cells.worker
        if np.bincount(keys).max() < 2:
            return cells
        _, first, of = np.unique(keys, return_index=True, return_inverse=True)
        again = np.flatnonzero(first[of] != np.arange(len(keys)))
        if self._duplicates == "refuse":
            earlier = cells.where(int(cells.row[first[of[again[0]]]]))
            raise FredError(
                f"{cells.place(again[0])}: found a second time, after that in {earlier}; expected one. Mend the file, or take "
                "the first of several (`duplicates: first`) or their sum (`duplicates: sum`)"
            )
        if self._duplicates == "sum":
            seconds = np.bincount(of, cells.seconds).astype(np.float64)
            self.repairs.append(f"{len(keys):,} rows summed to {len(first):,} times, one for each iteration and worker")
        else:
            seconds = cells.seconds[first]
            self.repairs.append(f"{_number(again, 'duplicate')} left out; the first: {cells.place(again[0])}")
        return replace(
            cells, iteration=cells.iteration[first], worker=cells.worker[first], seconds=seconds, row=cells.row[first]
        )

    def _complete(self, table: Table, cells: Cells) -> Table:
        """Without gaps."""
        gaps = np.isnan(table)
        if not gaps.any():
            return table
        iteration, worker = (int(found[0]) for found in np.nonzero(gaps))
        whose = f"worker {cells.workers[worker]} in iteration {cells.iterations[iteration]}"
        if self._missing == "refuse":
            raise FredError(f"{_at(cells, iteration, worker) or self._path}: no time of {whose}; {self._gaps(gaps)}")
        number = _number(np.flatnonzero(gaps), "missing time")
        if self._missing == "drop":
            kept = ~gaps.any(axis=1)
            if not kept.any():
                raise FredError(f"{self._path}: no iteration is complete, so `missing: drop` leaves nothing")
            dropped = _number(np.flatnonzero(~kept), "iteration")
            self.repairs.append(f"{dropped} dropped for {number}; the first: {whose}")
            return table[kept]
        self.repairs.append(f"{number} filled in with {_FILLED[self._missing][0]}; the first: {whose}")
        filled = _FILLED[self._missing][1](table)
        if np.isnan(filled).any():
            iteration, worker = (int(found[0]) for found in np.nonzero(np.isnan(filled)))
            raise FredError(
                f"{self._path}: no time of worker {cells.workers[worker]} in iteration {cells.iterations[iteration]}, and "
                f"`missing: {self._missing}` finds none to take its place; try another"
            )
        return filled

    def _gaps(self, gaps: NDArray[np.bool_]) -> str:
        at_the_end = bool((np.diff(gaps.astype(np.int8), axis=0) >= 0).all()) and not gaps[0].any()
        why = "; some workers end before others, so `missing: drop` keeps the iterations that all have" if at_the_end else ""
        return (
            f"{int(gaps.sum()):,} of {gaps.size:,} times are missing{why}. Mend the file, leave out such iterations "
            "(`missing: drop`), or fill in the worker's time before (`missing: previous`) or the median of the iteration's "
            "other times (`missing: median`); on a command line, --missing and the word"
        )


def _at(cells: Cells, iteration: int, worker: int) -> str:
    """The place of the row whose time is missing, if there is such a row."""
    found = np.flatnonzero((cells.iteration == iteration) & (cells.worker == worker))
    return cells.where(int(cells.row[found[0]])) if len(found) else ""


def _previous(table: Table) -> Table:
    known = np.where(np.isnan(table), -1, np.arange(len(table))[:, None])
    last = np.maximum.accumulate(known, axis=0)
    return np.where(last < 0, np.nan, np.take_along_axis(table, np.maximum(last, 0), axis=0))


def _median(table: Table) -> Table:
    result = table.copy()
    for row in np.flatnonzero(np.isnan(table).any(axis=1)):
        known = table[row][~np.isnan(table[row])]
        result[row][np.isnan(table[row])] = np.median(known) if len(known) else np.nan
    return result


_FILLED: dict[str, tuple[str, Callable[[Table], Table]]] = {
    "previous": ("the worker's time before", _previous),
    "median": ("the median of the iteration's other times", _median),
}


def _number(which: NDArray, of: str) -> str:
    return f"{len(which):,} {of}{'s' if len(which) != 1 else ''}"
