"""Options that have no effect in any run of a scenario, which are refused: mostly because a part that they need is missing.

A run may have options that only other runs use, so that all runs can share a cluster, and a sweep can vary one option down to
the value at which another one loses its effect.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from fred.base.errors import FredError
from fred.cluster.faults import LostMessages
from fred.cluster.latency import Constant, Latency
from fred.cluster.network import Network
from fred.components.component import Component, is_own
from fred.specification.shape import Run
from fred.specification.text import Keys


class _Need(NamedTuple):
    """What options need to have an effect.

    Args:
        options: paths of the options in a run; `*` stands for each item of a list.
        met: returns True if a run has it; called with the run and the keys of the option.
        cure: the missing part and the remedy, for the message.
        describes: True for options that describe a measured cluster, which other scenarios may share: a warning is enough.
    """

    options: str
    met: Callable[[Run, Keys], bool]
    cure: str
    describes: bool = False


def check_effects(runs: dict[str, Run], locate: Callable[[Keys], str]) -> None:
    """Raise FredError for each option that has no effect in any of the runs that set it.

    Args:
        runs: the runs of a scenario, by name.
        locate: function from the keys of a value to its place in words, such as `mine.yaml:3: stop.updates`.

    >>> import fred
    >>> fred.scenario(
    ...     cluster={"workers": 4, "prices": {"workers": [{"per_hour": 1.0}], "per_kwh": 0.3}},
    ...     algorithm={"name": "asgd", "learning_rate": 0.1},
    ...     stop={"updates": 4},
    ... )
    Traceback (most recent call last):
    ...
    fred.FredError: cluster.prices.per_kwh: no effect: no machine draws power; give ...
    """
    lines = []
    for need in _NEEDS:
        for option in need.options.split():
            unmet = _unmet(need, tuple(option.split(".")), runs)
            problems = [f"{locate(('runs', name, *keys))}: no effect: {need.cure}" for keys, name in unmet.items()]
            if need.describes:
                for problem in dict.fromkeys(problems):
                    warnings.warn(problem, stacklevel=2)
            else:
                lines += problems
    if lines:
        raise FredError(*dict.fromkeys(lines))


def _unmet(need: _Need, option: tuple[str, ...], runs: dict[str, Run]) -> dict[Keys, str]:
    """Return the first run that sets an option, by the keys of the option, unless it has its effect in a run."""
    unmet: dict[Keys, str] = {}
    met: set[Keys] = set()
    for name, run in runs.items():
        for keys in _set_in(run, option):
            if keys not in met and need.met(run, keys):
                met.add(keys)
            unmet.setdefault(keys, name)
    return {keys: name for keys, name in unmet.items() if keys not in met}


def _set_in(part: Any, option: tuple[str, ...], keys: Keys = ()) -> Iterator[Keys]:
    """Yield the keys of the values of an option that are not its default."""
    if not option:
        yield keys
    elif option[0] == "*":
        for number, item in enumerate(part):
            yield from _set_in(item, option[1:], (*keys, number))
    elif isinstance(part, Component) and option[0] in type(part).model_fields:
        value = getattr(part, option[0])
        if value is not None and value != type(part).model_fields[option[0]].default:
            yield from _set_in(value, option[1:], (*keys, option[0]))


def _network(run: Run) -> Network:
    return run.cluster.network or Network()


def _has_sizes(run: Run, _: Keys) -> bool:
    """Return True if messages have a size."""
    return run.task is not None or bool(_network(run).message_bytes) or _sends_checkpoints(run) or is_own(type(run.protocol))


def _sends_checkpoints(run: Run) -> bool:
    return run.cluster.failures is not None and run.cluster.failures.checkpoint.to is not None


def _has_bandwidth(run: Run, _: Keys) -> bool:
    """Return True if any link has a bandwidth."""
    network, devices = _network(run), run.cluster.devices
    of_all = (
        network.bandwidth,
        network.server_bandwidth,
        network.node_bandwidth,
        network.regions,
        network.links,
    )
    of_some = (some.bandwidth for some in network.servers)
    inside = network.within is not None and network.within.bandwidth
    return any((*of_all, *of_some, inside)) or (devices is not None and devices.has_bandwidths)


def _latencies(run: Run) -> set[Any]:
    """Return the different latencies of messages: the seconds of constant ones, and other distributions."""
    network = _network(run)
    table = network.regions.latency if network.regions else None
    given = [seconds for row in table for seconds in row] if table else [*network.latencies()]
    return {each.seconds if isinstance(each, Constant) else each for each in given}


def _has_latency(run: Run, _: Keys) -> bool:
    return _latencies(run) != {0.0}


def _has_latencies(run: Run, _: Keys) -> bool:
    """Return True if messages may have different latencies."""
    latencies = _latencies(run)
    return len(latencies) > 1 or any(isinstance(each, Latency) for each in latencies)


def _has_servers(run: Run, _: Keys) -> bool:
    return bool(run.protocol.layout(run.cluster).on_servers)


def _has_usual_servers(run: Run, keys: Keys) -> bool:
    """Return True if there is a server to which an option of the whole network applies."""
    overriding = ("bandwidth",) if keys[-1] == "server_bandwidth" else ("latency", "pull_latency")
    others = [some for some in _network(run).servers if any(getattr(some, name) is not None for name in overriding)]
    return _has_servers(run, keys) and len({server for some in others for server in some.servers}) < run.cluster.servers


def _has_peers(run: Run, keys: Keys) -> bool:
    """Return True if workers may exchange messages with each other."""
    return is_own(type(run.protocol)) or not _has_servers(run, keys)


def _has_collectives(run: Run, keys: Keys) -> bool:
    """Return True if workers may average with collective operations, and not only along the edges of a graph."""
    return _has_peers(run, keys) and (is_own(type(run.protocol)) or "topology" not in type(run.protocol).model_fields)


def _sends_singly(run: Run, keys: Keys) -> bool:
    """Return True if messages may travel one by one, and not only as parts of collective operations."""
    return _has_servers(run, keys) or not _has_collectives(run, keys) or is_own(type(run.protocol))


def _starts_connections(run: Run, keys: Keys) -> bool:
    """Return True if any message begins with a connection's initial window."""
    return _sends_singly(run, keys) or _sends_checkpoints(run)


