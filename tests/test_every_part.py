"""Each option of each part of a scenario has an effect: changing it alone changes the results.

The options are those of all models that can occur in a scenario, other than the components of `test_every_option.py`. `HOMES` has
for each model settings in which its options have their effect, with values made from their types; `CIRCUMSTANCES` has the options
that need other settings or values. `EXCEPTIONS` has reasons why some have none.
"""

import contextlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import jax
import numpy as np
import pytest

import fred
from fred.base.errors import FredError
from fred.components import registry
from fred.components.component import Component
from fred.components.one_of import OneOf
from fred.learning.data.dataset import loaded
from fred.learning.loss import initial_params
from fred.running.execution import execute
from fred.specification.effects import check_effects, unused_options
from fred.specification.loading import Scenario, validated
from fred.specification.shape import Run
from fred.specification.source import merged
from fred.specification.sweep import Sweep
from tests.cases import CASES
from tests.test_every_option import KINDS, values
from tests.worlds import LAYERS, TASK

Options = dict[str, Any]


def merge(*parts: Options) -> Options:
    """Return settings merged one into the other."""
    settings: Options = {}
    for part in parts:
        settings = merged(settings, part)
    return {key: value for key, value in settings.items() if value is not None}


def constant(seconds: float) -> Options:
    return {"name": "constant", "seconds": seconds}


def system(name: str, **protocol: Any) -> Options:
    return {"algorithm": {"name": name, "learning_rate": 0.1}, "protocol": protocol or None}


def network(**options: Any) -> Options:
    varying = {"name": "lognormal", "median": 0.02, "sigma": 0.5}
    return {"cluster": {"network": {"latency": varying, "bandwidth": 1e6, "message_bytes": 100_000, **options}}}


def regions(**options: Any) -> Options:
    table = {"bandwidth": [[1e6, 1e5], [1e5, 1e6]]}
    return {"cluster": {"network": {"latency": constant(0.02), "message_bytes": 100_000, "regions": {**table, **options}}}}


def failures(checkpoint: Any = None, **options: Any) -> Options:
    causes = [{"mean_up": 4.0, "repair": constant(0.5)}]
    often = checkpoint or {"every_seconds": 1.0, "pause": 0.1}
    job = {"failures": {"causes": causes, "checkpoint": often, **options}}
    return {**system("ssgd"), "cluster": job, "stop": {"gradients": None, "seconds": 8.0}}


def prices(**entries: Any) -> Options:
    return {"cluster": {"prices": entries}}


def data(name: str, **options: Any) -> Options:
    return {"task": {**TASK, "data": {"name": name, **options}}}


def sweep(**options: Any) -> Options:
    return {"sweep": {"over": {"cluster.workers": [2, 3, 4, 5, 6]}, **options}}


