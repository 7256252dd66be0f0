"""Rounds that do not wait for all that was planned: what they are the same as, and NumPy's word on each."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fred.base.errors import FredError
from fred.outcomes.outcome import Outcome
from fred.prediction import closed_loop
from fred.prediction.backup import DynamicBackup
from fred.prediction.empirical import Empirical, OfTheLastRounds
from fred.running.execution import execute
from fred.schedule.schedule import Schedule, Verb
from fred.systems.dbw import DBW
from fred.systems.drop_compute import DropCompute, best_threshold
from tests.recompute import PlainSGD, by_plain, largest_relative_error
from tests.worlds import CLUSTERS, make_run, record, same

WORKERS = 5
UNEQUAL = {"workers": WORKERS, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.7}}
NETWORK = {"latency": {"name": "constant", "seconds": 0.02}, "bandwidth": 1e4}


def outcome(algorithm: Any, protocol: Any = None, cluster: Any = UNEQUAL, inline: bool = False, **options: Any) -> Outcome:
    algorithm = {"learning_rate": 0.1, **({"name": algorithm} if isinstance(algorithm, str) else algorithm)}
    options = {"stop": {"updates": 40}, **options}
    return execute("run", make_run(algorithm, protocol=protocol, cluster=cluster, **options), 3, inline)


@pytest.mark.slow
@pytest.mark.parametrize("network", [None, NETWORK])
class TestSame:
    """To the last bit, unless lengths of gradients are added up, too."""

    def test_dropcompute_of_one_gradient_that_drops_nothing_is_allreduce(self, network):
        cluster = UNEQUAL | {"network": network}
        drop = outcome("dropcompute", {"micro_batches": 1, "threshold": 1e6}, cluster)
        assert same(drop, outcome("allreduce-sgd", None, cluster))

    @pytest.mark.parametrize("seconds", [0.01, 0.1, 0.15])
    def test_dropcompute_of_one_gradient_is_a_cutoff_by_time(self, network, seconds):
        cluster = UNEQUAL | {"network": network}
        drop = outcome("dropcompute", {"micro_batches": 1, "threshold": seconds, "average": "done"}, cluster)
        cutoff = outcome("cutoff-sgd", {"name": "cutoff", "rule": {"name": "deadline", "seconds": seconds}}, cluster)
        assert same(drop, cutoff)
        assert drop.schedule.counts()["dropped"]

    def test_where_all_is_done_it_does_not_matter_what_is_divided_by(self, network):
        cluster = UNEQUAL | {"network": network}
        planned, done = (
            outcome("dropcompute", {"micro_batches": 3, "threshold": 1e6, "average": average}, cluster)
            for average in ("planned", "done")
        )
        assert same(planned, done)

    def test_dynamic_backup_workers_with_a_rule_that_does_not_ask_are_a_cutoff(self, network):
        cluster, rule = UNEQUAL | {"network": network}, {"name": "cutoff", "rule": {"name": "count", "workers": 3}}
        found, cutoff = outcome("dbw", rule, cluster), outcome("cutoff-sgd", rule, cluster)
        assert found.schedule.digest() == cutoff.schedule.digest()
        assert largest_relative_error(found.final, cutoff.final) < 1e-5, "sums have another order"

    def test_where_all_are_as_fast_dynamic_backup_workers_are_none(self, network):
        cluster = {"workers": 4, "compute": {"name": "constant", "seconds": 0.1}, "network": network}
        found, allreduce = outcome("dbw", None, cluster), outcome("allreduce-sgd", None, cluster)
        assert found.schedule.digest() == allreduce.schedule.digest()
        assert largest_relative_error(found.final, allreduce.final) < 1e-5


class TestRounds:
    """Acted out from each worker's durations alone."""

    @given(
        cluster=CLUSTERS,
        micro_batches=st.integers(1, 4),
        threshold=st.sampled_from([0.02, 0.1, 0.3, 1.0]),
        seed=st.integers(0, 9),
    )
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

    def test_a_round_without_any_gradient_waits_for_the_first(self):
        cluster = {"workers": 3, "speeds": [0.5, 1.0, 0.25], "compute": {"name": "constant", "seconds": 1.0}}
        schedule = outcome("dropcompute", {"micro_batches": 2, "threshold": 0.1}, cluster, stop={"updates": 3}).schedule
        adds, drops = schedule.rows(Verb.ADD), schedule.rows(Verb.DROP)
        assert schedule["worker"][adds].tolist() == [1, 1, 1]
        assert schedule["time_ns"][adds].tolist() == [10**9, 2 * 10**9, 3 * 10**9]
        assert schedule["worker"][drops].tolist() == [0, 2] * 3

    def test_each_worker_is_charged_with_one_message_a_round(self):
        found = outcome("dropcompute", {"micro_batches": 3, "threshold": 0.25}, UNEQUAL | {"network": NETWORK})
        schedule = found.schedule
        assert schedule.counts()["dropped"] > 10
        for _, adds, drops in rounds_of(schedule):
            rows = np.concatenate((adds, drops))
            sent = np.bincount(schedule["worker"][rows], schedule["messages"][rows] > 0, WORKERS)
            assert sent.tolist() == [1] * WORKERS
        shares = found.summary["workers_time"]
        assert sum(shares.values()) == pytest.approx(1)
        assert min(shares[kind] for kind in ("computing", "wasted", "network", "waiting")) > 0.01


