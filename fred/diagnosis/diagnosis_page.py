"""The HTML page of a diagnosis."""

from collections.abc import Callable, Mapping, Sequence

from fred.base.version import __version__
from fred.diagnosis import diagnosis_figures, finding_tables
from fred.diagnosis.answer_page import Figure, answer_page
from fred.diagnosis.findings import Diagnosis
from fred.diagnosis.sentences import sections
from fred.views.figures import Picture
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


def page(found: Diagnosis, more: Mapping[str, Sequence[str]] = {}, tables: Sequence[Table] = ()) -> str:
    """Return a complete HTML file; the same trace gives the same text.

    Args:
        found: findings about a trace.
        more: sentences for further headings.
        tables: further tables, which come first.
    """
    pictures, numbers = (_PICTURES, finding_tables.of(found)) if not found.doubt else ({}, ())
    return answer_page(
        f"Diagnosis of {found.trace.source}",
        {**sections(found), **more},
        [Figure(heading, draw(found), note) for heading, (draw, note) in pictures.items()],
        [*tables, *numbers],
        [f"Written by `fred diagnose`, FRED {__version__}; digest of the times {found.trace.digest}."],
    )
