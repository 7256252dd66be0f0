"""One small scenario, or several, for each algorithm, protocol, codec and cutoff rule, and what each has to reach.

Every line of the registry has a case. A table holds the options of the entries that need more than the usual ones, after the
functions of `tests.reached` that the outcome has to satisfy. A name with a comma is another variant.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fred.components import registry
from fred.learning.server import Family
from fred.prediction.deep import networks, saved
from fred.prediction.deep.rule import DeepMarkov
from fred.specification.shape import Run
from tests import reached
from tests.reached import Reached
from tests.worlds import LAYERS, TASK, make_run

SEED = 3
RATE = 0.125  # by which numbers are multiplied without being rounded
NETWORK = {"latency": {"name": "exponential", "scale": 0.02}, "bandwidth": 1e5}
CLUSTER = {"workers": 4, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.7}, "network": NETWORK}
CRASHES = {"name": "crashes", "mean_up": 2.0, "away": {"name": "constant", "seconds": 0.3}}
SLOW = {"name": "markov-switching", "slowdown": 4.0, "fast_seconds": 1.0, "slow_seconds": 0.5}
FEEDBACK = {"error_feedback": 0.9}
Told = tuple[tuple[Reached, ...], dict[str, Any]]


def _case(*shows: Reached, **options: Any) -> Told:
    return shows, options


ALGORITHMS: dict[str, Told] = {
    "ssgd": _case(reached.drops, protocol={"backup_workers": 1}),
    "sasgd, in rounds": _case(reached.stale_in_rounds, protocol={"name": "softsync", "n": 2}),
    "exponential, in rounds": _case(reached.stale_in_rounds, protocol={"name": "softsync", "n": 2}),
    "fasgd": _case(algorithm={"learning_rate": 0.05}),
    "fasgd, in rounds": _case(
        reached.stale_in_rounds, algorithm={"learning_rate": 0.05}, protocol={"name": "softsync", "n": 2}
    ),
    "fasgd, as published": _case(algorithm={"learning_rate": 0.01, "variant": "published-code"}),
    "fasgd, literal": _case(algorithm={"variant": "literal"}),
    "b-fasgd": _case(
        reached.reused, algorithm={"learning_rate": 0.05}, protocol={"name": "gated", "c_push": 0.2, "c_fetch": 0.4}
    ),
    "psp-sgd": _case(
        *(reached.cut, reached.rounds_vary),
        protocol={"name": "partial", "gradients": 3, "blocks_percent": 60, "push_timeout": 0.02},
        cluster={"workers": 5, "servers": 3},
        stop={"gradients": 100},
    ),
    "softsync-sgd": _case(reached.stale_in_rounds, protocol={"n": 2}),
    "k-async": _case(reached.stale_in_rounds, protocol={"gradients": 2}),
    "k-batch-async": _case(reached.stale_in_rounds, protocol={"gradients": 2}),
    "ssp": _case(protocol={"bound": 2}),
    "m-sync": _case(reached.drops, protocol={"backup_workers": 1}),
    "rennala": _case(reached.drops, protocol={"batch": 3}),
    "malenia": _case(reached.rounds_vary),
    "mindflayer": _case(reached.drops, reached.rounds_vary, protocol={"trials": [1, 2, 3, 1], "limit": [0.1, 0.1, 0.4, 0.2]}),
    "ata": _case(protocol={"width": 0.05}),
    "ringmaster": _case(reached.drops, protocol={"threshold": 3}),
    "ringmaster-lmo": _case(algorithm={"learning_rate": 0.02}, task=LAYERS),
    "ringmaster-lmo, by signs": _case(algorithm={"learning_rate": 0.02, "optimizer": "signum"}),
    "delay-adaptive": _case(cluster={"workers": 5}),
    "delay-adaptive, 1 / tau": _case(algorithm={"beyond": "1 / tau"}, cluster={"workers": 5}),
    "delay-adaptive, 0": _case(algorithm={"beyond": "0"}, cluster={"workers": 5}),
    "dc-asgd": _case(algorithm={"compensation": 2.0}),
    "dc-asgd, adaptive": _case(algorithm={"compensation": 0.4, "adaptive": True}),
    "clipped-asgd": _case(algorithm={"length": 0.5}),
    "picky-sgd": _case(algorithm={"distance": 0.2}),
    "extrapolated": _case(algorithm={"ahead": 2.0}, protocol={"lag": 4}, cluster={"network": None}),
    "pipemare": _case(algorithm={"warm_up": 40}, protocol={"lag": 4}, cluster={"network": None}),
    "cutoff-sgd": _case(reached.drops, reached.rounds_vary, protocol={"rule": "elfving"}),
    "dbw": _case(reached.drops, reached.rounds_vary, algorithm={"smoothness": 3.0}, cluster={"workers": 6}),
    "dropcompute": _case(reached.drops, reached.rounds_vary, protocol={"micro_batches": 3, "threshold": 0.25}),
    "dropcompute, done": _case(
        *(reached.drops, reached.rounds_vary), protocol={"micro_batches": 3, "threshold": 0.25, "average": "done"}
    ),
    "local-sgd": _case(protocol={"period": 3, "start_after": 2}),
    "adacomm": _case(protocol={"period": 9, "adapt_every": 0.5}),
    "stsyn": _case(reached.drops, protocol={"period": 3, "enough": 2}),
    "sparta": _case(algorithm={"parts": 3}, protocol={"every": 2}),
    "sparta, late": _case(algorithm={"parts": 3}, protocol={"delay": 3}),
    "async-mesh": _case(algorithm={"parts": 3}, protocol={"delay": 2, "every": 2}),
    "async-mesh, add-back": _case(algorithm={"parts": 3, "average_changes": False, "ahead": 0.75}, protocol={"delay": 3}),
    "loscar": _case(algorithm={"parts": 3}, stop={"gradients": 200}),
    "des-loc": _case(algorithm={"first_every": 2, "second_every": 3}, protocol={"period": 3}),
    "des-loc, of pseudo-gradients": _case(protocol={"name": "elastic", "period": 3}),
    "easgd": _case(reached.pseudo_gradients, protocol={"period": 3, "elasticity": 0.3}),
    "downpour": _case(reached.pseudo_gradients, protocol={"n_push": 2, "n_fetch": 3}),
    "bmuf": _case(protocol={"period": 5}),
    "bmuf, nesterov": _case(algorithm={"nesterov": True, "block_momentum": 0.5, "block_rate": 0.8}, protocol={"period": 5}),
    "slowmo": _case(
        algorithm={
            **{"slow_momentum": 0.4, "slow_rate": 0.8},
            "schedule": {"name": "exponential_decay", "decay_rate": 0.5, "transition_steps": 10},
        },
        protocol={"period": 5},
    ),
    "noloco": _case(protocol={"period": 5}),
    "swarm-sgd": _case(protocol={"period": 5}, cluster={"workers": 5}),
    "snoo": _case(protocol={"period": 5}),
    "fadas": _case(reached.pseudo_gradients, algorithm={"outer_rate": 0.4, "patience": 2}, protocol={"buffer": 2, "period": 2}),
    "diloco": _case(protocol={"period": 5}),
    "diloco, by time": _case(protocol={"every": 0.7}),
    "diloco, paced": _case(
        protocol={"period": 4, "paced": True}, cluster={"speeds": [1, 1, 0.5, 0.3]}, stop={"gradients": 200}
    ),
    "muloco": _case(algorithm={"learning_rate": 0.02}, protocol={"period": 5}, task=LAYERS),
    "streaming-diloco": _case(reached.cut, protocol={"period": 4, "fragments": 2, "delay": 1, "mixing": 0.25}),
    "eager-diloco": _case(protocol={"period": 5}),
    "eager-diloco, late": _case(protocol={"period": 5, "eager": False}),
    "decoupled-diloco": _case(protocol={"period": 4, "quorum": 2, "overlap": 2.0}),
    "decoupled-diloco, in fragments": _case(reached.cut, protocol={"period": 4, "fragments": 2, "quorum": 2, "overlap": 3.0}),
    "palsgd": _case(protocol={"period": 5, "pulls": 0.3}),
    "edit": _case(
        algorithm={"temperature": 0.1, "longest": 0.2, "deviations": 0.5, "decay": 0.1, "warm_up": 1}, protocol={"period": 5}
    ),
    "async-local": _case(reached.pseudo_gradients, algorithm={"learning_rate": RATE / 2}, protocol={"steps": 3, "bound": 9}),
    "async-batch": _case(algorithm={"learning_rate": RATE / 2}, protocol={"steps": 3, "bound": 9}),
    "birch-local": _case(reached.drops, algorithm={"learning_rate": RATE / 2}, protocol={"total": 7}),
    "cycle": _case(reached.pseudo_gradients, algorithm={"learning_rate": RATE / 2}, protocol={"group_size": 2}),
    "fedbuff": _case(reached.pseudo_gradients, algorithm={"server_rate": 0.8}, protocol={"buffer": 3, "period": 3}),
    "fedasync": _case(algorithm={"mixing": 0.7, "exponent": 0.6}, protocol={"period": 3}),
    "fedavg": _case(reached.pseudo_gradients, reached.drops, protocol={"clients": 2, "spare": 1, "period": 3}),
    "fedprox": _case(reached.pseudo_gradients, algorithm={"mu": 0.5}, protocol={"clients": 3, "period": 4}),
    "fednova": _case(reached.pseudo_gradients, protocol={"period": 4}, cluster={"speeds": [1, 1, 0.5, 0.3]}),
    "fedadam": _case(reached.pseudo_gradients, algorithm={"server_rate": 0.1, "tau": 0.1}, protocol={"period": 3}),
    "fedyogi": _case(reached.pseudo_gradients, algorithm={"server_rate": 0.1, "tau": 0.1}, protocol={"period": 3}),
    "scaffold": _case(
        *(reached.pseudo_gradients, reached.drops),
        algorithm={"server_rate": 0.8},
        protocol={"clients": 2, "spare": 1, "period": 3, "late": "finish"},
    ),
    "fedcompass": _case(
        *(reached.pseudo_gradients, reached.stale_in_rounds, reached.rounds_vary),
        algorithm={"server_rate": 0.8, "exponent": 0.6},
        protocol={"period": 6, "lateness": 1.2},
        cluster={"speeds": [1, 1, 0.5, 0.3]},
        stop={"gradients": 200},
    ),
    "delayed-nesterov": _case(algorithm={"outer_rate": 0.5, "gathered": 3, "spread": 0.2}, protocol={"period": 3}),
    "halos": _case(
        *(reached.pseudo_gradients,),
        algorithm={
            **{"outer_rate": 0.5, "momentum": 0.9, "gathered": 3},
            **{"global_rate": 0.8, "global_momentum": 0.4, "global_gathered": 2},
        },
        protocol={"period": 2, "pushes": 4, "mixing": 0.25},
        cluster={"servers": 3},
    ),
    "cgad": _case(
        algorithm={"outer_rate": 0.05, "fading": 0.2, "cutoff": 4},
        protocol={"period": 3, "paced": True},
        stop={"gradients": 160},
    ),
    "heloco": _case(
        algorithm={"outer_rate": 0.5, "momentum": 0.6, "agreeing": 0.9, "turn": 0.8, "shrink": 0.5, "most": 0.3},
        protocol={"period": 3},
        stop={"gradients": 160},
    ),
    "sparseloco": _case(
        reached.coded,
        algorithm={
            "outer_rate": 0.75,
            "codec": {
                **{"name": "top-k", "share": 0.25, "error_feedback": 0.95},
                "values": {"name": "low-bit", "bits": 2, "zero": False},
            },
        },
        protocol={"period": 4},
    ),
    "demo": _case(  # three workers, minibatches of three: no sum of gradients is 0, whose sign rounding would decide
        reached.coded,
        algorithm={"codec": {"name": "dct", "kept": 3, "error_feedback": 0.9}},
        cluster={"workers": 3},
        task=TASK | {"batch_size": 3},
    ),
    "eager-sgd": _case(reached.rounds_vary, protocol={"start_by": "solo", "period": 9}),
    "d-psgd": _case(protocol={"weights": "metropolis", "topology": "star"}),
    "choco-sgd": _case(
        algorithm={
            "codec": {"name": "top-k", "share": 0.25, "values": {"name": "low-bit", "bits": 2, "zero": False}},
        },
        protocol={"topology": "star", "consensus": 0.25},
    ),
    "sgp": _case(protocol={"topology": "star"}),
    "sgp, overlapped": _case(protocol={"topology": "exponential", "overlap": 2}, cluster={"workers": 6}),
    "ad-psgd": _case(reached.stale, cluster={"workers": 5}),
    "wagma-sgd": _case(cluster={"workers": 8}, protocol={"group_size": 4, "period": 5}),
    "wagma-sgd, waiting": _case(cluster={"workers": 8}, protocol={"group_size": 4, "group_waits": True, "period": None}),
}


PROTOCOLS: dict[str, Told] = {
    "synchronous": _case(reached.drops, protocol={"backup_workers": 1, "late": "interrupt"}),
    "synchronous, elastic": _case(reached.rounds_vary, protocol={"timeout": 0.05}, cluster={"faults": [CRASHES]}),
    "asynchronous": _case(
        *(reached.cut, reached.stale), protocol={"clocks": "each", "pulls": "at-once"}, cluster={"servers": 3}
    ),
    "asynchronous, layers overlapped": _case(
        *(reached.cut, reached.stale),
        protocol={"clocks": "each", "cut": "layers", "overlap": True},
        cluster={"servers": 2},
        task=LAYERS,
    ),
    "dispatcher": _case(reached.stale, reached.gathers, protocol={"k_push": 3, "k_fetch": 2, "selection": "uniform"}),
    "gated": _case(reached.stale, reached.reused, protocol={"k_push": 2, "k_fetch": 2, "unsent": "apply-again"}),
    "gated, sums": _case(
        *(reached.stale, reached.gathers, reached.cut),
        protocol={"k_push": 3, "unsent": "sum", "clocks": "each"},
        cluster={"servers": 2},
    ),
    "partial": _case(
        *(reached.cut, reached.rounds_vary),
        protocol={"gradients": 2, "blocks_percent": 60, "push_timeout": 0.03, "pull_timeout": 0.01},
        cluster={"servers": 3},
    ),
    "softsync": _case(*(reached.cut, reached.stale_in_rounds), protocol={"n": 2, "clocks": "each"}, cluster={"servers": 2}),
    "fresh-batch": _case(reached.fresh, reached.drops, protocol={"batch": 3, "late": "finish"}),
    "fresh-from-all": _case(reached.fresh, reached.drops, reached.rounds_vary, protocol={"batch": 8}),
    "bounded-delay": _case(reached.stale, reached.drops, protocol={"threshold": 3, "late": "finish"}),
    "time-limited": _case(reached.fresh, reached.drops, reached.rounds_vary, protocol={"trials": 2, "limit": 0.12}),
    "bandit": _case(reached.fresh, protocol={"gradients": 5, "width": 0.05}),
    "fixed-lag": _case(reached.stale, protocol={"lag": 3, "ramp": 5}),
    "fixed-lag, varying": _case(reached.stale, protocol={"lag": 6, "drawn_from": 4}),
    "stale-synchronous": _case(
        *(reached.cut, reached.stale),
        protocol={"bound": 2, "clocks": "each", "cut": "layers", "overlap": True},
        cluster={"servers": 2},
        task=LAYERS,
    ),
    "cutoff": _case(reached.fresh, reached.drops, reached.rounds_vary, protocol={"rule": "elfving"}),
    "allreduce": _case(reached.fresh, reached.rounds_alike),
    "drop-compute": _case(reached.fresh, reached.rounds_vary, protocol={"micro_batches": 3, "measured": 3}),
    "local-steps": _case(protocol={"period": 3}),
    "late-averaging": _case(protocol={"every": 2, "delay": 1}),
    "straggler-tolerant": _case(reached.drops, protocol={"period": 2, "enough": 2}),
    "elastic": _case(reached.pseudo_gradients, protocol={"period": 3}),
    "accumulating": _case(reached.pseudo_gradients, protocol={"n_push": 2, "n_fetch": 3}),
    "buffered": _case(reached.pseudo_gradients, protocol={"period": 2, "buffer": 3, "grace": 0.05}),
    "client-rounds": _case(
        *(reached.pseudo_gradients, reached.drops, reached.rounds_vary),
        protocol={
            **{"clients": 4, "spare": 1, "period": 3, "deadline": 0.5, "minimum": 2, "late": "finish"},
            **{"sampling": "speed", "work": "speed", "normalized": True},
        },
        cluster={"workers": 6, "speeds": [1, 1, 1, 0.5, 0.5, 0.3]},
    ),
    "arrival-groups": _case(
        *(reached.pseudo_gradients, reached.rounds_vary),
        protocol={"period": 5, "lateness": 1.1, "speeds": "known", "decay": 0.5},
        cluster={"speeds": [1, 1, 0.5, 0.3]},
        stop={"gradients": 200},
    ),
    "local-sums": _case(reached.pseudo_gradients, reached.drops, protocol={"steps": 3, "bound": 9}),
    "batch-sums": _case(reached.rounds_alike, reached.drops, protocol={"steps": 3, "bound": 9}),
    "local-total": _case(reached.pseudo_gradients, reached.drops, protocol={"total": 7}),
    "in-turn": _case(reached.pseudo_gradients, protocol={"group_size": 2}),
    "quorum": _case(*(reached.pseudo_gradients, reached.cut), protocol={"period": 4, "quorum": 2, "fragments": 2}),
    "in-pairs": _case(protocol={"period": 3}, cluster={"workers": 5}),
    "outer-steps": _case(reached.pseudo_gradients, protocol={"period": 4, "pulls": 0.3}),
    "overlapped-steps": _case(reached.pseudo_gradients, protocol={"period": 3}),
    "local-servers": _case(reached.pseudo_gradients, protocol={"period": 2, "pushes": 3}, cluster={"servers": 3}),
    "streaming": _case(
        *(reached.pseudo_gradients, reached.cut), protocol={"period": 4, "delay": 1, "mixing": 0.5, "elastic": True}
    ),
    "eager": _case(reached.rounds_vary, protocol={"start_by": "majority", "period": 4}),
    "gossip": _case(protocol={"topology": "exponential", "overlap": 2}, cluster={"workers": 5}),
    "gossip, mixed first": _case(protocol={"topology": "star", "weights": "metropolis", "order": "mix-first", "exchanges": 2}),
    "choco": _case(reached.pseudo_gradients, protocol={"topology": "ring", "consensus": 0.5}),
    "pairwise": _case(cluster={"workers": 5}),
    "group-averaging": _case(protocol={"group_size": 2, "period": 3}),
}

CODECS: dict[str, Told] = {
    "float": _case(codec={"format": "bfloat16"} | FEEDBACK),
    "float, scaled": _case(codec={"format": "e4m3", "scaled": True, "chunk": 5}),
    "e3m0": _case(codec={"chunk": 10} | FEEDBACK),
    "low-bit": _case(codec={"bits": 3} | FEEDBACK),
    "sign": _case(codec={"chunk": 7} | FEEDBACK),
    "qsgd": _case(codec={"levels": 5} | FEEDBACK),
    "top-k": _case(codec={"share": 0.3} | FEEDBACK),
    "top-k, rounded": _case(codec={"share": 0.3, "chunk": 16, "values": {"name": "low-bit", "bits": 2, "zero": False}}),
    "random-k": _case(codec={"share": 0.3, "unbiased": False} | FEEDBACK),
    "random-k, in rounds": _case(codec={"share": 0.5, "chunk": 9}, protocol="synchronous"),
    "power-sgd": _case(codec={"rank": 1} | FEEDBACK, tolerance=1e-3),  # orthogonal to what is nearly nothing
    "power-sgd, of pseudo-gradients": _case(codec={"rank": 1} | FEEDBACK, protocol={"name": "outer-steps", "period": 3}),
    "dct": _case(codec={"chunk": 4, "kept": 3} | FEEDBACK),
}

CUTOFFS: dict[str, Told] = {
    "all": _case(reached.rounds_alike),
    "count": _case(reached.cuts_off, reached.rounds_alike, rule={"workers": 5}),
    "count-or-deadline": _case(reached.cuts_off, reached.rounds_vary, rule={"workers": 7, "seconds": 0.2}),
    "elfving, by deadline": _case(reached.cuts_off, reached.rounds_vary, rule={"by": "deadline"}),
    "deadline": _case(reached.cuts_off, reached.rounds_vary, rule={"seconds": 0.15}),
    "ewma": _case(reached.cuts_off, reached.rounds_vary, rule={"of": "node"}),
    "backup": _case(reached.cuts_off, reached.rounds_vary, rule={"noise": 2.0}),
    "backup, measured": _case(
        *(reached.cuts_off, reached.rounds_vary), rule={"noise": "measured"}, algorithm={"name": "dbw", "smoothness": 3.0}
    ),
}


TABLES = {"algorithm": ALGORITHMS, "protocol": PROTOCOLS, "codec": CODECS, "cutoff": CUTOFFS}


@dataclass(frozen=True)
class Case:
    """A run that exercises an entry of the registry, and the properties that it must have to do so."""

    kind: str
    name: str  # of the entry; after a comma, which variant
    tolerance: float = 0.0  # relative error of a recomputation, where it is larger than the algorithm's

    @property
    def entry(self) -> str:
        """The name in the registry."""
        return self.name.partition(",")[0]

    @cached_property
    def run(self) -> Run:
        """The run, validated."""
        usual = {"algorithm": _algorithm, "protocol": _protocol, "codec": _codec, "cutoff": _cutoff}[self.kind]
        options = usual(self.entry, {name: value for name, value in self._told[1].items() if name != "tolerance"})
        algorithm = {"name": "asgd", "learning_rate": RATE} | options.pop("algorithm", {})
        cluster = CLUSTER | options.pop("cluster", {})
        return make_run(algorithm, **{"cluster": cluster, "stop": {"gradients": 120}, "task": TASK, **options})

    @property
    def shows(self) -> tuple[Reached, ...]:
        """Return what the outcome has to satisfy: as any run, as one of its kind, and by itself."""
        run, own = self.run, self._told[0]
        shows = [reached.changed, reached.moved, *own]
        if run.cluster.network is not None:
            shows.append(reached.sent)
        if run.cluster.faults:
            shows.append(reached.away)
        if run.protocol.layout(run.cluster).local(run.cluster.size):
            shows.append(reached.meets)
        if self.kind == "algorithm":
            shows += _OF_FAMILY.get(run.algorithm.family, ())
        if self.kind == "codec":
            shows.append(reached.coded)
        if self.kind == "cutoff" and not own:
            shows += [reached.cuts_off, reached.rounds_vary]
        return tuple(dict.fromkeys(shows))

    @property
    def _told(self) -> Told:
        return TABLES[self.kind].get(self.name, ((), {}))


_OF_FAMILY: dict[Family, tuple[Reached, ...]] = {
    Family.FRESH: (reached.fresh,),
    **dict.fromkeys((Family.AS_THEY_COME, Family.ANSWERED, Family.OF_ONE_AGE), (reached.stale,)),
}


def _algorithm(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a run with an algorithm and its own protocol."""
    example = registry.lookup("algorithm", name).example()
    required = {field: getattr(example, field) for field, info in type(example).model_fields.items() if info.is_required()}
    return options | {"algorithm": required | {"name": name, "learning_rate": RATE} | options.get("algorithm", {})}


