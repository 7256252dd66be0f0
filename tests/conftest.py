"""Shared by all tests: FRED is imported before jax, and a program that one process has compiled is not compiled again.

JAX writes an entry of its cache once. A process that reads a half-written entry warns that it is damaged, and compiles.
"""

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import settings

_COMPILED = Path(__file__).parent.parent / ".pytest_cache" / "compiled"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_COMPILED))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ["FRED_CACHE"] = "off"  # the user's, which is not used beside jax's own, nor by processes without that

import fred  # noqa: E402, F401  before jax: it sets the numeric environment
from fred.components import registry  # noqa: E402
from tests.progress import pytest_collection_modifyitems, pytest_configure  # noqa: E402, F401  hooks of pytest

settings.register_profile("fred", deadline=None, max_examples=15, derandomize=True)
settings.load_profile("fred")

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared" / "data"


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write result folders without figures and without a page: these take longer than a small run."""
    monkeypatch.setattr("fred.results.folder.figures_drawn", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr("fred.results.folder.page", lambda *_: "")


@pytest.fixture(autouse=True)
def _modules_of_one_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes import all modules that this one has allowed, and the files of earlier tests are gone."""
    monkeypatch.setattr(registry, "_importable", dict(registry._importable))


@pytest.fixture
def data_folder() -> Path:
    """The shared data, which the project never contains."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the data folder {os.path.relpath(SHARED, ROOT)}")
    return SHARED
