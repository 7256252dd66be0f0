"""Each option of each component has an effect: changing it alone changes the schedule, the parameters, a measure, or is refused.

The runs are those of `tests.cases`, which have one for each algorithm, protocol, codec and cutoff rule. Each option is changed to
other values of its type until the outcome is another one. `ELSEWHERE` lists the options that need other circumstances.
"""

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from fred.base.errors import FredError
from fred.components import registry
from fred.components.component import Component, options_of
from fred.outcomes.outcome import Outcome
from fred.running.execution import execute
from fred.specification.shape import Run
from tests.cases import CASES, SEED
from tests.worlds import NETWORK, TASK, make_run

KINDS = ("protocol", "cutoff", "latency", "contention", "fault", "selection", "topology", "codec", "algorithm")
SLOWER = {"workers": 4, "speeds": [1.0, 0.5, 2.0, 1.0]}
SIZES = {**TASK, "division": "by-quantity"}
SECOND = {"name": "constant", "seconds": 1.0}
SHORT: dict[str, Any] = {"mean_up": 1.0, "away": {"name": "constant", "seconds": 0.3}}
# Circumstances in which an option has its effect: the component's other options, values, and parts of the run.
CIRCUMSTANCES: dict[str, tuple[dict[str, Any], list[Any], dict[str, Any]]] = {
    "cutoff deciding": ({}, [SECOND], {}),
    "buffered paced": ({}, [True], {"cluster": SLOWER}),
    "client-rounds weights": ({"weights": "equal"}, ["size"], {"task": SIZES}),
    "arrival-groups weights": ({"weights": "equal"}, ["size"], {"task": SIZES}),
    "softsync gradients": ({"n": 1}, [2], {}),
    "softsync afterwards": ({"n": 1, "gradients": 2}, ["wait"], {}),
    "mixture components": ({"weights": [1.0, 1.0]}, [[SECOND, SECOND]], {}),
    "job nodes": ({}, [[1]], {}),
    "moving-job rest": ({"dwell": 0.2}, [0.2], {}),
    "outage workers": ({"begin": 1.0, "end": 2.0}, [[1]], {}),
    "crashes of": (SHORT, ["servers"], {}),
    "crashes up": ({"mean_up": None, "up": SECOND}, [{"name": "constant", "seconds": 0.5}], {}),
    "crashes away": (SHORT, [{"name": "constant", "seconds": 0.1}], {}),
    "periodic workers": ({"available": 1.0, "period": 2.0}, [[1]], {}),
    "periodic shifts": ({"available": 1.0, "period": 2.0}, [[0.1, 0.2, 0.3, 0.4]], {}),
    "lost-messages ways": ({"share": 0.3, "again_after": 0.1}, [["to-workers"]], {"cluster": {"network": NETWORK}}),
    "lost-messages again_after": ({"share": 0.3, "again_after": 0.1}, [0.5], {"cluster": {"network": NETWORK}}),
    "ad-psgd schedule": ({}, [{"name": "exponential_decay", "transition_steps": 5, "decay_rate": 0.5}], {}),
    "ad-psgd codec": ({}, ["sign"], {}),
    "rescaled-asgd times": ({}, [[1.0, 2.0, 1.0, 1.0]], {}),
    "softmax priorities": ({}, [[5.0, 1.0, 1.0, 1.0]], {}),
}
# Options of training, and of files: tests of these.
_TRAINED = ("digest", "restarts", "steps", "learning_rate", "window")
ELSEWHERE = {
    **dict.fromkeys(("count objective", "hmm states", "hmm passes", "auto candidates"), "test_predictors.py, test_auto.py"),
    **dict.fromkeys((f"{rule} {name}" for rule in ("dmm", "dmm-plain", "dmm-printed") for name in _TRAINED), "test_deep.py"),
    **dict.fromkeys((f"trace {name}" for name in ("columns", "mend", "file", "more", "digest")), "test_traces.py"),
    "empirical column": "test_latency.py",
    "ad-psgd counts": "test_rates.py: an update is one gradient here",
}


def values(component: Component, name: str) -> Iterator[Any]:
    """Yield other values of an option: of its examples, of its type, and of other entries of the registry."""
    field = type(component).model_fields[name]
    value = getattr(component, name)
    yield from field.examples or []
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, (int, float)):
        yield from (2 * value, value + 1, value / 2, value + 0.25, 0, 1, 2, 3)
    elif value is None:
        yield from (1, 2, 0.5, 0.05, 3, True, "sgd", "constant")
    elif isinstance(value, tuple) and value and isinstance(value[0], (int, float)):
        yield from ([2 * item for item in value], [*value[1:], value[0]], value[:1])
    elif isinstance(value, tuple):
        yield from ((), [0], [1], [0.5], [[0, 1]])
    yield from _literals(field.annotation)
    if isinstance(value, Component):
        kind = next((kind for kind, entries in registry.REGISTRY.items() if _has_entry(entries, value)), None)
        yield from (registry.lookup(kind, entry).example() for entry in registry.REGISTRY[kind]) if kind else ()


