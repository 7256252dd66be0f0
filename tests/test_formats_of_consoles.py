"""Console logs and timelines of many tools give the times that were written into them, or say what to record instead."""

import gzip
import json
import sqlite3
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from fred.base.errors import FredError
from fred.traces.reading import read
from fred.traces.roles import UnclearTraceError
from tests.program import fred_command

STEPS, RANKS = 12, 4
SECONDS = 0.4 + np.arange(STEPS)[:, None] % 5 * 0.01 + np.array([0.0, 0.002, 0.0, 0.004])
SECONDS[:, 2] = 1.5 * SECONDS[:, 0]  # rank 2 is slow
TIMES = SECONDS.round(6).tolist()
WHEN = [
    datetime(2026, 5, 3, 10) + timedelta(seconds=sum(row[rank] for row in TIMES[: i + 1]))
    for i in range(STEPS)
    for rank in range(RANKS)
]
Write = Callable[[int, int, float], str]


def date(i: int, rank: int) -> str:
    return WHEN[i * RANKS + rank].isoformat(sep=" ", timespec="microseconds")


A_FILE_EACH: dict[str, Write] = {
    "MaxText": lambda i, r, t: f"completed step: {i}, seconds: {t}, TFLOP/s/device: 84.2, Tokens/s/device: 6655.3, loss: 11.9",
    "nanoGPT": lambda i, r, t: f"iter {i}: loss 3.2145, time {t * 1e3:.3f}ms, mfu 12.00%",
    "llm.c": lambda i, r, t: (
        f"step {i:4}/1885 | loss 10.9 (+nanz)| norm 15.3 (+nanz)| lr 8.57e-07 | {t * 1e3:.3f} ms | 45.2% bf16 MFU | 12 tok/s"
    ),
    "NeMo": lambda i, r, t: (
        f"Training epoch 0, iteration {i}/99 | lr: 5.6e-06 | global_step: {i} | train_step_timing in s: {t} | val_loss: 2.8"
    ),
    "ImageNet": lambda i, r, t: (
        f"Epoch: [{i // 6}][{i % 6:5}/500]\tTime  {t:.6f} ( 0.410)\tData  0.001 ( 0.002)\tLoss 6.9 (6.9)"
    ),
    "timm": lambda i, r, t: (
        f"Train: {i // 6} [{i % 6:>4}/500 (  0%)]  Loss: 6.9 (6.90)  Time: {t:.6f}s,  318.22/s  (0.410s,  312.1/s)  Data: 0.001"
    ),
    "MMEngine": lambda i, r, t: (
        f"2026/05/03 10:00:00 - mmengine - INFO - Epoch(train)  [1][{i:2}/100]  lr: 1e-3  eta: 1:00:00  time: {t}  data_time: 0.001"
    ),
    "detectron2": lambda i, r, t: (
        f"[05/03 10:00:00 d2.utils.events]:  eta: 0:12:33  iter: {20 * i + 19}  total_loss: 9.6  time: {t}  data_time: 0.0120"
    ),
    "DeepSpeed": lambda i, r, t: (
        f"[2024-04-21 02:45:40,722] [INFO] [logging.py:96:log_dist] [Rank {r}] step={i}, skipped=0, lr=[1e-07, 1e-07], mom=[(0.9, 0.9)]\n"
        f"[2024-04-21 02:45:40,723] [INFO] [logging.py:96:log_dist] [Rank {r}] time (ms) | fwd: {t * 300:.4f} | "
        f"bwd: {t * 600 + 99:.4f} | bwd_inner: {t * 600:.4f} | bwd_allreduce: 99.0 | step: {t * 100:.4f}"
    ),
    "Keras": lambda i, r, t: (
        f"Epoch {i + 1}/40\n  1/100 [>....] - ETA: 3:00 - loss: 0.4\r100/100 [=====] - 41s {t * 1e3:.3f}ms/step - loss: 0.3 - val_loss: 0.3"
    ),
    "Keras 3": lambda i, r, t: (
        f"Epoch {i + 1}/40\n\x1b[1m100/100\x1b[0m \x1b[32m━━━━━━━━━\x1b[0m \x1b[1m41s\x1b[0m {t * 1e3:.3f}ms/step - loss: 0.3"
    ),
    "progress bar": lambda i, r, t: f"\rEpoch 0:  45%|####    | {i}/100 [00:18<00:22, {t:.6f}s/it, v_num=0, train_loss=0.3]",
    "steps per second": lambda i, r, t: (
        f"I0503 10:00:00.123456 77 logging_writer.py:48] [{i}] loss=3.1, steps_per_second={1 / t!r}"
    ),
    "decimal comma": lambda i, r, t: f"step {i}: step time {t} s".replace("0.", "0,"),
    "dates": lambda i, r, t: f"{date(i, r)} INFO step {i} loss 3.1",
    "clock": lambda i, r, t: f"step {i} loss 3.1 elapsed {sum(row[r] for row in TIMES[: i + 1]):.6f} s",
}
ONE_FILE: dict[str, Write] = {
    "torchrun": lambda i, r, t: (
        f"[rank{r}]:[titan] 2025-02-01 10:00:00,123 - root - INFO - \x1b[31mstep: {i:2}  \x1b[32mtime: {t} s\x1b[39m"
    ),
    "torchrun --tee": lambda i, r, t: f"[default{r}]:iter {i}: loss 3.2145, time {t * 1e3:.3f}ms",
    "srun --label": lambda i, r, t: f" {r}: step {i:,} took {t} s",
    "mpirun": lambda i, r, t: f"[1,{r}]<stdout>:Step #{i}\tLoss: 2.3\tTime: {t} s",
    "horovodrun": lambda i, r, t: f"[{r}]<stderr>:step={i} dt={t}s",
    "logfmt": lambda i, r, t: (
        f'ts=2026-05-03T10:00:00Z level=info host=node-{r // 2} rank={r} step={i} step_time={t}s msg="step 3"'
    ),
    "JSON in lines": lambda i, r, t: f'INFO:root:{{"step": {i}, "rank": {r}, "step_time_s": {t}, "loss": 3.1}}',
    "Ray": lambda i, r, t: f"\x1b[36m(RayTrainWorker pid={100 + r}, ip=10.0.0.{r})\x1b[0m step {i} took {t} s",
    "Docker": lambda i, r, t: f"worker-{r}  | 2026-05-03 10:00:00 INFO step {i} step_time={t * 1e3:.3f}ms",
    "pdsh": lambda i, r, t: f"node-{r:02d}: step={i} dt={t * 1e3:.3f}ms",
    "words": lambda i, r, t: f"rank {r}, iteration {i}: compute_time {t} s, allreduce_time 0.9 s, step_time 1.5 s",
    "phases": lambda i, r, t: (
        f"[Rank {r}] step {i}: data 0.01s forward {t * 0.3:.7f}s backward {t * 0.7 - 0.01:.7f}s allreduce 0.3s"
    ),
}
ABOVE = "starting run 7 on 4 GPUs\nNum_devices: 16, shape (1, 1, 16)\nconfig: {'batch': 4}\n"


