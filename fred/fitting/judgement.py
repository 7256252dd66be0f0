"""Judgements of predictions: measured times of each operation, what was fitted to them, and how far predictions are off."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred.cluster.bandwidths import PRESETS
from fred.cluster.network import Network
from fred.fitting.communication import (
    FittedNetwork,
    Form,
    Unknowns,
    errors,
    fit,
    held_out_errors,
    list_unknowns,
    predict_seconds,
)
from fred.fitting.measurement import Measurement
from fred.fitting.measurements import format_bytes

NEAR = 0.15  # error up to which a prediction is near
_NO_LATENCY = 1e-6  # s; the times do not tell a smaller one
_UNITS = {"latency": (1e3, "ms"), "bandwidth": (8e-9, "Gbit/s"), "window": (2**-20, "MiB")}
Floats = NDArray[np.float64]


class HeldOut(NamedTuple):
    """The errors of one setting, predicted by a fit to all others.

    Args:
        way: kind of the setting, such as `number of nodes`.
        setting: the setting, such as `4 members`.
        errors: predicted / measured - 1 of its measurements; without those for which the fit had too few measurements.
    """

    way: str
    setting: str
    errors: Floats


@dataclass(frozen=True)
class Judgement:
    """Measurements of one operation, and what FRED predicts.

    Args:
        name: name of the measurements.
        measurements: their measured times.
        unknowns: latency and bandwidth, where they have none.
        form: cost of the operation; None: the library's.
    """

    name: str
    measurements: Sequence[Measurement]
    unknowns: Unknowns
    form: Form | None = None

    @property
    def errors(self) -> Floats:
        """Return predicted / measured - 1 of each measurement [measurements]."""
        return errors(self.measurements, self.unknowns, self.form)

    @property
    def is_tested(self) -> bool:
        """Return True if there are more measurements than fitted numbers."""
        return len(self.measurements) > len(self.unknowns.fitted)

    @property
    def fitted(self) -> str:
        """Return the fitted numbers with their units, or `nothing`.

        >>> Judgement("a", [], Unknowns(0.002, 1.25e8, fitted=("latency", "bandwidth"))).fitted
        'latency 2 ms; bandwidth 1 Gbit/s'
        """
        names = [name for name in self.unknowns.fitted if name != "latency" or self.unknowns.latency >= _NO_LATENCY]
        values = [(name, getattr(self.unknowns, name), *_UNITS[name]) for name in names]
        return "; ".join(f"{name} {value * factor:.3g} {unit}" for name, value, factor, unit in values) or "nothing"

    def rows(self) -> Iterator[dict[str, object]]:
        """Yield a row of a table for each measurement, with its prediction and its error."""
        for measurement, error in zip(self.measurements, self.errors, strict=True):
            yield {
                "name": self.name,
                "nodes": measurement.nodes,
                "bytes": measurement.size,
                "latency": measurement.latency,
                "bandwidth": measurement.bandwidth,
                "measured": measurement.seconds,
                "predicted": predict_seconds(measurement, self.unknowns, self.form),
                "error": error,
                "fitted": self.fitted,
            }

    def held_out(self) -> Iterator[HeldOut]:
        """Yield the errors of each setting by a fit to all others, for each way to leave settings out."""
        is_open = np.array([bool(list_unknowns([measurement])) for measurement in self.measurements])
        for way, keys in list_settings(self.measurements).items():
            deviations = held_out_errors(self.measurements, keys, self.form)
            for setting in dict.fromkeys(keys):
                is_test = np.array([key == setting for key in keys])
                test, training = (list(compress(self.measurements, mask)) for mask in (is_test, ~is_test))
                fitted = training if {*list_unknowns(test)} <= {*list_unknowns(training)} else test
                is_tested = sum(1 for row in fitted if list_unknowns([row])) > len(list_unknowns(fitted))
                yield HeldOut(way, setting, deviations[is_test if is_tested else is_test & ~is_open])


def judge_presets(measurements: Sequence[Measurement]) -> dict[str, Floats]:
    """Return the errors of each preset [measurements], the nearest first.

    Args:
        measurements: of one cluster, of unknown latency and bandwidth. Only its allreduces are predicted.
    """
    allreduces = [measurement for measurement in measurements if measurement.operation == "allreduce"]
    errors_of = {
        name: np.array([Network(name=name).effective.allreduce(row.nodes, int(row.size)).nanoseconds for row in allreduces])
        / [1e9 * row.seconds for row in allreduces]
        - 1
        for name in PRESETS
    }
    return dict(sorted(errors_of.items(), key=lambda entry: float(np.median(np.abs(entry[1]))))) if allreduces else {}


def judge(measurements: Sequence[Measurement]) -> tuple[Judgement, ...]:
    """Return a judgement of each library and operation of each cluster; what its rows do not give is fitted to them.

    Args:
        measurements: of any libraries, operations and clusters.

    Example: at 1 GB/s, an all-to-all among four takes .75 x 1.011 times as long as its bytes, and two latencies of 1 ms.
        >>> rows = [Measurement("nccl", "all-to-all", 4, size, 0.002 + 0.75825 * size / 1e9) for size in (1e4, 1e6, 1e8)]
        >>> [(judgement.name, judgement.fitted) for judgement in judge(rows)]
        [('nccl all-to-all', 'latency 1 ms; bandwidth 8 Gbit/s')]
    """
    groups = {
        source: [measurement for measurement in measurements if measurement.source == source]
        for source in dict.fromkeys(measurement.source for measurement in measurements)
    }
    return tuple(Judgement(source, rows, fit(rows)) for source, rows in groups.items())


def judge_network(fitted: FittedNetwork, measurements: Sequence[Measurement]) -> tuple[Judgement, ...]:
    """Return a judgement of each operation, all predicted by one network.

    Args:
        fitted: the network.
        measurements: those to which it was fitted.
    """
    unknowns = Unknowns(fitted.latency, fitted.bandwidth, fitted=tuple(list_unknowns(measurements)))
    return tuple(
        Judgement(
            operation,
            [measurement for measurement in measurements if measurement.operation == operation],
            unknowns,
            fitted.form(operation),
        )
        for operation in dict.fromkeys(measurement.operation for measurement in measurements)
    )


def list_settings(measurements: Sequence[Measurement]) -> dict[str, list[str]]:
    """Return the ways to leave measurements out: by name, the setting of each measurement.

    Args:
        measurements: of one source.

    >>> rows = [Measurement("nccl", "allreduce", nodes, 2**27, 0.3, latency=0.001) for nodes in (4, 8)]
    >>> list_settings(rows)
    {'number of nodes': ['4 members', '8 members']}
    """
    ways = {
        "delay and bandwidth": [_describe_link(measurement) for measurement in measurements],
        "number of nodes": [f"{measurement.nodes} members" for measurement in measurements],
    }
    several = {name: keys for name, keys in ways.items() if len(set(keys)) > 1}
    sizes = [format_bytes(measurement.size) for measurement in measurements]
    return several or ({"size": sizes} if len(set(sizes)) > 1 else {})


def _describe_link(measurement: Measurement) -> str:
    """Return the delay and the bandwidth of a measurement in words."""
    latency, bandwidth = measurement.latency, measurement.bandwidth
    delay = "delay unknown" if latency is None else f"{1e3 * latency:.6g} ms"
    return f"{delay}, {'bandwidth unknown' if bandwidth is None else f'{8e-9 * bandwidth:.6g} Gbit/s'}"


def worst_error(deviations: Floats) -> float:
    """Return the error whose ratio of predicted to measured time is the farthest from 1.

    Args:
        deviations: predicted / measured - 1 of each measurement.

    >>> worst_error(np.array([0.8, -0.5]))  # half the time is farther off than 1.8 times
    -0.5
    """
    return float(deviations[np.argmax(np.abs(np.log1p(np.maximum(deviations, -0.999))))])
