"""The report: what its sentence says, and that every kind of result has a page that needs nothing else."""

import contextlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fred
from fred.base.contents import REPORT as NAME
from fred.base.errors import FredError
from fred.commands.cli import main
from fred.components.input_path import name_alone
from fred.outcomes.spans import KINDS as KINDS_OF_TIME
from fred.outcomes.staleness import of_gradients
from fred.outcomes.tables import Tables
from fred.results.result import Result
from fred.results.verify import Verdict, verify
from fred.specification.text import first_comment
from fred.views import page_curves, page_replay, page_tables, summary_table
from fred.views.page import Circumstances, page
from fred.views.verdict import answer
from fred.views.writing import as_yaml
from tests.conftest import ROOT
from tests.pages import ASGD, BOTH, CLUSTER, KINDS, OUTAGE, TIMED, made, page_of, written

HOSTILE = "</script><script>alert(1)</script>\"'&<b>"


class Loads(HTMLParser):
    """What a page would ask for: addresses in attributes that make a browser load something."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [
            f"{tag} {name}={value}" for name, value in attrs if name in ("src", "href", "srcset", "action", "poster")
        ]


def data_of(text: str) -> dict[str, Any]:
    """Return the data that the page's scripts draw."""
    return json.loads(text.split('id="data">')[1].split("</script>")[0])


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {}


LONG = ("many workers", "learned", "many runs")  # made of the same parts as the others


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in LONG])
def test_a_page_is_the_same_text_each_time(kind, pages):
    assert written(made(kind)) == page_of(kind, pages)


@pytest.mark.parametrize("kind", KINDS)
class TestEveryKind:
    def test_it_has_a_page_with_all_its_parts_that_loads_nothing(self, kind, pages):
        text = page_of(kind, pages)
        assert 10_000 < len(text.encode()) < 2_000_000
        missing = re.findall(r"Not shown: ([^<]*)", text)
        assert missing == (["these runs have no clock: nothing takes time in them."] if kind == "no clock" else [])
        loads = Loads()
        loads.feed(text)
        assert loads.found == []
        assert "@import" not in text
        assert "url(" not in text
        data = data_of(text)
        assert data["curves"]["runs"]
        assert bool(data["replays"]) == (kind != "no clock")
        assert bool(data["sweep"]) == (kind == "sweep")


def test_the_staleness_of_each_timing_is_a_histogram(pages):
    text = page_of("learned", pages)
    (said,) = re.findall(r"<figure><figcaption>([^<]*)</figcaption><svg class=\"histogram\"", text)
    stale = [of_gradients(made("learned").outcome("asgd", seed).schedule) for seed in (1, 2)]
    counts = np.bincount(np.concatenate(stale))
    assert said == f"asgd: mean {np.concatenate(stale).mean():.1f}, max {len(counts) - 1}"
    assert "all seeds together. Staleness 0 throughout: ssgd." in text
    (bars,) = re.findall(r'<path d="M46 102((?:V[\d.]+H[\d.]+)+)V102Z"', text)
    drawn = [102 - float(height) for height in re.findall(r"V([\d.]+)H", bars)]
    assert np.allclose(drawn, 94 * counts / counts.max(), atol=0.06)


