"""`fred fit-network` on times of several networks and of servers, against times computed by hand."""

import pandas as pd
import pytest

import fred
from fred.base.errors import FredError
from fred.cluster.bandwidths import Connection
from fred.cluster.collectives import LIBRARIES
from fred.commands.fit_network import select
from fred.fitting.communication import fit_network, judge
from fred.fitting.measurements import read
from tests.program import fred_command, refusal

HEADER = "library,operation,nodes,megabytes,delay_ms,gbit_per_s,seconds\n"
SHAPES = ((1, 5), (10, 1))  # ms, Gbit/s
SIZES = (1, 16, 64)  # MiB


def ring(members, megabytes, delay, gigabits):
    """The time of an MPI allreduce by recursive halving and doubling, among 4 or 8 members: 4 or 6 rounds of latency."""
    rounds = {4: 4, 8: 6}[members]
    return rounds * delay / 1e3 + 2 * (members - 1) / members * megabytes * 2**20 / (gigabits * 1e9 / 8)


def shaped_rows(factors=lambda delay, members: 1.0):
    return "".join(
        f"mpi,allreduce,{members},{size},{delay},{gigabits},{ring(members, size, delay, gigabits) * factors(delay, members)}\n"
        for delay, gigabits in SHAPES
        for members in (4, 8)
        for size in SIZES
    )


def unshaped_rows(delay=2, gigabits=8):
    return "".join(
        f"mpi,allreduce,{members},{size},,,{ring(members, size, delay, gigabits)}\n" for members in (4, 8) for size in SIZES
    )


@pytest.fixture
def write(tmp_path):
    def to_file(rows, name="times.csv", header=HEADER):
        path = tmp_path / name
        path.write_text(header + rows)
        return path

    return to_file


def held_out(judgement):
    return {result.setting: [round(error, 3) for error in result.errors] for result in judgement.held_out()}


def test_latency_and_bandwidth_of_rows_without_them_are_recovered_next_to_given_ones(write):
    [judgement] = judge(read(write(shaped_rows() + unshaped_rows(delay=2, gigabits=8))))
    assert (judgement.unknowns.latency, judgement.unknowns.bandwidth) == pytest.approx((0.002, 1e9), rel=1e-3)
    assert judgement.fitted == "latency 2 ms; bandwidth 8 Gbit/s"
    assert abs(judgement.errors).max() < 1e-3


def test_each_delay_and_number_of_nodes_is_left_out_in_turn(write):
    """Times at 10 ms are 1.25 times as long as they should be, so predictions are 20 % too short, there and nowhere else."""
    [judgement] = judge(read(write(shaped_rows(lambda delay, _: 1.25 if delay == 10 else 1.0) + unshaped_rows())))
    assert held_out(judgement) == {
        "1 ms, 5 Gbit/s": [0.0] * 6,
        "10 ms, 1 Gbit/s": [-0.2] * 6,
        "delay unknown, bandwidth unknown": [0.0] * 6,
        "4 members": [0.0] * 3 + [-0.2] * 3 + [0.0] * 3,
        "8 members": [0.0] * 3 + [-0.2] * 3 + [0.0] * 3,
    }


def test_fit_without_a_setting_does_not_see_the_row_that_contradicts(write):
    """Eight members are twice as slow as four members say: a fit to four predicts half of their times."""
    rows = "".join(
        f"mpi,allreduce,{members},{size},,1,{ring(members, size, 0, 1) * (2 if members == 8 else 1)}\n"
        for members in (4, 8)
        for size in SIZES
    )
    [judgement] = judge(read(write(rows.replace(",,1,", ",0,,"))))
    assert held_out(judgement) == {"4 members": [1.0] * 3, "8 members": [-0.5] * 3}


def test_settings_with_as_many_unknowns_as_times_have_no_held_out_error(write):
    [judgement] = judge(read(write("mpi,allreduce,4,1,,,0.1\nmpi,allreduce,8,64,,,0.9\n")))
    assert not judgement.is_tested
    assert held_out(judgement) == {"4 members": [], "8 members": []}


