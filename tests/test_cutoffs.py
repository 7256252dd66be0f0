"""Cutoff rules: closed forms, SciPy, trial, and an oracle that none may surpass; how rules by time react to changes."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.components import registry
from fred.prediction.closed_loop import HeldBack, evaluate_held_out, run
from fred.prediction.contract import AllWorkers, Always, Choice, CutoffRule, Deadline, Oracle, Round
from fred.prediction.predictive import EWMA, Elfving, Predictive, Predictor, expected_normal_order_statistics
from fred.prediction.simple_rules import Distribution, FixedCount, FixedCountOrDeadline, FixedDeadline, MADDeadline
from fred.protocols.synchronous import Cutoff
from fred.schedule.schedule import Verb
from tests.rounds import NODES, RULES, clusters, rounds_of
from tests.worlds import make_run, record

TIMES = st.lists(st.integers(1, 9), min_size=1, max_size=9)
NONE = np.array([], np.int64)
ADAPTIVE = {"mad": MADDeadline(), "narrow": MADDeadline(k=0.1), "worker": MADDeadline(of="worker")}
EXAMPLES = {name: registry.lookup("cutoff", name).example() for name in registry.REGISTRY["cutoff"] if name[:3] != "dmm"}


class Witness(CutoffRule):
    rule: Any
    rounds: Any

    def start(self, node_of):
        chooser = self.rule.start(node_of)
        choose = chooser.choose
        chooser.choose = lambda times: self.rounds.append((times, choose(times))) or self.rounds[-1][1]
        return chooser


@pytest.mark.parametrize("name", EXAMPLES | RULES)
def test_it_drives_a_rule_as_the_protocol_does_to_the_last_bit(name):
    rule = (EXAMPLES | RULES)[name]
    noted: list[tuple[np.ndarray, Choice]] = []
    slow = {"name": "markov-switching", "of": "node", "slowdown": 3.0, "fast_seconds": 20, "slow_seconds": 20}
    cluster = Cluster(workers=30, nodes=3, compute={"name": "lognormal", "median": 1.0, "sigma": 0.4}, contention=[slow])
    schedule = record(Cutoff(rule=Witness(rule=rule, rounds=noted)), cluster, gradients=700)
    commits = schedule.rows(Verb.COMMIT)
    added = np.diff(np.searchsorted(schedule.rows(Verb.ADD), commits), prepend=0)
    times, choices = zip(*noted[: len(commits)], strict=True)
    rounds = run(rule, np.array(times) / 1e9, cluster.node_of, warm_up=0)
    assert rounds.cutoff.tolist() == added.tolist()
    assert len(added) > 20
    assert np.array_equal(rounds.time, np.diff(schedule["time_ns"][commits], prepend=0))
    assert all(choice == number for choice, number in zip(choices, added, strict=True) if not isinstance(choice, Deadline))
    assert (added <= [(choice.workers or 30) if isinstance(choice, Deadline) else choice for choice in choices]).all()


class TestRound:
    @given(TIMES, st.integers(0, 11), st.data())
    def test_a_round_is_what_a_walk_through_its_times_finds(self, times, deadline, data):
        number = data.draw(st.integers(1, len(times)))
        arrivals = sorted((time, worker) for worker, time in enumerate(times))
        choices = number, Deadline(deadline), Deadline(deadline, number)
        by_count, by_time, combined = (Round.from_choice(np.array(times), choice) for choice in choices)
        assert by_count.first.tolist() == [worker for _, worker in arrivals[:number]]
        assert by_count.cutoff == arrivals[number - 1][0]
        assert by_time.first.tolist() == ([worker for time, worker in arrivals if time <= deadline] or [arrivals[0][1]])
        assert by_time.cutoff == max(min(deadline, max(times)), min(times))
        assert isinstance(by_time.cutoff, int)
        assert combined.cutoff == min(by_time.cutoff, by_count.cutoff), "the one that ends first"
        assert combined.first.tolist() == min(by_time.first.tolist(), by_count.first.tolist(), key=len)
        for this in (by_count, by_time, combined):
            assert this.in_time.tolist() == [worker in this.first for worker in range(len(times))]
            assert this.observed.tolist() == np.minimum(times, this.cutoff).tolist()

    def test_a_rule_that_waits_for_nobody_or_for_more_than_there_are_is_refused(self):
        class Wrong(CutoffRule):
            choice: Any

            def start(self, node_of):
                return Always(self.choice)

        for choice, message in (
            *((number, f"wait for {number} workers; expected 1 to 3") for number in (0, 4)),
            (Deadline(-1), "a deadline -1 ns after the round's start; expected 0 or more"),
            *((Deadline(1, number), f"wait for {number} workers; expected 1 to 3") for number in (0, 4)),
        ):
            with pytest.raises(FredError, match=message):
                run(Wrong(choice=choice), np.ones((2, 3)), np.zeros(3, int), warm_up=0)
            with pytest.raises(FredError, match=message):
                record(Cutoff(rule=Wrong(choice=choice)), Cluster(workers=3), gradients=10)


def test_the_summary_of_rounds_by_hand():
    seconds = np.array([[5.0, 5.0, 5.0], [1.0, 1.0, 4.0], [1.0, 3.0, 3.0]])
    rounds = run(FixedCount(workers=2), seconds, np.zeros(3, int), warm_up=1)
    summary = rounds.summary()
    assert rounds.cutoff.tolist() == [2, 2]
    assert rounds.time.tolist() == [1_000_000_000, 3_000_000_000]
    assert rounds.best_cutoff.tolist() == [2, 1]  # of 2/1, 3/4 and of 1/1, 3/3, the first
    assert (summary["throughput"], summary["of_oracle"], summary["cutoff"]) == (1.0, 1.0 / 1.5, 2.0)
    assert summary["mean_ratio"] == pytest.approx((1 + 2 / 3) / 2)
    assert rounds.part(1, 2).summary()["throughput"] == pytest.approx(2 / 3)


def test_during_warm_up_all_are_waited_for_and_nothing_counts():
    seconds = rounds_of(0)
    assert run(Oracle(), seconds, NODES).summary()["of_oracle"] == 1.0
    assert len(run(Oracle(), seconds, NODES, warm_up=59).cutoff) == 1
    shares: list[float] = []
    run(AllWorkers(), seconds, NODES, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    with pytest.raises(ValueError, match="none is left"):
        run(Oracle(), seconds, NODES, warm_up=60)


class TestElfving:
    def test_its_approximation(self):
        """The paper's example, with its formula corrected (docs/errata.md, item 1), and the exact expectation by integration."""
        assert 1.057 + 0.393 * expected_normal_order_statistics(158)[-1] == pytest.approx(2.1047, abs=5e-5)
        assert 1.057 + 0.393 * expected_normal_order_statistics(160)[-1] == pytest.approx(2.1064, abs=5e-5)
        z = np.linspace(-9, 9, 20_001)
        for n, j in ((10, 1), (10, 5), (10, 10), (158, 150)):
            density = stats.beta.pdf(stats.norm.cdf(z), j, n - j + 1) * stats.norm.pdf(z)
            assert expected_normal_order_statistics(n)[j - 1] == pytest.approx(np.trapezoid(z * density, z), abs=0.03)

    def test_it_recovers_mean_and_deviation_although_late_workers_are_never_seen(self):
        rng, z = np.random.default_rng(0), expected_normal_order_statistics(40)
        chooser: Any = Elfving(window=200, at_least=0.1).start(np.zeros(40, int))
        for _ in range(200):
            times = np.maximum(rng.normal(2e9, 0.3e9, 40), 1).astype(np.int64)
            cutoff = np.sort(times)[24]
            chooser.observe(np.minimum(times, cutoff), times <= cutoff)
        deviation, mean = np.polyfit(z, chooser.expected(), 1)
        assert mean == pytest.approx(2.0, rel=0.02)
        assert deviation == pytest.approx(0.3, rel=0.05)
        assert abs(chooser.choose(times) - (1 + np.argmax(np.arange(1, 41) / (2.0 + 0.3 * z)))) <= 1


