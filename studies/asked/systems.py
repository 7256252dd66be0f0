"""The systems, each with its own knobs, as ordered values that the search may choose."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from studies.tuning import Knobs, Settings

_RATES = (0.05, 0.1, 0.2, 0.4, 0.8)
_PERIODS = (2, 5, 10, 20)
_CLIENTS = (5, 10, 20)
_ROUNDS: Knobs = {"rate": _RATES, "period": _PERIODS, "clients": _CLIENTS}
_BUFFER: Knobs = {"rate": _RATES, "period": _PERIODS, "buffer": (5, 10, 20), "server_rate": (0.5, 1.0, 2.0, 4.0)}
_OF_SERVER = ("server_rate", "mixing", "exponent")  # knobs of the algorithm; the others are the protocol's


@dataclass(frozen=True)
class System:
    """A system and its knobs.

    Args:
        about: whom the server asks, and whom it waits for.
        algorithm: its name.
        knobs: ordered values of each tuned setting, by name.
        protocol: fixed options of the protocol.
        rounds: True if the server asks a sample of the clients, round by round; else clients are always at work.
        at_work: largest number of clients at work at once, by case; empty: all.
    """

    about: str
    algorithm: str
    knobs: Knobs
    protocol: dict[str, Any] = field(default_factory=dict)
    rounds: bool = True
    at_work: Mapping[str, int] = field(default_factory=dict)

    def run(self, settings: Settings, case: str) -> dict[str, Any]:
        """Return a run, as a scenario has it.

        Args:
            settings: value of each knob.
            case: name of the case.
        """
        algorithm = {"name": self.algorithm, "learning_rate": settings["rate"]}
        algorithm |= {name: settings[name] for name in _OF_SERVER if name in settings}
        options = {name: value for name, value in settings.items() if name not in ("rate", *_OF_SERVER)}
        options |= {"concurrency": self.at_work[case]} if self.at_work else {}
        return {"algorithm": algorithm, "protocol": {**self.protocol, **options}}


BASE = "uniform"  # with which the others are compared
SYSTEMS = {
    BASE: System("a uniform sample; waits for all of it (FedAvg)", "fedavg", _ROUNDS),
    "spare": System("more than it needs; drops the last ones", "fedavg", {**_ROUNDS, "spare": (2, 5, 10)}),
    "deadline": System("a uniform sample; waits until a deadline", "fedavg", {**_ROUNDS, "deadline": (3.0, 6.0, 12.0, 24.0)}),
    "by speed": System("fast clients more often", "fedavg", _ROUNDS, protocol={"sampling": "speed"}),
    "by size": System(
        "clients with many examples more often", "fedavg", _ROUNDS, protocol={"sampling": "size", "weights": "equal"}
    ),
    "FedAdam": System("a uniform sample; Adam on the server", "fedadam", {**_ROUNDS, "server_rate": (0.01, 0.03, 0.1)}),
    "FedBuff": System("all, always; a step for each K arrivals", "fedbuff", _BUFFER, rounds=False),
    "FedAsync": System(
        "all, always; averages with each arrival",
        "fedasync",
        {"rate": _RATES, "period": _PERIODS, "mixing": (0.05, 0.1, 0.2, 0.4), "exponent": (0.0, 0.5, 1.0)},
        rounds=False,
    ),
    "FedCompass": System(
        "all, always; steps such that groups arrive together",
        "fedcompass",
        {"rate": _RATES, "period": (5, 10, 20, 40), "server_rate": (1.0, 3.0, 10.0)},
        rounds=False,
    ),
}

AS_MANY = "FedBuff, as many"  # a control: FedBuff with as many clients at work as the fastest rounds of the case ask
CONTROLS = {
    AS_MANY: System(
        "as many as the fastest rounds ask; a step for each K arrivals",
        "fedbuff",
        _BUFFER,
        rounds=False,
        at_work={"even": 10, "skewed": 10, "devices": 20, "slow-differ": 15, "sessions": 10},
    )
}
EVERY = SYSTEMS | CONTROLS  # that are measured
