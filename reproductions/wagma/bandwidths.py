"""Figure 4's speed-ups by the bandwidth of the links, which the paper does not print. Timing only."""

import pandas as pd

import fred
from fred.views import figures
from fred.views.figures import plain_logarithmic
from fred.views.view import marks
from reproductions.common import RESULTS, quiet, say, store, table
from reproductions.verdicts import Verdict
from reproductions.wagma import paper
from reproductions.wagma.numbers import communication, ratio, same_communication
from reproductions.wagma.throughput import SCENARIOS

MEASURED = RESULTS / "wagma-bandwidths.csv"
BANDWIDTHS = (1.6, 2.0, 2.4, 3.2, 5.0, 6.4, 12.8)  # GB/s
DELAYED, PUNCTUAL = "delays", "no delays"
_SEEDS, _SECONDS = [1, 2, 3], {DELAYED: 120, PUNCTUAL: 40}
_FACTS = tuple(fact for fact in paper.FASTER if fact.experiment in ("figure 4", "ablation 3"))
_RATES = {fact.run: fact.value for fact in paper.STEPS_PER_SECOND}
PRINTED = communication(_RATES["wagma"], _RATES["ad-psgd"])  # s of WAGMA's step without delays
_RUNS = ("wagma", "ad-psgd", *(fact.run for fact in _FACTS))


def measure() -> None:
    """Measure throughput by bandwidth: two minutes of a core."""
    frames = []
    for bandwidth in BANDWIDTHS:
        for case, seconds in _SECONDS.items():
            settings = [f"seeds={_SEEDS}", f"stop.seconds={seconds}", f"cluster.network.bandwidth={bandwidth * 1e9}"]
            settings += ["cluster.contention=[]"] if case == PUNCTUAL else []
            summary = quiet(fred.load(SCENARIOS / "figure4.yaml", settings), _RUNS).summary
            steps = summary["gradients_applied"] / 64 / summary["virtual_seconds"]
            rows = summary[["name", "seed"]].assign(bandwidth=bandwidth, case=case, steps_per_second=steps)
            frames.append(rows)
        say(f"wagma: {bandwidth} GB/s")
        store(MEASURED, pd.concat(frames))


class Bandwidths:
    """Steps per second by bandwidth and run, means over the seeds."""

    def __init__(self, measured: pd.DataFrame):
        means = measured.groupby(["case", "bandwidth", "name"])["steps_per_second"].mean().unstack("name")
        self._delayed, self._punctual = means.loc[DELAYED], means.loc[PUNCTUAL]

    def agreeing(self) -> pd.DataFrame:
        """Return whether WAGMA's speed-ups agree [bandwidths, runs], and its communication without delays (`no delays`)."""
        verdicts = {fact.run: [ratio(value, fact.value) for value in self.faster(fact.run)] for fact in _FACTS}
        verdicts[PUNCTUAL] = [same_communication(value, PRINTED) for value in self.communication()]
        return pd.DataFrame(verdicts, self._punctual.index) == Verdict.AGREES

    def communication(self, run: str = "wagma") -> "pd.Series[float]":
        """Return the time of a step without delays beyond AD-PSGD's, s, by bandwidth."""
        return 1 / self._punctual[run] - 1 / self._punctual["ad-psgd"]

    def faster(self, run: str) -> "pd.Series[float]":
        """Return WAGMA's steps per second, relative to that run's, by bandwidth."""
        return self._delayed["wagma"] / self._delayed[run]

    def table(self) -> str:
        """Return speed-ups by bandwidth, bold where they agree with the paper, and WAGMA's communication without delays."""
        agrees = self.agreeing()
        rows = [["the paper", *(f"{fact.value:.2f}" for fact in _FACTS), _steps(_RATES["wagma"], PRINTED)]]
        for bandwidth in BANDWIDTHS:
            cells = [_bold(f"{self.faster(fact.run)[bandwidth]:.2f}", agrees[fact.run][bandwidth]) for fact in _FACTS]
            steps = _steps(self._punctual["wagma"][bandwidth], self.communication()[bandwidth])
            rows.append([f"{bandwidth:g} GB/s", *cells, _bold(steps, agrees[PUNCTUAL][bandwidth])])
        return table(["WAGMA faster than", *(fact.run for fact in _FACTS), "its steps per second without delays"], rows)

    def picture(self) -> figures.Picture:
        """Draw WAGMA's speed-ups by bandwidth at the left, communication of a step without delays at the right."""
        with figures.style():
            figure = figures.Picture(figsize=(9.6, 3.6), layout="constrained")
            left, right = figure.subplots(1, 2, width_ratios=(1.6, 1))
            for colour, fact in zip(figures.COLOURS, _FACTS, strict=False):
                values = self.faster(fact.run)
                left.plot(values.index, values, color=colour, label=fact.run, **marks(colour))
                left.axhline(fact.value, color=colour, linestyle=":", linewidth=1)
            left.set(ylabel="WAGMA's speed-up (dotted: the paper)")
            for colour, run in zip(("#222222", *figures.COLOURS), ("wagma", "local-sgd", "d-psgd", "sgp"), strict=False):
                values = 1000 * self.communication(run)
                right.plot(values.index, values, color=colour, label=run, **marks(colour))
                printed = 1000 * communication(_RATES[run], _RATES["ad-psgd"])
                right.axhline(printed, color=colour, linestyle=":", linewidth=1)
            right.set(ylabel="communication of a step\nwithout delays, ms")
            plain_logarithmic(right, "y")
            for axis in (left, right):
                axis.set(xscale="log", xlabel="bandwidth, GB/s", xticks=BANDWIDTHS)
                axis.set_xticks([], minor=True)
                axis.set_xticklabels([f"{bandwidth:g}" for bandwidth in BANDWIDTHS])
                axis.legend(fontsize=8)
        return figure


def _steps(steps_per_second: float, seconds: float) -> str:
    return f"{steps_per_second:.2f} ({1000 * seconds:.0f} ms)"


def _bold(text: str, agrees: object) -> str:
    return f"**{text}**" if agrees else text