def write_logs(folder: Path, write: Write, shared: bool, above: str = ABOVE) -> list[Path]:
    """Write the times in one file, or in a file for each rank."""
    lines = [[write(i, rank, TIMES[i][rank]) + "\n" for rank in range(RANKS)] for i in range(STEPS)]
    if shared:
        (folder / "all.log").write_text(above + "".join(map("".join, lines)))
        return [folder / "all.log"]
    for rank in range(RANKS):
        (folder / f"rank{rank}.log").write_text(above + "".join(row[rank] for row in lines))
    return [folder / f"rank{rank}.log" for rank in range(RANKS)]


@pytest.mark.parametrize("tool", [*A_FILE_EACH, *ONE_FILE])
def test_lines_of_a_console_give_the_times_in_them(tool, tmp_path):
    shared = tool in ONE_FILE
    trace = read(*write_logs(tmp_path, (ONE_FILE if shared else A_FILE_EACH)[tool], shared))
    expected = SECONDS[STEPS - len(trace.seconds) :]  # differences have one step less
    accuracy = 1e-6 if tool == "dates" else 1e-9  # of dates as seconds since 1970
    np.testing.assert_allclose(trace.seconds, expected, rtol=0, atol=accuracy)
    np.testing.assert_allclose(trace.seconds[:, 2] / trace.seconds[:, 0], 1.5, atol=1e-5)
    assert trace.notes[0].startswith("console log: ")
    assert [name[-1] for name in trace.workers] == ["0", "1", "2", "3"]


