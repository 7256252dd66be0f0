"""Rounds that do not wait for everything: DropCompute, dynamic backup workers, MindFlayer and ATA."""

import itertools
import math
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fred import Cluster, Schedule, Verb
from fred.prediction import closed_loop
from fred.prediction.predictive import Empirical, WindowMeans
from fred.prediction.simple_rules import DynamicBackup
from fred.systems.drop_compute import DropCompute, best_threshold
from fred.systems.ssgd import DBW
from tests.recompute import PlainSGD, largest_relative_error, recompute_by
from tests.worlds import CLUSTERS, NETWORK, UNEQUAL, outcome, record

LINKED = UNEQUAL | {"workers": 5, "network": NETWORK | {"message_bytes": 200}}


def rounds_of(schedule: Schedule) -> Any:
    """Yield the begin of each round, ns, and its rows ADD and DROP."""
    ends = np.append(0, schedule.rows(Verb.COMMIT))
    for first, last in itertools.pairwise(ends):
        rows, start = np.arange(first, last), schedule["time_ns"][first] if first else 0
        yield start, rows[schedule["verb"][rows] == Verb.ADD], rows[schedule["verb"][rows] == Verb.DROP]


class TestRounds:
    @given(CLUSTERS, st.integers(1, 4), st.sampled_from([0.02, 0.1, 0.3, 1.0]), st.integers(0, 9))
    def test_all_that_is_done_in_time_is_used_and_nothing_else(self, cluster, micro_batches, threshold, seed):
        protocol = DropCompute(micro_batches=micro_batches, threshold=threshold)
        schedule = record(protocol, cluster, gradients=12 * cluster.size, seed=seed)
        last = round(threshold * 1e9)
        for began, adds, drops in rounds_of(schedule):
            done, late = schedule["end_ns"][adds] - began, schedule["time_ns"][drops] - began
            assert (schedule["begin_ns"][adds] >= began).all()
            assert (done <= last).all() or len(done) == 1
            assert len(np.unique(schedule["worker"][drops])) == len(drops)
            if len(drops):
                assert set(late.tolist()) == {last if done.max() <= last else done.max()}
            numbers = np.bincount(schedule["worker"][adds], minlength=schedule.workers)
            aborted = np.bincount(schedule["worker"][drops], minlength=schedule.workers)
            assert ((numbers == micro_batches) | (aborted == 1)).all() or (done > last).any()

    def test_each_worker_is_charged_with_one_message_a_round(self):
        run = outcome("dropcompute", {"micro_batches": 3, "threshold": 0.25}, LINKED, stop={"updates": 40}, task=None)
        schedule = run.schedule
        assert schedule.counts()["dropped"] > 10
        for _, adds, drops in rounds_of(schedule):
            rows = np.concatenate((adds, drops))
            assert np.bincount(schedule["worker"][rows], schedule["messages"][rows] > 0, 5).tolist() == [1] * 5
        shares = run.summary["workers_time"]
        assert sum(shares.values()) == pytest.approx(1)
        assert min(shares[kind] for kind in ("computing", "wasted", "network", "waiting")) > 0.01


