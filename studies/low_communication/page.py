"""The page and its figure, from the losses that were measured."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import fred
from fred.base.over_seeds import Mean, Verdict
from reproductions.common import table
from studies.asynchrony.measure import ROOT
from studies.low_communication.cases import HERE, LEARNERS, availability, heard, heard_without_failures
from studies.low_communication.claims import CLAIMS
from studies.low_communication.compared import (
    BUDGETS,
    CASE,
    MARGIN,
    SHOWN,
    SYSTEMS,
    TARGET,
    above,
    against,
    beside,
    chosen,
    seconds_to,
    values,
)
from studies.low_communication.figure import draw
from studies.low_communication.measure import GOODPUT, LOSSES

QUESTION = "Which low-communication system where?"
PAGE, FIGURE = LOSSES.with_suffix(".md"), LOSSES.with_suffix(".svg")
_MARKS = ("\\*", "†")  # of rates and of periods at the ends of what was tried
_OF_GOODPUT = (
    "learners",
    "each there, closed form",
    "measured",
    "heard of without failures, closed form",
    "measured",
    "heard of with failures, closed form",
    "measured",
    "loss without failures",
    "with",
)


def write() -> str:
    """The figure and the page; its path, from the repository on."""
    losses = pd.read_csv(LOSSES)
    draw(above(losses)).save(FIGURE)
    PAGE.write_text(text(losses, pd.read_csv(GOODPUT)), encoding="utf-8")
    return str(PAGE.relative_to(ROOT))


def text(losses: pd.DataFrame, goodput: pd.DataFrame) -> str:
    """The page.

    Args:
        losses: one row for each case, system, seed and time.
        goodput: one row for each run and seed.
    """
    losses = above(losses)
    cases, tuned = ([_named(*case) for case, _ in _cases(some)] for some in (losses, losses[~losses["stragglers"]]))
    tables = {
        "home": table(("Mbit/s", "workers", "best", "as good", "open", *_budgets()), home_rows(losses)),
        "claims": table(("the papers' claim", "arXiv", *Verdict, "here"), claim_rows(losses)),
        "differences": table(("system", *cases), difference_rows(losses)),
        "times": table(("system", *cases), time_rows(losses)),
        "losses": table(("system", *cases), loss_rows(losses)),
        "settings": table(("system", *tuned), setting_rows(losses)),
        "goodput": table(_OF_GOODPUT, goodput_rows(goodput)),
    }
    at_edges = sum(_MARKS[0] in cell for row in setting_rows(losses) for cell in row)
    words: dict[str, object] = {"edges": at_edges, "choices": len(tuned) * len(SYSTEMS), "target": TARGET, "margin": MARGIN}
    words |= {"first": BUDGETS[0], "last": BUDGETS[-1]}
    return (HERE / "page.md").read_text(encoding="utf-8").format(**tables, **words)


def _cases(losses: pd.DataFrame) -> Iterator[tuple[tuple[bool, int], pd.DataFrame]]:
    for _, own in losses.groupby(CASE, sort=False):
        yield (bool(own["stragglers"].iloc[0]), int(own["megabits"].iloc[0])), own


def _named(stragglers: bool, megabits: int) -> str:
    return f"{megabits:,}{', stragglers' if stragglers else ''}"


def _budgets() -> list[str]:
    return [f"its loss at {seconds} s" for seconds in BUDGETS]


def home_rows(losses: pd.DataFrame) -> Iterator[list[object]]:
    """Each case: which system to choose.

    Args:
        losses: one row for each case, system, seed and time, with what the loss is above the least.
    """
    for (stragglers, megabits), own in _cases(losses):
        best = chosen(own)
        found = [f"{values(own, best, seconds).mean():.3f}" for seconds in BUDGETS]
        who, verdicts = "one slow" if stragglers else "alike", beside(own, best)
        others = [", ".join(each for each in verdicts if verdicts[each] == one) for one in (Verdict.YES, Verdict.OPEN)]
        yield [f"{megabits:,}", who, f"**{best}**", *(names or "none" for names in others), *found]


def claim_rows(losses: pd.DataFrame) -> Iterator[list[object]]:
    """Each claim: in how many cases it holds, does not hold, or is open.

    Args:
        losses: as above.
    """
    for claim in CLAIMS:
        verdicts = claim.verdicts(losses)
        counts = [verdicts.count(each) for each in Verdict]
        yield [f"{claim.says} ({claim.system} / {claim.other})", claim.paper, *counts, claim.judged(verdicts)]


def difference_rows(losses: pd.DataFrame) -> Iterator[list[object]]:
    """Each system's loss less DiLoCo's.

    Args:
        losses: as above.
    """
    for system in SHOWN:
        if system != "diloco":
            yield [system, *(each.said for each in against(losses, system, "diloco").values())]


def loss_rows(losses: pd.DataFrame) -> Iterator[list[object]]:
    """Each system's loss above the least, at both budgets.

    Args:
        losses: as above.
    """
    for system in SHOWN:
        yield [system, *(" / ".join(f"{values(own, system, at).mean():.3f}" for at in BUDGETS) for _, own in _cases(losses))]


def time_rows(losses: pd.DataFrame) -> Iterator[list[object]]:
    """Each system's median seconds to the target.

    Args:
        losses: as above.
    """
    found = [{system: _median(seconds_to(own, system)) for system in SHOWN} for _, own in _cases(losses)]
    for system in SHOWN:
        yield [system, *(_bold(each[system], min(each[one] for one in SYSTEMS)) for each in found)]


def _median(seconds: NDArray[np.float64]) -> float:
    return float(np.quantile(seconds, 0.5, method="inverted_cdf"))


def _bold(value: float, best: float) -> str:
    return "–" if np.isinf(value) else f"**{value:.0f}**" if value <= 1.1 * best else f"{value:.0f}"


def setting_rows(losses: pd.DataFrame) -> Iterator[list[str]]:
    """Each system's best point where all are alike, with marks where its rate or its period is the least or the largest.

    Args:
        losses: as above.
    """
    tuned, tried = losses[~losses["stragglers"]], _tried()
    points = tuned.drop_duplicates(["megabits", "system"]).set_index(["megabits", "system"])["point"]
    for system in SYSTEMS:
        own = (_knobs(str(points[(megabits, system)])) for (_, megabits), _ in _cases(tuned))
        yield [system, *(_setting(knobs, tried[system]) for knobs in own)]


def _knobs(point: str) -> list[str]:
    """The rate, and perhaps the period, of `streaming` without the delay that goes with it."""
    return [knob.partition("=")[2].partition("-")[0] for knob in point.split(",")]


def _tried() -> dict[str, list[list[float]]]:
    """The rates of each system's points, and their periods."""
    points: dict[str, list[list[float]]] = {system: [] for system in SYSTEMS}
    for name, point in fred.load(HERE / "scenario.yaml").points.items():
        points[point.of].append([float(knob) for knob in _knobs(name.partition(",")[2])])
    return {system: [list(values) for values in zip(*own, strict=True)] for system, own in points.items()}


