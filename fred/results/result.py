"""What an experiment came to: metrics and schedules as data frames, a summary row per run and seed, figures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred import registry
from fred.errors import FredError
from fred.results import figures, staleness, sweep_figures, sweeps, timeline
from fred.results.b_staleness import b_staleness, by_staleness
from fred.results.measures import WAYS, copies, run_times, summarise
from fred.results.spans import KINDS
from fred.results.stored import Stored
from fred.running.execution import Outcome
from fred.specification.shape import Scenario


@dataclass(frozen=True)
class Result:
    """All runs of a scenario, each with every seed: in memory, or in a folder from which they are read when they are used."""

    scenario: Scenario
    outcomes: Sequence[Outcome | Stored]
    kept: int = 0  # outcomes that were there before, and were not computed again
    anew: tuple[str, ...] = ()  # why others that were there were computed again

    def __repr__(self) -> str:
        return f"<Result of {len(self.scenario.runs)} runs with seeds {', '.join(map(str, self.scenario.seeds))}>"

    @property
    def metrics(self) -> pd.DataFrame:
        """Every evaluation point: run, seed, virtual_seconds, updates, gradients, loss, error."""
        frames = [each.metrics.assign(run=each.name, seed=each.seed) for each in self.outcomes]
        frame = pd.concat(frames, ignore_index=True)
        return frame[["run", "seed", *(name for name in frame if name not in ("run", "seed"))]]

    @property
    def summary(self) -> pd.DataFrame:
        """One row per run and seed: counts, times, staleness, last loss and error, when targets were reached, digests."""
        return pd.json_normalize([summary_of(each) for each in self.outcomes], sep="_")

    @property
    def swept(self) -> bool:
        """Whether some of these runs are points of a sweep."""
        return any(each.name in self.scenario.points for each in self.outcomes)

    @property
    def sweep(self) -> pd.DataFrame:
        """One row per point: run, point, the values, and the criterion's mean, least and largest over the seeds.

        Raises FredError where nothing was swept.
        """
        if not self.swept:
            raise FredError("no points: the scenario has no `sweep`")
        return sweeps.table(self.scenario, self.summary)

    @property
    def best(self) -> pd.DataFrame:
        """The best point of each run that was swept, if one has a finite mean. Raises FredError where nothing was swept."""
        return sweeps.best(self.sweep, self.scenario.criterion.highest)

    def with_its_best(self) -> "Result":
        """The same with the best points alone in the place of each sweep. Raises FredError if that leaves no run."""
        if not self.swept:
            return self
        outcomes = self.chosen
        if not outcomes:
            raise FredError(f"no point of the sweep has a finite {self.scenario.criterion.column}, so none is the best")
        runs = {each.name: each.run for each in outcomes}
        return replace(self, scenario=self.scenario.model_copy(update={"runs": runs, "points": {}}), outcomes=outcomes)

    @property
    def chosen(self) -> list[Outcome | Stored]:
        """Those of the best points, and of runs that were not swept."""
        best = set(self.best["point"]) if self.swept else set()
        return [each for each in self.outcomes if each.name not in self.scenario.points or each.name in best]

    def schedule(self, run: str, seed: int | None = None) -> pd.DataFrame:
        """One run's schedule, a row per verb; with the first seed if none is given. Raises FredError for an unknown run."""
        return self.outcome(run, seed).schedule.frame()

    def run_times(self, run: str, seed: int | None = None) -> pd.DataFrame:
        """How long each gradient of one run took, as a trace that can drive a cluster. Raises FredError for an unknown run."""
        outcome = self.outcome(run, seed)
        return outcome.run_times if isinstance(outcome, Stored) else run_times(outcome)

    def b_staleness(self, run: str, seed: int | None = None, every: int = 1) -> pd.DataFrame:
        """How far every so many-th gradient of one run is from what it would be at the parameters it meets; computed anew."""
        return b_staleness(self.outcome(run, seed), every)

    def outcome(self, run: str, seed: int | None = None) -> Outcome | Stored:
        """Everything about one run with one seed. Raises FredError for an unknown one."""
        for each in self.outcomes:
            if each.name == run and seed in (None, each.seed):
                return each
        known = ", ".join(dict.fromkeys(each.name for each in self.outcomes))
        raise FredError(f"no run `{run}` with seed {seed} here{registry.nearest(run, known.split(', '))}; there are {known}")

    def plot_loss(self) -> figures.Picture:
        """Loss against updates and against virtual time, with the band of seeds."""
        return self._learning("loss")

    def plot_error(self) -> figures.Picture:
        """Error against updates and against virtual time, with the band of seeds."""
        return self._learning("error")

    def plot_disagreement(self) -> figures.Picture:
        """How far workers' own models are from their mean. Raises FredError where no run has such models."""
        return self._of_replicas("disagreement")

    def plot_replicas_error(self) -> figures.Picture:
        """The mean of the errors of workers' own models. Raises FredError where no run has such models."""
        return self._of_replicas("replicas_error")

    def plot_traffic(self) -> figures.Picture:
        """What was sent each way in each run, mean over the seeds."""
        megabytes = _means(self.outcomes, "bytes", WAYS, 1e-6)
        return figures.stacked(megabytes, "sent over the network, MB")

    def plot_copies(self) -> figures.Picture:
        """What was pushed and fetched of what could have been, with the first seed. Raises FredError where no server is."""
        drawn: dict[str, pd.DataFrame] = {}
        for name in dict.fromkeys(each.name for each in self.outcomes):
            own = self.outcome(name)
            if summary_of(own)["copies"]["potential"]:
                drawn[name] = copies(own.schedule, own.run.protocol.layout(own.run.cluster).on_servers)
        if not drawn:
            raise FredError("nothing to plot: in these runs nothing is pushed to a server")
        return figures.copies(drawn)

    def plot_workers_time(self) -> figures.Picture:
        """Where the workers' time went in each run, mean over the seeds. Raises FredError where no run has a clock."""
        clocked = [each for each in self.outcomes if each.run.protocol.has_clock]
        if not clocked:
            raise FredError("nothing to plot: these runs have no clock")
        percent = _means(clocked, "workers_time", KINDS, 100)
        return figures.stacked(percent, "% of the workers' time", [figures.OF_TIME[kind] for kind in KINDS])

    def plot_staleness(self) -> figures.Picture:
        """How stale the gradients were that took part in updates, all seeds together."""
        names = self._by_timing(self.outcomes)
        stale: dict[str, NDArray[np.int64]] = {}  # how many gradients of each staleness
        for name, shared in names.items():
            for each in (outcome for outcome in self.outcomes if outcome.name == name):
                counts, before = np.bincount(staleness.of_gradients(each.schedule)), stale.get(shared, np.zeros(0, np.int64))
                size = max(len(counts), len(before))
                stale[shared] = np.pad(counts, (0, size - len(counts))) + np.pad(before, (0, size - len(before)))
        return figures.staleness(stale)

    def plot_b_staleness(self, every: int = 1) -> figures.Picture:
        """The mean B-staleness of gradients of each staleness, with the first seed; the runs are computed anew."""
        return figures.b_staleness({name: by_staleness(self.b_staleness(name, every=every)) for name in self.scenario.runs})

    def plot_timeline(self) -> figures.Picture:
        """What each worker did at the start of each run, or shortly before the first fault of all runs, with the first seed."""
        names = self._by_timing([each for each in self.outcomes if each.run.protocol.has_clock])
        return timeline.timeline({shared: self.outcome(name).schedule for name, shared in names.items()})

    def plot_sweep(self) -> figures.Picture:
        """The criterion at every point, a line for each run. Raises FredError where nothing was swept."""
        if not self.swept:
            raise FredError("nothing to plot: the scenario has no `sweep`")
        return sweep_figures.sweep(self.sweep, self.scenario.criterion, self.scenario.title)

    def plot_sweep_timing(self) -> figures.Picture:
        """Time, throughput and waiting at every point, a line for each run. Raises FredError where nothing was swept."""
        if not self.swept:
            raise FredError("nothing to plot: the scenario has no `sweep`")
        summary = self.summary
        tables = {each.column: sweeps.table(self.scenario, summary, each) for each in sweep_figures.OF_TIMING}
        return sweep_figures.timing(tables, self.scenario.title)

    def pictures(self) -> dict[str, Callable[[], figures.Picture]]:
        """What there is to draw of these runs, by name; of a sweep's, all together and the best ones."""
        if self.swept:
            timing = {"sweep-timing": self.plot_sweep_timing} if self._timing_differs() else {}
            return {"sweep": self.plot_sweep} | timing | (self.with_its_best().pictures() if self.chosen else {})
        drawn: dict[str, Callable[[], figures.Picture]] = {}
        if "loss" in self.metrics:
            drawn |= {"loss": self.plot_loss, "error": self.plot_error}
        if "disagreement" in self.metrics:
            drawn |= {"disagreement": self.plot_disagreement, "replicas-error": self.plot_replicas_error}
        drawn |= {"traffic": self.plot_traffic, "staleness": self.plot_staleness}
        if any(_suppressed(**summary_of(each)["copies"]) for each in self.outcomes):
            drawn["copies"] = self.plot_copies
        if any(each.run.protocol.has_clock for each in self.outcomes):
            drawn |= {"workers-time": self.plot_workers_time, "timeline": self.plot_timeline}
        return drawn

    def _timing_differs(self) -> bool:
        """Whether what was swept changes when things happen."""
        digests: dict[tuple[str, int], set[str]] = {}
        for each in self.outcomes:
            if each.name in self.scenario.points and each.run.protocol.has_clock:
                point = self.scenario.points[each.name].of, each.seed
                digests.setdefault(point, set()).add(summary_of(each)["digests"]["schedule"])
        return any(len(own) > 1 for own in digests.values())

    def _learning(self, quantity: str) -> figures.Picture:
        metrics = self.metrics
        if quantity not in metrics:
            raise FredError(f"there is no {quantity} to plot: the scenario has no `task`, so only the timing was simulated")
        return figures.learning(metrics, quantity, self.scenario.title, self._target(quantity))

    def _of_replicas(self, quantity: str) -> figures.Picture:
        metrics = self.metrics
        if quantity not in metrics:
            raise FredError("nothing to plot: in these runs workers have no models of their own")
        return figures.learning(metrics.dropna(subset=quantity), quantity, self.scenario.title)

    def _target(self, quantity: str) -> float | None:
        """What all runs are to come down to, if it is the same."""
        if quantity == "loss":
            goals = {each.run.evaluate.target_loss or each.run.stop.target_loss for each in self.outcomes}
        else:
            goals = {each.run.evaluate.target_error for each in self.outcomes}
        return goals.pop() if len(goals) == 1 else None

    @staticmethod
    def _by_timing(outcomes: Sequence[Outcome | Stored]) -> dict[str, str]:
        """One run of each different timing, and the names of all that share it."""
        digests: dict[str, str] = {}
        for each in outcomes:
            digests[each.name] = digests.get(each.name, "") + summary_of(each)["digests"]["schedule"]
        sharing: dict[str, list[str]] = {}
        for name, digest in digests.items():
            sharing.setdefault(digest, []).append(name)
        return {names[0]: ", ".join(names) for names in sharing.values()}


def summary_of(outcome: Outcome | Stored) -> dict[str, Any]:
    """One run with one seed in numbers."""
    return outcome.summary if isinstance(outcome, Stored) else summarise(outcome)


def _suppressed(potential: int | None, pushes: int | None, fetches: int | None) -> bool:
    """Whether some, but not all, of what could have been sent was not."""
    return bool(potential and pushes and fetches) and (pushes, fetches) != (potential, potential)


def _means(outcomes: Sequence[Outcome | Stored], fact: str, parts: Sequence[str], unit: float) -> dict[str, dict[str, float]]:
    """For each run the mean over its seeds of each part of a fact in the summary, in a unit."""
    rows = pd.DataFrame([{"run": each.name, **summary_of(each)[fact]} for each in outcomes]).astype(dict.fromkeys(parts, float))
    means = rows.groupby("run", sort=False)[list(parts)].mean().fillna(0.0) * unit
    return {str(name): dict(zip(parts, own.tolist(), strict=True)) for name, own in means.iterrows()}
