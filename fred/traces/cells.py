"""The times in the files of a trace before they form a table: each with its iteration, worker, node and place."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred.base.errors import briefly
from fred.base.types import Ints
from fred.tables.columns import Labels
from fred.tables.content import Content
from fred.traces.operations import Operations, find_compute_times
from fred.traces.roles import FILE, PLUS, FileOptions, Role, UnclearTraceError, is_local_rank

_SEPARATOR = "/"  # joins names that identify something together
_NUMBER = re.compile(r"-?[0-9]+([.][0-9]+)?")
_NUMBERED = re.compile(r"(.*?)([0-9]+)(\D*)")
_ENDINGS = (
    ".gz",
    ".csv",
    ".tsv",
    ".parquet",
    ".pq",
    ".jsonl",
    ".ndjson",
    ".json",
    ".trace",
    ".pt",
    ".log",
    ".out",
    ".txt",
    ".sqlite",
)
_TIME_WORDS = re.compile(r"day|part|chunk|run|restart|\d{4}-?\d\d-?\d\d", re.IGNORECASE)  # in names of files split by time


@dataclass(frozen=True)
class Cells:
    """The times of one file, or of several, in their order.

    Args:
        iteration: iteration of each time.
        worker: worker of each time.
        node: node of each time; None if unknown.
        seconds: the times, s; NaN if missing.
        row: row of each time, which `describe_row` takes.
        describe_row: function that describes the place of a row.
        columns: names of the file's columns, by role.
        notes: how the file was read, in words.
        operations: the operations of which the times consist; None if unknown.
        collective: name of the communication or waiting whose times these are; empty for compute times.
    """

    iteration: Labels
    worker: Labels
    node: Labels | None
    seconds: NDArray[np.float64]
    row: Ints
    describe_row: Callable[[int], str]
    columns: dict[Role, str]
    notes: tuple[str, ...] = ()
    operations: Operations | None = None
    collective: str = ""

    def describe_time(self, cell: int) -> str:
        """Return the place, iteration and worker of a time, in words.

        Args:
            cell: number of the time.
        """
        step = self.describe_step(int(self.iteration.codes[cell]), int(self.worker.codes[cell]))
        return f"{self.describe_row(int(self.row[cell]))}: {step}"

    def describe_step(self, iteration: int, worker: int) -> str:
        """Return the iteration and worker of a time, in words.

        Args:
            iteration: number of the iteration.
            worker: number of the worker.
        """
        return f"iteration {self.iteration.names[iteration]}, worker {self.worker.names[worker]}"

    @property
    def keys(self) -> Ints:
        """Return a key for each time; times of the same iteration and worker have the same key."""
        return self.iteration.codes * len(self.worker.names) + self.worker.codes


def sort_labels(labels: Labels) -> Labels:
    """Return the labels with sorted names: by number if they are or contain numbers, otherwise in order of appearance.

    Args:
        labels: a column of names.

    >>> sort_labels(Labels(np.array([0, 1, 2]), ["rank10", "rank9", "rank1"])).names
    ['rank1', 'rank9', 'rank10']
    """
    order = _sorted_order(labels.names)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return Labels(rank[labels.codes], [labels.names[i] for i in order])


def combine_labels(columns: Sequence[Labels]) -> Labels:
    """Return the labels that several columns form together, such as a node and a rank on it.

    Args:
        columns: columns of the same rows, coarsest first.

    >>> node, rank = Labels(np.array([0, 0, 1]), ["a", "b"]), Labels(np.array([0, 1, 1]), ["0", "1"])
    >>> combine_labels([node, rank])
    Labels(codes=array([0, 1, 2]), names=['a/0', 'a/1', 'b/1'])
    """
    combined, *finer = map(sort_labels, columns)
    for column in finer:
        keys = combined.codes * len(column.names) + column.codes
        unique_keys, codes = np.unique(keys, return_inverse=True)
        pairs = (divmod(int(key), len(column.names)) for key in unique_keys)
        combined = Labels(codes, [f"{combined.names[i]}{_SEPARATOR}{column.names[j]}" for i, j in pairs])
    return combined


def join_files(files: Sequence[Cells]) -> Cells:
    """Join the times of all files. Raises UnclearTraceError if two files have times of the same iterations and workers.

    Args:
        files: parts of a trace, such as one for each node, worker or day.
    """
    if len(files) == 1:
        return _subtract_waiting(name_workers_by_node(files[0]))
    # Rows are numbered through all files, so that one integer is the place of a time also after the files are joined:
    # `_describe_row` finds the file by bisection, and asks it for the line only if a message needs it.
    offsets = np.cumsum([0, *(int(file.row.max(initial=0)) + 1 for file in files)])  # first row of each file
    notes = tuple(dict.fromkeys(note for file in files for note in file.notes))
    collectives = list(dict.fromkeys(file.collective for file in files))
    cells = Cells(
        iteration=_concatenate([file.iteration for file in files]),
        worker=_concatenate([file.worker for file in files]),
        node=_concatenate([file.node for file in files if file.node]) if all(file.node for file in files) else None,
        seconds=np.concatenate([file.seconds for file in files]),
        row=np.concatenate([file.row + offset for file, offset in zip(files, offsets[:-1], strict=True)]),
        describe_row=lambda row: _describe_row(files, offsets, row),
        columns=files[0].columns,
        notes=notes,
        operations=_join_operations(files),
        collective=briefly(collectives) if all(collectives) else "",
    )
    return _subtract_waiting(_check_distinct(name_workers_by_node(cells), files))


def name_workers_by_node(cells: Cells) -> Cells:
    """Return the times with workers named by node where nodes share names: rank 0 of each node becomes `node/0`.

    Args:
        cells: times, in which a worker's name may occur on several nodes.
    """
    if cells.node is None:
        return cells
    pairs = combine_labels([cells.node, cells.worker])
    if len(pairs.names) == len(cells.worker.names):  # each name is on one node
        return cells
    keys_and_nodes = np.unique(np.stack([cells.keys, cells.node.codes]), axis=1)
    if len(np.unique(keys_and_nodes[0])) == keys_and_nodes.shape[1]:  # never on two nodes at once: one worker that moved
        return replace(cells, node=None, notes=(*cells.notes, "workers moved from node to node, so nodes are not known"))
    note = "workers of different nodes have the same names, so each is named with its node"
    return replace(cells, worker=pairs, notes=(*cells.notes, note))


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return a short name for each of several files, all different.

    Args:
        paths: paths of the files.

    >>> short_names([Path("a/rank0.csv"), Path("a/rank1.csv")]), short_names([Path("a/times.csv"), Path("b/times.csv")])
    (['rank0', 'rank1'], ['a', 'b'])
    """
    for names in ([_stem(path) for path in paths], [path.parent.name for path in paths]):
        if all(names) and len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def _stem(path: Path) -> str:
    name = path.name
    while name.lower().endswith(_ENDINGS):
        name = name.rpartition(".")[0]
    return name


