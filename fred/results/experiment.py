"""Execution of scenarios: in memory, or into a folder that stores every unit as it finishes.

A folder's work goes on in `.NAME.unfinished`, next to its place (`base/staging.py`). A valid unit of the earlier result gets a
second name there (a hard link). So nothing is computed twice or copied, and the earlier result stays whole until the new one
replaces it. Units are looked up stage by stage, because only outcomes tell which units there are.
"""

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from fred.base import compiled, disk, staging
from fred.base.disk import CHECKPOINT, TIMINGS, UNFINISHED, UNIT, unit_folder, work_folder
from fred.base.errors import FredError, briefly, quoted
from fred.base.process import cores
from fred.base.progress import OfRuns, in_notebook, of_runs
from fred.outcomes.outcome import Outcome
from fred.results import folder
from fred.results.compare import describe_differences, recorded
from fred.results.folder import AboutResult
from fred.results.result import Result
from fred.running import stored
from fred.running.checkpoints import Following
from fred.running.execution import check_runs, execute, has_checkpoint
from fred.running.parallel import Means, compute_units
from fred.running.recording import Timings, in_order
from fred.running.stored import Stored
from fred.running.units import SelectedRuns, Stage, Unit
from fred.specification import shipped
from fred.specification.loading import Scenario, checked_again
from fred.views.notebook import live_losses

_INTERRUPTED: dict[Unit, Outcome] = {}  # finished before an interrupt, in memory


class Memory:
    """Outcomes in memory. Those of an interrupted call stay, so that the same call goes on after them.

    Args:
        fresh: True to compute everything again.
    """

    def __init__(self, fresh: bool = False):
        self.outcomes: dict[Unit, Outcome] = {} if fresh else _INTERRUPTED
        for unit in [unit for unit in self.outcomes if unit.has_own_classes]:
            del self.outcomes[unit]  # a notebook can change what its classes do
        self._earlier = {*self.outcomes}

    @contextmanager
    def opened(self, selected: SelectedRuns) -> Iterator[None]:
        """Report the finished units if a `with` block is interrupted; as for a `Folder`, but there is nothing to open.

        Args:
            selected: the runs and their seeds.
        """
        try:
            yield
        except KeyboardInterrupt as error:
            possible, runs = {*selected.possible_units()}, selected.runs
            done = [unit for unit in self.outcomes if (unit.name, unit.seed) in possible and unit.run == runs[unit.name]]
            kept_units = [unit for unit in done if not unit.has_own_classes]
            line = "nothing is stored"
            if kept_units:
                line = f"{len(kept_units)} of {selected.count} units are done; the same call continues after them"
            if lost := len(done) - len(kept_units):
                line += f"; {lost} finished with classes of your own, which may change, so the same call computes them again"
            error.add_note(line)
            raise

    def compute(self, units: Sequence[Unit], progress: OfRuns) -> None:
        """Compute the units that are missing.

        Args:
            units: the units of a stage.
            progress: called with run, seed and the fraction done.
        """
        timings, missing = Timings(), _missing(units, self.outcomes, progress)
        for unit in in_order(missing):
            report = partial(progress, unit.name, unit.seed)
            report(0.0)
            self.outcomes[unit] = execute(unit.name, unit.run, unit.seed, unit.inline, Following(report), timings)
            report(1.0)

    def finish(self, stage: Stage) -> Result:
        """Return the result of the last stage, and forget its outcomes."""
        reused = sum(unit in self._earlier for unit in stage.units)
        return Result(stage.scenario, [self.outcomes.pop(unit) for unit in stage.units], reused)


