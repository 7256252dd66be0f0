"""One answer from a trace: losses and gains against closed forms, intervals that know spells, files that run."""

import base64
import json
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fred.base.errors import FredError
from fred.base.intervals import Played, spell_ratio
from fred.commands.cli import main
from fred.diagnosis import answer_page, printed, remedies, spells
from fred.diagnosis.findings import CANNOT_TELL, SAVES, Diagnosis, diagnose
from fred.diagnosis.sentences import gain, sections
from fred.fitting import behaviour
from fred.fitting.description import describe
from fred.specification.loading import load, load_cluster
from fred.traces.reading import read
from fred.traces.trace import Trace
from studies.diagnosis import MEASURED, text, wrong
from tests.program import fred_command, refusal
from tests.worlds import TASK

WORKERS, TIMES = 6, 3.0
ONE_SLOW = np.tile([1.0] * (WORKERS - 1) + [TIMES], (120, 1))


def trace(seconds: np.ndarray, nodes: list[int] | None = None) -> Trace:
    return Trace(seconds, tuple(f"m{worker}" for worker in range(seconds.shape[1])), None if nodes is None else np.array(nodes))


@pytest.fixture(scope="module")
def one_slow() -> Diagnosis:
    return diagnose(trace(ONE_SLOW))


@pytest.fixture(scope="module")
def in_spells() -> Diagnosis:
    """One of three nodes is 2.5 times slower in three spells of 40 rounds."""
    seconds = np.exp(0.05 * np.random.default_rng(7).standard_normal((300, 12)))
    for begin in (50, 140, 230):
        seconds[begin : begin + 40, 4:8] *= 2.5
    return diagnose(trace(seconds, [0] * 4 + [1] * 4 + [2] * 4))


class TestOneWorkerThatIsAlwaysSlow:
    def test_what_is_lost_is_exact(self, one_slow):
        slowness = one_slow.slowness
        assert slowness.slowdown == pytest.approx(TIMES) and slowness.lost_share == pytest.approx(1 - 1 / TIMES)
        assert slowness.waiting == pytest.approx((WORKERS - 1) * (TIMES - 1) / (WORKERS * TIMES))
        (slow,) = slowness.slow
        assert (slow.name, slow.pattern, slow.loss_share) == ("m5", "always", 1.0)
        assert slow.times == pytest.approx(TIMES) and slowness.together == 1.0

    def test_every_gain_is_that_of_its_closed_form(self, one_slow):
        rest, gains = WORKERS - 1, {improvement.remedy.name: improvement.ratio.value for improvement in one_slow.gains}
        for name, expected in {
            **{"repair m5": TIMES, "remove m5": TIMES * rest / WORKERS, "1 backup worker": TIMES * rest / WORKERS},
            **{"2 backup workers": TIMES * (rest - 1) / WORKERS, "4 local steps": 1.0},
            "asynchronous": TIMES * (rest + 1 / TIMES) / WORKERS,
        }.items():
            assert gains[name] == pytest.approx(expected), name
        assert one_slow.bound.ratio.value == pytest.approx(TIMES * rest / WORKERS)

    def test_fit_reports_the_same_quantities_by_the_same_names(self, one_slow):
        node_of = np.zeros(WORKERS, np.int64)
        fitted = describe(ONE_SLOW, node_of).cost
        parts = sections(one_slow)
        for sentence in (parts["Verdict"][0], parts["What is lost"][0]):
            assert sentence.replace(f"Waiting for all {WORKERS} workers", "waiting for all") in fitted
        assert f"Always waiting for {WORKERS - 1} of {WORKERS}: +150 % gradients per second" in fitted
        trace_costs, gains = (
            behaviour.measure_trace(ONE_SLOW, node_of),
            {improvement.remedy.name: improvement.ratio.value for improvement in one_slow.gains},
        )
        measured = dict(zip(trace_costs.names, trace_costs.values, strict=True))
        for name in ("1 backup worker", "2 backup workers"):
            assert measured[f"the gain of {name}"] == pytest.approx(gains[name])

    def test_it_saves_time_and_says_whose_data_are_excluded(self, one_slow):
        assert one_slow.verdict == SAVES
        assert one_slow.recommended.fairness.excluded == [WORKERS - 1]
        assert one_slow.recommended.fairness.effective == pytest.approx(WORKERS - 1, abs=0.1)
        text = " ".join(sections(one_slow)["What it costs"])
        assert "It excludes 1 of 6 workers and their data, and takes the same workers in" in text
        assert "With the data of all: repair m5 (+200 %), or asynchronous (+167 %)" in text

    def test_nobody_is_slow_where_all_are_alike(self):
        diagnosis = diagnose(trace(np.ones((100, 4))))
        assert (diagnosis.slowness.slow, diagnosis.slowness.lost_share, diagnosis.verdict) == ((), 0.0, "saves little")
        assert {
            improvement.ratio.value
            for improvement in diagnosis.gains
            if improvement.remedy.kind in ("rule", "local", "asynchronous")
        } == {1.0}


