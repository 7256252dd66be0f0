"""The settings of a run: cluster, algorithm, protocol, stopping and evaluation. All are validated before the run."""

import contextlib
import math
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field, model_validator

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.components import registry
from fred.components.component import MOST_GRADIENTS, MOST_POINTS, Component, Object, Rule, check_rules, checked_as, error_at
from fred.components.one_of import OneOf
from fred.protocols.protocol import Protocol
from fred.schedule.bounds import check_layout
from fred.schedule.layout import Layout
from fred.specification.stopping import Evaluate, Stop
from fred.specification.task import Task


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
        options_of_protocol = {} if protocol is None or protocol == name else protocol
        if isinstance(options_of_protocol, dict) and options_of_protocol.get("name", name) == name:
            options = {**options, "protocol": {"name": name, **usual, **options_of_protocol}}
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
    def _parts_fit(self) -> "Run":
        try:
            self.protocol.check(self.cluster)
        except ValueError as error:  # so that the message names the protocol's line
            raise error_at("protocol", str(error)) from error
        self.algorithm.check(self.cluster.size)
        check_layout(self.layout)
        check_rules(self, _RULES)
        return self

    @cached_property
    def layout(self) -> Layout:
        """Return the replicas of the parameters, as the protocol lays them out on the cluster."""
        return self.protocol.layout(self.cluster)

    @property
    def has_usual_protocol(self) -> bool:
        """Return True if the run has its algorithm's usual protocol with the usual options."""
        name, usual = _usual_protocol(self.algorithm)
        with contextlib.suppress(FredError):  # an option without a default
            return bool(self.protocol == registry.lookup("protocol", name)(**usual))
        return False

    @property
    def targets(self) -> dict[str, float]:
        """Return the target of each measured quantity: first one to report (`evaluate`), then `stop.target_loss`."""
        goals = {
            "error": self.evaluate.target_error,
            "gradient_norm": self.evaluate.target_gradient_norm,
            "loss": self.evaluate.target_loss or self.stop.target_loss,
        }
        return {name: goal for name, goal in goals.items() if goal is not None}

    @property
    def has_target(self) -> bool:
        """Return True if the run has a target."""
        return bool(self.targets)


