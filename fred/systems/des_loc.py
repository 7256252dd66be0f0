"""Less communication of moments: DES-LOC and DeMo.

| name    | source                                                                                               |
|---------|------------------------------------------------------------------------------------------------------|
| des-loc | Iacob et al. 2025, "DES-LOC", arXiv:2505.22549, algorithm 1                                          |
| demo    | Peng, Quesnelle, Kingma 2024, "DeMo: decoupled momentum optimization", arXiv:2411.19870, algorithm 1 |

DES-LOC averages moments less often than parameters. In DeMo, workers send the largest frequencies of a local momentum.

"""

from __future__ import annotations

import math
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field, model_validator

from fred.base.imports import jax, jnp, optax
from fred.components.one_of import OneOf
from fred.learning import optimizer as optimizers
from fred.learning.codecs.codec import Codec
from fred.learning.codecs.sparse import DCT
from fred.learning.models.model import Params
from fred.learning.optimizer import Optimizer, Transformation
from fred.learning.server import Family, Message, Scalar, Server, State

Every = Annotated[int, Field(ge=1, le=64)]
_NAMES = {"first": "mu", "second": "nu"}  # of the moments, as optax calls them


class DESLOC(Server):
    """Local Adam that averages first and second moments less often than parameters.

    By default first moments are averaged every third time, second moments every sixth. Only averaged parts are sent.
    `optimizer` can be any with Adam's moments.

    Two averages, seen by a worker; the second one includes the first moments:

        >>> from fred.systems.des_loc import DESLOC
        >>> import jax
        >>> import jax.numpy as jnp
        >>> server = DESLOC(learning_rate=0.1, first_every=2, second_every=3)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=2)
        >>> others = jax.tree.map(lambda leaf: leaf + 5.0, state.params)
        >>> for _ in range(2):
        ...     state = server.synchronize(state, others, keep=0.0, weight=1.0)
        ...     print({name: part["w"].tolist() for name, part in state.params.items()})
        {'first': [0.0], 'model': [6.0], 'second': [0.0]}
        {'first': [5.0], 'model': [6.0], 'second': [0.0]}
    """

    name = "des-loc"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - Adam's step(g_i)    (m_i and v_i: its moments)
w_i <- mean of all w             (every K updates)
m_i <- mean of all m             (every 3 K)
v_i <- mean of all v             (every 6 K)"""
    protocol = "local-steps"

    divisible: ClassVar[bool] = False

    first_every: Every = Field(default=3, description="number of averages of parameters for each average of the first moments")
    second_every: Every = Field(
        default=6, description="number of averages of parameters for each average of the second moments"
    )
    optimizer: Optimizer = Field(
        default=(Transformation.unchecked("adam"),),
        description="optax gradient transformation with Adam's moments, or a list of them",
    )

    @model_validator(mode="after")
    def _has_moments(self) -> DESLOC:
        if "optimizer" not in self.model_fields_set:  # the default has them; to check it would load optax
            return self
        memory = optimizers.build(self.optimizer, 1.0).init({"w": jnp.zeros(1)})
        if any(len(optax.tree_utils.tree_get_all_with_path(memory, name)) != 1 for name in _NAMES.values()):
            raise ValueError(
                "`optimizer`: expected one transformation with first and second moments, such as `adam` or `adamw`"
            )
        return self

    def init(self, params: Params, /, workers: int) -> State:
        """Return the state before the first update, whose parameters are the model and both moments."""
        state = super().init(params, workers)
        return self._with_moments(state).replace(averages=jnp.int32(0))

    def model(self, params: Params, /) -> Params:
        """Return the model in `params`, which hold the moments, too."""
        return params["model"]

    def apply_update(self, state: State, grads: Message, /, timestamp: Scalar, worker: Scalar) -> State:
        """Step the worker's optimizer, from the moments in the parameters."""
        moments = {_NAMES[name]: state.params[name] for name in _NAMES}
        memory = optax.tree_utils.tree_set(state.optimizer, **moments)
        return self._with_moments(self.step(state.replace(params=state.params["model"], optimizer=memory), grads))

    def synchronize(self, state: State, mixed: Params, /, keep: Scalar, weight: Scalar) -> State:
        """Average the model with a mailbox, and those moments whose turn it is."""
        averaged, averages = super().synchronize(state, mixed, keep, weight), state.averages + 1  # with this one
        params = dict(averaged.params)
        for name, every in (("first", self.first_every), ("second", self.second_every)):
            where_due = partial(jnp.where, averages % every == 0)
            params[name] = jax.tree.map(where_due, params[name], state.params[name])
        return averaged.replace(params=params, averages=averages)

    def averaged_bytes(self, params: Params, /) -> tuple[int, ...]:
        """Return the bytes of the model, and of the moments whose turn it is."""
        model, first, second = (
            sum(4 * int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(params[name])) for name in ("model", "first", "second")
        )
        numbers = range(1, math.lcm(self.first_every, self.second_every) + 1)
        return tuple(
            model + first * (number % self.first_every == 0) + second * (number % self.second_every == 0) for number in numbers
        )

    def _with_moments(self, state: State) -> State:
        """Return the state of a model, with its optimizer's moments added to its parameters."""
        moments: dict[str, Any] = {name: optax.tree_utils.tree_get(state.optimizer, key) for name, key in _NAMES.items()}
        return state.replace(params={"model": state.params, **moments})


class DeMo(Server):
    """Decoupled momentum: workers send only the largest DCT coefficients of a local momentum, and step along the signs.

    A worker subtracts the sent part from its momentum. All make the same step, along the signs of the sum. The paper
    accumulates rate x gradient; with a constant rate that makes no difference.

        >>> from fred.systems.des_loc import DeMo
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
