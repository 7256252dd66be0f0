"""The regimes of single entities: workers and nodes are constant, slow in spells, slow in a wave, or wander in speed."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from fred.cluster.contention import Scope
from fred.fitting.description import Matrix
from fred.fitting.series import Spells, Wandering, Waves, fit_spells, fit_wandering, fit_waves

_FEWEST_ITERATIONS = 16  # iterations needed to find regimes
_PASSES = 3  # most regimes of one entity
_MARGIN = 3.0  # margin beyond the criterion, nats
_SPIKE = 4.0  # deviations from which a single iteration is a spike, not a regime
_JUMP_TOLERANCE = 0.2  # largest difference of log slowdowns that count as equal
_STANDARD_ERRORS = 3.5  # standard errors required of an autocorrelation
_SHARE_RATIO = 3.0  # largest ratio of shares of slow time that count as equal
_COMMON_SHARE = 2 / 3  # share of entities with the same spells from which the regime applies to all
_LEAST_SLOWDOWN = 1.1  # least slowdown; a wandering speed deviates by at least half its logarithm
_PREFERRED = 0.8  # a wave is preferred if it explains this share of what noise explains, since it is predictable


@dataclass(frozen=True)
class InSpells:
    """Entities that are slow in spells, independently of each other.

    Args:
        scope: kind of the entities.
        entities: numbers of the entities; empty: all.
        slowdown: slowdown in a spell.
        fast_seconds, slow_seconds: mean time between spells, and in a spell, s.
        share: share of the iterations in which an entity is slow.
        iterations: mean length of a spell, in iterations.
    """

    kind: ClassVar[str] = "spells"
    scope: Scope
    entities: tuple[int, ...]
    slowdown: float
    fast_seconds: float
    slow_seconds: float
    share: float
    iterations: float


@dataclass(frozen=True)
class InWaves:
    """Entities that become slower and faster together, in a wave."""

    kind: ClassVar[str] = "waves"
    scope: Scope
    entities: tuple[int, ...]
    slowdown: float
    period: float  # s
    peak: float  # s
    linear: bool  # True for a triangle wave
    drift: bool  # True if the trace holds at most half a period


@dataclass(frozen=True)
class Wanders:
    """An entity whose speed wanders: it has its own persistent noise."""

    kind: ClassVar[str] = "noise of some"
    scope: Scope
    entities: tuple[int, ...]
    deviation: float
    persistence: float  # from one iteration to the next


Regime = InSpells | InWaves | Wanders


@dataclass(frozen=True)
class FittedRegimes:
    """The regimes of some entities, and the effect of spells and waves on the logarithms [iterations, entities]."""

    regimes: tuple[Regime, ...]
    effect: Matrix


class _Spell(NamedTuple):
    """The spells of some entities, in total."""

    entities: tuple[int, ...]
    jump: float
    slow: float  # total time, s
    fast: float
    cycles: float  # number of spells
    slow_iterations: float
    iterations: float  # of the trace, times the number of entities

    @property
    def share(self) -> float:
        return self.slow_iterations / self.iterations

    def join(self, other: "_Spell") -> "_Spell":
        jump = np.average([self.jump, other.jump], weights=[self.slow_iterations, other.slow_iterations])
        sums = (first + second for first, second in zip(self[2:], other[2:], strict=True))  # from `slow` on, fields are totals
        return _Spell(self.entities + other.entities, float(jump), *sums)

    def regime(self, scope: Scope) -> InSpells:
        mean_seconds = self.fast / self.cycles, self.slow / self.cycles
        mean_iterations = self.slow_iterations / self.cycles
        return InSpells(scope, self.entities, math.exp(self.jump), *mean_seconds, self.share, mean_iterations)


class _Piece(NamedTuple):
    """The chosen explanation of an entity in one pass."""

    entity: int
    explanation: _Spell | InWaves | Wanders
    effect: NDArray[np.float64]  # effect on its logarithms [iterations]
    expected_effect: NDArray[np.float64]  # effect that its workers must show [iterations]


def fit_regimes(
    values: Matrix, rounds: NDArray[np.float64], scope: Scope, is_followed: Callable[[int, NDArray[np.float64]], bool]
) -> FittedRegimes:
    """Find the regimes of each entity, up to three on top of each other.

    A regime must raise the log-likelihood by more than the Bayesian information criterion requires [Schwarz 1978]. The
    margin grows with the number of entities. Persistent noise and heavy tails must not pass for spells, so spells must
    explain more than these.

    Args:
        values: logarithms of compute times, less their level [iterations, entities].
        rounds: duration of each iteration, s [iterations].
        scope: kind of the entities.
        is_followed: function of an entity and a regime's effect on it [iterations]; returns True if most of its workers show
            it.

    Example: one of three workers is twice as slow in two of four parts of the trace.
        >>> values = 0.1 * np.random.default_rng(0).normal(size=(200, 3))
        >>> values[:, 1] += np.log(2) * np.repeat([0, 1, 0, 1], 50)
        >>> regime, = fit_regimes(values, np.ones(200), "worker", lambda entity, effect: True).regimes
        >>> regime.entities, round(regime.slowdown, 1), round(regime.share, 2)
        ((1,), 2.0, 0.5)
    """
    effect = np.zeros_like(values)
    pieces: list[_Piece] = []
    active = np.flatnonzero(np.ptp(values, axis=0) > 0) if len(values) >= _FEWEST_ITERATIONS else np.array([], np.int64)
    calm = remove_spikes(values) if len(active) else values
    # Each pass explains what the earlier ones left. An entity goes on to the next if it got a spell or a wave. After noise it
    # does not: noise subtracts no effect, so it would be the explanation again.
    while len(active) and len(pieces) < _PASSES * values.shape[1]:
        new_pieces = [
            piece
            for piece in _explain_entities(calm - effect, active, rounds, scope)
            if is_followed(piece.entity, piece.expected_effect)
        ]
        pieces += new_pieces
        for piece in new_pieces:
            effect[:, piece.entity] += piece.effect
        entities = [piece.entity for piece in new_pieces if not isinstance(piece.explanation, Wanders)]
        active = np.array(
            [entity for entity in entities if sum(piece.entity == entity for piece in pieces) < _PASSES], np.int64
        )
    spells = _merge([piece.explanation for piece in pieces if isinstance(piece.explanation, _Spell)], values.shape[1], rounds)
    wanders = [piece.explanation for piece in pieces if isinstance(piece.explanation, Wanders)]
    wandering = wanders if len(wanders) < values.shape[1] / 2 or values.shape[1] == 1 else []  # otherwise it is shared noise
    waves = [piece.explanation for piece in pieces if isinstance(piece.explanation, InWaves)]
    return FittedRegimes((*(spell.regime(scope) for spell in spells), *waves, *wandering), effect)


class _Fits(NamedTuple):
    """The three fitted explanations of each active entity."""

    spells: Spells
    waves: Waves
    noise: Wandering

    def gains(self, rest: Matrix) -> Matrix:
        """Return the gain of each over a constant, less the gain required [3, entities]."""
        log_length, margin = math.log(len(rest)), _MARGIN + math.log(rest.shape[1])
        # A parameter costs half the log length. `least` has two, those of noise; spells and waves have three. It also has the
        # likelihood of a constant. A wave's period is the best of many on a grid, which costs their logarithm.
        least = log_length + margin - 0.5 * len(rest) * (np.log(2 * math.pi * np.maximum(rest.var(0), 1e-12)) + 1)
        are_spells = (self.spells.persistence > 0.5 * log_length + _MARGIN) & (self.spells.jump > math.log(_LEAST_SLOWDOWN))
        by_spells = np.where(are_spells, self.spells.likelihood - least - 0.5 * log_length, -math.inf)
        by_wave = self.waves.likelihood - least - 0.5 * log_length - math.log(self.waves.most_half_periods)
        by_wave = np.where(self.waves.slowdown < _LEAST_SLOWDOWN, -math.inf, by_wave)
        is_noise = (self.noise.deviation > math.log(_LEAST_SLOWDOWN) / 2) & (
            _autocorrelation(rest) > _STANDARD_ERRORS / math.sqrt(len(rest))
        )
        by_noise = np.where(is_noise, self.noise.likelihood - least, -math.inf)
        by_noise = np.where(by_wave > _PREFERRED * by_noise, np.minimum(by_noise, by_wave), by_noise)
        return np.stack([by_spells, by_wave, by_noise])


def _explain_entities(rest: Matrix, active: NDArray[np.int64], rounds: NDArray[np.float64], scope: Scope) -> list[_Piece]:
    """Return the best explanation of each active entity, unless it is constant.

    Args:
        rest: logarithms less the effect of earlier explanations [iterations, entities].
        active: numbers of the entities to explain [active].
        rounds: duration of each iteration, s [iterations].
        scope: kind of the entities.
    """
    rest = rest[:, active]
    fits = _Fits(fit_spells(rest), fit_waves(rest, np.cumsum(rounds) - rounds), fit_wandering(rest))
    gains = fits.gains(rest)
    pieces = []
    for column, entity in enumerate(active.tolist()):
        if gains[:, column].max() > 0:
            make = (_explain_by_spells, _explain_by_wave, _explain_by_noise)[int(gains[:, column].argmax())]
            pieces.append(make(fits, column, entity, rest[:, column], rounds, scope))
    return pieces


def _explain_by_spells(
    fits: _Fits, column: int, entity: int, series: NDArray[np.float64], rounds: NDArray[np.float64], scope: Scope
) -> _Piece:
    slow, jump = fits.spells.slow[:, column], float(fits.spells.jump[column])
    cycles = max(1.0, float(fits.spells.changes[column]))
    totals = float(slow @ rounds), float((1 - slow) @ rounds), cycles, float(slow.sum()), float(len(series))
    return _Piece(entity, _Spell((entity,), jump, *totals), slow * jump, slow * jump)


def _explain_by_wave(
    fits: _Fits, column: int, entity: int, series: NDArray[np.float64], rounds: NDArray[np.float64], scope: Scope
) -> _Piece:
    waves, effect = fits.waves, fits.waves.effect[:, column]
    wave = float(waves.slowdown[column]), float(waves.period[column]), float(waves.peak[column]), bool(waves.linear[column])
    return _Piece(
        entity, InWaves(scope, (entity,), *wave, drift=bool(waves.period[column] > 1.5 * rounds.sum())), effect, effect
    )


def _explain_by_noise(
    fits: _Fits, column: int, entity: int, series: NDArray[np.float64], rounds: NDArray[np.float64], scope: Scope
) -> _Piece:
    explanation = Wanders(scope, (entity,), float(fits.noise.deviation[column]), float(fits.noise.persistence[column]))
    return _Piece(entity, explanation, np.zeros(len(series)), series)


def _autocorrelation(values: Matrix) -> NDArray[np.float64]:
    """Return the rank autocorrelation at lag 1 of each column, which heavy tails cannot inflate."""
    ranks = rankdata(values, axis=0)
    ranks -= ranks.mean(0)
    return np.asarray((ranks[1:] * ranks[:-1]).sum(0) / np.maximum((ranks**2).sum(0), 1e-12), np.float64)


def _merge(spells: Sequence[_Spell], entities: int, rounds: NDArray[np.float64]) -> list[_Spell]:
    """Merge spells of several entities with similar parameters; spells of nearly all become a regime of all."""
    merged: list[_Spell] = []
    for spell in sorted(spells, key=lambda spell: spell.jump):
        for i, other in enumerate(merged):
            if _is_similar(spell, other):
                merged[i] = other.join(spell)
                break
        else:
            merged.append(spell)
    if len(merged) < len(spells):
        return _merge(merged, entities, rounds)
    return _widen(merged, entities, rounds)


def _is_similar(spell: _Spell, other: _Spell) -> bool:
    least_share, most_share = sorted((spell.share, other.share))
    chance_ratio = math.exp(1 / math.sqrt(min(spell.cycles, other.cycles)))  # one standard error of a share from few spells
    is_disjoint = not set(spell.entities) & set(other.entities)  # two spells of one entity add up, so they stay two
    has_equal_jump = abs(spell.jump - other.jump) < _JUMP_TOLERANCE
    return is_disjoint and has_equal_jump and most_share < _SHARE_RATIO * chance_ratio * least_share


def _widen(spells: list[_Spell], entities: int, rounds: NDArray[np.float64]) -> list[_Spell]:
    """Turn spells of most entities into a regime of all; entities with few or no spells had few by chance."""
    largest = max(spells, key=lambda spell: len(spell.entities), default=None)
    if largest is None or len(largest.entities) <= max(1, _COMMON_SHARE * entities):
        return spells
    common, separate = largest, list[_Spell]()
    for spell in spells:
        if spell is largest:
            continue
        if abs(spell.jump - largest.jump) < _JUMP_TOLERANCE and not set(spell.entities) & set(common.entities):
            common = common.join(spell)
        else:
            separate.append(spell)
    calm_entities = entities - len(common.entities)  # they have been fast all the time
    fast, iterations = calm_entities * float(rounds.sum()), calm_entities * float(len(rounds))
    everywhere = common._replace(entities=(), fast=common.fast + fast, iterations=common.iterations + iterations)
    return [everywhere, *separate]


def remove_spikes(values: Matrix) -> Matrix:
    """Replace spikes, single iterations far above both neighbours, by the larger neighbour.

    Args:
        values: logarithms [iterations, entities].

    >>> remove_spikes(np.array([0.0, 0.1, 0.0, 9.0, 0.1, 0.0, 5.0, 5.1, 0.1])[:, None])[:, 0].tolist()
    [0.0, 0.1, 0.0, 0.1, 0.1, 0.0, 5.0, 5.1, 0.1]
    """
    # The first and the last iteration have one neighbour, which counts as both.
    before, after = np.vstack((values[1], values[:-1])), np.vstack((values[1:], values[-2]))
    larger_neighbour = np.maximum(before, after)
    level = np.median(values, axis=0)
    # 1.48 median absolute deviations are a standard deviation, of values or of differences of two. Spells raise the first.
    deviation = 1.48 * np.median(np.abs(values - level), axis=0)
    step_deviation = 1.48 * np.median(np.abs(values[1:] - values[:-1]), axis=0) / math.sqrt(2)
    is_spike = values - larger_neighbour > _SPIKE * np.minimum(deviation, step_deviation)
    return np.where(is_spike, larger_neighbour, values)
