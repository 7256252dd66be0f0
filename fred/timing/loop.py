"""SimPy's event loop, quicker in two places: creating what only takes time, and going from event to event."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Protocol

import simpy
from simpy.events import NORMAL, URGENT

from fred.cluster.durations import NEVER


class Ends(Protocol):
    """What says when it is enough."""

    full: bool


_BEYOND = NEVER >> 1  # what is left of it when times have been subtracted


class After(simpy.Event):
    """Happens so many nanoseconds from now, or NEVER: as simpy's Timeout, in half the time."""

    def __init__(self, env: simpy.Environment, delay: int):
        if delay < 0:
            raise ValueError(f"negative delay {delay}")  # as simpy says
        self.env = env
        self.callbacks = []
        self._ok, self._value = True, None
        if delay < _BEYOND:
            heappush(env._queue, (env._now + delay, NORMAL, next(env._eid), self))


class Loop(simpy.Environment):
    """Virtual time in integer nanoseconds; simultaneous events happen in the order in which they were scheduled.

    Example: what is scheduled first happens first; only `at` comes before all else of that time.
        >>> env = Loop()
        >>> env.later(5, lambda: print("second", env.now))
        >>> env.later(5, lambda: print("third", env.now))
        >>> env.at(5, lambda: print("first", env.now))
        >>> env.run()
        first 5
        second 5
        third 5
    """

    _now: int

    def __init__(self) -> None:
        super().__init__(initial_time=0)

    def after(self, delay: int) -> After:
        """Something to wait for that happens in a `delay` of so many nanoseconds."""
        return After(self, delay)

    def later(self, delay: int, action: Callable[[], None]) -> None:
        """Do something, `action`, after a `delay` of so many nanoseconds."""
        After(self, delay).callbacks.append(lambda _: action())

    def at(self, time: int, action: Callable[[], None]) -> None:
        """Do something, `action`, at a `time`, ns, before anything else that happens then."""
        event = self.event()
        event._ok, event._value = True, None  # as simpy.Environment.run does for its own `until`
        event.callbacks.append(lambda _: action())
        self.schedule(event, URGENT, time - self._now)

    def happen(self, events: int, until: Ends) -> bool:
        """So many `events`, or as many as it takes `until` that is full; False if nothing is left to happen."""
        queue: list[Any] = self._queue
        for _ in range(events):
            if not queue:
                return False
            self._now, _, _, event = heappop(queue)
            callbacks, event.callbacks = event.callbacks, None
            for callback in callbacks:
                callback(event)
            if not event._ok and not hasattr(event, "_defused"):
                raise event._value  # of a process that nobody waits for
            if until.full:
                break
        return True
