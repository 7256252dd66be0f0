"""Table 1, staleness by layer (timing only), and figure 2, error by simulated staleness."""

import pandas as pd
from matplotlib.ticker import MaxNLocator

import fred
from fred.schedule.schedule import Schedule, Verb
from fred.schedule.staleness import of_gradients
from fred.views import figures
from fred.views.view import MARKERS, marks
from reproductions.backup_workers.arrivals import SCENARIOS
from reproductions.common import RESULTS, quiet, run, store

LAYERS, ERRORS = RESULTS / "backup-workers-layers.csv", RESULTS / "backup-workers-staleness.csv"
PAPER = {18: 14.54, 12: 11.35, 11: 19.8, 0: 38.97}  # table 1: mean staleness by layer
TABLE: dict[str, dict[int, float]] = {  # the rest of table 1
    "min": {18: 4, 12: 5, 11: 8, 0: 24},
    "median": {18: 13.94, 12: 11.3, 11: 19.59, 0: 38.43},
    "max": {18: 29, 12: 23, 11: 34, 0: 61},
    "std": {18: 3.83, 12: 3.09, 11: 3.65, 0: 5.43},
}
LATENCIES, LATENCY = (0.0, 0.005, 0.05), 0.005  # s for a message; the one in table1.yaml
FIRST = 200  # update of each layer from which gradients count: until then nearly all are of the initial parameters
ERROR = {0: 0.36, 20: 0.47, 50: 0.79}  # section 2.1: %


def measure_layers() -> None:
    """Measure staleness in each layer, by the time of a message, which the paper does not report."""
    frames = []
    for latency in LATENCIES:
        settings = [f"cluster.network.latency.seconds={latency}", *(["seeds=[1]"] if latency != LATENCY else [])]
        for outcome in quiet(fred.load(SCENARIOS / "table1.yaml", settings)).outcomes:
            frames.append(_by_layer(outcome.schedule).assign(run=outcome.name, seed=outcome.seed, latency=latency))
    store(LAYERS, pd.concat(frames).rename_axis("layer").reset_index())


def _by_layer(schedule: Schedule) -> pd.DataFrame:
    """Return statistics of the staleness of each layer's gradients, from update FIRST of that layer on."""
    rows = schedule.rows(Verb.PUSH, Verb.ADD)
    uses = pd.DataFrame({"layer": schedule["block"][rows], "stale": of_gradients(schedule)})
    uses = uses[schedule["timestamp"][rows] + schedule["staleness"][rows] >= FIRST]
    stale = uses.groupby("layer")["stale"]
    columns = {name: stale.agg(name) for name in ("min", "mean", "median", "max")}
    return pd.DataFrame({**columns, "std": stale.std(ddof=0), "count": stale.count()})


def measure_errors() -> None:
    """Measure the error at the end of each run and seed; a run that diverged has that of guessing, or worse."""
    result = run(fred.load(SCENARIOS / "figure2.yaml"), "backup-workers/figure2")
    summary, points = result.summary, result.scenario.points
    lag = [int(points[name].of.removeprefix("lag-")) for name in summary["name"]]
    rate = [points[name].values["algorithm.learning_rate"] for name in summary["name"]]
    store(ERRORS, summary[["seed", "error"]].assign(lag=lag, rate=rate))


def by_layer(layers: pd.DataFrame, name: str, statistic: str = "mean") -> "pd.Series[float]":
    """Return the mean staleness (or another statistic) of each layer in one run, mean over the seeds."""
    return layers[layers["run"] == name].groupby("layer")[statistic].mean()


def by_lag(errors: pd.DataFrame) -> pd.DataFrame:
    """Return the mean error over the seeds, % [lags, rates]; the highest rate first."""
    means = errors.groupby(["lag", "rate"])["error"].mean().unstack("rate")
    return 100 * means[sorted(means.columns, reverse=True)]


def picture(layers: pd.DataFrame, errors: pd.DataFrame) -> figures.Picture:
    """Draw figure 2 at the left, table 1 at the right."""
    with figures.style():
        figure = figures.Picture(figsize=(9.6, 3.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        means = by_lag(errors)
        for colour, marker, rate in zip(figures.COLOURS[1:], MARKERS[1:], means, strict=False):
            left.plot(means.index, means[rate], marker, linestyle="-", color=colour, label=f"FRED: rate {rate}")
        left.plot(list(ERROR), list(ERROR.values()), "o--", color=figures.COLOURS[0], label="paper: CNN, 25 epochs")
        left.set(xlabel="staleness of every gradient, updates", ylabel="test error, %", ylim=(0, 12))
        left.legend()
        layers = layers[layers["latency"] == LATENCY]
        for colour, name in zip(figures.COLOURS, layers["run"].unique(), strict=False):
            layer = by_layer(layers, name)
            right.plot(
                layer.index, layer, color=colour, label=f"FRED: layers asked for {name.replace('-', ' ')}", **marks(colour)
            )
        right.plot(list(PAPER), list(PAPER.values()), "D", color="#222222", label="paper")
        right.xaxis.set_major_locator(MaxNLocator(integer=True))
        right.set(xlabel="layer", ylabel="mean staleness, updates", ylim=(0, None))
        right.legend()
    return figure