def test_rates_of_work_give_factors_between_workers_and_say_so(tmp_path):
    trace = read(
        *write_logs(tmp_path, lambda i, r, t: f"step: {i:2}  loss:  8.1  memory:  1.90GiB(2.00%)  tps: {9e5 / t:,.0f}", False)
    )
    np.testing.assert_allclose(trace.seconds[:, 2] / trace.seconds[:, 0], 1.5, rtol=1e-5)
    assert "1 / `tps` counts: factors between workers are right, seconds are not" in trace.notes[0]


def test_diagnose_names_the_slow_host_of_four_logs(tmp_path):
    write_logs(tmp_path, A_FILE_EACH["MaxText"], False)
    answer = fred_command("diagnose", tmp_path)
    assert answer.code == 0, answer
    assert "rank2 is always 1.5 times slower than the others" in " ".join(answer.out.split())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("iteration {i}/ 1000 | consumed samples: 512 | elapsed time per iteration (ms): 402.1 |", "--timing-log-option all"),
        ("[2024-04-21 02:45:40,722] [INFO] [logging.py:96:log_dist] [Rank 0] step={i}, time 4 ms", "a log of DeepSpeed"),
        ("iter {i}: loss 3.2145, time 402.11ms, mfu 12.00%", "one log cannot show who is slow"),
        ("100%|####| {i}/100 [00:18<00:22, 2.44it/s]", "a progress bar of tqdm"),
    ],
)
def test_the_log_of_one_process_is_refused_with_what_to_record(line, message, tmp_path):
    (tmp_path / "out.log").write_text("".join(line.replace("{i}", str(i)) + "\n" for i in range(30)))
    with pytest.raises(FredError, match="`fred record`") as error:
        read(tmp_path / "out.log")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{'loss': 2.07, 'learning_rate': 0.0002, 'epoch': 0.04}\n{'loss': 2.05, 'epoch': 0.08}\n", "the Hugging Face Trainer"),
        ("2026-05-03 10:00:00 INFO starting\n2026-05-03 10:00:01 INFO ready\n", "no line has the number of a step"),
        ("2026-05-03 10:00:00 step 1\n2026-05-03 10:00:01 step 2\n2026-05-03 10:00:01 step 3\n", "too coarse"),
        ("node1:1:9 [0] NCCL INFO Bootstrap : Using eth0\nnode1:1:9 [0] NCCL INFO NET/Plugin\n", "a log of NCCL"),
        ("step 1 loss 3.1\nstep 2 loss 3.0\n", "no line has both a step and a time"),
    ],
)
def test_a_log_without_step_times_is_named_and_refused_with_what_to_record(text, message, tmp_path):
    (tmp_path / "out.log").write_text(text)
    with pytest.raises(FredError, match="`fred record`") as error:
        read(tmp_path / "out.log")
    assert message in str(error.value)


def test_lines_of_several_processes_without_names_are_refused_with_the_launchers_options(tmp_path):
    with pytest.raises(FredError, match=r"most steps stand there 4 times, and no line says from which rank.*srun --label"):
        read(*write_logs(tmp_path, lambda i, r, t: f"step {i} time {t} s", True))


