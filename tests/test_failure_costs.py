"""The study of what a failure costs: systems that are alike, Daly's checkpoints, and a page that follows from the measurements."""

import pandas as pd
import pytest

import fred
from studies.failures import page
from studies.failures.cases import (
    AWAY,
    BASE,
    DETECT,
    HOUR,
    LOAD,
    MEDIUM,
    MOST,
    NONE,
    PAUSE,
    RATES,
    REPAIR,
    SYSTEMS,
    WORKERS,
    rounds_between_checkpoints,
    settings,
)
from studies.failures.compared import costs, costs_less_base, values, work
from studies.failures.measure import CHOSEN, FOUND, GOODPUT
from studies.failures.theory import daly_interval, goodput
from studies.tuning import REPORTED, TUNING

MEASURED = pytest.mark.skipif(not FOUND.is_file(), reason="the study has not been run: python -m studies.failures")
MIDDLE = {name: {key: some[len(some) // 2] for key, some in system.knobs.items()} for name, system in SYSTEMS.items()}


def test_dalys_interval_is_the_best_of_the_closed_form():
    for between in (HOUR, 4 * HOUR, 24 * HOUR):
        best = daly_interval(PAUSE, between)
        shares = [goodput(share * best, PAUSE, between, DETECT + REPAIR, LOAD) for share in (0.8, 1.0, 1.2)]
        assert shares[1] == max(shares)


@pytest.mark.slow
def test_systems_that_are_alike_are_the_same_without_failures():
    """Those whose runs are the same but for their prices need not run."""
    for name, system in SYSTEMS.items():
        if system.alike:
            other = SYSTEMS[system.alike]
            assert system.knobs == other.knobs
            runs = [each.run(MIDDLE[name], NONE) for each in (system, other)]
            if any(runs[0][part] != runs[1][part] for part in ("algorithm", "protocol")):
                short = settings() | {"stop": {"updates": 12}, "evaluate": {"points": 1}}
                result = fred.run(fred.scenario(short, runs=dict(zip(("own", "other"), runs, strict=True))))
                assert result.outcome("own").params_digest == result.outcome("other").params_digest, name


def test_all_systems_have_the_same_law_of_failures_and_the_same_time_without_a_machine():
    for system in SYSTEMS.values():
        cluster = system.cluster(MOST)
        law = cluster["failures"]["causes"][0] if system.stops else cluster["faults"][0]
        assert law["mean_up"] == WORKERS * HOUR
        if not system.stops:
            assert law["away"]["seconds"] == AWAY == DETECT + REPAIR + LOAD
    assert not set(TUNING) & set(REPORTED)


@pytest.mark.slow
@MEASURED
def test_the_page_follows_from_the_tables():
    tables = [pd.read_csv(path) for path in (FOUND, CHOSEN, GOODPUT)]
    assert page.PAGE.read_text(encoding="utf-8") == page.text(*tables)


@MEASURED
def test_every_system_is_measured_at_all_rates_on_all_seeds_and_those_alike_have_the_same_times():
    measured = pd.read_csv(FOUND)
    for name, system in SYSTEMS.items():
        own = measured[measured["system"] == name]
        plain = own[own["tuned"] == "none"]
        assert sorted(plain["hours"].unique()) == sorted(RATES)
        assert all(sorted(rows["seed"]) == list(REPORTED) for _, rows in own.groupby(["tuned", "hours"]))
        assert set(own.loc[own["tuned"] != "none", "hours"]) == {MEDIUM}
        if system.alike:
            times = [values(measured, each, NONE, "target_seconds").tolist() for each in (name, system.alike)]
            assert times[0] == times[1]


@MEASURED
def test_the_goodput_is_dalys():
    long = pd.read_csv(GOODPUT)
    for between in map(float, long["hours"].unique()):
        own = long[long["hours"] == between]
        every = rounds_between_checkpoints(between) * own["round"].iloc[0]
        form = goodput(every, PAUSE, between * HOUR, DETECT + REPAIR, LOAD)
        measured = own["failures_goodput"]
        assert measured.mean() == pytest.approx(form, abs=3 * measured.std() / len(measured) ** 0.5)


@MEASURED
def test_the_conclusion_is_in_the_tables():
    measured = pd.read_csv(FOUND)
    intervals = costs(measured)
    costly = {name for name, each in intervals.items() if each.lower == "no"}
    assert costly == {BASE, "checkpoints, a spare", "local SGD", "elastic, same batch"}
    assert all(each.lower == "open" for name, each in intervals.items() if name not in costly)
    assert sum(each.lower == "open" for each in costs_less_base(measured).values()) == 9
    shares = {name: work(measured, name, MOST) for name in SYSTEMS}
    going_on = [name for name, system in SYSTEMS.items() if system.goes_on]
    assert shares[BASE] < shares["checkpoints, a spare"] < min(shares[name] for name in going_on)
