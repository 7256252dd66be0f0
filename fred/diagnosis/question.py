"""The question behind a plan (cluster, task, target, budget and seeds), and the scenario that answers it."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fred.base import inputs
from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.diagnosis.candidates import Candidate
from fred.diagnosis.criteria import TIME, By
from fred.specification import shipped
from fred.specification.loading import load, validated
from fred.specification.shape import Run
from fred.specification.source import Source
from fred.specification.text import parse, read_yaml

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

    def document(self, tried: Iterable[Candidate], about: str = "") -> dict[str, Any]:
        """Return the scenario that answers the question, as a file has it.

        Args:
            tried: the systems.
            about: description of the cluster.
        """
        how = self.by.reached.partition(",")[0]
        title = f"Which system reaches {self.aim} {how}? {about}"
        runs = {each.run: each.settings(self.rate, self.by.best) for each in tried}
        return {"title": title.strip(), **self.parts, "runs": runs}

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
    if "task" in document and not {"algorithm", "runs"} & document.keys():
        source = Source(path, {**_STUB, **document}, lines, [])
        run = next(iter(validated(source.specification(), source.locate, folder=path.parent).runs.values()))
    else:
        run = runs_of(path)[0]
    return of_run(run, str(path))


def of_run(run: Run, path: str) -> tuple[dict[str, Any], dict[str, float]]:
    """Return a run's task, and its target if it has one. Raises FredError if the run has no task.

    Args:
        run: run of a scenario.
        path: path of the scenario, for the message.
    """
    if run.task is None:
        raise FredError(f"{path} has no `task`; give one with --for, such as --for digits")
    goals = [(f"target_{name}", run.targets[name]) for name in ("error", "loss", "gradient_norm") if name in run.targets]
    return run.task.model_dump(mode="json"), dict(goals[:1])


def runs_of(path: Path) -> list[Run]:
    """Return the runs of a scenario. Raises FredError.

    A file of a cluster alone, as `fred diagnose` and `fred fit` write it, is a scenario, too: a plan chooses the rest.

    Args:
        path: absolute path of the file, which also resolves paths in it.
    """
    document, _ = read_yaml(inputs.text(path), lambda line: f"{path}:{line}")
    alone = isinstance(document, dict) and "cluster" in document and not {"algorithm", "runs", "stop"} & document.keys()
    return list(load(path, _ANYTHING if alone else ()).runs.values())
