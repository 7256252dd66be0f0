"""Timelines: bars and ticks by hand and against plain loops over schedules; which workers, from when to when."""

import statistics
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.patches import PathPatch, StepPatch

from fred.base.errors import FredError
from fred.results import experiment
from fred.results.result import Result
from fred.specification.loading import Scenario
from tests.laws import stretches
from tests.worlds import COMPUTE, make_run

NETWORK = {"latency": {"name": "constant", "seconds": 0.03}, "message_bytes": 4000}
CLUSTER = {"workers": 4, "compute": COMPUTE, "network": NETWORK}
SECOND = {"name": "constant", "seconds": 1.0}
BLUE, RED, PURPLE, GREY, DARK = "#56b4e9", "#d55e00", "#cc79a7", "#d0d0d0", "#5b5b5b"
COLOURS_OF_TIME = {"computing": BLUE, "wasted": RED, "network": PURPLE, "waiting": GREY, "away": DARK}


def result_of(runs: dict[str, dict], seeds: tuple[int, ...] = (1,)) -> Result:
    """The timing of these runs, each with every seed."""
    made = {name: make_run(**({"task": None} | run)) for name, run in runs.items()}
    return experiment.run(Scenario(title="", seeds=seeds, runs=made))


def bars_of(axis: Axes) -> list[tuple[str, int, int, int]]:
    """Colour, worker, beginning and end (ns) of every bar of a timeline."""
    rows = {round(place): int(label.get_text()) for place, label in zip(axis.get_yticks(), axis.get_yticklabels(), strict=True)}
    found = []
    for patch in axis.patches:
        if isinstance(patch, PathPatch):
            corners = np.asarray(patch.get_path().vertices).reshape(-1, 5, 2)
            for (left, low), (_, high), (right, _), *_ in corners.tolist():
                found.append(
                    (to_hex(patch.get_facecolor()), rows[round((low + high) / 2)], round(left * 1e9), round(right * 1e9))
                )
    return sorted(found)


def ticks_of(axis: Axes) -> list[int]:
    """Times of the marks for updates, ns."""
    (lines,) = (each for each in axis.collections if isinstance(each, LineCollection))
    return sorted(round(float(np.asarray(segment)[0, 0]) * 1e9) for segment in lines.get_segments())


def test_a_timeline_that_can_be_drawn_by_hand():
    """Two workers, of whom the second is half as fast: 1 s (2 s) of computing, 0.25 s each way; six gradients' time is 9 s."""
    network = {"latency": {"name": "constant", "seconds": 0.25}}
    cluster = {"workers": 2, "compute": SECOND, "speeds": [1, 0.5], "network": network}
    picture = result_of({"run": {"cluster": cluster, "stop": {"seconds": 4.6}}}).plot("timeline")
    (axis,) = picture.axes
    assert (axis.get_title(), axis.get_xlabel(), axis.get_ylabel()) == ("run", "virtual time, s", "worker")
    assert {label.get_fontsize() for label in axis.get_yticklabels()} == {9.0}, "as large as the others"
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
        "wasted": RED,
        "network": PURPLE,
        "waiting": GREY,
        "away": DARK,
        "update": "#222222",
    }


def test_timelines_show_what_the_first_seeds_schedule_says():
    runs: dict[str, dict] = {"dispatched": {"protocol": "dispatcher"}, "asgd": {}, "same": {"algorithm": "sasgd"}}
    runs |= {"backup": {"algorithm": "ssgd", "protocol": {"backup_workers": 1}}, "peers": {"algorithm": "d-psgd"}}
    untrained = result_of({name: {"cluster": CLUSTER} | run for name, run in runs.items()}, (3, 1))
    axes = untrained.plot("timeline").axes
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
    """Of six seconds, two before worker 1 crashes at 10.5 s; it is back at 12 s."""
    fault = {"name": "outage", "workers": [1], "begin": 10.5, "end": 12.0}
    cluster = {"workers": 2, "compute": SECOND, "faults": [fault]}
    (axis,) = result_of({"run": {"cluster": cluster, "stop": {"seconds": 30}}}).plot("timeline").axes
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
    run = {"cluster": {"workers": 2, "compute": SECOND, "faults": [fault]}}
    axes = result_of({f"{end}": {**run, "stop": {"seconds": end}} for end in (5, 30)}).plot("timeline").axes
    assert {axis.get_xlim()[0] for axis in axes} == {0.0}


