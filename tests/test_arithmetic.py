"""What verbs do to values: halves against the whole to the last bit, and everything against NumPy and closed forms."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pydantic import Field

from fred import batch_indices
from fred.components import registry
from fred.learning.loss import Loss
from fred.learning.loss_functions import usual
from fred.learning.models.cnn import CNN
from fred.learning.models.mlp import MLP, SoftmaxRegression
from fred.learning.models.model import Model, Params
from fred.learning.server import Message, Scalar, Server, State
from fred.outcomes.outcome import Outcome
from fred.replay.arithmetic import Arithmetic
from fred.replay.hooks import Hooks
from fred.replay.machine import compiled
from fred.replay.stack import rounded
from fred.running.execution import execute
from fred.schedule.layout import Layout
from fred.systems.rows import ASGD
from fred.systems.sgp import SGP
from tests import users
from tests.recompute import PlainSGD, gradient, largest_relative_error, recompute
from tests.successors import DCASGD, Averaged, BlockMomentum, FedBuff, Quantised, TopK
from tests.worlds import COMPUTE, TASK, make_run, same

EXAMPLES, CLASSES = 50, 10
WHOLE = Layout.central()
DRAW = np.random.default_rng(1)


@pytest.fixture(autouse=True)
def _same_draws_in_any_order():
    DRAW.bit_generator.state = np.random.default_rng(1).bit_generator.state


def examples(shape: tuple[int, ...], classifies: bool = True) -> tuple[jax.Array, jax.Array]:
    answers = DRAW.integers(0, CLASSES, EXAMPLES, "i") if classifies else DRAW.normal(size=(EXAMPLES, CLASSES)).astype("f")
    return jnp.asarray(DRAW.normal(size=(EXAMPLES, *shape)).astype("f")), jnp.asarray(answers)


def params_of(model: Model, shape: tuple[int, ...]) -> Params:
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), shape, CLASSES))
    return jax.tree.map(lambda leaf: jnp.asarray(0.3 * DRAW.normal(size=leaf.shape), jnp.float32), shapes)


def arithmetic(
    server: Server, model: Model, params: Params, batch: int = 4, layout: Layout = WHOLE, classifies: bool = True
) -> Arithmetic:
    return Arithmetic.of(server, Loss(model, usual(classifies)), params, layout, 4, batch)


def sources(do: Arithmetic, params: Params) -> list[Params]:
    """The blocks of a replica that starts from these parameters."""
    return [state.params for state in do.start([params], 1)]


def joined(do: Arithmetic, message: Any) -> dict[str, np.ndarray]:
    """A message as one array per path."""
    whole = do.blocks.join([do.blocks.block(message, number) for number in range(do.blocks.count)])
    return named(whole)


def named(params: Params) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in leaves}


def assert_same_bits(one: Any, other: Any) -> None:
    ones, others = jax.tree.leaves(one), jax.tree.leaves(other)
    assert [leaf.tobytes() for leaf in map(np.asarray, ones)] == [leaf.tobytes() for leaf in map(np.asarray, others)]
    assert any(np.any(leaf) for leaf in ones), "not everything is 0"


CASES: dict[str, tuple[Server, Model, tuple[int, ...], int, bool]] = {  # server, model, shape of an input, batch, whether small
    "softmax, 1": (ASGD(learning_rate=0.1), SoftmaxRegression(), (20,), 1, True),
    "mlp, 4": (ASGD(learning_rate=0.1), MLP(hidden=(20, 10)), (20,), 4, True),
    "cnn, 3": (ASGD(learning_rate=0.1), CNN(channels=(3,), hidden=8), (6, 6, 1), 3, True),
    "attention, 1": (ASGD(learning_rate=0.1), users.Attention(), (6, 6, 1), 1, True),
    "recurrent, 5": (ASGD(learning_rate=0.1), users.Recurrent(), (6, 6, 1), 5, True),
    "push-sum, 4": (SGP(learning_rate=0.1), MLP(hidden=(8,)), (20,), 4, True),
    "large mlp, 1": (ASGD(learning_rate=0.1), MLP(hidden=(100,)), (160,), 1, False),
    "large mlp, 8": (ASGD(learning_rate=0.1), MLP(hidden=(100,)), (160,), 8, False),
    "large mlp, 32": (ASGD(learning_rate=0.1), MLP(hidden=(100, 40)), (160,), 32, False),
    "large softmax, 2": (ASGD(learning_rate=0.1), SoftmaxRegression(), (2000,), 2, False),
    "large push-sum, 4": (SGP(learning_rate=0.1), MLP(hidden=(100,)), (160,), 4, False),
    "mlp with a memory, 4": (TopK(learning_rate=0.1), MLP(hidden=(20,)), (20,), 4, False),
    "large delay-compensated, 2": (DCASGD(learning_rate=0.1), MLP(hidden=(100,)), (160,), 2, False),
}


class TestMessages:
    @pytest.mark.slow
    @pytest.mark.parametrize(("server", "model", "shape", "batch", "small"), CASES.values(), ids=CASES)
    def test_begun_and_finished_they_are_what_they_are_made_at_once(self, server, model, shape, batch, small):
        params, data = params_of(model, shape), examples(shape)
        do = arithmetic(server, model, params, batch)
        assert do.small == small
        assert (do.blocks.size > 1 << 14 or do.hooks.remembers) == (not small)
        memory = jax.tree.map(lambda leaf: leaf + jnp.float32(0.01), do.remember(params))
        begin, finish, message = jax.jit(do.begin), jax.jit(do.finish), jax.jit(do.message)
        indices = jnp.asarray(DRAW.integers(0, EXAMPLES, batch, "i"))
        kept = begin(sources(do, params), data, indices)
        whole = message(sources(do, params), data, indices, memory)
        numbers, in_whole = (sum(leaf.size for leaf in jax.tree.leaves(each)) for each in (kept, whole[0]))
        if small:
            assert numbers == do.blocks.size == in_whole, "the gradient itself is kept"
        elif not do.hooks.remembers:
            assert numbers < in_whole, "less is kept than a message is"
        assert_same_bits(finish(kept, data, memory), whole)

    @pytest.mark.parametrize("hidden", [(20,), (100, 40)])
    @pytest.mark.parametrize("blocks", [1, 3])
    def test_they_are_gradients_as_numpy_computes_them(self, hidden, blocks):
        model, shape = MLP(hidden=hidden), (160,)
        params, data = params_of(model, shape), examples(shape)
        do = arithmetic(ASGD(learning_rate=0.1), model, params, 6, Layout.central(blocks))
        indices = DRAW.integers(0, EXAMPLES, 6, "i")
        message, _ = jax.jit(do.message)(sources(do, params), data, indices, ())
        inputs, answers = (np.asarray(array)[indices] for array in data)
        assert largest_relative_error(joined(do, message), gradient(named(params), inputs, answers)) < 1e-5

    @pytest.mark.parametrize("cut", ["parts", "layers"])
    def test_differences_are_what_local_steps_have_taken_away(self, cut):
        model = MLP(hidden=(7,))
        before, after = params_of(model, (5,)), params_of(model, (5,))
        do = arithmetic(ASGD(learning_rate=0.1), model, before, layout=Layout.central(2, cut))
        message, _ = do.pseudo_gradient(sources(do, before), sources(do, after), ())
        start, end, found = named(before), named(after), joined(do, message)
        assert all(np.array_equal(found[name], start[name] - end[name]) for name in start)

    @pytest.mark.parametrize("hidden", [(20,), (100,)])
    @pytest.mark.parametrize(("real", "members"), [(1, 4), (3, 4), (4, 4), (2, 3)])
    def test_masked_ones_are_the_mean_over_those_minibatches_that_are_real(self, hidden, real, members):
        model, shape, batch = MLP(hidden=hidden), (160,), 3
        params, data = params_of(model, shape), examples(shape)
        do = arithmetic(ASGD(learning_rate=0.1), model, params, batch)
        make = jax.jit(do.message, static_argnames=("members", "masked"))
        indices = DRAW.integers(0, EXAMPLES, members * batch, "i")
        message, _ = make(sources(do, params), data, indices, (), real, members=members, masked=True)
        inputs, answers = (np.asarray(array)[indices[: real * batch]] for array in data)
        assert largest_relative_error(joined(do, message), gradient(named(params), inputs, answers)) < 1e-5
        others = np.append(indices[: real * batch], DRAW.integers(0, EXAMPLES, (members - real) * batch, "i"))
        again, _ = make(sources(do, params), data, others, (), real, members=members, masked=True)
        assert_same_bits(message, again)


class Counted(Server):
    """Its answer is its parameters times a whole number that it remembers, less a mean of them."""

    def init(self, params: Params, workers: int) -> State:
        return super().init(params, workers).replace(factor=jnp.int32(1), mean=params)

    def evaluated(self, state: State) -> Params:
        return jax.tree.map(lambda now, mean: state.factor * now - mean, state.params, state.mean)


def random_states(do: Arithmetic, params: Params, replicas: int) -> list[State]:
    """States with other numbers in each replica, of each block, stacked; whole numbers are 2, 3, ... by replica."""

    def other(leaf: jax.Array) -> jax.Array:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return jnp.arange(2, 2 + replicas, dtype=leaf.dtype)
        return jnp.asarray(1 + DRAW.uniform(size=(replicas, *leaf.shape)), jnp.float32)

    return [jax.tree.map(other, state) for state in do.start([params], 1)]


def mean(array: Any) -> np.ndarray:
    return np.asarray(array, float).mean(0)


class TestAnswers:
    MODEL = MLP(hidden=(6,))

    def test_of_several_replicas_it_is_their_mean(self):
        params = params_of(self.MODEL, (4,))
        do = arithmetic(ASGD(learning_rate=0.1), self.MODEL, params, layout=Layout.peers(5))
        (states,) = random_states(do, params, 5)
        expected = {name: mean(array) for name, array in named(states.params).items()}
        assert largest_relative_error(named(do.answer([states])), expected) < 1e-6

    def test_of_push_sum_it_is_the_mean_divided_by_the_mean_weight(self):
        params = params_of(self.MODEL, (4,))
        do = arithmetic(SGP(learning_rate=0.1), self.MODEL, params, layout=Layout.peers(3))
        (states,) = random_states(do, params, 3)
        weight = mean(states.params["w"])
        expected = {name: mean(array) / weight for name, array in named(states.params["x"]).items()}
        assert largest_relative_error(named(do.answer([states])), expected) < 1e-6

    def test_it_is_what_the_algorithm_says_of_the_mean_state(self):
        params = params_of(self.MODEL, (4,))
        do = arithmetic(Averaged(learning_rate=0.1), self.MODEL, params, layout=Layout.peers(3))
        (states,) = random_states(do, params, 3)
        weight = 1 - 0.9 ** max(int(states.clock[0]), 1)
        expected = {name: mean(array) / weight for name, array in named(states.average).items()}
        assert int(states.clock[0]) > 0
        assert largest_relative_error(named(do.answer([states])), expected) < 1e-6

    def test_whole_numbers_are_the_first_replicas(self):
        params = params_of(self.MODEL, (4,))
        do = arithmetic(Counted(learning_rate=0.1), self.MODEL, params, layout=Layout.peers(4))
        (states,) = random_states(do, params, 4)
        now, before = named(states.params), named(states.mean)
        expected = {name: 2 * mean(now[name]) - mean(before[name]) for name in now}
        assert largest_relative_error(named(do.answer([states])), expected) < 1e-5

    @pytest.mark.parametrize("cut", ["parts", "layers"])
    def test_blocks_are_joined(self, cut):
        params = params_of(self.MODEL, (4,))
        do = arithmetic(ASGD(learning_rate=0.1), self.MODEL, params, layout=Layout.central(2, cut))
        states = [jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], state) for state in do.start([params], 1)]
        assert_same_bits(do.answer(states), params)

    @pytest.mark.parametrize("replicas", [1, 2, 6])
    def test_disagreement_is_the_root_mean_square_distance_from_the_mean_model(self, replicas):
        params = params_of(self.MODEL, (4,))
        do = arithmetic(ASGD(learning_rate=0.1), self.MODEL, params, layout=Layout.peers(replicas))
        (states,) = random_states(do, params, replicas)
        flat = np.concatenate([array.reshape(replicas, -1) for array in named(states.params).values()], axis=1).astype(float)
        expected = np.sqrt(np.square(np.linalg.norm(flat - flat.mean(0), axis=1)).mean())
        assert float(do.disagreement(states.params)) == pytest.approx(expected, rel=1e-5)
        assert (expected > 0) == (replicas > 1)

    def test_disagreement_is_about_models_whatever_replicas_hold(self):
        """Push-sum replicas of the same z = x / w agree, however large their w."""
        params, weights = params_of(self.MODEL, (4,)), jnp.array([0.5, 1.0, 4.0])
        do = arithmetic(SGP(learning_rate=0.1), self.MODEL, params, layout=Layout.peers(3))
        held = {"x": jax.tree.map(lambda leaf: jnp.stack([weight * leaf for weight in weights]), params), "w": weights}
        assert float(do.disagreement(held)) == pytest.approx(0, abs=1e-5)
        assert float(do.disagreement({**held, "w": weights[::-1]})) > 0.1


class InheritsHooks(TopK):
    """What it has of its own it has from TopK."""

    def apply_round(self, state: State, total: Message, timestamp: Scalar, count: Scalar) -> State:
        return self.step(state, total)


@pytest.mark.parametrize(
    ("server", "own"),
    [
        (ASGD, set()),
        (Averaged, set()),
        (DCASGD, {"sends"}),
        (TopK, {"sends", "remembers"}),
        (InheritsHooks, {"sends", "remembers"}),
        (FedBuff, {"contributes"}),
        (Quantised, {"publishes"}),
        (BlockMomentum, {"synchronizes"}),
    ],
)
def test_hooks_are_the_functions_that_an_algorithm_has_of_its_own(server, own):
    do = arithmetic(server(learning_rate=0.1), MLP(hidden=(3,)), params_of(MLP(hidden=(3,)), (4,)))
    assert {name for name in Hooks._fields if getattr(do.hooks, name)} == own


@pytest.mark.parametrize("name", sorted(registry.REGISTRY["algorithm"]))
def test_hooks_of_freds_own_algorithms_are_the_methods_in_their_classes(name):
    cls = registry.lookup("algorithm", name)
    bases = cls.__mro__[: cls.__mro__.index(Server)]
    verbs = {"sends": "send", "remembers": "memory", "contributes": "contribute", "publishes": "publish"}
    verbs |= {"synchronizes": "synchronize"}
    expected = Hooks(**{field: any(hook in vars(base) for base in bases) for field, hook in verbs.items()})
    server = cls.example()
    if server.codec is not None:  # which remembers what it has left out
        expected = expected._replace(sends=True, remembers=True)
    do = arithmetic(server, MLP(hidden=(3,)), params_of(MLP(hidden=(3,)), (4,)))
    assert do.hooks == expected


class OwnRate(Server):
    """Steps with the number that it was given, not with the one in its state."""

    def apply_update(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> State:
        params = jax.tree.map(lambda now, grad: now - self.learning_rate * grad, state.params, message)
        return state.replace(params=params, clock=state.clock + 1)


class LongSteps(Server):
    """Asks in Python how large its rate is, when it is traced."""

    protocol: ClassVar[str] = "synchronous"

    def apply_round(self, state: State, total: Message, timestamp: Scalar, count: Scalar) -> State:
        return self.step(state, total, scale=2.0 if self.learning_rate > 0.15 else 1.0)


def by_numpy(outcome: Outcome, rate: float) -> dict[str, np.ndarray]:
    """Return the parameters that plain SGD with this rate makes from the run's schedule, in double precision."""
    task = outcome.run.task
    assert task is not None
    data = task.data.load(outcome.seed).train
    server = PlainSGD({name: array.astype(float) for name, array in outcome.initial.items()}, rate)
    (params,) = recompute(
        outcome.schedule.frame(),
        [server],
        data.inputs,
        data.answers,
        lambda *key: batch_indices(outcome.seed, *key, batch_size=task.batch_size, examples=len(data)),
    )
    return params


