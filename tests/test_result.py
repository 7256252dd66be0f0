"""What a result says of its runs: every number of the summary counted again, by plain loops and by hand."""

import dataclasses
import hashlib
import math
import struct
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fred
from fred.base.errors import FredError
from fred.components import registry
from fred.components.one_of import OneOf
from fred.outcomes.computed import Computed
from fred.outcomes.measures import summarise
from fred.results import experiment
from fred.results.result import Result
from fred.running.execution import execute
from fred.schedule.schedule import NONE, Verb
from fred.specification.loading import Scenario
from fred.specification.shape import Run
from tests.worlds import CLUSTERS, PROTOCOLS, fitting, make_run, stale_gradients

SERVERLESS = (
    *("allreduce", "cutoff", "drop-compute", "gossip", "pairwise", "group-averaging", "local-steps", "straggler-tolerant"),
    *("eager", "outer-steps", "overlapped-steps", "streaming", "in-pairs", "choco", "late-averaging"),
)
MESSAGE = {"message_bytes": 1000}


def timed(protocol: Any, cluster: dict, **stop: float) -> dict[str, Any]:
    """The summary of a run without a task."""
    return summarise(execute("run", make_run(task=None, protocol=protocol, cluster=cluster, stop=stop), 0))


def counted(outcome: Computed, protocol: str) -> dict[str, Any]:
    """The summary's counts, from the schedule's table, row by row."""
    used: set[tuple] = set()
    applied: set[tuple] = set()
    dropped: set[tuple] = set()
    joined: dict[tuple, set[tuple]] = {}  # open rounds
    updates, stale = 0, stale_gradients(outcome.schedule)
    ways = ("to_workers", "to_servers", "between_workers")
    sent = {unit: dict.fromkeys(ways, 0) for unit in ("bytes", "messages")}
    for row in outcome.schedule:
        verb, gradient, cell = Verb(row.verb).name, (row.worker, row.step), (row.replica, row.block)
        if verb in ("PUSH", "ADD"):
            used.add(gradient)
        if verb == "PUSH":
            applied.add(gradient)
        if verb == "ADD":
            joined.setdefault(cell, set()).add(gradient)
        if verb == "COMMIT":
            applied |= joined.pop(cell, set())
        if verb == "DROP":
            dropped.add(gradient)
        updates += verb in ("PUSH", "COMMIT")
        way = ways[2] if protocol in SERVERLESS else ways[0] if verb == "PULL" else ways[1]
        sent["bytes"][way] += row.bytes
        sent["messages"][way] += row.messages
    applied = {gradient for gradient in applied if gradient[1] != NONE}  # differences of models are none
    lost = len({gradient for gradient in dropped if gradient[1] != NONE} - used)
    return {
        "updates": updates // outcome.schedule.blocks,
        "gradients": {
            "computed": len(applied) + lost,
            "applied": len(applied),
            "dropped": lost,
            "in_flight": outcome.schedule.started - len(applied) - lost,
        },
        "staleness": {"mean": math.fsum(stale) / len(stale) if stale else None, "max": max(stale) if stale else None},
        **sent,
    }


@given(protocol=PROTOCOLS.filter(lambda name: name != "gated"), cluster=CLUSTERS, seed=st.integers(0, 99))
def test_the_summary_is_what_the_schedules_rows_add_up_to(protocol, cluster, seed):
    written = {**cluster.model_dump(), "network": {**(cluster.model_dump()["network"] or {}), **MESSAGE}}
    own = OneOf("protocol").dump(fitting(protocol, cluster))
    outcome = execute("run", make_run(task=None, cluster=written, protocol=own, stop={"gradients": 50}), seed)
    summary, expected = summarise(outcome), counted(outcome, protocol)
    assert summary["staleness"].pop("mean") == pytest.approx(expected["staleness"].pop("mean"))
    assert {key: summary[key] for key in expected} == expected
    assert (summary["protocol"], summary["algorithm"], summary["workers"]) == (protocol, "asgd", cluster.size)
    assert summary["seed"] == seed
    last = outcome.schedule.frame()["time_ns"].max() / 1e9
    assert summary["virtual_seconds"] == (last if outcome.run.protocol.has_clock else None)
    assert [summary[key] for key in ("loss", "error", "diverged", "target")] == [None] * 4
    assert summary["digests"]["params"] is None


