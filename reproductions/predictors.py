"""Every rule for the cutoff in closed loop: on synthetic clusters of 158 and 2,175 workers, and on recorded traces."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.cluster.contention import NodeOf
from fred.errors import FredError
from fred.prediction import closed_loop
from fred.prediction.comparison import rule_named
from fred.prediction.rolling import rolling
from fred.traces.reading import read
from reproductions.common import RESULTS, ROOT, say, table

RULES = ("all", "static", "elfving", "empirical", "ewma", "node-ewma", "hmm", "dmm")
_EVEN = 0.003  # less is no difference
LONG_RUN = ", long run"  # the other objective
KINDS = {158: ("paper", "bursty", "rotate", "iid"), 2175: ("paper", "bursty", "rotate")}
SEEDS = (0, 1, 2)
AFTER = slice(61, 91)  # rounds after the slow node of `paper` is as fast as the others
TRACES: dict[str, dict[str, Any]] = {  # trace -> how it is read
    "ec2-10-workers": {"missing": "previous"},
    "ec2-15-workers": {},
    "lambda-256-workers": {},
    "llm-64-workers": {},
}
ORIGINS = 4  # at which rules are trained, the first in the middle of a trace: few, since deep models take a minute each time
SYNTHETIC, RECORDED = RESULTS / "predictors.csv", RESULTS / "predictors-traces.csv"


@dataclass(frozen=True)
class Case:
    """One synthetic cluster."""

    kind: str
    workers: int
    seed: int

    def load(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NodeOf]:
        """Run-times to train on and to run on, s, and the workers' nodes, from the tool beside the data. Raises FredError."""
        tool = Path(os.environ.get("FRED_DATA") or "-").parent / "tools" / "clusters.py"
        if not tool.exists():
            raise FredError(f"cannot make the test clusters: there is no {tool}; set FRED_DATA")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "cluster.npz"
            subprocess.run([sys.executable, tool, self.kind, str(self.workers), str(self.seed), file], check=True)
            with np.load(file) as stored:
                return stored["train"].astype(float), stored["test"].astype(float), stored["node"].astype(np.int64)


def timing() -> None:
    """Nothing: every part trains something."""


