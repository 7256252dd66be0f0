"""Synchronous SGD: each update averages the gradients of a round.

| name          | source                                                                      |
|---------------|-----------------------------------------------------------------------------|
| ssgd          | Chen, Pan, Monga, Bengio, Jozefowicz 2017, arXiv:1604.00981, algorithm 4    |
| m-sync        | Dutta et al. 2018, arXiv:1803.01113, section 2, as k-sync; arXiv:2602.03802 |
| allreduce-sgd | Li et al. 2021, section 2                                                   |

A round of two gradients, 1 and 3:

    >>> import fred
    >>> import jax.numpy as jnp
    >>> server = fred.Server(learning_rate=0.5)
    >>> state = server.init({"w": jnp.array([1.0])}, workers=2)
    >>> state = server.apply_round(state, {"w": jnp.array([(1.0 + 3.0) / 2])}, timestamp=0, count=2)
    >>> state.params["w"].tolist(), int(state.clock)
    ([0.0], 1)
"""

from fred.learning.server import Family, Server


class SSGD(Server):
    """Synchronous SGD, optionally with backup workers: each update averages the gradients of a round."""

    name = "ssgd"
    family = Family.FRESH
    rule = "w <- w - step(mean of the round's g)"
    protocol = "synchronous"


class MSync(Server):
    """m-synchronous SGD: each update averages the first m gradients of a round; slower workers restart."""

    name = "m-sync"
    family = Family.FRESH
    rule = "w <- w - step(mean of the first m of n g)"
    protocol = "synchronous"
    protocol_options = {"late": "interrupt"}


class AllreduceSGD(Server):
    """Synchronous SGD without servers: an allreduce averages all gradients, and all workers make the same update."""

    name = "allreduce-sgd"
    family = Family.FRESH
    rule = "w <- w - step(mean of all n g)"
    protocol = "allreduce"
