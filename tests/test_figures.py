"""Pictures say what the data say: lines, bands, bars and ticks against plain loops over metrics, schedules and summaries."""

import bisect
import dataclasses
import math
import statistics
from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from fred.errors import FredError
from fred.results import experiment, folder
from fred.results.result import Result
from fred.specification.loading import Scenario
from fred.views.figures import Picture
from tests.laws import stretches
from tests.worlds import COMPUTE, make_run, stale_gradients

NETWORK = {"latency": {"name": "constant", "seconds": 0.03}, "message_bytes": 4000}
CLUSTER = {"workers": 4, "compute": COMPUTE, "network": NETWORK}
BLUE, RED, PURPLE, GREY, DARK = "#56b4e9", "#d55e00", "#cc79a7", "#d0d0d0", "#5b5b5b"
COLOURS_OF_TIME = {"computing": BLUE, "in_vain": RED, "network": PURPLE, "waiting": GREY, "away": DARK}


def result_of(runs: dict[str, dict], seeds: tuple[int, ...] = (1,), title: str = "") -> Result:
    """These runs, each with every seed."""
    return experiment.run(Scenario(title=title, seeds=seeds, runs={name: make_run(**run) for name, run in runs.items()}))


@pytest.fixture(scope="module")
def learned() -> Result:
    """Three runs of which one has no clock, three seeds."""
    runs = {
        "at once": {"algorithm": "asgd", "cluster": CLUSTER},
        "in step": {"algorithm": "ssgd", "cluster": CLUSTER, "protocol": {"backup_workers": 1}},
        "no clock": {"algorithm": "asgd", "cluster": CLUSTER, "protocol": "dispatcher"},
    }
    return result_of({name.replace(" ", "-"): run for name, run in runs.items()}, (3, 1, 2), "What $it$ _shows_")


@pytest.fixture(scope="module")
def untrained() -> Result:
    """Only timing: nine runs, of which some share theirs."""
    runs: dict[str, dict] = {"dispatched": {"protocol": "dispatcher"}, "asgd": {}, "same": {"algorithm": "sasgd"}}
    runs |= {"backup": {"algorithm": "ssgd", "protocol": {"backup_workers": 1}}, "peers": {"algorithm": "d-psgd"}}
    return result_of({name: {"task": None, "cluster": CLUSTER} | run for name, run in runs.items()}, (3, 1))


def values(metrics: pd.DataFrame, run: str, seed: int, *columns: str) -> list[list[float]]:
    """Columns of one run's metrics with one seed."""
    own = metrics[(metrics["run"] == run) & (metrics["seed"] == seed)]
    return [own[column].to_list() for column in columns]


def between(x: float, xs: list[float], ys: list[float]) -> float:
    """The height at x of the straight lines that join the points."""
    i = min(max(bisect.bisect_right(xs, x), 1), len(xs) - 1)
    share = (x - xs[i - 1]) / (xs[i] - xs[i - 1])
    return ys[i - 1] + min(share, 1) * (ys[i] - ys[i - 1])


def rectangles(axis: Axes) -> list[Rectangle]:
    return [patch for patch in axis.patches if isinstance(patch, Rectangle)]


