"""Experiments: systems on a task, and the claims of papers about two of them that have the same optimizer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import Any, NamedTuple

import numpy as np

from fred.base import numerics
from fred.learning.data.dataset import Dataset, Examples
from fred.learning.data.images import Digits
from fred.schedule.minibatches import divide
from studies.kit.tuning import Settings

TARGET = 0.7  # a loss
RATES = {  # of local steps, from which the search goes on
    "sgd": (0.01, 0.03, 0.1, 0.3, 1.0),
    **dict.fromkeys(("adam", "adamw"), (0.0003, 0.001, 0.003, 0.01, 0.03)),
}
_DILOCO, _STREAMING, _EAGER = "arXiv:2311.08105", "arXiv:2501.18512", "arXiv:2502.12996"
_EDIT, _NOLOCO, _SWARM, _SPARSE = "arXiv:2412.07210", "arXiv:2506.10911", "arXiv:1910.12308", "arXiv:2508.15706"
_DEMO, _DESLOC, _DELAYED = "arXiv:2411.19870", "arXiv:2505.22549", "arXiv:2401.09135"
_FEDBUFF, _DECOUPLED = "arXiv:2106.06639", "arXiv:2604.21428"
_NO_MOMENTUM = {"name": "sgd"}  # outer optimizer without momentum


class Spoiled(Digits):
    """Digits divided among workers; those of the first worker have random labels."""

    workers: int = 4

    def load(self, seed: int) -> Dataset:
        clean = super().load(seed)
        order, begins = divide(seed, len(clean.train), self.workers)
        part = order[: begins[1]]
        answers = clean.train.answers.copy()
        answers[part] = (10 * numerics.uniforms(seed, "wrong labels", part, 0, 1)[:, 0]).astype(np.int32)
        return Dataset(Examples(clean.train.inputs, answers), clean.evaluation, clean.outputs)


LOSS, SECONDS, DURATION, EXAMPLES = "loss", "target_seconds", "virtual_seconds", "examples"  # columns of the measurements


class Claim(NamedTuple):
    """A claim: a sum of systems' values, with these factors, is below a bound.

    Args:
        sentence: in our words.
        source: paper.
        quantity: column of the values; of all but losses their logarithms.
        factors: of each system.
        high: bound.
    """

    sentence: str
    source: str
    quantity: str
    factors: Mapping[str, float]
    high: float = 0.0

    @property
    def is_ratio(self) -> bool:
        """Return True if systems are compared by ratios, else by differences."""
        return self.quantity != LOSS


def below(sentence: str, source: str, quantity: str, system: str, baseline: str, margin: float = 0.0) -> Claim:
    """Return the claim that one system has less than another; with a margin, at most so much or such a multiple more."""
    high = log(margin) if quantity != LOSS and margin else margin
    return Claim(sentence, source, quantity, {system: 1.0, baseline: -1.0}, high)


@dataclass(frozen=True)
class Experiment:
    """Systems on digits.

    Args:
        setting: workers, steps and links of all systems, in words.
        settings: the same, as in a scenario.
        systems: what differs between them, as in a scenario.
        claims: about them.
        rates: of local steps, at first; by default those of the optimizer.
        outer: outer rates that are tried with each of these, where systems have one.
        by: column of the summary by which the best point is chosen.
        workers: number of workers.
    """

    setting: str
    settings: Settings
    systems: Mapping[str, Settings]
    claims: Sequence[Claim]
    rates: tuple[float, ...] = ()
    outer: tuple[float, ...] = ()
    by: str = "loss"
    workers: int = 4

    def scenario(self) -> Settings:
        """Return what all systems share."""
        task = {"data": "digits", "model": {"name": "mlp", "hidden": [32]}, "batch_size": 16}
        cluster = {"workers": self.workers, "compute": {"name": "lognormal", "median": 1.0, "sigma": 0.2}}
        shared = {"evaluate": {"points": 2}} | self.settings
        return shared | {"task": task | shared.get("task", {}), "cluster": cluster | shared.get("cluster", {})}


def optimizer(system: Settings) -> str:
    """Return the name of a system's inner optimizer."""
    inner = system["algorithm"].get("optimizer", "sgd")
    return str(inner if isinstance(inner, str) else inner["name"])


def _diloco(period: int, name: str = "diloco", inner: str = "adamw", **options: object) -> Settings:
    return {"algorithm": {"name": name, "optimizer": inner, **options}, "protocol": {"period": period}}