USUAL: Options = {
    "algorithm": {"name": "asgd", "learning_rate": 0.1},
    "cluster": {"workers": 4, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.5}},
    "stop": {"gradients": 30},
    "evaluate": {"points": 3},
}
TWO_NODES, TWO_SERVERS, PEERS = {"cluster": {"nodes": 2}}, {"cluster": {"servers": 2}}, system("allreduce-sgd")
LEARNS = {"task": TASK}
GROUPS: Options = {"cluster": {"workers": None, "groups": [{"workers": 3}, {"workers": 1}]}}
OUTAGE = {"cluster": {"faults": [{"name": "outage", "workers": [0], "begin": 0.2, "end": 0.4}]}}
SERVER_OUTAGE = {"cluster": {"faults": [{"name": "outage", "servers": [0], "begin": 0.2, "end": 0.4}]}}
FAIR = network(sharing="fair", server_bandwidth=1e6)
JOB = {"name": "job", "nodes": [0], "slowdown": 2.0}
WAY, OTHER_WAY = ({"between": [[worker], "servers"], "through": [name]} for worker, name in enumerate(("up", "site")))
ROUTED = merge(FAIR, {"cluster": {"network": {"links": {"up": 1e5, "site": 2e5}, "routes": [WAY, OTHER_WAY]}}})
RARE = [{"mean_up": 10.0}]
CARRIED = merge(network(), failures({"to": "store", "bytes": 100_000, "every_seconds": 0.5}, causes=RARE), PEERS)
SPECIAL = network(servers=[{"servers": [0], "bandwidth": 1e5}])
PRICED, SERVER_PRICED = prices(workers=[{"per_hour": 3.0}]), prices(servers=[{"per_hour": 3.0}])
SECOND_PRICE = prices(workers=[{"per_hour": 3.0}, {"per_hour": 9.0, "workers": [1, 2, 3]}])
SECOND_OF_SERVERS = prices(servers=[{"per_hour": 3.0}, {"per_hour": 9.0, "servers": [1, 2]}])
SEQUENCES = {"examples": 12, "evaluation": 3}
RUNS = {"runs": {name: system(name) for name in ("asgd", "ssgd")}, "algorithm": None, "seeds": [1, 2, 3, 4, 5]}
COMPARED = merge(RUNS, {"seeds": list(range(10)), "until": {"within": 0.01, "seeds": 12}})
STATISTICAL = {"name": "statistical", "c": 0.2, "epsilon": 0.1}
CLOCKLESS: Options = {"protocol": {"name": "dispatcher"}, "cluster": {"compute": constant(1.0)}}
# By the path of a model: settings in which its options have their effect.
HOMES: dict[str, Options] = {
    "cluster": {},
    "cluster/groups/0": GROUPS,
    "cluster/devices": {"cluster": {"devices": {"kinds": [{"speed": 2.0}, {"speed": 1.0}]}}},
    "cluster/devices/kinds/0": merge(network(), {"cluster": {"devices": {"kinds": [{}]}}}),
    "cluster/network": network(),
    "cluster/network/servers/0": SPECIAL,
    "cluster/network/within": merge(network(within={}), TWO_NODES, PEERS),
    "cluster/network/contention/0": network(contention=[{"regime": JOB}]),
    "cluster/network/regions": regions(),
    "cluster/network/routes/1": ROUTED,
    "cluster/failures": failures(),
    "cluster/failures/causes/0": failures(),
    "cluster/failures/checkpoint": failures(),
    "cluster/prices": merge(network(), PRICED),
    "cluster/prices/workers/0": merge(network(), PRICED),
    "cluster/prices/workers/1": merge(regions(), GROUPS, SECOND_PRICE),
    "cluster/prices/servers/0": SERVER_PRICED,
    "cluster/prices/servers/1": merge(regions(servers=[0, 1, 0]), {"cluster": {"servers": 3}}, SECOND_OF_SERVERS),
    "stop": {},
    "evaluate": {},
    "task": LEARNS,
    "task/data": data("synthetic-classification", examples=20, evaluation=5),
    "task/data,synthetic-regression": data("synthetic-regression", examples=20, evaluation=5),
    "task/data,noise": data("noise", examples=20),
    "task/data,digits": data("digits"),
    "task/data,arrays": data("arrays", file="mine.npz"),
    "task/data,bigrams": data("bigrams", **SEQUENCES),
    "task/data,shuffle-dyck": data("shuffle-dyck", **SEQUENCES),
    "task/data,recall": data("recall", **SEQUENCES),
    "task/data,text": data("text", file="mine.txt"),
    "task/model": {"task": LAYERS},
    "task/model,cnn": merge(data("digits"), {"task": {"model": {"name": "cnn", "channels": [2], "hidden": 4}}}),
    "task/model,quadratic": {
        "task": {"data": {"name": "noise", "examples": 20}, "model": {"name": "quadratic", "dimension": 4}}
    },
    "task/model,transformer": {
        "task": {
            "data": {"name": "bigrams", "vocabulary": 4, "context": 4, **SEQUENCES},
            "model": {"name": "transformer", "layers": 1, "width": 4, "heads": 2},
        }
    },
    "task/loss": {"task": {**TASK, "loss": "cross-entropy"}},
    "protocol/push_gate": merge(CLOCKLESS, {"protocol": {"push_gate": {"name": "periodic", "k": 2}}}),
    "protocol/push_gate,statistical": merge(
        LEARNS, CLOCKLESS, {"algorithm": {"name": "b-fasgd", "learning_rate": 0.1}}, {"protocol": {"push_gate": STATISTICAL}}
    ),
    "": RUNS,
    "until": COMPARED,
    "sweep": sweep(),
    "sweep/over/algorithm.learning_rate": {
        "sweep": {"over": {"algorithm.learning_rate": {"first": 1.0, "last": 2.0, "number": 4}}}
    },
}
# By the path of an option: other settings, and another value.
CIRCUMSTANCES: dict[str, tuple[Options, Any]] = {
    "cluster/groups": (GROUPS, [{"workers": 4, "speed": 2.0}]),
    "cluster/speeds": ({}, [1.0, 2.0, 1.0, 1.0]),
    "cluster/devices": ({}, {"kinds": [{"speed": 2.0}]}),
    "cluster/devices/file": ({"cluster": {"devices": {"file": "devices.csv"}}}, "slow-devices.csv"),
    **{
        f"cluster/devices/{name}": (merge(network(), {"cluster": {"devices": {"speed": constant(1.0)}}}), constant(2e4))
        for name in ("speed", "upload", "download")
    },
    "cluster/contention": ({}, [JOB]),
    "cluster/network": ({}, network()["cluster"]["network"]),
    "cluster/network/name": ({"cluster": {"network": {"message_bytes": 100_000}}}, "ethernet-1"),
    "cluster/faults": ({}, OUTAGE["cluster"]["faults"]),
    "cluster/failures": (system("ssgd"), {"causes": [{"mean_up": 1.0}], "checkpoint": {"every_updates": 3}}),
    "cluster/prices": ({}, PRICED["cluster"]["prices"]),
    "cluster/network/servers": (network(), SPECIAL["cluster"]["network"]["servers"]),
    "cluster/network/servers/0/servers": (merge(SPECIAL, TWO_SERVERS), [0, 1]),
    "cluster/network/within": (merge(network(), TWO_NODES, PEERS), {"bandwidth": 1e7}),
    "cluster/network/contention": (network(), [{"regime": JOB}]),
    "cluster/network/window": (FAIR, 5e3),
    "cluster/network/initial_window": (FAIR, 1e3),
    "cluster/network/weights": (FAIR, "latency"),
    "cluster/network/collective": (merge(network(), PEERS), "tree"),
    "cluster/network/store_bandwidth": (merge(network(collective="store"), PEERS), 1e5),
    "cluster/network/buckets": (merge(network(), PEERS), 3),
    "cluster/network/regions": ({"cluster": {"network": {"message_bytes": 100_000}}}, {"bandwidth": [[1e6, 1e5], [1e5, 1e6]]}),
    "cluster/network/regions/latency": (
        merge(regions(), {"cluster": {"network": {"latency": constant(0.0)}}}),
        [[0.1, 0.1], [0.1, 0.1]],
    ),
    "cluster/network/regions/workers": (regions(), [1, 1, 1, 0]),
    "cluster/network/regions/collective": (merge(regions(), PEERS), "hierarchical"),
    "cluster/network/links": (ROUTED, {"up": 1e4, "site": 2e5}),
    "cluster/network/routes": (ROUTED, [WAY | {"between": [[0, 2], "servers"]}, OTHER_WAY]),
    "cluster/network/routes/1/through": (ROUTED, ["up", "site"]),
    "cluster/failures/causes": (failures(), [{"mean_up": 1.0}]),
    "cluster/failures/file": (failures(file="failures.csv"), "later-failures.csv"),
    "cluster/failures/recorded": (failures(), [[0, 3, 5]]),
    "cluster/failures/at_updates": (failures(), [[3, 0, 2.0]]),
    "cluster/failures/checkpoint": (failures(), {"every_updates": 2}),
    "cluster/failures/crews": (failures(spares=1), 1),
    "cluster/failures/causes/0/of": (merge(failures(), TWO_NODES), "nodes"),
    "cluster/failures/causes/0/rate": (failures(), {"name": "uniform", "low": 0.5, "high": 4.0}),
    "cluster/failures/causes/0/up": (failures(causes=[{"up": constant(3.0)}]), constant(2.0)),
    "cluster/failures/checkpoint/every_updates": (failures({"every_updates": 7}), 3),
    **{
        f"cluster/failures/checkpoint/{name}": (CARRIED, value)
        for name, value in {"to": "peers", "bytes": 300_000, "store_bandwidth": 1e5, "blocking": True}.items()
    },
    "cluster/prices/servers": (PRICED, [{"per_hour": 4.0}]),
    "cluster/prices/per_kwh": (prices(workers=[{"busy_watts": 300.0}]), 4.0),
    "cluster/prices/workers/0/paid_while_away": (merge(OUTAGE, PRICED), True),
    "cluster/prices/servers/0/paid_while_away": (merge(SERVER_OUTAGE, SERVER_PRICED), True),
    "stop/tokens": (
        merge(HOMES["task/model,transformer"], {"stop": {"gradients": None, "tokens": 600}}),
        900,
    ),
    "stop/target_loss": (LEARNS, 1.2),
    **{f"evaluate/every_{unit}": ({"evaluate": {"points": None, f"every_{unit}": 20}}, 5) for unit in ("updates", "gradients")},
    "evaluate/every_seconds": ({"evaluate": {"points": None, "every_seconds": 0.5}}, 0.2),
    **{f"evaluate/target_{name}": (LEARNS, 0.9) for name in ("loss", "error", "gradient_norm")},
    "evaluate/gradient_norm": (LEARNS, True),
    "task": ({}, TASK),
    "task/loss": (LEARNS, "squared-error"),
    "task/concentration": ({"task": {**TASK, "division": "dirichlet"}}, 0.1),
    "task/division_seed": ({"task": {**TASK, "division": "divided"}}, 7),
    "task/replicas_start": (merge({"task": LAYERS}, system("d-psgd")), "apart"),
    "task/data,text/file": (data("text", file="mine.txt"), "other.txt"),
    "task/data,arrays/file": (data("arrays", file="mine.npz"), "other.npz"),
    "report_seeds": (sweep(), [11]),
    "runs": (RUNS, {"asgd": system("asgd"), "easgd": system("easgd")}),
    "sweep/over": (sweep(), {"cluster/workers": [2, 3]}),
    "sweep/best": (sweep(), "lowest throughput"),
}
_OF_RUNS = "a part of a run, without which there is none: its own options are here"
EXCEPTIONS = {
    "Scenario title": "a text for the reader",
    "Scenario comment": "a text for the reader",
    "Scenario points": "written by `sweep`",
    "Scenario best": "written by `sweep`",
    "Point of": "written by `sweep`",
    "Point values": "written by `sweep`",
    "Point later": "written by `sweep.start`",
    "Transformation name": "a function of optax: the option `optimizer` of algorithms",
    "RateSchedule name": "a function of optax: the option `schedule` of algorithms",
    "Arrays digest": "filled in by FRED: `test_inputs.py` refuses another one",
    **dict.fromkeys((f"{part} from" for part in ("Failures", "PricedWorkers", "PricedServers")), "test_small_tables.py"),
    **dict.fromkeys((f"MNIST {name}" for name in ("directory", "canonical", "validation", "evaluation")), "test_learning.py"),
    **dict.fromkeys(("CIFAR10 directory", "CIFAR10 evaluation"), "test_learning.py"),
    **dict.fromkeys((f"Run {name}" for name in ("cluster", "algorithm", "protocol", "stop", "evaluate")), _OF_RUNS),
}


