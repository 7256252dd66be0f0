"""Scenario files: merging, settings, and errors that say what, where, what was expected and what is nearest."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

import fred
from fred.base.errors import FredError
from fred.specification.loading import Scenario, load
from fred.specification.schema import scenario_schema
from fred.specification.source import merged
from tests.conftest import ROOT

GOOD = """
title: two
cluster: {workers: 3, compute: {name: exponential, scale: 0.1}}
stop: {gradients: 10}
algorithm: {name: asgd, learning_rate: 1e-3}
runs:
  plain:
  other:
    algorithm: {learning_rate: 0.5}
    cluster: {compute: constant, workers: 4}
  third:
    algorithm: {name: fasgd, learning_rate: 0.1}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(text)
    return path


def test_runs_override_what_differs(tmp_path):
    text = GOOD.replace("constant", "{name: constant, seconds: 2}")
    runs = load(write(tmp_path, text)).runs
    assert [run.algorithm.learning_rate for run in runs.values()] == [1e-3, 0.5, 0.1]
    assert type(runs["third"].algorithm).__name__ == "fasgd"
    assert [run.cluster.size for run in runs.values()] == [3, 4, 3]
    assert [run.cluster.compute.mean for run in runs.values()] == [0.1, 2.0, 0.1]
    assert {type(run.protocol).__name__ for run in runs.values()} == {"Asynchronous"}


def test_a_file_without_runs_is_one_run_named_after_its_algorithm(tmp_path):
    scenario = load(write(tmp_path, "algorithm: {name: ssgd, learning_rate: 1}\ncluster: {workers: 2}\nstop: {updates: 1}"))
    assert list(scenario.runs) == ["ssgd"]
    assert type(scenario.runs["ssgd"].protocol).__name__ == "Synchronous"


def test_settings_win_over_the_file(tmp_path):
    path = write(tmp_path, GOOD.replace("constant", "{name: constant, seconds: 2}"))
    scenario = load(path, ["cluster.workers=9", "runs.third.algorithm.v0=0.5", "algorithm.learning_rate=2e-2", "seeds=[7, 8]"])
    assert [run.cluster.size for run in scenario.runs.values()] == [9, 9, 9]
    assert [run.algorithm.learning_rate for run in scenario.runs.values()] == [0.02] * 3
    assert scenario.runs["third"].algorithm.v0 == 0.5
    assert scenario.seeds == (7, 8)
    assert load(path, ["seeds=[7, 8]", "seeds.0=5"]).seeds == (5, 8)


@pytest.mark.parametrize(
    ("base", "override", "result"),
    [
        ({"name": "a", "x": 1}, {"x": 2}, {"name": "a", "x": 2}),
        ({"name": "a", "x": 1}, {"name": "b"}, {"name": "b"}),
        ({"x": 1}, {"name": "b"}, {"x": 1, "name": "b"}),
        ({"x": 1}, "b", {"x": 1, "name": "b"}),
        ({"name": "a", "x": 1}, "a", {"name": "a", "x": 1}),
        ({"name": "a", "x": 1}, "b", "b"),
        ("a", {"x": 1}, {"name": "a", "x": 1}),
        ({"x": {"y": 1, "z": 2}}, {"x": {"y": 3}}, {"x": {"y": 3, "z": 2}}),
        ({"x": [1, 2]}, {"x": [3]}, {"x": [3]}),
        ({"x": 1}, {"x": None}, {"x": None}),
        (None, {"x": 1}, {"x": 1}),
    ],
)
def test_merging(base, override, result):
    assert merged(base, override) == result


