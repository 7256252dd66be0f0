"""Linear and logarithmic axes: when small values need a logarithmic axis, and the format of the numbers."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

_DECADES = 3.0  # from this span on, only powers of ten get a tick


def plain_logarithmic(axis: Axes, which: str, decades: float = 1) -> None:
    """Make an axis logarithmic, with numbers in plain notation.

    Values that are not above 0 are left out of an `x` axis, and lie below the visible part of a `y` axis.

    Args:
        axis: the panel.
        which: `x` or `y`.
        decades: number of decades that the axis spans; from three on, only powers of ten get a tick.
    """
    getattr(axis, f"set_{which}scale")("log", nonpositive="mask" if which == "x" else "clip")
    own = getattr(axis, f"{which}axis")
    own.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < _DECADES else (1,)))
    own.set_minor_locator(NullLocator())
    own.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def counted(own: Axis) -> None:
    """Give a linear axis few ticks, with numbers written out in full.

    Args:
        own: the axis, `xaxis` or `yaxis` of a panel.
    """
    own.set_major_locator(MaxNLocator(5, steps=(1, 2, 2.5, 5, 10)))
    own.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def far_apart(values: pd.Series, times: float = 6) -> bool:
    """Return True if a linear axis would hide the small values.

    Args:
        values: the values; those that are not finite or not above 0 are ignored.
        times: ratio of the largest to the smallest value above which this is so.

    >>> far_apart(pd.Series([1.0, 2.0, 5.0])), far_apart(pd.Series([0.01, 2.0, np.inf]))
    (False, True)
    """
    positive = values[np.isfinite(values) & (values > 0)]
    return bool(len(positive) and positive.max() > times * positive.min())
