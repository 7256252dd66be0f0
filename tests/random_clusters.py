"""Random clusters: every kind of latency, contention, network and fault that a scenario can describe."""

from typing import Any

from tests.draws import Draws

Options = dict[str, Any]
SCOPES = ("worker", "node", "cluster")
COLLECTIVES = ("ring", "recursive-doubling", "rabenseifner", "tree", "nccl", "gloo")
WAYS = ("to-servers", "to-workers", "between-workers")


def random_cluster(draws: Draws, workers: int, served: bool, clocked: bool) -> Options:
    """A cluster of so many workers; `served`, `clocked`: whether the protocol has servers, and a clock."""
    cluster: Options = {"workers": workers, "compute": compute(draws)}
    if draws.has("devices"):
        cluster["devices"] = _devices(draws)
    elif draws.has("groups"):
        cluster["groups"] = [_group(draws, size) for size in parts(draws, workers)]
    elif draws.has("speeds"):
        speeds = [draws.one(0.01, 0.5, 1.0, 1.0, 2.0) for _ in range(workers)]
        cluster |= draws.one({"speeds": speeds}, {"speeds": speeds}, {"speeds": "1/i"}, {"speeds": "1/sqrt(i)"})
    if draws.has("nodes"):
        cluster["nodes"] = draws.one(draws.between(1, workers), parts(draws, workers))
    if draws.has("servers"):
        cluster["servers"] = draws.one(2, 3, 9)
    if draws.has("contention"):
        cluster["contention"] = [contention(draws, workers, _nodes(cluster)) for _ in range(draws.one(1, 1, 2))]
    if draws.has("network"):
        cluster["network"] = _network(draws, cluster)
    if clocked and (faults := _faults(draws, workers, cluster.get("servers", 1) if served else 0)):
        cluster["faults"] = faults
    if draws.has("prices"):
        cluster["prices"] = _prices(draws)
    return cluster


def _devices(draws: Draws) -> Options:
    """Draw speeds of devices and perhaps the bandwidths of their links: of kinds, or from distributions."""
    ways = draws.one([], ["upload"], ["upload", "download"])
    if draws.one(True, False):
        kinds = [
            {"speed": draws.real(0.3, 2), **{way: draws.real(2e4, 2e5) for way in ways}} for _ in range(draws.between(1, 3))
        ]
        return {"kinds": kinds} | draws.one({}, {"assignment": "in-order"})
    drawn = {way: {"name": "lognormal", "median": 5e4, "sigma": 0.5} for way in ways}
    return {"speed": {"name": "lognormal", "median": 1.0, "sigma": draws.one(0.2, 0.8)}, **drawn}


def failures(draws: Draws, cluster: Options) -> Options:
    """Draw failures of the whole job, which goes back to a checkpoint; without repair, nothing is broken."""
    broken = draws.one(True, True, False)
    causes = [_cause(draws, cluster, broken) for _ in range(draws.one(1, 1, 2))]
    often = draws.one({"every_updates": draws.between(1, 10)}, {"every_seconds": draws.real(0.1, 1)})
    queued = cluster.get("network", {}).get("sharing") != "fair"
    pause = draws.one({}, {"pause": 0.03}) if queued else {}
    job: Options = {"causes": causes, "checkpoint": often | pause | draws.one({}, {"write": 0.1})}
    for name in draws.some("detect", "load", *(["join"] if broken else [])):
        job[name] = latency(draws, 0.1)
    return job | (draws.one({}, {"spares": draws.between(1, 3)}, {"crews": 1}) if broken else {})


def _cause(draws: Draws, cluster: Options, broken: bool) -> Options:
    nodes = ["nodes"] if _nodes(cluster) > 1 else []
    of = draws.one("workers", *nodes, *(["regions"] if cluster.get("network", {}).get("regions") else []))
    up = draws.one({"mean_up": draws.one(3.0, 10.0)}, {"up": {"name": "weibull", "scale": 5.0, "shape": 0.7}})
    return {"of": of, "together": draws.one(1, 1, 2), **up, **({"repair": latency(draws, 0.2)} if broken else {})}


