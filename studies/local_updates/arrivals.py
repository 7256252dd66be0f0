"""Differences that arrive one by one, and learners that crash: delayed Nesterov, HALoS, HeLoCo, CGAD, Decoupled DiLoCo."""

from collections.abc import Iterator
from itertools import pairwise
from math import log

from studies.local_updates.claims import AFTERWARDS, EXAMPLES, LOSS, SECONDS, Claim, Experiment, Settings, below, gap, nearly
from studies.local_updates.rounds import TARGET

_DELAYED, _FEDBUFF, _HELOCO, _CGAD = "arXiv:2401.09135", "arXiv:2106.06639", "arXiv:2606.00271", "arXiv:2605.09126"
_HALOS, _DECOUPLED = "arXiv:2506.04531", "arXiv:2604.21428"
_GBITS = [[100, 0.537, 0.935, 0.202], [0.537, 100, 0.386, 0.117], [0.935, 0.386, 100, 0.127], [0.202, 0.117, 0.127, 100]]
_SPEEDS = [
    *(0.232, 0.907, 0.828, 0.347, 0.574, 0.531, 0.722, 0.194),
    *(0.852, 0.132, 0.896, 0.107, 0.827, 0.515, 0.527, 0.788),
]
_PLAIN = {"name": "sgd"}


def experiments() -> Iterator[Experiment]:
    """All of families D and E."""
    for task in ("digits", "grammar"):
        yield _arriving(task)
    yield _stale()
    yield from _far_apart()
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
        below("delayed Nesterov is at the target before rounds that wait for all", _DELAYED, SECONDS, "delayed", "sync"),
        below("without momentum, arrivals one by one beat waiting", _DELAYED, LOSS, "plain", "sync plain"),
        below("FedBuff is at the target before rounds that wait for all", _FEDBUFF, SECONDS, "fedbuff", "sync"),
    )
    gradients, target = (2400, TARGET) if task == "digits" else (640, 2.3)
    clock = "4 workers of 1, 1.3, 2.6 and 5.7 s for each step, H = 20"
    setting = f"{clock}; loss after {gradients} gradients, seconds to a loss of {target}"
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
    claims.append(below("HeLoCo is below rounds that wait for all", _HELOCO, LOSS, "heloco 8", "sync 8"))
    setting = "2 or 9 workers of one speed, so delays of 1 or 8; data divided by label, H = 20; loss after 3,600 gradients"
    settings: Settings = {"stop": {"gradients": 3600}, "task": {"division": "by-label"}}
    return Experiment("stale pseudo-gradients", "digits", setting, settings, systems, tuple(claims))


def _far_apart() -> Iterator[Experiment]:
    """The regions, links, speeds and outer rates of HALoS's simulator, of whose models only the size is kept."""
    where = "16 workers in four regions, links of 0.1 to 0.9 Gbit/s between these, 282 MB; H = 8 or 32"
    cluster: Settings = {"workers": 16, "speeds": _SPEEDS, "network": _regions()}
    cluster["compute"] = {"name": "lognormal", "median": 0.238391, "sigma": 0.2}
    once: Settings = {"cluster": cluster, "stop": {"seconds": 800.0, "target_loss": TARGET}}
    once["evaluate"] = {"points": 160, "target_loss": TARGET}
    setting, claims = f"{where}; seconds to a loss of {TARGET}", tuple(_there_sooner())
    yield Experiment("four regions", "digits", setting, once, _by_region(), claims, by="seconds")
    later: Settings = {"cluster": cluster, "stop": {"seconds": 600.0}}
    setting, claims = f"{where}; loss after 600 s", tuple(_lower_at_the_end())
    yield Experiment("regions later", "digits", setting, later, _by_region(), claims, reported=AFTERWARDS)


def _by_region() -> dict[str, Settings]:
    own = _one_by_one("halos", 8)
    own["protocol"]["pushes"] = 32
    delayed = _one_by_one("delayed-nesterov", 32, outer_rate=1.6, gathered=32)
    delayed["protocol"]["paced"] = True
    return {
        "halos": {**own, "cluster": {"servers": 5, "network": _regions(servers=[0, 1, 2, 3, 0])}},
        "sync": {**_together(), "protocol": {"name": "outer-steps", "period": 32}},
        "delayed paced": delayed,
    }


def _there_sooner() -> Iterator[Claim]:
    sooner = below("HALoS is at the target before DiLoCo, which waits for all", _HALOS, SECONDS, "halos", "sync")
    yield sooner
    yield sooner._replace(said="... by the 7.5 times that the paper has at most", high=-log(7.5))
    yield below("HALoS is there before paced arrivals one by one", _HALOS, SECONDS, "halos", "delayed paced")
    yield below("paced arrivals one by one are there before DiLoCo", _HALOS, SECONDS, "delayed paced", "sync")


def _lower_at_the_end() -> Iterator[Claim]:
    yield below("HALoS ends below DiLoCo, which waits for all", _HALOS, LOSS, "halos", "sync")
    yield below("HALoS ends below paced arrivals one by one", _HALOS, LOSS, "halos", "delayed paced")


def _regions(**more: object) -> Settings:
    bandwidth = [[gigabits * 1e9 / 8 for gigabits in row] for row in _GBITS]
    return {"message_bytes": 4 * 70_426_624, "regions": {"bandwidth": bandwidth, **more}}


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
        below("8 learners that never wait do more than 8 that wait for all", _DECOUPLED, EXAMPLES, "8, sync", "8 learners"),
        below("the loss of 8 learners is below that of one", _DECOUPLED, LOSS, "8 learners", "1 learners"),
        below("... and below that of 8 that wait for all", _DECOUPLED, LOSS, "8 learners", "8, sync"),
        nearly("one answer (K = 1) is as good as all (K = 8; 0.02)", _DECOUPLED, LOSS, "8 learners", "8, all asked", 0.02),
        below("mean direction and length beat the mean of 8", _DECOUPLED, LOSS, "8 learners", "8, mean"),
    )
    setting = "8 chips, each up 200 s on average and then away for 50; learners of 8 / M chips, which crash as one; 600 s"
    return Experiment("crashes", "digits", setting, {"stop": {"seconds": 600.0}}, systems, claims)