def _usual_protocol(algorithm: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of the usual protocol of an algorithm, which is given as in a scenario."""
    if not isinstance(algorithm, Component) or isinstance(algorithm, Object):
        name = algorithm.get("name") if isinstance(algorithm, dict) else algorithm
        try:
            # a program may give the class itself instead of its name
            algorithm = name if hasattr(name, "protocol_options") else registry.lookup("algorithm", str(name))
        except FredError:
            return "asynchronous", {}  # the field's own check reports the algorithm
    return str(algorithm.protocol), algorithm.protocol_options


def _lacks_task(run: Run, _: Any) -> bool:
    return run.task is None


def _lacks_clock(run: Run, _: Any) -> bool:
    return not run.protocol.has_clock


def _lacks_servers(run: Run, _: Any) -> bool:
    return not run.layout.on_servers


def _learns_timing(run: Run, _: Any) -> bool:
    return run.protocol.needs_values


def _sends_models_only(run: Run, _: Any) -> bool:
    return run.algorithm.codec is not None and run.layout.models_only(run.cluster.size)


def _sends_parts_of_codes(run: Run, _: Any) -> bool:
    """Return True if a worker encodes whole messages with an error, of which it sends only a block."""
    codec, layout = run.algorithm.codec, run.layout
    return codec is not None and codec.error_feedback and layout.local(run.cluster.size) and layout.blocks > 1


def _sends_sums_of_codes(run: Run, _: Any) -> bool:
    codec = run.algorithm.codec
    return codec is not None and run.protocol.sends_sums and not codec.summable


def _undivided_option(run: Run, _: Any) -> str:
    """Return the protocol's option that needs data divided among workers, if they are not."""
    return run.protocol.needs_division if run.task is None or run.task.division == "shared" else ""


def _other_number(run: Run, sizes: Any) -> str:
    """Return the number of batch sizes, as text so that 0 counts, if it is not that of the workers."""
    return str(len(sizes)) if isinstance(sizes, tuple) and len(sizes) != run.cluster.size else ""


def _averages_models(run: Run, _: Any) -> bool:
    assert run.task is not None
    return run.task.has_unequal_batches and run.layout.local(run.cluster.size)


def _compares_gradients(run: Run, _: Any) -> bool:
    assert run.task is not None
    return run.task.has_unequal_batches and not run.algorithm.weights_examples


def _excessive_gradients(run: Run, _: Any) -> float:
    """Return the approximate number of gradients if it is too large, usually because times were given in another unit."""
    stop = run.stop
    in_time = math.inf if stop.seconds is None else stop.seconds * run.cluster.gradients_per_second
    number = min(stop.gradients or math.inf, stop.updates or math.inf, in_time)
    return number if number > MOST_GRADIENTS else 0.0


def _evaluates_too_often(run: Run, _: Any) -> bool:
    unit, spacing = run.evaluate.spacing(run.stop)
    return (getattr(run.stop, unit) or 0) / spacing > MOST_POINTS


_TARGETS = "stop.target_loss evaluate.target_loss evaluate.target_error evaluate.target_gradient_norm"
_RULES: tuple[Rule[Run], ...] = (
    Rule(_TARGETS, _lacks_task, "a target needs a `task`: without one only the timing is simulated"),
    Rule(
        "evaluate.gradient_norm",
        _lacks_task,
        "`evaluate.gradient_norm` needs a `task`: without one only the timing is simulated",
    ),
    Rule(
        "",
        lambda run, _: run.protocol.needs_values and run.task is None,
        "this protocol's timing depends on what is learned: it needs a `task`",
    ),
    Rule(
        "",
        lambda run, _: run.protocol.needs_values and run.protocol.asks_for == "statistic" and not run.algorithm.has_statistic,
        "this protocol's timing depends on a statistic that this algorithm does not have",
    ),
    Rule(
        "",
        _undivided_option,
        "{fact} needs clients with data of their own: give `task.division`, such as `by-quantity`",
    ),
    Rule(
        "",
        lambda run, _: run.protocol.needs_plain_steps if not run.algorithm.has_plain_steps else "",
        "{fact} divides by the number of local steps, which is right for plain SGD only: use `optimizer: sgd` without "
        "momentum, or `normalized: false`",
    ),
    Rule(
        "",
        lambda run, _: run.protocol.needs_pulls if not run.algorithm.pulls_models else "",
        "{fact} needs an algorithm that pulls models: use `palsgd`, or leave `pulls` out",
    ),
    Rule(
        "",
        lambda run, _: run.algorithm.pulls_models and not run.protocol.pulls_models,
        "this algorithm pulls models only in the protocol `outer-steps`: leave `protocol` out",
    ),
    Rule(
        "cluster.network.routes.*",
        lambda run, route: not run.layout.on_servers and "servers" in route.between,
        "this protocol has no servers: leave `servers` out of `cluster.network.routes`",
    ),
    Rule(
        "",
        lambda run, _: run.layout.blocks > 1 and not run.algorithm.divisible,
        "this algorithm's state cannot be divided among several servers: `cluster.servers` must be 1",
    ),
    Rule(
        "",
        _sends_models_only,
        "in this protocol workers send models, but a codec encodes gradients and pseudo-gradients: leave it out",
    ),
    Rule(
        "",
        _sends_parts_of_codes,
        "in this protocol only a part of each encoded message is sent: leave out the codec's `error_feedback`",
    ),
    Rule(
        "",
        _sends_sums_of_codes,
        "in this protocol workers send sums, but this codec's messages cannot be added up: use `float`",
    ),
    Rule(
        "task.batch_size",
        _other_number,
        "`batch_size` has {fact} numbers; expected one for each of the {self.cluster.size} workers, or one number for all",
        part="task",
    ),
    Rule(
        "task.batch_size",
        _averages_models,
        "in this protocol workers average models of their own, without weights by examples: give `batch_size` one number, or "
        "take a system whose workers send gradients, such as `ssgd` or `asgd` with its usual protocol",
        part="task",
    ),
    Rule(
        "task.batch_size",
        _compares_gradients,
        "this algorithm compares the gradients of a round, which must be means of the same number of examples: give "
        "`batch_size` one number",
        part="task",
    ),
    Rule(
        "task.replicas_start",
        lambda run, _: run.layout.replicas < run.cluster.size,
        "`task.replicas_start: apart` needs a protocol in which every worker has a model of its own",
    ),
    Rule(
        "stop.seconds evaluate.every_seconds",
        _lacks_clock,
        "this protocol has no clock: stop by `updates` or `gradients`, evaluate by them or by `points`",
    ),
    Rule("cluster.faults", _lacks_clock, "this protocol has no clock, so it has no crashes: `cluster.faults` must be empty"),
    Rule(
        "cluster.faults.*",
        lambda run, fault: not run.layout.on_servers and fault.strikes_servers,
        "this protocol has no servers that could fail: leave server faults out of `cluster.faults`",
    ),
    Rule(
        "cluster.faults.*.after_updates",
        _learns_timing,
        "this protocol's timing depends on what is learned, so FRED cannot know the time of update {value} before: give the "
        "outage's `begin`, s",
    ),
    Rule("cluster.failures", _lacks_clock, "this protocol has no clock, so nothing fails in it: leave out `cluster.failures`"),
    Rule(
        "cluster.failures",
        _learns_timing,
        "this protocol's timing depends on what is learned, also from work that a failure undoes: leave out `cluster.failures`",
    ),
    Rule(
        "cluster.failures",
        lambda run, _: run.layout.replicas > 1,
        "in this protocol workers have models of their own, but a checkpoint holds one model: use `cluster.faults`, which it "
        "bears without a checkpoint",
    ),
    Rule(
        "cluster.failures.minibatches",
        lambda run, _: run.task is not None and run.task.sampling == "sequential",
        "`cluster.failures.minibatches: next` counts each worker's minibatches, but with `task.sampling: sequential` all "
        "workers have the same ones: use another `sampling`",
    ),
    Rule(
        "cluster.failures.checkpoint.to",
        lambda run, place: place == "peers" and run.layout.on_servers,
        "in this protocol servers hold the model, and they do not fail: use `cluster.failures.checkpoint.to: store`, or a "
        "protocol without servers",
    ),
    Rule(
        "",
        _excessive_gradients,
        f"`stop` lets workers compute about {{fact:.1g}} gradients, more than {MOST_GRADIENTS:g}: give fewer `gradients`, "
        "`updates` or `seconds` (compute times are in seconds)",
    ),
    Rule("", _evaluates_too_often, f"`evaluate` asks for more than {MOST_POINTS:,} points; evaluate less often"),
)
