"""Panels of a figure, with a row for each name: values with the range of the seeds, or differences with their intervals."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from studies.kit.difference import Difference

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
    for number, (case, words) in enumerate(cases.items()):
        rows = [values(case, system) for system in systems]
        places = np.arange(len(systems)) + _shift(number, len(cases))
        for place, row in zip(places, rows, strict=True):
            axes.plot([row.min(), row.max()], [place, place], color=f"C{number % 10}", lw=1, alpha=0.5)
        means = [np.exp(np.log(row).mean()) if geometric else row.mean() for row in rows]
        axes.plot(means, places, MARKS[number], color=f"C{number % 10}", ms=5, label=words)
    if geometric:
        axes.set_xscale("log")
    _label_rows(axes, systems)


def intervals(axes: Axes, names: Sequence[str], families: Mapping[str, Mapping[str, Difference]], ratios: bool = False) -> None:
    """Draw a row for each name, with a mark for each family at its mean, and a line over its interval.

    Args:
        axes: of the panel.
        names: from top to bottom.
        families: differences by name, where there are some, by the words of the legend; those without a common name stand on
            the same lines.
        ratios: True for differences of logarithms, which are drawn as ratios.
    """
    lines = len(families) if sum(map(len, families.values())) > len(names) else 1
    for number, (words, family) in enumerate(families.items()):
        for name, difference in family.items():
            place = names.index(name) + (_shift(number, lines) if lines > 1 else 0.0)
            ends, mean = np.array(difference.interval), difference.mean.value
            axes.plot(np.exp(ends) if ratios else ends, [place, place], color=f"C{number}", lw=1.5)
            axes.plot(np.exp(mean) if ratios else mean, place, MARKS[number], color=f"C{number}", ms=4)
        axes.plot([], [], MARKS[number], color=f"C{number}", label=words)
    axes.axvline(1.0 if ratios else 0.0, color="0.5", lw=0.8)
    _label_rows(axes, names)


def _shift(number: int, count: int) -> float:
    return float(np.linspace(-0.26, 0.26, count)[number]) if count > 1 else 0.0


def _label_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(np.arange(len(names)), list(names))
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.3)
