"""Algorithms whose workers step models of their own, and whose centre is moved by differences of these.

| class     | source                                                                                                     |
|-----------|------------------------------------------------------------------------------------------------------------|
| EASGD     | Zhang, Choromanska, LeCun 2015, "Deep learning with elastic averaging SGD", arXiv:1412.6651, algorithm 1    |
| Downpour  | Dean et al. 2012, "Large scale distributed deep networks", section 4.1; Zhang et al. 2015, algorithm 3      |
| FADAS     | Wang, Wang, Chen 2024, "FADAS: towards federated adaptive asynchronous optimization", arXiv:2407.18365      |

What reaches the centre in a round are differences: parameters at the start of some steps, less those at their end.
"""

from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
from pydantic import Field

from fred.components.component import Whole
from fred.learning.models.model import Params
from fred.learning.server import Family, Message, Rate, Scalar, Server, State

Decay = Annotated[float, Field(ge=0, lt=1)]


class _Moved(Server):
    """The centre goes as far as a round's differences say."""

    def apply_round(self, state: State, total: Message, timestamp: Scalar, count: Scalar) -> State:
        """Parameters less `total`: the differences that the protocol has added up, times its weight."""
        params = jax.tree.map(jnp.subtract, state.params, total)
        return state.replace(params=params, clock=state.clock + 1)


class EASGD(_Moved):
    """Workers step models of their own, and now and then each one and the centre pull each other some of the way.

    Momentum for the workers (EAMSGD) is their optimizer's: `{name: sgd, momentum: 0.9, nesterov: true}`. A worker at 3 has read
    the centre at 1, and with a = 0.25 brings 0.25 x (1 - 3):

        >>> from fred.learning.servers.centred import EASGD
        >>> import jax.numpy as jnp
        >>> easgd = EASGD(learning_rate=0.1)
        >>> state = easgd.init({"w": jnp.array([1.0])}, workers=2)
        >>> easgd.apply_round(state, {"w": jnp.array([0.25 * (1.0 - 3.0)])}, timestamp=0, count=1).params["w"].tolist()
        [1.5]
    """

    family: ClassVar[Family] = Family.AVERAGED
    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)
w_i <- w_i - a (w_i - w)    (every H updates; a = 0.9 / workers)
w <- w + a (w_i - w)        (both with w_i and w from before)"""
    protocol: ClassVar[str] = "elastic"


class Downpour(_Moved):
    """Workers step models of their own; the centre is moved by sums of their last steps, and fetched now and then."""

    family: ClassVar[Family] = Family.AS_THEY_COME
    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)
w <- w - sum of the worker's last n_push steps
w_i <- w    (every n_fetch updates)"""
    protocol: ClassVar[str] = "accumulating"


class FADAS(Server):
    """The centre takes AMSGrad's steps with the mean of the last M differences, shorter ones where one of them is very stale.

    It is the algorithm's delay-adaptive form; a large `patience` makes it the other. There is no correction of the moments'
    beginnings, as in the paper. A first step with a difference of 0.5 that is 1 or 40 updates stale:

        >>> from fred.learning.servers.centred import FADAS
        >>> import jax.numpy as jnp
        >>> server = FADAS(learning_rate=0.1, outer_rate=0.1)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=2).replace(clock=jnp.int32(40))
        >>> def stepped(timestamp):
        ...     joined = server.contribute(state, {"w": jnp.array([0.5])}, timestamp=timestamp, worker=1)
        ...     return server.apply_round(state, joined, timestamp=40, count=1).params["w"].tolist()
        >>> [round(stepped(timestamp)[0], 4) for timestamp in (39, 0)]
        [0.9, 0.975]
    """

    family: ClassVar[Family] = Family.ANSWERED
    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)    (H times, from w on)
D <- mean of the last M differences (w when it was read) - w_i
m <- beta_1 m + (1 - beta_1) D;  v <- beta_2 v + (1 - beta_2) D D;  u <- max(u, v)
w <- w - r m / (sqrt(u) + epsilon)
r = outer_rate if the largest tau in the round is at most tau_c, else min(outer_rate, 1 / tau)"""
    protocol: ClassVar[str] = "buffered"

    outer_rate: Rate = Field(0.01, description="of the centre's steps, where nothing is too stale")
    beta_1: Decay = Field(0.9, description="decay of the moving average of differences")
    beta_2: Decay = Field(0.99, description="decay of that of their squares")
    epsilon: Annotated[float, Field(gt=0)] = Field(1e-8, description="added to the root of the squares' largest average")
    patience: Whole = Field(1, description="tau_c: updates by which differences may be stale")

    def init(self, params: Params, workers: int) -> State:
        zeros = jax.tree.map(jnp.zeros_like, params)
        state = super().init(params, workers)
        return state.replace(first=zeros, second=zeros, largest=zeros, workers=jnp.zeros(workers))

    def contribute(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> Message:
        """The `message`, a difference, and its staleness in its worker's place: who comes again in a round, comes fresh."""
        staleness = jnp.float32(state.clock - timestamp)
        return {"difference": message, "staleness": state.workers.at[worker].set(staleness)}

    def apply_round(self, state: State, total: Message, timestamp: Scalar, count: Scalar) -> State:
        """One step with `total`, the mean of `count` differences and of how stale they are."""
        difference, stalest = total["difference"], jnp.round(count * total["staleness"].max())
        first = jax.tree.map(lambda m, d: self.beta_1 * m + (1 - self.beta_1) * d, state.first, difference)
        second = jax.tree.map(lambda v, d: self.beta_2 * v + (1 - self.beta_2) * d * d, state.second, difference)
        largest = jax.tree.map(jnp.maximum, state.largest, second)
        rate = jnp.where(stalest <= self.patience, self.outer_rate, jnp.minimum(self.outer_rate, 1 / jnp.maximum(stalest, 1)))
        params = jax.tree.map(lambda p, m, u: p - rate * m / (jnp.sqrt(u) + self.epsilon), state.params, first, largest)
        return state.replace(params=params, first=first, second=second, largest=largest, clock=state.clock + 1)
