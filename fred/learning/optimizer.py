"""Any optax gradient transformation by name: `adam`, or `{name: sgd, momentum: 0.9}`, or a list of them, applied in turn."""

import inspect
from typing import Annotated, Any, ClassVar

import jax
import numpy as np
import optax
from pydantic import model_validator

from fred.components.registry import nearest
from fred.learning.from_optax import ONE_OR_SEVERAL, FromOptax, refused

_TINY = {"weights": jax.ShapeDtypeStruct((2, 2), np.float32)}


class Transformation(FromOptax):
    """One optax gradient transformation: its name in the optax namespace, and its options."""

    reserved: ClassVar[str] = "learning_rate"

    @model_validator(mode="after")
    def _known(self) -> "Transformation":
        factory = getattr(optax, self.name, None)
        if not callable(factory) or "GradientTransformation" not in str(inspect.signature(factory).return_annotation):
            raise ValueError(f"optax has no gradient transformation `{self.name}`{nearest(self.name, dir(optax))}")
        if "learning_rate" in self.given:
            raise ValueError(f"the learning rate is the algorithm's own option `learning_rate`, not one of `{self.name}`")
        self.check_options()
        try:
            jax.eval_shape(self._step, _TINY)
        except Exception as error:
            raise refused(self.name, error) from error
        return self

    def _step(self, params: Any) -> Any:
        """A first step, traced to see whether it works."""
        transformation = self.build(0.1)
        return transformation.update(params, transformation.init(params), params)

    def build(self, learning_rate: Any) -> optax.GradientTransformation:
        """The transformation, given the learning rate if it takes one."""
        rate = {"learning_rate": learning_rate} if self.takes_rate else {}
        return self.factory(**rate, **self.given)

    @property
    def takes_rate(self) -> bool:
        """Whether the learning rate enters here."""
        return "learning_rate" in inspect.signature(self.factory).parameters


Optimizer = Annotated[tuple[Transformation, ...], *ONE_OR_SEVERAL]


def build(optimizer: Optimizer, learning_rate: Any) -> optax.GradientTransformation:
    """The chain of transformations."""
    return optax.chain(*(part.build(learning_rate) for part in optimizer))
