"""The Perfetto trace of a run, for https://ui.perfetto.dev: workers' activities, messages, updates, and their relations."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base.errors import FredError
from fred.base.types import Ints
from fred.components.component import NANOSECONDS
from fred.schedule.schedule import NONE, UNENDING, Schedule, Verb, What
from fred.schedule.spans import spans
from fred.schedule.staleness import of_gradients
from fred.schedule.traffic import messages
from fred.views.packets import Packets

_Numbers = dict[int, list[int]]  # the flows of each item that has any


class Flows:
    """The flows of a trace, numbered from 1, and the items that each passes.

    `passing` and `ending` have the flows of every item by kind: `spans`, `messages`, `rows`, and `arrivals` of models from
    other workers. `passing` has those that begin at the item or pass it, `ending` those that end there.

    Args:
        schedule: the schedule of a run with a clock.
        account: the spans that are drawn, by number.
        sent: the messages that are drawn, by number.
        rows: the rows of the schedule that are drawn.
        end: when the drawn part of the run ends, ns: messages under way by then have no arrival.
    """

    def __init__(self, schedule: Schedule, account: pd.DataFrame, sent: pd.DataFrame, rows: Ints, end: int):
        self._schedule, self._count = schedule, 0
        self.passing: dict[str, _Numbers] = defaultdict(dict)
        self.ending: dict[str, _Numbers] = defaultdict(dict)
        self._busy = account[account["kind"].isin(("computing", "wasted"))]
        # by row of the schedule: the row itself and its message, NONE if they are not drawn; the last element is for no row
        self._drawn_row, self._message_of = (np.full(len(schedule) + 1, NONE, np.int64) for _ in range(2))
        self._drawn_row[rows] = rows
        between_workers = sent["way"] == "between workers"
        self._message_of[sent.loc[~between_workers, "row"]] = sent.index[~between_workers]
        self._message_of[NONE] = NONE  # messages without a row
        self._add_gradients()
        self._add_models()
        arrives = sent["arrived"] & (sent["end_ns"] <= end)
        arriving = sent.index[between_workers & arrives & (sent["sender"] != NONE)].to_numpy()
        self._join(messages=arriving, arrivals=arriving)

    def _add_gradients(self) -> None:
        """Add flows of gradients: from the span that computed each, over its message, to the rows that use or drop it.

        If a gradient is sent block by block, only its last block is ready when the span ends.
        """
        rows = self._schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP)
        worker, begin, end = (self._schedule[name][rows] for name in ("worker", "begin_ns", "end_ns"))
        spans = self._find_spans("end_ns", worker, end)
        spans = np.where((spans == NONE) & (begin < end), self._find_spans("begin_ns", worker, begin), spans)
        self._join(spans=spans, messages=self._message_of[rows], rows=self._drawn_row[rows])

    def _add_models(self) -> None:
        """Add flows of models: from the row that sends each, over its message, to the span of the first gradient with it.

        The flow of a block that arrives after the span has begun ends with its message.
        """
        schedule = self._schedule
        used = schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP)[::-1]  # reversed so that the first use is assigned last
        first_use = np.full(int(schedule["mailbox"].max(initial=0)) + 1, NONE, np.int64)  # ns, by mailbox
        first_use[schedule["mailbox"][used]] = schedule["begin_ns"][used]
        mixes = schedule.rows(Verb.MIX)[::-1]
        mixes = mixes[first_use[schedule["mailbox"][mixes]] != NONE]
        # A server's model in several blocks is read block by block, and mixed into the mailbox of the whole model.
        mixed_into = np.arange(len(first_use))  # by mailbox: itself, or the mailbox of the whole model
        mixed_into[schedule["source"][mixes]] = schedule["mailbox"][mixes]
        rows = schedule.rows(Verb.PULL)
        rows = rows[schedule.is_on_servers(rows)]
        mailboxes = schedule["mailbox"][rows]
        begin = np.where(first_use[mailboxes] == NONE, first_use[mixed_into[mailboxes]], first_use[mailboxes])
        spans = self._find_spans("begin_ns", schedule["worker"][rows], begin)
        spans[begin < schedule["end_ns"][rows]] = NONE
        self._join(rows=self._drawn_row[rows], messages=self._message_of[rows], spans=spans)

    def _find_spans(self, name: str, worker: Ints, time: Ints) -> Ints:
        """Return the computing spans of these workers that begin or end at these times, ns; NONE if it is not drawn."""
        boundaries = pd.MultiIndex.from_arrays([self._busy["worker"], self._busy[name]])
        positions = boundaries.get_indexer(pd.MultiIndex.from_arrays([worker, time]))
        return np.append(self._busy.index, NONE)[positions]  # position -1, of no span, is that of the last element

    def _join(self, **places: Ints) -> None:
        """Add one flow per position, which joins its drawn items from first to last, if there are at least two.

        `places` are the kinds of items in the order in which the flows pass them. Each has the item of every flow: the number
        of a span or message, or a row of the schedule; NONE if it is not drawn.
        """
        is_drawn = np.array([items != NONE for items in places.values()])
        is_joined = is_drawn.sum(axis=0) > 1
        flow_numbers = self._count + np.cumsum(is_joined)
        self._count += int(is_joined.sum())
        for rank, (kind, items) in enumerate(places.items()):
            ends_here = ~is_drawn[rank + 1 :].any(axis=0)
            for flows, selected in ((self.ending, ends_here), (self.passing, ~ends_here)):
                positions = np.flatnonzero(is_joined & is_drawn[rank] & selected)
                for item, number in zip(items[positions].tolist(), flow_numbers[positions].tolist(), strict=True):
                    flows[kind].setdefault(item, []).append(number)


MOST_EVENTS = 1_000_000  # slices and instants in one trace, of about 100 bytes each
_DONE = ("read", "update", "joins a round", "update", "", "averaging", "dropped")  # event on a replica, by verb
_FACTS = ("worker", "step", "version", "staleness", "bytes", "row")  # annotations of a row
_USED = Verb.PUSH, Verb.ADD


class Part(NamedTuple):
    """The part of a run that a trace shows.

    Args:
        schedule: the schedule of a run with a clock.
        name: the name of the run.
        node_of: the node of each worker, [workers].
        begin: start of the part, virtual time in ns.
        end: end of the part, virtual time in ns.
    """

    schedule: Schedule
    name: str
    node_of: NDArray
    begin: int
    end: int

    def rows_of(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of a table that lie in this part, at least partly."""
        begin, end = table["begin_ns"], table["end_ns"]
        is_instant = (begin == end) & (begin >= self.begin) & (end <= self.end)
        return table[is_instant | ((end > self.begin) & (begin < self.end))]

    def clip_rows(self, table: pd.DataFrame) -> Iterator[Any]:
        """Return an iterator over the rows, index first, with their times cut at the ends of this part."""
        ends = {name: table[name].clip(self.begin, self.end) for name in ("begin_ns", "end_ns")}
        return table.assign(**ends).itertuples(name=None)

    def holds(self, times: Ints) -> NDArray[np.bool_]:
        """Return which of these times, ns, lie in this part."""
        return (times >= self.begin) & (times <= self.end)


