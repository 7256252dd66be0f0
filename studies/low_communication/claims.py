"""What the systems' papers say of them, in few words, as who is ahead of whom, or is not behind; and whether it is so here."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import pandas as pd

from fred.base.over_seeds import Verdict
from studies.low_communication.compared import MARGIN, against


class Claim(NamedTuple):
    """One system beside another.

    Args:
        says: the claim, as it can be measured here.
        paper: that it is from, on arXiv.
        system: of which it is said.
        other: with which it is compared.
        relation: `ahead`: its loss is lower; `even`: its loss is as good, within the margin.
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

    def verdicts(self, losses: pd.DataFrame) -> list[Verdict]:
        """Return the verdict of each case of the claim.

        Args:
            losses: one row for each case, system, seed and time.
        """
        bound = 0.0 if self.relation == "ahead" else MARGIN
        return [
            difference.below(bound)
            for (stragglers, megabits), difference in against(losses, self.system, self.other, bound).items()
            if stragglers in self.stragglers and megabits in self.megabits
        ]

    def judged(self, verdicts: Sequence[Verdict]) -> str:
        """Return whether the claim holds in all of these cases, in none, or in some.

        Args:
            verdicts: of the cases.
        """
        if not verdicts:
            return "not measured"
        good, bad = verdicts.count(Verdict.YES), verdicts.count(Verdict.NO)
        if len(verdicts) in (good, bad):
            return "agrees" if good else "disagrees"
        return f"in part: {good} of {len(verdicts)}" if good else "open" if not bad else f"disagrees: {bad} of {len(verdicts)}"


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
