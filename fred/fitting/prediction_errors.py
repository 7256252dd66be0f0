"""A table and a figure of predicted and measured times of communication."""

from collections.abc import Mapping, Sequence

import pandas as pd

from fred.fitting.judgement import NEAR, Judgement
from fred.views.figures import COLOURS, Picture, style

_MARKS = "osD^vP*X<>hdp8"


def tabulate(judgements: Sequence[Judgement]) -> pd.DataFrame:
    """Return a row for each time: setting, measured and predicted time, s, error, and what was fitted.

    Args:
        judgements: judgements of all measurements.
    """
    rows = pd.DataFrame([row for judgement in judgements for row in judgement.rows()])
    return rows.assign(measured=[measurement.seconds for judgement in judgements for measurement in judgement.measurements])


def picture(rows: pd.DataFrame, colours: Mapping[str, str] | None = None) -> Picture:
    """Plot predicted against measured times, in s; dotted lines mark errors of 15 %.

    Args:
        rows: a row for each time, with its `name`, `predicted` time, s, and `error`, as of `Judgement.rows`.
        colours: colour by name; absent: those of all figures, in turn.
    """
    with style():
        figure = Picture(figsize=(7.2, 7.4), layout="constrained")
        axis = figure.subplots()
        for place, (name, group) in enumerate(rows.groupby("name", sort=False)):
            colour = colours[str(name)] if colours else COLOURS[place % len(COLOURS)]
            measured = group["predicted"] / (1 + group["error"])
            mark = _MARKS[place % len(_MARKS)]
            axis.plot(measured, group["predicted"], mark, label=name, color=colour, markersize=4, alpha=0.8)
        ends = [rows["predicted"].min() / 1.5, rows["predicted"].max() * 1.5]
        for factor, dashes in ((1.0, "-"), (1 + NEAR, ":"), (1 / (1 + NEAR), ":")):
            axis.plot(ends, [factor * end for end in ends], dashes, color="0.5", linewidth=0.8, zorder=0)
        axis.set(xscale="log", yscale="log", xlabel="measured, s", ylabel="predicted, s", xlim=ends, ylim=ends)
        figure.legend(loc="outside lower center", ncols=2, fontsize=6.5)
        return figure
