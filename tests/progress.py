"""One line of progress for thousands of tests: how many have ended, how many failed, and the time.

On a terminal the line is written again each half second; elsewhere, as in CI, a new one appears each minute.
"""

import sys
import time

import pytest


class Progress:
    """The line of progress and its counts.

    Args:
        total: number of tests that are selected.
    """

    def __init__(self, total: int):
        self.total, self.done, self.failed = total, 0, 0
        self.begin = self.shown = time.monotonic()
        self.redrawn = sys.stdout.isatty()

    def add(self, failed: bool) -> None:
        """Count a test that has ended."""
        self.done += 1
        self.failed += failed
        now = time.monotonic()
        if now - self.shown >= (0.5 if self.redrawn else 60.0) or (self.redrawn and self.done == self.total):
            self.shown = now
            minutes, seconds = divmod(int(now - self.begin), 60)
            failures = f", {self.failed} failed" if self.failed else ""
            line = f"{self.done:,} of {self.total:,} tests{failures}, {minutes}:{seconds:02}"
            print(f"\r{line}" if self.redrawn else f"{line}\n", end="", file=sys.__stdout__, flush=True)


class _Plugin:
    def __init__(self) -> None:
        self._progress: Progress | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Leave out the letter of a test that passes or is skipped."""
        if report.passed:
            return ("passed" if report.when == "call" else "", "", "")
        return ("skipped", "", "") if report.skipped else None

    @pytest.hookimpl(trylast=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Learn the number of tests from a worker."""
        self._progress = self._progress or Progress(len(ids))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test once: when it is called, or when its setup does not let it be."""
        if self._progress and (report.when == "call" or (report.when == "setup" and not report.passed)):
            self._progress.add(report.failed)


def pytest_configure(config: pytest.Config) -> None:
    """Replace pytest's letters where tests are spread over processes; a few files alone keep them."""
    if (
        getattr(config.option, "verbose", 0) < 0
        and getattr(config.option, "numprocesses", None)
        and not hasattr(config, "workerinput")
    ):
        config.pluginmanager.register(_Plugin(), "fred-progress")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files whose tests take longest first, so that no process ends with a long one alone."""
    first = ("test_every_case", "test_fuzz", "test_deep", "test_cores", "test_own_code")
    items.sort(key=lambda item: not item.path.stem.startswith(first))
