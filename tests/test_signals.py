"""Being told to stop: once is enough, even where somebody takes the first time for their own; and progress in a notebook."""

import atexit
import importlib
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import IPython.display
import pytest
from rich.console import Console

import fred
from fred.base import ownership, progress, signals, staging
from fred.base.tally import COMPILED, Tally
from fred.commands import cli, printing
from fred.running.parallel import _Watched
from fred.running.unit import Unit
from fred.specification import loading
from tests.conftest import ROOT


@pytest.fixture(autouse=True)
def as_on_a_terminal() -> Iterator[None]:
    """Programs in the background of a shell ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_either_signal_stops_and_is_the_exit_code(number):
    with pytest.raises(KeyboardInterrupt), signals.heeded():
        os.kill(os.getpid(), number)
        time.sleep(5)
    assert signals.exit_code() == 128 + number


def test_who_goes_on_all_the_same_is_told_again(monkeypatch):
    monkeypatch.setattr(signals, "_REPEATED", 0.5)
    with signals.heeded():
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                time.sleep(5)
    time.sleep(0.7)  # afterwards nobody is told anything


def test_afterwards_signals_are_as_before_and_others_own_stay():
    def own(number, frame):
        heard.append(number)

    heard: list[int] = []
    before = signal.signal(signal.SIGINT, own)
    try:
        terminated = signal.getsignal(signal.SIGTERM)
        with signals.heeded():
            assert signal.getsignal(signal.SIGTERM) is not terminated
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        assert (heard, signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == ([2], own, terminated)
    finally:
        signal.signal(signal.SIGINT, before)


def test_without_a_signal_the_exit_code_is_that_of_an_interrupt():
    with signals.heeded():
        pass
    assert signals.exit_code() == 130


_STRUCK = """
import atexit, os, runpy, signal, sys
name, number = sys.argv[1], int(sys.argv[2])
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
sys.meta_path.insert(0, Striking())
sys.argv[1:] = sys.argv[3:]
runpy.run_module("fred", run_name="__main__")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("module", "arguments", "words"),
    [
        ("fred.commands.cli", ["run", "x.yaml"], "nothing was started"),
        ("argparse", ["list"], "nothing was started"),
        ("fred.results.experiment", ["run", "quickstart"], "nothing was started"),
        ("numpy", ["run", "x.yaml"], "nothing was started"),
        ("the end", ["--version"], "nothing was started"),
        ("the end", ["list", "--kinds"], "nothing was started"),
        ("the end", ["list", "algorithm"], "it had finished"),
    ],
)
def test_in_the_first_second_and_in_the_last_it_is_one_line(number, module, arguments, words, tmp_path):
    command = [sys.executable, "-c", _STRUCK, module, str(int(number)), *arguments]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 128 + number
    assert done.stderr.splitlines()[-1] == f"fred: interrupted; {words}"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_when_nothing_is_left_to_be_stopped_it_is_too_late(number):
    command = [sys.executable, "-c", _STRUCK, "the very end", str(int(number)), "list", "algorithm"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_ignored_stays_ignored(monkeypatch):
    """As in the background of a shell, or with `nohup`."""
    for name in ("_is_program", "_words"):
        monkeypatch.setattr(signals, name, getattr(signals, name))  # so that it is undone
    monkeypatch.setattr(atexit, "register", lambda *_: None)
    before = {signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN), signal.SIGTERM: signal.getsignal(signal.SIGTERM)}
    signals.at_once()
    found = {number: signal.getsignal(number) for number in before}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert found == {signal.SIGINT: signal.SIG_IGN, signal.SIGTERM: signals._end}


def test_an_import_is_not_cut_in_two(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    Path(tmp_path, "slow_to_import.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(0.2)\nwhole = True\n"
    )
    with pytest.raises(KeyboardInterrupt), signals.heeded():
        importlib.import_module("slow_to_import")
        time.sleep(5)
    assert sys.modules.pop("slow_to_import").whole
    assert signals.exit_code() == 143


def test_where_nothing_can_be_raised_it_is_told_again_at_once(capsys):
    class Dying:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.1)

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), signals.heeded():
        Dying()
        time.sleep(5)
    assert time.monotonic() - began < 1.5
    assert capsys.readouterr().err == ""


