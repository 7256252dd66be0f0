"""Output of network benchmarks: what each reader takes from a small file of each tool, against numbers worked out by hand."""

import json
import math
from typing import Any

import numpy as np
import pytest

from fred.base.errors import FredError
from fred.fitting.communication import fit_network
from fred.fitting.measurement import infer_members, strip_prefixes
from fred.fitting.measurements import read, read_file
from tests.program import fred_command, refusal

SIZES = (1024, 2**20, 2**26)
START = (
    "# nThread 1 nGpus 1 minBytes 8 maxBytes 67108864 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1\n"
)
COLUMNS = (
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
)
UNITS = "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"


def microseconds(members, size):
    """NCCL's time of an allreduce at 20 us and 10 GB/s, by FRED's formula written out, in us."""
    return 1e6 * (min(4, 2 * math.ceil(math.log2(members))) * 2e-5 + 1.011 * 2 * (members - 1) / members * size / 1e10)


def ranks(machines, per_machine=1, group=lambda rank: 0):
    line = "#  Rank {:2d} Group {:2d} Pid {:6d} on {:>10s} device {:2d} [0000:04:00] NVIDIA H100\n"
    all_ranks = range(machines * per_machine)
    return "".join(line.format(rank, group(rank), 9, f"node-{rank // per_machine}", rank % per_machine) for rank in all_ranks)


def row(size, time, members, wrong="0"):
    algorithm = size / time / 1e3
    numbers = f"{time:7.2f}  {algorithm:6.2f}  {algorithm * 2 * (members - 1) / members:6.2f}"
    return f"{size:12d}  {size // 4:12d}     float     sum      -1  {numbers}  {wrong:>6s}  {numbers}       0\n"


def log(members=4, program="all_reduce_perf", per_machine=1):
    named = f"# Collective test starting: {program}\n" if program else ""
    rows = "".join(row(size, microseconds(members, size), members) for size in SIZES)
    end = f"# Out of bounds values : 0 OK\n# Collective test concluded: {program}\n"
    return f"{named}{START}#\n# Using devices\n{ranks(members // per_machine, per_machine)}#\n{COLUMNS}{UNITS}{rows}{end}"


