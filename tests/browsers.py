"""The browser in which pages are tested: Debian's chromium, which `.ci/run` installs, or another Chromium that is there."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")


@contextmanager
def browser() -> Iterator[Any]:
    """Start a browser without a window; skip the test if there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"needs one of the browsers {', '.join(NAMES)}")
    with playwright.sync_playwright() as driver:
        instance = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        yield instance
        instance.close()
