"""The settings of a run: cluster, algorithm, protocol, stopping and evaluation. All are validated before the run."""

import contextlib
import math
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.cluster.latency import Positive
from fred.components import registry
from fred.components.component import Component, Count, Duration, Object, checked_as
from fred.components.limits import MOST_GRADIENTS, MOST_POINTS
from fred.components.one_of import OneOf
from fred.protocols.protocol import Protocol
from fred.schedule.bounds import check_layout
from fred.schedule.layout import Layout
from fred.specification.task import Task

Measure = Literal["updates", "gradients", "seconds"]


class Stop(Component):
    """The limits of a run, which ends at the first limit that it reaches.

    Example: 100 updates, or less if they take more than a minute:
        >>> import fred
        >>> fred.Stop(updates=100, seconds=60.0).limits
        ['updates', 'seconds']
    """

    updates: Count | None = Field(default=None, description="updates of the parameters")
    gradients: Count | None = Field(default=None, description="gradients that took part in an update")
    tokens: Count | None = Field(
        default=None, description="tokens in the minibatches of these gradients, for sequence data; converted to `gradients`"
    )
    seconds: Duration | None = Field(default=None, description="virtual time, s")
    target_loss: Positive | None = Field(default=None, description="evaluation loss, checked at every evaluation")

    @model_validator(mode="before")
    @classmethod
    def _no_epochs(cls, options: Any) -> Any:
        if isinstance(options, dict) and "epochs" in options:
            meaning = "an epoch has as many gradients as training examples / `batch_size`: give `gradients`"
            raise PydanticCustomError("unknown_key", "unknown key `epochs`; {meaning}", {"key": "epochs", "meaning": meaning})
        return options

    @model_validator(mode="after")
    def _bounded(self) -> "Stop":
        if all(each is None for each in (self.updates, self.gradients, self.tokens, self.seconds)):
            raise ValueError("needs at least one of `updates`, `gradients`, `seconds` (as a bound for `target_loss`, too)")
        if self.gradients is not None and self.tokens is not None:
            raise ValueError("give `gradients` or `tokens`, not both")
        return self

    @property
    def limits(self) -> list[str]:
        """Return the names of the limits that are set.
        >>> Stop(updates=100, seconds=60).limits
        ['updates', 'seconds']
        """
        return [name for name in type(self).model_fields if getattr(self, name) is not None]

    @property
    def bound(self) -> tuple[Measure, float]:
        """Return the limit over which evaluations are spread: its unit, and its value (of seconds, in s).
        >>> Stop(updates=100, seconds=60).bound, Stop(updates=100, gradients=500).bound
        (('updates', 100), ('gradients', 500))
        """
        if self.gradients is not None:
            return "gradients", self.gradients
        return ("updates", self.updates) if self.updates is not None else ("seconds", self.seconds or math.inf)


