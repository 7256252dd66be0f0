"""Federated averaging and its family: adaptive servers and SCAFFOLD.

| name     | source                                                                                                    |
|----------|-----------------------------------------------------------------------------------------------------------|
| fedavg   | McMahan, Moore, Ramage, Hampson, Agüera y Arcas 2017, arXiv:1602.05629, algorithm 1                       |
| fedprox  | Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020, arXiv:1812.06127, eq. 2 and algorithm 2                 |
| fednova  | Wang, Liu, Liang, Joshi, Poor 2020, arXiv:2007.07481, section 5, for local SGD without momentum           |
| fedadam  | Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan 2021, arXiv:2003.00295, algorithm 2        |
| fedyogi  | Reddi et al. 2021, arXiv:2003.00295, algorithm 2                                                          |
| scaffold | Karimireddy, Kale, Mohri, Reddi, Stich, Suresh 2020, "SCAFFOLD", arXiv:1910.06378, algorithm 1, option II |

Sampled clients take local steps from the server model, which moves by their mean pseudo-gradient. FedAdam and FedYogi have an
adaptive optimizer on the server. SCAFFOLD corrects local steps by control variates of the clients and of the server.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from fred.base.imports import jax, jnp
from fred.learning import optimizer as optimizers
from fred.learning.models.model import Params
from fred.learning.server import Decay, Family, Message, Moved, Rate, Scalar, State


class FedAvg(Moved):
    """Federated averaging: the server model moves by the mean pseudo-gradient of the sampled clients.

    A client's local optimizer starts afresh in each round. A round with a mean pseudo-gradient of 1:

        >>> from fred.systems.fedavg import FedAvg
        >>> import jax.numpy as jnp
        >>> server = FedAvg(learning_rate=0.1, server_rate=0.5)
        >>> state = server.init({"w": jnp.array([4.0])}, workers=2)
        >>> server.apply_round(state, {"w": jnp.array([1.0])}, timestamp=0, count=2).params["w"].tolist()
        [3.5]
    """

    name = "fedavg"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)                                   (H times, from w on)
w <- w - server_rate x sum of p_i (w - w_i)              (p_i: share of client i's examples in the round's)"""
    protocol = "client-rounds"
    protocol_options = {"weights": "size"}

    server_rate: Rate = Field(default=1.0, description="learning rate of the server's steps")

    def synchronize(self, state: State, mixed: Params, /, keep: Scalar, weight: Scalar) -> State:
        """Begin a client's local steps, with a new optimizer state: at `mixed`, the server model, or at an average with it."""
        params = super().synchronize(state, mixed, keep, weight).params
        return state.replace(params=params, optimizer=optimizers.build(self.optimizer, 1.0).init(self.model(params)))

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Subtract `total`, the mean pseudo-gradient, times the server's rate."""
        return super().apply_round(state, jax.tree.map(lambda leaf: self.server_rate * leaf, total), timestamp, count)


class FedNova(FedAvg):
    """FedAvg whose pseudo-gradients count per local step, so that clients with more steps do not count more.

    The default work is in proportion to speed. Local steps have no momentum: with it the paper's normalization differs.
    """

    name = "fednova"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - rate x g_i                                  (H_i times, from w on)
