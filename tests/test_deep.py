"""The deep Markov model against what can be computed exactly: linear-Gaussian chains, tails, order statistics; and its bits."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from numpyro.infer import Trace_ELBO
from numpyro.infer.util import log_density
from scipy import special, stats

import fred
from fred.base.errors import FredError
from fred.cluster.latency import Constant
from fred.commands import train_cutoff
from fred.commands.cli import main
from fred.prediction import closed_loop
from fred.prediction.contract import AllWorkers, Deadline
from fred.prediction.deep import choosing, programs, saved
from fred.prediction.deep.filter import Filter, Known, _resampled
from fred.prediction.deep.grid import Grid
from fred.prediction.deep.networks import Network, Plain, Printed, Sizes, key_of, of_variant
from fred.prediction.deep.normal import above
from fred.prediction.deep.rule import DeepMarkov, PrintedDeepMarkov
from fred.prediction.ewma import EWMA
from fred.prediction.fixed import FixedCount
from fred.prediction.held_back import HeldBack
from fred.prediction.hmm import HiddenMarkov
from fred.running.execution import execute
from fred.schedule.schedule import Verb
from fred.specification.loading import load
from fred.specification.shape import Run
from fred.traces.reading import read
from tests.rounds import check_dropped_times_do_not_matter
from tests.worlds import make_run

WORKERS, LATENT, ROUNDS = 3, 2, 3


def softplus(x):
    return np.log1p(np.exp(x))


def inverse_softplus(y):
    return np.log(np.expm1(y))


class Chain:
    """z_0 ~ N(0, s0^2), z_t ~ N(A z_(t-1) + a, s^2), x_t ~ N(C z_t + c, r^2): what a network with its gates closed is."""

    def __init__(self, seed: int = 0):
        draw = np.random.default_rng(seed)
        self.a_matrix, self.a = 0.8 * np.eye(LATENT) + 0.1 * draw.normal(size=(LATENT, LATENT)), 0.1 * draw.normal(size=LATENT)
        self.c_matrix, self.c = draw.normal(size=(WORKERS, LATENT)), draw.normal(size=WORKERS)
        self.s0, self.s, self.r = 0.7, 0.5, 1.0
        z = draw.normal(size=LATENT) * self.s0
        self.x = np.empty((ROUNDS, WORKERS))
        for t in range(ROUNDS):
            self.x[t] = self.c_matrix @ z + self.c + self.r * draw.normal(size=WORKERS)
            z = self.a_matrix @ z + self.a + self.s * draw.normal(size=LATENT)

    def network(self) -> tuple[Network, Any]:
        network = Plain(Sizes(), WORKERS)
        network.sizes = Sizes(latent=LATENT, summary=6, gate=4, proposal=4, emission=LATENT)
        params: Any = network.init(key_of(0), WORKERS)
        constant = {name: np.full(LATENT, inverse_softplus(value - 1e-3)) for name, value in (("s0", self.s0), ("s", self.s))}
        params["first"] = {"mean": np.zeros(LATENT), "scale": constant["s0"]}
        params["keep"] = {"weights": self.a_matrix.T, "bias": self.a}
        params["gate-2"]["bias"] = np.full(LATENT, -80.0)
        params["move-scale"] = {"weights": np.zeros((LATENT, LATENT)), "bias": constant["s"]}
        params["mean-1"] = {"weights": np.eye(LATENT), "bias": np.zeros(LATENT)}
        params["mean-2"] = {"weights": self.c_matrix.T, "bias": self.c}
        params["scale-2"] = {
            "weights": np.zeros((LATENT, WORKERS)),
            "bias": np.full(WORKERS, inverse_softplus(self.r - 1e-3)),
        }
        params["guide-mean"]["weights"] = 0.1 * params["guide-mean"]["weights"]
        params["guide-scale"]["bias"] = np.full(LATENT, inverse_softplus(0.9))  # wide enough for every z that matters
        return network, jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), params)

    def windows(self, network: Network) -> programs.Windows:
        y = jnp.asarray(self.x, jnp.float32)[:, None, None]
        nothing = jnp.zeros((ROUNDS, 1, 1, WORKERS, 3))
        return programs.Windows(
            y, nothing, network.inputs(y, jnp.zeros(()), jnp.ones((1, WORKERS), bool)), jnp.ones((1, WORKERS))
        )

    def log_likelihood(self) -> float:
        """Return the log-likelihood by the Kalman filter."""
        mean, cov, total = np.zeros(LATENT), self.s0**2 * np.eye(LATENT), 0.0
        for t, x in enumerate(self.x):
            if t:
                mean, cov = self.a_matrix @ mean + self.a, self.a_matrix @ cov @ self.a_matrix.T + self.s**2 * np.eye(LATENT)
            seen = self.c_matrix @ cov @ self.c_matrix.T + self.r**2 * np.eye(WORKERS)
            total += float(stats.multivariate_normal.logpdf(x, self.c_matrix @ mean + self.c, seen))
            gain = cov @ self.c_matrix.T @ np.linalg.inv(seen)
            mean, cov = mean + gain @ (x - self.c_matrix @ mean - self.c), cov - gain @ self.c_matrix @ cov
        return total

    def joint(self, z: np.ndarray) -> float:
        """log p(x, z), written out."""
        means = np.vstack([np.zeros(LATENT), z[:-1] @ self.a_matrix.T + self.a])
        scales = np.array([self.s0, *[self.s] * (ROUNDS - 1)])[:, None]
        emitted = stats.norm.logpdf(self.x, z @ self.c_matrix.T + self.c, self.r)
        return float(np.sum(stats.norm.logpdf(z, means, scales)) + np.sum(emitted))


class TestExactly:
    @pytest.mark.slow
    def test_every_site_inside_the_scan_is_scored(self):
        """The joint density that NumPyro sees at some z is the one written out in NumPy."""
        chain = Chain()
        network, params = chain.network()
        arguments = network, params, chain.windows(network), False
        density = jax.jit(lambda z: log_density(programs.model, arguments, {}, {"z": z, "network": params})[0])
        for seed in range(5):
            z = np.random.default_rng(seed).normal(size=(ROUNDS, LATENT))
            seen = density(jnp.asarray(z, jnp.float32)[:, None, None])
            assert float(seen) == pytest.approx(chain.joint(z), rel=1e-5)

    @pytest.mark.slow
    def test_the_guide_is_scored_too(self):
        """The one-sample ELBO is log p(x, z) - log q(z) of the guide's own sample."""
        chain = Chain()
        network, params = chain.network()
        arguments = network, params, chain.windows(network), False
        elbo = jax.jit(lambda key: -Trace_ELBO().loss(key, {"network": params}, programs.model, programs.guide, *arguments))
        for seed in range(3):
            _, guide_key = jax.random.split(jax.random.key(seed))
            trace = handlers.trace(handlers.seed(programs.guide, guide_key)).get_trace(*arguments)
            z = np.asarray(trace["z"]["value"])[:, 0, 0]
            summaries = np.asarray(network.summaries(params, arguments[2].inputs))[:, 0, 0]
            guided = 0.0
            for t in range(ROUNDS):
                before = jnp.asarray(z[t - 1] if t else np.zeros(LATENT))
                mean, scale = network.proposal(params, before, summaries[t])
                guided += np.sum(stats.norm.logpdf(z[t], mean, scale))
            assert float(elbo(jax.random.key(seed))) == pytest.approx(chain.joint(z) - guided, rel=1e-4)

    @pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
    def test_the_bound_lies_below_the_kalman_filters_likelihood_and_importance_weights_reach_it(self, seed):
        chain = Chain(seed)
        network, params = chain.network()
        arguments = network, params, chain.windows(network), False

        def bound(key):
            return -Trace_ELBO().loss(key, {"network": params}, programs.model, programs.guide, *arguments)

        bounds = np.asarray(jax.jit(jax.vmap(bound))(jax.random.split(jax.random.key(seed), 200_000)), float)
        exact = chain.log_likelihood()
        assert bounds.mean() < exact
        assert special.logsumexp(bounds) - np.log(len(bounds)) == pytest.approx(exact, abs=0.05)

    @pytest.mark.slow
    def test_dropped_workers_are_imputed_from_what_the_others_say_of_them(self):
        """The mean of a first round's completions against importance sampling written out."""
        chain = Chain(1)
        network, params = chain.network()
        at_work = Filter(network, 2000, 20)
        known = Known.of(params, jnp.ones((1, WORKERS), bool), 2000)
        finished, y = jnp.array([[True, False, True]]), jnp.asarray(chain.x[:1], jnp.float32)

        def completed(seed):
            key = jax.random.key(seed)
            belief, _ = at_work.start(known, key)
            return at_work._completed(known, jax.random.fold_in(key, 1), belief, y, finished)[2]

        seen = np.asarray(jax.jit(lambda seeds: jax.lax.map(completed, seeds))(jnp.arange(400))).mean(0)[0]
        draw = np.random.default_rng(0)
        z = draw.normal(size=(400_000, LATENT)) * chain.s0
        mean = z @ chain.c_matrix.T + chain.c
        at = (chain.x[0] - mean) / chain.r
        weight = np.exp(np.where([True, False, True], stats.norm.logpdf(at), stats.norm.logsf(at)).sum(1))
        late = mean[:, 1] + chain.r * stats.truncnorm.rvs(at[:, 1], np.inf, random_state=draw)
        assert seen[[0, 2]] == pytest.approx(chain.x[0, [0, 2]], abs=1e-5)
        assert seen[1] == pytest.approx((weight @ late) / weight.sum(), abs=0.05)

    def test_the_predictive_term_is_the_log_of_a_mean_probability(self, monkeypatch):
        """Of all workers, and of each: for a linear chain p(x_t | z_(t-1)) is known. With many samples, so that the mean is one."""
        chain, samples = Chain(), 200_000
        network, params = chain.network()
        z = np.random.default_rng(1).normal(size=(ROUNDS - 1, 1, 1, LATENT)).astype(np.float32)
        monkeypatch.setattr(programs, "_SAMPLES", samples)
        with handlers.seed(rng_seed=0):
            nothing = jnp.zeros((*z.shape[:-1], network.sizes.summary))
            seen = np.asarray(programs._predictive(network, params, jnp.asarray(z), nothing, chain.windows(network)))[:, 0, 0]
        covariance = chain.s**2 * chain.c_matrix @ chain.c_matrix.T + chain.r**2 * np.eye(WORKERS)
        for t in range(ROUNDS - 1):
            mean = chain.c_matrix @ (chain.a_matrix @ z[t, 0, 0] + chain.a) + chain.c
            together = stats.multivariate_normal.logpdf(chain.x[t + 1], mean, covariance)
            alone = np.sum(stats.norm.logpdf(chain.x[t + 1], mean, np.sqrt(np.diag(covariance))))
            assert seen[t] - (1 + WORKERS) * np.log(samples) == pytest.approx(together + alone, abs=0.05)


