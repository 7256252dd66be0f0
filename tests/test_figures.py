"""Figures show the data: lines, bands, bars and ticks against plain loops over metrics, schedules and summaries."""

import bisect
import dataclasses
import io
import math
import statistics
import warnings
from collections import Counter
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.patches import PathPatch, Rectangle, StepPatch

import fred
from fred import FredError, Result
from fred.views import pictures
from fred.views.figures import Picture
from fred.views.view import FIGURES, View
from tests.laws import stretches
from tests.pages import (
    ASGD,
    BLUE,
    CLUSTER,
    COLOURS_OF_TIME,
    DARK,
    GOAL,
    KINDS,
    LEARNED,
    NETWORKED,
    PAIR,
    RED,
    TIMED,
    TIMINGS,
    result_of,
    run_all,
)
from tests.worlds import COMPUTE, rows_of, stale_gradients

SECOND = {"name": "constant", "seconds": 1.0}
NAMES = ("at-once", "in-step", "no-clock")


@pytest.fixture(scope="module")
def learned() -> Result:
    in_step = {"algorithm": "ssgd", "protocol": {"backup_workers": 1}}
    no_clock = {"algorithm": "asgd", "protocol": "dispatcher"}
    runs: dict[str, Any] = {"at-once": {"algorithm": "asgd"}, "in-step": in_step, "no-clock": no_clock}
    return run_all(runs, (3, 1, 2), "What $it$ _shows_", cluster=NETWORKED)


@pytest.fixture(scope="module")
def untrained() -> Result:
    return run_all(TIMINGS, (3, 1), task=None, cluster=NETWORKED)


def crashing(workers: int, worker: int, begin: float, end: float) -> dict[str, Any]:
    """Return a cluster of workers of a gradient a second, of whom one is away for some time."""
    fault = {"name": "outage", "workers": [worker], "begin": begin, "end": end}
    return {"workers": workers, "compute": SECOND, "faults": [fault]}


def points_of(metrics: pd.DataFrame, run: str, seed: int, *columns: str) -> list[list[float]]:
    rows = metrics[(metrics["run"] == run) & (metrics["seed"] == seed)]
    return [rows[column].to_list() for column in columns]


def interpolate(x: float, xs: list[float], ys: list[float]) -> float:
    i = min(max(bisect.bisect_right(xs, x), 1), len(xs) - 1)
    share = (x - xs[i - 1]) / (xs[i] - xs[i - 1])
    return ys[i - 1] + min(share, 1) * (ys[i] - ys[i - 1])


def data_of(line: Any) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.asarray(values, float) for values in line.get_data())  # type: ignore[return-value]


def caption_of(picture: Picture) -> str:
    return picture.get_supxlabel().replace("\n", " ")


def select(result: Result, *names: str, seeds: tuple[int, ...] = (3, 1, 2)) -> Result:
    return Result(result.scenario, [outcome for outcome in result.outcomes if outcome.name in names and outcome.seed in seeds])


def texts_of(artists: Any) -> list[str]:
    return [artist.get_text() for artist in artists]


def rectangles(axis: Axes) -> list[Rectangle]:
    return [patch for patch in axis.patches if isinstance(patch, Rectangle)]


def redrawn(learned: Any, *frames: pd.DataFrame, figure: Any = "loss", **options: Any) -> Axes:
    """Return the first panel of the first seed's runs, if they had these metrics; columns that are missing are 0, 1, 2, ..."""
    outcomes = [outcome for outcome in learned.outcomes if outcome.seed == 3]
    counts = ("updates", "virtual_seconds")
    completed = [
        frame.assign(**{name: np.arange(float(len(frame))) for name in counts if name not in frame}) for frame in frames
    ]
    changed = [dataclasses.replace(outcome, metrics=frame) for outcome, frame in zip(outcomes, completed, strict=False)]
    return Result(learned.scenario, changed).plot(figure, **options).axes[0]


