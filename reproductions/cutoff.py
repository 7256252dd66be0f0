"""Cutoff SGD, figure 2: throughput of rules for the cutoff through a change of regime on 158 workers. Timing only."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import fred
from fred.results import figures
from fred.timing.cutoffs import AllWorkers, CutoffRule, Elfving, Oracle, StaticCutoff
from reproductions.common import RESULTS, ROOT, say, table

RULES: dict[str, CutoffRule] = {
    "all": AllWorkers(),
    "static 118": StaticCutoff(workers=118),
    "Elfving": Elfving(),
    "oracle": Oracle(),
    "oracle, long run": Oracle(objective="throughput"),
}
CHANGE = 60  # round after which the slow node is as fast as the others
ROUNDS = RESULTS / "cutoff-rounds.csv"


def measure() -> None:
    """Seconds: record a run that waits for all; then every rule decides on the same compute times, seeing what it would."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    result = fred.run(fred.load(ROOT / "scenarios" / "cutoff-sgd" / "figure2.yaml"))
    frames = []
    for outcome in result.outcomes:
        adds = result.schedule("all", outcome.seed).query("verb == 'ADD'")
        times = (adds["end_ns"] - adds["begin_ns"]).to_numpy().reshape(-1, outcome.schedule.workers)
        times = np.take_along_axis(times, adds["worker"].to_numpy().reshape(times.shape).argsort(1), 1)
        for name, rule in RULES.items():
            frames.append(_decide(times, rule).assign(rule=name, seed=outcome.seed))
        say(f"cutoff: seed {outcome.seed}, mean {times.mean() / 1e9:.3f} s, deviation {times.std() / 1e9:.3f} s")
    pd.concat(frames).to_csv(ROUNDS, index=False, float_format="%.6g")


def _decide(times: NDArray[np.int64], rule: CutoffRule) -> pd.DataFrame:
    """The cutoff and the duration, s, of each round, in closed loop: what is not waited for is not seen."""
    chooser = rule.start(times.shape[1])
    rows = []
    for each in times:
        c = chooser.choose(each)
        cutoff = np.sort(each)[c - 1]
        chooser.observe(np.minimum(each, cutoff), each <= cutoff)
        rows.append((c, cutoff / 1e9))
    return pd.DataFrame(rows, columns=["c", "seconds"]).rename_axis("round").reset_index()


def report() -> str:
    """Write cutoff.md and its figure from the measured rounds."""
    rounds = pd.read_csv(ROUNDS)
    windows = {"all rounds": (0, 200), "slow node": (0, CHANGE), "30 rounds after": (CHANGE, CHANGE + 30)}
    rates: dict[str, Any] = {
        name: rounds[(rounds["round"] >= first) & (rounds["round"] < last)].groupby("rule")[["c", "seconds"]].sum()
        for name, (first, last) in windows.items()
    }
    shares, rows = {}, []
    for rule in RULES:
        own = [each.loc[rule, "c"] / each.loc[rule, "seconds"] for each in rates.values()]
        best = [each.loc["oracle", "c"] / each.loc["oracle", "seconds"] for each in rates.values()]
        shares[rule] = [mine / other for mine, other in zip(own, best, strict=True)]
        rows.append([rule, f"{own[0]:.1f}", *(f"{share:.3f}" for share in shares[rule])])
    (_, slow, after), (_, slow_elfving, after_elfving) = shares["all"], shares["Elfving"]
    claims = [
        ["waiting for all is far below the oracle while a node is slow", f"{slow:.2f} of it", _yes(slow < 0.75)],
        ["and nearer to it afterwards", f"{after:.2f} of it", _yes(after > slow + 0.1)],
        [
            "times are not independent and normal: Elfving is further off while a node is slow",
            f"{slow_elfving:.2f} of it, then {after_elfving:.2f}",
            _yes(slow_elfving < after_elfving - 0.1),
        ],
    ]
    _picture(rounds).save(RESULTS / "cutoff-figure2.svg")
    header = ["rule", "gradients/s", *(f"{name}, of the oracle" for name in windows)]
    path = RESULTS / "cutoff.md"
    path.write_text(
        TEXT.format(
            rows=table(header, rows), claims=table(["paper (figure 2, section 4)", "FRED", "agrees"], claims), change=CHANGE
        ),
        encoding="utf-8",
    )
    return str(path.relative_to(ROOT))


def _yes(agrees: bool) -> str:
    return "yes" if agrees else "no"


def _picture(rounds: pd.DataFrame) -> figures.Picture:
    one = rounds[rounds["seed"] == rounds["seed"].min()]
    with figures.style():
        picture = figures.Picture(figsize=(9, 4.2), layout="constrained")
        top, bottom = picture.subplots(2, 1, sharex=True)
        for colour, rule in zip(figures.COLOURS, RULES, strict=False):
            own = one[one["rule"] == rule]
            if rule != "oracle, long run":
                top.plot(own["round"], own["c"] / own["seconds"], color=colour, label=rule, linewidth=1)
                bottom.plot(own["round"], own["c"], color=colour, linewidth=1)
        for axis in (top, bottom):
            axis.axvline(CHANGE, color="#999999", linestyle=":")
        top.set(ylabel="gradients per second")
        bottom.set(ylabel="cutoff c", xlabel="round (one node of four is slow left of the dotted line)")
        picture.legend(*top.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return picture


TEXT = """# Cutoff SGD, figure 2: throughput through a change of regime

Made by `make reproduce`: 158 workers on four nodes, one of them slow until round {change}; 200 rounds recorded once from
`scenarios/cutoff-sgd/figure2.yaml`, on which every rule then decides for itself, seeing only what it would have seen. Three
seeds; the figure shows the first.

{rows}

"Of the oracle": gradients per second, sum c / sum x_(c), over that of the oracle that maximises c / x_(c) in each round. The
second oracle maximises c - rho x_(c), rho the gradients per second so far, which is the better rule in the long run.

{claims}

The paper's learned predictor, which recovers by round 85, is later work; it will be one more rule here.

**Calibrated**: compute times N(0.93 s, 0.16 s), the slow node 1.9 times slower; the paper gives mean and deviation (1.057 s,
0.393 s) of an hour of which this window is a part.

![throughput and cutoff by round](cutoff-figure2.svg)
"""
