"""What a diagnosis says in sentences: each kind of slowness by its cause, with the file's names, and nothing that is false."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fred.base.errors import FredError
from fred.diagnosis import remedies
from fred.diagnosis.answer_page import diagnosis_page
from fred.diagnosis.findings import CANNOT_TELL, NO_VERDICT, SAVES, Diagnosis, diagnose
from fred.diagnosis.sentences import SCREEN, sections
from fred.diagnosis.spells import find_changes, find_pauses, find_stalls, split_times
from fred.fitting.fitted import fit
from fred.traces.doubts import find_doubt, refuse_doubtful
from fred.traces.reading import read
from fred.traces.trace import Trace
from tests import example_trace
from tests.conftest import ROOT
from tests.program import fred_command

QUIET = 0.05  # deviation of log times


def noise(rounds: int, workers: int, deviation: float = QUIET, seed: int = 0) -> np.ndarray:
    return np.exp(deviation * np.random.default_rng(seed).standard_normal((rounds, workers)))


def trace(seconds: np.ndarray, **options: Any) -> Trace:
    return Trace(seconds, tuple(map(str, range(seconds.shape[1]))), **options)


def the(value: Any) -> Any:
    """Return a value that is not None."""
    assert value is not None
    return value


def answer(diagnosis: Diagnosis) -> str:
    return "\n".join(line for lines in sections(diagnosis).values() for line in lines)


@pytest.fixture(autouse=True)
def quick_rule(monkeypatch):
    """No sentence here depends on the cutoff rule, which takes most of the time."""
    monkeypatch.setattr(remedies, "RULE", "all")


def test_the_page_of_one_trace_is_the_same_text_each_time():
    pages = {diagnosis_page(diagnose(trace(noise(60, 4) * [1, 1, 1, 2]))) for _ in range(2)}
    assert len(pages) == 1 and "<img" in pages.pop()


class TestTwoKindsOfWorkers:
    def test_one_that_is_faster_is_named_not_the_seven_others(self):
        diagnosis = diagnose(trace(noise(120, 8) * ([1] * 7 + [0.6])))
        assert diagnosis.slowness.slow == () and the(diagnosis.slowness.quick).workers == (7,)
        assert the(diagnosis.slowness.quick).times == pytest.approx(1 / 0.6, rel=0.02)
        assert "Worker 7 is 1.7 times faster than the others, which costs no time." in sections(diagnosis)["Why"]
        assert not [gain for gain in diagnosis.gains if gain.remedy.kind in ("repair", "remove")]

    def test_half_of_them_are_two_kinds_and_their_time_does_not_change(self):
        diagnosis = diagnose(trace(noise(120, 10, 0.1) * ([1] * 5 + [3] * 5)))
        assert sections(diagnosis)["Why"][0].startswith(
            "There are two kinds: workers 5, 6, 7, 8 and 9 take 3.0 times as long as the other 5: "
        )
        assert "median worker's time changes" not in answer(diagnosis)

    def test_the_median_workers_time_is_that_of_all_not_of_the_gap_between_two_kinds(self):
        pace = np.repeat([1.0, 2.0, 2.0, 1.0], 50)[:, None]
        all_change, one_changes = noise(200, 4, 0.01) * pace * [1, 1, 3, 3], noise(200, 4, 0.01) * [1, 1, 3, 3]
        one_changes[100:, 0] *= 2
        first, second, third, fourth = diagnose(trace(all_change)).slowness.shared_paces
        assert (second / first, third / fourth) == pytest.approx((2, 2), rel=0.05)
        paces = diagnose(trace(one_changes)).slowness.shared_paces
        assert max(paces) < 1.02 * min(paces)


class TestSpells:
    def test_two_nodes_that_alternate_are_both_slow_in_spells_and_neither_always(self):
        seconds, turn = noise(240, 8), np.arange(240) // 20 % 2
        seconds[turn == 0, 2:4] *= 2.5
        seconds[turn == 1, 4:6] *= 2.5
        diagnosis = diagnose(trace(seconds, node_of=np.arange(8) // 2))
        assert {(slow.name, slow.pattern) for slow in diagnosis.slowness.slow} == {("node 1", "spells"), ("node 2", "spells")}
        assert "always" not in answer(diagnosis) and "The record has none" not in answer(diagnosis)
        assert diagnosis.verdict == SAVES

    def test_the_spells_of_a_named_worker_are_spells_of_the_record(self):
        seconds = noise(300, 12, 0.25, seed=3)
        seconds[150:190, 6] *= 2
        diagnosis = diagnose(trace(seconds))
        (slow,) = diagnosis.slowness.slow
        assert slow.pattern == "spells" and diagnosis.spells >= 1
        assert "The record has none" not in answer(diagnosis) and "without a spell" not in answer(diagnosis)

    def test_iterations_have_the_names_of_the_file(self, tmp_path):
        seconds = noise(120, 4)
        seconds[60:90, 2] *= 3
        seconds[100, 1] = 500.0
        step, rank = (numbers.ravel() for numbers in np.indices(seconds.shape))
        table = pd.DataFrame({"step": 1000 + 10 * step, "rank": rank, "seconds": seconds.ravel()})
        table.drop(index=5 * 4 + 1).to_csv(tmp_path / "mine.csv", index=False)  # a gap before the spell moves all rows
        diagnosis = diagnose(read(tmp_path / "mine.csv", mend="drop"))
        assert "Worker 2 is 3.0 times slower from iteration 1600 until iteration 1890" in answer(diagnosis)
        assert "Iteration 2000 alone" in answer(diagnosis)
        record = diagnosis.json()["lost"]
        assert record["worst_step"] == "2000" and record["slow"][0]["steps"] == [["1600", "1890"]]


class TestStallsOfAll:
    def test_their_share_of_the_time_is_that_of_the_table(self):
        seconds = noise(200, 6)
        late = [31, 60, 61, 99, 140, 171]
        usual = seconds.max(axis=1).copy()
        seconds[late] *= 6.0
        stalls = the(find_stalls(seconds, split_times(seconds)))
        assert stalls.rounds == tuple(late) and stalls.period == 0
        assert stalls.share == pytest.approx(1 - usual.sum() / seconds.max(axis=1).sum(), abs=0.01)

    def test_their_remedy_is_none_that_drops_gradients(self):
        seconds = noise(200, 6)
        seconds[5::37] *= 8.0
        diagnosis = diagnose(trace(seconds))
        assert the(diagnosis.slowness.stalls).period == 37 and diagnosis.slowness.pauses == ()
        assert "iterations, every 37, by a factor of 8." in sections(diagnosis)["Why"][0]
        assert "runs every 37 iterations" in answer(diagnosis) and "nothing that drops gradients helps" in answer(diagnosis)

    def test_there_are_none_where_all_have_more_or_less_to_do(self):
        """Batches of sentences of any length."""
        seconds = noise(200, 6) * np.random.default_rng(1).lognormal(0, 0.3, (200, 1))
        assert find_stalls(seconds, split_times(seconds)) is None

    def test_there_are_none_where_the_whole_cluster_is_slow_for_long(self):
        seconds = noise(200, 6)
        seconds[80:150] *= 2
        assert find_stalls(seconds, split_times(seconds)) is None


class TestPausesOfEach:
    def test_that_do_not_coincide_gain_from_coinciding(self):
        rounds, workers, period = 200, 8, 20
        pauses = (np.arange(rounds)[:, None] + 2 * np.arange(workers)) % period == 0
        diagnosis = diagnose(trace(noise(rounds, workers, 0.02) + 2.0 * pauses))
        (regular,) = diagnosis.slowness.pauses
        assert regular.workers == tuple(range(workers)) and regular.period == period
        assert regular.share == pytest.approx(pauses.any(axis=1)[20:].mean())
        (gain,) = [gain for gain in diagnosis.gains if gain.remedy.kind == "align"]
        assert gain.ratio.value == pytest.approx((1 + 2 * workers / period) / (1 + 2 / period), rel=0.05)
        assert "gc.collect() at the same step" in sections(diagnosis)["Next"][0]
        assert "All workers pause every 20 iterations, not at the same ones" in answer(diagnosis)

    def test_no_time_is_lost_or_won_by_moving_them(self):
        seconds = noise(100, 5) + 3.0 * ((np.arange(100)[:, None] + 3 * np.arange(5)) % 25 == 0)
        (pauses,) = find_pauses(seconds, split_times(seconds))
        assert np.sort(the(pauses.aligned), axis=0) == pytest.approx(np.sort(seconds, axis=0))
        assert the(pauses.aligned).max(axis=1).sum() < seconds.max(axis=1).sum()

    @pytest.mark.parametrize("seed", range(5))
    def test_chance_has_no_period_no_stall_and_no_change(self, seed):
        seconds = 1 + np.random.default_rng(seed).pareto(2.5, (300, 12))
        levels = split_times(seconds)
        assert find_pauses(seconds, levels) == [] and find_stalls(seconds, levels) is None and find_changes(levels) == []


class TestChanges:
    def test_of_single_workers_late_in_a_long_record_are_named_with_their_iteration(self):
        seconds = noise(800, 12, 0.2)
        seconds[750:, [3, 5]] *= 2
        (change,) = find_changes(split_times(seconds))
        assert change.workers == (3, 5) and abs(change.round - 750) <= 3 and change.times == pytest.approx(2, rel=0.15)

    def test_next_to_two_kinds_of_workers_say_who_and_since_when(self):
        seconds = noise(200, 8) * ([1] * 4 + [3] * 4)
        seconds[170:, 6] *= 4
        diagnosis = diagnose(trace(seconds, steps=tuple(str(7 * number) for number in range(200))))
        assert "Worker 6 is 4.0 times slower than before from iteration 1190 to the end of the record." in answer(diagnosis)

    @pytest.mark.parametrize("seed", range(5))
    def test_are_none_where_speeds_wander(self, seed):
        """Each worker's log time is an autoregressive series with a memory of ten rounds."""
        draws, logs = np.random.default_rng(seed).standard_normal((400, 12)), np.zeros((400, 12))
        for number in range(1, 400):
            logs[number] = 0.9 * logs[number - 1] + 0.09 * draws[number]
        assert find_changes(split_times(np.exp(logs))) == []

    def test_that_come_little_by_little_are_no_sudden_ones(self):
        seconds = noise(300, 6)
        seconds[:, 2] *= np.linspace(1, 2, 300)
        assert find_changes(split_times(seconds)) == []
        diagnosis = diagnose(trace(seconds))
        (slow,) = diagnosis.slowness.slow
        assert slow.pattern == "drift" and slow.times == pytest.approx(1.95, abs=0.05)
        assert f"Worker 2 becomes slower little by little, {slow.times:.1f} times at the end" in answer(diagnosis)


