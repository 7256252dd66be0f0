"""A panel of a figure: systems by case, means with the range of the seeds."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

MARKS = "os^D*vP<X>h"


def panel(
    axes: Axes,
    systems: Sequence[str],
    cases: Mapping[str, str],
    values: Callable[[str, str], NDArray[np.float64]],
    geometric: bool = False,
) -> None:
    """Draw a row for each system, with a mark for each case at its mean, and a line over the range of its seeds.

    Args:
        axes: of the panel.
        systems: from top to bottom.
        cases: what the legend says, by name.
        values: returns those of a case and a system [seeds].
        geometric: True for geometric means and a logarithmic axis.
    """
    shifts = np.linspace(-0.26, 0.26, len(cases)) if len(cases) > 1 else np.zeros(1)
    for number, (case, words) in enumerate(cases.items()):
        rows = [values(case, system) for system in systems]
        places = np.arange(len(systems)) + shifts[number]
        for place, row in zip(places, rows, strict=True):
            axes.plot([row.min(), row.max()], [place, place], color=f"C{number % 10}", lw=1, alpha=0.5)
        means = [np.exp(np.log(row).mean()) if geometric else row.mean() for row in rows]
        axes.plot(means, places, MARKS[number], color=f"C{number % 10}", ms=5, label=words)
    if geometric:
        axes.set_xscale("log")
    axes.set_yticks(np.arange(len(systems)), list(systems))
    axes.set_ylim(len(systems) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.3)
