"""One process's part of a plan: it does its tasks with the interpreter's functions and bits."""

import ctypes
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from fred.base import cached
from fred.learning.loss import Arrays
from fred.learning.models.model import Params
from fred.learning.server import Message, State
from fred.replay.arithmetic import Arithmetic
from fred.replay.blocks import Stack
from fred.replay.division import Plan
from fred.replay.interpreter import jitted
from fred.replay.machine import Carry, Mark
from fred.replay.memory import Snapshot
from fred.replay.phases import How, Op, Program
from fred.replay.shared_values import Shapes, SharedValues
from fred.replay.tasks import MESSAGES, START, Action, Place, Point, Task
from fred.schedule.minibatches import Minibatches

_AHEAD = 32  # own tasks among which the next one is chosen
_PAUSE = 0.0005  # seconds between two looks for values of other processes
_LOOK = 0.1  # seconds between two looks for dead processes
_MANY_PARAMETERS = 1 << 23
_MMAP_THRESHOLD, _THRESHOLD_BYTES = -3, 1 << 20  # option of mallopt(3), bytes
_FIELDS = {
    "parameters": "registers",
    "rest": "states",
    "sum": "sums",
    "pending": "pending",
    "message": "slots",
    "memory": "memory",
}


class Side(NamedTuple):
    """Everything that a process needs to know of a run."""

    program: Program
    arithmetic: Arithmetic
    model: Params
    examples: Arrays
    batches: Minibatches

    def shapes(self) -> Shapes:
        """Return the shapes and types of the arrays of each kind of value, by kind and group of blocks.

        Values that are not kept by group have number 0. "pending" is a gradient begun but not finished, "rest" a state without
        parameters and clock. The blocks of a group have the same shapes, so the last one stands for all.
        """
        arithmetic = self.arithmetic
        pending, message, totals = arithmetic.shapes(self.examples)
        memory, states = jax.eval_shape(lambda model: (arithmetic.remember(model), arithmetic.start([model], 1)), self.model)
        shapes = {("pending", 0): pending, ("message", 0): message, ("memory", 0): memory}
        shapes |= {("sum", group): total for group, total in enumerate(totals)}
        for block, state in enumerate(states):
            group, _ = arithmetic.blocks.place(block)
            shapes["parameters", group], shapes["rest", group] = state.params, _rest(state)
        return shapes

    def minibatch(self, task: Task) -> NDArray[np.int32]:
        """Return the examples of a gradient."""
        minibatches = self.program.operands[task.kind]["minibatch"][task.position]  # worker, step and rank of each [members, 3]
        return self.batches.indices(*minibatches.T).reshape(-1)


