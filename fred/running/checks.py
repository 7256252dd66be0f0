"""Checks before a run: data, model and algorithm must fit each other, and users' functions must do what they should."""

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fred.base import cached
from fred.base.errors import FredError
from fred.components import own_code, registry
from fred.components.component import Object
from fred.learning.data.dataset import Data, Dataset, loaded
from fred.learning.keys import key_of
from fred.learning.loss import Loss, LossFunction, check_memory, default_loss, initial_params, machine_memory
from fred.learning.models.model import Model, Params
from fred.learning.server import Server, State
from fred.replay.arithmetic import Arithmetic
from fred.schedule.layout import Layout
from fred.specification.shape import Run
from fred.specification.task import Task

_CLOCK = 7  # an arbitrary clock


def check_task(task: Task, run: Run, seed: int) -> Arithmetic:
    """Return a run's arithmetic, if its data, model, algorithm and blocks fit each other. Raises FredError otherwise.

    The check creates nothing that runs would create again: it uses shapes, and caches everything else.
    """
    data, layout = loaded(task.data, seed), run.protocol.layout(run.cluster)
    _check_parts(task.model, task.loss, task.data, seed, layout.replicas, task.replicas_start == "apart")
    check_target(run, data)
    params = initial_params(task.model, data, seed)
    check_server(run.algorithm, params, run.cluster.size)
    if layout.blocks > 1:
        check_divisible(run.algorithm, params)
        check_whole_matrices(run.algorithm, layout)
    check_division(task, data, run.cluster.size)
    if task.has_unequal_batches and task.model.draws:
        raise FredError(
            f"model `{registry.name_of('model', task.model)}` is random in training or looks at whole minibatches, which are "
            "padded to one size if `task.batch_size` is a list: give `task.batch_size` one number"
        )
    loss = Loss.for_data(task.model, task.loss, data, task.l2)
    arithmetic = Arithmetic.build(run.algorithm, loss, params, layout, run.cluster.size, task.batch_size, task.context or 1)
    _ = arithmetic.sizes  # as the algorithm counts them
    if arithmetic.hooks.remembers:
        check_memories(arithmetic, params)
    return arithmetic


@cached.data(8)  # for points of a sweep, which usually share all of them
def _check_parts(model: Model, loss: LossFunction | None, data: Data, seed: int, replicas: int, apart: bool) -> None:
    """Raise FredError unless model, loss and data fit each other; `apart`: replicas start from different parameters."""
    arrays = loaded(data, seed)
    check_memory(model, arrays, replicas)
    params = initial_params(model, arrays, seed)
    check_outputs(model, params, arrays)
    check_loss(loss or default_loss(arrays.classifies), arrays)
    if apart:
        _check_apart(model, arrays, seed, params)


def _check_apart(model: Model, data: Dataset, seed: int, params: Params) -> None:
    """Raise FredError if a model has the same initial parameters with every seed."""
    leaves = map(jax.tree.leaves, (params, initial_params(model, data, seed + 1)))
    if all(np.array_equal(*pair) for pair in zip(*leaves, strict=True)):
        raise FredError(
            f"`task.replicas_start: apart` needs a model that draws its initial parameters, and those of "
            f"`{registry.name_of('model', model)}` are always the same: take another model, such as `mlp`, or `equal`"
        )


def check_division(task: Task, data: Dataset, workers: int) -> None:
    """Raise FredError unless divided examples suffice for all workers and have the labels that the division needs."""
    if task.division != "shared" and len(data.train) < workers:
        raise FredError(f"{len(data.train)} examples cannot be divided among {workers} workers: take `division: shared`")
    if task.division == "by-owner":
        number = 0 if data.owners is None else len(np.unique(data.owners))
        if number != workers:
            owners = "name no owners" if data.owners is None else f"have {number:,} owners, and there are {workers:,} workers"
            raise FredError(f"`division: by-owner`: the data {owners}: give `train_owners`, with as many owners as workers")
    if task.division in ("by-label", "dirichlet") and data.tokens:
        raise FredError(f"`division: {task.division}` needs a class for each example, and these are sequences: take `divided`")
    if task.division in ("by-label", "dirichlet") and not data.classifies:
        raise FredError(f"`division: {task.division}` needs classes, and these data are values to predict: take `divided`")


