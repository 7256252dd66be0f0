"""Groups that wait for their members, and WAGMA's special cases [Li et al. 2021, section 4]: other systems to the last bit."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fred import Cluster, FredError, Schedule, Topology, Verb
from fred.outcomes.outcome import Outcome
from fred.systems.wagma_sgd import GroupAveraging
from tests import worlds
from tests.worlds import constant, make_run, record

RANDOM = {"name": "lognormal", "median": 0.1, "sigma": 0.7}
CLUSTER = {"workers": 8, "compute": RANDOM}
WAITS = {"name": "group-averaging", "group_waits": True, "period": None}
WAITING = GroupAveraging(group_size=2, group_waits=True, period=None)


class Masks(Topology):
    """In iteration t workers are neighbours that differ in bits t k to t k + k - 1 only, counted around [Li et al., algorithm 1]."""

    size: int = 2

    def receivers(self, worker: int, iteration: int, workers: int) -> list[int]:
        bits, phases = self.size.bit_length() - 1, workers.bit_length() - 1
        differences = {0}
        for phase in range(bits):
            differences |= {other ^ 1 << (iteration * bits + phase) % phases for other in differences}
        return sorted(worker ^ difference for difference in differences - {0})

    def period(self, workers: int) -> int:
        return workers.bit_length() - 1


def outcome(algorithm: str, protocol: Any, cluster: Any = CLUSTER, **options: Any) -> Outcome:
    return worlds.outcome(algorithm, protocol, cluster, **{"stop": {"seconds": 5.0}, **options})


def syncs(schedule: Schedule) -> list[tuple[int, int]]:
    rows = schedule.rows(Verb.SYNC)
    return sorted(zip(schedule["time_ns"][rows].tolist(), schedule["worker"][rows].tolist(), strict=True))


def check_equal(first: Outcome, *rest: Outcome) -> None:
    assert len(syncs(first.schedule)) > 30
    assert all(syncs(first.schedule) == syncs(other.schedule) and first.params_digest == other.params_digest for other in rest)


class TestSpecialCases:
    def test_groups_of_one_are_local_sgd(self):
        outcomes = (outcome("wagma-sgd", {"group_size": 1, "period": 3, "group_waits": waits}) for waits in (False, True))
        check_equal(outcome("local-sgd", {"period": 3}), *outcomes)

    @pytest.mark.slow
    @pytest.mark.parametrize("size", [2, 4])
    def test_groups_that_wait_are_gossip_among_their_members(self, size):
        waiting = outcome("wagma-sgd", {**WAITS, "group_size": size})
        gossip = {"name": "gossip", "topology": Masks(size=size), "order": "update-first"}
        for algorithm in ("d-psgd", "sgp"):
            other = outcome(algorithm, gossip)
            assert syncs(waiting.schedule) == syncs(other.schedule)
            assert all(np.array_equal(waiting.final[name], other.final[name]) for name in waiting.final), algorithm

    def test_pairs_that_never_change_are_d_psgd_on_their_edges(self):
        edges = {"name": "edges", "edges": [[worker, worker + 1] for worker in range(0, 8, 2)]}
        pairs = outcome("wagma-sgd", {**WAITS, "group_size": 2, "groups": "fixed"})
        check_equal(pairs, outcome("d-psgd", {"name": "gossip", "topology": edges, "order": "update-first"}))

    def test_one_group_that_waits_is_allreduce_sgd(self):
        """Averaging models after each step is stepping with the averaged gradient, up to rounding."""
        network = {"latency": {"name": "constant", "seconds": 0.01}, "bandwidth": 1e5, "collective": "recursive-doubling"}
        options: dict[str, Any] = {"cluster": {**CLUSTER, "network": network}, "stop": {"gradients": 96}}  # twelve of each
        group = outcome("wagma-sgd", {**WAITS, "group_size": 8}, **options)
        check_equal(group, *(outcome(name, {"period": 1}, **options) for name in ("local-sgd", "wagma-sgd")))
        allreduce = outcome("allreduce-sgd", None, **options)
        commits = allreduce.schedule["time_ns"][allreduce.schedule.rows(Verb.COMMIT)].tolist()
        assert [time for time, worker in syncs(group.schedule) if worker == 0] == commits[:11]
        assert all(np.allclose(group.final[name], allreduce.final[name], rtol=1e-6, atol=1e-6) for name in group.final)

    def test_without_a_period_all_never_average(self):
        schedule = record(GroupAveraging(group_size=2, period=None), Cluster(workers=8, compute=RANDOM), gradients=200)
        assert set(schedule["weight"][schedule.rows(Verb.MIX)].tolist()) == {0.5}


class TestGroupsThatWait:
    NETWORK = {"latency": {"name": "constant", "seconds": 0.01}, "bandwidth": 1e5, "message_bytes": 1000}  # 0.02 s a phase

    @settings(max_examples=20)
    @given(size=st.sampled_from([2, 4, 8]), seed=st.integers(0, 99), period=st.sampled_from([None, 3]))
    def test_an_average_takes_place_when_the_last_member_has_come(self, size, seed, period):
        """T(t + 1) of a worker is the latest arrival in its group, and log2 S phases later."""
        cluster = Cluster(workers=8, compute=RANDOM, network={**self.NETWORK, "collective": "recursive-doubling"})
        schedule = record(GroupAveraging(group_size=size, group_waits=True, period=period), cluster, 96, seed=seed)
        pushes = schedule.rows(Verb.PUSH)
        columns = (schedule[name][pushes].tolist() for name in ("worker", "step", "begin_ns", "end_ns"))
        durations = {(worker, step): end - begin for worker, step, begin, end in zip(*columns, strict=True)}
        times, expected = np.zeros(8, np.int64), list[tuple[int, int]]()
        for step in range(8):  # that all workers have made
            arrived = times + [durations[worker, step] for worker in range(8)]
            group = 8 if period and (step + 1) % period == 0 else size
            members = [[worker, *Masks(size=group).receivers(worker, step, 8)] for worker in range(8)]
            times = np.array([arrived[workers].max() for workers in members]) + (group.bit_length() - 1) * 20_000_000
            expected += zip(times.tolist(), range(8), strict=True)
        averages = [average for average in syncs(schedule) if average[0] <= times.min()]
        assert averages == sorted(average for average in expected if average[0] <= times.min())
        assert len(averages) >= 24

    def test_a_group_waits_for_an_offline_member(self):
        """Its partners wait for it, first worker 2, then worker 1, which makes others wait."""
        fault = {"name": "outage", "workers": [3], "begin": 0.5, "end": 4.0}
        averages = syncs(record(WAITING, Cluster(**constant(1, 1, 1, 1, faults=[fault])), seconds=6.5))
        assert [(time / 1e9, worker) for time, worker in averages][:6] == [(1, 0), (1, 1), (5, 2), (5, 3), (6, 0), (6, 1)]

    def test_a_period_below_one_or_not_whole_is_refused(self):
        for period in (0, -1, 2.5):
            with pytest.raises(FredError, match="period"):
                make_run("wagma-sgd", protocol={"period": period})