def training() -> None:
    """Half an hour: train and run every rule on every cluster, two at a time."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    cases = [Case(kind, workers, seed) for seed in SEEDS for workers, kinds in KINDS.items() for kind in kinds]
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        for case, done in zip(cases, pool.map(_synthetic, cases), strict=True):
            rows += done
            pd.DataFrame(rows).to_csv(SYNTHETIC, index=False, float_format="%.5g")
            say(f"predictors: {case.kind}, {case.workers} workers, seed {case.seed}")
    recorded = [row for name in TRACES for row in _recorded(name)]
    pd.DataFrame(recorded).to_csv(RECORDED, index=False, float_format="%.5g")


def _synthetic(case: Case) -> list[dict[str, Any]]:
    train, test, node_of = case.load()
    return [{**vars(case), **row} for name in (*RULES, "oracle") for row in _rows(name, train, test, node_of)]


def _rows(name: str, train: NDArray[np.float64], test: NDArray[np.float64], node_of: NodeOf) -> Iterator[dict[str, Any]]:
    """What a rule came to, trained once; with its own objective, and the deep model and the oracle with the other one, too."""
    started = time.perf_counter()
    rule = rule_named(name)
    rule = rule.trained(train, node_of)
    seconds = time.perf_counter() - started
    other = rule.model_copy(update={"objective": "throughput"}) if name in ("dmm", "oracle") else None
    for each in filter(None, (rule, other)):
        rounds = closed_loop.run(each, test, node_of)
        after = rounds.part(AFTER.start, AFTER.stop).summary()["of_oracle"]
        label = name if each is rule else name + LONG_RUN
        yield {"rule": label, **rounds.summary(), "after": after, "training": seconds}


def _recorded(name: str, rules: Sequence[str] = (*RULES, "oracle-throughput")) -> Iterator[dict[str, Any]]:
    """What each rule came to by a rolling origin, with intervals of its throughput relative to that of others."""
    trace = read(Path(os.environ.get("FRED_DATA") or "-") / "traces" / f"{name}.csv", **TRACES[name])
    first = trace.iterations // 2
    outcome = rolling(trace, first, -(-(trace.iterations - first) // ORIGINS), rules)
    about = {"trace": name, "first": first, "trained": outcome.trained, "rounds": outcome.counted, "best": outcome.best}
    for rule, summary in outcome.rules.items():
        against = {
            f"{end} against {other}": value
            for other, by in outcome.against.items()
            for end, value in by[rule]._asdict().items()
        }
        yield {**about, "rule": rule, **summary, **against}


def report() -> str:
    """Write predictors.md from what was measured."""
    path = RESULTS / "predictors.md"
    synthetic, recorded = pd.read_csv(SYNTHETIC), pd.read_csv(RECORDED)
    text = TEXT.format(
        synthetic=_of_oracle(synthetic),
        judgement=_judgement(synthetic),
        cost=_cost(synthetic),
        recorded=_of_traces(recorded, lambda row: _number(row["of_oracle"])),
        against_static=_of_traces(recorded, lambda row: _relative(row, "static")),
        against_best=_of_traces(recorded, lambda row: _relative(row, "best")),
        against_all=_of_traces(recorded, lambda row: _relative(row, "all")),
        undecided=_undecided(recorded),
        warm_up=closed_loop.WARM_UP,
        origins=int(recorded["trained"].max()),
        seeds=_seeds(synthetic),
    )
    path.write_text(text, encoding="utf-8")
    return str(path.relative_to(ROOT))


def _of_oracle(rows: pd.DataFrame) -> str:
    columns: dict[str, Any] = {}
    for workers, kinds in KINDS.items():
        for kind in kinds:
            own = rows[(rows["workers"] == workers) & (rows["kind"] == kind)].groupby("rule", sort=False)
            columns[f"{kind}, {workers:,}"] = own["of_oracle"].mean()
            if kind == "paper":
                columns[f"{kind}, {workers:,}, 30 after"] = own["after"].mean()
    order = rows["rule"].drop_duplicates()
    cells = [[name, *(_number(column.get(name)) for column in columns.values())] for name in order]
    return table(["rule", *columns], cells)


def _seeds(rows: pd.DataFrame) -> str:
    """How many there are, and where fewer."""
    numbers: Any = rows.groupby(["kind", "workers"], sort=False)["seed"].nunique()
    fewer = [f"{number} for {kind}, {workers:,}" for (kind, workers), number in numbers.items() if number < numbers.max()]
    return f"{numbers.max()} seeds" + (f" ({', '.join(fewer)})" if fewer else "")


def _judgement(rows: pd.DataFrame) -> str:
    """In words, for each cluster: the best cheap rule beside the deep model."""
    lines = []
    for (workers, kind), own in rows.groupby(["workers", "kind"], sort=False):
        means = own.groupby("rule")["of_oracle"].mean()
        cheap = means.drop([name for name in means.index if name.startswith(("dmm", "oracle"))])
        deep = max(means["dmm"], means[f"dmm{LONG_RUN}"])
        gap = deep - cheap.max()
        said = "as good as" if abs(gap) < _EVEN else "better than" if gap > 0 else "not as good as"
        other = f"the best cheap rule, `{cheap.idxmax()}` ({cheap.max():.3f})"
        lines.append(f"- {kind}, {workers:,} workers: `dmm` ({deep:.3f}) is {said} {other}.")
    return "\n".join(lines)


def _cost(rows: pd.DataFrame) -> str:
    header = ["rule", *(f"{what}, {workers:,}" for workers in KINDS for what in ("ms per decision", "s to train"))]
    cells = []
    for name in rows["rule"].drop_duplicates():
        own = rows[rows["rule"] == name].groupby("workers")
        figures = [own[what].median().get(workers) for workers in KINDS for what in ("milliseconds", "training")]
        cells.append([name, *("–" if each is None else f"{each:.2f}" for each in figures)])
    return table(header, cells)


def _of_traces(rows: pd.DataFrame, cell: Callable[[Any], str]) -> str:
    """A row for each rule, a column for each trace."""
    traces = {str(name): own for name, own in rows.groupby("trace", sort=False)}
    cells = {name: {row["rule"]: cell(row) for _, row in own.iterrows()} for name, own in traces.items()}
    header = [f"{name}, {int(own['rounds'].iloc[0])} rounds" for name, own in traces.items()]
    return table(["rule", *header], [[rule, *(own.get(rule, "–") for own in cells.values())] for rule in rows["rule"].unique()])


def _relative(row: Any, other: str) -> str:
    """A throughput relative to another one, %, with its interval."""
    value, low, high = (100 * row[f"{end} against {other}"] - 100 for end in ("value", "low", "high"))
    return f"{value:+,.1f} ({low:+,.1f}…{high:+,.1f})" if np.isfinite(high) else f"{value:+,.1f}"


def _undecided(rows: pd.DataFrame) -> str:
    """In words, for each trace: the best rule, and which are not told from it."""
    lines = []
    for name, own in rows.groupby("trace", sort=False):
        real = own[~own["rule"].str.startswith("oracle") & (own["rule"] != "all")]
        best = own["best"].iloc[0]
        alike = [f"`{rule}`" for rule in real.loc[real["high against best"] >= 1, "rule"] if rule != best]
        lines.append(f"- {name}: `{best}` is best; not told from it: {', '.join(alike) or 'none'}.")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "–" if value is None or np.isnan(value) else f"{value:.3f}"


TEXT = """# Rules for the cutoff in closed loop

Made by `make reproduce`. Each rule is trained on the first part of a trace and decides on the rest in closed loop: it sees the
compute times of those it waited for, of the others only that they were later. The first 20 rounds wait for all and do not
count. Numbers are gradients per second, sum c / sum x_(c), relative to the oracle that knows each round and maximises
c / x_(c); means over {seeds}. Rules maximise the long run, c - rho E[x_(c)], but `elfving`, `dmm` and `oracle` the round,
c / E[x_(c)]; "long run" is the other way.

## Synthetic clusters

`paper`: one of four nodes (of 32 at 2,175 workers) is slow until round 61, then all are even; "30 after" are the rounds from
there. `bursty`: regimes of 8 to 60 rounds come and go on several nodes. `rotate`: a slow job moves from node to node every 6
rounds. `iid`: no regimes. Rules are told the nodes.

{synthetic}

The paper's own model, `dmm-printed`, and `dmm-plain` are compared with `dmm` in [cutoff.md](cutoff.md).

{judgement}

## Cost

Medians; wall time of a decision with what is learned from the round, and of training, two processes at work on two cores.

{cost}

## Recorded traces

Real run-times, not part of the project: 10 and 15 EC2 nodes, 256 Lambda workers, 64 ranks of a language model's training. By a
rolling origin: rules are trained on the first half of a trace and run on the next eighth, trained on all up to there and run on
the next one, to the end, {origins} times. Before each part they warm up in the last {warm_up} iterations, or as many as there
are. Groups of workers are found in what is trained on. First relative to the oracle's throughput:

{recorded}

Then relative to that of others, in %, with 95 % intervals by a bootstrap of blocks of paired rounds
(`fred/prediction/intervals.py`). An interval that holds zero tells nothing. To the best static cutoff:

{against_static}

To the best single rule:

{against_best}

{undecided}

To waiting for all:

{against_all}
"""
