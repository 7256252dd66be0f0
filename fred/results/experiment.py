"""Execution of scenarios: in memory, or into a folder that stores every unit as it finishes."""

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fred.base import compiled, ownership, staging
from fred.base.cores import cores
from fred.base.errors import FredError, quoted
from fred.base.progress import OfRuns, in_notebook, of_runs
from fred.outcomes import sweeps
from fred.outcomes.comparisons import further_seeds
from fred.outcomes.outcome import Outcome
from fred.outcomes.tables import Tables
from fred.results import folder
from fred.results.result import Result
from fred.results.reuse import reasons_against, recomputed_lines, remains, reusable
from fred.running import parallel, stored, work
from fred.running.checkpoints import Following
from fred.running.execution import execute
from fred.running.on_dask import on_dask
from fred.running.stored import Stored
from fred.running.timings import FOLDER, Timings, in_order
from fred.running.unit import Unit
from fred.running.units import (
    doubts_of,
    further_units,
    number_of_units,
    reported_units,
    units_of,
    wanted_runs,
    widest,
)
from fred.specification import shipped
from fred.specification.effects import check_effects
from fred.specification.loading import Scenario, load, revalidated
from fred.specification.loading import scenario as scenario_of
from fred.views.notebook import live_losses

_INTERRUPTED: dict[Unit, Outcome] = {}  # finished before an interrupt, in memory


def run(
    scenario: Scenario | Mapping[str, Any] | str | Path,
    only: str | Iterable[str] = (),
    *,
    seeds: Iterable[int] | None = None,
    out: str | Path | None = None,
    jobs: int | Literal["all"] = 1,
    dask: str = "",
    fresh: bool = False,
    inline: bool = False,
    progress: OfRuns | None = None,
    file: str | Path = "",
    report: bool = True,
) -> Result:
    """Execute a scenario's runs with every seed. Raises FredError for an unknown run.

    Args:
        scenario: the runs and their seeds: what `fred.load` or `fred.scenario` return, the name or path of a scenario file, or
            a mapping of settings.
        only: name of one run, or several; for a swept run, all its points are meant. Default: all runs.
        seeds: other seeds than the scenario's.
        out: folder to which units are written as they finish; units finished there before, even by an interrupted run, are
            not computed again. By default results stay in memory; with `jobs` or `dask`, they go to a folder in `results/`
            that is named after the runs, `Result.folder`.
        jobs: number of processes, of which each computes units, or `all`, one for each processor; with fewer units than
            processes, several may share the gradients of one.
        dask: address of the scheduler of a Dask cluster that computes the units.
        fresh: True to compute everything again, without cached results and compiled programs.
        inline: compute during the simulation of timing, instead of recording first and replaying afterwards; the result is
            the same.
        progress: called with run, seed and the fraction done.
        file: file of the scenario, recorded in the folder, which then refuses results of other scenarios.
        report: True to write `report.html`, a page for the browser, to the folder.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    ...     stop={"updates": 4},
    ...     runs={name: {"algorithm": {"name": name, "learning_rate": 0.1}} for name in ("asgd", "ssgd")},
    ... )
    >>> fred.run(scenario).summary[["name", "updates", "gradients_computed", "virtual_seconds"]]
       name  updates  gradients_computed  virtual_seconds
    0  asgd        4                   4              1.0
    1  ssgd        4                   8              2.0
    >>> fred.run(scenario, only="ssgd", seeds=[1, 2]).summary["name"].tolist()
    ['ssgd', 'ssgd']
    """
    if isinstance(scenario, str | Path):
        file = file or shipped.located(Path(scenario))
    checked = revalidated(as_scenario(scenario))
    check_effects(checked.runs, lambda keys: ".".join(map(str, keys)))
    if seeds is not None:
        checked = checked.replace(seeds=[*seeds] if isinstance(seeds, Iterable) else seeds, until=None)
    only, jobs = (only,) if isinstance(only, str) else tuple(only), _number_of_jobs(jobs)
    if not isinstance(out, str | Path | None):
        raise FredError(f"out={out!r}: expected a folder, such as 'results/mine'")
    if jobs > 1 and dask:
        raise FredError("`jobs` are processes on this machine, `dask` is a cluster: use only one of them")
    if out is None and (jobs > 1 or dask):
        out = _usual_folder(checked, only)
    shown = nullcontext(progress) if progress else _shown(checked, only)
    with _one_line(), shown as shown_progress, compiled.unused() if fresh and compiled.folder() else nullcontext():
        how = _Manner(shown_progress, jobs, dask, fresh)
        if out is None:
            result = _into_memory(checked, only, inline, how)
        else:
            result = _stored(out, checked, only, inline, file, report, how)
    for line in () if progress else (*result.recomputed, *doubts_of(checked, only)):
        warnings.warn(line, stacklevel=2)
    return result


def as_scenario(value: Any) -> Scenario:
    """Return a scenario that is given as such, by the name or path of its file, or by its settings. Raises FredError.

    Args:
        value: what `fred.run` received.
    """
    if isinstance(value, Scenario):
        return value
    if isinstance(value, str | Path):
        return load(value)
    if isinstance(value, Mapping):
        return scenario_of(value)
    raise FredError(
        f"found {quoted(value)[:80]}; expected a scenario: what `fred.scenario` or `fred.load` returns, a name such as "
        "'quickstart', the path of a file, or a mapping of settings"
    )


