"""Fitting against exact likelihoods, closed forms, and clusters whose parameters are known."""

import itertools
import json
import re

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from fred.cluster.cluster import Cluster
from fred.commands import cli
from fred.errors import FredError
from fred.fitting import judging
from fred.fitting.candidates import Composed, fit_composed, fit_independent
from fred.fitting.delays import Delayed, fit_delayed
from fred.fitting.description import describe
from fred.fitting.filtering import Noise, Series, Switching, log_likelihood
from fred.fitting.fit import Fitted, fit
from fred.fitting.latencies import FITS, log_density
from fred.fitting.ranking import rank
from fred.protocols.cutoff import Cutoff
from fred.schedule.schedule import Verb
from fred.traces.trace import Trace
from tests.worlds import make_run, record

SIZES = (12, 10, 10, 8)
NODE_OF = np.repeat(np.arange(4), SIZES)
SPEEDS = tuple(np.exp(np.linspace(-0.1, 0.1, 40)).round(3).tolist())
NOISE = [
    {"name": "persistent-noise", "deviation": 0.08, "persistence": 0.9, "every": 0.35},
    {"name": "persistent-noise", "deviation": 0.1, "persistence": 0.98, "every": 0.35, "of": "node"},
]
COMPUTE = {"name": "lognormal", "median": 1.0, "sigma": 0.1}
DELAYS = {"name": "rare-delays", "probability": 0.02, "seconds": {"name": "lognormal", "median": 2.0, "sigma": 0.4}}
SWITCHING = {"name": "markov-switching", "slowdown": 2.0, "fast_seconds": 80.0, "slow_seconds": 30.0, "of": "node"}


def simulated(contention: list, iterations: int, **options) -> np.ndarray:
    """Run-times s [iterations, workers] of a cluster whose rounds wait for all."""
    cluster = {"workers": 40, "nodes": SIZES, "speeds": SPEEDS, "compute": COMPUTE, "contention": contention}
    return run_times(Cluster.model_validate({**cluster, **options}), iterations)


def run_times(cluster: Cluster, iterations: int) -> np.ndarray:
    schedule = record(Cutoff(rule="all"), cluster, gradients=iterations * cluster.size)
    rows = schedule.rows(Verb.ADD)
    seconds = np.zeros((iterations, cluster.size))
    seconds[schedule["step"][rows], schedule["worker"][rows]] = (schedule["end_ns"] - schedule["begin_ns"])[rows] / 1e9
    return seconds


def trace(seconds: np.ndarray) -> Trace:
    return Trace(seconds, tuple(f"w{worker}" for worker in range(seconds.shape[1])))


@pytest.fixture(scope="module")
def slowed() -> np.ndarray:
    return simulated([*NOISE, SWITCHING], 1500)


@pytest.fixture(scope="module")
def fitted(slowed) -> Fitted:
    return fit(trace(slowed))


def autoregressive(noise: Noise, iterations: int) -> np.ndarray:
    lag = np.abs(np.subtract.outer(np.arange(iterations), np.arange(iterations)))
    return noise.deviation**2 * noise.persistence**lag


def test_the_predictive_likelihood_is_that_of_the_joint_normal_distribution():
    """Against the density of all logarithms at once, whose covariance is written down from the model."""
    rng = np.random.default_rng(0)
    iterations, group_of = 7, np.array([0, 0, 0, 1, 2, 2])
    model = Composed(rng.normal(size=6), group_of, 0.3, Noise(0.2, 0.7), 0.15, Noise(0.4, 0.9))
    seconds = np.exp(rng.normal(size=(iterations, 6)))
    own = autoregressive(Noise(0.2, 0.7), iterations) + 0.3**2 * np.eye(iterations)
    shared = autoregressive(Noise(0.4, 0.9), iterations) + 0.15**2 * np.eye(iterations)
    covariance = np.kron(own, np.eye(6)) + np.kron(shared, np.equal.outer(group_of, group_of))
    logs = np.log(seconds)
    exact = multivariate_normal(np.tile(model.levels, iterations), covariance).logpdf(logs.ravel()) - logs.sum()
    assert model.log_likelihood(seconds).sum() == pytest.approx(exact, abs=1e-8)


