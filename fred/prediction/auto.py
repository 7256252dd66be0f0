"""The rule that chooses among rules: what rounds held back say of each, and what every later round shows.

Each round is a game against experts. Every candidate says how it would wait, one is drawn and followed, and all are told what
was seen. The gain of waiting for c is c - rho x_(c), rho the gradients per time so far: over a long run the largest sum of
these is the most gradients per time [Dinkelbach 1967]. It is known of whoever would not have waited longer than was waited;
of the others only that they would have. For them stands what was gained on average when such a longer wait was seen; and now
and then the longest one is followed on purpose, to see [label-efficient prediction, Cesa-Bianchi, Lugosi, Stoltz 2005].

The bound is that of exponential weights with fixed share [Herbster, Warmuth 1998]. Write g for gains as they are reckoned
here, per worker of the cluster; N candidates, of equal weight at first; D the range of g in a round; eta and memory M as
below. In T rounds no sequence of candidates with S changes has a sum of g that exceeds the sum of the weighted means by more
than

    ((S + 1) ln N + S ln M + (T - S - 1) ln(M / (M - 1))) / eta + eta / 8 sum of D^2

since that sequence has a share of at least N^-(S+1) M^-S (1 - 1/M)^(T-S-1) of all weight, and by Hoeffding's lemma in each
round; who follows one drawn by the weights gains the weighted mean on average. It holds for all rounds whatsoever. Unequal
first weights w replace the first ln N by -ln w; training leaves those that the rounds held back lead to, with the rate that
is best for so few [Cesa-Bianchi, Lugosi 2006, theorem 2.2] where that is higher than eta. Against true gains two things come
on top: what was reckoned wrongly of waits not seen (nothing where no candidate would have waited longer), and what the longest
wait loses in a share `explore` of the rounds. A candidate is compared by what it would have done in the rounds as they were
played, not by what it would have come to alone.

As of any two waits the longer one tells of the shorter, gains divided by the probability of seeing them would need no such
remainder, and lose sqrt(T) up to logarithms [compare Alon, Cesa-Bianchi, Dekel, Koren 2015]; their variance cost more than
it.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fred.cluster.contention import NodeOf
from fred.cluster.durations import NANOSECONDS
from fred.cluster.elementary import exp
from fred.components.component import OneOf, Whole
from fred.prediction import validation
from fred.prediction.best_static import BestStatic, BestStaticDeadline
from fred.prediction.closed_loop import Rounds
from fred.prediction.contract import Chooser, CutoffRule, Progress
from fred.prediction.deadlines import MADDeadline
from fred.prediction.elfving import Elfving
from fred.prediction.empirical import Empirical
from fred.prediction.ewma import EWMA
from fred.prediction.following import Following, shared
from fred.prediction.hmm import HiddenMarkov
from fred.prediction.intervals import ratio

Floats = NDArray[np.float64]
Share = Annotated[float, Field(ge=0, le=1)]


class Auto(CutoffRule):
    """Follows one of several rules: the best in rounds held back at first, and then whichever does better.

    Training runs every candidate in closed loop on the last quarter of the rounds, trained on those before. Who is told worse
    there than the best (by its 95 % interval) is left out, but for `best-static`; the others are trained again on everything.
    They begin weighed by what they came to there. Untrained, all begin alike, but for candidates that must be trained first.

    Of two that always wait for as many, the better one has almost all the weight after 60 rounds:

        >>> import numpy as np
        >>> from fred.prediction.auto import Auto
        >>> from fred.prediction.contract import StaticCutoff
        >>> chooser = Auto(candidates=(StaticCutoff(workers=3), StaticCutoff(workers=4))).start(np.zeros(4, np.int64))
        >>> for _ in range(60):
        ...     choice = chooser.choose(np.array([], np.int64))
        ...     chooser.observe(np.array([10, 11, 12, 40][:choice] + [12] * (4 - choice)) * 10**8, np.arange(4) < choice)
        >>> chooser.weights.round(1).tolist()
        [1.0, 0.0]
    """

    candidates: tuple[Annotated[CutoffRule, OneOf("cutoff")], ...] = Field(
        (
            BestStatic(by="either"),
            BestStaticDeadline(),
            MADDeadline(),
            Elfving(by="either"),
            Empirical(by="either"),
            EWMA(by="either"),
            EWMA(of="node", by="either"),
            HiddenMarkov(by="either"),
        ),
        min_length=1,
        description="the rules among which it chooses",
    )
    weights: tuple[Share, ...] = Field(
        (), description="of each candidate at first; 0: it is left out; none: all that need no training begin alike"
    )
    longer: tuple[float, ...] = Field(
        (), description="what each gains per worker on average where it waits longer than who is followed; none: nothing"
    )
    held_back: tuple[Share, ...] = Field(
        (),
        description="each one's throughput in rounds held back, of the best one's; 0: it could not be tried",
    )
    spread: float = Field(
        0.1,
        gt=0,
        le=1,
        description="range of the candidates' gains per worker in a round, root mean square, each at most 1",
    )
    memory: int = Field(1000, ge=2, lt=2**31, description="rounds after which another candidate may be the best, on average")
    explore: Annotated[float, Field(ge=0.0001, le=1)] | Literal[0] = Field(
        0.01, description="share of rounds in which the longest wait is followed, to see what comes of it"
    )
    seed: Whole = Field(0, description="of draws")

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        for name in ("weights", "longer", "held_back"):
            if len(getattr(self, name)) not in (0, len(self.candidates)):
                raise ValueError(f"`{name}` must be as many as there are `candidates` ({len(self.candidates)}), or none")
        if self.weights and not any(self.weights):
            raise ValueError("at least one of `weights` must be more than 0")
        return self

    @property
    def rate(self) -> float:
        """eta of the weights: what makes the bound smallest for `memory` rounds with one change, and gains of this `spread`."""
        count = sum(weight > 0 for weight in self.weights) or len(self.candidates)
        return math.sqrt(8 * (2 * math.log(count) + math.log(self.memory) + 1) / self.memory) / self.spread

    @property
    def needs_values(self) -> bool:
        """Where one of the candidates does."""
        return any(rule.needs_values for rule in self.candidates)

    def start(self, node_of: NodeOf) -> Chooser:
        weights, longer = self.weights or (1.0,) * len(self.candidates), self.longer or (0.0,) * len(self.candidates)
        choosers, begin, refused = [], [], None
        for rule, weight, gain in zip(self.candidates, weights, longer, strict=True):
            try:
                if weight:
                    choosers.append(rule.start(node_of))
                    begin.append((weight, gain))
            except ValueError as error:
                if self.weights:
                    raise
                refused = error  # it must be trained first
        if not choosers:
            raise refused or ValueError("no candidates")
        first, gains = np.array(begin).T
        return Following(self, choosers, first, gains, len(node_of))

    def watching(self, *rules: CutoffRule) -> Self:
        """The rule with these candidates as well, as yet unjudged."""
        return self.model_copy(update={"candidates": (*self.candidates, *rules), "weights": (), "longer": (), "held_back": ()})

    def trained(self, seconds: Floats, node_of: NodeOf, progress: Progress = lambda share: None) -> Self:
        """The rule with its candidates trained on `seconds` [iterations, workers], and what rounds held back say of them.

        A candidate that cannot be trained, for too few rounds, is left out. Raises ValueError if none can.
        """
        parts = 2 * len(self.candidates)
        tried = []
        for done, rule in enumerate(self.candidates):
            tried.append(_tried(rule, seconds, node_of))
            progress((done + 1) / parts)
        race = {number: rounds for number, (_, rounds) in enumerate(tried) if rounds is not None}
        if not race:
            raise ValueError(f"no candidate can be trained on {len(seconds)} iterations")
        kept = _race(self.candidates, race)
        rules = [rule for rule, _ in tried]
        for done, number in enumerate(kept):
            if not rules[number].holds_back:
                rules[number] = self.candidates[number].trained(seconds, node_of)
            progress(0.5 + (done + 1) / (2 * len(kept)))
        return self._judged(rules, {number: race[number] for number in kept}, race, seconds.shape[1])

    def _judged(self, rules: Sequence[CutoffRule], kept: dict[int, Rounds], race: dict[int, Rounds], workers: int) -> Self:
        """The rule with these candidates, and beginnings as if the rounds held back had been played already."""
        rates = {number: rounds.summary()["throughput"] for number, rounds in race.items()}
        gains = _gains(list(kept.values()), max(rates.values()), workers)
        leader = list(kept).index(max(kept, key=lambda number: rates[number]))
        ranges = np.minimum(gains.max(axis=0) - gains.min(axis=0), 1.0)
        spread = math.sqrt(math.fsum(ranges**2) / len(ranges))
        found = self.model_copy(update={"weights": (), "longer": (), "held_back": ()}).model_copy(
            update={
                "candidates": tuple(rules),
                "held_back": self._each({number: rate / max(rates.values()) for number, rate in rates.items()}),
                "longer": self._each(dict(zip(kept, _longer(list(kept.values()), gains, leader), strict=True))),
                "weights": self._each(dict.fromkeys(kept, 1.0)),
                "spread": max(spread, 1 / workers),
            }
        )
        counted = min(gains.shape[1], self.memory)
        sums = np.array([counted * math.fsum(row) / len(row) for row in gains])
        rate = max(found.rate, math.sqrt(8 * math.log(len(kept)) / counted) / found.spread)
        begin = shared(exp(rate * (sums - sums.max())), self.memory)
        return found.model_copy(update={"weights": self._each(dict(zip(kept, begin.tolist(), strict=True)))})

    def _each(self, values: dict[int, float]) -> tuple[float, ...]:
        """For every candidate its value, or 0."""
        return tuple(values.get(number, 0.0) for number in range(len(self.candidates)))


def _tried(rule: CutoffRule, seconds: Floats, node_of: NodeOf) -> tuple[CutoffRule, Rounds | None]:
    """A candidate trained on the first three quarters, or by itself so, and what it came to in the last, if it can be."""
    try:
        trained = rule.trained(seconds if rule.holds_back else validation.split(seconds)[0], node_of)
        return trained, validation.run(trained, seconds, node_of)
    except ValueError:
        return rule, None


def _race(candidates: Sequence[CutoffRule], tried: dict[int, Rounds]) -> list[int]:
    """Who is watched: all that rounds held back do not tell from the best, and the best static cutoff."""
    best = max(tried.values(), key=lambda rounds: rounds.summary()["throughput"])
    return [at for at, rounds in tried.items() if isinstance(candidates[at], BestStatic) or not ratio(rounds, best).below]


def _gains(rounds: Sequence[Rounds], pace: float, workers: int) -> Floats:
    """c - rho x_(c), per worker, of each candidate in each round: [candidates, rounds]; `pace`: rho, gradients per s."""
    return np.array([(each.cutoff - pace * each.time / NANOSECONDS) / workers for each in rounds])


def _longer(rounds: Sequence[Rounds], gains: Floats, leader: int) -> list[float]:
    """How much more each gains than the leader, on average over the rounds in which it waits longer: [candidates]."""
    beyond = [each.time > rounds[leader].time for each in rounds]
    more = [(own - gains[leader])[longer] for own, longer in zip(gains, beyond, strict=True)]
    return [math.fsum(each) / max(1, len(each)) for each in more]