def trace(part: Part) -> bytes:
    """Return the Perfetto trace of a part of a run. The same part gives the same bytes. Raises FredError if it is too large.

    The tracks are: the number of updates; the staleness of each gradient; faults; the events of each replica; messages in
    transit; and each worker's time, as `fred.spans` has it. A message is shown at the worker that sends it, or at the worker
    that receives it from a server. Flows lead from a gradient over its message to its use, and from a read of a model over its
    message to the gradient computed with it. Times are ns of virtual time.
    """
    schedule = part.schedule
    account, sent = part.rows_of(spans(schedule)), part.rows_of(messages(schedule))
    sent = sent[(sent["begin_ns"] < sent["end_ns"]) | (sent["way"] == "between workers")]  # the others are drawn as rows
    rows = np.flatnonzero(part.holds(schedule["time_ns"]) & (schedule["verb"] != Verb.MIX))
    _check_size(part, len(account) + len(sent) + len(rows))
    flows, packets = Flows(schedule, account, sent, rows, part.end), Packets()
    top = packets.track(part.name)
    _add_counters(packets, top, part)  # the order matters: flows within one instant follow it
    _add_faults(packets, top, part)
    _add_replicas(packets, top, part, rows, flows)
    _add_messages(packets, top, part, sent, flows)
    _add_workers(packets, top, part, account, flows)
    return packets.serialize()


