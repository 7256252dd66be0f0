"""Every latency of the registry keeps the contract; each named distribution is what scipy says it is."""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from scipy import stats

import fred
from fred import Cluster, FredError, Latency
from fred.cluster.durations import durations
from fred.cluster.latency import Constant
from fred.cluster.recorded import Empirical
from fred.components import registry
from fred.components.one_of import OneOf
from fred.running.execution import execute
from tests.conftest import ROOT
from tests.worlds import COMPUTE, make_run

GRID = (np.arange(200_000) + 0.5) / 200_000  # stratified uniform draws


@pytest.mark.parametrize("name", registry.REGISTRY["latency"])
def test_every_latency_keeps_the_contract(name):
    latency = registry.lookup("latency", name).example()
    draws = latency.sample(np.array([2.0**-53, 1e-9, 0.5, 1 - 1e-9, 1 - 2.0**-53]))
    assert np.isfinite(draws).all() and (draws >= 0).all()
    together = latency.sample(GRID[::9973])
    assert together.shape == GRID[::9973].shape
    assert [latency.sample(GRID[i : i + 1])[0] for i in range(0, len(GRID), 9973)] == together.tolist(), "each for itself"
    assert latency.sample(GRID).mean() == pytest.approx(latency.mean, rel=0.01)
    dumped = OneOf("latency").dump(latency)
    assert dumped["name"] == name and compute_times(dumped) == latency
    numbers = {option for option, field in type(latency).model_fields.items() if field.annotation is float}
    for option, value, message in (("no_such_option", 1, "unknown key `no"), *((number, np.nan, number) for number in numbers)):
        with pytest.raises(FredError, match=message):
            make_run(cluster={"workers": 1, "compute": {"name": name, option: value}})


def compute_times(options: dict[str, Any]) -> Latency:
    return Cluster(workers=1, compute=options).compute


@pytest.mark.parametrize(
    ("name", "options", "reference"),
    [
        ("uniform", {"low": 1, "high": 3}, stats.uniform(1, 2)),
        ("exponential", {"scale": 0.2}, stats.expon(scale=0.2)),
        ("shifted-exponential", {"shift": 1, "scale": 0.2}, stats.expon(1, 0.2)),
        ("normal", {"mu": 1, "sigma": 0.8, "floor": 0.5}, stats.truncnorm(-0.5 / 0.8, np.inf, 1, 0.8)),
        ("lognormal", {"median": 2, "sigma": 0.5, "shift": 3}, stats.lognorm(0.5, 3, 2)),
        ("half-normal", {"shift": 1, "scale": 0.2}, stats.halfnorm(1, 0.2)),
        ("gamma", {"shape": 2.5, "scale": 0.3}, stats.gamma(2.5, scale=0.3)),
        ("weibull", {"shape": 0.7, "scale": 0.3}, stats.weibull_min(0.7, scale=0.3)),
        ("pareto", {"minimum": 0.5, "alpha": 3}, stats.pareto(3, scale=0.5)),
    ],
)
def test_distribution_is_the_textbook_one(name, options, reference):
    latency, u = compute_times({"name": name, **options}), np.linspace(0.001, 0.999, 97)
    np.testing.assert_allclose(latency.sample(u), reference.ppf(u), rtol=1e-9)
    assert latency.mean == pytest.approx(reference.mean())


def test_a_lognormal_without_its_tail_is_the_rest_of_it():
    law, longest = stats.lognorm(0.8, 3, 2), 7.0
    latency = compute_times({"name": "lognormal", "median": 2, "sigma": 0.8, "shift": 3, "longest": longest})
    u = np.linspace(0.001, 0.999, 97)
    np.testing.assert_allclose(law.cdf(latency.sample(u)), u * law.cdf(longest), rtol=1e-9)
    assert latency.mean == pytest.approx(law.expect(ub=longest, conditional=True))
    assert latency.sample(np.array([1 - 2.0**-53]))[0] <= longest


def test_mixture_draws_each_component_as_often_as_it_weighs():
    components = [{"name": "uniform", "low": 0, "high": 1}, {"name": "constant", "seconds": 5}]
    draws = compute_times({"name": "mixture", "components": components, "weights": [3, 1]}).sample(GRID)
    assert (draws == 5).mean() == pytest.approx(0.25, abs=1e-4)
    assert stats.kstest(draws[draws < 5], "uniform").statistic < 1e-3


@pytest.mark.parametrize("text", ["worker,seconds\n0,0.5\n1,0.25\n", "\ufeffseconds\n0.5\n0.25\n"])  # a byte-order mark
def test_empirical_reads_a_column(tmp_path, text):
    (tmp_path / "trace.csv").write_text(text, encoding="utf-8")
    latency = compute_times({"name": "empirical", "csv": str(tmp_path / "trace.csv")})
    assert isinstance(latency, Empirical) and latency.values == (0.5, 0.25)
    assert sorted(set(latency.sample(GRID).tolist())) == [0.25, 0.5]


