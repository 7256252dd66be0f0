"""An answer as one HTML page of sentences, figures and tables: a single file without scripts or links."""

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import NamedTuple

from fred.views.figures import Picture
from fred.views.page_tables import html, marked_up
from fred.views.table import Table


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
        "answer": "".join(_section(heading, lines) for heading, lines in answer.items() if lines),
        "pictures": "".join(map(_figure, figures)),
        "tables": "".join(_table(table) for table in tables),
        "footer": "".join(f'<p class="note">{marked_up(line)}</p>' for line in footer),
    }
    return Template((files("fred.diagnosis") / "answer_page.html").read_text(encoding="utf-8")).substitute(parts)


def _section(heading: str, lines: Sequence[str]) -> str:
    return f"<div><h2>{escape(heading)}</h2>" + "".join(f"<p>{marked_up(line)}</p>" for line in lines) + "</div>"


def _table(table: Table) -> str:
    title = table.title.split("\n")[-1]
    return f"<section><h2>{escape(title[:1].upper() + title[1:])}</h2>{html(table, sorts=False)}</section>"


def _figure(figure: Figure) -> str:
    drawn = io.BytesIO()
    figure.picture.savefig(drawn, format="svg", metadata={"Date": None})
    source = base64.b64encode(drawn.getvalue()).decode()
    image = f'<img alt="{escape(figure.heading)}" src="data:image/svg+xml;base64,{source}">'
    return (
        f"<section><h2>{escape(figure.heading)}</h2>"
        f'<div class="figure" tabindex="0" role="region" aria-label="figure">{image}</div>'
        f'<p class="note">{marked_up(figure.note)}</p></section>'
    )
