"""Seeds that are added until comparisons are precise: which, how many, refusals, and that results repeat."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import fred
from fred.base.errors import FredError
from fred.outcomes.comparisons import further_seeds, precision
from fred.results.verify import Verdict, verify
from fred.specification.loading import Scenario
from fred.specification.stopping import FIRST_LOOK, Until
from fred.views.verdict import answer
from tests.program import fred_command
from tests.worlds import TASK

pytestmark = pytest.mark.usefixtures("undrawn")

RUNS = {name: {"algorithm": {"name": name, "learning_rate": 0.1}} for name in ("asgd", "ssgd")}
EXPONENTIAL = {"workers": 2, "compute": {"name": "exponential", "scale": 0.5}}
EQUAL = {"workers": 2, "compute": {"name": "constant", "seconds": 0.5}}
SWEPT = {**RUNS, "asgd": {**RUNS["asgd"], "sweep": {"over": {"cluster.workers": [2, 3]}}}}


def scenario(half_width: float = 0.11, most: int = 40, cluster: object = EXPONENTIAL, **overrides: object) -> Scenario:
    settings = {"cluster": cluster, "stop": {"updates": 20}, "runs": RUNS, "seeds": [3, 1], **overrides}
    return fred.scenario(settings, until={"within": half_width, "seeds": most})


@given(st.integers(1, 100), st.integers(FIRST_LOOK, 100))
def test_each_look_is_at_more_seeds_up_to_the_limit(count, most):
    until = Until(within=0.1, seeds=most)
    looks = [count]
    while looks[-1] < most:
        looks.append(until.next_look(looks[-1]))
    assert looks == sorted(set(looks)) and (looks[-1] == most or count > most)
    assert all(look >= FIRST_LOOK for look in looks[1:]) and len(looks) < 10


@pytest.mark.slow
def test_seeds_are_added_until_half_of_the_interval_is_narrow_and_no_longer(tmp_path):
    result = fred.run(scenario())
    seeds = result.scenario.seeds
    assert seeds[:4] == (3, 1, 4, 5) and len(seeds) > FIRST_LOOK
    by_seed = result.summary.pivot(index="seed", columns="name", values="throughput")
    logs = (by_seed["ssgd"] / by_seed["asgd"]).map(math.log)

    def half(count: int) -> float:
        values = logs.loc[list(seeds[:count])]
        return math.exp(stats.sem(values) * stats.t.ppf(0.975, count - 1)) - 1

    looks = [10, 15, 23, 35, 40]
    assert precision(result) == pytest.approx(half(len(seeds)))
    assert [half(look) <= 0.11 for look in looks if look <= len(seeds)] == [False] * looks.index(len(seeds)) + [True]
    assert f"Seeds were added until intervals were within 0.11 of the baseline: {len(seeds)}." in answer(result)
    stored = fred.run(scenario(), out=tmp_path / "out")
    assert stored.scenario.seeds == seeds
    assert stored.summary["digests_schedule"].tolist() == result.summary["digests_schedule"].tolist()
    repeated = fred.run(scenario(), out=tmp_path / "out")
    assert repeated.reused == len(repeated.outcomes) == len(stored.outcomes)
    loaded = fred.load_result(tmp_path / "out").scenario
    assert (loaded.seeds, loaded.until) == (seeds, stored.scenario.until)
    assert verify(tmp_path / "out")[0] == Verdict.SAME


def test_runs_that_do_not_vary_stop_at_the_first_look_and_one_run_has_nothing_to_compare_with():
    assert len(fred.run(scenario(cluster=EQUAL)).scenario.seeds) == FIRST_LOOK
    assert fred.run(scenario(), only="asgd").scenario.seeds == (3, 1)


@pytest.mark.slow
def test_losses_are_compared_relative_to_the_baselines_and_a_missed_target_is_never_precise():
    result = fred.run(scenario(half_width=0.02, most=10, task=TASK, baseline="ssgd"))
    losses = result.summary.pivot(index="seed", columns="name", values="loss")
    half = stats.sem(losses["asgd"] - losses["ssgd"]) * stats.t.ppf(0.975, 9)
    assert precision(result) == pytest.approx(half / losses["ssgd"].mean())
    runs = {name: {**RUNS[name], "evaluate": {"target_loss": loss}} for name, loss in (("asgd", 5.0), ("ssgd", 1e-9))}
    result = fred.run(scenario(most=10, task=TASK, runs=runs))
    assert math.isinf(precision(result)) and len(result.scenario.seeds) == 10


@pytest.mark.slow
def test_the_limit_ends_it_and_afterwards_a_smaller_one_leaves_fewer_seeds_and_a_larger_one_goes_on(tmp_path):
    first = fred.run(scenario(half_width=0.001, most=15), out=tmp_path / "out")
    fewer = fred.run(scenario(half_width=0.001, most=12), out=tmp_path / "out")
    assert (len(first.scenario.seeds), len(fewer.scenario.seeds)) == (15, 12) and further_seeds(fewer) == 0
    assert "With 12 seeds, the limit, intervals are not yet within 0.001 of the baseline." in answer(fewer)
    assert not (tmp_path / "out" / "asgd" / "seed-15").exists()
    continued = fred.run(scenario(half_width=0.001, most=14), out=tmp_path / "out")
    assert continued.reused == 24 and len(continued.outcomes) == 28


@pytest.mark.slow
def test_only_reported_seeds_of_a_sweep_are_added():
    result = fred.run(scenario(half_width=0.001, most=10, runs=SWEPT, report_seeds=[11, 12]))
    assert result.scenario.seeds == (3, 1) and result.scenario.report_seeds == tuple(range(11, 21))
    assert result.paired["seeds"].tolist() == [10]


def test_seeds_in_use_are_left_out_even_at_the_end():
    assert scenario(seeds=[2**32 - 1]).with_seeds(3).seeds == (2**32 - 1, 0, 1)
    assert scenario(seeds=[0, 7], report_seeds=[5], runs=SWEPT).with_seeds(3).report_seeds == (5, 8, 9)
    assert scenario(seeds=[2, 1]).with_seeds(1).seeds == (2, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runs": {"asgd": RUNS["asgd"]}}, "until: .*one run has nothing to compare with; expected two runs or more"),
        ({"runs": SWEPT}, "until: .*a sweep must not choose on the seeds that are added; expected `report_seeds` as well"),
        ({"half_width": 5.0}, "until.within: found 5.0; expected less than 1"),
        ({"most": 3}, "until.seeds: found 3; expected greater than or equal to 10"),
    ],
)
def test_impossible_requests_are_refused(changes, message):
    with pytest.raises(FredError, match=message):
        scenario(**changes)


@pytest.mark.slow
def test_the_command_says_why_it_stopped_and_one_seed_stays_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(
        "until: {within: 0.3, seeds: 12}\ncluster: {workers: 2, compute: {name: constant, seconds: 0.5}}\nstop: {updates: 4}\n"
        "algorithm: {learning_rate: 0.1}\nruns: {a: {algorithm: {name: asgd}}, b: {algorithm: {name: ssgd}}}\n"
    )
    words = " ".join(fred_command("run", "mine.yaml").out.split())
    assert "Seeds were added until intervals were within 0.3 of the baseline: 10." in words
    answer = fred_command("run", "mine.yaml", "--seed", "4", "--out", "one")
    assert answer.code == 0 and "Seeds were added" not in answer.out
    assert fred.load_result("one").scenario.seeds == (4,)
