"""Options that have no effect in any run of a scenario, mostly because a part that they need is missing.

Options that would have none under any protocol are refused. A cluster may have parts that no protocol uses, such as links of
servers, because it describes machines and not a run: lines of the result report them.

A run may have options that only other runs use, so that all runs can share a cluster, and a sweep can vary one option down to
the value at which another one loses its effect.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from fred.base.errors import FredError
from fred.cluster.faults import LostMessages
from fred.cluster.latency import Constant, Latency
from fred.cluster.network import Network
from fred.cluster.regions import PAIRED
from fred.components.component import Rule, is_user_class, set_options
from fred.components.input_path import UnreadError
from fred.specification.shape import Run
from fred.specification.text import Keys


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
    lines = [f"{locate(('runs', name, *keys))}: no effect: {reason}" for name, keys, reason in _broken_by_all(_RULES, runs)]
    if lines:
        raise FredError(*dict.fromkeys(lines))


def unused_options(runs: dict[str, Run]) -> list[str]:
    """Return a line for each option of a cluster that no run uses, of those that a cluster may have all the same.

    Args:
        runs: the runs of a scenario, by name.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 4, "network": {"collective": "gloo"}},
    ...     algorithm={"name": "asgd", "learning_rate": 0.1},
    ...     stop={"updates": 4},
    ... )
    >>> unused_options(scenario.runs)
    ['`cluster.network.collective` has no effect: the protocol has no allreduce']
    """
    with contextlib.suppress(UnreadError):  # a result that names own classes is shown without them
        broken_rules = _broken_by_all(_REPORTED_RULES, runs)
        return list(dict.fromkeys(f"`{'.'.join(map(str, keys))}` has no effect: {reason}" for _, keys, reason in broken_rules))
    return []


def _broken_by_all(rules: Iterable[Rule[Run]], runs: dict[str, Run]) -> Iterator[tuple[str, Keys, str]]:
    """Yield the first run, the keys and the reason for each option that a rule excludes in all runs that set it."""
    for rule in rules:
        reasons: dict[Keys, tuple[str, str]] = {}
        effective: set[Keys] = set()
        for name, run in runs.items():
            for keys, value in set_options(run, rule.options):
                if keys in effective:
                    continue
                if reason := rule.objection(run, keys, value):
                    reasons.setdefault(keys, (name, reason))
                else:
                    effective.add(keys)
        for keys, (name, reason) in reasons.items():
            if keys not in effective:
                yield name, keys, reason


def _network(run: Run) -> Network:
    return run.cluster.network or Network()


def _lacks_sizes(run: Run, _: Any) -> bool:
    """Return True if messages have no size."""
    sized = run.task is not None or _network(run).message_bytes or _sends_checkpoints(run) or is_user_class(type(run.protocol))
    return not sized


def _checkpoint_place(run: Run) -> str | None:
    """Return where checkpoints are sent; None if none are."""
    return None if run.cluster.failures is None else run.cluster.failures.checkpoint.to


def _sends_checkpoints(run: Run) -> bool:
    return _checkpoint_place(run) is not None


def _lacks_bandwidths(run: Run, _: Any) -> bool:
    """Return True if no link has a bandwidth."""
    network, devices = _network(run), run.cluster.devices
    cards = (*network.directions.values(), network.server_bandwidth, network.node_bandwidth, network.store_bandwidth)
    bandwidths = (*cards, network.regions, network.links)
    inside = network.within is not None and network.within.bandwidth
    return not (
        any((*bandwidths, *(entry.bandwidth for entry in network.servers), inside))
        or (devices is not None and devices.has_bandwidths)
    )


def _latencies(run: Run) -> set[Any]:
    """Return the different latencies of messages: the seconds of constant ones, and other distributions."""
    network = _network(run)
    table = network.regions.latency if network.regions else None
    latencies = [seconds for row in table for seconds in row] if table else [*network.latencies()]
    return {latency.seconds if isinstance(latency, Constant) else latency for latency in latencies}


def _has_equal_latencies(run: Run, _: Any) -> bool:
    """Return True if all messages have the same latency."""
    latencies = _latencies(run)
    return len(latencies) < 2 and not any(isinstance(latency, Latency) for latency in latencies)


def _lacks_servers(run: Run, _: Any) -> bool:
    return not run.layout.on_servers


def _replaces_on_all_servers(run: Run, *options: str) -> bool:
    """Return True if every server has its own value of an option of the network, in `network.servers`."""
    entries = [entry for entry in _network(run).servers if any(getattr(entry, name) is not None for name in options)]
    return len({server for entry in entries for server in entry.servers}) == run.cluster.servers


def _sends_to_servers_only(run: Run, _: Any) -> bool:
    """Return True if workers never send to each other."""
    return bool(run.layout.on_servers) and not is_user_class(type(run.protocol))


def _lacks_allreduces(run: Run, _: Any) -> bool:
    """Return True if workers never average with collective operations, but with servers or along the edges of a graph."""
    return not is_user_class(type(run.protocol)) and (bool(run.layout.on_servers) or not run.protocol.has_allreduces)


def _ignores_collective(run: Run, _: Any) -> bool:
    """Return True if no allreduce follows the network's `collective`."""
    if is_user_class(type(run.protocol)):
        return False
    return bool(run.layout.on_servers) or run.protocol.follows_collective == "never"


