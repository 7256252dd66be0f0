"""Workers whose times follow a law: the i-th takes i^slowing times as long as the first."""

import numpy as np
import pytest

import fred
from fred.errors import FredError
from fred.protocols.asynchronous import Asynchronous
from fred.schedule.schedule import Verb
from tests.worlds import record


@pytest.mark.parametrize("slowing", [1.0, 0.5, 2.0])
def test_worker_i_takes_so_many_times_as_long(slowing):
    cluster = fred.Cluster(workers=9, slowing=slowing, compute={"name": "constant", "seconds": 0.5})
    schedule = record(Asynchronous(), cluster, gradients=200)
    pushes = schedule.rows(Verb.PUSH)
    seconds = (schedule["end_ns"] - schedule["begin_ns"])[pushes] / 1e9
    expected = 0.5 * (1.0 + schedule["worker"][pushes]) ** slowing
    assert np.allclose(seconds, expected, atol=2e-9)
    assert len(set(schedule["worker"][pushes].tolist())) > 4


def test_of_random_times_it_is_the_scale():
    compute = {"name": "exponential", "scale": 0.2}
    cluster = fred.Cluster(workers=3, slowing=1, compute=compute)
    assert cluster.gradients_per_second == pytest.approx(sum(1 / (0.2 * i) for i in (1, 2, 3)))


@pytest.mark.parametrize("other", [{"speeds": [1, 1, 1]}, {"groups": [{"workers": 3}]}])
def test_one_way_to_say_who_is_slow(other):
    cluster = {"workers": 3, "slowing": 1, **other}
    with pytest.raises(FredError, match="give one of `speeds`, `slowing` and `groups`, not several"):
        fred.scenario(cluster=cluster, stop={"updates": 1}, algorithm={"name": "asgd", "learning_rate": 0.1})
