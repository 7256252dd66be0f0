"""SimPy's event loop, quicker in three places: what only takes time, going from event to event, and going on with a process."""

from collections.abc import Callable, Generator
from heapq import heappop, heappush
from inspect import isgenerator
from numbers import Integral
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


Wait = simpy.Event | int  # what a process yields: an event, or so many nanoseconds


class Process(simpy.Process):
    """As simpy's, except that what it yields may also be a number: so many nanoseconds from now.

    That takes no event: it is always the same one that happens, unless an interruption came before it.

    >>> env = Loop()
    >>> def work():
    ...     for _ in range(3):
    ...         yield 5
    ...         print(env.now)
    >>> _ = env.process(work())
    >>> env.run()
    5
    10
    15
    """

    env: "Loop"

    def __init__(self, env: "Loop", generator: Generator[Any, Any, Any]):
        super().__init__(env, generator)
        self._send = generator.send
        self._pause: Any = None  # an After
        self._alone: list[Any] = []  # what the pause calls: this process

    def _resume(self, event: simpy.Event) -> None:
        env = self.env
        env._active_proc = self
        try:
            target = self._send(event._value) if event._ok else self._fail(event)
            if target.__class__ is not int or target < 0:
                target = self._to_come(target)
        except StopIteration as end:
            self._end(True, end.value)
        except BaseException as error:
            self._end(False, error)
        else:
            if target.__class__ is not int:
                target.callbacks.append(self._resume)
                self._target = target
            else:
                if not self._alone:  # the first time; or, interrupted, it left the last pause to happen for nobody
                    self._pause, self._alone = After(env, NEVER), [self._resume]
                self._target = pause = self._pause
                pause.callbacks = self._alone
                if target < _BEYOND:
                    heappush(env._queue, (env._now + target, NORMAL, next(env._eid), pause))
        env._active_proc = None

    def _to_come(self, target: Any) -> Any:
        """What it waits for in the end: it goes on at once after events that have happened, and hears of what cannot be."""
        while True:
            if isinstance(target, simpy.Event):
                if target.callbacks is not None:
                    return target
                target = self._send(target._value) if target._ok else self._fail(target)
            elif not isinstance(target, Integral):
                instead = ": write `yield from` instead of `yield`" if isgenerator(target) else ""
                error = TypeError(f"a process yields an event, or a whole number of nanoseconds, not {target!r}{instead}")
                target = self._generator.throw(error)
            elif target < 0:
                target = self._generator.throw(ValueError(f"negative delay {target}"))
            else:
                return int(target)

    def _fail(self, event: simpy.Event) -> Any:
        """Go on with the exception of an event that failed: with a copy, for the traceback of each process is its own."""
        event._defused = True
        assert isinstance(event._value, BaseException)
        error = type(event._value)(*event._value.args)
        error.__cause__ = event._value
        return self._generator.throw(error)

    def _end(self, ok: bool, value: Any) -> None:
        self._ok, self._value = ok, value
        self._pause, self._alone = None, []  # which lead back to it
        self._target = None  # type: ignore[assignment]  # as simpy says of one that is over
        self.env.schedule(self)


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
        self.happened = After(self, NEVER)  # what nobody need wait for any more
        self.happened.callbacks = None  # type: ignore[assignment]  # as simpy says of what has happened

    def process(self, generator: Generator[Any, Any, Any]) -> Process:
        """Start a process, which yields what it waits for: events, or numbers of nanoseconds."""
        return Process(self, generator)

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
