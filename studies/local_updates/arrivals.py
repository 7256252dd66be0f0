"""Differences that arrive one by one, and learners that crash: delayed Nesterov, FedBuff, HeLoCo, CGAD, Decoupled DiLoCo."""

from collections.abc import Iterator
from itertools import pairwise

from studies.local_updates.claims import EXAMPLES, LOSS, SECONDS, Experiment, Settings, below, gap, nearly

_DELAYED, _FEDBUFF, _HELOCO, _CGAD = "arXiv:2401.09135", "arXiv:2106.06639", "arXiv:2606.00271", "arXiv:2605.09126"
_DECOUPLED = "arXiv:2604.21428"
_PLAIN = {"name": "sgd"}


def experiments() -> Iterator[Experiment]:
    """All of families D and E."""
    for task in ("digits", "grammar"):
        yield _arriving(task)
    yield _stale()
    yield _crashing()


def _one_by_one(name: str, period: int, optimizer: str = "adamw", **more: object) -> Settings:
    protocol: Settings = {"period": period}
    if name == "diloco":
        protocol |= {"name": "buffered", "buffer": 1}
    return {"algorithm": {"name": name, "optimizer": optimizer, **more}, "protocol": protocol}


def _together(**more: object) -> Settings:
    return {"algorithm": {"name": "diloco", "optimizer": "adamw", **more}, "protocol": {"name": "outer-steps", "period": 20}}


def _arriving(task: str) -> Experiment:
    """The clocks of arXiv:2401.09135's simulator."""
    delayed = _one_by_one("delayed-nesterov", 20)
    systems = {
        "sync": _together(),
        "sync plain": _together(outer=_PLAIN),
        "nesterov 0.7": _one_by_one("diloco", 20),
        "nesterov 0.07": _one_by_one("diloco", 20, outer_rate=0.07),
        "plain": _one_by_one("diloco", 20, outer=_PLAIN),
        "delayed": delayed,
        "delayed paced": {**delayed, "protocol": {"period": 20, "paced": True}},
        "fedbuff": {**_one_by_one("fedbuff", 20), "protocol": {"period": 20, "buffer": 4}},
    }
    claims = (
        nearly("delayed Nesterov is as stable as waiting for all (0.05)", _DELAYED, LOSS, "delayed", "sync", 0.05),
        below("plain Nesterov needs a tenth of the outer rate", _DELAYED, LOSS, "nesterov 0.07", "nesterov 0.7"),
        below("delayed Nesterov beats plain Nesterov at the same rate", _DELAYED, LOSS, "delayed", "nesterov 0.7"),
        below("pacing (DyLU) helps delayed Nesterov", _DELAYED, LOSS, "delayed paced", "delayed"),
        below("delayed Nesterov is at the target before who waits for all", _DELAYED, SECONDS, "delayed", "sync"),
        below("without momentum, arrivals one by one beat waiting", _DELAYED, LOSS, "plain", "sync plain"),
        below("buffers (FedBuff) are at the target before who waits for all", _FEDBUFF, SECONDS, "fedbuff", "sync"),
    )
    setting = "4 workers of 1, 1.3, 2.6 and 5.7 s for each step, H = 20; loss at equal gradients, seconds to a loss"
    gradients, target = (2400, 0.7) if task == "digits" else (640, 2.3)
    settings: Settings = {
        "stop": {"gradients": gradients},
        "cluster": {"speeds": [1, 0.58 / 0.75, 0.58 / 1.51, 0.58 / 3.33]},
        "evaluate": {"points": 60, "target_loss": target},
    }
    return Experiment("arrivals", task, setting, settings, systems, claims)


def _stale() -> Experiment:
    names = {"nesterov": "diloco", "heloco": "heloco", "cgad": "cgad"}
    systems: dict[str, Settings] = {}
    for workers in (2, 9):
        for label, name in names.items():
            systems[f"{label} {workers - 1}"] = {**_one_by_one(name, 20, "sgd"), "cluster": {"workers": workers}}
        systems[f"sync {workers - 1}"] = {
            **_together(optimizer="sgd"),
            "cluster": {"workers": workers},
        }
    claims = []
    for name, label, source in (("heloco", "HeLoCo", _HELOCO), ("cgad", "CGAD", _CGAD)):
        claims.append(below(f"{label} is below Nesterov (0.7, 0.9) at delays of 8", source, LOSS, f"{name} 8", "nesterov 8"))
        said = f"{label} loses less from delay 1 to 8 than Nesterov"
        claims.append(gap(said, source, (f"{name} 8", f"{name} 1"), ("nesterov 8", "nesterov 1")))
    claims.append(below("HeLoCo is below who waits for all", _HELOCO, LOSS, "heloco 8", "sync 8"))
    setting = "2 or 9 workers of one speed, so delays of 1 or 8; data divided by label, H = 20; loss after 3,600 gradients"
    settings: Settings = {"stop": {"gradients": 3600}, "task": {"division": "by-label"}}
    return Experiment("stale differences", "digits", setting, settings, systems, tuple(claims))


def _crashing() -> Experiment:
    """128 examples each second, shared among learners; the more learners, the fewer chips each has that can crash."""

    def learners(number: int, name: str = "decoupled-diloco", **protocol: object) -> Settings:
        fault = {"name": "crashes", "mean_up": 25.0 * number, "away": {"name": "exponential", "scale": 50.0}}
        return {
            "algorithm": {"name": name},
            "protocol": {"name": "quorum", "period": 10, **protocol},
            "cluster": {"workers": number, "faults": [fault]},
            "task": {"batch_size": 128 // number},
        }

    numbers = (1, 2, 4, 8)
    systems = {f"{number} learners": learners(number) for number in numbers}
    systems |= {"8, all asked": learners(8, quorum=8), "8, mean": learners(8, "diloco")}
    systems["8, sync"] = {**learners(8, "diloco"), "protocol": {"name": "outer-steps", "period": 10}}
    claims = (
        *(
            below(
                f"goodput rises from {fewer} to {more} learners", _DECOUPLED, EXAMPLES, f"{fewer} learners", f"{more} learners"
            )
            for fewer, more in pairwise(numbers)
        ),
        below("8 learners that never wait do more than 8 who wait for all", _DECOUPLED, EXAMPLES, "8, sync", "8 learners"),
        below("the loss of 8 learners is below that of one", _DECOUPLED, LOSS, "8 learners", "1 learners"),
        below("... and below that of 8 who wait for all", _DECOUPLED, LOSS, "8 learners", "8, sync"),
        nearly("one answer (K = 1) is as good as all (K = 8; 0.02)", _DECOUPLED, LOSS, "8 learners", "8, all asked", 0.02),
        below("mean direction and length beat the mean of 8", _DECOUPLED, LOSS, "8 learners", "8, mean"),
    )
    setting = "8 chips, each up 200 s on average and then away for 50; learners of 8 / M chips, which crash as one; 600 s"
    return Experiment("crashes", "digits", setting, {"stop": {"seconds": 600.0}}, systems, claims)