def _stop_after(budget: float) -> Settings:
    return {"stop": {"seconds": budget}, "evaluate": {"points": 80, "target_loss": TARGET}}


def _rounds() -> Experiment:
    def shared(workers: int, system: Settings) -> Settings:
        sizes = {"cluster": {"workers": workers}, "task": {"batch_size": 128 // workers}}
        return system | sizes | {"stop": {"gradients": 600 * workers}}

    systems = {f"H = {period}": shared(8, _diloco(period)) for period in (1, 20, 300)}
    systems["H = 20, one worker"] = shared(1, _diloco(20))
    claims = (
        below("loss rises with H, from 1 to 300", _DILOCO, LOSS, "H = 1", "H = 300"),
        below("it rises by 0.05 at most from H = 1 to 20", _DILOCO, LOSS, "H = 20", "H = 1", 0.05),
        below("8 workers lose 0.05 at most against one, H = 20", _DILOCO, LOSS, "H = 20", "H = 20, one worker", 0.05),
    )
    return Experiment("8 workers share batches of 128, 600 steps each; loss at equal tokens", {}, systems, claims)


def _overlap() -> Experiment:
    def linked(system: Settings, transfer: float) -> Settings:
        return system | {"cluster": {"network": {"message_bytes": 6000, "bandwidth": 1.5 * 6000 / transfer}}}

    def streaming(delay: int, cut: str = "layers") -> Settings:
        protocol = {"period": 20, "fragments": 2, "delay": delay, "mixing": 0.5, "cut": cut}
        return _diloco(20, "streaming-diloco", outer_rate=0.7) | {"protocol": protocol}

    def overlapped(eager: bool) -> Settings:
        protocol = {"name": "overlapped-steps", "period": 20, "eager": eager}
        return linked(_diloco(20, "eager-diloco", outer_rate=0.7) | {"protocol": protocol}, 16)

    waiting = _diloco(20, outer_rate=0.7)
    systems = {"diloco 0": waiting, "diloco 8": linked(waiting, 8), "streaming 0": streaming(0)}
    systems |= {"streaming 8": linked(streaming(5), 8), "streaming 16": linked(streaming(9), 16)}
    systems |= {"in halves 8": linked(streaming(5, "parts"), 8), "in halves 16": linked(streaming(9, "parts"), 16)}
    systems |= {"eager 16": overlapped(eager=True), "naive 16": overlapped(eager=False)}
    claims = [below("DiLoCo waits for a transfer of 8 steps, Streaming less", _STREAMING, DURATION, "streaming 8", "diloco 8")]
    for system in ("streaming 0", "streaming 8", "streaming 16", "in halves 16"):
        claims.append(below(f"{system}: at nearly no loss (0.02)", _STREAMING, LOSS, system, "diloco 0", 0.02))
    for system in ("streaming 8", "in halves 8", "in halves 16", "eager 16"):
        source = _EAGER if "eager" in system else _STREAMING
        claims.append(below(f"{system}: hides the transfer (but for 5 %)", source, DURATION, system, "diloco 0", 1.05))
    claims.append(below("eager 16: at nearly no loss (0.02)", _EAGER, LOSS, "eager 16", "diloco 0", 0.02))
    claims.append(below("a pseudo-gradient that is one round late loses", _EAGER, LOSS, "eager 16", "naive 16"))
    setting = "4 workers, H = 20, 400 steps each; an allreduce takes 0, 8 or 16 steps; outer rates 0.3 and 0.7"
    rates = (0.001, 0.003, 0.01)
    return Experiment(setting, {"stop": {"gradients": 1600}}, systems, claims, rates, outer=(0.3, 0.7))


def _wrong_labels() -> Experiment:
    systems = {"diloco": _diloco(10, inner="sgd"), "edit": _diloco(10, "edit", "sgd", warm_up=10)}
    spoiled = {"task": {"data": Spoiled(workers=4), "division": "divided"}}
    systems |= {f"{name} spoiled": system | spoiled for name, system in systems.items()}
    claims = (
        below("wrong labels at one worker cost DiLoCo loss", _EDIT, LOSS, "diloco", "diloco spoiled"),
        Claim("they cost EDiT less", _EDIT, LOSS, {"edit spoiled": 1.0, "edit": -1.0, "diloco spoiled": -1.0, "diloco": 1.0}),
        below("EDiT is below DiLoCo there", _EDIT, LOSS, "edit spoiled", "diloco spoiled"),
        below("EDiT's weights cost nothing where labels are right (0.02)", _EDIT, LOSS, "edit", "diloco", 0.02),
    )
    setting = "4 workers with data of their own, those of one with random labels all the time; H = 10, 60 rounds; loss"
    return Experiment(setting, {"stop": {"gradients": 2400}, "task": {"division": "divided"}}, systems, claims)


def _unequal_speeds() -> Experiment:
    systems = {name: _diloco(10, name, "sgd") for name in ("diloco", "edit")}
    systems |= {f"{name} by time": system | {"protocol": {"every": 50.0}} for name, system in systems.items()}
    claims = (
        below("A-EDiT is at the target before DiLoCo", _EDIT, SECONDS, "edit by time", "diloco"),
        below("... by a third of the time", _EDIT, SECONDS, "edit by time", "diloco", 2 / 3),
        below("... and before EDiT", _EDIT, SECONDS, "edit by time", "edit"),
        below("the weights have a part in it", _EDIT, SECONDS, "edit by time", "diloco by time"),
    )
    setting = "4 workers, one six times as slow; H = 10, or a synchronization every 50 s; seconds to a loss of 0.7"
    return Experiment(setting, _stop_after(1500.0) | {"cluster": {"speeds": [1, 1, 1, 1 / 6]}}, systems, claims, by="seconds")


def _one_slow_link() -> Experiment:
    systems = {name: _diloco(10, name, "sgd") for name in ("local-sgd", "diloco", "swarm-sgd", "noloco")}
    claims = (
        below("NoLoCo is at the target before DiLoCo", _NOLOCO, SECONDS, "noloco", "diloco"),
        below("... and before pairs without momentum", _NOLOCO, SECONDS, "noloco", "swarm-sgd"),
        below("pairs are before averages of all", _SWARM, SECONDS, "swarm-sgd", "local-sgd"),
    )
    regions = {"bandwidth": [[1e6, 300.0], [300.0, 1e6]], "workers": [0] * 7 + [1]}
    settings = _stop_after(1500.0) | {"cluster": {"network": {"message_bytes": 6000, "regions": regions}}}
    setting = "8 workers, H = 10; a model takes 20 s to or from one of them, no time between others; seconds to a loss of 0.7"
    return Experiment(setting, settings, systems, claims, by="seconds", workers=8)


def _few_bytes() -> Experiment:
    adam = {"name": "adam", "eps": 0.003}
    forgets = {"name": "top-k", "chunk": 4096, "share": 0.015625, "values": {"name": "low-bit", "bits": 2, "zero": False}}
    moments = {"name": "des-loc", "optimizer": adam}
    systems: dict[str, Settings] = {
        "allreduce": {"algorithm": {"name": "allreduce-sgd"}},
        "allreduce, adamw": {"algorithm": {"name": "allreduce-sgd", "optimizer": "adamw"}},
        "demo": {"algorithm": {"name": "demo"}},
        "diloco": _diloco(20),
        "sparseloco": _diloco(20, "sparseloco"),
        "sparseloco forgets": _diloco(20, "sparseloco", codec=forgets),
        "moments each time": {"algorithm": moments | {"first_every": 1, "second_every": 1}, "protocol": {"period": 8}},
        "des-loc": {"algorithm": moments, "protocol": {"period": 8}},
    }
    claims = (
        below("DeMo is at the target before allreduces of gradients (SGD)", _DEMO, SECONDS, "demo", "allreduce"),
        below("DiLoCo is before allreduces of gradients (AdamW)", _DILOCO, SECONDS, "diloco", "allreduce, adamw"),
        below("SparseLoCo is before DiLoCo", _SPARSE, SECONDS, "sparseloco", "diloco"),
        below("SparseLoCo is before its like without error memory", _SPARSE, SECONDS, "sparseloco", "sparseloco forgets"),
        below("DES-LOC is before averages of both moments each time", _DESLOC, SECONDS, "des-loc", "moments each time"),
    )
    network = {"latency": {"name": "constant", "seconds": 0.1}, "bandwidth": 200.0}
    settings = _stop_after(6000.0) | {"cluster": {"network": network}, "stop": {"seconds": 6000.0, "target_loss": TARGET}}
    setting = "8 workers, links of 200 bytes/s (a model takes 50 s); seconds to a loss of 0.7"
    return Experiment(setting, settings, systems, claims, by="seconds", workers=8)


def _arrivals() -> Experiment:
    def arriving(name: str, **options: Any) -> Settings:
        protocol: Settings = {"period": 20} | ({"name": "buffered", "buffer": 1} if name == "diloco" else {})
        return _diloco(20, name, **options) | {"protocol": protocol}

    rounds = {"name": "outer-steps", "period": 20}
    delayed = arriving("delayed-nesterov")
    systems = {
        "rounds, 0.9": _diloco(20) | {"protocol": rounds},
        "plain rounds": _diloco(20, outer=_NO_MOMENTUM) | {"protocol": rounds},
        "nesterov 0.7": arriving("diloco"),
        "nesterov 0.07": arriving("diloco", outer_rate=0.07),
        "plain": arriving("diloco", outer=_NO_MOMENTUM),
        "delayed": delayed,
        "delayed, paced": delayed | {"protocol": {"period": 20, "paced": True}},
        "fedbuff": arriving("fedbuff") | {"protocol": {"period": 20, "buffer": 4}},
    }
    claims = [below("plain Nesterov needs a tenth of the outer rate", _DELAYED, LOSS, "nesterov 0.07", "nesterov 0.7")]
    claims.append(below("delayed Nesterov beats plain Nesterov at the same rate", _DELAYED, LOSS, "delayed", "nesterov 0.7"))
    claims.append(below("pacing (DyLU) helps delayed Nesterov", _DELAYED, LOSS, "delayed, paced", "delayed"))
    claims.append(below("without momentum, arrivals one by one beat waiting", _DELAYED, LOSS, "plain", "plain rounds"))
    claims.append(below("delayed Nesterov is as stable as waiting (0.05)", _DELAYED, LOSS, "delayed", "plain rounds", 0.05))
    for system, source in (("delayed", _DELAYED), ("fedbuff", _FEDBUFF)):
        claims.append(below(f"{system} is at the target before plain rounds", source, SECONDS, system, "plain rounds"))
    settings: Settings = {
        "stop": {"gradients": 2400},
        "cluster": {"speeds": [1, 0.58 / 0.75, 0.58 / 1.51, 0.58 / 3.33]},
        "evaluate": {"points": 60, "target_loss": TARGET},
    }
    setting = "4 workers of 1, 1.3, 2.6 and 5.7 s for each step, H = 20; loss after 2,400 gradients, seconds to a loss of 0.7"
    return Experiment(setting, settings, systems, claims)


def _crashes() -> Experiment:
    def learners(number: int, name: str = "decoupled-diloco", **protocol: object) -> Settings:
        fault = {"name": "crashes", "mean_up": 25.0 * number, "away": {"name": "exponential", "scale": 50.0}}
        return {
            "algorithm": {"name": name},
            "protocol": {"name": "quorum", "period": 10, **protocol},
            "cluster": {"workers": number, "faults": [fault]},
            "task": {"batch_size": 128 // number},
        }

    systems = {f"{number} learners": learners(number) for number in (1, 2, 4, 8)}
    systems |= {"8, all asked": learners(8, quorum=8), "8, mean": learners(8, "diloco")}
    systems["8, rounds"] = learners(8, "diloco") | {"protocol": {"name": "outer-steps", "period": 10}}
    claims = [
        below(f"goodput rises from {half} to {number} learners", _DECOUPLED, EXAMPLES, f"{half} learners", f"{number} learners")
        for half, number in pairwise((1, 2, 4, 8))
    ]
    claims.append(below("8 that never wait do more than 8 that wait for all", _DECOUPLED, EXAMPLES, "8, rounds", "8 learners"))
    claims.append(below("the loss of 8 learners is below that of one", _DECOUPLED, LOSS, "8 learners", "1 learners"))
    claims.append(below("... and below that of 8 that wait for all", _DECOUPLED, LOSS, "8 learners", "8, rounds"))
    claims.append(below("one answer is as good as all (0.02)", _DECOUPLED, LOSS, "8 learners", "8, all asked", 0.02))
    claims.append(below("mean direction and length beat the mean of 8", _DECOUPLED, LOSS, "8 learners", "8, mean"))
    setting = "8 chips, each up 200 s on average and then away for 50; learners of 8 / M chips, which crash as one; 600 s"
    return Experiment(setting, {"stop": {"seconds": 600.0}}, systems, claims)


EXPERIMENTS = {
    "rounds": _rounds(),
    "overlap": _overlap(),
    "wrong labels": _wrong_labels(),
    "unequal speeds": _unequal_speeds(),
    "one slow link": _one_slow_link(),
    "few bytes": _few_bytes(),
    "arrivals": _arrivals(),
    "crashes": _crashes(),
}
