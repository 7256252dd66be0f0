"""What a scenario says has its effect, or is refused: options that were once accepted and did nothing, or something else."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import numpy as np
import pytest

import fred
from fred.base import environment
from fred.base.errors import FredError
from fred.cluster import cluster
from fred.cluster.failures import Cause
from fred.components import registry
from fred.components.component import Component
from fred.running.execution import check
from fred.schedule.schedule import Verb, What
from fred.specification import effects, shape
from fred.specification.effects import unused_options
from fred.specification.loading import load
from fred.specification.shape import Run
from tests.program import fred_command, refusal
from tests.worlds import TASK, constant, make_run, outcome

SIZES = TASK | {"division": "by-quantity", "concentration": 0.3}
SLOW_FIRST = [[10.0, 1.0, 1.0, 1.0]] * 5  # s, of four workers


def weights(result: Any) -> list[float]:
    """Return the weights of the first round."""
    schedule = result.schedule
    return schedule["weight"][schedule.rows(Verb.ADD)][:4].round(3).tolist()


@pytest.mark.parametrize("algorithm", ["fedavg", "fedcompass"])
def test_message_bytes_leave_weights_by_size_as_they_are(algorithm):
    cluster: dict[str, Any] = {
        "workers": 4,
        "compute": {"name": "constant", "seconds": 1.0},
        "network": {"latency": {"name": "constant", "seconds": 0.1}},
    }
    with_bytes = cluster | {"network": cluster["network"] | {"message_bytes": 12345}}
    unsized, sized = (
        outcome(algorithm, cluster=machines, task=SIZES, stop={"seconds": 60.0}) for machines in (cluster, with_bytes)
    )
    assert len(set(weights(unsized))) > 1
    assert weights(sized) == weights(unsized)
    assert sized.params_digest == unsized.params_digest


def test_message_bytes_scale_what_a_codec_sends():
    """A tenth of the numbers at 8 bytes each is a fifth of the parameters, whatever their size."""
    codec = {"name": "top-k", "share": 0.1}
    network = {"bandwidth": 1e6}
    bytes_of = {}
    for size in (None, 10**6):
        cluster = {
            "workers": 2,
            "compute": {"name": "constant", "seconds": 1.0},
            "network": network | ({"message_bytes": size} if size else {}),
        }
        schedule = outcome({"name": "asgd", "codec": codec}, cluster=cluster, stop={"updates": 2}).schedule
        parameters = size or 4 * sum(array.size for array in outcome(cluster=cluster, stop={"updates": 2}).initial.values())
        bytes_of[size] = schedule["bytes"][schedule.rows(Verb.PUSH)][0] / parameters
    assert bytes_of[None] < 0.5
    assert bytes_of[10**6] == pytest.approx(bytes_of[None], rel=1e-5)


class TestSpeedsUnderATrace:
    """A cluster whose first worker takes 10 s, described by speeds and by a trace of these times."""

    @pytest.fixture
    def clusters(self, tmp_path) -> list[dict[str, Any]]:
        path = tmp_path / "trace.csv"
        rows = [f"{i},{worker},{seconds}" for i, row in enumerate(SLOW_FIRST) for worker, seconds in enumerate(row)]
        path.write_text("\n".join(["iteration,worker,seconds", *rows]))
        return [
            {"workers": 4, "compute": {"name": "trace", "file": str(path)}},
            {"workers": 4, "compute": {"name": "constant", "seconds": 1.0}, "speeds": [0.1, 1, 1, 1]},
        ]

    @pytest.mark.parametrize(
        ("algorithm", "protocol"),
        [
            ("fednova", {"period": 10}),
            ("diloco", {"period": 10, "paced": True}),
            ("fedavg", {"sampling": "speed", "clients": 1, "period": 2}),
            ("fedcompass", {"period": 10, "speeds": "known"}),
            ("mindflayer", {"trials": 2}),
        ],
    )
    def test_are_those_of_each_workers_own_times(self, clusters, algorithm, protocol):
        by_trace, by_speeds = (
            outcome(algorithm, protocol, cluster, task=None, stop={"seconds": 200.0}).schedule for cluster in clusters
        )
        assert by_trace.digest() == by_speeds.digest()


class TestPaidWhileAway:
    """Two machines at 1 per s, of which both are down from 10 to 60 s of 100 s."""

    @pytest.mark.parametrize(
        "absence",
        [
            {"failures": {"recorded": [[0, 10, 60], [1, 10, 60]], "checkpoint": {"every_updates": 1}}},
            {"faults": [{"name": "outage", "workers": [0, 1], "begin": 10, "end": 60}]},
        ],
    )
    @pytest.mark.parametrize(("paid", "cost"), [(False, 100.0), (True, 200.0)])
    def test_decides_whether_broken_machines_cost(self, absence, paid, cost):
        prices = {"workers": [{"per_hour": 3600.0, "paid_while_away": paid, "busy_watts": 1000.0, "idle_watts": 1000.0}]}
        result = outcome("ssgd", cluster=constant(1.0, 1.0, prices=prices, **absence), task=None, stop={"seconds": 100.0})
        assert result.summary["cost"]["workers"] == pytest.approx(cost)
        assert result.summary["energy_kwh"] * 3600 == pytest.approx(100.0)

    def test_counts_the_broken_machine_alone(self):
        """Machine 0 is broken for 50 s; the other waits for it, and is paid."""
        failures = {"recorded": [[0, 10, 60]], "checkpoint": {"every_updates": 1}}
        cluster = constant(1.0, 1.0, prices={"workers": [{"per_hour": 3600.0}]}, failures=failures)
        result = outcome("ssgd", cluster=cluster, task=None, stop={"seconds": 100.0})
        assert result.summary["cost"]["workers"] == pytest.approx(150.0)
        broken = result.schedule.intervals.select(What.BROKEN)
        assert (broken.worker.tolist(), broken.begin_ns.tolist(), broken.end_ns.tolist()) == ([0], [10**10], [6 * 10**10])


def test_recorded_failures_that_a_waiting_job_misses_count_when_it_goes_on():
    """The job waits from 98.6 s to 264.5 s; machines 1 and 3 fail and come back in this time."""
    recorded = [[0, 98.6, 264.5], [1, 100, 156.8], [3, 226.6, 238.6]]
    cluster = constant(*[1.0] * 4, failures={"recorded": recorded, "checkpoint": {"every_updates": 1}})
    result = outcome("ssgd", cluster=cluster, task=None, stop={"seconds": 400.0})
    assert result.summary["failures"]["number"] == 3
    detected = result.schedule.intervals.select(What.DETECTING)
    assert (detected.begin_ns / 1e9).tolist() == [98.6, 264.5, 264.5]


@pytest.mark.parametrize("numbers", [5, 7, 10, 15, 30, 60])
def test_a_round_of_malenia_of_equal_numbers_needs_one_gradient_more_than_s(numbers):
    """Five workers of the same constant time; in floats, 5 x 1/3 is less than 5/3."""
    result = outcome("malenia", {"batch": numbers}, constant(*[1.0] * 5), task=None, stop={"updates": 1})
    assert len(result.schedule.rows(Verb.ADD)) == numbers + 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": {"name": "fednova", "optimizer": {"name": "sgd", "momentum": 0.9}}}, "`normalized: true` divides by"),
        ({"algorithm": {"name": "scaffold", "optimizer": "adam"}}, "control variates are mean gradients.* of plain SGD only"),
        ({"algorithm": "fedavg", "protocol": {"work": "size"}}, "`work: size` needs clients with data of their own"),
        ({"algorithm": "fedavg", "protocol": {"sampling": "size"}, "task": None}, "`sampling: size` needs clients"),
        (
            {"network": {"sharing": "fair", "links": {"up": 1e6}, "routes": [{"between": [[0], [0]], "through": ["up"]}]}},
            "from worker 0 to itself",
        ),
        (
            {
                "network": {
                    "sharing": "fair",
                    "links": {"up": 1e6},
                    "routes": [{"between": ["servers", "servers"], "through": ["up"]}],
                }
            },
            "from `servers` to itself",
        ),
        (
            {
                "algorithm": "allreduce-sgd",
                "network": {
                    "sharing": "fair",
                    "links": {"up": 1e6},
                    "routes": [{"between": [[0], "servers"], "through": ["up"]}],
                },
            },
            "this protocol has no servers",
        ),
        (
            {"failures": {"causes": [{"of": "nodes", "mean_up": 100.0}], "checkpoint": {"every_updates": 1}}},
            "`of: nodes` needs more than one node",
        ),
        ({"algorithm": {"name": "fedasync", "hinge": [10.0, 4], "exponent": 0.3}}, "`hinge` and `exponent` both set"),
    ],
)
def test_what_cannot_have_its_effect_is_refused(options, message):
    cluster = {"workers": 4} | {name: options.pop(name) for name in ("network", "failures") if name in options}
    with pytest.raises(FredError, match=message):
        make_run(
            **{"algorithm": "ssgd"}
            | {name: _add_rate(value) if name == "algorithm" else value for name, value in options.items()},
            cluster=cluster,
        )


def _add_rate(algorithm: Any) -> dict[str, Any]:
    return {"learning_rate": 0.1} | ({"name": algorithm} if isinstance(algorithm, str) else algorithm)


def test_a_column_that_nothing_reads_is_refused_with_the_nearest_name(tmp_path):
    (tmp_path / "devices.csv").write_text("speed,uplaod\n1,2\n")
    with pytest.raises(FredError, match="has a column `uplaod`; did you mean `upload`"):
        fred.Cluster(workers=1, network={}, devices={"file": str(tmp_path / "devices.csv")})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ('{"metadata": {"gap_seconds": 300}, "data": [100000000]}', "100,000,000 sessions; expected at most 100,000"),
        (f'{{"metadata": {{"gap_seconds": {10**400}}}, "data": [1]}}', "expected {"),
        ("[" * 20000, "expected {"),
        ('{"metadata": {"gap_seconds": true}, "data": [1]}', "expected {"),
        ('{"metadata": {"gap_seconds": 1e-320}, "data": [1]}', "expected {"),
    ],
)
def test_counts_of_machines_are_checked_before_lists_are_built(data, message, tmp_path):
    (tmp_path / "counts.json").write_text(data)
    with pytest.raises(FredError, match=message):
        fred.Cluster(workers=1, faults=[{"name": "sessions", "file": str(tmp_path / "counts.json")}])


@pytest.mark.parametrize(
    "options",
    [
        {"faults": [{"name": "sessions", "sessions": [[[0, 1e300]]]}]},
        {"faults": [{"name": "sessions", "sessions": [[[0, 1e-10]]]}]},
        {"faults": [{"name": "periodic", "available": 1.0, "period": 1e300}]},
        {"faults": [{"name": "periodic", "available": 1e-10, "period": 2e-10}]},
        {"faults": [{"name": "periodic", "available": 1.0, "begin": 1e300}]},
        {"faults": [{"name": "outage", "workers": [0], "begin": 1e299, "end": 1e300}]},
        {"prices": {"workers": [{"per_hour": 1e300}]}},
        {"prices": {"workers": [{"busy_watts": 1e308}]}},
    ],
)
def test_numbers_beyond_the_clock_and_beyond_prices_are_refused(options):
    with pytest.raises(FredError, match=r"less than or equal to|greater than or equal to|1 ns or more"):
        fred.Cluster(workers=2, **options)


@pytest.mark.parametrize(
    ("fault", "cure"),
    [
        ({"name": "sessions", "sessions": [[[0, 0.5]]], "length": 1.0}, "give longer `sessions`"),
        ({"name": "periodic", "available": 0.5, "period": 1.0}, "give a longer `available` of `periodic`"),
        (
            {"name": "crashes", "mean_up": 0.001, "away": {"name": "constant", "seconds": 0.1}},
            "give a longer `mean_up` or `up` of",
        ),
    ],
)
def test_the_fault_that_lets_a_worker_finish_nothing_is_named(fault, cure):
    with pytest.raises(FredError, match=cure):
        outcome("asgd", cluster=constant(1.0, faults=[fault]), task=None, stop={"updates": 10})


class TestMeasuredNetworks:
    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ("nodes,megabytes,milliseconds,seconds", "the columns milliseconds, seconds say the same thing"),
            ("nodes,ranks,megabytes,seconds", "the columns nodes, ranks say the same thing"),
            ("nodes,megabytes,delay_us,seconds", "unknown column `delay_us`; did you mean `delay_ms`"),
        ],
    )
    def test_contradictions_and_unknown_columns_are_refused(self, columns, message, tmp_path):
        path = tmp_path / "gloo-allreduce.csv"
        path.write_text(f"{columns}\n" + ",".join("4" for _ in columns.split(",")))
        assert message in refusal("fit-network", path)

    def test_a_pipe_and_a_device_are_refused(self):
        assert "it is not a file" in refusal("fit-network", "/dev/zero")

    @pytest.mark.parametrize("operation", ["my-allreduce-then-broadcast", "allreduce_reduce_scatter"])
    def test_a_name_of_two_operations_is_refused(self, operation, tmp_path):
        (tmp_path / "gloo.csv").write_text(f"operation,nodes,megabytes,seconds\n{operation},4,1,1\n")
        assert "names several operations" in refusal("fit-network", tmp_path / "gloo.csv")

    def test_a_size_of_thousands_of_digits_is_refused(self, tmp_path):
        path = tmp_path / "nccl.log"
        ranks = "".join(f"#  Rank  {i} Group  0 Pid 1 on host{i} device 0\n" for i in range(2))
        path.write_text(
            f"# nThread 1\n{ranks}# all_reduce_perf\n#  size count type redop root time algbw\n{'9' * 5000} 1 float sum -1 5.0 1\n"
        )
        assert "`size` is '999" in refusal("fit-network", path)


def test_fedasync_has_hinge_weights_and_a_regulariser():
    """Fresh models alone have the whole weight; a strong pull keeps local models near the server's."""
    unweighted = outcome("fedasync", {"period": 3})
    assert outcome({"name": "fedasync", "hinge": [0.5, 1]}, {"period": 3}).params_digest != unweighted.params_digest
    pulled = outcome({"name": "fedasync", "mu": 1.0}, {"period": 3})
    moves = [
        np.sqrt(sum(((run.final[name] - run.initial[name]) ** 2).sum() for name in run.final)) for run in (unweighted, pulled)
    ]
    assert moves[1] < moves[0]


