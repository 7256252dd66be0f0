"""Optax gradient transformations by name: `adam`, `{name: sgd, momentum: 0.9}`, or a list of them, applied in order."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import AfterValidator, model_validator

from fred.base.later import jax, optax
from fred.components.registry import nearest
from fred.learning.from_optax import ONE_OR_SEVERAL, FromOptax, found, known, refused

_TRIED: set[tuple[Any, str]] = set()  # transformations that have been tried, with their options

_OF_MATRICES = {"muon", "scale_by_muon", "galore", "scale_by_galore"}
_NOT_ANNOTATED = ("dog", "dowg", "hutchinson_estimator_diag_hessian")  # of optax.contrib
_NEEDS_VALUES = "it needs the loss, or a function of the parameters, at each update, and servers receive only gradients"
_ELSEWHERE = "its state holds the parameters to evaluate, and averaging and modulated steps do not change that state"
_REFUSED = {
    **dict.fromkeys(("momo", "momo_adam", "reduce_on_plateau", "lbfgs", "scale_by_polyak", "polyak_sgd"), _NEEDS_VALUES),
    **dict.fromkeys(("sophia", "hutchinson_estimator_diag_hessian", "sam", "scale_by_backtracking_linesearch"), _NEEDS_VALUES),
    **dict.fromkeys(("schedule_free", "schedule_free_adamw", "schedule_free_sgd"), _ELSEWHERE),
}


class Transformation(FromOptax):
    """One optax gradient transformation: its name in the optax namespace, and its options.

    Names and options that optax does not have are refused here, before anything runs:

        >>> from fred.learning.optimizer import Transformation
        >>> Transformation(name="sgd", momentum=0.9).takes_rate, Transformation(name="clip", max_delta=1.0).takes_rate
        (True, False)
        >>> Transformation(name="sgd", momentun=0.9)
        Traceback (most recent call last):
            ...
        fred.FredError: Transformation: `sgd` has no option `momentun` here; did you mean `momentum`?
    """

    reserved: ClassVar[str] = "learning_rate"

    @classmethod
    def usual(cls, name: str, **options: Any) -> Transformation:
        """Return a transformation without checks, for defaults: FRED makes them before it loads optax.

        Tests check these defaults instead.

        Args:
            name: name in the optax namespace.
            options: the transformation's options.

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
        if said not in _TRIED:  # all runs of a sweep may have the same one
            self._try()
            _TRIED.add(said)
        return self

    def _try(self) -> None:
        """Raise ValueError for a transformation that cannot make a step, or not from one mean gradient."""
        tiny = {"weights": jax.ShapeDtypeStruct((2, 2), np.float32)}
        try:
            self.build(0.1)
            updates, before, after = jax.eval_shape(self._step, tiny, jax.ShapeDtypeStruct((), np.float32))
        except Exception as error:
            raise refused(self.name, error) from error
        if _shapes(updates) != _shapes(tiny):
            raise ValueError(f"optax.{self.name} cannot be used: it needs each example's gradient, and servers get the mean")
        if _shapes(before) != _shapes(after):
            raise ValueError(f"optax.{self.name} cannot be used: its state changes shapes or types at an update")

    def _step(self, params: Any, rate: Any) -> Any:
        """Make a first step. Return the updates, and the transformation's state before and after."""
        transformation = self.build(rate)
        before = transformation.init(params)
        updates, after = transformation.update(params, before, params)
        return updates, before, after

    @property
    def of_matrices(self) -> bool:
        """True if it treats two-dimensional arrays as matrices and must receive them whole, not in blocks."""
        return self.name.removeprefix("contrib.") in _OF_MATRICES

    def build(self, learning_rate: Any) -> optax.GradientTransformation:
        """Return the optax transformation. It receives the learning rate if it takes one.

        Args:
            learning_rate: a number, or an array without dimensions.
        """
        rate = {"learning_rate": learning_rate} if self.takes_rate else {}
        return self.factory(**rate, **self.given)

    @property
    def takes_rate(self) -> bool:
        """True if the transformation takes the learning rate."""
        return "learning_rate" in inspect.signature(self.factory).parameters


def _one_takes_rate(parts: tuple[Transformation, ...]) -> tuple[Transformation, ...]:
    if sum(part.takes_rate for part in parts) != 1:
        raise ValueError("exactly one transformation must take the learning rate (sgd, adam, rmsprop, ...)")
    return parts


Optimizer = Annotated[tuple[Transformation, ...], *ONE_OR_SEVERAL, AfterValidator(_one_takes_rate)]


def is_plain(optimizer: Optimizer) -> bool:
    """Return True for SGD without momentum, whose steps sum to the learning rate times the sum of the gradients."""
    (first, *others) = optimizer
    return not others and first.name == "sgd" and not first.given.get("momentum")


def _transforms(factory: Any) -> bool:
    """Return True if a function of optax returns a gradient transformation."""
    if not inspect.isfunction(factory.func if isinstance(factory, partial) else factory):  # nadam is adam with an option
        return False
    made = inspect.signature(factory).return_annotation
    return "GradientTransformation" in str(made) or factory in [getattr(optax.contrib, name) for name in _NOT_ANNOTATED]


def _shapes(tree: Any) -> Any:
    return jax.tree.structure(tree), [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)]


def build(optimizer: Optimizer, learning_rate: Any) -> optax.GradientTransformation:
    """Return the chain of transformations as one optax transformation.

    Args:
        optimizer: the transformations, in the order in which they are applied to a gradient.
        learning_rate: learning rate, for the transformation that takes it.

    Clip each number to 1, then step against the gradient with a learning rate of 0.1:

        >>> import jax.numpy as jnp
        >>> from fred.learning.optimizer import Transformation, build
        >>> chain = build((Transformation(name="clip", max_delta=1.0), Transformation(name="sgd")), 0.1)
        >>> gradient = jnp.array([0.5, -7.0])
        >>> updates, memory = chain.update(gradient, chain.init(gradient))
        >>> [round(float(update), 3) for update in updates]
        [-0.05, 0.1]
    """
    return optax.chain(*(part.build(learning_rate) for part in optimizer))
