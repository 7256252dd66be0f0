"""How large messages are: the shapes that servers' functions return, what servers and protocols say, `message_bytes`."""

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fred import Cluster, Layout, Process, Protocol, Recorder, Schedule, Server, Simulation, Verb
from fred.components import registry
from fred.protocols.local_steps import OuterSteps
from fred.protocols.synchronous import Allreduce, Cutoff
from fred.running.model_training import Problem
from fred.running.recording import Recording
from fred.schedule.layout import Size, Sizes
from fred.schedule.schedule import What
from fred.schedule.traffic import traffic
from fred.systems.decentralized import ChocoGossip
from fred.systems.drop_compute import DropCompute
from fred.systems.eager_sgd import Eager
from fred.systems.halos import LocalServers
from fred.systems.streaming_diloco import OverlappedSteps, Streaming
from tests.worlds import CLUSTERS, LAYERS, PROTOCOLS, fitting_protocol, make_run, record

MODEL = 4 * (8 * 4 + 4)  # bytes: softmax of 8 features and 4 classes
TENTH = {"name": "constant", "seconds": 0.1}


@pytest.fixture(autouse=True, scope="module")
def _allow_own_classes():
    registry.allow_import([__name__])


class Unlike(Server):
    """Sends half of each array; workers read nine numbers more than the model has."""

    divisible: ClassVar[bool] = False

    def init(self, params, workers):
        return super().init(params, workers).replace(params={"model": params, "more": jnp.zeros(9)})

    def model(self, params):
        return params["model"]

    def send(self, memory, params, grads):
        return jax.tree.map(lambda leaf: leaf.ravel()[: leaf.size // 2], grads), memory

    def apply_update(self, state, message, timestamp, worker):
        return state


class Coarse(Server):
    """Sends bfloat16, shaped like the parameters, so that blocks of it go to several servers."""

    def send(self, memory, params, grads):
        return jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), grads), memory

    def apply_update(self, state, message, timestamp, worker):
        return self.step(state, jax.tree.map(lambda leaf: leaf.astype(jnp.float32), message))


class Stated(Server):
    """Arrays are as they always are, but on the wire matrices have a byte for each row, and models a bit for each number."""

    def sent_bytes(self, message):
        return sum(leaf.shape[0] if leaf.ndim == 2 else 4 * leaf.size for leaf in jax.tree.leaves(message))

    def published_bytes(self, params):
        return sum(leaf.size for leaf in jax.tree.leaves(params)) // 8


def record_run(algorithm: type[Server], cluster: dict[str, Any], **options: Any) -> Schedule:
    specification = {"name": f"{algorithm.__module__}:{algorithm.__name__}", "learning_rate": 0.1}
    options = {"stop": {"gradients": 12}, "evaluate": {"points": 2}, **options}
    run = make_run(specification, cluster={"workers": 4, "compute": TENTH, **cluster}, **options)
    assert run.task is not None
    return Recording(run, 0, Problem(run.task, run, 0).sizes).schedule()


def sizes_of(schedule: Schedule, *verbs: Verb) -> set[float]:
    rows = schedule.rows(*verbs)
    return set((schedule["bytes"][rows] / schedule["messages"][rows]).tolist())


