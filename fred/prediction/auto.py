"""A rule that chooses among rules, by their results in held-out rounds and then by every later round.

Each round is a game with expert advice. Every candidate proposes a choice. The rule draws one candidate by its weight,
follows it, and reports the round to all of them. The gain of waiting for c workers is c - rho x_(c), where rho is the
gradients per time of recent rounds. Over a long run, maximising the sum of these gains maximises gradients per time
[Dinkelbach 1967]. rho is at most 1.25 times what one of the last two rounds could reach, since a cluster may become slower
for good. Dropped workers count with their expected times (`following.py`). So the gain of every candidate
is known, even of one that would have waited longer.

The bound is that of exponential weights with fixed share [Herbster, Warmuth 1998]. Let g be the gain per worker of the
cluster, D the range of g in a round, and N the number of candidates, with equal initial weights. The rate eta and the
memory M are those of `following.py`. Take any sequence of candidates with S changes. Over T rounds its sum of g exceeds the
sum of the weighted means by at most:

    ((S + 1) ln N + S ln M + (T - S - 1) ln(M / (M - 1))) / eta + eta / 8 sum of D^2

The sequence holds a share of at least N^-(S+1) M^-S (1 - 1/M)^(T-S-1) of the total weight, and Hoeffding's lemma bounds
each round. A rule that draws a candidate by the weights gains the weighted mean on average. The bound holds for any rounds.
With unequal initial weights w, -ln w replaces the first ln N.

The bound assumes that the gains are right. They are exact for a candidate that would have waited no longer than the round
lasted. For the others they are right on average if workers are as late as in the last hundred rounds. A lateness that was
never observed is assumed to be small. Workers dropped in 30 rounds in a row are waited for once, for as long as all of them
together could be worth, and again after 60, 120, ... rounds, at most 480, as long as they do not come. After each wait
without success, the prior by which missing workers arrive soon has half the weight. So the rule notices workers that
recover, at a cost of at most one per cent of the time of any hundred rounds. The bound compares with a candidate's choices
in these rounds, not with a run of that candidate alone.

After the first round, no round lasts longer than twice the best time for a round of usual times, whichever candidate is
followed. The exception is that every round waits for its first worker.
"""

import math
from collections.abc import Iterator
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from fred.base.numerics import exp
from fred.base.types import Floats, OnProgress
from fred.cluster.contention import NodeOf
from fred.components.component import NANOSECONDS, Fraction, Natural
from fred.components.one_of import OneOf
from fred.prediction import closed_loop
from fred.prediction.closed_loop import Rounds
from fred.prediction.contract import Chooser, CutoffRule, UntrainedError
from fred.prediction.following import BINS, RATE, Following, excesses_of, share_weights
from fred.prediction.hmm import HMM
from fred.prediction.predictive import EWMA, Elfving, Empirical
from fred.prediction.simple_rules import FixedCountOrDeadline, FixedDeadline, MADDeadline

_RECENT = 300  # last training rounds that set how late workers are
_MOST_ROUNDS = 100  # most held-out rounds that count


