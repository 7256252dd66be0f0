"""Every latency of the registry keeps the contract; each named distribution is what scipy says it is."""

import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

import fred
from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.cluster.durations import durations
from fred.cluster.latency import Constant, Latency
from fred.cluster.measured import Empirical
from fred.components import registry
from fred.components.one_of import OneOf
from fred.protocols.asynchronous import Asynchronous
from fred.running.cadence import Cadence
from fred.running.execution import execute
from tests.conftest import ROOT
from tests.worlds import COMPUTE, make_run, record

GRID = (np.arange(200_000) + 0.5) / 200_000  # stratified uniform draws


@pytest.mark.parametrize("name", registry.REGISTRY["latency"])
class TestContract:
    @pytest.fixture
    def latency(self, name) -> Latency:
        return registry.lookup("latency", name).example()

    def test_durations_are_finite_and_not_negative(self, latency):
        draws = latency.sample(np.array([2.0**-53, 1e-9, 0.5, 1 - 1e-9, 1 - 2.0**-53]))
        assert np.isfinite(draws).all()
        assert (draws >= 0).all()

    def test_each_draw_stands_for_itself(self, latency):
        together = latency.sample(GRID[::9973])
        assert together.shape == GRID[::9973].shape
        assert [latency.sample(GRID[i : i + 1])[0] for i in range(0, len(GRID), 9973)] == together.tolist()

    def test_mean_is_the_mean_of_the_draws(self, latency):
        assert latency.sample(GRID).mean() == pytest.approx(latency.mean, rel=0.01)

    def test_a_scenario_can_name_it_and_a_manifest_can_hold_it(self, name, latency):
        written = OneOf("latency").dump(latency)
        assert written["name"] == name
        assert Cluster(workers=1, compute=written).compute == latency

    def test_options_are_checked(self, name):
        with pytest.raises(FredError, match="unknown key `no_such_option`"):
            make_run(cluster={"workers": 1, "compute": {"name": name, "no_such_option": 1}})
        for option, field in registry.lookup("latency", name).model_fields.items():
            if field.annotation is float:
                with pytest.raises(FredError, match=option):
                    make_run(cluster={"workers": 1, "compute": {"name": name, option: float("nan")}})


@pytest.mark.parametrize(
    ("latency", "reference"),
    [
        ({"name": "uniform", "low": 1, "high": 3}, stats.uniform(1, 2)),
        ({"name": "exponential", "scale": 0.2}, stats.expon(scale=0.2)),
        ({"name": "shifted-exponential", "shift": 1, "scale": 0.2}, stats.expon(1, 0.2)),
        ({"name": "normal", "mu": 1, "sigma": 0.8, "floor": 0.5}, stats.truncnorm(-0.5 / 0.8, np.inf, 1, 0.8)),
        ({"name": "lognormal", "median": 2, "sigma": 0.5}, stats.lognorm(0.5, scale=2)),
        ({"name": "lognormal", "median": 2, "sigma": 0.5, "shift": 3}, stats.lognorm(0.5, 3, 2)),
        ({"name": "half-normal", "shift": 1, "scale": 0.2}, stats.halfnorm(1, 0.2)),
        ({"name": "gamma", "shape": 2.5, "scale": 0.3}, stats.gamma(2.5, scale=0.3)),
        ({"name": "weibull", "shape": 0.7, "scale": 0.3}, stats.weibull_min(0.7, scale=0.3)),
        ({"name": "pareto", "minimum": 0.5, "alpha": 3}, stats.pareto(3, scale=0.5)),
    ],
)
def test_distribution_is_the_textbook_one(latency, reference):
    latency = Cluster(workers=1, compute=latency).compute
    u = np.linspace(0.001, 0.999, 97)
    np.testing.assert_allclose(latency.sample(u), reference.ppf(u), rtol=1e-9)
    assert latency.mean == pytest.approx(reference.mean())


def test_a_lognormal_without_its_tail_is_the_rest_of_it():
    whole, longest = stats.lognorm(0.8, 3, 2), 7.0
    latency = Cluster(
        workers=1, compute={"name": "lognormal", "median": 2, "sigma": 0.8, "shift": 3, "longest": longest}
    ).compute
    u = np.linspace(0.001, 0.999, 97)
    np.testing.assert_allclose(whole.cdf(latency.sample(u)), u * whole.cdf(longest), rtol=1e-9)
    assert latency.mean == pytest.approx(whole.expect(ub=longest, conditional=True))
    assert latency.sample(np.array([1 - 2.0**-53]))[0] <= longest
    with pytest.raises(FredError, match=r"`longest` \(3\) leaves nothing of the distribution"):
        make_run(cluster={"workers": 1, "compute": {"name": "lognormal", "median": 2, "sigma": 1, "shift": 3, "longest": 3}})


def test_mixture_draws_each_component_as_often_as_it_weighs():
    cluster = {"name": "mixture", "components": [{"name": "uniform", "low": 0, "high": 1}, {"name": "constant", "seconds": 5}]}
    draws = Cluster(workers=1, compute={**cluster, "weights": [3, 1]}).compute.sample(GRID)
    assert (draws == 5).mean() == pytest.approx(0.25, abs=1e-4)
    assert stats.kstest(draws[draws < 5], "uniform").statistic < 1e-3


