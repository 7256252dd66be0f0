"""The event loop against SimPy's own; and the recorder: what its listener is told of, and what is forgotten when."""

import gc
import itertools
import random
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.cluster.network import NOTHING
from fred.protocols.asynchronous import Asynchronous
from fred.schedule.layout import Layout
from fred.schedule.schedule import NONE, Row, Verb
from fred.timing.copies import Copy, Gradient
from fred.timing.loop import Loop
from fred.timing.recorder import Recorder
from tests.worlds import CLUSTERS, COMPUTE, PROTOCOLS, fitting, record

Process = Generator[simpy.Event, Any, Any]
Trace = list[tuple]


class Until:
    """When it is enough."""

    def __init__(self) -> None:
        self.full = False


class World:
    """A random program of processes: the same for the same number, whatever loop it runs in.

    They wait for times, for each other, for events that others make happen, for resources and goods; they interrupt each
    other, start others, and fail.
    """

    def __init__(
        self,
        env: simpy.Environment,
        number: int,
        delay: Callable[[int], simpy.Event],
        pause: Callable[[int], Any] | None = None,
    ):
        self.env, self.delay, self.number = env, delay, number
        self.pause = pause or delay  # what a process waits for that only lets time pass
        self.trace: Trace = []
        rng = random.Random(number)
        self.resource = simpy.Resource(env, capacity=rng.randint(1, 2))
        self.store = simpy.Store(env, capacity=2)
        self.bells = [env.event() for _ in range(6)]
        self.processes = [env.process(self.work(f"{each}", random.Random(f"{number} {each}"))) for each in range(5)]

    def note(self, *what: Any) -> None:
        self.trace.append((self.env.now, *what))

    def work(self, name: str, rng: random.Random) -> Process:
        for step in range(rng.randint(3, 12)):
            action = rng.choice(
                [self.wait, self.wait, self.hold, self.combine, self.ring, self.trade, self.disturb, self.start]
            )
            try:
                value = yield from action(name, rng)
                self.note(name, step, action.__name__, value)
            except simpy.Interrupt as interrupt:
                self.note(name, step, "interrupted", interrupt.cause)
            except (KeyError, ValueError) as error:
                self.note(name, step, type(error).__name__, *error.args)
        return name

    def some(self, rng: random.Random) -> simpy.Event:
        """Something to wait for; that it may never happen, or have happened, is part of the game."""
        return rng.choice([self.delay(rng.randint(0, 4)), self.env.timeout(rng.randint(0, 4), "late"), rng.choice(self.bells)])

    def wait(self, name: str, rng: random.Random) -> Process:
        return (yield self.pause(rng.randint(0, 3)))

    def hold(self, name: str, rng: random.Random) -> Process:
        with self.resource.request() as request:
            yield request
            self.note(name, "holds")
            yield self.pause(rng.randint(0, 3))

    def combine(self, name: str, rng: random.Random) -> Process:
        events = [self.some(rng) for _ in range(rng.randint(1, 3))]
        condition = self.env.any_of([*events, self.delay(6)]) if rng.random() < 0.6 else self.env.all_of(events[:1])
        happened = yield condition
        return [event in happened for event in events]

    def ring(self, name: str, rng: random.Random) -> Process:
        silent = [bell for bell in self.bells if not bell.triggered]
        if silent:
            bell = rng.choice(silent)
            if rng.random() < 0.3:
                bell.fail(ValueError(name))
                bell.defused = True  # somebody may, or may not, be listening
            else:
                bell.succeed(name)
        yield self.pause(0)

    def trade(self, name: str, rng: random.Random) -> Process:
        if rng.random() < 0.5:
            yield self.store.put(name) | self.delay(5)
            return None
        good = self.store.get()
        yield good | self.delay(5)
        return good.value if good.triggered else None

    def disturb(self, name: str, rng: random.Random) -> Process:
        others = [process for process in self.processes if process.is_alive and process is not self.env.active_process]
        if others:
            rng.choice(others).interrupt(name)
        yield self.pause(rng.randint(0, 1))

    def start(self, name: str, rng: random.Random) -> Process:
        return (yield self.env.process(self.child(f"{name}.", rng.random(), rng.randint(0, 3))))

    def child(self, name: str, luck: float, delay: int) -> Process:
        yield self.pause(delay)
        self.note(name, "done")
        if luck < 0.3:
            raise KeyError(name)
        return luck


