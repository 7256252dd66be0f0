"""Cutoff SGD [Teng & Wood 2018, algorithm 1]."""

from typing import ClassVar

from fred.learning.server import Server


class CutoffSGD(Server):
    """One step with the mean of the gradients that made the cutoff."""

    protocol: ClassVar[str] = "cutoff"