def test_an_import_without_end_is(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(signals, "_PATIENCE", 0.2)
    Path(tmp_path, "endless_import.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(9)\n"
    )
    with pytest.raises(KeyboardInterrupt), signals.heeded():
        importlib.import_module("endless_import")


def test_what_an_interrupt_has_become_on_its_way_is_one(capsys, monkeypatch):
    def disturbed(options):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        except KeyboardInterrupt:
            raise ImportError("cannot import name") from None

    monkeypatch.setattr("fred.commands.listing.run", disturbed)
    assert cli.main(["list"]) == 143
    assert capsys.readouterr().err == "\nfred: interrupted\n"


def test_what_is_said_in_the_end_is_what_the_first_one_had_to_say(capsys, monkeypatch):
    def disturbed(options):
        try:
            with signals.saying(lambda: "2 units are kept"):
                raise KeyboardInterrupt
        finally:
            with signals.saying(lambda: "nothing was written"):
                raise KeyboardInterrupt  # once more, while it is being dealt with

    monkeypatch.setattr("fred.commands.listing.run", disturbed)
    assert cli.main(["list"]) == 130
    assert capsys.readouterr().err == "\nfred: interrupted; 2 units are kept\n"


class TestWhatARunSays:
    """Whenever it is interrupted, and whatever an earlier one has left."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        Path("x.yaml").write_text(
            "algorithm: {name: asgd, learning_rate: 0.1}\ncluster: {workers: 2}\nstop: {updates: 3}\nseeds: [0, 1]\n"
        )

    def said(self, capsys) -> str:
        assert cli.main(["run", "x.yaml", "--out", "out"]) == 130
        return capsys.readouterr().err.splitlines()[-1]

    @pytest.mark.parametrize("where", [(loading, "load"), (staging, "check_free"), (ownership, "cut_links")])
    @pytest.mark.parametrize(("units", "words"), [(0, "nothing was written"), (1, "1 unit is kept"), (2, "2 units are kept")])
    def test_before_the_work(self, where, units, words, capsys, monkeypatch, tmp_path):
        with staging.opened(tmp_path / "out") as stage:
            for seed in range(units):
                (stage / f"asgd/seed-{seed}").mkdir(parents=True)
                (stage / f"asgd/seed-{seed}/unit.json").touch()

        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(*where, interrupted)
        said = self.said(capsys)
        assert words in said
        assert ("from an earlier run" in said) == bool(units)
        assert stage.exists() == bool(units)

    def test_after_the_work(self, capsys, monkeypatch):
        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(printing, "print_summary", interrupted)
        assert self.said(capsys) == "fred: interrupted; the result is complete: out"
        assert staging.is_result(Path("out"))

    def test_between_the_exchange_and_the_end(self, capsys, monkeypatch):
        def interrupted(*_):
            raise KeyboardInterrupt

        assert cli.main(["run", "x.yaml", "--out", "out", "--set", "stop.updates=2"]) == 0
        monkeypatch.setattr(ownership, "hand_over", interrupted)
        assert "the result is complete: " in self.said(capsys)
        monkeypatch.undo()


def test_colours_that_a_notebook_forces_on_its_shells_make_no_terminal(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress.bars(1) as show:
        show("asgd", 0.5)
    assert capsys.readouterr() == ("", "")


def test_a_notebook_shows_one_line_that_changes(monkeypatch):
    shown: list[str] = []

    class Handle:
        def update(self, words):
            shown.append(f"again: {words.data}")

    def display(words, display_id):
        assert display_id is True
        shown.append(words.data)
        return Handle()

    now = [100.0]
    monkeypatch.setattr(IPython.display, "display", display)
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with progress.bars(2) as show:
        for second, what, share in (
            (1, "asgd", 0.1),
            (3, "asgd", 0.5),
            (3.1, "asgd", 0.6),
            (6, "asgd", 1.0),
            (9, "ssgd", 0.5),
            (9.1, "ssgd", 1),
        ):
            now[0] = 100.0 + second
            show(what, share)
    assert shown == [
        "0 of 2 done, about 8 s left (asgd: 50%)",
        "again: 1 of 2 done, about 6 s left",
        "again: 1 of 2 done, about 3 s left (ssgd: 50%)",
        "again: 2 of 2 done",
    ]


def test_what_is_compiled_first_does_not_make_the_rest_longer(monkeypatch):
    """Ten seconds of nothing, then 2 % of the only thing each second: at 30 s there are 30 s left, not 45."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    tally = Tally(1)
    for second in range(31):
        now[0] = float(second)
        tally.note("asgd", max(0.0, 0.02 * (second - 10)))
    assert tally.words() == "asgd: 40%, about 30 s left"


def test_time_left_adds_expected_compilations_and_excludes_those_before(monkeypatch):
    """Three programs of 10 s each: after the first, and 1 of 3 tasks in 2 s, there are 2 x 10 + 4 s left, not 24 + 12."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(COMPILED, "_seconds", 0.0)
    COMPILED.expect(3)
    tally = Tally(3)
    tally.note("asgd", 0.0)
    with progress.compiling():
        now[0] = 10.0
    for second in range(21):
        now[0] = 10.0 + second / 10
        tally.note("asgd", second / 20)
    assert tally.words() == "1 of 3 done, about 24 s left"


TIMED = {"cluster": {"workers": 1}, "algorithm": {"name": "asgd", "learning_rate": 1}, "stop": {"updates": 1}}


def test_a_unit_that_another_process_finishes_between_two_looks_counts(tmp_path):
    reports: list[float] = []
    unit = Unit("asgd", fred.scenario(TIMED).runs["asgd"], 0)
    watched = _Watched([unit], tmp_path, lambda *told: reports.append(told[2]))
    (tmp_path / unit.folder).mkdir(parents=True)
    assert watched._look([unit]) == []
    assert reports == [0.0, 1.0]


def test_on_a_narrow_terminal_only_names_are_cut():
    written = io.StringIO()
    with progress._on_terminal(Console(file=written, force_terminal=True, width=60), 72) as show:
        show("backup-workers,learning_rate=0.00984, seed 1", 0.5)
    lines = [line for line in written.getvalue().split("\n") if "of 72" in line]
    assert lines
    assert all("0 of 72 done" in line and "0:00:0" in line for line in lines)
