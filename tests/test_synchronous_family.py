"""Rounds that do not wait for all that was planned: what they are the same as, and NumPy's word on each."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fred.errors import FredError
from fred.outcomes.outcome import Outcome
from fred.protocols.drop_compute import DropCompute, best_threshold
from fred.running.execution import execute
from fred.schedule.schedule import Schedule, Verb
from tests.recompute import PlainSGD, by_plain, largest_relative_error
from tests.worlds import CLUSTERS, make_run, record, same

WORKERS = 5
UNEQUAL = {"workers": WORKERS, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.7}}
NETWORK = {"latency": {"name": "constant", "seconds": 0.02}, "bandwidth": 1e4}


def outcome(algorithm: Any, protocol: Any = None, cluster: Any = UNEQUAL, inline: bool = False, **options: Any) -> Outcome:
    algorithm = {"learning_rate": 0.1, **({"name": algorithm} if isinstance(algorithm, str) else algorithm)}
    options = {"stop": {"updates": 40}, **options}
    return execute("run", make_run(algorithm, protocol=protocol, cluster=cluster, **options), 3, inline)


@pytest.mark.parametrize("network", [None, NETWORK])
class TestSame:
    """To the last bit."""

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
            gave_up = np.bincount(schedule["worker"][drops], minlength=schedule.workers)
            assert ((numbers == micro_batches) | (gave_up == 1)).all() or (done > last).any()

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
        assert min(shares[kind] for kind in ("computing", "in_vain", "network", "waiting")) > 0.01


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


class PlainDropCompute(PlainSGD):
    """Rounds, divided by what was planned of them."""

    def __init__(self, params: dict, planned: int):
        super().__init__(params, 0.1)
        self.planned, self.numbers, self.sum = planned, list[int](), dict[str, Any]()

    def contribution(self, message: dict, staleness: int) -> dict:
        self.sum = {k: self.sum.get(k, 0.0) + g for k, g in message.items()}
        return message

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        self.numbers.append(count)
        total, self.sum = self.sum, {}
        super().update({k: g / (self.planned or count) for k, g in total.items()}, staleness)


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("average", ["planned", "done"])
def test_dropcompute_divides_by_what_was_planned_or_done(average, inline):
    options = {"micro_batches": 3, "threshold": 0.25, "average": average}
    found = outcome("dropcompute", options, UNEQUAL | {"network": NETWORK}, inline)
    initial = {k: v.astype(float) for k, v in found.initial.items()}
    server = PlainDropCompute(initial, 3 * WORKERS if average == "planned" else 0)
    (params,) = by_plain(found, [server])
    assert largest_relative_error(found.final, params) < 1e-4
    assert largest_relative_error(found.final, initial) > 0.1
    assert len(set(server.numbers)) > 3, "nothing was hard about it"


@pytest.mark.parametrize(
    ("options", "said"),
    [({"threshold": 0.0}, "threshold"), ({"micro_batches": 0}, "micro_batches"), ({"measured": 0}, "measured")],
)
def test_what_cannot_be_is_refused(options, said):
    with pytest.raises(FredError, match=said):
        make_run("dropcompute", protocol=options)


def rounds_of(schedule: Schedule) -> Any:
    """Of each round when it began, ns, and its rows ADD and DROP."""
    ends = schedule.rows(Verb.COMMIT)
    began = np.append(0, schedule["time_ns"][ends])
    verb = schedule["verb"]
    for first, last, start in zip(np.append(0, ends), ends, began[:-1], strict=False):
        rows = np.arange(first, last)
        yield start, rows[verb[rows] == Verb.ADD], rows[verb[rows] == Verb.DROP]
