"""Benchmarks of networks between machines: OSU's, Intel's and oneCCL's of MPI, and of one connection iperf and perftest.

OSU micro-benchmarks: latencies of collective operations and of messages, with the options `-f`, `-z` and `-c`.
Source: output of versions 3.8 to 7.5. The log has no number of processes. An allgather, all-to-all, gather or scatter is
measured by the size of each process's part; FRED counts the whole. Bandwidth tests have many messages under way, so that their
times have no latency: their rows are left out.

Intel MPI Benchmarks and oneCCL's benchmark: the output of IMB-MPI1, with all numbers of processes.
Source: output of versions 2018 and 2021, and oneCCL's `examples/benchmark`. The time is that of the slowest process, as in the
tool's own bandwidths. An allgather, alltoall, gather or scatter is measured by the size of each process's part; FRED counts the
whole.

iperf3 and iperf2: the rate of connections between two machines; with `-J`, the round-trip time, too.
Source: `iperf_api.c` of esnet/iperf. The latency is half the shortest round-trip time: the mean contains the wait behind the
test's own packets.

perftest: latencies of ib_write_lat and ib_send_lat, with `-a`.
Source: `perftest_parameters.h` of linux-rdma/perftest. A latency is half a round trip. The programs `*_bw` have many messages
under way, so that their times have no latency, and ib_read_lat includes the request: their rows are left out.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from fred.base.errors import FredError
from fred.fitting.measurement import (
    TEXTBOOK,
    BenchmarkFormat,
    BenchmarkLog,
    Measurement,
    Setting,
    Skipped,
    recognise_operations,
    skip_unknown,
)

_MICROSECONDS = 1e-6
_PARTS = ("allgather", "all-to-all", "gather", "scatter")  # measured by the size of a part
_TITLE = re.compile(r"#\s*OSU (.*?) ?\b(?:Test\b|v\d)")


def sniff_osu(head: str, name: str) -> bool:
    """Return True for the output of these programs.

    Args:
        head: text of the file.
        name: name of the file.
    """
    return bool(re.search(r"^\s*#\s*OSU .*(Test|v\d)", head, re.MULTILINE))


def read_osu(log: BenchmarkLog) -> Iterator[Measurement | Skipped]:
    """Yield the measurements of all programs in a log.

    Args:
        log: the file.

    Raises FredError for a number of members that neither the log nor the command line has.
    """
    title, columns = "", [""]
    setting: Setting | None = None
    for number, line in log.lines():
        words = line.split()
        if match := _TITLE.match(line.strip()):
            title, columns, setting = match[1], [""], None
        elif re.match(r"#\s*Size\b", line.strip()):
            columns = re.split(r"\s{2,}|\t", line.strip().lstrip("# "))
        elif title and words and words[0].isdecimal():
            time_columns = [i for i, name in enumerate(columns) if re.match(r"(avg |overall)?lat", name.lower())]
            operation = _recognise_title(title)
            if not operation or not time_columns:
                yield _skip(title)
            elif len(words) < len(columns):
                yield Skipped("were cut off")
            elif "Fail" in words:
                yield Skipped("failed the validation")
            elif words[0] == "0":
                yield Skipped("had size 0")
            else:
                where = f"{log.path}:{number}"
                library = "nccl" if "NCCL" in title else TEXTBOOK
                if setting is None:
                    processes = 0 if operation == "point-to-point" else log.count_launched(number)
                    setting = log.setting(library, operation, processes, number)
                size = log.number(words[0], "Size", where) * (setting.nodes if operation in _PARTS else 1)
                microseconds = log.number(words[time_columns[0]], columns[time_columns[0]], where)
                yield Measurement(*setting, size, microseconds * _MICROSECONDS)


def _recognise_title(title: str) -> str:
    """Return the operation of a title such as `MPI-CUDA Allreduce Latency`, or an empty text if FRED does not know it."""
    if "Bandwidth" in title or re.search("Non-?blocking|Persistent|Neighbor|Multi", title, re.IGNORECASE):
        return ""
    if re.fullmatch(r"(\S+ )?Latency", title):
        return "point-to-point"
    operations = recognise_operations(title.replace("Personalized", ""))  # All-to-All Personalized Exchange
    return operations[0] if len(operations) == 1 else ""


def _skip(title: str) -> Skipped:
    """Return the reason to leave out a row, with a program to run instead."""
    if "Bandwidth" in title:
        return Skipped(
            "are of a bandwidth test, whose times have no latency", "mpirun -np 2 -N 1 osu_latency > osu_latency.txt"
        )
    return skip_unknown(title, "mpirun -np 4 -N 1 osu_allreduce -f > osu_allreduce-np4.txt")


OSU = BenchmarkFormat("OSU micro-benchmarks", sniff_osu, read_osu)


_IMB_RUN = "mpirun -np 4 -ppn 1 IMB-MPI1 -npmin 4 Allreduce > imb.txt"


def sniff_imb(head: str, name: str) -> bool:
    """Return True for the output of IMB-MPI1.

    Args:
        head: text of the file.
        name: name of the file.
    """
    return "# Benchmarking" in head and "#bytes" in head


def read_imb(log: BenchmarkLog) -> Iterator[Measurement | Skipped]:
    """Yield the measurements of all benchmarks and numbers of processes.

    Args:
        log: the file.

    Raises FredError for a number that is out of range.
    """
    name, processes, columns = "", 0, [""]
    for number, line in log.lines():
        words = line.split()
        if match := re.match(r"\s*#\s*Benchmarking:? (\S+)", line):
            name, processes = match[1], 0
        elif match := re.match(r"\s*#\s*#?processes(?: =|:) (\d{1,9})", line):
            processes = int(match[1])
        elif words and words[0] in ("#bytes", "#") and "#bytes" in line:
            columns = [word for word in words if word != "#"]
        elif name and words and words[0].isdecimal() and processes:
            time_column = next((columns.index(time) for time in ("t_max[usec]", "t[usec]", "avg[usec]") if time in columns), 0)
            operations = recognise_operations(name)
            if len(operations) != 1 or not time_column:
                yield skip_unknown(name, _IMB_RUN)
            elif len(words) < len(columns):
                yield Skipped("were cut off")
            elif words[0] == "0":
                yield Skipped("had size 0")
            elif processes < 2:
                yield Skipped("are of one process")
            else:
                where = f"{log.path}:{number}"
                setting = log.setting(TEXTBOOK, name, processes, number)
                size = log.number(words[0], "#bytes", where) * (processes if operations[0] in _PARTS else 1)
                microseconds = log.number(words[time_column], columns[time_column], where)
                yield Measurement(*setting, size, microseconds * _MICROSECONDS)


IMB = BenchmarkFormat("Intel MPI benchmarks", sniff_imb, read_imb)


_IPERF_RUN = "iperf3 -c HOST -J > iperf.json"
_ROW = re.compile(
    r"\[ *(?P<stream>\d+|SUM)\](?:\[[TR]X-[CS]\])?\s+(?P<begin>[\d.]+)-\s*(?P<end>[\d.]+)\s+sec\s+"
    r".*?(?P<rate>[\d.]+) (?P<prefix>[KMGT]?)(?P<unit>bits|Bytes)/sec(?P<side>.*)"
)
# iperf counts bits in powers of 1000, bytes in powers of 1024.
_BITS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BYTES = {"": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40}


def sniff_iperf(head: str, name: str) -> bool:
    """Return True for the text or the JSON of iperf.

    Args:
        head: text of the file.
        name: name of the file.
    """
    if head.lstrip().startswith("{"):  # iperf2 has no JSON
        return '"bits_per_second"' in head or '"iperf3' in head or '"iperf 3' in head
    return bool(re.search(r"^\[ ?ID\]\s*(?:\[Role\])?\s*Interval\s+Transfer", head, re.MULTILINE))


def read_iperf(log: BenchmarkLog) -> Iterator[Measurement | Skipped]:
    """Yield the rate of all connections of a test together, as the duration of one large message.

    Args:
        log: the file.

    Raises FredError for a test that failed, a rate that was asked for (UDP), and a latency that is not there.
    """
    is_json = log.text.lstrip().startswith("{")
    rate, seconds, latency = _read_iperf_json(log) if is_json else _read_iperf_text(log)
    if latency is None and not {"delay_ms", "round_trip_ms"} & {*log.values}:
        command = "the same command with -J" if not is_json else "the test without -R, on Linux"
        cure = f"run {command}, such as `{_IPERF_RUN}`, or add it, such as {log.command(values='delay_ms=0.1')}"
        raise FredError(f"{log.path}: no round-trip time, so no latency; {cure}")
    size = rate * seconds
    # FRED's messages take their latency and size / rate.
    yield Measurement(*log.setting(TEXTBOOK, "point-to-point"), size, seconds + (latency or 0.0), latency)


def _read_iperf_json(log: BenchmarkLog) -> tuple[float, float, float | None]:
    """Return rate, bytes/s, duration, s, and latency, s, of a JSON file."""
    try:
        report = _report(log.text)
        if "error" in report:
            raise FredError(f"{log.path}: the test failed: {report['error']}; run again: `{_IPERF_RUN}`")
        end = report["end"]
        _check_protocol(log, report.get("start", {}).get("test_start", {}).get("protocol", "TCP"))
        total = end["sum_received"]
        round_trips = [stream.get("sender", {}).get("min_rtt", 0) for stream in end.get("streams", [])]
        numbers = float(total["bits_per_second"]) / 8, float(total["seconds"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise FredError(
            f"{log.path}: no total of the receiver (end.sum_received): the test was cut off; run again: `{_IPERF_RUN}`"
        ) from None
    times = [float(time) for time in round_trips if time]  # us; 0 where the system does not measure it
    rate, seconds = (
        log.number(str(value), name, str(log.path)) for value, name in zip(numbers, ("bits_per_second", "seconds"), strict=True)
    )
    return rate, seconds, min(times) / 2 * _MICROSECONDS if times else None


def _report(text: str) -> dict[str, Any]:
    """Return the report of `-J`, or of the events of `--json-stream`."""
    if not re.match(r'\s*\{\s*"event"', text):
        report: dict[str, Any] = json.loads(text)
        return report
    return {event["event"]: event["data"] for event in map(json.loads, text.strip().splitlines())}


def _read_iperf_text(log: BenchmarkLog) -> tuple[float, float, float | None]:
    """Return rate, bytes/s, and duration, s, of a text; it has no latency."""
    _check_protocol(log, "UDP" if re.search(r"Lost/Total|UDP", log.text) else "TCP")
    rows = [match for _, line in log.lines() if (match := _ROW.match(line))]
    received = [row for row in rows if "receiver" in row["side"]]
    totals = [row for row in received or rows if row["stream"] == "SUM"] or received or rows
    if not totals:
        raise FredError(f"{log.path}: no rate: the test was cut off, or failed; run again: `{_IPERF_RUN}`")
    total = max(totals, key=lambda row: float(row["end"]) - float(row["begin"]))  # the others are of single intervals
    scale = _BITS[total["prefix"]] / 8 if total["unit"] == "bits" else _BYTES[total["prefix"]]
    rate = log.number(total["rate"], "Bitrate", str(log.path)) * scale
    return rate, float(total["end"]) - float(total["begin"]), None


def _check_protocol(log: BenchmarkLog, protocol: str) -> None:
    """Raise FredError for UDP."""
    if protocol.upper() != "TCP":
        raise FredError(
            f"{log.path}: UDP, which sends at the rate that -b asks for (1 Mbit/s), not as fast as the network can; "
            f"run it without -u: `{_IPERF_RUN}`"
        )


IPERF = BenchmarkFormat("iperf3", sniff_iperf, read_iperf)


_HEADER = re.compile(r"\s*#bytes\s+#iterations\s+(.*)")
_COLUMN = re.compile(r"[^\s\[]+(?: [^\s\[]+)*\[[^\]]+\]")  # name with single spaces, and unit: `BW peak[MB/sec]`
_TIME_COLUMNS = ("t_avg[usec]", "t_typical[usec]")  # the first of these counts
_PERFTEST_RUN = "ib_write_lat -a > lat.txt on one machine, and ib_write_lat -a FIRST_MACHINE > lat.txt on the other"


def sniff_perftest(head: str, name: str) -> bool:
    """Return True for the output of perftest.

    Args:
        head: text of the file.
        name: name of the file.
    """
    return bool(re.search(r"^\s*#bytes\s+#iterations\s+(t_min\[|BW |t_avg)", head, re.MULTILINE))


def read_perftest(log: BenchmarkLog) -> Iterator[Measurement | Skipped]:
    """Yield the latencies.

    Args:
        log: the file.

    Raises FredError for a number that is out of range.
    """
    columns: list[str] = []
    title = ""
    for number, line in log.lines():
        words = line.split()
        if match := re.match(r"\s*(.*(?:Latency|BW) Test)", line):
            title = match[1].strip()
        elif match := _HEADER.match(line):
            columns = ["#bytes", "#iterations", *_COLUMN.findall(match[1])]
        elif columns and len(words) > 2 and words[0].isdecimal() and words[1].isdecimal():
            time_column = next((columns.index(name) for name in _TIME_COLUMNS if name in columns), None)
            if time_column is None:
                yield Skipped("are of a bandwidth test, whose times have no latency", _PERFTEST_RUN)
            elif "read" in title.lower() or "atomic" in title.lower():
                yield Skipped(f"are of {title}, whose times include the request", _PERFTEST_RUN)
            elif len(words) <= time_column:
                yield Skipped("were cut off")
            else:
                where = f"{log.path}:{number}"
                size = log.number(words[0], "#bytes", where)
                microseconds = log.number(words[time_column], columns[time_column], where)
                yield Measurement(*log.setting(TEXTBOOK, "point-to-point"), size, microseconds * _MICROSECONDS)


PERFTEST = BenchmarkFormat("perftest", sniff_perftest, read_perftest)
