"""Result folders on disk: written completely or not at all, readable by other programs, sufficient to run all again."""

import hashlib
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from fred.base import disk, environment, staging
from fred.base.disk import BEST, FIGURES, MANIFEST, PAIRED, REPORT, SUMMARY, SUMMARY_TABLE, SWEEP
from fred.base.environment import __version__
from fred.base.errors import FredError
from fred.components.component import own_classes
from fred.results.result import Result
from fred.running import pool, stored
from fred.running.stored import Stored, write_json
from fred.running.units import Unit
from fred.specification.loading import Scenario, validated
from fred.specification.summary import Digests
from fred.views.page import MARK, Circumstances, page

if TYPE_CHECKING:
    from fred.views.figures import Picture


@contextmanager
def figures_drawn(result: Result, folder: Path) -> Iterator[None]:
    """Let worker processes draw figures during this context; at its end, draw the rest here.

    Args:
        result: the result to draw.
        folder: folder for an SVG file of each figure.
    """
    folder.mkdir(exist_ok=True)
    futures = _start_drawing(result, folder)
    try:
        yield
        _finish_drawing(result, folder, futures)
    finally:
        if not all(future.done() or future.cancel() for future in futures):
            pool.end()  # otherwise they would draw in the folder of a later result


def _start_drawing(result: Result, folder: Path) -> list[Future[list[str]]]:
    """Let idle worker processes draw; no more than they, as this process draws as well."""
    with suppress(Exception):  # they have just died: continue without them
        number = pool.number() if _same_everywhere(result) else 0
        return pool.submit(_draw, [(result, folder, k / (number + 1)) for k in range(number)])
    return []


def _same_everywhere(result: Result) -> bool:
    """Return True if another process would draw the same: a notebook may have changed matplotlib's settings."""
    return "matplotlib" not in sys.modules and not any(own_classes(outcome.run) for outcome in result.outcomes)


def _finish_drawing(result: Result, folder: Path, futures: Sequence[Future[list[str]]]) -> None:
    """Draw figures that no worker process has begun, from the last one back, and then those that one began but did not draw."""
    pictures, names = result.pictures(), {*_draw(result, folder, 1.0)}
    running = as_completed([future for future in futures if not future.cancel()])
    while pictures.keys() - names and (future := next(running, None)):
        with suppress(Exception):  # figures that it has taken are drawn here
            names |= {*future.result()}
    for name in pictures.keys() - names:
        _save(pictures[name], _file(folder, name))


def _draw(result: Result, folder: Path, share: float) -> list[str]:
    """Draw figures that no process has begun, from this share of the list on, then the earlier ones; return their names."""
    names, pictures = [], [*result.pictures().items()]
    first = round(share * len(pictures))
    for name, draw in [*pictures[first:], *reversed(pictures[:first])]:
        try:  # an empty file tells the other processes that the figure has been begun
            _file(folder, name).touch(exist_ok=False)
        except FileExistsError:
            continue
        _save(draw, _file(folder, name))
        names.append(name)
    return names


def _save(draw: "Callable[[], Picture]", file: Path) -> None:
    from fred.views.figures import save_or_note  # loads matplotlib

    save_or_note(draw, file)


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.svg"


FORMAT = 8  # of the folder; increased when readers would have to change


class Manifest(BaseModel):
    """The content of manifest.json: everything needed to run a result again, and to detect changes."""

    model_config = ConfigDict(allow_inf_nan=False)

    format: int
    fred: str  # its version
    file: str  # the scenario's file, relative to the folder's location; empty if there was none
    inline: bool
    environment: dict[str, str]
    written_by: dict[str, str]  # versions of the packages that made tables and figures
    data: dict[str, str | None]  # digests, by unit
    scenario: dict[str, Any]  # resolved
    files: dict[str, str]  # SHA-256 of all written files, by path
    date: str  # time of completion
    seconds: float  # summed over its units
    digest: str = ""  # of all of this


class Listed(BaseModel):
    """The part of summary.json that identifies one run with one seed."""

    name: str
    seed: int
    digests: Digests

    @property
    def folder(self) -> str:
        """Return the path of the run's files in the result folder."""
        return f"{self.name}/seed-{self.seed}"


@dataclass(frozen=True)
class AboutResult:
    """Facts about a result in addition to its runs."""

    parent: Path  # the folder that contains it, or will
    file: str = ""  # of the scenario
    inline: bool = False
    report: bool = True  # whether it has a page