def test_two_columns_that_may_be_the_time_are_asked_about_with_a_command_that_works(tmp_path):
    files = write_logs(tmp_path, lambda i, r, t: f"rank {r}: step {i}, inner_ms={t * 1e3:.3f} outer_ms={t * 2e3:.3f}", True)
    with pytest.raises(UnclearTraceError, match="which of inner_ms, outer_ms is the time of a step") as error:
        read(*files)
    assert error.value.works
    np.testing.assert_allclose(read(*files, **error.value.options).seconds, SECONDS, atol=1e-9)


def test_a_comma_that_may_be_of_thousands_or_of_decimals_is_refused(tmp_path):
    with pytest.raises(FredError, match="a number whose comma is clear"):
        read(*write_logs(tmp_path, lambda i, r, t: f"rank {r}: step {i}, time 1,{round(t * 1e3):03} s", True))


def megatron(block: Callable[[list[float]], str], prefix: str = "") -> str:
    text = "(min, max) time across ranks (ms):\n    model-and-optimizer-setup ......: (1345.37, 1359.59)\n"
    for i, row in enumerate(TIMES):
        text += (
            f" [2026-05-03 10:00:00] iteration {i + 1:8}/   24000 | elapsed time per iteration (ms): {max(row) * 1e3:.1f} |\n"
        )
        text += block(row)
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


@pytest.mark.parametrize("prefix", ["", "[default7]:", " 7: "])
def test_timers_of_megatron_give_the_own_time_of_each_rank(prefix, tmp_path):
    def block(row: list[float]) -> str:
        timers = {
            "forward-backward": [1.0] * RANKS,
            "forward-compute": [t * 0.3 for t in row],
            "backward-compute": [t * 0.7 for t in row],
        }
        ranks = {
            name: "".join(f"     rank {rank:2d}: {t * 1e3:.6f}\n" for rank, t in enumerate(times))
            for name, times in timers.items()
        }
        return "times across ranks (ms):\n" + "".join(f"  {name}:\n{lines}" for name, lines in ranks.items())

    (tmp_path / "out.log").write_text(megatron(block, prefix))
    trace = read(tmp_path / "out.log")
    np.testing.assert_allclose(trace.seconds, SECONDS, rtol=0, atol=1e-8)
    assert trace.notes == ("Megatron-LM timers: sum of forward-compute, backward-compute",)


def test_reports_of_megatron_without_all_ranks_are_refused_with_what_they_tell(tmp_path):
    (tmp_path / "a.log").write_text(
        megatron(
            lambda row: (
                f"    0: INFO:utils: | MnRtt/Rnk: {min(row) * 1e3:.2f}ms/0 | MxRtt/Rnk: {max(row) * 1e3:.2f}ms/2 | MnPwr/Rnk: 6W/8\n"
            )
        )
    )
    with pytest.raises(
        FredError, match=r"rank 2 is the slowest in 12 of 12, and it takes 1.5 times as long.*--timing-log-option all"
    ):
        read(tmp_path / "a.log")
    line = "    forward-compute ............: ({least:.2f}, {most:.2f})\n"
    (tmp_path / "b.log").write_text(
        megatron(lambda row: "(min, max) time across ranks (ms):\n" + line.format(least=min(row) * 300, most=max(row) * 300))
    )
    with pytest.raises(
        FredError, match=r"in `forward-compute` the slowest takes 1.5 times as long; log the times of each rank"
    ):
        read(tmp_path / "b.log")


