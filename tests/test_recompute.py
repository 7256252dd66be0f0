"""Runs recomputed by an independent NumPy program from the recorded schedule alone."""

import copy
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
from tests.plain import PLAIN
from tests.plain.base import Given
from tests.recompute import PlainEqual, PlainSGD, by_plain, largest_relative_error, recompute
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
    server = PLAIN[algorithm](initial, Given(result_.outcome(algorithm, 5).run, 5))
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
    """Return the parameters of a run with rate 0.1."""
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


@pytest.mark.slow
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
