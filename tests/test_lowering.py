"""The way from rows to a program: slots against a plain count, and where gradients are computed."""

import itertools
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fred.cluster.cluster import Cluster
from fred.protocols.asynchronous import Asynchronous, Dispatcher
from fred.protocols.synchronous import Synchronous
from fred.replay.lower import lower
from fred.replay.phases import Hooks, How, Op, Program, padded
from fred.replay.versions import assign_slots
from fred.schedule.schedule import Schedule
from tests.worlds import COMPUTE, record


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=25))
def test_slots_are_never_shared_and_as_few_as_are_needed_at_once(intervals):
    begin = np.array([start for start, _ in intervals], np.int64)
    end = np.array([start + 1 + length for start, length in intervals], np.int64)
    slots = assign_slots(begin, end)
    for i, j in itertools.combinations(range(len(intervals)), 2):
        disjoint = end[i] <= begin[j] or end[j] <= begin[i]
        assert disjoint or slots[i] != slots[j], "two share a slot"
    most = max((int(((begin <= row) & (row < end)).sum()) for row in range(40)), default=0)
    assert len(set(slots.tolist())) == most


def program_of(schedule: Schedule, **options: Any) -> Program:
    return lower(schedule, np.array([len(schedule)]), (0,) * schedule.blocks, **options)


def instructions(program: Program) -> dict[str, int]:
    return {f"{kind.op.name} {kind.how.name}": len(next(iter(program.operands[kind].values()))) for kind in program.kinds}


EQUAL = {"name": "constant", "seconds": 0.1}


def test_gradients_at_the_present_version_are_computed_where_they_are_used():
    for protocol, workers, gradients, hooks, expected in (
        (Asynchronous(), 1, 20, Hooks(), {"APPLY GRADIENT": 20}),  # nothing is kept
        (Synchronous(), 6, 60, Hooks(), {"COMMIT GRADIENT": 10}),  # a batch a round
        (Synchronous(), 4, 40, Hooks(contributes=True), {"ADD GRADIENT": 40, "COMMIT SUM": 10}),  # each message has a rule
    ):
        program = program_of(record(protocol, Cluster(workers=workers, compute=EQUAL), gradients=gradients), hooks=hooks)
        assert instructions(program) == expected
        assert (program.pending, program.slots, program.registers) == (0, 0, (1,))


def test_rounds_of_one_missing_are_masked():
    schedule = record(Synchronous(backup_workers=3), Cluster(workers=16, compute=COMPUTE), gradients=130)
    (kind,) = program_of(schedule).kinds
    assert (kind.op, kind.how, kind.members, kind.masked) == (Op.COMMIT, How.GRADIENT, padded(13, 16), True)


def test_several_workers_keep_a_gradient_each_and_no_versions_of_the_parameters():
    program = program_of(record(Asynchronous(), Cluster(workers=5, compute=EQUAL), gradients=40))
    counts = instructions(program)
    assert (counts["APPLY GRADIENT"] + counts["APPLY PENDING"], counts["BEGIN NOTHING"]) == (40, counts["APPLY PENDING"])
    assert program.pending <= 5 and program.registers == (1,)


def test_a_turn_is_an_update_and_the_gradient_begun_after_it():
    schedule = record(Dispatcher(), Cluster(workers=4), gradients=50)
    separate, turned = (instructions(program_of(schedule, turns=turns)) for turns in (False, True))
    assert turned["TURN PENDING"] > 25 and separate["APPLY PENDING"] < 50, "some gradients are used at once"
    assert {turned["TURN PENDING"] + turned.get(other, 0) for other in ("APPLY PENDING", "BEGIN NOTHING")} == {50}