def check_memories(arithmetic: Arithmetic, params: Params) -> None:
    """Raise FredError if the memories of all workers do not fit into this machine's."""
    shapes = jax.tree.leaves(jax.eval_shape(arithmetic.remember, params))
    size, available = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in shapes), machine_memory()
    if size * arithmetic.workers > available:
        raise FredError(
            f"`{registry.name_of('algorithm', arithmetic.server_with_rate)}` stores {size / 1e6:,.1f} MB for each of "
            f"{arithmetic.workers:,} workers, {size * arithmetic.workers / 1e9:,.0f} GB in total, and this machine has "
            f"{available / 1e9:,.0f} GB; use a smaller model, fewer workers, or an algorithm and codec without memory"
        )


def check_target(run: Run, data: Dataset) -> None:
    """Raise FredError for a target error of 1 or more, if the error is a share of the examples."""
    target, loss = run.evaluate.target_error, run.task.loss if run.task else None
    is_share = data.classifies and type(loss or default_loss(data.classifies)).error is LossFunction.error
    if is_share and target is not None and target >= 1:
        raise FredError(f"`target_error` is {target:g}; expected a share of the examples, below 1, such as 0.12 for 12 %")


def check_outputs(model: Model, params: Params, data: Dataset) -> None:
    """Raise FredError unless a model returns one number per class, or per value to predict, for each example."""
    inputs = jax.ShapeDtypeStruct((2, *data.train.inputs.shape[1:]), jnp.float32)
    name = model.kind if isinstance(model, Object) else registry.name_of("model", model)
    unit = "classes" if data.classifies else "values to predict"
    calls: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {f"model `{name}`": (model.apply, (params, inputs))}
    if model.draws:
        calls[f"`training` of model `{name}`"] = model.training, (params, inputs, key_of(0))
    for subject, (function, arguments) in calls.items():
        with _naming_inputs(subject, inputs.shape):
            output = jax.eval_shape(function, *arguments)
        expected = (2, *(data.train.answers.shape[1:] if data.tokens else ()), data.outputs)
        if getattr(output, "shape", None) != expected:
            places = " at each place of a sequence" if data.tokens else ""
            raise FredError(
                f"{subject} gives {_shape(output)} for 2 examples; expected {list(expected)}: one number for each of the "
                f"{data.outputs} {unit}{places}"
            )


@contextmanager
def _naming_inputs(subject: str, shape: tuple[int, ...]) -> Iterator[None]:
    """Report errors in a user's model together with the model's input."""
    try:
        yield
    except FredError:
        raise
    except Exception as error:
        place, message = own_code.line_of(error), str(error).strip().split("\n")[0]
        where = f" ({place})" if place else ""
        message += "; is a `return` missing?" if "NoneType" in message else ""
        raise FredError(
            f"{subject} cannot take these inputs, here 2 examples, {list(shape)}{where}: {type(error).__name__}: {message}"
        ) from error


def check_loss(function: LossFunction, data: Dataset) -> None:
    """Raise FredError unless a loss returns one differentiable number per example, and one error."""
    function.check(data)
    name = registry.name_of("loss", function)
    if ":" not in name:
        return  # FRED's own, which its tests check
    outputs = jax.ShapeDtypeStruct((2, *(data.train.answers.shape[1:] if data.tokens else ()), data.outputs), jnp.float32)
    answers = jax.ShapeDtypeStruct((2, *data.train.answers.shape[1:]), data.train.answers.dtype)
    for hook, shape, content in (("losses", (2,), "one number for each example"), ("error", (), "one number for all of them")):
        output = jax.eval_shape(getattr(function, hook), outputs, answers)
        if getattr(output, "shape", None) != shape or not jnp.issubdtype(output.dtype, jnp.floating):
            kind = f" {output.dtype}" if hasattr(output, "dtype") else ""
            expected = f"expected {list(shape)} float32: {content}"
            raise FredError(f"`{hook}` of loss `{name}` gives {_shape(output)}{kind} for 2 examples; {expected}")


def _shape(output: Any) -> Any:
    return list(output.shape) if hasattr(output, "shape") else type(output).__name__


def _generator_states() -> tuple[Any, ...]:
    """Return the states of Python's and NumPy's global generators, which change with every draw."""
    _, words, place, *_ = np.random.get_state()
    return random.getstate(), np.asarray(words).tobytes(), place


