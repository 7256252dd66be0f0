"""Tasks -> plan: which process does each task, and which values cross from one process to another. No JAX.

A plan is a function of a program alone: every process makes the same one, by simulating all of them. Process 0 is the run's
own: it passes the marks, and holds the servers. A worker with a replica of its own computes in one process, so that only
averages cross; otherwise each gradient goes to the process that is free first. A value that crosses has a slot in shared
memory until its last reader has copied it; slots are assigned as registers are, in the order in which the tasks begin, so
waiting for one never blocks a cycle.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from fred.replay.tasks import MESSAGES, START, Action, Tasks
from fred.replay.versions import assign_slots

_UPDATE, _CROSSING = 0.05, 0.05  # costs of an update, and of handing a value over, in gradients
_SLACK = 4  # tasks, for each process, by which a slot is kept longer, so that a slow reader stops nobody
_COST = {Action.GRADIENT: 1.0, Action.FINISH: 1.0, Action.MARK: 0.0}


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
    queues: list[list[int]]  # of each process: its tasks, in an order in which each follows those it needs
    crossings: dict[int, Crossing]  # by value
    slots: dict[tuple[str, int], int]  # number of slots of each shape
    duration: float  # predicted, in gradients

    @property
    def speed_up(self) -> float:
        """Return the predicted speed-up against one process, of which only the gradients are counted."""
        serial = sum(_COST.get(task.action, 0.0) for task in self.tasks.tasks)
        return serial / self.duration if self.duration else 1.0


def plan_of(tasks: Tasks, processes: int) -> Plan:
    """Return the plan for these tasks and this number of processes, which include the run's own."""
    readers, local = tasks.readers(), _local(tasks)
    process_of = _by_worker(tasks, processes) if local else [0] * len(tasks.tasks)
    _place_mixes(tasks, readers, process_of)
    order, duration = _simulate(tasks, readers, process_of, processes, choose=not local)
    queues = [[number for number in order if process_of[number] == index] for index in range(processes)]
    return Plan(tasks, process_of, queues, *_crossings(tasks, order, readers, process_of), duration)


def _local(tasks: Tasks) -> bool:
    """Return True if workers have replicas, or memories (a message's second value), of their own."""
    return tasks.replicas > 1 or any(len(task.writes) > 1 for task in tasks.tasks if task.action in MESSAGES)


def _by_worker(tasks: Tasks, processes: int) -> list[int]:
    """Return the process of each task: neighbouring workers share one, and so do their replicas."""
    loads = Counter(task.sender for task in tasks.tasks if task.action in MESSAGES)  # messages of each worker
    home, load_before, total = dict[int, int](), 0.0, max(1, loads.total())
    for worker in sorted(loads):  # each process gets an equal section of the load, with the workers whose middle is in it
        home[worker] = int((load_before + loads[worker] / 2) / total * processes)
        load_before += loads[worker]
    senders = _senders(tasks)
    process_of = []
    for task in tasks.tasks:
        if task.action in MESSAGES:
            process_of.append(home[task.sender])
        elif task.action == Action.MARK or len(senders.get(task.replica, ())) != 1:
            process_of.append(0)  # a server's replica
        else:
            process_of.append(home[next(iter(senders[task.replica]))])
    return process_of


def _senders(tasks: Tasks) -> dict[int, set[int]]:
    """Return the workers whose messages each replica receives."""
    senders: dict[int, set[int]] = {}
    for task in tasks.tasks:
        for value in task.reads if task.action in (Action.APPLY, Action.ADD, Action.COMMIT) else ():
            maker = tasks.maker[value]
            if maker != START and tasks.tasks[maker].action in MESSAGES:
                senders.setdefault(task.replica, set()).add(tasks.tasks[maker].sender)
    return senders


