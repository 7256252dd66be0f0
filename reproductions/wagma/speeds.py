"""Results for claims about throughput that are no single number."""

import math

from scipy import stats

from reproductions.verdicts import Evidence, Measured, Verdict, combine_choices, judge, judge_close, judge_less
from reproductions.wagma import paper
from reproductions.wagma.numbers import CLOSE, EXCHANGED, minutes, ratio
from reproductions.wagma.throughput import NOT_HIDDEN, Throughput

# Mean compute times of the scenarios: without communication and waiting, each worker does one over it.
_EPISODE = (1.7, 0.2, 1.51)  # s: shift, median of the rest, deviation of its logarithm
_SENTENCES = 0.35 * 0.38 + 0.3 * 0.436 + 0.2 * 0.492 + 0.1 * 0.584 + 0.05 * 0.732
IDEAL = {
    "4": 1 / (0.621 + 2 / 64 * 0.32),
    "7": 1 / _SENTENCES,
    "10": 1 / (_EPISODE[0] + _EPISODE[1] * math.exp(_EPISODE[2] ** 2 / 2)),
}
_SYNCHRONOUS = ("local-sgd", "allreduce", "d-psgd", "sgp", "eager-sgd")  # those of figure 4's numbers
_TEN_HOURS, _EXPERIENCE = 36_000, 256  # s, steps in an iteration


def judge_speeds(measured: Throughput) -> Measured:
    """Return the results of figures 4, 5, 7 and 10."""
    return {**_four(measured), **_seven(measured), **_ten(measured)}


def _four(measured: Throughput) -> Measured:
    rates = [measured.rate("4, no delays", 64, fact.run) for fact in paper.STEPS_PER_SECOND]
    printed = [fact.value for fact in paper.STEPS_PER_SECOND]
    spread, papers = max(rates) / min(rates), max(printed) / min(printed)
    largest = max(measured.faster("4", 256, run) for run in _SYNCHRONOUS)
    grows = [run for run in _SYNCHRONOUS if measured.faster("4", 256, run) > measured.faster("4", 64, run)]
    faster = sorted({run for size in measured.workers("4") for run in _faster_runs(measured, "4", size)})
    hidden = measured.rate("4, no delays", 64, "ad-psgd") * 0.621
    remaining_shares = {
        run: measured.seeds("4", 64, run) / measured.seeds("4, no delays", 64, run) for run in ("wagma", "allreduce")
    }
    ratios = {size: measured.seeds("4", size, "wagma") / measured.seeds("4", size, "eager-sgd") for size in (4, 256)}
    allreduce = {size: measured.seeds("4", size, "allreduce") for size in (4, 256)}
    groups = {run: measured.seeds("4", 64, run) for run in ("wagma-global", "wagma")}
    longer = minutes("ad-psgd", measured.rate("5", 64, "ad-psgd")), minutes("wagma", measured.rate("5", 64, "wagma"))
    return {
        "balanced": Evidence(f"{spread:.2f}", ratio(spread, papers)),
        "ranked": _ranked(measured),
        "largest": Evidence(f"{largest:.2f}", ratio(largest, paper.UP_TO.value)),
        "grows": Evidence(", ".join(grows) or "none", judge(len(grows) == len(_SYNCHRONOUS))),
        "only-ad-psgd": Evidence(", ".join(faster) or "none", judge(faster == ["ad-psgd"])),
        "overlapped": Evidence(f"{hidden:.3f}", judge(hidden > 0.98)),
        "imbalance": Evidence(
            f"{remaining_shares['wagma'].mean():.2f} for {remaining_shares['allreduce'].mean():.2f}",
            judge_less(remaining_shares["allreduce"], remaining_shares["wagma"]),
        ),
        "scales": Evidence(f"{ratios[4].mean():.3f} to {ratios[256].mean():.3f}", judge_less(ratios[4], ratios[256])),
        "bottleneck": Evidence(
            f"{allreduce[4].mean():.2f} and {allreduce[256].mean():.2f}", judge_less(allreduce[256], allreduce[4])
        ),
        "overhead": Evidence(
            " and ".join(f"{rates.mean():.2f}" for rates in groups.values()),
            judge_less(groups["wagma-global"], groups["wagma"]),
        ),
        "ad-psgd-longer": Evidence(f"{longer[0]:.0f} for {longer[1]:.0f} minutes", judge(longer[0] > longer[1])),
    }


