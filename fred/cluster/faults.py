"""Faults: workers and servers that are away for a while or for good, and messages that are lost.

When they strike follows from the seed alone, whatever the protocol does; what comes of it is the protocol's to say.
"""

from abc import abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Literal

from pydantic import Field, model_validator

from fred import streams
from fred.cluster.contention import Dwell
from fred.cluster.durations import NANOSECONDS, NEVER, check_median, durations
from fred.cluster.elementary import log
from fred.cluster.latency import AnyLatency, Constant, Positive
from fred.components.component import Component, Whole
from fred.errors import FredError

Who = Literal["worker", "server"]
Way = Literal["to-servers", "to-workers", "between-workers"]
Span = tuple[int, int]  # from one moment to another, ns
NOT_AT_ALL: Span = (NEVER, NEVER)
_WAYS = {"to-servers": "of", "to-workers": "for", "between-workers": "of"}
MOST_TRIES = 10_000  # of one gradient, one collective operation, or one message
_END = (1 << 63) - 1  # of virtual time, ns
_MOST_CRASHES, _MOST_EARLY = 1 << 22, 64  # by one fault, in a run of an hour; of each who crashes, however many there are
_FEWEST, _MOST_AT_ONCE = 4, 1 << 12  # crashes drawn at a time
_AT_A_TIME = 64  # messages


class FaultProcess:
    """One fault at work on one run's cluster; by default it does nothing.

    Example:
        >>> import fred
        >>> second = 10**9  # ns
        >>> class Blinking(fred.FaultProcess):
        ...     '''Worker 0 is away in every other second.'''
        ...     def away(self, kind, number, after):
        ...         if (kind, number) != ("worker", 0):
        ...             return super().away(kind, number, after)  # never
        ...         begin = (after // (2 * second) * 2 + 1) * second
        ...         return begin, begin + second
        >>> Blinking().away("worker", 0, after=2_500_000_000)
        (3000000000, 4000000000)
        >>> Blinking().lateness("to-servers", worker=0)
        (0, 0)
    """

    def away(self, kind: Who, number: int, after: int) -> Span:
        """The first time that this worker or server is away and that ends after then, ns.

        Args:
            kind, number: which worker or server.
            after: ns.
        """
        return NOT_AT_ALL

    def lateness(self, way: Way, worker: int) -> tuple[int, int]:
        """By how much the next message to or from this worker is late, ns (NEVER: lost), and how often it is sent again.

        Args:
            way: from where to where.
            worker: who sends or receives it; of two workers, who sends.
        """
        return 0, 0


class Fault(Component):
    """One kind of fault; several may strike at once.

    Example: a fault of one's own has options, as every component, and says in a `FaultProcess` when it strikes.
        >>> import fred
        >>> class LateStart(fred.Fault):
        ...     '''The last worker joins after a while.'''
        ...     seconds: float
        ...     def start(self, seed, name, workers, servers):
        ...         return Joining(workers - 1, round(self.seconds * 1e9))
        >>> class Joining(fred.FaultProcess):
        ...     def __init__(self, worker, begin):
        ...         self.worker, self.begin = worker, begin
        ...     def away(self, kind, number, after):
        ...         late = (kind, number) == ("worker", self.worker) and after < self.begin
        ...         return (0, self.begin) if late else super().away(kind, number, after)
        >>> scenario = fred.scenario(
        ...     cluster={
        ...         "workers": 2,
        ...         "compute": {"name": "constant", "seconds": 1.0},
        ...         "faults": [LateStart(seconds=2.5)],
        ...     },
        ...     stop={"seconds": 5},
        ...     algorithm={"name": "asgd", "learning_rate": 0.1},
        ... )
        >>> pushes = fred.run(scenario).schedule("asgd").query("verb == 'PUSH'")
        >>> pushes.groupby("worker")["time_ns"].min().tolist()
        [1000000000, 3500000000]
    """

    @property
    def strikes_servers(self) -> bool:
        """Whether servers are away."""
        return False

    @abstractmethod
    def start(self, seed: int, name: str, workers: int, servers: int) -> FaultProcess:
        """The fault at work; what is random comes from the streams of this name. Raises ValueError where it cannot be.

        Args:
            seed: the run's.
            name: of the streams.
            workers, servers: how many there are.
        """


