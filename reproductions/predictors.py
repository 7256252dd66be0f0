"""Every rule for the cutoff in closed loop: on synthetic clusters of 158 workers, and on recorded traces."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base.errors import FredError
from fred.cluster.contention import NodeOf
from fred.prediction import closed_loop, comparison
from fred.prediction.auto import Auto
from fred.prediction.comparison import Comparison, rolling, rule_named
from fred.prediction.contract import CutoffRule
from fred.prediction.deep import saved
from fred.prediction.deep.rule import DMM, SHARES, train_best
from fred.traces.reading import read
from fred.traces.trace import Trace
from reproductions.common import RESULTS, ROOT, data_folder, fill, in_processes, say, store, table, write

CHEAP = tuple(name for name in comparison.RULES if name not in ("auto", "oracle-throughput"))
LIMITS = ("oracle", "oracle-throughput")
RECORDED_RULES = (*CHEAP, "auto", "oracle-throughput")  # too few iterations for a deep model
_TIE = 0.003  # less is no difference
_BELOW = 0.002  # of the oracle: who is so much worse than the best static cutoff is worse
KINDS = {158: ("paper", "bursty", "rotate", "iid")}
SEEDS = {158: (50,)}  # on which nothing was developed or chosen
TRACES: dict[str, dict[str, Any]] = {  # trace -> how it is read
    "ec2-10-workers": {"mend": "fill"},
    "ec2-15-workers": {},
    "lambda-256-workers": {},
    "llm-64-workers": {},
}
ORIGINS = 4  # at which rules are trained, the first in the middle of a trace
SYNTHETIC, RECORDED = RESULTS / "predictors.csv", RESULTS / "predictors-traces.csv"
MODELS = ROOT / "results" / "predictors"  # trained ones, for who is interrupted


@dataclass(frozen=True)
class Case:
    """One synthetic cluster."""

    kind: str
    workers: int
    seed: int

    def load(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NodeOf]:
        """Return run-times to train on and to run on, s, and the workers' nodes. Raises FredError if the tool is missing."""
        tool = data_folder().parent / "tools" / "clusters.py"
        if not tool.exists():
            raise FredError(f"cannot make the test clusters: there is no {tool}; set FRED_DATA")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "cluster.npz"
            subprocess.run([sys.executable, tool, self.kind, str(self.workers), str(self.seed), file], check=True)
            with np.load(file) as stored:
                return stored["train"].astype(float), stored["test"].astype(float), stored["node"].astype(np.int64)


def training() -> None:
    """Train and run every rule on every cluster: an hour on two cores."""
    store(RECORDED, [row for _, rows in in_processes(measure_on_trace, list(TRACES)) for row in rows], "%.5g")
    cases = [Case(kind, n, seed) for n, kinds in KINDS.items() for seed in SEEDS[n] for kind in kinds]
    measure_cases(_synthetic, cases, SYNTHETIC)


def measure_cases(measure: Callable[[Case], list[dict[str, Any]]], cases: Sequence[Case], path: Path) -> None:
    """Measure cases on all cores; write the rows of all that have ended, one case after the other."""
    rows: list[dict[str, Any]] = []
    for case, case_rows in in_processes(measure, cases):
        rows += case_rows
        store(path, rows, "%.5g")
        say(f"{path.stem}: {case.kind}, {case.workers} workers, seed {case.seed}")


def _synthetic(case: Case) -> list[dict[str, Any]]:
    train, test, node_of = case.load()
    deep = _deep(case, train, node_of)
    rules: dict[str, CutoffRule] = {name: rule_named(name) for name in CHEAP}
    rules |= {"dmm": deep, "dmm-alone": deep.model_copy(update={"alone": True}), "auto": Auto().watching(deep)}
    rules |= {name: rule_named(name) for name in LIMITS}
    return [{**vars(case), "rule": name, **_row(rule, train, test, node_of)} for name, rule in rules.items()]


def _row(rule: CutoffRule, train: NDArray[np.float64], test: NDArray[np.float64], node_of: NodeOf) -> dict[str, float]:
    """Return the row of a rule's results."""
    start = time.perf_counter()
    rule = rule.trained(train, node_of)
    seconds = np.nan if isinstance(rule, DMM) else time.perf_counter() - start  # that is trained before
    return {**closed_loop.run(rule, test, node_of).summary(), "training": seconds}


