"""The first time that a worker or server is offline, or that the job fails, for timelines and replays."""

from collections.abc import Collection

from fred.schedule.schedule import Schedule, What


def first_absence(schedule: Schedule, workers: Collection[int] | None = None) -> tuple[int, int] | None:
    """Return when a worker or server is first offline, ns, and the worker (-1: a server); None if that never happens.

    Args:
        schedule: schedule of a run with a clock.
        workers: workers to consider; default: all.
    """
    away, failed, servers = (schedule.intervals.only(what) for what in (What.AWAY, What.DETECTING, What.SERVER_AWAY))
    whose = zip(
        (*away.begin_ns.tolist(), *failed.begin_ns.tolist()), (*away.worker.tolist(), *failed.worker.tolist()), strict=True
    )
    found = [(when, who) for when, who in whose if workers is None or who in workers]
    return min(found + [(when, -1) for when in servers.begin_ns.tolist()], default=None)