class Auto(CutoffRule):
    """A rule that follows one of several rules: first the best in held-out rounds, then whichever does better.

    Training fits every candidate on all rounds but the last quarter and runs it on that quarter in closed loop. It then
    trains the candidates again on all rounds. Their initial weights follow from their results on the held-out quarter.
    Without training, all candidates start with equal weight; candidates that need training are left out.

    Of two candidates with a fixed number of workers, the better one has almost all the weight after 60 rounds:

        >>> import numpy as np
        >>> from fred.prediction.auto import Auto
        >>> from fred.prediction.contract import Round
        >>> from fred.prediction.simple_rules import FixedCount
        >>> chooser = Auto(candidates=(FixedCount(workers=3), FixedCount(workers=4))).start(np.zeros(4, np.int64))
        >>> times = np.array([10, 11, 12, 40]) * 10**8
        >>> for _ in range(60):
        ...     round = Round.from_choice(times, chooser.choose(np.array([], np.int64)))
        ...     chooser.observe(round.observed, round.in_time)
        >>> chooser.weights.round(1).tolist()
        [1.0, 0.0]
    """

    candidates: tuple[Annotated[CutoffRule, OneOf("cutoff")], ...] = Field(
        default=(
            FixedCountOrDeadline(),
            FixedDeadline(),
            MADDeadline(),
            Elfving(by="count-or-deadline"),
            Empirical(),
            EWMA(of="worker"),
            EWMA(),
            HMM(),
        ),
        min_length=1,
        description="candidate rules",
    )
    weights: tuple[Fraction, ...] = Field(
        default=(),
        description="initial weight of each candidate; 0: left out; empty: equal weights for all that need no training",
    )
    held_back: tuple[Fraction, ...] = Field(
        default=(),
        description="throughput of each candidate in held-out rounds, relative to the best; 0: it could not be run",
    )
    excesses: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        default=(),
        description="histogram of how far training times exceeded a worker's usual time, in steps of 2 %; empty: unknown",
    )
    seed: Natural = Field(default=0, description="seed of the draws")

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        for name in ("weights", "held_back"):
            if len(getattr(self, name)) not in (0, len(self.candidates)):
                raise ValueError(f"`{name}` must be as many as there are `candidates` ({len(self.candidates)}), or none")
        if self.weights and not any(self.weights):
            raise ValueError("at least one of `weights` must be more than 0")
        if len(self.excesses) not in (0, BINS):
            raise ValueError(f"`excesses` must be {BINS} numbers, or none")
        return self

    @property
    def needs_values(self) -> bool:
        """Return True if any candidate needs statistics of the gradients."""
        return any(rule.needs_values for rule in self.candidates)

    def doubts(self) -> tuple[str, ...]:
        """Return the warnings about candidates with a positive weight."""
        return tuple(doubt for rule, weight in self._weighed() if weight for doubt in rule.doubts())

    def start(self, node_of: NodeOf) -> Chooser:
        choosers, weights, untrained = [], [], None
        for rule, weight in self._weighed():
            try:
                if weight:
                    choosers.append(rule.unwatched().start(node_of))
                    weights.append(weight)
            except UntrainedError as error:
                if self.weights:  # given weights name the candidates that are wanted; without them, this one is left out
                    raise
                untrained = error
        if untrained and not choosers:
            raise untrained
        excesses = np.array(self.excesses) if self.excesses else None
        return Following(choosers, np.array(weights), len(node_of), excesses, stream=(self.seed, "auto"))

    def _weighed(self) -> Iterator[tuple[CutoffRule, float]]:
        """Pair the candidates with their initial weights."""
        return zip(self.candidates, self.weights or (1.0,) * len(self.candidates), strict=True)

    def watching(self, *rules: CutoffRule) -> Self:
        """Return the rule with these candidates added, not yet weighted."""
        return self.model_copy(update={"candidates": (*self.candidates, *rules), "weights": (), "held_back": ()})

    def trained(self, seconds: Floats, node_of: NodeOf, progress: OnProgress = lambda share: None) -> Self:
        """Return the rule with its candidates trained on `seconds` [iterations, workers] and weighted by held-out rounds.

        Candidates that cannot be trained, because there are too few rounds, are left out. Raises ValueError if none can be
        trained.
        """
        rules, held_out = [], {}  # held_out: rounds by number of the candidate
        for number, rule in enumerate(self.candidates):
            trained, rounds = _train_and_run(rule, seconds, node_of)
            rules.append(trained)
            progress((number + 1) / (2 * len(self.candidates)))
            if rounds is not None:
                held_out[number] = rounds
        if not held_out:
            raise ValueError(f"no candidate can be trained on {len(seconds)} iterations")
        for count, number in enumerate(held_out):
            if not rules[number].holds_back:  # the others have been trained on all rounds
                rules[number] = self.candidates[number].trained(seconds, node_of)
            progress(0.5 + (count + 1) / (2 * len(held_out)))
        return self.model_copy(
            update={
                "candidates": tuple(rules),
                "excesses": tuple(excesses_of(seconds[-_RECENT:]).tolist()),
                **self._held_out_results(held_out, seconds.shape[1]),
            }
        )

    def _held_out_results(self, held_out: dict[int, Rounds], workers: int) -> dict[str, tuple[float, ...]]:
        """Return the candidates' throughputs in held-out rounds and their initial weights.

        The weights are about those that the rule would have after these rounds, or after a hundred of them.
        """
        rates = {number: rounds.summary()["throughput"] for number, rounds in held_out.items()}
        best = max(rates.values())
        gains = [_mean_gain(rounds, best, workers) for rounds in held_out.values()]
        counted_rounds = min(len(next(iter(held_out.values())).cutoff), _MOST_ROUNDS)
        weights = share_weights(exp(RATE * counted_rounds * (np.array(gains) - max(gains))))
        return {
            "held_back": self._per_candidate({number: rate / best for number, rate in rates.items()}),
            "weights": self._per_candidate(dict(zip(held_out, weights.tolist(), strict=True))),
        }

    def _per_candidate(self, values: dict[int, float]) -> tuple[float, ...]:
        """Return the value of each candidate, 0 where it has none."""
        return tuple(values.get(number, 0.0) for number in range(len(self.candidates)))


def _train_and_run(rule: CutoffRule, seconds: Floats, node_of: NodeOf) -> tuple[CutoffRule, Rounds | None]:
    """Train a candidate on the first three quarters and run it on the last; the result is None if that fails."""
    try:
        trained = rule.trained(seconds if rule.holds_back else closed_loop.split_rounds(seconds)[0], node_of)
        return trained, closed_loop.run_held_out(trained.unwatched(), seconds, node_of)
    except ValueError:
        return rule, None


def _mean_gain(rounds: Rounds, pace: float, workers: int) -> float:
    """Return the mean of c - rho x_(c) per worker over the rounds; `pace` is rho, in gradients per s."""
    gains = (rounds.cutoff - pace * rounds.time / NANOSECONDS) / workers
    return math.fsum(gains) / len(gains)
