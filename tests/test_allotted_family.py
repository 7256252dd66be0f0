"""MindFlayer and ATA: what they are the same as, what theory says of them, and NumPy's word on each."""

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fred.base.errors import FredError
from fred.outcomes.outcome import Outcome
from fred.running.execution import execute
from fred.schedule.schedule import Schedule, Verb
from tests.worlds import CLUSTERS, COMPUTE, make_run

UNEQUAL = {"workers": 3, "speeds": [1.0, 0.6, 0.3], "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.7}}
NETWORK = {"latency": {"name": "exponential", "scale": 0.02}, "bandwidth": 1e5}
LIMITED = {"name": "time-limited", "trials": [1, 2, 3], "limit": [0.1, 0.1, 0.4]}
LEARNING = {"name": "bandit", "gradients": 4, "width": 0.05}


def outcome(algorithm: str, protocol: Any = None, cluster: Any = UNEQUAL, inline: bool = False, **options: Any) -> Outcome:
    described = {"name": algorithm, "learning_rate": 0.1}
    options = {"stop": {"updates": 60}, **options}
    return execute("run", make_run(described, protocol=protocol, cluster=cluster, **options), 3, inline)


def recorded(cluster: Any, protocol: dict[str, Any], seed: int, updates: int = 40) -> Schedule:
    described = cluster if isinstance(cluster, dict) else cluster.model_dump()
    run = make_run("asgd", cluster=described, protocol=protocol, stop={"updates": updates}, task=None)
    return execute("run", run, seed).schedule


def rounds(schedule: Schedule) -> list[list[Any]]:
    """Rows between two updates."""
    whole: list[list[Any]] = [[]]
    for row in schedule.frame().itertuples():
        if row.verb == "COMMIT":
            whole.append([])
        else:
            whole[-1].append(row)
    return whole[:-1]


class TestSame:
    """To the last bit."""

    def test_with_time_enough_mindflayer_is_synchronous(self):
        flayer, ssgd = outcome("mindflayer", {"name": "time-limited", "limit": 1e6}), outcome("ssgd")
        assert flayer.params_digest == ssgd.params_digest
        assert flayer.schedule.end_ns == ssgd.schedule.end_ns

    def test_of_workers_that_are_equally_fast_ata_gives_each_as_much(self):
        cluster = {"workers": 5, "compute": {"name": "constant", "seconds": 0.1}}
        ata, ssgd = outcome("ata", None, cluster), outcome("ssgd", None, cluster)
        assert ata.params_digest == ssgd.params_digest
        assert ata.schedule.end_ns == ssgd.schedule.end_ns

    def test_of_one_worker_ata_is_rennala(self):
        cluster = {"workers": 1, "compute": COMPUTE}
        ata = outcome("ata", {"name": "bandit", "gradients": 4}, cluster)
        rennala = outcome("rennala", {"name": "fresh-batch", "batch": 4}, cluster)
        assert ata.params_digest == rennala.params_digest
        assert ata.schedule.end_ns == rennala.schedule.end_ns


class TestMindFlayer:
    @given(cluster=CLUSTERS, trials=st.integers(1, 4), limit=st.sampled_from([1.0, 2.5]), seed=st.integers(0, 9))
    def test_everybody_makes_its_trials_and_nothing_that_took_longer_is_used(self, cluster, trials, limit, seed):
        schedule = recorded(cluster, {"name": "time-limited", "trials": trials, "limit": limit}, seed)
        assert schedule["staleness"][schedule.rows(Verb.ADD)].max(initial=0) == 0
        for rows in rounds(schedule):
            made = [row for row in rows if row.verb in ("ADD", "DROP")]
            assert Counter(row.worker for row in made) == dict.fromkeys(range(schedule.workers), trials)
            for row in made:
                took = (row.end_ns if row.verb == "ADD" else row.time_ns) - row.begin_ns
                assert took <= round(limit * 1e9) if row.verb == "ADD" else took == round(limit * 1e9)

    def test_sums_are_divided_by_how_many_gradients_are_ready_in_time_on_average(self):
        schedule = recorded(UNEQUAL, LIMITED, 0, updates=2000)
        likely = [
            stats.lognorm.cdf(limit * speed, 0.7, scale=0.1)
            for limit, speed in zip((0.1, 0.1, 0.4), (1, 0.6, 0.3), strict=True)
        ]
        expected = sum(p * trials for p, trials in zip(likely, (1, 2, 3), strict=True))
        weights = schedule["weight"][schedule.rows(Verb.COMMIT)]
        np.testing.assert_allclose(weights, 1 / expected, rtol=1e-3)
        assert len(schedule.rows(Verb.ADD)) / 2000 == pytest.approx(expected, rel=0.02)

    def test_a_round_of_which_nothing_comes_leaves_the_parameters_alone(self):
        """The first gradient of each of the first rounds hangs; only rounds with something in them change anything."""
        cluster = {"workers": 1, "compute": {"name": "bimodal", "fast": 0.1, "slow": 1e6, "slow_fraction": 0.7}}
        found = outcome(
            "mindflayer", {"name": "time-limited", "limit": 0.1}, cluster, stop={"updates": 30}, evaluate={"every_updates": 1}
        )
        empty = [not any(row.verb == "ADD" for row in rows) for rows in rounds(found.schedule)]
        still = (np.diff(found.metrics["loss"]) == 0).tolist()
        assert still == empty and 10 < sum(empty) < 30

    def test_the_limit_is_the_median_if_none_is_given(self):
        cluster = {"workers": 2, "speeds": [1.0, 0.5], "compute": {"name": "exponential", "scale": 0.1}}
        schedule = recorded(cluster, {"name": "time-limited"}, 0)
        aborted = schedule.frame().query("verb == 'DROP'")
        for worker, speed in enumerate((1.0, 0.5)):
            rows = aborted[aborted["worker"] == worker]
            np.testing.assert_allclose(rows["time_ns"] - rows["begin_ns"], 1e8 * math.log(2) / speed, rtol=1e-6)
        np.testing.assert_allclose(schedule["weight"][schedule.rows(Verb.COMMIT)], 1.0)  # 1 / (0.5 + 0.5)

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"trials": [1, 2]}, "`trials` has 2 numbers; expected one for each of the 3 workers"),
            ({"limit": [1.0]}, "`limit` has 1 numbers; expected one for each of the 3 workers"),
            ({"limit": 1e-6}, "no gradient would ever be ready in time"),
            ({"trials": [0, 0, 0]}, "no gradient would ever be ready in time"),
            ({"limit": 0.0}, "limit"),
        ],
    )
    def test_what_cannot_be_is_refused(self, options, said):
        with pytest.raises(FredError, match=said):
            outcome("mindflayer", {"name": "time-limited", **options})


