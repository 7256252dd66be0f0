"""Laws that every run keeps, looked up in its rows one by one: nothing here is computed as FRED computes it."""

import itertools
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fred.components.component import MOST_GRADIENTS
from fred.outcomes.outcome import Outcome, summarise
from fred.schedule.schedule import COLUMNS, NONE, SCALES, UNENDING, Row, Schedule, Verb, What
from fred.schedule.spans import KINDS, spans

_CHANGES = (Verb.PUSH, Verb.COMMIT, Verb.SYNC)  # that advance a clock
_BY_RANK = ("away", "computing", "wasted", "network")  # of what happens at once the first counts
_OF_WORKERS: dict[int, str] = {What.AWAY: "away", What.COMPUTING: "computing", What.LOST: "wasted"}
_OF_WORKERS |= dict.fromkeys((What.COLLECTIVE, What.SENDING), "network")
_OF_THE_JOB: dict[int, str] = {What.UNDONE: "wasted", **dict.fromkeys((What.DETECTING, What.REPAIRING, What.LOADING), "away")}
Stretches = list[tuple[str, int]]  # kind, end, ns


def check_laws(outcome: Outcome) -> None:
    """Raises AssertionError."""
    summary, rows = summarise(outcome), list(outcome.schedule)
    on_servers = outcome.run.protocol.layout(outcome.run.cluster).on_servers
    _check_bounds(outcome)
    _check_order(outcome.schedule)
    _check_intervals(outcome.schedule, rows)
    _check_gradients(outcome.schedule, rows, summary)
    _check_staleness(rows, summary)
    _check_traffic(rows, on_servers, summary)
    if outcome.run.protocol.has_clock:
        check_time(outcome.schedule, rows, summary["workers_time"])
    _check_end(outcome, summary)


def _check_bounds(outcome: Outcome) -> None:
    """Each number is between the least and the largest that the cluster, the replicas and the number of rows allow."""
    schedule, cluster = outcome.schedule, outcome.run.cluster
    layout, rows, end = outcome.run.protocol.layout(cluster), len(schedule), schedule.end_ns
    sizes = schedule.workers, schedule.replicas, schedule.blocks, schedule.on_servers
    assert sizes == (cluster.size, layout.replicas, layout.blocks, layout.on_servers), f"{sizes} of {cluster.size}, {layout}"
    counts, times, row_numbers, workers = (0, 1 << 62), (0, end), (NONE, rows - 1), (NONE, schedule.workers - 1)
    bounds = {
        **dict.fromkeys(COLUMNS, counts),
        **dict.fromkeys(("time_ns", "begin_ns"), times),
        **dict.fromkeys(("mailbox", "source"), row_numbers),
        "end_ns": (0, UNENDING),  # of a read that never ended
        "worker": workers,
        "replica": (NONE, schedule.replicas - 1),
        "block": (0, schedule.blocks - 1),
        "step": (NONE, schedule.started),  # a pull may precede a minibatch that is never begun
        "timestamp": (NONE, rows),
        "staleness": (-rows, rows),
    }
    _check_columns(schedule.columns, bounds)
    assert all(schedule[name].dtype == np.float64 for name in SCALES)
    most = max(schedule.workers, cluster.servers, schedule.replicas * schedule.blocks) - 1
    moments, lengths = (dict.fromkeys(("begin_ns", "end_ns"), (0, last)) for last in (end, UNENDING))
    others = schedule.intervals.select(*{*What} - {What.SKIPPED})
    _check_columns(others._asdict(), {**lengths, "row": row_numbers, "worker": workers, "other": (NONE, most)})
    skips = schedule.intervals.select(What.SKIPPED)
    _check_columns(
        skips._asdict(), {**moments, "row": (NONE, NONE), "worker": (0, schedule.workers - 1), "other": (1, MOST_GRADIENTS)}
    )


def _check_columns(columns: dict[str, NDArray], bounds: dict[str, tuple[int, int]]) -> None:
    for name, (least, most) in bounds.items():
        numbers = columns[name]
        assert numbers.dtype == np.int64, f"column {name} has {numbers.dtype}"
        assert ((numbers >= least) & (numbers <= most)).all(), f"{name} is not within {least} to {most}: {numbers}"


def _check_order(schedule: Schedule) -> None:
    """Rows stand in the order in which they took effect."""
    assert (np.diff(schedule["time_ns"]) >= 0).all(), "rows are not in the order of time"
    assert (schedule["end_ns"] >= schedule["begin_ns"]).all(), "something ends before it begins"


def _check_intervals(schedule: Schedule, rows: list[Row]) -> None:
    """Each model that is sent is the one that its sender has just published; nothing in flight goes on after the end."""
    for kind, begin, end, row, worker, _ in zip(*map(np.ndarray.tolist, schedule.intervals), strict=True):
        if kind == What.TRIP and NONE not in (row, worker):
            assert (rows[row].verb, rows[row].time_ns, rows[row].worker) == (Verb.PULL, begin, worker), f"{rows[row]}: {begin}"
        if kind in (What.TRIP, What.LOST, What.COMPUTING, What.SENDING):
            assert begin <= end <= schedule.end_ns, f"{What(kind).name} from {begin} to {end}, but the end is {schedule.end_ns}"


