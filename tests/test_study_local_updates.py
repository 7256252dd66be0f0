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
    whole = pd.concat([pd.DataFrame({"system": name, "seed": range(5), "loss": losses}) for name, losses in systems.items()])
    return whole.assign(target_seconds=whole["loss"], virtual_seconds=10.0)


def test_claims_are_of_systems_that_there_are_and_pages_have_room_for_them():
    assert len(EXPERIMENTS) == len(list(experiments()))
    for experiment in EXPERIMENTS.values():
        assert {name for claim in experiment.claims for name in claim.factors} <= set(experiment.systems)
        assert len({claim.said for claim in experiment.claims}) == len(experiment.claims)


@pytest.mark.slow
def test_pulls_take_no_time_so_a_fifth_of_them_costs_few_gradients():
    runs = EXPERIMENTS["pulls-digits"].scenario().runs
    cluster = next(iter(runs.values())).cluster
    for period, low, high in ((50, 0.055, 0.075), (400, 0.015, 0.03)):  # 2 to 7 %, as the page says
        protocols = [OuterSteps(period=period, pulls=share) for share in (0.0, 0.2)]
        without, gradients = (record(each, cluster, seconds=801.0).counts()["gradients"] for each in protocols)
        assert protocols[1] in [run.protocol for run in runs.values()]
        assert without == 4 * 800
        assert low < 1 - gradients / without < high


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


def test_a_system_that_missed_the_target_is_at_least_as_slow():
    losses = rows(fast=[1.0, 1.1, 1.2, 1.1, 1.0], never=[math.nan] * 5, worse=[math.inf, 9.0, 9.0, 8.0, 9.0])
    bound = Found(below("", "", SECONDS, "fast", "never"), losses)
    assert bound.verdict == Verdict.AGREES and bound.low == -math.inf and bound.said.startswith("< × 0.1")
    assert Found(below("", "", SECONDS, "never", "fast"), losses).verdict == Verdict.DISAGREES
    assert Found(Claim("", "", SECONDS, {"never": 1.0, "worse": -1.0}), losses).said == "neither got there"
    assert Found(Claim("", "", LOSS, {"worse": 1.0}), losses).mean == WORST


def test_one_worker_of_four_has_wrong_labels():
    whole, right = Spoiled(workers=4).load(3), Spoiled.__bases__[0]().load(3)
    order, begins = divide(3, len(whole.train), 4)
    wrong = whole.train.answers != right.train.answers
    assert 0.8 < wrong[order[: begins[1]]].mean() < 1 and not wrong[order[begins[1] :]].any()
    assert np.array_equal(whole.evaluation.answers, right.evaluation.answers)


CONCLUSIONS = """
rounds | grammar | outer momentum helps, H = 40 | disagrees | They end {} below it on the grammar at H = 40; at H = 10 it is open
rounds | grammar | outer momentum helps, H = 10 | open |
rounds | digits | Muon inside is better than AdamW, H = 20 | agrees | Muon inside is better than AdamW by {} on digits
rounds | grammar | Muon inside is better than AdamW, H = 10 | disagrees | and worse by {} on the grammar
overlap | digits | a pseudo-gradient that is one round late loses | agrees | loses {} against Eager DiLoCo's on digits; on the grammar it is open
overlap | grammar | a pseudo-gradient that is one round late loses | open |
overlap | grammar | Eager does so at nearly no loss (0.02) | disagrees | but Eager itself loses {}
arrivals | digits | delayed Nesterov is at the target before rounds that wait for all | agrees | takes {} (digits)
arrivals | grammar | delayed Nesterov is at the target before rounds that wait for all | agrees | and {} (grammar) of the time
arrivals | digits | without momentum, arrivals one by one beat waiting | disagrees | end {} above waiting on digits, after as many gradients; on the grammar it is open
arrivals | grammar | without momentum, arrivals one by one beat waiting | open |
stale pseudo-gradients | digits | HeLoCo is below Nesterov (0.7, 0.9) at delays of 8 | open |
wrong labels | digits | they cost EDiT less | open |
unequal speeds | digits | A-EDiT, which synchronizes by time, is at the target before DiLoCo | agrees | A-EDiT needs {} of the time
regions later | digits | HALoS ends below DiLoCo, which waits for all | agrees | it ends {} below DiLoCo
regions later | digits | HALoS ends below paced arrivals one by one | agrees | and {} below paced arrivals
great age | heavy tail | lag 16 costs Lion less than AdamW | disagrees | a lag of 16 costs it {} more than AdamW
"""


@pytest.mark.slow
@pytest.mark.skipif(not FOUND.is_file(), reason="the study has not been run: python -m studies.local_updates")
def test_the_page_is_that_of_the_measurements_and_its_conclusions_follow():
    units = pd.read_csv(FOUND)
    whole = page.text(units)
    assert page.PAGE.read_text(encoding="utf-8") == whole
    text = " ".join(whole.split())
    claims = {
        (each.name, each.task, claim.said): Found(claim, page.rows_of(units, each))
        for each in experiments()
        for claim in each.claims
    }

    def size(claim: Found) -> str:
        return f"{abs(math.exp(claim.mean) if claim.claim.quantity.ratio else claim.mean):.2f}"

    for row in CONCLUSIONS.strip().splitlines():
        experiment, task, said, verdict, words = (cell.strip() for cell in row.split("|"))
        claim = claims[experiment, task, said]
        assert claim.verdict == verdict, row
        assert words.format(size(claim)) in text
    helps = [claims["rounds", "digits", f"outer momentum helps, H = {period}"] for period in (20, 100, 300)]
    assert {claim.verdict for claim in helps} == {Verdict.DISAGREES}
    assert f"end {min(map(size, helps))} to {max(map(size, helps))} nats below DiLoCo on digits" in text
    directions = claims["crashes", "digits", "mean direction and length beat the mean of 8"]
    assert -0.02 < directions.low < directions.high < 0.02, "as good as a mean within 0.02"
