"""DeMo: workers send the largest frequencies of a local momentum.

| name    | source                                                                                               |
|---------|------------------------------------------------------------------------------------------------------|
| demo    | Peng, Quesnelle, Kingma 2024, "DeMo: decoupled momentum optimization", arXiv:2411.19870, algorithm 1 |
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fred.base.later import jax, jnp
from fred.components.one_of import OneOf
from fred.learning.codecs.codec import Codec
from fred.learning.codecs.dct import DCT
from fred.learning.server import Family, Message, Scalar, Server, State


class DeMo(Server):
    """Decoupled momentum: workers send only the largest DCT coefficients of a local momentum, and step along the signs.

    A worker subtracts the sent part from its momentum. All make the same step, along the signs of the sum. The paper
    accumulates rate x gradient; with a constant rate that makes no difference.

        >>> from fred.systems.demo import DeMo
        >>> import jax.numpy as jnp
        >>> demo = DeMo(learning_rate=0.125)
        >>> state = demo.init({"w": jnp.array([1.0, 1.0])}, workers=2)
        >>> demo.apply_round(state, {"w": jnp.array([3.0, -0.1])}, timestamp=0, count=2).params["w"].tolist()
        [0.875, 1.125]
    """

    name = "demo"
    family = Family.FRESH
    rule = """\
m_i <- beta m_i + g_i
q_i <- code(m_i)                     (the largest waves of each chunk)
m_i <- m_i - q_i
w <- w - step(sign(sum of q_i))      (beta: the codec's `error_feedback`)"""
    protocol = "allreduce"

    codec: Annotated[Codec, OneOf("codec")] | None = Field(
        default=DCT(error_feedback=0.999),
        description="codec of the workers' momenta; null: 4 bytes for each number, and no momentum",
        examples=[{"name": "dct", "error_feedback": 0.999}],
    )

    def apply_update(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> State:
        """Step along the signs of a `message`, or of a round's mean."""
        return self.step(state, jax.tree.map(jnp.sign, message))
