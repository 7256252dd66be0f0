"""The study of low-communication systems: equal tuning, closed forms, and a page that follows from the measurements."""

import jax
import numpy as np
import pandas as pd
import pytest

import fred
from fred.base.intervals import Verdict
from fred.learning.loss import initial_params
from fred.running.recording import Timing
from fred.schedule.schedule import Verb
from studies.low_communication import cases, page
from studies.low_communication.cases import LEARNERS, NARROW, PARAMETERS, Case, heard, heard_without_failures
from studies.low_communication.claims import Claim
from studies.low_communication.compared import KINDS, Key, above, against, beside, best, final, keys
from studies.low_communication.measure import GOODPUT, LOSSES, TRIED
from studies.low_communication.systems import SYSTEMS
from tests.worlds import record

measured = pytest.mark.skipif(not TRIED.is_file(), reason="the study has not been run: python -m studies.low_communication")
HERE_AND_NOW = Key(230, "alike", "tuned")
NOISE = np.array([0.0, 0.001, -0.001, 0.0005, -0.0005])


def _rows(losses, key=HERE_AND_NOW):
    """Return one case with two times: each system's losses above the least one at the end, by seed."""
    rows = [
        (*key, system, seed, seconds, value if seconds else 1.0)
        for system, values in losses.items()
        for seed, value in enumerate(values)
        for seconds in (0.0, 300.0)
    ]
    return final(pd.DataFrame(rows, columns=["megabits", "workers", "way", "system", "seed", "seconds", "loss"]))


def _run(case, system):
    middle = {name: values[(len(values) - 1) // 2] for name, values in SYSTEMS[system].knobs.items()}
    return fred.scenario(case.settings, runs={system: SYSTEMS[system].run(middle)}).runs[system]


def test_first_middle_and_last_value_of_each_knob_of_a_system_are_runs():
    for name, system in SYSTEMS.items():
        for end in (0, -1):
            point = {knob: values[end] for knob, values in system.knobs.items()}
            fred.scenario(Case(NARROW, slow=True).settings, runs={name: system.run(point)})
        assert _run(Case(230), name).cluster.workers == 8


def test_delayed_nesterov_with_and_without_the_speeds_is_the_same_where_all_are_alike():
    unpaced, paced = (_run(Case(230), name) for name in ("delayed-nesterov", "delayed-nesterov-paced"))
    unpaced_digest, paced_digest = (
        Timing.of(run, 1, 4 * PARAMETERS)._replace(seconds=20.0).schedule().digest() for run in (unpaced, paced)
    )
    assert unpaced_digest == paced_digest and unpaced.algorithm == paced.algorithm
    assert SYSTEMS["delayed-nesterov-paced"].if_alike == "delayed-nesterov"


def test_messages_of_models_of_these_sizes_take_as_long_as_those_of_the_larger_model():
    for megabits, parameters in ((1000, PARAMETERS), (NARROW, cases.TRANSFORMER)):
        small = _run(Case(megabits), "diloco").cluster.network.allreduce(8, 4 * parameters).nanoseconds / 1e9
        assert small - 14 * cases.LATENCY == pytest.approx(1.75 * 4 * 70.4e6 / (megabits * 1e6 / 8), rel=1e-3)
    task = _run(Case(NARROW), "sync").task
    data = task.data.model_copy(update={"examples": 50, "evaluation": 5}).load(1)
    assert sum(leaf.size for leaf in jax.tree.leaves(initial_params(task.model, data, 1))) == cases.TRANSFORMER


def test_what_nobody_hears_of_is_what_is_made_between_a_question_and_a_crash():
    draws = np.random.default_rng(0)
    ups, since = draws.exponential(cases.CHIP_UP, 200_000), draws.uniform(0, cases.PERIOD * 0.25 * cases.CHIPS, 200_000)
    lost_share = np.minimum(ups, since).mean() / cases.CHIP_UP
    heard_share = heard(cases.CHIPS) / heard_without_failures(cases.CHIPS)
    assert heard_share / cases.availability(cases.CHIPS) == pytest.approx(1 - lost_share, abs=0.005)
    assert all(heard(learners) < cases.availability(learners) < 1 for learners in LEARNERS)


@pytest.mark.slow
def test_without_failures_nobody_hears_of_what_a_new_fragment_overwrites():
    """Each answer weighs as many updates as it is of; learners make far more."""
    for learners in LEARNERS:
        run = fred.load(cases.HERE / "goodput.yaml").runs[f"{learners}-learners"]
        schedule = record(run.protocol, run.cluster, seconds=cases.GOODPUT_SECONDS, sizes=4 * PARAMETERS)
        answered = schedule["weight"][schedule.rows(Verb.ADD)].sum() / cases.FRAGMENTS
        total = len(np.unique(schedule.frame().query("verb == 'PUSH'")[["worker", "step"]].to_numpy(), axis=0))
        assert answered / total == pytest.approx(heard_without_failures(learners), abs=0.006)
        assert 0.83 < answered / total < 0.86


def test_as_good_are_those_surely_within_the_margin():
    losses = {"sync": 0.303 + NOISE[::-1], "demo": 0.3 + NOISE, "diloco": 0.305 + 30 * NOISE}
    losses = dict.fromkeys(SYSTEMS, 0.5 + NOISE) | losses
    table = _rows(losses)
    verdicts = beside(table, HERE_AND_NOW)
    assert best(table, HERE_AND_NOW) == "demo" and "demo" not in verdicts
    assert verdicts.pop("sync") == "yes" and verdicts.pop("diloco") == "open"
    assert set(verdicts.values()) == {"no"}
    assert against(table, "sync", "decoupled", [HERE_AND_NOW])[HERE_AND_NOW].lower == "yes"


def test_a_claim_holds_where_the_intervals_say_so():
    table = pd.concat([_rows({"sync": 0.5 + NOISE, "diloco": 0.3 + NOISE[::-1]}, key) for key in keys(KINDS[:1])])
    right, wrong = Claim("", "", "diloco", "sync", "ahead", KINDS[:1]), Claim("", "", "sync", "diloco", "even", KINDS[:1])
    assert right.judged(right.verdicts(table)) == "agrees" and wrong.judged(wrong.verdicts(table)) == "disagrees"
    yes, no, unsure = Verdict
    assert wrong.judged([yes, no]) == "in part: 1 of 2" and right.judged([unsure, no]) == "disagrees: 1 of 2"
    assert wrong.judged([unsure, unsure]) == "open"


def test_the_least_possible_loss_on_bigrams_is_subtracted_and_nothing_on_the_grammar():
    losses = pd.DataFrame({"loss": 4.0, "mean_loss": 4.0, "seed": [11, 12, 11], "megabits": [230, 5000, NARROW]})
    expected = [4.0 - 3.7568099741732417, 4.0 - 3.7454610483709527, 4.0]
    assert above(losses)["loss"].tolist() == pytest.approx(expected, abs=1e-12)


@measured
@pytest.mark.slow
def test_the_page_says_what_was_measured():
    assert page.PAGE.read_text(encoding="utf-8") == page.text(*map(pd.read_csv, (LOSSES, TRIED, GOODPUT)))