class TestWhoIsNamed:
    @pytest.mark.slow
    def test_two_that_are_slow_at_once_are_named_though_neither_alone_would_help(self):
        seconds = np.ones((100, 6))
        seconds[30:60, :2] = 4.0
        slowness = diagnose(trace(seconds)).slowness
        assert {group.name for group in slowness.slow} <= {"m0", "m1", "m0 and m1 (slow together)"} and slowness.together == 1.0
        assert {worker for group in slowness.slow for worker in group.workers} == {0, 1}

    @pytest.mark.parametrize("iterations", [8, 9, 40])
    def test_nobody_is_named_where_times_are_chance(self, iterations):
        times = np.random.default_rng(iterations).integers(1, 3, (iterations, 40))
        assert diagnose(trace(times.astype(float))).slowness.slow == ()

    def test_half_of_the_workers_are_one_group_though_the_median_lies_between_the_groups(self):
        seconds = np.where(np.arange(64) % 2, 6.0, 4.0) * np.exp(0.03 * np.random.default_rng(3).standard_normal((60, 64)))
        diagnosis = diagnose(trace(seconds))
        (slow,) = diagnosis.slowness.slow
        assert slow.workers == tuple(range(1, 64, 2)) and slow.times == pytest.approx(1.5, abs=0.02)
        quick = np.where(np.arange(64) % 2, np.median(seconds[15:, ::2], axis=1, keepdims=True), seconds[15:])
        repaired = next(improvement for improvement in diagnosis.gains if improvement.remedy.kind == "repair")
        assert repaired.ratio.value == pytest.approx(seconds[15:].max(axis=1).sum() / quick.max(axis=1).sum())

    @pytest.mark.slow
    def test_a_worker_that_is_late_in_every_second_round_is_slow_as_long_as_that_goes_on(self):
        seconds = np.exp(0.02 * np.random.default_rng(5).standard_normal((300, 8)))
        seconds[120:200, 7] *= 6.0
        seconds[200:280:2, 7] *= 6.0
        (slow,) = diagnose(trace(seconds)).slowness.slow
        ((first, end),) = slow.spells
        assert first == 120 and abs(end - 280) <= 5 and slow.times == pytest.approx((80 * 6 + 75 * 3.5) / 155, abs=0.1)

    @pytest.mark.slow
    def test_a_worker_in_spells_is_named_next_to_a_group_that_is_always_slower(self):
        seconds = np.exp(0.02 * np.random.default_rng(6).standard_normal((400, 8)))
        seconds[:, :2] *= 1.3
        seconds[100:200, 7] *= 5.0
        diagnosis = diagnose(trace(seconds))
        named = {group.name: group for group in diagnosis.slowness.slow}
        assert list(named) == ["m7", "m0 and m1"] and named["m7"].loss_share > 0.5
        assert named["m0 and m1"].slowdown_alone == pytest.approx(1.33, abs=0.03)
        assert "repair m7" in {improvement.remedy.name for improvement in diagnosis.gains}


