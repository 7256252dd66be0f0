"""The criteria by which a plan tunes and ranks systems: the time, the cost or the energy until the target."""

from typing import NamedTuple

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster


class By(NamedTuple):
    """A criterion of a plan: where results have it, and how sentences name it."""

    name: str  # as `--by` has it
    best: str  # as a sweep has it
    to_target: str  # column of the summary until the target
    in_all: str  # column of the summary until the end
    unit: str  # follows a number
    heading: str  # of the column of medians
    reached: str  # how the first system reached the target; {} is its median
    next: str  # about the next system that is significantly worse; {} is the ratio
    least: str  # about the best system by this criterion
    missed: str  # what a run that missed the target counts as

    def said(self, value: float) -> str:
        """Return a value with its unit.

        >>> TIME.said(13.82), ENERGY.said(0.5)
        ('13.82 s', '0.5 kWh')
        """
        return f"{value:,.4g}{self.unit}"


TIME = By(
    *("time", "seconds", "target_seconds", "virtual_seconds", " s", "median, s"),
    reached="first, after {}",
    next="the next that is surely slower, takes {} times as long",
    least="is fastest",
    missed="the whole budget",
)
COST = By(
    *("cost", "cost", "target_cost", "cost_total", "", "median cost"),
    reached="at the least cost, {}",
    next="the next that surely costs more, costs {} times as much",
    least="costs least",
    missed="its cost until the end",
)
ENERGY = By(
    *("energy", "energy", "target_energy_kwh", "energy_kwh", " kWh", "median, kWh"),
    reached="with the least energy, {}",
    next="the next that surely needs more, needs {} times as much",
    least="needs the least energy",
    missed="its energy until the end",
)
CRITERIA = {each.name: each for each in (TIME, COST, ENERGY)}


def check(by: By, cluster: Cluster, source: str) -> None:
    """Raise FredError if a cluster has no prices, or no power, to rank by.

    Args:
        by: the criterion.
        cluster: simulated cluster.
        source: name of the scenario, for the message.
    """
    prices = cluster.prices
    if by == COST and not (prices and prices.charge):
        raise FredError(
            f"--by cost: nothing in {source} has a price; add, for example, "
            "`prices: {workers: [{per_hour: 3.0}]}` to its `cluster`"
        )
    if by == ENERGY and not (prices and prices.have_power):
        raise FredError(
            f"--by energy: no machine in {source} draws power; add, for example, "
            "`prices: {workers: [{busy_watts: 400, idle_watts: 80}]}` to its `cluster`"
        )
