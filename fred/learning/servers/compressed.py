"""Algorithms of which a codec is part: what it leaves out is what they remember.

| class      | source                                                                                                     |
|------------|------------------------------------------------------------------------------------------------------------|
| SparseLoCo | Sarfi et al. 2025, "Communication efficient LLM pre-training with SparseLoCo", arXiv:2508.15706, algorithm 1 |
| ChocoSGD   | Koloskova, Stich, Jaggi 2019, arXiv:1902.00340, algorithm 2                                                  |
| DeMo       | Peng, Quesnelle, Kingma 2024, "DeMo: decoupled momentum optimization", arXiv:2411.19870, algorithm 1         |
"""

from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
from pydantic import Field

from fred.components.component import OneOf
from fred.learning.codecs.codec import Codec
from fred.learning.codecs.dct import DCT
from fred.learning.codecs.rounding import LowBit
from fred.learning.codecs.sparse import TopK
from fred.learning.server import Family, Message, Rate, Scalar, Server, State

_LARGEST = {"name": "top-k", "share": 0.25, "error_feedback": 0.95}  # of small models, whose chunks are short


class SparseLoCo(Server):
    """DiLoCo that sends the largest changes only; what workers remember of the others is in place of outer momentum.

    By default 64 of each chunk of 4,096 numbers are sent, with 2 bits each; the paper makes 15 to 30 local steps.

        >>> from fred.learning.servers.compressed import SparseLoCo
        >>> import jax.numpy as jnp
        >>> server = SparseLoCo(learning_rate=0.1, outer_rate=0.5)
        >>> state = server.init({"w": jnp.array([4.0])}, workers=2)
        >>> server.apply_round(state, {"w": jnp.array([1.0])}, timestamp=0, count=2).params["w"].tolist()
        [3.5]
    """

    family: ClassVar[Family] = Family.AVERAGED
    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)         (H times, from w on)
e_i <- beta e_i + w - w_i
s_i <- code(e_i)               (the largest of each chunk, quantised)
e_i <- e_i - s_i
w <- w - alpha mean of s_i     (alpha: `outer_rate`; beta: the codec's `error_feedback`)"""
    protocol: ClassVar[str] = "outer-steps"

    outer_rate: Rate = Field(1.0, description="alpha: of the mean of what workers send")
    codec: Annotated[Codec, OneOf("codec")] | None = Field(
        TopK(chunk=4096, share=1 / 64, values=LowBit(bits=2, zero=False), error_feedback=0.95),
        description="how differences are coded on their way from workers; null: 4 bytes for each number",
        examples=[_LARGEST],
    )

    def apply_round(self, state: State, total: Message, timestamp: Scalar, count: Scalar) -> State:
        """The parameters less `total`, the mean of `count` coded differences, times the outer rate."""
        params = jax.tree.map(lambda own, change: own - self.outer_rate * change, state.params, total)
        return state.replace(params=params, clock=state.clock + 1)


class DeMo(Server):
    """Workers gather gradients in a momentum of their own, and send its largest waves, which they take away from it.

    All step along the signs of what all have sent. The paper's momentum gathers the rate times the gradient, which is the same
    while the rate stays.

        >>> from fred.learning.servers.compressed import DeMo
        >>> import jax.numpy as jnp
        >>> demo = DeMo(learning_rate=0.125)
        >>> state = demo.init({"w": jnp.array([1.0, 1.0])}, workers=2)
        >>> demo.apply_round(state, {"w": jnp.array([3.0, -0.1])}, timestamp=0, count=2).params["w"].tolist()
        [0.875, 1.125]
    """

    family: ClassVar[Family] = Family.FRESH
    rule: ClassVar[str] = """\
m_i <- beta m_i + g_i
q_i <- code(m_i)                     (the largest waves of each chunk)
m_i <- m_i - q_i
w <- w - step(sign(sum of q_i))      (beta: the codec's `error_feedback`)"""
    protocol: ClassVar[str] = "allreduce"

    codec: Annotated[Codec, OneOf("codec")] | None = Field(
        DCT(error_feedback=0.999),
        description="how momenta are coded on their way from workers; null: 4 bytes for each number, and no momentum",
        examples=[{"name": "dct", "error_feedback": 0.999}],
    )

    def apply_update(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> State:
        """One step along the signs of a `message`, or of what a round has come to."""
        return self.step(state, jax.tree.map(jnp.sign, message))


class ChocoSGD(Server):
    """D-PSGD whose workers send coded differences: what coding leaves out is part of the next one.

    What is known of each worker is a model of its own, to which it adds what it sends.

        >>> from fred.learning.servers.compressed import ChocoSGD
        >>> import jax.numpy as jnp
        >>> choco = ChocoSGD(learning_rate=0.5)
        >>> known = choco.init({"w": jnp.array([1.0])}, workers=2)
        >>> choco.apply_round(known, {"w": jnp.array([-0.25])}, timestamp=0, count=1).params["w"].tolist()
        [1.25]
    """

    family: ClassVar[Family] = Family.AVERAGED
    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)
h_i <- h_i + code(w_i - h_i)                        (sent; everybody who hears from i keeps h_i)
w_i <- w_i + gamma (sum over j of W_ij (h_j - h_i))"""
    protocol: ClassVar[str] = "choco"

    def apply_round(self, state: State, total: Message, timestamp: Scalar, count: Scalar) -> State:
        """What is known of a worker, less `total`: what is known less its model, coded."""
        return state.replace(params=jax.tree.map(jnp.subtract, state.params, total), clock=state.clock + 1)
