"""The contract of each algorithm, protocol, codec and cutoff rule of the registry, on the cases of `tests/cases.py`.

NumPy gives the same numbers; resumed runs and replays give the same bits. By default each entry of the registry has one case.
"""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import numpy as np
import pytest

from fred.components import registry
from fred.outcomes.outcome import Outcome
from fred.replay.helpers import replay
from fred.replay.lower import lower
from fred.replay.machine import states_at
from fred.running import checkpoints
from fred.running.checkpoints import Checkpoint, Following
from fred.running.execution import execute
from fred.running.model_training import Problem
from tests.cases import CASES, SEED, TABLES, Case
from tests.golden import GOLDEN, compare_environment, digests_of, pinned_cases
from tests.plain import PLAIN_CLASSES, recompute_run
from tests.plain.base import Plain
from tests.recompute import largest_relative_error, measure
from tests.worlds import same_outcome

# By default these are replayed: together they have all kinds of instructions, with all hooks of servers that occur together.
REPLAYED = {
    "algorithm": """
        asgd ssgd diloco async-mesh psp-sgd malenia decoupled-diloco demo choco-sgd fedcompass scaffold cgad streaming-diloco
        dc-asgd fedasync eager-diloco ad-psgd sparseloco""",
    "protocol": "gossip drop-compute quorum stale-synchronous",
    "codec": "float random-k",
    "cutoff": "deadline",
}
# Slow to compile, and alike others that are not slow: in `tests/test_codecs.py`, or of the same page.
SLOW = {"codec": "e3m0 low-bit sign qsgd top-k dct", "cutoff": "dmm dmm-plain dmm-printed"}
SLOW["algorithm"] = "muloco loscar des-loc ringmaster-lmo edit"


class Runs:
    """A run of a case and the same resumed from a checkpoint, one after the other, so that they share compiled programs."""

    def __init__(self, case: Case, inline: bool):
        self.saved, self.progress = list[Checkpoint](), list[float]()
        self.whole = execute(case.name, case.run, SEED, inline, Following(save=self.saved.append))
        with TemporaryDirectory() as folder:
            checkpoints.save(Path(folder), "a run's", self.saved[1])
            resumed = Following(self.progress.append, resumed=checkpoints.load(Path(folder), "a run's"))
        self.resumed = execute(case.name, case.run, SEED, inline, resumed)


@cache
def runs(case: Case, inline: bool = True) -> Runs:
    return Runs(case, inline)


def _replay(outcome: Outcome) -> dict:
    """Replay the schedule of an inline run: where timing depends on values, `execute` never replays."""
    run, schedule = outcome.run, outcome.schedule
    assert run.task is not None
    maths = (problem := Problem(run.task, run, outcome.seed)).arithmetic
    program = lower(schedule, np.array([len(schedule)]), maths.blocks.group_of_each, maths.hooks, turns=maths.stores_gradients)
    (mark,) = replay(program, maths, problem.models, problem.examples, problem.batches)
    answer = maths.answer(states_at(program, 0, mark, maths, problem.layout.answer))
    leaves = jax.tree.leaves_with_path(answer)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in leaves}


def parameters(cases: Sequence[Case] = CASES, replayed: bool = False) -> list[Any]:
    """Return cases as parameters of a test; variants are slow, and most of those that are `replayed`."""

    def is_slow(case: Case) -> bool:
        variant = case.name != case.entry or case.name in SLOW.get(case.kind, "").split()
        if case.kind == "protocol":  # an algorithm's case has it, too
            variant = case.name not in ("dispatcher", *REPLAYED["protocol"].split())
        return variant or (replayed and case.name not in REPLAYED[case.kind].split())

    marks: list[Any] = [pytest.mark.slow if is_slow(case) else () for case in cases]
    return [pytest.param(case, id=f"{case.kind}-{case.name}", marks=mark) for case, mark in zip(cases, marks, strict=True)]


