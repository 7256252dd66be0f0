"""The cost and the energy of a run, from its schedule and the prices of its cluster."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred.base.types import Floats, Ints
from fred.cluster.cluster import Cluster
from fred.cluster.prices import Prices
from fred.components.component import NANOSECONDS
from fred.schedule.schedule import NONE, Schedule, Verb, What
from fred.schedule.spans import spans

PARTS = ("workers", "servers", "traffic", "electricity")  # of the cost
COLUMNS = ("cost", "energy_kwh")  # of evaluations
_HOUR = 3600.0 * NANOSECONDS  # ns
_KWH = 1000.0 * _HOUR  # W ns
_GB = 1e9
_RUNNING = ("computing", "wasted")  # activities that take a worker's full power


class Spent(NamedTuple):
    """The cost and the energy until some moments of a run: arrays [moments]."""

    parts: dict[str, Floats]  # by PARTS, in the currency of the prices
    kwh: Floats | None  # None if no machine draws power

    @property
    def total(self) -> Floats:
        """Return the cost, the sum of its parts."""
        workers, servers, traffic, electricity = (self.parts[name] for name in PARTS)
        return workers + servers + traffic + electricity


def spent(schedule: Schedule, cluster: Cluster, times: Ints, rows: Ints) -> Spent:
    """Return the cost and the energy until some moments.

    Args:
        schedule: schedule of a run with a clock.
        cluster: cluster of that run, with prices.
        times: the moments, ns, ascending [moments].
        rows: number of rows of the schedule before each of them, whose messages are paid [moments].

    >>> import fred
    >>> cluster = fred.Cluster(workers=2, prices={"workers": [{"per_hour": 3.6, "busy_watts": 100}]})
    >>> scenario = fred.scenario(
    ...     cluster=cluster, algorithm={"name": "asgd", "learning_rate": 0.1}, stop={"seconds": 1800}
    ... )
    >>> schedule = fred.run(scenario).outcome("asgd").schedule
    >>> spending = spent(schedule, cluster, np.array([0, 1800 * 10**9]), np.array([0, len(schedule)]))
    >>> spending.total.tolist(), spending.kwh.round(3).tolist()
    ([0.0, 3.6], [0.0, 0.1])
    """
    prices = cluster.prices or Prices()
    workers_cost, workers_energy = _spent_on_workers(schedule, cluster, prices, times)
    servers_cost, servers_energy = _spent_on_servers(schedule, cluster, prices, times)
    kwh = (workers_energy + servers_energy) / _KWH
    traffic = np.concatenate(([0.0], np.cumsum(_spent_on_messages(schedule, cluster, prices))))[rows]
    parts = dict(zip(PARTS, (workers_cost / _HOUR, servers_cost / _HOUR, traffic, prices.per_kwh * kwh), strict=True))
    return Spent(parts, kwh if prices.have_power else None)


def _spent_on_workers(schedule: Schedule, cluster: Cluster, prices: Prices, times: Ints) -> tuple[Floats, Floats]:
    """Return the cost of workers, in the unit of prices x ns, and their energy, W ns, until some times: [times] each."""
    cost, energy = np.zeros(len(times)), np.zeros(len(times))
    absences = schedule.intervals.select(What.AWAY, What.BROKEN)
    busy_intervals = _busy_intervals(schedule) if prices.have_power else None
    entry_of = prices.of_workers(cluster.workers_place)
    for number, entry in enumerate(prices.workers):
        priced_machines = entry_of == number
        available = _outside(priced_machines, absences.worker, absences.begin_ns, absences.end_ns)
        cost += _integral(_always(priced_machines) if entry.paid_while_away else available, entry.steps, times)
        energy += _integral(available, ((0.0, entry.idle_watts),), times)
        if busy_intervals is not None:  # a busy worker is available, so its `idle_watts` are counted already
            energy += _integral(_inside(priced_machines, *busy_intervals), ((0.0, entry.busy_watts - entry.idle_watts),), times)
    return cost, energy


def _spent_on_servers(schedule: Schedule, cluster: Cluster, prices: Prices, times: Ints) -> tuple[Floats, Floats]:
    """Return the cost of servers and their energy, as of workers; a protocol without servers pays for none."""
    cost, energy = np.zeros(len(times)), np.zeros(len(times))
    absences = schedule.intervals.select(What.SERVER_AWAY)
    entry_of = prices.of_servers(cluster.servers_place)
    for number, entry in enumerate(prices.servers if schedule.on_servers else ()):
        priced_machines = entry_of == number
        available = _outside(priced_machines, absences.other, absences.begin_ns, absences.end_ns)
        cost += _integral(_always(priced_machines) if entry.paid_while_away else available, entry.steps, times)
        energy += _integral(available, ((0.0, entry.watts),), times)
    return cost, energy


class _Steps(NamedTuple):
    """A number that changes in steps: times, ns, ascending, and its value from each of them on; times begin at 0."""

    times: Ints
    values: Floats

    def at(self, times: Ints) -> Floats:
        """Return the values at some times, ns."""
        return self.values[np.searchsorted(self.times, times, "right") - 1]


def _always(counted_machines: NDArray[np.bool_]) -> _Steps:
    """Return the number of machines that count, at all times."""
    return _Steps(np.zeros(1, np.int64), np.full(1, float(counted_machines.sum())))


def _inside(counted_machines: NDArray[np.bool_], machine: Ints, begin: Ints, end: Ints) -> _Steps:
    """Return the number of machines that are inside one of their intervals.

    Args:
        counted_machines: True for machines that count [machines].
        machine, begin, end: number of a machine, and begin and end of an interval, ns [intervals].
    """
    begin, end = begin[counted_machines[machine]], end[counted_machines[machine]]
    times = np.concatenate(([0], begin, end))
    changes = np.concatenate(([0.0], np.ones(len(begin)), -np.ones(len(end))))  # of the number, at these times
    order = np.argsort(times, kind="stable")
    return _Steps(times[order], np.cumsum(changes[order]))


def _outside(counted_machines: NDArray[np.bool_], machine: Ints, begin: Ints, end: Ints) -> _Steps:
    """Return the number of machines that are outside their intervals."""
    inside = _inside(counted_machines, machine, begin, end)
    return inside._replace(values=counted_machines.sum() - inside.values)


def _integral(number: _Steps, price: tuple[tuple[float, float], ...], times: Ints) -> Floats:
    """Return the integral of a number times a price (by time, s) from 0 to some times, in units of the price x ns."""
    # Prices that begin after the last time do not count.
    begins = np.rint(NANOSECONDS * np.minimum([begin for begin, _ in price], times.max() / NANOSECONDS)).astype(np.int64)
    prices = _Steps(begins, np.array([amount for _, amount in price]))
    # Between two breaks, number and price are constant. Later changes than the last time do not count.
    breaks = np.unique(np.concatenate(([0], number.times, prices.times, times)).clip(0, times.max(initial=0)))
    pieces = number.at(breaks[:-1]) * prices.at(breaks[:-1]) * np.diff(breaks)
    return np.concatenate(([0.0], np.cumsum(pieces)))[np.searchsorted(breaks, times)]


def _busy_intervals(schedule: Schedule) -> tuple[Ints, Ints, Ints]:
    """Return the worker, begin and end of each activity at full power, ns."""
    account = spans(schedule)
    running = account[account["kind"].isin(_RUNNING)]
    worker, begin, end = (running[name].to_numpy(np.int64) for name in ("worker", "begin_ns", "end_ns"))
    return worker, begin, end


def _spent_on_messages(schedule: Schedule, cluster: Cluster, prices: Prices) -> Floats:
    """Return the cost of each row's messages: [rows]."""
    sent_gb, regions = schedule["bytes"] / _GB, cluster.network.regions if cluster.network else None
    if regions is None:  # then `per_gb` is a number, because a table needs regions
        return np.asarray(sent_gb * prices.per_gb, np.float64)
    is_between_regions = 1 - np.eye(len(regions.bandwidth))
    table = np.array(prices.per_gb) if isinstance(prices.per_gb, tuple) else prices.per_gb * is_between_regions
    rows, row_prices = np.flatnonzero(sent_gb > 0), np.zeros(len(sent_gb))
    on_servers, is_pull = schedule.is_on_servers(rows), schedule["verb"][rows] == Verb.PULL
    row_prices[rows[on_servers]] = _price_of_server_messages(schedule, cluster, table, rows[on_servers], is_pull[on_servers])
    between_workers = rows[~on_servers & is_pull]
    row_prices[between_workers] = _price_between_workers(schedule, cluster, table, between_workers)
    if len(allreduced := rows[~on_servers & ~is_pull]):
        # The largest one decides for all: the size of the messages only selects the ring.
        row_prices[allreduced] = _price_of_allreduce(cluster, table, float(sent_gb[allreduced].max()) * _GB)
    return sent_gb * row_prices


