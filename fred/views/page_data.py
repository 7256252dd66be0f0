"""The data of the HTML report: curves, the replay of workers, and histograms of staleness.

A curve has the mean of a run over the seeds, and their range, along each axis. A replay has the workers' activities, updates
and staleness in a window of each timing. The histograms are those of the figures, drawn as SVG for the report.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base.errors import briefly
from fred.base.types import Ints
from fred.components.component import NANOSECONDS
from fred.outcomes.outcome import Outcome
from fred.outcomes.tables import Tables, keys_of, staleness_counts, value_texts
from fred.schedule import staleness
from fred.schedule.schedule import Schedule, Verb
from fred.schedule.spans import first_absence, spans
from fred.views.table import NONE
from fred.views.view import COLOURS, MEASURED

AXES = {
    "virtual_seconds": "virtual time, s",
    "updates": "updates",
    "gradients": "gradients",
    "tokens": "tokens",
    "megabytes": "sent, MB",
    "cost": "cost",
    "energy_kwh": "energy, kWh",
}
_COUNTS = {"gradients": "gradients", "updates": "updates"}  # quantities of runs without a task
_NUMBERS = 60_000  # numbers on the page, of about seven letters each
_MOST_POINTS, _FEWEST_POINTS = 160, 12  # points of a curve
_RUNS, _LINES = 48, 24  # largest numbers of runs, and of lines of a sweep
_TIMINGS, _WORKERS = 8, 32  # largest numbers drawn
_SPANS = 12_000  # spans on the page, in all timings together
_TICKS = 250_000  # time steps in a window
_BEFORE = 1 / 3  # share of the window before the first fault, if the window does not start at 0
_BINS = 60
_LARGEST_RATIO = 6  # scales are common unless the largest value of one histogram is more than 6 times that of another
_SHORTEST_AXIS = 4  # updates; an axis is at least this long
_MOST_HISTOGRAMS = 12  # largest number of histograms
_MOST_NAMES = 3  # largest number of runs that are named together
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 360, 140, 46, 6, 8, 38  # units of the drawing
_HISTOGRAM_TICKS = 4


def curves(tables: Tables) -> dict[str, Any]:
    """Return the axes and quantities with their labels, and the points of each run along each axis.

    The points are x, and for each quantity its mean, least and largest value over the seeds. A curve ends where the first of
    its seeds ends. If there are many runs or evaluations, evenly spaced points are taken.

    Args:
        tables: the tables of the runs; only the first 48 runs are drawn.
    """
    frames: dict[str, list[pd.DataFrame]] = {}
    sent: dict[str, NDArray[np.float64]] = {}  # by timing
    names = list(dict.fromkeys(outcome.name for outcome in tables.outcomes))
    for outcome in tables.outcomes:
        if outcome.name not in names[:_RUNS]:
            continue
        if outcome.schedule_digest not in sent:
            sent[outcome.schedule_digest] = megabytes(outcome.schedule)
        metrics, traffic = outcome.metrics, sent[outcome.schedule_digest]
        updates = np.clip(metrics["updates"].to_numpy(np.int64), 0, len(traffic) - 1)
        frames.setdefault(outcome.name, []).append(metrics.assign(megabytes=traffic[updates]))
    everything = [frame for run_frames in frames.values() for frame in run_frames]
    axes = {name: label for name, label in AXES.items() if any(_varies(frame, name) for frame in everything)}
    learned = {name: label for name, label in MEASURED.items() if any(_varies(frame, name) for frame in everything)}
    quantities = learned or _COUNTS
    numbers_a_point = 1 + 3 * len(quantities)  # x, and the mean, least and largest value of each quantity
    points = int(np.clip(_NUMBERS / max(1, len(frames) * len(axes) * numbers_a_point), _FEWEST_POINTS, _MOST_POINTS))
    run_curves = {
        name: {
            axis: _curve(run_frames, axis, list(quantities), points)
            for axis in axes
            if all(_varies(frame, axis) for frame in run_frames)
        }
        for name, run_frames in frames.items()
    }
    return {"axes": axes, "quantities": quantities, "runs": run_curves, "points": points, "of": len(names)}


def megabytes(schedule: Schedule) -> NDArray[np.float64]:
    """Return the total traffic at the time of each update, MB, [updates + 1]; the first entry, 0, is before any update.

    Args:
        schedule: the schedule of any run; if parameters are in blocks, an update is complete when all blocks are updated.
    """
    sent = np.cumsum(schedule["bytes"].astype(np.float64)) / 1e6
    return np.concatenate(([0.0], sent[schedule.ledger.every_update[schedule.blocks - 1 :: schedule.blocks]]))


def _varies(frame: pd.DataFrame, name: str) -> bool:
    """Return True if a column has something to draw: a finite value, which for an axis must be above 0."""
    if name not in frame:
        return False
    values = frame[name].to_numpy(np.float64)
    return bool(np.isfinite(values).any() and (name in MEASURED or np.nanmax(values) > 0))


def _curve(seeds: Sequence[pd.DataFrame], axis: str, quantities: list[str], most: int) -> dict[str, Any]:
    """Return the mean, least and largest value over the seeds, at up to `most` points where some seed was evaluated."""
    reach = min(float(frame[axis].max()) for frame in seeds)
    evaluated = np.unique(np.concatenate([frame[axis].to_numpy(np.float64) for frame in seeds]))
    evaluated = evaluated[evaluated <= reach]
    x = evaluated[np.unique(np.linspace(0, len(evaluated) - 1, most).round().astype(int))]
    curve: dict[str, Any] = {"x": numbers(x)}
    for quantity in quantities:
        measured = [frame for frame in seeds if quantity in frame]
        if len(measured) < len(seeds):
            continue
        values = np.stack([_interpolate(x, frame, axis, quantity) for frame in measured])
        curve[quantity] = [numbers(part) for part in (values.mean(axis=0), values.min(axis=0), values.max(axis=0))]
        if len(measured) == 1:  # the least and the largest value would repeat the mean
            curve[quantity] = curve[quantity][:1]
    return curve


def _interpolate(x: NDArray[np.float64], rows: pd.DataFrame, axis: str, quantity: str) -> NDArray[np.float64]:
    """Interpolate a quantity at `x` between its evaluations; if several are at one point, the last counts."""
    rows_at_x = rows[~rows[axis].duplicated(keep="last")]
    with np.errstate(invalid="ignore"):
        return np.interp(x, rows_at_x[axis].to_numpy(np.float64), rows_at_x[quantity].to_numpy(np.float64))


def numbers(values: NDArray[np.float64]) -> list[float | int | None]:
    """Return numbers for JSON: rounded to five digits (six from 10,000 on), and None for those that are not finite.
    >>> numbers(np.array([0.1234567, 40.0, np.inf]))
    [0.12346, 40, None]
    """
    rounded = [
        float(f"{value:.6g}" if abs(value) >= 10_000 else f"{value:.5g}") if np.isfinite(value) else None for value in values
    ]
    return [int(value) if value is not None and value.is_integer() and abs(value) < 2**53 else value for value in rounded]


def sweep(tables: Tables) -> dict[str, Any] | None:
    """Return the criterion at every point against the numeric setting with the most values.

    Return None if there is no sweep, or no numeric setting in it. There is one line for each run and combination of the other
    settings, and at most 24 lines.

    Args:
        tables: the tables of the runs.
    """
    if not tables.swept:
        return None
    points = tables.sweep
    keys = keys_of(points)
    value_counts = {key: points[key].nunique() for key in keys if pd.api.types.is_numeric_dtype(points[key])}
    if not value_counts or max(value_counts.values()) < 2:
        return None
    axis_key = max(value_counts, key=lambda key: value_counts[key])
    other_keys = ["run", *(key for key in keys if key != axis_key)]
    lines = {}
    for values, rows in points.dropna(subset=[axis_key]).groupby(other_keys, sort=False, dropna=False):
        settings = zip(other_keys[1:], value_texts(values[1:]), strict=True)
        words = [f"{key.rsplit('.', 1)[-1]} {value}" for key, value in settings if value != NONE]
        points_of_line = rows.sort_values(axis_key)
        bands = [numbers(points_of_line[part].to_numpy(np.float64)) for part in ("mean", "least", "largest")]
        x = numbers(points_of_line[axis_key].to_numpy(np.float64))
        lines[", ".join([str(values[0]), *words])] = {"value": {"x": x, "criterion": bands}}
    swept = np.unique(points[axis_key].dropna().to_numpy(np.float64))
    return {
        "axes": {"value": axis_key},
        "quantities": {"criterion": tables.scenario.criterion.column.replace("_", " ")},
        "runs": dict(list(lines.items())[:_LINES]),
        "points": 0,
        # for a logarithmic axis
        "geometric": bool(len(swept) > 2 and swept[0] > 0 and swept[-1] > 20 * swept[0]),
    }


def replays(tables: Tables) -> list[dict[str, Any]]:
    """Return a replay of each different timing with a clock, for the first seed.

    A replay has the spans of the first workers, the updates, and the staleness of gradients, in a window from the start of the
    run or from shortly before the first fault. It says which part of its run it shows. There are at most eight timings, 32
    workers in each, and 12,000 spans in all.

    Args:
        tables: the tables of the runs.
    """
    sharing: dict[str, list[Outcome]] = {}
    for outcome in tables.outcomes:
        if outcome.has_clock and outcome.seed == tables.scenario.reported_seeds[0]:
            sharing.setdefault(outcome.schedule_digest, []).append(outcome)
    timings = list(sharing.values())[:_TIMINGS]
    most = _SPANS // max(1, len(timings))
    return [
        _replay(outcomes[0].schedule, [outcome.name for outcome in outcomes], outcomes[0].seed, most) for outcomes in timings
    ]


def _replay(schedule: Schedule, names: list[str], seed: int, most: int) -> dict[str, Any]:
    """Return the replay of one timing, in ticks from the beginning of its window: spans and uses of gradients, and updates."""
    account = spans(schedule, _WORKERS)
    begin, end = window(schedule, account, most)
    is_visible = (account["end_ns"] > begin) & (account["begin_ns"] < end)
    visible = account[is_visible].head(2 * most)  # a window from a fault on may hold more than the `most` of one from 0 on
    scale = _TICKS / max(1, end - begin)

    def ticks(times: Any) -> list[int]:
        return [round(value) for value in (np.asarray(times).clip(begin, end) - begin) * scale]

    uses = schedule.rows(Verb.PUSH, Verb.ADD)
    times, stale = schedule["time_ns"][uses], staleness.of_gradients(schedule)
    updates = schedule["time_ns"][schedule.ledger.every_update]
    shown_uses = np.flatnonzero((times >= begin) & (times <= end))
    shown_updates = updates[(updates >= begin) & (updates <= end)]
    # one event is drawn of each group of this number
    thin_uses, thin_updates = (max(1, math.ceil(len(events) / most)) for events in (shown_uses, shown_updates))
    return {
        "runs": names,
        "seed": seed,
        "workers": min(_WORKERS, schedule.workers),
        "of": schedule.workers,
        "begin": begin / NANOSECONDS,
        "end": end / NANOSECONDS,
        "until": schedule.end_ns / NANOSECONDS,
        "ticks": _TICKS,
        "spans": [
            visible["worker"].tolist(),
            ticks(visible["begin_ns"]),
            ticks(visible["end_ns"]),
            visible["kind"].cat.codes.tolist(),
        ],
        "updates": ticks(shown_updates[::thin_updates]),
        "before": int((updates < begin).sum()),
        "thin": thin_updates,
        "uses": [
            ticks(times[shown_uses[::thin_uses]]),
            schedule["worker"][uses[shown_uses[::thin_uses]]].tolist(),
            stale[shown_uses[::thin_uses]].tolist(),
        ],
    }


def window(schedule: Schedule, account: pd.DataFrame, most: int) -> tuple[int, int]:
    """Return the begin and end of a replay, ns. It is as long as the first `most` spans of the run.

    It starts at 0, or shortly before the first fault if that comes after the first window.

    Args:
        schedule: the schedule of a run with a clock.
        account: the spans of its workers.
        most: largest number of spans.
    """
    begins = np.sort(account["begin_ns"].to_numpy())
    length = int(begins[most]) if len(begins) > most else schedule.end_ns
    length = max(1, length)
    absence = first_absence(schedule, range(_WORKERS))
    fault = absence[0] if absence and absence[0] < schedule.end_ns else 0
    if fault <= length:
        return 0, length
    begin = fault - int(_BEFORE * length)
    return begin, min(begin + length, schedule.end_ns)


class Histogram(NamedTuple):
    """A histogram of staleness, and where its axes end.

    Args:
        heights: height of each bar, % of the gradients.
        edges: edges of the bars, updates [bars + 1].
        mean: mean staleness, updates.
        largest: largest staleness, updates.
        right: largest staleness on the axis, updates.
        top: largest height on the axis, %.
    """

    heights: NDArray[np.float64]
    edges: NDArray[np.float64]
    mean: float
    largest: int
    right: float
    top: float

    @property
    def summary(self) -> str:
        """Return the mean and the largest staleness, and how many updates a bar stands for if there are several."""
        width = round(float(self.edges[1] - self.edges[0]))
        bars = f", {width} updates a bar" if width > 1 else ""
        return f"mean {self.mean:.1f}, max {self.largest:,}{bars}"


def histograms(counts: Sequence[NDArray[np.int64]]) -> list[Histogram]:
    """Return histograms to show next to each other, with at most sixty bars each.

    All have the same axes, unless the largest value of one is more than six times that of another.

    Args:
        counts: for each histogram the number of gradients of each staleness, from 0 to the largest, updates [largest + 1]; at
            least one gradient.

    >>> (histogram,) = histograms([np.array([1, 3])])
    >>> histogram.heights.tolist(), histogram.summary
    ([25.0, 75.0], 'mean 0.8, max 1')
    """
    rights = [max(end, _SHORTEST_AXIS) for end in _axis_ends([len(gradients) - 1 for gradients in counts])]
    widths = [max(1, -(-int(right + 1) // _BINS)) for right in rights]  # updates
    bars = [_bars(gradients, width) for gradients, width in zip(counts, widths, strict=True)]
    tops = _axis_ends([float(heights.max()) for heights, _ in bars])
    means = [float(np.average(np.arange(len(gradients)), weights=gradients)) for gradients in counts]
    return [
        Histogram(heights, edges, mean, largest=len(gradients) - 1, right=right, top=top)
        for (heights, edges), mean, gradients, right, top in zip(bars, means, counts, rights, tops, strict=True)
    ]


def _bars(counts: NDArray[np.int64], width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the heights, %, and the edges of bars of this width, updates."""
    heights: NDArray[np.float64] = np.add.reduceat(100 * counts / counts.sum(), np.arange(0, len(counts), width))
    return heights, width * np.arange(len(heights) + 1, dtype=np.float64) - 0.5


