"""Rules that predict, against closed forms, brute force and SciPy; and `fred cutoffs`, which compares them on a trace."""

import itertools
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from fred.base.errors import FredError
from fred.commands.cutoffs import print_comparison
from fred.prediction import closed_loop, hmm
from fred.prediction.closed_loop import Rounds
from fred.prediction.comparison import RULES as COMPARED
from fred.prediction.comparison import Comparison, compare, rolling, rule_named
from fred.prediction.contract import AllWorkers, Maximizer, Objective, Oracle
from fred.prediction.hmm import HMM
from fred.prediction.predictive import EWMA, Elfving, Empirical, between_ranks, expected_order_statistics, truncated_moments
from fred.prediction.simple_rules import DynamicBackup, FixedCount
from fred.traces.reading import read
from fred.traces.trace import Trace
from fred.views import comparison_figures
from tests.conftest import ROOT
from tests.program import fred_command, refusal
from tests.rounds import NODES, RULES, check_dropped_times_do_not_matter, clusters, expectations, rounds_of
from tests.worlds import make_run, mostly_slow


class TestOrderStatistics:
    def test_of_exponential_and_uniform_times(self):
        """E[x_(j)] is the sum of 1 / (n - i) over i < j, and j / (n + 1)."""
        t = np.linspace(0, 40, 400_001)
        for n in (1, 2, 20, 158):
            exact, ranks = np.cumsum(1 / np.arange(n, 0, -1)), np.arange(1, n + 1)
            deviation = np.sqrt(np.cumsum(1 / np.arange(n, 0, -1) ** 2))  # of x_(j)
            assert np.all(np.abs(between_ranks(n * -np.expm1(-t), t, n) - exact) < 0.52 * deviation)
            assert np.allclose(between_ranks(n * np.clip(t, 0, 1), t, n), ranks / (n + 1), atol=0.5 / (n + 1))

    def test_of_log_normal_times_that_are_not_alike_by_monte_carlo(self):
        rng = np.random.default_rng(1)
        mean, deviation = rng.normal(0, 0.3, 60) + 0.7 * (np.arange(60) < 15), rng.uniform(0.05, 0.3, 60)
        draws = np.exp(mean + deviation * rng.standard_normal((20_000, 60)))
        exact, computed = np.sort(draws, axis=1).mean(axis=0), expected_order_statistics(mean, deviation)
        assert np.allclose(computed, exact, rtol=0.03) and np.allclose(computed[5:-5], exact[5:-5], rtol=0.006)


def test_moments_of_what_is_larger_are_those_of_truncated_normal_variables():
    mean, deviation = np.array([0.0, 1.0, -2.0, 0.5, 3.0]), np.array([1.0, 0.3, 2.0, 0.1, 0.5])
    least = np.array([-5.0, 1.2, 6.0, 1.4, 3.0])
    exact = stats.truncnorm((least - mean) / deviation, np.inf, mean, deviation)
    mean_beyond, variance = truncated_moments(mean, deviation, least)
    assert np.allclose(mean_beyond, exact.mean(), rtol=1e-9) and np.allclose(variance, exact.var(), rtol=1e-6)
    far, none = truncated_moments(np.zeros(2), np.ones(2), np.array([1e3, -50.0]))
    assert far == pytest.approx([1e3 + 1e-3, 0.0], abs=1e-6)
    assert none == pytest.approx([1e-6, 1.0], rel=0.01)