def test_learning_curves_are_the_mean_of_the_seeds_in_the_band_of_the_seeds(learned):
    for quantity in ("loss", "error"):
        picture: Picture = learned.plot(quantity)
        left, right = picture.axes
        assert (left.get_xlabel(), right.get_xlabel()) == ("updates", "virtual time, s")
        assert (left.get_ylabel(), right.get_ylabel()) == (quantity, "")
        assert picture.get_suptitle() == "What $it$ _shows_"
        assert texts_of(picture.legends[0].get_texts()) == list(NAMES)
        for axis, column in ((left, "updates"), (right, "virtual_seconds")):
            for number, run in enumerate(NAMES):
                line, band = axis.get_lines()[number], axis.collections[number]
                assert line.get_label() == run
                assert to_hex(line.get_color()) == to_hex(left.get_lines()[number].get_color())
                x, y = data_of(line)
                if (run, column) == ("no-clock", "virtual_seconds"):
                    assert not np.isfinite(x[1:]).any(), "what has no clock has no curve against time"
                    continue
                seeds = [points_of(learned.metrics, run, seed, column, quantity) for seed in (3, 1, 2)]
                assert (x[0], x[-1]) == (0, min(xs[-1] for xs, _ in seeds)), "as far as all seeds reach"
                heights = [sorted(interpolate(at, xs, ys) for xs, ys in seeds) for at in x]
                np.testing.assert_allclose(y, [math.fsum(three) / 3 for three in heights], rtol=1e-9)
                corners = np.asarray(band.get_paths()[0].vertices)
                for at, (low, _, high) in list(zip(x, heights, strict=True))[1:-1:9]:
                    edges = corners[np.isclose(corners[:, 0], at, rtol=1e-12)][:, 1]
                    assert (edges.min(), edges.max()) == (pytest.approx(low), pytest.approx(high))


def test_one_seed_is_a_line_without_a_band_that_ends_where_the_loss_does(learned):
    axis = redrawn(learned, pd.DataFrame({"loss": [2.0, 1.0, math.nan, math.nan]}), pd.DataFrame({"loss": [2.0, 1.0]}))
    x, y = data_of(axis.get_lines()[0])
    assert not axis.collections and np.isfinite(y[x < 1]).all() and not np.isfinite(y[x > 1]).any()


def test_axes_become_logarithmic_where_small_values_would_be_hidden(learned):
    linear = ("linear", "linear")
    cases = [(0.6, 60, linear), (0.4, 60, ("log", "linear")), (0.6, 7, linear), (0.6, 6, linear), (0.6, 5.9, ("linear", "log"))]
    for last, end, scales in cases:
        runs = (pd.DataFrame({"updates": [0, 5, updates], "loss": [3.0, 1.0, last]}) for updates in (60, end))
        axis = redrawn(learned, *runs)
        assert (axis.get_yscale(), axis.get_xscale()) == scales, (last, end)


def test_losses_that_diverge_or_are_nearly_nothing_for_a_moment_leave_room_for_the_rest(learned):
    """One of 40 evaluations is 10^-9, or the last ones grow to 10^30; all others are between 1 and 0.5."""
    steady = [1 - place / 80 for place in range(40)]
    for losses, scale in (([1e-9, *steady[1:]], "linear"), ([*steady[:38], 1e10, 1e30], "log")):
        axis = redrawn(learned, pd.DataFrame({"loss": losses}), pd.DataFrame({"loss": steady}))
        low, high = axis.get_ylim()
        assert axis.get_yscale() == scale
        assert high / max(low, 0.1) < 1e5
        assert low < min(steady) < max(steady) < high


def test_models_that_are_equal_but_for_rounding_do_not_hide_the_distances_of_the_others(learned):
    """A third of the evaluations finds models that have just been averaged, as those of local SGD."""
    disagreement = np.where(np.arange(40) % 3, np.linspace(0.05, 1.5, 40), 5e-7)
    axis = redrawn(learned, pd.DataFrame({"disagreement": disagreement}), figure="disagreement")
    low, high = axis.get_ylim()
    assert 1e-3 < low < 0.2 < 1.5 < high and axis.get_yscale() == "log"


