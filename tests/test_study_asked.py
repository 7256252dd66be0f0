"""The study of client selection: valid points, equal tuning, data as described, a page that follows from the measurements."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest

import fred
from fred.base.intervals import Verdict
from studies.asked import page
from studies.asked.page import COMPARED, ROUNDS, Results
from studies.asked.setup import (
    AS_MANY,
    BASE,
    CASES,
    CLIENTS,
    CONTROL,
    LAST,
    POINTS,
    STUDY,
    SYSTEMS,
    Owned,
    kinds,
    of_clients,
    report,
    scores,
)
from studies.kit.comparison import TRIALS, one_setting
from studies.kit.tuning import REPORTED, TUNING, search

MIDDLE = {
    name: {key: options[(len(options) - 1) // 2] for key, options in system.knobs.items()} for name, system in SYSTEMS.items()
}


def test_systems_have_equally_many_points_which_are_valid():
    for name, system in SYSTEMS.items():
        assert len(search(lambda points: [sum(point) for point in points], system.knobs, POINTS)) == POINTS
        points = [{**MIDDLE[name], knob: value} for knob, options in system.knobs.items() for value in options]
        runs = {f"p{place}": system.run(point, "sessions") for place, point in enumerate(points)}
        for run in fred.scenario(CASES["sessions"].settings(), runs=runs).runs.values():
            run.protocol.check(run.cluster)
    assert len(SYSTEMS) == 9, "as the page says"
    assert not set(TUNING) & set(REPORTED)


@pytest.mark.parametrize("system", ["FedBuff", "deadline", "by size", "FedAdam", "FedAsync", "FedCompass"])
@pytest.mark.slow
def test_a_run_has_errors_of_its_clients(system, monkeypatch):
    monkeypatch.setattr("studies.asked.setup.BUDGET", 12.0)
    monkeypatch.setattr("studies.asked.setup.LOOKS", 2)
    row = report("sessions", system, [MIDDLE[system]], [1]).iloc[0]
    assert row["gradients_computed"] >= row["gradients_applied"] > 0
    assert 0 < row["took_part"] <= 1 and 0 < row["client_error"] <= row["worst_error"] <= 1


@pytest.mark.slow
def test_scores_are_times_to_the_target_error_or_more_than_the_length_of_the_run(monkeypatch):
    settings = {"rate": 0.4, "period": 10, "clients": 10}
    result = fred.run(fred.scenario(CASES["even"].settings(), seeds=[1], runs={"own": SYSTEMS[BASE].run(settings, "even")}))
    assert scores("even", BASE, [settings], [1])[0, 0] == result.summary["target_seconds"].iloc[0]
    monkeypatch.setattr("studies.asked.setup.BUDGET", 5.0)
    assert scores("even", BASE, [MIDDLE[BASE]], [1])[0, 0] > 5.0


def test_the_last_clients_have_the_last_digits_and_even_parts_have_all():
    skewed, balanced = (Owned(clients=CLIENTS, concentration=concentration).load(3) for concentration in (0.1, 0.0))
    for data in (skewed, balanced):
        assert data.owners is not None and sorted(set(data.owners.tolist())) == list(range(CLIENTS))
    shares = [float(np.mean(skewed.train.answers[skewed.owners == client] >= LAST)) for client in range(CLIENTS)]
    assert shares == sorted(shares) and shares[0] < 0.05 and shares[-1] > 0.8
    assert min(len(set(balanced.train.answers[balanced.owners == client].tolist())) for client in range(CLIENTS)) >= 8
    assert Owned(clients=CLIENTS, concentration=0.1).load(4).digest != skewed.digest


def test_cases_have_the_same_devices_in_two_orders():
    mixed, ordered = kinds("mixed"), kinds("sorted")
    assert mixed != ordered and sorted(mixed, key=lambda device: -device["speed"]) == ordered
    assert np.std(np.log([device["speed"] for device in ordered])) == pytest.approx(1.0, abs=0.05)
    assert all(device["upload"] == pytest.approx(5e3 * device["speed"], rel=0.01) for device in ordered)
    assert CASES["devices"].settings()["task"]["data"] == CASES["slow-differ"].settings()["task"]["data"]


def test_the_worst_tenth_are_the_clients_with_the_largest_errors():
    clients = pd.DataFrame({"error": np.arange(30) / 100, "gradients": [0] * 3 + [5] * 27})
    assert of_clients(clients) == {"client_error": pytest.approx(0.145), "worst_error": pytest.approx(0.28), "took_part": 0.9}


def test_the_one_setting_is_the_best_of_those_tried_in_all_cases():
    def scores_of(**score: float) -> pd.DataFrame:
        return pd.DataFrame({"settings": list(score), "seed": TUNING[0], "score": list(score.values())})

    assert one_setting({"x": scores_of(a=10.0, b=20.0, c=1.0), "y": scores_of(a=30.0, b=10.0)}) == "b"


@pytest.mark.skipif(not STUDY.measured, reason="the study has not been run: python -m studies.asked")
def test_fedbuff_at_equal_concurrency_has_as_many_clients_at_work_as_the_fastest_rounds_ask():
    tables = STUDY.read_tables()
    results, tuning = Results(tables[""]), tables[TRIALS]
    equal, _ = results.of_concurrency()
    for case in CASES:
        rounds = results.fastest(case, ROUNDS)
        chosen = tuning[(tuning["case"] == case) & (tuning["system"] == rounds) & tuning["chosen"]]
        settings = json.loads(chosen["settings"].iloc[0])
        assert CONTROL.at_work[case] == settings["clients"] + settings.get("spare", 0)
        assert (tuning[(tuning["case"] == case) & (tuning["system"] == AS_MANY)]["seed"] == TUNING[0]).sum() == POINTS
        assert (equal[case].lower == Verdict.YES) == (CASES[case].devices != "alike"), "asynchrony alone is faster"


@pytest.mark.slow
@pytest.mark.skipif(not STUDY.measured, reason="the study has not been run: python -m studies.asked")
def test_the_page_is_that_of_the_measurements_and_its_main_conclusions_follow():
    tables = STUDY.read_tables()
    results, tuning = Results(tables[""]), tables[TRIALS]
    assert STUDY.page.read_text(encoding="utf-8") == page.text(tables)
    for case, system in itertools.product(CASES, SYSTEMS):
        units = tuning[(tuning["case"] == case) & (tuning["system"] == system)]
        assert (units["seed"] == TUNING[0]).sum() == POINTS and units.loc[units["chosen"], "settings"].nunique() == 1
        for way in ("tuned", "one setting"):
            assert len(results.values(case, system, "error", way)) == len(REPORTED)
    assert ("spare", "sessions") in results.failed_tuning(), "as the page says"
    differ = [case for case in CASES if CASES[case].devices != "alike"]
    for case in differ:
        assert results.fastest(case) == "FedBuff" and set(results.as_good(case).values()) == {Verdict.NO}
        assert results.less_fair(case)["spare"].lower == Verdict.YES, "serve the worst tenth better"
    for case in set(CASES) - set(differ):
        assert list(results.as_good(case).values()).count(Verdict.OPEN) > len(COMPARED) / 2, "open which is the fastest"