def assert_by_numpy(outcome: Outcome, rate: float) -> None:
    """The run is plain SGD with this rate, and no other rate that a test uses comes near it."""
    assert largest_relative_error(outcome.final, by_numpy(outcome, rate)) < 1e-4
    assert largest_relative_error(outcome.final, by_numpy(outcome, 1.3 * rate)) > 1e-3


class TestLearningRates:
    RATES = [0.02 * 1.5**number for number in range(8)]
    RUN = {"task": {**TASK, "model": {"name": "mlp", "hidden": [5]}, "batch_size": 3}, "stop": {"gradients": 40}}

    @pytest.mark.parametrize("inline", [False, True])
    def test_eight_share_one_compilation_and_each_is_used(self, inline):
        before, outcomes, compilations = compiled.cache_info(), [], []

        def note(event: str, duration_secs: float, **_: str | int) -> None:
            if "backend_compile" in event:
                compilations.append(event)

        jax.monitoring.register_event_duration_secs_listener(note)
        try:
            for rate in self.RATES:
                run = make_run({"name": "asgd", "learning_rate": rate}, **self.RUN)
                outcomes.append(execute("run", run, 4, inline))
                assert len(outcomes) > 1 or compilations, "the first is compiled"
                if len(outcomes) == 1:
                    compilations.clear()
        finally:
            jax.monitoring.unregister_event_duration_listener(note)
        assert not compilations, "nothing is compiled for the other seven"
        after = compiled.cache_info()
        if not inline:
            assert (after.misses - before.misses, after.hits - before.hits) == (1, 7)
        assert len({outcome.schedule.digest() for outcome in outcomes}) == 1
        assert len({outcome.params_digest for outcome in outcomes}) == 8
        for rate, outcome in zip(self.RATES, outcomes, strict=True):
            assert_by_numpy(outcome, rate)

    @pytest.mark.parametrize("rate", [0.1, 0.2])
    def test_an_algorithm_that_reads_its_own_gets_it(self, rate):
        run = make_run(OwnRate(learning_rate=rate), **self.RUN)
        replayed = execute("run", run, 4)
        assert same(replayed, execute("run", run, 4, inline=True))
        assert_by_numpy(replayed, rate)

    @pytest.mark.parametrize(("rate", "meant"), [(0.1, 0.1), (0.2, 0.4)])
    def test_an_algorithm_may_ask_in_python_what_its_rate_is(self, rate, meant):
        run = make_run(LongSteps(learning_rate=rate), **self.RUN)
        replayed = execute("run", run, 4)
        assert same(replayed, execute("run", run, 4, inline=True))
        assert_by_numpy(replayed, meant)