class TestWhatCanBeSaid:
    TIMES = constant(1.0, 0.7, 0.9, 3.0)

    def buffered(self, **protocol: Any) -> Any:
        options = {"name": "buffered", "period": 2, "buffer": 2, **protocol}
        return outcome("fedbuff", options, self.TIMES, task=None, stop={"seconds": 60.0}).schedule

    @pytest.mark.parametrize("most", [1, 2, 3])
    def test_at_most_so_many_clients_of_a_buffer_are_at_work_and_all_get_their_turn(self, most):
        schedule = self.buffered(concurrency=most)
        pulls, adds = schedule.rows(Verb.PULL), schedule.rows(Verb.ADD)
        pulls = pulls[schedule["replica"][pulls] == 4]  # of the server model
        changes = sorted(
            [*((time, 1) for time in schedule["time_ns"][pulls]), *((time, -1) for time in schedule["time_ns"][adds])]
        )
        at_work = np.cumsum([change for _, change in changes])
        assert at_work.max() == most
        turns = np.bincount(schedule["worker"][pulls], minlength=4)
        assert turns.min() > 0.4 * turns.mean()  # drawn uniformly, not by speed

    def test_as_many_places_as_workers_are_none(self):
        assert self.buffered(concurrency=4)["time_ns"].tolist() == self.buffered()["time_ns"].tolist()

    def test_a_worker_that_goes_offline_leaves_its_place_to_another(self):
        cluster = self.TIMES | {"faults": [{"name": "outage", "workers": [0, 1, 2], "begin": 10.0}]}
        protocol = {"name": "buffered", "period": 2, "buffer": 1, "concurrency": 1}
        schedule = outcome("fedbuff", protocol, cluster, task=None, stop={"seconds": 60.0}).schedule
        late = schedule.rows(Verb.ADD)[schedule["time_ns"][schedule.rows(Verb.ADD)] > 12e9]
        assert set(schedule["worker"][late].tolist()) == {3}
        assert len(late) == 8  # one after the other, 6 s each

    def test_pseudo_gradients_that_are_too_old_are_dropped(self):
        usual, bounded = self.buffered(buffer=1), self.buffered(buffer=1, max_staleness=3)
        assert usual["staleness"][usual.rows(Verb.ADD)].max() > 3
        assert bounded["staleness"][bounded.rows(Verb.ADD)].max() == 3
        assert 3 in bounded["worker"][bounded.rows(Verb.DROP)]  # the slowest client

    def test_jobs_fail_after_a_number_of_updates_once(self):
        """Two workers, two updates a second: the fifth is made at 3 s; the checkpoint of the fourth, at 2 s, is loaded at 6 s."""
        job = {"at_updates": [[5, 0, 3.0], [7, 1, 2.0]], "checkpoint": {"every_updates": 2}}
        result = outcome("asgd", cluster=constant(1, 1, failures=job), task=None, stop={"updates": 12})
        begin, end = result.schedule.intervals.select(What.BROKEN)[1:3]
        assert (begin / 1e9).tolist() == [3.0, 8.0]
        assert (end / 1e9).tolist() == [6.0, 10.0]
        assert result.summary["failures"]["number"] == 2

    def test_a_cause_may_strike_some_machines_only(self):
        often = {
            "of": "nodes",
            "only": [1],
            "up": {"name": "constant", "seconds": 5.0},
            "repair": {"name": "constant", "seconds": 1.0},
        }
        cluster = {"workers": 6, "nodes": 3, "compute": {"name": "constant", "seconds": 1.0}}
        job = {"causes": [often], "checkpoint": {"every_updates": 1}}
        broken = outcome("ssgd", cluster=cluster | {"failures": job}, task=None, stop={"updates": 30}).schedule.intervals
        workers = broken.select(What.BROKEN)[4]
        assert set(workers.tolist()) == {2, 3}
        with pytest.raises(FredError, match="`only` names nodes 3; their numbers are 0 to 2"):
            wrong = {**job, "causes": [often | {"only": [3]}]}
            outcome("ssgd", cluster=cluster | {"failures": wrong}, task=None)

    def test_a_cause_that_strikes_a_region_counts_regions_without_workers_too(self):
        nodes, regions = np.zeros(3, np.int64), (0, 2, 2)
        domains = {only: Cause(of="regions", mean_up=1.0, only=only).domains(nodes, regions) for only in ((), (0,), (2,))}
        assert {only: [members.tolist() for members in groups] for only, groups in domains.items()} == {
            (): [[0], [1, 2]],
            (0,): [[0]],
            (2,): [[1, 2]],
        }
        with pytest.raises(ValueError, match="`only` names regions 1; their numbers are 0, 2, those with workers"):
            Cause(of="regions", mean_up=1.0, only=(1,)).domains(nodes, regions)

    def test_a_division_may_be_the_same_under_other_seeds(self):
        from fred.running.model_training import Problem

        def parts(seed: int, **options: Any) -> list[list[int]]:
            run = make_run(task=TASK | {"division": "by-label", **options}, cluster={"workers": 3})
            assert run.task is not None
            divided = Problem(run.task, run, seed).parts
            assert divided is not None
            return [part.tolist() for part in divided]

        assert parts(1) != parts(2)
        assert parts(1, division_seed=5) == parts(2, division_seed=5) == parts(5)