def test_several_networks_are_judged_by_setting_and_without_a_block(write):
    """At 10 ms, eight members take twice as long as they should: 3 of 12 times are predicted as half."""
    path = write(shaped_rows(lambda delay, members: 2.0 if (delay, members) == (10, 8) else 1.0))
    answer = fred_command("fit-network", path)
    assert answer.code == 0 and "network:\n" not in answer.out
    assert "\n9 of 12 times are predicted within 15 %.\n" in answer.out
    assert "No `network:` block: the measurements differ in delay, bandwidth" in answer.out
    for row, errors in (
        ("textbook allreduce  12     nothing", "0.0% 75% -50%"),
        ("textbook allreduce  10 ms, 1 Gbit/s", "25.0% 50% -50%"),
        ("textbook allreduce  1 ms, 5 Gbit/s", "0.0% 100% +0%"),
    ):
        [line] = [line for line in answer.out.splitlines() if line.startswith(row)]
        assert line.split()[-3:] == errors.split()


def test_the_proposed_choice_of_a_network_writes_its_block(write, tmp_path):
    path, out = write(shaped_rows()), tmp_path / "network.yaml"
    error = refusal("fit-network", path, "--out", out)
    assert "differ in delay, bandwidth" in error and not out.exists()
    command = error[error.index("fred fit-network") :].split()
    assert command[3:5] == ["--only", "delay_ms=1,gbit_per_s=5"]
    answer = fred_command(*command[1:])
    assert "chosen: 6 of 12 times" in answer.out and answer.code == 0
    assert "latency: {name: constant, seconds: 0.001}" in out.read_text() and "bandwidth: 625000000.0" in out.read_text()


def test_rows_of_two_libraries_are_judged_one_by_one_and_selected_by_name(write):
    mpi = unshaped_rows(delay=2, gigabits=8)
    others = "".join(f"gloo,broadcast,4,{size},0,8,{2 * size * 2**20 / 1e9}\n" for size in SIZES)
    path = write(mpi + others)
    assert [judgement.name for judgement in judge(read(path))] == ["textbook allreduce", "gloo broadcast"]
    selected = select(read(path), {"library": "mpi"})
    assert fit_network(selected).bandwidth == pytest.approx(1e9, rel=1e-3)
    assert "library=textbook" in fred_command("fit-network", path).out


def test_choices_that_no_row_has_are_refused_with_those_there_are(write):
    path = write(shaped_rows() + unshaped_rows())
    for choice, message in (
        ("delay_ms=3", "`delay_ms` is 1, 10, unknown"),
        ("delay_ms=1,gbit_per_s=1", "--only gbit_per_s=1: no such row; `gbit_per_s` is 5"),
        ("delay=1", "did you mean `delay_ms`?"),
        ("delay_ms", "expected NAME=VALUE"),
    ):
        assert message in refusal("fit-network", path, "--only", choice)
    assert "chosen: 6 of 18" in fred_command("fit-network", path, "--only", "delay_ms=unknown").out


def test_without_a_network_of_enough_times_no_choice_is_proposed(write, tmp_path):
    path = write("mpi,allreduce,4,1,,,0.1\ngloo,allreduce,8,64,,,0.9\n")
    answer = fred_command("fit-network", path)
    assert "As many numbers are fitted as there are times" in answer.out and "--only" not in answer.out
    assert "without it, FRED prints the errors" in refusal("fit-network", path, "--out", tmp_path / "network.yaml")


def test_many_settings_have_one_row(write):
    rows = "".join(f"a,b,{delay},{8e-6 * min(1e8, 1e7 / delay * 1e3)}\n" for delay in range(10, 210, 10))
    path = write(rows, header="sender,receiver,round_trip_ms,mbit_per_s\n")
    [judgement] = judge(read(path))
    assert (judgement.unknowns.bandwidth, judgement.unknowns.window) == pytest.approx((1e8, 1e7), rel=1e-3)
    answer = fred_command("fit-network", path)
    assert "rates between regions, not durations" in answer.out
    assert "20 settings in turn: delay and bandwidth" in answer.out


