"""Systems without a server: topologies, closed forms of times, conserved sums, and the delays of gradients and models."""

import itertools
import math
from collections import Counter
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fred import Cluster, FredError, Schedule, Verb, batch_indices
from fred.cluster.faults import Faults
from fred.cluster.network import Network
from fred.protocols.gossip import Bipartite, Complete, Edges, Exponential, Gossip, Hypercube, Ring, Star, Topology, weights_of
from fred.protocols.local_steps import LocalSteps
from fred.protocols.synchronous import Allreduce
from fred.schedule import staleness
from fred.systems.ad_psgd import Pairwise
from fred.systems.eager_sgd import Eager
from fred.timing.loop import Loop, Wait
from fred.timing.queued_links import QueuedLinks
from tests.recompute import gradient, measure
from tests.worlds import CLUSTERS, COMPUTE, make_run, outcome, record, rows_of, stale_gradients

SECOND = {"name": "constant", "seconds": 1.0}
NETWORK = {"latency": {"name": "constant", "seconds": 0.02}, "bandwidth": 1e5}  # a model of 1000 bytes: 0.01 s


def times(schedule: Schedule, verb: Verb, worker: int | None = None) -> list[float]:
    """Return the times of rows with this verb (and worker), s."""
    rows = schedule.rows(verb)
    rows = rows if worker is None else rows[schedule["worker"][rows] == worker]
    return (schedule["time_ns"][rows] / 1e9).tolist()


def averages_of(schedule: Schedule) -> dict[tuple[int, int], list[tuple[int, int, float]]]:
    """Return worker, clock and weight of each model in each average, by the averaging worker and its replica's clock."""
    read: dict[int, tuple[int, int]] = {}
    averages: dict[int, list[tuple[int, int, float]]] = {}
    for row in schedule:
        if row.verb == Verb.PULL:
            read[row.mailbox] = row.replica, row.timestamp
        elif row.verb == Verb.MIX:
            averages.setdefault(row.mailbox, []).append((*read[row.source], row.weight))
    syncs = (row for row in schedule if row.verb == Verb.SYNC and row.mailbox in averages)
    return {(row.replica, row.timestamp): averages[row.mailbox] for row in syncs}


class TestTopology:
    def linked(self, topology: Topology, workers: int) -> list[list[int]]:
        """Return, for each worker, all that ever send to it or receive from it."""
        links: list[set[int]] = [set() for _ in range(workers)]
        for iteration, worker in itertools.product(range(topology.period(workers)), range(workers)):
            for receiver in topology.receivers(worker, iteration, workers):
                links[worker].add(receiver)
                links[receiver].add(worker)
        return [sorted(neighbours) for neighbours in links]

    def test_nobody_sends_to_itself_and_graphs_repeat_after_their_period(self):
        topologies = Ring(), Complete(), Star(), Exponential(), Exponential(neighbours=2), Hypercube()
        for topology, workers in itertools.product(topologies, (1, 2, 5, 8)):
            period = topology.period(workers)
            for worker in range(workers):
                sent = [sorted(topology.receivers(worker, iteration, workers)) for iteration in range(2 * period)]
                assert sent[:period] == sent[period:], (topology, workers)
                assert all(set(receivers) <= set(range(workers)) - {worker} for receivers in sent), (topology, workers)

    def test_graphs_that_can_be_written_down(self):
        assert self.linked(Exponential(), 8)[0] == [1, 2, 4, 6, 7], "it sends to 1, 2, 4; 7, 6, 4 send to it"
        assert [Exponential().receivers(0, iteration, 5) for iteration in range(4)] == [[1], [2], [4], [1]]
        assert self.linked(Hypercube(), 8)[5] == [1, 4, 7]
        assert self.linked(Hypercube(), 6)[2] == [0, 3], "there is no 6"
        assert self.linked(Edges(edges=[[0, 1], [2, 1], [1, 2]]), 4) == [[1], [0, 2], [1], []]
        ring = Edges(edges=[[worker, (worker + 1) % 6] for worker in range(6)])
        assert all({*ring.receivers(worker, 0, 6)} == {*Ring().receivers(worker, 0, 6)} for worker in range(6))

    def test_metropolis_weights_of_a_path_are_those_of_the_larger_degree(self):
        path = [[1], [0, 2], [1]]
        assert [[weights.get(sender, 0.0) for sender in range(3)] for weights in weights_of(path, "metropolis")] == [
            pytest.approx(row) for row in ([2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 3, 2 / 3])
        ]

    def test_impossible_edges_are_refused(self):
        for edges, message in (([[0, 4]], "names worker 4; there are 4"), ([[2, 2]], "joins worker 2 with itself")):
            with pytest.raises(FredError, match=message):
                make_run("d-psgd", protocol={"name": "gossip", "topology": {"name": "edges", "edges": edges}})


