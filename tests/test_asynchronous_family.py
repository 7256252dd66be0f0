"""Systems that bound, answer or avoid delays: what they are the same as, what theory says of them, and NumPy's word on each."""

import math
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fred import batch_indices
from fred.base.errors import FredError
from fred.learning.data.synthetic import Noise
from fred.learning.models.quadratic import Quadratic
from fred.outcomes.outcome import Outcome
from fred.running.execution import execute
from fred.schedule.schedule import Schedule, Verb
from fred.systems.delays import ClippedASGD
from tests.recompute import largest_relative_error
from tests.worlds import CLUSTERS, COMPUTE, make_run, same

UNEQUAL = {"workers": 5, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.7}}
NETWORK = {"latency": {"name": "exponential", "scale": 0.02}, "bandwidth": 1e5}


def outcome(algorithm: Any, protocol: Any = None, cluster: Any = UNEQUAL, inline: bool = False, **options: Any) -> Outcome:
    algorithm = {"learning_rate": 0.1, **({"name": algorithm} if isinstance(algorithm, str) else algorithm)}
    options = {"stop": {"updates": 60}, **options}
    return execute("run", make_run(algorithm, protocol=protocol, cluster=cluster, **options), 3, inline)


@pytest.mark.slow
class TestSame:
    """To the last bit."""

    def test_with_one_gradient_at_each_model_three_systems_are_one(self):
        master = outcome("ringmaster", {"name": "bounded-delay", "threshold": 1})
        rennala = outcome("rennala", {"name": "fresh-batch", "batch": 1})
        sync = outcome("m-sync", {"name": "synchronous", "backup_workers": 4, "late": "interrupt"})
        assert master.params_digest == rennala.params_digest == sync.params_digest
        assert master.schedule.end_ns == rennala.schedule.end_ns == sync.schedule.end_ns

    @pytest.mark.parametrize("late", ["finish", "interrupt"])
    def test_batches_of_one_are_synchronous_with_all_others_as_backup(self, late):
        """A model that became old on its way is computed at as well: with `finish` nobody says so before the delivery."""
        cluster = UNEQUAL | {"network": NETWORK}
        fresh = outcome("rennala", {"name": "fresh-batch", "batch": 1, "late": late}, cluster)
        sync = outcome("ssgd", {"name": "synchronous", "backup_workers": 4, "late": late}, cluster)
        assert fresh.schedule.digest() == sync.schedule.digest()
        assert same(fresh, sync)

    @pytest.mark.parametrize("network", [None, NETWORK])
    def test_without_a_bound_ringmaster_is_asynchronous(self, network):
        cluster = UNEQUAL | ({"network": network} if network else {})
        master, asgd = (
            outcome("ringmaster", {"name": "bounded-delay", "threshold": 10**6}, cluster),
            outcome("asgd", None, cluster),
        )
        assert master.schedule.digest() == asgd.schedule.digest()
        assert same(master, asgd)

    def test_k_async_of_all_is_synchronous(self):
        k_async = outcome("k-async", {"name": "softsync", "gradients": 5, "afterwards": "wait"})
        assert k_async.params_digest == outcome("ssgd").params_digest

    def test_k_batch_async_of_one_is_asynchronous(self):
        assert same(outcome("k-batch-async", {"name": "softsync", "gradients": 1}), outcome("asgd"))

    @pytest.mark.parametrize(
        "algorithm",
        [
            {"name": "clipped-asgd", "length": 1e9},
            {"name": "picky-sgd", "distance": 1e9},
            {"name": "delay-adaptive"},
        ],
        ids=lambda algorithm: algorithm["name"],
    )
    def test_what_never_has_to_answer_is_asgd(self, algorithm):
        """Two workers of equal speed, whose gradients are never staler than there are workers."""
        cluster = {"workers": 2, "compute": {"name": "constant", "seconds": 0.1}}
        assert same(outcome(algorithm, None, cluster), outcome("asgd", None, cluster))

    def test_nothing_is_compensated_where_nothing_is_stale(self):
        cluster = {"workers": 1, "compute": COMPUTE}
        assert same(outcome({"name": "dc-asgd", "compensation": 9.0}, None, cluster), outcome("asgd", None, cluster))

    def test_malenia_with_equal_times_is_synchronous(self):
        """But for the last digit: shares of a mean are added up, instead of divided in the end."""
        cluster = {"workers": 5, "compute": {"name": "constant", "seconds": 0.1}}
        malenia, ssgd = outcome("malenia", None, cluster), outcome("ssgd", None, cluster)
        assert largest_relative_error(malenia.final, ssgd.final) < 1e-5
        assert malenia.schedule.end_ns == ssgd.schedule.end_ns


