"""What an experiment came to: metrics and schedules as data frames, a summary row per run and seed, figures."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred import registry
from fred.errors import FredError
from fred.results import figures
from fred.running.execution import Following, Outcome, check, execute
from fred.scenario.loading import validated_anew
from fred.scenario.shape import Evaluate, Scenario
from fred.schedule import NONE, Verb
from fred.timing.durations import NANOSECONDS

WAYS = ("to_workers", "to_servers", "between_workers")
Progress = Callable[[str, int, float], None]  # told the run, the seed, and the fraction of it that is done


@dataclass(frozen=True)
class Result:
    """All runs of a scenario, each with every seed."""

    scenario: Scenario
    outcomes: list[Outcome]

    @property
    def metrics(self) -> pd.DataFrame:
        """Every evaluation point: run, seed, virtual_seconds, updates, gradients, loss, error."""
        frames = [each.metrics.assign(run=each.name, seed=each.seed) for each in self.outcomes]
        frame = pd.concat(frames, ignore_index=True)
        return frame[["run", "seed", *(name for name in frame if name not in ("run", "seed"))]]

    @property
    def summary(self) -> pd.DataFrame:
        """One row per run and seed: counts, times, staleness, last loss and error, when targets were reached, digests."""
        return pd.json_normalize([summarise(each) for each in self.outcomes], sep="_")

    def schedule(self, run: str, seed: int | None = None) -> pd.DataFrame:
        """One run's schedule, a row per verb; with the first seed if none is given. Raises FredError for an unknown run."""
        return self.outcome(run, seed).schedule.frame()

    def run_times(self, run: str, seed: int | None = None) -> pd.DataFrame:
        """How long each gradient of one run took, as a trace that can drive a cluster. Raises FredError for an unknown run."""
        return run_times(self.outcome(run, seed))

    def outcome(self, run: str, seed: int | None = None) -> Outcome:
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
        metrics = self.metrics
        if "disagreement" not in metrics:
            raise FredError("nothing to plot: in these runs workers have no models of their own")
        return figures.learning(metrics.dropna(subset="disagreement"), "disagreement", self.scenario.title)

    def plot_traffic(self) -> figures.Picture:
        """What was sent each way in each run, mean over the seeds."""
        sent: dict[str, dict[str, float]] = {}
        for each in self.outcomes:
            ways = sent.setdefault(each.name, dict.fromkeys(WAYS, 0.0))
            for way, size in traffic(each)["bytes"].items():
                ways[way] += size / len(self.scenario.seeds)
        return figures.traffic(sent)

    def plot_staleness(self) -> figures.Picture:
        """How stale the gradients were that took part in updates, all seeds together."""
        names = self._by_timing(self.outcomes)
        stale = {
            shared: np.concatenate([staleness(each) for each in self.outcomes if each.name == name])
            for name, shared in names.items()
        }
        return figures.staleness(stale)

    def plot_timeline(self) -> figures.Picture:
        """What each worker did at the start of each run, with the first seed."""
        names = self._by_timing([each for each in self.outcomes if each.run.protocol.has_clock])
        return figures.timeline({shared: self.outcome(name).schedule for name, shared in names.items()})

    def _learning(self, quantity: str) -> figures.Picture:
        metrics = self.metrics
        if quantity not in metrics:
            raise FredError(f"there is no {quantity} to plot: the scenario has no `task`, so only the timing was simulated")
        return figures.learning(metrics, quantity, self.scenario.title)

    @staticmethod
    def _by_timing(outcomes: list[Outcome]) -> dict[str, str]:
        """One run of each different timing, and the names of all that share it."""
        digests: dict[str, str] = {}
        for each in outcomes:
            digests[each.name] = digests.get(each.name, "") + each.schedule.digest()
        sharing: dict[str, list[str]] = {}
        for name, digest in digests.items():
            sharing.setdefault(digest, []).append(name)
        return {names[0]: ", ".join(names) for names in sharing.values()}


def run(
    scenario: Scenario, only: str | Iterable[str] = (), inline: bool = False, progress: Progress = lambda *_: None
) -> Result:
    """Execute a scenario's runs (or `only` one or some of them) with every seed. Raises FredError for an unknown run.

    Recording first and replaying afterwards is the default; `inline` does both at once, with the same result.
    """
    scenario = validated_anew(scenario)
    wanted = list(dict.fromkeys([only] if isinstance(only, str) else only)) or list(scenario.runs)
    for name in wanted:
        if name not in scenario.runs:
            raise FredError(f"no run `{name}`{registry.nearest(name, scenario.runs)}; there are {', '.join(scenario.runs)}")
    for name in wanted:
        check(name, scenario.runs[name], scenario.seeds[0])
    outcomes = []
    for name in wanted:
        for seed in scenario.seeds:
            progress(name, seed, 0.0)
            outcomes.append(execute(name, scenario.runs[name], seed, inline, Following(partial(progress, name, seed))))
            progress(name, seed, 1.0)
    return Result(scenario, outcomes)