ANSWERS = {
    "learned": "asgd reached 70 % error first, after 1.17 s (mean of 2 seeds); 4.7 to 5 times before ssgd over the seeds, too few to decide.",
    "one run": "asgd computed 6.5 gradients per second (1 seed).",
    "no clock": "Nothing was learned or timed: asgd made 20 updates of 20 gradients.",
    "many runs": "run-0 and 23 other runs computed equally many gradients per second, 6.5 (1 seed).",
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_the_sentence_of_runs_that_were_really_done(kind, pages):
    assert f'<p id="answer">{ANSWERS[kind]}</p>' in page_of(kind, pages)


def outcome(name: str, seed: int, **numbers: Any) -> Any:
    """Return an outcome as far as sentences need one: a summary with these numbers, and two evaluations."""
    usual = {"updates": 100, "gradients": {"applied": 100}, "virtual_seconds": 10.0, "throughput": 10.0}
    usual |= {"loss": None, "error": None, "diverged": None, "standstill": None, "target": None}
    summary = {"name": name, "seed": seed, **usual, **numbers}
    metrics = pd.DataFrame({"loss": [2.0, summary["loss"] or np.nan], "error": [0.9, summary["error"] or np.nan]})
    if summary["loss"] is None:
        metrics = metrics[[]]
    return SimpleNamespace(name=name, seed=seed, summary=summary, metrics=metrics, run=SCENARIO.runs["asgd"])


SCENARIO = fred.scenario(**TIMED, algorithm=ASGD)


def told(outcomes: list[Any]) -> str:
    seeds = tuple(dict.fromkeys(each.seed for each in outcomes))
    runs = {each.name: each.run for each in outcomes}
    return answer(Tables(SCENARIO.model_copy(update={"runs": runs, "seeds": seeds}), outcomes))


def reached(name: str, *seconds: float | None, goal: float = 0.12) -> list[Any]:
    """A run that came down to 12 % error after so many seconds with each seed; None: never."""
    return [
        outcome(
            name, seed, loss=0.5, error=0.1, target={"error": goal, "updates": None if when is None else 100, "seconds": when}
        )
        for seed, when in enumerate(seconds)
    ]


def clockless(name: str, *updates: int) -> list[Any]:
    """A run without a clock that came down to 12 % error after so many updates with each seed."""
    targets = ({"error": 0.12, "updates": each, "seconds": None} for each in updates)
    return [outcome(name, seed, loss=0.5, error=0.1, target=each, throughput=None) for seed, each in enumerate(targets)]


def ended(name: str, *errors: float, **more: Any) -> list[Any]:
    return [outcome(name, seed, loss=2 * error, error=error, **more) for seed, error in enumerate(errors)]


def computed(name: str, *throughputs: float) -> list[Any]:
    return [outcome(name, seed, throughput=each) for seed, each in enumerate(throughputs)]


SAID = [
    (
        [*reached("a", 12.0, 10.0, 15.0), *reached("b", 10.0, 8.0, 10.0)],
        "b reached 12 % error first, after 9.33 s (mean of 3 seeds); 1.2 to 1.5 times before a over the seeds, too few to decide.",
    ),
    (
        [*reached("a", 8.0, 12.0), *reached("b", 10.0, 11.0)],
        "a reached 12 % error first on average, after 10 s (mean of 2 seeds), but is indistinguishable from b, "
        "which took 0.92 to 1.2 times as long over the seeds, too few to decide.",
    ),
    ([*reached("a", 8.0), *reached("b", 12.0)], "a reached 12 % error first, after 8 s (1 seed); 1.5 times before b."),
    ([*reached("a", 8.0), *reached("b", 8.0)], "a and b reached 12 % error first, after 8 s (1 seed)."),
    (
        [*reached("a", 8.0, None), *reached("b", 9.0, 9.5)],
        "b reached 12 % error after 9.25 s (mean of 2 seeds), and no other run did with all seeds.",
    ),
    ([*reached("a", 8.0, None), *reached("b", None, None)], "No run reached 12 % error with all seeds; a did with 1 of 2."),
    (
        [*reached("a", None), *ended("b", 0.2, target={"error": 0.12, "updates": None, "seconds": None})],
        "No run reached 12 % error. a ended with the lowest error, 10 % (1 seed); b came next, 10 points above it.",
    ),
    (reached("a", 8.0, 9.0), "a reached 12 % error after 8.5 s (mean of 2 seeds)."),
    (
        [*reached("a", 8.0, 9.0), *reached("b", 2.0, 2.0), *clockless("c", 35, 45)],
        "b reached 12 % error first, after 2 s (mean of 2 seeds); 4 to 4.5 times before a over the seeds, too few to decide, "
        "c, which has no clock, after 40 updates (mean of 2 seeds).",
    ),
    (
        [*reached("a", 8.0), *clockless("c", 35)],
        "a reached 12 % error after 8 s (1 seed), c, which has no clock, after 35 updates (1 seed).",
    ),
    ([*clockless("a", 0), *clockless("b", 0)], "a and b reached 12 % error first, after 0 updates (1 seed)."),
    (
        [*ended("a", 0.10, 0.11), *ended("b", 0.12, 0.16), *ended("c", 0.5, 0.5, diverged=3)],
        "a ended with the lowest error, 10.5 % (mean of 2 seeds); b came next, 2 points to 5 points above it over the seeds, too few to decide. "
        "c diverged.",
    ),
    (
        [*ended("a", 0.10, 0.11), *ended("b", 0.09, 0.16)],
        "a ended with the lowest mean error, 10.5 % (mean of 2 seeds), but is indistinguishable from b: "
        "-1 points to 5 points above it over the seeds, too few to decide.",
    ),
    (ended("a", 0.1), "a ended with error 10 % (1 seed)."),
    (
        [*computed("a", 10.0, 20.0), *computed("b", 20.0, 60.0)],
        "b computed the most gradients per second, 40 (mean of 2 seeds); 2 to 3 times as many as a over the seeds, too few to decide.",
    ),
    (computed("a", 10.0, 20.0), "a computed 15 gradients per second (mean of 2 seeds)."),
    ([outcome("a", 0, standstill="all wait")], "a computed 10 gradients per second (1 seed). a came to a standstill."),
    ([outcome("a", 0, throughput=None)], "Nothing was learned or timed: a made 100 updates of 100 gradients."),
]


@pytest.mark.parametrize(("outcomes", "said"), SAID, ids=range(len(SAID)))
def test_the_sentence_follows_from_the_numbers(outcomes, said):
    assert told(outcomes) == said


def test_with_five_seeds_the_sentence_has_an_interval_and_not_the_range():
    sentence = told([*reached("a", 10.0, 11.0, 9.0, 10.0, 10.5, 9.5), *reached("b", 20.0, 23.0, 17.0, 21.0, 20.5, 19.0)])
    found = re.search(r"([\d.]+) to ([\d.]+) times before b \(95 % interval\)", sentence)
    assert found
    assert 1.8 < float(found[1]) <= 2.0 <= float(found[2]) < 2.2


def test_what_users_name_is_text_and_never_markup():
    scenario = fred.scenario(**TIMED, algorithm=ASGD, title=HOSTILE, comment=f"{HOSTILE}\nmore")
    name = "<img src=x onerror=alert(1)>\"'&<!--<script>"
    outcomes = [each.renamed(name) for each in fred.run(scenario).outcomes]
    result = Result(scenario.model_copy(update={"runs": {name: outcomes[0].run}}), outcomes)
    text = page(result, Circumstances(HOSTILE, {HOSTILE: HOSTILE}))
    assert "<script>alert" not in text
    assert "<img" not in text
    assert "<!--" not in text
    assert text.count("<script") == text.count("</script>") == 3
    assert list(data_of(text)["curves"]["runs"]) == [name]


def test_the_commands_name_the_runs_that_ran(tmp_path):
    scenario = fred.scenario(**TIMED, runs=BOTH)
    assert "fred run scenario.yaml --out ANOTHER" in written(fred.run(scenario))
    only = list(BOTH)[1]
    assert f"fred run scenario.yaml --only {only} --out ANOTHER" in written(fred.run(scenario, only=only))


@pytest.mark.slow
def test_of_very_much_there_is_less_than_two_megabytes():
    """24 runs, all timed differently, of 1,000 workers of different speeds; and one of 100,000 rows."""
    speeds = {f"run-{i}": {"cluster": {"speeds": [1 + (i + 1) * j / 1000 for j in range(1000)]}} for i in range(24)}
    many = {**KINDS["many workers"], "stop": {"updates": 2500}, "runs": speeds}
    long = {**KINDS["many workers"], "stop": {"updates": 50_000}}
    for settings in (many, long):
        result = fred.run(fred.scenario(settings))
        if settings is long:
            assert len(result.outcomes[0].schedule) > 100_000
        text = written(result)
        assert "Not shown" not in text
        assert ("the rest is in manifest.json" in text) == (settings is many)
        assert len(text.encode()) < 2_000_000
        spans = sum(len(each["spans"][0]) for each in data_of(text)["replays"])
        assert spans <= 24_000


class TestCurves:
    def test_they_are_the_mean_and_the_range_over_the_seeds(self):
        result = made("learned")
        drawn = page_curves.curves(result)
        found = drawn["runs"]["ssgd"]["updates"]
        one, other = (result.outcome("ssgd", seed).metrics for seed in (1, 2))
        x = np.array(sorted({*one["updates"], *other["updates"]}))
        both = np.array([np.interp(x, each["updates"], each["error"]) for each in (one, other)])
        assert found["x"] == x.tolist()
        assert np.allclose(found["error"], [both.mean(0), both.min(0), both.max(0)], rtol=1e-4)
        assert list(drawn["axes"]) == [axis for axis in page_curves.AXES if axis not in ("tokens", "cost", "energy_kwh")]

    def test_what_was_sent_grows_to_what_the_summary_counts(self):
        one = made("one run").outcomes[0]
        sent = page_curves.megabytes(one.schedule)
        assert sent[0] == 0
        assert (np.diff(sent) >= 0).all()
        rows = one.schedule.frame()
        last = rows.index[rows["verb"] == "PUSH"][-1]
        assert sent[-1] == pytest.approx(rows["bytes"][: last + 1].sum() / 1e6)

    def test_many_runs_have_fewer_points_each(self, pages):
        assert data_of(page_of("many runs", pages))["curves"]["points"] < 160


class TestReplay:
    def test_it_says_for_each_moment_what_the_spans_say(self):
        result = made("faults")
        (found,) = page_replay.replays(result)
        account = fred.spans(result.outcomes[0].schedule)
        worker, begin, end, kind = found["spans"]
        assert len(worker) == len(account)
        scale = (found["end"] - found["begin"]) * 1e9 / found["ticks"]
        assert np.allclose(np.array(begin) * scale, account["begin_ns"], atol=scale)
        assert np.allclose(np.array(end) * scale, account["end_ns"], atol=scale)
        assert [KINDS_OF_TIME[each] for each in kind] == account["kind"].tolist()

    def test_of_many_workers_and_moments_there_is_a_window(self, pages):
        (found,) = data_of(page_of("many workers", pages))["replays"]
        assert (found["workers"], found["of"]) == (32, 1000)
        assert set(found["spans"][0]) == set(range(32))

    def test_a_window_has_no_more_spans_than_it_may_and_shows_a_late_fault(self):
        late = {**OUTAGE, "begin": 100.0, "end": 101.0}
        scenario = fred.scenario(cluster={**CLUSTER, "faults": [late]}, stop={"seconds": 200}, algorithm=ASGD)
        schedule = fred.run(scenario).outcomes[0].schedule
        account = fred.spans(schedule)
        begin, end = page_replay.window(schedule, account, 200)
        assert 0 < begin < 100e9 < end < 200e9
        assert page_replay.window(schedule, account, len(account)) == (0, schedule.end_ns)


@pytest.mark.slow
class TestTheScenario:
    @pytest.mark.parametrize("file", sorted((ROOT / "scenarios").rglob("*.yaml")), ids=lambda file: file.stem)
    def test_it_is_written_so_that_it_is_read_again(self, file, tmp_path, monkeypatch):
        monkeypatch.chdir(ROOT)
        try:
            scenario = fred.load(file.relative_to(ROOT))
        except FredError as error:
            pytest.skip(f"needs data: {error}")
        for beside in (each for each in file.parent.iterdir() if each.stem == "cluster158"):
            shutil.copy(beside, tmp_path)
        (tmp_path / "again.yaml").write_text(as_yaml(scenario))
        again = fred.load(tmp_path / "again.yaml")
        read, known = (each.model_dump_json(context={"paths": name_alone}) for each in (again, scenario))
        assert read == known

    @pytest.mark.parametrize(
        "comment", ["#1", "# one", "##", "one\n\n# two\n\n\n  three", "one\n", "\n\none", "", "yaml-language-server: $schema=a"]
    )
    def test_its_comment_comes_through_as_it_is(self, comment, tmp_path):
        scenario = fred.scenario(KINDS["one run"], comment=comment)
        (tmp_path / "again.yaml").write_text(as_yaml(scenario))
        assert fred.load(tmp_path / "again.yaml").comment == comment

    def test_lines_of_comment_may_begin_with_a_further_sign(self):
        assert first_comment("# # one\n##\n#\n#### two\n\ntitle: x") == "# one\n#\n\n### two"

    def test_the_comment_with_which_its_file_begins_is_kept(self, tmp_path):
        file = tmp_path / "mine.yaml"
        file.write_text(
            "# Who is\n#   first?\n\n# not this\nalgorithm: {name: asgd, learning_rate: 1}\ncluster: {workers: 2}\nstop: {updates: 3}\n"
        )
        scenario = fred.load(file)
        assert scenario.comment == "Who is\nfirst?"
        assert fred.load(file, ["comment=else"]).comment == "else"
        assert scenario.replace({"seeds": [4]}).comment == scenario.comment
        assert "<p>Who is</p><p>first?</p>" in written(fred.run(scenario))

    @pytest.mark.parametrize("text", ["", "title: one # no\n", "\n\n", "# yaml-language-server: $schema=a.json\n"])
    def test_there_may_be_no_comment(self, text):
        assert first_comment(text) == ""


class TestInAFolder:
    @pytest.fixture
    def file(self, tmp_path, monkeypatch) -> Path:
        monkeypatch.setattr("fred.results.figure_files.drawn", lambda *_: contextlib.nullcontext())
        scenario = tmp_path / "mine.yaml"
        scenario.write_text(as_yaml(fred.scenario(KINDS["one run"])))
        return scenario

    def test_a_run_writes_it_and_verify_makes_the_same(self, file, tmp_path):
        out = tmp_path / "out"
        assert main(["run", str(file), "--out", str(out)]) == 0
        assert NAME in json.loads((out / "manifest.json").read_text())["files"]
        assert verify(out)[0] == Verdict.SAME
        first = (out / "report.html").read_bytes()
        assert main(["run", str(file), "--out", str(out), "--fresh"]) == 0
        assert (out / "report.html").read_bytes() == first

    def test_without_it_the_command_adds_the_same_one(self, file, tmp_path, capsys):
        with_it, without = tmp_path / "one" / "out", tmp_path / "other" / "out"
        assert main(["run", str(file), "--out", str(with_it)]) == 0
        assert main(["run", str(file), "--out", str(without), "--no-report"]) == 0
        assert not (without / "report.html").exists()
        assert main(["report", str(without), "--out", str(tmp_path / "page.html")]) == 0
        assert not (without / "report.html").exists()
        assert main(["report", str(without)]) == 0
        assert capsys.readouterr().out.endswith(f"report: {without / 'report.html'}\n")
        pages = [path.read_bytes() for path in (with_it / "report.html", without / "report.html", tmp_path / "page.html")]
        assert pages[0] == pages[1] == pages[2]
        assert verify(without)[0] == Verdict.SAME

    def test_somebodys_own_file_of_that_name_is_left_alone(self, file, tmp_path, capsys):
        out = tmp_path / "out"
        assert main(["run", str(file), "--out", str(out), "--no-report"]) == 0
        (out / "report.html").write_text("mine")
        assert main(["report", str(out)]) == 2
        assert "is not FRED's" in capsys.readouterr().err
        assert (out / "report.html").read_text() == "mine"

    def test_no_run_is_lost_because_a_page_cannot_be_made(self, file, tmp_path, monkeypatch):
        def broken(*_: Any) -> None:
            raise ArithmeticError("odd <data>")

        for place in (
            "answer",
            "page_curves.curves",
            "page_replay.replays",
            "machines.machines",
            "page_tables.of_runs",
            "as_yaml",
        ):
            monkeypatch.setattr(f"fred.views.page.{place}", broken)
        assert main(["run", str(file), "--out", str(tmp_path / "out")]) == 0
        assert (tmp_path / "out" / "report.html").read_text().count("Not shown: odd &lt;data&gt;.") == 4

    def test_something_else_is_refused_in_a_line(self, tmp_path, capsys):
        assert main(["report", str(tmp_path)]) == 2
        assert "is not a result folder" in capsys.readouterr().err


def test_of_a_sweep_without_a_best_point_the_sentence_says_so():
    never = {"stop": {"updates": 4}, "evaluate": {"target_error": 1e-6}}
    swept = {"over": {"algorithm.learning_rate": [0.1, 0.2]}, "best": "seconds"}
    runs = {"swept": {"sweep": swept}, "plain": {"algorithm": {"name": "ssgd", "learning_rate": 0.1}}}
    task = {"data": "digits", "model": "softmax"}
    scenario = fred.scenario(TIMED | never, task=task, algorithm={"name": "asgd"}, runs=runs)
    said = answer(fred.run(scenario))
    assert said.startswith("No point of swept has a finite target seconds. plain did not reach"), said


def test_an_error_of_parameters_that_are_no_numbers_is_none():
    scenario = fred.scenario(TIMED, task={"data": "digits", "model": "softmax"}, algorithm=ASGD, stop={"updates": 9})
    hot = {"runs.asgd.algorithm.learning_rate": 1e38}
    result = fred.run(scenario.replace(hot))
    assert result.summary[["loss", "error"]].isna().all(axis=None) and result.summary["diverged"].notna().all()
    assert "diverged" in answer(result)


def test_means_that_are_infinite_are_none_and_other_seeds_are_said():
    assert summary_table.cell(pd.DataFrame({"throughput": [1.0, np.inf]}), summary_table.Column("throughput", "")).text == "–"
    nothing = {"bytes": dict.fromkeys(("to_workers", "to_servers", "between_workers"), 0)}
    outcomes = [*ended("a", 0.1, 0.2, **nothing), *ended("b", 0.1, **nothing)]
    assert "Means over 1 to 2 seeds" in page_tables.of_runs(Tables(SCENARIO, outcomes))