def write(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


def summary(measurements):
    """Library, operation, members, and (size, microseconds) of each."""
    settings = {(measurement.library, measurement.operation, measurement.nodes) for measurement in measurements}
    assert len(settings) == 1
    return *settings.pop(), [(measurement.size, round(1e6 * measurement.seconds, 2)) for measurement in measurements]


EXPECTED = ("nccl", "allreduce", 4, [(size, round(microseconds(4, size), 2)) for size in SIZES])


@pytest.mark.parametrize(
    "prefix",
    [
        "> ",
        "[1,0]<stdout>:",
        "[prterun-node-0-77@1,0]<stdout>: ",
        "0: ",
        " 0: ",
        "node-00: ",
        "[0] ",
        "2026-05-03T10:00:00.12Z ",
        "job-0  | ",
    ],
)
def test_prefixes_of_launchers_change_nothing(prefix, tmp_path):
    text = "".join(prefix + line for line in log().splitlines(keepends=True))
    assert summary(read(write(tmp_path, "a.log", text))) == EXPECTED


def test_json_and_text_of_the_same_run_give_the_same_measurements(tmp_path):
    """The JSON of -J has more digits: they agree after rounding as the text does. A cut loses the rows after it only."""
    devices = [{"rank": rank, "group": 0, "hostname": f"node-{rank}"} for rank in range(4)]
    times = [microseconds(4, size) for size in SIZES]
    results = [
        {"size": size, "out_of_place": {"time": time, "nwrong": 0.0}, "in_place": {"time": 1.0, "nwrong": 0.0}}
        for size, time in zip(SIZES, times, strict=True)
    ]
    head = {
        "version": 1,
        "args": ["/opt/all_reduce_perf", "-J", "a.json"],
        "nccl_version": 22907,
        "config": {"devices": devices},
    }
    text = json.dumps({**head, "results": results})
    assert summary(read(write(tmp_path, "a.json", text))) == EXPECTED
    assert len(read(write(tmp_path, "cut.json", text[:-60]))) == 2
    cpu = text.replace('"time"', '"cpu_time"')
    assert "run it without -C" in refusal("fit-network", write(tmp_path, "cpu.json", cpu))


def test_several_programs_in_one_log_are_those_in_several_files(tmp_path):
    small, large = write(tmp_path, "n4.log", log(4)), write(tmp_path, "n8.log", log(8))
    merged = write(tmp_path, "both.log", log(4) + log(8))
    assert read(merged) == read(small, large)
    gathered = write(tmp_path, "two.log", log(4) + log(4, "all_gather_perf") + log(4, "alltoallv_perf"))
    assert [measurement.operation for measurement in read(gathered)] == ["allreduce"] * 3 + ["allgather"] * 3
    assert "3 rows left out: are of `alltoallv_perf`" in read_file(gathered).sentence


def test_several_files_tell_the_algorithms_of_allreduces_apart(tmp_path):
    paths = [write(tmp_path, f"n{members}.log", log(members)) for members in (2, 4)]
    fitted = fit_network(read(*paths))
    assert fitted.collective == "nccl" and set(fitted.algorithm_errors) >= {"nccl", "ring", "tree"}
    assert (fitted.latency, fitted.bandwidth) == pytest.approx((2e-5, 1e10), rel=0.01)
    out = fred_command("fit-network", *paths).out
    assert "n4.log, nccl-tests: allreduce, 4 members on 4 machines, 3 times, 1 KiB to 64 MiB" in out


def test_ranks_that_share_a_machine_are_members_and_are_said_to_be(tmp_path):
    path, out = write(tmp_path, "a.log", log(16, per_machine=8)), tmp_path / "network.yaml"
    output = fred_command("fit-network", path, "--out", out).out
    assert "16 ranks on 2 machines: each rank is a member" in output
    assert "mpirun -np 2 -N 1 all_reduce_perf -b 8 -e 1G -f 2 -g 1" in output
    assert "with 8 ranks on each machine" in out.read_text()
    other = write(tmp_path, "n4.log", log(4))
    assert "ranks per machine differ" in refusal("fit-network", path, other)


def test_members_of_a_split_are_the_ranks_of_one_group(tmp_path):
    """NCCL_TESTS_SPLIT="MOD 8": eight operations at once, each with one rank on each machine."""
    text = log(2).replace(ranks(2), ranks(2, 8, group=lambda rank: rank % 8))
    assert {(measurement.nodes, measurement.machines) for measurement in read(write(tmp_path, "a.log", text))} == {(2, 2)}


def test_copies_with_several_ranks_each_are_refused_too(tmp_path):
    """Two machines with two ranks each, built without MPI: ranks 0 and 1 are there twice."""
    text = START * 2 + ranks(1, 2) * 2 + COLUMNS + "".join(row(size, microseconds(2, size), 2) for size in SIZES)
    assert "same numbers" in refusal("fit-network", write(tmp_path, "all_reduce.log", text))


@pytest.mark.parametrize("copies", [1, 2])
def test_processes_that_ran_alone_are_refused_with_the_way_to_build_them(copies, tmp_path):
    text = START * copies + ranks(1) * copies + COLUMNS * copies + row(1024, 6.0, 1) * copies
    error = refusal("fit-network", write(tmp_path, "a.log", text))
    assert "ran alone" in error and "MPI=1" in error and "mpirun -np 2" in error


def test_wrong_and_cut_rows_are_left_out_and_counted(tmp_path):
    rows = [row(size, microseconds(4, size), 4, "12" if size == 2**20 else "0") for size in SIZES]
    text = f"# all_reduce_perf\n{START}{ranks(4)}{COLUMNS}{UNITS}{rows[0]}{rows[1]}{rows[2]}{row(0, 1.0, 4)}{rows[0][:58]}"
    file = read_file(write(tmp_path, "a.log", text))
    assert [measurement.size for measurement in file.measurements] == [1024, 2**26]
    assert file.skipped == {"had wrong results (#wrong)": 1, "had size 0": 1, "were cut off": 1}
    assert "1 row left out: had wrong results" in file.sentence


def test_per_iteration_columns_and_the_format_of_2019_are_read(tmp_path):
    added = COLUMNS.replace("#wrong", "#wrong    i_min    i_max    i_p99    i_cv%")
    rows = "".join(
        row(size, microseconds(4, size), 4).replace("       0  ", "       0  1.0 2.0 2.0 3.0  ", 1) for size in SIZES
    )
    assert summary(read(write(tmp_path, "a.log", f"# all_reduce_perf\n{START}{ranks(4)}{added}{rows}"))) == EXPECTED
    old = "".join(f"#   Rank  {rank} Pid     26 on worker-{rank} device  0 [0x10] A100\n" for rank in range(4))
    columns = "#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error\n"
    numbers = {size: f"{microseconds(4, size):.2f} {size / microseconds(4, size) / 1e3:.2f} 1" for size in SIZES}
    rows = "".join(f"{size} {size // 4} float sum {numbers[size]} 2e-07 9 1 1 1e-07\n" for size in SIZES)
    assert summary(read(write(tmp_path, "all_reduce.log", START + old + columns + rows))) == EXPECTED
    blank = rows.replace("float sum", "float    ")  # as in alltoall_perf
    assert summary(read(write(tmp_path, "alltoall.log", START + old + columns + blank)))[3] == EXPECTED[3]
    with pytest.raises(FredError, match="`algbw` is not size / `time`"):
        read(write(tmp_path, "all_reduce.log", START + old + columns.replace("time   algbw", "busbw   time") + rows))


def test_members_follow_from_bandwidths_if_the_head_of_a_log_is_missing(tmp_path):
    rows = "".join(row(size, microseconds(4, size), 4) for size in SIZES)
    assert summary(read(write(tmp_path, "allreduce.log", rows))) == EXPECTED
    elided = "".join(ranks(4).splitlines(keepends=True)[place] for place in (0, 3))
    measurements = read(write(tmp_path, "elided.log", log().replace(ranks(4), elided)))
    assert {(measurement.nodes, measurement.machines) for measurement in measurements} == {(4, 0)}
    for members in range(2, 40):
        factor = 2 * (members - 1) / members
        assert infer_members("allreduce", [(f"{9.0:.4f}", f"{9 * factor:.4f}")]) == members
    assert infer_members("allreduce", [("0.01", "0.02")]) == 0  # several numbers print so


def test_rccl_records_in_json_and_csv_give_what_its_text_does(tmp_path):
    records = [
        {"numCycle": 0, "name": "AllReduce", "nodes": 4, "ranks": 4, "ranksPerNode": 1, "gpusPerRank": 1, "size": size}
        | {
            "type": "float",
            "redop": "sum",
            "inPlace": inside,
            "time": microseconds(4, size) + inside,
            "algBw": 1,
            "busBw": 1,
            "wrong": "0",
        }
        for size in SIZES
        for inside in (0, 1)
    ]
    table = [",".join(records[0]), *(",".join(map(str, record.values())) for record in records)]
    for name, text in (("a.json", json.dumps(records)), ("a.csv", "\n".join(table)), ("a.log", log())):
        assert summary(read(write(tmp_path, name, text))) == EXPECTED, name


def osu(title, rows, columns="# Size       Avg Latency(us)"):
    return f"# OSU MPI {title} Test v7.3\n# Datatype: MPI_CHAR.\n{columns}\n{rows}"


def test_osu_latencies_are_read_and_parts_are_summed(tmp_path):
    """The first time is the mean with -f. An allgather of 1,024 bytes from each of 4 has a result of 4,096 bytes."""
    rows = "1024       20.50     18.00     23.00        1000\n2048       21.00     18.00     23.00        1000\n"
    columns = "# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations"
    reduced = write(tmp_path, "osu-np8.txt", osu("Allreduce Latency", rows, columns))
    assert summary(read(reduced)) == ("textbook", "allreduce", 8, [(1024, 20.5), (2048, 21.0)])
    launched = "mpirun -N 1 -np 4 osu_allgather\n" + osu("Allgather Latency", "1024       9.00\n")
    assert summary(read(write(tmp_path, "a.txt", launched))) == ("textbook", "allgather", 4, [(4096, 9.0)])
    pair = osu("Latency", "8       1.50      Pass\n16       1.60      Fail\n", "# Size          Latency (us)    Validation")
    assert summary(read(write(tmp_path, "a.txt", pair))) == ("textbook", "point-to-point", 2, [(8, 1.5)])
    rates = osu("Bandwidth", "8      1.50\n", "# Size      Bandwidth (MB/s)")
    assert "run instead: mpirun -np 2 -N 1 osu_latency" in refusal("fit-network", write(tmp_path, "bw.txt", rates))


def test_a_number_of_members_that_is_missing_is_asked_for_with_a_command_that_works(tmp_path):
    rows = "".join(f"{size}      {20 + 1.5 * size / 1e4:.2f}\n" for size in SIZES)
    path = write(tmp_path, "osu_allreduce_4.txt", osu("Allreduce Latency", rows))
    error = refusal("fit-network", path)
    assert error.strip().endswith(f"fred fit-network {path} --values nodes=4")
    assert "4 members" in fred_command("fit-network", path, "--values", "nodes=4").out


def test_mpi_allreduces_are_fitted_with_textbook_algorithms(tmp_path):
    """Rabenseifner's algorithm: 2 log2 n latencies, 2 (n - 1) / n of the model."""
    times = {
        members: "".join(
            f"{size}   {1e6 * (2 * math.log2(members) * 1e-5 + 2 * (members - 1) / members * size / 1e9):.2f}\n"
            for size in SIZES
        )
        for members in (2, 8)
    }
    paths = [write(tmp_path, f"np{members}.txt", osu("Allreduce Latency", rows)) for members, rows in times.items()]
    fitted = fit_network(read(*paths))
    assert fitted.collective == "rabenseifner"
    assert (fitted.latency, fitted.bandwidth) == pytest.approx((1e-5, 1e9), rel=0.01)
    assert np.abs(fitted.errors["allreduce"]).max() < 0.01


def test_a_table_with_bars_between_its_cells_has_no_prefixes(tmp_path):
    """Ascend's HCCL test prints such a table; docker compose writes a name and one bar before each line."""
    head = "data_size(Bytes): |   avg_time(us): | alg_bandwidth(GB/s): | check_result:\n"
    text = head + "".join(f"{size:<18d}|{size / 1e3:11.2f}     |{1.0:14.5f}       | success\n" for size in SIZES)
    path = write(tmp_path, "nccl-allreduce-np8.txt", text)
    assert summary(read(path))[-1] == [(size, round(size / 1e3, 2)) for size in SIZES]
    assert strip_prefixes("worker-1  | # nThread 1") == "# nThread 1"


def test_times_between_two_members_tell_the_algorithm_of_one_number_of_members(tmp_path):
    """A ring of 8: 14 messages of an eighth."""
    rows = [
        "".join(f"{size}   {1e6 * (count * 2e-6 + volume * size / 1e9):.3f}\n" for size in SIZES)
        for count, volume in ((1, 1), (14, 1.75))
    ]
    pair = write(tmp_path, "pair.txt", osu("Latency", rows[0]))
    reduced = write(tmp_path, "np8.txt", osu("Allreduce Latency", rows[1]))
    assert fit_network(read(reduced)).algorithm_errors == {}
    fitted = fit_network(read(pair, reduced))
    assert fitted.collective == "ring"
    assert (fitted.latency, fitted.bandwidth) == pytest.approx((2e-6, 1e9), rel=0.01)


def test_imb_has_the_time_of_the_slowest_and_all_numbers_of_processes(tmp_path):
    head = "# Benchmarking {}\n# #processes = {}\n#------\n       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n"
    rows = "            0         1000         0.03         0.03         0.03\n         1024         1000         8.73        20.20        14.63\n"
    path = write(tmp_path, "imb.txt", head.format("Allreduce", 2) + rows + head.format("Allgather", 4) + rows)
    rows_read = [
        (measurement.operation, measurement.nodes, measurement.size, round(1e6 * measurement.seconds, 2))
        for measurement in read(path)
    ]
    assert rows_read == [("allreduce", 2, 1024, 20.2), ("allgather", 4, 4096, 20.2)]
    ccl = (
        "# Benchmarking: allreduce\n# #processes: 2\n  #bytes  #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]  stddev[%]\n"
    )
    ccl += "     1024           16         9.10        12.25        10.60       6.1\n"
    assert summary(read(write(tmp_path, "ccl.txt", ccl))) == ("textbook", "allreduce", 2, [(1024, 12.25)])
    pair = "# Benchmarking PingPong\n# #processes = 2\n       #bytes #repetitions      t[usec]   Mbytes/sec\n 8         1000         1.72         4.64\n"
    assert summary(read(write(tmp_path, "pair.txt", pair))) == ("textbook", "point-to-point", 2, [(8, 1.72)])


def test_ds_bench_has_exact_sizes_and_units_of_its_rows(tmp_path):
    """1.33 KB are 341 numbers of 4 bytes. With --raw, sizes are bytes and times microseconds."""
    title = "---- Performance of {} on 4 devices ------\nSize (Bytes)   Description   Duration   Throughput (Gbps)   BusBW (Gbps)\n-----\n"
    rows = "1.33 KB              341x4                     124.787 us           0.131                0.115\n"
    rows += "8.0 MB               2097152x4                 1.439 ms             93.253               81.597\n"
    text = title.format("all_reduce") + rows
    prefixed = "".join(f"node-00: {line}\n" for line in text.splitlines()) + "node-01: [INFO] Process 41 exits successfully.\n"
    expected = ("nccl", "allreduce", 4, [(1364, 124.79), (2**23, 1439.0)])
    assert summary(read(write(tmp_path, "a.log", prefixed))) == expected
    raw = (
        title.format("all_gather")
        + "1364                 341x4                     124.787              0.131                0.115\n"
    )
    assert summary(read(write(tmp_path, "raw.log", raw))) == ("nccl", "allgather", 4, [(4 * 1364, 124.79)])


def test_the_summary_of_a_training_is_refused_because_it_contains_waiting(tmp_path):
    text = "Comm. Op            Message Size        Count               Total Latency(ms)   Avg Latency(ms)     tput_avg (Gbps)\nbroadcast\n"
    logged = "[2026-02-25 10:11:12,123] [INFO] [logging.py:69:log_dist] [Rank 0] rank=0 | comm op: broadcast | time (ms): 9.46 | msg size: 2 MB"
    for name, log in (("a.log", text), ("b.log", f"[INFO] [utils.py:50:print_rank_0] {text}"), ("c.log", logged)):
        error = refusal("fit-network", write(tmp_path, name, log))
        assert "wait for the slowest" in error and "ds_bench --scan" in error


NCCOM = "     size(B)    count(elems)     type    time:avg(us)    algbw(GB/s)    busbw(GB/s)\n"


def test_nccom_has_its_ranks_in_the_command_or_in_the_bandwidths(tmp_path):
    rows = "        1024            1024    uint8          124.45           0.01           0.01\n"
    rows += "   134217728       134217728    uint8        21003.78           6.39          11.18\nAvg bus bandwidth:      6.1\tGB/s\n"
    expected = [(1024, 124.45), (2**27, 21003.78)]
    assert summary(read(write(tmp_path, "a.txt", NCCOM + rows))) == ("textbook", "allreduce", 8, expected)
    command = "$ nccom-test -r 64 -N 2 -d fp32 allg --hosts a b\n"
    gathered = read(write(tmp_path, "b.txt", command + NCCOM + rows))
    assert summary(gathered) == ("textbook", "allgather", 64, expected) and gathered[0].machines == 2
    failed = read_file(
        write(tmp_path, "allr.txt", NCCOM + rows + "    33554432    Failure running neuron-bench - log file a b\n")
    )
    assert failed.skipped == {"failed": 1} and failed.measurements[0].nodes == 8
    record = {"size(B)": 1024, "count(elems)": 1024, "time:avg(us)": 124.45, "algbw(GB/s)": 4.0004, "busbw(GB/s)": 7.0007}
    assert summary(read(write(tmp_path, "c.json", json.dumps({"results": [record]})))) == (
        "textbook",
        "allreduce",
        8,
        expected[:1],
    )


def test_iperf_gives_the_rate_of_all_streams_and_half_the_shortest_round_trip(tmp_path):
    """1.25e9 bytes/s and 100 us."""
    end: dict[str, Any] = {"streams": [{"sender": {"min_rtt": 200, "mean_rtt": 900}}, {"sender": {"min_rtt": 220}}]}
    end |= {"sum_received": {"seconds": 10.0, "bits_per_second": 1e10}}
    report: dict[str, Any] = {"start": {"test_start": {"protocol": "TCP"}}, "end": end}
    path = write(tmp_path, "iperf.json", json.dumps(report))
    fitted = fit_network(read(path))
    assert (fitted.latency, fitted.bandwidth) == pytest.approx((1e-4, 1.25e9), rel=1e-4)
    stream = "\n".join(json.dumps({"event": name, "data": data}) for name, data in report.items())
    assert read(write(tmp_path, "stream.json", stream)) == read(path)
    text = "[ ID] Interval           Transfer     Bitrate         Retr\n[  5]   0.00-10.00  sec  9.0 GBytes  8.0 Gbits/sec    0    sender\n"
    text += "[SUM]   0.00-10.00  sec  12.0 GBytes  10.1 Gbits/sec    0    sender\n[SUM]   0.00-10.00  sec  11.6 GBytes  10.0 Gbits/sec   receiver\n"
    path = write(tmp_path, "iperf.txt", text)
    assert "iperf3 -c HOST -J" in refusal("fit-network", path)
    (measurement,) = read_file(path, values={"delay_ms": "0.1"}).measurements
    assert fit_network([measurement]).bandwidth == pytest.approx(1.25e9, rel=1e-4)
    report["start"]["test_start"]["protocol"] = "UDP"
    assert "run it without -u" in refusal("fit-network", write(tmp_path, "udp.json", json.dumps(report)))


def test_perftest_latencies_are_read_and_rates_are_not(tmp_path):
    head = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]\n"
    text = f"      RDMA_Write Latency Test\n{head} 2       1000          0.81           2.58         0.85     	       0.86        	0.06   		0.89\n"
    assert summary(read(write(tmp_path, "lat.txt", text))) == ("textbook", "point-to-point", 2, [(2, 0.86)])
    rates = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n 65536      5000      11500.13      11499.96    0.183\n"
    assert "ib_write_lat -a" in refusal("fit-network", write(tmp_path, "bw.txt", rates))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "backend,collective,world_size,size_mb,time_ms,algbw_gbps\nnccl,all_reduce,4,1,2.5,1\n"),
        ("nccl-allreduce-np4.csv", "size (bytes),iterations,time (seconds)\n1048576,9,0.0025\n"),
        ("nccl-allreduce-np4.csv", "size,time\n(KB),(ms)\n1024,2.5\n"),
        ("a.tsv", "Collective\tRanks\tMessage size [KiB]\tMedian time [us]\tP99 [us]\tLibrary\nAllReduce\t4\t1024\t2500\t1\tNCCL\n"),
        ("nccl.csv", "op;message size;avg latency;nodes\nall_reduce;1 MiB;2500 us;4\n"),
        ("a.txt", "perf test\n  size(B)   count  op   time(us)  busbw(GB/s)  backend  primitive  ranks\n1048576  2  sum  2500  1  nccl  allreduce  4\n"),
        ("a.md", "| payload | algbw | ranks | lib | coll |\n| --- | ---: | --- | --- | --- |\n| 1MB | 0.4194304GBps | 4 | rccl | all_reduce |\n"),
        ("a.json", '{"data": [{"num_ranks": 4, "op": "AllReduce", "backend": "nccl", "size_bytes": 1048576, "avg_time_us": 2500}]}'),
        ("a.jsonl", '{"nodes": 4, "operation": "allreduce", "library": "nccl", "megabytes": 1, "seconds": 0.0025}\n'),
        ("a.csv", "lib,op,ranks,size_mb,busbw (GB/s)\nnccl,all_reduce,4,1,0.6291456\n"),
        ("nccl-allreduce-np4.txt", "\tRES\tsize (B)\t\t elements\t Latency(us):p50\tp99\t\tp95\t algBW(GB/s)\n\tx\t1048576\t9\t2500\t9\t9\t0.000\n"),
        ("nccl-allreduce-np4.csv", "bytes,time_ms\n1048576,2.5\n2048,-1\n1024,nan\n512,\n"),
        ("a.csv", "library,operation,nodes,gpus_per_node,bytes,milliseconds\nnccl,allreduce,2,2,1048576,2.5\n"),
    ],
)  # fmt: skip
def test_tables_of_other_words_and_units_are_read(name, text, tmp_path):
    assert summary(read(write(tmp_path, name, text))) == ("nccl", "allreduce", 4, [(2**20, 2500.0)])