def test_truncated_draws_are_right_however_far_out():
    bound, u = np.meshgrid(np.linspace(-4, 40, 89), np.geomspace(1e-7, 1, 50))
    exact = -special.ndtri_exp(special.log_ndtr(-bound) + np.log(u))
    draw = jax.jit(above)  # at once: a primitive at a time is compiled for longer
    drawn = np.asarray(draw(jnp.asarray(bound, jnp.float32), jnp.asarray(u, jnp.float32)))
    assert (drawn >= bound.astype(np.float32)).all()
    np.testing.assert_allclose(drawn, exact, rtol=2e-5, atol=2e-4)
    uniform = jax.random.uniform(jax.random.key(0), (50_000,), minval=1e-7)
    for at in (0.0, 3.0, 12.0):
        assert stats.kstest(np.asarray(draw(jnp.full(50_000, at), uniform)), stats.truncnorm(at, np.inf).cdf).pvalue > 0.01


def test_expected_order_statistics_are_those_of_independent_normal_variables():
    """Of a model whose workers are all alike: against the expectation by integration."""
    workers = 12
    network = Printed(Sizes(), workers)
    params = jax.tree.map(jnp.zeros_like, network.init(key_of(0), workers))
    params["mean-2"]["bias"] = jnp.full(workers, 5.0)
    known = Known.of(params, jnp.ones((1, workers), bool), 40_000)
    _, samples = Filter(network, 40_000, 3).start(known, key_of(0))
    scale = float(softplus(0.0)) + 1e-3
    expected = np.sort(np.asarray(samples), 1).mean(0)
    z = np.linspace(-9, 9, 20_001)
    for j in range(1, workers + 1):
        density = stats.beta.pdf(stats.norm.cdf(z), j, workers - j + 1) * stats.norm.pdf(z)
        assert expected[j - 1] == pytest.approx(5 + scale * np.trapezoid(z * density, z), abs=0.02)


