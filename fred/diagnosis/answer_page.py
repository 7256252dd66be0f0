"""The HTML pages of a diagnosis and of a plan: sentences, figures and tables in one file without scripts or links.

A diagnosis has figures of times by worker and iteration, of the gains of the remedies, and of used gradients. A plan has a
figure of each system's time against its cost, with the Pareto front.
"""

import base64
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.colors import LogNorm

from fred.base.environment import __version__
from fred.base.errors import percent
from fred.diagnosis import printed, ranking_tables
from fred.diagnosis.findings import Diagnosis, Gain
from fred.diagnosis.question import TIME
from fred.diagnosis.ranking import Ranking
from fred.diagnosis.ranking_tables import Answer
from fred.diagnosis.sentences import sections
from fred.diagnosis.spells import runs
from fred.views import comparison_figures
from fred.views.figures import COLOURS, FAINT, Picture, style
from fred.views.page_tables import html, marked_up
from fred.views.table import Table

_MOST_CELLS = 600  # workers up to which the image is not smoothed
_KINDS = {  # kind of a remedy -> number of its colour
    **{"repair": 2, "remove": 2, "align": 2, "backup": 0, "deadline": 0, "rule": 0, "local": 3, "asynchronous": 3},
}
_MOST_NAMES, _LONGEST_NAME = 16, 12  # workers with a name in the image; letters of a name, from its end
_MOST_TIMES = 8.0  # largest time shown, relative to the median worker


class Figure(NamedTuple):
    """A figure of a page.

    Args:
        heading: heading above it.
        picture: the figure.
        note: explanation below it.
    """

    heading: str
    picture: Picture
    note: str


def answer_page(
    title: str, answer: Mapping[str, Sequence[str]], figures: Iterable[Figure], tables: Iterable[Table], footer: Sequence[str]
) -> str:
    """Return a complete HTML file; the same parts give the same text.

    Args:
        title: heading of the page.
        answer: sentences by heading; words between backticks are code.
        figures: figures below the sentences.
        tables: tables below the figures.
        footer: sentences at the end.
    """
    parts = {
        "title": escape(title),
        "style": (files("fred.views") / "page.css").read_text(encoding="utf-8"),
        "answer": "".join(_section_html(heading, lines) for heading, lines in answer.items() if lines),
        "pictures": "".join(map(_figure_html, figures)),
        "tables": "".join(_table_html(table) for table in tables),
        "footer": "".join(f'<p class="note">{marked_up(line)}</p>' for line in footer),
    }
    return Template((files("fred.diagnosis") / "answer_page.html").read_text(encoding="utf-8")).substitute(parts)


def _section_html(heading: str, lines: Sequence[str]) -> str:
    return f"<div><h2>{escape(heading)}</h2>" + "".join(f"<p>{marked_up(line)}</p>" for line in lines) + "</div>"


def _table_html(table: Table) -> str:
    title = table.title.split("\n")[-1]  # the line before it is the page's heading
    return f"<section><h2>{escape(title[:1].upper() + title[1:])}</h2>{html(table, sorts=False)}</section>"


def _figure_html(figure: Figure) -> str:
    svg = io.BytesIO()
    with style():  # it also fixes the numbers that matplotlib gives to parts of the picture
        figure.picture.savefig(svg, format="svg", metadata={"Date": None})
    source = base64.b64encode(svg.getvalue()).decode()
    image = f'<img alt="{escape(figure.heading)}" src="data:image/svg+xml;base64,{source}">'
    return (
        f"<section><h2>{escape(figure.heading)}</h2>"
        f'<div class="figure" tabindex="0" role="region" aria-label="figure">{image}</div>'
        f'<p class="note">{marked_up(figure.note)}</p></section>'
    )