def test_the_first_evaluations_take_no_room_of_a_logarithmic_axis(learned):
    """One run makes ten updates between evaluations, the other 1,000; the axis begins at a twentieth of the shorter run."""
    frames = [pd.DataFrame({"updates": [0, step, 50 * step], "loss": [3.0, 1.0, 0.6]}) for step in (10, 1000)]
    axis = redrawn(learned, *frames, against=["updates"])
    assert list(axis.get_xlim()) == pytest.approx([25, 52500])
    short, long = (data_of(line)[0].tolist() for line in axis.get_lines())
    assert (short, long) == ([500], [1000, 50000]), "nothing before a run's own first evaluation"


def test_learning_is_shown_against_the_quantities_that_are_chosen(learned):
    axes = learned.plot("error", against=["gradients", "updates", "seconds"]).axes
    assert [axis.get_xlabel() for axis in axes] == ["gradients", "updates", "virtual time, s"]
    for run, line in zip(NAMES, axes[0].get_lines(), strict=False):
        assert data_of(line)[0][-1] == min(points_of(learned.metrics, run, seed, "gradients")[0][-1] for seed in (3, 1, 2))
    (axis,) = select(learned, "no-clock").plot("error").axes
    assert axis.get_xlabel() == "updates", "without a clock there is no curve against time"


def test_the_line_of_the_target_is_labelled_and_titles_name_the_first_and_the_last_to_reach_it():
    result = result_of("learned")
    axes = result.plot("error").axes
    assert texts_of(axes[0].texts)[0] == f"target {GOAL['target_error']}"
    for axis, column in zip(axes, ("target_updates", "target_seconds"), strict=True):
        means = result.summary.groupby("name")[column].mean().sort_values()
        expected = f"target reached by {means.index[0]} first, {means.index[-1]} last" if means.is_unique else ""
        assert axis.get_title(loc="left") == expected, column
    assert axes[1].get_title(loc="left") == "target reached by asgd first, ssgd last"
    in_a_paper = pictures.drawable(result, View(width="one"))["error"]()
    for picture in (in_a_paper, result.plot("loss")):
        assert {axis.get_title(loc="left") for axis in picture.axes} == {""}


def test_captions_tell_means_from_ranges(learned, untrained):
    assert caption_of(learned.plot("loss")) == "lines: means over 3 seeds; bands: their range, least to largest"
    assert caption_of(learned.plot("workers-time")) == "means over 3 seeds"
    assert caption_of(untrained.plot("throughput")) == "bars: means over 2 seeds; lines: their range, least to largest"
    assert caption_of(untrained.plot("timeline")) == "seed 3, of 2"
    assert caption_of(select(learned, *NAMES, seeds=(3,)).plot("loss")) == "", "one seed is neither"


def test_a_run_has_the_same_colour_in_every_figure(learned):
    colours = {line.get_label(): to_hex(line.get_color()) for line in learned.plot("loss").axes[0].get_lines()}
    assert len(set(colours.values())) == 3
    (bars,) = learned.plot("throughput").axes
    bar_colours = zip(texts_of(bars.get_yticklabels()), (to_hex(bar.get_facecolor()) for bar in rectangles(bars)), strict=True)
    assert dict(bar_colours) == {name: colours[name] for name in NAMES[:2]}
    for axis in learned.plot("staleness").axes:
        (outline,) = (patch for patch in axis.patches if isinstance(patch, StepPatch))
        assert to_hex(outline.get_facecolor()) == colours[axis.get_title().split("\n")[0]]


