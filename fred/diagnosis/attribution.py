"""Attribution of lost time in rounds that wait for all: what-if analysis [Lin et al. 2025, OSDI, arXiv:2505.05713].

Rounds are recomputed with some times replaced by *ideal* ones: those of the median worker in the same round and phase. So a
cost shared by all workers (a large batch, a busy network) is not straggling. T is the time of all rounds, T_ideal the time
if all is ideal:

| quantity           | formula                                  | meaning                                                  |
|--------------------|------------------------------------------|----------------------------------------------------------|
| slowdown           | S = T / T_ideal                          | cost of stragglers                                       |
| of a worker w      | S_w = T(only w as it was) / T_ideal      | cost of w alone; the same for a node, and for a phase    |
| share of workers W | (T - T(W ideal)) / (T - T_ideal)         | part of the slowdown that goes if W no longer straggle   |
| lasting            | S with every worker at its usual speed   | part that is not chance: the same workers in every round |
| network            | 1 - T(without it) / T                    | part of the whole time, with or without stragglers       |

Shares need not add up to 1: if two workers are slow in the same rounds, repairing one alone does not help.
"""

import itertools
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fred.base.types import Floats
from fred.components.component import NANOSECONDS
from fred.schedule.schedule import Schedule, Verb

WORST = 0.03  # share of the workers that count as the worst; at least one
COMPUTING = "computing"
_EQUAL = 1e-9  # relative loss below which a slowdown is rounding


@dataclass(frozen=True, eq=False)
class Attribution:
    """The workers, nodes and phases that cost the time of rounds that wait for all.

    Args:
        phases: duration of each phase for each worker in each round, in sequence, s [rounds, workers]; all phases except
            `computing` belong to the network.
        node_of: node number of each worker, from 0 [workers].

    Example: the last of four workers is twice as slow as the others.
        >>> attribution = Attribution({"computing": np.array([[1.0, 1.0, 1.0, 2.0]])}, np.array([0, 0, 1, 1]))
        >>> attribution.slowdown, attribution.of_workers.tolist(), attribution.of_nodes.tolist(), attribution.share_of_worst
        (2.0, [1.0, 1.0, 1.0, 2.0], [1.0, 2.0], 1.0)
    """

    phases: Mapping[str, Floats]
    node_of: NDArray[np.int64]

    @cached_property
    def seconds(self) -> float:
        """Return T, the total time of all rounds, s."""
        return self._seconds(self._times)

    @cached_property
    def ideal_seconds(self) -> float:
        """Return T_ideal, the total time if all workers were as fast as the median worker, s."""
        return self._seconds(np.broadcast_to(self._ideal, self._times.shape))

    @property
    def slowdown(self) -> float:
        """Return S, the slowdown."""
        return self._relative(self.seconds)

    @cached_property
    def of_workers(self) -> Floats:
        """Return S_w: [workers]."""
        ideal, totals = self._ideal.sum(axis=0), self._times.sum(axis=0)  # of all phases [rounds, 1] and [rounds, workers]
        return np.maximum(ideal, totals).sum(axis=0) / self.ideal_seconds

    @cached_property
    def of_nodes(self) -> Floats:
        """Return S if only the workers of one node keep their times: [nodes]."""
        return np.array(
            [self._relative(self._seconds_with(self.node_of == node)) for node in range(int(self.node_of.max()) + 1)]
        )

    @cached_property
    def of_phases(self) -> dict[str, float]:
        """Return S if only one phase keeps its times, by phase."""
        masks = np.eye(len(self.phases), dtype=bool)  # a row selects one phase
        times_by_phase = [np.where(mask[:, None, None], self._times, self._ideal) for mask in masks]
        return {name: self._relative(self._seconds(times)) for name, times in zip(self.phases, times_by_phase, strict=True)}

    @cached_property
    def worst_workers(self) -> list[int]:
        """Return the worst 3 % of the workers by S_w, but at least one, worst first."""
        number = max(1, math.ceil(WORST * len(self.of_workers)))
        return [int(worker) for worker in np.argsort(-self.of_workers, kind="stable")[:number]]

    @cached_property
    def share_of_worst(self) -> float:
        """Return the share of the slowdown due to the worst 3 % of the workers; NaN without a slowdown."""
        return self.share(self.worst_workers)

    @cached_property
    def share_of_nodes(self) -> list[float]:
        """Return the share of the slowdown due to each node; NaN without a slowdown: [nodes]."""
        return [self.share(np.flatnonzero(self.node_of == node).tolist()) for node in range(len(self.of_nodes))]

    @cached_property
    def lasting(self) -> float:
        """Return S if each worker always took its median time, relative to the median worker."""
        totals = self._times.sum(axis=0)
        medians = np.median(totals, axis=1)  # of the workers, in each round
        return float(np.max(np.median(totals / medians[:, None], axis=0))) if (medians > 0).all() else math.nan

    @cached_property
    def network(self) -> float:
        """Return the share of the time that would be saved if messages took no time."""
        computing = np.array([name == COMPUTING for name in self.phases])
        return 1 - self._seconds(self._times * computing[:, None, None]) / self.seconds

    def share(self, workers: Collection[int]) -> float:
        """Return the share of the slowdown that goes if these workers no longer straggle; NaN without a slowdown.

        Args:
            workers: numbers of the workers.
        """
        lost_seconds = self.seconds - self.ideal_seconds
        if lost_seconds <= _EQUAL * self.seconds:
            return math.nan
        other_workers = ~np.isin(np.arange(self._times.shape[2]), list(workers))
        return (self.seconds - self._seconds_with(other_workers)) / lost_seconds

    @cached_property
    def _times(self) -> Floats:
        return np.stack([np.asarray(times, np.float64) for times in self.phases.values()])  # [phases, rounds, workers]

    @cached_property
    def _ideal(self) -> Floats:
        return np.median(self._times, axis=2, keepdims=True)

    def _seconds_with(self, workers: NDArray[np.bool_]) -> float:
        """Return the total time if only these workers keep their times, s."""
        return self._seconds(np.where(workers, self._times, self._ideal))

    def _relative(self, seconds: float) -> float:
        """Return the slowdown of rounds that take this time in all, s."""
        return seconds / self.ideal_seconds if self.ideal_seconds else math.nan

    @staticmethod
    def _seconds(times: Floats) -> float:
        """Return the total time of rounds that end when the last worker has finished all phases, s."""
        return float(times.sum(axis=0).max(axis=1).sum())


