"""Rules that predict: against closed forms, brute force and SciPy; what they recover; what they never surpass."""

import itertools
import math
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fred.base.errors import FredError
from fred.prediction import baum_welch, closed_loop
from fred.prediction.backup import DynamicBackup
from fred.prediction.contract import AllWorkers, Best, Objective, Oracle
from fred.prediction.elfving import Elfving
from fred.prediction.empirical import Empirical
from fred.prediction.ewma import EWMA
from fred.prediction.fixed import FixedCount
from fred.prediction.hmm import HiddenMarkov
from fred.prediction.lognormal import between_ranks, beyond, expected_order_statistics
from tests.conftest import ROOT
from tests.rounds import NODES, RULES, check_dropped_times_do_not_matter, clusters, expectations, rounds_of
from tests.worlds import make_run


class TestOrderStatistics:
    @pytest.mark.parametrize("n", [1, 2, 20, 158])
    def test_of_exponential_and_uniform_times(self, n):
        """E[x_(j)] is the sum of 1 / (n - i) over i < j, and j / (n + 1)."""
        t = np.linspace(0, 40, 400_001)
        ranks = np.arange(1, n + 1)
        exact = np.cumsum(1 / np.arange(n, 0, -1))
        found = between_ranks(n * -np.expm1(-t), t, n)
        deviation = np.sqrt(np.cumsum(1 / np.arange(n, 0, -1) ** 2))  # of x_(j)
        assert np.all(np.abs(found - exact) < 0.52 * deviation)
        assert np.allclose(between_ranks(n * np.clip(t, 0, 1), t, n), ranks / (n + 1), atol=0.5 / (n + 1))

    def test_of_log_normal_times_that_are_not_alike_by_monte_carlo(self):
        rng = np.random.default_rng(1)
        mean, deviation = rng.normal(0, 0.3, 60) + 0.7 * (np.arange(60) < 15), rng.uniform(0.05, 0.3, 60)
        draws = np.exp(mean + deviation * rng.standard_normal((20_000, 60)))
        exact = np.sort(draws, axis=1).mean(axis=0)
        assert np.allclose(expected_order_statistics(mean, deviation), exact, rtol=0.03)
        assert np.allclose(expected_order_statistics(mean, deviation)[5:-5], exact[5:-5], rtol=0.006)

    def test_of_equal_workers_by_elfving(self):
        n = 158
        z = stats.norm.ppf((np.arange(1, n + 1) - math.pi / 8) / (n - math.pi / 4 + 1))
        found = np.log(expected_order_statistics(np.full(n, 0.5), np.full(n, 0.2)))
        assert np.allclose(found, 0.5 + 0.2 * z, atol=0.02)


def test_moments_of_what_is_larger_are_those_of_truncated_normal_variables():
    mean, deviation = np.array([0.0, 1.0, -2.0, 0.5, 3.0]), np.array([1.0, 0.3, 2.0, 0.1, 0.5])
    least = np.array([-5.0, 1.2, 6.0, 1.4, 3.0])
    exact = stats.truncnorm((least - mean) / deviation, np.inf, mean, deviation)
    found, variance = beyond(mean, deviation, least)
    assert np.allclose(found, exact.mean(), rtol=1e-9)
    assert np.allclose(variance, exact.var(), rtol=1e-6)
    far, none = beyond(np.zeros(2), np.ones(2), np.array([1e3, -50.0]))
    assert far == pytest.approx([1e3 + 1e-3, 0.0], abs=1e-6)
    assert none == pytest.approx([1e-6, 1.0], rel=0.01)


