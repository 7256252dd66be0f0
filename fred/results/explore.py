"""Sliders for settings of a scenario in a notebook: the timing of its runs follows them."""

import math
import operator
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import reduce
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fred.base.errors import FredError, quoted
from fred.components.component import settings_of
from fred.results.result import Result
from fred.running.execution import execute
from fred.running.recording import Timing, Timings
from fred.specification.loading import Scenario, as_scenario
from fred.specification.shape import Run
from fred.specification.source import keys_of
from fred.specification.sweep import is_number

if TYPE_CHECKING:
    from ipywidgets import VBox

_STEPS = 100  # of a continuous range
_INSIDE = 0.37  # share of a continuous range at which a value is tried, too: mostly not a whole number
_MOST_LETTERS = 60  # of a value in a list
_UNTRAINED = {  # settings that need a task
    **dict.fromkeys(("task", "stop.target_loss")),
    **dict.fromkeys(f"evaluate.target_{name}" for name in ("loss", "error", "gradient_norm")),
    "evaluate.gradient_norm": False,
}
_BANDWIDTHS = ("bandwidth", "upload", "download", "server_bandwidth", "node_bandwidth", "within", "servers", "regions", "links")


def explore(
    scenario: Scenario | Mapping[str, Any] | str | Path,
    settings: Mapping[str, tuple[float, float] | range | Sequence[Any]],
) -> "VBox":
    """Return sliders for settings, and below them the timing of all runs, which follows: speed, timeline and staleness.

    Only the timing is simulated, with the first seed: the task is left out, and of a sweep all points but the first. The
    last expression of a notebook's cell is shown. A combination of settings that a scenario cannot have shows its error.

    Args:
        scenario: what `fred.run` takes: a scenario, the name or path of its file, or a mapping of settings.
        settings: the values of each slider, by the path of the setting, as `Scenario.replace` takes it: two numbers for a
            continuous range, a `range`, or a list of values. A slider begins at the scenario's value if it has that, otherwise
            at its first one.

    Raises FredError if ipywidgets is missing, for an unknown setting, one without a possible value or one that the timing does
    not depend on, and for a scenario whose timing depends on its task.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 16, "compute": {"name": "lognormal", "median": 0.5, "sigma": 0.5}},
    ...     algorithm={"name": "ssgd", "learning_rate": 0.1},
    ...     protocol={"backup_workers": 1},
    ...     stop={"updates": 100},
    ... )
    >>> panel = fred.explore(scenario, {"cluster.compute.sigma": (0, 2), "protocol.backup_workers": range(5)})
    >>> [slider.value for slider in panel.children[0].children]
    [0.5, 1]
    """
    try:
        import ipywidgets
    except ImportError:
        raise FredError("`fred.explore` needs the package `ipywidgets`: pip install 'fred-sim[notebook]'") from None
    timed = _timed(as_scenario(scenario), settings)
    sliders = {path: _slider(ipywidgets, timed, path, values) for path, values in settings.items()}
    output = ipywidgets.HTML()

    def update(_: Any = None) -> None:
        output.value = timing_or_error(timed, {path: slider.value for path, slider in sliders.items()})

    for slider in sliders.values():
        slider.observe(update, "value")
    update()
    return ipywidgets.VBox([ipywidgets.VBox([*sliders.values()]), output])


def timing_or_error(scenario: Scenario, values: Mapping[str, Any]) -> str:
    """Return HTML with the timing of a scenario's runs, or with the error of a combination of settings that it cannot have.

    Args:
        scenario: the scenario, without a task.
        values: the values that replace its settings, by path.
    """
    from fred.views.notebook import timing_html

    try:
        return timing_html(timing(scenario, values))
    except FredError as error:
        return "".join(f"<p style='color: #d55e00'>{escape(line)}</p>" for line in error.args)


def timing(scenario: Scenario, values: Mapping[str, Any]) -> Result:
    """Return the timing of a scenario's runs with its first seed. Raises FredError.

    Args:
        scenario: the scenario, without a task.
        values: the values that replace its settings, by path.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    ...     algorithm={"name": "ssgd", "learning_rate": 0.1},
    ...     stop={"updates": 4},
    ... )
    >>> timing(scenario, {"cluster.workers": 4}).summary["throughput"].tolist()
    [8.0]
    """
    changed = scenario.replace(values)
    timings, seed = Timings(), changed.seeds[0]
    return Result(changed, [execute(name, run, seed, timings=timings) for name, run in changed.runs.items()])


def _timed(scenario: Scenario, settings: Mapping[str, Any]) -> Scenario:
    """Return a scenario without its task, with one seed and one point of each sweep. Raises FredError."""
    example = "{'cluster.workers': range(2, 33)}"
    if not isinstance(settings, Mapping) or not settings or not all(isinstance(path, str) for path in settings):
        raise FredError(f"found {quoted(settings)[:80]}; expected settings with their values, such as {example}")
    if of_task := [path for path in settings if "task" in path.split(".")]:
        raise FredError(f"{of_task[0]}: `fred.explore` simulates the timing without the task; leave this setting out")
    runs: dict[str, Run] = {}
    for name, run in scenario.runs.items():
        runs.setdefault(scenario.run_of(name), run)
    for run in runs.values():
        _check_messages(run, settings)
    one_seed = {"seeds": scenario.seeds[:1], "report_seeds": None, "until": None}
    try:
        return scenario.model_copy(update={"runs": runs, "points": {}, "best": None, **one_seed}).replace(_UNTRAINED)
    except FredError as error:
        raise FredError(*(f"{line}; `fred.explore` leaves it out: use `fred.run`" for line in error.args)) from None


