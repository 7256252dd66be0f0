"""Measured times of communication: the reader, the fit, the forms of libraries, and slow start, against sums by hand."""

import math

import numpy as np
import pytest

from fred.cluster.bandwidths import Connection
from fred.cluster.cluster import Cluster
from fred.cluster.collectives import CONNECTIONS, LIBRARIES, gloo_allreduce
from fred.cluster.network import Network
from fred.fitting.communication import Unknowns, errors, fit, fit_network, predict_seconds
from fred.fitting.measurement import Measurement
from fred.fitting.measurements import read
from fred.timing.fair_links import FairLinks
from fred.timing.loop import Loop
from reproductions.measured import steps, streams
from reproductions.measured.sources import SHARED, SOURCES
from tests.conftest import ROOT
from tests.program import fred_command, refusal


def test_slow_start_doubles_the_window_with_every_round_trip():
    """10 ms in each direction, 1 MB/s, and 1,000 bytes at first: 1, 2, 4, 8, 16 kB in the first five round trips."""
    for size, seconds in (
        (500, 0.0005),  # fits into the first window
        (1_000, 0.001),
        (1_500, 0.02 + 0.0005),  # the second window begins one round trip later
        (31_000, 4 * 0.02 + 0.016),
        (1_000_000, 5 * 0.02 + (1_000_000 - 31_000) / 1e6),  # from the sixth window on, 20,000 bytes are always under way
    ):
        assert Connection(0.01, 1e6, initial_window=1000).startup_delay(size) + size / 1e6 == pytest.approx(seconds, rel=1e-12)


def test_slow_start_loses_nothing_without_latency_or_with_a_large_window():
    assert Connection(0.0, 1e9, initial_window=1e4).startup_delay(1e9) == 0
    assert Connection(0.01, 1e9, initial_window=1e8).startup_delay(1e9) == 0
    assert Connection(0.01, 1e9).startup_delay(1e9) == 0
    assert Connection(0.01, math.inf, window=1e6).rate == 5e7


def test_messages_between_workers_start_slowly():
    windows = {"sharing": "fair", "window": 1e6, "initial_window": 1e5}
    network = Network(latency={"name": "constant", "seconds": 0.01}, bandwidth=1e8, **windows)
    env = Loop()
    links = FairLinks(env, Cluster(workers=2, network=network), seed=0)
    env.process(links.send_between_workers(0, 1, 10_000_000))
    env.run()
    delay = Connection(0.01, 5e7, initial_window=1e5).startup_delay(1e7)
    assert env.now / 1e9 == pytest.approx(0.01 + 10_000_000 / 5e7 + delay, abs=1e-8)


@pytest.mark.parametrize("members", [2, 3, 32])
@pytest.mark.parametrize("library", ["nccl", "gloo"])
def test_operations_of_libraries_send_at_least_what_they_must(library, members):
    """Per member on the longest path: 2 (n - 1) / n of the model in an allreduce, (n - 1) / n in its halves, all in a broadcast."""
    share = (members - 1) / members
    least = {"allreduce": 2 * share, **dict.fromkeys(("allgather", "reduce-scatter", "all-to-all"), share)}
    least |= {"broadcast": 1.0, "reduce": 1.0}
    depth = math.ceil(math.log2(members))
    for operation, volume in least.items():
        effort = LIBRARIES[library][operation](members)
        most = depth * (depth + 1) / 2 if operation == "broadcast" else 2 * depth
        assert volume * (1 - 1e-12) <= effort.volume <= most + 0.02


@pytest.mark.parametrize("members", range(2, 18))
def test_gloos_broadcast_is_a_tree_whose_senders_share_their_cards(members):
    """Member i sends to i + 2^k once it has the model, for each 2^k > i; messages of 1 share a card of 1 equally."""
    children = {i: [i + 2**k for k in range(6) if 2**k > i and i + 2**k < members] for i in range(members)}
    has_model, level = {0: 0.0}, [0]
    while level:
        for member in level:
            for child in children[member]:
                has_model[child] = has_model[member] + len(children[member])
        level = [child for member in level for child in children[member]]
    effort = LIBRARIES["gloo"]["broadcast"](members)
    assert len(has_model) == members and effort.volume == max(has_model.values())