def test_throughput_is_that_of_the_summary(untrained):
    (axis,) = untrained.plot("throughput").axes
    summary = untrained.summary.dropna(subset="throughput").groupby("name", sort=False)["throughput"]
    assert texts_of(axis.get_yticklabels()) == list(summary.groups) == ["asgd", "same", "backup", "peers"]
    assert [bar.get_width() for bar in rectangles(axis)] == pytest.approx(summary.mean().to_list())
    (ranges,) = (lines for lines in axis.collections if isinstance(lines, LineCollection))
    ends = [[float(x) for x, _ in np.asarray(segment)] for segment in ranges.get_segments()]
    assert ends == [pytest.approx([low, high]) for low, high in zip(summary.min(), summary.max(), strict=True)]
    assert texts_of(axis.texts) == [f"{mean:,.4g}" for mean in summary.mean()]


def test_the_pace_is_the_gradients_of_each_part_of_the_time(untrained):
    """Two workers of a gradient a second each; one is away from 10 s to 20 s, when the other waits for it."""
    options: dict[str, Any] = {"task": None, "stop": {"seconds": 30.0}, "evaluate": {"points": 30}}
    runs = {"all": {"algorithm": "ssgd"}, "each": {"algorithm": "asgd"}}
    result = run_all(runs, cluster=crashing(2, 1, 10.5, 19.5), **options)
    (axis,) = result.pictures()["pace"]().axes
    assert (axis.get_xlabel(), axis.get_ylabel(), axis.get_yscale()) == ("virtual time, s", "gradients per second", "linear")
    assert axis.get_ylim()[0] == 0
    for run, line in zip(("all", "each"), axis.get_lines(), strict=True):
        x, y = data_of(line)
        used = dict(zip(*points_of(result.metrics, run, 1, "virtual_seconds", "gradients"), strict=True))
        assert x.tolist() == [second + 0.5 for second in range(30)]
        assert y.tolist() == [used[second + 1.0] - used[float(second)] for second in range(30)]
        assert set(y[12:18]) == ({0.0} if run == "all" else {1.0})
    assert "pace" not in untrained.pictures(), "nothing comes and goes"


def heights_of(axis: Axes) -> dict[float, float]:
    (outline,) = (patch for patch in axis.patches if isinstance(patch, StepPatch))
    heights, edges, _ = outline.get_data()
    return {float(left): float(height) for left, height in zip(edges, heights, strict=False) if height}


def test_histograms_of_staleness_are_plain_counts(untrained):
    picture = untrained.plot("staleness")
    shared = {"dispatched": "dispatched", "asgd": "asgd, same", "backup": "backup", "peers": "peers"}
    titles, fresh = list[str](), list[str]()
    for run, name in shared.items():
        counts = Counter(stale for seed in (3, 1) for stale in stale_gradients(untrained.outcome(run, seed).schedule))
        if set(counts) == {0}:
            fresh.append(name)
            continue
        axis = picture.axes[len(titles)]
        titles.append(name)
        mean = sum(stale * count for stale, count in counts.items()) / (total := counts.total())
        assert axis.get_title() == f"{name}\nmean {mean:.1f}, max {max(counts)}"
        assert (axis.get_xlabel(), axis.get_ylabel()) == ("staleness, updates", "% of gradients")
        assert {left + 0.5: height * total / 100 for left, height in heights_of(axis).items()} == pytest.approx(counts)
    assert len([axis for axis in picture.axes if axis.axison]) == len(titles) > 0
    assert caption_of(picture).endswith(f"staleness 0 throughout: {', '.join(fresh)}"), "no panel without anything in it"
    assert fresh


def test_where_nothing_is_stale_a_line_says_so(untrained):
    fresh = select(untrained, "backup")
    assert "staleness" not in fresh.pictures(), "a picture without anything in it is only drawn if somebody asks for it"
    picture = fresh.plot("staleness")
    assert not [axis for axis in picture.axes if axis.axison]
    assert caption_of(picture).startswith("staleness 0 throughout: backup")
    assert picture.get_figheight() < 1


