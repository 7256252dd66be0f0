"""Systems that bound, answer or avoid delays: the delays they permit, when they do what, and the models of their papers."""

import math
import re
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fred
from fred import batch_indices
from fred.components import registry
from fred.learning.data.dataset import Noise
from fred.learning.models.built_in_models import Quadratic
from fred.learning.optimizer import Transformation
from fred.outcomes.outcome import Outcome
from fred.running.execution import execute
from fred.schedule.schedule import Schedule, Verb
from fred.systems.delays import ClippedASGD
from tests.conftest import ROOT
from tests.plain.rounds import Muon
from tests.recompute import PlainSGD, largest_relative_error, recompute_by
from tests.worlds import CLUSTERS, LAYERS, UNEQUAL, constant, make_run, outcome

FIVE = UNEQUAL | {"workers": 5}
LATE = st.sampled_from(["interrupt", "finish"])
MATRIX = (2 * np.eye(7) - np.eye(7, k=1) - np.eye(7, k=-1)) / 4  # of a quadratic
B = np.eye(7)[0] / -4


def record_run(cluster: Any, protocol: dict[str, Any], seed: int) -> Schedule:
    return outcome("asgd", protocol, cluster.model_dump(), seed, stop={"updates": 40}, task=None).schedule


def changes(run: Outcome, *verbs: Verb, replica: int = 4) -> list[float]:
    rows = run.schedule.rows(*verbs)
    return (run.schedule["time_ns"][rows][run.schedule["replica"][rows] == replica] / 1e9).round(6).tolist()


class TestDelays:
    @given(cluster=CLUSTERS, threshold=st.integers(1, 12), late=LATE, seed=st.integers(0, 9))
    def test_no_gradient_that_ringmaster_uses_is_as_old_as_its_bound(self, cluster, threshold, late, seed):
        schedule = record_run(cluster, {"name": "bounded-delay", "threshold": threshold, "late": late}, seed)
        assert schedule["staleness"][schedule.rows(Verb.PUSH)].max(initial=0) < threshold
        assert schedule.counts()["updates"] == 40

    def test_its_default_bound_grows_with_the_root_of_the_updates(self):
        schedule = outcome("ringmaster", {"threshold": "sqrt"}, FIVE, stop={"updates": 300}, task=None).schedule
        staleness = schedule["staleness"][schedule.rows(Verb.PUSH)]
        assert all(age < max(1, math.isqrt(number)) for number, age in enumerate(staleness))
        assert staleness.max() >= 5

    @given(cluster=CLUSTERS, batch=st.integers(1, 12), late=LATE, seed=st.integers(0, 9))
    def test_rennalas_rounds_have_batch_gradients_and_none_is_stale(self, cluster, batch, late, seed):
        schedule = record_run(cluster, {"name": "fresh-batch", "batch": batch, "late": late}, seed)
        assert schedule["staleness"][schedule.rows(Verb.ADD)].max() == 0
        rounds = np.diff(np.searchsorted(schedule.rows(Verb.ADD), schedule.rows(Verb.COMMIT)), prepend=0)
        assert set(rounds.tolist()) == {batch}

    @given(cluster=CLUSTERS, batch=st.integers(0, 20), seed=st.integers(0, 9))
    def test_malenia_weighs_all_workers_alike_and_ends_no_round_too_early(self, cluster, batch, seed):
        schedule = record_run(cluster, {"name": "fresh-from-all", "batch": batch}, seed)
        adds, ends = schedule.rows(Verb.ADD), schedule.rows(Verb.COMMIT)
        assert schedule["staleness"][adds].max() == 0
        for rows in np.split(adds, np.searchsorted(adds, ends))[: len(ends)]:
            numbers = Counter(schedule["worker"][rows].tolist())
            shares = np.bincount(schedule["worker"][rows], schedule["weight"][rows], schedule.workers)
            assert np.allclose(shares, 1 / schedule.workers)
            assert schedule.workers / sum(1 / number for number in numbers.values()) > batch / schedule.workers

    def test_work_on_too_old_a_model_is_interrupted_at_once_and_counts_as_wasted(self):
        """Worker 1 takes 1 s; worker 0 makes an update every 0.25 s, so worker 1 is interrupted after every third one."""
        run = outcome("ringmaster", {"threshold": 3}, constant(0.25, 1.0), stop={"seconds": 6.1}, task=None)
        drops = run.schedule.rows(Verb.DROP)
        assert run.schedule["time_ns"][drops].tolist() == [round(0.75e9 * k) for k in range(1, 9)]
        assert set(run.schedule["worker"][drops].tolist()) == {1}
        assert run.summary["workers_time"]["wasted"] == pytest.approx(6.0 / 12.2)

    def test_ringleader_steps_once_for_each_worker_in_a_round_and_no_gradient_is_older_than_2n_2(self):
        """Parameters change at the arrivals at which each worker has its turn: counted from the schedule alone."""
        schedule = outcome("ringleader", None, FIVE, stop={"updates": 400}, task=None).schedule
        had_turn, contributors, after, changes, read, oldest = set[int](), set[int](), set[int](), 0, dict[int, int](), 0
        row: Any
        for row in schedule.frame().itertuples():
            if row.verb == "PULL":
                read[row.mailbox] = changes
            elif row.verb == "PUSH" and row.worker in had_turn:
                after.add(row.worker)
            elif row.verb == "PUSH":
                contributors.add(row.worker)
                if len(contributors) == 5:
                    oldest = max(oldest, changes - read[row.mailbox])
                    changes += 1
                    had_turn.add(row.worker)
                if len(had_turn) == 5:
                    had_turn, contributors, after = set(), after, set()
        assert changes > 50
        assert 5 - 1 <= oldest <= 2 * 5 - 2


