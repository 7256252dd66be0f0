"""What the paper says of errors beside figure 5: without delays, with more training or communication, other periods."""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

import fred
from reproductions.common import RESULTS, run, say
from reproductions.wagma.accuracy import SCENARIO

MEASURED = RESULTS / "wagma-further.csv"
TWICE = "reproductions.wagma.twice"
EVEN, LONGER, ONE, DOUBLE = "no delays", "130 epochs", "one neighbour", "communicating twice"
PERIODS = (5, 20, 40)


class Case(NamedTuple):
    """Some runs of figure 5 with something changed."""

    what: str
    folder: str
    runs: Sequence[str]
    settings: Sequence[str]


def period(steps: int) -> str:
    """The name of a case with another period."""
    return f"period {steps}"


CASES = (
    Case(EVEN, "even", ("local-sgd", "wagma", "ad-psgd", "d-psgd", "sgp"), ["cluster.contention=[]"]),
    Case(LONGER, "longer", ("ad-psgd",), [f"stop.gradients={25600 * 130 // 90}"]),
    Case(ONE, "one-neighbour", ("sgp",), ["runs.sgp.protocol.topology.neighbours=1"]),
    Case(DOUBLE, "twice", ("d-psgd",), [f"runs.d-psgd.protocol.name={TWICE}:GossipTwice"]),
    *(Case(period(steps), f"period-{steps}", ("wagma",), [f"runs.wagma.protocol.period={steps}"]) for steps in PERIODS),
)


def measure() -> None:
    """About ten minutes."""
    frames = []
    for case in CASES:
        scenario = fred.load(SCENARIO, ["seeds=[1, 2, 3]", *case.settings], [TWICE])
        metrics = run(scenario, f"wagma/{case.folder}", case.runs).metrics
        own = metrics["replicas_error"].fillna(metrics["error"])  # where all have one model
        frames.append(
            metrics[["run", "seed", "gradients", "virtual_seconds", "error"]].assign(replicas_error=own, case=case.what)
        )
        say(f"wagma: {case.what}")
    pd.concat(frames).to_csv(MEASURED, index=False, float_format="%.6g")


def ends(measured: pd.DataFrame, case: str, run: str, column: str = "error") -> "pd.Series[float]":
    """Return the last values by seed."""
    own = measured[(measured["case"] == case) & (measured["run"] == run)]
    return own.sort_values("gradients").groupby("seed")[column].last()
