"""The trace for Perfetto, read back by the official schema as Perfetto reads it, against what the schedule says row by row."""

import contextlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent

from fred.base.errors import FredError
from fred.commands.cli import main
from fred.outcomes.outcome import Outcome
from fred.outcomes.sent_messages import messages
from fred.outcomes.spans import spans
from fred.results import experiment
from fred.running.execution import execute
from fred.schedule.schedule import NONE, Row, Schedule, Verb, What
from fred.specification.loading import Scenario
from fred.views import perfetto
from fred.views.perfetto import Part, trace
from tests.worlds import CLUSTERS, COMPUTE, PROTOCOLS, fitting, make_run, record, stale_gradients

NETWORK = {"latency": {"name": "constant", "seconds": 0.03}, "bandwidth": 1e5}
CLUSTER: dict[str, Any] = {"workers": 4, "compute": COMPUTE, "network": NETWORK}
OUTAGES = [
    {"name": "outage", "workers": [1], "begin": 0.5, "end": 0.9},
    {"name": "outage", "servers": [0], "begin": 0.7, "end": 0.8},
    {"name": "outage", "workers": [3], "begin": 1.0},
]
RUNS: dict[str, dict[str, Any]] = {
    "a server": {"algorithm": "asgd"},
    "no network": {"algorithm": "asgd", "cluster": {"workers": 4, "compute": COMPUTE}},
    "faults": {"algorithm": "asgd", "cluster": {**CLUSTER, "faults": OUTAGES}},
    "servers with clocks": {
        "algorithm": "asgd",
        "protocol": {"name": "stale-synchronous", "bound": 2, "clocks": "each"},
        "cluster": {**CLUSTER, "servers": 2},
    },
    "layer by layer": {
        "algorithm": "asgd",
        "protocol": {"name": "asynchronous", "clocks": "each", "cut": "layers", "overlap": True},
        "cluster": {**CLUSTER, "servers": 2},
    },
    "backup": {"algorithm": "ssgd", "protocol": {"name": "synchronous", "backup_workers": 1, "late": "interrupt"}},
    "gossip": {"algorithm": "sgp"},
    "pairs": {"algorithm": "ad-psgd"},
    "allreduce": {"algorithm": "allreduce-sgd", "cluster": {**CLUSTER, "nodes": 2}},
}


@dataclass
class Slice:
    """What is drawn at some place of a track; an instant has no length."""

    track: int
    name: str
    facts: dict[str, int | str]
    begin: int
    order: int  # in time, and of what is at the same time, in the file
    end: int = -1
    passing: list[int] = field(default_factory=list)
    ending: list[int] = field(default_factory=list)