@pytest.mark.parametrize("number", range(12))
def test_gradients_are_counted_once_however_a_protocol_uses_them(number):
    """In several blocks, in several rounds, used here and dropped there."""
    registry.allow_import(["tests.users"])
    own, cluster = {"name": "tests.users:Anything", "number": number}, {"workers": 3, "servers": 3, "network": MESSAGE}
    outcome = execute("run", make_run(task=None, cluster=cluster, protocol=own, stop={"gradients": 60}), 0)
    summary, expected = summarise(outcome), counted(outcome, "anything")
    assert summary["staleness"].pop("mean") == pytest.approx(expected["staleness"].pop("mean"))
    assert {key: summary[key] for key in expected} == expected
    assert summary["gradients"]["dropped"] > 0


class TestByHand:
    """Constant times, so that everything can be counted on fingers; a model has 1000 bytes."""

    def test_asynchronous(self):
        """Workers pull at 0, 1, 2, 3 s and push at 1, 2, 3 s; from the second time on, each is two updates late."""
        summary = timed("asynchronous", {"workers": 3, "network": MESSAGE}, seconds=3.5)
        assert summary["updates"] == 9
        assert summary["gradients"] == {"computed": 9, "applied": 9, "dropped": 0, "in_flight": 3}
        assert summary["staleness"] == {"mean": pytest.approx((0 + 1 + 2 + 6 * 2) / 9), "max": 2}
        assert summary["messages"] == {"to_workers": 12, "to_servers": 9, "between_workers": 0}
        assert summary["bytes"] == {"to_workers": 12_000, "to_servers": 9_000, "between_workers": 0}
        assert summary["virtual_seconds"] == 3.5

    def test_several_servers_each_get_a_message_and_the_bytes_stay_the_same(self):
        summary = timed("asynchronous", {"workers": 3, "network": MESSAGE, "servers": 4}, seconds=3.5)
        assert summary["updates"] == 9
        assert summary["messages"] == {"to_workers": 48, "to_servers": 36, "between_workers": 0}
        assert summary["bytes"] == {"to_workers": 12_000, "to_servers": 9_000, "between_workers": 0}

    def test_blocks_on_several_servers(self):
        """Three rounds; each server gets 334 bytes from each of 3 workers and, after it, sends as much to each."""
        summary = timed("partial", {"workers": 3, "network": MESSAGE, "servers": 3}, seconds=3.5)
        assert summary["updates"] == 3
        assert summary["gradients"] == {"computed": 9, "applied": 9, "dropped": 0, "in_flight": 3}
        assert summary["messages"] == {"to_workers": 27, "to_servers": 27, "between_workers": 0}
        assert summary["bytes"] == {"to_workers": 27 * 334, "to_servers": 27 * 334, "between_workers": 0}
        assert summary["staleness"] == {"mean": 0, "max": 0}

    def test_backup_workers(self):
        """Two workers make 10 rounds in 10 s; the third sends, at 2.5, 5, 7.5 and 10 s, what is dropped, and reads again."""
        cluster = {"workers": 3, "speeds": [1, 1, 0.4], "network": MESSAGE}
        summary = timed({"name": "synchronous", "backup_workers": 1}, cluster, seconds=10.4)
        assert summary["updates"] == 10
        assert summary["gradients"] == {"computed": 24, "applied": 20, "dropped": 4, "in_flight": 3}
        assert summary["messages"] == {"to_workers": 2 * 11 + 5, "to_servers": 24, "between_workers": 0}
        assert summary["staleness"] == {"mean": 0, "max": 0}, "of those that were used"

    def test_gossip(self):
        """A round is 1 s of computing and 0.25 s of sending to two neighbours: the eighth is sent at 7 x 1.25 + 1 s."""
        network = {**MESSAGE, "latency": {"name": "constant", "seconds": 0.25}}
        summary = timed("gossip", {"workers": 5, "network": network}, seconds=9.8)
        assert summary["gradients"] == {"computed": 40, "applied": 40, "dropped": 0, "in_flight": 0}
        assert summary["updates"] == 40
        assert summary["messages"] == {"to_workers": 0, "to_servers": 0, "between_workers": 8 * 5 * 2}
        assert summary["bytes"]["between_workers"] == 8 * 5 * 2 * 1000

    def test_allreduce(self):
        """A ring of 5 takes 2 x 4 messages of 200 bytes from each worker, 0.05 s each: seven rounds of 1.4 s."""
        network = {**MESSAGE, "latency": {"name": "constant", "seconds": 0.05}}
        summary = timed("allreduce", {"workers": 5, "network": network}, seconds=10.0)
        assert summary["updates"] == 7
        assert summary["gradients"] == {"computed": 35, "applied": 35, "dropped": 0, "in_flight": 5}
        assert summary["messages"] == {"to_workers": 0, "to_servers": 0, "between_workers": 35 * 8}
        assert summary["bytes"] == {"to_workers": 0, "to_servers": 0, "between_workers": 35 * 1600}

    def test_nothing_finished(self):
        summary = timed("asynchronous", {"workers": 3, "network": MESSAGE}, seconds=0.5)
        assert summary["gradients"] == {"computed": 0, "applied": 0, "dropped": 0, "in_flight": 3}
        assert summary["staleness"] == {"mean": None, "max": None}
        assert summary["messages"] == {"to_workers": 3, "to_servers": 0, "between_workers": 0}

    def test_more_bytes_than_64_bits_hold(self):
        outcome = execute("run", make_run(task=None, cluster={"workers": 3}, stop={"seconds": 3.5}), 0)
        columns = {**outcome.schedule.columns, "bytes": np.full(len(outcome.schedule), 2**62 + 1)}
        large = dataclasses.replace(outcome, schedule=dataclasses.replace(outcome.schedule, columns=columns))
        assert summarise(large)["bytes"] == {
            "to_workers": 12 * (2**62 + 1),
            "to_servers": 9 * (2**62 + 1),
            "between_workers": 0,
        }


