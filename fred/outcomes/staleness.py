"""How late gradients and models are when they are used, counted from a schedule's columns."""

import bisect

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.schedule.schedule import NONE, Ints, Schedule, Verb


def of_gradients(schedule: Schedule) -> Ints:
    """Updates that others' (or earlier) gradients made between the read and the use of each gradient that was used.

    What averaging with other models changes meanwhile (SYNC) advances a replica's clock, but makes no gradient stale. What
    servers are told, the schedule's `staleness`, may be less: of stamps as published (`gated`).

    Args:
        schedule: of any run.

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
    since = schedule.read_at(uses)
    stale: Ints = schedule["timestamp"][uses] + schedule["staleness"][uses] - since
    if not len(syncs):
        return stale
    stride = int(schedule["timestamp"].max()) + int(schedule["staleness"].max()) + 1  # above any clock
    when = np.sort(schedule.cells(syncs) * stride + schedule["timestamp"][syncs])
    read = schedule.cells(uses) * stride + since
    averaged: Ints = np.searchsorted(when, read + stale) - np.searchsorted(when, read)
    return stale - averaged


def by_block(schedule: Schedule) -> pd.DataFrame:
    """Staleness of gradients in each block of the parameters [Chen et al. 2017, table 1]: min, mean, ..., count; by block.

    Args:
        schedule: of any run; where parameters are not cut, there is one block.

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
    """R of Birch SGD: how many gradients had been applied, at most, since the one's parameters were read, when it was.

    A round's gradients count as applied one after the other. In the tree of points it is the number of edges from the
    newest one back to where a gradient was computed [Birch SGD 2025, arXiv:2505.09218]. Of several blocks it is the most.

    Args:
        schedule: of any run.

    A difference of models counts as the gradients of the steps that made it.

    Returns: None where models are averaged, or differences are anything but added up; and where nothing was applied.

    >>> import fred
    >>> scenario = fred.scenario(cluster={"workers": 4}, algorithm={"name": "ssgd", "learning_rate": 0.1}, stop={"updates": 3})
    >>> in_gradients(fred.run(scenario).outcome("ssgd").schedule)
    3
    """
    if schedule.replicas > 1:
        return _in_differences(schedule)
    ledger = schedule.ledger
    if len(schedule.rows(Verb.SYNC)) or (ledger.gradients == NONE).any() or not (ledger.updates != NONE).any():
        return None
    most, blocks, read = 0, schedule["block"], schedule.read_at(ledger.uses)
    for block in range(schedule.blocks):
        own = (blocks[ledger.uses] == block) & (ledger.updates != NONE)
        changes = ledger.every_update[blocks[ledger.every_update] == block]
        applied = np.searchsorted(ledger.updates[own], changes, side="right")  # gradients, after each change
        before = np.concatenate(([0], applied))[read[own]]
        most = max(most, int((np.arange(own.sum()) - before).max(initial=0)))
    return most


def _in_differences(schedule: Schedule) -> int | None:
    """The same where workers make steps of their own from the server's model on, and it adds up what these have changed."""
    rows = schedule.rows(Verb.ADD, Verb.COMMIT)
    rows = rows[schedule["replica"][rows] == schedule.workers]
    if not len(rows) or schedule.blocks > 1 or not _adds_up(schedule, rows):
        return None
    position = np.zeros(int(schedule["mailbox"].max()) + 1, np.int64)
    pulls = schedule.rows(Verb.PULL)
    position[schedule["mailbox"][pulls]] = pulls
    steps = {
        worker: np.flatnonzero((schedule["verb"] == Verb.PUSH) & (schedule["worker"] == worker))
        for worker in range(schedule.workers)
    }
    applied_at, applied, waiting, most = [(0, 0)], 0, list[tuple[int, int]](), 0
    for row in rows.tolist():
        if schedule["verb"][row] == Verb.ADD:
            ends = position[[schedule["source"][row], schedule["mailbox"][row]]]
            begin, end = np.searchsorted(steps[int(schedule["worker"][row])], ends)
            waiting.append((int(ends[0]), int(end - begin)))
            continue
        for read, count in waiting:
            before = applied_at[bisect.bisect_left(applied_at, (read, 0)) - 1][1]
            applied += count
            most = max(most, applied - before - 1)
        applied_at.append((row, applied))
        waiting.clear()
    return most if applied else None


def _adds_up(schedule: Schedule, rows: Ints) -> bool:
    """Whether all that these rows do to the server's model is to add differences, and everybody takes it as it is."""
    syncs, verbs, weights = schedule.rows(Verb.SYNC), schedule["verb"][rows], schedule["weight"][rows]
    whole = (schedule["keep"][syncs] == 0).all() and (schedule["weight"][syncs] == 1).all() and (weights == 1).all()
    differences = (schedule["step"][rows][verbs == Verb.ADD] == NONE).all()
    return bool(whole and differences and not len(schedule.rows(Verb.MIX)))


def of_models(schedule: Schedule) -> Ints:
    """Iterations by which each worker's model that entered an average was behind the most advanced one who took the average.

    A worker's iterations are the updates that gradients have made of its own replica, up to when its model was read; who is
    ahead counts as 0. Only the first block is looked at. Empty where workers average no models.

    Args:
        schedule: of any run.
    """
    first = schedule["block"] == 0
    own = (schedule["replica"] < schedule.workers) & ~np.isin(schedule["replica"], schedule.on_servers)
    pulls = np.flatnonzero((schedule["verb"] == Verb.PULL) & first & own)
    mixes = np.flatnonzero((schedule["verb"] == Verb.MIX) & first & (schedule["weight"] > 0))
    syncs = np.flatnonzero((schedule["verb"] == Verb.SYNC) & first)
    if not len(syncs):
        return np.zeros(0, np.int64)
    updates, takers = (np.full(int(schedule["mailbox"].max()) + 1, NONE, np.int64) for _ in range(2))
    updates[schedule["mailbox"][pulls]] = _updates(schedule, pulls)
    np.maximum.at(takers, schedule["mailbox"][syncs], _updates(schedule, syncs))
    whole = np.unique(schedule["mailbox"][syncs])  # a model that is taken as it is
    average = np.concatenate((schedule["mailbox"][mixes], whole))
    model = np.concatenate((schedule["source"][mixes], whole))
    known = (takers[average] != NONE) & (updates[model] != NONE)
    age: Ints = (takers[average] - updates[model])[known].clip(0)
    return age


def _updates(schedule: Schedule, rows: NDArray[np.intp]) -> Ints:
    """How many updates gradients had made of each of these rows' replica before it."""
    changes = np.flatnonzero(np.isin(schedule["verb"], (Verb.PUSH, Verb.COMMIT)) & (schedule["block"] == 0))
    stride = len(schedule) + 1
    order = np.sort(schedule["replica"][changes] * stride + changes)
    replica: Ints = schedule["replica"][rows] * stride
    made: Ints = np.searchsorted(order, replica + rows) - np.searchsorted(order, replica)
    return made
