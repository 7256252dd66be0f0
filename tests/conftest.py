"""Shared by all tests: FRED is imported before jax, and small scenarios are made in one line."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import fred  # noqa: F401  first of all: it sets the numeric environment
from fred.scenario.loading import validated
from fred.scenario.shape import Run

settings.register_profile("fred", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("fred")

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared" / "data"

TASK = {"data": {"name": "synthetic-classification", "examples": 600, "evaluation": 100, "features": 8, "classes": 4}}
TASK |= {"model": {"name": "mlp", "hidden": [6]}, "batch_size": 4}
COMPUTE = {"name": "lognormal", "median": 0.1, "sigma": 0.4}


def make_run(algorithm: Any = "asgd", **options: Any) -> Run:
    """A small run; keyword arguments replace its parts."""
    if isinstance(algorithm, str):
        algorithm = {"name": algorithm, "learning_rate": 0.1}
    whole = {"task": TASK, "cluster": {"workers": 4, "compute": COMPUTE}, "stop": {"gradients": 60}}
    specification = {"runs": {"run": {**whole, "algorithm": algorithm, "evaluate": {"points": 3}, **options}}}
    return validated(specification, lambda keys: ".".join(map(str, keys))).runs["run"]


@pytest.fixture
def data_folder() -> Path:
    """The shared data, which the project never contains."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the data folder {os.path.relpath(SHARED, ROOT)}")
    return SHARED