@pytest.mark.parametrize("quantity", ["loss", "error"])
def test_learning_curves_are_the_mean_of_the_seeds_in_the_band_of_the_seeds(learned, quantity):
    picture: Picture = getattr(learned, f"plot_{quantity}")()
    left, right = picture.axes
    assert (left.get_xlabel(), right.get_xlabel()) == ("updates", "virtual time, s")
    assert (left.get_ylabel(), right.get_ylabel()) == (quantity, "")
    assert picture.get_suptitle() == "What $it$ _shows_"
    (legend,) = picture.legends
    assert [text.get_text() for text in legend.get_texts()] == ["at-once", "in-step", "no-clock"]
    for axis, column in ((left, "updates"), (right, "virtual_seconds")):
        for number, run in enumerate(("at-once", "in-step", "no-clock")):
            line, band = axis.get_lines()[number], axis.collections[number]
            assert line.get_label() == run
            assert to_hex(line.get_color()) == to_hex(left.get_lines()[number].get_color())
            x, y = (np.asarray(each, float) for each in line.get_data())
            if (run, column) == ("no-clock", "virtual_seconds"):
                assert not np.isfinite(x[1:]).any(), "what has no clock has no curve against time"
                continue
            seeds = [values(learned.metrics, run, seed, column, quantity) for seed in (3, 1, 2)]
            assert (x[0], x[-1]) == (0, min(xs[-1] for xs, _ in seeds)), "as far as all seeds reach"
            heights = [sorted(between(at, xs, ys) for xs, ys in seeds) for at in x]
            np.testing.assert_allclose(y, [math.fsum(each) / 3 for each in heights], rtol=1e-9)
            (path,) = band.get_paths()
            corners = np.asarray(path.vertices)
            for at, (low, _, high) in list(zip(x, heights, strict=True))[1:-1:9]:
                edges = corners[np.isclose(corners[:, 0], at, rtol=1e-12)][:, 1]
                assert (edges.min(), edges.max()) == (pytest.approx(low), pytest.approx(high))


def test_one_seed_is_a_line_without_a_band_that_ends_where_the_loss_does(learned):
    outcomes = [each for each in learned.outcomes if each.seed == 3]
    metrics = outcomes[0].metrics.assign(loss=[2.0, 1.0, math.nan, math.nan][: len(outcomes[0].metrics)])
    result_ = Result(learned.scenario, [dataclasses.replace(outcomes[0], metrics=metrics), outcomes[1]])
    left, right = result_.plot_loss().axes
    assert not left.collections
    assert not right.collections
    x, y = (np.asarray(each, float) for each in left.get_lines()[0].get_data())
    assert np.isfinite(y[x < metrics["updates"][1]]).all()
    assert not np.isfinite(y[x > metrics["updates"][1]]).any()


@pytest.mark.parametrize(
    ("losses", "ends", "scales"),
    [
        ([3.0, 1.0, 0.6], (60, 60), ("linear", "linear")),
        ([3.0, 1.0, 0.4], (60, 60), ("log", "linear")),
        ([3.0, 1.0, 0.6], (60, 9), ("linear", "symlog")),
    ],
)
def test_axes_become_logarithmic_where_small_values_would_be_hidden(learned, losses, ends, scales):
    outcomes = []
    for outcome, end in zip([each for each in learned.outcomes if each.seed == 3], ends, strict=False):
        frame = pd.DataFrame({"updates": [0, 5, end], "virtual_seconds": [0.0, 1.0, 2.0], "loss": losses})
        outcomes.append(dataclasses.replace(outcome, metrics=frame))
    axis = Result(learned.scenario, outcomes).plot_loss().axes[0]
    assert (axis.get_yscale(), axis.get_xscale()) == scales


def test_without_a_clock_there_is_no_curve_against_time():
    (axis,) = result_of({"run": {"protocol": "dispatcher"}}).plot_error().axes
    assert axis.get_xlabel() == "updates"


def test_histograms_of_staleness_are_plain_counts(untrained):
    axes = [axis for axis in untrained.plot_staleness().axes if axis.axison]
    shared = {"dispatched": "dispatched", "asgd": "asgd, same", "backup": "backup", "peers": "peers"}
    assert len(axes) == len(shared)
    for axis, (run, name) in zip(axes, shared.items(), strict=True):
        counts: dict[int, int] = {}
        for seed in (3, 1):
            for stale in stale_gradients(untrained.outcome(run, seed).schedule):
                counts[stale] = counts.get(stale, 0) + 1
        total = sum(counts.values())
        mean = sum(stale * count for stale, count in counts.items()) / total
        assert axis.get_title() == f"{name}\nmean {mean:.1f}, max {max(counts)}"
        assert axis.get_ylabel() == "% of gradients"
        drawn = {}
        for bar in rectangles(axis):
            assert bar.get_width() == pytest.approx(1)
            if bar.get_height():
                drawn[round(bar.get_x() + 0.5)] = bar.get_height() * total / 100
        assert drawn == pytest.approx(counts)
    assert [axis.get_xlabel() for axis in axes] == ["", *["staleness, updates"] * 3]


