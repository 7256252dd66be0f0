"""DiLoCo and its successors: rounds of local steps, overlapped, pulled together, weighed, of unequal lengths."""

from collections.abc import Iterator
from typing import NamedTuple

from studies.local_updates.claims import (
    DURATION,
    LOSS,
    SECONDS,
    Claim,
    Experiment,
    Settings,
    below,
    gap,
    nearly,
)
from studies.local_updates.spoiled import Spoiled

DILOCO, _MULOCO, _SNOO = "arXiv:2311.08105", "arXiv:2505.23725", "arXiv:2510.15830"
_STREAMING, _EAGER, _PALSGD = "arXiv:2501.18512", "arXiv:2502.12996", "arXiv:2504.18454"
_EDIT = "arXiv:2412.07210"
TARGET = 0.7  # a loss on digits


def experiments() -> Iterator[Experiment]:
    """Yield the experiments of families C and B4 with averages of whole models and all workers."""
    for task in ("digits", "grammar"):
        yield _rounds(task)
        yield _overlapped(task)
    yield _pulled("digits")
    yield _spoiled()
    yield _paced()


def diloco(period: int, name: str = "diloco", optimizer: str = "adamw", **more: object) -> Settings:
    """Return a system that synchronizes every `period` steps, or at each.

    Args:
        period: H.
        name: of the algorithm.
        optimizer: of local steps.
        more: of the algorithm's options.
    """
    own: Settings = {"algorithm": {"name": name, "optimizer": optimizer, **more}}
    if name != "allreduce-sgd":
        own["protocol"] = {"period": period}
    return own


class _Size(NamedTuple):
    """How large the experiment with rounds is on a task."""

    batch: int  # that all workers share
    steps: int
    workers: int
    periods: tuple[int, ...]


_SIZES = {"digits": _Size(128, 600, 8, (1, 20, 100, 300)), "grammar": _Size(16, 160, 4, (1, 10, 40))}


def _rounds(task: str) -> Experiment:
    """Equal tokens: how loss follows H and the number of workers, and what outer momentum does."""
    size = _SIZES[task]
    systems, claims = _in_rounds(size), list(_of_rounds(size))
    if task == "digits":
        some = size.periods[1]
        for workers in (1, 2, 4):
            systems[f"diloco {some} of {workers}"] = _shared(diloco(some), size, workers)
        said = f"{size.workers} workers lose 0.05 at most against one, H = {some}"
        claims.append(nearly(said, DILOCO, LOSS, f"diloco {some}", f"diloco {some} of 1", 0.05))
    setting = f"{size.workers} workers share batches of {size.batch}, {size.steps} steps each; loss at equal tokens"
    return Experiment("rounds", task, setting, {}, systems, tuple(claims))