def test_too_little_memory_is_refused_before_jax_ends_the_process(monkeypatch):
    monkeypatch.setattr("resource.getrlimit", lambda _: (1_500_000_000, 1_500_000_000))
    with pytest.raises(FredError, match=r"`ulimit -v` allows each process 1.5 GB; expected .*: ulimit -v 2100000"):
        environment.check()


def test_a_delay_longer_than_a_round_lets_a_random_worker_contribute_nothing_to_each_round():
    cluster = {
        "workers": 4,
        "compute": {"name": "constant", "seconds": 0.5},
        "contention": [{"name": "random-delays", "seconds": 1e5, "workers": 1}],
    }
    protocol = {"name": "synchronous", "backup_workers": 1, "late": "interrupt"}
    algorithm = {"name": "ssgd", "learning_rate": 0.1}
    result = fred.run({"cluster": cluster, "protocol": protocol, "algorithm": algorithm, "stop": {"updates": 40}})
    rows = result.schedule("ssgd").query("verb == 'ADD'")
    assert result.summary["virtual_seconds"].tolist() == [20.0]
    assert (rows.groupby("time_ns")["worker"].nunique() == 3).all()
    omitted = {sum(range(4)) - sum(group) for _, group in rows.groupby("time_ns")["worker"]}
    assert omitted == {0, 1, 2, 3}, "each worker's turn comes"


