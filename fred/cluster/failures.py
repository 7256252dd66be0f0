"""Machines that fail and stop the job, which starts again from its last checkpoint.

Each cause of failure strikes a worker, a node, a region, or several of them at once. All its workers fail together.

Example: four workers, of which one fails every two hours; a checkpoint every ten minutes keeps the others' work.
    >>> failures = Failures(
    ...     causes=[{"mean_up": 28800.0, "repair": {"name": "constant", "seconds": 3600.0}}],
    ...     checkpoint={"every_seconds": 600.0, "pause": 20.0},
    ...     load={"name": "constant", "seconds": 60.0},
    ...     spares=1,
    ... )
    >>> [domain.tolist() for domain in failures.causes[0].domains(np.array([0, 0, 1, 1]), ())]
    [[0], [1], [2], [3]]
"""

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, SerializerFunctionWrapHandler, ValidationInfo, model_serializer, model_validator

from fred.base.errors import FredError
from fred.cluster.bandwidths import Bandwidth
from fred.cluster.durations import check_median
from fred.cluster.latency import AnyLatency, Constant, Exponential, Latency
from fred.cluster.recorded import Dated, begin_of, check_has_file
from fred.components.component import LONGEST, MOST_BYTES, Component, Count, Duration, Natural, Time
from fred.components.input_path import InputPath, file_instead
from fred.tables.quantities import BEGINS, ENDS, MACHINES
from fred.tables.small_tables import intervals, number_names, read_table, warn_of_order
from fred.tables.table_kinds import Column, Kind

_NO_TIME = Constant(seconds=0.0)
_MOST_FAILURES = 100_000  # all of them are stored in every manifest
_RETURNS = ("recovery", "recovery_time", "repair", "repair_time", "up_time", "uptime", "back")
_KIND = Kind(
    "failures",
    (
        Column("worker", "names", MACHINES),
        Column(
            "down",
            "times",
            ("down_at", "down_since", "fail", "failed", "failed_at", "failure", "failure_time", *BEGINS),
            if_dates=("down_time", "downtime"),
        ),
        Column(
            "up",
            "times",
            ("up_at", "repaired", "repaired_at", "fixed", "recovered", "recovered_at", "restored", *ENDS),
            if_dates=_RETURNS,
        ),
        Column("length", "lengths", ("duration", "downtime", "down_time", "outage_duration"), required=False),
    ),
    "gpu-3,600,1500",
)
_CARRIED = ("to", "bytes", "store_bandwidth", "blocking")  # options of checkpoints that the network carries
_Recorded = tuple[Natural, Time, Time]  # worker, down and up, s