def test_columns_of_unknown_names_are_asked_for_with_a_command_that_works(tmp_path):
    path = write(tmp_path, "a.csv", "bench,sz,took\n" + "".join(f"x,{size},{microseconds(8, size) / 1e3}\n" for size in SIZES))
    error = refusal("fit-network", path)
    command = f"fred fit-network {path} --columns bytes=sz,milliseconds=took --values library=nccl,operation=allreduce,nodes=8"
    assert error.strip().endswith(command)
    assert "8 members" in fred_command(*command.split()[1:]).out
    unit = write(
        tmp_path, "nccl-allreduce-np8.csv", "bytes,time\n" + "".join(f"{size},{microseconds(8, size)}\n" for size in SIZES)
    )
    assert f"fred fit-network {unit} --columns microseconds=time" in refusal("fit-network", unit)
    assert "3 of 3" in fred_command("fit-network", unit, "--columns", "microseconds=time").out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("10:00 INFO step 1, loss 2.31\n", "no table, nor a log that FRED knows"),
        ("iteration,worker,seconds\n0,0,1\n", "`fred fit"),
        ("bytes,seconds,nodes\n8,1,1\n", "`nodes` is `1`"),
        ("bytes,seconds,nodes,sorce\n8,1,2,a\n", "did you mean `source`"),
        (
            "Recv  Message  Elapsed\nSize  Size  Time\nbytes  bytes  secs.\n\n131072  16384  10.00\n",
            "alone goes into the scenario",
        ),
        ("PING b (10.0.0.2) 56(84) bytes of data.\n64 bytes from b: time=0.1 ms\n", "alone goes into the scenario"),
        ("size(B)  time(us)  nodes\n8  5  2\n16  6  2  9\n", ":3: 4 cells below 3 names"),
        ("bytes,time_ms,time_us,nodes\n8,1,2,2\n", "--columns milliseconds=time_ms"),
        ("bytes,time_ms,nodes,world_size\n8,1,2,16\n", "--columns nodes=world_size"),
    ],
)
def test_what_is_no_table_of_times_is_refused_without_showing_a_line_as_columns(text, message, tmp_path):
    error = refusal("fit-network", write(tmp_path, "nccl-allreduce.csv", text))
    assert message in error and "columns are" not in error


