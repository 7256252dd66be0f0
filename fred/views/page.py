"""The HTML report: its parts are made from the tables of a result and inserted into a template."""

import json
from collections.abc import Callable
from functools import partial
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, NamedTuple

import pandas as pd

from fred.base.environment import __version__
from fred.base.errors import unbroken
from fred.components.component import objects_of, own_classes
from fred.outcomes.tables import Tables
from fred.specification.text import as_yaml
from fred.views import machines, page_data, page_tables
from fred.views.machines import count_noun
from fred.views.table import Cell, Table
from fred.views.verdict import answer
from fred.views.view import COLOURS, OF_TIME

MARK = b'<meta name="generator" content="FRED">'  # identifies a file as a report
_FOLDED = 24  # points of a sweep from which their table is folded
_YAML = 30_000  # letters of the scenario that are shown at most
_FILES = {"style": "page.css", "script": "page.js", "uplot": "uPlot.js", "uplot_style": "uPlot.css"}


class Circumstances(NamedTuple):
    """Facts about a result other than its runs.

    Args:
        file: the file of the scenario; empty if there was none.
        environment: the versions and hardware that the bits depend on, by name.
    """

    file: str
    environment: dict[str, str]


def page(result: Tables, circumstances: Circumstances) -> str:
    """Return the report as one self-contained HTML file that loads nothing else. The same runs give the same text.

    Args:
        result: the tables of the runs; nothing is run again. A part that cannot be made from them says why.
        circumstances: facts other than the runs.
    """
    data = {
        "colours": COLOURS,
        "kinds": [[kind.replace("_", " "), colour] for kind, colour in OF_TIME.items()],
        "curves": _data(partial(_curves, result)),
        "sweep": _data(partial(page_data.sweep, result)),
        "replays": _data(partial(page_data.replays, result)) or [],
    }
    parts = {
        "title": escape(unbroken(result.scenario.title or "A result of FRED")),
        "asked": _question(result),
        "answer": part(lambda: f'<p id="answer">{escape(answer(result))}</p>'),
        "thinned": _thinned(data["curves"], result.swept),
        "runs": part(partial(_runs, result)),
        "pairs": part(partial(page_tables.pairs, result)),
        "seeds": part(partial(page_tables.by_seed, result)),
        "sweep": _sweep(result) if result.swept else "",
        "workers_time": part(lambda: page_tables.workers_time(result.with_its_best() if result.reported_outcomes else result)),
        "staleness": part(partial(page_data.of_gradients, result)),
        "machines": part(partial(machines.machines, result.outcomes)),
        "scenario": part(lambda: f"<pre id='yaml'>{escape(as_yaml(result.scenario, _YAML))}</pre>"),
        "environment": _facts({"fred": __version__, **circumstances.environment}),
        "digests": part(partial(_digests, result)),
        "again": _commands(result, circumstances.file),
        "data": _as_script(data),
        **{name: _read_asset(file) for name, file in _FILES.items()},
    }
    return Template(_read_asset("page.html")).substitute(parts)


def _read_asset(name: str) -> str:
    return (files("fred.views") / name).read_text(encoding="utf-8")


def part(make: Callable[[], str]) -> str:
    """Return a part, or a note on why it is missing: an error in a report must not lose a result.

    Args:
        make: makes the part, as HTML.
    """
    try:
        return make()
    except Exception as error:
        return f'<p class="note">Not shown: {escape(str(error) or type(error).__name__)}.</p>'


def _data(make: Callable[[], Any]) -> Any:
    """Return data for the page's scripts, or None if they cannot be made."""
    try:
        return make()
    except Exception:
        return None


