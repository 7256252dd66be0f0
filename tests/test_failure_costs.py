"""The study of what a failure costs: plain runs without failures, Daly's checkpoints, and a page that follows from the measurements."""

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
from studies.failures.measure import CHOSEN, FOUND, GOODPUT, failures
from studies.failures.theory import daly_interval, goodput
from studies.tuning import REPORTED, TUNING

MEASURED = pytest.mark.skipif(not FOUND.is_file(), reason="the study has not been run: python -m studies.failures")
MIDDLE = {name: {key: some[len(some) // 2] for key, some in system.knobs.items()} for name, system in SYSTEMS.items()}


def short(updates: int = 12) -> dict[str, object]:
    return settings() | {"stop": {"updates": updates}, "evaluate": {"points": 1}}


def test_dalys_interval_is_the_best_of_the_closed_form():
    for between in (HOUR, 4 * HOUR, 24 * HOUR):
        best = daly_interval(PAUSE, between)
        shares = [goodput(share * best, PAUSE, between, DETECT + REPAIR, LOAD) for share in (0.8, 1.0, 1.2)]
        assert shares[1] == max(shares)


def test_failures_that_never_strike_leave_the_parameters_of_a_plain_run():
    never = SYSTEMS[BASE].run(MIDDLE[BASE], 1e3)
    plain = SYSTEMS[BASE].run(MIDDLE[BASE], NONE)
    result = fred.run(fred.scenario(short(), runs={"never": never, "plain": plain}))
    assert not len(failures(result.outcome("never").schedule))
    assert result.outcome("never").params_digest == result.outcome("plain").params_digest


def test_a_failure_costs_a_synchronous_job_nothing_but_time():
    own = {name: SYSTEMS[BASE].run(MIDDLE[BASE], between) for name, between in (("failing", 0.5), ("plain", NONE))}
    constant = {"cluster": {"workers": WORKERS, "compute": {"name": "constant", "seconds": 120.0}}}
    result = fred.run(fred.scenario(short(60) | constant, runs=own))
    failing, plain = result.outcome("failing"), result.outcome("plain")
    assert len(failures(failing.schedule)) > 0
    assert failing.params_digest == plain.params_digest
    assert failing.schedule.end_ns > plain.schedule.end_ns


def test_systems_that_are_alike_are_the_same_without_failures():
    for name, system in SYSTEMS.items():
        if system.alike:
            chosen, other = MIDDLE[name], SYSTEMS[system.alike]
            assert system.knobs == other.knobs
            runs = {"own": system.run(chosen, NONE), "other": other.run(chosen, NONE)}
            result = fred.run(fred.scenario(short(), runs=runs))
            assert result.outcome("own").params_digest == result.outcome("other").params_digest, name


def test_all_systems_have_the_same_law_of_failures_and_the_same_time_without_a_machine():
    for system in SYSTEMS.values():
        cluster = system.cluster(MOST)
        law = cluster["failures"]["causes"][0] if system.stops else cluster["faults"][0]
        assert law["mean_up"] == WORKERS * HOUR
        if not system.stops:
            assert law["away"]["seconds"] == AWAY == DETECT + REPAIR + LOAD
    assert not set(TUNING) & set(REPORTED)


@MEASURED
def test_the_page_says_what_was_measured():
    tables = [pd.read_csv(path) for path in (FOUND, CHOSEN, GOODPUT)]
    assert page.PAGE.read_text(encoding="utf-8") == page.text(*tables)


@MEASURED
def test_every_system_is_measured_at_all_rates_on_all_seeds():
    found = pd.read_csv(FOUND)
    for name in SYSTEMS:
        own = found[found["system"] == name]
        plain = own[own["tuned"] == "none"]
        assert sorted(plain["hours"].unique()) == sorted(RATES)
        assert all(sorted(rows["seed"]) == list(REPORTED) for _, rows in own.groupby(["tuned", "hours"]))
        assert set(own.loc[own["tuned"] != "none", "hours"]) == {MEDIUM}


@MEASURED
def test_systems_that_are_alike_have_the_same_times_without_failures():
    found = pd.read_csv(FOUND)
    for name, system in SYSTEMS.items():
        if system.alike:
            own, other = (values(found, each, NONE, "target_seconds") for each in (name, system.alike))
            assert own.tolist() == other.tolist()


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
    found = pd.read_csv(FOUND)
    own = costs(found)
    costly = {name for name, each in own.items() if each.lower == "no"}
    assert costly == {BASE, "checkpoints, a spare", "local SGD", "elastic, same batch"}
    assert all(each.lower == "open" for name, each in own.items() if name not in costly)
    assert sum(each.lower == "open" for each in costs_less_base(found).values()) == 9
    shares = {name: work(found, name, MOST) for name in SYSTEMS}
    going_on = [name for name, system in SYSTEMS.items() if system.goes_on]
    assert shares[BASE] < shares["checkpoints, a spare"] < min(shares[name] for name in going_on)
