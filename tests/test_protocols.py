"""Protocols: closed forms, bounds, conservation, and standstills that are reported."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fred import Cluster, FredError, Protocol
from fred.cluster.network import Network
from fred.components import registry
from fred.protocols.asynchronous import Asynchronous, Dispatcher, Shifting, Softmax
from fred.protocols.synchronous import Allreduce, Cutoff, Synchronous
from fred.schedule.schedule import NONE, Schedule, Verb
from fred.systems.ad_psgd import Pairwise
from fred.systems.birch import BatchSums
from fred.systems.decentralized import ChocoGossip
from fred.systems.eager_sgd import Eager
from tests.worlds import CLUSTERS, constant, fitting_protocol, make_run, record, rows_of

SECOND = {"name": "constant", "seconds": 1.0}
ELSEWHERE = {  # protocols whose rows do not stand where things happen: `test_federated.py`, `test_diloco_family.py`
    *("arrival-groups", "client-rounds"),  # local steps are rows when their sum arrives
    "local-servers",  # servers have steps, too
}


@pytest.mark.parametrize("name", sorted(registry.REGISTRY["protocol"].keys() - ELSEWHERE))
@settings(max_examples=3)
@given(cluster=CLUSTERS, seed=st.integers(0, 99))
def test_every_schedule_is_consistent(name, cluster, seed):
    protocol = fitting_protocol(name, cluster)
    schedule = record(protocol, cluster, gradients=80, seed=seed)  # a standstill would raise
    assert (np.diff(schedule["time_ns"]) >= 0).all(), "virtual time runs backwards"
    assert schedule.counts()["gradients"] >= 80
    if schedule.blocks == 1 and not isinstance(protocol, Eager):  # else a worker may go on while gradients are under way
        together = protocol.steps if isinstance(protocol, BatchSums) else getattr(getattr(protocol, "push_gate", None), "k", 1)
        assert schedule.counts()["in_flight"] <= cluster.size * together
    if name != "straggler-tolerant":  # which drops gradients after their replica has changed
        check_mailboxes(protocol, schedule)
    check_bytes_and_weights(protocol, cluster, schedule)
    assert record(protocol, cluster, gradients=80, seed=seed).digest() == schedule.digest()
    if cluster.compute.model_dump() != {"seconds": 0.1} and protocol.has_clock:
        assert record(protocol, cluster, gradients=80, seed=seed + 1).digest() != schedule.digest()


def check_mailboxes(protocol: Protocol, schedule: Schedule) -> None:
    """Raise AssertionError unless clocks count changes, and each mailbox is written once, before it is used."""
    clocks = [0] * (schedule.replicas * schedule.blocks)
    mailboxes: dict = {}  # number -> block -> the row of its PULL, or of the last of its MIXes
    for row in rows_of(schedule):
        cell = row.replica * schedule.blocks + row.block
        if row.verb == "PULL":
            assert row.timestamp == clocks[cell]
            assert row.mailbox not in mailboxes, "a mailbox is written once"
            mailboxes[row.mailbox] = {row.block: row}
        elif row.verb in ("PUSH", "ADD", "DROP"):
            assert row.staleness == clocks[cell] - row.timestamp >= 0
            assert row.begin_ns <= row.end_ns <= row.time_ns
            start = row.source if row.step == NONE else row.mailbox  # a pseudo-gradient is as old as what it starts from
            origin = mailboxes[start][row.block]
            assert (origin.worker, origin.timestamp) == (row.worker, row.timestamp)
            deadline_ns = row.end_ns if getattr(protocol, "overlap", False) else row.begin_ns
            assert origin.end_ns <= deadline_ns, "computed before it arrived"
            assert len(mailboxes[start]) == schedule.blocks, "computed at a part of the parameters"
        elif row.verb == "MIX":
            assert mailboxes[row.source][row.block].timestamp == row.timestamp
            assert mailboxes[row.source][row.block].end_ns <= row.time_ns
            mailboxes.setdefault(row.mailbox, {})[row.block] = row
        elif row.verb == "SYNC":
            assert row.mailbox in mailboxes
        if row.verb in ("PUSH", "COMMIT", "SYNC"):
            clocks[cell] += 1
    assert sorted(mailboxes) == list(range(len(mailboxes))), "mailboxes are numbered without gaps"


def check_bytes_and_weights(protocol: Protocol, cluster: Cluster, schedule: Schedule) -> None:
    """Raise AssertionError unless bytes are messages times their size, and the weights of a mix conserve the mean."""
    layout = protocol.layout(cluster)
    collective = not layout.on_servers and not isinstance(protocol, (Allreduce, Cutoff))
    rows = schedule.rows(Verb.PULL, Verb.PUSH, *((Verb.ADD, Verb.DROP) if layout.on_servers else ()))
    part = 1000 if collective else 1000 / cluster.servers  # every server gets an equal part of a model
    part = np.ceil(part) if layout.blocks > 1 else part
    assert np.allclose(schedule["bytes"][rows], schedule["messages"][rows] * part)
    assert not schedule["messages"][schedule.rows(Verb.COMMIT, Verb.MIX)].any()
    assert collective or not schedule["messages"][schedule.rows(Verb.SYNC)].any()
    if isinstance(protocol, (Allreduce, Cutoff)):  # every gradient takes part in an allreduce among all
        cost = (cluster.network or Network()).allreduce(np.bincount(cluster.node_of).tolist(), 1000)
        gradients = schedule.rows(Verb.ADD, Verb.DROP)
        sent = zip(schedule["bytes"][gradients], schedule["messages"][gradients], strict=True)
        assert {*sent} == {(cost.bytes, cost.messages)}
    if isinstance(protocol, (Pairwise, ChocoGossip)):
        return  # they add differences: see tests/test_peers.py
    mixes, syncs = schedule.rows(Verb.MIX), schedule.rows(Verb.SYNC)
    sums = np.bincount(schedule["mailbox"][mixes], schedule["weight"][mixes], minlength=schedule["mailbox"].max() + 1)
    complete = sums[np.intersect1d(schedule["mailbox"][mixes], schedule["mailbox"][syncs])]
    assert np.allclose(complete, 1), "here every worker has equally many neighbours"
    assert np.allclose(schedule["weight"][syncs] + schedule["keep"][syncs], 1)


def test_round_time_is_the_order_statistic():
    """The mean of the needed-th of n exponentials."""
    workers, scale = 10, 0.3
    cluster = Cluster(workers=workers, compute={"name": "exponential", "scale": scale})
    for late, backup in (("finish", 0), ("interrupt", 0), ("interrupt", 3), ("interrupt", 9)):
        quorum = workers - backup
        schedule = record(Synchronous(backup_workers=backup, late=late), cluster, gradients=2000 * quorum)
        rounds = np.diff(schedule["time_ns"][schedule.rows(Verb.COMMIT)]) / 1e9
        expected = scale * sum(1 / (workers - k) for k in range(quorum))
        deviation = scale * np.sqrt(sum(1 / (workers - k) ** 2 for k in range(quorum)))
        assert rounds.mean() == pytest.approx(expected, abs=4 * deviation / np.sqrt(len(rounds))), (late, backup)


def test_late_workers_finish_by_default_or_start_the_new_version_at_once():
    cluster = Cluster(workers=3, speeds=[1, 1, 0.4], compute=SECOND)
    schedule = record(Synchronous(backup_workers=1), cluster, seconds=10.5)
    drops = schedule.rows(Verb.DROP)
    assert (schedule["time_ns"][drops] / 1e9).tolist() == [2.5, 5.0, 7.5, 10.0]
    # At 5 s and 10 s the late gradient, scheduled earlier, comes before that second's commit: it sees the older clock.
    assert schedule["staleness"][drops].tolist() == [2, 2, 3, 2]
    assert schedule.counts() == {"updates": 10, "gradients": 20, "dropped": 4, "in_flight": 3}
    schedule = record(Synchronous(backup_workers=1, late="interrupt"), cluster, seconds=10.5)
    drops = schedule.rows(Verb.DROP)
    assert (schedule["end_ns"][drops] / 1e9).tolist() == list(range(1, 11))
    assert ((schedule["end_ns"] - schedule["begin_ns"])[drops] == 1_000_000_000).all(), "stopped after 1 s of 2.5"


def test_equal_constant_latencies_make_asynchronous_round_robin():
    schedule = record(Asynchronous(), Cluster(**constant(*[0.1] * 7)), gradients=700)
    pushes = schedule.rows(Verb.PUSH)
    assert schedule["worker"][pushes].tolist() == list(range(7)) * 100
    assert schedule["staleness"][pushes].tolist() == [*range(6), *[6] * 694]


def test_dispatcher_staleness_is_geometric():
    schedule = record(Dispatcher(), Cluster(workers=8), gradients=20_000)
    staleness = schedule["staleness"][schedule.rows(Verb.PUSH)][500:]
    assert staleness.mean() == pytest.approx(7, rel=0.02)
    expected = stats.geom(1 / 8, loc=-1).pmf(np.arange(30)) * len(staleness)
    assert np.abs(np.bincount(staleness, minlength=30)[:30] - expected).max() < 5 * np.sqrt(expected.max())
    assert (schedule["time_ns"] == 0).all(), "the dispatcher has no clock"


@pytest.mark.slow
def test_softmax_selects_in_proportion_to_exp_priority():
    priorities = (0.0, 1.0, 2.0)
    schedule = record(Dispatcher(selection=Softmax(priorities=priorities)), Cluster(workers=3), gradients=20_000)
    share = np.bincount(schedule["worker"][schedule.rows(Verb.PUSH)]) / 20_000
    np.testing.assert_allclose(share, np.exp(priorities) / np.exp(priorities).sum(), atol=0.01)


def test_shifting_priorities_change_once_a_worker_has_been_selected():
    balanced = record(Dispatcher(selection=Shifting(change=-1000.0)), Cluster(workers=5), gradients=100)
    blocks = balanced["worker"][balanced.rows(Verb.PUSH)].reshape(-1, 5)
    assert (np.sort(blocks, axis=1) == np.arange(5)).all(), "each worker comes once before any comes twice"
    assert len({tuple(block) for block in blocks}) > 5, "in random order"
    runaway = record(Dispatcher(selection=Shifting(change=1000.0)), Cluster(workers=5), gradients=100)
    assert len(set(runaway["worker"][runaway.rows(Verb.PUSH)].tolist())) == 1


def test_backup_workers_must_leave_somebody_to_wait_for():
    with pytest.raises(FredError, match=r"`backup_workers` \(4\) must be below the number of workers \(4\)"):
        make_run("ssgd", protocol={"backup_workers": 4})
    with pytest.raises(FredError, match="4 workers need as many `priorities`, not 2"):
        make_run("asgd", protocol={"name": "dispatcher", "selection": {"name": "softmax", "priorities": [1, 2]}})
