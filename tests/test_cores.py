"""One replay by several processes: the plan by itself, the bits, processes that end, and what `fred run --explain` predicts."""

import gc
import itertools
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import cache
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.commands.explain import PROCESSES, predict_sharing
from fred.components import own_code, registry
from fred.protocols.local_steps import LocalSteps
from fred.replay import helpers
from fred.replay.division import plan_of
from fred.replay.lower import lower
from fred.replay.phases import Hooks
from fred.replay.tasks import MESSAGES, tasks_of
from fred.running import execution, model_training
from fred.running.checkpoints import Checkpoint, Following
from fred.running.execution import execute
from fred.running.recording import Timings
from fred.running.units import Unit
from tests.cases import CASES, SEED
from tests.processes import children
from tests.program import fred_command, refusal
from tests.threaded_replay import ThreadedReplay
from tests.worlds import COMPUTE, LAYERS, fitting_protocol, make_run, mostly_slow, record, same_outcome

CLUSTER = Cluster(workers=8, compute=COMPUTE, servers=1)
UNBATCHED = Hooks(unbatched=True)
REPLAYED = [case for case in CASES if case.run.task is not None and not case.run.protocol.needs_values]
FEW = ("asgd", "diloco", "ad-psgd", "psp-sgd", "ssgd", "top-k")
RUN = make_run("asgd", task=LAYERS, stop={"gradients": 400}, evaluate={"points": 5})
needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")


def tasks_for(protocol, gradients, cluster=CLUSTER):
    schedule = record(protocol, cluster, gradients=gradients)
    program = lower(schedule, np.array([0, len(schedule) // 2, len(schedule)]), (0,) * schedule.blocks, UNBATCHED)
    return tasks_of(program, schedule.blocks, UNBATCHED)


@cache
def tasks_by_protocol():
    protocols = {name: fitting_protocol(name, CLUSTER) for name in sorted(registry.REGISTRY["protocol"])}
    return {name: tasks_for(protocol, 60) for name, protocol in protocols.items() if not protocol.needs_values}


class TestPlans:
    @pytest.mark.parametrize("processes", [2, 3])
    def test_processes_share_the_gradients(self, processes):
        for name, tasks in tasks_by_protocol().items():
            plan = plan_of(tasks, processes)
            gradients = Counter(plan.process[n] for n, task in enumerate(tasks.tasks) if task.action in MESSAGES)
            assert max(gradients.values()) <= 1.6 * gradients.total() / processes, name
            assert 0.5 <= plan.speed_up <= processes, name
            assert [number for number in plan.queues[0] if number in tasks.points] == list(tasks.points), "marks in their order"

    def test_no_message_of_workers_with_replicas_crosses(self):
        schedule = record(fitting_protocol("local-steps", CLUSTER), CLUSTER, gradients=60)
        tasks = tasks_of(lower(schedule, np.array([len(schedule)])), 1, Hooks())
        plan = plan_of(tasks, 2)
        assert plan.crossings and not [value for value in plan.crossings if tasks.shapes[value][0] == "message"]
        assert len(plan.crossings) < len(tasks.maker) / 2

    @pytest.mark.parametrize("workers", [1, 3, 8])
    def test_the_predicted_speed_up_is_that_of_independent_gradients(self, workers):
        tasks = tasks_for(LocalSteps(period=1000), 40 * workers, Cluster(workers=workers, compute=COMPUTE, servers=1))
        for processes in (1, 2, workers):
            most = Counter(int((worker + 0.5) / workers * processes) for worker in range(workers)).most_common(1)[0][1]
            assert plan_of(tasks, processes).speed_up == pytest.approx(workers / most / 1.05, rel=0.1)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if case.name in FEW[:2] else pytest.mark.slow, id=case.name)
        for case in REPLAYED
        if case.name in (*FEW, "random-k", "power-sgd") or case.kind == "protocol"
    ],
)
def test_several_processes_leave_the_same_bits(case, monkeypatch):
    single = execute(case.name, case.run, SEED)
    for processes, stretch in ((2, 10**9), (3, 40)) if case.name in FEW else ((3, 200),):
        together = ThreadedReplay(processes, stretch)
        monkeypatch.setattr(model_training, "replay", together)
        assert same_outcome(single, execute(case.name, case.run, SEED))
        assert together.counts[1] >= 0.25 * together.counts[0]


