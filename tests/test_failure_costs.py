"""The study of what a failure costs: systems that are alike, Daly's checkpoints, and a page that follows from the measurements."""

import pandas as pd
import pytest

import fred
from studies.failures import cases, page
from studies.failures.cases import HOUR, MOST, NONE, SYSTEMS
from studies.failures.measure import CHOSEN, FOUND, GOODPUT
from studies.tuning import REPORTED, TUNING

MEASURED = pytest.mark.skipif(not FOUND.is_file(), reason="the study has not been run: python -m studies.failures")
MIDDLE = {name: {key: values[len(values) // 2] for key, values in system.knobs.items()} for name, system in SYSTEMS.items()}


@pytest.mark.slow
def test_systems_that_are_alike_are_the_same_without_failures():
    """Those whose runs are the same but for their prices need not run."""
    for name, system in SYSTEMS.items():
        if other := SYSTEMS.get(system.alike or ""):
            assert system.knobs == other.knobs
            run, other_run = (candidate.run(MIDDLE[name], NONE) for candidate in (system, other))
            if any(run[part] != other_run[part] for part in ("algorithm", "protocol")):
                short = cases.settings() | {"stop": {"updates": 12}, "evaluate": {"points": 1}}
                result = fred.run(fred.scenario(short, runs={"own": run, "other": other_run}))
                assert result.outcome("own").params_digest == result.outcome("other").params_digest, name


def test_all_systems_have_the_same_law_of_failures_and_the_same_time_without_a_machine():
    for system in SYSTEMS.values():
        cluster = system.cluster(MOST)
        law = cluster["failures"]["causes"][0] if system.stops else cluster["faults"][0]
        assert law["mean_up"] == cases.WORKERS * HOUR
        assert system.stops or law["away"]["seconds"] == cases.AWAY == cases.DETECT + cases.REPAIR + cases.LOAD
    assert not set(TUNING) & set(REPORTED)


@pytest.mark.slow
@MEASURED
def test_the_page_follows_from_the_tables():
    assert page.PAGE.read_text(encoding="utf-8") == page.text(*map(pd.read_csv, (FOUND, CHOSEN, GOODPUT)))