class TestHiddenMarkov:
    LOGS = {"medians": (1.0, 1.2, 0.9, 1.1), "deviations": (0.3, 0.4, 0.5, 0.2)}
    TRANSITION = (0.8, 0.15, 0.05), (0.3, 0.6, 0.1), (0.0, 0.4, 0.6)
    RULE = HMM(slowdowns=(1.0, 1.7, 3.0), transition=TRANSITION, **LOGS)

    def test_the_filter_is_exact_by_brute_force_over_all_sequences_of_states(self):
        """Two nodes of two workers, four rounds, some of them cut off: every sequence's probability, added up."""
        rule, rng, transition = self.RULE, np.random.default_rng(3), np.array(self.RULE.transition)
        law = stats.norm(np.log(rule.medians) + np.log(rule.slowdowns)[:, None], rule.deviations)  # [states, workers]
        chooser: Any = rule.filter(np.array([0, 0, 1, 1]))
        likelihoods = []  # of each round: [nodes, states]
        for times in rng.lognormal(0.3, 0.5, (4, 4)):
            arrived = times <= np.sort(times)[rng.integers(0, 4)]
            seconds = np.minimum(times, times[arrived].max())
            chooser.learn(seconds, arrived)
            single = np.where(arrived, law.pdf(np.log(seconds)), law.sf(np.log(seconds)))
            likelihoods.append(single.reshape(3, 2, 2).prod(axis=2).T)
        for node in (0, 1):
            total = np.zeros(3)
            for path in itertools.product(range(3), repeat=5):  # the last is the state of the round to come
                factors = [likelihoods[t][node, state] for t, state in enumerate(path[:-1])]
                total[path[-1]] += np.prod(factors) * transition[path[:-1], path[1:]].prod()
            assert np.allclose(chooser.state[node], total / total.sum(), rtol=1e-9)

    def test_smoothing_is_exact_by_brute_force(self):
        likelihoods, transition = np.random.default_rng(5).random((4, 2, 3)), np.array(self.RULE.transition)
        states, followed = hmm.smoothed(likelihoods, transition)
        expected, pairs = np.zeros((4, 2, 3)), np.zeros((3, 3))
        for chain in (0, 1):
            paths = list(itertools.product(range(3), repeat=4))
            weights = [likelihoods[range(4), chain, p].prod() * transition[p[:-1], p[1:]].prod() for p in paths]
            for path, weight in zip(paths, weights, strict=True):
                expected[range(4), chain, path] += weight / sum(weights)
                np.add.at(pairs, (path[:-1], path[1:]), weight / sum(weights))
        assert np.allclose(states, expected) and np.allclose(followed, pairs)

    @pytest.mark.slow
    def test_training_recovers_the_parameters(self):
        rule = HMM(states=2).trained(clusters(0, 1500), NODES)
        medians = np.exp(0.1 * np.random.default_rng(99).standard_normal(30))
        assert rule.slowdowns[1] / rule.slowdowns[0] == pytest.approx(2.0, rel=0.02)
        assert np.array(rule.transition) == pytest.approx(np.array([[14 / 15, 1 / 15], [1 / 15, 14 / 15]]), abs=0.02)
        assert rule.deviations == pytest.approx(np.full(30, 0.15), rel=0.1)
        assert np.array(rule.medians) * rule.slowdowns[0] == pytest.approx(medians, rel=0.03)
        assert min(abs(np.array(rule.slowdowns) - 1)) < 1e-12

    def test_every_pass_of_training_makes_the_data_likelier(self):
        seconds, likelihoods = clusters(1, 200), []
        for passes in (1, 2, 4, 8):
            rule = HMM(states=3, passes=passes).trained(seconds, NODES)
            law = stats.norm(np.log(rule.medians) + np.log(rule.slowdowns)[:, None], rule.deviations)  # [states, workers]
            chooser: Any = rule.filter(NODES)
            total = 0.0
            for row in seconds:
                logs = law.logpdf(np.log(row)).reshape(3, 3, 10).sum(axis=2).T  # [nodes, states]
                total += special.logsumexp(logs, axis=1, b=chooser.state).sum()
                chooser.learn(row, np.ones(30, bool))
            likelihoods.append(total)
        assert likelihoods == sorted(likelihoods)

    def test_a_round_that_no_state_allows_leaves_probabilities(self):
        chooser: Any = self.RULE.filter(np.array([0, 0, 1, 1]))
        for scale in (1e-9, 1e9, 1.0):
            chooser.learn(np.full(4, scale), np.array([True, True, False, False]))
            assert np.allclose(chooser.state.sum(axis=1), 1) and 1 <= chooser.choose(np.ones(4)) <= 4

    def test_options_that_do_not_fit_and_too_few_iterations_are_refused(self):
        for rule, message in (
            ({"name": "hmm", "slowdowns": [1.0, 2.0, 3.0]}, "`transition` must have 3 rows and columns"),
            ({"name": "hmm", "transition": [[0.5, 0.4], [0.5, 0.5]]}, "must add up to 1"),
            ({"name": "hmm", "medians": [1.0], "deviations": []}, "must be as many"),
            ({"name": "hmm", "medians": [1.0], "deviations": [0.1]}, "`medians` are of 1 workers; the cluster has 4"),
            ({"name": "count"}, "`count` needs `workers`"),
        ):
            with pytest.raises(FredError, match=message):
                make_run("cutoff-sgd", protocol={"name": "cutoff", "rule": rule})
        with pytest.raises(ValueError, match="5 iterations to train on; at least 6 are needed"):
            HMM().trained(clusters(0, 5), NODES)


