"""The page's tables and text."""

import math
from collections.abc import Sequence

import pandas as pd

from reproductions.common import Claim, claims, near, table
from reproductions.wagma import accuracy, paper, variations
from reproductions.wagma.paper import Fact
from reproductions.wagma.throughput import HALF_BATCH, Throughput
from reproductions.wagma.variations import FOUR, TEN, Variations

# Mean compute times of the scenarios: without communication and waiting, each worker does one over it.
_EPISODE = 1.7 + 0.2 * math.exp(1.51**2 / 2)
_SENTENCES = 0.35 * 0.38 + 0.3 * 0.436 + 0.2 * 0.492 + 0.1 * 0.584 + 0.05 * 0.732
IDEAL = {"4": 1 / (0.621 + 2 / 64 * 0.32), "7": 1 / _SENTENCES, "10": 1 / _EPISODE}
_CLOSE = 0.07  # "agrees"
_CALIBRATED = {("figure 8", "local-sgd"), ("figure 7", "wagma-global")}  # ratios


def text(measured: Throughput, changed: Variations, errors: pd.DataFrame) -> str:
    """The whole page."""
    return TEXT.format(
        close=f"{_CLOSE:.0%}",
        even=claims(_even(measured)),
        four=claims(_faster(measured, "4")),
        four_changed=_changed(measured, changed, "4", FOUR),
        own=_own_communication(changed, "4", paper.FASTER),
        sizes=_sizes(measured, "4"),
        largest=claims([_largest(measured), _only_ad_psgd(measured, "4", 64)]),
        five=claims(_times(measured, "5", "figure 5") + _minutes(measured)),
        own_five=_own_communication(changed, "5", paper.TRAINING_TIME),
        twice=f"{_minutes_of('d-psgd-twice', changed.of('5', variations.TWICE, 'd-psgd-twice')):.0f}",
        compute=f"{HALF_BATCH:g}",
        errors=_errors(errors),
        order=claims(_order(errors)),
        ablations=claims(_ablations(errors)),
        seeds=errors["seed"].nunique(),
        seven=claims(_times(measured, "7", "figure 8") + _faster(measured, "7") + _first(measured)),
        beside=f"{changed.faster('7', variations.BESIDE, 'ad-psgd'):.2f}",
        seven_sizes=_sizes(measured, "7"),
        ten=claims([*_faster(measured, "10"), _only_ad_psgd(measured, "10", 1024)]),
        ten_changed=_changed(measured, changed, "10", TEN),
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


def _ratio(fact: Fact, ours: float, verb: str, calibrated: str = "no") -> Claim:
    what = f"{fact.what}: WAGMA {verb} {fact.run}, {fact.workers:,} workers"
    calibrated = "yes" if (fact.what, fact.run) in _CALIBRATED else calibrated
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
        ours = _minutes_of(fact.run, measured.of("5", fact.workers, fact.run))
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


def _minutes_of(run: str, steps_per_second: float) -> float:
    return paper.EPOCHS[run] * paper.STEPS_PER_EPOCH / steps_per_second / 60


def _changed(measured: Throughput, changed: Variations, figure: str, runs: Sequence[str]) -> str:
    """WAGMA's speed-ups in the paper, as the scenario has them, and with one thing changed."""
    own = {fact.run: fact for fact in paper.FASTER if fact.what in (f"figure {figure}", "ablation 3")}
    rows = [["the paper", *(f"{own[run].value:.2f}" for run in runs)]]
    rows += [["as above", *(f"{measured.faster(figure, own[run].workers, run):.2f}" for run in runs)]]
    rows += [changed.row(each.figure, each.what, runs) for each in variations.VARIATIONS if each.figure == figure]
    return table(["WAGMA faster than", *runs], rows)


def _own_communication(changed: Variations, figure: str, facts: Sequence[Fact]) -> str:
    """Of the runs whose throughput without delays is printed: with that as their communication."""
    known = {fact.run for fact in paper.STEPS_PER_SECOND}
    own = [fact for fact in facts if fact.what == f"figure {figure}" and fact.run in known]
    verb = "faster than" if figure == "4" else "trains faster than"
    return claims([_ratio(fact, changed.faster(figure, variations.OWN, fact.run), verb, "in part") for fact in own])


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
    lower = accuracy.ends(errors, accuracy.LOWER)["error"]
    rows = []
    for run, own in accuracy.ends(errors).iterrows():
        papers = f"{known[str(run)]:.1f}" if run in known else "–"
        ours = [f"{own[name]:.4f}" for name in ("error", "spread", "replicas_error")]
        rows.append([str(run), papers, *ours, f"{lower[str(run)]:.4f}"])
    header = ["run", "paper: top-1, %", "FRED: mean model's error", "seeds differ by", "models' own"]
    return table([*header, f"mean model's at rate {accuracy.LOWER:g}"], rows)


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
the others without delays). Of figures 4, 5 and 10 no ratio was calibrated. **Taken from the published code**: delays are
drawn nearly independently, about two in each step; D-PSGD and SGP exchange models tensor by tensor, one after the other, in
figures 4 and 10, and on one global clock in figure 7 and the errors of figure 5; WAGMA averages globally at every 11th step,
and it and eager-SGD do so by recursive doubling, the others by a ring. **Scaled down**: 40 to 120 s of virtual time, three
seeds; errors on MNIST (below). BLEU and SPL scores are not measured.

