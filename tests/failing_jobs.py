"""Jobs that fail, for tests: their options, their schedules, and what is read off these."""

from typing import Any

from fred.cluster.durations import NANOSECONDS
from fred.outcomes.job_time import of_failures
from fred.running.recording import Recording
from fred.schedule.schedule import Schedule, Verb
from tests.cases import CASES
from tests.worlds import make_run

ONE_MODEL = {  # a case of each protocol that can go back to a checkpoint
    type(case.run.protocol).__name__: case
    for case in CASES
    if case.run.protocol.has_clock
    and not case.run.protocol.needs_values
    and case.run.protocol.layout(case.run.cluster).replicas == 1
}
SECOND = {"name": "constant", "seconds": 1.0}
EVERY = {"every_updates": 1}


def failures(*recorded: tuple[int, float, float], checkpoint: dict[str, Any] = EVERY, **options: Any) -> dict[str, Any]:
    return {"recorded": recorded, "checkpoint": checkpoint} | options


def drawn(mean_up: float, repair: float = 0.0, **options: Any) -> dict[str, Any]:
    cause = {"mean_up": mean_up} | ({"repair": {"name": "exponential", "scale": repair}} if repair else {})
    return {"causes": [cause], "checkpoint": EVERY} | options


def record(
    protocol: Any, job: dict[str, Any], stop: dict[str, Any], workers: int = 2, seed: int = 0, **cluster: Any
) -> Schedule:
    machines = {"workers": workers, "compute": SECOND, "failures": job, **cluster}
    return Recording(make_run(task=None, evaluate={}, protocol=protocol, cluster=machines, stop=stop), seed).schedule()


def updates(schedule: Schedule) -> list[float]:
    """Return the times of the updates, s."""
    return (schedule["time_ns"][schedule.rows(Verb.PUSH, Verb.COMMIT)] / NANOSECONDS).tolist()


def time_of(schedule: Schedule) -> dict[str, float]:
    """Return how long the job was in each state, s."""
    found = of_failures(schedule)["time"]
    return {name: round(share * schedule.end_ns / NANOSECONDS, 9) for name, share in found.items() if share}
