"""The study of local updates: every system has as many rates on seeds of its own, and the page says what was measured."""

import math

import numpy as np
import pandas as pd
import pytest

from fred.protocols.outer_steps import OuterSteps
from fred.schedule.minibatches import divide
from studies.local_updates import page
from studies.local_updates.claims import LOSS, REPORTED, SECONDS, SEEDS, Claim, Experiment, below, gap, nearly
from studies.local_updates.compared import WORST, Found, Verdict
from studies.local_updates.measure import FOUND, experiments
from studies.local_updates.spoiled import Spoiled
from tests.worlds import record

EXPERIMENTS = {each.key: each for each in experiments()}


def rows(**systems: list[float]) -> pd.DataFrame:
    """Losses, and as many seconds, of five seeds; what is no number was not there after ten."""
    seeds = range(5)
    frames = [pd.DataFrame({"system": name, "seed": seeds, "loss": own}) for name, own in systems.items()]
    whole = pd.concat(frames)
    return whole.assign(target_seconds=whole["loss"], virtual_seconds=10.0)


def test_claims_are_of_systems_that_there_are_and_pages_have_room_for_them():
    assert len(EXPERIMENTS) == len(list(experiments()))
    for experiment in EXPERIMENTS.values():
        assert {name for claim in experiment.claims for name in claim.factors} <= set(experiment.systems)
        assert len({claim.said for claim in experiment.claims}) == len(experiment.claims)


def test_pulls_take_no_time_so_a_fifth_of_them_costs_few_gradients():
    runs = EXPERIMENTS["pulls-digits"].scenario().runs
    shares, cluster = {}, next(iter(runs.values())).cluster
    for period in (50, 400):
        protocols = [run.protocol for run in runs.values()]
        made = [
            record(OuterSteps(period=period, pulls=share), cluster, seconds=801.0).counts()["gradients"] for share in (0.0, 0.2)
        ]
        assert OuterSteps(period=period, pulls=0.2) in protocols
        assert made[0] == 4 * 800
        shares[period] = 1 - made[1] / made[0]
    assert 0.055 < shares[50] < 0.075 and 0.015 < shares[400] < 0.03, "2 to 7 %, as the page says"


@pytest.mark.parametrize("key", ["one-age-heavy-tail", "overlap-digits", "crashes-digits"])
def test_every_system_of_an_experiment_is_tuned_on_as_many_points(key):
    scenario = EXPERIMENTS[key].scenario()
    points = pd.Series([point.of for point in scenario.points.values()]).value_counts()
    assert points.nunique() == 1 and len(points) == len(EXPERIMENTS[key].systems)
    assert not set(SEEDS) & set(REPORTED)


def test_verdicts_are_told_only_where_the_whole_interval_is_on_one_side():
    own = rows(low=[1.0, 1.1, 1.2, 1.1, 1.0], high=[2.0, 2.2, 2.1, 2.0, 2.1], like=[1.1, 1.0, 1.1, 1.2, 1.0])
    assert Found(below("", "", LOSS, "low", "high"), own).verdict == Verdict.AGREES
    assert Found(below("", "", LOSS, "high", "low"), own).verdict == Verdict.DISAGREES
    assert Found(below("", "", LOSS, "low", "like"), own).verdict == Verdict.OPEN
    assert Found(nearly("", "", LOSS, "like", "low", 0.5), own).verdict == Verdict.AGREES
    assert Found(gap("", "", ("like", "low"), ("high", "low")), own).verdict == Verdict.AGREES
    ratio = Found(below("", "", SECONDS, "low", "high"), own)
    assert ratio.expected == "< × 1.00" and 0.45 < math.exp(ratio.mean) < 0.55


def test_who_did_not_get_there_is_at_least_so_slow():
    own = rows(fast=[1.0, 1.1, 1.2, 1.1, 1.0], never=[math.nan] * 5, worse=[math.inf, 9.0, 9.0, 8.0, 9.0])
    found = Found(below("", "", SECONDS, "fast", "never"), own)
    assert found.verdict == Verdict.AGREES and found.low == -math.inf and found.said.startswith("< × 0.1")
    assert Found(below("", "", SECONDS, "never", "fast"), own).verdict == Verdict.DISAGREES
    assert Found(Claim("", "", SECONDS, {"never": 1.0, "worse": -1.0}), own).said == "neither got there"
    assert Found(Claim("", "", LOSS, {"worse": 1.0}), own).mean == WORST


def test_one_worker_of_four_has_wrong_labels():
    whole, right = Spoiled(workers=4).load(3), Spoiled.__bases__[0]().load(3)
    order, begins = divide(3, len(whole.train), 4)
    wrong = whole.train.answers != right.train.answers
    assert 0.8 < wrong[order[: begins[1]]].mean() < 1 and not wrong[order[begins[1] :]].any()
    assert np.array_equal(whole.evaluation.answers, right.evaluation.answers)


def test_an_experiment_says_what_its_files_are_called():
    assert Experiment("one age", "heavy tail", "", {}, {}, ()).key == "one-age-heavy-tail"


@pytest.mark.skipif(not FOUND.is_file(), reason="the study has not been run: python -m studies.local_updates")
def test_the_page_says_what_was_measured():
    assert page.PAGE.read_text(encoding="utf-8") == page.text(pd.read_csv(FOUND))
