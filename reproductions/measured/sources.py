"""The tables of measurements, and the constants of FRED that are fitted to them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fred.base.errors import FredError
from fred.cluster import collectives
from fred.cluster.collectives import Effort, ring
from fred.fitting.measurement import Measurement
from fred.fitting.measurements import divide_by_settings, read
from reproductions.common import ROOT

FOLDER = Path(__file__).parent
SHARED = ROOT.parent / "shared" / "data" / "measured"
PAIRS = 9  # of regions with the same receiver, in succession


class Source(NamedTuple):
    """A table of measurements of one operation.

    Args:
        name: in the page's tables.
        path: CSV file.
        operation: library and operation of its measurements.
        form: cost of the operation, with its constants as parameters.
        constants: FRED's values of these constants.
        blind_form: cost in a setting that was left out, without what only this setting tells.
        plain_form: cost by FRED's defaults, for comparison.
    """

    name: str
    path: Path
    operation: str
    form: Callable[..., Effort] | None = None
    constants: Mapping[str, float] = {}
    blind_form: Callable[..., Effort] | None = None
    plain_form: Callable[..., Effort] | None = None

    def measurements(self) -> tuple[Measurement, ...]:
        """Return the measurements. Raises FredError if the file is missing."""
        if not self.path.exists():
            raise FredError(f"{self.path} is missing: the measurements are not part of the project; `--report` needs none")
        return tuple(measurement for measurement in read(self.path) if measurement.source == self.operation)


def _without_ring(members: int, parts: float) -> Effort:
    """Return the cost of an allreduce in use if nothing is known of a ring from some number of members on."""
    return collectives.allreduce_in_use(members, parts)._replace(small_rounds=0)


def _more_in_use(members: int, parts: float = collectives.PARTS_IN_USE, volume: float = 1.0) -> Effort:
    """Return the cost of an allreduce in use that moves more than the model."""
    effort = collectives.allreduce_in_use(members, parts)
    return effort._replace(volume=volume * effort.volume)


def _between_two(members: int) -> Effort:
    """Return the cost of an allreduce between two machines, whatever the number of members in each."""
    return collectives.nccl_allreduce(2)


SOURCES = (
    Source(
        "NCCL, allreduce",
        SHARED / "nccl-allreduce.csv",
        "nccl allreduce",
        collectives.nccl_allreduce,
        {"volume": collectives.NCCL_VOLUME, "rounds": collectives.NCCL_ROUNDS},
        plain_form=ring,
    ),
    Source("NCCL, point to point", SHARED / "point-to-point.csv", "nccl point-to-point"),
    Source("Gloo, point to point", SHARED / "point-to-point.csv", "gloo point-to-point"),
    Source("NCCL, between regions", SHARED / "region-pairs.csv", "nccl point-to-point"),
    Source(
        "allreduce in use",
        SHARED / "synchronisation-in-use.csv",
        "in use allreduce",
        collectives.allreduce_in_use,
        {"parts": collectives.PARTS_IN_USE},
        blind_form=_without_ring,
        plain_form=collectives.nccl_allreduce,
    ),
    Source(
        "sharded servers in use",
        SHARED / "synchronisation-in-use.csv",
        "in use sharded-servers",
        collectives.servers_in_use,
        {"volume": collectives.SERVERS_VOLUME, "rounds": collectives.SERVERS_ROUNDS},
        plain_form=collectives.nccl_allreduce,
    ),
)


_PUBLIC = FOLDER / "public.csv"
_EFA, _A3 = "gist.github.com/jacobkahn", "lessizzmore/create-a3mega-ztan-fork"
ALTERNATIVES = (  # forms to compare, two by two
    Source("allreduce in use", *SOURCES[4][1:3], collectives.allreduce_in_use, {"parts": collectives.PARTS_IN_USE}),
    Source("the same, with more bytes", *SOURCES[4][1:3], _more_in_use, {"parts": collectives.PARTS_IN_USE, "volume": 1.0}),
    Source(f"{_EFA}", _PUBLIC, f"nccl allreduce {_EFA}"),
    Source("the same, as a ring of all members", _PUBLIC, f"nccl allreduce {_EFA}", ring),
    Source(f"{_A3}", _PUBLIC, f"nccl allreduce {_A3}"),
    Source("the same, between two machines", _PUBLIC, f"nccl allreduce {_A3}", _between_two),
    Source("eth-cscs/cscs-docs", _PUBLIC, "nccl allreduce eth-cscs/cscs-docs"),
    Source("the same, between two machines", _PUBLIC, "nccl allreduce eth-cscs/cscs-docs", _between_two),
)


def settings(measurements: Sequence[Measurement]) -> Mapping[str, Sequence[object]]:
    """Return the ways to leave measurements out: by name, the setting of each measurement."""
    if measurements[0].is_rate:
        return {"receiver": [place // PAIRS for place in range(len(measurements))]}
    return divide_by_settings(measurements)
