"""The account of what each worker does when: worked out by hand, and looked up moment by moment in random runs."""

import contextlib
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fred.base.errors import FredError
from fred.outcomes.outcome import Outcome
from fred.outcomes.spans import KINDS, shares, spans
from fred.running.execution import execute
from fred.running.recording import Recording
from fred.schedule.schedule import COLUMNS, NONE, SCALES, UNENDING, Schedule, Verb, What
from fred.specification.loading import validated
from tests.draws import Draws
from tests.laws import check_laws, check_time
from tests.random_runs import random_specification
from tests.worlds import CLUSTERS, PROTOCOLS, fitting, make_run, record

QUARTER = {"latency": {"name": "constant", "seconds": 0.25}}


def outcome_of(protocol: Any, algorithm: str, updates: int, **cluster: Any) -> Outcome:
    """A run without arithmetic, whose gradients take 1 s."""
    cluster = {"compute": {"name": "constant", "seconds": 1.0}, **cluster}
    return execute("run", make_run(algorithm, protocol=protocol, stop={"updates": updates}, task=None, cluster=cluster), 1)


def told(outcome: Outcome, worker: int) -> list[str]:
    """A worker's account in words, with its ends in seconds."""
    account = spans(outcome.schedule)
    span: Any
    found = []
    for span in account[account["worker"] == worker].itertuples():
        whose = "" if span.number == NONE else f" {span.number}"
        found.append(f"{span.kind} {span.other}{whose}".strip() + f" {span.end_ns / 1e9:g}")
    return found


def test_neighbours_wait_for_the_slow_one_whose_model_is_then_on_its_way():
    outcome = outcome_of("gossip", "sgp", 5, workers=3, speeds=[1.0, 1.0, 0.5], network=QUARTER)
    own = ["computing 1", "network worker 1 1.25", "waiting worker 2 2", "network worker 2 2.25", "computing 3.25"]
    assert told(outcome, 0)[:5] == own
    assert told(outcome, 2) == ["computing 2", "computing 3.25"], "who is waited for, and goes on until the run ends"


def test_without_a_network_neighbours_are_waited_for_all_the_same():
    outcome = outcome_of("gossip", "sgp", 5, workers=3, speeds=[1.0, 1.0, 0.5])
    assert told(outcome, 0)[:3] == ["computing 1", "waiting worker 2 2", "computing 3"]


def test_a_pair_exchanges_models_while_both_go_on_computing():
    outcome = outcome_of("pairwise", "ad-psgd", 8, workers=2, network=QUARTER)
    trips = outcome.schedule.intervals.only(What.TRIP)
    assert np.transpose([trips.worker, trips.other, trips.begin_ns, trips.end_ns])[:2].tolist() == [
        [0, 1, 0, 250_000_000],
        [1, 0, 250_000_000, 500_000_000],
    ]
    published = outcome.schedule["verb"][trips.row], outcome.schedule["worker"][trips.row]
    assert [each.tolist()[:2] for each in published] == [[Verb.PULL] * 2, [0, 1]]
    assert {each.split()[0] for each in told(outcome, 0)} == {"computing"}


@pytest.mark.parametrize(
    ("faults", "own"),
    [
        ([], ["computing 1", "waiting worker 1.9", "network worker 3.2", "computing 4.2"]),
        (
            [{"name": "outage", "workers": [0], "begin": 1.5, "end": 1.75}],
            ["computing 1", "waiting worker 1.5", "away 1.75", "waiting worker 1.9", "network worker 3.2", "computing 4.2"],
        ),
    ],
)
def test_in_exchanges_one_after_the_other_one_waits_first_and_then_models_are_moving(faults, own):
    """Twelve exchanges of 0.1 s in a ring of three, of whom the third is half as fast."""
    network = {"latency": {"name": "constant", "seconds": 0.1}}
    cluster = {"workers": 3, "speeds": [1.0, 1.0, 0.5], "network": network, "faults": faults}
    outcome = outcome_of({"name": "gossip", "exchanges": 12}, "sgp", 7, **cluster)
    assert told(outcome, 0)[: len(own)] == own


