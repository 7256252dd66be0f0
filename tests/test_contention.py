"""Contention regimes against closed forms: shares of time, noise, days, exact slowing of a computation under way, delays."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fred import Cluster, FredError, Load, Verb
from fred.cluster.contention import FOREVER, Loads, MarkovSwitching, RandomDelays
from fred.cluster.regimes import Diurnal, MovingJob, PersistentNoise, RareDelays
from fred.protocols.asynchronous import Asynchronous
from fred.protocols.synchronous import Cutoff, Synchronous
from fred.running.execution import execute
from tests.worlds import make_run, record

NS = 10**9
SECOND = {"name": "constant", "seconds": 1.0}
SWITCHING = {"slowdown": 3.0, "fast_seconds": 4.0, "slow_seconds": 2.0}
NOISE = {"deviation": 0.2, "persistence": 0.8, "every": 0.5}


def start_load(regime: Any, workers: int, seed: int = 0, node_of: Any = None) -> Load:
    return regime.start(seed, "contention 0", np.zeros(workers, int) if node_of is None else np.asarray(node_of))


def durations(contention: list[Any], seconds: float, workers: int = 4, **options: Any) -> list[list[float]]:
    cluster = Cluster(workers=workers, compute=SECOND, contention=contention, **options)
    schedule = record(Asynchronous(), cluster, seconds=seconds)
    rows = schedule.rows(Verb.PUSH)
    times = (schedule["end_ns"] - schedule["begin_ns"])[rows] / 1e9
    return [times[schedule["worker"][rows] == worker].tolist() for worker in range(workers)]


def test_markov_switching_keeps_its_share_of_time_and_its_dwell_times():
    load, slow = start_load(MarkovSwitching(**SWITCHING), 200, seed=5), 0
    dwell: dict[float, list[float]] = {1.0: [], 3.0: []}
    for worker in range(200):
        factor, now = load.slowdown(worker, 0)
        slow += factor > 1
        while now < 300e9:
            factor, until = load.slowdown(worker, now)
            dwell[factor].append((until - now) / 1e9)
            now = until
    assert slow / 200 == pytest.approx(1 / 3, abs=4 * np.sqrt(2 / 9 / 200)), "starts stationary"
    for factor, mean in ((1.0, 4.0), (3.0, 2.0)):
        sample = np.array(dwell[factor])
        assert sample.mean() == pytest.approx(mean, abs=4 * mean / np.sqrt(len(sample))), "dwell times are exponential"
        assert sample.std() == pytest.approx(mean, rel=0.1)


def test_a_limited_regime_does_to_its_workers_what_it_does_to_all_and_nothing_to_others():
    """Asynchronous workers do not wait for each other, so that each has the times that it has alone."""
    for regime in (
        {"name": "markov-switching", **SWITCHING},
        {"name": "persistent-noise", "deviation": 0.3, "persistence": 0.5},
        {"name": "rare-delays", "probability": 0.5, "seconds": SECOND},
        {"name": "diurnal", "slowdown": 2.0, "period": 10.0, "shape": "linear"},
    ):
        everywhere, limited, none = (durations(contention, 40) for contention in ([regime], [{**regime, "only": [1, 2]}], []))
        assert limited == [none[0], *everywhere[1:3], none[3]]
        assert everywhere[0] != none[0] == [1.0] * 39


@pytest.mark.parametrize(("of", "different"), [("worker", 8), ("node", 2), ("cluster", 1)])
def test_workers_of_a_node_slow_down_together(of, different):
    times = durations([{"name": "markov-switching", **SWITCHING, "of": of}], 60, workers=8, nodes=2)
    assert len({tuple(row) for row in times}) == different
    assert all(times[0] == times[worker] for worker in range(8 // different))


def test_a_job_slows_its_nodes_from_its_beginning_to_its_end():
    """The node has a third of its speed from 2.5 s to 7 s: the third second's work ends at 2.5 + 0.5 x 3 = 4 s, the next at 7 s."""
    job = {"name": "job", "nodes": [1], "slowdown": 3.0, "begin": 2.5, "end": 7.0}
    times = durations([job], 9.5, nodes=2)
    assert times[0] == times[1] == [1.0] * 9
    assert times[2] == times[3] == [1.0, 1.0, 2.0, 3.0, 1.0, 1.0]
    assert durations([job | {"slowdown": 1.0}], 9.5, nodes=2) == durations([], 9.5), "one that does nothing is none"


