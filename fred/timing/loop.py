"""SimPy's event loop, faster in three places: timeouts, stepping through events, and resuming a process."""

from collections.abc import Callable, Generator
from heapq import heapify, heappop, heappush
from inspect import isgenerator
from numbers import Integral
from typing import Any, Protocol

import simpy
from simpy.events import NORMAL, URGENT

from fred.cluster.durations import NEVER

_HORIZON = NEVER >> 1  # still below NEVER after times have been subtracted from it
Wait = simpy.Event | int  # a process yields one of these: an event, or a number of nanoseconds


class Ends(Protocol):
    """An object whose `full` tells that the simulation may stop."""

    full: bool


class After(simpy.Event):
    """An event that happens `delay` ns from now, or never (NEVER): SimPy's Timeout at half the cost."""

    def __init__(self, env: simpy.Environment, delay: int):
        if delay < 0:
            raise ValueError(f"negative delay {delay}")  # SimPy's own message
        self.env = env
        self.callbacks = []
        self._ok, self._value = True, None
        if delay < _HORIZON:
            heappush(env._queue, (env._now + delay, NORMAL, next(env._eid), self))


class Process(simpy.Process):
    """A SimPy process that may also yield a number: the number of nanoseconds to wait.

    Such a wait creates no event: one event per process is used again and again, unless an interrupt cancelled the wait.

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
        self._pause_callbacks: list[Any] = []  # callbacks of the pause: only this process

    def _resume(self, event: simpy.Event) -> None:
        env = self.env
        env._active_proc = self
        try:
            target = self._send(event._value) if event._ok else self._fail(event)
            if target.__class__ is not int or target < 0:  # the common case, a number, passes without a call
                target = self._next_target(target)
        except StopIteration as end:
            self._end(True, end.value)
        except BaseException as error:
            self._end(False, error)
        else:
            if target.__class__ is not int:
                target.callbacks.append(self._resume)
                self._target = target
            else:
                # One event per process is scheduled for all its pauses, with one list of callbacks, which the loop takes away
                # from each event that happens. An interrupt removes this process from that list, and leaves the event in the
                # queue. That event must not be scheduled twice, so a new one with a new list replaces it.
                if not self._pause_callbacks:
                    self._pause, self._pause_callbacks = After(env, NEVER), [self._resume]
                self._target = pause = self._pause
                pause.callbacks = self._pause_callbacks
                if target < _HORIZON:
                    heappush(env._queue, (env._now + target, NORMAL, next(env._eid), pause))
        env._active_proc = None

    def _next_target(self, target: Any) -> Any:
        """Return the event, or number of ns, to wait for; resume the process at once after a past event or an invalid one."""
        while True:
            if isinstance(target, simpy.Event):
                if target.callbacks is not None:
                    return target
                target = self._send(target._value) if target._ok else self._fail(target)
            elif not isinstance(target, Integral):
                instead = ": write `yield from` instead of `yield`" if isgenerator(target) else ""
                instead = ": write `yield gradient.finished`" if hasattr(target, "finished") else instead
                error = TypeError(f"a process yields an event, or a whole number of nanoseconds, not {target!r}{instead}")
                target = self._generator.throw(error)
            elif target < 0:
                target = self._generator.throw(ValueError(f"negative delay {target}"))
            else:
                return int(target)

    def _fail(self, event: simpy.Event) -> Any:
        """Resume the process with the exception of a failed event: with a copy, since each process has its own traceback."""
        event._defused = True
        assert isinstance(event._value, BaseException)
        error = type(event._value)(*event._value.args)
        error.__cause__ = event._value
        return self._generator.throw(error)

    def _end(self, ok: bool, value: Any) -> None:
        self._ok, self._value = ok, value
        self._pause, self._pause_callbacks = None, []  # they refer back to this process
        self._target = None  # type: ignore[assignment]  # as SimPy does for finished processes
        self.env.schedule(self)


class Loop(simpy.Environment):
    """Virtual time in integer nanoseconds; simultaneous events happen in the order in which they were scheduled.

    Example: events happen in the order of scheduling; only `at` comes before everything else of that time.
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
        self.happened = After(self, NEVER)  # already in the past: yielding it resumes at once
        self.happened.callbacks = None  # type: ignore[assignment]  # as in SimPy for past events

    def process(self, generator: Generator[Any, Any, Any]) -> Process:
        """Start a process from a `generator`, which yields events, or numbers of nanoseconds, to wait for them."""
        return Process(self, generator)

    def after(self, delay: int) -> After:
        """Return an event that happens in `delay` nanoseconds."""
        return After(self, delay)

    def later(self, delay: int, action: Callable[[], None]) -> None:
        """Call `action` after `delay` nanoseconds."""
        After(self, delay).callbacks.append(lambda _: action())

    def at(self, time: int, action: Callable[[], None]) -> None:
        """Call `action` at `time` (ns), before anything else that happens then."""
        event = self.event()
        event._ok, event._value = True, None  # as simpy.Environment.run does for its own `until`
        event.callbacks.append(lambda _: action())
        self.schedule(event, URGENT, time - self._now)

    def pause(self, duration: int) -> None:
        """Delay all events by `duration` ns, except later ones that were set with `at`."""
        queue, now = self._queue, self._now
        queue[:] = [
            (time if rank == URGENT and time > now else time + duration, rank, number, event)
            for time, rank, number, event in queue
        ]
        heapify(queue)

    def happen(self, events: int, until: Ends) -> bool:
        """Process up to `events` events, or until `until` is full. Return False if no event is left."""
        queue: list[Any] = self._queue
        for _ in range(events):
            if not queue:
                return False
            self._now, _, _, event = heappop(queue)
            callbacks, event.callbacks = event.callbacks, None
            for callback in callbacks:
                callback(event)
            if not event._ok and not hasattr(event, "_defused"):
                raise event._value  # of a failed process for which no other one waits
            if until.full:
                break
        return True