START = "cluster: {workers: 2}\nstop: {updates: 5}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "algorithm: {name: asgd, learning_rte: 0.1}\n" + START,
            "scenario.yaml:1: algorithm.learning_rte: unknown key `learning_rte`; did you mean `learning_rate`?",
        ),
        (START + "algoritm: asgd", "scenario.yaml:3: algoritm: unknown key `algoritm`; did you mean `algorithm`?"),
        (
            START + "algorithm: {name: sagd, learning_rate: 1}",
            "scenario.yaml:3: algorithm.name: expected one of the names that `fred list algorithm` lists, or `module:Class`; did you mean `sasgd`?",
        ),
        (
            START + "algorithm: {name: asgd, learning_rate: -1}",
            "scenario.yaml:3: algorithm.learning_rate: found -1; expected greater than 0",
        ),
        (
            START + "algorithm: {name: asgd, learning_rate: .nan}",
            "scenario.yaml:3: algorithm.learning_rate: found nan; expected a finite number",
        ),
        (
            START + "algorithm: {name: adam, learning_rate: 1}",
            "scenario.yaml:3: algorithm.name: .*`adam` is an optimizer: `algorithm: {name: asgd, optimizer: adam}`",
        ),
        (
            START + "algorithm: {name: asgd, learning_rate: 1, backup_workers: 1}",
            "scenario.yaml:3: .*unknown key `backup_workers`, which is an option of `protocol: {name: synchronous}`; expected",
        ),
        (
            START + "algorithm: {name: diloco, learning_rate: 1, period: 5}",
            "scenario.yaml:3: .*unknown key `period`, which is an option of `protocol: {name: outer-steps}` and others; expected",
        ),
        (
            START + "algorithm: {name: ssgd, learning_rate: 1}\nprotocol: {backup_workers: 2}",
            r"scenario.yaml:4: protocol: `backup_workers` \(2\) must be below the number of workers",
        ),
        (
            "cluster: {workers:2}\nstop: {updates: 5}\nalgorithm: {name: asgd, learning_rate: 1}",
            "unknown key `workers:2`; write a space after the colon: `workers: 2`",
        ),
        (
            "cluster: {workers: 2}\nstop: 30\nalgorithm: {name: asgd, learning_rate: 1}",
            "scenario.yaml:2: stop: found 30; expected settings, such as `stop: {seconds: 30}`",
        ),
        (START + "algorithm: {name: asgd}", "scenario.yaml:3: algorithm.learning_rate: missing key `learning_rate`"),
        (
            "cluster: {workers: 0}\nstop: {updates: 5}\nalgorithm: {name: asgd, learning_rate: 1}",
            "scenario.yaml:1: cluster.workers: found 0; expected greater than or equal to 1",
        ),
        ("cluster: {workers: 2}\nalgorithm: {name: asgd, learning_rate: 1}", "scenario.yaml:1: stop: missing key `stop`"),
        (
            "cluster: {workers: 2}\nstop: {}\nalgorithm: {name: asgd, learning_rate: 1}",
            "scenario.yaml:2: stop: needs at least one of",
        ),
        (
            START + "algorithm: {name: asgd, learning_rate: 1, optimizer: adm}",
            "scenario.yaml:3: algorithm.optimizer.*: optax has no gradient transformation `adm`; did you mean `adam`?",
        ),
        (
            START + "algorithm: {name: asgd, learning_rate: 1, optimizer: {name: sgd, momntum: 1}}",
            "`sgd` has no option `momntum` here; did you mean `momentum`?",
        ),
        (
            START + "algorithm: {name: asgd, learning_rate: 1, optimizer: [sgd, adam]}",
            "exactly one transformation must take the learning rate",
        ),
        (
            START + "algorithm: {name: asgd, learning_rate: 1, optimizer: {name: sgd, momentum: .nan}}",
            "option `momentum` of `sgd`: found nan; expected a finite number",
        ),
        (
            START + "algorithm: {name: asgd, learning_rate: 1, optimizer: {name: sgd, momentum: abc}}",
            "optax.sgd cannot be used with these options",
        ),
        (START + "algorithm: {name: asgd, learning_rate: 1, optimizer: lbfgs}", "optax.lbfgs cannot be used"),
        (
            START + "algorithm: {name: asgd, learning_rate: 1, optimizer: {name: adam, learning_rate: 1}}",
            "the learning rate is the algorithm's own option `learning_rate`, not one of `adam`",
        ),
        (
            START + "algorithm: {name: my:Class, learning_rate: 1}",
            "scenario.yaml:3: algorithm.name: a scenario alone never makes FRED import code: allow it with `--import my`",
        ),
        (
            "runs:\n  a:\n    algorithm: {name: asgd, learning_rate: 0}\n" + START,
            "scenario.yaml:3: runs.a.algorithm.learning_rate: found 0",
        ),
        ("runs: {a b: {}}\n" + START, "scenario.yaml:1: runs.a b: a run's name has at most 60"),
        ("runs: {figures: {}}\n" + START, "`figures` and the names of the result's files are reserved"),
        ("runs: {best.csv: {}}\n" + START, "scenario.yaml:1: runs.best.csv: .*the names of the result's files are reserved"),
        ("runs: {Summary.CSV: {}}\n" + START, "the names of the result's files are reserved"),
        ("runs: {.at-work: {}}\n" + START, "does not start with `-` or `.`"),
        (
            f"runs: {{{'𝒜' * 60}: {{}}}}\n{START}algorithm: {{name: asgd, learning_rate: 1}}",
            "scenario.yaml:1: runs.*this run's name would have 240 bytes, but a folder's name can have at most 239",
        ),
        (
            START
            + "algorithm: {name: asgd, learning_rate: 1}\nsweep:\n  over:\n    - {"
            + ", ".join(f"cluster.compute.{key}: {'x' * 39}" for key in "abcdef")
            + "}",
            r"scenario.yaml:4: sweep: found .*bytes, but a folder's name can have at most 239",
        ),
        ("runs: []\n" + START, r"scenario.yaml:1: runs: found \[\]; expected run names"),
        ("a: 1\na: 2", "scenario.yaml:2: not valid YAML: the key `a` is there twice"),
        ("a: [1", "scenario.yaml:.*: not valid YAML"),
        ("- 1", "scenario.yaml:1: expected a mapping"),
        ("", "scenario.yaml:1: expected a mapping"),
        ("title: 2020-13-45", "scenario.yaml:1: not valid YAML: month must be in 1..12"),
        ("title: a\1b", "scenario.yaml:1: not valid YAML: .*not allowed"),
        ("a: &x {b: *x}", "scenario.yaml:1: not valid YAML: it is nested too deeply, or contains itself"),
        ("cluster: {? [1, 2] : 3}", "scenario.yaml:1: (cluster.*unknown key|not valid YAML)"),
        (START + "seeds: [1, 1]\nalgorithm: {name: asgd, learning_rate: 1}", "`seeds` must differ"),
        (
            START + "evaluate: {points: 3, every_updates: 2}\nalgorithm: {name: asgd, learning_rate: 1}",
            "scenario.yaml:3: evaluate: give only one of `points`, `every_updates`",
        ),
        (
            "cluster: {workers: 2}\nstop: {seconds: 1}\nprotocol: dispatcher\nalgorithm: {name: asgd, learning_rate: 1}",
            "this protocol has no clock: stop by `updates` or `gradients`",
        ),
        (
            "cluster: {workers: 2}\nstop: {seconds: 5}\nevaluate: {every_seconds: 1e-9}\nalgorithm: {name: asgd, learning_rate: 1}",
            "more than 1,000,000 points",
        ),
        (START + "task: {data: digits, model: mlp, batch_size: 100000000000000}", "batch_size: .* less than 2147483648"),
        (
            START + "protocol: {name: dispatcher, selection: {name: shifting, change: 1e308}}",
            "change: found 1e.308; expected less",
        ),
        (START + "evaluate: {target_loss: 3}\nalgorithm: {name: asgd, learning_rate: 1}", "a target needs a `task`"),
        (
            "cluster: {workers: 3, speeds: [1, 2]}\nstop: {updates: 5}\nalgorithm: {name: asgd, learning_rate: 1}",
            "scenario.yaml:1: cluster: 3 workers need as many `speeds`, not 2",
        ),
        (
            "cluster: {groups: [{workers: 3}], workers: 2}\nstop: {updates: 5}\nalgorithm: {name: asgd, learning_rate: 1}",
            "`groups` hold 3 workers, but `workers` says 2",
        ),
        (
            "cluster: {workers: 2, times: [1.0, -2]}\nstop: {updates: 5}\nalgorithm: {name: asgd, learning_rate: 1}",
            r":1: cluster\.times\.1: found -2; expected greater than 0",
        ),
        (
            "cluster: {workers: 2, contention: {name: job}}\nstop: {updates: 5}\nalgorithm: {name: asgd, learning_rate: 1}",
            ":1: cluster.contention: expected a list",
        ),
    ],
)
def test_errors_say_where_and_what(tmp_path, text, message):
    with pytest.raises(FredError, match=message):
        load(write(tmp_path, text))


