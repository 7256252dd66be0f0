"""The study of asynchrony: every system has as many points, theory keeps its bound, the page shows the measured times."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fred
from fred.base.intervals import Verdict
from studies.asynchrony import page, setup
from studies.asynchrony.page import QUESTIONS, Question, Results
from studies.asynchrony.setup import FIXED, LAWS, POINTS, ROUNDS, STALE, STUDY, SYSTEMS, TASKS, WORKERS, Case
from studies.kit.tuning import REPORTED, search
from studies.kit.tuning import TUNING as TUNING_SEEDS

SECONDS = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=64)
PAIR = Question("sync / asgd", ("sync",), ("asgd",))
MEASURED = pytest.mark.skipif(not STUDY.measured, reason="the study has not been run: python -m studies.asynchrony")


@given(SECONDS, st.floats(0.0, 1000.0))
def test_waiting_for_the_best_m_costs_no_more_than_the_logarithm_that_theory_allows(seconds, noise):
    best = setup.best_time(np.array(seconds), noise)
    best_of_m = min(time * (1 + noise / m) for m, time in enumerate(sorted(seconds), 1))
    assert best <= best_of_m * (1 + 1e-12) and best_of_m <= (1 + math.log(len(seconds))) * best * (1 + 1e-12)


def test_every_system_is_tuned_on_as_many_points():
    for name, system in SYSTEMS.items():
        for values in map(list, system.knobs.values()):
            assert values in (sorted(values), sorted(values, reverse=True)) and len(set(values)) == len(values)
        assert len(search(lambda points: [sum(point) for point in points], system.knobs, POINTS)) == POINTS
        assert WORKERS - max(system.knobs.get("backup_workers", [WORKERS - 2])) == 2, "m = 1 is a system of its own"
        assert name != "ringmaster" or min(system.knobs["threshold"]) == 2
    assert not set(TUNING_SEEDS) & set(REPORTED) and set(ROUNDS) | set(STALE) < set(SYSTEMS)


def test_a_case_has_its_workers_times_and_a_target():
    runs = {"run": SYSTEMS["asgd"].run({"learning_rate": 0.1})}
    for case in itertools.starmap(Case, itertools.product(LAWS, TASKS, (False, True))):
        run = fred.scenario(case.settings(), runs=runs).runs["run"]
        assert run.cluster.size == WORKERS and run.evaluate.target_error == TASKS[case.task].target
        if case.times in FIXED:
            assert [1 / speed for speed in run.cluster.worker_speeds()] == pytest.approx(FIXED[case.times].tolist())
        assert run.stop.seconds and run.evaluate.every_seconds
        assert run.stop.seconds / run.evaluate.every_seconds == pytest.approx(case.looks) and case.looks >= 400
        shorter = case.settings(tuning=True)
        looks = round(case.budget / shorter["evaluate"]["every_seconds"])
        assert shorter["stop"]["seconds"] < run.stop.seconds and looks in (case.looks, case.looks // 4)


@pytest.mark.slow
def test_a_shorter_run_ends_at_the_same_time_and_one_that_misses_counts_as_more_than_its_length():
    case, points = Case("all take 1 s", "little noise", messages=False), [{"learning_rate": 1.47}, {"learning_rate": 0.1}]
    seconds = setup.ends(case, "sync", points, [1])["seconds"].tolist()
    scores = setup.scores(case, "sync", points, [1])[:, 0].tolist()
    assert scores[0] == seconds[0] < case.budget / 2 < scores[1] and seconds[1] == math.inf


def results(**times):
    """Return the results of one case for each pair of times of two systems [seeds]."""
    tables = [
        {"messages": False, "task": "digits", "times": law, "system": system, "tuning_seconds": 1.0, "budget": 10.0}
        | {"seed": seed, "seconds": seconds}
        for law, pair in times.items()
        for system, values in zip(("sync", "asgd"), pair, strict=True)
        for seed, seconds in enumerate(values)
    ]
    return Results(pd.DataFrame(tables))


def test_a_ratio_is_significant_only_where_its_interval_excludes_one_and_both_or_the_slower_reached_the_target():
    slow, fast, never = np.array([2.0, 2.2, 2.4, 2.1, 1.9]), np.ones(5), np.full(5, math.inf)
    late = np.array([math.inf, 1, 1, 1, 1])
    near = np.array([1.0, 1.02, 0.99, 1.01, 1.0])
    pairs = {"clear": (slow, fast), "reverse": (fast, slow), "open": (slow, slow[::-1]), "near": (near, fast)}
    pairs |= {"least": (never, fast), "most": (fast, never), "both": (never, never), "late": (late, 2 * fast)}
    alone = {name: results(**{name: pair}).by_law(PAIR)[name] for name, pair in pairs.items()}
    assert alone["clear"].mean.value == pytest.approx(math.log(math.prod(slow)) / 5)
    verdicts = {name: ratio.lower for name, ratio in alone.items()}
    assert [verdicts[name] for name in ("clear", "reverse", "open")] == [Verdict.NO, Verdict.YES, Verdict.OPEN]
    assert alone["least"].ratio.startswith("**> 10.00") and alone["most"].ratio.startswith("**< 0.10")
    assert alone["both"].ratio == "both missed" and verdicts["late"] == Verdict.OPEN, "it might have been slower still, or not"
    margin = math.log(1.1)
    assert alone["near"].equals_within(margin) == Verdict.YES and alone["clear"].equals_within(margin) == Verdict.NO


def test_the_laws_of_a_column_are_judged_together():
    spread = np.array([0, 0.1, -0.1, 0, 0])
    pairs = {str(mean): (np.exp(mean + spread), np.ones(5)) for mean in (0.1, 1.0, 0.0)}
    alone = [results(**{name: pair}).by_law(PAIR)[name].lower for name, pair in pairs.items()]
    assert alone == [Verdict.NO, Verdict.NO, Verdict.OPEN]
    assert [ratio.lower for ratio in results(**pairs).by_law(PAIR).values()] == [Verdict.OPEN, Verdict.NO, Verdict.OPEN]


@pytest.mark.nightly
@MEASURED
def test_the_page_is_that_of_the_measurements():
    assert STUDY.page.read_text(encoding="utf-8") == page.text(STUDY.read_tables())


@MEASURED
def test_the_main_conclusions_follow_from_the_measurements():
    measured = Results(STUDY.read_tables()[""])
    stale, waiting = QUESTIONS.values()
    means = [measured.over_laws(question) for question in (stale, waiting)]
    assert [mean.lower for mean in means] == [Verdict.OPEN] * 2, "nothing is shown for another law"
    ends = [[round(end, 2) for end in np.exp([mean.mean.value, *mean.interval])] for mean in means]
    assert ends == [[1.06, 0.95, 1.19], [1.16, 0.97, 1.38]] and means[0].bound == "<", "one run missed its target"
    assert measured.by_law(waiting)["worker i takes i s"].lower == Verdict.NO
    assert measured.over_laws(stale, (True,)).lower == Verdict.NO, "stale gradients gain where messages cost"


@MEASURED
def test_a_tie_in_the_tuning_goes_to_the_first_system_and_the_other_choice_changes_no_verdict():
    rows, key = STUDY.read_tables()[""], (True, "much noise", "all take 1 s")
    first, last = Results(rows), Results(rows, last=True)
    assert first.tied(key, QUESTIONS["waiting"].fast) == ["rennala", "asgd", "delay-adaptive", "ringmaster"]
    for question in QUESTIONS.values():
        verdicts = [{law: ratio.lower for law, ratio in some.by_law(question).items()} for some in (first, last)]
        assert verdicts[0] == verdicts[1]