def _prices(draws: Draws) -> Options:
    """Prices of machines and traffic, with or without power."""
    workers = {"per_hour": draws.one(0.0, 3.0, [[0, 1.0], [0.5, 4.0]]), "paid_while_away": draws.one(True, False)}
    servers = draws.one([], [{"per_hour": 0.5, "watts": 9}])
    power = draws.one({}, {"busy_watts": 400, "idle_watts": 80})
    return {"workers": [workers | power], "servers": servers, "per_gb": draws.one(0, 0.09)}


def parts(draws: Draws, whole: int) -> list[int]:
    """A few whole numbers that add up to this one."""
    sizes = [draws.between(1, whole)]
    while len(sizes) < 3 and sum(sizes) < whole:
        sizes.append(draws.between(1, whole - sum(sizes)))
    sizes[-1] += whole - sum(sizes)
    return sizes


def _nodes(cluster: Options) -> int:
    nodes = cluster.get("nodes", 1)
    return nodes if isinstance(nodes, int) else len(nodes)


def compute(draws: Draws) -> Options:
    """Compute times of about 0.1 s, or those of a trace, of about 1 s."""
    if not draws.has("traces"):
        return latency(draws, 0.1)
    rows = draws.one({}, {"rows": "resampled"}, {"rows": "block", "block": draws.between(1, 9)})
    return {"name": "trace", "file": "example", "workers": "cycled", **rows}


def latency(draws: Draws, seconds: float) -> Options:
    """A distribution whose durations are mostly of this order."""
    usual = draws.one({"name": "constant", "seconds": seconds}, {"name": "lognormal", "median": seconds, "sigma": 0.5})
    if not draws.has("latencies"):
        return usual
    shift = {"shift": draws.one(0.0, seconds)}
    distributions: list[Options] = [
        {"name": "constant", "seconds": draws.one(seconds, 1e-9)},
        {"name": "uniform", "low": seconds / 2, "high": 2 * seconds},
        {"name": "exponential", "scale": seconds},
        {"name": "half-normal", **shift, "scale": seconds},
        {"name": "shifted-exponential", "shift": seconds / 2, "scale": seconds / 2},
        {"name": "normal", "mu": seconds, "sigma": draws.one(0.2, 1.0) * seconds},
        {"name": "lognormal", "median": seconds, "sigma": draws.real(0.01, 1.5), **shift},
        {"name": "lognormal", "median": seconds, "sigma": 0.5, "longest": 3 * seconds},
        {"name": "gamma", "shape": draws.one(0.5, 1.0, 4.0), "scale": seconds / 2},
        {"name": "weibull", "shape": draws.one(0.7, 1.5), "scale": seconds},
        {"name": "pareto", "minimum": seconds / 2, "alpha": draws.one(0.9, 1.5, 2.5)},
        {"name": "bimodal", "fast": seconds, "slow": 5 * seconds, "slow_fraction": draws.one(0.0, 0.1, 0.5)},
        {"name": "empirical", "values": [seconds / 2, seconds, seconds, 3 * seconds]},
        {"name": "mixture", "components": [usual, {"name": "exponential", "scale": 2 * seconds}], "weights": [0.9, 0.1]},
    ]
    return dict(draws.one(*distributions))


def contention(draws: Draws, entities: int, nodes: int) -> Options:
    """A regime on so many workers (or servers), which are on so many nodes."""
    slowdown, scope = {"slowdown": draws.real(1, 5)}, {"of": draws.one(*SCOPES)}
    begin = draws.one({}, {"begin": draws.real(0, 1)}, {"begin": 0.5, "end": draws.real(1, 3)})
    noise = {"deviation": 0.3, "persistence": draws.one(0.0, 0.9), "every": draws.one(0.1, 1.0)}
    day = {"period": draws.one(0.5, 5.0), "peak": draws.one(0.0, 0.3), "steps": draws.one(2, 24)}
    delayed = {"workers": draws.between(1, entities), "draw": draws.one("exact", "independent", "published")}
    return draws.one(
        {"name": "markov-switching", **slowdown, **scope, "fast_seconds": 1.0, "slow_seconds": draws.one(0.01, 0.5)},
        {"name": "job", **slowdown, "nodes": draws.some(*range(nodes)), **begin},
        {"name": "moving-job", **slowdown, "dwell": draws.real(0.05, 1), **draws.one({}, {"rest": 0.3}, {"order": "random"})},
        {"name": "persistent-noise", **noise, **scope},
        {"name": "diurnal", **slowdown, **day},
        {"name": "random-delays", **delayed, "seconds": 0.3},
        {"name": "rare-delays", "probability": draws.one(0.05, 1.0), "seconds": latency(draws, 0.2)},
    )


