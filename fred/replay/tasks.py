"""Program -> tasks: what each instruction reads and writes, so that several processes can share the work. No JAX.

A register, a server's state, a round's sum, a message and a worker's memory are places. Each write to a place makes a new
value, with a number of its own. So tasks depend on each other through values alone, and any order and any process that has
the values computes the same bits. A gradient is a task of its own, apart from the update that uses it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, NamedTuple

import numpy as np

from fred.replay.phases import Hooks, How, Kind, Op, Program

START = -1  # makes the values that exist before the first task
_NO_SLOT = -1  # number of the place of a message that no slot stores


class Action(Enum):
    """What a task does."""

    GRADIENT = auto()  # message <- parameters of all blocks[, memory]
    FINISH = auto()  # message <- gradient begun before the first task[, memory]
    DIFFERENCE = auto()  # message <- parameters before, parameters after[, memory]
    APPLY = auto()  # parameters, rest <- parameters, rest, message
    ADD = auto()  # sum <- message[, sum][, parameters, rest]
    COMMIT = auto()  # parameters, rest <- parameters, rest[, sum, or message]
    MIX = auto()  # parameters <- parameters of several
    SYNC = auto()  # parameters, rest <- parameters, rest, parameters
    MARK = auto()  # passed <- everything that is needed from here on[, passed]


MESSAGES = {Action.GRADIENT, Action.FINISH, Action.DIFFERENCE}


@dataclass(frozen=True)
class Place:
    """Where a value is stored: a kind of place, its group of blocks, and its number."""

    kind: str  # parameters, rest, sum, message, memory, pending, mark
    group: int
    number: int

    @property
    def shape(self) -> tuple[str, int]:
        """Return what values of the same shapes have in common."""
        return self.kind, self.group


class Task(NamedTuple):
    """One task. Tasks are numbered in the order of the program."""

    action: Action
    reads: tuple[int, ...]  # values
    writes: tuple[int, ...]
    kind: Kind = Kind(Op.STORE)
    position: int = 0  # among the instructions of its kind
    block: int = 0
    sender: int = 0  # of a message
    replica: int = 0  # that an update changes


@dataclass
class Point:
    """A mark: the values of all places there, as far as they are still needed, and the gradients begun."""

    number: int | None  # None: it only closes a stretch of the program
    phase: int
    values: dict[Place, int]
    pending: dict[int, Task]  # by slot


@dataclass
class Tasks:
    """All tasks from a phase of a program on, in the order of the program; and their values."""

    tasks: list[Task] = field(default_factory=list)
    shapes: list[tuple[str, int]] = field(default_factory=list)  # of each value
    maker: list[int] = field(default_factory=list)  # task that writes each value, or START
    initial: dict[Place, int] = field(default_factory=dict)
    points: dict[int, Point] = field(default_factory=dict)  # by task
    touched: set[Place] = field(default_factory=set)  # places that a task reads or writes
    replicas: int = 1

    def readers(self) -> list[list[int]]:
        """Return the tasks that read each value, ascending."""
        readers: list[list[int]] = [[] for _ in self.maker]
        for number, task in enumerate(self.tasks):
            for value in dict.fromkeys(task.reads):
                readers[value].append(number)
        return readers


def tasks_of(program: Program, blocks: int, hooks: Hooks, first: int = 0, end: int | None = None, passed: int = 0) -> Tasks:
    """Return the tasks of a program's phases from `first` to `end`, without the marks that have been passed.

    If the program goes on behind these phases, a mark without a number closes them. `blocks`: number of blocks of each
    replica. `hooks`: functions of the server that have to be called.
    """
    tracing = _Tracing(program, blocks, hooks)
    tracing.run(first, len(program.offsets) - 1 if end is None else end, passed)
    return tracing.tasks


class _Tracing:
    """A walk through a program's instructions, with the current value of each place."""

    def __init__(self, program: Program, blocks: int, hooks: Hooks):
        self._program, self._hooks = program, hooks
        self._blocks = blocks
        # Blocks of whole layers differ in their shapes, so each is a group, with registers of its own.
        self._block_is_group = len(program.registers) > 1 or blocks == 1
        self._current: dict[Place, int] = {}
        self._pending: dict[int, Task] = {}  # by slot
        self.tasks = Tasks(replicas=program.replica_registers.shape[1] // blocks)

    def run(self, first: int, end: int, passed: int) -> None:
        """Trace the phases from `first` to `end`, and the marks from number `passed` on."""
        # A mark at a phase comes before that phase's instructions. What it must keep depends on later reads, so marks are
        # traced as tasks that read nothing, and get their reads at the end.
        numbered_phases = enumerate(self._program.marks.tolist())  # of all marks
        coming_marks = [(number, phase) for number, phase in numbered_phases if number >= passed and phase <= end]
        for phase, kind, index in _instructions(self._program, first, end):
            while coming_marks and coming_marks[0][1] <= phase:
                self._add_mark(*coming_marks.pop(0))
            self._add_instruction(kind, index)
        for mark in coming_marks:
            self._add_mark(*mark)
        if end < len(self._program.offsets) - 1:
            self._add_mark(None, end)
        self._restrict_marks()
        self._chain_marks()
        self.tasks.touched.update(self._current)

    def _add_mark(self, number: int | None, phase: int) -> None:
        for place in self._replica_places(number):
            self._current_value(place)  # so that each has a value at the mark
        self.tasks.points[len(self.tasks.tasks)] = Point(number, phase, dict(self._current), dict(self._pending))
        self.tasks.tasks.append(Task(Action.MARK, (), ()))

    def _replica_places(self, number: int | None) -> list[Place]:
        """Return the places of all replicas at a mark: parameters, and the rest of the state."""
        # A cell is a block of a replica, number replica x blocks + block. Its parameters are versions, which move from register
        # to register; the rest of its state (momentum, clock) is overwritten, and so always stays in one place.
        places: list[Place] = []
        for cell, register in enumerate([] if number is None else self._program.replica_registers[number].tolist()):
            replica, block = divmod(cell, self._blocks)
            group, _ = self._place(block)
            place_in_group = replica if self._block_is_group else cell
            places += [Place("parameters", group, register), Place("rest", group, place_in_group)]
        return places

    def _restrict_marks(self) -> None:
        """Restrict each mark to the replicas, and to values that are read later."""
        # From the last mark to the first, as each mark is a reader itself. `initial` adds places that are touched only after
        # the mark: nothing has written to them before it, so they still have their initial value. A mark without a number
        # keeps everything, because the program goes on after it.
        last_reader = [START] * len(self.tasks.maker)
        for number, task in enumerate(self.tasks.tasks):
            for value in task.reads:
                last_reader[value] = number
        for mark_task, point in reversed(self.tasks.points.items()):
            replica_places = set(self._replica_places(point.number))
            point.values = {
                place: value
                for place, value in (self.tasks.initial | point.values).items()
                if place in replica_places or last_reader[value] > mark_task or point.number is None
            }
            sources = [value for task in point.pending.values() for value in task.reads]
            reads = dict.fromkeys([*point.values.values(), *sources])
            self.tasks.tasks[mark_task] = Task(Action.MARK, tuple(reads), ())
            for value in reads:  # earlier marks need it, too
                last_reader[value] = max(last_reader[value], mark_task)

    def _chain_marks(self) -> None:
        """Have each mark read a value of the one before: the last needs no gradients in flight, and would be possible first."""
        before: tuple[int, ...] = ()
        for mark_task in self.tasks.points:
            passed = (self._add_value(Place("mark", 0, 0), mark_task),)
            self.tasks.tasks[mark_task] = Task(Action.MARK, self.tasks.tasks[mark_task].reads + before, passed)
            before = passed

    def _place(self, block: int) -> tuple[int, int]:
        """Return the group of a block, and its number there."""
        return (block, 0) if self._block_is_group else (0, block)

    def _current_value(self, place: Place) -> int:
        """Return the value at a place now; one that nothing has written to has an initial value."""
        if place not in self._current:
            self._current[place] = self.tasks.initial[place] = self._add_value(place, START)
        return self._current[place]

    def _add_value(self, place: Place, maker: int) -> int:
        """Return the number of a new value, which the task `maker` writes to the place."""
        self.tasks.maker.append(maker)
        self.tasks.shapes.append(place.shape)
        return len(self.tasks.maker) - 1

    def _add_task(self, task: Task, *places: Place) -> None:
        """Add a task that writes to these places."""
        values = tuple(self._add_value(place, len(self.tasks.tasks)) for place in places)
        self.tasks.tasks.append(task._replace(writes=values))
        self._current.update(zip(places, values, strict=True))

    def _register_values(self, registers: Sequence[int]) -> tuple[int, ...]:
        """Return the values in these registers, one for each block."""
        return tuple(
            self._current_value(Place("parameters", self._place(block)[0], register))
            for block, register in enumerate(registers)
        )

    def _add_instruction(self, kind: Kind, index: int) -> None:
        operands = {name: array[index].tolist() for name, array in self._program.operands[kind].items()}
        message = self._add_message(kind, index, operands)
        if kind.op == Op.STORE:
            self._current[Place("message", 0, operands["slot"])] = message[0]
        elif kind.op == Op.BEGIN:
            self._begin_gradient(kind, index, operands["pending"], operands["sources"])
        elif kind.op == Op.COLLECT:
            for block in range(self._blocks):
                group, position = self._place(block)
                self._add_to_sum(kind, index, block, Place("sum", group, position), message, operands["opens"][block], ())
        elif kind.op == Op.MIX:
            sources = operands["sources"][: operands["count"]]
            reads = tuple(self._current_value(Place("parameters", kind.group, source)) for source in sources)
            self._add_task(Task(Action.MIX, reads, (), kind, index), Place("parameters", kind.group, operands["into"]))
        else:
            self._add_update(kind, index, operands, message)
        if kind.op == Op.TURN:
            self._begin_gradient(kind, index, operands["begun"], operands["sources"])

    def _begin_gradient(self, kind: Kind, index: int, slot: int, sources: Sequence[int]) -> None:
        """Store the task of a gradient and the values that it reads, until an instruction finishes it."""
        self.tasks.touched.add(Place("pending", 0, slot))
        self._pending[slot] = Task(Action.GRADIENT, self._register_values(sources), (), kind, index)

    def _add_message(self, kind: Kind, index: int, operands: dict[str, Any]) -> tuple[int, ...]:
        """Return the value that is an instruction's message, if it has one, and add the task that makes it."""
        if kind.how == How.SLOT:
            return (self._current_value(Place("message", 0, operands["slot"])),)
        if kind.how in (How.NOTHING, How.SUM):
            return ()
        sender = operands.get("sender", 0)
        memory = (Place("memory", 0, sender),) if self._hooks.remembers else ()
        remembered = tuple(self._current_value(place) for place in memory)
        if kind.how == How.DIFFERENCE:
            reads = self._register_values(operands["sources"]) + self._register_values(operands["ends"])
            task = Task(Action.DIFFERENCE, reads, (), kind, index)
        elif kind.how == How.GRADIENT:
            task = Task(Action.GRADIENT, self._register_values(operands["sources"]), (), kind, index)
        elif operands["pending"] in self._pending:
            task = self._pending.pop(operands["pending"])  # one task for both halves of the gradient
        else:  # begun before the first phase
            task = Task(Action.FINISH, (self._current_value(Place("pending", 0, operands["pending"])),), (), kind, index)
        place = Place("message", 0, _NO_SLOT)
        self._add_task(task._replace(reads=task.reads + remembered, sender=sender), place, *memory)
        return (self._current.pop(place),)  # a STORE puts it into its slot

    def _add_update(self, kind: Kind, index: int, operands: dict[str, Any], message: tuple[int, ...]) -> None:
        """Add the task of an instruction that reads and, except for an ADD, changes a block of a replica."""
        group, cell = kind.group, operands["cell"]
        block = group if self._block_is_group else operands["block"]
        rest = Place("rest", group, cell)
        state = self._current_value(Place("parameters", group, operands["source"])), self._current_value(rest)
        if kind.op == Op.ADD:
            state_values = state if self._hooks.contributes else ()
            self._add_to_sum(kind, index, block, Place("sum", group, cell), message, operands["opens"], state_values)
            return
        action, inputs = _ACTIONS[kind.op], message
        if kind.op == Op.COMMIT and kind.how == How.SUM:
            inputs = (self._current_value(Place("sum", group, cell)),)
        elif kind.op == Op.SYNC:
            inputs = (self._current_value(Place("parameters", group, operands["synced_with"])),)
        replica = cell if self._block_is_group else cell // self._blocks
        task = Task(action, state + inputs, (), kind, index, block, replica=replica)
        self._add_task(task, Place("parameters", group, operands["into"]), rest)

    def _add_to_sum(
        self, kind: Kind, index: int, block: int, total: Place, message: tuple[int, ...], opens: bool, state: tuple[int, ...]
    ) -> None:
        """Add the task that adds a message to the sum of a round, which is at the place `total`, or opens the round."""
        sum_before = () if opens else (self._current_value(total),)
        replica = total.number if self._block_is_group else total.number // self._blocks
        self._add_task(Task(Action.ADD, message + sum_before + state, (), kind, index, block, replica=replica), total)


_ACTIONS = {
    Op.APPLY: Action.APPLY,
    Op.TURN: Action.APPLY,
    Op.COMMIT: Action.COMMIT,
    Op.SYNC: Action.SYNC,
}


def _instructions(program: Program, first: int, end: int) -> Iterator[tuple[int, Kind, int]]:
    """Yield the instructions of these phases in order: phase, kind, and index among those of its kind."""
    offsets = program.offsets[first : end + 1]
    phases, kinds = np.nonzero(np.diff(offsets, axis=0))  # in the order of phases, then of kinds
    for phase, k in zip(phases.tolist(), kinds.tolist(), strict=True):
        for index in range(offsets[phase, k], offsets[phase + 1, k]):
            yield first + phase, program.kinds[k], index
