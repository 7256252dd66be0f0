"""The page: each part made of the tables, and put into its place of the template."""

import json
from collections.abc import Callable
from functools import partial
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import pandas as pd

from fred.outcomes.tables import Tables
from fred.version import __version__
from fred.views import machines, page_curves, page_replay, page_tables
from fred.views.machines import counted
from fred.views.table import Cell, Table
from fred.views.verdict import answer
from fred.views.view import COLOURS, OF_TIME
from fred.views.writing import as_yaml

MARK = b'<meta name="generator" content="FRED">'  # by which a file is known for a page
_YAML = 30_000  # letters of a scenario


class Circumstances(NamedTuple):
    """What is told of a result beside its runs.

    Args:
        file: the scenario's; empty if there was none.
        environment: what the bits depend on, by name.
    """

    file: str
    environment: dict[str, str]


def page(result: Tables, about: Circumstances) -> str:
    """A whole HTML file, which needs no other and asks nobody: the same text for the same runs.

    Args:
        result: what the runs came to; nothing is computed anew. Where a part cannot be made of them, it says why.
        about: what is told beside.
    """
    data = {
        "colours": COLOURS,
        "kinds": [[kind.replace("_", " "), colour] for kind, colour in OF_TIME.items()],
        "curves": _data(partial(_curves, result)),
        "sweep": _data(partial(page_curves.sweep, result)),
        "replays": _data(partial(page_replay.replays, result)) or [],
    }
    parts = {
        "title": escape(result.scenario.title or "A result of FRED"),
        "asked": _asked(result),
        "answer": _part(lambda: f'<p id="answer">{escape(answer(result))}</p>'),
        "thinned": _thinned(data["curves"], result.swept),
        "runs": _part(partial(page_tables.of_runs, result)),
        "pairs": _part(partial(page_tables.pairs, result)),
        "seeds": _part(partial(page_tables.by_seed, result)),
        "sweep": _part(partial(page_tables.of_sweep, result)) if result.swept else "",
        "workers_time": _part(partial(page_tables.workers_time, result)),
        "machines": _part(partial(machines.machines, {each.name: each.run for each in result.outcomes})),
        "scenario": _part(lambda: f"<pre id='yaml'>{escape(as_yaml(result.scenario, _YAML))}</pre>"),
        "environment": _facts({"fred": __version__, **about.environment}),
        "digests": _part(partial(_digests, result)),
        "again": _again(about.file),
        "data": _as_script(data),
        **{name: _own(file) for name, file in _FILES.items()},
    }
    return Template(_own("page.html")).substitute(parts)


_FILES = {"style": "page.css", "script": "page.js", "uplot": "uPlot.js", "uplot_style": "uPlot.css"}


def _own(name: str) -> str:
    return (files("fred.views") / name).read_text(encoding="utf-8")


def _part(make: Callable[[], str]) -> str:
    """A part, or why there is none: no result is lost because a page cannot show all of it."""
    try:
        return make()
    except Exception as error:
        return f'<p class="note">Not shown: {escape(str(error) or type(error).__name__)}.</p>'


def _data(make: Callable[[], Any]) -> Any:
    """What scripts draw; nothing where it cannot be made."""
    try:
        return make()
    except Exception:
        return None


def _as_script(data: Any) -> str:
    """JSON that no browser takes for the end of a script, or for a comment."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _curves(result: Tables) -> dict[str, Any]:
    reported = result.with_its_best()
    return {
        **page_curves.curves(reported),
        "targets": {name: reported.target(name) for name in ("loss", "error", "gradient_norm")},
    }


def _thinned(data: Any, swept: bool) -> str:
    if not data:
        return "There is nothing to draw here."
    shown, of = len(data["runs"]), data["of"]
    some = f"The first {shown} of {of:,} runs. " if shown < of else "Of each sweep the best point. " if swept else ""
    lines = "Lines are means over the seeds, bands reach from the least to the largest"
    return f"{some}{lines}; each has at most {data['points']} points."


def _asked(result: Tables) -> str:
    """The scenario's own words, and what was run."""
    scenario, runs = result.scenario, list({each.name: each.run for each in result.outcomes}.values())
    comment = "".join(f"<p>{escape(line)}</p>" for line in scenario.comment.split("\n") if line)
    seeds = len({each.seed for each in result.outcomes})
    sizes = sorted({run.cluster.size for run in runs})
    workers = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    limits = sorted({_limits(run.stop) for run in runs})
    words = f"{counted(len(runs), 'run')} with {counted(seeds, 'seed')}, {workers} workers, until {'; '.join(limits[:3])}."
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
    found = pd.DataFrame([{"run": each.name, "seed": each.seed, **each.summary["digests"]} for each in result.outcomes])
    cells: list[list[Cell | str]] = [
        [Cell(str(row["run"])), Cell(str(row["seed"]), row["seed"]), str(row["schedule"]), str(row["params"] or "–")]
        for _, row in found.iterrows()
    ]
    caption = "SHA-256: equal schedules are equal timing, equal parameters equal bits."
    return page_tables.html(Table(["run", "seed", "schedule", "parameters"], cells, caption=caption))


def _again(file: str) -> str:
    """How to run it again; the file by its name alone, as pages are the same wherever they lie."""
    name = Path(file).name or "scenario.yaml"
    commands = ["fred verify FOLDER", f"fred run {name} --out ANOTHER", "fred compare FOLDER ANOTHER"]
    where = "<code>manifest.json</code> says where that was" if file else "the scenario above, saved as a file"
    return (
        "<p>The first command runs everything again and compares bit by bit; the others do the same by hand, "
        f"with <code>{escape(name)}</code> ({where}).</p><pre>{escape(chr(10).join(commands))}</pre>"
    )
