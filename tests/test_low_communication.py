"""The study of low-communication systems: twenty rounds of every candidate, nested searches, a margin from the tuning."""

import json

import numpy as np
import pandas as pd
import pytest

import fred
from fred.running.recording import Timing
from fred.schedule.schedule import Verb
from studies.kit.tuning import REPORTED, tuned
from studies.low_communication import page
from studies.low_communication.cases import CASES, MODEL_BYTES, ROUNDS, Case
from studies.low_communication.measure import FINALISTS, POINTS, SEARCHES, STUDY
from studies.low_communication.page import Results, least_loss
from studies.low_communication.systems import FRAGMENTS, PLAIN_AVERAGE, SYSTEMS

measured = pytest.mark.skipif(not STUDY.measured, reason="the study has not been run: python -m studies.low_communication")


def _longest(case: Case, name: str) -> dict[str, object]:
    knobs = SYSTEMS[name].grid(case)
    return {knob: values[-1] if knob in ("period", "every") else values[0] for knob, values in knobs.items()}


def test_first_and_last_value_of_each_knob_of_a_system_are_runs():
    for case in (Case(32, slow=True), Case(4)):
        for name, system in SYSTEMS.items():
            for end in (0, -1):
                settings = {knob: values[end] for knob, values in system.grid(case).items()}
                fred.scenario(case.settings, runs={name: system.run(settings)})


@pytest.mark.parametrize("case", CASES.values())
@pytest.mark.parametrize("name", ["local-sgd", "diloco-by-time", "sparseloco", "decoupled"])
def test_a_run_holds_twenty_rounds_of_the_longest_period(case, name):
    run = fred.scenario(case.settings, runs={name: SYSTEMS[name].run(_longest(case, name))}).runs[name]
    schedule = Timing.of_run(run, 1, MODEL_BYTES)._replace(seconds=case.seconds).schedule()
    fragments = FRAGMENTS if name == "decoupled" else 1
    assert schedule.rows(Verb.COMMIT).sum() >= ROUNDS * fragments


def test_a_search_that_begins_at_a_special_case_is_never_worse_than_it():
    case, knobs = Case(4), SYSTEMS["local-sgd"].grid(Case(4))
    special = {knob: values[0] for knob, values in knobs.items()}
    start = SYSTEMS["diloco"].start(special, case)
    assert start == special | {"outer": PLAIN_AVERAGE} and SYSTEMS["diloco"].run(start) == SYSTEMS["local-sgd"].run(special)
    rng = np.random.default_rng(0)
    noise = dict[str, float]()

    def losses(some, seeds):
        return np.array([[noise.setdefault(json.dumps([each, seed]), rng.normal()) for seed in seeds] for each in some])

    for _ in range(20):
        noise.clear()
        best = tuned(losses, SYSTEMS["diloco"].grid(case), POINTS, FINALISTS, SEARCHES["first"], start=start)
        assert best.value <= losses([start], SEARCHES["first"]).mean() and best.points == POINTS


def test_by_time_begins_where_as_many_steps_end():
    assert (
        SYSTEMS["diloco-by-time"].start({"rate": 0.02, "period": 4, "outer": PLAIN_AVERAGE}, Case(4, slow=True))["every"]
        == 16.0
    )
    assert not set(REPORTED) & {seed for seeds in SEARCHES.values() for seed in seeds}


def _rows(values):
    return pd.DataFrame(
        [
            (case, system, search, seed, least_loss(seed) + 0.1 + values(system, search, seed))
            for case in CASES
            for system in SYSTEMS
            for search in SEARCHES
            for seed in REPORTED
        ],
        columns=["case", "system", "search", "seed", "loss"],
    )


def test_the_margin_is_the_luck_of_searches_and_a_smaller_difference_counts_as_none():
    def values(system, search, seed):
        luck = 0.01 if search == "first" else -0.01
        return luck * (-1) ** seed + luck + 0.015 * (system == "sync") + 0.1 * (system == "decoupled")

    results = Results(_rows(values))
    difference = 0.02 * (1 - sum((-1) ** (seed + 1) for seed in REPORTED) / len(REPORTED))
    assert results.luck("4", "diloco") == pytest.approx(difference)
    assert results.margin == pytest.approx(1.96 * difference / np.sqrt(2))
    verdicts = results.difference_to_best("4")
    assert verdicts["sync"].below(results.margin) == "yes" and verdicts["decoupled"].below(results.margin) == "no"


@measured
@pytest.mark.slow
def test_the_page_says_what_was_measured():
    assert STUDY.page.read_text(encoding="utf-8") == page.text(STUDY.read_tables())
