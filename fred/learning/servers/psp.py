"""Partially synchronous parallel SGD ["PSP-SGD", algorithm 1, extending Pan et al. 2017; docs/errata.md, item 9]."""

from typing import ClassVar

from pydantic import Field

from fred.learning.server import Family, Scaling, Server


class PSPSGD(Server):
    """Each server steps with the mean of the d gradients that it got, d times as long.

    The factor d is in the rate of the state when a round is stepped with; `scaling: none` leaves it out.

        >>> from fred.learning.servers.psp import PSPSGD
        >>> [PSPSGD(learning_rate=0.1, **options).scaling for options in ({}, {"scaling": "none"})]
        ['gradients', 'none']
    """

    family: ClassVar[Family] = Family.AS_THEY_COME
    rule: ClassVar[str] = "w_k <- w_k - d step(mean of the d g_k)    (the block k of w and of g)"
    protocol: ClassVar[str] = "partial"

    scaling: Scaling = Field("gradients", description="linear scaling: the rate is multiplied by the d gradients of an update")
