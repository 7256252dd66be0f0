"""The kit of studies: a search that goes on beyond a grid, special cases that compete, parts that resume, a block of effort."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.kit import effort
from studies.kit.claims import Claim, claims_table
from studies.kit.comparison import TRIALS, Comparison, above_best, by_logarithm, one_setting
from studies.kit.difference import Difference
from studies.kit.runs import SECONDS, part_path
from studies.kit.study import Study
from studies.kit.tuning import Geometric, tuned

OPTIMA = {"near": 0.2, "far": 6.4, "cannot": 1e9}
GRID = Geometric.spanning(0.1, 0.8, ratio=2)


def scores(case, system, some, seeds):
    """Return the distance from the optimum of the case, on a logarithmic scale; a system `fixed` has a small rate."""
    rates = np.array([settings["rate"] for settings in some])
    distance = abs(np.log(rates / OPTIMA[case]))[:, None]
    return distance + (5 if system == "contains" else 1) + 0.001 * np.array(seeds)


def report(case, system, some, seeds):
    """Return the scores of reported seeds as a table."""
    values = scores(case, system, some, seeds)
    keys = [(number, seed) for number in range(len(some)) for seed in seeds]
    return pd.DataFrame([{"setting": number, "seed": seed, "loss": values[number, seeds.index(seed)]} for number, seed in keys])


@pytest.fixture
def comparison(tmp_path):
    knobs = {"plain": {"rate": GRID}, "contains": {"rate": GRID}}
    return Comparison(
        Study("synthetic", "Which?", ("", TRIALS), root=tmp_path),
        ["near", "far"],
        knobs,
        scores,
        report,
        points=3,
        finalists=2,
        extra=9,
        special={"contains": ["plain"]},
        average=by_logarithm,
        reported=[11, 12, 13, 14, 15],
    )


@given(st.floats(1e-3, 1e2))
def test_a_search_goes_on_until_the_optimum_is_inside_or_says_that_it_is_not(optimum):
    bowl = lambda some, seeds: np.array([[abs(np.log(one["rate"] / optimum))] * len(seeds) for one in some])  # noqa: E731
    best = tuned(bowl, {"rate": GRID}, points=3, extra=20)
    assert best.edges or abs(np.log(best.settings["rate"] / optimum)) <= np.log(2) / 2 + 0.05
    assert bool(best.edges) == (not 3e-4 < optimum < 250)
    assert tuned(bowl, {"rate": [*GRID]}, points=3).settings["rate"] in GRID


def test_special_cases_compete_with_a_system_that_contains_them():
    bowl = lambda some, seeds: np.array([[abs(one["rate"] - 3)] * len(seeds) for one in some])  # noqa: E731
    assert tuned(bowl, {"rate": [1, 2]}, special=[{"rate": 3}]).settings == {"rate": 3}
    assert tuned(bowl, {"rate": [1, 2]}, special=[{"rate": 9}]).settings == {"rate": 2}


@pytest.mark.slow
def test_a_comparison_is_tuned_once_and_goes_on(comparison):
    comparison.measure()
    tables = comparison.study.read_tables()
    trials = tables[TRIALS]
    optima = (
        trials[trials["chosen"]].groupby(["case", "system"])["settings"].first().map(lambda words: json.loads(words)["rate"])
    )
    assert optima["near", "plain"] == 0.2 and optima["far", "plain"] == pytest.approx(6.4) == optima["far", "contains"]
    assert (trials["edges"] == "").all() and set(tables[""]["way"]) == {"tuned", "one setting"}
    seconds = pd.read_csv(comparison.study.path(SECONDS))
    assert len(seconds) == 8
    part_path(comparison.study, ("far", "plain")).unlink()
    comparison.measure()
    assert len(pd.read_csv(comparison.study.path(SECONDS))) == 8  # of the part that was measured again, the latest
    pd.testing.assert_frame_equal(comparison.study.read_tables()[""], tables[""])
    block = effort.block(
        comparison.study, [11], {"loss": Difference.family({"a": np.array([0.0, 1, 2, 3, 4])}).values()}, trials=trials
    )
    assert "| 0 | 3 to tune, 1 reported |" in block and "0 of 4 (0%)" in block and "| loss | 1 | 2 | 2 | 2 |" in block


def test_one_setting_is_that_of_the_least_mean_over_cases():
    def points(**score):
        return pd.DataFrame({"settings": list(score), "seed": 1, "score": list(score.values())})

    trials = {"x": points(a=10.0, b=20.0, c=1.0), "y": points(a=30.0, b=10.0)}
    assert one_setting(trials) == "b"
    assert one_setting({"x": points(a=1.0, b=3.0), "y": points(a=9.0, b=6.0)}, above_best) == "b"


def test_a_claim_without_rows_is_refused():
    with pytest.raises(ValueError, match="no row carries"):
        claims_table([Claim("b wins", "system == 'b'", "1", (0.0, 1.0))], pd.DataFrame({"system": ["a"]}))
