"""The page."""

import numpy as np
import pandas as pd

from reproductions.asynchronous import by_numpy, large, tuned
from reproductions.common import table, write


def report() -> str:
    """Write asynchronous.md from what was measured."""
    return write("asynchronous", text())


def text() -> str:
    """The page."""
    found = pd.read_csv(large.FILE)
    described, zero = tuned.AS_DESCRIBED, tuned.FROM_ZERO
    header = ("times", "method", "other program, s", "FRED, median, s", "range", "with", "within 10 %")
    rates = np.arange(0.05, 2.0, 0.05)
    fewest = {first: min((by_numpy.rounds(first, rate), rate) for rate in rates) for first in (0.0, 32**0.5)}
    return _TEXT.format(
        large=table(("method", "t, s", "other program", "FRED, mean", "FRED, range", "within 10 %"), large.rows(found)),
        seeds=found["seed"].nunique(),
        spread=table(
            ("m", "t, s", "other program", "FRED, mean", "NumPy, mean", "NumPy, 95 % of seeds", "inside"), large.spread(found)
        ),
        described=table(header, tuned.rows(pd.read_csv(described.file))),
        zero=table(header, tuned.rows(pd.read_csv(zero.file))),
        grid=len(described.rates) * len(described.sizes),
        wide=len(zero.rates) * len(zero.sizes),
        fewest=fewest[32**0.5][0],
        best=fewest[32**0.5][1],
        from_zero=fewest[0.0][0],
        slower=by_numpy.rounds(0.0, 1.25),
        slowest=by_numpy.rounds(0.0, 1.0),
        exact=table(("rate", "from sqrt(32) e1", "from 0"), tuned.exact()),
    )


_TEXT = """# Asynchronous methods on a quadratic

Made by `python -m reproductions asynchronous` from the CSV files beside this page. The function is the worst case by which
the authors of Rennala and Ringmaster compare: f(x) = x'Ax / 2 - b'x with A = tridiag(-1, 2, -1) / 4. The numbers of the
other program were made by one that shares no code with FRED, after the authors' published scripts, with one seed.

## 6,174 workers

d = 1,729. A gradient of worker i takes 1 + sqrt(i) + sqrt(i + 1) |N(0, 1)| s, drawn anew each time; to all of its
coordinates the same N(0, 0.01^2) is added. f - min f after 100 and 500 s of virtual time, {seeds} seeds:

{large}

Where it says "no" the other program's one seed decides. A third program, in NumPy, ran m-sync with 200 seeds:

{spread}

"Inside": the other program's number is among the middle 95 % of these seeds, so it is what m-sync gives with one seed or
another.

## Tuned, from sqrt(d) e1

100 workers, d = 32, noise of 0.01 in each coordinate: seconds until the squared gradient is first at most 0.001, looked at
after each update. Each method had the same grid of {grid} points; the best on seeds 1 to 3, by the median, is reported on
five other seeds.

{described}

Where worker i takes i s m-sync and Rennala are as fast as in the other program, and Ringmaster is faster. Where all take 1 s
the other program's 12 s are impossible from this start: m-sync makes one step each second, and gradient descent without any
noise needs {fewest} at its best rate ({best:.3g}). From 0 it would need {from_zero}. Steps needed without noise:

{exact}

## Tuned, from 0

The same from x = 0, with a grid of {wide} points for each method:

{zero}

No one start gives all six of the other program's numbers: those where worker i takes i s come, but for Ringmaster's, from
sqrt(d) e1, from where those where all take 1 s cannot come; from 0 the latter are nearer, and the former all faster. Of
m-sync with equal times 12 s is what it would take from 0 with a rate between 1.25 and 1 ({slower} and {slowest} steps without
noise). So its starts, or its grids, were others than are described: what they were cannot be told from here.
"""
