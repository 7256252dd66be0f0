"""The table that a run prints, cell by cell, and what `verify` says of results that do not come out the same."""

import dataclasses
import io
import json
import math
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import fred
from fred.base import progress
from fred.base.errors import FredError
from fred.base.progress import of_runs
from fred.commands import printing
from fred.components import registry
from fred.outcomes.computed import Computed
from fred.outcomes.outcome import digest
from fred.results import experiment, folder, verify
from fred.results.result import Result
from fred.running.execution import execute
from fred.schedule.schedule import Intervals, Schedule, What
from fred.specification import loading
from fred.specification.loading import Scenario
from tests.folders import resigned, resigned_manifest
from tests.worlds import COMPUTE, TASK, make_run

TIMED: dict[str, Any] = {"task": None, "stop": {"gradients": 30}}
SLOW: dict[str, Any] = {"workers": 3, "speeds": [1, 1, 0.4]}


def result_of(runs: dict[str, dict], seeds: tuple[int, ...] = (1,), title: str = "") -> Result:
    """These runs, each with every seed."""
    return experiment.run(Scenario(title=title, seeds=seeds, runs={name: make_run(**run) for name, run in runs.items()}))


def printed(outcome: Result, capsys: pytest.CaptureFixture, out: Path = Path("results/here")) -> tuple[str, list[dict]]:
    """Return the output, and its table: a mapping from heading to cell for each line."""
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "250")
        printing.print_summary(outcome, out)
    text = capsys.readouterr().out
    lines = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    headings = next(cells for cells in lines if cells[0] == "run")
    names = {each.name for each in outcome.outcomes}
    return text, [dict(zip(headings, cells, strict=True)) for cells in lines if cells[0] in names]


def measured(outcome: Result, *points: dict[str, list], evaluate: dict | None = None) -> Result:
    """The same, if these losses and errors had been measured, for each run and seed."""
    outcomes = []
    for each, point in zip(outcome.outcomes, points, strict=True):
        assert isinstance(each, Computed)
        count = len(point["loss"])
        times = {"updates": [1000 * i for i in range(count)], "virtual_seconds": [1.5 * i for i in range(count)]}
        frame = pd.DataFrame({**times, "gradients": times["updates"], "error": point["loss"], **point})
        changed = make_run(cluster=each.run.cluster.model_dump(), evaluate=evaluate or {})
        outcomes.append(dataclasses.replace(each, run=changed, metrics=frame))
    return Result(outcome.scenario, outcomes)


@pytest.fixture(scope="module")
def timed() -> Result:
    """One run without a task, three seeds."""
    return result_of({"only": {**TIMED, "cluster": {"workers": 4, "compute": COMPUTE}}}, (1, 2, 3), "A [b]title[/b]")


def test_counts_and_times_of_a_run_that_can_be_counted_by_hand(capsys):
    """In 10.4 s two workers make ten rounds without the third, whose four gradients are dropped: no task, no losses."""
    backup = {"name": "synchronous", "backup_workers": 1}
    runs: dict[str, dict] = {
        "backup": {"cluster": SLOW, "protocol": backup, "stop": {"seconds": 10.4}},
        "many": {"cluster": {"workers": 1200}, "stop": {"gradients": 12_000}},
        "none": {"cluster": SLOW, "stop": {"seconds": 0.5}},
        "clockless": {"cluster": {"workers": 1}, "protocol": "dispatcher", "stop": {"updates": 7}},
    }
    text, table = printed(result_of({name: {"task": None, **run} for name, run in runs.items()}), capsys)
    assert table == [
        {
            **{"run": "backup", "updates": "10", "gradients": "20", "dropped": "4", "virtual s": "10.4"},
            **{"staleness, mean": "0", "staleness, largest": "0"},
        },
        {  # the first of each worker: 0, 1, ..., 1199; then 1199
            **{"run": "many", "updates": "12,000", "gradients": "12,000", "dropped": "0", "virtual s": "10"},
            **{"staleness, mean": f"{(1199 * 600 + 1199 * 10_800) / 12_000:,.0f}", "staleness, largest": "1,199"},
        },
        {
            **{"run": "none", "updates": "0", "gradients": "0", "dropped": "0", "virtual s": "0.5"},
            **{"staleness, mean": "–", "staleness, largest": "–"},
        },
        {
            **{"run": "clockless", "updates": "7", "gradients": "7", "dropped": "0", "virtual s": "–"},
            **{"staleness, mean": "0", "staleness, largest": "0"},
        },
    ]
    assert "One seed. Staleness is in updates." in text
    assert "runs with one seed: their differences say nothing about other seeds" in " ".join(text.split())
    assert text.startswith("here"), "named after its folder where it has no title"
    assert text.endswith("results: results/here\n")


