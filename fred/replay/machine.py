"""Program -> parameters: one compiled loop per kind of instruction, nested in a loop over phases."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fred.learning.models.model import Params
from fred.learning.problem import Arrays
from fred.learning.server import State
from fred.minibatches import Minibatches
from fred.replay.arithmetic import Arithmetic
from fred.replay.phases import LONGEST_PHASE, Kind, Op, Program

Operands = dict[str, Any]
_CHUNK_INDICES = 1 << 19  # example indices sent to the device at a time, about


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rows:
    """Values of one kind, stacked [rows, ...]; a single one is kept as it is, which XLA updates in place more readily."""

    values: Any
    alone: bool = field(metadata={"static": True})

    @classmethod
    def of(cls, values: Sequence[Any], empty: int = 0) -> "Rows":
        """These rows, and so many of zeros."""
        if len(values) + empty == 1:
            return cls(jax.tree.map(jnp.array, values[0]), alone=True)  # a copy: the replay gives its buffers away
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *values)
        if not empty:  # random keys, which an optimizer may remember, cannot be padded
            return cls(stacked, alone=False)
        return cls(jax.tree.map(lambda leaf: jnp.pad(leaf, ((0, empty), *((0, 0),) * (leaf.ndim - 1))), stacked), alone=False)

    @classmethod
    def zeros(cls, like: Any, count: int) -> "Rows":
        """So many rows of zeros shaped like this."""
        shape = () if count == 1 else (count,)
        return cls(jax.tree.map(lambda leaf: jnp.zeros((*shape, *leaf.shape), leaf.dtype), like), alone=count == 1)

    def row(self, index: Any) -> Any:
        """One row."""
        if self.alone:
            return self.values
        return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), self.values)

    def put(self, index: Any, row: Any) -> "Rows":
        """All rows, this one replaced."""
        if self.alone:
            return Rows(row, alone=True)
        update = jax.lax.dynamic_update_index_in_dim
        return Rows(jax.tree.map(lambda leaf, new: update(leaf, new, index, 0), self.values, row), alone=False)

    def some(self, indices: np.ndarray) -> Any:
        """Several rows, stacked."""
        return jax.tree.map(lambda leaf: leaf[None] if self.alone else leaf[indices], self.values)


class Carry(NamedTuple):
    """What instructions read and write."""

    registers: Rows  # versions of the parameters
    memory: Rows  # what each replica's server remembers beside them
    slots: Rows  # gradients
    sums: Rows  # of each replica's open round


def replay(
    program: Program, arithmetic: Arithmetic, models: Sequence[Params], examples: Arrays, batches: Minibatches
) -> Iterator[Params]:
    """Execute the program from these models on; yields the replicas' parameters [replicas, ...] at each of its marks."""
    run = compiled(arithmetic, program.kinds)
    carry = _start(program, arithmetic, models)
    phase = 0
    for mark, homes in zip(program.marks.tolist(), program.homes, strict=True):
        while phase < mark:
            end, operands, offsets = _chunk(program, phase, mark, batches)
            carry = run(carry, examples, operands, offsets, end - phase)
            phase = end
        yield carry.registers.some(homes)


def _start(program: Program, arithmetic: Arithmetic, models: Sequence[Params]) -> Carry:
    """At first replica r's parameters lie in register r."""
    replicas = program.homes.shape[1]
    states = [dict(vars(state)) for state in arithmetic.start(models, replicas)]
    params = [state.pop("params") for state in states]
    for state in states:
        del state["clock"]  # operands bring it
    gradient = models[0] if arithmetic.blocks == 1 else arithmetic.cut(models[0])
    part = models[0] if arithmetic.blocks == 1 else arithmetic.block(gradient, 0)
    sums = replicas if any(kind.op in (Op.ADD, Op.COLLECT) for kind in program.kinds) else 0
    return Carry(
        Rows.of(params, program.registers - replicas),
        Rows.of(states),
        Rows.zeros(gradient, program.slots),
        Rows.zeros(part, sums),
    )


