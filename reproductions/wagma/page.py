"""The page: the paper's claims, next to tables of measurements."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from reproductions.common import fill, table
from reproductions.verdicts import CHOICES, CRITERION, Claims, Measured, format_mean, read_claims, tables
from reproductions.wagma import accuracy, bandwidths, further, numbers, orders, paper, speeds, variations
from reproductions.wagma.bandwidths import Bandwidths
from reproductions.wagma.numbers import CLOSE
from reproductions.wagma.paper import Fact
from reproductions.wagma.throughput import HALF_BATCH, NOT_HIDDEN, Throughput
from reproductions.wagma.variations import FOUR, TEN, Variations


def claims() -> Claims:
    """Return the claims that are a number in the text, and the others."""
    of_numbers = numbers.claims()
    return {section: {**of_numbers.get(section, {}), **group} for section, group in read_claims(Path(__file__).parent).items()}


def judge_claims(throughput: Throughput, errors: pd.DataFrame, further_rows: pd.DataFrame) -> Measured:
    """Return the evidence for each claim, by its name."""
    return {**numbers.judge_numbers(throughput), **speeds.judge_speeds(throughput), **orders.judge_orders(errors, further_rows)}


def text(
    throughput: Throughput, rates: Bandwidths, changed: Variations, errors: pd.DataFrame, further_rows: pd.DataFrame
) -> str:
    """Return the page."""
    agrees = rates.agreeing()
    twice = numbers.minutes("d-psgd-twice", changed.rate("5", variations.TWICE, "d-psgd-twice"))
    return fill(
        Path(__file__).with_name("page.md"),
        **tables(claims(), judge_claims(throughput, errors, further_rows)),
        criterion=CRITERION,
        time_seeds=len(throughput.seeds("4", 64, "wagma")),
        bandwidths=rates.table(),
        ablation=_list_bandwidths(agrees["wagma-global"]),
        eager=_list_bandwidths(agrees["eager-sgd"]),
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
        late_errors=_errors(errors, further_rows),
        spreads=_spreads(errors, further_rows),
        late=further.LATE,
        choices=CHOICES,
        advantage=f"{numbers.ADVANTAGE:.0%}",
        even_errors=_further_errors(further_rows),
        seeds=errors["seed"].nunique(),
        few=len(further.FEW),
        beside=f"{throughput.rate('7', 16, 'wagma') / throughput.rate(NOT_HIDDEN, 16, 'ad-psgd'):.2f}",
        seven_sizes=_sizes(throughput, "7"),
        epochs=_epochs(throughput),
        ten_changed=_changed(throughput, changed, "10", TEN),
        ten_sizes=_sizes(throughput, "10"),
    )


def _list_bandwidths(agrees: "pd.Series[bool]") -> str:
    """Return the bandwidths at which a run agrees."""
    return ", ".join(f"{bandwidth:g}" for bandwidth in agrees.index[agrees]) + " GB/s"


def _changed(measured: Throughput, changed: Variations, figure: str, runs: Sequence[str]) -> str:
    """Return WAGMA's speed-ups in the paper, in the scenario as it is, and with one thing changed."""
    facts = {fact.run: fact for fact in paper.FASTER if fact.experiment in (f"figure {figure}", "ablation 3")}
    rows = [["the paper", *(f"{facts[run].value:.2f}" for run in runs)]]
    rows += [["as above", *(f"{measured.faster(figure, facts[run].workers, run):.2f}" for run in runs)]]
    rows += [
        changed.row(variation.figure, variation.change, runs)
        for variation in variations.VARIATIONS
        if variation.figure == figure
    ]
    return table(["WAGMA faster than", *runs], rows)


def _own_communication(changed: Variations, figure: str, facts: Sequence[Fact]) -> str:
    """Return the runs with printed throughput without delays, with that as their communication."""
    printed_runs = {fact.run for fact in paper.STEPS_PER_SECOND}
    printed = [fact for fact in facts if fact.experiment == f"figure {figure}" and fact.run in printed_runs]
    rows = [
        [fact.run, f"{fact.value:.2f}", f"{changed.faster(figure, variations.PRINTED_RATES, fact.run):.2f}"] for fact in printed
    ]
    return table(["WAGMA faster than", "paper", "FRED"], rows)