def _concatenate(columns: Sequence[Labels]) -> Labels:
    """Return one column of labels; the files number their names differently."""
    names = list(dict.fromkeys(name for column in columns for name in column.names))
    code_of = {name: code for code, name in enumerate(names)}
    codes = [np.array([code_of[name] for name in column.names], np.int64)[column.codes] for column in columns]
    return sort_labels(Labels(np.concatenate(codes), names))


def _join_operations(files: Sequence[Cells]) -> Operations | None:
    """Join the operations of all files; None if a file has none, or no starts where others have them."""
    parts = [file.operations for file in files if file.operations]
    starts = [part.start for part in parts if part.start is not None]
    if len(parts) < len(files) or len(starts) not in (0, len(parts)):
        return None
    offsets = np.cumsum([0, *(len(file.seconds) for file in files)])  # first time of each file
    return Operations(
        cell=np.concatenate([part.cell + offset for part, offset in zip(parts, offsets[:-1], strict=True)]),
        kind=_concatenate([part.kind for part in parts]),
        seconds=np.concatenate([part.seconds for part in parts]),
        start=np.concatenate(starts) if starts else None,
        mixed=any(part.mixed for part in parts),
    )


def _subtract_waiting(cells: Cells) -> Cells:
    """Return the times without the waiting that their operations show."""
    if cells.operations is None:
        return cells
    times = find_compute_times(cells.operations, cells.iteration.codes, cells.worker.codes, len(cells.worker.names))
    if times is None:
        return cells
    seconds = np.where(cells.seconds > 0, times.seconds, cells.seconds)  # mending repairs times of 0 and less
    return replace(cells, seconds=seconds, notes=(*cells.notes, times.note))