def _sends_collectively(run: Run) -> bool:
    """Return True if messages are parts of collective operations only."""
    return not is_user_class(type(run.protocol)) and not run.layout.on_servers and run.protocol.has_allreduces


def _loses_nothing(run: Run, fault: Any) -> bool:
    """Return True for a fault that loses messages in directions in which the protocol sends none one by one."""
    if not isinstance(fault, LostMessages) or is_user_class(type(run.protocol)):
        return False
    ways = {"to-servers", "to-workers"} if run.layout.on_servers else {"between-workers"}
    return not ways & {*fault.ways} or _sends_collectively(run)


def _lacks_message(run: Run, route: Any) -> bool:
    """Return True for a route between workers that never send to each other."""
    return {"servers", "store"}.isdisjoint(route.between) and _sends_to_servers_only(run, route)


def _passes_store(run: Run, route: Any) -> bool:
    """Return True for a route between workers all of whose messages go through a store."""
    network = _network(run)
    through_store = network.collective == "store" and not network.two_levels and run.protocol.follows_collective == "always"
    direct = not _sends_collectively(run) or _checkpoint_place(run) == "peers"
    return through_store and not direct and {"servers", "store"}.isdisjoint(route.between)


def _lacks_stored(run: Run, route: Any) -> bool:
    """Return True for a route to the store on which nothing is sent."""
    if "store" not in route.between:
        return False
    saving = _checkpoint_place(run) == "store" and bool(run.layout.on_servers) == ("servers" in route.between)
    exchanging = _network(run).collective == "store" and _could_exchange(run, route) and not _leaves_store_out(run, route)
    return not (saving or exchanging)


def _could_exchange(run: Run, route: Any) -> bool:
    """Return True if messages of collectives would take a route to the store, were `collective: store` given."""
    return "servers" not in route.between and not _ignores_collective(run, route)


def _lacks_collective(run: Run, route: Any) -> bool:
    """Return True for an idle route to the store that `collective: store` would put to use."""
    return _lacks_stored(run, route) and _could_exchange(run, route) and _network(run).collective != "store"


def _lacks_servers_route(run: Run, route: Any) -> bool:
    """Return True for an idle route between workers and the store, to which servers write checkpoints."""
    saving = _checkpoint_place(run) == "store" and bool(run.layout.on_servers)
    return saving and _lacks_stored(run, route) and "servers" not in route.between


def _stays_inside_node(run: Run, _: Any) -> bool:
    return not run.layout.on_servers and run.cluster.node_of[-1] == 0  # nodes are numbered in the order of their workers


def _leaves_store_out(run: Run, _: Any) -> bool:
    """Return True if the workers of one node exchange messages inside it, without the store."""
    network = _network(run)
    return network.collective == "store" and network.two_levels and _stays_inside_node(run, None)


def _has_region_latencies(run: Run, _: Any) -> bool:
    regions = _network(run).regions
    return regions is not None and regions.latency is not None


def _prices_nothing(run: Run, entry: Any) -> bool:
    """Return True for an entry of the prices that applies to no machine."""
    cluster, prices = run.cluster, run.cluster.prices
    assert prices is not None
    for entries, entry_of in (  # `entry_of`: number of the entry that applies to each machine; -1: none
        (prices.workers, prices.of_workers(cluster.workers_place)),
        (prices.servers, prices.of_servers(cluster.servers_place)),
    ):
        applied = [entries[number] for number in {*entry_of.tolist()} if number >= 0]  # each once, not for each machine
        if any(other is entry for other in applied):  # two equal entries may apply to different machines
            return False
    return True


def _paths(prefix: str, *options: str) -> str:
    """Return the paths of options of one part of a run."""
    return " ".join(f"{prefix}.{option}" for option in options)


