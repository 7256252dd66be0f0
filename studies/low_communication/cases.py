"""The cases: how wide links are, and whether somebody is slow; and what is known of learners that fail."""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fred
from fred.specification.loading import Scenario

HERE = Path(__file__).parent
WORKERS, PARAMETERS = 8, 128 * 128
STANDS_FOR = 70.4e6  # parameters of the model whose messages these stand for
MEGABITS = (50, 230, 1000, 5000)  # per second, of each worker's link
STRAGGLERS = {"speeds": [*[1.0] * (WORKERS - 1), 0.25], "compute": {"name": "lognormal", "median": 0.25, "sigma": 0.5}}

CHIPS, CHIP_UP, AWAY = 8, 240.0, 10.0  # s that a chip lasts, and that a learner is away, as in `goodput.yaml`
ALL_CHIPS, PERIOD, FRAGMENTS = 0.25, 16, 4  # s of a gradient on all of them; as there, too
GOODPUT_SECONDS, LATENCY, OVERLAP = 600.0, 0.02, 2  # of a run; s of a message; updates in which answers may come
LEARNERS = (1, 2, 4, 8)


def bandwidth(megabits: float) -> float:
    """Bytes per second at which this model takes as long as the one that it stands for does at `megabits` per second.

    Args:
        megabits: per second.
    """
    return float(f"{megabits * 1e6 / 8 * PARAMETERS / STANDS_FOR:.4g}")


@dataclass(frozen=True)
class Case:
    """One cluster.

    Args:
        megabits: per second, of each worker's link.
        stragglers: whether one worker is four times as slow, and times vary.
    """

    megabits: int
    stragglers: bool

    @property
    def name(self) -> str:
        """Return the name for files and tables."""
        return f"{self.megabits}-{'stragglers' if self.stragglers else 'alike'}"

    def scenario(self, settings: Collection[str] = ()) -> Scenario:
        """All systems on this case.

        Args:
            settings: points that are wanted, by name; absent: all.
        """
        changes: dict[str, Any] = {"cluster.network.bandwidth": bandwidth(self.megabits)}
        if self.stragglers:
            changes |= {f"cluster.{key}": value for key, value in STRAGGLERS.items()}
        whole = fred.load(HERE / "scenario.yaml").replace(changes)
        wanted = settings or whole.points
        parts = {key: {name: getattr(whole, key)[name] for name in wanted} for key in ("runs", "points")}
        return whole.model_copy(update=parts)


def cases() -> Iterator[Case]:
    """All of them; settings are chosen on the first half."""
    for stragglers in (False, True):
        yield from (Case(megabits, stragglers) for megabits in MEGABITS)


def availability(learners: int) -> float:
    """The share of time for which a learner of so many is there: as long as none of its chips has failed.

    Args:
        learners: that share the chips.
    """
    lasts = CHIP_UP * learners / CHIPS
    return lasts / (lasts + AWAY)


def heard_without_failures(learners: int) -> float:
    """Return the share of all gradients that the server hears of while nobody fails.

    A new fragment overwrites what its learner has done since the question; the run ends some time after the last question.

    Args:
        learners: that share the chips.
    """
    step = ALL_CHIPS * learners
    between = PERIOD * step
    overwritten = OVERLAP * step + LATENCY + 4 * PARAMETERS / FRAGMENTS / bandwidth(MEGABITS[-1])
    first = [(fragment + 1) * between / FRAGMENTS for fragment in range(FRAGMENTS)]
    unasked = sum((GOODPUT_SECONDS - each) % between for each in first) / FRAGMENTS
    return (1 - overwritten / between) * (1 - unasked / GOODPUT_SECONDS)


def heard(learners: int) -> float:
    """Return the share of what is made without failures that the server hears of with them.

    Nobody ever hears of what a learner has done between the last question and its failure.

    Args:
        learners: that share the chips.
    """
    lasts, between = CHIP_UP * learners / CHIPS, PERIOD * ALL_CHIPS * learners
    kept = lasts / between * -math.expm1(-between / lasts)
    return availability(learners) * kept * heard_without_failures(learners)
