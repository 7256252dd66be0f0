"""Messages in a schedule: senders, receivers and times in transit, to and from servers and between workers."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.schedule.schedule import NONE, WAYS, Ints, Schedule, Verb, What, by_name

_TO_WORKERS, _TO_SERVERS, _BETWEEN_WORKERS = range(len(WAYS))


def messages(schedule: Schedule) -> pd.DataFrame:
    """Return every message with a sender and a receiver: first those to servers, then in the order of the rows.

    Collective operations are not included.

    Columns: way (of `WAYS`), begin_ns, end_ns, arrived (false: in transit at the end of the run, or lost in a crash), row
    (of the schedule: the row that uses it or, for a model, sends it; NONE: none), sender and receiver (a worker; the block
    on a server; NONE: all servers, or several workers), bytes (NONE: unknown).

    Messages from servers last from sending to arrival. Messages to servers last from the end of the gradient to its use, or to
    their arrival if the protocol records that they were held until their use. Models between workers last from sending to
    arrival; in sequential exchanges, the time starts when the last awaited sender has begun.

    Args:
        schedule: schedule of a run with a clock, `result.outcome(run).schedule`.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 1, "network": {"latency": {"name": "constant", "seconds": 0.25}}},
    ...     algorithm={"name": "asgd", "learning_rate": 0.1},
    ...     stop={"updates": 1},
    ... )
    >>> messages(fred.run(scenario).outcome("asgd").schedule)[["way", "begin_ns", "end_ns", "sender", "receiver"]]
              way    begin_ns      end_ns  sender  receiver
    0  to servers  1250000000  1500000000       0        -1
    1  to workers           0   250000000      -1         0
    """
    parts = [_up(schedule), _never_used(schedule), _down(schedule), _trips(schedule)]
    table = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    table["way"] = by_name(table["way"].to_numpy(), [way.replace("_", " ") for way in WAYS])
    table["end_ns"] = table["end_ns"].clip(upper=schedule.end_ns)
    return table


def _up(schedule: Schedule) -> pd.DataFrame:
    """Return the messages that servers have used or dropped."""
    rows = _of_servers(schedule, Verb.PUSH, Verb.ADD, Verb.DROP, Verb.SYNC)
    begin, end = schedule["end_ns"][rows], schedule["time_ns"][rows]
    sending = schedule.intervals.only(What.SENDING)
    held = sending.row != NONE
    of_row = np.searchsorted(rows, sending.row[held])
    begin[of_row], end[of_row] = sending.begin_ns[held], sending.end_ns[held]
    sizes = schedule["bytes"][rows]
    return _table(_TO_SERVERS, begin, end, True, rows, schedule["worker"][rows], _server(schedule, rows), sizes)


def _never_used(schedule: Schedule) -> pd.DataFrame:
    """Return the messages that never arrive at servers."""
    _, begin, end, row, worker, _ = schedule.intervals.only(What.SENDING)
    never = row == NONE
    begin, end, worker = begin[never], end[never], worker[never]
    return _table(_TO_SERVERS, begin, end, False, NONE, worker, NONE, NONE)


def _down(schedule: Schedule) -> pd.DataFrame:
    """Return the messages from servers."""
    rows = _of_servers(schedule, Verb.PULL)
    begin, end = schedule["begin_ns"][rows], schedule["end_ns"][rows]
    arrived, sizes = end <= schedule.end_ns, schedule["bytes"][rows]
    return _table(_TO_WORKERS, begin, end, arrived, rows, _server(schedule, rows), schedule["worker"][rows], sizes)


def _trips(schedule: Schedule) -> pd.DataFrame:
    """Return the models sent between workers; a published model may go to several, at the same size for each."""
    _, begin, end, row, sender, receiver = schedule.intervals.only(What.TRIP)
    sizes = np.where(row == NONE, NONE, schedule["bytes"][row] // schedule["messages"][row].clip(1)) if len(row) else row
    arrived = (end < schedule.end_ns) | (begin == end)
    return _table(_BETWEEN_WORKERS, begin, end, arrived, row, sender, receiver, sizes)


def _of_servers(schedule: Schedule, *verbs: Verb) -> Ints:
    """Return the rows about replicas on servers for which something was sent."""
    rows = schedule.rows(*verbs)
    return rows[(schedule["messages"][rows] > 0) & schedule.is_on_servers(rows)]


def _server(schedule: Schedule, rows: Ints) -> Ints:
    return schedule["block"][rows] if schedule.blocks > 1 else np.full(len(rows), NONE)


def _table(
    way: int,
    begin: Ints,
    end: Ints,
    arrived: NDArray[np.bool_] | bool,
    row: Ints | int,
    sender: Ints | int,
    receiver: Ints | int,
    size: Ints | int,
) -> pd.DataFrame:
    """Return a table of messages of one way; values common to all are given once."""
    columns = {"way": way, "begin_ns": begin, "end_ns": end, "arrived": arrived, "row": row, "sender": sender}
    return pd.DataFrame({**columns, "receiver": receiver, "bytes": size}, index=range(len(begin)))
