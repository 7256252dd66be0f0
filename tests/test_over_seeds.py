"""Means over seeds: intervals against SciPy's, Holm's method by hand, verdicts, and what must not matter."""

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fred.base.over_seeds import FEWEST_SEEDS, Mean, Verdict, holm, intervals, quantile, verdict

VALUES = st.lists(st.floats(-1e6, 1e6).filter(lambda value: value == 0 or abs(value) > 1e-6), min_size=5, max_size=12)


class TestMean:
    @pytest.mark.parametrize("count", [5, 8, 10, 200])
    @pytest.mark.parametrize("bound", [0.0, 1.3])
    def test_interval_and_p_value_are_scipys(self, count, bound):
        values = np.random.default_rng(count).lognormal(size=count)
        expected = stats.ttest_1samp(values, bound)
        for misses in (0.05, 0.05 / 54):
            found = Mean.over(values).interval(misses)
            np.testing.assert_allclose(np.array(found), np.array(expected.confidence_interval(1 - misses)), rtol=1e-10)
        assert Mean.over(values).p_value([bound]) == pytest.approx(expected.pvalue, rel=1e-9)

    def test_fewer_than_five_seeds_have_no_interval(self):
        assert FEWEST_SEEDS == 5
        for count in range(5):
            mean = Mean.over(np.arange(count) + 10.0)
            assert all(math.isnan(end) for end in mean.interval())
            assert mean.p_value() == 1.0 and verdict(mean.interval()) == Verdict.OPEN
        assert all(math.isfinite(end) for end in Mean.over(np.arange(5.0)).interval())

    @pytest.mark.parametrize("values", [[0.1] * 6, [1.1 / 3.3, 2.2 / 6.6, 4.4 / 13.2] * 2, [0.0] * 5])
    def test_equal_values_are_their_own_interval(self, values):
        mean = Mean.over(values)
        assert mean.interval() == (mean.value, mean.value) and mean.value == pytest.approx(values[0], rel=1e-12)
        assert mean.p_value() == (0.0 if mean.value else 1.0)

    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize("values", [[1e300, -1e300] * 3, [1e-300, 3e-300] * 3, [0.0] * 5 + [1e308], [1.0] * 5 + [math.nan]])
    def test_no_size_of_values_is_a_reason_to_warn(self, values, capfd):
        low, high = Mean.over(values).interval()
        assert math.isnan(low) or low <= Mean.over(values).value <= high
        assert capfd.readouterr() == ("", "")

    @given(VALUES, st.randoms())
    def test_the_order_of_seeds_does_not_matter(self, values, random):
        other = random.sample(values, len(values))
        assert Mean.over(values) == Mean.over(other)

    @given(VALUES, st.floats(0.01, 100.0), st.floats(-100.0, 100.0))
    def test_the_interval_moves_with_the_values(self, values, factor, shift):
        scale = max(map(abs, values)) * factor + abs(shift)
        found = Mean.over(factor * np.array(values) + shift).interval()
        expected = factor * np.array(Mean.over(values).interval()) + shift
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * scale + 1e-300)

    @given(VALUES)
    def test_the_other_way_round_it_is_mirrored(self, values):
        low, high = Mean.over(values).interval()
        assert Mean.over([-value for value in values]).interval() == (-high, -low)


class TestFamily:
    def test_holm_by_hand(self):
        """A family of four: 0.005 <= 0.05 / 4 and 0.01 <= 0.05 / 3 are rejected, 0.03 > 0.05 / 2 is not, so 0.04 is not."""
        p_values = [0.01, 0.04, 0.03, 0.005]
        shares = holm(p_values)
        assert [p <= share for p, share in zip(p_values, shares, strict=True)] == [True, False, False, True]
        np.testing.assert_allclose(shares, [0.05 / 3, 0.05 / 2, 0.05 / 2, 0.05 / 4])

    @given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20))
    def test_rejected_are_those_whose_adjusted_p_value_is_small(self, p_values):
        """Adjusted p-values as defined by Wright [1992, Biometrics 48]."""
        order = sorted(range(len(p_values)), key=lambda place: p_values[place])
        adjusted = itertools.accumulate(((len(order) - rank) * p_values[place] for rank, place in enumerate(order)), max)
        rejected = {place: value < 0.05 for place, value in zip(order, adjusted, strict=True)}
        found = {place: p_values[place] < share for place, share in enumerate(holm(p_values))}
        close = [abs(p - 0.05 / (len(order) - rank)) < 1e-12 for rank, p in enumerate(sorted(p_values))]
        assert any(close) or found == rejected

    @given(st.integers(0, 10_000), st.integers(1, 12), st.sampled_from([(0.0,), (0.3,), (-0.5, 0.5)]))
    def test_intervals_exclude_the_bounds_exactly_where_holm_rejects(self, seed, size, bounds):
        rng = np.random.default_rng(seed)
        means = [Mean.over(rng.normal(rng.normal(0, 1), 0.5, 5)) for _ in range(size)]
        p_values = [mean.p_value(bounds) for mean in means]
        for (low, high), p, share in zip(intervals(means, bounds), p_values, holm(p_values), strict=True):
            assert any(low <= bound <= high for bound in bounds) == (p > share)

    def test_one_comparison_is_not_widened_and_few_seeds_do_not_count(self):
        one, few = Mean.over([1.0, 2.0, 3.0, 4.0, 5.0]), Mean.over([1.0, 2.0])
        assert intervals([one]) == intervals([one, few])[:1] == [one.interval()]
        assert intervals([]) == [] and holm([]) == []

    @given(st.permutations(range(6)))
    def test_the_order_of_comparisons_does_not_matter(self, order):
        rng = np.random.default_rng(3)
        means = [Mean.over(rng.normal(each, 1, 5)) for each in range(6)]
        found = intervals([means[place] for place in order])
        assert [found[order.index(place)] for place in range(6)] == intervals(means)


class TestVerdict:
    @pytest.mark.parametrize(
        ("interval", "bounds", "said"),
        [
            ((-2.0, -1.0), {}, "yes"),
            ((1.0, 2.0), {}, "no"),
            ((-1.0, 1.0), {}, "open"),
            ((0.0, 0.0), {}, "open"),
            ((math.nan, math.nan), {}, "open"),
            ((-0.1, 0.04), {"high": 0.05}, "yes"),  # as good as the other within 0.05
            ((0.01, 0.04), {"high": 0.05}, "yes"),  # although it is surely higher
            ((-0.1, 0.06), {"high": 0.05}, "open"),  # although no difference was found
            ((0.06, 0.1), {"high": 0.05}, "no"),
            ((-0.1, 0.04), {"low": -0.05, "high": 0.05}, "open"),
            ((-0.2, -0.06), {"low": -0.05, "high": 0.05}, "no"),
            ((0.5, 1.0), {"low": 0.0, "high": math.inf}, "yes"),
            ((-math.inf, -1.0), {}, "yes"),  # a run missed its target: it is at least so slow
            ((-1.0, math.inf), {}, "open"),
        ],
    )
    def test_it_is_told_where_all_of_the_interval_is_on_one_side(self, interval, bounds, said):
        assert verdict(interval, **bounds) == said


def test_quantiles_are_those_of_the_printed_table():
    assert [round(quantile(seeds), 3) for seeds in (2, 5, 10, 30)] == [12.706, 2.776, 2.262, 2.045]


def test_no_slow_part_of_scipy_is_imported():
    code = "import sys, fred.base.over_seeds; fred.base.over_seeds.Mean.over([1.0] * 5).interval(); print('scipy.stats' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
