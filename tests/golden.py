"""Digests pinned for the locked environment. `make golden` (python -m tests.golden) writes them anew, after an intended change."""

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import fred
from fred.prediction import closed_loop
from fred.prediction.deep.rule import DeepMarkov
from fred.process import environment
from fred.traces.reading import read
from tests import shipped

GOLDEN = Path(__file__).parent / "golden.json"
SCENARIOS = Path(__file__).parent.parent / "scenarios"
_RUNS = {  # scenario -> settings that make it short, runs
    "quickstart": (["seeds=[1]", "stop.seconds=5"], []),
    "systems/b-fasgd": (["seeds=[1]", "stop.updates=300"], ["fetch-0.1", "push-0.1"]),
    "systems/psp-sgd": (["seeds=[1]", "stop.updates=30"], ["both"]),
    "systems/ssp": (["seeds=[1]", "stop.seconds=5"], ["bound-3"]),
    "systems/ad-psgd": (["seeds=[1]", "stop.seconds=5"], ["d-psgd", "ad-psgd"]),
    "systems/sgp": (["seeds=[1]", "stop.updates=200"], ["push-sum-star"]),
    "systems/wagma-sgd": (["seeds=[1]", "stop.seconds=10"], ["wagma-4"]),
    "systems/cutoff-sgd": (["seeds=[1]", "stop.seconds=50"], ["elfving", "dmm"]),
}


def names() -> Iterator[str]:
    """Each run of a short quickstart, and one or two of each system."""
    for name, (_, only) in _RUNS.items():
        yield from (f"{name}/{run}" for run in only or fred.load(SCENARIOS / f"{name}.yaml").runs)


def digests(name: str, inline: bool = False) -> dict[str, str]:
    """The digests of a run's schedule and parameters."""
    scenario, _, run = name.rpartition("/")
    (outcome,) = fred.run(fred.load(SCENARIOS / f"{scenario}.yaml", _RUNS[scenario][0]), only=run, inline=inline).outcomes
    assert outcome.params_digest is not None
    return {"schedule": outcome.schedule.digest(), "params": outcome.params_digest}


def all_digests() -> dict[str, dict[str, str]]:
    """Of every run."""
    return {name: digests(name) for name in names()}


def training(seed: int = 0) -> dict[str, Any]:
    """The digest of a deep Markov model that was trained for a few steps on FRED's own trace, and what it chose there."""
    trace = read("example")
    assert trace.node_of is not None
    rule = DeepMarkov(steps=60, seed=seed, warm_up=5).trained(trace.seconds, trace.node_of)
    return {"digest": rule.digest, "cutoffs": closed_loop.run(rule, trace.seconds, trace.node_of, 5).cutoff.tolist()}


def locked(recorded: dict[str, str]) -> list[str]:
    """How this environment differs from the recorded one."""
    here = environment.describe()
    names = sorted(here.keys() | recorded.keys())
    return [f"{name} {recorded.get(name)} -> {here.get(name)}" for name in names if here.get(name) != recorded.get(name)]


if __name__ == "__main__":
    shipped.main()
    content = {
        "environment": environment.describe(),
        "digests": all_digests(),
        "training": training(),
        "numpyro": version("numpyro"),
    }
    GOLDEN.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {GOLDEN}")
