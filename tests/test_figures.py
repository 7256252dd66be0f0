"""Pictures say what the data say: lines, bands, bars and ticks against plain loops over metrics, schedules and summaries."""

import bisect
import dataclasses
import math
import statistics
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle, StepPatch

from fred.base.errors import FredError
from fred.commands.printing import print_summary, tables
from fred.results import experiment, folder
from fred.results.result import Result
from fred.specification.loading import Scenario
from fred.views import pictures
from fred.views.figures import Picture
from fred.views.view import FIGURES
from tests.worlds import COMPUTE, make_run, stale_gradients

NETWORK = {"latency": {"name": "constant", "seconds": 0.03}, "message_bytes": 4000}
CLUSTER = {"workers": 4, "compute": COMPUTE, "network": NETWORK}
BLUE, RED, PURPLE, GREY, DARK = "#56b4e9", "#d55e00", "#cc79a7", "#d0d0d0", "#5b5b5b"
COLOURS_OF_TIME = {"computing": BLUE, "wasted": RED, "network": PURPLE, "waiting": GREY, "away": DARK}


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


def caption_of(picture: Picture) -> str:
    """Return the figure's caption, on one line."""
    return picture.get_supxlabel().replace("\n", " ")


def rectangles(axis: Axes) -> list[Rectangle]:
    return [patch for patch in axis.patches if isinstance(patch, Rectangle)]


@pytest.mark.parametrize("quantity", ["loss", "error"])
def test_learning_curves_are_the_mean_of_the_seeds_in_the_band_of_the_seeds(learned, quantity):
    picture: Picture = learned.plot(quantity)
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
    left, right = result_.plot("loss").axes
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
        ([3.0, 1.0, 0.6], (60, 7), ("linear", "linear")),
        ([3.0, 1.0, 0.6], (60, 6), ("linear", "linear")),
        ([3.0, 1.0, 0.6], (60, 5.9), ("linear", "log")),
    ],
)
def test_axes_become_logarithmic_where_small_values_would_be_hidden(learned, losses, ends, scales):
    outcomes = []
    for outcome, end in zip([each for each in learned.outcomes if each.seed == 3], ends, strict=False):
        frame = pd.DataFrame({"updates": [0, 5, end], "virtual_seconds": [0.0, 1.0, 2.0], "loss": losses})
        outcomes.append(dataclasses.replace(outcome, metrics=frame))
    axis = Result(learned.scenario, outcomes).plot("loss").axes[0]
    assert (axis.get_yscale(), axis.get_xscale()) == scales


def test_what_diverges_or_was_nearly_nothing_for_a_moment_leaves_room_for_the_rest(learned):
    """Of 40 evaluations one is 10^-9, or the last ones grow to 10^30; all others are between 1 and 0.5."""
    outcomes = [each for each in learned.outcomes if each.seed == 3][:2]
    steady = [1 - place / 80 for place in range(40)]
    for losses, scale in (([1e-9, *steady[1:]], "linear"), ([*steady[:38], 1e10, 1e30], "log")):
        frame = pd.DataFrame({"updates": range(40), "virtual_seconds": np.arange(40.0)})
        both = [
            dataclasses.replace(outcome, metrics=frame.assign(loss=own))
            for outcome, own in zip(outcomes, (losses, steady), strict=True)
        ]
        axis = Result(learned.scenario, both).plot("loss").axes[0]
        low, high = axis.get_ylim()
        assert axis.get_yscale() == scale
        assert high / max(low, 0.1) < 1e5
        assert low < min(steady) < max(steady) < high


def test_models_that_are_equal_but_for_rounding_do_not_hide_how_far_the_others_are_apart(learned):
    """A third of the evaluations finds models that have just been averaged, as those of local SGD."""
    outcome = next(each for each in learned.outcomes if each.seed == 3)
    apart = np.where(np.arange(40) % 3, np.linspace(0.05, 1.5, 40), 5e-7)
    frame = pd.DataFrame({"updates": range(40), "virtual_seconds": np.arange(40.0), "disagreement": apart})
    axis = Result(learned.scenario, [dataclasses.replace(outcome, metrics=frame)]).plot("disagreement").axes[0]
    low, high = axis.get_ylim()
    assert 1e-3 < low < 0.2 < 1.5 < high
    assert axis.get_yscale() == "log"


def test_the_first_evaluations_take_no_room_of_a_logarithmic_axis(learned):
    """One run makes ten updates between evaluations, the other 1,000; the axis begins at a twentieth of the shorter run."""
    outcomes = []
    for outcome, step in zip([each for each in learned.outcomes if each.seed == 3], (10, 1000), strict=False):
        frame = pd.DataFrame({"updates": [0, step, 50 * step], "virtual_seconds": [0.0, 1.0, 2.0], "loss": [3.0, 1.0, 0.6]})
        outcomes.append(dataclasses.replace(outcome, metrics=frame))
    axis = Result(learned.scenario, outcomes).plot("loss", against=["updates"]).axes[0]
    assert list(axis.get_xlim()) == pytest.approx([25, 52500])
    short, long = (np.asarray(line.get_xdata()).tolist() for line in axis.get_lines())
    assert (short, long) == ([500], [1000, 50000]), "nothing before a run's own first evaluation"


