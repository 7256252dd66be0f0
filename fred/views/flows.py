"""What leads to what, in a drawing: from gradients to updates, from models to gradients, from worker to worker."""

from collections import defaultdict

import numpy as np
import pandas as pd

from fred.schedule.schedule import NONE, Ints, Schedule, Verb
from fred.views.packets import NO_FLOWS, Passing

_Place = tuple[str, int]  # a kind of thing that is drawn, and which of them


class Flows:
    """Flows, and where each passes.

    Args:
        schedule: of a run with a clock.
        account: what is drawn of its spans, by number.
        sent: what is drawn of its messages, by number.
        rows: which of its rows are drawn.
    """

    def __init__(self, schedule: Schedule, account: pd.DataFrame, sent: pd.DataFrame, rows: Ints):
        self._schedule, self._count = schedule, 0
        self._passing: dict[_Place, Passing] = defaultdict(lambda: Passing([], []))
        busy = account[account["kind"].isin(("computing", "in_vain"))]
        self._begun, self._ended = (_by_worker(busy, name) for name in ("begin_ns", "end_ns"))
        self._drawn = set(rows.tolist())
        across = sent["way"] == "between workers"
        self._messages = dict(zip(sent.loc[~across, "row"].tolist(), sent.index[~across].tolist(), strict=True))
        self._of_gradients()
        self._of_models()
        arriving = sent.index[across & sent["arrived"] & (sent["sender"] != NONE)]
        for message in arriving.tolist():
            self._join(("message", message), ("arrival", message))

    def at(self, kind: str, number: int) -> Passing:
        """Which flows pass a `span`, a `message`, an `arrival` of a model from another worker, or a `row`."""
        return self._passing.get((kind, number), NO_FLOWS)

    def _of_gradients(self) -> None:
        """From the span in which each was computed, over its message, to each row that uses or drops it."""
        schedule = self._schedule
        rows = schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP)
        ends = zip(schedule["worker"][rows].tolist(), schedule["end_ns"][rows].tolist(), strict=True)
        for row, end in zip(rows.tolist(), ends, strict=True):
            self._join(("span", self._ended.get(end)), ("message", self._messages.get(row)), self._row(row))

    def _of_models(self) -> None:
        """From where a server sends each, over its message, to the span of the first gradient that is computed with it."""
        schedule = self._schedule
        used = schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP)[::-1]
        begins = np.full(int(schedule["mailbox"].max(initial=0)) + 1, NONE, np.int64)
        begins[schedule["mailbox"][used]] = schedule["begin_ns"][used]
        mixes = schedule.rows(Verb.MIX)
        inside = np.arange(len(begins))
        inside[schedule["source"][mixes]] = schedule["mailbox"][mixes]  # of blocks
        rows, where = schedule.rows(Verb.PULL), schedule.on_servers
        rows = rows[(schedule["replica"][rows] >= where.start) & (schedule["replica"][rows] < where.stop)]
        read = schedule["mailbox"][rows]
        begin = np.where(begins[read] == NONE, begins[inside[read]], begins[read]).tolist()
        for row, key in zip(rows.tolist(), zip(schedule["worker"][rows].tolist(), begin, strict=True), strict=True):
            self._join(self._row(row), ("message", self._messages.get(row)), ("span", self._begun.get(key)))

    def _row(self, row: int) -> tuple[str, int | None]:
        return "row", row if row in self._drawn else None

    def _join(self, *places: tuple[str, int | None]) -> None:
        """A flow from the first of these places that are drawn to the last, if there are two at least."""
        *passed, last = drawn = [(kind, number) for kind, number in places if number is not None] or [("", NONE)]
        if len(drawn) < 2:
            return
        self._count += 1
        for place in passed:
            self._passing[place].on.append(self._count)
        self._passing[last].ending.append(self._count)


def _by_worker(account: pd.DataFrame, when: str) -> dict[tuple[int, int], int]:
    """The numbers of spans, by worker and when they begin or end, ns."""
    keys = zip(account["worker"].tolist(), account[when].tolist(), strict=True)
    return dict(zip(keys, account.index.tolist(), strict=True))
