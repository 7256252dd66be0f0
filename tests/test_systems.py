"""Equivalences between systems, and what theory says of each: to the last bit where arithmetic allows it."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.learning.loss import initial_params
from fred.outcomes.outcome import Outcome
from fred.outcomes.staleness import of_models
from fred.protocols.synchronous import Synchronous
from fred.replay.helpers import replay
from fred.replay.lower import lower
from fred.replay.machine import states_at
from fred.results import experiment
from fred.running.execution import execute
from fred.running.problem import Problem, _initial_seeds
from fred.schedule.schedule import Verb
from fred.specification.loading import validated
from fred.systems.psp import Partial
from fred.systems.ssp import StaleSynchronous
from fred.systems.wagma_sgd import GroupAveraging, differing, members
from tests.worlds import CLUSTERS, COMPUTE, LAYERS, TASK, fitting, make_run, record

EQUAL = {"workers": 4, "compute": {"name": "constant", "seconds": 0.1}}
NETWORK = {"latency": {"name": "exponential", "scale": 0.02}, "bandwidth": 1e5, "server_bandwidth": 2e5}


def outcome(algorithm, rate: float = 0.1, seed: int = 3, inline: bool = False, **options) -> Outcome:
    return execute("run", make_run({"name": algorithm, "learning_rate": rate}, **options), seed, inline)


def same(a: Outcome, b: Outcome) -> bool:
    return a.params_digest == b.params_digest and a.metrics[["loss", "error"]].equals(b.metrics[["loss", "error"]])


def close(a: Outcome, b: Outcome) -> bool:
    return all(np.allclose(a.final[k], b.final[k], rtol=1e-4, atol=1e-6) for k in a.final)


class TestBFASGD:
    GATED = {"name": "gated", "c_push": 0.05, "c_fetch": 0.2}

    def test_open_gates_are_fasgd_to_the_last_bit(self):
        cluster = {"workers": 5, "compute": COMPUTE, "network": NETWORK}
        gated, plain = outcome("b-fasgd", cluster=cluster), outcome("fasgd", cluster=cluster)
        assert gated.schedule.digest() == plain.schedule.digest()
        assert same(gated, plain)

    def test_what_it_recorded_inline_can_be_replayed(self):
        result = outcome("b-fasgd", protocol=self.GATED, cluster={"workers": 5, "compute": COMPUTE})
        run, seed = result.run, result.seed
        assert run.task is not None
        problem = Problem(run.task, run, seed)
        program = lower(result.schedule, np.array([len(result.schedule)]))
        (mark,) = replay(program, problem.arithmetic, problem.models, problem.examples, problem.batches)
        replayed = problem.arithmetic.answer(states_at(program, 0, mark, problem.arithmetic, [0]))
        leaves = {
            jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in jax.tree.leaves_with_path(replayed)
        }
        assert all(np.array_equal(leaves[k], result.final[k]) for k in leaves)

    def test_gates_follow_the_gradients_and_save_messages_and_time(self):
        cluster = {"workers": 5, "compute": COMPUTE, "network": NETWORK}
        stop = {"updates": 400}
        plain = outcome("b-fasgd", cluster=cluster, stop=stop).schedule
        gated = outcome("b-fasgd", protocol=self.GATED, cluster=cluster, stop=stop).schedule
        pushes = gated.rows(Verb.PUSH)
        unsent = gated["messages"][pushes] == 0
        early, late = unsent[:100].mean(), unsent[-100:].mean()
        assert 0 < early < late, "v falls while it learns, and fewer messages pass"
        assert gated["messages"].sum() < 0.8 * plain["messages"].sum()
        assert gated.end_ns < plain.end_ns
        again = gated["step"][pushes][unsent], gated["worker"][pushes][unsent]
        for step, worker in zip(*again, strict=True):
            own = (gated["worker"][pushes] == worker) & (gated["step"][pushes] == step)
            assert own.sum() >= 2, "what is applied again has been applied before"


class TestPSP:
    def test_waiting_for_everything_is_synchronous_sgd(self):
        """To the last bit with one server and a power of two of workers: then eta / n times n is eta."""
        for servers in (1, 3):
            cluster = {"workers": 4, "compute": COMPUTE, "servers": servers}
            psp = outcome("psp-sgd", rate=0.1 / 4, cluster=cluster, stop={"updates": 20})
            ssgd = outcome("ssgd", cluster=cluster, stop={"updates": 20})
            assert same(psp, ssgd) if servers == 1 else close(psp, ssgd)
            commits = psp.schedule.rows(Verb.COMMIT)[::servers]
            assert (psp.schedule["time_ns"][commits] == ssgd.schedule["time_ns"][ssgd.schedule.rows(Verb.COMMIT)]).all()

    @pytest.mark.parametrize(("servers", "seconds"), [(1, 2.1), (4, 0.1 + 1.0 + 0.25)])
    def test_all_blocks_of_a_worker_pass_its_one_link(self, servers, seconds):
        """0.1 s of compute, 1 s up, 1 s down; of several blocks all but the last come down while others still go up."""
        cluster = Cluster(
            workers=2, servers=servers, compute={"name": "constant", "seconds": 0.1}, network={"bandwidth": 1000.0}
        )
        schedule = record(Partial(), cluster, seconds=20.5)
        rounds = schedule["time_ns"][schedule.rows(Verb.COMMIT)][servers - 1 :: servers]
        assert len(rounds) >= 9
        assert (np.diff(rounds) == round(seconds * 1e9)).all()
        whole = record(Synchronous(), cluster, seconds=20.5)
        assert (np.diff(whole["time_ns"][whole.rows(Verb.COMMIT)]) == 2.1e9).all(), (
            "a whole model takes as long as on one server"
        )

    def test_one_gradient_is_computed_on_a_mixture_of_versions(self):
        slow = {"name": "bimodal", "fast": 0.001, "slow": 0.5, "slow_fraction": 0.2}
        cluster = Cluster(workers=4, servers=4, compute=COMPUTE, network={"pull_latency": slow})
        schedule = record(Partial(blocks_percent=50), cluster, gradients=200)
        adds = schedule.rows(Verb.ADD)
        key = schedule["worker"][adds] * 1000 + schedule["step"][adds]
        spread = [np.ptp(schedule["timestamp"][adds][key == each]) for each in np.unique(key)]
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
            assert schedule["time_ns"][first] == seconds * 1e9
            assert schedule["weight"][first] == 1 / number


class TestSSP:
    def test_bound_0_is_bulk_synchronous(self):
        cluster = {"workers": 5, "compute": COMPUTE}
        stop = {"gradients": 100}
        ssp = outcome("ssp", protocol={"name": "stale-synchronous", "bound": 0}, rate=0.02, cluster=cluster, stop=stop)
        ssgd = outcome("ssgd", cluster=cluster, stop=stop)
        pushes = ssp.schedule.rows(Verb.PUSH)
        assert (ssp.schedule["timestamp"][pushes] == 5 * ssp.schedule["step"][pushes]).all(), "all at the step's first version"
        ends = ssp.schedule["time_ns"][pushes[4::5]]
        assert (ends == ssgd.schedule["time_ns"][ssgd.schedule.rows(Verb.COMMIT)]).all(), "a step takes as long as a round"
        assert close(ssp, ssgd), "five steps of eta / 5 are one of eta"

    def test_no_bound_is_asynchronous_sgd_to_the_last_bit(self):
        cluster = {"workers": 5, "compute": COMPUTE, "network": NETWORK}
        no_bound = {"name": "stale-synchronous", "bound": None, "cache": False}
        ssp = outcome("ssp", protocol=no_bound, cluster=cluster)
        asgd = outcome("asgd", cluster=cluster)
        assert ssp.schedule.digest() == asgd.schedule.digest()
        assert same(ssp, asgd)

    @given(cluster=CLUSTERS, bound=st.integers(0, 4), seed=st.integers(0, 9))
    def test_nobody_begins_a_step_more_than_the_bound_ahead(self, cluster, bound, seed):
        schedule = record(StaleSynchronous(bound=bound), cluster, gradients=80, seed=seed)
        finished = [0] * cluster.size
        for verb, worker, step in zip(*(schedule[name].tolist() for name in ("verb", "worker", "step")), strict=True):
            if verb == Verb.PULL:
                assert step - min(finished) <= bound
            elif verb == Verb.PUSH:
                finished[worker] = step + 1


class TestGossip:
    @pytest.mark.slow
    def test_push_sum_with_doubly_stochastic_weights_is_d_psgd(self):
        complete = {"name": "gossip", "topology": "complete", "order": "update-first"}  # 4 workers: weights 1/4, exact
        assert same(outcome("sgp", protocol=complete), outcome("d-psgd", protocol=complete))
        ring = {"name": "gossip", "topology": "ring", "order": "update-first"}
        five = {"workers": 5, "compute": COMPUTE}
        assert close(outcome("sgp", protocol=ring, cluster=five), outcome("d-psgd", protocol=ring, cluster=five))

    @pytest.mark.slow
    @pytest.mark.parametrize("topology", ["star", {"name": "exponential", "neighbours": 1}])
    def test_push_sum_without_steps_reaches_the_mean_of_the_initial_models(self, topology):
        task, workers = {**LAYERS, "replicas_start": "apart"}, 5
        options: dict[str, Any] = {"task": task, "protocol": {"name": "gossip", "topology": topology}}
        options |= {"stop": {"updates": 60 * workers}, "cluster": {"workers": workers, "compute": COMPUTE}}
        sgp, plain = (outcome(name, rate=1e-30, **options) for name in ("sgp", "d-psgd"))
        assert sgp.run.task is not None
        models = [
            initial_params(sgp.run.task.model, sgp.run.task.data.load(3), seed)
            for seed in _initial_seeds(sgp.run.task, 3, sgp.run)
        ]
        mean = jax.tree.map(lambda *leaves: np.mean(leaves, axis=0), *models)
        mean = {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in jax.tree.leaves_with_path(mean)}
        assert sgp.metrics["disagreement"].iloc[0] > 1
        assert sgp.metrics["disagreement"].iloc[-1] < 1e-5
        assert all(np.allclose(sgp.final[k], mean[k], atol=1e-6) for k in mean)
        apart = plain.metrics["disagreement"].iloc[-1] > 0.1
        assert apart == (topology == "star"), "without the weights, models agree only where degrees are equal"

    def test_mixing_first_hides_communication_behind_the_computation(self):
        network = {"latency": {"name": "constant", "seconds": 0.06}}
        cluster = {**EQUAL, "network": network}
        for order, seconds in (("update-first", 0.16), ("mix-first", 0.1), ("compute-first", 0.16)):
            schedule = outcome("d-psgd", protocol={"name": "gossip", "order": order}, cluster=cluster).schedule
            times = np.unique(schedule["time_ns"][schedule.rows(Verb.SYNC)])
            assert (np.diff(times) == seconds * 1e9).all()


class TestWAGMA:
    def test_groups_are_the_papers_example(self):
        assert [members(w, differing(0, 8, 4)) for w in (0, 4)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert [members(w, differing(1, 8, 4)) for w in (0, 2)] == [[0, 1, 4, 5], [2, 3, 6, 7]]

    @pytest.mark.parametrize(("workers", "size"), [(8, 2), (8, 4), (16, 4), (64, 8), (32, 4), (4, 4)])
    def test_groups_partition_the_workers_and_spread_every_update_quickly(self, workers, size):
        within = math.ceil(math.log(workers, size) - 1e-9)
        for start in range(7):
            reached = [{worker} for worker in range(workers)]
            for iteration in range(start, start + within):
                groups = {tuple(members(worker, differing(iteration, workers, size))) for worker in range(workers)}
                assert sorted(sum(groups, ())) == list(range(workers))
                assert {len(group) for group in groups} == {size}
                reached = [
                    set().union(*(reached[m] for m in members(w, differing(iteration, workers, size)))) for w in range(workers)
                ]
            assert all(len(each) == workers for each in reached)

    def test_one_group_of_equal_workers_is_allreduce_sgd(self):
        """Averaging models after equal steps is stepping with the averaged gradient, up to rounding."""
        wagma = outcome("wagma-sgd", protocol={"name": "group-averaging", "group_size": 4}, cluster=EQUAL)
        allreduce = outcome("allreduce-sgd", cluster=EQUAL)
        assert close(wagma, allreduce)
        assert same(allreduce, outcome("ssgd", cluster=EQUAL))
        assert wagma.schedule.end_ns == allreduce.schedule.end_ns

    def test_a_late_worker_contributes_its_old_model_and_takes_the_late_form(self):
        cluster = Cluster(workers=4, speeds=[1, 1, 1, 0.4], compute={"name": "constant", "seconds": 1.0})
        schedule = record(GroupAveraging(group_size=2, period=4), cluster, seconds=10.5)
        syncs = schedule.rows(Verb.SYNC)
        late = syncs[schedule["keep"][syncs] > 0]
        assert set(schedule["worker"][late].tolist()) == {3}
        assert np.allclose(schedule["keep"][late], 1 / 3)
        assert np.allclose(schedule["weight"][late], 2 / 3)
        # Others never wait for worker 3, which needs 2.5 s a step, until all average after 4 steps of it.
        times = [schedule["time_ns"][syncs[schedule["worker"][syncs] == worker]] / 1e9 for worker in (0, 3)]
        assert times[0].tolist() == [1, 2, 3, 10]
        assert times[1].tolist() == [2.5, 5, 7.5, 10]

    def test_a_group_of_one_trains_alone_until_all_average(self):
        cluster = Cluster(workers=2, speeds=[1, 0.4], compute={"name": "constant", "seconds": 1.0})
        schedule = record(GroupAveraging(group_size=1, period=3), cluster, seconds=9.5)
        syncs = schedule.rows(Verb.SYNC)
        assert set(schedule["time_ns"][syncs].tolist()) == {7_500_000_000}
        usual = record(GroupAveraging(), cluster, seconds=9.5)
        assert (usual["weight"][usual.rows(Verb.MIX)] == 0.5).all(), "two workers make a group of two"

    def test_how_old_the_models_are_that_enter_an_averaging(self):
        """Worker 3 needs 2.5 steps' time: it enters the first three averagings with models 1, 2 and 2 steps old."""
        cluster = Cluster(workers=4, speeds=[1, 1, 1, 0.4], compute={"name": "constant", "seconds": 1.0})
        ages = of_models(record(GroupAveraging(group_size=2, period=4), cluster, seconds=10.5))
        assert [sorted(each) for each in ages.reshape(-1, 4).tolist()] == [[0, 0, 0, age] for age in (1, 2, 2, 0)]

    @given(period=st.integers(1, 4), size=st.sampled_from([None, 2, 8]), seed=st.integers(0, 9))
    def test_no_model_is_older_than_the_period_allows(self, period, size, seed):
        cluster = Cluster(workers=8, compute={"name": "exponential", "scale": 1.0})
        ages = of_models(record(GroupAveraging(period=period, group_size=size), cluster, gradients=80, seed=seed))
        assert len(ages)
        assert ages.min() == 0
        assert ages.max() <= period - 1

    @pytest.mark.parametrize(
        ("size", "groups", "met"),
        [(2, "dynamic", {0, 1, 2}), (2, "fixed", {0, 1}), (8, "dynamic", set(range(8))), (1, "fixed", {0})],
    )
    def test_whom_a_worker_meets_in_two_averagings_without_an_ablation_and_with_each(self, size, groups, met):
        cluster = Cluster(workers=8, compute={"name": "exponential", "scale": 1.0})
        schedule = record(GroupAveraging(period=99, group_size=size, groups=groups), cluster, gradients=40)
        pulls, mixes, syncs = (schedule.rows(verb) for verb in (Verb.PULL, Verb.MIX, Verb.SYNC))
        owner = dict(zip(schedule["mailbox"][pulls].tolist(), schedule["worker"][pulls].tolist(), strict=True))
        taken = schedule["mailbox"][syncs[schedule["worker"][syncs] == 0][:2]]
        sources = schedule["source"][mixes[np.isin(schedule["mailbox"][mixes], taken)]]
        assert {owner[source] for source in sources.tolist()} | {0} == met

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

    @given(cluster=CLUSTERS, period=st.integers(1, 4), seed=st.integers(0, 9))
    def test_nobody_is_further_behind_than_the_period(self, cluster, period, seed):
        schedule = record(fitting("group-averaging", cluster, period=period), cluster, gradients=80, seed=seed)
        finished = [0] * cluster.size
        for verb, worker in zip(schedule["verb"].tolist(), schedule["worker"].tolist(), strict=True):
            if verb == Verb.PUSH:
                finished[worker] += 1
                assert max(finished) - min(finished) <= period


