"""Draws from one seed, for generators of random cases: of half of all families of features a case knows nothing.

Where every feature is drawn at a time, each drowns the others; with whole families switched off, pairs of them meet alone
[Groce, Zhang, Eide, Chen, Regehr 2012, "Swarm testing"].
"""

from collections.abc import Collection
from typing import Any

import numpy as np

from fred.base.words import listed

FAMILIES = (
    *("latencies", "traces", "groups", "speeds", "nodes", "contention", "network", "cards", "levels", "slow links", "flows"),
    *("collectives", "crashes", "outages", "losses", "servers", "clocks", "gates", "other protocols"),
    *("optimizers", "rates", "averages", "examples", "cadences", "targets", "limits"),
    *("sweeps", "seeds", "several runs", "titles", "other losses", "codecs", "sequences", "prices", "failures", "devices"),
)


class Draws:
    """Everything that is random about one case, and which families it draws from: half of them, and always those of `forced`."""

    def __init__(self, seed: int, forced: Collection[str] = ()):
        if unknown := set(forced) - set(FAMILIES):
            raise ValueError(f"no family {listed(sorted(unknown))}; there are {listed(FAMILIES)}")
        self.numbers, self.forced = np.random.default_rng(seed), frozenset(forced)
        self.families = frozenset(name for name in FAMILIES if self.numbers.random() < 0.5)

    def one(self, *options: Any) -> Any:
        """One of these, all equally likely."""
        return options[self.numbers.integers(len(options))]

    def some(self, *options: Any) -> list[Any]:
        """One or several of these, in their order."""
        chosen = self.numbers.permutation(len(options))[: self.between(1, len(options))]
        return [options[number] for number in sorted(chosen)]

    def between(self, low: int, high: int) -> int:
        """A whole number; both bounds are included."""
        return int(self.numbers.integers(low, high + 1))

    def real(self, low: float, high: float) -> float:
        """A number of three digits, so that a file says it whole."""
        return float(f"{self.numbers.uniform(low, high):.3g}")

    def has(self, family: str) -> bool:
        """Return whether to draw something of this family: in two of three cases that know it, and always if it is forced."""
        if family not in FAMILIES:
            raise ValueError(f"no family `{family}`")
        return family in self.forced or (family in self.families and bool(self.numbers.random() < 2 / 3))
