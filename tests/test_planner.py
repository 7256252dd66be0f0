"""Which protocol reaches a target first, and how many workers to wait for: against closed forms and known answers."""

import itertools
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from fred import Cluster, FredError
from fred.diagnosis import backup_workers, question
from fred.diagnosis.attribution import COMPUTING, Attribution, of_rounds
from fred.diagnosis.backup_workers import arrivals
from fred.diagnosis.question import POINTS, RATE, Question, of_cluster, that_apply
from fred.diagnosis.ranking import Place, Spent, compare_spent, doubts
from fred.protocols.synchronous import Synchronous
from fred.specification.loading import load, scenario
from tests.planning import BACKUP, SYNC, limit_points, plan
from tests.program import fred_command, refusal
from tests.worlds import TASK, record


def constant(seconds: float) -> dict:
    return {"name": "constant", "seconds": seconds}


def attribution(gradients: int, **options) -> Attribution:
    """Return the attribution of a synchronous run on a cluster, with compute times of 1 s."""
    cluster = Cluster(compute=constant(1.0), **options)
    return of_rounds(record(Synchronous(), cluster, gradients=gradients), cluster.node_of)


EQUAL = Cluster(workers=4, compute=constant(1.0))
UNEQUAL = Cluster(workers=4, compute={"name": "uniform", "low": 1, "high": 3})


class TestTimeLost:
    def test_it_is_that_of_slow_workers_and_nodes(self):
        report = attribution(160, workers=32, speeds=[1.0] * 31 + [0.5])
        assert (report.slowdown, report.seconds, report.ideal_seconds, report.network) == (2, 10.0, 5.0, 0.0)
        assert report.of_workers.tolist() == [1.0] * 31 + [2.0]
        assert (report.worst_workers, report.share_of_worst, report.lasting) == ([31], 1.0, 2)  # always the same one
        report = attribution(36, workers=12, nodes=4, speeds=[1.0] * 9 + [0.5] * 3)
        assert report.of_nodes.tolist() == [1.0, 1.0, 1.0, 2.0]
        assert report.share_of_nodes == [0.0, 0.0, 0.0, 1.0]
        assert report.share_of_worst == 0.0  # two others are as slow
        equal = attribution(32, workers=8, network={"latency": constant(0.1)})
        assert equal.slowdown == pytest.approx(1, abs=1e-9) and np.isnan(equal.share_of_worst)
        np.testing.assert_allclose(equal.of_workers, 1)

    def test_it_has_phases_of_which_messages_are_the_networks(self):
        report = attribution(24, workers=4, network={"latency": constant(0.25), "pull_latency": constant(0.75)})
        phases = {name: np.unique(seconds).tolist() for name, seconds in report.phases.items()}
        assert phases == {"reading": [0.75], COMPUTING: [1.0], "sending": [0.25]}
        assert report.network == 0.5 and set(report.of_phases.values()) == {1.0}
        sending = np.full((3, 5), 0.5)
        sending[:, 2] = 2.0
        report = Attribution({COMPUTING: np.ones((3, 5)), "sending": sending}, np.zeros(5, np.int64))
        assert (report.slowdown, report.share([2])) == (2, 1)
        assert report.of_phases == {COMPUTING: 1.0, "sending": 2.0}, "a slow link"

    def test_with_several_servers_the_first_block_counts(self):
        report = attribution(12, workers=3, servers=2, speeds=[1, 1, 0.5], network={"latency": constant(0.25)})
        assert (report.slowdown, report.seconds, report.share_of_worst) == pytest.approx((2.5 / 1.5, 4 * 2.5, 1))

    def test_slowness_by_chance_does_not_last(self):
        report = Attribution({COMPUTING: 1 + np.eye(7)}, np.zeros(7, np.int64))  # each worker is slow once
        assert (report.slowdown, report.lasting) == (2, 1)
        np.testing.assert_allclose(report.of_workers, 8 / 7)
        np.testing.assert_allclose([report.share([worker]) for worker in range(7)], 1 / 7)

    def test_any_times_by_hand(self):
        rng = np.random.default_rng(5)
        phases = {"reading": rng.random((6, 5)), COMPUTING: 1 + rng.random((6, 5))}
        report = Attribution(phases, np.array([0, 0, 1, 1, 1]))
        total = phases["reading"] + phases[COMPUTING]
        ideal = [sum(np.median(times[row]) for times in phases.values()) for row in range(6)]
        actual = [max(total[row]) for row in range(6)]
        assert report.slowdown == pytest.approx(sum(actual) / sum(ideal))
        for worker in range(5):
            with_worker = [max(ideal[row], total[row, worker]) for row in range(6)]
            rest = [max(ideal[row], *np.delete(total[row], worker)) for row in range(6)]
            assert report.of_workers[worker] == pytest.approx(sum(with_worker) / sum(ideal))
            assert report.share([worker]) == pytest.approx((sum(actual) - sum(rest)) / (sum(actual) - sum(ideal)))
        assert report.share(range(5)) == pytest.approx(1)

    def test_rounds_with_backup_workers_are_refused(self):
        with pytest.raises(ValueError, match="every worker takes part"):
            of_rounds(record(Synchronous(backup_workers=1), UNEQUAL, gradients=16), UNEQUAL.node_of)


