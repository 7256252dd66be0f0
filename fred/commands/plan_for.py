"""`fred plan SCENARIO`: find the protocol, and its settings, that reach a target first, or at the least cost, on a cluster."""

import argparse
import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fred.base import places
from fred.base.cores import cores
from fred.base.errors import FredError
from fred.base.progress import of_runs
from fred.cluster.cluster import Cluster
from fred.commands import command_options
from fred.diagnosis import attribution, question
from fred.diagnosis.attribution import Attribution
from fred.diagnosis.question import SYNC, By, Question, not_considered, that_apply
from fred.diagnosis.ranking import Ranking, doubts, ranked
from fred.diagnosis.ranking_tables import FIGURE, PAGE, Answer, Names, as_json, print_answer
from fred.outcomes.tables import Tables
from fred.running.units import count_units
from fred.specification import shipped
from fred.specification.loading import Scenario, scenario
from fred.specification.text import written

if TYPE_CHECKING:
    from fred.results.result import Result

SEEDS = 5
_TUNING = 2
_FIRST = "Written by `fred plan"  # marks the file as FRED's
_FILE, _RESULT = "scenario.yaml", "result"
_Aim = tuple[dict[str, Any] | None, dict[str, float]]  # a task and its target
NOTHING_GIVEN: _Aim = (None, {})


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the task, the target and the runs towards it."""
    own = parser.add_argument_group(
        "time to a target",
        "Run systems on this cluster with common random numbers, tune each over the same number of settings, and rank them by "
        "their time to the target.",
    )
    own.add_argument(
        "--for",
        dest="task",
        metavar="TASK",
        help=f"the task to learn: {', '.join(question.TASKS)}, or a YAML file with a `task`",
    )
    target = own.add_mutually_exclusive_group()
    target.add_argument("--target-error", type=float, metavar="ERROR", help="target error (default: the task's; digits: 0.12)")
    target.add_argument("--target-loss", type=float, metavar="LOSS", help="target loss, instead of an error")
    own.add_argument(
        "--seeds", type=int, metavar="COUNT", help=f"seeds to report, besides {_TUNING} for tuning (default: {SEEDS})"
    )
    own.add_argument(
        "--budget",
        type=float,
        metavar="SECONDS",
        help="virtual time of each run (default: the scenario's, or the time of the mean worker for "
        f"{question.GRADIENTS} gradients)",
    )
    own.add_argument(
        "--learning-rate",
        type=float,
        metavar="RATE",
        help="learning rate of synchronous SGD; the search is centred on it (default: 0.5)",
    )
    own.add_argument(
        "--jobs", type=command_options.jobs, metavar="N", help="number of worker processes (default: `all`, one per core)"
    )


def run(options: argparse.Namespace, by: By) -> int:
    """Run the sweep, rank the systems, attribute the lost time, draw and print. Raises FredError.

    Args:
        options: options of the command line.
        by: criterion by which systems are tuned and ranked.
    """
    check(options)
    given = _of_scenario(options)
    question.check(by, given.cluster, str(options.source))
    asking = replace(asked(options, given.cluster, (given.task, given.target), given.budget), by=by)
    can, cannot = that_apply(asking.cluster, asking.parts, asking.rate)
    out = options.out or Path("results") / f"plan-{options.source.stem}"
    document = asking.document(can, given.about)
    planned = scenario(document)
    _write(
        out,
        written(
            document,
            f"{_FIRST} {options.source}`: {asking.aim} within {asking.budget:g} s; systems,",
            "each with the best of as many settings. `fred run` runs it, `fred show` prints it again.",
        ),
    )
    result = made(planned, out, out / _FILE, options)
    ranking = ranked(result, can, asking.measure)
    _draw(ranking, asking, out / FIGURE)
    said = [*doubts(ranking, asking.budget / question.LOOKS, asking.budget), *given.doubts]
    lost = _lost(result, asking.cluster)
    answer = Answer(given.about, asking, ranking, said, lost, cannot, not_considered(asking.cluster), given.names)
    from fred.diagnosis import answer_page  # imports matplotlib

    places.write(out / PAGE, answer_page.plan_page(answer).encode())
    if options.json:
        print(as_json(answer))
    elif options.quiet:
        print(out)
    else:
        print_answer(answer, out)
    return 0


def made(planned: Scenario, out: Path, file: Path, options: argparse.Namespace) -> "Result":
    """Run a scenario with a progress bar and return its result. Raises FredError.

    Args:
        planned: the scenario.
        out: folder in which the result folder, `result`, is written.
        file: file of the scenario.
        options: options of the command line.
    """
    from fred.results import experiment  # neither a diagnosis nor a refusal needs it

    with of_runs(count_units(planned), options.quiet) as progress:
        return experiment.run(planned, progress=progress, out=out / _RESULT, jobs=options.jobs or cores(), file=file)


@dataclass(frozen=True)
class _Given:
    """The parts of the scenario that the plan uses."""

    about: str  # in words
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


def _of_scenario(options: argparse.Namespace) -> _Given:
    path = shipped.located(options.source).resolve()
    runs = question.runs_of(path)
    first, cluster = runs[0], runs[0].cluster
    task, target = question.of_run(first, str(options.source)) if options.task is None else (None, {})
    several = ("the runs of this scenario have different clusters: the plan is for the cluster of the first run",)
    sizes = {"worker": cluster.size, "node": len(set(cluster.node_of.tolist()))}
    names = Names(*(tuple(f"{what} {number}" for number in range(size)) for what, size in sizes.items()))
    about = f"{options.source}: {cluster.size} workers"
    said = several if any(run.cluster != cluster for run in runs) else ()
    return _Given(about, cluster, task, target, first.stop.seconds, said, names)


def asked(options: argparse.Namespace, cluster: Cluster, given: _Aim, budget: float | None) -> Question:
    """Return the question that a command line asks. Raises FredError.

    Args:
        options: options of the command line.
        cluster: the cluster on which the systems run.
        given: the task and the target of a scenario; the command line overrides them.
        budget: the virtual time of a scenario, s; the command line overrides it.
    """
    task, target = aim(options, given)
    seconds = options.budget or budget or question.usual_budget(cluster)
    return Question(cluster, task or {}, target, seconds, (_TUNING, options.seeds or SEEDS), options.learning_rate or 0.5)


def aim(options: argparse.Namespace, given: _Aim = NOTHING_GIVEN) -> _Aim:
    """Return the task and the target that a command line asks for. Raises FredError if there is no target.

    Args:
        options: options of the command line.
        given: the task and the target of a scenario; the command line overrides them.
    """
    task, target = given if options.task is None else question.task_of(options.task)
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
    earlier = [out / FIGURE, out / PAGE]
    places.check_together(out / _FILE, earlier, _FIRST)
    places.write(out / _FILE, text.encode())
    for file in earlier:
        file.unlink(missing_ok=True)


def _draw(ranking: Ranking, asking: Question, file: Path) -> None:
    """Write the figure of time against cost, if the cluster has prices and a system reached the target."""
    if ranking.front:
        from fred.diagnosis.answer_page import picture  # imports matplotlib
        from fred.views.figures import save_or_note

        save_or_note(partial(picture, ranking, asking.aim), file)


def _lost(result: Tables, cluster: Cluster) -> Attribution | None:
    """Return the attribution of lost time in the runs that wait for all; every point of their sweep has the same timing."""
    points = [each for each in result.outcomes if each.name.startswith(f"{SYNC},")]
    try:
        return attribution.of_rounds(points[0].schedule, cluster.node_of)
    except ValueError:  # no round was complete
        return None