def test_the_likelihood_of_two_states_is_the_sum_over_all_their_histories():
    values = np.random.default_rng(1).normal(size=(6, 1))
    states = Switching(0.8, 0.2, 0.4)
    moves, start = np.array([[0.8, 0.2], [0.4, 0.6]]), np.array([2 / 3, 1 / 3])
    total = 0.0
    for history in itertools.product((0, 1), repeat=6):
        chance = start[history[0]] * np.prod([moves[a, b] for a, b in itertools.pairwise(history)])
        total += chance * np.prod(norm(0.8 * np.array(history), 0.5).pdf(values[:, 0]))
    found = log_likelihood(values, Series((), np.array([0.25]), states)).sum()
    assert found == pytest.approx(np.log(total), abs=1e-9)


@pytest.mark.parametrize("name", FITS)
def test_latencies_are_recovered_and_their_densities_are_their_samplers(name):
    from fred.components import registry

    latency = registry.lookup("latency", name).example()
    times = latency.sample((np.arange(200_000) + 0.5) / 200_000)
    again = FITS[name](times)
    for option, value in latency.model_dump().items():
        if option != "floor":
            assert getattr(again, option) == (value if value is None else pytest.approx(value, rel=0.01)), option
    edges = np.quantile(times, np.linspace(0.1, 0.9, 9))
    grid = np.linspace(edges[:-1], edges[1:], 2001)
    assert np.trapezoid(np.exp(log_density(latency, grid)), grid, axis=0) == pytest.approx(np.full(8, 0.1), abs=1e-4)


def test_speeds_are_recovered_and_those_of_equal_workers_are_equal():
    seconds = simulated([], 400)
    assert fit_independent("lognormal", seconds).speeds == pytest.approx(np.array(SPEEDS), rel=0.02)
    equal = fit_independent("lognormal", simulated([], 400, speeds=())).speeds
    assert np.abs(np.log(equal)).max() < 0.01


def test_the_parameters_of_noise_are_recovered():
    """Worker noise keeps 0.9 per 0.35 s, node noise 0.98; an iteration takes as long as its slowest worker."""
    seconds = simulated(NOISE, 3000)
    model = fit_composed(seconds, NODE_OF, True, True, False)
    parts = seconds.max(1).mean() / 0.35
    assert model.white == pytest.approx(0.1, rel=0.05)
    assert model.worker is not None
    assert model.worker.deviation == pytest.approx(0.08, rel=0.08)
    assert model.worker.persistence == pytest.approx(0.9**parts, abs=0.04)
    assert model.node is not None
    assert model.node.deviation == pytest.approx(0.1, rel=0.2)
    assert model.node.persistence == pytest.approx(0.98**parts, abs=0.03)
    assert model.node_white < 0.03
    assert np.exp(model.levels.mean() - model.levels) == pytest.approx(np.array(SPEEDS), rel=0.05)


def test_the_parameters_of_switching_are_recovered(slowed, fitted):
    model = fit_composed(slowed, NODE_OF, True, True, True)
    assert model.switching is not None
    assert np.exp(model.switching.slowdown) == pytest.approx(2.0, rel=0.05)
    block = fitted.block.options["contention"][-1]
    assert block["slowdown"] == pytest.approx(2.0, rel=0.05)
    assert block["fast_seconds"] == pytest.approx(80, rel=0.3)
    assert block["slow_seconds"] == pytest.approx(30, rel=0.3)


def test_what_made_the_trace_is_found_and_ranked_first(fitted):
    assert fitted.chosen.name == "lognormal, node switching, worker and node noise"


@pytest.mark.slow
def test_what_made_a_simpler_trace_is_found_too():
    noisy = fit(trace(simulated(NOISE, 1000))).ranking
    assert noisy[0].name == "lognormal, worker and node noise"
    plain = {each.name: each.unseen for each in fit(trace(simulated([], 600))).ranking}
    assert plain["lognormal"] > max(plain.values()) - 1e-3
    gamma = simulated([], 600, compute={"name": "gamma", "shape": 2.0, "scale": 0.5})
    assert fit(trace(gamma)).chosen.name == "gamma"


