"""The packets of which a Perfetto trace consists: tracks, with slices, instants and counts, and the flows between these."""

from collections.abc import Iterable, Sequence

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackDescriptor, TrackEvent

_SEQUENCE = 1  # all packets have the same sequence, so each name is written once
_BATCH = 20_000  # packets in memory before they are serialized
_INTERNED = TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
_BEGIN, _END, _INSTANT, _COUNTER = (
    TrackEvent.TYPE_SLICE_BEGIN,
    TrackEvent.TYPE_SLICE_END,
    TrackEvent.TYPE_INSTANT,
    TrackEvent.TYPE_COUNTER,
)
Facts = Iterable[tuple[str, int | str]]  # annotations of an event: names and values
_Flows = Sequence[int]  # numbers of flows


class Packets:
    """A Perfetto trace under construction: tracks by number, with slices, instants and counts. Times are in ns.

    Events at the same time on one track, and flows, keep the order in which they are added.
    >>> packets = Packets()
    >>> worker = packets.track("worker 0")
    >>> packets.slice(worker, 0, 1_000_000, "computing", [("step", 0)])
    >>> packets.serialize().startswith(HEAD)
    True
    """

    def __init__(self) -> None:
        self._trace, self._pieces = Trace(), list[bytes]()
        self._names, self._facts = dict[str, int](), dict[str, int]()  # numbers by the names of events, and of annotations
        self._tracks = 0
        self._waiting = 0  # packets that are not serialized yet
        first = self._packet()
        first.trace_attributes.attribute.add(key="written by", string_value="fred")
        first.sequence_flags = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED

    def track(self, name: str, parent: int = 0, rank: int = 0, unit: str | None = None) -> int:
        """Add a track and return its number.

        Args:
            name: name of the track; tracks with the same parent and name are shown as one, whose slices may overlap.
            parent: number of the parent track; 0: none.
            rank: place under the parent.
            unit: unit of a counter track; None: the track has slices and instants.
        """
        self._tracks += 1
        track = self._packet().track_descriptor
        track.uuid, track.name, track.child_ordering = self._tracks, name, TrackDescriptor.EXPLICIT
        if parent:
            track.parent_uuid, track.sibling_order_rank = parent, rank
        if unit is not None:
            track.counter.unit_name = unit
        return self._tracks

    def slice(
        self, track: int, begin: int, end: int, name: str, facts: Facts = (), passing: _Flows = (), ending: _Flows = ()
    ) -> None:
        """Add an event with a duration, the flows that begin there or pass it, and those that end there."""
        self._add_event(_BEGIN, track, begin, name, facts, passing, ending)
        self._add_bare_event(_END, track, end)

    def instant(self, track: int, time: int, name: str, facts: Facts = (), passing: _Flows = (), ending: _Flows = ()) -> None:
        """Add an event without a duration, with its flows."""
        self._add_event(_INSTANT, track, time, name, facts, passing, ending)

    def count(self, track: int, time: int, value: int) -> None:
        """Set the value of a counter track from this time on."""
        self._add_bare_event(_COUNTER, track, time).counter_value = value

    def serialize(self) -> bytes:
        """Return the whole trace as bytes."""
        self._flush()
        return b"".join(self._pieces)

    def _packet(self) -> TracePacket:
        if self._waiting == _BATCH:
            self._flush()
        self._waiting += 1
        packet = self._trace.packet.add()
        packet.trusted_packet_sequence_id = _SEQUENCE
        return packet

    def _flush(self) -> None:
        """Serialize the waiting packets; concatenated traces form one trace."""
        self._pieces.append(self._trace.SerializeToString(deterministic=True))
        self._trace.Clear()
        self._waiting = 0

    def _add_bare_event(self, kind: "TrackEvent.Type", track: int, time: int) -> TrackEvent:
        packet = self._packet()
        packet.timestamp = time
        event = packet.track_event
        event.type, event.track_uuid = kind, track
        return event

    def _add_event(
        self, kind: "TrackEvent.Type", track: int, time: int, name: str, facts: Facts, passing: _Flows, ending: _Flows
    ) -> None:
        packet = self._packet()
        packet.timestamp, packet.sequence_flags = time, _INTERNED
        event = packet.track_event
        event.type, event.track_uuid = kind, track
        event.name_iid = self._names.get(name) or self._intern_name(packet, name)
        add = event.debug_annotations.add
        for fact, value in facts:
            annotation = add()
            annotation.name_iid = self._facts.get(fact) or self._intern_fact(packet, fact)
            if type(value) is str:
                annotation.string_value = value
            else:
                annotation.int_value = value
        if passing:
            event.flow_ids.extend(passing)
        if ending:
            event.terminating_flow_ids.extend(ending)

    def _intern_name(self, packet: TracePacket, name: str) -> int:
        """Return a new number for a name, and write the name into this packet, the first that uses it."""
        number = self._names[name] = len(self._names) + 1
        packet.interned_data.event_names.add(iid=number, name=name)
        return number

    def _intern_fact(self, packet: TracePacket, name: str) -> int:
        """Return a new number for the name of an annotation, and write the name into this packet."""
        number = self._facts[name] = len(self._facts) + 1
        packet.interned_data.debug_annotation_names.add(iid=number, name=name)
        return number


HEAD = Packets().serialize()  # the first bytes of every trace that FRED writes
