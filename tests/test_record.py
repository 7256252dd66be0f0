"""The recorder of step times: waits are subtracted, files survive kills, and `fred diagnose FOLDER` reads them."""

import csv
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fred
from fred import record
from fred.base.errors import FredError
from fred.traces.reading import read
from tests.conftest import ROOT
from tests.program import fred_command

FILE = Path(record.__file__)
PYTORCH = os.environ.get("FRED_TORCH_PYTHON", sys.executable)  # a Python that has PyTorch
STEPS = 12


class Clock:
    """A clock that stands still unless it is moved, s."""

    def __init__(self) -> None:
        self.now = 0.0

    def move(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(record, "time", SimpleNamespace(perf_counter=lambda: clock.now, time=lambda: 1e9 + clock.now))
    return clock


@pytest.fixture(autouse=True)
def isolate(monkeypatch, tmp_path) -> None:
    """Run in a folder of its own, as a process that no launcher has started."""
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "jax", None)


def rows(folder: str = "times", rank: int = 0) -> list[dict[str, float]]:
    with Path(folder, f"rank-{rank:04d}.csv").open(newline="") as file:
        return [{key: float(value) for key, value in row.items() if key != "node"} for row in csv.DictReader(file)]


def random_times(steps: int = STEPS) -> np.ndarray:
    """Return times of loading, computing and waiting, s [steps, 3]."""
    return np.random.default_rng(3).lognormal(-2, 1, (steps, 3))


def test_a_step_is_its_loading_and_computing_without_its_waits(clock):
    times = random_times()

    def loader():
        for loading, *_ in times:
            clock.move(loading)
            yield

    recorder = fred.StepRecorder("times")
    for (_, computing, waiting), _ in zip(times, recorder.steps(loader()), strict=True):
        clock.move(computing / 4)
        with recorder.wait():
            with recorder.wait():  # counts once
                clock.move(waiting / 2)
            clock.move(waiting / 2)
        with recorder.data():
            clock.move(computing / 4)
        clock.move(computing / 2)
    recorder.close()
    loading, computing, waiting = times[2:].T
    assert [row["iteration"] for row in rows()] == list(range(2, STEPS))
    np.testing.assert_allclose([row["seconds"] for row in rows()], loading + computing, atol=1e-6)
    np.testing.assert_allclose([row["data"] for row in rows()], loading + computing / 4, atol=1e-6)
    np.testing.assert_allclose([row["wait"] for row in rows()], waiting, atol=1e-6)
    np.testing.assert_allclose(np.diff([row["start"] for row in rows()]), times[2:-1].sum(axis=1), atol=2e-6)


class Gpu:
    """A fake of `torch.cuda`: work is queued by the processor, and events have the time at which the GPU reaches them."""

    def __init__(self, clock: Clock):
        self.clock, self.end, self.blocked = clock, 0.0, 0

    def is_available(self) -> bool:
        return True

    is_initialized = is_available

    def work(self, seconds: float) -> None:
        self.end = max(self.end, self.clock.now) + seconds

    def Event(self, enable_timing: bool) -> Any:  # noqa: N802
        assert enable_timing
        return GpuEvent(self)


class GpuEvent:
    """An event in the queue of a GPU."""

    def __init__(self, gpu: Gpu):
        self.gpu, self.time = gpu, np.nan

    def record(self) -> None:
        self.time = self.gpu.end = max(self.gpu.end, self.gpu.clock.now)

    def query(self) -> bool:
        return self.time <= self.gpu.clock.now

    def synchronize(self) -> None:
        self.gpu.blocked += 1
        self.gpu.clock.now = max(self.gpu.clock.now, self.time)

    def elapsed_time(self, other: "GpuEvent") -> float:
        assert self.query() and other.query(), "times of events that have not happened are unknown"
        return (other.time - self.time) * 1e3


