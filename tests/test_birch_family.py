"""Birch SGD's methods: what they are the same as, when they do what, and NumPy's word on each."""

from typing import Any

import numpy as np
import pytest

from fred.outcomes.outcome import Outcome
from fred.running.execution import execute
from fred.schedule.schedule import Verb
from tests.recompute import largest_relative_error
from tests.worlds import make_run

UNEQUAL = {"workers": 4, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.7}}
EQUAL = {"workers": 4, "compute": {"name": "constant", "seconds": 0.5}}
NETWORK = {"latency": {"name": "exponential", "scale": 0.02}, "bandwidth": 1e5}
RATE = 0.125


def outcome(algorithm: Any, protocol: Any = None, cluster: Any = UNEQUAL, inline: bool = False, **options: Any) -> Outcome:
    algorithm = {"learning_rate": RATE, **({"name": algorithm} if isinstance(algorithm, str) else algorithm)}
    options = {"stop": {"gradients": 160}, **options}
    return execute("run", make_run(algorithm, protocol=protocol, cluster=cluster, **options), 3, inline)


def at(found: Outcome, *verbs: Verb, replica: int = 4) -> list[float]:
    """Return the times of changes of a replica, s."""
    schedule = found.schedule
    rows = schedule.rows(*verbs)
    return (schedule["time_ns"][rows][schedule["replica"][rows] == replica] / 1e9).round(6).tolist()


class TestSame:
    @pytest.mark.parametrize("network", [None, NETWORK])
    def test_sums_of_one_gradient_are_asynchronous(self, network):
        cluster = UNEQUAL | ({"network": network} if network else {})
        local, batch, asgd = (
            outcome(name, options, cluster, stop={"seconds": 5.0})
            for name, options in (("async-local", {"steps": 1}), ("async-batch", {"steps": 1}), ("asgd", None))
        )
        assert batch.params_digest == asgd.params_digest
        assert largest_relative_error(local.final, asgd.final) < 1e-5, "a difference is taken, and undone"
        assert at(local, Verb.COMMIT) == at(batch, Verb.COMMIT, replica=0) == at(asgd, Verb.PUSH, replica=0)

    @pytest.mark.parametrize(("name", "options"), [("birch-local", {"total": 4}), ("cycle", {"group_size": 4})])
    def test_one_step_of_each_is_synchronous_with_a_sum(self, name, options):
        found = outcome(name, options, EQUAL, stop={"seconds": 5.25})
        ssgd = outcome({"name": "ssgd", "learning_rate": 4 * RATE}, None, EQUAL, stop={"seconds": 5.25})
        assert largest_relative_error(found.final, ssgd.final) < 1e-5
        assert at(found, Verb.COMMIT) == at(ssgd, Verb.COMMIT, replica=0)


class TestWhen:
    """Times of workers that take half a second for a gradient."""

    def test_groups_come_in_turn(self):
        found = outcome("cycle", {"group_size": 2}, EQUAL, stop={"seconds": 3.75})
        rows = found.schedule.rows(Verb.ADD)
        who = list(zip((found.schedule["time_ns"][rows] / 1e9).tolist(), found.schedule["worker"][rows].tolist(), strict=True))
        assert who == [
            (time, worker) for number, time in enumerate(np.arange(0.5, 3.75, 0.5)) for worker in ((0, 1), (2, 3))[number % 2]
        ]

    def test_all_stop_when_there_are_enough_steps(self):
        """Ten steps: the fast three make three each by 1.5 s, and the slow, which takes 1.6 s, gives up when there is a tenth."""
        slow = {**EQUAL, "speeds": [1, 1, 1, 0.3125]}
        found = outcome("birch-local", {"total": 10}, slow, stop={"seconds": 4.2})
        assert at(found, Verb.COMMIT) == [1.6, 3.2]
        aborted = [at(found, Verb.DROP, replica=worker) for worker in range(4)]
        assert aborted == [[1.6, 3.2]] * 3 + [[]], "the next ones of the fast"
        made = np.bincount(found.schedule["worker"][found.schedule.rows(Verb.PUSH)][:10])
        assert made.tolist() == [3, 3, 3, 1]

    def test_what_is_too_old_is_dropped(self):
        slow = {**EQUAL, "speeds": [1, 1, 1, 0.1]}
        bounded, free = (
            outcome("async-local", {"steps": 2, "bound": each}, slow, stop={"seconds": 40.5}) for each in (10, None)
        )
        for found, dropped in ((bounded, 4), (free, 0)):
            rows = found.schedule.rows(Verb.DROP)
            assert found.schedule["worker"][rows].tolist() == [3] * dropped, "10 s for two steps, in which others make 60"

    @pytest.mark.parametrize("name", ["async-local", "async-batch"])
    def test_a_sum_is_as_old_as_the_reading_of_its_model(self, name):
        """Two workers at 4 and 1 gradients/s, 1 s each way: of the slow one's first sums, those that are too old by the bound.

        The fast one reads at 0, 2.5, 5, ...; its sums of two arrive at 2.5, 5, ... The slow one reads at 0, 4, 8, ...: in its
        4 s it hears of one sum or two of the other's, 2 or 4 gradients.
        """
        cluster = {
            "workers": 2,
            "speeds": [4.0, 1.0],
            "compute": {"name": "constant", "seconds": 1.0},
            "network": {"latency": {"name": "constant", "seconds": 1.0}},
        }
        found = outcome(name, {"steps": 2, "bound": 3}, cluster, stop={"seconds": 19.0})
        of_slow = found.schedule["worker"] == 1
        fast = np.arange(2.5, 19.0, 2.5)
        taken, dropped = list[float](), list[float]()
        for read in np.arange(0.0, 13.0, 4.0):
            since = 2 * ((fast >= read) & (fast < read + 4.0)).sum()
            (dropped if since > 3 else taken).append(float(read + 4.0))
        server = 0 if name == "async-batch" else 2
        for verb, times in ((Verb.ADD, taken), (Verb.DROP, dropped)):
            rows = found.schedule.rows(verb)
            rows = rows[of_slow[rows] & (found.schedule["replica"][rows] == server)]
            assert sorted(set((found.schedule["time_ns"][rows] / 1e9).tolist())) == times
        assert len(taken) == len(dropped) == 2
