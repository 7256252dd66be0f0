"""What the fuzzers (`make fuzz`) found once, and a few of their cases."""

import dataclasses
import json
import re
from typing import Any

import pytest

from fred.base.errors import FredError
from fred.components import registry
from fred.running.execution import execute
from fred.schedule.schedule import Schedule, Verb
from fred.specification.loading import load
from tests import from_schema
from tests.draws import Draws
from tests.from_schema import random_run
from tests.fuzz import disagreement, refusal
from tests.laws import check_laws
from tests.pairs import report
from tests.random_runs import OPTIMIZERS
from tests.random_scenarios import document
from tests.whole import whole
from tests.worlds import make_run

DIGITS = {"data": "digits", "model": "softmax", "batch_size": 1}
MLP = {"data": "digits", "model": {"name": "mlp", "hidden": [9, 23]}, "batch_size": 1}
FOUND: dict[str, dict[str, Any]] = {  # inline and replayed differed
    "vectors": {"task": DIGITS, "algorithm": {"name": "ad-psgd", "learning_rate": 0.1}, "cluster": {"workers": 2}},
    "norms": {
        "task": DIGITS | {"batch_size": 8},
        "algorithm": {"name": "wagma-sgd", "learning_rate": 0.01, "optimizer": "lamb"},
        "protocol": {"name": "group-averaging", "group_size": 2, "period": 3},
    },
    "constants": {
        "task": MLP,
        "algorithm": {
            "name": "ssp",
            "learning_rate": 0.9,
            "optimizer": [{"name": "clip_by_block_rms", "threshold": 0.1}, {"name": "lars"}],
        },
        "protocol": {"name": "stale-synchronous", "bound": 2},
    },
    "not a number": {"task": MLP, "algorithm": {"name": "asgd", "learning_rate": 1e30}},
    "convolution": {"task": DIGITS | {"model": "tests.users:PlainConvolution", "batch_size": 4}, "algorithm": "asgd"},
    "random keys": {
        "task": DIGITS,
        "algorithm": {
            "name": "d-psgd",
            "learning_rate": 0.1,
            "optimizer": {"name": "noisy_sgd", "eta": 0.01, "gamma": 0.5},
        },
    },
}


@pytest.fixture(autouse=True)
def users_models():
    registry.allow_import(["tests.users"])


SLOW = ("constants", "not a number", "convolution", "random keys", "norms")


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in FOUND])
def test_inline_equals_replay_where_it_once_did_not(name):
    options = {"stop": {"gradients": 30}, **FOUND[name]}
    if isinstance(options["algorithm"], str):
        options["algorithm"] = {"name": options["algorithm"], "learning_rate": 0.1}
    run = make_run(**options)
    replayed, inline = execute("run", run, 5), execute("run", run, 5, inline=True)
    assert replayed.params_digest == inline.params_digest
    assert replayed.metrics.equals(inline.metrics)


def test_every_algorithm_and_protocol_is_drawn_from_the_schema(tmp_path):
    drawn = [from_schema.Document(Draws(seed)).whole() for seed in range(2000)]
    for kind in ("algorithm", "protocol"):
        parts = [document.get(kind) for document in drawn]
        named = {part["name"] if isinstance(part, dict) else part for part in parts if part}
        assert named == registry.REGISTRY[kind].keys()


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
def test_inline_equals_replay_in_a_few_random_runs(seed, tmp_path):
    assert random_run(seed, tmp_path)[0] == random_run(seed, tmp_path)[0], "the seed says which run it is"
    assert disagreement(seed) == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seeds: [!!bool maybe]", "not valid YAML: a value that does not fit its tag"),
        ('title: !!int ""', "not valid YAML: a value that does not fit its tag"),
        ("%YAML 9.9\n---\ntitle: x", "incompatible YAML document"),
        ("title: " + "9" * 5000, "not valid YAML: .*digits"),
        ("stop: {updates: 0x" + "f" * 6000 + "}", "found a number with thousands of digits"),
        ('"\\ud800": 1', "surrogates not allowed"),
        ("cluster: {workers: true}", "cluster.workers: found true or false; expected: number of workers"),
        ('title: "\\e[31mred"', "title: .*control character U.001B"),
        (
            "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
            + "".join(f"{b}: &{b} [{','.join(['*' + a] * 10)}]\n" for a, b in zip("abcdef", "bcdefg", strict=True)),
            "more than 1,000,000 values",
        ),
        ("task: {data: digits, model: {name: cnn, kernel: 1000000000}}", "task.model.kernel: .*less than or equal to 31"),
        ("cluster: {workers: 2, servers: 10000000}", "cluster.servers: .*less than or equal to 10000"),
        (
            "cluster: {workers: 2, compute: {name: constant, seconds: 1.0e-9}}\nstop: {seconds: 1.0e+6}",
            "compute about 2e\\+15 gradients",
        ),
        (
            "cluster: {workers: 2, compute: {name: pareto, minimum: 1.0e-9, alpha: 1}}\nstop: {seconds: 5000}",
            "compute about 5e\\+12",
        ),
        (
            "algorithm: {name: d-psgd, learning_rate: 0.1}\nprotocol: {name: gossip, topology: complete}\ncluster: {workers: 100000}",
            "about 1e\\+10 edges",
        ),
    ],
    ids=range(14),
)
def test_a_mistake_costs_one_line(tmp_path, text, message):
    path = tmp_path / "wrong.yaml"
    base = {"algorithm": "{name: asgd, learning_rate: 0.1}", "cluster": "{workers: 2}", "stop": "{updates: 5}"}
    missing = "".join(f"{key}: {value}\n" for key, value in base.items() if f"{key}:" not in text)
    path.write_text(f"{text}\n{missing}", encoding="utf-8")
    with pytest.raises(FredError, match=message) as error:
        load(path)
    assert max(map(len, str(error.value).splitlines())) < 1100


