"""The contract of each algorithm, protocol, codec and cutoff rule of the registry, on the cases of `tests/cases.py`.

Inline and replay give the same bits. A run that resumes from a checkpoint gives these bits, too. NumPy gives the same numbers.
"""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import numpy as np
import pytest

from fred.components import registry
from fred.outcomes.computed import Computed
from fred.outcomes.outcome import Outcome
from fred.replay.helpers import replay
from fred.replay.lower import lower
from fred.replay.machine import states_at
from fred.running import checkpoints
from fred.running.checkpoints import Checkpoint, Following
from fred.running.execution import execute
from fred.running.problem import Problem
from tests.cases import CASES, SEED, TABLES, Case
from tests.golden import GOLDEN, digests_of, locked, pinned_cases
from tests.plain import PLAIN, recomputed
from tests.plain.base import Plain
from tests.recompute import largest_relative_error, measured
from tests.worlds import same


class Runs:
    """All runs of a case, one right after the other, so that they share compiled programs."""

    def __init__(self, case: Case):
        self.case = case
        self.kept: list[Checkpoint] = []
        self.kept_inline: list[Checkpoint] = []
        self.replayed = self.run()
        self.inline = self.run(inline=True, following=Following(save=self.kept_inline.append))
        self.again = self.run(following=Following(save=self.kept.append))
        self.looked: list[float] = []
        self.resumed = self.run(following=Following(self.looked.append, resumed=_from_a_file(self.kept[1])))
        self.resumed_inline = self.run(inline=True, following=Following(resumed=_from_a_file(self.kept_inline[1])))
        self.other = self.run(seed=SEED + 1)
        self.from_its_schedule = _replayed(self.inline) if case.run.protocol.needs_values else self.inline.final

    def run(self, seed: int = SEED, inline: bool = False, following: Following | None = None) -> Computed:
        """Run the case."""
        return execute(self.case.name, self.case.run, seed, inline, following or Following())


@cache
def runs(case: Case) -> Runs:
    """Run a case, once for all tests."""
    return Runs(case)


def _from_a_file(checkpoint: Checkpoint) -> Checkpoint:
    """Return what another process finds."""
    with TemporaryDirectory() as folder:
        checkpoints.save(Path(folder), "a run's", checkpoint)
        found = checkpoints.load(Path(folder), "a run's")
    assert found is not None
    return found


def _replayed(outcome: Outcome) -> dict:
    """Replay the schedule of an inline run: where timing depends on values, `execute` never replays."""
    run, schedule = outcome.run, outcome.schedule
    assert run.task is not None
    problem = Problem(run.task, run, outcome.seed)
    do = problem.arithmetic
    program = lower(schedule, np.array([len(schedule)]), do.blocks.group_of_each, do.hooks, turns=do.small)
    (mark,) = replay(program, do, problem.models, problem.examples, problem.batches)
    answer = do.answer(states_at(program, 0, mark, do, problem.layout.answer))
    leaves = jax.tree.leaves_with_path(answer)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in leaves}


def test_every_entry_of_the_registry_has_a_case():
    for kind in TABLES:
        assert {case.entry for case in CASES if case.kind == kind} == registry.REGISTRY[kind].keys()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}-{case.name}")
class TestEveryCase:
    def test_it_reaches_what_it_is_to_check(self, case):
        found = runs(case).replayed
        for shows in case.shows:
            assert shows(found), shows.__doc__
        assert np.isfinite(found.metrics["loss"]).all()
        assert found.metrics["loss"].iloc[-1] < 0.9 * found.metrics["loss"].iloc[0]

    def test_inline_is_replay(self, case):
        found = runs(case)
        assert same(found.inline, found.replayed)
        assert all(np.array_equal(found.from_its_schedule[k], found.inline.final[k]) for k in found.inline.final)

    def test_it_is_the_same_twice_and_another_with_another_seed(self, case):
        found = runs(case)
        assert same(found.again, found.replayed)
        assert found.other.params_digest != found.replayed.params_digest

    def test_resumed_is_uninterrupted(self, case):
        found = runs(case)
        assert min(len(found.kept), len(found.kept_inline)) >= 3
        assert same(found.resumed, found.replayed)
        assert same(found.resumed_inline, found.replayed)
        if not case.run.protocol.needs_values:
            assert len(found.looked) == len(found.replayed.metrics) - 2, "what was measured is not measured again"

    def test_numpy_recomputes_it(self, case):
        found, algorithm = runs(case).replayed, registry.name_of("algorithm", case.run.algorithm)
        assert algorithm in PLAIN, (
            f"tell NumPy what `{algorithm}` does: a class and a line of the table of a file in tests/plain"
        )
        plain = PLAIN[algorithm]
        tolerance = max(plain.tolerance, case.tolerance)
        params, models, servers = recomputed(found)
        assert largest_relative_error(found.final, params) < tolerance
        assert any(server.reached for server in servers), "the run does not reach all of the rule"
        self.check_what_is_measured(found, params, models)
        if plain is not Plain and plain.own_steps:
            other = recomputed(found, Plain).params
            assert largest_relative_error(found.final, other) > 100 * tolerance, "plain steps have the same result"

    def check_what_is_measured(self, found, params, models):
        last, evaluation = found.metrics.iloc[-1], found.run.task.data.load(found.seed).evaluation
        loss, error = measured(params, evaluation.inputs, evaluation.answers)
        assert last["loss"] == pytest.approx(loss, rel=1e-3)
        assert last["error"] == pytest.approx(error, abs=0.015), "but for one answer of a hundred"
        if len(models) > 1:
            mean = {k: np.mean([model[k] for model in models], axis=0) for k in models[0]}
            apart = [sum(((model[k] - mean[k]) ** 2).sum() for k in mean) for model in models]
            assert last["disagreement"] == pytest.approx(np.sqrt(np.mean(apart)), rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("case", pinned_cases(), ids=lambda case: f"{case.kind}-{case.name}")
def test_its_digests_are_the_pinned_ones(case):
    pinned = json.loads(GOLDEN.read_text())
    if differences := locked(pinned["environment"]):
        pytest.skip(f"not the locked environment ({'; '.join(differences)}): the pinned digests do not apply")
    assert digests_of(runs(case).replayed) == pinned["digests"][f"{case.kind}/{case.name}"]