def _axis_ends(values: Sequence[float]) -> list[float]:
    """Return the end of each panel's axis: the largest of all values, unless that would hide the smallest."""
    return list(values) if max(values) > _LARGEST_RATIO * min(values) else [max(values)] * len(values)


def of_gradients(tables: Tables) -> str:
    """Return a histogram for each timing with stale gradients, all seeds together. Other runs are only named.

    Args:
        tables: the tables of the runs; of a sweep, only the best points are drawn.
    """
    tables = tables.with_its_best()
    runs = list(dict.fromkeys(outcome.name for outcome in tables.outcomes))
    counts = staleness_counts(tables.outcomes)
    stale = {names: gradients for names, gradients in counts.items() if len(gradients) > 1}
    stale_names = list(stale)[:_MOST_HISTOGRAMS]
    panels = zip(stale_names, histograms([stale[names] for names in stale_names]), strict=True) if stale_names else ()
    figures = "".join(_figure(names, gradients, COLOURS[runs.index(names[0]) % len(COLOURS)]) for names, gradients in panels)
    return f'<div class="histograms">{figures}</div><p class="note">{escape(" ".join(_notes(counts, len(stale))))}</p>'


def _notes(counts: Mapping[tuple[str, ...], Ints], stale: int) -> Iterator[str]:
    """Yield the notes below the histograms; `stale` is the number of timings with stale gradients."""
    if stale:
        yield "Updates between the read of the parameters and the use of the gradient; all used gradients, all seeds together."
    for label, size in (("Staleness 0 throughout", 1), ("No gradient was used", 0)):
        names = [name for names, gradients in counts.items() if len(gradients) == size for name in names]
        if names:
            yield f"{label}: {briefly(names, _MOST_NAMES)}."
    if stale > _MOST_HISTOGRAMS:
        yield f"{stale - _MOST_HISTOGRAMS} more timings are not drawn."


