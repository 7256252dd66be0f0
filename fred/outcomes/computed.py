"""Outcomes in memory: derived values are computed when first used, once."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from fred.outcomes.measures import run_times
from fred.outcomes.model_of_run import ModelOfRun
from fred.outcomes.outcome import Named, digest
from fred.schedule.schedule import Schedule
from fred.specification.shape import Run
from fred.specification.summary import summarise


@dataclass(frozen=True, repr=False)
class Computed(ModelOfRun):
    """The outcome of one run with one seed, in memory: an `Outcome`."""

    name: str
    seed: int
    run: Run
    schedule: Schedule
    metrics: pd.DataFrame
    initial: Named
    final: Named
    data_digest: str | None

    @property
    def has_clock(self) -> bool:
        """Return True if virtual time passes in the run."""
        return self.run.protocol.has_clock

    @cached_property
    def schedule_digest(self) -> str:
        """Return the SHA-256 of the schedule."""
        return self.schedule.digest()

    @cached_property
    def params_digest(self) -> str | None:
        """Return the SHA-256 of the final parameters."""
        return digest(self.final)

    @cached_property
    def run_times(self) -> pd.DataFrame:
        """Return the compute time of each gradient."""
        return run_times(self.schedule, self.run.cluster)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Return the summary: all results as numbers."""
        return summarise(self)

    def renamed(self, name: str) -> "Computed":
        """Return the same outcome under another name."""
        return replace(self, name=name)