@pytest.mark.parametrize("members", [2, 3, 4, 7, 16])
@pytest.mark.parametrize("delay", [0.002, 0.01, 0.05])
@pytest.mark.parametrize("size", [2**21, 2**25])
def test_gloos_ring_asks_for_two_segments_at_a_time(members, delay, size):
    """All members are alike: segment i is asked for when i - 2 has arrived, and is there to be sent once a chunk has gone by."""
    connection = Connection(delay, 2.5e7)
    number = max(2 * members, math.ceil(size / 2**20 / members) * members)
    seconds, per_chunk = size / number / connection.bandwidth, number // members
    end = 0.0
    for _ in ("reduce-scatter", "allgather"):
        arrivals: list[float] = []
        free_at = end
        for i in range(number - per_chunk):
            asked_for = (arrivals[i - 2] if i >= 2 else end) + delay
            if members == 2 and i >= 2:
                asked_for = max(asked_for, free_at + delay)  # the request waits behind the segment of the same connection
            begin = max(asked_for, free_at, arrivals[i - per_chunk] if i >= per_chunk else end)
            free_at = begin + seconds
            arrivals.append(free_at + delay)
        end = arrivals[-1]
    assert gloo_allreduce(members, volume=1.0).seconds(size, connection) == pytest.approx(end, rel=0.15)


@pytest.mark.parametrize("members", [2, 3, 8])
def test_nccls_broadcast_passes_chunks_down_a_chain(members):
    size, connection, chunks = 2**26, Connection(0.003, 2e8), 64
    arrivals = np.zeros((members, chunks))
    for member in range(1, members):
        free_at = 0.0
        for chunk in range(chunks):
            free_at = max(free_at, arrivals[member - 1, chunk]) + size / chunks / connection.bandwidth
            arrivals[member, chunk] = free_at + connection.latency
    effort = LIBRARIES["nccl"]["broadcast"](members)._replace(volume=1.0)
    assert effort.seconds(size, connection) == pytest.approx(arrivals[-1, -1])


def test_a_full_window_hides_the_waits_between_parts_in_use():
    """1 GB over 1 Gbit/s and 50 ms: the window's 5.5 MB take a round trip each; 64 MB over 1 ms: 16 times four latencies."""
    effort = LIBRARIES["in use"]["allreduce"](4)
    window = CONNECTIONS["in use"].window
    slow, near = (CONNECTIONS["in use"]._replace(latency=latency, bandwidth=1.25e8) for latency in (0.05, 0.001))
    assert effort.seconds(1e9, slow) == pytest.approx(effort.volume * 1e9 / window * 0.1)
    assert effort.seconds(6.4e7, near) == pytest.approx(effort.volume * 6.4e7 / 1.25e8 + 16.4 * 4 * 0.001)


def test_a_fit_finds_the_network_that_made_the_times():
    truth, sizes = Unknowns(latency=0.002, bandwidth=2e8), (2**16, 2**20, 2**24, 2**27)
    table = [Measurement("gloo", operation, 4, size, 1.0) for operation in ("allreduce", "broadcast") for size in sizes]
    table = [Measurement(**{**vars(entry), "seconds": predict_seconds(entry, truth)}) for entry in table]
    result, network = fit(table), fit_network(table)
    assert (result.latency, result.bandwidth) == pytest.approx((0.002, 2e8), rel=1e-3)
    assert network.collective == "gloo" and not network.algorithm_errors
    assert max(np.abs(error).max() for error in network.errors.values()) < 1e-2
    Network.model_validate(network.options)