class Read:
    """A trace, as Perfetto's trace processor reads it: by time and then as in the file, slices of a track on a stack."""

    def __init__(self, content: bytes):
        packets = list(Trace.FromString(content).packet)
        assert packets[0].sequence_flags == TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        assert {each.trusted_packet_sequence_id for each in packets} == {1}
        described = [each.track_descriptor for each in packets if each.HasField("track_descriptor")]
        self.tracks = {each.uuid: each for each in described}
        self.names, self.facts = dict[int, str](), dict[int, str]()
        self.slices, self.instants, self.counts = list[Slice](), list[Slice](), defaultdict[int, list](list)
        self._check_tracks(packets)
        events = [each for each in packets if each.HasField("track_event")]
        for packet in events:  # names come with the first packet that has them
            assert packet.HasField("timestamp")
            self._learn(packet)
            event = packet.track_event
            if event.name_iid:
                assert packet.sequence_flags == TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
                assert event.name_iid in self.names
                assert all(each.name_iid in self.facts for each in event.debug_annotations)
        stacks = defaultdict[int, list[Slice]](list)
        for order, packet in enumerate(sorted(events, key=lambda each: each.timestamp)):
            self._take(packet, order, stacks[packet.track_event.track_uuid])
        assert not any(stacks.values()), "every slice ends"

    def path(self, track: int) -> str:
        """The names of a track and of all above it, but for the one on top."""
        found = self.tracks[track]
        above = self.path(found.parent_uuid) if found.parent_uuid else ""
        return f"{above}/{found.name}".removeprefix("/") if found.parent_uuid else ""

    def below(self, path: str) -> list[Slice]:
        """The slices and instants of all tracks there."""
        return [each for each in (*self.slices, *self.instants) if f"{self.path(each.track)}/".startswith(path)]

    def _check_tracks(self, packets: list) -> None:
        described = set[int]()
        for each in packets:
            if each.HasField("track_descriptor"):
                track = each.track_descriptor
                assert track.uuid > 0 and track.uuid not in described and track.name
                assert track.parent_uuid in described or not described, "one is on top, parents come first"
                assert track.child_ordering == track.EXPLICIT
                described.add(track.uuid)
            elif each.HasField("track_event"):
                assert each.track_event.track_uuid in described
                counts = self.tracks[each.track_event.track_uuid].HasField("counter")
                assert counts == (each.track_event.type == TrackEvent.TYPE_COUNTER)

    def _learn(self, packet: TracePacket) -> None:
        for known, told in (
            (self.names, packet.interned_data.event_names),
            (self.facts, packet.interned_data.debug_annotation_names),
        ):
            for each in told:
                assert each.iid > 0 and each.iid not in known and each.name not in known.values()
                known[each.iid] = each.name

    def _take(self, packet: TracePacket, order: int, stack: list[Slice]) -> None:
        event, time = packet.track_event, packet.timestamp
        if event.type == TrackEvent.TYPE_COUNTER:
            self.counts[event.track_uuid].append((time, event.counter_value))
        elif event.type == TrackEvent.TYPE_SLICE_END:
            stack.pop().end = time
        else:
            facts = {
                self.facts[each.name_iid]: getattr(each, str(each.WhichOneof("value"))) for each in event.debug_annotations
            }
            found = Slice(event.track_uuid, self.names[event.name_iid], facts, time, order)
            found.passing, found.ending = list(event.flow_ids), list(event.terminating_flow_ids)
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                assert not stack, "no slices above each other: what overlaps has a track of its own"
                stack.append(found)
                self.slices.append(found)
            else:
                found.end = time
                self.instants.append(found)

    def counted(self, name: str) -> list:
        """Times and values of a count."""
        (track,) = (uuid for uuid, track in self.tracks.items() if track.name == name and track.HasField("counter"))
        return self.counts[track]

    def flows(self) -> dict[int, list[Slice]]:
        """Return the stations of each flow in order; it begins once, ends once, and goes forward in time."""
        found = defaultdict[int, list[Slice]](list)
        for each in sorted((*self.slices, *self.instants), key=lambda each: each.order):
            for flow in (*each.passing, *each.ending):
                found[flow].append(each)
        for flow, places in found.items():
            assert len(places) > 1
            assert [flow in each.ending for each in places] == [False] * (len(places) - 1) + [True]
            assert all(one.begin <= other.begin for one, other in pairwise(places))
        return found


def part_of(schedule: Schedule, begin: int = 0, end: int | None = None, nodes: int = 1) -> Part:
    node_of = np.arange(schedule.workers) * nodes // schedule.workers
    return Part(schedule, "run", node_of, begin, schedule.end_ns if end is None else end)


def outcome_of(name: str) -> Outcome:
    return execute("run", make_run(**{"task": None, "cluster": CLUSTER, "stop": {"gradients": 40}, **RUNS[name]}), 1)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    return {name: outcome_of(name) for name in RUNS}


def check_workers(read: Read, part: Part, where: str = "workers/") -> None:
    """Each worker's slices are its spans, cut at the ends of the part."""
    account = spans(part.schedule)
    expected: dict[str, list] = {}
    for worker, begin, end, kind in account[["worker", "begin_ns", "end_ns", "kind"]].itertuples(index=False):
        begin, end = max(begin, part.begin), min(end, part.end)
        if begin < end:
            expected.setdefault(f"{where}worker {worker}", []).append((begin, end, kind.replace("_", " ")))
    found: dict[str, list] = {}
    for each in read.below(where):
        found.setdefault(read.path(each.track), []).append((each.begin, each.end, each.name))
    assert found == expected
    for own in found.values():
        assert all(one[1] <= other[0] for one, other in pairwise(own))