def test_histograms_have_one_scale_unless_that_would_hide_one():
    for workers, ends, suffix in (((10, 50), {49.5}, ""), ((5, 50), {4.5, 49.5}, "; scales differ between panels")):
        runs = {f"of-{number}": {"cluster": {"workers": number}} for number in workers}
        picture = run_all(runs, task=None, stop={"gradients": 90}).plot("staleness")
        assert {axis.get_xlim()[1] for axis in picture.axes} == ends
        assert caption_of(picture) == f"all gradients that were used{suffix}"


def test_long_histograms_have_wider_bars_that_hold_everything():
    """Staleness 0, 1, ..., 149 once as the first gradients arrive, then always 149."""
    result = run_all({"run": {"task": None, "cluster": {"workers": 150}, "stop": {"gradients": 600}}})
    (axis,) = result.plot("staleness").axes
    heights = {left + 0.5: height * 6 for left, height in heights_of(axis).items()}
    assert heights == pytest.approx({3 * i: 3 for i in range(49)} | {147: 3 + 450})


def test_traffic_is_the_mean_of_the_summarys_bytes(untrained):
    picture = untrained.plot("traffic")
    (axis,), names = picture.axes, list(TIMINGS)
    assert (texts_of(axis.get_yticklabels()), axis.get_xlabel()) == (names, "sent over the network, kB")
    assert axis.get_ylim()[0] > axis.get_ylim()[1], "the first run on top"
    (legend,) = picture.legends
    ways = ("to_workers", "to_servers", "between_workers")
    assert texts_of(legend.get_texts()) == [way.replace("_", " ") for way in ways]
    colours = dict(zip(ways, (to_hex(patch.get_facecolor()) for patch in legend.get_patches()), strict=True))
    places = {bar: round(bar.get_y() + bar.get_height() / 2) for bar in rectangles(axis) if bar.get_width()}
    segments = {(row, to_hex(bar.get_facecolor())): (bar.get_x(), bar.get_width()) for bar, row in places.items()}
    summary, expected = untrained.summary, {}
    for number, name in enumerate(names):
        left = 0.0
        for way in ways:
            if width := statistics.fmean(summary[summary["name"] == name][f"bytes_{way}"]) / 1e3:
                expected[number, colours[way]] = pytest.approx((left, width))
            left += width
    assert segments == expected


def test_each_kind_of_runs_has_its_figures(learned, untrained):
    assert set(FIGURES) == set(pictures.DRAW_FUNCTIONS)
    assert all(name in str(Result.plot.__doc__) for name in FIGURES)
    timed = {"paired", "staleness", "throughput", "timeline", "traffic", "workers-time"}
    assert (set(untrained.pictures()), set(learned.pictures())) == (timed, timed | {"loss", "error"})
    clockless = run_all({"run": {"task": None, "protocol": "dispatcher"}}, cluster={"workers": 4})
    assert set(clockless.pictures()) == {"staleness"}, "nothing was sent"


def test_figures_without_data_and_options_that_no_run_has_are_refused(learned, untrained, many_workers):
    no_models = "nothing to plot: in these runs workers have no models of their own"
    for result, figure, options, message in (
        (learned, "eror", {}, r"no figure `eror`; did you mean `error`\?; there are loss, error, perplexity, "),
        (learned, "loss", {"begin": 1.0}, "`begin` is for the figure timeline; got `loss`"),
        (learned, "timeline", {"against": ["updates"]}, r"`against` is for the figures loss, error, .*; got `timeline`"),
        (learned, "loss", {"against": ["update"]}, "nothing can be shown against `update`; did you mean `updates`"),
        (learned, "perplexity", {}, "there is no perplexity to plot: only sequences"),
        (untrained, "loss", {}, "there is no loss to plot: the scenario has no `task`"),
        (untrained, "error", {}, "there is no error to plot: the scenario has no `task`"),
        *((result, figure, {}, no_models) for result in (untrained, learned) for figure in ("disagreement", "replicas-error")),
        (select(untrained, "dispatched"), "throughput", {}, "nothing to plot: these runs have no clock"),
        (untrained, "sweep", {}, "nothing to plot: the scenario has no `sweep`"),
        (many_workers, "timeline", {"workers": []}, "the timeline needs workers"),
        (many_workers, "timeline", {"begin": -1.0}, "the timeline cannot begin at -1 s; expected 0 or more"),
        (many_workers, "timeline", {"begin": float("nan")}, "the timeline cannot begin at nan s"),
        (many_workers, "timeline", {"end": float("inf")}, "the timeline cannot end at inf s"),
    ):
        with pytest.raises(FredError, match=message):
            result.plot(figure, **options)  # type: ignore[arg-type]


