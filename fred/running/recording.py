"""The timing of a run: its schedule and evaluation points; recorded once, lowered once, stored once, and shared by units.

A run with a target ends at the first of these points, except the start, at which the target has been reached. That is after
the update that reached the count, or just before the events at that time, for both ways to compute a run.

Units that differ only in their learning rate have the same schedule. Each process has its last timing and its program in
memory, one of each, so that memory does not grow. Therefore units are computed timing by timing (`in_order`). In the unfinished
result folder, every timing has a folder of its own, from which other processes read it; its lock makes them wait while one
records it. Units' files are hard links to the files there. A timing with the user's own classes is recorded for every unit,
because their code may depend on other facts.
"""

import hashlib
import json
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred.base import disk
from fred.base.disk import SCHEDULE
from fred.base.errors import FredError
from fred.base.staging import locked
from fred.base.types import Ints
from fred.cluster.cluster import Cluster
from fred.cluster.durations import nanoseconds
from fred.cluster.faults import Outage
from fred.components import own_code, registry
from fred.components.component import LONGEST, MOST_POINTS, NANOSECONDS, own_classes
from fred.components.input_path import no_path
from fred.outcomes.outcome import run_times
from fred.protocols.protocol import Protocol
from fred.replay.lower import lower
from fred.replay.phases import Program
from fred.running import stored
from fred.running.units import Unit, circumstances
from fred.schedule.layout import Sizes
from fred.schedule.schedule import Row, Schedule, Verb
from fred.specification.shape import Run
from fred.specification.stopping import Measure
from fred.timing.recorder import Listener, Recorder
from fred.timing.restarts import Restarts, Restorable
from fred.timing.simulation import Simulation

if TYPE_CHECKING:
    from fred.replay.arithmetic import Arithmetic


@dataclass(frozen=True)
class Points:
    """The points of a schedule. Arrays have one item per point."""

    rows: NDArray[np.int64]  # rows of the schedule before the point
    updates: NDArray[np.int64]
    gradients: NDArray[np.int64]  # gradients that took part in those updates
    seconds: NDArray[np.float64]  # virtual time