def test_tables_are_read_as_they_are_written(tmp_path):
    path, pairs = tmp_path / "gloo-all-reduce.csv", tmp_path / "pairs.csv"
    path.write_text("nodes,megabytes,delay_ms,gbit_per_s,milliseconds\n4,2,1,8,5\n8,1,,,7\n")
    rows = (4, 2**21, 0.005, 0.001, 1e9), (8, 2**20, 0.007, None, None)
    assert read(path) == tuple(Measurement("gloo", "allreduce", *row) for row in rows)
    pairs.write_text("receiver,sender,round_trip_ms,mbit_per_s\na,b,50,800\n")
    (pair,) = read(pairs)
    assert (pair.latency, pair.is_rate) == (0.025, True)
    assert pair.seconds == pytest.approx(64 * 2**20 / 1e8)


RANK = "#  Rank  %s Group  0 Pid 1 on %s device  0 [000f:01:00] NVIDIA\n"
TWO = f"# nThread 1\n{RANK % (0, 'a')}{RANK % (1, 'b')}"


def test_logs_of_nccl_tests_are_read(tmp_path):
    """Logs of old programs name no operation, and have no column `root`."""
    header = "# Collective test starting: all_gather_perf\na:1:1 [0] NCCL INFO Using network Socket\n"
    rows = (
        "8192 2048 float {} 35.15 0.23 0.23 0 30.33 0.27 0.27 0\n67108864 16777216 float {} 61000 1.1 1.1 0 41900 1.1 1.1 0\n"
    )
    for name, beginning, root, operation in (
        ("my all_reduce run.log", TWO + "# size count type redop time algbw busbw\n", "sum", "nccl allreduce"),
        ("run.log", TWO + header + "# size count type redop root time algbw busbw #wrong\n", "none -1", "nccl allgather"),
    ):
        (tmp_path / name).write_text(beginning + rows.format(root, root))
        expected = [(operation, 2, 8192, 35.15), (operation, 2, 67108864, 61000)]
        assert [
            (entry.source, entry.nodes, entry.size, round(entry.seconds * 1e6, 2)) for entry in read(tmp_path / name)
        ] == expected


def test_a_wrong_file_is_refused_in_one_line(tmp_path):
    for name, text, message in (
        ("a.csv", "nodes,megabytes\n4,2\n", "no column with a duration"),
        ("gloo-x.csv", "nodes,megabytes,seconds\n4,4,2\n", "--values operation=allreduce"),
        (
            "a.csv",
            "library,operation,nodes,megabytes,seconds\nncl,allreduce,4,4,2\n",
            "a.csv:2: unknown library `ncl`; did you mean",
        ),
        ("gloo-reduce.csv", "nodes,megabytes,seconds\n4,4,fast\n", "gloo-reduce.csv:2: `seconds` is 'fast'"),
        ("gloo-reduce.csv", "nodes,seconds\n4,4\n", "no column with a size"),
        ("gloo-reduce.csv", "nodes,bytes,seconds\n1.5,4,4\n", "`nodes` is `1.5`"),
        ("gloo-reduce.csv", "bytes,seconds\n4,4\n", "does not say the number of members"),
        ("gloo-reduce.csv", "nodes,bytes,seconds\n", "no measurement"),
        ("gloo-reduce.csv", "nodes,bytes,seconds\n2,1,1\n", "expected at least 3"),
        ("gloo-reduce.csv", "nodes,bytes,seconds\n2,1,1\n2,1,1\n2,1,2\n", "of at least 2 sizes"),
        ("gloo-reduce.csv", "nodes,bytes,seconds,source\n2,1,1,a\n2,1,1,a\n2,2,2,b\n", "differ in source"),
        ("gloo-reduce.csv", "bytes,seconds\n1,1,1\n", "gloo-reduce.csv:2: there are more fields than columns"),
        ("gloo-reduce.csv", "bytes,bytes,seconds\n1,1,1\n", "there are two columns `bytes`"),
        ("gloo-reduce.csv", "nodes,bytes,seconds\n1e300,1,1\n", "`nodes` is '1e300'"),
        ("gloo-reduce.csv", "nodes,bytes,seconds\n2,1e14,1e-6\n2,2e14,1e-6\n2,3e14,1e-6\n", "no network explains these times"),
        ("reduce.csv", "nodes,bytes,seconds\n2,1,1\n", "--values library=nccl"),
        ("pairs.csv", "round_trip_ms,mbit_per_s\n1,1\n", "are rates"),
        ("run.log", f"# nThread 1\n{TWO}", "as nccl-tests prints them"),
        ("run.log", "# nThread 1\n8 2 float sum -1 35.15 0.23 0.23\n", "no line `# size count"),
    ):
        (tmp_path / name).write_text(text)
        assert message in refusal("fit-network", tmp_path / name, "--out", tmp_path / "network.yaml"), text
        assert not (tmp_path / "network.yaml").exists()


