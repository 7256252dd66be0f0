"""The output of `fred plan` and `fred diagnose --for TASK`: systems ranked by time, cost or energy to a target."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from fred.base.intervals import FEWEST_SEEDS
from fred.base.words import finite
from fred.diagnosis.attribution import WORST, Attribution
from fred.diagnosis.question import COST, ENERGY, RATE, TIME, By, Question
from fred.diagnosis.ranking import Place, Ranking
from fred.views.paired_table import format_pair
from fred.views.table import NONE, Cell, Table, say, show, terminal

_COMPARED = ("mean", "low", "high", "higher")
FIGURE, PAGE = "trade-off.svg", "report.html"  # of time against cost; of the answer: files in the folder of a plan
_SHOWN = 4  # number of workers, and of nodes, shown
_OF_THE_LOST = (
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
        about: description of the cluster.
        question: the question.
        ranking: ranking of the systems tried.
        doubts: warnings about the answer, in words.
        lost: attribution of lost time in rounds that wait for all; None if no round was complete, or it was not asked for.
        cannot: reasons why systems were not tried, by name.
        others: algorithms of FRED that were not considered.
        names: names of workers and nodes.
    """

    about: str
    question: Question
    ranking: Ranking
    doubts: Sequence[str]
    lost: Attribution | None = None
    cannot: Mapping[str, str] = field(default_factory=dict)
    others: Sequence[str] = ()
    names: Names = Names((), ())

    @property
    def sentence(self) -> str:
        """Return the answer in a sentence."""
        aim = self.question.aim
        if not self.ranking.places or self.ranking.places[0].median == math.inf:
            return f"No system reached {aim} within {self.question.budget:,.4g} s."
        (first, *others), by = self.ranking.places, self.ranking.by
        seeds = f" (median of {len(first.seconds)} seeds)" if len(first.seconds) > 1 else ""
        value = f"{by.said(first.median_of(by))}{seeds}"
        words = f"{first.run} ({_settings(first)}) reached {aim} {by.reached.format(value)}"
        later = next((place for place in others if place.told_apart), None)
        if later and later.against and math.isfinite(later.against["mean"]):
            mean, low, high = (later.against[name] for name in ("mean", "low", "high"))
            words += f"; {later.run}, {by.next.format(f'{mean:.2f}')} ({low:.2f} to {high:.2f})"
        return f"{words}."


def print_answer(answer: Answer, out: Path) -> None:
    """Print the lost time, the ranking, the systems that were not tried, and warnings.

    Args:
        answer: answer to print.
        out: folder with all files.
    """
    console = terminal()
    if answer.lost is None:
        console.print("No round that waits for all was complete, so the lost time is unknown.")
    else:
        show(lost_table(answer.lost, answer), console)
    if answer.ranking.places:
        print_ranking(answer, console)
    price = answer.ranking.price if answer.ranking.front else None
    drawn = [f"Figure of time against {price.name}: {out}/{FIGURE}."] if price else []
    where = f"This as a page: {out}/{PAGE}; all runs: {out}/result/report.html; to continue, edit {out}/scenario.yaml."
    say(console, [*sentences(answer), *left_out(answer), *drawn, where])


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
    return [answer.sentence, *_of_the_front(answer.ranking)]


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
    return [*reasons, f"Not considered: {', '.join(answer.others)}."] if answer.others else reasons


def as_json(answer: Answer) -> str:
    """Return all of it as one JSON object; infinite or unknown values are null.

    Args:
        answer: answer of a plan.
    """
    told = {
        "cluster": answer.about,
        **ranking_json(answer),
        **{"not_tried": dict(answer.cannot), "not_considered": list(answer.others)},
        **{"lost": answer.lost and _lost_json(answer.lost, answer.names)},
    }
    return json.dumps(finite(told), indent=2)


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
            "against_first": None if place.against is None else {name: place.against[name] for name in _COMPARED},
        }
        for place in answer.ranking.places
    ]
    asked = {"target": answer.question.target, "budget": answer.question.budget, "by": answer.ranking.by.name}
    found = {"answer": answer.sentence, "ranking": places, "unreached": dict(answer.ranking.unreached)}
    front = {"front": [place.run for place in answer.ranking.front]} if answer.ranking.front else {}
    return {**asked, **found, **front, "doubts": list(answer.doubts)}


def _of_the_front(ranking: Ranking) -> list[str]:
    """Return the systems between which time and cost leave a choice, in a sentence; nothing without prices."""
    if not ranking.front or not (price := ranking.price):
        return []
    front = [f"{place.run} ({TIME.said(place.median)}, {price.said(place.median_of(price))})" for place in ranking.front]
    if len(front) == 1:
        return [f"By median time and {price.name}, no system beats {front[0]} in either."]
    least = f"{ranking.front[-1].run} {price.least}" if ranking.by == TIME else f"{ranking.front[0].run} {TIME.least}"
    return [f"By median time and {price.name}, no system beats {', '.join(front)} in both; {least}."]


