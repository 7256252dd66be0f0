"""When a run is looked at, against a plain walk through its rows; and what is recorded up to there."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.components import registry
from fred.protocols.protocol import Protocol
from fred.running.cadence import Cadence, Points, Watch
from fred.running.recording import Recording
from fred.schedule.layout import Layout
from fred.schedule.schedule import NONE, UNENDING, Row, Schedule, Verb
from fred.specification.shape import Measure, Run
from fred.timing.copies import Gradient
from fred.timing.recorder import Recorder
from fred.timing.simulation import Simulation
from tests.users import Anything
from tests.worlds import CLUSTERS, COMPUTE, Blind, fitting, make_run, record

SPACINGS = st.sampled_from([1.0, 2.0, 7.0, 40 / 3, 2.5, 0.3, 41 / 40, 39.0, 1000.0])
EVERY_PROTOCOL = [*sorted(registry.REGISTRY["protocol"]), "anything", "anything with blocks"]
UNITS: tuple[Measure, ...] = ("updates", "gradients", "seconds")


def spaced(unit: Measure, spacing: float) -> Cadence:
    """A worker's gradient takes about a tenth of a second."""
    return Cadence(unit, spacing / 10 if unit == "seconds" else spacing)


class Point(NamedTuple):
    """What is known at one."""

    rows: int
    updates: int
    gradients: int
    time_ns: int