def save(result: Result, path: Path, inline: bool = False) -> None:
    """Write a result to a folder; an older result there is replaced once the new one is complete. Raises FredError.

    Args:
        result: the runs, in memory or from another folder.
        path: the folder, created if necessary.
        inline: True if timing and arithmetic were computed at once; recorded in the manifest.
    """
    with staging.opened(path) as stage, staging.convert_errors(path):
        disk.keep_only(stage, [])
        done = list[Stored]()
        for outcome in result.outcomes:
            unit = Unit(outcome.name, outcome.run, outcome.seed, inline)
            (stage / unit.folder).mkdir(parents=True)
            stored.write(outcome, unit, stage / unit.folder, time.monotonic())
            done.append(stored.load(stage / unit.folder, outcome.run))
        complete(stage, result.scenario, done, AboutResult(Path(os.path.realpath(path)).parent, inline=inline))
        staging.publish(stage, path)


def complete(stage: Path, scenario: Scenario, units: Sequence[Stored], facts: AboutResult) -> None:
    """Write everything except the units to a result folder: summary, figures, report and, last, the manifest.

    Args:
        stage: the folder, which holds the units.
        scenario: the scenario; the units are its runs, or some of them.
        units: the units in the folder.
        facts: further facts to record.
    """
    stored.share(units)
    scenario = _computed(scenario, {unit.name for unit in units})
    result = Result(scenario, units)
    write_json(stage / SUMMARY, [unit.summary for unit in units])
    result.summary.to_csv(stage / SUMMARY_TABLE, index=False)
    if result.swept:
        result.sweep.to_csv(stage / SWEEP, index=False)
        result.best.to_csv(stage / BEST, index=False)
    if result.reported_outcomes and len(pairs := result.paired):
        pairs.to_csv(stage / PAIRED, index=False)
    with figures_drawn(result, stage / FIGURES):
        if facts.report:
            text = page(result, Circumstances(facts.file, environment.describe()))
            (stage / REPORT).write_text(text, encoding="utf-8")
    write_json(stage / MANIFEST, _manifest(stage, scenario, units, facts))


def load_result(path: str | Path) -> Result:
    """Return the result in a folder, equal to that of the run that wrote it. Raises FredError for an incomplete folder.

    Args:
        path: the folder. Its tables and arrays are read on demand.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    ...     algorithm={"name": "asgd", "learning_rate": 0.1},
    ...     stop={"updates": 4},
    ... )
    >>> result = fred.run(scenario, out="asgd")
    >>> fred.load_result("asgd").summary.equals(result.summary)
    True
    >>> fred.load_result("elsewhere")
    Traceback (most recent call last):
    ...
    fred.FredError: elsewhere is not a result folder: cannot read elsewhere/manifest.json: No such file or directory...
    """
    path = Path(path)
    manifest, rows = read_manifest(path)
    if name := changed(path, manifest, [SUMMARY]):
        raise FredError(f"{path / name} has changed (its digest differs): {stored.RESTORE}")
    place = path.resolve()  # outcomes are read later, possibly from another working directory
    of_manifest = f"{path / MANIFEST}: "
    scenario = validated(manifest.scenario, lambda keys: of_manifest + ".".join(map(str, keys)), place.parent, recorded=True)
    units = [stored.load(place / row.folder, scenario.runs[row.name]) for row in rows]
    for row, unit in zip(rows, units, strict=True):
        if (row.name, row.seed) != (unit.name, unit.seed):
            raise FredError(f"{path / row.folder} is not the folder of run `{row.name}` with seed {row.seed}")
    return Result(scenario, units)


def read_manifest(path: Path) -> tuple[Manifest, list[Listed]]:
    """Return a result folder's manifest and summary. Raises FredError if this version cannot read them."""
    manifest, summary = _json(path / MANIFEST), _json(path / SUMMARY)
    if isinstance(manifest, dict) and manifest.get("format", FORMAT) != FORMAT:
        raise FredError(
            f"{path} has format {manifest['format']!r}; this version reads format {FORMAT}: "
            "run its scenario again with `fred run`, into this folder or another one"
        )
    try:
        recorded, rows = Manifest.model_validate(manifest), TypeAdapter(list[Listed]).validate_python(summary)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise FredError(f"{path} is not a whole result folder: {error.title} {where}: {first['msg']}") from None
    runs = recorded.scenario.get("runs", {})
    if (
        not rows
        or not isinstance(runs, dict)
        or len({row.folder for row in rows}) < len(rows)
        or {row.folder for row in rows} != recorded.data.keys()
        or any(row.name not in runs for row in rows)
    ):
        raise FredError(f"{path} is not a whole result folder: manifest.json and summary.json do not name the same runs")
    return recorded, rows