class TestThreshold:
    def test_it_is_the_best_of_all_by_the_papers_formula(self):
        """Algorithm 2, in seconds, gradient by gradient, on a grid that is finer than the times."""
        for seed in range(5):
            rng = np.random.default_rng(seed)
            times = np.cumsum(rng.integers(1, 30, (6, 4, 3)), axis=2)  # rounds, workers, micro-batches
            overheads = rng.integers(0, 20, 6)
            full = times[:, :, -1].max(axis=1)
            grid = np.arange(0.5, times.max() + 1, 0.5)

            def speedup(threshold: float, times=times, full=full, overheads=overheads) -> float:
                share = (times <= threshold).mean(axis=(1, 2))
                return float(np.mean(share * (full + overheads) / (np.minimum(threshold, full) + overheads)))

            best = best_threshold(times.reshape(6, 12), overheads)
            assert speedup(best) == pytest.approx(max(map(speedup, grid))), seed
            assert all(speedup(other) < speedup(best) - 1e-12 for other in grid if other > best), seed

    def test_it_is_measured_in_the_first_rounds_and_then_constant(self):
        options = {"micro_batches": 3, "measured": 7}
        schedule = outcome("dropcompute", options, LINKED, stop={"updates": 40}, task=None).schedule
        rounds = list(rounds_of(schedule))
        assert not any(len(drops) for _, _, drops in rounds[:7])
        begins = np.array([began for began, _, _ in rounds[:7]])
        times = np.array([schedule["end_ns"][adds] for _, adds, _ in rounds[:7]]) - begins[:, None]
        overheads = schedule["time_ns"][schedule.rows(Verb.COMMIT)][:7] - begins - times.max(axis=1)
        lengths = {schedule["time_ns"][drops].max() - began for began, _, drops in rounds[7:] if len(drops)}
        assert lengths == {best_threshold(times, overheads)}

    def test_nothing_is_dropped_where_all_are_alike(self):
        assert best_threshold(np.array([[1, 2, 3, 1, 2, 3]]), np.array([0])) == 3
        cluster = {"workers": 4, "compute": {"name": "constant", "seconds": 0.1}}
        run = outcome("dropcompute", {"micro_batches": 3, "measured": 2}, cluster, stop={"updates": 9}, task=None)
        assert not run.schedule.counts()["dropped"]


FOLLOWING = {"name": "dbw", "smoothness": 3.0}


class PlainDBW(PlainSGD):
    """The variance within rounds, and the squared length of what their means estimate; each round's best number of gradients."""

    def __init__(self, params: dict, schedule: Schedule):
        super().__init__(params, 0.125)
        self.round: list[np.ndarray] = []
        self.variance = self.squared = np.inf
        self.schedule, self.rounds = schedule, list(rounds_of(schedule))
        self.numbers, self.best = [len(adds) for _, adds, _ in self.rounds], list[int]()
        self.times = WindowMeans(Empirical(), 8, 20)

    def contribution(self, message: dict, staleness: int) -> dict:
        self.round.append(np.concatenate([array.ravel() for array in message.values()]))
        return message

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        super().update(grads, staleness, count)
        grads_of_round, self.round = np.array(self.round), []
        if count > 1:
            self.variance = self.averaged(self.variance, grads_of_round.var(axis=0, ddof=1).sum())
        self.squared = self.averaged(self.squared, (grads_of_round.mean(axis=0) ** 2).sum() - self.variance / count)
        self.learn_times()
        recent = self.numbers[max(0, len(self.best) - 19) : len(self.best) + 1]
        self.best.append(self.best_number(self.times.expected()) if 8 in recent else 8)

    def averaged(self, old: float, new: float) -> float:
        return 0.8 * old + 0.2 * new if np.isfinite(old) else new

    def learn_times(self) -> None:
        began, adds, drops = self.rounds[len(self.best)]
        seconds, arrived, workers = np.zeros(8), np.zeros(8, bool), self.schedule["worker"]
        seconds[workers[adds]] = (self.schedule["end_ns"][adds] - began) / 1e9
        seconds[workers[drops]] = (self.schedule["time_ns"][drops] - began) / 1e9
        arrived[workers[adds]] = True
        self.times.learn(seconds, arrived)

    def best_number(self, seconds: np.ndarray) -> int:
        """Return k by the formula in full, from the expected times of the first, second, ... gradient."""
        k, eta, smoothness = np.arange(1, len(seconds) + 1), 0.125, 3.0
        gain = (eta - smoothness * eta**2 / 2) * self.squared - smoothness * eta**2 * self.variance / (2 * k)
        return int(k[np.argmax(gain / seconds)]) if self.squared > 0 else len(seconds)


