"""Systems that average some coordinates at a time, perhaps late: what they are the same as, and NumPy's word on each."""

from typing import Any

import pytest

from fred.outcomes.outcome import Outcome
from fred.running.execution import execute
from fred.schedule.schedule import Verb, What
from fred.systems.sparta import LateAveraging
from tests.worlds import make_run, record

pytestmark = pytest.mark.slow

RATE = 0.125
NETWORK = {"latency": {"name": "constant", "seconds": 0.02}, "bandwidth": 1e4}
CLUSTER = {"workers": 4, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.5}, "network": NETWORK}


def outcome(algorithm: Any, protocol: Any = None, inline: bool = False, **options: Any) -> Outcome:
    algorithm = {"learning_rate": RATE, **({"name": algorithm} if isinstance(algorithm, str) else algorithm)}
    options = {"cluster": CLUSTER, "stop": {"gradients": 120}, **options}
    return execute("run", make_run(algorithm, protocol=protocol, **options), 3, inline)


class TestSame:
    """To the last bit."""

    def test_sparta_in_one_part_is_parameter_averaging(self):
        sparta, local = outcome({"name": "sparta", "parts": 1}), outcome("local-sgd", {"period": 1})
        assert sparta.params_digest == local.params_digest
        assert sparta.schedule.end_ns == local.schedule.end_ns
        assert sparta.schedule["bytes"].sum() == local.schedule["bytes"].sum()

    def test_late_means_that_are_not_moved_on_are_spartas(self):
        late = outcome({"name": "sparta", "parts": 3}, {"delay": 3})
        assert outcome({"name": "async-mesh", "parts": 3, "ahead": 0.0}, {"delay": 3}).params_digest == late.params_digest

    def test_masks_follow_the_seed(self):
        run = make_run({"name": "sparta", "learning_rate": RATE, "parts": 3}, cluster=CLUSTER)
        state = execute("run", run, 0).params_digest, execute("run", run, 0).params_digest
        assert state[0] == state[1] != execute("run", run, 1).params_digest


class TestTraffic:
    """A part of the coordinates is a part of the bytes."""

    def test_each_average_has_the_bytes_of_its_coordinates(self):
        """Of 32 and 4 coordinates in 3 parts: 11 + 2, 11 + 1, 10 + 1; in a ring of four each worker sends 1.5 times that."""
        schedule = outcome({"name": "sparta", "parts": 3}).schedule
        sent = schedule["bytes"][schedule.rows(Verb.SYNC)].reshape(-1, 4)
        assert (sent == sent[:, :1]).all()
        assert sent[:9, 0].tolist() == [78, 72, 66] * 3

    def test_nobody_waits_for_what_comes_in_time(self):
        constant = {**CLUSTER, "compute": {"name": "constant", "seconds": 0.5}}
        at_once, late, never = (
            outcome({"name": "sparta", "parts": 3}, {"delay": delay}, cluster=constant, stop={"seconds": 10.0})
            for delay in (0, 1, None)
        )
        done = [each.schedule.counts()["gradients"] for each in (at_once, late, never)]
        assert done[0] < done[1] == done[2] == 4 * 19  # at 10 s the time is up

    def test_averages_are_one_after_the_other(self):
        """Each takes 1.5 s, and one is due every 0.5 s."""
        network = {"bandwidth": 1e6, "message_bytes": 1_000_000}
        cluster = make_run(cluster={"workers": 4, "compute": {"name": "constant", "seconds": 0.5}, "network": network}).cluster
        schedule = record(LateAveraging(delay=4), cluster, seconds=30.0)
        moving = schedule.intervals.only(What.COLLECTIVE)
        own = moving.worker == 0
        begin, end = moving.begin_ns[own], moving.end_ns[own]
        assert set((end - begin).tolist()) == {1_500_000_000}
        assert (begin[1:] >= end[:-1]).all()
        assert len(begin) == 19
