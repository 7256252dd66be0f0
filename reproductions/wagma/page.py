"""The page's tables and text."""

import math

import pandas as pd

from reproductions.common import Claim, claims, near, table
from reproductions.wagma import accuracy, paper
from reproductions.wagma.paper import Fact
from reproductions.wagma.throughput import HALF_BATCH, Throughput

# Mean compute times of the scenarios: without communication and waiting, each worker does one over it.
_EPISODE = 1.7 + 0.2 * math.exp(1.51**2 / 2)
_SENTENCES = 0.35 * 0.38 + 0.3 * 0.436 + 0.2 * 0.492 + 0.1 * 0.584 + 0.05 * 0.732
IDEAL = {"4": 1 / (0.621 + 2 / 64 * 0.32), "7": 1 / _SENTENCES, "10": 1 / _EPISODE}
_CLOSE = 0.07  # "agrees"
_CALIBRATED = {("figure 8", "local-sgd"), ("figure 7", "wagma-global")}  # ratios


def text(measured: Throughput, errors: pd.DataFrame) -> str:
    """The whole page."""
    return TEXT.format(
        close=f"{_CLOSE:.0%}",
        even=claims(_even(measured)),
        four=claims(_faster(measured, "4")),
        sizes=_sizes(measured, "4"),
        largest=claims([_largest(measured), _only_ad_psgd(measured, "4", 64)]),
        five=claims(_times(measured, "5", "figure 5") + _minutes(measured)),
        compute=f"{HALF_BATCH:g}",
        errors=_errors(errors),
        order=claims(_order(errors)),
        ablations=claims(_ablations(errors)),
        seeds=errors["seed"].nunique(),
        seven=claims(_times(measured, "7", "figure 8") + _faster(measured, "7") + _first(measured)),
        seven_sizes=_sizes(measured, "7"),
        ten=claims([*_faster(measured, "10"), _only_ad_psgd(measured, "10", 1024)]),
        ten_sizes=_sizes(measured, "10"),
    )


def _even(measured: Throughput) -> list[Claim]:
    rows: list[Claim] = []
    for fact in paper.STEPS_PER_SECOND:
        ours = measured.of("4, no delays", fact.workers, fact.run)
        calibrated = "yes" if fact.run == "ad-psgd" else "in part"
        rows.append(
            (f"{fact.run}: steps per second", f"{fact.value:.2f}", f"{ours:.2f}", near(ours, fact.value, _CLOSE), calibrated)
        )
    return rows


def _faster(measured: Throughput, figure: str) -> list[Claim]:
    own = [fact for fact in paper.FASTER if fact.what == f"figure {figure}" or (figure == "4" and fact.what == "ablation 3")]
    return [_ratio(fact, measured.faster(figure, fact.workers, fact.run), "faster than") for fact in own]


def _times(measured: Throughput, figure: str, what: str) -> list[Claim]:
    own = [fact for fact in paper.TRAINING_TIME if fact.what == what]
    return [_ratio(fact, measured.faster(figure, fact.workers, fact.run), "trains faster than") for fact in own]


def _ratio(fact: Fact, ours: float, verb: str) -> Claim:
    what = f"{fact.what}: WAGMA {verb} {fact.run}, {fact.workers:,} workers"
    calibrated = "yes" if (fact.what, fact.run) in _CALIBRATED else "no"
    return what, f"{fact.value:.2f}", f"{ours:.2f}", near(ours, fact.value, _CLOSE), calibrated


def _largest(measured: Throughput) -> Claim:
    others = ("local-sgd", "allreduce", "d-psgd", "sgp", "eager-sgd")
    best = max(measured.faster("4", 256, run) for run in others)
    return (
        "largest speed-up at 256 workers",
        f"{paper.UP_TO.value:.2f}",
        f"{best:.2f}",
        near(best, paper.UP_TO.value, _CLOSE),
        "no",
    )


def _only_ad_psgd(measured: Throughput, figure: str, workers: int) -> Claim:
    others = [run for run in measured.runs(figure) if run != "wagma" and not run.endswith("-once")]
    faster = [run for run in others if measured.faster(figure, workers, run) < 1]
    what = f"figure {figure}: faster than WAGMA, {workers:,} workers"
    return what, "ad-psgd alone", ", ".join(faster) or "none", faster == ["ad-psgd"], "no"


def _minutes(measured: Throughput) -> list[Claim]:
    rows: list[Claim] = []
    for fact in paper.MINUTES:
        steps = paper.EPOCHS[fact.run] * paper.STEPS_PER_EPOCH
        ours = steps / measured.of("5", fact.workers, fact.run) / 60
        rows.append(
            (
                f"{fact.what}: minutes of {fact.run}",
                f"{fact.value:.0f}",
                f"{ours:.0f}",
                near(ours, fact.value, _CLOSE),
                "in part",
            )
        )
    return rows


