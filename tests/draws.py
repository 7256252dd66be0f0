"""Draws from one seed, for generators of random cases, each of which uses about half of all families of features.

A case that has every feature hides the effect of each; without whole families, pairs of features meet alone
[Groce, Zhang, Eide, Chen, Regehr 2012, "Swarm testing"].
"""

from collections.abc import Collection
from typing import Any

import numpy as np

from fred.base.errors import listed

FAMILIES = (
    *("latencies", "traces", "groups", "speeds", "nodes", "contention", "network", "cards", "levels", "slow links", "flows"),
    *("collectives", "crashes", "outages", "losses", "servers", "clocks", "gates", "other protocols"),
    *("optimizers", "rates", "averages", "examples", "cadences", "targets", "limits"),
    *("sweeps", "seeds", "several runs", "titles", "other losses", "codecs", "sequences", "prices", "failures", "devices"),
)


class Draws:
    """The random choices of one case, and its families of features: half of all, and always those of `forced`."""

    def __init__(self, seed: int, forced: Collection[str] = ()):
        if unknown := set(forced) - set(FAMILIES):
            raise ValueError(f"no family {listed(sorted(unknown))}; there are {listed(FAMILIES)}")
        self.numbers, self.forced = np.random.default_rng(seed), frozenset(forced)
        self.families = frozenset(name for name in FAMILIES if self.numbers.random() < 0.5)

    def choose(self, *options: Any) -> Any:
        """Return one of these, all equally likely."""
        return options[self.numbers.integers(len(options))]

    def choose_some(self, *options: Any) -> list[Any]:
        """Return one or several of these, in their order."""
        order = self.numbers.permutation(len(options))[: self.integer(1, len(options))]
        return [options[number] for number in sorted(order)]

    def integer(self, low: int, high: int) -> int:
        """Return an integer; both bounds are included."""
        return int(self.numbers.integers(low, high + 1))

    def real(self, low: float, high: float) -> float:
        """Return a number of three digits, so that a file has it exactly."""
        return float(f"{self.numbers.uniform(low, high):.3g}")

    def covers(self, family: str) -> bool:
        """Return whether to draw something of this family: in two of three cases that know it, and always if it is forced."""
        if family not in FAMILIES:
            raise ValueError(f"no family `{family}`")
        return family in self.forced or (family in self.families and bool(self.numbers.random() < 2 / 3))
