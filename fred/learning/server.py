"""The base class of algorithms: a server, whose methods define what an update does to the parameters."""

from __future__ import annotations

import math
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from fred.base.errors import FredError
from fred.base.imports import jax, jnp, optax
from fred.components.component import Component
from fred.components.one_of import OneOf
from fred.learning import optimizer as optimizers
from fred.learning.codecs.codec import Codec
from fred.learning.models.model import Params
from fred.learning.optimizer import Optimizer, Schedule, Transformation

Rate = Annotated[float, Field(gt=0)]
Decay = Annotated[float, Field(ge=0, lt=1)]  # of a moving average; a momentum
Scaling = Literal["none", "gradients", "workers"]
Scalar = Any  # an array of no dimensions, or a number
Message = Any  # a worker's message: a pytree like the parameters, unless `send` returns something else


class Family(StrEnum):
    """Families of algorithms, by how they treat stragglers and stale gradients, in the order of docs/algorithms.md."""

    FRESH = "Nothing is stale"
    AS_THEY_COME = "Stale gradients, as they come"
    ANSWERED = "Stale gradients, and an answer to them"
    OF_ONE_AGE = "Gradients of one age, as in pipelines"
    AVERAGED = "Models of the workers' own, averaged"
    OWN = "Your own"


class State:
    """A server's state, with the attributes `params`, `clock` (updates so far), `optimizer`, `rate`, and the algorithm's own.

    Args:
        fields: pytrees of arrays, by attribute name.

    A state is a pytree, so jax functions accept it. It is immutable: each update makes a new state.

        >>> import fred
        >>> import jax
        >>> state = fred.State(params={"w": jax.numpy.ones(2)}, clock=jax.numpy.int32(3))
        >>> later = state.replace(clock=state.clock + 1, momentum=jax.numpy.float32(0.9))
        >>> int(state.clock), int(later.clock), round(float(later.momentum), 2)
        (3, 4, 0.9)
        >>> jax.tree.map(lambda leaf: 2 * leaf, later).params["w"].tolist()
        [2.0, 2.0]
        >>> state.momentum
        Traceback (most recent call last):
        AttributeError: this server's state has no `momentum`; it has clock, params
    """

    def __init__(self, **fields: Any):
        _register()
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"this server's state has no `{name}`; it has {', '.join(sorted(self.__dict__))}")

    def replace(self, **changes: Any) -> State:
        """Return a copy with some fields changed or added.

        Args:
            changes: new values, by field name; all other fields stay the same.
        """
        return State(**{**self.__dict__, **changes})

    def tree_flatten_with_keys(self) -> tuple[list[tuple[Any, Any]], tuple[str, ...]]:
        """Return the fields in the order of their names, each with its key, and the names. JAX calls it to flatten a state."""
        names = tuple(sorted(self.__dict__))
        return [(jax.tree_util.GetAttrKey(name), self.__dict__[name]) for name in names], names

    @classmethod
    def tree_unflatten(cls, names: tuple[str, ...], values: list[Any]) -> State:
        """Return the state with fields of these `names` and `values`, which `tree_flatten_with_keys` returned."""
        return cls(**dict(zip(names, values, strict=True)))


@cache
def _register() -> None:
    """Register `State` as a pytree with JAX, once, before the first state is made."""
    jax.tree_util.register_pytree_with_keys_class(State)


