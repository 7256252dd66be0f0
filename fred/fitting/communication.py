"""Fit of a network to measured times of communication, and judgements of its predictions."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from fred.base.errors import FredError
from fred.base.types import Floats
from fred.cluster.bandwidths import PRESETS, Connection
from fred.cluster.collectives import ALLREDUCE, CONNECTIONS, LIBRARIES, Effort
from fred.cluster.network import Network
from fred.fitting.measurement import TEXTBOOK, Measurement
from fred.fitting.measurements import divide_by_settings, list_unknowns, require_one_cluster

_STARTS = {"latency": 1e-4, "bandwidth": 1e9, "window": 1e7}  # where a search begins: s, bytes/s, bytes
_BOUNDS = {"latency": (1e-7, 1.0), "bandwidth": (1e3, 1e13), "window": (1e3, 1e12)}
_DEFAULT_ALGORITHMS = {TEXTBOOK: "rabenseifner"}  # algorithm of a library's allreduces, if it is not one of its own
_MARGIN = 0.1  # mean error by which another algorithm must be better than that of the library
_LARGE_ERROR = 0.25  # error of a logarithm from which on a larger one hardly counts more
_PRECISION: Any = {"xatol": 1e-6, "fatol": 1e-9, "maxiter": 2000}  # of Nelder and Mead's search
Form = Callable[..., Effort]


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

    def complete(self, measurement: Measurement) -> tuple[float, float]:
        """Return the latency, s, and the bandwidth, bytes/s, of a measurement, or those fitted where it has none.

        Args:
            measurement: with or without a latency and a bandwidth.
        """
        latency = self.latency if measurement.latency is None else measurement.latency
        return latency, self.bandwidth if measurement.bandwidth is None else measurement.bandwidth


def predict_seconds(measurement: Measurement, unknowns: Unknowns, form: Form | None = None) -> float:
    """Return the duration that FRED predicts, s.

    Args:
        measurement: its `seconds` are not used.
        unknowns: latency and bandwidth, where it has none.
        form: cost of the operation; default: the library's.

    Example: NCCL's allreduce of 128 MiB among four nodes at 5 Gbit/s and 1 ms took .329 s.
        >>> shaped = Measurement("nccl", "allreduce", 4, 2**27, 0.329, latency=0.001, bandwidth=6.25e8)
        >>> round(predict_seconds(shaped, Unknowns()), 3)
        0.33
    """
    latency, bandwidth = unknowns.complete(measurement)
    if measurement.is_rate:
        return measurement.size / Connection(latency, bandwidth, unknowns.window or math.inf).rate
    form = form or LIBRARIES[measurement.library][measurement.operation]
    effort = form(measurement.nodes, **unknowns.constants)
    return effort.seconds(measurement.size, CONNECTIONS[measurement.library]._replace(latency=latency, bandwidth=bandwidth))


def errors(measurements: Iterable[Measurement], unknowns: Unknowns, form: Form | None = None) -> Floats:
    """Return predicted / measured - 1 of each measurement [measurements].

    Args:
        measurements: measured times.
        unknowns, form: as of `predict_seconds`.
    """
    return np.array([predict_seconds(measurement, unknowns, form) / measurement.seconds - 1 for measurement in measurements])


def fit(
    measurements: Sequence[Measurement], form: Form | None = None, constants: Mapping[str, float] | None = None
) -> Unknowns:
    """Return the latency and the bandwidth, where they are not given, that predict the durations best.

    The loss of an error grows less and less, so that a few measurements of another kind do not decide.

    Args:
        measurements: of one source.
        form: as of `predict_seconds`.
        constants: first values of constants of the form that are fitted, too, by name.

    Example: a link of 1 GB/s, with 1 ms.
        >>> rows = [Measurement("nccl", "allreduce", 4, size, 0.004 + 1.5165 * size / 1e9) for size in (1e4, 1e6, 1e8)]
        >>> unknowns = fit(rows)
        >>> round(unknowns.latency, 5), round(unknowns.bandwidth / 1e9, 2)
        (0.001, 1.0)
    """
    constants = constants or {}
    link_names = list_unknowns(measurements)
    names = (*link_names, *constants)
    if not names:
        return Unknowns()
    informative = [  # a row that leaves nothing open has no part in the fit
        measurement
        for measurement in measurements
        if constants or "window" in link_names or measurement.latency is None or measurement.bandwidth is None
    ]

    def make_unknowns(logs: Floats) -> Unknowns:  # the search is over logarithms, so all values stay positive
        values = dict(zip(names, np.exp(logs).tolist(), strict=True))
        fitted_constants = {name: values.pop(name) for name in constants}
        return Unknowns(**values, constants=fitted_constants, fitted=names)

    predict = _make_predictor(informative, form) if set(names) <= {"latency", "bandwidth"} else None
    measured = np.array([measurement.seconds for measurement in informative])

    def loss(logs: Floats) -> float:
        unknowns = make_unknowns(logs)
        seconds = (
            predict(unknowns)
            if predict
            else np.array([predict_seconds(measurement, unknowns, form) for measurement in informative])
        )
        log_errors = np.abs(np.log(np.maximum(seconds / measured, 1e-12)))
        return float(np.mean(log_errors**1.5 / (1 + (log_errors / _LARGE_ERROR) ** 1.5)))

    least, most = _BOUNDS["bandwidth"]
    start = {**_STARTS, "bandwidth": min(max(_highest_bandwidth(informative, form), least), most), **constants}
    bounds = [(math.log(low), math.log(high)) for low, high in (_BOUNDS.get(name, (1e-3, 1e3)) for name in names)]
    # The search is local, so it starts from several latencies; from any one value if the latency is not fitted.
    latencies = sorted({_STARTS["latency"], 1e-6, 1e-2}) if "latency" in link_names else [1.0]
    searches = [
        minimize(
            loss, _log_values({**start, "latency": latency}, names), method="Nelder-Mead", bounds=bounds, options=_PRECISION
        )
        for latency in latencies
    ]
    return make_unknowns(min(searches, key=lambda search: float(search.fun)).x)


def _make_predictor(measurements: Sequence[Measurement], form: Form | None) -> Callable[[Unknowns], Floats]:
    """Return a function that predicts all durations at once, s [measurements]: a fit asks for thousands of predictions."""
    efforts = [
        (form or LIBRARIES[measurement.library][measurement.operation])(measurement.nodes) for measurement in measurements
    ]
    rounds, volume = (np.array([float(getattr(effort, name)) for effort in efforts]) for name in ("rounds", "volume"))
    sizes = np.array([measurement.size for measurement in measurements])
    windows = np.array([CONNECTIONS[measurement.library].window for measurement in measurements])
    latencies, bandwidths = (
        np.array([getattr(measurement, name) for measurement in measurements], float) for name in ("latency", "bandwidth")
    )
    is_linear = np.array([effort == Effort(*effort[:4]) for effort in efforts])  # no segments, chunks, parts or streams
    nonlinear_rows = np.flatnonzero(~is_linear).tolist()

    def predict(unknowns: Unknowns) -> Floats:
        latency = np.where(np.isnan(latencies), unknowns.latency, latencies)  # NaN: not measured, so the fit has to find it
        bandwidth = np.where(np.isnan(bandwidths), unknowns.bandwidth, bandwidths)
        rate = np.minimum(bandwidth, windows / np.maximum(2 * latency, 1e-300))  # a window per round trip; at 0, any
        seconds: Floats = rounds * latency + volume * sizes / rate
        for row in nonlinear_rows:
            connection = CONNECTIONS[measurements[row].library]._replace(latency=latency[row], bandwidth=bandwidth[row])
            seconds[row] = efforts[row].seconds(sizes[row], connection)
        return seconds

    return predict


def _log_values(values: Mapping[str, float], names: Sequence[str]) -> Floats:
    return np.log([values[name] for name in names])


def _highest_bandwidth(measurements: Sequence[Measurement], form: Form | None) -> float:
    """Return the bandwidth that the fastest measurement shows, if latency costs nothing, bytes/s."""
    without_latency = [replace(measurement, latency=0.0, bandwidth=None) for measurement in measurements]
    # At 1 byte/s, the predicted seconds are the bytes of the longest path.
    return max(predict_seconds(row, Unknowns(bandwidth=1.0), form) / row.seconds for row in without_latency)


def held_out_errors(
    measurements: Sequence[Measurement],
    settings: Sequence[object],
    form: Form | None = None,
    constants: Mapping[str, float] | None = None,
    held_out_form: Form | None = None,
) -> Floats:
    """Return the error of each measurement by a fit to the others, without those of its setting [measurements].

    A latency or bandwidth that only this setting leaves open is fitted to it, with the constants from the others.

    Args:
        measurements: of one source.
        settings: setting of each, such as its number of nodes.
        form, constants: as of `fit`.
        held_out_form: cost of the operation in a setting that is left out, if something is known from that setting alone.
    """
    deviations = np.empty(len(measurements))
    for setting in dict.fromkeys(settings):
        test_rows = [row for row, row_setting in enumerate(settings) if row_setting == setting]
        training = [measurement for row, measurement in enumerate(measurements) if row not in test_rows]
        test = [measurements[row] for row in test_rows]
        unknowns = fit(training, form, constants)
        if set(list_unknowns(test)) - set(unknowns.fitted):  # nothing else says what their latency and bandwidth are
            fixed = partial(form, **unknowns.constants) if form else None
            deviations[test_rows] = errors(test, fit(test, fixed), fixed)
        else:
            deviations[test_rows] = errors(test, unknowns, held_out_form or form)
    return deviations


@dataclass(frozen=True)
class FittedNetwork:
    """A network fitted to measurements.

    Args:
        library: library that was measured.
        collective: the library, or the algorithm that predicts its allreduces clearly better.
        latency: time of a message in one direction, s.
        bandwidth: bandwidth of each member, bytes/s.
        algorithm_errors: each algorithm, and the errors of its predictions from other measurements [measurements]; empty if no
            measurements tell algorithms apart.
        errors: each operation, and the errors of its predictions by this network [measurements].
    """

    library: str
    collective: str
    latency: float
    bandwidth: float
    algorithm_errors: dict[str, Floats]
    errors: dict[str, Floats]

    def form(self, operation: str) -> Form:
        """Return the cost of an operation in this network.

        Args:
            operation: operation, in FRED's words.
        """
        return (
            _allreduce_forms(self.library)[self.collective] if operation == "allreduce" else LIBRARIES[self.library][operation]
        )

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
    library = require_one_cluster(measurements)
    allreduces = [measurement for measurement in measurements if measurement.operation == "allreduce"]
    forms = _allreduce_forms(library)
    library_algorithm = next(iter(forms))
    settings = [(measurement.nodes, measurement.size) for measurement in allreduces]
    transfers = [measurement for measurement in measurements if measurement.operation == "point-to-point"]
    algorithm_errors: dict[str, Floats] = {}
    if len({nodes for nodes, _ in settings}) > 1:
        algorithm_errors = {name: held_out_errors(allreduces, settings, form) for name, form in forms.items()}
    elif allreduces and len({measurement.size for measurement in transfers}) > 1:
        link = fit(transfers)
        algorithm_errors = {name: errors(allreduces, link, form) for name, form in forms.items()}
    mean_errors = {name: float(np.mean(np.abs(values))) for name, values in algorithm_errors.items()}
    margins = {library_algorithm: _MARGIN}
    best = min(mean_errors, key=lambda name: mean_errors[name] - margins.get(name, 0.0), default=library_algorithm)
    unknowns = fit(measurements) if best == library_algorithm else fit(allreduces, forms[best])
    latency, bandwidth = unknowns.complete(measurements[0])
    # A fit that ends next to a bound of its search explains nothing.
    if not _BOUNDS["bandwidth"][0] * 2 < bandwidth < _BOUNDS["bandwidth"][1] / 2:
        raise FredError(f"no network explains these times: a bandwidth of {bandwidth:.3g} bytes/s; check the units")
    operation_errors = {}
    for operation in dict.fromkeys(measurement.operation for measurement in measurements):
        rows = [measurement for measurement in measurements if measurement.operation == operation]
        operation_errors[operation] = errors(rows, unknowns, forms[best] if operation == "allreduce" else None)
    return FittedNetwork(library, best, latency, bandwidth, algorithm_errors, operation_errors)


def _allreduce_forms(library: str) -> dict[str, Form]:
    """Return the costs of allreduces by algorithm; that of the library is the first."""
    return {_DEFAULT_ALGORITHMS.get(library, library): LIBRARIES[library]["allreduce"], **ALLREDUCE}


NEAR_ERROR = 0.15  # error up to which a prediction is near
_NO_LATENCY = 1e-6  # s; the times do not tell a smaller one
_UNITS = {"latency": (1e3, "ms"), "bandwidth": (8e-9, "Gbit/s"), "window": (2**-20, "MiB")}


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
        has_unknowns = np.array([bool(list_unknowns([measurement])) for measurement in self.measurements])
        for way, settings in divide_by_settings(self.measurements).items():
            deviations = held_out_errors(self.measurements, settings, self.form)
            for setting in dict.fromkeys(settings):
                is_test = np.array([row_setting == setting for row_setting in settings])
                test, training = (list(compress(self.measurements, mask)) for mask in (is_test, ~is_test))
                # As in `held_out_errors`, unknowns that the training rows do not have are fitted to the test itself.
                fitted_rows = training if {*list_unknowns(test)} <= {*list_unknowns(training)} else test
                # A fit of as many numbers as it has measurements is exact whatever they are, so its errors mean nothing.
                is_tested = sum(1 for row in fitted_rows if list_unknowns([row])) > len(list_unknowns(fitted_rows))
                yield HeldOut(way, setting, deviations[is_test if is_tested else is_test & ~has_unknowns])


def judge_presets(measurements: Sequence[Measurement]) -> dict[str, Floats]:
    """Return the errors of each preset [measurements], the nearest first.

    Args:
        measurements: of one cluster, of unknown latency and bandwidth. Only its allreduces are predicted.
    """
    allreduces = [measurement for measurement in measurements if measurement.operation == "allreduce"]
    measured_ns = [1e9 * row.seconds for row in allreduces]
    errors_of = {
        name: np.array([Network(name=name).effective.allreduce(row.nodes, int(row.size)).nanoseconds for row in allreduces])
        / measured_ns
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


def worst_error(deviations: Floats) -> float:
    """Return the error whose ratio of predicted to measured time is the farthest from 1.

    Args:
        deviations: predicted / measured - 1 of each measurement.

    >>> worst_error(np.array([0.8, -0.5]))  # half the time is farther off than 1.8 times
    -0.5
    """
    return float(deviations[np.argmax(np.abs(np.log1p(np.maximum(deviations, -0.999))))])
