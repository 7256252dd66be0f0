"""One replay by several processes: the plan by itself, the bits, and processes that end."""

import gc
import itertools
import os
import signal
import subprocess
import sys
import time
import weakref
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.components import agreement, registry
from fred.protocols.local_steps import LocalSteps
from fred.replay import helpers
from fred.replay.division import plan_of
from fred.replay.hooks import Hooks
from fred.replay.lower import lower
from fred.replay.machine import Loop, Mark
from fred.replay.phases import Kind, Op
from fred.replay.tasks import MESSAGES, START, tasks_of
from fred.running import trained, work
from fred.running.checkpoints import Checkpoint, Following
from fred.running.execution import execute
from fred.running.timings import Timings
from fred.running.unit import Unit
from tests.cases import CASES, SEED
from tests.processes import children
from tests.together import Together
from tests.worlds import COMPUTE, LAYERS, fitting, make_run, record, same

CLUSTER = Cluster(workers=8, compute=COMPUTE, servers=1)
_APART = Hooks(apart=True)
REPLAYED = [case for case in CASES if case.run.task is not None and not case.run.protocol.needs_values]
FEW = [
    case for case in REPLAYED if case.name in ("asgd", "ssgd", "local-sgd", "ad-psgd", "diloco", "psp-sgd", "top-k", "easgd")
]


def plans(processes):
    """Yield the plan of a short run of each protocol."""
    for name in sorted(registry.REGISTRY["protocol"]):
        protocol = fitting(name, CLUSTER)
        if not protocol.needs_values:
            schedule = record(protocol, CLUSTER, gradients=60)
            program = lower(schedule, np.array([0, len(schedule) // 2, len(schedule)]), (0,) * schedule.blocks, _APART)
            yield name, plan_of(tasks_of(program, schedule.blocks, _APART), processes)


class Doing:
    """The tasks of a plan, done in a random order that its values and slots permit."""

    def __init__(self, plan, rng):
        self.plan, self.rng = plan, rng
        self.there: list[set[int]] = [set() for _ in plan.own]  # values in each process
        self.written, self.copied = {}, {}  # the value in each slot; the one that each process has copied
        for value, maker in enumerate(plan.tasks.maker):
            if maker == START:
                self.publish(0, value)

    def slot(self, value):
        return self.plan.tasks.shapes[value], self.plan.crossings[value].slot

    def publish(self, own, value):
        self.there[own].add(value)
        if value in self.plan.crossings:
            self.written[self.slot(value)] = value

    def free(self, value):
        before = self.plan.crossings[value].before if value in self.plan.crossings else None
        readers = () if before is None else self.plan.crossings[before].readers
        return all(self.copied.get((self.slot(value), reader)) == before for reader in readers)

    def known(self, own, value):
        if value in self.there[own]:
            return True
        crosses = value in self.plan.crossings and own in self.plan.crossings[value].readers
        return crosses and self.written.get(self.slot(value)) == value

    def possible(self, own, number):
        task = self.plan.tasks.tasks[number]
        return all(self.known(own, value) for value in task.reads) and all(map(self.free, task.writes))

    def one(self, waiting):
        """Do one task, of the first eight of each process; return False if none is possible."""
        found = [(own, n) for own, mine in enumerate(waiting) for n in mine[:8] if self.possible(own, n)]
        if not found:
            return False
        own, number = found[self.rng.integers(len(found))]
        for value in self.plan.tasks.tasks[number].reads:
            if value not in self.there[own]:
                self.copied[self.slot(value), own] = value
                self.there[own].add(value)
        for value in self.plan.tasks.tasks[number].writes:
            self.publish(own, value)
        waiting[own].remove(number)
        return True


@pytest.mark.parametrize("processes", [1, 2, 3, 8])
def test_no_plan_stands_still_in_any_order(processes):
    for name, plan in plans(processes):
        doing, waiting = Doing(plan, np.random.default_rng(0)), [list(own) for own in plan.own]
        while any(waiting):
            assert doing.one(waiting), name


@pytest.mark.parametrize("processes", [1, 2, 3, 8])
def test_marks_are_reached_in_order(processes):
    """Also the last, which needs no gradients in flight, and whatever else is done first."""
    for name, plan in plans(processes):
        marks = list(plan.tasks.points)
        assert [number for number in plan.own[0] if number in plan.tasks.points] == marks, name
        for before, mark in itertools.pairwise(marks):
            assert set(plan.tasks.tasks[before].writes) & set(plan.tasks.tasks[mark].reads), name


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_share_the_gradients(processes):
    for name, plan in plans(processes):
        made = Counter(plan.process[n] for n, task in enumerate(plan.tasks.tasks) if task.do in MESSAGES)
        assert max(made.values()) <= 1.6 * made.total() / processes, name
        assert 0.5 <= plan.speed_up <= processes, name


def test_of_workers_with_replicas_no_message_crosses():
    schedule = record(fitting("local-steps", CLUSTER), CLUSTER, gradients=60)
    tasks = tasks_of(lower(schedule, np.array([len(schedule)])), 1, Hooks())
    plan = plan_of(tasks, 2)
    assert plan.crossings and not [value for value in plan.crossings if tasks.shapes[value][0] == "message"]
    assert len(plan.crossings) < len(tasks.maker) / 2


def test_one_process_hands_nothing_over():
    assert all(not plan.crossings and plan.speed_up < 1 for _, plan in plans(1))


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in FEW else pytest.mark.slow, id=case.name) for case in REPLAYED]
)
@pytest.mark.parametrize(("processes", "stretch"), [(2, 10**9), (3, 40)])
def test_several_processes_leave_the_same_bits(case, processes, stretch, monkeypatch):
    alone = execute(case.name, case.run, SEED)
    together = Together(processes, stretch)
    monkeypatch.setattr(trained, "replay", together)
    assert same(alone, execute(case.name, case.run, SEED))
    assert together.counts[1] >= 0.25 * together.counts[0]


