"""SparseLoCo: DiLoCo with sparse pseudo-gradients.

| name       | source                                                                                                       |
|------------|--------------------------------------------------------------------------------------------------------------|
| sparseloco | Sarfi et al. 2025, "Communication efficient LLM pre-training with SparseLoCo", arXiv:2508.15706, algorithm 1 |
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fred.base.later import jax
from fred.components.one_of import OneOf
from fred.learning.codecs.codec import Codec
from fred.learning.codecs.rounding import LowBit
from fred.learning.codecs.sparse import TopK
from fred.learning.server import Family, Message, Rate, Scalar, Server, State

_LARGEST = {"name": "top-k", "share": 0.25, "error_feedback": 0.95}  # of small models, whose chunks are short


class SparseLoCo(Server):
    """DiLoCo with top-k compressed pseudo-gradients; error feedback on each worker replaces the outer momentum.

    By default workers send 64 numbers of each chunk of 4,096, with 2 bits each; the paper makes 15 to 30 local steps.

        >>> from fred.systems.sparseloco import SparseLoCo
        >>> import jax.numpy as jnp
        >>> server = SparseLoCo(learning_rate=0.1, outer_rate=0.5)
        >>> state = server.init({"w": jnp.array([4.0])}, workers=2)
        >>> server.apply_round(state, {"w": jnp.array([1.0])}, timestamp=0, count=2).params["w"].tolist()
        [3.5]
    """

    name = "sparseloco"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)         (H times, from w on)
e_i <- beta e_i + w - w_i
s_i <- code(e_i)               (the largest of each chunk, quantised)
e_i <- e_i - s_i
w <- w - alpha mean of s_i     (alpha: `outer_rate`; beta: the codec's `error_feedback`)"""
    protocol = "outer-steps"

    outer_rate: Rate = Field(default=1.0, description="alpha: learning rate of the outer steps")
    codec: Annotated[Codec, OneOf("codec")] | None = Field(
        default=TopK(chunk=4096, share=1 / 64, values=LowBit(bits=2, zero=False), error_feedback=0.95),
        description="codec of pseudo-gradients; null: 4 bytes for each number",
        examples=[_LARGEST],
    )

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Subtract `total`, the mean of `count` coded pseudo-gradients, times the outer rate."""
        params = jax.tree.map(lambda own, change: own - self.outer_rate * change, state.params, total)
        return state.replace(params=params, clock=state.clock + 1)
