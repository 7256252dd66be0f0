"""Random clusters: every kind of latency, contention, network and fault that a scenario can describe."""

from typing import Any

from tests.draws import Draws

Options = dict[str, Any]
SCOPES = ("worker", "node", "cluster")
COLLECTIVES = ("ring", "recursive-doubling", "rabenseifner", "tree", "nccl", "gloo", "store")
WAYS = ("to-servers", "to-workers", "between-workers")


def random_cluster(draws: Draws, workers: int, served: bool, clocked: bool) -> Options:
    """Return a cluster with this number of workers; `served`, `clocked`: the protocol has servers, a clock."""
    cluster: Options = {"workers": workers, "compute": compute(draws)}
    if draws.covers("devices"):
        cluster["devices"] = _devices(draws)
    elif draws.covers("groups"):
        cluster["groups"] = [_group(draws, size) for size in parts(draws, workers)]
    elif draws.covers("speeds"):
        speeds = [draws.choose(0.01, 0.5, 1.0, 1.0, 2.0) for _ in range(workers)]
        cluster |= draws.choose({"speeds": speeds}, {"speeds": speeds}, {"speeds": "1/i"}, {"speeds": "1/sqrt(i)"})
    if draws.covers("nodes"):
        cluster["nodes"] = draws.choose(draws.integer(1, workers), parts(draws, workers))
    if draws.covers("servers"):
        cluster["servers"] = draws.choose(2, 3, 9)
    if draws.covers("contention"):
        cluster["contention"] = [contention(draws, workers, _nodes(cluster)) for _ in range(draws.choose(1, 1, 2))]
    if draws.covers("network"):
        cluster["network"] = _network(draws, cluster)
    if clocked and (faults := _faults(draws, workers, cluster.get("servers", 1) if served else 0)):
        cluster["faults"] = faults
    if draws.covers("prices"):
        cluster["prices"] = _prices(draws)
    return cluster


def _devices(draws: Draws) -> Options:
    """Draw speeds of devices and perhaps the bandwidths of their links: of kinds, or from distributions."""
    ways = draws.choose([], ["upload"], ["upload", "download"])
    if draws.choose(True, False):
        kinds = [
            {"speed": draws.real(0.3, 2), **{way: draws.real(2e4, 2e5) for way in ways}} for _ in range(draws.integer(1, 3))
        ]
        return {"kinds": kinds} | draws.choose({}, {"assignment": "in-order"})
    links = {way: {"name": "lognormal", "median": 5e4, "sigma": 0.5} for way in ways}
    return {"speed": {"name": "lognormal", "median": 1.0, "sigma": draws.choose(0.2, 0.8)}, **links}


def failures(draws: Draws, cluster: Options) -> Options:
    """Draw failures of the whole job, which goes back to a checkpoint; without repair, nothing is broken."""
    broken = draws.choose(True, True, False)
    causes = [_cause(draws, cluster, broken) for _ in range(draws.choose(1, 1, 2))]
    often = draws.choose({"every_updates": draws.integer(1, 10)}, {"every_seconds": draws.real(0.1, 1)})
    queued = cluster.get("network", {}).get("sharing") != "fair"
    pause = draws.choose({}, {"pause": 0.03}) if queued else {}
    job: Options = {"causes": causes, "checkpoint": often | pause | draws.choose({}, {"write": 0.1})}
    for name in draws.choose_some("detect", "load", *(["join"] if broken else [])):
        job[name] = latency(draws, 0.1)
    return job | (draws.choose({}, {"spares": draws.integer(1, 3)}, {"crews": 1}) if broken else {})


def _cause(draws: Draws, cluster: Options, broken: bool) -> Options:
    nodes = ["nodes"] if _nodes(cluster) > 1 else []
    of = draws.choose("workers", *nodes, *(["regions"] if cluster.get("network", {}).get("regions") else []))
    up = draws.choose({"mean_up": draws.choose(3.0, 10.0)}, {"up": {"name": "weibull", "scale": 5.0, "shape": 0.7}})
    return {"of": of, "together": draws.choose(1, 1, 2), **up, **({"repair": latency(draws, 0.2)} if broken else {})}


def _prices(draws: Draws) -> Options:
    """Prices of machines and traffic, with or without power."""
    workers = {"per_hour": draws.choose(0.0, 3.0, [[0, 1.0], [0.5, 4.0]]), "paid_while_away": draws.choose(True, False)}
    servers = draws.choose([], [{"per_hour": 0.5, "watts": 9}])
    power = draws.choose({}, {"busy_watts": 400, "idle_watts": 80})
    return {"workers": [workers | power], "servers": servers, "per_gb": draws.choose(0, 0.09)}


