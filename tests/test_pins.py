"""Pins: a run differs from its pin exactly if its bits differ, and the message says where; the plugin in a project of its own."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fred
from fred.base import environment
from fred.base.errors import FredError
from fred.outcomes.outcome import Computed
from fred.results.pins import Comparison, Words, compare_with_pin, write_pin
from fred.results.result import Result
from fred.results.verify import first_difference
from tests.conftest import ROOT
from tests.worlds import COMPUTE, TASK

pytest_plugins = ["pytester"]
WORDS = Words("mine.json", "UPDATE", "FIRST")
BASE: dict[str, Any] = {"cluster": {"workers": 4, "compute": COMPUTE}, "algorithm": {"name": "asgd", "learning_rate": 0.1}}


def run(updates: int = 60, **options: Any) -> Result:
    """Return a result of one run, without learning unless options say otherwise."""
    return fred.run(fred.scenario(BASE, stop={"updates": updates}, **options))


def replace_parts(result: Result, **parts: Any) -> Result:
    """Return a result of one run with other parts."""
    outcome = result.outcomes[0]
    assert isinstance(outcome, Computed)
    return dataclasses.replace(result, outcomes=[dataclasses.replace(outcome, **parts)])


def delay_row(result: Result, row: int) -> Result:
    """Return a result in which one row takes place 1 ns later."""
    schedule = result.outcomes[0].schedule
    columns = {**schedule.columns, "time_ns": schedule["time_ns"] + (np.arange(len(schedule)) == row)}
    return replace_parts(result, schedule=dataclasses.replace(schedule, columns=columns))


def edit(file: Path, *keys: str, value: Any) -> None:
    """Change one value of a pin."""
    content = json.loads(file.read_text())
    part = content
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = value
    file.write_text(json.dumps(content))


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / "pins" / "mine.json"


def compare(file: Path, result: Result, tolerance: float = 0.01) -> Comparison:
    return compare_with_pin(file, result, WORDS, tolerance)


@pytest.mark.parametrize("seed", range(3))
def test_a_pin_is_of_about_1_kb_and_holds_for_each_repetition_and_no_other_seed(file, seed):
    assert write_pin(file, run(600, seeds=[seed]), WORDS) and not write_pin(file, run(600, seeds=[seed]), WORDS)
    assert file.stat().st_size < 1024 and [path.name for path in file.parent.iterdir()] == ["mine.json"]
    assert compare(file, run(600, seeds=[seed])) == (True, "")
    unchanged, text = compare(file, run(600, seeds=[seed + 1]))
    assert not unchanged and text.splitlines()[1:3] == [
        f"asgd/seed-{seed}: pinned, but not run",
        f"asgd/seed-{seed + 1}: run, but not pinned",
    ]


def test_a_difference_in_timing_names_the_rows_among_which_verify_finds_the_first(file):
    result = run(200)
    schedule = result.outcomes[0].schedule
    write_pin(file, result, WORDS)
    for row in (0, 1, 25, 26, 27, 200, len(schedule) - 1):
        unchanged, text = compare(file, other := delay_row(result, row))
        assert not unchanged and f"at row {row}\n" in first_difference(schedule, other.outcomes[0].schedule)
        match = re.search(r"timing differs: first in rows (\d+) to (\d+) \((\S+) s to (\S+) s of virtual time\)", text)
        assert match
        first, last, begin, end = map(float, match.groups())
        assert first <= row <= last < first + len(schedule) / 16 + 1
        time = other.outcomes[0].schedule["time_ns"][row] / 1e9
        assert begin * (1 - 1e-5) <= time <= end * (1 + 1e-5)
        assert text.splitlines()[-2:] == ["numeric environment: the same", "If this is intended: UPDATE"]
    lengthened = dataclasses.replace(schedule, end_ns=schedule.end_ns + 1)
    assert (
        "rows are the same, intervals or the end differ\n  virtual time: "
        in compare(file, replace_parts(result, schedule=lengthened)).text
    )


def test_short_and_long_schedules_are_compared_as_far_as_they_go(file):
    write_pin(file, run(5), WORDS)
    rows = [len(run(updates).outcomes[0].schedule) for updates in (5, 3, 9)]
    unchanged, text = compare(file, run(3))
    assert not unchanged and f"recorded {rows[0]} rows, now {rows[1]}; the first {rows[1]} are the same" in text
    assert f"recorded {rows[0]} rows, now {rows[2]}; the first {rows[0]} are the same" in compare(file, run(9)).text
    assert re.search(r"timing differs: first at row 2 \(\d", compare(file, delay_row(run(5), 2)).text), (
        "each row has its digest"
    )


def test_a_difference_in_arithmetic_names_the_first_evaluation_and_the_losses_before_and_after(file):
    options = {"task": TASK, "evaluate": {"points": 30}}
    result = run(60, **options)
    write_pin(file, result, WORDS)
    (outcome,) = result.outcomes
    metrics, final = outcome.metrics, {name: array + 1 for name, array in outcome.final.items()}
    for first in (0, 1, 14, len(metrics) - 1):
        other = metrics.assign(loss=metrics["loss"] + (np.arange(len(metrics)) >= first))
        unchanged, text = compare(file, replace_parts(result, metrics=other, final=final))
        match = re.search(
            r"arithmetic differs, timing is the same: first at evaluation (\d+)(?: to (\d+))?\n  after (\d+)", text
        )
        assert not unchanged and match
        low, high = int(match[1]), int(match[2] or match[1])
        assert low <= first <= high < low + 4 and int(match[3]) == metrics["updates"].iloc[high]
        ends = [float(np.float32(table["loss"].iloc[-1])) for table in (metrics, other)]
        losses = re.search(r"at the end: loss (\S+) -> (\S+)\n", text)
        assert losses and [np.float32(loss) for loss in losses.groups()] == ends
    assert "all pinned losses are the same" in compare(file, replace_parts(result, final=final)).text
    assert "recorded 31 evaluations, now 30" in compare(file, replace_parts(result, metrics=metrics[:-1], final=final)).text
    diverging = metrics.assign(loss=np.where(np.arange(len(metrics)) > 20, np.nan, metrics["loss"]))
    write_pin(file, diverged := replace_parts(result, metrics=diverging, final=final), WORDS)
    assert compare(file, diverged).is_same and "loss nan -> " in compare(file, result).text


class TestAnotherEnvironment:
    def test_runs_are_compared_with_each_other_and_losses_within_the_tolerance(self, file, monkeypatch):
        result = run(40, task=TASK)
        write_pin(file, result, WORDS)
        losses = json.loads(file.read_text())["runs"]["asgd/seed-0"]["losses"].split()
        edit(file, "environment", "jax", value="0.0.1")
        assert compare(file, result) == (True, ""), "the same bits say more"
        edit(file, "runs", "asgd/seed-0", "params", value="0" * 16)
        edit(file, "runs", "asgd/seed-0", "losses", value=" ".join([*losses[:-1], str(float(losses[-1]) / 1.004)]))
        unchanged, text = compare(file, result)
        assert unchanged and "1 of 1 runs have other bits (0 of them other timing)" in text
        assert "differ by at most 0.004 (relative; tolerance 0.01); two runs here have the same bits:\n  jax: rec" in text
        unchanged, text = compare(file, result, tolerance=0.003)
        assert not unchanged and f"-> {losses[-1]}, a relative difference of 0.004 (tolerance 0.003)\n" in text
        assert "numeric environment: another one\n  jax: recorded '0.0.1'" in text
        (outcome,) = result.outcomes
        comparison = compare(file, replace_parts(result, final={name: array + 1 for name, array in outcome.final.items()}))
        assert (
            not comparison.is_same
            and "two runs in this environment differ from each other: arithmetic differs" in comparison.text
        )

    def test_times_are_compared_too_and_runs_that_are_the_same_within_any_tolerance_may_have_other_timing(self, file):
        write_pin(file, result := run(40), WORDS)
        end = result.outcomes[0].schedule.end_ns / 1e9
        edit(file, "environment", "numpy", value="1.0")
        edit(file, "runs", "asgd/seed-0", "schedule", value="0" * 16)
        edit(file, "runs", "asgd/seed-0", "seconds", value=end * 1.02)
        assert "virtual time at the end" in compare(file, result).text and not compare(file, result).is_same
        unchanged, text = compare(file, result, tolerance=0.03)
        assert unchanged and "(1 of them other timing)" in text

    def test_another_version_of_fred_is_reported_but_compared_bit_by_bit(self, file):
        write_pin(file, run(40), WORDS)
        edit(file, "environment", "fred", value="0.0.1")
        assert compare(file, run(40)) == (True, "")
        unchanged, text = compare(file, run(39))
        assert not unchanged and "timing differs: recorded" in text and "\n  fred: recorded '0.0.1', here" in text


class TestRefusals:
    @pytest.mark.parametrize(
        ("content", "problem"),
        [
            ("", "is no pin: Expecting value"),
            ("<<<<<<< HEAD\n", "is no pin: Expecting value"),
            ("[" * 100_000, "is no pin: maximum recursion"),
            ('"\xff', "is no pin: cannot read"),
            ("[]", "is no pin: : Input should be"),
            ('{"format": 2}', "is no pin: its format is 2, and this FRED reads format 1"),
            ('{"format": 1, "environment": {}}', "is no pin: runs: Field required"),
        ],
        ids=lambda text: text[:12],
    )
    def test_another_file_is_refused_with_a_cure_that_helps(self, file, content, problem):
        file.parent.mkdir()
        file.write_text(content, encoding="latin-1")
        with pytest.raises(FredError, match=re.escape(f"mine.json {problem}")) as refusal:
            compare(file, run())
        assert str(refusal.value).endswith("; restore it from version control, or write it again: UPDATE")
        assert write_pin(file, run(), WORDS) and compare(file, run()) == (True, "")

    @pytest.mark.parametrize(
        ("key", "value"),
        [("rows", 3), ("rows", -1), ("blocks", "0"), ("losses", "1.0 2.0"), ("losses", "x"), ("evaluations", 10**400)],
        ids=lambda value: str(value)[:12],
    )
    def test_a_pin_whose_parts_contradict_each_other_is_refused(self, file, key, value):
        write_pin(file, run(), WORDS)
        edit(file, "runs", "asgd/seed-0", key, value=value)
        with pytest.raises(FredError, match=r"mine.json is no pin: .* or write it again: UPDATE"):
            compare(file, run())

    def test_a_missing_pin_and_what_is_no_result_are_refused(self, file):
        with pytest.raises(FredError, match=r"there is no pin mine\.json: write it, and commit it: UPDATE"):
            compare(file, run())
        not_a_result: Any = run().summary
        with pytest.raises(FredError, match=r"expected a result, as `fred.run\(scenario\)` returns it; found DataFrame"):
            write_pin(file, not_a_result, WORDS)
        assert not file.parent.exists()

    def test_jax_before_fred_is_named_as_the_cause_and_no_pin_is_written(self, file, monkeypatch):
        write_pin(file, result := run(), WORDS)
        facts = environment.describe() | {"unprepared": "XLA_FLAGS PJRT_NPROC"}
        monkeypatch.setattr(environment, "describe", lambda: facts)
        assert compare(file, result) == (True, "")
        for call in (lambda: compare(file, run(59)), lambda: write_pin(file, result, WORDS)):
            with pytest.raises(
                FredError, match=r"jax was imported before FRED, without FRED's XLA_FLAGS, PJRT_NPROC, .*: FIRST"
            ):
                call()


@pytest.mark.usefixtures("undrawn")
def test_a_result_folder_has_the_pin_of_the_result_in_memory_and_the_environment_of_its_manifest(file, tmp_path, monkeypatch):
    scenario = fred.scenario(BASE, stop={"updates": 30}, seeds=[1, 2])
    fred.run(scenario, out=tmp_path / "out")
    write_pin(file, fred.run(scenario), WORDS)
    with monkeypatch.context() as patch:
        patch.setattr(environment, "describe", lambda: {"unprepared": "XLA_FLAGS"})
        assert not write_pin(file, fred.load_result(tmp_path / "out"), WORDS), "the same bytes"


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_an_interrupted_update_leaves_the_old_pin(file, monkeypatch, error):
    write_pin(file, run(30), WORDS)
    before = file.read_bytes()

    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises((KeyboardInterrupt, FredError)):
        write_pin(file, run(31), WORDS)
    assert file.read_bytes() == before and list(file.parent.iterdir()) == [file]


def test_the_plugin_imports_neither_fred_nor_jax_before_it_is_used():
    program = "import sys, pytest; before = {*sys.modules}; import pytest_fred; print(*{*sys.modules} - before)"
    command = [sys.executable, "-c", program]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "pytest_fred" in printed.split() and len(printed.split()) < 10
    assert not {name.partition(".")[0] for name in printed.split()} & {"fred", "jax", "numpy", "pydantic", "pandas"}


MODULE = """
import fred