LINKS = {"latency": {"name": "constant", "seconds": 0.1}, "bandwidth": 1e6, "message_bytes": 1000}
REGIONS = {"bandwidth": [[1e6, 1e6], [1e6, 1e6]], "latency": [[0.1, 0.2], [0.2, 0.1]]}
SECOND = {"name": "constant", "seconds": 1.0}
TO_STORE = {"links": {"up": 1e6}, "routes": [{"between": [[0], "store"], "through": ["up"]}]}
SAVED = {"causes": [{"mean_up": 9e9}], "checkpoint": {"every_seconds": 3.0, "to": "store", "bytes": 1000}}
SITE = {"links": {"up": 1e6}, "routes": [{"between": [[0], [1]], "through": ["up"]}]}


def settings(cluster: dict[str, Any], algorithm: str = "asgd", **fields: Any) -> dict[str, Any]:
    """Return settings of a scenario; those of a network are added to `LINKS`."""
    network = {"network": LINKS | cluster["network"]} if "network" in cluster else {}
    system = {"name": algorithm, "learning_rate": 0.1}
    return {"cluster": {"workers": 4, **cluster, **network}, "algorithm": system, "stop": {"updates": 4}, **fields}


@pytest.mark.parametrize(
    ("document", "message", "cure"),
    [
        (
            settings({"network": {"servers": [{"servers": [0], "bandwidth": 1e5}], "server_bandwidth": 1e6}}),
            "server_bandwidth: .* all servers have other values",
            {"cluster.network.server_bandwidth": None},
        ),
        (
            settings({"network": {"servers": [{"servers": [0], "latency": SECOND}], "pull_latency": SECOND}}),
            "pull_latency: .* all servers have other values",
            {"cluster.network.pull_latency": None},
        ),
        (settings({"network": {"within": {}}, "nodes": 4}, "d-psgd"), "within: .* no node has two", {"cluster.nodes": 2}),
        (
            settings({"network": {"regions": REGIONS, "bandwidth": None, "latency": {"name": "exponential", "scale": 1.0}}}),
            "latency: .* `cluster.network.regions.latency` gives the latencies",
            {"cluster.network.regions.latency": None},
        ),
        (
            settings(
                {
                    "groups": [{"workers": 4, "compute": {"name": "constant", "seconds": 2}}],
                    "compute": {"name": "exponential", "scale": 1.0},
                }
            ),
            "compute: .* own `compute`",
            {"cluster.groups": [{"workers": 4}]},
        ),
        (
            settings({"prices": {"workers": [{"per_hour": 1}, {"per_hour": 3}]}}),
            "prices.workers.0: .* applies to no machine",
            {"cluster.prices.workers": [{"per_hour": 3}]},
        ),
        (
            settings({"prices": {"workers": [{"per_hour": 1, "paid_while_away": True}]}}),
            "paid_while_away: .* there all the time",
            {"cluster.faults": [{"name": "outage", "workers": [0], "end": 1.0}]},
        ),
        (
            settings({"prices": {"workers": [{"per_hour": 1}], "per_kwh": 0.3}}),
            "per_kwh: .* no machine draws power",
            {"cluster.prices.workers": [{"busy_watts": 400}]},
        ),
        (
            settings({"failures": {"at_updates": [[2, 0, 1.0]], "checkpoint": {"every_updates": 1}, "crews": 1}}, "ssgd"),
            "crews: .* without spares",
            {"cluster.failures.spares": 1},
        ),
        (settings({}, task={**TASK, "concentration": 0.1}), "concentration: ", {"task.division": "dirichlet"}),
        (settings({}, seeds=[1], report_seeds=[2]), "report_seeds: without a `sweep`", {"report_seeds": None, "seeds": [2]}),
        (
            settings({}, sweep={"over": {"cluster.workers": [2, 3]}, "start": 2}),
            r"`start` \(2\) leaves no value for later",
            {"sweep.start": None},
        ),
    ],
)
def test_an_option_that_nothing_uses_is_refused_with_a_cure(document, message, cure, tmp_path):
    path = tmp_path / "given.yaml"
    path.write_text(json.dumps(document))
    with pytest.raises(FredError, match=f"given.yaml:1: .*{message}"):
        load(path)
    assert load(path, cure).runs


