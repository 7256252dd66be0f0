"""FRED called from Python: what a person types first, and classes of one's own in every place where a scenario takes one."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fred

SETTINGS: dict[str, Any] = {
    "cluster": {"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    "stop": {"updates": 6},
    "algorithm": {"name": "asgd", "learning_rate": 0.1},
}
TASK = {"data": "digits", "model": "softmax"}


class Scaled(fred.Server):
    """Steps that are scaled."""

    scale: float = 1.0

    def apply_update(self, state: fred.State, message: fred.Message, timestamp: int, worker: int) -> fred.State:
        return self.step(state, {name: self.scale * array for name, array in message.items()})


class Fixed(fred.Latency):
    """Always the same."""

    seconds: float = 0.5

    def sample(self, u: Any) -> Any:
        return np.full_like(u, self.seconds)

    @property
    def mean(self) -> float:
        return self.seconds


class TestReplace:
    def test_a_scenario_with_classes_of_ones_own_can_be_changed_in_every_part(self):
        one = fred.scenario(SETTINGS, algorithm=Scaled(learning_rate=0.1), task=TASK)
        changed = one.replace({"algorithm.scale": 2.0, "cluster.workers": 3}, seeds=[1, 2])
        assert changed == fred.scenario(
            SETTINGS | {"cluster": SETTINGS["cluster"] | {"workers": 3}},
            algorithm=Scaled(learning_rate=0.1, scale=2.0),
            task=TASK,
            seeds=[1, 2],
        )
        assert one.replace() == one and one.runs["Scaled"].algorithm == Scaled(learning_rate=0.1)

    def test_parts_can_be_objects_and_classes(self):
        one = fred.scenario(SETTINGS, algorithm=Scaled(learning_rate=0.1))
        changed = one.replace({"cluster.compute": Fixed(seconds=2.0), "algorithm": Scaled, "algorithm.learning_rate": 0.5})
        run = changed.runs["Scaled"]
        assert (run.cluster.compute, run.algorithm) == (Fixed(seconds=2.0), Scaled(learning_rate=0.5))

    def test_another_algorithm_gets_its_own_protocol(self):
        one = fred.scenario(SETTINGS, algorithm=Scaled(learning_rate=0.1))
        changed = one.replace(algorithm={"name": "ssgd", "learning_rate": 0.1})
        assert (
            changed.runs["Scaled"].protocol
            == fred.scenario(SETTINGS, algorithm=changed.runs["Scaled"].algorithm).runs["ssgd"].protocol
        )

    def test_a_class_of_ones_own_can_be_swept(self):
        result = fred.run(
            SETTINGS
            | {"algorithm": Scaled(learning_rate=0.1), "task": TASK, "sweep": {"over": {"algorithm.scale": [0.0, 1.0]}}}
        )
        still, moved = (result.metrics[result.metrics["run"] == f"Scaled,scale={scale}"]["loss"] for scale in (0, 1))
        assert still.nunique() == 1 and moved.nunique() > 1


class TestFirstCalls:
    def test_run_takes_a_mapping_a_name_and_a_path(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        Path("mine.yaml").write_text("algorithm: {name: asgd, learning_rate: 0.1}\ncluster: {workers: 2}\nstop: {updates: 6}\n")
        for scenario in ("mine.yaml", Path("mine.yaml"), fred.load("mine.yaml"), {**SETTINGS, "cluster": {"workers": 2}}):
            assert fred.run(scenario).summary["updates"].tolist() == [6]
        assert fred.run("quickstart", only="asgd", seeds=[7]).summary["seed"].tolist() == [7]

    def test_seeds_replace_those_of_the_scenario(self):
        assert fred.run(SETTINGS, seeds=(3, 4)).summary["seed"].tolist() == [3, 4]

    def test_settings_of_a_file_can_be_a_mapping(self):
        assert fred.load("quickstart", {"seeds": [4], "stop.seconds": 2}).seeds == (4,)

    def test_a_scenario_and_keywords_make_another_scenario(self):
        assert fred.scenario(fred.scenario(SETTINGS), seeds=[4]) == fred.scenario(SETTINGS, seeds=[4])

    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (lambda: fred.run(None), "found None; expected a scenario: "),  # type: ignore[arg-type]
            (lambda: fred.run("quickstrat"), "did you mean `quickstart`"),
            (lambda: fred.run(SETTINGS, jobs="many"), "jobs='many': expected a number of processes, or 'all'"),  # type: ignore[arg-type]
            (lambda: fred.run(SETTINGS, jobs=0), "jobs=0: expected a number of processes"),
            (lambda: fred.run(SETTINGS, seeds=3), r"seeds=3: found 3; expected a list, such as `seeds: \[1, 2, 3\]`"),  # type: ignore[arg-type]
            (lambda: fred.scenario("mine.yaml"), "expected a mapping of settings; `fred.load` reads a file"),  # type: ignore[arg-type]
            (lambda: fred.ASGD(lr=0.1), "asgd.lr: unknown key `lr`; did you mean `learning_rate`?"),  # type: ignore[call-arg]
            (lambda: fred.ASGD(), "asgd.learning_rate: missing key `learning_rate`"),  # type: ignore[call-arg]
            (lambda: fred.Cluster(workers=0), "Cluster.workers: found 0; expected greater than or equal to 1"),
        ],
    )
    def test_mistakes_are_refused_with_what_was_expected(self, call, words):
        with pytest.raises(fred.FredError, match=words):
            call()


PROGRAM = """
import fred


class Half(fred.Server):
    def apply_update(self, state, grads, timestamp, worker):
        return self.step(state, {name: grad / 2 for name, grad in grads.items()})


if __name__ == "__main__":
    cluster = {"workers": 2, "compute": {"name": "constant", "seconds": 0.5}}
    task = {"data": "digits", "model": "softmax"}
    one = fred.scenario(cluster=cluster, stop={"updates": 30}, task=task, algorithm=Half(learning_rate=0.2), seeds=[1, 2])
    losses = [fred.run(one, jobs=jobs).summary["loss"].tolist() for jobs in (1, 2)]
    plain = fred.run(one.replace({"algorithm": {"name": "asgd", "learning_rate": 0.1}})).summary["loss"].tolist()
    assert losses == [plain, plain], (losses, plain)
"""


@pytest.mark.slow
def test_a_class_of_a_program_runs_in_several_processes(tmp_path):
    (tmp_path / "mine.py").write_text(PROGRAM)
    subprocess.run([sys.executable, "mine.py"], cwd=tmp_path, check=True)