def _price_of_server_messages(
    schedule: Schedule, cluster: Cluster, table: Floats, rows: Ints, is_pull: NDArray[np.bool_]
) -> Floats:
    """Return the price of a GB in messages between workers and servers: [rows]. Servers that act as one share a message."""
    worker_region, server_regions = cluster.workers_place.region[schedule["worker"][rows]], cluster.servers_place.region
    if len(schedule.on_servers) > 1:  # each replica has its own server, except that `halos` may have two on its only server
        server = (schedule["replica"][rows] - schedule.on_servers.start).clip(0, len(server_regions) - 1)
    elif schedule.blocks == len(server_regions):  # each server holds a block of the model
        server = schedule["block"][rows]
    else:
        from_servers, to_servers = table[server_regions].mean(axis=0), table[:, server_regions].mean(axis=1)
        return np.where(is_pull, from_servers[worker_region], to_servers[worker_region])
    server_region = server_regions[server]
    return np.where(is_pull, table[server_region, worker_region], table[worker_region, server_region])


def _price_between_workers(schedule: Schedule, cluster: Cluster, table: Floats, rows: Ints) -> Floats:
    """Return the price of a GB in models that workers send to each other: [rows]. Without receiver: the mean over all."""
    region = cluster.workers_place.region
    trips = schedule.intervals.select(What.TRIP)
    has_receiver = trips.row != NONE
    trip_rows = trips.row[has_receiver]
    trip_prices = table[region[trips.worker[has_receiver]], region[trips.other[has_receiver]]]
    total, trip_count = (np.bincount(trip_rows, weights, len(schedule)) for weights in (trip_prices, None))  # by row
    mean_price = table[:, region].mean(axis=1)[region[schedule["worker"][rows]]]
    return np.where(trip_count[rows] > 0, total[rows] / np.maximum(trip_count[rows], 1), mean_price)


def _price_of_allreduce(cluster: Cluster, table: Floats, size: float) -> float:
    """Return the mean price of a GB in an allreduce among all workers, each of which sends `size` bytes."""
    network = cluster.network
    if network is None or network.regions is None or cluster.size < 2:
        return 0.0
    members = np.bincount(cluster.workers_place.region, minlength=len(table)).tolist()
    part = size / (2 * (cluster.size - 1))  # bytes of a message in a ring
    return float((table * network.regions.shares(members, part, network.latency_without_table)).sum())