def in_simpy(number: int) -> tuple[Trace, BaseException | None]:
    """Return the events in SimPy's own environment, with its own timeouts, and the error that ends it."""
    env = simpy.Environment()
    world = World(env, number, env.timeout)
    try:
        env.run()
    except Exception as error:
        return world.trace, error
    return world.trace, None


def in_loop(number: int, chunk: int) -> tuple[Trace, BaseException | None]:
    """Return the events in the loop, in chunks; some delays are SimPy's own timeouts, some pauses numbers."""
    loop, until = Loop(), Until()
    kinds: Iterator[Callable[[int], simpy.Event]] = itertools.cycle([loop.after, loop.after, loop.timeout])
    pauses: Iterator[Callable[[int], Any]] = itertools.cycle([int, int, loop.after, np.int64])
    world = World(loop, number, lambda delay: next(kinds)(delay), lambda delay: next(pauses)(delay))
    try:
        while loop.happen(chunk, until):
            pass
    except Exception as error:
        return world.trace, error
    return world.trace, None


@settings(max_examples=150)
@given(number=st.integers(0, 10**6), chunk=st.sampled_from([1, 3, 1000]))
def test_random_programs_do_the_same_as_in_simpy(number, chunk):
    expected, wrong = in_simpy(number)
    found, error = in_loop(number, chunk)
    assert found == expected
    assert (type(error), str(error)) == (type(wrong), str(wrong))


def test_random_programs_do_a_little_of_everything():
    traces = [in_simpy(number)[0] for number in range(100)]
    words = {word for trace in traces for event in trace for word in event if isinstance(word, str)}
    assert {"wait", "hold", "combine", "ring", "trade", "disturb", "start", "interrupted", "KeyError"} <= words
    assert sum(map(len, traces)) > 2000
    assert any(in_simpy(number)[1] for number in range(100)), "some end with an error that nobody waits for"


def drained(loop: Loop) -> None:
    while loop.happen(100, Until()):
        pass


KINDS = ("later", "process", "process")  # what each delay makes happen


