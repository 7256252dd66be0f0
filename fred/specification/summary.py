"""The summary of a run: the measures of summary.json, with what they need, which way is better, and how tables show them.

A measure is a field of `Summary` and a line of `summarise` (outcomes/outcome.py). Criteria of sweeps, the records of
units, the table of runs and the JSON Schema read the fields.
"""

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field

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


class _Strict(BaseModel):
    """JSON read strictly: no text for numbers, no numbers that JSON lacks, no additional keys."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


_Count = Annotated[int, Field(ge=0)]
_Real = Annotated[float, Field(ge=0)]


class _Gradients(_Strict):
    computed: Annotated[_Count, Column(better="higher")]
    applied: Annotated[_Count, Column(better="higher", heading="gradients")]
    dropped: Annotated[_Count, Column(heading="dropped")]
    in_flight: _Count


class _Staleness(_Strict):
    mean: Annotated[float | None, Column(heading="staleness, mean")]
    max: Annotated[int | None, Column(heading="staleness, largest")]


class _ModelAge(_Strict):
    mean: Annotated[float | None, Column(heading="model age, mean")]
    max: Annotated[int | None, Column(heading="model age, largest")]


class _OfBlock(_Strict):
    block: _Count
    min: int
    mean: float
    median: float
    max: int
    std: float
    count: _Count


class _Ways(_Strict):
    to_workers: _Count
    to_servers: _Count
    between_workers: _Count


class _Copies(_Strict):
    potential: _Count | None
    pushes: _Count | None
    fetches: _Count | None


class _WorkersTime(_Strict):
    """Shares of all workers' time."""

    computing: Annotated[_Real | None, Column(better="higher")]
    wasted: _Real | None
    network: _Real | None
    waiting: Annotated[_Real | None, Column(label="waiting, share of time")]
    away: _Real | None


class _Cost(_Strict):
    total: Annotated[_Real | None, Column((PRICES,), words="cost", heading="cost")]
    workers: Annotated[_Real | None, Column((PRICES,), heading="cost of workers", printed=False)]
    servers: Annotated[_Real | None, Column((PRICES,), heading="cost of servers", printed=False)]
    traffic: Annotated[_Real | None, Column((PRICES,), heading="cost of traffic", printed=False)]
    electricity: Annotated[_Real | None, Column((PRICES,), heading="cost of electricity", printed=False)]


class _JobTime(_Strict):
    """Shares of the job's time."""

    training: Annotated[_Real | None, Column((FAILURES,))]
    saving: Annotated[_Real | None, Column((FAILURES,), heading="saving, %", printed=False, factor=100.0)]
    undone: Annotated[_Real | None, Column((FAILURES,), heading="undone, %", printed=False, factor=100.0)]
    detecting: Annotated[_Real | None, Column((FAILURES,), heading="detecting, %", printed=False, factor=100.0)]
    repairing: Annotated[_Real | None, Column((FAILURES,), heading="repairing, %", printed=False, factor=100.0)]
    loading: Annotated[_Real | None, Column((FAILURES,), heading="loading, %", printed=False, factor=100.0)]


class _Failures(_Strict):
    number: Annotated[_Count, Column((FAILURES,), heading="failures")]
    goodput: Annotated[_Real | None, Column((FAILURES,), better="higher", words="goodput", heading="goodput, %", factor=100.0)]
    seconds_between: Annotated[
        _Real | None,
        Column((FAILURES,), better="higher", heading="s between failures", printed=False, before="failures_goodput"),
    ]
    deferred_checkpoints: Annotated[_Count, Column((FAILURES,), heading="deferred checkpoints", printed=False)] = 0
    time: _JobTime


class _Target(_Strict):
    """When the target was first reached, and what had been spent until then."""

    loss: Annotated[float | None, Column((TARGET,))] = None
    error: Annotated[float | None, Column((TARGET,))] = None
    gradient_norm: Annotated[float | None, Column((TARGET,))] = None
    updates: Annotated[_Count | None, Column((TARGET,), label="updates to the target")]
    seconds: Annotated[_Real | None, Column((TARGET,), label="virtual time to the target, s")]
    cost: Annotated[
        _Real | None, Column((PRICES, TARGET), heading="cost to target", before="cost_total", label="cost to the target")
    ] = None
    energy_kwh: Annotated[
        _Real | None,
        Column(
            (POWER, TARGET),
            words="energy to the target, kWh",
            heading="energy to target, kWh",
            printed=False,
            before="energy_kwh",
        ),
    ] = None


class Digests(_Strict):
    """The identity of a run's timing and of its arithmetic (None: no task)."""

    schedule: str
    params: str | None


class Summary(_Strict):
    """The results of one run with one seed as numbers: a row of summary.json. None stands for measures that do not apply."""

    name: str
    algorithm: str
    protocol: str
    seed: _Count
    workers: _Count
    updates: Annotated[_Count, Column(better="higher", heading="updates")]
    gradients: _Gradients
    ended_by: Literal["target_loss", "updates", "gradients", "standstill", "seconds"]
    standstill: str | None
    virtual_seconds: Annotated[_Real | None, Column(heading="virtual s", label="virtual time, s")]
    throughput: Annotated[
        _Real | None, Column(better="higher", heading="gradients per s", printed=False, label="gradients per second")
    ]
    staleness_by_block: list[_OfBlock] | None
    staleness: _Staleness
    staleness_in_gradients: Annotated[_Count | None, Column(heading="staleness, in gradients", printed=False)]
    model_age: _ModelAge
    bytes: Annotated[_Ways, Column(heading="sent, MB", printed=False, factor=1e-6)]
    messages: _Ways
    copies: _Copies
    workers_time: _WorkersTime
    cost: _Cost | None = None
    energy_kwh: Annotated[_Real | None, Column((POWER,), words="energy, kWh", heading="energy, kWh")] = None
    failures: _Failures | None = None
    loss: Annotated[float | None, Column((TASK,), heading="loss", before="updates", label="loss at the end")]
    error: Annotated[float | None, Column((TASK,), heading="error", before="updates", label="error at the end")]
    perplexity: Annotated[float | None, Column((TASK, CROSS_ENTROPY), heading="perplexity", before="updates")]
    gradient_norm: Annotated[
        float | None, Column((NORM, TASK), heading="gradient norm", before="updates", label="norm of the gradient at the end")
    ]
    replicas_loss: Annotated[float | None, Column((TASK,))]
    replicas_error: Annotated[float | None, Column((TASK,), heading="replicas' error", printed=False, before="updates")]
    diverged: Annotated[_Count | None, Column((TASK,))]
    target: Annotated[_Target | None, Column(heading="to target", before="updates")]
    digests: Digests


TABLE_COLUMNS = Column.of_table(Summary)
NUMBERS = Column.of_numbers(Summary)


def label_of(name: str) -> str:
    """Return the label of an axis.

    Args:
        name: name of a number in summary.csv.

    >>> label_of("virtual_seconds"), label_of("gradients_dropped")
    ('virtual time, s', 'gradients dropped')
    """
    return NUMBERS[name].label or NUMBERS[name].words or name.replace("_", " ")
