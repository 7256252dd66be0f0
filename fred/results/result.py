"""What an experiment came to, as its user has it: tables, and a picture of each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import pandas as pd

from fred.outcomes.paired import compared
from fred.outcomes.tables import Tables
from fred.results.b_staleness import b_staleness, by_staleness
from fred.views.view import View

if TYPE_CHECKING:  # what is not drawn needs no matplotlib
    from fred.views.figures import Picture


@dataclass(frozen=True)
class Result(Tables):
    """All runs of a scenario, each with every seed: in memory, or in a folder from which they are read when they are used.

    Args:
        scenario: the runs and seeds.
        outcomes: what each run with each seed came to.
        kept: how many outcomes were there before, and were not computed again.
        anew: why others that were there were computed again, a sentence each.

    `fred.run` and `fred.load_result` give one. Tables are pandas data frames; pictures are matplotlib figures that notebooks
    show, and `picture.save(path)` writes.

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

    kept: int = 0  # outcomes that were there before, and were not computed again
    anew: tuple[str, ...] = ()  # why others that were there were computed again

    def __repr__(self) -> str:
        reported = f", reported {', '.join(map(str, self.scenario.report_seeds))}" if self.scenario.report_seeds else ""
        return f"<Result of {len(self.scenario.runs)} runs with seeds {', '.join(map(str, self.scenario.seeds))}{reported}>"

    @property
    def paired(self) -> pd.DataFrame:
        """Each run less the baseline (the scenario's, or the first), seed by seed; of a sweep the best points.

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
        """How far every so many-th gradient of one run is from what it would be at the parameters it meets; computed anew.

        Args:
            run: its name.
            seed: one of the scenario's; by default the first.
            every: of so many gradients one is looked at, which takes two more gradients.

        Columns: row (of the schedule), worker, staleness (changes), b_staleness; where the algorithm has one, statistic.
        Raises FredError for an unknown run, and for one without a task.
        """
        return b_staleness(self.outcome(run, seed), every)

    def plot_loss(self, against: Sequence[str] = ("updates", "seconds")) -> "Picture":
        """Loss against updates and against virtual time, with the band of seeds.

        Of each run the mean over its seeds is a line, and what lies between the least and the largest is shaded; a target that
        all runs share is dotted. Raises FredError where nothing was learned.

        Args:
            against: `updates`, `gradients`, `seconds`, a panel for each.
        """
        return _pictures().learning(self, "loss", View(against=tuple(against)))

    def plot_error(self, against: Sequence[str] = ("updates", "seconds")) -> "Picture":
        """Error against updates and against virtual time, with the band of seeds, as `plot_loss` has the loss.

        Args:
            against: `updates`, `gradients`, `seconds`, a panel for each.

        Raises FredError where nothing was learned.
        """
        return _pictures().learning(self, "error", View(against=tuple(against)))

    def plot_gradient_norm(self, against: Sequence[str] = ("updates", "seconds")) -> "Picture":
        """The gradient's norm against updates and against virtual time, as `plot_loss` has the loss.

        Args:
            against: `updates`, `gradients`, `seconds`, a panel for each.

        Raises FredError where it was not measured.
        """
        return _pictures().learning(self, "gradient_norm", View(against=tuple(against)))

    def plot_disagreement(self) -> "Picture":
        """How far workers' own models are from their mean. Raises FredError where no run has such models."""
        return _pictures().of_replicas(self, "disagreement")

    def plot_replicas_error(self) -> "Picture":
        """The mean of the errors of workers' own models. Raises FredError where no run has such models."""
        return _pictures().of_replicas(self, "replicas_error")

    def plot_paired(self) -> "Picture":
        """Each run less the baseline, or relative to it, seed by seed. Raises FredError where there is no other run.

        A dot is the mean over the seeds; thick: its 95 % interval, if there are at least 5 seeds; thin: their range.
        """
        return _pictures().paired(self)

    def plot_traffic(self) -> "Picture":
        """What was sent each way in each run, mean over the seeds.

        A bar for each run, in MB: what servers sent to workers, workers to servers, and workers to each other.
        """
        return _pictures().traffic(self)

    def plot_copies(self) -> "Picture":
        """What was pushed and fetched of what could have been, with the first seed. Raises FredError where no server is.

        Each gradient could have been pushed once and its parameters fetched once: the dotted line is all of that.
        """
        return _pictures().sent_copies(self)

    def plot_throughput(self) -> "Picture":
        """Gradients that were used per second of virtual time, mean and range of the seeds. Raises FredError if no clock is."""
        return _pictures().throughput(self)

    def plot_pace(self) -> "Picture":
        """Gradients per second in the course of time, mean and range of the seeds. Raises FredError if no run has a clock."""
        return _pictures().pace(self)

    def plot_workers_time(self) -> "Picture":
        """Where the workers' time went in each run, mean over the seeds. Raises FredError where no run has a clock.

        A bar for each run, in % of all workers' time: computing, wasted, on the network, waiting, away, as in `fred.spans`.
        """
        return _pictures().workers_time(self)

    def plot_staleness(self) -> "Picture":
        """How stale the gradients were that took part in updates, all seeds together.

        A histogram for each timing, in updates; runs that share one (the same schedules) share a panel, those of which no
        gradient is stale are only named.
        """
        return _pictures().stale_gradients(self)

    def plot_b_staleness(self, every: int = 1) -> "Picture":
        """The mean B-staleness of gradients of each staleness, with the first seed; the runs are computed anew.

        Args:
            every: of so many gradients one is looked at.

        Larger dots: more gradients had that staleness. Raises FredError for runs without a task.
        """
        means = {name: by_staleness(self.b_staleness(name, every=every)) for name in self.scenario.runs}
        return _pictures().curves.b_staleness(means)

    def plot_timeline(
        self, begin: float | None = None, end: float | None = None, workers: Sequence[int] | None = None
    ) -> "Picture":
        """What each worker did at the start of each run, or shortly before the first fault of all runs, with the first seed.

        A panel for each timing, a line for each worker (of more than 16 that many, evenly spaced), against virtual time in s;
        ticks on top are updates.

        Args:
            begin: virtual time, s; otherwise the start, or the first fault.
            end: s; otherwise so late that the usual worker computes six gradients.
            workers: their numbers, in the order in which they are shown.

        Raises FredError for workers or times of which no run knows, and where no run has a clock.
        """
        view = View(begin=begin, end=end, workers=None if workers is None else tuple(workers))
        return _pictures().timeline_of(self, view)

    def plot_sweep(self) -> "Picture":
        """The criterion at every point, a line for each run. Raises FredError where nothing was swept.

        Across: the first key that was swept; a panel for each combination of the others. A star is a run's best point.
        """
        return _pictures().sweep(self)

    def plot_sweep_timing(self) -> "Picture":
        """Time, throughput and waiting at every point, a line for each run. Raises FredError where nothing was swept."""
        return _pictures().sweep_timing(self)

    def pictures(self, view: View | None = None) -> "dict[str, Callable[[], Picture]]":
        """What there is to draw of these runs, by name; of a sweep's, all together and the best ones.

        Names are those of the files under `figures/` of a result folder; nothing is drawn before it is called.

        Args:
            view: how they are looked at; by default as those of the folder.
        """
        return _pictures().drawable(self, view)


def _pictures() -> ModuleType:
    """Imported when something is drawn: matplotlib takes a third of a second."""
    from fred.views import pictures

    return pictures
