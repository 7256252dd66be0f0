"""The cases: a base point, from which one factor at a time is changed."""

from dataclasses import dataclass
from typing import Any

SECONDS = 0.25  # of every gradient
MOMENTA = (0.0, 0.5, 0.9)
STEPS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6)  # effective outer steps, in pseudo-gradients
PUBLISHED = 0.7, 0.9  # outer rate and Nesterov momentum of DiLoCo
Grid = dict[float, float]  # outer rates, by effective step

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
RATES = {  # by task and inner optimizer: the learning rates that may be tried
    key: {"first": first, "last": last, "number": 7}
    for key, (first, last) in {
        ("bigrams", "adamw"): (0.001, 1.0),
        ("bigrams", "sgd"): (1.0, 1000.0),
        ("bigrams", "muon"): (0.003, 3.0),
        ("digits", "adamw"): (0.0003, 0.3),
        ("grammar", "adamw"): (0.0003, 0.3),
    }.items()
}


@dataclass(frozen=True)
class Case:
    """One setting of everything but rates and momentum.

    Args:
        factor: what differs from the base point.
        system: algorithm.
        task: name of the task.
        inner: inner optimizer.
        period: H, local steps between two outer steps.
        workers: number of workers.
        steps: local steps of each worker in all.
    """

    factor: str = "base"
    system: str = "diloco"
    task: str = "bigrams"
    inner: str = "adamw"
    period: int = 32
    workers: int = 8
    steps: int = 512

    @property
    def name(self) -> str:
        """Return the name for files and tables."""
        return f"{self.system}-{self.task}-{self.inner}-H{self.period}-n{self.workers}-{self.steps}"

    @property
    def label(self) -> str:
        """Return the name in tables and figures: what differs from the base point.

        >>> Case("H", period=64).label, Case().label
        ('H = 64', 'base')
        """
        words = {
            "H": f"H = {self.period}",
            "workers": f"{self.workers} workers",
            "length": f"{self.steps:,} steps",
            "H and length": f"H = {self.period}, {self.steps:,} steps",
            "inner": f"inner {self.inner}",
            "system": self.system,
            "task": self.task,
        }
        return words.get(self.factor, self.factor)

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

    def grid(self, momentum: float, correlation: float) -> Grid:
        """Return the outer rates with which momentum has each effective step.

        Momentum adds earlier pseudo-gradients, whose correlation with the newest one is rho^k at distance k. Along the newest
        one, all of them make eta (1 + mu / (1 - mu rho)) with Nesterov's momentum, and eta / (1 - mu rho) without.

        Args:
            momentum: mu.
            correlation: rho, of successive pseudo-gradients.
        """
        gain = 1 / (1 - momentum * correlation)
        total = gain if self.system in ("noloco", "slowmo") else 1 + momentum * gain
        return {step: float(f"{step / total:.4g}") for step in STEPS}


CASES = {
    case.name: case
    for case in (
        Case(),
        *(Case("H", period=period) for period in (4, 16, 64)),
        *(Case("workers", workers=workers) for workers in (2, 32)),
        *(Case("length", steps=steps) for steps in (128, 2048)),
        Case("H and length", period=256, steps=2048),
        *(Case("inner", inner=inner) for inner in ("sgd", "muon")),
        *(Case("system", system=system) for system in ("streaming-diloco", "noloco", "slowmo", "delayed-nesterov")),
        *(Case("task", task=task) for task in ("digits", "grammar")),
    )
}

_ROUND_RATES = {"adamw": (0.0003, 0.001, 0.003, 0.01, 0.03), "muon": (0.001, 0.003, 0.01, 0.03, 0.1)}
_PERIODS = {"digits": (20, 100, 300), "grammar": (10, 40)}
_GRAMMAR = {
    "data": {"name": "grammar", "context": 31, "examples": 2000, "evaluation": 200},
    "model": {"name": "transformer", "layers": 1, "width": 32, "heads": 4},
}


PAIRS = {  # systems with momentum and without, by task and words
    **{(task, f"H = {h}"): (f"diloco {h}", f"local {h}") for task, periods in _PERIODS.items() for h in periods},
    **{(task, f"one worker, {name}"): (f"snoo {name}", f"{name} each step") for name in _ROUND_RATES for task in _PERIODS},
}


def _round(task: str, system: str) -> tuple[dict[str, Any], tuple[float, ...]]:
    """Return a run, with FRED's outer rate and momentum of DiLoCo and SNOO, 0.7 and 0.9, or without; and inner rates to try."""
    batch, steps, workers = {"digits": (128, 600, 8), "grammar": (16, 160, 4)}[task]
    name, option = system.split(maxsplit=1)
    options: dict[str, tuple[str, str, str | int]] = {
        "diloco": ("diloco", "adamw", option),
        "local": ("local-sgd", "adamw", option),
        "snoo": ("snoo", option, _PERIODS[task][0]),
    }
    algorithm, inner, period = options.get(name, ("allreduce-sgd", name, 0))
    workers = 1 if name == "snoo" else workers
    run = {
        "task": (_GRAMMAR if task == "grammar" else TASKS[task]) | {"batch_size": batch // workers},
        "cluster": {"workers": workers, "compute": {"name": "lognormal", "median": 1.0, "sigma": 0.2}},
        "stop": {"gradients": steps * workers},
        "evaluate": {"points": 2},
        "algorithm": {"name": algorithm, "optimizer": inner},
    }
    return run | ({"protocol": {"period": int(period)}} if period else {}), _ROUND_RATES[inner]


ROUNDS = {(task, system): _round(task, system) for (task, _), systems in PAIRS.items() for system in systems}