def staleness(outcome: Outcome) -> Any:
    """Staleness of every gradient that took part in an update (or waits in an open round), updates."""
    return outcome.schedule["staleness"][outcome.schedule.rows(Verb.PUSH, Verb.ADD)]


def summarise(outcome: Outcome) -> dict[str, Any]:
    """One run with one seed in numbers, as summary.json holds it."""
    schedule, run, metrics = outcome.schedule, outcome.run, outcome.metrics
    counts = schedule.counts()
    stale = staleness(outcome)
    measured = "loss" in metrics
    return {
        "name": outcome.name,
        "algorithm": registry.name_of("algorithm", run.algorithm),
        "protocol": registry.name_of("protocol", run.protocol),
        "seed": outcome.seed,
        "workers": schedule.workers,
        "updates": counts["updates"],
        "gradients": {
            "computed": counts["gradients"] + counts["dropped"],
            "applied": counts["gradients"],
            "dropped": counts["dropped"],
            "in_flight": counts["in_flight"],
        },
        "virtual_seconds": schedule.end_ns / NANOSECONDS if run.protocol.has_clock else None,
        "staleness": {"mean": float(stale.mean()), "max": int(stale.max())} if len(stale) else {"mean": None, "max": None},
        **traffic(outcome),
        "loss": _finite(metrics["loss"].iloc[-1]) if measured else None,
        "error": _finite(metrics["error"].iloc[-1]) if measured else None,
        "diverged": _diverged(metrics) if measured else None,
        "target": _target(metrics, run.evaluate, run.stop.target_loss) if measured else None,
        "digests": {"schedule": schedule.digest(), "params": outcome.params_digest},
    }


def run_times(outcome: Outcome) -> pd.DataFrame:
    """How long each gradient took, as a trace is written that can drive a cluster: iteration, worker, seconds, node.

    An iteration is the worker's own count of gradients. One that was dropped while it was being computed has the time that it
    would have taken; those that the run's end left unfinished or unused are absent, so some workers may end before others.
    """
    schedule = outcome.schedule
    ends = schedule["end_ns"].copy()
    ends[list(schedule.unfinished)] = list(schedule.unfinished.values())
    rows = schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP)
    rows = rows[schedule["step"][rows] != NONE]
    _, first = np.unique(schedule["step"][rows] * schedule.workers + schedule["worker"][rows], return_index=True)
    rows = rows[first]
    worker, nanoseconds = schedule["worker"][rows], ends[rows] - schedule["begin_ns"][rows]
    node = outcome.run.cluster.node_of[worker]
    columns = {"iteration": schedule["step"][rows], "worker": worker, "seconds": nanoseconds / NANOSECONDS, "node": node}
    return pd.DataFrame(columns)


def traffic(outcome: Outcome) -> dict[str, dict[str, int]]:
    """Bytes and messages sent each way: by servers to workers, by workers to servers, and between workers."""
    schedule, layout = outcome.schedule, outcome.run.protocol.layout(outcome.run.cluster)
    pulls = schedule["verb"] == Verb.PULL
    on_server = np.isin(schedule["replica"], layout.on_servers)
    ways = dict(zip(WAYS, (pulls & on_server, ~pulls & on_server, ~on_server), strict=True))
    return {unit: {way: _exact_sum(schedule[unit][rows]) for way, rows in ways.items()} for unit in ("bytes", "messages")}


def _exact_sum(numbers: NDArray[np.int64]) -> int:
    """Beyond 64 bits, too."""
    return (int((numbers >> 32).sum()) << 32) + int((numbers & 0xFFFFFFFF).sum())


def _target(metrics: pd.DataFrame, evaluate: Evaluate, stop_loss: float | None) -> dict[str, Any] | None:
    """When the loss, or else the error, first came down to its target; None without one."""
    loss = evaluate.target_loss or stop_loss
    column, goal = ("loss", loss) if loss else ("error", evaluate.target_error)
    if goal is None:
        return None
    reached = metrics[metrics[column] <= goal]
    first = None if reached.empty else reached.iloc[0]
    seconds = None if first is None else _finite(first["virtual_seconds"])
    return {column: goal, "updates": None if first is None else int(first["updates"]), "seconds": seconds}


def _diverged(metrics: pd.DataFrame) -> int | None:
    """After how many updates the loss was found not to be a finite number for good; None if it ended as one."""
    finite = np.flatnonzero(np.isfinite(metrics["loss"]))
    first = finite[-1] + 1 if len(finite) else 0
    return int(metrics["updates"].iloc[first]) if first < len(metrics) else None


def _finite(value: float) -> float | None:
    """None for what JSON cannot hold: a loss that diverged, the time of a run without a clock."""
    return float(value) if np.isfinite(value) else None
