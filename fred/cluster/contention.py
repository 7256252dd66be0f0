"""Contention: temporary slowdowns of workers, on top of the randomness of single compute times."""

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from functools import cache
from itertools import accumulate
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fred.base import numerics
from fred.base.errors import FredError
from fred.base.numerics import log
from fred.cluster.durations import durations
from fred.cluster.latency import Constant, Latency, Mixture
from fred.components import own_code
from fred.components.component import NANOSECONDS, Component, Count, Duration, Natural, Time

FOREVER = 1 << 62  # ns
_MOST_CHANGES = 100_000  # changes of the regimes during one gradient
_MOST_SWITCHES = 4_000_000  # switches of one entity
NodeOf = NDArray[np.int64]  # node number of each worker
Scope = Literal["worker", "node", "cluster"]
Slowdown = Annotated[float, Field(ge=1)]


class Load:
    """A contention regime at work in one run; by default it does nothing.

    `only`: numbers of the workers that it acts on; None: all of them.

    Example: one worker warms up.
        >>> import fred
        >>> class WarmingUp(fred.Load):
        ...     '''Worker 0 takes twice as long in its first ten seconds, and its first gradient a second longer.'''
        ...     def slowdown(self, worker, now):
        ...         return (2.0, 10_000_000_000) if worker == 0 and now < 10_000_000_000 else (1.0, FOREVER)
        ...     def delay(self, worker, step):
        ...         return 1_000_000_000 if worker == step == 0 else 0
        >>> loads = Loads([WarmingUp()])
        >>> loads.finish(worker=0, step=0, begin=0, work=3_000_000_000) / 1e9
        7.0
        >>> loads.finish(worker=0, step=1, begin=7_000_000_000, work=3_000_000_000) / 1e9
        11.5
    """

    only: frozenset[int] | None = None

    def slowdown(self, worker: int, now: int) -> tuple[float, int]:
        """Return the worker's current slowdown factor, and the time (ns) until which it holds.

        Args:
            worker: number of the worker, from 0.
            now: current time, ns.
        """
        return 1.0, FOREVER

    def stretch(self, worker: int, begin: int) -> float:
        """Return a factor on the whole of a computation that begins at this time, whatever happens during it.

        Args:
            worker: number of the worker, from 0.
            begin: start of the computation, ns.
        """
        return 1.0

    def delay(self, worker: int, step: int) -> int:
        """Return the delay added to the worker's compute time of this step, ns.

        Args:
            worker: number of the worker, from 0.
            step: number of the worker's gradient, from 0.
        """
        return 0


class Contention(Component):
    """A regime; several may be at work at once.

    Example: a new regime has options, like every component, and a `Load` that defines its effect in a run.
        >>> import fred
        >>> class FirstStep(fred.Contention):
        ...     '''Everybody's first gradient takes longer: something is compiled.'''
        ...     seconds: float
        ...     def start(self, seed, name, node_of):
        ...         return Compiling(self.seconds)
        >>> class Compiling(fred.Load):
        ...     def __init__(self, seconds):
        ...         self.first = round(seconds * 1e9)
        ...     def delay(self, worker, step):
        ...         return self.first if step == 0 else 0
        >>> scenario = fred.scenario({
        ...     "cluster": {"workers": 1, "contention": [FirstStep(seconds=2.0)]},
        ...     "stop": {"updates": 3},
        ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
        ... })
        >>> fred.run(scenario).outcomes[0].schedule.end_ns / 1e9
        5.0

    Every regime may be limited to some workers. Here it slows down only the second of two workers:

        >>> job = {"name": "job", "nodes": [0], "slowdown": 3.0, "only": [1]}
        >>> cluster = fred.Cluster(workers=2, compute={"name": "constant", "seconds": 1.0}, contention=[job])
        >>> loads = Loads(cluster.loads(seed=0))
        >>> [loads.finish(worker, step=0, begin=0, work=10**9) / 1e9 for worker in (0, 1)]
        [1.0, 3.0]
    """

    only: tuple[Natural, ...] = Field(
        default=(),
        description="numbers, from 0, of the workers it slows down (or of the workers or servers with slow links); absent: all",
    )

    @abstractmethod
    def start(self, seed: int, name: str, node_of: NodeOf) -> Load:
        """Start the regime on a cluster, given each worker's node [workers].

        Random numbers come from the streams of this name.

        Args:
            seed: seed of the run.
            name: name of the streams, for `uniforms(seed, name, entity, start, count)` of `fred.base.numerics`.
            node_of: node number of each worker, from 0 [workers].
        """