def models() -> dict[type[Component], None]:
    """Return all models that can occur in a scenario or a sweep, by the types of their fields."""
    classes: dict[type[Component], None] = {}
    waiting: list[type[Component]] = [Scenario, Sweep]
    while waiting:
        cls = waiting.pop()
        if cls not in classes:
            classes[cls] = None
            for field in cls.model_fields.values():
                waiting += _models_in(field.annotation, field.metadata)
    return classes


def _models_in(annotation: Any, metadata: Any = ()) -> Iterator[type[Component]]:
    if kinds := [marker.kind for marker in metadata if isinstance(marker, OneOf)]:
        yield from (registry.lookup(kind, name) for kind in kinds for name in registry.REGISTRY[kind])
    elif get_origin(annotation) is Annotated:
        yield from _models_in(annotation.__origin__, annotation.__metadata__)
    elif isinstance(annotation, type) and issubclass(annotation, Component):
        yield annotation
    else:
        for part in get_args(annotation):
            yield from _models_in(part)


def components_of(*kinds: str) -> set[type[Component]]:
    """Return the components of some kinds that a scenario can name."""
    return {registry.lookup(kind, name) for kind in kinds for name in registry.REGISTRY[kind]}


def option(cls: type[Component], name: str) -> str:
    """Return an option as `Class option`; an option that several components inherit has the name of their base class."""
    definers = [base for base in reversed(cls.__mro__) if name in vars(base).get("__annotations__", {})]
    return f"{(definers[0] if cls in components_of(*registry.REGISTRY) else cls).__name__} {name}"