def test_long_histograms_have_wider_bars_that_hold_everything():
    constant = {"name": "constant", "seconds": 1.0}
    outcome = result_of({"run": {"task": None, "cluster": {"workers": 150, "compute": constant}, "stop": {"gradients": 600}}})
    (axis,) = outcome.plot_staleness().axes
    bars = rectangles(axis)
    assert len(bars) <= 61
    assert {round(bar.get_width(), 6) for bar in bars} == {3.0}
    heights = {round(bar.get_x() + 0.5): bar.get_height() * 6 for bar in bars if bar.get_height()}
    # 0, 1, ..., 149 once as the first gradients arrive, then always 149
    assert heights == pytest.approx({3 * i: 3 for i in range(49)} | {147: 3 + 450})


def test_traffic_is_the_mean_of_the_summarys_bytes(untrained):
    picture = untrained.plot_traffic()
    (axis,) = picture.axes
    names = ["dispatched", "asgd", "same", "backup", "peers"]
    assert [label.get_text() for label in axis.get_yticklabels()] == names
    assert axis.get_xlabel() == "sent over the network, MB"
    assert axis.get_ylim()[0] > axis.get_ylim()[1], "the first run on top"
    (legend,) = picture.legends
    assert [text.get_text() for text in legend.get_texts()] == ["to workers", "to servers", "between workers"]
    colours = dict(zip(("workers", "servers", "between_workers"), legend.get_patches(), strict=True))
    drawn = {}
    for bar in rectangles(axis):
        if bar.get_width():
            drawn[round(bar.get_y() + bar.get_height() / 2), to_hex(bar.get_facecolor())] = (bar.get_x(), bar.get_width())
    summary = untrained.summary
    expected = {}
    for number, name in enumerate(names):
        left = 0.0
        for way, column in (("workers", "to_workers"), ("servers", "to_servers"), ("between_workers", "between_workers")):
            width = statistics.fmean(summary[summary["name"] == name][f"bytes_{column}"]) / 1e6
            if width:
                expected[number, to_hex(colours[way].get_facecolor())] = (left, width)
            left += width
    assert drawn.keys() == expected.keys()
    for key, (left, width) in expected.items():
        assert list(drawn[key]) == pytest.approx([left, width])


def bars_of(axis: Axes) -> list[tuple[str, int, int, int]]:
    """Colour, worker, beginning and end (ns) of every bar of a timeline."""
    return sorted(
        (
            to_hex(bar.get_facecolor()),
            round(bar.get_y() + bar.get_height() / 2),
            round(bar.get_x() * 1e9),
            round((bar.get_x() + bar.get_width()) * 1e9),
        )
        for bar in rectangles(axis)
    )


def ticks_of(axis: Axes) -> list[int]:
    """Times of the marks for updates, ns."""
    (lines,) = (each for each in axis.collections if isinstance(each, LineCollection))
    return sorted(round(float(np.asarray(segment)[0, 0]) * 1e9) for segment in lines.get_segments())


