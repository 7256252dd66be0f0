"""What the fuzzers (`make fuzz`) found once, and a few of their cases."""

from typing import Any

import pytest

from fred import FredError, load
from fred.components import registry
from fred.running.execution import execute
from tests.end_to_end import check_scenario
from tests.from_schema import optimizers
from tests.fuzz import disagreement, refusal, sharing
from tests.worlds import make_run, mostly_slow, same_outcome

DIGITS = {"data": "digits", "model": "softmax", "batch_size": 1}
MLP = {"data": "digits", "model": {"name": "mlp", "hidden": [9, 23]}, "batch_size": 1}
CLIPPED = [{"name": "clip_by_block_rms", "threshold": 0.1}, {"name": "lars"}]
SSP = {"name": "stale-synchronous", "bound": 2}
NOISY = {"name": "noisy_sgd", "eta": 0.01, "gamma": 0.5}
DIFFERED: dict[str, dict[str, Any]] = {  # inline and replayed, once
    "vectors": {"task": DIGITS, "algorithm": {"name": "ad-psgd"}, "cluster": {"workers": 2}},
    "norms": {
        **{"task": DIGITS | {"batch_size": 8}, "algorithm": {"name": "wagma-sgd", "learning_rate": 0.01, "optimizer": "lamb"}},
        **{"protocol": {"name": "group-averaging", "group_size": 2, "period": 3}},
    },
    "constants": {"task": MLP, "algorithm": {"name": "ssp", "learning_rate": 0.9, "optimizer": CLIPPED}, "protocol": SSP},
    "not a number": {"task": MLP, "algorithm": {"name": "asgd", "learning_rate": 1e30}},
    "convolution": {"task": DIGITS | {"model": "tests.users:PlainConvolution", "batch_size": 4}, "algorithm": {"name": "asgd"}},
    "random keys": {"task": DIGITS, "algorithm": {"name": "d-psgd", "optimizer": NOISY}},
}


@pytest.fixture(autouse=True)
def users_models():
    registry.allow_import(["tests.users"])


@pytest.mark.parametrize("name", mostly_slow(DIFFERED, []))
def test_inline_equals_replay_where_it_once_did_not(name):
    options = {"stop": {"gradients": 30}, **DIFFERED[name]}
    run = make_run(**options | {"algorithm": {"learning_rate": 0.1} | options["algorithm"]})
    assert same_outcome(execute("run", run, 5), execute("run", run, 5, inline=True))


@pytest.mark.slow
@pytest.mark.nightly
def test_inline_equals_replay_with_every_optimizer_of_optax():
    """They differed with `madgrad`, which FRED refuses since."""
    task = DIGITS | {
        "data": {"name": "synthetic-classification", "examples": 60, "evaluation": 20, "features": 3, "classes": 3}
    }
    differing = []
    for name in optimizers():
        for rate in (1.0, 0.07):
            algorithm = {"name": "asgd", "learning_rate": rate, "optimizer": name}
            run = make_run(task=task | {"batch_size": 4}, algorithm=algorithm, stop={"gradients": 25})
            if not same_outcome(execute("run", run, 3), execute("run", run, 3, inline=True)):
                differing.append((name, rate))
    assert len(optimizers()) > 40 and not differing


@pytest.mark.parametrize("seed", mostly_slow(range(6), [0]))
def test_inline_equals_replay_in_a_few_random_runs(seed):
    assert disagreement(seed) == ""


@pytest.mark.parametrize("seed", mostly_slow(range(2), []))
def test_several_executors_leave_the_bits_of_one_in_a_few_random_runs(seed):
    assert sharing(seed) == ""


BASE = {"algorithm": "{name: asgd, learning_rate: 0.1}", "cluster": "{workers: 2}", "stop": "{updates: 5}"}
SQUARED = "".join(f"{b}: &{b} [{','.join(['*' + a] * 10)}]\n" for a, b in zip("abcdef", "bcdefg", strict=True))
MISTAKES = {
    "seeds: [!!bool maybe]": "not valid YAML: a value that does not fit its tag",
    "%YAML 9.9\n---\ntitle: x": "incompatible YAML document",
    "title: " + "9" * 5000: "not valid YAML: .*digits",
    "stop: {updates: 0x" + "f" * 6000 + "}": "found a number with thousands of digits",
    '"\\ud800": 1': "surrogates not allowed",
    "cluster: {workers: true}": "cluster.workers: found true or false; expected: number of workers",
    'title: "\\e[31mred"': "title: .*control character U.001B",
    f"a: &a [1,1,1,1,1,1,1,1,1,1]\n{SQUARED}": "more than 1,000,000 values",
    "task: {data: digits, model: {name: cnn, kernel: 1000000000}}": "task.model.kernel: .*less than or equal to 31",
    "cluster: {workers: 2, servers: 10000000}": "cluster.servers: .*less than or equal to 10000",
    "cluster: {workers: 2, compute: {name: constant, seconds: 1.0e-9}}\nstop: {seconds: 1.0e+6}": r"about 2e\+15 gradients",
    "cluster: {workers: 2, compute: {name: pareto, minimum: 1.0e-9, alpha: 1}}\nstop: {seconds: 5000}": r"compute about 5e\+12",
    "algorithm: {name: d-psgd, learning_rate: 0.1}\nprotocol: {name: gossip, topology: complete}\n"
    "cluster: {workers: 100000}": r"about 1e\+10 edges",
}
ODD_TEXTS = (
    'title: "日本\u3000語 👩\u200d🔬"',
    "cluster: {workers: 100, compute: {name: constant, seconds: 1.0e-4}, network: {latency: {name: constant, seconds: 0.1}}}\n"
    "stop: {seconds: 1000}",
    "cluster: {workers: 2, compute: {name: lognormal, median: 0.1, sigma: 1.0e+200}}",
    "algorithm: {name: sgp, learning_rate: 0.1}\n"
    "protocol: {name: gossip, topology: {name: exponential, neighbours: 1000000000}}\ncluster: {workers: 4}",
    "stop: {seconds: 30, gradients: 1000000000}",
)


def load_text(tmp_path, text):
    missing = "".join(f"{key}: {value}\n" for key, value in BASE.items() if f"{key}:" not in text)
    (tmp_path / "it.yaml").write_text(f"{text}\n{missing}", encoding="utf-8")
    return load(tmp_path / "it.yaml")


def test_a_mistake_costs_one_line(tmp_path):
    for text, message in MISTAKES.items():
        with pytest.raises(FredError, match=message) as error:
            load_text(tmp_path, text)
        assert max(map(len, str(error.value).splitlines())) < 1100, message


def test_unusual_scenarios_are_not_refused(tmp_path):
    assert all(load_text(tmp_path, text).runs for text in ODD_TEXTS)


@pytest.mark.parametrize("inline", [False, True])
def test_points_without_end_are_refused_at_once(inline):
    run = make_run(cluster={"workers": 2, "compute": {"name": "constant", "seconds": 1.0}}, evaluate={"every_seconds": 1e-9})
    with pytest.raises(FredError, match=r"`every_seconds` \(1e-09\) asks for more than 1,000,000 points"):
        execute("run", run, 0, inline)


@pytest.mark.parametrize("seed", mostly_slow([*range(20), 286], [*range(10), 286]))
def test_a_few_mutated_scenarios_are_refused_or_run(seed):
    assert refusal(seed) == ""


@pytest.mark.parametrize("seed", mostly_slow(range(6), []))
def test_a_few_random_scenarios_hold_whole(seed):
    assert check_scenario(seed)
