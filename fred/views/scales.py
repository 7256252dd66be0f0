"""Linear or logarithmic: which axis shows the small values too, and how its numbers are written."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

_DECADES = 3.0  # from which on only powers of ten have room


def plain_logarithmic(axis: Axes, which: str, decades: float = 1) -> None:
    """A logarithmic axis with numbers as people write them; what is not above 0 is not drawn, or below
    all that is shown.

    Args:
        axis: the panel.
        which: `x` or `y`.
        decades: that it spans; of three and more only powers of ten have a tick.
    """
    getattr(axis, f"set_{which}scale")("log", nonpositive="mask" if which == "x" else "clip")
    own = getattr(axis, f"{which}axis")
    own.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < _DECADES else (1,)))
    own.set_minor_locator(NullLocator())
    own.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def counted(own: Axis) -> None:
    """A linear axis of few numbers, all written out.

    Args:
        own: the axis, `xaxis` or `yaxis` of a panel.
    """
    own.set_major_locator(MaxNLocator(5, steps=(1, 2, 2.5, 5, 10)))
    own.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def far_apart(values: pd.Series, times: float = 6) -> bool:
    """Whether a linear axis would hide the small values.

    Args:
        values: those that are not finite, or not above 0, do not count.
        times: how much larger the largest has to be.

    >>> far_apart(pd.Series([1.0, 2.0, 5.0])), far_apart(pd.Series([0.01, 2.0, np.inf]))
    (False, True)
    """
    positive = values[np.isfinite(values) & (values > 0)]
    return bool(len(positive) and positive.max() > times * positive.min())
