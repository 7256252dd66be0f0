"""Every latency of the registry keeps the contract; each named distribution is what scipy says it is."""

import numpy as np
import pytest
from scipy import stats

from fred import registry
from fred.component import OneOf
from fred.errors import FredError
from fred.timing.cluster import Cluster
from fred.timing.durations import durations
from fred.timing.latency import Latency
from tests.conftest import make_run

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


def test_mixture_draws_each_component_as_often_as_it_weighs():
    cluster = {"name": "mixture", "components": [{"name": "uniform", "low": 0, "high": 1}, {"name": "constant", "seconds": 5}]}
    draws = Cluster(workers=1, compute={**cluster, "weights": [3, 1]}).compute.sample(GRID)
    assert (draws == 5).mean() == pytest.approx(0.25, abs=1e-4)
    assert stats.kstest(draws[draws < 5], "uniform").statistic < 1e-3


def test_empirical_reads_a_column(tmp_path):
    (tmp_path / "trace.csv").write_text("worker,seconds\n0,0.5\n1,0.25\n")
    latency = Cluster(workers=1, compute={"name": "empirical", "csv": str(tmp_path / "trace.csv")}).compute
    assert latency.values == (0.5, 0.25)
    assert sorted(set(latency.sample(GRID).tolist())) == [0.25, 0.5]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("worker,secs\n0,1\n", "no column `seconds`; it has worker, secs"),
        ("seconds\n1\nfast\n", r"trace.csv:3: expected a duration in seconds, found 'fast'"),
        ("seconds\n-1\n", r"trace.csv:2: expected a duration"),
        ("seconds\nnan\n", r"trace.csv:2: expected a duration"),
        ("seconds\n", "needs durations"),
        (None, "cannot read"),
    ],
)
def test_empirical_refuses_what_is_not_a_trace(tmp_path, content, message):
    if content is not None:
        (tmp_path / "trace.csv").write_text(content)
    with pytest.raises(FredError, match=message):
        make_run(cluster={"workers": 1, "compute": {"name": "empirical", "csv": str(tmp_path / "trace.csv")}})


def test_real_trace_can_be_drawn_from(data_folder):
    path = str(data_folder / "traces" / "lambda-256-workers.csv")
    latency = Cluster(workers=1, compute={"name": "empirical", "csv": path}).compute
    assert len(latency.values) == 256 * 30
    assert latency.sample(GRID).mean() == pytest.approx(np.mean(latency.values), rel=1e-3)


def test_durations_depend_on_nobody_else():
    cluster = Cluster(workers=3, compute={"name": "exponential", "scale": 0.1})
    three = durations(5, "compute", cluster.latencies(), [1.0] * 3)
    five = durations(5, "compute", [cluster.compute] * 5, [1.0] * 5)
    assert [three[2]() for _ in range(10_000)] == [five[2]() for _ in range(10_000)]
    slow = durations(5, "compute", cluster.latencies(), [1.0, 0.5, 1.0])
    assert [abs(2 * three[1]() - slow[1]()) <= 1 for _ in range(100)] == [True] * 100
