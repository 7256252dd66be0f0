"""Odena 2016, figure 3: copies of parameters and gradients sent, of those that could have been, and what it costs."""

import numpy as np
import pandas as pd

import fred
from fred.results import figures
from fred.results.measures import copies
from reproductions.common import RESULTS, ROOT, Claim, claims, run, table

TRAFFIC = RESULTS / "fasgd-traffic.csv"
_POINTS = 100  # kept of each run's curve
_SHARE = 0.1  # of the copies, at which pushes and fetches are compared
_SLIGHT = 1.1  # times the error of the open gates: not seriously worse
_DIVERGED = 0.5  # an error
_TWICE = ("open", "published-fetch-0.015625", "read-fetch-0.015625")  # runs that have a second seed


def measure() -> None:
    """Of each run, at some updates: potential copies, pushes and fetches until then, and the error; of some with two seeds."""
    scenario = ROOT / "scenarios" / "fasgd" / "figure3.yaml"
    once = run(fred.load(scenario), "fasgd/figure3")
    again = run(fred.load(scenario, ["seeds=[2]"]), "fasgd/figure3-again", only=_TWICE)
    frames = []
    for outcome in (*once.outcomes, *again.outcomes):
        sent = copies(outcome.schedule, outcome.run.protocol.layout(outcome.run.cluster).on_servers)
        own = sent.iloc[np.unique(np.linspace(0, len(sent) - 1, _POINTS).astype(int))]
        error = np.interp(own["updates"], outcome.metrics["updates"], outcome.metrics["error"])
        columns = ["updates", "potential", "pushes", "fetches"]
        frames.append(own[columns].assign(run=outcome.name, seed=outcome.seed, error=error))
    pd.concat(frames).to_csv(TRAFFIC, index=False, float_format="%.6g")


def report() -> str:
    """Draw the figure, and the text about it."""
    traffic = pd.read_csv(TRAFFIC)
    picture(traffic).save(RESULTS / "fasgd-figure3.svg")
    ends = _ends(traffic)
    rows = [
        [name, f"{own['pushed']:.3f}", f"{own['fetched']:.3f}", f"{own['total']:.3f}", f"{own['error']:.4f}"]
        for name, own in ends.iterrows()
    ]
    return TEXT.format(
        updates=f"{traffic['updates'].max() + 1:,}",
        seeds=traffic["seed"].nunique(),
        runs=table(["run", "pushed, of potential", "fetched, of potential", "both", "error"], rows),
        claims=claims(_claims(traffic, ends)),
        slight=f"{_SLIGHT - 1:.0%}",
    )


def _ends(traffic: pd.DataFrame) -> pd.DataFrame:
    """By run, means over the seeds: shares of the potential copies that were sent, and the last error."""
    last = traffic.sort_values("potential").groupby(["run", "seed"], sort=False).last()
    last = last.assign(pushed=last["pushes"] / last["potential"], fetched=last["fetches"] / last["potential"])
    last["total"] = (last["pushed"] + last["fetched"]) / 2
    means = last.groupby("run", sort=False)[["pushed", "fetched", "total", "error"]].mean()
    order = sorted(means.index, key=lambda name: (name.split("-")[0], float(name.partition("-")[2] or 0)))
    return means.loc[sorted(order, key=lambda name: name != "open")]


def _claims(traffic: pd.DataFrame, ends: pd.DataFrame) -> list[Claim]:
    still = ends[(ends["error"] <= _SLIGHT * ends["error"]["open"]) & ends.index.str.startswith("fetch")]
    fetched, total = still["fetched"].min(), still["total"].min()  # not a number if none is
    pushes = ends[ends.index.str.startswith("push")]
    worst = pushes.nlargest(1, "error").iloc[0]
    bends = [_bends(own, way) for way in ("pushes", "fetches") for own in _gated(traffic, way)]
    less = "fetches can be reduced without seriously hurting, by"
    bent = f"{sum(bends)} of {len(bends)} curves"
    pushed, got = _interpolated(ends, "push"), _interpolated(ends, "fetch")
    return [
        (less, "10 times", _times(fetched), bool(fetched <= 1 / 7), "no"),
        ("so can both together, by", "5 times", _times(total), None, "no"),
        (
            "reducing pushes makes it diverge",
            "quickly",
            f"error {worst['error']:.3f} with {worst['pushed']:.0%}",
            bool(worst["error"] > _DIVERGED),
            "no",
        ),
        (
            f"error with {_SHARE:.0%} of the pushes, of the fetches",
            "worse, better",
            f"{pushed:.3f}, {got:.3f}",
            pushed > got,
            "no",
        ),
        ("copies against potential copies bend down", "yes", bent, sum(bends) > 0.8 * len(bends), "no"),
    ]


def _interpolated(ends: pd.DataFrame, way: str) -> float:
    """The error with a share of the copies, between the runs nearest to it."""
    own = ends[(ends.index == "open") | ends.index.str.startswith(way)].sort_values(f"{way}ed")
    return float(np.interp(_SHARE, own[f"{way}ed"], own["error"]))


def _times(share: float) -> str:
    return f"{1 / share:.1f} times" if share > 0 else "none of those tried"


def _gated(traffic: pd.DataFrame, way: str) -> list[pd.DataFrame]:
    name = {"pushes": "push", "fetches": "fetch"}[way]
    return [own for (run, _), own in traffic.groupby(["run", "seed"]) if str(run).startswith(name)]


def _bends(own: pd.DataFrame, way: str) -> bool:
    """Whether fewer copies are sent in the second half than in the first."""
    middle = np.interp(own["potential"].max() / 2, own["potential"], own[way])
    return bool(own[way].max() - middle < middle)


def picture(traffic: pd.DataFrame) -> figures.Picture:
    """For fetches above and pushes below: copies against potential copies, and error against updates."""
    with figures.style():
        drawn = figures.Picture(figsize=(9.6, 6), layout="constrained")
        grid = drawn.subplots(2, 2)
        for (left, right), way in zip(grid, ("fetches", "pushes"), strict=True):
            name = {"pushes": "push", "fetches": "fetch"}[way]
            shown = [str(run) for run in _ends(traffic).index if str(run) == "open" or str(run).startswith(name)]
            for colour, run in zip(("#222222", *figures.COLOURS), shown, strict=False):
                own = traffic[traffic["run"] == run].groupby("potential")[[way, "updates", "error"]].mean()
                left.plot(own.index, own[way], color=colour)
                right.plot(own["updates"], own["error"], color=colour, label=run.replace("-", ", c = "))
            left.set(xlabel="potential copies", ylabel=f"{way}, copies")
            right.set(xlabel="updates", ylabel="validation error", ylim=(0, 0.5))
            right.legend(fontsize=6, ncols=2)
    return drawn


TEXT = """
## Figure 3: what B-FASGD's gates save

16 workers with batches of 8 on FRED's dispatcher, FASGD as published; c as in the figure's legends (docs/errata.md, item 5).
{updates} updates, as there; {seeds} seed. The paper does not say how many workers it had.
**Calibrated**: nothing.

{runs}

{claims}

"Without seriously hurting" means an error at most {slight} above that of open gates. The paper's 5
times in total is what 10 times fewer fetches would be only if fetches were nearly all of the traffic: as it counts copies,
fetching nothing at all would halve them.

![figure 3](fasgd-figure3.svg)
"""