def test_regimes_multiply_and_delays_add():
    jobs = [{"name": "job", "nodes": [0], "slowdown": factor} for factor in (2.0, 3.0)]
    assert durations([*jobs, {"name": "random-delays", "workers": 1, "seconds": 0.5}], 30, workers=1) == [[6.5] * 4]


def test_a_number_of_workers_is_delayed_at_each_step_each_equally_often():
    cluster = Cluster(workers=8, compute=SECOND, contention=[{"name": "random-delays", "workers": 2, "seconds": 0.32}])
    schedule = record(Synchronous(), cluster, gradients=8 * 1000)
    rows = schedule.rows(Verb.ADD)
    late = (schedule["end_ns"] - schedule["begin_ns"])[rows] > 1e9
    assert (np.bincount(schedule["step"][rows], late) == 2).all()
    assert np.bincount(schedule["worker"][rows], late) / 1000 == pytest.approx(np.full(8, 0.25), abs=4 * np.sqrt(3 / 16 / 1000))


def draw_delays(draw: str, workers: int, steps: int) -> np.ndarray:
    load = start_load(RandomDelays(workers=2, seconds=0.32, draw=draw), workers, seed=7)
    return np.array([[load.delay(worker, step) for worker in range(workers)] for step in range(steps)]) / 0.32e9


def test_independent_delays_hit_each_worker_with_the_same_probability_whoever_else_is_hit():
    hit = draw_delays("independent", 8, 4000)
    assert set(np.unique(hit)) == {0.0, 1.0}
    share = np.bincount(hit.sum(axis=1).astype(int), minlength=9) / 4000
    assert share == pytest.approx(stats.binom(8, 2 / 8).pmf(np.arange(9)), abs=4 * np.sqrt(0.25 / 4000))
    assert hit.mean(axis=0) == pytest.approx(np.full(8, 0.25), abs=4 * np.sqrt(0.1875 / 4000))


def test_published_delays_are_those_of_the_papers_code():
    """`rank == randint(P) or rank == randint(P)` with the same seed on every rank, acted out."""
    steps, workers = 3000, 16
    ranks = [np.random.default_rng(3) for _ in range(workers)]
    code = np.array(
        [[r == rng.integers(workers) or r == rng.integers(workers) for r, rng in enumerate(ranks)] for _ in range(steps)]
    )
    hit, error = draw_delays("published", workers, steps), 4 * np.sqrt(2 * 2 / steps)
    assert hit.sum(axis=1).mean() == pytest.approx(code.sum(axis=1).mean(), abs=error)
    assert hit.sum(axis=1).mean() == pytest.approx(workers * (1 - (1 - 1 / workers) ** 2), abs=error)
    assert (hit.sum(axis=1) == 0).mean() == pytest.approx((code.sum(axis=1) == 0).mean(), abs=0.04)
    assert hit[0].sum() in (1, 2), "at first all draw the same"