class TestLocalSums:
    def test_groups_come_in_turn(self):
        schedule = outcome("cycle", {"group_size": 2}, constant(*[0.5] * 4), stop={"seconds": 3.75}, task=None).schedule
        rows = schedule.rows(Verb.ADD)
        assert (schedule["time_ns"][rows] / 1e9).tolist() == np.arange(0.5, 3.75, 0.5).repeat(2).tolist()
        assert schedule["worker"][rows].tolist() == [0, 1, 2, 3] * 3 + [0, 1]

    def test_all_stop_when_there_are_enough_steps(self):
        """Ten steps: the fast three make three each by 1.5 s; the slow one, which takes 1.6 s, makes the tenth."""
        run = outcome("birch-local", {"total": 10}, constant(0.5, 0.5, 0.5, 1.6), stop={"seconds": 4.2}, task=None)
        assert changes(run, Verb.COMMIT) == [1.6, 3.2]
        aborted = [changes(run, Verb.DROP, replica=worker) for worker in range(4)]
        assert aborted == [[1.6, 3.2]] * 3 + [[]], "the next ones of the fast"
        assert np.bincount(run.schedule["worker"][run.schedule.rows(Verb.PUSH)][:10]).tolist() == [3, 3, 3, 1]

    def test_sums_beyond_the_bound_are_dropped(self):
        slow = constant(0.5, 0.5, 0.5, 5.0)
        for bound, dropped in ((10, 4), (None, 0)):
            run = outcome("async-local", {"steps": 2, "bound": bound}, slow, stop={"seconds": 40.5}, task=None)
            rows = run.schedule.rows(Verb.DROP)
            assert run.schedule["worker"][rows].tolist() == [3] * dropped, "10 s for two steps, in which others make 60"

    @pytest.mark.parametrize(("name", "server"), [("async-local", 2), ("async-batch", 0)])
    def test_a_sum_is_as_old_as_the_reading_of_its_model(self, name, server):
        """Two workers at 4 and 1 gradients/s, 1 s each way: the bound drops some of the slow one's sums.

        Sums of the fast one arrive at 2.5, 5, ...: one or two, 2 or 4 gradients, in each 4 s after which one of the slow arrives.
        """
        cluster = constant(0.25, 1.0, network={"latency": {"name": "constant", "seconds": 1.0}})
        schedule = outcome(name, {"steps": 2, "bound": 3}, cluster, stop={"seconds": 19.0}, task=None).schedule
        of_slow = (schedule["worker"] == 1) & (schedule["replica"] == server)
        read, fast = np.arange(0.0, 13.0, 4.0), np.arange(2.5, 19.0, 2.5)
        ages = 2 * ((fast >= read[:, None]) & (fast < read[:, None] + 4.0)).sum(axis=1)
        for verb, mask in ((Verb.DROP, ages > 3), (Verb.ADD, ages <= 3)):
            rows = schedule.rows(verb)
            assert np.unique(schedule["time_ns"][rows[of_slow[rows]]] / 1e9).tolist() == (read[mask] + 4.0).tolist()
            assert mask.sum() == 2


