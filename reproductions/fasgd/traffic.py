"""Odena 2016, figure 3: copies of parameters and gradients sent, relative to potential ones, and the cost of sending fewer."""

import numpy as np
import pandas as pd

import fred
from fred.schedule.traffic import copies
from fred.views import figures
from fred.views.figures import set_count_ticks
from fred.views.view import marks
from reproductions.common import RESULTS, ROOT, run, store

KINDS = ("published-fetch", "read-fetch", "push")  # of gated runs
TRAFFIC = RESULTS / "fasgd-traffic.csv"
_POINTS = 100  # kept of each run's curve
REPEATED = ("open", "published-fetch-0.0078125", "published-fetch-0.015625", "read-fetch-0.015625")  # have three seeds


def measure() -> None:
    """Measure, for each run at some updates, potential copies, pushes, fetches and the error; for some with more seeds."""
    scenario = ROOT / "scenarios" / "fasgd" / "figure3.yaml"
    single = run(fred.load(scenario), "fasgd/figure3")
    repeats = run(fred.load(scenario, ["seeds=[2, 3]"]), "fasgd/figure3-seeds", only=REPEATED)
    frames = []
    for outcome in (*single.outcomes, *repeats.outcomes):
        sent = copies(outcome.schedule)
        points = sent.iloc[np.unique(np.linspace(0, len(sent) - 1, _POINTS).astype(int))]
        error = np.interp(points["updates"], outcome.metrics["updates"], outcome.metrics["error"])
        columns = ["updates", "potential", "pushes", "fetches"]
        frames.append(points[columns].assign(run=outcome.name, seed=outcome.seed, error=error))
    store(TRAFFIC, pd.concat(frames))


def ends(traffic: pd.DataFrame) -> pd.DataFrame:
    """Return, by run and seed, kind, c, shares of copies sent, the error in the last tenth of the run, and its cost.

    The cost is the error over that of open gates with the same seed.
    """
    looks = traffic[traffic["updates"] >= 0.9 * traffic["updates"].max()]  # each by itself is off by a fifth
    last = traffic.sort_values("potential").groupby(["run", "seed"]).last()
    last = last.assign(error=looks.groupby(["run", "seed"])["error"].mean()).reset_index()
    last = last.assign(pushed=last["pushes"] / last["potential"], fetched=last["fetches"] / last["potential"])
    last["total"] = (last["pushed"] + last["fetched"]) / 2
    last["kind"] = last["run"].str.replace(r"-[0-9.]+$", "", regex=True)
    last["c"] = last["run"].str.extract(r"([0-9.]+)$", expand=False).astype(float).fillna(0.0)
    unhindered = last[last["run"] == "open"].set_index("seed")["error"]
    last["cost"] = last["error"] / last["seed"].map(unhindered).to_numpy()
    last["kind"] = pd.Categorical(last["kind"], ("open", *KINDS), ordered=True)
    return last.sort_values(["kind", "c", "seed"])


def means(ends: pd.DataFrame) -> pd.DataFrame:
    """Return the means by run, over its seeds."""
    grouped = ends.groupby("run", sort=False)
    averages = grouped[["c", "pushed", "fetched", "total", "error", "cost"]].mean()
    return averages.assign(kind=grouped["kind"].first(), seeds=grouped["seed"].nunique())


def error_at(ends: pd.DataFrame, kind: str, share: float) -> float:
    """Return the first seed's error with a share of the pushes or fetches, on lines between the runs."""
    column = "pushed" if kind == "push" else "fetched"
    runs = ends[ends["kind"].isin(["open", kind]) & (ends["seed"] == ends["seed"].min())].sort_values(column)
    return float(np.interp(share, runs[column], runs["error"]))


def costs_at(ends: pd.DataFrame, kind: str, share: float) -> "pd.Series[float]":
    """Return the error with a share of the fetches over that of open gates, by seed.

    Values are interpolated on the logarithm of the share between the runs that have all of these seeds.

    Args:
        ends: of all runs.
        kind: of gates.
        share: of the fetches.
    """
    runs = ends[ends["kind"].isin(["open", kind])]
    runs = runs[runs.groupby("run")["seed"].transform("nunique") == runs["seed"].nunique()].sort_values("fetched")
    costs = {seed: np.interp(np.log(share), np.log(points["fetched"]), points["cost"]) for seed, points in runs.groupby("seed")}
    return pd.Series(costs)


def bent(traffic: pd.DataFrame, kind: str) -> list[bool]:
    """Return, for each curve of a kind, whether fewer copies are sent in the second half than in the first."""
    way = "pushes" if kind == "push" else "fetches"
    bends = []
    for _, curve in traffic[traffic["run"].str.startswith(kind)].groupby(["run", "seed"]):
        middle = np.interp(curve["potential"].max() / 2, curve["potential"], curve[way])
        bends.append(bool(curve[way].max() - middle < middle))
    return bends


def picture(traffic: pd.DataFrame) -> figures.Picture:
    """Draw fetches, with published and true stamps, and pushes: copies against potential copies, error against updates."""
    first = traffic[traffic["seed"] == traffic["seed"].min()]
    with figures.style():
        figure = figures.Picture(figsize=(10, 8.4), layout="constrained")
        for (left, right), kind in zip(figure.subplots(3, 2, sharex=True), KINDS, strict=True):
            way = "pushes" if kind == "push" else "fetches"
            order = ends(first)
            names = order[order["kind"].isin(["open", kind])]["run"]
            for colour, name in zip(("#222222", *figures.COLOURS), names, strict=False):
                curve = first[first["run"] == name]
                left.plot(curve["potential"], curve[way], color=colour, **marks(colour))
                label = name.removeprefix(f"{kind}-")
                right.plot(curve["updates"], curve["error"], color=colour, label=label, **marks(colour))
            stamps = {"published-fetch": ", stamps as published", "read-fetch": ", true stamps"}.get(kind, "")
            left.set(xlabel="potential copies", ylabel=f"{way}, copies", title=way + stamps)
            right.set(xlabel="updates", ylabel="validation error", ylim=(0, 0.5))
            right.legend(title="c", loc="center left", bbox_to_anchor=(1.01, 0.5))
            for axis in (left.xaxis, left.yaxis, right.xaxis):
                set_count_ticks(axis)
    return figure
