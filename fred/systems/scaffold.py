"""SCAFFOLD: federated averaging whose local steps are corrected by control variates of the clients and of the server.

| name     | source                                                                                                          |
|----------|-----------------------------------------------------------------------------------------------------------------|
| scaffold | Karimireddy, Kale, Mohri, Reddi, Stich, Suresh 2020, "SCAFFOLD", arXiv:1910.06378, algorithm 1, option II       |
"""

from __future__ import annotations

from typing import Any, ClassVar

from fred.base.later import jax, jnp
from fred.learning import optimizer as optimizers
from fred.learning.models.model import Params
from fred.learning.server import Family, Message, Scalar, State
from fred.systems.fedavg import FedAvg


class SCAFFOLD(FedAvg):
    """FedAvg with control variates, which remove the drift of clients with different data.

    A client's control variate estimates its gradient, the server's control variate that of all. Clients and server send both
    a model and a control variate, so messages have twice the bytes. All control variates are held in memory: one model per
    client, whether it takes part or not.

    A client at 4 has stepped to 3 with a sum of rates of 0.5, so its mean gradient was 2; the server's control variate is 1:

        >>> from fred.systems.scaffold import SCAFFOLD
        >>> import jax.numpy as jnp
        >>> server = SCAFFOLD(learning_rate=0.25)
        >>> after = {"model": {"w": jnp.array([3.0])}, "control": {"w": jnp.array([1.0])}, "rates": jnp.float32(0.5)}
        >>> own, pseudo_gradient = {"w": jnp.array([0.5])}, {"w": jnp.array([1.0])}
        >>> message, own = server.send_steps(own, {"w": jnp.array([4.0])}, pseudo_gradient, after)
        >>> own["w"].tolist(), message["control"]["w"].tolist()
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
        whole = {"model": params, "control": zeros, "rates": jnp.float32(0)}
        return state.replace(params=whole, workers=jnp.float32(workers))

    def model(self, params: Params, /) -> Params:
        """Return the model, without control variate and rates."""
        return params["model"]

    def published_bytes(self, params: Params, /) -> int:
        """Return the bytes of the model and of the control variate."""
        return super().published_bytes((params["model"], params["control"]))

    def synchronize(self, state: State, mixed: Params, /, keep: Scalar, weight: Scalar) -> State:
        """Begin a client's local steps at `mixed`, with a new optimizer state."""
        return state.replace(params=mixed, optimizer=optimizers.build(self.optimizer, 1.0).init(mixed["model"]))

    def memory(self, params: Params, /) -> Params:
        """Return a client's control variate before its first round: zeros."""
        return jax.tree.map(jnp.zeros_like, params)

    def send(self, memory: Any, params: Params, grads: Params, /) -> tuple[Message, Any]:
        """Return a gradient of a local step, less the client's control variate."""
        return {"model": jax.tree.map(jnp.subtract, grads, memory), "control": memory}, memory

    def send_steps(self, memory: Any, params: Params, grads: Params, after: Params, /) -> tuple[Message, Any]:
        """Return the pseudo-gradient and the change of the client's control variate, which becomes its memory."""

        def changed(own: jax.Array, common: jax.Array, moved: jax.Array) -> jax.Array:
            return own - common + moved / after["rates"]

        new = jax.tree.map(changed, memory, after["control"], grads)
        return {"model": grads, "control": jax.tree.map(jnp.subtract, new, memory)}, new

    def apply_update(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> State:
        """Make a local step with the gradient, corrected by both control variates."""
        params = state.params
        corrected = jax.tree.map(jnp.add, message["model"], params["control"])
        stepped = self.step(state.replace(params=params["model"]), corrected)
        return stepped.replace(params=params | {"model": stepped.params, "rates": params["rates"] + state.rate})

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Step with the mean pseudo-gradient in `total`, and move the control variate by its clients' share of all."""
        params = state.params
        moved = super().apply_round(state.replace(params=params["model"]), total["model"], timestamp, count)
        share = count / state.workers
        control = jax.tree.map(lambda own, change: own + share * change, params["control"], total["control"])
        return moved.replace(params=params | {"model": moved.params, "control": control})