@pytest.mark.parametrize("regimes", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("none", "noise")), "all"])
def test_the_block_simulated_again_looks_like_the_trace(regimes, fitted):
    if regimes != "all":
        fitted = fit(trace(simulated([], 600) if regimes == "none" else simulated(NOISE, 1500)))
    cluster = Cluster.model_validate(json.loads(json.dumps(fitted.block.options)))
    again = describe(run_times(cluster, 600 if regimes == "none" else 1500), cluster.node_of)
    look = fitted.description
    assert again.mean == pytest.approx(look.mean, rel=0.08)
    assert again.deviation == pytest.approx(look.deviation, rel=0.15)
    for lag in (1, 2, 5):
        assert again.worker_persistence[lag] == pytest.approx(look.worker_persistence[lag], abs=0.05)
        assert again.group_persistence[lag] == pytest.approx(look.group_persistence[lag], abs=0.15)
    assert again.lost_waiting == pytest.approx(look.lost_waiting, abs=0.04)
    assert again.oracle_speedup == pytest.approx(look.oracle_speedup, rel=0.08)


@pytest.mark.slow
def test_rare_delays_are_recovered_found_and_put_into_the_block():
    seconds = simulated([*NOISE, DELAYS], 1000)
    fitted = fit(trace(seconds))
    assert fitted.chosen.name == "lognormal, worker and node noise, rare delays"
    assert isinstance(fitted.model, Delayed)
    assert fitted.model.delays.probability == pytest.approx(0.02, rel=0.08)
    assert fitted.model.delays.seconds.median == pytest.approx(2.0, rel=0.08)
    assert fitted.model.delays.seconds.sigma == pytest.approx(0.4, rel=0.1)
    assert fitted.model.model.white == pytest.approx(0.1, rel=0.05)
    assert fitted.block.options["contention"][-1]["name"] == "rare-delays"
    cluster = Cluster.model_validate(fitted.block.options)
    again = describe(run_times(cluster, 1000), cluster.node_of)
    assert again.lost_waiting == pytest.approx(fitted.description.lost_waiting, abs=0.03)
    assert again.deviation == pytest.approx(fitted.description.deviation, rel=0.1)


def test_the_likelihood_with_delays_is_no_more_than_that_of_the_mixture():
    """Without noise, run-times are independent, each from a mixture whose density a fine sum gives."""
    rng = np.random.default_rng(3)
    seconds = rng.lognormal(sigma=0.1, size=(300, 20)) + (rng.random((300, 20)) < 0.05) * rng.lognormal(1.0, 0.3, (300, 20))
    found = fit_delayed(seconds, np.zeros(20, int), False, False, False)
    assert isinstance(found, Delayed)
    quantiles = found.delays.seconds.sample((np.arange(4000) + 0.5) / 4000)
    base = norm(found.model.levels.mean(), found.model.white)
    grid = np.sort(seconds, axis=None)[::7]
    left = np.maximum(grid[:, None] - quantiles, 1e-300)
    late = (base.pdf(np.log(left)) / left * (grid[:, None] > quantiles)).mean(1)
    mixture = 0.95 * base.pdf(np.log(grid)) / grid + 0.05 * late
    assert found.log_likelihood(seconds).sum() / seconds.size < np.log(mixture).mean() + 0.01
    assert found.log_likelihood(seconds).sum() / seconds.size > np.log(mixture).mean() - 0.1


def test_waiting_for_exponential_times_loses_what_their_harmonic_number_says():
    seconds = np.random.default_rng(0).exponential(size=(20_000, 10))
    look = describe(seconds, np.zeros(10, int))
    assert look.lost_waiting == pytest.approx(1 - 1 / (1 / np.arange(1, 11)).sum(), abs=0.005)
    assert look.worker_persistence[1] == pytest.approx(0, abs=0.01)
    assert look.within_groups == pytest.approx(0, abs=0.01)
    ordered = np.sort(seconds, 1)
    best = [max(range(10), key=lambda c: (c + 1) / row[c]) for row in ordered[:500]]
    expected = sum(c + 1 for c in best) / sum(row[c] for row, c in zip(ordered[:500], best, strict=True))
    everybody = 5000 / ordered[:500, -1].sum()
    assert describe(seconds[:500], np.zeros(10, int)).oracle_speedup == pytest.approx(expected / everybody)