def _group(draws: Draws, size: int) -> Options:
    group: Options = {"workers": size, "speed": draws.one(0.3, 1.0, 2.0)}
    return group | draws.one({}, {}, {"compute": compute(draws)})


def _network(draws: Draws, cluster: Options) -> Options:
    delay = draws.one({}, {"latency": {"name": "constant", "seconds": 0.0}}, *[{"latency": latency(draws, 0.05)}] * 4)
    network: Options = {"message_bytes": draws.one(1, 1000, 4000, 2**40), **delay}
    if draws.has("cards"):
        network |= draws.one({}, {"bandwidth": 1e5}) | draws.one({}, {"server_bandwidth": draws.one(2e4, 2e5)})
        network |= draws.one({}, {"pull_latency": latency(draws, 0.05)})
        if draws.one(True, False):
            network["servers"] = [_some_servers(draws, draws.some(*range(cluster.get("servers", 1))))]
    if draws.has("levels"):
        within = {"latency": latency(draws, 0.01)} | draws.one({}, {"bandwidth": 1e6})
        network |= draws.one({"within": within}, {"node_bandwidth": 1e5}, {"within": within, "node_bandwidth": 1e5})
    if draws.has("slow links"):
        network["contention"] = [_slow_links(draws, cluster) for _ in range(draws.one(1, 1, 2))]
    if draws.has("flows"):
        site = [
            {"routes": [{"between": b, "through": [t]}]} for b, t in (([[0], "workers"], "site"), (["servers", [0]], "-site"))
        ]
        network |= {"sharing": "fair"} | draws.one({}, {"window": 1e4}, {"window": 1e4, "initial_window": 1e3})
        network |= draws.one({}, {"weights": "latency"}) | draws.one({}, *({"links": {"site": 1e5}} | route for route in site))
    if draws.has("collectives"):
        network["collective"] = draws.one(*COLLECTIVES)
        network |= draws.one({}, {"buckets": 3})
    return network


def _some_servers(draws: Draws, numbers: list[int]) -> Options:
    other = draws.one({}, {"latency": latency(draws, 0.1)}) | draws.one({}, {"pull_latency": latency(draws, 0.1)})
    return {"servers": numbers, **other, **draws.one({}, {"bandwidth": 5e4})}


def _slow_links(draws: Draws, cluster: Options) -> Options:
    servers = cluster.get("servers", 1)
    if draws.one(True, False):
        return {"of": "servers", "regime": contention(draws, servers, servers)}
    return {"regime": contention(draws, cluster["workers"], _nodes(cluster))}


def _faults(draws: Draws, workers: int, servers: int) -> list[Options]:
    """`servers`: how many there are that can be away."""
    faults: list[Options] = []
    if draws.has("outages"):
        who: Options = {"workers": draws.one(draws.some(*range(workers)), draws.some(*range(workers))[:2])}
        who = draws.one(who, {"servers": draws.some(*range(servers))}) if servers else who
        begin = draws.one(0.0, draws.real(0, 1))
        end = draws.one({}, *[{"end": begin + draws.one(0.1, 0.5, 1.0)}] * 3)
        faults.append({"name": "outage", **who, "begin": begin, **end})
    if draws.has("crashes"):
        of = draws.one({}, {"of": "servers"}) if servers else {}
        up = draws.one({"mean_up": draws.one(1.0, 5.0)}, {"up": {"name": "weibull", "scale": 3.0, "shape": 0.7}})
        faults.append({"name": "crashes", **of, **up, "away": latency(draws, 0.2)})
        sessions = {"sessions": [[[0.0, 0.7], [0.9, 2.0]], [[0.1, 1.5]]], "assignment": draws.one("in-order", "drawn")}
        day = {"name": "periodic", "available": 0.8, "period": 1.0, "shifts": [0.0, 0.5]}
        faults += draws.one([], [], [{"name": "sessions", **sessions}], [day])
    if draws.has("losses"):
        again = draws.one({}, *[{"again_after": 0.3}] * 5)
        ways = draws.one({}, {"ways": draws.some(*WAYS)})
        faults.append({"name": "lost-messages", "share": draws.one(0.02, 0.2), **again, **ways})
    return faults