def test_columns_in_which_nobody_has_anything_are_left_out(capsys):
    _, (row,) = printed(result_of({"only": {**TIMED, "protocol": "dispatcher"}}), capsys)
    assert list(row) == ["run", "updates", "gradients", "dropped", "staleness, mean", "staleness, largest"]


def test_several_seeds_are_means_with_half_the_range(timed, capsys):
    losses = ([2.0, 0.5], [2.0, 0.25], [2.0, 0.3])
    outcome = measured(
        timed, *({"loss": loss, "error": [0.9, error]} for loss, error in zip(losses, (0.1, 0.1, 0.4), strict=True))
    )
    text, (row,) = printed(outcome, capsys)
    assert row["loss"] == "0.35 ± 0.12"
    assert row["error"] == "0.20 ± 0.15"
    assert "Means over 3 seeds, ± half the range" in text
    assert text.splitlines()[0].rstrip() == "A [b]title[/b]"
    seconds, stale, most = [], [], []
    for seed in (1, 2, 3):
        frame = timed.schedule("only", seed)
        pushed = frame[frame["verb"] == "PUSH"]["staleness"].to_list()
        seconds.append(frame["time_ns"].to_list()[-1] / 1e9)
        stale.append(sum(pushed) / len(pushed))
        most.append(max(pushed))
    assert row["virtual s"] == f"{sum(seconds) / 3:.4g}"
    assert (row["staleness, mean"], row["staleness, largest"]) == (f"{sum(stale) / 3:.4g}", f"{max(most)}")
    assert "to target" not in row, "nobody asked for one"


@pytest.mark.parametrize(
    ("ends", "cell"),
    [
        ([0.9, 0.9, 0.9], "never"),
        ([0.5, 0.9, 0.9], "3 s (1 of 3)"),
        ([0.5, 0.2, 0.5], "3 s"),
    ],
)
def test_the_time_to_a_target_is_that_of_the_seeds_that_reached_it(timed, capsys, ends, cell):
    outcome = measured(timed, *({"loss": [2.0, 1.0, end, 0.4 + end]} for end in ends), evaluate={"target_loss": 0.5})
    _, (row,) = printed(outcome, capsys)
    assert row["to target"] == cell


def test_the_time_to_a_target_is_a_mean_and_where_there_is_no_clock_it_is_updates(timed, capsys):
    points: list[dict[str, list]] = [{"loss": [2.0, 0.1]}, {"loss": [2.0, 1.0, 0.1]}, {"loss": [2.0, 1.0, 1.0]}]
    _, (row,) = printed(measured(timed, *points, evaluate={"target_loss": 0.5}), capsys)
    assert row["to target"] == "2.25 s (2 of 3)"  # of 1.5 and 3 s
    clockless = [{**point, "virtual_seconds": [math.nan] * len(point["loss"])} for point in points]
    _, (row,) = printed(measured(timed, *clockless, evaluate={"target_loss": 0.5}), capsys)
    assert row["to target"] == "1,500 updates (2 of 3)"


