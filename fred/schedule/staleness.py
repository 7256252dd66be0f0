"""Staleness of gradients and models when they are used, from a schedule's columns."""

import bisect

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base.types import Ints
from fred.schedule.schedule import NONE, Schedule, Verb


def of_gradients(schedule: Schedule) -> Ints:
    """Return the staleness of each used gradient: updates by other (or earlier) gradients between its read and its use.

    Averaging with other models (SYNC) advances a replica's clock but does not count as staleness. The schedule's
    `staleness`, as reported to servers, may be less: for stamps as published (`gated`).

    Args:
        schedule: schedule of any run.

    Returns: one number for each row that uses a gradient (PUSH, ADD), in the order of the rows [uses].

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    ...     algorithm={"name": "asgd", "learning_rate": 0.1},
    ...     stop={"updates": 4},
    ... )
    >>> of_gradients(fred.run(scenario).outcome("asgd").schedule).tolist()
    [0, 1, 1, 1]
    """
    uses, syncs = schedule.rows(Verb.PUSH, Verb.ADD), schedule.rows(Verb.SYNC)
    read_clock = schedule.read_clocks(uses)
    stale: Ints = schedule["timestamp"][uses] + schedule["staleness"][uses] - read_clock  # clock at use - clock at read
    if not len(syncs):
        return stale
    # `cell * stride + clock` sorts by replica and block, then by clock, so two searches count the SYNCs from read to use.
    stride = int(schedule["timestamp"].max()) + int(schedule["staleness"].max()) + 1  # above any clock
    sync_clocks = np.sort(schedule.cells(syncs) * stride + schedule["timestamp"][syncs])
    begin = schedule.cells(uses) * stride + read_clock
    averaged: Ints = np.searchsorted(sync_clocks, begin + stale) - np.searchsorted(sync_clocks, begin)
    return stale - averaged


def by_block(schedule: Schedule) -> pd.DataFrame:
    """Return the staleness of gradients per block of the parameters [Chen et al. 2017, table 1]: min, mean, ..., count.

    Args:
        schedule: schedule of any run; unless parameters are split, there is one block.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    ...     algorithm={"name": "asgd", "learning_rate": 0.1},
    ...     stop={"updates": 4},
    ... )
    >>> by_block(fred.run(scenario).outcome("asgd").schedule).reset_index()[["block", "min", "mean", "max", "count"]]
       block  min  mean  max  count
    0      0    0  0.75    1      4
    """
    rows = schedule.rows(Verb.PUSH, Verb.ADD)
    stale = pd.Series(of_gradients(schedule)).groupby(pd.Series(schedule["block"][rows], name="block"))
    columns = {name: stale.agg(name) for name in ("min", "mean", "median", "max")}
    return pd.DataFrame({**columns, "std": stale.std(ddof=0), "count": stale.count()})


def in_gradients(schedule: Schedule) -> int | None:
    """Return R of Birch SGD: the largest number of gradients applied between a gradient's read and its own use.

    A round's gradients count as applied one after the other. In the tree of points it is the number of edges from the
    newest point back to the point of a gradient [Birch SGD 2025, arXiv:2505.09218]. Over several blocks it is the maximum.

    Args:
        schedule: schedule of any run.

    A pseudo-gradient counts as the gradients of its local steps.

    Returns: None if models are averaged, if pseudo-gradients are used in any other way than summed, or if nothing was applied.

    >>> import fred
    >>> scenario = fred.scenario(cluster={"workers": 4}, algorithm={"name": "ssgd", "learning_rate": 0.1}, stop={"updates": 3})
    >>> in_gradients(fred.run(scenario).outcome("ssgd").schedule)
    3
    """
    if schedule.replicas > 1:
        return _in_pseudo_gradients(schedule)
    ledger = schedule.ledger
    if len(schedule.rows(Verb.SYNC)) or (ledger.gradients == NONE).any() or not (ledger.updates != NONE).any():
        return None
    largest, block_of_row, read_clocks = 0, schedule["block"], schedule.read_clocks(ledger.uses)
    for block in range(schedule.blocks):
        in_block = (block_of_row[ledger.uses] == block) & (ledger.updates != NONE)
        block_updates = ledger.every_update[block_of_row[ledger.every_update] == block]
        applied = np.searchsorted(ledger.updates[in_block], block_updates, side="right")  # gradients, after each update
        applied_at_read = np.concatenate(([0], applied))[read_clocks[in_block]]  # the clock counts the block's updates
        applied_before_use = np.arange(in_block.sum())
        largest = max(largest, int((applied_before_use - applied_at_read).max(initial=0)))
    return largest


