"""The cases: how the data are divided, and which devices the clients have."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from studies.asked.data import Owned

HERE = Path(__file__).parent
CLIENTS = 30
BUDGET, LOOKS = 240.0, 80  # s of virtual time, and evaluations in them
TARGET = 0.25  # error on held-out digits
SKEW = 0.1  # concentration of the Dirichlet distribution
STEP, VARIES = 0.5, 0.3  # s: median time of a local step on a device of speed 1, and its sigma
LATENCY, UPLOAD, DOWNLOAD = 0.2, 5e3, 1e5  # s, and bytes/s; a model has 9,640 bytes
SPREAD = 1.0  # sigma of speeds and of uplinks
ONLINE, OFFLINE = 60.0, 30.0  # s: mean time for which a client stays, and for which it is away


@dataclass(frozen=True)
class Case:
    """A case of the tables.

    Args:
        about: in words.
        skewed: True if clients have different classes.
        devices: `alike`; `mixed`: speeds have nothing to do with data; `sorted`: the slowest have most of the last digits.
        sessions: True if clients come and go.
    """

    about: str
    skewed: bool
    devices: str
    sessions: bool = False

    def settings(self) -> dict[str, Any]:
        """Return what all runs of the case share, as a scenario has it."""
        return {
            "task": {
                "data": Owned(clients=CLIENTS, concentration=SKEW if self.skewed else 0.0),
                "model": {"name": "mlp", "hidden": [32]},
                "batch_size": 8,
                "division": "by-owner",
            },
            "cluster": self._cluster(),
            "stop": {"seconds": BUDGET},
            "evaluate": {"points": LOOKS, "target_error": TARGET},
        }

    def _cluster(self) -> dict[str, Any]:
        cluster = {
            "workers": CLIENTS,
            "compute": {"name": "lognormal", "median": STEP, "sigma": VARIES},
            "network": {"latency": {"name": "lognormal", "median": LATENCY, "sigma": 0.5}, "bandwidth": DOWNLOAD},
            "devices": {"kinds": kinds(self.devices), "assignment": "in-order"},
        }
        if self.sessions:
            away = {"name": "exponential", "scale": OFFLINE}
            cluster["faults"] = [{"name": "crashes", "mean_up": ONLINE, "away": away}]
        return cluster


def kinds(devices: str) -> list[dict[str, float]]:
    """Return the device of each client: speed, and bandwidth of its uplink, bytes/s. A slow device has a slow uplink.

    Args:
        devices: `alike`, `mixed` or `sorted`.
    """
    if devices == "alike":
        return [{"speed": 1.0, "upload": UPLOAD}] * CLIENTS
    factors = np.exp(SPREAD * stats.norm.ppf((np.arange(CLIENTS) + 0.5) / CLIENTS))[::-1]
    if devices == "mixed":
        factors = factors[np.random.default_rng(0).permutation(CLIENTS)]
    return [{"speed": float(f"{each:.3g}"), "upload": float(f"{UPLOAD * each:.3g}")} for each in factors]


CASES = {
    "even": Case("even data, devices alike", False, "alike"),
    "skewed": Case("skewed data, devices alike", True, "alike"),
    "devices": Case("skewed data, devices differ", True, "mixed"),
    "slow-differ": Case("slow devices have the last digits", True, "sorted"),
    "sessions": Case("devices differ, clients come and go", True, "mixed", sessions=True),
}