class TestDelays:
    """Whatever the cluster."""

    @given(
        cluster=CLUSTERS, threshold=st.integers(1, 12), late=st.sampled_from(["interrupt", "finish"]), seed=st.integers(0, 9)
    )
    def test_nothing_that_ringmaster_uses_is_as_old_as_its_bound(self, cluster, threshold, late, seed):
        schedule = recorded(cluster, {"name": "bounded-delay", "threshold": threshold, "late": late}, seed)
        pushes = schedule.rows(Verb.PUSH)
        assert schedule["staleness"][pushes].max(initial=0) < threshold
        assert schedule.counts()["updates"] == 40

    def test_its_own_bound_grows_with_the_root_of_the_updates(self):
        schedule = outcome("ringmaster", {"name": "bounded-delay", "threshold": "sqrt"}, stop={"updates": 300}).schedule
        staleness = schedule["staleness"][schedule.rows(Verb.PUSH)]
        assert all(each < max(1, math.isqrt(number)) for number, each in enumerate(staleness))
        assert staleness.max() >= 5

    @given(cluster=CLUSTERS, batch=st.integers(1, 12), late=st.sampled_from(["interrupt", "finish"]), seed=st.integers(0, 9))
    def test_rennalas_rounds_have_so_many_gradients_and_none_is_stale(self, cluster, batch, late, seed):
        schedule = recorded(cluster, {"name": "fresh-batch", "batch": batch, "late": late}, seed)
        assert schedule["staleness"][schedule.rows(Verb.ADD)].max() == 0
        rounds = np.diff(np.searchsorted(schedule.rows(Verb.ADD), schedule.rows(Verb.COMMIT)), prepend=0)
        assert set(rounds.tolist()) == {batch}

    @given(cluster=CLUSTERS, batch=st.integers(0, 20), seed=st.integers(0, 9))
    def test_malenia_weighs_all_workers_alike_and_ends_no_round_too_early(self, cluster, batch, seed):
        schedule = recorded(cluster, {"name": "fresh-from-all", "batch": batch}, seed)
        adds, ends = schedule.rows(Verb.ADD), schedule.rows(Verb.COMMIT)
        assert schedule["staleness"][adds].max() == 0
        for own in np.split(adds, np.searchsorted(adds, ends))[: len(ends)]:
            numbers = Counter(schedule["worker"][own].tolist())
            shares = np.bincount(schedule["worker"][own], schedule["weight"][own], schedule.workers)
            assert np.allclose(shares, 1 / schedule.workers)
            assert schedule.workers / sum(1 / each for each in numbers.values()) > batch / schedule.workers

    def test_who_is_too_old_is_told_at_once_and_its_work_counts_as_lost(self):
        """Worker 1 takes 1 s; worker 0 makes an update every 0.25 s, so that it is told after the third, again and again."""
        cluster = {"workers": 2, "speeds": [1.0, 0.25], "compute": {"name": "constant", "seconds": 0.25}}
        run = make_run(
            "ringmaster", protocol={"name": "bounded-delay", "threshold": 3}, cluster=cluster, stop={"seconds": 6.1}, task=None
        )
        result = execute("run", run, 0)
        drops = result.schedule.rows(Verb.DROP)
        assert result.schedule["time_ns"][drops].tolist() == [round(0.75e9 * k) for k in range(1, 9)]
        assert set(result.schedule["worker"][drops].tolist()) == {1}
        assert result.summary["workers_time"]["wasted"] == pytest.approx(6.0 / 12.2)