def _check_gradients(schedule: Schedule, rows: list[Row], summary: dict[str, Any]) -> None:
    """Each gradient that was begun was applied, or dropped, or is in flight; none is two of these."""
    applied, dropped, used = set(), set(), set()
    waiting: dict[Any, set[tuple[int, int]]] = defaultdict(set)  # for the COMMIT of their cell
    for row in rows:
        gradient, cell = (row.worker, row.step), (row.replica, row.block)
        if row.verb == Verb.COMMIT:
            applied |= waiting.pop(cell, set())
        elif row.step >= 0 and row.verb in (Verb.PUSH, Verb.ADD):
            used.add(gradient)
            (applied if row.verb == Verb.PUSH else waiting[cell]).add(gradient)
        elif row.step >= 0 and row.verb == Verb.DROP:
            dropped.add(gradient)
    counts = summary["gradients"]
    assert (counts["applied"], counts["dropped"]) == (len(applied), len(dropped - used)), f"{counts}: {len(applied)} applied"
    assert counts["computed"] == counts["applied"] + counts["dropped"], f"{counts}"
    assert counts["in_flight"] >= len(used - applied), f"{counts} but {len(used - applied)} in open rounds"
    assert schedule.started == counts["computed"] + counts["in_flight"], f"{counts} but {schedule.started} begun"
    steps: dict[int, int] = defaultdict(int)
    for worker, step in used | dropped:
        steps[worker] = max(steps[worker], step + 1)
    assert sum(steps.values()) <= schedule.started, f"workers number {sum(steps.values())} gradients, {schedule.started} begun"


def _check_staleness(rows: list[Row], summary: dict[str, Any]) -> None:
    """Recompute all staleness from clocks that are counted here, and from the timestamp of each mailbox."""
    clocks: dict[Any, int] = defaultdict(int)
    averaged: dict[Any, list[int]] = defaultdict(list)  # when a cell's clock was advanced by a SYNC
    read: dict[tuple[int, int], int] = {}  # mailbox and block -> clock
    stale: dict[int, list[int]] = defaultdict(list)  # by block
    for row in rows:
        cell = (row.replica, row.block)
        if row.verb == Verb.PULL:
            read[row.mailbox, row.block] = clocks[cell]
        elif row.verb == Verb.MIX:
            read.setdefault((row.mailbox, row.block), row.timestamp)
        elif row.verb in (Verb.PUSH, Verb.ADD):
            lag, since = clocks[cell] - row.timestamp, read[row.mailbox if row.step != NONE else row.source, row.block]
            assert row.staleness == lag, f"staleness {row.staleness} at clock {clocks[cell]}, read at {row.timestamp}"
            assert row.timestamp >= since, f"what was read at {since} is told to be of {row.timestamp}"
            stale[row.block].append(clocks[cell] - since - sum(when >= since for when in averaged[cell]))
        if row.verb == Verb.SYNC:
            averaged[cell].append(clocks[cell])
        clocks[cell] += row.verb in _CHANGES
    everything = [age for ages in stale.values() for age in ages]
    _check_mean_and_max(everything, summary["staleness"])
    for entry in summary["staleness_by_block"] or ():
        _check_mean_and_max(stale[entry["block"]], entry)


def _check_mean_and_max(numbers: list[int], entry: dict[str, Any]) -> None:
    mean, largest = (sum(numbers) / len(numbers), max(numbers)) if numbers else (None, None)
    assert entry["max"] == largest, f"staleness {largest}, in the summary {entry}"
    assert mean == entry["mean"] or np.isclose(mean or np.nan, entry["mean"]), f"staleness {mean}, in the summary {entry}"


def _check_traffic(rows: list[Row], on_servers: range, summary: dict[str, Any]) -> None:
    for unit in ("bytes", "messages"):
        sent = {"to_workers": 0, "to_servers": 0, "between_workers": 0}
        for row in rows:
            way = "to_workers" if row.verb == Verb.PULL else "to_servers"
            sent[way if row.replica in on_servers else "between_workers"] += getattr(row, unit)
        assert sent == summary[unit], f"{unit} {sent}, in the summary {summary[unit]}"


def check_time(schedule: Schedule, rows: list[Row], shares: dict[str, Any]) -> None:
    """Check the time of each worker up to its last record: without gaps or overlaps, by the rank of activities."""
    account, expected = spans(schedule), [stretches(schedule, rows, worker) for worker in range(schedule.workers)]
    sums = dict.fromkeys(KINDS, 0)
    for worker, stretches_of in enumerate(expected):
        spent = account[account["worker"] == worker]
        begin, end = spent["begin_ns"].tolist(), spent["end_ns"].tolist()
        assert all(start < stop for start, stop in zip(begin, end, strict=True)), f"worker {worker}: nothing takes no time"
        assert begin[1:] == end[:-1], f"worker {worker}: a gap, or two things at once"
        assert begin[:1] in ([], [0]), f"worker {worker} does nothing at the start"
        merged = [(kind, end) for (kind, _), (*_, (_, end)) in _runs(list(zip(spent["kind"], end, strict=True)))]
        assert merged == stretches_of, f"worker {worker}: {merged}, expected {stretches_of}"
        for (kind, end_ns), (_, begin_ns) in zip(stretches_of, [("", 0), *stretches_of], strict=False):
            sums[kind] += end_ns - begin_ns
    total = sum(sums.values())
    assert total <= schedule.workers * schedule.end_ns, "workers have more time than there is"
    if not total:
        assert set(shares.values()) == {None}, f"{shares} where no time has passed"
        return
    assert np.allclose([sums[kind] / total for kind in KINDS], [shares[kind] for kind in KINDS], atol=1e-9), f"{sums}, {shares}"