def _check_size(part: Part, events: int) -> None:
    """Raise FredError if there are too many events; it proposes the beginning of the part, for about half of MOST_EVENTS."""
    if events <= MOST_EVENTS:
        return
    end = part.begin + (part.end - part.begin) * MOST_EVENTS // (2 * events)
    raise FredError(
        f"{part.name} has {events:,} slices and instants, more than the {MOST_EVENTS:,} that a trace may have; "
        f"choose a part of it, such as --begin {part.begin / NANOSECONDS:.9g} --end {end / NANOSECONDS:.9g}"
    )


def _add_counters(packets: Packets, top: int, part: Part) -> None:
    """Add the counters: updates of all replicas so far, and the staleness of gradients."""
    schedule = part.schedule
    times = schedule["time_ns"][schedule.ledger.every_update]
    track = packets.track("updates", top, 0, "updates")
    packets.count(track, part.begin, int((times < part.begin).sum()) // schedule.blocks)
    for number in np.flatnonzero(part.holds(times)).tolist():
        packets.count(track, int(times[number]), (number + 1) // schedule.blocks)
    track = packets.track("staleness", top, 1, "updates")
    times = schedule["time_ns"][schedule.rows(*_USED)]
    is_inside = part.holds(times)
    for time, stale in zip(times[is_inside].tolist(), of_gradients(schedule)[is_inside].tolist(), strict=True):
        packets.count(track, time, stale)


def _add_faults(packets: Packets, top: int, part: Part) -> None:
    """Add an event for every worker or server that goes offline."""
    intervals = part.schedule.intervals
    begins_inside = part.holds(intervals.begin_ns)
    absences = np.flatnonzero(begins_inside & np.isin(intervals.what, (What.AWAY, What.SERVER_AWAY)))
    track = packets.track("faults", top, 2) if len(absences) else 0
    for number in absences.tolist():
        server = intervals.what[number] == What.SERVER_AWAY
        name = f"server {intervals.other[number]}" if server else f"worker {intervals.worker[number]}"
        begin, end = int(intervals.begin_ns[number]), int(intervals.end_ns[number])
        facts = [("for, s", "for ever" if end >= UNENDING else f"{(end - begin) / NANOSECONDS:g}")]
        packets.instant(track, begin, f"{name} is away", facts)


def _add_replicas(packets: Packets, top: int, part: Part, rows: Ints, flows: Flows) -> None:
    """Add the events of each block of each replica."""
    schedule = part.schedule
    parameters_track = packets.track("parameters", top, 4)
    cells = schedule.cells(rows)
    tracks = {cell: packets.track(_replica_name(schedule, cell), parameters_track, cell) for cell in np.unique(cells).tolist()}
    passing, ending = flows.passing["rows"], flows.ending["rows"]
    columns = (rows, schedule["time_ns"][rows], schedule["verb"][rows], cells)
    for facts, row, time, verb, cell in zip(_facts(schedule, rows), *(column.tolist() for column in columns), strict=True):
        packets.instant(tracks[cell], time, _DONE[verb], facts, passing.get(row, ()), ending.get(row, ()))


def _replica_name(schedule: Schedule, cell: int) -> str:
    """Return the name of a block of a replica; `cell` is replica x number of blocks + block."""
    replica, block = divmod(cell, schedule.blocks)
    workers_have_replicas = schedule.replicas - len(schedule.on_servers) >= schedule.workers  # then w is worker w's (`Layout`)
    if replica in schedule.on_servers:
        owner = "of the server"
    elif workers_have_replicas and replica < schedule.workers:
        owner = f"of worker {replica}"
    else:
        owner = "of all workers"
    return owner if schedule.blocks == 1 else f"{owner}, block {block}"


def _facts(schedule: Schedule, rows: Ints, names: Sequence[str] = _FACTS) -> Iterator[list[tuple[str, int | str]]]:
    """Yield the annotations of each of these rows; none for NONE."""
    computed = schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP)
    version, stale = schedule["timestamp"].copy(), np.full(len(schedule), NONE, np.int64)
    version[computed], stale[schedule.rows(*_USED)] = schedule.read_clocks(computed), of_gradients(schedule)
    size = np.where(schedule["messages"] > 0, schedule["bytes"], NONE)
    columns = (schedule["worker"], schedule["step"], version, stale, size, np.arange(len(schedule)))
    # The element appended to a column is the last, which row NONE (-1) selects.
    facts_by_name = {name: np.append(column, NONE)[rows].tolist() for name, column in zip(_FACTS, columns, strict=True)}
    for numbers in zip(*(facts_by_name[name] for name in names), strict=True):
        yield [(name, number) for name, number in zip(names, numbers, strict=True) if number != NONE]


def _add_messages(packets: Packets, top: int, part: Part, sent: pd.DataFrame, flows: Flows) -> None:
    """Add messages in transit, then the arrivals of models from other workers."""
    messages_track = packets.track("messages", top, 5) if len(sent) else 0
    lanes, passing, ending = _Lanes(packets, messages_track), flows.passing["messages"], flows.ending["messages"]
    for number, way, begin, end, arrived, row, sender, receiver, size in part.clip_rows(
        sent.sort_values("begin_ns", kind="stable")
    ):
        receives = way == "to workers" or sender == NONE  # a mean of several workers' models has no one sender
        worker, partner = (receiver, sender) if receives else (sender, receiver)
        party = _party("worker" if way == "between workers" else "server", partner)
        details = [(name, value) for name, value in (("bytes", size), ("row", row)) if value != NONE]
        track, name = lanes.reserve(worker, receives, begin, end), "gradient" if way == "to servers" else "model"
        facts = [("from" if receives else "to", party), *details, *([] if arrived else [("arrives", "never in this run")])]
        packets.slice(track, begin, end, name, facts, passing.get(number, ()), ending.get(number, ()))
    lanes, ending = _Lanes(packets, messages_track), flows.ending["arrivals"]
    arriving = sent.loc[list(ending)].sort_values("end_ns", kind="stable")
    for number, time, sender, receiver in arriving[["end_ns", "sender", "receiver"]].itertuples(name=None):
        facts = [("from", f"worker {sender}")]
        packets.instant(lanes.reserve(receiver, True, time, time), time, "model", facts, ending=ending[number])


def _party(other: str, number: int) -> str:
    """Return the name of the other party of a message: its kind, and its number if that is known."""
    return other if number == NONE else f"{other} {number}"


class _Lanes:
    """The tracks for workers' messages. Overlapping messages of a worker get separate tracks with the same name."""

    def __init__(self, packets: Packets, parent: int):
        self._packets, self._parent = packets, parent
        self._lanes: dict[int, list[list[int]]] = defaultdict(list)  # track, and the time until which it is in use, ns

    def reserve(self, worker: int, receives: bool, begin: int, end: int) -> int:
        """Reserve a track that is free from `begin` on until `end`, ns, and return its number."""
        rank = 2 * worker + receives
        lane = next((lane for lane in self._lanes[rank] if lane[1] <= begin), None)
        if lane is None:
            name = f"worker {worker} {'receives' if receives else 'sends'}"
            lane = [self._packets.track(name, self._parent, rank), 0]
            self._lanes[rank].append(lane)
        lane[1] = end
        return lane[0]


def _add_workers(packets: Packets, top: int, part: Part, account: pd.DataFrame, flows: Flows) -> None:
    """Add each worker's spans, grouped by node if workers share nodes."""
    workers_track, nodes = packets.track("workers", top, 3), part.node_of.tolist()
    shared = 1 < len(set(nodes)) < len(nodes)
    parents = {
        node: packets.track(f"node {node}", workers_track, node) if shared else workers_track for node in sorted(set(nodes))
    }
    tracks = [packets.track(f"worker {worker}", parents[node], worker) for worker, node in enumerate(nodes)]
    annotations = _facts(part.schedule, account["row"].to_numpy(), ("step", "version", "staleness", "row"))
    passing, ending = flows.passing["spans"], flows.ending["spans"]
    for (span, worker, begin, end, kind, _, other, partner), facts in zip(part.clip_rows(account), annotations, strict=True):
        if other:
            facts.append(("for" if kind == "waiting" else "with", _party(other, partner)))
        name = kind.replace("_", " ")
        packets.slice(tracks[worker], begin, end, name, facts, passing.get(span, ()), ending.get(span, ()))
