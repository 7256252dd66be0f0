"""Rolling-origin evaluation of cutoff rules: train on all rounds so far, run on the next block, and repeat.

A short trace gives more counted rounds this way than by one split, and more training times
[Tashman 2000, International Journal of Forecasting 16(4)].
"""

from collections.abc import Sequence

import numpy as np

from fred.base.errors import FredError
from fred.base.progress import Show
from fred.prediction import closed_loop
from fred.prediction.closed_loop import Rounds
from fred.prediction.comparison import RULES, Comparison, nodes_of, rule_named, tried
from fred.prediction.contract import AllWorkers
from fred.traces.trace import Trace


def rolling(
    trace: Trace,
    first: int,
    block: int,
    names: Sequence[str] = RULES,
    warm_up: int = closed_loop.WARM_UP,
    progress: Show = lambda what, share: None,
) -> Comparison:
    """Train on the first iterations and run on the next block; then train on all so far, and so on to the end.

    Every iteration after the first ones counts once. Rules restart in each block and warm up in the last iterations before
    it, which wait for all workers.

    Args:
        trace: recorded compute times.
        first: number of iterations in the first training.
        block: number of iterations between trainings; the last block may have fewer.
        names: names of the rules, as on the command line.
        warm_up: maximum number of warm-up iterations before each block.
        progress: called with a description of the current step and the share of it that is done.

    Raises FredError for unknown rules and impossible numbers, and if a rule cannot work on this trace.
    """
    if not 1 <= first < trace.iterations or block < 1 or warm_up < 0:
        raise FredError(
            f"{trace.source} has {trace.iterations} iterations: expected 1 or more to train on at first ({first}) and one more "
            f"to count, blocks of 1 or more ({block}), 0 or more to warm up ({warm_up})"
        )
    rules = {name: rule_named(name) for name in names}
    every: list[Rounds] = []
    parts: dict[str, list[Rounds]] = {name: [] for name in rules}
    doubts: dict[str, None] = {}
    origins = range(first, trace.iterations, block)
    for origin in origins:
        node_of, before = nodes_of(trace, origin), min(warm_up, origin)
        rest = trace.seconds[origin - before : origin + block]
        every.append(closed_loop.run(AllWorkers(), rest, node_of, before))
        outcomes, doubted = tried(rules, trace.seconds[:origin], rest, node_of, before, progress)
        doubts |= dict.fromkeys(doubted)
        for name, rounds in outcomes.items():
            parts[name].append(rounds)
    joined = {name: Rounds.joined(several) for name, several in parts.items()}
    groups = len(np.unique(node_of))
    return Comparison(
        trace, first, warm_up, groups, trace.node_of is None, Rounds.joined(every), joined, len(origins), tuple(doubts)
    )
