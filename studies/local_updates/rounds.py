"""DiLoCo and what came of it: rounds of local steps, overlapped, pulled together, weighed, in parts, in pairs, in few bytes."""

from collections.abc import Iterator

from studies.local_updates.claims import (
    DURATION,
    LOSS,
    SECONDS,
    SPREAD,
    Experiment,
    Settings,
    below,
    gap,
    nearly,
)
from studies.local_updates.spoiled import Spoiled

_GUESS = "a guess of ours"
_DILOCO, _MULOCO, _SNOO = "arXiv:2311.08105", "arXiv:2505.23725", "arXiv:2510.15830"
_STREAMING, _EAGER, _PALSGD = "arXiv:2501.18512", "arXiv:2502.12996", "arXiv:2504.18454"
_EDIT, _MESH, _LOSCAR, _NOLOCO = "arXiv:2412.07210", "arXiv:2601.22442", "arXiv:2605.20866", "arXiv:2506.10911"
_SPARSE, _DEMO, _CHOCO, _DESLOC = "arXiv:2508.15706", "arXiv:2411.19870", "arXiv:1902.00340", "arXiv:2505.22549"
_TARGET = 0.7  # a loss on digits


def experiments() -> Iterator[Experiment]:
    """All of families C and B4."""
    for task in ("digits", "grammar"):
        yield _rounds(task)
        yield _overlapped(task)
    yield _pulled("digits")
    yield _spoiled()
    yield _paced()
    for task in ("digits", "grammar"):
        yield _masked(task)
    yield _paired()
    yield _coded()


def _diloco(period: int, name: str = "diloco", optimizer: str = "adamw", **more: object) -> Settings:
    own: Settings = {"algorithm": {"name": name, "optimizer": optimizer, **more}}
    if name != "allreduce-sgd":
        own["protocol"] = {"period": period}
    return own


