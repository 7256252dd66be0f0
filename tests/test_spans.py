"""The account of each worker's time: by hand, as shares of all workers' time, and looked up moment by moment in random runs."""

import contextlib
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fred import FredError, Schedule, Verb, spans
from fred.outcomes.outcome import Outcome
from fred.running.execution import execute
from fred.running.recording import Recording
from fred.schedule.schedule import COLUMNS, NONE, SCALES, UNENDING, What
from fred.schedule.spans import KINDS, shares
from fred.specification.loading import validated
from tests.draws import Draws
from tests.laws import check_laws, check_time
from tests.random_runs import random_specification
from tests.worlds import CLUSTERS, PROTOCOLS, constant, fitting_protocol, mostly_slow, outcome, record


def slow_network(seconds: float, **options: Any) -> dict[str, Any]:
    return {"latency": {"name": "constant", "seconds": seconds}, **options}


def outage(worker: int, begin: float, end: float | None = None) -> dict[str, Any]:
    return {"name": "outage", "workers": [worker], "begin": begin} | ({} if end is None else {"end": end})


def account(outcome: Outcome, worker: int) -> str:
    span: Any
    words = []
    table = spans(outcome.schedule)
    for span in table[table["worker"] == worker].itertuples():
        suffix = "" if span.number == NONE else f" {span.number}"
        words.append(f"{span.kind} {span.other}{suffix}".strip() + f" {span.end_ns / 1e9:g}")
    return ", ".join(words)


