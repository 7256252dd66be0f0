"""Measured times of communication: read from the logs of benchmarks and from tables, checked, and divided into settings.

`FORMATS` are the formats in the order in which they are tried. A new one is a `BenchmarkFormat` in `formats/` and a line here.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fred.base.errors import FredError, listed
from fred.components.registry import nearest
from fred.fitting.formats import accelerators, hosts, measurement_table
from fred.fitting.measurement import VALUES, BenchmarkLog, Measurement, Skipped, strip_prefixes
from fred.tables.content import read_content

FORMATS = (
    accelerators.NCCL_TESTS,
    accelerators.RCCL_TESTS,
    hosts.OSU,
    hosts.IMB,
    accelerators.DS_BENCH,
    accelerators.NCCOM,
    hosts.IPERF,
    hosts.PERFTEST,
)
_TABLE = measurement_table.TABLE


@dataclass(frozen=True)
class MeasuredFile:
    """The measurements in a file.

    Args:
        path: the file.
        tool: name of the tool whose output it is, or `table`.
        measurements: its measurements, in order.
        skipped: number of rows left out, by reason.
    """

    path: Path
    tool: str
    measurements: tuple[Measurement, ...]
    skipped: Mapping[str, int]

    @property
    def sentence(self) -> str:
        """Return a summary: file, tool, operations, members, sizes, and rows left out.

        >>> rows = tuple(Measurement("nccl", "allreduce", 4, size, 0.1, machines=4) for size in (1024, 2**27))
        >>> MeasuredFile(Path("a.log"), "nccl-tests", rows, {"had size 0": 1}).sentence
        'read: a.log, nccl-tests: allreduce, 4 members on 4 machines, 2 times, 1 KiB to 128 MiB; 1 row left out: had size 0'
        """
        sizes = [measurement.size for measurement in self.measurements]
        operations = list(dict.fromkeys(measurement.operation for measurement in self.measurements))
        members = sorted({measurement.nodes for measurement in self.measurements})
        machines = sorted({measurement.machines for measurement in self.measurements if measurement.machines})
        place = f" on {listed([*map(str, machines)])} machine{'s' * (machines != [1])}" if machines else ""
        rows = "".join(f"; {n} row{'s' * (n > 1)} left out: {why}" for why, n in self.skipped.items())
        span = (
            format_bytes(min(sizes))
            if min(sizes) == max(sizes)
            else f"{format_bytes(min(sizes))} to {format_bytes(max(sizes))}"
        )
        times = f"{len(sizes)} time{'s' * (len(sizes) > 1)}"
        summary = f"{self.tool}: {listed(operations)}, {listed([*map(str, members)])} members{place}"
        return f"read: {self.path}, {summary}, {times}, {span}{rows}"


def read(*paths: Path) -> tuple[Measurement, ...]:
    """Return the measurements in all files, in order.

    Args:
        paths: logs of benchmarks, or tables.

    Raises FredError as `read_file` does.
    """
    return tuple(measurement for path in paths for measurement in read_file(path).measurements)


def read_file(path: Path, columns: Mapping[str, str] | None = None, values: Mapping[str, str] | None = None) -> MeasuredFile:
    """Return the measurements in a file, and the number of rows left out.

    Args:
        path: log of a benchmark, or table.
        columns: columns of a table that is not recognised, by FRED's names.
        values: values that the file does not have, by FRED's names: `nodes`, `operation`, `library`, `delay_ms`.

    Raises FredError for a file that is neither, and for a column, library, operation or number that is missing or unknown.
    """
    values = dict(values or {})
    for name in values:
        if name not in VALUES:
            raise FredError(
                f"--values {name}={values[name]}: unknown{nearest(name, VALUES)}; expected some of {listed(VALUES)}"
            )
    log = BenchmarkLog(path, strip_prefixes(read_content(path).text), values, dict(columns or {}))
    matching = [] if columns else [candidate for candidate in FORMATS if candidate.sniff(log.text, path.name)]
    if len(matching) > 1:
        raise FredError(
            f"{path}: the output of {' and '.join(candidate.tool for candidate in matching)}; put each into a file of its own"
        )
    form = (matching or [_TABLE])[0]
    rows = list(form.read(log))
    measurements = tuple(_complete(row, log) for row in rows if isinstance(row, Measurement))
    skipped = [row for row in rows if isinstance(row, Skipped)]
    if not measurements:
        _refuse_empty(path, form.tool, skipped)
    return MeasuredFile(path, form.tool, measurements, Counter(row.reason for row in skipped))


def _refuse_empty(path: Path, tool: str, skipped: list[Skipped]) -> None:
    """Raise FredError for a file without a measurement, with the reason of its rows."""
    if not skipped:
        expected = (
            "rows of a table" if tool == _TABLE.tool else f"a row for each size, as {tool} prints them at the end of a run"
        )
        raise FredError(f"{path}: no measurement; expected {expected}")
    reason, count = Counter(row.reason for row in skipped).most_common(1)[0]
    cure = next((row.cure for row in skipped if row.cure), "")
    raise FredError(f"{path}: no measurement: {count} rows {reason}" + (f"; run instead: {cure}" if cure else ""))


def _complete(measurement: Measurement, log: BenchmarkLog) -> Measurement:
    """Return a measurement with the latency and bandwidth that the command line adds."""

    def convert(*factors: tuple[str, float]) -> float | None:
        """Return the first of these values that the command line has, times its factor to s or bytes/s."""
        values = [(log.values[name], name, factor) for name, factor in factors if name in log.values]
        return next((log.number(text, name, "--values", least=0.0) * factor for text, name, factor in values), None)

    latency, bandwidth = measurement.latency, measurement.bandwidth
    return replace(
        measurement,
        latency=convert(("delay_ms", 1e-3), ("round_trip_ms", 0.5e-3)) if latency is None else latency,
        bandwidth=convert(("gbit_per_s", 1e9 / 8)) if bandwidth is None else bandwidth,
    )


def format_bytes(size: float) -> str:
    """Return a size with its unit.

    Args:
        size: size, bytes.

    >>> format_bytes(1536), format_bytes(2**27)
    ('1.5 KiB', '128 MiB')
    """
    power = max(power for power in range(5) if power == 0 or size >= 1024**power)
    return f"{size / 1024**power:.4g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def list_unknowns(measurements: Sequence[Measurement]) -> list[str]:
    """Return the names of what the measurements leave open, of `latency`, `bandwidth` and `window`.

    Args:
        measurements: measured times or rates.

    >>> list_unknowns([Measurement("nccl", "allreduce", 4, 2**27, 0.329, latency=0.001)])
    ['bandwidth']
    """
    names = [
        name for name in ("latency", "bandwidth") if any(getattr(measurement, name) is None for measurement in measurements)
    ]
    return [*names, "window"] if any(measurement.is_rate for measurement in measurements) else names


def explain_several(measurements: Sequence[Measurement]) -> str:
    """Return why the measurements are not those of one network, or an empty text if they are.

    Args:
        measurements: of any libraries and clusters.

    >>> rows = [Measurement("nccl", "allreduce", 4, 2**27, 0.3, latency=latency) for latency in (0.001, 0.005)]
    >>> explain_several(rows), explain_several(rows[:1])
    ('the measurements differ in delay', '')
    """
    if any(measurement.is_rate for measurement in measurements):
        return "the measurements are rates between regions, not durations"
    if any(measurement.library == "in use" for measurement in measurements):
        return "the measurements are synchronizations of training programs, which do other work at the same time"
    names = {"library": "library", "where": "source", "latency": "delay", "bandwidth": "bandwidth"}
    differences = [name for key, name in names.items() if len({getattr(measurement, key) for measurement in measurements}) > 1]
    return f"the measurements differ in {listed(differences)}" if differences else ""


def require_one_cluster(measurements: Sequence[Measurement]) -> str:
    """Return the library of the measurements.

    Args:
        measurements: of any libraries and clusters.

    Raises FredError if they are not of one library and cluster, or of one size.
    """
    if difference := explain_several(measurements):
        raise FredError(f"{difference}; expected one library and one cluster as it is")
    ranks_per_machine = sorted({row.nodes / row.machines for row in measurements if row.machines})
    if len(ranks_per_machine) > 1:
        numbers = ", ".join(f"{number:g}" for number in ranks_per_machine)
        raise FredError(
            f"ranks per machine differ between the measurements ({numbers}): ranks that "
            "share a machine share its links; fit the files of each by themselves"
        )
    latency_is_known = measurements[0].latency is not None
    if not latency_is_known and (len({measurement.size for measurement in measurements}) < 2 or len(measurements) < 3):
        raise FredError(
            "too few measurements: expected at least 3, of at least 2 sizes, such as with -b 8 -e 1G -f 2 of nccl-tests, "
            "or -a of perftest; with the latency, such as --values delay_ms=0.1, one time of 1 MiB or more is enough"
        )
    return measurements[0].library


def divide_by_settings(measurements: Sequence[Measurement]) -> dict[str, list[str]]:
    """Return divisions of the measurements: by name, the setting of each measurement.

    A fit to all settings but one is judged by its predictions of that one, so a division has two settings or more. Sizes
    divide only if nothing else does.

    Args:
        measurements: of one source.

    >>> rows = [Measurement("nccl", "allreduce", nodes, 2**27, 0.3, latency=0.001) for nodes in (4, 8)]
    >>> divide_by_settings(rows)
    {'number of nodes': ['4 members', '8 members']}
    """
    divisions = {
        "delay and bandwidth": [_describe_link(measurement) for measurement in measurements],
        "number of nodes": [f"{measurement.nodes} members" for measurement in measurements],
    }
    dividing = {name: settings for name, settings in divisions.items() if len(set(settings)) > 1}
    sizes = [format_bytes(measurement.size) for measurement in measurements]
    return dividing or ({"size": sizes} if len(set(sizes)) > 1 else {})


def _describe_link(measurement: Measurement) -> str:
    """Return the delay and the bandwidth of a measurement in words."""
    latency, bandwidth = measurement.latency, measurement.bandwidth
    delay = "delay unknown" if latency is None else f"{1e3 * latency:.6g} ms"
    return f"{delay}, {'bandwidth unknown' if bandwidth is None else f'{8e-9 * bandwidth:.6g} Gbit/s'}"