def test_all_errors_are_told_at_once_and_shared_ones_once(tmp_path):
    text = "cluster: {workers: x}\nstop: {updates: 5}\nruns:\n  a: {algorithm: {name: asgd, learning_rate: 0}}\n  b: {algorithm: asgd}"
    with pytest.raises(FredError) as error:
        load(write(tmp_path, text))
    lines = str(error.value).splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        "cluster.workers",
        "runs.a.algorithm.learning_rate",
        "runs.b.algorithm.learning_rate",
    ]


SHARED = ("cluster: {workers: 2, compute: {name: trace, file: times.csv}}", "stop: {updates: 5}")
RUNS = "runs: {" + ", ".join(f"r{k}: {{algorithm: {{name: asgd, learning_rate: 1}}}}" for k in range(55)) + "}"


@pytest.mark.parametrize("trace", ["a,b\n1,x\n", "a,b,c\n1,2,3\n2,3,4\n", None])
def test_a_broken_trace_that_runs_share_is_told_once_with_its_line(tmp_path, monkeypatch, trace):
    monkeypatch.chdir(tmp_path)
    if trace:
        Path("times.csv").write_text(trace)
    Path("a.yaml").write_text("\n".join((*SHARED, RUNS)))
    with pytest.raises(FredError, match=r"^a.yaml:1: cluster(.compute)?: [^\n]+$"):
        load("a.yaml")
    with pytest.raises(FredError, match=r"^cluster(.compute)?: [^\n]+$"):
        fred.scenario(YAML(typ="safe").load(Path("a.yaml").read_text()))


