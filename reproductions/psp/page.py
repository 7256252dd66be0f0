"""The page: measurements, claim by claim."""

from pathlib import Path

import pandas as pd

from reproductions.common import fill, near, table
from reproductions.psp import errors, times
from reproductions.psp.errors import SPREAD
from reproductions.psp.times import KEEPING, LATE, PARTIAL, PUNCTUAL, TIMEOUTS, name_timeouts, ratios, update_times
from reproductions.verdicts import (
    CRITERION,
    Evidence,
    Measured,
    format_mean,
    judge,
    judge_close,
    judge_less,
    judge_level,
    judge_lower_error,
    judge_rising,
    read_claims,
    tables,
)

CLAIMS = read_claims(Path(__file__).parent)
_MARGIN = errors.PAPER["push-7"] / errors.PAPER["sync"] - 1  # by which errors differ that the paper calls almost the same
_MOST, _COMBINED, _LEAST = "push-7", "push-7-pull-90", "push-5-pull-75"


def text(timed: pd.DataFrame, learned: pd.DataFrame) -> str:
    """Return the page."""
    keep_ratios, seconds = ratios(timed).mean(), errors.ends(learned, LATE, "virtual_seconds")
    return fill(
        Path(__file__).with_name("page.md"),
        **tables(CLAIMS, judge_claims(timed, learned)),
        kept=", ".join(f"{keep_ratios[run + KEEPING]:.3f} ({run})" for run in times.CALIBRATED),
        reduced=f"{times.PAPER['sync'] / times.PAPER[PARTIAL]:.2f}",
        prolonged=f"{_prolonged(timed).mean():.2f}",
        ends=_ends_table(learned),
        criterion=CRITERION,
        margin=f"{_MARGIN:.1%}",
        updates=timed.loc[timed["case"] == LATE, "updates"].max(),
        time_seeds=timed["seed"].nunique(),
        other_seeds=timed.loc[timed["case"] == name_timeouts(TIMEOUTS[0]), "seed"].nunique(),
        error_updates=learned["updates"].max(),
        error_seeds=learned.loc[learned["condition"] == LATE, "seed"].nunique(),
        spread_seeds=learned.loc[learned["condition"] == SPREAD, "seed"].nunique(),
        quicker=f"{1 - (seconds[_COMBINED] / seconds['sync']).mean():.0%}",
    )


def judge_claims(timed: pd.DataFrame, learned: pd.DataFrame) -> Measured:
    """Return the evidence for each claim, by its name."""
    return {
        **_judge_ratios(timed),
        **_judge_delays(timed),
        **_judge_small_shares(learned),
        **_judge_large_shares(timed, learned),
    }


def _judge_ratios(timed: pd.DataFrame) -> Measured:
    measured_ratios, paper = ratios(timed), {run: seconds / times.PAPER["sync"] for run, seconds in times.PAPER.items()}
    return {
        run: Evidence(
            format_mean(measured_ratios[run], ".3f"),
            judge_close(float(measured_ratios[run].mean()), paper[run], times.NEAR / paper[run]),
        )
        for run in times.PAPER
        if run != "sync"
    }


def _prolonged(timed: pd.DataFrame) -> "pd.Series[float]":
    return update_times(timed)["sync"] / update_times(timed, PUNCTUAL)["sync"]


