"""The report: its sentence, its data, and that every kind of result has a page that loads nothing."""

import contextlib
import json
import re
import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fred
from fred import FredError, Result
from fred.base.disk import REPORT as NAME
from fred.components.input_path import name_alone
from fred.outcomes.tables import Tables
from fred.results.verify import Verdict, verify
from fred.schedule.spans import KINDS as KINDS_OF_TIME
from fred.schedule.staleness import of_gradients
from fred.specification.text import as_yaml, first_comment
from fred.views import page_data, page_tables
from fred.views.page import Circumstances, page
from fred.views.verdict import answer
from tests.conftest import ROOT
from tests.pages import ASGD, CLUSTER, GOAL, KINDS, LEARNED, OUTAGE, PAIR, TIMED, page_of, render_page, result_of
from tests.program import fred_command, refusal
from tests.worlds import mostly_slow

HOSTILE = "</script><script>alert(1)</script>\"'&<b>"


def data_of(text: str) -> dict[str, Any]:
    return json.loads(text.split('id="data">')[1].split("</script>")[0])


@pytest.mark.parametrize("kind", mostly_slow(KINDS, ["learned", "no clock", "sweep", "diverged", "peers"]))
def test_every_kind_of_result_has_a_page_with_all_its_parts_that_loads_nothing(kind):
    text = page_of(kind)
    assert 10_000 < len(text.encode()) < 2_000_000
    missing = re.findall(r"Not shown: ([^<]*)", text)
    assert missing == (["these runs have no clock: nothing takes time in them."] if kind == "no clock" else [])
    tags = re.sub(r"(<script[^>]*>).*?</script>", r"\1", text, flags=re.S)
    assert not re.findall(r"<[^>]*\s(?:src|href|srcset|action|poster)\s*=", tags), "a browser would load it"
    assert "@import" not in text and "url(" not in text
    data = data_of(text)
    present = bool(data["curves"]["runs"]), bool(data["replays"]), bool(data["sweep"])
    assert present == (True, kind != "no clock", kind == "sweep")


def test_the_staleness_of_each_timing_is_a_histogram():
    text = page_of("learned")
    (caption,) = re.findall(r"<figure><figcaption>([^<]*)</figcaption><svg class=\"histogram\"", text)
    stale = np.concatenate([of_gradients(result_of("learned").outcome("asgd", seed).schedule) for seed in (1, 2)])
    counts = np.bincount(stale)
    assert caption == f"asgd: mean {stale.mean():.1f}, max {stale.max()}"
    assert "all seeds together. Staleness 0 throughout: ssgd." in text
    (bars,) = re.findall(r'<path d="M46 102((?:V[\d.]+H[\d.]+)+)V102Z"', text)
    heights = [102 - float(height) for height in re.findall(r"V([\d.]+)H", bars)]
    assert np.allclose(heights, 94 * counts / counts.max(), atol=0.06)


def test_the_sentence_of_runs_that_were_really_done():
    for kind, sentence in {
        "learned": "asgd reached 70 % error first, after 1.17 s (mean of 2 seeds); 4.7 to 5 times before ssgd over the seeds, too few to decide.",
        "one run": "asgd computed 6.5 gradients per second (1 seed).",
        "no clock": "Nothing was learned or timed: asgd made 20 updates of 20 gradients.",
        "many runs": "run-0 and 23 other runs computed equally many gradients per second, 6.5 (1 seed).",
    }.items():
        assert f'<p id="answer">{sentence}</p>' in page_of(kind), kind


SCENARIO = fred.scenario(**TIMED, algorithm=ASGD)


def outcome(name: str, seed: int, **numbers: Any) -> Any:
    """Return an outcome as far as sentences need one: a summary with these numbers, and two evaluations."""
    usual = {"updates": 100, "gradients": {"applied": 100}, "virtual_seconds": 10.0, "throughput": 10.0}
    usual |= {"loss": None, "error": None, "diverged": None, "standstill": None, "target": None}
    summary = {"name": name, "seed": seed, **usual, **numbers}
    metrics = pd.DataFrame({"loss": [2.0, summary["loss"] or np.nan], "error": [0.9, summary["error"] or np.nan]})
    metrics = metrics if summary["loss"] is not None else metrics[[]]
    return SimpleNamespace(name=name, seed=seed, summary=summary, metrics=metrics, run=SCENARIO.runs["asgd"])


def sentence_of(outcomes: list[Any]) -> str:
    seeds = tuple(dict.fromkeys(record.seed for record in outcomes))
    runs = {record.name: record.run for record in outcomes}
    return answer(Tables(SCENARIO.model_copy(update={"runs": runs, "seeds": seeds}), outcomes))


