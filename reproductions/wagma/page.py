"""The page: the paper's claims, next to tables of measurements."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from reproductions.combined import CHOICES
from reproductions.common import table
from reproductions.verdicts import CRITERION, Claims, Measured, read, shown, tables
from reproductions.wagma import accuracy, bandwidths, further, numbers, orders, paper, speeds, variations
from reproductions.wagma.bandwidths import Bandwidths
from reproductions.wagma.numbers import CLOSE
from reproductions.wagma.paper import Fact
from reproductions.wagma.text import TEXT
from reproductions.wagma.throughput import HALF_BATCH, NOT_HIDDEN, Throughput
from reproductions.wagma.variations import FOUR, TEN, Variations


def claims() -> Claims:
    """Those that are a number in the text, and the others."""
    of_numbers = numbers.claims()
    return {section: {**of_numbers.get(section, {}), **own} for section, own in read(Path(__file__).parent).items()}


def measured(throughput: Throughput, errors: pd.DataFrame, more: pd.DataFrame) -> Measured:
    """Return the measured value of each claim."""
    return {**numbers.found(throughput), **speeds.found(throughput), **orders.found(errors, more)}


def text(throughput: Throughput, rates: Bandwidths, changed: Variations, errors: pd.DataFrame, more: pd.DataFrame) -> str:
    """The whole page."""
    agrees = rates.agreeing()
    twice = numbers.minutes("d-psgd-twice", changed.of("5", variations.TWICE, "d-psgd-twice"))
    return TEXT.format(
        **tables(claims(), measured(throughput, errors, more)),
        criterion=CRITERION,
        time_seeds=len(throughput.seeds("4", 64, "wagma")),
        bandwidths=rates.table(),
        ablation=_listed(agrees["wagma-global"]),
        eager=_listed(agrees["eager-sgd"]),
        longer=1000 * rates.communication()[agrees["wagma-global"] | agrees["eager-sgd"]].min(),
        shortest=1000 * rates.communication().min(),
        nearest=rates.communication().idxmin(),
        paper_ms=1000 * bandwidths.PRINTED,
        close=f"{CLOSE:.0%}",
        four_changed=_changed(throughput, changed, "4", FOUR),
        own=_own_communication(changed, "4", paper.FASTER),
        four_sizes=_sizes(throughput, "4"),
        own_five=_own_communication(changed, "5", paper.TRAINING_TIME),
        minutes=f"{twice:.0f}",
        compute=f"{HALF_BATCH:g}",
        late_errors=_errors(errors, more),
        spreads=_spreads(errors, more),
        late=further.LATE,
        choices=CHOICES,
        advantage=f"{numbers.ADVANTAGE:.0%}",
        even_errors=_even_errors(more),
        seeds=errors["seed"].nunique(),
        beside=f"{throughput.of('7', 16, 'wagma') / throughput.of(NOT_HIDDEN, 16, 'ad-psgd'):.2f}",
        seven_sizes=_sizes(throughput, "7"),
        epochs=_epochs(throughput),
        ten_changed=_changed(throughput, changed, "10", TEN),
        ten_sizes=_sizes(throughput, "10"),
    )


def _listed(agrees: "pd.Series[bool]") -> str:
    """Return the bandwidths at which a run agrees."""
    return ", ".join(f"{bandwidth:g}" for bandwidth in agrees.index[agrees]) + " GB/s"


def _changed(measured: Throughput, changed: Variations, figure: str, runs: Sequence[str]) -> str:
    """WAGMA's speed-ups in the paper, as the scenario has them, and with one thing changed."""
    own = {fact.run: fact for fact in paper.FASTER if fact.what in (f"figure {figure}", "ablation 3")}
    rows = [["the paper", *(f"{own[run].value:.2f}" for run in runs)]]
    rows += [["as above", *(f"{measured.faster(figure, own[run].workers, run):.2f}" for run in runs)]]
    rows += [changed.row(each.figure, each.what, runs) for each in variations.VARIATIONS if each.figure == figure]
    return table(["WAGMA faster than", *runs], rows)


