"""The way from rows to a program: the ledger, slots, versions, phases; each against a plain count of the same."""

import itertools
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fred.cluster.cluster import Cluster
from fred.protocols.asynchronous import Asynchronous
from fred.protocols.dispatcher import Dispatcher
from fred.protocols.gossip import Gossip
from fred.protocols.synchronous import Synchronous
from fred.replay.hooks import Hooks, padded
from fred.replay.lower import lower
from fred.replay.phases import LONGEST_PHASE, Code, How, Kind, Op, Program
from fred.replay.versions import assign_slots
from fred.schedule.schedule import NONE, Schedule, Verb
from tests.worlds import CLUSTERS, COMPUTE, PROTOCOLS, fitting, record

INTERVALS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=25)


@given(INTERVALS)
def test_slots_are_never_shared_and_as_few_as_are_needed_at_once(intervals):
    begin = np.array([start for start, _ in intervals], np.int64)
    end = np.array([start + 1 + length for start, length in intervals], np.int64)
    slots = assign_slots(begin, end)
    for one, other in itertools.combinations(range(len(intervals)), 2):
        apart = end[one] <= begin[other] or end[other] <= begin[one]
        assert apart or slots[one] != slots[other], "two share a slot"
    most = max((int(((begin <= row) & (row < end)).sum()) for row in range(40)), default=0)
    assert len(set(slots.tolist())) == most


@given(protocol=PROTOCOLS, cluster=CLUSTERS, seed=st.integers(0, 99))
def test_the_ledger_is_what_a_walk_through_the_rows_finds(protocol, cluster, seed):
    schedule = record(fitting(protocol, cluster), cluster, gradients=50, seed=seed)
    ledger = schedule.ledger
    gradients: dict[tuple[int, int], int] = {}
    rounds: dict[tuple[int, int], list[int]] = {}
    updates: dict[int, int] = {}  # use -> row of its update
    dropped = set()
    for number, row in enumerate(schedule):
        cell = row.replica, row.block
        if row.verb in (Verb.PUSH, Verb.ADD):
            if row.step != NONE:  # else it is a difference of models
                gradients.setdefault((row.worker, row.step), len(gradients))
            rounds.setdefault(cell, []).append(number)
        if row.verb == Verb.PUSH:
            updates[rounds[cell].pop()] = number
        elif row.verb == Verb.COMMIT:
            updates |= dict.fromkeys(rounds.pop(cell), number)
        elif row.verb == Verb.DROP:
            dropped.add((row.worker, row.step))
    assert list(zip(ledger.workers.tolist(), ledger.steps.tolist(), strict=True)) == list(gradients)
    keys = [(schedule["worker"][use], schedule["step"][use]) for use in ledger.uses]
    assert ledger.gradients.tolist() == [gradients.get(key, NONE) for key in keys]
    assert ledger.updates.tolist() == [updates.get(use, NONE) for use in ledger.uses.tolist()]
    assert ledger.dropped == len(dropped - gradients.keys())
    first: dict[int, int] = {}
    for use, gradient in zip(ledger.uses.tolist(), ledger.gradients.tolist(), strict=True):
        if use in updates and gradient != NONE:
            first[gradient] = min(first.get(gradient, updates[use]), updates[use])
    assert ledger.applied.tolist() == [first.get(gradient, NONE) for gradient in range(len(gradients))]
    assert ledger.gradients_per_update().sum() == len(first)


def program_of(schedule: Schedule, **options: Any) -> Program:
    return lower(schedule, np.array([len(schedule)]), (0,) * schedule.blocks, **options)


def instructions(program: Program) -> dict[str, int]:
    """Count the instructions of each kind."""
    return {f"{kind.op.name} {kind.how.name}": len(next(iter(program.operands[kind].values()))) for kind in program.kinds}


