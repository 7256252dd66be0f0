"""The page: the paper's claims, and tables of measurements."""

import math
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from reproductions.common import fill, table
from reproductions.cutoff import claims, convergence, further, profiles, regime
from reproductions.cutoff.regime import find_recoveries, shares
from reproductions.verdicts import CRITERION, Measured, read_claims, tables

CLAIMS = read_claims(Path(__file__).parent)
_LOSSES = (0.5, 0.3, 0.2, 0.15)


class Files(NamedTuple):
    """The CSV files beside the page."""

    training: pd.DataFrame
    rounds: pd.DataFrame
    profiles: pd.DataFrame
    coverage: pd.DataFrame
    curves: pd.DataFrame
    decisions: pd.DataFrame
    network: pd.DataFrame


def read_files() -> Files:
    """Read the last measurements."""
    return Files(
        training=pd.read_csv(regime.TRAINING),
        rounds=pd.read_csv(regime.ROUNDS),
        profiles=pd.read_csv(regime.PROFILES),
        coverage=pd.read_csv(profiles.COVERAGE),
        curves=pd.read_csv(convergence.CURVES),
        decisions=pd.read_csv(further.DECISIONS),
        network=pd.read_csv(further.NETWORK),
    )


def text(files: Files) -> str:
    """Return the page."""
    training, rounds, curves = files.training.iloc[0], files.rounds, files.curves
    ratio = files.coverage.groupby("workers")["ratio"].mean()
    seconds, hours = claims.costs_of_a_cnn(files.network, curves)
    windows = [f"{name}, of the oracle" for name in claims.WINDOWS]
    return fill(
        Path(__file__).with_name("page.md"),
        **tables(CLAIMS, judge_claims(files)),
        criterion=CRITERION,
        seeds=rounds["seed"].nunique(),
        variant_seeds=rounds.loc[rounds["rule"] == "dmm-plain", "seed"].nunique(),
        fewer_seeds=curves.loc[(curves["optimizer"] == "adam") & (curves["run"] == "wild"), "seed"].nunique(),
        learning_seeds=curves["seed"].nunique(),
        ratios=", ".join(f"{ratio[workers]:.3f} ({workers:,} workers)" for workers in (158, 2175)),
        rules=table(["rule", *windows, "near the maximum again from"], _rules(rounds)),
        plain=_times(curves, "sgd"),
        adam=_times(curves, "adam"),
        each=seconds,
        hours=hours,
        measured=files.network["rounds"].max() - files.network["rounds"].min(),
        static=int(training["static"]),
        near=f"{regime.NEAR:.0%}",
        steady=regime.STEADY,
        rates=convergence.RATES,
    )


def judge_claims(files: Files) -> Measured:
    """Return the evidence for each claim, by its name."""
    return {
        **claims.facts(files.training.iloc[0]),
        **claims.throughput(files.rounds),
        **claims.stragglers(files.rounds, files.profiles),
        **claims.predictions(files.coverage, files.rounds, files.decisions),
        **claims.learning(files.curves),
    }


def _rules(rounds: pd.DataFrame) -> list[list[object]]:
    windows = [shares(rounds, *window) for window in claims.WINDOWS.values()]
    return [
        [f"`{name}`", *(f"{window[name]:.3f}" for window in windows), claims.list_iterations(find_recoveries(rounds, name))]
        for name in regime.RULES
    ]


def _times(curves: pd.DataFrame, optimizer: str) -> str:
    """Return the times, s, at which each run first reached some losses, and its last loss."""
    rows = []
    for run in convergence.RUNS:
        times = [convergence.time_to_loss(curves, optimizer, run, loss) for loss in _LOSSES]
        end = convergence.average_ends(curves, optimizer, run)
        cells = ["–" if math.isnan(time) else f"{time:.0f}" for time in times]
        rows.append([run, *cells, f"{end['updates']:.0f}", f"{end['loss']:.4f}", f"{end['error']:.2%}"])
    return table(["run", *(f"s to loss {loss:g}" for loss in _LOSSES), "updates", "last loss", "last error"], rows)
