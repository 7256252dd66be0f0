"""The question of a plan, the systems that it tries, and the criteria by which it tunes and ranks them.

A question consists of a cluster, a task, a target, a budget and seeds. A scenario answers it: it has a run for each system,
with a sweep over its knob and its learning rate. The criterion is the time, the cost or the energy until the target.

Every system gets the same number of points; systems without a knob try more learning rates. Learning rates lie around one
for synchronous SGD. Where every gradient is an update of its own, the rate is divided by the number of workers. Then one
update from each worker moves the model about as far.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fred.base import disk
from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.components import registry
from fred.specification import shipped
from fred.specification.loading import load, scenario, validated
from fred.specification.shape import Run
from fred.specification.source import Source
from fred.specification.text import parse, read_yaml

POINTS = 12  # points tried of each system
SYNC = "sync"  # the baseline, which waits for all
RATE = "algorithm.learning_rate"
_SPAN = 5.0  # rates go from this factor below to this factor above
TASKS: dict[str, tuple[dict[str, Any], dict[str, float]]] = {  # name -> task and target
    "digits": ({"data": "digits", "model": {"name": "mlp", "hidden": [32]}, "batch_size": 8}, {"target_error": 0.12}),
}
LOOKS = 100  # evaluations of the error during a run
GRADIENTS = 200  # gradients per worker in the default budget
_TUNING, _REPORTED = 1, 101  # the first seeds
_STUB: dict[str, Any] = {  # completes a file that has only a task
    "algorithm": {"name": "ssgd", "learning_rate": 0.1},
    "cluster": {"workers": 1},
    "stop": {"updates": 1},
}
_ANYTHING = ("algorithm={name: ssgd, learning_rate: 0.1}", "stop={updates: 1}")  # completes a file of a cluster alone


@dataclass(frozen=True)
class Candidate:
    """A system with at most one knob."""

    run: str  # name of the run
    algorithm: str
    knob: str = ""  # `protocol.key`
    values: tuple[Any, ...] = ()  # values of the knob
    natural: tuple[Any, ...] = ()  # natural limits, which do not count as edges of the search
    shared_by: float = 1.0  # divisor of synchronous SGD's learning rate

    def settings(self, rate: float, best: str = "seconds") -> dict[str, Any]:
        """Return the run as part of a scenario: a sweep over the knob and learning rates around `rate`.

        Args:
            rate: learning rate of synchronous SGD.
            best: criterion for the best point.
        """
        rate_count = POINTS // max(1, len(self.values))
        middle = rate / self.shared_by
        rates = {"first": float(f"{middle / _SPAN:.3g}"), "last": float(f"{middle * _SPAN:.3g}"), "number": rate_count}
        sweep_values = ({self.knob: list(self.values)} if self.knob else {}) | {RATE: rates}
        return {"algorithm": {"name": self.algorithm}, "sweep": {"over": sweep_values, "best": best}}


def of_cluster(cluster: Cluster) -> list[Candidate]:
    """Return all systems that may apply, with knobs that suit the number of workers.

    Args:
        cluster: cluster on which they are tried.
    """
    workers = cluster.size
    backups = tuple(sorted({1, workers // 4, workers // 2} & set(range(1, workers))))
    splits = tuple(n for n in (2, 4, 8) if workers // n > 1)  # otherwise every gradient is an update, as with asgd
    groups = tuple(size for size in (2, 4, 8) if size < workers)
    sizes = tuple(sorted({max(1, workers // 2), workers, 4 * workers}))
    candidates = [
        Candidate("backup-workers", "ssgd", "protocol.backup_workers", backups, (1,)),
        Candidate("m-sync", "m-sync", "protocol.backup_workers", backups, (1,)),
        Candidate("cutoff", "cutoff-sgd", "protocol.rule", ("auto", "hmm")),
        Candidate("rennala", "rennala", "protocol.batch", sizes),
        Candidate("ringmaster", "ringmaster", "protocol.threshold", sizes, shared_by=workers),
        Candidate("delay-adaptive", "delay-adaptive", shared_by=workers),
        Candidate("softsync", "softsync-sgd", "protocol.n", splits, splits, shared_by=min(4.0, workers)),  # the middle split
        Candidate("asgd", "asgd", shared_by=workers),
        Candidate("sasgd", "sasgd"),
        Candidate("fasgd", "fasgd", shared_by=workers),
        Candidate("ssp", "ssp", "protocol.bound", (0, 3, 12), (0,), shared_by=workers),
        Candidate("local-sgd", "local-sgd", "protocol.period", (1, 4, 16), (1,)),
        Candidate("d-psgd", "d-psgd", "protocol.topology", ("ring", "exponential")),
        Candidate("ad-psgd", "ad-psgd"),
        Candidate("wagma-sgd", "wagma-sgd", "protocol.group_size", groups, groups),
    ]
    baselines = [Candidate(SYNC, "ssgd"), *([Candidate("allreduce", "allreduce-sgd")] if cluster.network else [])]
    return baselines + [candidate for candidate in candidates if not candidate.knob or candidate.values]


def that_apply(cluster: Cluster, parts: dict[str, Any], rate: float) -> tuple[list[Candidate], dict[str, str]]:
    """Return the systems that can run, and by name the reasons why others cannot.

    Args:
        cluster: cluster on which they are tried.
        parts: scenario fields shared by all runs.
        rate: learning rate of synchronous SGD.
    """
    applicable, reasons = list[Candidate](), dict[str, str]()
    for candidate in of_cluster(cluster):
        try:
            scenario(parts, runs={candidate.run: candidate.settings(rate)})
        except FredError as error:
            if candidate.run == SYNC:  # an error of the baseline affects all systems
                raise
            reasons[candidate.run] = str(error).splitlines()[0].partition(": ")[2]  # without the place in the scenario
        else:
            applicable.append(candidate)
    return applicable, reasons


def not_considered(cluster: Cluster) -> list[str]:
    """Return the names of FRED's algorithms without a candidate.

    Args:
        cluster: cluster on which the candidates are tried.
    """
    return sorted(set(registry.REGISTRY["algorithm"]) - {candidate.algorithm for candidate in of_cluster(cluster)})


class By(NamedTuple):
    """A criterion of a plan: where results have it, and how sentences name it."""

    name: str  # as `--by` has it
    best: str  # as a sweep has it
    to_target: str  # column of the summary until the target
    in_all: str  # column of the summary until the end
    unit: str  # follows a number
    heading: str  # of the column of medians
    reached: str  # how the first system reached the target; {} is its median
    next: str  # about the next system that is significantly worse; {} is the ratio
    least: str  # about the best system by this criterion
    missed: str  # what a run that missed the target counts as

    def format_value(self, value: float) -> str:
        """Return a value with its unit.

        >>> TIME.format_value(13.82), ENERGY.format_value(0.5)
        ('13.82 s', '0.5 kWh')
        """
        return f"{value:,.4g}{self.unit}"


TIME = By(
    *("time", "seconds", "target_seconds", "virtual_seconds", " s", "median, s"),
    reached="first, after {}",
    next="the next that is surely slower, takes {} times as long",
    least="is fastest",
    missed="the whole budget",
)
COST = By(
    *("cost", "cost", "target_cost", "cost_total", "", "median cost"),
    reached="at the least cost, {}",
    next="the next that surely costs more, costs {} times as much",
    least="costs least",
    missed="its cost until the end",
)
ENERGY = By(
    *("energy", "energy", "target_energy_kwh", "energy_kwh", " kWh", "median, kWh"),
    reached="with the least energy, {}",
    next="the next that surely needs more, needs {} times as much",
    least="needs the least energy",
    missed="its energy until the end",
)
CRITERIA = {criterion.name: criterion for criterion in (TIME, COST, ENERGY)}


def check_criterion(by: By, cluster: Cluster, source: str) -> None:
    """Raise FredError if a cluster has no prices, or no power, to rank by.

    Args:
        by: the criterion.
        cluster: simulated cluster.
        source: name of the scenario, for the message.
    """
    prices = cluster.prices
    if by == COST and not (prices and prices.charge):
        raise FredError(
            f"--by cost: nothing in {source} has a price; add, for example, "
            "`prices: {workers: [{per_hour: 3.0}]}` to its `cluster`"
        )
    if by == ENERGY and not (prices and prices.have_power):
        raise FredError(
            f"--by energy: no machine in {source} draws power; add, for example, "
            "`prices: {workers: [{busy_watts: 400, idle_watts: 80}]}` to its `cluster`"
        )


@dataclass(frozen=True)
class Question:
    """The question that a plan answers.

    Args:
        cluster: simulated cluster.
        task: learning task, as a scenario has it.
        target: `target_error`, `target_loss` or `target_gradient_norm`, with its value.
        budget: virtual time of every run, s.
        seeds: number of seeds that select each system's best point, and number of other seeds for the reported results.
        rate: learning rate of synchronous SGD, around which the search goes.
        by: criterion by which systems are tuned and ranked.
    """

    cluster: Cluster
    task: dict[str, Any]
    target: dict[str, float]
    budget: float
    seeds: tuple[int, int] = (2, 5)
    rate: float = 0.5
    by: By = TIME

    @property
    def parts(self) -> dict[str, Any]:
        """Return the scenario fields shared by all runs."""
        tuning, reported = self.seeds
        return {
            "seeds": list(range(_TUNING, _TUNING + tuning)),
            "report_seeds": list(range(_REPORTED, _REPORTED + reported)),
            "task": self.task,
            "cluster": self.cluster.model_dump(mode="json", exclude_defaults=True),
            "stop": {"seconds": self.budget},
            "evaluate": {"points": LOOKS, **self.target},
        }

    def document(self, candidates: Iterable[Candidate], description: str = "") -> dict[str, Any]:
        """Return the scenario that answers the question, as a file has it.

        Args:
            candidates: the systems.
            description: description of the cluster.
        """
        manner = self.by.reached.partition(",")[0]  # such as `first`, or `at the least cost`
        title = f"Which system reaches {self.aim} {manner}? {description}"
        runs = {candidate.run: candidate.settings(self.rate, self.by.best) for candidate in candidates}
        return {"title": title.strip(), **self.parts, "runs": runs}

    @property
    def evaluation_interval(self) -> float:
        """Return the virtual time between two evaluations, s."""
        return self.budget / LOOKS

    @property
    def aim(self) -> str:
        """Return the target in words."""
        value = self.target[f"target_{self.measure}"]
        return f"{'an' if self.measure == 'error' else 'a'} {self.measure.replace('_', ' ')} of {value:.3g}"

    @property
    def measure(self) -> str:
        """Return the column of the metrics that the target refers to."""
        return next(iter(self.target)).removeprefix("target_")


def usual_budget(cluster: Cluster) -> float:
    """Return the default budget, s: the time in which an average worker computes some hundred gradients.

    Args:
        cluster: simulated cluster.
    """
    return float(f"{GRADIENTS * cluster.size / cluster.gradients_per_second:.2g}")


def task_of(name: str) -> tuple[dict[str, Any], dict[str, float]]:
    """Return the task with this name or in this file, and its target if there is one. Raises FredError.

    Args:
        name: one of TASKS, a YAML file (a scenario, or a `task` alone), or the name of a scenario.
    """
    if name in TASKS and not Path(name).exists():
        return TASKS[name]
    if not name.endswith((".yaml", ".yml")) and name not in shipped.names():
        raise FredError(f"--for {name}: expected {', '.join(TASKS)}, or a YAML file with a `task`, such as a scenario")
    path = shipped.located(Path(name)).resolve()
    document, lines, _ = parse(path)
    if "task" in document and not {"algorithm", "runs"} & document.keys():  # no scenario: the stub makes it one
        source = Source(path, {**_STUB, **document}, lines, [])
        run = next(iter(validated(source.specification(), source.locate, folder=path.parent).runs.values()))
    else:
        run = runs_of(path)[0]
    return task_of_run(run, str(path))


def task_of_run(run: Run, path: str) -> tuple[dict[str, Any], dict[str, float]]:
    """Return a run's task, and its target if it has one. Raises FredError if the run has no task.

    Args:
        run: run of a scenario.
        path: path of the scenario, for the message.
    """
    if run.task is None:
        raise FredError(f"{path} has no `task`; give one with --for, such as --for digits")
    targets = [(f"target_{quantity}", goal) for quantity, goal in run.targets.items()]
    return run.task.model_dump(mode="json"), dict(targets[:1])


def runs_of(path: Path) -> list[Run]:
    """Return the runs of a scenario. Raises FredError.

    A file of a cluster alone, as `fred diagnose` and `fred fit` write it, is a scenario, too: a plan chooses the rest.

    Args:
        path: absolute path of the file, which also resolves paths in it.
    """
    document, _ = read_yaml(disk.text(path), lambda line: f"{path}:{line}")
    is_cluster_alone = (
        isinstance(document, dict) and "cluster" in document and not {"algorithm", "runs", "stop"} & document.keys()
    )
    return list(load(path, _ANYTHING if is_cluster_alone else ()).runs.values())
