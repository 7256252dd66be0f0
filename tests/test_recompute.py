"""Runs recomputed by an independent NumPy program from the recorded schedule alone."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fred
from fred import batch_indices
from fred.components import registry
from fred.outcomes.outcome import Outcome
from fred.results import experiment, folder
from fred.running.execution import execute
from fred.specification.loading import load, validated
from fred.specification.shape import Run
from tests.recompute import PlainEqual, PlainFASGD, PlainPush, PlainSGD, PlainShard, by_plain, largest_relative_error, recompute
from tests.worlds import CLUSTERS, COMPUTE, make_run, same


@pytest.mark.parametrize("algorithm", ["sasgd", "fasgd"])
def test_result_folder_is_enough_to_recompute_a_run(tmp_path, algorithm):
    """Only the files are read: schedule.parquet, params.npz, and the public functions for data and minibatches."""
    settings = ["seeds=[5]", "stop.seconds=4"]
    result_ = experiment.run(load("scenarios/quickstart.yaml", settings), only=[algorithm])
    folder.save(result_, tmp_path / "out")
    files = tmp_path / "out" / algorithm / "seed-5"
    with np.load(files / "params.npz") as stored:
        initial, final = (
            {k.split("/", 1)[1]: stored[k] for k in stored.files if k.startswith(w)} for w in ("initial", "final")
        )
    initial = {k: v.astype(float) for k, v in initial.items()}
    server = PlainSGD(initial, 0.5, lambda staleness: 1 / max(staleness, 1))
    if algorithm == "fasgd":
        server = PlainFASGD(initial, 0.05, gamma=0.9, beta=0.9, epsilon=1e-4, v0=1.0)
    with np.load(Path(fred.__file__).parent / "learning/data/digits.npz") as digits:
        inputs, answers = digits["images"][:-360] / 16, digits["answers"][:-360]
    schedule = pd.read_parquet(files / "schedule.parquet")
    assert (schedule["verb"] == "PUSH").sum() > 400
    (params,) = recompute(
        schedule,
        [server],
        inputs,
        answers,
        lambda worker, step: batch_indices(5, worker, step, batch_size=8, examples=len(inputs)),
    )
    assert largest_relative_error(final, params) < 1e-4
    assert largest_relative_error(final, initial) > 0.1, "the run moved the parameters"


def by_plain_sgd(outcome: Outcome) -> dict:
    """What a run with rate 0.1 comes to."""
    return by_plain(outcome, [PlainSGD({k: v.astype(float) for k, v in outcome.initial.items()}, 0.1)])[0]


@settings(max_examples=12)
@given(
    cluster=CLUSTERS,
    seed=st.integers(0, 9),
    algorithm=st.sampled_from(["asgd", "ssgd", "backup", "dispatcher"]),
    inline=st.booleans(),
)
def test_random_runs_are_what_their_schedule_says(cluster, seed, algorithm, inline):
    backup = cluster.size // 3
    protocol = {"backup": {"name": "synchronous", "backup_workers": backup}, "dispatcher": "dispatcher"}.get(algorithm)
    name = {"backup": "ssgd", "dispatcher": "asgd"}.get(algorithm, algorithm)
    run = make_run(name, cluster=cluster.model_dump(), protocol=protocol, stop={"gradients": 40})
    outcome = execute("run", run, seed, inline)
    assert largest_relative_error(outcome.final, by_plain_sgd(outcome)) < 1e-4


WORLDS = [(False, 1), (False, 1), (False, 3), (True, 1), (True, 2)]  # whether workers have their own replicas; blocks


def anything(number: int, peers: bool, blocks: int, workers: int, algorithm: Any = "asgd", **options: Any) -> Run:
    """A run of a random program of verbs."""
    registry.allow_import(["tests.users", "tests.successors"])
    protocol = {"name": "tests.users:Anything", "number": number, "peers": peers}
    cluster = {"workers": workers, "compute": COMPUTE, "servers": blocks}
    return make_run(algorithm, protocol=protocol, cluster=cluster, **{"stop": {"gradients": 20}, **options})


@settings(max_examples=4)
@given(number=st.integers(0, 10_000), world=st.sampled_from(WORLDS), workers=st.integers(1, 3))
def test_whatever_a_protocol_does_is_what_its_schedule_says(number, world, workers):
    """Any number of messages in a round, of any workers, some used again; replayed and inline, against NumPy."""
    peers, blocks = world
    run = anything(number, peers, blocks, workers)
    replayed, inline = (execute("run", run, 1, each) for each in (False, True))
    assert same(replayed, inline)
    initial = {k: v.astype(float) for k, v in replayed.initial.items()}
    replicas = workers if peers else 1
    cut = [PlainEqual(initial, 0.1, block, blocks) for _ in range(replicas) for block in range(blocks)]
    final = by_plain(replayed, cut if blocks > 1 else [PlainSGD(initial, 0.1) for _ in range(replicas)])
    whole = [PlainEqual.join(final[at : at + blocks], initial) for at in range(0, len(final), blocks)] if blocks > 1 else final
    params = {k: np.mean([each[k] for each in whole], axis=0) for k in initial}
    assert largest_relative_error(replayed.final, params) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm", ["TopK", "FedBuff", *(pytest.param(n, marks=pytest.mark.slow) for n in ("Quantised", "BlockMomentum"))]
)
@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_whatever_a_protocol_does_hooks_are_called_alike_inline_and_replayed(algorithm, number):
    peers, blocks = [(False, 3), (True, 2)][number - 1]
    run = anything(number, peers, blocks, 3, {"name": f"tests.successors:{algorithm}", "learning_rate": 0.1})
    assert same(*(execute("run", run, 1, each) for each in (False, True)))


NETWORK = {"latency": {"name": "exponential", "scale": 0.02}, "bandwidth": 1e5}
SYSTEMS: dict[str, tuple[int, dict]] = {  # algorithm -> number of workers and options that make it show what is hard about it
    "b-fasgd": (5, {"protocol": {"name": "gated", "c_push": 0.2, "c_fetch": 0.4}}),
    "psp-sgd": (5, {"protocol": {"name": "partial", "gradients": 3, "blocks_percent": 60, "push_timeout": 0.01}}),
    "ad-psgd": (5, {}),
    "local-sgd": (5, {"protocol": {"period": 3, "start_after": 2}}),
    "eager-sgd": (5, {"protocol": {"start_by": "solo", "period": 9}}),
    "sgp, overlapped": (6, {"protocol": {"topology": "exponential", "overlap": 2}}),
    "sgp": (6, {"protocol": {"name": "gossip", "topology": {"name": "exponential", "neighbours": 2}}}),
    "d-psgd": (5, {"protocol": {"name": "gossip", "weights": "metropolis", "order": "mix-first"}}),
    "wagma-sgd": (8, {"protocol": {"name": "group-averaging", "group_size": 4, "period": 5}}),
    "wagma-sgd, waiting": (8, {"protocol": {"group_size": 4, "group_waits": True, "period": None}}),
}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("name", SYSTEMS)
def test_systems_are_what_their_schedules_say(name, inline):
    workers, options = SYSTEMS[name]
    name = name.split(",")[0]
    cluster = {"workers": workers, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.7}, "network": NETWORK}
    cluster |= {"servers": 3} if name == "psp-sgd" else {}
    run = make_run(name, cluster=cluster, stop={"gradients": 150}, **options)
    outcome = execute("run", run, 2, inline)
    initial = {k: v.astype(float) for k, v in outcome.initial.items()}
    servers: dict[str, Callable[[], list]] = {
        "b-fasgd": lambda: [PlainFASGD(initial, 0.1, gamma=0.9, beta=0.9, epsilon=1e-4, v0=1.0)],
        "psp-sgd": lambda: [PlainShard(initial, 0.1, number, 3) for number in range(3)],
        "sgp": lambda: [PlainPush(initial, 0.1) for _ in range(workers)],
        "eager-sgd": lambda: [PlainSGD(initial, 0.1)],
    }
    assert run.task is not None
    data = run.task.data.load(2).train
    final = recompute(
        outcome.schedule.frame(),
        servers.get(name, lambda: [PlainSGD(initial, 0.1) for _ in range(workers)])(),
        data.inputs,
        data.answers,
        lambda worker, step: batch_indices(2, worker, step, batch_size=4, examples=len(data)),
        model=PlainPush.model if name == "sgp" else dict,
    )
    if name == "psp-sgd":
        params = PlainShard.join(final, initial)
    else:
        params = {k: np.mean([replica[k] for replica in final], axis=0) for k in final[0]}
        params = PlainPush.model(params) if name == "sgp" else params
        models = [PlainPush.model(replica) if name == "sgp" else replica for replica in final]
        mean = {k: np.mean([model[k] for model in models], axis=0) for k in params}
        apart = [sum(((model[k] - mean[k]) ** 2).sum() for k in params) for model in models]
        if len(final) > 1:
            assert outcome.metrics["disagreement"].iloc[-1] == pytest.approx(np.sqrt(np.mean(apart)), rel=1e-3)
    assert largest_relative_error(outcome.final, params) < 1e-4
    assert largest_relative_error(outcome.final, initial) > 0.1
    stale = outcome.schedule["staleness"]
    assert stale.max() > 0 or name in ("sgp", "wagma-sgd", "local-sgd"), "nothing was hard about it"


def test_the_recomputation_notices_a_wrong_minibatch():
    run = make_run("asgd")
    outcome = execute("run", run, 0)
    assert run.task is not None
    data = run.task.data.load(0).train

    def params(offset: int) -> dict:
        server = PlainSGD(copy.deepcopy({k: v.astype(float) for k, v in outcome.initial.items()}), 0.1)
        return recompute(
            outcome.schedule.frame(),
            [server],
            data.inputs,
            data.answers,
            lambda worker, step: batch_indices(0, worker, step + offset, batch_size=4, examples=len(data)),
        )[0]

    assert largest_relative_error(outcome.final, params(0)) < 1e-4
    assert largest_relative_error(outcome.final, params(1)) > 1e-2


def test_specifications_can_be_given_without_a_file():
    scenario = validated({"runs": {"a": make_run("asgd").model_dump()}}, str)
    assert scenario.runs["a"] == make_run("asgd")