def test_digests_do_not_depend_on_the_order_in_which_runs_are_listed():
    names = ["wagma-sgd", "psp-sgd", "ad-psgd", "b-fasgd"]
    runs = {name: make_run(name, stop={"gradients": 24}).model_dump() for name in names}
    listed = [experiment.run(validated({"runs": {n: runs[n] for n in order}}, str)).summary for order in (names, names[::-1])]
    digests = [frame.set_index("name")[["digests_schedule", "digests_params"]].sort_index() for frame in listed]
    assert digests[0].equals(digests[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "asgd", "protocol": {"name": "gated", "c_push": 0.1}}, "a statistic that this algorithm does not have"),
        ({"algorithm": "sgp", "protocol": "partial", "cluster": {"workers": 3, "servers": 3}}, "cannot be divided among"),
        ({"algorithm": "b-fasgd", "protocol": {"name": "gated", "c_push": 0.1}, "task": None}, "it needs a `task`"),
        ({"algorithm": "asgd", "task": {**TASK, "replicas_start": "apart"}}, "every worker has a model of its own"),
        ({"algorithm": "wagma-sgd", "cluster": {"workers": 6}}, r"number of workers \(6\) must be a power of two"),
        ({"algorithm": "wagma-sgd", "protocol": {"name": "group-averaging", "group_size": 8}}, "must not exceed"),
        ({"algorithm": "psp-sgd", "protocol": {"name": "partial", "gradients": 9}}, "must not exceed"),
        (
            {"algorithm": "d-psgd", "protocol": {"name": "gossip", "weights": "metropolis", "topology": "exponential"}},
            "needs an undirected topology",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(options, message):
    with pytest.raises(FredError, match=message):
        make_run(**options)


SYSTEMS = [
    ("asgd", {"cluster": {"workers": 1, "compute": EQUAL["compute"]}}),
    ("ssgd", {"cluster": EQUAL}),
    ("b-fasgd", {"cluster": {"workers": 3, "compute": COMPUTE}, "protocol": {"name": "gated", "c_push": 0.1, "c_fetch": 0.1}}),
    ("psp-sgd", {"cluster": {"workers": 4, "servers": 3, "compute": COMPUTE}, "protocol": {"name": "partial", "gradients": 2}}),
    ("d-psgd", {"cluster": {"workers": 1, "compute": COMPUTE}}),
    ("wagma-sgd", {"cluster": {"workers": 2, "speeds": [1, 0.4], "compute": EQUAL["compute"]}}),
    ("ad-psgd", {"cluster": {"workers": 4, "compute": COMPUTE}}),
]


STOPS = [{"gradients": 60, "target_loss": 1.2}, {"updates": 10}, {"seconds": 2}]
EVALUATIONS = [{"every_gradients": 3}, {"every_updates": 2}, {"every_seconds": 0.5}]


def ends() -> Iterator[Any]:
    """Each system, stop and evaluation with each of the others; by default in pairs, as in a Latin square."""
    every = itertools.product(enumerate(SYSTEMS), enumerate(STOPS), enumerate(EVALUATIONS))
    for (i, (name, options)), (j, stop), (k, evaluate) in every:
        marks = () if (i + j + k) % 3 == 0 else pytest.mark.slow
        yield pytest.param(name, options, stop, evaluate, marks=marks, id=f"{name}-{stop}-{evaluate}")


@pytest.mark.parametrize(("name", "options", "stop", "evaluate"), list(ends()))
def test_wherever_a_run_ends_inline_and_replay_end_there_and_have_measured_it(name, options, stop, evaluate):
    """Runs end in the midst of what happens at one moment, on a multiple of the spacing, or between two points."""
    plain, inline = (outcome(name, seed=2, inline=each, stop=stop, evaluate=evaluate, **options) for each in (False, True))
    assert plain.schedule.digest() == inline.schedule.digest()
    assert plain.metrics.equals(inline.metrics)
    assert plain.params_digest == inline.params_digest
    assert plain.metrics["loss"].notna().all()
    assert plain.metrics["updates"].iloc[-1] == plain.schedule.counts()["updates"]
    assert plain.metrics["gradients"].iloc[-1] == plain.schedule.counts()["gradients"]
