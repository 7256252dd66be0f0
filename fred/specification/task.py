"""The learning task of a run: data, model, loss, and how workers draw their minibatches."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from fred.components import registry
from fred.components.component import Component, Count, Natural
from fred.components.one_of import OneOf
from fred.schedule.minibatches import Division, Sampling


class Task(Component):
    """The learning task: data, model, loss and minibatches.

    Example:
        >>> import fred
        >>> task = fred.Task(data=fred.data.Digits(), model=fred.models.MLP(hidden=(32,)), batch_size=16)
        >>> task.model.hidden, task.batch_size, task.has_perplexity
        ((32,), 16, True)
    """

    data: Annotated[Any, OneOf("data")] = Field(description="the examples", examples=["digits"])
    model: Annotated[Any, OneOf("model")] = Field(description="the model to train", examples=["mlp"])
    loss: Annotated[Any, OneOf("loss")] | None = Field(
        default=None, description="the loss to minimise; absent: cross-entropy for classes, squared error for values"
    )
    l2: Annotated[float, Field(ge=0)] = Field(
        default=0.0,
        description="L2 penalty: l2 / 2 times the squared norm of all parameters is added to the loss, also in evaluations",
    )
    batch_size: Count | tuple[Count, ...] = Field(
        default=8,
        description="examples per gradient; or a list with one number per worker: means over workers then weight gradients by "
        "their examples. Compute times are those of the cluster, whatever the number",
    )
    sampling: Sampling = Field(default="replacement", description="how minibatches are drawn from the training examples")
    division: Division = Field(
        default="shared",
        description="how examples are divided among workers: all workers share all examples, or each has a part: random, by "
        "label, random of random size, that of its owner in the data, or with a random share of each class",
    )
    concentration: Annotated[float, Field(ge=0.01, le=1e6)] = Field(
        default=0.5,
        description="alpha of `division: dirichlet` and `by-quantity`: the smaller it is, the fewer workers hold most of a "
        "class, or of all examples",
    )
    division_seed: Natural | None = Field(
        default=None,
        description="seed of the division, the same in all runs; absent: each run divides the examples by its own seed",
    )
    replicas_start: Literal["equal", "apart"] = Field(
        default="equal", description="whether workers' own models start from equal or different parameters"
    )

    @model_validator(mode="after")
    def _parameters_are_drawn(self) -> "Task":
        if self.replicas_start == "apart" and getattr(self.model, "has_parameters", False):
            raise ValueError(
                "`replicas_start: apart` draws parameters, and a module of NNX or Equinox has its own: return it from a class "
                "derived from `fred.NNXModel` or `fred.EquinoxModel`"
            )
        return self

    @model_validator(mode="after")
    def _parts_are_drawn_from(self) -> "Task":
        if self.division != "shared" and self.sampling == "sequential":
            raise ValueError("`sampling: sequential` goes through all examples in file order: `division` must be `shared`")
        if self.division_seed is not None and self.division in ("shared", "by-owner"):
            raise ValueError(f"`division_seed` needs a division that is drawn; `division` is `{self.division}`")
        if self.sampling == "sequential" and self.has_unequal_batches:
            raise ValueError(
                "`sampling: sequential` cuts the examples into minibatches of one size, which all workers share: "
                "give `batch_size` one number, or take another `sampling`"
            )
        return self

    @property
    def context(self) -> int | None:
        """Return the number of tokens in an example, or None if the data have no sequence length (`context`)."""
        context = getattr(self.data, "context", None)
        return context if isinstance(context, int) else None

    @property
    def has_unequal_batches(self) -> bool:
        """Return True if workers have minibatches of different sizes."""
        return isinstance(self.batch_size, tuple) and len(set(self.batch_size)) > 1

    def batch_sizes(self, workers: int) -> tuple[int, ...]:
        """Return the number of examples per gradient of each of the `workers`."""
        return self.batch_size if isinstance(self.batch_size, tuple) else (self.batch_size,) * workers

    def weights(self, workers: int) -> tuple[float, ...]:
        """Return each worker's examples over the mean of the `workers`, or nothing if all have as many."""
        sizes = self.batch_sizes(workers)
        return tuple(size * workers / sum(sizes) for size in sizes) if self.has_unequal_batches else ()

    @property
    def has_perplexity(self) -> bool:
        """Return True if the loss is a cross-entropy; for sequences it then has a perplexity."""
        return self.loss is None or registry.name_of("loss", self.loss) == "cross-entropy"