def parts(draws: Draws, total: int) -> list[int]:
    """A few whole numbers that add up to this one."""
    sizes = [draws.integer(1, total)]
    while len(sizes) < 3 and sum(sizes) < total:
        sizes.append(draws.integer(1, total - sum(sizes)))
    sizes[-1] += total - sum(sizes)
    return sizes


def _nodes(cluster: Options) -> int:
    nodes = cluster.get("nodes", 1)
    return nodes if isinstance(nodes, int) else len(nodes)


def compute(draws: Draws) -> Options:
    """Compute times of about 0.1 s, or those of a trace, of about 1 s."""
    if not draws.covers("traces"):
        return latency(draws, 0.1)
    rows = draws.choose({}, {"rows": "resampled"}, {"rows": "block", "block": draws.integer(1, 9)})
    return {"name": "trace", "file": "example", "workers": "cycled", **rows}


def latency(draws: Draws, seconds: float) -> Options:
    """A distribution whose durations are mostly of this order."""
    usual = draws.choose({"name": "constant", "seconds": seconds}, {"name": "lognormal", "median": seconds, "sigma": 0.5})
    if not draws.covers("latencies"):
        return usual
    shift = {"shift": draws.choose(0.0, seconds)}
    distributions: list[Options] = [
        {"name": "constant", "seconds": draws.choose(seconds, 1e-9)},
        {"name": "uniform", "low": seconds / 2, "high": 2 * seconds},
        {"name": "exponential", "scale": seconds},
        {"name": "half-normal", **shift, "scale": seconds},
        {"name": "shifted-exponential", "shift": seconds / 2, "scale": seconds / 2},
        {"name": "normal", "mu": seconds, "sigma": draws.choose(0.2, 1.0) * seconds},
        {"name": "lognormal", "median": seconds, "sigma": draws.real(0.01, 1.5), **shift},
        {"name": "lognormal", "median": seconds, "sigma": 0.5, "longest": 3 * seconds},
        {"name": "gamma", "shape": draws.choose(0.5, 1.0, 4.0), "scale": seconds / 2},
        {"name": "weibull", "shape": draws.choose(0.7, 1.5), "scale": seconds},
        {"name": "pareto", "minimum": seconds / 2, "alpha": draws.choose(0.9, 1.5, 2.5)},
        {"name": "bimodal", "fast": seconds, "slow": 5 * seconds, "slow_fraction": draws.choose(0.0, 0.1, 0.5)},
        {"name": "empirical", "values": [seconds / 2, seconds, seconds, 3 * seconds]},
        {"name": "mixture", "components": [usual, {"name": "exponential", "scale": 2 * seconds}], "weights": [0.9, 0.1]},
    ]
    return dict(draws.choose(*distributions))


def contention(draws: Draws, entities: int, nodes: int) -> Options:
    """Return a contention regime for a number of workers (or servers) and their nodes."""
    slowdown, scope = {"slowdown": draws.real(1, 5)}, {"of": draws.choose(*SCOPES)}
    begin = draws.choose({}, {"begin": draws.real(0, 1)}, {"begin": 0.5, "end": draws.real(1, 3)})
    noise = {"deviation": 0.3, "persistence": draws.choose(0.0, 0.9), "every": draws.choose(0.1, 1.0)}
    day = {"period": draws.choose(0.5, 5.0), "peak": draws.choose(0.0, 0.3), "steps": draws.choose(2, 24)}
    delayed = {"workers": draws.integer(1, entities), "draw": draws.choose("exact", "independent", "published")}
    return draws.choose(
        {"name": "markov-switching", **slowdown, **scope, "fast_seconds": 1.0, "slow_seconds": draws.choose(0.01, 0.5)},
        {"name": "job", **slowdown, "nodes": draws.choose_some(*range(nodes)), **begin},
        {
            "name": "moving-job",
            **slowdown,
            "dwell": draws.real(0.05, 1),
            **draws.choose({}, {"rest": 0.3}, {"order": "random"}),
        },
        {"name": "persistent-noise", **noise, **scope},
        {"name": "diurnal", **slowdown, **day},
        {"name": "random-delays", **delayed, "seconds": 0.3},
        {"name": "rare-delays", "probability": draws.choose(0.05, 1.0), "seconds": latency(draws, 0.2)},
    )


