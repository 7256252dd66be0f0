"""`fred plan SCENARIO`: find the protocol, and its settings, that reach a target first, or at the least cost, on a cluster."""

import argparse
import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fred.base import disk
from fred.base.errors import FredError
from fred.base.process import cores
from fred.base.progress import of_runs
from fred.cluster.cluster import Cluster
from fred.commands import command_options
from fred.diagnosis import attribution
from fred.diagnosis.attribution import Attribution
from fred.diagnosis.question import (
    GRADIENTS,
    SYNC,
    TASKS,
    By,
    Question,
    check_criterion,
    not_considered,
    runs_of,
    task_of,
    task_of_run,
    that_apply,
    usual_budget,
)
from fred.diagnosis.ranking import Ranking, doubts, ranked
from fred.diagnosis.ranking_tables import FIGURE, PAGE, Answer, Names, as_json, print_answer
from fred.outcomes.tables import Tables
from fred.running.units import SelectedRuns
from fred.specification import shipped
from fred.specification.loading import Scenario, scenario
from fred.specification.text import written

if TYPE_CHECKING:
    from fred.results.result import Result

SEEDS = 5
_TUNING = 2
_MARK = "Written by `fred plan"  # begins files that a later `fred plan` may overwrite
_FILE, _RESULT = "scenario.yaml", "result"
_Aim = tuple[dict[str, Any] | None, dict[str, float]]  # a task and its target
NO_AIM: _Aim = (None, {})


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the task, the target and the runs towards it."""
    group = parser.add_argument_group(
        "time to a target",
        "Run systems on this cluster with common random numbers, tune each over the same number of settings, and rank them by "
        "their time to the target.",
    )
    group.add_argument(
        "--for",
        dest="task",
        metavar="TASK",
        help=f"the task to learn: {', '.join(TASKS)}, or a YAML file with a `task`",
    )
    target = group.add_mutually_exclusive_group()
    target.add_argument("--target-error", type=float, metavar="ERROR", help="target error (default: the task's; digits: 0.12)")
    target.add_argument("--target-loss", type=float, metavar="LOSS", help="target loss, instead of an error")
    group.add_argument(
        "--seeds", type=int, metavar="COUNT", help=f"seeds to report, besides {_TUNING} for tuning (default: {SEEDS})"
    )
    group.add_argument(
        "--budget",
        type=float,
        metavar="SECONDS",
        help=f"virtual time of each run (default: the scenario's, or the time of the mean worker for {GRADIENTS} gradients)",
    )
    group.add_argument(
        "--learning-rate",
        type=float,
        metavar="RATE",
        help="learning rate of synchronous SGD; the search is centred on it (default: 0.5)",
    )
    group.add_argument(
        "--jobs", type=command_options.parse_jobs, metavar="N", help="number of worker processes (default: `all`, one per core)"
    )


def run(options: argparse.Namespace, by: By) -> int:
    """Run the sweep, rank the systems, attribute the lost time, draw and print. Raises FredError.

    Args:
        options: options of the command line.
        by: criterion by which systems are tuned and ranked.
    """
    check(options)
    source = _read_source(options)
    check_criterion(by, source.cluster, str(options.source))
    question = replace(build_question(options, source.cluster, (source.task, source.target), source.budget), by=by)
    applicable, excluded = that_apply(question.cluster, question.parts, question.rate)
    out = options.out or Path("results") / f"plan-{options.source.stem}"
    document = question.document(applicable, source.title)
    planned = scenario(document)
    _write(
        out,
        written(
            document,
            f"{_MARK} {options.source}`: {question.aim} within {question.budget:g} s; systems,",
            "each with the best of as many settings. `fred run` runs it, `fred show` prints it again.",
        ),
    )
    result = run_scenario(planned, out, out / _FILE, options)
    ranking = ranked(result, applicable, question.measure)
    _draw(ranking, question, out / FIGURE)
    notes = [*doubts(ranking, question.evaluation_interval, question.budget), *source.doubts]
    losses = _attribute_losses(result, question.cluster)
    answer = Answer(
        source.title,
        question,
        ranking,
        doubts=notes,
        attribution=losses,
        cannot=excluded,
        not_considered=not_considered(question.cluster),
        names=source.names,
    )
    from fred.diagnosis import answer_page  # imports matplotlib

    disk.write(out / PAGE, answer_page.plan_page(answer).encode())
    if options.json:
        print(as_json(answer))
    elif options.quiet:
        print(out)
    else:
        print_answer(answer, out)
    return 0


def run_scenario(planned: Scenario, out: Path, file: Path, options: argparse.Namespace) -> "Result":
    """Run a scenario with a progress bar and return its result. Raises FredError.

    Args:
        planned: the scenario.
        out: folder in which the result folder, `result`, is written.
        file: file of the scenario.
        options: options of the command line.
    """
    from fred.results import experiment  # neither a diagnosis nor a refusal needs it

    with of_runs(SelectedRuns(planned).count, options.quiet) as progress:
        return experiment.run(planned, progress=progress, out=out / _RESULT, jobs=options.jobs or cores(), file=file)


@dataclass(frozen=True)
class _Source:
    """The parts of the scenario that the plan uses."""

    title: str  # in words
    cluster: Cluster
    task: dict[str, Any] | None
    target: dict[str, float]
    budget: float | None
    doubts: tuple[str, ...]
    names: Names


def is_scenario(path: Path) -> bool:
    """Return True if a path is a scenario file by its ending, or the name of a scenario that comes with FRED.

    Args:
        path: any path; a file of that name takes precedence over a shipped scenario.
    """
    return path.suffix in (".yaml", ".yml") or (str(path) in shipped.names() and not path.is_file())


def _read_source(options: argparse.Namespace) -> _Source:
    """Return what a plan takes from the first run of a scenario."""
    path = shipped.located(options.source).resolve()
    runs = runs_of(path)
    first, cluster = runs[0], runs[0].cluster
    task, target = task_of_run(first, str(options.source)) if options.task is None else (None, {})
    doubt = ("the runs of this scenario have different clusters: the plan is for the cluster of the first run",)
    nodes = len(set(cluster.node_of.tolist()))
    return _Source(
        title=f"{options.source}: {cluster.size} workers",
        cluster=cluster,
        task=task,
        target=target,
        budget=first.stop.seconds,
        doubts=doubt if any(run.cluster != cluster for run in runs) else (),
        names=Names(_numbered("worker", cluster.size), _numbered("node", nodes)),
    )


def _numbered(kind: str, count: int) -> tuple[str, ...]:
    return tuple(f"{kind} {number}" for number in range(count))


def build_question(options: argparse.Namespace, cluster: Cluster, default: _Aim, budget: float | None) -> Question:
    """Return the question that a command line asks. Raises FredError.

    Args:
        options: options of the command line.
        cluster: the cluster on which the systems run.
        default: the task and the target of a scenario; the command line overrides them.
        budget: the virtual time of a scenario, s; the command line overrides it.
    """
    task, target = read_aim(options, default)
    return Question(
        cluster,
        task or {},
        target,
        budget=options.budget or budget or usual_budget(cluster),
        seeds=(_TUNING, options.seeds or SEEDS),
        rate=options.learning_rate or 0.5,
    )


def read_aim(options: argparse.Namespace, default: _Aim = NO_AIM) -> _Aim:
    """Return the task and the target that a command line asks for. Raises FredError if there is no target.

    Args:
        options: options of the command line.
        default: the task and the target of a scenario; the command line overrides them.
    """
    task, target = default if options.task is None else task_of(options.task)
    target = {"target_error": options.target_error} if options.target_error else target
    target = {"target_loss": options.target_loss} if options.target_loss else target
    if not target:
        raise FredError("no target: give --target-error ERROR, such as 0.1, or --target-loss LOSS")
    return task, target


def check(options: argparse.Namespace) -> None:
    """Check the options' values. Raises FredError for a number that is not above 0, or if --out is a file.

    Args:
        options: options of the command line.
    """
    for name in ("target_error", "target_loss", "budget", "learning_rate", "seeds"):
        value = getattr(options, name)
        if value is not None and not 0 < value < math.inf:
            raise FredError(f"--{name.replace('_', '-')} {value:g}: expected a number above 0")
    if options.out and options.out.is_file():
        raise FredError(f"--out {options.out}: expected a folder, and this is a file")


def _write(out: Path, text: str) -> None:
    """Write the scenario. Raises FredError instead of overwriting a file that `fred plan` did not write."""
    answers = [out / FIGURE, out / PAGE]
    disk.check_together(out / _FILE, answers, _MARK)
    disk.write(out / _FILE, text.encode())
    for file in answers:  # of an earlier plan: they are written again after the runs
        file.unlink(missing_ok=True)


def _draw(ranking: Ranking, question: Question, file: Path) -> None:
    """Write the figure of time against cost, if the cluster has prices and a system reached the target."""
    if ranking.front:
        from fred.diagnosis.answer_page import picture  # imports matplotlib
        from fred.views.figures import save_or_note

        save_or_note(partial(picture, ranking, question.aim), file)


def _attribute_losses(result: Tables, cluster: Cluster) -> Attribution | None:
    """Return the attribution of lost time in the runs that wait for all; every point of their sweep has the same timing."""
    points = [outcome for outcome in result.outcomes if outcome.name.startswith(f"{SYNC},")]
    try:
        return attribution.of_rounds(points[0].schedule, cluster.node_of)
    except ValueError:  # no round was complete
        return None
