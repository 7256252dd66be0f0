"""A run's timing: who does what when, with or without somebody who computes meanwhile."""

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from fred.components import own_code
from fred.components.limits import LONGEST
from fred.errors import FredError
from fred.running.cadence import Cadence, Watch
from fred.schedule.layout import Sizes
from fred.schedule.schedule import Schedule
from fred.specification.shape import Run
from fred.timing.recorder import Listener, Recorder
from fred.timing.simulation import Simulation


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
        self._run, self._seed, self._sizes = run, seed, sizes
        self.cadence = Cadence(*run.evaluate.spacing(run.stop))
        self._wanted = {"updates": run.stop.updates or math.inf, "gradients": run.stop.gradients or math.inf}

    def schedule(self) -> Schedule:
        """The whole run, timing only."""
        return self._record(self._recorder(self._wanted, None), self._run.stop.seconds)

    def watched(self, listener: Listener, look: Callable[[float], bool]) -> Schedule:
        """The whole run, or up to where `look`, told the fraction done, says True; it looks at the points.

        Args:
            listener: told every row when it is recorded, and asked for statistics.
            look: called at each evaluation point but the first and those at the end.
        """

        def looked() -> bool:
            return look(min(1.0, recorder.updates / max(1.0, self._wanted["updates"])))

        watch = Watch(self.cadence, listener, looked)
        watch.recorder = recorder = self._recorder(self._wanted, watch)
        schedule = self._record(recorder, self._run.stop.seconds)
        watch.over(schedule.end_ns)
        return schedule

    def up_to(self, seconds: float | None = None, rows: float = math.inf, statistics: Sequence[float] = ()) -> Schedule:
        """The run up to a moment, or to the first update from a row on, where timing is told what it was told before.

        Args:
            seconds: virtual time, s; None: no limit in time.
            rows: of the schedule.
            statistics: the answers that the protocol was given, in order.
        """
        return self._record(self._recorder({"rows": rows}, _Told(statistics)), seconds)

    def _recorder(self, limits: dict[str, float], listener: Listener | None) -> Recorder:
        run = self._run
        return Recorder(run.cluster.size, run.protocol.layout(run.cluster), **limits, listener=listener)

    def _record(self, recorder: Recorder, seconds: float | None) -> Schedule:
        with _representable():
            simulation = Simulation(self._run.cluster, recorder, self._seed, self._sizes)
            self._run.protocol.start(simulation)
            simulation.run(math.inf if seconds is None else seconds)
            return simulation.schedule()


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
