"""What goes on beside every algorithm: the rate that is due, the average that is evaluated, the codec that messages pass.

What workers send passes the algorithm's codec, where it has one: before `send`, so that it is gradients and differences
that are coded, whatever messages are made of them.

An algorithm finds the rate in the state, as if it were constant. In its state lie also, where there are such options:
`processed`, what the schedule counts, and `smoothed`, the moving average of the parameters.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fred.learning import rates
from fred.learning.models.model import Params
from fred.learning.server import Message, Scalar, Server, State


def start(server: Server, params: Params, workers: int, words: Any = (0, 0)) -> State:
    """The state before the first update.

    Args:
        server: with its learning rate.
        params: the model's first parameters, or a block of them.
        workers: number of all workers.
        words: two of 32 bits, from which what an algorithm draws follows.
    """
    state = server.init(params, workers)
    if server.draws:
        state = state.replace(words=jnp.asarray(words, jnp.uint32))
    if server.schedule:
        state = state.replace(processed=jnp.int32(0))
    return state if server.average is None else state.replace(smoothed=state.params)


def remembered(server: Server, params: Params, words: Any = (0, 0)) -> Any:
    """What a worker remembers before its first message.

    Args:
        server: with its codec.
        params: the model that workers start from.
        words: two of 32 bits, from which what its codec draws follows.
    """
    if server.codec is None or not remembers(server):
        return server.memory(params)
    return server.memory(params), server.codec.start(params, words)


def remembers(server: Server) -> bool:
    """Whether workers remember anything from one message to the next."""
    return server.overrides("memory") or (server.codec is not None and server.codec.remembers)


def sent(server: Server, memory: Any, params: Params, grads: Params, on_the_way: bool) -> tuple[Message, Any]:
    """What a worker's message is when it arrives, and what the worker remembers then.

    Args:
        server: which says what is sent, and how it is coded.
        memory: what the worker remembers.
        params: the parameters that it has read.
        grads: its gradient, or what its local steps have changed.
        on_the_way: whether it is sent at all; False: it is of a step that the worker makes itself.
    """
    if server.codec is None:
        return server.send(memory, params, grads)
    own, coded = memory or ((), {})
    if on_the_way:
        grads, coded = server.codec.sent(grads, coded)
    message, own = server.send(own, params, grads)
    return message, (own, coded) if memory else ()


def updated(server: Server, update: Callable[[State], State], state: State, count: Scalar) -> State:
    """The state after an update with so many messages.

    Args:
        server: whose options say what goes on beside it.
        update: what the algorithm does, told a state whose rate is the one that is due.
        state: before it.
        count: messages in the update: of a round, those that joined it [].
    """
    if not server.schedule and server.scaling != "gradients":
        return averaged(server, update(state))
    rate = state.rate
    if server.schedule:
        rate = rate * rates.factor(server.schedule, state.processed)
    if server.scaling == "gradients":
        rate = rate * count
    after = update(state.replace(rate=rate)).replace(rate=state.rate)
    if server.schedule:
        after = after.replace(processed=state.processed + (count if server.counts == "gradients" else 1))
    return averaged(server, after)


def averaged(server: Server, state: State) -> State:
    """The state after its parameters have changed, by a gradient or by meeting others [Chen et al. 2017, algorithm 1]."""
    decay = server.average
    if decay is None:
        return state
    smoothed = jax.tree.map(lambda mean, now: decay * mean + (1 - decay) * now, state.smoothed, state.params)
    return state.replace(smoothed=smoothed)


def answer(server: Server, state: State) -> Params:
    """What is evaluated: of the moving average, where there is one."""
    return server.evaluated(state if server.average is None else state.replace(params=state.smoothed))