class TestDynamicBackup:
    def test_rounds_wait_for_the_number_of_gradients_with_the_most_gain_per_second(self):
        """NumPy recomputes it from the schedule; a round waits for all workers if none of the last 20 rounds did."""
        run = outcome(FOLLOWING, cluster=UNEQUAL | {"workers": 8}, stop={"updates": 60})
        initial = {k: v.astype(float) for k, v in run.initial.items()}
        reference = PlainDBW(initial, run.schedule)
        (params,) = recompute_by(run, [reference])
        assert largest_relative_error(run.final, params) < 1e-4
        assert largest_relative_error(run.final, initial) > 0.1 and reference.numbers == [8, *reference.best[:-1]]
        assert len(set(reference.numbers)) > 3, "nothing was hard about it"

    def test_measured_noise_counts_as_given_noise(self):
        rules = DynamicBackup(noise="measured"), DynamicBackup(noise=0.5)
        measured, fixed = (rule.start(np.zeros(4, np.int64)) for rule in rules)
        for times in ([10, 15, 20, 60], [11, 12, 30, 40]):
            measured.hear(0.5)
            round_ns = np.array(times) * 10**8
            assert measured.choose(round_ns) == fixed.choose(round_ns)
            for chooser in (measured, fixed):
                chooser.observe(round_ns, np.ones(4, bool))
        assert fixed.choose(round_ns) in (1, 2, 3)
        measured.hear(1e30)
        assert measured.choose(round_ns) == 4

    @pytest.mark.slow
    @pytest.mark.parametrize(("smoothness", "share"), [(None, 1.0), (2.0, 1 / 3), (0.5, 1 / 15), (9.0, None)])
    def test_it_finds_the_noise_that_there_is(self, smoothness, share):
        """Rounds of 1 to 5 gradients (3, 4, 0, ...), each off by normal numbers of variance 7 x 2^2."""
        server = DBW(learning_rate=0.25, smoothness=smoothness, decay=0.99)
        rng, truth = np.random.default_rng(0), np.array([3.0, 4.0, 0, 0, 0, 0, 0])
        state = server.init({"w": jnp.zeros(7)}, workers=5)
        for number in range(600):
            gradients = truth + 2 * rng.standard_normal((1 + number % 5, 7))
            messages = [server.contribute(state, {"w": jnp.array(gradient, jnp.float32)}, 0, 0) for gradient in gradients]
            mean = jax.tree.map(lambda *arrays: sum(arrays) / len(arrays), *messages)
            state = server.apply_round(state, mean, 0, len(messages))
        expected = 1e30 if share is None else share * 28 / 25
        assert float(server.statistic(state)) == pytest.approx(expected, rel=0.15)

    def test_measured_noise_is_refused_where_there_are_only_times(self):
        with pytest.raises(ValueError, match="what gradients say"):
            closed_loop.run(DynamicBackup(noise="measured"), np.ones((30, 4)), np.zeros(4, np.int64))

    def test_it_may_be_one_of_several_rules(self):
        rule = {"name": "auto", "candidates": [{"name": "backup", "noise": "measured"}, {"name": "count", "workers": 2}]}
        run = outcome(FOLLOWING, {"name": "cutoff", "rule": rule})
        assert run.schedule.counts()["dropped"] > 0