@pytest.mark.parametrize(
    ("document", "line", "cure"),
    [
        (settings({"network": {"message_bytes": None}}), "bandwidth` .* have no size", {"cluster.network.message_bytes": 9}),
        (settings({"network": {"message_bytes": None}}), "bandwidth` .* have no size", {"task": TASK}),
        (settings({"prices": {"per_gb": 1.0}}), "per_gb` .* have no size", {"cluster.network": {"message_bytes": 9}}),
        (settings({"network": {"efficiency": 0.5, "bandwidth": None}}), "efficiency` ", {"cluster.network.bandwidth": 1e6}),
        (
            settings({"network": {"sharing": "fair", "window": 1e4, "latency": {"name": "constant", "seconds": 0}}}),
            "window` .* no latency",
            {"cluster.network.latency": SECOND},
        ),
        (
            settings({"network": {"sharing": "fair", "weights": "latency"}}),
            "weights` .* same latency",
            {"cluster.network.latency": {"name": "exponential", "scale": 0.1}},
        ),
        (settings({"servers": 3}, "allreduce-sgd"), "servers` .*: the protocol has no servers", {"algorithm.name": "asgd"}),
        *(
            (
                settings({"network": {name: value}}, "allreduce-sgd"),
                f"{name}` .*: the protocol has no servers",
                {f"cluster.network.{name}": None if name != "servers" else []},
            )
            for name, value in (
                ("pull_latency", SECOND),
                ("server_bandwidth", 1e5),
                ("servers", [{"servers": [0], "bandwidth": 1e5}]),
            )
        ),
        (
            settings({"network": {"node_bandwidth": 1e5}}, "d-psgd"),
            "node_bandwidth` .*: all messages stay",
            {"cluster.nodes": 2},
        ),
        (settings({"network": {"within": {}}}), "within` .* no messages between workers", {"algorithm.name": "allreduce-sgd"}),
        (
            settings({"network": {"sharing": "fair", **SITE}}),
            "routes.0` .* no messages between workers",
            {"algorithm.name": "allreduce-sgd"},
        ),
        (settings({"network": {"collective": "tree"}}), "collective` .* no allreduce", {"algorithm.name": "allreduce-sgd"}),
        (
            settings({"network": {"collective": "store", "store_bandwidth": 1e6}}, "d-psgd"),
            "store_bandwidth` .* no allreduce",
            {"algorithm.name": "allreduce-sgd"},
        ),
        (
            settings({"network": {"collective": "store"}}, "wagma-sgd", protocol={"period": None}),
            "collective` .* a collective of their own",
            {"protocol.period": 3},
        ),
        (
            settings({"network": {"sharing": "fair", "collective": "store", **SITE}}, "allreduce-sgd"),
            "routes.0` .*: all messages of workers pass the store",
            {"cluster.network.routes": [{"between": [[0], "store"], "through": ["up"]}]},
        ),
        (
            settings({"network": {"sharing": "fair", **TO_STORE}}, "allreduce-sgd"),
            "routes.0` .*: nothing goes there: give `cluster.network.collective: store`",
            {"cluster.network.collective": "store"},
        ),
        (
            settings({"network": {"sharing": "fair", **TO_STORE}, "failures": SAVED}, "ssgd", stop={"seconds": 9.0}),
            "routes.0` .*: nothing goes there: servers write the checkpoints; give a route `between` the `servers` and the `store`",
            {"cluster.network.routes": [{"between": ["servers", "store"], "through": ["up"]}]},
        ),
        (
            settings({"network": {"sharing": "fair", **TO_STORE}}),
            "routes.0` .*: neither messages of the protocol nor checkpoints go to the store",
            {"cluster.network.routes": [], "cluster.network.links": {}},
        ),
        (
            settings({"network": {"collective": "store", "within": {"bandwidth": 1e9}}}, "allreduce-sgd"),
            "collective` .* stay inside one node",
            {"cluster.nodes": 2},
        ),
        (settings({"network": {"buckets": 3}}, "d-psgd"), "buckets` .* no allreduce", {"algorithm.name": "allreduce-sgd"}),
        (
            settings({"network": {"sharing": "fair", "initial_window": 1e4}}, "allreduce-sgd"),
            "initial_window` .* windows have grown",
            {"cluster.network.initial_window": None},
        ),
        (
            settings({"faults": [{"name": "lost-messages", "share": 0.1, "ways": ["between-workers"]}]}),
            "faults.0` .* no single messages in these `ways`",
            {"algorithm.name": "d-psgd", "stop.seconds": 60},
        ),
        (
            settings({"speeds": [1, 2, 3, 4]}, protocol={"name": "fixed-lag", "lag": 2}),
            "speeds` .* no clock",
            {"protocol": {"name": "asynchronous"}},
        ),
    ],
)
@pytest.mark.filterwarnings("error")
def test_an_option_of_a_cluster_that_no_run_uses_is_a_line_of_the_result(document, line, cure):
    scenario = fred.scenario(document)
    assert re.search(f"`cluster.*{line}", "\n".join(unused_options(scenario.runs)))
    assert unused_options(scenario.replace(cure).runs) == []


