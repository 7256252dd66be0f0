"""Claims about errors next to figure 5: without delays, more training or communication, other periods, spread times."""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from reproductions.common import RESULTS, Seeds, last_values, say
from reproductions.wagma.accuracy import SEEDS, errors_of

MEASURED = RESULTS / "wagma-further.csv"
TWICE = "reproductions.wagma.twice"
NO_DELAYS, LONGER, ONE_NEIGHBOUR, DOUBLE = "no delays", "130 epochs", "one neighbour", "communicating twice"
MIX_FIRST, DOUBLE_MIX_FIRST = "models mixed before the update", "communicating twice, before the update"
PERIODS = (5, 20, 40)
LATE = 5  # ms: the spread with which every order is judged as well
SPREADS = (1, LATE, 20)  # ms
_RUNS = ("local-sgd", "allreduce", "d-psgd", "sgp", "eager-sgd", "ad-psgd", "wagma", "wagma-fixed", "wagma-64", "wagma-4")
_NEVER_LATE = "cluster.contention=[]"
FEW = range(1, 6)  # seeds of what no close claim is about


class Case(NamedTuple):
    """Some runs of figure 5 with something changed."""

    name: str
    folder: str
    runs: Sequence[str]
    settings: Sequence[str]
    close: Sequence[str] = ()  # runs about which claims are close: with all seeds


def period(steps: int) -> str:
    """Return the name of a case with another period."""
    return f"period {steps}"


def spread(milliseconds: int, delays: bool = True) -> str:
    """Return the name of a case with compute times that vary by this standard deviation, ms."""
    return f"times spread by {milliseconds} ms" + ("" if delays else ", no delays")


def _spread(milliseconds: int, runs: Sequence[str], delays: bool = True, close: Sequence[str] = ()) -> Case:
    settings = [f"cluster.compute={{name: normal, mu: 0.341, sigma: {milliseconds / 1000}}}"]
    settings += [] if delays else [_NEVER_LATE]
    folder = f"spread-{milliseconds}" + ("" if delays else "-even")
    return Case(spread(milliseconds, delays), folder, runs, settings, close)


_TWICE = f"runs.d-psgd.protocol.name={TWICE}:GossipTwice"
_BEFORE = "runs.d-psgd.protocol.order=mix-first"
CASES = (
    Case(NO_DELAYS, "even", ("local-sgd", "wagma", "ad-psgd", "d-psgd", "sgp"), [_NEVER_LATE], close=("wagma", "ad-psgd")),
    Case(LONGER, "longer", ("ad-psgd",), [f"stop.gradients={25600 * 130 // 90}"]),
    Case(ONE_NEIGHBOUR, "one-neighbour", ("sgp",), ["runs.sgp.protocol.topology.neighbours=1"]),
    Case(DOUBLE, "twice", ("d-psgd",), [_TWICE]),
    Case(MIX_FIRST, "mix-first", ("d-psgd",), [_BEFORE], ("d-psgd",)),
    Case(DOUBLE_MIX_FIRST, "twice-mix-first", ("d-psgd",), [_TWICE, _BEFORE]),
    *(Case(period(steps), f"period-{steps}", ("wagma",), [f"runs.wagma.protocol.period={steps}"]) for steps in PERIODS),
    _spread(1, ("wagma",)),
    _spread(LATE, _RUNS, close=("wagma", "wagma-fixed", "wagma-4")),
    _spread(20, ("wagma",)),
    _spread(LATE, ("wagma", "ad-psgd"), delays=False, close=("wagma",)),
)


def measure(add: bool = False) -> None:
    """Measure errors in all cases: forty minutes on a core; with `add` only the seeds that the file lacks."""
    measured = Seeds(MEASURED, ("case", "run"), add)
    for case in CASES:
        for run in case.runs:
            if seeds := measured.missing(SEEDS if run in case.close else FEW, case=case.name, run=run):
                errors = errors_of([*case.settings, f"seeds={seeds}"], f"{case.folder}-{run}", [run], [TWICE])
                measured.add(errors.assign(case=case.name), "%.6g")
        say(f"wagma: {case.name}")


def ends(measured: pd.DataFrame, case: str, run: str, column: str = "error") -> "pd.Series[float]":
    """Return the last values by seed."""
    return last_values(measured[(measured["case"] == case) & (measured["run"] == run)], column, "gradients")[run]


def by_seed(measured: pd.DataFrame, case: str) -> pd.DataFrame:
    """Return the last errors of a case: a row for each seed, a column for each run."""
    return last_values(measured[measured["case"] == case], "error", "gradients")