def test_quantities_of_replicas_are_those_of_runs_whose_workers_have_models():
    result = run_all({"server": {"algorithm": "asgd"}, "peers": {"algorithm": "d-psgd"}})
    for quantity, label in (("disagreement", "disagreement of workers' models"), ("replicas_error", "replicas' error")):
        left, right = result.plot(quantity.replace("_", "-")).axes  # type: ignore[arg-type]
        assert (left.get_ylabel(), len(left.get_lines()), len(right.get_lines())) == (label, 1, 1)
        xs, ys = points_of(result.metrics, "peers", 1, "updates", quantity)
        x, y = data_of(left.get_lines()[0])
        np.testing.assert_allclose(y, [interpolate(at, xs, ys) for at in x], rtol=1e-9)


def test_a_picture_is_the_same_bytes_each_time_whatever_the_readers_own_style(learned, tmp_path):
    style: Any = {"font.size": 20, "axes.grid": False, "svg.fonttype": "none", "svg.hashsalt": "other"}
    for name in ("loss", "timeline"):
        learned.plot(name).save(tmp_path / "a.svg")
        with matplotlib.rc_context(style):
            learned.plot(name).save(tmp_path / "b.svg")
        first, second = (Path(tmp_path / file).read_bytes() for file in ("a.svg", "b.svg"))
        assert first == second
        assert b"<dc:date>" not in first
        assert learned.plot(name)._repr_svg_().encode() == first, "what a notebook shows"


def timing_of(cluster: dict[str, Any], **stop: float) -> Result:
    return run_all({"run": {"task": None, "cluster": cluster, "stop": stop}})


def bars_of(axis: Axes) -> list[tuple[str, int, int, int]]:
    """Colour, worker, beginning and end (ns) of every bar of a timeline."""
    rows = {round(place): int(label.get_text()) for place, label in zip(axis.get_yticks(), axis.get_yticklabels(), strict=True)}
    bars = []
    for patch in (patch for patch in axis.patches if isinstance(patch, PathPatch)):
        colour = to_hex(patch.get_facecolor())
        for (left, low), (_, high), (right, _), *_ in np.asarray(patch.get_path().vertices).reshape(-1, 5, 2).tolist():
            bars.append((colour, rows[round((low + high) / 2)], round(left * 1e9), round(right * 1e9)))
    return sorted(bars)


def ticks_of(axis: Axes) -> list[int]:
    """Times of the marks for updates, ns."""
    (lines,) = (lines for lines in axis.collections if isinstance(lines, LineCollection))
    return sorted(round(float(np.asarray(segment)[0, 0]) * 1e9) for segment in lines.get_segments())