class Executor:
    """The tasks of one process, which it does as soon as their values are there, the most urgent one first.

    Args:
        side: the run.
        plan: what each process does.
        shared: values that cross.
        process: number of this process.
        check: called while it waits for others; raises an error if one of them has ended.
    """

    def __init__(self, side: Side, plan: Plan, shared: SharedValues, process: int, check: Callable[[], None]):
        self._side, self._plan, self._shared, self._process, self._check = side, plan, shared, process, check
        self._functions, self._tasks = jitted(side.arithmetic), plan.tasks.tasks
        self._blocks = side.arithmetic.blocks.count
        self._values: dict[int, Any] = {}  # made or copied here, and still to be read
        if side.arithmetic.blocks.size >= _MANY_PARAMETERS:
            _return_freed_memory()
        self._remaining_reads = [0] * len(plan.tasks.maker)  # tasks of this process that have yet to read the value
        for number in plan.queues[process]:
            for value in self._tasks[number].reads:
                self._remaining_reads[value] += 1

    def run(self, carry: Carry | None = None) -> Iterator["Reached"]:
        """Do all tasks and yield each mark. `carry`: the values to start from, in the process that has them."""
        if carry is not None:
            for place, value in self._plan.tasks.initial.items():
                self._keep(value, _stack(carry, place).item(place.number))
            carry = _change_stacks(carry, partial(_shapes_if_touched, touched=self._plan.tasks.touched))
        waiting = list(self._plan.queues[self._process])
        while waiting:
            number = self._choose_task(waiting)
            task = self._tasks[number]
            inputs = [self._take(value) for value in task.reads]
            if task.action == Action.MARK:
                assert carry is not None
                self._keep(task.writes[0], ())  # an empty value, which lets the next mark follow
                values = dict(zip(task.reads, jax.device_put(inputs), strict=True))  # NumPy arrays that crossed become JAX's
                yield Reached(self._side, self._plan.tasks.points[number], values, carry)
            else:
                results = self._results(task, inputs)
                if task.action in MESSAGES:
                    jax.block_until_ready(results)  # no queue, in which an urgent update would have to wait
                for value, tree in zip(task.writes, results, strict=False):  # a memory is returned even if none is kept
                    self._keep(value, tree)
            waiting.remove(number)

    def _choose_task(self, waiting: list[int]) -> int:
        """Return the most urgent task that can be done: the first in the order of the program. Wait until there is one."""
        candidates, check_time = sorted(waiting[:_AHEAD]), time.monotonic()
        while True:
            for number in candidates:
                if self._is_runnable(self._tasks[number]):
                    return number
            time.sleep(_PAUSE)
            if time.monotonic() - check_time > _LOOK:
                check_time = time.monotonic()
                self._check()

    def _is_runnable(self, task: Task) -> bool:
        """Return True if all that a task reads is there, and slots are free for the values that it writes."""
        readable = all(
            value in self._values or (not self._is_local(value) and self._shared.holds(value)) for value in task.reads
        )
        return readable and all(self._shared.is_vacant(value) for value in task.writes if value in self._plan.crossings)

    def _is_local(self, value: int) -> bool:
        maker = self._plan.tasks.maker[value]
        return (0 if maker == START else self._plan.process[maker]) == self._process  # process 0 has the initial values

    def _take(self, value: int) -> Any:
        if value not in self._values:
            self._values[value] = self._shared.load(value)
        self._remaining_reads[value] -= 1
        return self._values[value] if self._remaining_reads[value] else self._values.pop(value)

    def _keep(self, value: int, tree: Any) -> None:
        if value in self._plan.crossings:
            self._shared.store(value, tree)
        if self._remaining_reads[value]:
            self._values[value] = tree

    def _results(self, task: Task, inputs: list[Any]) -> Sequence[Any]:
        """Return the values that a task writes."""
        operands = {name: array[task.position] for name, array in self._side.program.operands[task.kind].items()}
        if task.action in MESSAGES:
            return self._message(task, inputs, operands)
        if task.action == Action.MIX:
            return (self._mix(inputs, operands["weights"]),)
        if task.action == Action.ADD:
            return (self._add(task, inputs, operands),)
        return self._update(task, inputs, operands)

    def _message(self, task: Task, inputs: list[Any], operands: dict[str, Any]) -> tuple[Message, Any]:
        """Return a message, and the worker's memory afterwards."""
        memory = inputs.pop() if len(task.writes) > 1 else ()  # the task writes message and memory, and reads memory last
        if task.action == Action.DIFFERENCE:
            return self._functions["pseudo_gradient"](inputs[: self._blocks], inputs[self._blocks :], memory)
        if task.action == Action.FINISH:
            return halves(self._side.arithmetic)["finish"](inputs[0], self._side.examples, memory)
        count, options = 1, {}
        if task.kind.op == Op.COMMIT:  # a round's gradients, as one batch
            count, options = int(operands["count"]), {"members": task.kind.members, "masked": task.kind.masked}
        return self._functions["message"](inputs, self._side.examples, self._side.minibatch(task), memory, count, **options)

    def _mix(self, models: list[Params], weights: NDArray[np.float64]) -> Params:
        mixed = self._functions["scale"](models[0], np.float32(weights[0]))
        for params, weight in zip(models[1:], weights[1:], strict=False):
            mixed = self._functions["add_scaled"](mixed, params, np.float32(weight))
        return mixed

    def _add(self, task: Task, inputs: list[Any], operands: dict[str, Any]) -> Message:
        # tasks.py lists the reads of an ADD in this order: message[, sum so far][, parameters, rest]. So two or three more
        # values contain the state, and an odd number contains the sum.
        message, *rest = inputs
        part = self._part(message, task.block)
        if len(rest) > 1:
            state = self._state(rest[-2:], operands)
            part = self._functions["contribute"](state, part, int(operands["timestamp"]), int(operands["worker"]))
        if task.kind.weighted:
            part = self._functions["scale"](part, np.float32(operands["weight"]))
        return self._functions["add"](rest[0], part) if len(rest) % 2 else part

    def _update(self, task: Task, inputs: list[Any], operands: dict[str, Any]) -> tuple[Params, dict[str, Any]]:
        """Return the parameters and the rest of a state after a change."""
        state, others = self._state(inputs, operands), inputs[2:]  # others: message, sum, mailbox or none
        if task.action == Action.APPLY:
            message = self._part(others[0], task.block)
            state = self._functions["apply"](state, message, int(operands["timestamp"]), int(operands["worker"]))
        elif task.action == Action.COMMIT:
            if not others:  # an empty round
                total = Stack.zeros(self._shared.shapes["sum", task.kind.group], 1).values
            else:
                total = others[0] if task.kind.how == How.SUM else self._part(others[0], task.block)
            state = self._functions["commit"](state, total, np.float32(operands["weight"]), int(operands["count"]))
        else:
            assert task.action == Action.SYNC, task.action
            weights = np.float32(operands["keep"]), np.float32(operands["weight"])
            state = self._functions["synchronize"](state, others[0], *weights)
        return state.params, _rest(state)

    def _state(self, values: list[Any], operands: dict[str, Any]) -> State:
        return State(params=values[0], clock=np.int32(operands["clock"]), **values[1])

    def _part(self, message: Message, block: int) -> Message:
        """Return the part of a message that belongs to a block."""
        return message[0].values if self._blocks == 1 else self._functions["block"](message, block)


