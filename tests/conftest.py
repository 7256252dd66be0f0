"""Shared by all tests: FRED is imported before jax."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

import fred  # noqa: F401  first of all: it sets the numeric environment

settings.register_profile("fred", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("fred")

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared" / "data"


@pytest.fixture
def data_folder() -> Path:
    """The shared data, which the project never contains."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the data folder {os.path.relpath(SHARED, ROOT)}")
    return SHARED