def test_a_period_of_local_sgd_takes_as_long_as_its_slowest_worker_and_an_allreduce():
    cluster = Cluster(workers=4, speeds=[1, 1, 0.5, 1], compute=SECOND, network=NETWORK)
    allreduce = 6 * 0.02 + 1.5 * 0.01
    for period, start_after in ((1, 0), (3, 0), (4, 6)):
        schedule = record(LocalSteps(period=period, start_after=start_after), cluster, gradients=4 * 30)
        expected = np.cumsum([2.0 * steps + allreduce for steps in [1] * start_after + [period] * 30])
        averages = times(schedule, Verb.SYNC, 2)
        assert len(averages) >= 7 and averages == pytest.approx(expected[: len(averages)])
        assert set(schedule["bytes"][schedule.rows(Verb.SYNC)]) == {1500}


class TestEagerSGD:
    def test_with_nobody_late_it_is_allreduce_sgd_to_the_last_bit(self):
        equal = Cluster(workers=5, compute=SECOND, network=NETWORK)
        for start_by in ("solo", "majority", "half"):
            assert record(Eager(start_by=start_by), equal, 100).digest() == record(Allreduce(), equal, 100).digest()
        cluster = {"workers": 4, "compute": COMPUTE, "network": NETWORK}
        waiting, allreduce = outcome("eager-sgd", {"period": 1}, cluster), outcome("allreduce-sgd", None, cluster)
        assert waiting.params_digest == allreduce.params_digest
        assert waiting.metrics[["loss", "error"]].equals(allreduce.metrics[["loss", "error"]])
        assert waiting.schedule.end_ns == allreduce.schedule.end_ns

    def test_the_first_to_arrive_does_not_wait_and_late_gradients_are_part_of_the_next_sum(self):
        """Worker 2 needs 2.5 s: its first gradient is part of the third update, the one after next of the fifth."""
        cluster = Cluster(workers=3, speeds=[1, 1, 0.4], compute=SECOND)
        schedule = record(Eager(start_by="solo", period=None), cluster, seconds=5.5)
        assert times(schedule, Verb.COMMIT) == [1, 2, 3, 4, 5]
        late = [row for row in schedule if (row.verb, row.worker) == (Verb.ADD, 2)]
        assert [(row.time_ns / 1e9, row.step, row.timestamp, row.staleness) for row in late] == [(3, 0, 0, 2), (5, 1, 2, 2)]
        assert set(schedule["weight"][schedule.rows(Verb.COMMIT)]) == {1 / 3}, "who gives nothing counts"

    def test_half_have_arrived_when_that_is_what_starts_it(self):
        """Workers need 1 to 5 s, so the third of five makes it half; the fourth is there at 4 and 8 s, the fifth at 5 s."""
        cluster = Cluster(workers=5, speeds=[1, 1 / 2, 1 / 3, 1 / 4, 1 / 5], compute=SECOND)
        schedule = record(Eager(start_by="half", period=None), cluster, seconds=10)
        assert times(schedule, Verb.COMMIT) == [3, 6, 9]
        counts = Counter(schedule["time_ns"][schedule.rows(Verb.ADD)].tolist())
        assert counts == {3 * 10**9: 3, 6 * 10**9: 5, 9 * 10**9: 4}

    def test_about_half_have_arrived_when_a_worker_drawn_at_random_does(self):
        cluster = Cluster(workers=15, compute={"name": "uniform", "low": 1.0, "high": 1.9})
        schedule = record(Eager(period=None), cluster, gradients=3000)
        commits = schedule.rows(Verb.COMMIT)
        on_time = np.bincount(np.searchsorted(commits, schedule.rows(Verb.ADD)[np.array(stale_gradients(schedule)) == 0]))
        assert on_time[:-1].mean() == pytest.approx(8, abs=0.6)
        assert record(Eager(start_by="solo"), cluster, gradients=3000).end_ns < schedule.end_ns

    @settings(max_examples=30)
    @given(CLUSTERS, st.integers(0, 99), st.sampled_from(["solo", "majority", "half"]), st.integers(1, 5))
    def test_every_gradient_is_given_once_and_nobody_is_further_behind_than_the_period(self, cluster, seed, start_by, period):
        schedule = record(Eager(start_by=start_by, period=period), cluster, gradients=60, seed=seed)
        adds, commits = schedule.rows(Verb.ADD), schedule.rows(Verb.COMMIT)
        for worker in range(cluster.size):
            steps = schedule["step"][adds][schedule["worker"][adds] == worker]
            assert steps.tolist() == list(range(len(steps)))
        assert max(stale_gradients(schedule)) < period
        assert (schedule["weight"][commits] == 1 / cluster.size).all()
        everybody = commits[period - 1 :: period]
        assert (np.searchsorted(adds, everybody) == cluster.size * period * (1 + np.arange(len(everybody)))).all()