@pytest.mark.filterwarnings("error")
def test_unused_options_are_printed_before_and_after_a_run_and_stay_with_its_result(tmp_path):
    path, out = tmp_path / "given.yaml", tmp_path / "out"
    path.write_text(json.dumps(settings({"network": {"collective": "tree"}})))
    line = "`cluster.network.collective` has no effect: the protocol has no allreduce"
    answer = fred_command("run", path, "-o", out, "--no-report")
    assert f"fred: {line}\n" in answer.err and line in " ".join(answer.out.split())
    assert line in fred.load_result(out).notes and line in fred.run(fred.load(path)).notes


def test_an_option_that_only_some_runs_use_is_accepted():
    """Runs share a cluster, and a sweep goes down to the value at which another option has no effect."""
    shared = settings({"network": {"server_bandwidth": 1e6, "collective": "tree"}})
    del shared["algorithm"]
    runs = {name: {"algorithm": {"name": name, "learning_rate": 0.1}} for name in ("asgd", "allreduce-sgd")}
    assert not unused_options(fred.scenario(shared, runs=runs).runs)
    for name, option in (("asgd", "collective"), ("allreduce-sgd", "server_bandwidth")):
        (line,) = unused_options(fred.scenario(shared, runs={name: runs[name]}).runs)
        assert line.startswith(f"`cluster.network.{option}` has no effect")
    swept = settings({"network": {"sharing": "fair", "window": 1e4}})
    scenario = fred.scenario(swept, sweep={"over": {"cluster.network.latency.seconds": [0.0, 0.1]}})
    assert not unused_options(scenario.runs)


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"devices": {"speed": {"name": "constant", "seconds": 1}, "assignment": "in-order"}}, "`assignment` assigns `kinds`"),
        ({"network": {"servers": [{"servers": [0]}]}}, "give `latency`, `pull_latency` or `bandwidth`"),
        ({"network": {"store_bandwidth": 1e6}}, "`store_bandwidth` needs `collective: store`"),
        ({"network": {"collective": "store", "regions": {"bandwidth": [[1.0]]}}}, "leave out `collective`"),
    ],
)
def test_a_part_of_a_cluster_that_says_nothing_is_refused(cluster, message):
    with pytest.raises(FredError, match=message):
        fred.Cluster(workers=2, **cluster)


