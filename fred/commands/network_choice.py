"""Selection of measurements by library, operation, nodes, source, delay and bandwidth; and how to select one network."""

import math
from collections.abc import Mapping, Sequence

from fred.base.errors import FredError, briefly, listed
from fred.components.registry import nearest
from fred.fitting.measurement import LIBRARY_NAMES, Measurement, recognise_operations

UNKNOWN = "unknown"
_FIELDS = {"library": "library", "operation": "operation", "nodes": "nodes", "source": "where"}
_FACTORS = {"delay_ms": ("latency", 1e-3), "gbit_per_s": ("bandwidth", 1e9 / 8)}  # to s and bytes/s
NAMES = (*_FIELDS, *_FACTORS)


def select(measurements: Sequence[Measurement], only: Mapping[str, str]) -> list[Measurement]:
    """Return the measurements with all of some values.

    Args:
        measurements: of any libraries and clusters.
        only: values by FRED's names of columns; `unknown` selects rows without a source, a delay or a bandwidth.

    Raises FredError for a name that is unknown, and for a value that no measurement has.

    >>> rows = [Measurement("nccl", "allreduce", 4, 2**27, 0.3, latency=latency) for latency in (None, 0.001)]
    >>> [row.latency for row in select(rows, {"delay_ms": "1"})], [row.latency for row in select(rows, {"delay_ms": "unknown"})]
    ([0.001], [None])
    """
    selection = list(measurements)
    for name, value in only.items():
        if name not in NAMES:
            raise FredError(f"--only {name}={value}: unknown{nearest(name, NAMES)}; expected some of {listed(NAMES)}")
        values = list(dict.fromkeys(describe(measurement, name) for measurement in selection))
        selection = [measurement for measurement in selection if _matches(measurement, name, value)]
        if not selection:
            raise FredError(f"--only {name}={value}: no such row; `{name}` is {briefly(values, 12)}")
    return selection


def describe(measurement: Measurement, name: str) -> str:
    """Return a value of a measurement as `--only` has it.

    Args:
        measurement: the measurement.
        name: FRED's name of the column.

    >>> describe(Measurement("nccl", "allreduce", 4, 2**27, 0.3, latency=0.001), "delay_ms")
    '1'
    """
    if name in _FIELDS:
        return str(getattr(measurement, _FIELDS[name])) or UNKNOWN
    key, factor = _FACTORS[name]
    value = getattr(measurement, key)
    return UNKNOWN if value is None else f"{value / factor:.6g}"


def list_networks(measurements: Sequence[Measurement]) -> list[str]:
    """Return the values of `--only` that select one network each, the network of most rows first.

    Args:
        measurements: of several libraries or clusters; those without a network, such as rates, are left out.

    >>> rows = [Measurement("nccl", "allreduce", 4, 2**27, 0.3, latency=latency) for latency in (None, 0.001, 0.001)]
    >>> list_networks(rows)
    ['delay_ms=1', 'delay_ms=unknown']
    """
    names = [name for name in NAMES if name not in ("operation", "nodes")]
    names = [name for name in names if len({describe(measurement, name) for measurement in measurements}) > 1]
    candidates = [
        ",".join(f"{name}={describe(measurement, name)}" for name in names)
        for measurement in measurements
        if not measurement.is_rate and measurement.library != "in use" and "," not in measurement.where
    ]
    return sorted(dict.fromkeys(filter(None, candidates)), key=candidates.count, reverse=True)


def _matches(measurement: Measurement, name: str, value: str) -> bool:
    """Return True if a measurement has a value."""
    text = describe(measurement, name)
    if name == "library":
        return LIBRARY_NAMES.get(value.lower(), value) == text
    if name == "operation":
        return text in (value, *recognise_operations(value))
    try:
        return math.isclose(float(value), float(text), rel_tol=1e-5)
    except ValueError:
        return value == text
