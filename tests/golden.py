"""Digests pinned for the locked environment. `make golden` (python -m tests.golden) writes them again, after an intended change.

Three checks read them: `python -m tests.golden shared` computes the same runs, each shared by two processes, `make portable`
computes them on emulated CPUs, without pytest, and tests of small cases compare a run that they share with other tests. The
shortened scenarios are compared by FRED's plugin for pytest, as in a user's project (`tests/pinned`).
"""

import json
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import fred
from fred.base import environment
from fred.outcomes.outcome import Outcome
from fred.prediction import closed_loop
from fred.prediction.deep.rule import DMM
from fred.replay import helpers
from fred.running.execution import execute
from fred.specification.shape import Run
from fred.traces.reading import read
from tests import shipped
from tests.cases import CASES, SEED, Case
from tests.worlds import LAYERS, make_run

GOLDEN = Path(__file__).parent / "golden.json"
SCENARIOS = Path(__file__).parent.parent / "scenarios"
SHORTENED = {  # scenario -> settings that make it short, runs
    "quickstart": (["seeds=[1]", "stop.seconds=5"], []),
    "systems/b-fasgd": (["seeds=[1]", "stop.updates=300"], ["fetch-0.1", "push-0.1"]),
    "systems/psp-sgd": (["seeds=[1]", "stop.updates=30"], ["both"]),
    "systems/ssp": (["seeds=[1]", "stop.seconds=5"], ["bound-3"]),
    "systems/ad-psgd": (["seeds=[1]", "stop.seconds=5"], ["d-psgd", "ad-psgd"]),
    "systems/sgp": (["seeds=[1]", "stop.updates=200"], ["push-sum-star"]),
    "systems/wagma-sgd": (["seeds=[1]", "stop.seconds=10"], ["wagma-4"]),
    "systems/cutoff-sgd": (["seeds=[1]", "stop.seconds=50"], ["elfving", "dmm"]),
}
_EXTRA = (  # algorithms beside the first of each page, with steps or messages of their own
    *(
        "b-fasgd",
        "bmuf",
        "cgad",
        "choco-sgd",
        "cutoff-sgd",
        "cycle",
        "dbw",
        "demo",
        "eager-diloco",
        "edit",
        "exponential",
        "fadas",
    ),
    *(
        "fasgd",
        "fedadam",
        "fedasync",
        "heloco",
        "ormo",
        "palsgd",
        "rescaled-asgd",
        "ringmaster-lmo",
        "sasgd",
        "scaffold",
        "sgp",
    ),
    *("sparseloco", "ssp", "swarm-sgd"),
)
_OPTIMIZERS = ("adamw", "adafactor", "lamb", "muon", "novograd", "rprop", "sm3")  # with norms, means of rows, products, signs
_TASKS: dict[str, dict[str, Any]] = {
    "cnn": {"data": "digits", "model": {"name": "cnn", "channels": [3], "hidden": 8}},
    "quadratic": {"data": {"name": "noise", "features": 20}, "model": {"name": "quadratic", "dimension": 20}},
    "transformer": {"data": "bigrams", "model": {"name": "transformer", "width": 4, "layers": 1, "heads": 2}},
    "token-scores": {"data": "bigrams", "model": "token-scores"},
    "mlp": LAYERS,
}


def pinned_cases() -> list[Case]:
    """Return the pinned cases of `tests.cases`: the first of each page, a few more, and all of the codecs."""
    algorithms = [case for case in CASES if case.kind == "algorithm"]
    pages = {type(case.run.algorithm).__module__: case for case in reversed(algorithms)}
    return [case for case in CASES if case.kind == "codec" or case in pages.values() or case.name in _EXTRA]


def _other_runs() -> dict[str, Run]:
    """Return a short run of each kind of model, and of optimizers unlike the others."""
    options: dict[str, Any] = {"stop": {"gradients": 40}, "evaluate": {"points": 2}}
    models = {f"model/{name}": make_run(task=task | {"batch_size": 4}, **options) for name, task in _TASKS.items()}
    steps = {f"optimizer/{name}": {"name": "asgd", "learning_rate": 0.01, "optimizer": name} for name in _OPTIMIZERS}
    return models | {name: make_run(algorithm, task=LAYERS, **options) for name, algorithm in steps.items()}


def names() -> Iterator[str]:
    """Each run of a short quickstart, one or two of older systems, and a small one of each page, codec and kind of model."""
    for name, (_, only) in SHORTENED.items():
        yield from (f"{name}/{run}" for run in only or fred.load(SCENARIOS / f"{name}.yaml").runs)
    yield from (f"{case.kind}/{case.name}" for case in pinned_cases())
    yield from _other_runs()


def digests(name: str, inline: bool = False, cores: int = 1) -> dict[str, str]:
    """The digests of a run's schedule and parameters."""
    scenario, _, run = name.rpartition("/")
    if scenario in SHORTENED:
        loaded = fred.load(SCENARIOS / f"{scenario}.yaml", SHORTENED[scenario][0])
        return digests_of(execute(run, loaded.runs[run], loaded.seeds[0], inline, cores=cores))
    small = _other_runs() | {f"{case.kind}/{case.name}": case.run for case in pinned_cases()}
    return digests_of(execute(name, small[name], SEED, inline, cores=cores))


def digests_of(outcome: Outcome) -> dict[str, str]:
    """The digests of a finished run."""
    assert outcome.params_digest is not None
    return {"schedule": outcome.schedule.digest(), "params": outcome.params_digest}


def all_digests() -> dict[str, dict[str, str]]:
    """Return the digests of every run."""
    return {name: digests(name) for name in names()}


def shared() -> int:
    """Print each run whose digests differ from the pinned ones when two processes share it; return how many there are."""
    helpers.FORCE_HELPERS = True
    pinned, differing = json.loads(GOLDEN.read_text(encoding="utf-8"))["digests"], []
    for name in names():
        if digests(name, cores=2) != pinned[name]:
            differing.append(name)
            print(f"{name} differs", flush=True)
    print(f"{len(pinned)} pinned runs, each shared by two processes: {len(differing)} differ")
    return len(differing)


def digest_training(seed: int = 0) -> dict[str, Any]:
    """Return the digest of a deep Markov model after a few training steps on the beginning of FRED's trace, and its choices there."""
    trace = read("example")
    assert trace.node_of is not None
    seconds = trace.seconds[:60]
    rule = DMM(steps=60, seed=seed, warm_up=5).trained(seconds, trace.node_of)
    return {"digest": rule.digest, "cutoffs": closed_loop.run(rule, seconds, trace.node_of, 5).cutoff.tolist()}


def compare_environment(recorded: dict[str, str]) -> list[str]:
    """Return how this environment differs from the recorded one."""
    current = environment.describe()
    names = sorted(current.keys() | recorded.keys())
    return [f"{name} {recorded.get(name)} -> {current.get(name)}" for name in names if current.get(name) != recorded.get(name)]


if __name__ == "__main__":
    if sys.argv[1:] == ["shared"]:
        sys.exit(shared())
    shipped.main()
    content = {
        "environment": environment.describe(),
        "digests": all_digests(),
        "training": digest_training(),
        "numpyro": version("numpyro"),
    }
    GOLDEN.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {GOLDEN}")