def test_every_entry_of_the_registry_has_a_case():
    for kind in TABLES:
        assert {case.entry for case in CASES if case.kind == kind} == registry.REGISTRY[kind].keys()
        assert registry.REGISTRY[kind].keys() >= {*REPLAYED[kind].split(), *SLOW.get(kind, "").split()}


class TestEveryCase:
    @pytest.mark.parametrize("case", parameters())
    def test_it_reaches_what_it_is_to_check(self, case):
        outcome = runs(case).whole
        for shows in case.shows:
            assert shows(outcome), shows.__doc__
        assert np.isfinite(outcome.metrics["loss"]).all()
        assert outcome.metrics["loss"].iloc[-1] < 0.9 * outcome.metrics["loss"].iloc[0]

    @pytest.mark.parametrize("case", parameters())
    def test_resumed_inline_is_uninterrupted(self, case):
        assert len(runs(case).saved) >= 3
        assert same_outcome(runs(case).resumed, runs(case).whole)

    @pytest.mark.parametrize("case", parameters(replayed=True))
    def test_inline_is_replay(self, case):
        inline, replayed = runs(case).whole, runs(case, inline=False).whole
        assert same_outcome(inline, replayed)
        if case.run.protocol.needs_values:
            final = _replay(inline)
            assert all(np.array_equal(final[k], inline.final[k]) for k in inline.final)

    @pytest.mark.parametrize("case", parameters(replayed=True))
    def test_resumed_is_uninterrupted(self, case):
        results = runs(case, inline=False)
        assert len(results.saved) >= 3
        assert same_outcome(results.resumed, results.whole)
        if not case.run.protocol.needs_values:
            assert len(results.progress) == len(results.whole.metrics) - 2, "what was measured is not measured again"

    @pytest.mark.parametrize("case", parameters())
    def test_numpy_recomputes_it(self, case):
        outcome, algorithm = runs(case).whole, registry.name_of("algorithm", case.run.algorithm)
        assert algorithm in PLAIN_CLASSES, f"tell NumPy what `{algorithm}` does: a class and a line of the table in tests/plain"
        recomputation = PLAIN_CLASSES[algorithm]
        tolerance = max(recomputation.tolerance, case.tolerance)
        params, models, servers = recompute_run(outcome)
        assert largest_relative_error(outcome.final, params) < tolerance
        assert any(server.reached for server in servers), "the run does not reach all of the rule"
        self.check_measurements(outcome, params, models)
        if recomputation is not Plain and recomputation.own_steps:
            other = recompute_run(outcome, Plain).params
            assert largest_relative_error(outcome.final, other) > 100 * tolerance, "plain steps have the same result"

    def check_measurements(self, outcome, params, models):
        last, evaluation = outcome.metrics.iloc[-1], outcome.run.task.data.load(outcome.seed).evaluation
        loss, error = measure(params, evaluation.inputs, evaluation.answers)
        assert last["loss"] == pytest.approx(loss, rel=1e-3)
        assert last["error"] == pytest.approx(error, abs=0.015), "but for one answer of a hundred"
        if len(models) > 1:
            mean = {k: np.mean([model[k] for model in models], axis=0) for k in models[0]}
            distances = [sum(((model[k] - mean[k]) ** 2).sum() for k in mean) for model in models]
            assert last["disagreement"] == pytest.approx(np.sqrt(np.mean(distances)), rel=1e-3, abs=1e-5)


def test_another_seed_gives_another_run():
    case = next(case for case in CASES if case.name == "asgd")
    other = execute("other", case.run, SEED + 1)
    assert other.params_digest != runs(case).whole.params_digest
    assert other.schedule_digest != runs(case).whole.schedule_digest


@pytest.mark.parametrize("case", parameters(pinned_cases()))
def test_its_digests_are_the_pinned_ones(case):
    pinned = json.loads(GOLDEN.read_text())
    if differences := compare_environment(pinned["environment"]):
        pytest.skip(f"not the locked environment ({'; '.join(differences)}): the pinned digests do not apply")
    assert digests_of(runs(case).whole) == pinned["digests"][f"{case.kind}/{case.name}"]