@pytest.mark.parametrize(
    "text",
    [
        'title: "日本\u3000語 👩\u200d🔬"',
        "cluster: {workers: 100, compute: {name: constant, seconds: 1.0e-4}, network: {latency: {name: constant, seconds: 0.1}}}\n"
        "stop: {seconds: 1000}",
        "cluster: {workers: 2, compute: {name: lognormal, median: 0.1, sigma: 1.0e+200}}",
        "algorithm: {name: sgp, learning_rate: 0.1}\n"
        "protocol: {name: gossip, topology: {name: exponential, neighbours: 1000000000}}\ncluster: {workers: 4}",
        "stop: {seconds: 30, gradients: 1000000000}",
    ],
)
def test_what_is_unusual_is_not_refused(tmp_path, text):
    path = tmp_path / "unusual.yaml"
    base = {"algorithm": "{name: asgd, learning_rate: 0.1}", "cluster": "{workers: 2}", "stop": "{updates: 5}"}
    missing = "".join(f"{key}: {value}\n" for key, value in base.items() if f"{key}:" not in text)
    path.write_text(f"{text}\n{missing}", encoding="utf-8")
    assert load(path).runs


@pytest.mark.parametrize("inline", [False, True])
def test_points_without_end_are_told_at_once(inline):
    run = make_run(cluster={"workers": 2, "compute": {"name": "constant", "seconds": 1.0}}, evaluate={"every_seconds": 1e-9})
    with pytest.raises(FredError, match=r"`every_seconds` \(1e-09\) asks for more than 1,000,000 points"):
        execute("run", run, 0, inline)


@pytest.mark.parametrize("seed", [*range(20), 286])
def test_a_few_mutated_scenarios_are_refused_or_run(seed):
    assert refusal(seed) == ""


@pytest.mark.parametrize("seed", [6, 13, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(14, 25) if seed != 17)])
def test_a_few_random_scenarios_hold_whole(seed):
    assert whole(seed)


def test_everything_that_can_be_named_is_drawn():
    """But for what needs other data, or a trained model."""
    drawn = set(re.findall(r'"([-_a-z0-9]+)"', "".join(json.dumps(document(Draws(seed))) for seed in range(3000))))
    known = {*OPTIMIZERS, *(name for names in registry.REGISTRY.values() for name in names)}
    assert known - drawn <= {"mnist", "cifar10", "cnn", "dmm", "dmm-plain", "dmm-printed"}


def test_pairs_that_cannot_meet_are_not_missed():
    """A run has one topology, learns something or does not, and gossip has no gates."""
    runs = [
        frozenset({"protocol: gossip", "topology: ring", "task: none"}),
        frozenset({"protocol: gossip", "topology: star", "task.division: divided"}),
        frozenset({"protocol: gated", "protocol.k_push", "task.division: divided"}),
    ]
    lines = report(runs, missing=True).splitlines()
    assert lines == [
        "7 features; of 13 pairs that can go together, 9 were met",
        "never protocol.k_push with task: none",
        "never protocol: gated with task: none",
        "never task.division: divided with topology: ring",
        "never task: none with topology: star",
    ]


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        *[("staleness", 99, "staleness 99"), ("timestamp", 0, "read at 0"), ("bytes", -1, "negative bytes")],
        *[("time_ns", 0, "order of time"), ("verb", Verb.DROP, "no limit was reached")],
    ],
)
def test_a_run_that_breaks_a_law_is_noticed(column, value, message):
    outcome = execute("run", make_run(task=None, cluster={"workers": 3}, stop={"updates": 20}), 0)
    check_laws(outcome)
    columns = {name: values.copy() for name, values in outcome.schedule.columns.items()}
    columns[column][-1] = value
    broken = {each.name: getattr(outcome.schedule, each.name) for each in dataclasses.fields(Schedule)} | {"columns": columns}
    with pytest.raises(AssertionError, match=message):
        check_laws(dataclasses.replace(outcome, schedule=Schedule(**broken)))
