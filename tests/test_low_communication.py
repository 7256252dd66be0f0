"""The study of low-communication systems: equal tuning, closed forms, and a page that follows from the measurements."""

import numpy as np
import pandas as pd
import pytest

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
    NARROW,
    OVERLAP,
    PARAMETERS,
    PERIOD,
    TRANSFORMER,
    Case,
    availability,
    bandwidth,
    heard,
    heard_without_failures,
)
from studies.low_communication.claims import Claim
from studies.low_communication.compared import KINDS, Key, above, against, beside, best, ends, final, keys
from studies.low_communication.facts import WIDE, facts
from studies.low_communication.measure import GOODPUT, LOSSES, POINTS, TRIED, one_setting
from studies.low_communication.systems import PERIODS, SYSTEMS, TIMES
from studies.tuning import REPORTED, TUNING
from tests.worlds import record

measured = pytest.mark.skipif(not TRIED.is_file(), reason="the study has not been run: python -m studies.low_communication")
HERE_AND_NOW = Key(230, "alike", "tuned")
NOISE = np.array([0.0, 0.001, -0.001, 0.0005, -0.0005])


def _rows(losses, key=HERE_AND_NOW):
    """Return one case with two times: each system's losses above the least one at the end, by seed."""
    rows = [
        (*key, system, seed, seconds, value if seconds else 1.0)
        for system, own in losses.items()
        for seed, value in enumerate(own)
        for seconds in (0.0, 300.0)
    ]
    return final(pd.DataFrame(rows, columns=["megabits", "workers", "way", "system", "seed", "seconds", "loss"]))


