"""A schedule is complete: its stored form suffices for all tables and figures."""

import dataclasses
from pathlib import Path

import pandas as pd
import pytest

import fred
from fred import Cluster, Result, Schedule, load
from fred.components import registry
from fred.results import experiment, folder
from fred.running.execution import execute
from fred.schedule.schedule import Intervals, What
from fred.specification.loading import Scenario
from tests.laws import check_laws
from tests.worlds import COMPUTE, NETWORK, TASK, constant, fitting_protocol, make_run, record

CLUSTER = Cluster(workers=8, compute=COMPUTE, network=NETWORK, servers=2)


def save_and_read(scenario: Scenario, place: Path) -> Result:
    """Store a result and read it; check that its tables are those in memory."""
    result = experiment.run(scenario.model_copy(update={"seeds": scenario.seeds[:1]}))
    folder.save(result, place)
    read = folder.load_result(place)
    for table in ("metrics", "summary", *(("sweep", "best") if result.swept else ())):
        pd.testing.assert_frame_equal(getattr(read, table), getattr(result, table), check_exact=True)
    for outcome in result.outcomes:
        assert read.outcome(outcome.name).schedule.digest() == outcome.schedule.digest()
        pd.testing.assert_frame_equal(read.schedule(outcome.name), result.schedule(outcome.name), check_exact=True)
        pd.testing.assert_frame_equal(read.run_times(outcome.name), result.run_times(outcome.name), check_exact=True)
    return read


@pytest.mark.usefixtures("undrawn")
def test_a_stored_sweep_gives_every_table_of_the_one_in_memory(tmp_path):
    sweep = {"over": {"algorithm.learning_rate": [0.1, 0.2]}, "best": "error"}
    world = {"task": TASK, "cluster": {"workers": 3}, "algorithm": {"name": "asgd"}, "stop": {"gradients": 60}}
    save_and_read(fred.scenario(world | {"sweep": sweep}), tmp_path / "result")


@pytest.mark.slow
def test_a_stored_result_gives_every_table_and_figure_of_the_one_in_memory(tmp_path):
    short = {"stop": {"gradients": 60}, "evaluate": {"points": 3}, "task": None}
    scenario = load(Path(__file__).parent.parent / "scenarios" / "systems" / "faults.yaml").replace(short)
    read = save_and_read(scenario, tmp_path / "result")
    files = {file.stem: file.read_bytes() for file in (tmp_path / "result" / "figures").iterdir()}
    assert files.keys() == read.pictures().keys()
    for name, draw in read.pictures().items():
        draw().save(tmp_path / "picture.svg")
        assert (tmp_path / "picture.svg").read_bytes() == files[name], name


def faulty() -> Schedule:
    """Return a schedule with intervals of several kinds, and a standstill at its end."""
    outages = {"workers": [1], "begin": 1.5, "end": 2.5}, {"workers": [0], "begin": 5.5}, {"servers": [0], "begin": 9.0}
    faults = [{"name": "outage"} | outage for outage in outages]
    run = make_run("ssgd", stop={"seconds": 20}, task=None, cluster=constant(1.0, 1.0, faults=faults))
    return execute("run", run, 1).schedule


@pytest.mark.parametrize("name", ["faulty", *sorted(registry.REGISTRY["protocol"])])
def test_what_is_read_is_what_was_saved(name, tmp_path):
    schedule = faulty() if name == "faulty" else record(fitting_protocol(name, CLUSTER), CLUSTER, gradients=40)
    schedule.save(tmp_path / "schedule.parquet")
    loaded = Schedule.load(tmp_path / "schedule.parquet")
    for field in dataclasses.fields(Schedule):
        actual, expected = getattr(loaded, field.name), getattr(schedule, field.name)
        if field.name == "intervals":
            actual, expected = actual._asdict(), expected._asdict()
        if field.name in ("columns", "intervals"):
            assert actual.keys() == expected.keys()
            actual, expected = ([(column.dtype, column.tolist()) for column in part.values()] for part in (actual, expected))
        assert actual == expected, field.name
    assert bool(loaded.standstill) == (name == "faulty")


def test_there_may_be_more_servers_than_workers():
    faults = [{"name": "outage", "servers": [3], "begin": 1.5, "end": 2.5}]
    run = make_run(stop={"seconds": 4}, task=None, cluster={"workers": 2, "servers": 4, "faults": faults})
    outcome = execute("run", run, 1)
    assert outcome.schedule.intervals.select(What.SERVER_AWAY).other.tolist() == [3]
    check_laws(outcome)


def test_other_programs_can_read_the_intervals(tmp_path):
    schedule = faulty()
    schedule.save(tmp_path / "schedule.parquet")
    table = pd.read_parquet(tmp_path / "schedule-intervals.parquet")
    assert table.columns.tolist() == list(Intervals._fields)
    crashes = table[table["what"] == "AWAY"]
    absences = [[0, 5_500_000_000, 2**63 - 1], [1, 1_500_000_000, 2_500_000_000]]
    assert crashes[["worker", "begin_ns", "end_ns"]].to_numpy().tolist() == absences
    assert table[table["what"] == "SERVER_AWAY"][["other", "begin_ns"]].to_numpy().tolist() == [[0, 9_000_000_000]]


def test_what_comes_after_the_end_is_no_part_of_it():
    """Three workers finish gradients at 1 s and at 3 s, one after the other; the last update ends the run.

    Each sends two models then; who made that update would send them, at the same instant, after the end.
    """
    cluster = constant(1.0, 1.0, 1.0, network={"latency": {"name": "constant", "seconds": 1.0}})
    for updates in (3, 4, 5, 6):
        run = make_run("sgp", protocol={"topology": "ring"}, stop={"updates": updates}, task=None, cluster=cluster)
        schedule = execute("run", run, 1).schedule
        trips = schedule.intervals.select(What.TRIP)
        assert (trips.row < len(schedule)).all() and (trips.end_ns <= schedule.end_ns).all()
        assert len(trips.row) == 2 * (updates - 1)
