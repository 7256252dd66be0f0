"""What a result says of its runs: every number of the summary counted again, by plain loops and by hand."""

import dataclasses
import hashlib
import itertools
import math
import struct
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fred
from fred import FredError, Result, Verb
from fred.components import registry
from fred.components.one_of import OneOf
from fred.outcomes.outcome import Computed, summarise
from fred.results import experiment
from fred.running.execution import execute
from fred.specification.loading import Scenario
from tests.laws import check_laws
from tests.worlds import CLUSTERS, PROTOCOLS, fitting_protocol, make_run, stale_gradients

SERVERLESS = (
    *("allreduce", "cutoff", "drop-compute", "gossip", "pairwise", "group-averaging", "local-steps", "straggler-tolerant"),
    *("eager", "outer-steps", "overlapped-steps", "streaming", "in-pairs", "choco", "late-averaging"),
)
MESSAGE = {"message_bytes": 1000}
THREE = {"workers": 3, "network": MESSAGE}
WAYS = ("to_workers", "to_servers", "between_workers")


@given(protocol=PROTOCOLS.filter(lambda name: name != "gated"), cluster=CLUSTERS, seed=st.integers(0, 99))
def test_the_summary_is_what_the_schedules_rows_add_up_to(protocol, cluster, seed):
    network = {**(cluster.model_dump()["network"] or {}), **MESSAGE}
    protocol_options = OneOf("protocol").dump(fitting_protocol(protocol, cluster))
    run = make_run(
        task=None, cluster={**cluster.model_dump(), "network": network}, protocol=protocol_options, stop={"gradients": 50}
    )
    outcome = execute("run", run, seed)
    check_laws(outcome)
    summary, schedule = summarise(outcome), outcome.schedule
    assert summary["updates"] == len(schedule.rows(Verb.PUSH, Verb.COMMIT)) // schedule.blocks
    stale = stale_gradients(schedule)
    assert summary["staleness"]["mean"] == (pytest.approx(math.fsum(stale) / len(stale)) if stale else None)
    ways = ["between_workers"] if protocol in SERVERLESS else ["to_workers", "to_servers"]
    assert sum(summary["bytes"][way] for way in ways) == schedule["bytes"].sum(), "no bytes in the other ways"
    expected = {"protocol": protocol, "algorithm": "asgd", "workers": cluster.size, "seed": seed}
    expected |= {"loss": None, "error": None, "diverged": None, "target": None}
    assert {key: summary[key] for key in expected} == expected
    assert summary["virtual_seconds"] == (schedule["time_ns"].max() / 1e9 if outcome.run.protocol.has_clock else None)
    assert summary["digests"]["params"] is None


def test_gradients_are_counted_once_however_a_protocol_uses_them():
    registry.allow_import(["tests.users"])
    for number in range(12):
        protocol = {"name": "tests.users:Anything", "number": number}
        run = make_run(task=None, cluster={**THREE, "servers": 3}, protocol=protocol, stop={"gradients": 60})
        check_laws(execute("run", run, 0))


def _network(seconds: float) -> dict[str, Any]:
    return {"workers": 5, "network": {**MESSAGE, "latency": {"name": "constant", "seconds": seconds}}}


WAITING, SLOW_ONE = {"name": "synchronous", "backup_workers": 1}, {**THREE, "speeds": [1, 1, 0.4]}
BY_HAND = [  # protocol, cluster, seconds: updates; gradients; messages and bytes by way; mean and largest staleness
    # workers pull at 0, 1, 2, 3 s and push at 1, 2, 3 s; from the second time on, each is two updates late
    ("asynchronous", THREE, 3.5, 9, (9, 9, 0, 3), (12, 9, 0), (12_000, 9_000, 0), ((0 + 1 + 2 + 6 * 2) / 9, 2)),
    # each of the servers gets a message; the bytes stay the same
    ("asynchronous", {**THREE, "servers": 4}, 3.5, 9, (9, 9, 0, 3), (48, 36, 0), (12_000, 9_000, 0), (15 / 9, 2)),
    ("asynchronous", THREE, 0.5, 0, (0, 0, 0, 3), (3, 0, 0), (3_000, 0, 0), (None, None)),
    # three rounds; each server gets 334 bytes from each of 3 workers and, after it, sends as much to each
    ("partial", {**THREE, "servers": 3}, 3.5, 3, (9, 9, 0, 3), (27, 27, 0), (27 * 334, 27 * 334, 0), (0, 0)),
    # two workers make 10 rounds; the third sends, at 2.5, 5, 7.5 and 10 s, a gradient that is dropped, and reads again
    (WAITING, SLOW_ONE, 10.4, 10, (24, 20, 4, 3), (2 * 11 + 5, 24, 0), (27_000, 24_000, 0), (0, 0)),
    # a round is 1 s of computing and 0.25 s of sending to two neighbours: the eighth is sent at 7 x 1.25 + 1 s
    ("gossip", _network(0.25), 9.8, 40, (40, 40, 0, 0), (0, 0, 8 * 5 * 2), (0, 0, 8 * 5 * 2 * 1000), (0, 0)),
    # a ring of 5 takes 2 x 4 messages of 200 bytes from each worker, 0.05 s each: seven rounds of 1.4 s
    ("allreduce", _network(0.05), 10.0, 7, (35, 35, 0, 5), (0, 0, 35 * 8), (0, 0, 35 * 1600), (0, 0)),
]