class TestLoop:
    def test_an_error_that_nobody_waits_for_comes_out(self):
        loop = Loop()

        def fails() -> Process:
            yield loop.after(3)
            raise KeyError("this one")

        loop.process(fails())
        with pytest.raises(KeyError, match="this one"):
            drained(loop)
        assert loop.now == 3

    def test_a_number_below_zero_is_no_time_to_wait(self):
        loop = Loop()

        def waits() -> Generator[int, Any, None]:
            yield -1

        loop.process(waits())
        with pytest.raises(ValueError, match="negative delay -1"):
            drained(loop)

    @pytest.mark.parametrize("wrong", [-1, -3.0, "5", None, 2.5])
    def test_what_cannot_be_waited_for_is_told_where_it_was_yielded(self, wrong):
        loop, heard = Loop(), list[str]()

        def waits() -> Generator[Any, Any, None]:
            try:
                yield wrong
            except (TypeError, ValueError) as error:
                heard.append(str(error))
            yield 4

        loop.process(waits())
        drained(loop)
        assert loop.now == 4
        assert heard == [
            "negative delay -1"
            if wrong == -1
            else f"a process yields an event, or a whole number of nanoseconds, not {wrong!r}"
        ]

    def test_a_pause_that_was_interrupted_wakes_nobody(self):
        loop, woken = Loop(), []

        def waits() -> Generator[int, Any, None]:
            try:
                yield 10
            except simpy.Interrupt:
                woken.append(loop.now)
            yield 3
            woken.append(loop.now)
            yield 100
            woken.append(loop.now)

        process = loop.process(waits())
        loop.later(5, process.interrupt)
        drained(loop)
        assert woken == [5, 8, 108]

    def test_an_error_that_somebody_waits_for_is_theirs(self):
        loop, caught = Loop(), []

        def fails() -> Process:
            yield loop.after(3)
            raise KeyError("this one")

        def waits() -> Process:
            try:
                yield loop.process(fails())
            except KeyError as error:
                caught.append((loop.now, error.args))

        loop.process(waits())
        drained(loop)
        assert caught == [(3, ("this one",))]

    def test_an_event_that_fails_is_an_error_unless_it_is_defused(self):
        for defused in (True, False):
            loop = Loop()
            event = loop.event()
            event.fail(ValueError("nobody listens"))
            if defused:
                event.defused = True
                drained(loop)
            else:
                with pytest.raises(ValueError, match="nobody listens"):
                    drained(loop)

    @given(st.lists(st.tuples(st.sampled_from(["after", "timeout", "later"]), st.integers(0, 5)), max_size=20))
    def test_what_is_due_at_one_time_happens_in_the_order_in_which_it_was_made(self, made):
        loop, happened = Loop(), list[tuple]()

        def happen(number: int, *_: simpy.Event) -> None:
            happened.append((loop.now, number))

        for number, (how, delay) in enumerate(made):
            if how == "later":
                loop.later(delay, partial(happen, number))
            else:
                event = loop.after(delay) if how == "after" else loop.timeout(delay)
                assert event.callbacks is not None
                event.callbacks.append(partial(happen, number))
        drained(loop)
        assert happened == sorted((delay, number) for number, (_, delay) in enumerate(made))

    @given(st.lists(st.integers(0, 6), max_size=12), st.integers(1, 6), st.booleans())
    def test_at_comes_before_everything_else_at_its_time(self, delays, time, first):
        """Before what was made earlier, and before what processes do then."""
        loop, happened = Loop(), list[tuple]()

        def note(what: str) -> None:
            happened.append((loop.now, what))

        def work(delay: int) -> Process:
            yield loop.after(delay)
            note("process")
            yield loop.after(0)
            note("process")

        if first:
            loop.at(time, partial(note, "at"))
        for delay in delays:
            loop.later(delay, partial(note, "later"))
            loop.process(work(delay))
        if not first:
            loop.at(time, partial(note, "at"))
        drained(loop)
        assert sorted(happened) == sorted([(time, "at")] + [(delay, what) for delay in delays for what in KINDS])
        assert [when for when, _ in happened] == sorted(when for when, _ in happened)
        assert happened.index((time, "at")) == sum(when < time for when, _ in happened)

    def test_two_ats_at_one_time_happen_in_the_order_in_which_they_were_made(self):
        loop, happened = Loop(), list[int]()
        for number in range(5):
            loop.at(7 - number % 2, partial(happened.append, number))
        drained(loop)
        assert happened == [1, 3, 0, 2, 4]

    def test_at_is_counted_from_the_beginning_and_later_from_now(self):
        loop, happened = Loop(), list[tuple]()

        def start() -> None:
            loop.at(9, lambda: happened.append(("at", loop.now)))
            loop.later(9, lambda: happened.append(("later", loop.now)))

        loop.later(5, start)
        drained(loop)
        assert happened == [("at", 9), ("later", 14)]

    def test_it_stops_after_the_event_that_fills_and_says_whether_anything_is_left(self):
        loop, until, happened = Loop(), Until(), list[int]()

        def action(number: int) -> None:
            happened.append(number)
            until.full = number == 2

        for number in range(5):
            loop.later(number // 2, partial(action, number))
        assert loop.happen(100, until)
        assert (happened, loop.now) == ([0, 1, 2], 1), "3 would have happened at the same time"
        until.full = False
        assert loop.happen(1, until)
        assert happened == [0, 1, 2, 3]
        assert not loop.happen(100, until), "after the last one nothing is left"
        assert happened == [0, 1, 2, 3, 4]
        assert not loop.happen(1, until)


class Log:
    """A listener that writes down what it hears."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.mailboxes: list[int] = []  # forgotten
        self.gradients: list[tuple[int, ...]] = []  # forgotten

    def execute(self, row: Row) -> None:
        self.rows.append(row)

    def forget_mailbox(self, mailbox: int) -> None:
        self.mailboxes.append(mailbox)

    def forget_message(self, key: tuple[int, ...]) -> None:
        self.gradients.append(key)

    def statistic(self, cell: int) -> float:
        return 0.05


class Strict(Log):
    """One that is not to be told of what it was to forget."""

    def __init__(self) -> None:
        super().__init__()
        self.written: set[int] = set()  # mailboxes
        self.used: set[tuple[int, int]] = set()  # gradients
        self.most_held = 0  # mailboxes at a time

    def execute(self, row: Row) -> None:
        if row.verb in (Verb.PULL, Verb.MIX):
            self.written.add(row.mailbox)
        read = {row.source} if row.verb == Verb.MIX else {row.mailbox, row.source}
        if row.verb not in (Verb.PULL, Verb.COMMIT):
            assert read - {NONE} <= self.written - set(self.mailboxes), "a mailbox is read that nobody holds"
        if row.verb in (Verb.PUSH, Verb.ADD) and row.step != NONE:
            assert (row.worker, row.step) not in self.gradients, "a gradient is used that nobody holds"
            self.used.add((row.worker, row.step))
        self.most_held = max(self.most_held, len(self.written) - len(self.mailboxes))


def recorder(blocks: int = 1, workers: int = 2, **options: Any) -> tuple[Recorder, Log]:
    log = Log()
    return Recorder(workers, Layout.central(blocks), listener=log, **options), log


def pulled(record: Recorder, now: int = 0, worker: int = 0, block: int = 0) -> Copy:
    return record.pull(now, worker, 0, block, 0, now + 5, 100, 1)


def begun(record: Recorder, copy: Copy, worker: int = 0, step: int = 0) -> Gradient:
    gradient = Gradient(worker, step, copy, 10, 20)
    record.watch(gradient)
    return gradient


class TestForgetting:
    def test_a_copy_that_nobody_holds_is_forgotten_at_once(self):
        record, log = recorder()
        first, second = pulled(record), pulled(record)
        assert (first.mailbox, second.mailbox, log.mailboxes) == (0, 1, [])
        del second
        assert log.mailboxes == [1]
        del first
        assert log.mailboxes == [1, 0]

    def test_a_gradient_holds_its_copy(self):
        record, log = recorder()
        gradient = begun(record, pulled(record), step=7)
        assert not log.mailboxes
        record.push(30, gradient, 0, 0, 100, 1)
        assert log.gradients == [], "it may be used again"
        del gradient
        assert (log.mailboxes, log.gradients) == ([0], [(0, 7)])

    def test_a_round_holds_what_joined_it_until_it_is_closed(self):
        record, log = recorder()
        for worker in range(2):
            record.add(30, begun(record, pulled(record), worker), 0, 0, 1.0, 100, 1)
        assert not log.gradients
        assert not log.mailboxes
        record.commit(30, 0, 0, None)
        assert sorted(log.gradients) == [(0, 0), (1, 0)]
        assert sorted(log.mailboxes) == [0, 1]

    def test_a_mix_outlives_what_it_was_made_of(self):
        record, log = recorder()
        copies = [pulled(record), pulled(record)]
        mixed = record.mix(1, 0, [(copies[0], 0.25), (copies[1], 0.75)], 0)
        composed = record.compose(2, 0, [mixed])
        copies.clear()
        assert sorted(log.mailboxes) == [0, 1]
        assert (mixed.mailbox, composed.mailbox) == (2, 3)
        del mixed
        assert sorted(log.mailboxes) == [0, 1, 2]
        del composed
        assert sorted(log.mailboxes) == [0, 1, 2, 3]

    def test_nothing_is_told_where_nobody_listens(self):
        record = Recorder(2, Layout.central())
        gradient = begun(record, pulled(record))
        record.push(30, gradient, 0, 0, 100, 1)
        del gradient
        assert len(record) == 2

    @pytest.mark.slow
    @settings(max_examples=8)
    @given(protocol=PROTOCOLS, cluster=CLUSTERS, seed=st.integers(0, 99))
    def test_no_protocol_uses_what_it_has_let_go_and_all_is_let_go_in_the_end(self, protocol, cluster, seed):
        protocol, log = fitting(protocol, cluster), Strict()
        record(protocol, cluster, gradients=40, seed=seed, listener=log)
        gc.collect()
        assert log.written <= set(log.mailboxes)
        assert log.used <= set(log.gradients)
        assert len(log.mailboxes) == len(set(log.mailboxes)), "each once"
        assert len(log.gradients) == len(set(log.gradients))

    def test_an_asynchronous_run_holds_one_copy_and_one_gradient_for_each_worker(self):
        """One more while a worker turns from one to the next."""
        cluster, log = Cluster(workers=5, compute=COMPUTE), Strict()
        record(Asynchronous(), cluster, gradients=300, listener=log)
        assert len(log.written) >= 300
        assert log.most_held in (5, 6)
        assert 300 - 6 <= len(log.gradients) <= 300


class TestTelling:
    @given(protocol=PROTOCOLS, cluster=CLUSTERS, seed=st.integers(0, 99))
    def test_the_listener_hears_the_rows_of_the_schedule_and_no_others(self, protocol, cluster, seed):
        protocol, log = fitting(protocol, cluster), Log()
        schedule = record(protocol, cluster, gradients=30, seed=seed, listener=log)
        assert log.rows == list(schedule)

    @pytest.mark.parametrize(("limit", "wanted"), [("updates", 2), ("gradients", 2), ("rows", 4)])
    def test_a_full_recorder_tells_nothing_more(self, limit, wanted):
        """Of a pull, two pushes (and a drop before the second), a push too many and everything else there is."""
        record, log = recorder(**{limit: wanted})
        copy = pulled(record)
        gradients = [begun(record, copy, step=step) for step in range(4)]
        record.steps[0] = 3
        record.push(30, gradients[0], 0, 0, 100, 1)
        record.drop(31, gradients[1], 0, 0, 100, 1)
        assert not record.full
        record.push(32, gradients[2], 0, 0, 100, 1)
        assert record.full
        record.steps[0] = 4
        told = list(log.rows)
        assert [row.verb for row in told] == [Verb.PULL, Verb.PUSH, Verb.DROP, Verb.PUSH]
        record.push(33, gradients[3], 0, 0, 100, 1)
        record.add(34, gradients[3], 0, 0, 0.5, 100, 1)
        record.commit(34, 0, 0, None)
        record.drop(34, gradients[3], 0, 0, 100, 1)
        late = pulled(record)
        record.sync(35, 0, 0, 0, record.mix(35, 0, [(late, 0.5)], 0), 0.5, 0.5, 0, 0)
        record.compose(35, 0, [late])
        assert log.rows == told
        schedule = record.schedule(40)
        assert list(schedule) == told
        assert (schedule.started, schedule.end_ns) == (3, 40)

    def test_a_stop_is_where_it_was_first_said(self):
        record, log = recorder()
        copy = pulled(record)
        record.stop()
        record.push(30, begun(record, copy), 0, 0, 100, 1)
        record.stop()
        assert len(record.schedule(30)) == len(log.rows) == 1

    def test_weights_are_told_and_written(self):
        record, log = recorder()
        copies = [pulled(record), pulled(record)]
        gradients = [begun(record, copy, step=step) for step, copy in enumerate([*copies, copies[0]])]
        record.add(30, gradients[0], 0, 0, 0.5, 0, 0)
        record.add(30, gradients[1], 0, 0, 1.0, 0, 0)
        record.commit(30, 0, 0, None)
        record.commit(31, 0, 0, None)
        record.commit(32, 0, 0, 3.0)
        mixed = record.mix(33, 0, [(copies[0], 0.25), (copies[1], 1.0)], 0)
        record.sync(34, 0, 0, 0, mixed, 0.75, 0.125, 0, 0)
        record.push(35, gradients[2], 0, 0, 0, 0)
        weights = [(1, 0), (1, 0), (0.5, 0), (1, 0), (0.5, 0), (1, 0), (3, 0), (0.25, 0), (1, 0), (0.125, 0.75), (1, 0)]
        assert [(row.weight, row.keep) for row in log.rows] == weights
        schedule = record.schedule(40)
        assert list(zip(schedule["weight"], schedule["keep"], strict=True)) == weights
        assert schedule["staleness"].tolist() == [0] * 10 + [4], "three commits and a sync since the pull"
        assert (record.updates, record.gradients) == (4, 3)

    def test_a_round_that_never_ends_is_refused(self):
        record, _ = recorder()
        gradient = begun(record, pulled(record))
        for _ in range(1021):
            record.add(30, gradient, 0, 0, 1.0, 0, 0)
        with pytest.raises(FredError, match="must call `commit`"):
            record.schedule(30)


class TestComposing:
    def test_it_writes_one_mix_for_each_block(self):
        record, log = recorder(blocks=3)
        old = [pulled(record, block=block) for block in range(3)]
        first = record.compose(6, 1, old)
        record.push(30, begun(record, first), 0, 1, 100, 1)
        fresh = pulled(record, 31, 1, block=1)
        second = record.compose(40, 1, [first, fresh, old[2]])
        mixes = [row for row in log.rows if row.verb == Verb.MIX]
        told = [(row.time_ns, row.worker, row.block, row.mailbox, row.source, row.timestamp, row.weight) for row in mixes]
        assert told == [
            (6, 1, 0, 3, 0, 0, 1.0),
            (6, 1, 1, 3, 1, 0, 1.0),
            (6, 1, 2, 3, 2, 0, 1.0),
            (40, 1, 0, 5, 3, 0, 1.0),
            (40, 1, 1, 5, 4, 1, 1.0),
            (40, 1, 2, 5, 2, 0, 1.0),
        ]
        assert {(row.bytes, row.messages, row.replica, row.step) for row in mixes} == {(0, 0, NONE, NONE)}
        assert (second.timestamp, [second.at(block) for block in range(3)]) == (0, [0, 1, 0])

    def test_staleness_is_by_block(self):
        record, log = recorder(blocks=2)
        model = record.compose(0, 0, [pulled(record, block=block) for block in range(2)])
        other = begun(record, model, step=1)
        for _ in range(3):
            record.push(30, begun(record, model), 0, 1, 100, 1)
        for block in range(2):
            record.push(31, other, 0, block, 100, 1)
        assert [(row.block, row.staleness) for row in log.rows[-5:]] == [(1, 0), (1, 1), (1, 2), (0, 0), (1, 3)]
        assert (record.clocks, record.changes, record.updates) == ([1, 4], 5, 2)

    def test_a_difference_is_as_old_as_what_it_started_from(self):
        record, log = recorder()
        before = pulled(record)
        record.push(30, begun(record, before), 0, 0, NOTHING.bytes, NOTHING.messages)
        after = pulled(record, 31)
        pseudo_gradient = Gradient(1, NONE, after, 32, 32, source=before)
        record.add(32, pseudo_gradient, 0, 0, 1.0, 8, 1)
        record.commit(32, 0, 0, None)
        row = log.rows[-2]
        assert (row.mailbox, row.source, row.step, row.timestamp, row.staleness) == (1, 0, NONE, 0, 1)
        assert record.gradients == 1, "it is no gradient"


def test_a_forgotten_from_is_said():
    loop, heard = Loop(), list[str]()

    def inner() -> Generator[Any, Any, None]:
        yield 1

    def outer() -> Generator[Any, Any, None]:
        try:
            yield inner()
        except TypeError as error:
            heard.append(str(error))
        yield 1

    loop.process(outer())
    drained(loop)
    assert heard[0].endswith("write `yield from` instead of `yield`")