def horovod(is_closed: bool, times: list[list[float]] | None = None) -> str:
    """A timeline of two tensors; the first one is reduced while the ranks still compute the second."""
    events, begin = list[dict[str, object]](), 1000.0
    for row in TIMES if times is None else times:
        for tensor, share in ((0, 0.5), (1, 1.0)):
            ready_times = [begin + t * share * 1e6 for t in row]
            events.append({"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": min(ready_times), "pid": tensor})
            events += [{"ph": "X", "name": str(rank), "ts": t, "pid": tensor, "dur": 0} for rank, t in enumerate(ready_times)]
            events.append({"ph": "E", "ts": max(ready_times), "pid": tensor})
            events += [
                {"ph": "B", "name": name, "ts": max(ready_times), "pid": tensor} for name in ("ALLREDUCE", "NCCL_ALLREDUCE")
            ]
            events += [{"ph": "E", "ts": max(ready_times) + 9000, "pid": tensor}] * 2
        begin += max(row) * 1e6 + 9000
    return json.dumps(events) if is_closed else "[\n" + "".join(json.dumps(event) + ",\n" for event in events)


@pytest.mark.parametrize("is_closed", [True, False])
def test_ticks_of_horovod_give_the_time_until_each_rank_is_ready(is_closed, tmp_path):
    (tmp_path / "timeline.json").write_text(horovod(is_closed))
    trace = read(tmp_path / "timeline.json")
    np.testing.assert_allclose(trace.seconds, SECONDS[1:], rtol=0, atol=1e-9)
    assert trace.workers == ("0", "1", "2", "3")


def test_a_timeline_that_is_cut_off_in_its_last_step_gives_the_others(tmp_path):
    (tmp_path / "timeline.json").write_text(horovod(False)[:-700])
    np.testing.assert_allclose(read(tmp_path / "timeline.json").seconds, SECONDS[1:-1], rtol=0, atol=1e-9)


def test_a_timeline_that_is_cut_off_in_its_second_step_is_refused_for_too_few(tmp_path):
    (tmp_path / "timeline.json").write_text(horovod(False, TIMES[:2])[:-400])
    with pytest.raises(FredError, match="no ready times of ranks in two steps or more"):
        read(tmp_path / "timeline.json")


def test_a_timeline_with_cached_responses_is_refused_with_the_variable_to_set(tmp_path):
    text = '[\n{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 0, "pid": 1},\n{"ph": "X", "name": "0", "ts": 4, "pid": 1, "dur": 0},\n'
    (tmp_path / "timeline.json").write_text(text)
    with pytest.raises(FredError, match="HOROVOD_CACHE_CAPACITY=0"):
        read(tmp_path / "timeline.json")


PUSHES = "Start (ns),End (ns),Duration (ns),DurChild (ns),DurNonChild (ns),Name,PID,TID,Lvl,NumChild,RangeId,ParentId,RangeStack,NameTree"
PROJECTED = "Name,Projected Start (ns),Projected Duration (ns),Orig Start (ns),Orig Duration (ns),Style,PID,TID,NumGPUOps,Lvl"


@pytest.mark.parametrize("name", ["step {}", ":step {}", "iteration_{}", "ProfilerStep#{}", "train_step"])
@pytest.mark.parametrize("header", [PUSHES, PROJECTED])
def test_nvtx_ranges_of_steps_give_whole_steps(name, header, tmp_path):
    for rank in range(RANKS):
        lines = ["Processing [rank.sqlite] with [report.py]... ", header]
        for i in range(STEPS):
            duration, text = round(TIMES[i][rank] * 1e9), name.format(i)
            if header == PUSHES:
                lines.append(f'{i * 10**9},{i * 10**9 + duration},{duration},0,9,"{text}",53,53,0,0,{i},,:{i},:x')
                lines.append(f"{i * 10**9},{i * 10**9 + 9},9,0,9,:forward,53,53,1,0,{i},,:{i},:x")
            else:
                lines.append(f"{text},{i * 10**9},{duration},{i * 10**9},5,PushPop,1,1,3,0")
        (tmp_path / f"rank{rank}.csv").write_text("\n".join(lines) + "\n")
    trace = read(tmp_path)
    np.testing.assert_allclose(trace.seconds, SECONDS, rtol=0, atol=1e-9)
    assert "waiting for others included" in trace.notes[0]


