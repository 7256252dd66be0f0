"""A diagnosis as one HTML page of sentences, figures and tables: a single file without scripts or links."""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template

from fred.base.version import __version__
from fred.diagnosis import diagnosis_figures, finding_tables
from fred.diagnosis.findings import Diagnosis
from fred.diagnosis.sentences import sections
from fred.views.figures import Picture
from fred.views.page_tables import html
from fred.views.table import Table

_PICTURES: dict[str, tuple[Callable[[Diagnosis], Picture], str]] = {
    "Who is slow, and when": (
        diagnosis_figures.slow_when,
        "Above: each worker's time, relative to the median worker of the iteration. Below: the share of each iteration lost to "
        "its slowest worker.",
    ),
    "What each remedy gains": (
        diagnosis_figures.gains,
        "Gradients per second, relative to waiting for all; lines are 95 % intervals of the long run.",
    ),
    "Whose gradients are used": (
        diagnosis_figures.used,
        "Share of each worker's gradients, relative to the most used worker; orange: fewer than half.",
    ),
}


def page(found: Diagnosis, more: Mapping[str, Sequence[str]] = {}) -> str:
    """Return a complete HTML file; the same trace gives the same text.

    Args:
        found: findings about a trace.
        more: sentences for further headings.
    """
    said = {**sections(found), **more}
    parts = {
        "title": escape(f"Diagnosis of {found.trace.source}"),
        "style": (files("fred.views") / "page.css").read_text(encoding="utf-8"),
        "answer": "".join(_section(heading, lines) for heading, lines in said.items()),
        "pictures": "".join(_figure(name, draw(found), words) for name, (draw, words) in _PICTURES.items()),
        "tables": "".join(_section_of(each) for each in finding_tables.of(found)),
        "version": escape(__version__),
        "digest": escape(found.trace.digest),
    }
    return Template((files("fred.diagnosis") / "diagnosis.html").read_text(encoding="utf-8")).substitute(parts)


def _section_of(table: Table) -> str:
    return f"<section><h2>{escape(table.title)}</h2>{html(table, sorts=False)}</section>"


def _section(heading: str, lines: Sequence[str]) -> str:
    return f"<h2>{escape(heading)}</h2>" + "".join(f"<p>{escape(line)}</p>" for line in lines)


def _figure(name: str, picture: Picture, words: str) -> str:
    drawn = io.BytesIO()
    picture.savefig(drawn, format="svg", metadata={"Date": None})
    source = base64.b64encode(drawn.getvalue()).decode()
    image = f'<img alt="{escape(name)}" src="data:image/svg+xml;base64,{source}">'
    return f"<section><h2>{escape(name)}</h2>{image}<p class='note'>{escape(words)}</p></section>"
