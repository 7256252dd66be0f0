"""Twenty questions about the speed of training, predicted from nominal inputs before the measured answers were read.

Each question is a scenario of at most fifteen lines in this folder. `asked.csv` defines the answers that its runs give:
`factor` times the seconds of a step to the power of `power`. `predicted.csv` has the answers of the scenarios when they were
committed, before those in `measured.csv` were added.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

import fred
from fred.views import figures
from fred.views.figures import Picture
from reproductions.common import RESULTS, fill, quiet, store, table, write

FOLDER = Path(__file__).parent
NOW = RESULTS / "questions.csv"
NEAR = 0.2
_KEYS = ["question", "run"]


def timing() -> None:
    """Predict all answers with today's FRED."""
    store(NOW, predictions())


def report() -> str:
    """Write the page and its figure; return the page's path."""
    parts = pd.read_csv(FOLDER / "asked.csv").merge(pd.read_csv(FOLDER / "measured.csv"), on=_KEYS)
    parts = parts.merge(pd.read_csv(FOLDER / "predicted.csv"), on=_KEYS)
    parts = parts.merge(pd.read_csv(NOW).rename(columns={"predicted": "now"}), on=_KEYS)
    picture(parts).save(RESULTS / "questions.svg")
    return write("questions", text(parts))


def predictions() -> Iterator[dict[str, object]]:
    """Yield the predicted answer to each part of each question."""
    parts = pd.read_csv(FOLDER / "asked.csv")
    for question in parts["question"].unique():
        summary = quiet(fred.load(FOLDER / f"{question:02}.yaml")).summary.set_index("name")
        seconds_per_step = summary["workers"] * summary["virtual_seconds"] / summary["gradients_applied"]
        for part in parts[parts["question"] == question].to_dict("records"):
            predicted = part["factor"] * seconds_per_step[part["run"]] ** part["power"]
            yield {"question": question, "run": part["run"], "predicted": predicted}


def text(parts: pd.DataFrame) -> str:
    """Return the page: the verdict first, then every answer."""
    errors = parts["predicted"] / parts["measured"] - 1
    errors_now = parts["now"] / parts["measured"] - 1
    share, share_now = (100 * np.mean(values.abs() <= NEAR) for values in (errors, errors_now))
    rows = [
        (
            part["question"],
            fred.load(FOLDER / f"{part['question']:02}.yaml").title,
            part["asked"],
            f"{_digits(part['predicted'])} {part['unit']}",
            _digits(part["measured"]),
            f"{100 * error:+.0f} %",
            part["source"],
        )
        for part, error in zip(parts.to_dict("records"), errors, strict=True)
    ]
    return fill(
        FOLDER / "page.md",
        error=100 * errors.abs().median(),
        share=share,
        count=len(parts),
        near=100 * NEAR,
        error_now=100 * errors_now.abs().median(),
        share_now=share_now,
        answers=table(("", "question", "asked", "predicted", "measured", "error", "source"), rows),
    )


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def picture(parts: pd.DataFrame) -> Picture:
    """Draw the ratio of predicted to measured answers, by question."""
    with figures.style():
        figure = Picture(figsize=(7.2, 3.6), layout="constrained")
        axis = figure.subplots()
        axis.axhspan(1 / (1 + NEAR), 1 + NEAR, color="0.92", zorder=0)
        axis.axhline(1, color="0.5", linewidth=0.8)
        axis.plot(parts["question"], parts["predicted"] / parts["measured"], "o", color="#0072B2", markersize=4.5)
        ratios = (0.5, 0.7, 1, 1.4, 2)
        axis.set(yscale="log", xlabel="question", ylabel="predicted / measured", ylim=(0.38, 2.2), xticks=range(1, 21))
        axis.set_yticks(ratios, [str(ratio) for ratio in ratios])
        axis.minorticks_off()
        return figure
