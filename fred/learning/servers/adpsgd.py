"""Asynchronous decentralised parallel SGD [Lian, Zhang, Zhang, Liu 2018, arXiv:1710.06952, algorithm 1]."""

from typing import ClassVar

from fred.learning.server import Server


class ADPSGD(Server):
    """Every worker steps its own model with a gradient at an older copy of it, between averagings with one other worker."""

    protocol: ClassVar[str] = "pairwise"
