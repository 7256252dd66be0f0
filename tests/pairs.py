"""Which pairs of features of runs were met, of all that can go together."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import combinations
from typing import Any

from fred.cluster.cluster import Cluster
from fred.components import registry
from fred.components.component import Component, options_of
from fred.specification.loading import Scenario
from fred.specification.shape import Run
from tests.random_runs import ALGORITHMS, CLOCKLESS, GATED, PROTOCOLS

Features = frozenset[str]
_CLASSES = {kind: {name: registry.lookup(kind, name) for name in registry.REGISTRY[kind]} for kind in ("algorithm", "protocol")}
_SEVERAL = ("latency", "contention", "fault", "optimizer", "schedule", "gate")  # kinds of which a run can have several
_LEARNS = ("task", "data", "model", "stop.target_loss", "evaluate.target_loss", "evaluate.target_error", "gates")
_TIMED = ("fault", "outage", "crashes", "lost-messages", "stop.seconds", "evaluate.every_seconds")
_OF_SERVERS = ("outage.servers", "crashes.of")
_OTHERWISE = {  # of these one at most
    "speed": ("cluster.groups", "cluster.speeds", "cluster.times"),
    "cadence": ("evaluate.points", "evaluate.every_updates", "evaluate.every_gradients", "evaluate.every_seconds"),
    "push gate": ("protocol.c_push", "protocol.k_push", "protocol.push_gate"),
    "fetch gate": ("protocol.c_fetch", "protocol.k_fetch", "protocol.fetch_gate"),
}


def features_of(scenario: Scenario) -> list[Features]:
    """The features of each run: all that is not as it is where nothing is said."""
    shared = {"sweep"} if scenario.points else set()
    shared |= {"several runs"} if len(scenario.runs) > max(1, len(scenario.points)) else set()
    shared |= {"several seeds"} if len(scenario.seeds) > 1 else set()
    return [frozenset((*_of_run(run), *shared)) for run in scenario.runs.values()]


def pairs_of(features: Iterable[Features]) -> set[tuple[str, str]]:
    """All pairs that some run has."""
    return {pair for own in features for pair in combinations(sorted(own), 2)}


def report(runs: list[Features], missing: bool = False) -> str:
    """Return the number of pairs met of all possible pairs of features, and the missing ones if asked for."""
    met, every = pairs_of(runs), sorted(frozenset().union(*runs))
    possible = {(one, other) for one, other in combinations(every, 2) if _compatible(one, other)}
    lines = [f"{len(every)} features; of {len(possible | met):,} pairs that can go together, {len(met):,} were met"]
    never: dict[str, list[str]] = defaultdict(list)
    for one, other in sorted(possible - met):
        never[one].append(other)
    return "\n".join(lines + ([f"never {one} with {', '.join(others)}" for one, others in never.items()] if missing else []))


def _of_run(run: Run) -> Iterator[str]:
    yield from ("task: none",) if run.task is None else ()
    for part in Run.model_fields:
        value = getattr(run, part)
        if part in ("algorithm", "protocol"):
            yield f"{part}: {registry.name_of(part, value)}"
            yield from _of_options(value, registry.name_of(part, value), part)
        elif value is not None:
            yield from _of_options(value, part, part)


def _of_options(component: Any, own: str, inherited: str) -> Iterator[str]:
    """Yield the options of a component that differ from their defaults; `own`: the owner of its class's options."""
    for name, field in type(component).model_fields.items():
        value = getattr(component, name)
        if not field.is_required() and value == field.get_default():
            continue
        option = f"{own if name in type(component).__annotations__ else inherited}.{name}"
        parts = value if isinstance(value, tuple) else (value,)
        for part in parts if any(isinstance(part, Component) for part in parts) else ():
            yield from _of_part(part, option)
        if isinstance(value, str):
            yield f"{option}: {value}"
        elif not field.is_required():
            yield option


def _of_part(part: Component, option: str) -> Iterator[str]:
    kind = next((kind for kind, base in registry.BASES.items() if isinstance(part, registry._load(base))), "")
    if kind:
        name = registry.name_of(kind, part)
        yield f"{kind}: {name}"
        if kind != "latency":
            yield from _of_options(part, name, name)
    elif "name" in options_of(part):
        yield f"{option.partition('.')[2]}: {options_of(part)['name']}"
    else:
        yield from _of_options(part, option, option)


def _compatible(one: str, other: str) -> bool:
    """Return whether a run can have both."""
    mine, theirs = _needs(one), _needs(other)
    return all(mine[axis] & theirs[axis] for axis in mine.keys() & theirs.keys())


@cache
def _needs(feature: str) -> dict[str, frozenset[Any]]:
    """Return the requirements of a feature: axis -> any of these."""
    option, _, value = feature.partition(": ")
    owner, _, name = option.partition(".")
    needs: dict[str, frozenset[Any]] = {}
    if value and option not in _SEVERAL and owner not in registry.REGISTRY["contention"]:
        needs[option] = frozenset([value])
    for axis, of in _OTHERWISE.items():
        if option in of:
            needs[axis] = frozenset([option])
    of_gradients = name in ("c_push", "c_fetch") or owner == "statistical" or feature == "gate: statistical"
    if option in _LEARNS or owner in _LEARNS or of_gradients:
        needs["learns"] = frozenset([feature != "task: none"])
    if of_gradients:
        needs["algorithm"] = frozenset(each for each in ALGORITHMS if _CLASSES["algorithm"][each].has_statistic)
    for kind, classes in _CLASSES.items():
        if owner in classes:
            needs[kind] = frozenset([owner])
        elif owner == kind and name:
            having = frozenset(each for each, cls in classes.items() if name in cls.model_fields)
            needs[kind] = needs.get(kind, having) & having
    if (protocols := _protocols(option, owner)) is not None:
        needs["protocol"] = needs.get("protocol", protocols) & protocols
    return needs


def _protocols(option: str, owner: str) -> frozenset[str] | None:
    """Those that a feature can go with, if it cannot with all."""
    cluster = Cluster(workers=4)
    layouts = {name: cls.model_validate({}).layout(cluster) for name, cls in _CLASSES["protocol"].items()}
    if option == "gate" or owner in registry.REGISTRY["gate"]:
        return frozenset(GATED)
    if option in ("cutoff", "selection"):
        return frozenset(["cutoff" if option == "cutoff" else "dispatcher"])
    if option == "topology" or owner in registry.REGISTRY["topology"]:
        return frozenset(["gossip", "pairwise"])
    if option in _OF_SERVERS:
        return frozenset(name for name, layout in layouts.items() if layout.on_servers and name not in CLOCKLESS)
    if option == "task.replicas_start":
        return frozenset(name for name, layout in layouts.items() if layout.replicas >= cluster.size)
    if option in _TIMED or owner in _TIMED:
        return frozenset(PROTOCOLS) - frozenset(CLOCKLESS)
    return None
