"""The job, its failures, and the systems that are compared."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from studies.failures.theory import daly_interval
from studies.tuning import Knobs, Settings

HERE = Path(__file__).parent
WORKERS = 8
ROUND = 139.1  # s: mean time of the slowest of eight gradients
BUDGET, LOOKS = 36 * 3600.0, 432  # s of virtual time, and evaluations in them
TARGET = 0.4  # loss on held-out digits, nats
HOUR = 3600.0
NONE = math.inf  # hours between two failures of the job
RATES = {NONE: "none", 168.0: "one a week", 24.0: "one a day", 4.0: "six a day", 1.0: "one an hour"}
MEDIUM, MOST = 4.0, 1.0  # hours between failures: where settings are tuned again, and where a failure's cost is measured
PAUSE = 60.0  # s for which a checkpoint stops the job
DETECT, REPAIR, JOIN, LOAD = 60.0, 1800.0, 120.0, 240.0  # s
AWAY = DETECT + REPAIR + LOAD  # s without one machine

_RATES = (0.02, 0.035, 0.06, 0.1, 0.18, 0.3, 0.55, 1.0, 1.8)
_OUTER = ((0.0, 0.7), (0.0, 1.0), (0.5, 0.7), (0.5, 1.0), (0.9, 0.4), (0.9, 0.7))  # momentum and outer rate
_PERIODS = (4, 8, 16, 32)


@dataclass(frozen=True)
class System:
    """A system, and how it meets failures.

    Args:
        meets: what a failure does to it, in words.
        algorithm: its name.
        protocol: fixed options of the protocol.
        knobs: ordered values of each tuned setting, by name.
        stops: True if a failure stops the whole job, which goes back to a checkpoint; else it stops one worker.
        round_updates: updates in the time of a step.
        spares: machines that stand by.
        alike: system that is the same without failures.
    """

    meets: str
    algorithm: str
    knobs: Knobs
    protocol: dict[str, Any] = field(default_factory=dict)
    stops: bool = False
    round_updates: int = 1
    spares: int = 0
    alike: str | None = None

    @property
    def goes_on(self) -> bool:
        """Return True if the other workers never wait for the repair."""
        return not self.stops and self.algorithm not in ("local-sgd", "diloco")

    def run(self, settings: Settings, between: float) -> dict[str, Any]:
        """Return a run, as a scenario has it.

        Args:
            settings: value of each knob.
            between: hours between two failures of the job.
        """
        algorithm: dict[str, Any] = {"name": self.algorithm, "learning_rate": settings["rate"]}
        if "outer" in settings:
            momentum, rate = settings["outer"]
            algorithm |= {"outer_rate": rate, "outer": {"name": "sgd", "momentum": momentum, "nesterov": True}}
        options = {name: value for name, value in settings.items() if name not in ("rate", "outer")}
        return {"algorithm": algorithm, "protocol": {**self.protocol, **options}, "cluster": self.cluster(between)}

    def cluster(self, between: float) -> dict[str, Any]:
        """Return the part of the cluster that is the system's own: prices and failures.

        Args:
            between: hours between two failures of the job.
        """
        price: dict[str, Any] = {"per_hour": (WORKERS + self.spares) / WORKERS}
        if between == NONE:
            return {"prices": {"workers": [price]}}
        cluster = {"prices": {"workers": [price | {"paid_while_away": True}]}}
        mean_up = WORKERS * between * HOUR  # of each machine
        if not self.stops:
            return cluster | {"faults": [{"name": "crashes", "mean_up": mean_up, "away": _constant(AWAY)}]}
        failures = {
            "causes": [{"mean_up": mean_up, "repair": _constant(REPAIR)}],
            "checkpoint": {"every_updates": self.round_updates * rounds_between_checkpoints(between), "pause": PAUSE},
            "detect": _constant(DETECT),
            "load": _constant(LOAD),
        }
        return cluster | {"failures": failures | ({"spares": self.spares, "join": _constant(JOIN)} if self.spares else {})}


def _constant(seconds: float) -> dict[str, Any]:
    return {"name": "constant", "seconds": seconds}


def rounds_between_checkpoints(between: float) -> int:
    """Return the number of synchronous rounds next to Daly's interval.

    Args:
        between: hours between two failures of the job.

    >>> [rounds_between_checkpoints(hours) for hours in (1, 4, 24, 168)]
    [4, 9, 23, 61]
    """
    return max(1, round(daly_interval(PAUSE, between * HOUR) / ROUND))


def _rates(scale: float) -> Sequence[float]:
    return [float(f"{scale * rate:.2g}") for rate in _RATES]


_SYNCHRONOUS = {"rate": _rates(1.0)}
_ASYNCHRONOUS = {"rate": _rates(0.125)}
_OUTER_KNOBS = {"rate": _rates(1.0)[2:], "outer": _OUTER, "period": _PERIODS}

SYSTEMS = {
    "checkpoints": System("all stop, go back, wait for the repair", "ssgd", _SYNCHRONOUS, stops=True),
    "checkpoints, a spare": System(
        "all stop, go back, a spare joins", "ssgd", _SYNCHRONOUS, stops=True, spares=1, alike="checkpoints"
    ),
    "backup workers": System(
        "rounds need 7 or 6 of 8", "ssgd", {**_SYNCHRONOUS, "backup_workers": (1, 2)}, protocol={"late": "interrupt"}
    ),
    "elastic rounds": System(
        "after 60 s rounds go on without it, with a smaller batch",
        "ssgd",
        _SYNCHRONOUS,
        protocol={"timeout": DETECT},
        alike="checkpoints",
    ),
    "elastic, same batch": System(
        "the others compute its share (Rennala)", "rennala", {**_SYNCHRONOUS, "batch": (4, 6, 8, 12, 16)}
    ),
    "asynchronous, checkpoints": System(
        "all stop, go back, wait for the repair", "asgd", _ASYNCHRONOUS, stops=True, round_updates=WORKERS, alike="asynchronous"
    ),
    "asynchronous": System("the others go on", "asgd", _ASYNCHRONOUS),
    "local SGD": System("the others wait at the next average", "local-sgd", {"rate": _rates(1.0), "period": _PERIODS}),
    "DiLoCo": System("the others wait at the next outer step", "diloco", _OUTER_KNOBS),
    "elastic DiLoCo": System(
        "the others go on; it rejoins from a peer",
        "streaming-diloco",
        _OUTER_KNOBS,
        protocol={"fragments": 1, "elastic": True},
        alike="DiLoCo",
    ),
    "Decoupled DiLoCo": System("the others go on; it rejoins from the server", "decoupled-diloco", _OUTER_KNOBS),
}
BASE = "checkpoints"  # with which the others are compared


def settings() -> dict[str, Any]:
    """Return what all runs share, as a scenario has it."""
    return {
        "task": {"data": "digits", "model": {"name": "mlp", "hidden": [32]}, "batch_size": 1},
        "cluster": {"workers": WORKERS, "compute": {"name": "lognormal", "median": 120.0, "sigma": 0.1}},
        "stop": {"seconds": BUDGET},
        "evaluate": {"points": LOOKS, "target_loss": TARGET},
    }
