"""Intervals: their values on examples, how often they hold what is true, and what they are where it is known."""

import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from fred.base.intervals import (
    FEWEST_ROUNDS,
    Played,
    block_length,
    block_ratio,
    block_ratios,
    spell_ratio,
)
from fred.prediction.closed_loop import Rounds

ratio = Rounds.against
VALUES = np.array([0.3, 1.1, 0.7, 2.4, 0.9, 1.6])
ROUND = np.arange(40)
GRADIENTS, TIME = 4 + ROUND % 3, 10 + ROUND**2 % 7
SLOW = (ROUND >= 12) & (ROUND < 25)
OWN, EVERY, BOUND = (
    Played(gradients[:, None] * 1.0, seconds[:, None] * 1.0)
    for gradients, seconds in ((GRADIENTS, TIME), (np.full(40, 6), TIME * np.where(SLOW, 2, 1)), (np.full(40, 6), TIME))
)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            block_ratio(Played(GRADIENTS, TIME), Played(GRADIENTS[::-1], TIME + 3)),
            (1.2505219206680585, 1.2180565465708197, 1.2838526080532893),
        ),
        (block_ratios(np.stack([GRADIENTS, TIME]).astype(np.float64)[:, :, None]), (0.39902179, 0.43255219)),
        (spell_ratio(SLOW, OWN, EVERY), (1.0992084203201113, 0.848473003, 1.589173935)),
        (spell_ratio(SLOW, OWN, EVERY, BOUND), (1.0992084203201113, 0.848473003, 1.691573301)),
    ],
)
def test_values_are_those_of_published_tables(found, expected):
    """Pinned: a change of method changes every table, so it must be deliberate."""
    np.testing.assert_allclose(np.ravel(found), expected, rtol=1e-8)


def rounds_of(cutoff: np.ndarray, seconds: np.ndarray) -> Rounds:
    """Rounds that took so many gradients in so long; what the oracle had does not matter."""
    time = np.rint(1e9 * seconds).astype(np.int64)
    return Rounds(cutoff, time, np.zeros(len(time)), cutoff, time)


def persistent(rng: np.random.Generator, shape: tuple[int, ...], phi: float) -> np.ndarray:
    """Standard normal values that correlate by phi with the ones before, along the last axis."""
    values = rng.standard_normal(shape)
    for i in range(1, shape[-1]):
        values[..., i] = phi * values[..., i - 1] + np.sqrt(1 - phi**2) * values[..., i]
    return values


def coverage(count: int, phi: float, repeats: int) -> float:
    """Return the share of intervals that hold the true ratio, of log-normal times which both rules share in part.

    E[c] = 24 against 32 gradients, E[x] = 1.3 exp(0.05) and 1 s, for any phi.
    """
    rng, held = np.random.default_rng(count), 0
    true = 24 / 32 * np.exp(0.3**2 / 2 + 0.1**2 / 2) / np.exp(0.1**2 / 2) * 1.3
    for _ in range(repeats):
        slow = np.exp(0.3 * persistent(rng, (count,), phi))
        own, other = np.exp(0.1 * rng.standard_normal((2, count)))
        one = rounds_of(rng.integers(23, 26, count), own)
        found = ratio(one, rounds_of(np.full(count, 32), 1.3 * slow * other))
        held += found.low <= true <= found.high
    return held / repeats


@pytest.mark.parametrize(("count", "phi"), [(20, 0.0), (60, 0.5), (400, 0.5)])
def test_nominal_95_percent_hold_the_true_ratio_of_paired_persistent_rounds(count, phi):
    assert 0.90 <= coverage(count, phi, 150) <= 0.99


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "phi", "least"),
    [(8, 0.0, 0.93), (20, 0.5, 0.9), (100, 0.5, 0.91), (400, 0.0, 0.92), (400, 0.8, 0.88), (1000, 0.8, 0.9)],
)
def test_nominal_95_percent_hold_it_in_a_thousand_repetitions(count, phi, least):
    assert least <= coverage(count, phi, 1000) <= 0.99


def test_shared_noise_cancels_since_rounds_are_paired():
    """What slows both rules alike widens each one's throughput, but not their ratio."""
    rng = np.random.default_rng(3)
    slow, small = np.exp(persistent(rng, (200,), 0.8)), 0.01 * rng.standard_normal(200)
    one, other = rounds_of(np.full(200, 20), slow), rounds_of(np.full(200, 22), slow * (1 + small))
    found = ratio(one, other)
    assert found.high / found.low < 1.01
    assert found.below
    assert not ratio(one, rounds_of(np.full(200, 22), np.roll(other.time, 100) / 1e9)).below


