"""Being told to stop: once is enough, even where somebody takes the first time for their own; and progress in a notebook."""

import os
import signal
import time

import IPython.display
import pytest

from fred import interruption, progress


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_either_signal_stops_and_is_the_exit_code(number):
    with pytest.raises(KeyboardInterrupt), interruption.heeded():
        os.kill(os.getpid(), number)
        time.sleep(5)
    assert interruption.exit_code() == 128 + number


def test_who_goes_on_all_the_same_is_told_again(monkeypatch):
    monkeypatch.setattr(interruption, "_REPEATED", 0.5)
    with interruption.heeded():
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
        with interruption.heeded():
            assert signal.getsignal(signal.SIGTERM) is not terminated
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        assert (heard, signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == ([2], own, terminated)
    finally:
        signal.signal(signal.SIGINT, before)


def test_without_a_signal_the_exit_code_is_that_of_an_interrupt():
    with interruption.heeded():
        pass
    assert interruption.exit_code() == 130


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
        for second, what, share in ((1, "asgd", 0.1), (3, "asgd", 0.5), (3.1, "asgd", 0.6), (6, "asgd", 1.0), (9, "ssgd", 0.5)):
            now[0] = 100.0 + second
            show(what, share)
    assert shown == [
        "0 of 2 done, about 9 s left (asgd: 50%)",
        "again: 1 of 2 done, about 6 s left",
        "again: 1 of 2 done, about 3 s left (ssgd: 50%)",
    ]
