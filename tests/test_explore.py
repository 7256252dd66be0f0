"""Sliders for settings of a scenario: the timing follows them."""

import re
import sys
from typing import Any

import pytest

import fred
from fred.results.explore import timing

CLUSTER = {"workers": 4, "compute": {"name": "constant", "seconds": 0.5}}
SYNC: dict[str, Any] = {
    "cluster": CLUSTER,
    "algorithm": {"name": "ssgd", "learning_rate": 0.1},
    "protocol": {"backup_workers": 0},
    "stop": {"updates": 24},
}
TASK = {"data": "digits", "model": "softmax"}


def sliders(panel: Any) -> list[Any]:
    return list(panel.children[0].children)


def outputs(panel: Any) -> str:
    return panel.children[1].value


def throughput(panel: Any) -> float:
    """Return the gradients per second of the first run, as the table shows them."""
    table = re.search("<table.*?</table>", outputs(panel))
    assert table is not None
    headings = re.findall('<th scope="col">(.*?)</th>', table[0])
    cells = re.findall('<td data-value="(.*?)">', table[0])
    return float(cells[headings.index("gradients per s") - 1])


def test_a_slider_changes_table_timeline_and_staleness():
    """Compare with the rounds of constant times: they use n - b gradients; with asgd, gradients are n - 1 updates late."""
    panel = fred.explore(
        SYNC, {"cluster.workers": range(2, 17), "protocol.backup_workers": range(4), "cluster.compute.seconds": (0.1, 2)}
    )
    workers, backup, seconds = sliders(panel)
    assert (workers.value, backup.value, seconds.value, throughput(panel)) == (4, 0, 0.5, 8.0)
    for n, b, duration in ((16, 0, 0.5), (16, 3, 0.5), (16, 3, 1.3)):
        workers.value, backup.value, seconds.value = n, b, duration
        assert throughput(panel) == pytest.approx((n - b) / duration, rel=1e-6)
        assert outputs(panel).count("<svg") == 1 and "Staleness 0 throughout: ssgd." in outputs(panel)
    asynchronous = fred.explore(
        {**SYNC, "algorithm": {"name": "asgd", "learning_rate": 0.1}, "protocol": {}}, {"cluster.workers": [2, 8]}
    )
    (workers,) = sliders(asynchronous)
    for n in (8, 2):
        workers.value = n
        assert f"max {n - 1}" in outputs(asynchronous) and throughput(asynchronous) == n / 0.5


def test_only_the_first_seed_and_the_timing_are_computed_as_a_run_of_these_settings_does():
    scenario = fred.scenario(
        SYNC,
        task=TASK,
        seeds=[7, 8],
        stop={"updates": 24, "target_loss": 0.1},
        evaluate={"target_error": 0.1, "gradient_norm": True},
        cluster={"workers": 4, "compute": {"name": "exponential", "scale": 0.5}},
    )
    panel = fred.explore(scenario, {"cluster.workers": range(2, 9)})
    sliders(panel)[0].value = 8
    run = fred.run(scenario.replace({"cluster.workers": 8}), seeds=[7]).summary
    assert throughput(panel) == pytest.approx(run["throughput"][0], rel=1e-8)
    assert "Timing without training, seed 7." in outputs(panel)


def test_of_a_sweep_the_first_point_is_shown_and_all_runs_have_a_timeline():
    swept = {**SYNC, "task": TASK, "sweep": {"over": {"cluster.workers": [2, 3]}, "best": "loss"}}
    panel = fred.explore(swept, {"cluster.compute.seconds": (0.1, 2)})
    assert throughput(panel) == 2 / 0.5 and "ssgd," not in outputs(panel)
    two = {**SYNC, "runs": {"a": {}, "b": {"cluster": {"workers": 8}}}}
    assert all(f">{name}<" in outputs(fred.explore(two, {"cluster.compute.seconds": (1, 2)})) for name in "ab")


def test_an_impossible_combination_shows_its_error_and_the_sliders_stay():
    panel = fred.explore(SYNC, {"cluster.workers": range(2, 9), "protocol.backup_workers": range(5)})
    workers, backup = sliders(panel)
    workers.value, backup.value = 3, 3
    assert "`backup_workers` (3) must be below the number of workers (3)" in outputs(panel) and "<svg" not in outputs(panel)
    workers.value = 8
    assert throughput(panel) == 10.0


