"""The trace for Perfetto, read back by the official schema as Perfetto reads it, against what the schedule says row by row."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent

from fred import FredError, spans
from fred.results import experiment
from fred.running.execution import execute
from fred.schedule.schedule import NONE, Row, Schedule, Verb, What
from fred.schedule.traffic import messages
from fred.specification.loading import Scenario
from fred.views import perfetto
from fred.views.perfetto import Part, trace
from tests.program import fred_command, refusal
from tests.worlds import CLUSTERS, COMPUTE, PROTOCOLS, constant, fitting_protocol, make_run, outcome, record, stale_gradients

NETWORK = {"latency": {"name": "constant", "seconds": 0.03}, "bandwidth": 1e5}
CLUSTER: dict[str, Any] = {"workers": 4, "compute": COMPUTE, "network": NETWORK}
SIZED = CLUSTER | {"network": NETWORK | {"message_bytes": 1000}}
TWO_SERVERS = CLUSTER | {"servers": 2}
OUTAGES = [
    {"name": "outage", "workers": [1], "begin": 0.5, "end": 0.9},
    {"name": "outage", "servers": [0], "begin": 0.7, "end": 0.8},
    {"name": "outage", "workers": [3], "begin": 1.0},
]
BY_LAYERS = {"name": "asynchronous", "clocks": "each", "cut": "layers", "overlap": True}
RUNS: dict[str, dict[str, Any]] = {
    "a server": {},
    "no network": {"cluster": {"workers": 4, "compute": COMPUTE}},
    "faults": {"cluster": {**CLUSTER, "faults": OUTAGES}},
    "clocks": {"protocol": {"name": "stale-synchronous", "bound": 2, "clocks": "each"}, "cluster": TWO_SERVERS},
    "layer by layer": {"protocol": BY_LAYERS, "cluster": TWO_SERVERS},
    "backup": {"algorithm": "ssgd", "protocol": {"name": "synchronous", "backup_workers": 1, "late": "interrupt"}},
    "clients": {"algorithm": "fedavg", "protocol": {"name": "client-rounds", "clients": 2}},
    "gossip": {"algorithm": "d-psgd"},
    "gossip one way": {"algorithm": "sgp"},
    "pairs": {"algorithm": "ad-psgd"},
    "allreduce": {"algorithm": "allreduce-sgd", "cluster": {**CLUSTER, "nodes": 2}},
}
GRADIENTS = (Verb.PUSH, Verb.ADD, Verb.DROP)
WORDS = {"PULL": "read", "PUSH": "update", "COMMIT": "update", "ADD": "joins a round", "SYNC": "averaging", "DROP": "dropped"}


@dataclass
class Slice:
    """A slice or an instant of a track; an instant has no length."""

    track: int
    name: str
    facts: dict[str, int | str]
    begin: int
    order: int  # in time, then in the file
    end: int
    passing: list[int]
    ending: list[int]


class Read:
    """A trace, as Perfetto's trace processor reads it: by time and then as in the file, slices of a track on a stack."""

    def __init__(self, content: bytes):
        packets = list(Trace.FromString(content).packet)
        assert packets[0].sequence_flags == TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        assert {packet.trusted_packet_sequence_id for packet in packets} == {1}
        self.tracks, self.names, self.facts = dict[int, Any](), dict[int, str](), dict[int, str]()
        self.slices, self.instants, self.counts = list[Slice](), list[Slice](), defaultdict[int, list](list)
        events = []
        for packet in packets:  # tracks and names come before their first use
            if packet.HasField("track_descriptor"):
                self._describe(packet.track_descriptor)
            elif packet.HasField("track_event"):
                self._learn(packet)
                events.append(packet)
        stacks = defaultdict[int, list[Slice]](list)
        for order, packet in enumerate(sorted(events, key=lambda packet: packet.timestamp)):
            self._take(packet.track_event, packet.timestamp, order, stacks[packet.track_event.track_uuid])
        assert not any(stacks.values()), "every slice ends"

    def _describe(self, track: Any) -> None:
        assert track.uuid > 0 and track.uuid not in self.tracks and track.name
        assert track.parent_uuid in self.tracks or not self.tracks, "one is on top, parents come first"
        assert track.child_ordering == track.EXPLICIT
        self.tracks[track.uuid] = track

    def _learn(self, packet: TracePacket) -> None:
        assert packet.HasField("timestamp")
        event, new = packet.track_event, packet.interned_data
        for names, interned in ((self.names, new.event_names), (self.facts, new.debug_annotation_names)):
            for entry in interned:
                assert entry.iid > 0 and entry.iid not in names and entry.name not in names.values()
                names[entry.iid] = entry.name
        if event.name_iid:
            assert packet.sequence_flags == TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
            assert event.name_iid in self.names
            assert all(annotation.name_iid in self.facts for annotation in event.debug_annotations)
        assert self.tracks[event.track_uuid].HasField("counter") == (event.type == TrackEvent.TYPE_COUNTER)

    def _take(self, event: TrackEvent, time: int, order: int, stack: list[Slice]) -> None:
        if event.type == TrackEvent.TYPE_COUNTER:
            self.counts[event.track_uuid].append((time, event.counter_value))
        elif event.type == TrackEvent.TYPE_SLICE_END:
            stack.pop().end = time
        else:
            annotations = event.debug_annotations
            facts = {
                self.facts[annotation.name_iid]: getattr(annotation, str(annotation.WhichOneof("value")))
                for annotation in annotations
            }
            flows = list(event.flow_ids), list(event.terminating_flow_ids)
            span = Slice(event.track_uuid, self.names[event.name_iid], facts, time, order, time, *flows)
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                assert not stack, "no slices above each other: what overlaps has a track of its own"
                stack.append(span)
            (self.slices if event.type == TrackEvent.TYPE_SLICE_BEGIN else self.instants).append(span)

    def path(self, track: int) -> str:
        """The names of a track and of all above it, but for the one on top."""
        parent = self.tracks[track].parent_uuid
        return f"{self.path(parent)}/{self.tracks[track].name}".removeprefix("/") if parent else ""

    def below(self, path: str) -> list[Slice]:
        return [event for event in (*self.slices, *self.instants) if f"{self.path(event.track)}/".startswith(path)]

    def counter_values(self, name: str) -> list:
        (track,) = (uuid for uuid, track in self.tracks.items() if track.name == name and track.HasField("counter"))
        return self.counts[track]

    def flows(self) -> dict[int, list[Slice]]:
        """Return the stations of each flow in order; it begins once, ends once, and goes forward in time."""
        flows = defaultdict[int, list[Slice]](list)
        for event in sorted((*self.slices, *self.instants), key=lambda event: event.order):
            for flow in (*event.passing, *event.ending):
                flows[flow].append(event)
        for flow, places in flows.items():
            assert len(places) > 1
            assert [flow in place.ending for place in places] == [False] * (len(places) - 1) + [True]
            assert all(place.begin <= other.begin for place, other in pairwise(places))
        return flows