def test_a_delay_travels_one_neighbour_for_each_exchange():
    """Of six in a ring the first begins 2 s late; two exchanges of 0.25 s bring it to its neighbours and theirs.

    Who is one or two edges away waits 1.75 s: its own model is on its way for 0.25 s of those 2 s.
    """
    cluster = {"workers": 6, "speeds": [1 / 3, 1.0, 1.0, 1.0, 1.0, 1.0], "network": QUARTER}
    outcome = outcome_of({"name": "gossip", "exchanges": 2}, "sgp", 30, **cluster)
    assert [told(outcome, worker)[1:3] for worker in range(4)] == [
        ["network worker 3.5", "computing 6.5"],
        ["waiting worker 2.75", "network worker 3.25"],
        ["waiting worker 2.75", "network worker 3.5"],
        ["network worker 1.5", "computing 2.5"],
    ]


def test_who_waits_for_a_round_waits_for_the_server():
    outcome = outcome_of("synchronous", "ssgd", 3, workers=2, speeds=[1.0, 0.5], network=QUARTER)
    own = ["network server 0.25", "computing 1.25", "network server 1.5", "waiting server 2.5", "network server 2.75"]
    assert told(outcome, 0)[:5] == own


def test_each_block_is_on_the_network_with_its_server():
    """Two servers, of whom messages to and from the second take 1 s: both blocks are asked for together."""
    slow = {"servers": [{"servers": [1], "latency": {"name": "constant", "seconds": 1.0}}]}
    protocol = {"name": "asynchronous", "clocks": "each", "pulls": "at-once"}
    outcome = outcome_of(protocol, "asgd", 6, workers=1, servers=2, network={**QUARTER, **slow})
    own = ["network server 0 0.25", "network server 1 1", "computing 2", "network server 0 2.25", "network server 1 3"]
    assert told(outcome, 0)[:5] == own


@pytest.mark.parametrize("network", [None, {"collective": "tree", **QUARTER}])
@pytest.mark.parametrize(("protocol", "algorithm"), [("allreduce", "allreduce-sgd"), ("local-steps", "local-sgd")])
def test_who_is_early_waits_for_the_collective(protocol, algorithm, network):
    protocol = {"name": protocol, "period": 1} if protocol == "local-steps" else protocol
    outcome = outcome_of(protocol, algorithm, 6, workers=2, speeds=[1.0, 0.5], network=network)
    own = ["computing 1", "waiting collective 2", *(["network collective 2.5"] if network else [])]
    assert told(outcome, 0)[: len(own)] == own
    assert told(outcome, 1)[: len(own) - 1] == [own[0].replace("1", "2"), *own[2:]]


def test_an_average_in_groups_is_waited_for_until_it_begins():
    """The first to arrive activates both, two latencies... of a message deep; then one exchange of a quarter second."""
    outcome = outcome_of({"name": "group-averaging", "group_size": 2}, "wagma-sgd", 6, workers=2, network=QUARTER)
    assert told(outcome, 0)[:3] == ["computing 1", "waiting collective 1.25", "network collective 1.5"]


def test_work_lost_in_a_crash_is_wasted_and_then_the_worker_is_away():
    fault = {"name": "outage", "workers": [1], "begin": 1.5, "end": 4.0}
    served = outcome_of("asynchronous", "asgd", 9, workers=2, faults=[fault])
    assert told(served, 1)[:4] == ["computing 1", "wasted 1.5", "away 4", "computing 5"]
    alone = outcome_of("allreduce", "allreduce-sgd", 3, workers=2, speeds=[1.0, 0.5], faults=[fault])
    assert told(alone, 1)[:3] == ["wasted 1.5", "away 4", "computing 6"], "begun anew"
    assert told(alone, 0)[:2] == ["computing 1", "waiting collective 6"]