@pytest.mark.slow
def test_in_the_long_run_the_throughput_oracle_does_more_gradients_per_time():
    cluster, rates = Cluster(workers=30, compute={"name": "lognormal", "median": 1.0, "sigma": 0.8}), {}
    for objective in ("round", "throughput"):
        schedule = record(Cutoff(rule={"name": "oracle", "objective": objective}), cluster, seconds=1000, seed=4)
        rates[objective] = schedule.counts()["gradients"] / schedule.end_ns
    assert rates["round"] < rates["throughput"] < 1.1 * rates["round"]


def test_rules_that_cannot_work_are_refused():
    for rule, message in (
        ({"name": "count", "workers": 9}, r"`workers` \(9\) must not exceed the cluster's 4"),
        ({"name": "deadline", "seconds": 0}, "greater than or equal to 0.000000001"),
        ("deadline", "`deadline` needs `seconds`, or training on recorded rounds"),
        ({"name": "count-or-deadline", "workers": 3}, "`count-or-deadline` needs `seconds`"),
        ({"name": "count-or-deadline", "workers": 9, "seconds": 1.0}, r"`workers` \(9\) must not exceed the cluster's 4"),
        ({"name": "hmm", "by": "clock"}, "'count', 'deadline' or 'count-or-deadline'"),
    ):
        with pytest.raises(FredError, match=message):
            make_run("cutoff-sgd", protocol={"name": "cutoff", "rule": rule})
    with pytest.raises(ValueError, match="no iterations"):
        FixedDeadline().trained(np.ones((0, 30)), NODES)