def start_regime(regime: Contention, seed: int, name: str, node_of: NodeOf) -> Load:
    """Start a regime on the workers that it is limited to.

    Raises ValueError if there is no such worker.

    Args:
        regime: regime as a scenario describes it.
        seed: seed of the run.
        name: name of the streams.
        node_of: node number of each worker, from 0 [workers].

    >>> regime = MarkovSwitching(slowdown=2.0, fast_seconds=1.0, slow_seconds=1.0, only=[1])
    >>> sorted(start_regime(regime, 0, "contention 0", np.array([0, 0])).only)
    [1]
    """
    if max(regime.only, default=0) >= len(node_of):
        raise ValueError(
            f"a regime acts on {len(node_of)} workers or servers here, numbered from 0; `only` names {max(regime.only)}"
        )
    load = regime.start(seed, name, node_of)
    if regime.only:
        load.only = frozenset(regime.only)
    return load


class MarkovSwitching(Contention):
    """Markov switching between a fast and a slow state, with exponential dwell times, started from stationarity."""

    slowdown: Slowdown = Field(description="factor on compute times in the slow state", examples=[3.0])
    fast_seconds: Duration = Field(description="mean time in the fast state, s", examples=[20.0])
    slow_seconds: Duration = Field(description="mean time in the slow state, s", examples=[10.0])
    of: Scope = Field(default="worker", description="unit that is slow or fast as a whole")

    def start(self, seed: int, name: str, node_of: NodeOf) -> Load:
        return _Switching(self, seed, name, entities(self.of, node_of))


class _Switching(Load):
    """The states of all entities, which are drawn as far as they have been asked for."""

    def __init__(self, regime: MarkovSwitching, seed: int, stream: str, entity_of: list[int]):
        self._regime, self._entity_of = regime, entity_of
        self._draw = lambda entity, start, count: numerics.uniforms(seed, stream, entity, start, count)
        slow_share = regime.slow_seconds / (regime.slow_seconds + regime.fast_seconds)
        entities = np.unique(entity_of)
        is_slow = numerics.uniforms(seed, stream, entities, 0, 1)[:, 0] < slow_share
        self._is_slow_at_start = dict(zip(entities.tolist(), is_slow.tolist(), strict=True))
        self._switches: dict[int, list[int]] = {entity: [] for entity in self._is_slow_at_start}  # times of switches, ns

    def slowdown(self, worker: int, now: int) -> tuple[float, int]:
        entity = self._entity_of[worker]
        switches = self._switches[entity]
        while not switches or switches[-1] <= now:
            if len(switches) > _MOST_SWITCHES:
                raise FredError(
                    f"`contention`: more than {_MOST_SWITCHES:,} changes in the first {now / NANOSECONDS:g} s; "
                    "give longer `fast_seconds` and `slow_seconds`, or stop the run earlier"
                )
            self._extend(entity, switches, min(max(16, len(switches)), 1 << 16))  # doubles the list, within limits
        switch_count = bisect_right(switches, now)  # until now
        is_slow = self._is_slow_at_start[entity] ^ bool(switch_count % 2)
        return (self._regime.slowdown if is_slow else 1.0), switches[switch_count]

    def _extend(self, entity: int, switches: list[int], count: int) -> None:
        """Draw the next switches of an entity; draw 0 has decided its first state."""
        exponentials = -log(self._draw(entity, 1 + len(switches), count))  # of mean 1
        is_slow = (np.arange(count) + len(switches) + self._is_slow_at_start[entity]) % 2  # before each of the new switches
        means = np.where(is_slow, self._regime.slow_seconds, self._regime.fast_seconds)
        dwell_times = np.clip(np.rint(exponentials * means * NANOSECONDS), 1, FOREVER)  # ns
        last_switch = switches[-1] if switches else 0
        switches += accumulate((int(dwell) for dwell in dwell_times), initial=last_switch)
        del switches[-count - 1]  # `accumulate` repeats the last switch


class Job(Contention):
    """A competing job that slows some nodes down for a given interval."""

    nodes: tuple[Natural, ...] = Field(description="numbers of the nodes, from 0", examples=[[0]])
    slowdown: Slowdown = Field(description="factor on compute times", examples=[2.0])
    begin: Time = Field(default=0.0, description="start of the job, s")
    end: Duration | None = Field(default=None, description="end of the job, s; absent: it never ends")

    @model_validator(mode="after")
    def _ordered(self) -> "Job":
        if self.end is not None and self.end <= self.begin:
            raise ValueError(f"`end` ({self.end:g}) must be after `begin` ({self.begin:g})")
        return self

    def start(self, seed: int, name: str, node_of: NodeOf) -> Load:
        nodes = int(node_of.max()) + 1
        if max(self.nodes, default=0) >= nodes:
            raise ValueError(f"there are {nodes} nodes, numbered from 0; `nodes` names {max(self.nodes)}")
        return _Occupied(self, np.isin(node_of, self.nodes).tolist())


