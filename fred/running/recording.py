"""The timing of a run: its schedule, recorded with or without concurrent arithmetic."""

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.cluster.faults import Outage
from fred.components import own_code, registry
from fred.components.component import LONGEST
from fred.components.input_path import no_path
from fred.protocols.protocol import Protocol
from fred.running.cadence import Cadence, Watch
from fred.schedule.layout import Sizes
from fred.schedule.schedule import Schedule
from fred.specification.shape import Run
from fred.timing.recorder import Listener, Recorder
from fred.timing.restarts import Restarts, Restorable
from fred.timing.simulation import Simulation


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
    def of(cls, run: Run, seed: int, sizes: Sizes | int = 0) -> "Timing":
        """Return the part of a run that determines its schedule."""
        stop = {"updates": run.stop.updates, "gradients": run.stop.gradients}
        limits = tuple((name, number) for name, number in stop.items() if number)
        cluster = run.cluster.model_copy(update={"prices": None}) if run.cluster.prices else run.cluster
        weights = run.task.weights(run.cluster.size) if run.task else ()
        return cls(cluster, run.protocol, limits, run.stop.seconds or math.inf, seed, sizes, weights)

    def described(self) -> dict[str, Any]:
        """Return the timing as JSON, by which another process identifies it."""
        how: dict[str, Any] = {"mode": "json", "context": {"paths": no_path}}
        protocol = {"name": registry.name_of("protocol", self.protocol), **self.protocol.model_dump(**how)}
        return self._asdict() | {"cluster": self.cluster.model_dump(**how), "protocol": protocol}

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
        outages = ((place, fault) for place, fault in enumerate(cluster.faults) if isinstance(fault, Outage))
        waiting = sorted((outage.after_updates, place, outage) for place, outage in outages if outage.after_updates)
        for updates, place, outage in waiting:
            fewer = limits | {"updates": min(updates, limits.get("updates", math.inf))}
            recorder = self._replace(limits=tuple(fewer.items())).recorder()
            time = self._simulate(cluster, recorder).end_ns
            if recorder.updates < updates:  # the run ends before
                break
            faults = list(cluster.faults)
            faults[place] = outage.place(time)
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
        self.timing = Timing.of(run, seed, sizes)
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

        def looked() -> bool:
            return look(min(1.0, recorder.updates / max(1.0, limit)))

        watch = Watch(self.cadence, listener, looked)
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
        return self.timing._replace(limits=limits, seconds=seconds).schedule(_Told(statistics))


class _Told(Listener):
    """A listener that returns recorded statistics, and computes nothing."""

    def __init__(self, statistics: Sequence[float]):
        self._statistics = iter(statistics)

    def statistic(self, cell: int) -> float:
        """Return the next statistic."""
        return next(self._statistics)


@contextmanager
def _representable() -> Iterator[None]:
    try:
        yield
    except (OverflowError, struct.error) as error:
        place = own_code.line_of(error)
        where, costs = (f" ({place})", ", and costs (bytes)") if place else ("", "")
        if "not an integer" in str(error):
            raise FredError(
                f"the protocol gives a number that is not whole where ns, bytes, messages or replicas are counted{where}"
            ) from error
        raise FredError(
            f"virtual time passes {LONGEST:g} s; check durations (in seconds) and bandwidths (bytes/s){costs}{where}"
        ) from error