def test_values_that_are_no_numbers_are_chosen_from_a_list_by_their_names():
    slow = {"name": "constant", "seconds": 2.0}
    panel = fred.explore(SYNC, {"cluster.compute": [slow, CLUSTER["compute"]]})
    (choice,) = sliders(panel)
    assert [label for label, _ in choice.options] == ["constant seconds: 2.0", "constant seconds: 0.5"]
    assert choice.value == CLUSTER["compute"] and throughput(panel) == 8.0
    choice.value = slow
    assert throughput(panel) == 2.0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "found {}; expected settings with their values, such as "),
        ({"cluster.worker": [2]}, "cluster.worker=2: unknown key `worker`; did you mean `workers`"),
        ({"cluster.workers": (2, 32)}, r"two numbers are a continuous range: for whole numbers give `range\(2, 33\)`"),
        ({"cluster.compute.seconds": (2, 1)}, "the smaller one first"),
        ({"cluster.compute.seconds": 1}, "cluster.compute.seconds: found 1; expected two numbers"),
        ({"cluster.compute.seconds": (-2.5, -1.5)}, "found -2.5; expected greater than or equal to 0"),
        ({"protocol.backup_workers": range(4, 9)}, "must be below the number of workers"),
        ({"task.batch_size": [8, 16]}, "task.batch_size: `fred.explore` simulates the timing without the task"),
    ],
)
def test_a_setting_without_a_possible_value_is_refused_before_anything_is_shown(settings, words):
    with pytest.raises(fred.FredError, match=words):
        fred.explore(SYNC, settings)


def test_a_scenario_whose_messages_have_the_size_of_its_model_is_refused_with_the_cure():
    scenario = fred.scenario(SYNC, task=TASK, cluster={**CLUSTER, "network": {"bandwidth": 1e6}})
    with pytest.raises(
        fred.FredError, match=r"cluster.network.bandwidth: .*scenario.replace\(\{'cluster.network.message_bytes'"
    ):
        fred.explore(scenario, {"cluster.workers": [2, 4]})
    cured = scenario.replace({"cluster.network.message_bytes": 4_000_000})
    assert throughput(fred.explore(cured, {"cluster.workers": [2, 4]})) < 8.0


@pytest.mark.parametrize("values", [(0.05, 0.2), [0.05, 0.2]])
def test_a_setting_that_the_timing_ignores_is_refused_with_a_sweep_that_runs(values):
    scenario = fred.scenario(SYNC, task=TASK)
    with pytest.raises(fred.FredError, match=r"algorithm.learning_rate: the timing does not depend on it") as refused:
        fred.explore(scenario, {"algorithm.learning_rate": values})
    swept = eval(re.findall("`(.*?)`", str(refused.value))[-1], {"fred": fred, "scenario": scenario})
    assert [*swept.sweep["algorithm.learning_rate"]] == [0.05, 0.2] and swept.summary["loss"].nunique() == 2


def test_prices_and_settings_with_one_value_are_accepted_though_they_change_no_schedule():
    prices = {"workers": [{"per_hour": 1.0}]}
    fred.explore(
        fred.scenario(SYNC, cluster={**CLUSTER, "prices": prices}),
        {"cluster.prices.workers": [[{"per_hour": 1.0}], [{"per_hour": 2.0}]]},
    )
    fred.explore(SYNC, {"algorithm.learning_rate": [0.1]})


def test_a_protocol_that_depends_on_what_is_learned_is_refused():
    learned = fred.scenario({**SYNC, "protocol": {}}, algorithm={"name": "dbw", "learning_rate": 0.1}, task=TASK)
    with pytest.raises(fred.FredError, match=r"needs a `task`; `fred.explore` leaves it out: use `fred\.run`"):
        fred.explore(learned, {"cluster.workers": [4]})


def test_without_ipywidgets_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(fred.FredError, match=r"pip install 'fred-sim\[notebook\]'"):
        fred.explore(SYNC, {"cluster.workers": [2]})


def test_the_timing_is_that_of_the_replaced_settings():
    assert timing(fred.scenario(SYNC), {"cluster.workers": 6}).summary["throughput"].tolist() == [12.0]
