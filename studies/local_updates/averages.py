"""Averages of some coordinates, late; in pairs; of coded differences and gradients, over slow links."""

from collections.abc import Iterator

from studies.local_updates.claims import LOSS, SECONDS, SPREAD, Experiment, Settings, below, gap, nearly
from studies.local_updates.rounds import DILOCO, TARGET, diloco, until

_MESH, _LOSCAR, _NOLOCO, _SWARM = "arXiv:2601.22442", "arXiv:2605.20866", "arXiv:2506.10911", "arXiv:1910.12308"
_SPARSE, _DEMO, _CHOCO, _DESLOC = "arXiv:2508.15706", "arXiv:2411.19870", "arXiv:1902.00340", "arXiv:2505.22549"


def experiments() -> Iterator[Experiment]:
    """Yield the experiments of family C with partial averages, few workers, or codecs."""
    yield _masked()
    yield _paired()
    yield _coded()


def _masked() -> Experiment:
    delays = (1, 5, 20)
    kinds: dict[str, Settings] = {
        "overwritten": {"name": "sparta"},
        "added back": {"name": "async-mesh", "average_changes": False},
        "averaged": {"name": "async-mesh"},
        "loscar": {"name": "loscar"},
    }
    systems: dict[str, Settings] = {}
    for delay in delays:
        for kind in kinds if delay > 1 else ("overwritten", "added back", "averaged"):
            systems[f"{kind} {delay}"] = {
                "algorithm": kinds[kind],
                "protocol": {"name": "late-averaging", "delay": delay},
            }
    sources = {"added back": _MESH, "averaged": _MESH, "loscar": _LOSCAR}
    claims = [
        below(
            f"{'LOSCAR' if kind == 'loscar' else kind} beats overwritten, delay {delay}",
            source,
            LOSS,
            f"{kind} {delay}",
            f"overwritten {delay}",
        )
        for delay in delays[1:]
        for kind, source in sources.items()
    ]
    claims += [
        gap(
            f"{kind}: delay 20 costs less than overwriting",
            _MESH,
            (f"{kind} 20", f"{kind} 1"),
            ("overwritten 20", "overwritten 1"),
        )
        for kind in ("added back", "averaged")
    ]
    means = "a twentieth of the coordinates at each step, whose mean comes 1, 5 or 20 later"
    setting = f"4 workers, SGD, 400 steps each; {means}"
    return Experiment("late means", "digits", setting, {"stop": {"gradients": 1600}}, systems, tuple(claims))


def _paired() -> Experiment:
    systems = {name: diloco(10, name, "sgd") for name in ("local-sgd", "diloco", "swarm-sgd", "noloco")}
    systems["alone"] = {"algorithm": {"name": "local-sgd"}, "protocol": {"period": 100000}}
    claims = (
        below("NoLoCo is at the target before DiLoCo", _NOLOCO, SECONDS, "noloco", "diloco"),
        below("... and before pairs without momentum", _NOLOCO, SECONDS, "noloco", "swarm-sgd"),
        below("pairs are before averages of all", _SWARM, SECONDS, "swarm-sgd", "local-sgd"),
        below("spread between workers stays below that of workers alone", _NOLOCO, SPREAD, "noloco", "alone"),
        nearly("... and within twice that of pairs without momentum", "a guess of ours", SPREAD, "noloco", "swarm-sgd", 2.0),
    )
    regions = {"bandwidth": [[1e6, 300.0], [300.0, 1e6]], "workers": [0] * 7 + [1]}
    network = {"message_bytes": 6000, "regions": regions}
    setting = "8 workers, H = 10; a model takes 20 s to or from one of them, no time between others; seconds to a loss of 0.7"
    settings = until(1500.0) | {"cluster": {"workers": 8, "network": network}}
    return Experiment("one slow link", "digits", setting, settings, systems, claims, by="seconds")


def _coded() -> Experiment:
    adam = {"name": "adam", "eps": 0.003}
    forgets = {"name": "top-k", "chunk": 4096, "share": 0.015625, "values": {"name": "low-bit", "bits": 2, "zero": False}}
    gossip = {"name": "choco", "consensus": 0.5}
    systems: dict[str, Settings] = {
        "allreduce": {"algorithm": {"name": "allreduce-sgd"}},
        "demo": {"algorithm": {"name": "demo"}},
        "diloco": diloco(20),
        "sparseloco": diloco(20, "sparseloco"),
        "sparseloco forgets": diloco(20, "sparseloco", codec=forgets),
        "d-psgd": {
            "algorithm": {"name": "d-psgd"},
            "protocol": {"name": "gossip", "weights": "metropolis", "order": "update-first"},
        },
        "choco sign": {"algorithm": {"name": "choco-sgd", "codec": "sign"}, "protocol": gossip},
        "choco top-k": {
            "algorithm": {"name": "choco-sgd", "codec": {"name": "top-k", "share": 0.05}},
            "protocol": {**gossip, "consensus": 0.2},
        },
        "moments each time": {
            "algorithm": {"name": "des-loc", "optimizer": adam, "first_every": 1, "second_every": 1},
            "protocol": {"period": 8},
        },
        "des-loc": {"algorithm": {"name": "des-loc", "optimizer": adam}, "protocol": {"period": 8}},
    }
    claims = (
        below("DeMo is at the target before allreduces of gradients", _DEMO, SECONDS, "demo", "allreduce"),
        below("DiLoCo is before allreduces of gradients", DILOCO, SECONDS, "diloco", "allreduce"),
        below("SparseLoCo is before DiLoCo", _SPARSE, SECONDS, "sparseloco", "diloco"),
        below(
            "error memory is needed: SparseLoCo is before its like without",
            _SPARSE,
            SECONDS,
            "sparseloco",
            "sparseloco forgets",
        ),
        below("CHOCO with signs is before D-PSGD", _CHOCO, SECONDS, "choco sign", "d-psgd"),
        below("CHOCO with 5 % of the numbers is before D-PSGD", _CHOCO, SECONDS, "choco top-k", "d-psgd"),
        below("DES-LOC is before averages of both moments each time", _DESLOC, SECONDS, "des-loc", "moments each time"),
    )
    network = {"latency": {"name": "constant", "seconds": 0.1}, "bandwidth": 200.0}
    setting = "8 workers, links of 200 bytes/s (a model takes 50 s); seconds to a loss of 0.7"
    settings = until(6000.0) | {"cluster": {"workers": 8, "network": network}}
    settings["stop"]["target_loss"] = TARGET
    return Experiment("few bytes", "digits", setting, settings, systems, claims, by="seconds")
