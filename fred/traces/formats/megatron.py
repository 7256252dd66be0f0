"""Times of each rank in the log of Megatron-LM: the blocks `times across ranks (ms):` of `--timing-log-option all`.

With `--timing-log-level 2` the own time of a rank is that of `forward-compute` and `backward-compute`; without these, its whole
`forward-backward` counts, which includes waiting for other ranks. Two further blocks have no table of ranks: `(min, max) time
across ranks`, and the straggler report with its fastest and slowest rank. They are refused with what they do tell
[Megatron-LM, `megatron/core/timers.py` and `README_STRAGGLER.md`].
"""

import re
from collections import Counter, defaultdict
from dataclasses import replace

from fred.base.errors import FredError, listed
from fred.tables.columns import table_from_columns
from fred.tables.content import Content
from fred.traces import long_tables
from fred.traces.cells import Cells
from fred.traces.roles import FileOptions

NAME = "Megatron-LM timers"
_CURE = "log the times of each rank: `--timing-log-level 2 --timing-log-option all`"
_BLOCK = re.compile(r"(?P<kind>\(min, max\) |max )?times? across ranks \((?P<unit>\w+)\):")
_ITERATION = re.compile(r"\biteration\s*[=:]?\s*(\d{1,18})\s*/")
_TIMER = re.compile(r"(?P<name>[A-Za-z][\w/-]*)\s*\.*:\s*(?:\((?P<least>\d+(?:\.\d*)?), (?P<most>\d+(?:\.\d*)?)\))?\s*$")
_RANK = re.compile(r"\brank\s+(\d{1,9}):\s+(\d+(?:\.\d*)?)\s*$")
_REPORT = re.compile(r"MnRtt/Rnk: (\d+(?:\.\d*)?)ms/(\d+) \| MxRtt/Rnk: (\d+(?:\.\d*)?)ms/(\d+)")
_MARK = re.compile(rb"\btimes across ranks \(|M[nx]Rtt/Rnk: |time across ranks \(ms\):\s*\n[^\n]*\b(?:forward|backward)")
_COMPUTE_TIMERS, _STEP_TIMERS = ("forward-compute", "backward-compute"), ("forward-backward", "optimizer")


def sniff(file: Content) -> bool:
    """Return True for a log with timers across ranks, or with straggler reports.

    Args:
        file: the content of the file.
    """
    is_likely = any(mark in file.data for mark in (b"across ranks (", b"Rtt/Rnk: "))  # a pattern is slow in large files
    return file.kind == "text" and is_likely and _MARK.search(file.data) is not None


def read(file: Content, options: FileOptions) -> Cells:
    """Return the times of all ranks. Raises FredError, also for a log that does not have them.

    Args:
        file: the content of the log.
        options: options from the user.
    """
    times, unit = _times(file)
    if not times:
        raise FredError(_describe_without_ranks(file))
    timers = {timer for _, _, timer in times}
    groups = (_COMPUTE_TIMERS, _STEP_TIMERS, _STEP_TIMERS[:1])
    timers_used = next((group for group in groups if timers.issuperset(group)), tuple(sorted(timers)))
    sums, lines = defaultdict[tuple[int, int], list[float]](list), dict[tuple[int, int], int]()
    for (iteration, rank, timer), (value, line) in times.items():
        if timer in timers_used:
            sums[iteration, rank].append(value)
            lines[iteration, rank] = line
    keys = [key for key, values in sums.items() if len(values) == len(timers_used)]
    columns = {
        "iteration": [iteration for iteration, _ in keys],
        "rank": [rank for _, rank in keys],
        "time": [f"{sum(sums[key])!r} {unit}" for key in keys],
    }
    table = table_from_columns(file.path, columns, lambda row: f"{file.path}:{lines[keys[row]]}")
    cells = long_tables.read_cells(table, replace(options, columns={}, unit=None))
    waiting = "" if timers_used == _COMPUTE_TIMERS else ", waiting for others included; `--timing-log-level 2` separates it"
    return replace(cells, notes=(f"{NAME}: sum of {listed(timers_used)}{waiting}",))


def _times(file: Content) -> tuple[dict[tuple[int, int, str], tuple[float, int]], str]:
    """Return time and line by iteration, rank and timer, and the unit of the times."""
    times, unit = dict[tuple[int, int, str], tuple[float, int]](), "ms"
    iteration, timer, is_inside = -1, "", False
    for number, text in enumerate(file.text.splitlines(), 1):
        if match := _ITERATION.search(text):
            iteration, is_inside = int(match[1]), False
        elif match := _BLOCK.search(text):
            is_inside, timer, unit = not match["kind"], "", match["unit"]
        elif is_inside and (match := _RANK.search(text)):
            if iteration >= 0 and timer:
                times[iteration, int(match[1]), timer] = float(match[2]), number
        elif is_inside and (match := _TIMER.search(text)):
            timer = match["name"]
    return times, unit


def _describe_without_ranks(file: Content) -> str:
    """Describe what a log without the times of all ranks tells, and how to record them."""
    if reports := _REPORT.findall(file.text):
        (slowest, number), *_ = Counter(rank for *_, rank in reports).most_common(1)
        factor = sum(float(most) for _, _, most, _ in reports) / max(sum(float(least) for least, *_ in reports), 1e-9)
        often = f"rank {slowest} is the slowest in {number} of {len(reports)}"
        return (
            f"{file.path} has Megatron-LM's straggler reports, with the fastest and the slowest rank only: {often}, and it "
            f"takes {factor:.3g} times as long as the fastest. For what a remedy gains, {_CURE}"
        )
    spread = dict[str, list[float]]()
    is_inside = False
    for text in file.text.splitlines():
        if match := _BLOCK.search(text):
            is_inside = bool(match["kind"])
        elif is_inside and (match := _TIMER.search(text)) and match["most"] and float(match["least"]) > 0:
            spread.setdefault(match["name"], []).append(float(match["most"]) / float(match["least"]))
    passes = [name for name in ("forward-compute", "backward-compute", "forward-backward") if name in spread]
    slowest = (
        f": in `{passes[0]}` the slowest takes {sum(spread[passes[0]]) / len(spread[passes[0]]):.3g} times as long"
        if passes
        else ""
    )
    return f"{file.path} has the least and the longest time of Megatron-LM's timers, not that of each rank{slowest}; {_CURE}"