def _has_entry(entries: Any, value: Component) -> bool:
    return any(str(path).endswith(f":{type(value).__name__}") for path in entries.values())


def _literals(annotation: Any) -> Iterator[Any]:
    for argument in get_args(annotation):
        if isinstance(argument, str):
            yield argument
        elif not isinstance(argument, (int, float)) and argument is not None:
            yield from _literals(argument)


def facts(run: Run) -> tuple[Any, ...]:
    """Return the results of a run, or the reason why it cannot run."""
    try:
        outcome: Outcome = execute("run", run, SEED, inline=run.task is not None)
    except FredError as error:
        return ("refused", str(error))
    metrics = tuple(map(tuple, outcome.metrics.to_numpy().tolist())) if run.task is not None else ()
    return (outcome.schedule_digest, outcome.params_digest, repr(metrics), repr(outcome.summary))


def replace_component(run: Run, kind: str, new: Component) -> Run:
    """Return the run with another component in the place of the one under test."""
    cluster, protocol, algorithm = run.cluster, run.protocol, run.algorithm
    if kind in ("latency", "contention", "fault"):
        part, value = {"latency": ("compute", new), "contention": ("contention", (new,)), "fault": ("faults", (new,))}[kind]
        return Run.model_validate({**options_of(run), "cluster": {**options_of(cluster), part: value}})
    if kind == "codec":
        return Run.model_validate({**options_of(run), "algorithm": algorithm.model_copy(update={"codec": new})})
    if kind in ("cutoff", "selection", "topology"):
        place = {"cutoff": "rule"}.get(kind, kind)
        return Run.model_validate({**options_of(run), "protocol": protocol.model_copy(update={place: new})})
    return Run.model_validate({**options_of(run), kind: new})


def component_of(run: Run, kind: str) -> Component:
    """Return the component under test."""
    holder, place = {"codec": (run.algorithm, "codec"), "cutoff": (run.protocol, "rule")}.get(kind, (run, kind))
    return getattr(holder, place)


def run_of(kind: str, name: str, cluster_options: dict[str, Any]) -> Run:
    """Return a run with an entry that has no case, on a cluster with these options."""
    new = registry.lookup(kind, name).example()
    protocols = {"selection": "dispatcher", "topology": "gossip"}
    cluster = {"workers": 4, "nodes": 2, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.5}, **cluster_options}
    usual = make_run("d-psgd" if kind == "topology" else "asgd", protocol=protocols.get(kind), cluster=cluster, task=None)
    return replace_component(usual, kind, new)


def options_tested() -> Iterator[Any]:
    """Yield each option once: of the first component that has it from the class that defines it."""
    done = set()
    for kind in KINDS:
        for entry in registry.REGISTRY[kind]:
            cls = registry.lookup(kind, entry)
            for name in cls.model_fields:
                definer = next(base for base in reversed(cls.__mro__) if name in vars(base).get("__annotations__", {}))
                is_tested = (definer, name) in done
                done.add((definer, name))
                if not is_tested and f"{entry} {name}" not in ELSEWHERE:
                    yield pytest.param(kind, entry, name, id=f"{kind}-{entry}-{name}")


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "entry", "name"), options_tested())
def test_changing_an_option_alone_has_an_effect(kind, entry, name):
    cases = [case.run for case in CASES if case.kind == kind and case.entry == entry]
    attempts = 0
    options, candidates, parts = CIRCUMSTANCES.get(f"{entry} {name}", ({}, [], {}))
    for run in cases or [run_of(kind, entry, parts.get("cluster", {}))]:
        component = component_of(run, kind) if cases else registry.lookup(kind, entry).example()
        component = component.model_copy(update=options)
        if "cluster" in parts and cases:
            run = run.model_copy(update={"cluster": {**options_of(run.cluster), **parts["cluster"]}})
        for task in dict.fromkeys(
            (run.task if run.protocol.needs_values or kind in ("algorithm", "codec") else None, run.task)
        ):
            world = run.model_copy(
                update={"task": task, **{name: parts[name] for name in ("task", "algorithm") if name in parts}}
            )
            usual = facts(replace_component(world, kind, component))
            assert usual[0] != "refused", usual
            for value in candidates or values(component, name):
                try:
                    other = component.model_copy(update={name: value})
                except ValidationError as error:
                    if all(problem["type"] == "value_error" for problem in error.errors()):
                        return  # refused for a reason, not for its type
                    continue
                if other == component:
                    continue
                attempts += 1
                try:
                    if facts(replace_component(world, kind, other)) != usual:
                        return
                except ValidationError:
                    return  # refused in this run
    assert not attempts, f"{attempts} other values of `{name}` change nothing"
    pytest.fail(f"no other value of `{name}` is tried")
