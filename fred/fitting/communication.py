"""Fit of a network to measured times of communication, and how far its predictions are off."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from fred.base.errors import FredError
from fred.cluster.bandwidths import Connection
from fred.cluster.collectives import ALLREDUCE, CONNECTIONS, LIBRARIES, SEGMENT, Effort
from fred.fitting.measurement import TEXTBOOK, Measurement

_FIRST = {"latency": 1e-4, "bandwidth": 1e9, "window": 1e7}  # where a search begins: s, bytes/s, bytes
_BOUNDS = {"latency": (1e-7, 1.0), "bandwidth": (1e3, 1e13), "window": (1e3, 1e12)}
_USUAL = {TEXTBOOK: "rabenseifner"}  # algorithm of a library's allreduces, if it is not one of its own
_SURE = 0.1  # mean error by which another algorithm must be better than that of the library
_LARGE = 0.25  # error of a logarithm from which on a larger one hardly counts more
_SUMMED = ("rounds", "volume", "segments", "starts")  # fields of an effort
_PRECISION: Any = {"xatol": 1e-6, "fatol": 1e-9, "maxiter": 2000}  # of Nelder and Mead's search
Form = Callable[..., Effort]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Unknowns:
    """What a table of measurements leaves open, and was fitted to it.

    Args:
        latency: time of a message in one direction, s; used where it is not given.
        bandwidth: bandwidth of each member, bytes/s; used where it is not given.
        window: bytes under way at most, for measured rates; None: as the library's connections have it.
        constants: constants of the operation's cost, if they were fitted, too.
        fitted: names of those that were fitted.
    """

    latency: float = 0.0
    bandwidth: float = math.inf
    window: float | None = None
    constants: Mapping[str, float] = field(default_factory=dict)
    fitted: tuple[str, ...] = ()

    def completing(self, measurement: Measurement) -> tuple[float, float]:
        """Return the latency, s, and the bandwidth, bytes/s, of a measurement, or those fitted where it has none.

        Args:
            measurement: with or without a latency and a bandwidth.
        """
        latency = self.latency if measurement.latency is None else measurement.latency
        return latency, self.bandwidth if measurement.bandwidth is None else measurement.bandwidth


def predicted(measurement: Measurement, unknowns: Unknowns, form: Form | None = None) -> float:
    """Return the duration that FRED predicts, s.

    Args:
        measurement: its `seconds` are not used.
        unknowns: latency and bandwidth, where it has none.
        form: cost of the operation; default: the library's.

    Example: NCCL's allreduce of 128 MiB among four nodes at 5 Gbit/s and 1 ms took .329 s.
        >>> shaped = Measurement("nccl", "allreduce", 4, 2**27, 0.329, latency=0.001, bandwidth=6.25e8)
        >>> round(predicted(shaped, Unknowns()), 3)
        0.33
    """
    latency, bandwidth = unknowns.completing(measurement)
    if measurement.is_rate:
        return measurement.size / Connection(latency, bandwidth, unknowns.window or math.inf).rate
    form = form or LIBRARIES[measurement.library][measurement.operation]
    effort = form(measurement.nodes, **unknowns.constants)
    return effort.seconds(measurement.size, CONNECTIONS[measurement.library]._replace(latency=latency, bandwidth=bandwidth))


def errors(measurements: Iterable[Measurement], unknowns: Unknowns, form: Form | None = None) -> Floats:
    """Return predicted / measured - 1 of each measurement [measurements].

    Args:
        measurements: measured times.
        unknowns, form: as of `predicted`.
    """
    return np.array([predicted(each, unknowns, form) / each.seconds - 1 for each in measurements])


def fit(
    measurements: Sequence[Measurement], form: Form | None = None, constants: Mapping[str, float] | None = None
) -> Unknowns:
    """Return the latency and the bandwidth, where they are not given, that predict the durations best.

    The loss of an error grows less and less, so that a few measurements of another kind do not decide.

    Args:
        measurements: of one source.
        form: as of `predicted`.
        constants: first values of constants of the form that are fitted, too, by name.

    Example: a link of 1 GB/s, with 1 ms.
        >>> made = [Measurement("nccl", "allreduce", 4, size, 0.004 + 1.5165 * size / 1e9) for size in (1e4, 1e6, 1e8)]
        >>> found = fit(made)
        >>> round(found.latency, 5), round(found.bandwidth / 1e9, 2)
        (0.001, 1.0)
    """
    constants = constants or {}
    links = _open(measurements)
    names = (*links, *constants)
    if not names:
        return Unknowns()
    concerned = [
        each for each in measurements if constants or "window" in links or each.latency is None or each.bandwidth is None
    ]

    def unknowns(logs: Floats) -> Unknowns:
        values = dict(zip(names, np.exp(logs).tolist(), strict=True))
        own = {name: values.pop(name) for name in constants}
        return Unknowns(**values, constants=own, fitted=names)

    predict = _predictor(concerned, form) if set(names) <= {"latency", "bandwidth"} else None
    measured = np.array([each.seconds for each in concerned])

    def loss(logs: Floats) -> float:
        values = unknowns(logs)
        seconds = predict(values) if predict else np.array([predicted(each, values, form) for each in concerned])
        off = np.abs(np.log(np.maximum(seconds / measured, 1e-12)))
        return float(np.mean(off**1.5 / (1 + (off / _LARGE) ** 1.5)))

    low, high = _BOUNDS["bandwidth"]
    first = {**_FIRST, "bandwidth": min(max(_bandwidth(concerned, form), low), high), **constants}
    bounds = [(math.log(low), math.log(high)) for low, high in (_BOUNDS.get(name, (1e-3, 1e3)) for name in names)]
    latencies = sorted({_FIRST["latency"], 1e-6, 1e-2}) if "latency" in links else [1.0]
    searched = [
        minimize(loss, _logs({**first, "latency": latency}, names), method="Nelder-Mead", bounds=bounds, options=_PRECISION)
        for latency in latencies
    ]
    return unknowns(min(searched, key=lambda each: float(each.fun)).x)


def _predictor(measurements: Sequence[Measurement], form: Form | None) -> Callable[[Unknowns], Floats]:
    """Return a function that predicts all durations at once, s [measurements]: a fit asks for thousands of predictions."""
    efforts = [(form or LIBRARIES[each.library][each.operation])(each.nodes) for each in measurements]
    rounds, volume, segments, starts = (np.array([float(getattr(each, name)) for each in efforts]) for name in _SUMMED)
    sizes = np.array([each.size for each in measurements])
    windows = np.array([CONNECTIONS[each.library].window for each in measurements])
    latencies, bandwidths = (
        np.array([getattr(each, name) for each in measurements], float) for name in ("latency", "bandwidth")
    )
    waits = np.maximum(rounds, segments * sizes / SEGMENT)
    slow = np.flatnonzero(starts).tolist()  # operations that begin with a small window

    def predict(unknowns: Unknowns) -> Floats:
        latency = np.where(np.isnan(latencies), unknowns.latency, latencies)
        bandwidth = np.where(np.isnan(bandwidths), unknowns.bandwidth, bandwidths)
        rate = np.minimum(bandwidth, windows / np.maximum(2 * latency, 1e-300))
        seconds: Floats = waits * latency + volume * sizes / rate
        for at in slow:
            connection = CONNECTIONS[measurements[at].library]._replace(latency=latency[at], bandwidth=bandwidth[at])
            seconds[at] += starts[at] * connection.lost(sizes[at])
        return seconds

    return predict


def _logs(values: Mapping[str, float], names: Sequence[str]) -> Floats:
    return np.log([values[name] for name in names])


def _bandwidth(measurements: Sequence[Measurement], form: Form | None) -> float:
    """Return the bandwidth that the fastest measurement shows, if latency costs nothing, bytes/s."""
    instant = [replace(each, latency=0.0, bandwidth=None) for each in measurements]
    return max(predicted(each, Unknowns(bandwidth=1.0), form) / each.seconds for each in instant)


def held_out(
    measurements: Sequence[Measurement],
    settings: Sequence[object],
    form: Form | None = None,
    constants: Mapping[str, float] | None = None,
    unseen: Form | None = None,
) -> Floats:
    """Return the error of each measurement by a fit to the others, without those of its setting [measurements].

    A latency or bandwidth that only this setting leaves open is fitted to it, with the constants from the others.

    Args:
        measurements: of one source.
        settings: setting of each, such as its number of nodes.
        form, constants: as of `fit`.
        unseen: cost of the operation in a setting that is left out, if something is known from that setting alone.
    """
    found = np.empty(len(measurements))
    for setting in dict.fromkeys(settings):
        out = [place for place, own in enumerate(settings) if own == setting]
        rest = [each for place, each in enumerate(measurements) if place not in out]
        left_out = [measurements[place] for place in out]
        unknowns = fit(rest, form, constants)
        if set(_open(left_out)) - set(unknowns.fitted):  # nothing else says what their latency and bandwidth are
            fixed = partial(form, **unknowns.constants) if form else None
            found[out] = errors(left_out, fit(left_out, fixed), fixed)
        else:
            found[out] = errors(left_out, unknowns, unseen or form)
    return found


def _open(measurements: Sequence[Measurement]) -> list[str]:
    """Return the names of what the measurements leave open."""
    names = [name for name in ("latency", "bandwidth") if any(getattr(each, name) is None for each in measurements)]
    return [*names, "window"] if any(each.is_rate for each in measurements) else names


@dataclass(frozen=True)
class FittedNetwork:
    """A network fitted to measurements.

    Args:
        library: library that was measured.
        collective: the library, or the algorithm that predicts its allreduces clearly better.
        latency: time of a message in one direction, s.
        bandwidth: bandwidth of each member, bytes/s.
        tried: each algorithm, and the errors of its predictions from other measurements [measurements]; empty if none tells.
        errors: each operation, and the errors of its predictions by this network [measurements].
    """

    library: str
    collective: str
    latency: float
    bandwidth: float
    tried: dict[str, Floats]
    errors: dict[str, Floats]

    @property
    def options(self) -> dict[str, object]:
        """Return the options of `network:` in a scenario; servers have the same cards as workers."""
        bandwidth = float(f"{self.bandwidth:.4g}")
        options: dict[str, object] = {
            "latency": {"name": "constant", "seconds": float(f"{self.latency:.4g}")},
            "bandwidth": bandwidth,
            "server_bandwidth": bandwidth,
            "collective": self.collective,
            "sharing": "fair",
        }
        windows = CONNECTIONS[self.library]
        if self.bandwidth * 2 * self.latency > windows.initial_window:  # otherwise windows never limit a message
            options |= {"window": windows.window, "initial_window": windows.initial_window}
        return options


def fit_network(measurements: Sequence[Measurement]) -> FittedNetwork:
    """Fit a network to the measurements of one cluster.

    Other algorithms of allreduces are tried if there are several numbers of members, or times between two members, which tell
    latency and bandwidth; with one number alone, all fit alike. Latency and bandwidth are fitted to all operations, or to the
    allreduces alone if another algorithm predicts these clearly better.

    Args:
        measurements: with one library, and without `in use`.

    Raises FredError for several libraries or clusters, measured rates, a single size, and times that no network explains.
    """
    library = _one_cluster(measurements)
    reduced = [each for each in measurements if each.operation == "allreduce"]
    usual = _USUAL.get(library, library)
    forms = {usual: LIBRARIES[library]["allreduce"], **ALLREDUCE}
    settings = [(each.nodes, each.size) for each in reduced]
    direct = [each for each in measurements if each.operation == "point-to-point"]
    tried: dict[str, Floats] = {}
    if len({nodes for nodes, _ in settings}) > 1:
        tried = {name: held_out(reduced, settings, form) for name, form in forms.items()}
    elif reduced and len({each.size for each in direct}) > 1:
        between_two = fit(direct)
        tried = {name: errors(reduced, between_two, form) for name, form in forms.items()}
    off = {name: float(np.mean(np.abs(values))) for name, values in tried.items()}
    best = min(off, key=lambda name: off[name] - (_SURE if name == usual else 0.0), default=usual)
    unknowns = fit(measurements) if best == usual else fit(reduced, forms[best])
    latency, bandwidth = unknowns.completing(measurements[0])
    if not _BOUNDS["bandwidth"][0] * 2 < bandwidth < _BOUNDS["bandwidth"][1] / 2:
        raise FredError(f"no network explains these times: a bandwidth of {bandwidth:.3g} bytes/s; check the units")
    off_by_operation = {}
    for operation in dict.fromkeys(each.operation for each in measurements):
        own = [each for each in measurements if each.operation == operation]
        off_by_operation[operation] = errors(own, unknowns, forms[best] if operation == "allreduce" else None)
    return FittedNetwork(library, best, latency, bandwidth, tried, off_by_operation)


def _one_cluster(measurements: Sequence[Measurement]) -> str:
    """Return the library of the measurements. Raises FredError if they are not of one library and cluster, or of one size."""
    libraries = sorted({each.library for each in measurements})
    if len(libraries) > 1 or libraries[0] == "in use":
        raise FredError(
            f"the measurements are of {' and '.join(libraries)}; expected one library: fit the files of each by themselves"
        )
    if any(each.is_rate for each in measurements):
        raise FredError("the measurements are rates of point-to-point transfers between regions; expected durations")
    if len({(each.latency, each.bandwidth, each.where) for each in measurements}) > 1:
        raise FredError("delays, bandwidths or sources differ between the measurements; expected one cluster as it is")
    shared = sorted({each.nodes / each.machines for each in measurements if each.machines})
    if len(shared) > 1:
        raise FredError(
            f"ranks per machine differ between the measurements ({', '.join(f'{number:g}' for number in shared)}): ranks that "
            "share a machine share its links; fit the files of each by themselves"
        )
    latency_is_known = measurements[0].latency is not None
    if not latency_is_known and (len({each.size for each in measurements}) < 2 or len(measurements) < 3):
        raise FredError(
            "too few measurements: expected at least 3, of at least 2 sizes, such as with -b 8 -e 1G -f 2 of nccl-tests, "
            "or -a of perftest; with the latency, such as --values delay_ms=0.1, one time of 1 MiB or more is enough"
        )
    return libraries[0]