def _loses(run: Run, keys: Keys) -> bool:
    """Return True unless a fault loses messages in directions in which the protocol sends none."""
    fault = run.cluster.faults[int(keys[-1])]
    if not isinstance(fault, LostMessages):
        return True
    ways = {"between-workers"} if not _has_servers(run, keys) else {"to-servers", "to-workers"}
    return is_own(type(run.protocol)) or bool(ways & {*fault.ways} and _sends_singly(run, keys))


def _passes(run: Run, keys: Keys) -> bool:
    """Return True if messages may take a route."""
    route = _network(run).routes[int(keys[-1])]
    return "servers" in route.between or _has_peers(run, keys)


def _has_full_nodes(run: Run, keys: Keys) -> bool:
    """Return True if a node has several workers, which exchange messages."""
    return _has_peers(run, keys) and max(np.bincount(run.cluster.node_of)) > 1


def _has_ways_out(run: Run, keys: Keys) -> bool:
    """Return True if messages leave a node."""
    return _has_servers(run, keys) or run.cluster.node_of[-1] > 0


def _has_region_latency(run: Run, _: Keys) -> bool:
    regions = _network(run).regions
    return regions is None or regions.latency is None


def _has_absences(run: Run, _: Keys) -> bool:
    return bool(run.cluster.faults) or run.cluster.failures is not None


def _applies(run: Run, keys: Keys) -> bool:
    """Return True if an entry of the prices applies to a machine."""
    cluster, (*_, kind, number) = run.cluster, keys
    prices = cluster.prices
    assert prices is not None
    of = prices.of_workers(cluster.workers_place) if kind == "workers" else prices.of_servers(cluster.servers_place)
    return number in of


def _paths(prefix: str, component: type[Component], *without: str) -> str:
    """Return the paths of all options of a part of a run, but for some."""
    return " ".join(f"{prefix}.{name}" for name in component.model_fields if name not in without)


