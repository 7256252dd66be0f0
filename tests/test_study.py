"""The study of asynchrony: every system has as many points, theory keeps its bounds, the page shows the measured times."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fred
from studies.asynchrony import page, rows, theory
from studies.asynchrony.cases import FIXED, Case, main_cases, other_cases
from studies.asynchrony.compared import Ratio, together
from studies.asynchrony.measure import STUDY
from studies.asynchrony.systems import POINTS, SYSTEMS, system
from studies.asynchrony.units import Units
from studies.kit.tuning import REPORTED, search
from studies.kit.tuning import TUNING as TUNING_SEEDS

SECONDS = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=64)
ALL_TAKE_1_S = Case("all take 1 s", "little noise", workers=8)


@given(SECONDS, st.floats(0.0, 1000.0))
def test_waiting_for_the_best_m_costs_no_more_than_the_logarithm_that_theory_allows(seconds, noise):
    best, (of_m, m) = theory.best_time(np.array(seconds), noise), theory.best_of_m_sync(np.array(seconds), noise)
    assert best <= of_m * (1 + 1e-12) and of_m <= (1 + math.log(len(seconds))) * best * (1 + 1e-12)
    assert of_m == pytest.approx(sorted(seconds)[m - 1] * (1 + noise / m))


def test_every_system_is_tuned_on_as_many_points():
    for workers, name in itertools.product((8, 32, 128), SYSTEMS):
        knobs = system(name, workers).knobs(workers)
        for values in map(list, knobs.values()):
            assert values in (sorted(values), sorted(values, reverse=True)) and len(set(values)) == len(values)
        assert len(search(lambda points: [sum(point) for point in points], knobs, POINTS)) == POINTS
        assert workers - max(knobs.get("backup_workers", [workers - 2])) == 2, "m = 1 is a system of its own"
        assert name != "ringmaster" or min(knobs["threshold"]) == 2
    assert not set(TUNING_SEEDS) & set(REPORTED)


def test_a_case_has_its_workers_times_and_a_target():
    runs = {"run": system("asgd").run({"learning_rate": 0.1})}
    for case in (*main_cases(messages=True), *other_cases()):
        run = fred.scenario(case.settings, runs=runs).runs["run"]
        assert run.cluster.size == case.workers and run.evaluate.target_error == case.learned.target
        if case.times in FIXED:
            times = [1 / speed for speed in run.cluster.worker_speeds()]
            assert times == pytest.approx(FIXED[case.times](case.workers).tolist())
        assert run.stop.seconds and run.evaluate.every_seconds
        assert run.stop.seconds / run.evaluate.every_seconds == pytest.approx(case.looks) and case.looks >= 400
        assert case.tuning_looks in (case.looks, case.looks // 4)


def test_runs_are_stored_and_a_shorter_run_finds_the_same_time(tmp_path):
    path, budget = tmp_path / "units.csv", ALL_TAKE_1_S.budget
    units, settings, poor = Units(ALL_TAKE_1_S, path), {"learning_rate": 1.47}, {"learning_rate": 0.1}
    (seconds,) = units.seconds("sync", settings, [1])
    assert units.scores("sync", [settings], [1])[0, 0] == pytest.approx(seconds, abs=budget / 100)
    assert units.scores("sync", [poor], [1]) > budget / 2 and units.seconds("sync", poor, [1]) == [math.inf]
    stored, reopened = path.read_text(), Units(ALL_TAKE_1_S, path)
    assert reopened.scores("sync", [settings, poor], [1]).tolist() == units.scores("sync", [settings, poor], [1]).tolist()
    assert path.read_text() == stored and len(stored.splitlines()) == 5


def test_a_ratio_is_significant_only_where_its_interval_excludes_one_and_both_or_the_slower_reached_the_target():
    slow, fast = np.array([2.0, 2.2, 2.4, 2.1, 1.9]), np.ones(5)
    clear = Ratio.between(slow, fast, 10.0)
    assert clear.logarithm.value == pytest.approx(math.log(math.prod(slow)) / 5) and 0 < clear.interval[0] < clear.interval[1]
    pairs = (slow, fast), (fast, slow), (slow, slow[::-1])
    assert [Ratio.between(first, second, 10.0).faster for first, second in pairs] == ["denominator", "numerator", ""]
    never = np.full(5, math.inf)
    assert Ratio.between(never, fast, 10.0).said.startswith("**> 10.00")
    assert Ratio.between(fast, never, 10.0).said.startswith("**< 0.10")
    assert Ratio.between(never, never, 10.0).said == "both missed"
    late = np.array([math.inf, 1, 1, 1, 1])
    assert Ratio.between(late, 2 * fast, 10.0).faster == "", "it might have been slower still, or not"
    near = Ratio.between(np.array([1.0, 1.02, 0.99, 1.01, 1.0]), fast, 10.0)
    assert near.equal and near.said.endswith(" =") and not clear.equal


def test_the_cases_of_a_column_are_judged_together():
    spread = np.array([0, 0.1, -0.1, 0, 0])
    ratios = {mean: Ratio.between(np.exp(mean + spread), np.ones(5), 10.0) for mean in (0.1, 1.0, 0.0)}
    assert [ratio.faster for ratio in ratios.values()] == ["denominator", "denominator", ""]
    assert [ratio.faster for ratio in together(ratios).values()] == ["", "denominator", ""]


@pytest.mark.nightly
@pytest.mark.skipif(not STUDY.measured, reason="the study has not been run: python -m studies.asynchrony")
def test_the_page_is_that_of_the_measurements_and_its_main_conclusions_follow():
    tables = STUDY.read()
    times = tables[""]
    assert STUDY.page.read_text(encoding="utf-8") == page.text(tables)
    stale, waiting = (rows.by_law(times, question) for question in rows.QUESTIONS.values())
    assert not rows.over_laws(stale).faster and not rows.over_laws(waiting).faster, "nothing is shown for another law"
    low, high = np.exp(rows.over_laws(stale).interval)
    assert (round(low, 2), round(high, 2)) == (0.95, 1.19) and rows.over_laws(stale).most, "one run missed its target"
    assert waiting["worker i takes i s"].faster == "denominator"
    ratios = rows.untuned(times)
    assert min(ratios, key=lambda name: ratios[name].value) == "ringmaster" and ratios["ringmaster"].least


@pytest.mark.skipif(not STUDY.measured, reason="the study has not been run: python -m studies.asynchrony")
def test_a_tie_in_the_tuning_goes_to_the_first_system_and_another_choice_is_reported():
    found = rows.ties(STUDY.read()[""])
    assert found["tie_first"] == "rennala" and found["tie_system"] == "asgd"
    assert (found["tie_now"], found["tie_next"], found["tie_seconds"]) == ("0.90", "0.93", "37.33")
