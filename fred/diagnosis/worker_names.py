"""Names of several workers of a trace in a sentence."""

from collections.abc import Sequence

import numpy as np

from fred.traces.trace import Trace

_LETTERS = 30  # of the names in a sentence, if they are several


def name_workers(trace: Trace, numbers: Sequence[int]) -> str:
    """Return the name of some workers in a sentence: their node if they are all of it, otherwise their own names.

    Args:
        trace: trace of the cluster.
        numbers: numbers of the workers, from 0.
    >>> trace = Trace(np.ones((1, 6)), tuple("012345"), node_of=np.array([0, 0, 0, 1, 1, 1]))
    >>> name_workers(trace, [3, 4, 5]), name_workers(trace, [1, 2, 3, 5]), name_workers(trace, [4])
    ('node 1', 'workers 1, 2, 3 and 5', 'worker 4')
    """
    if trace.node_of is not None and len(numbers) > 1:
        nodes = np.unique(trace.node_of[list(numbers)])
        if len(nodes) == 1 and (trace.node_of == nodes[0]).sum() == len(numbers):
            return trace.node(int(nodes[0]))
    names = [trace.workers[number] for number in numbers]
    return trace.worker(numbers[0]) if len(names) == 1 else f"{'workers ' if names[0].isdecimal() else ''}{join_names(names)}"


def join_names(names: Sequence[str], most: int = 6) -> str:
    """Return names as a list in a sentence.

    Args:
        names: names, at least one.
        most: maximum number of names written out; long names are fewer.

    >>> join_names(["a", "b", "c"]), join_names(["a", "b", "c"], most=1)
    ('a, b and c', 'a and 2 more')
    >>> join_names([f"ip-10-0-0-{i}.ec2.internal" for i in range(5)])
    'ip-10-0-0-0.ec2.internal and 4 more'
    """
    while most > 1 and sum(map(len, names[:most])) > _LETTERS:
        most -= 1
    first_names, remainder = names[:most], len(names) - most
    *first, last = [*first_names, f"{remainder} more"] if remainder > 0 else first_names
    return f"{', '.join(first)} and {last}" if first else last
