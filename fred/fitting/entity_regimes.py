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
from fred.fitting.noise import Wandering, fit_wandering
from fred.fitting.two_states import Spells, fit_spells
from fred.fitting.waves import Waves, fit_waves

_FEWEST = 16  # iterations needed to find regimes
_PASSES = 3  # most regimes of one entity
_MARGIN = 3.0  # margin beyond the criterion, nats
_SPIKE = 4.0  # deviations from which a single iteration is a spike, not a regime
_ALIKE = 0.2  # largest difference of log slowdowns that count as equal
_SURE = 3.5  # standard errors required of an autocorrelation
_FACTOR = 3.0  # largest ratio of shares of slow time that count as equal
_MOST = 2 / 3  # share of entities with the same spells from which the regime applies to all
_LEAST = 1.1  # least slowdown; a wandering speed deviates by at least half its logarithm
_PREFERRED = 0.8  # a wave is preferred if it explains this share of what noise explains, since it is predictable


@dataclass(frozen=True)
class InSpells:
    """Entities that are slow in spells, independently of each other.

    Args:
        of: kind of the entities.
        entities: numbers of the entities; empty: all.
        slowdown: slowdown in a spell.
        fast_seconds, slow_seconds: mean time between spells, and in a spell, s.
        share: share of the iterations in which an entity is slow.
        iterations: mean length of a spell, in iterations.
    """

    kind: ClassVar[str] = "spells"
    of: Scope
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
    of: Scope
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
    of: Scope
    entities: tuple[int, ...]
    deviation: float
    persistence: float  # from one iteration to the next


Regime = InSpells | InWaves | Wanders


@dataclass(frozen=True)
class Found:
    """The regimes of some entities, and the effect of spells and waves on the logarithms [iterations, entities]."""

    regimes: tuple[Regime, ...]
    added: Matrix


class _Spell(NamedTuple):
    """The spells of some entities, in total."""

    entities: tuple[int, ...]
    jump: float
    slow: float  # total time, s
    fast: float
    cycles: float
    slow_iterations: float
    iterations: float

    @property
    def share(self) -> float:
        return self.slow_iterations / self.iterations

    def joined(self, other: "_Spell") -> "_Spell":
        jump = np.average([self.jump, other.jump], weights=[self.slow_iterations, other.slow_iterations])
        sums = (mine + theirs for mine, theirs in zip(self[2:], other[2:], strict=True))
        return _Spell(self.entities + other.entities, float(jump), *sums)

    def regime(self, of: Scope) -> InSpells:
        seconds = self.fast / self.cycles, self.slow / self.cycles
        return InSpells(of, self.entities, math.exp(self.jump), *seconds, self.share, self.slow_iterations / self.cycles)


class _Piece(NamedTuple):
    """The chosen explanation of an entity in one pass."""

    entity: int
    found: _Spell | InWaves | Wanders
    added: NDArray[np.float64]  # effect on its logarithms [iterations]
    shown: NDArray[np.float64]  # effect that its workers must show [iterations]


