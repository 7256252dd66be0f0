"""Codecs: decoded values as NumPy has them, bytes by hand, and the messages of runs."""

import math
from typing import Any

import jax
import numpy as np
import pytest

from fred import NOTHING, Cluster, Copy, Layout, Process, Protocol, Simulation
from fred.base import numerics
from fred.base.errors import FredError
from fred.components import registry
from fred.learning.codecs.codec import Codec
from fred.running.execution import execute
from fred.schedule.schedule import Verb
from tests.plain import recompute_run
from tests.plain.codecs import Array, Coded
from tests.recompute import largest_relative_error
from tests.worlds import LAYERS, TASK, UNEQUAL, constant, make_run, mostly_slow, same_outcome, sized_schedule

SEED = 5
MODEL = 8 * 4 + 4  # numbers: softmax of 8 features and 4 classes
IN_LAYERS = {"name": "asynchronous", "clocks": "each", "cut": "layers"}
LOW_BIT = {"name": "low-bit", "bits": 2, "zero": False}


def make_codec(name: str, **options: Any) -> Codec:
    return registry.lookup("codec", name).model_validate(options)


def numbers(*shape: int) -> Array:
    random = np.random.default_rng(SEED)
    values = random.normal(size=shape) * 10.0 ** random.integers(-4, 3, size=shape)
    return np.where(random.random(shape) < 0.1, 0, values).astype(np.float32)


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *(("float", {"format": kind}) for kind in ("float32", "bfloat16", "float16", "e4m3", "e5m2")),
    ("float", {"format": "e4m3", "scaled": True, "chunk": 16}),
    ("e3m0", {"chunk": 10}),
    *(("low-bit", {"bits": bits, "zero": zero}) for bits in (2, 3, 8) for zero in (True, False)),
    ("low-bit", {"bits": 3, "chunk": "message"}),
    ("sign", {"error_feedback": True}),
    ("sign", {"chunk": 7, "error_feedback": 0.5}),
    ("qsgd", {"levels": 5}),
    ("qsgd", {"chunk": 7}),
    ("top-k", {"share": 0.25}),
    ("top-k", {"share": 1.0}),
    ("top-k", {"share": 0.25, "chunk": 8}),
    ("top-k", {"share": 0.25, "chunk": "message"}),
    ("top-k", {"share": 0.2, "values": LOW_BIT}),
    ("random-k", {"share": 0.5, "chunk": 8}),
    ("random-k", {"share": 0.3, "unbiased": False}),
    ("power-sgd", {"rank": 1}),
    ("power-sgd", {"rank": 2}),
    ("dct", {"chunk": 4, "kept": 3}),
]


@pytest.mark.parametrize(("name", "options"), mostly_slow(VARIANTS, {row[0]: row for row in VARIANTS}.values()))
def test_decoded_values_are_numpys_and_zeros_stay_zeros(name, options):
    codec, message = make_codec(name, **options), {"a": numbers(6, 10), "b": numbers(8)}
    if name == "float" and not options.get("scaled"):
        message["c"] = np.array([1e30, -1e30, 3], np.float32)
    by_message = options.get("chunk") == "message"
    recomputation = Coded(codec.model_copy(update={"chunk": "array"}) if by_message else codec, name, SEED)
    decode = jax.jit(codec.sent)
    start = memory = codec.start(message, numerics.words(SEED, "codec", 0, np.arange(2)))
    for factor in (1, 3):  # two messages, of which the second depends on the first if the codec remembers
        values = {k: np.float32(factor) * array[:: 2 - factor] for k, array in message.items()}
        arrived, memory = decode(values, memory)
        flat = np.concatenate([array.ravel() for array in values.values()])
        expected = values if options.get("format") == "float32" else recomputation(0, {"a": flat} if by_message else values)
        for k, array in {"a": np.concatenate([a.ravel() for a in arrived.values()])}.items() if by_message else arrived.items():
            error = 1e-4 if name in ("power-sgd", "dct") else 1e-5
            np.testing.assert_allclose(array, expected[k], rtol=error, atol=error * np.abs(expected[k]).max(), err_msg=k)
    zeros, _ = decode(jax.tree.map(np.zeros_like, message), start)
    if "'zero': False" not in str(options):
        assert not any(array.any() for array in zeros.values()), (name, options)


