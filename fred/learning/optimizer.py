"""Any optax gradient transformation by name: `adam`, or `{name: sgd, momentum: 0.9}`, or a list of them, applied in turn."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import jax
import numpy as np
import optax
from pydantic import BeforeValidator, ConfigDict, WithJsonSchema, model_validator

from fred.component import Component
from fred.registry import nearest

_TINY = {"weights": jax.ShapeDtypeStruct((2, 2), np.float32)}


class Transformation(Component):
    """One optax gradient transformation: its name in the optax namespace, and its options."""

    model_config = ConfigDict(extra="allow")

    name: str

    @model_validator(mode="after")
    def _known(self) -> "Transformation":
        factory = getattr(optax, self.name, None)
        if not callable(factory) or "GradientTransformation" not in str(inspect.signature(factory).return_annotation):
            raise ValueError(f"optax has no gradient transformation `{self.name}`{nearest(self.name, dir(optax))}")
        options = inspect.signature(factory).parameters
        if "learning_rate" in self._options():
            raise ValueError(f"the learning rate is the algorithm's own option `learning_rate`, not one of `{self.name}`")
        for option, value in self._options().items():
            if option not in options:
                known = [each for each in options if each != "learning_rate"]
                raise ValueError(f"`{self.name}` has no option `{option}` here{nearest(option, known)}")
            if not np.isfinite([each for each in np.ravel(value).tolist() if isinstance(each, float)]).all():
                raise ValueError(f"option `{option}` of `{self.name}`: found {value}; expected a finite number")
        try:
            jax.eval_shape(self._step, _TINY)
        except Exception as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(f"optax.{self.name} cannot be used with these options: {reason}") from error
        return self

    def _step(self, params: Any) -> Any:
        """A first step, traced to see whether it works."""
        transformation = self.build(0.1)
        return transformation.update(params, transformation.init(params), params)

    def build(self, learning_rate: Any) -> optax.GradientTransformation:
        """The transformation, given the learning rate if it takes one."""
        factory: Callable[..., Any] = getattr(optax, self.name)
        rate = {"learning_rate": learning_rate} if self.takes_rate else {}
        return factory(**rate, **self._options())

    @property
    def takes_rate(self) -> bool:
        """Whether the learning rate enters here."""
        return "learning_rate" in inspect.signature(getattr(optax, self.name)).parameters

    def _options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


def _as_chain(value: Any) -> Any:
    parts = value if isinstance(value, (list, tuple)) else [value]
    return [{"name": part} if isinstance(part, str) else part for part in parts]


_ONE = [{"type": "string"}, {"type": "object", "properties": {"name": {"type": "string"}}}]
Optimizer = Annotated[
    tuple[Transformation, ...],
    BeforeValidator(_as_chain),
    WithJsonSchema({"anyOf": [*_ONE, {"type": "array", "items": {"anyOf": _ONE}}]}),
]


def build(optimizer: Optimizer, learning_rate: Any) -> optax.GradientTransformation:
    """The chain of transformations."""
    return optax.chain(*(part.build(learning_rate) for part in optimizer))
