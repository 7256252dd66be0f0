"""Scenario files: merging, settings, and refusals with fault, place, expected value and the nearest valid one."""

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

SCENARIO = """
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


def test_runs_override_what_differs_and_a_file_without_runs_is_one_run_named_after_its_algorithm(tmp_path):
    runs = load(write(tmp_path, SCENARIO.replace("constant", "{name: constant, seconds: 2}"))).runs
    assert [run.algorithm.learning_rate for run in runs.values()] == [1e-3, 0.5, 0.1]
    assert type(runs["third"].algorithm).__name__ == "FASGD"
    assert [run.cluster.size for run in runs.values()] == [3, 4, 3]
    assert [run.cluster.compute.mean for run in runs.values()] == [0.1, 2.0, 0.1]
    assert {type(run.protocol).__name__ for run in runs.values()} == {"Asynchronous"}
    runs = load(write(tmp_path, "algorithm: {name: ssgd, learning_rate: 1}\ncluster: {workers: 2}\nstop: {updates: 1}")).runs
    assert {name: type(run.protocol).__name__ for name, run in runs.items()} == {"ssgd": "Synchronous"}


def test_settings_win_over_the_file(tmp_path):
    path = write(tmp_path, SCENARIO.replace("constant", "{name: constant, seconds: 2}"))
    scenario = load(path, ["cluster.workers=9", "runs.third.algorithm.v0=0.5", "algorithm.learning_rate=2e-2", "seeds=[7, 8]"])
    assert [run.cluster.size for run in scenario.runs.values()] == [9, 9, 9]
    assert [run.algorithm.learning_rate for run in scenario.runs.values()] == [0.02] * 3
    assert scenario.runs["third"].algorithm.v0 == 0.5
    assert scenario.seeds == (7, 8)
    assert load(path, ["seeds=[7, 8]", "seeds.0=5"]).seeds == (5, 8)


def test_merging():
    for base, override, result in (
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
    ):
        assert merged(base, override) == result, (base, override)


CLUSTER, STOP, ASGD = "cluster: {workers: 2}", "stop: {updates: 5}", "algorithm: {name: asgd, learning_rate: 1}"
START = f"{CLUSTER}\n{STOP}\n"
# A scenario, with ¶ between its lines and the names above for lines, and what is said of it after "scenario.yaml", or anywhere.
MISTAKES = r"""
algorithm: {name: asgd, learning_rte: 1}¶START => :1: algorithm.learning_rte: unknown key `learning_rte`; did you mean `learning_rate`?
START¶algoritm: asgd => :3: algoritm: unknown key `algoritm`; did you mean `algorithm`?
START¶algorithm: {name: sagd} => :3: algorithm.name: expected one of the names that `fred list systems` lists, or `module:Class`; did you mean `sasgd`?
START¶algorithm: {name: asgd, learning_rate: .nan} => :3: algorithm.learning_rate: found nan; expected a finite number
START¶algorithm: {name: adam, learning_rate: 1} => :3: algorithm.name: .*`adam` is an optimizer: `algorithm: {name: asgd, optimizer: adam}`
START¶ASGD, backup_workers: 1} => :3: .*unknown key `backup_workers`, which is an option of `protocol: {name: synchronous}`; expected
START¶algorithm: {name: diloco, period: 5} => :3: .*unknown key `period`, which is an option of `protocol: {name: outer-steps}` and others; expected
START¶algorithm: {name: ssgd, learning_rate: 1}¶protocol: {backup_workers: 2} => :4: protocol: `backup_workers` \(2\) must be below the number of workers
cluster: {workers:2}¶STOP¶ASGD} => unknown key `workers:2`; write a space after the colon: `workers: 2`
CLUSTER¶stop: 30¶ASGD} => :2: stop: found 30; expected settings, such as `stop: {seconds: 30}`
START¶algorithm: {name: asgd} => :3: algorithm.learning_rate: missing key `learning_rate`
cluster: {workers: 0}¶STOP¶ASGD} => :1: cluster.workers: found 0; expected greater than or equal to 1
CLUSTER¶ASGD} => :1: stop: missing key `stop`
CLUSTER¶stop: {}¶ASGD} => :2: stop: needs at least one of
START¶ASGD, optimizer: adm} => :3: algorithm.optimizer.*: optax has no gradient transformation `adm`; did you mean `adam`?
START¶ASGD, optimizer: {name: sgd, momntum: 1}} => `sgd` has no option `momntum` here; did you mean `momentum`?
START¶ASGD, optimizer: [sgd, adam]} => exactly one transformation must take the learning rate
START¶ASGD, optimizer: {name: sgd, momentum: .nan}} => option `momentum` of `sgd`: found nan; expected a finite number
START¶ASGD, optimizer: {name: sgd, momentum: abc}} => optax.sgd cannot be used with these options
START¶ASGD, optimizer: {name: adam, learning_rate: 1}} => the learning rate is the algorithm's own option `learning_rate`, not one of `adam`
START¶algorithm: {name: my:Class} => :3: algorithm.name: a scenario alone never makes FRED import code: allow it with `--import my`
runs:¶  a:¶    algorithm: {name: asgd, learning_rate: 0}¶START => :3: runs.a.algorithm.learning_rate: found 0
runs: {a b: {}}¶START => :1: runs.a b: a run's name has at most 60
runs: {figures: {}}¶START => `figures` and the names of the result's files are reserved
runs: {Summary.CSV: {}}¶START => :1: runs.Summary.CSV: .*the names of the result's files are reserved
runs: {--fresh: {}}¶START => :1: .* a run's name has .* does not start with `-` or `.`
runs: {.at-work: {}}¶START => does not start with `-` or `.`
runs: {60𝒜: {}}¶START¶ASGD} => :1: runs.*this run's name would have 240 bytes, but a folder's name can have at most 239
START¶ASGD}¶sweep:¶  over:¶    - {LONG} => :4: sweep: found .*bytes, but a folder's name can have at most 239
runs: []¶START => :1: runs: found \[\]; expected run names
a: 1¶a: 2 => :2: not valid YAML: the key `a` is there twice
 => :1: expected a mapping