@pytest.fixture(scope="module")
def learned() -> Result:
    """Two runs, two seeds."""
    runs = {"plain": make_run("asgd"), "waiting": make_run("ssgd"), "peers": make_run("d-psgd")}
    return experiment.run(Scenario(title="three", seeds=(4, 2), runs=runs))


def with_metrics(outcome: Computed, metrics: dict[str, list], evaluate: dict | None = None, **stop: Any) -> dict[str, Any]:
    """The summary of a run in which this was measured, and these targets were set."""
    changes = {"evaluate": evaluate or {}, "stop": {"updates": 5, **stop}}
    frame = pd.DataFrame(metrics)
    if "error" not in frame:
        frame["error"] = frame["loss"]
    if "virtual_seconds" not in frame:
        frame["virtual_seconds"] = frame["updates"] / 10
    return summarise(dataclasses.replace(outcome, run=outcome.run.model_copy(update=changes), metrics=frame))


POINTS: dict[str, list] = {
    "updates": [0, 10, 20, 30, 40],
    "loss": [3.0, 2.0, 0.5, 1.5, 0.25],
    "error": [0.9, 0.8, 0.7, 0.6, 0.1],
}


@pytest.mark.parametrize(
    ("evaluate", "stop", "target"),
    [
        ({}, {}, None),
        ({"target_loss": 2.0}, {}, {"loss": 2.0, "updates": 10, "seconds": 1.0}),  # as low as: reached
        ({"target_loss": 1.99}, {}, {"loss": 1.99, "updates": 20, "seconds": 2.0}),  # the first of three, before it rose again
        ({"target_loss": 9}, {}, {"loss": 9, "updates": 0, "seconds": 0.0}),
        ({"target_loss": 0.1}, {}, {"loss": 0.1, "updates": None, "seconds": None}),
        ({"target_error": 0.7}, {}, {"error": 0.7, "updates": 20, "seconds": 2.0}),
        ({"target_error": 0.05}, {}, {"error": 0.05, "updates": None, "seconds": None}),
        ({}, {"target_loss": 0.3}, {"loss": 0.3, "updates": 40, "seconds": 4.0}),
        ({"target_loss": 2.0, "target_error": 0.1}, {"target_loss": 0.3}, {"loss": 2.0, "updates": 10, "seconds": 1.0}),
    ],
)
def test_a_target_is_reached_at_the_first_point_at_or_below_it(learned, evaluate, stop, target):
    assert with_metrics(learned.outcomes[0], POINTS, evaluate, **stop)["target"] == target


