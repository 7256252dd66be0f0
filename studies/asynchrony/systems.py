"""The systems, and the grids of their knobs."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from studies.asynchrony.cases import WORKERS
from studies.kit.tuning import Knobs, Settings

POINTS = 24  # of each system
_RATE = "learning_rate"
_FRESH, _NOISY, _STALE = (0.1, 1.9), (0.03, 1.9), (0.01, 0.8)  # least and largest rate; at 2 descent diverges on the quadratic
_FRESH_RATES, _STALE_RATES = 9, 12  # number of rates with each size
ROUNDS = ("sync", "backup-workers", "m-sync", "cutoff")  # wait for workers
STALE = ("asgd", "delay-adaptive", "ringmaster")  # use stale gradients, and wait for no particular worker
FIRST = "first-gradient"  # neither: m-sync with m = 1, which is Ringmaster with R = 1
FRESH = (*ROUNDS, "rennala", FIRST)  # use no stale gradient
FREE = ("rennala", FIRST, *STALE)  # wait for no particular worker
SYSTEMS = (*FRESH, *STALE)
IN_THEORY = ("sync", "m-sync", FIRST, "rennala", "ringmaster")  # measured with other numbers of workers
M_SYNC = ("sync", "m-sync", FIRST)  # m-synchronous SGD with m = n, some of them, and 1


@dataclass(frozen=True)
class System:
    """An algorithm, and the option of its protocol that is tuned.

    Args:
        algorithm: its name.
        protocol: options of its protocol.
        size: name of the option that is tuned along with the learning rate; empty if the rate is the only knob.
        rates: least and largest learning rate.
    """

    algorithm: str
    protocol: dict[str, Any] = field(default_factory=dict)
    size: str = ""
    rates: tuple[float, float] = _FRESH

    def knobs(self, workers: int) -> Knobs:
        """Return the grid: 24 learning rates alone, or fewer with each size.

        Args:
            workers: number of workers, in proportion to which sizes are.
        """
        if not self.size:
            return {_RATE: self._rates(POINTS)}
        number = _STALE_RATES if self.rates == _STALE else _FRESH_RATES
        return {_RATE: self._rates(number), self.size: _sizes(self.size, workers)}

    def _rates(self, number: int) -> list[float]:
        return [float(f"{rate:.3g}") for rate in np.geomspace(*self.rates, number)]

    def run(self, settings: Settings) -> dict[str, Any]:
        """Return the run with some settings, as a scenario has it.

        Args:
            settings: value of each knob.
        """
        algorithm = {"name": self.algorithm, _RATE: settings[_RATE]}
        protocol = self.protocol | {name: value for name, value in settings.items() if name != _RATE}
        return {"algorithm": algorithm} | ({"protocol": protocol} if protocol else {})


def system(name: str, workers: int = WORKERS) -> System:
    """Return a system by its name.

    Args:
        name: one of SYSTEMS.
        workers: number of workers.
    """
    return {
        "sync": System("ssgd"),
        "backup-workers": System("ssgd", size="backup_workers"),
        "m-sync": System("m-sync", size="backup_workers"),
        "cutoff": System("cutoff-sgd", {"name": "cutoff", "rule": "hmm"}),
        "rennala": System("rennala", size="batch"),
        FIRST: System("m-sync", {"backup_workers": workers - 1}, rates=_NOISY),
        "asgd": System("asgd", rates=_STALE),
        "delay-adaptive": System("delay-adaptive", rates=_STALE),
        "ringmaster": System("ringmaster", size="threshold", rates=_STALE),
    }[name]


def _sizes(name: str, workers: int) -> list[int]:
    """Return powers of two, from 2 to 4 n; of m from 2 to n / 2, then 3/4 and 7/8 of n."""
    if name != "backup_workers":
        return _powers(4 * workers)
    waited_for = sorted({*_powers(workers // 2), 3 * workers // 4, 7 * workers // 8})
    return [workers - each for each in waited_for]


def _powers(most: int) -> list[int]:
    return [2**power for power in range(1, most.bit_length())]
