"""Asynchronous SGD [Dean et al. 2012, "Large scale distributed deep networks"; Odena 2016, section 2.1]."""

from fred.learning.server import Family, Server


class ASGD(Server):
    """Asynchronous SGD: apply every gradient on arrival, whatever its staleness.

    Two gradients at the initial parameters; the second is one update stale:

        >>> import fred
        >>> import jax.numpy as jnp
        >>> asgd = fred.ASGD(learning_rate=0.5)
        >>> state = asgd.init({"w": jnp.array([1.0])}, workers=2)
        >>> for worker, gradient in enumerate((1.0, 3.0)):
        ...     state = asgd.apply_update(state, {"w": jnp.array([gradient])}, timestamp=0, worker=worker)
        >>> state.params["w"].tolist(), int(state.clock)
        ([-1.0], 2)
    """

    name = "asgd"
    family = Family.AS_THEY_COME
    rule = "w <- w - step(g)"
    protocol = "asynchronous"