def options() -> set[str]:
    """Return all options that are tested here, and the exceptions."""
    return {option(cls, name) for cls in set(models()) - components_of(*KINDS) for name in cls.model_fields}


def find(path: str, settings: Options) -> Any:
    """Return the part of a scenario at a path."""
    first, *keys = _strip_name(path).split("/")
    scenario = fred.scenario(merge(USUAL, settings))
    if first in ("sweep", ""):
        part: Any = scenario if first == "" else Sweep.model_validate(settings["sweep"])
    else:
        part = getattr(scenario if first == "until" else next(iter(scenario.runs.values())), first)
    for key in keys:
        part = part[key] if isinstance(part, dict) else part[int(key)] if key.isdigit() else getattr(part, key)
    return part


def _strip_name(path: str) -> str:
    """Return a path without what distinguishes it from that of another component."""
    return re.sub(r",[\w-]+", "", path)


def replace_value(settings: Any, path: str, value: Any) -> Any:
    """Return settings with another value at a path."""
    first, _, rest = path.partition("/")
    if isinstance(settings, str):
        settings = {"name": settings}
    if isinstance(settings, list | tuple):
        return [replace_value(item, rest, value) if number == int(first) else item for number, item in enumerate(settings)]
    return {**(settings or {}), first: replace_value((settings or {}).get(first), rest, value) if rest else value}


