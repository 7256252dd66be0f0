"""Program -> parameters: one compiled loop per kind of instruction, nested in a loop over phases."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fred.learning.arithmetic import Arithmetic
from fred.learning.data.sampling import Minibatches
from fred.learning.lower import LONGEST_PHASE, Kind, Op, Program
from fred.learning.models.model import Params
from fred.learning.problem import Arrays
from fred.learning.server import State

Operands = dict[str, Any]
_CHUNK_INDICES = 1 << 19  # example indices sent to the device at a time, about


class Carry(NamedTuple):
    """What instructions read and write."""

    registers: Params  # versions of the parameters [registers, ...]
    memory: dict[str, Any]  # what each replica's server remembers beside them [replicas, ...]
    slots: Params  # gradients [slots, ...]
    sums: Params  # of each replica's open round [replicas, ...]


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
        yield jax.tree.map(lambda leaf, homes=homes: leaf[homes], carry.registers)


def _start(program: Program, arithmetic: Arithmetic, models: Sequence[Params]) -> Carry:
    """At first replica r's parameters lie in register r."""
    replicas = program.homes.shape[1]
    states = [dict(vars(state)) for state in arithmetic.start(models, replicas)]
    params = [state.pop("params") for state in states]
    for state in states:
        del state["clock"]  # operands bring it
    empty = program.registers - replicas
    stack = partial(jax.tree.map, lambda *leaves: jnp.stack(leaves))
    registers = jax.tree.map(lambda leaf: jnp.pad(leaf, ((0, empty), *((0, 0),) * (leaf.ndim - 1))), stack(*params))
    gradient = models[0] if arithmetic.blocks == 1 else arithmetic.cut(models[0])
    rows = replicas if any(kind.op in (Op.ADD, Op.COLLECT) for kind in program.kinds) else 0
    part = models[0] if arithmetic.blocks == 1 else arithmetic.block(gradient, 0)
    return Carry(registers, stack(*states), _zeros(gradient, program.slots), _zeros(part, rows))


def _zeros(like: Params, rows: int) -> Params:
    return jax.tree.map(lambda leaf: jnp.zeros((rows, *leaf.shape), leaf.dtype), like)


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
    return _updated(arithmetic, carry, operands, _part(arithmetic, carry.slots, operands["slot"], operands["replica"]))


def _turn(arithmetic: Arithmetic, kind: Kind, carry: Carry, examples: Arrays, operands: Operands) -> Carry:
    return _gradient(arithmetic, kind, _apply(arithmetic, kind, carry, examples, operands), examples, operands)


def _step(arithmetic: Arithmetic, kind: Kind, carry: Carry, examples: Arrays, operands: Operands) -> Carry:
    if arithmetic.blocks > 1:
        grads = _computed(arithmetic, kind, carry, examples, operands)
        return _updated(arithmetic, carry, operands, _row(grads, operands["replica"]))
    state = _state(carry, operands)  # what it is computed at is what is updated: read once
    grads = arithmetic.gradient([state.params], examples, operands["indices"], operands["count"], 1, False)
    return _stored(carry, arithmetic.apply(state, grads, operands["timestamp"], operands["client"]), operands)


def _commit(arithmetic: Arithmetic, kind: Kind, carry: Carry, _: Arrays, operands: Operands) -> Carry:
    total = _row(carry.sums, operands["replica"]) if kind.special else _row(carry.slots, 0)
    return _stored(carry, arithmetic.commit(_state(carry, operands), total, operands["weight"], operands["count"]), operands)


def _mix(arithmetic: Arithmetic, kind: Kind, carry: Carry, _: Arrays, operands: Operands) -> Carry:
    sources = [_row(carry.registers, operands["sources"][i]) for i in range(kind.members)]
    weights = [operands["weights"][i] for i in range(kind.members)]
    into = _row(carry.registers, operands["into"]) if kind.special else None
    return carry._replace(registers=_put(carry.registers, operands["into"], arithmetic.mix(sources, weights, into)))


def _gradient(arithmetic: Arithmetic, kind: Kind, carry: Carry, examples: Arrays, operands: Operands) -> Carry:
    grads = _computed(arithmetic, kind, carry, examples, operands)
    return carry._replace(slots=_put(carry.slots, operands["store"], grads))


def _add(arithmetic: Arithmetic, kind: Kind, carry: Carry, _: Arrays, operands: Operands) -> Carry:
    replica = operands["replica"]
    grads = _part(arithmetic, carry.slots, operands["slot"], replica)
    total = arithmetic.add(_row(carry.sums, replica), grads)
    total = jax.tree.map(lambda first, more: jnp.where(operands["opens"], first, more), grads, total)
    return carry._replace(sums=_put(carry.sums, replica, total))


def _collect(arithmetic: Arithmetic, kind: Kind, carry: Carry, examples: Arrays, operands: Operands) -> Carry:
    grads = _computed(arithmetic, kind, carry, examples, operands)
    grads = jax.tree.map(lambda leaf: leaf[None], grads) if arithmetic.blocks == 1 else grads
    opens = operands["opens"]
    total = jax.tree.map(
        lambda new, old: jnp.where(opens.reshape(-1, *(1,) * (new.ndim - 1)), new, old),
        grads,
        arithmetic.add(carry.sums, grads),
    )
    return carry._replace(sums=total)


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
    sources = [_row(carry.registers, operands["sources"][i]) for i in range(arithmetic.blocks)]
    return arithmetic.gradient(sources, examples, operands["indices"], operands["count"], kind.members, kind.special)


def _updated(arithmetic: Arithmetic, carry: Carry, operands: Operands, grads: Params) -> Carry:
    return _stored(carry, arithmetic.apply(_state(carry, operands), grads, operands["timestamp"], operands["client"]), operands)


def _state(carry: Carry, operands: Operands) -> State:
    params = _row(carry.registers, operands["source"])
    return State(params=params, clock=operands["clock"], **_row(carry.memory, operands["replica"]))


def _stored(carry: Carry, state: State, operands: Operands) -> Carry:
    memory = {name: getattr(state, name) for name in carry.memory}
    registers = _put(carry.registers, operands["into"], state.params)
    return carry._replace(registers=registers, memory=_put(carry.memory, operands["replica"], memory))


def _part(arithmetic: Arithmetic, slots: Params, slot: jax.Array, replica: jax.Array) -> Params:
    """The part of a kept gradient that belongs to a replica."""
    return _row(slots, slot) if arithmetic.blocks == 1 else _row(_row(slots, slot), replica)


def _row(rows: Params, index: Any) -> Params:
    return jax.tree.map(
        lambda leaf: leaf[0] if len(leaf) == 1 else jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), rows
    )


def _put(rows: Params, index: Any, row: Params) -> Params:
    return jax.tree.map(
        lambda leaf, new: new[None] if len(leaf) == 1 else jax.lax.dynamic_update_index_in_dim(leaf, new, index, 0), rows, row
    )


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
