"""What the contract carries: users' systems, each recomputed by NumPy, and inline the same as replayed."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from fred.components import registry
from fred.running.execution import execute
from fred.schedule.schedule import Verb
from tests.plain import recompute_run
from tests.plain.base import Context, Plain
from tests.plain.codecs import only_largest
from tests.recompute import largest_relative_error
from tests.worlds import LAYERS, TASK, UNEQUAL, constant, make_run, outcome, same_outcome


@pytest.fixture(autouse=True, scope="module")
def _allow_own_classes():
    registry.allow_import(["tests.successors"])


def own_class(name: str) -> str:
    return f"tests.successors:{name}"


class PlainZeros(Plain):
    """Has an array of zeros for each array of the parameters."""

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        self.sum, self.weight = dict.fromkeys(params, 0.0), 0.0


class PlainAveraged(PlainZeros):
    """Keeps a moving average of the parameters, without the bias of its beginning."""

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        super().update(grads, staleness, count)
        self.sum = {k: 0.9 * total + 0.1 * self.params[k] for k, total in self.sum.items()}
        self.weight = 0.9 * self.weight + 0.1


class PlainQuantised(PlainZeros):
    """Publishes multiples of 0.05, and adds what rounding takes away to the next model."""

    def published(self) -> dict:
        exact = {k: p + self.sum[k] for k, p in self.params.items()}
        rounded = {k: 0.05 * np.round(p / 0.05) for k, p in exact.items()}
        self.sum = {k: p - rounded[k] for k, p in exact.items()}
        return rounded


def plain_top_k() -> type[Plain]:
    """Return a class whose workers send the largest quarter of each array, and keep the rest in a memory of their own."""
    rests: dict[int, dict] = defaultdict(dict)

    class PlainTopK(Plain):
        @staticmethod
        def sent_message(worker: int, params: dict, message: dict) -> dict:
            corrected = {k: g + rests[worker].get(k, 0.0) for k, g in message.items()}
            largest = {
                k: only_largest(g.ravel(), g.size - round(0.75 * (g.size - 1))).reshape(g.shape) for k, g in corrected.items()
            }
            rests[worker] = {k: corrected[k] - largest[k] for k in corrected}
            return largest

    return PlainTopK


LAYERS_APART = {"name": "asynchronous", "cut": "layers", "clocks": "each"}
SYSTEMS: dict[str, tuple[str, Any, int, Any]] = {  # algorithm, protocol, servers, NumPy's class
    "top-k": (own_class("TopK"), "asynchronous", 1, plain_top_k),
    "top-k, in rounds": (own_class("TopK"), "synchronous", 1, plain_top_k),
    "top-k, layers on servers": (own_class("TopK"), LAYERS_APART, 2, plain_top_k),
    "top-k of pseudo-gradients on shards": (own_class("TopK"), own_class("ShardedRounds"), 2, plain_top_k),
    "quantised": (own_class("Quantised"), "asynchronous", 1, PlainQuantised),
    "fragments, layers": ("asgd", own_class("Fragments"), 1, Plain),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "quantised" else pytest.mark.slow) for name in SYSTEMS]
)
def test_a_users_system_is_what_its_schedule_says_inline_and_replayed(name):
    algorithm, protocol, servers, reference = SYSTEMS[name]
    cluster = UNEQUAL | {"servers": servers, "network": {"latency": {"seconds": 0.02, "name": "constant"}}}
    task = LAYERS if "layers" in name else TASK
    run = make_run(algorithm, protocol=protocol, cluster=cluster, task=task, stop={"gradients": 120})
    replayed, inline = (execute("run", run, 3, inline) for inline in (False, True))
    assert same_outcome(replayed, inline)
    params = recompute_run(replayed, reference() if reference is plain_top_k else reference).params
    assert largest_relative_error(replayed.final, params) < 1e-4
    assert largest_relative_error(replayed.final, replayed.initial) > 0.1, "the run moved the parameters"
    assert replayed.metrics["loss"].iloc[-1] < 0.8 * replayed.metrics["loss"].iloc[0]


def test_what_is_evaluated_may_be_a_moving_average():
    replayed, inline = (
        outcome(own_class("Averaged"), seed=3, inline=inline, stop={"gradients": 60}) for inline in (False, True)
    )
    assert same_outcome(replayed, inline)
    params, _, (server,) = recompute_run(replayed, PlainAveraged)
    assert largest_relative_error(replayed.final, {k: total / server.weight for k, total in server.sum.items()}) < 1e-4
    assert largest_relative_error(replayed.final, params) > 1e-2


def test_rounds_of_eager_sgd_are_empty_while_their_workers_are_away():
    crashes = {"name": "crashes", "mean_up": 0.2, "away": {"name": "constant", "seconds": 0.3}}
    protocol = {"name": "eager", "start_by": "solo", "period": None}
    cluster = UNEQUAL | {"faults": [crashes], "network": {"latency": {"name": "constant", "seconds": 0.02}}}
    schedule = outcome("eager-sgd", protocol, cluster, task=None).schedule
    members = np.diff(np.searchsorted(schedule.rows(Verb.ADD), np.insert(schedule.rows(Verb.COMMIT), 0, 0)))
    assert {0, 1, 2} <= set(members.tolist())


def test_times_of_gradients_of_a_second_where_messages_take_half_of_one():
    for protocol, servers, expected in (
        ({"name": "elastic", "period": 3}, 1, [1.5, 2.5, 3.5, 5.5, 6.5, 7.5, 9.5]),  # down and up again after three steps
        ({"name": "buffered", "period": 3}, 1, [1.5, 2.5, 3.5, 5.5, 6.5, 7.5, 9.5]),
        (own_class("Fragments"), 1, [1, 3, 5, 7, 9]),  # two phases around a ring of two
        (own_class("ShardedRounds"), 2, [1.5, 4, 6.5, 9]),  # up to one server after the other
    ):
        cluster = constant(1.0, 1.0, servers=servers, network={"latency": {"name": "constant", "seconds": 0.5}})
        schedule = outcome("asgd", protocol, cluster, stop={"seconds": 9.9}, task=None).schedule
        pushes = schedule.rows(Verb.PUSH)
        first = pushes[(schedule["replica"][pushes] == 0) & (schedule["block"][pushes] == 0)]
        assert (schedule["time_ns"][first] / 1e9).tolist() == expected, protocol