def watch(rule: Any, rounds: np.ndarray, cutoffs: list[int]) -> np.ndarray:
    """Have a rule observe rounds of which it sees these numbers of workers; return its expected times, s."""
    chooser = rule.start(NODES if rounds.shape[1] == 30 else np.zeros(rounds.shape[1], int))
    for times, cutoff in zip(rounds, cutoffs, strict=True):
        end = np.sort(times)[cutoff - 1]
        chooser.observe((np.minimum(times, end) * 1e9).astype(np.int64), times <= end)
    return chooser.expected()


class TestAverages:
    def test_means_are_recovered_although_a_third_is_always_dropped(self):
        rng = np.random.default_rng(0)
        mean = rng.normal(0, 0.2, 30)
        rounds = np.exp(mean + 0.2 * rng.standard_normal((600, 30)))
        expected = watch(EWMA(rate=0.02, jump=10.0), rounds, [30] * 5 + [20] * 595)
        exact = expected_order_statistics(mean, np.full(30, 0.14))  # as large errors count less, deviations are too small
        assert np.abs(np.log(expected / exact)).mean() < 0.015

    @pytest.mark.parametrize("of", ["worker", "node"])
    def test_what_is_never_seen_does_not_run_away(self, of):
        """A node that is dropped for 3,000 rounds: nothing is known but that it is slower."""
        rounds = np.random.default_rng(2).lognormal(0, 0.2, (3000, 30)) * np.where(NODES == 2, 3.0, 1.0)
        expected = watch(EWMA(of=of), rounds, [30] * 20 + [20] * 2980)
        assert expected[20] > 1.5 and expected[-1] < 12

    def test_a_change_is_believed_at_once(self):
        rounds = np.random.default_rng(2).lognormal(0, 0.1, (41, 30))
        rounds[40] *= np.where(NODES == 2, 3.0, 1.0)
        expected = watch(EWMA(), rounds, [30] * 41)
        assert expected[19] < math.exp(0.5) and expected[20] > 2


class TestWindows:
    def test_means_of_complete_rounds_are_the_empirical_order_statistics(self):
        seconds = np.round(rounds_of(0, 10), 9)
        expected = watch(Empirical(window=10), seconds, [30] * 10)
        assert np.allclose(expected, np.sort(seconds, axis=1).mean(axis=0))

    def test_what_dropped_workers_hide_does_not_bias_it(self):
        rounds = np.random.default_rng(7).exponential(1.0, (4000, 10))
        expected = watch(Empirical(window=4000), rounds, [10, 6, 6, 6] * 1000)
        assert np.allclose(expected, np.cumsum(1 / np.arange(10, 0, -1)), rtol=0.06)

    def test_every_window_has_a_round_that_waits_for_all(self):
        cutoffs = closed_loop.run(Empirical(window=7), rounds_of(1, 80), NODES).cutoff
        assert np.diff(np.flatnonzero(cutoffs == 30)).max() <= 8 and (cutoffs < 30).sum() > 30