def recorded(cluster: Any, protocol: dict[str, Any], seed: int) -> Schedule:
    run = make_run("asgd", cluster=cluster.model_dump(), protocol=protocol, stop={"updates": 40}, task=None)
    return execute("run", run, seed).schedule


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ({"n": 2, "gradients": 3}, "`n` and `gradients` both set"),
        ({"gradients": 6, "afterwards": "wait"}, r"`gradients` \(6\) must not exceed the number of workers \(5\)"),
        ({"name": "bounded-delay", "threshold": 0}, "threshold"),
        ({"name": "fresh-batch", "batch": 0}, "batch"),
    ],
)
def test_what_cannot_be_is_refused(protocol, said):
    with pytest.raises(FredError, match=said):
        outcome("k-async", {"name": "softsync", **protocol})


class TestQuadratic:
    """f(x) - min f, of which all is known."""

    def test_its_value_and_gradient_are_those_of_the_matrix(self):
        d = 7
        matrix = (2 * np.eye(d) - np.eye(d, k=1) - np.eye(d, k=-1)) / 4
        b = np.zeros(d)
        b[0] = -1 / 4
        least = -b @ np.linalg.solve(matrix, b) / 2
        x = np.random.default_rng(0).normal(size=d)
        noise = np.array([[0.5], [0.0]])
        found = Quadratic(dimension=d).apply({"x": jnp.float32(x)}, jnp.float32(noise))
        value, gradient = x @ matrix @ x / 2 - b @ x - least, matrix @ x - b
        np.testing.assert_allclose(
            found, [[value + 0.5 * x.sum(), gradient @ gradient], [value, gradient @ gradient]], rtol=1e-5
        )
        slope = jax.grad(lambda params: Quadratic(dimension=d).apply(params, jnp.float32(noise))[0, 0])({"x": jnp.float32(x)})
        np.testing.assert_allclose(slope["x"], gradient + 0.5, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize(("start", "first"), [(None, 7**0.5), (0.0, 0.0), (-2.5, -2.5)])
    def test_it_starts_where_it_is_told(self, start, first):
        found = Quadratic(dimension=7, start=start).init(jax.random.key(0), (1,), 2)["x"]
        np.testing.assert_allclose(found, first * np.eye(7)[0], rtol=1e-6)

    def test_noise_of_another_size_is_refused(self):
        task = {"data": {"name": "noise", "features": 3}, "model": {"name": "quadratic", "dimension": 6}, "loss": "value"}
        with pytest.raises(FredError, match="dimension 6 has inputs of 3 numbers; expected 1"):
            outcome("asgd", task=task)

    def test_gradient_descent_goes_as_numpys_and_asynchronous_sgd_as_its_schedule_says(self):
        task = {"data": {"name": "noise", "features": 6}, "model": {"name": "quadratic", "dimension": 6}, "loss": "value"}
        found = outcome(
            "ringmaster", {"name": "bounded-delay", "threshold": 4}, task=task | {"batch_size": 2}, stop={"updates": 40}
        )
        matrix = (2 * np.eye(6) - np.eye(6, k=1) - np.eye(6, k=-1)) / 4
        x, read, noise = found.initial["x"].astype(float), {}, Noise(features=6).load(3).train.inputs
        row: Any
        for row in found.schedule.frame().itertuples():
            if row.verb == "PULL":
                read[row.mailbox] = x
            elif row.verb == "PUSH":
                seen = noise[batch_indices(3, row.worker, row.step, batch_size=2, examples=len(noise))]
                x = x - 0.1 * (matrix @ read[row.mailbox] + np.eye(6)[0] / 4 + seen.mean(axis=0))
        np.testing.assert_allclose(found.final["x"], x, rtol=1e-4)
        lengths = np.array([found.metrics["error"].iloc[0], found.metrics["error"].iloc[-1]])
        ends = [matrix @ each + np.eye(6)[0] / 4 for each in (found.initial["x"].astype(float), x)]
        np.testing.assert_allclose(lengths, [each @ each for each in ends], rtol=1e-3)


@pytest.mark.parametrize("length", [3.0, 1e18, 1e20, 5e37])
def test_a_gradient_is_clipped_to_its_length_however_long_it_is(length):
    server = ClippedASGD(learning_rate=1.0, length=1.0)
    state = server.init({"w": jnp.zeros(2)}, workers=2)
    stepped = server.apply_update(state, {"w": jnp.array([length, 0.0])}, timestamp=0, worker=0).params["w"]
    assert stepped.tolist() == pytest.approx([-1.0, 0.0], rel=1e-6)