def test_who_leaves_for_good_is_away_until_the_end():
    fault = {"name": "outage", "workers": [1], "begin": 1.5}
    outcome = outcome_of("asynchronous", "asgd", 9, workers=2, faults=[fault])
    assert told(outcome, 1) == ["computing 1", "wasted 1.5", f"away {outcome.schedule.end_ns / 1e9:g}"]


def test_where_nothing_can_happen_any_more_all_wait_until_the_end():
    fault = {"name": "outage", "workers": [1], "begin": 1.5}
    cluster = {"workers": 2, "compute": {"name": "constant", "seconds": 1.0}, "faults": [fault]}
    run = make_run("ssgd", protocol="synchronous", stop={"seconds": 20}, task=None, cluster=cluster)
    outcome = execute("run", run, 1)
    assert told(outcome, 0) == ["computing 1", "computing 2", "waiting server 20"]
    assert told(outcome, 1) == ["computing 1", "wasted 1.5", "away 20"]


def test_a_message_that_a_crash_cuts_off_is_on_the_network_no_more():
    """The model that was asked for at 0 s would take 3 s; the worker crashes at 1 s, is back at 2 s, and asks anew."""
    latency = {"latency": {"name": "constant", "seconds": 3.0}}
    faults = [{"name": "outage", "workers": [0], "begin": 1.0, "end": 2.0}]
    outcome = outcome_of("asynchronous", "asgd", 1, workers=1, network=latency, faults=faults)
    assert told(outcome, 0) == ["network server 1", "away 2", "network server 5", "computing 6", "network server 9"]


def ended(protocol: Any, algorithm: str, seconds: float, **cluster: Any) -> Outcome:
    """A run without arithmetic that ends then."""
    run = make_run(algorithm, protocol=protocol, stop={"seconds": seconds}, task=None, cluster=cluster)
    return execute("run", run, 1)


@pytest.mark.parametrize(
    ("protocol", "algorithm"),
    [
        ("asynchronous", "asgd"),
        ("synchronous", "ssgd"),
        ("allreduce", "allreduce-sgd"),
        ("pairwise", "ad-psgd"),
        ("gossip", "sgp"),
    ],
)
def test_who_has_not_finished_a_gradient_when_the_run_ends_is_computing_it(protocol, algorithm):
    """The second takes 100 s for a gradient, and the run ends after 20 s."""
    speeds = {"workers": 2, "speeds": [1.0, 0.01], "compute": {"name": "constant", "seconds": 1.0}}
    assert told(ended(protocol, algorithm, 20.0, **speeds), 1) == ["computing 20"]


@pytest.mark.parametrize(
    ("protocol", "algorithm"), [("asynchronous", "asgd"), ("allreduce", "allreduce-sgd"), ("gossip", "d-psgd")]
)
def test_attempts_that_were_lost_before_the_end_were_wasted(protocol, algorithm):
    """A gradient takes 4 s; the worker is away from 3 to 4 s, and from 7 to 8 s."""
    faults = [{"name": "outage", "workers": [0], "begin": begin, "end": begin + 1} for begin in (3, 7)]
    outcome = ended(protocol, algorithm, 10.0, workers=3, compute={"name": "constant", "seconds": 4.0}, faults=faults)
    assert told(outcome, 0) == ["wasted 3", "away 4", "wasted 7", "away 8", "computing 10"]


def test_who_computes_while_nothing_can_happen_any_more_is_not_waiting():
    """The first leaves for good after 3.5 s; the others finish their gradients, and wait."""
    fault = {"name": "outage", "workers": [0], "begin": 3.5}
    outcome = ended("allreduce", "allreduce-sgd", 10.0, workers=3, compute={"name": "constant", "seconds": 1.0}, faults=[fault])
    assert outcome.schedule.standstill
    assert told(outcome, 1) == ["computing 1", "computing 2", "computing 3", "computing 4", "waiting collective 10"]


