"""The result of an experiment: tables, a picture of each, and sentences that a reader must know beside its numbers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING

import pandas as pd

from fred.base import environment
from fred.base.errors import FredError
from fred.components import registry
from fred.outcomes import tables
from fred.outcomes.comparisons import compared, why_stopped
from fred.outcomes.outcome import Outcome
from fred.outcomes.tables import Tables
from fred.specification.effects import unused_options
from fred.views.page_tables import number
from fred.views.view import FIGURES, LEARNING, SCREEN, FigureName, Look, View

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fred.views.figures import Picture
    from fred.views.notebook import Inline


def notes(outcome: Tables) -> list[str]:
    """Return all that the command line says about a result beside its tables, a sentence each.

    Args:
        outcome: the runs.
    """
    choices = [choice(outcome)] if outcome.swept and outcome.reported_outcomes else []
    return [*objections(outcome), *choices, *_missed(outcome), *(f"{line}." for line in why_stopped(outcome))]


def _missed(outcome: Tables) -> list[str]:
    """Return a sentence for each reported run that misses its target with some seeds."""
    runs: dict[str, list[Outcome]] = {}
    for unit in outcome.reported_outcomes:
        runs.setdefault(unit.name, []).append(unit)
    lines = []
    for name, units in runs.items():
        goals = [f"{quantity} {goal:g}" for quantity, goal in units[0].run.targets.items()][:1]  # the summary has this one
        missed = sum((unit.summary["target"] or {}).get("updates") is None for unit in units) if goals else 0
        if missed:
            lines.append(f"{name} did not reach {goals[0]} with {missed} of {len(units)} seeds.")
    return lines


def choice(swept: Tables) -> str:
    """Return a sentence that says by which criterion and on which seeds the best points were chosen, and which lie at an end.

    Args:
        swept: the runs, with a sweep.
    """
    scenario = swept.scenario
    reported = f"reported on {_seeds(scenario.report_seeds)}" if scenario.report_seeds else "reported on the same seeds"
    by = f"{scenario.criterion.words} (the {scenario.criterion.way})"
    ends = [f"{key.rpartition('.')[2]} {value:g} of {run}" for run, key, value in tables.at_the_ends(swept.sweep, swept.best)]
    extension = f"; at an end of the swept range, so extend it: {', '.join(ends)}" if ends else ""
    return f"The best of each run's sweep by {by}, chosen on {_seeds(scenario.seeds)}, {reported}{extension}."


def _seeds(seeds: Sequence[int]) -> str:
    """Return seeds in words, with ranges.

    >>> _seeds((1, 2, 3, 7)), _seeds((4,))
    ('seeds 1-3, 7', 'seed 4')
    """
    ordered = sorted(seeds)
    starts = [seed for seed in ordered if seed - 1 not in seeds]
    ends = [seed for seed in ordered if seed + 1 not in seeds]
    return f"seed{'s' if len(seeds) > 1 else ''} " + ", ".join(
        str(first) if first == last else f"{first}-{last}" for first, last in zip(starts, ends, strict=True)
    )


def objections(outcome: Tables) -> list[str]:
    """Return one line for each doubt of a cluster or protocol, unused option, sweep without a best point, and wrong run.

    Args:
        outcome: the runs.
    """
    runs = [unit.run for unit in outcome.outcomes]
    doubts = dict.fromkeys(doubt for run in runs for doubt in (*run.cluster.doubts(), *run.protocol.doubts()))
    reason = f"no point of its sweep has a finite {outcome.scenario.criterion.column} with all seeds, so none is the best"
    unused = unused_options(outcome.scenario.runs)
    failed_sweeps = [f"{run}: {reason}" for run in outcome.runs_without_best]
    return [*doubts, *unused, *failed_sweeps, *_divergences(outcome), *_standstills(outcome.summary), *_unused_records(outcome)]


def _divergences(outcome: Tables) -> list[str]:
    """Return one warning for every run whose loss did not stay finite, or ended above twice its start."""
    summary = outcome.summary
    diverged = summary[summary["diverged"].notna()]
    return [
        f"{name} diverged: with {len(rows)} of {(summary['name'] == name).sum()} seeds its loss is no longer a finite number, "
        + (
            f"first seen after {rows['diverged'].min():,.0f} updates; try a smaller learning rate"
            if rows["diverged"].min()
            else "nor was it at the start: check the model's initial parameters and the data"
        )
        for name, rows in diverged.groupby("name", sort=False)
    ] + _risen(outcome.with_its_best() if outcome.reported_outcomes else outcome)


def _risen(outcome: Tables) -> list[str]:
    """Return one warning for every run whose loss ended above twice its start."""
    ends: dict[str, list[tuple[float, float]]] = {}
    for unit in outcome.outcomes:
        if unit.run.task is not None and unit.summary["diverged"] is None and len(unit.metrics):
            losses = unit.metrics["loss"]
            ends.setdefault(unit.name, []).append((losses.iloc[0], losses.iloc[-1]))
    risen = {name: [last for first, last in pairs if last > 2 * first > 0] for name, pairs in ends.items()}
    return [
        f"{name}: with {len(risen[name])} of {len(pairs)} seeds the loss ended above twice its start, at up to "
        f"{number(max(risen[name]))}; try a smaller learning rate"
        for name, pairs in ends.items()
        if risen[name]
    ]


def _standstills(summary: pd.DataFrame) -> list[str]:
    """Return one warning for every run in which nothing more happens before its time is over."""
    standing = summary[summary["standstill"].notna()]
    return [
        f"{name} stands still with {len(rows)} of {(summary['name'] == name).sum()} seeds: {rows['standstill'].iloc[0]}"
        for name, rows in standing.groupby("name", sort=False)
    ]


def _unused_records(outcome: Tables) -> list[str]:
    """Return one warning for every record of failures or sessions of which no event lies within a run."""
    lines = []
    for unit in outcome.outcomes:
        if unit.summary["virtual_seconds"] is None:
            continue  # the protocol has no clock
        end, cluster = float(unit.summary["virtual_seconds"]), unit.run.cluster
        failures = [down for _, down, _ in cluster.failures.recorded] if cluster.failures else []
        of_faults = [getattr(fault, "sessions", ()) for fault in cluster.faults]  # begin and end of each session, by worker
        ends = [time for workers in of_faults for sessions in workers for session in sessions for time in session if time > 0]
        for event, moments in (("failure", failures), ("begin or end of a session", ends)):
            if moments and min(moments) > end:
                missed = f"the first comes after {min(moments):g} s, the run ends after {end:g} s"
                lines.append(f"{unit.name}: no recorded {event} lies within the run; {missed}")
    return list(dict.fromkeys(lines))


@dataclass(frozen=True)
class Result(Tables):
    """The result of a scenario: all runs, each with every seed; in memory, or in a folder from which they are read on demand.

    Args:
        scenario: the runs and seeds.
        outcomes: outcome of each run with each seed.
        reused: number of cached outcomes, which were not computed again.
        recomputed: reasons for computing cached outcomes again, a sentence each.
        folder: path of the folder in which the result is stored; empty: it is in memory only.

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

    reused: int = 0
    recomputed: tuple[str, ...] = ()
    folder: str = ""

    def __repr__(self) -> str:
        reported = f", reported {', '.join(map(str, self.scenario.report_seeds))}" if self.scenario.report_seeds else ""
        return f"<Result of {len(self.scenario.runs)} runs with seeds {', '.join(map(str, self.scenario.seeds))}{reported}>"

    def __getitem__(self, run: str | tuple[str, int]) -> Outcome:
        """Return a run's outcome: `result["asgd"]` with its first seed, `result["asgd", 2]` with seed 2. See `outcome`.

        Args:
            run: its name, or its name and a seed.

        Raises FredError for an unknown run or seed.
        """
        return self.outcome(*run) if isinstance(run, tuple) else self.outcome(run)

    @property
    def notes(self) -> list[str]:
        """Return what a reader must know beside the numbers, a sentence each, as the command line prints it.

        These are runs that diverged or stand still, sweeps without a best point or with one at an end of its range, doubts
        about a protocol's predictor, and reasons for computing cached outcomes again.

        >>> import fred
        >>> scenario = fred.scenario(
        ...     cluster={"workers": 2},
        ...     stop={"updates": 4},
        ...     algorithm={"name": "ssgd", "learning_rate": 0.1},
        ...     sweep={"over": {"cluster.workers": [2, 4, 8]}},
        ... )
        >>> print(*fred.run(scenario).notes)
        The best of each run's sweep by ...; at an end of the swept range, so extend it: workers 8 of ssgd.
        """

        return [*notes(self), *self.recomputed]

    def _repr_html_(self) -> str:
        from fred.views.notebook import result_html

        return result_html(self, self.notes)

    def report(self) -> "Inline":
        """Return the page of the result, which a notebook shows in a frame: curves, tables, and a replay of the workers.

        >>> import fred
        >>> scenario = fred.scenario(
        ...     cluster={"workers": 2}, stop={"updates": 4}, algorithm={"name": "ssgd", "learning_rate": 0.1}
        ... )
        >>> fred.run(scenario).report()
        <a page of ... kB, which a notebook shows>
        """
        from fred.views.notebook import Inline
        from fred.views.page import Circumstances, page

        return Inline(page(self, Circumstances("", environment.describe())))

    @property
    def paired(self) -> pd.DataFrame:
        """Compare each run with the baseline (the scenario's, or the first), seed by seed; for sweeps, the best points.

        Columns: run, baseline, quantity (loss, error, gradient_norm, to_target, cost_to_target, throughput), way (difference
        or ratio), mean, low and high (95 % interval, with at least 5 seeds; of several runs a family), better (yes, no or
        open), least and largest (over the seeds), seeds, missing, variance_saved (by pairing).

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
        from fred.results.extra_measures import b_staleness  # imports jax

        return b_staleness(self.outcome(run, seed), every)

    def by_worker(self, run: str, seed: int | None = None) -> pd.DataFrame:
        """Return each worker's part in one run, and the final model's loss and error on its own examples.

        Args:
            run: its name.
            seed: one of the scenario's; default: the first.

        Columns: worker, gradients (that took part in an update), dropped (used in none); if the examples are divided
        (`task.division`), also examples (number of its own), loss and error (means over these). Raises FredError for an
        unknown run.

        >>> import fred
        >>> scenario = fred.scenario(
        ...     task={"data": "digits", "model": "softmax", "division": "by-label"},
        ...     cluster={"workers": 3, "compute": {"name": "constant", "seconds": 0.5}},
        ...     algorithm={"name": "fedavg", "learning_rate": 0.1},
        ...     protocol={"clients": 1},
        ...     stop={"seconds": 20},
        ... )
        >>> fred.run(scenario).by_worker("fedavg")[["worker", "gradients", "examples"]]
           worker  gradients  examples
        0       0         10       479
        1       1         20       479
        2       2          0       479
        """
        from fred.results.extra_measures import by_worker  # imports jax

        return by_worker(self.outcome(run, seed))

    def plot(
        self,
        figure: FigureName,
        against: Sequence[str] | None = None,
        begin: float | None = None,
        end: float | None = None,
        workers: Sequence[int] | None = None,
        runs: Sequence[str] | None = None,
        labels: Mapping[str, str] | None = None,
        ax: "Axes | None" = None,
    ) -> "Picture":
        """Draw a figure of these runs by its name, which is that of a file under `figures/` in a result folder.

        - loss, error, perplexity: mean of the seeds, and their range (needs a task)
        - gradient-norm: the same (needs its evaluation)
        - disagreement: distance of workers' models from their mean (needs workers' models)
        - replicas-error: mean error of workers' models (needs workers' models)
        - paired: difference from the baseline, or ratio to it, with 95 % intervals (needs shared seeds)
        - throughput: gradients used per virtual second: mean and range of the seeds (needs a clock)
        - pace: the same over time (needs a clock)
        - workers-time: % of workers' time: computing, wasted, network, waiting, away (needs a clock)
        - timeline: activities of workers, for the first seed; ticks on top: updates (needs a clock)
        - staleness: histograms of the staleness of used gradients, in updates
        - copies: copies pushed and fetched, for the first seed; dotted: the maximum (needs a server)
        - traffic: bytes sent from servers, to servers, and between workers
        - cost: cost against time of each run or point of a sweep; line: the Pareto front (needs `cluster.prices`)
        - sweep: criterion at every point; star: a run's best point (needs a sweep)
        - sweep-timing: time, throughput and waiting at every point (needs a sweep)

        Args:
            figure: its name.
            against: of learning curves, the first six: horizontal axes, a panel each: `updates`, `gradients`, `seconds`,
                `tokens`, `cost`, `energy`; default: updates and seconds.
            begin: of the timeline: virtual time, s; default: the start, or shortly before the first fault of all runs.
            end: of the timeline: s; default: the time in which a typical worker computes six gradients.
            workers: of the timeline: their numbers, in the order shown; default: at most 16, evenly spaced.
            runs: names of the runs that are shown, in this order; default: all.
            labels: names of runs in the figure, by their names in the scenario.
            ax: axes of your own figure to draw into, for a figure of one panel (learning curves: `against` one axis).

        Raises FredError for an unknown name, for an option of another figure, and if these runs do not have its data.
        """
        if figure not in FIGURES:
            raise FredError(f"no figure `{figure}`{registry.nearest(figure, FIGURES)}; there are {', '.join(FIGURES)}")
        for option, value in {"against": against, "begin": begin, "end": end, "workers": workers}.items():
            figures = LEARNING if option == "against" else ("timeline",)
            if value is not None and figure not in figures:
                raise FredError(f"`{option}` is for the figure{'s' * (len(figures) > 1)} {', '.join(figures)}; got `{figure}`")
        if ax is not None and not hasattr(ax, "plot"):
            raise FredError(f"ax: found a {type(ax).__name__}; expected axes for one panel, such as `axes[0]` of several")
        if ax is not None and figure == "timeline":
            raise FredError("a timeline has a panel for each run, which do not fit into one `ax`; draw it without `ax`")
        axes = View().against if against is None else (against,) if isinstance(against, str) else tuple(against)
        if ax is not None and against is None:
            axes = axes[:1]
        result, looks = self._selection(runs, labels or {})
        drawn_workers = None if workers is None else tuple(workers)
        view = View(against=axes, begin=begin, end=end, workers=drawn_workers, looks=looks, ax=ax)
        return _pictures().DRAW_FUNCTIONS[figure](result, view=view)

    def _selection(self, runs: Sequence[str] | None, labels: Mapping[str, str]) -> "tuple[Result, dict[str, Look]]":
        """Return the result with some of its runs, under other names, and their looks. Raises FredError for an unknown run."""
        if runs is None and not labels:
            return self, {}
        for name in (*(runs or ()), *labels):
            self.outcome(name)
        names = list(dict.fromkeys(outcome.name for outcome in self.outcomes))
        order = names if runs is None else [self.resolve_name(name) for name in ((runs,) if isinstance(runs, str) else runs)]
        label_of = {self.resolve_name(name): label for name, label in labels.items()}
        outcomes = [outcome for name in order for outcome in self.outcomes if outcome.name == name]
        looks = _pictures().coloured(self, SCREEN).looks
        renamed = [outcome.renamed(label_of.get(outcome.name, outcome.name)) for outcome in outcomes]
        return replace(self, outcomes=renamed), {label_of.get(name, name): looks[name] for name in order if name in looks}

    def plot_b_staleness(self, every: int = 1) -> "Picture":
        """Draw the mean B-staleness of gradients against their staleness, for the first seed; runs are computed again.

        Args:
            every: only every N-th gradient is evaluated.

        Larger dots: more gradients had that staleness. Raises FredError for runs without a task.
        """
        from fred.results.extra_measures import by_staleness

        means = {name: by_staleness(self.b_staleness(name, every=every)) for name in self.scenario.runs}
        return _pictures().charts.b_staleness(means)

    def pictures(self, view: View | None = None) -> "dict[str, Callable[[], Picture]]":
        """Return all pictures of these runs by name, as functions that draw them; for sweeps, also of the best points alone.

        Names are those of the files under `figures/` in a result folder.

        Args:
            view: what the pictures show; default: the same as in the folder.
        """
        return _pictures().drawable(self, view or SCREEN)


def _pictures() -> ModuleType:
    """Import the drawing functions, only when needed: matplotlib takes a third of a second."""
    from fred.views import pictures

    return pictures
