"""Groups that wait for their members, and WAGMA's special cases [Li et al. 2021, section 4]: other systems to the last bit."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fred import Topology
from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.outcomes.outcome import Outcome
from fred.outcomes.staleness import of_models
from fred.running.execution import execute
from fred.schedule.schedule import Schedule, Verb
from fred.systems.wagma_sgd import GroupAveraging
from tests.worlds import COMPUTE, make_run, record, same

RANDOM = {"name": "lognormal", "median": 0.1, "sigma": 0.7}
CLUSTER = {"workers": 8, "compute": RANDOM}
WAITS = {"name": "group-averaging", "group_waits": True, "period": None}


class Masks(Topology):
    """In iteration t workers are neighbours that differ in bits t k to t k + k - 1 only, counted around [Li et al., algorithm 1]."""

    size: int = 2

    def receivers(self, worker: int, iteration: int, workers: int) -> list[int]:
        bits, phases = self.size.bit_length() - 1, workers.bit_length() - 1
        masks = [1 << (iteration * bits + phase) % phases for phase in range(bits)]
        found = {0}
        for mask in masks:
            found |= {other ^ mask for other in found}
        return sorted(worker ^ each for each in found - {0})

    def period(self, workers: int) -> int:
        return workers.bit_length() - 1


def outcome(algorithm: str, **options: Any) -> Outcome:
    options = {"cluster": CLUSTER, "stop": {"seconds": 5.0}, **options}
    return execute("run", make_run({"name": algorithm, "learning_rate": 0.1}, **options), 3)


def syncs(schedule: Schedule) -> list[tuple[int, int]]:
    """Return the time and the worker of each average taken."""
    rows = schedule.rows(Verb.SYNC)
    return sorted(zip(schedule["time_ns"][rows].tolist(), schedule["worker"][rows].tolist(), strict=True))


def equal(one: Outcome, other: Outcome) -> bool:
    """Return True if two systems made the same models at the same times."""
    assert len(syncs(one.schedule)) > 30
    return syncs(one.schedule) == syncs(other.schedule) and one.params_digest == other.params_digest


class TestSpecialCases:
    @pytest.mark.parametrize("waits", [False, True])
    def test_groups_of_one_are_local_sgd(self, waits):
        alone = outcome("wagma-sgd", protocol={"group_size": 1, "period": 3, "group_waits": waits})
        assert equal(alone, outcome("local-sgd", protocol={"period": 3}))

    @pytest.mark.slow
    @pytest.mark.parametrize("size", [2, 4])
    @pytest.mark.parametrize("algorithm", ["d-psgd", "sgp"])
    def test_groups_that_wait_are_gossip_among_their_members(self, size, algorithm):
        waiting = outcome("wagma-sgd", protocol={**WAITS, "group_size": size})
        gossip = {"name": "gossip", "topology": Masks(size=size), "order": "update-first"}
        found = outcome(algorithm, protocol=gossip)
        assert syncs(waiting.schedule) == syncs(found.schedule)
        assert all(np.array_equal(waiting.final[name], found.final[name]) for name in waiting.final)

    def test_pairs_that_never_change_are_d_psgd_on_their_edges(self):
        edges = {"name": "edges", "edges": [[worker, worker + 1] for worker in range(0, 8, 2)]}
        pairs = outcome("wagma-sgd", protocol={**WAITS, "group_size": 2, "groups": "fixed"})
        assert equal(pairs, outcome("d-psgd", protocol={"name": "gossip", "topology": edges, "order": "update-first"}))

    def test_one_group_that_waits_is_allreduce_sgd(self):
        """Averaging models after each step is stepping with the averaged gradient, up to rounding."""
        network = {"latency": {"name": "constant", "seconds": 0.01}, "bandwidth": 1e5, "collective": "recursive-doubling"}
        cluster = {**CLUSTER, "network": network}
        group = outcome("wagma-sgd", protocol={**WAITS, "group_size": 8}, cluster=cluster)
        assert equal(group, outcome("local-sgd", protocol={"period": 1}, cluster=cluster))
        assert equal(group, outcome("wagma-sgd", protocol={"period": 1}, cluster=cluster))
        steps = {"gradients": 96}  # twelve of each
        group = outcome("wagma-sgd", protocol={**WAITS, "group_size": 8}, cluster=cluster, stop=steps)
        allreduce = outcome("allreduce-sgd", cluster=cluster, stop=steps)
        commits = allreduce.schedule["time_ns"][allreduce.schedule.rows(Verb.COMMIT)].tolist()
        assert [time for time, worker in syncs(group.schedule) if worker == 0] == commits[:11]
        assert all(np.allclose(group.final[name], allreduce.final[name], rtol=1e-6, atol=1e-6) for name in group.final)

    def test_where_all_are_on_time_there_is_nothing_to_wait_for(self):
        cluster = {"workers": 8, "compute": {"name": "constant", "seconds": 0.1}}
        waiting, avoiding = (
            outcome("wagma-sgd", cluster=cluster, protocol={"group_size": 4, "period": 5, "group_waits": waits})
            for waits in (True, False)
        )
        assert equal(waiting, avoiding)

    def test_without_a_period_all_never_average(self):
        schedule = record(GroupAveraging(group_size=2, period=None), Cluster(workers=8, compute=RANDOM), gradients=200)
        assert len(schedule.rows(Verb.MIX))
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
        lasts = {(worker, step): end - begin for worker, step, begin, end in zip(*columns, strict=True)}
        times, expected = np.zeros(8, np.int64), list[tuple[int, int]]()
        for step in range(8):  # that all workers have made
            arrived = times + [lasts[worker, step] for worker in range(8)]
            group = 8 if period and (step + 1) % period == 0 else size
            others = [[worker, *Masks(size=group).receivers(worker, step, 8)] for worker in range(8)]
            times = np.array([arrived[each].max() for each in others]) + (group.bit_length() - 1) * 20_000_000
            expected += zip(times.tolist(), range(8), strict=True)
        horizon = int(times.min())
        found = [each for each in syncs(schedule) if each[0] <= horizon]
        assert found == sorted(each for each in expected if each[0] <= horizon)
        assert len(found) >= 24

    def test_nobody_is_late_and_no_model_old(self):
        cluster = Cluster(workers=8, compute={"name": "exponential", "scale": 1.0}, network=self.NETWORK)
        waiting, avoiding = (record(GroupAveraging(group_waits=waits), cluster, 400) for waits in (True, False))
        assert not waiting["keep"][waiting.rows(Verb.SYNC)].any()
        assert avoiding["keep"][avoiding.rows(Verb.SYNC)].any()
        assert not of_models(waiting).any()
        assert of_models(avoiding).max() > 3

    def test_a_group_waits_for_its_own_members_only(self):
        """Worker 3 needs 2 s: its partners wait for it, first worker 2, then worker 1, and who waited makes others wait."""
        cluster = Cluster(workers=4, speeds=[1, 1, 1, 0.5], compute={"name": "constant", "seconds": 1.0})
        found = syncs(record(GroupAveraging(group_size=2, group_waits=True, period=None), cluster, seconds=6.5))
        assert [(time / 1e9, worker) for time, worker in found] == [
            *[(1, 0), (1, 1), (2, 2), (2, 3), (3, 0), (3, 2), (4, 1), (4, 3)],
            *[(5, 0), (5, 1), (6, 2), (6, 3)],
        ]

    def test_a_group_waits_for_a_member_that_is_away(self):
        away = {"name": "outage", "workers": [3], "begin": 0.5, "end": 4.0}
        cluster = Cluster(workers=4, compute={"name": "constant", "seconds": 1.0}, faults=[away])
        found = syncs(record(GroupAveraging(group_size=2, group_waits=True, period=None), cluster, seconds=6.5))
        assert [(time / 1e9, worker) for time, worker in found][:6] == [(1, 0), (1, 1), (5, 2), (5, 3), (6, 0), (6, 1)]

    @pytest.mark.parametrize("cluster", [{"compute": COMPUTE, "network": {"bandwidth": 1e5}}, {"compute": RANDOM}])
    def test_inline_is_as_replayed(self, cluster):
        run = make_run("wagma-sgd", protocol={**WAITS, "group_size": 4}, cluster={"workers": 8, **cluster})
        assert same(*(execute("run", run, 2, inline) for inline in (False, True)))

    @pytest.mark.parametrize("period", [0, -1, 2.5])
    def test_periods_that_are_none_are_refused(self, period):
        with pytest.raises(FredError, match="period"):
            make_run("wagma-sgd", protocol={"period": period})
