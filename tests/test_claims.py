"""Papers' claims: which were measured, by which verdicts, and the code that was built for them."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fred.components import registry
from fred.schedule.schedule import Verb
from reproductions.common import ROOT, Seeds
from reproductions.verdicts import (
    Claim,
    Evidence,
    Reason,
    Verdict,
    combine_choices,
    judge_less,
    judge_level,
    judge_lower_error,
    judge_no_worse,
    tables,
)
from reproductions.wagma import further
from tests.worlds import constant, outcome


def test_every_claim_is_measured_or_has_a_reason_why_not():
    claims = {
        "one": {"a": Claim("first", "1", judged="within 10 %"), "b": Claim("second", "2", calibrated="yes")},
        "left": {"c": Claim("x", "3", untried="far")},
    }
    measured = {"a": Evidence("1.0", Verdict.OPEN), "b": Evidence("2.0", Verdict.AGREES)}
    text = tables(claims, measured)
    assert "| first | 1 | yes | 1.0 | open | no | within 10 % |" in text["one"]
    assert "| x | 3 | yes | far |" in text["untried"]
    assert [line.split("|")[2].strip() for line in text["counts"].splitlines()[2:]] == ["3", "2", "1", "1", "1", "1"]
    for wrong in ({"a": measured["a"]}, {**measured, "c": measured["a"]}, {**measured, "d": measured["a"]}):
        with pytest.raises(ValueError, match="neither measured"):
            tables(claims, wrong)


def test_every_disagreement_has_a_reason_that_is_counted():
    claims = {"one": {"a": Claim("first", "1", reason=Reason.INPUTS), "b": Claim("second", "2", reason=Reason.SCALE)}}
    text = tables(claims, {"a": Evidence("1.0", Verdict.DISAGREES), "b": Evidence("2.0", Verdict.AGREES)})
    assert "| first | 1 | yes | 1.0 | disagrees: inputs | no |" in text["one"]
    assert "| second | 2 | yes | 2.0 | agrees | no |" in text["one"]
    assert "| – – inputs | 1 |" in text["counts"] and "scale" not in text["counts"]
    with pytest.raises(ValueError, match=r"without a `reason`: \['a'\]"):
        tables({"one": {"a": Claim("first", "1")}}, {"a": Evidence("1.0", Verdict.DISAGREES)})


def test_a_file_to_which_seeds_were_added_is_the_one_that_was_measured_at_once(tmp_path):
    def rows(run: str, *seeds: int) -> pd.DataFrame:
        looks = [(run, seed, look, seed + look / 3) for seed in seeds for look in range(2)]
        return pd.DataFrame(looks, columns=["run", "seed", "look", "value"])

    def measure(name: str, add: bool, *seeds: int) -> str:
        file = Seeds(tmp_path / name, ["run"], add)
        for run in ("second", "first"):
            if missing := file.missing(seeds, run=run):
                file.add(rows(run, *missing), "%.6g")
        return (tmp_path / name).read_text()

    measure("grown.csv", False, 1, 2)
    grown, at_once = measure("grown.csv", True, 1, 2, 3), measure("at-once.csv", False, 1, 2, 3)
    assert grown == at_once and len(at_once.splitlines()) == 13
    assert Seeds(tmp_path / "grown.csv", ["run"], True).missing((2, 3, 4), run="first") == [4]
    assert measure("grown.csv", False, 1) != at_once


def test_a_scenario_is_loaded_with_the_seeds_that_a_file_lacks(tmp_path):
    path, settings = ROOT / "scenarios" / "psp-sgd" / "errors.yaml", ["seeds=[1, 2, 3]"]
    file = Seeds(tmp_path / "errors.csv", ["run"], add=False)
    assert getattr(file.load(path, settings, run="sync"), "seeds", None) == (1, 2, 3)
    file.add(pd.DataFrame({"run": "sync", "seed": [1, 3]}))
    assert getattr(file.load(path, settings, run="sync"), "seeds", None) == (2,)
    file.add(pd.DataFrame({"run": "sync", "seed": [2]}))
    assert file.load(path, settings, run="sync") is None


def test_a_claim_agrees_only_if_it_does_under_all_choices():
    agrees, disagrees, undecided = (
        Evidence("1 for 2", verdict) for verdict in (Verdict.AGREES, Verdict.DISAGREES, Verdict.OPEN)
    )
    assert combine_choices(agrees, {"spread": agrees}) == combine_choices(agrees, {}) == agrees
    both = combine_choices(agrees, {"spread": Evidence("1 for 3", Verdict.AGREES)})
    assert both == Evidence("1 for 2; spread: 1 for 3", Verdict.AGREES)
    for usual, other in ((agrees, undecided), (undecided, disagrees)):
        assert combine_choices(usual, {"spread": other}).verdict == Verdict.OPEN
    for alternatives in ({"spread": disagrees}, {"spread": disagrees, "order": undecided}):
        assert combine_choices(agrees, alternatives).verdict == Verdict.NOT_COMPARED


def _ratios(middle: float, deviation: float) -> tuple[pd.Series, pd.Series]:
    """Two runs with five seeds, of whose ratio the logarithm has this mean and this deviation."""
    other = pd.Series([2.0, 3.0, 5.0, 7.0, 11.0])
    return other * np.exp(middle + deviation * np.array([-1, -1, 0, 1, 1])), other


def test_a_choice_that_surely_changes_a_ratio_decides_a_claim_that_only_some_choices_show():
    seeds = pd.Series([0.95, 0.97, 1.0, 1.03, 1.05])
    agrees = Evidence("0.8", Verdict.AGREES, 0.8 * seeds)
    for ratios, verdict in (
        (seeds**1.1, Verdict.NOT_COMPARED),
        (0.8 * seeds[::-1].to_numpy(), Verdict.OPEN),
        (None, Verdict.OPEN),
    ):
        undecided = Evidence("1.0", Verdict.OPEN, None if ratios is None else pd.Series(ratios))
        assert combine_choices(agrees, {"spread": undecided}).verdict == verdict


def test_a_difference_of_errors_that_is_surely_negligible_is_none_but_not_one_of_times():
    for middle, deviation, verdict in (
        (0, 0.007, Verdict.DISAGREES),
        (0, 0.009, Verdict.OPEN),
        (-0.009, 0.0001, Verdict.AGREES),
    ):
        assert judge_lower_error(*_ratios(middle, deviation)) == verdict
    assert judge_less(*_ratios(0, 0.007)) == Verdict.OPEN


def test_orders_are_decided_by_students_interval():
    agrees, disagrees, undecided = Verdict.AGREES, Verdict.DISAGREES, Verdict.OPEN
    for deviation in (0.01, 0.2):
        half = 2.7764451051977987 * deviation / math.sqrt(5)  # the 97.5th percentile with four degrees of freedom
        for middle, verdict in ((-1.01, agrees), (1.01, disagrees), (-0.99, undecided), (0.99, undecided)):
            assert judge_less(*_ratios(middle * half, deviation)) == verdict
        margin = math.exp(1.5 * half) - 1
        for middle, verdict in ((0.49, agrees), (0.51, undecided), (2.51, disagrees)):
            assert judge_level(*_ratios(middle * half, deviation), margin) == verdict
            assert judge_no_worse(*_ratios(middle * half, deviation), margin) == verdict
        assert judge_no_worse(*_ratios(-9 * half, deviation), margin) == agrees


def test_fewer_than_five_seeds_decide_no_order():
    for seeds in range(1, 5):
        small, large = pd.Series([1.0, 1.1, 1.2, 1.1][:seeds]), pd.Series([9.0] * seeds)
        assert judge_less(small, large) == judge_level(small, large, 0.1) == judge_no_worse(small, large, 0.1) == Verdict.OPEN


def test_gossip_that_communicates_twice():
    """Among three workers on a ring the second mixing finds all models equal."""
    registry.allow_import([further.TWICE])
    for order in ("mix-first", "update-first"):
        metropolis = {"weights": "metropolis", "order": order}
        protocols = [metropolis | {"name": name} for name in ("gossip", f"{further.TWICE}:GossipTwice")]
        options: dict[str, Any] = {"cluster": constant(*[0.1] * 3), "stop": {"gradients": 30}, "evaluate": {"points": 2}}
        runs = [outcome("d-psgd", protocol, **options) for protocol in protocols]
        single, double = (run.metrics["loss"].to_numpy() for run in runs)
        assert single[-1] < single[0]
        assert double == pytest.approx(single, rel=1e-5)
        synced = [len(run.schedule.rows(Verb.SYNC)) for run in runs]
        assert synced[1] == 2 * synced[0]