def stretches(schedule: Schedule, rows: list[Row], worker: int) -> Stretches:
    """Return a worker's activities, and their ends: at each moment the first of all that go on."""
    activities = [(*interval, 1) for interval in _goings(schedule, rows, worker)]
    last = _last_moment(schedule, rows, worker)
    moments = sorted({0, last, *(moment for _, begin, end, _ in activities for moment in (begin, end) if 0 < moment < last)})
    changes: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for kind, begin, end, _ in activities:
        if begin < end:
            changes[max(begin, 0)].append((kind, 1))
            changes[end].append((kind, -1))
    active, runs = dict.fromkeys(_BY_RANK, 0), list[tuple[str, int]]()
    for moment, following in itertools.pairwise(moments):
        for kind, change in changes[moment]:
            active[kind] += change
        runs.append((next((kind for kind in _BY_RANK if active[kind]), "waiting"), following))
    return [(kind, end) for (kind, _), (*_, (_, end)) in _runs(runs)]


def _runs(stretches: Stretches) -> Iterable[tuple[tuple[str, int], Stretches]]:
    """Neighbours of one kind together: the first of them, and all."""
    for _, group in itertools.groupby(stretches, key=lambda stretch: stretch[0]):
        together = list(group)
        yield together[0], together


def _last_moment(schedule: Schedule, rows: list[Row], worker: int) -> int:
    """Until when it is known what a worker does."""
    moments = [schedule.end_ns if schedule.standstill else 0]
    for kind, _, end, _, owner, peer in zip(*schedule.intervals, strict=True):
        if (owner == worker and kind != What.UNFINISHED) or (peer == worker and kind == What.TRIP) or kind >= What.SAVING:
            moments.append(end)
    moments += [moment for row in rows if row.worker == worker for moment in (row.time_ns, row.end_ns)]
    return max(min(int(moment), schedule.end_ns) for moment in moments)


def _goings(schedule: Schedule, rows: list[Row], worker: int) -> Iterable[tuple[str, int, int]]:
    """Yield a worker's activities with their begins and ends."""
    intervals = [tuple(map(int, interval)) for interval in zip(*schedule.intervals, strict=True)]
    crashes = [begin for kind, begin, _, _, owner, _ in intervals if kind == What.AWAY and owner == worker]
    for row in (row for row in rows if row.worker == worker):
        if row.verb in (Verb.PUSH, Verb.ADD):
            yield "computing", row.begin_ns, row.end_ns
        if row.verb == Verb.DROP:
            yield "wasted", row.begin_ns, row.end_ns
        if row.verb == Verb.PULL:
            yield "network", row.begin_ns, min([row.end_ns, *(crash for crash in crashes if crash >= row.begin_ns)])
        elif row.verb in (Verb.PUSH, Verb.ADD, Verb.DROP, Verb.SYNC) and row.messages and row.replica in schedule.on_servers:
            yield "network", row.end_ns, row.time_ns
    for kind, begin, end, _, owner, peer in intervals:
        if kind == What.TRIP and worker in (owner, peer):
            yield "network", begin, end
        elif owner == worker and kind in _OF_WORKERS:
            yield _OF_WORKERS[kind], begin, end
        elif kind in _OF_THE_JOB:
            yield _OF_THE_JOB[kind], begin, end


def _check_end(outcome: Outcome, summary: dict[str, Any]) -> None:
    """A run ends at one of its limits, and beyond none."""
    stop, metrics = outcome.run.stop, outcome.metrics
    seconds, updates, applied = summary["virtual_seconds"], summary["updates"], summary["gradients"]["applied"]
    assert stop.updates is None or updates <= stop.updates, f"{updates} updates of {stop.updates}"
    assert stop.seconds is None or seconds <= stop.seconds, f"{seconds} s of {stop.seconds}"
    reached = updates == stop.updates or seconds == stop.seconds or applied >= (stop.gradients or np.inf)
    if not reached:
        assert stop.target_loss, f"no limit was reached: {stop}, {updates} updates, {applied} gradients, {seconds} s"
        assert summary["loss"] <= stop.target_loss, f"it ended before its target: {summary['loss']} of {stop.target_loss}"
    for column in ("updates", "gradients", "virtual_seconds"):
        assert not (metrics[column].diff() < 0).any(), f"{column} of evaluations go back"
    assert metrics["updates"].iloc[-1] == updates, "the last evaluation is not at the end"
