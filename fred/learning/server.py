"""What every algorithm is: a server that says what an update does to the parameters."""

from __future__ import annotations

import math
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from fred.base.later import jax, jnp, optax
from fred.components.component import Component, OneOf
from fred.learning import optimizer as optimizers
from fred.learning.codecs.codec import Codec
from fred.learning.models.model import Params
from fred.learning.optimizer import Optimizer, Transformation
from fred.learning.rates import Schedule

Rate = Annotated[float, Field(gt=0)]
Decay = Annotated[float, Field(ge=0, lt=1)]  # of a moving average; a momentum
Share = Annotated[float, Field(ge=0, le=1)]
Scaling = Literal["none", "gradients", "workers"]
Scalar = Any  # an array of no dimensions, or a number
Message = Any  # what a worker sends: parameter-like arrays, unless `send` makes something else of them


class Family(StrEnum):
    """Of algorithms, by what becomes of those who are slow; in this order in docs/algorithms.md."""

    FRESH = "Nothing is stale"
    AS_THEY_COME = "Stale gradients, as they come"
    ANSWERED = "Stale gradients, and an answer to them"
    OF_ONE_AGE = "Gradients of one age, as in pipelines"
    AVERAGED = "Models of the workers' own, averaged"
    OWN = "Your own"


class State:
    """A server's memory: `params`, `clock` (updates so far), `optimizer`, `rate`, and what the algorithm adds: attributes.

    Args:
        fields: what it holds, by name: pytrees of arrays.

    It is a pytree, so jax functions take it whole. Nothing in it is changed: each update makes a new one.

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
        """A copy with some fields changed or added.

        Args:
            changes: values by the fields' names; all others stay as they are.
        """
        return State(**{**self.__dict__, **changes})

    def tree_flatten_with_keys(self) -> tuple[list[tuple[Any, Any]], tuple[str, ...]]:
        """The fields in the order of their names, each with its key, and these names: what JAX makes a pytree of."""
        names = tuple(sorted(self.__dict__))
        return [(jax.tree_util.GetAttrKey(name), self.__dict__[name]) for name in names], names

    @classmethod
    def tree_unflatten(cls, names: tuple[str, ...], values: list[Any]) -> State:
        """The state with fields of these `names` and `values`, one for each, as `tree_flatten_with_keys` gave them."""
        return cls(**dict(zip(names, values, strict=True)))


@cache
def _register() -> None:
    """Tell JAX that a `State` is a pytree, once, before there is one."""
    jax.tree_util.register_pytree_with_keys_class(State)


class Server(Component):
    """Asynchronous or synchronous, an algorithm is what `apply_update` does with a gradient.

    Subclasses override `apply_update`, and whichever of the other functions they need; who waits for whom is the protocol's
    business. All functions are pure and traced by JAX: no Python branches on array values. What is left as it is costs nothing.

    One that goes half the way with stale gradients; here two updates with gradients at the first parameters, by hand:

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

    family: ClassVar[Family] = Family.OWN
    rule: ClassVar[str] = ""  # what it does as formulas, for docs/algorithms.md, whose first lines say what the letters mean
    protocol: ClassVar[str] = "asynchronous"  # used where the scenario names none
    protocol_options: ClassVar[dict[str, Any]] = {}  # of that protocol, where the scenario does not give them
    page: ClassVar[str] = ""  # the module in `fred.systems` whose row it is made from
    divisible: ClassVar[bool] = True  # False: its parameters are not the model's alone, so servers cannot each hold a block
    draws: ClassVar[bool] = (
        False  # True: its states have `words`, two of 32 bits that follow from the seed, alike for all replicas
    )
    has_statistic: ClassVar[bool] = False  # True: `statistic` is there for protocols whose timing depends on it

    learning_rate: Rate = Field(examples=[0.1], description="step size of a fresh gradient")
    optimizer: Optimizer = Field(
        (Transformation.usual("sgd"),), description="optax gradient transformation, `{name: ..., options}`, or a list of them"
    )
    schedule: Schedule = Field((), description="optax schedule, or a list of them, by whose product the rate is multiplied")
    counts: Literal["updates", "gradients"] = Field(
        "updates", description="what a schedule counts: a replica's updates, or the gradients in them (but no averagings)"
    )
    scaling: Scaling = Field(
        "none", description="linear scaling: the rate is multiplied by the gradients in each update, or by all workers"
    )
    average: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        None, description="decay of a moving average of the parameters, which is evaluated in their place"
    )
    codec: Annotated[Codec, OneOf("codec")] | None = Field(
        None, description="how gradients and differences are coded on their way from workers; absent: 4 bytes for each number"
    )

    @field_validator("optimizer")
    @classmethod
    def _rate_enters(cls, optimizer: Optimizer) -> Optimizer:
        if sum(part.takes_rate for part in optimizer) != 1:
            raise ValueError("exactly one transformation must take the learning rate (sgd, adam, rmsprop, ...)")
        return optimizer

    def check(self, workers: int) -> None:
        """Refuse, with ValueError, a number of workers that the options do not fit.

        Args:
            workers: number of all workers.
        """

    def init(self, params: Params, workers: int) -> State:
        """The state before the first update.

        Args:
            params: the model's first parameters, or a block of them: a pytree of float32 arrays.
            workers: number of all workers.
        """
        memory = optimizers.build(self.optimizer, 1.0).init(params)
        rate = self.learning_rate * (workers if self.scaling == "workers" else 1)
        return State(params=params, clock=jnp.int32(0), optimizer=memory, rate=jnp.float32(rate))

    def place(self, state: State, replica: int, replicas: int) -> State:
        """The state with which a replica begins, where not all begin alike.

        Args:
            state: with which all would.
            replica: by number (`Layout`).
            replicas: how many there are.
        """
        return state

    def apply_update(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> State:
        """One update with one worker's message (its gradient), computed at the parameters of update `timestamp`.

        Args:
            state: what the server remembers; `state.clock - timestamp` is the gradient's staleness, updates.
            message: what `send` made of the worker's gradient, like `state.params` unless it made something else.
            timestamp: the clock when the worker's parameters were read, updates [].
            worker: its number, from 0; -1 for a round, which is nobody's own [].

        Returns:
            The state after it, its clock one more.
        """
        return self.step(state, message)

    def apply_round(self, state: State, total: Message, timestamp: Scalar, count: Scalar) -> State:
        """One update with a round's `count` messages: their mean, unless the protocol weighs them otherwise.

        Args:
            state: what the server remembers.
            total: the weighted sum of what `contribute` made of the messages; of nothing but zeros where there were none.
            timestamp: the clock, updates []: a round is stepped with as one fresh gradient, whatever the ages in it.
            count: messages in it [].
        """
        return self.apply_update(state, total, timestamp, jnp.int32(-1))

    def model(self, params: Params) -> Params:
        """The model that a state's `params` stand for: what gradients are computed at.

        Args:
            params: of a state or a mailbox: the model's own, unless `init` made more of them.
        """
        return params

    def memory(self, params: Params) -> Any:
        """What a worker remembers from one message to the next, at first: a pytree of arrays that keep their shapes.

        Args:
            params: the parameters that the worker starts from.
        """
        return ()

    def send(self, memory: Any, params: Params, grads: Params) -> tuple[Message, Any]:
        """What a worker sends, and its new memory.

        `grads` is its gradient at these parameters, or what its local steps have taken away from them.

        Args:
            memory: what the worker remembers, as `memory` or its last `send` left it.
            params: the parameters that it has read.
            grads: a pytree like the model's parameters.
        """
        return grads, memory

    def contribute(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> Message:
        """What of a message joins the round, by the state at the time.

        Args:
            state: what the server remembers when the message arrives.
            message: what the worker has sent.
            timestamp: the clock when the worker's parameters were read, updates [].
            worker: its number, from 0 [].

        Returns:
            What is added up, a pytree whose shapes are the same for all messages; the sum is the `total` of `apply_round`.
        """
        return message

    def publish(self, state: State, worker: Scalar) -> tuple[Params, State]:
        """What a worker reads, and the state after that.

        Args:
            state: what the server remembers when it sends.
            worker: who reads, from 0 [].
        """
        return state.params, state

    def sent_bytes(self, message: Message) -> int:
        """Bytes of a `message`, or a block of it, on the wire; told the shapes and types of its arrays."""
        return _bytes(message) if self.codec is None else self.codec.size(message)

    def published_bytes(self, params: Params) -> int:
        """Bytes of what `publish` returns, or a block of it, on the wire; told the shapes and types of `params`."""
        return _bytes(params)

    def averaged_bytes(self, params: Params) -> tuple[int, ...]:
        """Bytes of what is averaged, from the first average on, cyclically; empty: always all that `publish` returns.

        Args:
            params: what `publish` returns, or its shapes and types.
        """
        return ()

    def synchronize(self, state: State, mixed: Params, keep: Scalar, weight: Scalar) -> State:
        """The state whose parameters meet a mailbox.

        Args:
            state: of the replica that is averaged with others.
            mixed: the parameters in the mailbox, like `state.params`: of others, or a weighted sum of several.
            keep: weight of the replica's own parameters []; 0: they are replaced, even where they are infinite.
            weight: of `mixed` [].
        """

        def met(own: jax.Array, other: jax.Array) -> jax.Array:
            return jnp.where(keep == 0, weight * other, keep * own + weight * other)

        return state.replace(params=jax.tree.map(met, state.params, mixed))

    def evaluated(self, state: State) -> Params:
        """The model whose loss is measured, and which the run comes to; of the mean state, where there are several replicas.

        Args:
            state: what the server remembers, its `params` the moving average where there is one (`average`).
        """
        return self.model(state.params)

    def statistic(self, state: State) -> Scalar:
        """A number that a protocol may let timing depend on; a run that does is computed while it is simulated.

        Args:
            state: what the server remembers at the time.
        """
        raise NotImplementedError

    def step(self, state: State, grads: Params, scale: float | Scalar = 1.0, model: Params | None = None) -> State:
        """One step of the optimizer, `scale` times as long: the learning rate is modulated, not the gradient.

        Args:
            state: what the server remembers; its `rate` is the learning rate that is due.
            grads: a gradient, like `state.params`.
            scale: factor of the step, by itself [].
            model: what the optimizer decays or measures, if not the parameters themselves.

        Returns:
            The state with new parameters, a clock of one more and what the optimizer remembers now.
        """
        transformation = optimizers.build(self.optimizer, state.rate)
        updates, memory = transformation.update(grads, state.optimizer, state.params if model is None else model)
        params = optax.apply_updates(state.params, jax.tree.map(lambda update: scale * update, updates))
        return state.replace(params=params, clock=state.clock + 1, optimizer=memory)

    def overrides(self, hook: str) -> bool:
        """Whether this algorithm has a function of its own under the name `hook`, such as `send`."""
        return getattr(type(self), hook) is not getattr(Server, hook)


def _bytes(arrays: Any) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(arrays))


class Moved(Server):
    """A server that subtracts a round's pseudo-gradients from its model, without an optimizer of its own.

    From 1, a worker has stepped to 0.5, and brings 1 - 0.5:

        >>> from fred.learning.server import Moved
        >>> import jax.numpy as jnp
        >>> server = Moved(learning_rate=0.1)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=2)
        >>> server.apply_round(state, {"w": jnp.array([1.0 - 0.5])}, timestamp=0, count=1).params["w"].tolist()
        [0.5]
    """

    def apply_round(self, state: State, total: Message, timestamp: Scalar, count: Scalar) -> State:
        """Subtract `total`, the pseudo-gradients that the protocol has added up, times its weight."""
        params = jax.tree.map(jnp.subtract, state.params, total)
        return state.replace(params=params, clock=state.clock + 1)