class Outage(Fault):
    """Workers or servers are away from one moment to another: they crash and restart, join late, or leave."""

    workers: tuple[Whole, ...] = Field((), description="numbers of the workers, from 0", examples=[[0]])
    servers: tuple[Whole, ...] = Field((), description="numbers of the servers, from 0")
    begin: float = Field(0.0, ge=0, description="s")
    end: Positive | None = Field(None, description="s; absent: they never come back")

    @property
    def strikes_servers(self) -> bool:
        return bool(self.servers)

    @model_validator(mode="after")
    def _ordered(self) -> "Outage":
        if self.end is not None and self.end <= self.begin:
            raise ValueError(f"`end` ({self.end:g}) must be after `begin` ({self.begin:g})")
        return self

    def start(self, seed: int, name: str, workers: int, servers: int) -> FaultProcess:
        for kind, numbers, count in (("workers", self.workers, workers), ("servers", self.servers, servers)):
            if max(numbers, default=0) >= count:
                raise ValueError(f"there are {count} {kind}, numbered from 0; `{kind}` names {max(numbers)}")
        return _Stated(self)


class _Stated(FaultProcess):
    def __init__(self, outage: Outage):
        self._of = {"worker": frozenset(outage.workers), "server": frozenset(outage.servers)}
        end = NEVER if outage.end is None else round(outage.end * NANOSECONDS)
        self._span = round(outage.begin * NANOSECONDS), end

    def away(self, kind: Who, number: int, after: int) -> Span:
        return self._span if number in self._of[kind] and self._span[1] > after else NOT_AT_ALL


class Crashes(Fault):
    """Workers or servers crash at random: each is up for an exponential time, and then away for some time."""

    of: Literal["workers", "servers"] = Field("workers", description="who crashes")
    mean_up: Dwell = Field(description="mean time until the next crash, s", examples=[100.0])
    away: AnyLatency = Field(Constant(seconds=10.0), description="how long one is away then, s")

    @property
    def strikes_servers(self) -> bool:
        return self.of == "servers"

    @model_validator(mode="after")
    def _away_is_a_duration(self) -> "Crashes":
        check_median(self.away, 1.0)
        return self

    def start(self, seed: int, name: str, workers: int, servers: int) -> FaultProcess:
        return _AtRandom(self, seed, name, workers if self.of == "workers" else servers)


class _AtRandom(FaultProcess):
    def __init__(self, crashes: Crashes, seed: int, name: str, number: int):
        self._kind, self._mean = crashes.of[:-1], crashes.mean_up
        self._draw = lambda entity, start, count: streams.uniforms(seed, f"{name} up", entity, start, count)
        self._away = durations(seed, f"{name} away", [crashes.away] * number, [1.0] * number)
        self._spans = [(array("q"), array("q")) for _ in range(number)]  # when each goes, and when it is back, ns
        self._made = 0

    def away(self, kind: Who, number: int, after: int) -> Span:
        if kind != self._kind:
            return NOT_AT_ALL
        goes, back = self._spans[number]
        while not back or back[-1] <= after:
            if back and back[-1] >= _END:
                return NOT_AT_ALL
            self._extend(number, goes, back)
        first = bisect_right(back, after)
        return goes[first], back[first]

    def _extend(self, number: int, goes: "array[int]", back: "array[int]") -> None:
        count = min(max(_FEWEST, len(back)), _MOST_AT_ONCE)
        self._made += count
        if self._made > max(_MOST_CRASHES, _MOST_EARLY * len(self._spans)):
            raise FredError(
                f"`cluster.faults`: more than {self._made - count:,} crashes; {self._kind} {number} alone has {len(back):,} "
                f"in {(back or [0])[-1] / NANOSECONDS:g} s: give a longer `mean_up`, or stop the run earlier"
            )
        now, away = back[-1] if back else 0, self._away[number]
        for up in (-log(self._draw(number, len(back), count)) * self._mean * NANOSECONDS).tolist():
            begin = min(now + max(1, round(min(up, _END))), _END)
            now = min(begin + max(1, away()), _END)
            goes.append(begin)
            back.append(now)


class LostMessages(Fault):
    """Each message is lost with some probability; its sender sends it again after a while, or never learns of it.

    Collective operations are spared, and what a crash or an interruption cuts off is not sent again. A message to several
    servers at once is lost as one. What is sent again counts as traffic, too, with the message that arrives in the end.
    """

    share: float = Field(gt=0, lt=1, description="of the messages that are lost", examples=[0.01])
    ways: tuple[Way, ...] = Field(
        ("to-servers", "to-workers", "between-workers"), description="on which ways messages are lost"
    )
    again_after: Positive | None = Field(None, description="when a lost message is sent again, s; absent: never")

    def start(self, seed: int, name: str, workers: int, servers: int) -> FaultProcess:
        return _Losing(self, seed, name)