class Evaluate(Component):
    """The schedule and the targets of evaluations. The start and the end of a run are always evaluated.

    Example: ten evaluations of a run of 500 updates:
        >>> import fred
        >>> fred.Evaluate(points=10).spacing(fred.Stop(updates=500))
        ('updates', 50.0)
    """

    points: Count | None = Field(
        default=None, description="number of evaluations, evenly spread over the first limit in `stop` (default: 40)"
    )
    every_updates: Count | None = Field(default=None, description="evaluate after every such number of updates")
    every_gradients: Count | None = Field(default=None, description="evaluate after every such number of gradients used")
    every_seconds: Duration | None = Field(default=None, description="evaluate at this interval of virtual time, s")
    target_loss: Positive | None = Field(default=None, description="report when the loss first reached this value")
    target_error: Positive | None = Field(default=None, description="report when the error first reached this value")
    gradient_norm: bool = Field(
        default=False,
        description="also measure the Euclidean norm of the loss gradient over all evaluation examples; "
        "`target_gradient_norm` implies it",
    )
    target_gradient_norm: Positive | None = Field(
        default=None, description="report when the gradient norm (not its square) first reached this value"
    )

    @property
    def measures_gradient_norm(self) -> bool:
        """Return True if the gradient norm is measured, by itself or for a target.
        >>> Evaluate().measures_gradient_norm, Evaluate(target_gradient_norm=0.1).measures_gradient_norm
        (False, True)
        """
        return self.gradient_norm or self.target_gradient_norm is not None

    @model_validator(mode="after")
    def _one_cadence(self) -> "Evaluate":
        given = [name for name in ("points", "every_updates", "every_gradients", "every_seconds") if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"give only one of {', '.join(f'`{name}`' for name in given)}")
        return self

    def spacing(self, stop: Stop) -> tuple[Measure, float]:
        """Return the interval between two evaluations: its unit, and its length in it.

        Args:
            stop: the limits of the run, over which `points` are spread.

        >>> Evaluate(points=10).spacing(Stop(updates=500)), Evaluate(every_seconds=2).spacing(Stop(updates=500))
        (('updates', 50.0), ('seconds', 2.0))
        """
        if self.every_updates:
            return "updates", self.every_updates
        if self.every_gradients:
            return "gradients", self.every_gradients
        if self.every_seconds:
            return "seconds", self.every_seconds
        unit, limit = stop.bound
        return unit, limit / (self.points or 40)


