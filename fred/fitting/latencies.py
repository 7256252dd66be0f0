"""Independent compute times: maximum-likelihood fits of all latencies that have a likelihood."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import digamma
from scipy.stats import expon, gamma, lognorm, pareto, truncnorm, weibull_min

from fred.cluster.latency import Gamma, Latency, LogNormal, Mixture, Normal, Pareto, ShiftedExponential, Weibull

Times = NDArray[np.float64]
_MOST_FITTED = 10_000  # approximate maximum number of times that a mixture is fitted to
_ROUNDS = 60  # iterations of expectation maximisation
_LEAST_SHARE = 0.02  # least deviation of a component, relative to that of all times
_LEAST_PARAMETER = 1e-6  # least value of a parameter that must be above 0, relative to the size of the times


def normal(times: Times) -> Normal:
    """Fit a normal distribution by mean and deviation; this is exact if the floor cuts nothing off."""
    mean = float(times.mean())
    return Normal(mu=mean, sigma=_limit_below(times.std(), mean), floor=min(1e-3, float(times.min())))


def lognormal(times: Times) -> LogNormal:
    """Fit a log-normal distribution by mean and deviation of the logarithms."""
    logs = np.log(times)
    return LogNormal(median=math.exp(logs.mean()), sigma=_limit_below(logs.std(), 1.0))


def gamma_stages(times: Times) -> Gamma:
    """Fit a gamma distribution by solving log(shape) - digamma(shape) = log(mean) - mean(log)."""
    excess = max(float(np.log(times.mean()) - np.log(times).mean()), _LEAST_PARAMETER**2)
    log_shape = brentq(lambda s: s - float(digamma(math.exp(s))) - excess, -10.0, 30.0)
    shape = math.exp(log_shape)
    return Gamma(shape=shape, scale=float(times.mean()) / shape)


def weibull(times: Times) -> Weibull:
    """Fit a Weibull distribution by solving 1 / shape = mean logarithm weighted by time^shape - mean logarithm."""
    logs = np.log(times) - np.log(times).max()  # at most 0, so that no power overflows
    spread = float(logs.std())
    if spread < _LEAST_PARAMETER:
        return Weibull(shape=1 / _LEAST_PARAMETER, scale=float(times.mean()))

    def surplus(shape: float) -> float:
        weights = np.exp(shape * logs)
        return float((weights * logs).sum() / weights.sum() - logs.mean() - 1 / shape)

    shape = brentq(surplus, 0.01 / spread, 100 / spread, rtol=1e-6)  # logarithms of Weibull times deviate by 1.28 / shape
    scale = math.exp(np.log(times).max() + math.log(np.exp(shape * logs).mean()) / shape)
    return Weibull(shape=shape, scale=scale)


def shifted_exponential(times: Times) -> ShiftedExponential:
    """Fit a shifted exponential distribution by the shortest time, and the mean of the rest."""
    shift = float(times.min())
    return ShiftedExponential(shift=shift, scale=_limit_below(times.mean() - shift, shift))


def power_law(times: Times) -> Pareto:
    """Fit a Pareto distribution by the shortest time, and the inverse mean logarithm of the times relative to it."""
    return Pareto(minimum=float(times.min()), alpha=1 / _limit_below(np.log(times / times.min()).mean(), 1.0))


def mixture(times: Times) -> Latency:
    """Fit a mixture of two or three log-normals by expectation maximisation; the number has the best BIC of all times."""
    thinned_logs = np.sort(np.log(times).ravel())[:: max(1, times.size // _MOST_FITTED)]
    mixtures = [_fit_mixture(thinned_logs, count) for count in (2, 3)]
    scores = [_bic(fitted, times) for fitted in mixtures]
    return mixtures[int(np.argmax(scores))]


def _bic(fitted: Mixture, times: Times) -> float:
    """Return the Bayesian information criterion of log-normals, as a log likelihood less a penalty: the higher, the better."""
    parameters = 3 * len(fitted.components) - 1  # median, sigma and weight of each; the weights sum to 1
    return float(log_density(fitted, times).sum()) - parameters / 2 * math.log(times.size)


def _fit_mixture(logs: Times, count: int) -> Mixture:
    """Fit a mixture to logarithms of times, starting with few times in the components above the usual one."""
    shares = np.array([0.9, 0.1]) if count == 2 else np.array([0.85, 0.12, 0.03])
    ordered = np.sort(logs)
    parts = np.split(ordered, (np.cumsum(shares)[:-1] * len(logs)).astype(int))
    centres, deviations = (np.array([f(part) if len(part) else ordered[-1] for part in parts]) for f in (np.mean, np.std))
    least = max(_LEAST_SHARE * float(logs.std()), _LEAST_PARAMETER)
    for _ in range(_ROUNDS):
        deviations = np.maximum(deviations, least)
        density = np.log(np.maximum(shares, 1e-12)) - np.log(deviations) - (logs[:, None] - centres) ** 2 / (2 * deviations**2)
        weights = np.exp(density - density.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)  # probability of each component [times, components]
        totals = np.maximum(weights.sum(0), 1e-9)
        shares, centres = totals / len(logs), weights.T @ logs / totals
        deviations = np.sqrt((weights * (logs[:, None] - centres) ** 2).sum(0) / totals)
    components = [LogNormal(median=math.exp(c), sigma=max(float(d), least)) for c, d in zip(centres, deviations, strict=True)]
    return Mixture(components=tuple(components), weights=tuple((shares / shares.sum()).tolist()))


FITS: dict[str, Callable[[Times], Latency]] = {
    "normal": normal,
    "lognormal": lognormal,
    "gamma": gamma_stages,
    "weibull": weibull,
    "shifted-exponential": shifted_exponential,
    "pareto": power_law,
    "mixture": mixture,
}


def log_density(latency: Latency, times: Times) -> Times:
    """Return the log density at each time, -inf for impossible times. Raises TypeError for a latency without a density."""
    if isinstance(latency, Mixture):
        parts = [
            log_density(part, times) + math.log(share) for part, share in zip(latency.components, latency.weights, strict=True)
        ]
        return np.asarray(np.logaddexp.reduce(parts, axis=0), np.float64)
    return np.asarray(_distribution(latency).logpdf(times), np.float64)


def _distribution(latency: Latency) -> Any:
    match latency:
        case Normal(mu=mu, sigma=sigma, floor=floor):
            return truncnorm((floor - mu) / sigma, math.inf, loc=mu, scale=sigma)
        case LogNormal(median=median, sigma=sigma):
            return lognorm(sigma, scale=median)
        case Gamma(shape=shape, scale=scale):
            return gamma(shape, scale=scale)
        case Weibull(shape=shape, scale=scale):
            return weibull_min(shape, scale=scale)
        case ShiftedExponential(shift=shift, scale=scale):
            return expon(loc=shift, scale=scale)
        case Pareto(minimum=minimum, alpha=alpha):
            return pareto(alpha, scale=minimum)
    raise TypeError(f"no density for {type(latency).__name__}")


def _limit_below(value: float, size: float) -> float:
    return max(float(value), _LEAST_PARAMETER * size)
