"""Any optax gradient transformation by name: `adam`, or `{name: sgd, momentum: 0.9}`, or a list of them, applied in turn."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import model_validator

from fred.base.later import jax, optax
from fred.components.registry import nearest
from fred.learning.from_optax import ONE_OR_SEVERAL, FromOptax, found, known, refused

_TRIED: set[tuple[Any, str]] = set()  # what has made a first step, with its options

_OF_MATRICES = {"muon", "scale_by_muon", "galore", "scale_by_galore"}
_NOT_ANNOTATED = ("dog", "dowg", "hutchinson_estimator_diag_hessian")  # of optax.contrib
_NEEDS_VALUES = "it needs the loss, or a function of the parameters, at each update, and servers get gradients alone"
_ELSEWHERE = "the parameters to be evaluated lie in its memory, where averaging and modulated steps do not reach them"
_REFUSED = {
    **dict.fromkeys(("momo", "momo_adam", "reduce_on_plateau", "lbfgs", "scale_by_polyak", "polyak_sgd"), _NEEDS_VALUES),
    **dict.fromkeys(("sophia", "hutchinson_estimator_diag_hessian", "sam", "scale_by_backtracking_linesearch"), _NEEDS_VALUES),
    **dict.fromkeys(("schedule_free", "schedule_free_adamw", "schedule_free_sgd"), _ELSEWHERE),
}


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

    @classmethod
    def usual(cls, name: str, **options: Any) -> Transformation:
        """Return a transformation that is a default: tests check it, so that it can be made before optax is loaded.

        Args:
            name: in the optax namespace.
            options: of it.

        >>> Transformation.usual("sgd", momentum=0.9) == Transformation(name="sgd", momentum=0.9)
        True
        """
        return cls.model_construct(name=name, **options)

    @model_validator(mode="after")
    def _known(self) -> Transformation:
        if not _transforms(found(self.name)):
            hint = nearest(self.name, known())
            raise ValueError(f"optax has no gradient transformation `{self.name}`{hint}")
        if reason := _REFUSED.get(self.name.removeprefix("contrib.")):
            raise ValueError(f"optax.{self.name} cannot be used: {reason}")
        if "learning_rate" in self.given:
            raise ValueError(f"the learning rate is the algorithm's own option `learning_rate`, not one of `{self.name}`")
        self.check_options()
        said = (self.factory, self.model_dump_json())
        if said not in _TRIED:  # the same one in all runs of a sweep
            self._try()
            _TRIED.add(said)
        return self

    def _try(self) -> None:
        """Refuse, with ValueError, what cannot make a step, or not one that servers can make."""
        tiny = {"weights": jax.ShapeDtypeStruct((2, 2), np.float32)}
        try:
            self.build(0.1)
            updates, before, after = jax.eval_shape(self._step, tiny, jax.ShapeDtypeStruct((), np.float32))
        except Exception as error:
            raise refused(self.name, error) from error
        if _shapes(updates) != _shapes(tiny):
            raise ValueError(f"optax.{self.name} cannot be used: it needs each example's gradient, and servers get the mean")
        if _shapes(before) != _shapes(after):
            raise ValueError(f"optax.{self.name} cannot be used: what it remembers changes its shapes or types")

    def _step(self, params: Any, rate: Any) -> Any:
        """A first step, traced to see whether it works: updates, memory before and after."""
        transformation = self.build(rate)
        before = transformation.init(params)
        updates, after = transformation.update(params, before, params)
        return updates, before, after

    @property
    def of_matrices(self) -> bool:
        """Whether arrays of two dimensions are matrices to it, of which it must see the whole."""
        return self.name.removeprefix("contrib.") in _OF_MATRICES

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


def _transforms(factory: Any) -> bool:
    """Whether it makes a gradient transformation."""
    if not inspect.isfunction(factory.func if isinstance(factory, partial) else factory):  # nadam is adam with an option
        return False
    made = inspect.signature(factory).return_annotation
    return "GradientTransformation" in str(made) or factory in [getattr(optax.contrib, name) for name in _NOT_ANNOTATED]


def _shapes(tree: Any) -> Any:
    return jax.tree.structure(tree), [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)]


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