@pytest.mark.slow
def test_fit_does_not_call_a_worker_always_slow_that_is_slower_in_spells():
    seconds = noise(100, 15, 0.1)
    seconds[:23, 4] *= 1.3
    seconds[23:, 4] *= 11
    first, second = fit(trace(seconds), {"file": "mine.csv"}, lambda share: None).sentences
    assert re.match(r"Worker 4 is 8\.\d times slower in spells of about 77 iterations, 77% of the time", first)
    assert re.fullmatch(r"Worker 4 is 1\.\d times slower than the median worker outside its spells\.", second)


class TestDoubts:
    UNITS = noise(60, 6) * [1, 1, 1, 1000, 1, 1]

    def clocks(self) -> np.ndarray:
        seconds = noise(60, 6)
        seconds[:, 4] = np.cumsum(seconds[:, 4])
        return seconds

    def test_a_factor_of_a_thousand_is_a_unit_and_gives_no_verdict(self):
        diagnosis = diagnose(trace(self.UNITS))
        assert diagnosis.verdict == NO_VERDICT and list(sections(diagnosis)) == list(SCREEN)
        assert answer(diagnosis).startswith("No verdict. The times of worker 3 are 1,000 times those of the others")

    def test_the_smaller_part_is_the_one_to_convert(self):
        doubt = the(find_doubt(trace(noise(60, 6) * [1, 1e6, 1e6, 1e6, 1e6, 1e6])))
        assert "The times of worker 0 are 1/1,000,000 of those of the others" in doubt.reason

    def test_times_that_only_grow_are_clocks(self):
        assert "worker 4 only grow" in the(find_doubt(trace(self.clocks()))).reason
        assert "all workers only grow" in the(find_doubt(trace(np.cumsum(noise(60, 3), axis=0)))).reason

    @pytest.mark.parametrize("times", [3.0, 50.0, 250.0])
    def test_a_slow_worker_is_only_slow(self, times):
        seconds = noise(60, 6) * [1, 1, times, 1, 1, 1]
        seconds[30:, 0] *= 3000  # one that hangs
        assert find_doubt(trace(seconds)) is None

    def test_a_cluster_that_becomes_slower_has_no_clocks(self):
        assert find_doubt(trace(noise(60, 6) * np.linspace(1, 5, 60)[:, None])) is None

    @pytest.mark.parametrize("kind", ["units", "clock", "clocks"])
    def test_the_commands_of_the_remedy_mend_the_table(self, kind, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        clean = noise(60, 6)
        seconds = {"units": self.UNITS, "clock": self.clocks(), "clocks": np.cumsum(clean, axis=0)}[kind]
        pd.DataFrame(seconds).to_csv("mine.csv", index=False)
        first = fred_command("diagnose", "mine.csv", "--unit", "s", "--out", "seen")
        assert first.code == 0 and first.out.count("python -c") == 1, first
        (program,) = re.findall(r'python -c "(.*)" && fred diagnose mended.csv --mend drop$', first.out, re.M)
        exec(program, {})  # the command that was printed
        mended = read("mended.csv", mend="drop").seconds
        expected = clean if kind == "units" else clean[1:]
        assert mended == pytest.approx(expected, rel=1e-6) and find_doubt(read("mended.csv")) is None

    def test_the_page_has_no_figures_and_tables_of_them(self):
        page = diagnosis_page(diagnose(trace(self.UNITS)))
        assert "No verdict." in page and "<img" not in page and "<table" not in page

    @pytest.mark.parametrize(
        "command", [["fit"], ["cutoffs"], ["train-cutoff", "--out", "m.npz"], ["diagnose", "--for", "digits"]]
    )
    def test_no_command_goes_on_with_them(self, command, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        pd.DataFrame(self.UNITS).to_csv("mine.csv", index=False)
        refused = fred_command(command[0], "mine.csv", "--unit", "s", *command[1:])
        assert refused.code == 2 and "mine.csv: The times of worker 3 are 1,000 times those of the others" in refused.err
        with pytest.raises(FredError, match="python -c"):
            refuse_doubtful(trace(self.UNITS))


class TestTheFirstScreen:
    CASES = ("slow", "chance", "long-names", "many", "pauses", "stalls", "alike", "units")

    @pytest.mark.parametrize("kind", CASES)
    def test_it_has_at_most_twelve_lines_of_a_terminal_of_80_columns(self, kind, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        seconds = noise(60, 12)
        names = [f"ip-10-12-0-{worker}.eu-west-1.compute.internal" for worker in range(12)]
        if kind in ("slow", "long-names", "many"):
            seconds[20:50, : {"slow": 1, "long-names": 3, "many": 5}[kind]] *= 4
            seconds[:, 9] *= 2
        if kind == "chance":
            seconds = noise(60, 12, 0.4)
        if kind == "pauses":
            seconds += 3 * ((np.arange(60)[:, None] + np.arange(12)) % 12 == 0)
        if kind == "stalls":
            seconds[::13] *= 9
        if kind == "units":
            seconds[:, 3] *= 1000
        pd.DataFrame(seconds, columns=names if kind == "long-names" else None).to_csv("mine.csv", index=False)
        printed = fred_command("diagnose", "mine.csv", "--unit", "s", columns=80).out
        screen = printed[printed.index("Verdict") :].split("\n\n")[0].rstrip().splitlines()
        assert len(screen) <= 12, screen
        assert max(len(line) for line in screen if "python -c" not in line) <= 80
        assert [line.split()[0] for line in screen if line[:1].strip()] == list(SCREEN)

    def test_no_sentence_is_there_twice(self):
        seconds = noise(120, 6) * [1, 1, 1, 1, 1, 2]
        lines = answer(diagnose(trace(seconds))).splitlines()
        assert len(lines) == len(set(lines))


class TestTheExample:
    @pytest.fixture(autouse=True)
    def real_rule(self, quick_rule, monkeypatch):
        monkeypatch.setattr(remedies, "RULE", "auto")

    def test_it_is_what_its_program_writes(self):
        assert example_trace.FILE.read_text(encoding="utf-8") == example_trace.text()

    @pytest.mark.slow
    def test_diagnose_fit_and_cutoffs_say_the_same_of_it(self):
        """A node is slow in spells, and a cutoff saves time."""
        diagnosis = diagnose(read("example"))
        (slow,) = diagnosis.slowness.slow
        assert slow.name == f"node {example_trace.NODE}" and slow.spells == example_trace.SPELLS and diagnosis.verdict == SAVES
        assert sections(diagnosis)["Why"] == [
            "Node 2 is 2.5 times slower in 5 spells of 13 to 26 iterations, 44 % of the time: 92 % of the loss goes if it is "
            "repaired."
        ]
        fitted = fred_command("fit", "example").out.splitlines()
        assert fitted[1].startswith("Node 2 is 2.5 times slower in spells of about 19 iterations, 40% of the time.")
        assert "A cutoff saves time here: `auto`" in fred_command("cutoffs", "example").out

    def test_each_line_that_the_page_explains_is_in_the_answer(self):
        text = (ROOT / "docs" / "how-to" / "sample-answer.md").read_text(encoding="utf-8")
        quotes = re.findall("^> (.*)$", text, re.MULTILINE)
        printed = answer(diagnose(read("example")))
        assert len(quotes) > 9 and [quote for quote in quotes if quote not in printed] == []

    def test_a_part_of_it_is_too_short_for_a_verdict(self):
        diagnosis = diagnose(trace(read("example").seconds[:60]))
        assert diagnosis.verdict == CANNOT_TELL and f"Record about {diagnosis.more_iterations} more iterations" in answer(
            diagnosis
        )
