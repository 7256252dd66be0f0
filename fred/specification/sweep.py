"""Sweeps: one run becomes many, with a setting or several at each of many values."""

import itertools
import math
from typing import Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from fred.component import Component

Criterion = Literal["loss", "error", "seconds", "updates"]
_MOST = 10_000  # points


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
    best: Criterion = Field("loss", description="what is smallest at the best point, mean over the seeds; of targets, when")

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
        if math.prod(len(self._values(part)) for part in parts) > _MOST and isinstance(self.over, dict):
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
    return ",".join([run, *(f"{key.rsplit('.', 1)[-1]}={_word(value)}" for key, value in values.items())])


def _word(value: Any) -> str:
    if isinstance(value, dict):
        return "-".join(_word(each) for each in value.values())
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return "".join(character if character.isalnum() or character in "+-._" else "_" for character in text)[:40]