class TestHiddenMarkov:
    RULE = HiddenMarkov(
        slowdowns=(1.0, 1.7, 3.0),
        transition=((0.8, 0.15, 0.05), (0.3, 0.6, 0.1), (0.0, 0.4, 0.6)),
        medians=(1.0, 1.2, 0.9, 1.1),
        deviations=(0.3, 0.4, 0.5, 0.2),
    )

    def test_the_filter_is_exact_by_brute_force_over_all_sequences_of_states(self):
        """Two nodes of two workers, four rounds, some of them cut off: every sequence's probability, added up."""
        rule, node_of = self.RULE, np.array([0, 0, 1, 1])
        rng = np.random.default_rng(3)
        times = rng.lognormal(0.3, 0.5, (4, 4))
        chooser: Any = rule.filter(node_of)
        seen = []
        for row in times:
            finished = row <= np.sort(row)[rng.integers(0, 4)]
            seen.append((np.minimum(row, row[finished].max()), finished))
            chooser.learn(*seen[-1])
        levels = np.log(rule.slowdowns)

        def likelihood(node: int, state: int, seconds: np.ndarray, finished: np.ndarray) -> float:
            own = node_of == node
            law = stats.norm(np.log(np.array(rule.medians)[own]) + levels[state], np.array(rule.deviations)[own])
            logs = np.log(seconds[own])
            return float(np.where(finished[own], law.pdf(logs), law.sf(logs)).prod())

        for node in (0, 1):
            by_round = [[likelihood(node, state, *each) for state in range(3)] for each in seen]
            total = np.zeros(3)
            for path in itertools.product(range(3), repeat=5):  # the last is the state of the round to come
                probability = 1 / 3 * np.prod([rule.transition[a][b] for a, b in itertools.pairwise(path)])
                total[path[-1]] += probability * np.prod([own[state] for state, own in zip(path, by_round, strict=False)])
            assert np.allclose(chooser.state[node], total / total.sum(), rtol=1e-9)

    def test_smoothing_is_exact_by_brute_force(self):
        rng = np.random.default_rng(5)
        likelihoods, transition = rng.random((4, 2, 3)), np.array(self.RULE.transition)
        states, followed = baum_welch.smoothed(likelihoods, transition)
        expected, pairs = np.zeros((4, 2, 3)), np.zeros((3, 3))
        for chain in (0, 1):
            paths = list(itertools.product(range(3), repeat=4))
            weights = np.array(
                [
                    np.prod([likelihoods[t, chain, path[t]] for t in range(4)])
                    * np.prod([transition[a, b] for a, b in itertools.pairwise(path)])
                    for path in paths
                ]
            )
            for path, weight in zip(paths, weights / weights.sum(), strict=True):
                for t in range(4):
                    expected[t, chain, path[t]] += weight
                for a, b in itertools.pairwise(path):
                    pairs[a, b] += weight
        assert np.allclose(states, expected)
        assert np.allclose(followed, pairs)

    def test_training_recovers_the_parameters(self):
        rule = HiddenMarkov(states=2).trained(clusters(0, 1500), NODES)
        medians = np.exp(0.1 * np.random.default_rng(99).standard_normal(30))
        ratio = rule.slowdowns[1] / rule.slowdowns[0]
        assert ratio == pytest.approx(2.0, rel=0.02)
        assert np.array(rule.transition) == pytest.approx(np.array([[14 / 15, 1 / 15], [1 / 15, 14 / 15]]), abs=0.02)
        assert rule.deviations == pytest.approx(np.full(30, 0.15), rel=0.1)
        assert np.array(rule.medians) * rule.slowdowns[0] == pytest.approx(medians, rel=0.03)
        assert min(abs(np.array(rule.slowdowns) - 1)) < 1e-12

    def test_every_pass_of_training_makes_the_data_likelier(self):
        logs, likelihoods = np.log(clusters(1, 200)), []
        for passes in (1, 2, 4, 8):
            found = baum_welch.fit(logs, NODES, 3, passes, lambda share: None)
            rule = HiddenMarkov(
                slowdowns=tuple(np.exp(found.levels)),
                transition=tuple(map(tuple, found.transition)),
                medians=tuple(np.exp(found.offsets)),
                deviations=tuple(found.deviations),
            )
            chooser: Any = rule.filter(NODES)
            total = 0.0
            for row in logs:
                each = chooser.log_likelihood(row, np.ones(30, bool))
                top = each.max(axis=1, keepdims=True)
                total += float((np.log((chooser.state * np.exp(each - top)).sum(1)) + top[:, 0]).sum())
                total -= float(np.log(found.deviations).sum())
                chooser.learn(np.exp(row), np.ones(30, bool))
            likelihoods.append(total)
        assert likelihoods == sorted(likelihoods)

    def test_a_round_that_no_state_allows_leaves_probabilities(self):
        chooser: Any = self.RULE.filter(np.array([0, 0, 1, 1]))
        for scale in (1e-9, 1e9, 1.0):
            chooser.learn(np.full(4, scale), np.array([True, True, False, False]))
            assert np.allclose(chooser.state.sum(axis=1), 1)
            assert 1 <= chooser.choose(np.ones(4)) <= 4

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"slowdowns": [1.0, 2.0, 3.0]}, "`transition` must have 3 rows and columns"),
            ({"transition": [[0.5, 0.4], [0.5, 0.5]]}, "must add up to 1"),
            ({"medians": [1.0], "deviations": []}, "must be as many"),
            ({"medians": [1.0], "deviations": [0.1]}, "`medians` are of 1 workers; the cluster has 4"),
        ],
    )
    def test_options_that_do_not_fit_are_refused(self, options, message):
        with pytest.raises(FredError, match=message):
            make_run("cutoff-sgd", protocol={"name": "cutoff", "rule": {"name": "hmm", **options}})

    def test_too_few_iterations_to_train_on_are_refused(self):
        with pytest.raises(ValueError, match="5 iterations to train on; at least 6 are needed"):
            HiddenMarkov().trained(clusters(0, 5), NODES)


