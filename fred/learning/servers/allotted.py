"""Algorithms in whose rounds each worker has a number of its own of gradients to compute; their protocols say how many.

| class         | source                                                                                           |
|---------------|--------------------------------------------------------------------------------------------------|
| MindFlayerSGD | Maranjyan, Shaikh Omar, Richtarik 2024, "MindFlayer SGD", arXiv:2410.04285                        |
| ATASGD        | Maranjyan, Saad, Richtarik, Orabona 2025, "ATA: adaptive task allocation", arXiv:2502.00775      |
"""

from typing import ClassVar

from fred.learning.server import Family, Server


class MindFlayerSGD(Server):
    """One step with what was ready in time of B_i gradients that each worker has begun at the present parameters."""

    family: ClassVar[Family] = Family.FRESH
    rule: ClassVar[str] = "w <- w - step(sum of the g at w that are ready in time / sum over i of p_i B_i)    (p_i: how likely)"
    protocol: ClassVar[str] = "time-limited"


class ATASGD(Server):
    """One step with the mean of B gradients at the present parameters, shared out among workers by what is known of them."""

    family: ClassVar[Family] = Family.FRESH
    rule: ClassVar[str] = "w <- w - step(mean of the B g at w, a_i of worker i)"
    protocol: ClassVar[str] = "bandit"
