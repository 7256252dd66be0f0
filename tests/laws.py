"""Laws that every run keeps, looked up in its rows one by one: nothing here is computed as FRED computes it."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from fred.outcomes.measures import summarise
from fred.outcomes.outcome import Outcome
from fred.schedule import NONE, Row, Schedule, Verb

_CHANGES = (Verb.PUSH, Verb.COMMIT, Verb.SYNC)  # that advance a clock
Spans = list[tuple[int, int]]


def check_laws(outcome: Outcome) -> None:
    """Raises AssertionError."""
    summary, rows = summarise(outcome), list(outcome.schedule)
    on_servers = outcome.run.protocol.layout(outcome.run.cluster).on_servers
    _check_signs(outcome.schedule)
    _check_gradients(outcome.schedule, rows, summary)
    _check_staleness(rows, summary)
    _check_traffic(rows, on_servers, summary)
    if outcome.run.protocol.has_clock:
        _check_time(outcome.schedule, rows, on_servers, summary)
    _check_end(outcome, summary)


def _check_signs(schedule: Schedule) -> None:
    """Times, bytes and messages are not negative, and rows stand in the order in which they took effect."""
    for name in ("time_ns", "bytes", "messages"):
        assert (schedule[name] >= 0).all(), f"negative {name}"
    assert (np.diff(schedule["time_ns"]) >= 0).all(), "rows are not in the order of time"
    assert (schedule["time_ns"] <= schedule.end_ns).all(), "a row after the end"
    assert (schedule["end_ns"] >= schedule["begin_ns"]).all(), "something ends before it begins"


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
    found = summary["gradients"]
    assert found["applied"] == len(applied), f"{found} but {len(applied)} applied"
    assert found["dropped"] == len(dropped - used), f"{found} but {len(dropped - used)} dropped"
    assert found["computed"] == found["applied"] + found["dropped"], f"{found}"
    open_rounds = len(used - applied)
    assert found["in_flight"] >= open_rounds, f"{found} but {open_rounds} in open rounds"
    assert schedule.started == found["computed"] + found["in_flight"], f"{found} but {schedule.started} begun"
    steps: dict[int, int] = defaultdict(int)
    for worker, step in used | dropped:
        steps[worker] = max(steps[worker], step + 1)
    assert sum(steps.values()) <= schedule.started, f"workers number {sum(steps.values())} gradients, {schedule.started} begun"


def _check_staleness(rows: list[Row], summary: dict[str, Any]) -> None:
    """Clocks are counted anew, and what each mailbox holds is of which time."""
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
    everything = [each for own in stale.values() for each in own]
    _check_mean_and_max(everything, summary["staleness"])
    for own in summary["staleness_by_block"] or ():
        _check_mean_and_max(stale[own["block"]], own)


def _check_mean_and_max(numbers: list[int], found: dict[str, Any]) -> None:
    mean, largest = (sum(numbers) / len(numbers), max(numbers)) if numbers else (None, None)
    assert found["max"] == largest, f"staleness {largest}, in the summary {found}"
    assert mean == found["mean"] or np.isclose(mean or np.nan, found["mean"]), f"staleness {mean}, in the summary {found}"


def _check_traffic(rows: list[Row], on_servers: range, summary: dict[str, Any]) -> None:
    for unit in ("bytes", "messages"):
        sent = {"to_workers": 0, "to_servers": 0, "between_workers": 0}
        for row in rows:
            way = (
                "between_workers" if row.replica not in on_servers else "to_workers" if row.verb == Verb.PULL else "to_servers"
            )
            sent[way] += getattr(row, unit)
        assert sent == summary[unit], f"{unit} {sent}, in the summary {summary[unit]}"


def _check_time(schedule: Schedule, rows: list[Row], on_servers: range, summary: dict[str, Any]) -> None:
    """Each worker's time until the last that is known of it: its parts add up to it, and are not longer than the run."""
    end = schedule.end_ns
    last = [0] * schedule.workers
    busy: list[list[Spans]] = [[[], [], []] for _ in range(schedule.workers)]  # computing; in vain, too; on the network, too
    for row in rows:
        if row.worker < 0:
            continue
        last[row.worker] = max(last[row.worker], min(row.time_ns, end), min(row.end_ns, end))
        for kind, span in _spans(row, on_servers):
            busy[row.worker][kind].append(span)
    for number, begin, until in schedule.collectives.tolist():
        worker = rows[number].worker
        busy[worker][2].append((begin, min(until, last[worker])))
    whole, covered = sum(last), [0, 0, 0]
    assert whole <= schedule.workers * end, "workers have more time than there is"
    for own in busy:
        for kind in range(3):
            covered[kind] += _length((span for spans in own[: kind + 1] for span in spans), end)
    found = summary["workers_time"]
    if not whole:
        assert set(found.values()) == {None}, f"{found} where no time has passed"
        return
    shares = np.diff([0, *covered, whole]) / whole
    assert min(found.values()) >= 0, f"negative: {found}"
    assert np.isclose(sum(found.values()), 1), f"the parts do not add up: {found}"
    assert np.allclose(shares, list(found.values()), atol=1e-9), f"{shares}, in the summary {found}"


def _spans(row: Row, on_servers: range) -> Iterable[tuple[int, tuple[int, int]]]:
    if row.verb in (Verb.PUSH, Verb.ADD):
        yield 0, (row.begin_ns, row.end_ns)
    if row.verb == Verb.DROP:
        yield 1, (row.begin_ns, row.end_ns)
    if row.verb == Verb.PULL:
        yield 2, (row.begin_ns, row.end_ns)
    elif row.verb in (Verb.PUSH, Verb.ADD, Verb.DROP, Verb.SYNC) and row.messages and row.replica in on_servers:
        yield 2, (row.end_ns, row.time_ns)


def _length(spans: Iterable[tuple[int, int]], end: int) -> int:
    """How long at least one of these goes on."""
    length, reached = 0, 0
    for begin, until in sorted(spans):
        until = min(until, end)
        length += max(0, until - max(begin, reached))
        reached = max(reached, until)
    return length


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
