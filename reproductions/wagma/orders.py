"""What was found of claims about errors: figure 5, and what is said beside it."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fred.protocols.topology import Exponential, Ring, Topology
from fred.systems.wagma_sgd import differing, members
from reproductions.verdicts import Found, Measured, Verdict, less, level, no_worse, rising
from reproductions.wagma import accuracy, further, paper

_PRINTED = {fact.run: 100 - fact.value for fact in paper.ACCURACY}  # errors, %
_PRINTED_EVEN = {fact.run: 100 - fact.value for fact in paper.ACCURACY_EVEN}
_OTHERS = ("local-sgd", "allreduce", "d-psgd", "sgp", "eager-sgd", "ad-psgd")
_WORKERS = 64


def found(errors: pd.DataFrame, more: pd.DataFrame) -> Measured:
    """Return the results with delays, without, and of the ablations; `more` is the result of `further`."""
    late = accuracy.by_seed(errors)
    seconds = accuracy.by_seed(errors, "virtual_seconds")["wagma"]
    return {
        **_late(late, errors),
        **_more(late, more),
        **_even(late, more),
        **_ablations(late),
        **_periods(late["wagma"], seconds, more),
        **_propagation(),
    }


def _late(late: pd.DataFrame, errors: pd.DataFrame) -> Measured:
    margin = _PRINTED["wagma"] / _PRINTED["allreduce"] - 1
    return {
        "similar": Found(_pair(late["wagma"], late["allreduce"]), no_worse(late["wagma"], late["allreduce"], margin)),
        "below-allreduce": _order(late["allreduce"], late["wagma"]),
        "below-local": _order(late["local-sgd"], late["wagma"]),
        "d-psgd": _order(late["wagma"], late["d-psgd"]),
        "ad-psgd": _order(late["wagma"], late["ad-psgd"]),
        "sgp": _order(late["wagma"], late["sgp"]),
        "sgp-d-psgd": _order(late["sgp"], late["d-psgd"]),
        "sgp-ad-psgd": _order(late["sgp"], late["ad-psgd"]),
        "in-time": _in_time(errors),
    }


def _more(late: pd.DataFrame, more: pd.DataFrame) -> Measured:
    longer, one, twice = (
        further.ends(more, case, run)
        for case, run in ((further.LONGER, "ad-psgd"), (further.ONE, "sgp"), (further.DOUBLE, "d-psgd"))
    )
    return {
        "neighbours": _order(late["sgp"], one),
        "longer": _order(longer, late["ad-psgd"]),
        "longer-wagma": _order(late["wagma"], longer),
        "twice": _order(twice, late["d-psgd"]),
    }


def _even(late: pd.DataFrame, more: pd.DataFrame) -> Measured:
    even = {run: further.ends(more, further.EVEN, run) for run in _PRINTED_EVEN}
    margin = _PRINTED_EVEN["wagma"] / _PRINTED_EVEN["local-sgd"] - 1
    return {
        "stale": _order(even["wagma"], late["wagma"]),
        "robust": Found(_pair(late["wagma"], even["wagma"]), level(late["wagma"], even["wagma"], 0.05)),
        "local-sgd-wagma": _order(even["local-sgd"], even["wagma"]),
        "wagma-sgp": _order(even["wagma"], even["sgp"]),
        "sgp-d-psgd-even": _order(even["sgp"], even["d-psgd"]),
        "d-psgd-ad-psgd": _order(even["d-psgd"], even["ad-psgd"]),
        "as-well": Found(_pair(even["wagma"], even["local-sgd"]), no_worse(even["wagma"], even["local-sgd"], margin)),
    }


def _ablations(late: pd.DataFrame) -> Measured:
    wagma = late["wagma"]
    sizes = ", ".join(f"{late[run].mean():.4f}" for run in ("wagma-4", "wagma", "wagma-64"))
    best = _all([no_worse(wagma, late[run], 0.0) for run in ("wagma-4", "wagma-64")])
    return {
        "local-sgd-10": _order(wagma, late["local-sgd-10"]),
        "wagma-fixed": _order(wagma, late["wagma-fixed"]),
        "wagma-64": Found(_pair(wagma, late["wagma-64"]), no_worse(wagma, late["wagma-64"], 0.0)),
        "wagma-4": _order(wagma, late["wagma-4"]),
        "square-root": Found(sizes, best),
        "larger": _order(late["wagma-64"], late["wagma-4"]),
    }


def _periods(error: "pd.Series[float]", seconds: "pd.Series[float]", more: pd.DataFrame) -> Measured:
    errors, rates = {10: error}, {10: _speed(seconds)}
    for steps in further.PERIODS:
        errors[steps] = further.ends(more, further.period(steps), "wagma")
        rates[steps] = _speed(further.ends(more, further.period(steps), "wagma", "virtual_seconds"))
    periods = sorted(errors)
    said = ", ".join(f"{each}: {rates[each]:.2f} and {errors[each].mean():.4f}" for each in periods)
    verdict = _all([rising([rates[each] for each in periods]), less(errors[periods[0]], errors[periods[-1]])])
    return {"period": Found(f"steps per second and error of {said}", verdict)}


def _speed(seconds: "pd.Series[float]") -> float:
    return float((accuracy.STEPS / seconds).mean())


def _in_time(errors: pd.DataFrame) -> Found:
    """Errors at the moment at which WAGMA ends; of those that end before, at their end."""
    own = errors[errors["rate"] == accuracy.RATE].sort_values("virtual_seconds")
    ends = own[own["run"] == "wagma"].groupby("seed")["virtual_seconds"].max()
    there = {
        run: pd.Series({seed: _at(own[(own["run"] == run) & (own["seed"] == seed)], end) for seed, end in ends.items()})
        for run in ("wagma", *_OTHERS)
    }
    said = ", ".join(f"{run} {values.mean():.4f}" for run, values in there.items())
    return Found(said, _all([less(there["wagma"], there[run]) for run in _OTHERS]))


def _at(curve: pd.DataFrame, seconds: float) -> float:
    return float(np.interp(seconds, curve["virtual_seconds"], curve["error"]))


def _all(verdicts: Sequence[Verdict]) -> Verdict:
    """One of several claims that were made together."""
    for verdict in (Verdict.DISAGREES, Verdict.WITHIN):
        if verdict in verdicts:
            return verdict
    return Verdict.AGREES


def _pair(one: "pd.Series[float]", other: "pd.Series[float]") -> str:
    seeds = one.index.intersection(other.index)
    return f"{one[seeds].mean():.4f} for {other[seeds].mean():.4f}"


def _order(smaller: "pd.Series[float]", larger: "pd.Series[float]") -> Found:
    return Found(_pair(smaller, larger), less(smaller, larger))


def _propagation() -> Measured:
    groups = [
        [members(worker, differing(iteration, _WORKERS, 8)) for worker in range(_WORKERS)] for iteration in range(_WORKERS)
    ]
    gossip = [reached(_graphs(topology)) for topology in (Exponential(neighbours=1), Exponential(neighbours=2), Ring())]
    said = f"SGP {gossip[0]} and, with two neighbours, {gossip[1]}; D-PSGD {gossip[2]}"
    return {
        "propagation": Found(str(own := reached(groups)), Verdict.AGREES if own == 2 else Verdict.DISAGREES),
        "propagation-gossip": Found(said, Verdict.AGREES if min(gossip) >= 6 else Verdict.DISAGREES),
    }


def _graphs(topology: Topology) -> list[list[Sequence[int]]]:
    return [[topology.receivers(worker, iteration, _WORKERS) for worker in range(_WORKERS)] for iteration in range(_WORKERS)]


def reached(graphs: Sequence[Sequence[Sequence[int]]]) -> int:
    """After how many iterations, from the first, everybody has a part of everybody's model; by who sends to whom in each."""
    has = np.eye(len(graphs[0]), dtype=bool)
    for iteration, graph in enumerate(graphs):
        new = has.copy()
        for sender, receivers in enumerate(graph):
            new[list(receivers)] |= has[sender]
        has = new
        if has.all():
            return iteration + 1
    raise ValueError("some never hear of others")
