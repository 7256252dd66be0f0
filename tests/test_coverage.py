"""The study of coverage: candidate methods against SciPy's, the laws' true means, and a page that quotes the measurements."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fred.base.intervals import MISSES, Mean
from studies.coverage import page
from studies.coverage.measure import CHOSEN_ON, JUDGED_ON, RESAMPLES, STUDY, bca, bootstrap_t, family, stopping, student

SAMPLES = np.random.default_rng(0).exponential(size=(6, 8))


def test_students_intervals_are_those_of_fred():
    for misses in (MISSES, MISSES / 8):
        low, high = student(SAMPLES, misses)
        np.testing.assert_allclose(
            list(zip(low, high, strict=True)), [Mean.estimate(sample).interval(misses) for sample in SAMPLES]
        )


def test_bca_is_scipys_at_the_level_that_is_students_for_normal_values():
    seeds = SAMPLES.shape[1]
    tail = stats.norm.cdf(np.sqrt(seeds / (seeds - 1)) * stats.t.ppf(0.025, seeds - 1))
    options: dict[str, Any] = {"n_resamples": RESAMPLES, "confidence_level": 1 - 2 * tail, "rng": 1}
    for sample, ends in zip(SAMPLES, np.transpose(bca(SAMPLES)), strict=True):
        expected = stats.bootstrap((sample,), np.mean, **options).confidence_interval
        np.testing.assert_allclose(ends, expected, atol=0.1 * (expected.high - expected.low))


@pytest.mark.slow
def test_bootstrap_t_by_a_loop():
    (sample,) = SAMPLES[:1]
    rng, ratios, root = np.random.default_rng(2), [], math.sqrt(len(sample))
    for _ in range(20_000):
        resample = rng.choice(sample, len(sample))
        if np.ptp(resample):
            ratios.append((resample.mean() - sample.mean()) / (resample.std(ddof=1) / root))
    expected = sample.mean() - np.quantile(ratios, [0.975, 0.025]) * stats.sem(sample)
    low, high = bootstrap_t(SAMPLES[:1])
    np.testing.assert_allclose([low[0], high[0]], expected, rtol=0.05)


def test_true_means_are_those_of_many_draws():
    for law in (*CHOSEN_ON, *JUDGED_ON):
        values = law.draw(np.random.default_rng(1), (1000, 400))
        assert abs(values.mean() - law.mean) < 6 * stats.sem(values.mean(axis=1)), law.name
        if law.mean_logarithm is None:
            assert values.min() < 0
        else:
            logs = np.log(values)
            assert abs(logs.mean() - law.mean_logarithm) < 6 * stats.sem(logs.mean(axis=1)), law.name


def test_holms_method_keeps_false_verdicts_of_a_family_below_the_nominal_share():
    shares = family("normal", 5, 8, families=400)
    assert shares["together"] < 0.08 < shares["alone"] < shares["independent"] + 0.05


@pytest.mark.skipif(not STUDY.measured, reason="the study has not been run: python -m studies.coverage")
def test_the_page_says_what_was_measured():
    assert STUDY.page.read_text(encoding="utf-8") == page.text(STUDY.read_tables())


def test_stopping_by_width_uses_about_as_many_seeds_as_needed():
    row = stopping(CHOSEN_ON[0], seeds_needed=15, first=10, samples=1000)
    assert 14 < row["seeds"] < 20 and 0.91 < row["holds"] < 0.97
