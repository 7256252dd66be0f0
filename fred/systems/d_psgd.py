"""D-PSGD: workers average with their neighbours [Lian, Zhang, Zhang, Hsieh, Zhang, Liu 2017, arXiv:1705.09056, algorithm 1].

Example: a worker at 1, whose only neighbour is at 3; it averages, then steps with its gradient of 2 at rate 0.5:
    >>> import fred
    >>> import jax.numpy as jnp
    >>> server = fred.Server(learning_rate=0.5)
    >>> state = server.init({"w": jnp.array([1.0])}, workers=2)
    >>> state = server.synchronize(state, {"w": jnp.array([3.0])}, keep=0.5, weight=0.5)
    >>> server.apply_update(state, {"w": jnp.array([2.0])}, timestamp=0, worker=0).params["w"].tolist()
    [1.0]
"""

from fred.learning.server import Family, Server


class DPSGD(Server):
    """Decentralized SGD: each worker averages its model with its neighbours', and steps with its own gradient."""

    name = "d-psgd"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)
w_i <- sum over j of W_ij w_j    (W: the protocol's weights, not 0 for neighbours and itself)"""
    protocol = "gossip"
    protocol_options = {"order": "mix-first"}