def results(path: str, settings: Options) -> Any:
    """Return the results of settings that the option at a path may change. Raises FredError if they are refused."""
    scenario = fred.scenario(merge(USUAL, settings))
    if path.startswith(("seeds", "report_seeds", "runs", "baseline", "until", "sweep")):
        result = fred.run(scenario)
        best = result.best.to_dict() if result.swept else None
        return repr(
            ([(outcome.name, outcome.seed) for outcome in result.outcomes], best, result.paired.to_dict(), result.notes)
        )
    run = next(iter(scenario.runs.values()))
    if path.startswith(("task/data/", "task/model/")):
        assert run.task is not None
        data = loaded(run.task.data, 0)
        if path.startswith("task/data/"):
            return data.digest
        params = initial_params(run.task.model, data, 0)
        trained = jax.tree.map(lambda leaf: leaf + np.linspace(0, 1, leaf.size, dtype=np.float32).reshape(leaf.shape), params)
        outputs = run.task.model.apply(trained, data.train[:3].inputs)
        return repr(jax.tree.map(np.shape, params)), np.asarray(outputs).tobytes()
    outcome = execute("run", run, 3)
    times = outcome.run_times.to_numpy().tolist() if outcome.has_clock else None
    return outcome.params_digest, repr((outcome.metrics.to_numpy().tolist(), outcome.summary, times))


def proposals(part: Component, name: str) -> Iterator[Any]:
    """Yield other values of an option."""
    field = type(part).model_fields[name]
    annotated = [
        *field.metadata,
        *(marker for part in get_args(field.annotation) for marker in getattr(part, "__metadata__", ())),
    ]
    if any(isinstance(marker, OneOf) and marker.kind == "latency" for marker in annotated):
        yield from (constant(0.5), constant(0.05))
    yield from values(part, name)


@cache
def rows() -> dict[str, list[tuple[str, Options, list[Any] | None]]]:
    """Return where each option is places_by_option, by `Class option`: the path of the option, settings, and values, if they are given."""
    places_by_option: dict[str, list[tuple[str, Options, list[Any] | None]]] = {}
    for path, (settings, value) in CIRCUMSTANCES.items():
        home, _, name = path.rpartition("/")
        cls = Run if name in Run.model_fields and not home else type(find(home, settings))
        places_by_option.setdefault(option(cls, name), []).append((_strip_name(path), settings, [value]))
    for home, settings in HOMES.items():
        cls = type(find(home, settings))
        for name in cls.model_fields:
            path = f"{_strip_name(home)}/{name}".lstrip("/")
            places_by_option.setdefault(option(cls, name), []).append((path, settings, None))
    return {name: places for name, places in places_by_option.items() if name not in EXCEPTIONS}


