"""Compare FRED with PyTorch, gossipy and a bare loop: `python -m benchmarks.others OTHER/bin/python [--two-cores]`.

OTHER is an interpreter with PyTorch (`pip install torch`), because FRED's environment lacks it. To compare gossipy, too,
install `gossipy-dfl` and its dependencies there; otherwise its cells are empty.

All four compute the same gradients and plain SGD on one thread, in turn. A cell is the median of five runs, in ms a gradient.
FRED's replay also draws minibatches, stores models that are read late, and keeps its bits the same on all CPUs. The bare
loop is jitted JAX on one model. PyTorch runs a handwritten loop on one model. docs/numerics.md has results.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import time_action
from benchmarks.replay import CONTEXT, EXAMPLES, LARGE, TOKENS, Case, Work, perceptron, transformer, workers
from fred.base import environment
from fred.learning.models.built_in_models import CNN
from fred.protocols.gossip import Gossip
from fred.protocols.synchronous import Synchronous
from fred.systems.asgd import SASGD

_TURNS = 5
_ROUNDS = 60  # of eight gradients of a transformer of four layers: more than half a minute on one core
_IN_PYTORCH = Path(__file__).with_name("in_pytorch.py")
_IN_GOSSIPY = Path(__file__).with_name("in_gossipy.py")


class Comparison(NamedTuple):
    """A line of the table.

    Args:
        name: the training.
        case: in FRED.
        facts: for the program of PyTorch.
        is_gossip: True if gossipy can train it.
    """

    name: str
    case: Case
    facts: dict[str, Any]
    is_gossip: bool = False


def comparisons() -> list[Comparison]:
    """Return perceptrons, a convolutional network and transformers; each case takes about a second, the last one five."""
    asynchronous = SASGD(learning_rate=0.01)
    table = [
        Comparison(
            f"784-200-10, batch {size}",
            Case(perceptron(LARGE), size, workers(16), asynchronous, count),
            {"kind": "mlp", "batch": size, "updates": count},
        )
        for size, count in ((1, 8000), (8, 6000), (128, 1000))
    ]
    table.append(
        Comparison(
            "784-200-10, batch 8, gossip of 16 on a ring",
            Case(perceptron(LARGE), 8, workers(16), asynchronous, 4000, Gossip()),
            {"kind": "mlp", "batch": 8, "updates": 4000},
            is_gossip=True,
        )
    )
    table.append(
        Comparison(
            "CNN, 16 and 32 kernels, 32 x 32 x 3, batch 32",
            Case(_pictures(), 32, workers(4), asynchronous, 80),
            {"kind": "cnn", "batch": 32, "updates": 80},
        )
    )
    for layers, width, count in ((2, 64, 120), (4, 128, 24), (6, 384, 12)):  # fewer would count memory that is taken once
        facts = {"kind": "transformer", "batch": 8, "updates": count, "layers": layers, "width": width}
        case = Case(transformer(layers, width), 8, workers(4), asynchronous, count)
        table.append(Comparison(f"transformer, {layers} x {width}, 8 x {CONTEXT} tokens", case, facts))
    return table


def _pictures() -> Work:
    rng = np.random.default_rng(0)
    return Work(CNN(channels=(16, 32), hidden=64), rng.normal(size=(EXAMPLES, 32, 32, 3)), rng.integers(0, 10, EXAMPLES), 10)


def main() -> None:
    """Print the table, a row as soon as it is measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.others", description=__doc__)
    parser.add_argument(
        "python", metavar="OTHER/bin/python", help="an interpreter with PyTorch, and gossipy if it is to be compared"
    )
    parser.add_argument("--two-cores", action="store_true", help="rounds of eight gradients on two cores instead")
    options = parser.parse_args()
    if not _is_installed(options.python, "torch"):
        parser.error(f"{options.python} has no PyTorch: {options.python} -m pip install torch")
    environment.check()
    if options.two_cores:
        _two_cores(options.python)
        return
    with_gossipy = _is_installed(options.python, "gossipy")
    print("| ms a gradient, one core | FRED | bare loop | PyTorch | gossipy | FRED / PyTorch |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for row in comparisons():
        for compiling in (row.case.replay, row.case.limit):
            compiling()
        times: dict[str, list[float]] = {"FRED": [], "bare loop": [], "PyTorch": [], "gossipy": []}
        for _ in range(_TURNS):
            times["FRED"].append(time_action(row.case.replay) / row.case.gradients)
            times["bare loop"].append(time_action(row.case.limit) / row.case.gradients)
            times["PyTorch"] += _elsewhere(options.python, _IN_PYTORCH, row.facts)
            times["gossipy"] += _elsewhere(options.python, _IN_GOSSIPY, row.facts) if row.is_gossip and with_gossipy else []
        medians = {name: statistics.median(seconds) for name, seconds in times.items() if seconds}
        cells = [f"{1e3 * medians[name]:.3g}" if name in medians else "" for name in times]
        ratio = f"{medians['FRED'] / medians['PyTorch']:.2f}" if "PyTorch" in medians else ""
        print(f"| {' | '.join([row.name, *cells, ratio])} |", flush=True)


def _is_installed(python: str, library: str) -> bool:
    return not subprocess.run([python, "-c", f"import {library}"], capture_output=True, check=False).returncode


def _two_cores(python: str) -> None:
    """Print rounds of eight gradients by one and two processes; FRED's times include the start of its helper."""
    case = Case(transformer(4, 128), 8, workers(8), SASGD(learning_rate=0.01), 8 * _ROUNDS, Synchronous())
    case.replay()
    facts = {"kind": "transformer", "batch": 8, "layers": 4, "width": 128, "updates": _ROUNDS, "gradients": 8}
    ways = {
        "one core": (1, {}),
        "two processes": (2, {"processes": 2}),
        "two processes; PyTorch: two threads": (2, {"threads": 2}),
    }
    for name, (cores, options) in ways.items():
        pairs = [
            (
                time_action(partial(case.replay, cores)) / case.gradients,
                *_elsewhere(python, _IN_PYTORCH, facts | options),
            )
            for _ in range(3)
        ]
        fred, torch = (1e3 * statistics.median(column) for column in zip(*pairs, strict=True))
        print(
            f"rounds of eight gradients, {name}: FRED {fred:.2f} ms a gradient, PyTorch {torch:.2f}, ratio {fred / torch:.2f}"
        )


def _elsewhere(python: str, program: Path, facts: dict[str, Any]) -> list[float]:
    """Return the seconds of a gradient that a program of another interpreter prints; empty if it prints none."""
    with tempfile.TemporaryDirectory() as folder:
        common = {"context": CONTEXT, "tokens": TOKENS, "gradients": 1, "threads": 1, "processes": 1} | facts
        common["meeting"] = str(Path(folder) / "meeting")
        processes = [
            subprocess.Popen([python, str(program), json.dumps(common | {"rank": rank})], stdout=subprocess.PIPE, text=True)
            for rank in range(common["processes"])
        ]
        outputs = [process.communicate()[0].split() for process in processes]
        return [max(float(output[-1]) for output in outputs)] if all(outputs) else []


if __name__ == "__main__":
    main()