class Folder:
    """A result folder: units are written to it as they finish, and those finished there before are not computed again.

    Args:
        out: path of the folder. Raises FredError if it cannot be written, or holds anything but a result of this scenario.
        file: file of the scenario, recorded in the folder; empty: none.
        inline: True if timing and arithmetic are computed at once.
        report: True to write the page.
        means: the processes that compute units.
        fresh: True to compute everything again.
    """

    def __init__(self, out: str | Path, file: str | Path, inline: bool, report: bool, means: Means, fresh: bool = False):
        check_place(out, file)
        self._out, self._path, self._means, self._fresh = out, Path(os.path.realpath(out)), means, fresh
        self._about = AboutResult(self._path.parent, _relative_name(self._path, file), inline, report)
        self.outcomes: dict[Unit, Stored] = {}
        self._reused = set[Unit]()
        self._reasons = dict[Unit, str]()  # why units on disk are computed again

    @contextmanager
    def opened(self, selected: SelectedRuns) -> Iterator[None]:
        """Open and lock the folder in a `with` block; report the finished units if the block is interrupted or fails.

        Args:
            selected: the runs and their seeds.
        """
        with staging.opened(self._path) as self._stage:
            if self._fresh:
                disk.keep_only(self._stage, [])
            try:
                yield
            except (KeyboardInterrupt, FredError) as error:
                words = self._describe_rest(selected)
                if not words:
                    shutil.rmtree(self._stage / TIMINGS, ignore_errors=True)  # timings alone are not worth a folder
                    words = "nothing was written" if isinstance(error, KeyboardInterrupt) else ""
                if words:  # a refusal is one line, unless units are kept
                    error.add_note(words)
                raise

    def compute(self, units: Sequence[Unit], progress: OfRuns) -> None:
        """Compute the units that are missing in the folder and in the result that it will replace.

        Args:
            units: the units of a stage.
            progress: called with run, seed and the fraction done.
        """
        for unit in () if self._fresh else units:
            if unit not in self.outcomes:
                self._reuse(unit)
        missing = _missing(units, self.outcomes, progress)
        compute_units(missing, self._stage, progress, self._means)
        self.outcomes |= {unit: stored.load(self._stage / unit.folder, unit.run) for unit in missing}

    def finish(self, stage: Stage) -> Result:
        """Complete the folder, put it in its place, and return the result of the last stage."""
        outcomes = [self.outcomes[unit] for unit in stage.units]
        files = [f"{unit.folder}/{name}" for unit in stage.units for name in (*self.outcomes[unit].record.files, UNIT)]
        disk.keep_only(self._stage, files)
        folder.complete(self._stage, stage.scenario, outcomes, self._about)
        staging.publish(self._stage, self._path)
        placed = [replace(self.outcomes[unit], folder=self._path / unit.folder) for unit in stage.units]
        reused = sum(unit in self._reused for unit in stage.units)
        return Result(stage.scenario, placed, reused, self._recomputed_lines(stage.units), str(self._out))

    def _reuse(self, unit: Unit) -> None:
        """Take a unit from the unfinished folder or from the result that it will replace, or note why that is not possible."""
        reasons = list[str]()
        for place in (self._stage, self._path):
            outcome, reason = stored.find_reusable(unit, place / unit.folder)
            reasons.append(reason)
            if outcome:
                is_staged = place == self._stage
                self.outcomes[unit] = outcome if is_staged else stored.link_unit(outcome, self._stage / unit.folder)
                self._reused.add(unit)
                return
        shutil.rmtree(self._stage / unit.folder, ignore_errors=True)
        # With a checkpoint an earlier attempt was interrupted. A unit whose identity is incomplete cannot resume it: say why.
        reasons.append(unit.unknown if has_checkpoint(unit, self._stage) else "")
        self._reasons[unit] = next(filter(None, reasons), "")

    def _recomputed_lines(self, units: Iterable[Unit]) -> tuple[str, ...]:
        """Return a line for each reason for which units of the result were computed again."""
        names_by_reason: dict[str, list[str]] = {}
        for unit in units:
            if reason := self._reasons.get(unit):
                names_by_reason.setdefault(reason, []).append(f"{unit.name} with seed {unit.seed}")
        return tuple(f"{briefly(names, most=3)} computed again: {reason}" for reason, names in names_by_reason.items())

    def _describe_rest(self, selected: SelectedRuns) -> str:
        """Return, in words, what an interrupted run leaves; empty if nothing."""
        if not disk.is_marked(self._stage, UNFINISHED):
            return f"the result is complete: {self._path}"
        pairs, runs = selected.possible_units(), selected.runs
        units = [
            Unit(name, runs[name], seed, self._about.inline)
            for name, seed in pairs
            if (self._stage / unit_folder(name, seed) / UNIT).exists()
        ]
        # `find_reusable` would read all files, and so delay the end of an interrupted run. The next run calls it; units with a
        # `late` sentence will not be reused then.
        outcomes = [stored.find_unchecked(unit, self._stage / unit.folder) for unit in units]
        done = sum(outcome is not None and not outcome.record.late for outcome in outcomes)
        partial_units = sum((self._stage / work_folder(*pair) / CHECKPOINT).exists() for pair in pairs)
        if done or partial_units:
            part = f", and part of {partial_units}" if partial_units else ""
            return f"{done} of {selected.count} units are kept{part}; the same command goes on from there"
        reasons = (stored.find_reusable(unit, self._stage / unit.folder)[1] for unit in units)
        return next((f"finished units will be computed again: {reason}" for reason in reasons if reason), "")


