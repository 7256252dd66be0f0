"""A run that is stopped at a checkpoint and goes on later is the same run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fred.components import registry
from fred.running import checkpoints
from fred.running.execution import Checkpoint, Following, execute
from fred.specification.loading import load
from fred.specification.shape import Run
from tests.golden import SCENARIOS
from tests.worlds import COMPUTE, LAYERS, make_run, same

CLUSTER = {"workers": 4, "compute": COMPUTE}
DECAY = {"name": "exponential_decay", "transition_steps": 10, "decay_rate": 0.5}
RUNS: dict[str, dict[str, Any]] = {
    "fasgd": {"cluster": CLUSTER},
    "b-fasgd": {"cluster": CLUSTER, "protocol": {"name": "gated", "c_push": 0.1, "c_fetch": 0.3}},
    "psp-sgd": {"cluster": {**CLUSTER, "servers": 3}, "protocol": {"name": "partial", "gradients": 3, "blocks_percent": 60}},
    "d-psgd": {"cluster": CLUSTER},
    "ssgd": {"cluster": CLUSTER, "protocol": {"backup_workers": 1}},
    "asgd": {"algorithm": {"name": "asgd", "learning_rate": 0.1, "schedule": DECAY, "average": 0.9}, "cluster": CLUSTER},
}
CADENCES = ({"every_gradients": 7}, {"every_seconds": 0.25})


def from_a_file(checkpoint: Checkpoint, folder: Path) -> Checkpoint:
    """What another process finds."""
    checkpoints.save(folder, "one run's", checkpoint)
    found = checkpoints.load(folder, "one run's")
    assert found is not None
    return found


@pytest.mark.one_in(6)
@pytest.mark.parametrize("evaluate", CADENCES, ids=str)
@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("name", RUNS)
def test_resumed_equals_uninterrupted(name, inline, evaluate, tmp_path):
    run = make_run(**{"algorithm": name, "stop": {"gradients": 60}, "evaluate": evaluate, **RUNS[name]})
    checkpoints: list[Checkpoint] = []
    whole = execute("run", run, 3, inline, Following(save=checkpoints.append))
    assert len(checkpoints) >= 3
    assert same(whole, execute("run", run, 3, inline)), "keeping checkpoints changes nothing"
    for checkpoint in (checkpoints[0], checkpoints[len(checkpoints) // 2]):
        looked: list[float] = []
        resumed = execute("run", run, 3, inline, Following(looked.append, resumed=checkpoint))
        assert same(whole, resumed)
        assert same(whole, execute("run", run, 3, inline, Following(resumed=from_a_file(checkpoint, tmp_path))))
        assert len(looked) <= len(whole.metrics) - len(checkpoint.measured) + 1, "what was measured is not measured again"


@pytest.mark.parametrize("inline", [False, True])
def test_a_target_is_reached_where_it_would_have_been(inline):
    run = make_run("asgd", stop={"gradients": 400, "target_loss": 0.4}, evaluate={"every_seconds": 0.1})
    checkpoints: list[Checkpoint] = []
    whole = execute("run", run, 3, inline, Following(save=checkpoints.append))
    assert 2 < len(whole.metrics) < 30
    assert same(whole, execute("run", run, 3, inline, Following(resumed=checkpoints[1])))


SYSTEMS = sorted((SCENARIOS / "systems").glob("*.yaml"))


def of_the_systems() -> Iterator[Any]:
    """One run of each algorithm with each of the protocols that it is shown with, cut short; quick: one of each protocol."""
    seen, protocols = set(), set()
    for path in SYSTEMS:
        for name, run in load(path).runs.items():
            kind = registry.name_of("algorithm", run.algorithm), registry.name_of("protocol", run.protocol)
            if kind not in seen:
                marks = [pytest.mark.slow] if kind[1] in protocols else []
                seen.add(kind)
                protocols.add(kind[1])
                yield pytest.param(path, name, id=" ".join(kind), marks=marks)


@pytest.mark.one_in(16)
@pytest.mark.parametrize(("path", "name"), list(of_the_systems()))
def test_an_interpreted_run_of_any_system_goes_on_from_a_file(path, name, tmp_path):
    task = {**LAYERS, "model": {"name": "mlp", "hidden": [5, 5]}}
    looks = 64 if "dropcompute" in path.name else 15  # so many gradients are in one of its rounds
    short = {"task": task, "stop": {"gradients": 4 * looks}, "evaluate": {"every_gradients": looks}}
    run: Run = load(path).replace(short).runs[name]
    kept: list[Checkpoint] = []
    whole = execute(name, run, 3, True, Following(save=kept.append))
    middle = kept[1]
    assert 1 < len(middle.measured) < len(whole.metrics)
    assert same(whole, execute(name, run, 3, True, Following(resumed=from_a_file(middle, tmp_path))))


def test_every_algorithm_is_among_them():
    assert {param.id.split()[0] for param in of_the_systems()} == set(registry.REGISTRY["algorithm"])
