"""Messages in a schedule: senders, receivers and times in transit; bytes to and from servers and between workers."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base.types import Ints
from fred.components.component import NANOSECONDS
from fred.schedule.schedule import NONE, WAYS, Schedule, Verb, What, by_name, exact_sum

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
    parts = [_to_servers(schedule), _never_used(schedule), _from_servers(schedule), _trips(schedule)]
    table = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    table["way"] = by_name(table["way"].to_numpy(), [way.replace("_", " ") for way in WAYS])
    table["end_ns"] = table["end_ns"].clip(upper=schedule.end_ns)
    return table


def _to_servers(schedule: Schedule) -> pd.DataFrame:
    """Return the messages that servers have used or dropped."""
    # A message leaves when its gradient is computed, and arrives when it is used. Where a server holds it until then, a SENDING
    # interval of its row has the times of the trip.
    rows = _rows_of_servers(schedule, Verb.PUSH, Verb.ADD, Verb.DROP, Verb.SYNC)
    begin, end = schedule["end_ns"][rows], schedule["time_ns"][rows]
    sending = schedule.intervals.select(What.SENDING)
    has_row = sending.row != NONE
    position = np.searchsorted(rows, sending.row[has_row])
    begin[position], end[position] = sending.begin_ns[has_row], sending.end_ns[has_row]
    sizes = schedule["bytes"][rows]
    return _table(_TO_SERVERS, begin, end, rows, schedule["worker"][rows], _server(schedule, rows), sizes, arrived=True)


def _never_used(schedule: Schedule) -> pd.DataFrame:
    """Return the messages that never arrive at servers."""
    _, begin, end, row, worker, _ = schedule.intervals.select(What.SENDING)
    is_lost = row == NONE
    begin, end, worker = begin[is_lost], end[is_lost], worker[is_lost]
    return _table(_TO_SERVERS, begin, end, NONE, worker, NONE, NONE, arrived=False)


def _from_servers(schedule: Schedule) -> pd.DataFrame:
    """Return the messages from servers."""
    rows = _rows_of_servers(schedule, Verb.PULL)
    begin, end = schedule["begin_ns"][rows], schedule["end_ns"][rows]
    arrived, sizes = end <= schedule.end_ns, schedule["bytes"][rows]
    return _table(_TO_WORKERS, begin, end, rows, _server(schedule, rows), schedule["worker"][rows], sizes, arrived)


def _trips(schedule: Schedule) -> pd.DataFrame:
    """Return the models sent between workers; a published model may go to several, at the same size for each."""
    _, begin, end, row, sender, receiver = schedule.intervals.select(What.TRIP)
    messages_of_row = schedule["messages"][row].clip(1)  # at least 1, or NONE (the last row, unused) might divide by 0
    sizes = np.where(row == NONE, NONE, schedule["bytes"][row] // messages_of_row) if len(row) else row
    arrived = (end < schedule.end_ns) | (begin == end)  # those in transit at the end of the run end there
    return _table(_BETWEEN_WORKERS, begin, end, row, sender, receiver, sizes, arrived)


def _rows_of_servers(schedule: Schedule, *verbs: Verb) -> Ints:
    """Return the rows about replicas on servers for which something was sent."""
    rows = schedule.rows(*verbs)
    return rows[(schedule["messages"][rows] > 0) & schedule.is_on_servers(rows)]


def _server(schedule: Schedule, rows: Ints) -> Ints:
    """Return the server of each row: that of its block; NONE: all servers together."""
    return schedule["block"][rows] if schedule.blocks > 1 else np.full(len(rows), NONE)


def _table(
    way: int,
    begin: Ints,
    end: Ints,
    row: Ints | int,
    sender: Ints | int,
    receiver: Ints | int,
    size: Ints | int,
    arrived: NDArray[np.bool_] | bool,
) -> pd.DataFrame:
    """Return a table of messages of one way [messages]; values common to all are given once."""
    columns = {"way": way, "begin_ns": begin, "end_ns": end, "arrived": arrived, "row": row, "sender": sender}
    return pd.DataFrame({**columns, "receiver": receiver, "bytes": size}, index=range(len(begin)))


def traffic(schedule: Schedule) -> dict[str, dict[str, int]]:
    """Return the bytes and messages from servers to workers, from workers to servers, and between workers.

    Args:
        schedule: schedule of any run; without a task its messages have no bytes, unless `message_bytes` is set.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    ...     algorithm={"name": "asgd", "learning_rate": 0.1},
    ...     stop={"updates": 4},
    ... )
    >>> traffic(fred.run(scenario).outcome("asgd").schedule)["messages"]
    {'to_workers': 5, 'to_servers': 4, 'between_workers': 0}
    """
    pulls = schedule["verb"] == Verb.PULL
    on_server = np.isin(schedule["replica"], schedule.on_servers)
    ways = dict(zip(WAYS, (pulls & on_server, ~pulls & on_server, ~on_server), strict=True))
    return {unit: {way: exact_sum(schedule[unit][rows]) for way, rows in ways.items()} for unit in ("bytes", "messages")}


def copies(schedule: Schedule) -> pd.DataFrame:
    """Return the copies sent and the copies possible [Odena 2016, figure 3]: a row per gradient known to servers, in order.

    Each gradient could be pushed once and, before that, parameters could be fetched once. Columns, cumulative up to that
    gradient: seconds, updates (so far), potential, pushes, fetches, pushed_bytes, fetched_bytes.

    Args:
        schedule: schedule of a run with servers.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    ...     algorithm={"name": "asgd", "learning_rate": 0.1},
    ...     stop={"updates": 4},
    ... )
    >>> copies(fred.run(scenario).outcome("asgd").schedule)[["seconds", "potential", "pushes", "fetches"]].tail(1)
       seconds  potential  pushes  fetches
    3      1.0          4       4        4
    """
    rows = schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP)
    rows = rows[(schedule["step"][rows] != NONE) & np.isin(schedule["replica"][rows], schedule.on_servers)]
    worker, step, mailbox = (schedule[name][rows] for name in ("worker", "step", "mailbox"))
    # A gradient is identified by worker and step: `key` numbers them, and `first` has the position of each one's first row.
    # Gradients come in the order of these rows. Several may have been computed at one mailbox: its fetch counts for the first
    # of them only.
    _, first, key = np.unique(worker * (step.max(initial=0) + 1) + step, return_index=True, return_inverse=True)
    order = np.argsort(first)
    first_rows, mailboxes = rows[first[order]], mailbox[first[order]]
    _, first_readers = np.unique(mailboxes, return_index=True)
    columns = {
        "seconds": schedule["time_ns"][first_rows] / NANOSECONDS,
        "updates": np.searchsorted(schedule.ledger.every_update, first_rows) // schedule.blocks,
        "potential": 1 + np.arange(len(order)),
    }
    for unit, (pushed, fetched) in {"messages": ("pushes", "fetches"), "bytes": ("pushed_bytes", "fetched_bytes")}.items():
        up = np.bincount(key, schedule[unit][rows], len(order))[order]
        down = np.zeros(len(order))
        down[first_readers] = _fetched(schedule, unit)[mailboxes[first_readers]]
        # A gradient is one push, and its parameters one fetch, whatever the number of messages.
        columns |= {pushed: up, fetched: down} if unit == "bytes" else {pushed: up > 0, fetched: down > 0}
        columns |= {name: np.cumsum(columns[name]) for name in (pushed, fetched)}
    return pd.DataFrame(columns)


def _fetched(schedule: Schedule, unit: str) -> NDArray[np.float64]:
    """Return the messages or bytes sent to fill each mailbox; a block counts in the first mailbox that includes it."""
    pulls, mixes = schedule.rows(Verb.PULL), schedule.rows(Verb.MIX)
    fetched = np.zeros(int(schedule["mailbox"].max(initial=0)) + 1)
    fetched[schedule["mailbox"][pulls]] = schedule[unit][pulls]
    _, first = np.unique(schedule["source"][mixes], return_index=True)
    first_mixes = mixes[first]  # the first one of each source
    np.add.at(fetched, schedule["mailbox"][first_mixes], fetched[schedule["source"][first_mixes]])
    return fetched
