"""Latencies: distributions of durations, such as compute times.

Example: the mean of a lognormal distribution is its median times exp(sigma^2 / 2).
    >>> import fred
    >>> round(fred.latency.LogNormal(median=0.1, sigma=0.5).mean, 4)
    0.1133
"""

from fred.cluster.latency import Bimodal as Bimodal
from fred.cluster.latency import Constant as Constant
from fred.cluster.latency import Exponential as Exponential
from fred.cluster.latency import Gamma as Gamma
from fred.cluster.latency import HalfNormal as HalfNormal
from fred.cluster.latency import LogNormal as LogNormal
from fred.cluster.latency import Mixture as Mixture
from fred.cluster.latency import Normal as Normal
from fred.cluster.latency import Pareto as Pareto
from fred.cluster.latency import ShiftedExponential as ShiftedExponential
from fred.cluster.latency import Uniform as Uniform
from fred.cluster.latency import Weibull as Weibull
from fred.cluster.recorded import Empirical as Empirical
from fred.cluster.recorded import RecordedTrace as RecordedTrace
