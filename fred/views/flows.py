"""Flow arrows of a trace: from gradients to updates, from models to gradients, and from worker to worker."""

from collections import defaultdict

import numpy as np
import pandas as pd

from fred.schedule.schedule import NONE, Ints, Schedule, Verb

_Numbers = dict[int, list[int]]  # the flows of each item that has any


class Flows:
    """The flows of a trace, numbered from 1, and the items that each passes.

    `passing` and `ending` have the flows of every item by kind: `spans`, `messages`, `rows`, and `arrivals` of models from
    other workers. `passing` has those that begin at the item or pass it, `ending` those that end there.

    Args:
        schedule: the schedule of a run with a clock.
        account: the spans that are drawn, by number.
        sent: the messages that are drawn, by number.
        rows: the rows of the schedule that are drawn.
        end: when the drawn part of the run ends, ns: messages under way by then have no arrival.
    """

    def __init__(self, schedule: Schedule, account: pd.DataFrame, sent: pd.DataFrame, rows: Ints, end: int):
        self._schedule, self._count = schedule, 0
        self.passing: dict[str, _Numbers] = defaultdict(dict)
        self.ending: dict[str, _Numbers] = defaultdict(dict)
        self._busy = account[account["kind"].isin(("computing", "wasted"))]
        self._row, self._message = (
            np.full(len(schedule) + 1, NONE, np.int64) for _ in range(2)
        )  # the last element stands for no row
        self._row[rows] = rows
        between_workers = sent["way"] == "between workers"
        self._message[sent.loc[~between_workers, "row"]] = sent.index[~between_workers]
        self._message[NONE] = NONE
        self._of_gradients()
        self._of_models()
        arrives = sent["arrived"] & (sent["end_ns"] <= end)
        arriving = sent.index[between_workers & arrives & (sent["sender"] != NONE)].to_numpy()
        self._join(messages=arriving, arrivals=arriving)

    def _of_gradients(self) -> None:
        """Add flows of gradients: from the span that computed each, over its message, to the rows that use or drop it.

        If a gradient is sent block by block, only its last block is ready when the span ends.
        """
        rows = self._schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP)
        worker, begin, end = (self._schedule[name][rows] for name in ("worker", "begin_ns", "end_ns"))
        spans = self._spans("end_ns", worker, end)
        spans = np.where((spans == NONE) & (begin < end), self._spans("begin_ns", worker, begin), spans)
        self._join(spans=spans, messages=self._message[rows], rows=self._row[rows])

    def _of_models(self) -> None:
        """Add flows of models: from the row that sends each, over its message, to the span of the first gradient with it.

        The flow of a block that arrives after the span has begun ends with its message.
        """
        schedule = self._schedule
        used = schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP)[::-1]  # reversed so that the first use is assigned last
        begins = np.full(int(schedule["mailbox"].max(initial=0)) + 1, NONE, np.int64)
        begins[schedule["mailbox"][used]] = schedule["begin_ns"][used]
        mixes = schedule.rows(Verb.MIX)[::-1]
        mixes = mixes[begins[schedule["mailbox"][mixes]] != NONE]
        inside = np.arange(len(begins))
        inside[schedule["source"][mixes]] = schedule["mailbox"][mixes]  # models assembled from blocks
        rows = schedule.rows(Verb.PULL)
        rows = rows[schedule.is_on_servers(rows)]
        read = schedule["mailbox"][rows]
        begin = np.where(begins[read] == NONE, begins[inside[read]], begins[read])
        spans = self._spans("begin_ns", schedule["worker"][rows], begin)
        spans[begin < schedule["end_ns"][rows]] = NONE
        self._join(rows=self._row[rows], messages=self._message[rows], spans=spans)

    def _spans(self, name: str, worker: Ints, time: Ints) -> Ints:
        """Return the computing spans of these workers that begin or end at these times, ns; NONE if it is not drawn."""
        boundaries = pd.MultiIndex.from_arrays([self._busy["worker"], self._busy[name]])
        positions = boundaries.get_indexer(pd.MultiIndex.from_arrays([worker, time]))
        return np.append(self._busy.index, NONE)[positions]

    def _join(self, **places: Ints) -> None:
        """Add one flow per position, which joins its drawn items from first to last, if there are at least two.

        `places` are the kinds of items in the order in which the flows pass them. Each has the item of every flow: the number
        of a span or message, or a row of the schedule; NONE if it is not drawn.
        """
        is_drawn = np.array([items != NONE for items in places.values()])
        is_joined = is_drawn.sum(axis=0) > 1
        flow_numbers = self._count + np.cumsum(is_joined)
        self._count += int(is_joined.sum())
        for rank, (kind, items) in enumerate(places.items()):
            ends_here = ~is_drawn[rank + 1 :].any(axis=0)
            for flows, selected in ((self.ending, ends_here), (self.passing, ~ends_here)):
                positions = np.flatnonzero(is_joined & is_drawn[rank] & selected)
                for item, number in zip(items[positions].tolist(), flow_numbers[positions].tolist(), strict=True):
                    flows[kind].setdefault(item, []).append(number)
