"""The index of all results: the five papers with the numbers of their claims, and the studies with their answers."""

import re

from reproductions.common import ROOT, table, write_page
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
_STUDIES = {  # page, in results/studies unless it has a folder -> question, answer, how surely, time
    "asynchrony": (
        "Is asynchrony needed?",
        "By law: without stale gradients slower under two of nine, 1.13 and 1.34 times; rounds under three, 1.33 to 1.83",
        "surely in these; for another law nothing: 1.06 (.95 to 1.19), 1.16 (.97 to 1.38)",
        "3 h, one core",
    ),
    "outer-momentum": (
        "Is outer momentum more than a larger step?",
        "Hardly: .5 changes the loss by .015 nats at most, .9 is worse where outer steps are few",
        "15 of 17 cases within .02 nats, though 11 intervals exclude 0",
        "1 h, two cores",
    ),
    "asked": (
        "Which clients should a server ask?",
        "FedBuff where devices differ, also with as many clients at work as rounds; spare clients help rounds; else open",
        "5 seeds; of three cases whose devices differ surely in two, in the third the tuning of rounds failed",
        "16 min, one core",
    ),
    "low-communication": (
        "Which low-communication system where?",
        "Streaming DiLoCo on slow links; one worker slow: Decoupled DiLoCo, or DiLoCo by time",
        "20 rounds or more, margin .01 nats from repeated searches; one small convex model, four workers",
        "10 min, one core",
    ),
    "local-updates": (
        "Do claims made for local updates hold in small models?",
        "Of 45 claims of papers 29 agree, 6 disagree, 10 are open; DiLoCo x .22 of an allreduce's time, both with AdamW",
        "5 seeds, one optimizer on both sides, no optimum at an edge",
        "30 min, one core",
    ),
    "failures": (
        "What does a failure cost?",
        "At one an hour checkpoints keep .50 of the work, going on .84 to .93; one costs 46 min with checkpoints, 8 without",
        "work within .03; a cost within 5 to 12 min, but 30 for two DiLoCo",
        "25 min, one core",
    ),
    "../docs/how-to/use-a-trace": (
        "Do the intervals of `fred diagnose` hold?",
        "In 94 % of records with spells, and no verdict is wrong; 11 of 12 misses are too low",
        "200 traces of 8 clusters, 84 % in the worst of them",
        "10 min, one core",
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
    places = [page if "/" in page else f"studies/{page}" for page in _STUDIES]
    studies = [(f"[{question}]({place}.md)", *rest) for place, (question, *rest) in zip(places, _STUDIES.values(), strict=True)]
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


def report() -> str:
    """Write the page; return its path."""
    return write_page(PLACE, text())
