"""Files that scenarios name: a run needs them, in whatever folder the command starts; whatever reads its result does not."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import numpy as np
import pytest

import fred
from fred import Cluster, Component, FredError
from fred.base.disk import write_arrays
from fred.cluster.recorded import RecordedTrace
from fred.components import registry
from fred.components.input_path import InputPath
from fred.learning.data.language import Text
from fred.running.units import Unit
from fred.specification.loading import revalidated
from tests.conftest import ROOT
from tests.folders import idx
from tests.program import fred_command, refusal
from tests.worlds import mostly_slow

TIMES = "a,b\n1.0,2.0\n1.5,2.5\n"
TRACE = {"name": "trace", "file": "in/times.csv", "unit": "s"}


def _times(folder: Path) -> None:
    (folder / "times.csv").write_text(TIMES)


def _arrays(folder: Path) -> None:
    inputs = np.arange(12, dtype=np.float32).reshape(6, 2)
    parts = {f"{part}_inputs": inputs for part in ("train", "evaluation")}
    write_arrays(folder / "data.npz", parts | {f"{part}_answers": inputs[:, 0] for part in ("train", "evaluation")})


def _text(folder: Path) -> None:
    (folder / "mine.txt").write_text("to be or not to be " * 20)


def _mnist(folder: Path) -> None:
    for part, count in (("train", 6), ("t10k", 3)):
        idx(folder / f"{part}-images-idx3-ubyte", np.arange(count * 4).reshape(count, 2, 2))
        idx(folder / f"{part}-labels-idx1-ubyte", np.arange(count) % 3)


def _model(folder: Path) -> None:
    for name in ("cluster158.npz", "cluster158.json"):
        shutil.copy(ROOT / "scenarios" / "cutoff-sgd" / name, folder)


def _learning_settings(model: str, **data: Any) -> dict[str, Any]:
    return {"cluster": {"workers": 2}, "task": {"model": model, "batch_size": 2, "data": data}}


CRASHES = {"name": "crashes", "mean_up": 5.0, "away": TRACE}
BY_MODEL = {"name": "cutoff", "rule": {"name": "dmm", "model": "in/cluster158.npz"}}
KINDS: dict[str, tuple[Callable[[Path], None], str, dict[str, Any]]] = {  # what makes the input, its name, who names it
    "trace": (_times, "times.csv", {"cluster": {"workers": 2, "compute": TRACE}}),
    "network": (_times, "times.csv", {"cluster": {"workers": 2, "network": {"latency": TRACE}}}),
    "fault": (_times, "times.csv", {"cluster": {"workers": 2, "faults": [CRASHES]}}),
    "arrays": (_arrays, "data.npz", _learning_settings("softmax", name="arrays", file="in/data.npz")),
    "text": (_text, "mine.txt", _learning_settings("token-scores", name="text", file="in/mine.txt", context=4)),
    "mnist": (_mnist, "train-images-idx3-ubyte", _learning_settings("softmax", name="mnist", directory="in", canonical=False)),
    "model": (_model, "cluster158.npz", {"cluster": {"workers": 2}, "protocol": BY_MODEL}),
}


def scenario_in(folder: Path, kind: str) -> Path:
    make, _, settings = KINDS[kind]
    (folder / "in").mkdir(parents=True)
    make(folder / "in")
    document = {"stop": {"updates": 3}, "algorithm": {"name": "ssgd", "learning_rate": 0.1}, **settings}
    (folder / "a.yaml").write_text(json.dumps(document))
    return folder / "a.yaml"


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("kind", mostly_slow(KINDS, ["text"]))
def test_a_result_finds_its_inputs_in_moved_trees_and_in_the_current_folder_and_units_are_reused(kind, tmp_path, monkeypatch):
    """A whole tree may move; a result that moves alone is run again in the folder that holds the inputs."""
    reused = "1 of 1 runs were finished before and reused"
    monkeypatch.chdir(tmp_path)
    scenario_in(tmp_path / "old" / "here", kind)
    assert fred_command("run", "old/here/a.yaml", "--out", "old/out").code == 0
    files = {file: file.read_bytes() for file in Path("old/out").rglob("*") if file.is_file()}
    assert not [file for file, content in files.items() if str(tmp_path).encode() in content], "no file names the folder"
    monkeypatch.chdir("old/here")
    assert reused in fred_command("run", "a.yaml", "--out", "../out").out
    Path("in").rename("moved")
    Path("a.yaml").write_text(Path("a.yaml").read_text().replace('"in', '"moved'))
    assert reused in fred_command("run", "a.yaml", "--out", "../out").out
    monkeypatch.chdir(tmp_path)
    Path("old").rename("new")
    assert fred_command("verify", "new/out").code == 0
    Path("new/out").rename("out")
    missing = "moved" if kind == "mnist" else KINDS[kind][1]
    cure = f"nor a {missing} in the current folder; bring it back, or start the command in the folder that holds it"
    assert re.fullmatch(rf"fred: cannot read \S*{missing}: No such file or folder, {cure}\n", refusal("verify", "out"))
    with pytest.raises(FredError, match="nor a"):
        fred.run(fred.load_result("out").scenario)
    monkeypatch.chdir(tmp_path / "new" / "here" / ("." if kind == "mnist" else "moved"))
    assert fred_command("verify", tmp_path / "out").code == 0
    _change(kind, tmp_path / "new" / "here" / "moved")
    assert fred_command("show", tmp_path / "out").code == 0
    assert "digest" in refusal("verify", tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_looks_at_a_result_needs_none_of_its_inputs(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scenario_in(tmp_path / "here", kind)
    assert fred_command("run", "here/a.yaml", "--out", "here/out").code == 0
    page = Path("here/out/report.html").read_text()
    assert str(tmp_path) not in page and ("file: times.csv" in page or "times.csv" not in KINDS[kind])
    shutil.rmtree("here/in")
    shutil.copytree("here/out", "there/out")
    assert "1 of 1 shared runs have the same digests" in fred_command("compare", "here/out", "there/out").out
    plan = fred_command("plan", "here/out", "--iterations", "1=4,2=3")
    assert plan.code == (2 if kind == "model" else 0), "only rounds of all count"
    monkeypatch.chdir("there")
    for command in ("show out", "report out", "export out --out a.pftrace", "draw out throughput --out drawn"):
        assert fred_command(*command.split()).code == 0, command
    result = fred.load_result("out")
    assert result.summary["updates"].tolist() == [3] and "throughput" in result.pictures()


def _change(kind: str, folder: Path) -> None:
    file = folder / KINDS[kind][1]
    if kind == "arrays":
        arrays = dict(np.load(file))
        write_arrays(file, {**arrays, "train_inputs": arrays["train_inputs"] + 1})
    elif kind == "mnist":
        idx(file, 1 + np.arange(24).reshape(6, 2, 2))
    elif kind == "model":
        description = json.loads(file.with_suffix(".json").read_text())
        file.with_suffix(".json").write_text(json.dumps(description | {"normaliser": 2 * description["normaliser"]}))
    else:
        file.write_text(file.read_text().replace("1.5", "1.25").replace("not", "nor"))


@pytest.mark.usefixtures("undrawn")
def test_a_file_of_a_scenario_of_freds_is_found_wherever_fred_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = [word for setting in ("stop={updates: 2}", "task=null", "evaluate={points: 1}") for word in ("--set", setting)]
    command = ["run", "cutoff-sgd/figure4", *settings, "--seed", "1", "--only", "cutoff", "--out", "far/out"]
    assert fred_command(*command).code == 0
    assert '"model": "cutoff-sgd/cluster158.npz"' in Path("far/out/manifest.json").read_text()
    Path("far").rename("elsewhere")
    assert fred_command("verify", "elsewhere/out").code == 0


def test_a_path_leads_to_the_same_file_after_the_current_folder_has_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scenario = fred.load(scenario_in(tmp_path / "here", "trace").relative_to(tmp_path))
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    assert fred.run(scenario).summary["updates"].tolist() == [3]
    changed = scenario.replace({"stop.updates": 2})
    assert fred.run(changed).summary["updates"].tolist() == [2]
    assert revalidated(changed) == changed


def test_written_arrays_may_move_with_the_program(tmp_path, monkeypatch):
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
    options = {"file": "mine.txt", "context": 4}
    first, second = (Text.model_validate(options, context={"folder": Path(folder)}) for folder in ("one", "two"))
    assert first != second
    task = {"model": "transformer", "data": first}
    run = fred.scenario(task=task, cluster={"workers": 1}, algorithm={"name": "asgd", "learning_rate": 1}, stop={"updates": 1})
    other = run.replace({"task.data.file": "two/mine.txt"})
    assert Unit("asgd", run.runs["asgd"], 0).identity != Unit("asgd", other.runs["asgd"], 0).identity


def _kinds(cls: type[Component], option: str) -> list[type]:
    annotation = cls.model_fields[option].annotation
    return [kind for kind in (annotation, *get_args(annotation)) if isinstance(kind, type)]


WITH_PATHS = [
    (cls, option)
    for kind, table in registry.REGISTRY.items()
    for cls in (registry.lookup(kind, name) for name in table)
    for option, field in cls.model_fields.items()
    if get_origin(field.annotation) is not tuple
    and (option in ("file", "directory") or any(issubclass(kind, InputPath | Path) for kind in _kinds(cls, option)))
]
NO_PATHS: list[Any] = [["a"], {"a": 1}, 5, 1.5, True, "", "a\0b", None]


def test_every_option_that_is_a_path_is_an_input_path():
    assert {"RecordedTrace", "Sessions", "MNIST", "DMM"} < {cls.__name__ for cls, _ in WITH_PATHS} and len(WITH_PATHS) == 10
    for cls, option in WITH_PATHS:
        assert any(issubclass(kind, InputPath) for kind in _kinds(cls, option)), (cls, option)


def test_what_is_no_path_is_refused():
    listed: Iterator[tuple[Any, Any]] = ((RecordedTrace, {"file": "example", "more": [value]}) for value in NO_PATHS)
    single = (
        (cls, {option: value})
        for cls, option in WITH_PATHS
        for value in (NO_PATHS if cls.model_fields[option].is_required() else NO_PATHS[:-1])
    )
    for cls, options in (*listed, *single):
        with pytest.raises(ValueError, match="path of a file or folder"):
            cls.model_validate(options)
    for value in (["a"], {"a": 1}, 5, ""):
        with pytest.raises(ValueError, match="validation error"):
            Cluster.model_validate({"workers": 1, "network": {"regions": {"bandwidth": value}}})


def test_paths_that_lead_nowhere_are_refused_in_a_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for cls, option in WITH_PATHS:
        for name in ("x" * 300, "x" * 5000, "no/such/file", ".", "/dev/null", "\ud800"):
            with pytest.raises((ValueError, FredError), match=r"cannot read|missing data|not a|needs|it has|bytes"):
                cls.model_validate({option: name}).load(0)
