"""What reproductions run is what they say."""

import importlib
import math

import numpy as np
import pandas as pd
import pytest

from fred import registry
from fred.running.execution import execute
from fred.schedule import Verb
from fred.specification.loading import load
from fred.timing.topology import Complete, Exponential, Ring
from reproductions.__main__ import PAGES
from reproductions.common import RESULTS
from reproductions.fasgd import curves as fasgd
from reproductions.psp import errors as psp
from reproductions.psp import times as psp_times
from reproductions.verdicts import Claim, Found, Verdict, less, level, no_worse, tables
from reproductions.wagma import further, orders, paper, throughput
from tests.worlds import make_run


@pytest.mark.parametrize("number", fasgd.FIGURES)
@pytest.mark.parametrize("rate", [None, 0.25])
@pytest.mark.parametrize("algorithm", fasgd.ALGORITHMS)
def test_fasgds_figures_with_any_rate_and_variant(number, rate, algorithm):
    scenario, names = fasgd.figure(number, "scaled", algorithm, rate)
    assert [name.split("-")[1] for name in names] == list(fasgd.FIGURES[number])
    for name in names:
        run = scenario.runs[name]
        assert run.task is not None
        workers, batch = name.split("-")[1].split("x")
        assert (run.cluster.size, run.task.batch_size) == (int(workers), int(batch))
        assert getattr(run.task.model, "initialisation") == "he_normal"  # noqa: B009  a model of any kind
        published = {"fasgd": 0.005, "sasgd": 0.04}[algorithm.split("-")[0]]
        assert run.algorithm.learning_rate == (rate or published)
        assert getattr(run.algorithm, "variant", None) == {"fasgd": "published-code", "fasgd-std": "std"}.get(algorithm)
    assert scenario.seeds == ((1, 2, 3) if number == 1 else (1,))


def test_fasgds_candidates_are_sixteen_powers_of_two_for_each_first_weights():
    scenario = load(fasgd.SCENARIOS / "rates.yaml")
    assert len(scenario.points) == len(fasgd.ALGORITHMS) * len(fasgd.FIGURE_1) * 2 * 16
    rates = {point.values["algorithm.learning_rate"] for point in scenario.points.values()}
    assert rates == {2.0**k for k in range(-13, 3)}


@pytest.mark.parametrize("name", PAGES)
def test_every_page_measures_its_timing_and_its_training_and_reports(name):
    module = importlib.import_module(f"reproductions.{name}")
    assert all(callable(getattr(module, part)) for part in ("timing", "training", "report"))


def test_what_wagmas_paper_says_is_of_runs_that_there_are():
    four, seven, ten = (load(throughput.SCENARIOS / f"figure{number}.yaml").runs for number in (4, 7, 10))
    where = {"figure 7": seven, "figure 8": seven, "figure 10": ten}
    for fact in (*paper.FASTER, *paper.TRAINING_TIME, *paper.STEPS_PER_SECOND, *paper.MINUTES):
        assert fact.run in where.get(fact.what, four), fact
    five = load(throughput.SCENARIOS / "figure5.yaml").runs
    assert {fact.run for fact in (*paper.ACCURACY, *paper.ACCURACY_EVEN)} <= set(five)
    for case in throughput.CASES:
        assert case.workers & (case.workers - 1) == 0, "WAGMA's groups need a power of two"


def test_psp_waits_for_whole_shares():
    """With 8 servers 90 % would have been all of them."""
    runs = load(psp_times.SCENARIOS / "errors.yaml").runs
    assert set(runs) == set(psp.RUNS)
    for run in runs.values():
        waited = getattr(run.protocol, "blocks_percent") * run.cluster.servers  # noqa: B009  a protocol of any kind
        assert waited % 100 == 0
        assert waited < 100 * run.cluster.servers or getattr(run.protocol, "blocks_percent") == 100  # noqa: B009


@pytest.mark.parametrize("name", ["psp", "wagma", "cutoff"])
def test_a_page_is_what_its_measurements_say(name):
    text = importlib.import_module(f"reproductions.{name}").text()
    assert text == (RESULTS / f"{name}.md").read_text(encoding="utf-8")