@pytest.mark.parametrize("name", ["--fresh", "-x", "-", ".", "..", ".a"])
def test_no_run_is_called_like_an_option_or_a_hidden_file(tmp_path, name):
    text = f"{SHARED[1]}\ncluster: {{workers: 2}}\nalgorithm: {{name: asgd, learning_rate: 1}}\nruns: {{'{name}': {{}}}}"
    with pytest.raises(FredError, match=r"scenario.yaml:4: .*: a run's name has .* does not start with `-` or `.`"):
        load(write(tmp_path, text))


CONTROLS = "\x00\x07\x1b\x7f\x85\u00ad\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202e\u2060\u2066\u2069\ufeff"


@pytest.mark.parametrize("key", ["title", "comment"])
@pytest.mark.parametrize("character", CONTROLS)
def test_text_that_controls_how_it_is_shown_is_refused(key, character):
    with pytest.raises(FredError, match=rf"^{key}: .*control character U\+{ord(character):04X}"):
        fred.scenario({key: f"a{character}b"}, cluster={"workers": 1}, algorithm="asgd", stop={"updates": 1})


@pytest.mark.parametrize("text", ["naïve – «π» 東京", "a\tb\nc", "नी\u200cला", "👩\u200d🔬", "1\u202f000\u00a0s"])
def test_text_of_any_language_is_taken(text):
    settings = {"cluster": {"workers": 1}, "algorithm": {"name": "asgd", "learning_rate": 1}, "stop": {"updates": 1}}
    assert fred.scenario(settings, title=text, comment=text).title == text