class OneWay(Topology):
    """Every worker sends to the next one only."""

    def receivers(self, worker: int, iteration: int, workers: int) -> tuple[int, ...]:
        return ((worker + 1) % workers,)


def walk_messages(cluster: Cluster, schedule: Schedule, exchanges: int, seed: int) -> list[float]:
    """Return the times of workers' averages, s, if each part is a separate message, and each worker waits for its part."""
    computed = {(row.worker, row.step): row.end_ns for row in schedule if row.verb == Verb.PUSH}
    env, faults, moments = Loop(), Faults(cluster.fault_processes(seed)), list[float]()
    network: Any = cluster.network
    links = QueuedLinks(env, cluster, seed)
    come = [[env.event() for _ in range(1000)] for _ in range(cluster.size)]

    def send(worker: int, number: int) -> Generator[Wait, Any, None]:
        yield from links.send_between_workers(worker, (worker + 1) % cluster.size, 1000 // exchanges)
        come[(worker + 1) % cluster.size][number].succeed()

    def work(worker: int) -> Generator[Wait, Any, None]:
        for step in range(len(computed)):
            if (worker, step) not in computed:
                return
            yield env.after(computed[worker, step] - env._now)
            for number in range(step * exchanges, (step + 1) * exchanges):
                env.process(send(worker, number))
                one_node = cluster.node_of[worker] == cluster.node_of[(worker + 1) % cluster.size]
                bandwidth = network.within.bandwidth if one_node else network.bandwidth
                left = links.collective_time([worker], env._now, round(1000 / exchanges / bandwidth * 1e9)) if bandwidth else 0
                yield env.after(left) & come[worker][number]
                yield env.after(faults.next_available("worker", worker, env._now) - env._now)
            moments.append(env._now / 1e9)

    for worker in range(cluster.size):
        env.process(work(worker))
    env.run(until=6_000_000_000)
    return moments


class TestExchanges:
    @settings(max_examples=30)
    @given(
        cluster=CLUSTERS,
        topology=st.sampled_from([Ring(), Complete(), Star(), Exponential(neighbours=2)]),
        exchanges=st.integers(2, 5),
        order=st.sampled_from(["update-first", "mix-first", "compute-first"]),
        seed=st.integers(0, 9),
    )
    def test_times_are_those_of_a_walk_from_exchange_to_exchange(self, cluster, topology, exchanges, order, seed):
        schedule = record(Gossip(topology=topology, exchanges=exchanges, order=order), cluster, gradients=60, seed=seed)
        network, node_of = cluster.network or Network(), cluster.node_of
        assume(not network.contention)
        part = round(1000 / exchanges / network.bandwidth * 1e9, 3) if network.bandwidth else 0.0
        inside = network.within or network  # here with unlimited bandwidth, where given
        inner = part if inside is network else 0.0
        computed: Any = {(row.worker, row.step): (row.begin_ns, row.end_ns) for row in schedule if row.verb == Verb.PUSH}
        synced = {(w, k): t for w in range(cluster.size) for k, t in enumerate(times(schedule, Verb.SYNC, w))}
        workers = range(cluster.size)
        for iteration in range(4):
            now = [computed[worker, iteration][order != "mix-first"] for worker in workers]
            for _ in range(exchanges):
                after = list(now)
                for worker in workers:
                    left = now[worker]
                    for other in topology.receivers(worker, iteration, cluster.size):
                        same_node = node_of[worker] == node_of[other]
                        left += inner if same_node else part
                        leaves = now[worker] if same_node and inside is not network else left
                        latency = round((inside if same_node else network).latency.mean * 1e9)
                        after[other] = max(after[other], leaves + latency)
                    after[worker] = max(after[worker], left)
                now = after
            for worker in workers:
                end = max(now[worker], computed[worker, iteration][1])
                assert synced.get((worker, iteration), end / 1e9) == pytest.approx(end / 1e9, abs=1e-6)

    @pytest.mark.slow
    @settings(max_examples=25)
    @given(
        switching=st.booleans(),
        faults=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 40), st.integers(1, 30)), max_size=3),
        seed=st.integers(0, 9),
    )
    def test_on_slow_links_times_are_those_of_single_messages(self, switching, faults, seed):
        """Parts go round one way, so that none queues: where links are slow now and then, bandwidth is unlimited."""
        slow = {"name": "markov-switching", "slowdown": 4.0, "fast_seconds": 0.3, "slow_seconds": 0.2}
        slow = slow if switching else {"name": "job", "nodes": [0, 1], "slowdown": 3.0}
        inside = {"latency": {"name": "constant", "seconds": 0.01}, "bandwidth": None if switching else 1e5}
        bandwidth = {"bandwidth": None if switching else 2e4}
        network: dict[str, Any] = {"latency": {"name": "constant", "seconds": 0.04}, "within": inside, **bandwidth}
        network["contention"] = [{"regime": slow}]
        outages = [
            {"name": "outage", "workers": [w], "begin": begin / 8, "end": (begin + long) / 8} for w, begin, long in faults
        ]
        cluster = Cluster(workers=5, nodes=2, compute=COMPUTE, network=network, faults=outages)
        schedule = record(Gossip(topology=OneWay(), exchanges=4), cluster, seconds=6.0, seed=seed)
        expected = walk_messages(cluster, schedule, exchanges=4, seed=seed)
        moments = times(schedule, Verb.SYNC)
        assert sorted(expected[: len(moments)]) == pytest.approx(sorted(moments)) and moments

    def test_where_single_messages_matter_they_are_refused(self):
        site = {"sharing": "fair", "links": {"site": 1e6}, "routes": [{"between": [[0], [1]], "through": ["site"]}]}
        delays = {"regime": {"name": "random-delays", "seconds": 1.0, "workers": 1}}
        for cluster, message in (
            ({"network": {"upload": 1e6}}, "leave out the network's `upload` and `download`"),
            ({"network": {"node_bandwidth": 1e6}}, "leave out the network's `node_bandwidth` .a node's messages queue there."),
            ({"network": {"contention": [delays]}}, "single"),
            ({"network": site}, "links"),
            ({"faults": [{"name": "lost-messages", "share": 0.1}]}, "leave out `lost-messages`"),
        ):
            with pytest.raises(FredError, match=message):
                make_run("d-psgd", protocol={"exchanges": 3}, cluster={"workers": 4, **cluster})

    def test_a_delay_travels_so_many_hops_in_an_iteration(self):
        """A ring of 9, 1 s a step, where worker 0's first step takes 1.5 s: a worker is late once the delay has reached it."""
        job = {"name": "job", "nodes": [0], "slowdown": 1.5, "end": 1.2}
        cluster = Cluster(workers=9, nodes=9, compute=SECOND, contention=[job])
        for exchanges in (1, 2, 3):
            schedule = record(Gossip(exchanges=exchanges), cluster, seconds=6.0)
            for worker in range(9):
                ends = np.array(times(schedule, Verb.SYNC, worker))
                late = ends - np.arange(1, len(ends) + 1)
                first = np.flatnonzero(late)[0]
                assert first == max(0, math.ceil(min(worker, 9 - worker) / exchanges) - 1)
                assert len(set(late[first:].round(9))) == 1, "and not later than that"

    def test_the_models_that_are_mixed_do_not_depend_on_it_and_a_global_clock_waits_for_everybody(self):
        cluster = Cluster(workers=6, compute=SECOND)
        base, *variants = (
            averages_of(record(Gossip(exchanges=exchanges), cluster, 120)) for exchanges in (1, 4, 161, "global")
        )
        assert all(other == base for other in variants)
        assert len(base) == 114, "the last ones are not averaged any more"
        cluster = Cluster(workers=8, compute=COMPUTE)
        near, far, everybody = (record(Gossip(exchanges=exchanges), cluster, 400) for exchanges in (1, 8, "global"))
        assert times(far, Verb.SYNC) == times(everybody, Verb.SYNC), "as far as there are workers"
        assert far.end_ns > near.end_ns