def _as_script(data: Any) -> str:
    """Return JSON that is safe inside a script element: it cannot end the script or start a comment."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _curves(result: Tables) -> dict[str, Any]:
    reported = result.with_its_best()
    return {
        **page_data.curves(reported),
        "targets": {name: reported.target(name) for name in ("loss", "error", "gradient_norm")},
    }


def _sweep(result: Tables) -> str:
    table = part(partial(page_tables.of_sweep, result))
    if len(result.sweep) > _FOLDED:
        table = _folded(f"All {len(result.sweep)} points", table)
    return (
        '<section aria-labelledby="h-sweep"><h2 id="h-sweep">Sweep</h2>'
        f'<div class="chart" data-of="sweep"></div>{table}</section>'
    )


def _runs(result: Tables) -> str:
    """Return the table of runs; of a sweep, that of the best points, and that of all points folded."""
    table = page_tables.of_runs(result)
    if not result.swept or not result.reported_outcomes:
        return table
    return page_tables.of_runs(result.with_its_best()) + _folded("All points", table)


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{text}</details>"


def _thinned(data: Any, swept: bool) -> str:
    """Return the sentences that say which runs and how many points of each the curves show."""
    if not data:
        return "There are no curves to draw."
    count, total = len(data["runs"]), data["of"]
    beginning = f"The first {count} of {total:,} runs. " if count < total else "The best point of each sweep. " if swept else ""
    lines = "Lines are means over the seeds, bands reach from the least to the largest"
    return f"{beginning}{lines}; each has at most {data['points']} points."


def _question(result: Tables) -> str:
    """Return the scenario's comment, and a summary of the runs, seeds, workers and limits."""
    scenario, runs = result.scenario, list({outcome.name: outcome.run for outcome in result.outcomes}.values())
    comment = "".join(f"<p>{escape(line)}</p>" for line in scenario.comment.split("\n") if line)
    seeds = len({outcome.seed for outcome in result.outcomes})
    sizes = sorted({run.cluster.size for run in runs})
    workers = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    limits = sorted({_limits(run.stop) for run in runs})
    words = (
        f"{count_noun(len(runs), 'run')} with {count_noun(seeds, 'seed')}, {workers} workers, until {'; '.join(limits[:3])}."
    )
    return f'<div class="comment">{comment}</div><p class="note">{escape(words)}</p>'


def _limits(stop: Any) -> str:
    words = {
        "seconds": "{:,g} s of virtual time",
        "updates": "{:,} updates",
        "gradients": "{:,} gradients",
        "target_loss": "a loss of {:g}",
    }
    return " or ".join(words[name].format(getattr(stop, name)) for name in stop.limits)


def _facts(facts: dict[str, str]) -> str:
    return (
        "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(value) or '–'}</dd>" for name, value in facts.items()) + "</dl>"
    )


def _digests(result: Tables) -> str:
    digests = pd.DataFrame(
        [{"run": outcome.name, "seed": outcome.seed, **outcome.summary["digests"]} for outcome in result.outcomes]
    )
    cells: list[list[Cell | str]] = [
        [Cell(str(row["run"])), Cell(str(row["seed"]), row["seed"]), str(row["schedule"]), str(row["params"] or "–")]
        for _, row in digests.iterrows()
    ]
    caption = "SHA-256: equal schedules are equal timing, equal parameters equal bits."
    return page_tables.html(Table(["run", "seed", "schedule", "parameters"], cells, caption=caption))


def _commands(result: Tables, file: str) -> str:
    """Return the commands that run everything again: by `fred verify`, or by hand from the scenario that the page shows.

    That scenario has all settings, also those of `--set`. Options that it lacks are added: `--only` and `--import`. A result
    with objects of a program has no such commands.
    """
    run_names = {name: result.scenario.run_of(name) for name in result.scenario.runs}  # `--only` names runs, not points
    executed = dict.fromkeys(run_names[outcome.name] for outcome in result.outcomes)
    if objects := dict.fromkeys(item.kind for outcome in result.outcomes for item in objects_of(outcome.run)):
        kinds = ", ".join(f"<code>{escape(kind)}</code>" for kind in objects)
        return f"<p>A program made parts of it ({kinds}): run it again from the program that has them.</p>"
    only = [f" --only {name}" for name in executed] if len(executed) < len(set(run_names.values())) else []
    modules = sorted({target.partition(":")[0] for outcome in result.outcomes for target in own_classes(outcome.run)})
    imports = "".join(f" --import {name}" for name in modules)
    commands = (
        f"fred verify FOLDER{imports}",
        f"fred run scenario.yaml{''.join(only)}{imports} --out ANOTHER",
        "fred compare FOLDER ANOTHER",
    )
    where = " <code>manifest.json</code> names the file that it came from." if file else ""
    return (
        "<p>The first command runs everything again and compares bit by bit. The others do the same by hand: save the scenario "
        "above as <code>scenario.yaml</code>, next to its input files if it has any."
        f"{where}</p><pre>{escape(chr(10).join(commands))}</pre>"
    )
