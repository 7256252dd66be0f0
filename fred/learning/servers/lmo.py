"""Ringmaster with linear minimisation oracles [arXiv:2605.18174; Muon: Jordan et al. 2024; signs: Bernstein et al. 2018]."""

from typing import ClassVar

from pydantic import Field

from fred.learning.optimizer import Optimizer, Transformation
from fred.learning.server import Family, Server


class RingmasterLMO(Server):
    """Steps of a given length against a momentum, in a norm for each array, with gradients less than R updates stale.

    Such a step is a linear minimisation oracle's: `muon` (by the spectral norm of matrices, about), `signum` (by the largest
    entry), or any other of optax's as `optimizer`. Muon's first steps have their averages corrected for beginning at 0.
    Its five Newton-Schulz iterations bring singular values to between 0.68 and 1.2, not to 1; those below 0.2 % of the
    matrix's length stay smaller. Its vectors make the steps of Adam with Nesterov's momentum; the paper's have momentum alone.

    Two orthogonal directions, one of which is a hundred times as long: a step goes about as far in both.

        >>> from fred.learning.servers.lmo import RingmasterLMO
        >>> import jax.numpy as jnp
        >>> server = RingmasterLMO(learning_rate=0.1)
        >>> state = server.init({"w": jnp.zeros((2, 2))}, workers=2)
        >>> state = server.apply_update(state, {"w": jnp.diag(jnp.array([1.0, 100.0]))}, timestamp=0, worker=0)
        >>> (10 * state.params["w"]).round(0).tolist()
        [[-1.0, 0.0], [0.0, -1.0]]
    """

    family: ClassVar[Family] = Family.AS_THEY_COME
    rule: ClassVar[str] = """\
m <- b m + (1 - b) g,  u = b m + (1 - b) g                             (if tau < R)
W <- W - rate sqrt(max(1, outputs / inputs)) U S' V^T, if u = U S V^T   (`muon`, matrices; S' from 0.68 to 1.2)
w <- w - rate u / (sqrt(mean of g^2) + e)                              (`muon`, vectors: Adam with Nesterov's momentum)
w <- w - rate sign(u)                                                  (`signum`, where u = m)"""
    protocol: ClassVar[str] = "bounded-delay"

    optimizer: Optimizer = Field(
        (Transformation(name="muon"),), description="optax gradient transformation that steps as an oracle does, or a list"
    )
