"""The cases: how long an allreduce takes, and whether a worker is slow. A run holds twenty rounds of every candidate."""

from dataclasses import dataclass
from typing import Any

WORKERS, SLOWNESS, ROUNDS = 4, 4, 20  # of which one may be so many times as slow; rounds in a run, at least
TRANSFERS = (32, 4, 1)  # allreduces of the whole model last so many gradients of 1 s
LONGEST = 16  # gradients or seconds between two synchronizations, at most
VOCABULARY = 64
MODEL_BYTES = 4 * VOCABULARY**2
TASK: dict[str, Any] = {
    "data": {"name": "bigrams", "vocabulary": VOCABULARY, "context": 16, "examples": 30000, "evaluation": 400},
    "model": "token-scores",
    "batch_size": 2,
}


@dataclass(frozen=True)
class Case:
    """One cluster.

    Args:
        transfer: gradients in the time of an allreduce of the whole model.
        slow: True if one worker is four times as slow.
    """

    transfer: int
    slow: bool = False

    @property
    def name(self) -> str:
        """Return the name for files and tables."""
        return f"{self.transfer}{', one slow' * self.slow}"

    @property
    def seconds(self) -> int:
        """Return the length of a run, s: twenty of the longest rounds, whether by ring or by way of a server.

        A ring sends 3/2 of the model over each link; to a server and back it is the model twice, which takes 4/3 of the time.
        Rounds that end by time end with the gradient of the slow worker.
        """
        return ROUNDS * (LONGEST + SLOWNESS + -(-4 * self.transfer // 3))

    @property
    def settings(self) -> dict[str, Any]:
        """Return what all runs of the case share, as a scenario has it."""
        bandwidth = 2 * (WORKERS - 1) / WORKERS * MODEL_BYTES / self.transfer
        cluster = {
            "workers": WORKERS,
            "speeds": [1.0] * (WORKERS - 1) + [1 / SLOWNESS if self.slow else 1.0],
            "compute": {"name": "lognormal", "median": 1.0, "sigma": 0.1},
            "network": {"bandwidth": bandwidth},
        }
        return {"task": TASK, "cluster": cluster, "stop": {"seconds": float(self.seconds)}, "evaluate": {"points": 2}}

    @property
    def periods(self) -> tuple[int, ...]:
        """Return the numbers of local steps that twenty rounds leave time for, if all wait for the slow worker."""
        longest = LONGEST // SLOWNESS if self.slow else LONGEST
        return tuple(2**power for power in range(1, longest.bit_length()))


CASES = {case.name: case for case in (Case(transfer, slow) for slow in (False, True) for transfer in TRANSFERS)}