def reached(name: str, *seconds: float | None) -> list[Any]:
    """A run that came down to 12 % error after these seconds, seed by seed; None: never."""
    targets = [{"error": 0.12, "updates": None if when is None else 100, "seconds": when} for when in seconds]
    return [outcome(name, seed, loss=0.5, error=0.1, target=target) for seed, target in enumerate(targets)]


def clockless(name: str, *updates: float) -> list[Any]:
    """A run without a clock that came down to 12 % error after these updates."""
    targets = [{"error": 0.12, "updates": number, "seconds": None} for number in updates]
    return [outcome(name, seed, loss=0.5, error=0.1, target=target, throughput=None) for seed, target in enumerate(targets)]


def finished_runs(name: str, *errors: float, **fields: Any) -> list[Any]:
    return [outcome(name, seed, loss=2 * error, error=error, **fields) for seed, error in enumerate(errors)]


def computed(name: str, *throughputs: float) -> list[Any]:
    return [outcome(name, seed, throughput=throughput) for seed, throughput in enumerate(throughputs)]


MISSED = {"error": 0.12, "updates": None, "seconds": None}
SENTENCES = """
reached a 12 10 15, reached b 10 8 10 -> b reached 12 % error first, after 9.33 s (mean of 3 seeds); 1.2 to 1.5 times before a over the seeds, too few to decide.
reached a 8 12, reached b 10 11 -> a reached 12 % error first on average, after 10 s (mean of 2 seeds), but is indistinguishable from b, which took 0.92 to 1.2 times as long over the seeds, too few to decide.
reached a 8, reached b 12 -> a reached 12 % error first, after 8 s (1 seed); 1.5 times before b.
reached a 8, reached b 8 -> a and b reached 12 % error first, after 8 s (1 seed).
reached a 8 -, reached b 9 9.5 -> b reached 12 % error after 9.25 s (mean of 2 seeds), and no other run did with all seeds.
reached a 8 -, reached b - - -> No run reached 12 % error with all seeds; a did with 1 of 2.
reached a -, missed b 0.2 -> No run reached 12 % error. a ended with the lowest error, 10 % (1 seed); b came next, 10 points above it.
reached a 8 9, reached b 2 2, clockless c 35 45 -> b reached 12 % error first, after 2 s (mean of 2 seeds); 4 to 4.5 times before a over the seeds, too few to decide, c, which has no clock, after 40 updates (mean of 2 seeds).
clockless a 0, clockless b 0 -> a and b reached 12 % error first, after 0 updates (1 seed).
ended a 0.10 0.11, ended b 0.12 0.16, diverged c 0.5 0.5 -> a ended with the lowest error, 10.5 % (mean of 2 seeds); b came next, 2 points to 5 points above it over the seeds, too few to decide. c diverged.
ended a 0.10 0.11, ended b 0.09 0.16 -> a ended with the lowest mean error, 10.5 % (mean of 2 seeds), but is indistinguishable from b, which ended between 1 points below and 5 points above it over the seeds, too few to decide.
ended a 0.1 -> a ended with error 10 % (1 seed).
computed a 10 20, computed b 20 60 -> b computed the most gradients per second, 40 (mean of 2 seeds); 2 to 3 times as many as a over the seeds, too few to decide.
computed a 10 20 -> a computed 15 gradients per second (mean of 2 seeds).
"""


def test_the_sentence_follows_from_the_numbers():
    kinds: dict[str, Any] = {"reached": reached, "clockless": clockless, "ended": finished_runs, "computed": computed}
    kinds |= {"missed": partial(finished_runs, target=MISSED), "diverged": partial(finished_runs, diverged=3)}
    for row in SENTENCES.strip().splitlines():
        runs, sentence = row.split(" -> ")
        outcomes = []
        for kind, name, *numbers in map(str.split, runs.split(",")):
            outcomes += kinds[kind](name, *(None if number == "-" else float(number) for number in numbers))
        assert sentence_of(outcomes) == sentence
    standstill_text = "a computed 10 gradients per second (1 seed). a came to a standstill."
    assert sentence_of([outcome("a", 0, standstill="all wait")]) == standstill_text


