"""Files that scenarios name: a run needs them, in whatever folder the command starts; whatever reads its result does not."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import numpy as np
import pytest

import fred
from fred.base.errors import FredError
from fred.base.inputs import write_arrays
from fred.cluster.cluster import Cluster
from fred.cluster.recorded import Recorded
from fred.commands.cli import main
from fred.components import registry
from fred.components.component import Component, inputs_of
from fred.components.input_path import InputPath
from fred.learning.data.arrays import Arrays
from fred.learning.data.language import Text
from fred.running.unit import Unit
from fred.specification.loading import revalidated
from tests.conftest import ROOT
from tests.folders import idx

TIMES = "a,b\n1.0,2.0\n1.5,2.5\n"
LEARNED: dict[str, Any] = {"model": "softmax", "batch_size": 2}
TIMED: dict[str, Any] = {"cluster": {"workers": 2}}
TRACE = {"name": "trace", "file": "in/times.csv", "unit": "s"}


def _times(folder: Path) -> None:
    (folder / "times.csv").write_text(TIMES)


def _arrays(folder: Path) -> None:
    inputs = np.arange(12.0).reshape(6, 2)
    named = {f"{part}_{what}": inputs if what == "inputs" else inputs[:, 0] for part, what in PARTS}
    write_arrays(folder / "data.npz", {name: array.astype(np.float32) for name, array in named.items()})


def _text(folder: Path) -> None:
    (folder / "mine.txt").write_text("to be or not to be " * 20)


def _mnist(folder: Path) -> None:
    for part, count in (("train", 6), ("t10k", 3)):
        idx(folder / f"{part}-images-idx3-ubyte", np.arange(count * 4).reshape(count, 2, 2))
        idx(folder / f"{part}-labels-idx1-ubyte", np.arange(count) % 3)


def _model(folder: Path) -> None:
    for name in ("cluster158.npz", "cluster158.json"):
        shutil.copy(ROOT / "scenarios" / "cutoff-sgd" / name, folder)


PARTS = [(part, what) for part in ("train", "evaluation") for what in ("inputs", "answers")]
KINDS: dict[str, tuple[Callable[[Path], None], str, dict[str, Any]]] = {  # what makes the input, its name, who names it
    "trace": (_times, "times.csv", {"cluster": {"workers": 2, "compute": TRACE}}),
    "network": (_times, "times.csv", {"cluster": {"workers": 2, "network": {"latency": TRACE}}}),
    "fault": (_times, "times.csv", {"cluster": {"workers": 2, "faults": [{"name": "crashes", "mean_up": 5.0, "away": TRACE}]}}),
    "arrays": (_arrays, "data.npz", {**TIMED, "task": {**LEARNED, "data": {"name": "arrays", "file": "in/data.npz"}}}),
    "text": (
        _text,
        "mine.txt",
        {**TIMED, "task": {"model": "transformer", "data": {"name": "text", "file": "in/mine.txt", "context": 4}}},
    ),
    "mnist": (
        _mnist,
        "train-images-idx3-ubyte",
        {**TIMED, "task": {**LEARNED, "data": {"name": "mnist", "directory": "in", "canonical": False}}},
    ),
    "model": (
        _model,
        "cluster158.npz",
        {**TIMED, "protocol": {"name": "cutoff", "rule": {"name": "dmm", "model": "in/cluster158.npz"}}},
    ),
}


def scenario_in(folder: Path, kind: str) -> Path:
    """Write a scenario of one run and the input that it names."""
    make, _, settings = KINDS[kind]
    (folder / "in").mkdir(parents=True)
    make(folder / "in")
    whole = {"stop": {"updates": 3}, "algorithm": {"name": "ssgd", "learning_rate": 0.1}, **settings}
    (folder / "a.yaml").write_text(json.dumps(whole))
    return folder / "a.yaml"


@pytest.fixture(params=KINDS)
def kind(request) -> str:
    return str(request.param)


@pytest.mark.usefixtures("undrawn")
class TestResults:
    @pytest.mark.slow
    def test_whatever_looks_at_one_needs_none_of_its_inputs(self, kind, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        scenario_in(tmp_path / "here", kind)
        assert main(["run", "here/a.yaml", "--out", "here/out"]) == 0
        shutil.rmtree("here/in")
        shutil.copytree("here/out", "there/out")
        for folder in ("here", "there"):
            monkeypatch.chdir(tmp_path / folder)
            for command in (["show", "out"], ["report", "out"], ["export", "out", "--out", "a.pftrace"]):
                assert main(command) == 0, capsys.readouterr().err
            result = fred.load_result("out")
            assert result.summary["updates"].tolist() == [3]
            assert "throughput" in result.pictures()
            assert main(["draw", "out", "throughput", "--out", "drawn"]) == 0
        monkeypatch.chdir(tmp_path)
        assert main(["compare", "here/out", "there/out"]) == 0
        assert "1 of 1 shared runs have the same digests" in capsys.readouterr().out
        assert main(["plan", "here/out", "--iterations", "1=4,2=3"]) == (2 if kind == "model" else 0), (
            "only rounds of all count"
        )

    def test_to_run_one_again_needs_them_and_says_which(self, kind, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        scenario_in(tmp_path / "here", kind)
        name = KINDS[kind][1]
        assert main(["run", "here/a.yaml", "--out", "there/out"]) == 0
        assert main(["verify", "there/out"]) == 0
        Path("here/in").rename("kept")
        capsys.readouterr()
        assert main(["verify", "there/out"]) == 2
        missing = "here/in" if kind == "mnist" else f"here/in/{name}"
        last = Path(missing).name
        assert capsys.readouterr().err == (
            f"fred: cannot read {missing}: No such file or folder, nor a {last} in the current folder; bring it back, or start "
            "the command in the folder that holds it\n"
        )
        with pytest.raises(FredError, match="nor a"):
            fred.run(fred.load_result("there/out").scenario)

    def test_one_is_run_again_where_it_and_its_inputs_are_together_or_the_inputs_alone(self, kind, tmp_path, monkeypatch):
        """A whole tree may move; a result that moves alone is run again in the folder that holds the inputs."""
        monkeypatch.chdir(tmp_path)
        scenario_in(tmp_path / "old" / "here", kind)
        assert main(["run", "old/here/a.yaml", "--out", "old/there/out"]) == 0
        Path("old").rename("new")
        assert main(["verify", "new/there/out"]) == 0
        Path("far").mkdir()
        Path("new/there/out").rename("far/out")
        assert main(["verify", "far/out"]) == 2
        monkeypatch.chdir(tmp_path / "new" / "here" / ("." if kind == "mnist" else "in"))
        assert main(["verify", str(tmp_path / "far" / "out")]) == 0

    def test_another_file_in_the_place_of_an_input_is_found(self, kind, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        scenario_in(tmp_path, kind)
        assert main(["run", "a.yaml", "--out", "out"]) == 0
        _changed(kind)
        capsys.readouterr()
        assert main(["show", "out"]) == 0
        assert main(["verify", "out"]) == 2
        said = capsys.readouterr().err
        assert len(said.splitlines()) == 1
        assert "digest" in said


def _changed(kind: str) -> None:
    """Put another input of the same kind in its place."""
    _, name, _ = KINDS[kind]
    if kind == "arrays":
        named = dict(np.load("in/data.npz"))
        write_arrays(Path("in/data.npz"), {**named, "train_inputs": named["train_inputs"] + 1})
    elif kind == "mnist":
        idx(Path("in", name), 1 + np.arange(24).reshape(6, 2, 2))
    elif kind == "model":
        about = json.loads(Path("in/cluster158.json").read_text())
        Path("in/cluster158.json").write_text(json.dumps(about | {"normaliser": 2 * about["normaliser"]}))
    else:
        Path("in", name).write_text(Path("in", name).read_text().replace("1.5", "1.25").replace("not", "nor"))


@pytest.mark.usefixtures("undrawn")
def test_units_are_kept_wherever_the_command_is_started(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scenario_in(tmp_path / "here", kind)
    assert main(["run", "here/a.yaml", "--out", "out"]) == 0
    capsys.readouterr()
    monkeypatch.chdir(tmp_path / "here")
    assert main(["run", "a.yaml", "--out", "../out"]) == 0
    assert "1 of 1 runs were finished before and reused" in capsys.readouterr().out
    Path("in").rename("moved")
    Path("a.yaml").write_text(Path("a.yaml").read_text().replace('"in', '"moved'))
    assert main(["run", "a.yaml", "--out", "../out"]) == 0
    assert "1 of 1 runs were finished before and reused" in capsys.readouterr().out
    assert main(["verify", "../out"]) == 0


@pytest.mark.usefixtures("undrawn")
def test_nothing_tells_in_which_folder_a_result_came_to_be(kind, tmp_path, monkeypatch):
    """Two machines write the same, wherever the command was started."""
    scenarios = []
    for folder, start in (("one", "."), ("another", "deep/down")):
        scenario_in(tmp_path / folder / "deep", kind)
        (tmp_path / folder / start).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / folder / start)
        root = os.path.relpath(tmp_path / folder)
        assert main(["run", f"{root}/deep/a.yaml", "--out", f"{root}/results/out"]) == 0
        files = [file for file in (tmp_path / folder / "results").rglob("*") if file.is_file()]
        assert not [file for file in files if str(tmp_path).encode() in file.read_bytes()]
        scenarios.append(json.loads(Path(root, "results", "out", "manifest.json").read_text())["scenario"])
    assert scenarios[0] == scenarios[1]


def test_the_page_has_the_same_bytes_wherever_the_inputs_are(tmp_path, monkeypatch):
    pages = []
    for folder in ("one", "another/deep"):
        scenario = scenario_in(tmp_path / folder, "trace")
        monkeypatch.chdir(tmp_path / Path(folder).parts[0])
        assert main(["run", str(scenario), "--out", f"{tmp_path / folder}/out"]) == 0
        pages.append((tmp_path / folder / "out" / "report.html").read_text())
        assert main(["verify", f"{tmp_path / folder}/out"]) == 0
    assert pages[0] == pages[1]
    assert "file: times.csv" in pages[0]


@pytest.mark.usefixtures("undrawn")
def test_a_file_of_a_scenario_of_freds_is_found_wherever_fred_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    smaller = ["stop={updates: 2}", "task=null", "evaluate={points: 1}"]
    settings = [word for each in smaller for word in ("--set", each)]
    assert main(["run", "cutoff-sgd/figure4", *settings, "--seed", "1", "--only", "cutoff", "--out", "out"]) == 0
    assert '"model": "cutoff-sgd/cluster158.npz"' in Path("out/manifest.json").read_text()
    Path("far").mkdir()
    Path("out").rename("far/out")
    assert main(["verify", "far/out"]) == 0


def test_a_path_leads_to_the_same_file_after_the_current_folder_has_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scenario = fred.load(scenario_in(tmp_path / "here", "trace").relative_to(tmp_path))
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    assert fred.run(scenario).summary["updates"].tolist() == [3]
    again = scenario.replace({"stop.updates": 2})
    assert fred.run(again).summary["updates"].tolist() == [2]
    assert revalidated(again) == again


def test_written_arrays_may_move_with_the_program(tmp_path, monkeypatch):
    """An absolute path would be another in another folder."""
    monkeypatch.chdir(tmp_path)
    examples = np.eye(4), np.array([0, 1, 1, 0])
    data = fred.arrays("mine", train=examples, evaluation=examples)
    assert data.file == "mine.npz"
    monkeypatch.chdir("/")
    assert data.load(0).outputs == 2


def test_two_files_of_one_name_are_two(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder, content in (("one", "ab" * 40), ("two", "ba" * 40)):
        Path(folder).mkdir()
        Path(folder, "mine.txt").write_text(content)
    one, two = (
        Text.model_validate({"file": "mine.txt", "context": 4}, context={"folder": Path(each)}) for each in ("one", "two")
    )
    assert one != two
    task = {"model": "transformer", "data": one}
    run = fred.scenario(task=task, cluster={"workers": 1}, algorithm={"name": "asgd", "learning_rate": 1}, stop={"updates": 1})
    other = run.replace({"task.data.file": "two/mine.txt"})
    assert Unit("asgd", run.runs["asgd"], 0).identity != Unit("asgd", other.runs["asgd"], 0).identity


def _paths(cls: type[Component]) -> Iterator[str]:
    """The options of a component that are paths."""
    for name, field in cls.model_fields.items():
        if get_origin(field.annotation) is tuple:  # of several paths: below
            continue
        kinds = (field.annotation, *get_args(field.annotation))
        if any(isinstance(each, type) and issubclass(each, InputPath | Path) for each in kinds) or name in (
            "file",
            "directory",
        ):
            yield name


WITH_PATHS = [
    (registry.lookup(kind, name), option)
    for kind, table in registry.REGISTRY.items()
    for name in table
    for option in _paths(registry.lookup(kind, name))
]
NO_PATHS: list[Any] = [["a"], {"a": 1}, 5, 1.5, True, "", "a\0b", None]


def test_every_option_that_is_a_path_is_known_here():
    found = {(cls.__name__, option) for cls, option in WITH_PATHS}
    assert found == {
        *(
            ("Recorded", "file"),
            ("Empirical", "csv"),
            ("Sessions", "file"),
            ("Arrays", "file"),
            ("Text", "file"),
            ("MNIST", "directory"),
        ),
        *(("CIFAR10", "directory"), ("DeepMarkov", "model"), ("PlainDeepMarkov", "model"), ("PrintedDeepMarkov", "model")),
    }
    for cls, option in WITH_PATHS:
        kinds = (cls.model_fields[option].annotation, *get_args(cls.model_fields[option].annotation))
        assert any(isinstance(each, type) and issubclass(each, InputPath) for each in kinds), (cls, option)


@pytest.mark.parametrize(
    ("cls", "option", "value"),
    [
        (cls, option, value)
        for cls, option in WITH_PATHS
        for value in NO_PATHS
        if value is not None or cls.model_fields[option].is_required()
    ],
)
def test_what_is_no_path_is_refused(cls, option, value):
    with pytest.raises(ValueError, match="path of a file or folder"):
        cls.model_validate({option: value})


@pytest.mark.parametrize("value", [[["a"]], [{"a": 1}], [5], [True], [""], ["a\0b"], [None]])
def test_so_it_is_for_further_files_of_a_trace(value):
    with pytest.raises(ValueError, match="path of a file or folder"):
        Recorded.model_validate({"file": "example", "more": value})


@pytest.mark.parametrize("value", [["a"], {"a": 1}, 5, ""])
def test_so_it_is_for_tables_of_regions(value):
    with pytest.raises(ValueError, match="validation error"):
        Cluster(workers=1, network={"regions": {"bandwidth": value}})


@pytest.mark.parametrize("name", ["x" * 300, "x" * 5000, "no/such/file", ".", "/dev/null", "\ud800"])
@pytest.mark.parametrize(("cls", "option"), WITH_PATHS)
def test_paths_that_lead_nowhere_are_refused_in_a_line(cls, option, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, FredError), match=r"cannot read|missing data|not a|needs|it has|bytes"):
        made = cls.model_validate({option: name})
        made.load(0)


def test_inputs_of_a_scenario_are_found_in_all_its_parts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind in KINDS:
        settings = fred.load(scenario_in(tmp_path / kind, kind))
        assert len(inputs_of(settings)) == 1
    assert not inputs_of(fred.load(ROOT / "scenarios" / "quickstart.yaml"))
    assert isinstance(Arrays.example().file, InputPath)
