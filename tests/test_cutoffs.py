"""Cutoff rules against closed forms, against each other, and against the oracle that none may surpass."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.components import registry
from fred.prediction.auto import Auto
from fred.prediction.backup import DynamicBackup
from fred.prediction.contract import AllWorkers, Oracle, Round
from fred.prediction.elfving import Elfving, expected_normal_order_statistics
from fred.prediction.empirical import Empirical
from fred.prediction.ewma import EWMA
from fred.prediction.fixed import FixedCount, FixedCountOrDeadline, FixedDeadline
from fred.prediction.hmm import HiddenMarkov
from fred.prediction.mad_deadline import MADDeadline
from fred.protocols.cutoff import Cutoff
from fred.protocols.synchronous import Synchronous
from fred.running.execution import execute
from fred.schedule.schedule import Verb
from tests.worlds import COMPUTE, make_run, record

RULES = {
    "all": AllWorkers(),
    "count": FixedCount(workers=17),
    "elfving": Elfving(),
    "empirical": Empirical(),
    "ewma": EWMA(of="node"),
    "hmm": HiddenMarkov(),
    "backup": DynamicBackup(),
    "auto": Auto(),
    "oracle": Oracle(),
    "deadline": FixedDeadline(seconds=1.2),
    "count-or-deadline": FixedCountOrDeadline(workers=17, seconds=1.2),
    "mad-deadline": MADDeadline(),
}


def test_elfvings_approximation():
    """The paper's example, with its formula corrected (docs/errata.md, item 1), and the exact expectation by integration."""
    assert 1.057 + 0.393 * expected_normal_order_statistics(158)[-1] == pytest.approx(2.1047, abs=5e-5)
    assert 1.057 + 0.393 * expected_normal_order_statistics(160)[-1] == pytest.approx(2.1064, abs=5e-5)
    z = np.linspace(-9, 9, 20_001)
    for n, j in ((10, 1), (10, 5), (10, 10), (158, 150)):
        density = stats.beta.pdf(stats.norm.cdf(z), j, n - j + 1) * stats.norm.pdf(z)
        assert expected_normal_order_statistics(n)[j - 1] == pytest.approx(np.trapezoid(z * density, z), abs=0.03)


def test_elfving_recovers_mean_and_deviation_although_late_workers_are_never_seen():
    rng = np.random.default_rng(0)
    chooser: Any = Elfving(window=200, at_least=0.1).start(np.zeros(40, int))
    for _ in range(200):
        times = np.maximum(rng.normal(2e9, 0.3e9, 40), 1).astype(np.int64)
        cutoff = np.sort(times)[24]
        chooser.observe(np.minimum(times, cutoff), times <= cutoff)
    mean, deviation = np.mean(chooser._fits, axis=0)
    assert mean == pytest.approx(2.0, rel=0.02)
    assert deviation == pytest.approx(0.3, rel=0.05)
    expected = 2.0 + 0.3 * expected_normal_order_statistics(40)
    assert abs(chooser.choose(times) - (1 + np.argmax(np.arange(1, 41) / expected))) <= 1


def test_waiting_for_all_is_synchronous_sgd_to_the_last_bit():
    cluster = {"workers": 5, "compute": COMPUTE}
    ssgd = execute("run", make_run("ssgd", cluster=cluster), 0)
    for rule in ("all", {"name": "count", "workers": 5}):
        run = make_run("cutoff-sgd", cluster=cluster, protocol={"name": "cutoff", "rule": rule})
        cutoff = execute("run", run, 0)
        assert cutoff.params_digest == ssgd.params_digest
        one, other = [each.schedule["time_ns"][each.schedule.rows(Verb.COMMIT)] for each in (cutoff, ssgd)]
        assert np.array_equal(one, other)


def test_a_static_cutoff_is_synchronous_sgd_with_backup_workers_that_are_interrupted():
    cluster = Cluster(workers=10, compute={"name": "exponential", "scale": 1.0})
    cut = record(Cutoff(rule={"name": "count", "workers": 7}), cluster, gradients=700)
    backup = record(Synchronous(backup_workers=3, late="interrupt"), cluster, gradients=700)
    one, other = [each["time_ns"][each.rows(Verb.COMMIT)] for each in (cut, backup)]
    assert np.array_equal(one, other)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("seed", range(3))
def test_no_rule_surpasses_the_oracle_in_any_round(name, seed):
    """The same times for all rules: gradients per time of the round are at most the largest c / x_(c) over all c."""
    rng = np.random.default_rng(seed)
    chooser, oracle = RULES[name].start(np.zeros(30, int)), Oracle().start(np.zeros(30, int))
    for number in range(300):
        slow = np.where((np.arange(30) < 8) & (number // 40 % 2 == 0), 3.0, 1.0)
        times = (rng.lognormal(0, 0.4, 30) * slow * 1e9).astype(np.int64)
        chosen, best = (Round.of(times, each.choose(times)) for each in (chooser, oracle))
        rate, most = (len(each.first) / each.cutoff for each in (chosen, best))
        assert rate <= most
        assert most == (np.arange(1, 31) / np.sort(times)).max()
        chooser.observe(chosen.seen, chosen.taken)


def test_in_the_long_run_the_throughput_oracle_does_more_gradients_per_time():
    cluster = Cluster(workers=30, compute={"name": "lognormal", "median": 1.0, "sigma": 0.8})
    rates = {}
    for objective in ("round", "throughput"):
        schedule = record(Cutoff(rule={"name": "oracle", "objective": objective}), cluster, seconds=1500, seed=4)
        rates[objective] = schedule.counts()["gradients"] / schedule.end_ns
    assert rates["round"] < rates["throughput"] < 1.1 * rates["round"]


def test_rules_that_cannot_work_are_refused():
    for rule, message in (
        ({"name": "count", "workers": 9}, r"`workers` \(9\) must not exceed the cluster's 4"),
        ({"name": "elfving", "at_least": 0}, "greater than 0"),
        ({"name": "deadline", "seconds": 0}, "greater than 0"),
        ("deadline", "`deadline` needs `seconds`, or training on recorded rounds"),
        ({"name": "deadline", "seconds": 0}, "greater than 0"),
        ({"name": "hmm", "by": "clock"}, "'count', 'deadline' or 'count-or-deadline'"),
    ):
        with pytest.raises(FredError, match=message):
            make_run("cutoff-sgd", protocol={"name": "cutoff", "rule": rule})
    assert set(RULES) == {name for name in registry.REGISTRY["cutoff"] if not name.startswith("dmm")}
