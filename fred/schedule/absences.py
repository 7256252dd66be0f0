"""The absences of machines, and the time of a job that fails and goes back to checkpoints."""

from collections.abc import Collection
from typing import Any

from fred.components.component import NANOSECONDS
from fred.schedule.schedule import Schedule, What, exact_sum

STATES = {  # of the job, by the interval that tells; the rest of the time it trains
    "saving": What.SAVING,
    "undone": What.UNDONE,
    "detecting": What.DETECTING,
    "repairing": What.REPAIRING,
    "loading": What.LOADING,
}


def first_absence(schedule: Schedule, workers: Collection[int] | None = None) -> tuple[int, int] | None:
    """Return when a worker or server is first offline, ns, and the worker (-1: a server); None if that never happens.

    Args:
        schedule: schedule of a run with a clock.
        workers: workers to consider; default: all.
    """
    offline, failed, servers = (schedule.intervals.select(kind) for kind in (What.AWAY, What.DETECTING, What.SERVER_AWAY))
    begins, members = (
        (*offline.begin_ns.tolist(), *failed.begin_ns.tolist()),
        (*offline.worker.tolist(), *failed.worker.tolist()),
    )
    absences = [pair for pair in zip(begins, members, strict=True) if workers is None or pair[1] in workers]
    return min(absences + [(begin, -1) for begin in servers.begin_ns.tolist()], default=None)


def failure_times(schedule: Schedule) -> dict[str, Any]:
    """Return the number of failures, the mean time between them, s, and the share of each state in the job's time.

    Also return the number of deferred checkpoints: those that fell due while the last one was being written.

    Training is work that lasts: its share is the goodput, also called the effective training time ratio. Work after the last
    checkpoint counts as training until a failure undoes it.

    Args:
        schedule: schedule of a run whose cluster has `failures`.

    Example: the failure at 2.5 s undoes everything after 1 s, since the checkpoint of 2 s is not written yet.
        >>> import fred
        >>> failures = {"recorded": [[0, 2.5, 4.0]], "checkpoint": {"every_updates": 1, "write": 1.0}}
        >>> scenario = fred.scenario(
        ...     cluster={"workers": 1, "compute": {"name": "constant", "seconds": 1.0}, "failures": failures},
        ...     algorithm={"name": "ssgd", "learning_rate": 0.1},
        ...     stop={"seconds": 10},
        ... )
        >>> times = failure_times(fred.run(scenario).outcomes[0].schedule)
        >>> times["number"], times["goodput"], times["time"]["undone"], times["time"]["repairing"]
        (1, 0.7, 0.15, 0.15)
    """
    intervals = schedule.intervals
    lengths = intervals.end_ns - intervals.begin_ns
    spent = {name: exact_sum(lengths[intervals.what == kind]) for name, kind in STATES.items()}
    end = schedule.end_ns
    deferred = int((intervals.what == What.DEFERRED).sum())
    number = int((intervals.what == What.DETECTING).sum())
    seconds = end / NANOSECONDS
    training = end - sum(spent.values())
    return {
        "number": number,
        "goodput": training / end if end else None,
        "seconds_between": seconds / number if number else None,
        "deferred_checkpoints": deferred,
        "time": {name: length / end if end else None for name, length in {"training": training, **spent}.items()},
    }


def is_undone(schedule: Schedule, seconds: float) -> bool:
    """Return True if a failure undid the work that was done at a time, s.

    Args:
        schedule: schedule of a run.
        seconds: virtual time, s.
    """
    undone_work, time = schedule.intervals.select(What.UNDONE), round(seconds * NANOSECONDS)
    return bool(((undone_work.begin_ns < time) & (time < undone_work.end_ns)).any())
