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

TOKENS, OTHERS = ("digits", "grammar"), ("DiLoCo, which waits for all", "paced arrivals one by one")
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


def _found():
    rows_of_all = pd.read_csv(FOUND)
    return {
        (each.name, each.task, claim.said): Found(claim, page.rows_of(rows_of_all, each))
        for each in experiments()
        for claim in each.claims
    }


@pytest.mark.skipif(not FOUND.is_file(), reason="the study has not been run: python -m studies.local_updates")
def test_the_conclusions_follow_from_the_tables():
    found, text = _found(), " ".join(page.text(pd.read_csv(FOUND)).split())

    def mean(experiment, task, said, verdict, digits=2):
        one = found[experiment, task, said]
        assert one.verdict == verdict
        return f"{abs(math.exp(one.mean) if one.claim.quantity.ratio else one.mean):.{digits}f}"

    helps = [mean("rounds", "digits", f"outer momentum helps, H = {period}", "disagrees") for period in (20, 100, 300)]
    assert f"end {min(helps)} to {max(helps)} nats below DiLoCo on digits" in text
    later = mean("rounds", "grammar", "outer momentum helps, H = 40", "disagrees")
    assert found["rounds", "grammar", "outer momentum helps, H = 10"].verdict == "open"
    assert f"They end {later} below it on the grammar at H = 40; at H = 10 it is open" in text
    muon = [
        mean("rounds", task, f"Muon inside is better than AdamW, H = {period}", verdict)
        for task, period, verdict in (("digits", 20, "agrees"), ("grammar", 10, "disagrees"))
    ]
    assert f"Muon inside is better than AdamW by {muon[0]} on digits and worse by {muon[1]} on the grammar" in text
    late = mean("overlap", "digits", "a pseudo-gradient that is one round late loses", "agrees")
    eager = mean("overlap", "grammar", "Eager does so at nearly no loss (0.02)", "disagrees")
    assert found["overlap", "grammar", "a pseudo-gradient that is one round late loses"].verdict == "open"
    assert f"loses {late} against Eager DiLoCo's on digits; on the grammar it is open, but Eager itself loses {eager}" in text
    sooner = [
        mean("arrivals", task, "delayed Nesterov is at the target before rounds that wait for all", "agrees") for task in TOKENS
    ]
    assert f"takes {sooner[0]} (digits) and {sooner[1]} (grammar) of the time" in text
    alone = mean("arrivals", "digits", "without momentum, arrivals one by one beat waiting", "disagrees")
    assert found["arrivals", "grammar", "without momentum, arrivals one by one beat waiting"].verdict == "open"
    assert f"end {alone} above waiting on digits, after as many gradients; on the grammar it is open" in text
    assert found["stale pseudo-gradients", "digits", "HeLoCo is below Nesterov (0.7, 0.9) at delays of 8"].verdict == "open"
    assert found["wrong labels", "digits", "they cost EDiT less"].verdict == "open"
    paced = mean("unequal speeds", "digits", "A-EDiT, which synchronizes by time, is at the target before DiLoCo", "agrees")
    assert f"A-EDiT needs {paced} of the time" in text
    regions = [mean("regions later", "digits", f"HALoS ends below {who}", "agrees") for who in OTHERS]
    assert f"it ends {regions[0]} below DiLoCo and {regions[1]} below paced arrivals" in text
    directions = found["crashes", "digits", "mean direction and length beat the mean of 8"]
    assert -0.02 < directions.low < directions.high < 0.02, "as good as a mean within 0.02"
    lion = mean("great age", "heavy tail", "lag 16 costs Lion less than AdamW", "disagrees")
    assert f"a lag of 16 costs it {lion} more than AdamW" in text
