"""The shape of a run: what is learned, on which cluster, by which algorithm, until when. Everything is checked here, early."""

import contextlib
import math
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from fred.cluster.cluster import Cluster
from fred.cluster.latency import Positive
from fred.components import registry
from fred.components.component import Component, Count, OneOf, checked_as
from fred.components.limits import LONGEST, MOST_GRADIENTS, MOST_POINTS
from fred.errors import FredError
from fred.protocols.protocol import Protocol
from fred.schedule.allowed import check_layout
from fred.schedule.layout import Layout
from fred.schedule.minibatches import Division, Sampling

Measure = Literal["updates", "gradients", "seconds"]


class Task(Component):
    """What is learned."""

    data: Annotated[Any, OneOf("data")] = Field(description="the examples", examples=["digits"])
    model: Annotated[Any, OneOf("model")] = Field(description="the function that is fitted", examples=["mlp"])
    loss: Annotated[Any, OneOf("loss")] | None = Field(
        None, description="what is minimised; absent: cross-entropy of classes, squared error of values"
    )
    l2: Annotated[float, Field(ge=0)] = Field(
        0.0, description="half of it times the squared length of all parameters is added to the loss, evaluated or minimised"
    )
    batch_size: Count = Field(8, description="examples per gradient")
    sampling: Sampling = Field("replacement", description="how minibatches are drawn from the training examples")
    division: Division = Field(
        "shared",
        description="whether workers draw from all examples or a part each: at random, in the order of the labels, or of each "
        "class a share that is drawn",
    )
    concentration: Annotated[float, Field(ge=0.01, le=1e6)] = Field(
        0.5, description="alpha of `division: dirichlet`: the smaller, the fewer workers have most of a class"
    )
    replicas_start: Literal["equal", "apart"] = Field("equal", description="whether workers' own models are first the same")

    @model_validator(mode="after")
    def _parts_are_drawn_from(self) -> "Task":
        if self.division != "shared" and self.sampling == "sequential":
            raise ValueError("`sampling: sequential` goes through all examples in file order: `division` must be `shared`")
        return self

    @property
    def tokens(self) -> int | None:
        """In each minibatch, of data that say how long their sequences are (`context`); None of others."""
        context = getattr(self.data, "context", None)
        return self.batch_size * context if isinstance(context, int) else None

    @property
    def has_perplexity(self) -> bool:
        """Return True if the loss is a cross-entropy, where data are sequences: others have no perplexity."""
        return self.loss is None or registry.name_of("loss", self.loss) == "cross-entropy"


class Stop(Component):
    """When a run ends: at the first of the limits given."""

    updates: Count | None = Field(None, description="updates of the parameters")
    gradients: Count | None = Field(None, description="gradients that took part in an update")
    tokens: Count | None = Field(
        None, description="tokens in these gradients' minibatches, of sequences: resolved to `gradients`"
    )
    seconds: Positive | None = Field(None, le=LONGEST, description="virtual time, s")
    target_loss: Positive | None = Field(None, description="evaluation loss, looked at wherever `evaluate` says")

    @model_validator(mode="after")
    def _bounded(self) -> "Stop":
        if all(each is None for each in (self.updates, self.gradients, self.tokens, self.seconds)):
            raise ValueError("needs at least one of `updates`, `gradients`, `seconds` (with `target_loss` too, as a bound)")
        if self.gradients is not None and self.tokens is not None:
            raise ValueError("give `gradients` or `tokens`, not both")
        return self

    @property
    def limits(self) -> list[str]:
        """Which are given.

        >>> Stop(updates=100, seconds=60).limits
        ['updates', 'seconds']
        """
        return [name for name in type(self).model_fields if getattr(self, name) is not None]

    @property
    def bound(self) -> tuple[Measure, float]:
        """The limit along which evaluation points are spread: its unit, and how many of it (seconds in s).

        >>> Stop(updates=100, seconds=60).bound, Stop(updates=100, gradients=500).bound
        (('updates', 100), ('gradients', 500))
        """
        if self.gradients is not None:
            return "gradients", self.gradients
        return ("updates", self.updates) if self.updates is not None else ("seconds", self.seconds or math.inf)