def check_flows(read: Read, schedule: Schedule) -> None:
    """Row by row: where its flow must come from, and on what way; and no flow is left over."""
    flows, rows = read.flows(), list(schedule)
    instants = {each.facts["row"]: each for each in read.below("parameters/")}
    served = {each.facts["row"]: each for each in read.below("messages/") if _with_servers(each) and "row" in each.facts}
    computing = [each for each in read.slices if each.name in ("computing", "wasted")]
    who = {id(each): int(read.path(each.track).rsplit(" ", 1)[1]) for each in computing}
    ended, begun = ({(who[id(each)], getattr(each, at)): each for each in computing} for at in ("end", "begin"))
    expected = Counter[tuple[int, ...]]()
    for number, row in enumerate(rows):
        if row.verb in (Verb.PUSH, Verb.ADD, Verb.DROP):
            source = ended.get((row.worker, row.end_ns))
            if source is None and row.begin_ns < row.end_ns:  # differences of models take no time
                source = begun.get((row.worker, row.begin_ns))
            expected[_ways(source, served.get(number), instants[number])] += 1
        elif row.verb == Verb.PULL and row.replica in schedule.on_servers:
            use = _first_use(rows, row)
            target = None if use is None or use.begin_ns < row.end_ns else begun.get((row.worker, use.begin_ns))
            expected[_ways(instants[number], served.get(number), target)] += 1
    expected.pop((), None)
    arrivals = {each.order for each in read.instants} - {each.order for each in instants.values()}
    trips = [places for places in flows.values() if places[-1].order in arrivals]
    others = Counter(tuple(each.order for each in places) for places in flows.values() if places[-1].order not in arrivals)
    assert others == expected
    check_trips(read, schedule, trips)


def check_trips(read: Read, schedule: Schedule, flows: list[list[Slice]]) -> None:
    """Models go from the worker who sends to the one who receives."""
    _, begin, end, _, sender, receiver = schedule.intervals.only(What.TRIP)
    known = (sender != NONE) & ((end < schedule.end_ns) | (begin == end))
    expected = zip(*(each[known].tolist() for each in (begin, end, sender, receiver)), strict=True)
    found = [(one.begin, other.begin, read.path(one.track), read.path(other.track)) for one, other in flows]
    assert sorted(found) == sorted(
        (begin, end, f"messages/worker {sender} sends", f"messages/worker {receiver} receives")
        for begin, end, sender, receiver in expected
    )


def _with_servers(message: Slice) -> bool:
    return str(message.facts.get("to", message.facts.get("from"))).startswith("server")


def _first_use(rows: list[Row], read: Row) -> Row | None:
    """The first gradient that is computed with what is read, by itself or together with other blocks."""
    mailboxes = {read.mailbox} | {row.mailbox for row in rows if row.verb == Verb.MIX and row.source == read.mailbox}
    uses = (row for row in rows if row.verb in (Verb.PUSH, Verb.ADD, Verb.DROP) and row.mailbox in mailboxes)
    return next(uses, None)


def _ways(*places: Slice | None) -> tuple[int, ...]:
    drawn = tuple(each.order for each in places if each is not None)
    return drawn if len(drawn) > 1 else ()


@pytest.mark.parametrize("name", RUNS)
def test_workers_do_what_the_account_of_time_says(outcomes, name):
    part = part_of(outcomes[name].schedule)
    check_workers(Read(trace(part)), part)


@pytest.mark.parametrize("name", RUNS)
def test_flows_lead_where_the_rows_say(outcomes, name):
    read = Read(trace(part_of(outcomes[name].schedule)))
    check_flows(read, outcomes[name].schedule)
    assert read.flows(), "a run in which nothing leads to anything shows nothing"


@pytest.mark.parametrize("name", RUNS)
def test_every_row_is_an_instant_at_its_replica(outcomes, name):
    schedule = outcomes[name].schedule
    found = Read(trace(part_of(schedule))).below("parameters/")
    words = {
        "PULL": "read",
        "PUSH": "update",
        "COMMIT": "update",
        "ADD": "joins a round",
        "SYNC": "averaging",
        "DROP": "dropped",
    }
    rows = {number: row for number, row in enumerate(schedule) if row.verb != Verb.MIX}
    assert sorted((each.facts["row"], each.begin, each.name) for each in found) == [
        (number, row.time_ns, words[Verb(row.verb).name]) for number, row in rows.items()
    ]
    for each in found:
        row = rows[int(each.facts["row"])]
        told = (row.worker, row.step, row.bytes if row.messages else NONE)
        assert tuple(each.facts.get(fact, NONE) for fact in ("worker", "step", "bytes")) == told
    assert len({each.track for each in found}) == len({(row.replica, row.block) for row in rows.values()})


@pytest.mark.parametrize("name", RUNS)
def test_updates_and_staleness_are_counted(outcomes, name):
    schedule = outcomes[name].schedule
    read = Read(trace(part_of(schedule)))
    assert [value for _, value in read.counted("staleness")] == stale_gradients(schedule)
    if not len(schedule.rows(Verb.SYNC)):
        uses = schedule.rows(Verb.PUSH, Verb.ADD)
        columns = schedule["time_ns"][uses], schedule["staleness"][uses]
        assert read.counted("staleness") == list(zip(*(each.tolist() for each in columns), strict=True))
    updates = read.counted("updates")
    assert updates[0] == (0, 0)
    assert updates[-1][1] == schedule.counts()["updates"]
    changes = [row.time_ns for row in schedule if row.verb in (Verb.PUSH, Verb.COMMIT)]
    assert [time for time, _ in updates[1:]] == changes


