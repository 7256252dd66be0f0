"""Runs that share a timing, and the staleness of their gradients with all seeds together."""

from collections.abc import Sequence

import numpy as np

from fred.outcomes import staleness
from fred.outcomes.outcome import Outcome
from fred.schedule.schedule import Ints


def by_timing(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """Return the names of all runs that share a timing, for each different timing.

    Args:
        outcomes: the outcomes of the runs, in the order of their seeds.
    """
    digests: dict[str, str] = {}
    for each in outcomes:
        digests[each.name] = digests.get(each.name, "") + each.schedule_digest
    sharing: dict[str, tuple[str, ...]] = {}
    for name, digest in digests.items():
        sharing[digest] = (*sharing.get(digest, ()), name)
    return list(sharing.values())


def staleness_counts(outcomes: Sequence[Outcome]) -> dict[tuple[str, ...], Ints]:
    """Return the number of used gradients of each staleness, from 0 to the largest, updates [largest + 1].

    Args:
        outcomes: the outcomes of the runs; all seeds of a run count together.

    Returns: counts by the names of all runs that share a timing; empty counts if a run used no gradient.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    ...     algorithm={"name": "asgd", "learning_rate": 0.1},
    ...     stop={"updates": 4},
    ... )
    >>> {runs: counts.tolist() for runs, counts in staleness_counts(fred.run(scenario).outcomes).items()}
    {('asgd',): [1, 3]}
    """
    counts: dict[tuple[str, ...], Ints] = {}
    for shared in by_timing(outcomes):
        own = [staleness.of_gradients(each.schedule) for each in outcomes if each.name == shared[0]]
        counts[shared] = np.bincount(np.maximum(np.concatenate(own), 0))  # a gradient at a newer model is not stale
    return counts