def _check_messages(run: Run, settings: Mapping[str, Any]) -> None:
    """Raise FredError if the size of messages depends on the task."""
    network, key = run.cluster.network, "cluster.network.message_bytes"
    if run.task is None or network is None or network.message_bytes or key in settings:
        return
    for name in _BANDWIDTHS:
        if getattr(network, name):
            raise FredError(
                f"cluster.network.{name}: `fred.explore` leaves out the task, and with it the size of the messages; give the "
                f"size of the parameters: `fred.explore(scenario.replace({{'{key}': 4_000_000}}), ...)`"
            )


def _slider(ipywidgets: Any, scenario: Scenario, path: str, values: Any) -> Any:
    """Return the widget of a setting: a slider for numbers, otherwise a list to choose from. Raises FredError."""
    look = {"description": path, "style": {"description_width": "16rem"}, "layout": ipywidgets.Layout(width="36rem")}
    look_of_slider = look | {"continuous_update": False}  # the runs follow when the mouse is released
    current = _current(scenario, path)
    if isinstance(values, tuple) and len(values) == 2 and all(map(is_number, values)) and 0 < values[1] - values[0] < math.inf:
        low, high = map(float, values)
        _check_continuous(scenario, path, low, high)
        _check_effect(scenario, path, [low, high])
        initial = float(current) if is_number(current) and low <= current <= high else low
        step = _round_step((high - low) / _STEPS)
        return ipywidgets.FloatSlider(initial, min=low, max=high, step=step, readout_format=".4", **look_of_slider)
    if not isinstance(values, range | list) or not len(values):
        raise FredError(
            f"{path}: found {quoted(values)[:80]}; expected two numbers in parentheses, the smaller one first, such as (0, 2), "
            "a range, such as range(5), or a list of values"
        )
    _check(scenario, path, values)
    _check_effect(scenario, path, values if isinstance(values, list) else [values[0], values[-1]])
    initial = current if current in values else values[0]
    if isinstance(values, range):
        low, high, step = min(values), max(values), abs(values.step)
        return ipywidgets.IntSlider(initial, min=low, max=high, step=step, **look_of_slider)
    choice = {"options": [(_label(value), value) for value in values], "value": initial}
    if all(map(is_number, values)):
        return ipywidgets.SelectionSlider(**choice, **look_of_slider)
    return ipywidgets.Dropdown(**choice, **look)


def _check_continuous(scenario: Scenario, path: str, low: float, high: float) -> None:
    """Raise FredError if a scenario can have neither end of a range of values of a setting, or only whole numbers."""
    _check(scenario, path, (low, high))
    try:
        _check(scenario, path, [low + _INSIDE * (high - low)])
    except FredError as error:
        cure = f"for whole numbers give `range({math.ceil(low)}, {math.floor(high) + 1})`"
        raise FredError(f"{error}; two numbers are a continuous range: {cure}") from None


def _check(scenario: Scenario, path: str, values: Sequence[Any]) -> None:
    """Raise the first FredError if a scenario can have none of these values of a setting."""
    errors = []
    for value in values:
        try:
            scenario.replace({path: value})
            return
        except FredError as error:
            errors.append(error)
    raise errors[0]


def _check_effect(scenario: Scenario, path: str, values: Sequence[Any]) -> None:
    """Raise FredError if a setting has several values that are possible, and the timing of all runs is the same for all."""
    effects = []
    for value in values:
        with suppress(FredError):  # the panel shows it
            changed = scenario.replace({path: value})
            effects.append([(Timing.of_run(run, changed.seeds[0]), run.cluster.prices) for run in changed.runs.values()])
            if effects[-1] != effects[0]:
                return
    if len(effects) > 1:
        sweep = f"{{'{path}': {quoted([*values])[:80]}}}"
        raise FredError(
            f"{path}: the timing does not depend on it, and `fred.explore` simulates the timing only; to see its effect on "
            f"training, sweep it: `fred.run(scenario.replace({{'sweep': {{'over': {sweep}}}}}))`"
        )


def _current(scenario: Scenario, path: str) -> Any:
    """Return the value of a setting in a scenario, in its first run if the path names none; None if there is no such value."""
    settings, keys = settings_of(scenario), keys_of(path)
    root = settings if keys[0] in settings else next(iter(settings["runs"].values()))
    try:
        return reduce(operator.getitem, keys, root)
    except (LookupError, TypeError):
        return None


def _round_step(least: float) -> float:
    """Return the least of the numbers 1, 2, 5, 10, 20, 50, 0.1 and so on that is not below `least`.

    >>> _round_step(0.02), _round_step(0.03), _round_step(0.7)
    (0.02, 0.05, 1.0)
    """
    power = 10.0 ** math.floor(math.log10(least))
    # 0.999: despite rounding.
    return float(next(f"{factor * power:.3g}" for factor in (1, 2, 5, 10) if factor * power >= least * 0.999))


def _label(value: Any) -> str:
    """Return a value in a few letters: a part of a scenario by its name."""
    if isinstance(value, float):
        return f"{value:.6g}"
    named = settings_of(value)
    if isinstance(named, dict) and "name" in named:
        options = ", ".join(f"{key}: {option}" for key, option in named.items() if key != "name")
        return f"{named['name']} {options}".strip()[:_MOST_LETTERS]
    return str(value)[:_MOST_LETTERS]
