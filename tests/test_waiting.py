"""Waiting in step times: it is seen before any verdict, subtracted where operations show it, and not seen in compute times."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import fred
from fred.fitting.fitted import fit
from fred.prediction.comparison import compare, rolling
from fred.traces.reading import read
from fred.traces.trace import Trace
from fred.traces.waiting import Waiting, find_waiting
from tests.program import fred_command, refusal

Floats = NDArray[np.float64]
ROUNDS, WORKERS = 60, 4
SLOW = 2  # the worker that is slow


def compute(seed: int, rounds: int = ROUNDS, workers: int = WORKERS, deviation: float = 0.03) -> Floats:
    return np.random.default_rng(seed).lognormal(-1.0, deviation, (rounds, workers))


def clocks(seed: int, shape: tuple[int, ...], deviation: float = 0.0005) -> Floats:
    return np.random.default_rng([seed, 1]).normal(0.0, deviation, shape)


def wait_for_all(seed: int, rounds: int = ROUNDS, workers: int = WORKERS) -> Floats:
    """Times around a step whose gradients are averaged; one worker is 1.5 times slower."""
    times = compute(seed, rounds, workers)
    times[:, 0] *= 1.5
    return times.max(axis=1, keepdims=True) + clocks(seed, times.shape)


def meet_every(seed: int, every: int, slowness: Any = 1.0) -> Floats:
    """Times of workers that wait for the slowest after a number of iterations."""
    times = compute(seed) * slowness
    for begin in range(0, len(times), every):
        sums = times[begin : begin + every].sum(axis=0)
        times[begin + every - 1] += sums.max() - sums
    return times + clocks(seed, times.shape)


def repeat_pairs(seed: int) -> Floats:
    return compute(seed, workers=3).repeat(2, axis=1) + clocks(seed, (ROUNDS, 6))


def lengths(seed: int, workers: int = WORKERS) -> Floats:
    """Lengths of inputs that all workers share, which make them alike: correlation .99 and more."""
    return compute(seed, workers=1, deviation=0.3) * compute(seed + 100, workers=workers, deviation=0.01)


COMPUTE: dict[str, Any] = {
    "independent": compute,
    "equal machines": lambda seed: compute(seed, deviation=0.0015),
    "different machines": lambda seed: compute(seed) * [1.0, 1.3, 1.6, 2.0],
    "few iterations": lambda seed: compute(seed, rounds=10),
    "a pair": lambda seed: compute(seed, workers=2),
    "stalls of all": lambda seed: compute(seed) * np.where(np.arange(ROUNDS) % 17 == 5, 8.0, 1.0)[:, None],
    "drift of all": lambda seed: compute(seed, deviation=0.01) * np.linspace(1, 2, ROUNDS)[:, None],
    "rare pauses of one": lambda seed: (
        compute(seed, workers=2) + 1.0 * (np.random.default_rng([seed, 2]).random((ROUNDS, 2)) < 0.03)
    ),
    "pauses by turns": lambda seed: compute(seed) + 2.0 * (np.add.outer(np.arange(ROUNDS), 3 * np.arange(WORKERS)) % 12 == 0),
    "regular pauses at other times": lambda seed: (
        compute(seed, rounds=200, workers=8, deviation=0.02) + 2.0 * (np.add.outer(np.arange(200), 2 * np.arange(8)) % 20 == 0)
    ),
    "pauses by turns in each fourth iteration": lambda seed: (
        compute(seed, workers=8) + 2.0 * (np.add.outer(np.arange(ROUNDS), 3 * np.arange(8)) % 4 == 0)
    ),
    "short pauses of two workers by turns": lambda seed: (
        compute(seed, workers=2) + 0.1 * (np.add.outer(np.arange(ROUNDS), np.arange(2)) % 2 == 0)
    ),
    "pauses of all in each third iteration": lambda seed: compute(seed) + 2.0 * (np.arange(ROUNDS) % 3 == 0)[:, None],
    "shared lengths": lengths,
}
WAITING: dict[str, Any] = {
    "a step of all": wait_for_all,
    "a pair": lambda seed: wait_for_all(seed, workers=2),
    "few iterations": lambda seed: wait_for_all(seed, rounds=12),
    "every 10 iterations": lambda seed: meet_every(seed, 10),
    "every 4 iterations": lambda seed: meet_every(seed, 4),
    "every 2 iterations, one slow": lambda seed: meet_every(seed, 2, [1.5, 1.0, 1.0, 1.0]),
    "equal to the last digit": lambda seed: compute(seed, workers=1).repeat(WORKERS, axis=1),
    "clocks that differ by more than the rounds": lambda seed: (
        wait_for_all(seed) + np.diff(clocks(seed, (ROUNDS + 1, WORKERS), 0.02), axis=0)
    ),
}


@pytest.mark.parametrize("kind", COMPUTE)
def test_compute_times_are_not_taken_for_waiting(kind):
    assert {find_waiting(COMPUTE[kind](seed)).state for seed in range(10)} == {"no"}


@pytest.mark.parametrize("kind", WAITING)
def test_times_that_contain_waiting_are_seen(kind):
    states = [find_waiting(WAITING[kind](seed)).state for seed in range(10)]
    assert states.count("certain") >= 9 and "no" not in states


def test_the_interval_of_meetings_is_the_one_at_which_workers_meet():
    assert [find_waiting(meet_every(3, every)).every for every in (4, 6, 10)] == [4, 6, 10]


def test_workers_that_wait_only_for_one_another_form_groups_whatever_their_order():
    order = np.array([0, 3, 5, 1, 4, 2])
    trace = Trace(repeat_pairs(1)[:, order], tuple("abcdef"))
    assert trace.waiting.groups == ((0, 3), (1, 5), (2, 4))
    assert trace.warnings[0].startswith("Workers a, d wait for each other; so do b, f; c, e. Times within a group are equal")


def test_what_varies_with_the_unit_or_the_order_of_workers_is_no_sign():
    times = wait_for_all(5)
    original, scaled = find_waiting(times), find_waiting(1000 * times[:, ::-1])
    assert original.state == scaled.state == "certain"
    assert (original.worker_deviation, original.round_deviation) == pytest.approx(
        (scaled.worker_deviation, scaled.round_deviation), rel=1e-9
    )


def test_the_signs_are_those_of_a_plain_computation():
    deviation, rounds = 0.001, 4000
    common = np.random.default_rng(0).normal(1.0, 0.02, (rounds, 1))
    signs = find_waiting(common + np.random.default_rng(1).normal(0, deviation, (rounds, WORKERS)))
    assert (signs.worker_deviation, signs.round_deviation) == pytest.approx((deviation, 0.02), rel=0.2)
    assert signs.correlation == pytest.approx(0.02**2 / (0.02**2 + deviation**2), rel=1e-3)


def test_a_few_iterations_and_a_single_worker_show_nothing():
    assert find_waiting(wait_for_all(0, rounds=7)) == find_waiting(wait_for_all(0, workers=1)) == Waiting()


def long_table(folder: Path, seconds: Floats) -> Path:
    step, rank = (index.ravel() for index in np.indices(seconds.shape))
    path = folder / "steps.csv"
    pd.DataFrame({"step": step, "rank": rank, "seconds": seconds.ravel()}).to_csv(path, index=False)
    return path


def test_diagnose_gives_no_verdict_in_its_first_line_and_no_number_that_contradicts_it(tmp_path):
    path = long_table(tmp_path, wait_for_all(0))
    answer = fred_command("diagnose", path, "--out", tmp_path / "out")
    assert answer.code == 0
    assert answer.out.splitlines()[0].split("  ") == [
        "Verdict",
        "No verdict. The times contain waiting for the slowest worker.",
    ]
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "No verdict" in page and not any(word in answer.out + page for word in ("loses", "saves", "backup", "Repair"))
    numbers = json.loads((tmp_path / "out" / "diagnosis.json").read_text(encoding="utf-8"))
    assert numbers["verdict"]["cutoff"] == "no verdict" and "Record step times" in " ".join(
        numbers["verdict"]["doubt"]["remedies"]
    )
    assert not {"lost", "remedies", "upper_bound"} & set(numbers)


@pytest.mark.parametrize("command", [["fit"], ["cutoffs"], ["train-cutoff", "-o", "model.npz"]], ids=lambda words: words[0])
def test_commands_that_would_use_waiting_as_compute_time_refuse_it(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    long_table(tmp_path, wait_for_all(0))
    error = refusal(command[0], "steps.csv", *command[1:])
    assert "contain waiting for the slowest worker" in error and '"Record step times"' in error


@pytest.mark.parametrize(
    "use",
    [fit, lambda trace: compare(trace, 40, ["all"]), lambda trace: rolling(trace, 40, 10, ["all"])],
    ids=["fit", "compare", "rolling"],
)
def test_functions_that_would_use_waiting_as_compute_time_refuse_it_as_the_commands_do(use):
    trace = Trace(wait_for_all(0), tuple("abcd"))
    with pytest.raises(fred.FredError, match="contain waiting for the slowest worker"):
        use(trace)


COLLECTIVES = ["allreduce_ms", "all_reduce_s", "allgather_time_ms", "nccl_ms", "comm_time_s", "wait_s", "sync_ms", "barrier_us"]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_times_of_a_collective_give_no_verdict_and_the_worker_that_waits_least(name, tmp_path):
    seconds = compute(0)
    seconds[:, SLOW] *= 1.5
    waits = seconds.max(axis=1, keepdims=True) - seconds + 0.01
    step, rank = (index.ravel() for index in np.indices(waits.shape))
    path = tmp_path / "steps.csv"
    pd.DataFrame({"step": step, "rank": rank, name: waits.ravel()}).to_csv(path, index=False)
    answer = fred_command("diagnose", path)
    assert answer.code == 0, answer.err
    assert f"No verdict. The times are those of `{name}`" in " ".join(answer.out.split())
    assert f"waits least is the slow one: worker {SLOW}" in " ".join(answer.out.split())
    for command in ("fit", "cutoffs"):
        assert f"those of `{name}`" in refusal(command, path)


@pytest.mark.parametrize("name", ["compute_without_sync_s", "step_time_sync_s", "time_before_barrier_s"])
def test_names_of_compute_times_that_mention_waiting_are_no_collectives(name, tmp_path):
    step, rank = (index.ravel() for index in np.indices((ROUNDS, WORKERS)))
    pd.DataFrame({"step": step, "rank": rank, name: compute(0).ravel()}).to_csv(tmp_path / "steps.csv", index=False)
    assert not read(tmp_path / "steps.csv").collective


def test_a_scenario_that_repeats_times_with_waiting_warns_of_it(tmp_path):
    trace = {"name": "trace", "file": str(long_table(tmp_path, wait_for_all(0)))}
    algorithm, stop = {"name": "ssgd", "learning_rate": 0.1}, {"updates": 5}
    scenario = fred.scenario(cluster={"workers": WORKERS, "compute": trace}, algorithm=algorithm, stop=stop)
    with pytest.warns(UserWarning, match="contain waiting for the slowest worker"):
        result = fred.run(scenario)
    assert any("contain waiting for the slowest worker" in note for note in result.notes)


class Steps:
    """Operations of steps whose backward pass ends when all have arrived; one worker is slow in one of them."""

    def __init__(self, seed: int, slow: str, factor: float = 3.0, deviation: float = 0.02):
        rng = np.random.default_rng(seed)
        typical = {"load": 0.05, "forward": 0.1, "backward": 0.2, "step": 0.01}
        self.alone = {name: rng.lognormal(np.log(value), deviation, (ROUNDS, WORKERS)) for name, value in typical.items()}
        self.alone["step"][:] = 0.01
        if slow:
            self.alone[slow][:, SLOW] *= factor
        before = self.alone["load"] + self.alone["forward"]
        waits = (before + self.alone["backward"]).max(axis=1, keepdims=True)
        self.measured = {**self.alone, "backward": waits - before}

    @property
    def expected(self) -> Floats:
        """Return what the workers take outside the backward pass, and the mean of the shortest pass of all iterations."""
        outside = self.alone["load"] + self.alone["forward"] + self.alone["step"]
        return outside + self.measured["backward"].min(axis=1).mean()

    def table(self, offsets: Floats | None = None) -> pd.DataFrame:
        ends = np.cumsum([*self.measured.values()], axis=0)
        begin = np.arange(ROUNDS)[:, None] * 10.0 + (0.0 if offsets is None else offsets)
        step, rank = np.indices((ROUNDS, WORKERS))
        frames = [
            pd.DataFrame({"step": step.ravel(), "rank": rank.ravel(), "op": name, "start_s": (begin + end - took).ravel(),
                          "duration_s": took.ravel()})
            for (name, took), end in zip(self.measured.items(), ends, strict=True)
        ]  # fmt: skip
        return pd.concat(frames)


def read_table(folder: Path, frame: pd.DataFrame, **options: Any) -> Trace:
    path = folder / "operations.csv"
    frame.to_csv(path, index=False)
    return read(path, **options)


@pytest.mark.parametrize("slow", ["load", "forward"])
@pytest.mark.parametrize("form", ["starts", "clocks", "durations", "columns"])
def test_an_operation_that_waits_is_recognised_and_its_waiting_left_out(slow, form, tmp_path):
    steps = Steps(1, slow)
    frame, options = steps.table(np.array([0.0, 3.0, -70.0, 1e4]) if form == "clocks" else None), {}
    if form == "durations":
        frame = frame.drop(columns="start_s").sample(frac=1, random_state=0)
    elif form == "columns":
        frame = frame.pivot_table(index=["step", "rank"], columns="op", values="duration_s").add_suffix("_s").reset_index()
        options = {"columns": {"time": "+".join(f"{name}_s" for name in steps.measured)}}
    trace = read_table(tmp_path, frame, **options)
    np.testing.assert_allclose(trace.seconds, steps.expected, rtol=1e-9)
    assert "wait for other workers" in trace.notes[-1] and "`backward" in trace.notes[-1]
    assert trace.seconds.mean(axis=0).argmax() == SLOW and trace.waiting.state == "no"


@pytest.mark.parametrize("slow", ["backward", ""])
def test_slowness_inside_the_operation_that_waits_gives_no_verdict(slow, tmp_path):
    trace = read_table(tmp_path, Steps(2, slow).table())
    assert trace.waiting.certain and trace.notes[-1].endswith(
        "no worker is slow outside them; a worker that is slow inside them does not show"
    )


def test_a_missing_duration_is_missing_and_all_others_are_without_waiting(tmp_path):
    steps = Steps(5, "load")
    frame = steps.table().reset_index(drop=True)
    frame.loc[(frame["step"] == 7) & (frame["rank"] == 1) & (frame["op"] == "forward"), "duration_s"] = np.nan
    trace = read_table(tmp_path, frame, mend="drop")
    np.testing.assert_allclose(trace.seconds, np.delete(steps.expected, 7, axis=0), rtol=1e-3)
    assert trace.iterations == ROUNDS - 1


def test_operations_of_workers_that_do_not_wait_stay_as_they_are(tmp_path):
    steps = Steps(3, "load")
    steps.measured = steps.alone
    trace = read_table(tmp_path, steps.table())
    np.testing.assert_allclose(trace.seconds, sum(steps.alone.values()), rtol=1e-9)
    assert not any("wait for other" in note for note in trace.notes)


def profiles(folder: Path, steps: Steps, name: str) -> list[Path]:
    folder.mkdir()
    for rank in range(WORKERS):
        events = []
        for step in range(ROUNDS):
            begin = 1e7 * step
            for kernel, kind in (("sgemm", "forward"), (name, "backward")):
                length = 1e6 * steps.measured[kind][step, rank]
                events.append({"ph": "X", "cat": "kernel", "name": kernel, "ts": begin + 1, "dur": length})
                begin += length
            events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": 1e7 * step, "dur": 9e6})
        content = {"distributedInfo": {"rank": rank}, "traceEvents": events}
        (folder / f"{rank}.json").write_text(json.dumps(content), encoding="utf-8")
    return sorted(folder.glob("*.json"))


def test_a_kernel_that_waits_is_left_out_whatever_its_name(tmp_path):
    steps = Steps(4, "forward")
    steps.measured["backward"] = steps.alone["forward"].max(axis=1, keepdims=True) - steps.alone["forward"] + 0.01
    named, unknown = (
        read(*profiles(tmp_path / name.partition("_")[0], steps, name))
        for name in ("ncclDevKernel_AllReduce", "cross_device_reduce")
    )
    np.testing.assert_allclose(named.seconds, unknown.seconds, rtol=1e-9)
    assert unknown.notes[-1].endswith("`cross_device_reduce`; left out as communication")