class Cause(Component):
    """A cause of failures: machines that fail as one, the time until they fail, and the time to repair them.

    Two causes of the same machines compete. So early and late failures together make a bathtub curve: a Weibull time with a
    shape below 1, and another one with a shape above 1.
    """

    of: Literal["workers", "nodes", "regions"] = Field(default="workers", description="machines that fail")
    together: Count = Field(default=1, description="number of neighbours that fail as one, such as the nodes of a rack")
    only: tuple[Natural, ...] = Field(
        default=(), description="numbers of the machines, or of the groups of `together`, that this cause strikes; empty: all"
    )
    mean_up: Duration | None = Field(
        default=None, description="mean of an exponential time until each fails, s", examples=[86400.0]
    )
    up: AnyLatency | None = Field(default=None, description="time until each fails, s, instead of `mean_up`")
    rate: AnyLatency | None = Field(
        default=None,
        description="distribution of the machines' rates of failure, which divide the times until they fail; drawn once for "
        "those that fail together (`of`), and for each spare; absent: all 1",
        examples=[{"name": "bimodal", "fast": 1.0, "slow": 5.0, "slow_fraction": 0.1}],
    )
    repair: AnyLatency | None = Field(
        default=None, description="time to repair, s; absent: nothing is broken, and the same machines start again at once"
    )

    @model_serializer(mode="wrap")
    def _serialize(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave an absent `rate` out, so that files of machines that fail equally often do not mention it."""
        return {name: option for name, option in serialize(self).items() if name != "rate" or option is not None}

    @model_validator(mode="after")
    def _times(self) -> "Cause":
        if (self.mean_up is None) == (self.up is None):
            raise ValueError("give `mean_up`, for exponential times, or their distribution as `up`")
        for latency in (self.up, self.rate, self.repair):
            if latency is not None:
                check_median(latency, 1.0)
        return self

    @property
    def times(self) -> Latency:
        """Return the distribution of the time until a failure."""
        return self.up if self.mean_up is None else Exponential(scale=self.mean_up)  # type: ignore[return-value]

    def domains(self, node_of: NDArray[np.int64], region_of: Sequence[int]) -> list[NDArray[np.int64]]:
        """Return the workers of each domain: those that fail as one.

        Args:
            node_of: node of each worker.
            region_of: region of each worker; empty: there are none.

        Raises ValueError if `only` names others.
        """
        machine_of = {"workers": np.arange(len(node_of)), "nodes": node_of, "regions": np.asarray(region_of, np.int64)}[self.of]
        domain_of = machine_of // self.together
        domains = sorted(set(domain_of.tolist()))  # a region may have no worker
        if others := sorted({*self.only} - {*domains}):
            numbers = (
                f"0 to {domains[-1]}" if others[-1] > domains[-1] else f"{', '.join(map(str, domains))}, those with workers"
            )
            raise ValueError(f"`failures`: `only` names {self.of} {others[-1]}; their numbers are {numbers}")
        return [np.flatnonzero(domain_of == domain) for domain in sorted(set(self.only)) or domains]


class Checkpoint(Component):
    """Checkpoints of the parameters and of the whole state of the optimizer, to which a job returns after a failure."""

    every_updates: Count | None = Field(default=None, description="updates between two checkpoints", examples=[100])
    every_seconds: Duration | None = Field(
        default=None, description="time between two checkpoints, s, instead of `every_updates`"
    )
    pause: Time = Field(default=0.0, description="time for which the job stops to make one, s")
    write: Time = Field(
        default=0.0,
        description="further time until it can be used, s, during which the job goes on; the next one waits for it",
    )
    to: Literal["store", "peers"] | None = Field(
        default=None,
        description="where the network carries it: to a store, or each worker's share to the memory of the next worker; "
        "absent: `pause`, `write` and `load` are all its times",
    )
    bytes: int | None = Field(
        default=None,
        ge=1,
        le=MOST_BYTES,
        description="size of the parameters and of the optimizer's state, bytes; each worker (or server, if there are "
        "servers) sends and loads an equal share",
    )
    store_bandwidth: Bandwidth | None = Field(
        default=None,
        description="bandwidth that the store reaches in each direction, bytes/s (the network's `efficiency` is not applied to "
        "it); absent: unlimited",
    )
    blocking: bool = Field(default=False, description="the job also stops while the network carries it; false: the job goes on")

    @model_serializer(mode="wrap")
    def _serialize(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave the network's options out if it carries nothing, so that files of other checkpoints do not mention them."""
        return {name: option for name, option in serialize(self).items() if self.to or name not in _CARRIED}

    @model_validator(mode="after")
    def _one_measure(self) -> "Checkpoint":
        if (self.every_updates is None) == (self.every_seconds is None):
            raise ValueError("give `every_updates` or `every_seconds`")
        return self

    @model_validator(mode="after")
    def _carried(self) -> "Checkpoint":
        if self.to is None:
            if options := [name for name in _CARRIED if getattr(self, name)]:
                raise ValueError(f"`{options[0]}` needs `to`: `store` or `peers`")
            return self
        if self.bytes is None:
            raise ValueError("`to` needs `bytes`: the size of the parameters and of the optimizer's state")
        if self.write:
            raise ValueError("the network determines how long a checkpoint takes: leave out `write`, or `to`")
        if self.to == "peers" and self.store_bandwidth:
            raise ValueError("`store_bandwidth` needs `to: store`")
        return self


class Failures(Dated):
    """Failures that stop the whole job. It starts again from its last checkpoint, once all workers have a machine.

    A failure is detected, and broken machines wait for a repair crew. Each broken machine is replaced by a spare, or else by
    the first machine that is repaired. Then all load the checkpoint. Repaired machines that replace none become spares.

    Machines can fail while they compute, checkpoint and load; not while the job waits for a machine.
    """

    causes: tuple[Cause, ...] = Field(default=(), description="causes of failures, which act independently of each other")
    file: InputPath | None = Field(
        default=None,
        description="table of recorded failures, `worker,down,up` in s or as dates; or a record of "
        "Slurm's `sacct`, LANL, the Failure Trace Archive, or gcloud",
    )
    recorded: tuple[_Recorded, ...] = Field(
        default=(), description="recorded failures: worker, down and up, s", examples=[[[0, 60, 90]]]
    )
    at_updates: tuple[tuple[Count, Natural, Duration], ...] = Field(
        default=(),
        description="failures right after a number of updates: that number, the worker, and the time to repair its machine, s",
        examples=[[[100, 0, 30.0]]],
    )
    checkpoint: Checkpoint = Field(description="when checkpoints are made", examples=[{"every_updates": 100}])
    minibatches: Literal["same", "next"] = Field(
        default="same",
        description="minibatches after a failure: those of the work that is done again, or from the one after the last that "
        "each worker began, such as with a data loader that a checkpoint does not hold",
    )
    detect: AnyLatency = Field(default=_NO_TIME, description="time until a failure is noticed, s")
    load: AnyLatency = Field(
        default=_NO_TIME, description="time to start again and load a checkpoint, s, apart from the network's"
    )
    spares: Natural = Field(default=0, description="machines that stand by, each for one worker")
    join: AnyLatency = Field(
        default=_NO_TIME, description="time until a replacement can load, s: 0 for hot spares, minutes for cold ones"
    )
    crews: Count | None = Field(default=None, description="number of repairs at the same time; absent: no limit")
    retire_after: Count | None = Field(
        default=None, description="number of failures after which a machine is not repaired; absent: never"
    )

    @model_serializer(mode="wrap")
    def _serialize(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave `minibatches` and `at_updates` out if they are the default, so that files of such jobs do not mention them."""
        defaults = {"minibatches": "same", "at_updates": ()}
        return {name: option for name, option in serialize(self).items() if name not in defaults or option != defaults[name]}

    @model_validator(mode="before")
    @classmethod
    def _read_file(cls, options: Any, info: ValidationInfo) -> Any:
        if isinstance(options, dict):
            check_has_file(options, "file")
        path = file_instead(options, info, "file", "recorded")
        if path is None:
            return options
        try:
            other_options = {key: value for key, value in options.items() if key not in ("file", "from")}
            return {**other_options, "recorded": _read_failures(path, begin_of(options))}
        except FredError as error:
            raise ValueError(str(error)) from error

    @model_validator(mode="after")
    def _consistent(self) -> "Failures":
        listed = (*self.recorded, *self.at_updates)
        if not self.causes and not listed:
            raise ValueError("needs `causes` of failures, a `file` of recorded ones, or `at_updates`")
        if len(listed) > _MOST_FAILURES:
            raise ValueError(f"{len(listed):,} recorded failures; expected at most {_MOST_FAILURES:,}")
        for worker, down, up in self.recorded:
            if up <= down:
                raise ValueError(f"worker {worker} is up at {up:g} s, which is not after it was down at {down:g} s")
        for latency in (self.detect, self.load, self.join):
            check_median(latency, 1.0)
        fields = type(self).model_fields
        # Compared with their defaults, because a manifest names all options.
        options = [name for name in ("spares", "crews", "retire_after", "join") if getattr(self, name) != fields[name].default]
        if options and not any(cause.repair for cause in self.causes) and not listed:
            raise ValueError(f"`{options[0]}` needs a cause with `repair`: without it, the same machines start again at once")
        return self

    def check(self, workers: int, node_of: NDArray[np.int64], region_of: Sequence[int]) -> None:
        """Raise ValueError if a cause names machines that this cluster does not have, or checkpoints cannot be sent."""
        if self.checkpoint.to == "peers" and workers == 1:
            raise ValueError("`checkpoint.to: peers` needs 2 workers or more")
        if self.checkpoint.to == "store" and region_of:
            raise ValueError("`checkpoint.to: store` has no place in `network.regions`: use `to: peers`, or leave regions out")
        failing_workers = {
            "recorded": [worker for worker, _, _ in self.recorded],
            "at_updates": [worker for _, worker, _ in self.at_updates],
        }
        for name, numbers in failing_workers.items():
            if (worker := max(numbers, default=-1)) >= workers:
                cure = "" if name != "recorded" else f"; give `workers: {worker + 1}`, or a file with names in place of numbers"
                raise ValueError(f"there are {workers} workers, numbered from 0; `{name}` names {worker}{cure}")
        if not region_of and any(cause.of == "regions" for cause in self.causes):
            raise ValueError("`of: regions` needs `network.regions`")
        if node_of.max(initial=0) == 0 and any(cause.of == "nodes" for cause in self.causes):
            raise ValueError("`of: nodes` needs more than one node: give `cluster.nodes`, such as `nodes: 2`")
        for cause in self.causes:
            cause.domains(node_of, region_of)  # raises ValueError for `only`


def _read_failures(path: Path, begin: date | None) -> list[tuple[int, float, float]]:
    """Return the failures in a file: worker, down and up, s. Those without an end last to the end of all runs.

    Raises FredError.
    """
    table = read_table(path, _KIND, begin)
    for row, name in enumerate(table.names["worker"]):
        if not name:
            raise FredError(f"{table.file.describe_row(row)}: expected the number or the name of a worker; found none")
    outages = intervals(table, "down", "up")  # row, down and up
    # The numbers in a record are those of its machines, not of the scenario's workers.
    workers, order = number_names([table.names["worker"][row] for row, _, _ in outages], are_numbers=not table.is_record)
    warn_of_order(path, order)
    return [(worker, down, min(up, LONGEST)) for worker, (_, down, up) in zip(workers, outages, strict=True)]