def _figure(names: Sequence[str], histogram: Histogram, colour: str) -> str:
    """Return one histogram with its caption."""
    base, right, shapes = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT, list[str]()
    for tick in _ticks(histogram.top):
        y = _vertical_place(tick, histogram.top)
        shapes.append(f'<path d="M{_LEFT} {y:.1f}H{right}" class="grid"/>')
        shapes.append(f'<text x="{_LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{tick:g} %</text>')
    corners = "".join(
        f"V{_vertical_place(height, histogram.top):.1f}H{_horizontal_place(edge, histogram.right):.1f}"
        for height, edge in zip(histogram.heights, histogram.edges[1:], strict=True)
    )
    shapes.append(
        f'<path d="M{_LEFT} {base}{corners}V{base}Z" fill="{colour}"/><path d="M{_LEFT} {base}H{right}" class="axis"/>'
    )
    for tick in (tick for tick in _ticks(histogram.right) if tick == int(tick)):
        shapes.append(
            f'<text x="{_horizontal_place(tick, histogram.right):.1f}" y="{base + 14}" text-anchor="middle">{tick:,g}</text>'
        )
    shapes.append(f'<text x="{(_LEFT + right) / 2:g}" y="{_HEIGHT - 6}" text-anchor="middle">staleness, updates</text>')
    svg = (
        f'<svg class="histogram" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="staleness: {histogram.summary}">'
        f"{''.join(shapes)}</svg>"
    )
    return f"<figure><figcaption>{escape(briefly(names, _MOST_NAMES))}: {histogram.summary}</figcaption>{svg}</figure>"


def _horizontal_place(value: float, end: float) -> float:
    """Return the horizontal place of a staleness on an axis up to `end`."""
    return _LEFT + (value + 0.5) / (end + 1) * (_WIDTH - _RIGHT - _LEFT)


def _vertical_place(value: float, end: float) -> float:
    """Return the vertical place of a percentage on an axis up to `end`."""
    return _HEIGHT - _BOTTOM - value / end * (_HEIGHT - _BOTTOM - _TOP)


def _ticks(end: float) -> list[float]:
    """Return round numbers from 0 to `end`, at most five."""
    least_step = end / _HISTOGRAM_TICKS
    power = 10.0 ** math.floor(math.log10(least_step))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least_step)
    return [round(tick, 6) for tick in np.arange(0, end + step / 1000, step).tolist()]
