"""The study of which clients to ask: valid points, equal tuning, data as described, and a page that follows from the measurements."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest

import fred
from fred.base.over_seeds import Verdict
from fred.specification.loading import Scenario
from studies.asked import page, rows
from studies.asked.cases import CASES, CLIENTS, kinds
from studies.asked.compared import (
    ALWAYS,
    MIXED,
    OTHERS,
    ROUNDS,
    SORTED,
    added_where_slow_differ,
    as_good,
    fastest,
    less_fair,
    sooner,
    values,
    without_rounds,
)
from studies.asked.data import LAST, Owned
from studies.asked.figure import draw
from studies.asked.measure import FOUND, POINTS, TRIED, of_clients, of_system, one_setting, scores
from studies.asked.systems import BASE, SYSTEMS
from studies.tuning import REPORTED, TUNING, search

MEASURED = pytest.mark.skipif(not FOUND.is_file(), reason="the study has not been run: python -m studies.asked")
MIDDLE = {name: {key: some[(len(some) - 1) // 2] for key, some in system.knobs.items()} for name, system in SYSTEMS.items()}


def scenario(case: str, system: str) -> Scenario:
    """Return a scenario with all points of a system."""
    knobs = SYSTEMS[system].knobs
    points = [dict(zip(knobs, each, strict=True)) for each in itertools.product(*knobs.values())]
    return fred.scenario(
        CASES[case].settings(), runs={f"p{place}": SYSTEMS[system].run(each) for place, each in enumerate(points)}
    )


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_point_is_a_valid_run(system):
    runs = scenario("sessions", system).runs.values()
    assert len(runs) == np.prod([len(each) for each in SYSTEMS[system].knobs.values()])
    for run in runs:
        run.protocol.check(run.cluster)


def test_systems_have_equally_many_points():
    for system in SYSTEMS.values():
        assert len(search(lambda some: [sum(each) for each in some], system.knobs, POINTS)) == POINTS
    assert len(SYSTEMS) == 9, "as the page says"
    assert not set(TUNING) & set(REPORTED)


@pytest.mark.parametrize("system", ["deadline", "by size", "FedAdam", "FedBuff", "FedAsync", "FedCompass"])
def test_a_run_has_errors_of_its_clients(system, monkeypatch):
    monkeypatch.setattr("studies.asked.cases.BUDGET", 12.0)
    monkeypatch.setattr("studies.asked.cases.LOOKS", 2)
    found = of_system("sessions", system, {"middle": MIDDLE[system]}, seeds=[1]).iloc[0]
    assert found["gradients_computed"] >= found["gradients_applied"] > 0
    assert 0 < found["took_part"] <= 1 and 0 < found["client_error"] <= found["worst_error"] <= 1


def test_a_run_without_its_target_scores_more_than_its_length(monkeypatch):
    for module in ("cases", "measure"):
        monkeypatch.setattr(f"studies.asked.{module}.BUDGET", 5.0)
    assert scores("even", BASE, [MIDDLE[BASE]], [1])[0, 0] > 5.0


def test_scores_are_times_to_the_target_error():
    case, settings = "even", {"rate": 0.4, "period": 10, "clients": 10}
    plain = fred.run(fred.scenario(CASES[case].settings(), seeds=[1], runs={"own": SYSTEMS[BASE].run(settings)}))
    assert scores(case, BASE, [settings], [1])[0, 0] == plain.summary["target_seconds"].iloc[0]


def test_the_last_clients_have_the_last_digits_and_even_parts_have_all():
    skewed, even = (Owned(clients=CLIENTS, concentration=each).load(3) for each in (0.1, 0.0))
    for data in (skewed, even):
        assert data.owners is not None
        assert sorted(set(data.owners.tolist())) == list(range(CLIENTS))
    shares = [float(np.mean(skewed.train.answers[skewed.owners == each] >= LAST)) for each in range(CLIENTS)]
    assert shares == sorted(shares) and shares[0] < 0.05 and shares[-1] > 0.8
    classes = [len(set(even.train.answers[even.owners == each].tolist())) for each in range(CLIENTS)]
    assert min(classes) >= 8
    assert Owned(clients=CLIENTS, concentration=0.1).load(4).digest != skewed.digest


def test_cases_have_the_same_devices_in_two_orders():
    mixed, ordered = (kinds(each) for each in ("mixed", "sorted"))
    assert mixed != ordered and sorted(mixed, key=lambda each: -each["speed"]) == ordered
    speeds = np.array([each["speed"] for each in ordered])
    assert np.std(np.log(speeds)) == pytest.approx(1.0, abs=0.05)
    assert all(each["upload"] == pytest.approx(5e3 * each["speed"], rel=0.01) for each in ordered)
    data = [CASES[each].settings()["task"]["data"] for each in (MIXED, SORTED)]
    assert data[0] == data[1]


def test_the_worst_tenth_are_the_clients_with_the_largest_errors():
    clients = pd.DataFrame({"error": np.arange(30) / 100, "gradients": [0] * 3 + [5] * 27})
    found = of_clients(clients)
    assert found == {"client_error": pytest.approx(0.145), "worst_error": pytest.approx(0.28), "took_part": 0.9}


def test_the_one_setting_is_the_best_of_those_tried_in_all_cases():
    def tried(**score: float) -> pd.DataFrame:
        return pd.DataFrame({"settings": list(score), "seed": TUNING[0], "score": list(score.values())})

    assert one_setting({"x": tried(a=10.0, b=20.0, c=1.0), "y": tried(a=30.0, b=10.0)}) == "b"


def made_up() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return tables of a study in which FedBuff is fastest, a deadline unfair, and FedAsync misses the target."""
    found, tried = list[dict[str, object]](), list[dict[str, object]]()
    for case, system in itertools.product(CASES, SYSTEMS):
        settings = json.dumps(MIDDLE[system])
        own = {"case": case, "system": system, "settings": settings}
        tried += [own | {"seed": seed, "score": 50.0, "chosen": True, "edges": "rate"} for seed in TUNING]
        for way, seed in itertools.product(("tuned", "one setting"), REPORTED):
            time = {"FedBuff": 20.0, "FedAsync": np.nan}.get(system, 100.0) * (1 + seed / 1000)
            worst = 0.9 if (case, system) == (SORTED, "deadline") else 0.3
            found.append(
                own
                | {"way": way, "seed": seed, "target_seconds": time, "error": 0.2, "client_error": 0.1}
                | {"worst_error": worst + seed / 1000, "took_part": 1.0, "messages_to_servers": 500}
            )
    return pd.DataFrame(found), pd.DataFrame(tried)