title: 2020-13-45 => :1: not valid YAML: month must be in 1..12
title: a&1b => :1: not valid YAML: .*not allowed
a: &x {b: *x} => :1: not valid YAML: it is nested too deeply, or contains itself
cluster: {? [1, 2] : 3} => :1: (cluster.*unknown key|not valid YAML)
START¶seeds: [1, 1]¶ASGD} => `seeds` must differ
START¶evaluate: {points: 3, every_updates: 2}¶ASGD} => :3: evaluate: give only one of `points`, `every_updates`
CLUSTER¶stop: {seconds: 1}¶protocol: dispatcher¶ASGD} => this protocol has no clock: stop by `updates` or `gradients`
START¶task: {data: digits, model: mlp, batch_size: 100000000000000} => batch_size: .* less than 2147483648
START¶protocol: {name: dispatcher, selection: {name: shifting, change: 1e308}} => change: found 1e.308; expected less
START¶evaluate: {target_loss: 3}¶ASGD} => a target needs a `task`
cluster: {workers: 3, speeds: [1, 2]}¶STOP¶ASGD} => :1: cluster: 3 workers need as many `speeds`, not 2
cluster: {groups: [{workers: 3}], workers: 2}¶STOP¶ASGD} => `groups` hold 3 workers, but `workers` says 2
cluster: {workers: 2, speeds: [1.0, -2]}¶STOP¶ASGD} => :1: cluster\.speeds\.(tuple\[.*\]\.)?1: found -2; expected greater than 0
cluster: {workers: 2, network: {buckets: 0}}¶STOP¶ASGD} => :1: cluster.network.buckets: found 0; expected greater than or equal to 1, or 'ddp'$
cluster: {workers: 2, network: {buckets: all}}¶STOP¶ASGD} => :1: cluster.network.buckets: found 'all'; expected a whole number, or 'ddp'$
cluster: {workers: 2, contention: {name: job}}¶STOP¶ASGD} => :1: cluster.contention: expected a list
"""
WORDS = {
    "START": f"{CLUSTER}¶{STOP}",
    "CLUSTER": CLUSTER,
    "STOP": STOP,
    "ASGD": ASGD.removesuffix("}"),
    "LONG": ", ".join(f"cluster.compute.{key}: {39 * key}" for key in "abcdef"),
    "60𝒜": 60 * "𝒜",
    "&1": "\1",
    "¶": "\n",
}


@pytest.mark.parametrize("row", MISTAKES.strip("\n").split("\n"))
def test_mistakes_are_named_with_place_and_remedy(tmp_path, row):
    text, message = row.split(" => ")
    for word, meaning in WORDS.items():
        text = text.replace(word, meaning)
    with pytest.raises(FredError, match="scenario.yaml" * message.startswith(":") + message):
        load(write(tmp_path, text))


def test_all_mistakes_are_named_at_once_and_shared_ones_once(tmp_path):
    text = "cluster: {workers: x}\nstop: {updates: 5}\nruns:\n  a: {algorithm: {name: asgd, learning_rate: 0}}\n  b: {algorithm: asgd}"
    with pytest.raises(FredError) as error:
        load(write(tmp_path, text))
    places = [line.split(": ")[1] for line in str(error.value).splitlines()]
    assert places == ["cluster.workers", "runs.a.algorithm.learning_rate", "runs.b.algorithm.learning_rate"]


RUNS = "runs: {" + ", ".join(f"r{k}: {{{ASGD}}}" for k in range(55)) + "}"


@pytest.mark.parametrize("trace", ["a,b\n1,x\n", "a,b,c\n1,2,3\n2,3,4\n", None])
def test_a_broken_trace_that_runs_share_is_named_once_with_its_line(tmp_path, monkeypatch, trace):
    monkeypatch.chdir(tmp_path)
    if trace:
        Path("times.csv").write_text(trace)
    cluster = "cluster: {workers: 2, compute: {name: trace, file: times.csv}}"
    Path("a.yaml").write_text(f"{cluster}\nstop: {{updates: 5}}\n{RUNS}")
    with pytest.raises(FredError, match=r"^a.yaml:1: cluster(.compute)?: [^\n]+$"):
        load("a.yaml")
    with pytest.raises(FredError, match=r"^cluster(.compute)?: [^\n]+$"):
        fred.scenario(YAML(typ="safe").load(Path("a.yaml").read_text()))


SETTINGS: dict[str, Any] = {
    "cluster": {"workers": 1},
    "algorithm": {"name": "asgd", "learning_rate": 1},
    "stop": {"updates": 1},
}
CONTROLS = "\x00\x07\x1b\x7f\x85\u00ad\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202e\u2060\u2066\u2069\ufeff"


def test_text_that_controls_how_it_is_shown_is_refused_and_text_of_any_language_taken():
    run = fred.scenario(SETTINGS).runs["asgd"]
    for character in CONTROLS:
        for key in ("title", "comment"):
            with pytest.raises(FredError, match=rf"^{key}: .*control character U\+{ord(character):04X}"):
                fred.scenario({key: f"a{character}b"}, **SETTINGS)
        with pytest.raises(FredError, match="has no `/` or control characters"):
            Scenario(runs={f"a{character}b": run})
    for text in ("naïve – «π» 東京", "a\tb\nc", "नी\u200cला", "👩\u200d🔬", "1\u202f000\u00a0s"):
        assert fred.scenario(SETTINGS, title=text, comment=text).title == text


def test_wrong_settings_name_themselves_and_a_missing_file_is_named(tmp_path):
    file = write(tmp_path, SCENARIO.replace("constant", "{name: constant, seconds: 2}"))
    for setting, message in {
        "algorithm.learning_rate=-1": r"--set algorithm.learning_rate=-1: found -1; expected greater than 0",
        "nonsense": "--set nonsense: expected key.path=value",
        "runs.nobody.stop.updates=1": "expected runs.NAME.key=value with NAME one of plain, other, third",
        "cluster.workers.more=1": "`workers` has no `more`",
        "a.b=[1": "the value is not valid YAML",
        "²=1": "--set ²=1: unknown key `²`",
        "title.x=foo": "--set title.x=foo: expected a valid string",
        "seeds.0=5": "`seeds` has no `0`",
        "algorithm.optimizer.momentum=0.5": "--set algorithm.optimizer.momentum=0.5: missing key `name`",
        "cluster.network.bandwith=1": "--set cluster.network.bandwith=1: unknown key `bandwith`",
    }.items():
        with pytest.raises(FredError, match=message):
            load(file, [setting])
    with pytest.raises(FredError, match=r"cannot read .*nowhere.yaml: No such file"):
        load(tmp_path / "nowhere.yaml")


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return scenario_schema()


@pytest.fixture(scope="module")
def validator(schema) -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.slow
def test_every_scenario_of_the_project_is_what_the_schema_allows_and_says_what_to_look_for(validator):
    for path in sorted((ROOT / "scenarios").rglob("*.yaml")):
        assert path.read_text().startswith("# Look for: "), path
        document = YAML(typ="safe").load(path)
        validator.validate(document)
        assert document["title"], path


def test_the_schema_for_editors_is_current_short_and_finds_mistakes(schema, validator):
    committed = json.loads((ROOT / "scenarios" / "schema.json").read_text())
    assert committed == json.loads(json.dumps(schema)), "run: python -m fred schema > scenarios/schema.json"
    text = json.dumps(schema, indent=2)
    assert text.count("\n") < 12_000
    assert set(re.findall(r'"\$ref": "#/\$defs/(.*)"', text)) == schema["$defs"].keys()
    own_class = "algorithm: {name: 'my:Own', x: 1}"
    readme = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    for document in (*readme, "algorithm: {optimizer: adam}", "algorithm: {optimizer: [adam]}", own_class):
        validator.validate(YAML(typ="safe").load(document))
    for wrong in ({"algorithm": {"name": "asgd", "rte": 1}}, {"cluster": {"workers": 0}}, {"algorithm": "nobody"}, {"x": 1}):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(wrong)
    algorithms = {choice.get("title"): choice.get("properties") for choice in schema["$defs"]["algorithm"]["anyOf"]}
    rate = algorithms["asgd"]["learning_rate"]
    assert rate == algorithms["easgd"]["learning_rate"], "an option of many components is described once"
    assert schema["$defs"][rate["$ref"].rpartition("/")[2]]["description"]


def test_another_algorithm_brings_its_protocol_unless_a_protocol_was_chosen():
    settings, protocol = {"algorithm": {"name": "asgd", "learning_rate": 0.1}}, {"name": "stale-synchronous", "bound": 2}
    runs = {"own": {}, "chosen": {"protocol": protocol}}
    scenario = fred.scenario(**settings, cluster={"workers": 2}, stop={"updates": 2}, runs=runs)
    changed = scenario.replace({"algorithm": {"name": "ringmaster", "learning_rate": 0.1}}).runs
    assert [type(changed[name].protocol).__name__ for name in ("own", "chosen")] == ["BoundedDelay", "StaleSynchronous"]
    assert scenario.replace({"cluster.workers": 3}).runs["chosen"].protocol == scenario.runs["chosen"].protocol


def test_a_file_of_a_cluster_is_the_cluster_of_a_scenario_and_nothing_else_is_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "times.csv").write_text("iteration,worker,seconds\n0,0,1.5\n0,1,0.5\n1,0,1.5\n1,1,0.5\n")
    settings = "cluster: {workers: 2, compute: {name: trace, file: times.csv, rows: cycled}}\n"
    rest = "algorithm: {name: ssgd, learning_rate: 0.1}\nstop: {updates: 4}\n"
    Path("deep/cluster.yaml").write_text(settings)
    Path("deep/scenario.yaml").write_text(settings + rest)
    cluster, scenario = fred.load_cluster("deep/cluster.yaml"), fred.load("deep/scenario.yaml")
    built = fred.scenario(cluster=cluster, algorithm={"name": "ssgd", "learning_rate": 0.1}, stop={"updates": 4})
    assert built.runs == scenario.runs and fred.run(built)["ssgd"].summary["virtual_seconds"] == 4 * 1.5
    with pytest.raises(FredError, match="found `cluster`, `algorithm`, `stop`; expected only `cluster`") as refused:
        fred.load_cluster("deep/scenario.yaml")
    cure = re.findall("`(.*?)`", str(refused.value))[-1].replace("NAME", "'ssgd'")
    assert eval(cure, {"fred": fred}) == cluster
    Path("cluster.yaml").write_text("cluster:\n  workrs: 3\n")
    with pytest.raises(FredError, match=r"cluster.yaml:2: cluster.workrs: unknown key `workrs`; did you mean `workers`"):
        fred.load_cluster("cluster.yaml")