def _middle(system):
    return {name: values[(len(values) - 1) // 2] for name, values in SYSTEMS[system].knobs.items()}


def _scenario(case, system):
    return fred.scenario(case.settings, runs={system: SYSTEMS[system].run(_middle(system))})


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_point_of_a_system_is_a_run(system):
    """The first, the middle and the last value of every knob make valid scenarios in every case."""
    for end in (0, -1):
        point = {name: values[end] for name, values in SYSTEMS[system].knobs.items()}
        fred.scenario(Case(NARROW, slow=True).settings, runs={system: SYSTEMS[system].run(point)})
    (run,) = _scenario(Case(230), system).runs.values()
    assert run.cluster.workers == 8


def test_plain_averages_and_momentum_are_in_the_grid_of_every_system_with_outer_steps():
    with_outer = {name for name, system in SYSTEMS.items() if "outer" in system.knobs}
    assert set(SYSTEMS) - with_outer == {"sync", "demo", "local-sgd", "sparseloco"}
    assert all({momentum for momentum, _ in SYSTEMS[name].knobs["outer"]} == {0.0, 0.5, 0.9} for name in with_outer)
    assert SYSTEMS["local-sgd"].run({"rate": 0.1, "period": 8}) == SYSTEMS["diloco"].run(
        {"rate": 0.1, "period": 8, "outer": (0.0, 1.0)}
    )
    assert not set(TUNING) & set(REPORTED)


def test_delayed_nesterov_with_and_without_the_speeds_is_the_same_where_all_are_alike():
    own, paced = (
        fred.scenario(Case(230).settings | {"stop": {"seconds": 20}}, seeds=[1], **SYSTEMS[name].run(_middle(name)))
        for name in ("delayed-nesterov", "delayed-nesterov-paced")
    )
    assert fred.run(own).summary["loss"].tolist() == fred.run(paced).summary["loss"].tolist()
    assert SYSTEMS["delayed-nesterov-paced"].if_alike == "delayed-nesterov"


@pytest.mark.parametrize(("megabits", "parameters"), [(1000, PARAMETERS), (NARROW, TRANSFORMER)])
def test_messages_take_as_long_as_those_of_the_larger_model(megabits, parameters):
    (run,) = _scenario(Case(megabits), "diloco").runs.values()
    small = run.cluster.network.allreduce(8, 4 * parameters).nanoseconds / 1e9
    assert small - 14 * LATENCY == pytest.approx(1.75 * 4 * 70.4e6 / (megabits * 1e6 / 8), rel=1e-3)


def test_the_transformer_has_as_many_parameters_as_the_links_are_made_for():
    """An allreduce among eight sends 14 times the model in all."""
    settings = Case(NARROW).settings | {"stop": {"seconds": 90}, "evaluate": {"points": 1}}
    settings["task"] = settings["task"] | {"data": settings["task"]["data"] | {"examples": 50, "evaluation": 5}}
    summary = fred.run(fred.scenario(settings, seeds=[1], **SYSTEMS["sync"].run(_middle("sync")))).summary
    assert summary["updates"].tolist() == [1]
    assert summary["bytes_between_workers"].iloc[0] == pytest.approx(14 * 4 * TRANSFORMER, rel=1e-3)


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
    assert usual["cluster"]["network"]["bandwidth"] == pytest.approx(bandwidth(5000, PARAMETERS), rel=1e-3)


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


def test_one_setting_is_that_which_is_least_above_the_best_of_each_case():
    """A setting that is good in both cases; one that was not tried in all cases does not count."""
    first = pd.DataFrame({"settings": ["a", "b", "c"], "seed": 1, "loss": [0.0, 0.1, 1.0]})
    second = pd.DataFrame({"settings": ["a", "b", "d"], "seed": 1, "loss": [4.5, 4.1, 4.0]})
    later = pd.DataFrame({"settings": ["a"], "seed": 2, "loss": [-9.0]})
    assert one_setting({"first": pd.concat([first, later]), "second": second}) == "b"


def test_as_good_are_those_surely_within_the_margin():
    losses = dict.fromkeys(SYSTEMS, 0.5 + NOISE) | {
        "sync": 0.303 + NOISE[::-1],
        "demo": 0.3 + NOISE,
        "diloco": 0.305 + 30 * NOISE,
    }
    own = _rows(losses)
    verdicts = beside(own, HERE_AND_NOW)
    assert best(own, HERE_AND_NOW) == "demo" and "demo" not in verdicts
    assert verdicts.pop("sync") == "yes" and verdicts.pop("diloco") == "open"
    assert set(verdicts.values()) == {"no"}
    assert against(own, "sync", "decoupled", [HERE_AND_NOW])[HERE_AND_NOW].lower == "yes"


def test_a_claim_holds_where_the_intervals_say_so():
    own = pd.concat([_rows({"sync": 0.5 + NOISE, "diloco": 0.3 + NOISE[::-1]}, key) for key in keys(KINDS[:1])])
    better = Claim("", "", "diloco", "sync", "ahead", KINDS[:1])
    worse = Claim("", "", "sync", "diloco", "even", KINDS[:1])
    assert better.judged(better.verdicts(own)) == "agrees" and worse.judged(worse.verdicts(own)) == "disagrees"
    yes, no, unsure = Verdict
    assert worse.judged([yes, no]) == "in part: 1 of 2" and better.judged([unsure, no]) == "disagrees: 1 of 2"
    assert worse.judged([unsure, unsure]) == "open"


def test_as_good_is_more_than_no_difference():
    """A mean of 0 whose interval reaches beyond the margin is open, and one surely behind by less than the margin is as good."""
    losses = {"sync": 0.3 + 20 * NOISE, "demo": 0.305 + NOISE, "diloco": 0.3 + NOISE[::-1]}
    own = pd.concat([_rows(losses, key) for key in keys(KINDS[:1])])
    assert set(Claim("", "", "sync", "diloco", "even", KINDS[:1]).verdicts(own)) == {"open"}
    assert set(Claim("", "", "demo", "diloco", "even", KINDS[:1]).verdicts(own)) == {"yes"}
    assert set(Claim("", "", "demo", "diloco", "ahead", KINDS[:1]).verdicts(own)) == {"no"}


def test_the_least_possible_loss_on_bigrams_is_subtracted_and_nothing_on_the_grammar():
    losses = pd.DataFrame({"loss": 4.0, "mean_loss": 4.0, "seed": [11, 12, 11], "megabits": [230, 5000, NARROW]})
    known = [4.0 - 3.7568099741732417, 4.0 - 3.7454610483709527, 4.0]
    assert above(losses)["loss"].tolist() == pytest.approx(known, abs=1e-12)


@measured
def test_every_system_has_as_many_points_in_every_case():
    tried = pd.read_csv(TRIED)
    counts = tried.groupby(["megabits", "workers", "system"]).agg(points=("first_loss", "size"), chosen=("chosen", "sum"))
    assert len(counts) == len(list(keys(KINDS[:2]))) * len(SYSTEMS)
    assert set(counts["points"]) == {POINTS} and set(counts["chosen"]) == {1}
    chosen = tried[tried["chosen"]].set_index(["megabits", "workers", "system"])["tuning_loss"].sort_index()
    assert (tried.groupby(["megabits", "workers", "system"])["tuning_loss"].min() == chosen).all()


@measured
def test_the_page_says_what_was_measured():
    assert page.PAGE.read_text(encoding="utf-8") == page.text(*map(pd.read_csv, (LOSSES, TRIED, GOODPUT)))


@measured
def test_the_conclusions_follow_from_the_tables():
    losses, tried = final(above(pd.read_csv(LOSSES))), pd.read_csv(TRIED)
    alike, slow, unforeseen = ({key.megabits: best(losses, key) for key in keys([kind])} for kind in KINDS)
    assert (alike[NARROW], alike[1000], alike[5000]) == ("streaming", "decoupled", "decoupled")
    assert alike[230] == "local-sgd" and beside(losses, HERE_AND_NOW)["streaming"] == Verdict.YES, "as good as Streaming"
    assert {slow[width] for width in WIDE} == {unforeseen[width] for width in WIDE} == {"decoupled"}
    assert list(beside(losses, Key(NARROW, *KINDS[1])).values()).count(Verdict.OPEN) > len(SYSTEMS) / 2, "most are open"
    for width in (1000, 5000):
        assert list(beside(losses, Key(width, *KINDS[0])).values()).count(Verdict.OPEN) > len(SYSTEMS) / 2 - 1

    def worst(system, other, kind, some=WIDE):
        """Return the largest ratio of two systems' losses, and the least."""
        ratios = [ends(losses, key, system).mean() / ends(losses, key, other).mean() for key in keys([kind], some)]
        return max(ratios), min(ratios)

    assert all(worst("diloco-by-time", "decoupled", kind)[0] < 1.5 for kind in KINDS[1:]), "close behind"
    assert worst("diloco-by-time", "sparseloco", KINDS[1], [NARROW])[0] < 1.01 and unforeseen[NARROW] == "diloco-by-time"
    assert worst("sparseloco", "decoupled", KINDS[0])[1] > 2, "far behind"
    for system in ("local-sgd", "diloco", "streaming"):
        for key in keys(KINDS[1:2]):
            assert ends(losses, key, system).mean() < ends(losses, key._replace(way="unforeseen"), system).mean()
    chosen = tried[tried["chosen"]]
    longest = chosen[(chosen["period"] == max(PERIODS)) | (chosen["every"] == max(TIMES))]
    assert (longest["megabits"] == 230).mean() > 0.8, "most of them over 230 Mbit/s"
    begin = pd.read_csv(LOSSES).query("seconds == 0 and megabits == 230").groupby("seed")["loss"].first()
    unforeseen_losses = final(pd.read_csv(LOSSES))
    for system in ("local-sgd", "diloco", "delayed-nesterov"):
        end = ends(unforeseen_losses, Key(230, *KINDS[2]), system)
        assert end == pytest.approx(begin.to_numpy(), abs=1e-3), "ends where it begins"
    found = facts(losses, tried)
    assert found["one_best"] == "decoupled" and int(str(found["momentum_5"])) > int(str(found["choices_momentum"])) / 2
    paced, unpaced = ("delayed-nesterov-paced", "delayed-nesterov")
    assert all(
        abs(ends(losses, key, paced).mean() - ends(losses, key, unpaced).mean()) < 0.02 for key in keys(KINDS[1:2], WIDE)
    )
