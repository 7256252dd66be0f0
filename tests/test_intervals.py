"""Intervals: their values on examples, how often they cover the true value, and closed forms."""

import itertools
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fred.base.intervals import (
    FEWEST_ROUNDS,
    FEWEST_SEEDS,
    Mean,
    Played,
    Verdict,
    block_length,
    block_ratio,
    block_ratios,
    holm,
    intervals,
    quantile,
    spell_ratio,
    verdict,
)
from fred.prediction.closed_loop import Rounds
from tests.worlds import mostly_slow

ratio = Rounds.ratio_to
ROUND = np.arange(40)
GRADIENTS, TIME = 4 + ROUND % 3, 10 + ROUND**2 % 7
SLOW = (ROUND >= 12) & (ROUND < 25)
RULE, EVERY, BOUND = (
    Played(gradients[:, None] * 1.0, seconds[:, None] * 1.0)
    for gradients, seconds in ((GRADIENTS, TIME), (np.full(40, 6), TIME * np.where(SLOW, 2, 1)), (np.full(40, 6), TIME))
)


def test_values_are_those_of_published_tables():
    """Pinned: a change of method changes every table, so it must be deliberate."""
    backwards = Played(GRADIENTS[::-1], TIME + 3)
    table = np.stack([GRADIENTS, TIME]).astype(np.float64)[:, :, None]
    for interval, expected in (
        (block_ratio(Played(GRADIENTS, TIME), backwards), (1.2505219206680585, 1.2180565465708197, 1.2838526080532893)),
        (block_ratios(table), (0.39902179, 0.43255219)),
        (spell_ratio(SLOW, RULE, EVERY), (1.0992084203201113, 0.848473003, 1.589173935)),
        (spell_ratio(SLOW, RULE, EVERY, BOUND), (1.0992084203201113, 0.848473003, 1.691573301)),
    ):
        np.testing.assert_allclose(np.ravel(interval), expected, rtol=1e-8)


def rounds_of(cutoff: np.ndarray, seconds: np.ndarray) -> Rounds:
    time = np.rint(1e9 * seconds).astype(np.int64)
    return Rounds(cutoff, time, np.zeros(len(time)), cutoff, time)


def persistent(rng: np.random.Generator, shape: tuple[int, ...], phi: float) -> np.ndarray:
    """Standard normal values that correlate by phi with the ones before, along the last axis."""
    values = rng.standard_normal(shape)
    for i in range(1, shape[-1]):
        values[..., i] = phi * values[..., i - 1] + np.sqrt(1 - phi**2) * values[..., i]
    return values


def coverage(count: int, phi: float, repeats: int) -> float:
    """Return the coverage for log-normal times that both rules share in part: E[c] = 24, 32 gradients, E[x] = 1.3 exp(0.05), 1 s."""
    rng, covered = np.random.default_rng(count), 0
    true = 24 / 32 * np.exp(0.3**2 / 2 + 0.1**2 / 2) / np.exp(0.1**2 / 2) * 1.3
    for _ in range(repeats):
        slow = np.exp(0.3 * persistent(rng, (count,), phi))
        rule_noise, all_noise = np.exp(0.1 * rng.standard_normal((2, count)))
        interval = ratio(
            rounds_of(rng.integers(23, 26, count), rule_noise), rounds_of(np.full(count, 32), 1.3 * slow * all_noise)
        )
        covered += interval.low <= true <= interval.high
    return covered / repeats


@pytest.mark.parametrize(
    ("count", "phi", "repeats", "least"),
    [
        *((20, 0.0, 150, 0.9), (60, 0.5, 150, 0.9), (400, 0.5, 150, 0.9)),
        *mostly_slow([(8, 0.0, 1000, 0.93), (20, 0.5, 1000, 0.9), (100, 0.5, 1000, 0.91), (400, 0.8, 1000, 0.88)], []),
    ],
)
def test_nominal_95_percent_hold_the_true_ratio_of_paired_persistent_rounds(count, phi, repeats, least):
    assert least <= coverage(count, phi, repeats) <= 0.99


def test_shared_noise_cancels_since_rounds_are_paired():
    """A slowdown of both rules widens the interval of each throughput, but not that of their ratio."""
    rng = np.random.default_rng(3)
    slow, small = np.exp(persistent(rng, (200,), 0.8)), 0.01 * rng.standard_normal(200)
    rule, baseline = rounds_of(np.full(200, 20), slow), rounds_of(np.full(200, 22), slow * (1 + small))
    interval = ratio(rule, baseline)
    assert interval.below and interval.high / interval.low < 1.01
    assert not ratio(rule, rounds_of(np.full(200, 22), np.roll(baseline.time, 100) / 1e9)).below


def test_of_independent_rounds_it_is_as_wide_as_the_delta_method_says():
    rng, wider = np.random.default_rng(4), []
    for _ in range(20):
        rule, baseline = (rounds_of(np.full(1000, 20), rng.uniform(1, 3, 1000)) for _ in range(2))
        shares = baseline.time / baseline.time.mean() - rule.time / rule.time.mean()
        width = 2 * stats.t.ppf(0.975, 30) * shares.std() / np.sqrt(1000)
        interval = ratio(rule, baseline)
        assert interval.value == pytest.approx(baseline.time.sum() / rule.time.sum())
        assert interval.value**2 == pytest.approx(interval.low * interval.high)
        wider.append(np.log(interval.high / interval.low) / width)
    assert np.mean(wider) == pytest.approx(1, abs=0.08)