def test_particles_are_drawn_as_often_as_they_weigh():
    weight = np.log(np.array([[0.1, 0.0001], [0.2, 0.4], [0.3, 0.5], [0.4, 0.0999]]))
    chosen = np.concatenate([np.asarray(_resampled(jax.random.key(seed), jnp.asarray(weight), 10)) for seed in range(400)])
    for node in range(2):
        shares = np.bincount(chosen[:, node], minlength=4) / len(chosen)
        assert shares == pytest.approx(np.exp(weight[:, node]), abs=0.02)


def test_workers_lie_on_the_grid_by_node_in_their_order():
    grid = Grid(np.array([1, 0, 1, 2, 1]))
    assert grid.shape == (3, 3)
    assert grid.there.tolist() == [[True, False, False], [True, True, True], [True, False, False]]
    assert grid.spread(np.array([10, 20, 30, 40, 50])).tolist() == [[20, 0, 0], [10, 30, 50], [40, 0, 0]]


def switching(iterations: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three nodes of eight workers, which are slow by turns, ten rounds each; s."""
    rng = np.random.default_rng(seed)
    node_of = np.repeat(np.arange(3), 8)
    turn = (np.arange(iterations) + rng.integers(40)) // 10 % 4
    slow = np.where(turn[:, None] == node_of, 2.5, 1.0)
    return slow * rng.lognormal(0, 0.08, (iterations, 24)), node_of


@pytest.fixture(scope="module")
def trained() -> DeepMarkov:
    """A little."""
    return DeepMarkov(steps=50, restarts=1).trained(*switching(300, 0))


@pytest.fixture(scope="module")
def well_trained() -> DeepMarkov:
    return DeepMarkov(steps=150).trained(*switching(600, 0))


def waiting_for_all(rule: Any) -> Any:
    """The rule's model, beside one that expects all workers at the same time, which alone is asked."""
    same = HiddenMarkov(states=1, slowdowns=(1.0,), transition=((1.0,),), medians=(1.0,) * 24, deviations=(0.001,) * 24)
    return rule._trained.beside(same, 1.0).but(by="count")


class TestRule:
    @pytest.mark.slow
    def test_it_learns_when_nodes_are_slow(self, well_trained):
        times, node_of = switching(200, 1)
        mine, everybody = (closed_loop.run(rule, times, node_of).summary() for rule in (well_trained, AllWorkers()))
        assert everybody["of_oracle"] < 0.7
        assert mine["of_oracle"] > 0.85

    @pytest.mark.slow
    def test_it_works_on_another_cluster(self, well_trained):
        times, node_of = switching(150, 2)
        times, node_of = np.hstack([times, times[::-1, :8]]), np.append(node_of, [3] * 8)
        assert closed_loop.run(well_trained, 7 * times, node_of).summary()["of_oracle"] > 0.75

    @pytest.mark.slow
    def test_what_it_has_not_seen_does_not_matter(self, trained):
        times, node_of = switching(80, 3)
        check_dropped_times_do_not_matter(trained, times, node_of)

    @pytest.mark.slow
    def test_the_papers_own_model_runs_and_learns(self):
        times, node_of = switching(300, 0)
        learnt: Any = PrintedDeepMarkov(steps=100, window=8).trained(times, node_of)
        assert learnt._trained.about.curve[-1] < learnt._trained.about.curve[0]
        assert 0.5 < closed_loop.run(learnt, switching(60, 1)[0], node_of).summary()["of_oracle"] <= 1.001
        with pytest.raises(ValueError, match="trained for 24 workers, not 23"):
            learnt.start(node_of[:23])

    def test_where_the_cluster_does_what_the_model_has_not_seen_it_is_left(self, trained):
        """A worker is gone: the model that waits for it loses most, averages of recent times do not, nor does who watches both."""
        times, node_of = switching(200, 4)
        times[60:, 5] *= 1000
        averages, watched, left_alone = (
            closed_loop.run(rule, times, node_of).summary()["throughput"]
            for rule in (
                EWMA(),
                trained.of(waiting_for_all(trained)),
                trained.of(waiting_for_all(trained)).unwatched(),
            )
        )
        assert left_alone < 0.1 * averages
        assert watched > 0.9 * averages

    def test_it_can_be_had_alone(self, trained):
        """Neither a hidden Markov model nor averages beside it: its expectations are those of its network."""
        times, node_of = switching(60, 5)
        mixed = trained.of(trained._trained.beside(HiddenMarkov().trained(*switching(100, 0)), 1.0))
        rule, network = mixed.model_copy(update={"alone": True}), trained.of(trained._trained.alone()).unwatched()
        one, other = (closed_loop.run(each, times, node_of) for each in (rule, network))
        assert np.array_equal(one.cutoff, other.cutoff)
        assert np.array_equal(one.time, other.time)
        assert any("a hidden Markov model alone" in doubt for doubt in mixed.doubts())
        assert "its network alone did worse" in rule.doubts()[0]

    def test_the_model_that_comes_with_fred_is_a_network(self):
        assert saved.load(saved.SHIPPED).about.share == 0

    def test_too_few_iterations_are_refused(self):
        with pytest.raises(ValueError, match="at least 8 iterations, not 7"):
            DeepMarkov().trained(np.ones((7, 2)), np.zeros(2, int))


@pytest.mark.slow
class TestChoosing:
    def test_the_training_is_kept_that_does_best_in_the_last_quarter(self, trained, monkeypatch):
        """Three trainings that wait for 8, 15 and 24 workers: which is best is counted in NumPy."""
        numbers, learnt_from = (8, 15, 24), []

        def learn(rule, seconds, node_of, progress, restart):
            learnt_from.append(len(seconds))
            return dataclasses.replace(trained._trained, about=trained._trained.about.model_copy(update={"restart": restart}))

        class Candidate(DeepMarkov):
            def of(self, trained):
                return FixedCount(workers=numbers[trained.about.restart])

        monkeypatch.setattr(choosing, "learn", learn)
        monkeypatch.setattr(choosing, "SHARES", ())
        seconds, node_of = switching(200, 6)
        held = np.sort(seconds[150:], axis=1)
        throughput = [number * len(held) / held[:, number - 1].sum() for number in numbers]
        chosen = choosing.best(Candidate(restarts=3), seconds, node_of)
        assert numbers[chosen.about.restart] == numbers[int(np.argmax(throughput))] == 15
        assert learnt_from == [150] * 3
        assert chosen.about.held_back is not None and chosen.about.held_back.rounds == 50

    @pytest.mark.parametrize(
        ("said", "better", "expected"),
        [(None, 15, "deadline"), (None, 8, "count-or-deadline"), ("count", 15, "count-or-deadline")],
    )
    def test_rounds_end_by_time_alone_where_that_did_better(self, trained, monkeypatch, said, better, expected):
        """Waiting for 15 workers is better than for 24, and for 24 better than for 8: counted above."""

        class Candidate(DeepMarkov):
            def of(self, trained):
                return FixedCount(workers=better if trained.about.by == "deadline" else 24)

        monkeypatch.setattr(choosing, "learn", lambda *what: trained._trained.but(by="count-or-deadline"))
        monkeypatch.setattr(choosing, "SHARES", ())
        assert choosing.best(Candidate(restarts=1, by=said), *switching(200, 6)).about.by == expected

    def test_what_a_rule_says_of_how_rounds_end_goes_before_what_training_found(self, trained):
        rounds, node_of = switching(3, 8)
        seen = []
        for rule in (
            trained.of(trained._trained.but(by="deadline")),
            trained.of(trained._trained.but(by="count-or-deadline")),
        ):
            for by in (None, "count"):
                chooser = rule.model_copy(update={"by": by, "warm_up": 0}).unwatched().start(node_of)
                chooser.observe((rounds[0] * 1e9).astype(np.int64), np.ones(24, bool))
                choice = chooser.choose(rounds[1])
                seen.append((isinstance(choice, Deadline), bool(getattr(choice, "workers", None))))
        assert seen == [(True, False), (False, False), (True, True), (False, False)]

    def test_what_is_expected_is_mixed_by_shares(self, trained):
        """Half and half, the means of what either expects by itself."""
        times, node_of = switching(30, 7)
        plainer = HiddenMarkov().trained(*switching(300, 0))
        deep = dataclasses.replace(
            trained._trained, about=trained._trained.about.model_copy(update={"plainer": None, "share": 0.0})
        )
        choosers: list[Any] = [trained.of(deep.beside(plainer, share)).unwatched().start(node_of) for share in (0.0, 0.5, 1.0)]
        alone: Any = plainer.filter(node_of)
        for row in times:
            for chooser in (*choosers, alone):
                chooser.observe((row * 1e9).astype(np.int64), np.ones(24, bool))
        none, half, whole = (chooser.expected() for chooser in choosers)
        assert whole.tolist() == alone.expected().tolist()
        assert half == pytest.approx((none + whole) / 2, rel=1e-12)
        assert np.abs(none / whole - 1).max() > 0.001

    def test_the_plainer_model_learns_other_workers_medians(self, trained):
        """On workers of another number it begins without medians."""
        plainer = HiddenMarkov().trained(*switching(300, 0))
        rule = trained.of(trained._trained.beside(plainer, 1.0))
        chooser: Any = rule.unwatched().start(np.repeat(np.arange(3), 4))
        for row in np.random.default_rng(0).lognormal(1.5, 0.05, (40, 12)):
            chooser.observe((row * 1e9).astype(np.int64), np.ones(12, bool))
        assert chooser.expected() == pytest.approx(np.exp(1.5), rel=0.2)

    @pytest.mark.slow
    def test_only_the_shared_network_moves_by_what_was_seen(self):
        for variant, moves in (("shared", True), ("plain", False)):
            network = of_variant(variant, WORKERS)
            params = network.init(key_of(0), 6)
            z = jnp.ones((2, network.sizes.latent))
            seen = [network.transition(params, z, jnp.full((2, network.sizes.summary), value))[0] for value in (0.0, 1.0)]
            assert bool((seen[0] != seen[1]).any()) == moves


@pytest.mark.slow
class TestSaved:
    @pytest.fixture()
    def file(self, trained, tmp_path) -> Path:
        trained._trained.save(tmp_path / "model.npz")
        return tmp_path / "model.npz"

    def test_it_is_the_same_when_it_is_read_again(self, trained, file):
        rule = DeepMarkov(model=file)
        assert rule.digest == trained._trained.digest
        assert rule.trained(*switching(60, 4)) is rule
        times, node_of = switching(60, 5)
        one, other = (closed_loop.run(each, times, node_of) for each in (trained, rule))
        assert one.cutoff.tolist() == other.cutoff.tolist()

    @pytest.fixture()
    def run(self, file) -> Run:
        rule = {"name": "dmm", "model": str(file), "warm_up": 5}
        cluster = {"workers": 8, "nodes": 2, "compute": {"name": "trace", "file": "example"}}
        protocol = {"name": "cutoff", "rule": rule}
        return make_run("cutoff-sgd", task=None, cluster=cluster, protocol=protocol, stop={"updates": 40})

    def test_the_protocol_does_what_the_closed_loop_does(self, run):
        schedule = execute("run", run, 0).schedule
        counts = np.bincount(schedule["timestamp"][schedule.rows(Verb.ADD)])
        trace = read("example")
        rounds = closed_loop.run(run.protocol.rule, trace.seconds[:40], run.cluster.node_of, warm_up=0)
        assert counts.tolist() == rounds.cutoff.tolist()
        assert set(counts[:5]) == {8}
        assert counts.min() < 8

    def test_time_to_decide_is_added_to_every_round(self, run):
        slow = run.model_copy(update={"protocol": run.protocol.model_copy(update={"deciding": Constant(seconds=0.25)})})
        one, other = (execute("run", each, 0).schedule for each in (run, slow))
        commits = [schedule["time_ns"][schedule.rows(Verb.COMMIT)] for schedule in (one, other)]
        assert (commits[1] - commits[0]).tolist() == [250_000_000 * number for number in range(1, 41)]

    def test_a_changed_file_is_refused(self, file):
        text = file.with_suffix(".json").read_text()
        file.with_suffix(".json").write_text(text.replace('"window": 60', '"window": 21'))
        with pytest.raises(ValueError, match=r"not what its \.json says"):
            saved.load(file)
        file.with_suffix(".json").write_text("{}")
        with pytest.raises(ValueError, match=r"model\.json.*expected what `fred train-cutoff` writes"):
            saved.load(file)
        file.with_suffix(".json").write_text(text)
        file.write_bytes(file.read_bytes()[:-100])
        with pytest.raises(ValueError, match=r"cannot read .*model\.npz"):
            saved.load(file)

    def test_another_model_than_the_recorded_one_is_refused(self, file):
        rule = {"name": "dmm", "model": str(file), "digest": "0" * 64}
        with pytest.raises(FredError, match="not the recorded one"):
            make_run("cutoff-sgd", protocol={"name": "cutoff", "rule": rule})

    def test_a_model_is_looked_for_beside_the_scenario(self, file):
        text = "cluster: {workers: 8}\nstop: {updates: 1}\nalgorithm: {name: cutoff-sgd, learning_rate: 0.1}\n"
        text += "runs: {one: {protocol: {name: cutoff, rule: {name: dmm, model: model.npz}}}}\n"
        file.with_name("scenario.yaml").write_text(text)
        protocol: Any = load(file.with_name("scenario.yaml")).runs["one"].protocol
        assert protocol.rule.model == str(file)

    def test_what_is_absent_or_of_another_kind_is_refused(self, file):
        for rule, message in (
            ({"name": "dmm", "model": "nowhere.npz"}, "cannot read nowhere.npz.*train-cutoff"),
            ({"name": "dmm-plain", "model": str(file)}, "variant `shared`, not `plain`"),
            ({"name": "dmm-printed"}, "needs `model`"),
        ):
            with pytest.raises(FredError, match=message):
                execute("run", make_run("cutoff-sgd", protocol={"name": "cutoff", "rule": rule}), 0)


@pytest.mark.slow
class TestCommand:
    def test_what_was_trained_is_saved_and_said(self, trained, tmp_path, capsys, monkeypatch):
        """With a model that is trained already; notebooks/stragglers.ipynb has the command train one."""
        asked: list[tuple[DeepMarkov, tuple[int, ...]]] = []

        def learnt(rule, seconds, node_of, progress):
            asked.append((rule, seconds.shape))
            return trained._trained.but(held_back=HeldBack(rounds=13, static=7, ratio=1.01, interval=(0.9, 1.1)))

        monkeypatch.setattr(train_cutoff, "best", learnt)
        out = tmp_path / "model.npz"
        assert main(["train-cutoff", "example", "--steps", "77", "--train", "50", "--out", str(out)]) == 0
        example = read("example")
        assert example.node_of is not None
        assert asked == [(DeepMarkov(steps=77), (50, example.seconds.shape[1]))]
        about, said = saved.load(out).about, capsys.readouterr()
        assert saved.load(out).digest == trained._trained.digest
        assert f"model: {out}, digest {trained._trained.digest[:16]}" in said.out
        assert about.held_back is not None
        assert said.err == f"fred: {out}: {about.held_back.doubt}\n"
        assert "13 rounds held back cannot tell it from always waiting for 7 workers" in said.err

    @pytest.mark.parametrize(("won", "flag", "code"), [(1.1, [], 0), (0.9, [], 2), (0.9, ["--even-if-worse"], 0)])
    def test_a_model_that_is_told_worse_is_written_only_if_that_is_wanted(
        self, trained, tmp_path, capsys, monkeypatch, won, flag, code
    ):
        found = HeldBack(rounds=90, static=7, ratio=won, interval=(won - 0.05, won + 0.05))
        monkeypatch.setattr(train_cutoff, "best", lambda *_: trained._trained.but(held_back=found))
        out = tmp_path / "model.npz"
        assert main(["train-cutoff", "example", "--out", str(out), *flag]) == code
        said = capsys.readouterr()
        assert ("it was worse than always waiting for 7 workers (-10.0%" in said.err) == (won < 1)
        assert out.exists() == out.with_suffix(".json").exists() == (code == 0)
        if code:
            assert said.err.startswith("fred: example: the model is not written: in 90 rounds held back it was worse")
            assert "{name: count, workers: 7}" in said.err
        else:
            assert saved.load(out).about.held_back == found
            assert f"in the last 90 iterations against always waiting for 7: {won - 1:+.1%}" in said.out

    def test_a_scenario_that_names_a_doubtful_model_says_so(self, trained, tmp_path, capsys):
        for name, won in (("doubtful", 1.0), ("proven", 1.2)):
            found = HeldBack(rounds=13, static=7, ratio=won, interval=(won - 0.1, won + 0.1))
            trained._trained.alone().but(held_back=found).save(tmp_path / f"{name}.npz")
        runs = {
            name: {"protocol": {"name": "cutoff", "rule": {"name": "dmm", "model": f"{name}.npz"}}}
            for name in ("doubtful", "proven")
        }
        scenario = {
            "cluster": {"workers": 8, "nodes": 2, "compute": {"name": "lognormal", "median": 1, "sigma": 0.1}},
            "algorithm": {"name": "cutoff-sgd", "learning_rate": 0.1},
            "stop": {"updates": 3},
            "runs": {"twice": runs["doubtful"], **runs},
        }
        (tmp_path / "scenario.yaml").write_text(json.dumps(scenario))
        doubt = f"{tmp_path / 'doubtful.npz'}: 13 rounds held back cannot tell it from always waiting for 7 workers (+0.0%"
        words = ["run", str(tmp_path / "scenario.yaml"), "--out", str(tmp_path / "out")]
        assert main(words) == 0
        said = capsys.readouterr()
        assert [line for line in said.err.splitlines() if "held back" in line] == [
            f"fred: {doubt}, 95% interval -10.0% to +10.0%)"
        ]
        assert "".join(doubt.split()) in "".join(said.out.split()), "wherever its lines are broken"
        with pytest.warns(UserWarning, match="13 rounds held back cannot tell it"):
            result = fred.run(fred.load(tmp_path / "scenario.yaml"))
        assert main([*words[:-1], str(tmp_path / "proven"), "--only", "proven"]) == 0
        said = capsys.readouterr()
        assert "held back" not in said.out + said.err
        assert len(result.outcomes) == 3

    def test_what_cannot_be_is_refused_in_a_line_before_training(self, tmp_path, capsys, monkeypatch):
        monkeypatch.chdir(tmp_path)
        Path("file").touch()
        Path("theirs.npz").write_text("no model")
        Path("folder.npz").mkdir()
        for words, message in (
            (["--out", "m"], "--out m: expected a name that ends in .npz"),
            (
                ["--out", "file/m.npz"],
                f"cannot write file/m.npz: {tmp_path}/file is not a folder; choose another place with --out",
            ),
            (["--out", "folder.npz"], "cannot write folder.npz: it is a folder; choose another place with --out"),
            (
                ["--out", "theirs.npz"],
                "theirs.npz exists and is not a FRED model; choose another file with --out, or remove this one",
            ),
            (["--out", "m.npz", "--train", "61"], "--train 61: example has 60 iterations"),
            (["--out", "m.npz", "--train", "3"], "example: a deep Markov model needs at least 8 iterations, not 3"),
            (["--out", "m.npz", "--steps", "1"], "--steps 1: expected greater than or equal to 50"),
        ):
            assert main(["train-cutoff", "example", *words]) == 2
            said = capsys.readouterr()
            assert (said.out, said.err) == ("", f"fred: {message}\n")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.npz", "theirs.npz"]