def _shared(own: Settings, workers: int, batch: int, steps: int) -> Settings:
    """So many workers, who share a batch of one size."""
    return {
        **own,
        "cluster": {"workers": workers},
        "task": {"batch_size": batch // workers},
        "stop": {"gradients": steps * workers},
    }


def _rounds(task: str) -> Experiment:
    """Equal tokens: how loss follows H and the number of workers, and what outer momentum does."""
    batch, steps, most, seldom = (128, 600, 8, (1, 20, 100, 300)) if task == "digits" else (16, 160, 4, (1, 10, 40))
    some, last = seldom[1], seldom[-1]

    def many(own: Settings) -> Settings:
        return _shared(own, most, batch, steps)

    systems = {f"diloco {period}": many(_diloco(period)) for period in seldom}
    systems |= {f"local {period}": many(_diloco(period, "local-sgd")) for period in seldom[1:]}
    systems |= {
        f"muloco {period}": many({"algorithm": {"name": "muloco"}, "protocol": {"period": period}}) for period in (some, last)
    }
    systems |= {f"{name} each step": many(_diloco(1, "allreduce-sgd", name)) for name in ("adamw", "muon")}
    systems |= {f"snoo {name}": _shared(_diloco(some, "snoo", name), 1, batch, steps) for name in ("adamw", "muon")}
    if task == "digits":
        systems |= {f"diloco {some} of {workers}": _shared(_diloco(some), workers, batch, steps) for workers in (1, 2, 4)}
    claims = [
        below(f"loss rises with H, from 1 to {last}", _DILOCO, LOSS, "diloco 1", f"diloco {last}"),
        nearly(f"it rises slowly: by 0.05 at most from H = 1 to {some}", _DILOCO, LOSS, f"diloco {some}", "diloco 1", 0.05),
        *(
            below(f"outer momentum helps, H = {period}", _DILOCO, LOSS, f"diloco {period}", f"local {period}")
            for period in seldom[1:]
        ),
        below(f"Muon inside is better than AdamW, H = {some}", _MULOCO, LOSS, f"muloco {some}", f"diloco {some}"),
        gap(
            f"Muon inside loses less from H = {some} to {last} than AdamW",
            _MULOCO,
            (f"muloco {last}", f"muloco {some}"),
            (f"diloco {last}", f"diloco {some}"),
        ),
        below("MuLoCo with one worker is below data-parallel Muon", _MULOCO, LOSS, "snoo muon", "muon each step"),
        below("outer momentum helps one worker, too (AdamW)", _SNOO, LOSS, "snoo adamw", "adamw each step"),
    ]
    if task == "digits":
        said = f"{most} workers lose 0.05 at most against one, H = {some}"
        claims.append(nearly(said, _DILOCO, LOSS, f"diloco {some}", f"diloco {some} of 1", 0.05))
    setting = f"{most} workers share batches of {batch}, {steps} steps each; loss at equal tokens"
    return Experiment("rounds", task, setting, {}, systems, tuple(claims))


def _overlapped(task: str) -> Experiment:
    """An allreduce of the whole model takes 0 to 16 of the 20 steps of a round."""
    steps = 400 if task == "digits" else 160

    def linked(own: Settings, transfer: float) -> Settings:
        if not transfer:
            return own
        network = {"message_bytes": 6000, "bandwidth": 1.5 * 6000 / transfer}
        return {**own, "cluster": {"network": network}}

    def streaming(delay: int) -> Settings:
        protocol = {"period": 20, "fragments": 2, "delay": delay, "mixing": 0.5, "cut": "layers"}
        return {**_diloco(20, "streaming-diloco", outer_rate=0.7), "protocol": protocol}

    late = {"algorithm": {"name": "eager-diloco", "optimizer": "adamw", "outer_rate": 0.7}}
    overlapping = {"name": "overlapped-steps", "period": 20}
    systems = {
        "diloco 0": linked(_diloco(20, outer_rate=0.7), 0),
        "diloco 8": linked(_diloco(20, outer_rate=0.7), 8),
        "streaming 0": linked(streaming(0), 0),
        "streaming 8": linked(streaming(5), 8),
        "streaming 16": linked(streaming(9), 16),
        "eager 16": linked({**late, "protocol": overlapping}, 16),
        "naive 16": linked({**late, "protocol": {**overlapping, "eager": False}}, 16),
    }
    claims = (
        nearly(
            "Streaming hides a transfer of 8 steps (by 5 % of the time)", _STREAMING, DURATION, "streaming 8", "diloco 0", 1.05
        ),
        below("... which DiLoCo waits for", _STREAMING, DURATION, "streaming 8", "diloco 8"),
        *(
            nearly(
                f"... at nearly no loss (0.02), transfer {transfer}",
                _STREAMING,
                LOSS,
                f"streaming {transfer}",
                "diloco 0",
                0.02,
            )
            for transfer in (0, 8, 16)
        ),
        nearly("Eager hides 16 steps (by 5 % of the time)", _EAGER, DURATION, "eager 16", "diloco 0", 1.05),
        nearly("... at nearly no loss (0.02)", _EAGER, LOSS, "eager 16", "diloco 0", 0.02),
        below("a difference that is simply a round late loses", _EAGER, LOSS, "eager 16", "naive 16"),
    )
    setting = f"4 workers, H = 20, {steps} steps each; an allreduce takes 0, 8 or 16 steps; outer rates 0.3 and 0.7"
    settings: Settings = {"stop": {"gradients": 4 * steps}}
    rates = {"adamw": [0.001, 0.003, 0.01]}
    return Experiment("overlap", task, setting, settings, systems, claims, rates, outer=(0.3, 0.7))


def _pulled(task: str) -> Experiment:
    shares, seldom = (0.0, 0.1, 0.2), (50, 400)
    systems = {}
    for period in seldom:
        for share in shares:
            own = _diloco(period, "palsgd" if share else "diloco")
            own["algorithm"]["outer"] = {"name": "sgd", "momentum": 0.9, "nesterov": True}
            protocol = {"period": period, "pulls": share}
            systems[f"pulls {share} H {period}"] = {**own, "protocol": protocol}
    claims = [
        below(
            f"pulls in place of {share:.0%} of steps help at H = 400", _PALSGD, LOSS, f"pulls {share} H 400", "pulls 0.0 H 400"
        )
        for share in shares[1:]
    ]
    said = "pulls (20 %) lose less from H = 50 to 400 than DiLoCo"
    claims.append(gap(said, _PALSGD, ("pulls 0.2 H 400", "pulls 0.2 H 50"), ("pulls 0.0 H 400", "pulls 0.0 H 50")))
    setting = "4 workers, 800 s of 1 s for each step, a pull is as long; loss at equal time"
    settings: Settings = {"stop": {"seconds": 801.0}, "cluster": {"compute": {"name": "constant", "seconds": 1.0}}}
    return Experiment("pulls", task, setting, settings, systems, tuple(claims))


def _spoiled() -> Experiment:
    """Unlike in the rule's own words, labels stay wrong."""
    systems = {}
    for name in ("diloco", "edit"):
        more = {"warm_up": 10} if name == "edit" else {}
        systems[name] = _diloco(10, name, "sgd", **more)
        spoiled = {"data": Spoiled(workers=4), "division": "divided"}
        systems[f"{name} spoiled"] = {**systems[name], "task": spoiled}
    claims = (
        below("wrong labels at one worker cost DiLoCo loss", _EDIT, LOSS, "diloco", "diloco spoiled"),
        gap("they cost EDiT less", _EDIT, ("edit spoiled", "edit"), ("diloco spoiled", "diloco")),
        below("EDiT is below DiLoCo there", _EDIT, LOSS, "edit spoiled", "diloco spoiled"),
        nearly("EDiT's weights cost nothing where labels are right (0.02)", _EDIT, LOSS, "edit", "diloco", 0.02),
    )
    setting = "4 workers with data of their own, those of one with random labels all the time; H = 10, 60 rounds"
    settings: Settings = {"stop": {"gradients": 2400}, "task": {"division": "divided"}}
    return Experiment("wrong labels", "digits", setting, settings, systems, claims)


def _paced() -> Experiment:
    systems = {name: _diloco(10, name, "sgd") for name in ("diloco", "edit")}
    for name in ("diloco", "edit"):
        systems[f"{name} by time"] = {**systems[name], "protocol": {"every": 50.0}}
    claims = (
        below("A-EDiT, which meets by time, is at the target before DiLoCo", _EDIT, SECONDS, "edit by time", "diloco"),
        below("... by a third of the time", _EDIT, SECONDS, "edit by time", "diloco")._replace(high=-0.405),
        below("... and before EDiT", _EDIT, SECONDS, "edit by time", "edit"),
        below("the weights have a part in it", _EDIT, SECONDS, "edit by time", "diloco by time"),
    )
    setting = "4 workers, one six times as slow; H = 10, or a meeting each 50 s; seconds to a loss of 0.7"
    settings: Settings = _until(1500.0) | {"cluster": {"speeds": [1, 1, 1, 1 / 6]}}
    return Experiment("unequal speeds", "digits", setting, settings, systems, claims, by="seconds")


def _until(budget: float) -> Settings:
    return {"stop": {"seconds": budget}, "evaluate": {"points": 80, "target_loss": _TARGET}}


def _masked(task: str) -> Experiment:
    delays = (1, 5, 20)
    kinds: dict[str, Settings] = {
        "overwritten": {"name": "sparta"},
        "added back": {"name": "async-mesh", "average_changes": False},
        "averaged": {"name": "async-mesh"},
        "loscar": {"name": "loscar"},
    }
    optimizer = {"optimizer": "sgd" if task == "digits" else "adamw"}
    systems: dict[str, Settings] = {}
    for delay in delays:
        for kind in kinds if delay > 1 else ("overwritten", "added back", "averaged"):
            systems[f"{kind} {delay}"] = {
                "algorithm": {**kinds[kind], **optimizer},
                "protocol": {"name": "late-averaging", "delay": delay},
            }
    sources = {"added back": _MESH, "averaged": _MESH, "loscar": _LOSCAR}
    claims = [
        below(f"{kind} beats overwritten, delay {delay}", source, LOSS, f"{kind} {delay}", f"overwritten {delay}")
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
    inner = "SGD" if task == "digits" else "AdamW"
    steps = 400 if task == "digits" else 160
    means = "a twentieth of the coordinates at each step, whose mean comes 1, 5 or 20 later"
    setting = f"4 workers, {inner}, {steps} steps each; {means}"
    return Experiment("late means", task, setting, {"stop": {"gradients": 4 * steps}}, systems, tuple(claims))


def _paired() -> Experiment:
    systems = {name: _diloco(10, name, "sgd") for name in ("local-sgd", "diloco", "swarm-sgd", "noloco")}
    systems["alone"] = {"algorithm": {"name": "local-sgd"}, "protocol": {"period": 100000}}
    claims = (
        below("NoLoCo is at the target before DiLoCo", _NOLOCO, SECONDS, "noloco", "diloco"),
        below("... and before pairs without momentum", _NOLOCO, SECONDS, "noloco", "swarm-sgd"),
        below("pairs are before averages of all", "arXiv:1910.12308", SECONDS, "swarm-sgd", "local-sgd"),
        below("spread between workers stays below that of workers alone", _NOLOCO, SPREAD, "noloco", "alone"),
        nearly("... and within twice that of pairs without momentum", _GUESS, SPREAD, "noloco", "swarm-sgd", 2.0),
    )
    regions = {"bandwidth": [[1e6, 300.0], [300.0, 1e6]], "workers": [0] * 7 + [1]}
    network = {"message_bytes": 6000, "regions": regions}
    setting = "8 workers, H = 10; a model takes 20 s to or from one of them, no time between others; seconds to a loss of 0.7"
    settings = _until(1500.0) | {"cluster": {"workers": 8, "network": network}}
    return Experiment("one slow link", "digits", setting, settings, systems, claims, by="seconds")


def _coded() -> Experiment:
    adam = {"name": "adam", "eps": 0.003}
    forgets = {"name": "top-k", "chunk": 4096, "share": 0.015625, "values": {"name": "low-bit", "bits": 2, "zero": False}}
    gossip = {"name": "choco", "consensus": 0.5}
    systems: dict[str, Settings] = {
        "allreduce": {"algorithm": {"name": "allreduce-sgd"}},
        "demo": {"algorithm": {"name": "demo"}},
        "diloco": _diloco(20),
        "sparseloco": _diloco(20, "sparseloco"),
        "sparseloco forgets": _diloco(20, "sparseloco", codec=forgets),
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
        below("DiLoCo is before allreduces of gradients", _DILOCO, SECONDS, "diloco", "allreduce"),
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
    settings = _until(6000.0) | {"cluster": {"workers": 8, "network": network}}
    return Experiment("few bytes", "digits", setting, settings, systems, claims, by="seconds")