@pytest.mark.parametrize(("computing", "waiting"), [("backward", "grad_sync"), ("bw", "optimizer.step")])
def test_nvtx_ranges_inside_steps_show_who_is_slow_although_all_steps_are_equal(computing, waiting, tmp_path):
    """All ranks end the last range together, whatever its name is."""
    begins = np.concatenate([[0.0], np.cumsum(SECONDS.max(axis=1) + 0.01)])
    for rank in range(RANKS):
        lines = [PUSHES]
        for i, begin in enumerate(begins[:-1]):
            middle = begin + SECONDS[i, rank]
            for text, start, end in (
                (f"step {i}", begin, begins[i + 1]),
                (computing, begin, middle),
                (waiting, middle, begins[i + 1]),
            ):
                start_ns, end_ns = round(start * 1e9), round(end * 1e9)
                lines.append(f"{start_ns},{end_ns},{end_ns - start_ns},0,0,{text},7,7,0,0,0,,,:{text}")
        (tmp_path / f"rank{rank}.csv").write_text("\n".join(lines) + "\n")
    trace = read(tmp_path)
    overhead = trace.seconds - SECONDS
    np.testing.assert_allclose(overhead, overhead[0, 0], atol=1e-8)  # the same for all, what the last rank takes in it
    assert 0 <= overhead[0, 0] < 0.02


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("Time (%),Total Time (ns),Instances,Avg (ns),Name\n45.0,1200,2,600,gemm\n55.0,1200,2,600,nccl\n", "a summary"),
        ("Start (ns),Duration (ns),CorrId,Device,Strm,Name\n100,50,1,GPU0,0,gemm\n200,50,2,GPU0,1,nccl\n", "numbered steps"),
        (
            "  Name   Projected Start (ns)  Orig Duration (ns)\n ------  ----------  ------\n :step 1  282,493  1\n",
            "for the screen",
        ),
    ],
)
def test_reports_of_nsys_without_steps_are_refused_with_the_export_that_has_them(table, message, tmp_path):
    (tmp_path / "report.csv").write_text(table)
    with pytest.raises(FredError, match=r"nsys export --type sqlite --output rank0.sqlite rank0.nsys-rep") as error:
        read(tmp_path / "report.csv")
    assert message in str(error.value)


def nsys_database(path: Path, ranks: list[int]) -> Path:
    """An export in which NCCL's kernel fills each step up to the slowest rank's time."""
    with sqlite3.connect(path) as base:
        base.executescript(
            "CREATE TABLE StringIds(id INT, value TEXT); CREATE TABLE NVTX_EVENTS(start INT, end INT, text TEXT, textId INT, globalTid INT);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INT, end INT, globalTid INT, correlationId INT);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INT, end INT, correlationId INT, globalPid INT, demangledName INT);"
            "INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'ncclDevKernel_AllReduce_Sum_f32_RING');"
        )
        for rank in ranks:
            process, begin = 1 << 48 | (100 + rank) << 24, 0
            for i, row in enumerate(TIMES):
                work, total = round(row[rank] * 1e9), round(max(row) * 1e9)
                base.execute(
                    "INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, NULL, ?)", (begin, begin + total, f"step {i}", process | 7)
                )
                for name, start, end in ((1, 0, work), (2, work, total)):
                    base.execute(
                        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?)",
                        (begin, begin + 5, process | 7, 2 * i + name),
                    )
                    kernel = (begin + 1000 + start, begin + 1000 + end, 2 * i + name, process, name)
                    base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?)", kernel)
                begin += total + 10**6
    return path


def test_kernels_in_a_database_of_nsys_give_own_times_without_nccl(tmp_path):
    separate = read(*[nsys_database(tmp_path / f"rank{rank}.sqlite", [rank]) for rank in range(RANKS)])
    together = read(nsys_database(tmp_path / "node.sqlite", [0, 1, 2, 3]))
    for trace in (separate, together):
        np.testing.assert_allclose(trace.seconds, SECONDS, rtol=0, atol=1e-9)
        assert "left out as communication: ncclDevKernel_AllReduce_Sum_f32_RING" in trace.notes[0]
    assert together.workers == ("node/100", "node/101", "node/102", "node/103")
    with sqlite3.connect(tmp_path / "node.sqlite") as base:
        base.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE globalPid = ?", (1 << 48 | 100 << 24,))
    rest = read(tmp_path / "node.sqlite")
    np.testing.assert_allclose(rest.seconds, SECONDS[:, 1:], rtol=0, atol=1e-9)
    assert rest.workers == together.workers[1:] and "left out, because no kernels were recorded: 100" in rest.notes[0]


