"""Rules by time: against closed forms, SciPy and trial; how they find out that the cluster has changed."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fred.base.errors import FredError
from fred.prediction import closed_loop
from fred.prediction.censored import Distribution
from fred.prediction.contract import Deadline, Round
from fred.prediction.elfving import Elfving
from fred.prediction.empirical import Empirical
from fred.prediction.ewma import EWMA
from fred.prediction.fixed import FixedCount, FixedCountOrDeadline, FixedDeadline
from fred.prediction.mad_deadline import MADDeadline
from fred.prediction.predictive import Predictive, Predictor, _came_to
from tests.rounds import NODES, clusters, rounds_of

SAMPLES = st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=12)
ADAPTIVE: dict[str, MADDeadline] = {
    "mad": MADDeadline(),
    "narrow": MADDeadline(k=0.1),
    "worker": MADDeadline(of="worker"),
}


@pytest.mark.parametrize("deadline", [0.05, 0.3, 1.0])
def test_a_constant_deadline_on_exponential_times_by_the_closed_form(deadline):
    """Of n workers n (1 - e^-d) come by d, one more where none does; such a round lasts 1 / n longer, a complete one is shorter."""
    n, rounds = 5, 8000
    seconds = np.random.default_rng(3).exponential(1.0, (rounds, n))
    found = closed_loop.run(FixedDeadline(seconds=deadline), seconds, np.zeros(n, int), warm_up=0)
    none = math.exp(-n * deadline)
    t = np.linspace(0, deadline, 10_001)
    gradients, time = n * -math.expm1(-deadline) + none, deadline + none / n - np.trapezoid((-np.expm1(-t)) ** n, t)
    error = 4 / math.sqrt(rounds)
    assert found.cutoff.mean() == pytest.approx(gradients, abs=error * found.cutoff.std())
    assert found.time.mean() / 1e9 == pytest.approx(time, abs=error * found.time.std() / 1e9)
    assert found.summary()["throughput"] == pytest.approx(gradients / time, rel=0.05)


class TestCensoredTimes:
    @given(SAMPLES.filter(lambda sample: any(finished for _, finished in sample)))
    def test_their_distribution_is_scipys(self, sample):
        times, finished = (np.array(each) for each in zip(*sample, strict=True))
        ours = Distribution.of(times[:, None], finished[:, None])
        law = stats.ecdf(stats.CensoredData(uncensored=times[finished], right=times[~finished])).sf
        for t in range(10):
            assert 1 - ours.mass[ours.times <= t].sum() == pytest.approx(law.evaluate(np.array([t]))[0], abs=1e-12)

    @given(st.lists(st.lists(st.integers(1, 9), min_size=7, max_size=7), min_size=1, max_size=9), st.floats(0.01, 1.0))
    def test_quantiles_and_deviations_of_complete_times_are_numpys_by_column(self, sample, share):
        times = np.array(sample)
        ours = Distribution.of(times, np.ones(times.shape, bool))
        assert ours.quantile(share).tolist() == np.quantile(times, share, axis=0, method="inverted_cdf").tolist()
        median = np.quantile(times, 0.5, axis=0, method="inverted_cdf")
        assert ours.mad().tolist() == np.quantile(abs(times - median), 0.5, axis=0, method="inverted_cdf").tolist()

    def test_what_too_few_have_finished_for_is_not_known(self):
        ours = Distribution.of(np.array([[1, 1], [2, 2], [3, 3], [3, 3]]), np.array([[True, True]] * 2 + [[False, True]] * 2))
        assert ours.quantile(0.5).tolist() == [2.0, 2.0]
        assert ours.quantile(0.51).tolist() == [np.inf, 3.0]
        late = Distribution.of(np.array([[1], [3], [3]]), np.array([[True], [False], [False]]))
        assert late.mad().tolist() == [np.inf]


@given(st.lists(st.lists(st.integers(1, 12), min_size=4, max_size=4), min_size=1, max_size=5))
def test_the_best_static_deadline_is_the_best_of_all_by_trial(rounds):
    times = np.array(rounds)
    found = FixedDeadline().trained(times.astype(float), np.zeros(4, int)).seconds
    assert found is not None

    def rate(deadline: float) -> float:
        ended = [Round.of(each * 10**9, Deadline.after(deadline)) for each in times]
        return sum(len(each.first) for each in ended) / sum(each.cutoff for each in ended)

    assert found in times
    assert rate(found) == max(rate(deadline) for deadline in np.arange(0.25, 14, 0.25))


def test_a_trained_deadline_does_what_training_promised():
    seconds = clusters(3, 200)
    own = FixedDeadline().trained(seconds, NODES)
    best = closed_loop.run(own, seconds, NODES, warm_up=0).summary()["throughput"]
    tried = [closed_loop.run(FixedDeadline(seconds=d), seconds, NODES, warm_up=0) for d in np.linspace(0.6, 4, 35)]
    assert best >= max(each.summary()["throughput"] for each in tried)
    with pytest.raises(ValueError, match="no iterations"):
        FixedDeadline().trained(seconds[:0], NODES)


def test_the_best_number_with_a_deadline_beside_it_is_the_best_by_trial():
    seconds = clusters(3, 60).round(2)
    seconds[[17, 50], 5:] *= 20  # such rounds are not worth their c-th worker
    alone, beside = FixedCount().trained(seconds, NODES), FixedCountOrDeadline().trained(seconds, NODES)
    assert beside.seconds is not None
    assert beside.workers == alone.workers
    rates = {}
    for deadline in np.unique(seconds):
        tried = FixedCountOrDeadline(workers=alone.workers, seconds=deadline)
        rates[deadline] = closed_loop.run(tried, seconds, NODES, warm_up=0).summary()["throughput"]
    assert rates[beside.seconds] == max(rates.values())
    assert rates[beside.seconds] > closed_loop.run(alone, seconds, NODES, warm_up=0).summary()["throughput"]
    given = FixedCountOrDeadline(seconds=1.4).trained(seconds, NODES)
    assert given.seconds == 1.4
    counts: dict[int | None, float] = {
        number: closed_loop.run(given.model_copy(update={"workers": number}), seconds, NODES, warm_up=0).summary()["throughput"]
        for number in range(1, 31)
    }
    assert counts[given.workers] == max(counts.values()) > counts[alone.workers]
    with pytest.raises(ValueError, match="`count-or-deadline` needs `seconds`"):
        FixedCountOrDeadline(workers=3).start(NODES)
    with pytest.raises(ValueError, match=r"`workers` \(31\) must not exceed the cluster's 30"):
        FixedCountOrDeadline(workers=31, seconds=1.0).start(NODES)


class TestMADDeadline:
    def test_of_normal_times_three_deviations_take_nearly_all(self):
        """Three MAD of a normal variable are two deviations; what is dropped in one round must not count in the next."""
        seconds = 2 + 0.1 * np.random.default_rng(1).standard_normal((300, 50))
        share = stats.norm.cdf(3 * stats.norm.ppf(0.75))
        found = closed_loop.run(MADDeadline(), seconds, np.zeros(50, int))
        assert np.median(found.cutoff) / 50 == pytest.approx(share, abs=0.03)
        assert found.cutoff.mean() / 50 == pytest.approx(share, abs=0.04)

    @pytest.mark.parametrize("name", ADAPTIVE)
    def test_a_cluster_that_becomes_slow_is_waited_for_again_and_one_that_becomes_fast_not_longer(self, name):
        rule, seconds = ADAPTIVE[name], rounds_of(0, 180)
        seconds[60:120] *= 8
        found = closed_loop.run(rule, seconds, NODES, warm_up=0)
        usual = found.cutoff[20:60].mean()
        assert found.cutoff[60] < usual / 2
        assert found.cutoff[62:64].max() >= usual / 2
        assert found.cutoff[80:120].mean() > 0.7 * usual
        assert found.time[140:].max() < 2 * found.time[20:60].max()
        assert found.cutoff[140:].mean() < 1.3 * usual

    @pytest.mark.parametrize("name", ADAPTIVE)
    def test_no_rule_chokes_itself(self, name):
        """In the long run as many are there as in the beginning."""
        found = closed_loop.run(ADAPTIVE[name], np.random.default_rng(2).exponential(1.0, (600, 30)), NODES)
        assert found.cutoff[-100:].mean() > 0.8 * found.cutoff[:100].mean()

    def test_each_worker_by_its_own_times_waits_for_the_latest_of_them(self):
        chooser = MADDeadline(of="worker", k=2.0).start(np.zeros(3, int))
        for row in ([10, 20, 90], [12, 20, 91], [14, 20, 99]):
            chooser.observe(np.array(row), np.ones(3, bool))
        assert chooser.choose(np.array([])) == Deadline(91 + 2 * 1)
        chooser.observe(np.array([200, 200, 90]), np.array([False, False, True]))  # two of three are late
        assert chooser.choose(np.array([])) == Deadline(90)  # half of the third's are 90, so that its deviation is none
        chooser.observe(np.array([200, 200, 200]), np.array([False, False, False]))
        assert chooser.choose(np.array([])) == Deadline(400)


class _Told(Predictive):
    """Expects what it is told, as many times as it is asked."""

    times: tuple[float, ...]

    def start(self, node_of: Any) -> "_Teller":
        return _Teller(self, len(node_of))


class _Teller(Predictor):
    def __init__(self, rule: _Told, workers: int):
        super().__init__(rule, workers)
        self._told = np.array(rule.times)

    def expected(self) -> np.ndarray:
        return self._told

    def learn(self, seconds: np.ndarray, finished: np.ndarray) -> None:
        pass


class TestPredictorsByTime:
    @pytest.mark.parametrize(("objective", "c"), [("round", 3), ("throughput", 4)])
    def test_they_announce_when_the_number_that_they_would_choose_is_expected(self, objective, c):
        expected = (1.0, 1.1, 1.2, 3.5)
        by_count, by_time = (
            _Told(objective=objective, by=by, times=expected).start(np.zeros(4)) for by in ("count", "deadline")
        )
        for chooser in (by_count, by_time):
            chooser.choose(np.array([]))
            chooser._best.came_to(4, 40.0)
            chooser.observe(np.full(4, 10**9), np.ones(4, bool))
        assert by_count.choose(np.array([])) == c
        assert by_time.choose(np.array([])) == Deadline.after(expected[c - 1])

    def test_a_number_is_not_waited_for_longer_than_its_usual_deviations(self):
        """Three mean deviations of log x_(c), by NumPy: of all rounds at first, then with a weight of a quarter; each at most .2."""
        rng, mean, patience = np.random.default_rng(0), 0.2, []
        chooser = _Told(objective="round", by="count-or-deadline", times=(1.0, 1.1, 1.2, 3.5)).start(np.zeros(4))
        chooser.observe(np.full(4, 10**9), np.ones(4, bool))
        for number in range(12):
            chosen = chooser.choose(np.array([]))
            assert isinstance(chosen, Deadline)
            assert chosen.workers == 3
            assert chosen.ns == pytest.approx(1.2e9 * math.exp(3 * mean), abs=1)
            times = (rng.lognormal(0.2, 0.2, 4) * 1e9).astype(np.int64)
            times[1:] *= 10 if number == 8 else 1
            this = Round.of(times, chosen)
            patience.append(this.cutoff == chosen.ns)
            error = max(abs(math.log(this.cutoff / 1.2e9)), 0.05 if len(this.first) < 3 else 0.0)
            mean += max(0.25, 1 / (number + 1)) * (min(error, 0.2) - mean)
            chooser.observe(this.seen, this.taken)
        assert patience[8]
        assert not all(patience)

    @pytest.mark.parametrize("late", [1.3, 2.0])
    def test_who_is_always_late_is_waited_for_soon(self, late):
        """Although nothing had ever been late before."""
        chooser = _Told(objective="round", by="count-or-deadline", times=(1.0, 1.1, 1.2, 3.5)).start(np.zeros(4))
        chooser.observe(np.full(4, 10**9), np.ones(4, bool))
        counts = []
        for third in [1.2] * 30 + [late] * 30:
            this = Round.of((np.array([1.0, 1.1, third, 3.5]) * 1e9).astype(np.int64), chooser.choose(np.array([])))
            chooser.observe(this.seen, this.taken)
            counts.append(len(this.first))
        assert counts[:30] == [3] * 30
        assert counts[50:] == [3] * 10

    def test_a_round_that_others_cut_short_says_nothing_of_lateness(self):
        chooser = _Told(objective="round", by="count-or-deadline", times=(1.0, 1.1, 1.2, 3.5)).start(np.zeros(4))
        chooser.observe(np.full(4, 10**9), np.ones(4, bool))
        for played in [3] * 40 + [1] * 5:
            chosen = chooser.choose(np.array([]))
            this = Round.of((np.array([1.0, 1.1, 1.2, 3.5]) * 1e9).astype(np.int64), played)
            chooser.observe(this.seen, this.taken)
        assert isinstance(chosen, Deadline)
        assert chosen.ns == pytest.approx(1.2e9, rel=1e-3)

    def test_a_time_expected_before_the_round_begins_is_none(self):
        chooser = _Told(by="deadline", at_least=0.5, times=(-2.0, -1.0)).start(np.zeros(2))
        chooser.observe(np.array([1, 2]), np.ones(2, bool))
        assert chooser.choose(np.array([])) == Deadline(0)

    @given(
        st.lists(st.integers(1, 9), min_size=1, max_size=9),
        st.one_of(st.integers(1, 9), st.builds(Deadline, st.integers(0, 11), st.none() | st.integers(1, 9))),
    )
    def test_a_round_counts_the_same_whether_it_was_left_to_the_rule_or_all_were_waited_for(self, times, choice):
        whole = np.array(times)
        if isinstance(choice, int):
            choice = min(choice, len(times))
        elif choice.workers:
            choice = Deadline(choice.ns, min(choice.workers, len(times)))
        this = Round.of(whole, choice)
        assert _came_to(whole, np.ones(len(times), bool), choice) == (len(this.first), this.cutoff)
        assert _came_to(this.seen, this.taken, choice) == (len(this.first), this.cutoff)

    @pytest.mark.parametrize("make", [Empirical, lambda **by: EWMA(of="node", **by)])
    def test_where_nothing_varies_time_and_count_are_one(self, make: Callable[..., Predictive]):
        seconds = np.tile(np.exp(0.3 * np.random.default_rng(0).standard_normal(30)), (60, 1)).round(3)
        seconds[:, 25:] *= 4
        by_count, by_time = (closed_loop.run(make(by=by), seconds, NODES) for by in ("count", "deadline"))
        assert by_time.summary()["of_oracle"] == pytest.approx(by_count.summary()["of_oracle"], rel=0.05)

    def test_where_the_number_of_slow_workers_varies_time_beats_count(self):
        """Each of thirty workers is ten times slower with probability 1/4, anew in every round: nobody can know how many."""
        rng = np.random.default_rng(4)
        seconds = rng.uniform(0.95, 1.05, (500, 30)) * np.where(rng.random((500, 30)) < 0.25, 10.0, 1.0)
        by_count = [closed_loop.run(FixedCount(workers=c), seconds, NODES).summary() for c in range(1, 31)]
        by_time = closed_loop.run(FixedDeadline(seconds=1.05), seconds, NODES).summary()
        assert by_time["of_oracle"] > 0.99
        assert max(each["of_oracle"] for each in by_count) < 0.9


def test_a_fixed_deadline_must_lie_after_the_beginning():
    with pytest.raises(ValueError, match="greater than 0"):
        FixedDeadline(seconds=0.0)
    with pytest.raises(FredError, match="expected 0 or more"):
        Round.of(np.ones(3, int), Deadline(-5))


def test_elfving_may_expect_what_is_over_before_it_begins():
    """Its line through wide times goes below 0."""
    seconds = np.random.default_rng(0).lognormal(0, 2.0, (60, 30))
    assert closed_loop.run(Elfving(by="deadline", at_least=0.01), seconds, NODES).cutoff.min() >= 1
