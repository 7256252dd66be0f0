"""What runs came to as data frames: metrics and schedules, a summary row per run and seed, a sweep's points."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import pandas as pd

from fred.components import registry
from fred.errors import FredError
from fred.outcomes import sweeps
from fred.outcomes.outcome import Outcome
from fred.specification.loading import Scenario


@dataclass(frozen=True)
class Tables:
    """All runs of a scenario, each with every seed: in memory, or in a folder from which they are read when they are used."""

    scenario: Scenario
    outcomes: Sequence[Outcome]

    @property
    def metrics(self) -> pd.DataFrame:
        """Every evaluation point: run, seed, virtual_seconds, updates, gradients, loss, error.

        virtual_seconds is in s (NaN without a clock); loss and error are there if there is a task, gradient_norm if it was
        asked for; where workers have models of their own, also replicas_loss, replicas_error and disagreement.

        >>> import fred
        >>> scenario = fred.scenario(
        ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
        ...     algorithm={"name": "asgd", "learning_rate": 0.1},
        ...     stop={"updates": 4},
        ... )
        >>> fred.run(scenario.replace({"evaluate.points": 2})).metrics
            run  seed  virtual_seconds  updates  gradients
        0  asgd     0              0.0        0          0
        1  asgd     0              0.5        2          2
        2  asgd     0              1.0        4          4
        """
        frames = [each.metrics.assign(run=each.name, seed=each.seed) for each in self.outcomes]
        frame = pd.concat(frames, ignore_index=True)
        return frame[["run", "seed", *(name for name in frame if name not in ("run", "seed"))]]

    @property
    def summary(self) -> pd.DataFrame:
        """One row per run and seed: counts, times, staleness, last loss and error, when targets were reached, digests.

        Columns are those of summary.json, whose nested keys are joined by `_`: times in s, throughput in gradients per second,
        staleness in updates (staleness_in_gradients: R of Birch SGD), workers_time_* as shares of all workers' time.

        >>> import fred
        >>> scenario = fred.scenario(
        ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
        ...     algorithm={"name": "asgd", "learning_rate": 0.1},
        ...     stop={"updates": 4},
        ... )
        >>> summary = fred.run(scenario).summary
        >>> print(*summary.loc[0, ["ended_by", "gradients_in_flight", "throughput", "workers_time_waiting"]])
        updates 1 4.0 0.0
        """
        return pd.json_normalize([each.summary for each in self.outcomes], sep="_")

    @property
    def swept(self) -> bool:
        """Whether some of these runs are points of a sweep."""
        return any(each.name in self.scenario.points for each in self.outcomes)

    @property
    def sweep(self) -> pd.DataFrame:
        """One row per point: run, point, the values, and the criterion's mean, least and largest over the seeds.

        Raises FredError where nothing was swept.

        >>> import fred
        >>> scenario = fred.scenario(
        ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
        ...     algorithm={"name": "ssgd", "learning_rate": 0.1},
        ...     stop={"updates": 4},
        ...     sweep={"over": {"cluster.workers": [2, 4]}},
        ... )
        >>> result = fred.run(scenario)
        >>> result.sweep[["run", "cluster.workers", "mean"]]
            run  cluster.workers  mean
        0  ssgd                2   4.0
        1  ssgd                4   8.0
        >>> result.best["cluster.workers"].tolist()
        [4]
        """
        if not self.swept:
            raise FredError("no points: the scenario has no `sweep`")
        return sweeps.table(self.scenario, self.summary)

    @property
    def best(self) -> pd.DataFrame:
        """The best point of each run that was swept, if one has a finite mean. Raises FredError where nothing was swept."""
        return sweeps.best(self.sweep, self.scenario.criterion.highest)

    def with_its_best(self) -> Self:
        """What is reported: the best points alone in the place of each sweep, with the seeds that are reported.

        Raises FredError if that leaves no run.
        """
        if not self.swept and not self.scenario.report_seeds:
            return self
        outcomes = self.chosen
        if not outcomes:
            raise FredError(f"no point of the sweep has a finite {self.scenario.criterion.column}, so none is the best")
        runs = {each.name: each.run for each in outcomes}
        baseline = self.called(self.scenario.baseline or "")
        left = {"runs": runs, "points": {}, "baseline": baseline if baseline in runs else None}
        seeds = {"seeds": self.scenario.reported_seeds, "report_seeds": None}
        return replace(self, scenario=self.scenario.model_copy(update=left | seeds), outcomes=outcomes)

    def target(self, quantity: str) -> float | None:
        """What all runs are to come down to; None if that is not the same for all.

        Args:
            quantity: `loss`, `error` or `gradient_norm`.
        """
        goals = {each.run.targets.get(quantity) for each in self.outcomes}
        return goals.pop() if len(goals) == 1 else None

    def called(self, run: str) -> str:
        """What a run is called among the reported ones: of one that was swept, its best point if it has one.

        Args:
            run: its name.
        """
        best = dict(zip(self.best["run"], self.best["point"], strict=True)) if self.swept else {}
        return str(best.get(run, run))

    @property
    def chosen(self) -> list[Outcome]:
        """Those of the best points, and of runs that were not swept, with the seeds that are reported."""
        best, seeds = set(self.best["point"]) if self.swept else set(), set(self.scenario.reported_seeds)
        wanted = (each for each in self.outcomes if each.name not in self.scenario.points or each.name in best)
        return [each for each in wanted if each.seed in seeds]

    def schedule(self, run: str, seed: int | None = None) -> pd.DataFrame:
        """One run's schedule, a row per verb; with the first seed if none is given. Raises FredError for an unknown run.

        Args:
            run: its name.
            seed: one of the scenario's.

        Columns are those of `fred.Schedule`; times in ns of virtual time.

        >>> import fred
        >>> scenario = fred.scenario(
        ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
        ...     algorithm={"name": "asgd", "learning_rate": 0.1},
        ...     stop={"updates": 4},
        ... )
        >>> fred.run(scenario).schedule("asgd").query("verb == 'PUSH'")[["time_ns", "worker", "staleness"]].tail(2)
              time_ns  worker  staleness
        6  1000000000       0          1
        8  1000000000       1          1
        """
        return self.outcome(run, seed).schedule.frame()

    def run_times(self, run: str, seed: int | None = None) -> pd.DataFrame:
        """How long each gradient of one run took, as a trace that can drive a cluster.

        Args:
            run: its name.
            seed: one of the scenario's; by default the first.

        Columns: iteration (the worker's own count), worker, seconds, node. Raises FredError for an unknown run, or one
        without a clock.

        >>> import fred
        >>> scenario = fred.scenario(
        ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
        ...     algorithm={"name": "asgd", "learning_rate": 0.1},
        ...     stop={"updates": 4},
        ... )
        >>> fred.run(scenario).run_times("asgd").tail(2)
           iteration  worker  seconds  node
        2          1       0      0.5     0
        3          1       1      0.5     0
        """
        outcome = self.outcome(run, seed)
        if not outcome.run.protocol.has_clock:
            raise FredError(f"run `{run}` has no clock, so its gradients take no time")
        return outcome.run_times

    def outcome(self, run: str, seed: int | None = None) -> Outcome:
        """Everything about one run with one seed. Raises FredError for an unknown one.

        Args:
            run: its name; of one that was swept, its best point.
            seed: one of the scenario's; by default the first.

        It has schedule, metrics, run_times and summary; with a task also initial and final parameters, arrays by path; digests.

        >>> import fred
        >>> scenario = fred.scenario(
        ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
        ...     algorithm={"name": "asgd", "learning_rate": 0.1},
        ...     stop={"updates": 4},
        ... )
        >>> fred.run(scenario).outcome("asgd").summary["gradients"]
        {'computed': 4, 'applied': 4, 'dropped': 0, 'in_flight': 1}
        """
        run = self.called(run)
        for each in self.outcomes:
            if each.name == run and seed in (None, each.seed):
                return each
        known = list(dict.fromkeys(each.name for each in self.outcomes))
        if run in known:
            seeds = ", ".join(str(each.seed) for each in self.outcomes if each.name == run)
            raise FredError(f"no run `{run}` with seed {seed} here; there are seeds {seeds}")
        raise FredError(f"no run `{run}` here{registry.nearest(run, known)}; there are {', '.join(known)}")