THREE = {"workers": 3, "speeds": [1.0, 0.6, 0.3], "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.7}}


def rounds(schedule: Schedule) -> list[list[Any]]:
    """Return the rows ADD and DROP of each round, of which some may be empty."""
    rows = list(schedule.frame().itertuples())
    ends = [0, *(place for place, row in enumerate(rows) if row.verb == "COMMIT")]
    return [[row for row in rows[a:b] if row.verb in ("ADD", "DROP")] for a, b in itertools.pairwise(ends)]


def record_run(cluster: Any, protocol: dict[str, Any], seed: int = 0, updates: int = 40) -> Schedule:
    cluster = cluster.model_dump() if isinstance(cluster, Cluster) else cluster
    return outcome("asgd", protocol, cluster, seed, stop={"updates": updates}, task=None).schedule


class TestMindFlayer:
    @given(cluster=CLUSTERS, trials=st.integers(1, 4), limit=st.sampled_from([1.0, 2.5]), seed=st.integers(0, 9))
    def test_each_worker_makes_its_trials_and_no_gradient_that_took_longer_is_used(self, cluster, trials, limit, seed):
        schedule = record_run(cluster, {"name": "time-limited", "trials": trials, "limit": limit}, seed)
        assert schedule["staleness"][schedule.rows(Verb.ADD)].max(initial=0) == 0
        for rows in rounds(schedule):
            assert Counter(row.worker for row in rows) == dict.fromkeys(range(schedule.workers), trials)
            for row in rows:
                end = row.end_ns if row.verb == "ADD" else row.time_ns
                assert end - row.begin_ns <= round(limit * 1e9) and (
                    row.verb == "ADD" or end - row.begin_ns == round(limit * 1e9)
                )

    def test_sums_are_divided_by_the_mean_number_of_gradients_in_time(self):
        schedule = record_run(THREE, {"name": "time-limited", "trials": [1, 2, 3], "limit": [0.1, 0.1, 0.4]}, updates=2000)
        options = zip((0.1, 0.1, 0.4), THREE["speeds"], (1, 2, 3), strict=True)  # type: ignore[call-overload]
        expected = sum(trials * stats.lognorm.cdf(limit * speed, 0.7, scale=0.1) for limit, speed, trials in options)
        np.testing.assert_allclose(schedule["weight"][schedule.rows(Verb.COMMIT)], 1 / expected, rtol=1e-3)
        assert len(schedule.rows(Verb.ADD)) / 2000 == pytest.approx(expected, rel=0.02)

    def test_a_round_without_gradients_changes_no_parameters(self):
        cluster = {"workers": 1, "compute": {"name": "bimodal", "fast": 0.1, "slow": 1e6, "slow_fraction": 0.7}}
        run = outcome("mindflayer", {"limit": 0.1}, cluster, stop={"updates": 30}, evaluate={"every_updates": 1})
        empty = [not any(row.verb == "ADD" for row in rows) for rows in rounds(run.schedule)]
        assert (np.diff(run.metrics["loss"]) == 0).tolist() == empty and 10 < sum(empty) < 30

    def test_the_limit_is_the_median_by_default(self):
        cluster = {"workers": 2, "speeds": [1.0, 0.5], "compute": {"name": "exponential", "scale": 0.1}}
        schedule = record_run(cluster, {"name": "time-limited"})
        drops = schedule.frame().query("verb == 'DROP'")
        seconds = (drops["time_ns"] - drops["begin_ns"]) * drops["worker"].map({0: 1.0, 1: 0.5}) / 1e9
        np.testing.assert_allclose(seconds, 0.1 * math.log(2), rtol=1e-6)
        assert set(drops["worker"]) == {0, 1}
        np.testing.assert_allclose(schedule["weight"][schedule.rows(Verb.COMMIT)], 1.0)  # 1 / (0.5 + 0.5)


class TestATA:
    @given(cluster=CLUSTERS, gradients=st.integers(1, 9), seed=st.integers(0, 9))
    def test_rounds_have_that_number_of_gradients_and_none_is_wasted(self, cluster, gradients, seed):
        schedule = record_run(cluster, {"name": "bandit", "gradients": gradients, "width": 0.2}, seed)
        assert not len(schedule.rows(Verb.DROP)) and schedule["staleness"][schedule.rows(Verb.ADD)].max() == 0
        assert {len(rows) for rows in rounds(schedule)} == {gradients}

    @pytest.mark.parametrize("scale", [None, 0.2])
    def test_no_other_shares_would_be_ready_earlier_if_bounds_were_times(self, scale):
        """Bounds from the times in the schedule; of all ways to share four gradients among three none is better."""
        learning = {"name": "bandit", "gradients": 4, "width": 0.05, "scale": scale}
        times, different = [list[float]() for _ in range(3)], set()
        ways = [way for way in itertools.product(range(5), repeat=3) if sum(way) == 4]
        for number, rows in enumerate(rounds(record_run(THREE, learning, updates=80)), 1):
            q = math.log(2 * number**2)
            bounds = [0.0] * 3
            for worker, history in enumerate(times):
                if history:
                    width = 0.05 * (scale or 2 * float(np.mean(history))) * (math.sqrt(q / len(history)) + q / len(history))
                    bounds[worker] = max(0.0, float(np.mean(history)) - width)
            shares = [sum(row.worker == worker for row in rows) for worker in range(3)]
            assert max(np.multiply(bounds, shares)) == pytest.approx(min(max(np.multiply(bounds, way)) for way in ways))
            different.add(tuple(shares))
            for row in rows:
                times[row.worker].append((row.end_ns - row.begin_ns) / 1e9)
        assert len(different) > 2