def part_of(schedule: Schedule, begin: int = 0, end: int | None = None, nodes: int = 1) -> Part:
    return Part(schedule, "run", np.arange(schedule.workers) * nodes // schedule.workers, begin, end or schedule.end_ns)


@pytest.fixture(scope="module")
def schedules() -> dict[str, Schedule]:
    usual = {"task": None, "cluster": CLUSTER, "stop": {"gradients": 40}}
    return {name: execute("run", make_run(**{**usual, **run}), 1).schedule for name, run in RUNS.items()}


def check_workers(read: Read, part: Part) -> None:
    expected, slices = defaultdict[str, list](list), defaultdict[str, list](list)
    for worker, begin, end, kind in spans(part.schedule)[["worker", "begin_ns", "end_ns", "kind"]].itertuples(index=False):
        begin, end = max(begin, part.begin), min(end, part.end)
        if begin < end:
            expected[f"workers/worker {worker}"].append((begin, end, kind.replace("_", " ")))
    for event in read.below("workers/"):
        slices[read.path(event.track)].append((event.begin, event.end, event.name))
    assert slices == expected


def check_flows(read: Read, schedule: Schedule) -> None:
    flows, rows = read.flows(), list(schedule)
    instants = {event.facts["row"]: event for event in read.below("parameters/")}
    sent = [event for event in read.below("messages/") if "row" in event.facts]
    served = {event.facts["row"]: event for event in sent if "server" in str(event.facts.get("to", event.facts.get("from")))}
    computing = [event for event in read.slices if event.name in ("computing", "wasted")]
    worker_of = {id(event): int(read.path(event.track).rsplit(" ", 1)[1]) for event in computing}
    by_end, by_begin = ({(worker_of[id(event)], getattr(event, at)): event for event in computing} for at in ("end", "begin"))
    expected = Counter[tuple[int, ...]]()
    for number, row in enumerate(rows):
        if row.verb in GRADIENTS:
            source = by_end.get((row.worker, row.end_ns))
            if source is None and row.begin_ns < row.end_ns:  # differences of models take no time
                source = by_begin.get((row.worker, row.begin_ns))
            expected[_ways(source, served.get(number), instants[number])] += 1
        elif row.verb == Verb.PULL and row.replica in schedule.on_servers:
            use = _first_use(rows, row)
            target = None if use is None or use.begin_ns < row.end_ns else by_begin.get((row.worker, use.begin_ns))
            expected[_ways(instants[number], served.get(number), target)] += 1
    expected.pop((), None)
    arrivals = {event.order for event in read.instants} - {event.order for event in instants.values()}
    trips = [places for places in flows.values() if places[-1].order in arrivals]
    paths = Counter(tuple(event.order for event in places) for places in flows.values() if places[-1].order not in arrivals)
    assert paths == expected
    arrows = [
        (source_event.begin, other.begin, read.path(source_event.track), read.path(other.track))
        for source_event, other in trips
    ]
    models = zip(*map(np.ndarray.tolist, schedule.intervals.select(What.TRIP)), strict=True)  # of the sender, to the receiver
    assert sorted(arrows) == sorted(
        (begin, end, f"messages/worker {sender} sends", f"messages/worker {receiver} receives")
        for _, begin, end, _, sender, receiver in models
        if sender != NONE and (end < schedule.end_ns or begin == end)
    )


def _first_use(rows: list[Row], read: Row) -> Row | None:
    mailboxes = {read.mailbox} | {row.mailbox for row in rows if row.verb == Verb.MIX and row.source == read.mailbox}
    return next((row for row in rows if row.verb in GRADIENTS and row.mailbox in mailboxes), None)


def _ways(*places: Slice | None) -> tuple[int, ...]:
    path = tuple(place.order for place in places if place is not None)
    return path if len(path) > 1 else ()


def check_rows(read: Read, schedule: Schedule) -> None:
    instants = read.below("parameters/")
    rows = {number: row for number, row in enumerate(schedule) if row.verb != Verb.MIX}
    expected = [(number, row.time_ns, WORDS[Verb(row.verb).name]) for number, row in rows.items()]
    assert sorted((event.facts["row"], event.begin, event.name) for event in instants) == expected
    for event in instants:
        row = rows[int(event.facts["row"])]
        facts = (row.worker, row.step, row.bytes if row.messages else NONE)
        assert tuple(event.facts.get(fact, NONE) for fact in ("worker", "step", "bytes")) == facts
    assert len({event.track for event in instants}) == len({(row.replica, row.block) for row in rows.values()})


def check_counts(read: Read, schedule: Schedule) -> None:
    assert [value for _, value in read.counter_values("staleness")] == stale_gradients(schedule)
    uses = schedule.rows(Verb.PUSH, Verb.ADD)
    columns = (schedule[name][uses].tolist() for name in ("time_ns", "staleness"))
    assert len(schedule.rows(Verb.SYNC)) or read.counter_values("staleness") == list(zip(*columns, strict=True))
    updates, changes = read.counter_values("updates"), [row.time_ns for row in schedule if row.verb in (Verb.PUSH, Verb.COMMIT)]
    assert (updates[0], updates[-1][1]) == ((0, 0), schedule.counts()["updates"])
    assert [time for time, _ in updates[1:]] == changes


def check_part(full: Read, schedule: Schedule) -> None:
    part = part_of(schedule, schedule.end_ns // 3, schedule.end_ns // 2)
    read = Read(trace(part))
    check_workers(read, part)
    read.flows()
    assert all(part.begin <= event.begin <= event.end <= part.end for event in (*read.slices, *read.instants))
    part_rows, rows = (
        np.sort([event.facts["row"] for event in source.below("parameters/")]).astype(int) for source in (read, full)
    )
    times = schedule["time_ns"][rows]
    assert part_rows.tolist() == rows[(times >= part.begin) & (times <= part.end)].tolist()
    inside = [(time, value) for time, value in full.counter_values("updates")[1:] if part.begin <= time <= part.end]
    assert read.counter_values("updates")[1:] == inside


@pytest.mark.parametrize("name", RUNS)
def test_workers_flows_rows_and_counts_are_drawn_as_the_schedule_says(schedules, name):
    schedule = schedules[name]
    part = part_of(schedule)
    read = Read(content := trace(part))
    assert content == trace(part), "the same run is the same file"
    assert read.flows(), "a run in which nothing leads to anything shows nothing"
    check_workers(read, part)
    check_flows(read, schedule)
    check_rows(read, schedule)
    check_counts(read, schedule)
    check_part(read, schedule)
    assert name != "clients" or (b"of all workers" in content and b"of the server" in content)


@given(CLUSTERS, PROTOCOLS, st.integers(0, 3))
def test_random_clusters_are_drawn_as_their_rows_say(cluster, name, seed):
    part = part_of(record(fitting_protocol(name, cluster), cluster, gradients=12, seconds=50, seed=seed))
    assume(part.schedule.end_ns)
    read = Read(trace(part))
    check_workers(read, part)
    check_flows(read, part.schedule)


def test_faults_are_instants_with_their_durations(schedules):
    faults = sorted(Read(trace(part_of(schedules["faults"]))).below("faults/"), key=lambda event: event.begin)
    assert [(event.name, event.begin, event.facts["for, s"]) for event in faults] == [
        ("worker 1 is away", 500_000_000, "0.4"),
        ("server 0 is away", 700_000_000, "0.1"),
        ("worker 3 is away", 1_000_000_000, "for ever"),
    ]


def test_messages_that_have_not_arrived_when_the_run_ends_say_so():
    """A gradient takes 1 s, each message 0.25 s."""
    cluster = constant(1.0, network={"latency": {"name": "constant", "seconds": 0.25}})
    request = ("to workers", 0, 250_000_000, True)
    arrival, end = ("to servers", 1_250_000_000, 1_500_000_000, True), ("to servers", 1_250_000_000, 1_400_000_000, False)
    for seconds, expected in ((0.1, [("to workers", 0, 100_000_000, False)]), (1.4, [end, request]), (1.6, [arrival, request])):
        schedule = outcome("asgd", task=None, cluster=cluster, stop={"seconds": seconds}).schedule
        rows = list(messages(schedule)[["way", "begin_ns", "end_ns", "arrived"]].itertuples(index=False, name=None))
        assert rows[: len(expected)] == expected
        events = Read(trace(part_of(schedule))).below("messages/")
        assert sorted((event.begin, event.end, "arrives" not in event.facts) for event in events) == sorted(
            row[1:] for row in rows
        )


def test_messages_that_overlap_have_tracks_of_one_name_under_one_parent_and_workers_lie_below_their_nodes(schedules):
    """Two servers get a block each from a worker at the same time."""
    read = Read(trace(part_of(schedules["clocks"])))
    tracks = [track for track in read.tracks.values() if track.name == "worker 0 sends"]
    assert len(tracks) > 1 == len({(track.parent_uuid, track.sibling_order_rank) for track in tracks})
    read = Read(trace(part_of(schedules["allreduce"], nodes=2)))
    expected = {f"workers/node {node}/worker {2 * node + number}" for node in (0, 1) for number in (0, 1)}
    assert {read.path(event.track) for event in read.below("workers/")} == expected


def test_a_computation_has_the_facts_of_its_gradient(schedules):
    rows = list(schedules["a server"])
    slices = [event for event in Read(trace(part_of(schedules["a server"]))).below("workers/") if event.name == "computing"]
    for event in (event for event in slices if "row" in event.facts):
        row = rows[int(event.facts["row"])]
        facts = {"step": row.step, "version": row.timestamp, "staleness": row.staleness, "row": event.facts["row"]}
        assert (event.facts, event.begin, event.end) == (facts, row.begin_ns, row.end_ns)


def test_a_trace_that_is_too_large_for_a_browser_is_refused_with_a_smaller_part(schedules, monkeypatch):
    part = part_of(schedules["a server"])
    monkeypatch.setattr(perfetto, "MOST_EVENTS", 100)
    with pytest.raises(FredError, match=r"has \d+ slices and instants, .* such as --begin 0 --end") as refused:
        trace(part)
    end = float(str(refused.value).rsplit(" ", 1)[1])
    assert Read(trace(part._replace(end=round(end * 1e9)))).slices


class TestCommand:
    @pytest.fixture
    def folder(self, tmp_path, undrawn) -> Path:
        timed = make_run(task=None, cluster=SIZED, stop={"gradients": 20})
        clockless = make_run(task=None, cluster={"workers": 1}, protocol="dispatcher", stop={"updates": 7})
        out = tmp_path / "results" / "result"
        experiment.run(Scenario(title="", seeds=(1, 2), runs={"timed": timed, "clockless": clockless}), out=out)
        return out

    def test_a_file_is_written_and_written_again(self, folder, tmp_path):
        arguments = ["export", folder, "--only", "timed", "--seed", "2"]
        out = folder.parent / "result.timed.seed-2.pftrace"
        assert fred_command(*arguments).out.startswith(f"{out}: 0.0 MB; open it with https://ui.perfetto.dev")
        run, content = make_run(task=None, cluster=SIZED, stop={"gradients": 20}), out.read_bytes()
        assert content == trace(part_of(execute("timed", run, 2).schedule)._replace(name="timed, seed 2"))
        assert fred_command(*arguments, "--out", out).code == 0 and out.read_bytes() == content
        assert fred_command(*arguments, "--begin", 0.1, "--end", 0.2, "--out", tmp_path / "new" / "part").code == 0
        slices = Read((tmp_path / "new" / "part").read_bytes()).slices
        assert 100_000_000 <= min(event.begin for event in slices) < max(event.end for event in slices) <= 200_000_000

    def test_what_cannot_be_exported_is_refused_in_one_line_and_nothing_is_written(self, folder, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "mine").write_text("my own")
        before = sorted(tmp_path.rglob("*"))
        elsewhere = "choose another place with --out"
        for arguments, message in {
            "": "has 2 runs; choose one with --only: timed, clockless",
            "--only timed": "run `timed` has 2 seeds; choose one with --seed: 1, 2",
            "--only time --seed 1": "no run `time` here; did you mean `timed`?; there are timed, clockless",
            "--only timed --seed 3": "no run `timed` with seed 3 here; there are seeds 1, 2",
            "--only clockless --seed 1": "run `clockless` has no clock, so it has no timeline",
            "--only timed --seed 1 --begin 1e9": "expected an interval of virtual time, in s; run `timed` lasts",
            "--only timed --seed 1 --begin 0.2 --end 0.1": "--begin 0.2 --end 0.1: expected an interval",
            "--only timed --seed 1 --end nan": "expected an interval",
            "--only timed --seed 1 --out mine": f"mine is there already, and not what this command writes; {elsewhere}, or remove it",
            "--only timed --seed 1 --out mine/new": f"mine is not a folder; {elsewhere}",
        }.items():
            line = refusal("export", folder, *arguments.split())
            assert line.startswith("fred: ") and message in line, line
            assert sorted(tmp_path.rglob("*")) == before and (tmp_path / "mine").read_text() == "my own"
