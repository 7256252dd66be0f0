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
    """One optax gradient transformation: its name in the optax namespace, and its options.

    What optax does not know is refused when it is named, before anything runs:

        >>> from fred.learning.optimizer import Transformation
        >>> Transformation(name="sgd", momentum=0.9).takes_rate, Transformation(name="clip", max_delta=1.0).takes_rate
        (True, False)
        >>> Transformation(name="sgd", momentun=0.9)
        Traceback (most recent call last):
            ...
        pydantic_core._pydantic_core.ValidationError: 1 validation error for Transformation
          Value error, `sgd` has no option `momentun` here; did you mean `momentum`? ...
    """

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
        """The transformation, given the learning rate if it takes one.

        Args:
            learning_rate: a number, or an array of no dimensions.
        """
        rate = {"learning_rate": learning_rate} if self.takes_rate else {}
        return self.factory(**rate, **self.given)

    @property
    def takes_rate(self) -> bool:
        """Whether the learning rate enters here."""
        return "learning_rate" in inspect.signature(self.factory).parameters


Optimizer = Annotated[tuple[Transformation, ...], *ONE_OR_SEVERAL]


def build(optimizer: Optimizer, learning_rate: Any) -> optax.GradientTransformation:
    """The chain of transformations.

    Args:
        optimizer: in the order in which they are applied to a gradient.
        learning_rate: for that of them that takes it.

    Clipped to 1, then a step of rate 0.1 against the gradient:

        >>> import jax.numpy as jnp
        >>> from fred.learning.optimizer import Transformation, build
        >>> chain = build((Transformation(name="clip", max_delta=1.0), Transformation(name="sgd")), 0.1)
        >>> gradient = jnp.array([0.5, -7.0])
        >>> updates, memory = chain.update(gradient, chain.init(gradient))
        >>> [round(float(update), 3) for update in updates]
        [-0.05, 0.1]
    """
    return optax.chain(*(part.build(learning_rate) for part in optimizer))
