"""Ringmaster with linear minimisation oracles [arXiv:2605.18174; Muon: Jordan et al. 2024; signs: Bernstein et al. 2018]."""

from typing import ClassVar

from pydantic import Field

from fred.learning.optimizer import Optimizer, Transformation
from fred.learning.server import Family, Server


class RingmasterLMO(Server):
    """Steps of a given length against a momentum, in a norm for each array, with gradients less than R updates stale.

    Such a step is a linear minimisation oracle's: `muon` (by the spectral norm of matrices; vectors by Adam), `signum` (by the
    largest entry), or any other of optax's as `optimizer`. Muon's first steps have their averages corrected for beginning at 0.

    Two orthogonal directions, one of which is a hundred times as long: a step goes as far in both.

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
W <- W - rate sqrt(max(1, outputs / inputs)) U V^T, if u = U S V^T      (`muon`, matrices)
w <- w - rate sign(u)                                                  (`signum`, where u = m)"""
    protocol: ClassVar[str] = "bounded-delay"

    optimizer: Optimizer = Field(
        (Transformation(name="muon"),), description="optax gradient transformation that steps as an oracle does, or a list"
    )