def _first(measured: Throughput) -> list[Claim]:
    fastest = {workers: max(measured.runs("7"), key=lambda run: measured.of("7", workers, run)) for workers in (16, 64)}
    return [
        ("figure 7: fastest of 16 workers", "wagma", fastest[16], fastest[16] == "wagma", "no"),
        ("figure 7: fastest of 64 workers", "ad-psgd", fastest[64], fastest[64] == "ad-psgd", "no"),
    ]


def _sizes(measured: Throughput, figure: str) -> str:
    sizes = measured.workers(figure)
    rows = [[run, *(f"{measured.of(figure, size, run):.2f}" for size in sizes)] for run in measured.runs(figure)]
    return table(["steps per second", *(f"{size:,} workers" for size in sizes)], rows)


def _errors(errors: pd.DataFrame) -> str:
    known = {fact.run: fact.value for fact in (*paper.ACCURACY_EVEN, *paper.ACCURACY)}
    rows = []
    for run, own in accuracy.ends(errors).iterrows():
        papers = f"{known[str(run)]:.1f}" if run in known else "–"
        rows.append([str(run), papers, *(f"{own[name]:.4f}" for name in ("error", "spread", "replicas_error"))])
    return table(["run", "paper: top-1, %", "FRED: mean model's error", "seeds differ by", "models' own"], rows)


def _better(errors: pd.DataFrame, first: str, second: str, what: str, papers: str) -> Claim:
    """Decided where the difference is larger than what seeds make."""
    own = accuracy.ends(errors)
    ours, gap = own["error"], own["error"][second] - own["error"][first]
    decided = abs(gap) > max(own["spread"][first], own["spread"][second])
    return what, papers, f"{ours[first]:.4f} against {ours[second]:.4f}", bool(gap > 0) if decided else None, "no"


def _order(errors: pd.DataFrame) -> list[Claim]:
    pairs = (("local-sgd", "wagma"), ("wagma", "sgp"), ("sgp", "d-psgd"), ("d-psgd", "ad-psgd"))
    values = {fact.run: fact.value for fact in paper.ACCURACY_EVEN}
    return [
        _better(errors, a, b, f"{a} more accurate than {b}", f"{values[a]:.1f} against {values[b]:.1f} %") for a, b in pairs
    ]


def _ablations(errors: pd.DataFrame) -> list[Claim]:
    values = {fact.run: fact for fact in paper.ACCURACY}
    return [
        _better(errors, "wagma", run, f"better than {values[run].what}", f"75.3 against {values[run].value:.1f} %")
        for run in ("local-sgd-10", "wagma-fixed", "wagma-4")
    ]


TEXT = """# WAGMA-SGD (Li et al. 2021)

Made by `make reproduce` (this part alone: `python -m reproductions wagma`; without the training, `--timing`) from
`scenarios/wagma-sgd/` and the CSV files beside this page. Every number of section 5 is in `reproductions/wagma/paper.py`.

"Agrees" means within {close}. **Calibrated**: 0.621 s of computing per step of 128 images (AD-PSGD's 1.61 steps per second
without delays), {compute} s per step of 64 (the paper's 238 minutes for 130 epochs of AD-PSGD), 5 GB/s (the throughput of
the others without delays). Of figures 4, 5 and 10 no ratio was calibrated. **Taken from the published code**: delays are drawn
nearly independently, about two in each step; D-PSGD and SGP exchange models tensor by tensor, 161 one after the other; WAGMA
averages globally at every 11th step.
**Scaled down**: 40 to 120 s of virtual time, three seeds; errors on MNIST (below). BLEU and SPL scores are not measured.

## Without delays: 64 workers, total batch 8,192

{even}

## Figure 4: throughput with delays

{four}

{largest}

{sizes}

Groups have about sqrt(P) workers; ablation 3 is one group of all. The dotted line of the figure is what 64 workers would do
without communication and waiting.

![figure 4](wagma-figure4.svg)

## Figure 5: times, total batch 4,096

{five}

## Figure 5 and ablations: errors

MNIST and a 784-32-10 network on 64 workers, batches of 16, 400 steps of each, rate 0.2; {seeds} seeds. The order is compared,
not the values; a difference no larger than that between seeds decides nothing. The mean of all models is looked at, as after a
global average: a worker's own has just made a step with a small batch by itself.

{errors}

{order}

{ablations}

![figure 5](wagma-figure5.svg)

## Figures 7 and 8: a Transformer on sentences in buckets

The paper shows the distribution of times as a picture only (figure 6): the buckets are made up. **Calibrated**: how far they
are apart, on the time of local SGD, and 2.4 GB/s for models of 245 MB, on groups of 16; the other ratios are predictions.

{seven}

{seven_sizes}

![figure 7](wagma-figure7.svg)

## Figure 10: episodes of very different lengths

**Calibrated** on figure 9: at least 1.7 s, median below 2 s, 43.5 s the longest of 5,000. Runs named `-once` send models as a
whole, so that who is late holds up its neighbours only; the others wait as if for a global clock.

{ten}

{ten_sizes}

![figure 10](wagma-figure10.svg)
"""