def _lost_json(lost: Attribution, names: Names) -> dict[str, Any]:
    return {
        **{"slowdown": lost.slowdown, "lasting": lost.lasting, "network": lost.network, "phases": lost.of_phases},
        **{"workers": dict(zip(names.workers, lost.of_workers.tolist(), strict=True))},
        **{"nodes": dict(zip(names.nodes, lost.of_nodes.tolist(), strict=True))},
        **{"worst": [names.workers[worker] for worker in lost.worst], "share_of_worst": lost.share_of_worst},
    }


def lost_table(lost: Attribution, answer: Answer) -> Table:
    """Return the table of lost time: slowdown and share by worker, node and phase.

    Args:
        lost: attribution of the lost time.
        answer: answer of a plan, with the names.
    """
    rows = [
        [name, f"× {slowdown:.3f}" if math.isfinite(slowdown) else NONE, _percent(share)]
        for name, slowdown, share in _rows(lost, answer.names)
    ]
    title = f"{answer.about}\nwhere rounds that wait for all lose time"
    return Table(["", "slowdown", "share"], rows, title, _OF_THE_LOST)


def _rows(lost: Attribution, names: Names) -> Iterator[tuple[str, float, float]]:
    yield "all workers", lost.slowdown, math.nan
    yield "lasting part: each worker at its usual speed", lost.lasting, math.nan
    named = ", ".join(names.workers[worker] for worker in lost.worst[:_SHOWN])
    more = ", ..." if len(lost.worst) > _SHOWN else ""
    yield f"the worst {WORST:.0%} of the workers: {named}{more}", math.nan, lost.share_of_worst
    for worker in _largest(lost.of_workers.tolist()):
        yield names.workers[worker], float(lost.of_workers[worker]), lost.share([worker])
    if len(lost.of_nodes) > 1:
        for node in _largest(lost.of_nodes.tolist()):
            yield names.nodes[node], float(lost.of_nodes[node]), lost.share_of_nodes[node]
    if len(lost.phases) > 1:
        for name, slowdown in lost.of_phases.items():
            yield name, slowdown, math.nan
        yield "messages: share of the whole time", math.nan, lost.network


def _largest(values: list[float]) -> list[int]:
    return sorted(range(len(values)), key=lambda place: -values[place])[:_SHOWN]


def ranking_table(answer: Answer) -> Table:
    """Return the table with a row for each system that reached the target.

    Args:
        answer: answer with at least one such system.
    """
    knobs = any(_knob(place) for place in answer.ranking.places)
    (by, *more), budget = answer.ranking.known, answer.question.budget
    rows = []
    for rank, place in enumerate(answer.ranking.places):
        reached = [each for each in place.to_target(by) if math.isfinite(each)]
        spread = f"{min(reached):,.4g} to {max(reached):,.4g}" if reached else NONE
        against = "first" if rank == 0 else format_pair(dict(place.against)) if place.against else NONE
        cells = [place.run, *([_knob(place)] if knobs else []), _rate(place), _median(place, by, budget), spread, against]
        cells += [*(_median(place, each, budget) for each in more), f"{place.reached} of {len(place.seconds)}"]
        rows.append([Cell(cell, strong=rank == 0) for cell in [*cells, str(place.points)]])
    headings = ["system", *(["best knob"] if knobs else []), "learning rate", by.heading, "least to largest"]
    headings += ["relative to the first", *(each.heading for each in more), "reached", "points"]
    title = f"{by.name} to {answer.question.aim}, within {budget:,.4g} s"
    return Table(headings, rows, title, _of_the_ranking(answer), words=2 if knobs else 1)


def _of_the_ranking(answer: Answer) -> str:
    """Return the note on the columns of the ranking."""
    choose, report = (", ".join(map(str, answer.question.parts[name])) for name in ("seeds", "report_seeds"))
    number = answer.question.seeds[1]
    several = len(answer.ranking.places) - 1
    missed = answer.ranking.by.missed
    family = f", widened for {several} comparisons" if several > 1 else ""
    brackets = f"95 % interval{family}" if number >= FEWEST_SEEDS else f"range: {FEWEST_SEEDS} seeds or more have an interval"
    return (
        f"best point of each on seeds {choose}, reported on other seeds: {report}; *: at the edge of what was tried; relative "
        f"to the first: geometric mean of per-seed ratios, where a run that missed the target counts as {missed}; "
        f"in brackets: {brackets}"
    )


def _percent(share: float) -> str:
    return f"{share:.0%}" if math.isfinite(share) else ""


def _knob(place: Place) -> str:
    return ", ".join(
        f"{key.rpartition('.')[2]} {value}{'*' if key in place.edges else ''}"
        for key, value in place.values.items()
        if key != RATE
    )


def _rate(place: Place) -> str:
    return f"{place.values[RATE]:g}{'*' if RATE in place.edges else ''}"


def _median(place: Place, by: By, budget: float) -> str:
    median = place.median_of(by)
    return f"{median:,.4g}" if math.isfinite(median) else f"> {budget:,.4g}" if by == TIME else NONE


def _settings(place: Place) -> str:
    return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in place.values.items())
