"""Descriptions of measures, as annotations of a model's fields: what they need, which way is better, how they are shown."""

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel

from fred.specification.shape import Run


class Need(NamedTuple):
    """A part of a run without which a measure has no value.

    Args:
        name: the part, in words, as in "it needs {name}".
        applies: returns True for a run that has it.
    """

    name: str
    applies: Callable[[Run], bool]


TASK = Need("a `task`", lambda run: run.task is not None)
CROSS_ENTROPY = Need("a cross-entropy as `task.loss`", lambda run: run.task is not None and run.task.has_perplexity)
NORM = Need("`evaluate.gradient_norm`", lambda run: run.evaluate.measures_gradient_norm)
TARGET = Need("a target, such as `evaluate.target_loss`", lambda run: run.has_target)
PRICES = Need("`cluster.prices`", lambda run: run.cluster.prices is not None)
POWER = Need(
    "power, such as `busy_watts`, in `cluster.prices`",
    lambda run: run.cluster.prices is not None and run.cluster.prices.have_power,
)
FAILURES = Need("`cluster.failures`", lambda run: run.cluster.failures is not None)


class Column(NamedTuple):
    """The description of a measure.

    Args:
        needs: parts of a run without which it has no value, the one that messages name first.
        better: the better values.
        words: its name in sentences; empty: as in summary.csv.
        label: its name at the axis of a figure, with the unit; empty: as in summary.csv.
        heading: heading in the table of runs; empty: the table leaves it out.
        printed: True if the table in the terminal has it, too.
        factor: factor of its numbers in the table.
        before: column of the table before which it comes; empty: in the order of the summary.
    """

    needs: tuple[Need, ...] = ()
    better: Literal["lower", "higher"] = "lower"
    words: str = ""
    label: str = ""
    heading: str = ""
    printed: bool = True
    factor: float = 1.0
    before: str = ""

    @classmethod
    def of_numbers(cls, model: type[BaseModel]) -> dict[str, "Column"]:
        """Return the descriptions of all numbers in a model, by their names in a flat table.

        Args:
            model: the model; its fields, and those within them, may be annotated with a `Column`.

        >>> class Cost(BaseModel):
        ...     total: float | None
        ...     unit: str
        >>> class Row(BaseModel):
        ...     seed: Annotated[int, Column(better="higher")]
        ...     cost: Annotated[Cost | None, Column(heading="cost")]
        >>> [(name, column.better) for name, column in Column.of_numbers(Row).items()]
        [('seed', 'higher'), ('cost_total', 'lower')]
        """
        return {name: column for name, column, is_number in _columns(model) if is_number}

    @classmethod
    def of_table(cls, model: type[BaseModel]) -> dict[str, "Column"]:
        """Return the descriptions of the columns that a table shows, in its order, by their names in a flat table.

        Args:
            model: the model, as in `of_numbers`.
        """
        columns = {name: column for name, column, _ in _columns(model)}
        names = [name for name, column in columns.items() if column.heading and not column.before]
        for name, column in columns.items():
            if column.heading and column.before:
                names.insert(names.index(column.before), name)
        return {name: columns[name] for name in names}


def _columns(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Column, bool]]:
    """Yield the name of each field in summary.csv, its description, and True for a number, also for fields within fields."""
    for name, field in model.model_fields.items():
        description = next((item for item in field.metadata if isinstance(item, Column)), Column())
        types = [*_leaves(field.annotation)]
        yield prefix + name, description, int in types or float in types
        for part in types:
            if issubclass(part, BaseModel):
                yield from _columns(part, f"{prefix}{name}_")


def _leaves(annotation: Any) -> Iterator[type]:
    """Yield the classes of which a type is made, without those of the items of lists."""
    kind, parts = get_origin(annotation), get_args(annotation)
    if kind is None or kind is list:
        yield kind or annotation
    elif kind is not Literal:
        for part in parts[:1] if kind is Annotated else parts:
            yield from _leaves(part)