def test_counts_of_constant_times_are_those_counted_on_fingers():
    for protocol, cluster, seconds, updates, gradients, messages, sent, (mean, largest) in BY_HAND:
        run = make_run(task=None, protocol=protocol, cluster=cluster, stop={"seconds": seconds})
        summary = summarise(execute("run", run, 0))
        assert (summary["updates"], summary["virtual_seconds"]) == (updates, seconds), protocol
        assert tuple(summary["gradients"][name] for name in ("computed", "applied", "dropped", "in_flight")) == gradients
        assert tuple(summary["messages"][way] for way in WAYS) == messages, protocol
        assert tuple(summary["bytes"][way] for way in WAYS) == sent, protocol
        assert summary["staleness"] == {"mean": mean if mean is None else pytest.approx(mean), "max": largest}, protocol


def test_bytes_are_summed_beyond_64_bits():
    outcome = execute("run", make_run(task=None, cluster={"workers": 3}, stop={"seconds": 3.5}), 0)
    columns = {**outcome.schedule.columns, "bytes": np.full(len(outcome.schedule), 2**62 + 1)}
    large = dataclasses.replace(outcome, schedule=dataclasses.replace(outcome.schedule, columns=columns))
    assert tuple(summarise(large)["bytes"][way] for way in WAYS) == (12 * (2**62 + 1), 9 * (2**62 + 1), 0)


@pytest.fixture(scope="module")
def learned() -> Result:
    runs = {"plain": make_run("asgd"), "waiting": make_run("ssgd"), "peers": make_run("d-psgd")}
    return experiment.run(Scenario(title="three", seeds=(4, 2), runs=runs))


def summarise_metrics(outcome: Computed, metrics: dict[str, list], evaluate: dict | None = None, **stop: Any) -> dict[str, Any]:
    """Return the summary of a run in which this was measured, and these targets were set."""
    changes = {"evaluate": evaluate or {}, "stop": {"updates": 5, **stop}}
    frame = pd.DataFrame({"error": metrics["loss"], "virtual_seconds": np.array(metrics["updates"]) / 10, **metrics})
    return summarise(dataclasses.replace(outcome, run=outcome.run.model_copy(update=changes), metrics=frame))


STANDSTILL = {"workers": 2, "faults": [{"name": "outage", "workers": [0], "begin": 1.5}]}
POINTS: dict[str, list] = {
    "updates": [0, 10, 20, 30, 40],
    "loss": [3.0, 2.0, 0.5, 1.5, 0.25],
    "error": [0.9, 0.8, 0.7, 0.6, 0.1],
}


def test_a_target_is_reached_at_the_first_point_at_or_below_it(learned):
    def target(points: dict[str, list] = POINTS, **evaluate: float) -> tuple:
        return tuple((summarise_metrics(learned.outcomes[0], points, evaluate, **stop)["target"] or {}).items())

    def reached(name: str, value: float, updates: int | None, seconds: float | None) -> tuple:
        return (name, value), ("updates", updates), ("seconds", seconds)

    stop: dict[str, float] = {}
    assert target() == ()
    assert target(target_loss=2.0) == reached("loss", 2.0, 10, 1.0)
    assert target(target_loss=1.99) == reached("loss", 1.99, 20, 2.0), "before it rose again"
    assert target(target_loss=9) == reached("loss", 9, 0, 0.0)
    assert target(target_loss=0.1) == reached("loss", 0.1, None, None)
    assert target(target_error=0.7) == reached("error", 0.7, 20, 2.0)
    assert target({**POINTS, "virtual_seconds": [math.nan] * 5}, target_loss=1.0) == reached("loss", 1.0, 20, None), "no clock"
    stop = {"target_loss": 0.3}
    assert target() == reached("loss", 0.3, 40, 4.0)
    assert target(target_error=0.1) == reached("error", 0.1, 40, 4.0), "the one to report comes first"
    with pytest.raises(ValueError, match="a run reports one target"):
        target(target_loss=2.0, target_error=0.1)


def test_a_run_diverged_where_its_last_finite_loss_was_followed_by_none(learned):
    for loss, diverged, last in (
        ([3.0, 2.0, 1.0], None, 1.0),
        ([3.0, math.nan, 1.0], None, 1.0),  # it came back
        ([3.0, math.nan, math.inf], 10, None),
        ([3.0, math.nan, 1.0, math.inf, math.nan], 30, None),
        ([math.nan, math.nan], 0, None),
    ):
        summary = summarise_metrics(learned.outcomes[0], {"updates": [10 * i for i in range(len(loss))], "loss": loss})
        assert (summary["diverged"], summary["loss"], summary["error"]) == (diverged, last, last), loss


