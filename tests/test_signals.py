"""Ctrl-C and SIGTERM: once is enough, and the program reports the remaining work; the progress of long tasks."""

import importlib
import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import IPython.display
import pytest

from fred.base import disk, process, progress, staging
from fred.base.progress import COMPILED, Tally
from fred.commands import printing
from fred.specification import loading
from tests.conftest import ROOT
from tests.places import fill
from tests.program import fred_command


@pytest.fixture(autouse=True)
def as_on_a_terminal() -> Iterator[None]:
    """Programs in the background of a shell ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt(number: signal.Signals = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)
    time.sleep(5)


class TestHeeded:
    def test_either_signal_interrupts_until_the_block_ends_and_is_the_exit_code(self, monkeypatch):
        monkeypatch.setattr(process, "_REPEATED", 0.1)
        for number in (signal.SIGTERM, signal.SIGINT):
            with process.raise_interrupts():
                for act in (lambda number=number: interrupt(number), lambda: time.sleep(5), lambda: time.sleep(5)):
                    with pytest.raises(KeyboardInterrupt):
                        act()
            assert process.exit_code() == 128 + number
        time.sleep(0.3)
        with process.raise_interrupts():
            pass
        assert process.exit_code() == 130, "that of an interrupt"

    def test_afterwards_handlers_are_as_before_and_those_of_others_stay(self):
        received: list[int] = []
        handler, terminated = (lambda number, frame: received.append(number)), signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGINT, handler)
        with process.raise_interrupts():
            assert signal.getsignal(signal.SIGTERM) is not terminated
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        assert (received, signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == ([2], handler, terminated)

    def test_an_import_is_completed_first_unless_it_takes_too_long(self, tmp_path, monkeypatch):
        monkeypatch.syspath_prepend(str(tmp_path))
        code = "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep({})\nwhole = True\n"
        for name, seconds in (("slow_to_import", 0.2), ("endless_import", 9)):
            (tmp_path / f"{name}.py").write_text(code.format(seconds))
        with pytest.raises(KeyboardInterrupt), process.raise_interrupts():
            importlib.import_module("slow_to_import")
            time.sleep(5)
        assert sys.modules.pop("slow_to_import").whole and process.exit_code() == 143
        monkeypatch.setattr(process, "_PATIENCE", 0.2)
        with pytest.raises(KeyboardInterrupt), process.raise_interrupts():
            importlib.import_module("endless_import")

    def test_an_interrupt_that_python_cannot_raise_is_raised_again_at_once(self, capsys):
        class Dying:
            def __del__(self) -> None:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.1)

        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt), process.raise_interrupts():
            Dying()
            time.sleep(5)
        assert time.monotonic() - began < 1.5 and capsys.readouterr().err == ""


_STRUCK = """
import atexit, os, runpy, signal, sys
name, number, ignored = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "ignored"
class Striking:
    def find_spec(self, module, *_):
        if module == name:
            os.kill(os.getpid(), number)
        if (name, module) == ("the end", "fred.commands.cli"):
            atexit.register(os.kill, os.getpid(), number)
if name == "the very end":
    atexit.register(os.kill, os.getpid(), number)
for each in signal.SIGINT, signal.SIGTERM:
    signal.signal(each, signal.default_int_handler if each == signal.SIGINT else signal.SIG_DFL)
if ignored:
    signal.signal(number, signal.SIG_IGN)
