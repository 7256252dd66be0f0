"""The study of low-communication systems: all are tuned as much, closed forms hold, and the page says what was measured."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fred
from fred.base.over_seeds import Verdict
from fred.schedule.schedule import Verb
from studies.low_communication import page
from studies.low_communication.cases import (
    AWAY,
    CHIP_UP,
    CHIPS,
    FRAGMENTS,
    GOODPUT_SECONDS,
    HERE,
    LATENCY,
    LEARNERS,
    MEGABITS,
    OVERLAP,
    PARAMETERS,
    PERIOD,
    Case,
    availability,
    bandwidth,
    heard,
    heard_without_failures,
)
from studies.low_communication.claims import Claim
from studies.low_communication.compared import CASE, SYSTEMS, above, against, beside, chosen, seconds_to, values
from studies.low_communication.measure import GOODPUT, LOSSES
from tests.worlds import record


def _rows(losses, tuning):
    """One case, two times: each system's losses above the least one at the end, by seed."""
    rows = [
        (system, tuning[system], seed, seconds, value if seconds else 1.0)
        for system, own in losses.items()
        for seed, value in enumerate(own)
        for seconds in (0.0, 300.0)
    ]
    return pd.DataFrame(rows, columns=["system", "tuning_loss", "seed", "seconds", "above"]).assign(
        stragglers=False, megabits=50
    )


def test_every_system_is_tuned_on_as_many_points_of_the_same_cluster():
    scenario = Case(230, stragglers=True).scenario()
    points = pd.Series([point.of for point in scenario.points.values()]).value_counts()
    assert set(points.index) == set(SYSTEMS) and set(points) == {9}
    (cluster,) = {run.cluster.model_dump_json() for run in scenario.runs.values()}
    assert '"speeds":[1.0,1.0,1.0,1.0,1.0,1.0,1.0,0.25]' in cluster
    assert not set(scenario.seeds) & set(scenario.report_seeds or ())


def test_with_stragglers_there_is_one_setting_of_each_on_the_seeds_of_both():
    names = ["diloco,learning_rate=0.01,period=8", "sync,learning_rate=0.1"]
    scenario = Case(50, stragglers=True).scenario(names)
    assert list(scenario.runs) == list(scenario.points) == names
    assert (scenario.seeds, scenario.report_seeds) == ((1, 2), (11, 12, 13, 14, 15))


def test_messages_take_as_long_as_those_of_the_larger_model():
    network = Case(1000, stragglers=False).scenario().runs["diloco,learning_rate=0.01,period=8"].cluster.network
    assert network is not None
    small = network.allreduce(8, 4 * 128 * 128).nanoseconds / 1e9
    latencies = 14 * 0.02
    assert small - latencies == pytest.approx(1.75 * 4 * 70.4e6 / 125e6, rel=1e-3)


@pytest.mark.parametrize("learners", LEARNERS)
def test_learners_have_their_part_of_the_chips_and_of_their_failures(learners):
    runs = fred.load(HERE / "goodput.yaml").runs
    usual, failing = (runs[f"{learners}-learners{more}"].model_dump() for more in ("", "-failing"))
    (crashes,) = failing["cluster"].pop("faults")
    assert usual["cluster"].pop("faults") == () and usual["cluster"] == failing["cluster"]
    assert usual["cluster"]["workers"] == learners and usual["cluster"]["compute"]["median"] == 0.25 * learners
    assert (crashes["mean_up"], crashes["away"]["seconds"]) == (CHIP_UP * learners / CHIPS, AWAY)
    assert [failing["protocol"][each] for each in ("period", "fragments", "overlap")] == [PERIOD, FRAGMENTS, OVERLAP]
    assert usual["cluster"]["network"]["latency"]["seconds"] == LATENCY and usual["stop"]["seconds"] == GOODPUT_SECONDS
    assert usual["cluster"]["network"]["bandwidth"] == pytest.approx(bandwidth(5000), rel=1e-3)