def test_errors_of_all_times_are_written_with_a_figure(write, tmp_path):
    path, errors = write(shaped_rows(lambda delay, _: 2.0 if delay == 10 else 1.0)), tmp_path / "errors.csv"
    assert fred_command("fit-network", path, "--errors", errors, "--quiet").out == f"{errors}\n"
    table = pd.read_csv(errors)
    assert table["error"].round(3).tolist() == [0.0] * 6 + [-0.5] * 6
    assert table["measured"].tolist() == pytest.approx([row.seconds for row in read(path)], rel=1e-5)
    assert "<svg" in errors.with_suffix(".svg").read_text()
    network = fred_command("fit-network", path, "--only", "delay_ms=1", "--errors", errors)
    assert "network:" in network.out and len(pd.read_csv(errors)) == 6
    assert "ends in .csv" in refusal("fit-network", path, "--errors", tmp_path / "errors.svg")
    other = write("x\n", "other.csv", "")
    assert "is there already" in refusal("fit-network", path, "--errors", other)


@pytest.mark.parametrize("workers", [2, 5])
def test_one_server_takes_as_long_as_a_simulated_round_of_synchronous_sgd(workers):
    def end(updates):
        network = {"latency": {"name": "constant", "seconds": 0.01}, "server_bandwidth": 1e8, "sharing": "fair"}
        scenario = fred.scenario(
            cluster={
                "workers": workers,
                "compute": {"name": "constant", "seconds": 1.0},
                "network": {**network, "message_bytes": 10_000_000},
            },
            algorithm={"name": "ssgd", "learning_rate": 0.1},
            stop={"updates": updates},
        )
        return fred.run(scenario).summary["virtual_seconds"][0]

    forms, connection = LIBRARIES["textbook"], Connection(latency=0.01, bandwidth=1e8)
    seconds = forms["one-server"](workers).seconds(10_000_000, connection)
    assert (end(3) - end(1)) / 2 - 1.0 == pytest.approx(seconds, abs=1e-9)
    assert forms["worker-as-server"](workers + 1).seconds(10_000_000, connection) == seconds


@pytest.mark.parametrize("column", ["operation", "how"])
def test_times_of_one_server_give_the_network_that_made_them(column, write):
    """Two latencies of 10 ms, and all uploads and downloads of n workers, or of n - 1 if one is the server, at 100 MB/s."""
    rows = "".join(
        f"{name},{nodes},{size},{0.02 + 2 * (nodes - excess) * size / 1e8}\n"
        for name, excess in (("one-server", 0), ("worker-as-server", 1))
        for nodes in (4, 8)
        for size in (10_000, 1_000_000, 100_000_000)
    )
    path = write(rows, header=f"{column},nodes,bytes,seconds\n")
    fitted = fit_network(read(path))
    assert (fitted.latency, fitted.bandwidth) == pytest.approx((0.01, 1e8), rel=1e-3)
    assert fitted.options["server_bandwidth"] == pytest.approx(1e8, rel=1e-3)
    assert "12 of 12 times" in fred_command("fit-network", path).out


def test_servers_need_no_library_and_sharded_ones_are_judged_as_in_use(write):
    """1.31 times the bytes, 2 (n - 1) / n of the model, and 3 latencies for each other member."""
    rows = "".join(f"gloo,sharded-servers,4,1000000,10,0.8,{0.01 * 3 * 3 + 1.31 * 1.5 * 0.01 * factor}\n" for factor in (1, 1))
    path = write(rows, header="library,operation,nodes,bytes,delay_ms,gbit_per_s,seconds\n")
    [judgement] = judge(read(path))
    assert judgement.name == "in use sharded-servers" and abs(judgement.errors).max() < 1e-6
    with pytest.raises(FredError, match="synchronizations of training programs"):
        fit_network(read(path))


def test_unknown_ways_to_synchronize_are_refused_with_those_there_are(write):
    path = write("servers,4,1,1\n", header="how,nodes,megabytes,seconds\n")
    assert "sharded-servers or one-server or worker-as-server" in refusal("fit-network", path)
    path = write("parameter-server,4,1,1\n", "gloo.csv", header="operation,nodes,megabytes,seconds\n")
    assert "unknown operation `parameter-server`" in refusal("fit-network", path)
