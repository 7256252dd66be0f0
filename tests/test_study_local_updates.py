"""The study of local updates: every system has the same number of rates on separate seeds, and the page quotes the measurements."""

import math

import numpy as np
import pandas as pd
import pytest

from fred.schedule.minibatches import divide
from studies.local_updates import page
from studies.local_updates.claims import LOSS, REPORTED, SECONDS, SEEDS, Experiment, below, gap, nearly
from studies.local_updates.compared import Found, Verdict
from studies.local_updates.measure import FOUND, experiments
from studies.local_updates.spoiled import Spoiled

EXPERIMENTS = {experiment.key: experiment for experiment in experiments()}


def rows(**systems: list[float]) -> pd.DataFrame:
    """Return the losses and seconds of five seeds; a seed with NaN did not get there in ten seconds."""
    table = pd.concat([pd.DataFrame({"system": name, "seed": range(5), "loss": losses}) for name, losses in systems.items()])
    return table.assign(target_seconds=table["loss"], virtual_seconds=10.0)


def test_claims_are_of_systems_that_there_are_and_pages_have_room_for_them():
    assert len(EXPERIMENTS) == len(list(experiments()))
    for experiment in EXPERIMENTS.values():
        assert {name for claim in experiment.claims for name in claim.factors} <= set(experiment.systems)
        assert len({claim.said for claim in experiment.claims}) == len(experiment.claims)


def test_every_system_of_an_experiment_is_tuned_on_as_many_points():
    for key in ("one-age-heavy-tail", "overlap-digits", "crashes-digits"):
        points = pd.Series([point.of for point in EXPERIMENTS[key].scenario().points.values()]).value_counts()
        assert points.nunique() == 1 and len(points) == len(EXPERIMENTS[key].systems)
    assert not set(SEEDS) & set(REPORTED)
    assert Experiment("one age", "heavy tail", "", {}, {}, ()).key == "one-age-heavy-tail"


def test_verdicts_are_given_only_where_the_whole_interval_is_on_one_side():
    losses = rows(low=[1.0, 1.1, 1.2, 1.1, 1.0], high=[2.0, 2.2, 2.1, 2.0, 2.1], like=[1.1, 1.0, 1.1, 1.2, 1.0])
    assert Found(below("", "", LOSS, "low", "high"), losses).verdict == Verdict.AGREES
    assert Found(below("", "", LOSS, "high", "low"), losses).verdict == Verdict.DISAGREES
    assert Found(below("", "", LOSS, "low", "like"), losses).verdict == Verdict.OPEN
    assert Found(nearly("", "", LOSS, "like", "low", 0.5), losses).verdict == Verdict.AGREES
    assert Found(gap("", "", ("like", "low"), ("high", "low")), losses).verdict == Verdict.AGREES
    ratio = Found(below("", "", SECONDS, "low", "high"), losses)
    assert ratio.expected == "< × 1.00" and 0.45 < math.exp(ratio.mean) < 0.55


def test_one_worker_of_four_has_wrong_labels():
    spoiled, clean = Spoiled(workers=4).load(3), Spoiled.__bases__[0]().load(3)
    order, begins = divide(3, len(spoiled.train), 4)
    wrong = spoiled.train.answers != clean.train.answers
    assert 0.8 < wrong[order[: begins[1]]].mean() < 1 and not wrong[order[begins[1] :]].any()
    assert np.array_equal(spoiled.evaluation.answers, clean.evaluation.answers)


@pytest.mark.slow
@pytest.mark.skipif(not FOUND.is_file(), reason="the study has not been run: python -m studies.local_updates")
def test_the_page_is_that_of_the_measurements():
    assert page.PAGE.read_text(encoding="utf-8") == page.text(pd.read_csv(FOUND))