@pytest.fixture(scope="module")
def many() -> Result:
    """Forty workers, of whom one is away from 2.5 s on, and four."""
    run = {"protocol": "asynchronous", "stop": {"seconds": 12}}
    fault = {"name": "outage", "workers": [21], "begin": 2.5, "end": 4.0}
    large = {**run, "cluster": {"workers": 40, "compute": SECOND, "faults": [fault]}}
    return result_of({"large": large, "small": {**run, "cluster": {"workers": 4, "compute": SECOND}}})


def test_of_many_workers_sixteen_are_shown_evenly_spaced_with_who_is_away_first(many):
    picture = many.plot("timeline")
    large, small = picture.axes
    expected = {round(39 * place / 15) for place in range(16)}
    assert 21 in expected, "so nobody has to give way"
    assert {worker for _, worker, *_ in bars_of(large)} == expected
    assert {worker for _, worker, *_ in bars_of(small)} == set(range(4))
    assert large.get_xlim() == (0.5, 6.5), "a third before the fault"
    assert picture.get_supxlabel() == "16 of 40 workers, evenly spaced"


def test_who_is_away_takes_the_place_of_the_nearest():
    fault = {"name": "outage", "workers": [22], "begin": 2.5, "end": 4.0}
    run = {"cluster": {"workers": 40, "compute": SECOND, "faults": [fault]}, "stop": {"seconds": 12}}
    (axis,) = result_of({"run": run}).plot("timeline").axes
    shown = {worker for _, worker, *_ in bars_of(axis)}
    assert shown == {round(39 * place / 15) for place in range(16)} - {21, 23} | {22, 23}


def test_a_timeline_has_the_workers_and_the_time_that_one_asks_for(many):
    large, small = many.plot("timeline", begin=7.5, end=9.0, workers=[39, 2, 0]).axes
    assert large.get_xlim() == small.get_xlim() == (7.5, 9.0)
    assert [label.get_text() for label in large.get_yticklabels()] == ["39", "2", "0"], "in this order, from the top"
    assert large.get_ylim()[0] > large.get_ylim()[1]
    seconds = [(BLUE, who, begin * 10**9, (begin + 1) * 10**9) for who in (0, 2, 39) for begin in (7, 8)]
    assert bars_of(large) == sorted(seconds)
    assert [label.get_text() for label in small.get_yticklabels()] == ["2", "0"], "there is no worker 39"
    (only,) = many.plot("timeline", workers=[30]).axes
    assert (only.get_title(), only.get_xlim()[0]) == ("large", 0), "who is away is not shown, nor when"
    assert [each.get_xlim() for each in many.plot("timeline", end=9).axes] == [(3, 9)] * 2, "six gradients before"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"workers": [3, 40]}, "no worker 40 on the timeline; workers are numbered 0 to 39"),
        ({"workers": []}, "the timeline needs workers"),
        ({"begin": 12.0}, "the timeline cannot begin at 12 s: the last run ends at 12 s"),
        ({"begin": -1.0}, "the timeline cannot begin at -1 s; expected 0 or more"),
        ({"begin": float("nan")}, "the timeline cannot begin at nan s"),
        ({"begin": 3.0, "end": 3.0}, "the timeline cannot end at 3 s; expected more than its beginning, 3 s"),
        ({"end": float("inf")}, "the timeline cannot end at inf s"),
    ],
)
def test_times_and_workers_of_which_no_run_knows_are_refused(many, asked, said):
    with pytest.raises(FredError, match=said):
        many.plot("timeline", **asked)


def test_where_updates_are_many_their_number_is_drawn():
    """As many in each of 250 parts of the time as the schedule says."""
    outcome = result_of({"run": {"cluster": {"workers": 60, "compute": COMPUTE}, "stop": {"gradients": 900}}})
    (axis,) = outcome.plot("timeline", begin=0.0).axes
    assert not [each for each in axis.collections if isinstance(each, LineCollection)]
    (profile,) = (patch for patch in axis.patches if isinstance(patch, StepPatch))
    heights, edges, base = profile.get_data()
    rows: Any = outcome.schedule("run").itertuples()
    times = [row.time_ns / 1e9 for row in rows if row.verb == "PUSH" and row.time_ns / 1e9 < axis.get_xlim()[1]]
    counts = [sum(low <= time < high for time in times) for low, high in pairwise(edges)]
    assert len(times) > 250
    np.testing.assert_allclose((base - heights) / (base - heights).max(), np.array(counts) / max(counts))