def test_learning_is_shown_against_what_one_asks_for(learned):
    picture = learned.plot("error", against=["gradients", "updates", "seconds"])
    assert [axis.get_xlabel() for axis in picture.axes] == ["gradients", "updates", "virtual time, s"]
    for run, line in zip(("at-once", "in-step", "no-clock"), picture.axes[0].get_lines(), strict=False):
        ends = [values(learned.metrics, run, seed, "gradients")[0][-1] for seed in (3, 1, 2)]
        assert np.asarray(line.get_xdata())[-1] == min(ends)
    with pytest.raises(FredError, match="nothing can be shown against `update`; did you mean `updates`"):
        learned.plot("loss", against=["update"])


def test_what_is_mean_and_what_is_range_is_said_on_the_figure_in_the_words_of_the_table(learned, untrained, capsys):
    print_summary(learned, Path("out"))
    assert "Means over 3 seeds, ± half the range" in " ".join(capsys.readouterr().out.split())
    assert caption_of(learned.plot("loss")) == "lines: means over 3 seeds; bands: their range, least to largest"
    assert caption_of(learned.plot("workers-time")) == "means over 3 seeds"
    assert caption_of(untrained.plot("throughput")) == "bars: means over 2 seeds; lines: their range, least to largest"
    assert caption_of(untrained.plot("timeline")) == "seed 3, of 2"
    assert caption_of(result_of({"run": {}}).plot("loss")) == "", "one seed is neither"


def test_the_ends_of_curves_are_the_numbers_of_the_table(learned):
    """Where all seeds reach the same time, the line's end is the table's mean, half of the band's width there what is after ±."""
    seeds = learned.summary.query("name == 'in-step'")
    ends = [values(learned.metrics, "in-step", seed, "virtual_seconds")[0][-1] for seed in (3, 1, 2)]
    outcomes = [
        dataclasses.replace(
            each, metrics=each.metrics.assign(virtual_seconds=each.metrics["virtual_seconds"] * max(ends) / end)
        )
        for each, end in zip((learned.outcome("in-step", seed) for seed in (3, 1, 2)), ends, strict=True)
    ]
    axis = Result(learned.scenario, outcomes).plot("loss").axes[1]
    corners = np.asarray(axis.collections[0].get_paths()[0].vertices)
    last = corners[np.isclose(corners[:, 0], max(ends))][:, 1]
    table, *_ = tables(learned, Path("out"))
    loss = {row[0].text: row[list(table.columns).index("loss")].text for row in table.cells}
    assert len(seeds) == 3
    mean, half = map(float, loss["in-step"].split(" ± "))
    assert mean == pytest.approx(np.asarray(axis.get_lines()[0].get_ydata())[-1], rel=1e-3)
    assert half == pytest.approx(np.ptp(last) / 2, rel=0.05)


def test_a_run_has_the_same_colour_in_every_figure(learned):
    colours = {line.get_label(): to_hex(line.get_color()) for line in learned.plot("loss").axes[0].get_lines()}
    assert len(set(colours.values())) == 3
    (bars,) = learned.plot("throughput").axes
    names = [label.get_text() for label in bars.get_yticklabels()]
    assert {name: to_hex(bar.get_facecolor()) for name, bar in zip(names, rectangles(bars), strict=True)} == {
        name: colours[name] for name in ("at-once", "in-step")
    }
    for axis in learned.plot("staleness").axes:
        (outline,) = (patch for patch in axis.patches if isinstance(patch, StepPatch))
        assert to_hex(outline.get_facecolor()) == colours[axis.get_title().split("\n")[0]]


def test_throughput_is_that_of_the_summary(untrained):
    (axis,) = untrained.plot("throughput").axes
    found = untrained.summary.dropna(subset="throughput").groupby("name", sort=False)["throughput"]
    assert [label.get_text() for label in axis.get_yticklabels()] == list(found.groups) == ["asgd", "same", "backup", "peers"]
    assert [bar.get_width() for bar in rectangles(axis)] == pytest.approx(found.mean().to_list())
    (ranges,) = (each for each in axis.collections if isinstance(each, LineCollection))
    ends = [[float(x) for x, _ in np.asarray(segment)] for segment in ranges.get_segments()]
    assert ends == [pytest.approx([low, high]) for low, high in zip(found.min(), found.max(), strict=True)]
    assert [text.get_text() for text in axis.texts] == [f"{mean:,.4g}" for mean in found.mean()]