class TestQuadratic:
    def test_its_value_and_gradient_are_those_of_the_matrix(self):
        x, noise = np.random.default_rng(0).normal(size=7), jnp.float32([[0.5], [0.0]])
        apply, params = jax.jit(Quadratic(dimension=7).apply), {"x": jnp.float32(x)}
        value, gradient = x @ MATRIX @ x / 2 - B @ x + B @ np.linalg.solve(MATRIX, B) / 2, MATRIX @ x - B
        expected = [[value + 0.5 * x.sum(), gradient @ gradient], [value, gradient @ gradient]]
        np.testing.assert_allclose(apply(params, noise), expected, rtol=1e-5)
        slope = jax.grad(lambda params: apply(params, noise)[0, 0])(params)
        np.testing.assert_allclose(slope["x"], gradient + 0.5, rtol=1e-5, atol=1e-6)

    def test_it_starts_where_its_option_says(self):
        for start, first in ((None, 7**0.5), (0.0, 0.0), (-2.5, -2.5)):
            x = Quadratic(dimension=7, start=start).init(jax.random.key(0), (1,), 2)["x"]
            np.testing.assert_allclose(x, first * np.eye(7)[0], rtol=1e-6)

    def test_ringmaster_on_it_goes_as_its_schedule_says(self):
        task = {"data": {"name": "noise", "features": 7}, "model": {"name": "quadratic", "dimension": 7}, "loss": "value"}
        run = outcome("ringmaster", {"threshold": 4}, FIVE, task=task | {"batch_size": 2}, stop={"updates": 40})
        x, read, noise = run.initial["x"].astype(float), {}, Noise(features=7).load(3).train.inputs
        row: Any
        for row in run.schedule.frame().itertuples():
            if row.verb == "PULL":
                read[row.mailbox] = x
            elif row.verb == "PUSH":
                batch_noise = noise[batch_indices(3, row.worker, row.step, batch_size=2, examples=len(noise))]
                x = x - 0.125 * (MATRIX @ read[row.mailbox] - B + batch_noise.mean(axis=0))
        np.testing.assert_allclose(run.final["x"], x, rtol=1e-4)
        lengths = [np.sum((MATRIX @ point - B) ** 2) for point in (run.initial["x"], x)]
        np.testing.assert_allclose(run.metrics["error"].iloc[[0, -1]], lengths, rtol=1e-3)


def test_a_gradient_is_clipped_to_its_length_however_long_it_is():
    server = ClippedASGD(learning_rate=1.0, length=1.0)
    state, update = server.init({"w": jnp.zeros(2)}, workers=2), jax.jit(server.apply_update)
    for length in (3.0, 1e18, 1e20, 5e37):
        stepped = update(state, {"w": jnp.array([length, 0.0])}, timestamp=0, worker=0).params["w"]
        assert stepped.tolist() == pytest.approx([-1.0, 0.0], rel=1e-6), length


def test_optimizers_that_optax_makes_of_another_with_an_option_have_names():
    assert all(Transformation(name=name, b1=0.99).takes_rate for name in ("nadam", "nadamw"))


