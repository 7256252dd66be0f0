"""What reproductions share: runs on all cores into folders that are gone on from, Markdown tables, progress lines."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import fred
from fred.results import report
from fred.running.cores import cores
from fred.specification.loading import Scenario

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "reproductions"
_STARTED = time.monotonic()


def say(text: str) -> None:
    """A progress line with the time since the start."""
    print(f"[{time.monotonic() - _STARTED:6.0f} s] {text}", flush=True)


def run(scenario: Scenario, folder: str, only: Sequence[str] = ()) -> fred.Result:
    """A scenario's units (or those of some runs), on all cores; what this folder of results has already is not done again."""
    with report.progress(len(only or scenario.runs) * len(scenario.seeds)) as progress:
        return fred.run(scenario, only, out=ROOT / "results" / folder, jobs=cores(), progress=progress)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; numbers to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    numeric = [all(row[i][:1].isdigit() or row[i][:1] in ".-–+" for row in cells) for i in range(len(header))]
    rule = ["---:" if right else "---" for right in numeric]
    return "\n".join("| " + " | ".join(row) + " |" for row in (list(header), rule, *cells))


class Stated(NamedTuple):
    """One claim of a paper, and what became of it."""

    claim: str
    where: str
    paper: str
    fred: str = "–"  # nothing was measured
    agrees: bool | None = None  # None: not compared, or calibrated
    how: str = ""  # the criterion; what it was calibrated on; or why nothing was measured, or could be compared
    calibrated: bool = False

    @property
    def verdict(self) -> str:
        """In a word or two."""
        if self.fred == "–":
            return "not tried"
        if self.calibrated:
            return "calibrated"
        return {True: "agrees", False: "disagrees", None: "not compared"}[self.agrees]


def every_claim(stated: Sequence[Stated]) -> str:
    """A table of all claims of a paper, and how many of them came to what."""
    cells = [(each.claim, each.where, each.paper, each.fred, each.verdict, each.how) for each in stated]
    counts = Counter(each.verdict for each in stated)
    measured = len(stated) - counts["not tried"]
    words = ("agrees", "disagrees", "calibrated", "not compared")
    kinds = ", ".join(f"{counts[word]} {said}" for word, said in zip(words, _SAID, strict=True))
    why = Counter(each.how for each in stated if each.verdict == "not tried")
    reasons = "; ".join(f"{count}: {reason}" for reason, count in why.most_common())
    header = ("claim", "where", "paper", "FRED", "verdict", "judged by, or why not")
    return "\n".join(
        (
            table(header, cells),
            "",
            f"**{len(stated)} claims, {measured} measured**: {kinds}.",
            f"**{counts['not tried']} not tried**{' (' + reasons + ')' if reasons else ''}.",
        )
    )


_SAID = ("agree", "disagree", "were calibrated on", "not compared")


def near(measured: float, paper: float, share: float) -> bool:
    """Whether a number is within this share of the paper's."""
    return abs(measured - paper) <= share * abs(paper)


def write(page: str, text: str) -> str:
    """Write a page; its path, from the repository on."""
    path = RESULTS / f"{page}.md"
    path.write_text(text, encoding="utf-8")
    return str(path.relative_to(ROOT))


def quiet(scenario: Scenario, only: Sequence[str] = ()) -> fred.Result:
    """A scenario of timing alone, in memory; a line for each run that is done."""
    return fred.run(scenario, only, progress=lambda run, seed, done: say(f"{run}, seed {seed}") if done == 1.0 else None)
