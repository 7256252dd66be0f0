"""Twenty questions about the speed of training, predicted from nominal inputs before the measured answers were looked at.

Each question is a scenario of at most fifteen lines in this folder. `asked.csv` has what is asked of its runs: `factor` times the
seconds of a step to the power of `power`. `predicted.csv` was committed before the answers; `measured.csv` has these.
"""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

import fred
from reproductions.common import RESULTS, quiet

FOLDER = Path(__file__).parent
NOW = RESULTS / "questions.csv"


def timing() -> None:
    """Predict all answers with today's FRED."""
    pd.DataFrame(predictions()).to_csv(NOW, index=False, float_format="%.6g")


def training() -> None:
    """Do nothing: there is nothing to train."""


def predictions() -> Iterator[dict[str, object]]:
    """Yield the predicted answer to each part of each question."""
    for question, parts in pd.read_csv(FOLDER / "asked.csv").groupby("question", sort=False):
        summary = quiet(fred.load(FOLDER / f"{question:02}.yaml")).summary.set_index("name")
        for part in parts.itertuples():
            run = summary.loc[part.run]
            seconds_per_step = run["workers"] * run["virtual_seconds"] / run["gradients_applied"]
            yield {"question": question, "run": part.run, "predicted": part.factor * seconds_per_step**part.power}


if __name__ == "__main__":
    pd.DataFrame(predictions()).to_csv(FOLDER / "predicted.csv", index=False, float_format="%.6g")