class Run(Component):
    """One run: an algorithm that trains a task on a cluster.

    Example: two workers, which wait for each other, take 0.5 s for each of four updates:
        >>> import fred
        >>> run = fred.Run(
        ...     cluster=fred.Cluster(workers=2, compute=fred.latency.Constant(seconds=0.5)),
        ...     algorithm=fred.systems.SSGD(learning_rate=0.1),
        ...     protocol=fred.protocols.Synchronous(),
        ...     stop=fred.Stop(updates=4),
        ... )
        >>> fred.run(fred.Scenario(runs={"ssgd": run})).summary["virtual_seconds"].tolist()
        [2.0]
    """

    task: Task | None = Field(default=None, description="the learning task; absent: only the timing is simulated")
    cluster: Annotated[Cluster, checked_as(Cluster)]
    algorithm: Annotated[Any, OneOf("algorithm")] = Field(description="what an update does", examples=["asgd"])
    protocol: Annotated[Protocol, OneOf("protocol")] = Field(
        description="which workers wait for which; absent: the algorithm's usual protocol"
    )
    stop: Stop
    evaluate: Evaluate = Evaluate()

    @model_validator(mode="before")
    @classmethod
    def _name_protocol(cls, options: Any) -> Any:
        """Fill in the algorithm's usual protocol and its options where none is given, so that a run is complete."""
        if not isinstance(options, dict):
            return options
        protocol, (name, usual) = options.get("protocol"), _usual_protocol(options.get("algorithm"))
        given = {} if protocol is None or protocol == name else protocol
        if isinstance(given, dict) and given.get("name", name) == name:
            options = {**options, "protocol": {"name": name, **usual, **given}}
        return options

    @model_validator(mode="after")
    def _count_tokens(self) -> "Run":
        """Convert a limit in tokens to gradients, which runs count."""
        if self.stop.tokens is not None:
            if self.task is None or not self.task.context:
                raise ValueError("`stop.tokens` needs data of sequences (`bigrams`, `text`, ...): stop by `gradients` instead")
            if self.task.has_unequal_batches:
                raise ValueError(
                    "`stop.tokens` is converted to gradients, which have different numbers of tokens if `task.batch_size` is a "
                    "list: stop by `gradients` instead"
                )
            gradients = -(-self.stop.tokens // (max(self.task.batch_sizes(1), default=1) * self.task.context))
            object.__setattr__(self, "stop", self.stop.model_copy(update={"tokens": None, "gradients": gradients}))
        return self

    @model_validator(mode="after")
    def _fits(self) -> "Run":
        try:
            self.protocol.check(self.cluster)
        except ValueError as error:  # so that the message names the protocol's line
            raise _at("protocol", str(error)) from error
        self.algorithm.check(self.cluster.size)
        if self.task is None and self.has_target:
            raise ValueError("a target needs a `task`: without one only the timing is simulated")
        if self.task is None and self.evaluate.gradient_norm:
            raise ValueError("`evaluate.gradient_norm` needs a `task`: without one only the timing is simulated")
        if self.task is None and self.protocol.needs_values:
            raise ValueError("this protocol's timing depends on what is learned: it needs a `task`")
        if self.protocol.needs_values and self.protocol.asks_for == "statistic" and not self.algorithm.has_statistic:
            raise ValueError("this protocol's timing depends on a statistic that this algorithm does not have")
        self._has_sizes()
        if (option := self.protocol.needs_plain_steps) and not self.algorithm.has_plain_steps:
            raise ValueError(
                f"{option} divides by the number of local steps, which is right for plain SGD only: use `optimizer: sgd` "
                "without momentum, or `normalized: false`"
            )
        layout = self.protocol.layout(self.cluster)
        check_layout(layout)
        routes = self.cluster.network.routes if self.cluster.network else ()
        if not layout.on_servers and any("servers" in route.between for route in routes):
            raise ValueError("this protocol has no servers: leave `servers` out of `cluster.network.routes`")
        if layout.blocks > 1 and not self.algorithm.divisible:
            raise ValueError("this algorithm's state cannot be divided among several servers: `cluster.servers` must be 1")
        self._codes(layout)
        if self.task is not None and (reason := self._misfit(self.task, layout)):
            raise _at("task", reason)
        if self.task is not None and self.task.replicas_start == "apart" and layout.replicas < self.cluster.size:
            raise ValueError("`task.replicas_start: apart` needs a protocol in which every worker has a model of its own")
        if not self.protocol.has_clock and (self.stop.seconds or self.evaluate.every_seconds):
            raise ValueError("this protocol has no clock: stop by `updates` or `gradients`, evaluate by them or by `points`")
        if not self.protocol.has_clock and self.cluster.faults:
            raise ValueError("this protocol has no clock, so it has no crashes: `cluster.faults` must be empty")
        if not layout.on_servers and any(fault.strikes_servers for fault in self.cluster.faults):
            raise ValueError("this protocol has no servers that could fail: leave server faults out of `cluster.faults`")
        self._fails(layout)
        self._ends()
        unit, spacing = self.evaluate.spacing(self.stop)
        if (getattr(self.stop, unit) or 0) / spacing > MOST_POINTS:
            raise ValueError(f"`evaluate` asks for more than {MOST_POINTS:,} points; evaluate less often")
        return self

    @property
    def has_usual_protocol(self) -> bool:
        """Return True if the run has its algorithm's usual protocol with the usual options."""
        name, usual = _usual_protocol(self.algorithm)
        with contextlib.suppress(FredError):  # an option without a default
            return bool(self.protocol == registry.lookup("protocol", name)(**usual))
        return False

    @property
    def targets(self) -> dict[str, float]:
        """Return the target of each measured quantity, either to stop there (`stop.target_loss`) or to report (`evaluate`)."""
        goals = {
            "loss": self.evaluate.target_loss or self.stop.target_loss,
            "error": self.evaluate.target_error,
            "gradient_norm": self.evaluate.target_gradient_norm,
        }
        return {name: goal for name, goal in goals.items() if goal is not None}

    @property
    def has_target(self) -> bool:
        """Return True if the run has a target."""
        return bool(self.targets)

    def _has_sizes(self) -> None:
        """Raise ValueError if the protocol asks for sizes of clients, and they have none."""
        if (option := self.protocol.needs_division) and (self.task is None or self.task.division == "shared"):
            raise ValueError(f"{option} needs clients with data of their own: give `task.division`, such as `by-quantity`")

    def _fails(self, layout: Layout) -> None:
        """Raise ValueError if the job may fail and cannot go back to a checkpoint."""
        if self.cluster.failures is None:
            return
        if not self.protocol.has_clock:
            raise ValueError("this protocol has no clock, so nothing fails in it: leave out `cluster.failures`")
        if self.protocol.needs_values:
            raise ValueError(
                "this protocol's timing depends on what is learned, also from work that a failure undoes: "
                "leave out `cluster.failures`"
            )
        if layout.replicas > 1:
            raise ValueError(
                "in this protocol workers have models of their own, but a checkpoint holds one model: "
                "use `cluster.faults`, which it bears without a checkpoint"
            )
        if self.cluster.failures.minibatches == "next" and self.task is not None and self.task.sampling == "sequential":
            raise ValueError(
                "`cluster.failures.minibatches: next` counts each worker's minibatches, but with `task.sampling: sequential` "
                "all workers have the same ones: use another `sampling`"
            )
        if self.cluster.failures.checkpoint.to == "peers" and layout.on_servers:
            raise ValueError(
                "in this protocol servers hold the model, and they do not fail: "
                "use `cluster.failures.checkpoint.to: store`, or a protocol without servers"
            )

    def _codes(self, layout: Layout) -> None:
        """Raise ValueError if the protocol does not send the messages that the codec encodes, or changes them."""
        codec, local = self.algorithm.codec, layout.local(self.cluster.size)
        if codec is None:
            return
        if layout.models_only(self.cluster.size):
            raise ValueError(
                "in this protocol workers send models, but a codec encodes gradients and pseudo-gradients: leave it out"
            )
        if codec.error_feedback and local and layout.blocks > 1:
            raise ValueError(
                "in this protocol only a part of each encoded message is sent: leave out the codec's `error_feedback`"
            )
        if self.protocol.sends_sums and not codec.summable:
            raise ValueError("in this protocol workers send sums, but this codec's messages cannot be added up: use `float`")

    def _misfit(self, task: Task, layout: Layout) -> str:
        """Return why the workers' batches do not fit the cluster, or why means over workers cannot be weighted by them."""
        if isinstance(task.batch_size, tuple) and len(task.batch_size) != self.cluster.size:
            return (
                f"`batch_size` has {len(task.batch_size)} numbers; expected one for each of the {self.cluster.size} workers, "
                "or one number for all"
            )
        if task.has_unequal_batches and layout.local(self.cluster.size):
            return (
                "in this protocol workers average models of their own, without weights by examples: give `batch_size` one "
                "number, or take a system whose workers send gradients, such as `ssgd` or `asgd` with its usual protocol"
            )
        if task.has_unequal_batches and not self.algorithm.weights_examples:
            return (
                "this algorithm compares the gradients of a round, which must be means of the same number of examples: "
                "give `batch_size` one number"
            )
        return ""

    def _ends(self) -> None:
        """Raise ValueError for a run that would take days, usually because times were given in another unit."""
        in_time = math.inf if self.stop.seconds is None else self.stop.seconds * self.cluster.gradients_per_second
        number = min(self.stop.gradients or math.inf, self.stop.updates or math.inf, in_time)
        if number > MOST_GRADIENTS:
            raise ValueError(
                f"`stop` lets workers compute about {number:.1g} gradients, more than {MOST_GRADIENTS:g}: give fewer "
                "`gradients`, `updates` or `seconds` (compute times are in seconds)"
            )


def _at(key: str, reason: str) -> PydanticCustomError:
    """Return an error whose message names the line of a run's part."""
    return PydanticCustomError("component", "{reason}", {"reason": reason, "key": key})


def _usual_protocol(algorithm: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of the usual protocol of an algorithm, which is given as in a scenario."""
    if not isinstance(algorithm, Component) or isinstance(algorithm, Object):
        name = algorithm.get("name") if isinstance(algorithm, dict) else algorithm
        try:
            algorithm = name if hasattr(name, "protocol_options") else registry.lookup("algorithm", str(name))
        except FredError:
            return "asynchronous", {}  # the field's own check reports the algorithm
    return str(algorithm.protocol), algorithm.protocol_options