def test_the_digest_of_a_schedule_is_the_sha_256_that_its_documentation_describes(learned):
    stands = execute("run", make_run("ssgd", cluster=STANDSTILL, task=None, stop={"seconds": 9}), 0)
    schedules = [*((entry.schedule, entry.schedule_digest) for entry in (*learned.outcomes, stands))]
    assert [digest for _, digest in schedules[:-1]] == learned.summary[
        "digests_schedule"
    ].tolist() and stands.schedule.standstill
    for schedule, digest in schedules:
        where = schedule.on_servers
        timing = hashlib.sha256(
            f'{{"blocks": {schedule.blocks}, "end_ns": {schedule.end_ns}, "on_servers": [{where.start}, {where.stop}], '
            f'"replicas": {schedule.replicas}, "standstill": "{schedule.standstill}", "started": {schedule.started}, '
            f'"workers": {schedule.workers}}}'.encode()
        )
        for name, column in (*schedule.columns.items(), *schedule.intervals._asdict().items()):
            form = "d" if name in ("weight", "keep") else "q"
            timing.update(f"{name} {len(column)}".encode() + struct.pack(f"<{len(column)}{form}", *column.tolist()))
        assert digest == timing.hexdigest()


def test_the_summary_has_a_row_for_each_run_and_seed_with_the_last_measurements(learned):
    summary = learned.summary
    assert summary[["name", "seed", "algorithm", "protocol"]].to_numpy().tolist() == [
        [*names[:1], seed, *names[1:]]
        for names in (("plain", "asgd", "asynchronous"), ("waiting", "ssgd", "synchronous"), ("peers", "d-psgd", "gossip"))
        for seed in (4, 2)
    ]
    for _, row in summary.iterrows():
        outcome = learned.outcome(row["name"], row["seed"])
        check_laws(outcome)
        for group in ("gradients", "staleness", "bytes", "messages"):
            for key, value in outcome.summary[group].items():
                assert row[f"{group}_{key}"] == pytest.approx(value), (group, key)
        last = learned.metrics[(learned.metrics["run"] == row["name"]) & (learned.metrics["seed"] == row["seed"])].iloc[-1]
        assert (row["loss"], row["error"], row["gradients_applied"]) == (last["loss"], last["error"], last["gradients"])
        replicas = row["replicas_loss"], row["replicas_error"]
        if row["algorithm"] == "d-psgd":
            assert replicas == (last["replicas_loss"], last["replicas_error"])
        else:
            assert np.isnan(np.array(replicas, float)).all(), "there is one model"


def test_metrics_are_those_of_each_run_and_seed_one_after_the_other(learned):
    metrics = learned.metrics
    assert metrics.columns.to_list() == [
        *("run", "seed", "virtual_seconds", "updates", "gradients", "loss", "error"),
        *("disagreement", "replicas_loss", "replicas_error"),
    ]
    start = 0
    for name, seed in itertools.product(("plain", "waiting", "peers"), (4, 2)):
        single = execute(name, learned.scenario.runs[name], seed).metrics
        part = metrics.iloc[start : start + len(single)].reset_index(drop=True)
        assert (set(part["run"]), set(part["seed"])) == ({name}, {seed}) and part[single.columns].equals(single)
        assert part["disagreement"].notna().all() == (name == "peers")
        start += len(single)
    assert start == len(metrics)


def test_outcomes_and_schedules_are_named_by_run_and_seed(learned):
    assert learned.outcome("waiting").seed == 4, "the first"
    assert learned.outcome("waiting", 2) is learned.outcomes[3]
    frame = learned.schedule("waiting", 2)
    assert len(frame) == len(learned.outcomes[3].schedule) and set(frame["verb"]) == {"PULL", "ADD", "COMMIT"}
    assert not frame.equals(learned.schedule("waiting")), "another seed"
    for name, seed, message in (
        ("wating", 4, "no run `wating` here; did you mean `waiting`\\?; there are plain, waiting, peers$"),
        ("xyz", None, "^no run `xyz` here; there are plain, waiting, peers$"),
        ("plain", 3, "^no run `plain` with seed 3 here; there are seeds 4, 2$"),
    ):
        for look in (learned.outcome, learned.schedule):
            with pytest.raises(FredError, match=message):
                look(name, seed)


class TestOnly:
    SCENARIO = Scenario(seeds=(1, 2), runs={name: make_run(task=None, evaluate={}) for name in ("one", "two", "three")})

    def test_these_runs_are_executed_with_every_seed_in_this_order_and_others_refused(self, monkeypatch):
        for only, names in (((), self.SCENARIO.runs), (["three", "one", "three"], ["three", "one"]), (iter(["two"]), ["two"])):
            outcomes = fred.run(self.SCENARIO, only).outcomes
            assert [(outcome.name, outcome.seed) for outcome in outcomes] == [(name, seed) for name in names for seed in (1, 2)]
        monkeypatch.setattr(experiment, "execute", None)
        with pytest.raises(FredError, match=r"^no run `thre`; did you mean `three`\?; there are one, two, three$"):
            fred.run(self.SCENARIO, ["one", "thre"])
