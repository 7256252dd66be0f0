"""The losses that a notebook shows while a cell computes runs."""

import re
import time
from types import SimpleNamespace
from typing import Any

import IPython.display
import numpy as np
import pytest

import fred
from fred.base import progress
from fred.views.notebook import LossFigure, SeedLosses, live_losses

SCENARIO: dict[str, Any] = {
    "task": {"data": "digits", "model": "softmax"},
    "cluster": {"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    "stop": {"updates": 40},
    "evaluate": {"points": 20},
    "seeds": [1, 2],
    "runs": {name: {"algorithm": {"name": name, "learning_rate": 0.1}} for name in ("asgd", "ssgd")},
}
SECONDS = 0.13  # between two looks at the clock


@pytest.fixture
def outputs(monkeypatch) -> list[tuple[float, Any]]:
    """Return the list of all that a notebook shows, with the time, s; every look at the clock takes some time."""
    outputs: list[tuple[float, Any]] = []
    now = [0.0]

    def clock() -> float:
        now[0] += SECONDS
        return now[0]

    def display(content, display_id):
        outputs.append((now[0], content))
        return SimpleNamespace(update=lambda content: outputs.append((now[0], content)))

    monkeypatch.setattr(IPython.display, "display", display)
    monkeypatch.setattr("fred.results.experiment.in_notebook", lambda: True)
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    monkeypatch.setattr(time, "monotonic", clock)
    return outputs


def figures(outputs: list[tuple[float, Any]]) -> list[tuple[float, LossFigure]]:
    return [(when, content) for when, content in outputs if isinstance(content, LossFigure)]


@pytest.mark.parametrize("how", [{}, {"inline": True}, {"out": "result", "report": False}])
def test_the_last_drawn_points_are_the_measured_losses(outputs, how, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = fred.run(SCENARIO, **how)
    _, last = figures(outputs)[-1]
    assert list(last.runs) == ["asgd", "ssgd"] and len(last.runs["asgd"].losses) > 10
    for name, run in last.runs.items():
        measured = result.outcome(name, run.seed).metrics["loss"].tolist()
        assert run.losses == measured[: len(run.losses)]


def test_the_figure_is_below_the_line_of_progress_drawn_at_most_twice_a_second_and_removed_at_the_end(outputs):
    fred.run(SCENARIO)
    times = [when for when, _ in figures(outputs)]
    assert len(times) > 10 and times[0] > 2.0 and np.diff(times).min() >= 0.5
    kinds = [type(content).__name__ for _, content in outputs]
    assert kinds.index("Pretty") < kinds.index("LossFigure")
    removals = [place for place, (_, content) in enumerate(outputs) if getattr(content, "data", None) == ""]
    assert len(removals) == 2, "of the figure, then of the line"
    assert removals[0] > max(np.flatnonzero(np.array(kinds) == "LossFigure"))


def test_the_first_figure_comes_after_two_seconds_and_the_others_after_half_a_second(outputs, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with live_losses(["asgd"]):
        for number in range(1, 101):
            now[0] = number / 20
            progress.report_measurements("asgd", 1, [{"loss": 1.0}] * number)
    assert [len(figure.runs["asgd"].losses) for _, figure in figures(outputs)] == [40, 50, 60, 70, 80, 90, 100]


def test_runs_that_take_less_than_two_seconds_or_train_nothing_have_no_figure(outputs, monkeypatch):
    fred.run({key: value for key, value in SCENARIO.items() if key != "task"} | {"stop": {"updates": 400}})
    monkeypatch.setattr(time, "monotonic", lambda: 1.0)
    fred.run(SCENARIO)
    assert not figures(outputs)


def test_the_figure_of_a_run_that_is_interrupted_stays(outputs):
    def interrupt() -> None:
        with live_losses(["asgd"]):
            for number in range(1, 40):
                progress.report_measurements("asgd", 1, [{"loss": 1.0}] * number)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert isinstance(outputs[-1][1], LossFigure)
    before = len(outputs)
    progress.report_measurements("asgd", 1, [{"loss": 1.0}])
    assert len(outputs) == before, "nobody listens any more"


def line_points(losses: list[float]) -> np.ndarray:
    """Return the points of the line of these losses, px [points, 2]."""
    (text,) = re.findall(r'points="([^"]*)"', LossFigure({"a": SeedLosses(1, losses, ("red", "-"))})._repr_html_())
    return np.array([point.split(",") for point in text.split()], float)


def test_lines_are_linear_or_logarithmic_in_the_losses_and_leave_out_those_that_are_not_finite():
    near, far = np.linspace(2.0, 1.0, 9), np.geomspace(2.0, 0.01, 9)
    for losses, places in ((near, near), (far, np.log(far))):
        x, y = line_points(losses.tolist()).T
        assert np.allclose(np.diff(x), np.diff(x)[0], atol=0.11)
        slope, offset = np.polyfit(places, y, 1)
        assert slope < 0 and np.allclose(slope * places + offset, y, atol=0.11)
    assert len(line_points([1.0, np.nan, np.inf, 0.5])) == 2
    for odd in ([np.nan], [0.0], [-1.0, -2.0], [1.0, 1.0], [1e-300, 1e300]):
        assert np.isfinite(line_points(odd)).all()
    assert len(line_points([1.0] * 10_000)) == 300


def test_labels_of_a_sweep_show_the_values_of_points_and_close_losses_fill_the_panel():
    look = ("red", "-")
    points = {f"a-long-name-of-a-run,rate={rate}": SeedLosses(1, [0.7, 0.6 + rate], look) for rate in (0.01, 0.02)}
    text = LossFigure(points)._repr_html_()
    assert ">rate=0.01, seed 1: 0.61<" in text and ">rate=0.02, seed 1: 0.62<" in text and "a-long" not in text
    two = {f"run,a_long_name_of_a_rate={rate},power=2": SeedLosses(1, [0.5], look) for rate in (0.1, 0.2)}
    assert len(set(re.findall(r">([^<>]*…[^<>]*),power=2, seed 1", LossFigure(two)._repr_html_()))) == 2, "shortened, not alike"
    heights = line_points([0.7, 0.65, 0.6])[:, 1]
    assert heights.max() - heights.min() == 180, "the height of the panel"
    width = int(re.findall(r'svg width="(\d+)"', text)[0])
    assert width >= 46 + 420 + 36 + 7 * len("x" * 24 + ", seed 1234: 0.612"), "12 px letters are about 7 px wide"


def test_names_are_escaped():
    assert "<b>" not in LossFigure({"<b>": SeedLosses(1, [1.0], ("red", "-"))})._repr_html_()


def test_of_many_runs_the_last_ten_are_shown(outputs):
    names = [f"run-{number}" for number in range(30)]
    with live_losses(names):
        for name in names:
            for number in range(1, 8):
                progress.report_measurements(name, 1, [{"loss": 1.0}] * number)
    _, last = figures(outputs)[-1]
    assert list(last.runs) == names[-10:]
