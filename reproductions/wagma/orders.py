"""Results for claims about errors: figure 5 and the text around it."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fred.protocols.gossip import Exponential, Ring, Topology
from fred.systems.wagma_sgd import differing_bits, members
from reproductions.verdicts import (
    Evidence,
    Measured,
    Verdict,
    combine_choices,
    combine_parts,
    judge_level,
    judge_lower_error,
    judge_no_worse,
    judge_rising,
)
from reproductions.wagma import accuracy, further, paper

_PRINTED = {fact.run: 100 - fact.value for fact in paper.ACCURACY}  # errors, %
_PRINTED_PUNCTUAL = {fact.run: 100 - fact.value for fact in paper.ACCURACY_EVEN}
_BASELINES = ("local-sgd", "allreduce", "d-psgd", "sgp", "eager-sgd", "ad-psgd")
_WORKERS = 64
_WAITING = ["local-sgd", "local-sgd-10", "allreduce", "d-psgd", "sgp"]  # for all: delays change their times and no error
_GOSSIP = "d-psgd"


def judge_orders(errors: pd.DataFrame, further_rows: pd.DataFrame) -> Measured:
    """Return the results with delays, without delays, and of the ablations.

    Orders are judged under three choices. Compute times are equal, or spread by some milliseconds, which decides which models
    WAGMA counts as late; the paper does not report the spread. D-PSGD applies a gradient before it mixes models, or after it.

    Args:
        errors: of figure 5's runs.
        further_rows: measurements of `further`.
    """
    late = accuracy.by_seed(errors)
    punctual = further.by_seed(further_rows, further.NO_DELAYS).combine_first(late[_WAITING])
    usual, spread = errors[errors["rate"] == accuracy.RATE], further_rows[further_rows["case"] == further.spread(further.LATE)]
    mixed = further_rows[further_rows["case"] == further.MIX_FIRST]
    mixed_errors = further.by_seed(further_rows, further.MIX_FIRST)  # without delays, too, since all wait for all
    varied = spread_errors(errors, further_rows)
    varied_punctual = further.by_seed(further_rows, further.spread(further.LATE, delays=False)).combine_first(late[_WAITING])
    twice, mixed_twice = (further.ends(further_rows, case, _GOSSIP) for case in (further.DOUBLE, further.DOUBLE_MIX_FIRST))
    usual_evidence = {**_orders(late, punctual), "in-time": _in_time(usual), "twice": _order(twice, late[_GOSSIP])}
    alternatives: dict[str, Measured] = {
        "spread": {**_orders(varied, varied_punctual), "in-time": _in_time(spread)},
        "mixed first": {
            **_orders(late.assign(**mixed_errors), punctual.assign(**mixed_errors)),
            "in-time": _in_time(pd.concat([usual[usual["run"] != _GOSSIP], mixed])),
            "twice": _order(mixed_twice, mixed_errors[_GOSSIP]),
        },
    }
    judged = {
        name: combine_choices(evidence, {choice: claims[name] for choice, claims in alternatives.items() if name in claims})
        for name, evidence in usual_evidence.items()
    }
    seconds = accuracy.by_seed(errors, "virtual_seconds")["wagma"]
    return {
        **judged,
        **_judge_more_training(late, further_rows),
        **_periods(late["wagma"], seconds, further_rows),
        **_propagation(),
    }


def spread_errors(errors: pd.DataFrame, further_rows: pd.DataFrame) -> pd.DataFrame:
    """Return the last errors where compute times vary, by seed and run.

    Args:
        errors: of figure 5's runs.
        further_rows: measurements of `further`.
    """
    return further.by_seed(further_rows, further.spread(further.LATE)).combine_first(accuracy.by_seed(errors)[_WAITING])


def _orders(late: pd.DataFrame, punctual: pd.DataFrame) -> Measured:
    return {**_judge_delayed(late), **_judge_punctual(late, punctual), **_ablations(late)}


def _judge_delayed(late: pd.DataFrame) -> Measured:
    margin = _PRINTED["wagma"] / _PRINTED["allreduce"] - 1
    return {
        "similar": _compare(late["wagma"], late["allreduce"], judge_no_worse(late["wagma"], late["allreduce"], margin)),
        "below-allreduce": _order(late["allreduce"], late["wagma"]),
        "below-local": _order(late["local-sgd"], late["wagma"]),
        "d-psgd": _order(late["wagma"], late["d-psgd"]),
        "ad-psgd": _order(late["wagma"], late["ad-psgd"]),
        "sgp": _order(late["wagma"], late["sgp"]),
        "sgp-d-psgd": _order(late["sgp"], late["d-psgd"]),
        "sgp-ad-psgd": _order(late["sgp"], late["ad-psgd"]),
    }


def _judge_more_training(late: pd.DataFrame, further_rows: pd.DataFrame) -> Measured:
    longer = further.ends(further_rows, further.LONGER, "ad-psgd")
    single = further.ends(further_rows, further.ONE_NEIGHBOUR, "sgp")
    return {
        "neighbours": _order(late["sgp"], single),
        "longer": _order(longer, late["ad-psgd"]),
        "longer-wagma": _order(late["wagma"], longer),
    }


def _judge_punctual(late: pd.DataFrame, punctual: pd.DataFrame) -> Measured:
    margin = _PRINTED_PUNCTUAL["wagma"] / _PRINTED_PUNCTUAL["local-sgd"] - 1
    return {
        "stale": _order(punctual["wagma"], late["wagma"]),
        "robust": _compare(late["wagma"], punctual["wagma"], judge_level(late["wagma"], punctual["wagma"], 0.05)),
        "local-sgd-wagma": _order(punctual["local-sgd"], punctual["wagma"]),
        "wagma-sgp": _order(punctual["wagma"], punctual["sgp"]),
        "sgp-d-psgd-even": _order(punctual["sgp"], punctual["d-psgd"]),
        "d-psgd-ad-psgd": _order(punctual["d-psgd"], punctual["ad-psgd"]),
        "as-well": _compare(
            punctual["wagma"], punctual["local-sgd"], judge_no_worse(punctual["wagma"], punctual["local-sgd"], margin)
        ),
    }


def _ablations(late: pd.DataFrame) -> Measured:
    wagma = late["wagma"]
    sizes = ", ".join(f"{mean:.4f}" for mean in late[["wagma-4", "wagma", "wagma-64"]].dropna().mean())
    best = combine_parts([judge_no_worse(wagma, late[run], 0.0) for run in ("wagma-4", "wagma-64")])
    return {
        "local-sgd-10": _order(wagma, late["local-sgd-10"]),
        "wagma-fixed": _order(wagma, late["wagma-fixed"]),
        "wagma-64": _compare(wagma, late["wagma-64"], judge_no_worse(wagma, late["wagma-64"], 0.0)),
        "wagma-4": _order(wagma, late["wagma-4"]),
        "square-root": Evidence(sizes, best),
        "larger": _order(late["wagma-64"], late["wagma-4"]),
    }


def _periods(error: "pd.Series[float]", seconds: "pd.Series[float]", further_rows: pd.DataFrame) -> Measured:
    errors, rates = {10: error}, {10: _speed(seconds)}
    for steps in further.PERIODS:
        errors[steps] = further.ends(further_rows, further.period(steps), "wagma")
        rates[steps] = _speed(further.ends(further_rows, further.period(steps), "wagma", "virtual_seconds"))
    periods = sorted(errors)
    means = pd.DataFrame(errors).dropna().mean()
    text = ", ".join(f"{steps}: {rates[steps]:.2f} and {means[steps]:.4f}" for steps in periods)
    verdict = combine_parts(
        [judge_rising([rates[steps] for steps in periods]), judge_lower_error(errors[periods[0]], errors[periods[-1]])]
    )
    return {"period": Evidence(f"steps per second and error of {text}", verdict)}


def _speed(seconds: "pd.Series[float]") -> float:
    return float((accuracy.STEPS / seconds).mean())


def _in_time(errors: pd.DataFrame) -> Evidence:
    """Judge errors at the moment at which WAGMA ends, or at the end of those that end before."""
    curves = errors[errors.groupby("seed")["run"].transform("nunique") == errors["run"].nunique()].sort_values(
        "virtual_seconds"
    )
    ends = curves[curves["run"] == "wagma"].groupby("seed")["virtual_seconds"].max()
    errors_then = {
        run: pd.Series(
            {seed: _interpolate(curves[(curves["run"] == run) & (curves["seed"] == seed)], end) for seed, end in ends.items()}
        )
        for run in ("wagma", *_BASELINES)
    }
    text = ", ".join(f"{run} {values.mean():.4f}" for run, values in errors_then.items())
    return Evidence(text, combine_parts([judge_lower_error(errors_then["wagma"], errors_then[run]) for run in _BASELINES]))


def _interpolate(curve: pd.DataFrame, seconds: float) -> float:
    return float(np.interp(seconds, curve["virtual_seconds"], curve["error"]))


def _pair(values: "pd.Series[float]", references: "pd.Series[float]") -> str:
    seeds = (values / references).dropna().index
    return f"{values[seeds].mean():.4f} for {references[seeds].mean():.4f}"


def _order(smaller: "pd.Series[float]", larger: "pd.Series[float]") -> Evidence:
    return _compare(smaller, larger, judge_lower_error(smaller, larger))


def _compare(values: "pd.Series[float]", references: "pd.Series[float]", verdict: Verdict) -> Evidence:
    return Evidence(_pair(values, references), verdict, (values / references).dropna())


def _propagation() -> Measured:
    groups = [
        [members(worker, differing_bits(iteration, _WORKERS, 8)) for worker in range(_WORKERS)] for iteration in range(_WORKERS)
    ]
    gossip = [reached(_graphs(topology)) for topology in (Exponential(neighbours=1), Exponential(neighbours=2), Ring())]
    text = f"SGP {gossip[0]} and, with two neighbours, {gossip[1]}; D-PSGD {gossip[2]}"
    return {
        "propagation": Evidence(str(iterations := reached(groups)), Verdict.AGREES if iterations == 2 else Verdict.DISAGREES),
        "propagation-gossip": Evidence(text, Verdict.AGREES if min(gossip) >= 6 else Verdict.DISAGREES),
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
