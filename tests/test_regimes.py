"""Persistent noise, days, rare delays and moving jobs against closed forms."""

import time

import numpy as np
import pytest

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.cluster.contention import Load, Loads
from fred.cluster.regimes import Diurnal, MovingJob, PersistentNoise, RareDelays
from fred.protocols.asynchronous import Asynchronous
from fred.protocols.cutoff import Cutoff
from fred.schedule.schedule import Verb
from tests.worlds import make_run, record

SECOND = 10**9
NOISE = {"deviation": 0.2, "persistence": 0.8, "every": 0.5}


def factors(load: Load, worker: int, steps: int, step: int = SECOND) -> np.ndarray:
    return np.array([load.slowdown(worker, i * step + step // 3)[0] for i in range(steps)])


def test_persistent_noise_is_stationary_with_its_deviation_and_autocorrelation():
    load = PersistentNoise(**NOISE).start(3, "contention 0", np.zeros(400, int))
    logs = np.log([[load.stretch(worker, i * SECOND // 2) for i in range(500)] for worker in range(400)])
    effective = 400 * 500 * (1 - 0.8) / (1 + 0.8)
    assert logs.mean() == pytest.approx(0, abs=4 * 0.2 / np.sqrt(effective))
    assert logs.std() == pytest.approx(0.2, rel=4 / np.sqrt(effective))
    assert logs[:, 0].std() == pytest.approx(0.2, rel=4 / np.sqrt(2 * 400)), "starts stationary"
    for lag in (1, 2, 5):
        assert (logs[:, lag:] * logs[:, :-lag]).mean() / 0.04 == pytest.approx(0.8**lag, abs=0.02)
    assert np.abs((logs[0] * logs[1]).mean()) / 0.04 < 0.5, "workers are independent"


def test_noise_holds_for_a_step_and_can_be_looked_up_in_any_order():
    regime = PersistentNoise(**NOISE, of="node")
    node_of = np.repeat([0, 1], 3)
    forward, backward = (regime.start(3, "contention 0", node_of) for _ in range(2))
    late = [backward.stretch(5, now) for now in (300 * SECOND, 0)]
    early = [forward.stretch(5, now) for now in (0, 300 * SECOND)]
    assert late == early[::-1]
    assert forward.stretch(3, 0) == forward.stretch(5, SECOND // 2 - 1) == early[0]
    assert forward.stretch(3, SECOND // 2) != early[0]
    assert forward.stretch(0, 0) != early[0]


def test_a_computation_keeps_the_noise_that_it_begins_with():
    regime = {"name": "persistent-noise", "deviation": 0.5, "persistence": 0.0, "every": 0.01}
    cluster = Cluster(workers=50, compute={"name": "constant", "seconds": 1.0}, contention=[regime])
    schedule = record(Cutoff(rule="all"), cluster, gradients=50 * 100)
    rows = schedule.rows(Verb.ADD)
    seconds = (schedule["end_ns"] - schedule["begin_ns"])[rows] / 1e9
    assert np.log(seconds).std() == pytest.approx(0.5, rel=4 / np.sqrt(2 * 5000))


def test_throughput_under_noise_is_the_mean_speed():
    """Work goes on at 1 / factor, whether that is above 1 or below: in the long run at exp(deviation^2 / 2)."""
    regime = {"name": "persistent-noise", "deviation": 0.5, "persistence": 0.0, "every": 0.3}
    cluster = Cluster(workers=15, compute={"name": "constant", "seconds": 0.01}, contention=[regime])
    schedule = record(Asynchronous(), cluster, seconds=60)
    assert schedule.counts()["updates"] / 15 / 6000 == pytest.approx(np.exp(0.125), rel=0.03)


def test_the_day_has_its_mean_its_peak_and_its_period():
    load = Diurnal(slowdown=3.0, period=24.0, peak=6.0, steps=240).start(0, "contention 0", np.zeros(2, int))
    day = factors(load, 0, 240, SECOND // 10)
    assert day.mean() == pytest.approx(2.0, abs=1e-9)
    assert abs(day.argmax() / 10 - 6.0) <= 0.1
    assert day.max() == pytest.approx(3.0, abs=1e-3)
    assert day.min() == pytest.approx(1.0, abs=1e-3)
    assert np.array_equal(day, factors(load, 1, 480, SECOND // 10)[240:])
    now, ends = 0, []
    while now < 48 * SECOND:
        _, until = load.slowdown(0, now)
        assert until > now
        ends.append(until)
        now = until
    assert ends == [(i + 1) * SECOND // 10 for i in range(480)]


def test_rare_delays_come_as_often_and_last_as_long_as_they_should():
    delays = RareDelays(probability=0.05, seconds={"name": "exponential", "scale": 2.0})
    load = delays.start(1, "contention 0", np.zeros(100, int))
    seconds = np.array([[load.delay(worker, step) for step in range(1000)] for worker in range(100)]) / 1e9
    late = seconds[seconds > 0]
    assert len(late) / seconds.size == pytest.approx(0.05, abs=4 * np.sqrt(0.05 / seconds.size))
    assert late.mean() == pytest.approx(2.0, rel=4 / np.sqrt(len(late)))
    again = delays.start(1, "contention 0", np.zeros(3, int))
    assert [again.delay(2, step) / 1e9 for step in (999, 7, 0)] == seconds[2, [999, 7, 0]].tolist(), "others change nothing"


def test_a_moving_job_is_where_it_should_be():
    """Nodes 0, 1, 2 for 6 s each, then nowhere for 4 s: a round takes 22 s."""
    load = MovingJob(slowdown=2.0, dwell=6.0, rest=4.0).start(0, "contention 0", np.array([0, 0, 1, 2]))
    for second in range(100):
        stay = second % 22 // 6
        expected = [2.0 if node == stay else 1.0 for node in (0, 0, 1, 2)]
        states = [load.slowdown(worker, second * SECOND) for worker in range(4)]
        assert [factor for factor, _ in states] == expected
        end = min((second % 22 // 6 + 1) * 6, 22) if stay < 3 else 22
        assert {until for _, until in states} == {(second - second % 22 + end) * SECOND}


def test_a_moving_job_in_random_order_visits_every_node_once_a_round():
    load = MovingJob(slowdown=2.0, dwell=1.0, order="random").start(4, "contention 0", np.arange(5))
    where = np.array([[load.slowdown(node, second * SECOND)[0] > 1 for node in range(5)] for second in range(50)])
    assert (where.sum(1) == 1).all()
    assert (where.reshape(10, 5, 5).sum(1) == 1).all()
    orders = where.reshape(10, 5, 5).argmax(2)
    assert len({tuple(order) for order in orders}) > 5
    assert np.array_equal([load.slowdown(0, 0)[0] > 1], where[0, :1]), "earlier rounds are as they were"


@pytest.mark.parametrize(
    ("regime", "message"),
    [
        ({"name": "persistent-noise", "deviation": 0.1, "persistence": 1.0}, "less than 1"),
        ({"name": "moving-job", "slowdown": 2.0, "dwell": 0}, "greater than 0"),
        ({"name": "moving-job", "slowdown": 2.0, "dwell": 1, "order": "sideways"}, "'numbers' or 'random'"),
        ({"name": "rare-delays", "probability": 0.1, "seconds": {"name": "constant", "seconds": 1e12}}, "gives durations"),
        ({"name": "rare-delays", "probability": 2, "seconds": {"name": "constant", "seconds": 1}}, "less than or equal to 1"),
        ({"name": "diurnal", "slowdown": 0.5}, "greater than or equal to 1"),
    ],
)
def test_impossible_regimes_are_refused(regime, message):
    with pytest.raises(FredError, match=message):
        make_run("asgd", cluster={"workers": 4, "nodes": 2, "contention": [regime]})


def test_endless_noise_is_told():
    noise = PersistentNoise(deviation=0.1, persistence=0.5, every=1e-9).start(0, "contention 0", np.zeros(1, int))
    with pytest.raises(FredError, match=r"more than 4,000,000 steps of noise .* longer `every`"):
        noise.stretch(0, SECOND)


@pytest.mark.slow
def test_thousands_of_workers_stay_quick():
    regimes = [
        {"name": "persistent-noise", "deviation": 0.1, "persistence": 0.7},
        {"name": "persistent-noise", "deviation": 0.1, "persistence": 0.95, "of": "node"},
        {"name": "moving-job", "slowdown": 2.0, "dwell": 6.0, "rest": 6.0},
        {"name": "rare-delays", "probability": 0.005, "seconds": {"name": "exponential", "scale": 0.5}},
    ]
    compute = {"name": "lognormal", "median": 1.0, "sigma": 0.1}
    cluster = Cluster(workers=2175, nodes=32, compute=compute, contention=regimes)
    began = time.process_time()
    record(Cutoff(rule="all"), cluster, gradients=50 * 2175)
    assert time.process_time() - began < 15


class Returns(Load):
    """Says what it was given."""

    def __init__(self, found: object):
        self.found = found

    def slowdown(self, worker, now):
        return self.found


@pytest.mark.parametrize("found", [(float("nan"), 10), (2.0, 0), (0.0, 10), 2.0, None, ("two", 10)])
def test_what_a_regime_of_ones_own_cannot_mean_is_said_with_its_line(found):
    with pytest.raises(
        FredError,
        match=r"`slowdown` of `Returns` returns .* at 0 ns \(.*test_regimes\.py, line \d+\); expected a factor above 0",
    ):
        Loads([Returns(found)]).finish(worker=0, step=0, begin=0, work=100)


def test_a_regime_of_ones_own_is_believed():
    assert Loads([Returns((2.0, 50))]).finish(worker=0, step=0, begin=0, work=20) == 40
