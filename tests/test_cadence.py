"""Evaluation points of runs, compared with a plain walk through their rows; and recordings up to a point."""

import math
from typing import NamedTuple, get_args

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fred.cluster.cluster import Cluster
from fred.components import registry
from fred.protocols.protocol import Protocol
from fred.running.recording import Cadence, Points, Recording, Watch
from fred.schedule.schedule import NONE, UNENDING, Row, Schedule, Verb
from fred.specification.stopping import Measure
from fred.timing.recorder import Recorder
from fred.timing.simulation import Simulation
from tests.users import Anything
from tests.worlds import CLUSTERS, Blind, fitting_protocol, make_run, record


class Point(NamedTuple):
    rows: int
    updates: int
    gradients: int
    time_ns: int


class Walk:
    def __init__(self, blocks: int):
        self.blocks, self.rows, self.changes = blocks, 0, 0
        self.used: set[tuple[int, int]] = set()  # gradients that took part in an update, by worker and step
        self.joined: dict[tuple[int, int], list[tuple[int, int]]] = {}  # open rounds, by replica and block

    def step(self, row: Row) -> None:
        cell, gradients = (row.replica, row.block), [(row.worker, row.step)] if row.step != NONE else []
        self.rows += 1
        if row.verb == Verb.ADD:
            self.joined.setdefault(cell, []).extend(gradients)
        if row.verb == Verb.COMMIT:
            gradients = self.joined.pop(cell, [])
        if row.verb in (Verb.PUSH, Verb.COMMIT):
            self.changes += 1
            self.used.update(gradients)

    def point_at(self, time_ns: int) -> Point:
        return Point(self.rows, self.changes // self.blocks, len(self.used), time_ns)

    def count(self, unit: Measure) -> int:
        return self.changes // self.blocks if unit == "updates" else len(self.used)


def points_of(schedule: Schedule, cadence: Cadence) -> list[Point]:
    walk, points, number = Walk(schedule.blocks), [], 1

    def moment() -> int:
        return round(number * cadence.spacing * 1e9)

    for row in schedule:
        while cadence.unit == "seconds" and moment() <= row.time_ns and moment() < schedule.end_ns:
            points.append(walk.point_at(moment()))
            number += 1
        before = walk.count(cadence.unit)
        walk.step(row)
        if cadence.unit != "seconds" and before < walk.count(cadence.unit) >= number * cadence.spacing:
            points.append(walk.point_at(row.time_ns))
            while number * cadence.spacing <= walk.count(cadence.unit):
                number += 1
    while cadence.unit == "seconds" and moment() < schedule.end_ns:
        points.append(walk.point_at(moment()))
        number += 1
    return points


def expected(schedule: Schedule, cadence: Cadence) -> list[Point]:
    """All points; where counts are looked at, the end is one only if it adds something to the last of the others."""
    walk = Walk(schedule.blocks)
    points = [walk.point_at(0), *points_of(schedule, cadence)]
    for row in schedule:
        walk.step(row)
    changed = {Verb.PUSH, Verb.COMMIT, Verb.SYNC}.intersection([row.verb for row in list(schedule)[points[-1].rows :]])
    if cadence.unit == "seconds" or changed:
        points.append(walk.point_at(schedule.end_ns))
    return points


def list_points(points: Points) -> list[Point]:
    columns = (points.rows, points.updates, points.gradients, np.rint(points.seconds * 1e9).astype(np.int64))
    return list(map(Point._make, zip(*(column.tolist() for column in columns), strict=True)))


class Witness(Blind):
    def __init__(self, blocks: int, limit: float = math.inf):
        self.walk, self.looks, self.limit = Walk(blocks), list[Point](), limit
        self.time_ns = 0  # of the last row

    def execute(self, row: Row) -> None:
        self.walk.step(row)
        self.time_ns = row.time_ns

    def look(self) -> bool:
        self.looks.append(self.walk.point_at(self.time_ns))
        return len(self.looks) >= self.limit


def record_watched(
    protocol: Protocol, cluster: Cluster, cadence: Cadence, seed: int = 0, seconds: float = 50.0, limit: float = math.inf
) -> tuple[Schedule, list[Point]]:
    layout = protocol.layout(cluster)
    witness = Witness(layout.blocks, limit)
    watch = Watch(cadence, witness, witness.look)
    watch.recorder = recorder = Recorder(cluster.size, layout, gradients=40, listener=watch)
    simulation = Simulation(cluster, recorder, seed, sizes=1000)
    protocol.start(simulation)
    simulation.run(seconds)
    schedule = simulation.schedule()
    watch.finish(schedule.end_ns)
    return schedule, witness.looks


@pytest.mark.slow
@settings(max_examples=120)
@given(
    name=st.sampled_from([*sorted(registry.REGISTRY["protocol"]), *["anything", "anything with blocks"] * 5]),
    unit=st.sampled_from(get_args(Measure)),
    cluster=CLUSTERS,
    seed=st.integers(0, 99),
    spacing=st.sampled_from([1.0, 2.0, 7.0, 40 / 3, 2.5, 0.3, 41 / 40, 39.0, 1000.0]),
    seconds=st.sampled_from([0.4, 5.0, 50.0, 50.0]),
    limit=st.integers(1, 4),
)
def test_points_and_looks_are_those_of_a_walk_through_the_rows(name, unit, cluster, seed, spacing, seconds, limit):
    cadence = Cadence(unit, spacing / 10 if unit == "seconds" else spacing)  # a gradient takes about a tenth of a second
    protocol = make_protocol(name, cluster, seed)
    schedule, looks = record_watched(protocol, cluster, cadence, seed, seconds)
    assert schedule.digest() == record(protocol, cluster, 40, seconds, seed).digest()
    assert list_points(cadence.points(schedule)) == expected(schedule, cadence)
    points = points_of(schedule, cadence)
    if unit != "seconds":
        assert looks == points
    else:  # a moment at which the run ends is no point, unless it is the end
        assert [look[:3] for look in looks[: len(points)]] == [point[:3] for point in points]
        assert len(looks) == len(points) + passed_at_the_end(cadence, schedule)
    check_prefix(schedule, looks, *record_watched(protocol, cluster, cadence, seed, seconds, limit), cadence, limit)


def make_protocol(name: str, cluster: Cluster, seed: int) -> Protocol:
    if name.startswith("anything"):
        assume((cluster.servers > 1) == name.endswith("blocks"))
        return Anything(number=seed, peers=cluster.servers == 1 and seed % 2 == 1)
    return fitting_protocol(name, cluster)


def passed_at_the_end(cadence: Cadence, schedule: Schedule) -> bool:
    number, last = round(schedule.end_ns / 1e9 / cadence.spacing), int(schedule["time_ns"].max(initial=0))
    return number > 0 and round(number * cadence.spacing * 1e9) == schedule.end_ns == last


def check_prefix(full, looks, prefix, fewer, cadence, limit):
    assert fewer == looks[:limit]
    if cadence.unit == "seconds":
        limit_ns = round(limit * cadence.spacing * 1e9)
        rows = int((full["time_ns"] <= limit_ns).sum()) + 1  # the row that came too late is written, and not executed
    else:
        rows = fewer[-1].rows if fewer else 0
    if len(looks) < limit or rows > len(full):
        assert prefix.digest() == full.digest(), "nothing comes later"
        return
    assert_begins(full, prefix, rows)
    assert prefix.end_ns == full["time_ns"][rows - 1]


def assert_begins(full: Schedule, prefix: Schedule, rows: int) -> None:
    assert len(prefix) == rows
    horizon_ns = prefix.end_ns  # models on fair links that arrive later have no arrival in the prefix
    part, complete = (
        [row._replace(end_ns=UNENDING) if row.end_ns >= horizon_ns else row for row in rows] for rows in (prefix, full)
    )
    assert part == complete[:rows]
    assert (prefix.workers, prefix.replicas, prefix.blocks) == (full.workers, full.replicas, full.blocks)
    assert len(prefix.ledger.workers) <= prefix.started <= full.started


def test_progress_is_the_fraction_of_the_updates_wanted():
    fractions: list[float] = []

    def look(fraction: float) -> bool:
        fractions.append(fraction)
        return len(fractions) == 3

    run = make_run(stop={"updates": 20}, evaluate={"every_updates": 6}, task=None)
    assert Recording(run, 5).watched(Blind(), look).counts()["updates"] == 18
    assert fractions == pytest.approx([6 / 20, 12 / 20, 18 / 20])


class Oracle(Blind):
    def __init__(self):
        self.statistics = list[float]()

    def statistic(self, cell: int) -> float:
        self.statistics.append(0.5 * (len(self.statistics) * 0.618 % 1))
        return self.statistics[-1]


def test_the_same_statistics_give_the_same_schedule_up_to_a_row_or_all_before_a_moment():
    run = make_run(
        "b-fasgd",
        protocol={
            "name": "gated",
            "push_gate": {"name": "statistical", "c": 0.1},
            "fetch_gate": {"name": "statistical", "c": 0.3},
        },
        stop={"updates": 200},
    )
    recording, oracle = Recording(run, 3), Oracle()
    full = recording.watched(oracle, lambda _: False)
    assert len(oracle.statistics) > 200
    assert {Verb.DROP, Verb.PULL} <= set(full["verb"].tolist()), "some messages did not pass"
    assert recording.schedule_until(rows=len(full), statistics=oracle.statistics).digest() == full.digest()
    update = int(full.rows(Verb.PUSH)[90])
    prefix = recording.schedule_until(rows=update + 1, statistics=oracle.statistics)
    assert_begins(full, prefix, update + 1)
    moment = prefix.end_ns
    assert moment == full["time_ns"][update]
    prefix = recording.schedule_until(seconds=moment / 1e9, statistics=oracle.statistics)
    assert_begins(full, prefix, int((full["time_ns"] < moment).sum()))
    assert prefix.end_ns == moment


class TestCadence:
    """By hand: four updates by one worker, at 1, 2, 3 and 4 s; the run ends at 4 s."""

    CLUSTER = Cluster(workers=1, compute={"name": "constant", "seconds": 1.0})

    def test_points(self):
        schedule = record(fitting_protocol("asynchronous", self.CLUSTER), self.CLUSTER, 4)
        for unit, spacing, updates, seconds in (
            ("gradients", 2, [0, 2, 4], [0, 2, 4]),
            ("updates", 1.5, [0, 2, 3, 4], [0, 2, 3, 4]),  # 1.5 and 3; the end
            ("gradients", 0.25, [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]),  # several multiples are one point
            ("seconds", 2, [0, 1, 4], [0, 2, 4]),  # before what happens then; the end is no multiple of its own
            ("seconds", 1.5, [0, 1, 2, 4], [0, 1.5, 3, 4]),
        ):
            points = Cadence(unit, spacing).points(schedule)  # type: ignore[arg-type]
            assert points.updates.tolist() == points.gradients.tolist() == updates, (unit, spacing)
            assert points.seconds.tolist() == seconds, (unit, spacing)

    def test_moments_are_whole_nanoseconds_of_the_multiple_and_not_sums_of_roundings(self):
        third = Cadence("seconds", 1 / 3)
        assert [third.moment(number) for number in (1, 2, 3, 3_000_000)] == [333_333_333, 666_666_667, 10**9, 10**15]

    def test_a_run_in_which_nothing_happens_has_a_start_and_if_time_passes_an_end(self):
        columns = {name: np.zeros(0, float if name in ("weight", "keep") else np.int64) for name in Row._fields}
        for unit, ends in (("updates", []), ("seconds", [Point(0, 0, 0, 3_000_000_000)])):
            points = Cadence(unit, 4.0).points(Schedule(columns, 1, 1, 1, 0, 3_000_000_000))  # type: ignore[arg-type]
            assert list_points(points) == [Point(0, 0, 0, 0), *ends]