class PlainParameterFree(PlainSGD):
    """Sadiev et al. 2026: momentum of weight (k + 1)^-1/2, steps of length rate (k + 1)^-3/4 by Muon's oracle, or by signs."""

    def __init__(self, params: dict, rate: float):
        super().__init__(params, rate)
        self.momentum, self.updates = dict.fromkeys(params, 0.0), 0

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        number = self.updates + 1
        assert staleness < max(1, math.isqrt(self.updates)), "R"
        for name, g in grads.items():
            momentum = self.momentum[name] = (1 - number**-0.5) * self.momentum[name] + number**-0.5 * g
            wide = np.sqrt(max(1.0, g.shape[-1] / g.shape[0]))
            step = wide * Muon.orthogonal(momentum) if g.ndim == 2 else np.sign(momentum)
            self.params = self.params | {name: self.params[name] - self.rate * number**-0.75 * step}
        self.updates = number


@pytest.mark.slow
def test_the_shipped_ringmaster_without_parameters_has_all_three_parts():
    shipped = fred.load(ROOT / "scenarios" / "systems" / "ringmaster-muon.yaml").runs["parameter-free"]
    options = {"algorithm": shipped.algorithm, "protocol": shipped.protocol}
    run = execute("run", make_run(cluster=FIVE, task=LAYERS, stop={"updates": 120}).model_copy(update=options), 3)
    (params,) = recompute_by(run, [PlainParameterFree({k: v.astype(float) for k, v in run.initial.items()}, 0.3)])
    assert largest_relative_error(run.final, params) < 1e-3
    assert run.schedule["staleness"][run.schedule.rows(Verb.PUSH)].max() >= 3


TABLES = "ia2sgd", "ringleader"  # servers that keep a gradient of each worker


@pytest.mark.parametrize(("name", "rest"), [("asgd", 0.75), ("ia2sgd", 2.0), ("ringleader", 2.0)])
def test_where_tables_settle_does_not_depend_on_the_speeds_of_workers(name, rest):
    """Optima of two workers at 0 and 4, the first of which is about four times as fast: the mean, or one nearer to 0."""
    server = registry.lookup("algorithm", name)(learning_rate=0.02)
    update, state, read = jax.jit(server.apply_update), server.init({"w": jnp.zeros(1)}, workers=2), [jnp.zeros(1)] * 2
    for arrival in range(1500):
        worker = int(arrival % 5 == 4)
        state = update(state, {"w": read[worker] - 4.0 * worker}, 0, worker)
        read[worker] = state.params["w"]
    assert float(state.params["w"][0]) == pytest.approx(rest, abs=0.1)


@pytest.mark.parametrize("name", TABLES)
def test_a_loop_of_updates_never_copies_the_table(name):
    """The program is compiled for 300 workers, but does not run."""
    server = registry.lookup("algorithm", name)(learning_rate=0.1)
    model = {"w": jax.ShapeDtypeStruct((30, 20), jnp.float32)}
    state = jax.eval_shape(lambda params: server.init(params, 300), model)

    @partial(jax.jit, donate_argnums=0)
    def run(state, gradient):
        return jax.lax.fori_loop(0, 9, lambda i, state: server.apply_update(state, gradient, i, i % 300), state)

    compiled = run.lower(state, model).compile().as_text() or ""
    assert "f32[300,30,20]" in compiled
    assert not re.search(r"= f32\[300,30,20\]\S* copy\(", compiled)


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc/self/status")
@pytest.mark.parametrize("name", TABLES)
def test_tables_of_a_thousand_workers_fit_into_four_gibibytes(name):
    """784-200-10: 159,010 parameters; a table is 0.6 GB. Measured in a process of its own."""
    data = {"name": "synthetic-classification", "features": 784, "examples": 300, "evaluation": 60}
    task = {"data": data, "model": {"name": "mlp", "hidden": [200]}, "batch_size": 1}
    cluster = {"workers": 1000, "compute": {"name": "constant", "seconds": 0.1}}
    program = f"""
import fred
algorithm = {{"name": "{name}", "learning_rate": 0.01}}
fred.run(fred.scenario(task={task}, cluster={cluster}, stop={{"updates": 1200}}, algorithm=algorithm))
status = open("/proc/self/status").read()  # resource.getrusage would count the memory of the test's own process, too
print(int(status.split("VmHWM:")[1].split()[0]) * 1024)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    peak = int(done.stdout.split()[-1])
    assert (1000 * 159_010 * 4) < peak < 4 * 2**30, np.round(peak / 2**30, 2)