sys.meta_path.insert(0, Striking())
sys.argv[1:] = sys.argv[4:]
runpy.run_module("fred", run_name="__main__")
"""


def struck(module: str, number: signal.Signals, *arguments: str, way: str = "heeded") -> tuple[int, str]:
    command = [sys.executable, "-c", _STRUCK, module, str(int(number)), way, *arguments]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("module", "number", "arguments", "words"),
    [
        ("fred.commands.cli", signal.SIGTERM, ["run", "x.yaml"], "nothing was started"),
        ("argparse", signal.SIGINT, ["list"], "nothing was started"),
        ("fred.results.experiment", signal.SIGTERM, ["run", "quickstart"], "nothing was started"),
        ("the end", signal.SIGTERM, ["--version"], "nothing was started"),
        ("the end", signal.SIGINT, ["list", "systems"], "it had finished"),
    ],
)
def test_a_signal_at_the_start_or_the_end_is_reported_in_a_line(module, number, arguments, words):
    code, err = struck(module, number, *arguments)
    assert code == 128 + number and err.splitlines()[-1] == f"fred: interrupted; {words}"
    assert "Traceback" not in err


def test_a_signal_that_is_too_late_or_ignored_changes_nothing():
    """Signals are ignored in the background of a shell, or with `nohup`."""
    assert struck("the very end", signal.SIGTERM, "list", "systems") == (0, "")
    assert struck("argparse", signal.SIGINT, "list", "systems", way="ignored") == (0, "")


class TestCommand:
    def test_an_exception_that_an_interrupt_becomes_is_an_interrupt(self, monkeypatch):
        def disturbed(options):
            try:
                interrupt()
            except KeyboardInterrupt:
                raise ImportError("cannot import name") from None

        monkeypatch.setattr("fred.commands.listing.run", disturbed)
        assert fred_command("list") == (143, "", "\nfred: interrupted\n")

    def test_the_message_is_that_of_the_first_interrupt(self, monkeypatch):
        def disturbed(options):
            try:
                with process.add_note(lambda: "2 units are kept"):
                    raise KeyboardInterrupt
            finally:
                with process.add_note(lambda: "nothing was written"):
                    raise KeyboardInterrupt  # once more, during the cleanup

        monkeypatch.setattr("fred.commands.listing.run", disturbed)
        assert fred_command("list") == (130, "", "\nfred: interrupted; 2 units are kept\n")

    @pytest.mark.usefixtures("undrawn")
    def test_an_interrupted_run_says_what_is_stored_by_it_or_an_earlier_one(self, tmp_path, monkeypatch):
        def message(*where: Any) -> str:
            with monkeypatch.context() as patch:
                patch.setattr(*where, MagicMock(side_effect=KeyboardInterrupt))
                answer = fred_command("run", "x.yaml", "--out", "out")
            assert answer.code == 130
            return answer.err.splitlines()[-1]

        monkeypatch.chdir(tmp_path)
        settings = "algorithm: {name: asgd, learning_rate: 0.1}\ncluster: {workers: 2}\nstop: {updates: 3}\nseeds: [0, 1]\n"
        Path("x.yaml").write_text(settings)
        for units, words in ((0, "nothing was written"), (1, "1 unit is kept"), (2, "2 units are kept")):
            for where in ((loading, "load"), (staging, "check_free"), (disk, "cut_links")):
                with staging.opened(Path("out")) as stage:
                    fill(stage, {f"asgd/seed-{seed}/unit.json": "" for seed in range(units)})
                text = message(*where)
                assert words in text and ("from an earlier run" in text) == bool(units), where
                assert stage.exists() == bool(units), where
        assert message(printing, "print_summary") == "fred: interrupted; the result is complete: out"
        assert staging.is_result(Path("out"))
        Path("x.yaml").write_text(settings.replace("3", "2"))
        assert "the result is complete: " in message(staging, "_remove"), "between the exchange and the end"


class TestProgress:
    def test_colours_that_a_notebook_forces_on_its_shells_make_no_terminal(self, monkeypatch, capsys):
        monkeypatch.setenv("FORCE_COLOR", "1")
        with progress.bars(1) as show:
            show("asgd", 0.5)
        assert capsys.readouterr() == ("", "")

    def test_a_notebook_shows_one_line_that_changes_and_vanishes(self, clock, monkeypatch):
        lines: list[str] = []

        def display(words, display_id):
            lines.append(words.data)
            return SimpleNamespace(update=lambda words: lines.append(f"again: {words.data}"))

        monkeypatch.setattr(IPython.display, "display", display)
        monkeypatch.setattr(progress, "in_notebook", lambda: True)
        reports = ((1, "asgd", 0.1), (3, "asgd", 0.5), (3.1, "asgd", 0.6), (6, "asgd", 1.0), (9, "ssgd", 0.5), (9.1, "ssgd", 1))
        with progress.bars(2) as show:
            for second, task, share in reports:
                clock[0] = second
                show(task, share)
        assert lines == [
            "0 of 2 done, about 8 s left (asgd: 50%)",
            "again: 1 of 2 done, about 6 s left",
            "again: 1 of 2 done, about 3 s left (ssgd: 50%)",
            "again: ",
        ]

    def test_on_a_narrow_terminal_only_names_are_cut_and_it_shows_what_a_run_waits_for(self, monkeypatch):
        terminal = io.StringIO()
        monkeypatch.setattr(terminal, "isatty", lambda: True)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(sys, "stderr", terminal)
        for columns, name in ((60, "backup-workers,learning_rate=0.00984, seed 1"), (100, "fasgd, seed 1")):
            monkeypatch.setenv("COLUMNS", str(columns))
            with progress.bars(72) as show:
                show(name, 0.5)
                with progress.show_activity("compiling"):
                    time.sleep(0.3)
        lines = [line for line in terminal.getvalue().split("\n") if "of 72" in line]
        assert lines and all("0 of 72 done" in line and "0:00:0" in line for line in lines)
        assert "fasgd, seed 1, compiling" in terminal.getvalue()

    @pytest.fixture
    def clock(self, monkeypatch) -> list[float]:
        clock = [0.0]
        for name, value in vars(progress.Compiled()).items():  # without what other tests compiled
            monkeypatch.setattr(COMPILED, name, value)
        monkeypatch.setattr(time, "monotonic", lambda: clock[0])
        return clock

    def test_the_time_left_excludes_the_time_before_the_first_progress(self, clock):
        """Ten seconds of nothing, then 2 % of the only task each second: at 30 s there are 30 s left, not 45."""
        tally = Tally(1)
        for second in range(31):
            clock[0] = float(second)
            tally.note("asgd", max(0.0, 0.02 * (second - 10)))
        assert tally.words() == "asgd: 40%, about 30 s left"

    def test_the_time_left_adds_expected_compilations_and_excludes_those_before(self, clock, monkeypatch):
        """Three programs of 10 s each: after the first, and 1 of 3 tasks in 2 s, there are 2 x 10 + 4 s left, not 24 + 12."""
        monkeypatch.setattr(COMPILED, "_seconds", 0.0)
        COMPILED.expect(3)
        tally = Tally(3)
        tally.note("asgd", 0.0)
        with progress.compiling():
            clock[0] = 10.0
        for second in range(21):
            clock[0] = 10.0 + second / 10
            tally.note("asgd", second / 20)
        assert tally.words() == "1 of 3 done, about 24 s left"

    def test_the_time_left_after_a_pause_is_at_most_that_of_three_times_the_mean_pace(self, clock):
        """One task a second for 10 s, then 30 s in which processes start: 4 s a task on average, so no more than 12 s each."""
        tally = Tally(20)
        for second in range(11):
            clock[0] = float(second)
            tally.note(str(second), 0.0)
            if second:
                tally.note(str(second - 1), 1.0)
        for second in range(11, 41):
            clock[0] = float(second)
            tally.note("10", (second - 10) / 3000)
        (minutes,) = map(float, re.findall(r"about ([0-9.]+) min left", tally.words()))
        assert 1.5 <= minutes <= 10 * 12 / 60 + 0.05
