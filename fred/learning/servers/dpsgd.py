"""Decentralised parallel SGD [Lian, Zhang, Zhang, Hsieh, Zhang, Liu 2017, arXiv:1705.09056, algorithm 1]."""

from typing import ClassVar

from fred.learning.server import Server


class DPSGD(Server):
    """Every worker steps with its own gradient, and averages its model with its neighbours'."""

    protocol: ClassVar[str] = "gossip"
