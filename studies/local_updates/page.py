"""The page and its figure: each claim over the seeds, with an interval; claims with an optimum at an edge are left out."""

import textwrap
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd

from fred.base.intervals import Mean, Verdict
from fred.views.figures import Picture, style
from studies.kit import claims, effort, figure
from studies.kit.difference import Difference
from studies.kit.pages import table
from studies.kit.study import Tables
from studies.kit.tuning import REPORTED
from studies.local_updates.experiments import EXPERIMENTS, LOSS, SECONDS, Claim
from studies.local_updates.measure import STUDY

WORST = 5.0  # nats: a loss that is larger, or no number, is at least that
_ANSWERS = {Verdict.YES: "agree", Verdict.NO: "disagree", Verdict.OPEN: "open"}


def judge(name: str, claim: Claim, rows: pd.DataFrame) -> Difference | None:
    """Return a claim's sum of values, with an interval of its own; None if an optimum is at an edge.

    Args:
        name: of the experiment.
        claim: of it.
        rows: a row for each experiment, system and seed.
    """
    total, signs = np.zeros(len(REPORTED)), set[str]()
    for system, factor in claim.factors.items():
        runs = rows[(rows["experiment"] == name) & (rows["system"] == system)].sort_values("seed")
        if runs.empty or (runs["edges"] != "").any():
            return None
        values = runs[claim.quantity].to_numpy(float)
        limit: Any = {LOSS: WORST, SECONDS: runs["virtual_seconds"].to_numpy(float)}.get(claim.quantity, np.inf)
        late = ~(values <= limit)
        values = np.where(late, limit, values)
        total = total + factor * (np.log(values) if claim.is_ratio else values)
        signs |= {">" if factor > 0 else "<"} if late.any() else set()
    mean = Mean.estimate(total)
    return Difference(mean, mean.interval(), "".join(signs))


def judge_all(rows: pd.DataFrame) -> list[tuple[str, Claim, Difference]]:
    """Return all claims whose optima lie inside the grid, with their experiment and their sum of values.

    Args:
        rows: a row for each experiment, system and seed.
    """
    pairs = [(name, claim) for name, experiment in EXPERIMENTS.items() for claim in experiment.claims]
    return [(*pair, difference) for pair in pairs if (difference := judge(*pair, rows))]


def _row(name: str, claim: Claim, value: Difference) -> claims.Claim:
    words = (value.ratio if claim.is_ratio else value.cell()).replace("*", "")
    query = f"experiment == '{name}' and system in {list(claim.factors)}"
    return claims.Claim(f"{claim.sentence} ({claim.source})", query, words, value.open_interval, high=claim.high)


def text(tables: Tables) -> str:
    """Return the page.

    Args:
        tables: a row for each experiment, system and seed.
    """
    rows, judged = tables[""], judge_all(tables[""])
    counts, sections = list[list[object]](), list[str]()
    for name, experiment in EXPERIMENTS.items():
        section = [_row(*entry) for entry in judged if entry[0] == name]
        answers = Counter(claim.answer for claim in section)
        left_out = len(experiment.claims) - len(section)
        counts.append([name, len(section), *(answers[answer] for answer in _ANSWERS), left_out])
        sections.append(f"### {name.capitalize()}\n\n{experiment.setting}.\n\n{claims.claims_table(section, rows)}")
    uses = Counter((name, system) for name, claim, _ in judged for system in claim.factors)
    (experiment_name, system), number = uses.most_common(1)[0]
    losses, ratios = ([value for _, claim, value in judged if claim.is_ratio == ratio] for ratio in (False, True))
    families = {"losses, nats": losses}, {"times, work": ratios}
    trials = rows.assign(chosen=True).drop(columns="seed")
    parts: dict[str, object] = {
        "claims": len(judged),
        **{word: sum(value.below(claim.high) == answer for _, claim, value in judged) for answer, word in _ANSWERS.items()},
        "counts": table(("experiment", "claims", *_ANSWERS.values(), "left out: an optimum at an edge"), counts),
        "sections": "\n\n".join(sections),
        "cell": {f"{name}/{claim.sentence}": _row(name, claim, value).value for name, claim, value in judged},
        "systems": len(uses),
        "several": sum(count > 1 for count in uses.values()),
        "shared": f"`{system}` of {experiment_name} in {number}",
        "effort": effort.block(STUDY, REPORTED, *families, trials, ["experiment", "system"]),
    }
    return STUDY.fill(parts)


def draw(tables: Tables) -> Picture:
    """Draw each claim's distance from its bound: left of 0 it holds. Claims without an end, for a missed target, are left out.

    Args:
        tables: a row for each experiment, system and seed.
    """
    judged = [entry for entry in judge_all(tables[""]) if not entry[2].bound]
    with style():
        picture = Picture(figsize=(11, 8.8), layout="constrained")
        panels = picture.subplots(1, 2)
        for axes, ratio in zip(panels, (False, True), strict=True):
            families: dict[str, dict[str, Difference]] = {word: {} for word in _ANSWERS.values()}
            for name, claim, value in judged:
                if claim.is_ratio == ratio:
                    label = textwrap.shorten(f"{name}: {claim.sentence}", 60, placeholder=" ...")
                    families[_ANSWERS[value.below(claim.high)]][label] = value.subtract(claim.high)
            figure.intervals(axes, [label for family in families.values() for label in family], families, ratios=ratio)
            axes.tick_params(axis="y", labelsize=7)
            axes.set_xlabel("ratio over the bound" if ratio else "loss less the bound, nats")
        panels[1].set_xscale("log")
        panels[1].set_xticks([0.1, 0.2, 0.5, 1, 2], ["0.1", "0.2", "0.5", "1", "2"])
        panels[1].minorticks_off()
        picture.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(_ANSWERS))
    return picture
