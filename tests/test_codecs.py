"""Codecs: each against NumPy, its bytes by hand, what it is the same as, and what workers remember recomputed from the schedule."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from scipy import fft

from fred.base.errors import FredError
from fred.components import registry
from fred.learning.codecs.codec import Codec
from fred.outcomes.outcome import Outcome
from fred.running.execution import execute
from fred.running.problem import Problem
from fred.schedule.schedule import Verb
from tests.plain.codecs import Array, only_largest, rounded
from tests.recompute import largest_relative_error
from tests.worlds import LAYERS, make_run, same

CODECS: dict[str, dict[str, Any]] = {
    "float": {"format": "bfloat16"},
    "e3m0": {},
    "low-bit": {"bits": 3},
    "sign": {},
    "qsgd": {},
    "top-k": {"share": 0.3},
    "random-k": {"share": 0.3},
    "power-sgd": {"rank": 1},
    "dct": {"chunk": 4, "kept": 3},
}
MODEL = 8 * 4 + 4  # numbers: softmax of 8 features and 4 classes
NETWORK = {"latency": {"name": "exponential", "scale": 0.02}, "bandwidth": 1e4}
CLUSTER = {"workers": 4, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.7}, "network": NETWORK}


def made(name: str, **options: Any) -> Codec:
    codec: Codec = registry.lookup("codec", name).model_validate(options)
    return codec


def arrived(codec: Codec, *arrays: Array, words: Any = (1, 2)) -> list[Array]:
    """Return the decoded first message of these arrays."""
    message = [jnp.asarray(array, jnp.float32) for array in arrays]
    return [np.asarray(leaf) for leaf in codec.sent(message, codec.start(message, words))[0]]


def outcome(codec: Any, algorithm: Any = "asgd", inline: bool = False, **options: Any) -> Outcome:
    algorithm = {"learning_rate": 0.125, **({"name": algorithm} if isinstance(algorithm, str) else algorithm)}
    options = {"cluster": CLUSTER, "stop": {"gradients": 120}, **options}
    return execute("run", make_run(algorithm | ({"codec": codec} if codec else {}), **options), 3, inline)


def numbers(*shape: int) -> Array:
    """Normally distributed, of many sizes, with some zeros."""
    random = np.random.default_rng(5)
    values = random.normal(size=shape) * 10.0 ** random.integers(-4, 3, size=shape)
    return np.where(random.random(shape) < 0.1, 0, values).astype(np.float32)


class TestValues:
    """What arrives, as NumPy has it."""

    @pytest.mark.parametrize(
        ("name", "kind"), [("bfloat16", "bfloat16"), ("float16", "float16"), ("e4m3", "float8_e4m3fn"), ("e5m2", "float8_e5m2")]
    )
    def test_floats_are_rounded_as_ml_dtypes_rounds(self, name, kind):
        dtype = np.dtype(getattr(ml_dtypes, kind, kind))
        limit = float(ml_dtypes.finfo(dtype).max)
        values = np.append(numbers(2000), [1e30, -1e30])
        (found,) = arrived(made("float", format=name), values)
        assert np.array_equal(found, np.clip(values, -limit, limit).astype(dtype).astype(np.float32))

    def test_scaled_floats_use_the_whole_range(self):
        values = numbers(64) * 1e-6
        (found,) = arrived(made("float", format="e4m3", scaled=True, chunk=16), values)
        for chunk, own in zip(found.reshape(4, 16), values.reshape(4, 16), strict=True):
            scale = np.abs(own).max() / np.float32(448)
            expected = (own / scale).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * scale
            np.testing.assert_allclose(chunk, expected, rtol=1e-6)

    def test_four_bits_are_powers_of_two(self):
        values = numbers(40)
        (found,) = arrived(made("e3m0", chunk=10), values)
        for chunk, own in zip(found.reshape(4, 10), values.reshape(4, 10), strict=True):
            scale = np.abs(own).max()
            levels = np.array([0, *2.0 ** np.arange(-6, 1)])
            np.testing.assert_allclose(chunk, np.sign(own) * rounded(np.abs(own) / scale, levels) * scale, rtol=1e-6)

    @pytest.mark.parametrize("bits", [2, 3, 8])
    @pytest.mark.parametrize("zero", [True, False])
    def test_few_bits_are_even_levels(self, bits, zero):
        values = numbers(33)
        (found,) = arrived(made("low-bit", bits=bits, zero=zero), values)
        levels = np.linspace(-1, 1, 2**bits - zero)
        scale = np.abs(values).max()
        np.testing.assert_allclose(found, rounded(values / scale, levels) * scale, rtol=1e-5, atol=1e-6 * scale)
        assert (0 in np.round(levels, 9)) == zero

    def test_signs_have_the_mean_size(self):
        values = numbers(10)
        (found,) = arrived(made("sign", chunk=4), values)
        for begin in (0, 4, 8):
            own = values[begin : begin + 4]
            np.testing.assert_allclose(found[begin : begin + 4], np.where(own < 0, -1, 1) * np.abs(own).mean(), rtol=1e-6)

    def test_qsgd_takes_one_of_the_two_nearest(self):
        values = numbers(50)
        (found,) = arrived(made("qsgd", levels=5), values)
        steps = found / np.linalg.norm(values) * 5
        np.testing.assert_allclose(steps, np.round(steps), atol=1e-5)
        assert (np.abs(steps - values / np.linalg.norm(values) * 5) < 1).all()

    def test_top_k_are_the_largest(self):
        values = numbers(23)
        assert np.array_equal(arrived(made("top-k", share=0.25), values)[0], only_largest(values, 6))
        (found,) = arrived(made("top-k", share=0.25, chunk=8), values)
        parts = [only_largest(values[:8], 2), only_largest(values[8:16], 2), only_largest(values[16:], 2)]
        assert np.array_equal(found, np.concatenate(parts))

    def test_top_k_of_the_whole_message_may_leave_out_an_array(self):
        large, small = numbers(4, 5) * 1e6 + 1e6, numbers(7)
        found = arrived(made("top-k", share=0.5, chunk="message"), large, small)
        expected = only_largest(np.concatenate((large.ravel(), small)), 14)
        assert np.array_equal(np.concatenate([part.ravel() for part in found]), expected)

    def test_what_top_k_sends_may_be_coded(self):
        values = numbers(20)
        (found,) = arrived(made("top-k", share=0.2, values={"name": "low-bit", "bits": 2, "zero": False}), values)
        kept = only_largest(values, 4)
        scale = np.abs(kept).max()
        expected = np.where(kept == 0, 0, rounded(kept / scale, np.linspace(-1, 1, 4)) * scale)
        np.testing.assert_allclose(found, expected, rtol=1e-5)

    def test_random_k_sends_as_many_of_each_chunk(self):
        values = 1 + np.abs(numbers(21))
        (found,) = arrived(made("random-k", share=0.5, chunk=8), values)
        assert [int((part != 0).sum()) for part in np.split(found, [8, 16])] == [4, 4, 2]
        sent = found != 0
        np.testing.assert_allclose(found[sent], (values * np.array([2.0] * 16 + [2.5] * 5))[sent], rtol=1e-6)
        (as_they_are,) = arrived(made("random-k", share=0.5, chunk=8, unbiased=False), values)
        assert np.array_equal(as_they_are, np.where(sent, values, 0))

    def test_power_sgd_finds_the_largest_directions(self):
        """By iterations, from message to message; vectors pass as they are."""
        random = np.random.default_rng(1)
        left, right = (np.linalg.qr(random.normal(size=(size, 3)))[0] for size in (12, 9))
        matrix, vector = left @ np.diag([10.0, 5.0, 0.1]) @ right.T, numbers(9)
        codec = made("power-sgd", rank=2)
        message = [jnp.asarray(matrix, jnp.float32), jnp.asarray(vector)]
        memory = codec.start(message)
        for _ in range(5):
            found, memory = codec.sent(message, memory)
        np.testing.assert_allclose(found[0], left[:, :2] @ np.diag([10.0, 5.0]) @ right[:, :2].T, atol=1e-3)
        assert np.array_equal(found[1], vector)

    def test_power_sgd_is_its_algorithm(self):
        matrix = numbers(6, 5)
        codec = made("power-sgd", rank=1)
        start = codec.start([jnp.asarray(matrix)])
        q = np.asarray(start["own"][0], float)
        found, after = codec.sent([jnp.asarray(matrix)], start)
        p = matrix @ q
        p /= np.linalg.norm(p)
        np.testing.assert_allclose(found[0], p @ (matrix.T @ p).T, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(after["own"][0], matrix.T @ p, rtol=1e-4, atol=1e-4)

    def test_waves_are_scipys(self):
        """A matrix of 6 x 10 in chunks of at most 4: squares of 3 x 2."""
        matrix, vector = numbers(6, 10), numbers(8)
        found = arrived(made("dct", chunk=4, kept=3), matrix, vector)
        expected = np.zeros_like(matrix)
        for high in range(0, 6, 3):
            for wide in range(0, 10, 2):
                part = np.s_[high : high + 3, wide : wide + 2]
                waves = only_largest(fft.dctn(matrix[part].astype(float), norm="ortho").ravel(), 3).reshape(3, 2)
                expected[part] = fft.idctn(waves, norm="ortho")
        np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-4 * np.abs(matrix).max())
        parts = [
            fft.idct(only_largest(fft.dct(part.astype(float), norm="ortho"), 3), norm="ortho") for part in np.split(vector, 2)
        ]
        np.testing.assert_allclose(found[1], np.concatenate(parts), rtol=1e-4, atol=1e-4 * np.abs(vector).max())

    @pytest.mark.slow
    @pytest.mark.parametrize("name", CODECS)
    def test_zeros_are_zeros(self, name):
        for found in arrived(made(name, **CODECS[name]), np.zeros((5, 3)), np.zeros(7)):
            assert not found.any()


BYTES: list[tuple[str, dict[str, Any], int]] = [  # of a matrix of 100 x 6, and a vector of 10
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
    ("top-k", {"share": 0.1, "values": {"name": "low-bit", "bits": 2}}, math.ceil((60 * (2 + 10) + 32 + 1 * (2 + 4) + 32) / 8)),
    ("random-k", {"share": 0.1}, 61 * 4),
    ("power-sgd", {}, (2 * (100 + 6) + 10) * 4),
    ("power-sgd", {"rank": 6}, 610 * 4),  # P and Q would have more numbers
    ("dct", {"chunk": 50, "kept": 8}, math.ceil((2 * 8 * (32 + 9) + 8 * (32 + 4)) / 8)),  # 50 x 6; 10
]


@pytest.mark.parametrize(("name", "options", "size"), BYTES)
def test_bytes_are_counted_by_hand(name, options, size):
    assert made(name, **options).size([jnp.zeros((100, 6)), jnp.zeros(10)]) == size


@pytest.mark.slow
class TestUnbiased:
    """The mean of what arrives is what was sent: within four standard errors, for seeds that stay."""

    @pytest.mark.parametrize(("name", "options"), [("qsgd", {"levels": 3}), ("random-k", {"share": 0.3})])
    def test_in_the_mean_nothing_is_lost(self, name, options):
        values = jnp.asarray(numbers(12) + 1)
        codec, many = made(name, **options), 4000
        memories = {"words": jnp.stack((jnp.arange(many), jnp.zeros(many))).T.astype(jnp.uint32), "count": jnp.zeros(many, int)}
        found = np.asarray(jax.vmap(lambda memory: codec.sent([values], memory)[0][0])(memories))
        error = np.abs(found.mean(0) - values)
        assert (error <= 4 * found.std(0) / math.sqrt(many) + 1e-5 * np.abs(values)).all()
        assert found.std(0).max() > 0.1


@pytest.mark.slow
class TestSame:
    """To the last bit."""

    @pytest.mark.parametrize(
        ("exact", "algorithm"),
        [
            ({"name": "float", "format": "float32"}, "easgd"),
            ({"name": "top-k", "share": 1.0}, "asgd"),
            ({"name": "top-k", "share": 1.0}, "dc-asgd"),
        ],
    )
    def test_what_leaves_nothing_out_is_no_codec(self, exact, algorithm):
        assert same(outcome(exact, algorithm), outcome(None, algorithm))

    def test_with_nothing_left_out_there_is_nothing_to_remember(self):
        exact = {"name": "float", "format": "float32"}
        assert same(outcome({**exact, "error_feedback": True}), outcome(exact))

    def test_a_mean_of_messages_is_the_mean_gradient_but_for_rounding(self):
        coded, plain = outcome({"name": "float", "format": "float32"}, "allreduce-sgd"), outcome(None, "allreduce-sgd")
        assert coded.schedule.digest() == plain.schedule.digest()
        assert largest_relative_error(coded.final, plain.final) < 1e-5


class TestTraffic:
    """Bytes of what is sent follow the codec; of what is read they do not."""

    @pytest.mark.parametrize("name", ["sign", "top-k", "power-sgd"])
    def test_gradients_to_a_server_have_the_codecs_bytes(self, name):
        found = outcome({"name": name, **CODECS[name]})
        shapes = list(found.final.values())
        pushes, pulls = found.schedule.rows(Verb.PUSH), found.schedule.rows(Verb.PULL)
        assert set(found.schedule["bytes"][pushes].tolist()) == {made(name, **CODECS[name]).size(shapes)}
        assert set(found.schedule["bytes"][pulls].tolist()) == {4 * MODEL}

    @pytest.mark.parametrize("protocol", ["allreduce", {"name": "cutoff", "rule": {"name": "count", "workers": 3}}])
    @pytest.mark.parametrize(
        ("codec", "sent"), [("float", 2 * 3 / 4 * 2 * MODEL), ("sign", 3 * (math.ceil(MODEL / 8) + 2 * 4))]
    )
    def test_collectives_gather_what_cannot_be_added_up(self, protocol, codec, sent):
        """A ring of four: 6 messages of a quarter each, or 3 whole ones; at 10 kB/s."""
        cluster = {"workers": 4, "compute": {"name": "constant", "seconds": 0.1}, "network": {"bandwidth": 1e4}}
        found = outcome(codec, "allreduce-sgd", protocol=protocol, cluster=cluster, stop={"updates": 10})
        assert found.schedule.end_ns == pytest.approx(10 * (1e8 + sent * 1e5))
        assert found.schedule["bytes"].sum() == 10 * 4 * sent

    def test_servers_get_their_share_of_a_message(self):
        cluster = {**CLUSTER, "servers": 2}
        found = outcome(
            "sign", cluster=cluster, protocol={"name": "asynchronous", "clocks": "each", "cut": "layers"}, task=LAYERS
        )
        problem = Problem(found.run.task, found.run, 3) if found.run.task else None
        assert problem is not None
        first, second = 8 * 6 + 6, 6 * 4 + 4
        assert problem.sizes.message.blocks == tuple(math.ceil((size + 2 * 32) / 8) for size in (first, second))
        assert problem.sizes.message.whole == math.ceil((first + second + 4 * 32) / 8)


class TestRefused:
    """What a codec cannot lie beside."""

    @pytest.mark.parametrize("protocol", ["local-steps", "gossip", "pairwise", "group-averaging", "straggler-tolerant"])
    def test_models_that_workers_send(self, protocol):
        with pytest.raises(FredError, match="workers send models"):
            outcome("float", protocol=protocol)

    @pytest.mark.parametrize("protocol", ["eager", "drop-compute", "accumulating", {"name": "gated", "k_push": 2}])
    def test_sums_of_messages_that_cannot_be_added_up(self, protocol):
        with pytest.raises(FredError, match="cannot be added up"):
            outcome("top-k", protocol=protocol)
        assert outcome("float", protocol=protocol, stop={"updates": 2}).schedule.counts()["updates"] == 2

    def test_what_was_left_out_of_a_model_of_which_only_a_fragment_is_sent(self):
        with pytest.raises(FredError, match="leave out the codec's `error_feedback`"):
            outcome({"name": "e3m0", "error_feedback": True}, "streaming-diloco")

    @pytest.mark.parametrize(
        "values",
        ["top-k", "power-sgd", {"name": "sign", "error_feedback": True}, {"name": "sign", "chunk": 3}],
    )
    def test_codecs_in_top_k_that_do_more_than_round(self, values):
        with pytest.raises(FredError, match=r"expected a codec that rounds|leave out `chunk`"):
            outcome({"name": "top-k", "values": values})
