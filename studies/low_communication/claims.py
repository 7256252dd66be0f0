"""Claims of the systems' papers, each as one system's loss against another's, and verdicts on them."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import pandas as pd

from fred.base.intervals import Verdict
from studies.low_communication.compared import KINDS, MARGIN, against, keys


class Claim(NamedTuple):
    """One system compared with another.

    Args:
        says: the claim, as it can be measured here.
        paper: its source, on arXiv.
        system: the system it is about.
        other: the system with which it is compared.
        relation: `ahead`: its loss is lower; `even`: its loss is as good, within the margin.
        kinds: in which cases, at all bandwidths.
    """

    says: str
    paper: str
    system: str
    other: str
    relation: Literal["ahead", "even"]
    kinds: Sequence[tuple[str, str]] = KINDS[:2]

    def verdicts(self, losses: pd.DataFrame) -> list[Verdict]:
        """Return the verdict of each case of the claim; they are a family.

        Args:
            losses: as `final` returns them.
        """
        bound = 0.0 if self.relation == "ahead" else MARGIN
        found = against(losses, self.system, self.other, keys(self.kinds), bound)
        return [difference.below(bound) for difference in found.values()]

    def judged(self, verdicts: Sequence[Verdict]) -> str:
        """Return whether the claim holds in all of these cases, in none, or in some.

        Args:
            verdicts: of the cases.
        """
        good, bad = verdicts.count(Verdict.YES), verdicts.count(Verdict.NO)
        if len(verdicts) in (good, bad):
            return "agrees" if good else "disagrees"
        return f"in part: {good} of {len(verdicts)}" if good else "open" if not bad else f"disagrees: {bad} of {len(verdicts)}"


CLAIMS = (
    Claim("DiLoCo on slow links is ahead of an allreduce at every step", "2311.08105", "diloco", "sync", "ahead", KINDS[:1]),
    Claim("Streaming with four bits learns as well as DiLoCo", "2501.18512", "streaming", "diloco", "even"),
    Claim(
        "SparseLoCo, with 2 bits of some per cent of all numbers, surpasses DiLoCo",
        "2508.15706",
        "sparseloco",
        "diloco",
        "ahead",
    ),
    Claim("DeMo is as good as Adam with whole gradients", "2411.19870", "demo", "sync", "even"),
    Claim("NoLoCo is faster than DiLoCo", "2506.10911", "noloco", "diloco", "ahead"),
    Claim("A-EDiT is ahead of counting steps where one is slow", "2412.07210", "a-edit", "diloco", "ahead", KINDS[1:]),
    Claim(
        "Delayed Nesterov with paced workers surpasses rounds in time where one is slow",
        "2401.09135",
        "delayed-nesterov-paced",
        "diloco",
        "ahead",
        KINDS[1:],
    ),
    Claim("Decoupled DiLoCo learns as well as DiLoCo", "2604.21428", "decoupled", "diloco", "even"),
)
