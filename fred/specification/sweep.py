"""Sweeps: one run becomes many, with a setting or several at each of many values."""

import itertools
import math
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from fred.components.component import Component
from fred.components.registry import nearest
from fred.schedule.schedule import WAYS

_MOST = 10_000  # points
_LEARNED = (
    "loss",
    "error",
    "perplexity",
    "replicas_loss",
    "replicas_error",
    "diverged",
)  # numbers in a summary that need a task
_OF_TARGETS = ("target_updates", "target_seconds", "target_loss", "target_error", "target_gradient_norm")  # that need a target
_HIGHER_IS_BETTER = ("throughput", "updates", "gradients_computed", "gradients_applied", "workers_time_computing")
COLUMNS = (  # all numbers in a summary
    *("loss", "error", "throughput", "updates", "virtual_seconds", "target_updates", "target_seconds"),
    *(f"gradients_{what}" for what in ("computed", "applied", "dropped", "in_flight")),
    *(f"{of}_{how}" for of in ("staleness", "model_age") for how in ("mean", "max")),
    "staleness_in_gradients",
    *(f"workers_time_{kind}" for kind in ("computing", "wasted", "network", "waiting", "away")),
    *(f"{unit}_{way}" for unit in ("bytes", "messages") for way in WAYS),
    *(f"copies_{what}" for what in ("potential", "pushes", "fetches")),
    *("perplexity", "gradient_norm", "replicas_loss", "replicas_error", "diverged"),
    *("target_loss", "target_error", "target_gradient_norm", "workers", "seed"),
)
_NAMES = ("seconds", *COLUMNS)
_WAYS = ("lowest", "highest")


class Criterion(NamedTuple):
    """What the best point of a sweep is best by: a column of the summary, mean over the seeds."""

    name: str  # as it was said
    column: str
    highest: bool  # whether the higher is the better
    missing: str  # what the swept runs lack to have it; nothing if some have it

    @property
    def way(self) -> str:
        """Which is the best."""
        return "highest" if self.highest else "lowest"

    @classmethod
    def of(
        cls, best: str | None, learned: bool, targeted: bool, with_norm: bool = False, perplexed: bool = True
    ) -> "Criterion":
        """Return what was said, of runs of which some have a task, a target, the gradient's norm or a perplexity.

        With a target `seconds` and `updates` are those until then, else those until the end.
        """
        best = best or ("loss" if learned else "throughput")
        *way, name = best.split()
        ends = ("target_seconds", "target_updates") if targeted else ("virtual_seconds", "updates")
        column = dict(zip(("seconds", "updates"), ends, strict=True)).get(name, name)
        missing = "a `task`" if column in _LEARNED and not learned else ""
        missing = "a target, such as `evaluate.target_loss`" if column in _OF_TARGETS and not targeted else missing
        missing = "a cross-entropy as `task.loss`" if column == "perplexity" and learned and not perplexed else missing
        missing = "`evaluate.gradient_norm`" if column == "gradient_norm" and not with_norm else missing
        return cls(best, column, way == ["highest"] if way else column in _HIGHER_IS_BETTER, missing)


def _known(best: str) -> str:
    *way, name = best.split() or [""]
    if name in _NAMES and (not way or (len(way) == 1 and way[0] in _WAYS)):
        return " ".join((*way, name))
    raise ValueError(
        f"expected a column of the summary, perhaps after `lowest` or `highest`{nearest(name, _NAMES)}; "
        f"they are {', '.join(_NAMES)}"
    )


_SCHEMA = {
    "anyOf": [{"enum": list(_NAMES)}, {"type": "string", "pattern": rf"^({'|'.join(_WAYS)}) ({'|'.join(_NAMES)})$"}],
}
Best = Annotated[str, AfterValidator(_known), WithJsonSchema(_SCHEMA)]


class Spaced(Component):
    """So many values between two, both included."""

    first: float = Field(description="the first value", examples=[0.001])
    last: float = Field(description="the last value", examples=[1.0])
    number: int = Field(ge=2, le=_MOST, description="how many", examples=[4])
    spacing: Literal["log", "linear"] = Field("log", description="equal ratios, or equal differences")

    @model_validator(mode="after")
    def _logarithmic(self) -> Self:
        if self.spacing == "log" and min(self.first, self.last) <= 0:
            raise ValueError("`spacing: log` needs `first` and `last` above 0")
        return self

    def values(self) -> list[float]:
        """The values, to three digits, so that their names are short and they are the same everywhere."""
        shares = [step / (self.number - 1) for step in range(self.number)]
        if self.spacing == "linear":
            return [float(f"{self.first + share * (self.last - self.first):.3g}") for share in shares]
        low, high = math.log10(self.first), math.log10(self.last)
        return [float(f"{10 ** (low + share * (high - low)):.3g}") for share in shares]


class Point(Component):
    """Where in a sweep a run stands."""

    of: str = Field(description="the run that was swept", examples=["asgd"])
    values: dict[str, Any] = Field(description="what was set", examples=[{"algorithm.learning_rate": 0.1}])


class Sweep(Component):
    """Which settings a run takes in turn; every combination of them, or the listed ones."""

    over: dict[str, list[Any] | Spaced] | list[dict[str, Any]] = Field(
        description="`key.path: [values]` or `key.path: {first, last, number, spacing}`, for a grid of them; or a list of "
        "`key.path: value` mappings",
        examples=[{"algorithm.learning_rate": [0.01, 0.1]}],
    )
    best: Best | None = Field(
        None,
        description="what the best point is chosen by: a column of the summary, mean over the seeds (default: loss; without a "
        f"task: throughput). The lowest is the best, but of {', '.join(_HIGHER_IS_BETTER)} the highest; or say `lowest NAME`, "
        "`highest NAME`. `seconds` and `updates` are those until the target, or without one until the end",
    )

    @field_validator("over", mode="before")
    @classmethod
    def _spaced(cls, over: Any, info: ValidationInfo) -> Any:
        if isinstance(over, dict):
            return {key: Spaced.model_validate(values) if isinstance(values, dict) else values for key, values in over.items()}
        return over

    @model_validator(mode="after")
    def _some(self) -> Self:
        parts = self.over.values() if isinstance(self.over, dict) else self.over
        if not self.over or any(not isinstance(part, Spaced) and not part for part in parts):
            raise ValueError("expected at least one key, and one value for it")
        number = math.prod(len(self._values(part)) for part in parts) if isinstance(self.over, dict) else len(self.over)
        if number > _MOST:
            raise ValueError(f"it has more than {_MOST:,} points")
        return self

    @staticmethod
    def _values(part: Any) -> list[Any]:
        return part.values() if isinstance(part, Spaced) else list(part)

    def points(self) -> list[dict[str, Any]]:
        """What is set at each point, the last key changing fastest."""
        if not isinstance(self.over, dict):
            return list(self.over)
        values = [self._values(part) for part in self.over.values()]
        return [dict(zip(self.over, each, strict=True)) for each in itertools.product(*values)]


def name_of(run: str, values: dict[str, Any]) -> str:
    """What the run at a point is called: `asgd,learning_rate=0.1`."""
    return ",".join([run, *(f"{key.rsplit('.', 1)[-1]}={word(value)}" for key, value in values.items())])


def word(value: Any) -> str:
    """What a value is called where there is little room."""
    if isinstance(value, dict):
        return "-".join(word(each) for each in value.values())
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return "".join(character if character.isalnum() or character in "+-._" else "_" for character in text)[:40]
