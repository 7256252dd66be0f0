"""A figure of a trace: times by worker and iteration, their distribution, and the throughput of cutoffs."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from fred.fitting.description import Matrix, oracle_throughput, static_throughput
from fred.fitting.fitted import Fitted
from fred.fitting.latencies import FITS, log_density
from fred.views.figures import COLOURS, Picture, style
from fred.views.view import marks

_MOST_CELLS = 600  # largest number of image cells in each direction
_FAMILIES = ("normal", "lognormal", "gamma", "pareto")


def picture(fitted: Fitted) -> Picture:
    """Plot compute times by iteration and worker, sorted by group; their density; and throughput by the cutoff.

    Args:
        fitted: findings of `fred.fitting.fitted.fit` about a trace.

    Throughput is relative to waiting for all. A line marks the throughput with each round's best cutoff, which is unknown
    in advance.
    """
    with style():
        figure = Picture(figsize=(9.2, 6.2), layout="constrained")
        axes = figure.subplot_mosaic([["times", "times"], ["density", "cutoff"]], height_ratios=[1.15, 1])
        _times(axes["times"], fitted)
        _density(axes["density"], fitted.trace.seconds)
        _cutoff(axes["cutoff"], fitted)
        title = f"{fitted.trace.source}: {fitted.choice.name}"
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold", parse_math=False)
    return figure


def _times(axis: Axes, fitted: Fitted) -> None:
    iterations, workers = fitted.trace.seconds.shape
    order = np.argsort(fitted.group_of, kind="stable")
    cells = _coarse(_coarse(fitted.trace.seconds[:, order], iterations).T, workers)
    low, high = np.quantile(cells, (0.005, 0.995))
    image = axis.imshow(
        cells,
        norm=LogNorm(low, max(high, low * 1.001)),
        aspect="auto",
        cmap="viridis",
        extent=(0, iterations, workers - 0.5, -0.5),
        interpolation="nearest",
    )
    borders = np.cumsum(np.bincount(fitted.group_of))[:-1]
    if len(borders) < _MOST_CELLS / 8:  # more lines would hide the cells
        axis.hlines(borders - 0.5, 0, iterations, color="white", linewidth=0.6)
    axis.set(xlabel="iteration", ylabel="worker, by group" if len(borders) else "worker")
    axis.grid(False)
    bar = axis.figure.colorbar(image, ax=axis, pad=0.01, format="%g")
    bar.ax.minorticks_off()
    ticks = np.geomspace(*image.get_clim(), 4).tolist()
    bar.set_ticks(ticks, labels=[f"{tick:.3g} s" for tick in ticks])


def _density(axis: Axes, seconds: Matrix) -> None:
    low, high = np.quantile(seconds, (0.0005, 0.9995))
    low, high = low / 1.05, high * 1.05
    edges = np.geomspace(low, high, 80)
    counts = np.histogram(seconds, edges)[0] / seconds.size
    per_log = np.diff(np.log(edges))
    axis.stairs(counts / per_log, edges, fill=True, color="#C8C8C8", label="trace")
    grid = np.geomspace(low, high, 400)
    for colour, name in zip(COLOURS, _FAMILIES, strict=False):
        density = np.exp(log_density(FITS[name](seconds.ravel()), grid)) * grid  # of the logarithm: times dt / d log t
        axis.plot(grid, density, color=colour, linewidth=1.3, label=name, **marks(colour))
    axis.set(xscale="log" if high > 5 * low else "linear", xlabel="compute time, s", ylabel="density of the logarithm")
    if axis.get_xscale() == "log":
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_ylim(0, 1.25 * float((counts / per_log).max()))
    axis.legend(loc="upper right")


def _cutoff(axis: Axes, fitted: Fitted) -> None:
    ordered = np.sort(fitted.trace.seconds, axis=1)
    throughput = static_throughput(ordered)
    relative, best = throughput / throughput[-1], int(throughput.argmax())
    axis.plot(np.arange(1, len(relative) + 1), relative, color=COLOURS[0], label="always the same c")
    axis.plot([best + 1], [relative[best]], "o", color=COLOURS[0], label=f"its best: c = {best + 1}")
    oracle = oracle_throughput(ordered) / throughput[-1]
    axis.axhline(oracle, color=COLOURS[1], linestyle="--", label="each round's best c")
    axis.set(xlabel="workers waited for, c", ylabel="throughput, relative to all", ylim=(0, 1.3 * oracle))
    axis.legend(loc="upper left", ncols=2)


def _coarse(values: Matrix, length: int) -> Matrix:
    """Average rows so that at most `_MOST_CELLS` remain."""
    if length <= _MOST_CELLS:
        return values
    starts = np.arange(_MOST_CELLS) * length // _MOST_CELLS
    return np.add.reduceat(values, starts, axis=0) / np.diff(np.append(starts, length))[:, None]