def test_times_of_a_gpu_are_read_from_events_without_waiting_for_them(clock, monkeypatch):
    gpu = Gpu(clock)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=gpu))
    recorder = fred.StepRecorder("times")
    times = random_times()
    lags = []
    for (launching, computing, waiting), step in zip(times, recorder.steps(range(STEPS)), strict=True):
        clock.move(launching / 20)  # the processor is ahead of the GPU
        gpu.work(computing)
        with recorder.wait():
            gpu.work(waiting)
        lags.append(step - 2 - len(rows()))
    assert gpu.blocked == 0 and max(lags) > 1, "rows are later than their steps, and nothing waits for the GPU"
    recorder.close()
    assert gpu.blocked > 0, "at the end the last rows are awaited"
    np.testing.assert_allclose([row["seconds"] for row in rows()], times[2:, 1], atol=1e-6)
    np.testing.assert_allclose([row["wait"] for row in rows()], times[2:, 2], atol=1e-6)


class Future:
    """A future that calls what follows when its result is set."""

    def __init__(self, result: Any):
        self.result = result
        self.next: list[tuple[Callable[[Future], Any], Future]] = []

    def then(self, function: Callable[["Future"], Any]) -> "Future":
        future = Future(None)
        self.next.append((function, future))
        return future

    def value(self) -> Any:
        return self.result

    def arrive(self) -> None:
        for function, future in self.next:
            future.result = function(self)


class Replica:
    """A model as DDP's reducer sees it: it calls the hook for each bucket, then waits for all futures."""

    process_group: Any = None

    def __init__(self, clock: Clock):
        self.clock = clock
        self._comm_hooks: list[Any] = []

    def modules(self) -> list[Any]:
        return [self]

    def register_comm_hook(self, state: Any, hook: Callable[[Any, Any], Future]) -> None:
        self._comm_hooks.append((hook, state))

    def backward(self, buckets: list[float], collective: Callable[[], None]) -> list[Future]:
        """Compute each bucket, s, and call a collective between them, as SyncBatchNorm does; return the averages."""
        ((hook, state),), averages = self._comm_hooks, []
        for number, seconds in enumerate(buckets):
            if number:
                collective()
            self.clock.move(seconds)
            bucket = SimpleNamespace(index=lambda number=number: number, buffer=lambda number=number: f"gradients {number}")
            averages.append(hook(state, bucket))
        return averages


@pytest.fixture
def pytorch(monkeypatch) -> ModuleType:
    """Return a fake of `torch.distributed` with two ranks."""
    distributed = ModuleType("torch.distributed")
    for name, value in {"is_available": True, "is_initialized": True, "get_rank": 1, "get_world_size": 2}.items():
        setattr(distributed, name, lambda value=value: value)
    for name in ("all_reduce", "barrier", "get_backend"):
        setattr(distributed, name, lambda function=None, **_: function and function())
    parallel = ModuleType("torch.nn.parallel")
    vars(parallel)["DistributedDataParallel"] = Replica
    torch = ModuleType("torch")
    vars(torch)["cuda"] = SimpleNamespace(is_available=lambda: False)
    for module in (torch, ModuleType("torch.nn"), parallel, distributed):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return distributed


def test_a_step_of_ddp_ends_with_its_average_and_waits_from_its_last_bucket_on(clock, pytorch):
    model, futures = Replica(clock), list[Future]()

    def hook(state: Any, bucket: Any) -> Future:
        assert state == "state"
        futures.append(Future([bucket.buffer()]))
        return futures[-1]

    recorder = fred.StepRecorder("times")
    recorder.watch(model, hook, "state")
    recorder.watch(model)  # a second time has no effect
    for number in recorder.steps(range(3 * 6 + 1)):
        clock.move(0.1)
        if number % 3 == 2:  # two micro steps in `no_sync()`, then an average
            futures.clear()
            results = model.backward([0.2, 0.3], lambda: pytorch.all_reduce(lambda: clock.move(0.7)))
            clock.move(0.05)
            futures[1].arrive()
            clock.move(0.35)
            futures[0].arrive()
            assert [result.value() for result in results] == ["gradients 0", "gradients 1"]
            clock.move(0.01)  # the optimizer
    recorder.close()
    (first, *rest) = rows(rank=1)
    assert (first["worker"], first["iteration"], len(rest)) == (1, 2, 3)
    for row in rows(rank=1):
        assert row["seconds"] == pytest.approx(0.3 + 0.2 + 0.3 + 0.01)
        assert row["wait"] == pytest.approx(0.7 + 0.05 + 0.35)


