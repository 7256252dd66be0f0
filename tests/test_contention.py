"""Contention regimes against closed forms: shares of time, exact slowing of a computation under way, who is delayed."""

import numpy as np
import pytest
from scipy import stats

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.cluster.contention import FOREVER, MarkovSwitching, RandomDelays
from fred.protocols.asynchronous import Asynchronous
from fred.protocols.synchronous import Synchronous
from fred.running.execution import execute
from fred.schedule.schedule import Verb
from tests.worlds import make_run, record

SECOND = {"name": "constant", "seconds": 1.0}
SWITCHING = {"slowdown": 3.0, "fast_seconds": 4.0, "slow_seconds": 2.0}


def durations(cluster: Cluster, **limits) -> dict[int, np.ndarray]:
    """Seconds of each worker's computations, in order."""
    schedule = record(Asynchronous(), cluster, **limits)
    rows = schedule.rows(Verb.PUSH)
    seconds = (schedule["end_ns"] - schedule["begin_ns"])[rows] / 1e9
    return {worker: seconds[schedule["worker"][rows] == worker] for worker in range(cluster.size)}


def test_markov_switching_keeps_its_share_of_time_and_its_dwell_times():
    load = MarkovSwitching(**SWITCHING).start(5, "contention 0", np.zeros(200, int))
    slow = 0
    dwell: dict[float, list[float]] = {1.0: [], 3.0: []}
    for worker in range(200):
        slow += load.slowdown(worker, 0)[0] > 1
        now, until = 0, 0
        while until < 300e9:
            factor, until = load.slowdown(worker, now)
            if now > 0:
                dwell[factor].append((until - now) / 1e9)
            now = until
    assert slow / 200 == pytest.approx(1 / 3, abs=4 * np.sqrt(2 / 9 / 200)), "starts stationary"
    for factor, mean in ((1.0, 4.0), (3.0, 2.0)):
        sample = np.array(dwell[factor])
        assert sample.mean() == pytest.approx(mean, abs=4 * mean / np.sqrt(len(sample))), "dwell times are exponential"
        assert sample.std() == pytest.approx(mean, rel=0.1)


def test_throughput_under_switching_is_the_mean_speed():
    """Work goes on at 1 / slowdown: in the long run at 2/3 x 1 + 1/3 x 1/3 = 7/9 of full speed."""
    cluster = Cluster(
        workers=100, compute={"name": "constant", "seconds": 0.05}, contention=[{"name": "markov-switching", **SWITCHING}]
    )
    schedule = record(Asynchronous(), cluster, seconds=60)
    assert schedule.counts()["updates"] / 100 / 1200 == pytest.approx(7 / 9, rel=0.02)


@pytest.mark.parametrize(
    "regime",
    [
        {"name": "markov-switching", **SWITCHING},
        {"name": "persistent-noise", "deviation": 0.3, "persistence": 0.5},
        {"name": "rare-delays", "probability": 0.5, "seconds": SECOND},
        {"name": "diurnal", "slowdown": 2.0, "period": 10.0, "shape": "linear"},
    ],
)
def test_a_limited_regime_does_to_its_workers_what_it_does_to_all_and_nothing_to_others(regime):
    """Asynchronous workers do not wait for each other, so that each has the times that it has alone."""
    whole, some, none = (
        durations(Cluster(workers=4, compute=SECOND, contention=contention), seconds=40)
        for contention in ([regime], [{**regime, "only": [1, 2]}], [])
    )
    for worker in range(4):
        assert some[worker].tolist() == (whole if worker in (1, 2) else none)[worker].tolist()
    assert whole[0].tolist() != none[0].tolist()


def test_a_regime_limited_to_a_worker_that_is_not_there_is_refused():
    regime = {"name": "markov-switching", **SWITCHING, "only": [4]}
    with pytest.raises(ValueError, match="a regime acts on 4 workers or servers here, numbered from 0; `only` names 4"):
        Cluster(workers=4, compute=SECOND, contention=[regime])


