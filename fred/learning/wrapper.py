"""Features that all algorithms share: learning-rate schedules, the moving average of parameters, and codecs.

If an algorithm has a codec, it codes a worker's gradient or pseudo-gradient before `send` receives it. So codecs act on
gradients, whatever messages the algorithm makes of them.

An algorithm reads the learning rate from its state, as if it were constant. If these options are set, the state also holds
`processed`, the count on which the schedule depends, and `smoothed`, the moving average of the parameters.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fred.base import cached
from fred.components.component import own_classes
from fred.learning import optimizer
from fred.learning.models.model import Params
from fred.learning.server import Message, Scalar, Server, State


def init_state(server: Server, params: Params, workers: int, words: Any = (0, 0)) -> State:
    """Return the state before the first update.

    Args:
        server: the algorithm and its options.
        params: the model's initial parameters, or a block of them.
        workers: number of all workers.
        words: two 32-bit words that determine the algorithm's random draws.
    """
    state = server.init(params, workers)
    if server.draws:
        state = state.replace(words=jnp.asarray(words, jnp.uint32))
    if server.schedule:
        state = state.replace(processed=jnp.int32(0))
    return state if server.average is None else state.replace(smoothed=state.params)


def init_memory(server: Server, params: Params, words: Any = (0, 0)) -> Any:
    """Return a worker's memory before its first message.

    Args:
        server: the algorithm, with its codec.
        params: the model that workers start from.
        words: two 32-bit words that determine the codec's random draws.
    """
    if server.codec is None or not has_memory(server):
        return server.memory(params)
    return server.memory(params), server.codec.start(params, words)


def has_memory(server: Server) -> bool:
    """Return True if workers keep a memory from one message to the next."""
    return server.overrides("memory") or (server.codec is not None and server.codec.remembers)


def send_message(
    server: Server, memory: Any, params: Params, grads: Params, on_the_way: bool, after: Params | None = None
) -> tuple[Message, Any]:
    """Return a worker's message as the receiver decodes it, and the worker's memory afterwards.

    Args:
        server: the algorithm, which makes the message, and its codec.
        memory: the worker's memory before the message.
        params: the parameters that the worker has read.
        grads: the worker's gradient, or the pseudo-gradient of its local steps.
        on_the_way: True if the message goes over the network; False if the worker itself steps with it, so it is not coded.
        after: the parameters after local steps, of which `grads` is the pseudo-gradient; None: `grads` is a gradient.
    """
    if server.codec is None:
        return _algorithm_message(server, memory, params, grads, after)
    server_memory, codec_memory = memory or ((), {})  # without memory (`has_memory`): neither part has any
    if on_the_way:
        grads, codec_memory = server.codec.sent(grads, codec_memory)
    message, server_memory = _algorithm_message(server, server_memory, params, grads, after)
    return message, (server_memory, codec_memory) if memory else ()


def _algorithm_message(server: Server, memory: Any, params: Params, grads: Params, after: Params | None) -> tuple[Message, Any]:
    """Return the algorithm's own message, and the worker's memory afterwards."""
    return server.send(memory, params, grads) if after is None else server.send_steps(memory, params, grads, after)


def update_state(server: Server, update: Callable[[State], State], state: State, count: Scalar) -> State:
    """Return the state after an update, with schedule, linear scaling and moving average applied.

    Args:
        server: the algorithm and its options.
        update: the algorithm's own update; it receives a state whose `rate` is the current learning rate.
        state: the state before the update.
        count: number of messages in the update; in a round, of those that joined it [].
    """
    if not server.schedule and server.scaling != "gradients":
        return update_average(server, update(state))
    rate = state.rate
    if server.schedule:
        rate = rate * optimizer.factor(server.schedule, state.processed)
    if server.scaling == "gradients":
        rate = rate * count
    after = update(state.replace(rate=rate)).replace(rate=state.rate)
    if server.schedule:
        after = after.replace(processed=state.processed + (count if server.counts == "gradients" else 1))
    return update_average(server, after)


def update_average(server: Server, state: State) -> State:
    """Return the state with its moving average updated [Chen et al. 2017, algorithm 1].

    Call it after each change of the parameters, by a gradient or by averaging with other replicas.
    """
    decay = server.average
    if decay is None:
        return state
    smoothed = jax.tree.map(lambda mean, leaf: decay * mean + (1 - decay) * leaf, state.smoothed, state.params)
    return state.replace(smoothed=smoothed)


def evaluated_params(server: Server, state: State) -> Params:
    """Return the parameters to evaluate: the moving average if there is one, and those of the server otherwise."""
    return state.params if server.average is None else state.smoothed


def without_rate(server: Server, params: Params, workers: int) -> Server:
    """Return the server without its own learning rate, if its functions do not use it: they read the rate from the state.

    Args:
        server: the algorithm and its options.
        params: shapes of the parameters.
        workers: number of all workers.
    """
    leaves, structure = jax.tree.flatten(params)
    shapes = tuple(leaves), structure
    try:
        unit_rate, double_rate = (server.model_copy(update={"learning_rate": rate}) for rate in (1.0, 2.0))
        # Unused if two rates give the same program. A user's class may branch on the rate, so its actual rate is traced.
        compared = server if own_classes(server) else double_rate
        return unit_rate if _traced(unit_rate, shapes, workers) == _traced(compared, shapes, workers) else server
    except Exception:  # 1 is no valid rate for it, or the class has an error, which is reported elsewhere
        return server


@cached.code(64)  # points of a sweep over rates share the programs of both rates
def _traced(server: Server, shapes: tuple[tuple[Any, ...], Any], workers: int) -> str:
    """Return the programs of a server's functions as text, with their constants, but for `init`, which stores the rate."""

    def call_all(state: State, memory: Any, integer: Scalar, fraction: Scalar) -> Any:
        # Only shapes and types matter: a model stands for gradients, one integer for clocks and the worker.
        model = server.model(state.params)
        message, _ = server.send(memory, model, model)
        steps = server.send_steps(memory, model, model, state.params)
        contribution = server.contribute(state, message, integer, integer)
        updated = server.apply_update(state, message, integer, integer)
        stepped = server.apply_round(state, contribution, integer, integer)
        synchronized = server.synchronize(state, state.params, fraction, fraction)
        statistic = server.statistic(state) if server.has_statistic else None
        return updated, stepped, synchronized, statistic, steps

    leaves, structure = shapes
    params = jax.tree.unflatten(structure, leaves)
    state = jax.eval_shape(lambda params: init_state(server, params, workers), params)
    memory = jax.eval_shape(server.memory, params)
    program = jax.make_jaxpr(call_all)(state, memory, np.int32(0), np.float32(0.5))
    return f"{program} {[np.asarray(constant).tolist() for constant in program.consts]}"