w <- w - (sum of p_i H_i) x sum of p_i (w - w_i) / H_i"""
    protocol = "client-rounds"
    protocol_options = {"weights": "size", "work": "speed", "normalized": True}


def add_proximal_term(gradient: Params, state: State, mu: float) -> Params:
    """Return the gradient of the loss plus mu / 2 times the squared distance from the model where local steps began."""
    return jax.tree.map(lambda g, leaf, start: g + mu * (leaf - start), gradient, state.params, state.start)


class FedProx(FedAvg):
    """FedAvg whose local steps are drawn towards the server model, with strength mu.

    A client at 1 + 2 of a server model at 1, with a gradient of 1, a rate of 0.5 and mu = 0.25:

        >>> from fred.systems.fedavg import FedProx
        >>> import jax.numpy as jnp
        >>> server = FedProx(learning_rate=0.5, mu=0.25)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=2)
        >>> state = state.replace(params={"w": jnp.array([3.0])})
        >>> server.apply_update(state, {"w": jnp.array([1.0])}, timestamp=0, worker=0).params["w"].tolist()
        [2.25]
    """

    name = "fedprox"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i + mu (w_i - w))                    (H times, from w on)
w <- w - server_rate x sum of p_i (w - w_i)"""
    protocol = "client-rounds"
    protocol_options = {"weights": "size"}

    mu: Annotated[float, Field(ge=0)] = Field(
        default=0.01, description="strength of the pull towards the server model; 0: FedAvg"
    )

    def init(self, params: Params, /, workers: int) -> State:
        return super().init(params, workers).replace(start=params)

    def synchronize(self, state: State, mixed: Params, /, keep: Scalar, weight: Scalar) -> State:
        """Begin a client's local steps at the server model, towards which they are drawn."""
        state = super().synchronize(state, mixed, keep, weight)
        return state.replace(start=state.params)

    def apply_update(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> State:
        """Step with the gradient plus mu times the distance from the server model."""
        return self.step(state, add_proximal_term(message, state, self.mu))


class FedAdam(FedAvg):
    """FedAvg with Adam on the server, which steps with the mean pseudo-gradient.

    As in the paper, moments have no bias correction. A first round with a mean pseudo-gradient of 1, without momentum: v
    becomes 0.5 x 1 + 0.5 x 1.

        >>> from fred.systems.fedavg import FedAdam
        >>> import jax.numpy as jnp
        >>> server = FedAdam(learning_rate=0.1, server_rate=0.5, beta_1=0.0, beta_2=0.5, tau=1.0)
        >>> state = server.init({"w": jnp.array([4.0])}, workers=2)
        >>> server.apply_round(state, {"w": jnp.array([1.0])}, timestamp=0, count=2).params["w"].tolist()
        [3.75]
    """

    name = "fedadam"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)    (H times, from w on);  D <- mean of w - w_i
m <- beta_1 m + (1 - beta_1) D;  v <- beta_2 v + (1 - beta_2) D D    (at first, v = tau^2)
w <- w - server_rate x m / (sqrt(v) + tau)"""
    protocol = "client-rounds"

    server_rate: Rate = Field(default=0.03, description="learning rate of the server's steps")
    beta_1: Decay = Field(default=0.9, description="decay of the first moment, the moving average of pseudo-gradients")
    beta_2: Decay = Field(default=0.99, description="decay of the second moment, the moving average of their squares")
    tau: Annotated[float, Field(gt=0)] = Field(
        default=1e-3, description="degree of adaptivity: added to the root of the second moment"
    )

    def init(self, params: Params, /, workers: int) -> State:
        first = jax.tree.map(jnp.zeros_like, params)
        second = jax.tree.map(lambda leaf: jnp.full_like(leaf, self.tau**2), params)
        return super().init(params, workers).replace(first=first, second=second)

    def _second_moment(self, moment: jax.Array, squares: jax.Array) -> jax.Array:
        """Return the second moment after a round.

        Args:
            moment: the second moment before it, in the shape of an array of parameters.
            squares: the squared mean pseudo-gradient, in the same shape.
        """
        return self.beta_2 * moment + (1 - self.beta_2) * squares

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Step with the moments of `total`, the mean pseudo-gradient."""
        first = jax.tree.map(lambda m, d: self.beta_1 * m + (1 - self.beta_1) * d, state.first, total)
        second = jax.tree.map(lambda v, d: self._second_moment(v, d * d), state.second, total)
        steps = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + self.tau), first, second)
        return super().apply_round(state.replace(first=first, second=second), steps, timestamp, count)


class FedYogi(FedAdam):
    """FedAdam whose second moment changes by at most a share of the squared pseudo-gradient, however large it is itself."""

    name = "fedyogi"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)    (H times, from w on);  D <- mean of w - w_i
