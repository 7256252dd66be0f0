"""Devices: the speed of each worker and the bandwidth of its link in both directions, from a table or distributions.

Example: half as fast a device as the first, with a slower link; five workers have one of the two each.
    >>> kinds = [{"speed": 1.0, "upload": 1e6, "download": 5e6}, {"speed": 0.5, "upload": 2e5, "download": 1e6}]
    >>> devices = Devices(kinds=kinds)
    >>> devices.speeds(5), devices.bandwidths("upload", 5)
    ([0.5, 1.0, 0.5, 1.0, 0.5], [200000.0, 1000000.0, 200000.0, 1000000.0, 200000.0])
    >>> fast = Devices(speed={"name": "uniform", "low": 1.0, "high": 2.0})
    >>> [round(speed, 2) for speed in fast.speeds(3)], fast.bandwidths("upload", 3)
    ([1.66, 1.11, 1.66], [None, None, None])
"""

import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, model_validator

from fred.base import numerics
from fred.base.errors import FredError, listed
from fred.cluster.bandwidths import Bandwidth, Direction
from fred.cluster.latency import AnyLatency, draw_positive
from fred.components.component import Component, Positive
from fred.components.input_path import InputPath, file_instead
from fred.tables.content import read_content
from fred.tables.quantities import BANDWIDTHS, bandwidth_in, split_name
from fred.tables.small_tables import read_table
from fred.tables.table_commands import rewrite_command
from fred.tables.table_kinds import Column, match_column
from fred.tables.table_kinds import Kind as _Kind

_COLUMNS = ("speed", "upload", "download")
_LEAST_BANDWIDTH = 1000.0  # bytes/s: a table below it has other units, and does not name them
_RATES = ("flops", "gflops", "tflops", "mips", "ghz", "mhz", "second", "throughput", "fps", "tops", "score")
_UNIT = "bytes/s, or with a unit as in `upload_mbps` (bits), `upload_MBps` (bytes) or 5 Mbit/s"
_TABLE = _Kind(
    "devices",
    (
        Column(
            "device", "names", ("name", "model", "kind", "type", "phone", "client", "client_id", "device_id"), required=False
        ),
        Column(
            "speed",
            "numbers",
            ("speedup", "relative_speed", "speed_factor", "compute_speed", "cpu_speed"),
            False,
            "times the usual",
            lambda unit: None,
            {"x": 1.0, "%": 0.01},
            absolute=_RATES,
            is_inverse_of_time=True,
        ),
        *(
            Column(
                way,
                "numbers",
                synonyms,
                False,
                _UNIT,
                bandwidth_in,
                BANDWIDTHS,
            )
            for way, synonyms in (
                ("upload", ("uplink", "upload_bandwidth", "upload_speed", "upload_rate", "uplink_bandwidth", "ul", "up")),
                (
                    "download",
                    ("downlink", "download_bandwidth", "download_speed", "download_rate", "downlink_bandwidth", "dl", "down"),
                ),
            )
        ),
    ),
    "0.5,200000,1000000",
)
_MOST_KINDS = 100_000  # all of them are stored in every manifest


class Kind(Component):
    """One kind of device."""

    speed: Positive = Field(default=1.0, description="factor that divides compute times")
    upload: Bandwidth | None = Field(default=None, description="bandwidth from it, bytes/s; absent: the network's")
    download: Bandwidth | None = Field(default=None, description="bandwidth to it, bytes/s; absent: the network's")