@pytest.mark.parametrize("name", mostly_slow(FEW, ["asgd"]))
def test_a_run_goes_on_alone_and_together_from_each_checkpoint(name, monkeypatch):
    (case,) = [case for case in REPLAYED if case.name == name]
    monkeypatch.setattr(model_training, "replay", ThreadedReplay(2, 50))
    stored, uninterrupted = list[Checkpoint](), execute(name, case.run, SEED)
    execute(name, case.run, SEED, following=Following(save=stored.append))
    assert stored
    assert all(
        same_outcome(uninterrupted, execute(name, case.run, SEED, following=Following(resumed=checkpoint)))
        for checkpoint in stored
    )
    monkeypatch.undo()
    assert all(
        same_outcome(uninterrupted, execute(name, case.run, SEED, following=Following(resumed=checkpoint)))
        for checkpoint in stored
    )


@pytest.fixture
def no_delay(monkeypatch):
    monkeypatch.setattr(helpers, "FORCE_HELPERS", True)


@cache
def reference():
    return execute("run", RUN, 1)


def run_with_helpers(cores=2, progress=None):
    """Run with helper processes; `progress` is called with those that run, at each evaluation."""
    before = children(os.getpid())
    following = Following(progress=lambda _: progress and progress(children(os.getpid()) - before))
    try:
        assert same_outcome(reference(), execute("run", RUN, 1, following=following, cores=cores))
    finally:
        assert children(os.getpid()) <= before, "a helper outlives the run"


@needs_proc
@pytest.mark.slow
def test_helper_processes_compute_the_same_and_leave_nothing(no_delay):
    numbers = list[int]()
    run_with_helpers(3, lambda running: numbers.append(len(running)))
    assert max(numbers) == 2
    gc.collect()
    links = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert not [link for link in links if "memfd:fred" in link]


@needs_proc
@pytest.mark.parametrize(("point", "sent"), [(1, signal.SIGKILL), (3, signal.SIGKILL), (1, signal.SIGSTOP)])
@pytest.mark.slow
def test_a_run_goes_on_without_a_helper_that_is_killed_or_stopped(no_delay, point, sent):
    evaluations = itertools.count()

    def kill(running):
        if next(evaluations) == point:
            for helper in running:
                os.kill(helper, sent)

    run_with_helpers(progress=kill)


@needs_proc
@pytest.mark.slow
def test_helpers_end_when_an_evaluation_fails(no_delay):

    def fail(running):
        if running:
            raise ValueError

    with pytest.raises(ValueError) as raised:
        run_with_helpers(progress=fail)
    assert raised.tb


@needs_proc
@pytest.mark.slow
def test_a_helper_that_would_compute_other_bits_ends(no_delay, monkeypatch):
    monkeypatch.setattr(own_code, "local_facts", lambda: {"python": "another"})
    monkeypatch.setattr(helpers.Helpers, "work", lambda *_: pytest.fail("a helper took part"))
    run_with_helpers()


KILLED = """
import os, fred
from fred.replay import helpers
from fred.running.checkpoints import Following
from fred.running.execution import execute
from tests.processes import children
from tests.test_cores import RUN
helpers.FORCE_HELPERS = True
def end():
    print(*children(os.getpid()), flush=True)
    os.kill(os.getpid(), 9)
"""
AT_WORK = "progress = lambda share: share > 0.3 and end()\n"
SUSPENDED = "progress = lambda share: share > 0.3 and [*(os.kill(each, 19) for each in children(os.getpid())), end()]\n"
STARTING = "progress, start = None, helpers.Helpers.start\nhelpers.Helpers.start = lambda self: (start(self), end())\n"


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("when", [AT_WORK, STARTING, SUSPENDED], ids=["at work", "starting", "stopped"])
def test_helpers_end_with_their_parent(when):
    program = KILLED + when + 'execute("run", RUN, 1, following=Following(progress=progress), cores=3)'
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    left = [int(number) for number in done.stdout.split()]
    assert len(left) == 2, done.stderr
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{number}").exists() for number in left):
        assert time.monotonic() < deadline, "a helper outlives its parent"
        time.sleep(0.05)


@pytest.fixture
def numbers(monkeypatch):
    """The number of helpers that each run asks for, however fast its gradients are; none starts."""
    for name in ("LEAST_GRADIENT", "LEAST_REST", "_SLICE"):
        monkeypatch.setattr(helpers, name, 0.0)
    numbers: list[int] = []

    def start(self):
        numbers.append(self.number)
        self.end()

    monkeypatch.setattr(helpers.Helpers, "start", start)
    return numbers