class TestDynamicBackup:
    def test_the_noisier_the_gradients_the_more_are_waited_for_and_without_noise_the_first(self):
        def mean(**options: Any) -> float:
            return float(closed_loop.run(DynamicBackup(**options), rounds_of(0, 200), NODES).cutoff.mean())

        assert mean(noise=1.0) < mean(noise=5.0) < mean(noise=15.0) < mean(noise=25.0)
        assert mean(noise=1000.0) == 30.0
        noiseless = closed_loop.run(DynamicBackup(noise=0.0, objective="round"), rounds_of(0), NODES)
        assert np.median(noiseless.cutoff) == 1

        times, best = np.array([1.0, 1.1, 1.2, 1.3, 1.5, 9.0]), Maximizer("round", worth=lambda counts: 1 - 3 / counts)
        assert best.cutoff(times) == 1 + np.argmax((1 - 3 / np.arange(1, 7)) / times), "the gain per time is the largest"


def test_the_best_static_cutoff_is_the_best_of_all_by_trial():
    seconds = clusters(3, 60)
    objectives: tuple[tuple[Objective, str], ...] = (("throughput", "of_oracle"), ("round", "mean_ratio"))
    for objective, measure in objectives:
        workers: Any = FixedCount(objective=objective).trained(seconds, NODES).workers
        trials = [closed_loop.run(FixedCount(workers=c), seconds, NODES, warm_up=0).summary()[measure] for c in range(1, 31)]
        assert objective == "round" or workers == 1 + np.argmax(trials)
        assert trials[workers - 1] > max(trials) - 0.02


@pytest.mark.parametrize("name", mostly_slow(RULES, list(RULES)[::3]))
def test_a_rule_is_deterministic_below_the_oracle_blind_to_dropped_times_and_at_ease_with_few_or_equal_workers(name):
    rule = RULES[name]
    first, second = (closed_loop.run(rule, rounds_of(4, 120), NODES) for _ in range(2))
    assert np.array_equal(first.cutoff, second.cutoff)
    assert np.all(first.cutoff / first.time <= first.best_cutoff / first.best_time)
    check_dropped_times_do_not_matter(rule, rounds_of(5, 120), NODES)
    assert closed_loop.run(rule, np.ones((40, 30)), NODES).cutoff.min() >= 1
    few = rule.model_copy(update={"workers": 1}) if name.startswith("count") else rule
    for workers in (1, 2, 3):
        assert closed_loop.run(few, rounds_of(0)[:, :workers], np.zeros(workers, int)).cutoff.min() >= 1


@pytest.mark.slow
def test_no_bit_depends_on_the_instructions_that_numpy_may_use():
    extensions = np.show_config(mode="dicts")["SIMD Extensions"]["found"]
    program = "import sys; from tests.rounds import expectations; sys.stdout.write(expectations())"
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": " ".join(extensions)}
    assert subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, env=environment, text=True) == expectations()


@pytest.mark.slow
def test_rules_that_know_regimes_do_better_than_those_that_do_not():
    seconds = clusters(5, 700, slow=3.0, dwell=30)
    train, rest = seconds[:400], seconds[400:]

    def share_of_oracle(rule: Any) -> float:
        return closed_loop.run(rule.trained(train, NODES), rest, NODES).summary()["of_oracle"]

    blind, every = max(map(share_of_oracle, (Elfving(), FixedCount()))), share_of_oracle(AllWorkers())
    oracle = share_of_oracle(Oracle(objective="throughput"))
    objectives: tuple[Objective, ...] = ("round", "throughput")
    for by in objectives:
        for rule in (EWMA(objective=by), EWMA(objective=by, of="worker"), HMM(objective=by)):
            assert max(0.9, blind + 0.02, every + 0.1) < share_of_oracle(rule) < oracle + 1e-9, rule


def test_a_watched_model_waits_for_counts_and_shares_as_it_is_told():
    for least in (0.0, 1.0):
        rule = HMM(by="count", at_least=least)
        watched, unwatched = (
            closed_loop.run(watched_rule, rounds_of(0, 60), NODES).cutoff.tolist() for watched_rule in (rule, rule.unwatched())
        )
        assert watched == unwatched
        assert not least or set(watched) == {30}


