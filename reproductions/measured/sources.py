"""The tables of measurements, and the constants of FRED that are fitted to them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fred.base.errors import FredError
from fred.cluster import libraries
from fred.cluster.collectives import Effort, ring
from fred.fitting.measurements import Measurement, read
from reproductions.common import ROOT

FOLDER = Path(__file__).parent
SHARED = ROOT.parent / "shared" / "data" / "measured"
PAIRS = 9  # of regions with the same receiver, in succession


class Source(NamedTuple):
    """A table of measurements of one operation.

    Args:
        name: in the page's tables.
        path: CSV file.
        what: library and operation of its measurements.
        form: cost of the operation, with its constants as parameters.
        constants: FRED's values of these constants.
        unseen: cost in a setting that was left out, without what only this setting tells.
        plain: cost by FRED's defaults, for comparison.
    """

    name: str
    path: Path
    what: str
    form: Callable[..., Effort] | None = None
    constants: Mapping[str, float] = {}
    unseen: Callable[..., Effort] | None = None
    plain: Callable[..., Effort] | None = None

    def measurements(self) -> tuple[Measurement, ...]:
        """Return the measurements. Raises FredError if the file is missing."""
        if not self.path.exists():
            raise FredError(f"{self.path} is missing: the measurements are not part of the project; `--report` needs none")
        return tuple(each for each in read(self.path) if each.source == self.what)


def _without_ring(members: int, parts: float) -> Effort:
    """Return the cost of an allreduce in use if nothing is known of a ring from some number of members on."""
    effort = libraries.nccl_allreduce(members)
    return effort._replace(rounds=parts * effort.rounds)


SOURCES = (
    Source(
        "NCCL, allreduce",
        SHARED / "nccl-allreduce.csv",
        "nccl allreduce",
        libraries.nccl_allreduce,
        {"volume": libraries.NCCL_VOLUME, "rounds": libraries.NCCL_ROUNDS},
        plain=ring,
    ),
    Source("NCCL, point to point", SHARED / "point-to-point.csv", "nccl point-to-point"),
    Source("Gloo, point to point", SHARED / "point-to-point.csv", "gloo point-to-point"),
    Source("NCCL, between regions", SHARED / "region-pairs.csv", "nccl point-to-point"),
    Source(
        "allreduce in use",
        SHARED / "synchronisation-in-use.csv",
        "in use allreduce",
        libraries.allreduce_in_use,
        {"parts": libraries.PARTS_IN_USE},
        unseen=_without_ring,
        plain=libraries.nccl_allreduce,
    ),
    Source(
        "sharded servers in use",
        SHARED / "synchronisation-in-use.csv",
        "in use sharded-servers",
        libraries.servers_in_use,
        {"volume": libraries.SERVERS_VOLUME, "rounds": libraries.SERVERS_ROUNDS},
        plain=libraries.nccl_allreduce,
    ),
)


def settings(measurements: Sequence[Measurement]) -> dict[str, list[object]]:
    """Return the ways to leave measurements out: the setting of each, by what is left out."""
    if measurements[0].is_rate:
        return {"receiver": [place // PAIRS for place in range(len(measurements))]}
    ways: dict[str, list[object]] = {"delay and bandwidth": [(each.latency, each.bandwidth) for each in measurements]}
    if len({each.nodes for each in measurements}) > 1:
        ways["number of nodes"] = [each.nodes for each in measurements]
    return ways
