"""Cutoff SGD (Teng & Wood 2018), figures 2, 3 and 4: throughput, predictions and convergence with a learned cutoff."""

import pandas as pd

from reproductions.common import RESULTS, ROOT
from reproductions.cutoff import convergence, page, profiles, regime


def timing() -> None:
    """Nothing: every part trains something."""


def training() -> None:
    """About half an hour on two cores: training takes minutes, figure 4 the rest."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    regime.measure()
    profiles.measure()
    convergence.measure(int(pd.read_csv(regime.TRAINING)["static"].iloc[0]))


def report() -> str:
    """Write cutoff.md and its figures from what was measured."""
    rounds, ordered, curves = (pd.read_csv(path) for path in (regime.ROUNDS, profiles.ORDERED, convergence.CURVES))
    regime.figure2(rounds, pd.read_csv(regime.PROFILES)).save(RESULTS / "cutoff-figure2.svg")
    regime.recovery(rounds).save(RESULTS / "cutoff-recovery.svg")
    profiles.figure3(ordered).save(RESULTS / "cutoff-figure3.svg")
    convergence.figure4(curves).save(RESULTS / "cutoff-figure4.svg")
    path = RESULTS / "cutoff.md"
    text = page.text(pd.read_csv(regime.TRAINING).iloc[0], rounds, pd.read_csv(profiles.COVERAGE), curves)
    path.write_text(text, encoding="utf-8")
    return str(path.relative_to(ROOT))