SECONDS = np.round(clusters(5, 260, slow=3.0, dwell=25), 6)


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Path:
    lines = [f"{t},{w},{SECONDS[t, w]:.6f},{NODES[w]}" for t in range(260) for w in range(30)]
    path = tmp_path_factory.mktemp("trace") / "trace.csv"
    path.write_text("iteration,worker,seconds,node\n" + "\n".join(lines) + "\n")
    return path


def answer_of(trace: Path, *options: str) -> dict[str, Any]:
    return json.loads(fred_command("cutoffs", trace, *options, "--json").out)


def test_one_json_object_says_what_the_closed_loop_says(trace):
    answer = answer_of(trace, "--train", "150", "--rules", "all,count,count:20,hmm,oracle")
    rules = answer["rules"]
    assert list(rules) == ["all", "count", "count:20", "hmm", "oracle"]
    expected = closed_loop.run(HMM().trained(SECONDS[:150], NODES), SECONDS[150:], NODES).summary()
    for name in expected.keys() - {"milliseconds"}:
        assert rules["hmm"][name] == expected[name], name
    assert rules["hmm"]["against_best"] == {"ratio": 1, "interval": [1, 1]}
    for name in ("count", "oracle"):
        ratio = rules[name]["throughput"] / rules["all"]["throughput"]
        assert rules[name]["against_all"]["ratio"] == pytest.approx(ratio)
        assert ratio == pytest.approx(math.sqrt(math.prod(rules[name]["against_all"]["interval"])))
    assert (answer["best"], answer["recommended"], answer["trained"]) == ("hmm", "hmm", 1)
    assert (rules["oracle"]["of_oracle"], rules["all"]["cutoff"], rules["count:20"]["cutoff"]) == (1, 30, 20)
    assert (answer["train"], answer["warm_up"], answer["rounds"], answer["groups"]) == (150, 20, 90, 3)
    assert "A cutoff saves time here: `hmm`" in answer["verdict"]


def test_two_thirds_train_and_a_tenth_of_them_warm_up_unless_the_user_says_otherwise(trace):
    answer = answer_of(trace, "--rules", "all,count")
    assert (answer["train"], answer["warm_up"], answer["rounds"]) == (173, 17, 70)


@pytest.mark.slow
def test_the_table_has_every_rule_and_two_thirds_train_unless_the_user_says_otherwise(trace):
    out = fred_command("cutoffs", trace).out
    assert all(f"\n{name} " in out for name in COMPARED)
    words = " ".join(out.split())
    for part in ("3 groups (as given)", "waiting for all 30 workers", "after 173 to train on and 17 to warm up"):
        assert part in words
    assert "trained on the first 173, two thirds of 260 iterations; --train N changes this" in words
    answer, expected = answer_of(trace, "--rules", "all,count"), compare(read(trace), 173, ["all", "count"], 17)
    assert (answer["train"], answer["warm_up"], answer["rounds"]) == (173, 17, 70)
    assert [rule["of_oracle"] for rule in answer["rules"].values()] == [entry["of_oracle"] for entry in expected.rules.values()]


def test_groups_that_nobody_tells_are_found():
    outcome = compare(Trace(clusters(6, 400, slow=3.0), tuple(map(str, range(30)))), 300, ["ewma"])
    assert outcome.groups_inferred and outcome.groups == 3


def test_every_round_is_kept_and_drawn_and_rules_with_options_take_part(trace):
    outcome = compare(read(trace), 150, ["all", "count"], extra_rules={"calm": EWMA(rate=0.05)})
    assert list(outcome.rounds) == list(outcome.rules) == ["all", "count", "calm"]
    repeated = closed_loop.run(EWMA(rate=0.05), SECONDS[150:], NODES)
    assert outcome.rounds["calm"].cutoff.tolist() == repeated.cutoff.tolist()
    assert outcome.rounds["all"].cutoff.tolist() == [30] * 90
    bars: Any = comparison_figures.throughput(outcome.rounds)
    panels: Any = comparison_figures.cutoffs(outcome.rounds)
    assert [patch.get_width() for patch in bars.axes[0].patches] == [rule["throughput"] for rule in outcome.rules.values()]
    for axis, rounds in zip(panels.axes, outcome.rounds.values(), strict=False):
        best, cutoff_line = (patch.get_data().values.tolist() for patch in axis.patches[:2])
        assert (best, cutoff_line) == (outcome.rounds["all"].best_cutoff.tolist(), rounds.cutoff.tolist())