@pytest.mark.slow
def test_no_more_helpers_start_than_get_gradients_and_none_for_rounds_of_one_batch(numbers):
    for workers in (2, 5):
        execute("run", make_run("asgd", task=LAYERS, stop={"gradients": 100}, cluster={"workers": workers}), 1, cores=64)
    assert numbers[0] in (1, 2) and numbers[1] in (4, 5)
    numbers.clear()
    for name, expected in (("ssgd", []), ("asgd", [1])):
        execute("run", next(case.run for case in REPLAYED if case.name == name), SEED, cores=2)
        assert numbers == expected


@pytest.mark.parametrize(("unknown", "cores"), [("", 2), ("a program can change its modules", 1)])
def test_a_run_whose_code_may_change_in_memory_stays_alone(unknown, cores, monkeypatch, tmp_path):
    unit, compute = Unit("run", RUN, 1), Mock(side_effect=FredError("enough"))
    object.__setattr__(unit, "unknown", unknown)
    monkeypatch.setattr(execution, "execute", compute)
    with pytest.raises(FredError, match="enough"):
        execution.compute(unit, tmp_path, Following(), Timings(), 2)
    assert compute.call_args.args[-1] == cores


def test_runs_of_fast_gradients_or_of_more_evaluations_than_bits_of_a_number_stay_alone(monkeypatch):
    monkeypatch.setattr(helpers.Helpers, "start", lambda self: pytest.fail("it started helpers"))
    for run in (RUN, make_run("asgd", task=LAYERS, stop={"gradients": 200}, evaluate={"every_updates": 1})):
        assert same_outcome(execute("run", run, 1), execute("run", run, 1, cores=2))


EXPLAINED = """
task: {data: digits, model: softmax, batch_size: 4}
cluster: {workers: 4}
stop: {updates: 20}
runs:
  apart: {algorithm: {name: asgd, learning_rate: 0.1}}
  together: {algorithm: {name: ssgd, learning_rate: 0.1}}
  gated: {algorithm: {name: b-fasgd, learning_rate: 0.1}, protocol: {name: gated, fetch_gate: {name: statistical, c: 0.1}}}
"""


class TestExplain:
    @pytest.mark.slow
    def test_it_prints_a_row_for_each_run_and_writes_nothing(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        Path("mine.yaml").write_text(EXPLAINED)
        answer = fred_command("run", "mine.yaml", "--explain")
        rows = {line.split()[0]: line.split()[1:] for line in answer.out.splitlines() if line.split()}
        assert (answer.code, [path.name for path in tmp_path.iterdir()]) == (0, ["mine.yaml"])
        assert rows["apart"][:5] == ["20", "–", "<", "1", "no"]  # gradients, of no time to speak of
        assert rows["together"][0] == "80"
        assert " ".join(rows["gated"]).startswith("– – – timing needs values –")

    def test_it_explains_one_point_of_a_sweep_and_runs_whose_timing_needs_values(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        swept = "{over: {cluster.workers: [2, 4]}, best: updates}"
        Path("mine.yaml").write_text(EXPLAINED.replace("0.1}}}", f"0.1}}}}, sweep: {swept}}}"))
        answer = fred_command("run", "mine.yaml", "--explain", "--only", "gated,workers=4")
        assert answer.code == 0 and "timing needs values" in answer.out

    def test_it_computes_in_the_environment_of_runs_or_refuses_another(self, tmp_path, monkeypatch):
        (tmp_path / "mine.yaml").write_text(EXPLAINED)
        monkeypatch.setenv("FRED_THREADS", "none")
        assert "FRED_THREADS=none" in refusal("run", tmp_path / "mine.yaml", "--explain")

    def test_it_refuses_scenarios_that_train_nothing(self, tmp_path):
        (tmp_path / "mine.yaml").write_text(
            "cluster: {workers: 4}\nalgorithm: {name: asgd, learning_rate: 0.1}\nstop: {updates: 9}\n"
        )
        assert "no run has a `task`" in refusal("run", tmp_path / "mine.yaml", "--explain")

    @pytest.mark.parametrize("name", ["asgd", "local-sgd"])
    def test_more_processes_are_never_predicted_to_be_much_slower(self, name):
        run = next(case.run for case in REPLAYED if case.name == name)
        assert run.task is not None
        prediction = predict_sharing(run, run.task, SEED)
        speeds = [prediction.speed_ups[number] for number in PROCESSES]
        assert prediction.gradients > 0 and not prediction.saves_time
        assert all(speed <= number for number, speed in prediction.speed_ups.items())
        assert speeds[-1] >= 0.95 * max(speeds)