def test_faults_are_told_when_they_begin_and_for_how_long(outcomes):
    found = Read(trace(part_of(outcomes["faults"].schedule))).below("faults/")
    told = [(each.name, each.begin, each.facts["for, s"]) for each in sorted(found, key=lambda each: each.begin)]
    assert told == [
        ("worker 1 is away", 500_000_000, "0.4"),
        ("server 0 is away", 700_000_000, "0.1"),
        ("worker 3 is away", 1_000_000_000, "for ever"),
    ]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.1, [("to workers", 0, 100_000_000, False)]),
        (1.4, [("to servers", 1_250_000_000, 1_400_000_000, False), ("to workers", 0, 250_000_000, True)]),
        (1.6, [("to servers", 1_250_000_000, 1_500_000_000, True), ("to workers", 0, 250_000_000, True)]),
    ],
)
def test_messages_that_have_not_arrived_when_the_run_ends_say_so(seconds, expected):
    """A gradient takes 1 s, each message 0.25 s."""
    cluster = {"workers": 1, "compute": {"name": "constant", "seconds": 1.0}}
    cluster |= {"network": {"latency": {"name": "constant", "seconds": 0.25}}}
    schedule = execute("run", make_run("asgd", task=None, cluster=cluster, stop={"seconds": seconds}), 1).schedule
    table = messages(schedule)[["way", "begin_ns", "end_ns", "arrived"]]
    assert list(table.itertuples(index=False, name=None))[: len(expected)] == expected
    drawn = Read(trace(part_of(schedule))).below("messages/")
    told = [(each.begin, each.end, "arrives" not in each.facts) for each in drawn]
    assert sorted(told) == sorted(each[1:] for each in table.itertuples(index=False, name=None))


def test_messages_that_overlap_have_tracks_of_one_name_under_one_parent(outcomes):
    """Two servers get a block each from a worker at the same time."""
    read = Read(trace(part_of(outcomes["servers with clocks"].schedule)))
    tracks = [track for track in read.tracks.values() if track.name == "worker 0 sends"]
    assert len(tracks) > 1
    assert len({(track.parent_uuid, track.sibling_order_rank) for track in tracks}) == 1


def test_workers_lie_below_their_nodes(outcomes):
    part = part_of(outcomes["allreduce"].schedule, nodes=2)
    read = Read(trace(part))
    paths = {read.path(each.track) for each in read.below("workers/")}
    assert paths == {f"workers/node {node}/worker {2 * node + each}" for node in (0, 1) for each in (0, 1)}


def test_what_is_known_of_a_gradient_is_told_with_it(outcomes):
    schedule = outcomes["a server"].schedule
    for each in Read(trace(part_of(schedule))).below("workers/"):
        if each.name == "computing" and "row" in each.facts:
            row = list(schedule)[int(each.facts["row"])]
            assert each.facts == {
                "step": row.step,
                "version": row.timestamp,
                "staleness": row.staleness,
                "row": each.facts["row"],
            }
            assert (each.begin, each.end) == (row.begin_ns, row.end_ns)