def of_rounds(schedule: Schedule, node_of: NDArray[np.int64]) -> Attribution:
    """Return the attribution of a synchronous run without backup workers, by reading, computing and sending.

    It covers complete rounds of the first block. Absences and lost attempts count as computing, or as reading before it.
    Raises ValueError if there are no complete rounds, or rounds without some worker.

    Args:
        schedule: schedule of the run.
        node_of: node number of each worker, from 0 [workers].
    """
    is_first_block = schedule["block"] == 0
    adds, commits, pulls = (
        np.flatnonzero(is_first_block & (schedule["verb"] == verb)) for verb in (Verb.ADD, Verb.COMMIT, Verb.PULL)
    )
    adds = adds[: len(commits) * schedule.workers]  # without the last, incomplete round
    round_of = np.searchsorted(commits, adds)  # of each ADD row: the number of COMMIT rows before it
    if not len(commits) or (np.bincount(round_of, minlength=len(commits)) != schedule.workers).any():
        raise ValueError("expected complete rounds, in each of which every worker takes part")
    rows = adds[np.lexsort((schedule["worker"][adds], round_of))].reshape(len(commits), -1)  # ADD rows [rounds, workers]
    pulled_ns = np.zeros(int(schedule["mailbox"].max()) + 1, np.int64)  # arrival of the PULL that wrote a mailbox [mailboxes]
    pulled_ns[schedule["mailbox"][pulls]] = schedule["end_ns"][pulls]
    round_starts = np.concatenate(([0], schedule["time_ns"][commits[:-1]]))[:, None]
    moments = [round_starts, pulled_ns[schedule["mailbox"][rows]], schedule["end_ns"][rows], schedule["time_ns"][rows]]
    durations = [(end - begin) / NANOSECONDS for begin, end in itertools.pairwise(moments)]
    return Attribution(dict(zip(("reading", COMPUTING, "sending"), durations, strict=True)), node_of)
