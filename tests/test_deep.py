"""The deep Markov model against what can be computed exactly: linear-Gaussian chains, tails, order statistics; and its bits."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from numpyro.infer import Trace_ELBO
from scipy import special, stats

import fred
from fred.base.errors import FredError
from fred.commands import train_cutoff
from fred.prediction import closed_loop
from fred.prediction.closed_loop import HeldBack
from fred.prediction.contract import AllWorkers, Deadline
from fred.prediction.deep import saved, training
from fred.prediction.deep.filter import Constants, Filter, truncated_quantile
from fred.prediction.deep.networks import Plain, Printed, Sizes, create_network, key_of
from fred.prediction.deep.rule import DMM, DMMPrinted, train_best
from fred.prediction.hmm import HMM
from fred.prediction.predictive import EWMA
from fred.prediction.simple_rules import FixedCount
from fred.running.execution import execute
from fred.schedule.schedule import Verb
from fred.traces.reading import read
from tests.program import fred_command, refusal
from tests.rounds import check_dropped_times_do_not_matter
from tests.worlds import make_run, outcome

WORKERS, LATENT, ROUNDS = 3, 2, 3


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
        self._make_network()
        y, weights = jnp.asarray(self.x, jnp.float32)[:, None, None], jnp.ones((1, WORKERS))
        inputs = self.network.inputs(y, jnp.zeros(()), weights > 0)
        self.windows = training.Windows(y, jnp.zeros((ROUNDS, 1, 1, WORKERS, 3)), inputs, weights)

    def _make_network(self) -> None:
        self.network = network = Plain(Sizes(), WORKERS)
        network.sizes = Sizes(latent=LATENT, summary=6, gate=4, proposal=4, emission=LATENT)
        params = jax.jit(network.init, static_argnums=1)(key_of(0), WORKERS)
        constant = {name: np.full(LATENT, inverse_softplus(value - 1e-3)) for name, value in (("s0", self.s0), ("s", self.s))}
        params["first"] = {"mean": np.zeros(LATENT), "scale": constant["s0"]}
        params["keep"] = {"weights": self.a_matrix.T, "bias": self.a}
        params["gate-2"]["bias"] = np.full(LATENT, -80.0)
        params["move-scale"] = {"weights": np.zeros((LATENT, LATENT)), "bias": constant["s"]}
        params["mean-1"] = {"weights": np.eye(LATENT), "bias": np.zeros(LATENT)}
        params["mean-2"] = {"weights": self.c_matrix.T, "bias": self.c}
        deviations = np.full(WORKERS, inverse_softplus(self.r - 1e-3))
        params["scale-2"] = {"weights": np.zeros((LATENT, WORKERS)), "bias": deviations}
        params["guide-mean"]["weights"] = 0.1 * params["guide-mean"]["weights"]
        params["guide-scale"]["bias"] = np.full(LATENT, inverse_softplus(0.9))  # wide enough for every z that matters
        self.params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), params)

    def log_likelihood(self) -> float:
        mean, cov, total = np.zeros(LATENT), self.s0**2 * np.eye(LATENT), 0.0
        for t, x in enumerate(self.x):
            if t:
                mean, cov = self.a_matrix @ mean + self.a, self.a_matrix @ cov @ self.a_matrix.T + self.s**2 * np.eye(LATENT)
            innovation = self.c_matrix @ cov @ self.c_matrix.T + self.r**2 * np.eye(WORKERS)
            total += float(stats.multivariate_normal.logpdf(x, self.c_matrix @ mean + self.c, innovation))
            gain = cov @ self.c_matrix.T @ np.linalg.inv(innovation)
            mean, cov = mean + gain @ (x - self.c_matrix @ mean - self.c), cov - gain @ self.c_matrix @ cov
        return total


class TestExactly:
    @pytest.mark.slow
    def test_the_bound_lies_below_the_kalman_filters_likelihood_and_importance_weights_reach_it(self):
        """So every site inside the scan is scored, and the guide, too."""
        chain = Chain()

        def bound(key):
            arguments = chain.network, chain.params, chain.windows, False
            return -Trace_ELBO().loss(key, {"network": chain.params}, training.model, training.guide, *arguments)

        bounds = np.asarray(jax.jit(jax.vmap(bound))(jax.random.split(jax.random.key(0), 100_000)), float)
        exact = chain.log_likelihood()
        assert bounds.mean() < exact
        assert special.logsumexp(bounds) - np.log(len(bounds)) == pytest.approx(exact, abs=0.05)

    @pytest.mark.slow
    def test_dropped_workers_are_imputed_from_what_the_others_say_of_them(self):
        """The mean of a first round's completions, seen in the history, against importance sampling written out."""
        chain = Chain(1)
        particles = Filter(chain.network, 200, 20)
        observed = Constants.create(chain.params, jnp.ones((1, WORKERS), bool), 200)
        arrived, times = jnp.array([[True, False, True]]), jnp.exp(jnp.asarray(chain.x[:1], jnp.float32))

        def last_time(seed):
            key = jax.random.key(seed)
            belief, _ = particles.start(observed, key)
            return particles.update(observed, belief, key, 1, times, arrived)[0].history.last[0]

        lasts = np.asarray(jax.jit(lambda seeds: jax.lax.map(last_time, seeds))(jnp.arange(400)))
        assert not lasts[:, 1].any(), "a round in which a worker was dropped leaves its history unchanged"
        means = chain.x[0, 0] - lasts[:, 0]
        assert lasts[:, 2] == pytest.approx(chain.x[0, 2] - means, abs=1e-5)
        draw = np.random.default_rng(0)
        mean = (draw.normal(size=(400_000, LATENT)) * chain.s0) @ chain.c_matrix.T + chain.c
        at = (chain.x[0] - mean) / chain.r
        weight = np.exp(np.where([True, False, True], stats.norm.logpdf(at), stats.norm.logsf(at)).sum(1))
        late = mean[:, 1] + chain.r * stats.truncnorm.rvs(at[:, 1], np.inf, random_state=draw)
        imputed = WORKERS * means.mean() - chain.x[0, [0, 2]].sum()
        assert imputed == pytest.approx((weight @ late) / weight.sum(), abs=0.05)

    @pytest.mark.slow
    def test_the_predictive_term_is_the_log_of_a_mean_probability(self, monkeypatch):
        """A linear chain has a closed form of p(x_t | z_(t-1)), of all workers and of each. Many samples make the mean precise."""
        chain, samples = Chain(), 50_000
        z = np.random.default_rng(1).normal(size=(ROUNDS - 1, 1, 1, LATENT)).astype(np.float32)
        monkeypatch.setattr(training, "_SAMPLES", samples)
        with handlers.seed(rng_seed=0):
            nothing = jnp.zeros((*z.shape[:-1], chain.network.sizes.summary))
            terms = training._predictive(chain.network, chain.params, jnp.asarray(z), nothing, chain.windows)[:, 0, 0]
        covariance = chain.s**2 * chain.c_matrix @ chain.c_matrix.T + chain.r**2 * np.eye(WORKERS)
        for t in range(ROUNDS - 1):
            mean = chain.c_matrix @ (chain.a_matrix @ z[t, 0, 0] + chain.a) + chain.c
            together = stats.multivariate_normal.logpdf(chain.x[t + 1], mean, covariance)
            marginal = np.sum(stats.norm.logpdf(chain.x[t + 1], mean, np.sqrt(np.diag(covariance))))
            assert terms[t] - (1 + WORKERS) * np.log(samples) == pytest.approx(together + marginal, abs=0.05)