def compare_times(**times: list[float]) -> Comparison:
    """A comparison of rules whose rounds take these times, s; each rule takes 10 gradients, waiting for all 20."""

    def rounds(number: int, seconds: list[float]) -> Rounds:
        cutoff, time = np.full(len(seconds), number), np.rint(1e9 * np.array(seconds)).astype(np.int64)
        return Rounds(cutoff, time, np.zeros(len(seconds)), cutoff, time)

    baseline = rounds(20, [2.0] * len(next(iter(times.values()))))
    trace = Trace(np.ones((90, 20)), tuple(map(str, range(20))))
    return Comparison(trace, 10, 0, 1, False, baseline, {name: rounds(10, seconds) for name, seconds in times.items()})


def noisy(seconds: float, rounds: int = 64, by: float = 0.01) -> list[float]:
    return (seconds + by * np.random.default_rng(rounds).permutation(np.linspace(-1, 1, rounds))).tolist()


class TestVerdict:
    def test_a_claim_is_made_only_where_the_interval_excludes_what_contradicts_it(self):
        gain = "`ewma` does 12.5 gradients/s, waiting for all 20 workers 10 (+25.0%"
        short = "These 7 rounds cannot tell yet whether a cutoff saves time; 60 that count are needed"
        for times, words in (
            (noisy(0.8), f"A cutoff saves time here: {gain}, 95% interval"),
            (noisy(0.99), "A cutoff saves little time here: `ewma`"),
            (noisy(1.0), "A cutoff saves little or no time here: `ewma`"),
            (noisy(1.2), "A cutoff saves no time here: `ewma`"),
            ([1.0] * 64, "A cutoff saves no time here: `ewma`"),
            (noisy(0.95, by=0.9), "These 64 rounds cannot tell whether a cutoff saves time: `ewma`"),
            (noisy(0.8, rounds=7), f"{short}: `ewma`"),
            ([0.8] * 7, f"{short}: {gain}, too few rounds for an interval;"),
        ):
            assert compare_times(ewma=times).verdict().startswith(words)
        assert json.loads(compare_times(ewma=[0.8] * 7).json())["rules"]["ewma"]["against_all"] == {
            "ratio": 1.25,
            "interval": None,
        }

    def test_it_names_the_rules_that_are_indistinguishable_from_the_best_and_limits_are_no_rules(self):
        verdict = compare_times(ewma=noisy(0.8), hmm=noisy(0.801, by=0.1), elfving=noisy(0.95), oracle=noisy(0.7)).verdict()
        assert "`ewma` does" in verdict and verdict.endswith("These 64 rounds cannot tell `hmm` from `ewma`.")
        words = "Waiting for all 20 workers: 10 gradients/s; the round-by-round oracle: +"
        assert compare_times(oracle=noisy(0.8)).verdict().startswith(words)

    def test_the_rule_that_chooses_is_recommended_unless_it_is_told_worse_than_the_best_single_one(self):
        equal, inferior = (compare_times(ewma=noisy(0.8), auto=auto) for auto in (noisy(0.801, by=0.1), noisy(0.9)))
        assert (equal.best_rule, equal.recommended_rule) == ("ewma", "auto")
        assert "saves time here: `auto` does" in equal.verdict()
        assert "The best single rule is `ewma` (`auto` against it: -0." in equal.verdict()
        assert (inferior.best_rule, inferior.recommended_rule) == ("ewma", "ewma")
        assert "`auto` is worse (-11.1%, 95% interval" in inferior.verdict()
        assert compare_times(auto=noisy(0.8)).best_rule == "auto"


