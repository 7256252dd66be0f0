"""What the systems' papers say of them, in few words, as who is ahead of whom, or is not behind; and whether it is so here."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import pandas as pd

from studies.low_communication.compared import CASE, against


class Claim(NamedTuple):
    """One system beside another.

    Args:
        says: the claim, as it can be measured here.
        paper: that it is from, on arXiv.
        system: of which it is said.
        other: with which it is compared.
        relation: `ahead`: its loss is lower; `even`: its loss is no higher.
        stragglers: in which cases.
        megabits: at which bandwidths.
    """

    says: str
    paper: str
    system: str
    other: str
    relation: Literal["ahead", "even"]
    stragglers: Sequence[bool] = (False, True)
    megabits: Sequence[int] = (50, 230, 1000, 5000)

    def verdicts(self, losses: pd.DataFrame) -> list[str]:
        """Return the verdict of each case of the claim: `ahead`, `behind`, or nothing.

        Args:
            losses: one row for each case, system, seed and time.
        """
        return [
            against(own, self.system, self.other).verdict
            for (stragglers, megabits), own in losses.groupby(CASE, sort=False)
            if stragglers in self.stragglers and megabits in self.megabits
        ]

    def judged(self, verdicts: Sequence[str]) -> str:
        """Return whether the claim holds in all of these cases, in none, or in some.

        Args:
            verdicts: of the cases.
        """
        if not verdicts:
            return "not measured"
        good = sum(verdict == "ahead" if self.relation == "ahead" else verdict != "behind" for verdict in verdicts)
        return "agrees" if good == len(verdicts) else "disagrees" if not good else f"in part: {good} of {len(verdicts)}"


CLAIMS = (
    Claim("DiLoCo on slow links is ahead of an allreduce at every step", "2311.08105", "diloco", "sync", "ahead", (False,)),
    Claim("Streaming with four bits learns as well as DiLoCo", "2501.18512", "streaming", "diloco", "even"),
    Claim(
        "SparseLoCo, of 2 bits and some per cent of numbers, surpasses DiLoCo", "2508.15706", "sparseloco", "diloco", "ahead"
    ),
    Claim("DeMo is as good as Adam with whole gradients", "2411.19870", "demo", "sync", "even"),
    Claim("NoLoCo is faster than DiLoCo", "2506.10911", "noloco", "diloco", "ahead"),
    Claim("A-EDiT is ahead of who counts steps where one is slow", "2412.07210", "a-edit", "diloco", "ahead", (True,)),
    Claim(
        "Delayed Nesterov surpasses rounds in time where one is slow",
        "2401.09135",
        "delayed-nesterov",
        "diloco",
        "ahead",
        (True,),
    ),
    Claim("Decoupled DiLoCo learns as well as DiLoCo", "2604.21428", "decoupled", "diloco", "even"),
)
