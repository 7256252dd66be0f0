"""Methods that Birch SGD finds by their trees of points: plain sums of gradients [arXiv:2505.09218].

| class      | source                                      |
|------------|---------------------------------------------|
| AsyncLocal | Birch SGD 2025, arXiv:2505.09218            |
| BirchLocal | Birch SGD 2025, arXiv:2505.09218: Local SGD |
| Cycle      | Birch SGD 2025, arXiv:2505.09218            |
| AsyncBatch | Birch SGD 2025, arXiv:2505.09218            |

Nothing is averaged: the server makes every step that a worker has made of its own.
"""

from typing import ClassVar

from fred.learning.server import Family, Server
from fred.learning.servers.centred import _Moved


class AsyncLocal(_Moved):
    """Every worker makes some steps of its own, all of which the server then makes, unless they have become too old.

    The server at 1 makes the steps of a worker that has come from there to 0.5:

        >>> from fred.learning.servers.birch import AsyncLocal
        >>> import jax.numpy as jnp
        >>> server = AsyncLocal(learning_rate=0.1)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=2)
        >>> server.apply_round(state, {"w": jnp.array([1.0 - 0.5])}, timestamp=0, count=1).params["w"].tolist()
        [0.5]
    """

    family: ClassVar[Family] = Family.AS_THEY_COME
    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)           (M times, from w on)
w <- w - (w when it was read - w_i)    (unless more than B gradients have been applied since)"""
    protocol: ClassVar[str] = "local-sums"


class BirchLocal(_Moved):
    """All make steps of their own until there are enough of them in all, which the server then makes one after the other."""

    family: ClassVar[Family] = Family.FRESH
    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)           (from w on, until all together have made B)
w <- w - sum of all w - w_i"""
    protocol: ClassVar[str] = "local-total"


class Cycle(_Moved):
    """Groups of workers bring their steps in turn, while the others go on with models of their own."""

    family: ClassVar[Family] = Family.AS_THEY_COME
    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)           (all the time)
w <- w - sum over a group of (w when it was read - w_i);  w_i <- w    (one group after the other)"""
    protocol: ClassVar[str] = "in-turn"


class AsyncBatch(Server):
    """One step with the sum of a worker's M gradients at one point, unless they have become too old."""

    family: ClassVar[Family] = Family.AS_THEY_COME
    rule: ClassVar[str] = "w <- w - step(sum of M g at w_read)    (unless more than B gradients have been applied since)"
    protocol: ClassVar[str] = "batch-sums"
