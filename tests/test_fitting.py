"""Fitting against closed forms, and clusters whose parameters are known."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from fred import Cluster, FredError, Verb
from fred.base.intervals import block_ratios
from fred.cluster.latency import LogNormal, Mixture
from fred.components import registry
from fred.fitting import behaviour
from fred.fitting.description import describe
from fred.fitting.entities import fit_model, sentences
from fred.fitting.entity_regimes import InSpells, InWaves, Wanders
from fred.fitting.fitted import Fitted, cluster_block, fit
from fred.fitting.latencies import FITS, log_density
from fred.protocols.synchronous import Cutoff
from fred.traces.trace import Trace
from tests.program import fred_command, refusal
from tests.worlds import make_run, mostly_slow, record

COMPUTE = {"name": "lognormal", "median": 1.0, "sigma": 0.1}
NODES = np.repeat(np.arange(3), 4)
ONE_NODE_EACH = np.zeros(12, np.int64)


def trace(seconds: np.ndarray, node_of: np.ndarray | None = None) -> Trace:
    return Trace(seconds, tuple(f"w{worker}" for worker in range(seconds.shape[1])), node_of)


def write_trace(path: Path, seconds: np.ndarray, name: str = "") -> Path:
    rows = [f"{t},{name}{w},{x!r}" for t, row in enumerate(seconds.tolist()) for w, x in enumerate(row)]
    path.write_text("\n".join(["iteration,worker,seconds", *rows]) + "\n")
    return path


def times(seed: int, shape: tuple[int, int] = (300, 12)) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(sigma=0.1, size=shape)


def in_spells(iterations: int, fast: int, slow: int) -> np.ndarray:
    return (np.arange(iterations) % (fast + slow) >= fast).astype(float)


def gain(seconds: np.ndarray, backups: int = 1) -> float:
    ordered = np.sort(seconds, 1)
    return float(ordered[:, -1].mean() / ordered[:, -1 - backups].mean())


@pytest.fixture(scope="module")
def one_slow() -> Fitted:
    return fit(trace(times(0) * np.where(np.arange(12) == 4, 6.0, 1.0)))


def test_one_slow_worker_is_named_and_a_backup_worker_gains_as_much_as_in_the_trace(one_slow):
    assert one_slow.sentences == ["Worker w4 is always 6.0 times slower than the median worker."]
    assert one_slow.block.options["speeds"][4] == pytest.approx(1 / 6, rel=0.02)
    assert "contention" not in one_slow.block.options
    simulated = behaviour.simulate_rounds(Cluster.model_validate(one_slow.block.options), 500, seed=7)
    assert gain(simulated) == pytest.approx(gain(one_slow.trace.seconds), rel=0.03)
    assert one_slow.behaviour.holds


@pytest.mark.slow
def test_a_node_in_spells_is_found_and_only_its_workers_are_slowed_down():
    slow = in_spells(300, 40, 20)[:, None] * (NODES == 1)
    seconds = times(1) * (1 + slow)
    model = fit_model(seconds, NODES)
    (spells,) = model.regimes
    assert isinstance(spells, InSpells)
    assert (spells.scope, spells.entities) == ("node", (1,))
    assert spells.slowdown == pytest.approx(2.0, rel=0.03)
    assert spells.share == pytest.approx(1 / 3, abs=0.01)
    rounds = seconds.max(1)
    slow_share = rounds[slow.any(1)].sum() / rounds[~slow.any(1)].sum()
    assert spells.slow_seconds / spells.fast_seconds == pytest.approx(slow_share, rel=0.02)
    (contention,) = cluster_block(model, "lognormal", rounds, NODES).options["contention"]
    assert contention["only"] == [4, 5, 6, 7]


@pytest.mark.slow
def test_workers_that_are_scattered_over_nodes_are_sorted_and_slowed_down_in_their_new_places():
    node_of = np.arange(12) % 3
    seconds = times(2, (180, 12)) * (1 + in_spells(180, 40, 20)[:, None] * (node_of == 2))
    fitted = fit(trace(seconds, node_of))
    assert fitted.block.order.tolist() == [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11]
    assert fitted.block.options["contention"][0]["only"] == [8, 9, 10, 11]
    assert "Workers sorted by node: w0 w3" in fitted.text
    assert "The node of w2, w5, w8, w11 is 2.0 times slower in spells of about" in fitted.text
    model = fit_model(seconds, node_of)
    (named, _) = sentences(model, [f"w{worker}" for worker in range(12)], node_of, True, ("gpu-a", "gpu-b", "gpu-c"))
    assert named.startswith("Node gpu-c is 2.0 times slower in spells of about")


@pytest.mark.slow
def test_a_spell_of_one_worker_is_not_its_nodes():
    seconds = times(3)
    seconds[100:180, 5] *= 3
    (spells,) = fit_model(seconds, NODES).regimes
    assert (spells.scope, spells.entities) == ("worker", (5,))


@pytest.mark.slow
def test_workers_that_all_have_spells_share_one_regime_with_the_share_of_all():
    rng = np.random.default_rng(4)
    slow = np.zeros((300, 12))
    for worker in range(12):
        for start in rng.choice(28, 3, replace=False) * 10:
            slow[start : start + 10, worker] = 1
    (spells,) = fit_model(times(4) * (1 + 2 * slow), ONE_NODE_EACH).regimes
    assert isinstance(spells, InSpells) and (spells.scope, spells.entities) == ("worker", ())
    assert spells.slowdown == pytest.approx(3.0, rel=0.03)
    assert spells.share == pytest.approx(slow.mean(), abs=0.01)


@pytest.mark.slow
def test_a_worker_that_drifts_and_a_daily_cycle_are_told_by_their_shape():
    drifting = times(5)
    drifting[:, 3] *= np.linspace(1, 3, 300)
    drift, *rest = fit_model(drifting, ONE_NODE_EACH).regimes
    assert isinstance(drift, InWaves) and drift.drift
    assert drift.slowdown == pytest.approx(3.0, rel=0.2)
    assert {regime.entities for regime in (drift, *rest)} == {(3,)}
    cluster = {"workers": 12, "compute": COMPUTE, "contention": [{"name": "diurnal", "slowdown": 2.0, "period": 100.0}]}
    day = fit_model(behaviour.simulate_rounds(Cluster.model_validate(cluster), 200), ONE_NODE_EACH).regimes[0]
    assert isinstance(day, InWaves) and day.scope == "cluster"
    assert day.period == pytest.approx(100.0, rel=0.03)
    assert day.slowdown == pytest.approx(2.0, rel=0.1)


@pytest.mark.slow
def test_noise_that_persists_is_neither_spells_nor_a_wave():
    noise = [
        {"name": "persistent-noise", "deviation": 0.08, "persistence": 0.9, "every": 0.35},
        {"name": "persistent-noise", "deviation": 0.1, "persistence": 0.95, "every": 0.35, "of": "node"},
    ]
    cluster = Cluster.model_validate({"workers": 24, "nodes": 6, "compute": COMPUTE, "contention": noise})
    model = fit_model(behaviour.simulate_rounds(cluster, 600), cluster.node_of)
    assert model.regimes == ()
    assert model.white == pytest.approx(np.full(24, 0.1), rel=0.07)
    assert model.noise.worker and model.noise.worker.deviation == pytest.approx(0.08, rel=0.15)
    assert model.noise.node and model.noise.node.deviation == pytest.approx(0.1, rel=0.25)


def test_a_single_worker_that_wanders_has_noise_of_its_own():
    rng = np.random.default_rng(6)
    state = np.zeros(400)
    for step in range(1, 400):
        state[step] = 0.9 * state[step - 1] + np.sqrt(1 - 0.9**2) * rng.normal()
    seconds = times(6, (400, 12))
    seconds[:, 7] *= np.exp(0.4 * state)
    (wanders,) = fit_model(seconds, ONE_NODE_EACH).regimes
    assert isinstance(wanders, Wanders) and wanders.entities == (7,)
    assert wanders.deviation == pytest.approx(0.4, rel=0.3)
    assert wanders.persistence == pytest.approx(0.9, abs=0.06)


@pytest.mark.parametrize("seed", mostly_slow(range(6), [0]))
def test_heavy_tails_and_traces_of_chance_have_no_regimes(seed):
    rng = np.random.default_rng(seed)
    for seconds in (rng.lognormal(sigma=0.3, size=(200, 10)), 1 + rng.pareto(2.2, size=(200, 10))):
        model = fit_model(seconds, np.zeros(10, np.int64))
        assert model.regimes == ()
        assert np.ptp(model.levels) == 0


def test_workers_that_scatter_differently_have_latencies_of_their_own():
    sigma = np.where(np.arange(12) < 4, 0.05, 0.3)
    seconds = np.exp(sigma * np.random.default_rng(8).normal(size=(300, 12)))
    options = cluster_block(fit_model(seconds, ONE_NODE_EACH), "lognormal", seconds.max(1), ONE_NODE_EACH).options
    assert sum(group["workers"] for group in options["groups"]) == 12
    cluster = Cluster.model_validate(options)
    assert [latency.model_dump()["sigma"] for latency in cluster.latencies()] == pytest.approx(sigma, rel=0.1)


@pytest.mark.parametrize("name", FITS)
def test_latencies_are_recovered_and_their_densities_are_their_samplers(name):
    parts = (LogNormal(median=1.0, sigma=0.1), LogNormal(median=3.0, sigma=0.3))
    mixture = Mixture(components=parts, weights=(0.9, 0.1)) if name == "mixture" else None
    latency = mixture or registry.lookup("latency", name).example()
    times = latency.sample((np.arange(50_000) + 0.5) / 50_000)
    refitted = FITS[name](times)
    if isinstance(refitted, Mixture):
        assert [part.model_dump()["median"] for part in refitted.components] == pytest.approx([1.0, 3.0], rel=0.01)
        assert refitted.weights == pytest.approx((0.9, 0.1), rel=0.01)
    for option, value in () if mixture else latency.model_dump().items():
        if option != "floor":
            assert getattr(refitted, option) == (value if value is None else pytest.approx(value, rel=0.01)), option
    edges = np.quantile(times, np.linspace(0.1, 0.9, 9))
    grid = np.linspace(edges[:-1], edges[1:], 2001)
    assert np.trapezoid(np.exp(log_density(latency, grid)), grid, axis=0) == pytest.approx(np.full(8, 0.1), abs=1e-4)


@pytest.mark.parametrize(("third_median", "components"), [(1.748, 2), (1.77, 3)])
def test_mixture_has_a_third_component_only_if_the_likelihood_of_all_times_pays_for_it(third_median, components):
    """The first gains 16 in log likelihood: less than the penalty for 100,000 times, more than that for the 10,000 fitted."""
    parts = tuple(LogNormal(median=median, sigma=0.05) for median in (1.0, 1.65, third_median))
    latency = Mixture(components=parts, weights=(0.85, 0.12, 0.03))
    fitted = FITS["mixture"](latency.sample((np.arange(100_000) + 0.5) / 100_000))
    assert isinstance(fitted, Mixture)
    assert len(fitted.components) == components


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


def test_arrivals_and_gains_are_those_of_numpy():
    seconds = times(10, (60, 5)) * [1, 1, 1, 1, 2]
    report = behaviour.measure_trace(seconds, np.zeros(5, np.int64)).compare(seconds, np.zeros(5, np.int64))
    ordered = np.sort(seconds, 1)
    assert [interval.cluster for interval in report.arrivals] == pytest.approx(ordered[:, 2:].mean(0))
    assert [interval.trace for interval in report.gains] == pytest.approx([gain(seconds, 1) * 4 / 5, gain(seconds, 2) * 3 / 5])
    assert report.holds


def test_intervals_hold_the_mean_of_independent_rounds_nineteen_times_in_twenty():
    """The last arrival of two exponential times has mean 1.5; a binomial of 200 at .95 is within 182 to 198."""
    rng = np.random.default_rng(11)
    covered = 0
    for _ in range(200):
        low, high = block_ratios(np.stack([rng.exponential(size=(150, 2)).max(1), np.ones(150)])[:, :, None])
        covered += low[0] <= 1.5 <= high[0]
    assert 180 <= covered <= 198


def test_a_cluster_unlike_the_trace_is_told_by_what_is_off(one_slow):
    cluster = Cluster.model_validate({**one_slow.block.options, "speeds": [1.0] * 12})
    judgement = behaviour.measure_trace(one_slow.trace.seconds, ONE_NODE_EACH).judge(cluster)
    first = judgement.gains[0]
    assert not judgement.holds and first in judgement.outside and first.bounds[0] >= first.low
    assert first.excess == pytest.approx(first.bounds[0] / first.cluster - 1)
    wide = behaviour.Measure("the gain of 1 backup worker", trace=3.0, low=1.0, high=9.0, cluster=4.0)  # a third off
    assert not wide.inside and wide.excess == pytest.approx(4.0 / 3.6 - 1)


@pytest.mark.slow
def test_where_nothing_simple_fits_the_cluster_takes_the_recorded_times(tmp_path):
    """All workers are slow in the same single iterations, each by another factor: no candidate has that."""
    rng = np.random.default_rng(12)
    seconds = times(12, (90, 6)) * np.where(rng.random((90, 1)) < 0.1, rng.uniform(2, 9, (90, 6)) ** 2, 1.0)
    fitted = fit(trace(seconds), {"file": str(write_trace(tmp_path / "times.csv", seconds))})
    assert fitted.verdict.startswith("No simple cluster behaves like this trace")
    assert fitted.text.startswith("# fred fit: No simple cluster")
    assert all(candidate.behaviour.outside for candidate in fitted.candidates[:-1])
    assert fitted.block.options["compute"]["name"] == "trace"
    simulated = behaviour.simulate_rounds(Cluster.model_validate(fitted.block.options), 3000)
    assert {*np.round(simulated[:, 0], 6)} <= {*np.round(seconds[:, 0], 6)}
    assert gain(simulated) == pytest.approx(gain(seconds), rel=0.1)


def test_rounds_are_simulated_as_the_protocol_records_them():
    contention = [
        {"name": "persistent-noise", "deviation": 0.08, "persistence": 0.9, "every": 0.35, "only": [0, 5]},
        {"name": "markov-switching", "slowdown": 2.0, "fast_seconds": 8.0, "slow_seconds": 3.0, "of": "node"},
        {"name": "rare-delays", "probability": 0.1, "seconds": {"name": "constant", "seconds": 2.0}, "only": [1]},
    ]
    cluster = Cluster.model_validate({"workers": 6, "nodes": 2, "compute": COMPUTE, "contention": contention})
    schedule = record(Cutoff(rule="all"), cluster, gradients=50 * cluster.size)
    rows, seconds = schedule.rows(Verb.ADD), np.zeros((50, cluster.size))
    seconds[schedule["step"][rows], schedule["worker"][rows]] = (schedule["end_ns"] - schedule["begin_ns"])[rows] / 1e9
    assert (behaviour.simulate_rounds(cluster, 50) == seconds).all()


@pytest.mark.parametrize("shape", mostly_slow([((8, 2),), ((9, 1),), ((40, 1),), ((12, 100),)], [((8, 2),)]))
def test_small_traces_are_fitted_without_complaint_but_not_too_few_iterations(shape, recwarn):
    with pytest.raises(FredError, match="has 7 complete iterations; expected at least 8"):
        fit(trace(np.ones((7, shape[1]))))
    assert fit(trace(np.random.default_rng(0).lognormal(size=shape))).block.options["workers"] == shape[1]
    assert not [str(warning.message) for warning in recwarn]


def test_workers_that_never_vary_are_fitted(recwarn):
    fitted = fit(trace(np.ones((50, 4)) * [1.0, 1.0, 2.0, 2.0]))
    simulated = behaviour.simulate_rounds(Cluster.model_validate(fitted.block.options), 10)
    assert simulated == pytest.approx(np.ones((10, 4)) * [1.0, 1.0, 2.0, 2.0], rel=0.01)
    assert not [str(warning.message) for warning in recwarn]


def test_the_command_begins_with_sentences_and_writes_a_block_that_runs(tmp_path):
    path, out = write_trace(tmp_path / "times.csv", times(13, (40, 6)) * [1, 1, 1, 1, 1, 4], "rank"), tmp_path / "out"
    command = ["fit", path, "--nodes", "2", "--out", out]
    answer = fred_command(*command, columns=200)
    first, second, *_ = answer.out.splitlines()
    assert answer.code == 0 and first.startswith("The cluster behaves like the trace")
    assert re.fullmatch(r"Worker rank5 is always 4\.\d times slower than the median worker\.", second)
    block = (out / "cluster.yaml").read_text()
    assert block.startswith(f"# fred fit: {first}\n") and block[block.index("cluster:") :] in answer.out
    settings = "algorithm: {name: cutoff-sgd, learning_rate: 0.1}\nstop: {updates: 3}\nruns: {a: {}}\n"
    (tmp_path / "scenario.yaml").write_text(block + settings)
    assert fred_command("run", tmp_path / "scenario.yaml", "--out", tmp_path / "result").code == 0
    assert (out / "trace.svg").read_text().startswith("<?xml")
    files = {file.name: file.read_bytes() for file in out.iterdir()}
    document = json.loads(fred_command(*command, "--json").out)
    assert {file.name: file.read_bytes() for file in out.iterdir()} == files
    assert document["verdict"] + "." == first and all(quantity["inside"] for quantity in document["behaviour"])
    assert make_run("asgd", cluster=document["cluster"]).cluster.size == 6
    assert fred_command("fit", tmp_path / "absent.csv").code == 2


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_done(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder" / "fit.json").mkdir(parents=True)
    for name, text in (("cluster.yaml", "cluster: {workers: 3}\n"), ("mine/fit.json", "{}")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    before = {path: path.is_file() and path.read_text() for path in tmp_path.rglob("*")}
    cure = "choose another place"
    for out, message in (
        ("file", rf"cannot write .*cluster.yaml: .*file is not a folder; {cure} with --out\n"),
        ("file/deeper", rf"cannot write .*cluster.yaml: .*file is not a folder; {cure} with --out\n"),
        ("folder", rf"cannot write .*fit.json: it is a folder; {cure} with --out\n"),
        (".", rf".*cluster.yaml is there already, and not what this command writes; {cure}.*\n"),
        ("mine", rf".*fit.json is there already, and not what this command writes; {cure}.*\n"),
    ):
        assert re.fullmatch(f"fred: {message}", refusal("fit", "example", "--out", tmp_path / out))
    assert {path: path.is_file() and path.read_text() for path in tmp_path.rglob("*")} == before
