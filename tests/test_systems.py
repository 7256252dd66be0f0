"""Systems of FRED's papers: their times, bytes and orders in closed form, and what theory says of each."""

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fred import Cluster, FredError, Verb
from fred.protocols.synchronous import Synchronous
from fred.schedule.staleness import of_models
from fred.systems.psp import Partial
from fred.systems.wagma_sgd import GroupAveraging, differing_bits, members
from tests.cases import options
from tests.recompute import largest_relative_error
from tests.worlds import CLUSTERS, COMPUTE, LAYERS, TASK, UNEQUAL, constant, fitting_protocol, make_run, outcome, record

FIVE = {"workers": 5, "compute": COMPUTE}


class TestPSP:
    @pytest.mark.parametrize(("servers", "seconds"), [(1, 2.1), (4, 0.1 + 1.0 + 0.25)])
    def test_all_blocks_of_a_worker_pass_its_one_link(self, servers, seconds):
        """0.1 s of compute, 1 s up, 1 s down; of several blocks all but the last come down while others still go up."""
        cluster = Cluster(**constant(0.1, 0.1, servers=servers, network={"bandwidth": 1000.0}))
        schedule = record(Partial(), cluster, seconds=20.5)
        rounds = schedule["time_ns"][schedule.rows(Verb.COMMIT)][servers - 1 :: servers]
        assert len(rounds) >= 9 and (np.diff(rounds) == round(seconds * 1e9)).all()
        unsplit = record(Synchronous(), cluster, seconds=20.5)
        assert (np.diff(unsplit["time_ns"][unsplit.rows(Verb.COMMIT)]) == 2.1e9).all(), "a whole model: as on one server"

    def test_one_gradient_is_computed_on_a_mixture_of_versions(self):
        slow = {"name": "bimodal", "fast": 0.001, "slow": 0.5, "slow_fraction": 0.2}
        cluster = Cluster(workers=4, servers=4, compute=COMPUTE, network={"pull_latency": slow})
        schedule = record(Partial(blocks_percent=50), cluster, gradients=200)
        adds = schedule.rows(Verb.ADD)
        key = schedule["worker"][adds] * 1000 + schedule["step"][adds]
        spread = [np.ptp(schedule["timestamp"][adds][key == update]) for update in np.unique(key)]
        assert max(spread) >= 1
        everything = record(Partial(), cluster, gradients=200)
        assert everything.end_ns > schedule.end_ns, "waiting for all blocks takes longer"
        assert not everything["staleness"][everything.rows(Verb.ADD)].any()

    def test_servers_wait_for_the_first_gradients_and_the_time_out(self):
        """Workers take 1, 2, 3, 4 s: with c = 2 and a time-out of 0.5 s the first round ends at 2.5 s, with 1.5 s at 3.5 s."""
        cluster = Cluster(workers=4, speeds=[1, 1 / 2, 1 / 3, 1 / 4], compute={"name": "constant", "seconds": 1.0})
        for timeout, seconds, number in ((0.0, 2.0, 2), (0.5, 2.5, 2), (1.5, 3.5, 3), (9.0, 4.0, 4)):
            schedule = record(Partial(gradients=2, push_timeout=timeout), cluster, gradients=4)
            first = schedule.rows(Verb.COMMIT)[0]
            assert schedule["time_ns"][first] == seconds * 1e9 and schedule["weight"][first] == 1 / number


class TestSSP:
    def test_bound_0_is_bulk_synchronous(self):
        """A step takes as long as a round; five steps of eta / 5 are one of eta."""
        stop = {"gradients": 100}
        ssp = outcome({"name": "ssp", "learning_rate": 0.02}, {"bound": 0}, FIVE, stop=stop)
        ssgd = outcome({"name": "ssgd", "learning_rate": 0.1}, None, FIVE, stop=stop)
        pushes, commits = ssp.schedule.rows(Verb.PUSH), ssgd.schedule.rows(Verb.COMMIT)
        assert (ssp.schedule["timestamp"][pushes] == 5 * ssp.schedule["step"][pushes]).all(), "at the step's first version"
        assert ssp.schedule["time_ns"][pushes[4::5]].tolist() == ssgd.schedule["time_ns"][commits].tolist()
        assert largest_relative_error(ssp.final, ssgd.final) < 1e-5