def test_persistent_noise_is_stationary_with_its_deviation_and_autocorrelation():
    load = start_load(PersistentNoise(**NOISE), 400, seed=3)
    logs = np.log([[load.stretch(worker, i * NS // 2) for i in range(500)] for worker in range(400)])
    effective = 400 * 500 * (1 - 0.8) / (1 + 0.8)
    assert logs.mean() == pytest.approx(0, abs=4 * 0.2 / np.sqrt(effective))
    assert logs.std() == pytest.approx(0.2, rel=4 / np.sqrt(effective))
    assert logs[:, 0].std() == pytest.approx(0.2, rel=4 / np.sqrt(2 * 400)), "starts stationary"
    for lag in (1, 2, 5):
        assert (logs[:, lag:] * logs[:, :-lag]).mean() / 0.04 == pytest.approx(0.8**lag, abs=0.02)
    assert np.abs((logs[0] * logs[1]).mean()) / 0.04 < 0.5, "workers are independent"


def test_noise_holds_for_a_step_and_can_be_looked_up_in_any_order():
    forward, backward = (start_load(PersistentNoise(**NOISE, of="node"), 6, 3, np.repeat([0, 1], 3)) for _ in range(2))
    last, first = (backward.stretch(5, now) for now in (300 * NS, 0))
    assert [forward.stretch(5, now) for now in (0, 300 * NS)] == [first, last]
    assert forward.stretch(3, 0) == forward.stretch(5, NS // 2 - 1) == first
    assert first not in (forward.stretch(3, NS // 2), forward.stretch(0, 0))


def test_a_computation_keeps_the_noise_that_it_begins_with():
    regime = {"name": "persistent-noise", "deviation": 0.5, "persistence": 0.0, "every": 0.01}
    schedule = record(Cutoff(rule="all"), Cluster(workers=50, compute=SECOND, contention=[regime]), gradients=50 * 100)
    seconds = (schedule["end_ns"] - schedule["begin_ns"])[schedule.rows(Verb.ADD)] / 1e9
    assert np.log(seconds).std() == pytest.approx(0.5, rel=4 / np.sqrt(2 * 5000))


def test_the_day_has_its_mean_its_peak_and_its_period():
    load = start_load(Diurnal(slowdown=3.0, period=24.0, peak=6.0, steps=240), 2)
    day, *repeated = np.array([load.slowdown(i // 480, i % 480 * NS // 10 + NS // 30)[0] for i in range(960)]).reshape(4, 240)
    assert day.mean() == pytest.approx(2.0, abs=1e-9)
    assert abs(day.argmax() / 10 - 6.0) <= 0.1
    assert (day.max(), day.min()) == (pytest.approx(3.0, abs=1e-3), pytest.approx(1.0, abs=1e-3))
    assert all(np.array_equal(day, other) for other in repeated)
    now, ends = 0, []
    while now < 48 * NS:
        _, now = load.slowdown(0, now)
        ends.append(now)
    assert ends == [(i + 1) * NS // 10 for i in range(480)]


def test_rare_delays_come_as_often_and_last_as_long_as_they_should():
    delays = RareDelays(probability=0.05, seconds={"name": "exponential", "scale": 2.0})
    load, fresh = start_load(delays, 100, seed=1), start_load(delays, 3, seed=1)
    seconds = np.array([[load.delay(worker, step) for step in range(1000)] for worker in range(100)]) / 1e9
    late = seconds[seconds > 0]
    assert len(late) / seconds.size == pytest.approx(0.05, abs=4 * np.sqrt(0.05 / seconds.size))
    assert late.mean() == pytest.approx(2.0, rel=4 / np.sqrt(len(late)))
    assert [fresh.delay(2, step) / 1e9 for step in (999, 7, 0)] == seconds[2, [999, 7, 0]].tolist(), "others change nothing"


def test_a_moving_job_is_where_it_should_be():
    """Nodes 0, 1, 2 for 6 s each, then nowhere for 4 s: a round takes 22 s."""
    load = start_load(MovingJob(slowdown=2.0, dwell=6.0, rest=4.0), 4, node_of=[0, 0, 1, 2])
    for second in range(100):
        stay, states = second % 22 // 6, [load.slowdown(worker, second * NS) for worker in range(4)]
        assert [factor for factor, _ in states] == [2.0 if node == stay else 1.0 for node in (0, 0, 1, 2)]
        end = min((second % 22 // 6 + 1) * 6, 22) if stay < 3 else 22
        assert {until for _, until in states} == {(second - second % 22 + end) * NS}


def test_a_moving_job_in_random_order_visits_every_node_once_a_round():
    load = start_load(MovingJob(slowdown=2.0, dwell=1.0, order="random"), 5, seed=4, node_of=np.arange(5))
    where = np.array([[load.slowdown(node, second * NS)[0] > 1 for node in range(5)] for second in range(50)])
    assert (where.sum(1) == 1).all()
    assert (where.reshape(10, 5, 5).sum(1) == 1).all()
    assert len({tuple(order) for order in where.reshape(10, 5, 5).argmax(2)}) > 5
    assert (load.slowdown(0, 0)[0] > 1) == where[0, 0], "earlier rounds are as they were"


def test_impossible_regimes_are_refused():
    for regime, message in (
        ({"name": "job", "nodes": [2], "slowdown": 2}, "there are 2 nodes, numbered from 0; `nodes` names 2"),
        ({"name": "job", "nodes": [0], "slowdown": 2, "begin": 3, "end": 1}, "must be after `begin`"),
        ({"name": "random-delays", "workers": 9, "seconds": 1}, "must not exceed the cluster's 4"),
        ({"name": "markov-switching", **SWITCHING, "slowdown": 0.5}, "greater than or equal to 1"),
        ({"name": "markov-switching", **SWITCHING, "only": [4]}, "acts on 4 workers .*, numbered from 0; `only` names 4"),
        ({"name": "persistent-noise", "deviation": 0.1, "persistence": 1.0}, "less than 1"),
        ({"name": "moving-job", "slowdown": 2.0, "dwell": 1, "order": "sideways"}, "'numbers' or 'random'"),
        ({"name": "rare-delays", "probability": 0.1, "seconds": {"name": "constant", "seconds": 1e12}}, "gives durations"),
    ):
        with pytest.raises(FredError, match=message):
            make_run("asgd", cluster={"workers": 4, "nodes": 2, "contention": [regime]})


def test_endless_computations_are_reported_and_endless_dwell_times_are_none():
    dead = make_run("asgd", task=None, cluster={"workers": 2, "contention": [{"name": "job", "nodes": [0], "slowdown": 1e12}]})
    with pytest.raises(FredError, match="virtual time passes"):
        execute("run", dead, 0)
    rarely = start_load(MarkovSwitching(slowdown=3.0, fast_seconds=1e9, slow_seconds=1e-3), 50)
    assert all(rarely.slowdown(worker, 100 * NS)[0] == 1.0 for worker in range(50))
    assert FOREVER > 100 * 365 * 86400 * NS


@pytest.mark.slow
def test_regimes_that_change_all_the_time_are_refused_within_seconds():
    for seconds, latency, dwell, message in (
        (1.0, 0.0, 1e-9, "changes more than 100,000 times while worker 0 computes one gradient"),
        (1e-3, 10.0, 1e-6, "more than 4,000,000 changes in the first .* s; give longer `fast_seconds`"),
    ):
        regime = {"name": "markov-switching", "slowdown": 2.0, "fast_seconds": dwell, "slow_seconds": dwell}
        idle = {"latency": {"name": "constant", "seconds": latency}}
        cluster = Cluster(workers=1, compute={"name": "constant", "seconds": seconds}, contention=[regime], network=idle)
        with pytest.raises(FredError, match=message):
            record(Asynchronous(), cluster, gradients=3)
    with pytest.raises(FredError, match=r"more than 4,000,000 steps of noise .* longer `every`"):
        start_load(PersistentNoise(deviation=0.1, persistence=0.5, every=1e-9), 1).stretch(0, NS)


@dataclass
class Returns(Load):
    answer: object

    def slowdown(self, worker, now):
        return self.answer


def test_a_users_regime_is_believed_unless_its_answer_means_nothing():
    assert Loads([Returns((2.0, 50))]).finish(worker=0, step=0, begin=0, work=20) == 40
    message = r"`slowdown` of `Returns` returns .* at 0 ns \(.*test_contention\.py, line \d+\); expected a factor above 0"
    for answer in ((float("nan"), 10), (2.0, 0), (0.0, 10), 2.0, None, ("two", 10)):
        with pytest.raises(FredError, match=message):
            Loads([Returns(answer)]).finish(worker=0, step=0, begin=0, work=100)
