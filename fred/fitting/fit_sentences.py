"""Sentences about slow workers and nodes, with the trace's own names."""

from collections.abc import Sequence

import numpy as np

from fred.fitting.entities import Groups, Model
from fred.fitting.entity_regimes import InSpells, InWaves, Regime

_SLOWER = 1.15  # time relative to the median worker from which a worker gets a sentence
_MOST_NAMES = 4
_MOST_LINES = 8


def sentences(
    model: Model, workers: Sequence[str], group_of: Groups, nodes_given: bool, nodes: Sequence[str] = ()
) -> list[str]:
    """Return sentences on slow workers and nodes, by how much and when, costliest first.

    Args:
        model: model fitted to the trace.
        workers: names of the workers.
        group_of: node number of each worker, from 0 [workers].
        nodes_given: True if the trace gives the nodes; otherwise they were found.
        nodes: names of the nodes; if empty, a node is named by its workers.

    >>> from fred.fitting.entities import fit_model
    >>> seconds = np.random.default_rng(0).lognormal(sigma=0.1, size=(100, 4)) * [1, 1, 1, 3]
    >>> sentences(fit_model(seconds, np.zeros(4, int)), ["a", "b", "c", "d"], np.zeros(4, int), nodes_given=False)
    ['Worker d is always 3.0 times slower than the median worker.']
    """
    relative = np.exp(model.levels - np.median(model.levels))
    spells = [regime for regime in model.regimes if isinstance(regime, InSpells) and regime.of == "worker"]
    in_spells = {worker for regime in spells for worker in regime.entities}
    always = np.flatnonzero(relative > _SLOWER).tolist()
    effects = [
        (float(relative[worker]), _level_sentence(workers[worker], relative[worker], worker in in_spells)) for worker in always
    ]
    if len(always) > len(workers) / 4:
        spread = float(relative.max() / relative.min())
        effects = [(spread, f"Workers differ: the slowest takes {spread:.1f} times as long as the fastest.")]
    for regime in model.regimes:
        if weighed := _sentence(regime, workers, group_of, nodes):
            effects.append(weighed)
    if len(set(group_of.tolist())) > 1:
        effects.append((0.0, f"{int(group_of.max()) + 1} nodes, {'given by' if nodes_given else 'found in'} the trace."))
    effects.sort(key=lambda effect: -effect[0])
    lines = [line for _, line in effects[:_MOST_LINES]]
    if len(effects) > _MOST_LINES:
        lines.append(f"{len(effects) - _MOST_LINES} smaller effects are in the cluster, too.")
    return lines or ["No worker is slow for long."]


def _level_sentence(name: str, slowdown: float, in_spells: bool) -> str:
    """Return the sentence on a worker that is usually slow; a worker with spells is not always as slow."""
    if in_spells:
        return f"Worker {name} is {slowdown:.1f} times slower than the median worker outside its spells."
    return f"Worker {name} is always {slowdown:.1f} times slower than the median worker."


def _sentence(regime: Regime, workers: Sequence[str], group_of: Groups, nodes: Sequence[str]) -> tuple[float, str] | None:
    subject, verb = _subject(regime, workers, group_of, nodes)
    if isinstance(regime, InSpells):
        spells = f"in spells of about {regime.iterations:.0f} iterations, {regime.share:.0%} of the time"
        return regime.slowdown * regime.share, f"{subject} {verb} {regime.slowdown:.1f} times slower {spells}."
    if isinstance(regime, InWaves):
        if regime.drift:
            change = "becomes" if verb == "is" else "become"
            way = "slower" if regime.peak > regime.period / 4 else "faster"
            return regime.slowdown, f"{subject} {change} {regime.slowdown:.1f} times {way} in the course of the trace."
        return regime.slowdown, f"{subject} {verb} up to {regime.slowdown:.1f} times slower in a wave of {regime.period:.4g} s."
    return regime.deviation, f"{subject} wander{'s' if verb == 'is' else ''} by about {np.expm1(regime.deviation):.0%}."


def _subject(regime: Regime, workers: Sequence[str], group_of: Groups, nodes: Sequence[str]) -> tuple[str, str]:
    """Return the subject of a sentence, and its verb."""
    if regime.of == "cluster":
        return "The whole cluster", "is"
    if not regime.entities:
        return f"Each {regime.of}, by itself,", "is"
    if regime.of == "worker":
        names = [workers[entity] for entity in regime.entities]
        return (f"Worker {names[0]}", "is") if len(names) == 1 else (f"Workers {_join_names(names)}", "are")
    if nodes:
        names = [nodes[node] for node in regime.entities]
        return (f"Node {names[0]}", "is") if len(names) == 1 else (f"Nodes {_join_names(names)}", "are")
    members = [np.flatnonzero(group_of == node).tolist() for node in regime.entities]
    subject = " and ".join(f"the node of {_join_names([workers[worker] for worker in numbers])}" for numbers in members)
    return subject[0].upper() + subject[1:], "is" if len(members) == 1 else "are"


def _join_names(names: Sequence[str]) -> str:
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    return ", ".join(names[: _MOST_NAMES - 1]) + f" ... {names[-1]} ({len(names)})"