def test_divergence_is_shown_in_the_table_and_told_below_it(timed, capsys):
    points: list[dict[str, list]] = [{"loss": [2.0, 0.1]}, {"loss": [2.0, 1.0, 3.0, math.inf]}, {"loss": [2.0, 1.0, math.nan]}]
    text, (row,) = printed(measured(timed, *points), capsys)
    assert (row["loss"], row["error"]) == ("diverged", "diverged")
    said = (
        "only diverged: with 2 of 3 seeds its loss is no longer a finite number, first seen after 2,000 updates; try a smaller"
    )
    assert said in text.replace("\n", " ")


def test_what_is_compiled_is_said_once_beside_the_run_that_waits_for_it(monkeypatch):
    said: list[str] = []
    with progress._listening(said.append):
        for seed in (1, 2):
            execute("run", make_run("fasgd", task={**TASK, "batch_size": 3}), seed)
    assert said == ["compiling", ""]
    written = io.StringIO()
    terminal = Console(file=written, force_terminal=True, width=100)
    with progress._on_terminal(terminal, 1) as show:
        show("fasgd, seed 1", 0.0)
        with progress.doing("compiling"):
            time.sleep(0.3)
        written.seek(0)
        assert "fasgd, seed 1, compiling" in written.read()


def test_of_the_programs_of_an_experiment_it_is_said_how_many_there_may_be():
    settings = {"cluster": {"workers": 2, "compute": COMPUTE}, "stop": {"updates": 5}, "task": {**TASK, "batch_size": 2}}
    algorithms = (
        {"name": "asgd", "learning_rate": 0.1},
        {"name": "asgd", "learning_rate": 0.2},
        {"name": "fasgd", "learning_rate": 0.1},
    )
    runs = {f"{number}": {"algorithm": each} for number, each in enumerate(algorithms)}
    said: list[str] = []
    with progress._listening(said.append):
        fred.run(fred.scenario({**settings, "runs": runs, "seeds": [1, 2]}))
    assert said == ["compiling program 1 of about 2", "", "compiling program 2 of about 2", ""]
    with progress._listening(said.append):
        fred.run(fred.scenario({**settings, "runs": {"one": runs["0"]}}))
    assert len(said) == 4, "what is compiled already"


def test_without_a_terminal_there_is_no_progress_bar(capsys):
    with of_runs() as told:
        told("run", 1, 0.0)
        told("run", 1, 1.0)
    assert capsys.readouterr() == ("", "")


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """One run that learned and one that did not, with two seeds."""
    out = tmp_path_factory.mktemp("saved") / "out"
    runs: dict[str, dict] = {"learned": {"stop": {"gradients": 12}}, "timed": {"task": None, "stop": {"gradients": 12}}}
    folder.save(result_of(runs, (5, 6)), out)
    return out


