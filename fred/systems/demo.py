"""DeMo: workers send the largest waves of a momentum of their own.

| name    | source                                                                                               |
|---------|------------------------------------------------------------------------------------------------------|
| demo    | Peng, Quesnelle, Kingma 2024, "DeMo: decoupled momentum optimization", arXiv:2411.19870, algorithm 1 |
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fred.base.later import jax, jnp
from fred.components.component import OneOf
from fred.learning.codecs.codec import Codec
from fred.learning.codecs.dct import DCT
from fred.learning.server import Message, Scalar, Server, State

ALGORITHMS = {
    "demo": {
        "family": "fresh",
        "rule": """\
m_i <- beta m_i + g_i
q_i <- code(m_i)                     (the largest waves of each chunk)
m_i <- m_i - q_i
w <- w - step(sign(sum of q_i))      (beta: the codec's `error_feedback`)""",
        "server": "DeMo",
        "protocol": "allreduce",
    },
}


class DeMo(Server):
    """Workers gather gradients in a momentum of their own, and send its largest waves, which they take away from it.

    All step along the signs of what all have sent. The paper's momentum gathers the rate times the gradient, which is the same
    while the rate stays.

        >>> from fred.systems.demo import DeMo
        >>> import jax.numpy as jnp
        >>> demo = DeMo(learning_rate=0.125)
        >>> state = demo.init({"w": jnp.array([1.0, 1.0])}, workers=2)
        >>> demo.apply_round(state, {"w": jnp.array([3.0, -0.1])}, timestamp=0, count=2).params["w"].tolist()
        [0.875, 1.125]
    """

    codec: Annotated[Codec, OneOf("codec")] | None = Field(
        DCT(error_feedback=0.999),
        description="how momenta are coded on their way from workers; null: 4 bytes for each number, and no momentum",
        examples=[{"name": "dct", "error_feedback": 0.999}],
    )

    def apply_update(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> State:
        """Step along the signs of a `message`, or of a round's mean."""
        return self.step(state, jax.tree.map(jnp.sign, message))
