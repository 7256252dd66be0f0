"""Program -> parameters: one compiled loop per kind of instruction, nested in a loop over phases."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from fred.base import cached
from fred.base.progress import compiling
from fred.learning.loss import Arrays
from fred.learning.models.model import Params
from fred.learning.server import Message, State
from fred.replay.arithmetic import Arithmetic
from fred.replay.blocks import Stack, rounded
from fred.replay.memory import Snapshot, SnapshotReader, SnapshotWriter
from fred.replay.phases import Chunk, Chunks, How, Kind, Op, Program
from fred.schedule.minibatches import Minibatches

Operands = dict[str, Any]


class Carry(NamedTuple):
    """Values that instructions read and write; one stack per group of blocks, unless stated otherwise."""

    registers: tuple[Stack, ...]  # versions of the parameters
    states: tuple[Stack, ...]  # the server state of each block, except parameters
    sums: tuple[Stack, ...]  # sum of each block's open round
    pending: Stack  # gradients begun but not finished
    slots: Stack  # messages
    memory: Stack  # memory of each worker


class ReplayProgress(Protocol):
    """The progress of a replay."""

    @property
    def phase(self) -> int:
        """Return the number of completed phases."""

    @property
    def carry(self) -> Carry:
        """Return the values that evaluations read."""

    def snapshot(self) -> Snapshot:
        """Return the progress as copies of the arrays."""


class Mark(NamedTuple):
    """The progress of a replay: the number of completed phases, and everything that the rest needs."""

    phase: int
    carry: Carry

    def full_mark(self) -> "Mark":
        """Return the progress itself, which is a whole one."""
        return self

    def snapshot(self) -> Snapshot:
        """Return the progress as copies of the arrays."""
        writer = SnapshotWriter()
        return Snapshot({"phase": self.phase, "carry": writer.leaves(self.carry)}, writer.arrays)


class Loop:
    """The compiled loop of a program with its operands.

    Args:
        program: the program.
        arithmetic: effects of its instructions.
        examples: training examples.
        batches: their minibatches.
    """

    def __init__(self, program: Program, arithmetic: Arithmetic, examples: Arrays, batches: Minibatches):
        self._program, self._arithmetic, self._examples, self._seed = program, arithmetic, examples, batches.seed
        self._run, self._chunks = compiled(arithmetic, program.kinds), Chunks(program, batches)
        self._chunk = Chunk(0, 0)

    def start(self, models: Sequence[Params], resumed: Snapshot | None) -> Mark:
        """Return the progress before the first instruction, or that of a snapshot."""
        carry = start(self._program, self._arithmetic, models, self._examples, self._seed)
        if not resumed:
            return Mark(0, carry)
        return Mark(resumed.facts["phase"], SnapshotReader(resumed.arrays).tree(resumed.facts["carry"], carry))

    def run_to(self, at: Mark, end: int) -> Mark:
        """Execute the phases before `end`, and return the progress; the arrays of `at` are donated."""
        while at.phase < end:
            at = self._run_chunk(at, end)
        return at

    def compile(self, at: Mark) -> Mark:
        """Compile the loop without executing anything; the arrays of `at` are donated. The program must go on after `at`."""
        return self._run_chunk(at, at.phase)

    def _run_chunk(self, at: Mark, end: int) -> Mark:
        """Execute the phases before `end`, or as many of them as a chunk holds."""
        if not self._chunk.begin <= at.phase < self._chunk.end:
            self._chunk = self._chunks.chunk_from(at.phase)
        chunk = self._chunk
        stop = min(end, chunk.end)
        with _announce_compilation(self._arithmetic, self._program.kinds, (at.carry, chunk.operands)):
            bounds = chunk.offsets, at.phase - chunk.begin, stop - chunk.begin
            return Mark(stop, self._run(at.carry, self._examples, chunk.operands, *bounds))


def _announce_compilation(arithmetic: Arithmetic, kinds: tuple[Kind, ...], operands: Any) -> AbstractContextManager[None]:
    """Announce the compilation when a loop first runs with operands of these shapes."""
    compiled_shapes, shapes = _compiled_for(arithmetic, kinds), tuple(leaf.shape for leaf in jax.tree.leaves(operands))
    if shapes in compiled_shapes:
        return nullcontext()
    compiled_shapes.add(shapes)
    return compiling()


@cached.code(64)
def _compiled_for(arithmetic: Arithmetic, kinds: tuple[Kind, ...]) -> set[Any]:
    """Return the shapes of operands for which this loop has been compiled: a cached set, to which the caller adds."""
    return set()


def start(program: Program, arithmetic: Arithmetic, models: Sequence[Params], examples: Arrays, seed: int) -> Carry:
    """Return the values before the first instruction: replica r's parameters are in register r."""
    blocks = arithmetic.blocks
    cells = program.replica_registers.shape[1]  # blocks of all replicas
    states = [dict(vars(state)) for state in arithmetic.start(models, cells // blocks.count, seed)]
    params = [state.pop("params") for state in states]
    for state in states:
        del state["clock"]  # an operand of each instruction
    cells_by_group = [
        [cell for cell in range(cells) if blocks.place(cell % blocks.count)[0] == group] for group in range(len(blocks.groups))
    ]
    pending, message, contributions = arithmetic.shapes(examples)
    summed_groups = {kind.group for kind in program.kinds if kind.op == Op.ADD}
    summed_groups |= set(range(len(blocks.groups))) if any(kind.op == Op.COLLECT for kind in program.kinds) else set()
    registers = tuple(
        Stack.from_items([params[cell] for cell in group_cells], rounded(count, params[group_cells[0]]) - len(group_cells))
        for group_cells, count in zip(cells_by_group, program.registers, strict=True)
    )
    sums = tuple(
        Stack.zeros(contributions[group], len(group_cells) if group in summed_groups else 0)
        for group, group_cells in enumerate(cells_by_group)
    )
    return Carry(
        registers,
        tuple(Stack.from_items([states[cell] for cell in group_cells]) for group_cells in cells_by_group),
        sums,
        Stack.zeros(pending, rounded(program.pending, pending)),
        Stack.zeros(message, rounded(program.slots, message)),
        Stack.from_items(arithmetic.memories(models[0], seed)),
    )


def states_at(
    program: Program, mark_number: int, progress: ReplayProgress, arithmetic: Arithmetic, replicas: Sequence[int]
) -> list[State]:
    """Return the states of these replicas at the program's mark of this number: for each block, stacked over the replicas."""
    blocks, carry = arithmetic.blocks, progress.carry
    states = []
    for block in range(blocks.count):
        group, index_in_group = blocks.place(block)
        replica_cells = np.array(replicas) * blocks.count + block
        registers = program.replica_registers[mark_number][replica_cells]
        positions = np.array(replicas) * blocks.groups[group] + index_in_group
        rest = carry.states[group].take(positions)
        clock = jax.device_put(program.clocks[mark_number][replica_cells].astype(np.int32))
        states.append(State(params=carry.registers[group].take(registers), clock=clock, **rest))
    return states


@cached.code(64)
def compiled(arithmetic: Arithmetic, kinds: tuple[Kind, ...]) -> Callable[..., Carry]:
    """Return the loop nest for these kinds of instructions, compiled once for all runs that share them."""

    @partial(jax.jit, donate_argnums=0)
    def run(
        carry: Carry, examples: Arrays, operands: list[Operands], offsets: jax.Array, first: jax.Array, end: jax.Array
    ) -> Carry:
        """Run the phases from `first` to `end` of a chunk; see `Chunk` for operands and offsets."""

        def phase(i: jax.Array, carry: Carry) -> Carry:
            for k, kind in enumerate(kinds):

                def body(j: jax.Array, carry: Carry, k: int = k, kind: Kind = kind) -> Carry:
                    instruction = {name: operand[j] for name, operand in operands[k].items()}
                    return _STEPS[kind.op](_Machine(arithmetic, kind, examples), carry, instruction)

                carry = jax.lax.fori_loop(offsets[i, k], offsets[i + 1, k], body, carry)
            return carry

        return jax.lax.fori_loop(first, end, phase, carry)

    return run


class _Machine(NamedTuple):
    """The instructions of one kind."""

    arithmetic: Arithmetic
    kind: Kind
    examples: Arrays

    def store(self, carry: Carry, operands: Operands) -> Carry:
        message, carry = self._message(carry, operands)
        return carry._replace(slots=carry.slots.put(operands["slot"], message))

    def apply(self, carry: Carry, operands: Operands) -> Carry:
        message, carry = self._message(carry, operands)
        part, before = self._part(message, operands), self._state(carry, operands)
        state = self.arithmetic.apply(before, part, operands["timestamp"], operands["worker"])
        return self._store_state(carry, state, operands, before)

    def add(self, carry: Carry, operands: Operands) -> Carry:
        message, carry = self._message(carry, operands)
        part = self._part(message, operands)
        if self.arithmetic.hooks.contributes:
            part = self.arithmetic.contribute(self._state(carry, operands), part, operands["timestamp"], operands["worker"])
        if self.kind.weighted:
            part = self.arithmetic.mix([part], [operands["weight"]])
        sums = carry.sums[self.kind.group]
        total = self.arithmetic.add(sums.item(operands["cell"]), part)
        # where the message opens a round, the stack still holds the sum of the last round
        total = jax.tree.map(lambda first, summed: jnp.where(operands["opens"], first, summed), part, total)
        return carry._replace(sums=_put(carry.sums, self.kind.group, operands["cell"], total))

    def collect(self, carry: Carry, operands: Operands) -> Carry:
        message, carry = self._message(carry, operands)
        sums = []
        for group, (contribution, stack) in enumerate(zip(message, carry.sums, strict=True)):
            # `opens` is [blocks]. Either each block is a group, if blocks are layers, or one group holds all.
            opens = operands["opens"][group] if self.arithmetic.blocks.layers else operands["opens"]
            total = self.arithmetic.add(stack.values, contribution.values)
            sums.append(Stack(jax.tree.map(partial(_opened, opens), contribution.values, total), stack.single))
        return carry._replace(sums=tuple(sums))

    def commit(self, carry: Carry, operands: Operands) -> Carry:
        state = self._state(carry, operands)
        if self.kind.how == How.GRADIENT:
            message, carry = self._message(carry, operands)
            total = self._part(message, operands)
        elif self.kind.how == How.SUM:
            total = carry.sums[self.kind.group].item(operands["cell"])
        else:
            total = carry.sums[self.kind.group].nothing()  # the sum of an empty round
        return self._store_state(carry, self.arithmetic.commit(state, total, operands["weight"], operands["count"]), operands)

    def mix(self, carry: Carry, operands: Operands) -> Carry:
        registers = carry.registers[self.kind.group]

        def add_sources(sources: range | list[jax.Array], mixed: Params | None = None) -> Params:
            values = [registers.item(operands["sources"][i]) for i in sources]
            return self.arithmetic.mix(values, [operands["weights"][i] for i in sources], mixed)

        mixed = add_sources(range(self.kind.members))
        # Even if it never runs, this loop makes XLA compute the sum before storing it; otherwise XLA copies every source.
        mixed = jax.lax.fori_loop(self.kind.members, operands["count"], lambda i, mixed: add_sources([i], mixed), mixed)
        return carry._replace(registers=_put(carry.registers, self.kind.group, operands["into"], mixed))

    def sync(self, carry: Carry, operands: Operands) -> Carry:
        mixed = carry.registers[self.kind.group].item(operands["synced_with"])
        state = self.arithmetic.synchronize(self._state(carry, operands), mixed, operands["keep"], operands["weight"])
        return self._store_state(carry, state, operands)

    def begin(self, carry: Carry, operands: Operands) -> Carry:
        sources = self._sources(carry, operands["sources"])
        pending = self.arithmetic.begin(sources, self.examples, operands["indices"])
        return carry._replace(pending=carry.pending.put(operands["pending"], pending))

    def turn(self, carry: Carry, operands: Operands) -> Carry:
        # `pending` is the gradient that the APPLY finishes, `begun` the one that the BEGIN begins
        return self.begin(self.apply(carry, operands), operands | {"pending": operands["begun"]})

    def _message(self, carry: Carry, operands: Operands) -> tuple[Message, Carry]:
        """Return an instruction's message, split into blocks, and the values with the worker's memory updated."""
        if self.kind.how == How.SLOT:
            return carry.slots.item(operands["slot"]), carry
        remembers = self.arithmetic.hooks.remembers
        memory = _copy_item(carry.memory.item(operands["sender"]), operands["sender"]) if remembers else ()
        if self.kind.how == How.GRADIENT:
            sources, minibatch = self._sources(carry, operands["sources"]), operands["indices"]
            members, masked, count = self.kind.members, self.kind.masked, operands.get("count", 1)
            message, memory = self.arithmetic.message(
                sources, self.examples, minibatch, memory, count, members=members, masked=masked
            )
        elif self.kind.how == How.PENDING:
            message, memory = self.arithmetic.finish(carry.pending.item(operands["pending"]), self.examples, memory)
        else:
            before, after = (self._sources(carry, operands[name]) for name in ("sources", "ends"))
            message, memory = self.arithmetic.pseudo_gradient(before, after, memory)
        if remembers:
            carry = carry._replace(memory=carry.memory.put(operands["sender"], memory))
        return message, carry

    def _sources(self, carry: Carry, registers: jax.Array) -> list[Params]:
        """Return the parameters in these registers, one for each block."""
        places = [self.arithmetic.blocks.place(block) for block in range(self.arithmetic.blocks.count)]
        return [carry.registers[group].item(registers[block]) for block, (group, _) in enumerate(places)]

    def _part(self, message: Message, operands: Operands) -> Params:
        """Return the part of a message that belongs to the instruction's block."""
        return message[self.kind.group].item(operands["block"])

    def _state(self, carry: Carry, operands: Operands) -> State:
        params = carry.registers[self.kind.group].item(operands["source"])
        rest = carry.states[self.kind.group].item(operands["cell"])
        return State(params=params, clock=operands["clock"], **rest)

    def _store_state(self, carry: Carry, state: State, operands: Operands, before: State | None = None) -> Carry:
        carry = self._store_rest(carry, state, operands, before)
        return carry._replace(registers=_put(carry.registers, self.kind.group, operands["into"], state.params))

    def _store_rest(self, carry: Carry, state: State, operands: Operands, before: State | None = None) -> Carry:
        """Store the parts of the state other than parameters. A part that is the same traced object as before needs no copy."""
        stacks, fields = carry.states, vars(state)
        rest = {
            name: fields[name] for name in stacks[self.kind.group].values if fields[name] is not getattr(before, name, None)
        }
        return carry._replace(states=_put(stacks, self.kind.group, operands["cell"], rest))


_STEPS = {
    Op.STORE: _Machine.store,
    Op.APPLY: _Machine.apply,
    Op.ADD: _Machine.add,
    Op.COLLECT: _Machine.collect,
    Op.COMMIT: _Machine.commit,
    Op.MIX: _Machine.mix,
    Op.SYNC: _Machine.sync,
    Op.BEGIN: _Machine.begin,
    Op.TURN: _Machine.turn,
}


def _copy_item(item: Any, index: jax.Array) -> Any:
    """Return an item of a stack, as a copy: a loop that never runs makes XLA copy it, not the stack at the next `put`."""
    never = jnp.minimum(index, 0)
    return jax.lax.fori_loop(0, never, lambda _, item: jax.tree.map(jnp.zeros_like, item), item)


def _put(stacks: tuple[Stack, ...], group: int, index: Any, item: Any) -> tuple[Stack, ...]:
    return *stacks[:group], stacks[group].put(index, item), *stacks[group + 1 :]


def _opened(opens: jax.Array, first: jax.Array, total: jax.Array) -> jax.Array:
    """Return the sum of a round so far: where it opens, the first message alone. `opens` is [], or [blocks] for stacks."""
    return jnp.where(opens.reshape(-1, *(1,) * (first.ndim - 1)) if opens.ndim else opens, first, total)