@pytest.mark.parametrize("name", ["synthetic-classification", "synthetic-regression", "bigrams", "grammar"])
def test_data_of_which_all_are_held_out_are_refused(name):
    data = {"name": name, "examples": 60, "evaluation": 60}
    with pytest.raises(FredError, match="holds out 60 examples of 60: give fewer, such as `evaluation: 12`"):
        make_run(task=TASK | {"data": data})
    assert len(registry.lookup("data", name)(examples=60, evaluation=12).load(0).evaluation) == 12


def test_replicas_do_not_start_apart_with_a_model_whose_parameters_are_not_drawn():
    run = make_run("d-psgd", task=TASK | {"replicas_start": "apart"})
    with pytest.raises(FredError, match="those of `softmax` are always the same: take another model"):
        check("run", run, 0)


def test_mean_latencies_between_regions_come_from_their_table():
    """Three workers in two regions: of six ordered pairs, two are in one region."""
    regions = {"bandwidth": [[1e9, 1e9], [1e9, 1e9]], "latency": [[0.1, 0.4], [0.7, 0.2]], "workers": [0, 1, 1]}
    cluster = fred.Cluster(workers=3, network={"regions": regions, "message_bytes": 1})
    simulation = fred.Simulation(cluster, fred.Recorder(3, fred.Layout.peers(3), updates=1), seed=0)
    assert simulation.mean_latency == round(1e9 * (2 * 0.4 + 2 * 0.7 + 2 * 0.2) / 6)


