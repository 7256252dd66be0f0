"""Sentences about a result that a reader must know beside its numbers: doubts, runs that went wrong, how points were chosen."""

from collections.abc import Sequence

import pandas as pd

from fred.outcomes import tables
from fred.outcomes.comparisons import why_stopped
from fred.outcomes.outcome import Outcome
from fred.outcomes.tables import Tables
from fred.specification.effects import unused_options
from fred.views.page_tables import number


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
    for seed in outcome.reported_outcomes:
        runs.setdefault(seed.name, []).append(seed)
    lines = []
    for name, seeds in runs.items():
        goals = " and ".join(f"{quantity} {goal:g}" for quantity, goal in seeds[0].run.targets.items())
        missed = sum((seed.summary["target"] or {}).get("updates") is None for seed in seeds) if goals else 0
        if missed:
            lines.append(f"{name} did not reach {goals} with {missed} of {len(seeds)} seeds.")
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
        sessions = [getattr(fault, "sessions", ()) for fault in cluster.faults]
        times = [time for members in sessions for member in members for session in member for time in session if time > 0]
        for event, moments in (("failure", failures), ("begin or end of a session", times)):
            if moments and min(moments) > end:
                missed = f"the first comes after {min(moments):g} s, the run ends after {end:g} s"
                lines.append(f"{unit.name}: no recorded {event} lies within the run; {missed}")
    return list(dict.fromkeys(lines))