@pytest.mark.slow
def test_workers_of_scattered_nodes_are_sorted_and_told():
    seconds = simulated(NOISE, 800)
    places = np.random.default_rng(0).permutation(40)
    fitted = fit(trace(seconds[:, places]))
    assert sorted(np.bincount(fitted.group_of)) == sorted(SIZES)
    assert sum(fitted.block.options["nodes"]) == 40
    assert "workers sorted by node: w0 " in fitted.text
    speeds = np.array(SPEEDS)[places][fitted.block.order]
    assert np.corrcoef(fitted.block.options["speeds"], speeds)[0, 1] > 0.9


@pytest.mark.parametrize("shape", [(8, 2), (9, 1), (40, 1), (12, 300)])
def test_small_traces_are_fitted_without_complaint(shape, recwarn):
    fitted = fit(trace(np.random.default_rng(0).lognormal(size=shape)))
    assert Cluster.model_validate(fitted.block.options).size == shape[1]
    assert not [str(each.message) for each in recwarn]


def test_workers_that_never_vary_are_fitted(recwarn):
    fitted = fit(trace(np.ones((50, 4)) * [1.0, 1.0, 2.0, 2.0]))
    assert Cluster.model_validate(fitted.block.options).size == 4
    assert not [str(each.message) for each in recwarn]


def test_rounds_are_simulated_as_the_protocol_records_them():
    cluster = Cluster.model_validate({"workers": 6, "nodes": 2, "compute": COMPUTE, "contention": [*NOISE, SWITCHING, DELAYS]})
    assert (judging.simulated(cluster, 50) == run_times(cluster, 50)).all()


def test_the_standard_error_is_that_of_correlated_means():
    """Against the closed form for autoregressive series: the long-run variance, (1 + kept) / (1 - kept) of the series' own."""
    rng = np.random.default_rng(0)
    kept, length = 0.8, 10_000
    values = np.empty((length, 40))
    values[0] = rng.normal(size=40)
    for step in range(1, length):
        values[step] = kept * values[step - 1] + np.sqrt(1 - kept**2) * rng.normal(size=40)
    expected = np.sqrt((1 + kept) / (1 - kept) / length)
    assert judging.standard_error(values).mean() == pytest.approx(expected, rel=0.05)
    assert np.isinf(judging.standard_error(values[:1])).all()