def _in_pseudo_gradients(schedule: Schedule) -> int | None:
    """Return R for workers that take local steps from the server's model, which sums their pseudo-gradients."""
    rows = schedule.rows(Verb.ADD, Verb.COMMIT)
    rows = rows[schedule["replica"][rows] == schedule.workers]
    if not len(rows) or schedule.blocks > 1 or not _adds_up(schedule, rows):
        return None
    pull_of_mailbox = np.zeros(int(schedule["mailbox"].max()) + 1, np.int64)  # row
    pulls = schedule.rows(Verb.PULL)
    pull_of_mailbox[schedule["mailbox"][pulls]] = pulls
    step_rows = {
        worker: np.flatnonzero((schedule["verb"] == Verb.PUSH) & (schedule["worker"] == worker))
        for worker in range(schedule.workers)
    }
    applied, largest = 0, 0
    applied_after_commit = [(-1, 0)]  # row of the COMMIT, gradients applied; before all rows, none
    round_members = list[tuple[int, int]]()  # of the open round: row in which the worker read the model, local steps from there
    for row in rows.tolist():
        if schedule["verb"][row] == Verb.ADD:
            # Local steps lie between the reads of the models before and after them.
            first_pull, last_pull = pull_of_mailbox[[schedule["source"][row], schedule["mailbox"][row]]]
            begin, end = np.searchsorted(step_rows[int(schedule["worker"][row])], (first_pull, last_pull))
            round_members.append((int(first_pull), int(end - begin)))
            continue
        for pull, steps in round_members:
            last_commit = bisect.bisect_left(applied_after_commit, (pull, 0)) - 1
            _, applied_at_read = applied_after_commit[last_commit]
            applied += steps
            largest = max(largest, applied - applied_at_read - 1)  # the last step itself does not count
        applied_after_commit.append((row, applied))
        round_members.clear()
    return largest if applied else None


def _adds_up(schedule: Schedule, rows: Ints) -> bool:
    """Return True if these rows only add pseudo-gradients to the server's model, and all workers take it as it is."""
    syncs, verbs, weights = schedule.rows(Verb.SYNC), schedule["verb"][rows], schedule["weight"][rows]
    is_copied = (schedule["keep"][syncs] == 0).all() and (schedule["weight"][syncs] == 1).all() and (weights == 1).all()
    pseudo_gradients = (schedule["step"][rows][verbs == Verb.ADD] == NONE).all()
    return bool(is_copied and pseudo_gradients and not len(schedule.rows(Verb.MIX)))


def of_models(schedule: Schedule) -> Ints:
    """Return how many iterations each averaged worker model was behind the most advanced worker that took the average.

    A worker's iterations are the updates by gradients of its own replica, up to the read of its model; a model that is ahead
    counts as 0. Only the first block is used. Empty if workers average no models.

    Args:
        schedule: schedule of any run.
    """
    first = schedule["block"] == 0
    on_workers = (schedule["replica"] < schedule.workers) & ~np.isin(schedule["replica"], schedule.on_servers)
    pulls = np.flatnonzero((schedule["verb"] == Verb.PULL) & first & on_workers)
    mixes = np.flatnonzero((schedule["verb"] == Verb.MIX) & first & (schedule["weight"] > 0))
    syncs = np.flatnonzero((schedule["verb"] == Verb.SYNC) & first)
    if not len(syncs):
        return np.zeros(0, np.int64)
    # By mailbox: updates of the model that it holds, and of the most advanced worker that takes it.
    model_updates, taker_updates = (np.full(int(schedule["mailbox"].max()) + 1, NONE, np.int64) for _ in range(2))
    model_updates[schedule["mailbox"][pulls]] = _updates(schedule, pulls)
    np.maximum.at(taker_updates, schedule["mailbox"][syncs], _updates(schedule, syncs))
    synced = np.unique(schedule["mailbox"][syncs])  # a model taken as it is counts as an average of itself alone
    average = np.concatenate((schedule["mailbox"][mixes], synced))
    model = np.concatenate((schedule["source"][mixes], synced))
    is_compared = (taker_updates[average] != NONE) & (model_updates[model] != NONE)
    age: Ints = (taker_updates[average] - model_updates[model])[is_compared].clip(0)
    return age


def _updates(schedule: Schedule, rows: NDArray[np.intp]) -> Ints:
    """Return the number of updates by gradients, before each of these rows, of the row's replica."""
    changes = np.flatnonzero(np.isin(schedule["verb"], (Verb.PUSH, Verb.COMMIT)) & (schedule["block"] == 0))
    # `replica * stride + row` sorts by replica, then by row. Two searches count the changes from a replica's first row on.
    stride = len(schedule) + 1
    change_keys = np.sort(schedule["replica"][changes] * stride + changes)
    first_keys: Ints = schedule["replica"][rows] * stride
    counts: Ints = np.searchsorted(change_keys, first_keys + rows) - np.searchsorted(change_keys, first_keys)
    return counts