def test_without_a_clock_a_target_is_reached_after_updates_only(learned):
    points = {**POINTS, "virtual_seconds": [math.nan] * 5}
    target = with_metrics(learned.outcomes[0], points, {"target_loss": 1.0})["target"]
    assert target == {"loss": 1.0, "updates": 20, "seconds": None}


@pytest.mark.parametrize(
    ("loss", "diverged", "last"),
    [
        ([3.0, 2.0, 1.0], None, 1.0),
        ([3.0, math.nan, 1.0], None, 1.0),  # it came back
        ([3.0, math.nan, math.inf], 10, None),
        ([3.0, math.nan, 1.0, math.inf, math.nan], 30, None),
        ([math.nan, math.nan], 0, None),
    ],
)
def test_a_run_diverged_where_its_last_finite_loss_was_followed_by_none(learned, loss, diverged, last):
    summary = with_metrics(learned.outcomes[0], {"updates": [10 * i for i in range(len(loss))], "loss": loss})
    assert (summary["diverged"], summary["loss"], summary["error"]) == (diverged, last, last)


def test_the_digests_are_sha_256_of_what_their_documentation_names(learned):
    for outcome, (_, row) in zip(learned.outcomes, learned.summary.iterrows(), strict=True):
        schedule = outcome.schedule
        where = schedule.on_servers
        timing = hashlib.sha256(
            f'{{"blocks": {schedule.blocks}, "end_ns": {schedule.end_ns}, "on_servers": [{where.start}, {where.stop}], '
            f'"replicas": {schedule.replicas}, "standstill": "", "started": {schedule.started}, '
            f'"workers": {schedule.workers}}}'.encode()
        )
        for name, column in (*schedule.columns.items(), *schedule.intervals._asdict().items()):
            form = "d" if name in ("weight", "keep") else "q"
            timing.update(f"{name} {len(column)}".encode() + struct.pack(f"<{len(column)}{form}", *column.tolist()))
        assert row["digests_schedule"] == timing.hexdigest()
        params = hashlib.sha256()
        for path in sorted(outcome.final):
            array = outcome.final[path]
            shape = ", ".join(map(str, array.shape)) + ("," if array.ndim == 1 else "")
            params.update(f"{path} <f4 ({shape})".encode() + struct.pack(f"<{array.size}f", *array.ravel().tolist()))
        assert row["digests_params"] == params.hexdigest()


def test_the_summary_has_a_row_for_each_run_and_seed_with_what_was_measured_last(learned):
    summary = learned.summary
    assert list(zip(summary["name"], summary["seed"], strict=True)) == [
        (name, seed) for name in ("plain", "waiting", "peers") for seed in (4, 2)
    ]
    assert summary["algorithm"].tolist() == ["asgd"] * 2 + ["ssgd"] * 2 + ["d-psgd"] * 2
    assert summary["protocol"].tolist() == ["asynchronous"] * 2 + ["synchronous"] * 2 + ["gossip"] * 2
    for _, row in summary.iterrows():
        expected = counted(learned.outcome(row["name"], row["seed"]), row["protocol"])
        for group in ("gradients", "staleness", "bytes", "messages"):
            for key, value in expected[group].items():
                assert row[f"{group}_{key}"] == pytest.approx(value), (group, key)
        own = learned.metrics[(learned.metrics["run"] == row["name"]) & (learned.metrics["seed"] == row["seed"])]
        assert (row["loss"], row["error"]) == (own["loss"].to_list()[-1], own["error"].to_list()[-1])
        replicas = row["replicas_loss"], row["replicas_error"]
        if row["algorithm"] == "d-psgd":
            assert replicas == (own["replicas_loss"].to_list()[-1], own["replicas_error"].to_list()[-1])
        else:
            assert np.isnan(np.array(replicas, float)).all(), "one model has no others beside it"
        assert row["gradients_applied"] == own["gradients"].to_list()[-1]