def _own_communication(changed: Variations, figure: str, facts: Sequence[Fact]) -> str:
    """Return the runs with printed throughput without delays, with that as their communication."""
    known = {fact.run for fact in paper.STEPS_PER_SECOND}
    own = [fact for fact in facts if fact.what == f"figure {figure}" and fact.run in known]
    rows = [[fact.run, f"{fact.value:.2f}", f"{changed.faster(figure, variations.OWN, fact.run):.2f}"] for fact in own]
    return table(["WAGMA faster than", "paper", "FRED"], rows)


def _sizes(measured: Throughput, figure: str) -> str:
    sizes = measured.workers(figure)
    rows = [[run, *(f"{measured.of(figure, size, run):.2f}" for size in sizes)] for run in measured.runs(figure)]
    return table(["steps per second", *(f"{size:,} workers" for size in sizes)], rows)


def _epochs(measured: Throughput) -> str:
    """Figure 8's times: ten epochs of 16 workers, and one, in those of WAGMA."""
    wagma = measured.of("7", 16, "wagma")
    printed = {fact.run: f"{fact.value:.2f}" for fact in paper.TRAINING_TIME if fact.what == "figure 8"} | {"wagma": "1.00"}
    runs = [run for run in measured.runs("7") if run not in ("allreduce", "wagma-global")]
    rows = [[run, printed.get(run, "–"), f"{wagma / measured.of('7', 16, run):.2f}"] for run in runs]
    return table(["time of an epoch, of WAGMA's", "paper", "FRED"], rows)


def _errors(errors: pd.DataFrame, more: pd.DataFrame) -> str:
    spread = further.by_seed(more, further.spread(further.LATE)).mean()
    known, lower = {fact.run: fact.value for fact in paper.ACCURACY}, accuracy.ends(errors, accuracy.LOWER)["error"]
    rows = []
    for run, own in accuracy.ends(errors).iterrows():
        papers = f"{known[str(run)]:.1f}" if run in known else "–"
        ours = [f"{own[name]:.4f}" for name in ("error", "spread", "replicas_error")]
        varied = f"{spread[str(run)]:.4f}" if run in spread else "–"
        rows.append([str(run), papers, *ours, varied, f"{lower[str(run)]:.4f}"])
    header = ["run", "paper: top-1, %", "FRED: mean model's error", "seeds differ by", "models' own"]
    return table([*header, further.spread(further.LATE), f"rate {accuracy.LOWER:g}"], rows)


def _spreads(errors: pd.DataFrame, more: pd.DataFrame) -> str:
    """WAGMA's error by the spread of compute times."""
    own = {0: accuracy.by_seed(errors)["wagma"]}
    own |= {each: further.by_seed(more, further.spread(each))["wagma"] for each in further.SPREADS}
    local = accuracy.by_seed(errors)["local-sgd"]
    rows = [[f"{each} ms", shown(error), f"{error.mean() / local.mean():.2f}"] for each, error in own.items()]
    return table(["spread (standard deviation)", "WAGMA's error", "of local SGD's"], rows)


def _even_errors(more: pd.DataFrame) -> str:
    """Errors of the cases that `further` measured."""
    known = {(further.EVEN, fact.run): fact.value for fact in paper.ACCURACY_EVEN}
    longer, twice = paper.MORE_TRAINING
    known |= {(further.LONGER, "ad-psgd"): longer.value, (further.DOUBLE, "d-psgd"): twice.value}
    rows = []
    for case in further.CASES[: -len(further.SPREADS) - 1]:  # spreads have tables of their own
        for run in case.runs:
            error, own = (further.ends(more, case.what, run, each) for each in ("error", "replicas_error"))
            papers = f"{known[case.what, run]:.1f}" if (case.what, run) in known else "–"
            spread = (error - error.mean()).abs().max()
            rows.append([case.what, run, papers, f"{error.mean():.4f}", f"{spread:.4f}", f"{own.mean():.4f}"])
    return table(["case", "run", "paper: top-1, %", "FRED: mean model's error", "seeds differ by", "models' own"], rows)