class TestOverlappedSGP:
    @settings(max_examples=30)
    @given(cluster=CLUSTERS, overlap=st.integers(1, 4), topology=st.sampled_from([Ring(), Exponential(), Star()]))
    def test_no_mass_is_lost_and_no_model_comes_later_than_it_may(self, cluster, overlap, topology):
        """Push-sum weights of all replicas and of all messages on their way add up to the number of workers at every moment."""
        schedule = record(Gossip(topology=topology, overlap=overlap), cluster, gradients=80)
        replicas, mailboxes, on_its_way = [1.0] * cluster.size, dict[int, float](), 0.0
        sender: dict[int, int] = {}  # of each mailbox that was sent
        for row in rows_of(schedule):
            if row.verb == "PUSH":
                assert sum(replicas) + on_its_way == pytest.approx(cluster.size)
            elif row.verb == "PULL":
                mailboxes[row.mailbox] = replicas[row.replica]
                if row.messages:  # one for each receiver, who all get as much as the sender keeps
                    sender[row.mailbox] = row.worker
                    on_its_way += replicas[row.replica] * row.messages / (1 + row.messages)
            elif row.verb == "MIX":
                mailboxes[row.mailbox] = mailboxes.get(row.mailbox, 0.0) + row.weight * mailboxes[row.source]
                if sender.get(row.source, row.worker) != row.worker:
                    on_its_way -= row.weight * mailboxes[row.source]
            elif row.verb == "SYNC":
                replicas[row.replica] = row.keep * replicas[row.replica] + row.weight * mailboxes[row.mailbox]
        assert (staleness.of_models(schedule) <= overlap).all()

    @pytest.mark.slow
    def test_what_is_evaluated_while_workers_block_is_the_rules_mean_model(self):
        """Assran et al. 2019, algorithm 2, by NumPy; only senders, receivers and times are taken from the schedule."""
        cluster = {"workers": 6, "compute": COMPUTE, "network": {"latency": {"name": "exponential", "scale": 0.3}}}
        protocol = {"topology": "exponential", "overlap": 2}
        sgp = outcome("sgp", protocol, cluster, 1, stop={"seconds": 4}, evaluate={"points": 40})
        assert sgp.run.task is not None
        data = sgp.run.task.data.load(1)
        xs = [{name: array.astype(float) for name, array in sgp.initial.items()} for _ in range(6)]
        ws, read, flight, sent = [1.0] * 6, dict[int, dict](), dict[tuple[int, int], tuple[dict, float]](), [0] * 6
        losses, rows = [], list(rows_of(sgp.schedule))
        for seconds in sgp.metrics["virtual_seconds"]:
            while rows and rows[0].time_ns < seconds * 1e9:
                row = rows.pop(0)
                i = row.worker
                if row.verb == "PULL":
                    read[row.mailbox] = {k: x / ws[i] for k, x in xs[i].items()}
                if row.verb == "PULL" and row.messages:
                    receivers = Exponential().receivers(i, sent[i], 6)
                    sent[i] += 1
                    part = 1 / (1 + len(receivers))
                    xs[i], ws[i] = {k: part * x for k, x in xs[i].items()}, part * ws[i]
                    flight |= {(row.mailbox, receiver): (xs[i], ws[i]) for receiver in receivers}
                elif row.verb == "PUSH":
                    indices = batch_indices(1, i, row.step, batch_size=4, examples=len(data.train))
                    grads = gradient(read[row.mailbox], data.train.inputs[indices], data.train.answers[indices])
                    xs[i] = {k: x - 0.125 * grads[k] for k, x in xs[i].items()}
                elif row.verb == "MIX" and (row.source, i) in flight:
                    x, w = flight.pop((row.source, i))
                    xs[i], ws[i] = {k: xs[i][k] + x[k] for k in x}, ws[i] + w
            mean = {k: sum(x[k] for x in xs) / sum(ws) for k in xs[0]}
            losses.append(measure(mean, data.evaluation.inputs, data.evaluation.answers)[0])
        assert sgp.metrics["loss"].tolist() == pytest.approx(losses, rel=1e-5)

    def test_communication_is_hidden_as_long_as_it_takes_no_longer_than_the_overlap(self):
        """1.5 s a message: not at all; every second time 0.5 s too late; as long as there are two iterations for it."""
        cluster = Cluster(workers=4, compute=SECOND, network={"latency": {"name": "constant", "seconds": 1.5}})
        for overlap, seconds in ((0, 2.5), (1, 1.25), (2, 1.0), (3, 1.0)):
            schedule = record(Gossip(topology=Exponential(), overlap=overlap), cluster, gradients=4 * 30)
            assert np.diff(times(schedule, Verb.PUSH, 0)).mean() == pytest.approx(seconds, abs=0.03)
            sent = schedule["messages"][schedule.rows(Verb.PULL)].sum()
            assert sent == pytest.approx(4 * 30 / max(1, overlap), abs=8), "once in so many iterations"


