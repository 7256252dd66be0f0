"""Figure 4's speed-ups by the bandwidth of the links, which the paper does not print. Timing only."""

from collections.abc import Sequence

import pandas as pd

import fred
from fred.views import figures
from fred.views.view import marks
from reproductions.common import RESULTS, quiet, say, table
from reproductions.verdicts import Verdict
from reproductions.wagma import paper
from reproductions.wagma.numbers import communication, ratio, same_communication
from reproductions.wagma.throughput import SCENARIOS

MEASURED = RESULTS / "wagma-bandwidths.csv"
BANDWIDTHS = (1.6, 2.0, 2.4, 3.2, 5.0, 6.4, 12.8)  # GB/s
WITH, WITHOUT = "delays", "no delays"
_SEEDS, _SECONDS = [1, 2, 3], {WITH: 120, WITHOUT: 40}
_FACTS = tuple(fact for fact in paper.FASTER if fact.what in ("figure 4", "ablation 3"))
_RUNS = ("wagma", "ad-psgd", *(fact.run for fact in _FACTS))


def measure() -> None:
    """Two minutes of a core."""
    frames = []
    for bandwidth in BANDWIDTHS:
        for case, seconds in _SECONDS.items():
            settings = [f"seeds={_SEEDS}", f"stop.seconds={seconds}", f"cluster.network.bandwidth={bandwidth * 1e9}"]
            settings += ["cluster.contention=[]"] if case == WITHOUT else []
            summary = quiet(fred.load(SCENARIOS / "figure4.yaml", settings), _RUNS).summary
            steps = summary["gradients_applied"] / 64 / summary["virtual_seconds"]
            rows = summary[["name", "seed"]].assign(bandwidth=bandwidth, case=case, steps_per_second=steps)
            frames.append(rows)
        say(f"wagma: {bandwidth} GB/s")
        pd.concat(frames).to_csv(MEASURED, index=False, float_format="%.6g")


class Bandwidths:
    """Steps per second by bandwidth and run, means over the seeds."""

    def __init__(self, measured: pd.DataFrame):
        means = measured.groupby(["case", "bandwidth", "name"])["steps_per_second"].mean().unstack("name")
        self._delayed, self._even = means.loc[WITH], means.loc[WITHOUT]

    def agreeing(self) -> pd.DataFrame:
        """Return [bandwidths, runs]: whether WAGMA's speed-up agrees, and for `no delays` its communication without delays."""
        found = {fact.run: self.faster(fact.run).map(lambda own, fact=fact: ratio(own, fact.value)) for fact in _FACTS}
        fastest = {fact.run: fact.value for fact in paper.STEPS_PER_SECOND}
        printed = communication(fastest["wagma"], fastest["ad-psgd"])
        ours = [communication(own, free) for own, free in zip(self._even["wagma"], self._even["ad-psgd"], strict=True)]
        found[WITHOUT] = pd.Series([same_communication(own, printed) for own in ours], self._even.index)
        return pd.DataFrame(found) == Verdict.AGREES

    def faster(self, run: str) -> "pd.Series[float]":
        """WAGMA's steps per second of that run's, by bandwidth."""
        return self._delayed["wagma"] / self._delayed[run]

    def table(self) -> str:
        """Speed-ups by bandwidth, bold where they agree with the paper, and WAGMA's communication without delays."""
        agrees = self.agreeing()
        rates = {fact.run: fact.value for fact in paper.STEPS_PER_SECOND}
        rows = [["the paper", *(f"{fact.value:.2f}" for fact in _FACTS), _steps(rates["wagma"], rates["ad-psgd"])]]
        for bandwidth in BANDWIDTHS:
            cells = [_bold(f"{self.faster(fact.run)[bandwidth]:.2f}", agrees.loc[bandwidth, fact.run]) for fact in _FACTS]
            even = _steps(self._even.loc[bandwidth, "wagma"], self._even.loc[bandwidth, "ad-psgd"])
            rows.append([f"{bandwidth:g} GB/s", *cells, _bold(even, agrees.loc[bandwidth, WITHOUT])])
        return table(["WAGMA faster than", *(fact.run for fact in _FACTS), "its steps per second without delays"], rows)

    def picture(self) -> figures.Picture:
        """WAGMA's speed-ups against the bandwidth at the left, communication of a step without delays at the right."""
        with figures.style():
            drawn = figures.Picture(figsize=(9.6, 3.6), layout="constrained")
            left, right = drawn.subplots(1, 2, width_ratios=(1.6, 1))
            for colour, fact in zip(figures.COLOURS, _FACTS, strict=False):
                own = self.faster(fact.run)
                left.plot(own.index, own, color=colour, label=fact.run, **marks(colour))
                left.axhline(fact.value, color=colour, linestyle=":", linewidth=1)
            left.set(ylabel="WAGMA's speed-up (dotted: the paper)")
            rates = {fact.run: fact.value for fact in paper.STEPS_PER_SECOND}
            for colour, run in zip(("#222222", *figures.COLOURS), ("wagma", "local-sgd", "d-psgd", "sgp"), strict=False):
                pairs: Sequence[tuple[float, float]] = list(zip(self._even[run], self._even["ad-psgd"], strict=True))
                right.plot(self._even.index, [1000 * communication(*pair) for pair in pairs], color=colour, label=run)
                right.axhline(1000 * communication(rates[run], rates["ad-psgd"]), color=colour, linestyle=":", linewidth=1)
            right.set(ylabel="communication of a step\nwithout delays, ms", yscale="log")
            for axis in (left, right):
                axis.set(xscale="log", xlabel="bandwidth, GB/s", xticks=BANDWIDTHS)
                axis.set_xticks([], minor=True)
                axis.set_xticklabels([f"{bandwidth:g}" for bandwidth in BANDWIDTHS])
                axis.legend(fontsize=8)
        return drawn


def _steps(steps_per_second: float, fastest: float) -> str:
    return f"{steps_per_second:.2f} ({1000 * communication(steps_per_second, fastest):.0f} ms)"


def _bold(text: str, agrees: object) -> str:
    return f"**{text}**" if agrees else text
