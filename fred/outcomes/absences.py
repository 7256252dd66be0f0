"""When somebody is away for the first time: where timelines and replays look."""

from collections.abc import Collection

from fred.schedule.schedule import Schedule, What


def first_absence(schedule: Schedule, workers: Collection[int] | None = None) -> tuple[int, int] | None:
    """When a worker or a server is away for the first time, ns, and which worker it is (or -1); None: nobody ever is.

    Args:
        schedule: of a run with a clock.
        workers: of which workers; by default of all.
    """
    away, servers = (schedule.intervals.only(what) for what in (What.AWAY, What.SERVER_AWAY))
    whose = zip(away.begin_ns.tolist(), away.worker.tolist(), strict=True)
    found = [(when, who) for when, who in whose if workers is None or who in workers]
    return min(found + [(when, -1) for when in servers.begin_ns.tolist()], default=None)
