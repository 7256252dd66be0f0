"""perftest: latencies of ib_write_lat and ib_send_lat, with `-a`.

Source: `perftest_parameters.h` of linux-rdma/perftest. A latency is half a round trip. The programs `*_bw` have many messages
under way, so that their times have no latency, and ib_read_lat includes the request: their rows are left out.
"""

import re
from collections.abc import Iterator

from fred.fitting.benchmark_log import BenchmarkLog
from fred.fitting.measurement import TEXTBOOK, Measurement, Skipped

TOOL = "perftest"
_HEADER = re.compile(r"\s*#bytes\s+#iterations\s+(.*)")
_RUN = "ib_write_lat -a > lat.txt on one machine, and ib_write_lat -a FIRST_MACHINE > lat.txt on the other"


def sniff(head: str, name: str) -> bool:
    """Return True for the output of perftest.

    Args:
        head: text of the file.
        name: name of the file.
    """
    return bool(re.search(r"^\s*#bytes\s+#iterations\s+(t_min\[|BW |t_avg)", head, re.MULTILINE))


def read(log: BenchmarkLog) -> Iterator[Measurement | Skipped]:
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
            columns = ["#bytes", "#iterations", *re.findall(r"[^\s\[]+(?: [^\s\[]+)*\[[^\]]+\]", match[1])]
        elif columns and len(words) > 2 and words[0].isdecimal() and words[1].isdecimal():
            time = next((columns.index(name) for name in ("t_avg[usec]", "t_typical[usec]") if name in columns), 0)
            if not time:
                yield Skipped("are of a bandwidth test, whose times have no latency", _RUN)
            elif "read" in title.lower() or "atomic" in title.lower():
                yield Skipped(f"are of {title}, whose times include the request", _RUN)
            elif len(words) <= time:
                yield Skipped("were cut off")
            else:
                place = f"{log.path}:{number}"
                size, microseconds = log.number(words[0], "#bytes", place), log.number(words[time], columns[time], place)
                yield Measurement(*log.setting(TEXTBOOK, "point-to-point"), size, microseconds * 1e-6)
