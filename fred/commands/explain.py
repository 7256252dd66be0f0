"""`fred run --explain`: whether several processes would share a run, and how much faster they would be. Nothing is run."""

import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fred.base import environment
from fred.base.errors import FredError
from fred.base.progress import OfRuns, of_runs
from fred.replay import helpers
from fred.replay.division import plan_of
from fred.replay.executor import Side
from fred.running.model_training import Problem
from fred.running.recording import Recording, Timings
from fred.running.units import SelectedRuns
from fred.specification.loading import load
from fred.specification.run_names import name_run_in_errors
from fred.specification.shape import Run
from fred.specification.shipped import located
from fred.specification.task import Task
from fred.views.table import NONE, Table, show, terminal

PROCESSES = (2, 4, 8, 16, 64)
_CAPTION = (
    "Seconds: by one process. `shared`: whether `--jobs` lets several processes share the run: its gradients take "
    f"{helpers.LEAST_GRADIENT * 1000:g} ms or more, the run {helpers.LEAST_REST:g} s or more, and the plan is faster. Below, "
    "by number of processes: the speed-up predicted from the schedule, with the waits of tasks for each other and the values "
    "that cross. Helpers take about 5 s to start. Several units, such as seeds, go first: each process takes one."
)


class Sharing(NamedTuple):
    """The predicted gain of sharing a run.

    Args:
        gradients: number of gradients of the run.
        seconds: time of a gradient in this process, s; 0 if the run is too short to measure it.
        speed_ups: predicted speed-up against one process, by number of processes.
    """

    gradients: int
    seconds: float
    speed_ups: dict[int, float]

    @property
    def saves_time(self) -> bool:
        """Return True if two processes share the run: its gradients, and the run, take long enough, and the plan is faster."""
        return helpers.is_worthwhile(self.seconds, self.gradients) and self.speed_ups[2] >= helpers.LEAST_SPEED_UP


def explain(file: Path, settings: Sequence[str], only: Collection[str], modules: Sequence[str], quiet: bool) -> int:
    """Print, for each run with its first seed, what several processes would gain; of a sweep only the first point.

    Return the exit code. Raises FredError, also if no run trains anything.

    Args:
        file: the scenario, or the name of one that comes with FRED.
        settings: settings to override, `KEY.PATH=VALUE`.
        only: names of runs; none: all.
        modules: modules with classes of the user's own.
        quiet: True to show no progress.
    """
    selected = SelectedRuns(load(located(file), settings, modules), only)
    if all(run.task is None for run in selected.runs.values()):
        raise FredError("`--explain` says what several processes would gain in training, and no run has a `task`")
    environment.check()
    for line in selected.doubts:
        print(f"fred: {line}", file=sys.stderr)
    with of_runs(quiet=quiet) as progress:
        rows = list(_rows(selected, progress))
    columns = ("run", "gradients", "ms each", "seconds", "shared", *(f"{number} processes" for number in PROCESSES))
    cells = [[name, *_cells(estimate, reason)] for name, estimate, reason in rows]
    show(Table(columns, cells, "One run by several processes", _CAPTION), terminal())
    return 0


def _rows(selected: SelectedRuns, progress: OfRuns) -> Iterator[tuple[str, Sharing | None, str]]:
    """Yield for each run its name and the predicted gain; or None, and why there is no prediction."""
    first_points = dict[str, str]()  # of a swept run, the first selected point
    for key in selected.names:
        first_points.setdefault(selected.scenario.run_of(key), key)
    for name, key in first_points.items():
        run, seed = selected.runs[key], selected.first_seeds(key)[0]
        if run.task is None:
            yield name, None, "nothing to compute"
        elif run.protocol.needs_values:
            yield name, None, "timing needs values"
        else:
            progress(name, seed, 0.0)
            with name_run_in_errors(key, run):
                yield name, predict_sharing(run, run.task, seed), ""
            progress(name, seed, 1.0)


def _cells(estimate: Sharing | None, reason: str) -> list[str]:
    """Return the cells of a run's row after its name: with `reason` in the column `shared` if there is no estimate."""
    if estimate is None:
        return [NONE, NONE, NONE, reason, *[NONE] * len(PROCESSES)]
    speed_ups = [f"{speed_up:.2f}" for speed_up in estimate.speed_ups.values()]
    times = (
        [f"{estimate.seconds * 1000:.2g}", f"{estimate.gradients * estimate.seconds:.3g}"]
        if estimate.seconds
        else [NONE, "< 1"]
    )
    return [f"{estimate.gradients}", *times, "yes" if estimate.saves_time else "no", *speed_ups]


def predict_sharing(run: Run, task: Task, seed: int) -> Sharing:
    """Record a run's schedule, time one gradient, and plan the work for several processes. Raises FredError.

    Args:
        run: a run whose protocol needs no values.
        task: its task.
        seed: seed of every random draw.
    """
    problem, timings = Problem(task, run, seed), Timings()
    recording, arithmetic = Recording(run, seed, problem.sizes), problem.arithmetic
    schedule = timings.schedule(recording)
    program = timings.program(schedule, recording.cadence.points(schedule).rows, arithmetic)
    side = Side(program, arithmetic, problem.params, problem.examples, problem.batches)
    tasks = helpers.tasks_of_stretch(side, helpers.stretch(program, phase=0, mark=0))  # the first part stands for the run
    speed_ups = {number: plan_of(tasks, number).speed_up for number in PROCESSES}
    seconds = helpers.seconds_of_a_gradient(side, problem.models)
    gradients = int(helpers.gradients_before(program)[-1])  # before the end
    return Sharing(gradients, seconds, speed_ups)