def test_truncated_draws_are_right_however_far_out():
    bound, u = np.meshgrid(np.linspace(-4, 40, 89), np.geomspace(1e-7, 1, 50))
    exact = -special.ndtri_exp(special.log_ndtr(-bound) + np.log(u))
    draw = jax.jit(truncated_quantile)  # at once: a primitive at a time is compiled for longer
    samples = np.asarray(draw(jnp.asarray(bound, jnp.float32), jnp.asarray(u, jnp.float32)))
    assert (samples >= bound.astype(np.float32)).all()
    np.testing.assert_allclose(samples, exact, rtol=2e-5, atol=2e-4)
    uniform = jax.random.uniform(jax.random.key(0), (50_000,), minval=1e-7)
    for at in (0.0, 3.0, 12.0):
        assert stats.kstest(np.asarray(draw(jnp.full(50_000, at), uniform)), stats.truncnorm(at, np.inf).cdf).pvalue > 0.01


def test_expected_order_statistics_are_those_of_independent_normal_variables():
    """The model has equal workers; SciPy integrates the expectations."""
    workers = 12
    network = Printed(Sizes(), workers)
    shapes = jax.eval_shape(lambda key: network.init(key, workers), key_of(0))
    params: Any = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), shapes)
    params["mean-2"]["bias"] += 5
    _, samples = Filter(network, 40_000, 3).start(Constants.create(params, jnp.ones((1, workers), bool), 40_000), key_of(0))
    scale, expected = np.log(2) + 1e-3, np.sort(np.asarray(samples), 1).mean(0)
    z = np.linspace(-9, 9, 20_001)
    for j in range(1, workers + 1):
        density = stats.beta.pdf(stats.norm.cdf(z), j, workers - j + 1) * stats.norm.pdf(z)
        assert expected[j - 1] == pytest.approx(5 + scale * np.trapezoid(z * density, z), abs=0.02)