class TestAverages:
    def test_means_are_recovered_although_a_third_is_always_dropped(self):
        rng = np.random.default_rng(0)
        mean, deviation = rng.normal(0, 0.2, 30), 0.2
        chooser: Any = EWMA(rate=0.02, jump=10.0).start(NODES)
        for number in range(600):
            times = np.exp(mean + deviation * rng.standard_normal(30))
            cutoff = np.sort(times)[29 if number < 5 else 19]
            chooser.observe((np.minimum(times, cutoff) * 1e9).astype(np.int64), times <= cutoff)
        assert np.abs(chooser._mean - mean).mean() < 0.06
        assert 0.7 * deviation < np.sqrt(chooser._variance).mean() < 1.1 * deviation  # large errors count less

    @pytest.mark.parametrize("of", ["worker", "node"])
    def test_what_is_never_seen_does_not_run_away(self, of):
        """A node that is dropped for 3,000 rounds: nothing is known but that it is slower."""
        chooser: Any = EWMA(of=of).start(NODES)
        rng = np.random.default_rng(2)
        for number in range(3000):
            times = rng.lognormal(0, 0.2, 30) * np.where(NODES == 2, 3.0, 1.0)
            cutoff = np.sort(times)[29 if number < 20 else 19]
            chooser.observe((np.minimum(times, cutoff) * 1e9).astype(np.int64), times <= cutoff)
        assert np.all(chooser._mean[NODES == 2] < math.log(12))
        assert np.all(chooser._mean[NODES == 2] > math.log(1.5))
        assert np.all(np.sqrt(chooser._variance) < 1)

    def test_a_change_is_believed_at_once(self):
        chooser: Any = EWMA().start(NODES)
        rng = np.random.default_rng(2)
        for number in range(41):
            times = rng.lognormal(0, 0.1, 30) * np.where((number == 40) & (NODES == 2), 3.0, 1.0)
            chooser.observe((times * 1e9).astype(np.int64), np.ones(30, bool))
        assert np.all(chooser._mean[NODES == 2] > math.log(2))
        assert np.all(np.abs(chooser._mean[NODES != 2]) < 0.5)


class TestWindows:
    def test_means_of_complete_rounds_are_the_empirical_order_statistics(self):
        seconds = rounds_of(0, 10)
        chooser: Any = Empirical(window=10).start(NODES)
        for row in seconds:
            chooser.learn(row, np.ones(30, bool))
        assert np.allclose(chooser.expected(), np.sort(seconds, axis=1).mean(axis=0))

    def test_what_dropped_workers_hide_does_not_bias_it(self):
        rng = np.random.default_rng(7)
        chooser: Any = Empirical(window=4000).start(np.zeros(10, int))
        for number in range(4000):
            times = rng.exponential(1.0, 10)
            cutoff = np.sort(times)[9 if number % 4 == 0 else 5]
            chooser.learn(np.minimum(times, cutoff), times <= cutoff)
        assert np.allclose(chooser.expected(), np.cumsum(1 / np.arange(10, 0, -1)), rtol=0.06)

    def test_every_window_has_a_round_that_waits_for_all(self):
        chosen = closed_loop.run(Empirical(window=7), rounds_of(1, 80), NODES).cutoff
        full = np.flatnonzero(chosen == 30)
        assert np.diff(full).max() <= 8
        assert (chosen < 30).sum() > 30


