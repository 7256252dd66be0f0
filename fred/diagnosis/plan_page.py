"""The HTML page of a plan: the answer and its doubts, the ranking, and where time is lost."""

from collections.abc import Iterator

from fred.base.version import __version__
from fred.diagnosis import ranking_tables
from fred.diagnosis.answer_page import Figure, answer_page
from fred.diagnosis.ranking_tables import Answer
from fred.diagnosis.trade_off_figure import picture
from fred.views.table import Table


def page(answer: Answer) -> str:
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
        f"Plan for {answer.about}",
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
    if answer.lost is not None:
        yield ranking_tables.lost_table(answer.lost, answer)