def test_with_five_seeds_the_sentence_has_an_interval_and_not_the_range():
    sentence = sentence_of([*reached("a", 10.0, 11.0, 9.0, 10.0, 10.5, 9.5), *reached("b", 20.0, 23.0, 17.0, 21.0, 20.5, 19.0)])
    ((low, high),) = re.findall(r"([\d.]+) to ([\d.]+) times before b \(95 % interval\)", sentence)
    assert 1.8 < float(low) <= 2.0 <= float(high) < 2.2


def test_the_sentence_says_that_a_sweep_has_no_best_point():
    swept = {"over": {"algorithm.learning_rate": [0.1, 0.2]}, "best": "seconds"}
    runs = {"swept": {"sweep": swept}, "plain": {"algorithm": {**ASGD, "name": "ssgd"}}}
    never = {**LEARNED, "evaluate": {**GOAL, "target_error": 1e-6}, "algorithm": {"name": "asgd"}, "runs": runs, "seeds": [1]}
    sentence = answer(fred.run(fred.scenario(never)))
    assert sentence.startswith("plain did not reach"), sentence
    assert sentence.endswith("No point of swept has a finite target seconds."), sentence


def test_the_sentence_of_a_sweep_first_answers_and_then_names_the_best_points():
    first, second = answer(result_of("sweep")).split(". ", 1)
    assert re.match(r"asgd,workers=5,servers=\d computed the most gradients per second", first)
    assert re.fullmatch(
        r"The best of each run's points, 12 in all, by the highest throughput: "
        r"asgd with workers \d, servers \d; ssgd with workers \d, servers \d\.",
        second,
    ), second


def test_the_page_of_a_sweep_shows_the_best_points_and_folds_the_others(monkeypatch):
    result = result_of("sweep")
    tables = page_of("sweep").split('id="h-tables"')[1]
    first, folded = tables.split("<details><summary>All points</summary>")
    assert re.findall(r'<th scope="row">(.*?)</th>', first.replace("<wbr>", "")) == result.best["point"].tolist()
    assert folded.split("</details>")[0].count('<th scope="row">') == len(result.sweep) == 12
    assert page_of("sweep").index("<summary>All points") > page_of("sweep").index("servers")
    assert "All 12 points" not in page_of("sweep")
    monkeypatch.setattr("fred.views.page._FOLDED", 11)
    assert "<details><summary>All 12 points</summary><div" in render_page(result)


def test_the_lines_of_a_sweep_are_named_by_the_settings_that_they_have():
    runs = {"plain": {"sweep": {"over": {"cluster.workers": [2, 3]}}}, "two": {"sweep": {"over": {"cluster.servers": [1, 2]}}}}
    sweep = page_data.sweep(fred.run(fred.scenario({**TIMED, "algorithm": ASGD, "runs": runs})))
    assert sweep is not None and list(sweep["runs"]) == ["plain"]


def test_the_table_of_differences_has_a_heading_and_a_title_breaks_before_numbers():
    assert re.search(r"<h3>Compared with asgd, seed by seed</h3>\s*<div", page_of("learned"))
    text = render_page(fred.run(fred.scenario({**TIMED, "algorithm": ASGD, "title": "16 workers, 4 of them slow"})))
    assert "<h1>16\N{NO-BREAK SPACE}workers, 4\N{NO-BREAK SPACE}of\N{NO-BREAK SPACE}them slow</h1>" in text


def test_parameters_that_are_no_numbers_have_no_error():
    result = result_of("diverged")
    fast = result.summary[result.summary["name"] == "fast"]
    assert fast[["loss", "error"]].isna().all(axis=None) and fast["diverged"].notna().all()
    assert "fast diverged" in answer(result)


def test_infinite_means_are_left_empty_and_unequal_numbers_of_seeds_are_named():
    assert page_tables.cell(pd.DataFrame({"throughput": [1.0, np.inf]}), "throughput").text == "–"
    nothing = {"bytes": dict.fromkeys(("to_workers", "to_servers", "between_workers"), 0)}
    outcomes = [*finished_runs("a", 0.1, 0.2, **nothing), *finished_runs("b", 0.1, **nothing)]
    assert "Means over 1 to 2 seeds" in page_tables.of_runs(Tables(SCENARIO, outcomes))


def test_what_users_name_is_text_and_never_markup():
    scenario = fred.scenario(**TIMED, algorithm=ASGD, title=HOSTILE, comment=f"{HOSTILE}\nmore")
    name = "<img src=x onerror=alert(1)>\"'&<!--<script>"
    outcomes = [result.renamed(name) for result in fred.run(scenario).outcomes]
    result = Result(scenario.model_copy(update={"runs": {name: outcomes[0].run}}), outcomes)
    text = page(result, Circumstances(HOSTILE, {HOSTILE: HOSTILE}))
    assert not [markup for markup in ("<script>alert", "<img", "<!--") if markup in text]
    assert text.count("<script") == text.count("</script>") == 3
    assert list(data_of(text)["curves"]["runs"]) == [name]