def _setting(knobs: list[str], tried: list[list[float]]) -> str:
    ends = [float(knob) in (min(some), max(some)) for knob, some in zip(knobs, tried, strict=True)]
    return " / ".join(knob + mark * end for knob, mark, end in zip(knobs, _MARKS, ends, strict=False))


def goodput_rows(goodput: pd.DataFrame) -> Iterator[list[object]]:
    """Yield the goodput of the same chips in 1 to 8 learners: shares of the gradients made without failures.

    Args:
        goodput: one row for each run and seed.
    """
    runs = {str(name): own.sort_values("seed") for name, own in goodput.groupby("name")}
    for learners in LEARNERS:
        usual, failing = runs[f"{learners}-learners"], runs[f"{learners}-learners-failing"]
        made, *known = (
            _share(own[column], usual["gradients_applied"])
            for own, column in ((failing, "gradients_applied"), (usual, "heard"), (failing, "heard"))
        )
        closed = [f"{share(learners):.3f}" for share in (heard_without_failures, heard)]
        loss = [f"{own['loss'].mean():.3f}" for own in (usual, failing)]
        yield [learners, f"{availability(learners):.3f}", made, closed[0], known[0], closed[1], known[1], *loss]


def _share(own: "pd.Series[float]", of: "pd.Series[float]") -> str:
    shares = own.to_numpy(float) / of.to_numpy(float)
    low, high = Mean.over(shares).interval()
    return f"{shares.mean():.3f} ({low:.3f} to {high:.3f})"