@pytest.mark.parametrize("character", CONTROLS)
def test_names_of_runs_have_no_such_characters_either(character):
    run = fred.scenario(cluster={"workers": 1}, algorithm={"name": "asgd", "learning_rate": 1}, stop={"updates": 1}).runs[
        "asgd"
    ]
    with pytest.raises(ValueError, match="has no `/` or control characters"):
        Scenario(runs={f"a{character}b": run})


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("algorithm.learning_rate=-1", r"--set algorithm.learning_rate=-1: found -1; expected greater than 0"),
        ("algorithm.rate=1", "--set algorithm.rate=1: unknown key `rate`"),
        ("nonsense", "--set nonsense: expected key.path=value"),
        ("runs.nobody.stop.updates=1", "expected runs.NAME.key=value with NAME one of plain, other, third"),
        ("cluster.workers.more=1", "`workers` has no `more`"),
        ("a.b=[1", "the value is not valid YAML"),
        ("²=1", "--set ²=1: unknown key `²`"),
        ("title=\1", "the value is not valid YAML"),
        ("title.x=foo", "--set title.x=foo: expected a valid string"),
        ("seeds.0=5", "`seeds` has no `0`"),
        ("algorithm.optimizer.momentum=0.5", "--set algorithm.optimizer.momentum=0.5: missing key `name`"),
        ("cluster.network.bandwith=1", "--set cluster.network.bandwith=1: unknown key `bandwith`"),
    ],
)
def test_wrong_settings_name_themselves(tmp_path, setting, message):
    with pytest.raises(FredError, match=message):
        load(write(tmp_path, GOOD.replace("constant", "{name: constant, seconds: 2}")), [setting])


def test_missing_file_is_named(tmp_path):
    with pytest.raises(FredError, match=r"cannot read .*nowhere.yaml: No such file"):
        load(tmp_path / "nowhere.yaml")


SCENARIOS = sorted((ROOT / "scenarios").rglob("*.yaml"))


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return scenario_schema()


@pytest.fixture(scope="module")
def validator(schema) -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_every_scenario_of_the_project_is_valid_and_says_what_to_look_for(path, validator):
    assert path.read_text().startswith("# Look for: ")
    assert load(path).title
    validator.validate(YAML(typ="safe").load(path))


def test_the_schema_for_editors_is_current_and_finds_mistakes(schema, validator):
    assert json.loads((ROOT / "scenarios" / "schema.json").read_text()) == json.loads(json.dumps(schema)), (
        "run: python -m fred schema > scenarios/schema.json"
    )
    readme = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    for text in (
        *readme,
        "algorithm: {optimizer: adam}",
        "algorithm: {optimizer: [adam]}",
        "algorithm: {name: 'my:Own', x: 1}",
    ):
        validator.validate(YAML(typ="safe").load(text))
    for wrong in ({"algorithm": {"name": "asgd", "rte": 1}}, {"cluster": {"workers": 0}}, {"algorithm": "nobody"}, {"x": 1}):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(wrong)


def test_the_schema_is_short_and_refers_to_each_of_its_definitions(schema):
    text = json.dumps(schema, indent=2)
    assert text.count("\n") < 11_500
    assert set(re.findall(r'"\$ref": "#/\$defs/(.*)"', text)) == schema["$defs"].keys()


def test_an_option_of_many_components_is_described_once(schema):
    algorithms = {choice.get("title"): choice.get("properties") for choice in schema["$defs"]["algorithm"]["anyOf"]}
    rate = algorithms["asgd"]["learning_rate"]
    assert rate == algorithms["easgd"]["learning_rate"]
    assert schema["$defs"][rate["$ref"].rpartition("/")[2]]["description"]


def test_who_is_given_another_algorithm_is_given_its_protocol_unless_a_protocol_was_chosen():
    own, chosen = {"algorithm": {"name": "asgd", "learning_rate": 0.1}}, {"name": "stale-synchronous", "bound": 2}
    scenario = fred.scenario(
        **own, cluster={"workers": 2}, stop={"updates": 2}, runs={"own": {}, "chosen": {"protocol": chosen}}
    )
    changed = scenario.replace({"algorithm": {"name": "ringmaster", "learning_rate": 0.1}}).runs
    assert [type(changed[name].protocol).__name__ for name in ("own", "chosen")] == ["BoundedDelay", "StaleSynchronous"]
    assert scenario.replace({"cluster.workers": 3}).runs["chosen"].protocol == scenario.runs["chosen"].protocol
