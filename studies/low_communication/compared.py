"""Systems compared on one case: over the seeds, with intervals."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base.intervals import Verdict
from fred.learning.data.language import Bigrams
from studies.difference import Difference
from studies.low_communication.cases import BIGRAMS, MEGABITS, NARROW
from studies.low_communication.systems import SYSTEMS

MARGIN = 0.01  # nats: a loss that is higher by less is as good
KINDS = (
    ("alike", "tuned"),
    ("one slow", "tuned"),
    ("one slow", "unforeseen"),
)  # of cases: workers, and how settings were chosen


class Key(NamedTuple):
    """A case of the tables.

    Args:
        megabits: per second, of each worker's link.
        workers: `alike` or `one slow`.
        way: how settings were chosen: `tuned`, `unforeseen` or `one setting`.
    """

    megabits: int
    workers: str
    way: str

    @property
    def said(self) -> str:
        """Return the workers and the way in words; where all are alike, settings are tuned there."""
        return self.workers if self.way == "tuned" and self.workers == "alike" else f"{self.workers}, {self.way}"


def keys(kinds: Iterable[tuple[str, str]] = KINDS, megabits: Iterable[int] = MEGABITS) -> Iterator[Key]:
    """Yield the cases, kind by kind.

    Args:
        kinds: workers and ways.
        megabits: of links.
    """
    widths = tuple(megabits)
    yield from (Key(width, *kind) for kind in kinds for width in widths)


@lru_cache
def least(seed: int) -> float:
    """Return the least possible loss on the bigrams, nats.

    Args:
        seed: of the run.
    """
    data = {key: value for key, value in BIGRAMS["data"].items() if key != "name"}
    return Bigrams(**data).entropy(seed)


def above(losses: pd.DataFrame) -> pd.DataFrame:
    """Return the losses, less the least possible one on bigrams; on the grammar that is not known, and they stay as they are.

    Args:
        losses: one row for each case, system, seed and time.
    """
    lowest = np.where(losses["megabits"] == NARROW, 0.0, losses["seed"].map(least))
    return losses.assign(loss=losses["loss"] - lowest, mean_loss=losses["mean_loss"] - lowest)


def final(losses: pd.DataFrame) -> pd.DataFrame:
    """Return the losses at the end of each run, indexed by case and system, in the order of seeds.

    Args:
        losses: one row for each case, system, seed and time.
    """
    by_run = losses.sort_values("seconds").groupby([*Key._fields, "system", "seed"], sort=True).last()
    return by_run.reset_index("seed").sort_index(kind="stable")


def ends(losses: pd.DataFrame, key: Key, system: str, column: str = "loss") -> NDArray[np.float64]:
    """Return a system's losses at the end of a case's runs [seeds].

    Args:
        losses: as `final` returns them.
        key: the case.
        system: which.
        column: `loss`, or `mean_loss` of the mean of all models.
    """
    return np.asarray(losses.loc[(*key, system), column], float)


def against(losses: pd.DataFrame, system: str, other: str, cases: Iterable[Key], bound: float = 0.0) -> dict[Key, Difference]:
    """Return one system's loss less another's in each case, at the end; the cases are a family.

    Args:
        losses: as `final` returns them.
        system: the one.
        other: the other.
        cases: where.
        bound: what the differences are compared with.
    """
    return Difference.family({key: ends(losses, key, system) - ends(losses, key, other) for key in cases}, [bound])


def best(losses: pd.DataFrame, key: Key) -> str:
    """Return the system with the least mean loss in a case.

    Args:
        losses: as `final` returns them.
        key: the case.
    """
    return min(SYSTEMS, key=lambda system: float(np.nan_to_num(ends(losses, key, system), nan=np.inf).mean()))


def beside(losses: pd.DataFrame, key: Key) -> dict[str, Verdict]:
    """Return whether each other system is as good as the best one of a case, within the margin: a family.

    Args:
        losses: as `final` returns them.
        key: the case.
    """
    first = best(losses, key)
    others = {each: ends(losses, key, each) - ends(losses, key, first) for each in SYSTEMS if each != first}
    return {system: found.below(MARGIN) for system, found in Difference.family(others, [MARGIN]).items()}
