"""A result folder on disk: written whole or not at all, readable by other programs, enough to run everything again."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, TypeAdapter, ValidationError

from fred import environment
from fred.errors import FredError
from fred.results.result import Result, run_times, summarise
from fred.running.execution import Outcome
from fred.version import __version__

FORMAT = 2  # of the folder, raised when a reader would have to change
_MANIFEST = "manifest.json"
_OURS = re.compile(
    r"manifest\.json|summary\.(json|csv)|figures/\w+\.svg|[^/]+/seed-\d+/(schedule|metrics|params|run-times)\.\w+"
)


class Manifest(BaseModel):
    """What manifest.json holds: all that is needed to run a result again."""

    format: int
    fred: str  # its version
    inline: bool
    environment: dict[str, str]
    data: dict[str, str | None]  # digests, by run folder
    scenario: dict[str, Any]  # resolved


class Digests(BaseModel):
    """The identity of a run's timing and of its arithmetic (None: no task)."""

    schedule: str
    params: str | None


class Row(BaseModel):
    """What summary.json holds for one run with one seed, as far as it identifies the run."""

    name: str
    seed: int
    digests: Digests

    @property
    def folder(self) -> str:
        """Where, in the result folder, the run's files lie."""
        return run_folder(self.name, self.seed)


def save(result: Result, path: Path, inline: bool = False) -> None:
    """Write the folder; an older result there is replaced once the new one is complete. Raises FredError."""
    with _staged(path) as stage:
        for outcome in result.outcomes:
            _save_outcome(outcome, stage / run_folder(outcome.name, outcome.seed))
        _save_json(stage / "summary.json", [summarise(outcome) for outcome in result.outcomes])
        result.summary.to_csv(stage / "summary.csv", index=False)
        _save_json(stage / _MANIFEST, _manifest(result, inline))
        _save_figures(result, stage / "figures")


def read_manifest(path: Path) -> tuple[Manifest, list[Row]]:
    """A result folder's manifest and summary. Raises FredError if it is not one that this version can read."""
    manifest, summary = _json(path / _MANIFEST), _json(path / "summary.json")
    if isinstance(manifest, dict) and manifest.get("format", FORMAT) != FORMAT:
        raise FredError(f"{path} has format {manifest['format']}; this version reads format {FORMAT}")
    try:
        recorded, rows = Manifest.model_validate(manifest), TypeAdapter(list[Row]).validate_python(summary)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise FredError(f"{path} is not a whole result folder: {error.title} {place}: {first['msg']}") from None
    known = recorded.scenario.get("runs", {})
    if not rows or {row.folder for row in rows} != recorded.data.keys() or any(row.name not in known for row in rows):
        raise FredError(f"{path} is not a whole result folder: manifest.json and summary.json do not name the same runs")
    return recorded, rows


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FredError(f"{path.parent} is not a result folder: {error}") from None


def check_free(path: Path) -> None:
    """Refuse a place where the folder cannot be written, or where anything but a result of FRED's lies. Raises FredError.

    A file that somebody added to a result is refused too, by name: it would be gone when the result is replaced.
    """
    with _said(path):
        path = Path(os.path.realpath(path))
        if path.exists() and not _is_result(path) and (not path.is_dir() or any(path.iterdir())):
            raise FredError(f"{path} exists and is not a result folder; choose another with --out, or remove it")
        files = [file.relative_to(path).as_posix() for file in sorted(path.rglob("*")) if not file.is_dir()]
        foreign = next((file for file in files if not _OURS.fullmatch(file)), None)
        if foreign:
            raise FredError(f"{path / foreign} is not a file of FRED's; move it elsewhere, or choose another folder with --out")
        trial = next(folder for folder in path.parents if folder.exists()) / _beside(path, "partial").name
        trial.mkdir()
        trial.rmdir()


def run_folder(name: str, seed: int) -> str:
    """Where, in the result folder, the files of one run with one seed lie."""
    return f"{name}/seed-{seed}"


def _is_result(path: Path) -> bool:
    try:
        manifest = _json(path / _MANIFEST)
    except FredError:
        return False
    return isinstance(manifest, dict) and manifest.keys() >= Manifest.model_fields.keys()


@contextmanager
def _said(path: Path) -> Iterator[None]:
    """The system's objections to a place as FredErrors."""
    try:
        yield
    except OSError as error:
        raise FredError(f"cannot write {path}: {error.strerror or error}; choose another folder with --out") from error


def _beside(path: Path, what: str) -> Path:
    return path.parent / f".{path.name}.{os.getpid()}.{what}"


@contextmanager
def _staged(path: Path) -> Iterator[Path]:
    """A folder beside `path` that takes its place if nothing goes wrong, and vanishes otherwise."""
    check_free(path)
    path = Path(os.path.realpath(path))
    stage, old = _beside(path, "partial"), _beside(path, "old")
    try:
        with _said(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            stage.mkdir()
            yield stage
            if path.exists():
                path.rename(old)
            stage.rename(path)
    finally:
        if old.exists() and not path.exists():
            old.rename(path)
        shutil.rmtree(stage, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _save_outcome(outcome: Outcome, folder: Path) -> None:
    folder.mkdir(parents=True)
    outcome.schedule.save(folder / "schedule.parquet")
    if outcome.run.protocol.has_clock:
        run_times(outcome).to_parquet(folder / "run-times.parquet", index=False)
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
    if "disagreement" in result.metrics:
        result.plot_disagreement().save(folder / "disagreement.svg")
    result.plot_traffic().save(folder / "traffic.svg")
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
        "data": {run_folder(outcome.name, outcome.seed): outcome.data_digest for outcome in result.outcomes},
        "scenario": scenario,
    }


def _save_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