_LINKS = _paths(
    "cluster.network",
    *("bandwidth", "upload", "download", "server_bandwidth", "node_bandwidth", "within.bandwidth", "servers.*.bandwidth"),
    *("store_bandwidth", "regions.bandwidth", "links", "window", "initial_window"),
)
_DEVICE_LINKS = _paths("cluster.devices", "upload", "download", "kinds.*.upload", "kinds.*.download")
_SERVER_LINKS = _paths("cluster.network", "servers", "pull_latency", "server_bandwidth", "regions.servers", "contention.*.of")
_TIMES = _paths(
    "cluster",
    *("compute", "speeds", "devices", "contention", "nodes", "prices", "groups.*.speed", "groups.*.compute"),
    *(f"network.{name}" for name in Network.model_fields if name != "message_bytes"),
)
_RULES: tuple[Rule[Run], ...] = (
    Rule(
        "cluster.network.server_bandwidth",
        lambda run, _: _replaces_on_all_servers(run, "bandwidth"),
        "all servers have other values in `cluster.network.servers`; leave it out",
    ),
    Rule(
        "cluster.network.pull_latency",
        lambda run, _: _replaces_on_all_servers(run, "latency", "pull_latency"),
        "all servers have other values in `cluster.network.servers`; leave it out",
    ),
    Rule(
        "cluster.network.within",
        lambda run, _: max(np.bincount(run.cluster.node_of)) < 2,
        "no node has two workers or more; take fewer `cluster.nodes`, or leave it out",
    ),
    Rule(
        "cluster.network.latency cluster.network.pull_latency",
        _has_region_latencies,
        "`cluster.network.regions.latency` gives the latencies; leave one of them out",
    ),
    Rule(
        "cluster.compute",
        lambda run, _: run.cluster.groups and all(group.compute is not None for group in run.cluster.groups),
        "each of `cluster.groups` has its own `compute`; leave one of them out",
    ),
    Rule(
        "cluster.prices.workers.* cluster.prices.servers.*",
        _prices_nothing,
        "it applies to no machine, because there is none, or later entries apply; leave it out, or put it last",
    ),
    Rule(
        "cluster.prices.workers.*.paid_while_away cluster.prices.servers.*.paid_while_away",
        lambda run, _: not run.cluster.faults and run.cluster.failures is None,
        "all machines are there all the time; give `cluster.faults` or `cluster.failures`, or leave it out",
    ),
    Rule(
        "cluster.failures.crews",
        lambda run, _: run.cluster.failures is not None and run.cluster.failures.spares == 0,
        "without spares, nothing else fails while the job waits for a repair; give `cluster.failures.spares`, or leave it out",
    ),
    Rule(
        "cluster.prices.per_kwh",
        lambda run, _: run.cluster.prices is not None and not run.cluster.prices.have_power,
        "no machine draws power; give `busy_watts` in `cluster.prices.workers`, or leave it out",
    ),
    Rule(
        "task.concentration",
        lambda run, _: run.task is not None and run.task.division not in ("dirichlet", "by-quantity"),
        "it is of `division: dirichlet` and `by-quantity`; give one of these as `task.division`, or leave it out",
    ),
)
_REPORTED_RULES: tuple[Rule[Run], ...] = (
    Rule(
        f"{_LINKS} {_DEVICE_LINKS} cluster.prices.per_gb",
        _lacks_sizes,
        "without a `task`, messages have no size; give `cluster.network.message_bytes`, the bytes of the parameters",
    ),
    Rule("cluster.network.efficiency", _lacks_bandwidths, "no link has a bandwidth, of which it is a share"),
    Rule(
        "cluster.network.window cluster.network.initial_window",
        lambda run, _: _latencies(run) == {0.0},
        "messages have no latency, by which it limits their rate; give `cluster.network.latency`",
    ),
    Rule(
        "cluster.network.weights",
        _has_equal_latencies,
        "all messages have the same latency; give different ones, such as a distribution as `cluster.network.latency`",
    ),
    Rule(f"cluster.servers {_SERVER_LINKS} cluster.prices.servers", _lacks_servers, "the protocol has no servers"),
    Rule("cluster.network.within", _sends_to_servers_only, "the protocol sends no messages between workers"),
    Rule("cluster.network.routes.*", _lacks_message, "the protocol sends no messages between workers"),
    Rule("cluster.network.routes.*", _lacks_collective, "nothing goes there: give `cluster.network.collective: store`"),
    Rule(
        "cluster.network.routes.*",
        _lacks_servers_route,
        "nothing goes there: servers write the checkpoints; give a route `between` the `servers` and the `store`",
    ),
    Rule("cluster.network.routes.*", _lacks_stored, "neither messages of the protocol nor checkpoints go to the store"),
    Rule(
        "cluster.network.routes.*",
        _passes_store,
        "all messages of workers pass the store: give a route `between` them and the `store`",
    ),
    Rule("cluster.network.node_bandwidth", _stays_inside_node, "all messages stay inside one node"),
    Rule(
        "cluster.network.collective cluster.network.store_bandwidth",
        lambda run, value: _leaves_store_out(run, value) and not _ignores_collective(run, value),
        "all messages stay inside one node; use several `cluster.nodes`, or leave out `within` and `node_bandwidth`",
    ),
    Rule(
        "cluster.network.initial_window",
        lambda run, _: _sends_collectively(run) and not _sends_checkpoints(run),
        "an allreduce uses connections whose windows have grown",
    ),
    Rule("cluster.faults.*", _loses_nothing, "the protocol sends no single messages in these `ways`"),
    Rule(
        "cluster.network.collective cluster.network.store_bandwidth cluster.network.buckets",
        _lacks_allreduces,
        "the protocol has no allreduce",
    ),
    Rule(
        "cluster.network.collective cluster.network.store_bandwidth",
        lambda run, value: _ignores_collective(run, value) and not _lacks_allreduces(run, value),
        "all allreduces of the protocol have a collective of their own",
    ),
    Rule(
        "cluster.network.regions.collective",
        lambda run, value: _lacks_allreduces(run, value) and (value not in PAIRED or _sends_to_servers_only(run, value)),
        "the protocol has no allreduce, and no messages between workers",
    ),
    Rule(_TIMES, lambda run, _: not run.protocol.has_clock, "the protocol has no clock"),
)
