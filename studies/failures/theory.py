"""Checkpoints in closed form: the best interval and the share of time with work that lasts [Daly 2006]."""

import math


def daly_interval(pause: float, between: float) -> float:
    """Return the best time between two checkpoints, s [Daly 2006, Future Generation Computer Systems 22, equation 37].

    Args:
        pause: time for which a checkpoint stops the job, s.
        between: mean time between failures of the job, s.

    >>> round(daly_interval(60, 3600)), round(daly_interval(60, 604800))
    (618, 8479)
    """
    root = math.sqrt(pause / (2 * between))
    return math.sqrt(2 * pause * between) * (1 + root / 3 + root**2 / 9) - pause


def goodput(every: float, pause: float, between: float, away: float, load: float) -> float:
    """Return the share of time with work that lasts. Failures have exponential times, and strike while the job works or loads.

    Args:
        every: work between two checkpoints, s.
        pause: time for which a checkpoint stops the job, s.
        between: mean time between failures of the job, s.
        away: time until a failure is detected and repaired, in which none strikes, s.
        load: time to load a checkpoint, s.

    >>> round(goodput(600, 60, 3600, away=1860, load=240), 3), round(goodput(600, 60, 1e9, away=1860, load=240), 3)
    (0.511, 0.909)
    """
    return every / ((between + away) * math.exp(load / between) * math.expm1((every + pause) / between))
