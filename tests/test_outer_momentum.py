"""The study of outer momentum: effective steps as sums, the correlation by NumPy, and a page that quotes the measurements."""

import itertools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from studies.kit.tuning import REPORTED
from studies.outer_momentum import page
from studies.outer_momentum.cases import CASES, MOMENTA, PAIRS, ROUNDS, Case
from studies.outer_momentum.measure import STUDY, Correlated, measure_rounds

MEASURED = pytest.mark.skipif(not STUDY.measured, reason="the study has not been run: python -m studies.outer_momentum")


def test_the_effective_step_is_the_sum_over_all_past_pseudo_gradients():
    for system, momentum, rho in itertools.product(("diloco", "slowmo"), MOMENTA, (0.0, 0.4, 0.97)):
        rate = Case(system=system).grid(momentum, rho)[1.4]
        past = sum((momentum * rho) ** distance for distance in range(3000))  # of the momentum, along the newest one
        step = rate * (past if system == "slowmo" else 1 + momentum * past)
        assert step == pytest.approx(1.4, rel=1e-3), (system, momentum, rho)


def test_the_correlation_is_that_of_successive_pseudo_gradients():
    rng = np.random.default_rng(0)
    rows = np.cumsum(rng.normal(size=(9, 50)), axis=0).astype(np.float32)
    server = Correlated(learning_rate=0.1, outer={"name": "sgd"}, outer_rate=1.0)
    state = server.init({"w": jnp.zeros(50)}, 2)
    for row in rows:
        state = server.apply_round(state, {"w": jnp.asarray(row)}, timestamp=0, count=2)
    values = rows.astype(float)
    expected = (values[1:] * values[:-1]).sum() / math.sqrt((values[1:] ** 2).sum() * (values[:-1] ** 2).sum())
    assert float(server.statistic(state)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
@MEASURED
def test_the_page_says_what_was_measured():
    assert STUDY.page.read_text(encoding="utf-8") == page.text(STUDY.read_tables())


@MEASURED
def test_every_case_has_all_ways_to_choose_rates_on_all_seeds():
    losses = STUDY.read_tables()[""]
    groups: dict[Any, pd.DataFrame] = dict(list(page.label_cases(losses).groupby("label", sort=False)))
    assert len(groups) == len(CASES)
    for group in groups.values():
        by_way = group.groupby(["kind", "momentum"])
        ways: dict[Any, list[int]] = {way: sorted(rows["seed"]) for way, rows in by_way}
        assert {("tuned", mu) for mu in MOMENTA} | {("matched", mu) for mu in MOMENTA[1:]} <= ways.keys()
        assert all(seeds == list(REPORTED) for seeds in ways.values())


@MEASURED
def test_rounds_with_the_published_momentum_have_both_systems_and_those_at_an_edge_are_left_out():
    published = STUDY.read_tables()["published"]
    assert set(zip(published["task"], published["system"], strict=True)) == set(ROUNDS)
    differences = page.published_rounds(published)
    assert set(differences) < set(PAIRS) and ("grammar", "H = 10") not in differences and ("digits", "H = 20") in differences


@pytest.mark.slow
@MEASURED
def test_a_round_is_measured_again_with_the_same_losses():
    published = STUDY.read_tables()["published"]
    own = published[(published["task"] == "digits") & (published["system"] == "local 300")]
    again = measure_rounds("digits", "local 300")
    assert again["loss"].tolist() == pytest.approx(own["loss"].tolist(), rel=1e-5)
    assert float(again["point"].iloc[0]) == float(own["point"].iloc[0])
