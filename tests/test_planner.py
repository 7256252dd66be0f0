"""Which protocol reaches a target first: time lost against closed forms, rankings where the answer is known."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.commands.cli import main
from fred.diagnosis import question
from fred.diagnosis.attribution import COMPUTING, Attribution, of_rounds
from fred.diagnosis.candidates import POINTS, RATE, of_cluster, that_apply
from fred.diagnosis.question import Question
from fred.diagnosis.ranking import Place, Spent, against, doubts
from fred.protocols.synchronous import Synchronous
from fred.specification.loading import load, scenario
from tests.planning import BACKUP, SYNC, few, plan
from tests.worlds import TASK, record

ONE = np.zeros(32, np.int64)


def constant(seconds: float) -> dict:
    return {"name": "constant", "seconds": seconds}


class TestTimeLost:
    def test_one_worker_twice_as_slow_is_all_of_it(self):
        speeds = [1.0] * 31 + [0.5]
        cluster = Cluster(workers=32, compute=constant(1.0), speeds=speeds)
        found = of_rounds(record(Synchronous(), cluster, gradients=160), cluster.node_of)
        assert found.slowdown == 2
        assert found.of_workers.tolist() == [1.0] * 31 + [2.0]
        assert (found.worst, found.share_of_worst) == ([31], 1.0)
        assert found.lasting == 2  # always the same one
        assert (found.seconds, found.ideal_seconds, found.network) == (10.0, 5.0, 0.0)

    def test_workers_that_are_alike_lose_nothing(self):
        cluster = Cluster(workers=8, compute=constant(0.3), network={"latency": constant(0.1)})
        found = of_rounds(record(Synchronous(), cluster, gradients=32), cluster.node_of)
        assert found.slowdown == pytest.approx(1, abs=1e-9)
        assert np.isnan(found.share_of_worst)
        np.testing.assert_allclose(found.of_workers, 1)

    def test_a_slow_node_is_told_from_its_workers(self):
        cluster = Cluster(workers=12, nodes=4, compute=constant(1.0), speeds=[1.0] * 9 + [0.5] * 3)
        found = of_rounds(record(Synchronous(), cluster, gradients=36), cluster.node_of)
        assert found.of_nodes.tolist() == [1.0, 1.0, 1.0, 2.0]
        assert found.share_of_nodes == [0.0, 0.0, 0.0, 1.0]
        assert found.share_of_worst == 0.0  # two others are as slow

    def test_messages_are_the_networks(self):
        cluster = Cluster(workers=4, compute=constant(1.0), network={"latency": constant(0.25), "pull_latency": constant(0.75)})
        found = of_rounds(record(Synchronous(), cluster, gradients=24), cluster.node_of)
        assert {name: np.unique(own).tolist() for name, own in found.phases.items()} == {
            "reading": [0.75],
            COMPUTING: [1.0],
            "sending": [0.25],
        }
        assert found.network == 0.5
        assert set(found.of_phases.values()) == {1.0}

    def test_with_several_servers_the_first_block_tells(self):
        cluster = Cluster(workers=3, servers=2, compute=constant(1.0), speeds=[1, 1, 0.5], network={"latency": constant(0.25)})
        found = of_rounds(record(Synchronous(), cluster, gradients=12), cluster.node_of)
        assert found.slowdown == pytest.approx(2.5 / 1.5)
        assert found.seconds == pytest.approx(4 * 2.5)
        assert found.share_of_worst == 1

    def test_a_slow_link_is_the_phase_that_straggles(self):
        sending = np.full((3, 5), 0.5)
        sending[:, 2] = 2.0
        found = Attribution({COMPUTING: np.ones((3, 5)), "sending": sending}, ONE[:5])
        assert found.slowdown == 2
        assert found.of_phases == {COMPUTING: 1.0, "sending": 2.0}
        assert found.share([2]) == 1

    def test_what_is_chance_does_not_last(self):
        seconds = 1 + np.eye(7)  # each is slow once
        found = Attribution({COMPUTING: seconds}, ONE[:7])
        assert (found.slowdown, found.lasting) == (2, 1)
        np.testing.assert_allclose(found.of_workers, 8 / 7)
        np.testing.assert_allclose([found.share([worker]) for worker in range(7)], 1 / 7)

    def test_by_hand_on_any_times(self):
        rng = np.random.default_rng(5)
        phases = {"reading": rng.random((6, 5)), COMPUTING: 1 + rng.random((6, 5))}
        found = Attribution(phases, np.array([0, 0, 1, 1, 1]))
        ideal = [sum(np.median(own[row]) for own in phases.values()) for row in range(6)]
        actual = [max(sum(own[row, worker] for own in phases.values()) for worker in range(5)) for row in range(6)]
        assert found.slowdown == pytest.approx(sum(actual) / sum(ideal))
        for worker in range(5):
            own = [max(ideal[row], sum(each[row, worker] for each in phases.values())) for row in range(6)]
            rest = [
                max([ideal[row], *(sum(each[row, other] for each in phases.values()) for other in range(5) if other != worker)])
                for row in range(6)
            ]
            assert found.of_workers[worker] == pytest.approx(sum(own) / sum(ideal))
            assert found.share([worker]) == pytest.approx((sum(actual) - sum(rest)) / (sum(actual) - sum(ideal)))
        assert found.share(range(5)) == pytest.approx(1)

    def test_rounds_with_backup_workers_are_refused(self):
        cluster = Cluster(workers=4, compute={"name": "uniform", "low": 1, "high": 2})
        with pytest.raises(ValueError, match="every worker takes part"):
            of_rounds(record(Synchronous(backup_workers=1), cluster, gradients=16), cluster.node_of)


class TestCandidates:
    @pytest.mark.parametrize("workers", [1, 2, 3, 8, 100])
    def test_each_has_as_many_points_as_any_other_and_a_knob_that_fits(self, workers):
        asking = Question(Cluster(workers=workers), TASK, {"target_error": 0.5}, 10.0)
        can, cannot = that_apply(asking.cluster, asking.parts, 0.5)
        planned = scenario(asking.document(can))
        of = [point.of for point in planned.points.values()]
        assert {of.count(each.run) for each in can} == {POINTS}
        assert set(cannot) <= {each.run for each in of_cluster(asking.cluster)} - {"sync"}
        assert ("wagma-sgd" in cannot) == (workers in (3, 100))
        for why in cannot.values():
            assert why

    def test_what_is_wrong_with_all_is_an_error(self):
        asking = Question(Cluster(workers=4), {"data": "digits"}, {"target_error": 0.5}, 10.0)
        with pytest.raises(FredError, match=r"task\.model"):
            that_apply(asking.cluster, asking.parts, 0.5)

    def test_allreduce_needs_a_network(self):
        assert "allreduce" not in [each.run for each in of_cluster(Cluster(workers=4))]
        assert "allreduce" in [each.run for each in of_cluster(Cluster(workers=4, network={"latency": constant(1.0)}))]


class TestRanking:
    @pytest.fixture(autouse=True)
    def _few_points(self, monkeypatch):
        monkeypatch.setattr("fred.diagnosis.candidates.POINTS", 2)

    def test_a_worker_that_never_answers_makes_a_backup_worker_the_answer(self):
        cluster = Cluster(workers=4, compute=constant(1.0), speeds=[1, 1, 1, 1e-6])
        _, found = plan(cluster, [SYNC, BACKUP], budget=40.0)
        assert [place.run for place in found.places] == ["backup-workers"]
        assert list(found.unreached) == ["sync"]
        assert found.places[0].values["protocol.backup_workers"] == 1

    def test_equal_workers_have_no_use_for_a_backup_worker(self):
        result, found = plan(Cluster(workers=4, compute=constant(1.0)), [SYNC, BACKUP], budget=40.0)
        throughput = result.summary.groupby(result.summary["name"].str.partition(",")[0])["throughput"].max()
        assert throughput["sync"] > throughput["backup-workers"]
        assert len(found.places) == 2

    def test_times_are_those_of_the_reported_seeds_alone_and_in_order(self):
        result, found = plan(Cluster(workers=4, compute={"name": "uniform", "low": 1, "high": 3}), [SYNC, BACKUP], budget=40.0)
        summary = result.summary.set_index(["name", "seed"])["target_seconds"]
        for place in found.places:
            assert place.seconds == tuple(summary[place.point, seed] for seed in (101, 102))
        assert [place.median for place in found.places] == sorted(place.median for place in found.places)
        first, second = found.places
        assert first.against is None
        ratio = np.exp(np.mean(np.log(second.seconds) - np.log(first.seconds)))
        assert second.against["mean"] == pytest.approx(ratio)

    def test_an_edge_is_said_and_a_target_that_nobody_reached(self):
        cluster = Cluster(workers=4, compute=constant(1.0))
        _, found = plan(cluster, [SYNC], budget=40.0)
        assert found.places[0].edges == (RATE,)  # of two rates each is one
        assert "at the edge of what was tried" in doubts(found, 0.2, 40.0)[0]
        _, nothing = plan(cluster, [SYNC], budget=3.0, target=0.001)
        assert not nothing.places
        assert nothing.unreached["sync"] > 0.001
        assert "no system reached the target within 3 s" in doubts(nothing, 0.1, 3.0)[0]


def within(budget: float, *seconds: float) -> Spent:
    """Return the times of runs that last as long as the budget."""
    return Spent(seconds, [budget] * len(seconds))


def test_a_system_is_surely_later_only_if_the_interval_says_so_where_misses_count_as_the_budget():
    never, first = math.inf, (2.0, 2.1, 2.2, 2.0, 2.1)
    (missing,) = against([within(10.0, *[never] * 5)], within(10.0, *first))
    (once,) = against([within(2.5, 2.0, 2.1, 2.3, 2.0, never)], within(2.5, *first))
    (unsure,) = against([within(5.0, 4.0, 4.1, 4.2, 4.3, never)], within(5.0, 1.0, 2.0, never, never, never))
    told = [Place("b", "b", {}, 1, (), (), pair).told_apart for pair in (missing, once, unsure)]
    assert told == [True, False, False]
    assert missing["mean"] == pytest.approx(10 / math.prod(first) ** 0.2)


def test_several_systems_are_compared_with_the_first_as_one_family():
    first, slow, other = (2.0, 2.1, 2.2, 2.0, 2.1), (2.2, 2.4, 2.3, 2.3, 2.5), (2.0, 2.2, 2.1, 2.1, 2.0)
    of_first, of_slow, of_other = (within(10.0, *each) for each in (first, slow, other))
    alone, together = against([of_slow], of_first)[0], against([of_slow, of_other], of_first)[0]
    assert together["low"] < alone["low"] < alone["mean"] == together["mean"]


@pytest.mark.parametrize("workers", [2, 3, 5, 9])
def test_no_two_systems_of_a_plan_are_the_same(workers):
    softsync = next((each for each in of_cluster(Cluster(workers=workers)) if each.run == "softsync"), None)
    assert all(workers // n > 1 for n in (softsync.values if softsync else ())), "with one gradient an update it is asgd"


SMALL = """
task: {data: {name: synthetic-classification, examples: 600, evaluation: 100, features: 8, classes: 4}, model: softmax}
evaluate: {target_error: 0.5}
"""


ON_A_TRACE = """
cluster: {workers: 8, nodes: 2, compute: {name: trace, file: example}}
algorithm: {name: ssgd, learning_rate: 0.1}
stop: {seconds: 20}
"""


def test_the_command_says_who_was_first_and_leaves_a_scenario_to_go_on_from(tmp_path, capsys, monkeypatch):
    few(monkeypatch)
    task, out, mine = tmp_path / "task.yaml", tmp_path / "out", tmp_path / "mine.yaml"
    task.write_text(SMALL)
    mine.write_text(ON_A_TRACE)
    command = ["plan", str(mine), "--for", str(task), "--seeds", "2", "--budget", "20", "--jobs", "1", "--out", str(out)]
    assert main(command) == 0
    shown = capsys.readouterr().out
    for words in ("reached an error of 0.5 first, after", "Not considered: ad-psgd", "all workers"):
        assert words in shown
    planned = load(out / "scenario.yaml")
    assert {point.of for point in planned.points.values()} == {"sync", "asgd"}


def test_a_scenario_says_cluster_task_and_budget_itself(tmp_path, capsys, monkeypatch):
    few(monkeypatch)
    file = tmp_path / "mine.yaml"
    file.write_text(
        SMALL
        + "cluster: {workers: 3, compute: {name: constant, seconds: 1.0}, network: {latency: {name: constant, seconds: 0.5}}}\n"
        "algorithm: {name: asgd, learning_rate: 0.1}\nstop: {seconds: 12}\n"
    )
    assert main(["plan", str(file), "--seeds", "1", "--jobs", "1", "--json", "--out", str(tmp_path / "out")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["budget"], told["target"]) == (12.0, {"target_error": 0.5})
    assert {each["run"] for each in told["ranking"]} | told["unreached"].keys() == {"sync", "asgd"}
    assert told["lost"]["network"] == pytest.approx(0.5)  # two messages of half a second each


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["systems/ssp", "--for", "digit"], "--for digit: expected digits, or a YAML file"),
        (["systems/ssp", "--for", "none.yaml"], "none.yaml"),
        (["systems/ssp", "--for", "digits", "--budget", "-1"], "--budget -1: expected a number above 0"),
        (["systems/ssp", "--for", "digits", "--iterations", "2=3"], "--iterations is for a result folder"),
        (["systems/ssp", "--for", "task.yaml"], "no target: give --target-error"),
        (["times.csv", "--for", "digits"], "for a trace, use `fred diagnose times.csv --for digits`"),
        (["times.csv"], "for a trace, use `fred diagnose times.csv`"),
        ([".", "--for", "digits"], "is a folder"),
        (["systems/ssp", "--workers", "3"], "--workers is for a result folder"),
        (
            ["quickstart", "--by", "cost"],
            "--by cost: nothing in quickstart has a price; add, for example, `prices: {workers: [{per_",
        ),
        (
            ["quickstart", "--by", "energy"],
            "--by energy: no machine in quickstart draws power; add, for example, `prices: {wor",
        ),
        ([".", "--by", "cost"], "is a folder: --by needs a scenario"),
        (["systems/ssp"], "no target: give --target-error"),
    ],
)
def test_mistakes_are_told_in_a_line_and_leave_nothing(command, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("task.yaml").write_text("task: {data: digits, model: softmax}\n")
    assert main(["plan", *command]) == 2
    assert words in capsys.readouterr().err
    assert not Path("results").exists()


def test_a_scenario_that_somebody_changed_is_not_overwritten(tmp_path, capsys, monkeypatch):
    few(monkeypatch)
    out = tmp_path / "out"
    out.mkdir()
    (out / "scenario.yaml").write_text("title: mine\n")
    assert main(["plan", "quickstart", "--out", str(out)]) == 2
    assert "is there already, and not what this command writes" in capsys.readouterr().err
    assert (out / "scenario.yaml").read_text() == "title: mine\n"


def test_a_task_is_a_name_a_block_or_a_scenario(tmp_path):
    block = tmp_path / "task.yaml"
    block.write_text(SMALL)
    task, target = question.task_of(str(block))
    assert (task["data"]["name"], task["batch_size"], target) == ("synthetic-classification", 8, {"target_error": 0.5})
    assert question.task_of("digits")[1] == question.task_of("quickstart")[1] == {"target_error": 0.12}
    block.write_text("task: {data: digits, modl: softmax}\n")
    with pytest.raises(FredError, match=r"task\.yaml:1: task\.modl: unknown key"):
        question.task_of(str(block))