class TestHeldBack:
    def test_the_last_quarter_counts_whole_and_the_constant_is_the_first_three_quarters_best(self):
        seconds = clusters(2, 100)
        result = evaluate_held_out(EWMA(of="node"), seconds, NODES, warm_up=10)
        best = int(np.argmax(np.arange(1, 31) / np.sort(seconds[:75], axis=1).mean(axis=0))) + 1
        fixed = best / np.sort(seconds[75:], axis=1)[:, best - 1].mean()
        throughput = run(EWMA(of="node"), seconds[65:], NODES, warm_up=10).summary()["throughput"]
        assert (result.rounds, result.static) == (25, best)
        assert result.ratio == pytest.approx(throughput / fixed, rel=1e-8)

    def test_the_oracle_is_better_and_waiting_for_one_is_worse(self):
        seconds = clusters(3, 200)
        oracle, impatient = (
            evaluate_held_out(rule, seconds, NODES) for rule in (Oracle(objective="throughput"), FixedCount(workers=1))
        )
        assert oracle.against_static.above
        assert (oracle.doubt, oracle.is_significantly_worse) == (None, False)
        assert impatient.is_significantly_worse
        assert str(impatient.doubt).startswith("in 50 rounds held back it was worse than always waiting for")

    def test_the_constant_itself_and_few_rounds_are_indistinguishable_from_it(self):
        seconds = clusters(4, 100)
        constant = evaluate_held_out(FixedCount(workers=evaluate_held_out(EWMA(), seconds, NODES).static), seconds, NODES)
        assert (constant.ratio, constant.interval) == (1, (1, 1))
        few = evaluate_held_out(EWMA(), seconds[:20], NODES)
        assert (few.rounds, few.interval) == (5, None)
        for result in (constant, few):
            assert not result.is_significantly_worse
            assert f"{result.rounds} rounds held back cannot tell it from always waiting for {result.static}" in str(
                result.doubt
            )
            assert HeldBack.model_validate_json(result.model_dump_json()) == result


def test_a_constant_deadline_on_exponential_times_by_the_closed_form():
    """n (1 - e^-d) of n workers arrive by d, or one if none does; such a round lasts 1 / n longer, a complete one is shorter."""
    n, rounds = 5, 8000
    seconds = np.random.default_rng(3).exponential(1.0, (rounds, n))
    for deadline in (0.05, 0.3, 1.0):
        result = run(FixedDeadline(seconds=deadline), seconds, np.zeros(n, int), warm_up=0)
        none, t = math.exp(-n * deadline), np.linspace(0, deadline, 10_001)
        gradients, time = n * -math.expm1(-deadline) + none, deadline + none / n - np.trapezoid((-np.expm1(-t)) ** n, t)
        error = 4 / math.sqrt(rounds)
        assert result.cutoff.mean() == pytest.approx(gradients, abs=error * result.cutoff.std())
        assert result.time.mean() / 1e9 == pytest.approx(time, abs=error * result.time.std() / 1e9)
        assert result.summary()["throughput"] == pytest.approx(gradients / time, rel=0.05)


class TestCensoredTimes:
    @given(
        st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=12).filter(lambda s: any(f for _, f in s))
    )
    def test_their_distribution_is_scipys(self, sample):
        times, arrived = (np.array(column) for column in zip(*sample, strict=True))
        ours = Distribution.estimate(times[:, None], arrived[:, None])
        law = stats.ecdf(stats.CensoredData(uncensored=times[arrived], right=times[~arrived])).sf
        for t in range(10):
            assert 1 - ours.mass[ours.times <= t].sum() == pytest.approx(law.evaluate(np.array([t]))[0], abs=1e-12)

    @given(st.lists(st.lists(st.integers(1, 9), min_size=7, max_size=7), min_size=1, max_size=9), st.floats(0.01, 1.0))
    def test_quantiles_and_deviations_of_complete_times_are_numpys_by_column(self, sample, share):
        times = np.array(sample)
        ours = Distribution.estimate(times, np.ones(times.shape, bool))
        assert ours.quantile(share).tolist() == np.quantile(times, share, axis=0, method="inverted_cdf").tolist()
        median = np.quantile(times, 0.5, axis=0, method="inverted_cdf")
        assert ours.mad().tolist() == np.quantile(abs(times - median), 0.5, axis=0, method="inverted_cdf").tolist()

    def test_quantiles_beyond_the_finished_times_are_infinite(self):
        ours = Distribution.estimate(
            np.array([[1, 1], [2, 2], [3, 3], [3, 3]]), np.array([[True, True]] * 2 + [[False, True]] * 2)
        )
        assert ours.quantile(0.5).tolist() == [2.0, 2.0]
        assert ours.quantile(0.51).tolist() == [np.inf, 3.0]
        assert Distribution.estimate(np.array([[1], [3], [3]]), np.array([[True], [False], [False]])).mad().tolist() == [np.inf]