def xla(rank: int, device: str, steps: str) -> bytes:
    """A trace of one device, whose all-reduce fills each step up to the slowest rank's time."""
    names = [(3, None, f"/device:{device}:0"), (3, 1, "Steps"), (3, 3, "XLA Ops"), (7, None, "/host:CPU"), (7, 1, "python")]
    events = [
        {
            "ph": "M",
            "pid": pid,
            **({} if tid is None else {"tid": tid}),
            "name": f"{'process' if tid is None else 'thread'}_name",
            "args": {"name": name},
        }
        for pid, tid, name in names
    ]
    begin = 0.0
    for i, row in enumerate(TIMES):
        work, total = row[rank] * 1e6, max(row) * 1e6
        step = (
            {"pid": 3, "name": str(i)}
            if steps == "device"
            else {"pid": 7, "name": "train", "args": {"step_num": str(i)} if steps else {}}
        )
        events += [
            {"ph": "X", "tid": 1, "ts": begin, "dur": total + 5, **step},
            {"ph": "X", "pid": 3, "tid": 3, "ts": begin + 1, "dur": work, "name": "fusion.1"},
            {"ph": "X", "pid": 3, "tid": 3, "ts": begin + 1 + work, "dur": total - work, "name": "all-reduce.3"},
        ]
        begin += total + 20
    return gzip.compress(json.dumps({"displayTimeUnit": "ns", "traceEvents": events}).encode())


@pytest.mark.parametrize(("device", "steps"), [("TPU", "device"), ("GPU", "host")])
def test_operations_in_a_trace_of_xla_give_own_times_without_collectives(device, steps, tmp_path):
    for rank in range(RANKS):
        (tmp_path / f"host{rank}.trace.json.gz").write_bytes(xla(rank, device, steps))
    trace = read(tmp_path)
    np.testing.assert_allclose(trace.seconds, SECONDS, rtol=0, atol=1e-9)
    assert trace.notes[-1] == "left out as communication or waiting: all-reduce"


def test_a_trace_of_xla_without_steps_is_refused_with_the_annotation(tmp_path):
    (tmp_path / "host0.trace.json.gz").write_bytes(xla(0, "GPU", ""))
    with pytest.raises(FredError, match="StepTraceAnnotation"):
        read(tmp_path / "host0.trace.json.gz")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("xla.json", '{"displayTimeUnit": "ns", "x": "/device:TPU:0", "traceEvents": null}'),
        ("unhashable.json", '{"x": "/device:TPU:0", "traceEvents": [{"ph": "X", "pid": [1], "ts": 1, "dur": 1}]}'),
        ("kineto.json", '{"traceEvents": [{"ph": "X", "name": "ProfilerStep#%s", "ts": 1, "dur": 1}]}' % ("9" * 5000)),
        ("times.log", " iteration 1/ 9 |\n times across ranks (ms):\n  forward-compute:\n    rank 0: 1.2.3\n"),
        ("step_time", "1700000000000 -.-.e 1\n1700000000001 1.1 0\n"),
        ("big.json", '[{"iteration": 0, "worker": 0, "seconds": %s}]' % ("9" * 400)),
        ("nsys.csv", 'Name,Start (ns),Duration (h),PID,Lvl\n"step 1",1,2,3,0\n"step 2",1,2,3,0\n'),
    ],
)
def test_damaged_logs_are_refused_with_their_name(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(FredError, match=name):
        read(tmp_path / name)