def test_what_nobody_hears_of_is_what_is_made_between_a_question_and_a_crash():
    lasts, between = CHIP_UP, PERIOD * 0.25 * CHIPS
    draws = np.random.default_rng(0)
    ups, since = draws.exponential(lasts, 200_000), draws.uniform(0, between, 200_000)
    kept = 1 - np.minimum(ups, since).mean() / lasts
    of_what_is_there = heard(CHIPS) / heard_without_failures(CHIPS)
    assert of_what_is_there / availability(CHIPS) == pytest.approx(kept, abs=0.005)
    assert all(heard(learners) < availability(learners) < 1 for learners in LEARNERS)


@pytest.mark.parametrize("learners", LEARNERS)
def test_without_failures_nobody_hears_of_what_a_new_fragment_overwrites(learners):
    """Each answer weighs as many updates as it is of; learners make far more."""
    run = fred.load(HERE / "goodput.yaml").runs[f"{learners}-learners"]
    schedule = record(run.protocol, run.cluster, seconds=GOODPUT_SECONDS, sizes=4 * PARAMETERS)
    answered = schedule["weight"][schedule.rows(Verb.ADD)].sum() / FRAGMENTS
    made = len(np.unique(schedule.frame().query("verb == 'PUSH'")[["worker", "step"]].to_numpy(), axis=0))
    assert answered / made == pytest.approx(heard_without_failures(learners), abs=0.006)
    assert 0.83 < answered / made < 0.86


@pytest.mark.skipif(not GOODPUT.is_file(), reason="the study has not been run: python -m studies.low_communication")
def test_goodput_is_of_what_is_made_without_failures():
    goodput = pd.read_csv(GOODPUT)
    told = [str(row[6]).split()[0] for row in page.goodput_rows(goodput)]
    assert told == ["0.598", "0.688", "0.740", "0.768"], "as recomputed by another program"


@given(st.floats(0.3, 0.9), st.floats(0.01, 0.2))
def test_between_two_times_a_loss_falls_along_a_line(before, after):
    own = pd.DataFrame({"system": "sync", "seed": 1, "seconds": [0.0, 15.0, 30.0], "above": [1.0, before, after]})
    share = (before - 0.25) / (before - after)
    assert seconds_to(own, "sync", 0.25)[0] == pytest.approx(15 + 15 * share)
    assert seconds_to(own, "sync", after / 2)[0] == np.inf and seconds_to(own, "sync", 1.0)[0] == 0


NOISE = np.array([0.0, 0.001, -0.001, 0.0005, -0.0005])


def test_the_best_was_the_best_on_other_seeds_and_as_good_are_those_surely_within_the_margin():
    losses = dict.fromkeys(SYSTEMS, 0.5 + NOISE) | {
        "sync": 0.303 + NOISE[::-1],
        "demo": 0.3 + NOISE,
        "noloco": 0.2 + NOISE,
        "diloco": 0.305 + 30 * NOISE,
    }
    tuning = dict.fromkeys(SYSTEMS, 1.0) | {"demo": 0.5, "noloco-mean": 0.1}
    own = _rows(losses | {"noloco-mean": NOISE}, tuning)
    verdicts = beside(own, "demo")
    assert chosen(own) == "demo", "the mean of all is nobody's"
    assert {name: verdicts[name] for name in ("sync", "noloco", "diloco")} == {"sync": "yes", "noloco": "yes", "diloco": "open"}
    assert {each for name, each in verdicts.items() if name not in ("sync", "noloco", "diloco")} == {"no"}
    assert against(own, "sync", "decoupled")[False, 50].below() == "yes"


def test_a_claim_holds_where_the_intervals_say_so():
    own = _rows({"sync": 0.5 + NOISE, "diloco": 0.3 + NOISE[::-1]}, {"sync": 1.0, "diloco": 1.0})
    better, worse = Claim("", "", "diloco", "sync", "ahead"), Claim("", "", "sync", "diloco", "even")
    assert better.judged(better.verdicts(own)) == "agrees" and worse.judged(worse.verdicts(own)) == "disagrees"
    yes, no, unsure = Verdict
    assert worse.judged([yes, no]) == "in part: 1 of 2" and better.judged([unsure, no]) == "disagrees: 1 of 2"
    assert worse.judged([unsure, unsure]) == "open" and worse.judged([]) == "not measured"


