"""What verbs do to values: halves against the whole to the last bit, and everything against NumPy and closed forms."""

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pydantic import Field

from fred.learning import wrapper
from fred.learning.codecs.sparse import TopK
from fred.learning.loss import Loss, default_loss
from fred.learning.models.built_in_models import MLP, SoftmaxRegression
from fred.learning.models.model import Model, Params
from fred.learning.server import Message, Scalar, Server, State
from fred.outcomes.outcome import Outcome
from fred.replay.arithmetic import Arithmetic
from fred.replay.machine import compiled
from fred.running.execution import execute
from fred.schedule.layout import Layout
from fred.systems.asgd import ASGD
from fred.systems.decentralized import SGP
from fred.systems.delays import DCASGD
from tests.recompute import PlainSGD, gradient, largest_relative_error, recompute_by
from tests.worlds import COMPUTE, LAYERS, make_run, mostly_slow, same_outcome

EXAMPLES, CLASSES = 50, 10
CENTRAL = Layout.central()
SMALL = MLP(hidden=(6,))
DRAW = np.random.default_rng(1)


@pytest.fixture(autouse=True)
def _same_draws_in_any_order():
    DRAW.bit_generator.state = np.random.default_rng(1).bit_generator.state


def draw_examples(shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    answers = DRAW.integers(0, CLASSES, EXAMPLES, "i")
    return jnp.asarray(DRAW.normal(size=(EXAMPLES, *shape)).astype("f")), jnp.asarray(answers)


def draw_params(model: Model = SMALL, shape: tuple[int, ...] = (4,)) -> Params:
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), shape, CLASSES))
    return jax.tree.map(lambda leaf: jnp.asarray(0.3 * DRAW.normal(size=leaf.shape), jnp.float32), shapes)


def arithmetic(server: Server, model: Model, params: Params, batch: int = 4, layout: Layout = CENTRAL) -> Arithmetic:
    return Arithmetic.build(server, Loss(model, default_loss(True)), params, layout, 4, batch)


def sources(maths: Arithmetic, params: Params) -> list[Params]:
    return [state.params for state in maths.start([params], 1)]


def named_arrays(params: Params) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in leaves}


def assert_same_bits(actual: Any, expected: Any) -> None:
    actual_leaves, expected_leaves = jax.tree.leaves(actual), jax.tree.leaves(expected)
    assert [leaf.tobytes() for leaf in map(np.asarray, actual_leaves)] == [
        leaf.tobytes() for leaf in map(np.asarray, expected_leaves)
    ]
    assert any(np.any(leaf) for leaf in actual_leaves), "not everything is 0"


TOP_K = TopK(share=0.25, error_feedback=True)
SPLITS: dict[str, tuple[Server, Model, tuple[int, ...], int, bool]] = {  # model, shape of an input, batch, whether small
    "softmax, 1": (ASGD(learning_rate=0.1), SoftmaxRegression(), (20,), 1, True),
    "push-sum, 4": (SGP(learning_rate=0.1), MLP(hidden=(8,)), (20,), 4, True),
    "large mlp, 1": (ASGD(learning_rate=0.1), MLP(hidden=(100,)), (160,), 1, False),
    "large mlp, 32": (ASGD(learning_rate=0.1), MLP(hidden=(100, 40)), (160,), 32, False),
    "mlp with a memory, 4": (ASGD(learning_rate=0.1, codec=TOP_K), MLP(hidden=(20,)), (20,), 4, False),
    "large delay-compensated, 2": (DCASGD(learning_rate=0.1), MLP(hidden=(100,)), (160,), 2, False),
}