def test_bytes_are_counted_by_hand():
    """The message is a matrix of 100 x 6 and a vector of 10."""
    low_bit = {"name": "low-bit", "bits": 2}
    sizes: list[tuple[str, dict[str, Any], int]] = [
        ("float", {}, 610 * 2),
        ("float", {"format": "e5m2"}, 610),
        ("float", {"format": "e5m2", "scaled": True}, 610 + 2 * 4),
        ("e3m0", {}, 610 // 2 + 4 * 4),  # 256 + 256 + 88, and 10
        ("low-bit", {"bits": 2, "chunk": "message"}, math.ceil(610 * 2 / 8) + 4),
        ("sign", {"chunk": 100}, math.ceil(610 / 8) + 7 * 4),
        ("qsgd", {}, 610 // 2 + 2 * 4),
        ("qsgd", {"levels": 127}, 610 + 2 * 4),
        ("top-k", {"share": 0.1}, math.ceil((60 * (32 + 10) + 1 * (32 + 4)) / 8)),
        ("top-k", {"share": 0.1, "chunk": "message"}, math.ceil(61 * (32 + 10) / 8)),
        ("top-k", {"share": 1.0}, 610 * 4),
        ("top-k", {"share": 0.1, "values": low_bit}, math.ceil((60 * (2 + 10) + 32 + 1 * (2 + 4) + 32) / 8)),
        ("random-k", {"share": 0.1}, 61 * 4),
        ("power-sgd", {}, (2 * (100 + 6) + 10) * 4),
        ("power-sgd", {"rank": 6}, 610 * 4),  # P and Q would have more numbers
        ("dct", {"chunk": 50, "kept": 8}, math.ceil((2 * 8 * (32 + 9) + 8 * (32 + 4)) / 8)),  # 50 x 6; 10
    ]
    for name, options, size in sizes:
        assert make_codec(name, **options).size([np.zeros((100, 6)), np.zeros(10)]) == size, (name, options)


class TestTraffic:
    def test_gradients_to_a_server_have_the_codecs_bytes(self):
        for name, options in (("sign", {}), ("top-k", {"share": 0.3}), ("power-sgd", {"rank": 1})):
            schedule = sized_schedule({"name": "asgd", "codec": {"name": name, **options}}, stop={"gradients": 40})
            pushes, pulls = (set(schedule["bytes"][schedule.rows(verb)].tolist()) for verb in (Verb.PUSH, Verb.PULL))
            assert pushes == {make_codec(name, **options).size([np.zeros((8, 4)), np.zeros(4)])}, name
            assert pulls == {4 * MODEL}, name

    def test_collectives_gather_what_cannot_be_added_up(self):
        """A ring of four: 6 messages of a quarter each, or 3 whole ones; at 10 kB/s."""
        cluster = constant(*[0.1] * 4, network={"bandwidth": 1e4})
        for protocol in ("allreduce", {"name": "cutoff", "rule": {"name": "count", "workers": 3}}):
            for codec, sent in (("float", 2 * 3 / 4 * 2 * MODEL), ("sign", 3 * (math.ceil(MODEL / 8) + 2 * 4))):
                algorithm = {"name": "allreduce-sgd", "codec": codec}
                schedule = sized_schedule(algorithm, protocol, cluster, stop={"updates": 10})
                assert schedule.end_ns == pytest.approx(10 * (1e8 + sent * 1e5)), (protocol, codec)
                assert schedule["bytes"].sum() == 10 * 4 * sent, (protocol, codec)

    def test_servers_get_their_share_of_a_message(self):
        schedule = sized_schedule({"name": "asgd", "codec": "sign"}, IN_LAYERS, {**UNEQUAL, "servers": 2}, task=LAYERS)
        sizes = {(schedule["block"][row], schedule["bytes"][row]) for row in schedule.rows(Verb.PUSH)}
        assert sizes == {(0, math.ceil((8 * 6 + 6 + 2 * 32) / 8)), (1, math.ceil((6 * 4 + 4 + 2 * 32) / 8))}


class ShardedRounds(Protocol):
    """DiLoCo's rounds on servers that hold a block each: a pseudo-gradient goes to all of them in turn, as one message."""

    def layout(self, cluster: Cluster) -> Layout:
        server = range(cluster.size, cluster.size + 1)
        return Layout(cluster.size + 1, server, server, cluster.servers)

    def start(self, sim: Simulation) -> None:
        sim.process(self._meetings(sim))

    def _meetings(self, sim: Simulation) -> Process:
        while True:
            yield sim.env.all_of([sim.process(self._turn(sim, worker)) for worker in range(sim.workers)])

    def _turn(self, sim: Simulation, worker: int) -> Process:
        before = yield from self._pull(sim, worker)
        for block in range(sim.servers):
            sim.sync(worker, before, block=block)
        gradient = sim.compute(worker, self._own_copy(sim, worker))
        yield gradient.finished
        for block in range(sim.servers):
            sim.push(gradient, worker, NOTHING, block)
        pseudo_gradient = sim.pseudo_gradient(worker, before, self._own_copy(sim, worker))
        for block in range(sim.servers):
            yield from sim.send(pseudo_gradient, block)
            sim.push(pseudo_gradient, sim.global_replica, block=block)

    def _pull(self, sim: Simulation, worker: int) -> Process:
        """Read all blocks of the server model at the same time."""
        copies, waits = zip(
            *(sim.read_block(worker, block, replica=sim.global_replica) for block in range(sim.servers)), strict=True
        )
        yield max(waits)
        return sim.compose(worker, copies)

    def _own_copy(self, sim: Simulation, worker: int) -> Copy:
        return sim.compose(worker, [sim.read(worker, worker, sent=False, block=block) for block in range(sim.servers)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("codec", "protocol", "task"),
    [
        ({"name": "top-k", "share": 0.25, "error_feedback": True}, IN_LAYERS, LAYERS),
        ({"name": "random-k", "share": 0.5}, ShardedRounds(), TASK),
    ],
    ids=["gradients", "pseudo-gradients"],
)
def test_one_message_to_two_servers_is_coded_once(codec, protocol, task):
    cluster = UNEQUAL | {"servers": 2, "network": {"latency": {"seconds": 0.02, "name": "constant"}}}
    algorithm = {"name": "asgd", "learning_rate": 0.1, "codec": codec}
    run = make_run(algorithm, protocol=protocol, cluster=cluster, task=task, stop={"gradients": 120})
    replayed, inline = (execute("run", run, 3, inline) for inline in (False, True))
    assert same_outcome(replayed, inline)
    assert largest_relative_error(replayed.final, recompute_run(replayed).params) < 1e-4
    assert largest_relative_error(replayed.final, replayed.initial) > 0.1, "the run moved the parameters"
    assert replayed.metrics["loss"].iloc[-1] < 0.8 * replayed.metrics["loss"].iloc[0]


def test_what_a_codec_cannot_code_is_refused():
    models, sums = "workers send models", "cannot be added up"
    rounds = r"expected a codec that rounds each number, such as `low-bit`, without `error_feedback`"
    cases: list[tuple[str, Any, dict[str, Any]]] = [
        *((models, "float", {"protocol": name}) for name in ("local-steps", "gossip", "pairwise", "group-averaging")),
        (models, "float", {"protocol": "straggler-tolerant"}),
        *((sums, "top-k", {"protocol": name}) for name in ("eager", "drop-compute", "accumulating")),
        (sums, "top-k", {"protocol": {"name": "gated", "push_gate": {"name": "periodic", "k": 2}}}),
        ("leave out the codec's `error_feedback`", {"name": "e3m0", "error_feedback": True}, {"protocol": "streaming"}),
        *((rounds, {"name": "top-k", "values": name}, {}) for name in ("top-k", "power-sgd")),
        (rounds, {"name": "top-k", "values": {"name": "sign", "error_feedback": True}}, {}),
        ("leave out `chunk`", {"name": "top-k", "values": {"name": "sign", "chunk": 3}}, {}),
    ]
    for message, codec, options in cases:
        with pytest.raises(FredError, match=message):
            make_run({"name": "asgd", "learning_rate": 0.1, "codec": codec}, **options)
        if message == sums:
            make_run({"name": "asgd", "learning_rate": 0.1, "codec": "float"}, **options)