def test_timelines_show_what_the_first_seeds_schedule_says():
    untrained = run_all(TIMINGS, (3, 1), task=None, cluster=NETWORKED)
    picture = untrained.plot("timeline")
    axes, (legend,) = picture.axes, picture.legends
    colours = [to_hex(patch.get_facecolor()) for patch in legend.get_patches()]
    assert dict(zip(texts_of(legend.get_texts()), colours, strict=True)) == COLOURS_OF_TIME | {"update": "#222222"}
    assert [axis.get_title() for axis in axes] == ["asgd, same", "backup", "peers"], "without what has no clock"
    assert (axes[-1].get_xlabel(), axes[-1].get_ylabel()) == ("virtual time, s", "worker")
    ends = []
    for axis, run in zip(axes, ("asgd", "backup", "peers"), strict=True):
        rows: list[Any] = list(untrained.schedule(run, 3).itertuples())
        lengths = [row.end_ns - row.begin_ns for row in rows if row.verb in ("PUSH", "ADD", "DROP")]
        ends.append(6 * statistics.median(lengths) / 1e9)
        end = axis.get_xlim()[1] * 1e9
        schedule, bars = untrained.outcome(run, 3).schedule, bars_of(axis)
        for worker in range(4):
            bars_of_worker = sorted((begin, stop, colour) for colour, owner, begin, stop in bars if owner == worker)
            assert [stop for _, stop, _ in bars_of_worker[:-1]] == [begin for begin, *_ in bars_of_worker[1:]], (
                "each moment once"
            )
            runs_of_colour = [
                (colour, [stop for _, stop, _ in group][-1]) for colour, group in groupby(bars_of_worker, lambda bar: bar[2])
            ]
            expected = [(COLOURS_OF_TIME[kind], stop) for kind, stop in stretches(schedule, list(schedule), worker)]
            assert [bar for bar in runs_of_colour if bar[1] < end] == [bar for bar in expected if bar[1] < end]
        assert ticks_of(axis) == [row.time_ns for row in rows if row.verb in ("PUSH", "COMMIT") and row.time_ns < end]
        assert {worker for _, worker, *_ in bars} == {0, 1, 2, 3}
        assert any(colour == RED for colour, *_ in bars) == (run == "backup")
    assert {axis.get_xlim() for axis in axes} == {(0, max(ends))}, "one scale of time"


def test_a_timeline_marks_workers_that_are_slower_by_themselves():
    cluster = {"workers": 5, "compute": {"name": "constant", "seconds": 1.0}, "speeds": [1.0, 0.9, 1.0, 0.25, 0.25]}
    picture = timing_of(cluster, seconds=30).plot("timeline")
    marks = [line.get_ydata() for line in picture.axes[0].get_lines()]
    assert [np.asarray(ends, float).mean() for ends in marks] == [3.0, 4.0]
    assert "line at the right: slow workers" in caption_of(picture)
    (axis,) = timing_of({**cluster, "speeds": []}, seconds=30).plot("timeline").axes
    assert not axis.get_lines()


def test_a_timeline_shows_the_first_fault_unless_a_run_ends_before():
    """It shows six seconds, two of them before worker 1 crashes at 10.5 s; it is back at 12 s. Another run ends before."""
    cluster = crashing(2, 1, 10.5, 12.0)
    (axis,) = timing_of(cluster, seconds=30).plot("timeline").axes
    assert axis.get_xlim() == (8.5, 14.5)
    begins = {0: [8, 9, 10, 11, 12, 13, 14], 1: [8, 9, 10, 12, 13, 14]}
    expected = {(worker, begin): (BLUE, begin + 1) for worker, starts in begins.items() for begin in starts}
    bars = {(worker, begin / 1e9): (colour, end / 1e9) for colour, worker, begin, end in bars_of(axis)}
    assert bars == expected | {(1, 10): (RED, 10.5), (1, 10.5): (DARK, 12)}
    assert set(ticks_of(axis)) == {second * 10**9 for second in range(9, 15)}
    axes = run_all({f"{end}": {"stop": {"seconds": end}} for end in (5, 30)}, task=None, cluster=cluster).plot("timeline").axes
    assert {axis.get_xlim()[0] for axis in axes} == {0.0}


@pytest.fixture(scope="module")
def many_workers() -> Result:
    runs = {"large": {"cluster": crashing(40, 21, 2.5, 4.0)}, "small": {"cluster": {"workers": 4, "compute": SECOND}}}
    return run_all(runs, task=None, stop={"seconds": 12})


