"""Properties that an outcome must have before a comparison of it says anything; docstrings are shown where one is missing."""

from collections.abc import Callable

import numpy as np

from fred.outcomes.outcome import Outcome
from fred.running.execution import execute
from fred.schedule.schedule import NONE, Verb, What
from fred.specification.shape import Run
from tests.worlds import rows_of

Property = Callable[[Outcome], bool]


def changed(outcome: Outcome) -> bool:
    """Return True if the model that is evaluated changes at least five times."""
    schedule = outcome.schedule
    changes = schedule.rows(Verb.PUSH, Verb.COMMIT, Verb.SYNC)
    answer = outcome.run.protocol.layout(outcome.run.cluster).answer
    return int(np.isin(schedule["replica"][changes], list(answer)).sum()) >= 5


def moved(outcome: Outcome) -> bool:
    """Return True if some parameter moves by 0.1."""
    return max(float(np.abs(final - outcome.initial[k]).max()) for k, final in outcome.final.items()) > 0.1


def has_bytes(outcome: Outcome) -> bool:
    """Return True if messages have bytes."""
    schedule = outcome.schedule
    return bool((schedule["bytes"] > 0).any() and (schedule["messages"] > 0).any())


def fresh(outcome: Outcome) -> bool:
    """Return True if no gradient is stale."""
    schedule = outcome.schedule
    return not schedule["staleness"][schedule.ledger.uses].any()


def stale(outcome: Outcome) -> bool:
    """Return True if at least five gradients or pseudo-gradients are stale."""
    schedule = outcome.schedule
    return int((schedule["staleness"][schedule.ledger.uses] > 0).sum()) >= 5


def stale_in_rounds(outcome: Outcome) -> bool:
    """Return True if rounds have stale and fresh gradients in them."""
    schedule = outcome.schedule
    staleness = schedule["staleness"][schedule.rows(Verb.ADD)]
    return bool((staleness > 0).any() and (staleness == 0).any())


def meets(outcome: Outcome) -> bool:
    """Return True if replicas meet other models at least three times."""
    models: dict[int, set[int]] = {}  # mailbox -> the replicas whose models are in it
    meetings = 0
    for row in rows_of(outcome.schedule):
        if row.verb == "PULL":
            models.setdefault(row.mailbox, set()).add(row.replica)
        elif row.verb == "MIX":
            models.setdefault(row.mailbox, set()).update(models[row.source])
        elif row.verb == "SYNC":
            meetings += models[row.mailbox] != {row.replica}
    return meetings >= 3


def drops(outcome: Outcome) -> bool:
    """Return True if work is dropped."""
    return len(outcome.schedule.rows(Verb.DROP)) > 0


def has_blocks(outcome: Outcome) -> bool:
    """Return True if the parameters are cut into blocks, each of which changes."""
    schedule = outcome.schedule
    changes = schedule.rows(Verb.PUSH, Verb.COMMIT)
    return schedule.blocks > 1 and set(schedule["block"][changes].tolist()) == set(range(schedule.blocks))


def pseudo_gradients(outcome: Outcome) -> bool:
    """Return True if pseudo-gradients are sent."""
    schedule = outcome.schedule
    return bool((schedule["step"][schedule.rows(Verb.PUSH, Verb.ADD)] == NONE).any())


def workers_rejoin(outcome: Outcome) -> bool:
    """Return True if workers crash and come back."""
    intervals = outcome.schedule.intervals.select(What.AWAY)
    return bool((intervals.end_ns < outcome.schedule.end_ns).any())


def rounds_vary(outcome: Outcome) -> bool:
    """Return True if rounds have different numbers of gradients."""
    return len(set(_per_round(outcome))) > 1


def rounds_alike(outcome: Outcome) -> bool:
    """Return True if all rounds have the same number of gradients."""
    return len(set(_per_round(outcome))) == 1


def cuts_off(outcome: Outcome) -> bool:
    """Return True if rounds go on without somebody."""
    return min(_per_round(outcome)) < outcome.run.cluster.size


def coded(outcome: Outcome) -> bool:
    """Return True if coded messages are shorter, and lead to other parameters."""
    uncoded = _run_uncoded(outcome.run, outcome.seed)
    rows = outcome.schedule.rows(Verb.PUSH, Verb.ADD)
    sizes = [result.schedule["bytes"][rows].sum() for result in (outcome, uncoded)]
    return sizes[0] < sizes[1] and outcome.params_digest != uncoded.params_digest


def reused(outcome: Outcome) -> bool:
    """Return True if some gradients are used more than once."""
    gradients = outcome.schedule.ledger.gradients
    return len(np.unique(gradients)) < len(gradients)


def gathers(outcome: Outcome) -> bool:
    """Return True if some updates are made of several gradients."""
    return max(_per_round(outcome), default=0) > 1


def _per_round(outcome: Outcome) -> list[int]:
    """Return the number of gradients in each round."""
    schedule = outcome.schedule
    adds, commits = schedule.rows(Verb.ADD), schedule.rows(Verb.COMMIT)
    return np.diff(np.searchsorted(adds, commits), prepend=0).tolist()


_UNCODED = list[Outcome]()  # codecs share a run without one


def _run_uncoded(run: Run, seed: int) -> Outcome:
    """Return the outcome of the run without its codec."""
    run_without_codec = run.model_copy(update={"algorithm": run.algorithm.model_copy(update={"codec": None})})
    if not any(outcome.run == run_without_codec for outcome in _UNCODED):
        _UNCODED.append(execute("run", run_without_codec, seed))
    return next(outcome for outcome in _UNCODED if outcome.run == run_without_codec)