@pytest.mark.parametrize(("workers", "missing"), [(9, 2), (11, 3)])
def test_rounds_of_fewer_than_their_batches_are_padded_to_are_means_of_those_who_came(workers, missing):
    run = make_run(
        "ssgd",
        cluster={"workers": workers, "compute": COMPUTE},
        protocol={"backup_workers": missing},
        stop={"updates": 12},
    )
    replayed = execute("run", run, 2)
    assert same(replayed, execute("run", run, 2, inline=True))
    assert_by_numpy(replayed, 0.1)


class TestSteps:
    """A verb at a time, on numbers that NumPy computes the same way."""

    MODEL = MLP(hidden=(3,))

    def arithmetic(self) -> Arithmetic:
        return arithmetic(ASGD(learning_rate=0.25), self.MODEL, self.params())

    def params(self) -> Params:
        return params_of(self.MODEL, (4,))

    def test_apply_steps_by_the_rate_and_commit_by_the_weighted_sum(self):
        do, grads = self.arithmetic(), self.params()
        state = do.start([self.params()], 1)[0]
        before, by = named(state.params), named(grads)
        stepped, committed = jax.jit(do.apply)(state, grads, 0, 1), jax.jit(do.commit)(state, grads, jnp.float32(0.5), 2)
        expected = {name: before[name] - 0.25 * by[name] for name in before}
        assert largest_relative_error(named(stepped.params), expected) < 1e-6
        expected = {name: before[name] - 0.25 * 0.5 * by[name] for name in before}
        assert largest_relative_error(named(committed.params), expected) < 1e-6
        assert (int(stepped.clock), int(committed.clock)) == (1, 1)

    def test_mix_adds_up_in_order_onto_what_is_there(self):
        do, models = self.arithmetic(), [self.params() for _ in range(4)]
        weights = [np.float32(weight) for weight in (0.1, 1.7, 0.3)]
        found, onto = do.mix(models[:3], weights), do.mix(models[:3], weights, models[3])
        first, second, third, there = map(named, models)
        for name in first:
            scaled = [array[name] * weight for array, weight in zip((first, second, third), weights, strict=True)]
            np.testing.assert_array_equal(named(found)[name], (scaled[0] + scaled[1]) + scaled[2])
            np.testing.assert_array_equal(named(onto)[name], ((there[name] + scaled[0]) + scaled[1]) + scaled[2])

    def test_verbs_after_each_other_are_rounded_one_by_one_wherever_they_are_compiled(self):
        """A compiler that may would multiply the two constants first."""
        do, params, weights = self.arithmetic(), {"w": DRAW.normal(size=1000).astype("f")}, (0.1, 0.7)
        once = jax.jit(lambda params: do.mix([do.mix([params], [weights[0]])], [weights[1]]))
        twice = (params["w"] * np.float32(weights[0])) * np.float32(weights[1])
        merged = params["w"] * (np.float32(weights[0]) * np.float32(weights[1]))
        np.testing.assert_array_equal(once(params)["w"], twice)
        assert np.any(twice != merged)

    def test_replicas_start_from_the_models_in_turn_each_block_with_the_rate(self):
        models = [params_of(self.MODEL, (4,)) for _ in range(2)]
        layout = Layout(5, range(5), range(0), blocks=2)
        do = arithmetic(ASGD(learning_rate=0.25), self.MODEL, models[0], layout=layout)
        states = do.start(models, 5)
        assert len(states) == 10
        assert [float(state.rate) for state in states] == [0.25] * 10
        assert [int(state.clock) for state in states] == [0] * 10
        for replica in range(5):
            own = do.blocks.join([state.params for state in states[2 * replica : 2 * replica + 2]])
            assert_same_bits(own, models[replica % 2])