class TestCandidates:
    @pytest.mark.parametrize("workers", [1, 2, 3, 8, 100])
    def test_all_have_the_same_number_of_points_and_knobs_that_fit(self, workers):
        query = Question(Cluster(workers=workers), TASK, {"target_error": 0.5}, 10.0)
        can, cannot = that_apply(query.cluster, query.parts, 0.5)
        planned = scenario(query.document(can))
        of = [point.of for point in planned.points.values()]
        assert {of.count(candidate.run) for candidate in can} == {POINTS}
        assert set(cannot) <= {candidate.run for candidate in of_cluster(query.cluster)} - {"sync"}
        assert ("wagma-sgd" in cannot) == (workers in (3, 100))
        assert all(cannot.values()), "each has a reason"

    def test_a_mistake_in_all_is_an_error(self):
        query = Question(Cluster(workers=4), {"data": "digits"}, {"target_error": 0.5}, 10.0)
        with pytest.raises(FredError, match=r"task\.model"):
            that_apply(query.cluster, query.parts, 0.5)

    def test_they_fit_the_cluster(self):
        def values(**options) -> dict:
            return {candidate.run: candidate.values for candidate in of_cluster(Cluster(**options))}

        assert "allreduce" not in values(workers=4)
        assert "allreduce" in values(workers=4, network={"latency": constant(1.0)})
        for workers in (2, 3, 5, 9):
            assert all(workers // n > 1 for n in values(workers=workers).get("softsync", ())), "else it is asgd"


class TestRanking:
    @pytest.fixture(autouse=True)
    def _few_points(self, monkeypatch):
        monkeypatch.setattr("fred.diagnosis.question.POINTS", 2)

    @pytest.mark.slow
    def test_a_backup_worker_is_the_answer_where_a_worker_never_answers_and_not_where_all_are_equal(self):
        result, ranking = plan(EQUAL, [SYNC, BACKUP], budget=40.0)
        throughput = result.summary.groupby(result.summary["name"].str.partition(",")[0])["throughput"].max()
        assert throughput["sync"] > throughput["backup-workers"]
        assert len(ranking.places) == 2
        _, ranking = plan(EQUAL.model_copy(update={"speeds": [1, 1, 1, 1e-6]}), [SYNC, BACKUP], budget=40.0)
        places = [(place.run, place.values["protocol.backup_workers"]) for place in ranking.places]
        assert (places, [*ranking.unreached]) == ([("backup-workers", 1)], ["sync"])

    def test_times_are_those_of_the_reported_seeds_alone_and_in_order(self):
        result, ranking = plan(UNEQUAL, [SYNC, BACKUP], budget=40.0)
        summary = result.summary.set_index(["name", "seed"])["target_seconds"]
        for place in ranking.places:
            assert place.seconds == tuple(summary[place.point, seed] for seed in (101, 102))
        assert [place.median for place in ranking.places] == sorted(place.median for place in ranking.places)
        first, second = ranking.places
        assert first.comparison is None
        assert second.comparison["mean"] == pytest.approx(np.exp(np.mean(np.log(second.seconds) - np.log(first.seconds))))

    def test_an_edge_and_a_missed_target_are_reported(self):
        _, ranking = plan(EQUAL, [SYNC], budget=40.0)
        assert ranking.places[0].edges == (RATE,)  # of two rates each is one
        assert "at the edge of what was tried" in doubts(ranking, 0.2, 40.0)[0]
        _, nothing = plan(EQUAL, [SYNC], budget=3.0, target=0.001)
        assert not nothing.places and nothing.unreached["sync"] > 0.001
        assert "no system reached the target within 3 s" in doubts(nothing, 0.1, 3.0)[0]


def spent_within(budget: float, *seconds: float) -> Spent:
    return Spent(seconds, [budget] * len(seconds))


def test_a_system_is_significantly_later_only_if_the_interval_says_so_and_misses_count_as_the_budget():
    never, first = math.inf, (2.0, 2.1, 2.2, 2.0, 2.1)
    (missing,) = compare_spent([spent_within(10.0, *[never] * 5)], spent_within(10.0, *first))
    (single_miss,) = compare_spent([spent_within(2.5, 2.0, 2.1, 2.3, 2.0, never)], spent_within(2.5, *first))
    (unsure,) = compare_spent([spent_within(5.0, 4.0, 4.1, 4.2, 4.3, never)], spent_within(5.0, 1.0, 2.0, never, never, never))
    verdicts = [Place("b", "b", {}, 1, (), (), pair).is_worse for pair in (missing, single_miss, unsure)]
    assert verdicts == [True, False, False]
    assert missing["mean"] == pytest.approx(10 / math.prod(first) ** 0.2)


def test_several_systems_are_compared_with_the_first_as_one_family():
    first, slow, other = (2.0, 2.1, 2.2, 2.0, 2.1), (2.2, 2.4, 2.3, 2.3, 2.5), (2.0, 2.2, 2.1, 2.1, 2.0)
    of_first, of_slow, of_other = (spent_within(10.0, *seconds) for seconds in (first, slow, other))
    single, together = compare_spent([of_slow], of_first)[0], compare_spent([of_slow, of_other], of_first)[0]
    assert together["low"] < single["low"] < single["mean"] == together["mean"]


SMALL = f"task: {json.dumps(TASK)}\nevaluate: {{target_error: 0.5}}\n"
ALGORITHM = "algorithm: {name: ssgd, learning_rate: 0.1}\n"
TRACED = f"cluster: {{workers: 8, compute: {{name: trace, file: example}}}}\n{ALGORITHM}stop: {{updates: 60}}\n"


class TestCommand:
    @pytest.mark.slow
    def test_it_says_which_system_is_first_and_leaves_a_scenario_to_go_on_from(self, tmp_path, monkeypatch):
        limit_points(monkeypatch)
        task, out, cluster_file = tmp_path / "task.yaml", tmp_path / "out", tmp_path / "mine.yaml"
        task.write_text(SMALL)
        cluster_file.write_text(TRACED.replace("workers: 8", "workers: 8, nodes: 2"))
        options = ("--for", task, "--seeds", 2, "--budget", 20, "--jobs", 1, "--out", out)
        answer = fred_command("plan", cluster_file, *options, columns=80)
        for words in ("reached an error of 0.5 first, after", "Not considered: ad-psgd", "all workers"):
            assert words in answer.out
        words = " ".join(answer.out.split())
        (sentence,) = re.findall(r"\w+ \([^)]*\) reached an error of 0.5 first, after [\d.]+ s \(median of 2 seeds\)", words)
        page = (out / "report.html").read_text()
        assert page.index(">Answer<") < page.index(sentence) < page.index("<table")
        assert page.index(">Doubts<") < page.index("<table") and "Time to an error of 0.5, within 20 s</h2>" in page
        result = (out / "result" / "report.html").read_text()
        answered = result.split('id="answer">')[1]
        assert re.match(r"\w+,learning_rate=[\d.]+ reached 50 % error", answered), answered[:200]
        assert {point.of for point in load(out / "scenario.yaml").points.values()} == {"sync", "asgd"}

    def test_mistakes_are_refused_in_a_line_and_leave_nothing(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        Path("task.yaml").write_text("task: {data: digits, model: softmax}\n")
        for command, words in (
            ("systems/ssp --for digit", "--for digit: expected digits, or a YAML file"),
            ("systems/ssp --for none.yaml", "none.yaml"),
            ("systems/ssp --for digits --budget -1", "--budget -1: expected a number above 0"),
            ("systems/ssp --for digits --iterations 2=3", "--iterations is for a result folder"),
            ("systems/ssp --for task.yaml", "no target: give --target-error"),
            ("systems/ssp", "no target: give --target-error"),
            ("systems/ssp --workers 3", "--workers is for a result folder"),
            ("times.csv --for digits", "for a trace, use `fred diagnose times.csv --for digits`"),
            ("times.csv", "for a trace, use `fred diagnose times.csv`"),
            (". --for digits", "is a folder"),
            (". --by cost", "is a folder: --by needs a scenario"),
            ("quickstart --by cost", "--by cost: nothing in quickstart has a price; add, for example, `prices: {work"),
            ("quickstart --by energy", "--by energy: no machine in quickstart draws power; add, for example, `prices: {wor"),
        ):
            assert words in refusal("plan", *command.split()), command
        assert not Path("results").exists()

    @pytest.mark.parametrize(
        ("file", "command"),
        [("scenario.yaml", "quickstart"), ("report.html", "quickstart"), ("trade-off.svg", "cost --by cost")],
    )
    def test_a_file_that_somebody_else_wrote_is_not_overwritten(self, file, command, tmp_path, monkeypatch):
        limit_points(monkeypatch)
        (tmp_path / file).write_text("title: mine\n")
        assert f"{file} is there already, and not what" in refusal("plan", *command.split(), "--out", tmp_path)
        assert (tmp_path / file).read_text() == "title: mine\n"


def test_a_task_is_a_name_a_block_or_a_scenario(tmp_path):
    block = tmp_path / "task.yaml"
    block.write_text(SMALL)
    task, target = question.task_of(str(block))
    assert (task["data"]["name"], task["batch_size"], target) == ("synthetic-classification", 4, {"target_error": 0.5})
    assert question.task_of("digits")[1] == question.task_of("quickstart")[1] == {"target_error": 0.12}
    block.write_text("task: {data: digits, modl: softmax}\n")
    with pytest.raises(FredError, match=r"task\.yaml:1: task\.modl: unknown key"):
        question.task_of(str(block))


class TestBackupWorkers:
    def test_fewer_workers_are_the_mean_over_all_choices_of_them(self):
        seconds = np.random.default_rng(3).exponential(size=(5, 6))
        for workers in (1, 2, 4, 6):
            choices = itertools.combinations(range(6), workers)
            ordered = [np.sort(seconds[:, list(members)], axis=1).mean(axis=0) for members in choices]
            np.testing.assert_allclose(backup_workers.mean_arrivals(seconds, workers), np.mean(ordered, axis=0))
        with pytest.raises(ValueError, match="1 to 6 workers"):
            backup_workers.mean_arrivals(seconds, 7)

    def test_iterations_between_and_beyond_measured_ones(self):
        iterations = backup_workers.iterations_at(np.array([49, 50, 60, 100, 101]), {50: 137.5, 100: 76.2})
        np.testing.assert_allclose(iterations, [np.nan, 137.5, 125.24, 76.2, np.nan])
        exact = {n: 30 + 400 / n for n in (4, 7, 20)}
        np.testing.assert_allclose(backup_workers.iterations_at(np.array([1, 10, 1000]), exact, "fitted"), [430, 70, 30.4])
        steeper = backup_workers.iterations_at(np.array([1, 4, 8]), {2: 100.0, 4: 20.0, 8: 10.0}, "fitted")
        assert (steeper > 0).all() and (np.diff(steeper) < 0).all()
        for wrong in ({}, {3: 0.0}, {3: 10.0}):
            with pytest.raises(ValueError, match="expected a positive number of iterations"):
                backup_workers.iterations_at(np.arange(1, 21), wrong, "fitted")

    def test_the_best_plan_is_the_best_of_all(self):
        times, table = np.cumsum(np.random.default_rng(1).exponential(size=30)), {5: 900.0, 12: 500.0, 30: 260.0}
        result = backup_workers.plan(times, table)
        durations = {n: np.interp(n, [5, 12, 30], [900, 500, 260]) * times[n - 1] for n in range(5, 31)}
        best = min(durations, key=durations.__getitem__)
        assert (result.workers, result.waited_for[result.best_index]) == (30, best)
        np.testing.assert_allclose(result.seconds, list(durations.values()))
        with pytest.raises(ValueError, match="known for N = 5 to 30, but there are 4 workers"):
            backup_workers.plan(times[:4], table)

    def test_arrivals_are_compute_times_where_nothing_else_takes_time(self):
        cluster = Cluster(workers=5, compute={"name": "exponential", "scale": 1.0})
        schedule = record(Synchronous(), cluster, gradients=500, seed=4)
        spans = (schedule["end_ns"] - schedule["begin_ns"])[schedule["verb"] == 2] / 1e9
        np.testing.assert_allclose(arrivals(schedule), np.sort(spans.reshape(100, 5), axis=1), atol=1e-8)
        with pytest.raises(ValueError, match="complete rounds"):
            arrivals(record(Synchronous(), cluster, seconds=0.01, seed=4))

    @pytest.mark.slow
    @pytest.mark.usefixtures("undrawn")
    def test_a_result_folder_says_how_long_everything_takes(self, tmp_path):
        file, out = tmp_path / "backup.yaml", tmp_path / "out"
        compute = {"name": "pareto", "minimum": 0.1, "alpha": 1.2}
        scenario = {"seeds": [1, 2], "task": TASK, "cluster": {"workers": 4, "compute": compute}, "stop": {"updates": 80}}
        scenario |= {"algorithm": {"name": "ssgd", "learning_rate": 0.2}, "evaluate": {"every_updates": 1, "target_loss": 1.3}}
        file.write_text(json.dumps({**scenario, "runs": {"all": {}, "but-2": {"protocol": {"backup_workers": 2}}}}))
        assert fred_command("run", file, "--out", out).code == 0
        facts = json.loads(fred_command("plan", out, "--json", "--out", tmp_path / "plan.svg").out)
        summary = json.loads((out / "summary.json").read_text())
        reached = {name: [row["target"]["updates"] for row in summary if row["name"] == name] for name in ("all", "but-2")}
        assert [row["waited_for"] for row in facts["plans"]] == [2, 3, 4]
        assert facts["plans"][0]["iterations"] == np.mean(reached["but-2"])
        assert facts["plans"][2]["iterations"] == np.mean(reached["all"])
        assert facts["best"] == min(facts["plans"], key=lambda row: row["seconds"])
        seconds = [row["virtual_seconds"] / row["updates"] for row in summary if row["name"] == "all"]
        assert facts["plans"][2]["arrival"] == pytest.approx(np.mean(seconds))  # the last arrival ends the round
        assert (tmp_path / "plan.svg").read_text().count("<svg") == 1

    @pytest.mark.usefixtures("undrawn")
    def test_iterations_are_given_where_the_result_has_no_target_and_the_table_marks_the_best(self, tmp_path):
        scenario, result = tmp_path / "timing.yaml", tmp_path / "out"
        scenario.write_text(TRACED)
        assert fred_command("run", scenario, "--out", result).code == 0
        out = fred_command("plan", result, "--iterations", "2=1000,8=400", columns=80).out
        row = next(line for line in out.splitlines() if "best" in line and "of the best" not in line)
        assert "converges first" in out and out.split("N = ")[1].split(",")[0] == row.split()[0]
        for arguments, message in (
            ([], "give --iterations"),
            (["--iterations", "2:1000"], "expected N=COUNT"),
            (["--iterations", "9=10"], "known for N = 9 to 9, but there are 8 workers"),
            (["--iterations", "2=10", "--workers", "9"], "expected 1 to 8 workers"),
        ):
            assert message in refusal("plan", result, *arguments)