def fit_regimes(
    values: Matrix, rounds: NDArray[np.float64], of: Scope, together: Callable[[int, NDArray[np.float64]], bool]
) -> Found:
    """Find the regimes of each entity, up to three on top of each other.

    A regime must raise the log-likelihood by more than the Bayesian information criterion requires [Schwarz 1978]. The
    margin grows with the number of entities. Persistent noise and heavy tails must not pass for spells, so spells must
    explain more than these.

    Args:
        values: logarithms of compute times, less their level [iterations, entities].
        rounds: duration of each iteration, s [iterations].
        of: kind of the entities.
        together: function of an entity and a regime's effect on it [iterations]; returns True if most of its workers show
            it.

    Example: one of three workers is twice as slow in two of four parts of the trace.
        >>> values = 0.1 * np.random.default_rng(0).normal(size=(200, 3))
        >>> values[:, 1] += np.log(2) * np.repeat([0, 1, 0, 1], 50)
        >>> regime, = fit_regimes(values, np.ones(200), "worker", lambda entity, added: True).regimes
        >>> regime.entities, round(regime.slowdown, 1), round(regime.share, 2)
        ((1,), 2.0, 0.5)
    """
    added = np.zeros_like(values)
    pieces: list[_Piece] = []
    active = np.flatnonzero(np.ptp(values, axis=0) > 0) if len(values) >= _FEWEST else np.array([], np.int64)
    calm = without_spikes(values) if len(active) else values
    while len(active) and len(pieces) < _PASSES * values.shape[1]:
        tried = [piece for piece in _pieces(calm - added, active, rounds, of) if together(piece.entity, piece.shown)]
        pieces += tried
        for piece in tried:
            added[:, piece.entity] += piece.added
        again = [piece.entity for piece in tried if not isinstance(piece.found, Wanders)]
        active = np.array([each for each in again if sum(piece.entity == each for piece in pieces) < _PASSES], np.int64)
    spells = _merged([piece.found for piece in pieces if isinstance(piece.found, _Spell)], values.shape[1], rounds)
    wanders = [piece.found for piece in pieces if isinstance(piece.found, Wanders)]
    own = wanders if len(wanders) < values.shape[1] / 2 or values.shape[1] == 1 else []  # otherwise it is shared noise
    waves = [piece.found for piece in pieces if isinstance(piece.found, InWaves)]
    return Found((*(spell.regime(of) for spell in spells), *waves, *own), added)


class _Fits(NamedTuple):
    """The three fitted explanations of each active entity."""

    spells: Spells
    waves: Waves
    noise: Wandering

    def gains(self, rest: Matrix) -> Matrix:
        """Return the gain of each over a constant, less the gain required [3, entities]."""
        length, margin = math.log(len(rest)), _MARGIN + math.log(rest.shape[1])
        least = length + margin - 0.5 * len(rest) * (np.log(2 * math.pi * np.maximum(rest.var(0), 1e-12)) + 1)
        lasting = (self.spells.persistence > 0.5 * length + _MARGIN) & (self.spells.jump > math.log(_LEAST))
        by_spells = np.where(lasting, self.spells.likelihood - least - 0.5 * length, -math.inf)
        by_wave = self.waves.likelihood - least - 0.5 * length - math.log(self.waves.tried)
        by_wave = np.where(self.waves.slowdown < _LEAST, -math.inf, by_wave)
        follows = (self.noise.deviation > math.log(_LEAST) / 2) & (_autocorrelation(rest) > _SURE / math.sqrt(len(rest)))
        by_noise = np.where(follows, self.noise.likelihood - least, -math.inf)
        by_noise = np.where(by_wave > _PREFERRED * by_noise, np.minimum(by_noise, by_wave), by_noise)
        return np.stack([by_spells, by_wave, by_noise])


def _pieces(rest: Matrix, active: NDArray[np.int64], rounds: NDArray[np.float64], of: Scope) -> list[_Piece]:
    """Return the best explanation of each active entity, unless it is constant."""
    rest = rest[:, active]
    fits = _Fits(fit_spells(rest), fit_waves(rest, np.cumsum(rounds) - rounds), fit_wandering(rest))
    gains = fits.gains(rest)
    pieces = []
    for place, entity in enumerate(active.tolist()):
        if gains[:, place].max() > 0:
            make = (_in_spells, _in_waves, _wandering)[int(gains[:, place].argmax())]
            pieces.append(make(fits, place, entity, rest[:, place], rounds, of))
    return pieces


def _in_spells(
    fits: _Fits, place: int, entity: int, own: NDArray[np.float64], rounds: NDArray[np.float64], of: Scope
) -> _Piece:
    slow, jump = fits.spells.slow[:, place], float(fits.spells.jump[place])
    cycles = max(1.0, float(fits.spells.changes[place]))
    totals = float(slow @ rounds), float((1 - slow) @ rounds), cycles, float(slow.sum()), float(len(own))
    return _Piece(entity, _Spell((entity,), jump, *totals), slow * jump, slow * jump)