def draw_switching(iterations: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three nodes of eight workers, which are slow by turns, ten rounds each; s."""
    rng, node_of = np.random.default_rng(seed), np.repeat(np.arange(3), 8)
    slow = np.where(((np.arange(iterations) + rng.integers(40)) // 10 % 4)[:, None] == node_of, 2.5, 1.0)
    return slow * rng.lognormal(0, 0.08, (iterations, 24)), node_of


def observe(chooser: Any, seconds: np.ndarray) -> None:
    for row in seconds:
        chooser.observe((row * 1e9).astype(np.int64), np.ones(len(row), bool))


@pytest.fixture(scope="module")
def model() -> saved.Trained:
    """The model that comes with FRED, as if it were trained for three nodes of eight workers."""
    nodes = draw_switching(1, 0)[1].tolist()
    return saved.load(saved.SHIPPED).with_record(workers=24, nodes=nodes, by="count-or-deadline", held_back=None)


RULE = DMM()


class TestRule:
    @pytest.mark.slow
    def test_it_learns_when_nodes_are_slow(self):
        (times, node_of), options = draw_switching(200, 1), {"steps": 50, "window": 20, "restarts": 1, "alone": True}
        rule = DMM(**options, objective="throughput", by="count-or-deadline").trained(*draw_switching(300, 0))
        trained, everybody = (closed_loop.run(policy, times, node_of).summary() for policy in (rule, AllWorkers()))
        assert everybody["of_oracle"] < 0.7
        assert trained["of_oracle"] > 0.85

    @pytest.mark.slow
    def test_the_papers_own_model_runs_and_learns(self):
        times, node_of = draw_switching(300, 0)
        trained = train_best(DMMPrinted(steps=100, window=8), times, node_of)
        rule = DMMPrinted().with_model(trained)
        assert trained.record.curve[-1] < trained.record.curve[0]
        assert 0.5 < closed_loop.run(rule, draw_switching(60, 1)[0], node_of).summary()["of_oracle"] <= 1.001
        with pytest.raises(ValueError, match="trained for 24 workers, not 23"):
            rule.start(node_of[:23])

    @pytest.mark.slow
    def test_what_it_has_not_seen_does_not_matter(self, model):
        check_dropped_times_do_not_matter(RULE.with_model(model), *draw_switching(80, 3))

    def test_where_the_cluster_does_what_the_model_has_not_seen_it_is_left(self, model):
        """A worker is gone: the model that waits for it loses most, averages of recent times do not, nor does who watches both."""
        times, node_of = draw_switching(200, 4)
        times[60:, 5] *= 1000
        regular = HMM(states=1, slowdowns=(1.0,), transition=((1.0,),), medians=(1.0,) * 24, deviations=(0.001,) * 24)
        rule = RULE.with_model(
            model.mixed_with(regular, 1.0).with_record(by="count")
        )  # it expects all workers at the same time
        rules = EWMA(), rule, rule.unwatched()
        averages, watched, unwatched = (closed_loop.run(policy, times, node_of).summary()["throughput"] for policy in rules)
        assert unwatched < 0.1 * averages
        assert watched > 0.9 * averages

    @pytest.mark.slow
    def test_it_can_be_had_alone(self, model):
        """Without a hidden Markov model and averages, its expectations are those of its network."""
        assert model.record.share == 0, "the model that comes with FRED is a network"
        times, node_of = draw_switching(60, 5)
        mixed = RULE.with_model(model.mixed_with(HMM().trained(*draw_switching(100, 0)), 1.0))
        standalone, network = mixed.model_copy(update={"alone": True}), RULE.with_model(model.without_plainer()).unwatched()
        rounds, other = (closed_loop.run(rule, times, node_of) for rule in (standalone, network))
        assert np.array_equal([rounds.cutoff, rounds.time], [other.cutoff, other.time])
        assert any("a hidden Markov model alone" in doubt for doubt in mixed.doubts())
        assert "its network alone did worse" in standalone.doubts()[0]

    @pytest.mark.slow
    def test_only_the_shared_network_moves_by_what_was_seen(self):
        for variant, moves in (("shared", True), ("plain", False)):
            network = create_network(variant, WORKERS)
            params, transition = jax.jit(network.init, static_argnums=1)(key_of(0), 6), jax.jit(network.transition)
            z, summary = np.ones((2, network.sizes.latent)), np.ones((2, network.sizes.summary))
            assert bool((transition(params, z, summary)[0] != transition(params, z, 0 * summary)[0]).any()) == moves


@pytest.mark.slow
class TestChoosing:
    @pytest.fixture(autouse=True)
    def _network_alone(self, monkeypatch):
        monkeypatch.setattr("fred.prediction.deep.rule.SHARES", ())

    def test_the_training_is_kept_that_does_best_in_the_last_quarter(self, model, monkeypatch):
        """Three trainings that wait for 8, 15 and 24 workers: which is best is counted in NumPy."""
        numbers, rounds = (8, 15, 24), []

        def learn(rule, seconds, node_of, progress, restart):
            rounds.append(len(seconds))
            return model.with_record(restart=restart)

        class Candidate(DMM):
            def with_model(self, trained):
                return FixedCount(workers=numbers[trained.record.restart])

        monkeypatch.setattr(training, "learn", learn)
        seconds, node_of = draw_switching(200, 6)
        validation = np.sort(seconds[150:], axis=1)
        throughput = [number * len(validation) / validation[:, number - 1].sum() for number in numbers]
        best_model = train_best(Candidate(restarts=3), seconds, node_of)
        assert numbers[best_model.record.restart] == numbers[int(np.argmax(throughput))] == 15
        assert rounds == [150] * 3
        assert best_model.record.held_back is not None and best_model.record.held_back.rounds == 50

    def test_rounds_end_by_time_alone_where_that_did_better(self, model, monkeypatch):
        """Waiting for 15 workers is better than for 24, and for 24 better than for 8: counted above."""

        class Candidate(DMM):
            number: int

            def with_model(self, trained):
                return FixedCount(workers=self.number if trained.record.by == "deadline" else 24)

        monkeypatch.setattr(training, "learn", lambda *args: model.with_record(by="count-or-deadline"))
        for by, number, criterion in (
            (None, 15, "deadline"),
            (None, 8, "count-or-deadline"),
            ("count", 15, "count-or-deadline"),
        ):
            assert train_best(Candidate(restarts=1, by=by, number=number), *draw_switching(200, 6)).record.by == criterion

    def test_what_a_rule_says_of_how_rounds_end_goes_before_what_training_found(self, model):
        rounds, node_of = draw_switching(3, 8)
        for trained_by, by, deadline, count in (
            *(("deadline", None, True, False), ("deadline", "count", False, False)),
            ("count-or-deadline", None, True, True),
        ):
            rule = RULE.with_model(model.with_record(by=trained_by)).model_copy(update={"by": by, "warm_up": 0})
            chooser = rule.unwatched().start(node_of)
            observe(chooser, rounds[:1])
            choice = chooser.choose(rounds[1])
            assert (isinstance(choice, Deadline), bool(getattr(choice, "workers", None))) == (deadline, count)

    def test_what_is_expected_is_mixed_by_shares(self, model):
        """Half and half, the means of what either expects by itself."""
        times, node_of = draw_switching(30, 7)
        plainer = HMM().trained(*draw_switching(300, 0))
        choosers: list[Any] = [
            RULE.with_model(model.mixed_with(plainer, at)).unwatched().start(node_of) for at in (0.0, 0.5, 1.0)
        ]
        choosers.append(plainer.filter(node_of))
        for chooser in choosers:
            observe(chooser, times)
        none, half, full, network_only = (chooser.expected() for chooser in choosers)
        assert full.tolist() == network_only.tolist()
        assert half == pytest.approx((none + full) / 2, rel=1e-12)
        assert np.abs(none / full - 1).max() > 0.001

    def test_the_plainer_model_learns_other_workers_medians(self, model):
        """A cluster of another size starts without medians."""
        rule = RULE.with_model(model.mixed_with(HMM().trained(*draw_switching(300, 0)), 1.0))
        chooser: Any = rule.unwatched().start(np.repeat(np.arange(3), 4))
        observe(chooser, np.random.default_rng(0).lognormal(1.5, 0.05, (40, 12)))
        assert chooser.expected() == pytest.approx(np.exp(1.5), rel=0.2)


class TestSaved:
    @pytest.fixture()
    def file(self, model, tmp_path) -> Path:
        model.save(tmp_path / "model.npz")
        return tmp_path / "model.npz"

    @pytest.mark.slow
    def test_it_is_the_same_when_it_is_read_again(self, model, file):
        rule = DMM(model=file)
        assert rule.digest == model.digest
        assert rule.trained(*draw_switching(60, 4)) is rule
        first, second = (closed_loop.run(rule, *draw_switching(60, 5)) for rule in (RULE.with_model(model), rule))
        assert first.cutoff.tolist() == second.cutoff.tolist()

    @pytest.mark.slow
    def test_the_protocol_does_what_the_closed_loop_does_and_takes_time_to_decide(self, file):
        protocol: dict[str, Any] = {"name": "cutoff", "rule": {"name": "dmm", "model": str(file), "warm_up": 5}}
        cluster = {"workers": 8, "nodes": 2, "compute": {"name": "trace", "file": "example"}}
        slow = protocol | {"deciding": {"name": "constant", "seconds": 0.25}}
        runs: list[Any] = [
            outcome("cutoff-sgd", option, cluster, task=None, stop={"updates": 40}) for option in (protocol, slow)
        ]
        quick, delayed = runs
        counts = np.bincount(quick.schedule["timestamp"][quick.schedule.rows(Verb.ADD)])
        rounds = closed_loop.run(quick.run.protocol.rule, read("example").seconds[:40], quick.run.cluster.node_of, warm_up=0)
        assert counts.tolist() == rounds.cutoff.tolist()
        assert set(counts[:5]) == {8}
        assert counts.min() < 8
        commits = [run.schedule["time_ns"][run.schedule.rows(Verb.COMMIT)] for run in (quick, delayed)]
        assert (commits[1] - commits[0]).tolist() == [250_000_000 * number for number in range(1, 41)]

    def test_a_changed_file_is_refused(self, file):
        description = file.with_suffix(".json")
        description.write_text(description.read_text().replace('"window": 60', '"window": 21'))
        with pytest.raises(ValueError, match=r"not what its \.json says"):
            saved.load(file)

    def test_what_is_absent_or_of_another_kind_is_refused(self, file):
        for rule, message in (
            ({"name": "dmm", "model": str(file), "digest": "0" * 64}, "not the recorded one"),
            ({"name": "dmm", "model": "nowhere.npz"}, "cannot read nowhere.npz.*train-cutoff"),
            ({"name": "dmm-plain", "model": str(file)}, "variant `shared`, not `plain`"),
            ({"name": "dmm-printed"}, "needs `model`"),
        ):
            with pytest.raises(FredError, match=message):
                execute("run", make_run("cutoff-sgd", task=None, protocol={"name": "cutoff", "rule": rule}), 0)


class TestCommand:
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)

    def test_a_model_is_saved_with_its_doubt_but_a_worse_one_only_if_that_is_wanted(self, model, monkeypatch):
        for ratio, flag, code in ((1.01, [], 0), (1.1, [], 0), (0.9, [], 2), (0.9, ["--even-if-worse"], 0)):
            validation = HeldBack(rounds=90, static=7, ratio=ratio, interval=(ratio - 0.05, ratio + 0.05))
            best, out = Mock(return_value=model.with_record(held_back=validation)), Path(f"{ratio}{len(flag)}.npz")
            monkeypatch.setattr(train_cutoff, "train_best", best)
            answer = fred_command("train-cutoff", "example", "--steps", "77", "--train", "50", "--out", out, *flag)
            assert answer.code == code
            assert out.exists() == out.with_suffix(".json").exists() == (code == 0)
            if code:
                assert answer.err.startswith("fred: example: the model is not written: in 90 rounds held back it was worse")
                assert "{name: count, workers: 7}" in answer.err
            else:
                assert (saved.load(out).digest, saved.load(out).record.held_back) == (model.digest, validation)
                assert answer.err == (f"fred: {out}: {validation.doubt}\n" if validation.doubt else "")
                assert f"model: {out}, digest {model.digest[:16]}" in answer.out
                assert f"in the last 90 iterations against always waiting for 7: {ratio - 1:+.1%}" in answer.out
            rule, seconds, *_ = best.call_args.args
            assert (rule, seconds.shape) == (DMM(steps=77), (50, read("example").seconds.shape[1]))

    @pytest.mark.slow
    def test_a_scenario_that_names_a_doubtful_model_says_so(self, model, tmp_path):
        protocols = {}
        for name, ratio in (("doubtful", 1.0), ("proven", 1.2)):
            validation = HeldBack(rounds=13, static=7, ratio=ratio, interval=(ratio - 0.1, ratio + 0.1))
            model.with_record(held_back=validation).save(tmp_path / f"{name}.npz")
            protocols[name] = {"protocol": {"name": "cutoff", "rule": {"name": "dmm", "model": f"{name}.npz"}}}
        cluster = {"workers": 8, "nodes": 2, "compute": {"name": "lognormal", "median": 1, "sigma": 0.1}}
        scenario = {"cluster": cluster, "algorithm": {"name": "cutoff-sgd", "learning_rate": 0.1}, "stop": {"updates": 3}}
        scenario["runs"] = {"twice": protocols["doubtful"], **protocols}
        (tmp_path / "scenario.yaml").write_text(json.dumps(scenario))
        doubt = f"{tmp_path / 'doubtful.npz'}: 13 rounds held back cannot tell it from always waiting for 7 workers (+0.0%"
        answer = fred_command("run", tmp_path / "scenario.yaml", "--no-report", "--out", "doubtful")
        doubts = [line for line in answer.err.splitlines() if "held back" in line]
        assert (answer.code, doubts) == (0, [f"fred: {doubt}, 95% interval -10.0% to +10.0%)"])
        assert "".join(doubt.split()) in "".join(answer.out.split()), "wherever its lines are broken"
        with pytest.warns(UserWarning, match="13 rounds held back cannot tell it"):
            assert len(fred.run(fred.load("scenario.yaml")).outcomes) == 3
        answer = fred_command("run", tmp_path / "scenario.yaml", "--no-report", "--out", "proven", "--only", "proven")
        assert answer.code == 0
        assert "held back" not in answer.out + answer.err

    def test_what_cannot_be_is_refused_in_a_line_before_training(self, tmp_path):
        Path("file").touch()
        Path("theirs.npz").write_text("no model")
        Path("folder.npz").mkdir()
        elsewhere, cure = "choose another place with --out", "choose another file with --out"
        for options, message in (
            (["--out", "m"], "--out m: expected a name that ends in .npz"),
            (["--out", "file/m.npz"], f"cannot write file/m.npz: {tmp_path}/file is not a folder; {elsewhere}"),
            (["--out", "folder.npz"], f"cannot write folder.npz: it is a folder; {elsewhere}"),
            (["--out", "theirs.npz"], f"theirs.npz exists and is not a FRED model; {cure}, or remove this one"),
            (["--out", "m.npz", "--train", "241"], "--train 241: example has 240 iterations"),
            (["--out", "m.npz", "--train", "3"], "example: a deep Markov model needs at least 8 iterations, not 3"),
            (["--out", "m.npz", "--steps", "1"], "--steps 1: expected greater than or equal to 50"),
        ):
            assert refusal("train-cutoff", "example", *options) == f"fred: {message}\n"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.npz", "theirs.npz"]
