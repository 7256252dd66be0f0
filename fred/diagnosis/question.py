"""What is asked of a plan: a cluster, a task, its target, how long, with which seeds; and the scenario that answers it."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fred.cluster.cluster import Cluster
from fred.diagnosis.candidates import Candidate
from fred.errors import FredError
from fred.specification import shipped
from fred.specification.loading import load, validated
from fred.specification.shape import Run
from fred.specification.source import Source
from fred.specification.text import parse

TASKS: dict[str, tuple[dict[str, Any], dict[str, float]]] = {  # name -> the task, and the target
    "digits": ({"data": "digits", "model": {"name": "mlp", "hidden": [32]}, "batch_size": 8}, {"target_error": 0.12}),
}
LOOKS = 100  # at the error on the way
GRADIENTS = 200  # of each worker, that the budget is long enough for if none is said
_TUNING, _REPORTED = 1, 101  # the first seeds
_STUB: dict[str, Any] = {  # what a file that has a task alone lacks
    "algorithm": {"name": "ssgd", "learning_rate": 0.1},
    "cluster": {"workers": 1},
    "stop": {"updates": 1},
}


@dataclass(frozen=True)
class Question:
    """What is asked.

    Args:
        cluster: on which.
        task: what is learned, as a scenario has it.
        target: `target_error`, `target_loss` or `target_gradient_norm`, and its value.
        budget: virtual time that every run has, s.
        seeds: how many choose each system's best point, and how many others are reported.
        rate: learning rate of synchronous SGD, around which is searched.
    """

    cluster: Cluster
    task: dict[str, Any]
    target: dict[str, float]
    budget: float
    seeds: tuple[int, int] = (2, 5)
    rate: float = 0.5

    @property
    def parts(self) -> dict[str, Any]:
        """What all runs share."""
        tuning, reported = self.seeds
        return {
            "seeds": list(range(_TUNING, _TUNING + tuning)),
            "report_seeds": list(range(_REPORTED, _REPORTED + reported)),
            "task": self.task,
            "cluster": self.cluster.model_dump(mode="json", exclude_defaults=True),
            "stop": {"seconds": self.budget},
            "evaluate": {"points": LOOKS, **self.target},
        }

    def document(self, tried: Iterable[Candidate], about: str = "") -> dict[str, Any]:
        """The scenario that answers it, as a file has it.

        Args:
            tried: the systems.
            about: the cluster, in words.
        """
        title = f"Who reaches {self.aim} first? {about}"
        return {"title": title.strip(), **self.parts, "runs": {each.run: each.settings(self.rate) for each in tried}}

    @property
    def aim(self) -> str:
        """The target in words."""
        value = self.target[f"target_{self.measure}"]
        return f"{'an' if self.measure == 'error' else 'a'} {self.measure.replace('_', ' ')} of {value:.3g}"

    @property
    def measure(self) -> str:
        """What the target is of: a column of the metrics."""
        return next(iter(self.target)).removeprefix("target_")


def usual_budget(cluster: Cluster) -> float:
    """How long a plan looks ahead if nothing is said, s: as long as the mean worker takes for some hundred gradients.

    Args:
        cluster: on which.
    """
    return float(f"{GRADIENTS * cluster.size / cluster.gradients_per_second:.2g}")


def task_of(name: str) -> tuple[dict[str, Any], dict[str, float]]:
    """The task of this name, or in this file (a scenario, or a `task` alone), and its target, if it says one. FredError.

    Args:
        name: one of TASKS, or a YAML file or the name of a scenario.
    """
    if name in TASKS and not Path(name).exists():
        return TASKS[name]
    if not name.endswith((".yaml", ".yml")) and name not in shipped.names():
        raise FredError(f"--for {name}: expected {', '.join(TASKS)}, or a YAML file with a `task`, such as a scenario")
    path = shipped.located(Path(name)).resolve()
    document, lines, _ = parse(path)
    if "task" in document and not {"algorithm", "runs"} & document.keys():
        source = Source(path, {**_STUB, **document}, lines, [])
        run = next(iter(validated(source.specification(), source.locate, folder=path.parent).runs.values()))
    else:
        run = runs_of(path)[0]
    return of_run(run, str(path))


def of_run(run: Run, path: str) -> tuple[dict[str, Any], dict[str, float]]:
    """A run's task, and its target if it has one. Raises FredError where it learns nothing.

    Args:
        run: of a scenario.
        path: of the scenario, for the message.
    """
    if run.task is None:
        raise FredError(f"{path} has no `task`; say with --for what is to be learned, such as --for digits")
    goals = [(f"target_{name}", run.targets[name]) for name in ("error", "loss", "gradient_norm") if name in run.targets]
    return run.task.model_dump(mode="json"), dict(goals[:1])


def runs_of(path: Path) -> list[Run]:
    """The runs of a scenario. Raises FredError.

    Args:
        path: of the file, whole, so that the paths that it names are.
    """
    return list(load(path).runs.values())