def test_verdicts_and_sentences_follow_from_the_tables():
    found, tried = made_up()
    answers = {question: own for question, *own in rows.verdicts(found)}
    assert set(answers["Is FedBuff sooner than the fastest rounds?"]) == {"yes"}
    assert set(answers["Is FedAsync sooner than the fastest rounds?"]) == {"no"}
    assert set(answers["Is `spare` sooner than `uniform`?"]) == {"open"}
    assert dict(zip(CASES, answers["Is `deadline` fairer than `uniform`?"], strict=True))[SORTED] == "no"
    words = page.facts(found)
    assert words["fedbuff_count"] == "yes in 5, no in 0, open in 0" and words["grown_surely"] == "deadline"
    assert words["one_setting"].startswith("FedBuff")
    assert "| `slow-differ` | **FedBuff** | 20 | none | none |" in page.text(found, tried)
    assert len(draw(found).axes) == 2


def test_the_systems_without_rounds_keep_all_clients_at_work():
    assert BASE in ROUNDS and BASE not in OTHERS and ALWAYS == ["FedBuff", "FedAsync", "FedCompass"]


@MEASURED
def test_the_page_says_what_was_measured():
    assert page.PAGE.read_text(encoding="utf-8") == page.text(pd.read_csv(FOUND), pd.read_csv(TRIED, keep_default_na=False))


@MEASURED
def test_every_system_is_tuned_equally_and_measured_in_all_cases():
    found, tried = pd.read_csv(FOUND), pd.read_csv(TRIED, keep_default_na=False)
    for case, system in itertools.product(CASES, SYSTEMS):
        own = tried[(tried["case"] == case) & (tried["system"] == system)]
        assert (own["seed"] == TUNING[0]).sum() == POINTS and own.loc[own["chosen"], "settings"].nunique() == 1
        for way in ("tuned", "one setting"):
            assert len(values(found, case, system, "error", way)) == len(REPORTED)


@MEASURED
def test_the_fastest_of_each_case_is_in_the_first_table():
    found = pd.read_csv(FOUND)
    for case, row in zip(CASES, rows.home(found), strict=True):
        first = fastest(found, case)
        assert row[1] == f"**{first}**" and first not in as_good(found, case)


@MEASURED
def test_the_conclusions_follow_from_the_tables():
    found = pd.read_csv(FOUND)
    differ = [case for case in CASES if CASES[case].devices != "alike"]
    assert len(differ) == 3, "the three such cases"
    for case in differ:
        assert fastest(found, case) == "FedBuff" and set(as_good(found, case).values()) == {Verdict.NO}, "the first table"
        assert less_fair(found, case)["spare"].lower == Verdict.YES, "serve the worst tenth better in all three"
    always = without_rounds(found)
    assert [always["FedBuff", case].lower for case in differ].count(Verdict.YES) == 2, "ahead of the fastest rounds in two"
    assert [sooner(found, case)["spare"].lower for case in differ].count(Verdict.YES) == 2, "faster in two"
    for case in set(CASES) - set(differ):
        assert list(as_good(found, case).values()).count(Verdict.OPEN) > len(OTHERS) / 2, "open which is the fastest"
    grown = added_where_slow_differ(found, "worst_error")
    assert all(each.lower == Verdict.OPEN for each in grown.values()), "open for every system"