m <- beta_1 m + (1 - beta_1) D;  v <- v - (1 - beta_2) D D sign(v - D D)    (at first, v = tau^2)
w <- w - server_rate x m / (sqrt(v) + tau)"""
    protocol = "client-rounds"

    def _second_moment(self, moment: jax.Array, squares: jax.Array) -> jax.Array:
        """Return the second moment after a round, moved towards the squares by a share of them."""
        return moment - (1 - self.beta_2) * squares * jnp.sign(moment - squares)


class SCAFFOLD(FedAvg):
    """FedAvg with control variates, which remove the drift of clients with different data.

    A client's control variate estimates its gradient, the server's control variate that of all. Clients and server send both
    a model and a control variate, so messages have twice the bytes. All control variates are held in memory: one model per
    client, whether it takes part or not.

    A client at 4 has stepped to 3 with a sum of rates of 0.5, so its mean gradient was 2; the server's control variate is 1:

        >>> from fred.systems.fedavg import SCAFFOLD
        >>> import jax.numpy as jnp
        >>> server = SCAFFOLD(learning_rate=0.25)
        >>> after = {"model": {"w": jnp.array([3.0])}, "control": {"w": jnp.array([1.0])}, "rates": jnp.float32(0.5)}
        >>> memory, pseudo_gradient = {"w": jnp.array([0.5])}, {"w": jnp.array([1.0])}
        >>> message, memory = server.send_steps(memory, {"w": jnp.array([4.0])}, pseudo_gradient, after)
        >>> memory["w"].tolist(), message["control"]["w"].tolist()
        ([1.5], [1.0])
    """

    name = "scaffold"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - rate x (g_i - c_i + c)                      (H times, from w on)
c_i+ = c_i - c + (w - w_i) / (H rate)
w <- w - server_rate x mean of w - w_i;  c <- c + |S| / N x mean of c_i+ - c_i;  c_i <- c_i+    (i in S)"""
    protocol = "client-rounds"

    divisible: ClassVar[bool] = False

    def check(self, workers: int) -> None:
        if not self.has_plain_steps:
            raise ValueError(
                "SCAFFOLD's control variates are mean gradients, (w - w_i) / (H rate), of plain SGD only: use "
                "`optimizer: sgd` without momentum"
            )

    def init(self, params: Params, /, workers: int) -> State:
        state = super().init(params, workers)
        zeros = jax.tree.map(jnp.zeros_like, params)
        # rates: sum of a client's rates since it read the server model, whose own sum stays 0.
        parts = {"model": params, "control": zeros, "rates": jnp.float32(0)}
        return state.replace(params=parts, workers=jnp.float32(workers))

    def model(self, params: Params, /) -> Params:
        """Return the model, without control variate and rates."""
        return params["model"]

    def published_bytes(self, params: Params, /) -> int:
        """Return the bytes of the model and of the control variate."""
        return super().published_bytes((params["model"], params["control"]))

    def memory(self, params: Params, /) -> Params:
        """Return a client's control variate before its first round: zeros."""
        return jax.tree.map(jnp.zeros_like, params)

    def send(self, memory: Any, params: Params, grads: Params, /) -> tuple[Message, Any]:
        """Return a gradient of a local step, less the client's control variate."""
        return {"model": jax.tree.map(jnp.subtract, grads, memory), "control": memory}, memory

    def send_steps(self, memory: Any, params: Params, grads: Params, after: Params, /) -> tuple[Message, Any]:
        """Return the pseudo-gradient and the change of the client's control variate, which becomes its memory."""

        def update_control(local: jax.Array, server: jax.Array, change: jax.Array) -> jax.Array:
            return local - server + change / after["rates"]

        new_control = jax.tree.map(update_control, memory, after["control"], grads)
        return {"model": grads, "control": jax.tree.map(jnp.subtract, new_control, memory)}, new_control

    def apply_update(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> State:
        """Make a local step with the gradient, corrected by both control variates."""
        params = state.params
        corrected = jax.tree.map(jnp.add, message["model"], params["control"])
        stepped = self.step(state.replace(params=params["model"]), corrected)
        return stepped.replace(params=params | {"model": stepped.params, "rates": params["rates"] + state.rate})

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Step with the mean pseudo-gradient in `total`, and move the control variate by its clients' share of all."""
        params = state.params
        stepped = super().apply_round(state.replace(params=params["model"]), total["model"], timestamp, count)
        share = count / state.workers
        control = jax.tree.map(lambda leaf, change: leaf + share * change, params["control"], total["control"])
        return stepped.replace(params=params | {"model": stepped.params, "control": control})
