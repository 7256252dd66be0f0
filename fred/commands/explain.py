"""`fred run --explain`: whether several processes would share a run, and how much faster they would be. Nothing is run."""

import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from fred.base.errors import FredError
from fred.replay.helpers import LEAST_GRADIENT, LEAST_REST
from fred.running.sharing import PROCESSES, Sharing, sharing
from fred.running.units import doubts_of
from fred.specification.loading import Scenario, load
from fred.specification.run_names import blamed
from fred.specification.shipped import located
from fred.views.table import NONE, Table, show, terminal

_CAPTION = (
    "Seconds: by one process. `shared`: whether `--jobs` lets several processes share the run: its gradients take "
    f"{LEAST_GRADIENT * 1000:g} ms or more, the run {LEAST_REST:g} s or more, and the plan is faster. Below, by number of "
    "processes: the speed-up predicted from the schedule, with the waits of tasks for each other and the values that cross. "
    "Helpers take about 5 s to start. Several units, such as seeds, go first: each process takes one."
)


def explain(file: Path, settings: Sequence[str], only: Collection[str], modules: Sequence[str]) -> int:
    """Print, for each run with its first seed, what several processes would gain; of a sweep only the first point.

    Return the exit code. Raises FredError, also if no run trains anything.

    Args:
        file: the scenario, or the name of one that comes with FRED.
        settings: settings to override, `KEY.PATH=VALUE`.
        only: names of runs; none: all.
        modules: modules with classes of the user's own.
    """
    scenario = load(located(file), settings, modules)
    for line in doubts_of(scenario, only):
        print(f"fred: {line}", file=sys.stderr)
    rows = list(_rows(scenario, only))
    if all(found is None for _, found, _ in rows):
        raise FredError("`--explain` says what several processes would gain in training, and no run has a `task`")
    columns = ("run", "gradients", "ms each", "seconds", "shared", *(f"{number} processes" for number in PROCESSES))
    cells = [[name, *_cells(found, why)] for name, found, why in rows]
    show(Table(columns, cells, "One run by several processes", _CAPTION), terminal())
    return 0


def _rows(scenario: Scenario, only: Collection[str]) -> Iterator[tuple[str, Sharing | None, str]]:
    seen = set[str]()
    for name, run in scenario.runs.items():
        of = scenario.run_of(name)
        if of in seen or (only and of not in only):
            continue
        seen.add(of)
        if run.task is None:
            yield of, None, "nothing to compute"
        elif run.protocol.needs_values:
            yield of, None, "timing needs values"
        else:
            with blamed(name, run):
                yield of, sharing(run, run.task, scenario.seeds[0]), ""


def _cells(found: Sharing | None, why: str) -> list[str]:
    if found is None:
        return [NONE, NONE, NONE, why, *[NONE] * len(PROCESSES)]
    speed_ups = [f"{speed_up:.2f}" for speed_up in found.speed_ups.values()]
    times = [f"{found.seconds * 1000:.2g}", f"{found.gradients * found.seconds:.3g}"] if found.seconds else [NONE, "< 1"]
    return [f"{found.gradients}", *times, "yes" if found.used else "no", *speed_ups]