def test_blocks_are_as_long_as_the_closed_form_for_persistent_values_says():
    """Politis & White 2004 of an AR(1): G / g(0) = 2 phi / (1 - phi^2)."""
    phi, count = 0.9, 4000
    several = persistent(np.random.default_rng(5), (12, count), phi)
    exact = (1.5 * count * (2 * phi / (1 - phi**2)) ** 2) ** (1 / 3)
    assert exact > 1.2 * count**0.5
    assert np.mean([block_length(values) for values in several]) == pytest.approx(exact, rel=0.15)


def test_blocks_of_constant_or_independent_values_are_short():
    for count, length in ((1, 1), (8, 2), (9, 2), (100, 10), (1001, 32)):
        assert block_length(np.ones(count)) == length
        assert length <= block_length(np.random.default_rng(count).random(count)) <= 1.5 * length


def test_a_rule_is_as_good_as_itself_and_few_rounds_have_no_interval():
    rng = np.random.default_rng(6)
    rule, baseline = (rounds_of(np.full(FEWEST_ROUNDS, 3), rng.uniform(1, 2, FEWEST_ROUNDS)) for _ in range(2))
    assert ratio(rule, rule) == (1.0, 1.0, 1.0)
    assert ratio(rule, baseline).has_interval
    few = ratio(rule.part(0, FEWEST_ROUNDS - 1), baseline.part(0, FEWEST_ROUNDS - 1))
    assert (few.low, few.high, few.interval) == (0.0, np.inf, None)
    assert not few.above | few.below
    assert ratio(rule.part(0, 1), rule.part(0, 1)).interval == (1.0, 1.0)
    constant = ratio(rounds_of(np.full(30, 3), np.ones(30)), rounds_of(np.full(30, 4), np.ones(30)))
    assert constant == (0.75, 0.75, 0.75), "rounds that never differ but in one number leave no doubt"


def test_no_interval_reaches_beyond_the_worst_and_the_best_single_round():
    """One round takes most of the time, so the spread is large; but a rule that is faster in each round is faster."""
    seconds = np.array([1.0, 1.1, 0.9, 1.2, 1.0, 1.1, 40.0, 0.9, 1.0, 1.1, 1.2, 1.0])
    interval = ratio(rounds_of(np.full(12, 20), 0.8 * np.minimum(seconds, 2)), rounds_of(np.full(12, 20), seconds))
    assert interval.above and interval.low == pytest.approx(1.25) and interval.high <= 25


def test_the_order_of_computing_and_the_process_do_not_matter():
    rng, oracle = np.random.default_rng(7), [np.ones(90)] * 3
    sequences = [Rounds(rng.integers(1, 9, 90), rng.integers(10**9, 10**10, 90), *oracle) for _ in range(3)]  # type: ignore[arg-type]
    pairs = [(sequences[0], sequences[1]), (sequences[0], sequences[2]), (sequences[2], sequences[1])]
    code = (
        "import pickle, sys; from fred.prediction.closed_loop import Rounds;"
        "print([tuple(map(float.hex, Rounds.ratio_to(*pair))) for pair in pickle.load(sys.stdin.buffer)])"
    )
    out = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(pairs[::-1]), capture_output=True, check=True).stdout
    assert out.decode().strip() == str([tuple(map(float.hex, ratio(*pair))) for pair in pairs][::-1])


VALUES = st.lists(st.floats(-1e6, 1e6).filter(lambda value: value == 0 or abs(value) > 1e-6), min_size=5, max_size=12)