class _Occupied(Load):
    def __init__(self, job: Job, slowed: list[bool]):
        self._slowed, self._factor = slowed, job.slowdown
        self._begin = round(job.begin * NANOSECONDS)
        self._end = FOREVER if job.end is None else round(job.end * NANOSECONDS)

    def slowdown(self, worker: int, now: int) -> tuple[float, int]:
        if not self._slowed[worker] or now >= self._end:
            return 1.0, FOREVER
        return (1.0, self._begin) if now < self._begin else (self._factor, self._end)


class RandomDelays(Contention):
    """Fixed delays of a few random workers at every step [Li et al. 2021, section 5.2].

    `exact`: delays exactly `workers` of them, as the paper says. `independent`: delays each with probability `workers` / n.
    `published`: follows the paper's code. In each step every worker draws up to `workers` numbers below n, all workers from
    the same stream, and is delayed as soon as one number is its own. A delayed worker has drawn fewer numbers, so the
    workers drift apart in the stream and become nearly independent.

    If workers are interrupted when a round ends (`protocol: {name: synchronous, backup_workers: 1, late: interrupt}`), a delay
    that is longer than any round means that a random worker contributes nothing to each round.
    """

    workers: Count = Field(
        description="number of delayed workers per step; an average, exact or nearly, by `draw`", examples=[1]
    )
    seconds: Duration = Field(description="delay, s", examples=[0.32])
    draw: Literal["exact", "independent", "published"] = Field(default="exact", description="how the delayed workers are drawn")

    def start(self, seed: int, name: str, node_of: NodeOf) -> Load:
        if self.workers > len(node_of):
            raise ValueError(f"`workers` ({self.workers}) must not exceed the cluster's {len(node_of)}")
        if self.draw == "independent":
            return Drawn(seed, name, len(node_of), self.workers / len(node_of), Constant(seconds=self.seconds))
        return (_Delayed if self.draw == "exact" else _Injected)(self, seed, name, len(node_of))


class _Delayed(Load):
    """Delays of exactly the given number of workers at each step: those with the smallest random words."""

    def __init__(self, regime: RandomDelays, seed: int, stream: str, workers: int):
        self._delay = round(regime.seconds * NANOSECONDS)

        @cache
        def delayed_workers(step: int) -> frozenset[int]:
            draws = numerics.words(seed, stream, step, np.arange(workers))
            return frozenset(np.argsort(draws, kind="stable")[: regime.workers].tolist())

        self._delayed_workers = delayed_workers

    def delay(self, worker: int, step: int) -> int:
        return self._delay if worker in self._delayed_workers(step) else 0


class _Injected(Load):
    """Delays as the paper's code injects them, with the name `published` in scenarios."""

    def __init__(self, regime: RandomDelays, seed: int, stream: str, workers: int):
        self._delay, self._tries = round(regime.seconds * NANOSECONDS), regime.workers
        self._drawn: list[int] = []  # one stream for all workers, of numbers below `workers`
        self._draw = lambda start, count: numerics.words(seed, stream, 0, start + np.arange(count)) * workers >> np.uint64(32)
        self._positions = [0] * workers  # of each worker in the stream
        self._delayed: list[list[bool]] = [[] for _ in range(workers)]  # by worker and step

    def delay(self, worker: int, step: int) -> int:
        delayed = self._delayed[worker]
        while len(delayed) <= step:
            # `any` stops at the first match, so that a delayed worker draws fewer numbers, as in the paper's code.
            delayed.append(any(self._draw_number(worker) == worker for _ in range(self._tries)))
        return self._delay if delayed[step] else 0

    def _draw_number(self, worker: int) -> int:
        """Return the number at the worker's position in the stream, and move on by one."""
        position = self._positions[worker]
        self._positions[worker] += 1
        if position >= len(self._drawn):
            self._drawn += self._draw(len(self._drawn), 1024).tolist()
        return self._drawn[position]


