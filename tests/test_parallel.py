"""Several processes, and several machines: the same digests as one; what goes wrong there is told here."""

import concurrent.futures
import fcntl
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import joblib.externals.loky
import pytest

import fred
from fred.base.errors import FredError
from fred.base.lock import held
from fred.commands import cli
from fred.components import registry
from fred.results import experiment
from fred.results.compare import Compared
from fred.results.folder import read_manifest
from fred.results.settings import replaced
from fred.running import parallel, pool, stored, timings, work
from fred.running.units import units_of
from fred.schedule.schedule import Schedule
from tests.conftest import ROOT

pytestmark = pytest.mark.usefixtures("undrawn")

SETTINGS: dict[str, Any] = {
    "seeds": [1, 2],
    "cluster": {"workers": 3, "compute": {"name": "exponential", "scale": 0.1}},
    "task": {"data": {"name": "synthetic-regression", "examples": 60}, "model": "softmax"},
    "stop": {"gradients": 40},
    "evaluate": {"points": 4},
    "runs": {name: {"algorithm": {"name": name, "learning_rate": 0.05}} for name in ("asgd", "ssgd")},
}


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("alone") / "out"
    fred.run(fred.scenario(SETTINGS), out=out)
    return out


def digests(path: Path) -> dict[str, dict]:
    return {row.folder: row.digests.model_dump() for row in read_manifest(path)[1]}