def add_report(path: Path, out: Path | None = None) -> Path:
    """Write a result's page and return its path. Raises FredError.

    Args:
        path: the result folder; by default the page becomes one of its files.
        out: another file for the page; an existing one is replaced only if it is such a page.
    """
    result, file = load_result(path), path / REPORT
    manifest, _rows = read_manifest(path)
    if out is not None and os.path.realpath(out) != os.path.realpath(file):
        disk.check_free(out, lambda beginning: MARK in beginning)
        disk.write(out, page(result, Circumstances(manifest.file, manifest.environment)).encode())
        return out
    if file.exists() and REPORT not in manifest.files:
        raise FredError(f"{file} is not FRED's: move it elsewhere, or choose another file with --out")
    _put(file, page(result, Circumstances(manifest.file, manifest.environment)))
    facts = manifest.model_dump() | {"files": dict(sorted((manifest.files | {REPORT: disk.digest(file)}).items()))}
    _put(path / MANIFEST, json.dumps(facts | {"digest": _digest(facts)}, indent=2, allow_nan=False) + "\n")
    return file


def _put(file: Path, text: str) -> None:
    """Replace a file as a whole."""
    with disk.replaced(file) as new:
        new.write_text(text, encoding="utf-8")


def changed(path: Path, manifest: Manifest, names: Iterable[str] | None = None) -> str:
    """Return the first file of a result folder that is missing or has changed; empty if there is none.

    Args:
        path: the folder.
        manifest: its manifest; the manifest's own digest is checked first.
        names: paths of the files to check, relative to the folder; default: all that the manifest lists.
    """
    if manifest.digest != _digest(manifest.model_dump()):
        return MANIFEST
    for name in manifest.files if names is None else names:
        file = path / name
        if not file.is_file() or disk.digest(file) != manifest.files.get(name):
            return name
    return ""


def _computed(scenario: Scenario, names: Collection[str]) -> Scenario:
    """Return the scenario with only the runs that were computed."""
    runs = {name: run for name, run in scenario.runs.items() if name in names}
    points = {name: point for name, point in scenario.points.items() if name in names}
    names_of_runs = {*runs, *(point.of for point in points.values())}
    baseline = scenario.baseline if scenario.baseline in names_of_runs else None
    return scenario.model_copy(update={"runs": runs, "points": points, "baseline": baseline})


def _manifest(stage: Path, scenario: Scenario, units: Sequence[Stored], facts: AboutResult) -> dict[str, Any]:
    resolved = scenario.model_dump(mode="json", context={"paths": lambda path: path.relative_to(facts.parent)})
    manifest = {
        "format": FORMAT,
        "fred": __version__,
        "file": facts.file,
        "inline": facts.inline,
        "environment": environment.describe(),
        "written_by": writers(),
        "data": {unit.folder.relative_to(stage).as_posix(): unit.data_digest for unit in units},
        "scenario": resolved,
        "files": {name: disk.digest(stage / name) for name in result_files(stage)},
        "date": stored.date(),
        "seconds": round(sum(unit.record.seconds for unit in units), 3),
    }
    return manifest | {"digest": _digest(manifest)}


def result_files(stage: Path) -> list[str]:
    """Return the files of a result folder, finished or not; by path."""
    excluded = {stage / name for name in (MANIFEST, *disk.MARKS)}
    files = [file for file in sorted(stage.rglob("*")) if file.is_file() and file not in excluded]
    return [file.relative_to(stage).as_posix() for file in files]


def writers() -> dict[str, str]:
    """Return the versions of the packages that make tables and figures."""
    return {package: importlib.metadata.version(package) for package in ("matplotlib", "pandas", "pyarrow")}


def _digest(manifest: dict[str, Any]) -> str:
    covered = {name: value for name, value in manifest.items() if name != "digest"}
    return hashlib.sha256(json.dumps(covered, sort_keys=True).encode()).hexdigest()


def _no_number(word: str) -> None:
    """Raise ValueError for a number that Python reads, but JSON lacks."""
    raise ValueError(f"{word} is not a JSON number")


def _results_near(path: Path) -> str:
    """Return the names of results in a folder, in its `results`, or next to it, to append to a message."""
    folders = (path, path / "results", path.parent, Path("results"))
    results = dict.fromkeys(place for folder in folders for place in sorted(folder.glob("*")) if (place / MANIFEST).is_file())
    if results:
        return f"; there is {', '.join(map(str, list(results)[:3]))}"
    return "; expected a folder that `fred run` or `fred.run(..., out=...)` wrote"


def _json(path: Path) -> Any:
    try:
        return json.loads(disk.text(path), parse_constant=_no_number)
    except (FredError, ValueError, RecursionError) as error:
        raise FredError(f"{path.parent} is not a result folder: {error}{_results_near(path.parent)}") from None
