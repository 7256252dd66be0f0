"""The page."""

from pathlib import Path

import pandas as pd

from reproductions.asynchronous import large, tuned
from reproductions.common import fill, table, write


def report() -> str:
    """Write asynchronous.md from the measurements."""
    return write("asynchronous", text())


def text() -> str:
    """Return the page."""
    large_runs, tuned_runs = pd.read_csv(large.FILE), pd.read_csv(tuned.FILE)
    header = ("times", "method", "other program, s", "FRED, median, s", "range", "with", "at the grid's edge", "within 10 %")
    points = list(tuned.rows(tuned_runs))
    accuracies = [f"to {law.accuracy:g}" for law in tuned.LAWS.values()]
    return fill(
        Path(__file__).with_name("page.md"),
        large=table(("method", "t, s", "other program", "FRED, mean", "FRED, range", "within 10 %"), large.rows(large_runs)),
        seeds=large_runs["seed"].nunique(),
        spread=table(
            ("m", "t, s", "other program", "FRED, mean", "NumPy, mean", "NumPy, 95 % of seeds", "inside"),
            large.spread(large_runs),
        ),
        tuned=table(header, points),
        agree=sum(row[-1] == "yes" for row in points),
        all=len(points),
        rates=", ".join(f"{rate:g}" for rate in tuned.RATES),
        sizes=", ".join(map(str, tuned.SIZES)),
        points=len(tuned.RATES) * len(tuned.SIZES),
        tuning=len(tuned.TUNING),
        reported=len(tuned.REPORTED),
        edges=sum(row[-2] == "yes" for row in points),
        exact=table(("rate", *accuracies), tuned.exact()),
        fewest=min(steps for _, steps, _ in tuned.exact()),
    )
