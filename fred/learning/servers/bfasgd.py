"""Bandwidth-aware FASGD [Odena 2016, arXiv:1601.04033, section 2.3; docs/errata.md, item 5]."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from fred.learning.server import Scalar, State
from fred.learning.servers.fasgd import FASGD


class BFASGD(FASGD):
    """FASGD whose workers send the less often the smaller the gradients' deviation v has become.

    The statistic is the mean over all numbers, in whichever array they lie; at first it is `v0`:

        >>> from fred.learning.servers.bfasgd import BFASGD
        >>> import jax.numpy as jnp
        >>> server = BFASGD(learning_rate=0.1)
        >>> state = server.init({"w": jnp.zeros(3), "b": jnp.zeros(1)}, workers=2)
        >>> v = {"w": jnp.array([1.0, 1.0, 0.0]), "b": jnp.array([0.0])}
        >>> float(server.statistic(state)), float(server.statistic(state.replace(v=v)))
        (1.0, 0.5)
    """

    rule: ClassVar[str] = """\
w <- as in fasgd, with g, or the worker's last g again if this one is not sent
P(a message is sent) = 1 / (1 + c / (mean of v + epsilon))"""
    protocol: ClassVar[str] = "gated"
    has_statistic: ClassVar[bool] = True

    def statistic(self, state: State) -> Scalar:
        """The mean of v (of m, with `published-code`) over all parameters of `state`: a float32 number []."""
        leaves = jax.tree.leaves(state.m if self.variant == "published-code" else state.v)
        return jnp.concatenate([leaf.ravel() for leaf in leaves]).mean()
