"""A result folder on disk: written whole or not at all, readable by other programs, enough to run everything again."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fred import __version__, environment
from fred.errors import FredError
from fred.execution import Outcome
from fred.result import Result, summarise

FORMAT = 1  # of the folder, raised when a reader would have to change
_MANIFEST = "manifest.json"


def save(result: Result, path: Path, inline: bool = False) -> None:
    """Write the folder; an older result there is replaced once the new one is complete. Raises FredError."""
    with _staged(path) as stage:
        for outcome in result.outcomes:
            _save_outcome(outcome, stage / run_folder(outcome))
        _save_json(stage / "summary.json", [summarise(outcome) for outcome in result.outcomes])
        result.summary.to_csv(stage / "summary.csv", index=False)
        _save_json(stage / _MANIFEST, _manifest(result, inline))
        _save_figures(result, stage / "figures")


def read_manifest(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A result folder's manifest and summary. Raises FredError if it is not one that this version can read."""
    try:
        manifest = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
        summary = json.loads((path / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FredError(f"{path} is not a result folder: {error}") from None
    if manifest.get("format") != FORMAT:
        raise FredError(f"{path} has format {manifest.get('format')}; this version reads format {FORMAT}")
    return manifest, summary


def check_free(path: Path) -> None:
    """Refuse to write where something lies that is not a result of FRED's. Raises FredError."""
    if path.exists() and not (path / _MANIFEST).is_file() and (not path.is_dir() or any(path.iterdir())):
        raise FredError(f"{path} exists and is not a result folder; choose another with --out, or remove it")


def run_folder(outcome: Outcome) -> str:
    """Where, in the result folder, the files of one run with one seed lie."""
    return f"{outcome.name}/seed-{outcome.seed}"


@contextmanager
def _staged(path: Path) -> Iterator[Path]:
    """A folder beside `path` that takes its place if nothing goes wrong, and vanishes otherwise."""
    check_free(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    stage = path.parent / f".{path.name}.{os.getpid()}.partial"
    old = path.parent / f".{path.name}.{os.getpid()}.old"
    try:
        stage.mkdir()
        yield stage
        if path.exists():
            path.rename(old)
        stage.rename(path)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _save_outcome(outcome: Outcome, folder: Path) -> None:
    folder.mkdir(parents=True)
    outcome.schedule.save(folder / "schedule.parquet")
    outcome.metrics.to_parquet(folder / "metrics.parquet", index=False)
    outcome.metrics.to_csv(folder / "metrics.csv", index=False)
    if outcome.final:
        arrays = {f"{when}/{path}": array for when in ("initial", "final") for path, array in getattr(outcome, when).items()}
        np.savez(folder / "params.npz", **arrays)


def _save_figures(result: Result, folder: Path) -> None:
    folder.mkdir()
    if "loss" in result.metrics:
        result.plot_loss().save(folder / "loss.svg")
        result.plot_error().save(folder / "error.svg")
    result.plot_staleness().save(folder / "staleness.svg")
    if any(outcome.run.protocol.has_clock for outcome in result.outcomes):
        result.plot_timeline().save(folder / "timeline.svg")


def _manifest(result: Result, inline: bool) -> dict[str, Any]:
    names = {outcome.name for outcome in result.outcomes}
    scenario = result.scenario.model_dump(mode="json")
    scenario["runs"] = {name: run for name, run in scenario["runs"].items() if name in names}
    return {
        "format": FORMAT,
        "fred": __version__,
        "inline": inline,
        "environment": environment.describe(),
        "data": {run_folder(outcome): outcome.data_digest for outcome in result.outcomes},
        "scenario": scenario,
    }


def _save_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
