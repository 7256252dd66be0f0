"""A run's timing: who does what when, with or without somebody who computes meanwhile."""

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from fred.cluster.cluster import Cluster
from fred.components import own_code, registry
from fred.components.input_path import no_path
from fred.components.limits import LONGEST
from fred.errors import FredError
from fred.protocols.protocol import Protocol
from fred.running.cadence import Cadence, Watch
from fred.schedule.layout import Sizes
from fred.schedule.schedule import Schedule
from fred.specification.shape import Run
from fred.timing.recorder import Listener, Recorder
from fred.timing.simulation import Simulation


class Timing(NamedTuple):
    """All that a schedule is made of: nothing else is handed to the simulation, so runs that have it in common have one.

    Args:
        cluster: the machines.
        protocol: who waits for whom.
        limits: of updates and of gradients that took part in them, without the infinite ones.
        seconds: of virtual time; infinity: no limit.
        seed: from which durations and the protocol's choices are drawn.
        sizes: of models and messages as the algorithm has them, in bytes; a number is that of both.

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

    @classmethod
    def of(cls, run: Run, seed: int, sizes: Sizes | int = 0) -> "Timing":
        """What of a run its schedule is made of."""
        wanted = {"updates": run.stop.updates, "gradients": run.stop.gradients}
        limits = tuple((name, number) for name, number in wanted.items() if number)
        return cls(run.cluster, run.protocol, limits, run.stop.seconds or math.inf, seed, sizes)

    def described(self) -> dict[str, Any]:
        """All of it as JSON has it, from which another process knows it."""
        how: dict[str, Any] = {"mode": "json", "context": {"paths": no_path}}
        protocol = {"name": registry.name_of("protocol", self.protocol), **self.protocol.model_dump(**how)}
        return self._asdict() | {"cluster": self.cluster.model_dump(**how), "protocol": protocol}

    def schedule(self, listener: Listener | None = None) -> Schedule:
        """Record it; `listener` is told every row when it is recorded, and asked for statistics."""
        return self.recorded(self.recorder(listener))

    def recorder(self, listener: Listener | None = None) -> Recorder:
        """Who writes the schedule."""
        return Recorder(self.cluster.size, self.protocol.layout(self.cluster), **dict(self.limits), listener=listener)

    def recorded(self, recorder: Recorder) -> Schedule:
        """What the recorder, which is handed over empty, has written in the end."""
        with _representable():
            simulation = Simulation(self.cluster, recorder, self.seed, self.sizes)
            self.protocol.start(simulation)
            simulation.run(self.seconds)
            return simulation.schedule()


class Recording:
    """One run with one seed; `sizes`: of what is usually sent, in bytes.

    Args:
        run: of which cluster, protocol and `stop` count.
        seed: from which durations and the protocol's choices are drawn.
        sizes: of models and messages as the algorithm has them; a number is that of both.

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
        """The whole run, timing only."""
        return self.timing.schedule()

    def watched(self, listener: Listener, look: Callable[[float], bool]) -> Schedule:
        """The whole run, or up to where `look`, told the fraction done, says True; it looks at the points.

        Args:
            listener: told every row when it is recorded, and asked for statistics.
            look: called at each evaluation point but the first and those at the end.
        """

        wanted = dict(self.timing.limits).get("updates", math.inf)

        def looked() -> bool:
            return look(min(1.0, recorder.updates / max(1.0, wanted)))

        watch = Watch(self.cadence, listener, looked)
        watch.recorder = recorder = self.timing.recorder(watch)
        schedule = self.timing.recorded(recorder)
        watch.over(schedule.end_ns)
        return schedule

    def up_to(self, seconds: float = math.inf, rows: float = math.inf, statistics: Sequence[float] = ()) -> Schedule:
        """The run up to a moment, or to the first update from a row on, where timing is told what it was told before.

        Args:
            seconds: virtual time, s; infinity: no limit in time.
            rows: of the schedule.
            statistics: the answers that the protocol was given, in order.
        """
        return self.timing._replace(limits=(("rows", rows),), seconds=seconds).schedule(_Told(statistics))


class _Told(Listener):
    """Answers as before, and computes nothing."""

    def __init__(self, statistics: Sequence[float]):
        self._statistics = iter(statistics)

    def statistic(self, cell: int) -> float:
        """The next answer."""
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
