"""Reproductions run what they report; their quadratics by hand, and FRED's runs of them by NumPy."""

import itertools
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fred
from fred import batch_indices
from reproductions import clipped, index, predictors
from reproductions.asynchronous import by_numpy
from reproductions.backup_workers import convergence
from reproductions.common import REPORTED, ROOT


def test_the_index_of_results_has_the_numbers_of_their_pages():
    assert index.PLACE.read_text(encoding="utf-8") == index.text()
    linked = re.findall(r"\]\(([^)]+)\)", index.text())
    assert len(linked) >= 22 and all((index.PLACE.parent / path).exists() for path in linked)
    assert all((ROOT / "scenarios" / f"{name}.yaml").exists() for name in re.findall(r"`fred run ([^`]+)`", index.text()))


def test_gammas_are_chosen_on_other_seeds_than_those_that_are_reported():
    runs = [*itertools.product(convergence.GAMMAS, (1, 2, 3)), *((0.01, seed) for seed in REPORTED)]
    rows = [
        (method, workers, gamma, seed, seconds, seconds, error)
        for method, workers, (gamma, seed) in itertools.product(("sync", "async"), convergence.WORKERS, runs)
        for seconds, error in ((15.0, 0.5), (30.0, 0.05 if gamma == 0.01 and seed != 12 else 0.2))
    ]
    columns = ["method", "workers", "gamma", "seed", "virtual_seconds", "updates", "error"]
    curves = pd.DataFrame(rows, columns=columns)
    assert set(convergence.choose_gammas(curves).values()) == {0.01}
    end = convergence.ends(curves)["async", 53]
    assert end.error.tolist() == pytest.approx([0.275, 0.35, 0.275, 0.275, 0.275])
    assert end.seconds.tolist() == pytest.approx([30, np.nan, 30, 30, 30], nan_ok=True)
    assert end.epochs.tolist() == pytest.approx([30 / 53, np.nan, *[30 / 53] * 3], nan_ok=True)
    assert end.epoch.tolist() == [53.0] * 5


def test_recorded_traces_are_judged_by_a_rolling_origin(tmp_path, monkeypatch):
    times = 1 + np.random.default_rng(0).exponential(0.2, (41, 3))
    (tmp_path / "traces").mkdir()
    pd.DataFrame(times, columns=list("abc")).to_csv(tmp_path / "traces" / "small.csv", index=False)
    monkeypatch.setenv("FRED_DATA", str(tmp_path))
    monkeypatch.setattr(predictors, "TRACES", {"small": {"unit": "s"}})
    rows = pd.DataFrame(predictors.measure_on_trace("small", ("all", "count", "oracle")))
    assert {tuple(row) for row in rows[["first", "rounds", "trained"]].to_numpy().tolist()} == {(20, 21, 4)}
    every, static = (rows[rows["rule"] == name].iloc[0] for name in ("all", "count"))
    assert every["throughput"] == pytest.approx(3 * 21 / times[20:].max(axis=1).sum())
    assert static["value against all"] == pytest.approx(static["throughput"] / every["throughput"])


def test_the_quadratic_is_that_of_its_matrix():
    d = 9
    matrix = (2 * np.eye(d) - np.eye(d, k=1) - np.eye(d, k=-1)) / 4
    b = -np.eye(d)[0] / 4
    least = np.linalg.solve(matrix, b)
    points = np.random.default_rng(0).normal(size=(3, d))
    np.testing.assert_allclose(by_numpy.slope(points), points @ matrix - b, atol=1e-12)
    values = [(x - least) @ matrix @ (x - least) / 2 for x in points]
    np.testing.assert_allclose(by_numpy.excess(points), values, rtol=1e-9)


@pytest.mark.slow
def test_gradient_descent_needs_as_many_rounds_in_fred():
    data, limits = {"name": "noise", "deviation": 0.0}, {"every_updates": 1, "target_error": 1e-3}
    for start, rate in itertools.product((None, 0.0), (1.0, 1.5, 1.9)):
        task = {"data": data, "model": {"name": "quadratic", "dimension": 32, "start": start}, "loss": "value", "batch_size": 1}
        run = {"task": task, "stop": {"updates": 40}, "evaluate": limits, "cluster": {"workers": 1}}
        result = fred.run(fred.scenario(run, algorithm={"name": "ssgd", "learning_rate": rate}))
        assert result.summary["target_updates"].item() == by_numpy.rounds(32**0.5 if start is None else start, rate)


def test_noise_has_the_tails_of_its_law():
    for law, reference in (("student", stats.t(2.5)), ("pareto", stats.lomax(2.5))):
        draws = clipped.Tails(law=law, exponent=2.5, scale=0.3).load(1).train.inputs.astype(float) / 0.3
        np.testing.assert_allclose(draws.mean(axis=0), 0, atol=1e-6)
        draws = (draws - np.median(draws, axis=0)).ravel()
        assert stats.kstest(draws if law == "student" else np.abs(draws), reference.cdf).pvalue > 0.01


@pytest.mark.slow
def test_clipping_with_a_delay_is_numpys():
    table: Any = clipped.measure_reading("Student t, 2 degrees", "all x = 1", [5])
    noise = clipped.Tails(law="student", exponent=2.0, scale=0.3).load(5).train.inputs.astype(float)
    curvatures = np.linspace(1, 4, 8)
    for method, length, rate in (("vanilla", np.inf, 0.03 / 8), ("clipped", 1.0, 0.03)):
        models = [np.ones(8)]
        for update in range(200):
            (batch,) = batch_indices(5, 0, update, batch_size=1, examples=len(noise))
            gradient = curvatures * models[max(0, update - 8)] + noise[batch]
            models.append(models[-1] - rate * gradient * min(1, length / np.linalg.norm(gradient)))
        row = table[(table["delay"] == 8) & (table["method"] == method) & (table["measure"] == "loss after 200 updates")]
        assert row["median"].item() == pytest.approx((curvatures * models[-1] ** 2).sum() / 2, rel=1e-3)