def test_the_commands_name_the_runs_that_ran():
    assert "fred run scenario.yaml --out ANOTHER" in page_of("no task")
    only = list(PAIR)[1]
    text = render_page(fred.run(fred.scenario(KINDS["no task"]), only=only))
    assert f"fred run scenario.yaml --only {only} --out ANOTHER" in text


@pytest.mark.slow
def test_of_very_much_there_is_less_than_two_megabytes():
    """Nine runs, all timed differently, of 1,000 workers of different speeds; and one of 50,000 rows."""
    speeds = {f"run-{i}": {"cluster": {"speeds": [1 + (i + 1) * j / 1000 for j in range(1000)]}} for i in range(9)}
    large: dict[str, Any] = {**KINDS["many workers"], "cluster": {**CLUSTER, "workers": 1000, "nodes": 40}}
    for updates, runs in ((2500, {"runs": speeds}), (25_000, {})):
        result = fred.run(fred.scenario({**large, "stop": {"updates": updates}, **runs}))
        assert len(result.outcomes[0].schedule) > 2 * updates
        text = render_page(result)
        assert "Not shown" not in text
        assert ("the rest is in manifest.json" in text) == bool(runs)
        assert len(text.encode()) < 2_000_000
        assert sum(len(replay["spans"][0]) for replay in data_of(text)["replays"]) <= 24_000


class TestCurves:
    def test_they_are_the_mean_and_the_range_over_the_seeds(self):
        result = result_of("learned")
        curves = page_data.curves(result)
        curve = curves["runs"]["ssgd"]["updates"]
        tables = [result.outcome("ssgd", seed).metrics for seed in (1, 2)]
        x = np.unique(np.concatenate([metrics["updates"] for metrics in tables]))
        errors = np.array([np.interp(x, metrics["updates"], metrics["error"]) for metrics in tables])
        assert curve["x"] == x.tolist()
        assert np.allclose(curve["error"], [errors.mean(0), errors.min(0), errors.max(0)], rtol=1e-4)
        assert list(curves["axes"]) == [axis for axis in page_data.AXES if axis not in ("tokens", "cost", "energy_kwh")]

    def test_what_was_sent_grows_to_what_the_summary_counts(self):
        schedule = result_of("one run").outcomes[0].schedule
        sent, rows = page_data.megabytes(schedule), schedule.frame()
        assert sent[0] == 0 and (np.diff(sent) >= 0).all()
        last = rows.index[rows["verb"] == "PUSH"][-1]
        assert sent[-1] == pytest.approx(rows["bytes"][: last + 1].sum() / 1e6)


class TestReplay:
    def test_it_says_for_each_moment_what_the_spans_say(self):
        (replay,) = page_data.replays(result_of("faults"))
        account = fred.spans(result_of("faults").outcomes[0].schedule)
        worker, *ends, kind = replay["spans"]
        assert worker == account["worker"].tolist()
        scale = (replay["end"] - replay["begin"]) * 1e9 / replay["ticks"]
        assert np.allclose(np.array(ends) * scale, account[["begin_ns", "end_ns"]].T, atol=scale)
        assert [KINDS_OF_TIME[number] for number in kind] == account["kind"].tolist()

    def test_of_many_workers_there_are_the_first_and_many_runs_have_fewer_points(self):
        assert data_of(page_of("many runs"))["curves"]["points"] < 160
        (replay,) = data_of(page_of("many workers"))["replays"]
        assert (replay["workers"], replay["of"], {*replay["spans"][0]}) == (32, 300, {*range(32)})

    def test_a_window_has_no_more_spans_than_it_may_and_shows_a_late_fault(self):
        late = {**OUTAGE, "begin": 100.0, "end": 101.0}
        scenario = fred.scenario(cluster={**CLUSTER, "faults": [late]}, stop={"seconds": 200}, algorithm=ASGD)
        schedule = fred.run(scenario).outcomes[0].schedule
        account = fred.spans(schedule)
        begin, end = page_data.window(schedule, account, 200)
        assert 0 < begin < 100e9 < end < 200e9
        assert page_data.window(schedule, account, len(account)) == (0, schedule.end_ns)


