"""Tables of a paper's claims: the claim, FRED's measurement, a verdict by a stated criterion, and counts of the verdicts.

A paper's claims are in `claims.yaml` beside the page's code, by section of the page and by name: `claim`, `where`, `paper`, and
either `untried`, the reason, or a measurement of that name. `calibrated` says that something was chosen so that it holds,
`judged` by which criterion (or why there is none), where the claim does not say so itself, `reason` why the two disagree.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import combinations, starmap
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from fred.base import intervals
from fred.base.intervals import FEWEST_SEEDS, Mean
from fred.specification.text import read_yaml
from reproductions.common import near, table

REASONS = """Where FRED disagrees, the table gives the likely reason. *Scale*: a smaller net, other data, fewer updates or seeds
than in the paper. *Inputs*: it does not print some that decide. *Choice*: FRED models it in another way, or measures it by
another yardstick. *Paper*: its own statements contradict each other."""

NEGLIGIBLE = 0.01  # share by which errors differ in one direction or none: WAGMA's paper speaks of 1.2 %

CRITERION = f"""The seeds decide orders, by the 95% interval of the ratio of runs with the same seed (Student's t, of the
logarithm): *agrees* if it lies on the paper's side of 1, *disagrees* if on the other, *open* if it holds 1. An order of errors
whose interval holds 1 but lies within {NEGLIGIBLE:.0%} of it *disagrees*, too: no paper here prints a difference of errors as
small as that. "Almost the same" (or "no more than") means that it lies within a margin; if it only overlaps with the margin,
the claim is *open*. With fewer than five seeds all orders are *open*. Each claim is judged by itself: of those that are
neither true nor false, one in twenty gets a verdict, two if the logarithms are skewed ([coverage](../studies/coverage.md)).

{REASONS}"""


CHOICES = """Some orders depend on choices of FRED's. They are judged under each choice. If the verdicts of two choices differ,
and the ratio itself surely differs between them (with the same seeds, the 95% interval of the quotient does not hold 1), the
choice decides, and the claim counts as *not compared*; so do opposite verdicts on numbers. Otherwise it is *open*."""


class Verdict(StrEnum):
    """A verdict on a paper's claim."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    OPEN = "open"  # the seeds do not decide
    NOT_COMPARED = "not compared"


class Reason(StrEnum):
    """A reason for which FRED's measurement disagrees with a paper."""

    SCALE = "scale"  # of the net, the data, the number of updates or of seeds
    INPUTS = "inputs"  # that the paper does not print
    CHOICE = "choice"  # of FRED's: a model of the cluster, or a yardstick
    PAPER = "paper"  # its statements contradict each other


class Claim(NamedTuple):
    """A claim of a paper, in FRED's words."""

    claim: str
    where: str  # section, table, figure
    paper: str = "yes"
    calibrated: str = "no"
    judged: str = ""  # by which criterion
    reason: Reason | None = None  # of a disagreement
    untried: str = ""  # why


class Evidence(NamedTuple):
    """A measurement next to a claim, and the verdict.

    Args:
        fred: what FRED measured, in words.
        verdict: on the claim.
        ratios: of the two sides of an order, by seed; None: the claim is no order.
    """

    fred: str
    verdict: Verdict
    ratios: "pd.Series[float] | None" = None


Claims = Mapping[str, Mapping[str, Claim]]  # by section and name
Measured = Mapping[str, Evidence]  # by name


def read_claims(folder: Path) -> Claims:
    """Read a paper's claims from `claims.yaml`."""
    path = folder / "claims.yaml"
    text, _ = read_yaml(path.read_text(encoding="utf-8"), lambda line: f"{path}:{line}: not valid YAML")
    return {section: {name: _claim(**claim) for name, claim in named.items()} for section, named in text.items()}


def _claim(reason: str | None = None, **claim: str) -> Claim:
    return Claim(**claim, reason=None if reason is None else Reason(reason))


def tables(claims: Claims, measured: Measured) -> dict[str, str]:
    """Return a table of each section, by its name, of all claims not tried (`untried`), and of their numbers (`counts`)."""
    every = {name: claim for named in claims.values() for name, claim in named.items()}
    expected = {name for name, claim in every.items() if not claim.untried}
    if expected != set(measured):
        raise ValueError(f"neither measured nor `untried`, or measured and no claim: {sorted(expected ^ set(measured))}")
    disagrees = [name for name, evidence in measured.items() if evidence.verdict == Verdict.DISAGREES]
    if unexplained := [name for name in disagrees if every[name].reason is None]:
        raise ValueError(f"disagreements without a `reason`: {unexplained}")
    sections = {section: _table(named, measured) for section, named in claims.items()}
    omitted = [claim for claim in every.values() if claim.untried]
    rows = ((claim.claim, claim.where, claim.paper, claim.untried) for claim in omitted)
    return {**sections, "untried": table(("claim", "where", "paper", "why not"), rows), "counts": _counts(every, measured)}


def _table(claims: Mapping[str, Claim], measured: Measured) -> str:
    compared = {name: claim for name, claim in claims.items() if not claim.untried}
    header = ["claim", "where", "paper", "FRED", "verdict", "calibrated"]
    rows = [
        [claim.claim, claim.where, claim.paper, measured[name].fred, _verdict(claim, measured[name]), claim.calibrated]
        for name, claim in compared.items()
    ]
    if any(claim.judged for claim in compared.values()):
        header.append("judged by")
        rows = [[*row, claim.judged] for row, claim in zip(rows, compared.values(), strict=True)]
    return table(header, rows)


def _verdict(claim: Claim, evidence: Evidence) -> str:
    return f"{evidence.verdict}: {claim.reason}" if evidence.verdict == Verdict.DISAGREES else str(evidence.verdict)


