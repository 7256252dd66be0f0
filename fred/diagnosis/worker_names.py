"""Names of several workers of a trace in a sentence."""

from collections.abc import Sequence

import numpy as np

from fred.traces.trace import Trace

_LETTERS = 30  # of the names in a sentence, if they are several


def several(trace: Trace, numbers: Sequence[int]) -> str:
    """Return the name of some workers in a sentence: their node if they are all of it, otherwise their own names.

    Args:
        trace: trace of the cluster.
        numbers: numbers of the workers, from 0.
    >>> trace = Trace(np.ones((1, 6)), tuple("012345"), node_of=np.array([0, 0, 0, 1, 1, 1]))
    >>> several(trace, [3, 4, 5]), several(trace, [1, 2, 3, 5]), several(trace, [4])
    ('node 1', 'workers 1, 2, 3 and 5', 'worker 4')
    """
    if trace.node_of is not None and len(numbers) > 1:
        own = np.unique(trace.node_of[list(numbers)])
        if len(own) == 1 and (trace.node_of == own[0]).sum() == len(numbers):
            return trace.node(int(own[0]))
    names = [trace.workers[number] for number in numbers]
    return trace.worker(numbers[0]) if len(names) == 1 else f"{'workers ' if names[0].isdecimal() else ''}{some(names)}"


def some(names: Sequence[str], most: int = 6) -> str:
    """Return names as a list in a sentence.

    Args:
        names: names, at least one.
        most: maximum number of names written out; long names are fewer.
    >>> some(["a", "b", "c"]), some(["a", "b", "c"], most=1), some([f"ip-10-0-0-{i}.ec2.internal" for i in range(5)])
    ('a, b and c', 'a and 2 more', 'ip-10-0-0-0.ec2.internal and 4 more')
    """
    while most > 1 and sum(map(len, names[:most])) > _LETTERS:
        most -= 1
    shown, more = names[:most], len(names) - most
    *first, last = [*shown, f"{more} more"] if more > 0 else shown
    return f"{', '.join(first)} and {last}" if first else last