def _describe_row(files: Sequence[Cells], offsets: Ints, row: int) -> str:
    file = int(np.searchsorted(offsets, row, side="right")) - 1
    return files[file].describe_row(row - int(offsets[file]))


def _check_distinct(cells: Cells, files: Sequence[Cells]) -> Cells:
    """Raise UnclearTraceError if files have other times of the same iterations and workers; a few are left as duplicates."""
    file_of = np.repeat(np.arange(len(files)), [len(file.seconds) for file in files])
    order = np.lexsort((file_of, cells.keys))
    keys, seconds = cells.keys[order], cells.seconds[order]
    # True where the next time in this order has the same iteration and worker, but another file and another value.
    is_repeat = (keys[1:] == keys[:-1]) & (file_of[order][1:] != file_of[order][:-1]) & (seconds[1:] != seconds[:-1])
    if 2 * is_repeat.sum() <= min(len(file.seconds) for file in files):
        return cells  # a restart repeats a few: `mend_table` handles them as duplicates
    first_repeat = int(np.argmax(is_repeat))
    first, second = int(order[first_repeat]), int(order[first_repeat + 1])
    by_iteration: dict[Role, str] = {"iteration": f"{FILE}{PLUS}{cells.columns.get('iteration', '')}".removesuffix(PLUS)}
    by_worker: dict[Role, str] = {"worker": FILE}
    if worker := cells.columns.get("worker"):
        by_worker = {"worker": f"{FILE}{PLUS}{worker}", **({"node": FILE} if is_local_rank(worker) else {})}
    places = [cells.describe_row(int(cells.row[cell])) for cell in (first, second)]
    is_split_by_time = any(map(_TIME_WORDS.search, places))
    remedies = [by_iteration, by_worker] if is_split_by_time else [by_worker, by_iteration]
    raise UnclearTraceError(
        f"{cells.describe_time(first)}: the same iteration and worker as in {places[1]}. If each file has workers of its own, "
        f"say so (`columns: {{worker: {by_worker['worker']}}}`); if each has iterations of its own, `columns: "
        f"{{iteration: {by_iteration['iteration']}}}`",
        remedies=[{"columns": remedy} for remedy in remedies],
    )


def _sorted_order(names: Sequence[str]) -> list[int]:
    """Return the positions of the names in sorted order."""
    split = [name.split(_SEPARATOR) for name in names]
    if len({len(parts) for parts in split}) == 1 and all(_NUMBER.fullmatch(part) for parts in split for part in parts):
        return sorted(range(len(names)), key=lambda i: [Decimal(part) for part in split[i]])
    numbered = [_NUMBERED.fullmatch(name) for name in names]
    if len({match and (match[1], match[3]) for match in numbered}) == 1 and numbered[0]:  # names differ in one number
        return sorted(range(len(names)), key=lambda i: int(numbered[i][2]))  # type: ignore[index]
    return list(range(len(names)))


class LogFormat(NamedTuple):
    """A format of step-time logs.

    Args:
        name: name of the format, in the line that says how a file was read.
        sniff: function that tells whether a file has the format.
        read: function that returns the times in the file.
    """

    name: str
    sniff: Callable[[Content], bool]
    read: Callable[[Content, FileOptions], Cells]
