"""What must be the same to the last bit: by theory, by construction, or whatever else is run beside it."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fred.replay.chunks
import fred.replay.phases
from fred.replay.hooks import padded
from fred.results import experiment
from fred.running.checkpoints import Checkpoint, Following
from fred.running.execution import execute
from fred.schedule.schedule import Verb
from fred.specification.loading import Scenario
from fred.specification.shape import Evaluate
from tests.cases import CASES, SEED
from tests.worlds import COMPUTE, TASK, make_run, same

OPTIMIZERS = [
    "sgd",
    {"name": "sgd", "momentum": 0.9},
    {"name": "sgd", "momentum": 0.9, "nesterov": True},
    "adam",
    {"name": "adamw", "weight_decay": 0.1},
    "rmsprop",
    [{"name": "clip_by_global_norm", "max_norm": 0.5}, "sgd"],
]


def test_synchronous_sgd_with_n_workers_and_batch_m_is_sgd_with_batch_nm():
    task = {**TASK, "batch_size": 3}
    many = execute("a", make_run("ssgd", task=task, cluster={"workers": 6, "compute": COMPUTE}, stop={"updates": 25}), 7)
    one = execute("b", make_run("ssgd", task={**task, "batch_size": 18}, cluster={"workers": 1}, stop={"updates": 25}), 7)
    assert many.params_digest == one.params_digest
    assert many.metrics[["updates", "loss", "error"]].equals(one.metrics[["updates", "loss", "error"]])
    asynchronous = make_run("asgd", task={**task, "batch_size": 18}, cluster={"workers": 1}, stop={"updates": 25})
    assert execute("c", asynchronous, 7).params_digest == one.params_digest, "one asynchronous worker is SGD too"


def test_no_backup_workers_is_synchronous_sgd_whatever_late_workers_would_do():
    runs = [make_run("ssgd", protocol={"backup_workers": 0, "late": late}) for late in ("finish", "interrupt")]
    plain, *others = (execute("run", run, 3) for run in [make_run("ssgd"), *runs])
    assert all(same(plain, other) for other in others)


def test_staleness_penalties_of_fresh_gradients_are_none():
    cluster = {"workers": 1, "compute": COMPUTE}
    plain, *others = (
        execute("run", make_run({"name": name, "learning_rate": 0.1}, cluster=cluster), 1).params_digest
        for name in ("asgd", "sasgd", "exponential")
    )
    assert set(others) == {plain}


def pairs() -> Iterator[Any]:
    """Each algorithm with each optimizer; by default each of them once or twice."""
    for (i, name), (j, optimizer) in itertools.product(
        enumerate(["asgd", "sasgd", "exponential", "fasgd", "ssgd"]), enumerate(OPTIMIZERS)
    ):
        yield pytest.param(name, optimizer, marks=() if i == j % 5 else pytest.mark.slow, id=f"{name}-{optimizer}")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "optimizer"), list(pairs()))
def test_inline_equals_replay(name, optimizer):
    run = make_run({"name": name, "learning_rate": 0.02, "optimizer": optimizer})
    assert same(execute("run", run, 2), execute("run", run, 2, inline=True))


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["std", "published-code", "literal"])
@pytest.mark.parametrize("cadence", [{"every_updates": 7}, {"every_gradients": 11}, {"every_seconds": 0.1}])
def test_inline_equals_replay_whatever_is_measured(variant, cadence):
    run = make_run({"name": "fasgd", "learning_rate": 0.02, "variant": variant}, evaluate=cadence)
    assert same(execute("run", run, 2), execute("run", run, 2, inline=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "stop"),
    [
        ({"name": "synchronous", "backup_workers": 2}, {"gradients": 60}),
        ({"name": "synchronous", "backup_workers": 1, "late": "interrupt"}, {"seconds": 2.0}),
        ({"name": "synchronous"}, {"updates": 9}),
        ({"name": "dispatcher", "selection": {"name": "shifting", "change": 1.0}}, {"updates": 50}),
        ({"name": "asynchronous"}, {"seconds": 1.0}),
    ],
)
@pytest.mark.parametrize("sampling", ["replacement", "shuffled", "sequential"])
def test_inline_equals_replay_under_every_protocol_and_sampling(protocol, stop, sampling):
    task = {**TASK, "sampling": sampling}
    cluster = {"workers": 9, "compute": COMPUTE}
    run = make_run("ssgd", protocol=protocol, stop=stop, task=task, cluster=cluster)
    assert same(execute("run", run, 2), execute("run", run, 2, inline=True))


@pytest.mark.slow
@pytest.mark.parametrize("model", [{"name": "cnn", "channels": [4], "hidden": 8}, {"name": "softmax"}])
def test_inline_equals_replay_for_every_model(model):
    task = {"data": "digits", "model": model, "batch_size": 4}
    run = make_run("sasgd", task=task, stop={"gradients": 24})
    assert same(execute("run", run, 2), execute("run", run, 2, inline=True))


def test_measuring_changes_nothing():
    few, many = (execute("run", make_run("fasgd", evaluate=cadence), 4) for cadence in ({"points": 1}, {"every_updates": 1}))
    assert few.params_digest == many.params_digest
    assert len(few.metrics) == 2
    assert len(many.metrics) == 61
    assert few.metrics["loss"].tolist() == many.metrics["loss"].iloc[[0, -1]].tolist()


def test_chunks_and_phases_change_nothing(monkeypatch):
    whole = execute("run", make_run("sasgd", stop={"gradients": 300}), 4)
    monkeypatch.setattr(fred.replay.phases, "LONGEST_PHASE", 5)
    monkeypatch.setattr(fred.replay.chunks, "LONGEST_PHASE", 5)
    monkeypatch.setattr(fred.replay.chunks, "_INDICES", 1)
    assert same(whole, execute("run", make_run("sasgd", stop={"gradients": 300}), 4))


def test_a_run_does_not_depend_on_what_else_is_run():
    runs = {name: make_run(name) for name in ("asgd", "fasgd", "ssgd")}
    scenario = Scenario(seeds=(1, 2), runs=runs)
    together = experiment.run(scenario)
    backwards = experiment.run(scenario, only=["ssgd", "asgd"])
    alone = experiment.run(Scenario(seeds=(2,), runs=runs), only=["asgd"])
    for name, seed in itertools.product(("asgd", "ssgd"), (1, 2)):
        assert same(together.outcome(name, seed), backwards.outcome(name, seed))
    assert same(alone.outcome("asgd", 2), together.outcome("asgd", 2))


def test_algorithms_see_the_same_times_and_minibatches():
    schedules = [execute("run", make_run(name), 6).schedule for name in ("asgd", "fasgd")]
    assert schedules[0].digest() == schedules[1].digest()
    synchronous = execute("run", make_run("ssgd"), 6).schedule
    for schedule in (schedules[0], synchronous):
        used = schedule.rows(Verb.PUSH, Verb.ADD)
        lengths = {
            (worker, step): length
            for worker, step, length in zip(
                schedule["worker"][used], schedule["step"][used], (schedule["end_ns"] - schedule["begin_ns"])[used], strict=True
            )
        }
        if schedule is schedules[0]:
            first = lengths
    shared = first.keys() & lengths.keys()
    assert len(shared) > 40
    assert all(first[key] == lengths[key] for key in shared)


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("cadence", [{"every_updates": 5}, {"every_gradients": 9}, {"every_seconds": 0.17}])
def test_target_loss_stops_the_run_where_it_is_first_seen(inline, cadence):
    stop = {"gradients": 2000, "target_loss": 0.5}
    outcome = execute("run", make_run("asgd", stop=stop, evaluate=cadence), 0, inline)
    losses = outcome.metrics["loss"].to_numpy()
    assert losses[-1] <= 0.5 < losses[:-1].min()
    assert outcome.schedule.counts()["updates"] == outcome.metrics["updates"].iloc[-1] < 2000
    free = execute("run", make_run("asgd", stop={"gradients": 2000}, evaluate=cadence), 0)
    assert free.metrics["loss"].iloc[: len(losses)].tolist() == losses.tolist()
    columns = ("worker", "step", "time_ns", "verb")
    for name in columns:
        assert (outcome.schedule[name] == free.schedule[name][: len(outcome.schedule)]).all()


def test_evaluations_see_a_replica_that_changes_without_an_instruction():
    """A delivered mean replaces a replica's version: no arithmetic happens, but its parameters are others."""
    (case,) = [case for case in CASES if case.kind == "protocol" and case.name == "straggler-tolerant"]
    options = {
        "evaluate": Evaluate(every_seconds=0.01),
        "stop": case.run.stop.model_copy(update={"gradients": None, "seconds": 0.46}),
    }
    run = case.run.model_copy(update=options)
    replayed, inline = execute("run", run, SEED), execute("run", run, SEED, inline=True)
    assert same(replayed, inline)
    saved = list[Checkpoint]()
    execute("run", run, SEED, following=Following(save=saved.append))
    assert saved
    assert all(same(inline, execute("run", run, SEED, following=Following(resumed=each))) for each in saved[-5:])


@pytest.mark.parametrize("workers", [1, 3, 8, 9, 16, 158, 1000])
def test_padded_batches_come_in_few_sizes(workers):
    sizes = [padded(members, workers) for members in range(1, workers + 1)]
    assert all(members <= size <= workers for members, size in enumerate(sizes, start=1))
    assert len(set(sizes)) <= 8
    assert sizes[-1] == workers


def test_a_padded_round_is_the_mean_of_its_real_members():
    """13 of 16 is computed as a masked batch of 14; the mean must be that of 13."""
    exact = make_run("ssgd", protocol={"backup_workers": 3}, cluster={"workers": 16, "compute": COMPUTE})
    outcome = execute("run", exact, 0)
    assert np.isclose(outcome.schedule["weight"][outcome.schedule.rows(Verb.COMMIT)], 1 / 13).all()
    # tests/test_recompute.py checks the values of such runs against NumPy; here, that padding was in play at all.
    assert padded(13, 16) == 14