@dataclass(frozen=True)
class Cadence:
    """Points after the update that reaches a multiple of a count, or just before the events at a multiple of a time.

    Args:
        unit: updates, gradients, or seconds of virtual time.
        spacing: distance of two points, in this unit.
    """

    unit: Measure
    spacing: float

    def points(self, schedule: Schedule) -> Points:
        """Return the points of a finished schedule. Raises FredError for too many points.

        Args:
            schedule: the schedule.

        >>> import fred
        >>> scenario = fred.scenario(
        ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
        ...     algorithm={"name": "asgd", "learning_rate": 0.1},
        ...     stop={"updates": 4},
        ... )
        >>> points = Cadence("updates", 2).points(fred.run(scenario).outcome("asgd").schedule)
        >>> points.updates.tolist(), points.seconds.tolist()
        ([0, 2, 4], [0.0, 0.5, 1.0])
        """
        updates = schedule.ledger.every_update
        gradients = np.cumsum(schedule.ledger.gradients_per_update())
        times = schedule["time_ns"]
        if self.unit == "seconds":
            moments = np.append(self._moments(schedule.end_ns), schedule.end_ns)
            rows = np.append(np.searchsorted(times, moments[:-1], side="left"), len(schedule))
        else:
            counts = np.arange(1, len(updates) + 1) // schedule.blocks if self.unit == "updates" else gradients
            last = counts[-1] if len(counts) else 0
            thresholds = self.spacing * np.arange(1, last // self.spacing + 2)  # one more than fit, because of rounding
            reaching = np.unique(np.searchsorted(counts, thresholds[thresholds <= last], side="left"))
            rows = np.append(updates[reaching] + 1, len(schedule))
            moments = np.append(times[updates[reaching]], schedule.end_ns)
        rows, moments = np.insert(rows, 0, 0), np.insert(moments, 0, 0)
        done = np.searchsorted(updates, rows, side="left")  # number of updates of blocks before each point
        changes = np.searchsorted(schedule.rows(Verb.PUSH, Verb.COMMIT, Verb.SYNC), rows, side="left")
        if len(done) > 1 and self.unit != "seconds" and changes[-1] == changes[-2]:  # the end adds nothing to the last point
            rows, moments, done = rows[:-1], moments[:-1], done[:-1]
        return Points(rows, done // schedule.blocks, np.insert(gradients, 0, 0)[done], moments / NANOSECONDS)

    def moment(self, number: int) -> int:
        """Return the time of a point, ns.

        Args:
            number: number of the point, from 1; only for a cadence in seconds.
        """
        return int(nanoseconds(self.spacing * np.array([number]))[0])

    def _moments(self, end_ns: int) -> NDArray[np.int64]:
        """Return the multiples of the spacing before the end, ns."""
        self.check(end_ns)
        times = nanoseconds(self.spacing * np.arange(1, end_ns / NANOSECONDS / self.spacing + 1))
        return times[times < end_ns]

    def check(self, end_ns: int) -> None:
        """Raise FredError for a spacing that makes more points than the limit."""
        if self.unit == "seconds" and end_ns / NANOSECONDS / self.spacing > MOST_POINTS:
            raise FredError(f"`every_seconds` ({self.spacing:g}) asks for more than {MOST_POINTS:,} points; increase it")


class Watch:
    """A listener that evaluates at the points while rows are recorded. When `look` returns True, the recording ends.

    A point in time has passed when the first row at or after it comes, or the run is over. If the run ends at a point
    because of another limit, that point is evaluated as the end. So the recording only ends with the first row after the
    point at which `look` returned True.

    Args:
        cadence: the points.
        listener: receives every row.
        look: called at each point; returns True to stop.
    """

    def __init__(self, cadence: Cadence, listener: Listener, look: Callable[[], bool]):
        self._cadence, self._listener, self._look = cadence, listener, look
        self.recorder: Recorder | None = None  # its counters determine the points
        self._number = 1  # of the next point
        self._moment = cadence.moment(1) if cadence.unit == "seconds" else math.inf  # ns
        self._reached_at = math.inf  # ns, the point in time at which `look` returned True
        self.statistic = listener.statistic
        self.forget_mailbox, self.forget_message = listener.forget_mailbox, listener.forget_message

    def execute(self, row: Row) -> None:
        """Process one more row."""
        assert self.recorder is not None
        self._pass(row.time_ns)
        if row.time_ns > self._reached_at:
            self.recorder.stop()
            return
        self._listener.execute(row)
        if self._cadence.unit != "seconds" and row.verb in (Verb.PUSH, Verb.COMMIT):
            reached = self.recorder.updates if self._cadence.unit == "updates" else self.recorder.gradients
            if reached >= self._number * self._cadence.spacing:
                while reached >= self._number * self._cadence.spacing:  # an update may reach several points
                    self._number += 1
                if self._look():
                    self.recorder.stop()

    def finish(self, end_ns: int) -> None:
        """Evaluate at the remaining points before the end of the recording."""
        self._pass(end_ns - 1)

    def _pass(self, time_ns: int) -> None:
        """Evaluate at the points until this time."""
        if time_ns >= self._moment:
            self._cadence.check(time_ns)
        while self._moment <= time_ns and math.isinf(self._reached_at):
            if self._look():
                self._reached_at = self._moment
            self._number += 1
            self._moment = self._cadence.moment(self._number)


class Timing(NamedTuple):
    """Everything that determines a schedule: the simulation receives nothing else, so runs with equal timings share a schedule.

    Args:
        cluster: the machines, without prices.
        protocol: the synchronization protocol.
        limits: on updates, and on gradients that took part in them; without infinite limits.
        seconds: limit on virtual time; infinity: no limit.
        seed: seed of durations and of the protocol's random choices.
        sizes: bytes of models and messages, as the algorithm counts them; a number applies to both.
        weights: weight of each worker's gradients in means; empty: all are 1.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2},
    ...     stop={"updates": 4},
    ...     runs={rate: {"algorithm": {"name": "asgd", "learning_rate": float(rate)}} for rate in ("0.1", "0.2")},
    ... )
    >>> one, other = (Recording(run, seed=0).timing for run in scenario.runs.values())
    >>> one == other, one == other._replace(seed=1)
    (True, False)
    """

    cluster: Cluster
    protocol: Protocol
    limits: tuple[tuple[str, float], ...]
    seconds: float
    seed: int
    sizes: Sizes | int
    weights: tuple[float, ...] = ()

    @classmethod
    def of_run(cls, run: Run, seed: int, sizes: Sizes | int = 0) -> "Timing":
        """Return the part of a run that determines its schedule."""
        stop = {"updates": run.stop.updates, "gradients": run.stop.gradients}
        limits = tuple((name, number) for name, number in stop.items() if number)
        cluster = run.cluster.model_copy(update={"prices": None}) if run.cluster.prices else run.cluster
        weights = run.task.weights(run.cluster.size) if run.task else ()
        return cls(cluster, run.protocol, limits, run.stop.seconds or math.inf, seed, sizes, weights)

    def described(self) -> dict[str, Any]:
        """Return the timing as JSON, by which another process identifies it."""
        options: dict[str, Any] = {"mode": "json", "context": {"paths": no_path}}
        protocol = {"name": registry.name_of("protocol", self.protocol), **self.protocol.model_dump(**options)}
        return self._asdict() | {"cluster": self.cluster.model_dump(**options), "protocol": protocol}

    def schedule(self, listener: Listener | None = None) -> Schedule:
        """Record the schedule; `listener` receives each row when it is recorded, and returns statistics."""
        return self.recorded(self.recorder(listener))

    def recorder(self, listener: Listener | None = None) -> Recorder:
        """Return an empty recorder for the schedule."""
        kind = Recorder if self.cluster.failures is None else Restorable
        limits: dict[str, Any] = dict(self.limits)
        return kind(self.cluster.size, self.protocol.layout(self.cluster), **limits, listener=listener)

    def recorded(self, recorder: Recorder) -> Schedule:
        """Run the simulation with an empty `recorder`, and return the schedule."""
        return self._simulate(self._place_outages(), recorder)

    def _simulate(self, cluster: Cluster, recorder: Recorder) -> Schedule:
        with _representable():
            simulation = Simulation(cluster, recorder, self.seed, self.sizes, self.weights)
            if isinstance(recorder, Restorable) and cluster.failures is not None:
                Restarts(simulation, recorder, cluster.failures, self.protocol.start).run(self.seconds)
            else:
                self.protocol.start(simulation)
                simulation.run(self.seconds)
            return simulation.schedule()

    def _place_outages(self) -> Cluster:
        """Return the cluster in which outages after a number of updates have times."""
        # Until it begins, an outage has no effect. So the run without it makes the same updates at the same times up to there.
        cluster, limits = self.cluster, dict(self.limits)
        outages = ((number, fault) for number, fault in enumerate(cluster.faults) if isinstance(fault, Outage))
        unplaced = sorted((outage.after_updates, number, outage) for number, outage in outages if outage.after_updates)
        for updates, number, outage in unplaced:
            shorter = limits | {"updates": min(updates, limits.get("updates", math.inf))}
            recorder = self._replace(limits=tuple(shorter.items())).recorder()
            time = self._simulate(cluster, recorder).end_ns
            if recorder.updates < updates:  # the run ends before
                break
            faults = list(cluster.faults)
            faults[number] = outage.place(time)
            cluster = cluster.model_copy(update={"faults": tuple(faults)})
        return cluster


class Recording:
    """The recording of one run with one seed.

    Args:
        run: its cluster, protocol and `stop` are used.
        seed: seed of durations and of the protocol's random choices.
        sizes: bytes of models and messages, as the algorithm counts them; a number applies to both.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    ...     algorithm={"name": "asgd", "learning_rate": 0.1},
    ...     stop={"updates": 4},
    ... )
    >>> Recording(scenario.runs["asgd"], seed=0).schedule().counts()
    {'updates': 4, 'gradients': 4, 'dropped': 0, 'in_flight': 1}
    """

    def __init__(self, run: Run, seed: int, sizes: Sizes | int = 0):
        self.timing = Timing.of_run(run, seed, sizes)
        self.cadence = Cadence(*run.evaluate.spacing(run.stop))

    def schedule(self) -> Schedule:
        """Record the whole run, timing only."""
        return self.timing.schedule()

    def watched(self, listener: Listener, look: Callable[[float], bool]) -> Schedule:
        """Record the run, up to the point at which `look`, called with the fraction done, returns True.

        Args:
            listener: receives each row when it is recorded, and returns statistics.
            look: called at each evaluation point, except the first and those at the end.
        """

        limit = dict(self.timing.limits).get("updates", math.inf)

        def look_at_fraction() -> bool:
            return look(min(1.0, recorder.updates / max(1.0, limit)))

        watch = Watch(self.cadence, listener, look_at_fraction)
        watch.recorder = recorder = self.timing.recorder(watch)
        schedule = self.timing.recorded(recorder)
        watch.finish(schedule.end_ns)
        return schedule

    def schedule_until(
        self, seconds: float = math.inf, rows: float = math.inf, since: int = 0, statistics: Sequence[float] = ()
    ) -> Schedule:
        """Record the run up to a moment, or to the first update at or after a row; timing gets the same statistics as before.

        Args:
            seconds: limit on virtual time, s; infinity: no limit.
            rows: limit on rows of the schedule.
            since: time from which it counts, ns, if failures may undo earlier rows.
            statistics: the statistics that the protocol received, in order.
        """
        limits: tuple[tuple[str, float], ...] = (("rows", rows),)
        if self.timing.cluster.failures is not None:
            return self.timing._replace(limits=(*limits, ("rows_from", since)), seconds=seconds).schedule()
        return self.timing._replace(limits=limits, seconds=seconds).schedule(_RecordedStatistics(statistics))


class _RecordedStatistics(Listener):
    """A listener that returns recorded statistics, and computes nothing."""

    def __init__(self, statistics: Sequence[float]):
        self._statistics = iter(statistics)

    def statistic(self, cell: int) -> float:
        """Return the next statistic."""
        return next(self._statistics)


@contextmanager
def _representable() -> Iterator[None]:
    """Explain an error of a number that a schedule cannot hold: virtual time above 64-bit ns, or a number that is not whole."""
    try:
        yield
    except (OverflowError, struct.error) as error:
        place = own_code.line_of(error)
        # With the user's code, bytes may be too large, too: those that the code counts.
        where, costs = (f" ({place})", ", and costs (bytes)") if place else ("", "")
        if "not an integer" in str(error):
            raise FredError(
                f"the protocol gives a number that is not whole where ns, bytes, messages or replicas are counted{where}"
            ) from error
        raise FredError(
            f"virtual time passes {LONGEST:g} s; check durations (in seconds) and bandwidths (bytes/s){costs}{where}"
        ) from error


_LIST = "files.json"  # written last: the digests of a timing's files


def in_order(units: Sequence[Unit]) -> list[Unit]:
    """Return the units grouped by timing, in the order in which the first of each group comes."""
    first_of: dict[Timing, int] = {}
    groups = [first_of.setdefault(Timing.of_run(unit.run, unit.seed), i) for i, unit in enumerate(units)]
    return [units[i] for i in sorted(range(len(units)), key=lambda i: groups[i])]


class Timings:
    """The last timing of this process, with its program; and all timings on disk, if there is a folder.

    Args:
        folder: folder of timings, for other processes and for units' files; None: timings are not stored.
    """

    def __init__(self, folder: Path | None = None):
        self._folder = folder
        self._timing: Timing | None = None
        self._schedule: Schedule | None = None
        self._place: Path | None = None
        self._program: tuple[object, Program] | None = None

    def schedule(self, recording: Recording) -> Schedule:
        """Return the schedule of the whole run; record it unless it is cached.

        Args:
            recording: recording of the run, with its seed.
        """
        timing = recording.timing
        if self._schedule is None or timing != self._timing:
            self._timing = self._schedule = self._place = self._program = None  # freed before the next one exists
            if own_classes(timing.cluster) or own_classes(timing.protocol):
                return timing.schedule()
            self._schedule = self._stored_schedule(timing)
            self._timing = timing
        return self._schedule

    def program(self, schedule: Schedule, marks: Ints, arithmetic: "Arithmetic") -> Program:
        """Return the program that the replay executes.

        Args:
            schedule: the schedule.
            marks: rows before which the state is read.
            arithmetic: arithmetic of the run; its blocks and hooks, and whether gradients are small, are used.
        """
        groups, hooks, is_small = arithmetic.blocks.group_of_each, arithmetic.hooks, arithmetic.stores_gradients
        key = marks.tobytes(), groups, hooks, is_small
        if schedule is not self._schedule:
            return lower(schedule, marks, groups, hooks, turns=is_small)
        if self._program is None or self._program[0] != key:
            self._program = None
            self._program = key, lower(schedule, marks, groups, hooks, turns=is_small)
        return self._program[1]

    def files(self, schedule: Schedule) -> dict[str, Path] | None:
        """Return the timing's files by name, if `schedule` belongs to it and they are stored."""
        if self._place is None or schedule is not self._schedule:
            return None
        return {name: self._place / name for name in _intact_files(self._place)} or None

    def _stored_schedule(self, timing: Timing) -> Schedule:
        """Return the schedule of a timing, from its folder if another process has recorded it."""
        if self._folder is None:
            return timing.schedule()
        facts = json.dumps([timing.described(), circumstances(has_own_classes=False)], sort_keys=True)
        self._place = self._folder / hashlib.sha256(facts.encode()).hexdigest()
        with locked(self._place):
            if _intact_files(self._place):
                return Schedule.load(self._place / SCHEDULE)
            schedule = timing.schedule()
            _write(schedule, timing, self._place)
        return schedule


def _intact_files(place: Path) -> list[str]:
    """Return the names of the files there if they are as written; else none."""
    try:
        digests = json.loads(disk.text(place / _LIST))
        return list(digests) if all(disk.digest(place / name) == digest for name, digest in digests.items()) else []
    except (FredError, OSError, ValueError):
        return []


def _write(schedule: Schedule, timing: Timing, place: Path) -> None:
    for file in place.iterdir():
        file.unlink()
    stored.write_timing(schedule, run_times(schedule, timing.cluster) if timing.protocol.has_clock else None, place)
    stored.write_json(place / _LIST, {file.name: disk.digest(file) for file in place.iterdir()})