def _protocol(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a run with a protocol, on a cluster whose workers crash where there is a clock."""
    clocked = registry.lookup("protocol", name).has_clock
    world: dict[str, Any] = {"faults": [CRASHES]} if clocked else {"network": None}
    options["cluster"] = world | options.get("cluster", {})
    return options | {"protocol": {"name": name} | options.get("protocol", {})}


def _codec(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a run whose gradients are coded."""
    return options | {"algorithm": {"codec": {"name": name, **options.pop("codec", {})}}}


def _cutoff(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a run whose rounds a rule cuts off, on two nodes that are slow at times."""
    given, algorithm = options.pop("rule", {}), options.pop("algorithm", {})
    variant = registry.lookup("cutoff", name)
    trained = issubclass(variant, DeepMarkov) and variant.variant != "shared"
    rule = untrained(variant, workers=8) if trained else {"name": name, **given}
    return {
        **{"algorithm": {"name": "cutoff-sgd"} | algorithm, "protocol": {"name": "cutoff", "rule": rule}},
        **{"cluster": {"workers": 8, "nodes": 2, "contention": [SLOW]}, "stop": {"updates": 40}},
        **options,
    }


def untrained(rule: type[DeepMarkov], workers: int) -> DeepMarkov:
    """Return a rule whose network has its first weights, which takes no training to choose by."""
    about = saved.AboutModel(
        **{"fred": "", "environment": {}, "variant": rule.variant, "workers": workers, "nodes": [0] * workers, "window": 5},
        **{"normaliser": 0.5, "objective": "round", "pace": (0.5, 0.5), "bounds": (-9.0, 9.0), "trace": "", "steps": 0},
        **{"learning_rate": 0.01, "seed": 0, "restart": 0, "curve": []},
    )
    layers = networks.of_variant(rule.variant, workers).init(networks.key_of(0), workers)
    params = {layer: {name: np.asarray(array) for name, array in own.items()} for layer, own in layers.items()}
    return rule(warm_up=3).of(saved.Trained(about, params))


def _cases() -> Iterator[Case]:
    for kind, table in TABLES.items():
        for name in dict.fromkeys([*registry.REGISTRY[kind], *table]):
            yield Case(kind, name, table.get(name, ((), {}))[1].get("tolerance", 0.0))


CASES = tuple(_cases())
