"""Random scenario files that are valid, each a function of one seed; for the fuzzers."""

import contextlib
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from fred.base.errors import FredError
from fred.learning.data.arrays import arrays
from fred.running.execution import check
from fred.specification.loading import Scenario, load
from fred.specification.shape import Run
from tests.draws import Draws
from tests.from_schema import draw_part
from tests.random_clusters import latency
from tests.random_runs import CLOCKLESS, random_specification

Document = dict[str, Any]
LEARNING = 0.25  # share of the cases that learn something: the others are only timing, and cheap
_TRACE = "iteration,worker,seconds\n" + "".join(
    f"{row},{worker},{0.1 + 0.03 * row}\n" for row in range(4) for worker in range(3)
)
_SECONDS = "seconds\n0.1\n0.2\n0.05\n"
_FEW = {"examples": 60, "evaluation": 20, "features": 3}
_TOKENS = {"examples": 30, "evaluation": 9}


def random_scenario(seed: int, folder: Path) -> tuple[Path, Scenario]:
    """A scenario file in this folder, with the files that it names, and what it says."""
    draws, path = Draws(seed), folder / "scenario.yaml"
    write_files(folder)
    while True:
        path.write_text(json.dumps(document(draws), indent=1), encoding="utf-8")
        with contextlib.suppress(FredError):
            return path, load(path)


def random_run(seed: int, folder: Path, forced: Collection[str] = ()) -> tuple[Run, int]:
    """A valid run that learns something, often of a task that the schema allows, with these families of features; and its seed."""
    draws, path = Draws(seed, forced), folder / "scenario.yaml"
    write_files(folder)
    while True:
        task = _tiny_task(draws)
        if not forced:  # where the cluster's features are tried, other tasks would only take the time to compile them
            task = draws.one(task, draw_part(draws, "Task", draws.one(0.03, 0.1)) | {"batch_size": draws.one(1, 2, 4)})
        path.write_text(json.dumps(random_specification(draws, task)), encoding="utf-8")
        with contextlib.suppress(FredError):
            name, run = next(iter(load(path).runs.items()))
            check(name, run, seed)
            return run, seed


def document(draws: Draws) -> Document:
    """Draw a scenario file, perhaps with a run whose parts do not fit together."""
    task = _tiny_task(draws) if draws.numbers.random() < LEARNING else None
    run = random_specification(draws, task)
    whole: Document = dict(run)
    if draws.has("traces"):
        whole["cluster"]["compute"] = draws.one(
            {"name": "trace", "file": "trace.csv", "workers": "cycled"}, {"name": "empirical", "csv": "seconds.csv"}
        )
    if draws.has("titles"):
        whole["title"] = draws.one("a [bold]title[/bold] with $x_1$ & <tags>", "two\nlines", "日本語 👩", "long " * 60)
    if draws.has("seeds"):
        whole["seeds"] = draws.one([3], [0, 2**32 - 1])
    if draws.has("several runs"):
        one, two = draws.one(("one", "two"), ("1", "a.b-C_9"), ("日本語", "ünï"), ("x" * 60, "x" * 59))
        whole["runs"] = {one: {}, two: _override(draws, run)}
    if draws.has("sweeps"):
        whole["sweep"] = _sweep(draws, run)
    return whole


def _tiny_task(draws: Draws) -> Document:
    """One of few shapes, so that what is compiled for one case serves others."""
    model = draws.one("softmax", "softmax", {"name": "mlp", "hidden": [4]})
    classes, values = {"name": "synthetic-classification", **_FEW, "classes": 3}, {"name": "synthetic-regression", **_FEW}
    data = draws.one(classes, classes, values, {"name": "arrays", "file": "examples.npz"}, "digits")
    task: Document = {"data": data, "model": model, "batch_size": draws.one(1, 4)}
    if draws.has("sequences") and draws.one(True, False, False):
        own = draws.one({"name": "bigrams", "vocabulary": 5}, {"name": "shuffle-dyck", "kinds": 2}, {"name": "grammar"})
        recall, text = (
            {"name": "recall", "pairs": 2, "keys": 3, "values": 3},
            {"name": "text", "file": "mine.txt", "context": 4},
        )
        task["data"] = draws.one(_TOKENS | own | {"context": 4}, _TOKENS | recall, text)
        task["model"] = draws.one("token-scores", {"name": "transformer", "layers": 1, "width": 4, "heads": 2})
        return task
    if draws.has("examples"):
        sampling = {"sampling": draws.one("replacement", "shuffled")}
        divided = sampling | {"division": draws.one("divided", *([] if data is values else ["by-label", "dirichlet"]))}
        task |= draws.one(divided, sampling, {"sampling": "sequential"})
    if draws.has("other losses"):
        noise = {"name": "noise", "examples": 60, "features": draws.one(1, 5)}
        value = {"data": noise, "model": {"name": "quadratic", "dimension": 5}, "loss": "value", "batch_size": draws.one(1, 4)}
        error = draws.one("squared-error", *([] if data is values else [{"name": "cross-entropy", "smoothing": 0.1}]))
        return draws.one(value, task | {"loss": error})
    return task


def write_files(folder: Path) -> None:
    (folder / "mine.txt").write_text(_SECONDS)
    (folder / "trace.csv").write_text(_TRACE)
    (folder / "seconds.csv").write_text(_SECONDS)
    inputs, answers = np.linspace(-1, 1, 120, dtype=np.float32).reshape(40, 3), np.arange(40) % 3
    arrays(folder / "examples.npz", (inputs[:30], answers[:30]), (inputs[30:], answers[30:]))


def _override(draws: Draws, run: Document) -> Document:
    """Draw the settings in which a second run differs."""
    return draws.one(
        {"algorithm": {"learning_rate": 0.05}},
        {"cluster": {"compute": latency(draws, 0.2)}},
        {"stop": {"updates": draws.between(5, 30)}},
        {"protocol": random_specification(draws, run.get("task"))["protocol"]},
    )


def _sweep(draws: Draws, run: Document) -> Document:
    rates = draws.one([0.01, 0.1], {"first": 0.01, "last": 0.1, "number": 2})
    grid = draws.one(
        {"algorithm.learning_rate": rates},
        {"cluster.compute": [latency(draws, seconds) for seconds in (0.1, 0.2)]},
        {"stop.updates": [5, 10], "algorithm.learning_rate": rates},
    )
    over = draws.one(grid, [{"algorithm.learning_rate": 0.1}, {"stop.updates": 7}])
    timed = run["protocol"]["name"] not in CLOCKLESS and draws.has("targets")
    measures = ("throughput", "bytes_to_servers", "highest staleness_mean", "error", *(("seconds", "updates") if timed else ()))
    return {"over": over, **draws.one({}, {"best": draws.one(*measures)})}