_BANDWIDTHS = " ".join(
    f"cluster.network.{name}"
    for name in (
        *("bandwidth", "server_bandwidth", "node_bandwidth", "within.bandwidth", "servers.*.bandwidth"),
        *("regions.bandwidth", "links", "window", "initial_window"),
    )
)
_OF_DEVICES = " ".join(f"cluster.devices.{name}" for name in ("upload", "download", "kinds.*.upload", "kinds.*.download"))
_OF_SERVERS = (
    "cluster.servers cluster.network.servers cluster.network.regions.servers cluster.prices.servers "
    "cluster.network.contention.*.of"
)
_OF_GROUPS = "cluster.groups.*.speed cluster.groups.*.compute"
_NO_SERVERS = "the protocol has no servers; leave it out, or take a system with servers, such as `asgd`"
_NEEDS = (
    _Need(
        f"{_BANDWIDTHS} {_OF_DEVICES} cluster.prices.per_gb",
        _has_sizes,
        "without a `task`, messages have no size; give `cluster.network.message_bytes`, the bytes of the parameters",
        describes=True,
    ),
    _Need(
        "cluster.network.efficiency",
        _has_bandwidth,
        "no link has a bandwidth, of which it is a share; give `cluster.network.bandwidth`, or leave it out",
        describes=True,
    ),
    _Need(
        "cluster.network.window cluster.network.initial_window",
        _has_latency,
        "messages have no latency, by which it limits their rate; give `cluster.network.latency`, or leave it out",
        describes=True,
    ),
    _Need(
        "cluster.network.weights",
        _has_latencies,
        "all messages have the same latency; give different ones, such as a distribution as `cluster.network.latency`, or "
        "leave it out",
        describes=True,
    ),
    _Need(_OF_SERVERS, _has_servers, _NO_SERVERS, describes=True),
    _Need(
        "cluster.network.pull_latency cluster.network.server_bandwidth",
        _has_usual_servers,
        "no message uses it, because the protocol has no servers, or all of them have other values in "
        "`cluster.network.servers`; leave it out",
    ),
    _Need(
        "cluster.network.within",
        _has_full_nodes,
        "no message stays inside a node; leave it out, or take fewer `cluster.nodes`, and a system whose workers send to each "
        "other, such as `allreduce-sgd`",
    ),
    _Need(
        "cluster.network.node_bandwidth",
        _has_ways_out,
        "all messages stay inside one node; give several `cluster.nodes`, or leave it out",
    ),
    _Need(
        "cluster.network.routes.*",
        _passes,
        "the protocol sends no messages between workers; leave it out, or take a system that does, such as `allreduce-sgd`",
    ),
    _Need(
        "cluster.network.initial_window",
        _starts_connections,
        "an allreduce uses connections whose windows have grown; leave it out",
    ),
    _Need(
        "cluster.faults.*",
        _loses,
        "the protocol sends no single messages in these `ways`, and collective operations lose none; leave it out",
    ),
    _Need(
        "cluster.network.collective cluster.network.buckets cluster.network.regions.collective",
        _has_collectives,
        "the protocol has no allreduce; leave it out, or take a system with one, such as `allreduce-sgd`",
        describes=True,
    ),
    _Need(
        "cluster.network.latency cluster.network.pull_latency",
        _has_region_latency,
        "`cluster.network.regions.latency` gives the latencies; leave one of them out",
    ),
    _Need(
        f"cluster.compute cluster.speeds cluster.times cluster.devices cluster.contention cluster.nodes cluster.prices "
        f"{_OF_GROUPS} {_paths('cluster.network', Network, 'message_bytes')}",
        lambda run, _: run.protocol.has_clock,
        "the protocol has no clock; leave it out, or take another protocol, such as `asynchronous`",
        describes=True,
    ),
    _Need(
        "cluster.compute",
        lambda run, _: not run.cluster.groups or any(group.compute is None for group in run.cluster.groups),
        "each of `cluster.groups` has its own `compute`; leave one of them out",
    ),
    _Need(
        "cluster.prices.workers.* cluster.prices.servers.*",
        _applies,
        "it applies to no machine, because there is none, or later entries apply; leave it out, or put it last",
    ),
    _Need(
        "cluster.prices.workers.*.paid_while_away cluster.prices.servers.*.paid_while_away",
        _has_absences,
        "all machines are there all the time; give `cluster.faults` or `cluster.failures`, or leave it out",
    ),
    _Need(
        "cluster.failures.crews",
        lambda run, _: run.cluster.failures is not None and run.cluster.failures.spares > 0,
        "without spares, nothing else fails while the job waits for a repair; give `cluster.failures.spares`, or leave it out",
    ),
    _Need(
        "cluster.prices.per_kwh",
        lambda run, _: run.cluster.prices is not None and run.cluster.prices.have_power,
        "no machine draws power; give `busy_watts` in `cluster.prices.workers`, or leave it out",
    ),
    _Need(
        "task.concentration",
        lambda run, _: run.task is not None and run.task.division in ("dirichlet", "by-quantity"),
        "it is of `division: dirichlet` and `by-quantity`; give one of these as `task.division`, or leave it out",
    ),
)