def draw_slowness(diagnosis: Diagnosis) -> Picture:
    """Draw each worker's time relative to the median worker, round by round, and the share of time lost in each round.

    Args:
        diagnosis: findings about a trace.
    """
    seconds, node_of = diagnosis.trace.seconds, diagnosis.trace.node_of
    relative = seconds / np.median(seconds, axis=1, keepdims=True)
    workers = np.arange(seconds.shape[1]) if node_of is None else np.argsort(node_of, kind="stable")  # from top to bottom
    with style():
        figure = Picture(figsize=(9.0, 4.4), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
        largest = float(np.clip(np.quantile(relative, 0.999), 1.5, _MOST_TIMES))  # end of the colours; without rare outliers
        image = above.imshow(
            relative[:, workers].T,
            norm=LogNorm(1 / largest, largest),
            aspect="auto",
            cmap="RdBu_r",
            extent=(0, len(seconds), len(workers), 0),
            interpolation="nearest" if seconds.shape[1] < _MOST_CELLS else "antialiased",
        )
        ticks = sorted({1 / largest, 1.0, largest})
        bar = figure.colorbar(image, ax=above, pad=0.01)
        bar.ax.minorticks_off()
        bar.set_ticks(ticks, labels=[f"x {tick:.2g}" for tick in ticks])
        above.set_yticks(*_worker_ticks([diagnosis.trace.workers[worker] for worker in workers]), parse_math=False)
        above.set(ylabel="worker" if node_of is None else "worker, by node", title="time / median worker's")
        above.grid(False)
        lost_percent = 100 * (1 - np.median(seconds, axis=1) / seconds.max(axis=1))
        below.plot(np.arange(len(lost_percent)) + 0.5, lost_percent, color=COLOURS[0], linewidth=0.8)
        for run in runs(diagnosis.slowness.high):  # numbers of counted rounds, which begin at `diagnosis.first`
            if run.high:
                below.axvspan(diagnosis.first + run.first, diagnosis.first + run.end, color=COLOURS[4], alpha=0.3, linewidth=0)
        below.set(xlabel="iteration (shaded: spells)", ylabel="lost, %", ylim=(0, 100), xlim=(0, len(seconds)))
    return figure


def draw_gains(diagnosis: Diagnosis) -> Picture:
    """Draw the gain of each remedy over waiting for all, with its 95 % interval, and the upper bound.

    Args:
        diagnosis: findings about a trace.
    """
    gains = diagnosis.gains[::-1]  # bottom to top
    with style():
        figure = Picture(figsize=(8.0, 0.9 + 0.27 * len(gains)), layout="constrained")
        axis = figure.subplots()
        for height, option in enumerate(gains):
            colour = COLOURS[_KINDS[option.remedy.kind]]
            low, high = option.ratio.interval or (option.ratio.value, option.ratio.value)
            axis.plot([low, high], [height, height], color=colour, linewidth=2.5, alpha=0.5, solid_capstyle="butt")
            axis.plot(option.ratio.value, height, "o" if not option.fairness.excluded else "X", color=colour)
        axis.axvline(1, color=FAINT, linewidth=1)
        axis.axvline(
            diagnosis.bound.ratio.value, color=COLOURS[1], linestyle="--", label="upper bound of all that drop gradients"
        )
        axis.set(yticks=range(len(gains)), xlabel="gain (cross: excludes workers)")
        axis.set_yticklabels([_short_name(option) for option in gains], parse_math=False)
        if max(option.ratio.value for option in gains) > _MOST_TIMES / 2:  # else the largest gain would crowd the others
            axis.set_xscale("log")
        axis.xaxis.set_major_formatter(lambda value, _: f"{percent(value)} %")
        figure.legend(loc="outside upper right")
    return figure


def draw_used_gradients(diagnosis: Diagnosis) -> Picture:
    """Draw the share of each worker's gradients that the recommended cutoff uses.

    Args:
        diagnosis: findings about a trace.
    """
    used = diagnosis.recommended.remedy.used
    with style():
        figure = Picture(figsize=(8.0, 2.0), layout="constrained")
        axis = figure.subplots()
        axis.bar(range(len(used)), 100 * used, color=np.where(used < 0.5, COLOURS[1], COLOURS[0]))
        axis.set(ylabel="gradients used, %", ylim=(0, 100), xlim=(-0.6, len(used) - 0.4), xlabel="worker")
        axis.set_title(_short_name(diagnosis.recommended), parse_math=False)
        if len(used) <= 32:  # otherwise names overlap
            rotation = 90 if max(map(len, diagnosis.trace.workers)) > 3 else 0
            axis.set_xticks(range(len(used)), diagnosis.trace.workers, rotation=rotation, parse_math=False)
    return figure


def _worker_ticks(workers: Sequence[str]) -> tuple[list[float], list[str]]:
    """Return the middles of some rows of an image, and the names of their workers."""
    rows = range(0, len(workers), -(-len(workers) // _MOST_NAMES))  # the step is rounded up
    return [row + 0.5 for row in rows], [workers[row][-_LONGEST_NAME:] for row in rows]


def _short_name(option: Gain, most: int = 44) -> str:
    name = option.remedy.name.replace("`", "")
    return name if len(name) <= most else f"{name[: most - 1]}…"


_PICTURES: dict[str, tuple[Callable[[Diagnosis], Picture], str]] = {
    "Who is slow, and when": (
        draw_slowness,
        "Above: each worker's time, relative to the median worker of the iteration. Below: the share of each iteration lost to "
        "its slowest worker.",
    ),
    "What each remedy gains": (
        draw_gains,
        "Gradients per second, relative to waiting for all; lines are 95 % intervals of the long run.",
    ),
    "Whose gradients are used": (
        draw_used_gradients,
        "Share of each worker's gradients, relative to the most used worker; orange: fewer than half.",
    ),
}


def diagnosis_page(diagnosis: Diagnosis, more_sentences: Mapping[str, Sequence[str]] = {}, tables: Sequence[Table] = ()) -> str:
    """Return a complete HTML file; the same trace gives the same text.

    Args:
        diagnosis: findings about a trace.
        more_sentences: sentences for further headings.
        tables: further tables, which come first.
    """
    pictures, number_tables = (_PICTURES, printed.tables(diagnosis)) if not diagnosis.doubt else ({}, ())
    return answer_page(
        f"Diagnosis of {diagnosis.trace.source}",
        {**sections(diagnosis), **more_sentences},
        [Figure(heading, draw(diagnosis), note) for heading, (draw, note) in pictures.items()],
        [*tables, *number_tables],
        [f"Written by `fred diagnose`, FRED {__version__}; digest of the times {diagnosis.trace.digest}."],
    )


def picture(ranking: Ranking, aim: str) -> Picture:
    """Draw the median time and cost of each system at its best point, over the reported seeds.

    The cost is the energy if systems are ranked by it, or if everything is free.

    Args:
        ranking: ranking of systems on a cluster with prices; some have a median time.
        aim: the target in words.
    """
    price = ranking.price
    assert price is not None
    front = {place.run for place in ranking.front}
    rows = [
        (place.run, place.run, place.median, place.median_of(price), place.run in front)
        for place in ranking.places
        if place.median < math.inf
    ]
    points = pd.DataFrame(rows, columns=["run", "point", "seconds", "cost", "front"])
    points.attrs = {"time": TIME.to_target, "cost": price.to_target}
    missed = len(ranking.places) + len(ranking.unreached) - len(rows)
    missed_note = f"{missed} more system{'s' * (missed > 1)} missed the target" if missed else ""
    seeds = len(ranking.places[0].seconds)
    means = f"medians over {seeds} seeds, each system tuned by {ranking.by.name}" if seeds > 1 else ""
    return comparison_figures.cost(points, f"Time against {price.name} to {aim}", means, missed_note)


def plan_page(answer: Answer) -> str:
    """Return a complete HTML file; the same answer gives the same text.

    Args:
        answer: answer of a plan.
    """
    sentences = {
        "Answer": ranking_tables.first_places(answer),
        "Doubts": [f"{doubt[:1].upper()}{doubt[1:]}." for doubt in answer.doubts],
        "Without a rank": ranking_tables.unreached(answer),
    }
    return answer_page(
        f"Plan for {answer.description}",
        sentences,
        _figures(answer),
        _tables(answer),
        [
            *ranking_tables.left_out(answer),
            "All runs and all points are in `result/report.html`; to continue, edit `scenario.yaml`.",
            f"Written by `fred plan`, FRED {__version__}.",
        ],
    )


def _figures(answer: Answer) -> Iterator[Figure]:
    if answer.ranking.front:
        yield Figure("What time costs", picture(answer.ranking, answer.question.aim), "Medians over the reported seeds.")


def _tables(answer: Answer) -> Iterator[Table]:
    if answer.ranking.places:
        yield ranking_tables.ranking_table(answer)
    if answer.attribution is not None:
        yield ranking_tables.lost_table(answer.attribution, answer)