def test_a_timeline_that_can_be_drawn_by_hand():
    """Two workers, of whom the second is half as fast: 1 s (2 s) of computing, 0.25 s each way; six gradients' time is 9 s."""
    network = {"latency": {"name": "constant", "seconds": 0.25}}
    cluster = {"workers": 2, "compute": {"name": "constant", "seconds": 1.0}, "speeds": [1, 0.5], "network": network}
    picture = result_of({"run": {"task": None, "cluster": cluster, "stop": {"seconds": 4.6}}}).plot_timeline()
    (axis,) = picture.axes
    assert (axis.get_title(), axis.get_xlabel(), axis.get_ylabel()) == ("run", "virtual time, s", "worker")
    assert axis.get_xlim() == (0, 6.0), "the median of 1, 1, 1 and 2 s"
    quarters = [
        *((PURPLE, 0, start, start + 1) for start in (0, 5, 6, 11, 12, 17)),
        (PURPLE, 0, 18, 18.4),
        *((BLUE, 0, start, start + 4) for start in (1, 7, 13)),
        *((PURPLE, 1, start, start + 1) for start in (0, 9, 10)),
        (BLUE, 1, 1, 9),
        (BLUE, 1, 11, 18.4),
    ]
    quarter = 250_000_000
    assert bars_of(axis) == sorted((colour, who, begin * quarter, round(end * quarter)) for colour, who, begin, end in quarters)
    assert ticks_of(axis) == [6 * quarter, 10 * quarter, 12 * quarter, 18 * quarter]
    (legend,) = picture.legends
    colours = [to_hex(patch.get_facecolor()) for patch in legend.get_patches()]
    assert dict(zip([text.get_text() for text in legend.get_texts()], colours, strict=True)) == {
        "computing": BLUE,
        "in vain": RED,
        "network": PURPLE,
        "waiting": GREY,
        "away": DARK,
        "update": "#222222",
    }


def test_timelines_show_what_the_first_seeds_schedule_says(untrained):
    axes = untrained.plot_timeline().axes
    assert [axis.get_title() for axis in axes] == ["asgd, same", "backup", "peers"], "without what has no clock"
    ends = []
    for axis, run in zip(axes, ("asgd", "backup", "peers"), strict=True):
        rows: list[Any] = list(untrained.schedule(run, 3).itertuples())
        lengths = [row.end_ns - row.begin_ns for row in rows if row.verb in ("PUSH", "ADD", "DROP")]
        ends.append(6 * statistics.median(lengths) / 1e9)
        end = axis.get_xlim()[1] * 1e9
        schedule, bars = untrained.outcome(run, 3).schedule, bars_of(axis)
        for worker in range(4):
            own = sorted((begin, stop, colour) for colour, who, begin, stop in bars if who == worker)
            assert [stop for _, stop, _ in own[:-1]] == [begin for begin, *_ in own[1:]], "each moment once"
            drawn = [(colour, [stop for _, stop, _ in some][-1]) for colour, some in groupby(own, lambda bar: bar[2])]
            expected = [(COLOURS_OF_TIME[kind], stop) for kind, stop in stretches(schedule, list(schedule), worker)]
            assert [bar for bar in drawn if bar[1] < end] == [bar for bar in expected if bar[1] < end]
        assert ticks_of(axis) == [row.time_ns for row in rows if row.verb in ("PUSH", "COMMIT") and row.time_ns < end]
        assert {worker for _, worker, *_ in bars} == {0, 1, 2, 3}
        assert any(colour == RED for colour, *_ in bars) == (run == "backup")
    assert {axis.get_xlim() for axis in axes} == {(0, max(ends))}, "one scale of time"


def test_a_timeline_shows_the_first_fault():
    """Of six seconds, two before worker 1 crashes at 10.5 s; it is back at 12 s. Worker 17, who crashes at 3 s, is not shown."""
    faults = [{"name": "outage", "workers": [1], "begin": 10.5, "end": 12.0}, {"name": "outage", "workers": [17], "begin": 3.0}]
    cluster = {"workers": 18, "compute": {"name": "constant", "seconds": 1.0}, "faults": faults}
    (axis,) = result_of({"run": {"task": None, "cluster": cluster, "stop": {"seconds": 30}}}).plot_timeline().axes
    assert axis.get_xlim() == (8.5, 14.5)
    begins = {0: [8, 9, 10, 11, 12, 13, 14], 1: [8, 9, 10, 12, 13, 14]}
    bars = {(who, begin / 1e9): (colour, end / 1e9) for colour, who, begin, end in bars_of(axis) if who < 2}
    assert bars == {(who, b): (BLUE, b + 1) for who, own in begins.items() for b in own} | {
        (1, 10): (RED, 10.5),
        (1, 10.5): (DARK, 12),
    }
    assert set(ticks_of(axis)) == {second * 10**9 for second in range(9, 15)}


