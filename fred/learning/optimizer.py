"""Any optax gradient transformation by name: `adam`, or `{name: sgd, momentum: 0.9}`, or a list of them, applied in turn."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import optax
from pydantic import BeforeValidator, ConfigDict, model_validator

from fred.component import Component
from fred.registry import nearest


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
        for option in self._options():
            if option not in options or option == "learning_rate":
                raise ValueError(f"`{self.name}` has no option `{option}` here{nearest(option, options)}")
        try:
            self.build(0.1)
        except Exception as error:
            raise ValueError(f"optax.{self.name} refuses its options: {error}") from error
        return self

    def build(self, learning_rate: float) -> optax.GradientTransformation:
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


Optimizer = Annotated[tuple[Transformation, ...], BeforeValidator(_as_chain)]


def build(optimizer: Optimizer, learning_rate: float) -> optax.GradientTransformation:
    """The chain of transformations."""
    return optax.chain(*(part.build(learning_rate) for part in optimizer))