def test_of_independent_rounds_it_is_as_wide_as_the_delta_method_says():
    rng, wider = np.random.default_rng(4), []
    for _ in range(20):
        one, other = (rounds_of(np.full(1000, 20), rng.uniform(1, 3, 1000)) for _ in range(2))
        shares = other.time / other.time.mean() - one.time / one.time.mean()
        width = 2 * stats.t.ppf(0.975, 30) * shares.std() / np.sqrt(1000)
        found = ratio(one, other)
        assert found.value == pytest.approx(other.time.sum() / one.time.sum())
        assert found.value**2 == pytest.approx(found.low * found.high)
        wider.append(np.log(found.high / found.low) / width)
    assert np.mean(wider) == pytest.approx(1, abs=0.08)


def test_blocks_are_as_long_as_the_closed_form_for_persistent_values_says():
    """Politis & White 2004 of an AR(1): G / g(0) = 2 phi / (1 - phi^2)."""
    phi, count = 0.9, 4000
    several = persistent(np.random.default_rng(5), (12, count), phi)
    exact = (1.5 * count * (2 * phi / (1 - phi**2)) ** 2) ** (1 / 3)
    found = np.mean([block_length(values) for values in several])
    assert exact > 1.2 * count**0.5
    assert found == pytest.approx(exact, rel=0.15)


@pytest.mark.parametrize(("count", "length"), [(1, 1), (8, 2), (9, 2), (100, 10), (1001, 32)])
def test_blocks_of_values_that_do_not_vary_or_not_depend(count, length):
    assert block_length(np.ones(count)) == length
    assert length <= block_length(np.random.default_rng(count).random(count)) <= 1.5 * length


def test_a_rule_is_as_good_as_itself_and_of_few_rounds_no_more_is_known():
    rng = np.random.default_rng(6)
    one, other = (rounds_of(np.full(FEWEST_ROUNDS, 3), rng.uniform(1, 2, FEWEST_ROUNDS)) for _ in range(2))
    assert ratio(one, one) == (1.0, 1.0, 1.0)
    assert ratio(one, other).known
    few = ratio(one.part(0, FEWEST_ROUNDS - 1), other.part(0, FEWEST_ROUNDS - 1))
    assert (few.low, few.high, few.interval) == (0.0, np.inf, None)
    assert not few.above | few.below
    assert ratio(one.part(0, 1), one.part(0, 1)).interval == (1.0, 1.0)


def test_rounds_that_never_differ_but_in_one_number_leave_no_doubt():
    found = ratio(rounds_of(np.full(30, 3), np.ones(30)), rounds_of(np.full(30, 4), np.ones(30)))
    assert found == (0.75, 0.75, 0.75)


def test_no_interval_reaches_beyond_the_worst_and_the_best_single_round():
    """Where one round is as long as all others, the spread is large, but who is faster in each round is faster."""
    seconds = np.array([1.0, 1.1, 0.9, 1.2, 1.0, 1.1, 40.0, 0.9, 1.0, 1.1, 1.2, 1.0])
    found = ratio(rounds_of(np.full(12, 20), 0.8 * np.minimum(seconds, 2)), rounds_of(np.full(12, 20), seconds))
    assert found.low == pytest.approx(1.25)
    assert found.above
    assert found.high <= 25


def test_the_order_of_asking_does_not_matter():
    program = """if True:
        import numpy as np, sys
        from fred.prediction.closed_loop import Rounds
        rng = np.random.default_rng(7)
        def rounds(): return Rounds(rng.integers(1, 9, 90), rng.integers(10**9, 10**10, 90), *[np.ones(90)] * 3)
        a, b, c = rounds(), rounds(), rounds()
        pairs = {"ab": (a, b), "ac": (a, c), "cb": (c, b)}
        found = {name: Rounds.against(*pairs[name]) for name in sys.argv[1].split(",")}
        print([(name, *map(float.hex, each)) for name, each in sorted(found.items())])
    """
    said = {
        subprocess.run([sys.executable, "-c", program, order], capture_output=True, text=True, check=True).stdout
        for order in ("ab,ac,cb", "cb,ac,ab")
    }
    assert len(said) == 1