class _Losing(FaultProcess):
    def __init__(self, losses: LostMessages, seed: int, name: str):
        self._losses = losses
        self._again = NEVER if losses.again_after is None else round(losses.again_after * NANOSECONDS)
        self._draw = lambda way, worker, start: streams.uniforms(seed, f"{name} {way}", worker, start, _AT_A_TIME)
        self._ahead: dict[tuple[Way, int], tuple[int, list[bool]]] = {}  # draws made, and those that are left, last first

    def lateness(self, way: Way, worker: int) -> tuple[int, int]:
        if way not in self._losses.ways:
            return 0, 0
        lost = 0
        while lost * self._again < NEVER and self._lost(way, worker):
            lost += 1
            if lost > MOST_TRIES and self._again < NEVER:
                raise FredError(
                    f"`cluster.faults`: a message {_WAYS[way]} worker {worker} is lost {MOST_TRIES:,} times in a row; "
                    "give a smaller `share`"
                )
        return lost * self._again, lost

    def _lost(self, way: Way, worker: int) -> bool:
        made, left = self._ahead.get((way, worker), (0, []))
        if not left:
            left = (self._draw(way, worker, made) < self._losses.share)[::-1].tolist()
            made += _AT_A_TIME
        self._ahead[way, worker] = made, left
        return left.pop()


class Faults:
    """Everything that can go wrong in one run."""

    def __init__(self, processes: Sequence[FaultProcess]):
        self._away = [each.away for each in processes if type(each).away is not FaultProcess.away]
        self._lateness = [each.lateness for each in processes if type(each).lateness is not FaultProcess.lateness]
        self._lost: list[str] = []  # messages, for good

    @property
    def loses(self) -> bool:
        """Whether messages come late, or never."""
        return bool(self._lateness)

    def away(self, kind: Who, number: int, after: int) -> Span:
        """The first time away that ends `after` then, of all faults together, ns; of a worker or server (`kind`, `number`)."""
        span = min((each(kind, number, after) for each in self._away), default=NOT_AT_ALL)
        return span[0], self.back(kind, number, span[0]) if span[0] < NEVER else NEVER

    def absences(self, kind: Who, number: int, until: int) -> Iterator[Span]:
        """All times that it (`kind`, `number`) is away that begin before `until`, ns."""
        begin, end = self.away(kind, number, 0)
        while begin < until:
            yield begin, end
            if end >= until:
                return
            begin, end = self.away(kind, number, end)

    def back(self, kind: Who, number: int, now: int) -> int:
        """When it (`kind`, `number`) is there: `now`, unless it is away; NEVER: never again."""
        for _ in range(MOST_TRIES):
            if now >= NEVER:
                return NEVER
            ends = [end for begin, end in (each(kind, number, now) for each in self._away) if begin <= now]
            if not ends:
                return now
            now = max(ends)
        raise FredError(f"`cluster.faults`: {kind} {number} is away {MOST_TRIES:,} times in a row: give a longer `mean_up`")

    def lateness(self, way: Way, worker: int, now: int) -> tuple[int, int]:
        """By how much a message that is sent now is late, ns (NEVER: it is lost for good), and how often it is sent again."""
        drawn = [each(way, worker) for each in self._lateness]
        late = sum(each for each, _ in drawn)
        if late < NEVER:
            return late, sum(again for _, again in drawn)
        self._lost.append(f"a message {_WAYS[way]} worker {worker} was lost at {now / NANOSECONDS:g} s")
        return NEVER, 0

    def undisturbed(
        self,
        workers: Collection[int],
        begin: int,
        lasts: Callable[[int], int],
        lost: Callable[[Span], object] = lambda _: None,
    ) -> Span:
        """When what needs all these workers, and starts anew whenever one crashes, begins for the last time, and ends.

        `lasts` says how long it takes if it begins then, ns; `lost` is told of each attempt that a crash ends.
        """
        for _ in range(MOST_TRIES):
            begin = max(self.back("worker", worker, begin) for worker in workers)
            end = begin + lasts(begin)
            if begin >= NEVER or end <= (away := min(self.away("worker", worker, begin)[0] for worker in workers)):
                return begin, end
            lost((begin, away))
            begin = max(begin, away)
        lasting = f"{lasts(begin) / NANOSECONDS:g} s: give longer times between crashes"
        if len(workers) == 1:
            who = f"worker {min(workers)} is away {MOST_TRIES:,} times"
            raise FredError(f"`cluster.faults`: {who} before it can compute one gradient of {lasting}")
        raise FredError(f"`cluster.faults`: somebody crashes in each of {MOST_TRIES:,} attempts at an average of {lasting}")

    def gone(self, workers: int, servers: int, now: int) -> list[str]:
        """Who is away for good, or will be after the next time that it is there, and the last messages that were lost."""
        everybody: list[tuple[Who, int]] = [("worker", worker) for worker in range(workers)]
        everybody += [("server", server) for server in range(servers)]
        spans = [(kind, number, *self.away(kind, number, now)) for kind, number in everybody]
        away = [f"{kind} {number} does not come back" for kind, number, begin, end in spans if begin < NEVER <= end]
        return away + self._lost[-8:]