def _shared(own: Settings, size: _Size, workers: int) -> Settings:
    """Return the system with a number of workers that share one batch."""
    return {
        **own,
        "cluster": {"workers": workers},
        "task": {"batch_size": size.batch // workers},
        "stop": {"gradients": size.steps * workers},
    }


def _in_rounds(size: _Size) -> dict[str, Settings]:
    seldom, some, last = size.periods[1:], size.periods[1], size.periods[-1]
    systems = {f"diloco {period}": diloco(period) for period in size.periods}
    systems |= {f"local {period}": diloco(period, "local-sgd") for period in seldom}
    systems |= {f"muloco {period}": diloco(period, "muloco", "muon") for period in (some, last)}
    systems |= {f"{name} each step": diloco(1, "allreduce-sgd", name) for name in ("adamw", "muon")}
    alone = {f"snoo {name}": _shared(diloco(some, "snoo", name), size, 1) for name in ("adamw", "muon")}
    return {name: _shared(own, size, size.workers) for name, own in systems.items()} | alone


def _of_rounds(size: _Size) -> Iterator[Claim]:
    some, last = size.periods[1], size.periods[-1]
    yield below(f"loss rises with H, from 1 to {last}", DILOCO, LOSS, "diloco 1", f"diloco {last}")
    yield nearly(f"it rises slowly: by 0.05 at most from H = 1 to {some}", DILOCO, LOSS, f"diloco {some}", "diloco 1", 0.05)
    for period in size.periods[1:]:
        yield below(f"outer momentum helps, H = {period}", DILOCO, LOSS, f"diloco {period}", f"local {period}")
    yield below(f"Muon inside is better than AdamW, H = {some}", _MULOCO, LOSS, f"muloco {some}", f"diloco {some}")
    said = f"Muon inside loses less from H = {some} to {last} than AdamW"
    yield gap(said, _MULOCO, (f"muloco {last}", f"muloco {some}"), (f"diloco {last}", f"diloco {some}"))
    yield below("MuLoCo with one worker is below data-parallel Muon", _MULOCO, LOSS, "snoo muon", "muon each step")
    yield below("outer momentum helps one worker, too (AdamW)", _SNOO, LOSS, "snoo adamw", "adamw each step")


def _overlapped(task: str) -> Experiment:
    """An allreduce of the whole model takes 0 to 16 of the 20 steps of a round."""
    steps = 400 if task == "digits" else 160
    waiting = diloco(20, outer_rate=0.7)
    systems = {
        "diloco 0": waiting,
        "diloco 8": _linked(waiting, 8),
        "streaming 0": _streaming(0),
        "streaming 8": _linked(_streaming(5), 8),
        "streaming 16": _linked(_streaming(9), 16),
        "in halves 8": _linked(_streaming(5, "parts"), 8),
        "in halves 16": _linked(_streaming(9, "parts"), 16),
        "eager 16": _linked(_late(eager=True), 16),
        "naive 16": _linked(_late(eager=False), 16),
    }
    setting = f"4 workers, H = 20, {steps} steps each; an allreduce takes 0, 8 or 16 steps; outer rates 0.3 and 0.7"
    settings: Settings = {"stop": {"gradients": 4 * steps}}
    rates = {"adamw": [0.001, 0.003, 0.01]}
    return Experiment("overlap", task, setting, settings, systems, tuple(_of_overlap()), rates, outer=(0.3, 0.7))


def _linked(own: Settings, transfer: float) -> Settings:
    """Return the system with links over which four workers need `transfer` seconds for an allreduce of the whole model."""
    return {**own, "cluster": {"network": {"message_bytes": 6000, "bandwidth": 1.5 * 6000 / transfer}}}


def _streaming(delay: int, cut: str = "layers") -> Settings:
    protocol = {"period": 20, "fragments": 2, "delay": delay, "mixing": 0.5, "cut": cut}
    return {**diloco(20, "streaming-diloco", outer_rate=0.7), "protocol": protocol}


def _late(eager: bool) -> Settings:
    own = diloco(20, "eager-diloco", outer_rate=0.7)
    return {**own, "protocol": {"name": "overlapped-steps", "period": 20, "eager": eager}}


def _of_overlap() -> Iterator[Claim]:
    said = "Streaming hides a transfer of 8 steps (by 5 % of the time)"
    yield nearly(said, _STREAMING, DURATION, "streaming 8", "diloco 0", 1.05)
    yield below("... which DiLoCo waits for", _STREAMING, DURATION, "streaming 8", "diloco 8")
    for transfer in (0, 8, 16):
        said = f"... at nearly no loss (0.02), transfer {transfer}"
        yield nearly(said, _STREAMING, LOSS, f"streaming {transfer}", "diloco 0", 0.02)
    for transfer in (8, 16):
        said = f"... cut into halves it hides {transfer} steps"
        yield nearly(said, _STREAMING, DURATION, f"in halves {transfer}", "diloco 0", 1.05)
    said = "... at nearly no loss (0.02), in halves, transfer 16"
    yield nearly(said, _STREAMING, LOSS, "in halves 16", "diloco 0", 0.02)
    yield nearly("Eager hides 16 steps (by 5 % of the time)", _EAGER, DURATION, "eager 16", "diloco 0", 1.05)
    yield nearly("Eager does so at nearly no loss (0.02)", _EAGER, LOSS, "eager 16", "diloco 0", 0.02)
    yield below("a pseudo-gradient that is one round late loses", _EAGER, LOSS, "eager 16", "naive 16")


def _pulled(task: str) -> Experiment:
    shares, seldom = (0.0, 0.1, 0.2), (50, 400)
    systems = {}
    for period in seldom:
        for share in shares:
            own = diloco(period, "palsgd" if share else "diloco")
            own["algorithm"]["outer"] = {"name": "sgd", "momentum": 0.9, "nesterov": True}
            protocol = {"period": period, "pulls": share}
            systems[f"pulls {share} H {period}"] = {**own, "protocol": protocol}
    claims = [
        below(
            f"pulls in place of {100 * share:.0f} % of steps help at H = 400",
            _PALSGD,
            LOSS,
            f"pulls {share} H 400",
            "pulls 0.0 H 400",
        )
        for share in shares[1:]
    ]
    said = "pulls (20 %) lose less from H = 50 to 400 than DiLoCo"
    claims.append(gap(said, _PALSGD, ("pulls 0.2 H 400", "pulls 0.2 H 50"), ("pulls 0.0 H 400", "pulls 0.0 H 50")))
    setting = (
        "4 workers, 800 s of 1 s for each gradient; a pull is one of the H updates, takes no time and sends nothing, so that "
        "20 % of pulls cost 2 to 7 % of the gradients, by waiting for synchronizations; loss at equal time"
    )
    settings: Settings = {"stop": {"seconds": 801.0}, "cluster": {"compute": {"name": "constant", "seconds": 1.0}}}
    return Experiment("pulls", task, setting, settings, systems, tuple(claims))


def _spoiled() -> Experiment:
    """Unlike in the rule's own words, labels stay wrong."""
    systems = {}
    for name in ("diloco", "edit"):
        more = {"warm_up": 10} if name == "edit" else {}
        systems[name] = diloco(10, name, "sgd", **more)
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
    systems = {name: diloco(10, name, "sgd") for name in ("diloco", "edit")}
    for name in ("diloco", "edit"):
        systems[f"{name} by time"] = {**systems[name], "protocol": {"every": 50.0}}
    claims = (
        below("A-EDiT, which synchronizes by time, is at the target before DiLoCo", _EDIT, SECONDS, "edit by time", "diloco"),
        below("... by a third of the time", _EDIT, SECONDS, "edit by time", "diloco")._replace(high=-0.405),
        below("... and before EDiT", _EDIT, SECONDS, "edit by time", "edit"),
        below("the weights have a part in it", _EDIT, SECONDS, "edit by time", "diloco by time"),
    )
    setting = "4 workers, one six times as slow; H = 10, or a synchronization every 50 s; seconds to a loss of 0.7"
    settings: Settings = until(1500.0) | {"cluster": {"speeds": [1, 1, 1, 1 / 6]}}
    return Experiment("unequal speeds", "digits", setting, settings, systems, claims, by="seconds")


def until(budget: float) -> Settings:
    """Measured by when it is at the target.

    Args:
        budget: when all ends, s.
    """
    return {"stop": {"seconds": budget}, "evaluate": {"points": 80, "target_loss": TARGET}}
