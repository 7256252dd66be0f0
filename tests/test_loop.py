"""The event loop against SimPy's; and the recorder: the rows that its listener receives, and the time of each release."""

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

from fred import Cluster, Copy, FredError, Gradient, Layout, Recorder, Simulation, Verb
from fred.protocols.asynchronous import Asynchronous
from fred.replay.interpreter import Interpreter
from fred.running.execution import execute
from fred.schedule.schedule import NONE, Row
from fred.timing.loop import Loop
from tests.worlds import CLUSTERS, COMPUTE, PROTOCOLS, fitting_protocol, make_run, record

Process = Generator[Any, Any, Any]
Trace = list[tuple]


class Until:
    full = False


class World:
    """A random program of processes that wait for all there is, interrupt and start each other, and fail; whatever the loop."""

    def __init__(self, env: simpy.Environment, number: int, delay: Callable[[int], simpy.Event], pause: Any = None):
        self.env, self.delay, self.trace = env, delay, Trace()
        self.pause = pause or delay  # what a process waits for that only lets time pass
        self.resource = simpy.Resource(env, capacity=random.Random(number).randint(1, 2))
        self.bells = [env.event() for _ in range(6)]
        self.processes = [env.process(self.work(f"{name}", random.Random(f"{number} {name}"))) for name in range(5)]

    def note(self, *entry: Any) -> None:
        self.trace.append((self.env.now, *entry))

    def work(self, name: str, rng: random.Random) -> Process:
        for step in range(rng.randint(3, 12)):
            action = rng.choice([self.wait, self.wait, self.hold, self.combine, self.ring, self.disturb, self.start])
            try:
                self.note(name, step, action.__name__, (yield from action(name, rng)))
            except simpy.Interrupt as interrupt:
                self.note(name, step, "interrupted", interrupt.cause)
            except (KeyError, ValueError) as error:
                self.note(name, step, type(error).__name__, *error.args)
        return name

    def draw_event(self, rng: random.Random) -> simpy.Event:
        return rng.choice([self.delay(rng.randint(0, 4)), self.env.timeout(rng.randint(0, 4), "late"), rng.choice(self.bells)])

    def wait(self, name: str, rng: random.Random) -> Process:
        return (yield self.pause(rng.randint(0, 3)))

    def hold(self, name: str, rng: random.Random) -> Process:
        with self.resource.request() as request:
            yield request
            self.note(name, "holds")
            yield self.pause(rng.randint(0, 3))

    def combine(self, name: str, rng: random.Random) -> Process:
        events = [self.draw_event(rng) for _ in range(rng.randint(1, 3))]
        condition = self.env.any_of([*events, self.delay(6)]) if rng.random() < 0.6 else self.env.all_of(events[:1])
        happened = yield condition
        return [event in happened for event in events]

    def ring(self, name: str, rng: random.Random) -> Process:
        if silent := [bell for bell in self.bells if not bell.triggered]:
            bell = rng.choice(silent)
            if rng.random() < 0.3:
                bell.fail(ValueError(name))
                bell.defused = True  # somebody may, or may not, be listening
            else:
                bell.succeed(name)
        yield self.pause(0)

    def disturb(self, name: str, rng: random.Random) -> Process:
        if processes := [process for process in self.processes if process.is_alive and process is not self.env.active_process]:
            rng.choice(processes).interrupt(name)
        yield self.pause(rng.randint(0, 1))

    def start(self, name: str, rng: random.Random) -> Process:
        return (yield self.env.process(self.child(f"{name}.", rng.random(), rng.randint(0, 3))))

    def child(self, name: str, luck: float, delay: int) -> Process:
        yield self.pause(delay)
        self.note(name, "done")
        if luck < 0.3:
            raise KeyError(name)
        return luck


def run_traced(world: World, run: Callable[[], object]) -> tuple[Trace, str]:
    try:
        run()
    except Exception as error:
        return world.trace, repr(error)
    return world.trace, ""


def run_in_simpy(number: int) -> tuple[Trace, str]:
    env = simpy.Environment()
    return run_traced(World(env, number, env.timeout), env.run)


def run_in_loop(number: int, chunk: int) -> tuple[Trace, str]:
    loop = Loop()
    kinds: Iterator[Callable[[int], simpy.Event]] = itertools.cycle([loop.after, loop.after, loop.timeout])
    pauses: Iterator[Callable[[int], Any]] = itertools.cycle([int, int, loop.after, np.int64])
    world = World(loop, number, lambda delay: next(kinds)(delay), lambda delay: next(pauses)(delay))
    return run_traced(world, lambda: drain(loop, chunk))


def drain(loop: Loop, chunk: int = 100) -> None:
    while loop.happen(chunk, Until()):
        pass


@settings(max_examples=150)
@given(number=st.integers(0, 10**6), chunk=st.sampled_from([1, 3, 1000]))
def test_random_programs_do_the_same_as_in_simpy(number, chunk):
    assert run_in_loop(number, chunk) == run_in_simpy(number)