def check_place(out: str | Path, file: Path | str | None) -> None:
    """Raise FredError for a folder that cannot be written, or that holds the result of another scenario.

    Args:
        out: the folder of the result.
        file: file of the scenario, if it has one.
    """
    staging.check_free(Path(out))
    path = Path(os.path.realpath(out))
    other, title = staging.title_of(path)
    name = _relative_name(path, file)
    if name and other and other != name:
        titled = f", {title!r}" if title else ""
        raise FredError(
            f"{path} holds the result of another scenario ({other}{titled}); choose another folder with --out, or remove it"
        )


def describe_replacement(scenario: Scenario, out: Path) -> list[str]:
    """Return a line if runs of the scenario will replace a result at its place whose runs have other settings.

    Args:
        scenario: the scenario that will run.
        out: the place of its result.
    """
    path = Path(os.path.realpath(out))
    old = disk.read_facts(path).get("scenario")
    runs = old.get("runs") if isinstance(old, dict) else None
    if not isinstance(runs, dict):
        return []
    differences = describe_differences(runs, {name: recorded(run, path.parent) for name, run in scenario.runs.items()})
    if not differences:
        return []
    settings = briefly(differences, separator="; ")
    return [f"{out} has a result with other settings, which this run replaces; another --out keeps it: {settings}"]


def _missing(units: Iterable[Unit], outcomes: Mapping[Unit, Outcome], progress: OfRuns) -> list[Unit]:
    """Return the units without an outcome, and report the others as done."""
    for unit in units:
        if unit in outcomes:
            progress(unit.name, unit.seed, 1.0)
    return [unit for unit in units if unit not in outcomes]


def _relative_name(path: Path, file: str | Path | None) -> str:
    """Return a scenario's file relative to the folder's location, so that both can move; for FRED's own files, the name."""
    if not file:
        return ""
    try:
        return shipped.name_of(Path(file)) or Path(os.path.relpath(file, path.parent)).as_posix()
    except OSError:  # the working directory no longer exists
        return Path(file).name


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
    if not isinstance(out, str | Path | None):
        raise FredError(f"out={out!r}: expected a folder, such as 'results/mine'")
    selected, means = SelectedRuns(checked_again(scenario, seeds), only), _means(jobs, dask)
    if out is None and means != Means():
        out = _usual_folder(selected)
    with (
        _interrupts_in_one_line(),
        nullcontext(progress) if progress else _progress_of(selected) as report_progress,
        compiled.disabled() if fresh and compiled.folder() else nullcontext(),
    ):
        store = Memory(fresh) if out is None else Folder(out, file, inline, report, means, fresh)
        check_runs(selected, inline)
        with store.opened(selected):
            for stage in selected.stages(inline, store.outcomes):
                store.compute(stage.units, report_progress)
            result = store.finish(stage)
    for line in () if progress else (*result.recomputed, *selected.doubts):
        warnings.warn(line, stacklevel=2)
    return result


def _means(jobs: Any, dask: str) -> Means:
    if jobs == "all":
        jobs = cores()
    if not isinstance(jobs, int) or isinstance(jobs, bool) or jobs < 1:
        raise FredError(f"jobs={quoted(jobs)}: expected a number of processes, or 'all'")
    if jobs > 1 and dask:
        raise FredError("`jobs` are processes on this machine, `dask` is a cluster: use only one of them")
    return Means(jobs, dask)


def _usual_folder(selected: SelectedRuns) -> Path:
    """Return a folder for results without a place: one for each scenario, whatever its seeds, so that it can be continued."""
    scenario = selected.scenario
    names = list(dict.fromkeys(map(scenario.run_of, scenario.runs)))
    settings = scenario.model_dump_json(exclude={"seeds", "report_seeds", "until"})
    digest = hashlib.sha256(json.dumps([settings, selected.only]).encode()).hexdigest()
    return Path("results") / f"{'-'.join(names)[:40]}-{digest[:8]}"


@contextmanager
def _interrupts_in_one_line() -> Iterator[None]:
    """Show an interrupt in IPython as one line that reports the stored units, without a traceback."""
    try:
        yield
    except KeyboardInterrupt as error:
        line = "; ".join(["interrupted", *getattr(error, "__notes__", ())])
        error._render_traceback_ = lambda: [line]  # type: ignore[attr-defined]  # IPython asks for it
        raise


@contextmanager
def _progress_of(selected: SelectedRuns) -> Iterator[OfRuns]:
    """Show progress and losses in a notebook; elsewhere the calling program shows progress."""
    if in_notebook():
        with of_runs(selected.count) as progress, live_losses(selected.names):
            yield progress
    else:
        yield lambda *_: None