class TestThreshold:
    @pytest.mark.parametrize("seed", range(5))
    def test_it_is_the_best_of_all_by_the_papers_formula(self, seed):
        """Algorithm 2, in seconds, gradient by gradient, on a grid that is finer than the times."""
        rng = np.random.default_rng(seed)
        times = np.cumsum(rng.integers(1, 30, (6, 4, 3)), axis=2)  # rounds, workers, micro-batches
        apart = rng.integers(0, 20, 6)

        def speedup(threshold: float) -> float:
            total = 0.0
            for own, communication in zip(times, apart, strict=True):
                share = np.mean([done <= threshold for worker in own for done in worker])
                full = max(worker[-1] for worker in own)
                total += share * (full + communication) / (min(threshold, full) + communication)
            return total / len(times)

        grid = np.arange(0.5, times.max() + 1, 0.5)
        best = best_threshold(times.reshape(6, 12), apart)
        assert speedup(best) == pytest.approx(max(map(speedup, grid)))
        assert all(speedup(each) < speedup(best) - 1e-12 for each in grid if each > best)

    def test_it_is_found_from_the_first_rounds_and_kept(self):
        found = outcome("dropcompute", {"micro_batches": 3, "measured": 7}, UNEQUAL | {"network": NETWORK})
        parts = list(rounds_of(found.schedule))
        assert not any(len(drops) for _, _, drops in parts[:7])
        times = np.array([found.schedule["end_ns"][adds] - began for began, adds, _ in parts[:7]])
        ends = found.schedule["time_ns"][found.schedule.rows(Verb.COMMIT)][:7]
        apart = ends - np.array([began for began, _, _ in parts[:7]]) - times.max(axis=1)
        given = best_threshold(times, apart)
        lasted = {found.schedule["time_ns"][drops].max() - began for began, _, drops in parts[7:] if len(drops)}
        assert lasted == {given}

    def test_nothing_is_dropped_where_all_are_alike(self):
        cluster = {"workers": 4, "compute": {"name": "constant", "seconds": 0.1}}
        assert not outcome("dropcompute", {"micro_batches": 3, "measured": 2}, cluster).schedule.counts()["dropped"]


@pytest.mark.parametrize(
    ("options", "said"),
    [({"threshold": 0.0}, "threshold"), ({"micro_batches": 0}, "micro_batches"), ({"measured": 0}, "measured")],
)
def test_what_cannot_be_is_refused(options, said):
    with pytest.raises(FredError, match=said):
        make_run("dropcompute", protocol=options)


def rounds_of(schedule: Schedule) -> Any:
    """Return the begin of each round, ns, and its rows ADD and DROP."""
    ends = schedule.rows(Verb.COMMIT)
    began = np.append(0, schedule["time_ns"][ends])
    verb = schedule["verb"]
    for first, last, start in zip(np.append(0, ends), ends, began[:-1], strict=False):
        rows = np.arange(first, last)
        yield start, rows[verb[rows] == Verb.ADD], rows[verb[rows] == Verb.DROP]


FOLLOWING = {"name": "dbw", "learning_rate": 0.125, "smoothness": 3.0}


class PlainDBW(PlainSGD):
    """Keeps the variance of rounds, and the squared length of what their means estimate."""

    def __init__(self, params: dict):
        super().__init__(params, 0.125)
        self.round: list[np.ndarray] = []
        self.variance = self.squared = np.inf

    def contribution(self, message: dict, staleness: int) -> dict:
        self.round.append(np.concatenate([each.ravel() for each in message.values()]))
        return message

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        super().update(grads, staleness)
        together, self.round = np.array(self.round), []
        if count > 1:
            self.variance = self.averaged(self.variance, together.var(axis=0, ddof=1).sum())
        self.squared = self.averaged(self.squared, (together.mean(axis=0) ** 2).sum() - self.variance / count)

    def averaged(self, old: float, new: float) -> float:
        return 0.8 * old + 0.2 * new if np.isfinite(old) else new

    def wanted(self, seconds: np.ndarray) -> int:
        """k by the formula in full, from the expected times of the first, second, ... gradient."""
        k, eta, smoothness = np.arange(1, len(seconds) + 1), 0.125, 3.0
        gain = (eta - smoothness * eta**2 / 2) * self.squared - smoothness * eta**2 * self.variance / (2 * k)
        return int(k[np.argmax(gain / seconds)]) if self.squared > 0 else len(seconds)