class Walk:
    """Goes through rows and counts."""

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

    def at(self, time_ns: int) -> Point:
        return Point(self.rows, self.changes // self.blocks, len(self.used), time_ns)

    def count(self, unit: Measure) -> int:
        return self.changes // self.blocks if unit == "updates" else len(self.used)


def between(schedule: Schedule, cadence: Cadence) -> list[Point]:
    """All points but the start and the end."""
    walk, points, number = Walk(schedule.blocks), [], 1

    def moment() -> int:
        return round(number * cadence.spacing * 1e9)

    for row in schedule:
        while cadence.unit == "seconds" and moment() <= row.time_ns and moment() < schedule.end_ns:
            points.append(walk.at(moment()))
            number += 1
        before = walk.count(cadence.unit)
        walk.step(row)
        if cadence.unit != "seconds" and before < walk.count(cadence.unit) >= number * cadence.spacing:
            points.append(walk.at(row.time_ns))
            while number * cadence.spacing <= walk.count(cadence.unit):
                number += 1
    while cadence.unit == "seconds" and moment() < schedule.end_ns:
        points.append(walk.at(moment()))
        number += 1
    return points


def expected(schedule: Schedule, cadence: Cadence) -> list[Point]:
    """All points; where counts are looked at, the end is one only if it adds something to the last of the others."""
    walk = Walk(schedule.blocks)
    points = [walk.at(0), *between(schedule, cadence)]
    for row in schedule:
        walk.step(row)
    later = [row.verb for row in list(schedule)[points[-1].rows :]]
    changed = {Verb.PUSH, Verb.COMMIT, Verb.SYNC}.intersection(later)
    if cadence.unit == "seconds" or changed:
        points.append(walk.at(schedule.end_ns))
    return points


def listed(points: Points) -> list[Point]:
    times = np.rint(points.seconds * 1e9).astype(np.int64)
    columns = (points.rows, points.updates, points.gradients, times)
    return list(map(Point._make, zip(*(column.tolist() for column in columns), strict=True)))


def some(name: str, cluster: Cluster, seed: int) -> Protocol:
    """A protocol of FRED's, or one whose rounds are of any size and are open at any time."""
    if name.startswith("anything"):
        assume((cluster.servers > 1) == name.endswith("blocks"))
        return Anything(number=seed, peers=cluster.servers == 1 and seed % 2 == 1)
    return fitting(name, cluster)


@pytest.mark.parametrize("protocol", EVERY_PROTOCOL)
@pytest.mark.parametrize("unit", UNITS)
@settings(max_examples=3)
@given(
    cluster=CLUSTERS,
    seed=st.integers(0, 99),
    spacing=SPACINGS,
    seconds=st.sampled_from([0.4, 5.0, 50.0, 50.0]),
)
def test_points_are_what_a_walk_through_the_rows_finds(protocol, unit, cluster, seed, spacing, seconds):
    cadence = spaced(unit, spacing)
    schedule = record(some(protocol, cluster, seed), cluster, gradients=40, seconds=seconds, seed=seed)
    assert listed(cadence.points(schedule)) == expected(schedule, cadence)


class Witness(Blind):
    """Counts the rows that it is told, and notes what it has seen whenever it looks."""

    def __init__(self, blocks: int, enough: float = math.inf):
        self.walk, self.looks, self.enough = Walk(blocks), list[Point](), enough
        self.time_ns = 0  # of the last row

    def execute(self, row: Row) -> None:
        self.walk.step(row)
        self.time_ns = row.time_ns

    def look(self) -> bool:
        """Return whether this was enough."""
        self.looks.append(self.walk.at(self.time_ns))
        return len(self.looks) >= self.enough


def watched(
    protocol: Protocol, cluster: Cluster, cadence: Cadence, seed: int, enough: float = math.inf
) -> tuple[Schedule, list[Point]]:
    """A run that somebody looks at meanwhile, and what was seen."""
    layout = protocol.layout(cluster)
    witness = Witness(layout.blocks, enough)
    watch = Watch(cadence, witness, witness.look)
    watch.recorder = recorder = Recorder(cluster.size, layout, gradients=40, listener=watch)
    simulation = Simulation(cluster, recorder, seed, sizes=1000)
    protocol.start(simulation)
    simulation.run(50.0)
    schedule = simulation.schedule()
    watch.over(schedule.end_ns)
    return schedule, witness.looks


@pytest.mark.parametrize("protocol", EVERY_PROTOCOL)
@pytest.mark.parametrize("unit", UNITS)
@settings(max_examples=3)
@given(cluster=CLUSTERS, seed=st.integers(0, 99), spacing=SPACINGS)
def test_looks_while_rows_come_are_at_the_points_of_the_finished_schedule(protocol, unit, cluster, seed, spacing):
    cadence = spaced(unit, spacing)
    schedule, looks = watched(some(protocol, cluster, seed), cluster, cadence, seed)
    assert schedule.digest() == record(some(protocol, cluster, seed), cluster, 40, 50.0, seed).digest()
    points = between(schedule, cadence)
    if cadence.unit != "seconds":
        assert looks == points
        return
    # a moment at which the run ends is no point, unless it is the end
    assert [look[:3] for look in looks[: len(points)]] == [point[:3] for point in points]
    assert len(looks) == len(points) + passed_at_the_end(cadence, schedule)


def passed_at_the_end(cadence: Cadence, schedule: Schedule) -> bool:
    """Return whether a row comes at the very end, at a multiple of the spacing."""
    number = round(schedule.end_ns / 1e9 / cadence.spacing)
    last = int(schedule["time_ns"].max(initial=0))
    return number > 0 and round(number * cadence.spacing * 1e9) == schedule.end_ns == last


@pytest.mark.parametrize("protocol", EVERY_PROTOCOL)
@pytest.mark.parametrize("unit", UNITS)
@settings(max_examples=2)
@given(cluster=CLUSTERS, seed=st.integers(0, 99), spacing=SPACINGS, enough=st.integers(1, 4))
def test_a_look_that_is_enough_ends_the_recording_there(protocol, unit, cluster, seed, spacing, enough):
    cadence = spaced(unit, spacing)
    whole, looks = watched(some(protocol, cluster, seed), cluster, cadence, seed)
    schedule, fewer = watched(some(protocol, cluster, seed), cluster, cadence, seed, enough)
    assert fewer == looks[:enough]
    if len(looks) < enough:
        assert schedule.digest() == whole.digest()
        return
    if cadence.unit == "seconds":
        enough_at = round(enough * cadence.spacing * 1e9)
        rows = int((whole["time_ns"] <= enough_at).sum()) + 1  # the row that came too late is written, and not executed
    else:
        rows = fewer[-1].rows
    if rows > len(whole):
        assert schedule.digest() == whole.digest(), "nothing comes later"
        return
    assert_begins(whole, schedule, rows)
    assert schedule.end_ns == whole["time_ns"][rows - 1]


def assert_begins(whole: Schedule, prefix: Schedule, rows: int) -> None:
    """The prefix is the first rows of the whole."""
    assert len(prefix) == rows
    known = prefix.end_ns  # models on fair links that arrive later have no arrival in the prefix
    expected = [row._replace(end_ns=UNENDING) if row.end_ns >= known else row for row in list(whole)[:rows]]
    found = [row._replace(end_ns=UNENDING) if row.end_ns >= known else row for row in prefix]
    assert found == expected
    assert (prefix.workers, prefix.replicas, prefix.blocks) == (whole.workers, whole.replicas, whole.blocks)
    used = len(prefix.ledger.workers)
    assert used <= prefix.started <= whole.started


RUNS: dict[str, dict] = {
    "asgd": {},
    "ssgd": {"protocol": {"backup_workers": 1}},
    "psp-sgd": {"cluster": {"workers": 4, "compute": COMPUTE, "servers": 3}},
    "ssp": {"protocol": {"bound": 1}},
    "d-psgd": {},
    "wagma-sgd": {},
    "ad-psgd": {"cluster": {"workers": 5, "compute": COMPUTE, "network": {"latency": {"name": "constant", "seconds": 0.03}}}},
}


def untaught(name: str, **options) -> Run:
    return make_run(name, **{"stop": {"gradients": 50, "seconds": 30.0}, "task": None, **RUNS.get(name, {}), **options})


class TestRecording:
    @pytest.mark.parametrize("name", RUNS)
    def test_up_to_a_row_is_a_prefix_that_ends_with_it(self, name):
        recording = Recording(untaught(name), 5)
        whole = recording.schedule()
        updates = whole.rows(Verb.PUSH, Verb.COMMIT)
        for update in updates[[0, len(updates) // 3, -2, -1]].tolist():
            prefix = recording.up_to(rows=update + 1)
            assert_begins(whole, prefix, update + 1)
            assert prefix.end_ns == whole["time_ns"][update]
        assert recording.up_to(rows=len(whole)).digest() == whole.digest(), "the last row is an update"

    @pytest.mark.parametrize("name", RUNS)
    def test_up_to_a_moment_is_all_that_happens_before_it(self, name):
        recording = Recording(untaught(name), 5)
        whole = recording.schedule()
        times = whole["time_ns"]
        moments = [times[-1] // 2, times[len(times) // 2], times[len(times) // 2] + 1]
        for moment in map(int, moments):
            prefix = recording.up_to(seconds=moment / 1e9)
            assert_begins(whole, prefix, int((times < moment).sum()))
            assert prefix.end_ns == moment
        assert 0 < (times < moments[1]).sum() < (times < moments[2]).sum(), "what happens at the moment itself is left out"

    @pytest.mark.parametrize("evaluate", [{"points": 7}, {"every_seconds": 0.17}, {"every_updates": 3}], ids=str)
    def test_a_run_that_is_watched_is_the_same_run(self, evaluate):
        run = untaught("asgd", evaluate=evaluate)
        recording, fractions = Recording(run, 5), list[float]()

        def look(fraction: float) -> bool:
            fractions.append(fraction)
            return False

        schedule = recording.watched(Blind(), look)
        assert schedule.digest() == recording.schedule().digest()
        assert len(fractions) == len(between(schedule, recording.cadence)) > 3

    def test_progress_is_the_fraction_of_the_updates_wanted(self):
        run = untaught("asgd", stop={"updates": 20}, evaluate={"every_updates": 6})
        fractions: list[float] = []

        def look(fraction: float) -> bool:
            fractions.append(fraction)
            return len(fractions) == 3

        schedule = Recording(run, 5).watched(Blind(), look)
        assert schedule.counts()["updates"] == 18
        assert fractions == pytest.approx([6 / 20, 12 / 20, 18 / 20])

    def test_a_seed_and_a_limit_are_the_runs_own(self):
        run = untaught("asgd", stop={"updates": 20})
        one, other = (Recording(run, seed).schedule() for seed in (5, 6))
        assert one.digest() != other.digest()
        assert one.counts()["updates"] == other.counts()["updates"] == 20


class Oracle(Blind):
    """Tells timing something else each time, and remembers what."""

    def __init__(self, tell: Callable[[int], float]):
        self._tell, self.told = tell, list[float]()

    def statistic(self, cell: int) -> float:
        self.told.append(self._tell(len(self.told)))
        return self.told[-1]


class TestStatistics:
    RUN = make_run("b-fasgd", protocol={"name": "gated", "c_push": 0.1, "c_fetch": 0.3}, stop={"updates": 200})

    def test_told_again_give_the_same_schedule(self):
        recording, oracle = Recording(self.RUN, 3), Oracle(lambda number: 0.5 * (number * 0.618 % 1))
        whole = recording.watched(oracle, lambda _: False)
        assert len(oracle.told) > 200
        assert {Verb.DROP, Verb.PULL} <= set(whole["verb"].tolist()), "some messages did not pass"
        assert recording.up_to(rows=len(whole), statistics=oracle.told).digest() == whole.digest()
        update = int(whole.rows(Verb.PUSH)[90])
        assert_begins(whole, recording.up_to(rows=update + 1, statistics=oracle.told), update + 1)
        moment = int(whole["time_ns"][update])
        prefix = recording.up_to(seconds=moment / 1e9, statistics=oracle.told)
        assert_begins(whole, prefix, int((whole["time_ns"] < moment).sum()))

    def test_told_otherwise_give_another(self):
        recording = Recording(self.RUN, 3)
        schedules = [recording.watched(Oracle(lambda _: value), lambda _: False) for value in (0.001, 0.1, 1e9)]  # noqa: B023  called at once
        pulls, drops = ([len(each.rows(verb)) for each in schedules] for verb in (Verb.PULL, Verb.DROP))
        assert pulls[0] < pulls[1] < pulls[2]
        assert drops[0] > drops[1] > drops[2] == 0, "a large statistic lets everything pass"


class TestCadence:
    """By hand: four updates by one worker, at 1, 2, 3 and 4 s; the run ends at 4 s."""

    SCHEDULE = record(
        fitting("asynchronous", Cluster(workers=1)), Cluster(workers=1, compute={"name": "constant", "seconds": 1.0}), 4
    )

    @pytest.mark.parametrize(
        ("unit", "spacing", "updates", "seconds"),
        [
            ("updates", 1, [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]),
            ("gradients", 2, [0, 2, 4], [0, 2, 4]),
            ("updates", 3, [0, 3, 4], [0, 3, 4]),
            ("updates", 1.5, [0, 2, 3, 4], [0, 2, 3, 4]),  # 1.5 and 3; the end
            ("gradients", 0.25, [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]),  # several multiples are one point
            ("updates", 5, [0, 4], [0, 4]),
            ("seconds", 2, [0, 1, 4], [0, 2, 4]),  # before what happens then; the end is no multiple of its own
            ("seconds", 1.5, [0, 1, 2, 4], [0, 1.5, 3, 4]),
            ("seconds", 9, [0, 4], [0, 4]),
        ],
    )
    def test_points(self, unit, spacing, updates, seconds):
        points = Cadence(unit, spacing).points(self.SCHEDULE)
        assert points.updates.tolist() == points.gradients.tolist() == updates
        assert points.seconds.tolist() == seconds

    def test_the_last_multiple_is_one_however_it_is_rounded(self):
        """40 // (40 / 3) is 2, although 3 x (40 / 3) is 40."""
        cluster = Cluster(workers=1, compute={"name": "constant", "seconds": 1.0})
        points = Cadence("updates", 40 / 3).points(record(fitting("asynchronous", cluster), cluster, seconds=40.5))
        assert points.seconds.tolist() == [0, 14, 27, 40]

    @pytest.mark.parametrize(("syncs", "rows"), [(False, [0, 2]), (True, [0, 2, 4])])
    def test_the_end_is_one_if_a_replica_has_changed_since_the_last(self, syncs, rows):
        recorder = Recorder(2, Layout.peers(2))
        copy = recorder.pull(0, 0, 0, 0, 0, 0, 0, 0)
        recorder.push(1, Gradient(0, 0, copy, 0, 1), 0, 0, 0, 0)
        other = recorder.pull(2, 1, 1, 0, 0, 2, 0, 0)
        if syncs:
            recorder.sync(2, 0, 0, 0, other, 0.5, 0.5, 0, 0)
        assert Cadence("updates", 1).points(recorder.schedule(3)).rows.tolist() == rows

    def test_moments_are_whole_nanoseconds_of_the_multiple_and_not_sums_of_roundings(self):
        third = Cadence("seconds", 1 / 3)
        assert [third.moment(number) for number in (1, 2, 3, 3_000_000)] == [333_333_333, 666_666_667, 10**9, 10**15]

    @pytest.mark.parametrize(("unit", "ends"), [("updates", []), ("seconds", [Point(0, 0, 0, 3_000_000_000)])])
    def test_a_run_in_which_nothing_happens_has_a_start_and_if_time_passes_an_end(self, unit, ends):
        columns = {name: np.zeros(0, float if name in ("weight", "keep") else np.int64) for name in Row._fields}
        points = Cadence(unit, 4.0).points(Schedule(columns, 1, 1, 1, 0, 3_000_000_000))
        assert listed(points) == [Point(0, 0, 0, 0), *ends]

    def test_a_round_that_passes_several_multiples_is_looked_at_once(self):
        """Twenty gradients in one update, then nine more one by one, looked at after every seventh."""
        witness = Witness(blocks=1)
        watch = Watch(Cadence("gradients", 7), witness, witness.look)
        watch.recorder = recorder = Recorder(1, Layout.central(), listener=watch)
        copy = recorder.pull(0, 0, 0, 0, 0, 0, 0, 0)
        gradients = [Gradient(0, step, copy, 0, 1) for step in range(29)]
        for gradient in gradients[:20]:
            recorder.add(1, gradient, 0, 0, 1.0, 0, 0)
        recorder.commit(1, 0, 0, None)
        for gradient in gradients[20:]:
            recorder.push(2, gradient, 0, 0, 0, 0)
        assert [(look.updates, look.gradients) for look in witness.looks] == [(1, 20), (2, 21), (9, 28)]

    def test_more_moments_than_anybody_can_look_at_are_refused_while_rows_come(self):
        cluster = Cluster(workers=1, compute={"name": "constant", "seconds": 20.0})
        with pytest.raises(FredError, match="1,000,000 points"):
            watched(fitting("asynchronous", cluster), cluster, Cadence("seconds", 1e-5), 0)