@contextmanager
def _one_line() -> Iterator[None]:
    """Show an interrupt in IPython as one line that reports the stored units, without a traceback."""
    try:
        yield
    except KeyboardInterrupt as error:
        line = "; ".join(["interrupted", *getattr(error, "__notes__", ())])
        error._render_traceback_ = lambda: [line]  # type: ignore[attr-defined]  # IPython asks for it
        raise


def _number_of_jobs(jobs: Any) -> int:
    if jobs == "all":
        return cores()
    if not isinstance(jobs, int) or isinstance(jobs, bool) or jobs < 1:
        raise FredError(f"jobs={quoted(jobs)}: expected a number of processes, or 'all'")
    return jobs


def _usual_folder(scenario: Scenario, only: tuple[str, ...]) -> Path:
    """Return a folder for results without a place: one for each scenario, whatever its seeds, so that it can be continued."""
    names = list(dict.fromkeys(map(scenario.run_of, scenario.runs)))
    settings = scenario.model_dump_json(exclude={"seeds", "report_seeds", "until"})
    digest = hashlib.sha256(json.dumps([settings, only]).encode()).hexdigest()
    return Path("results") / f"{'-'.join(names)[:40]}-{digest[:8]}"


def _into_memory(scenario: Scenario, only: tuple[str, ...], inline: bool, how: "_Manner") -> Result:
    known: dict[Unit, Outcome] = {} if how.fresh else _INTERRUPTED
    for unit in [unit for unit in known if unit.own]:
        del known[unit]  # a notebook can change what its classes do
    before = {*known}
    try:
        scenario, units = _completed(scenario, only, inline, partial(_in_memory, known=known, progress=how.progress))
    except KeyboardInterrupt as error:
        done, number = known.keys() & {*_possible(scenario, only, inline)}, number_of_units(scenario, only)
        kept = [unit for unit in done if not unit.own]
        line = f"{len(kept)} of {number} units are done; the same call continues after them" if kept else "nothing is stored"
        lost = "; {} finished with classes of your own, which may change, so the same call computes them again"
        error.add_note(line + (lost.format(len(done) - len(kept)) if len(kept) < len(done) else ""))
        raise
    return Result(scenario, [known.pop(unit) for unit in units], sum(unit in before for unit in units))


def _stored(
    out: str | Path, scenario: Scenario, only: tuple[str, ...], inline: bool, file: str | Path, report: bool, how: "_Manner"
) -> Result:
    check_place(out, file)
    path = Path(os.path.realpath(out))
    about = folder.AboutResult(path.parent, _seen_from(path, file), inline, report)
    scenario, units, reused, recomputed = _into(path, _Plan(scenario, only, about), how)
    outcomes = [stored.read(path / unit.folder, unit.run) for unit in units]
    return Result(scenario, outcomes, reused, recomputed, str(out))


class _Plan(NamedTuple):
    """The work to do."""

    scenario: Scenario
    only: tuple[str, ...]
    about: folder.AboutResult


def _possible(scenario: Scenario, only: tuple[str, ...], inline: bool) -> list[Unit]:
    """Return all units that may have to be computed, whichever points are best, and however many seeds are needed."""
    scenario = widest(scenario)
    wanted, units = wanted_runs(scenario, only), units_of(scenario, only, inline)
    first, points = {unit.name for unit in units}, [name for name in wanted if name in scenario.points]
    later = [name for name in wanted if name not in first]
    return [*units, *further_units(scenario, later, inline), *reported_units(scenario, points, inline)]


class _Manner(NamedTuple):
    """The way in which units are computed."""

    progress: OfRuns
    jobs: int
    dask: str
    fresh: bool


def _following(scenario: Scenario, done: Sequence[Outcome], only: Iterable[str], inline: bool) -> list[Unit]:
    """Return the units of points that sweeps try next."""
    tables = Tables(scenario, done)
    if not tables.swept:
        return []
    wanted = set(wanted_runs(scenario, only))
    names = sweeps.following(scenario, tables.sweep, tables.best)
    return further_units(scenario, [name for name in names if name in wanted], inline)


def _reported(scenario: Scenario, done: Sequence[Outcome], inline: bool) -> list[Unit]:
    """Return the units that follow: the best points, with the reported seeds."""
    tables = Tables(scenario, done)
    return reported_units(scenario, tables.best["point"], inline) if scenario.report_seeds and tables.swept else []


def _completed(
    scenario: Scenario, only: tuple[str, ...], inline: bool, computed: Callable[[list[Unit]], Sequence[Outcome]]
) -> tuple[Scenario, list[Unit]]:
    """Compute all units, those of points that sweeps try next, and further seeds as long as `until` asks for them.

    Return the scenario with these seeds, and the units.
    """
    while True:
        units, done = list[Unit](), list[Outcome]()
        following = units_of(scenario, only, inline)
        while following:
            units, done = [*units, *following], [*done, *computed(following)]
            following = _following(scenario, done, only, inline)
        reported = _reported(scenario, done, inline)
        count = further_seeds(Tables(scenario, [*done, *computed(reported)]))
        if not count:
            return scenario, [*units, *reported]
        scenario = scenario.with_seeds(count)