@given(st.lists(st.lists(st.integers(1, 12), min_size=4, max_size=4), min_size=1, max_size=5))
def test_the_best_static_deadline_is_the_best_of_all_by_trial(rounds):
    times = np.array(rounds)
    best = FixedDeadline().trained(times.astype(float), np.zeros(4, int)).seconds

    def rate(deadline: float) -> float:
        rounds = [Round.from_choice(row * 10**9, Deadline.after(deadline)) for row in times]
        return sum(len(played.first) for played in rounds) / sum(played.cutoff for played in rounds)

    assert best is not None and best in times
    assert rate(best) == max(rate(deadline) for deadline in np.arange(0.25, 14, 0.25))


def test_the_best_number_with_a_deadline_is_the_best_by_trial():
    seconds = clusters(3, 60).round(2)
    seconds[[17, 50], 5:] *= 20  # such rounds are not worth their c-th worker

    def rate(rule: FixedCount | FixedCountOrDeadline) -> float:
        return run(rule, seconds, NODES, warm_up=0).summary()["throughput"]

    count, combined = FixedCount().trained(seconds, NODES), FixedCountOrDeadline().trained(seconds, NODES)
    assert combined.workers == count.workers
    rates = [rate(FixedCountOrDeadline(workers=count.workers, seconds=at)) for at in np.unique(seconds)]
    assert rate(combined) == max(rates) > rate(count)
    timed = FixedCountOrDeadline(seconds=1.4).trained(seconds, NODES)
    assert timed.seconds == 1.4
    counts = [rate(FixedCountOrDeadline(workers=number, seconds=1.4)) for number in range(1, 31)]
    assert rate(timed) == max(counts) > rate(FixedCountOrDeadline(workers=count.workers, seconds=1.4))


class TestMADDeadline:
    def test_of_normal_times_three_deviations_take_nearly_all(self):
        """Three MAD of a normal variable are two deviations; times that are dropped in one round must not count in the next."""
        seconds = 2 + 0.1 * np.random.default_rng(1).standard_normal((300, 50))
        share = stats.norm.cdf(3 * stats.norm.ppf(0.75))
        cutoff = run(MADDeadline(), seconds, np.zeros(50, int)).cutoff
        assert np.median(cutoff) / 50 == pytest.approx(share, abs=0.03)
        assert cutoff.mean() / 50 == pytest.approx(share, abs=0.04)

    @pytest.mark.parametrize("name", ADAPTIVE)
    def test_a_slower_cluster_is_waited_for_again_and_a_faster_one_not_longer(self, name):
        seconds = rounds_of(0, 180)
        seconds[60:120] *= 8
        result = run(ADAPTIVE[name], seconds, NODES, warm_up=0)
        cutoff, usual = result.cutoff, result.cutoff[20:60].mean()
        assert cutoff[60] < usual / 2 <= cutoff[62:64].max()
        assert cutoff[80:120].mean() > 0.7 * usual
        assert cutoff[140:].mean() < 1.3 * usual
        assert result.time[140:].max() < 2 * result.time[20:60].max()

    def test_each_worker_by_its_own_times_waits_for_the_latest_of_them(self):
        chooser = MADDeadline(of="worker", k=2.0).start(np.zeros(3, int))
        for times, arrived, deadline in (
            *(([10, 20, 90], True, None), ([12, 20, 91], True, None), ([14, 20, 99], True, 91 + 2 * 1)),
            ([200, 200, 90], [False, False, True], 90),  # two are late; half of the third's are 90: it has no deviation
            ([200, 200, 200], False, 400),
        ):
            chooser.observe(np.array(times), np.broadcast_to(arrived, 3))
            assert deadline is None or chooser.choose(NONE) == Deadline(deadline)


