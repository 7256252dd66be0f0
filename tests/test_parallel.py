"""Several processes, and several machines: they compute the same digests as one process, and report what goes wrong there."""

import fcntl
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

import fred
from fred import FredError, Schedule
from fred.base.disk import TIMINGS, WORK
from fred.base.staging import TakenError, lock_folder
from fred.commands import run as command_run
from fred.components import own_code, registry
from fred.results import experiment
from fred.results.compare import compare
from fred.results.experiment import describe_replacement
from fred.running import execution, parallel, pool, stored
from fred.running.parallel import Order
from fred.running.units import SelectedRuns
from tests.conftest import ROOT
from tests.folders import digests, undrawn_results
from tests.places import names
from tests.processes import children
from tests.program import fred_command, refusal
from tests.unit_counter import UnitCounter

pytestmark = pytest.mark.usefixtures("undrawn")

CLUSTER_OF_3 = {"workers": 3, "compute": {"name": "exponential", "scale": 0.1}}
SETTINGS: dict[str, Any] = {"seeds": [1, 2], "cluster": CLUSTER_OF_3, "stop": {"gradients": 40}, "evaluate": {"points": 4}}
SETTINGS["task"] = {"data": {"name": "synthetic-regression", "examples": 60, "evaluation": 12}, "model": "softmax"}
SETTINGS["runs"] = {name: {"algorithm": {"name": name, "learning_rate": 0.05}} for name in ("asgd", "ssgd")}
TIMED = {**SETTINGS, "task": None}
UNITS = next(SelectedRuns(fred.scenario(TIMED)).stages()).units


