"""`fred plan SCENARIO`: which protocol, with which of its knobs, reaches a target first on this cluster."""

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fred.cluster.cluster import Cluster
from fred.diagnosis import attribution, question
from fred.diagnosis.attribution import Attribution
from fred.diagnosis.candidates import SYNC, not_considered, that_apply
from fred.diagnosis.question import Question
from fred.diagnosis.ranking import doubts, ranked
from fred.diagnosis.ranking_tables import Answer, Names, as_json, print_answer
from fred.errors import FredError
from fred.files import places
from fred.outcomes.tables import Tables
from fred.process.cores import cores
from fred.process.progress import of_runs
from fred.running.units import number_of_units
from fred.specification import shipped
from fred.specification.loading import Scenario, scenario
from fred.specification.text import written

if TYPE_CHECKING:
    from fred.results.result import Result

SEEDS = 5
_TUNING = 2
_FIRST = "Written by `fred plan"  # by which the file is known
_FILE, _RESULT = "scenario.yaml", "result"
_Aim = tuple[dict[str, Any] | None, dict[str, float]]  # a task and its target
NOTHING_GIVEN: _Aim = (None, {})


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the task, the target and the runs that look for it."""
    own = parser.add_argument_group(
        "time to a target",
        "Systems are run on this cluster with common random numbers, each with the best of as many settings, and ranked by "
        "their time to the target.",
    )
    own.add_argument(
        "--for",
        dest="task",
        metavar="TASK",
        help=f"what is learned: {', '.join(question.TASKS)}, or a YAML file with a `task`",
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


def run(options: argparse.Namespace) -> int:
    """Sweep, rank, attribute, print. Raises FredError."""
    check(options)
    given = _of_scenario(options)
    asking = asked(options, given.cluster, (given.task, given.target), given.budget)
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
    result = made(planned, out, out / _FILE, options.jobs)
    ranking = ranked(result, can, asking.measure)
    said = [*doubts(ranking, asking.budget / question.LOOKS, asking.budget), *given.doubts]
    lost = _lost(result, asking.cluster)
    answer = Answer(given.about, asking, ranking, said, lost, cannot, not_considered(asking.cluster), given.names)
    if options.json:
        print(as_json(answer))
    else:
        print_answer(answer, out)
    return 0


def made(planned: Scenario, out: Path, file: Path, jobs: int | None) -> "Result":
    """Return what the runs of a scenario came to, with a word on how long they may take. Raises FredError.

    Args:
        planned: the runs.
        out: folder whose `result` they are written to.
        file: the scenario's.
        jobs: at a time; None: as many as there are cores.
    """
    from fred.results import experiment  # loads jax, which neither a diagnosis nor a refusal needs

    with of_runs(number_of_units(planned)) as progress:
        return experiment.run(planned, progress=progress, out=out / _RESULT, jobs=jobs or cores(), file=file)


@dataclass(frozen=True)
class _Given:
    """What the scenario says."""

    about: str  # in words
    cluster: Cluster
    task: dict[str, Any] | None
    target: dict[str, float]
    budget: float | None
    doubts: tuple[str, ...]
    names: Names


def is_scenario(path: Path) -> bool:
    """Return True for the name of a scenario's file, or of one that comes with FRED.

    Args:
        path: of anything.
    """
    return path.suffix in (".yaml", ".yml") or (str(path) in shipped.names() and not path.is_file())


def _of_scenario(options: argparse.Namespace) -> _Given:
    path = shipped.located(options.source).resolve()
    runs = question.runs_of(path)
    first, cluster = runs[0], runs[0].cluster
    task, target = question.of_run(first, str(options.source)) if options.task is None else (None, {})
    several = ("the scenario's runs have several clusters: this is about the first one's",)
    sizes = {"worker": cluster.size, "node": len(set(cluster.node_of.tolist()))}
    names = Names(*(tuple(f"{what} {number}" for number in range(size)) for what, size in sizes.items()))
    about = f"{options.source}: {cluster.size} workers"
    said = several if any(run.cluster != cluster for run in runs) else ()
    return _Given(about, cluster, task, target, first.stop.seconds, said, names)


def asked(options: argparse.Namespace, cluster: Cluster, given: _Aim, budget: float | None) -> Question:
    """Return the question that a command line asks. Raises FredError.

    Args:
        options: of the command line.
        cluster: on which systems are run.
        given: the task and the target of a scenario, which the command line may replace.
        budget: virtual time of a scenario, s, likewise.
    """
    task, target = aim(options, given)
    seconds = options.budget or budget or question.usual_budget(cluster)
    return Question(cluster, task or {}, target, seconds, (_TUNING, options.seeds or SEEDS), options.learning_rate or 0.5)


def aim(options: argparse.Namespace, given: _Aim = NOTHING_GIVEN) -> _Aim:
    """Return the task and the target that a command line asks for. Raises FredError where there is no target.

    Args:
        options: of the command line.
        given: those of a scenario, which the command line may replace.
    """
    task, target = given if options.task is None else question.task_of(options.task)
    target = {"target_error": options.target_error} if options.target_error else target
    target = {"target_loss": options.target_loss} if options.target_loss else target
    if not target:
        raise FredError("no target: say --target-error ERROR, such as 0.1, or --target-loss LOSS")
    return task, target


def check(options: argparse.Namespace) -> None:
    """Refuse what cannot be. Raises FredError.

    Args:
        options: of the command line.
    """
    for name in ("target_error", "target_loss", "budget", "learning_rate", "seeds", "jobs"):
        value = getattr(options, name)
        if value is not None and not 0 < value < math.inf:
            raise FredError(f"--{name.replace('_', '-')} {value:g}: expected a number above 0")
    if options.out and options.out.is_file():
        raise FredError(f"--out {options.out}: expected a folder, and this is a file")


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