def run(**options):
    cluster = {"workers": 4, "compute": {"name": "exponential", "scale": 0.1}}
    return fred.run(fred.scenario(cluster=cluster, algorithm={"name": "asgd", "learning_rate": 0.1}, stop={"updates": 20}, **options))
"""
TIMING = """
import pytest
from mine import run

class TestMine:
    @pytest.mark.parametrize("seed", [1, 2])
    def test_timing(self, fred_pin, seed):
        fred_pin(run(seeds=[seed]))
        fred_pin(run(seeds=[3]), name="third/seed")
"""
SCENARIO = """
cluster: {workers: 2, compute: {name: constant, seconds: 0.5}}
algorithm: {name: mine:Mine, learning_rate: 0.1}
stop: {updates: 4}
"""


class Project:
    """A project of a user's, whose tests run in a process of their own."""

    def __init__(self, pytester: pytest.Pytester):
        self.pytester = pytester
        pytester.makepyfile(mine=MODULE)
        pytester.makeini("[pytest]\npythonpath = .\n")

    def setting(self, line: str) -> None:
        """Add a line to pytest's settings."""
        file = self.pytester.path / "tox.ini"
        file.write_text(f"{file.read_text()}\n{line}\n")

    def tests(self, *arguments: str, **counts: int) -> str:
        """Run tests, expect numbers of them to pass or fail, and return the output."""
        result = self.pytester.runpytest_subprocess("-q", "-p", "pytest_fred", *arguments)
        result.assert_outcomes(**counts)
        return result.stdout.str() + result.stderr.str()


