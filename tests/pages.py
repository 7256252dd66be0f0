"""Small results, for figures and tables; and results of many kinds with their pages, which a process makes once."""

from functools import cache
from typing import Any

import fred
from fred.results import experiment
from fred.results.result import Result
from fred.specification.loading import Scenario
from fred.views.page import Circumstances, page
from tests.worlds import COMPUTE, TASK, make_run

NETWORKED: dict[str, Any] = {
    "workers": 4,
    "compute": COMPUTE,
    "network": {"latency": {"name": "constant", "seconds": 0.03}, "message_bytes": 4000},
}
BLUE, RED, PURPLE, GREY, DARK = "#56b4e9", "#d55e00", "#cc79a7", "#d0d0d0", "#5b5b5b"
COLOURS_OF_TIME = {"computing": BLUE, "wasted": RED, "network": PURPLE, "waiting": GREY, "away": DARK}
TIMINGS: dict[str, dict] = {  # of which the second and the third are the same
    "dispatched": {"protocol": "dispatcher"},
    "asgd": {},
    "same": {"algorithm": "sasgd"},
    "backup": {"algorithm": "ssgd", "protocol": {"backup_workers": 1}},
    "peers": {"algorithm": "d-psgd"},
}


def run_all(runs: dict[str, dict], seeds: tuple[int, ...] = (1,), title: str = "", **options: Any) -> Result:
    """These runs, each with every seed; the options are those of all runs."""
    built = {name: make_run(**{**options, **run}) for name, run in runs.items()}
    return experiment.run(Scenario(title=title, seeds=seeds, runs=built))


CLUSTER: dict[str, Any] = {
    "workers": 3,
    "compute": {"name": "exponential", "scale": 0.5},
    "network": {"latency": {"name": "constant", "seconds": 0.01}, "message_bytes": 1000},
}
TIMED: dict[str, Any] = {"cluster": CLUSTER, "stop": {"updates": 30}}
ASGD = {"name": "asgd", "learning_rate": 0.1}
PAIR = {name: {"algorithm": {**ASGD, "name": name}} for name in ("asgd", "ssgd")}
GOAL = {"points": 5, "target_error": 0.7}
LEARNED: dict[str, Any] = {**TIMED, "task": TASK, "evaluate": GOAL, "runs": PAIR, "seeds": [1, 2]}
LAGGING = {"name": "fixed-lag", "lag": 2}
OUTAGE = {"name": "outage", "workers": [1], "begin": 1.0, "end": 2.0}
KINDS: dict[str, dict[str, Any]] = {
    "learned": LEARNED,
    "no task": {**TIMED, "runs": PAIR},
    "one run": {**TIMED, "algorithm": ASGD},
    "no clock": {"cluster": {"workers": 2}, "stop": {"updates": 20}, "algorithm": ASGD, "protocol": LAGGING},
    "sweep": {**TIMED, "runs": PAIR, "sweep": {"over": {"cluster.workers": [2, 3, 5], "cluster.servers": [1, 2]}}},
    "diverged": {
        **{**TIMED, "task": TASK},
        "runs": {"fast": {"algorithm": {**ASGD, "learning_rate": 1e38}}, "slow": {"algorithm": ASGD}},
    },
    "peers": {**LEARNED, "runs": {"ring": {"algorithm": {**ASGD, "name": "d-psgd"}}}},
    "faults": {**TIMED, "algorithm": ASGD, "cluster": {**CLUSTER, "faults": [OUTAGE]}},
    "nothing reached": {**LEARNED, "evaluate": {"points": 5, "target_loss": 1e-9}},
    "many runs": {**TIMED, "runs": {f"run-{number}": {"algorithm": ASGD} for number in range(24)}},
    "many workers": {"cluster": {**CLUSTER, "workers": 300, "nodes": 40}, "stop": {"updates": 900}, "algorithm": ASGD},
}


@cache
def result_of(kind: str) -> Result:
    return fred.run(fred.scenario(KINDS[kind]))


def render_page(result: Result) -> str:
    return page(result, Circumstances("mine.yaml", {"jax": "1"}))


@cache
def page_of(kind: str) -> str:
    return render_page(result_of(kind))
