"""Results for claims about errors: figure 5 and the text around it."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fred.protocols.gossip import Exponential, Ring, Topology
from fred.systems.wagma_sgd import differing, members
from reproductions.combined import all_of, under_choices
from reproductions.verdicts import Found, Measured, Verdict, less, level, no_worse, rising
from reproductions.wagma import accuracy, further, paper

_PRINTED = {fact.run: 100 - fact.value for fact in paper.ACCURACY}  # errors, %
_PRINTED_EVEN = {fact.run: 100 - fact.value for fact in paper.ACCURACY_EVEN}
_OTHERS = ("local-sgd", "allreduce", "d-psgd", "sgp", "eager-sgd", "ad-psgd")
_WORKERS = 64
_WAITING = ("local-sgd", "allreduce", "d-psgd", "sgp")  # for all in each step: delays change their times and no error
_GOSSIP = "d-psgd"


def found(errors: pd.DataFrame, more: pd.DataFrame) -> Measured:
    """Return the results with delays, without delays, and of the ablations.

    Orders are judged under three choices. Compute times are equal, or spread by some milliseconds, which decides which models
    WAGMA counts as late; the paper does not report the spread. D-PSGD applies a gradient before it mixes models, or after it.

    Args:
        errors: of figure 5's runs.
        more: measurements of `further`.
    """
    late = accuracy.by_seed(errors)
    even = further.by_seed(more, further.EVEN).combine_first(late[list(_WAITING)])
    usual, spread = errors[errors["rate"] == accuracy.RATE], more[more["case"] == further.spread(further.LATE)]
    mixed = more[more["case"] == further.MIX_FIRST]
    mixed_errors = further.by_seed(more, further.MIX_FIRST)  # without delays, too, since all wait for all
    varied = further.by_seed(more, further.spread(further.LATE)).combine_first(late)
    varied_even = further.by_seed(more, further.spread(further.LATE, delays=False)).combine_first(even)
    twice, mixed_twice = (further.ends(more, case, _GOSSIP) for case in (further.DOUBLE, further.DOUBLE_MIX_FIRST))
    own = {**_orders(late, even), "in-time": _in_time(usual), "twice": _order(twice, late[_GOSSIP])}
    others: dict[str, Measured] = {
        "spread": {**_orders(varied, varied_even), "in-time": _in_time(spread)},
        "mixed first": {
            **_orders(late.assign(**mixed_errors), even.assign(**mixed_errors)),
            "in-time": _in_time(pd.concat([usual[usual["run"] != _GOSSIP], mixed])),
            "twice": _order(mixed_twice, mixed_errors[_GOSSIP]),
        },
    }
    judged = {
        name: under_choices(each, {choice: found[name] for choice, found in others.items() if name in found})
        for name, each in own.items()
    }
    seconds = accuracy.by_seed(errors, "virtual_seconds")["wagma"]
    return {**judged, **_more(late, more), **_periods(late["wagma"], seconds, more), **_propagation()}


def _orders(late: pd.DataFrame, even: pd.DataFrame) -> Measured:
    return {**_late(late), **_even(late, even), **_ablations(late)}


def _late(late: pd.DataFrame) -> Measured:
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
    }


def _more(late: pd.DataFrame, more: pd.DataFrame) -> Measured:
    longer, one = further.ends(more, further.LONGER, "ad-psgd"), further.ends(more, further.ONE, "sgp")
    return {
        "neighbours": _order(late["sgp"], one),
        "longer": _order(longer, late["ad-psgd"]),
        "longer-wagma": _order(late["wagma"], longer),
    }


def _even(late: pd.DataFrame, even: pd.DataFrame) -> Measured:
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
    best = all_of([no_worse(wagma, late[run], 0.0) for run in ("wagma-4", "wagma-64")])
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
    verdict = all_of([rising([rates[each] for each in periods]), less(errors[periods[0]], errors[periods[-1]])])
    return {"period": Found(f"steps per second and error of {said}", verdict)}


def _speed(seconds: "pd.Series[float]") -> float:
    return float((accuracy.STEPS / seconds).mean())


def _in_time(errors: pd.DataFrame) -> Found:
    """Errors at the moment at which WAGMA ends; of those that end before, at their end."""
    own = errors.sort_values("virtual_seconds")
    ends = own[own["run"] == "wagma"].groupby("seed")["virtual_seconds"].max()
    there = {
        run: pd.Series({seed: _at(own[(own["run"] == run) & (own["seed"] == seed)], end) for seed, end in ends.items()})
        for run in ("wagma", *_OTHERS)
    }
    said = ", ".join(f"{run} {values.mean():.4f}" for run, values in there.items())
    return Found(said, all_of([less(there["wagma"], there[run]) for run in _OTHERS]))


def _at(curve: pd.DataFrame, seconds: float) -> float:
    return float(np.interp(seconds, curve["virtual_seconds"], curve["error"]))


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
    """Return the number of iterations after which every worker has a part of every model.

    Args:
        graphs: receivers of each worker in each iteration, from the first on [iterations, workers].
    """
    has = np.eye(len(graphs[0]), dtype=bool)
    for iteration, graph in enumerate(graphs):
        new = has.copy()
        for sender, receivers in enumerate(graph):
            new[list(receivers)] |= has[sender]
        has = new
        if has.all():
            return iteration + 1
    raise ValueError("some workers never receive a part of every model")
