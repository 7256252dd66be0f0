"""The page: measurements, claim by claim."""

from pathlib import Path

import pandas as pd

from reproductions.common import near, table
from reproductions.psp import errors, times
from reproductions.psp.errors import SPREAD
from reproductions.psp.text import TEXT
from reproductions.psp.times import EVEN, KEEPING, LATE, PARTIAL, TIMEOUTS, ratios, update_times, waiting
from reproductions.verdicts import CRITERION, Found, Measured, close, less, level, read, rising, shown, tables, whether

CLAIMS = read(Path(__file__).parent)
_MARGIN = errors.PAPER["push-7"] / errors.PAPER["sync"] - 1  # by which errors differ that the paper calls almost the same
_MOST, _BOTH, _LEAST = "push-7", "push-7-pull-90", "push-5-pull-75"


def text(timed: pd.DataFrame, learned: pd.DataFrame) -> str:
    """The whole page."""
    kept, seconds = ratios(timed).mean(), errors.ends(learned, LATE, "virtual_seconds")
    return TEXT.format(
        **tables(CLAIMS, measured(timed, learned)),
        kept=", ".join(f"{kept[run + KEEPING]:.3f} ({run})" for run in times.CALIBRATED),
        reduced=f"{times.PAPER['sync'] / times.PAPER[PARTIAL]:.2f}",
        prolonged=f"{_prolonged(timed).mean():.2f}",
        ends=_ends(learned),
        criterion=CRITERION,
        margin=f"{_MARGIN:.1%}",
        updates=timed.loc[timed["case"] == LATE, "updates"].max(),
        time_seeds=timed["seed"].nunique(),
        other_seeds=timed.loc[timed["case"] == waiting(TIMEOUTS[0]), "seed"].nunique(),
        error_updates=learned["updates"].max(),
        error_seeds=learned.loc[learned["condition"] == LATE, "seed"].nunique(),
        spread_seeds=learned.loc[learned["condition"] == SPREAD, "seed"].nunique(),
        quicker=f"{1 - (seconds[_BOTH] / seconds['sync']).mean():.0%}",
    )


def measured(timed: pd.DataFrame, learned: pd.DataFrame) -> Measured:
    """Return the measured value of each claim."""
    return {**_ratios(timed), **_delays(timed), **_small(learned), **_mild(timed, learned)}


def _ratios(timed: pd.DataFrame) -> Measured:
    own, paper = ratios(timed), {run: seconds / times.PAPER["sync"] for run, seconds in times.PAPER.items()}
    return {
        run: Found(shown(own[run], ".3f"), close(float(own[run].mean()), paper[run], times.NEAR / paper[run]))
        for run in times.PAPER
        if run != "sync"
    }


def _prolonged(timed: pd.DataFrame) -> "pd.Series[float]":
    return update_times(timed)["sync"] / update_times(timed, EVEN)["sync"]


def _delays(timed: pd.DataFrame) -> Measured:
    late, even, prolonged = update_times(timed), update_times(timed, EVEN), _prolonged(timed)
    to_sync, to_itself = ((late[PARTIAL] / other).mean() for other in (even["sync"], even[PARTIAL]))
    waits = [(late[PARTIAL] / late["sync"]).mean()]
    waits += [(update_times(timed, waiting(seconds))[PARTIAL] / late["sync"]).mean() for seconds in TIMEOUTS]
    idle = [(update_times(timed, times.machines(number))["sync"] - times.GRADIENT).mean() for number in times.MACHINES]
    idle.append((late["sync"] - times.GRADIENT).mean())
    sizes, seconds = ", ".join(map(str, (*times.MACHINES, 32))), ", ".join(f"{each:g}" for each in (0, *TIMEOUTS))
    return {
        "prolonged": Found(shown(prolonged, ".2f"), close(float(prolonged.mean()), 1.3, times.NEAR / 1.3)),
        "slow": Found(f"{prolonged.mean() - 1:+.0%}", less(even["sync"], late["sync"])),
        "without": Found(f"{to_sync:.2f} of `sync`'s, {to_itself:.2f} of its own", whether(max(to_sync, to_itself) <= 1.05)),
        "pulling": Found(f"{(late[PARTIAL] / late['push-28']).mean() - 1:+.0%}", less(late[PARTIAL], late["push-28"])),
        "even-time": Found(f"{(even[PARTIAL] / even['sync']).mean() - 1:+.1%}", less(even[PARTIAL], even["sync"])),
        "timeouts": Found(f"{seconds} s: {', '.join(f'{each:.3f}' for each in waits)} of `sync`", rising(waits)),
        "nodes": Found(f"{sizes} machines: {', '.join(f'{each:.2f}' for each in idle)} s in each update", rising(idle)),
    }


def _ends(learned: pd.DataFrame) -> str:
    ends, known = [errors.ends(learned, condition) for condition in errors.CONDITIONS], errors.PAPER
    rows = [
        [run, f"{known[run]:.4f}" if run in known else "–", *(shown(own[run]) if run in own else "–" for own in ends)]
        for run in errors.RUNS
    ]
    return table(["run", "paper: late replies", *errors.CONDITIONS], rows)


def _small(learned: pd.DataFrame) -> Measured:
    """Judge small c and b."""
    late, spread = (errors.ends(learned, condition) for condition in (LATE, SPREAD))
    size, paper = float((late[_LEAST] / late["sync"]).mean()), errors.PAPER[_LEAST] / errors.PAPER["sync"]
    return {
        "poor": Found(_beside(late, _LEAST), less(late["sync"], late[_LEAST])),
        "twice": Found(f"{size:.2f} times", close(size, paper, 0.25)),
        "small-c": Found(_beside(late, "push-5"), less(late["sync"], late["push-5"])),
        "small-b": Found(_beside(late, "pull-75"), less(late["sync"], late["pull-75"])),
        "small-b-spread": Found(_beside(spread, "pull-75"), less(spread["sync"], spread["pull-75"])),
    }


def _mild(timed: pd.DataFrame, learned: pd.DataFrame) -> Measured:
    """Judge waiting for most."""
    late, even = (errors.ends(learned, condition) for condition in (LATE, EVEN))
    quick, low = float(ratios(timed)[PARTIAL].mean()), level(late[_BOTH], late["sync"], _MARGIN)
    as_quick = near(quick, times.PAPER[PARTIAL] / times.PAPER["sync"], times.NEAR)
    return {
        "push": Found(_beside(late, _MOST), level(late[_MOST], late["sync"], _MARGIN)),
        "push-pull": Found(_beside(late, _BOTH), low),
        "unharmed": Found(_beside(late, _BOTH, _MOST), level(late[_BOTH], late[_MOST], _MARGIN)),
        "lower": Found(_beside(late, _BOTH, _MOST), less(late[_BOTH], late[_MOST])),
        "even-error": Found(_beside(even, _BOTH), level(even[_BOTH], even["sync"], _MARGIN)),
        "effective": Found(f"{(late[_BOTH] / even[_BOTH]).mean() - 1:+.1%}", level(late[_BOTH], even[_BOTH], _MARGIN)),
        "much-faster": Found(f"{quick - 1:+.0%} time, {_beside(late, _BOTH)} error", low if as_quick else whether(False)),
    }


def _beside(ends: pd.DataFrame, run: str, other: str = "sync") -> str:
    return f"{(ends[run] / ends[other]).mean() - 1:+.1%}"