class TestDynamicBackup:
    def test_as_many_are_waited_for_as_gain_the_most_per_time(self):
        """Each round's k, by NumPy from the schedule; all are waited for where none of the last 20 rounds saw them."""
        found = outcome(FOLLOWING, cluster=UNEQUAL | {"workers": 8}, stop={"updates": 60})
        initial = {k: v.astype(float) for k, v in found.initial.items()}
        rounds = list(rounds_of(found.schedule))
        numbers, wanted = [len(adds) for _, adds, _ in rounds], list[int]()
        times = OfTheLastRounds(Empirical(), 8, 20)

        class Chosen(PlainDBW):
            def update(self, grads: dict, staleness: int, count: int = 0) -> None:
                super().update(grads, staleness, count)
                began, adds, drops = rounds[len(wanted)]
                seconds, finished = np.zeros(8), np.zeros(8, bool)
                seconds[found.schedule["worker"][adds]] = (found.schedule["end_ns"][adds] - began) / 1e9
                seconds[found.schedule["worker"][drops]] = (found.schedule["time_ns"][drops] - began) / 1e9
                finished[found.schedule["worker"][adds]] = True
                times.learn(seconds, finished)
                seen = 8 in numbers[max(0, len(wanted) - 19) : len(wanted) + 1]
                wanted.append(self.wanted(times.expected()) if seen else 8)

        (params,) = by_plain(found, [Chosen(initial)])
        assert largest_relative_error(found.final, params) < 1e-4
        assert largest_relative_error(found.final, initial) > 0.1
        assert numbers == [8, *wanted[:-1]]
        assert len(set(numbers)) > 3, "nothing was hard about it"

    def test_noise_that_is_told_counts_as_noise_that_is_given(self):
        rules = DynamicBackup(noise="measured"), DynamicBackup(noise=0.5)
        measured, given = (rule.start(np.zeros(4, np.int64)) for rule in rules)
        for times in ([10, 15, 20, 60], [11, 12, 30, 40]):
            measured.hear(0.5)
            seen = np.array(times) * 10**8
            assert measured.choose(seen) == given.choose(seen)
            for chooser in (measured, given):
                chooser.observe(seen, np.ones(4, bool))
        assert given.choose(seen) in (1, 2, 3)
        measured.hear(1e30)
        assert measured.choose(seen) == 4

    @pytest.mark.slow
    @pytest.mark.parametrize(("smoothness", "share"), [(None, 1.0), (2.0, 1 / 3), (0.5, 1 / 15), (9.0, None)])
    def test_it_finds_the_noise_that_there_is(self, smoothness, share):
        """Rounds of 1 to 5 gradients (3, 4, 0, ...), each off by normal numbers of variance 7 x 2^2."""
        server = DBW(learning_rate=0.25, smoothness=smoothness, decay=0.99)
        rng, truth = np.random.default_rng(0), np.array([3.0, 4.0, 0, 0, 0, 0, 0])
        state = server.init({"w": jnp.zeros(7)}, workers=5)
        for number in range(600):
            gradients = truth + 2 * rng.standard_normal((1 + number % 5, 7))
            messages = [server.contribute(state, {"w": jnp.array(each, jnp.float32)}, 0, 0) for each in gradients]
            mean = jax.tree.map(lambda *each: sum(each) / len(each), *messages)
            state = server.apply_round(state, mean, 0, len(messages))
        expected = 1e30 if share is None else share * 28 / 25
        assert float(server.statistic(state)) == pytest.approx(expected, rel=0.15)

    def test_an_algorithm_without_a_statistic_is_refused(self):
        with pytest.raises(FredError, match="statistic"):
            make_run("ssgd", protocol={"name": "cutoff", "rule": {"name": "backup", "noise": "measured"}})
        with pytest.raises(FredError, match="needs a `task`"):
            make_run("dbw", task=None)
        with pytest.raises(FredError, match="noise_growth"):
            make_run("dbw", protocol={"rule": {"name": "backup", "noise": "measured", "noise_growth": 1.0}})

    def test_where_there_are_only_times_it_cannot_work(self):
        with pytest.raises(ValueError, match="what gradients say"):
            closed_loop.run(DynamicBackup(noise="measured"), np.ones((30, 4)), np.zeros(4, np.int64))

    def test_it_may_be_one_of_several_rules(self):
        rule = {"name": "auto", "candidates": [{"name": "backup", "noise": "measured"}, {"name": "count", "workers": 2}]}
        found = outcome(FOLLOWING, {"name": "cutoff", "rule": rule})
        assert found.schedule.counts()["dropped"] > 0
        with pytest.raises(FredError, match="statistic"):
            make_run("ssgd", protocol={"name": "cutoff", "rule": rule})