def check_divisible(server: Server, params: Params) -> None:
    """Raise FredError unless messages have the shapes of the parameters, so that each server can get a block."""
    message = jax.eval_shape(lambda params: server.send(server.memory(params), params, params)[0], params)
    shapes = [[(jax.tree.structure(tree), leaf.shape) for leaf in jax.tree.leaves(tree)] for tree in (message, params)]
    if shapes[0] != shapes[1]:
        raise FredError(
            f"messages of `{registry.name_of('algorithm', server)}` are not shaped like the parameters, so several servers "
            "cannot each get a block of them: `cluster.servers` must be 1"
        )


def check_whole_matrices(server: Server, layout: Layout) -> None:
    """Raise FredError if an optimizer that treats arrays as matrices would get parts of them."""
    for part in server.optimizer:
        if part.of_matrices and layout.cut != "layers":
            verb = "may treat" if isinstance(part, Object) else "treats"
            name = part.kind if isinstance(part, Object) else part.name
            raise FredError(
                f"optimizer `{name}` {verb} arrays of two dimensions as matrices, and blocks are parts of these: "
                "`cluster.servers` must be 1, or blocks whole layers"
            )


def check_server(server: Server, params: Params, workers: int) -> None:
    """Raise FredError unless each update returns a state like its input, with the clock advanced by one."""
    name = registry.name_of("algorithm", server)
    if ":" not in name:
        return  # FRED's own, which its tests check
    state = server.init(params, workers)
    if not isinstance(state, State) or not hasattr(state, "clock"):
        raise FredError(f"`init` of `{name}` returns {type(state).__name__}; expected the State that `super().init` makes")
    model = server.model(state.params)
    message, _ = server.send(server.memory(params), model, jax.tree.map(jnp.zeros_like, model))
    contribution = server.contribute(state, message, state.clock, 0)
    update: dict[str, Callable[[State], Any]] = {
        "apply_update": lambda state: server.apply_update(state, message, state.clock, 0),
        "apply_round": lambda state: server.apply_round(state, contribution, state.clock, 1),
    }
    for hook in filter(server.overrides, update):
        _check_update(f"`{hook}` of `{name}`", update[hook], state.replace(clock=jnp.int32(_CLOCK)))


def _check_update(name: str, update: Callable[[State], Any], state: State) -> None:
    """Raise FredError unless `update`, called `name` in messages, is a traceable function from `state` to the next state."""
    generator_states = _generator_states()
    try:
        after = jax.eval_shape(update, state)
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        place = own_code.line_of(error)
        where = f" ({place})" if place else ""
        raise FredError(
            f"{name} uses the value of a traced array{where}; expected `jnp.where` instead of `if`, and "
            "functions of `jax.numpy` instead of those of `math` and `numpy`"
        ) from error
    if generator_states != _generator_states():
        raise FredError(
            f"{name} draws from `random` or `numpy.random`, which would give one constant when it is compiled; expected "
            "`jax.random`, with a key from the state"
        )
    if after is None:
        raise FredError(f"{name} returns nothing; a `return` is missing")
    if not isinstance(after, State):
        raise FredError(f"{name} returns {type(after).__name__}; expected the new state, such as `self.step(state, grads)`")
    fields, new_fields = dict(vars(state)), dict(vars(after))
    if fields.keys() != new_fields.keys():
        raise FredError(
            f"{name} returns a state with {sorted(new_fields)}; expected the fields that `init` made: {sorted(fields)}"
        )
    for field, values in fields.items():
        leaves = [jax.tree.leaves(values), jax.tree.leaves(new_fields[field])]
        shapes = [[(leaf.shape, np.dtype(leaf.dtype)) for leaf in arrays] for arrays in leaves]
        if shapes[0] != shapes[1]:
            raise FredError(f"{name} changes the shapes or types in `{field}`: {shapes[0]} became {shapes[1]}")
    clock = int(jax.jit(lambda state: update(state).clock)(state))
    if clock != _CLOCK + 1:
        raise FredError(
            f"{name} returns a clock of {clock} for a clock of {_CLOCK}; every update must advance it by one, as "
            "`self.step` does (or `state.replace(clock=state.clock + 1, ...)`)"
        )
