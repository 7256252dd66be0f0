"""The rule that chooses among rules: what rounds held back say of each, and what every later round shows.

Each round is a game against experts. Every candidate says how it would wait, one is drawn by its weight and followed, and all
are told what was seen. The gain of waiting for c is c - rho x_(c), rho the gradients per time of the last rounds: over a long
run the largest sum of these is the most gradients per time [Dinkelbach 1967]. Since a cluster may become slower for
good, rho is at most 1.25 times what one of the last two rounds could reach. Dropped workers count with the times that are
expected of them (`completion.py`), so that every candidate's gain is known, also of who would have waited longer.

The bound is that of exponential weights with fixed share [Herbster, Warmuth 1998]. Write g for gains as they are reckoned
here, per worker of the cluster; N candidates, of equal weight at first; D the range of g in a round; eta and memory M as in
`following.py`. In T rounds no sequence of candidates with S changes has a sum of g that exceeds the sum of the weighted means
by more than

    ((S + 1) ln N + S ln M + (T - S - 1) ln(M / (M - 1))) / eta + eta / 8 sum of D^2

since that sequence has a share of at least N^-(S+1) M^-S (1 - 1/M)^(T-S-1) of all weight, and by Hoeffding's lemma in each
round; who follows one drawn by the weights gains the weighted mean on average. It holds for all rounds whatsoever. Unequal
first weights w replace the first ln N by -ln w.

The bound assumes that gains are right. They are exact for a candidate that would have waited no longer than the round lasted.
For the others they are right on average if workers are as late as they were in the last hundred rounds; a lateness that was
never seen is taken to be small. Workers that were dropped in 30 rounds in a row are waited for once, as long as all of them
together could pay. So the rule notices workers that recover; this costs at most one per cent of the time of any hundred rounds.
The bound compares with what a candidate would have done in these rounds, not with what it would have done alone.

After the first round none lasts longer than twice the best time for a round of usual times, whichever candidate is followed;
but every round waits for its first worker.
"""

import math
from collections.abc import Iterator
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from fred.cluster.contention import NodeOf
from fred.cluster.durations import NANOSECONDS
from fred.cluster.elementary import exp
from fred.components.component import OneOf, Whole
from fred.prediction import validation
from fred.prediction.closed_loop import Rounds
from fred.prediction.completed_rounds import BINS, excesses_of
from fred.prediction.contract import Chooser, CutoffRule, Progress
from fred.prediction.elfving import Elfving
from fred.prediction.empirical import Empirical
from fred.prediction.ewma import EWMA
from fred.prediction.fixed import FixedCountOrDeadline, FixedDeadline
from fred.prediction.following import RATE, Following, shared
from fred.prediction.hmm import HiddenMarkov
from fred.prediction.lognormal import Floats
from fred.prediction.mad_deadline import MADDeadline

_RECENT = 300  # rounds of training that tell how late workers are
_COUNTED = 100  # rounds held back that count, at most

Share = Annotated[float, Field(ge=0, le=1)]


