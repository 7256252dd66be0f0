"""A run that is stopped at a checkpoint and goes on later is the same run."""

from pathlib import Path
from typing import Any

import pytest

from fred.running import checkpoints
from fred.running.checkpoints import Checkpoint, Following
from fred.running.execution import execute
from tests.worlds import COMPUTE, make_run, same

CLUSTER = {"workers": 4, "compute": COMPUTE}
DECAY = {"name": "exponential_decay", "transition_steps": 10, "decay_rate": 0.5}
RUNS: dict[str, dict[str, Any]] = {  # tests/test_every_case.py has every algorithm, at every so many gradients
    "psp-sgd": {"cluster": {**CLUSTER, "servers": 3}, "protocol": {"name": "partial", "gradients": 3, "blocks_percent": 60}},
    "asgd": {"algorithm": {"name": "asgd", "learning_rate": 0.1, "schedule": DECAY, "average": 0.9}, "cluster": CLUSTER},
}
CADENCES = ({"every_gradients": 7}, {"every_seconds": 0.25})


def from_a_file(checkpoint: Checkpoint, folder: Path) -> Checkpoint:
    """Return the checkpoint as another process finds it."""
    checkpoints.save(folder, "one run's", checkpoint)
    found = checkpoints.load(folder, "one run's")
    assert found is not None
    return found


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