def _group(draws: Draws, size: int) -> Options:
    group: Options = {"workers": size, "speed": draws.choose(0.3, 1.0, 2.0)}
    return group | draws.choose({}, {}, {"compute": compute(draws)})


def _network(draws: Draws, cluster: Options) -> Options:
    delay = draws.choose({}, {"latency": {"name": "constant", "seconds": 0.0}}, *[{"latency": latency(draws, 0.05)}] * 4)
    network: Options = {"message_bytes": draws.choose(1, 1000, 4000, 2**40), **delay}
    if draws.covers("cards"):
        network |= draws.choose({}, {"bandwidth": 1e5}) | draws.choose({}, {"server_bandwidth": draws.choose(2e4, 2e5)})
        network |= draws.choose({}, {"pull_latency": latency(draws, 0.05)})
        if draws.choose(True, False):
            network["servers"] = [_some_servers(draws, draws.choose_some(*range(cluster.get("servers", 1))))]
    if draws.covers("levels"):
        inner = {"latency": latency(draws, 0.01)} | draws.choose({}, {"bandwidth": 1e6})
        network |= draws.choose({"within": inner}, {"node_bandwidth": 1e5}, {"within": inner, "node_bandwidth": 1e5})
    if draws.covers("slow links"):
        network["contention"] = [_slow_links(draws, cluster) for _ in range(draws.choose(1, 1, 2))]
    if draws.covers("flows"):
        site = [
            {"routes": [{"between": b, "through": [t]}]} for b, t in (([[0], "workers"], "site"), (["servers", [0]], "-site"))
        ]
        network |= {"sharing": "fair"} | draws.choose({}, {"window": 1e4}, {"window": 1e4, "initial_window": 1e3})
        network |= draws.choose({}, {"weights": "latency"}) | draws.choose(
            {}, *({"links": {"site": 1e5}} | route for route in site)
        )
    if draws.covers("collectives"):
        network["collective"] = draws.choose(*COLLECTIVES)
        network |= draws.choose({}, {"buckets": 3})
    return network


def _some_servers(draws: Draws, numbers: list[int]) -> Options:
    other = draws.choose({}, {"latency": latency(draws, 0.1)}) | draws.choose({}, {"pull_latency": latency(draws, 0.1)})
    return {"servers": numbers, **other, **draws.choose({}, {"bandwidth": 5e4})}


def _slow_links(draws: Draws, cluster: Options) -> Options:
    servers = cluster.get("servers", 1)
    if draws.choose(True, False):
        return {"of": "servers", "regime": contention(draws, servers, servers)}
    return {"regime": contention(draws, cluster["workers"], _nodes(cluster))}


def _faults(draws: Draws, workers: int, servers: int) -> list[Options]:
    """`servers`: how many there are that can be away."""
    faults: list[Options] = []
    if draws.covers("outages"):
        entities: Options = {
            "workers": draws.choose(draws.choose_some(*range(workers)), draws.choose_some(*range(workers))[:2])
        }
        entities = draws.choose(entities, {"servers": draws.choose_some(*range(servers))}) if servers else entities
        begin = draws.choose(0.0, draws.real(0, 1))
        end = draws.choose({}, *[{"end": begin + draws.choose(0.1, 0.5, 1.0)}] * 3)
        faults.append({"name": "outage", **entities, "begin": begin, **end})
    if draws.covers("crashes"):
        of = draws.choose({}, {"of": "servers"}) if servers else {}
        up = draws.choose({"mean_up": draws.choose(1.0, 5.0)}, {"up": {"name": "weibull", "scale": 3.0, "shape": 0.7}})
        faults.append({"name": "crashes", **of, **up, "away": latency(draws, 0.2)})
        sessions = {"sessions": [[[0.0, 0.7], [0.9, 2.0]], [[0.1, 1.5]]], "assignment": draws.choose("in-order", "drawn")}
        day = {"name": "periodic", "available": 0.8, "period": 1.0, "shifts": [0.0, 0.5]}
        faults += draws.choose([], [], [{"name": "sessions", **sessions}], [day])
    if draws.covers("losses"):
        resend = draws.choose({}, *[{"again_after": 0.3}] * 5)
        ways = draws.choose({}, {"ways": draws.choose_some(*WAYS)})
        faults.append({"name": "lost-messages", "share": draws.choose(0.02, 0.2), **resend, **ways})
    return faults
