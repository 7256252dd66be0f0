"""The quadratics of the reproductions: matrices by hand, and FRED's runs by NumPy."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fred
from fred import batch_indices
from reproductions import clipped
from reproductions.asynchronous import by_numpy


def test_the_quadratic_is_that_of_its_matrix():
    d = 9
    matrix = (2 * np.eye(d) - np.eye(d, k=1) - np.eye(d, k=-1)) / 4
    b = -np.eye(d)[0] / 4
    least = np.linalg.solve(matrix, b)
    points = np.random.default_rng(0).normal(size=(3, d))
    np.testing.assert_allclose(by_numpy.slope(points), points @ matrix - b, atol=1e-12)
    values = [(x - least) @ matrix @ (x - least) / 2 for x in points]
    np.testing.assert_allclose(by_numpy.excess(points), values, rtol=1e-9)


@pytest.mark.parametrize("start", [None, 0.0])
@pytest.mark.parametrize("rate", [1.0, 1.5, 1.9])
def test_gradient_descent_needs_as_many_rounds_in_fred(start, rate):
    data, model = {"name": "noise", "deviation": 0.0}, {"name": "quadratic", "dimension": 32, "start": start}
    scenario = fred.scenario(
        cluster={"workers": 1},
        task={"data": data, "model": model, "loss": "value", "batch_size": 1},
        stop={"updates": 40},
        evaluate={"every_updates": 1, "target_error": 1e-3},
        algorithm={"name": "ssgd", "learning_rate": rate},
    )
    first = 32**0.5 if start is None else start
    assert fred.run(scenario).summary["target_updates"].item() == by_numpy.rounds(first, rate)


@pytest.mark.parametrize(("law", "known"), [("student", stats.t(2.5)), ("pareto", stats.lomax(2.5))], ids=["student", "pareto"])
def test_noise_has_the_tails_that_it_says(law, known):
    draws = clipped.Tails(law=law, exponent=2.5, scale=0.3).load(1).train.inputs.astype(float) / 0.3
    np.testing.assert_allclose(draws.mean(axis=0), 0, atol=1e-6)
    draws = (draws - np.median(draws, axis=0)).ravel()
    assert stats.kstest(draws if law == "student" else np.abs(draws), known.cdf).pvalue > 0.01


@pytest.mark.slow
@pytest.mark.parametrize(("method", "length"), [("vanilla", np.inf), ("clipped", 1.0)])
def test_clipping_with_a_delay_is_what_numpy_makes_of_it(method, length):
    found = clipped.measured("Student t, 2 degrees", "all x = 1", [5])
    noise = clipped.Tails(law="student", exponent=2.0, scale=0.3).load(5).train.inputs.astype(float)
    curvatures, models = np.linspace(1, 4, 8), [np.ones(8)]
    for update in range(200):
        drawn = batch_indices(5, 0, update, batch_size=1, examples=len(noise))
        gradient = curvatures * models[max(0, update - 8)] + noise[drawn[0]]
        rate = 0.03 if method == "clipped" else 0.03 / 8
        models.append(models[-1] - rate * gradient * min(1, length / np.linalg.norm(gradient)))
    row: Any = found[(found["delay"] == 8) & (found["method"] == method) & (found["measure"] == "loss after 200 updates")]
    assert row["median"].item() == pytest.approx((curvatures * models[-1] ** 2).sum() / 2, rel=1e-3)


def test_ratios_are_vanillas_over_clippings():
    rows = [
        {"noise": "n", "start": "s", "measure": "m", "delay": delay, "method": method, "median": median}
        for delay, method, median in [(4, "vanilla", 3.0), (4, "clipped", 2.0), (8, "vanilla", 1.0), (8, "clipped", 4.0)]
    ]
    assert clipped.ratios(pd.DataFrame(rows))[[4, 8]].iloc[0].tolist() == [1.5, 0.25]