@pytest.fixture
def project(pytester, monkeypatch) -> Project:
    for name in environment._settings():
        monkeypatch.delenv(name, raising=False)  # a user's shell does not have the settings that FRED makes
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return Project(pytester)


@pytest.mark.slow
class TestPlugin:
    def test_pins_are_missing_then_written_then_compared(self, project):
        project.pytester.makepyfile(test_mine=TIMING)
        output = project.tests(failed=2)
        assert (
            "there is no pin pins/test_mine.TestMine.test_timing[1].json: write it, and commit it: pytest --fred-update"
            in output
        )
        assert "'test_mine.py::TestMine::test_timing[1]'" in output
        output = project.tests("--fred-update", "-n", "2", passed=2)
        pins = {f"test_mine.TestMine.test_timing[{seed}]{name}.json" for seed in (1, 2) for name in ("", ".third%2Fseed")}
        assert {file.name for file in (project.pytester.path / "pins").iterdir()} == pins
        assert all(f"wrote pins/{name}" in output for name in pins)
        assert "FRED" not in project.tests(passed=2)
        project.pytester.makepyfile(mine=MODULE.replace("0.1}}", "0.11}}"))
        output = project.tests(failed=2)
        assert (
            "1 of 1 runs differs from pins/test_mine.TestMine.test_timing[2].json:\nasgd/seed-2: timing differs: first"
            in output
        )

    def test_two_results_of_one_name_are_refused(self, project):
        project.pytester.makepyfile(test_mine=TIMING.replace(', name="third/seed"', ""))
        assert "is the pin of two results: give each a name: fred_pin(result, name=...)" in project.tests(
            "--fred-update", failed=2
        )

    def test_jax_first_fails_with_a_cure_that_helps(self, project):
        project.pytester.makepyfile(test_a="import jax\n\ndef test_jax(): pass")
        task = {"data": {"name": "noise", "features": 3}, "model": {"name": "quadratic", "dimension": 3}}
        test = f"from mine import run\n\ndef test_loss(fred_pin): fred_pin(run(task={task}))"
        project.pytester.makepyfile(test_mine=test)
        project.tests("test_mine.py", "--fred-update", passed=1)
        project.pytester.makepyfile(mine=MODULE.replace('learning_rate": 0.1', 'learning_rate": 0.2'))
        output = project.tests(passed=1, failed=1)
        assert "pins/test_mine.test_loss.json: not compared: jax was imported before FRED" in output
        assert "write the line `fred_first = true` below `[pytest]` in tox.ini" in output
        project.setting("fred_first = true")
        assert "asgd/seed-0: arithmetic differs, timing is the same: first at evaluation 1" in project.tests(passed=1, failed=1)
        project.pytester.makepyfile(mine=MODULE)
        project.tests("-n", "2", passed=2)

    def test_a_scenario_file_with_a_pin_is_a_test_and_a_pin_without_one_fails(self, project):
        project.pytester.makepyfile(mine=f"{MODULE}\nclass Mine(fred.Server): pass")
        folder = project.pytester.mkdir("scenarios")
        (folder / "one.yaml").write_text(SCENARIO)
        (folder / "two.yaml").write_text("not a scenario")
        project.tests("scenarios")
        assert "allow it with pytest's setting `fred_import = mine`" in project.tests(
            "scenarios/one.yaml", "--fred-update", failed=1
        )
        project.setting("fred_import = mine")
        assert "wrote scenarios/one.pin.json" in project.tests("scenarios/one.yaml", "--fred-update", passed=1)
        project.tests("scenarios", passed=1)
        (folder / "one.yaml").write_text(SCENARIO.replace("4}", "5}"))
        output = project.tests("scenarios", failed=1)
        assert (
            "seed-0: timing differs: recorded 9 rows, now 11; the first" in output
            and "pytest --fred-update scenarios/one.yaml" in output
        )
        (folder / "one.yaml").write_text(SCENARIO)
        edit(folder / "one.pin.json", "environment", "numpy", value="1.0")
        (name,) = json.loads((folder / "one.pin.json").read_text())["runs"]
        edit(folder / "one.pin.json", "runs", name, "seconds", value=1.02)
        assert "virtual time at the end 1.02 -> 1, a relative difference of 0.02 (tolerance 0.001)" in project.tests(failed=1)
        output = project.tests("-o", "fred_tolerance=0.03", passed=1)
        assert "= FRED =" in output and "scenarios/one.pin.json is of another numeric environment, where 1 of 1 runs" in output
        refused = project.pytester.runpytest_subprocess("-p", "pytest_fred", "-o", "fred_tolerance=x")
        assert refused.ret == pytest.ExitCode.USAGE_ERROR and "expected a number, such as 0.001" in refused.stderr.str()
        (folder / "one.yaml").unlink()
        assert "scenarios/one.pin.json has no scenario: restore that, or remove the pin" in project.tests("scenarios", failed=1)