def test_metrics_of_several_seeds_are_each_seeds_own_one_after_the_other(learned):
    metrics = learned.metrics
    assert metrics.columns.to_list() == [
        *("run", "seed", "virtual_seconds", "updates", "gradients", "loss", "error"),
        *("disagreement", "replicas_loss", "replicas_error"),
    ]
    start = 0
    for name in ("plain", "waiting", "peers"):
        for seed in (4, 2):
            alone = execute(name, learned.scenario.runs[name], seed).metrics
            part = metrics.iloc[start : start + len(alone)].reset_index(drop=True)
            assert set(part["run"]) == {name}
            assert set(part["seed"]) == {seed}
            assert part[alone.columns].equals(alone)
            assert part["disagreement"].notna().all() == (name == "peers")
            start += len(alone)
    assert start == len(metrics)


def test_a_run_is_found_by_its_name_and_seed(learned):
    assert learned.outcome("waiting").seed == 4, "the first"
    assert learned.outcome("waiting", 2) is learned.outcomes[3]
    frame = learned.schedule("waiting", 2)
    assert len(frame) == len(learned.outcomes[3].schedule)
    assert set(frame["verb"]) == {"PULL", "ADD", "COMMIT"}
    assert not frame.equals(learned.schedule("waiting")), "another seed"


@pytest.mark.parametrize(
    ("name", "seed", "message"),
    [
        ("wating", None, "no run `wating` .*; did you mean `waiting`\\?; there are plain, waiting, peers$"),
        ("wating", 4, "no run `wating` here; did you mean `waiting`\\?; there are"),
        ("xyz", None, "^no run `xyz` here; there are plain, waiting, peers$"),
        ("plain", 3, "^no run `plain` with seed 3 here; there are seeds 4, 2$"),
    ],
)
def test_one_that_is_not_there_is_refused_with_the_nearest(learned, name, seed, message):
    for look in (learned.outcome, learned.schedule):
        with pytest.raises(FredError, match=message):
            look(name, seed)


class TestOnly:
    @pytest.fixture
    def scenario(self) -> Scenario:
        options: dict[str, Any] = {"task": None, "evaluate": {}, "stop": {"gradients": 5}}
        runs: dict[str, Run] = {name: make_run(**options) for name in ("one", "two", "three")}
        return Scenario(seeds=(1, 2), runs=runs)

    @pytest.mark.parametrize(
        ("only", "names"),
        [
            ((), ["one", "two", "three"]),
            ("two", ["two"]),
            (["three", "one", "three"], ["three", "one"]),
            (iter(["two"]), ["two"]),
        ],
    )
    def test_these_runs_are_executed_with_every_seed(self, scenario, only, names):
        outcomes = fred.run(scenario, only).outcomes
        assert [(each.name, each.seed) for each in outcomes] == [(name, seed) for name in names for seed in (1, 2)]

    def test_an_unknown_one_is_refused_before_anything_runs(self, scenario, monkeypatch):
        monkeypatch.setattr(experiment, "execute", None)
        with pytest.raises(FredError, match=r"^no run `thre`; did you mean `three`\?; there are one, two, three$"):
            fred.run(scenario, ["one", "thre"])

    def test_progress_goes_from_0_to_1_run_by_run(self, learned):
        told: list[tuple[str, int, float]] = []
        experiment.run(learned.scenario, ["plain", "peers"], progress=lambda *what: told.append(what))
        order = list(dict.fromkeys((name, seed) for name, seed, _ in told))
        assert order == [("plain", 4), ("plain", 2), ("peers", 4), ("peers", 2)]
        for name, seed in order:
            done = [fraction for *which, fraction in told if which == [name, seed]]
            assert (done[0], done[-1]) == (0.0, 1.0)
            assert done == sorted(done)
            assert len(done) > 3, "also on the way"