@pytest.mark.parametrize(("of", "different"), [("worker", 8), ("node", 2), ("cluster", 1)])
def test_workers_of_a_node_slow_down_together(of, different):
    regime = {"name": "markov-switching", **SWITCHING, "of": of}
    own = durations(Cluster(workers=8, nodes=2, compute=SECOND, contention=[regime]), seconds=60)
    assert len({tuple(each) for each in own.values()}) == different
    assert all(np.array_equal(own[0], own[worker]) for worker in range(8 // different))


def test_a_job_slows_its_nodes_from_its_beginning_to_its_end():
    """From 2.5 s to 7 s at a third of the speed: the third second's work ends at 2.5 + 0.5 x 3 = 4 s, the next at 7 s."""
    job = {"name": "job", "nodes": [1], "slowdown": 3.0, "begin": 2.5, "end": 7.0}
    own = durations(Cluster(workers=4, nodes=2, compute=SECOND, contention=[job]), seconds=9.5)
    assert own[0].tolist() == own[1].tolist() == [1.0] * 9
    assert own[2].tolist() == own[3].tolist() == [1.0, 1.0, 2.0, 3.0, 1.0, 1.0]


def test_regimes_multiply_and_delays_add():
    jobs = [{"name": "job", "nodes": [0], "slowdown": factor} for factor in (2.0, 3.0)]
    delays = {"name": "random-delays", "workers": 1, "seconds": 0.5}
    (own,) = durations(Cluster(workers=1, compute=SECOND, contention=[*jobs, delays]), seconds=30).values()
    assert own.tolist() == [6.5] * 4


def test_so_many_workers_are_delayed_at_each_step_each_equally_often():
    cluster = Cluster(workers=8, compute=SECOND, contention=[{"name": "random-delays", "workers": 2, "seconds": 0.32}])
    schedule = record(Synchronous(), cluster, gradients=8 * 1000)
    rows = schedule.rows(Verb.ADD)
    late = (schedule["end_ns"] - schedule["begin_ns"])[rows] > 1e9
    steps = np.bincount(schedule["step"][rows], late)
    assert (steps == 2).all()
    assert np.bincount(schedule["worker"][rows], late) / 1000 == pytest.approx(np.full(8, 0.25), abs=4 * np.sqrt(3 / 16 / 1000))


def delayed(draw: str, workers: int, steps: int) -> np.ndarray:
    """Return whether each worker is delayed at each step: [steps, workers]."""
    regime = RandomDelays(workers=2, seconds=0.32, draw=draw)
    load = regime.start(7, "contention 0", np.zeros(workers, int))
    return np.array([[load.delay(worker, step) for worker in range(workers)] for step in range(steps)]) / 0.32e9


def test_independent_delays_hit_each_worker_with_the_same_probability_whoever_else_is_hit():
    hit = delayed("independent", 8, 4000)
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
    hit = delayed("published", workers, steps)
    error = 4 * np.sqrt(2 * 2 / steps)
    assert hit.sum(axis=1).mean() == pytest.approx(code.sum(axis=1).mean(), abs=error)
    assert hit.sum(axis=1).mean() == pytest.approx(workers * (1 - (1 - 1 / workers) ** 2), abs=error)
    assert (hit.sum(axis=1) == 0).mean() == pytest.approx((code.sum(axis=1) == 0).mean(), abs=0.04)
    assert hit[0].sum() in (1, 2), "at first all draw the same"


def test_clusters_that_slow_down_can_be_compared():
    regime = {"name": "job", "nodes": [0], "slowdown": 2.0}
    one, same, other = (Cluster(workers=4, contention=[{**regime, "begin": begin}]) for begin in (1.0, 1.0, 2.0))
    assert one == same != other


def test_no_contention_and_a_regime_that_does_nothing_are_the_same():
    cluster = {"workers": 3, "compute": {"name": "exponential", "scale": 0.2}}
    idle = {"name": "job", "nodes": [0], "slowdown": 1.0}
    plain, loaded = (record(Asynchronous(), Cluster(**cluster, contention=c), gradients=50) for c in ([], [idle]))
    assert plain.digest() == loaded.digest()
    assert FOREVER > 100 * 365 * 86400 * 10**9


@pytest.mark.parametrize(
    ("regime", "message"),
    [
        ({"name": "job", "nodes": [2], "slowdown": 2}, "there are 2 nodes, numbered from 0; `nodes` names 2"),
        ({"name": "job", "nodes": [0], "slowdown": 2, "begin": 3, "end": 1}, "must be after `begin`"),
        ({"name": "random-delays", "workers": 9, "seconds": 1}, "must not exceed the cluster's 4"),
        ({"name": "markov-switching", "slowdown": 0.5, "fast_seconds": 1, "slow_seconds": 1}, "greater than or equal to 1"),
    ],
)
def test_impossible_regimes_are_refused(regime, message):
    with pytest.raises(FredError, match=message):
        make_run("asgd", cluster={"workers": 4, "nodes": 2, "contention": [regime]})


def test_endless_computations_are_reported_and_endless_dwell_times_are_none():
    dead = make_run("asgd", task=None, cluster={"workers": 2, "contention": [{"name": "job", "nodes": [0], "slowdown": 1e12}]})
    with pytest.raises(FredError, match="virtual time passes"):
        execute("run", dead, 0)
    rarely = MarkovSwitching(slowdown=3.0, fast_seconds=1e9, slow_seconds=1e-3).start(0, "contention 0", np.zeros(50, int))
    assert all(rarely.slowdown(worker, 100 * 10**9)[0] == 1.0 for worker in range(50))


@pytest.mark.parametrize(
    ("seconds", "latency", "dwell", "message"),
    [
        (1.0, 0.0, 1e-9, "changes more than 100,000 times while worker 0 computes one gradient"),
        (1e-3, 10.0, 1e-6, "more than 4,000,000 changes in the first .* s; give longer `fast_seconds`"),
    ],
)
def test_regimes_that_change_all_the_time_are_told_within_seconds(seconds, latency, dwell, message):
    regime = {"name": "markov-switching", "slowdown": 2.0, "fast_seconds": dwell, "slow_seconds": dwell}
    idle = {"latency": {"name": "constant", "seconds": latency}}
    cluster = Cluster(workers=1, compute={"name": "constant", "seconds": seconds}, contention=[regime], network=idle)
    with pytest.raises(FredError, match=message):
        record(Asynchronous(), cluster, gradients=3)
