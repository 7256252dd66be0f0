"""Paired differences between runs: by hand, missing values, the gain of pairing, families; how they are shown."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from scipy.special import stdtrit

import fred
from fred.base.errors import FredError
from fred.base.intervals import Mean, intervals
from fred.commands.printing import print_summary
from fred.outcomes.comparisons import compared
from fred.outcomes.tables import Tables
from fred.views import comparison_figures
from fred.views.page_tables import ONE_SEED, format_pair

NAN = math.nan


class Written:
    def __init__(self, **runs: dict[str, list[float]]):
        frames = [
            pd.DataFrame(columns).assign(name=name, seed=range(1, 1 + len(pd.DataFrame(columns))))
            for name, columns in runs.items()
        ]
        self.summary = pd.concat(frames, ignore_index=True)
        self.scenario = SimpleNamespace(baseline=None)
        self.outcomes = list(self.summary[["name", "seed"]].itertuples())

    def with_its_best(self) -> "Written":
        return self

    def resolve_name(self, run: str) -> str:
        return run


def rows(baseline: str | None = None, **runs: dict[str, list[float]]) -> dict[Any, dict[Any, Any]]:
    table = compared(cast(Tables, Written(**runs)), baseline)
    return {(row["run"], row["quantity"]): row for row in table.to_dict("records")}


class TestByHand:
    def test_losses_are_subtracted_and_throughputs_divided_seed_by_seed(self):
        pairs = rows(a={"loss": [1.0, 2.0], "throughput": [10.0, 20.0]}, b={"loss": [1.5, 3.5], "throughput": [20.0, 160.0]})
        loss, throughput = pairs["b", "loss"], pairs["b", "throughput"]
        assert (loss["baseline"], loss["way"], throughput["way"]) == ("a", "difference", "ratio")
        assert (loss["mean"], loss["least"], loss["largest"], loss["seeds"]) == (1.0, 0.5, 1.5, 2)
        names = ("mean", "least", "largest", "seeds")
        np.testing.assert_allclose([throughput[name] for name in names], [4, 2, 8, 2])  # sqrt(2 x 8)

    def test_another_baseline_reverses_the_comparison(self):
        runs = {"a": {"loss": [1.0, 2.0, 2.5, 3.0, 3.1], "throughput": [1.0, 2.0, 3.0, 4.0, 6.0]}}
        runs["b"] = {"loss": [1.5, 3.5, 2.0, 2.0, 3.0], "throughput": [2.0, 1.0, 5.0, 9.0, 5.0]}
        with_a, with_b = rows("a", **runs), rows("b", **runs)
        np.testing.assert_allclose(with_a["b", "loss"]["mean"], -with_b["a", "loss"]["mean"])
        np.testing.assert_allclose(with_a["b", "throughput"]["mean"], 1 / with_b["a", "throughput"]["mean"])
        saved = [[row["variance_saved"] for row in pairs.values()] for pairs in (with_a, with_b)]
        assert saved[0] == pytest.approx(saved[1])
        with pytest.raises(FredError, match=r"no run `c` to compare with.*there are a, b"):
            rows("c", **runs)

    def test_seeds_without_two_values_are_left_out_and_counted(self):
        a = {"target_seconds": [1.0, NAN, 2.0, 4.0], "target_updates": [1.0, NAN, 2.0, 4.0]}
        b = {"target_seconds": [2.0, 3.0, NAN, 8.0], "target_updates": [1.0, 2.0, NAN, 4.0]}
        pair = rows(a=a, b=b)["b", "to_target"]
        assert (pair["mean"], pair["seeds"], pair["missing"]) == (pytest.approx(2), 2, 2)
        pair = rows(a={"target_seconds": [1.0, 2.0]}, b={"target_seconds": [NAN, NAN]})["b", "to_target"]
        assert (pair["seeds"], pair["missing"]) == (0, 2) and math.isnan(pair["mean"])
        pairs = rows(a={"loss": [1.0, 2.0], "error": [NAN, NAN]}, b={"loss": [math.inf, 3.0], "error": [NAN, NAN]})
        assert list(pairs) == [("b", "loss")], "no row for a quantity that is not measured"
        assert [pairs["b", "loss"][name] for name in ("mean", "seeds", "missing")] == [1, 1, 1]

    def test_costs_to_the_target_are_divided(self):
        pair = rows(a={"target_cost": [1.0, 4.0]}, b={"target_cost": [2.0, 32.0]})["b", "cost_to_target"]
        assert (pair["way"], pair["mean"]) == ("ratio", pytest.approx(4))

    def test_updates_are_compared_where_one_run_has_no_clock(self):
        a = {"target_seconds": [NAN, NAN], "target_updates": [10.0, 20.0]}
        pairs = rows(a=a, b={"target_seconds": [9.0, 9.0], "target_updates": [30.0, 60.0]})
        assert pairs["b", "to_target"]["mean"] == pytest.approx(3)


def test_effects_of_the_seed_cancel():
    common, noise = np.random.default_rng(0).normal(0, 10, 12), np.random.default_rng(1).normal(0, 0.1, (2, 12))
    a, b = common + noise[0], common + noise[1] + 1
    pair = rows(a={"loss": a.tolist()}, b={"loss": b.tolist()})["b", "loss"]
    assert 0.8 < pair["low"] < pair["mean"] < pair["high"] < 1.2
    unpaired = stdtrit(22, 0.975) * math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 12)  # Student's
    assert pair["high"] - pair["low"] < 0.05 * 2 * unpaired
    assert 0.999 < pair["variance_saved"] == pytest.approx(1 - np.var(b - a) / (np.var(a) + np.var(b)))
    independent = rows(a={"loss": [1.0, 1.0, -1.0, -1.0]}, b={"loss": [1.0, -1.0, 1.0, -1.0]})
    assert independent["b", "loss"]["variance_saved"] == 0


class TestFamily:
    A, B, C = [1.0, 2.0, 2.5, 3.0, 3.1], [1.5, 2.6, 3.0, 3.6, 3.5], [1.2, 1.9, 2.6, 2.8, 3.3]

    def test_runs_of_one_quantity_are_a_family_and_quantities_are_not(self):
        pair = rows(a={"loss": self.A}, b={"loss": self.B})["b", "loss"]
        several = rows(a={"loss": self.A, "error": self.A}, b={"loss": self.B, "error": self.B}, c={"loss": self.C})
        differences = [np.array(values) - np.array(self.A) for values in (self.B, self.C)]
        expected = intervals([Mean.estimate(difference) for difference in differences])
        assert [(several[run, "loss"]["low"], several[run, "loss"]["high"]) for run in "bc"] == expected
        assert several["b", "loss"]["low"] < pair["low"] == several["b", "error"]["low"]

    def test_the_verdict_is_that_of_the_interval_and_open_with_few_seeds_or_equal_runs(self):
        pairs = rows(a={"loss": self.A, "throughput": self.A}, b={"loss": self.B, "throughput": self.B}, c={"loss": self.C})
        assert [pairs[key]["better"] for key in (("b", "loss"), ("b", "throughput"), ("c", "loss"))] == ["no", "yes", "open"]
        assert rows("b", a={"loss": self.A}, b={"loss": self.B})["a", "loss"]["better"] == "yes"
        assert rows(a={"loss": self.A[:4]}, b={"loss": self.B[:4]})["b", "loss"]["better"] == "open"
        ratio = rows("b", a={"throughput": self.A}, b={"throughput": self.B})["a", "throughput"]
        assert ratio["better"] == "no" and ratio["high"] < 1
        equal = rows(a={"loss": self.A}, b={"loss": self.A})["b", "loss"]
        assert (equal["low"], equal["high"], equal["better"]) == (0.0, 0.0, "open")


def test_the_best_points_of_sweeps_are_compared():
    runs: dict[str, Any] = {name: {"algorithm": {"name": name, "learning_rate": 0.1}} for name in ("asgd", "ssgd")}
    runs["asgd"]["sweep"] = {"over": {"cluster.workers": [2, 4]}}
    cluster = {"workers": 2, "compute": {"name": "exponential", "scale": 0.5}}
    result = fred.run(fred.scenario(cluster=cluster, stop={"updates": 20}, seeds=[1, 2], runs=runs))
    table = compared(result, "ssgd")
    assert compared(result, "asgd")["baseline"].tolist() == ["asgd,workers=4"]
    assert table[["run", "quantity", "seeds"]].to_numpy().tolist() == [["asgd,workers=4", "throughput", 2]]
    throughput = result.summary.set_index(["name", "seed"])["throughput"]
    ratios = (throughput["asgd,workers=4"] / throughput["ssgd"]).to_numpy()
    np.testing.assert_allclose(table["mean"], np.exp(np.log(ratios).mean()))


BASE = {"loss": [1.0, 2.0, 3.0, 4.0, 5.0], "throughput": [1.0] * 5, "target_seconds": [1.0, 1.0, NAN, 1.0, 1.0]}
OTHER = {"loss": [1.5, 2.7, 3.5, 4.4, 5.5], "throughput": [2.0] * 5, "target_seconds": [1.0, 2.0, 1.0, 8.0, 2.0]}
PAIRS = rows("base", base=BASE, same=BASE, other=OTHER)


class TestViews:
    def test_a_cell_has_the_mean_the_interval_and_the_number_of_missing_seeds(self):
        assert format_pair(PAIRS["same", "loss"]) == format_pair(PAIRS["same", "throughput"]) == "equal"
        loss = PAIRS["other", "loss"]
        assert format_pair(loss) == f"+0.52 (+{loss['low']:.2f} to +{loss['high']:.2f})"
        assert format_pair(PAIRS["other", "throughput"]) == "× 2.000"
        assert format_pair(PAIRS["other", "to_target"]) == "× 2.4 (1.0 to 8.0), 4 of 5 seeds"  # the fourth root of 32; too few
        assert format_pair({**loss, "seeds": 0, "missing": 5}) == "–"

    def test_the_figure_has_the_means_the_intervals_and_the_ranges(self):
        pairs = pd.DataFrame([pair for pair in PAIRS.values() if pair["quantity"] != "to_target"])
        left, right = comparison_figures.paired(pairs, "title").axes
        assert [label.get_text() for label in left.get_yticklabels()] == ["same", "other"]
        assert [axis.get_xlabel() for axis in (left, right)] == ["loss, difference", "gradients per second, ratio"]
        for axis, quantity, neutral in ((left, "loss", 0), (right, "throughput", 1)):
            lines = [list(map(float, np.asarray(line.get_xdata(), float))) for line in axis.get_lines()]
            pair = PAIRS["other", quantity]
            assert lines[-1] == [neutral] * 2, "dotted: no difference"
            assert lines[3:6] == [[pair["least"], pair["largest"]], [pair["low"], pair["high"]], [pair["mean"]]]

    def test_an_unknown_quantity_has_no_panel(self):
        unknown = {**PAIRS["other", "to_target"], "mean": NAN}
        for pairs, label in ([PAIRS["other", "loss"]], "loss, difference"), ([], "time or updates to the target, ratio"):
            axes = comparison_figures.paired(pd.DataFrame([unknown, *pairs]), "").axes
            assert [axis.get_xlabel() for axis in axes] == [label]

    def test_one_seed_has_no_figure_and_a_line_that_says_why(self, capsys):
        runs = {name: {"algorithm": {"name": name, "learning_rate": 0.1}} for name in ("asgd", "ssgd")}
        scenario = fred.scenario(cluster={"workers": 2}, stop={"updates": 4}, runs=runs)
        several = scenario.replace({"seeds": [1, 2]})
        for result, is_single in ((fred.run(scenario), True), (fred.run(several), False)):
            assert ("paired" in result.pictures()) != is_single
            print_summary(result, Path("results/here"))
            assert (ONE_SEED in " ".join(capsys.readouterr().out.split())) == is_single
        assert "paired" not in fred.run(several, only="asgd").pictures()