class Reached:
    """The progress of a replay by several processes at a mark; its values are never written again.

    Args:
        side: the run.
        point: the mark, and the values there.
        values: these values.
        start: the values that the processes started from, as far as they are untouched.
    """

    def __init__(self, side: Side, point: Point, values: dict[int, Any], start: Carry):
        self._side, self._point, self._values, self._start = side, point, values, start
        self.number, self.phase = point.number, point.phase

    @property
    def carry(self) -> Carry:
        """Return the values that evaluations read."""
        return self._carry({"parameters", "rest"}, pending={})

    def full_mark(self) -> Mark:
        """Return the same progress with all values, for a replay by one process."""
        side, begin = self._side, halves(self._side.arithmetic)["begin"]
        # the tasks make whole messages, but the loop continues with gradients that are begun
        pending = {
            Place("pending", 0, slot): begin([self._values[value] for value in task.reads], side.examples, side.minibatch(task))
            for slot, task in self._point.pending.items()
        }
        return Mark(self.phase, self._carry(_FIELDS, pending))

    def snapshot(self) -> Snapshot:
        """Return the progress as copies of the arrays."""
        return self.full_mark().snapshot()

    def _carry(self, kinds: Collection[str], pending: dict[Place, Any]) -> Carry:
        """Return the start's values; of these kinds the point's, where there is one, and `pending`: unfinished gradients."""
        values = {place: self._values[value] for place, value in self._point.values.items()} | pending
        by_shape: dict[tuple[str, int], dict[int, Any]] = {}
        for place, value in values.items():
            by_shape.setdefault(place.shape, {})[place.number] = value

        def fill(stack: Stack, kind: str, group: int) -> Stack:
            return _replace_items(stack, by_shape.get((kind, group), {})) if kind in kinds else stack

        return _change_stacks(self._start, fill)


@cached.code(64)
def halves(arithmetic: Arithmetic) -> dict[str, Callable[..., Any]]:
    """Return the two halves of a gradient, compiled; an unfinished gradient is stored between them."""
    return {"begin": jax.jit(arithmetic.begin), "finish": jax.jit(arithmetic.finish)}


def _return_freed_memory() -> None:
    """Have the C library return each large array to the system; small models' programs would become slower by a fifth.

    With eight models of 43 MB, gaps between arrays took 0.9 GB.
    """
    with suppress(AttributeError):  # other C libraries have no such option
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _THRESHOLD_BYTES)


def _rest(state: State) -> dict[str, Any]:
    """Return a state without parameters and clock."""
    return {name: value for name, value in vars(state).items() if name not in ("params", "clock")}


def _change_stacks(carry: Carry, change: Callable[[Stack, str, int], Stack]) -> Carry:
    """Return the values with each stack changed; `change` is given its kind and group, too."""

    def change_field(kind: str, stacks: Any) -> Any:
        if isinstance(stacks, Stack):
            return change(stacks, kind, 0)
        return tuple(change(stack, kind, group) for group, stack in enumerate(stacks))

    return Carry(**{field: change_field(kind, getattr(carry, field)) for kind, field in _FIELDS.items()})


def _shapes_if_touched(stack: Stack, kind: str, group: int, touched: set[Place]) -> Stack:
    """Return a stack, or only its shapes if all its items are touched: where they are not known, nothing reads them."""
    places = [Place(kind, group, number) for number in range(stack.count)]
    return jax.eval_shape(lambda: stack) if places and touched.issuperset(places) else stack


def _stack(carry: Carry, place: Place) -> Stack:
    stacks = getattr(carry, _FIELDS[place.kind])
    return stacks if isinstance(stacks, Stack) else stacks[place.group]


def _replace_items(stack: Stack, items: dict[int, Any]) -> Stack:
    """Return a copy of a stack with these items replaced. If it is only shapes (`_shapes_if_touched`), the others are zeros."""
    if not stack.count:
        return stack
    has_values = isinstance(jax.tree.leaves(stack)[0], jax.Array)
    zeros = None if has_values else stack.nothing()

    def item(number: int) -> Any:
        if number in items:
            return items[number]
        return stack.item(number) if has_values else zeros

    return Stack.from_items([item(number) for number in range(stack.count)])