def _sizes(measured: Throughput, figure: str) -> str:
    sizes = measured.workers(figure)
    rows = [[run, *(f"{measured.rate(figure, size, run):.2f}" for size in sizes)] for run in measured.runs(figure)]
    return table(["steps per second", *(f"{size:,} workers" for size in sizes)], rows)


def _epochs(measured: Throughput) -> str:
    """Return figure 8's times, of ten epochs of 16 workers and of one, relative to WAGMA's."""
    wagma = measured.rate("7", 16, "wagma")
    printed = {fact.run: f"{fact.value:.2f}" for fact in paper.TRAINING_TIME if fact.experiment == "figure 8"} | {
        "wagma": "1.00"
    }
    runs = [run for run in measured.runs("7") if run not in ("allreduce", "wagma-global")]
    rows = [[run, printed.get(run, "–"), f"{wagma / measured.rate('7', 16, run):.2f}"] for run in runs]
    return table(["time of an epoch, of WAGMA's", "paper", "FRED"], rows)


def _errors(errors: pd.DataFrame, further_rows: pd.DataFrame) -> str:
    spread = orders.spread_errors(errors, further_rows).mean()
    printed, lower = {fact.run: fact.value for fact in paper.ACCURACY}, accuracy.ends(errors, accuracy.LOWER)["error"]
    rows = []
    for run, end in accuracy.ends(errors).iterrows():
        papers = f"{printed[str(run)]:.1f}" if run in printed else "–"
        ours = [f"{end[name]:.4f}" for name in ("error", "spread", "replicas_error")]
        varied = f"{spread[str(run)]:.4f}" if run in spread else "–"
        rows.append([str(run), papers, *ours, varied, f"{lower[str(run)]:.4f}"])
    header = ["run", "paper: top-1, %", "FRED: mean model's error", "seeds differ by", "models' own"]
    return table([*header, further.spread(further.LATE), f"rate {accuracy.LOWER:g}"], rows)


def _spreads(errors: pd.DataFrame, further_rows: pd.DataFrame) -> str:
    """Return WAGMA's error by the spread of compute times."""
    errors_by_spread = {0: accuracy.by_seed(errors)["wagma"]}
    errors_by_spread |= {spread: further.by_seed(further_rows, further.spread(spread))["wagma"] for spread in further.SPREADS}
    local = accuracy.by_seed(errors)["local-sgd"]
    rows = [[f"{spread} ms", format_mean(error), f"{(error / local).mean():.2f}"] for spread, error in errors_by_spread.items()]
    return table(["spread (standard deviation)", "WAGMA's error", "of local SGD's"], rows)


def _further_errors(further_rows: pd.DataFrame) -> str:
    """Return the errors of the cases that `further` measured."""
    printed = {(further.NO_DELAYS, fact.run): fact.value for fact in paper.ACCURACY_EVEN}
    longer, twice = paper.MORE_TRAINING
    printed |= {(further.LONGER, "ad-psgd"): longer.value, (further.DOUBLE, "d-psgd"): twice.value}
    rows = []
    for case in further.CASES[: -len(further.SPREADS) - 1]:  # spreads have tables of their own
        for run in case.runs:
            error, model_errors = (further.ends(further_rows, case.name, run, column) for column in ("error", "replicas_error"))
            papers = f"{printed[case.name, run]:.1f}" if (case.name, run) in printed else "–"
            spread = (error - error.mean()).abs().max()
            rows.append([case.name, run, papers, f"{error.mean():.4f}", f"{spread:.4f}", f"{model_errors.mean():.4f}"])
    return table(["case", "run", "paper: top-1, %", "FRED: mean model's error", "seeds differ by", "models' own"], rows)
