"""A schedule is whole: what is stored of it is all that tables and figures are made of."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fred.base.errors import FredError
from fred.components import registry
from fred.results import experiment, folder
from fred.running import unit_checks
from fred.running.execution import execute
from fred.schedule.schedule import Intervals, Schedule, What
from fred.specification.loading import Scenario, load
from tests.worlds import LAYERS, make_run

SCENARIOS = Path(__file__).parent.parent / "scenarios"
_QUICK = ("allreduce-sgd", "faults")
_FEW, _GRADIENTS = 4, 120  # runs of a scenario, and how long each goes on
_LEARNT = 6  # every so many-th learns, and its figures are compared, too: that takes most of the time
_THREE_LAYERS = {**LAYERS, "model": {"name": "mlp", "hidden": [6, 6]}}  # as many as any scenario has servers


def shipped() -> list[Any]:
    """All scenarios of the project; a few, without arithmetic, come first."""
    paths = sorted(SCENARIOS.rglob("*.yaml"))
    quick = [pytest.param(path, None, True, id=path.stem) for path in paths if path.stem in _QUICK]
    tasks = [_THREE_LAYERS if number % _LEARNT == 0 else None for number in range(len(paths))]
    return quick + [
        pytest.param(path, task, bool(task), id=f"{path.parent.name}-{path.stem}", marks=pytest.mark.slow)
        for path, task in zip(paths, tasks, strict=True)
    ]


def shortened(path: Path, task: dict[str, Any] | None) -> Scenario:
    """The first few runs of different systems, each a moment, with the first seed; what they learn, if anything, is small."""
    scenario = load(path)
    learns = any(run.task for run in scenario.runs.values())
    short: dict[str, Any] = {"stop": {"gradients": _GRADIENTS}, "evaluate": {"points": 3}}
    try:
        scenario = scenario.replace(short | {"task": task if learns else None})
    except FredError:  # its times, or its best point, follow from what is learned
        scenario = scenario.replace(short | {"task": _THREE_LAYERS})
    kinds = {name: (type(run.algorithm), type(run.protocol)) for name, run in scenario.runs.items()}
    first = {kind: name for name, kind in reversed(kinds.items())}
    kept = [*first.values(), *(name for name in kinds if name not in first.values())][: max(_FEW, len(first))]
    parts = {
        part: {name: each for name, each in getattr(scenario, part).items() if name in kept} for part in ("runs", "points")
    }
    return scenario.model_copy(update={**parts, "seeds": scenario.seeds[:1]})


@pytest.mark.parametrize(("path", "task", "drawn"), shipped())
def test_what_was_stored_gives_every_table_and_figure_that_it_gave_in_memory(path, task, drawn, tmp_path, request):
    if not drawn:
        request.getfixturevalue("undrawn")
    made = experiment.run(shortened(path, task))
    folder.save(made, tmp_path / "result")
    read = folder.load_result(tmp_path / "result")
    for table in ("metrics", "summary", *(("sweep", "best") if made.swept else ())):
        pd.testing.assert_frame_equal(getattr(read, table), getattr(made, table), check_exact=True)
    for each in made.outcomes:
        one, other = read.outcome(each.name).schedule, each.schedule
        assert one.digest() == other.digest()
        pd.testing.assert_frame_equal(read.schedule(each.name), made.schedule(each.name), check_exact=True)
        if each.run.protocol.has_clock:
            pd.testing.assert_frame_equal(read.run_times(each.name), made.run_times(each.name), check_exact=True)
    if not drawn:
        return
    files = {file.stem: file.read_bytes() for file in (tmp_path / "result" / "figures").iterdir()}
    assert files.keys() == read.pictures().keys()
    for name, draw in read.pictures().items():
        draw().save(tmp_path / "picture.svg")
        assert (tmp_path / "picture.svg").read_bytes() == files[name], name


def faulty() -> Schedule:
    """Return a schedule with intervals of several kinds, and a standstill at its end."""
    faults = [
        {"name": "outage", "workers": [1], "begin": 1.5, "end": 2.5},
        {"name": "outage", "workers": [0], "begin": 5.5},
        {"name": "outage", "servers": [0], "begin": 9.0},
    ]
    cluster = {"workers": 2, "compute": {"name": "constant", "seconds": 1.0}, "faults": faults}
    run = make_run("ssgd", protocol="synchronous", stop={"seconds": 20}, task=None, cluster=cluster)
    return execute("run", run, 1).schedule


def test_what_is_read_is_what_was_saved(tmp_path):
    schedule = faulty()
    schedule.save(tmp_path / "schedule.parquet")
    loaded = Schedule.load(tmp_path / "schedule.parquet")
    for field in dataclasses.fields(Schedule):
        one, other = getattr(loaded, field.name), getattr(schedule, field.name)
        if field.name in ("columns", "intervals"):
            one, other = (dict(each) if isinstance(each, dict) else each._asdict() for each in (one, other))
            assert one.keys() == other.keys()
            assert all(np.array_equal(one[name], other[name]) and one[name].dtype == other[name].dtype for name in other)
        else:
            assert one == other, field.name
    assert loaded.standstill


def test_there_may_be_more_servers_than_workers(tmp_path):
    faults = [{"name": "outage", "servers": [3], "begin": 1.5, "end": 2.5}]
    run = make_run(stop={"seconds": 4}, task=None, cluster={"workers": 2, "servers": 4, "faults": faults})
    schedule = execute("run", run, 1).schedule
    assert schedule.intervals.only(What.SERVER_AWAY).other.tolist() == [3]
    schedule.save(tmp_path / "schedule.parquet")
    assert unit_checks.schedule(tmp_path / "schedule.parquet", run).digest() == schedule.digest()


def test_other_programs_can_read_the_intervals(tmp_path):
    schedule = faulty()
    schedule.save(tmp_path / "schedule.parquet")
    table = pd.read_parquet(tmp_path / "schedule-intervals.parquet")
    assert table.columns.tolist() == list(Intervals._fields)
    away = table[table["what"] == "AWAY"]
    assert away[["worker", "begin_ns", "end_ns"]].to_numpy().tolist() == [
        [0, 5_500_000_000, 2**63 - 1],
        [1, 1_500_000_000, 2_500_000_000],
    ]
    assert table[table["what"] == "SERVER_AWAY"][["other", "begin_ns"]].to_numpy().tolist() == [[0, 9_000_000_000]]


@pytest.mark.parametrize("part", [field.name for field in dataclasses.fields(Schedule)])
def test_the_digest_covers_every_part(part):
    schedule = faulty()
    value = getattr(schedule, part)
    if part == "columns":
        changed = value | {"bytes": value["bytes"] + 1}
    elif part == "intervals":
        changed = value._replace(end_ns=value.end_ns - 1)
    else:
        changed = {int: lambda: value + 1, str: lambda: value + ".", range: lambda: range(2)}[type(value)]()
    assert dataclasses.replace(schedule, **{part: changed}).digest() != schedule.digest()


def test_what_comes_after_the_end_is_no_part_of_it():
    """Three workers finish gradients at 1 s and at 3 s, one after the other; the last update ends the run.

    Each sends two models then; who made that update would send them, at the same instant, after the end.
    """
    network = {"latency": {"name": "constant", "seconds": 1.0}}
    cluster = {"workers": 3, "compute": {"name": "constant", "seconds": 1.0}, "network": network}
    for updates in (3, 4, 5, 6):
        run = make_run("sgp", protocol="gossip", stop={"updates": updates}, task=None, cluster=cluster)
        schedule = execute("run", run, 1).schedule
        trips = schedule.intervals.only(What.TRIP)
        assert (trips.row < len(schedule)).all()
        assert (trips.end_ns <= schedule.end_ns).all()
        assert len(trips.row) == 2 * (updates - 1)


@pytest.mark.slow
def test_every_protocol_is_shipped_and_so_looked_at():
    shown = {type(run.protocol) for path in sorted(SCENARIOS.rglob("*.yaml")) for run in load(path).runs.values()}
    assert shown == {registry.lookup("protocol", name) for name in registry.REGISTRY["protocol"]}
