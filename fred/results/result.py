"""What an experiment came to, as its user has it: tables, and a picture of each."""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from fred.outcomes.tables import Tables
from fred.results.b_staleness import b_staleness, by_staleness
from fred.views import figures, pictures
from fred.views.figures import Picture


@dataclass(frozen=True)
class Result(Tables):
    """All runs of a scenario, each with every seed: in memory, or in a folder from which they are read when they are used."""

    kept: int = 0  # outcomes that were there before, and were not computed again
    anew: tuple[str, ...] = ()  # why others that were there were computed again

    def __repr__(self) -> str:
        return f"<Result of {len(self.scenario.runs)} runs with seeds {', '.join(map(str, self.scenario.seeds))}>"

    def b_staleness(self, run: str, seed: int | None = None, every: int = 1) -> pd.DataFrame:
        """How far every so many-th gradient of one run is from what it would be at the parameters it meets; computed anew."""
        return b_staleness(self.outcome(run, seed), every)

    def plot_loss(self) -> Picture:
        """Loss against updates and against virtual time, with the band of seeds."""
        return pictures.learning(self, "loss")

    def plot_error(self) -> Picture:
        """Error against updates and against virtual time, with the band of seeds."""
        return pictures.learning(self, "error")

    def plot_disagreement(self) -> Picture:
        """How far workers' own models are from their mean. Raises FredError where no run has such models."""
        return pictures.of_replicas(self, "disagreement")

    def plot_replicas_error(self) -> Picture:
        """The mean of the errors of workers' own models. Raises FredError where no run has such models."""
        return pictures.of_replicas(self, "replicas_error")

    def plot_traffic(self) -> Picture:
        """What was sent each way in each run, mean over the seeds."""
        return pictures.traffic(self)

    def plot_copies(self) -> Picture:
        """What was pushed and fetched of what could have been, with the first seed. Raises FredError where no server is."""
        return pictures.sent_copies(self)

    def plot_workers_time(self) -> Picture:
        """Where the workers' time went in each run, mean over the seeds. Raises FredError where no run has a clock."""
        return pictures.workers_time(self)

    def plot_staleness(self) -> Picture:
        """How stale the gradients were that took part in updates, all seeds together."""
        return pictures.stale_gradients(self)

    def plot_b_staleness(self, every: int = 1) -> Picture:
        """The mean B-staleness of gradients of each staleness, with the first seed; the runs are computed anew."""
        means = {name: by_staleness(self.b_staleness(name, every=every)) for name in self.scenario.runs}
        return figures.b_staleness(means)

    def plot_timeline(self) -> Picture:
        """What each worker did at the start of each run, or shortly before the first fault of all runs, with the first seed."""
        return pictures.first_moments(self)

    def plot_sweep(self) -> Picture:
        """The criterion at every point, a line for each run. Raises FredError where nothing was swept."""
        return pictures.sweep(self)

    def plot_sweep_timing(self) -> Picture:
        """Time, throughput and waiting at every point, a line for each run. Raises FredError where nothing was swept."""
        return pictures.sweep_timing(self)

    def pictures(self) -> dict[str, Callable[[], Picture]]:
        """What there is to draw of these runs, by name; of a sweep's, all together and the best ones."""
        return pictures.drawable(self)
