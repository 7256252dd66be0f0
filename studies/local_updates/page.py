"""The page and its figure: each claim over the seeds, with an interval; claims with an optimum at an edge are left out."""

import textwrap
from collections import Counter

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base.intervals import Mean, Verdict
from fred.views.figures import Picture, style
from studies.kit import claims, effort
from studies.kit.pages import table
from studies.kit.study import Tables
from studies.kit.tuning import REPORTED
from studies.local_updates.experiments import EXPERIMENTS, LOSS, SECONDS, Claim
from studies.local_updates.measure import STUDY

WORST = 5.0  # nats: a loss that is larger, or no number, is at least that
_COLOURS = {Verdict.YES: "C0", Verdict.NO: "C1", Verdict.OPEN: "0.6"}
_ANSWERS = {Verdict.YES: "agree", Verdict.NO: "disagree", Verdict.OPEN: "open"}


def judged(name: str, claim: Claim, rows: pd.DataFrame) -> claims.Claim | None:
    """Return a claim with its interval, which has no end where a system missed its target; None if an optimum is at an edge.

    Args:
        name: of the experiment.
        claim: of it.
        rows: a row for each experiment, system and seed.
    """
    of_experiment = rows[rows["experiment"] == name].sort_values("seed")
    by_system = {system: of_experiment[of_experiment["system"] == system] for system in claim.factors}
    if any(table.empty or (table["edges"] != "").any() for table in by_system.values()):
        return None
    total, least, most = np.zeros(len(REPORTED)), False, False
    for system, factor in claim.factors.items():
        values, limit = by_system[system][claim.quantity.column].to_numpy(float), _limit(claim, by_system[system])
        late = ~(values <= limit)
        values = np.where(late, limit, values)
        total = total + factor * (np.log(values) if claim.quantity.ratio else values)
        least, most = least or bool(late.any() and factor > 0), most or bool(late.any() and factor < 0)
    mean = Mean.estimate(total)
    low, high = mean.interval()
    interval = (-np.inf if most else low, np.inf if least else high)
    numbers = [mean.value, low, high]
    shown = [f"× {value:.2f}" for value in np.exp(numbers)] if claim.quantity.ratio else [f"{value:+.3f}" for value in numbers]
    sign = "> " if least else "< " if most else ""
    words = f"{sign}{shown[0]}" if sign else f"{shown[0]} ({shown[1]} to {shown[2]})"
    query = f"experiment == '{name}' and system in {list(claim.factors)}"
    return claims.Claim(f"{claim.sentence} ({claim.source})", query, words, interval, high=claim.high)


def _limit(claim: Claim, rows: pd.DataFrame) -> NDArray[np.float64]:
    limits = {LOSS: np.full(len(rows), WORST), SECONDS: rows["virtual_seconds"].to_numpy(float)}
    return limits.get(claim.quantity, np.full(len(rows), np.inf))


def text(tables: Tables) -> str:
    """Return the page.

    Args:
        tables: a row for each experiment, system and seed.
    """
    rows, counted, sections, left_out = tables[""], list[list[object]](), list[str](), list[str]()
    verdicts, cells, halves = Counter[str](), dict[str, str](), {True: list[float](), False: list[float]()}
    for name, experiment in EXPERIMENTS.items():
        judgements = [(claim, judged(name, claim, rows)) for claim in experiment.claims]
        kept = [(claim, made) for claim, made in judgements if made]
        left_out += [f"- {claim.sentence} ({name})" for claim, made in judgements if not made]
        answers = Counter(_ANSWERS[made.answer] for _, made in kept)
        verdicts += answers
        counted.append([name, len(kept), *(answers[word] for word in _ANSWERS.values()), len(judgements) - len(kept)])
        cells |= {f"{name}/{claim.sentence}": made.value for claim, made in kept}
        for claim, made in kept:
            half = (made.interval[1] - made.interval[0]) / 2
            halves[claim.quantity.ratio] += [half] if np.isfinite(half) else []
        words = claims.claims_table([made for _, made in kept], rows)
        sections.append(f"### {name.capitalize()}\n\n{experiment.setting[0].upper()}{experiment.setting[1:]}.\n\n{words}")
    tried = rows.assign(chosen=True).drop(columns="seed")
    measured = {"losses, nats": halves[False]}, {"times, work": halves[True]}
    parts: dict[str, object] = {
        "claims": verdicts.total(),
        "counts": table(("experiment", "claims", *_ANSWERS.values(), "left out: an optimum at an edge"), counted),
        "found": "\n\n".join(sections),
        "left_out": "\n".join(left_out) or "None.",
        "left_out_count": len(left_out),
        "cell": cells,
        "effort": effort.block(STUDY, REPORTED, *measured, tried, ["experiment", "system"]),
    }
    return STUDY.fill(parts | {word: verdicts[word] for word in _ANSWERS.values()})


def draw(tables: Tables) -> Picture:
    """Draw each claim's distance from its bound: left of 0 it holds.

    Args:
        tables: a row for each experiment, system and seed.
    """
    with style():
        picture = Picture(figsize=(11, 8.6), layout="constrained")
        panels = picture.subplots(1, 2)
        every = [(name, claim) for name, experiment in EXPERIMENTS.items() for claim in experiment.claims]
        for axes, ratio in zip(panels, (False, True), strict=True):
            names = list[str]()
            for name, claim in every:
                judgement = judged(name, claim, tables[""])
                if claim.quantity.ratio == ratio and judgement and np.isfinite(judgement.interval).all():
                    ends = np.array(judgement.interval) - judgement.high
                    ends = np.exp(ends) if ratio else ends
                    axes.plot(ends, [len(names)] * 2, "|-", color=_COLOURS[judgement.answer], lw=3, ms=7)
                    names.append(textwrap.shorten(f"{name}: {claim.sentence}", 60, placeholder=" ..."))
            axes.axvline(1.0 if ratio else 0.0, color="0.4", lw=0.8)
            axes.set_yticks(range(len(names)), names, fontsize=7)
            axes.set_ylim(len(names) - 0.5, -0.5)
            axes.set_xlabel("ratio over the bound" if ratio else "loss less the bound, nats")
        panels[1].set_xscale("log")
        panels[1].set_xticks([0.1, 0.2, 0.5, 1, 2], ["0.1", "0.2", "0.5", "1", "2"])
        panels[1].minorticks_off()
    return picture