class Devices(Component):
    """The devices of the workers: of `kinds` that a table lists, or with numbers drawn from distributions.

    Collectives among workers with bandwidths of their own need `sharing: fair` in `network`. A file is a table with a row
    for each kind and the columns `speed`, `upload` and `download` (bytes/s, or units as in `upload_mbps`), or some of them; or
    FedScale's device capacities. The draws do not depend on the run's
    seed, so all seeds have the same devices.
    """

    kinds: tuple[Kind, ...] = Field(
        default=(), description="kinds of devices; or give `file`, or distributions", examples=[[{}]]
    )
    file: InputPath | None = Field(default=None, description="table of the kinds, relative to the scenario file")
    assignment: Literal["drawn", "in-order"] = Field(
        default="drawn",
        description="kind of worker i: a random one, or the i-th, where further workers start over with the first",
    )
    speed: AnyLatency | None = Field(default=None, description="distribution of speeds, which divide compute times")
    upload: AnyLatency | None = Field(default=None, description="distribution of bandwidths from workers, bytes/s")
    download: AnyLatency | None = Field(default=None, description="distribution of bandwidths to workers, bytes/s")

    @model_validator(mode="before")
    @classmethod
    def _read_file(cls, options: Any, info: ValidationInfo) -> Any:
        path = file_instead(options, info, "file", "kinds")
        if path is None:
            return options
        try:
            return {"kinds": _read_kinds(path), **{key: value for key, value in options.items() if key != "file"}}
        except FredError as error:
            raise ValueError(str(error)) from error

    @model_validator(mode="after")
    def _check_source(self) -> "Devices":
        distributions = [name for name in _COLUMNS if getattr(self, name) is not None]
        if bool(self.kinds) == bool(distributions):
            raise ValueError(f"expected `kinds`, a `file` of them, or distributions ({listed(_COLUMNS)}); and not both")
        if distributions and self.assignment != "drawn":
            raise ValueError(
                f"`assignment` assigns `kinds`, and `{distributions[0]}` is drawn for each worker: leave `assignment` out"
            )
        if len(self.kinds) > _MOST_KINDS:
            raise ValueError(f"{len(self.kinds):,} kinds of devices; expected at most {_MOST_KINDS:,}")
        return self

    def speeds(self, workers: int) -> list[float]:
        """Return the speed of each worker.

        Args:
            workers: number of workers.
        """
        if self.kinds:
            return [self.kinds[kind].speed for kind in self._kinds_of(workers)]
        return [1.0] * workers if self.speed is None else draw_positive("speed", self.speed, _uniforms("speed", workers))

    def bandwidths(self, way: Direction, workers: int) -> list[float | None]:
        """Return the bandwidth of each worker's link in one direction, bytes/s; None for that of the network.

        Args:
            way: `upload` or `download`.
            workers: number of workers.
        """
        if self.kinds:
            return [getattr(self.kinds[kind], way) for kind in self._kinds_of(workers)]
        law = getattr(self, way)
        return [None] * workers if law is None else [*draw_positive(way, law, _uniforms(way, workers))]

    @property
    def has_bandwidths(self) -> bool:
        """Return True if any link has a bandwidth of its own."""
        return any((self.upload, self.download, *(kind.upload or kind.download for kind in self.kinds)))

    def _kinds_of(self, workers: int) -> NDArray[np.int64]:
        if self.assignment == "in-order":
            return np.arange(workers) % len(self.kinds)
        return (_uniforms("kind", workers) * len(self.kinds)).astype(np.int64)


def _uniforms(quantity: str, workers: int) -> NDArray[np.float64]:
    """Return one draw for each worker; the seed is 0, because all runs have the same devices."""
    return numerics.uniforms(0, f"device {quantity}", 0, 0, workers)


def _read_kinds(path: Path) -> list[dict[str, float]]:
    """Return the options of each kind in a file. Raises FredError."""
    table = read_table(path, _TABLE)
    file, numbers = table.file, table.numbers
    columns = (column.tolist() for column in numbers.values())
    kinds = [dict(zip(numbers, row, strict=True)) for row in zip(*columns, strict=True)]
    for row, options in enumerate(kinds):
        if not all(0 < number < math.inf for number in options.values()):
            values = listed([f"{number:g}" for number in options.values()])
            cure = ""
            if any(map(math.isnan, options.values())):
                cure = f"; fill empty cells, or leave their rows out: {rewrite_command(read_content(path), '.dropna()')}"
            raise FredError(f"{file.describe_row(row)}: expected positive numbers; found {values}{cure}")
    for header in file.header:
        way, _ = match_column(file, header, _TABLE) or ("", 1.0)  # `upload`, `download` or another column
        has_unit = any(bandwidth_in(unit) for _, unit in split_name(header))
        if way in ("upload", "download") and not has_unit and (most := float(numbers[way].max())) < _LEAST_BANDWIDTH:
            raise FredError(
                f"{path}: column `{header}` has at most {most:g} bytes/s; if it is in Mbit/s, name it `{way}_mbps`; if it is "
                f"not, `{way}_Bps`"
            )
    return kinds