def _simulate(
    tasks: Tasks, readers: list[list[int]], process_of: list[int], processes: int, choose: bool
) -> tuple[list[int], float]:
    """Return the tasks by their begin, and their predicted duration, in gradients.

    Each process does the first of its tasks whose values are there, as the executors do.

    Args:
        tasks: all tasks.
        readers: the tasks that read each value [values].
        process_of: the process of each task [tasks]; changed for messages, if they are given to processes here.
        processes: number of processes.
        choose: True to give each message to the process that is free first.
    """
    order: list[int] = []
    reads_missing = [len({value for value in task.reads if tasks.maker[value] != START}) for task in tasks.tasks]
    possible: list[list[int]] = [[] for _ in range(processes)]  # a heap of tasks for each process
    unassigned = list[int]()  # heap: messages that any process may take
    idle, running, now = [*range(processes)], list[tuple[float, int]](), 0.0  # running: tasks by their end

    def offer(number: int) -> None:
        free = choose and tasks.tasks[number].action in MESSAGES
        heappush(unassigned if free else possible[process_of[number]], number)

    for number, count in enumerate(reads_missing):
        if not count:
            offer(number)
    while True:
        for index in reversed(idle[:]):  # the run's own last: it has the updates to do
            if heaps := [heap for heap in (possible[index], unassigned) if heap]:
                # A heap begins with its smallest task, and no task is in two heaps: so comparing heaps as lists compares
                # their first tasks.
                number = heappop(min(heaps))
                process_of[number] = index
                order.append(number)
                idle.remove(index)
                heappush(running, (now + _cost(tasks, process_of, number), number))
        if not running:
            return order, now
        now, finished_task = heappop(running)
        insort(idle, process_of[finished_task])
        for reader in [reader for value in tasks.tasks[finished_task].writes for reader in readers[value]]:
            reads_missing[reader] -= 1
            if not reads_missing[reader]:
                offer(reader)


def _cost(tasks: Tasks, process_of: list[int], number: int) -> float:
    """Return the time of a task, in gradients, with that of reading values of other processes."""
    task = tasks.tasks[number]
    makers = [tasks.maker[value] for value in task.reads]
    crossing = sum(maker != START and process_of[maker] != process_of[number] for maker in makers)
    return _CROSSING * crossing + _COST.get(task.action, _UPDATE)


def _place_mixes(tasks: Tasks, readers: list[list[int]], process_of: list[int]) -> None:
    """Move each average to the process that reads it first."""
    for number in reversed(range(len(tasks.tasks))):  # an average may be read by another one, which is moved before
        task = tasks.tasks[number]
        if task.action == Action.MIX and readers[task.writes[0]]:
            process_of[number] = process_of[readers[task.writes[0]][0]]


def _crossings(
    tasks: Tasks, order: list[int], readers: list[list[int]], process_of: list[int]
) -> tuple[dict[int, Crossing], dict[tuple[str, int], int]]:
    """Return the values that cross between processes, and the number of slots of each shape.

    Args:
        tasks: all tasks.
        order: their numbers, by their predicted begin.
        readers: the tasks that read each value [values].
        process_of: the process of each task [tasks].
    """
    begin_rank = {START: START} | {number: rank for rank, number in enumerate(order)}
    remote_readers = _remote_readers(tasks, readers, process_of)
    crossings, slots = dict[int, Crossing](), dict[tuple[str, int], int]()
    for shape in dict.fromkeys(tasks.shapes[value] for value in remote_readers):
        values = sorted(
            (value for value in remote_readers if tasks.shapes[value] == shape),
            key=lambda value: begin_rank[tasks.maker[value]],
        )
        begins = [begin_rank[tasks.maker[value]] for value in values]
        last_reads = [max(begin_rank[reader] for reader in remote_readers[value]) for value in values]
        assigned = _slots_of_shape(begins, last_reads, slack=_SLACK * (max(process_of) + 1))
        slots[shape] = max(assigned) + 1
        for value, slot, previous_value in _chain_occupants(values, assigned):
            reading_processes = tuple(sorted({process_of[reader] for reader in remote_readers[value]}))
            crossings[value] = Crossing(slot, reading_processes, previous_value)
    return crossings, slots


def _remote_readers(tasks: Tasks, readers: list[list[int]], process_of: list[int]) -> dict[int, list[int]]:
    """Return the tasks of other processes that read each value, for the values that have any."""
    remote = {}
    for value, maker in enumerate(tasks.maker):
        home = 0 if maker == START else process_of[maker]
        remote_readers = [reader for reader in readers[value] if process_of[reader] != home]
        if remote_readers:
            remote[value] = remote_readers
    return remote


def _slots_of_shape(begins: list[int], last_reads: list[int], slack: int) -> list[int]:
    """Return the slot of each value of a shape.

    Args:
        begins: ranks, by the begin of tasks, of the tasks that make the values [values].
        last_reads: ranks of their last readers [values].
        slack: ranks by which a slot is kept longer.
    """
    # + 1: even without slack, a slot is not free for what its last reader itself writes. For a task begins only when the
    # slots of its own values are vacant (Executor._is_runnable), and would wait for itself.
    slots: list[int] = assign_slots(np.array(begins), np.array(last_reads) + slack + 1).tolist()
    return slots


def _chain_occupants(values: list[int], slots: list[int]) -> Iterator[tuple[int, int, int | None]]:
    """Yield each value with its slot and the value that had the slot before it, or None."""
    occupants: dict[int, int] = {}
    for value, slot in zip(values, slots, strict=True):
        yield value, slot, occupants.get(slot)
        occupants[slot] = value
