"""Synchronous SGD [Chen, Pan, Monga, Bengio, Jozefowicz 2017, arXiv:1604.00981, algorithm 4]."""

from typing import ClassVar

from fred.learning.server import Server


class SSGD(Server):
    """One step with the mean gradient of each round."""

    protocol: ClassVar[str] = "synchronous"