class TestMean:
    def test_interval_and_p_value_are_scipys(self):
        for count, bound in itertools.product([5, 8, 10, 200], [0.0, 1.3]):
            values = np.random.default_rng(count).lognormal(size=count)
            expected, mean = stats.ttest_1samp(values, bound), Mean.estimate(values)
            for misses in (0.05, 0.05 / 54):
                interval = np.array(expected.confidence_interval(1 - misses))
                np.testing.assert_allclose(mean.interval(misses), interval, rtol=1e-10)
            assert mean.p_value([bound]) == pytest.approx(expected.pvalue, rel=1e-9)
        assert [round(quantile(seeds), 3) for seeds in (2, 5, 10, 30)] == [12.706, 2.776, 2.262, 2.045], "as in printed tables"

    def test_fewer_than_five_seeds_have_no_interval(self):
        assert FEWEST_SEEDS == 5
        for count in range(5):
            mean = Mean.estimate(np.arange(count) + 10.0)
            assert all(map(math.isnan, mean.interval())) and verdict(mean.interval()) == Verdict.OPEN
            assert mean.p_value() == 1.0
        assert all(math.isfinite(end) for end in Mean.estimate(np.arange(5.0)).interval())

    def test_equal_values_are_their_own_interval(self):
        for values in ([0.1] * 6, [1.1 / 3.3, 2.2 / 6.6, 4.4 / 13.2] * 2, [0.0] * 5):
            mean = Mean.estimate(values)
            assert mean.interval() == (mean.value, mean.value) and mean.value == pytest.approx(values[0], rel=1e-12)
            assert mean.p_value() == (0.0 if mean.value else 1.0)

    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize("values", [[1e300, -1e300] * 3, [1e-300, 3e-300] * 3, [0.0] * 5 + [1e308], [1.0] * 5 + [math.nan]])
    def test_values_of_any_size_raise_no_warning(self, values):
        low, high = Mean.estimate(values).interval()
        assert math.isnan(low) or low <= Mean.estimate(values).value <= high

    @given(VALUES, st.floats(0.01, 100.0), st.floats(-100.0, 100.0), st.randoms())
    def test_the_interval_moves_with_the_values_and_mirrors_them_in_any_order(self, values, factor, shift, random):
        scale = max(map(abs, values)) * factor + abs(shift)
        mean = Mean.estimate(values)
        low, high = mean.interval()
        moved, expected = Mean.estimate(factor * np.array(values) + shift).interval(), factor * np.array([low, high]) + shift
        np.testing.assert_allclose(moved, expected, rtol=0, atol=1e-9 * scale + 1e-300)
        assert Mean.estimate([-value for value in values]).interval() == (-high, -low)
        assert Mean.estimate(random.sample(values, len(values))) == mean


class TestFamily:
    def test_holm_by_hand(self):
        """A family of four: 0.005 <= 0.05 / 4 and 0.01 <= 0.05 / 3 are rejected, 0.03 > 0.05 / 2 is not, so 0.04 is not."""
        np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.05 / 3, 0.05 / 2, 0.05 / 2, 0.05 / 4])

    @given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20))
    def test_comparisons_with_a_small_adjusted_p_value_are_rejected(self, p_values):
        """Adjusted p-values as defined by Wright [1992, Biometrics 48]."""
        order = sorted(range(len(p_values)), key=lambda place: p_values[place])
        adjusted = itertools.accumulate(((len(order) - rank) * p_values[place] for rank, place in enumerate(order)), max)
        rejected = {place: value < 0.05 for place, value in zip(order, adjusted, strict=True)}
        small = {place: p_values[place] < share for place, share in enumerate(holm(p_values))}
        close = [abs(p - 0.05 / (len(order) - rank)) < 1e-12 for rank, p in enumerate(sorted(p_values))]
        assert any(close) or small == rejected

    @given(st.integers(0, 10_000), st.integers(1, 12), st.sampled_from([(0.0,), (0.3,), (-0.5, 0.5)]), st.randoms())
    def test_intervals_exclude_the_bounds_exactly_where_holm_rejects_in_any_order(self, seed, size, bounds, random):
        rng = np.random.default_rng(seed)
        means = [Mean.estimate(rng.normal(rng.normal(0, 1), 0.5, 5)) for _ in range(size)]
        p_values, ends = [mean.p_value(bounds) for mean in means], intervals(means, bounds)
        for (low, high), p, share in zip(ends, p_values, holm(p_values), strict=True):
            assert any(low <= bound <= high for bound in bounds) == (p > share)
        order = random.sample(range(size), size)
        assert intervals([means[place] for place in order], bounds) == [ends[place] for place in order]

    def test_one_comparison_is_not_widened_and_few_seeds_do_not_count(self):
        five, few = Mean.estimate([1.0, 2.0, 3.0, 4.0, 5.0]), Mean.estimate([1.0, 2.0])
        assert intervals([five]) == intervals([five, few])[:1] == [five.interval()]
        assert intervals([]) == [] and holm([]) == []


def test_the_verdict_is_known_where_all_of_the_interval_is_on_one_side():
    margin = {"low": -0.05, "high": 0.05}
    for low, high, bounds, expected in (
        (-2.0, -1.0, {}, "yes"),
        (-math.inf, -1.0, {}, "yes"),  # a run missed its target: it is at least so slow
        (1.0, 2.0, {}, "no"),
        *((low, high, {}, "open") for low, high in ((-1.0, 1.0), (0.0, 0.0), (math.nan, math.nan), (-1.0, math.inf))),
        (-0.1, 0.04, {"high": 0.05}, "yes"),  # as good as the other within 0.05
        (0.01, 0.04, {"high": 0.05}, "yes"),  # although it is significantly higher
        (-0.1, 0.06, {"high": 0.05}, "open"),  # although the difference is not significant
        (0.06, 0.1, {"high": 0.05}, "no"),
        (-0.1, 0.04, margin, "open"),
        (-0.2, -0.06, margin, "no"),
        (0.5, 1.0, {"low": 0.0, "high": math.inf}, "yes"),
    ):
        assert verdict((low, high), **bounds) == expected, (low, high, bounds)


def test_no_slow_part_of_scipy_is_imported():
    code = "import sys, fred.base.intervals; fred.base.intervals.Mean.estimate([1.0] * 5).interval(); print('scipy.stats' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
