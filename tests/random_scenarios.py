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
    """Write a scenario file, and the files that it names, into this folder; return its path and its content."""
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
            task = draws.choose(task, draw_part(draws, "Task", draws.choose(0.03, 0.1)) | {"batch_size": draws.choose(1, 2, 4)})
        path.write_text(json.dumps(random_specification(draws, task)), encoding="utf-8")
        with contextlib.suppress(FredError):
            name, run = next(iter(load(path).runs.items()))
            check(name, run, seed)
            return run, seed


def document(draws: Draws) -> Document:
    """Draw a scenario file, perhaps with a run whose parts do not fit together."""
    task = _tiny_task(draws) if draws.numbers.random() < LEARNING else None
    run = random_specification(draws, task)
    result: Document = dict(run)
    if draws.covers("traces"):
        result["cluster"]["compute"] = draws.choose(
            {"name": "trace", "file": "trace.csv", "workers": "cycled"}, {"name": "empirical", "csv": "seconds.csv"}
        )
    if draws.covers("titles"):
        result["title"] = draws.choose("a [bold]title[/bold] with $x_1$ & <tags>", "two\nlines", "日本語 👩", "long " * 60)
    if draws.covers("seeds"):
        result["seeds"] = draws.choose([3], [0, 2**32 - 1])
    if draws.covers("several runs"):
        first, second = draws.choose(("one", "two"), ("1", "a.b-C_9"), ("日本語", "ünï"), ("x" * 60, "x" * 59))
        result["runs"] = {first: {}, second: _override(draws, run)}
    if draws.covers("sweeps"):
        result["sweep"] = _sweep(draws, run)
    return result


def _tiny_task(draws: Draws) -> Document:
    """Return a task of one of a few shapes, so that cases share compiled programs."""
    model = draws.choose("softmax", "softmax", {"name": "mlp", "hidden": [4]})
    classes, values = {"name": "synthetic-classification", **_FEW, "classes": 3}, {"name": "synthetic-regression", **_FEW}
    data = draws.choose(classes, classes, values, {"name": "arrays", "file": "examples.npz"}, "digits")
    task: Document = {"data": data, "model": model, "batch_size": draws.choose(1, 4)}
    if draws.covers("sequences") and draws.choose(True, False, False):
        source = draws.choose({"name": "bigrams", "vocabulary": 5}, {"name": "shuffle-dyck", "kinds": 2}, {"name": "grammar"})
        recall, text = (
            {"name": "recall", "pairs": 2, "keys": 3, "values": 3},
            {"name": "text", "file": "mine.txt", "context": 4},
        )
        task["data"] = draws.choose(_TOKENS | source | {"context": 4}, _TOKENS | recall, text)
        task["model"] = draws.choose("token-scores", {"name": "transformer", "layers": 1, "width": 4, "heads": 2})
        return task
    if draws.covers("examples"):
        sampling = {"sampling": draws.choose("replacement", "shuffled")}
        divided = sampling | {"division": draws.choose("divided", *([] if data is values else ["by-label", "dirichlet"]))}
        task |= draws.choose(divided, sampling, {"sampling": "sequential"})
    if draws.covers("other losses"):
        noise = {"name": "noise", "examples": 60, "features": draws.choose(1, 5)}
        value = {
            "data": noise,
            "model": {"name": "quadratic", "dimension": 5},
            "loss": "value",
            "batch_size": draws.choose(1, 4),
        }
        error = draws.choose("squared-error", *([] if data is values else [{"name": "cross-entropy", "smoothing": 0.1}]))
        return draws.choose(value, task | {"loss": error})
    return task


def write_files(folder: Path) -> None:
    (folder / "mine.txt").write_text(_SECONDS)
    (folder / "trace.csv").write_text(_TRACE)
    (folder / "seconds.csv").write_text(_SECONDS)
    inputs, answers = np.linspace(-1, 1, 120, dtype=np.float32).reshape(40, 3), np.arange(40) % 3
    arrays(folder / "examples.npz", (inputs[:30], answers[:30]), (inputs[30:], answers[30:]))


def _override(draws: Draws, run: Document) -> Document:
    """Draw the settings in which a second run differs."""
    return draws.choose(
        {"algorithm": {"learning_rate": 0.05}},
        {"cluster": {"compute": latency(draws, 0.2)}},
        {"stop": {"updates": draws.integer(5, 30)}},
        {"protocol": random_specification(draws, run.get("task"))["protocol"]},
    )


def _sweep(draws: Draws, run: Document) -> Document:
    rates = draws.choose([0.01, 0.1], {"first": 0.01, "last": 0.1, "number": 2})
    grid = draws.choose(
        {"algorithm.learning_rate": rates},
        {"cluster.compute": [latency(draws, seconds) for seconds in (0.1, 0.2)]},
        {"stop.updates": [5, 10], "algorithm.learning_rate": rates},
    )
    points = draws.choose(grid, [{"algorithm.learning_rate": 0.1}, {"stop.updates": 7}])
    timed = run["protocol"]["name"] not in CLOCKLESS and draws.covers("targets")
    measures = ("throughput", "bytes_to_servers", "highest staleness_mean", "error", *(("seconds", "updates") if timed else ()))
    return {"over": points, **draws.choose({}, {"best": draws.choose(*measures)})}