class TestMessages:
    @pytest.mark.parametrize("name", mostly_slow(SPLITS, ["large mlp, 1"]))
    def test_begun_and_finished_they_have_the_bits_of_messages_made_at_once(self, name):
        server, model, shape, batch, small = SPLITS[name]
        params, data = draw_params(model, shape), draw_examples(shape)
        maths = arithmetic(server, model, params, batch)
        assert maths.stores_gradients == small
        assert (maths.blocks.size > 1 << 14 or maths.hooks.remembers) == (not small)
        memory = jax.tree.map(lambda leaf: leaf + jnp.float32(0.01), maths.remember(params))
        indices = jnp.asarray(DRAW.integers(0, EXAMPLES, batch, "i"))
        stored = jax.jit(maths.begin)(sources(maths, params), data, indices)
        message = jax.jit(maths.message)(sources(maths, params), data, indices, memory)
        numbers, in_whole = (sum(leaf.size for leaf in jax.tree.leaves(tree)) for tree in (stored, message[0]))
        if small:
            assert numbers == maths.blocks.size == in_whole, "the gradient itself is stored"
        elif not maths.hooks.remembers:
            assert numbers < in_whole, "less is stored than a message is"
        assert_same_bits(jax.jit(maths.finish)(stored, data, memory), message)

    @pytest.mark.parametrize("hidden", [(20,), (100,)])
    def test_masked_ones_are_numpys_gradients_of_the_minibatches_that_are_real(self, hidden):
        model, shape, batch, members = MLP(hidden=hidden), (160,), 3, 4
        params, data = draw_params(model, shape), draw_examples(shape)
        maths = arithmetic(ASGD(learning_rate=0.1), model, params, batch)
        make = jax.jit(maths.message, static_argnames=("members", "masked"))
        for real in (1, 3, 4):
            indices = DRAW.integers(0, EXAMPLES, members * batch, "i")
            message, _ = make(sources(maths, params), data, indices, (), real, members=members, masked=True)
            inputs, answers = (np.asarray(array)[indices[: real * batch]] for array in data)
            mean = named_arrays(
                maths.blocks.join([maths.blocks.block(message, number) for number in range(maths.blocks.count)])
            )
            assert largest_relative_error(mean, gradient(named_arrays(params), inputs, answers)) < 1e-5
            padded = np.append(indices[: real * batch], DRAW.integers(0, EXAMPLES, (members - real) * batch, "i"))
            assert_same_bits(make(sources(maths, params), data, padded, (), real, members=members, masked=True)[0], message)


class Counted(Server):
    """Its model is a whole number among its parameters times some of them, less others."""

    def init(self, params: Params, workers: int) -> State:
        return super().init(params, workers).replace(params={"factor": jnp.int32(1), "now": params, "before": params})

    def model(self, params: Params) -> Params:
        return jax.tree.map(lambda now, before: params["factor"] * now - before, params["now"], params["before"])


def random_state(maths: Arithmetic, params: Params, replicas: int) -> State:
    """A state with other numbers in each replica, stacked; whole numbers are 2, 3, ... by replica."""

    def randomise(leaf: jax.Array) -> jax.Array:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return jnp.arange(2, 2 + replicas, dtype=leaf.dtype)
        return jnp.asarray(1 + DRAW.uniform(size=(replicas, *leaf.shape)), jnp.float32)

    (state,) = (jax.tree.map(randomise, state) for state in maths.start([params], 1))
    return state


def means(params: Params) -> dict[str, np.ndarray]:
    return {name: np.asarray(array, float).mean(0) for name, array in named_arrays(params).items()}


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (ASGD, lambda state: means(state.params)),
        (SGP, lambda state: {k: p / np.mean(state.params["w"], dtype=float) for k, p in means(state.params["x"]).items()}),
        (partial(ASGD, average=0.9), lambda state: means(state.smoothed)),
        (Counted, lambda state: {k: 2 * p - means(state.params["before"])[k] for k, p in means(state.params["now"]).items()}),
    ],
)
def test_an_answer_is_the_model_of_mean_parameters_and_the_first_replicas_whole_numbers(server, expected):
    params = draw_params()
    maths = arithmetic(server(learning_rate=0.1), SMALL, params, layout=Layout.peers(5))
    state = random_state(maths, params, 5)
    assert largest_relative_error(named_arrays(maths.answer([state])), expected(state)) < 1e-5


