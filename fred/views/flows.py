"""What leads to what, in a drawing: from gradients to updates, from models to gradients, from worker to worker."""

from collections import defaultdict

import numpy as np
import pandas as pd

from fred.schedule.schedule import NONE, Ints, Schedule, Verb

_Numbers = dict[int, list[int]]  # flows, of each thing that has any


class Flows:
    """Flows, by number, and what each passes.

    Args:
        schedule: of a run with a clock.
        account: what is drawn of its spans, by number.
        sent: what is drawn of its messages, by number.
        rows: which of its rows are drawn.

    Of each kind of things, `spans`, `messages`, `arrivals` of models from other workers and `rows`: which flows begin at one
    of them, or pass it, and which end there.
    """

    def __init__(self, schedule: Schedule, account: pd.DataFrame, sent: pd.DataFrame, rows: Ints):
        self._schedule, self._count = schedule, 0
        self.passing: dict[str, _Numbers] = defaultdict(dict)
        self.ending: dict[str, _Numbers] = defaultdict(dict)
        self._busy = account[account["kind"].isin(("computing", "wasted"))]
        self._row, self._message = (np.full(len(schedule) + 1, NONE, np.int64) for _ in range(2))  # the last is of no row
        self._row[rows] = rows
        across = sent["way"] == "between workers"
        self._message[sent.loc[~across, "row"]] = sent.index[~across]
        self._message[NONE] = NONE
        self._of_gradients()
        self._of_models()
        between = sent.index[across & sent["arrived"] & (sent["sender"] != NONE)].to_numpy()
        self._join(messages=between, arrivals=between)

    def _of_gradients(self) -> None:
        """From the span in which each was computed, over its message, to each row that uses or drops it.

        Of a gradient that is sent block by block only the last block is ready when the span ends.
        """
        rows = self._schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP)
        worker, begin, end = (self._schedule[name][rows] for name in ("worker", "begin_ns", "end_ns"))
        spans = self._spans("end_ns", worker, end)
        spans = np.where((spans == NONE) & (begin < end), self._spans("begin_ns", worker, begin), spans)
        self._join(spans=spans, messages=self._message[rows], rows=self._row[rows])

    def _of_models(self) -> None:
        """From where a server sends each, over its message, to the span of the first gradient that is computed with it.

        Blocks that arrive when the span has begun end with their message.
        """
        schedule = self._schedule
        used = schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP)[::-1]  # so that the first use stays, here and below
        begins = np.full(int(schedule["mailbox"].max(initial=0)) + 1, NONE, np.int64)
        begins[schedule["mailbox"][used]] = schedule["begin_ns"][used]
        mixes = schedule.rows(Verb.MIX)[::-1]
        mixes = mixes[begins[schedule["mailbox"][mixes]] != NONE]
        inside = np.arange(len(begins))
        inside[schedule["source"][mixes]] = schedule["mailbox"][mixes]  # models that are composed of blocks
        rows, where = schedule.rows(Verb.PULL), schedule.on_servers
        rows = rows[(schedule["replica"][rows] >= where.start) & (schedule["replica"][rows] < where.stop)]
        read = schedule["mailbox"][rows]
        begin = np.where(begins[read] == NONE, begins[inside[read]], begins[read])
        spans = self._spans("begin_ns", schedule["worker"][rows], begin)
        spans[begin < schedule["end_ns"][rows]] = NONE
        self._join(rows=self._row[rows], messages=self._message[rows], spans=spans)

    def _spans(self, name: str, worker: Ints, time: Ints) -> Ints:
        """Of these workers the spans of computing that begin or end then; NONE where none is drawn."""
        known = pd.MultiIndex.from_arrays([self._busy["worker"], self._busy[name]])
        found = known.get_indexer(pd.MultiIndex.from_arrays([worker, time]))
        return np.append(self._busy.index, NONE)[found]

    def _join(self, **places: Ints) -> None:
        """A flow for each position: from the first of its places that is drawn to the last, if two are at least."""
        drawn = np.array([numbers != NONE for numbers in places.values()])
        joined = drawn.sum(axis=0) > 1
        flow = self._count + np.cumsum(joined)
        self._count += int(joined.sum())
        for number, (kind, places_) in enumerate(places.items()):
            last = ~drawn[number + 1 :].any(axis=0)
            for to, which in ((self.ending, last), (self.passing, ~last)):
                here = np.flatnonzero(joined & drawn[number] & which)
                for place, each in zip(places_[here].tolist(), flow[here].tolist(), strict=True):
                    to[kind].setdefault(place, []).append(each)
