"""A figure of predicted against measured times of communication."""

from collections.abc import Mapping

import pandas as pd

from fred.views.figures import COLOURS, Picture, style

_MARKS = "osD^vP*X<>hdp8"


def picture(rows: pd.DataFrame, near: float, colours: Mapping[str, str] | None = None) -> Picture:
    """Plot predicted against measured times, in s.

    Args:
        rows: a row for each time, with its `name`, `measured` and `predicted` time, s, as of `Judgement.rows`.
        near: error that dotted lines mark, such as 0.15.
        colours: colour by name; absent: those of all figures, in turn.
    """
    with style():
        figure = Picture(figsize=(7.2, 7.4), layout="constrained")
        axis = figure.subplots()
        for place, (name, group) in enumerate(rows.groupby("name", sort=False)):
            colour = colours[str(name)] if colours else COLOURS[place % len(COLOURS)]
            mark = _MARKS[place % len(_MARKS)]
            axis.plot(group["measured"], group["predicted"], mark, label=name, color=colour, markersize=4, alpha=0.8)
        ends = [rows["predicted"].min() / 1.5, rows["predicted"].max() * 1.5]
        for factor, dashes in ((1.0, "-"), (1 + near, ":"), (1 / (1 + near), ":")):
            axis.plot(ends, [factor * end for end in ends], dashes, color="0.5", linewidth=0.8, zorder=0)
        axis.set(xscale="log", yscale="log", xlabel="measured, s", ylabel="predicted, s", xlim=ends, ylim=ends)
        figure.legend(loc="outside lower center", ncols=2, fontsize=6.5)
        return figure