def test_the_pace_is_what_was_used_in_each_part_of_the_time():
    """Two workers of a gradient a second each; one is away from 10 s to 20 s, when the other waits for it."""
    fault = {"name": "outage", "workers": [1], "begin": 10.5, "end": 19.5}
    cluster = {"workers": 2, "compute": {"name": "constant", "seconds": 1.0}, "faults": [fault]}
    run = {"task": None, "cluster": cluster, "stop": {"seconds": 30.0}, "evaluate": {"points": 30}}
    result_ = result_of({"all": {"algorithm": "ssgd", **run}, "each": {"algorithm": "asgd", **run}})
    (axis,) = result_.pictures()["pace"]().axes
    assert (axis.get_xlabel(), axis.get_ylabel(), axis.get_yscale()) == ("virtual time, s", "gradients per second", "linear")
    assert axis.get_ylim()[0] == 0
    for run_, line in zip(("all", "each"), axis.get_lines(), strict=True):
        x, y = (np.asarray(each, float) for each in line.get_data())
        used = dict(zip(*values(result_.metrics, run_, 1, "virtual_seconds", "gradients"), strict=True))
        assert x.tolist() == [second + 0.5 for second in range(30)]
        assert y.tolist() == [used[second + 1.0] - used[float(second)] for second in range(30)]
        assert set(y[12:18]) == ({0.0} if run_ == "all" else {1.0})
    assert "pace" not in result_of({"run": {"task": None}}).pictures(), "nothing comes and goes"


def test_without_a_clock_there_is_no_curve_against_time():
    (axis,) = result_of({"run": {"protocol": "dispatcher"}}).plot("error").axes
    assert axis.get_xlabel() == "updates"


def heights_of(axis: Axes) -> dict[float, float]:
    """Height of each bar of a histogram that has one, by its left end."""
    (outline,) = (patch for patch in axis.patches if isinstance(patch, StepPatch))
    heights, edges, _ = outline.get_data()
    return {float(left): float(height) for left, height in zip(edges, heights, strict=False) if height}


def test_histograms_of_staleness_are_plain_counts(untrained):
    picture = untrained.plot("staleness")
    shared = {"dispatched": "dispatched", "asgd": "asgd, same", "backup": "backup", "peers": "peers"}
    shown, fresh = list[str](), list[str]()
    for run, name in shared.items():
        counts: dict[int, int] = {}
        for seed in (3, 1):
            for stale in stale_gradients(untrained.outcome(run, seed).schedule):
                counts[stale] = counts.get(stale, 0) + 1
        if set(counts) == {0}:
            fresh.append(name)
            continue
        axis = picture.axes[len(shown)]
        shown.append(name)
        total = sum(counts.values())
        mean = sum(stale * count for stale, count in counts.items()) / total
        assert axis.get_title() == f"{name}\nmean {mean:.1f}, max {max(counts)}"
        assert (axis.get_xlabel(), axis.get_ylabel()) == ("staleness, updates", "% of gradients")
        drawn = {left + 0.5: height * total / 100 for left, height in heights_of(axis).items()}
        assert drawn == pytest.approx(counts)
    assert len([axis for axis in picture.axes if axis.axison]) == len(shown) > 0
    assert caption_of(picture).endswith(f"staleness 0 throughout: {', '.join(fresh)}"), "no panel without anything in it"
    assert fresh


def test_where_nothing_is_stale_a_line_says_so():
    fresh = result_of({"run": {"task": None, "algorithm": "ssgd", "cluster": CLUSTER}})
    assert "staleness" not in fresh.pictures(), "a picture without anything in it is only drawn if somebody asks for it"
    picture = fresh.plot("staleness")
    assert not [axis for axis in picture.axes if axis.axison]
    assert caption_of(picture).startswith("staleness 0 throughout: run")
    assert picture.get_figheight() < 1


def test_histograms_have_one_scale_unless_that_would_hide_one():
    constant = {"name": "constant", "seconds": 1.0}

    def limits(*workers: int) -> tuple[set[float], str]:
        runs = {f"of-{n}": {"task": None, "cluster": {"workers": n, "compute": constant}} for n in workers}
        picture = result_of({name: run | {"stop": {"gradients": 90}} for name, run in runs.items()}).plot("staleness")
        return {axis.get_xlim()[1] for axis in picture.axes}, caption_of(picture)

    assert limits(10, 50) == ({49.5}, "all gradients that were used")
    assert limits(5, 50) == ({4.5, 49.5}, "all gradients that were used; scales differ between panels")