@pytest.mark.parametrize("name", [case.name for case in FEW])
def test_a_run_goes_on_alone_and_together_from_each_checkpoint(name, monkeypatch):
    (case,) = [case for case in FEW if case.name == name]
    monkeypatch.setattr(trained, "replay", Together(2, 50))
    found, whole = list[Checkpoint](), execute(name, case.run, SEED)
    execute(name, case.run, SEED, following=Following(save=found.append))
    assert found
    assert all(same(whole, execute(name, case.run, SEED, following=Following(resumed=each))) for each in found)
    monkeypatch.undo()
    assert all(same(whole, execute(name, case.run, SEED, following=Following(resumed=each))) for each in found)


RUN = make_run("asgd", task=LAYERS, stop={"gradients": 400}, evaluate={"points": 5})


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(helpers, "AT_ONCE", True)


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_helper_processes_compute_the_same_and_leave_nothing(at_once):
    before, told = children(os.getpid()), list[int]()
    following = Following(progress=lambda _: told.append(len(children(os.getpid()) - before)))
    assert same(execute("run", RUN, 1), execute("run", RUN, 1, following=following, cores=3))
    assert max(told) == 2
    assert children(os.getpid()) <= before
    gc.collect()
    links = [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    assert not [link for link in links if "memfd:fred" in link]


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
@pytest.mark.parametrize("point", [1, 3])
def test_a_run_goes_on_without_a_helper_that_is_killed(at_once, point):
    before, told = children(os.getpid()), list[float]()

    def kill(share):
        told.append(share)
        if len(told) == point + 1:
            for helper in children(os.getpid()) - before:
                os.kill(helper, signal.SIGKILL)

    assert same(execute("run", RUN, 1), execute("run", RUN, 1, following=Following(progress=kill), cores=2))
    assert children(os.getpid()) <= before


def test_values_from_before_helpers_started_are_released_at_the_first_mark(at_once, monkeypatch):
    began, held, start = list[Any](), list[int](), Loop.start

    def watched(*given):
        at = start(*given)
        began.extend(weakref.ref(leaf) for leaf in jax.tree.leaves(at.carry.registers))
        return at

    def told(_):
        gc.collect()
        held.append(sum(each() is not None for each in began))

    monkeypatch.setattr(Loop, "start", watched)
    execute("run", RUN, 1, following=Following(progress=told), cores=2)
    assert len(held) > 4 and held[0] > 0 and held[2:] == [0] * (len(held) - 2)


KILLED = """
import os, fred
from fred.protocols.local_steps import LocalSteps
from fred.replay import helpers
from fred.running.checkpoints import Checkpoint, Following
from fred.running.execution import execute
from tests.processes import children
from tests.test_cores import RUN
helpers.AT_ONCE = True
def end():
    print(*children(os.getpid()), flush=True)
    os.kill(os.getpid(), 9)
def told(share):
    if share > 0.3:
        end()
"""
AT_WORK = 'execute("run", RUN, 1, following=Following(progress=told), cores=3)'
STARTING = """
start = helpers.Helpers.start
helpers.Helpers.start = lambda self: (start(self), end())
execute("run", RUN, 1, cores=3)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
@pytest.mark.parametrize("when", [AT_WORK, STARTING], ids=["at work", "starting"])
def test_helpers_end_with_their_parent(when):
    done = subprocess.run([sys.executable, "-c", KILLED + when], capture_output=True, text=True, check=False)
    helpers = [int(each) for each in done.stdout.split()]
    assert len(helpers) == 2, done.stderr
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{each}").exists() for each in helpers):
        assert time.monotonic() < deadline, "a helper outlives its parent"
        time.sleep(0.05)


def test_helpers_end_when_an_evaluation_fails(at_once):
    """Also while somebody, such as a notebook, holds the traceback."""
    before, told = children(os.getpid()), []

    def fail(share):
        told.append(children(os.getpid()) - before)
        if told[-1]:
            raise ValueError(share)

    with pytest.raises(ValueError) as raised:
        execute("run", RUN, 1, cores=2, following=Following(progress=fail))
    assert raised.tb and told[-1] and children(os.getpid()) <= before


def test_a_helper_that_would_compute_other_bits_ends(at_once, monkeypatch):
    before = children(os.getpid())
    monkeypatch.setattr(agreement, "here", lambda: {"python": "another"})
    monkeypatch.setattr(helpers.Helpers, "work", lambda *_: pytest.fail("a helper took part"))
    assert same(execute("run", RUN, 1), execute("run", RUN, 1, cores=2))
    assert children(os.getpid()) <= before


@pytest.fixture
def started(monkeypatch):
    """The number of helpers that each run asks for, however fast its gradients are; none starts."""
    for name in ("LEAST_GRADIENT", "LEAST_REST", "_SLICE"):
        monkeypatch.setattr(helpers, name, 0.0)
    numbers: list[int] = []

    def start(self):
        numbers.append(self.number)
        self.end()

    monkeypatch.setattr(helpers.Helpers, "start", start)
    return numbers


def test_no_more_helpers_start_than_get_gradients(started):
    for workers in (2, 5):
        execute("run", make_run("asgd", task=LAYERS, stop={"gradients": 100}, cluster={"workers": workers}), 1, cores=64)
    assert started[0] in (1, 2) and started[1] in (4, 5)


@pytest.mark.parametrize(("unknown", "cores"), [("", 2), ("a program can change its modules", 1)])
def test_a_run_whose_code_may_change_in_memory_stays_alone(unknown, cores, monkeypatch, tmp_path):
    unit, asked = Unit("run", RUN, 1), []
    object.__setattr__(unit, "unknown", unknown)

    def computed(*given):
        asked.append(given[-1])
        raise FredError("enough")

    monkeypatch.setattr(work, "execute", computed)
    with pytest.raises(FredError, match="enough"):
        work.compute(unit, tmp_path, Following(), Timings(), 2)
    assert asked == [cores]


def test_a_run_of_fast_gradients_stays_alone(monkeypatch):
    monkeypatch.setattr(helpers.Helpers, "start", lambda self: pytest.fail("it started helpers"))
    assert same(execute("run", RUN, 1), execute("run", RUN, 1, cores=2))


def test_a_run_with_more_evaluations_than_bits_of_a_number_stays_alone():
    often = make_run("asgd", task=LAYERS, stop={"gradients": 200}, evaluate={"every_updates": 1})
    assert same(execute("run", often, 1), execute("run", often, 1, cores=2))


def test_frequent_evaluations_do_not_hide_how_long_gradients_take(monkeypatch):
    """Each slice ends at an evaluation, after 0.02 s."""
    program: Any = SimpleNamespace(offsets=np.arange(401)[:, None], kinds=[Kind(Op.BEGIN)])
    nothing: Any = None
    loop: Any = SimpleNamespace(compile=lambda at: at, to=lambda at, upto: Mark(upto, nothing))
    now, pace, at = itertools.count(), helpers._Pace(program), Mark(0, nothing)
    monkeypatch.setattr(time, "perf_counter", lambda: 0.02 * next(now))
    for end in range(8, 401, 8):
        while at.phase < end and not pace.known:
            at = pace.some(loop, at, end)
    assert 0 < pace.seconds < 0.02 and at.phase < 200


def test_a_round_that_is_one_batch_stays_alone(started):
    """Nothing of it can be shared, however long it takes."""
    execute("run", next(case.run for case in CASES if case.name == "ssgd"), SEED, cores=2)
    assert not started
    execute("run", next(case.run for case in CASES if case.name == "asgd"), SEED, cores=2)
    assert started == [1]


@pytest.mark.parametrize("workers", [1, 3, 8])
def test_the_predicted_speed_up_is_that_of_independent_gradients(workers):
    """Workers that never meet: n gradients and their updates beside each other, on so many processes as there are."""
    cluster = Cluster(workers=workers, compute=COMPUTE, servers=1)
    protocol = LocalSteps(period=1000)
    schedule = record(protocol, cluster, gradients=40 * workers)
    program = lower(schedule, np.array([0, len(schedule)]), (0,) * schedule.blocks, _APART)
    tasks = tasks_of(program, schedule.blocks, _APART)
    for processes in (1, 2, workers):
        most = Counter(int((worker + 0.5) / workers * processes) for worker in range(workers)).most_common(1)[0][1]
        assert plan_of(tasks, processes).speed_up == pytest.approx(workers / most / 1.05, rel=0.1)
