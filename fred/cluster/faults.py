"""Faults: workers and servers that are offline for a time or for good, and lost messages.

The times of faults follow from the seed alone, whatever the protocol does. The protocol decides what happens then.
"""

import math
from abc import abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from fred.base import numerics
from fred.base.errors import FredError
from fred.base.numerics import log
from fred.cluster.durations import NEVER, check_median, durations
from fred.cluster.latency import AnyLatency, Constant
from fred.components.component import NANOSECONDS, Component, Count, Duration, Natural, Time

MachineKind = Literal["worker", "server"]
Way = Literal["to-servers", "to-workers", "between-workers"]
Span = tuple[int, int]  # begin and end, ns
NOT_AT_ALL: Span = (NEVER, NEVER)
_PREPOSITIONS = {"to-servers": "of", "to-workers": "for", "between-workers": "of"}  # "a message of worker 0"
MOST_TRIES = 10_000  # attempts at one gradient, one collective operation, or one message
_END = (1 << 63) - 1  # of virtual time, ns
_MOST_CRASHES = 1 << 22  # of one fault
_ALWAYS_ALLOWED = 64  # crashes of each entity, however many entities there are
_FEWEST_IN_A_CALL, _MOST_IN_A_CALL = 4, 1 << 12  # least and most crashes drawn at a time
_AT_A_TIME = 64  # messages whose losses are drawn at a time


class FaultProcess:
    """A fault at work in one run; by default it does nothing.

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

    cure: str = "give longer times between absences"  # in messages about workers that get nothing done

    def away(self, kind: MachineKind, number: int, after: int) -> Span:
        """Return the first offline interval of this worker or server that ends after `after`, ns.

        Args:
            kind, number: worker or server, and its number.
            after: time, ns.
        """
        return NOT_AT_ALL

    def lateness(self, way: Way, worker: int) -> tuple[int, int]:
        """Return the delay of the next message to or from this worker, ns (NEVER: lost), and the number of retransmissions.

        Args:
            way: direction of the message.
            worker: worker that sends or receives it; between two workers, the sender.
        """
        return 0, 0


class Fault(Component):
    """A kind of fault; several may act at once.

    Example: a new fault has options, like every component, and a `FaultProcess` that says when it strikes.
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
        """Return True if servers can be offline."""
        return False

    @abstractmethod
    def start(self, seed: int, name: str, workers: int, servers: int) -> FaultProcess:
        """Start the fault process; random numbers come from the streams of this name.

        Raises ValueError if the fault is impossible on this cluster.

        Args:
            seed: seed of the run.
            name: name of the streams.
            workers, servers: number of workers, and of servers.
        """