def test_models_whose_waits_are_unknown_and_second_hooks_are_refused_with_a_cure_that_works(clock, pytorch):
    recorder = fred.StepRecorder("times")
    other = SimpleNamespace(modules=lambda: [object()])
    with pytest.raises(ValueError, match=r"found neither DistributedDataParallel nor fully_shard; .*`with recorder.wait\(\):`"):
        recorder.watch(other)
    vars(pytorch)["get_world_size"] = lambda: 1
    recorder.watch(other)  # one process waits for nobody
    model = Replica(clock)
    model.register_comm_hook("state", hook := lambda state, bucket: Future(bucket))
    with pytest.raises(ValueError, match=r"`recorder.watch\(model, hook, state\)` instead of `model.register_comm_hook"):
        recorder.watch(model)
    fresh = Replica(clock)
    recorder.watch(fresh, hook, "state")
    assert len(fresh._comm_hooks) == 1
    for _ in recorder.steps(range(5)):
        pass
    with pytest.warns(UserWarning, match="times: no steps recorded: no gradients of a watched model were averaged"):
        recorder.close()


def test_the_file_needs_the_standard_library_only_and_is_what_fred_record_prints(tmp_path):
    assert fred_command("record").out == FILE.read_text(encoding="utf-8")
    shutil.copy(FILE, tmp_path / "fred_record.py")
    program = "from fred_record import StepRecorder\nfor _ in StepRecorder('times').steps(range(4)): pass"
    subprocess.run([sys.executable, "-S", "-c", program], cwd=tmp_path, env={"RANK": "7"}, check=True)
    assert [(row["iteration"], row["worker"]) for row in rows(rank=7)] == [(2, 7), (3, 7)]


def write_ranks(steps: dict[int, int], seconds: Callable[[int, int], float]) -> None:
    """Write the files of some ranks, with this number of steps after the two that are never written."""
    for rank, number in steps.items():
        clock = Clock()
        recorder = fred.StepRecorder("times", rank=rank)
        vars(recorder)["_mark"] = lambda clock=clock: clock.now
        for step in recorder.steps(range(number + 2)):
            clock.move(seconds(rank, step))
        recorder.close()


def test_a_folder_is_read_up_to_the_last_step_of_all_ranks():
    write_ranks({0: 20, 1: 21, 2: 19}, lambda rank, step: (0.36 if rank == 1 else 0.16) + 1e-3 * (step % 3))
    trace = read("times")
    assert (trace.seconds.shape, trace.workers) == ((19, 3), ("0", "1", "2"))
    assert trace.node_of is not None and not trace.node_of.any()
    assert trace.seconds[:4].tolist() == [
        [0.162, 0.362, 0.162],
        [0.16, 0.36, 0.16],
        [0.161, 0.361, 0.161],
        [0.162, 0.362, 0.162],
    ]
    assert "left out: the last 2 iterations, which not all workers completed" in trace.notes
    Path("empty").mkdir()
    with pytest.raises(FredError, match=r"the folder has no files of times"):
        read("empty")


def test_a_line_that_was_cut_off_anywhere_costs_only_its_step():
    write_ranks({0: 5, 1: 5}, lambda rank, step: 0.1 + rank + 0.01 * step)
    complete = read("times").seconds
    path = Path("times/rank-0001.csv")
    content = path.read_bytes()
    last = content.rindex(b"\n", 0, -1) + 1
    for size in range(last, len(content), 3):
        path.write_bytes(content[:size])
        seconds = read("times").seconds
        fields = content[last:size].count(b",")
        assert np.array_equal(seconds, complete[: 5 if fields == 6 else 4]), content[last:size]
    path.write_bytes(content.replace(b"\n4,", b"\n4;"))  # not the last line
    with pytest.raises(FredError, match=r"rank-0001.csv:4: found 6 fields; expected 7"):
        read("times")