def _counts(claims: Mapping[str, Claim], measured: Measured) -> str:
    rows: list[Sequence[object]] = [("claims", len(claims)), ("measured", len(measured))]
    for verdict in Verdict:
        if names := [name for name, evidence in measured.items() if evidence.verdict == verdict]:
            rows.append((f"– {verdict}", len(names)))
        if verdict == Verdict.DISAGREES:
            reasons = [claims[name].reason for name in names]
            rows += [(f"– – {reason}", reasons.count(reason)) for reason in Reason if reason in reasons]
        if calibrated := sum(claims[name].calibrated != "no" for name in names):
            rows.append(("– – calibrated, at least in part", calibrated))
    return table(("", "number"), [*rows, ("not tried (reasons above)", len(claims) - len(measured))])


def judge(holds: object) -> Verdict:
    """Return the verdict on a statement that is true or false."""
    return Verdict.AGREES if holds else Verdict.DISAGREES


def judge_close(measured: float, paper: float, share: float) -> Verdict:
    """Return whether a number is within this share of the paper's."""
    return judge(near(measured, paper, share))


_VERDICTS = {
    intervals.Verdict.YES: Verdict.AGREES,
    intervals.Verdict.NO: Verdict.DISAGREES,
    intervals.Verdict.OPEN: Verdict.OPEN,
}


def _ratio(numerator: "pd.Series[float]", denominator: "pd.Series[float]", low: float = -np.inf, high: float = 0.0) -> Verdict:
    """Return whether the logarithm of the ratio, by seed, lies between two bounds."""
    mean = Mean.estimate((numerator / denominator).dropna().map(np.log))
    return _VERDICTS[intervals.verdict(mean.interval(), low, high)]


def judge_less(smaller: "pd.Series[float]", larger: "pd.Series[float]") -> Verdict:
    """Return whether the first is below the second."""
    return _ratio(smaller, larger)


def judge_lower_error(smaller: "pd.Series[float]", larger: "pd.Series[float]") -> Verdict:
    """Return whether the first error is below the second; no, too, if the seeds show that they hardly differ."""
    verdict = judge_less(smaller, larger)
    if verdict == Verdict.OPEN and judge_level(smaller, larger, NEGLIGIBLE) == Verdict.AGREES:
        return Verdict.DISAGREES
    return verdict


def judge_level(values: "pd.Series[float]", references: "pd.Series[float]", margin: float) -> Verdict:
    """Return whether the larger one is at most this share above the other."""
    return _ratio(values, references, -np.log1p(margin), np.log1p(margin))


def judge_no_worse(values: "pd.Series[float]", references: "pd.Series[float]", margin: float) -> Verdict:
    """Return whether the first is at most this share above the second."""
    return _ratio(values, references, high=np.log1p(margin))


def judge_rising(values: Sequence[float]) -> Verdict:
    """Return whether each value is above the one before."""
    return judge((np.diff(values) > 0).all())


def combine_parts(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on a claim with several parts, all of which must hold.

    Args:
        verdicts: one per part.

    >>> str(combine_parts([Verdict.AGREES, Verdict.OPEN]))
    'open'
    """
    for verdict in (Verdict.DISAGREES, Verdict.OPEN):
        if verdict in verdicts:
            return verdict
    return Verdict.AGREES


def combine_choices(usual: Evidence, alternatives: Mapping[str, Evidence]) -> Evidence:
    """Return one verdict on a claim that was judged under several choices, none of which the paper excludes.

    Args:
        usual: result under the scenario's own choices.
        alternatives: results under others, by their names.

    >>> agrees, disagrees = Evidence("1 for 2", Verdict.AGREES), Evidence("3 for 2", Verdict.DISAGREES)
    >>> combine_choices(agrees, {"spread": disagrees})[:2]
    ('1 for 2 (agrees); spread: 3 for 2 (disagrees)', <Verdict.NOT_COMPARED: 'not compared'>)
    """
    alternatives = {name: evidence for name, evidence in alternatives.items() if evidence[:2] != usual[:2]}
    verdicts = {usual.verdict, *(evidence.verdict for evidence in alternatives.values())}
    if len(verdicts) == 1:
        texts = [usual.fred, *(f"{name}: {evidence.fred}" for name, evidence in alternatives.items())]
        return Evidence("; ".join(texts), usual.verdict)
    choice_decides = any(starmap(_choice_decides, combinations([usual, *alternatives.values()], 2)))
    parts = [f"{usual.fred} ({usual.verdict})"]
    parts += [f"{name}: {evidence.fred} ({evidence.verdict})" for name, evidence in alternatives.items()]
    return Evidence("; ".join(parts), Verdict.NOT_COMPARED if choice_decides else Verdict.OPEN)


def _choice_decides(evidence: Evidence, other: Evidence) -> bool:
    """Return True if verdicts under two choices differ, and the ratios surely do; without ratios, if verdicts are opposite."""
    if evidence.verdict == other.verdict:
        return False
    if evidence.ratios is None or other.ratios is None:
        return Verdict.OPEN not in (evidence.verdict, other.verdict)
    return _ratio(evidence.ratios, other.ratios) != Verdict.OPEN


def format_mean(values: "pd.Series[float]", form: str = ".4f") -> str:
    """Return the mean over the seeds, and half of its interval; with fewer than five seeds the range."""
    finite = values.dropna()
    if len(finite) >= FEWEST_SEEDS:
        low, high = Mean.estimate(finite).interval()
        return f"{finite.mean():{form}} ± {(high - low) / 2:{form}}"
    return f"{finite.mean():{form}}" + (f" ({finite.min():{form}} to {finite.max():{form}})" if len(finite) > 1 else "")