class Falls(Server):
    """Tests its rate for truth."""

    def apply_update(self, state: State, message: Any, timestamp: Any, worker: Any) -> State:
        return self.step(state, message, scale=(self.learning_rate or 0.01) / self.learning_rate)


class Compares(Server):
    """Looks whether its rate is a certain one."""

    def apply_update(self, state: State, message: Any, timestamp: Any, worker: Any) -> State:
        return self.step(state, message, scale=2.0 if self.learning_rate == 0.5 else 1.0)


class Caps(Server):
    """Lets its rate count only up to 1."""

    def apply_update(self, state: State, message: Any, timestamp: Any, worker: Any) -> State:
        return self.step(state, message, scale=min(1.0, self.learning_rate))


class ByNumber(Server):
    """Uses its rate beside the number of gradients in a round, which is 1 here."""

    def apply_update(self, state: State, message: Any, timestamp: Any, worker: Any) -> State:
        return self.step(state, message, scale=1 + self.learning_rate * worker)


class Shares(Server):
    """Divides its rate by the number of workers from the start."""

    def init(self, params: Any, workers: int) -> State:
        state = super().init(params, workers)
        return state.replace(rate=state.rate / workers)


class Bounded(Server):
    """Has a rate that must be below 1."""

    learning_rate: float = Field(gt=0, lt=1, description="below 1")


@pytest.mark.parametrize(
    ("server", "step"), [(Falls, 0.5), (Compares, 1.0), (Caps, 0.25), (ByNumber, 2.0), (Shares, 0.125), (Bounded, 0.5)]
)
def test_whatever_a_class_does_with_its_rate_it_is_its_own(server, step):
    model = MLP(hidden=(3,))
    params = params_of(model, (4,))
    do = arithmetic(server(learning_rate=0.5), model, params)
    (state,) = do.start([params], 1)
    after = jax.jit(do.apply)(state, jax.tree.map(jnp.ones_like, params), 0, 6)
    moved = params["layer0"]["biases"] - after.params["layer0"]["biases"]
    assert np.allclose(moved, step)


@pytest.mark.parametrize(("count", "numbers", "kept"), [(0, 3, 0), (1, 3, 1), (5, 3, 8), (8, 3, 8), (5, 1 << 19, 5)])
def test_small_stacks_have_room_for_a_power_of_two(count, numbers, kept):
    assert rounded(count, {"weights": np.zeros(numbers)}) == kept