def _deep(case: Case, train: NDArray[np.float64], node_of: NodeOf) -> DMM:
    """Return a deep model of the case, which is trained only if it has not been."""
    file = MODELS / f"{case.kind}-{case.workers}-{case.seed}.npz"
    if not file.exists():
        train_best(DMM(), train, node_of).save(file)
    return DMM(model=file)


def recorded_trace(name: str) -> Trace:
    """Return a recorded trace. Raises FredError if it is missing."""
    path = data_folder() / "traces" / f"{name}.csv"
    if not path.exists():
        raise FredError(f"there is no recorded trace {path}; set FRED_DATA to the folder that has `traces`")
    return read(path, **TRACES[name])


def measure_on_trace(name: str, rules: Sequence[str] = RECORDED_RULES) -> list[dict[str, Any]]:
    """Return each rule's results by a rolling origin, with intervals of its throughput relative to that of others."""
    trace = recorded_trace(name)
    first = trace.iterations // 2
    outcome = rolling(trace, first, -(-(trace.iterations - first) // ORIGINS), rules)
    facts = {
        "trace": name,
        "first": first,
        "trained": outcome.trained,
        "rounds": outcome.counted_rounds,
        "best": outcome.best_rule,
    }
    return [{**facts, "rule": rule, **summary, **_ratios(outcome, rule)} for rule, summary in outcome.rules.items()]


def _ratios(outcome: Comparison, rule: str) -> dict[str, float]:
    """Return a rule's throughput relative to that of others, with its interval."""
    return {
        f"{end} against {other}": value for other, by in outcome.ratios.items() for end, value in by[rule]._asdict().items()
    }


def report() -> str:
    """Write predictors.md from the measurements."""
    synthetic, recorded = pd.read_csv(SYNTHETIC), pd.read_csv(RECORDED)
    text = fill(
        Path(__file__).with_suffix(".md"),
        means=_side_by_side(synthetic, _mean),
        worst=_side_by_side(synthetic, _worst_seed),
        judgement=_judgement(synthetic),
        deep=_deep_models(),
        below=_BELOW,
        seeds="; ".join(f"{n:,} workers: {', '.join(map(str, seeds))}" for n, seeds in SEEDS.items()),
        cost=_cost(synthetic),
        recorded=trace_table(recorded, lambda row: _number(row["of_oracle"])),
        against_count=trace_table(recorded, lambda row: _relative(row, "count")),
        against_best=trace_table(recorded, lambda row: _relative(row, "best")),
        against_all=trace_table(recorded, lambda row: _relative(row, "all")),
        undecided=_indistinguishable(recorded),
        warm_up=closed_loop.WARM_UP,
        origins=int(recorded["trained"].max()),
    )
    return write("predictors", text)


def _side_by_side(rows: pd.DataFrame, value: Callable[[pd.DataFrame, str], str]) -> str:
    """Return a table with a row for each rule, a column for each cluster."""
    clusters = [(n, kind) for n, kinds in KINDS.items() for kind in kinds]
    parts = [rows[(rows["workers"] == n) & (rows["kind"] == kind)] for n, kind in clusters]
    cells = [[rule, *(value(part, rule) for part in parts)] for rule in rows["rule"].drop_duplicates()]
    return table(["rule", *(f"{kind}, {n:,}" for n, kind in clusters)], cells)


def _mean(part: pd.DataFrame, rule: str) -> str:
    return _number(part.loc[part["rule"] == rule, "of_oracle"].mean())


def _worst_seed(part: pd.DataFrame, rule: str) -> str:
    """Return the worst seed, and the number of seeds on which a rule is worse than the best static cutoff."""
    by_seed = part.pivot_table(index="seed", columns="rule", values="of_oracle")
    losses = int((by_seed[rule] < by_seed["count"] - _BELOW).sum())
    return f"{_number(by_seed[rule].min())}, {losses} of {len(by_seed)}"


def _judgement(rows: pd.DataFrame) -> str:
    """Describe, for each cluster, the deep model and `auto` next to the best cheap rule."""
    lines = []
    for (workers, kind), cluster_rows in rows.groupby(["workers", "kind"], sort=False):
        means = cluster_rows.groupby("rule")["of_oracle"].mean().drop(list(LIMITS))
        cheap = means.drop(["dmm", "dmm-alone", "auto"])
        judgement = " and ".join(
            f"`{name}` ({means[name]:.3f}) is {_compared(means[name] - cheap.max())}" for name in ("dmm", "dmm-alone", "auto")
        )
        lines.append(f"- {kind}, {workers:,} workers: {judgement} the best cheap rule, `{cheap.idxmax()}` ({cheap.max():.3f}).")
    return "\n".join(lines)


def _compared(gap: float) -> str:
    return "as good as" if abs(gap) < _TIE else "better than" if gap > 0 else "not as good as"


def _deep_models() -> str:
    """Return the choices of held-back rounds for every deep model."""
    cells = []
    for n, kinds in KINDS.items():
        for kind in kinds:
            files = [MODELS / f"{kind}-{n}-{seed}.npz" for seed in SEEDS[n]]
            records = [saved.load(file).record for file in files if file.exists()]
            shares = [f"{sum(record.share == share for record in records)}" for share in (0.0, *SHARES)]
            long_run = sum(record.objective == "throughput" for record in records)
            undecided = sum(record.held_back is not None and record.held_back.doubt is not None for record in records)
            timed = sum(record.by == "deadline" for record in records)
            cells.append([f"{kind}, {n:,}", f"{long_run} of {len(records)}", str(timed), ", ".join(shares), str(undecided)])
    header = ["cluster", "long run", "by time", "without, half, only the HMM", "indistinguishable from the best static cutoff"]
    return table(header, cells)


def _cost(rows: pd.DataFrame) -> str:
    header = ["rule", *(f"{cost}, {workers:,}" for workers in KINDS for cost in ("ms per decision", "s to train"))]
    cells = []
    for name in rows["rule"].drop_duplicates():
        by_size = rows[rows["rule"] == name].groupby("workers")
        figures = [by_size[column].median().get(workers) for workers in KINDS for column in ("milliseconds", "training")]
        cells.append([name, *("–" if figure is None or np.isnan(figure) else f"{figure:.2f}" for figure in figures)])
    return table(header, cells)


def trace_table(rows: pd.DataFrame, cell: Callable[[Any], str]) -> str:
    """Return a table with a row for each rule, a column for each trace."""
    traces = {str(name): trace_rows for name, trace_rows in rows.groupby("trace", sort=False)}
    cells = {name: {row["rule"]: cell(row) for _, row in trace_rows.iterrows()} for name, trace_rows in traces.items()}
    header = [f"{name}, {int(trace_rows['rounds'].iloc[0])} rounds" for name, trace_rows in traces.items()]
    return table(
        ["rule", *header], [[rule, *(by_rule.get(rule, "–") for by_rule in cells.values())] for rule in rows["rule"].unique()]
    )


def _relative(row: Any, other: str) -> str:
    """Return a throughput relative to another one, %, with its interval."""
    value, low, high = (100 * row[f"{end} against {other}"] - 100 for end in ("value", "low", "high"))
    return f"{value:+,.1f} ({low:+,.1f}…{high:+,.1f})" if np.isfinite(high) else f"{value:+,.1f}"


def _indistinguishable(rows: pd.DataFrame) -> str:
    """Name, for each trace, the best rule, and the rules that are indistinguishable from it."""
    lines = []
    for name, trace_rows in rows.groupby("trace", sort=False):
        real = trace_rows[~trace_rows["rule"].str.startswith("oracle") & (trace_rows["rule"] != "all")]
        best = trace_rows["best"].iloc[0]
        rules = [f"`{rule}`" for rule in real.loc[real["high against best"] >= 1, "rule"] if rule != best]
        lines.append(f"- {name}: `{best}` is best; indistinguishable from it: {', '.join(rules) or 'none'}.")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "–" if value is None or np.isnan(value) else f"{value:.3f}"
