"""The result of an experiment: tables, and a picture of each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import pandas as pd

from fred.outcomes.paired import compared
from fred.outcomes.tables import Tables
from fred.results.b_staleness import b_staleness, by_staleness
from fred.views.view import View

if TYPE_CHECKING:  # without pictures matplotlib is not needed
    from fred.views.figures import Picture


@dataclass(frozen=True)
class Result(Tables):
    """The result of a scenario: all runs, each with every seed; in memory, or in a folder from which they are read on demand.

    Args:
        scenario: the runs and seeds.
        outcomes: outcome of each run with each seed.
        reused: number of cached outcomes, which were not computed again.
        recomputed: reasons for computing cached outcomes again, a sentence each.

    `fred.run` and `fred.load_result` return one. Tables are pandas data frames. Pictures are matplotlib figures, which
    notebooks show; `picture.save(path)` writes them.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    ...     stop={"updates": 4},
    ...     runs={name: {"algorithm": {"name": name, "learning_rate": 0.1}} for name in ("asgd", "ssgd")},
    ... )
    >>> result = fred.run(scenario)
    >>> result
    <Result of 2 runs with seeds 0>
    >>> result.summary[["name", "updates", "throughput", "staleness_mean"]]
       name  updates  throughput  staleness_mean
    0  asgd        4         4.0            0.75
    1  ssgd        4         4.0            0.00
    >>> result.schedule("asgd")[["time_ns", "verb", "worker", "timestamp", "staleness"]].head(4)
         time_ns  verb  worker  timestamp  staleness
    0          0  PULL       0          0          0
    1          0  PULL       1          0          0
    2  500000000  PUSH       0          0          0
    3  500000000  PULL       0          1          0
    >>> sorted(result.pictures())
    ['staleness', 'throughput', 'timeline', 'workers-time']
    """

    reused: int = 0  # cached outcomes, which were not computed again
    recomputed: tuple[str, ...] = ()  # reasons for computing cached outcomes again

    def __repr__(self) -> str:
        reported = f", reported {', '.join(map(str, self.scenario.report_seeds))}" if self.scenario.report_seeds else ""
        return f"<Result of {len(self.scenario.runs)} runs with seeds {', '.join(map(str, self.scenario.seeds))}{reported}>"

    @property
    def paired(self) -> pd.DataFrame:
        """Compare each run with the baseline (the scenario's, or the first), seed by seed; for sweeps, the best points.

        Columns: run, baseline, quantity (loss, error, gradient_norm, to_target, throughput), way (difference or ratio), mean,
        low and high (95 % interval, with at least 5 seeds), least and largest (over the seeds), seeds, missing, variance_saved
        (by pairing).

        >>> import fred
        >>> scenario = fred.scenario(
        ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
        ...     stop={"updates": 4},
        ...     seeds=[1, 2, 3, 4, 5],
        ...     runs={
        ...         "two": {"algorithm": {"name": "ssgd", "learning_rate": 0.1}},
        ...         "four": {"algorithm": {"name": "ssgd", "learning_rate": 0.1}, "cluster": {"workers": 4}},
        ...     },
        ... )
        >>> fred.run(scenario).paired[["run", "baseline", "quantity", "way", "mean", "low", "high", "seeds"]]
            run baseline    quantity    way  mean  low  high  seeds
        0  four      two  throughput  ratio   2.0  2.0   2.0      5
        """
        return compared(self)

    def b_staleness(self, run: str, seed: int | None = None, every: int = 1) -> pd.DataFrame:
        """Return how far gradients of one run are from those at the current parameters when they are used; runs it again.

        Args:
            run: its name.
            seed: one of the scenario's; default: the first.
            every: only every N-th gradient is evaluated, at the cost of two more gradients.

        Columns: row (of the schedule), worker, staleness (changes), b_staleness; statistic, if the algorithm has one.
        Raises FredError for an unknown run, and for one without a task.
        """
        return b_staleness(self.outcome(run, seed), every)

    def plot_loss(self, against: Sequence[str] = ("updates", "seconds")) -> "Picture":
        """Plot the loss against updates and virtual time, with the band of seeds.

        For each run the mean over its seeds is a line, and the range of its seeds is shaded; a target common to all runs is
        dotted. Raises FredError if no run has a task.

        Args:
            against: `updates`, `gradients`, `seconds`, a panel for each.
        """
        return _pictures().learning(self, "loss", View(against=tuple(against)))

    def plot_error(self, against: Sequence[str] = ("updates", "seconds")) -> "Picture":
        """Plot the error against updates and virtual time, with the band of seeds, as `plot_loss` does for the loss.

        Args:
            against: `updates`, `gradients`, `seconds`, a panel for each.

        Raises FredError if no run has a task.
        """
        return _pictures().learning(self, "error", View(against=tuple(against)))

    def plot_gradient_norm(self, against: Sequence[str] = ("updates", "seconds")) -> "Picture":
        """Plot the gradient norm against updates and virtual time, as `plot_loss` does for the loss.

        Args:
            against: `updates`, `gradients`, `seconds`, a panel for each.

        Raises FredError if it was not measured.
        """
        return _pictures().learning(self, "gradient_norm", View(against=tuple(against)))

    def plot_disagreement(self) -> "Picture":
        """Plot the distance of workers' own models from their mean. Raises FredError if no run has such models."""
        return _pictures().of_replicas(self, "disagreement")

    def plot_replicas_error(self) -> "Picture":
        """Plot the mean error of workers' own models. Raises FredError if no run has such models."""
        return _pictures().of_replicas(self, "replicas_error")

    def plot_paired(self) -> "Picture":
        """Plot each run's difference from (or ratio to) the baseline, seed by seed. Raises FredError if there is no other run.

        A dot is the mean over the seeds; a thick line its 95 % interval, with at least 5 seeds; a thin line their range.
        """
        return _pictures().paired(self)

    def plot_traffic(self) -> "Picture":
        """Plot the bytes sent in each run, as means over the seeds.

        A bar for each run, in MB: from servers to workers, from workers to servers, and between workers.
        """
        return _pictures().traffic(self)

    def plot_copies(self) -> "Picture":
        """Plot the copies pushed and fetched, for the first seed. Raises FredError if no run has a server.

        Each gradient could have been pushed once, and its parameters fetched once: the dotted line is this maximum.
        """
        return _pictures().sent_copies(self)

    def plot_throughput(self) -> "Picture":
        """Plot gradients used per virtual second: mean and range of the seeds. Raises FredError if no run has a clock."""
        return _pictures().throughput(self)

    def plot_pace(self) -> "Picture":
        """Plot gradients per second over time: mean and range of the seeds. Raises FredError if no run has a clock."""
        return _pictures().pace(self)

    def plot_workers_time(self) -> "Picture":
        """Plot the shares of workers' time in each run, as means over the seeds. Raises FredError if no run has a clock.

        A bar for each run, in % of all workers' time: computing, wasted, on the network, waiting, away, as in `fred.spans`.
        """
        return _pictures().workers_time(self)

    def plot_staleness(self) -> "Picture":
        """Plot the staleness of gradients that took part in updates, all seeds together.

        A histogram for each timing, in updates. Runs with the same timing (equal schedules) share a panel; runs without stale
        gradients are only named.
        """
        return _pictures().stale_gradients(self)

    def plot_b_staleness(self, every: int = 1) -> "Picture":
        """Plot the mean B-staleness of gradients against their staleness, for the first seed; runs are computed again.

        Args:
            every: only every N-th gradient is evaluated.

        Larger dots: more gradients had that staleness. Raises FredError for runs without a task.
        """
        means = {name: by_staleness(self.b_staleness(name, every=every)) for name in self.scenario.runs}
        return _pictures().curves.b_staleness(means)

    def plot_timeline(
        self, begin: float | None = None, end: float | None = None, workers: Sequence[int] | None = None
    ) -> "Picture":
        """Plot each worker's activities at the start of each run, or shortly before the first fault, for the first seed.

        A panel for each timing, a line for each worker (at most 16, evenly spaced), against virtual time in s; ticks on top are
        updates.

        Args:
            begin: virtual time, s; default: the start, or shortly before the first fault of all runs.
            end: s; default: the time in which a typical worker computes six gradients.
            workers: their numbers, in the order shown.

        Raises FredError for unknown workers or times outside all runs, and if no run has a clock.
        """
        view = View(begin=begin, end=end, workers=None if workers is None else tuple(workers))
        return _pictures().timeline_of(self, view)

    def plot_sweep(self) -> "Picture":
        """Plot the criterion at every point of a sweep, a line for each run. Raises FredError without a sweep.

        The horizontal axis is the first swept key; each combination of the others has a panel. A star is a run's best point.
        """
        return _pictures().sweep(self)

    def plot_sweep_timing(self) -> "Picture":
        """Plot time, throughput and waiting at every point of a sweep, a line per run. Raises FredError without a sweep."""
        return _pictures().sweep_timing(self)

    def pictures(self, view: View | None = None) -> "dict[str, Callable[[], Picture]]":
        """Return all pictures of these runs by name, as functions that draw them; for sweeps, also of the best points alone.

        Names are those of the files under `figures/` in a result folder.

        Args:
            view: what the pictures show; default: the same as in the folder.
        """
        return _pictures().drawable(self, view)


def _pictures() -> ModuleType:
    """Import the drawing functions, only when needed: matplotlib takes a third of a second."""
    from fred.views import pictures

    return pictures
