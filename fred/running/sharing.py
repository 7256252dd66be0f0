"""A run's work on several processes: how long its gradients take, and the predicted speed-up. Nothing is trained."""

from typing import NamedTuple

from fred.replay import helpers
from fred.replay.executor import Side
from fred.running.problem import Problem
from fred.running.recording import Recording
from fred.running.timings import Timings
from fred.specification.shape import Run
from fred.specification.task import Task

PROCESSES = (2, 4, 8, 16, 64)


class Sharing(NamedTuple):
    """What sharing a run would bring.

    Args:
        gradients: number of gradients of the run.
        seconds: time of a gradient in this process, s; 0 if the run is too short to measure it.
        speed_ups: predicted speed-up against one process, by number of processes.
    """

    gradients: int
    seconds: float
    speed_ups: dict[int, float]

    @property
    def used(self) -> bool:
        """Return True if two processes share the run: its gradients, and the run, take long enough, and the plan is faster."""
        return helpers.is_worthwhile(self.seconds, self.gradients) and self.speed_ups[2] >= helpers.LEAST_SPEED_UP


def sharing(run: Run, task: Task, seed: int) -> Sharing:
    """Record a run's schedule, time one gradient, and plan the work for several processes. Raises FredError.

    Args:
        run: a run whose protocol needs no values.
        task: its task.
        seed: seed of every random draw.
    """
    problem = Problem(task, run, seed)
    recording, do, timings = Recording(run, seed, problem.sizes), problem.arithmetic, Timings()
    schedule = timings.schedule(recording)
    program = timings.program(schedule, recording.cadence.points(schedule).rows, do)
    side = Side(program, do, problem.params, problem.examples, problem.batches)
    first = helpers.stretch(program, 0, 0)
    speed_ups = {number: helpers.plan_stretch(side, first, number).speed_up for number in PROCESSES}
    seconds = helpers.seconds_of_a_gradient(side, problem.models)
    return Sharing(int(helpers.gradients_before(program)[-1]), seconds, speed_ups)