class Server(Component):
    """An algorithm, synchronous or asynchronous: `apply_update` defines what a gradient does to the parameters.

    Subclasses override `apply_update`, and other methods if they need them. The protocol decides which workers wait. All
    methods are pure functions that JAX traces, so they must not branch on array values. Methods that are not overridden
    cost no time.

    An algorithm that halves the step of stale gradients, and two updates with gradients at the initial parameters:

        >>> import fred
        >>> import jax.numpy as jnp
        >>> class Wary(fred.Server):
        ...     def apply_update(self, state, message, timestamp, worker):
        ...         fresh = state.clock == timestamp
        ...         return self.step(state, message, scale=jnp.where(fresh, 1.0, 0.5))
        >>> server = Wary(learning_rate=0.5)
        >>> state = server.init({"w": jnp.array([1.0, 2.0])}, workers=2)
        >>> state = server.apply_update(state, {"w": jnp.array([1.0, 0.0])}, timestamp=0, worker=0)
        >>> state.params["w"].tolist()
        [0.5, 2.0]
        >>> state = server.apply_update(state, {"w": jnp.array([1.0, 0.0])}, timestamp=0, worker=1)
        >>> state.params["w"].tolist(), int(state.clock)
        ([0.25, 2.0], 2)
    """

    name: ClassVar[str] = ""  # in scenarios, of a class in `fred/systems`
    family: ClassVar[Family] = Family.OWN
    rule: ClassVar[str] = ""  # update rule as formulas, for docs/algorithms.md, which defines the symbols
    protocol: ClassVar[str] = "asynchronous"  # used where the scenario names none
    protocol_options: ClassVar[dict[str, Any]] = {}  # defaults of that protocol's options, where the scenario gives none
    divisible: ClassVar[bool] = True  # False: `params` hold more than the model, so servers cannot hold a block each
    draws: ClassVar[bool] = (
        False  # True: states have `words`, two 32-bit words that depend on the seed and are equal on all replicas
    )
    weights_examples: ClassVar[bool] = True  # False: a round's gradients must be means of the same number of examples
    has_statistic: ClassVar[bool] = False  # True: `statistic` is defined, for protocols whose timing depends on it
    pulls_models: ClassVar[bool] = False  # True: `synchronize` pulls (`pulls` of `outer-steps`) or replaces: no averages

    learning_rate: Rate = Field(default=..., examples=[0.1], description="step size of a fresh gradient")
    optimizer: Optimizer = Field(
        default=(Transformation.unchecked("sgd"),),
        description="optax gradient transformation, `{name: ..., options}`, or a list of them",
    )
    schedule: Schedule = Field(default=(), description="optax schedule, or a list of them: factors of the learning rate")
    counts: Literal["updates", "gradients"] = Field(
        default="updates",
        description="unit of the schedule: a replica's updates, or the gradients in them (averagings do not count)",
    )
    scaling: Scaling = Field(
        default="none", description="linear scaling of the rate: with the number of gradients in each update, or of all workers"
    )
    average: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        default=None, description="decay of a moving average of the parameters, which is evaluated instead of them"
    )
    codec: Annotated[Codec, OneOf("codec")] | None = Field(
        default=None, description="codec of workers' gradients and pseudo-gradients; absent: 4 bytes for each number"
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **settings: Any) -> None:
        """Drop inherited options of another protocol. Raises FredError if `protocol` is not a name."""
        super().__pydantic_init_subclass__(**settings)
        if not isinstance(cls.protocol, str):
            raise FredError(
                f"class `{cls.__name__}`: `protocol`: expected the name of a protocol, such as `softsync`; "
                "its options are those of `protocol_options`, such as {'n': 2}"
            )
        if "protocol" in vars(cls) and "protocol_options" not in vars(cls):
            cls.protocol_options = {}

    @model_validator(mode="before")
    @classmethod
    def _factor_of_objects(cls, options: Any) -> Any:
        """Fill in a factor of 1 for an object of optax, whose learning rate is in it."""
        if isinstance(options, dict):
            for option, rate in (("optimizer", "learning_rate"), ("outer", "outer_rate")):
                if option in options and rate not in options and optimizers.has_own_rate(options[option]):
                    options = {**options, rate: 1.0}
        return options

    @property
    def has_plain_steps(self) -> bool:
        """Return True for steps of SGD without momentum, which sum to the learning rate times the sum of the gradients."""
        first, *rest = self.optimizer
        return not rest and first.name == "sgd" and not first.arguments.get("momentum")

    def check(self, workers: int) -> None:
        """Raise ValueError if the options do not fit the number of workers.

        Args:
            workers: number of all workers.
        """

    def init(self, params: Params, /, workers: int) -> State:
        """Return the state before the first update.

        Args:
            params: the model's initial parameters, or a block of them: a pytree of float32 arrays.
            workers: number of all workers.
        """
        memory = optimizers.build(self.optimizer, 1.0).init(params)
        rate = self.learning_rate * (workers if self.scaling == "workers" else 1)
        return State(params=params, clock=jnp.int32(0), optimizer=memory, rate=jnp.float32(rate))

    def place(self, state: State, /, replica: int, replicas: int) -> State:
        """Return the initial state of one replica. Override it if replicas start from different states.

        Args:
            state: the state that `init` returned, the same for all replicas.
            replica: number of the replica (`Layout`).
            replicas: number of replicas.
        """
        return state

    def apply_update(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> State:
        """Update the parameters with one worker's message, a gradient at the parameters of update `timestamp`.

        Args:
            state: the server's state; `state.clock - timestamp` is the gradient's staleness, updates.
            message: the message that `send` returned, a pytree like `state.params` unless `send` returns something else.
            timestamp: the clock when the worker read its parameters, updates [].
            worker: number of the worker, from 0; -1 for a round, which belongs to no single worker [].

        Returns:
            The new state, its clock larger by one.
        """
        return self.step(state, message)

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Update the parameters with the messages of a round: with their mean, unless the protocol weights them differently.

        Args:
            state: the server's state.
            total: the weighted sum of the messages after `contribute`; zeros if the round has no messages.
            timestamp: the clock, updates []: a round counts as one fresh gradient, whatever the staleness of its messages.
            count: number of messages in the round [].
        """
        return self.apply_update(state, total, timestamp, jnp.int32(-1))

    def model(self, params: Params, /) -> Params:
        """Return the model at which workers compute gradients, and whose loss is evaluated.

        Args:
            params: parameters of a state or a mailbox: those of the model, unless `init` adds others. In
                evaluations they are means over the replicas and, with the option `average`, over past updates.
        """
        return params

    def memory(self, params: Params, /) -> Any:
        """Return a worker's initial memory, which `send` updates: a pytree of arrays of constant shapes.

        Args:
            params: the parameters that the worker starts from.
        """
        return ()

    def send(self, memory: Any, params: Params, grads: Params, /) -> tuple[Message, Any]:
        """Return a worker's message and its new memory.

        Args:
            memory: the worker's memory, from `memory` or its last `send`.
            params: the parameters that the worker has read.
            grads: the worker's gradient at these parameters, or the pseudo-gradient of its local steps: the parameters
                before them less those after them. A pytree like the model's parameters.
        """
        return grads, memory

    def send_steps(self, memory: Any, params: Params, grads: Params, after: Params, /) -> tuple[Message, Any]:
        """Return a worker's message after local steps, and its new memory; by default, `send` makes it of `grads` alone.

        Args:
            memory: the worker's memory.
            params: the model before the steps.
            grads: the pseudo-gradient, a pytree like the model's parameters.
            after: the parameters after the steps, like `state.params`, which `init` may have extended.

        Returns:
            A message with the same shapes as those of `send`.
        """
        return self.send(memory, params, grads)

    def contribute(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> Message:
        """Return a message's contribution to its round. It may depend on the state when the message arrives.

        Args:
            state: the server's state when the message arrives.
            message: the worker's message.
            timestamp: the clock when the worker read its parameters, updates [].
            worker: number of the worker, from 0 [].

        Returns:
            A pytree with the same shapes for all messages. The sum of these is the `total` of `apply_round`.
        """
        return message

    def sent_bytes(self, message: Message, /) -> int:
        """Return the size of a `message`, or of a block of it, on the wire, in bytes. Shapes and types of arrays suffice."""
        return _bytes(message) if self.codec is None else self.codec.size(message)

    def published_bytes(self, params: Params, /) -> int:
        """Return the size of the `params` that a worker reads, or of a block of them, on the wire, in bytes.

        Shapes and types of arrays suffice.
        """
        return _bytes(params)

    def averaged_bytes(self, params: Params, /) -> tuple[int, ...]:
        """Return the bytes that each averaging exchanges, from the first one on, as a cycle that repeats.

        Return an empty tuple if each averaging exchanges all parameters.

        Args:
            params: the parameters that workers read, or their shapes and types.
        """
        return ()

    def synchronize(self, state: State, mixed: Params, /, keep: Scalar, weight: Scalar) -> State:
        """Return the state of a replica after averaging its parameters with those in a mailbox.

        Args:
            state: the replica's state.
            mixed: the parameters in the mailbox, like `state.params`: another replica's, or a weighted sum of several.
            keep: weight of the replica's own parameters []. With 0 they are replaced, even if they are infinite.
            weight: weight of `mixed` [].
        """

        # 0 x infinity is NaN: without the first branch, a replica that has diverged would stay so after it has been replaced.
        def average(params: jax.Array, received: jax.Array) -> jax.Array:
            return jnp.where(keep == 0, weight * received, keep * params + weight * received)

        return state.replace(params=jax.tree.map(average, state.params, mixed))

    def statistic(self, state: State, /) -> Scalar:
        """Return a number on which a protocol's timing may depend. Such a run is computed while it is simulated.

        Args:
            state: the server's current state.
        """
        raise NotImplementedError

    def step(self, state: State, grads: Params, scale: float | Scalar = 1.0, model: Params | None = None) -> State:
        """Make one step of the optimizer, and multiply the step by `scale`. This scales the learning rate, not the gradient.

        Args:
            state: the server's state; its `rate` is the current learning rate.
            grads: a gradient, like `state.params`.
            scale: factor of the step [].
            model: the parameters that the optimizer receives, for weight decay for example; None for `state.params`.

        Returns:
            The state with new parameters and a new optimizer state, its clock larger by one.
        """
        transformation = optimizers.build(self.optimizer, state.rate)
        updates, memory = transformation.update(grads, state.optimizer, state.params if model is None else model)
        params = optax.apply_updates(state.params, jax.tree.map(lambda update: scale * update, updates))
        return state.replace(params=params, clock=state.clock + 1, optimizer=memory)

    def overrides(self, hook: str) -> bool:
        """Return True if this algorithm overrides the method `hook`, such as `send`."""
        return getattr(type(self), hook) is not getattr(Server, hook)


def _bytes(arrays: Any) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(arrays))


class Moved(Server):
    """A server that subtracts a round's pseudo-gradients from its model, without an optimizer of its own.

    A worker has stepped from 1 to 0.5, so its pseudo-gradient is 1 - 0.5:

        >>> from fred.learning.server import Moved
        >>> import jax.numpy as jnp
        >>> server = Moved(learning_rate=0.1)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=2)
        >>> server.apply_round(state, {"w": jnp.array([1.0 - 0.5])}, timestamp=0, count=1).params["w"].tolist()
        [0.5]
    """

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Subtract `total`, the sum of the pseudo-gradients times the protocol's weights."""
        params = jax.tree.map(jnp.subtract, state.params, total)
        return state.replace(params=params, clock=state.clock + 1)