class Drawn(Load):
    """A load that delays each step of each worker with some probability, by a random time."""

    def __init__(self, seed: int, stream: str, workers: int, probability: float, seconds: Latency):
        delay = Mixture(components=(Constant(seconds=0.0), seconds), weights=(1 - probability, probability))
        self._draws = durations(seed, stream, [delay] * workers, [1.0] * workers)
        self._delays: list[list[int]] = [[] for _ in range(workers)]  # by worker and step, ns

    def delay(self, worker: int, step: int) -> int:
        delays = self._delays[worker]
        while len(delays) <= step:
            delays.append(self._draws[worker]())
        return delays[step]


def entities(scope: Scope, node_of: NodeOf) -> list[int]:
    """Return the number of the entity whose state each worker shares: the worker itself, its node, or the whole cluster.

    >>> node_of = np.array([0, 0, 1])
    >>> entities("worker", node_of), entities("node", node_of), entities("cluster", node_of)
    ([0, 1, 2], [0, 0, 1], [0, 0, 0])
    """
    return {"worker": np.arange(len(node_of)), "node": node_of, "cluster": np.zeros_like(node_of)}[scope].tolist()


def _check_values(load: Load) -> Callable[[int, int], tuple[float, int]]:
    """Return the load's `slowdown`; for a user's class, with a check of the returned values."""
    if type(load).__module__.startswith("fred."):
        return load.slowdown
    name, place = type(load).__name__, own_code.place_of(load.slowdown)
    where = f" ({place})" if place else ""

    def slowdown(worker: int, now: int) -> tuple[float, int]:
        result = load.slowdown(worker, now)
        try:
            factor, until = result
            is_valid = 0 < factor < math.inf and until > now
        except (TypeError, ValueError):
            is_valid = False
        if not is_valid:
            raise FredError(
                f"`slowdown` of `{name}` returns {result!r} at {now} ns{where}; expected a factor above 0, and the time, later "
                "than now, until which it holds, ns: such as (2.0, now + 1_000_000_000), or (1.0, FOREVER)"
            )
        return factor, until

    return slowdown


def _limit(function: Callable[[int, int], Any], only: frozenset[int] | None, neutral: Any) -> Callable[[int, int], Any]:
    """Limit a load's method to these workers; for others it returns a neutral value."""
    if only is None:
        return function
    return lambda worker, time_or_step: function(worker, time_or_step) if worker in only else neutral


class Loads:
    """All contention regimes of one run; each is called only for the methods that it overrides."""

    def __init__(self, loads: list[Load]):
        slowdowns = ((_check_values(load), load) for load in loads if type(load).slowdown is not Load.slowdown)
        stretches = ((load.stretch, load) for load in loads if type(load).stretch is not Load.stretch)
        delays = ((load.delay, load) for load in loads if type(load).delay is not Load.delay)
        self._slowdowns = [_limit(slowdown, load.only, neutral=(1.0, FOREVER)) for slowdown, load in slowdowns]
        self._stretches = [_limit(stretch, load.only, neutral=1.0) for stretch, load in stretches]
        self._delays = [_limit(delay, load.only, neutral=0) for delay, load in delays]

    def slowdown(self, worker: int, now: int) -> tuple[float, int]:
        """Return the worker's current slowdown factor, and the time, ns, until which it holds."""
        factor, until = 1.0, FOREVER
        for slowdown in self._slowdowns:
            load_factor, load_until = slowdown(worker, now)
            factor *= load_factor
            if load_until < until:
                until = load_until
        return factor, until

    def stretch(self, worker: int, begin: int) -> float:
        """Return the factor on the whole of a computation that begins at `begin`, ns."""
        return math.prod(stretch(worker, begin) for stretch in self._stretches)

    def finish(self, worker: int, step: int, begin: int, work: int) -> int:
        """Return the time, ns, at which a computation of `work` ns at full speed ends that begins at `begin`.

        A slowdown multiplies the work done while it lasts. A stretch, taken at the beginning, multiplies all of it. Delays
        are added.
        """
        now, remaining = begin, float(work)
        for stretch in self._stretches:
            remaining *= stretch(worker, begin)
        for _ in range(_MOST_CHANGES):
            factor, until = self.slowdown(worker, now)
            if now + remaining * factor <= until:
                return now + round(remaining * factor) + sum([delay(worker, step) for delay in self._delays])
            if until >= FOREVER:
                raise OverflowError(f"worker {worker} would compute for {remaining * factor / NANOSECONDS:g} s")
            remaining -= (until - now) / factor
            now = until
        raise FredError(
            f"`contention` changes more than {_MOST_CHANGES:,} times while worker {worker} computes one gradient "
            f"({work / NANOSECONDS:g} s): give longer times between changes"
        )
