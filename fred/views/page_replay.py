"""The data for the replay of the HTML report: workers' activities in a window of each timing, updates and staleness."""

from typing import Any

import numpy as np
import pandas as pd

from fred.cluster.durations import NANOSECONDS
from fred.outcomes import staleness
from fred.outcomes.absences import first_absence
from fred.outcomes.outcome import Outcome
from fred.outcomes.spans import spans
from fred.outcomes.tables import Tables
from fred.schedule.schedule import Schedule, Verb

_TIMINGS, _WORKERS = 8, 32  # largest numbers drawn
_SPANS = 12_000  # spans on the page, in all timings together
_TICKS = 250_000  # time steps in a window
_BEFORE = 1 / 3  # share of the window before the first fault, if the window does not start at 0


def replays(tables: Tables) -> list[dict[str, Any]]:
    """Return a replay of each different timing with a clock, for the first seed.

    A replay has the spans of the first workers, the updates, and the staleness of gradients, in a window from the start of the
    run or from shortly before the first fault. It says which part of its run it shows. There are at most eight timings, 32
    workers in each, and 12,000 spans in all.

    Args:
        tables: the tables of the runs.
    """
    sharing: dict[str, list[Outcome]] = {}
    for each in tables.outcomes:
        if each.has_clock and each.seed == tables.scenario.reported_seeds[0]:
            sharing.setdefault(each.schedule_digest, []).append(each)
    taken = list(sharing.values())[:_TIMINGS]
    most = _SPANS // max(1, len(taken))
    return [_replay(own[0].schedule, [each.name for each in own], own[0].seed, most) for own in taken]


def _replay(schedule: Schedule, names: list[str], seed: int, most: int) -> dict[str, Any]:
    account = spans(schedule, _WORKERS)
    begin, end = window(schedule, account, most)
    seen = account[(account["end_ns"] > begin) & (account["begin_ns"] < end)].head(2 * most)
    scale = _TICKS / max(1, end - begin)

    def ticks(times: Any) -> list[int]:
        return [round(value) for value in (np.asarray(times).clip(begin, end) - begin) * scale]

    uses = schedule.rows(Verb.PUSH, Verb.ADD)
    times, stale = schedule["time_ns"][uses], staleness.of_gradients(schedule)
    updates = schedule["time_ns"][schedule.ledger.every_update]
    shown = np.flatnonzero((times >= begin) & (times <= end))
    made = updates[(updates >= begin) & (updates <= end)]
    thin_uses, thin_updates = (max(1, -(-len(which) // most)) for which in (shown, made))
    return {
        "runs": names,
        "seed": seed,
        "workers": min(_WORKERS, schedule.workers),
        "of": schedule.workers,
        "begin": begin / NANOSECONDS,
        "end": end / NANOSECONDS,
        "until": schedule.end_ns / NANOSECONDS,
        "ticks": _TICKS,
        "spans": [seen["worker"].tolist(), ticks(seen["begin_ns"]), ticks(seen["end_ns"]), seen["kind"].cat.codes.tolist()],
        "updates": ticks(made[::thin_updates]),
        "before": int((updates < begin).sum()),
        "thin": thin_updates,
        "uses": [
            ticks(times[shown[::thin_uses]]),
            schedule["worker"][uses[shown[::thin_uses]]].tolist(),
            stale[shown[::thin_uses]].tolist(),
        ],
    }


def window(schedule: Schedule, account: pd.DataFrame, most: int) -> tuple[int, int]:
    """Return the begin and end of a replay, ns. It is as long as the first `most` spans of the run.

    It starts at 0, or shortly before the first fault if that comes after the first window.

    Args:
        schedule: the schedule of a run with a clock.
        account: the spans of its workers.
        most: largest number of spans.
    """
    ends = np.sort(account["begin_ns"].to_numpy())
    length = int(ends[most]) if len(ends) > most else schedule.end_ns
    length = max(1, length)
    absence = first_absence(schedule, range(_WORKERS))
    first = absence[0] if absence and absence[0] < schedule.end_ns else 0
    if first <= length:
        return 0, length
    begin = first - int(_BEFORE * length)
    return begin, min(begin + length, schedule.end_ns)