def test_a_killed_process_leaves_all_its_finished_steps(tmp_path):
    shutil.copy(FILE, tmp_path / "fred_record.py")
    program = "from fred_record import StepRecorder\nfor k in StepRecorder('times').steps(range(10**9)): print(k, flush=True)"
    with subprocess.Popen([sys.executable, "-S", "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        steps = [int(next(process.stdout)) for _ in range(200)]
        process.send_signal(signal.SIGKILL)
    numbers = [row["iteration"] for row in rows()]
    assert numbers == list(range(2, len(numbers) + 2)) and len(numbers) >= steps[-1] - 2


def test_files_of_an_earlier_run_are_set_aside_not_mixed_with_new_ones(monkeypatch):
    write_ranks({0: 5, 1: 5, 2: 5, 3: 5}, lambda rank, step: 1.0)
    before = Path("times/rank-0001.csv").read_bytes()
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    write_ranks({0: 3, 1: 3}, lambda rank, step: 2.0)
    assert read("times").seconds.tolist() == [[2.0, 2.0]] * 3
    assert Path("times/rank-0001.csv.old").read_bytes() == before
    assert sorted(path.name for path in Path("times").iterdir() if path.suffix == ".old") == [
        f"rank-000{rank}.csv.old" for rank in range(4)
    ]


def test_the_rank_is_that_of_the_launcher(monkeypatch, pytorch):
    for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "RANK"):
        vars(pytorch)["is_initialized"] = lambda: False
        monkeypatch.setenv(name, str(5 + len(name)))
        for _ in fred.StepRecorder(name).steps(range(4)):
            pass
        assert rows(name, 5 + len(name)), "the first of several variables counts"
    vars(pytorch)["is_initialized"] = lambda: True
    for _ in fred.StepRecorder("times").steps(range(4)):
        pass
    assert rows(rank=1)


def test_a_full_disk_ends_the_recording_and_not_the_training(monkeypatch):
    recorder = fred.StepRecorder("times")

    def fail(file: int, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    with pytest.warns(UserWarning, match="step times are no longer recorded: times: No space left on device") as warned:
        for step in recorder.steps(range(9)):
            if step == 4:
                monkeypatch.setattr(os, "write", fail)
    assert step == 8 and len(warned) == 1
    assert [row["iteration"] for row in rows()] == [2, 3]


def can_import(*modules: str) -> bool:
    command = [PYTORCH, "-c", f"import {', '.join(modules)}"]
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.nightly
def test_real_processes_over_gloo_show_the_slow_rank_where_step_times_are_equal(tmp_path):
    if not can_import("torch"):
        pytest.skip("needs PyTorch: set FRED_TORCH_PYTHON to a Python that has it")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        place = {
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": str(free.getsockname()[1]),
            "WORLD_SIZE": "4",
            "OMP_NUM_THREADS": "1",
        }
    command = [PYTORCH, str(ROOT / "tests" / "gloo_training.py"), str(FILE), str(tmp_path)]
    ranks = [subprocess.Popen(command, env=os.environ | place | {"RANK": str(rank)}) for rank in range(4)]
    deadline = time.monotonic() + 240
    try:
        assert [process.wait(max(1.0, deadline - time.monotonic())) for process in ranks] == [0] * 4
    finally:
        for process in ranks:
            process.kill()
    naive = [json.loads((tmp_path / f"naive-{rank}.json").read_text()) for rank in range(4)]
    for kind, slow in (("ddp", 1), ("accumulate", 1), ("input", 0), ("fsdp", 1)):
        seconds = read(tmp_path / kind).seconds
        means = np.median(seconds, axis=0)
        fast = np.median(np.delete(means, slow))
        usual = np.array([times[kind] for times in naive])
        print(f"{kind}: recorded {means.round(4)}, factor {means[slow] / fast:.3f}; naive {usual.round(4)}")
        assert means[slow] / fast == pytest.approx(0.36 / 0.16, rel=0.05), kind
        assert usual.max() / usual.min() < 1.03, "all ranks wait for the slow one"
        assert len(seconds) == {"accumulate": 5, "ddp": 12}.get(kind, 7)
    answer = " ".join(fred_command("diagnose", tmp_path / "ddp").out.split())
    assert "Worker 1 is always 2.2 times slower than the others" in answer