def test_timelines_begin_at_the_start_if_one_ends_before_the_first_fault():
    fault = {"name": "outage", "workers": [1], "begin": 10.5, "end": 12.0}
    run = {"task": None, "cluster": {"workers": 2, "compute": {"name": "constant", "seconds": 1.0}, "faults": [fault]}}
    axes = result_of({f"{end}": {**run, "stop": {"seconds": end}} for end in (5, 30)}).plot_timeline().axes
    assert {axis.get_xlim()[0] for axis in axes} == {0.0}


def test_timelines_have_the_first_sixteen_workers():
    cluster = {"workers": 40, "compute": COMPUTE}
    (axis,) = result_of({"run": {"task": None, "cluster": cluster, "stop": {"gradients": 90}}}).plot_timeline().axes
    assert {worker for _, worker, *_ in bars_of(axis)} == set(range(16))


def test_what_was_not_learned_is_refused_or_left_out(untrained, learned, tmp_path):
    for quantity in ("loss", "error"):
        with pytest.raises(FredError, match=f"there is no {quantity} to plot: the scenario has no `task`"):
            getattr(untrained, f"plot_{quantity}")()
    for result_ in (untrained, learned):
        with pytest.raises(FredError, match="nothing to plot: in these runs workers have no models of their own"):
            result_.plot_disagreement()
        with pytest.raises(FredError, match="nothing to plot: in these runs workers have no models of their own"):
            result_.plot_replicas_error()
    folder.save(untrained, tmp_path / "untrained")
    saved = sorted(path.name for path in (tmp_path / "untrained" / "figures").iterdir())
    assert saved == ["paired.svg", "staleness.svg", "timeline.svg", "traffic.svg", "workers-time.svg"]
    clockless = result_of({"run": {"task": None, "protocol": "dispatcher"}})
    folder.save(clockless, tmp_path / "clockless")
    saved = sorted(path.name for path in (tmp_path / "clockless" / "figures").iterdir())
    assert saved == ["staleness.svg", "traffic.svg"]


@pytest.mark.parametrize(("quantity", "label"), [("disagreement", "disagreement"), ("replicas_error", "replicas' error")])
def test_what_replicas_come_to_is_that_of_runs_whose_workers_have_models(quantity, label):
    result_ = result_of({"server": {"algorithm": "asgd"}, "peers": {"algorithm": "d-psgd"}})
    left, right = getattr(result_, f"plot_{quantity}")().axes
    assert (left.get_ylabel(), len(left.get_lines()), len(right.get_lines())) == (label, 1, 1)
    (line,) = left.get_lines()
    xs, ys = values(result_.metrics, "peers", 1, "updates", quantity)
    x, y = (np.asarray(each, float) for each in line.get_data())
    np.testing.assert_allclose(y, [between(at, xs, ys) for at in x], rtol=1e-9)


@pytest.mark.parametrize("name", ["loss", "staleness", "timeline", "traffic"])
def test_a_picture_is_the_same_bytes_each_time_whatever_the_readers_own_style(learned, tmp_path, name):
    def saved(file: str) -> bytes:
        picture: Picture = getattr(learned, f"plot_{name}")()
        picture.save(tmp_path / file)
        return Path(tmp_path / file).read_bytes()

    style: Any = {"font.size": 20, "axes.grid": False, "svg.fonttype": "none", "svg.hashsalt": "other"}
    first, again, png, second_png = saved("a.svg"), saved("b.svg"), saved("a.png"), saved("b.png")
    with matplotlib.rc_context(style):
        elsewhere = saved("c.svg")
    assert first == again == elsewhere
    assert png == second_png
    assert b"<dc:date>" not in first
    assert getattr(learned, f"plot_{name}")()._repr_svg_().encode() == first, "what a notebook shows"
