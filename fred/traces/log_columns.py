"""Columns of logs by their names and units: numbers of steps, times of steps, phases of steps, and rates."""

import re
from collections.abc import Sequence
from functools import lru_cache

from fred.tables import quantities
from fred.traces.roles import STEP_RATE, WORK_RATE, is_communication, is_mean, to_snake_case, unit_of

_STEP = re.compile(r"(?:.*?_)??(global_step|iteration|iter|step|it|num_updates|update|batch|round|i)")
STEPS = ("global_step", "iteration", "iter", "step", "it", "num_updates", "update", "batch", "round", "i")  # first preferred
_NOT_A_STEP = re.compile(
    r"(?:^|_)(?:micro|accum\w*|eval\w*|val\w*|test|sav\w*|ckpt|checkpoint|total|max|start|last|from|warmup)_"
)
_STEP_TIME = re.compile(r"(?:^|_)(?:step|steps|iter|iters|iteration|iterations|batch|it|end_to_end)(?:_|$)")
_TIME = re.compile(
    r"(?:(?:train|training|wall|total)_)?(?:seconds|time|times|dt|duration|dur|took|elapsed|elapsed_time|latency|timing|in"
    r"|t|s|ms|sec|secs)"
)
_COMPUTE = re.compile(r"(?:^|_)(?:compute|computation|computing|own|self|busy)(?:_|$)")
_NOT_A_TIME = re.compile(
    r"(?:^|_)(?:eta|remain\w*|left|since|clock|date|data\w*|load\w*|eval\w*|val\w*|test|sav\w*|ckpt|checkpoint\w*"
    r"|compil\w*|init\w*|startup|epoch|lr|loss|microstep)(?:_|$)"
)
_CLOCK = re.compile(r"(?:^|_)(?:elapsed|wall|clock|uptime|runtime|since|total|timestamp|ts)(?:_|$)")
_PHASE = re.compile(
    r"data(?:_?loa\w*|_time)?|load\w*|h2d|fwd|forward(?:_compute)?|bwd(?:_inner)?|backward(?:_compute|_inner)?|forward_backward"
    r"|optim\w*|step|update"
)
UNITS = rf"(?:{'|'.join(quantities.WORDS.values())})"
_WITH_UNIT = re.compile(rf"[-+\d.,eE]+ {UNITS}(/\w+)?")


def step_word(name: str) -> str:
    """Return the word for a step at the end of a name; empty if there is none.

    Args:
        name: name of a column.

    >>> step_word("completed step"), step_word("global_step"), step_word("micro_step"), step_word("skipped iterations")
    ('step', 'global_step', '', '')
    """
    words = to_snake_case(name)
    match = _STEP.fullmatch(words)
    return match[1] if match and not _NOT_A_STEP.search(words) else ""


@lru_cache(4096)
def is_evaluation_step(name: str) -> bool:
    """Return True for the number of a step of an evaluation.

    Args:
        name: name of a column.
    """
    words = to_snake_case(name)
    return re.match(r"(?:eval\w*|val\w*|test)_", words) is not None and _STEP.fullmatch(words) is not None


def is_duration(name: str, sample: str) -> bool:
    """Return True for a column of durations.

    Args:
        name: name of the column.
        sample: one of its values.

    >>> is_duration("dt", "402.1 ms"), is_duration("elapsed time per iteration (ms)", "402.1"), is_duration("tokens/s", "402.1")
    (True, True, False)
    """
    if re.fullmatch(r"[-+.\d,eE]+ \S+", sample):
        return has_unit(sample)
    words = to_snake_case(name)
    if STEP_RATE.fullmatch(words) or WORK_RATE.fullmatch(words):
        return False
    return unit_in(name) is not None or _TIME.fullmatch(words) is not None or words.endswith("_time")


def unit_in(name: str) -> quantities.Unit | None:
    """Return the unit in a name, also before a slash; None if there is none.

    Args:
        name: name of a column.

    >>> unit_in("step_time_ms"), unit_in("timing_s/step"), unit_in("Tokens/s/device")
    ('ms', 's', None)
    """
    return unit_of(name) or next((unit for part in name.split("/")[:-1] if (unit := unit_of(part))), None)


def is_clock(name: str) -> bool:
    """Return True for the name of a time since a begin.

    Args:
        name: name of a column.
    """
    return _CLOCK.search(to_snake_case(name)) is not None


def has_unit(sample: str) -> bool:
    """Return True for a number with a unit of time.

    Args:
        sample: such as `402.1 ms` or `0.4 s/step`.
    """
    return _WITH_UNIT.fullmatch(sample) is not None


def step_times(durations: Sequence[str]) -> list[str]:
    """Return the columns that are most probably the time of a step: compute times before step times before others.

    Args:
        durations: columns of durations.

    >>> step_times(["eta", "data_time", "time"]), step_times(["step_time", "compute_time", "allreduce_time"])
    (['time'], ['compute_time'])
    """
    scores = dict[str, int]()
    for name in durations:
        words = _strip_unit(name)
        is_compute = _COMPUTE.search(words) is not None
        if is_communication(name) or (_NOT_A_TIME.search(words) and not is_compute and "end_to_end" not in words):
            continue
        score = 8 if is_compute else 6 if _STEP_TIME.search(words) else 4 if _TIME.fullmatch(words) else 2
        scores[name] = score - is_mean(name)
    return [name for name, score in scores.items() if score == max(scores.values())]


def step_phases(durations: Sequence[str]) -> list[str]:
    """Return the columns that together are the time of a step, if forward and backward passes are among them.

    Args:
        durations: columns of durations.

    >>> step_phases(["fwd (ms)", "bwd (ms)", "bwd_inner (ms)", "bwd_allreduce (ms)", "step (ms)"])
    ['fwd (ms)', 'bwd_inner (ms)', 'step (ms)']
    """
    names = {name: _strip_unit(name).removesuffix("_time") for name in durations}
    phases = {name: words for name, words in names.items() if _PHASE.fullmatch(words)}
    if not any(words.startswith(("fwd", "forward")) for words in phases.values()):
        return []
    if not any(re.search("bwd|backward", words) for words in phases.values()):
        return []
    has_inner = any(words.endswith("_inner") for words in phases.values())
    return [name for name, words in phases.items() if not (has_inner and words in ("bwd", "backward"))]


def _strip_unit(name: str) -> str:
    return re.sub(rf"_(?:in_)?{UNITS}$", "", to_snake_case(name)) if unit_of(name) else to_snake_case(name)