class TestWhereGradientsAreComputed:
    COMPUTE = {"name": "constant", "seconds": 0.1}

    def test_one_worker_never_keeps_anything(self):
        program = program_of(record(Asynchronous(), Cluster(workers=1, compute=self.COMPUTE), gradients=20))
        assert instructions(program) == {"APPLY GRADIENT": 20}
        assert (program.kept, program.slots, program.registers) == (0, 0, (1,))

    def test_several_workers_keep_a_gradient_each_beside_the_one_in_use(self):
        program = program_of(record(Asynchronous(), Cluster(workers=5, compute=self.COMPUTE), gradients=40))
        counts = instructions(program)
        assert counts["APPLY GRADIENT"] + counts["APPLY KEPT"] == 40
        assert counts["BEGIN NOTHING"] == counts["APPLY KEPT"]
        assert program.kept <= 5
        assert program.registers == (1,), "versions of the parameters are not kept"

    def test_rounds_at_the_present_version_are_batches(self):
        program = program_of(record(Synchronous(), Cluster(workers=6, compute=COMPUTE), gradients=60))
        assert instructions(program) == {"COMMIT GRADIENT": 10}
        (kind,) = program.kinds
        assert (kind.members, kind.masked) == (6, False)

    def test_rounds_of_one_missing_are_masked(self):
        schedule = record(Synchronous(backup_workers=3), Cluster(workers=16, compute=COMPUTE), gradients=130)
        (kind,) = program_of(schedule).kinds
        assert (kind.op, kind.how, kind.members, kind.masked) == (Op.COMMIT, How.GRADIENT, padded(13, 16), True)

    def test_messages_have_to_be_made_one_by_one_where_the_algorithm_wants_it(self):
        schedule = record(Synchronous(), Cluster(workers=4, compute=COMPUTE), gradients=40)
        assert instructions(program_of(schedule, hooks=Hooks(contributes=True))) == {"ADD GRADIENT": 40, "COMMIT SUM": 10}

    def test_replicas_that_averaged_share_a_version(self):
        program = program_of(record(Gossip(), Cluster(workers=3, compute=self.COMPUTE), gradients=30))
        assert program.registers[0] >= 3
        assert len(set(program.replica_registers[-1])) in (1, 3)

    def test_a_turn_is_an_update_and_the_gradient_begun_after_it(self):
        schedule = record(Dispatcher(), Cluster(workers=4), gradients=50)
        kept, turned = (instructions(program_of(schedule, turns=turns)) for turns in (False, True))
        assert turned["TURN KEPT"] > 25
        assert kept["APPLY KEPT"] < 50, "some gradients are used at once"
        assert turned["TURN KEPT"] + turned.get("APPLY KEPT", 0) == 50, "and are begun and kept like the others"
        assert turned["TURN KEPT"] + turned.get("BEGIN NOTHING", 0) == 50


class TestPhases:
    ONE, TWO = Kind(Op.APPLY, How.KEPT), Kind(Op.BEGIN)

    def program(self, order: str, marks: tuple[int, ...] = ()) -> tuple:
        """Instructions in the order of letters: a and b; operands say where each stands."""
        code = Code()
        for letter, kind in (("a", self.ONE), ("b", self.TWO)):
            rows = np.array([number for number, each in enumerate(order) if each == letter], np.int64)
            code.emit(kind, rows, 0, place=rows)
        return code.phases(np.array([*marks, len(order)]), turns=False)

    def executed(self, kinds: tuple, operands: dict, offsets: np.ndarray, end: int) -> list[int]:
        """Return the places of the instructions of these phases, in the machine's order."""
        order = []
        for phase in range(end):
            for k, kind in enumerate(kinds):
                order += operands[kind]["place"][offsets[phase, k] : offsets[phase + 1, k]].tolist()
        return order

    def test_they_run_instructions_in_their_order_and_are_as_few_as_it_allows(self):
        for order, number in (("ab" * 5, 5), ("ba" * 5, 6), ("aaabbb", 1), ("bbbaaa", 2), ("a", 1), ("abbbaab" * 60, None)):
            kinds, operands, offsets, marks = self.program(order)
            assert self.executed(kinds, operands, offsets, marks[-1]) == list(range(len(order)))
            assert number in (None, marks[-1]), order

    def test_they_end_at_marks_and_do_not_get_too_long(self):
        kinds, operands, offsets, marks = self.program("ab" * 5, marks=(3, 4))
        assert [self.executed(kinds, operands, offsets, mark) for mark in marks] == [list(range(n)) for n in (3, 4, 10)]
        *_, offsets, marks = self.program("a" * 1000)
        assert np.diff(offsets[:, 0]).max() <= LONGEST_PHASE
