"""The cases: how wide links are, and whether a worker is slow; and closed forms of learners that fail."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WORKERS, PARAMETERS = 8, 128 * 128  # of the table of scores
TRANSFORMER = 15_006  # parameters of the transformer
STANDS_FOR = 70.4e6  # parameters of the model whose messages these stand for
NARROW = 50  # Mbit/s, of the links over which the transformer learns
MEGABITS = (NARROW, 230, 1000, 5000)  # per second, of each worker's link
SECONDS = {NARROW: 300.0, 230: 155.0, 1000: 115.0, 5000: 115.0}  # of a run, at each bandwidth
LOOKS = 20  # at the loss, in a reported run

BIGRAMS: dict[str, Any] = {
    "data": {"name": "bigrams", "vocabulary": 128, "context": 16, "examples": 30000, "evaluation": 200},
    "model": "token-scores",
    "batch_size": 4,
}
_GRAMMAR: dict[str, Any] = {
    "data": {"name": "grammar", "context": 16, "examples": 5000, "evaluation": 200},
    "model": {"name": "transformer", "layers": 1, "width": 32, "heads": 2},
    "batch_size": 4,
}
_ALIKE: dict[str, Any] = {"compute": {"name": "lognormal", "median": 0.25, "sigma": 0.1}}
_SLOW: dict[str, Any] = {
    "speeds": [*[1.0] * (WORKERS - 1), 0.25],
    "compute": {"name": "lognormal", "median": 0.25, "sigma": 0.5},
}

CHIPS, CHIP_UP, AWAY = 8, 240.0, 10.0  # s that a chip lasts, and that a learner is away, as in `goodput.yaml`
ALL_CHIPS, PERIOD, FRAGMENTS = 0.25, 16, 4  # s of a gradient on all of them; as there, too
GOODPUT_SECONDS, LATENCY, OVERLAP = 600.0, 0.02, 2  # of a run; s of a message; updates in which answers may come
LEARNERS = (1, 2, 4, 8)


def bandwidth(megabits: float, parameters: int) -> float:
    """Return the bytes per second at which a model's messages take as long as those of the model that it stands for.

    Args:
        megabits: per second, of the larger model's links.
        parameters: number of parameters of the small model.
    """
    return float(f"{megabits * 1e6 / 8 * parameters / STANDS_FOR:.4g}")


@dataclass(frozen=True)
class Case:
    """One cluster.

    Args:
        megabits: per second, of each worker's link.
        slow: whether one worker is four times as slow, and times vary more.
    """

    megabits: int
    slow: bool = False

    @property
    def name(self) -> str:
        """Return the name for files."""
        return f"{self.megabits}-{'slow' if self.slow else 'alike'}"

    @property
    def workers(self) -> str:
        """Return the words of tables for the workers' speeds."""
        return "one slow" if self.slow else "alike"

    @property
    def seconds(self) -> float:
        """Return the length of a run, s."""
        return SECONDS[self.megabits]

    @property
    def settings(self) -> dict[str, Any]:
        """Return what all runs of the case share, as a scenario has it."""
        task, parameters = (_GRAMMAR, TRANSFORMER) if self.megabits == NARROW else (BIGRAMS, PARAMETERS)
        links = {"latency": {"name": "constant", "seconds": LATENCY}, "bandwidth": bandwidth(self.megabits, parameters)}
        cluster = {"workers": WORKERS, "network": links} | (_SLOW if self.slow else _ALIKE)
        return {"task": task, "cluster": cluster, "stop": {"seconds": self.seconds}}


def cases(slow: bool) -> Iterator[Case]:
    """Yield the cases of all bandwidths; that of the transformer, which takes longest to compile, is the last.

    Args:
        slow: whether one worker is slow.
    """
    yield from (Case(megabits, slow) for megabits in (*MEGABITS[1:], NARROW))


def availability(learners: int) -> float:
    """Return the share of time in which a learner is available: none of its chips has failed.

    Args:
        learners: that share the chips.
    """
    lasts = CHIP_UP * learners / CHIPS
    return lasts / (lasts + AWAY)


def heard_without_failures(learners: int) -> float:
    """Return the share of all gradients that reach the server if no chip fails.

    A new fragment overwrites what its learner has done since the question; the run ends some time after the last question.

    Args:
        learners: that share the chips.
    """
    step = ALL_CHIPS * learners
    between = PERIOD * step
    overwritten = OVERLAP * step + LATENCY + 4 * PARAMETERS / FRAGMENTS / bandwidth(MEGABITS[-1], PARAMETERS)
    first = [(fragment + 1) * between / FRAGMENTS for fragment in range(FRAGMENTS)]
    unasked = sum((GOODPUT_SECONDS - each) % between for each in first) / FRAGMENTS
    return (1 - overwritten / between) * (1 - unasked / GOODPUT_SECONDS)


def heard(learners: int) -> float:
    """Return the share of the gradients made without failures that reach the server with them.

    A failure loses the gradients that a learner has made since the last request.

    Args:
        learners: that share the chips.
    """
    lasts, between = CHIP_UP * learners / CHIPS, PERIOD * ALL_CHIPS * learners
    kept = lasts / between * -math.expm1(-between / lasts)
    return availability(learners) * kept * heard_without_failures(learners)