def test_given_values_that_are_unknown_or_contradict_the_file_are_refused(tmp_path):
    path = write(tmp_path, "a.log", log())
    assert "has 4 members; leave it out" in refusal("fit-network", path, "--values", "nodes=8")
    assert "has `all_reduce_perf`; leave it out" in refusal("fit-network", path, "--values", "operation=broadcast")
    assert "unknown; did you mean `nodes`?" in refusal("fit-network", path, "--values", "node=8")
    with pytest.raises(FredError, match="whole number from 2 on"):
        read_file(path, values={"nodes": "1.5"})


def test_commas_between_semicolons_stand_before_decimals_or_are_refused(tmp_path):
    text = "library;operation;nodes;bytes;microseconds\nnccl;allreduce;2;1024;1,234\nnccl;allreduce;2;2048;{}\n"
    seconds = [measurement.seconds for measurement in read(write(tmp_path, "a.csv", text.format("0,987")))]
    assert seconds == pytest.approx([1.234e-6, 0.987e-6])
    with pytest.raises(FredError, match=r"b.csv:2: expected a number whose comma is clear.* found '1,234' in `microseconds`"):
        read(write(tmp_path, "b.csv", text.format("987")))


@pytest.mark.parametrize(
    "text",
    [
        "Version,Start_Time,Host,Hop,Ip,Loss%,Avg\nMTR,1620460381,h,1,172.16.2.2,0.00,0.46\nMTR,1620460381,h,2,10.1.1.1,0.00,0.3\n",
        "| ms | Dallas | Tokyo |\n| --- | --- | --- |\n| Dallas | | 143 |\n| Tokyo | 143 | |\n",
        '{"download": 93412345.6, "upload": 11234567.8, "ping": 23.4, "bytes_sent": 14000000}\n',
    ],
)
def test_columns_that_cannot_be_sizes_and_times_are_not_proposed(text, tmp_path):
    error = refusal("fit-network", write(tmp_path, "a.csv", text))
    assert "--columns" not in error and "alone goes into the scenario" in error


def test_numbers_of_elements_are_no_bytes_and_the_command_multiplies_them(tmp_path, monkeypatch):
    path = write(tmp_path, "nccl-allreduce-np4.csv", f"numel,dtype,time_us\n{2**19},torch.bfloat16,2500\n")
    error = refusal("fit-network", path)
    monkeypatch.chdir(tmp_path)
    exec(error.split('python -c "')[1].split('"`')[0], {})
    assert summary(read(tmp_path / "nccl-allreduce-np4-2.csv")) == ("nccl", "allreduce", 4, [(2**20, 2500.0)])