@lru_cache(maxsize=64)
def compiled(arithmetic: Arithmetic, kinds: tuple[Kind, ...]) -> Callable[..., Carry]:
    """The loop nest for these kinds of instructions, compiled once for all runs that share them."""

    @partial(jax.jit, donate_argnums=0)
    def run(carry: Carry, examples: Arrays, operands: list[Operands], offsets: jax.Array, phases: jax.Array) -> Carry:
        def phase(i: jax.Array, carry: Carry) -> Carry:
            for k, kind in enumerate(kinds):

                def body(j: jax.Array, carry: Carry, k: int = k, kind: Kind = kind) -> Carry:
                    instruction = {name: operand[j] for name, operand in operands[k].items()}
                    return _STEPS[kind.op](arithmetic, kind, carry, examples, instruction)

                carry = jax.lax.fori_loop(offsets[i, k], offsets[i + 1, k], body, carry)
            return carry

        return jax.lax.fori_loop(0, phases, phase, carry)

    return run


def _apply(arithmetic: Arithmetic, kind: Kind, carry: Carry, _: Arrays, operands: Operands) -> Carry:
    grads = _part(arithmetic, carry.slots.row(operands["slot"]), operands["replica"])
    return _updated(arithmetic, carry, _state(carry, operands), grads, operands)


def _turn(arithmetic: Arithmetic, kind: Kind, carry: Carry, examples: Arrays, operands: Operands) -> Carry:
    return _gradient(arithmetic, kind, _apply(arithmetic, kind, carry, examples, operands), examples, operands)


def _step(arithmetic: Arithmetic, kind: Kind, carry: Carry, examples: Arrays, operands: Operands) -> Carry:
    state = _state(carry, operands)
    if arithmetic.blocks == 1:  # what it is computed at is what is updated: read once
        grads = arithmetic.gradient([state.params], examples, operands["indices"], operands["count"], members=1, masked=False)
    else:
        grads = _part(arithmetic, _computed(arithmetic, kind, carry, examples, operands), operands["replica"])
    return _updated(arithmetic, carry, state, grads, operands)


def _commit(arithmetic: Arithmetic, kind: Kind, carry: Carry, _: Arrays, operands: Operands) -> Carry:
    total = carry.sums.row(operands["replica"]) if kind.special else carry.slots.row(0)
    return _stored(carry, arithmetic.commit(_state(carry, operands), total, operands["weight"], operands["count"]), operands)


def _mix(arithmetic: Arithmetic, kind: Kind, carry: Carry, _: Arrays, operands: Operands) -> Carry:
    sources = [carry.registers.row(operands["sources"][i]) for i in range(kind.members)]
    weights = [operands["weights"][i] for i in range(kind.members)]
    into = carry.registers.row(operands["into"]) if kind.special else None
    return carry._replace(registers=carry.registers.put(operands["into"], arithmetic.mix(sources, weights, into)))


def _gradient(arithmetic: Arithmetic, kind: Kind, carry: Carry, examples: Arrays, operands: Operands) -> Carry:
    grads = _computed(arithmetic, kind, carry, examples, operands)
    return carry._replace(slots=carry.slots.put(operands["store"], grads))


def _add(arithmetic: Arithmetic, kind: Kind, carry: Carry, _: Arrays, operands: Operands) -> Carry:
    replica = operands["replica"]
    grads = _part(arithmetic, carry.slots.row(operands["slot"]), replica)
    total = arithmetic.add(carry.sums.row(replica), grads)
    total = jax.tree.map(lambda first, more: jnp.where(operands["opens"], first, more), grads, total)
    return carry._replace(sums=carry.sums.put(replica, total))