class Auto(CutoffRule):
    """Follows one of several rules: the best in rounds held back at first, and then whichever does better.

    Training runs every candidate in closed loop on the last quarter of the rounds, trained on those before; then they are
    trained again on everything, and begin weighed by what they came to there. Untrained, all begin alike, but for candidates
    that must be trained first.

    Of two that always wait for as many, the better one has almost all the weight after 60 rounds:

        >>> import numpy as np
        >>> from fred.prediction.auto import Auto
        >>> from fred.prediction.contract import Round
        >>> from fred.prediction.fixed import FixedCount
        >>> chooser = Auto(candidates=(FixedCount(workers=3), FixedCount(workers=4))).start(np.zeros(4, np.int64))
        >>> times = np.array([10, 11, 12, 40]) * 10**8
        >>> for _ in range(60):
        ...     this = Round.of(times, chooser.choose(np.array([], np.int64)))
        ...     chooser.observe(this.seen, this.taken)
        >>> chooser.weights.round(1).tolist()
        [1.0, 0.0]
    """

    candidates: tuple[Annotated[CutoffRule, OneOf("cutoff")], ...] = Field(
        (
            FixedCountOrDeadline(),
            FixedDeadline(),
            MADDeadline(),
            Elfving(by="count-or-deadline"),
            Empirical(),
            EWMA(of="worker"),
            EWMA(),
            HiddenMarkov(),
        ),
        min_length=1,
        description="the rules among which it chooses",
    )
    weights: tuple[Share, ...] = Field(
        (), description="of each candidate at first; 0: it is left out; none: all that need no training begin alike"
    )
    held_back: tuple[Share, ...] = Field(
        (),
        description="each one's throughput in rounds held back, of the best one's; 0: it could not be tried",
    )
    excesses: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        (),
        description="how often times exceeded a worker's usual one by so much, in steps of 2 %, in training; none: not known",
    )
    seed: Whole = Field(0, description="of draws")

    @model_validator(mode="after")
    def _fitting(self) -> Self:
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
        """Whether one of the candidates does."""
        return any(rule.needs_values for rule in self.candidates)

    def doubts(self) -> tuple[str, ...]:
        """Return the doubts about candidates that have a weight."""
        return tuple(doubt for rule, weight in self._weighed() if weight for doubt in rule.doubts())

    def start(self, node_of: NodeOf) -> Chooser:
        choosers, begin, refused = [], [], None
        for rule, weight in self._weighed():
            try:
                if weight:
                    choosers.append(rule.unwatched().start(node_of))
                    begin.append(weight)
            except ValueError as error:
                if self.weights:
                    raise
                refused = error  # it must be trained first
        if not choosers:
            raise refused or ValueError("no candidates")
        return Following(
            choosers, np.array(begin), len(node_of), np.array(self.excesses) if self.excesses else None, (self.seed, "auto")
        )

    def _weighed(self) -> Iterator[tuple[CutoffRule, float]]:
        """Pair the candidates with their first weights."""
        return zip(self.candidates, self.weights or (1.0,) * len(self.candidates), strict=True)

    def watching(self, *rules: CutoffRule) -> Self:
        """Return the rule with these candidates as well, as yet unjudged."""
        return self.model_copy(update={"candidates": (*self.candidates, *rules), "weights": (), "held_back": ()})

    def trained(self, seconds: Floats, node_of: NodeOf, progress: Progress = lambda share: None) -> Self:
        """Return the rule with its candidates trained on `seconds` [iterations, workers], weighed by rounds held back.

        A candidate that cannot be trained, for too few rounds, is left out. Raises ValueError if none can.
        """
        parts = 2 * len(self.candidates)
        rules, held_back = [], {}
        for number, rule in enumerate(self.candidates):
            trained, rounds = _tried(rule, seconds, node_of)
            rules.append(trained)
            progress((number + 1) / parts)
            if rounds is not None:
                held_back[number] = rounds
        if not held_back:
            raise ValueError(f"no candidate can be trained on {len(seconds)} iterations")
        for done, number in enumerate(held_back):
            if not rules[number].holds_back:
                rules[number] = self.candidates[number].trained(seconds, node_of)
            progress(0.5 + (done + 1) / (2 * len(held_back)))
        return self.model_copy(
            update={
                "candidates": tuple(rules),
                "excesses": tuple(excesses_of(seconds[-_RECENT:]).tolist()),
                **self._judged(held_back, seconds.shape[1]),
            }
        )

    def _judged(self, held_back: dict[int, Rounds], workers: int) -> dict[str, tuple[float, ...]]:
        """Compare the candidates in rounds held back; return their throughputs and first weights."""
        rates = {number: rounds.summary()["throughput"] for number, rounds in held_back.items()}
        best = max(rates.values())
        means = [_mean_gain(rounds, best, workers) for rounds in held_back.values()]
        counted = min(len(next(iter(held_back.values())).cutoff), _COUNTED)
        begin = shared(exp(RATE * counted * (np.array(means) - max(means))))
        return {
            "held_back": self._each({number: rate / best for number, rate in rates.items()}),
            "weights": self._each(dict(zip(held_back, begin.tolist(), strict=True))),
        }

    def _each(self, values: dict[int, float]) -> tuple[float, ...]:
        """Return each candidate's value, 0 where it has none."""
        return tuple(values.get(number, 0.0) for number in range(len(self.candidates)))


def _tried(rule: CutoffRule, seconds: Floats, node_of: NodeOf) -> tuple[CutoffRule, Rounds | None]:
    """Train a candidate on the first three quarters, and run it on the last one; None if that cannot be done."""
    try:
        trained = rule.trained(seconds if rule.holds_back else validation.split(seconds)[0], node_of)
        return trained, validation.run(trained.unwatched(), seconds, node_of)
    except ValueError:
        return rule, None


def _mean_gain(rounds: Rounds, pace: float, workers: int) -> float:
    """Return the mean of c - rho x_(c) per worker over the rounds; `pace`: rho, gradients per s."""
    gains = (rounds.cutoff - pace * rounds.time / NANOSECONDS) / workers
    return math.fsum(gains) / len(gains)
