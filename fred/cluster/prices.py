"""What a cluster costs: prices of machines, traffic and electricity, and the power that machines draw.

Example: two kinds of workers, of which the second has a spot price that falls after an hour, and a server.
    >>> import fred
    >>> prices = {
    ...     "workers": [{"groups": [0], "per_hour": 3.0}, {"groups": [1], "per_hour": [[0, 1.0], [3600, 0.5]]}],
    ...     "servers": [{"per_hour": 0.2}],
    ... }
    >>> groups = [{"workers": 2}, {"workers": 1, "speed": 0.5}]
    >>> cluster = fred.Cluster(groups=groups, compute={"name": "constant", "seconds": 60.0}, prices=prices)
    >>> scenario = fred.scenario(
    ...     cluster=cluster, algorithm={"name": "asgd", "learning_rate": 0.1}, stop={"seconds": 7200}
    ... )
    >>> fred.run(scenario).outcome("asgd").summary["cost"]  # 2 x 2 h x 3, 1 h x 1 and 1 h x 0.5, 2 h x 0.2
    {'total': 13.9, 'workers': 13.5, 'servers': 0.4, 'traffic': 0.0, 'electricity': 0.0}
"""

import warnings
from collections.abc import Sequence
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Discriminator, Field, Tag, ValidationInfo, WithJsonSchema, field_validator, model_validator

from fred.base.errors import FredError, listed
from fred.cluster.recorded import Dated, check_has_file
from fred.components.component import Component, Natural, Power, Price, Time
from fred.components.input_path import InputPath
from fred.tables.quantities import BEGINS, price_in
from fred.tables.small_tables import read_table
from fred.tables.table_kinds import Column, Kind

Step = tuple[Time, Price]  # a time, s; the price per hour from then on
_MOST_STEPS = 100_000  # all of them are stored in every manifest
_KIND = Kind(
    "prices",
    (
        Column(
            "begin",
            "times",
            (
                *(*BEGINS, "timestamp", "time", "date", "datetime", "valid_from"),
                *("effective_from", "effective_date", "effective_start_date"),
            ),
        ),
        Column(
            "per_hour",
            "numbers",
            (
                "price",
                "spot_price",
                "retail_price",
                "price_per_hour",
                "hourly_price",
                "hourly",
                "usd_per_hour",
                "cost_per_hour",
                "rate_per_hour",
            ),
            unit="any currency",
            factor=price_in,
            units=dict.fromkeys(("USD", "usd", "EUR", "eur"), 1.0),
        ),
    ),
    "3600,0.9",
)
_by_form = Discriminator(
    lambda price: "[list]" if isinstance(price, list | tuple) else "[number]"
)  # so that one error is reported
_Number = Annotated[Price, Tag("[number]")]
_TABLE = WithJsonSchema({"type": "array", "items": {"type": "array", "items": {"type": "number", "minimum": 0}}})
_Steps = Annotated[tuple[Step, ...], Tag("[list]"), _TABLE]
_Table = Annotated[tuple[tuple[Price, ...], ...], Tag("[list]"), _TABLE]


def _or_a_file(schema: dict[str, Any]) -> None:
    """Let editors accept the path of a file as well."""
    schema["oneOf"].append({"type": "string", "format": "path"})


class Place(NamedTuple):
    """The groups and regions of machines, by their numbers; zeros if there are none: arrays [machines]."""

    group: NDArray[np.int64]
    region: NDArray[np.int64]