def components_in(annotation: Any) -> Iterator[type[Component]]:
    """Yield the classes of components in the type of an option, with all of their kind."""
    if isinstance(annotation, type) and issubclass(annotation, Component):
        yield annotation
        for cls in annotation.__subclasses__():
            yield from components_in(cls)
    for part in get_args(annotation):
        yield from components_in(part)


def has_option(classes: Sequence[type[Component]], path: Sequence[str]) -> bool:
    """Return True if one of these components has an option of this path."""
    if not path or path[0] == "*":
        return not path or has_option(classes, path[1:])
    owners = [cls for cls in classes if path[0] in cls.model_fields]
    parts = [part for cls in owners for part in components_in(cls.model_fields[path[0]].annotation)]
    return bool(owners) and (len(path) == 1 or has_option(parts, path[1:]))


def test_rules_name_options_that_exist():
    rules: list[tuple[type[Component], Any]] = [
        (Run, rule) for rule in (*shape._RULES, *effects._RULES, *effects._REPORTED_RULES)
    ]
    rules += [(fred.Cluster, rule) for rule in cluster._RULES]
    paths = [(part, path) for part, rule in rules for path in rule.options.split()]
    assert len(paths) > 60
    assert [path for part, path in paths if not has_option([part], path.split("."))] == []
