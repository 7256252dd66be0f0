"""Learning-rate schedules: those of optax by name, such as `{name: exponential_decay, decay_rate: 0.94, ...}`.

| rule                                    | schedule                                                                    |
|-----------------------------------------|-----------------------------------------------------------------------------|
| exponential decay, in steps or smoothly | `{name: exponential_decay, decay_rate: 0.94, transition_steps: 2000}`       |
| linear anneal to zero at the end        | `{name: linear_schedule, end_value: 0, transition_begin: 9000,`             |
|                                         | `transition_steps: 1000}`                                                   |
| warm-up                                 | `{name: linear_schedule, init_value: 0, end_value: 1, transition_steps: 500}` |
| 1 / (updates + 1)^0.75                  | `{name: inverse_power_schedule, power: 0.75}` (FRED's own)                  |
| x 0.1 at given points                   | `{name: piecewise_constant_schedule, boundaries_and_scales: {30: .1, 60: .1}}` |

The schedules of a list are multiplied: for a warm-up and a decay, give a list of two. Each schedule is a factor of the base
rate. If optax requires an initial (or peak) value, it is 1 by default.
"""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import numpy as np
from pydantic import model_validator

from fred.base.later import jax, optax
from fred.components.registry import nearest
from fred.learning.optimizer import ONE_OR_SEVERAL, FromOptax, find_function, public_names, refused

_EXCLUDED = ("constant_schedule", "join_schedules", "sgdr_schedule")  # the base rate itself; combinations: here, lists
_TRIAL_COUNTS = (0, 1, 1000, 10**6, 2**31 - 1)  # counts at which a schedule is tried


class RateSchedule(FromOptax):
    """One optax schedule: its name in the optax namespace, and its options.

    A factor that halves every 100 counts:

        >>> from fred.learning.rates import RateSchedule
        >>> halving = RateSchedule(name="exponential_decay", decay_rate=0.5, transition_steps=100)
        >>> [round(float(halving.factor(count)), 3) for count in (0, 50, 100, 200)]
        [1.0, 0.707, 0.5, 0.25]
    """

    @model_validator(mode="before")
    @classmethod
    def _whole_boundaries(cls, options: Any) -> Any:
        """Convert boundaries to whole numbers. They may be text, because JSON has only text as keys."""
        boundaries = options.get("boundaries_and_scales") if isinstance(options, dict) else None
        if not isinstance(boundaries, dict):
            return options
        if not all(str(boundary).isdecimal() for boundary in boundaries):
            raise ValueError(f"`boundaries_and_scales`: found {boundaries}; expected whole numbers, each with a factor")
        return {**options, "boundaries_and_scales": {int(boundary): scale for boundary, scale in boundaries.items()}}

    @model_validator(mode="after")
    def _check_name(self) -> RateSchedule:
        if not _is_schedule(self.name):
            names = [name for name in public_names() if _is_schedule(name)]
            raise ValueError(f"optax has no schedule `{self.name}`{nearest(self.name, names)}; it has {', '.join(names)}")
        self.check_options()
        for option, value in self.arguments.items():
            if option.endswith("_steps") and not (isinstance(value, int | float) and value > 0):
                raise ValueError(f"option `{option}` of `{self.name}`: found {value}; expected a positive number")
        try:
            values = np.array([self.factor(jax.numpy.int32(count)) for count in _TRIAL_COUNTS])
        except Exception as error:
            raise refused(f"optax.{self.name}", error) from error
        if not (np.isfinite(values).all() and (values >= 0).all()):
            raise ValueError(f"`{self.name}` comes to {values.min()}; expected finite factors of at least 0")
        return self

    def factor(self, count: Any) -> Any:
        """Return the factor of the base rate after `count` updates or gradients.

        Args:
            count: number of updates or gradients so far [].
        """
        options = inspect.signature(self.factory).parameters
        first = "peak_value" if "peak_value" in options else "init_value"
        return self.factory(**{first: 1.0} | self.arguments)(count)


Schedule = Annotated[tuple[RateSchedule, ...], *ONE_OR_SEVERAL]


def factor(schedule: Schedule, count: Any) -> Any:
    """Return the product of several schedules.

    Args:
        schedule: any number of schedules; without any, the product is 1.
        count: number of updates or gradients so far [].

        >>> from fred.learning.rates import RateSchedule, factor
        >>> warm_up = RateSchedule(name="linear_schedule", init_value=0, end_value=1, transition_steps=4)
        >>> drop = RateSchedule(name="piecewise_constant_schedule", boundaries_and_scales={"8": 0.5})
        >>> [float(factor((warm_up, drop), count)) for count in (0, 2, 4, 8, 10)]
        [0.0, 0.5, 1.0, 0.5, 0.5]
    """
    product = 1.0
    for part in schedule:
        product = product * part.factor(count)
    return product


def _is_schedule(name: str) -> bool:
    function = find_function(name)
    if not inspect.isfunction(function) or name in _EXCLUDED:
        return False
    return inspect.signature(function).return_annotation == optax.Schedule
