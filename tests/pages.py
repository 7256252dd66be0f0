"""Results of many kinds, small ones, and their pages."""

from typing import Any

import fred
from fred.results.result import Result
from fred.views.page import Circumstances, page
from tests.worlds import TASK

CLUSTER: dict[str, Any] = {
    "workers": 3,
    "compute": {"name": "exponential", "scale": 0.5},
    "network": {"latency": {"name": "constant", "seconds": 0.01}, "message_bytes": 1000},
}
TIMED: dict[str, Any] = {"cluster": CLUSTER, "stop": {"updates": 30}}
ASGD = {"name": "asgd", "learning_rate": 0.1}
BOTH = {name: {"algorithm": {**ASGD, "name": name}} for name in ("asgd", "ssgd")}
LEARNED: dict[str, Any] = {
    **TIMED,
    "task": TASK,
    "evaluate": {"points": 5, "target_error": 0.7},
    "runs": BOTH,
    "seeds": [1, 2],
}
LAGGING = {"name": "fixed-lag", "lag": 2}
OUTAGE = {"name": "outage", "workers": [1], "begin": 1.0, "end": 2.0}
KINDS: dict[str, dict[str, Any]] = {
    "learned": LEARNED,
    "no task": {**TIMED, "runs": BOTH},
    "one run": {**TIMED, "algorithm": ASGD},
    "no clock": {"cluster": {"workers": 2}, "stop": {"updates": 20}, "algorithm": ASGD, "protocol": LAGGING},
    "sweep": {**TIMED, "runs": BOTH, "sweep": {"over": {"cluster.workers": [2, 3, 5], "cluster.servers": [1, 2]}}},
    "diverged": {
        **TIMED,
        "task": {**TASK, "data": {"name": "synthetic-regression", "examples": 100, "evaluation": 20, "features": 4}},
        "runs": {"fast": {"algorithm": {**ASGD, "learning_rate": 1e30}}, "slow": {"algorithm": ASGD}},
    },
    "peers": {**LEARNED, "runs": {"ring": {"algorithm": {**ASGD, "name": "d-psgd"}}}},
    "faults": {**TIMED, "algorithm": ASGD, "cluster": {**CLUSTER, "faults": [OUTAGE]}},
    "nothing reached": {**LEARNED, "evaluate": {"points": 3, "target_loss": 1e-9}},
    "many runs": {**TIMED, "runs": {f"run-{number}": {"algorithm": ASGD} for number in range(24)}},
    "many workers": {"cluster": {**CLUSTER, "workers": 1000, "nodes": 40}, "stop": {"updates": 3000}, "algorithm": ASGD},
}


def made(kind: str) -> Result:
    return fred.run(fred.scenario(KINDS[kind]))


def written(result: Result) -> str:
    return page(result, Circumstances("mine.yaml", {"jax": "1"}))


def page_of(kind: str, pages: dict[str, str]) -> str:
    """Made once."""
    if kind not in pages:
        pages[kind] = written(made(kind))
    return pages[kind]