def test_long_histograms_have_wider_bars_that_hold_everything():
    constant = {"name": "constant", "seconds": 1.0}
    outcome = result_of({"run": {"task": None, "cluster": {"workers": 150, "compute": constant}, "stop": {"gradients": 600}}})
    (axis,) = outcome.plot("staleness").axes
    heights = {left + 0.5: height * 6 for left, height in heights_of(axis).items()}
    # 0, 1, ..., 149 once as the first gradients arrive, then always 149
    assert heights == pytest.approx({3 * i: 3 for i in range(49)} | {147: 3 + 450})


def test_traffic_is_the_mean_of_the_summarys_bytes(untrained):
    picture = untrained.plot("traffic")
    (axis,) = picture.axes
    names = ["dispatched", "asgd", "same", "backup", "peers"]
    assert [label.get_text() for label in axis.get_yticklabels()] == names
    assert axis.get_xlabel() == "sent over the network, kB"
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
            width = statistics.fmean(summary[summary["name"] == name][f"bytes_{column}"]) / 1e3
            if width:
                expected[number, to_hex(colours[way].get_facecolor())] = (left, width)
            left += width
    assert drawn.keys() == expected.keys()
    for key, (left, width) in expected.items():
        assert list(drawn[key]) == pytest.approx([left, width])


def test_every_figure_has_a_name_and_unknown_names_and_options_of_others_are_refused(learned):
    assert set(FIGURES) == set(pictures.DRAWN)
    assert set(learned.pictures()) <= set(FIGURES)
    assert all(name in str(Result.plot.__doc__) for name in FIGURES)
    with pytest.raises(FredError, match=r"no figure `eror`; did you mean `error`\?; there are loss, error, perplexity, "):
        learned.plot("eror")
    with pytest.raises(FredError, match="`begin` is for the figure timeline; got `loss`"):
        learned.plot("loss", begin=1.0)
    with pytest.raises(FredError, match=r"`against` is for the figures loss, error, .*; got `timeline`"):
        learned.plot("timeline", against=["updates"])
    with pytest.raises(FredError, match="there is no perplexity to plot: only sequences"):
        learned.plot("perplexity")


def test_what_was_not_learned_is_refused_or_left_out(untrained, learned, tmp_path):
    for quantity in ("loss", "error"):
        with pytest.raises(FredError, match=f"there is no {quantity} to plot: the scenario has no `task`"):
            untrained.plot(quantity)
    for result_ in (untrained, learned):
        with pytest.raises(FredError, match="nothing to plot: in these runs workers have no models of their own"):
            result_.plot("disagreement")
        with pytest.raises(FredError, match="nothing to plot: in these runs workers have no models of their own"):
            result_.plot("replicas-error")
    folder.save(untrained, tmp_path / "untrained")
    saved = sorted(path.name for path in (tmp_path / "untrained" / "figures").iterdir())
    assert saved == [f"{name}.svg" for name in ("paired", "staleness", "throughput", "timeline", "traffic", "workers-time")]
    clockless = result_of({"run": {"task": None, "protocol": "dispatcher"}})
    folder.save(clockless, tmp_path / "clockless")
    saved = sorted(path.name for path in (tmp_path / "clockless" / "figures").iterdir())
    assert saved == ["staleness.svg"], "nothing was sent"


@pytest.mark.parametrize(("quantity", "label"), [("disagreement", "disagreement"), ("replicas_error", "replicas' error")])
def test_what_replicas_come_to_is_that_of_runs_whose_workers_have_models(quantity, label):
    result_ = result_of({"server": {"algorithm": "asgd"}, "peers": {"algorithm": "d-psgd"}})
    left, right = result_.plot(quantity.replace("_", "-")).axes
    assert (left.get_ylabel(), len(left.get_lines()), len(right.get_lines())) == (label, 1, 1)
    (line,) = left.get_lines()
    xs, ys = values(result_.metrics, "peers", 1, "updates", quantity)
    x, y = (np.asarray(each, float) for each in line.get_data())
    np.testing.assert_allclose(y, [between(at, xs, ys) for at in x], rtol=1e-9)


@pytest.mark.parametrize("name", ["loss", "staleness", "timeline", "traffic"])
def test_a_picture_is_the_same_bytes_each_time_whatever_the_readers_own_style(learned, tmp_path, name):
    def saved(file: str) -> bytes:
        picture: Picture = learned.plot(name)
        picture.save(tmp_path / file)
        return Path(tmp_path / file).read_bytes()

    style: Any = {"font.size": 20, "axes.grid": False, "svg.fonttype": "none", "svg.hashsalt": "other"}
    first, again, png, second_png = saved("a.svg"), saved("b.svg"), saved("a.png"), saved("b.png")
    with matplotlib.rc_context(style):
        elsewhere = saved("c.svg")
    assert first == again == elsewhere
    assert png == second_png
    assert b"<dc:date>" not in first
    assert learned.plot(name)._repr_svg_().encode() == first, "what a notebook shows"
