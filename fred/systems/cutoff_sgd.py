"""Cutoff SGD: a step with the gradients before a cutoff [Teng & Wood 2018, algorithm 1].

Example: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "cutoff-sgd", "learning_rate": 0.1},
    ... }
    >>> for rule in ("all", {"name": "count", "workers": 3}):
    ...     summary = fred.run(fred.scenario(settings, protocol={"rule": rule})).summary
    ...     summary[["updates", "gradients_applied", "gradients_dropped"]].iloc[0].tolist()
    [29, 116, 0]
    [119, 357, 119]
"""

from fred.learning.server import Family, Server


class CutoffSGD(Server):
    """Synchronous SGD with a cutoff: each update averages the first gradients of a round and drops the others."""

    name = "cutoff-sgd"
    family = Family.FRESH
    rule = "w <- w - step(mean of the first c of n g)"
    protocol = "cutoff"