class TestVerify:
    @pytest.fixture
    def copy(self, saved, tmp_path) -> Path:
        """Copy a result, to be damaged."""
        for file in saved.rglob("*.*"):
            to = tmp_path / "out" / file.relative_to(saved)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(file.read_bytes())
        return tmp_path / "out"

    @staticmethod
    def change(out: Path, file: str, change: Any) -> None:
        """Change what a JSON file holds."""
        content = json.loads((out / file).read_text())
        change(content)
        (out / file).write_text(json.dumps(content))

    def test_runs_with_and_without_a_task_come_out_the_same_and_progress_is_told(self, saved):
        told: list[tuple[str, int, float]] = []
        verdict, said = verify.verify(saved, progress=lambda *what: told.append(what))
        assert (verdict, said) == (verify.Verdict.SAME, f"{saved}: 4 runs, all digests the same")
        units = [(name, seed) for seed in (5, 6) for name in ("learned", "timed")]  # those with one timing together
        assert list(dict.fromkeys((name, seed) for name, seed, _ in told)) == units
        assert sum(done == 1.0 for *_, done in told) >= 4

    def test_a_schedule_that_went_on_for_longer_is_told_by_its_number_of_rows(self, copy):
        file = copy / "timed" / "seed-6" / "schedule.parquet"
        schedule = Schedule.load(file)
        longer = {name: np.append(column, column[-1:]) for name, column in schedule.columns.items()}
        changed = dataclasses.replace(schedule, columns=longer)
        changed.save(file)
        self.change(copy, "summary.json", lambda rows: rows[3]["digests"].update(schedule=changed.digest()))
        resigned(copy)
        rows = len(schedule)
        expected = f"timed/seed-6: timing differs: recorded {rows + 1} rows, now {rows}; the first {rows} are the same"
        assert verify.verify(copy) == (verify.Verdict.DIFFERENT, expected)

    def test_the_first_row_that_differs_is_written_out_as_it_was_and_is(self, copy):
        file = copy / "timed" / "seed-5" / "schedule.parquet"
        schedule = Schedule.load(file)
        weights = schedule["weight"].copy()
        weights[[9, 7]] = 0.125
        changed = dataclasses.replace(schedule, columns={**schedule.columns, "weight": weights})
        changed.save(file)
        self.change(copy, "summary.json", lambda rows: rows[2]["digests"].update(schedule=changed.digest()))
        resigned(copy)
        verdict, said = verify.verify(copy)
        assert verdict == verify.Verdict.DIFFERENT
        first, recorded, now = said.splitlines()
        assert first == "timed/seed-5: timing differs: first at row 7"
        row = schedule.frame().iloc[7]
        assert recorded.startswith(f"  recorded time_ns {row['time_ns']}, verb {row['verb']}, worker {row['worker']}, ")
        assert recorded.replace("  recorded", "  now     ").replace("weight 0.125", "weight 1.0") == now

    def test_what_differs_beside_the_rows_is_named(self, copy):
        schedule = Schedule.load(copy / "timed" / "seed-5" / "schedule.parquet")
        changes: dict[str, Any] = {"end_ns": schedule.end_ns + 1, "started": schedule.started + 1, "standstill": "nobody"}
        for fact, value in changes.items():
            now = getattr(schedule, fact)
            said = verify.first_difference(dataclasses.replace(schedule, **{fact: value}), schedule)
            assert said == f"rows are the same, `{fact}` differs: recorded {value!r}, now {now!r}"
        said = verify.first_difference(dataclasses.replace(schedule, on_servers=range(0)), schedule)
        assert said == "rows are the same, `on_servers` differs: recorded [0, 0], now [0, 1]"

    def test_the_first_interval_that_differs_is_written_out_as_it_was_and_is(self, copy):
        schedule = Schedule.load(copy / "timed" / "seed-5" / "schedule.parquet")
        intervals = schedule.intervals
        assert len(intervals.what) > 1
        worker = intervals.worker.copy()
        worker[1] = 17
        changed = dataclasses.replace(schedule, intervals=intervals._replace(worker=worker))
        first, recorded, now = verify.first_difference(changed, schedule).splitlines()
        assert first == "rows are the same, intervals differ: first at interval 1"
        assert recorded.startswith(f"  recorded what {What(intervals.what[1]).name}, begin_ns {intervals.begin_ns[1]}, ")
        assert recorded.replace("  recorded", "  now     ").replace("worker 17", f"worker {intervals.worker[1]}") == now
        fewer = dataclasses.replace(schedule, intervals=Intervals(*(column[:-1] for column in intervals)))
        count = len(intervals.what)
        expected = f"recorded {count} intervals, now {count - 1}; the first {count - 1} are the same"
        assert verify.first_difference(schedule, fewer) == f"rows are the same, intervals differ: {expected}"

    def test_parameters_alone_can_differ(self, copy):
        file = copy / "learned" / "seed-5" / "params.npz"
        with np.load(file) as stored:
            arrays = {name: stored[name] for name in stored.files}
        arrays["final/biases"] = np.nextafter(arrays["final/biases"], np.float32(9))
        np.savez(file, allow_pickle=False, **arrays)
        final = {name.removeprefix("final/"): array for name, array in arrays.items() if name.startswith("final/")}
        self.change(copy, "summary.json", lambda rows: rows[0]["digests"].update(params=digest(final)))
        resigned(copy)
        said = "learned/seed-5: arithmetic differs, timing is the same: first in parameters final/biases"
        assert verify.verify(copy) == (verify.Verdict.DIFFERENT, said)

    def test_initial_parameters_count_too(self, copy):
        file = copy / "learned" / "seed-5" / "params.npz"
        with np.load(file) as stored:
            arrays = {name: stored[name] for name in stored.files}
        np.savez(file, allow_pickle=False, **{**arrays, "initial/weights": arrays["initial/weights"] + 1})
        resigned(copy)
        said = "learned/seed-5: arithmetic differs, timing is the same: first in parameters initial/weights"
        assert verify.verify(copy) == (verify.Verdict.DIFFERENT, said)

    def test_metrics_that_were_changed_are_noticed(self, copy):
        file = copy / "learned" / "seed-6" / "metrics.parquet"
        metrics = pd.read_parquet(file)
        metrics.iloc[:-1].to_parquet(file, index=False)
        resigned(copy)
        verdict, said = verify.verify(copy)
        assert verdict == verify.Verdict.DIFFERENT
        count = len(metrics)
        assert said.startswith("learned/seed-6: metrics differ, digests are the same: ")
        assert said.endswith(f"recorded {count - 1} evaluations, now {count}")
        metrics["error"] += [0, 1e-9, *[0] * (count - 2)]
        metrics.to_parquet(file, index=False)
        resigned(copy)
        assert "the same: first at evaluation 1\n  recorded {'virtual_seconds'" in verify.verify(copy)[1]

    def test_a_forged_summary_is_noticed(self, copy):
        self.change(copy, "summary.json", lambda rows: rows[1].update(loss=0.001))
        resigned(copy)
        verdict, said = verify.verify(copy)
        assert verdict == verify.Verdict.DIFFERENT
        assert said.startswith("learned/seed-6: the summary's `loss` differs: recorded 0.001, now ")

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "name",
        [
            "summary.json",
            "summary.csv",
            "learned/seed-5/metrics.csv",
            "timed/seed-6/run-times.parquet",
            "figures/loss.svg",
            "figures/staleness.svg",
        ],
    )
    def test_whatever_is_forged_beside_the_digests_is_named(self, copy, name):
        file = copy / name
        if name.endswith("parquet"):
            times = pd.read_parquet(file)
            times.assign(seconds=2 * times["seconds"]).to_parquet(file, index=False)
        else:
            text = file.read_text()
            found = re.findall(r"\d\.\d+", text)[-1]
            file.write_text(text[::-1].replace(found[::-1], "9.9"[::-1], 1)[::-1])
        self.sign(copy)
        verdict, said = verify.verify(copy)
        assert verdict == verify.Verdict.DIFFERENT
        assert said.startswith(f"{name}: differs from the file that the run")
        if name.endswith("csv"):
            assert re.search(r"; first in line \d+\n  recorded .*9\.9.*\n  now      ", said)

    def test_what_is_missing_and_what_does_not_belong_there_is_named(self, copy):
        (copy / "figures" / "loss.svg").rename(copy / "figures" / "gain.svg")
        manifest = json.loads((copy / "manifest.json").read_text())
        manifest["files"]["figures/gain.svg"] = manifest["files"].pop("figures/loss.svg")
        (copy / "manifest.json").write_text(json.dumps(manifest))
        self.sign(copy)
        said = "figures/gain.svg: these runs write no such file"
        assert verify.verify(copy) == (verify.Verdict.DIFFERENT, said)
        (copy / "figures" / "gain.svg").unlink()
        del manifest["files"]["figures/gain.svg"]
        (copy / "manifest.json").write_text(json.dumps(manifest))
        self.sign(copy)
        assert verify.verify(copy) == (verify.Verdict.DIFFERENT, "figures/loss.svg: is missing")

    def test_tables_and_figures_of_other_packages_are_not_compared_and_that_is_said(self, copy):
        (copy / "figures" / "loss.svg").write_text("another drawing")
        self.change(copy, "manifest.json", lambda manifest: manifest["written_by"].update(matplotlib="1.0"))
        self.sign(copy)
        said = f"{copy}: 4 runs, all digests the same; tables and figures, written by matplotlib 1.0, not compared"
        assert verify.verify(copy) == (verify.Verdict.SAME, said)

    @pytest.mark.slow
    def test_a_forged_sweep_is_noticed(self, tmp_path):
        sweep = {"over": {"algorithm.learning_rate": [0.1, 0.2]}}
        runs = {"asgd": {"algorithm": "asgd"}}
        task = {"data": {"name": "synthetic-regression", "examples": 50}, "model": "softmax"}
        scenario = loading.scenario(task=task, cluster={"workers": 2}, stop={"updates": 3}, runs=runs, sweep=sweep)
        experiment.run(scenario, out=tmp_path / "out")
        assert verify.verify(tmp_path / "out")[0] == verify.Verdict.SAME
        for name in ("best.csv", "sweep.csv"):
            file = tmp_path / "out" / name
            before = file.read_text()
            file.write_text(before.replace("0.2", "0.3").replace("0.1", "0.4"))
            self.sign(tmp_path / "out")
            verdict, said = verify.verify(tmp_path / "out")
            assert verdict == verify.Verdict.DIFFERENT
            assert said.startswith(f"{name}: differs from the file that the runs write; first in line 2\n")
            file.write_text(before)

    @staticmethod
    def sign(out: Path) -> None:
        """Make the digests fit, but for the units' own summaries, which stay as they are."""
        rows = (out / "summary.json").read_text()
        own = [json.loads((out / row["name"] / f"seed-{row['seed']}" / "unit.json").read_text()) for row in json.loads(rows)]
        (out / "summary.json").write_text(json.dumps([about["summary"] for about in own]))
        resigned(out)
        (out / "summary.json").write_text(rows)
        resigned_manifest(out)

    def test_another_environment_is_described_whichever_side_knows_more(self, copy):
        def change(manifest: dict) -> None:
            manifest["environment"].pop("numpy")
            manifest["environment"]["abacus"] = "wood"

        self.change(copy, "manifest.json", change)
        resigned(copy)
        verdict, said = verify.verify(copy)
        assert verdict == verify.Verdict.CANNOT
        head, *lines = said.splitlines()
        assert head == "the numeric environment differs from the recorded one:"
        assert lines == ["  abacus: recorded 'wood', here None", f"  numpy: recorded None, here {np.__version__!r}"]

    def test_a_scenario_in_the_manifest_is_checked_like_any_other(self, copy):
        def change(manifest: dict) -> None:
            manifest["scenario"]["runs"]["timed"]["algorithm"]["learning_rte"] = 1

        self.change(copy, "manifest.json", change)
        resigned(copy)
        message = r"out/manifest\.json: runs\.timed\.algorithm\.learning_rte: unknown key .* did you mean `learning_rate`\?"
        with pytest.raises(FredError, match=message):
            verify.verify(copy)

    def test_a_users_own_class_needs_its_import_again(self, tmp_path, monkeypatch):
        (tmp_path / "verified_servers.py").write_text("from fred import ASGD\nclass Mine(ASGD):\n    'Mine.'\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(registry, "_importable", {"verified_servers": "verified_servers"})
        registry.allow_import(["verified_servers"])
        own = {"name": "verified_servers:Mine", "learning_rate": 0.1}
        folder.save(result_of({"own": {**TIMED, "algorithm": own}}), tmp_path / "out")
        monkeypatch.setattr(registry, "_importable", {})
        with pytest.raises(FredError, match=r"runs\.own\.algorithm\.name: .*allow it with `--import verified_servers`"):
            verify.verify(tmp_path / "out")
        assert verify.verify(tmp_path / "out", ["verified_servers"])[0] == verify.Verdict.SAME