def test_every_claim_is_measured_or_has_a_reason_why_not():
    claims = {
        "one": {"a": Claim("first", "1"), "b": Claim("second", "2", calibrated="yes")},
        "left": {"c": Claim("x", "3", untried="far")},
    }
    found = {"a": Found("1.0", Verdict.WITHIN), "b": Found("2.0", Verdict.AGREES)}
    made = tables(claims, found)
    assert "| first | 1 | yes | 1.0 | within the seeds | no |" in made["one"]
    assert "| x | 3 | yes | far |" in made["untried"]
    numbers = [line.split("|")[2].strip() for line in made["counts"].splitlines()[2:]]
    assert numbers == ["3", "2", "1", "1", "0", "1", "1"]
    for wrong in ({"a": found["a"]}, {**found, "c": found["a"]}, {**found, "d": found["a"]}):
        with pytest.raises(ValueError, match="neither measured"):
            tables(claims, wrong)


def _ratios(middle: float, deviation: float) -> tuple[pd.Series, pd.Series]:
    """Two runs with three seeds, of whose ratio the logarithm has this mean and this deviation."""
    other = pd.Series([2.0, 3.0, 5.0])
    return other * np.exp(middle + deviation * np.array([-1, 0, 1])), other


@pytest.mark.parametrize("deviation", [0.01, 0.2])
def test_orders_are_decided_by_students_interval(deviation):
    half = 4.302652729911275 * deviation / math.sqrt(3)  # the 97.5th percentile with two degrees of freedom
    assert less(*_ratios(-1.01 * half, deviation)) == Verdict.AGREES
    assert less(*_ratios(1.01 * half, deviation)) == Verdict.DISAGREES
    assert less(*_ratios(-0.99 * half, deviation)) == less(*_ratios(0.99 * half, deviation)) == Verdict.WITHIN
    margin = math.exp(1.5 * half) - 1
    assert level(*_ratios(0.49 * half, deviation), margin) == Verdict.AGREES
    assert level(*_ratios(0.51 * half, deviation), margin) == Verdict.WITHIN
    assert level(*_ratios(2.51 * half, deviation), margin) == Verdict.DISAGREES
    assert (
        no_worse(*_ratios(-9 * half, deviation), margin) == no_worse(*_ratios(0.49 * half, deviation), margin) == Verdict.AGREES
    )
    assert no_worse(*_ratios(0.51 * half, deviation), margin) == Verdict.WITHIN
    assert no_worse(*_ratios(2.51 * half, deviation), margin) == Verdict.DISAGREES


def test_one_seed_decides_no_order():
    assert less(pd.Series([1.0]), pd.Series([9.0])) == Verdict.WITHIN


@pytest.mark.parametrize(("topology", "iterations"), [(Ring(), 4), (Complete(), 1), (Exponential(), 3)])
def test_after_how_many_iterations_eight_workers_have_heard_of_all(topology, iterations):
    graphs = [[topology.receivers(worker, iteration, 8) for worker in range(8)] for iteration in range(8)]
    assert orders.reached(graphs) == iterations


def test_gossip_that_communicates_twice():
    """Among three workers on a ring the second mixing finds all models equal."""
    registry.allow_import([further.TWICE])
    cluster = {"workers": 3, "compute": {"name": "constant", "seconds": 0.1}}
    both = [
        execute(
            "run",
            make_run(
                "d-psgd",
                cluster=cluster,
                protocol={"name": name, "weights": "metropolis", "order": "mix-first"},
                stop={"gradients": 30},
                evaluate={"points": 2},
            ),
            1,
        )
        for name in ("gossip", f"{further.TWICE}:GossipTwice")
    ]
    once, twice = (outcome.metrics["loss"].to_numpy() for outcome in both)
    assert once[-1] < once[0]
    assert twice == pytest.approx(once, rel=1e-5)
    synced = [len(outcome.schedule.rows(Verb.SYNC)) for outcome in both]
    assert synced[1] == 2 * synced[0]