class TestTheScenario:
    @pytest.mark.slow
    def test_it_is_written_so_that_it_is_read_again(self, tmp_path, monkeypatch):
        monkeypatch.chdir(ROOT)
        files = sorted((ROOT / "scenarios").rglob("*.yaml"))
        for companion in {path for file in files for path in file.parent.iterdir() if path.stem == "cluster158"}:
            shutil.copy(companion, tmp_path)
        without_data = []
        for file in files:
            try:
                scenario = fred.load(file.relative_to(ROOT))
            except FredError:
                without_data.append(file)
                continue
            (tmp_path / "again.yaml").write_text(as_yaml(scenario))
            scenarios = fred.load(tmp_path / "again.yaml"), scenario
            assert len({scenario.model_dump_json(context={"paths": name_alone}) for scenario in scenarios}) == 1, file
        assert len(without_data) < len(files) / 4, without_data

    def test_its_comment_comes_through_as_it_is(self, tmp_path):
        comments = "#1", "# one", "##", "one\n\n# two\n\n\n  three", "one\n", "\n\none", "", "yaml-language-server: $schema=a"
        for comment in comments:
            (tmp_path / "again.yaml").write_text(as_yaml(fred.scenario(KINDS["one run"], comment=comment)))
            assert fred.load(tmp_path / "again.yaml").comment == comment

    def test_its_comment_is_what_its_file_begins_with_unless_another_one_is_set(self, tmp_path):
        assert first_comment("# # one\n##\n#\n#### two\n\ntitle: x") == "# one\n#\n\n### two"
        for text in ("", "title: one # no\n", "\n\n", "# yaml-language-server: $schema=a.json\n"):
            assert first_comment(text) == "", text
        file = tmp_path / "mine.yaml"
        file.write_text(f"# Who is\n#   first?\n\n# not this\n{as_yaml(fred.scenario(KINDS['one run']))}")
        scenario = fred.load(file)
        assert scenario.comment == "Who is\nfirst?"
        assert fred.load(file, ["comment=else"]).comment == "else"
        assert scenario.replace({"seeds": [4]}).comment == scenario.comment
        assert "<p>Who is</p><p>first?</p>" in render_page(fred.run(scenario))


class TestInAFolder:
    @pytest.fixture
    def file(self, tmp_path, monkeypatch) -> Path:
        monkeypatch.setattr("fred.results.folder.figures_drawn", lambda *_: contextlib.nullcontext())
        scenario = tmp_path / "mine.yaml"
        scenario.write_text(as_yaml(fred.scenario(KINDS["no task"])))
        return scenario

    @pytest.mark.slow
    def test_a_run_writes_it_and_verify_and_the_command_make_the_same(self, file, tmp_path):
        out, plain_out, elsewhere = tmp_path / "one" / "out", tmp_path / "other" / "out", tmp_path / "page.html"
        assert fred_command("run", file, "--out", out).code == 0
        assert NAME in json.loads((out / "manifest.json").read_text())["files"]
        assert verify(out)[0] == Verdict.SAME
        first = (out / NAME).read_bytes()
        assert fred_command("run", file, "--out", out, "--fresh").code == 0
        assert (out / NAME).read_bytes() == first
        assert fred_command("run", file, "--out", plain_out, "--no-report").code == 0
        assert fred_command("report", plain_out, "--out", elsewhere).code == 0
        assert not (plain_out / NAME).exists()
        assert fred_command("report", plain_out).out.endswith(f"report: {plain_out / NAME}\n")
        assert (plain_out / NAME).read_bytes() == elsewhere.read_bytes() == first
        assert verify(plain_out)[0] == Verdict.SAME

    def test_a_users_own_file_of_that_name_and_another_folder_are_refused(self, file, tmp_path):
        out = tmp_path / "out"
        assert fred_command("run", file, "--out", out, "--no-report").code == 0
        (out / NAME).write_text("mine")
        assert "is not FRED's" in refusal("report", out)
        assert (out / NAME).read_text() == "mine"
        assert "is not a result folder" in refusal("report", tmp_path)

    def test_no_run_is_lost_because_a_page_cannot_be_made(self, file, tmp_path, monkeypatch):
        def broken(*_: Any) -> None:
            raise ArithmeticError("odd <data>")

        parts = ("answer", "page_data.curves", "page_data.replays", "machines.machines", "page_tables.of_runs", "as_yaml")
        for part in parts:
            monkeypatch.setattr(f"fred.views.page.{part}", broken)
        assert fred_command("run", file, "--out", tmp_path / "out").code == 0
        assert (tmp_path / "out" / NAME).read_text().count("Not shown: odd &lt;data&gt;.") == 4