class TestLoop:
    def test_values_that_cannot_be_waited_for_are_refused_where_they_are_yielded(self):
        def work(value: Any, messages: list[str]) -> Process:
            try:
                yield value
            except (TypeError, ValueError) as error:
                messages.append(str(error))
            yield 4

        generator = work(1, [])
        hint = f"{generator!r}: write `yield from` instead of `yield`"
        message = "a process yields an event, or a whole number of nanoseconds, not"
        for value, text in ((-1, ""), (-3.0, "-3.0"), ("5", "'5'"), (None, "None"), (2.5, "2.5"), (generator, hint)):
            loop, messages = Loop(), list[str]()
            loop.process(work(value, messages))
            drain(loop)
            assert (loop.now, messages) == (4, [f"{message} {text}" if text else "negative delay -1"])
        with pytest.raises(ValueError, match="negative delay -1"):
            Loop().after(-1)

    @given(st.lists(st.tuples(st.sampled_from(["at", "after", "timeout", "later", "process"]), st.integers(0, 5)), max_size=20))
    def test_events_of_one_time_happen_in_the_order_in_which_they_were_made_and_at_comes_first(self, events):
        """All are made at 2 ns, from which delays count; `at` counts from 0."""
        loop, happened = Loop(), list[tuple]()
        ranks = {"at": 0, "process": 2}  # what processes do is scheduled when they start

        def note(number: int, *_: Any) -> None:
            happened.append((loop.now, ranks.get(events[number][0], 1), number))

        def work(number: int, delay: int) -> Process:
            yield delay
            note(number)
            yield loop.after(0)
            happened.append((loop.now, 3, number))

        def make() -> None:
            for number, (kind, delay) in enumerate(events):
                if kind == "at":
                    loop.at(2 + delay, partial(note, number))
                elif kind == "later":
                    loop.later(delay, partial(note, number))
                elif kind == "process":
                    loop.process(work(number, delay))
                else:
                    getattr(loop, kind)(delay).callbacks.append(partial(note, number))

        loop.later(2, make)
        drain(loop)
        expected = [(2 + delay, ranks.get(kind, 1), number) for number, (kind, delay) in enumerate(events)]
        expected += [(time, 3, number) for time, rank, number in expected if rank == 2]
        assert happened == sorted(expected)

    def test_it_stops_after_the_event_that_fills_and_returns_whether_anything_is_left(self):
        loop, until, happened = Loop(), Until(), list[int]()

        def action(number: int) -> None:
            happened.append(number)
            until.full = number == 2

        for number in range(5):
            loop.later(number // 2, partial(action, number))
        assert loop.happen(100, until)
        assert (happened, loop.now) == ([0, 1, 2], 1), "3 would have happened at the same time"
        until.full = False
        assert loop.happen(1, until) and happened == [0, 1, 2, 3]
        assert not loop.happen(100, until), "after the last one nothing is left"
        assert happened == [0, 1, 2, 3, 4] and not loop.happen(1, until)


class Log:
    """A listener that stores all rows, and refuses those that use a released message."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.held, self.most_held = set[int](), 0  # mailboxes that were written and not forgotten
        self.used = set[tuple[int, ...]]()  # gradients
        self.mailboxes, self.gradients = list[int](), list[tuple[int, ...]]()  # forgotten
        self.unheld = set[tuple[int, ...]]()  # the same gradients

    def execute(self, row: Row) -> None:
        self.rows.append(row)
        if row.verb in (Verb.PULL, Verb.MIX):
            self.held.add(row.mailbox)
        read = {row.source} if row.verb == Verb.MIX else {row.mailbox, row.source}
        if row.verb not in (Verb.PULL, Verb.COMMIT):
            assert read - {NONE} <= self.held, "a mailbox is read that nobody holds"
        if row.verb in (Verb.PUSH, Verb.ADD) and row.step != NONE:
            assert (row.worker, row.step) not in self.unheld, "a gradient is used that nobody holds"
            self.used.add((row.worker, row.step))
        self.most_held = max(self.most_held, len(self.held))

    def forget_mailbox(self, mailbox: int) -> None:
        self.held.discard(mailbox)  # those written after the end are not told
        self.mailboxes.append(mailbox)

    def forget_message(self, key: tuple[int, ...]) -> None:
        self.gradients.append(key)
        self.unheld.add(key)

    def statistic(self, cell: int) -> float:
        return 0.05


def recorder(blocks: int = 1, workers: int = 2, **options: Any) -> tuple[Recorder, Log]:
    log = Log()
    return Recorder(workers, Layout.central(blocks), listener=log, **options), log


def pull(record: Recorder, now: int = 0, worker: int = 0, block: int = 0) -> Copy:
    return record.pull(now, worker, 0, block, 0, now + 5, 100, 1)


def begin_gradient(record: Recorder, copy: Copy, worker: int = 0, step: int = 0) -> Gradient:
    gradient = Gradient(worker, step, copy, 10, 20)
    record.watch(gradient)
    return gradient


class TestForgetting:
    def test_a_copy_that_nobody_holds_is_forgotten_at_once_and_a_gradient_holds_its_own(self):
        record, log = recorder()
        first, second = pull(record), pull(record)
        assert (first.mailbox, second.mailbox, log.mailboxes) == (0, 1, [])
        del second
        assert log.mailboxes == [1]
        gradient = begin_gradient(record, first, step=7)
        del first
        assert log.mailboxes == [1]
        record.push(30, gradient, 0, 0, 100, 1)
        assert log.gradients == [], "it may be used again"
        del gradient
        assert (log.mailboxes, log.gradients) == ([1, 0], [(0, 7)])

    @given(protocol=PROTOCOLS, cluster=CLUSTERS, seed=st.integers(0, 99))
    @pytest.mark.slow
    def test_the_listener_hears_the_rows_of_the_schedule_and_no_protocol_uses_what_it_has_let_go(self, protocol, cluster, seed):
        protocol, log = fitting_protocol(protocol, cluster), Log()
        schedule = record(protocol, cluster, gradients=40, seed=seed, listener=log)
        ends = [row.end_ns for row in log.rows]  # of reads, unknown when links are shared
        assert log.rows == [row._replace(end_ns=max(end, row.end_ns)) for row, end in zip(schedule, ends, strict=True)]
        gc.collect()
        assert not log.held
        assert log.used <= set(log.gradients)
        for forgotten in (log.mailboxes, log.gradients):
            assert len(forgotten) == len(set(forgotten)), "each once"

    def test_an_asynchronous_run_holds_one_copy_and_one_gradient_for_each_worker(self):
        """One more while a worker turns from one to the next."""
        cluster, log = Cluster(workers=5, compute=COMPUTE), Log()
        record(Asynchronous(), cluster, gradients=300, listener=log)
        assert len(log.mailboxes) + len(log.held) >= 300 and log.most_held in (5, 6)
        assert 300 - 6 <= len(log.gradients) <= 300

    def test_so_does_the_interpreter(self, monkeypatch):
        sizes, execute_row = list[tuple[int, int]](), Interpreter.execute

        def noted(self: Interpreter, row: Row) -> None:
            sizes.append((len(self.memory.mailboxes), len(self.memory.messages)))
            execute_row(self, row)

        monkeypatch.setattr(Interpreter, "execute", noted)
        execute("run", make_run(), 1, inline=True)
        assert len(sizes) > 100 and max(map(max, sizes)) <= 5, "of four workers"


class TestRows:
    @pytest.mark.parametrize(("limit", "bound"), [("updates", 2), ("gradients", 2), ("rows", 4)])
    def test_a_full_recorder_writes_nothing_more(self, limit, bound):
        """The recorder gets a pull, two pushes (a drop before the second), a push too many and every other verb."""
        record, log = recorder(**{limit: bound})
        copy = pull(record)
        gradients = [begin_gradient(record, copy, step=step) for step in range(4)]
        record.steps[0] = 3
        record.push(30, gradients[0], 0, 0, 100, 1)
        record.drop(31, gradients[1], 0, 0, 100, 1)
        assert not record.full
        record.push(32, gradients[2], 0, 0, 100, 1)
        assert record.full
        record.steps[0] = 4
        rows = list(log.rows)
        assert [row.verb for row in rows] == [Verb.PULL, Verb.PUSH, Verb.DROP, Verb.PUSH]
        record.push(33, gradients[3], 0, 0, 100, 1)
        record.add(34, gradients[3], 0, 0, 0.5, 100, 1, 1.0)
        record.commit(34, 0, 0, None)
        record.drop(34, gradients[3], 0, 0, 100, 1)
        late = pull(record)
        record.sync(35, 0, 0, 0, record.mix(35, 0, [(late, 0.5)], 0), 0.5, 0.5, 0, 0)
        record.compose(35, 0, [late])
        record.stop()  # counts only where it was first called
        schedule = record.schedule(40)
        assert log.rows == list(schedule) == rows
        assert (schedule.started, schedule.end_ns) == (3, 40)

    def test_weights_are_written_and_count(self):
        record, log = recorder()
        copies = [pull(record), pull(record)]
        gradients = [begin_gradient(record, copy, step=step) for step, copy in enumerate([*copies, copies[0]])]
        record.add(30, gradients[0], 0, 0, 0.5, 0, 0, 1.0)
        record.add(30, gradients[1], 0, 0, 1.0, 0, 0, 1.0)
        for now, weight in ((30, None), (31, None), (32, 3.0)):
            record.commit(now, 0, 0, weight)
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
        gradient = begin_gradient(record, pull(record))
        for _ in range(1021):
            record.add(30, gradient, 0, 0, 1.0, 0, 0, 1.0)
        with pytest.raises(FredError, match=r"1,021 gradients were added to a round.* must call `commit`"):
            record.schedule(30)


def test_simulations_have_so_few_attributes_that_cpython_looks_them_up_fast():
    """An object with more than 30 does not share the names with its class: recordings took a twentieth longer."""
    sim = Simulation(Cluster(workers=2), Recorder(2, Layout.central()), seed=0)
    assert max(len(vars(sim)), len(vars(sim.record))) <= 30