def test_empirical_refuses_what_is_not_a_trace(tmp_path):
    file = tmp_path / "trace.csv"
    for content, message in (
        (None, "cannot read"),
        ("worker,secs\n0,1\n", "no column `seconds`; it has worker, secs: give one of them as `column`"),
        ("seconds\n1\nfast\n", r"trace.csv:3: expected a time in column `seconds`, a number; found 'fast'"),
        ("seconds,seconds\n1,2\n", r"trace.csv has 2 columns `seconds`"),
        ("seconds\n0,5\n", r"trace.csv:2: found 2 fields; expected 1, .* a decimal comma needs another delimiter"),
        ("seconds\nnan\n", r"trace.csv:2: expected a duration"),
        ("seconds\n", r"trace.csv has no rows"),
        ("seconds\n1\n1_0\n", r"trace.csv:3: expected a time .*found '1_0'"),
        ("seconds\n1\n\u0661\n", r"trace.csv:3: expected a time"),
        ("seconds\n" + "1\n" * 100_001, r"100,001 durations; expected at most 100,000: .* one of every 2"),
    ):
        if content is not None:
            file.write_text(content)
        with pytest.raises(FredError, match=message):
            make_run(cluster={"workers": 1, "compute": {"name": "empirical", "csv": str(file)}})


@pytest.mark.slow
def test_draws_do_not_depend_on_numpys_instruction_set():
    program = """
import hashlib, itertools
from fred.base import numerics
from fred.components import registry
from fred.protocols.asynchronous import Shifting
u = numerics.uniforms(0, "test", 0, 0, 20_000)
lines = [f"{name} {hashlib.sha256(registry.lookup('latency', name).example().sample(u).tobytes()).hexdigest()}"
         for name in registry.REGISTRY["latency"]]
lines.append(str(list(itertools.islice(Shifting(change=-0.3).choices(0, 7), 500))))
"""
    namespace: dict[str, Any] = {}
    exec(program, namespace)
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR"}
    command = [sys.executable, "-c", f"{program}print(*lines, sep='\\n')"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == namespace["lines"]


def test_impossible_durations_are_refused_early_or_when_they_come_up():
    registry.allow_import([__name__])
    truncated, network = {"median": 2, "sigma": 1, "shift": 3, "longest": 3}, {"bandwidth": 1e-9, "message_bytes": 144}
    for cluster, message in (
        ({"compute": {"name": "normal", "mu": 1e-4, "sigma": 1e-5}}, "`floor` .* is more than 6 `sigma` above `mu`"),
        ({"compute": {"name": "lognormal", **truncated}}, r"`longest` \(3\) leaves nothing of the distribution"),
        ({"compute": {"name": "constant", "seconds": 1e10}}, "latency `constant` gives durations that are not between 0 and"),
        ({"compute": "tests.test_latency:Backwards"}, "latency `tests.test_latency:Backwards` gives durations"),
        ({"speeds": [1, 1, 1, 1e-12]}, "gives durations that are not between 0 and .*, and the speeds"),
        ({"workers": 1e9}, "at most 10,000,000 workers"),
        ({"contention": [{"name": "random-delays", "workers": 1, "seconds": 1e300}]}, "less than or equal to 9000000000"),
    ):
        with pytest.raises(FredError, match=message):
            make_run(cluster={"workers": 4, "compute": COMPUTE, **cluster})
    endless: tuple[tuple[dict[str, Any], str], ...] = (
        ({"compute": {"name": "lognormal", "median": 0.1, "sigma": 100}}, "latency `lognormal` gives durations"),
        ({"compute": COMPUTE, "network": network}, "virtual time passes 9e"),
    )
    for cluster, message in endless:
        run = make_run(cluster={"workers": 4, **cluster}, task=None)
        with pytest.raises(FredError, match=message):
            execute("run", run, 0)


class Backwards(Constant):
    seconds: float = -1.0


def test_the_scenario_of_episodes_has_the_times_that_the_paper_prints():
    """Li et al. 2021, section 5.4: of 5,000 iterations the shortest took 1.7 s, the longest 43.5 s, the median is below 2 s."""
    latency = fred.load(ROOT / "scenarios" / "workloads" / "episodes.yaml").runs["wagma"].cluster.compute
    shortest, median, longest = latency.sample(np.array([1 / 5001, 0.5, 5000 / 5001]))
    assert shortest == pytest.approx(1.7, abs=0.05)
    assert median < 2
    assert longest == pytest.approx(43.5, rel=0.01)


def test_durations_depend_on_nobody_else():
    cluster = Cluster(workers=3, compute={"name": "exponential", "scale": 0.1})
    three = durations(5, "compute", cluster.latencies(), [1.0] * 3)
    five = durations(5, "compute", [cluster.compute] * 5, [1.0] * 5)
    assert [three[2]() for _ in range(10_000)] == [five[2]() for _ in range(10_000)]
    slow = durations(5, "compute", cluster.latencies(), [1.0, 0.5, 1.0])
    assert [abs(2 * three[1]() - slow[1]()) <= 1 for _ in range(100)] == [True] * 100
