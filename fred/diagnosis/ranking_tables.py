"""The output of `fred plan` and `fred diagnose --for TASK`: systems ranked by time, cost or energy to a target."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from fred.base.errors import finite
from fred.base.intervals import FEWEST_SEEDS
from fred.diagnosis.attribution import WORST, Attribution
from fred.diagnosis.question import COST, ENERGY, RATE, TIME, By, Question
from fred.diagnosis.ranking import Place, Ranking
from fred.views.page_tables import format_pair
from fred.views.table import NONE, Cell, Table, say, show, terminal

_COMPARISON_KEYS = ("mean", "low", "high", "higher")
FIGURE, PAGE = "trade-off.svg", "report.html"  # of time against cost; of the answer: files in the folder of a plan
_MOST_ROWS = 4  # number of workers, and of nodes, shown
_LOST_CAPTION = (
    "slowdown: time of rounds relative to rounds in which all are as fast as the median worker; for one worker, node or phase: "
    "if only that one keeps its times; share: part of the cost that goes if that one is as fast as the median worker; "
    "shares may add up to more or less than 100 %"
)


@dataclass(frozen=True)
class Names:
    """The names of the workers and nodes in `lost`, in the order of their numbers."""

    workers: Sequence[str]
    nodes: Sequence[str]


@dataclass(frozen=True)
class Answer:
    """The complete answer of a plan.

    Args:
        description: description of the cluster.
        question: the question.
        ranking: ranking of the systems tried.
        doubts: warnings about the answer, in words.
        attribution: attribution of time in rounds that wait for all; None if no round was complete, or it was not asked for.
        cannot: reasons why systems were not tried, by name.
        not_considered: algorithms of FRED that were not considered.
        names: names of workers and nodes.
    """

    description: str
    question: Question
    ranking: Ranking
    doubts: Sequence[str]
    attribution: Attribution | None = None
    cannot: Mapping[str, str] = field(default_factory=dict)
    not_considered: Sequence[str] = ()
    names: Names = Names((), ())

    @property
    def sentence(self) -> str:
        """Return the answer in a sentence."""
        aim = self.question.aim
        if not self.ranking.places or self.ranking.places[0].median == math.inf:
            return f"No system reached {aim} within {self.question.budget:,.4g} s."
        (first, *other_places), by = self.ranking.places, self.ranking.by
        seeds = f" (median of {len(first.seconds)} seeds)" if len(first.seconds) > 1 else ""
        value = f"{by.format_value(first.median_of(by))}{seeds}"
        sentence = f"{first.run} ({_settings(first)}) reached {aim} {by.reached.format(value)}"
        next_place = next((place for place in other_places if place.is_worse), None)
        if next_place and next_place.comparison and math.isfinite(next_place.comparison["mean"]):
            mean, low, high = (next_place.comparison[name] for name in ("mean", "low", "high"))
            sentence += f"; {next_place.run}, {by.next.format(f'{mean:.2f}')} ({low:.2f} to {high:.2f})"
        return f"{sentence}."


def print_answer(answer: Answer, out: Path) -> None:
    """Print the lost time, the ranking, the systems that were not tried, and warnings.

    Args:
        answer: answer to print.
        out: folder with all files.
    """
    console = terminal()
    if answer.attribution is None:
        console.print("No round that waits for all was complete, so the lost time is unknown.")
    else:
        show(lost_table(answer.attribution, answer), console)
    if answer.ranking.places:
        print_ranking(answer, console)
    price = answer.ranking.price if answer.ranking.front else None
    figure_note = [f"Figure of time against {price.name}: {out}/{FIGURE}."] if price else []
    where = f"This as a page: {out}/{PAGE}; all runs: {out}/result/report.html; to continue, edit {out}/scenario.yaml."
    say(console, [*sentences(answer), *left_out(answer), *figure_note, where])


def print_ranking(answer: Answer, console: Console) -> None:
    """Print a row for each system that reached the target.

    Args:
        answer: answer with at least one such system.
        console: terminal to print to.
    """
    show(ranking_table(answer), console)


def sentences(answer: Answer) -> list[str]:
    """Return the answer, the warnings, and the systems that did not reach the target, in sentences.

    Args:
        answer: answer of a plan.
    """
    return [*first_places(answer), *(f"But {doubt}." for doubt in answer.doubts), *unreached(answer)]


def first_places(answer: Answer) -> list[str]:
    """Return the system that reached the target first, and those between which time and cost leave a choice, in sentences.

    Args:
        answer: answer of a plan.
    """
    return [answer.sentence, *_front_sentences(answer.ranking)]


def unreached(answer: Answer) -> list[str]:
    """Return a sentence on the systems that did not reach the target, if there are any.

    Args:
        answer: answer of a plan.
    """
    measure = answer.question.measure.replace("_", " ")
    systems = ", ".join(f"{run} ({measure} {lowest:.3g})" for run, lowest in answer.ranking.unreached.items())
    return [f"Target not reached with all tuning seeds at any point: {systems}."] if systems else []


def left_out(answer: Answer) -> list[str]:
    """Return sentences on the systems that were not tried.

    Args:
        answer: answer of a plan.
    """
    reasons = [f"Not tried: {run}, because {reason}." for run, reason in answer.cannot.items()]
    return [*reasons, f"Not considered: {', '.join(answer.not_considered)}."] if answer.not_considered else reasons


def as_json(answer: Answer) -> str:
    """Return all of it as one JSON object; infinite or unknown values are null.

    Args:
        answer: answer of a plan.
    """
    document = {
        "cluster": answer.description,
        **ranking_json(answer),
        "not_tried": dict(answer.cannot),
        "not_considered": list(answer.not_considered),
        "lost": answer.attribution and _lost_json(answer.attribution, answer.names),
    }
    return json.dumps(finite(document), indent=2)


def ranking_json(answer: Answer) -> dict[str, Any]:
    """Return the ranking and the warnings as a JSON object.

    Args:
        answer: answer of a plan.
    """
    places = [
        {
            **{"run": place.run, "settings": dict(place.values), "points": place.points, "at_the_edge": list(place.edges)},
            **{"median": place.median, "seconds": list(place.seconds), "reached": place.reached},
            **({"median_cost": place.median_of(COST), "costs": list(place.costs)} if place.costs else {}),
            **({"median_energy_kwh": place.median_of(ENERGY), "energy_kwh": list(place.energy)} if place.energy else {}),
            "against_first": None if place.comparison is None else {name: place.comparison[name] for name in _COMPARISON_KEYS},
        }
        for place in answer.ranking.places
    ]
    question = {"target": answer.question.target, "budget": answer.question.budget, "by": answer.ranking.by.name}
    ranking = {"answer": answer.sentence, "ranking": places, "unreached": dict(answer.ranking.unreached)}
    front = {"front": [place.run for place in answer.ranking.front]} if answer.ranking.front else {}
    return {**question, **ranking, **front, "doubts": list(answer.doubts)}


def _front_sentences(ranking: Ranking) -> list[str]:
    """Return the systems between which time and cost leave a choice, in a sentence; nothing without prices."""
    if not ranking.front or not (price := ranking.price):
        return []
    front = [
        f"{place.run} ({TIME.format_value(place.median)}, {price.format_value(place.median_of(price))})"
        for place in ranking.front
    ]
    if len(front) == 1:
        return [f"By median time and {price.name}, no system beats {front[0]} in either."]
    # Fastest first, so the last one is cheapest. Of the two, name the one that is best by the other criterion.
    least = f"{ranking.front[-1].run} {price.least}" if ranking.by == TIME else f"{ranking.front[0].run} {TIME.least}"
    return [f"By median time and {price.name}, no system beats {', '.join(front)} in both; {least}."]


def _lost_json(attribution: Attribution, names: Names) -> dict[str, Any]:
    return {
        "slowdown": attribution.slowdown,
        "lasting": attribution.lasting,
        "network": attribution.network,
        "phases": attribution.of_phases,
        "workers": dict(zip(names.workers, attribution.of_workers.tolist(), strict=True)),
        "nodes": dict(zip(names.nodes, attribution.of_nodes.tolist(), strict=True)),
        "worst": [names.workers[worker] for worker in attribution.worst_workers],
        "share_of_worst": attribution.share_of_worst,
    }


def lost_table(attribution: Attribution, answer: Answer) -> Table:
    """Return the table of lost time: slowdown and share by worker, node and phase.

    Args:
        attribution: attribution of the lost time.
        answer: answer of a plan, with the names.
    """
    rows = [
        [name, f"× {slowdown:.3f}" if math.isfinite(slowdown) else NONE, _percent(share)]
        for name, slowdown, share in _lost_rows(attribution, answer.names)
    ]
    title = f"{answer.description}\nwhere rounds that wait for all lose time"
    return Table(["", "slowdown", "share"], rows, title, _LOST_CAPTION)


def _lost_rows(attribution: Attribution, names: Names) -> Iterator[tuple[str, float, float]]:
    """Yield the name, slowdown and share of each row; NaN for an empty cell."""
    yield "all workers", attribution.slowdown, math.nan
    yield "lasting part: each worker at its usual speed", attribution.lasting, math.nan
    worst_names = ", ".join(names.workers[worker] for worker in attribution.worst_workers[:_MOST_ROWS])
    dots = ", ..." if len(attribution.worst_workers) > _MOST_ROWS else ""
    yield f"the worst {WORST:.0%} of the workers: {worst_names}{dots}", math.nan, attribution.share_of_worst
    for worker in _indices_of_largest(attribution.of_workers.tolist()):
        yield names.workers[worker], float(attribution.of_workers[worker]), attribution.share([worker])
    if len(attribution.of_nodes) > 1:
        for node in _indices_of_largest(attribution.of_nodes.tolist()):
            yield names.nodes[node], float(attribution.of_nodes[node]), attribution.share_of_nodes[node]
    if len(attribution.phases) > 1:
        for name, slowdown in attribution.of_phases.items():
            yield name, slowdown, math.nan
        yield "messages: share of the whole time", math.nan, attribution.network


def _indices_of_largest(values: list[float]) -> list[int]:
    return sorted(range(len(values)), key=lambda index: -values[index])[:_MOST_ROWS]


def ranking_table(answer: Answer) -> Table:
    """Return the table with a row for each system that reached the target.

    Args:
        answer: answer with at least one such system.
    """
    has_knobs = any(_knob(place) for place in answer.ranking.places)
    (by, *other_criteria), budget = answer.ranking.criteria, answer.question.budget
    rows = []
    for rank, place in enumerate(answer.ranking.places):
        reached = [value for value in place.to_target(by) if math.isfinite(value)]
        spread = f"{min(reached):,.4g} to {max(reached):,.4g}" if reached else NONE
        ratio = "first" if rank == 0 else format_pair(dict(place.comparison)) if place.comparison else NONE
        cells = [place.run, *([_knob(place)] if has_knobs else []), _rate(place), _median(place, by, budget), spread, ratio]
        cells += [
            *(_median(place, criterion, budget) for criterion in other_criteria),
            f"{place.reached} of {len(place.seconds)}",
        ]
        rows.append([Cell(cell, strong=rank == 0) for cell in [*cells, str(place.points)]])
    headings = ["system", *(["best knob"] if has_knobs else []), "learning rate", by.heading, "least to largest"]
    headings += ["relative to the first", *(criterion.heading for criterion in other_criteria), "reached", "points"]
    title = f"{by.name} to {answer.question.aim}, within {budget:,.4g} s"
    return Table(headings, rows, title, _ranking_caption(answer), words=2 if has_knobs else 1)


def _ranking_caption(answer: Answer) -> str:
    """Return the caption of the ranking, which explains its columns."""
    tuning_seeds, reported_seeds = (", ".join(map(str, answer.question.parts[name])) for name in ("seeds", "report_seeds"))
    comparisons = len(answer.ranking.places) - 1
    family = f", widened for {comparisons} comparisons" if comparisons > 1 else ""
    has_intervals = answer.question.seeds[1] >= FEWEST_SEEDS
    brackets = f"95 % interval{family}" if has_intervals else f"range: {FEWEST_SEEDS} seeds or more have an interval"
    return (
        f"best point of each on seeds {tuning_seeds}, reported on other seeds: {reported_seeds}; *: at the edge of what was "
        "tried; relative to the first: geometric mean of per-seed ratios, where a run that missed the target counts as "
        f"{answer.ranking.by.missed}; in brackets: {brackets}"
    )


def _percent(share: float) -> str:
    return f"{share:.0%}" if math.isfinite(share) else ""


def _knob(place: Place) -> str:
    """Return the value of the system's knob, with a star at the edge of the search; empty without a knob."""
    return ", ".join(
        f"{key.rpartition('.')[2]} {value}{'*' if key in place.edges else ''}"
        for key, value in place.values.items()
        if key != RATE
    )


def _rate(place: Place) -> str:
    return f"{place.values[RATE]:g}{'*' if RATE in place.edges else ''}"


def _median(place: Place, by: By, budget: float) -> str:
    """Return the cell of a median; if most seeds missed the target, only its time has a bound, the budget."""
    median = place.median_of(by)
    return f"{median:,.4g}" if math.isfinite(median) else f"> {budget:,.4g}" if by == TIME else NONE


def _settings(place: Place) -> str:
    return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in place.values.items())