class TestADPSGD:
    SLOW = {"latency": {"name": "constant", "seconds": 0.25}}

    @settings(max_examples=30)
    @given(cluster=CLUSTERS, seed=st.integers(0, 99), topology=st.sampled_from([Bipartite(), Hypercube(), Star()]))
    def test_nobody_ever_waits_and_an_exchange_conserves_the_sum(self, cluster, seed, topology):
        """Models are numbers here, which gradients change: what one half of an exchange adds, the other takes away."""
        schedule = record(Pairwise(topology=topology), cluster, gradients=60, seed=seed)
        assert all(row.time_ns == row.end_ns for row in schedule if row.verb == Verb.PUSH)
        models, mailboxes = np.arange(cluster.size) ** 2.0, {}
        half_done: dict[int, float] = {}  # change of the passive worker's model, by the mailbox that was sent
        sent: dict[int, int] = {}  # by the mailbox with what is added to an active worker's: the model that it sent
        for row in schedule:
            if row.verb == Verb.PULL:
                mailboxes[row.mailbox] = models[row.replica]
            elif row.verb == Verb.PUSH:
                models[row.replica] -= 1 + row.replica
            elif row.verb == Verb.MIX:
                mailboxes[row.mailbox] = mailboxes.get(row.mailbox, 0.0) + row.weight * mailboxes[row.source]
                sent[row.mailbox] = row.source
            elif row.verb == Verb.SYNC:
                change = row.keep * models[row.replica] + row.weight * mailboxes[row.mailbox] - models[row.replica]
                models[row.replica] += change
                if row.mailbox in sent:
                    assert change == pytest.approx(-half_done.pop(sent[row.mailbox]))
                else:
                    half_done[row.mailbox] = change
        assert len(half_done) <= cluster.size

    def test_an_exchange_takes_effect_when_each_models_message_arrives(self):
        """1 s a gradient, 0.25 s a message: the passive worker averages at 0.25 s, the active one at 0.5 s."""
        schedule = record(Pairwise(), Cluster(workers=2, compute=SECOND, network=self.SLOW), seconds=3.9)
        assert times(schedule, Verb.SYNC, 1) == [0.25, 1.25, 2.25, 3.25]
        assert times(schedule, Verb.SYNC, 0) == [0.5, 1.5, 2.5, 3.5]
        slow = record(Pairwise(), Cluster(workers=2, speeds=[4, 1], compute=SECOND, network=self.SLOW), seconds=3.9)
        assert times(slow, Verb.SYNC, 0) == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5], "one at a time"
        assert times(slow, Verb.PUSH, 0)[:4] == [0.25, 0.5, 0.75, 1.0], "whatever goes on"

    def test_each_active_worker_averages_once_per_gradient_with_evenly_drawn_partners(self):
        schedule = record(Pairwise(), Cluster(workers=8, compute=COMPUTE), gradients=2000)
        syncs = np.bincount(schedule["replica"][schedule.rows(Verb.SYNC)])
        pushes = np.bincount(schedule["worker"][schedule.rows(Verb.PUSH)])
        assert (abs(syncs - pushes)[::2] <= 1).all()
        assert (abs(syncs[1::2] / syncs[1::2].sum() - 0.25) < 0.05).all()

    def test_partners_are_neighbours_on_the_other_side(self):
        cluster = Cluster(workers=6, compute=COMPUTE)
        for topology, neighbours in (
            (Bipartite(), {0: {1, 3, 5}, 2: {1, 3, 5}}),
            (Ring(), {0: {1, 5}, 2: {1, 3}, 4: {3, 5}}),
            (Star(), {0: {1, 2, 3, 4, 5}}),
            (Hypercube(), {0: {1, 2, 4}, 3: {1, 2}}),
        ):
            partners: dict[int, set[int]] = {}
            for (active, _), average in averages_of(record(Pairwise(topology=topology), cluster, gradients=600)).items():
                partners.setdefault(active, set()).add(average[0][0])
            assert {worker: partners[worker] for worker in neighbours} == neighbours

    def test_a_graph_without_two_sides_is_refused(self):
        for topology, workers in (("ring", 5), ("exponential", 4), ("complete", 3)):
            with pytest.raises(FredError, match="`topology` must be bipartite, but workers"):
                make_run("ad-psgd", protocol={"topology": topology}, cluster={"workers": workers})


class TestStaleness:
    def test_models_are_as_old_as_their_workers_are_slow_and_without_averages_have_no_age(self):
        schedule = record(Pairwise(), Cluster(workers=2, speeds=[4, 1], compute=SECOND), seconds=1.9)
        assert staleness.of_models(schedule).tolist() == [0, 1, 2, 3, 3, 4, 5, 6, *[0] * 8]
        for protocol in (Allreduce(), Eager()):
            assert not len(staleness.of_models(record(protocol, Cluster(workers=3), 30)))
