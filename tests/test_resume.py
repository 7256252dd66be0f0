"""A run that is stopped at a checkpoint and goes on later is the same run."""

from typing import Any

import pytest

from fred.running.execution import Checkpoint, Following, execute
from tests.worlds import COMPUTE, make_run, same

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


@pytest.mark.parametrize("evaluate", CADENCES, ids=str)
@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("name", RUNS)
def test_resumed_equals_uninterrupted(name, inline, evaluate):
    run = make_run(**{"algorithm": name, "stop": {"gradients": 60}, "evaluate": evaluate, **RUNS[name]})
    checkpoints: list[Checkpoint] = []
    whole = execute("run", run, 3, inline, Following(keep=checkpoints.append))
    assert len(checkpoints) >= 3
    assert same(whole, execute("run", run, 3, inline)), "keeping checkpoints changes nothing"
    for checkpoint in (checkpoints[0], checkpoints[len(checkpoints) // 2]):
        looked: list[float] = []
        resumed = execute("run", run, 3, inline, Following(looked.append, resumed=checkpoint))
        assert same(whole, resumed)
        assert len(looked) <= len(whole.metrics) - len(checkpoint.measured) + 1, "what was measured is not measured again"


@pytest.mark.parametrize("inline", [False, True])
def test_a_target_is_reached_where_it_would_have_been(inline):
    run = make_run("asgd", stop={"gradients": 400, "target_loss": 0.4}, evaluate={"every_seconds": 0.1})
    checkpoints: list[Checkpoint] = []
    whole = execute("run", run, 3, inline, Following(keep=checkpoints.append))
    assert 2 < len(whole.metrics) < 30
    assert same(whole, execute("run", run, 3, inline, Following(resumed=checkpoints[1])))