@pytest.mark.parametrize("jobs", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_several_processes_come_to_the_same(alone, tmp_path, jobs):
    told: dict[tuple[str, int], float] = {}
    fred.run(fred.scenario(SETTINGS), out=tmp_path / "out", jobs=jobs, progress=lambda *what: told.update({what[:2]: what[2]}))
    assert digests(tmp_path / "out") == digests(alone)
    assert told == {(name, seed): 1.0 for name in ("asgd", "ssgd") for seed in (1, 2)}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_failure_in_another_process_is_told_and_the_rest_kept(tmp_path):
    stuck = {"cluster": {"workers": 3, "compute": {"name": "constant", "seconds": 5e9}}}
    scenario = fred.scenario(
        {
            **SETTINGS,
            "task": None,
            "runs": {**SETTINGS["runs"], "stuck": {**stuck, "algorithm": {"name": "asgd", "learning_rate": 1}}},
        }
    )
    with pytest.raises(FredError, match=r"virtual time passes") as raised:
        fred.run(scenario, out=tmp_path / "out", jobs=2)
    assert "the same command goes on from there" in raised.value.__notes__[0]


CLUSTER = """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    options = {"threads_per_worker": 1, "dashboard_address": None, "host": "127.0.0.1", "protocol": "tcp"}
    with LocalCluster(n_workers=int(sys.argv[1]), processes=sys.argv[1] > "1", **options) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


@contextmanager
def cluster(folder: Path, workers: int, fred_at: Path = ROOT, **environment: str) -> Iterator[str]:
    """The address of a Dask cluster in other processes, in a folder of their own."""
    pytest.importorskip("distributed")
    (folder / "cluster.py").write_text(CLUSTER)
    pipe, command = subprocess.PIPE, [sys.executable, "cluster.py", str(workers)]
    environment = {**os.environ, "PYTHONPATH": str(fred_at), **environment}
    with subprocess.Popen(command, cwd=folder, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate("")


@pytest.mark.slow
def test_a_dask_cluster_comes_to_the_same(alone, tmp_path):
    with cluster(tmp_path, 2) as address:
        fred.run(fred.scenario(SETTINGS), out=tmp_path / "out", dask=address)
    assert digests(tmp_path / "out") == digests(alone)


def test_a_dask_cluster_that_would_not_is_refused_and_so_is_what_it_lacks(tmp_path, monkeypatch):
    """Its FRED is another one, it has two threads, and nobody has given it the user's module, or has given it another."""
    there, here = tmp_path / "there", tmp_path / "here"
    shutil.copytree(ROOT / "fred", there / "fred", ignore=shutil.ignore_patterns("__pycache__"))
    here.mkdir()
    with (there / "fred" / "base/streams.py").open("a") as file:
        file.write("# changed\n")
    own = "from fred import ASGD\n\nclass Own(ASGD):\n    'Own.'\n"
    (here / "dasks_servers.py").write_text(own)
    monkeypatch.syspath_prepend(here)
    with cluster(there, 1, there, FRED_THREADS="2") as address:
        with pytest.raises(FredError, match=r"would compute other results: FRED's code is not the same") as raised:
            fred.run(fred.scenario(SETTINGS), out=tmp_path / "out", dask=address)
        assert "PJRT_NPROC is '2' there, '1' here" in str(raised.value)
        registry.allow_import(["dasks_servers"])
        scenario = fred.scenario(
            {**SETTINGS, "runs": {"own": {"algorithm": {"name": "dasks_servers:Own", "learning_rate": 0.1}}}}, seeds=[1]
        )
        with pytest.raises(FredError, match="cannot import `dasks_servers`: ModuleNotFoundError"):
            fred.run(scenario, out=tmp_path / "out", dask=address)
        (there / "dasks_servers.py").write_text(own + "    # changed\n")
        with pytest.raises(FredError, match="the module dasks_servers is not the same"):
            fred.run(scenario, out=tmp_path / "out", dask=address)
    assert not (tmp_path / "out").exists()


def test_what_dask_itself_cannot_do_is_told(tmp_path):
    """What the scheduler takes for FRED is something else."""
    (tmp_path / "fred" / "running").mkdir(parents=True)
    for name in ("__init__.py", "running/__init__.py", "running/on_dask.py"):
        (tmp_path / "fred" / name).touch()
    with cluster(tmp_path, 1, tmp_path) as address, pytest.raises(FredError, match=r"^--dask tcp://.*: "):
        fred.run(fred.scenario(SETTINGS), out=tmp_path / "out", dask=address)


@pytest.mark.slow
def test_processes_compute_with_the_modules_of_now(tmp_path, monkeypatch):
    """Also where earlier processes, which may still be there, have loaded older ones."""
    monkeypatch.syspath_prepend(tmp_path)
    own = "from fred import ASGD\n\nclass Own(ASGD):\n    protocol = '{}'\n"
    found: list[dict] = []
    for protocol in ("asynchronous", "synchronous"):
        (tmp_path / "jobs_servers.py").write_text(own.format(protocol) + f"    {len(found)}\n")
        monkeypatch.delitem(sys.modules, "jobs_servers", raising=False)
        registry.allow_import(["jobs_servers"])
        scenario = fred.scenario(
            {**SETTINGS, "runs": {"own": {"algorithm": {"name": "jobs_servers:Own", "learning_rate": 0.1}}}}
        )
        fred.run(scenario, out=tmp_path / "out", jobs=2)
        found.append(digests(tmp_path / "out"))
        with pytest.warns(UserWarning, match="computed again: an? "):
            fred.run(scenario, out=tmp_path / "out")
        assert digests(tmp_path / "out") == found[-1]
    assert found[0] != found[1]


def test_no_scheduler_is_told(tmp_path):
    pytest.importorskip("distributed")
    with pytest.raises(FredError, match=r"--dask nowhere: no scheduler answers there"):
        fred.run(fred.scenario(SETTINGS), out=tmp_path / "out", dask="nowhere")
    assert not list(tmp_path.iterdir())


class _Client:
    """A cluster's client whose scheduler ends as soon as it has been given something to do."""

    workers: ClassVar[dict[str, int]] = {}

    def __init__(self, address: str, timeout: float):
        logging.getLogger("distributed.client")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def nthreads(self) -> dict[str, int]:
        return self.workers

    def map(self, function: Any, *columns: Any, key: list[str]) -> list[Future]:
        logging.getLogger("distributed.client").error("Traceback (most recent call last)")
        lost: list[Future] = [Future() for _ in key]
        for future in lost:
            future.set_exception(RuntimeError(f"{key[0]} cancelled for reason: scheduler-connection-lost."))
        return lost


@pytest.mark.parametrize("workers", [{}, {"tcp://192.0.2.1:7": 1}])
def test_a_scheduler_that_ends_costs_one_line_and_a_cluster_without_workers_another(
    tmp_path, monkeypatch, capsys, caplog, workers
):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(distributed, "Client", _Client)
    monkeypatch.setattr(distributed, "as_completed", concurrent.futures.as_completed)
    monkeypatch.setattr(_Client, "workers", workers)
    with pytest.raises(FredError, match=r"^--dask tcp://192.0.2.1:8786: the scheduler does not answer any more$"):
        fred.run(fred.scenario(SETTINGS), out=tmp_path / "out", dask="tcp://192.0.2.1:8786")
    waiting = "fred: --dask tcp://192.0.2.1:8786: the cluster has no workers yet; waiting for one\n"
    assert capsys.readouterr().err == ("" if workers else waiting)
    assert not caplog.records
    logging.getLogger("distributed.client").error("heard")
    assert [each.message for each in caplog.records] == ["heard"], "by others afterwards"


@pytest.mark.slow
def test_a_real_scheduler_that_ends_costs_one_line(tmp_path, capfd):
    code = CLUSTER.replace("sys.stdin.read()", "__import__('time').sleep(3); __import__('os')._exit(1)")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.test_parallel.CLUSTER", code)
        with cluster(tmp_path, 0) as address, pytest.raises(FredError, match="the scheduler does not answer any more"):
            fred.run(fred.scenario(SETTINGS), out=tmp_path / "out", dask=address)
    assert capfd.readouterr().err == f"fred: --dask {address}: the cluster has no workers yet; waiting for one\n"


def test_processes_need_a_folder():
    with pytest.raises(FredError, match="need `out`"):
        fred.run(fred.scenario(SETTINGS), jobs=2)


class TestCompare:
    @pytest.fixture
    def other(self, alone, tmp_path) -> Path:
        changed = fred.scenario(SETTINGS).replace({"runs.ssgd.algorithm.learning_rate": 0.07, "runs.asgd.cluster.workers": 2})
        fred.run(changed, out=tmp_path / "other")
        return tmp_path / "other"

    def test_the_table_holds_both_and_the_lines_say_what_differs(self, alone, other):
        compared = Compared([alone, other])
        table = compared.table()
        assert table[["run", "folder"]].values.tolist() == [
            [run, each] for run in ("asgd", "ssgd") for each in ("out", "other")
        ]
        losses = fred.load_result(other).summary.groupby("name")["loss"].mean()
        assert table["loss"].tolist()[1::2] == [losses["asgd"], losses["ssgd"]]
        first, *lines = compared.agreement()
        assert first == "out and other: 0 of 4 shared runs have the same digests"
        schedules = [Schedule.load(folder / "asgd" / "seed-1" / "schedule.parquet").frame() for folder in (alone, other)]
        row = next(i for i in range(20) if not schedules[0].iloc[i].equals(schedules[1].iloc[i]))
        assert lines[0].startswith(f"  asgd, seed 1: first at row {row}\n")
        assert lines[2] == "  ssgd, seed 1: timing is the same, arithmetic differs, first measured after 4 updates"

    def test_the_settings_that_differ_are_named_with_their_runs(self, alone, other):
        (line,) = Compared([alone, other]).settings()
        assert line == (
            "out and other have runs of the same name with other settings: "
            "cluster.workers 3 and 2 (asgd); algorithm.learning_rate 0.05 and 0.07 (ssgd)"
        )

    def test_a_run_says_that_it_replaces_a_result_with_other_settings(self, alone, tmp_path):
        (line,) = replaced(fred.scenario(SETTINGS).replace({"stop.gradients": 30}), alone)
        assert (
            line
            == f"{alone} has a result with other settings, which this run replaces; another --out keeps it: stop.gradients 40 and 30"
        )
        assert replaced(fred.scenario(SETTINGS).replace({"seeds": [1, 2, 3]}), alone) == []
        assert replaced(fred.scenario(SETTINGS), tmp_path / "elsewhere") == []

    def test_the_same_twice_agrees(self, alone, tmp_path):
        fred.run(fred.scenario(SETTINGS), out=tmp_path / "again")
        assert Compared([alone, tmp_path / "again"]).agreement() == ["out and again: 4 of 4 shared runs have the same digests"]

    def test_the_commands(self, alone, other, tmp_path, capsys):
        assert cli.main(["compare", str(alone), str(other), "--out", str(tmp_path / "both")]) == 0
        assert "0 of 4 shared runs" in capsys.readouterr().out
        assert {"comparison.csv", "loss.svg", "timeline.svg"} <= {path.name for path in (tmp_path / "both").iterdir()}
        assert cli.main(["compare", str(alone), str(other), "--out", str(tmp_path / "both")]) == 2
        assert "is not empty" in capsys.readouterr().err
        assert cli.main(["compare", str(alone)]) == 2
        assert "two or more different result folders" in capsys.readouterr().err
        assert cli.main(["show", str(alone)]) == 0
        assert "asgd" in capsys.readouterr().out
        assert cli.main(["show", str(tmp_path)]) == 2


def test_a_loaded_result_is_the_one_that_run_gave(alone):
    direct, loaded = fred.run(fred.scenario(SETTINGS)), fred.load_result(alone)
    assert loaded.summary.equals(direct.summary)
    assert loaded.metrics.equals(direct.metrics)
    assert loaded.schedule("asgd", 2).equals(direct.schedule("asgd", 2))
    assert loaded.run_times("ssgd").equals(direct.run_times("ssgd"))
    assert loaded.plot("loss")._repr_svg_() == direct.plot("loss")._repr_svg_()
    assert json.dumps(loaded.scenario.model_dump(mode="json")) == json.dumps(direct.scenario.model_dump(mode="json"))


def test_the_process_that_starts_the_others_works_too(tmp_path, monkeypatch):
    """So two are never slower than one, however long the other takes to start."""
    began, do = list[str](), work.do

    def counted(unit: Any, *more: Any, **options: Any) -> None:
        began.append(unit.folder)
        do(unit, *more, **options)

    monkeypatch.setattr(work, "do", counted)
    pool.end()
    units = units_of(fred.scenario(SETTINGS))
    parallel.in_processes(units, tmp_path, lambda *_: None, 2)
    assert began[: len(units)] == [unit.folder for unit in timings.in_order(units)]
    assert joblib.externals.loky.get_reusable_executor(reuse=True)._max_workers == 1


@pytest.mark.slow
def test_who_starts_while_the_first_one_plans_does_units_and_is_ended_with_the_program(tmp_path):
    pool.end()
    with pool.ended():
        pool.begin(2)
        begun = [*pool._EXECUTORS[0]._processes]
        fred.run(fred.scenario(SETTINGS), out=tmp_path / "out", jobs=2)
        assert [*pool._EXECUTORS[0]._processes] == begun, "also where fewer are needed"
    assert len(begun) == 2
    for process in begun:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def file_of(settings: dict[str, Any], folder: Path) -> str:
    (folder / "scenario.yaml").write_text(json.dumps(settings))
    return str(folder / "scenario.yaml")


@pytest.mark.slow
def test_processes_are_begun_early_only_where_all_is_to_be_done_and_no_more_than_can_be_of_use(tmp_path, monkeypatch):
    begun: list[int] = []
    monkeypatch.setattr(pool, "begin", begun.append)
    chosen = {**SETTINGS, "report_seeds": [3, 4, 5], "algorithm": {"name": "asgd"}, "evaluate": {"points": 1}}
    sweep = {"over": {"algorithm.learning_rate": [0.01, 0.02]}, "best": "loss"}
    del chosen["runs"]
    command = ["run", file_of({**chosen, "seeds": [1], "sweep": sweep}, tmp_path), "--out", str(tmp_path / "out"), "--jobs"]
    for jobs in ("4", "4"):
        assert cli.main([*command, jobs]) == 0
    assert begun == [1], "one for the two points, and none where all is there"
    assert cli.main([*command, "3", "--fresh"]) == 0
    assert begun == [1, 1]


def test_the_second_of_two_processes_is_begun_before_the_scenario_is_read_and_gone_if_it_cannot_be(tmp_path, monkeypatch):
    def begun_already(*_: Any) -> None:
        found.extend(pool._EXECUTORS[0]._processes)
        raise FredError("enough")

    pool.end()
    found: list[int] = []
    monkeypatch.setattr("fred.specification.loading.load", begun_already)
    assert cli.main(["run", file_of(SETTINGS, tmp_path), "--out", str(tmp_path / "out"), "--jobs", "2"]) == 2
    assert len(found) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(found[0], 0)


@pytest.mark.parametrize(
    ("command", "cores", "jobs"),
    [
        (["run", "quickstart"], 4, 1),
        (["quickstart"], 4, 2),
        (["quickstart"], 1, 1),
        (["quickstart", "--jobs", "3"], 4, 3),
        (["quickstart", "--only", "asgd", "--seed", "1"], 4, 2),
        (["quickstart", "--dask", "tcp://host:1"], 4, 1),
    ],
)
def test_the_main_example_takes_two_processes_where_nothing_else_is_said(tmp_path, monkeypatch, command, cores, jobs):
    def told(scenario: Any, only: Any, inline: Any, progress: Any, out: Any, jobs: int, *_: Any) -> None:
        found.append(jobs)
        raise FredError("enough")

    found, begun = list[int](), list[int]()
    monkeypatch.setattr(pool, "begin", begun.append)
    monkeypatch.setattr(cli, "cores", lambda: cores)
    monkeypatch.setattr(experiment, "run", told)
    assert cli.main([*command, "--out", str(tmp_path / "out")]) == 2
    assert found == [jobs]
    if "--only" in command:
        assert begun == [0], "one run with one seed is nothing for two"
    else:
        early = [1] if jobs == 2 else []  # before the scenario is read
        assert begun == ([] if "--dask" in command else [*early, jobs - 1])


def test_who_is_interrupted_while_processes_begin_leaves_none(tmp_path, monkeypatch, capsys):
    executor = pool._executor

    def interrupted(number: int) -> Any:
        executor(number).submit(os.getpid)
        begun.extend(pool._EXECUTORS[0]._processes)
        raise KeyboardInterrupt

    pool.end()
    begun: list[int] = []
    monkeypatch.setattr(pool, "_executor", interrupted)
    assert cli.main(["run", file_of(SETTINGS, tmp_path), "--out", str(tmp_path / "out"), "--jobs", "2"]) == 130
    assert len(begun) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(begun[0], 0)


def test_who_is_interrupted_while_they_end_is_told_that_the_result_is_there(tmp_path, monkeypatch, capsys):
    end, calls = pool.end, list[None]()

    def interrupted() -> None:
        end()
        calls.append(None)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(pool, "end", interrupted)
    assert cli.main(["run", file_of(SETTINGS, tmp_path), "--out", str(tmp_path / "out"), "--jobs", "2"]) == 130
    assert "the result is complete" in capsys.readouterr().err


def test_what_another_process_is_at_is_left_to_it_and_done_in_the_end_if_it_dies(tmp_path):
    """A process of a run that was killed may hold a unit for a moment longer: nobody waits for it, and nobody forgets it."""
    units = units_of(fred.scenario(SETTINGS))
    own = tmp_path / work.folder_of(units[1])
    own.mkdir(parents=True)
    lock = os.open(own, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(work.TakenError, match="another process is still at work"):
        work.do(units[1], tmp_path, patience=0)
    seen: list[bool] = []

    def let_go() -> None:
        while not all((tmp_path / unit.folder).exists() for unit in units if unit is not units[1]):
            time.sleep(0.1)
        time.sleep(1)
        seen.append((tmp_path / units[1].folder).exists())
        os.close(lock)

    other = threading.Thread(target=let_go)
    other.start()
    parallel.in_processes(units, tmp_path, lambda *_: None, 2)
    other.join()
    assert seen == [False]
    assert all(stored.whole(unit, tmp_path / unit.folder) for unit in units)
    assert list((tmp_path / work.AT_WORK).iterdir()) == [tmp_path / timings.FOLDER]


def test_what_a_process_of_another_run_has_left_is_not_taken_for_ones_own(tmp_path):
    old, new = (units_of(fred.scenario({**SETTINGS, "stop": {"gradients": number}}))[0] for number in (10, 20))
    for unit in (old, new):
        work.do(unit, tmp_path)
    assert stored.read(tmp_path / new.folder, new.run).about.summary["gradients"]["applied"] == 20


def test_a_folder_that_vanishes_while_it_is_taken_is_made_again(tmp_path, monkeypatch):
    folder, opened = tmp_path / "unit", os.open

    def vanishing(path, *more):
        if not seen:
            seen.append(path)
            folder.rmdir()
        return opened(path, *more)

    seen: list[Path] = []
    monkeypatch.setattr(os, "open", vanishing)
    lock = held(folder)
    assert lock is not None
    assert os.path.samestat(os.fstat(lock), folder.stat())
    assert held(folder) is None, "by anybody else"
    folder.rmdir()
    again = held(folder)
    assert again is not None, "what is held is no longer what lies there"
    os.close(lock)
    os.close(again)


def test_each_process_begins_with_its_own_share():
    units = units_of(fred.scenario({**SETTINGS, "seeds": [1, 2, 3]}))
    ordered = [parallel._of_process(units, number, 4) for number in range(4)]
    assert [each[:2] for each in ordered] == [units[:2], [units[2], units[1]], units[3:5], [units[5], units[4]]]
    assert all(sorted(each, key=units.index) == units for each in ordered)


def test_processes_do_not_hear_of_ctrl_c_from_their_first_line_on():
    """Which a terminal tells everybody, also those that are just being started."""
    joblib.externals.loky.get_reusable_executor().shutdown(kill_workers=True)
    with pool._ignoring_ctrl_c():
        asked = joblib.delayed(signal.pthread_sigmask)(
            signal.SIG_BLOCK, []
        )  # a function that needs none of FRED's modules there
        blocked = joblib.Parallel(2, backend="loky")([asked, asked])
    assert [signal.SIGINT in each for each in blocked] == [True, True]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    joblib.externals.loky.get_reusable_executor().shutdown(kill_workers=True)


def test_processes_here_and_a_cluster_elsewhere_are_not_asked_for_at_once(tmp_path):
    with pytest.raises(FredError, match="use only one of them"):
        fred.run(fred.scenario(SETTINGS), out=tmp_path / "out", jobs=2, dask="tcp://nowhere:1")
    assert not (tmp_path / "out").exists()