def test_the_table_is_whole_on_narrow_terminals(monkeypatch, capsys):
    comparison = compare_times(**{"ewma": noisy(0.8, by=0.3), "oracle-throughput": noisy(0.7, by=0.3)})
    ratios = compare_times(ewma=noisy(0.8, by=0.3)).ratios["all"].values()
    for columns in (60, 80, 140):
        monkeypatch.setenv("COLUMNS", str(columns))
        print_comparison(comparison)
        table = capsys.readouterr().out
        assert max(map(len, table.splitlines())) <= columns
        intervals = (f"({100 * ratio.low - 100:+.1f} to {100 * ratio.high - 100:+.1f})" for ratio in ratios)
        assert all(words in table for words in ("oracle-throughput", "gradients/s", *intervals))


def test_rolling_is_training_and_running_block_by_block(trace):
    outcome = rolling(read(trace), 100, 70, ["count", "ewma", "oracle"], warm_up=15)
    for name, rule in (("count", FixedCount()), ("ewma", EWMA())):
        parts = [
            closed_loop.run(rule.trained(SECONDS[:origin], NODES), SECONDS[origin - 15 : last], NODES, warm_up=15)
            for origin, last in ((100, 170), (170, 240), (240, 260))
        ]
        assert outcome.rounds[name].cutoff.tolist() == [c for part in parts for c in part.cutoff]
        assert outcome.rounds[name].time.tolist() == [t for part in parts for t in part.time]
    assert outcome.rounds["oracle"].time.tolist() == outcome.rounds["ewma"].best_time.tolist()
    assert outcome.waiting_for_all.time.tolist() == np.rint(1e9 * SECONDS[100:].max(axis=1)).tolist()
    assert (outcome.counted_rounds, outcome.trained) == (160, 3)
    options = ("--train", "100", "--rolling", "80", "--rules", "all,count")
    answer = answer_of(trace, *options)
    assert (answer["train"], answer["trained"], answer["rounds"]) == (100, 2, 160)
    assert "after 100 to train on first, trained 2 times" in " ".join(fred_command("cutoffs", trace, *options).out.split())


def test_every_name_is_a_rule_and_what_cannot_be_is_refused_in_a_line(trace):
    assert all(map(rule_named, (*COMPARED, "count:3", "oracle", "backup", "deadline:1.5", "dmm-alone")))
    rolling_from = "260 iterations: expected 1 or more to train on at first"
    for options, message in (
        ("0 --rolling 5", rolling_from),
        ("260 --rolling 5", rolling_from),
        ("100 --rolling 0", rolling_from),
        ("240 --warm-up 20", "260 iterations: expected 1 or more to train on (240), 0 or more to warm up (20)"),
        ("260", "260 iterations: expected 1 or more to train on (260)"),
        ("0", "1 or more to train on (0)"),
        ("9 --warm-up -1", "0 or more to warm up (-1)"),
        ("5 --rules hmm", "rule `hmm`: 5 iterations to train on; at least 6 are needed"),
        ("9 --rules hnm", "no rule `hnm`; expected some of all, count, deadline"),
        ("9 --rules ewna", "did you mean `ewma`"),
        ("9 --rules none", "dmm-printed, dmm-alone, oracle-throughput, count:N, deadline:SECONDS"),
        ("9 --rules all,", "no rule ``"),
        ("9 --rules count:x", "expected a number of workers after `count:`"),
        ("9 --rules deadline:0.0", "expected seconds after `deadline:`"),
        ("9 --rules count:31", "rule `count:31`: `workers` (31) must not exceed the cluster's 30"),
        ("9 --rules mine:Mine", "allow it with `--import mine`"),
        ("9 --nodes 31", "`nodes` is 31"),
    ):
        assert message in refusal("cutoffs", trace, "--train", *options.split()), options


@pytest.mark.slow
def test_nothing_heavy_is_loaded_to_print_help_and_no_jax_to_look_at_a_trace():
    program = """
import contextlib, sys
from fred.commands.cli import main
with contextlib.suppress(SystemExit):
    main(["--help"])
assert "numpy" not in sys.modules
for command in (["cutoffs", "example", "--train", "30"], ["diagnose", "example"], ["fit", "example"]):
    assert main(command) == 0
    assert "jax" not in sys.modules, command
"""
    subprocess.run([sys.executable, "-c", program], stdout=subprocess.DEVNULL, check=True)
