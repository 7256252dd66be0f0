"""An outcome in memory: what follows from it is computed when it is first asked for, and once."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from fred.outcomes.measures import run_times, summarise
from fred.outcomes.outcome import Named, digest
from fred.schedule.schedule import Schedule
from fred.specification.shape import Run


@dataclass(frozen=True)
class Computed:
    """What one run with one seed came to: an `Outcome`."""

    name: str
    seed: int
    run: Run
    schedule: Schedule
    metrics: pd.DataFrame
    initial: Named
    final: Named
    data_digest: str | None

    @cached_property
    def schedule_digest(self) -> str:
        """SHA-256 of the schedule."""
        return self.schedule.digest()

    @cached_property
    def params_digest(self) -> str | None:
        """SHA-256 of the final parameters."""
        return digest(self.final)

    @cached_property
    def run_times(self) -> pd.DataFrame:
        """How long each gradient took."""
        return run_times(self.schedule, self.run.cluster)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """All of it in numbers."""
        return summarise(self)

    def renamed(self, name: str) -> "Computed":
        """The same under another name."""
        return replace(self, name=name)
