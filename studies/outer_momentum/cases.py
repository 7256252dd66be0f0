"""The cases: a base point, from which one factor at a time is changed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

SECONDS = 0.25  # of every gradient
MOMENTA = (0.0, 0.5, 0.9)
STEPS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6)  # effective outer steps, in pseudo-gradients
PUBLISHED = 0.7, 0.9  # outer rate and Nesterov momentum of DiLoCo
TUNING, REPORTED = (1, 2, 3), (11, 12, 13, 14, 15)  # seeds

TASKS: dict[str, dict[str, Any]] = {
    "bigrams": {
        "data": {"name": "bigrams", "vocabulary": 128, "context": 16, "examples": 30000, "evaluation": 200},
        "model": "token-scores",
        "batch_size": 4,
    },
    "digits": {"data": "digits", "model": {"name": "mlp", "hidden": [32]}, "batch_size": 8},
    "grammar": {
        "data": {"name": "grammar", "context": 16, "examples": 20000, "evaluation": 200},
        "model": {"name": "transformer", "layers": 1, "width": 32, "heads": 2},
        "batch_size": 4,
    },
}
RATES = {  # by task and inner optimizer: the least and the largest learning rate that may be tried, seven in all
    ("bigrams", "adamw"): (0.001, 1.0),
    ("bigrams", "sgd"): (1.0, 1000.0),
    ("bigrams", "muon"): (0.003, 3.0),
    ("digits", "adamw"): (0.0003, 0.3),
    ("grammar", "adamw"): (0.0003, 0.3),
}


@dataclass(frozen=True)
class Case:
    """One setting of everything but rates and momentum.

    Args:
        factor: what differs from the base point.
        system: algorithm.
        period: H, local steps between two outer steps.
        workers: number of workers.
        steps: local steps of each worker in all.
        inner: inner optimizer.
        task: name of the task.
    """

    factor: str = "base"
    system: str = "diloco"
    period: int = 32
    workers: int = 8
    steps: int = 512
    inner: str = "adamw"
    task: str = "bigrams"

    @property
    def name(self) -> str:
        """Return the name for files and tables."""
        return f"{self.system}-{self.task}-{self.inner}-H{self.period}-n{self.workers}-{self.steps}"

    @property
    def settings(self) -> dict[str, Any]:
        """Return what all runs of the case share, as a scenario has it."""
        law = {"name": "lognormal", "median": SECONDS, "sigma": 0.1}
        compute = law if self.system == "delayed-nesterov" else {"name": "constant", "seconds": SECONDS}
        return {
            "task": TASKS[self.task],
            "cluster": {"workers": self.workers, "compute": compute},
            "stop": {"seconds": self.steps * SECONDS + 0.01},
            "evaluate": {"points": 2},
        }

    @property
    def protocol(self) -> dict[str, Any]:
        """Return the options of the system's protocol."""
        return {"period": self.period} | ({"fragments": 4} if self.system == "streaming-diloco" else {})

    @property
    def rate_key(self) -> str:
        """Return the name of the system's outer rate."""
        return {"noloco": "block_rate", "slowmo": "slow_rate"}.get(self.system, "outer_rate")

    def algorithm(self, momentum: float) -> dict[str, Any]:
        """Return the algorithm with this outer momentum, but without rates.

        Args:
            momentum: mu.
        """
        options: dict[str, Any] = {"name": self.system, "optimizer": self.inner}
        if self.system in ("diloco", "streaming-diloco"):
            return options | {"outer": {"name": "sgd", "momentum": momentum, "nesterov": True}}
        key = {"noloco": "block_momentum", "slowmo": "slow_momentum"}.get(self.system, "momentum")
        return options | {key: momentum}

    def rate(self, step: float, momentum: float, correlation: float) -> float:
        """Return the outer rate with which momentum has this effective step.

        Momentum adds earlier pseudo-gradients, whose correlation with the newest one is rho^k at distance k. Along the newest
        one, all of them make eta (1 + mu / (1 - mu rho)) with Nesterov's momentum, and eta / (1 - mu rho) without.

        Args:
            step: effective step, in pseudo-gradients.
            momentum: mu.
            correlation: rho, of successive pseudo-gradients.
        """
        gain = 1 / (1 - momentum * correlation)
        return float(f"{step / (gain if self.system in ('noloco', 'slowmo') else 1 + momentum * gain):.4g}")


def cases() -> Iterator[Case]:
    """Yield the base point, and each case that differs from it in one factor."""
    yield Case()
    yield from (Case("H", period=period) for period in (4, 16, 64))
    yield from (Case("workers", workers=workers) for workers in (2, 32))
    yield from (Case("length", steps=steps) for steps in (128, 2048))
    yield Case("H and length", period=256, steps=2048)
    yield from (Case("inner", inner=inner) for inner in ("sgd", "muon"))
    yield from (Case("system", system=system) for system in ("streaming-diloco", "noloco", "slowmo", "delayed-nesterov"))
    yield from (Case("task", task=task) for task in ("digits", "grammar"))