class TestATA:
    @given(cluster=CLUSTERS, gradients=st.integers(1, 9), seed=st.integers(0, 9))
    def test_rounds_have_that_number_of_gradients_and_none_is_wasted(self, cluster, gradients, seed):
        schedule = recorded(cluster, {"name": "bandit", "gradients": gradients, "width": 0.2}, seed)
        assert not len(schedule.rows(Verb.DROP))
        assert schedule["staleness"][schedule.rows(Verb.ADD)].max() == 0
        assert {sum(row.verb == "ADD" for row in rows) for rows in rounds(schedule)} == {gradients}

    @pytest.mark.parametrize("scale", [None, 0.2])
    def test_no_other_shares_would_be_ready_earlier_if_bounds_were_times(self, scale):
        """Bounds from the times in the schedule; of all ways to share four gradients among three none is better."""
        schedule = recorded(UNEQUAL, LEARNING | {"scale": scale}, 0, updates=80)
        times: list[list[float]] = [[], [], []]
        ways = [way for way in itertools.product(range(5), repeat=3) if sum(way) == 4]
        different = set()
        for number, rows in enumerate(rounds(schedule), 1):
            q = math.log(2 * number**2)
            bounds = [0.0] * 3
            for worker, own in enumerate(times):
                if own:
                    c = scale or 2 * float(np.mean(own))
                    width = 0.05 * c * (math.sqrt(q / len(own)) + q / len(own))
                    bounds[worker] = max(0.0, float(np.mean(own)) - width)
            shares = Counter(row.worker for row in rows if row.verb == "ADD")
            latest = [max(bounds[worker] * way[worker] for worker in range(3)) for way in ways]
            assert max(bounds[worker] * shares[worker] for worker in range(3)) == pytest.approx(min(latest))
            different.add(tuple(shares[worker] for worker in range(3)))
            for row in rows:
                if row.verb == "ADD":
                    times[row.worker].append((row.end_ns - row.begin_ns) / 1e9)
        assert len(different) > 2

    def test_in_the_end_who_is_slow_computes_next_to_nothing(self):
        cluster = {"workers": 4, "speeds": [1.0, 1.0, 0.01, 0.01], "compute": COMPUTE}
        schedule = recorded(cluster, {"name": "bandit", "gradients": 4, "width": 0.2}, 0, updates=300)
        late = [row.worker for rows in rounds(schedule)[200:] for row in rows if row.verb == "ADD"]
        assert len(late) == 400 and sum(worker > 1 for worker in late) < 8