def _in_waves(fits: _Fits, place: int, entity: int, own: NDArray[np.float64], rounds: NDArray[np.float64], of: Scope) -> _Piece:
    waves, added = fits.waves, fits.waves.added[:, place]
    wave = float(waves.slowdown[place]), float(waves.period[place]), float(waves.peak[place]), bool(waves.linear[place])
    return _Piece(entity, InWaves(of, (entity,), *wave, drift=bool(waves.period[place] > 1.5 * rounds.sum())), added, added)


def _wandering(
    fits: _Fits, place: int, entity: int, own: NDArray[np.float64], rounds: NDArray[np.float64], of: Scope
) -> _Piece:
    found = Wanders(of, (entity,), float(fits.noise.deviation[place]), float(fits.noise.persistence[place]))
    return _Piece(entity, found, np.zeros(len(own)), own)


def _autocorrelation(values: Matrix) -> NDArray[np.float64]:
    """Return the rank autocorrelation at lag 1 of each column, which heavy tails cannot inflate."""
    ranks = rankdata(values, axis=0)
    ranks -= ranks.mean(0)
    return np.asarray((ranks[1:] * ranks[:-1]).sum(0) / np.maximum((ranks**2).sum(0), 1e-12), np.float64)


def _merged(spells: Sequence[_Spell], entities: int, rounds: NDArray[np.float64]) -> list[_Spell]:
    """Merge spells of several entities with similar parameters; spells of nearly all become a regime of all."""
    merged: list[_Spell] = []
    for spell in sorted(spells, key=lambda each: each.jump):
        for place, other in enumerate(merged):
            if _alike(spell, other):
                merged[place] = other.joined(spell)
                break
        else:
            merged.append(spell)
    if len(merged) < len(spells):
        return _merged(merged, entities, rounds)
    return _of_all(merged, entities, rounds)


def _alike(one: _Spell, other: _Spell) -> bool:
    shares = sorted((one.share, other.share))
    chance = math.exp(1 / math.sqrt(min(one.cycles, other.cycles)))
    apart = not set(one.entities) & set(other.entities)
    return apart and abs(one.jump - other.jump) < _ALIKE and shares[1] < _FACTOR * chance * shares[0]


def _of_all(spells: list[_Spell], entities: int, rounds: NDArray[np.float64]) -> list[_Spell]:
    """Turn spells of most entities into a regime of all; entities with few or no spells had few by chance."""
    most = max(spells, key=lambda each: len(each.entities), default=None)
    if most is None or len(most.entities) <= max(1, _MOST * entities):
        return spells
    whole, left = most, list[_Spell]()
    for spell in spells:
        if spell is most:
            continue
        if abs(spell.jump - most.jump) < _ALIKE and not set(spell.entities) & set(whole.entities):
            whole = whole.joined(spell)
        else:
            left.append(spell)
    others = entities - len(whole.entities)
    fast, iterations = others * float(rounds.sum()), others * float(len(rounds))
    return [whole._replace(entities=(), fast=whole.fast + fast, iterations=whole.iterations + iterations), *left]


def without_spikes(values: Matrix) -> Matrix:
    """Replace spikes, single iterations far above both neighbours, by the larger neighbour.

    Args:
        values: logarithms [iterations, entities].

    >>> without_spikes(np.array([0.0, 0.1, 0.0, 9.0, 0.1, 0.0, 5.0, 5.1, 0.1])[:, None])[:, 0].tolist()
    [0.0, 0.1, 0.0, 0.1, 0.1, 0.0, 5.0, 5.1, 0.1]
    """
    before, after = np.vstack((values[1], values[:-1])), np.vstack((values[1:], values[-2]))
    neighbours = np.maximum(before, after)
    level = np.median(values, axis=0)
    deviation = 1.48 * np.median(np.abs(values - level), axis=0)
    steps = 1.48 * np.median(np.abs(values[1:] - values[:-1]), axis=0) / math.sqrt(2)
    far = values - neighbours > _SPIKE * np.minimum(deviation, steps)
    return np.where(far, neighbours, values)
