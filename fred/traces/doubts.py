"""Reasons why the numbers of a trace cannot be compute times, whatever the trace is used for.

A doubt takes the place of any verdict: the table has numbers, but losses and gains from them would be false.
"""

from collections.abc import Callable
from typing import NamedTuple

from fred.base.errors import FredError
from fred.traces.trace import Trace


class Doubt(NamedTuple):
    """A reason not to believe the times of a trace.

    Args:
        reason: what is wrong, in a sentence.
        evidence: the numbers that show it, in a sentence.
        remedies: what to do, in sentences and commands.
    """

    reason: str
    evidence: str
    remedies: tuple[str, ...]


def find_doubt(trace: Trace) -> Doubt | None:
    """Return the first reason not to believe the times of a trace; None if there is none.

    Args:
        trace: recorded times, s.

    >>> import numpy as np
    >>> rounds = np.random.default_rng(0).lognormal(sigma=0.1, size=(20, 1))
    >>> find_doubt(Trace(rounds.repeat(3, axis=1), ("a", "b", "c"))).reason
    'The times contain waiting for the slowest worker.'
    """
    return next((doubt for check in _CHECKS if (doubt := check(trace))), None)


def refuse_doubtful(trace: Trace) -> None:
    """Raise FredError if the numbers of a trace cannot be compute times.

    Args:
        trace: recorded times, s.
    """
    if doubt := find_doubt(trace):
        raise FredError(f"{trace.source}: {' '.join((doubt.reason, doubt.evidence, *doubt.remedies))}")


def _waiting(trace: Trace) -> Doubt | None:
    """Return a doubt if workers wait for one another in the times."""
    if not trace.waiting.certain:
        return None
    return Doubt(
        "The times contain waiting for the slowest worker.",
        trace.waiting.evidence,
        (
            'Record the time of each worker without its waits, as the page "Record step times" shows.',
            "Or give the operations of all workers: a table with iteration, worker, type, start and duration, or profiles.",
        ),
    )


_CHECKS: tuple[Callable[[Trace], Doubt | None], ...] = (_waiting,)
