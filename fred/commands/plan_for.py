"""`fred plan ... --for TASK`: which protocol, with which of its knobs, reaches a target first on this cluster."""

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fred.cluster.cluster import Cluster
from fred.commands import trace_options
from fred.commands.plan_for_table import Answer, Names, as_json, print_answer
from fred.errors import FredError
from fred.files import places
from fred.outcomes.tables import Tables
from fred.planning import attribution, question
from fred.planning.attribution import Attribution
from fred.planning.candidates import SYNC, not_considered, that_apply
from fred.planning.question import Question
from fred.planning.ranking import doubts, ranked
from fred.prediction.comparison import nodes_of
from fred.process.cores import cores
from fred.process.progress import of_runs
from fred.results import experiment
from fred.running.units import number_of_units
from fred.specification import shipped
from fred.specification.loading import scenario, validated_anew
from fred.specification.text import written
from fred.traces.columns import EXAMPLE

SEEDS = 5
_TUNING = 2
_FIRST = "Written by `fred plan"  # by which the file is known
_FILE, _RESULT = "scenario.yaml", "result"


def add_options(parser: argparse.ArgumentParser) -> None:
    """What is learned, until when, how surely."""
    own = parser.add_argument_group(
        "which protocol",
        "With --for, or a scenario in place of the trace: systems are run on this cluster with common random numbers, each "
        "with the best of as many settings, and ranked by their time to the target.",
    )
    own.add_argument(
        "--for",
        dest="task",
        metavar="TASK",
        help=f"what is learned: {', '.join(question.TASKS)}, or a YAML file with a `task` (default: the scenario's)",
    )
    target = own.add_mutually_exclusive_group()
    target.add_argument("--target-error", type=float, metavar="ERROR", help="to be reached (default: the task's; digits: 0.12)")
    target.add_argument("--target-loss", type=float, metavar="LOSS", help="to be reached, instead of an error")
    own.add_argument("--seeds", type=int, metavar="N", help=f"to report, beside {_TUNING} to choose by (default: {SEEDS})")
    own.add_argument(
        "--budget",
        type=float,
        metavar="SECONDS",
        help="virtual time of each run (default: the scenario's, or as long as the mean worker takes for "
        f"{question.GRADIENTS} gradients)",
    )
    own.add_argument(
        "--learning-rate", type=float, metavar="RATE", help="of synchronous SGD, around which is searched (default: 0.5)"
    )
    own.add_argument("--jobs", type=int, metavar="N", help="so many runs at a time (default: all that there are cores for)")


def asked(options: argparse.Namespace) -> bool:
    """Whether it is this that a command line asks for."""
    return options.task is not None or _is_scenario(options.trace[0])


def run(options: argparse.Namespace) -> int:
    """Sweep, rank, attribute, print. Raises FredError."""
    _check(options)
    given = _of_scenario(options) if _is_scenario(options.trace[0]) else _of_trace(options)
    asking = _question(options, given)
    can, cannot = that_apply(asking.cluster, asking.parts, asking.rate)
    out = options.out or Path("results") / f"plan-{options.trace[0].stem}"
    document = asking.document(can, given.about)
    planned = scenario(document)
    _write(
        out,
        written(
            document,
            f"{_FIRST} {' '.join(map(str, options.trace))}`: {asking.aim} within {asking.budget:g} s; systems,",
            "each with the best of as many settings. `fred run` runs it, `fred show` prints it again.",
        ),
    )
    with of_runs(number_of_units(planned)) as progress:
        jobs = options.jobs or cores()
        result = experiment.run(planned, progress=progress, out=out / _RESULT, jobs=jobs, file=out / _FILE)
    ranking = ranked(result, can, asking.measure)
    said = [*doubts(ranking, asking.budget / question.LOOKS, asking.budget), *given.doubts]
    lost = given.lost or _lost(result, asking.cluster)
    answer = Answer(given.about, asking, ranking, lost, cannot, not_considered(asking.cluster), said, given.names)
    if options.json:
        print(as_json(answer))
    else:
        print_answer(answer, out)
    return 0


@dataclass(frozen=True)
class _Given:
    """What the trace or the scenario says."""

    about: str  # in words
    cluster: Cluster
    task: dict[str, Any] | None
    target: dict[str, float]
    budget: float | None
    lost: Attribution | None  # of a trace
    doubts: tuple[str, ...]
    names: Names


def _is_scenario(path: Path) -> bool:
    return path.suffix in (".yaml", ".yml") or (str(path) in shipped.names() and not path.is_file())


