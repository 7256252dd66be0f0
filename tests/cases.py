"""One small scenario, or several, for each algorithm, protocol, codec and cutoff rule, and the properties of its outcome.

Every line of the registry has a case. A table holds the options of the entries that need more than the usual ones, after the
functions of `tests.outcome_properties` that the outcome has to satisfy. A name with a comma is another variant.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fred.components import registry
from fred.learning.server import Family
from fred.prediction.deep import networks, saved
from fred.prediction.deep.rule import DMM
from fred.specification.shape import Run
from tests import outcome_properties
from tests.outcome_properties import Property
from tests.worlds import LAYERS, TASK, make_run

SEED = 3
RATE = 0.125  # by which numbers are multiplied without being rounded
NETWORK = {"latency": {"name": "exponential", "scale": 0.02}, "bandwidth": 1e5}
CLUSTER = {"workers": 4, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.7}, "network": NETWORK}
CRASHES = {"name": "crashes", "mean_up": 2.0, "away": {"name": "constant", "seconds": 0.3}}
SLOW = {"name": "markov-switching", "slowdown": 4.0, "fast_seconds": 1.0, "slow_seconds": 0.5}
FEEDBACK = {"error_feedback": 0.9}
Definition = tuple[tuple[Property, ...], dict[str, Any]]


def options(text: str) -> dict[str, Any]:
    """Return the options that a text lists; the name may come first.

    >>> options("gated unsent=sum clocks=each overlap=True")
    {'name': 'gated', 'unsent': 'sum', 'clocks': 'each', 'overlap': True}
    """
    parts = [part.partition("=") for part in text.split()]
    return {name if value else "name": _value(value or name) for name, _, value in parts}


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _case(text: str = "", shows: str = "", **rest: Any) -> Definition:
    """Return a case: options of the algorithm / protocol / cluster, names of `outcome_properties`, other parts of the run."""
    parts = zip(("algorithm", "protocol", "cluster"), text.split("/ "), strict=False)
    properties = tuple(getattr(outcome_properties, name) for name in shows.split())
    return properties, {name: options(part) for name, part in parts if part.strip()} | rest


def periodic(k: int) -> dict[str, Any]:
    """Return the options of a gate that lets every k-th message pass."""
    return {"name": "periodic", "k": k}


def _gated(text: str, shows: str, **gates: dict[str, Any]) -> Definition:
    """Return a case whose pushes and fetches pass through these gates."""
    properties, parts = _case(text, shows)
    return properties, parts | {"protocol": parts["protocol"] | gates}


ALGORITHMS: dict[str, Definition] = {
    "ssgd": _case("/ backup_workers=1", "drops"),
    "sasgd, in rounds": _case("/ softsync n=2", "stale_in_rounds"),
    "exponential, in rounds": _case("/ softsync n=2", "stale_in_rounds"),
    "fasgd": _case("learning_rate=0.05"),
    "fasgd, in rounds": _case("learning_rate=0.05 / softsync n=2", "stale_in_rounds"),
    "fasgd, as published": _case("learning_rate=0.01 variant=published-code"),
    "fasgd, literal": _case("variant=literal"),
    "b-fasgd": _gated(
        "learning_rate=0.05 / gated",
        "reused",
        push_gate={"name": "statistical", "c": 0.2},
        fetch_gate={"name": "statistical", "c": 0.4},
    ),
    "psp-sgd": _case(
        "/ partial gradients=3 blocks_percent=60 push_timeout=0.02 / workers=5 servers=3",
        "has_blocks rounds_vary",
        stop={"gradients": 100},
    ),
    "softsync-sgd": _case("/ n=2", "stale_in_rounds"),
    "k-async": _case("/ gradients=2", "stale_in_rounds"),
    "k-batch-async": _case("/ gradients=2", "stale_in_rounds"),
    "ssp": _case("/ bound=2"),
    "m-sync": _case("/ backup_workers=1", "drops"),
    "rennala": _case("/ batch=3", "drops"),
    "malenia": _case("", "rounds_vary"),
    "mindflayer": _case("/ trials=[1,2,3,1] limit=[0.1,0.1,0.4,0.2]", "drops rounds_vary"),
    "ata": _case("/ width=0.05"),
    "ringmaster": _case("/ threshold=3", "drops"),
    "ringmaster-lmo": _case("learning_rate=0.02", task=LAYERS),
    "ringmaster-lmo, by signs": _case("learning_rate=0.02 optimizer=signum"),
    "delay-adaptive": _case("/ / workers=5"),
    "delay-adaptive, 1 / tau": _case("/ / workers=5", algorithm={"beyond": "1 / tau"}),
    "delay-adaptive, 0": _case("/ / workers=5", algorithm={"beyond": "0"}),
    "dc-asgd": _case("compensation=2.0"),
    "dc-asgd, adaptive": _case("compensation=0.4 adaptive=True"),
    "clipped-asgd": _case("length=0.5"),
    "picky-sgd": _case("distance=0.2"),
    "extrapolated": _case("ahead=2.0 / lag=4 / network=None"),
    "pipemare": _case("warm_up=40 / lag=4 / network=None"),
    "cutoff-sgd": _case("/ rule=elfving", "drops rounds_vary"),
    "dbw": _case("smoothness=3.0 / / workers=6", "drops rounds_vary"),
    "dropcompute": _case("/ micro_batches=3 threshold=0.25", "drops rounds_vary"),
    "dropcompute, done": _case("/ micro_batches=3 threshold=0.25 average=done", "drops rounds_vary"),
    "local-sgd": _case("/ period=3 start_after=2"),
    "adacomm": _case("/ period=9 adapt_every=0.5"),
    "stsyn": _case("/ period=3 enough=2", "drops"),
    "sparta": _case("parts=3 / every=2"),
    "sparta, late": _case("parts=3 / delay=3"),
    "async-mesh": _case("parts=3 / delay=2 every=2"),
    "async-mesh, add-back": _case("parts=3 average_changes=False ahead=0.75 / delay=3"),
    "loscar": _case("parts=3", stop={"gradients": 200}),
    "des-loc": _case("first_every=2 second_every=3 / period=3"),
    "des-loc, of pseudo-gradients": _case("/ elastic period=3"),
    "easgd": _case("/ period=3 elasticity=0.3", "pseudo_gradients"),
    "downpour": _case("/ n_push=2 n_fetch=3", "pseudo_gradients"),
    "bmuf": _case("/ period=5"),
    "bmuf, nesterov": _case("nesterov=True block_momentum=0.5 block_rate=0.8 / period=5"),
    "slowmo": _case(
        "slow_momentum=0.4 slow_rate=0.8 schedule={'name':'exponential_decay','decay_rate':0.5,'transition_steps':10} / period=5"
    ),
    "noloco": _case("/ period=5"),
    "swarm-sgd": _case("/ period=5 / workers=5"),
    "snoo": _case("/ period=5"),
    "fadas": _case("outer_rate=0.4 patience=2 / buffer=2 period=2", "pseudo_gradients"),
    "diloco": _case("/ period=5"),
    "diloco, by time": _case("/ every=0.7"),
    "diloco, paced": _case("/ period=4 paced=True / speeds=[1,1,0.5,0.3]", stop={"gradients": 200}),
    "muloco": _case("learning_rate=0.02 / period=5", task=LAYERS),
    "streaming-diloco": _case("/ period=4 fragments=2 delay=1 mixing=0.25", "has_blocks"),
    "eager-diloco": _case("/ period=5"),
    "eager-diloco, late": _case("/ period=5 eager=False"),
    "decoupled-diloco": _case("/ period=4 quorum=2 overlap=2.0"),
    "decoupled-diloco, in fragments": _case("/ period=4 fragments=2 quorum=2 overlap=3.0", "has_blocks"),
    "palsgd": _case("/ period=5 pulls=0.3"),
    "edit": _case("temperature=0.1 longest=0.2 deviations=0.5 decay=0.1 warm_up=1 / period=5"),
    "async-local": _case("learning_rate=0.0625 / steps=3 bound=9", "pseudo_gradients"),
    "async-batch": _case("learning_rate=0.0625 / steps=3 bound=9"),
    "birch-local": _case("learning_rate=0.0625 / total=7", "drops"),
    "cycle": _case("learning_rate=0.0625 / group_size=2", "pseudo_gradients"),
    "fedbuff": _case("server_rate=0.8 / buffer=3 period=3", "pseudo_gradients"),
    "fedasync": _case("mixing=0.7 exponent=0.6 / period=3"),
    "fedavg": _case("/ clients=2 spare=1 period=3", "pseudo_gradients drops"),
    "fedprox": _case("mu=0.5 / clients=3 period=4", "pseudo_gradients"),
    "fednova": _case("/ period=4 / speeds=[1,1,0.5,0.3]", "pseudo_gradients"),
    "fedadam": _case("server_rate=0.1 tau=0.1 / period=3", "pseudo_gradients"),
    "fedyogi": _case("server_rate=0.1 tau=0.1 / period=3", "pseudo_gradients"),
    "scaffold": _case("server_rate=0.8 / clients=2 spare=1 period=3 late=finish", "pseudo_gradients drops"),
    "fedcompass": _case(
        "server_rate=0.8 exponent=0.6 / period=6 lateness=1.2 / speeds=[1,1,0.5,0.3]",
        "pseudo_gradients stale_in_rounds rounds_vary",
        stop={"gradients": 200},
    ),
    "delayed-nesterov": _case("outer_rate=0.5 gathered=3 spread=0.2 / period=3"),
    "halos": _case(
        "outer_rate=0.5 momentum=0.9 gathered=3 global_rate=0.8 global_momentum=0.4 global_gathered=2 / period=2 pushes=4 mixing=0.25 / servers=3",
        "pseudo_gradients",
    ),
    "cgad": _case("outer_rate=0.05 fading=0.2 cutoff=4 / period=3 paced=True", stop={"gradients": 160}),
    "heloco": _case(
        "outer_rate=0.5 momentum=0.6 agreeing=0.9 turn=0.8 shrink=0.5 most=0.3 / period=3", stop={"gradients": 160}
    ),
    "sparseloco": _case(
        "outer_rate=0.75 codec={'name':'top-k','share':0.25,'error_feedback':0.95,'values':{'name':'low-bit','bits':2,'zero':False}} / period=4",
        "coded",
    ),
    # Three workers, minibatches of three: no sum of gradients is 0, whose sign rounding would decide.
    "demo": _case("codec={'name':'dct','kept':3,'error_feedback':0.9} / / workers=3", "coded", task=TASK | {"batch_size": 3}),
    "eager-sgd": _case("/ start_by=solo period=9", "rounds_vary"),
    "d-psgd": _case("/ weights=metropolis topology=star"),
    "choco-sgd": _case(
        "codec={'name':'top-k','share':0.25,'values':{'name':'low-bit','bits':2,'zero':False}} / topology=star consensus=0.25"
    ),
    "sgp": _case("/ topology=star"),
    "sgp, overlapped": _case("/ topology=exponential overlap=2 / workers=6"),
    "ad-psgd": _case("/ / workers=5", "stale"),
    "wagma-sgd": _case("/ group_size=4 period=5 / workers=8"),
    "wagma-sgd, waiting": _case("/ group_size=4 group_waits=True period=None / workers=8"),
}

PROTOCOLS: dict[str, Definition] = {
    "synchronous": _case("/ backup_workers=1 late=interrupt", "drops"),
    "synchronous, elastic": _case("/ timeout=0.05", "rounds_vary", cluster={"faults": [CRASHES]}),
    "asynchronous": _case("/ clocks=each pulls=at-once / servers=3", "has_blocks stale"),
    "asynchronous, layers overlapped": _case(
        "/ clocks=each cut=layers overlap=True / servers=2", "has_blocks stale", task=LAYERS
    ),
    "dispatcher": _gated("/ dispatcher selection=uniform", "stale gathers", push_gate=periodic(3), fetch_gate=periodic(2)),
    "gated": _gated("/ gated unsent=apply-again", "stale reused", push_gate=periodic(2), fetch_gate=periodic(2)),
    "gated, sums": _gated("/ gated unsent=sum clocks=each / servers=2", "stale gathers has_blocks", push_gate=periodic(3)),
    "partial": _case(
        "/ gradients=2 blocks_percent=60 push_timeout=0.03 pull_timeout=0.01 / servers=3", "has_blocks rounds_vary"
    ),
    "softsync": _case("/ n=2 clocks=each / servers=2", "has_blocks stale_in_rounds"),
    "fresh-batch": _case("/ batch=3 late=finish", "fresh drops"),
    "fresh-from-all": _case("/ batch=8", "fresh drops rounds_vary"),
    "bounded-delay": _case("/ threshold=3 late=finish", "stale drops"),
    "time-limited": _case("/ trials=2 limit=0.12", "fresh drops rounds_vary"),
    "bandit": _case("/ gradients=5 width=0.05", "fresh"),
    "fixed-lag": _case("/ lag=3 ramp=5", "stale"),
    "fixed-lag, varying": _case("/ lag=6 drawn_from=4", "stale"),
    "stale-synchronous": _case("/ bound=2 clocks=each cut=layers overlap=True / servers=2", "has_blocks stale", task=LAYERS),
    "cutoff": _case("/ rule=elfving", "fresh drops rounds_vary"),
    "allreduce": _case("", "fresh rounds_alike"),
    "drop-compute": _case("/ micro_batches=3 measured=3", "fresh rounds_vary"),
    "local-steps": _case("/ period=3"),
    "late-averaging": _case("/ every=2 delay=1"),
    "straggler-tolerant": _case("/ period=2 enough=2", "drops"),
    "elastic": _case("/ period=3", "pseudo_gradients"),
    "accumulating": _case("/ n_push=2 n_fetch=3", "pseudo_gradients"),
    "buffered": _case("/ period=2 buffer=3 grace=0.05", "pseudo_gradients"),
    "client-rounds": _case(
        "/ clients=4 spare=1 period=3 deadline=0.5 minimum=2 late=finish sampling=speed work=speed normalized=True / workers=6 speeds=[1,1,1,0.5,0.5,0.3]",
        "pseudo_gradients drops rounds_vary",
    ),
    "arrival-groups": _case(
        "/ period=5 lateness=1.1 speeds=known decay=0.5 / speeds=[1,1,0.5,0.3]",
        "pseudo_gradients rounds_vary",
        stop={"gradients": 200},
    ),
    "local-sums": _case("/ steps=3 bound=9", "pseudo_gradients drops"),
    "batch-sums": _case("/ steps=3 bound=9", "rounds_alike drops"),
    "local-total": _case("/ total=7", "pseudo_gradients drops"),
    "in-turn": _case("/ group_size=2", "pseudo_gradients"),
    "quorum": _case("/ period=4 quorum=2 fragments=2", "pseudo_gradients has_blocks"),
    "in-pairs": _case("/ period=3 / workers=5"),
    "outer-steps": _case("/ period=4", "pseudo_gradients"),
    "overlapped-steps": _case("/ period=3", "pseudo_gradients"),
    "local-servers": _case("/ period=2 pushes=3 / servers=3", "pseudo_gradients"),
    "streaming": _case("/ period=4 delay=1 mixing=0.5 elastic=True", "pseudo_gradients has_blocks"),
    "eager": _case("/ start_by=majority period=4", "rounds_vary"),
    "gossip": _case("/ topology=exponential overlap=2 / workers=5"),
    "gossip, mixed first": _case("/ topology=star weights=metropolis order=mix-first exchanges=2"),
    "choco": _case("/ topology=ring consensus=0.5", "pseudo_gradients"),
    "pairwise": _case("/ / workers=5"),
    "group-averaging": _case("/ group_size=2 period=3"),
}


CODECS: dict[str, Definition] = {
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

CUTOFFS: dict[str, Definition] = {
    "all": _case("", "rounds_alike"),
    "count": _case("", "cuts_off rounds_alike", rule={"workers": 5}),
    "count-or-deadline": _case("", "cuts_off rounds_vary", rule={"workers": 7, "seconds": 0.2}),
    "elfving, by deadline": _case("", "cuts_off rounds_vary", rule={"by": "deadline"}),
    "deadline": _case("", "cuts_off rounds_vary", rule={"seconds": 0.15}),
    "ewma": _case("", "cuts_off rounds_vary", rule={"of": "node"}),
    "backup": _case("", "cuts_off rounds_vary", rule={"noise": 2.0}),
    "backup, measured": _case(
        "", "cuts_off rounds_vary", rule={"noise": "measured"}, algorithm={"name": "dbw", "smoothness": 3.0}
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
        options = usual(self.entry, {name: value for name, value in self._definition[1].items() if name != "tolerance"})
        algorithm = {"name": "asgd", "learning_rate": RATE} | options.pop("algorithm", {})
        cluster = CLUSTER | options.pop("cluster", {})
        return make_run(algorithm, **{"cluster": cluster, "stop": {"gradients": 120}, "task": TASK, **options})

    @property
    def shows(self) -> tuple[Property, ...]:
        """Return what the outcome has to satisfy: as any run, as one of its kind, and by itself."""
        run, properties = self.run, self._definition[0]
        shows = [outcome_properties.changed, outcome_properties.moved, *properties]
        if run.cluster.network is not None:
            shows.append(outcome_properties.has_bytes)
        if run.cluster.faults:
            shows.append(outcome_properties.workers_rejoin)
        if run.protocol.layout(run.cluster).local(run.cluster.size):
            shows.append(outcome_properties.meets)
        if self.kind == "algorithm":
            shows += _OF_FAMILY.get(run.algorithm.family, ())
        if self.kind == "codec":
            shows.append(outcome_properties.coded)
        if self.kind == "cutoff" and not properties:
            shows += [outcome_properties.cuts_off, outcome_properties.rounds_vary]
        return tuple(dict.fromkeys(shows))

    @property
    def _definition(self) -> Definition:
        return TABLES[self.kind].get(self.name, ((), {}))


_OF_FAMILY: dict[Family, tuple[Property, ...]] = {
    Family.FRESH: (outcome_properties.fresh,),
    **dict.fromkeys((Family.AS_THEY_COME, Family.ANSWERED, Family.OF_ONE_AGE), (outcome_properties.stale,)),
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
    rule_options, algorithm = options.pop("rule", {}), options.pop("algorithm", {})
    variant = registry.lookup("cutoff", name)
    trained = issubclass(variant, DMM) and variant.variant != "shared"
    rule = make_untrained(variant, workers=8) if trained else {"name": name, **rule_options}
    return {
        **{"algorithm": {"name": "cutoff-sgd"} | algorithm, "protocol": {"name": "cutoff", "rule": rule}},
        **{"cluster": {"workers": 8, "nodes": 2, "contention": [SLOW]}, "stop": {"updates": 40}},
        **options,
    }


def make_untrained(rule: type[DMM], workers: int) -> DMM:
    """Return a rule whose network has its first weights, which takes no training to choose by."""
    description = saved.ModelRecord(
        **{"fred": "", "environment": {}, "variant": rule.variant, "workers": workers, "nodes": [0] * workers, "window": 5},
        **{"normaliser": 0.5, "objective": "round", "pace": (0.5, 0.5), "bounds": (-9.0, 9.0), "trace": "", "steps": 0},
        **{"learning_rate": 0.01, "seed": 0, "restart": 0, "curve": []},
    )
    layers = networks.create_network(rule.variant, workers).init(networks.key_of(0), workers)
    params = {layer: {name: np.asarray(array) for name, array in arrays.items()} for layer, arrays in layers.items()}
    return rule(warm_up=3).with_model(saved.Trained(description, params))


def _cases() -> Iterator[Case]:
    for kind, table in TABLES.items():
        for name in dict.fromkeys([*registry.REGISTRY[kind], *table]):
            yield Case(kind, name, table.get(name, ((), {}))[1].get("tolerance", 0.0))


CASES = tuple(_cases())