class TestGossip:
    @pytest.mark.slow
    @pytest.mark.parametrize("topology", ["star", {"name": "exponential", "neighbours": 1}])
    def test_push_sum_without_steps_reaches_the_mean_of_the_initial_models(self, topology):
        options: dict[str, Any] = {"task": LAYERS | {"replicas_start": "apart"}, "stop": {"updates": 300}}
        sgp, averaged = (
            outcome({"name": name, "learning_rate": 1e-30}, {"topology": topology}, FIVE, **options)
            for name in ("sgp", "d-psgd")
        )
        models = [{k: sgp.initial[f"replica-{number}/{k}"] for k in sgp.final} for number in range(5)]
        disagreement = sgp.metrics["disagreement"]
        assert disagreement.iloc[0] > 1 and disagreement.iloc[-1] < 1e-5
        assert all(np.allclose(sgp.final[k], np.mean([model[k] for model in models], axis=0), atol=1e-6) for k in sgp.final)
        disagrees = averaged.metrics["disagreement"].iloc[-1] > 0.1
        assert disagrees == (topology == "star"), "without the weights, models agree only where degrees are equal"

    def test_mixing_first_hides_communication_behind_the_computation(self):
        cluster = constant(0.1, 0.1, 0.1, 0.1, network={"latency": {"name": "constant", "seconds": 0.06}})
        for order, seconds in (("update-first", 0.16), ("mix-first", 0.1), ("compute-first", 0.16)):
            schedule = outcome("d-psgd", {"order": order}, cluster, task=None).schedule
            times = np.unique(schedule["time_ns"][schedule.rows(Verb.SYNC)])
            assert (np.diff(times) == seconds * 1e9).all(), order