class TestTheWholeCluster:
    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(10))
    def test_chance_in_few_rounds_is_no_change(self, seed):
        diagnosis = diagnose(trace(np.random.default_rng(seed).lognormal(0, 0.3, (20, 4))))
        assert "median worker's time" not in " ".join(sections(diagnosis)["What is lost"])

    @pytest.mark.slow
    def test_that_all_become_slower_is_said_but_is_no_loss(self):
        seconds = np.linspace(1.0, 1.5, 200)[:, None] * np.exp(0.01 * np.random.default_rng(2).standard_normal((200, 6)))
        diagnosis = diagnose(trace(seconds))
        assert diagnosis.slowness.slow == () and diagnosis.slowness.lost_share < 0.05
        assert "The median worker's time changes: 1.1" in " ".join(sections(diagnosis)["What is lost"])

    def test_a_round_that_is_most_of_the_loss_is_named(self):
        seconds = np.exp(0.05 * np.random.default_rng(4).standard_normal((100, 6)))
        seconds[60, 3] = 40.0
        assert sections(diagnose(trace(seconds)))["Why"][0].startswith("Iteration 60 alone makes up")

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(5))
    def test_what_is_never_slower_has_no_interval_below_that(self, seed):
        diagnosis = diagnose(trace(np.random.default_rng(seed).lognormal(0, 0.3, (60, 5))))
        kinds = ("repair", "local", "asynchronous")
        assert all(improvement.ratio.low >= 1 for improvement in diagnosis.gains if improvement.remedy.kind in kinds)

    @pytest.mark.slow
    def test_a_rule_that_takes_the_same_five_excludes_the_others(self):
        seconds = np.where(np.arange(10) % 2, 3.0, 1.0) * np.exp(0.02 * np.random.default_rng(1).standard_normal((200, 10)))
        diagnosis = diagnose(trace(seconds))
        fair = diagnosis.recommended.fairness
        assert fair.excluded == [1, 3, 5, 7, 9] and fair.same_set_share > 0.9 and fair.effective == pytest.approx(5, abs=0.1)
        assert diagnosis.slowness.slow[0].workers == (1, 3, 5, 7, 9)
        text = " ".join(sections(diagnosis)["What it costs"])
        assert "excludes 5 of 10 workers" in text and "m1, m3, m5, m7 and m9" in text


class TestSpells:
    @pytest.mark.slow
    def test_they_are_named_with_their_node_length_and_share(self, in_spells):
        (slow,) = in_spells.slowness.slow
        assert (slow.name, slow.pattern, slow.workers) == ("node 1", "spells", (4, 5, 6, 7))
        assert slow.spells == ((50, 90), (140, 180), (230, 270))
        assert slow.times == pytest.approx(2.5, rel=0.03) and slow.share == pytest.approx(120 / 280)
        sentence = "Node 1 is 2.5 times slower in 3 spells of 40 iterations, 43 % of the time"
        assert sections(in_spells)["Why"][0].startswith(sentence)

    def test_their_number_not_that_of_rounds_makes_intervals_narrow(self):
        def width(number: int, rounds: int) -> float:
            slow = np.tile(np.repeat([False, True, False], [rounds, rounds, rounds]), number)
            every = Played(np.ones((len(slow), 1)), np.where(slow, 2.0, 1.0)[:, None])
            ratio = spell_ratio(slow, Played(np.ones((len(slow), 1)), np.ones((len(slow), 1))), every)
            assert ratio.value == pytest.approx(4 / 3) and 1 < ratio.low < ratio.value < ratio.high < 2
            return math.log(ratio.high / ratio.low)

        assert width(1, 200) == pytest.approx(width(1, 20), rel=0.05)
        assert width(16, 20) < width(4, 20) / 1.6 < width(1, 20) / 2

    def test_late_rounds_one_by_one_are_none(self):
        late = np.zeros(300)
        late[::13] = 2.0
        assert not spells.find_spells(late).any()

    def test_a_change_that_lasts_is_a_spell_to_the_end(self):
        mask = spells.find_spells(np.repeat([0.0, 1.0], [60, 40]) + 0.1 * np.sin(np.arange(100)))
        assert mask.nonzero()[0].tolist() == list(range(60, 100))


@given(st.integers(2, 5), st.integers(0, 99))
def test_no_number_of_backup_workers_exceeds_the_bound_and_one_of_them_is_the_best(workers, seed):
    seconds = np.random.default_rng(seed).lognormal(sigma=0.8, size=(12, workers))
    every = [remedies.backups(seconds, number).played.throughput() for number in range(1, workers)]
    every.append(remedies.waiting_for_all(seconds).played.throughput())
    assert max(every) <= remedies.bound(seconds).played.throughput() * (1 + 1e-12)
    assert every[remedies.best_backups(seconds) - 1] == pytest.approx(max(every))


