"""Tasks -> plan: which process does each task, and which values cross from one process to another. No JAX.

A plan is a function of a program alone: every process makes the same one. Process 0 is the run's own: it passes the marks,
and holds the servers. A worker with a replica of its own computes in one process, so that only averages cross; otherwise
each gradient goes to the process that is free first. A value that crosses has a slot in shared memory until its last reader
has copied it; slots are assigned as registers are, in the order of the tasks, so waiting for one never blocks a cycle.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from fred.replay.tasks import MESSAGES, START, Do, Tasks
from fred.replay.versions import assign_slots

_UPDATE, _CROSSING = 0.1, 0.05  # costs of an update, with the copy for others, and of reading a value, in gradients
_COST = {Do.GRADIENT: 1.0, Do.FINISH: 1.0, Do.MARK: 0.0}


@dataclass(frozen=True)
class Crossing:
    """A value in shared memory.

    Args:
        slot: number of its slot among those of its shape.
        readers: processes that copy it.
        before: the value that had the slot before, or None.
    """

    slot: int
    readers: tuple[int, ...]
    before: int | None


@dataclass(frozen=True)
class Plan:
    """The division of tasks among processes."""

    tasks: Tasks
    process: list[int]  # of each task
    own: list[list[int]]  # of each process: its tasks, in an order in which each follows those it needs
    crossings: dict[int, Crossing]  # by value
    slots: dict[tuple[str, int], int]  # number of slots of each shape
    duration: float  # predicted, in gradients

    @property
    def speed_up(self) -> float:
        """Return the predicted speed-up against one process, of which only the gradients are counted."""
        alone = sum(_COST.get(task.do, 0.0) for task in self.tasks.tasks)
        return alone / self.duration if self.duration else 1.0


def plan_of(tasks: Tasks, processes: int) -> Plan:
    """Return the plan for these tasks and this number of processes, which include the run's own."""
    order, readers = tasks.order(processes), tasks.readers()
    process = _by_worker(tasks, processes) if _local(tasks) else [0] * len(tasks.tasks)
    _place_mixes(tasks, readers, process)
    duration = _run(tasks, order, process, processes, choose=not _local(tasks))
    own = [[number for number in order if process[number] == each] for each in range(processes)]
    return Plan(tasks, process, own, *_crossings(tasks, order, readers, process), duration)


def _local(tasks: Tasks) -> bool:
    """Return True if workers have replicas, or memories, of their own."""
    return tasks.replicas > 1 or any(len(task.writes) > 1 for task in tasks.tasks if task.do in MESSAGES)


def _by_worker(tasks: Tasks, processes: int) -> list[int]:
    """Return the process of each task: neighbouring workers share one, and so do their replicas."""
    loads = Counter(task.sender for task in tasks.tasks if task.do in MESSAGES)
    home, before, total = dict[int, int](), 0.0, max(1, loads.total())
    for worker in sorted(loads):
        home[worker] = int((before + loads[worker] / 2) / total * processes)
        before += loads[worker]
    senders = _senders(tasks)
    process = []
    for task in tasks.tasks:
        if task.do in MESSAGES:
            process.append(home[task.sender])
        elif task.do == Do.MARK or len(senders.get(task.replica, ())) != 1:
            process.append(0)  # a server's replica
        else:
            process.append(home[next(iter(senders[task.replica]))])
    return process


def _senders(tasks: Tasks) -> dict[int, set[int]]:
    """Return the workers whose messages each replica receives."""
    found: dict[int, set[int]] = {}
    for task in tasks.tasks:
        for value in task.reads if task.do in (Do.APPLY, Do.ADD, Do.COMMIT) else ():
            maker = tasks.maker[value]
            if maker != START and tasks.tasks[maker].do in MESSAGES:
                found.setdefault(task.replica, set()).add(tasks.tasks[maker].sender)
    return found


def _run(tasks: Tasks, order: list[int], process: list[int], processes: int, choose: bool) -> float:
    """Return the predicted duration of the tasks, in gradients; `choose`: first give each message to a free process."""
    free, ready = [0.0] * processes, [0.0] * len(tasks.maker)
    for number in order:
        task = tasks.tasks[number]
        if choose and task.do in MESSAGES:
            process[number] = min(range(processes), key=lambda each: (free[each], -each))
        own = process[number]
        crossing = sum(tasks.maker[value] != START and process[tasks.maker[value]] != own for value in task.reads)
        free[own] = (
            max([free[own], *(ready[value] for value in task.reads)]) + _CROSSING * crossing + _COST.get(task.do, _UPDATE)
        )
        for value in task.writes:
            ready[value] = free[own]
    return max(free)


def _place_mixes(tasks: Tasks, readers: list[list[int]], process: list[int]) -> None:
    """Move each average to the process that reads it first."""
    for number in reversed(range(len(tasks.tasks))):
        task = tasks.tasks[number]
        if task.do == Do.MIX and readers[task.writes[0]]:
            process[number] = process[readers[task.writes[0]][0]]


def _crossings(
    tasks: Tasks, order: list[int], readers: list[list[int]], process: list[int]
) -> tuple[dict[int, Crossing], dict[tuple[str, int], int]]:
    """Return the values that cross between processes, and the number of slots of each shape."""
    rank = {START: START} | {number: rank for rank, number in enumerate(order)}
    remote = {}
    for value, maker in enumerate(tasks.maker):
        home = 0 if maker == START else process[maker]
        others = [reader for reader in readers[value] if process[reader] != home]
        if others:
            remote[value] = others
    crossings, slots = dict[int, Crossing](), dict[tuple[str, int], int]()
    for shape in dict.fromkeys(tasks.shapes[value] for value in remote):
        values = sorted((value for value in remote if tasks.shapes[value] == shape), key=lambda value: rank[tasks.maker[value]])
        begin = np.array([rank[tasks.maker[value]] for value in values])
        end = np.array([max(rank[reader] for reader in remote[value]) for value in values])
        assigned = assign_slots(2 * begin, 2 * end + 1).tolist()  # a task's slots are free before it reads
        slots[shape] = max(assigned) + 1
        by_slot: dict[int, list[int]] = {}
        for value, slot in zip(values, assigned, strict=True):
            by_slot.setdefault(slot, []).append(value)
        for slot, own in by_slot.items():
            for before, value in zip([None, *own[:-1]], own, strict=True):
                processes = tuple(sorted({process[reader] for reader in remote[value]}))
                crossings[value] = Crossing(slot, processes, before)
    return crossings, slots