class OwnRate(Server):
    def apply_update(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> State:
        params = jax.tree.map(lambda now, grad: now - self.learning_rate * grad, state.params, message)
        return state.replace(params=params, clock=state.clock + 1)


class HiddenRate(Server):
    """Its rate is in an array that an inner compiled function holds."""

    def apply_update(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> State:
        rates = jnp.asarray(np.full(2, self.learning_rate, np.float32))
        scaled = jax.jit(lambda grad: grad * rates[timestamp % 2])
        params = jax.tree.map(lambda now, grad: now - scaled(grad), state.params, message)
        return state.replace(params=params, clock=state.clock + 1)


def assert_by_numpy(outcome: Outcome, rate: float) -> None:
    (params,) = recompute_by(outcome, [PlainSGD(outcome.initial, rate)])
    assert largest_relative_error(outcome.final, params) < 1e-4
    (params,) = recompute_by(outcome, [PlainSGD(outcome.initial, 1.3 * rate)])
    assert largest_relative_error(outcome.final, params) > 1e-3


class TestLearningRates:
    RUN = {"task": {**LAYERS, "batch_size": 7}, "stop": {"gradients": 40}}  # no other test compiles its program

    @pytest.mark.parametrize("inline", mostly_slow([False, True], [False]))
    def test_several_share_one_compilation_and_each_is_used(self, inline):
        before, outcomes, rates = compiled.cache_info(), [], (0.05, 0.08, 0.2)
        traced_before = wrapper._traced.cache_info().misses
        note = Mock()
        jax.monitoring.register_event_duration_secs_listener(note)
        try:
            for rate in rates:
                note.reset_mock()
                outcomes.append(execute("run", make_run({"name": "asgd", "learning_rate": rate}, **self.RUN), 4, inline))
        finally:
            jax.monitoring.unregister_event_duration_listener(note)
        assert not [call for call in note.call_args_list if "backend_compile" in call.args[0]], (
            "nothing is compiled for the last"
        )
        assert wrapper._traced.cache_info().misses - traced_before <= 2, "the rates 1 and 2, for all three together"
        after = compiled.cache_info()
        assert (after.misses - before.misses, after.hits - before.hits) == ((0, 0) if inline else (1, 2))
        assert len({outcome.schedule.digest() for outcome in outcomes}) == 1
        for rate, outcome in zip(rates, outcomes, strict=True):
            assert_by_numpy(outcome, rate)

    @pytest.mark.parametrize("algorithm", [OwnRate, HiddenRate])
    def test_an_algorithm_may_read_its_rate(self, algorithm):
        run = make_run(algorithm(learning_rate=0.2), **self.RUN)
        replayed = execute("run", run, 4)
        assert_by_numpy(replayed, 0.2)
        assert same_outcome(replayed, execute("run", run, 4, inline=True))


def test_rounds_of_fewer_than_their_batches_are_padded_to_are_means_of_those_who_came():
    """Seven of nine gradients, in batches of eight."""
    cluster, protocol = {"workers": 9, "compute": COMPUTE}, {"backup_workers": 2}
    run = make_run("ssgd", cluster=cluster, protocol=protocol, stop={"updates": 12})
    replayed = execute("run", run, 2)
    assert same_outcome(replayed, execute("run", run, 2, inline=True))
    assert_by_numpy(replayed, 0.1)


class TestSteps:
    def test_mix_adds_up_in_order_onto_what_is_there(self):
        maths, models = arithmetic(ASGD(learning_rate=0.25), SMALL, draw_params()), [draw_params() for _ in range(4)]
        weights = [np.float32(weight) for weight in (0.1, 1.7, 0.3)]
        mixture, added = named_arrays(maths.mix(models[:3], weights)), named_arrays(maths.mix(models[:3], weights, models[3]))
        *mixed, before = map(named_arrays, models)
        for name in before:
            first, second, third = (model[name] * weight for model, weight in zip(mixed, weights, strict=True))
            np.testing.assert_array_equal(mixture[name], (first + second) + third)
            np.testing.assert_array_equal(added[name], ((before[name] + first) + second) + third)

    def test_verbs_after_each_other_are_rounded_one_by_one_wherever_they_are_compiled(self):
        """A compiler that may would multiply the two constants first."""
        maths = arithmetic(ASGD(learning_rate=0.25), SMALL, draw_params())
        params, weights = {"w": DRAW.normal(size=1000).astype("f")}, (0.1, 0.7)
        mix_twice = jax.jit(lambda params: maths.mix([maths.mix([params], [weights[0]])], [weights[1]]))
        twice = (params["w"] * np.float32(weights[0])) * np.float32(weights[1])
        np.testing.assert_array_equal(mix_twice(params)["w"], twice)
        assert np.any(twice != params["w"] * (np.float32(weights[0]) * np.float32(weights[1])))


def scaled_by(scale: Callable[[Any, Any], Any]) -> type[Server]:

    class Scaled(Server):
        def apply_update(self, state: State, message: Any, timestamp: Any, worker: Any) -> State:
            return self.step(state, message, scale=scale(self.learning_rate, worker))

    return Scaled


class Shares(Server):
    def init(self, params: Any, workers: int) -> State:
        state = super().init(params, workers)
        return state.replace(rate=state.rate / workers)


class Bounded(Server):
    learning_rate: float = Field(gt=0, lt=1, description="below 1")


@pytest.mark.parametrize(
    ("server", "step"),
    [
        (scaled_by(lambda rate, _: (rate or 0.01) / rate), 0.5),
        (scaled_by(lambda rate, _: 2.0 if rate == 0.5 else 1.0), 1.0),
        (scaled_by(lambda rate, _: min(1.0, rate)), 0.25),
        (scaled_by(lambda rate, worker: 1 + rate * worker), 2.0),
        *((Shares, 0.125), (Bounded, 0.5)),
    ],
)
def test_whatever_a_class_does_with_its_rate_it_is_its_own(server, step):
    params = draw_params()
    maths = arithmetic(server(learning_rate=0.5), SMALL, params)
    (state,) = maths.start([params], 1)
    after = jax.jit(maths.apply)(state, jax.tree.map(jnp.ones_like, params), 0, 6)
    assert np.allclose(params["layer0"]["biases"] - after.params["layer0"]["biases"], step)
