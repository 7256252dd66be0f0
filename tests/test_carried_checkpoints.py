"""Checkpoints that the network carries: their times by hand, the messages they delay, and copies that fail with their peer."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import fred
from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.cluster.durations import NANOSECONDS
from fred.outcomes.job_time import of_failures
from fred.results.verify import verify
from fred.running.execution import execute
from fred.schedule.layout import Layout
from fred.schedule.schedule import Schedule, What
from fred.timing import restarts
from fred.timing.recorder import Recorder
from fred.timing.saving import Saving
from fred.timing.simulation import Simulation
from tests.cases import Case
from tests.failing_jobs import ONE_MODEL, SECOND, drawn, failures, record, time_of, updates
from tests.laws import check_laws
from tests.worlds import make_run, same

LATENCY = {"latency": {"name": "constant", "seconds": 0.01}}
NETWORK = {**LATENCY, "bandwidth": 1e6, "message_bytes": 100}
BYTES = 400_000  # a share of each of four workers takes 0.1 s


def sent(to: str, **options: Any) -> dict[str, Any]:
    return {"every_updates": 2, "to": to, "bytes": BYTES, **options}


def saving(checkpoint: dict[str, Any], network: dict[str, Any], layout: Layout, **cluster: Any) -> Saving:
    machines = Cluster(network=network, failures=failures((0, 9, 10), checkpoint=checkpoint), **{"workers": 4, **cluster})
    assert machines.failures is not None
    return Saving(Simulation(machines, Recorder(machines.size, layout), seed=0), machines.failures.checkpoint)


def whole(seconds: float) -> int:
    return round(seconds * NANOSECONDS)


class TestTimesByHand:
    @pytest.mark.parametrize(
        ("network", "store", "cluster", "write", "load"),
        [
            (NETWORK, None, {}, 0.11, 0.11),  # each worker's own link
            (NETWORK, 2e5, {}, 0.01 + 4 * 0.5, 0.01 + 4 * 0.5),  # the store's card, one share after the other
            (NETWORK, 2e6, {}, 0.01 + 4 * 0.05, 0.01 + 3 * 0.05 + 0.1),  # the last share leaves a card at 0.15 s
            ({**NETWORK, "node_bandwidth": 1e6}, None, {"nodes": 2}, 0.21, 0.21),  # two workers of a node
            ({**NETWORK, "efficiency": 0.5}, None, {}, 0.21, 0.21),
            (LATENCY, None, {}, 0.01, 0.01),
        ],
    )
    def test_workers_to_a_store_and_back(self, network, store, cluster, write, load):
        options = {"blocking": True, "store_bandwidth": store, "pause": 0.3}
        found = saving(sent("store", **options), network, Layout.shared(), **cluster)
        assert found.stops(0) == whole(0.3 + write)
        assert found.load(whole(5)) == whole(load)
        assert found.load(whole(2)) == whole(load), "a job that fails while it loads"

    @pytest.mark.parametrize(("sharing", "blocking"), [("queue", True), ("queue", False), ("fair", False)])
    def test_servers_to_a_store_and_back(self, sharing, blocking):
        network = {**NETWORK, "server_bandwidth": 1e6, "sharing": sharing}
        found = saving(sent("store", blocking=blocking), network, Layout.central(), servers=2)
        assert found.stops(0) == (whole(0.21) if blocking else 0)
        assert found.load(0) == whole(0.21)

    @pytest.mark.parametrize("sharing", ["queue", "fair"])
    def test_peers(self, sharing):
        found = saving(sent("peers"), {**NETWORK, "sharing": sharing}, Layout.shared())
        assert not found.lose([2])
        assert found.load(0) == whole(0.01 + 2 * 0.1)  # its own share, and the one that it holds for worker 1
        found.loaded()
        assert not found.lose([3])
        assert not found.lose([1])
        assert found.load(0) == whole(0.01 + 2 * 0.1)  # at the same time, by other links
        assert found.lose([0])

    def test_slow_links(self):
        slow = {"regime": {"name": "job", "nodes": [0], "slowdown": 3.0, "begin": 1.0}}
        found = saving(sent("store", blocking=True), {**NETWORK, "contention": [slow]}, Layout.shared(), nodes=4)
        assert [found.stops(whole(time)) for time in (0, 2, 0)] == [whole(each) for each in (0.11, 0.33, 0.11)]


class TestTheSameAsGivenTimes:
    """Only the times differ in how they are found: the schedule is the same to the last bit."""

    @pytest.mark.parametrize("protocol", ["allreduce", "synchronous", "asynchronous", "cutoff"])
    @pytest.mark.parametrize("blocking", [True, False])
    def test_a_store(self, protocol, blocking):
        on_servers = protocol in ("synchronous", "asynchronous")
        load = 0.01 + 0.2 if on_servers else 0.01 + 3 * 0.05 + 0.1  # servers' cards are unlimited
        self.check(protocol, sent("store", store_bandwidth=2e6, blocking=blocking), blocking, 0.21, load)

    @pytest.mark.parametrize("blocking", [True, False])
    def test_peers(self, blocking):
        self.check("allreduce", sent("peers", blocking=blocking), blocking, 0.11, 0.21)

    @staticmethod
    def check(protocol: str, checkpoint: dict[str, Any], blocking: bool, write: float, load: float) -> None:
        given = {"every_updates": 2, "pause": 0.25 + write} if blocking else {"every_updates": 2, "pause": 0.25, "write": write}
        strikes = [(0, 9.53, 11.0), (1, 13.07, 13.1), (2, 25.01, 26.0)]
        options: dict[str, Any] = {"workers": 4, "network": NETWORK, "speeds": [1.0, 1.05, 1.1, 1.15]}
        jobs = [
            failures(*strikes, checkpoint=way, load={"name": "constant", "seconds": 0.5 + extra})
            for way, extra in ((checkpoint | {"pause": 0.25}, 0.0), (given, load))
        ]
        carried, stated = (record(protocol, job, {"seconds": 40}, **options) for job in jobs)
        assert of_failures(carried)["number"] == 3
        assert carried.digest() == stated.digest()


class TestMessagesOfTraining:
    """One worker and one server, whose card needs 0.1 s for a model and 2 s for a checkpoint."""

    @staticmethod
    def times(sharing: str, **options: Any) -> list[float]:
        network = {"server_bandwidth": 1e6, "message_bytes": 100_000, "sharing": sharing}
        job = failures((0, 90, 91), checkpoint={"every_updates": 1, "to": "store", "bytes": 2_000_000, **options})
        return updates(record("asynchronous", job, {"updates": 3}, workers=1, network=network))

    def test_they_queue_behind_the_checkpoint(self):
        # the pull of 1.2 s passes first, then the checkpoint until 3.3 s, then the pull of 2.4 s
        assert self.times("queue") == pytest.approx([1.2, 2.4, 4.5])

    def test_they_share_the_card_with_the_checkpoint(self):
        assert self.times("fair") == pytest.approx([1.2, 2.5, 3.8])  # a pull has half of it, and takes 0.2 s

    def test_a_blocking_checkpoint_has_the_network_for_itself(self):
        assert self.times("queue", blocking=True) == pytest.approx([1.2, 4.4, 7.6])

    def test_a_checkpoint_on_its_way_is_lost_with_the_job(self):
        network = {"server_bandwidth": 1e6, "message_bytes": 100_000}
        options = {"checkpoint": {"every_updates": 1, "to": "store", "bytes": 1_000_000}}
        found = [
            updates(record("asynchronous", failures((0, at, 3), **options), {"updates": 2}, workers=1, network=network))
            for at in (2.25, 2.35)  # before and after it arrives, at 2.3 s
        ]
        assert found[0] == pytest.approx([4.2, 5.4])
        assert found[1] == pytest.approx([1.2, 5.2])  # loading takes 1 s

    def test_collectives_share_links_with_it(self):
        network = {"bandwidth": 1e6, "message_bytes": 400_000, "sharing": "fair"}
        job = failures((0, 90, 91), checkpoint={"every_updates": 2, "to": "store", "bytes": 8_000_000})
        schedule = record("allreduce", job, {"updates": 4}, workers=4, network=network)
        # a share needs 2 s alone; after the 1 s of a gradient, the allreduce of 0.6 s has half of each link
        assert updates(schedule) == pytest.approx([1.6, 3.2, 3.2 + 1 + 1.2, 5.4 + 1 + 0.6])


class TestPeersThatFailTogether:
    @staticmethod
    def run(*recorded: tuple[int, float, float], workers: int = 4, **options: Any) -> Schedule:
        job = failures(*recorded, checkpoint={"every_updates": 2, "to": "peers", "bytes": BYTES}, **options)
        return record("allreduce", job, {"updates": 5}, workers=workers, network={"bandwidth": 1e6, "message_bytes": 1})

    def test_neighbours_lose_everything(self):
        schedule = self.run((1, 4.5, 6), (2, 4.5, 6))
        assert updates(schedule) == pytest.approx([7, 8, 9, 10, 11], abs=1e-3)
        assert time_of(schedule) == pytest.approx({"training": 5, "undone": 4.5, "repairing": 1.5}, abs=1e-3)

    def test_others_do_not(self):
        schedule = self.run((0, 4.5, 6), (2, 4.5, 6))
        assert updates(schedule) == pytest.approx([1, 2, 3, 4, 7.2], abs=1e-3)

    def test_neighbours_that_fail_one_after_the_other(self):
        assert updates(self.run((1, 4.5, 6), (2, 6.1, 7))) == pytest.approx([8, 9, 10, 11, 12], abs=1e-3), "while it loads"
        assert updates(self.run((1, 4.5, 6), (2, 6.3, 7))) == pytest.approx([1, 2, 3, 4, 8.2], abs=1e-3), "after that"

    def test_everything_since_the_beginning_is_undone_but_failures_count(self):
        schedule = self.run((3, 2.5, 3), (1, 5.7, 6), (2, 5.7, 6), detect=SECOND)
        found = of_failures(schedule)
        assert found["number"] == 2
        assert time_of(schedule) == pytest.approx({"training": 5, "undone": 5.7, "detecting": 1}, abs=1e-3)
        begins = schedule.intervals.only(What.DETECTING).begin_ns / NANOSECONDS
        assert begins.tolist() == [2.5, 5.7]

    def test_a_job_that_always_loses_everything(self, monkeypatch):
        monkeypatch.setattr(restarts, "MOST_TRIES", 50)
        cause = {"of": "nodes", "up": {"name": "constant", "seconds": 2.5}}
        job = {"causes": [cause], "checkpoint": {"every_updates": 1, "to": "peers", "bytes": 1}}
        with pytest.raises(FredError, match="50 failures since the checkpoint at 2 s"):
            record("allreduce", job, {"updates": 3}, network={})


@pytest.mark.parametrize("to", ["store", "peers"])
@pytest.mark.parametrize("case", ONE_MODEL.values(), ids=list(ONE_MODEL))
def test_replayed_and_inline_leave_the_same_bits(case: Case, to: str):
    on_servers = bool(case.run.protocol.layout(case.run.cluster).on_servers)
    if to == "peers" and on_servers:
        pytest.skip("servers do not fail")
    for sharing, blocking in (("queue", True), ("fair", False)):
        checkpoint = {"every_updates": 3, "to": to, "bytes": 30_000, "blocking": blocking}
        network = {"bandwidth": 1e6, "server_bandwidth": 1e6, "sharing": sharing}
        job = drawn(8.0, repair=0.2, spares=1, checkpoint=checkpoint)
        plain = case.run.cluster.model_copy(update={"faults": ()}).model_dump()
        cluster = Cluster.model_validate(plain | {"failures": job, "network": network})
        run = case.run.model_copy(update={"cluster": cluster})
        replayed, inline = execute("run", run, 3), execute("run", run, 3, inline=True)
        assert replayed.summary["failures"]["number"] > 0
        assert same(replayed, inline)
        check_laws(replayed)


@pytest.mark.parametrize(
    ("checkpoint", "cluster", "message"),
    [
        ({"bytes": 9}, {}, "`bytes` needs `to`: `store` or `peers`"),
        ({"blocking": True}, {}, "`blocking` needs `to`"),
        ({"to": "store"}, {}, "`to` needs `bytes`"),
        ({"to": "store", "bytes": 9, "write": 1.0}, {}, "leave out `write`, or `to`"),
        ({"to": "peers", "bytes": 9, "store_bandwidth": 1e6}, {}, "`store_bandwidth` needs `to: store`"),
        ({"to": "store", "bytes": 9}, {"network": None}, "needs a `network` that carries checkpoints"),
        ({"to": "peers", "bytes": 9}, {"workers": 1}, "needs 2 workers or more"),
        ({"to": "store", "bytes": 9, "blocking": True}, {"network": {"sharing": "fair"}}, "needs `network.sharing: queue`"),
        (
            {"to": "store", "bytes": 9},
            {"network": {"regions": {"workers": [0, 0], "bandwidth": [[1e6]]}}},
            "no place in `network.regions`",
        ),
    ],
)
def test_impossible_ways(checkpoint, cluster, message):
    job = failures((0, 1, 2), checkpoint={"every_updates": 1, **checkpoint})
    with pytest.raises(ValidationError, match=message):
        Cluster(**{"workers": 2, "network": {}, "failures": job, **cluster})


def test_servers_have_no_peers():
    job = failures((0, 1, 2), checkpoint=sent("peers"))
    with pytest.raises(
        FredError, match=r"servers hold the model, and they do not fail: use `cluster.failures.checkpoint.to: store`"
    ):
        make_run(protocol="synchronous", cluster={"workers": 2, "network": {}, "failures": job})


def test_manifests_name_the_options_only_if_the_network_carries_checkpoints(tmp_path: Path):
    job = failures((0, 3.5, 5.0), checkpoint=sent("store"))
    plain = job | {"checkpoint": {"every_updates": 2}}
    options = {"workers": 2, "compute": SECOND, "network": {}}
    assert Cluster(**options, failures=plain).model_dump()["failures"]["checkpoint"].keys() == {
        *("every_updates", "every_seconds", "pause", "write")
    }
    scenario = fred.scenario(
        cluster={**options, "failures": job}, algorithm={"name": "ssgd", "learning_rate": 0.1}, stop={"seconds": 10}
    )
    fred.run(scenario, out=tmp_path / "result")
    assert verify(tmp_path / "result")[0] == 0
