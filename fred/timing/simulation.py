"""The event loop: virtual time, the cluster and the network at work, and the verbs that protocols use."""

import math
from collections.abc import Callable, Generator
from typing import Any

import simpy

from fred.errors import FredError
from fred.schedule import Gradient, Model, Recorder
from fred.timing.cluster import Cluster
from fred.timing.durations import NANOSECONDS, durations
from fred.timing.network import Links

Process = Generator[simpy.Event, Any, Any]


class Simulation:
    """One run's virtual world. Time is integer nanoseconds; simultaneous events happen in the order they were scheduled."""

    def __init__(self, cluster: Cluster, recorder: Recorder, seed: int, model_bytes: int):
        self.env = simpy.Environment(initial_time=0)
        self.workers = cluster.size
        self.seed = seed
        self.record = recorder
        network = cluster.network
        self._links = None if network is None else Links(self.env, network, self.workers, len(recorder.clocks), seed)
        self._size = (network and network.message_bytes) or model_bytes  # bytes of one model or gradient
        self._durations = durations(seed, "compute", cluster.latencies(), cluster.worker_speeds())
        self._steps = [0] * self.workers  # gradients begun by each worker
        self._waiting: dict[int, str] = {}  # worker -> what it waits for

    @property
    def now(self) -> int:
        """Virtual time, ns."""
        return self.env.now  # type: ignore[return-value]

    def process(self, generator: Process) -> simpy.Process:
        """Start a process."""
        return self.env.process(generator)

    # What a worker does, network included.

    def pull(self, worker: int, replica: int = 0) -> Generator[simpy.Event, Any, Model]:
        """The server sends its present parameters; ends when they have arrived."""
        arrival = None if self._links is None else self._links.arrival(worker, replica, self._size)
        model = self.read(worker, replica, arrival)
        if arrival is not None:
            yield self.env.timeout(arrival - self.now)
        return model

    def compute(self, worker: int, model: Model, duration: int | None = None) -> Gradient:
        """Begin a gradient at the model; wait for its `finished`. The duration, ns, is the worker's next draw if not given."""
        env, step = self.env, self._steps[worker]
        self._steps[worker] = step + 1
        self.record.started += 1
        if duration is None:
            duration = self._durations[worker]()
        now = int(env.now)
        return Gradient(worker, step, model, now, now + duration, env.timeout(duration))

    def send(self, gradient: Gradient, server: int = 0) -> Process:
        """Bring a finished gradient to the server; ends when it has arrived."""
        if self._links is not None:
            yield from self._links.upload(gradient.worker, server, self._size)

    def wait(self, worker: int, event: simpy.Event, reason: str) -> Process:
        """Wait for an event; the reason is reported if nothing can happen any more."""
        self._waiting[worker] = reason
        yield event
        del self._waiting[worker]

    # What happens at a server, at once.

    def read(self, worker: int, replica: int = 0, arrival: int | None = None) -> Model:
        """The present parameters, which arrive at `arrival`, ns (at once if not given)."""
        now = self.now
        return self.record.pull(now, worker, replica, self._steps[worker], now if arrival is None else arrival, self._size)

    def push(self, gradient: Gradient, replica: int = 0) -> None:
        """The gradient makes one update."""
        self.record.push(self.now, gradient, replica, self._size)

    def add(self, gradient: Gradient, replica: int = 0) -> None:
        """The gradient joins the open round."""
        self.record.add(self.now, gradient, replica, self._size)

    def commit(self, replica: int = 0) -> None:
        """The round's mean gradient makes one update."""
        self.record.commit(self.now, replica)

    def drop(self, gradient: Gradient, replica: int = 0) -> None:
        """The gradient is not used; if it was still being computed it ends now."""
        gradient.end = min(gradient.end, self.now)
        self.record.drop(self.now, gradient, replica, self._size)

    def run(self, seconds: float = math.inf) -> None:
        """Let events happen until the schedule is full or the time is over. Raises FredError on a standstill."""
        if seconds < math.inf:
            self._at(round(seconds * NANOSECONDS), self._time_is_over)
        record, step = self.record, self.env.step
        try:
            while not record.full:
                step()
        except simpy.core.EmptySchedule:
            raise FredError(self._standstill()) from None

    def every(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something just before whatever happens at each multiple of this time."""

        def again(times: int) -> None:
            if times:
                action()
            if times == 0 or self.env.peek() < math.inf:  # else it alone would keep the world going
                self._at(round((times + 1) * seconds * NANOSECONDS), lambda: again(times + 1))

        again(0)

    def _at(self, time: int, action: Callable[[], None]) -> None:
        """Do something at a time, before anything else that happens then."""
        event = self.env.event()
        event._ok, event._value = True, None  # as simpy.Environment.run does for its own `until`
        event.callbacks.append(lambda _: action())
        self.env.schedule(event, simpy.events.URGENT, time - self.now)

    def _time_is_over(self) -> None:
        self.record.full = True

    def _standstill(self) -> str:
        waiting = "; ".join(f"worker {worker} waits for {reason}" for worker, reason in sorted(self._waiting.items())[:8])
        return f"nothing can happen any more after {self.now / NANOSECONDS:g} s: {waiting or 'no worker is waiting'}"