def test_sixteen_of_many_workers_are_shown_evenly_spaced_but_one_that_is_away_takes_the_place_of_the_nearest(many_workers):
    picture, expected = many_workers.plot("timeline"), {round(39 * place / 15) for place in range(16)}
    large, small = picture.axes
    assert 21 in expected, "so nobody has to give way"
    assert [{worker for _, worker, *_ in bars_of(axis)} for axis in (large, small)] == [expected, set(range(4))]
    assert large.get_xlim() == (0.5, 6.5), "a third before the fault"
    assert picture.get_supxlabel() == "16 of 40 workers, evenly spaced"
    (axis,) = timing_of(crashing(40, 22, 2.5, 4.0), seconds=12).plot("timeline").axes
    assert {worker for _, worker, *_ in bars_of(axis)} == expected - {21, 23} | {22, 23}


def test_a_timeline_has_the_chosen_workers_and_times(many_workers):
    large, small = many_workers.plot("timeline", begin=7.5, end=9.0, workers=[39, 2, 0]).axes
    assert large.get_xlim() == small.get_xlim() == (7.5, 9.0)
    assert texts_of(large.get_yticklabels()) == ["39", "2", "0"], "in this order, from the top"
    assert large.get_ylim()[0] > large.get_ylim()[1]
    seconds = [(BLUE, worker, begin * 10**9, (begin + 1) * 10**9) for worker in (0, 2, 39) for begin in (7, 8)]
    assert bars_of(large) == sorted(seconds)
    assert texts_of(small.get_yticklabels()) == ["2", "0"], "there is no worker 39"
    (only,) = many_workers.plot("timeline", workers=[30]).axes
    assert (only.get_title(), only.get_xlim()[0]) == ("large", 0), "who is away is not shown, nor when"
    assert [axis.get_xlim() for axis in many_workers.plot("timeline", end=9).axes] == [(3, 9)] * 2, "six gradients before"


def test_where_updates_are_many_their_number_is_drawn():
    result = timing_of({"workers": 60, "compute": COMPUTE}, gradients=900)
    (axis,) = result.plot("timeline", begin=0.0).axes
    assert not [collection for collection in axis.collections if isinstance(collection, LineCollection)]
    (profile,) = (patch for patch in axis.patches if isinstance(patch, StepPatch))
    heights, edges, base = profile.get_data()
    pushes = (row.time_ns / 1e9 for row in rows_of(result.outcome("run").schedule) if row.verb == "PUSH")
    times = [time for time in pushes if time < axis.get_xlim()[1]]
    counts = [sum(low <= time < high for time in times) for low, high in pairwise(edges)]
    assert len(times) > 250
    np.testing.assert_allclose((base - heights) / (base - heights).max(), np.array(counts) / max(counts))


ODD: dict[str, dict[str, Any]] = {
    "nothing happens": {**TIMED, "algorithm": ASGD, "stop": {"seconds": 1e-9}},
    "one update": {**LEARNED, "stop": {"updates": 1}},
    "nothing costs anything": {**TIMED, "algorithm": ASGD, "cluster": {**CLUSTER, "prices": {"workers": [{"per_hour": 0.0}]}}},
    "all at once": {
        "cluster": {"workers": 2, "compute": {"name": "constant", "seconds": 0.0}},
        "stop": {"updates": 5},
        "algorithm": ASGD,
    },
    "a sweep of one point": {**TIMED, "runs": PAIR, "sweep": {"over": {"cluster.workers": [2]}}},
    "a sweep of nothing": {**TIMED, "runs": PAIR, "stop": {"seconds": 1e-9}, "sweep": {"over": {"cluster.workers": [2, 3]}}},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, *ODD])
def test_every_figure_of_every_kind_of_result_is_drawn_without_a_warning(kind):
    result = result_of(kind) if kind in KINDS else fred.run(fred.scenario(ODD[kind]))
    pictures = result.pictures()
    assert pictures
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for draw in pictures.values():
            draw().savefig(io.BytesIO(), format="svg")
