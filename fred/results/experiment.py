"""Execution of scenarios: in memory, or into a folder that stores every unit as it finishes."""

import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

from fred.base import compiled
from fred.base.errors import FredError, quoted
from fred.base.process import cores
from fred.base.progress import OfRuns, in_notebook, of_runs
from fred.results.result import Result
from fred.results.stores import Folder, Memory
from fred.running.execution import check_runs
from fred.running.parallel import Means
from fred.running.units import count_units, doubts_of, select_runs, stages
from fred.specification import shipped
from fred.specification.effects import check_effects
from fred.specification.loading import Scenario, load, revalidated
from fred.specification.loading import scenario as scenario_of
from fred.views.notebook import live_losses


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
    checked, only = _checked(scenario, seeds), (only,) if isinstance(only, str) else tuple(only)
    means = _means(jobs, dask)
    if out is None and means != Means():
        out = _usual_folder(checked, only)
    with (
        _interrupts_in_one_line(),
        nullcontext(progress) if progress else _progress_of(checked, only) as report_progress,
        compiled.disabled() if fresh and compiled.folder() else nullcontext(),
    ):
        store = Memory(fresh) if out is None else Folder(out, file, inline, report, means, fresh)
        check_runs(checked, select_runs(checked, only), inline)
        with store.opened(checked, only):
            for stage in stages(checked, only, inline, store.outcomes):
                store.compute(stage.units, report_progress)
            result = store.finish(stage)
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


def _checked(scenario: Any, seeds: Iterable[int] | None) -> Scenario:
    """Return a validated scenario. That of a loaded result is validated again, with its inputs. Raises FredError."""
    checked: Scenario = revalidated(as_scenario(scenario))
    check_effects(checked.runs, lambda keys: ".".join(map(str, keys)))
    if seeds is None:
        return checked
    return checked.replace(seeds=[*seeds] if isinstance(seeds, Iterable) else seeds, until=None)


def _means(jobs: Any, dask: str) -> Means:
    if jobs == "all":
        jobs = cores()
    if not isinstance(jobs, int) or isinstance(jobs, bool) or jobs < 1:
        raise FredError(f"jobs={quoted(jobs)}: expected a number of processes, or 'all'")
    if jobs > 1 and dask:
        raise FredError("`jobs` are processes on this machine, `dask` is a cluster: use only one of them")
    return Means(jobs, dask)


def _usual_folder(scenario: Scenario, only: tuple[str, ...]) -> Path:
    """Return a folder for results without a place: one for each scenario, whatever its seeds, so that it can be continued."""
    names = list(dict.fromkeys(map(scenario.run_of, scenario.runs)))
    settings = scenario.model_dump_json(exclude={"seeds", "report_seeds", "until"})
    digest = hashlib.sha256(json.dumps([settings, only]).encode()).hexdigest()
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
def _progress_of(scenario: Scenario, only: tuple[str, ...]) -> Iterator[OfRuns]:
    """Show progress and losses in a notebook; elsewhere the calling program shows progress."""
    if in_notebook():
        with of_runs(count_units(scenario, only)) as progress, live_losses(select_runs(scenario, only)):
            yield progress
    else:
        yield lambda *_: None
