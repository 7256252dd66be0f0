"""Odena 2016: FASGD against SASGD (figures 1 and 2), what B-FASGD's gates save (figure 3)."""

from reproductions.common import write
from reproductions.fasgd import curves, traffic


def timing() -> None:
    """Nothing: gates follow the gradients, so every part trains something."""


def training() -> None:
    """An hour or two on two cores for figures 1 and 2; another one for figure 3."""
    traffic.measure()
    curves.measure()


def report() -> str:
    """Write fasgd.md and its figures from what was measured."""
    return write("fasgd", curves.report() + traffic.report())