def test_the_bound_is_that_of_all_choices():
    seconds = np.random.default_rng(3).lognormal(sigma=1.0, size=(4, 3))
    ordered, choices = np.sort(seconds, axis=1), np.stack(np.meshgrid(*[range(3)] * 4), axis=-1).reshape(-1, 4)
    rates = [(choice + 1).sum() / ordered[np.arange(4), choice].sum() for choice in choices]
    assert remedies.bound(seconds).played.throughput() == pytest.approx(max(rates))


def test_few_iterations_give_no_verdict_and_say_how_many_would():
    diagnosis = diagnose(trace(read("example").seconds[:60]))
    assert diagnosis.verdict == CANNOT_TELL and diagnosis.more_iterations >= 40
    assert f"Record about {diagnosis.more_iterations} more iterations" in " ".join(sections(diagnosis)["Next"])


def test_too_few_iterations_are_refused():
    with pytest.raises(FredError, match="has 7 iterations of 2 workers; expected 8 iterations or more"):
        diagnose(trace(np.ones((7, 2))))


@pytest.fixture(scope="module")
def output(tmp_path_factory) -> tuple[Path, dict]:
    out = tmp_path_factory.mktemp("diagnosis") / "out"
    file = out.parent / "mine.csv"
    file.write_text(printed.trace_text(trace(ONE_SLOW, [0, 0, 1, 1, 2, 2])))
    assert main(["diagnose", str(file), "--out", str(out)]) == 0
    return out, json.loads((out / "diagnosis.json").read_text())


class TestTheFigures:
    def test_rows_of_the_image_have_their_workers_in_the_middle(self, one_slow, in_spells):
        for diagnosis, names in (one_slow, [f"m{i}" for i in range(6)]), (in_spells, [f"m{i}" for i in range(12)]):
            axis = answer_page.draw_slowness(diagnosis).axes[0]
            assert [label.get_text() for label in axis.get_yticklabels()] == names
            assert axis.get_yticks().tolist() == [0.5 + row for row in range(len(names))]
        many = answer_page.draw_slowness(diagnose(trace(np.tile(ONE_SLOW, 7)))).axes[0]
        assert [label.get_text() for label in many.get_yticklabels()] == [f"m{i}" for i in range(0, 42, 3)]

    def test_gains_have_the_unit_of_the_sentences(self, one_slow):
        axis = answer_page.draw_gains(one_slow).axes[0]
        assert axis.xaxis.get_major_formatter()(1.4, 0) == "+40 %"
        assert gain(one_slow.recommended.ratio).startswith("+") and "%" in gain(one_slow.recommended.ratio)