## Without delays: 64 workers, total batch 8,192

{even}

## Figure 4: throughput with delays

{four}

{largest}

{sizes}

Groups have about sqrt(P) workers; ablation 3 is one group of all. The dotted line of the figure is what 64 workers would do
without communication and waiting.

![figure 4](wagma-figure4.svg)

**With the paper's own throughput without delays as communication**, each run's by itself:

{own}

**What explains what is left**: one thing changed, 64 workers, one seed.

{four_changed}

* Ablation 3 and eager-SGD: the paper's 1.61 and 1.55 steps per second without delays leave 24 ms for WAGMA's communication.
  Three more phases of the butterfly at that speed cannot cost a fifth of a step, nor does it matter who starts eager-SGD's
  allreduce, as few are late. At the 1.6 GB/s that D-PSGD needs in figure 5 (below) both agree, but then WAGMA does only 1.2
  steps per second without delays. The published code averages a tensor as soon as its gradient is there, so that most of it
  is hidden behind the backward pass; what a second exchange or a larger group adds is not. FRED hides nothing.
* SGP, local SGD, D-PSGD: how often nobody is delayed. The published streams start equal, and 97% of the first hundred steps
  delay somebody, but 88% of those after a thousand (87%: independent draws, as here).
* Not explained: about 6% between WAGMA and those that wait for all, if the printed throughputs without delays are taken
  literally.

Numbers in remarks like these that no table has were tried once, by hand.

## Figure 5: times, total batch 4,096

{five}

With the paper's own throughput without delays as communication:

{own_five}

D-PSGD, communicating twice, takes {twice} minutes where its models pass at 1.6 GB/s (**calibrated** on these): what it
sends beside what the backward pass hides then costs three times what the throughput without delays says.

## Figure 5 and ablations: errors

MNIST and a 784-32-10 network on 64 workers, batches of 16, 400 steps of each, {seeds} seeds. One rate for all, 0.8: of 0.2,
0.8 and 1.6 the one at which local SGD does best. The order is compared, not the values; a difference no larger than that
between seeds decides nothing. The mean of all models is looked at, as after a global average: a worker's own has just made
a step with a small batch by itself.

{errors}

{order}

{ablations}

At a quarter of the rate only noise is left to tell the systems apart: the mean of 64 models is as good however they were
averaged. At the higher one models that differ have the better mean: groups of 4 and 8 surpass one of 64, and local SGD.
WAGMA's error depends on who counts as late: were compute times spread by 5 ms, all but the first worker would be, its mean
model would make half of a step in each, and the error at rate 0.2 be 0.083 (`docs/errata.md`, item 15).

![figure 5](wagma-figure5.svg)

## Figures 7 and 8: a Transformer on sentences in buckets

The paper shows the distribution of times as a picture only (figure 6): the buckets are made up. **Calibrated**: how far
they are apart, on the time of local SGD, and 2.4 GB/s for models of 245 MB, on groups of 16; the other ratios are
predictions.

{seven}

{seven_sizes}

AD-PSGD's exchanges cost nothing here, as they go on beside the gradients. The paper says of this model that "not even
AD-PSGD manages to overlap communication with computation". Where each step is longer by its exchange, there and back, WAGMA
trains {beside} times as fast as AD-PSGD (1.10 in the paper), and is the fastest of 16.

![figure 7](wagma-figure7.svg)

## Figure 10: episodes of very different lengths

**Calibrated** on figure 9: at least 1.7 s, median below 2 s, 43.5 s the longest of 5,000. Runs named `-once` send models as
a whole, the others 74 tensors, one after the other: who is late holds up those so many edges away.

{ten}

{ten_sizes}

The three numbers that figure 9 has in print leave the tail open, and among 1,024 workers the tail is all that counts. With
the same three numbers (1,024 workers, one seed):

{ten_changed}

So figure 10's ratios are no test of the protocols. Besides, 200 s are seven steps of those who wait for all: with so heavy a
tail such a ratio is good to 15%.

![figure 10](wagma-figure10.svg)
"""
