"""The study of what a failure costs: systems that are alike, Daly's checkpoints, and a page that follows from the measurements."""

import pytest

import fred
from fred.base.intervals import Verdict
from studies.failures import page, setup
from studies.failures.setup import HOUR, MOST, NONE, STUDY, SYSTEMS
from studies.kit.tuning import TUNING

MIDDLE = {name: {key: values[len(values) // 2] for key, values in system.knobs.items()} for name, system in SYSTEMS.items()}


@pytest.mark.slow
def test_systems_that_are_alike_are_the_same_without_failures():
    """Those whose runs are the same are tuned once."""
    for name, system in SYSTEMS.items():
        if other := SYSTEMS.get(system.twin or ""):
            assert system.knobs == other.knobs
            run, other_run = (candidate.run(MIDDLE[name], NONE) for candidate in (system, other))
            if run != other_run:
                short = setup.settings() | {"stop": {"updates": 12}, "evaluate": {"points": 1}}
                result = fred.run(fred.scenario(short, runs={"own": run, "other": other_run}))
                assert result.outcome("own").params_digest == result.outcome("other").params_digest, name


def test_all_systems_have_the_same_law_of_failures_and_the_same_time_without_a_machine():
    for system in SYSTEMS.values():
        cluster = system.cluster(MOST)
        law = cluster["failures"]["causes"][0] if system.stops else cluster["faults"][0]
        assert law["mean_up"] == setup.WORKERS * HOUR
        assert system.stops or law["away"]["seconds"] == setup.OUTAGE == setup.DETECT + setup.REPAIR + setup.LOAD
    assert not set(TUNING) & set(setup.REPORTED)


@pytest.mark.skipif(not STUDY.measured, reason="the study has not been run: python -m studies.failures")
def test_the_page_follows_from_the_tables_and_times_hardly_differ_between_seeds():
    tables = STUDY.read_tables()
    assert STUDY.page.read_text(encoding="utf-8") == page.text(tables)
    assert sorted(page.spreads(tables[""]).values())[len(SYSTEMS) // 2] < 0.1
    less = page.costs_less_base(tables[""])
    assert less["elastic rounds"].lower == less["asynchronous"].lower == Verdict.YES