def _into(path: Path, plan: _Plan, how: _Manner) -> tuple[Scenario, list[Unit], int, tuple[str, ...]]:
    """Compute missing units, and put a complete folder in place.

    Return the scenario with all seeds, the units, the number cached, and why not more.
    """
    inline = plan.about.inline
    possible = _possible(plan.scenario, plan.only, inline)
    with staging.opened(path) as stage:
        kept = {*reusable(possible, stage, path)} if not how.fresh else set()
        reasons = reasons_against([unit for unit in possible if unit not in kept], stage, path) if not how.fresh else {}
        begun = [] if how.fresh else [FOLDER, *(work.folder_of(unit) for unit in possible)]
        ownership.keep_only(stage, [*_files_of(kept, stage), *begun])
        try:
            finished = {*kept}
            computed = partial(_done, finished=finished, stage=stage, how=how)
            scenario, units = _completed(plan.scenario, plan.only, inline, computed)
            ownership.keep_only(stage, _files_of(units, stage))
            folder.complete(stage, scenario, [stored.read(stage / unit.folder, unit.run) for unit in units], plan.about)
            staging.publish(stage, path)
        except (KeyboardInterrupt, FredError) as error:
            word = remains(possible, number_of_units(plan.scenario, plan.only), stage, path)
            word = word or ("nothing was written" if isinstance(error, KeyboardInterrupt) else "")
            if not any((stage / unit.folder).exists() or work.begun(unit, stage) for unit in possible):
                shutil.rmtree(stage / FOLDER, ignore_errors=True)  # timings alone are not worth a folder
            if word:  # a refusal is one line, unless units are cached
                error.add_note(word)
            raise
    return scenario, units, sum(unit in kept for unit in units), recomputed_lines(reasons, units)


def _done(units: list[Unit], finished: set[Unit], stage: Path, how: _Manner) -> list[Stored]:
    """Return the outcomes of units, finished ones and those computed now, which then are finished."""
    for unit in units:
        if unit in finished:
            how.progress(unit.name, unit.seed, 1.0)
    _work([unit for unit in units if unit not in finished], stage, how)
    finished.update(units)
    return [stored.read(stage / unit.folder, unit.run) for unit in units]


@contextmanager
def _shown(scenario: Scenario, only: str | Iterable[str]) -> Iterator[OfRuns]:
    """Show progress and losses in a notebook; elsewhere the calling program shows progress."""
    if in_notebook():
        with of_runs(number_of_units(scenario, only)) as progress, live_losses(wanted_runs(scenario, only)):
            yield progress
    else:
        yield lambda *_: None


def _in_memory(units: list[Unit], known: dict[Unit, Outcome], progress: OfRuns) -> list[Outcome]:
    """Return the outcomes of units, known ones and those computed now, which then are known."""
    shared = Timings()
    for unit in [unit for unit in units if unit in known]:
        progress(unit.name, unit.seed, 1.0)
    for unit in in_order([unit for unit in units if unit not in known]):
        told = partial(progress, unit.name, unit.seed)
        told(0.0)
        known[unit] = execute(unit.name, unit.run, unit.seed, unit.inline, Following(told), shared)
        told(1.0)
    return [known[unit] for unit in units]


def _work(units: list[Unit], stage: Path, how: _Manner) -> None:
    if not units:
        return
    if how.dask:
        on_dask(units, stage, how.progress, how.dask)
    elif how.jobs > 1 and len(units) > 1:
        parallel.in_processes(units, stage, how.progress, how.jobs)
    else:
        parallel.one_by_one(units, stage, how.progress, how.jobs)


def _files_of(units: Iterable[Unit], stage: Path) -> list[str]:
    """Return the files written by finished units."""
    abouts = [(unit, stored.read(stage / unit.folder, unit.run).about) for unit in units]
    return [f"{unit.folder}/{name}" for unit, about in abouts for name in (*about.files, stored.ABOUT)]


def _seen_from(path: Path, file: str | Path | None) -> str:
    """Return a scenario's file relative to the folder's location, so that both can move; for FRED's own files, the name."""
    if not file:
        return ""
    try:
        return shipped.name_of(Path(file)) or Path(os.path.relpath(file, path.parent)).as_posix()
    except OSError:  # the working directory no longer exists
        return Path(file).name


def check_place(out: str | Path, file: Path | str | None) -> None:
    """Raise FredError for a folder that cannot be written, or that holds the result of another scenario.

    Args:
        out: the folder of the result.
        file: file of the scenario, if it has one.
    """
    staging.check_free(Path(out))
    path = Path(os.path.realpath(out))
    other, title = staging.title_of(path)
    if (mine := _seen_from(path, file)) and other and other != mine:
        named = f", {title!r}" if title else ""
        raise FredError(
            f"{path} holds the result of another scenario ({other}{named}); choose another folder with --out, or remove it"
        )
