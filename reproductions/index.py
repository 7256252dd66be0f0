"""The index of all results: the five papers with the numbers of their claims, and the studies with their answers."""

import re

from reproductions.common import ROOT, table
from reproductions.verdicts import REASONS, Reason

PLACE = ROOT / "results" / "README.md"
_PAPERS = {  # page -> the paper, the one figure to see, the scenario to run
    "psp": ("PSP-SGD", "psp-figure3.svg", "psp-sgd/table1"),
    "wagma": ("WAGMA-SGD (Li et al. 2021)", "wagma-figure4.svg", "wagma-sgd/figure4"),
    "backup-workers": (
        "Revisiting distributed synchronous SGD (Chen et al. 2016)",
        "backup-workers-figure8.svg",
        "backup-workers/figure8",
    ),
    "cutoff": ("Cutoff SGD", "cutoff-figure2.svg", "cutoff-sgd/figure2"),
    "fasgd": ("FASGD (Odena 2016)", "fasgd-figure1-published-published.svg", "fasgd/figure1"),
}
_STUDIES = {  # page -> question, answer, how surely, time
    "asynchrony": (
        "Is asynchrony needed?",
        "Seldom: systems without stale gradients take 1.06 times as long; not to wait for particular workers matters more",
        "tuned alike, nine laws of times, intervals over seeds",
        "3 h, one core",
    ),
    "outer-momentum": (
        "Is outer momentum more than a larger step?",
        "Not here: .5 is a larger step, .9 is worse where outer steps are few",
        "17 of 18 cases within .02 nats",
        "1 h, two cores",
    ),
    "asked": (
        "Which clients should a server ask?",
        "FedBuff, where devices differ; spare clients help rounds; open where devices are alike",
        "15 seeds, surely in two of three cases",
        "15 min, one core",
    ),
    "low-communication": (
        "Which low-communication system where?",
        "Decoupled DiLoCo on fast links, Streaming DiLoCo on slow ones",
        "weakly: runs of few rounds, and a margin that was not measured",
        "1 h, two cores",
    ),
    "local-updates": (
        "Do claims made for local updates hold in small models?",
        "Of 134 claims 70 agree, 18 disagree, 46 are open",
        "weakly: many optima lie at the edge of a grid",
        "1 h, one core",
    ),
    "failures": (
        "What does a failure cost?",
        "With checkpoints .51 of the work is kept at one an hour, without stopping .86 to .94",
        "goodput exactly; times to a target hardly, with five seeds",
        "10 min, two cores",
    ),
    "diagnosis": (
        "Do the intervals of `fred diagnose` hold?",
        "In 94 % of clusters with spells, and no verdict is wrong; misses are mostly too low",
        "200 traces of 8 clusters",
        "hours",
    ),
    "coverage": (
        "How often do intervals over seeds hold?",
        "Student's t: 95 % if normal, 82 to 89 % if skewed",
        "by simulation",
        "5 min, one core",
    ),
}
_CLOCK = (
    (
        "[Are times of communication right?](reproductions/measured.md)",
        "in the median NCCL's allreduces and messages within 1 to 2 %, Gloo's within 1 to 7 %, programs in use within 4 %",
    ),
    (
        "[Twenty questions, predicted before the answers were read](reproductions/questions.md)",
        "11 % in the median, 64 % within 20 %",
    ),
    (
        "[Do fitted clusters behave like their traces?](reproductions/fitted.md)",
        "one backup worker gains as much in 44 of 44 clusters",
    ),
    (
        "[Which rule predicts stragglers?](reproductions/predictors.md) [And after a change?](reproductions/changes.md)",
        "`auto` loses more than .02 of the oracle in 5 % of windows",
    ),
)
_NUMBERS = ("claims", "agrees", "disagrees", *Reason, "open", "not compared", "not tried")
_COUNT = re.compile(rf"^\| (?:– )*({'|'.join(_NUMBERS)})(?: \([^|]*)? \| (\d+) \|$", re.MULTILINE)


def text() -> str:
    """Return the page, with the numbers of claims that the papers' pages have now."""
    papers, counts_of_papers = [], []
    for page, (title, figure, scenario) in _PAPERS.items():
        content = (ROOT / "results" / "reproductions" / f"{page}.md").read_text(encoding="utf-8")
        counts = {name: int(number) for name, number in _COUNT.findall(content)}
        numbers = [counts.get(name, 0) for name in _NUMBERS]
        counts_of_papers.append(numbers)
        papers.append(
            (f"[{title}](reproductions/{page}.md)", *numbers, f"[figure](reproductions/{figure})", f"`fred run {scenario}`")
        )
    sums = map(sum, zip(*counts_of_papers, strict=True))
    reasons = [f"– {reason}" for reason in Reason]
    header = ("paper", "claims", "agree", "disagree", *reasons, "open", "not compared", "not tried", "see", "run")
    studies = [(f"[{question}](studies/{page}.md)", *rest) for page, (question, *rest) in _STUDIES.items()]
    return f"""# Results

Made by `python -m reproductions index` from the pages beside it. Everything is simulated, but for the measured times of others.

## The five papers

{table(header, [*papers, ("all", *sums, "", "")])}

A claim *agrees* or *disagrees* by a criterion that its page states; it is *open* if the seeds do not decide, and *not
compared* if choices that the paper leaves open decide it. {REASONS} Each page lists what was calibrated, and gives a reason
for each claim that was not tried.

## The clock

{table(("question", "answer"), _CLOCK)}

## Studies

{table(("question", "answer", "how surely", "takes"), studies)}
"""


def timing() -> None:
    """Do nothing: the pages have the measurements."""


def training() -> None:
    """Do nothing: the pages have the measurements."""


def report() -> str:
    """Write the page; return its path."""
    PLACE.write_text(text(), encoding="utf-8")
    return str(PLACE.relative_to(ROOT))