class FixedTimes(Predictive):
    times: tuple[float, ...] = (1.0, 1.1, 1.2, 3.5)

    def start(self, node_of: Any) -> Predictor:
        return FixedPredictor(self, len(self.times))

    def chooser_after(self, *seconds: float) -> Predictor:
        """Return a chooser after a round of which it chose nothing, and one in which all workers took these times, s."""
        chooser = self.start(None)
        for time in (1.0, *seconds):
            chooser.choose(NONE)
            chooser.observe(np.full(len(self.times), round(time * 1e9)), np.ones(len(self.times), bool))
        return chooser


class FixedPredictor(Predictor):
    def __init__(self, rule: FixedTimes, workers: int):
        super().__init__(rule, workers)
        self.times = np.array(rule.times)

    def expected(self) -> np.ndarray:
        return self.times

    def learn(self, seconds: np.ndarray, finished: np.ndarray) -> None:
        pass


class TestPredictorsByTime:
    RULE = FixedTimes(objective="round", by="count-or-deadline")

    def test_they_announce_when_the_number_that_they_would_choose_is_expected(self):
        for objective, c in (("round", 3), ("throughput", 4)):
            by_count, by_time = (
                FixedTimes(objective=objective, by=by).chooser_after(40.0).choose(NONE) for by in ("count", "deadline")
            )
            assert (by_count, by_time) == (c, Deadline.after((1.0, 1.1, 1.2, 3.5)[c - 1])), objective

    def test_a_number_is_not_waited_for_longer_than_its_usual_deviations(self):
        """Three mean deviations of log x_(c), by NumPy: of all rounds at first, then with a weight of a quarter; each at most .2."""
        rng, mean, late = np.random.default_rng(0), 0.2, []
        chooser = self.RULE.chooser_after()
        for number in range(12):
            deadline = chooser.choose(NONE)
            assert isinstance(deadline, Deadline)
            assert deadline.workers == 3
            assert deadline.ns == pytest.approx(1.2e9 * math.exp(3 * mean), abs=1)
            times = (rng.lognormal(0.2, 0.2, 4) * 1e9).astype(np.int64)
            times[1:] *= 10 if number == 8 else 1
            this = Round.from_choice(times, deadline)
            late.append(this.cutoff == deadline.ns)
            error = max(abs(math.log(this.cutoff / 1.2e9)), 0.05 if len(this.first) < 3 else 0.0)
            mean += max(0.25, 1 / (number + 1)) * (min(error, 0.2) - mean)
            chooser.observe(this.observed, this.in_time)
        assert late[8]
        assert not all(late)

    def test_a_worker_that_becomes_always_late_is_soon_waited_for(self):
        for late in (1.3, 2.0):
            chooser, counts = self.RULE.chooser_after(), []
            for third in [1.2] * 30 + [late] * 30:
                this = Round.from_choice((np.array([1.0, 1.1, third, 3.5]) * 1e9).astype(np.int64), chooser.choose(NONE))
                chooser.observe(this.observed, this.in_time)
                counts.append(len(this.first))
            assert counts[:30] + counts[50:] == [3] * 40

    def test_a_round_that_others_cut_short_says_nothing_of_lateness(self):
        chooser = self.RULE.chooser_after()
        for played in [3] * 40 + [1] * 5:
            deadline = chooser.choose(NONE)
            this = Round.from_choice((np.array([1.0, 1.1, 1.2, 3.5]) * 1e9).astype(np.int64), played)
            chooser.observe(this.observed, this.in_time)
        assert isinstance(deadline, Deadline)
        assert deadline.ns == pytest.approx(1.2e9, rel=1e-3)

    def test_a_time_expected_before_the_round_begins_is_none(self):
        assert FixedTimes(by="deadline", at_least=0.5, times=(-2.0, -1.0)).chooser_after().choose(NONE) == Deadline(0)
        seconds = np.random.default_rng(0).lognormal(0, 2.0, (60, 30))
        assert run(Elfving(by="deadline", at_least=0.01), seconds, NODES).cutoff.min() >= 1

    @pytest.mark.parametrize("by", ["count", "deadline", "count-or-deadline"])
    @given(rounds=st.lists(st.lists(st.integers(1, 60), min_size=4, max_size=4), min_size=1, max_size=5))
    def test_a_round_counts_the_same_whether_it_was_left_to_the_rule_or_all_were_waited_for(self, by, rounds):
        chooser, observed = (FixedTimes(by=by).chooser_after() for _ in range(2))
        for times in rounds:
            full = np.array(times) * 10**8
            this = Round.from_choice(full, chooser.choose(NONE))
            assert observed.choose(NONE) == chooser.choose(NONE)
            chooser.observe(this.observed, this.in_time)
            observed.observe(full, np.ones(4, bool))
        assert chooser.choose(NONE) == observed.choose(NONE)