@pytest.mark.parametrize("name", RUNS)
def test_a_part_has_what_lies_in_it_and_nothing_else(outcomes, name):
    schedule = outcomes[name].schedule
    part = part_of(schedule, schedule.end_ns // 3, schedule.end_ns // 2)
    read, whole = (Read(trace(each)) for each in (part, part_of(schedule)))
    check_workers(read, part)
    read.flows()
    for each in (*read.slices, *read.instants):
        assert part.begin <= each.begin <= each.end <= part.end
    rows = [sorted(int(each.facts["row"]) for each in one.below("parameters/")) for one in (read, whole)]
    times = schedule["time_ns"][rows[1]]
    assert rows[0] == np.array(rows[1])[(times >= part.begin) & (times <= part.end)].tolist()
    assert read.counted("updates")[1:] == [
        (time, value) for time, value in whole.counted("updates")[1:] if part.begin <= time <= part.end
    ]


@given(CLUSTERS, PROTOCOLS, st.integers(0, 3))
@settings(max_examples=25, deadline=None)
def test_random_clusters_are_drawn_as_their_rows_say(cluster, name, seed):
    part = part_of(record(fitting(name, cluster), cluster, gradients=12, seconds=50, seed=seed))
    assume(part.schedule.end_ns)
    read = Read(trace(part))
    check_workers(read, part)
    check_flows(read, part.schedule)


def test_the_same_run_is_the_same_file(outcomes):
    for outcome in outcomes.values():
        assert trace(part_of(outcome.schedule)) == trace(part_of(outcome.schedule))


def test_what_no_browser_takes_is_refused_with_a_part_that_is_less(outcomes, monkeypatch):
    part = part_of(outcomes["a server"].schedule)
    monkeypatch.setattr(perfetto, "MOST", 100)
    with pytest.raises(FredError, match=r"has \d+ slices and instants, .* such as --begin 0 --end") as refusal:
        trace(part)
    end = float(str(refusal.value).rsplit(" ", 1)[1])
    assert Read(trace(part._replace(end=round(end * 1e9)))).slices


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A result of two runs, one of them without a clock."""
    folder = tmp_path_factory.mktemp("export") / "result"
    timed = make_run(task=None, cluster=CLUSTER, stop={"gradients": 20})
    clockless = make_run(task=None, cluster={"workers": 1}, protocol="dispatcher", stop={"updates": 7})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fred.results.figure_files.drawn", lambda *_: contextlib.nullcontext())
        experiment.run(Scenario(title="", seeds=(1, 2), runs={"timed": timed, "clockless": clockless}), out=folder)
    return folder


class TestCommand:
    def test_a_file_is_written_and_written_again(self, folder, tmp_path, capsys):
        arguments = ["export", str(folder), "--only", "timed", "--seed", "2"]
        assert main(arguments) == 0
        out = folder.parent / "result.timed.seed-2.pftrace"
        assert capsys.readouterr().out.startswith(f"{out}: 0.0 MB; open it with https://ui.perfetto.dev")
        written = out.read_bytes()
        schedule = execute("timed", make_run(task=None, cluster=CLUSTER, stop={"gradients": 20}), 2).schedule
        assert written == trace(part_of(schedule)._replace(name="timed, seed 2"))
        assert main([*arguments, "--out", str(out)]) == 0
        assert out.read_bytes() == written
        assert main([*arguments, "--begin", "0.1", "--end", "0.2", "--out", str(tmp_path / "new" / "part")]) == 0
        shown = Read((tmp_path / "new" / "part").read_bytes()).slices
        assert 100_000_000 <= min(each.begin for each in shown) < max(each.end for each in shown) <= 200_000_000

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ([], "has 2 runs; choose one with --only: timed, clockless"),
            (["--only", "timed"], "run `timed` has 2 seeds; choose one with --seed: 1, 2"),
            (["--only", "time", "--seed", "1"], "no run `time` here; did you mean `timed`?; there are timed, clockless"),
            (["--only", "timed", "--seed", "3"], "no run `timed` with seed 3 here; there are seeds 1, 2"),
            (["--only", "clockless", "--seed", "1"], "run `clockless` has no clock, so it has no timeline"),
            (
                ["--only", "timed", "--seed", "1", "--begin", "1e9"],
                "expected an interval of virtual time, in s; run `timed` lasts",
            ),
            (
                ["--only", "timed", "--seed", "1", "--begin", "0.2", "--end", "0.1"],
                "--begin 0.2 --end 0.1: expected an interval",
            ),
            (["--only", "timed", "--seed", "1", "--end", "nan"], "expected an interval"),
            (
                ["--only", "timed", "--seed", "1", "--out", "mine"],
                "mine is there already, and not what this command writes; choose another place with --out, or remove it",
            ),
            (
                ["--only", "timed", "--seed", "1", "--out", "mine/new"],
                "mine is not a folder; choose another place with --out",
            ),
        ],
    )
    def test_what_cannot_be_is_said_in_one_line_and_nothing_is_written(
        self, folder, tmp_path, monkeypatch, capsys, arguments, message
    ):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "mine").write_text("my own")
        before = sorted(folder.parent.rglob("*"))
        assert main(["export", str(folder), *arguments]) == 2
        said = capsys.readouterr()
        assert message in said.err
        assert said.err.startswith("fred: ") and said.err.count("\n") == 1 and not said.out
        assert [each.name for each in tmp_path.iterdir()] == ["mine"] and (tmp_path / "mine").read_text() == "my own"
        assert sorted(folder.parent.rglob("*")) == before
