"""When a run stops, when it is evaluated, and when a scenario stops adding seeds."""

import math
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from fred.components.component import Component, Count, Duration, Positive

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
        if all(limit is None for limit in (self.updates, self.gradients, self.tokens, self.seconds)):
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
        options = [name for name in ("points", "every_updates", "every_gradients", "every_seconds") if getattr(self, name)]
        if len(options) > 1:
            raise ValueError(f"give only one of {', '.join(f'`{name}`' for name in options)}")
        return self

    @model_validator(mode="after")
    def _one_target(self) -> "Evaluate":
        targets = [name for name in ("target_loss", "target_error", "target_gradient_norm") if getattr(self, name) is not None]
        if len(targets) > 1:
            raise ValueError(f"a run reports one target: give only one of {', '.join(f'`{name}`' for name in targets)}")
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


FIRST_LOOK = 10  # seeds; looking earlier costs coverage (`results/studies/coverage.md`)
_GROWTH = 1.5  # factor on the number of seeds between two looks


class Until(Component):
    """When to stop adding seeds: once all runs are compared precisely, or at a limit.

    A run is compared with the baseline by the time to the target, else by the loss, else by the throughput. The precision is
    half of the 95 % interval, relative to the baseline. Stopping costs coverage, since chance makes some intervals narrow too
    early: 1 to 2 points where differences are normal, up to 6 where they are skewed.

    >>> until = Until(within=0.05, seeds=40)
    >>> until.next_look(3), until.next_look(10), until.next_look(30), until.next_look(40)
    (10, 15, 40, 40)
    """

    within: Annotated[float, Field(gt=0, lt=1)] = Field(
        description="half of each interval, relative to the baseline", examples=[0.05]
    )
    seeds: Annotated[int, Field(ge=FIRST_LOOK, le=10_000)] = Field(default=50, description="the largest number of seeds")

    def next_look(self, count: int) -> int:
        """Return the number of seeds at which precision is looked at next.

        Args:
            count: number of seeds so far.
        """
        return min(self.seeds, max(FIRST_LOOK, math.ceil(_GROWTH * count)))