@pytest.fixture(scope="module")
def single_process(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("alone") / "out"
    with undrawn_results():
        fred.run(fred.scenario(SETTINGS), out=out)
    return out


def worker_processes() -> list[int]:
    return [process for executor in pool._EXECUTORS for process in executor._processes]


@pytest.fixture
def warm() -> None:
    """Start a worker process, unless there is one, and wait until it can compute."""
    for future in pool.submit(os.getpid, [()]):
        future.result()


class TestWarmPool:
    @pytest.mark.slow
    def test_worker_processes_ignore_ctrl_c(self, warm):
        (future,) = pool.submit(signal.pthread_sigmask, [(signal.SIG_BLOCK, [])])
        assert signal.SIGINT in future.result() - signal.pthread_sigmask(signal.SIG_BLOCK, [])

    def test_two_processes_compute_the_same_digests(self, warm, single_process, tmp_path, monkeypatch):
        shares: dict[tuple[str, int], float] = {}
        count, out = UnitCounter(monkeypatch, pause=0.5), tmp_path / "out"
        fred.run(fred.scenario(SETTINGS), out=out, jobs=2, progress=lambda *report: shares.update({report[:2]: report[2]}))
        assert 0 < len(count.units) < 4, "the other process computes some"
        assert digests(out) == digests(single_process)
        assert shares == {(name, seed): 1.0 for name in ("asgd", "ssgd") for seed in (1, 2)}
        assert names(tmp_path) == ["out"]

    def test_a_unit_that_another_process_computes_is_left_to_it_and_computed_if_it_dies(self, warm, tmp_path):
        """A process of a killed run may hold a unit for a moment longer: other processes neither wait for it nor forget it."""
        unit_folder = tmp_path / UNITS[1].work_folder
        unit_folder.mkdir(parents=True)
        lock = os.open(unit_folder, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(TakenError, match="another process is still at work"):
            execution.complete(UNITS[1], tmp_path, patience=0)

        def let_go() -> bool:
            while not all((tmp_path / unit.folder).exists() for unit in UNITS if unit is not UNITS[1]):
                time.sleep(0.05)
            time.sleep(0.5)
            is_computed = (tmp_path / UNITS[1].folder).exists()
            os.close(lock)
            return is_computed

        with ThreadPoolExecutor() as threads:
            was_computed = threads.submit(let_go)
            parallel.compute_in_processes(UNITS, tmp_path, lambda *_: None, 2)
        assert not was_computed.result()
        assert all(stored.find_unchecked(unit, tmp_path / unit.folder) for unit in UNITS)
        assert list((tmp_path / WORK).iterdir()) == [tmp_path / TIMINGS]

    def test_a_failure_in_another_process_is_reported_and_finished_units_stay(self, warm, tmp_path):
        """The other process begins with the last unit."""
        stuck = {**TIMED["runs"]["asgd"], "cluster": {"workers": 3, "compute": {"name": "constant", "seconds": 5e9}}}
        settings = {**TIMED, "stop": {"gradients": 4000}, "runs": {**TIMED["runs"], "stuck": stuck}}
        with pytest.raises(FredError, match="virtual time passes") as raised:
            fred.run(fred.scenario(settings), out=tmp_path / "out", jobs=2)
        assert "the same command goes on from there" in raised.value.__notes__[0]

    @pytest.mark.slow
    def test_processes_that_start_early_compute_units_and_end_with_the_program(self, tmp_path):
        pool.end()
        with pool.ended():
            pool.begin(2)
            helpers = worker_processes()
            fred.run(fred.scenario(TIMED), out=tmp_path / "out", jobs=2)
            assert worker_processes() == helpers, "also where fewer are needed"
        assert len(helpers) == 2 and not {*helpers} & children(os.getpid())

    @pytest.mark.slow
    def test_processes_compute_with_the_current_version_of_a_users_module(self, tmp_path, monkeypatch):
        """Also where earlier processes, which may still be there, have loaded older ones."""
        monkeypatch.syspath_prepend(tmp_path)
        source = "from fred import ASGD\n\nclass Own(ASGD):\n    protocol = '{}'\n"
        results: list[dict] = []
        for protocol in ("asynchronous", "synchronous"):
            (tmp_path / "jobs_servers.py").write_text(source.format(protocol) + f"    {len(results)}\n")
            monkeypatch.delitem(sys.modules, "jobs_servers", raising=False)
            registry.allow_import(["jobs_servers"])
            runs = {"own": {"algorithm": {"name": "jobs_servers:Own", "learning_rate": 0.1}}}
            scenario = fred.scenario({**SETTINGS, "runs": runs})
            fred.run(scenario, out=tmp_path / "out", jobs=2)
            results.append(digests(tmp_path / "out"))
            with pytest.warns(UserWarning, match="computed again: an? "):
                fred.run(scenario, out=tmp_path / "out")
            assert digests(tmp_path / "out") == results[-1]
        assert results[0] != results[1]


def file_of(settings: dict[str, Any], folder: Path) -> str:
    (folder / "scenario.yaml").write_text(json.dumps(settings))
    return str(folder / "scenario.yaml")


class TestCommand:
    @pytest.mark.parametrize(("stop", "code"), [(FredError("enough"), 2), (KeyboardInterrupt(), 130)])
    def test_the_second_process_starts_before_the_scenario_is_read_and_ends_with_it(self, stop, code, tmp_path, monkeypatch):
        def fail_to_load(*_: Any) -> None:
            helpers.extend(worker_processes())
            raise stop

        pool.end()
        helpers: list[int] = []
        monkeypatch.setattr("fred.specification.loading.load", fail_to_load)
        assert fred_command("run", file_of(TIMED, tmp_path), "--out", tmp_path / "out", "--jobs", "2").code == code
        assert len(helpers) == 1 and helpers[0] not in children(os.getpid())

    def test_the_main_example_takes_two_processes_by_default(self, tmp_path, monkeypatch):
        def run(*_: Any, jobs: int, **__: Any) -> None:
            jobs_asked.append(jobs)
            raise FredError("enough")

        monkeypatch.setattr(experiment, "run", run)
        for command, cores, jobs, early_calls in (
            ("run quickstart", 4, 1, [0]),
            ("quickstart", 4, 2, [1, 1]),  # before the scenario is read, and after
            ("quickstart", 1, 1, [0]),
            ("quickstart --jobs 3", 4, 3, [2]),
            ("quickstart --only asgd --seed 1", 4, 2, [0]),
            ("quickstart --dask tcp://host:1", 4, 1, []),
        ):
            jobs_asked, calls = list[int](), list[int]()
            monkeypatch.setattr(pool, "begin", calls.append)
            monkeypatch.setattr(command_run, "cores", lambda cores=cores: cores)
            assert "enough" in refusal(*command.split(), "--out", tmp_path / "out")
            assert (jobs_asked, calls) == ([jobs], early_calls), command

    @pytest.mark.slow
    def test_an_interrupt_while_processes_end_reports_the_complete_result(self, tmp_path, monkeypatch):
        end, calls = pool.end, list[None]()

        def interrupted() -> None:
            end()
            calls.append(None)
            if len(calls) == 1:
                raise KeyboardInterrupt

        monkeypatch.setattr(pool, "end", interrupted)
        answer = fred_command("run", file_of(TIMED, tmp_path), "--out", tmp_path / "out", "--jobs", "2")
        assert answer.code == 130
        assert "the result is complete" in answer.err


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
    """Start a Dask cluster in other processes, in a folder of their own, and yield its address."""
    pytest.importorskip("distributed")
    (folder / "cluster.py").write_text(CLUSTER)
    pipe, command = subprocess.PIPE, [sys.executable, "cluster.py", str(workers)]
    environment = {**os.environ, "PYTHONPATH": str(fred_at), **environment}
    with subprocess.Popen(command, cwd=folder, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate("")


def test_a_process_after_a_late_import_of_fred_names_the_cure():
    late = Order([], own_code.local_facts() | {"unprepared": "XLA_FLAGS"}, False, {}, "1", False)
    with pytest.raises(
        FredError, match=r"other results: unprepared is '' there, 'XLA_FLAGS' here; import fred before jax here$"
    ):
        late.unpack(b"")


class TestDask:
    @pytest.mark.slow
    def test_a_cluster_computes_the_same_digests(self, single_process, tmp_path):
        with cluster(tmp_path, 2) as address:
            fred.run(fred.scenario(SETTINGS), out=tmp_path / "out", dask=address)
        assert digests(tmp_path / "out") == digests(single_process)

    @pytest.mark.slow
    def test_a_cluster_with_other_code_is_refused_and_so_is_one_without_the_users_module(self, tmp_path, monkeypatch):
        remote, local = tmp_path / "there", tmp_path / "here"
        shutil.copytree(ROOT / "fred", remote / "fred", ignore=shutil.ignore_patterns("__pycache__"))
        local.mkdir()
        with (remote / "fred" / "base/numerics.py").open("a") as file:
            file.write("# changed\n")
        source = "from fred import ASGD\n\nclass Own(ASGD):\n    'Own.'\n"
        (local / "dasks_servers.py").write_text(source)
        monkeypatch.syspath_prepend(local)
        with cluster(remote, 1, remote, FRED_THREADS="2") as address:
            with pytest.raises(FredError, match=r"would compute other results: FRED's code is not the same") as raised:
                fred.run(fred.scenario(TIMED), out=tmp_path / "out", dask=address)
            assert "PJRT_NPROC is '2' there, '1' here" in str(raised.value)
            registry.allow_import(["dasks_servers"])
            algorithm = {"name": "dasks_servers:Own", "learning_rate": 0.1}
            scenario = fred.scenario({**TIMED, "runs": {"own": {"algorithm": algorithm}}}, seeds=[1])
            with pytest.raises(FredError, match="cannot import `dasks_servers`: ModuleNotFoundError"):
                fred.run(scenario, out=tmp_path / "out", dask=address)
            (remote / "dasks_servers.py").write_text(source + "    # changed\n")
            with pytest.raises(FredError, match="the module dasks_servers is not the same"):
                fred.run(scenario, out=tmp_path / "out", dask=address)
        assert not (tmp_path / "out").exists()

    @pytest.mark.slow
    def test_an_address_without_a_scheduler_is_refused(self, tmp_path):
        pytest.importorskip("distributed")
        with pytest.raises(FredError, match=r"--dask nowhere: no scheduler answers there"):
            fred.run(fred.scenario(TIMED), out=tmp_path / "out", dask="nowhere")
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize(
        ("workers", "error", "message"),
        [
            ({}, "cancelled for reason: scheduler-connection-lost.", "the scheduler does not answer any more"),
            ({"tcp://192.0.2.1:7": 1}, "no such task\nin line 3", "RuntimeError: no such task"),
        ],
    )
    def test_errors_and_clusters_without_workers_take_a_line(
        self, tmp_path, monkeypatch, capsys, caplog, workers, error, message
    ):
        def failed(*_: Any, key: list[str]) -> list[Future]:
            logging.getLogger("distributed.client").error("Traceback (most recent call last)")
            futures: list[Future] = [Future() for _ in key]
            for future in futures:
                future.set_exception(RuntimeError(error))
            return futures

        distributed, client = pytest.importorskip("distributed"), MagicMock()
        client.nthreads.return_value, client.map.side_effect = workers, failed
        logging.getLogger("distributed.client")
        monkeypatch.setattr(distributed, "Client", lambda *_, **__: client)
        monkeypatch.setattr(distributed, "as_completed", as_completed)
        with pytest.raises(FredError, match=rf"^--dask tcp://192.0.2.1:8786: {message}$"):
            fred.run(fred.scenario(TIMED), out=tmp_path / "out", dask="tcp://192.0.2.1:8786")
        waiting = "fred: --dask tcp://192.0.2.1:8786: the cluster has no workers yet; waiting for one\n"
        assert capsys.readouterr().err == ("" if workers else waiting)
        logging.getLogger("distributed.client").error("heard")
        assert [record.message for record in caplog.records] == ["heard"], "Dask logs again, but only afterwards"


def test_processes_without_a_folder_write_to_one_that_the_result_names_and_other_seeds_continue(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = fred.run(TIMED, jobs=2, seeds=[1, 2])
    assert fred.load_result(result.folder).summary.equals(result.summary)
    assert fred.run(TIMED, jobs=2, seeds=[1, 2, 3]).reused == result.summary.shape[0]
    assert not fred.run(fred.scenario(TIMED)).folder


def test_processes_are_not_combined_with_a_cluster(tmp_path):
    with pytest.raises(FredError, match="use only one of them"):
        fred.run(fred.scenario(TIMED), out=tmp_path / "out", jobs=2, dask="tcp://nowhere:1")
    assert not (tmp_path / "out").exists()


def test_a_unit_that_a_process_of_another_run_has_left_is_replaced(tmp_path):
    for gradients in (10, 20):
        unit = next(SelectedRuns(fred.scenario({**TIMED, "stop": {"gradients": gradients}})).stages()).units[0]
        execution.complete(unit, tmp_path)
    assert stored.load(tmp_path / unit.folder, unit.run).summary["gradients"]["applied"] == 20


def test_a_folder_that_vanishes_while_it_is_locked_is_made_again(tmp_path, monkeypatch):
    folder, opened = tmp_path / "unit", os.open

    def vanishing(path, *arguments):
        monkeypatch.setattr(os, "open", opened)
        folder.rmdir()
        return opened(path, *arguments)

    monkeypatch.setattr(os, "open", vanishing)
    lock = lock_folder(folder)
    assert lock is not None and os.path.samestat(os.fstat(lock), folder.stat())
    assert lock_folder(folder) is None, "by anybody else"
    folder.rmdir()
    second_lock = lock_folder(folder)
    assert second_lock is not None, "the locked folder is no longer at this path"
    os.close(lock)
    os.close(second_lock)


@pytest.fixture(scope="module")
def other_result(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("compared") / "other"
    changes = {"runs.ssgd.algorithm.learning_rate": 0.07, "runs.asgd.cluster.workers": 2}
    with undrawn_results():
        fred.run(fred.scenario(SETTINGS).replace(changes), out=out)
    return out


class TestCompare:
    def test_the_table_holds_both_and_the_lines_name_the_first_difference(self, single_process, other_result, tmp_path):
        shutil.copytree(single_process, tmp_path / "again")
        assert compare(single_process, tmp_path / "again").agreement() == [
            "out and again: 4 of 4 shared runs have the same digests"
        ]
        compared = compare(single_process, other_result)
        table = compared.table()
        assert (table["run"] + " " + table["folder"]).tolist() == ["asgd out", "asgd other", "ssgd out", "ssgd other"]
        assert table["loss"].tolist()[1::2] == fred.load_result(other_result).summary.groupby("name")["loss"].mean().tolist()
        first, *lines = compared.agreement()
        assert first == "out and other: 0 of 4 shared runs have the same digests"
        schedules = [
            Schedule.load(folder / "asgd" / "seed-1" / "schedule.parquet").frame() for folder in (single_process, other_result)
        ]
        row = next(i for i in range(20) if not schedules[0].iloc[i].equals(schedules[1].iloc[i]))
        assert lines[0].startswith(f"  asgd, seed 1: first at row {row}\n")
        assert lines[2] == "  ssgd, seed 1: timing is the same, arithmetic differs, first measured after 4 updates"
        (settings,) = compared.settings()
        assert settings.endswith(": cluster.workers 3 and 2 (asgd); algorithm.learning_rate 0.05 and 0.07 (ssgd)")

    @pytest.mark.slow
    def test_the_commands(self, single_process, other_result, tmp_path):
        comparison = tmp_path / "both"
        assert "0 of 4 shared runs" in fred_command("compare", single_process, other_result, "--out", comparison).out
        assert {"comparison.csv", "loss.svg", "timeline.svg"} <= set(names(comparison))
        assert "is not empty" in refusal("compare", single_process, other_result, "--out", comparison)
        assert "two or more different results or result folders" in refusal("compare", single_process)
        assert "asgd" in fred_command("show", single_process).out
        assert "is not a result folder" in refusal("show", tmp_path)


def test_a_run_warns_that_it_replaces_a_result_with_other_settings(single_process, tmp_path):
    (warning,) = describe_replacement(fred.scenario(SETTINGS).replace({"stop.gradients": 30}), single_process)
    assert warning.startswith(f"{single_process} has a result with") and warning.endswith("keeps it: stop.gradients 40 and 30")
    assert describe_replacement(fred.scenario(SETTINGS).replace({"seeds": [1, 2, 3]}), single_process) == []
    assert describe_replacement(fred.scenario(SETTINGS), tmp_path / "elsewhere") == []
