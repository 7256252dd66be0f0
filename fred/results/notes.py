"""Sentences about a result that a reader must know beside its numbers: doubts, runs that went wrong, how points were chosen."""

from collections.abc import Sequence

import pandas as pd

from fred.outcomes import sweeps
from fred.outcomes.comparisons import why_stopped
from fred.outcomes.outcome import Outcome
from fred.outcomes.tables import Tables
from fred.specification.effects import unused_options
from fred.views.summary_table import number


def notes(outcome: Tables) -> list[str]:
    """Return all that the command line says about a result beside its tables, a sentence each.

    Args:
        outcome: the runs.
    """
    chosen = [choice(outcome)] if outcome.swept and outcome.chosen else []
    return [*objections(outcome), *chosen, *_missed(outcome), *(f"{line}." for line in why_stopped(outcome))]


def _missed(outcome: Tables) -> list[str]:
    """Return a sentence for each reported run that misses its target with some seeds."""
    runs: dict[str, list[Outcome]] = {}
    for one in outcome.chosen:
        runs.setdefault(one.name, []).append(one)
    lines = []
    for name, seeds in runs.items():
        goals = " and ".join(f"{quantity} {goal:g}" for quantity, goal in seeds[0].run.targets.items())
        missed = sum((one.summary["target"] or {}).get("updates") is None for one in seeds) if goals else 0
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
    ends = [f"{key.rpartition('.')[2]} {value:g} of {run}" for run, key, value in sweeps.at_the_ends(swept.sweep, swept.best)]
    beyond = f"; at an end of the swept range, so extend it: {', '.join(ends)}" if ends else ""
    return f"The best of each run's sweep by {by}, chosen on {_seeds(scenario.seeds)}, {reported}{beyond}."


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
    runs = [each.run for each in outcome.outcomes]
    doubts = dict.fromkeys(doubt for run in runs for doubt in (*run.cluster.doubts(), *run.protocol.doubts()))
    unchosen = f"no point of its sweep has a finite {outcome.scenario.criterion.column} with all seeds, so none is the best"
    without = [f"{run}: {unchosen}" for run in outcome.without_best]
    unused = unused_options(outcome.scenario.runs)
    return [*doubts, *unused, *without, *_divergences(outcome), *_standstills(outcome.summary), *_unused(outcome)]


def _divergences(outcome: Tables) -> list[str]:
    """Return one warning for every run whose loss did not stay finite, or ended above twice its start."""
    summary = outcome.summary
    lost = summary[summary["diverged"].notna()]
    return [
        f"{name} diverged: with {len(rows)} of {(summary['name'] == name).sum()} seeds its loss is no longer a finite number, "
        + (
            f"first seen after {rows['diverged'].min():,.0f} updates; try a smaller learning rate"
            if rows["diverged"].min()
            else "nor was it at the start: check the model's initial parameters and the data"
        )
        for name, rows in lost.groupby("name", sort=False)
    ] + _risen(outcome.with_its_best() if outcome.chosen else outcome)


def _risen(outcome: Tables) -> list[str]:
    """Return one warning for every run whose loss ended above twice its start."""
    ends: dict[str, list[tuple[float, float]]] = {}
    for each in outcome.outcomes:
        if each.run.task is not None and each.summary["diverged"] is None and len(each.metrics):
            losses = each.metrics["loss"]
            ends.setdefault(each.name, []).append((losses.iloc[0], losses.iloc[-1]))
    risen = {name: [last for first, last in own if last > 2 * first > 0] for name, own in ends.items()}
    return [
        f"{name}: with {len(risen[name])} of {len(own)} seeds the loss ended above twice its start, at up to "
        f"{number(max(risen[name]))}; try a smaller learning rate"
        for name, own in ends.items()
        if risen[name]
    ]


def _standstills(summary: pd.DataFrame) -> list[str]:
    """Return one warning for every run in which nothing more happens before its time is over."""
    still = summary[summary["standstill"].notna()]
    return [
        f"{name} stands still with {len(rows)} of {(summary['name'] == name).sum()} seeds: {rows['standstill'].iloc[0]}"
        for name, rows in still.groupby("name", sort=False)
    ]


def _unused(outcome: Tables) -> list[str]:
    """Return one warning for each record of failures or sessions of which no event lies within a run."""
    lines = []
    for each in outcome.outcomes:
        if each.summary["virtual_seconds"] is None:
            continue  # the protocol has no clock
        end, cluster = float(each.summary["virtual_seconds"]), each.run.cluster
        failures = [down for _, down, _ in cluster.failures.recorded] if cluster.failures else []
        sessions = [getattr(fault, "sessions", ()) for fault in cluster.faults]
        times = [time for members in sessions for member in members for session in member for time in session if time > 0]
        for event, moments in (("failure", failures), ("begin or end of a session", times)):
            if moments and min(moments) > end:
                missed = f"the first comes after {min(moments):g} s, the run ends after {end:g} s"
                lines.append(f"{each.name}: no recorded {event} lies within the run; {missed}")
    return list(dict.fromkeys(lines))