def learns(name: str) -> bool:
    """Return True if an option is tried in runs that learn, which are compiled."""
    cls, _, option_name = name.partition(" ")
    return cls in {component.__name__ for component in components_of("loss", "model", "data", "gate")} | {
        "Task"
    } or option_name.startswith(("target", "gradient_norm", "tokens"))


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The files that settings name, in the current folder."""
    monkeypatch.chdir(tmp_path)
    inputs, answers = np.linspace(-1, 1, 120, dtype=np.float32).reshape(40, 3), np.arange(40) % 3
    for name, factor in (("mine", 1), ("other", 2)):
        fred.arrays(f"{name}.npz", (factor * inputs[:30], answers[:30]), (inputs[30:], answers[30:]))
        Path(f"{name}.txt").write_text(name * 100)
    for name, number in (("devices", 1), ("slow-devices", 2)):
        Path(f"{name}.csv").write_text(f"speed\n{1 / number}\n")
    for name, number in (("failures", 1), ("later-failures", 2)):
        Path(f"{name}.csv").write_text(f"worker,down,up\n0,{number},{number + 1}\n")


def test_each_option_of_a_scenario_is_tried_or_has_a_reason_why_not(files):
    assert not EXCEPTIONS.keys() - options()
    assert rows().keys() == options() - EXCEPTIONS.keys()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.nightly if learns(name) else pytest.mark.slow)
        for name in sorted(options() - EXCEPTIONS.keys())
    ],
)
def test_changing_an_option_of_a_part_alone_has_an_effect(name, files):
    attempts = []
    for path, settings, candidates in rows()[name]:
        usual = results(path, settings)
        home, _, option_name = path.rpartition("/")
        for value in candidates or proposals(find(home, settings), option_name):
            try:
                if results(path, replace_value(settings, path, value)) != usual:
                    return
            except FredError as error:
                attempts.append(f"{value!r} is refused: {error}")
            else:
                attempts.append(f"{value!r} changes nothing")
    pytest.fail("\n".join(attempts))


REGIONAL = {"bandwidth": [[1e6, 1e5], [1e5, 1e6]], "latency": [[0.01, 0.1], [0.1, 0.01]]}
# Options that some protocols do not use: a network, and the option with its value.
OF_SOME_PROTOCOLS: list[tuple[Options, str, Any]] = [
    *(
        (network(), f"cluster/network/{name}", value)
        for name, value in {
            "pull_latency": constant(0.1),
            "server_bandwidth": 1e5,
            "servers": SPECIAL["cluster"]["network"]["servers"],
            "node_bandwidth": 1e5,
            "within": {"bandwidth": 1e4},
            "contention": [{"of": "servers", "regime": JOB}],
            "collective": "tree",
            "buckets": 3,
        }.items()
    ),
    (network(collective="store"), "cluster/network/store_bandwidth", 1e5),
    (merge(network(), {"cluster": {"nodes": 1}}), "cluster/network/node_bandwidth", 1e5),
    (merge(network(), {"cluster": {"nodes": 4}}), "cluster/network/within", {"bandwidth": 1e4}),
    (network(sharing="fair"), "cluster/network/initial_window", 1e3),
    (network(sharing="fair", latency=constant(0.0)), "cluster/network/window", 1e3),
    (network(sharing="fair", latency=constant(0.1)), "cluster/network/weights", "latency"),
    (network(bandwidth=None), "cluster/network/efficiency", 0.5),
    (regions(), "cluster/network/regions/servers", 1),
    (regions(), "cluster/network/regions/collective", "hierarchical"),
    *((regions(**REGIONAL), f"cluster/network/{name}", constant(0.3)) for name in ("latency", "pull_latency")),
    *(
        (network(), "cluster/faults", [{"name": "lost-messages", "share": 0.3, "again_after": 0.05, "ways": ways}])
        for ways in (["to-servers", "to-workers"], ["between-workers"])
    ),
    (network(), "cluster/servers", 2),
    (PRICED, "cluster/prices/servers", [{"per_hour": 3.0}]),
]


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(registry.REGISTRY["protocol"]))
def test_an_option_that_is_reported_or_refused_as_unused_has_no_effect(name):
    run = next(case.run for case in CASES if registry.name_of("protocol", case.run.protocol) == name)
    if run.protocol.needs_values:
        pytest.skip("its timing depends on what is learned")
    system_settings = {
        **{part: getattr(run, part).model_copy() for part in ("algorithm", "protocol")},
        "stop": {"gradients": None, "seconds": 5.0} if run.protocol.has_clock else {"gradients": 60},
        "cluster": {"workers": run.cluster.size, "servers": run.cluster.servers},
    }
    wrong = []
    for settings, path, value in OF_SOME_PROTOCOLS:
        base = merge(USUAL, TWO_NODES, system_settings, settings)
        outcomes = []
        for changed_settings in (base, replace_value(base, path, value)):
            with contextlib.suppress(FredError):
                outcomes.append(execute("run", validated({"runs": {"run": changed_settings}}, str).runs["run"], 3))
        if len(outcomes) < 2:
            continue  # refused for another reason
        runs = {"run": outcomes[1].run}
        lines = unused_options(runs)
        try:
            check_effects(runs, lambda keys: ".".join(map(str, keys[2:])))
        except FredError as error:
            lines += map(str, error.args)
        facts = [repr({**outcome.summary, "cost": None}) for outcome in outcomes]
        if facts[0] != facts[1]:
            wrong += [line for line in lines if path.replace("/", ".") in line]
    assert not wrong