def _of_scenario(options: argparse.Namespace) -> _Given:
    given = trace_options.single(options)
    path = shipped.located(given).resolve()
    if options.workers or options.nodes:
        raise FredError("--workers and --nodes are for traces: a scenario's `cluster` says them")
    runs = question.runs_of(path)
    first, cluster = runs[0], runs[0].cluster
    task, target = question.of_run(first, str(given)) if options.task is None else (None, {})
    several = ("the scenario's runs have several clusters: this is about the first one's",)
    names = Names(
        *(
            tuple(f"{what} {i}" for i in range(size))
            for what, size in (("worker", cluster.size), ("node", len(set(cluster.node_of.tolist()))))
        )
    )
    about = f"{given}: {cluster.size} workers"
    said = several if any(run.cluster != cluster for run in runs) else ()
    return _Given(about, cluster, task, target, first.stop.seconds, None, said, names)


def _of_trace(options: argparse.Namespace) -> _Given:
    if options.trace[0].is_dir():
        raise FredError(f"{options.trace[0]} is a folder: --for needs a trace or a scenario, such as the one that made it")
    trace = trace_options.from_options(options)
    size, block = len(trace.workers), max(1, math.isqrt(trace.iterations))
    workers = options.workers or size
    file, *more = (str(path) if str(path) == EXAMPLE else str(path.resolve()) for path in options.trace)
    files = {"file": file, **({"more": more} if more else {})}
    compute = {"name": "trace", **files, "rows": "block", "block": block, **trace_options.reading(options)}
    settings: dict[str, Any] = {"workers": workers, "compute": compute | ({"workers": "cycled"} if workers != size else {})}
    if workers == size and trace.node_of is not None and (np.diff(trace.node_of) >= 0).all():
        settings["nodes"] = [int((trace.node_of == node).sum()) for node in dict.fromkeys(trace.node_of.tolist())]
    said = [*trace.said, "the trace has no network: messages take no time here"]
    if workers > size:
        said.append(f"{workers} workers are more than the trace's {size}: those beyond them repeat the first ones, at once")
    elif workers < size:
        said.append(f"{workers} of the trace's {size} workers: the first ones; time lost is that of all")
    lost = Attribution({attribution.COMPUTING: trace.seconds}, nodes_of(trace, trace.iterations))
    about = f"{trace.source}: {workers} workers; {trace.iterations} iterations, drawn in blocks of {block}"
    called = Names(tuple(map(trace.worker, range(size))), tuple(map(trace.node, range(len(lost.of_nodes)))))
    return _Given(about, validated_anew(Cluster(**settings)), None, {}, None, lost, tuple(said), called)


def _question(options: argparse.Namespace, given: _Given) -> Question:
    task, target = (given.task, given.target) if options.task is None else question.task_of(options.task)
    target = {"target_error": options.target_error} if options.target_error else target
    target = {"target_loss": options.target_loss} if options.target_loss else target
    if not target:
        raise FredError("no target: say --target-error ERROR, such as 0.1, or --target-loss LOSS")
    budget = options.budget or given.budget or question.usual_budget(given.cluster)
    return Question(given.cluster, task or {}, target, budget, (_TUNING, options.seeds or SEEDS), options.learning_rate or 0.5)


def _check(options: argparse.Namespace) -> None:
    """Refuse what cannot be, and what belongs to the plan for backup workers."""
    for name in ("target_error", "target_loss", "budget", "learning_rate", "seeds", "jobs"):
        value = getattr(options, name)
        if value is not None and not 0 < value < math.inf:
            raise FredError(f"--{name.replace('_', '-')} {value:g}: expected a number above 0")
    if options.iterations is not None:
        raise FredError("--iterations is for the plan of backup workers: with --for, runs say how many it takes")
    if options.out and options.out.is_file():
        raise FredError(f"--out {options.out}: with --for it is a folder, and this is a file")


def _write(out: Path, text: str) -> None:
    """The scenario, of which one that somebody changed is not overwritten. Raises FredError."""
    places.check_free(out / _FILE, lambda beginning: beginning.startswith(f"# {_FIRST}".encode()))
    places.write(out / _FILE, text.encode())


def _lost(result: Tables, cluster: Cluster) -> Attribution | None:
    """Of the runs that wait for all, of which every point has the same timing."""
    points = [each for each in result.outcomes if each.name.startswith(f"{SYNC},")]
    try:
        return attribution.of_rounds(points[0].schedule, cluster.node_of)
    except ValueError:  # no round was complete
        return None