class TestTheCommand:
    def test_tables_show_the_numbers_of_the_json(self, output):
        out, document = output
        diagnosis = diagnose(read(out / "trace.csv"))
        slow, helps = printed.tables(diagnosis)
        assert [" ".join(row[0].text.split()) for row in helps.cells] == [
            *(remedy["name"] for remedy in document["remedies"]),
            diagnosis.bound.remedy.name,
        ]
        for row, remedy in zip(helps.cells, document["remedies"], strict=False):
            assert float(row[1].text.removesuffix(" %")) == pytest.approx(100 * (remedy["gain"] - 1), abs=0.5)
            workers, *excluded = re.findall(r"[\d.]+", row[4].text)
            assert float(workers) == pytest.approx(remedy["effective_workers"], abs=0.05)
            assert len(remedy["excludes"]) == int(*excluded)
        assert [" ".join(row[0].text.split()) for row in slow.cells[:-1]] == [
            worker["name"] for worker in document["lost"]["slow"]
        ]
        page = (out / "report.html").read_text()
        assert all(line.split("`")[0] in page for lines in sections(diagnosis).values() for line in lines)
        assert "<script" not in page and "http" not in page.replace("http-equiv", "")

    def test_its_tables_fit_a_terminal_of_80_columns_in_one_part(self, output):
        answer = fred_command("diagnose", output[0].parent / "mine.csv", columns=80)
        assert answer.code == 0 and max(map(len, answer.out.splitlines())) <= 80
        assert len(re.findall(r"^─+$", answer.out, re.M)) == 2, "a line below the heading of each table"
        assert re.search(r"^remove node 2 .*4\.0, 2 excluded$", answer.out, re.M)

    def test_the_page_has_code_and_no_backticks(self, output):
        page = (output[0] / "report.html").read_text()
        words = re.sub(r"<style>.*?</style>|<img[^>]*>", "", page, flags=re.S)
        assert "<code>auto</code>" in words and "`" not in words
        for image in re.findall(r"base64,([^\"]*)", page):
            assert "`" not in re.sub(r"<!--.*?-->", "", base64.b64decode(image).decode(), flags=re.S)

    @pytest.mark.slow
    def test_the_scenario_runs_and_comes_to_the_same_gains(self, output, tmp_path):
        out, document = output
        assert main(["run", str(out / "scenario.yaml"), "--out", str(tmp_path / "result"), "--no-report"]) == 0
        from fred.results.folder import load_result

        rates = load_result(tmp_path / "result").summary.set_index("name")["throughput"]
        for name in ("1 backup worker", "asynchronous", "4 local steps"):
            expected = next(remedy["gain"] for remedy in document["remedies"] if remedy["name"] == name)
            assert rates[name.replace(" ", "-")] / rates["waiting-for-all"] == pytest.approx(expected, rel=0.03), name

    def test_the_files_are_a_cluster_and_a_trace(self, output):
        out, _ = output
        cluster = next(iter(load(out / "scenario.yaml").runs.values())).cluster
        assert (cluster.size, cluster.node_of.tolist()) == (WORKERS, [0, 0, 1, 1, 2, 2])
        assert load_cluster(out / "cluster.yaml") == cluster

    def test_a_file_of_somebodys_own_is_not_replaced(self, tmp_path):
        (tmp_path / "scenario.yaml").write_text("title: mine\n")
        assert "is there already, and not what this command writes" in refusal("diagnose", "example", "--out", tmp_path)


@pytest.mark.slow
def test_with_a_task_each_remedy_is_run_to_the_target_on_the_recorded_times(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("fred.commands.diagnose.POINTS", 2)
    monkeypatch.setattr("fred.commands.diagnose._KINDS", ("backup",))
    monkeypatch.setattr("fred.commands.plan_for._TUNING", 1)
    task, file, out = tmp_path / "task.yaml", tmp_path / "mine.csv", tmp_path / "out"
    task.write_text(json.dumps({"task": TASK, "evaluate": {"target_error": 0.5}}))
    file.write_text(printed.trace_text(trace(np.tile([1.0, 1.0, 1.0, 5.0], (60, 1)))))
    command = ["diagnose", str(file), "--for", str(task), "--seeds", "1", "--budget", "40", "--jobs", "1", "--out", str(out)]
    assert main([*command, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads((out / "diagnosis.json").read_text())
    (first, second) = document["time_to_target"]["ranking"]
    assert (first["run"], second["run"]) == ("1-backup-worker", "waiting-for-all")
    assert first["median"] < second["median"] and first["points"] == 2
    assert "1-backup-worker (learning_rate" in (out / "report.html").read_text()
    assert {point.of for point in load(out / "scenario.yaml").points.values()} == {"1-backup-worker", "waiting-for-all"}


def test_mistakes_are_told_in_a_line_and_leave_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    for arguments, message in (
        ("example --budget 9", "--budget is for runs to a target: give --for TASK"),
        ("example --for digit", "--for digit: expected digits, or a YAML file"),
        ("example --for digits --seeds -1", "--seeds -1: expected a number above 0"),
        ("nowhere.csv", "nowhere.csv"),
        ("example --out file", "--out file: expected a folder, and this is a file"),
    ):
        assert message in refusal("diagnose", *arguments.split())
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_page_has_the_table_of_the_measured_coverage():
    page = Path(__file__).parent.parent / "docs" / "how-to" / "use-a-trace.md"
    traces = pd.read_csv(MEASURED)
    assert text(traces) in page.read_text(encoding="utf-8")
    spells = traces[traces["spells"]]
    above, below = (int(missed.sum()) for missed in (spells["true"] > spells["high"], spells["true"] < spells["low"]))
    assert (above, below, int(wrong(traces).sum())) == (11, 1, 0), "as the page says"