def test_given_latency_and_bandwidth_are_in_the_block(tmp_path):
    path = tmp_path / "gloo-allreduce.csv"
    path.write_text("nodes,megabytes,delay_ms,gbit_per_s,seconds\n" + "".join(f"4,{n},1,1,{n / 60}\n" for n in (8, 16, 64)))
    block = {"latency": {"name": "constant", "seconds": 0.001}, "bandwidth": 1.25e8}
    assert fit_network(read(path)).options.items() >= block.items()


@pytest.mark.slow
def test_other_algorithms_are_tried_with_several_numbers_of_members(tmp_path):
    """Times of a tree, 2 log2 n whole models: no library's form has these."""
    path = tmp_path / "nccl-allreduce.csv"
    rows = (f"{n},{size},{2 * math.log2(n) * (size / 100 + 1e-4)}\n" for n in (2, 4, 16) for size in (1, 8, 64))
    path.write_text("nodes,megabytes,seconds\n" + "".join(rows))
    fitted = fit_network(read(path))
    assert fitted.collective == "tree" and fitted.bandwidth == pytest.approx(100 * 2**20, rel=1e-3)


def test_gloos_operations_over_the_emulated_network_are_predicted():
    measured = read(ROOT / "reproductions" / "measured" / "gloo-emulated.csv")
    medians = {"allreduce": 0.03, "broadcast": 0.02, "reduce": 0.06, "allgather": 0.08, "all-to-all": 0.1, "gather": 0.04}
    for operation, median in medians.items():
        rows = [entry for entry in measured if entry.operation == operation]
        assert len(rows) >= 18
        assert np.median(np.abs(errors(rows, Unknowns()))) <= median, operation


def test_the_block_of_fit_network_runs(tmp_path):
    table, out, scenario_file = (tmp_path / name for name in ("gloo-allreduce.csv", "network.yaml", "mine.yaml"))
    table.write_text("nodes,megabytes,milliseconds\n" + "".join(f"4,{size},{16 * size + 10}\n" for size in (1, 8, 32, 64)))
    assert "gloo" in fred_command("fit-network", table, "-o", out).out
    assert fred_command("fit-network", table, "-o", out, "--quiet").out == f"{out}\n"
    block = "".join(f"  {line}\n" for line in out.read_text().splitlines())
    cluster = f"cluster:\n  workers: 4\n  compute: {{name: constant, seconds: 1.0}}\n{block}"
    scenario_file.write_text(f"{cluster}stop: {{updates: 3}}\nalgorithm: {{name: ssgd, learning_rate: 0.1}}\n")
    assert fred_command("run", scenario_file, "-o", tmp_path / "out", "--no-report").code == 0


needs_measurements = pytest.mark.skipif(not SHARED.exists(), reason=f"needs the measured times in {SHARED}")