@pytest.mark.parametrize(
    ("algorithm", "down", "up"), [(Unlike, MODEL + 36, MODEL / 2), (Coarse, MODEL, MODEL / 2), (Stated, MODEL // 32, 8 + 16)]
)
def test_messages_are_as_large_as_what_the_servers_functions_return_or_say(algorithm, down, up):
    """Four workers read at the start, and again after each of twelve gradients."""
    schedule = record_run(algorithm, {})
    assert (sizes_of(schedule, Verb.PULL), sizes_of(schedule, Verb.PUSH)) == ({down}, {up})
    sent = {"messages": (4 + 12 - 1, 12, 0), "bytes": (15 * down, 12 * up, 0)}
    assert {unit: tuple(traffic(schedule)[unit].values()) for unit in sent} == sent
    scaled = record_run(
        algorithm, {"network": {"message_bytes": 1000}}
    )  # the parameters; other messages keep their ratio to them
    assert (sizes_of(scaled, Verb.PULL), sizes_of(scaled, Verb.PUSH)) == (
        {math.ceil(1000 * down / MODEL)},
        {math.ceil(1000 * up / MODEL)},
    )


def test_messages_queue_on_a_card_for_as_long_as_they_are_large():
    """180 bytes take 1.25 s: three pulls leave one after the other; gradients of 72 bytes take 0.5 s."""
    schedule = record_run(Unlike, {"workers": 3, "network": {"server_bandwidth": MODEL}}, stop={"gradients": 3})
    assert (schedule["end_ns"][schedule.rows(Verb.PULL)[:3]] / 1e9).tolist() == [1.25, 2.5, 3.75]
    assert schedule["time_ns"][schedule.rows(Verb.PUSH)] / 1e9 == pytest.approx([1.85, 3.1, 4.35])


@pytest.mark.parametrize(
    ("protocol", "size"),
    [
        ("allreduce", MODEL / 2),
        ("cutoff", MODEL / 2),
        ({"name": "eager", "period": 1}, MODEL / 2),
        ({"name": "local-steps", "period": 1}, MODEL + 36),
        ({"name": "group-averaging", "period": 1}, MODEL + 36),
    ],
)
def test_collectives_move_messages_where_they_average_gradients_and_models_where_they_average_models(protocol, size):
    """A ring of four moves 2 (4 - 1) / 4 times the averaged arrays from each worker, and takes as long as that on its link."""
    schedule = record_run(Unlike, {"network": {"bandwidth": MODEL}}, protocol=protocol, stop={"gradients": 8})
    assert set(schedule["bytes"][schedule.rows(Verb.ADD, Verb.SYNC)].tolist()) == {1.5 * size}
    used = schedule.rows(Verb.PUSH, Verb.ADD)
    begins = np.unique(schedule["begin_ns"][used][schedule["step"][used] == 1]) / 1e9
    assert begins == pytest.approx([0.1 + 1.5 * size / MODEL]), "when the first averaging is over"


@pytest.mark.parametrize("exchanges", [1, 2])
def test_neighbours_are_sent_all_parameters_of_a_replica(exchanges):
    """180 bytes to the only neighbour at 180 bytes/s: there after 1 s, in one message or two."""
    protocol, network = {"name": "gossip", "exchanges": exchanges}, {"bandwidth": MODEL + 36}
    schedule = record_run(Unlike, {"workers": 2, "network": network}, protocol=protocol, stop={"gradients": 4})
    sent = schedule["messages"] > 0
    assert set(schedule["bytes"][sent] / schedule["messages"][sent]) == {(MODEL + 36) / exchanges}
    assert schedule["time_ns"][schedule.rows(Verb.SYNC)[:2]] / 1e9 == pytest.approx([1.1] * 2)


@pytest.mark.parametrize(
    ("algorithm", "cut", "up", "down"),
    [
        (Coarse, "parts", [82, 82], [164, 164]),
        (Coarse, "layers", [108, 56], [216, 112]),
        (Stated, "layers", [8 + 24, 6 + 16], [6, 3]),
    ],
)
def test_each_server_gets_and_sends_the_bytes_of_its_block(algorithm, cut, up, down):
    """8 features, 6 hidden units, 4 classes: a layer of 54 numbers and one of 28."""
    protocol = {"name": "asynchronous", "clocks": "each", "cut": cut}
    schedule = record_run(algorithm, {"servers": 2}, task=LAYERS, protocol=protocol)
    for verb, sizes in ((Verb.PUSH, up), (Verb.PULL, down)):
        rows = schedule.rows(verb)
        assert schedule["bytes"][rows].tolist() == np.array(sizes)[schedule["block"][rows]].tolist()


@pytest.mark.slow
def test_of_the_algorithms_only_three_send_more_than_a_model():
    """Push-sum's weight is one number more; DES-LOC's moments and SCAFFOLD's control variates are as large as the model."""
    options: dict[str, dict[str, float]] = {"exponential": {"rho": 0.5}, "picky-sgd": {"distance": 1.0}}
    for name in registry.REGISTRY["algorithm"]:
        if registry.lookup("algorithm", name).model_fields["codec"].default is not None:
            continue  # it sends less
        run = make_run({"name": name, "learning_rate": 0.1, **options.get(name, {})})
        assert run.task is not None
        sizes = Problem(run.task, run, 0).sizes
        model = {"sgp": MODEL + 4, "des-loc": 3 * MODEL, "scaffold": 2 * MODEL}.get(name, MODEL)
        assert (sizes.model.total, sizes.message.total) == (model, 2 * MODEL if name == "scaffold" else MODEL), name


class Saying(Protocol):
    """Says the size of everything that it sends."""

    size: Any = 100
    blocks: int = 1

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.centred(cluster.size)._replace(blocks=self.blocks)

    def start(self, sim: Simulation) -> None:
        sim.process(self._work(sim))

    def _work(self, sim: Simulation) -> Process:
        server, size, last = sim.global_replica, self.size, sim.blocks - 1
        if sim.blocks == 1:
            copy = yield from sim.pull(0, server, size=size)
        else:
            reads = [sim.read(0, server, sim.now, block=block, size=size + block) for block in range(sim.blocks)]
            copy = sim.compose(0, reads)
        gradient = sim.compute(0, copy)
        yield gradient.finished
        for block in range(sim.blocks):
            yield from sim.send(gradient, *([block] if last else []), size=2 * size + block)  # type: ignore[misc]
            sim.push(gradient, server, block=block)
        sim.publish(0, copies=3, block=last, size=3 * size)
        yield sim.transfer(0, 1, size=4 * size)
        operation = sim.allreduce(sim.workers, size=5 * size)
        yield operation.over
        sim.drop(sim.pseudo_gradient(0, copy, copy), server, operation.cost)
        yield sim.env.after(10**12)


class ToAll(Protocol):
    """A gradient of 900 bytes goes to all servers, who hold a block each."""

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.central(cluster.servers)

    def start(self, sim: Simulation) -> None:
        sim.process(self._work(sim))

    def _work(self, sim: Simulation) -> Process:
        while True:
            gradient = sim.compute(0, sim.compose(0, [sim.read(0, block=block) for block in range(sim.blocks)]))
            yield gradient.finished
            yield from sim.send(gradient, size=900)
            for block in range(sim.blocks):
                sim.push(gradient, block=block)


def record_saying(options: dict[str, Any], seed: int = 0, **cluster: Any) -> Schedule:
    """Return the schedule of such a protocol on two workers, whose links have 1,000 bytes/s."""
    machines = {"workers": 2, "compute": TENTH, "network": {"bandwidth": 1000.0}, **cluster}
    return record(Saying(**options), Cluster(**machines), seconds=100, seed=seed)


class TestProtocolsSaySizes:
    def test_which_count_and_take_their_time(self):
        """An allreduce of two moves one model."""
        for network in ({"bandwidth": 1000.0}, {"bandwidth": 1000.0, "message_bytes": 7}):
            schedule = record_saying({}, network=network)
            assert schedule["bytes"].tolist() == [100, 200, 900, 500]
            assert schedule["messages"].tolist() == [1, 1, 3, 2]
            assert schedule["time_ns"] / 1e9 == pytest.approx([0, 0.4, 0.4, 0.8 + 0.5])
            assert schedule["end_ns"][0] / 1e9 == 0.1
        schedule = record_saying({"blocks": 2}, servers=2)
        assert schedule["bytes"].tolist() == [100, 101, 0, 0, 200, 201, 900, 500]
        assert schedule["block"].tolist() == [0, 1, 0, 1, 0, 1, 1, 0]
        assert schedule["time_ns"][4:6] / 1e9 == pytest.approx([0.3, 0.501])

    def test_of_messages_that_are_lost_and_sent_again(self):
        for seed in range(5):
            schedule = record_saying({}, seed, faults=[{"name": "lost-messages", "share": 0.6, "again_after": 0.1}])
            assert (schedule["bytes"][:3] == schedule["messages"][:3] * [100, 200, 300]).all()
            assert schedule["messages"][:3].sum() > 5, "some are lost"

    @pytest.mark.parametrize("network", [{}, {"servers": [{"servers": [1], "bandwidth": 5000.0}]}])
    def test_messages_sent_again_to_a_server_count_for_its_block(self, network):
        """Each of three servers receives a third of the message, all together or (where they differ) each by itself."""
        fault = {"name": "lost-messages", "share": 0.5, "again_after": 0.1, "ways": ["to-servers"]}
        cluster = Cluster(workers=1, servers=3, compute=TENTH, network={"server_bandwidth": 1e4, **network}, faults=[fault])
        schedule = record(ToAll(), cluster, gradients=30)
        pushes = schedule.rows(Verb.PUSH)
        repeats = (schedule["messages"][pushes[: 3 * 29]] - 1).reshape(-1, 3)
        assert (schedule["bytes"][pushes] == schedule["messages"][pushes] * 300).all()
        assert (repeats.sum(axis=0) > 0).all(), "of each block"
        assert (repeats == repeats[:, :1]).all() == (not network), "messages that travel together are late together"

    def test_a_published_model_is_as_large_on_its_way(self):
        """The link has 1,000 bytes/s; the size that is passed to `transfer` decides the time."""
        sim = Simulation(Cluster(workers=2, network={"bandwidth": 1000.0}), Recorder(2, Layout.peers(2)), 0, sizes=100)

        def give() -> Process:
            for published, sent in ((None, None), (300, None), (300, 500), (None, None)):
                sim.publish(0, 1, size=published)
                yield sim.transfer(0, 1, size=sent)
            sim.record.stop()

        sim.process(give())
        sim.run()
        trips = sim.schedule().intervals.select(What.TRIP)
        assert sim.schedule()["bytes"].tolist() == [100, 300, 300, 100]
        assert ((trips.end_ns - trips.begin_ns) / 1e9).tolist() == [0.1, 0.3, 0.5, 0.1] and trips.row.tolist() == [0, 1, 2, 3]


@settings(max_examples=60)
@given(protocol=PROTOCOLS, cluster=CLUSTERS, seed=st.integers(0, 99), model=st.integers(0, 5000), message=st.integers(0, 5000))
def test_bytes_are_the_number_of_messages_times_the_size_of_each(protocol, cluster, seed, model, message):
    protocol = fitting_protocol(protocol, cluster)
    layout = protocol.layout(cluster)
    shares = (1 / layout.blocks,) * layout.blocks
    sizes = Sizes(shares, Size.from_shares(model, shares), Size.from_shares(message, shares))
    schedule = record(protocol, cluster, gradients=40, seed=seed, sizes=sizes)
    assert (schedule["bytes"] >= 0).all()
    if isinstance(protocol, (Allreduce, ChocoGossip, Cutoff, DropCompute, Eager, OuterSteps, OverlappedSteps, Streaming)):
        twice = record(protocol, cluster, gradients=40, seed=seed, sizes=Sizes.uniform(message, shares))
        assert schedule.digest() == twice.digest(), "how large models are is no matter"
        return
    for verbs, size in (((Verb.PULL,), model), ((Verb.PUSH, Verb.ADD, Verb.DROP), message)):
        rows = schedule.rows(*verbs)
        parts = cluster.servers if layout.on_servers and not isinstance(protocol, LocalServers) else 1
        message_bytes = np.ceil(size / layout.blocks) if layout.blocks > 1 else size / parts
        assert schedule["bytes"][rows].sum() == pytest.approx(schedule["messages"][rows].sum() * message_bytes)