class Machines(Dated):
    """The price of some machines."""

    per_hour: Annotated[_Number | _Steps, _by_form] = Field(
        default=0.0,
        description="price of a machine per hour, in any currency; or steps of a spot price, each the time from which it "
        "holds, s, and the price, as [[0, 1.2], [3600, 0.9]]; or a table of them with the columns `begin` (s, or dates) and "
        "`per_hour`, or what `aws ec2 describe-spot-price-history` prints",
        json_schema_extra=_or_a_file,
    )
    regions: tuple[Natural, ...] = Field(
        default=(), description="only machines in these regions of `network.regions`; absent: in all"
    )
    paid_while_away: bool = Field(
        default=False,
        description="whether offline time is paid, as for reserved machines that fail; spot machines are not paid once "
        "they are taken back",
    )

    @model_validator(mode="before")
    @classmethod
    def _check_file_options(cls, options: Any) -> Any:
        if isinstance(options, dict):
            check_has_file(options, "per_hour")
        return options

    @field_validator("per_hour", mode="before")
    @classmethod
    def _from_a_file(cls, price: Any, info: ValidationInfo) -> Any:
        if not isinstance(price, str | Path):
            return price
        try:
            return _read_steps(InputPath.validate(price, info).located(), info.data.get("from"))
        except FredError as error:
            raise ValueError(str(error)) from error

    @field_validator("per_hour")
    @classmethod
    def _in_order(cls, price: float | tuple[Step, ...]) -> float | tuple[Step, ...]:
        if not isinstance(price, tuple):
            return price
        times = [begin for begin, _ in price]
        if not times or times[0] != 0:
            raise ValueError(f"the first step begins at {times[0]:g} s; expected 0" if times else "expected at least one step")
        if unordered := [time for previous, time in pairwise(times) if time <= previous]:
            raise ValueError(f"the step at {unordered[0]:g} s is not after the one before it; expected increasing times")
        if len(times) > _MOST_STEPS:
            raise ValueError(f"{len(times):,} steps; expected at most {_MOST_STEPS:,}")
        return price

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the steps of the price.

        >>> Machines(per_hour=2).steps
        ((0.0, 2.0),)
        """
        return self.per_hour if isinstance(self.per_hour, tuple) else ((0.0, self.per_hour),)


class PricedWorkers(Machines):
    """The price of some workers, and their power."""

    workers: tuple[Natural, ...] = Field(default=(), description="only these workers, by number; absent: all")
    groups: tuple[Natural, ...] = Field(
        default=(), description="only workers of these groups, by their place in `cluster.groups`, from 0"
    )
    busy_watts: Power = Field(default=0.0, description="power of a worker while it computes, W")
    idle_watts: Power = Field(
        default=0.0, description="power of a worker while it waits or sends, W; offline workers draw none"
    )


class PricedServers(Machines):
    """The price of some servers, and their power."""

    servers: tuple[Natural, ...] = Field(default=(), description="only these servers, by number; absent: all")
    watts: Power = Field(default=0.0, description="power of a server, W; offline servers draw none")


class Prices(Component):
    """The prices of machines, traffic and electricity. They do not change a run; its summary then has cost and energy.

    Of several entries that fit a machine the last one applies. Machines are paid until the end of the run, also while they
    wait. Not modelled: minimum billing times, storage, discounts, the power of the network and of cooling.
    """

    workers: tuple[PricedWorkers, ...] = Field(
        default=(), description="price and power of workers; absent: they are free", examples=[[{"per_hour": 3.0}]]
    )
    servers: tuple[PricedServers, ...] = Field(default=(), description="price and power of servers; absent: they are free")
    per_gb: Annotated[_Number | _Table, _by_form] = Field(
        default=0.0,
        description="price of a GB (10^9 bytes) sent over the network; with `network.regions`, only from one region to "
        "another; or a table of it from each region to each",
    )
    per_kwh: Price = Field(default=0.0, description="price of a kWh, for machines whose electricity is paid separately")

    @property
    def have_power(self) -> bool:
        """Return True if any machine draws power."""
        powers = [watts for entry in self.workers for watts in (entry.busy_watts, entry.idle_watts)]
        return any((*powers, *(entry.watts for entry in self.servers)))

    @property
    def charge(self) -> bool:
        """Return True if anything has a price above 0.

        >>> Prices(workers=[{"busy_watts": 400}]).charge, Prices(workers=[{"busy_watts": 400}], per_kwh=0.3).charge
        (False, True)
        """
        machines = [price for entry in (*self.workers, *self.servers) for _, price in entry.steps]
        return any((*machines, np.any(self.per_gb), self.per_kwh and self.have_power))

    def check(self, workers: Place, servers: Place, groups: int, regions: int) -> None:
        """Raise ValueError if a machine has no price, or a name has no machine.

        Args:
            workers, servers: groups and regions of all machines.
            groups, regions: numbers of groups and regions; 0: there are none.
        """
        for kind, entries, size in (
            ("workers", self.workers, len(workers.group)),
            ("servers", self.servers, len(servers.group)),
        ):
            for entry in entries:
                _check_numbers(kind, "groups", getattr(entry, "groups", ()), groups)
                _check_numbers(kind, "regions", entry.regions, regions)
                _check_numbers(kind, kind, getattr(entry, kind), size)
        for kind, entry_of in (("worker", self.of_workers(workers)), ("server", self.of_servers(servers))):
            # Without any entries, all machines of this kind are free.
            if len(unpriced := np.flatnonzero(entry_of < 0)) and getattr(self, f"{kind}s"):
                raise ValueError(f"`{kind}s` has no price for {kind} {unpriced[0]}: put an entry for all {kind}s first")
        if isinstance(self.per_gb, tuple) and [len(row) for row in self.per_gb] != [regions] * regions:
            expected = f"{regions} rows of {regions} numbers" if regions else "a number, as there are no `network.regions`"
            raise ValueError(
                f"`per_gb` has rows of {listed([str(len(row)) for row in self.per_gb])} numbers; expected {expected}"
            )

    def of_workers(self, place: Place) -> NDArray[np.int64]:
        """Return the number of the entry that applies to each worker, -1 for none: [workers].

        >>> prices = Prices(workers=[{"per_hour": 3}, {"per_hour": 1, "groups": [1]}])
        >>> prices.of_workers(Place(np.array([0, 1]), np.array([0, 0]))).tolist()
        [0, 1]
        """
        return _last_fitting(
            [_fits(place, entry.workers, entry.groups, entry.regions) for entry in self.workers], len(place.group)
        )

    def of_servers(self, place: Place) -> NDArray[np.int64]:
        """Return the number of the entry that applies to each server, -1 for none: [servers]."""
        return _last_fitting([_fits(place, entry.servers, (), entry.regions) for entry in self.servers], len(place.group))


def _fits(place: Place, numbers: Sequence[int], groups: Sequence[int], regions: Sequence[int]) -> NDArray[np.bool_]:
    """Return True for machines that an entry names: [machines]."""
    conditions = ((np.arange(len(place.group)), numbers), (place.group, groups), (place.region, regions))
    return np.logical_and.reduce(  # an empty selection means all
        [np.isin(values, selection) if selection else np.ones(len(values), bool) for values, selection in conditions]
    )


def _last_fitting(fits: Sequence[NDArray[np.bool_]], machines: int) -> NDArray[np.int64]:
    """Return the number of the last entry that fits each machine, -1 for none: [machines]."""
    entries = np.full(machines, -1)
    for number, fitting in enumerate(fits):
        entries[fitting] = number
    return entries


def _check_numbers(kind: str, option: str, numbers: Sequence[int], size: int) -> None:
    """Raise ValueError if an entry of this kind names, in an option, a number that does not exist."""
    if max(numbers, default=-1) >= size:
        numbering = f"there are {size}, numbered from 0" if size else "the cluster has none"
        raise ValueError(f"`{kind}` names {max(numbers)} in `{option}`; {numbering}")


def _read_steps(path: Path, begin: date | None) -> list[Step]:
    """Return the steps of a price in a file, in order. Raises FredError.

    Args:
        path: the file.
        begin: date at which the run begins; None: the file's times are seconds of the run, or dates that begin with the first.
    """
    table = read_table(path, _KIND, begin)
    begins, prices = table.numbers["begin"], table.numbers["per_hour"]
    for row in np.flatnonzero(~(np.isfinite(begins) & (prices >= 0) & (prices < np.inf))):
        where = table.file.describe_row(int(row))
        raise FredError(f"{where}: expected a time from 0 s on and a price; found {begins[row]:g} and {prices[row]:g}")
    order = np.argsort(begins, kind="stable")
    if not np.array_equal(order, np.arange(len(order))):
        warnings.warn(f"{path}: the rows are not in the order of time; FRED has sorted them", stacklevel=2)
    for position in np.flatnonzero((np.diff(begins[order]) == 0) & (np.diff(prices[order]) != 0)):
        first, second = (int(row) for row in order[position : position + 2])
        raise FredError(
            f"{table.file.describe_row(second)}: another price at the same time as in {table.file.describe_row(first)}, "
            f"{prices[second]:g} and {prices[first]:g}; "
            "expected those of one kind of machine in one place: keep their rows only"
        )
    steps = list(zip(begins[order].tolist(), prices[order].tolist(), strict=True))
    prices_until_begin = [price for time, price in steps if time <= 0]  # the last of them holds when the run begins
    if begin is not None and not prices_until_begin:  # without a date, `_in_order` refuses steps that begin after 0
        raise FredError(f"{path}: the first price begins {steps[0][0]:g} s after the date that `from` names: give a later one")
    if not prices_until_begin:
        return steps
    return [(0.0, prices_until_begin[-1]), *((time, price) for time, price in steps if time > 0)]
