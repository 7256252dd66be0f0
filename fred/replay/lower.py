"""Schedule -> program: the instructions for each row, in order. NumPy only."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fred.base.types import Ints
from fred.replay.phases import Code, Hooks, How, Kind, Op, Program, padded
from fred.replay.versions import Messages, Uses, trace
from fred.schedule.schedule import NONE, Schedule, Verb

_BEFORE, _ITSELF, _AFTER = 0, 1, 2  # the order of the instructions of one row
_MAX_UNROLLED = 4  # sources of a mix that are summed at once; the others one by one


def lower(
    schedule: Schedule, marks: Ints, groups: tuple[int, ...] = (0,), hooks: Hooks | None = None, turns: bool = False
) -> Program:
    """Return the program for a schedule. Phases end at each mark: a row before which the state will be read.

    `groups`: for each block, the group whose stack holds it. `hooks`: functions of the server that have to be called.
    `turns`: True to merge an update and the gradient begun after it into one instruction, which saves time for small
    models.
    """
    lowering = _Lowering(schedule.by_minibatch(), marks, groups, hooks or Hooks(), turns)
    lowering.emit()
    return lowering.program()


class _Lowering:
    """The lowering of one schedule, which emits instructions kind by kind."""

    def __init__(self, schedule: Schedule, marks: Ints, groups: tuple[int, ...], hooks: Hooks, turns: bool):
        self._schedule, self._marks, self._hooks, self._turns = schedule, marks, hooks, turns
        self._group = np.array(groups)  # of each block
        self._index_in_group = np.array([groups[:block].count(group) for block, group in enumerate(groups)])  # of each block
        self._blocks_in_group = np.bincount(self._group)  # number of blocks of each group
        self._versions = trace(schedule, marks, groups, hooks)
        self._uses = Uses(schedule, hooks, self._versions)
        self._messages = Messages(schedule, self._uses, hooks, self._versions, marks, turns)
        self._code = Code()

    def emit(self) -> None:
        """Emit the instructions of all rows."""
        self._emit_begins()
        self._emit_stores()
        self._emit_applies()
        self._emit_adds()
        self._emit_commits()
        self._emit_mixes()
        if self._hooks.synchronizes:
            self._emit_syncs()

    def program(self) -> Program:
        """Return the emitted instructions, in order."""
        kinds, operands, offsets, marks = self._code.phases(self._marks, self._turns, self._hooks.unbatched)
        versions, messages = self._versions, self._messages
        return Program(
            kinds=kinds,
            operands=operands,
            offsets=offsets,
            marks=marks,
            replica_registers=versions.replica_registers,
            clocks=_clocks(self._schedule, self._marks),
            registers=versions.counts,
            pending=messages.pending_slots,
            slots=messages.slots,
        )

    def _emit_begins(self) -> None:
        """Emit gradients whose parameters will be overwritten before they are used."""
        messages = self._messages
        early = np.flatnonzero(messages.early)
        operands = self._gradient_operands(early)
        self._code.emit(Kind(Op.BEGIN), messages.computable[early], _AFTER, pending=messages.pending[early], **operands)

    def _emit_stores(self) -> None:
        """Emit messages that are used more than once."""
        messages = self._messages
        for how, stored, operands in self._source_operands(np.flatnonzero(messages.reused)):
            rows = self._uses.row[messages.first[stored]]
            self._code.emit(Kind(Op.STORE, how), rows, _BEFORE, slot=messages.slot[stored], **operands)

    def _emit_applies(self) -> None:
        """Emit messages that are updates by themselves."""
        for how, uses, operands in self._use_operands(np.flatnonzero(~self._uses.adds)):
            rows = self._uses.row[uses]
            for group, positions, state in self._states(rows):
                selected = {name: array[positions] for name, array in operands.items()}
                self._code.emit(Kind(Op.APPLY, how, group), rows[positions], _ITSELF, **state, **selected)

    def _emit_adds(self) -> None:
        """Emit messages that join a round, in one instruction if they join the rounds of all blocks."""
        uses, messages, blocks = self._uses, self._messages, self._schedule.blocks
        adds, opens = np.flatnonzero(uses.adds & ~uses.flat), self._opens()
        weights = self._schedule["weight"][uses.row]
        separate = adds[~messages.collected[messages.of_use[adds]]]  # uses that need an ADD for each block
        for weighted in (False, True):
            for how, joining, operands in self._use_operands(separate[(weights[separate] != 1.0) == weighted]):
                operands |= {"opens": opens[joining]} | ({"weight": weights[joining]} if weighted else {})
                rows = uses.row[joining]
                for group, positions, state in self._states(rows):
                    selected = {name: array[positions] for name, array in operands.items()}
                    self._code.emit(Kind(Op.ADD, how, group, weighted=weighted), rows[positions], _ITSELF, **state, **selected)
        for how, collected, operands in self._source_operands(np.flatnonzero(messages.collected)):
            joining = messages.first[collected][:, None] + np.arange(blocks)  # consecutive uses
            self._code.emit(Kind(Op.COLLECT, how), uses.row[joining[:, 0]], _ITSELF, opens=opens[joining], **operands)

    def _opens(self) -> NDArray[np.bool_]:
        """Return True for each use that is the first in its round: [uses]."""
        uses, schedule = self._uses, self._schedule
        joining = np.flatnonzero(uses.adds & ~uses.flat)
        # one key per round: block of a replica, and row of the update; + 1, because the row is NONE (-1) if there is none
        rounds = schedule.cells(uses.row[joining]) * (len(schedule) + 1) + uses.update[joining]
        opens = np.zeros(len(uses.row), bool)
        opens[joining[np.unique(rounds, return_index=True)[1]]] = True
        return opens

    def _emit_commits(self) -> None:
        """Emit rounds: those computed as one batch, sums of messages, and empty ones."""
        uses, schedule = self._uses, self._schedule
        commits = schedule.rows(Verb.COMMIT)
        updates = uses.update[uses.adds & (uses.update != NONE)]
        counts = np.bincount(np.searchsorted(commits, updates), minlength=len(commits))  # members of each round
        batched = np.isin(commits, uses.update[uses.flat])
        for how, mask in ((How.SUM, ~batched & (counts > 0)), (How.NOTHING, counts == 0)):
            rows = commits[mask]
            for group, positions, state in self._states(rows):
                weight, count = schedule["weight"][rows[positions]], counts[mask][positions]
                self._code.emit(Kind(Op.COMMIT, how, group), rows[positions], _ITSELF, **state, weight=weight, count=count)
        self._emit_batched_rounds(commits[batched], counts[batched])

    def _emit_batched_rounds(self, commits: Ints, counts: Ints) -> None:
        """Emit rounds that can be one batch, with members in the order of workers, not of arrival.

        Args:
            commits: rows that end these rounds [rounds].
            counts: number of members of each [rounds].
        """
        ledger, uses = self._schedule.ledger, self._uses
        gradients = uses.origin[uses.flat]
        gradients = gradients[np.lexsort((ledger.steps[gradients], ledger.workers[gradients], uses.update[uses.flat]))]
        if self._hooks.unbatched and len(commits):
            self._emit_sums(commits, counts, gradients)
            return
        first_members = np.cumsum(counts) - counts  # of each round, in `gradients`
        sizes = np.array([padded(count, self._schedule.workers) for count in counts.tolist()], np.int64)
        for size in np.unique(sizes):
            of_size = sizes == size
            rows, count = commits[of_size], counts[of_size]
            member = np.minimum(np.arange(size), count[:, None] - 1)  # absent members repeat the last one, and are masked
            kind = Kind(Op.COMMIT, How.GRADIENT, members=int(size), masked=bool((count < size).any()))
            self._code.emit(
                kind,
                rows,
                _ITSELF,
                **self._only_state(rows),
                weight=np.ones(len(rows)),  # the gradient of the batch is the mean already
                count=count,
                sources=self._versions.read[rows][:, None],
                minibatch=self._minibatches(gradients[first_members[of_size, None] + member]),
            )

    def _only_state(self, rows: Ints) -> dict[str, Any]:
        """Return the operands for the block of each row, where there is one block: only then are rounds batches."""
        ((_, _, state),) = self._states(rows)
        return state

    def _emit_sums(self, commits: Ints, counts: Ints, gradients: Ints) -> None:
        """Emit rounds as sums of these gradients, each computed by itself.

        Args:
            commits: rows that end these rounds [rounds].
            counts: number of members of each [rounds].
            gradients: the members of all rounds, one round after the other [members].
        """
        state = self._only_state(commits)
        round_of = np.repeat(np.arange(len(commits)), counts)
        rank_in_round = np.arange(len(gradients)) - (np.cumsum(counts) - counts)[round_of]
        rows, operands = commits[round_of], {name: array[round_of] for name, array in state.items()}
        operands |= {"opens": rank_in_round == 0, "sender": self._schedule.ledger.workers[gradients]}
        operands |= {"sources": self._versions.read[rows][:, None], "minibatch": self._minibatches(gradients[:, None])}
        # negative: one after the other in the order of workers, and before the COMMIT of the same row
        self._code.emit(Kind(Op.ADD, How.GRADIENT), rows, rank_in_round - counts.max(), **operands)
        weight = self._schedule["weight"][commits]
        self._code.emit(Kind(Op.COMMIT, How.SUM), commits, _ITSELF, **state, weight=weight, count=counts)

    def _emit_mixes(self) -> None:
        """Emit weighted sums of versions; a kind of MIX for each number of sources that are summed at once, and each group."""
        mixes = self._versions.mixes
        group_of = self._group[self._schedule["block"][np.array([mix.row for mix in mixes], np.int64)]]
        kinds = [(min(len(mix.sources), _MAX_UNROLLED), int(group)) for mix, group in zip(mixes, group_of, strict=True)]
        for members, group in sorted(set(kinds)):
            kind_mixes = [mix for mix, kind in zip(mixes, kinds, strict=True) if kind == (members, group)]
            count = np.array([len(mix.sources) for mix in kind_mixes])
            self._code.emit(
                Kind(Op.MIX, How.NOTHING, group, members),
                np.array([mix.row for mix in kind_mixes]),
                _ITSELF,
                into=np.array([mix.target for mix in kind_mixes]),
                count=count,
                sources=_table([mix.sources for mix in kind_mixes], count, np.int64),
                weights=_table([mix.weights for mix in kind_mixes], count, np.float64),
            )

    def _emit_syncs(self) -> None:
        """Emit the calls of `synchronize`; `synced_with` is the register of the mailbox that a SYNC row reads."""
        rows = self._schedule.rows(Verb.SYNC)
        scales = {name: self._schedule[name][rows] for name in ("keep", "weight")}
        for group, positions, state in self._states(rows):
            selected = {name: array[positions] for name, array in scales.items()}
            selected |= {"synced_with": self._versions.synced_with[rows[positions]]}
            self._code.emit(Kind(Op.SYNC, How.NOTHING, group), rows[positions], _ITSELF, **state, **selected)

    def _states(self, rows: Ints) -> Iterator[tuple[int, NDArray[np.intp], dict[str, Any]]]:
        """Yield for each group the positions of its rows, and the operands for the block and replica of each."""
        schedule, versions = self._schedule, self._versions
        block = schedule["block"][rows]
        for group in np.unique(self._group[block]).tolist():
            positions = np.flatnonzero(self._group[block] == group)
            group_rows, index = rows[positions], self._index_in_group[block[positions]]
            timestamp = schedule["timestamp"][group_rows]
            yield (
                group,
                positions,
                {
                    "cell": schedule["replica"][group_rows] * self._blocks_in_group[group] + index,
                    "block": index,
                    "source": versions.read[group_rows],
                    "into": versions.output[group_rows],
                    "timestamp": timestamp,
                    "clock": timestamp + schedule["staleness"][group_rows],
                    "worker": schedule["worker"][group_rows],
                },
            )

    def _use_operands(self, uses: Ints) -> Iterator[tuple[How, Ints, dict[str, Any]]]:
        """Yield, for each way in which these uses get their messages, the uses concerned and their operands."""
        messages = self._messages
        message = messages.of_use[uses]
        stored = messages.reused[message]
        if stored.any():
            yield How.SLOT, uses[stored], {"slot": messages.slot[message[stored]]}
        for how, single, operands in self._source_operands(message[~stored]):
            yield how, messages.first[single], operands  # neither reused nor collected: one use

    def _source_operands(self, messages_to_make: Ints) -> Iterator[tuple[How, Ints, dict[str, Any]]]:
        """Yield the sources of these messages at first use, with the messages of each source and their operands."""
        messages, versions = self._messages, self._versions
        early, differs = messages.early[messages_to_make], self._uses.differs[messages.first[messages_to_make]]
        for how, mask in ((How.GRADIENT, ~early & ~differs), (How.PENDING, early), (How.DIFFERENCE, differs)):
            selected = messages_to_make[mask]
            if not len(selected):
                continue
            rows = self._uses.row[messages.first[selected]]
            senders = {"sender": self._schedule["worker"][rows]}
            if how == How.GRADIENT:
                yield how, selected, senders | self._gradient_operands(selected)
            elif how == How.PENDING:
                yield how, selected, senders | {"pending": messages.pending[selected]}
            else:
                yield how, selected, senders | {"sources": versions.sources[rows], "ends": versions.ends[rows]}

    def _gradient_operands(self, gradients: Ints) -> dict[str, Any]:
        """Return the parameters and minibatches of these messages, which are gradients."""
        messages = self._messages
        rows = self._uses.row[messages.first[gradients]]
        return {"sources": self._versions.sources[rows], "minibatch": self._minibatches(messages.origin[gradients][:, None])}

    def _minibatches(self, gradients: Ints) -> Ints:
        """Return worker, step and rank in the order of use, which determine a minibatch."""
        ledger = self._schedule.ledger
        return np.stack((ledger.workers[gradients], ledger.steps[gradients], gradients), axis=-1)


def _table(lists: list[list], count: Ints, kind: type) -> NDArray[Any]:
    """Return these lists as rows, padded with zeros to a power of two, so that few lengths have to be compiled."""
    table: NDArray[Any] = np.zeros((len(lists), 1 << int(count.max() - 1).bit_length()), kind)
    table[np.arange(table.shape[1]) < count[:, None]] = np.concatenate(lists)
    return table


def _clocks(schedule: Schedule, marks: Ints) -> Ints:
    """Return how often each block of each replica has changed before each mark: [marks, replicas x blocks]."""
    changes = schedule.rows(Verb.PUSH, Verb.COMMIT, Verb.SYNC)
    cells = schedule.cells(changes)
    order = np.argsort(cells, kind="stable")
    bounds = np.searchsorted(cells[order], np.arange(schedule.replicas * schedule.blocks + 1))
    changes_by_cell = [changes[order[start:end]] for start, end in pairwise(bounds.tolist())]
    return np.stack([np.searchsorted(rows, marks) for rows in changes_by_cell], axis=1)