class Outage(Fault):
    """Workers or servers that are offline for a given interval: they crash and restart, join late, or leave.

    With `after_updates`, it begins 1 ns after that update: the workers lose what they do for the next one. FRED records the run
    without the outage up to there, which tells the time.
    """

    workers: tuple[Natural, ...] = Field(default=(), description="numbers of the workers, from 0", examples=[[0]])
    servers: tuple[Natural, ...] = Field(default=(), description="numbers of the servers, from 0")
    begin: Time = Field(default=0.0, description="start of the outage, s")
    after_updates: Count | None = Field(
        default=None, description="number of updates right after which it starts, instead of `begin`", examples=[100]
    )
    end: Duration | None = Field(default=None, description="end of the outage, s; absent: they never rejoin")
    away: Duration | None = Field(default=None, description="length of the outage, s, instead of `end`")

    @property
    def strikes_servers(self) -> bool:
        return bool(self.servers)

    @model_serializer(mode="wrap")
    def _serialize(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave absent `after_updates` and `away` out, so that files of other outages do not mention them."""
        absent = [name for name in ("after_updates", "away") if getattr(self, name) is None]
        return {name: option for name, option in serialize(self).items() if name not in absent}

    @model_validator(mode="after")
    def _ordered(self) -> "Outage":
        if self.after_updates is not None and self.begin:
            raise ValueError("give `begin` or `after_updates`: leave one of them out")
        if self.end is not None and self.after_updates is not None:
            raise ValueError("with `after_updates`, give the length of the outage, s, as `away`: leave `end` out")
        if self.end is not None and self.away is not None:
            raise ValueError("give `end` or `away`: leave one of them out")
        if self.end is not None and self.end <= self.begin:
            raise ValueError(f"`end` ({self.end:g}) must be after `begin` ({self.begin:g})")
        return self

    def start(self, seed: int, name: str, workers: int, servers: int) -> FaultProcess:
        for kind, numbers, count in (("workers", self.workers, workers), ("servers", self.servers, servers)):
            if max(numbers, default=0) >= count:
                raise ValueError(f"there are {count} {kind}, numbered from 0; `{kind}` names {max(numbers)}")
        return _Stated(self)

    def place(self, update_ns: int) -> "Outage":
        """Return the outage with its begin as a time, right after an update.

        Args:
            update_ns: time of the update, ns.

        >>> Outage(workers=[0], after_updates=100, away=5.0).place(12_000_000_000).begin
        12.000000001
        """
        begin = (update_ns + 1) / NANOSECONDS
        while round(begin * NANOSECONDS) <= update_ns:  # late times have a coarser grid than 1 ns
            begin = math.nextafter(begin, math.inf)
        return self.model_copy(update={"begin": begin, "after_updates": None})


class _Stated(FaultProcess):
    """An outage at the times that its options state."""

    def __init__(self, outage: Outage):
        self._numbers = {"worker": frozenset(outage.workers), "server": frozenset(outage.servers)}
        begin, end = round(outage.begin * NANOSECONDS), NEVER
        if outage.end is not None:
            end = round(outage.end * NANOSECONDS)
        elif outage.away is not None:
            end = begin + round(outage.away * NANOSECONDS)
        # An outage after an update has no time before `place` has given it one.
        self._span = (begin, end) if outage.after_updates is None else NOT_AT_ALL

    def away(self, kind: MachineKind, number: int, after: int) -> Span:
        return self._span if number in self._numbers[kind] and self._span[1] > after else NOT_AT_ALL


class Crashes(Fault):
    """Random crashes of workers or servers: each is up for a random time, exponential or as given, and then offline for one."""

    of: Literal["workers", "servers"] = Field(default="workers", description="machines that crash")
    mean_up: Duration | None = Field(
        default=None, description="mean of an exponential time until the next crash, s", examples=[100.0]
    )
    up: AnyLatency | None = Field(default=None, description="time until the next crash, s, instead of `mean_up`")
    away: AnyLatency = Field(default=Constant(seconds=10.0), description="offline time after a crash, s")

    @property
    def strikes_servers(self) -> bool:
        return self.of == "servers"

    @model_validator(mode="after")
    def _durations(self) -> "Crashes":
        if (self.mean_up is None) == (self.up is None):
            raise ValueError("give `mean_up`, for exponential times, or their distribution as `up`")
        check_median(self.away, 1.0)
        if self.up is not None:
            check_median(self.up, 1.0)
        return self

    def start(self, seed: int, name: str, workers: int, servers: int) -> FaultProcess:
        return _AtRandom(self, seed, name, workers if self.of == "workers" else servers)


class _AtRandom(FaultProcess):
    """The crashes of all workers, or of all servers, drawn as far as `away` asks for them."""

    cure = "give a longer `mean_up` or `up` of `crashes`"

    def __init__(self, crashes: Crashes, seed: int, stream: str, number: int):
        self._kind, self._mean_up = crashes.of[:-1], crashes.mean_up  # "worker" or "server"
        self._up = durations(seed, f"{stream} up times", [crashes.up] * number, [1.0] * number) if crashes.up else []
        self._draw = lambda entity, start, count: numerics.uniforms(seed, f"{stream} up", entity, start, count)
        self._away = durations(seed, f"{stream} away", [crashes.away] * number, [1.0] * number)
        self._spans = [(array("q"), array("q")) for _ in range(number)]  # begin and end of each entity's offline times, ns
        self._drawn_crashes = 0  # of all entities

    def away(self, kind: MachineKind, number: int, after: int) -> Span:
        if kind != self._kind:
            return NOT_AT_ALL
        begins, ends = self._spans[number]
        while not ends or ends[-1] <= after:
            if ends and ends[-1] >= _END:
                return NOT_AT_ALL
            self._extend(number, begins, ends)
        first = bisect_right(ends, after)
        return begins[first], ends[first]

    def _extend(self, number: int, begins: "array[int]", ends: "array[int]") -> None:
        """Draw as many further crashes of an entity as it has, within limits."""
        count = min(max(_FEWEST_IN_A_CALL, len(ends)), _MOST_IN_A_CALL)
        self._drawn_crashes += count
        if self._drawn_crashes > max(_MOST_CRASHES, _ALWAYS_ALLOWED * len(self._spans)):
            raise FredError(
                f"`cluster.faults`: more than {self._drawn_crashes - count:,} crashes; {self._kind} {number} alone has "
                f"{len(ends):,} in {(ends or [0])[-1] / NANOSECONDS:g} s: give longer times between crashes, or stop the run "
                "earlier"
            )
        now, draw_offline_time = ends[-1] if ends else 0, self._away[number]
        for up_time in self._draw_up_times(number, len(ends), count):
            begin = min(now + max(1, round(min(up_time, _END))), _END)
            now = min(begin + max(1, draw_offline_time()), _END)
            begins.append(begin)
            ends.append(now)

    def _draw_up_times(self, number: int, position: int, count: int) -> Iterable[float]:
        """Return the entity's next times until a crash, from the crash at this position on, ns."""
        if self._mean_up is None:
            return (float(self._up[number]()) for _ in range(count))
        times: list[float] = (-log(self._draw(number, position, count)) * self._mean_up * NANOSECONDS).tolist()
        return times


class LostMessages(Fault):
    """Random loss of messages; the sender retransmits a lost message after a timeout, or never notices.

    Collective operations lose no messages. Messages cut off by a crash or an interruption are not retransmitted. A message
    to several servers at once is lost as a whole. Retransmissions count as traffic, booked with the message that arrives in
    the end.
    """

    share: float = Field(gt=0, lt=1, description="share of messages that are lost", examples=[0.01])
    ways: tuple[Way, ...] = Field(
        default=("to-servers", "to-workers", "between-workers"), description="directions in which messages are lost"
    )
    again_after: Duration | None = Field(default=None, description="retransmission timeout, s; absent: no retransmission")

    def start(self, seed: int, name: str, workers: int, servers: int) -> FaultProcess:
        return _Losing(self, seed, name)


class _Losing(FaultProcess):
    """The losses of all messages, drawn for each direction and worker in the order of the messages."""

    def __init__(self, losses: LostMessages, seed: int, stream: str):
        self._losses = losses
        self._timeout = NEVER if losses.again_after is None else round(losses.again_after * NANOSECONDS)
        self._draw = lambda way, worker, start: numerics.uniforms(seed, f"{stream} {way}", worker, start, _AT_A_TIME)
        self._ahead: dict[tuple[Way, int], tuple[int, list[bool]]] = {}  # number of draws made, and unused draws, last first

    def lateness(self, way: Way, worker: int) -> tuple[int, int]:
        if way not in self._losses.ways:
            return 0, 0
        losses = 0
        while losses * self._timeout < NEVER and self._draw_loss(way, worker):  # without retransmission, one loss at most
            losses += 1
            if losses > MOST_TRIES and self._timeout < NEVER:
                raise FredError(
                    f"`cluster.faults`: a message {_PREPOSITIONS[way]} worker {worker} is lost {MOST_TRIES:,} times in a row; "
                    "give a smaller `share`"
                )
        return losses * self._timeout, losses

    def _draw_loss(self, way: Way, worker: int) -> bool:
        """Return True if the next message is lost."""
        position, unused = self._ahead.get((way, worker), (0, []))
        if not unused:
            unused = (self._draw(way, worker, position) < self._losses.share)[::-1].tolist()
            position += _AT_A_TIME
        self._ahead[way, worker] = position, unused
        return unused.pop()


class Faults:
    """All fault processes of one run."""

    def __init__(self, processes: Sequence[FaultProcess]):
        offline_processes = [process for process in processes if type(process).away is not FaultProcess.away]
        self._away = [process.away for process in offline_processes]
        self.cure = ", or ".join(dict.fromkeys(process.cure for process in offline_processes))
        self._lateness = [process.lateness for process in processes if type(process).lateness is not FaultProcess.lateness]
        self._lost: list[str] = []  # messages lost for good

    @property
    def loses(self) -> bool:
        """Return True if messages can be late or lost."""
        return bool(self._lateness)

    def offline_interval(self, kind: MachineKind, number: int, after: int) -> Span:
        """Return the first offline interval of a worker or server that ends after `after`, over all faults, ns."""
        begin, _ = min((first_interval(kind, number, after) for first_interval in self._away), default=NOT_AT_ALL)
        # The interval ends later than that of its first fault if intervals of other faults overlap it.
        return begin, self.next_available(kind, number, begin) if begin < NEVER else NEVER

    def absences(self, kind: MachineKind, number: int, until: int) -> Iterator[Span]:
        """Yield all offline intervals of a worker or server that begin before `until`, ns."""
        begin, end = self.offline_interval(kind, number, 0)
        while begin < until:
            yield begin, end
            if end >= until:
                return
            begin, end = self.offline_interval(kind, number, end)

    def next_available(self, kind: MachineKind, number: int, now: int) -> int:
        """Return the first time, from `now` on, at which a worker or server is available, ns; NEVER if it never is."""
        # The end of one fault's absence may lie in an absence of another fault, so the search goes on until none holds.
        for _ in range(MOST_TRIES):
            if now >= NEVER:
                return NEVER
            ends = [end for begin, end in (first_interval(kind, number, now) for first_interval in self._away) if begin <= now]
            if not ends:
                return now
            now = max(ends)
        raise FredError(f"`cluster.faults`: {kind} {number} is offline {MOST_TRIES:,} times in a row: {self.cure}")

    def lateness(self, way: Way, worker: int, now: int) -> tuple[int, int]:
        """Return the delay of a message sent now, ns (NEVER: lost for good), and the number of retransmissions."""
        draws = [lateness(way, worker) for lateness in self._lateness]
        total_delay = sum(delay for delay, _ in draws)
        if total_delay < NEVER:
            return total_delay, sum(retries for _, retries in draws)
        self._lost.append(f"a message {_PREPOSITIONS[way]} worker {worker} was lost at {now / NANOSECONDS:g} s")
        return NEVER, 0

    def undisturbed(
        self,
        workers: Collection[int],
        begin: int,
        lasts: Callable[[int], int],
        on_loss: Callable[[Span], object] = lambda _: None,
    ) -> Span:
        """Return begin and end of the successful attempt at an operation that needs all these workers.

        It restarts whenever one of them crashes. `lasts` returns its duration if it begins at the given time, ns. `on_loss` is
        called with each attempt that a crash ends.
        """
        for _ in range(MOST_TRIES):
            # At the latest of these times another worker may be offline. Then `crash` is no later, and the search goes on.
            begin = max(self.next_available("worker", worker, begin) for worker in workers)
            end = begin + lasts(begin)
            if begin >= NEVER or end <= (crash := min(self.offline_interval("worker", worker, begin)[0] for worker in workers)):
                return begin, end
            on_loss((begin, crash))
            begin = max(begin, crash)
        lasting = f"{lasts(begin) / NANOSECONDS:g} s: {self.cure}"
        if len(workers) == 1:
            subject = f"worker {min(workers)} is offline {MOST_TRIES:,} times"
            raise FredError(f"`cluster.faults`: {subject} before it can compute one gradient of {lasting}")
        raise FredError(
            f"`cluster.faults`: a worker goes offline in each of {MOST_TRIES:,} attempts at an average of {lasting}"
        )

    def describe_losses(self, workers: int, servers: int, now: int) -> list[str]:
        """Describe machines that are offline for good, now or after their next uptime, and the last lost messages."""
        machines: list[tuple[MachineKind, int]] = [("worker", worker) for worker in range(workers)]
        machines += [("server", server) for server in range(servers)]
        spans = [(kind, number, *self.offline_interval(kind, number, now)) for kind, number in machines]
        offline = [f"{kind} {number} does not come back" for kind, number, begin, end in spans if begin < NEVER <= end]
        return offline + self._lost[-8:]