def test_as_good_is_more_than_no_difference():
    """A mean of 0 whose interval reaches beyond the margin is open, and one surely behind by less than the margin is as good."""
    own = _rows({"sync": 0.3 + 20 * NOISE, "demo": 0.305 + NOISE, "diloco": 0.3 + NOISE[::-1]}, dict.fromkeys(SYSTEMS, 1.0))
    assert Claim("", "", "sync", "diloco", "even").verdicts(own) == ["open"]
    assert Claim("", "", "demo", "diloco", "even").verdicts(own) == ["yes"]
    assert Claim("", "", "demo", "diloco", "ahead").verdicts(own) == ["no"]


def test_what_is_known_of_the_tokens_is_subtracted():
    losses = pd.DataFrame({"loss": [4.0, 4.0], "seed": [11, 12]})
    assert above(losses)["above"].tolist() == pytest.approx([4.0 - 3.7568099741732417, 4.0 - 3.7454610483709527], abs=1e-12)


@pytest.mark.skipif(not LOSSES.is_file(), reason="the study has not been run: python -m studies.low_communication")
def test_the_page_says_what_was_measured():
    assert page.PAGE.read_text(encoding="utf-8") == page.text(pd.read_csv(LOSSES), pd.read_csv(GOODPUT))


@pytest.mark.skipif(not LOSSES.is_file(), reason="the study has not been run: python -m studies.low_communication")
def test_the_conclusions_follow_from_the_tables():
    losses = above(pd.read_csv(LOSSES))
    text = " ".join(page.text(pd.read_csv(LOSSES), pd.read_csv(GOODPUT)).split())
    cases = {(slow, megabits): own for (slow, megabits), own in losses.groupby(CASE, sort=False)}

    def ends(system, stragglers=False, megabits=MEGABITS):
        return [f"{values(cases[stragglers, each], system, 300).mean():.3f}" for each in megabits]

    def listed(numbers):
        return f"{', '.join(numbers[:-1])} and {numbers[-1]}"

    spread = {each: np.ptp([values(cases[False, each], system, 300).mean() for system in SYSTEMS]) for each in MEGABITS}
    assert f"there are {spread[50]:.2f} nats over 50 Mbit/s, and {spread[5000]:.3f} over 5,000" in text
    quick = {each: {one: float(np.median(seconds_to(cases[False, each], one))) for one in SYSTEMS} for each in (230, 1000)}
    assert [min(own, key=own.__getitem__) for own in quick.values()] == ["demo", "demo"]
    first, second = (" and ".join(f"{sorted(own.values())[rank]:.0f}" for own in quick.values()) for rank in (0, 1))
    assert f"after {first} s, where the next system takes {second}" in text
    whole = [f"{each.mean.value:.2f}" for (slow, _), each in against(losses, "sync", "diloco").items() if not slow]
    assert f"at every step are behind DiLoCo by {listed(whole)} nats" in text
    assert f"rises from {listed(ends('diloco'))} to {listed(ends('diloco', True))};" in text
    wide = MEGABITS[1:]
    assert f"({', '.join(ends('decoupled', False, wide))} to {', '.join(ends('decoupled', True, wide))})" in text
    own, mean = ends("noloco")[0], ends("noloco-mean")[0]
    assert f"({mean} where a worker's own has {own}, over 50 Mbit/s)" in text
    behind = against(losses, "decoupled", "diloco")[False, 50].mean.value
    assert f"over 50 Mbit/s among equals it is behind by {behind:.3f} nats" in text


@pytest.mark.skipif(not LOSSES.is_file(), reason="the study has not been run: python -m studies.low_communication")
def test_the_best_of_the_conclusion_are_those_of_the_table():
    rows = {(row[0], row[1]): row[2:5] for row in page.home_rows(above(pd.read_csv(LOSSES)))}
    assert [rows[each, "alike"][0] for each in ("230", "1,000", "5,000")] == ["**noloco**"] * 3
    assert rows["50", "alike"] == ["**streaming**", "none", "sparseloco, noloco"]
    assert rows["5,000", "alike"][1:] == ["a-edit", "streaming"] and rows["1,000", "alike"][2] == "streaming"
    assert [str(rows[each, "one slow"][0]).strip("*") for each in ("50", "230", "1,000", "5,000")] == [
        *("noloco", "decoupled", "decoupled", "delayed-nesterov"),
    ]