def _collect(arithmetic: Arithmetic, kind: Kind, carry: Carry, examples: Arrays, operands: Operands) -> Carry:
    grads = _computed(arithmetic, kind, carry, examples, operands)
    total = arithmetic.add(carry.sums.values, grads)

    def opened(first: jax.Array, more: jax.Array) -> jax.Array:
        opens = operands["opens"][0] if carry.sums.alone else operands["opens"].reshape(-1, *(1,) * (first.ndim - 1))
        return jnp.where(opens, first, more)

    return carry._replace(sums=Rows(jax.tree.map(opened, grads, total), carry.sums.alone))


_STEPS = {
    Op.APPLY: _apply,
    Op.TURN: _turn,
    Op.STEP: _step,
    Op.COMMIT: _commit,
    Op.MIX: _mix,
    Op.GRADIENT: _gradient,
    Op.ADD: _add,
    Op.COLLECT: _collect,
}


def _computed(arithmetic: Arithmetic, kind: Kind, carry: Carry, examples: Arrays, operands: Operands) -> Params:
    sources = [carry.registers.row(operands["sources"][i]) for i in range(arithmetic.blocks)]
    return arithmetic.gradient(
        sources, examples, operands["indices"], operands["count"], members=kind.members, masked=kind.special
    )


def _updated(arithmetic: Arithmetic, carry: Carry, state: State, grads: Params, operands: Operands) -> Carry:
    return _stored(carry, arithmetic.apply(state, grads, operands["timestamp"], operands["client"]), operands)


def _state(carry: Carry, operands: Operands) -> State:
    params = carry.registers.row(operands["source"])
    return State(params=params, clock=operands["clock"], **carry.memory.row(operands["replica"]))


def _stored(carry: Carry, state: State, operands: Operands) -> Carry:
    memory = {name: getattr(state, name) for name in carry.memory.values}
    return carry._replace(
        registers=carry.registers.put(operands["into"], state.params), memory=carry.memory.put(operands["replica"], memory)
    )


def _part(arithmetic: Arithmetic, grads: Params, replica: jax.Array) -> Params:
    """The part of a gradient that belongs to a replica."""
    return grads if arithmetic.blocks == 1 else arithmetic.block(grads, replica)


def _chunk(program: Program, phase: int, mark: int, batches: Minibatches) -> tuple[int, list[Operands], jax.Array]:
    """The next phases that fit the compiled loop's fixed sizes: where they end, their operands, their offsets."""
    offsets = program.offsets
    batch = batches.batch_size
    capacities = [max(LONGEST_PHASE, min(4096, _CHUNK_INDICES // (_minibatches(kind) * batch))) for kind in program.kinds]
    end = min(mark, phase + 4096)
    for k, capacity in enumerate(capacities):
        end = min(end, int(np.searchsorted(offsets[:, k], offsets[phase, k] + capacity, side="right")) - 1)
    operands = []
    for k, (kind, capacity) in enumerate(zip(program.kinds, capacities, strict=True)):
        part = {name: full[offsets[phase, k] : offsets[end, k]] for name, full in program.operands[kind].items()}
        if "worker" in part:
            indices = batches.indices(*(part.pop(name) for name in ("worker", "step", "ordinal")))
            part["indices"] = indices.reshape(len(indices), kind.members * batch)
        operands.append({name: _padded(array, capacity) for name, array in part.items()})
    return end, operands, jnp.asarray(_padded(offsets[phase : end + 1] - offsets[phase], 4097))


def _minibatches(kind: Kind) -> int:
    return kind.members if kind.op == Op.GRADIENT else 1


def _padded(array: np.ndarray, length: int) -> np.ndarray:
    """The array as 32-bit numbers, lengthened with zeros to a fixed size so that nothing is compiled anew."""
    kind = np.float32 if array.dtype.kind == "f" else bool if array.dtype.kind == "b" else np.int32
    result = np.zeros((length, *array.shape[1:]), kind)
    result[: len(array)] = array
    return result
