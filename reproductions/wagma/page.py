"""The page's tables, and what is said of them."""

import math
from collections.abc import Sequence

import pandas as pd

from reproductions.common import Claim, claims, near, table
from reproductions.wagma import accuracy, paper, variations
from reproductions.wagma.paper import Fact
from reproductions.wagma.text import TEXT
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