class TestDynamicBackup:
    def test_without_noise_every_worker_adds_nothing_so_the_first_is_best(self):
        rounds = closed_loop.run(DynamicBackup(noise=0.0, objective="round"), rounds_of(0), NODES)
        assert np.median(rounds.cutoff) == 1

    def test_the_noisier_the_gradients_the_more_are_waited_for(self):
        def mean(**options: float) -> float:
            return float(closed_loop.run(DynamicBackup(**options), rounds_of(0, 200), NODES).cutoff.mean())

        assert mean(noise=1.0) < mean(noise=5.0) < mean(noise=15.0) < mean(noise=25.0)
        assert mean(noise=1.0) < mean(noise=1.0, noise_growth=0.1)
        assert mean(noise=1000.0) == 30.0

    def test_the_gain_per_time_is_the_largest(self):
        best = Best("round", worth=lambda counts: 1 - 3 / counts)
        times = np.array([1.0, 1.1, 1.2, 1.3, 1.5, 9.0])
        assert best.cutoff(times) == 1 + np.argmax((1 - 3 / np.arange(1, 7)) / times)


def test_the_best_static_cutoff_is_the_best_of_all_by_trial():
    seconds = clusters(3, 60)
    objectives: tuple[tuple[Objective, str], ...] = (("throughput", "of_oracle"), ("round", "mean_ratio"))
    for objective, measure in objectives:
        found = FixedCount(objective=objective).trained(seconds, NODES).workers
        assert found is not None
        tried = [closed_loop.run(FixedCount(workers=c), seconds, NODES, warm_up=0).summary()[measure] for c in range(1, 31)]
        if objective == "throughput":
            assert found == 1 + np.argmax(tried)
        assert tried[found - 1] > max(tried) - 0.02
    with pytest.raises(FredError, match="`count` needs `workers`"):
        make_run("cutoff-sgd", protocol={"name": "cutoff", "rule": "count"})


@pytest.mark.parametrize("name", RULES)
class TestEveryRule:
    def test_it_gives_the_same_bits_twice_and_never_surpasses_the_oracle(self, name):
        first, again = (closed_loop.run(RULES[name], rounds_of(4, 120), NODES) for _ in range(2))
        assert np.array_equal(first.cutoff, again.cutoff)
        assert np.all(first.cutoff / first.time <= first.best_cutoff / first.best_time)

    def test_what_it_has_not_seen_does_not_matter(self, name):
        check_dropped_times_do_not_matter(RULES[name], rounds_of(5, 120), NODES)

    @pytest.mark.parametrize("workers", [1, 2, 3])
    def test_it_works_with_few_workers(self, name, workers):
        rule = RULES[name].model_copy(update={"workers": 1}) if name.startswith("count") else RULES[name]
        rounds = closed_loop.run(rule, rounds_of(0)[:, :workers], np.zeros(workers, int))
        assert rounds.cutoff.min() >= 1

    def test_equal_times_do_no_harm(self, name):
        assert closed_loop.run(RULES[name], np.ones((40, 30)), NODES).cutoff.min() >= 1


def test_no_bit_depends_on_the_instructions_that_numpy_may_use():
    """With all those switched off that it would choose among."""
    found = np.show_config(mode="dicts")["SIMD Extensions"]["found"]
    program = "import sys; from tests.rounds import expectations; sys.stdout.write(expectations())"
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": " ".join(found)}
    said = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert said == expectations()


@pytest.mark.parametrize("rule", [EWMA(), EWMA(of="worker"), HiddenMarkov()])
@pytest.mark.parametrize("objective", ["round", "throughput"])
def test_rules_that_know_regimes_do_better_than_those_that_do_not(rule, objective):
    seconds = clusters(5, 700, slow=3.0, dwell=30)
    train, rest = seconds[:400], seconds[400:]

    def reached(rule: Any) -> float:
        return closed_loop.run(rule.trained(train, NODES), rest, NODES).summary()["of_oracle"]

    ours = reached(rule.model_copy(update={"objective": objective}))
    assert ours > 0.9
    assert ours > reached(Elfving()) + 0.02
    assert ours > reached(FixedCount()) + 0.02
    assert ours > reached(AllWorkers()) + 0.1
    assert ours < reached(Oracle(objective="throughput")) + 1e-9


@pytest.mark.parametrize("options", [{"by": "count"}, {"by": "count", "at_least": 1.0}])
def test_a_watched_model_waits_for_counts_and_shares_as_it_is_told(options):
    """Averages would end its rounds at deadlines; so nobody watches it."""
    seconds = rounds_of(0, 60)
    watched, alone = HiddenMarkov(**options), HiddenMarkov(**options).unwatched()
    found = [closed_loop.run(rule, seconds, NODES).cutoff.tolist() for rule in (watched, alone)]
    assert found[0] == found[1]
    if "at_least" in options:
        assert set(found[0]) == {30}