def _ranked(measured: Throughput) -> Evidence:
    """Return the number of runs that are faster than WAGMA without delays, by more than one percent."""
    rates = {fact.run: measured.rate("4, no delays", 64, fact.run) for fact in paper.STEPS_PER_SECOND}
    faster = [run for run, rate in rates.items() if rate > 1.01 * rates["wagma"]]
    return Evidence(f"{len(faster)} are faster", judge(len(faster) == 2))


def _faster_runs(measured: Throughput, figure: str, workers: int) -> list[str]:
    """Return the runs of the paper that are faster than WAGMA."""
    runs = [run for run in measured.runs(figure) if run != "wagma" and not run.endswith("-once")]
    return [run for run in runs if measured.faster(figure, workers, run) < 1]


def _seven(measured: Throughput) -> Measured:
    """Judge figure 7 under two choices: AD-PSGD's exchanges overlap with its gradients, or take their time."""
    usual, other = (_judged_seven(measured, figure) for figure in ("7", NOT_HIDDEN))
    return {name: combine_choices(evidence, {EXCHANGED: other[name]}) for name, evidence in usual.items()}


def _judged_seven(measured: Throughput, exchanges: str) -> Measured:
    """Return the results, AD-PSGD's times from the case `exchanges`."""

    def steps(workers: int, run: str) -> float:
        return measured.rate(exchanges if run == "ad-psgd" else "7", workers, run)

    runs = [run for run in measured.runs("7") if run not in ("sgp-2", "wagma-global")]
    first = {workers: sorted(runs, key=lambda run: -steps(workers, run)) for workers in (16, 64)}
    parts = {run: steps(64, run) / IDEAL["7"] for run in runs}
    fastest = max(parts, key=lambda run: parts[run])
    single, double = (measured.seeds("7", 16, f"sgp-{neighbours}") for neighbours in (1, 2))
    shortest = max(measured.runs("7"), key=lambda run: steps(16, run))
    return {
        "first-16": Evidence(first[16][0], judge(first[16][0] == "wagma")),
        "first-64": Evidence(", ".join(first[64][:2]), judge(first[64][:2] == ["ad-psgd", "wagma"])),
        "ideal": Evidence(f"{fastest}: {parts[fastest]:.2f}; wagma: {parts['wagma']:.2f}", judge(max(parts.values()) < 0.8)),
        "overlap": Evidence(f"{parts['ad-psgd']:.2f}", judge(parts["ad-psgd"] < 0.9)),
        "neighbours-time": Evidence(f"{(double / single).mean() - 1:+.0%} steps", judge_less(double, single)),
        "shortest": Evidence(shortest, judge(shortest == "wagma")),
    }


def _ten(measured: Throughput) -> Measured:
    least, median, sigma = _EPISODE
    largest = least + median * math.exp(sigma * float(stats.norm.ppf(1 - 1 / 5000)))
    agrees = least == 1.7 and least + median < 2 and judge_close(largest, 43.5, CLOSE) == Verdict.AGREES
    faster = _faster_runs(measured, "10", 1024)
    runs = [run for run in measured.runs("10") if run != "ad-psgd" and not run.endswith("-once")]
    scaling = {run: measured.rate("10", 1024, run) / measured.rate("10", 16, run) for run in runs}
    iterations = measured.rate("10", 64, "ad-psgd") * _TEN_HOURS
    steps = measured.rate("10", 64, "wagma") * _TEN_HOURS * _EXPERIENCE
    return {
        "episodes": Evidence(f"{least} s, {least + median:.1f} s, {largest:.1f} s", judge(agrees)),
        "only-ad-psgd-ten": Evidence(", ".join(faster) or "none", judge(faster == ["ad-psgd"])),
        "efficiency": Evidence(
            ", ".join(f"{run} {share:.2f}" for run, share in scaling.items()),
            judge(scaling["wagma"] == max(scaling.values())),
        ),
        "iterations": Evidence(f"{iterations:,.0f}", judge_close(iterations, 13_000, CLOSE)),
        "experience": Evidence(f"{steps / 1e6:.1f} million", judge_close(steps, 2.1e6, CLOSE)),
    }