def test_what_has_not_arrived_when_the_run_ends_is_on_the_network():
    """Messages take 0.75 s: a gradient to a server, sent at 1.75 s; a model to a neighbour, sent at 1 s."""
    late = {"workers": 2, "compute": {"name": "constant", "seconds": 1.0}}
    late["network"] = {"latency": {"name": "constant", "seconds": 0.75}}
    assert told(ended("asynchronous", "asgd", 2.0, **late), 0) == [
        "network server 0.75",
        "computing 1.75",
        "network server 2",
    ]
    outcome = ended("gossip", "sgp", 1.5, **late)
    assert told(outcome, 0) == ["computing 1", "network worker 1 1.5"]
    trips = outcome.schedule.intervals.only(What.TRIP)
    assert np.transpose([trips.begin_ns, trips.end_ns]).tolist() == [[1_000_000_000, 1_500_000_000]] * 2


def test_a_message_of_who_has_crashed_is_on_the_network_no_more():
    """Sent at 1 s, it would arrive at 4 s; the worker leaves at 2 s, is back at 3 s, and the run ends at 3.5 s."""
    network = {"latency": {"name": "constant", "seconds": 3.0}, "pull_latency": {"name": "constant", "seconds": 0.0}}
    faults = [{"name": "outage", "workers": [0], "begin": 2.0, "end": 3.0}]
    cluster = {"workers": 1, "compute": {"name": "constant", "seconds": 1.0}, "network": network, "faults": faults}
    own = ["wasted 1", "network server 2", "away 3", "computing 3.5"]
    assert told(ended("asynchronous", "asgd", 3.5, **cluster), 0) == own


def test_each_span_names_its_row():
    schedule = outcome_of("synchronous", "ssgd", 3, workers=2, speeds=[1.0, 0.5], network=QUARTER).schedule
    account = spans(schedule)
    verbs = schedule["verb"][account["row"]]
    assert set(account["kind"][account["row"] == NONE]) == {"waiting"}
    assert set(verbs[account["kind"] == "computing"]) == {Verb.ADD}
    assert set(verbs[account["kind"] == "network"]) == {Verb.ADD, Verb.PULL}
    assert (schedule["worker"][account["row"]] == account["worker"])[account["row"] != NONE].all()


def test_the_first_workers_account_is_that_of_all_cut_short():
    schedule = outcome_of("gossip", "sgp", 30, workers=5, speeds=[1.0, 0.7, 0.5, 1.0, 0.3], network=QUARTER).schedule
    whole = spans(schedule)
    assert spans(schedule, 3).equals(whole[whole["worker"] < 3])


def test_times_beyond_what_a_line_of_64_bits_holds_are_told_apart():
    """Three workers, near the end of virtual time."""
    late = 2**62 + 5
    columns = {name: np.zeros(3, np.int64) for name in COLUMNS} | {name: np.ones(3) for name in SCALES}
    columns |= {"verb": np.full(3, Verb.PUSH), "worker": np.arange(3), "messages": np.ones(3, np.int64)}
    columns |= {"begin_ns": np.array([0, 7, late]), "end_ns": np.array([9, late, late + 2]), "time_ns": np.full(3, late + 4)}
    account = spans(Schedule(columns, 3, 1, 1, 3, late + 4, range(1)))
    assert account[["worker", "begin_ns", "end_ns", "kind"]].to_numpy().tolist() == [
        [0, 0, 9, "computing"],
        [0, 9, late + 4, "network"],
        [1, 0, 7, "waiting"],
        [1, 7, late, "computing"],
        [1, late, late + 4, "network"],
        [2, 0, late, "waiting"],
        [2, late, late + 2, "computing"],
        [2, late + 2, late + 4, "network"],
    ]