def test_empirical_reads_a_column(tmp_path):
    (tmp_path / "trace.csv").write_text("worker,seconds\n0,0.5\n1,0.25\n")
    latency = Cluster(workers=1, compute={"name": "empirical", "csv": str(tmp_path / "trace.csv")}).compute
    assert isinstance(latency, Empirical)
    assert latency.values == (0.5, 0.25)
    assert sorted(set(latency.sample(GRID).tolist())) == [0.25, 0.5]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("worker,secs\n0,1\n", "no column `seconds`; it has worker, secs"),
        ("seconds\n1\nfast\n", r"trace.csv:3: expected a time in column `seconds`, a number; found 'fast'"),
        ("seconds\n-1\n", r"trace.csv:2: expected a duration"),
        ("seconds,seconds\n1,2\n", r"trace.csv has 2 columns `seconds`"),
        ("seconds\n0,5\n", r"trace.csv:2: found 2 fields; expected 1, .*decimals are written with a point"),
        ("seconds\nnan\n", r"trace.csv:2: expected a duration"),
        ("seconds\n", r"trace.csv has no rows"),
        ("seconds\n1\n1_0\n", r"trace.csv:3: expected a time .*found '1_0'"),
        ("seconds\n1\n\u0661\n", r"trace.csv:3: expected a time"),
        ("seconds\n" + "1\n" * 100_001, r"100,001 durations; expected at most 100,000: .* one of every 2"),
        (None, "cannot read"),
    ],
)
def test_empirical_refuses_what_is_not_a_trace(tmp_path, content, message):
    if content is not None:
        (tmp_path / "trace.csv").write_text(content)
    with pytest.raises(FredError, match=message):
        make_run(cluster={"workers": 1, "compute": {"name": "empirical", "csv": str(tmp_path / "trace.csv")}})


def test_a_byte_order_mark_is_no_part_of_a_column(tmp_path):
    (tmp_path / "trace.csv").write_text("\ufeffseconds\n0.5\n", encoding="utf-8")
    latency = Cluster(workers=1, compute={"name": "empirical", "csv": str(tmp_path / "trace.csv")}).compute
    assert isinstance(latency, Empirical)
    assert latency.values == (0.5,)


def test_draws_do_not_depend_on_numpys_instruction_set():
    program = """
import hashlib, itertools, numpy as np
from fred.base import streams
from fred.components import registry
from fred.protocols.selection import Shifting
u = streams.uniforms(0, "test", 0, 0, 20_000)
for name in registry.REGISTRY["latency"]:
    print(name, hashlib.sha256(registry.lookup("latency", name).example().sample(u).tobytes()).hexdigest())
print(list(itertools.islice(Shifting(change=-0.3).choices(0, 7), 500)))
"""
    runs = [
        subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout
        for env in (os.environ, {**os.environ, "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR"})
    ]
    assert runs[0].splitlines() == runs[1].splitlines()


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"compute": {"name": "normal", "mu": 1e-4, "sigma": 1e-5}}, "`floor` .* is more than 6 `sigma` above `mu`"),
        ({"compute": {"name": "constant", "seconds": 1e10}}, "latency `constant` gives durations that are not between 0 and"),
        ({"compute": "tests.test_latency:Backwards"}, "latency `tests.test_latency:Backwards` gives durations"),
        ({"speeds": [1, 1, 1, 1e-12]}, "gives durations that are not between 0 and .*, and the speeds"),
        ({"workers": 1e9}, "at most 10,000,000 workers"),
        ({"contention": [{"name": "random-delays", "workers": 1, "seconds": 1e300}]}, "a time is too long"),
    ],
)
def test_impossible_durations_are_refused_early(monkeypatch, cluster, message):
    monkeypatch.setattr(registry, "_importable", {"tests.test_latency": "tests.test_latency"})
    with pytest.raises(FredError, match=message):
        make_run(cluster={"workers": 4, "compute": COMPUTE, **cluster})


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"compute": {"name": "lognormal", "median": 0.1, "sigma": 100}}, "latency `lognormal` gives durations"),
        ({"compute": COMPUTE, "network": {"bandwidth": 1e-9}}, "virtual time passes 9e"),
    ],
)
def test_impossible_durations_are_refused_when_they_come_up(cluster, message):
    with pytest.raises(FredError, match=message):
        execute("run", make_run(cluster={"workers": 4, **cluster}), 0)


def test_too_many_evaluation_points_are_refused():
    schedule = record(Asynchronous(), Cluster(workers=1), gradients=1)
    assert len(Cadence("seconds", 1e-3).points(schedule).rows) == 1001, "the start, 999 between, and the end"
    with pytest.raises(FredError, match="more than 1,000,000 points"):
        Cadence("seconds", 1e-9).points(schedule)


class Backwards(Constant):
    """Not a duration."""

    seconds: float = -1.0


def test_real_trace_can_be_drawn_from(data_folder):
    path = str(data_folder / "traces" / "lambda-256-workers.csv")
    latency = Cluster(workers=1, compute={"name": "empirical", "csv": path}).compute
    assert isinstance(latency, Empirical)
    assert len(latency.values) == 256 * 30
    assert latency.sample(GRID).mean() == pytest.approx(np.mean(latency.values), rel=1e-3)


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