@needs_measurements
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_measured_times_are_predicted(source):
    """75 % of pairs of regions and of synchronizations in use within 15 %, 95 % of all others."""
    measured = source.measurements()
    deviations = np.abs(errors(measured, fit(measured)))
    assert np.mean(deviations <= 0.15) >= (0.75 if measured[0].is_rate or measured[0].library == "in use" else 0.95)


@pytest.mark.slow
@needs_measurements
@pytest.mark.parametrize("source", [candidate for candidate in SOURCES if candidate.constants], ids=lambda source: source.name)
def test_the_constants_of_libraries_are_those_that_fit_the_measurements(source):
    fitted = fit(source.measurements(), source.form, source.constants)
    for name, value in source.constants.items():
        assert fitted.constants[name] == pytest.approx(value, rel=0.02)


def step_of(**changes):
    """One step of four workers that compute for 100 ms, with 50 MB at 1 GB/s."""
    defaults = dict.fromkeys(("source", "system", "program"), "ddp") | {"members": 4, "size": 50_000_000, "bandwidth": 1e9}
    defaults |= {"period": 1, "buckets": 1, "compute": 0.1, "seconds": 1.0, "is_blind": True}
    return steps.Step(**{**defaults, **changes})


def test_step_times_are_those_of_sums_by_hand():
    for step, buckets, seconds in (
        (step_of(), 1, 0.1 + 0.075),  # a ring moves 6 / 4 of the model
        (step_of(), 50, 0.1 - 0.2 / 3 / 50 * 49 + 0.075),  # from the first bucket on, the network limits
        (step_of(bandwidth=1e10), 10, 0.1 + 0.0075 / 10),  # the last bucket follows the backward pass
        (step_of(system="servers"), 1, 0.1 + 2 * 0.05),  # each of four servers takes a quarter of each of four gradients
        (step_of(system="local SGD", period=8), 1, 0.1 + 0.075 / 8),
        (step_of(system="DiLoCo", period=8), 1, 0.1 + 0.075 / 8),
    ):
        assert steps.predicted(step, "ring", buckets) == pytest.approx(seconds, rel=1e-6)


def test_step_times_of_trainings_are_read_and_predicted():
    """Local SGD and DiLoCo at 1 and 5 Gbit/s, averaging every 1 or 8 steps: within 7 %, as predicted before they were read."""
    measured = list(steps.read_steps())
    assert {step.system for step in measured} == set(steps.ALGORITHMS)
    assert sum(step.is_blind for step in measured) == 83
    near = [step for step in measured if step.system != "ddp" and 1e8 < step.bandwidth < 1e9 and step.period <= 8]
    assert len(near) == 8
    assert all(abs(steps.predicted(step, "nccl") / step.seconds - 1) < 0.07 for step in near)


def test_rates_of_single_connections_are_those_of_their_windows():
    rows = streams.table_of()
    first, last = rows.iloc[0], rows[rows["bytes"].notna()].iloc[0]
    assert first["table"] == pytest.approx(8e-6 * 2.7 * 2**20 / 0.266047)
    assert last["bytes"] * 8e-6 / last["table"] == pytest.approx(10.474, abs=1e-3)  # s; with slow start
    assert (rows["own"] / rows["mbit_per_s"] - 1).abs().median() < 0.07


def test_a_bandwidth_that_one_step_tells_predicts_others():
    slow = 0.6e9  # bytes/s; nominal: 1e9
    measured = [step_of(size=size, bandwidth=1e9, buckets=4) for size in (10**8, 2 * 10**8)]
    measured = [step._replace(seconds=steps.predicted(step._replace(bandwidth=slow), "nccl", 4)) for step in measured]
    [(_, program)] = steps.programs([*measured, step_of(system="DiLoCo")])
    [row] = [row for row in steps.transferred(program) if row["overlaps"]]
    assert row["share"] == pytest.approx(slow / 1e9, abs=2e-3)
    assert row["error"] == pytest.approx(0, abs=1e-3)
