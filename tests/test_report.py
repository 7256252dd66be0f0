"""Tables in a terminal, cell by cell and at every width; and the answers of `verify` to results that do not come out the same."""

import contextlib
import dataclasses
import io
import json
import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import fred
from fred import FredError, Result
from fred.base import progress
from fred.commands import printing
from fred.outcomes.outcome import Computed
from fred.results import folder, verify
from fred.schedule.schedule import Intervals, What
from fred.views.table import Cell, Table, show, terminal
from tests.folders import resign, resign_manifest, resign_unit
from tests.pages import run_all
from tests.worlds import COMPUTE, TASK, make_run

SLOW: dict[str, Any] = {"workers": 3, "speeds": [1, 1, 0.4]}


def print_result(result: Result) -> tuple[str, list[dict]]:
    """Return the output, and its table: a mapping from heading to cell for each line."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        patch.setenv("COLUMNS", "250")
        printing.print_summary(result, Path("results/here"))
    lines = [re.split(r"\s{2,}", line.strip()) for line in out.getvalue().splitlines()]
    headings = next(cells for cells in lines if cells[0] == "run")
    names = {outcome.name for outcome in result.outcomes}
    return out.getvalue(), [dict(zip(headings, cells, strict=True)) for cells in lines if cells[0] in names]


def replace_losses(result: Result, *losses: list[float], evaluate: dict | None = None, **columns: list) -> Result:
    """The same, if these losses, and errors of half their size, had been measured, for each run and seed."""
    outcomes = []
    for outcome, loss in zip(result.outcomes, losses, strict=True):
        assert isinstance(outcome, Computed)
        updates = 1000 * np.arange(len(loss))
        frame = pd.DataFrame({"updates": updates, "gradients": updates, "virtual_seconds": 0.0015 * updates, "loss": loss})
        frame = frame.assign(error=frame["loss"] / 2, **columns)
        run = make_run(cluster=outcome.run.cluster.model_dump(), evaluate=evaluate or {})
        outcomes.append(dataclasses.replace(outcome, run=run, metrics=frame))
    return Result(result.scenario, outcomes)


@pytest.fixture(scope="module")
def timed() -> Result:
    run = {"task": None, "stop": {"gradients": 30}, "cluster": {"workers": 4, "compute": COMPUTE}}
    return run_all({"only": run}, (1, 2, 3), "A [b]title[/b]")


def test_counts_and_times_of_a_run_that_can_be_counted_by_hand():
    """Two workers make ten rounds in 10.4 s without the third, whose four gradients are dropped: no task, no losses."""
    backup = {"name": "synchronous", "backup_workers": 1}
    runs: dict[str, dict] = {
        "backup": {"cluster": SLOW, "protocol": backup, "stop": {"seconds": 10.4}},
        "many": {"cluster": {"workers": 1200}, "stop": {"gradients": 12_000}},
        "none": {"cluster": SLOW, "stop": {"seconds": 0.5}},
        "clockless": {"cluster": {"workers": 1}, "protocol": "dispatcher", "stop": {"updates": 7}},
    }
    text, table = print_result(run_all({name: {"task": None, **run} for name, run in runs.items()}))
    headings = ("run", "updates", "gradients", "dropped", "virtual s", "staleness, mean / largest")
    mean = f"{(1199 * 600 + 1199 * 10_800) / 12_000:,.0f}"  # the first of each worker: 0, 1, ..., 1199; then 1199
    assert [tuple(row[heading] for heading in headings) for row in table] == [
        ("backup", "10", "20", "4", "10.4", "0 / 0"),
        ("many", "12,000", "12,000", "0", "10", f"{mean} / 1,199"),
        ("none", "0", "0", "0", "0.5", "–"),
        ("clockless", "7", "7", "0", "–", "0 / 0"),
    ]
    assert list(table[0]) == list(headings), "columns in which no run has anything are left out"
    assert "One seed. Staleness is in updates." in text
    assert "runs with one seed: their differences say nothing about other seeds" in " ".join(text.split())
    assert text.startswith("here"), "named after its folder where it has no title"
    assert text.endswith("results: results/here\n")
    _, (row,) = print_result(run_all({"only": {**runs["clockless"], "task": None}}))
    assert list(row) == [heading for heading in headings if heading != "virtual s"]


def test_several_seeds_are_means_with_half_the_range(timed):
    text, (row,) = print_result(replace_losses(timed, [2.0, 0.5], [2.0, 0.25], [2.0, 0.3]))
    assert (row["loss"], row["error"]) == ("0.35 ± 0.12", "0.175 ± 0.062")
    assert "Means over 3 seeds, ± half the range" in text and text.splitlines()[0].rstrip() == "A [b]title[/b]"
    frames = [timed.schedule("only", seed) for seed in (1, 2, 3)]
    stale = [frame[frame["verb"] == "PUSH"]["staleness"] for frame in frames]
    assert row["virtual s"] == f"{sum(frame['time_ns'].iloc[-1] for frame in frames) / 3e9:.4g}"
    mean, largest = row["staleness, mean / largest"].split(" / ")
    assert mean == f"{sum(ages.sum() / len(ages) for ages in stale) / 3:.4g}"
    assert largest == f"{max(ages.max() for ages in stale)}"
    assert "to target" not in row, "nobody asked for one"


def test_the_time_to_a_target_is_the_mean_of_the_seeds_that_reached_it(timed):
    def cell(*losses: list[float], **columns: list) -> str:
        return print_result(replace_losses(timed, *losses, evaluate={"target_loss": 0.5}, **columns))[1][0]["to target"]

    for ends, expected in (([0.9, 0.9, 0.9], "never"), ([0.5, 0.9, 0.9], "3 s (1 of 3)"), ([0.5, 0.2, 0.5], "3 s")):
        assert cell(*([2.0, 1.0, end, 0.4 + end] for end in ends)) == expected
    losses = ([2.0, 1.0, 0.1], [2.0, 0.1, 0.1], [2.0, 1.0, 1.0])
    assert cell(*losses) == "2.25 s (2 of 3)", "the mean of 1.5 and 3 s"
    assert cell(*losses, virtual_seconds=[math.nan] * 3) == "1,500 updates (2 of 3)", "without a clock"


def test_divergence_is_shown_in_the_table_and_explained_below_it(timed):
    text, (row,) = print_result(replace_losses(timed, [2.0, 0.1], [2.0, 1.0, 3.0, math.inf], [2.0, 1.0, math.nan]))
    assert (row["loss"], row["error"]) == ("diverged", "diverged")
    warning = "only diverged: with 2 of 3 seeds its loss is no longer a finite number, first seen after 2,000 updates; try a "
    assert warning in text.replace("\n", " ")


def test_programs_are_counted_as_they_are_compiled(monkeypatch):
    texts: list[str] = []
    monkeypatch.setattr(progress, "show_activity", lambda text: contextlib.nullcontext(texts.append(text)))  # type: ignore[func-returns-value]
    task = {**TASK, "data": {**TASK["data"], "examples": 601}}  # which no other test compiles
    rates = (("asgd", 0.1), ("asgd", 0.2), ("fasgd", 0.1))
    runs = {f"{number}": {"algorithm": {"name": name, "learning_rate": rate}} for number, (name, rate) in enumerate(rates)}
    scenario = fred.scenario(cluster={"workers": 2}, stop={"updates": 5}, task=task, runs=runs, seeds=[1, 2])
    fred.run(scenario)
    assert texts == ["compiling program 1 of about 2", "compiling program 2 of about 2"]
    fred.run(scenario, only="0")
    assert len(texts) == 2, "it is compiled already"
    progress.COMPILED.expect(1)
    with progress.compiling():
        assert texts[2:] == ["compiling"]


@pytest.fixture(scope="module")
def result() -> Result:
    runs: dict[str, dict] = {"learned": {"stop": {"gradients": 12}}, "timed": {"task": None, "stop": {"gradients": 12}}}
    return run_all(runs, (5, 6))


@pytest.fixture(scope="module")
def saved(result, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("saved") / "out"
    folder.save(result, out)
    return out


class TestDifferences:
    def test_the_first_row_fact_or_interval_that_differs_is_written_out(self, result):
        schedule = result.outcome("timed", 5).schedule
        intervals, count = schedule.intervals, len(schedule.intervals.what)
        weights, worker, row = schedule["weight"].copy(), intervals.worker.copy(), schedule.frame().iloc[7]
        weights[[9, 7]], worker[1] = 0.125, 17
        facts_of_row = f"time_ns {row['time_ns']}, verb {row['verb']}, worker {row['worker']}, "
        facts_of_interval = f"what {What(intervals.what[1]).name}, begin_ns {intervals.begin_ns[1]}, "
        for changes, first, begin, old, new in (
            (
                {"columns": {**schedule.columns, "weight": weights}},
                "first at row 7",
                facts_of_row,
                "weight 0.125",
                "weight 1.0",
            ),
            (
                {"intervals": intervals._replace(worker=worker)},
                "rows are the same, intervals differ: first at interval 1",
                *(facts_of_interval, "worker 17", f"worker {intervals.worker[1]}"),
            ),
        ):
            lines = verify.first_difference(dataclasses.replace(schedule, **changes), schedule).splitlines()
            assert lines[0] == first and lines[1].startswith(f"  recorded {begin}")
            assert lines[1].replace("  recorded", "  now     ").replace(old, new) == lines[2]
        facts: dict[str, Any] = {"end_ns": schedule.end_ns + 1, "started": schedule.started + 1, "standstill": "nobody"}
        for fact, value in facts.items():
            difference = verify.first_difference(dataclasses.replace(schedule, **{fact: value}), schedule)
            assert difference == f"rows are the same, `{fact}` differs: recorded {value!r}, now {getattr(schedule, fact)!r}"
        difference = verify.first_difference(dataclasses.replace(schedule, on_servers=range(0)), schedule)
        assert difference == "rows are the same, `on_servers` differs: recorded [0, 0], now [0, 1]"
        fewer = dataclasses.replace(schedule, intervals=Intervals(*(column[:-1] for column in intervals)))
        lengths = f"recorded {count} intervals, now {count - 1}; the first {count - 1} are the same"
        assert verify.first_difference(schedule, fewer) == f"rows are the same, intervals differ: {lengths}"

    def test_the_first_difference_of_outcomes_is_in_timing_arithmetic_metrics_or_summary(self, result):
        now = result.outcome("learned", 5)
        metrics, summary = now.metrics, json.loads(json.dumps(now.summary))
        longer = {name: np.append(column, column[-1:]) for name, column in now.schedule.columns.items()}
        count, rows, schedule = len(metrics), len(now.schedule), dataclasses.replace(now.schedule, columns=longer)
        initial = {**now.initial, "weights": now.initial["weights"] + 1}
        above = {**now.final, "biases": np.nextafter(now.final["biases"], np.float32(9))}
        changed = metrics.assign(error=metrics["error"] + [0, 1e-9, *[0] * (count - 2)])
        lines = [f"{when} {frame.iloc[1].to_dict()}" for when, frame in (("recorded", changed), ("now     ", metrics))]
        arithmetic, evaluations = "arithmetic differs, timing is the same: ", "metrics differ, digests are the same: "
        for changes, difference in (
            ({"schedule": schedule}, f"timing differs: recorded {rows + 1} rows, now {rows}; the first {rows} are the same"),
            ({"schedule_digest": ""}, "timing differs: rows and intervals are the same, but the recorded digest differs"),
            ({"final": above}, f"{arithmetic}first in parameters final/biases"),
            ({"initial": initial}, f"{arithmetic}first in parameters initial/weights"),
            ({"metrics": metrics.iloc[:-1]}, f"{evaluations}recorded {count - 1} evaluations, now {count}"),
            ({"metrics": changed}, f"{evaluations}first at evaluation 1\n  {lines[0]}\n  {lines[1]}"),
            ({"summary": {**summary, "loss": 0.001}}, f"the summary's `loss` differs: recorded 0.001, now {summary['loss']}"),
            ({}, ""),
        ):
            recorded = dataclasses.replace(now)
            vars(recorded).update({"summary": summary, **changes})
            assert verify.difference_of(recorded, now) == difference


class TestVerify:
    @pytest.fixture
    def copy(self, saved, tmp_path, monkeypatch) -> Path:
        """Copy a result, to be damaged; figures of its runs are those of the result, which are not drawn again."""

        @contextlib.contextmanager
        def fake_figures(_: Result, figures: Path) -> Any:
            shutil.copytree(saved / "figures", figures)
            yield

        monkeypatch.setattr("fred.results.folder.figures_drawn", fake_figures)
        return Path(shutil.copytree(saved, tmp_path / "out"))

    @contextlib.contextmanager
    def manifest(self, out: Path) -> Iterator[dict[str, Any]]:
        """Change what the manifest holds in a `with` block, and make the digests fit."""
        content = json.loads((out / "manifest.json").read_text())
        yield content
        (out / "manifest.json").write_text(json.dumps(content))
        resign(out)

    @pytest.mark.slow
    def test_runs_with_and_without_a_task_come_out_the_same_and_progress_is_reported(self, saved):
        reports: list[tuple[str, int, float]] = []
        verdict, text = verify.verify(saved, progress=lambda *report: reports.append(report))
        assert (verdict, text) == (verify.Verdict.SAME, f"{saved}: 4 runs, all digests the same")
        units = [(name, seed) for seed in (5, 6) for name in ("learned", "timed")]  # those with one timing together
        assert list(dict.fromkeys((name, seed) for name, seed, _ in reports)) == units
        assert sum(done == 1.0 for *_, done in reports) >= 4

    @pytest.mark.slow
    def test_whatever_is_forged_next_to_the_digests_is_named(self, copy):
        for name in ("summary.json", "learned/seed-5/metrics.csv", "timed/seed-6/run-times.parquet", "figures/loss.svg"):
            file = copy / name
            content = file.read_bytes()
            if name.endswith("parquet"):
                times = pd.read_parquet(file)
                times.assign(seconds=2 * times["seconds"]).to_parquet(file, index=False)
            else:
                before, last, after = re.split(r"(\d\.\d+)(?!.*\d\.\d)", file.read_text(), maxsplit=1, flags=re.S)
                file.write_text(f"{before}9.9{after}")
                assert last != "9.9"
            for unit_file in copy.glob("*/*/unit.json"):
                resign_unit(unit_file.parent)
            resign_manifest(copy)
            verdict, text = verify.verify(copy)
            assert verdict == verify.Verdict.DIFFERENT, name
            assert text.startswith(f"{name}: differs from the file that the run")
            if name.endswith("csv"):
                assert re.search(r"; first in line \d+\n  recorded .*9\.9.*\n  now      ", text)
            file.write_bytes(content)

    def test_what_is_missing_and_what_does_not_belong_there_is_named(self, copy):
        (copy / "figures" / "loss.svg").rename(copy / "figures" / "gain.svg")
        with self.manifest(copy) as manifest:
            manifest["files"]["figures/gain.svg"] = manifest["files"].pop("figures/loss.svg")
        assert verify.verify(copy) == (verify.Verdict.DIFFERENT, "figures/gain.svg: these runs write no such file")
        with self.manifest(copy) as manifest:
            del manifest["files"]["figures/gain.svg"]
        assert verify.verify(copy) == (verify.Verdict.DIFFERENT, "figures/loss.svg: is missing")

    def test_tables_and_figures_of_other_packages_are_not_compared(self, copy):
        (copy / "figures" / "loss.svg").write_text("another drawing")
        with self.manifest(copy) as manifest:
            manifest["written_by"]["matplotlib"] = "1.0"
        text = f"{copy}: 4 runs, all digests the same; tables and figures, written by matplotlib 1.0, not compared"
        assert verify.verify(copy) == (verify.Verdict.SAME, text)

    def test_another_environment_is_described_whichever_side_knows_more(self, copy):
        with self.manifest(copy) as manifest:
            del manifest["environment"]["numpy"]
            manifest["environment"]["abacus"] = "wood"
        lines = ("  abacus: recorded 'wood', here None", f"  numpy: recorded None, here {np.__version__!r}")
        verdict, text = verify.verify(copy)
        assert verdict == verify.Verdict.SAME  # the bits are, whatever the environment is called
        assert "\n".join(lines) in text

    def test_a_scenario_in_the_manifest_is_checked_like_any_other(self, copy):
        with self.manifest(copy) as manifest:
            manifest["scenario"]["runs"]["timed"]["algorithm"]["learning_rte"] = 1
        message = r"out/manifest\.json: runs\.timed\.algorithm\.learning_rte: unknown key .* did you mean `learning_rate`\?"
        with pytest.raises(FredError, match=message):
            verify.verify(copy)


NUMBERS = st.one_of(
    st.floats(-1e6, 1e6).map("{:,.4g}".format),
    st.integers(0, 10**6).map("{:,}".format),
    st.tuples(st.integers(0, 99), st.integers(0, 9), st.integers(0, 99)).map(lambda n: f"{n[0]} ({n[1]} to {n[2]})"),
)


HEADINGS = ("loss", "gradients per second", "to target", "a-run-with-a-name-of-fifty-six-letters-as-a-sweep-has-them")


@st.composite
def tables(draw) -> Table:
    columns, rows = draw(st.integers(1, 14)), draw(st.integers(1, 12))
    headings = ["run", *(draw(st.sampled_from(HEADINGS)) for _ in range(columns))]
    cells = [[f"run-{row}", *(draw(NUMBERS) for _ in range(columns))] for row in range(rows)]
    return Table(headings, cells, "a title", "a caption")


@given(tables(), st.integers(40, 140))
def test_no_number_is_cut_at_any_width(table, width):
    text = render(table, width)
    assert max(map(len, text.splitlines())) <= width
    for row in table.cells:
        assert row[0].text in text
        for cell in row[1:]:
            for part in cell.text.replace(" (", "\n(").split("\n"):
                assert re.search(rf"(^|\s){re.escape(part)}(\s|$)", text), (part, text)


def test_it_takes_the_first_form_that_fits():
    table = Table(["run", "gradients per second", "loss"], [["a", "12.5 (11.5 to 13.5)", "0.1"], ["b", "9", "0.2"]])
    assert [len(lines(table, width)) for width in (60, 32, 26)] == [4, 4, 6], "whole; intervals below; headings, too"
    assert lines(table, 32)[0].split() == ["run", "gradients", "per", "second", "loss"]
    few = Table(["run", *(f"column {i}" for i in range(9))], [[name, *(f"{i}.25" for i in range(9))] for name in "ab"])
    turned = lines(few, 40)
    assert turned[0].split() == ["run", "a", "b"] and turned[2].split() == ["column", "0", "0.25", "0.25"]
    many = Table(few.columns, [[str(row), *(f"{i}.25" for i in range(9))] for row in range(20)])
    assert [line.split()[0] for line in lines(many, 40)].count("7") == 3, "in three parts, all with the names"


def test_strong_cells_are_bold_only_in_a_terminal():
    table = Table(["run", "loss"], [["a", Cell("0.1", strong=True)]])
    console = Console(width=60, force_terminal=True, color_system="standard")
    with console.capture() as captured:
        show(table, console)
    assert re.search(r"\x1b\[1m *0\.1\x1b\[0m", captured.get()) and "\x1b" not in render(table, 60)


@pytest.mark.parametrize(
    ("variables", "styled"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1", "JPY_PARENT_PID": "7"}, False),  # as Jupyter sets them for `!fred`
    ],
)
def test_a_file_has_colours_only_if_the_user_asks_for_them(variables, styled, monkeypatch, capsys):
    for name in ("FORCE_COLOR", "NO_COLOR", "JPY_PARENT_PID", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TERM", "xterm-color")
    show(Table(["run", "loss"], [["a", "0.1"]], title="Losses"), terminal())
    assert ("\x1b" in capsys.readouterr().out) == styled


def test_columns_without_anything_are_left_out():
    for cells, columns in ((("a", "-"), ["run", "one", "two"]), (("–", ""), ["run", "two"])):
        table = Table(["run", "one", "two"], [["a", cells[0], "1"], ["b", cells[1], "2"]]).without_empty()
        assert list(table.columns) == columns


def test_the_name_of_a_run_is_broken_after_a_comma():
    turned = lines(Table(["run", *"abcdefgh"], [["asgd,learning_rate=0.001", *("0.25" for _ in range(8))]]), 40)
    assert [line.split()[-1] for line in turned[:2]] == ["asgd,", "learning_rate=0.001"]


def render(table: Table, width: int) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        show(table, console)
    return captured.get()


def lines(table: Table, width: int) -> list[str]:
    return [line for line in render(table, width).splitlines() if line.strip()]
