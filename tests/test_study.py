"""The study of asynchrony: every system has as many points, theory keeps its bounds, and the page says what was measured."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.asynchrony import page, theory
from studies.asynchrony.cases import FIXED, WORKERS, Case
from studies.asynchrony.compared import ALONE, CASE, FRESH, SYSTEMS, WAITING, Ratio, ratio, together
from studies.asynchrony.measure import TIMES

SECONDS = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=64)


@given(SECONDS, st.floats(0.0, 1000.0))
def test_waiting_for_the_best_m_costs_no_more_than_the_logarithm_that_theory_allows(seconds, noise):
    best, (of_m, m) = theory.best_time(np.array(seconds), noise), theory.best_of_m_sync(np.array(seconds), noise)
    assert best <= of_m * (1 + 1e-12) and of_m <= (1 + math.log(len(seconds))) * best * (1 + 1e-12)
    assert of_m == pytest.approx(sorted(seconds)[m - 1] * (1 + noise / m))


@pytest.mark.parametrize("times", FIXED)
def test_every_system_is_tuned_on_as_many_points_of_the_same_cluster(times):
    scenario = Case(times, "digits", messages=True).scenario()
    points = pd.Series([point.of for point in scenario.points.values()]).value_counts()
    assert set(points.index) == set(SYSTEMS) and set(points) == {48}
    clusters = {run.cluster.model_dump_json() for run in scenario.runs.values()}
    assert len(clusters) == 1
    cluster = next(iter(scenario.runs.values())).cluster
    assert [1 / speed for speed in cluster.worker_speeds()] == pytest.approx(FIXED[times].tolist()) and cluster.size == WORKERS
    assert not set(scenario.seeds) & set(scenario.report_seeds or ())


def test_a_ratio_is_told_only_where_its_interval_excludes_one_and_both_or_the_slower_got_there():
    slow, fast = np.array([2.0, 2.2, 2.4, 2.1, 1.9]), np.ones(5)
    told = Ratio.between(slow, fast, 10.0)
    assert told.logarithm.value == pytest.approx(math.log(math.prod(slow)) / 5) and 0 < told.interval[0] < told.interval[1]
    assert (told.verdict, Ratio.between(fast, slow, 10.0).verdict, Ratio.between(slow, slow[::-1], 10.0).verdict) == (
        "asynchronous",
        "rounds",
        "",
    )
    never = np.full(5, math.inf)
    assert Ratio.between(never, fast, 10.0).said.startswith("**> 10.00") and Ratio.between(fast, never, 10.0).said.startswith(
        "**< 0.10"
    )
    assert Ratio.between(never, never, 10.0).said == "nobody"
    assert Ratio.between(np.array([math.inf, 1, 1, 1, 1]), 2 * fast, 10.0).verdict == "", (
        "it might have been slower still, or not"
    )


def test_the_cases_of_a_column_are_judged_together():
    ratios = [Ratio.between(np.exp([mean, mean + 0.1, mean - 0.1, mean, mean]), np.ones(5), 10.0) for mean in (0.1, 1.0, 0.0)]
    assert [each.verdict for each in ratios] == ["asynchronous", "asynchronous", ""]
    assert [each.verdict for each in together(ratios)] == ["", "asynchronous", ""]


def test_groups_are_represented_by_who_was_the_fastest_on_the_seeds_that_chose():
    rows = [("sync", 5.0, seed, 8.0) for seed in range(5)] + [("m-sync", 6.0, seed, 4.0) for seed in range(5)]
    rows += [("asgd", 3.0, seed, 2.0) for seed in range(5)]
    own = pd.DataFrame(rows, columns=["system", "tuning_seconds", "seed", "seconds"]).assign(budget=100.0)
    assert math.exp(ratio(own, ("sync", "m-sync"), ("asgd",)).logarithm.value) == pytest.approx(4.0), (
        "sync, although m-sync was faster afterwards"
    )
    assert ratio(own, ("m-sync",), ("ringmaster",)).said.startswith("**< 0.04")


@pytest.mark.skipif(not TIMES.is_file(), reason="the study has not been run: python -m studies.asynchrony")
def test_the_page_says_what_was_measured():
    assert page.PAGE.read_text(encoding="utf-8") == page.text(pd.read_csv(TIMES))


@pytest.mark.skipif(not TIMES.is_file(), reason="the study has not been run: python -m studies.asynchrony")
def test_the_conclusions_follow_from_the_tables():
    times = pd.read_csv(TIMES)
    text = " ".join(page.text(times).split())
    cases = dict(list(times.groupby(CASE, sort=False)))
    fresh, rounds = ({key: ratio(own, group, ALONE) for key, own in cases.items()} for group in (FRESH, WAITING))

    def means(found, side):
        return [math.exp(each.logarithm.value) for each in found.values() if each.verdict == side]

    assert f"the largest is {max(means(fresh, 'asynchronous')):.2f}." in text
    widest = max(means(rounds, "asynchronous"))
    assert f"The largest gap is {widest:.1f}: worker i takes i s, much noise, messages cost." in text
    spread = (True, "much noise", "worker i takes i s")
    assert widest == math.exp(rounds[spread].logarithm.value)
    assert f"With Rennala in place of rounds it is {math.exp(fresh[spread].logarithm.value):.2f}." in text
    alike = ("all take 1 s", "half take 1 s, half 10 s", "four of 32 take 20 s, the others 1 s")
    found = [page.families(rounds)[False, "little noise", law] for law in alike]
    assert [each.verdict for each in found] == ["rounds"] * 3
    some = [math.exp(each.logarithm.value) for each in found]
    assert f"{min(some):.2f} to {max(some):.2f} of the time of the best asynchronous method" in text
    _, _, always, median = map(str, next(iter(page.system_rows(times))))
    assert f"It takes {float(median):.1f} times as long as the best in the median" in text
    assert f"misses the target within the budget in {len(cases) - int(always)} cases" in text