def test_nothing_at_all_has_an_account_too():
    columns = {name: np.zeros(0, np.int64) for name in COLUMNS} | {name: np.zeros(0) for name in SCALES}
    account = spans(Schedule(columns, 3, 1, 1, 0, 0))
    assert account.empty
    assert shares(account) == dict.fromkeys(KINDS)


def test_an_absence_without_an_end_is_stored_as_one():
    fault = {"name": "outage", "workers": [1], "begin": 1.5}
    away = outcome_of("asynchronous", "asgd", 9, workers=2, faults=[fault]).schedule.intervals.only(What.AWAY)
    assert np.stack(away).T.tolist() == [[What.AWAY, 1_500_000_000, UNENDING, NONE, 1, NONE]]


@given(CLUSTERS, PROTOCOLS, st.integers(0, 3))
@settings(max_examples=25, deadline=None)
def test_each_moment_of_random_clusters_is_of_one_kind(cluster, name, seed):
    schedule = record(fitting(name, cluster), cluster, gradients=12, seconds=50, seed=seed)
    check_time(schedule, list(schedule), shares(spans(schedule)))


@cache
def random_timing(seed: int) -> Outcome:
    """Return the outcome of a valid random run without a task."""
    draws = Draws(seed)
    while True:
        with contextlib.suppress(FredError):
            run = validated({"runs": {"run": random_specification(draws, None)}}, str).runs["run"]
            return execute("run", run, seed)  # which is refused if no gradient fits between two crashes


@pytest.mark.parametrize("seed", range(60))
def test_each_moment_of_random_scenarios_is_of_one_kind(seed):
    """With faults, overlap, collectives, slow links and whatever else there is."""
    check_laws(random_timing(seed))


def until(schedule: Schedule, end_ns: int, seen_later: tuple[str, ...]) -> dict[int, list[tuple[str, int]]]:
    """Each worker's account until then, in which these kinds are computing."""
    account = spans(schedule)
    account = account[account["begin_ns"] < end_ns].assign(end_ns=account["end_ns"].clip(upper=end_ns))
    kinds = account["kind"].astype(str).replace(list(seen_later), "computing")
    found: dict[int, list[tuple[str, int]]] = {worker: [] for worker in range(schedule.workers)}
    for worker, kind, end in zip(account["worker"].tolist(), kinds, account["end_ns"].tolist(), strict=True):
        if found[worker] and found[worker][-1][0] == kind:
            found[worker].pop()
        found[worker].append((kind, end))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_the_account_of_a_shorter_run_is_the_beginning_of_a_longer_ones(seed):
    """With whatever was going on when the shorter one ended: as far as it says anything of a worker, it says the same.

    Only later rows show which work was wasted, and when a forward pass that waits for blocks began.
    """
    outcome = random_timing(seed)
    run, longer = outcome.run, outcome.schedule
    if run.cluster.failures is not None:
        pytest.skip("a later failure undoes work of the shorter run")
    seen_later = ("wasted", "network") if getattr(run.protocol, "overlap", 0) is True else ("wasted",)
    for share in (0.3, 0.7):
        shorter = Recording(run, seed).up_to(seconds=share * longer.end_ns / 1e9)
        whole = until(longer, shorter.end_ns, seen_later)
        for worker, own in until(shorter, shorter.end_ns, seen_later).items():
            last = own[-1][1] if own else 0
            begins = [0, *(end for _, end in whole[worker])]
            expected = [
                (kind, min(end, last)) for begin, (kind, end) in zip(begins, whole[worker], strict=False) if begin < last
            ]
            assert own == expected, f"worker {worker}, until {last}"


def test_random_scenarios_have_intervals_of_every_kind():
    schedules = [random_timing(seed).schedule for seed in range(150)]
    assert {what for schedule in schedules for what in schedule.intervals.what.tolist()} == set(What)
    assert any(schedule.standstill for schedule in schedules)