QUARTER = slow_network(0.25)
CRASH = outage(1, 1.5, 4.0)
LAST_IS_SLOW, TWELVE = constant(1, 1, 2, network=slow_network(0.1)), {"topology": "ring", "exchanges": 12}  # of 0.1 s
SECOND_IS_FAR = {**QUARTER, "servers": [{"servers": [1], "latency": {"name": "constant", "seconds": 1.0}}]}
EARLY_PULLS = {"name": "asynchronous", "clocks": "each", "pulls": "at-once"}
TREE = {"collective": "tree", **QUARTER}
MOVING = {0: "computing 1, waiting collective 2, network collective 2.5, ...", 1: "computing 2, network collective 2.5, ..."}
WAITING = {0: "computing 1, waiting collective 2, ...", 1: "computing 2, ..."}
TWICE = constant(4, 4, 4, faults=[outage(0, begin, begin + 1) for begin in (3, 7)])
NO_PULLS = slow_network(3, pull_latency={"name": "constant", "seconds": 0.0})
# Statement -> runs: algorithm, protocol, cluster, limit; worker -> its account, or how that begins.
ACCOUNTS: dict[str, list[Any]] = {
    "neighbours wait for the slow one, whose model is then on its way": [
        ("sgp", None, constant(1, 1, 2, network=QUARTER), {"updates": 5},
         {0: "computing 1, network worker 1 1.25, waiting worker 2 2, network worker 2 2.25, computing 3.25",
          2: "computing 2, computing 3.25"}),
        ("sgp", None, constant(1, 1, 2), {"updates": 5}, {0: "computing 1, waiting worker 2 2, computing 3"}),
    ],
    "in exchanges one after the other one waits first, and then models are moving": [
        ("sgp", TWELVE, LAST_IS_SLOW, {"updates": 7},
         {0: "computing 1, waiting worker 1.9, network worker 3.2, computing 4.2, ..."}),
    ],
    # Of six in a ring the first begins 2 s late; two exchanges of 0.25 s bring it to its neighbours and theirs. Workers one or
    # two edges away wait 1.75 s: their own models are on their way for 0.25 s of those 2 s.
    "a delay travels one neighbour for each exchange": [
        ("sgp", {"topology": "ring", "exchanges": 2}, constant(3, 1, 1, 1, 1, 1, network=QUARTER), {"updates": 30},
         {0: "computing 3, network worker 3.5, computing 6.5, ...",
          1: "computing 1, waiting worker 2.75, network worker 3.25, ...",
          2: "computing 1, waiting worker 2.75, network worker 3.5, ...",
          3: "computing 1, network worker 1.5, computing 2.5, ..."}),
    ],
    "a round waits for the server": [
        ("ssgd", None, constant(1, 2, network=QUARTER), {"updates": 3},
         {0: "network server 0.25, computing 1.25, network server 1.5, waiting server 2.5, network server 2.75, ..."}),
    ],
    "each block is on the network with its server": [  # both are asked for together
        ("asgd", EARLY_PULLS, constant(1, servers=2, network=SECOND_IS_FAR), {"updates": 6},
         {0: "network server 0 0.25, network server 1 1, computing 2, network server 0 2.25, network server 1 3, ..."}),
    ],
    "early workers wait for the collective": [
        ("allreduce-sgd", None, constant(1, 2, network=TREE), {"updates": 6}, MOVING),
        ("local-sgd", {"period": 1}, constant(1, 2, network=TREE), {"updates": 6}, MOVING),
        ("local-sgd", {"period": 1}, constant(1, 2), {"updates": 6}, WAITING),
        ("wagma-sgd", {"group_size": 2}, constant(1, 1, network=QUARTER), {"updates": 6},  # one message activates both
         {0: "computing 1, waiting collective 1.25, network collective 1.5, ..."}),
    ],
    "work lost in a crash is wasted, and then the worker is away": [
        ("asgd", None, constant(1, 1, faults=[CRASH]), {"updates": 9}, {1: "computing 1, wasted 1.5, away 4, computing 5, ..."}),
        ("allreduce-sgd", None, constant(1, 2, faults=[CRASH]), {"updates": 3},
         {1: "wasted 1.5, away 4, computing 6, ...", 0: "computing 1, waiting collective 6, ..."}),
        ("asgd", None, constant(1, 1, faults=[outage(1, 1.5)]), {"updates": 9}, {1: "computing 1, wasted 1.5, away 8"}),
        *((name, None, TWICE, {"seconds": 10}, {0: "wasted 3, away 4, wasted 7, away 8, computing 10"})
          for name in ("asgd", "allreduce-sgd", "d-psgd")),
    ],
    "where nothing can happen any more workers finish their gradients and wait until the end": [
        ("ssgd", None, constant(1, 1, faults=[outage(1, 1.5)]), {"seconds": 20},
         {0: "computing 1, computing 2, waiting server 20", 1: "computing 1, wasted 1.5, away 20"}),
        ("allreduce-sgd", None, constant(1, 1, 1, faults=[outage(0, 3.5)]), {"seconds": 10},
         {1: "computing 1, computing 2, computing 3, computing 4, waiting collective 10"}),
    ],
    # The model asked for at 0 s would take 3 s, and is asked for again; the gradient sent at 1 s would arrive at 4 s.
    "messages of a worker that crashes are on the network no more": [
        ("asgd", None, constant(1, network=slow_network(3), faults=[outage(0, 1.0, 2.0)]), {"updates": 1},
         {0: "network server 1, away 2, network server 5, computing 6, network server 9"}),
        ("asgd", None, constant(1, network=NO_PULLS, faults=[outage(0, 2.0, 3.0)]), {"seconds": 3.5},
         {0: "wasted 1, network server 2, away 3, computing 3.5"}),
    ],
    "work and messages under way when the run ends last until then": [
        *((name, None, constant(1, 100), {"seconds": 20}, {1: "computing 20"})
          for name in ("asgd", "ssgd", "allreduce-sgd", "ad-psgd", "sgp")),
        ("asgd", None, constant(1, 1, network=slow_network(0.75)), {"seconds": 2}, {0: "network server 0.75, computing 1.75, network server 2"}),
        ("sgp", None, constant(1, 1, network=slow_network(0.75)), {"seconds": 1.5}, {0: "computing 1, network worker 1 1.5"}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("statement", ACCOUNTS)
def test_accounts_by_hand(statement):
    for algorithm, protocol, cluster, stop, accounts in ACCOUNTS[statement]:
        run = outcome(algorithm, protocol, cluster, task=None, stop=stop)
        for worker, words in accounts.items():
            prefix = words.removesuffix("...")
            assert account(run, worker)[: len(prefix) if prefix != words else None] == prefix, algorithm


def test_an_absence_without_an_end_is_stored_as_one():
    intervals = outcome(
        "asgd", cluster=constant(1, 1, faults=[outage(1, 1.5)]), task=None, stop={"updates": 9}
    ).schedule.intervals
    assert [*zip(*intervals.select(What.AWAY), strict=True)] == [(What.AWAY, 1_500_000_000, UNENDING, NONE, 1, NONE)]


def test_a_pair_exchanges_models_while_both_go_on_computing():
    run = outcome("ad-psgd", cluster=constant(1, 1, network=QUARTER), task=None, stop={"updates": 8})
    trips = run.schedule.intervals.select(What.TRIP)
    assert np.transpose([trips.worker, trips.other, trips.begin_ns, trips.end_ns])[:2].tolist() == [
        [0, 1, 0, 250_000_000],
        [1, 0, 250_000_000, 500_000_000],
    ]
    published = run.schedule["verb"][trips.row], run.schedule["worker"][trips.row]
    assert [column.tolist()[:2] for column in published] == [[Verb.PULL] * 2, [0, 1]]
    assert {word.split()[0] for word in account(run, 0).split(", ")} == {"computing"}


FOUR = (1.0, 1.0, 1.0, 1.0)
BACKUP = {"backup_workers": 1, "late": "interrupt"}  # gradients under way at the end are not wasted
SLOW_DOWN = slow_network(
    0.2, pull_latency={"name": "constant", "seconds": 0.4}, bandwidth=1e7, message_bytes=10**6
)  # 0.1 s more
COUNT = {"rule": {"name": "count", "workers": 2}}
ABSENCE, TOTAL = outage(1, 1.1, 8.0), 8.0 + 0.3 + 9 * 1.3
JOB = {"contention": [{"regime": {"name": "job", "nodes": [1], "slowdown": 3.0}}]}
SHARES: list[Any] = [  # computing, wasted, network, waiting
    ("ssgd", None, constant(1, 2), {"seconds": 50}, (0.75, 0, 0, 0.25), 0.01),
    ("ssgd", BACKUP, constant(1, 2), {"seconds": 50}, (0.5, 0.5, 0, 0), 0.015),
    ("asgd", None, constant(1, network=SLOW_DOWN), {"updates": 20}, (1 / 1.8, 0, 0.8 / 1.8, 0), 1e-6),
    # six messages, which wait for the slow one, 2 s a round
    ("allreduce-sgd", None, constant(1, 1, 1, 2, network=slow_network(0.05)), {"updates": 40},
     (5 / 4 / 2.3, 0, 0.3 / 2.3, 0.75 / 2.3), 0.01),
    ("sgp", None, constant(*FOUR, network=QUARTER), {"updates": 400}, (0.8, 0, 0.2, 0), 0.01),
    # two are dropped; then all are in a ring of six messages of 0.5 s
    ("cutoff-sgd", COUNT, constant(*FOUR, network=slow_network(0.5)), {"updates": 200}, (0.125, 0.125, 0.75, 0), 0.005),
    # ten allreduces of 0.3 s; at one of them worker 1 is away, and waited for, for 6.9 s, 0.1 s after it has computed
    ("allreduce-sgd", None, constant(*FOUR, network=slow_network(0.05), faults=[ABSENCE]), {"updates": 10},
     (10 / TOTAL, 0, 3 / TOTAL, (3 * 7 + 0.1) / 4 / TOTAL), 1e-6),
    # more than 64 bits of nanoseconds: three workers compute, wait and compute, one computes for 2 x 3 billion seconds
    ("ssgd", None, constant(1e9, 1e9, 1e9, 3e9), {"updates": 2}, (12 / 18, 0, 0, 6 / 18), 1e-6),
    # between two nodes, and inside each by a tree, or all in one ring; after some seconds of work
    *((name, None, constant(*FOUR, nodes=2, network=slow_network(0.05, **network)), {"gradients": 640},
       (work / (work + seconds), 0, seconds / (work + seconds), 0), 0.02)
      for name, work in (("allreduce-sgd", 1), ("local-sgd", 8), ("eager-sgd", 1))
      for network, seconds in (({"collective": "ring"}, 0.3), ({"collective": "tree"}, 0.2), ({"within": slow_network(0.01)}, 0.12),
                               ({"node_bandwidth": 1e6, "message_bytes": 10**5}, 0.3), (JOB, 0.9))),
]  # fmt: skip


@pytest.mark.parametrize(("algorithm", "protocol", "cluster", "stop", "expected", "tolerance"), SHARES)
def test_shares_of_workers_time_by_hand(algorithm, protocol, cluster, stop, expected, tolerance):
    fractions = outcome(algorithm, protocol, cluster, task=None, evaluate={}, stop=stop).summary["workers_time"]
    assert fractions.pop("away") == 0 or cluster["faults"]
    assert list(fractions) == ["computing", "wasted", "network", "waiting"]
    assert list(fractions.values()) == pytest.approx(expected, abs=tolerance)


def test_without_a_clock_or_before_anything_happens_workers_time_has_no_shares():
    run = outcome("asgd", "dispatcher", task=None, evaluate={}, stop={"updates": 10})
    columns = {name: np.zeros(0, np.int64) for name in COLUMNS} | {name: np.zeros(0) for name in SCALES}
    table = spans(Schedule(columns, 3, 1, 1, 0, 0))
    assert table.empty and shares(table) == run.summary["workers_time"] == dict.fromkeys(KINDS)


def test_each_span_names_its_row_and_some_workers_may_be_asked_for():
    schedule = outcome("ssgd", cluster=constant(1, 2, network=QUARTER), task=None, stop={"updates": 3}).schedule
    table = spans(schedule)
    assert spans(schedule, 1).equals(table[table["worker"] < 1])
    verbs = schedule["verb"][table["row"]]
    assert set(table["kind"][table["row"] == NONE]) == {"waiting"}
    assert set(verbs[table["kind"] == "computing"]) == {Verb.ADD}
    assert set(verbs[table["kind"] == "network"]) == {Verb.ADD, Verb.PULL}
    assert (schedule["worker"][table["row"]] == table["worker"])[table["row"] != NONE].all()


def test_times_beyond_what_a_line_of_64_bits_holds_are_told_apart():
    """Three workers, near the end of virtual time."""
    end = 2**62 + 5
    columns = {name: np.zeros(3, np.int64) for name in COLUMNS} | {name: np.ones(3) for name in SCALES}
    columns |= {"verb": np.full(3, Verb.PUSH), "worker": np.arange(3), "messages": np.ones(3, np.int64)}
    columns |= {"begin_ns": np.array([0, 7, end]), "end_ns": np.array([9, end, end + 2]), "time_ns": np.full(3, end + 4)}
    table = spans(Schedule(columns, 3, 1, 1, 3, end + 4, range(1)))
    assert table[["worker", "begin_ns", "end_ns", "kind"]].to_numpy().tolist() == [
        *([0, 0, 9, "computing"], [0, 9, end + 4, "network"]),
        *([1, 0, 7, "waiting"], [1, 7, end, "computing"], [1, end, end + 4, "network"]),
        *([2, 0, end, "waiting"], [2, end, end + 2, "computing"], [2, end + 2, end + 4, "network"]),
    ]


@given(CLUSTERS, PROTOCOLS, st.integers(0, 3))
def test_each_moment_of_random_clusters_is_of_one_kind(cluster, name, seed):
    schedule = record(fitting_protocol(name, cluster), cluster, gradients=12, seconds=50, seed=seed)
    check_time(schedule, list(schedule), shares(spans(schedule)))


@cache
def random_timing(seed: int) -> Outcome:
    """Return the outcome of a valid random run without a task: with faults, overlap, collectives, slow links, ..."""
    draws = Draws(seed)
    while True:
        with contextlib.suppress(FredError):
            run = validated({"runs": {"run": random_specification(draws, None)}}, str).runs["run"]
            return execute("run", run, seed)  # which is refused if no gradient fits between two crashes


def truncate(schedule: Schedule, end_ns: int, relabelled: tuple[str, ...]) -> dict[int, list[tuple[str, int]]]:
    """Each worker's account until then, in which these kinds are computing."""
    table = spans(schedule)
    table = table[table["begin_ns"] < end_ns].assign(end_ns=table["end_ns"].clip(upper=end_ns))
    kinds = table["kind"].astype(str).replace(list(relabelled), "computing")
    accounts: dict[int, list[tuple[str, int]]] = {worker: [] for worker in range(schedule.workers)}
    for worker, kind, end in zip(table["worker"].tolist(), kinds, table["end_ns"].tolist(), strict=True):
        if accounts[worker] and accounts[worker][-1][0] == kind:
            accounts[worker].pop()
        accounts[worker].append((kind, end))
    return accounts


@pytest.mark.parametrize("seed", mostly_slow(range(60), range(0, 60, 4)))
def test_each_moment_of_random_scenarios_is_of_one_kind_whenever_the_run_ends(seed):
    """A shorter run has the same stretches of each worker up to its end, with the unfinished ones cut there.

    Only later rows show which work was wasted, and when a forward pass that waits for blocks began.
    """
    outcome = random_timing(seed)
    check_laws(outcome)
    run, longer = outcome.run, outcome.schedule
    if run.cluster.failures is not None:
        return  # a later failure undoes work of the shorter run
    relabelled = ("wasted", "network") if getattr(run.protocol, "overlap", 0) is True else ("wasted",)
    for share in (0.3, 0.7):
        shorter = Recording(run, seed).schedule_until(seconds=share * longer.end_ns / 1e9)
        full = truncate(longer, shorter.end_ns, relabelled)
        for worker, part in truncate(shorter, shorter.end_ns, relabelled).items():
            last = part[-1][1] if part else 0
            begins = [0, *(end for _, end in full[worker])]
            spans_until = zip(begins, full[worker], strict=False)
            expected = [(kind, min(end, last)) for begin, (kind, end) in spans_until if begin < last]
            assert part == expected, f"worker {worker}, until {last}"


@pytest.mark.slow
def test_random_scenarios_have_intervals_of_every_kind():
    schedules = [random_timing(seed).schedule for seed in range(150)]
    kinds = set(What) - {What.DEFERRED}  # drawn checkpoints are written before the next one is due
    assert {kind for schedule in schedules for kind in schedule.intervals.what.tolist()} == kinds
    assert any(schedule.standstill for schedule in schedules)
