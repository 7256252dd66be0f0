"""Program -> parameters: one compiled loop per kind of instruction, nested in a loop over phases."""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fred.learning.data.sampling import Minibatches
from fred.learning.lower import LONGEST_PHASE, Kind, Op, Program
from fred.learning.models.model import Params
from fred.learning.problem import Arrays, Loss
from fred.learning.server import Server, State

Carry = tuple[State, Params]  # the replicas' state, and the gradient slots [slots, ...]
Operands = dict[str, Any]
_CHUNK_INDICES = 1 << 19  # example indices sent to the device at a time, about


def replay(
    program: Program, server: Server, loss: Loss, params: Params, examples: Arrays, batches: Minibatches
) -> Iterator[State]:
    """Execute the program; yields the state at each of its marks, in order."""
    run = compiled(server, loss, program.kinds)
    state = jax.tree.map(jnp.array, server.init(params))  # own copies: they are donated
    carry = (state, jax.tree.map(lambda p: jnp.zeros((program.slots, *p.shape), p.dtype), params))
    phase = 0
    for mark in program.marks.tolist():
        while phase < mark:
            end, operands, offsets = _chunk(program, phase, mark, batches)
            carry = run(carry, examples, operands, offsets, end - phase)
            phase = end
        yield carry[0]


@lru_cache(maxsize=64)
def compiled(server: Server, loss: Loss, kinds: tuple[Kind, ...]) -> Callable[..., Carry]:
    """The loop nest for these kinds of instructions, compiled once for all runs that share them."""
    steps = [_STEPS[kind.op](server, loss, kind) for kind in kinds]

    @partial(jax.jit, donate_argnums=0)
    def run(carry: Carry, examples: Arrays, operands: list[Operands], offsets: jax.Array, phases: jax.Array) -> Carry:
        def phase(i: jax.Array, carry: Carry) -> Carry:
            for k, step in enumerate(steps):
                body = partial(_indexed, step, operands[k], examples)
                carry = jax.lax.fori_loop(offsets[i, k], offsets[i + 1, k], body, carry)
            return carry

        return jax.lax.fori_loop(0, phases, phase, carry)

    return run


@lru_cache(maxsize=64)
def single(server: Server, loss: Loss, kind: Kind) -> Callable[..., Carry]:
    """One instruction by itself: (carry, examples, **operands) -> carry."""
    return jax.jit(_STEPS[kind.op](server, loss, kind))


def _indexed(step: Callable[..., Carry], operands: Operands, examples: Arrays, i: jax.Array, carry: Carry) -> Carry:
    return step(carry, examples, **{name: operand[i] for name, operand in operands.items()})


def _apply(server: Server, loss: Loss, kind: Kind) -> Callable[..., Carry]:
    def step(carry: Carry, _: Arrays, replica: Any, slot: Any, timestamp: Any, client: Any) -> Carry:
        state, slots = carry
        return server.apply_update(state, _row(slots, slot), timestamp, client), slots

    return step


def _turn(server: Server, loss: Loss, kind: Kind) -> Callable[..., Carry]:
    apply, gradient = _apply(server, loss, kind), _gradient(server, loss, kind)

    def step(
        carry: Carry,
        examples: Arrays,
        replica: Any,
        slot: Any,
        timestamp: Any,
        client: Any,
        into: Any,
        indices: Any,
        count: Any,
    ) -> Carry:
        carry = apply(carry, examples, replica, slot, timestamp, client)
        return gradient(carry, examples, replica, into, indices, count)

    return step


def _commit(server: Server, loss: Loss, kind: Kind) -> Callable[..., Carry]:
    def step(carry: Carry, _: Arrays, replica: Any, slot: Any, weight: Any, timestamp: Any, count: Any) -> Carry:
        state, slots = carry
        return server.commit(state, _row(slots, slot), weight, timestamp, count), slots

    return step


def _gradient(server: Server, loss: Loss, kind: Kind) -> Callable[..., Carry]:
    def step(carry: Carry, examples: Arrays, replica: Any, slot: Any, indices: Any, count: Any) -> Carry:
        state, slots = carry
        real = count * (len(indices) // kind.members) if kind.masked else None
        return state, _put(slots, slot, loss.gradient(state.params, examples, indices, real))

    return step


def _add(server: Server, loss: Loss, kind: Kind) -> Callable[..., Carry]:
    def step(carry: Carry, _: Arrays, slot: Any, total: Any, opens: Any) -> Carry:
        state, slots = carry
        sums = jax.tree.map(lambda a, b: jnp.where(opens, b, a + b), _row(slots, total), _row(slots, slot))
        return state, _put(slots, total, sums)

    return step


_STEPS = {Op.APPLY: _apply, Op.TURN: _turn, Op.COMMIT: _commit, Op.GRADIENT: _gradient, Op.ADD: _add}


def _row(slots: Params, index: jax.Array) -> Params:
    return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), slots)


def _put(slots: Params, index: jax.Array, row: Params) -> Params:
    return jax.tree.map(lambda leaf, new: jax.lax.dynamic_update_index_in_dim(leaf, new, index, 0), slots, row)


def _chunk(program: Program, phase: int, mark: int, batches: Minibatches) -> tuple[int, list[Operands], jax.Array]:
    """The next phases that fit the compiled loop's fixed sizes: where they end, their operands, their offsets."""
    offsets = program.offsets
    batch = batches.batch_size
    capacities = [max(LONGEST_PHASE, min(4096, _CHUNK_INDICES // (kind.members * batch))) for kind in program.kinds]
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


def _padded(array: np.ndarray, length: int) -> np.ndarray:
    """The array as 32-bit numbers, lengthened with zeros to a fixed size so that nothing is compiled anew."""
    kind = np.float32 if array.dtype.kind == "f" else bool if array.dtype.kind == "b" else np.int32
    result = np.zeros((length, *array.shape[1:]), kind)
    result[: len(array)] = array
    return result