class Evaluate(Component):
    """How often what is measured, and which values to look for. The start and the end are always measured."""

    points: Count | None = Field(None, description="so many times, evenly spread over the first limit in `stop` (default: 40)")
    every_updates: Count | None = Field(None, description="each time so many updates have been made")
    every_gradients: Count | None = Field(None, description="each time so many gradients have been used")
    every_seconds: Positive | None = Field(None, description="each time so much virtual time has passed, s")
    target_loss: Positive | None = Field(None, description="report when the loss first came down to this")
    target_error: Positive | None = Field(None, description="report when the error first came down to this")
    gradient_norm: bool = Field(
        False,
        description="measure the Euclidean norm of the loss's gradient over all evaluation examples, too; with "
        "`target_gradient_norm` it is measured anyway",
    )
    target_gradient_norm: Positive | None = Field(
        None, description="report when the gradient's norm (not its square) first came down to this"
    )

    @property
    def measures_gradient_norm(self) -> bool:
        """Whether the gradient's norm is asked for, by itself or as a target.

        >>> Evaluate().measures_gradient_norm, Evaluate(target_gradient_norm=0.1).measures_gradient_norm
        (False, True)
        """
        return self.gradient_norm or self.target_gradient_norm is not None

    @model_validator(mode="after")
    def _one_cadence(self) -> "Evaluate":
        given = [name for name in ("points", "every_updates", "every_gradients", "every_seconds") if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"give one of {', '.join(f'`{name}`' for name in given)}, not all")
        return self

    def spacing(self, stop: Stop) -> tuple[Measure, float]:
        """What is counted between two evaluations, and how much of it.

        Args:
            stop: when the run ends, over which `points` are spread.

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
    """One run: an algorithm on a cluster, learning a task."""

    task: Task | None = Field(None, description="absent: only the timing is simulated")
    cluster: Annotated[Cluster, checked_as(Cluster)]
    algorithm: Annotated[Any, OneOf("algorithm")] = Field(description="what an update does", examples=["asgd"])
    protocol: Annotated[Protocol, OneOf("protocol")] = Field(description="who waits for whom; absent: as the algorithm does")
    stop: Stop
    evaluate: Evaluate = Evaluate()

    @model_validator(mode="before")
    @classmethod
    def _name_protocol(cls, options: Any) -> Any:
        """Name the algorithm's own protocol where none is named, with its options, so that a resolved run says everything."""
        if not isinstance(options, dict):
            return options
        protocol, (name, usual) = options.get("protocol"), _usual_protocol(options.get("algorithm"))
        given = {} if protocol is None or protocol == name else protocol
        if isinstance(given, dict) and given.get("name", name) == name:
            options = {**options, "protocol": {"name": name, **usual, **given}}
        return options

    @model_validator(mode="after")
    def _count_tokens(self) -> "Run":
        """Of tokens make gradients, which is what runs count."""
        if self.stop.tokens is not None:
            each = self.task and self.task.tokens
            if not each:
                raise ValueError("`stop.tokens` needs data of sequences (`bigrams`, `text`, ...): stop by `gradients` instead")
            gradients = -(-self.stop.tokens // each)
            object.__setattr__(self, "stop", self.stop.model_copy(update={"tokens": None, "gradients": gradients}))
        return self

    @model_validator(mode="after")
    def _fits(self) -> "Run":
        self.protocol.check(self.cluster)
        self.algorithm.check(self.cluster.size)
        if self.task is None and self.has_target:
            raise ValueError("a target needs a `task`: without one only the timing is simulated")
        if self.task is None and self.evaluate.gradient_norm:
            raise ValueError("`evaluate.gradient_norm` needs a `task`: without one only the timing is simulated")
        if self.task is None and self.protocol.needs_values:
            raise ValueError("this protocol's timing depends on what is learned: it needs a `task`")
        if self.protocol.needs_values and self.protocol.asks_for == "statistic" and not self.algorithm.has_statistic:
            raise ValueError("this protocol's timing depends on a statistic that this algorithm does not have")
        layout = self.protocol.layout(self.cluster)
        check_layout(layout)
        if layout.blocks > 1 and not self.algorithm.divisible:
            raise ValueError("this algorithm's state cannot be divided among several servers: `cluster.servers` must be 1")
        self._codes(layout)
        if self.task is not None and self.task.replicas_start == "apart" and layout.replicas < self.cluster.size:
            raise ValueError("`task.replicas_start: apart` needs a protocol in which every worker has a model of its own")
        if not self.protocol.has_clock and (self.stop.seconds or self.evaluate.every_seconds):
            raise ValueError("this protocol has no clock: stop by `updates` or `gradients`, evaluate by them or by `points`")
        if not self.protocol.has_clock and self.cluster.faults:
            raise ValueError("this protocol has no clock, and so no crashes: `cluster.faults` must be empty")
        if not layout.on_servers and any(fault.strikes_servers for fault in self.cluster.faults):
            raise ValueError("this protocol has no servers, and so none that could be away: leave them out of `cluster.faults`")
        self._ends()
        unit, spacing = self.evaluate.spacing(self.stop)
        if (getattr(self.stop, unit) or 0) / spacing > MOST_POINTS:
            raise ValueError(f"`evaluate` asks for more than {MOST_POINTS:,} points; look less often")
        return self

    @property
    def has_usual_protocol(self) -> bool:
        """Whether who waits for whom is what the algorithm says, with all its options."""
        name, usual = _usual_protocol(self.algorithm)
        with contextlib.suppress(ValidationError):  # an option without a default
            return bool(self.protocol == registry.lookup("protocol", name)(**usual))
        return False

    @property
    def targets(self) -> dict[str, float]:
        """To what each thing measured is to come down: to stop there (`stop.target_loss`), or to be reported (`evaluate`)."""
        goals = {
            "loss": self.evaluate.target_loss or self.stop.target_loss,
            "error": self.evaluate.target_error,
            "gradient_norm": self.evaluate.target_gradient_norm,
        }
        return {name: goal for name, goal in goals.items() if goal is not None}

    @property
    def has_target(self) -> bool:
        """Whether there is one of `targets`."""
        return bool(self.targets)

    def _codes(self, layout: Layout) -> None:
        """Refuse a codec of what is not sent, or not as it was coded."""
        codec, local = self.algorithm.codec, layout.local(self.cluster.size)
        if codec is None:
            return
        if layout.models_only(self.cluster.size):
            raise ValueError("in this protocol workers send models, and a codec is for gradients and differences: leave it out")
        if codec.error_feedback and local and layout.blocks > 1:
            raise ValueError("in this protocol only a part of what was coded is sent: leave out the codec's `error_feedback`")
        if self.protocol.sends_sums and not codec.summable:
            raise ValueError("in this protocol workers send sums, and this codec's messages cannot be added up: take `float`")

    def _ends(self) -> None:
        """Refuse a run that would go on for days, mostly because times were given in another unit."""
        in_time = math.inf if self.stop.seconds is None else self.stop.seconds * self.cluster.gradients_per_second
        number = min(self.stop.gradients or math.inf, self.stop.updates or math.inf, in_time)
        if number > MOST_GRADIENTS:
            raise ValueError(
                f"`stop` lets workers compute about {number:.1g} gradients, more than {MOST_GRADIENTS:g}: give fewer "
                "`gradients`, `updates` or `seconds` (compute times are in seconds)"
            )


def _usual_protocol(algorithm: Any) -> tuple[str, dict[str, Any]]:
    """The name of the protocol that an algorithm, given as in a scenario, is meant for, and its options."""
    if not isinstance(algorithm, Component):
        name = algorithm.get("name") if isinstance(algorithm, dict) else algorithm
        try:
            algorithm = registry.lookup("algorithm", str(name))
        except FredError:
            return "asynchronous", {}  # the field's own check reports the algorithm
    return str(algorithm.protocol), algorithm.protocol_options
