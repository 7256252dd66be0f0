"""Users' classes of five kinds, defined at four places, in every use: each use gives the numbers of a plain run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.test_parallel import cluster

CLASSES = """
import jax
import jax.numpy as jnp
import numpy as np

import fred


class Half(fred.Server):
    scale: float = 0.5

    def apply_update(self, state, grads, timestamp, worker):
        return self.step(state, grads, scale=self.scale)


class InTurn(fred.Protocol):
    def start(self, sim):
        for worker in range(sim.workers):
            sim.process(self._work(sim, worker))

    def _work(self, sim, worker):
        while True:
            gradient = sim.compute(worker, (yield from sim.pull(worker)))
            yield gradient.finished
            yield from sim.send(gradient)
            sim.push(gradient)


class Linear(fred.Model):
    size: float = 0.0

    def init(self, key, input_shape, outputs):
        return {"w": self.size * jax.random.normal(key, (input_shape[0], outputs))}

    def apply(self, params, inputs):
        return inputs @ params["w"]


class Fixed(fred.Latency):
    seconds: float = 0.5

    def sample(self, u):
        return np.full_like(u, self.seconds)

    @property
    def mean(self):
        return self.seconds


class Two(fred.Data):
    noise: float = 0.1

    def load(self, seed):
        draws = np.random.default_rng(seed).normal(size=(80, 4)).astype(np.float32)
        answers = (draws[:, 0] + self.noise * draws[:, 1] > 0).astype(np.int32)
        train, rest = (fred.Examples(draws[part], answers[part]) for part in (slice(60), slice(60, 80)))
        return fred.Dataset(train, rest, outputs=2)
"""

USES = """
import sys
import warnings
from pathlib import Path

import fred
from fred.results.verify import Verdict, verify

DASK = sys.argv[1:]  # the scheduler's address, or nothing
BASE = {
    "cluster": {"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    "stop": {"updates": 6},
    "task": {"data": {"name": "synthetic-classification", "examples": 64, "evaluation": 12, "features": 4, "classes": 2}, "model": "softmax"},
    "seeds": [1, 2],
}
ASGD = {"name": "asgd", "learning_rate": 0.1}
KINDS = {  # settings of the kind, and an option of the class with another value
    "server": ({"algorithm": Half(learning_rate=0.1)}, {"algorithm.scale": 0.25}),
    "protocol": ({"algorithm": ASGD, "protocol": InTurn()}, {"cluster.workers": 3}),
    "model": ({"algorithm": ASGD, "task": BASE["task"] | {"model": Linear()}}, {"task.model.size": 0.1}),
    "latency": ({"algorithm": ASGD, "cluster": {"workers": 2, "compute": Fixed()}}, {"cluster.compute.seconds": 0.25}),
    "data": ({"algorithm": ASGD, "task": BASE["task"] | {"data": Two()}}, {"task.data.noise": 0.3}),
}


def numbers(result):
    return result.summary[["loss", "virtual_seconds", "digests_params"]].to_numpy().tolist()


def main(place):
    warnings.simplefilter("ignore")
    for kind, (settings, change) in KINDS.items():
        one = fred.scenario(BASE, **settings)
        (name,) = one.runs
        plain, changed = numbers(fred.run(one)), numbers(fred.run(one.replace(change)))
        assert plain != changed, kind
        for address in DASK:
            assert numbers(fred.run(one, dask=address, out=f"{kind}-dask")) == plain, kind
        if DASK:
            continue
        assert numbers(fred.run(one, jobs=2, out=f"{kind}-jobs")) == plain, kind
        (option, value), = change.items()
        swept = fred.run(fred.scenario(BASE, **settings, sweep={"over": {option: [value]}}))
        assert numbers(swept) == changed, kind
        runs = {"one": {}, "other": {"stop": {"updates": 5}}}
        until = fred.run(fred.scenario(BASE, **settings, runs=runs, until={"within": 0.9, "seeds": 10}))
        assert numbers(until)[:2] == plain, kind
        again = fred.run(one, out=f"{kind}-jobs", seeds=[1, 2, 3])
        assert numbers(again)[:2] == plain, kind
        if place != "function":
            imports = ["mine"] if place == "module" else ["__main__"]
            verdict, message = verify(Path(again.folder), imports)
            assert verdict == Verdict.SAME, (kind, message)
    print("all the same")
"""

PROGRAMS = {
    "script": {"program.py": f"{CLASSES}{USES}\nif __name__ == '__main__':\n    main('script')\n"},
    "module": {
        "mine.py": CLASSES,
        "program.py": f"from mine import *\n{USES}\nif __name__ == '__main__':\n    main('module')\n",
    },
    "notebook": {
        "cells.py": f"{CLASSES}{USES}",
        "program.py": "from IPython.core.interactiveshell import InteractiveShell\n"
        "if __name__ == '__main__':\n    shell = InteractiveShell()\n"
        "    shell.run_cell(open('cells.py').read()).raise_error()\n    shell.run_cell('main(\"notebook\")').raise_error()\n",
    },
    "function": {
        "program.py": f"def classes():\n{''.join(f'    {line}' for line in CLASSES.splitlines(keepends=True))}\n"
        f"    return Half, InTurn, Linear, Fixed, Two\n\n\nHalf, InTurn, Linear, Fixed, Two = classes()\n{USES}\n"
        "if __name__ == '__main__':\n    main('function')\n"
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("place", PROGRAMS)
def test_every_use_of_a_class_of_ones_own_gives_the_numbers_of_a_plain_run(tmp_path, place):
    run_program(tmp_path, place)


@pytest.mark.slow
@pytest.mark.parametrize("place", PROGRAMS)
def test_dask_gives_the_numbers_of_a_plain_run_of_a_class_of_ones_own(tmp_path, place):
    with cluster(tmp_path, 1) as address:
        run_program(tmp_path, place, address)


def run_program(folder: Path, place: str, *arguments: str) -> None:
    for name, text in PROGRAMS[place].items():
        (folder / name).write_text(text)
    command = [sys.executable, "program.py", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("all the same\n"), done.stderr[-3000:]