class TestWAGMA:
    def test_groups_are_the_papers_example(self):
        assert [members(w, differing_bits(0, 8, 4)) for w in (0, 4)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert [members(w, differing_bits(1, 8, 4)) for w in (0, 2)] == [[0, 1, 4, 5], [2, 3, 6, 7]]

    def test_groups_partition_the_workers_and_spread_every_update_quickly(self):
        for workers, size in ((8, 2), (8, 4), (16, 4), (64, 8), (32, 4), (4, 4)):
            iterations = math.ceil(math.log(workers, size) - 1e-9)
            for start in range(7):
                updates_of = [{worker} for worker in range(workers)]
                for iteration in range(start, start + iterations):
                    group_of = [members(worker, differing_bits(iteration, workers, size)) for worker in range(workers)]
                    groups = set(map(tuple, group_of))
                    assert sorted(sum(groups, ())) == list(range(workers)), (workers, size)
                    assert {len(group) for group in groups} == {size}
                    updates_of = [set().union(*(updates_of[member] for member in group)) for group in group_of]
                assert all(len(updates) == workers for updates in updates_of), (workers, size)

    def test_a_late_worker_contributes_its_old_model_and_takes_the_late_form(self):
        cluster = Cluster(**constant(1.0, 1.0, 1.0, 2.5))
        schedule = record(GroupAveraging(group_size=2, period=4), cluster, seconds=10.5)
        syncs = schedule.rows(Verb.SYNC)
        late = syncs[schedule["keep"][syncs] > 0]
        assert set(schedule["worker"][late].tolist()) == {3} and np.allclose(schedule["keep"][late], 1 / 3)
        assert np.allclose(schedule["weight"][late], 2 / 3)
        # Others never wait for worker 3, which needs 2.5 s a step, until all average after 4 steps of it.
        times = [schedule["time_ns"][syncs[schedule["worker"][syncs] == worker]] / 1e9 for worker in (0, 3)]
        assert times[0].tolist() == [1, 2, 3, 10] and times[1].tolist() == [2.5, 5, 7.5, 10]
        # It enters the first three averagings with models 1, 2 and 2 steps old.
        assert [sorted(group) for group in of_models(schedule).reshape(-1, 4).tolist()] == [
            [0, 0, 0, age] for age in (1, 2, 2, 0)
        ]

    def test_a_group_of_one_trains_alone_until_all_average(self):
        cluster = Cluster(**constant(1.0, 2.5))
        schedule = record(GroupAveraging(group_size=1, period=3), cluster, seconds=9.5)
        syncs = schedule.rows(Verb.SYNC)
        assert set(schedule["time_ns"][syncs].tolist()) == {7_500_000_000}
        usual = record(GroupAveraging(), cluster, seconds=9.5)
        assert (usual["weight"][usual.rows(Verb.MIX)] == 0.5).all(), "two workers make a group of two"

    @pytest.mark.parametrize(
        ("size", "groups", "partners"),
        [(2, "dynamic", {0, 1, 2}), (2, "fixed", {0, 1}), (8, "dynamic", set(range(8))), (1, "fixed", {0})],
    )
    def test_whom_a_worker_meets_in_two_averagings_without_an_ablation_and_with_each(self, size, groups, partners):
        cluster = Cluster(workers=8, compute={"name": "exponential", "scale": 1.0})
        schedule = record(GroupAveraging(period=99, group_size=size, groups=groups), cluster, gradients=40)
        pulls, mixes, syncs = (schedule.rows(verb) for verb in (Verb.PULL, Verb.MIX, Verb.SYNC))
        owner = dict(zip(schedule["mailbox"][pulls].tolist(), schedule["worker"][pulls].tolist(), strict=True))
        mailboxes = schedule["mailbox"][syncs[schedule["worker"][syncs] == 0][:2]]
        sources = schedule["source"][mixes[np.isin(schedule["mailbox"][mixes], mailboxes)]]
        assert {owner[source] for source in sources.tolist()} | {0} == partners

    def test_a_group_averages_by_the_papers_butterfly_and_all_as_the_network_says(self):
        """log2 S phases of a whole model each, against 2 (n - 1) / n of one around a ring."""
        network = {"bandwidth": 1e6, "message_bytes": 1_000_000}
        cluster = Cluster(workers=8, compute={"name": "constant", "seconds": 10.0}, network=network)
        schedule = record(GroupAveraging(group_size=4, period=2), cluster, seconds=30)
        syncs = schedule.rows(Verb.SYNC)
        assert schedule["bytes"][syncs].tolist() == [2_000_000] * 8 + [1_750_000] * 8
        assert schedule["messages"][syncs].tolist() == [2] * 8 + [14] * 8
        assert sorted(set(schedule["time_ns"][syncs].tolist())) == [12_000_000_000, 23_750_000_000]
        one_group = record(GroupAveraging(group_size=8, period=2), cluster, seconds=30)
        syncs = one_group.rows(Verb.SYNC)
        assert one_group["bytes"][syncs].tolist() == [3_000_000] * 8 + [1_750_000] * 8, "a group of all is a group all the same"
        ring = record(GroupAveraging(group_size=4, group_collective="ring"), cluster, seconds=12)
        assert set(ring["bytes"][ring.rows(Verb.SYNC)].tolist()) == {1_500_000}

    @given(cluster=CLUSTERS, period=st.integers(1, 4), size=st.sampled_from([None, None, 2]), seed=st.integers(0, 9))
    def test_no_worker_is_further_behind_and_no_model_older_than_the_period_allows(self, cluster, period, size, seed):
        protocol = fitting_protocol("group-averaging", cluster, period=period, group_size=size)
        schedule = record(protocol, cluster, gradients=80, seed=seed)
        ages = of_models(schedule)
        assert ages.min(initial=0) == 0 and ages.max(initial=0) <= period - 1
        steps = [0] * cluster.size
        for verb, worker in zip(schedule["verb"].tolist(), schedule["worker"].tolist(), strict=True):
            if verb == Verb.PUSH:
                steps[worker] += 1
                assert max(steps) - min(steps) <= period


MEASURED = "{'name':'backup','noise':'measured'}"
MUST_NOT = r"must not exceed the number of workers \({}\)"
BOUNDS = """
    mindflayer / limit=0.0; dropcompute / threshold=0.0; dropcompute / micro_batches=0; dropcompute / measured=0;
    k-async / bounded-delay threshold=0; k-async / fresh-batch batch=0; easgd / elasticity=1.5; easgd / period=0;
    easgd / accumulating n_fetch=0; easgd / buffered buffer=0; local-sgd / adapt_every=0;
    diloco / streaming mixing=1.5; diloco / pulls=1.0; diloco / every=0; fedbuff / grace=0; fedbuff / paced=3;
    fedbuff / period=0
"""  # each: an option beyond its bounds, which the message names
REFUSED: list[tuple[str, str]] = [  # algorithm / protocol / cluster; what the message says
    ("mindflayer / trials=[1,2] / workers=3", "`trials` has 2 numbers; expected one for each of the 3 workers"),
    ("mindflayer / limit=[1.0] / workers=3", "`limit` has 1 numbers; expected one for each of the 3 workers"),
    ("mindflayer / limit=1e-6", "no gradient would ever be ready in time"),
    ("mindflayer / trials=[0,0,0] / workers=3", "no gradient would ever be ready in time"),
    (f"ssgd / cutoff rule={MEASURED}", "statistic"),
    (f"ssgd / cutoff rule={{'name':'auto','candidates':[{MEASURED},{{'name':'count','workers':2}}]}}", "statistic"),
    ("k-async / softsync n=2 gradients=3", "`n` and `gradients` both set"),
    ("k-async / softsync gradients=6 afterwards=wait / workers=5", rf"`gradients` \(6\) {MUST_NOT.format(5)}"),
    ("stsyn / enough=5 / workers=4", rf"`enough` \(5\) {MUST_NOT.format(4)}"),
    ("choco-sgd / topology={'name':'exponential','neighbours':1}", "changes from iteration"),
    ("des-loc optimizer=sgd", "first and second moments"),
    ("des-loc optimizer=rmsprop", "first and second moments"),
    ("diloco / streaming period=5", r"`period` \(5\) must be a multiple of `fragments` \(2\)"),
    ("diloco / streaming period=6 delay=3", r"`delay` \(3\) must be less than `period` / `fragments` \(3\)"),
    ("diloco / every=1.0 paced=True", "`paced` and `every` both set"),
    ("diloco / pace_seconds=1.0", "`pace_seconds` needs `paced: true`"),
    ("diloco outer={'name':'clip','max_delta':1.0}", "exactly one transformation must take the learning rate"),
    ("decoupled-diloco / quorum=9 / workers=3", rf"`quorum` \(9\) {MUST_NOT.format(3)}"),
    ("delayed-nesterov gathered=5 spread=0.26", r"`spread` .*exceed 1 / \(N - 1\), 0.25 with N = 5 .*against the momentum"),
    ("delayed-nesterov spread=0.51 / / workers=3", r"`spread` .*exceed 1 / \(N - 1\), 0.5 with N = 3 .*against the momentum"),
    ("halos spread=0.07", r"`spread` .*exceed 1 / \(N - 1\), 0.06667 with N = 16 .*against the momentum"),
    ("halos gathered=1 global_gathered=3 spread=0.6", r"`spread` .*exceed 1 / \(N - 1\), 0.5 with N = 3 .*against the"),
    ("b-fasgd / asynchronous overlap=True", "`overlap` needs `clocks: each` and `cut: layers`"),
    ("b-fasgd / asynchronous overlap=True clocks=each", "`overlap` needs `clocks: each` and `cut: layers`"),
    ("b-fasgd / softsync n=9", r"`n` \(9\) must not exceed the number of workers"),
    ("b-fasgd / fixed-lag lag=4 drawn_from=6", r"`drawn_from` \(6\) must not exceed `lag` \+ 1 \(5\)"),
    ("asgd / gated push_gate={'name':'statistical','c':0.1}", "a statistic that this algorithm does not have"),
    ("sgp / partial / workers=3 servers=3", "cannot be divided among"),
    ("wagma-sgd / / workers=6", r"number of workers \(6\) must be a power of two"),
    ("wagma-sgd / group_size=8", "must not exceed"),
    ("psp-sgd / gradients=9", "must not exceed"),
    ("d-psgd / weights=metropolis topology=exponential", "needs an undirected topology"),
]


REFUSED += [(text.strip(), re.split(r"[ =]", text.strip())[-2]) for text in BOUNDS.split(";")]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[text for text, _ in REFUSED])
def test_what_does_not_fit_together_is_refused(text, message):
    algorithm, protocol, cluster = (options(part) or None for part in f"{text} / / ".split("/ ")[:3])
    with pytest.raises(FredError, match=message):
        outcome(algorithm, protocol, cluster or UNEQUAL, stop={"gradients": 4})


def test_tasks_that_do_not_fit_are_refused():
    small = {"data": {"name": "noise", "features": 3}, "model": {"name": "quadratic", "dimension": 6}, "loss": "value"}
    for algorithm, protocol, task, message in (
        ("dbw", None, None, "needs a `task`"),
        ("b-fasgd", {"push_gate": {"name": "statistical", "c": 0.1}}, None, "needs a `task`"),
        ("asgd", None, TASK | {"replicas_start": "apart"}, "every worker has a model of its own"),
        ("asgd", None, small, "dimension 6 has inputs of 3 numbers; expected 1"),
    ):
        with pytest.raises(FredError, match=message):
            outcome(algorithm, protocol, task=task)
    make_run(
        {"name": "delayed-nesterov", "learning_rate": 0.1, "gathered": 5, "spread": 0.25}
    )  # at its limit, which is accepted
