"""The table that a reader takes home: one system beside another, in a line."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fred.base import intervals
from studies.local_updates.compared import Found

HEADER = ("this, instead of that", "compared by", "digits", "grammar")


class Line(NamedTuple):
    """A comparison of two systems.

    Args:
        systems: the two, in words.
        measure: quantity by which they are compared, in words.
        experiment: name of the experiment.
        digits: claim of this experiment on digits, whose contrast the cell shows.
        grammar: claim on the grammar; empty if it was not measured there.
    """

    systems: str
    measure: str
    experiment: str
    digits: str
    grammar: str = ""


_ROUNDS = "{} is at the target before rounds that wait for all"
LINES = (
    Line(
        "DiLoCo with momentum 0.9, instead of plain averages, 6 or 4 rounds",
        "loss",
        "rounds",
        "outer momentum helps, H = 100",
        "outer momentum helps, H = 40",
    ),
    Line("the same, 30 or 16 rounds", "loss", "rounds", "outer momentum helps, H = 20", "outer momentum helps, H = 10"),
    Line(
        "Muon inside, instead of AdamW",
        "loss",
        "rounds",
        "Muon inside is better than AdamW, H = 20",
        "Muon inside is better than AdamW, H = 10",
    ),
    Line(
        "Streaming DiLoCo in halves over slow links, instead of DiLoCo over free ones",
        "time",
        "overlap",
        *["... cut into halves it hides 16 steps"] * 2,
    ),
    Line("the same", "loss", "overlap", *["... at nearly no loss (0.02), in halves, transfer 16"] * 2),
    Line(
        "Eager DiLoCo over slow links, instead of DiLoCo over free ones",
        "loss",
        "overlap",
        *["Eager does so at nearly no loss (0.02)"] * 2,
    ),
    Line(
        "delayed Nesterov, instead of rounds; four speeds",
        "time to a loss",
        "arrivals",
        *[_ROUNDS.format("delayed Nesterov")] * 2,
    ),
    Line("FedBuff, instead of rounds; four speeds", "time to a loss", "arrivals", *[_ROUNDS.format("FedBuff")] * 2),
    Line(
        "A-EDiT, instead of DiLoCo; one worker six times as slow",
        "time to a loss",
        "unequal speeds",
        "A-EDiT, which synchronizes by time, is at the target before DiLoCo",
    ),
    Line(
        "NoLoCo, instead of DiLoCo; one slow link", "time to a loss", "one slow link", "NoLoCo is at the target before DiLoCo"
    ),
    Line(
        "DiLoCo, instead of an allreduce of every gradient; slow links",
        "time to a loss",
        "few bytes",
        "DiLoCo is before allreduces of gradients",
    ),
    Line(
        "DeMo, instead of an allreduce of every gradient; slow links",
        "time to a loss",
        "few bytes",
        "DeMo is at the target before allreduces of gradients",
    ),
    Line("SparseLoCo, instead of DiLoCo; slow links", "time to a loss", "few bytes", "SparseLoCo is before DiLoCo"),
    Line(
        "Decoupled DiLoCo, instead of rounds; 8 learners that crash",
        "loss",
        "crashes",
        "... and below that of 8 that wait for all",
    ),
)


def rows(found: Mapping[tuple[str, str, str], Found]) -> Iterator[list[object]]:
    """Yield the rows of the table.

    Args:
        found: every claim's result, by experiment, task and words of the claim.
    """
    for line in LINES:
        cells = [
            _cell(found[line.experiment, task, said]) if said else ""
            for task, said in (("digits", line.digits), ("grammar", line.grammar))
        ]
        yield [line.systems, line.measure, *cells]


def _cell(found: Found) -> str:
    """Return a contrast, bold if its interval excludes that both are equal."""
    return f"**{found.said}**" if intervals.verdict((found.low, found.high)) != intervals.Verdict.OPEN else found.said