def _judge_delays(timed: pd.DataFrame) -> Measured:
    late, punctual, prolonged = update_times(timed), update_times(timed, PUNCTUAL), _prolonged(timed)
    to_sync, to_itself = ((late[PARTIAL] / other).mean() for other in (punctual["sync"], punctual[PARTIAL]))
    waits = [(late[PARTIAL] / late["sync"]).mean()]
    waits += [(update_times(timed, name_timeouts(seconds))[PARTIAL] / late["sync"]).mean() for seconds in TIMEOUTS]
    idle = [(update_times(timed, times.name_machines(number))["sync"] - times.GRADIENT).mean() for number in times.MACHINES]
    idle.append((late["sync"] - times.GRADIENT).mean())
    sizes, seconds = ", ".join(map(str, (*times.MACHINES, 32))), ", ".join(f"{timeout:g}" for timeout in (0, *TIMEOUTS))
    return {
        "prolonged": Evidence(format_mean(prolonged, ".2f"), judge_close(float(prolonged.mean()), 1.3, times.NEAR / 1.3)),
        "slow": Evidence(f"{prolonged.mean() - 1:+.0%}", judge_less(punctual["sync"], late["sync"])),
        "without": Evidence(f"{to_sync:.2f} of `sync`'s, {to_itself:.2f} of its own", judge(max(to_sync, to_itself) <= 1.05)),
        "pulling": Evidence(f"{(late[PARTIAL] / late['push-28']).mean() - 1:+.0%}", judge_less(late[PARTIAL], late["push-28"])),
        "even-time": Evidence(
            f"{(punctual[PARTIAL] / punctual['sync']).mean() - 1:+.1%}", judge_less(punctual[PARTIAL], punctual["sync"])
        ),
        "timeouts": Evidence(f"{seconds} s: {', '.join(f'{share:.3f}' for share in waits)} of `sync`", judge_rising(waits)),
        "nodes": Evidence(
            f"{sizes} machines: {', '.join(f'{time:.2f}' for time in idle)} s in each update", judge_rising(idle)
        ),
    }


def _ends_table(learned: pd.DataFrame) -> str:
    ends, printed = [errors.ends(learned, condition) for condition in errors.CONDITIONS], errors.PAPER
    rows = [
        [run, f"{printed[run]:.4f}" if run in printed else "–", *(format_mean(end[run]) if run in end else "–" for end in ends)]
        for run in errors.RUNS
    ]
    return table(["run", "paper: late replies", *errors.CONDITIONS], rows)


def _judge_small_shares(learned: pd.DataFrame) -> Measured:
    """Judge small c and b."""
    late, spread = (errors.ends(learned, condition) for condition in (LATE, SPREAD))
    size, paper = float((late[_LEAST] / late["sync"]).mean()), errors.PAPER[_LEAST] / errors.PAPER["sync"]
    return {
        "poor": Evidence(_change(late, _LEAST), judge_lower_error(late["sync"], late[_LEAST])),
        "twice": Evidence(f"{size:.2f} times", judge_close(size, paper, 0.25)),
        "small-c": Evidence(_change(late, "push-5"), judge_lower_error(late["sync"], late["push-5"])),
        "small-b": Evidence(_change(late, "pull-75"), judge_lower_error(late["sync"], late["pull-75"])),
        "small-b-spread": Evidence(_change(spread, "pull-75"), judge_lower_error(spread["sync"], spread["pull-75"])),
    }


def _judge_large_shares(timed: pd.DataFrame, learned: pd.DataFrame) -> Measured:
    """Judge waiting for most."""
    late, punctual = (errors.ends(learned, condition) for condition in (LATE, PUNCTUAL))
    quick, low = float(ratios(timed)[PARTIAL].mean()), judge_level(late[_COMBINED], late["sync"], _MARGIN)
    as_quick = near(quick, times.PAPER[PARTIAL] / times.PAPER["sync"], times.NEAR)
    return {
        "push": Evidence(_change(late, _MOST), judge_level(late[_MOST], late["sync"], _MARGIN)),
        "push-pull": Evidence(_change(late, _COMBINED), low),
        "unharmed": Evidence(_change(late, _COMBINED, _MOST), judge_level(late[_COMBINED], late[_MOST], _MARGIN)),
        "lower": Evidence(_change(late, _COMBINED, _MOST), judge_lower_error(late[_COMBINED], late[_MOST])),
        "even-error": Evidence(_change(punctual, _COMBINED), judge_level(punctual[_COMBINED], punctual["sync"], _MARGIN)),
        "effective": Evidence(
            f"{(late[_COMBINED] / punctual[_COMBINED]).mean() - 1:+.1%}",
            judge_level(late[_COMBINED], punctual[_COMBINED], _MARGIN),
        ),
        "much-faster": Evidence(f"{quick - 1:+.0%} time, {_change(late, _COMBINED)} error", low if as_quick else judge(False)),
    }


def _change(ends: pd.DataFrame, run: str, other: str = "sync") -> str:
    return f"{(ends[run] / ends[other]).mean() - 1:+.1%}"
