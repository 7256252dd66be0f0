"""The times that dropped workers are believed to have taken: against known distributions, and where nothing is known."""

import numpy as np
import pytest

from fred.prediction.following import BINS, Completion, excesses_of


def test_late_workers_are_expected_when_late_ones_came_before():
    """One time in ten is 2.0 to 2.2 times the usual one. The mean of the completed times is that of the hidden ones."""
    rng = np.random.default_rng(0)
    seconds = rng.lognormal(0, 0.03, (300, 50))
    seconds = np.where(rng.random(seconds.shape) < 0.1, seconds * rng.uniform(2.0, 2.2, seconds.shape), seconds)
    completion = Completion(50, excesses_of(seconds[:200]))
    completed, hidden = [], []
    for row in seconds[200:]:
        arrived = row <= 1.2
        filled = completion.completed(np.minimum(row, 1.2), arrived)
        assert np.array_equal(filled[: arrived.sum()], np.sort(row[arrived]))
        assert (np.diff(filled) >= 0).all()
        completed += filled[arrived.sum() :].tolist()
        hidden += row[~arrived].tolist()
    assert len(hidden) > 300
    assert np.mean(completed) == pytest.approx(np.mean(hidden), rel=0.05)


def test_order_statistics_of_the_missing_are_those_of_their_distribution():
    """Eight missing of a wide distribution are spread as eight drawn of it, not all at its mean."""
    seconds = np.random.default_rng(1).lognormal(0, 0.4, (400, 20))
    completion = Completion(20, excesses_of(seconds[:300]))
    completed, hidden = [], []
    for row in seconds[300:]:
        end = np.sort(row)[11]
        completed.append(completion.completed(np.minimum(row, end), row <= end)[12:])
        hidden.append(np.sort(row)[12:])
    assert np.mean(completed, axis=0) == pytest.approx(np.mean(hidden, axis=0), rel=0.25)


def test_where_nothing_is_known_the_missing_are_believed_to_arrive_soon():
    """Half of the workers fail to come for the first time: within a quarter of the time waited, not more."""
    completion, times, arrived = Completion(8), np.ones(8), np.arange(8) < 4
    for _ in range(100):
        completion.completed(times, np.ones(8, bool))
    filled = completion.completed(np.where(arrived, 1.0, 1.3), arrived)
    assert (filled[4:] > 1.3).all()
    assert (filled[4:7] < 1.3 * 1.25).all()


def test_a_slow_worker_is_expected_to_be_slow_again():
    completion, times = Completion(4), np.array([1.0, 1.0, 1.0, 3.0])
    for _ in range(30):
        assert completion.completed(times, np.ones(4, bool)).tolist() == times.tolist(), "a whole round is as it is"
    assert completion.usual_seconds == pytest.approx(times, rel=0.01)
    assert completion.completed(np.minimum(times, 1.1), np.arange(4) < 3)[3] == pytest.approx(3.0, rel=0.1)


def test_counts_are_what_is_counted():
    """NumPy counts the times of a worker whose usual time stays 1, in steps of 2 % of log time from e^-1 on; old times fade."""
    excesses = excesses_of(np.ones((50, 3)))
    assert excesses.shape == (BINS,)
    assert excesses[50] == pytest.approx(3 * sum(0.99**age for age in range(49)))
    assert excesses.sum() == excesses[50]
