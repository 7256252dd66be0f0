"""What goes on beside every algorithm, whichever functions it overrides: the rate that is due, the average that is evaluated.

An algorithm finds the rate in the state, as if it were constant. In its state lie also, where there are such options:
`processed`, what the schedule counts, and `smoothed`, the moving average of the parameters.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fred.learning import rates
from fred.learning.models.model import Params
from fred.learning.server import Scalar, Server, State


def start(server: Server, params: Params, workers: int) -> State:
    """The state before the first update.

    Args:
        server: with its learning rate.
        params: the model's first parameters, or a block of them.
        workers: number of all workers.
    """
    state = server.init(params, workers)
    if server.schedule:
        state = state.replace(processed=jnp.int32(0))
    return state if server.average is None else state.replace(smoothed=state.params)


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