@pytest.mark.parametrize("count", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_the_simplest_of_equally_good_models_is_chosen(count):
    """Traces of independent log-normal times: by the likelihood alone a richer model wins often, by chance."""
    cluster = Cluster.model_validate({"workers": 8, "compute": COMPUTE | {"sigma": 0.3}})
    times = judging.simulated(cluster, 400 * (20 if count == 20 else 8))
    rankings = [rank(part, np.zeros(8, int)) for part in np.split(times, len(times) // 400)[-count:]]
    likeliest = [max(ranking, key=lambda each: each.unseen) for ranking in rankings]
    assert sum(each.parameters > 2 for each in likeliest) >= count / 4
    assert sum(ranking[0].parameters > 2 for ranking in rankings) <= 0.2 * count  # by one standard error: about 16 %
    assert sum(ranking[0].name == "lognormal" for ranking in rankings) >= 0.7 * count


def test_a_model_whose_cluster_has_other_order_statistics_gives_way(monkeypatch):
    """Simulated rounds that are half as long again as the trace's are told from it, those of the cluster itself are not."""
    cluster = {"workers": 8, "compute": COMPUTE, "contention": [NOISE[0]]}
    seconds = judging.simulated(Cluster.model_validate(cluster), 200)
    slower = Cluster.model_validate(cluster | {"compute": COMPUTE | {"median": 1.5}})
    assert judging.agreement(seconds, Cluster.model_validate(cluster)).holds
    assert not judging.agreement(seconds, slower).holds
    as_good = [each for each in rank(seconds, np.zeros(8, int)) if each.as_good]
    assert len(as_good) > 1
    asked = iter([slower])
    monkeypatch.setattr("fred.fitting.fit.agreement", lambda times, own: judging.agreement(times, next(asked, own)))
    assert fit(trace(seconds)).chosen.name == as_good[1].name
    monkeypatch.setattr("fred.fitting.fit.agreement", lambda times, own: judging.agreement(times, slower))
    assert fit(trace(seconds)).chosen.name == as_good[0].name


def test_candidates_that_came_to_the_same_are_named_once():
    names = [each.name for each in rank(simulated([], 300), NODE_OF)]
    assert "lognormal" in names
    assert not [
        name for name in names if name in ("lognormal, rare delays", "lognormal, worker noise", "lognormal, node noise")
    ]


def test_too_few_iterations_are_refused():
    with pytest.raises(FredError, match="has 7 complete iterations; at least 8 are needed"):
        fit(trace(np.ones((7, 3))))


def test_the_command_prints_and_writes_a_block_that_runs(tmp_path, capsys):
    rows = [f"{t},{w},{x:.6f}" for t, row in enumerate(simulated(NOISE, 120)[:, ::4]) for w, x in enumerate(row)]
    path = tmp_path / "times.csv"
    path.write_text("\n".join(["iteration,worker,seconds", *rows]) + "\n")
    assert cli.main(["fit", str(path), "--nodes", "2", "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    block = (tmp_path / "out" / "cluster.yaml").read_text()
    assert block in shown
    assert "2 told" in shown
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        f"{block}algorithm: {{name: cutoff-sgd, learning_rate: 0.1}}\nstop: {{updates: 3}}\nruns: {{a: {{}}}}\n"
    )
    assert cli.main(["run", str(scenario), "--out", str(tmp_path / "result")]) == 0
    assert (tmp_path / "out" / "trace.svg").read_text().startswith("<?xml")
    first = {each.name: each.read_bytes() for each in (tmp_path / "out").iterdir()}
    capsys.readouterr()
    assert cli.main(["fit", str(path), "--nodes", "2", "--out", str(tmp_path / "out"), "--json"]) == 0
    assert {each.name: each.read_bytes() for each in (tmp_path / "out").iterdir()} == first
    assert json.loads(capsys.readouterr().out)["cluster"] == json.loads((tmp_path / "out" / "fit.json").read_text())["cluster"]
    assert make_run("asgd", cluster=json.loads(first["fit.json"])["cluster"]).cluster.size == 10
    assert cli.main(["fit", str(tmp_path / "absent.csv")]) == 2


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_done(tmp_path, capsys):
    (tmp_path / "file").touch()
    (tmp_path / "folder" / "fit.json").mkdir(parents=True)
    for out, message in (
        (tmp_path / "file", "cluster.yaml: .*file is not a folder"),
        (tmp_path / "file" / "deeper", "cluster.yaml: .*file is not a folder"),
        (tmp_path / "folder", "fit.json: it is a folder"),
    ):
        assert cli.main(["fit", "example", "--out", str(out)]) == 2
        said = capsys.readouterr()
        assert re.fullmatch(f"fred: cannot write .*{message}; choose another place with --out\n", said.err)
        assert not said.out
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "fit.json", "folder"]
    (tmp_path / "cluster.yaml").write_text("cluster: {workers: 3}\n")
    assert cli.main(["fit", "example", "--out", str(tmp_path)]) == 2
    assert "cluster.yaml is there already, and not what this command writes; choose another place" in capsys.readouterr().err
    assert (tmp_path / "cluster.yaml").read_text() == "cluster: {workers: 3}\n"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "fit.json").write_text("{}")
    assert cli.main(["fit", "example", "--out", str(tmp_path / "mine")]) == 2
    assert "fit.json is there already, and not what this command writes; choose another place" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["fit.json"]
