"""Rounds held back from training: which they are, and what is said where they tell nothing."""

import numpy as np
import pytest

from fred.prediction import closed_loop
from fred.prediction.contract import Oracle
from fred.prediction.ewma import EWMA
from fred.prediction.fixed import FixedCount
from fred.prediction.held_back import HeldBack, held_back
from tests.rounds import NODES, clusters, rounds_of


def test_the_last_quarter_counts_whole_and_the_constant_is_the_first_three_quarters_best():
    seconds = clusters(2, 100)
    found = held_back(EWMA(of="node"), seconds, NODES, warm_up=10)
    ordered = np.sort(seconds[:75], axis=1)
    best = int(np.argmax(np.arange(1, 31) / ordered.mean(axis=0))) + 1
    late = np.sort(seconds[75:], axis=1)
    fixed = best / late[:, best - 1].mean()
    own = closed_loop.run(EWMA(of="node"), seconds[65:], NODES, warm_up=10).summary()["throughput"]
    assert (found.rounds, found.static) == (25, best)
    assert found.ratio == pytest.approx(own / fixed, rel=1e-8)


def test_what_comes_later_than_three_quarters_does_not_choose_the_constant():
    seconds = rounds_of(0, 80)
    later = np.concatenate((seconds[:60], 9 * seconds[60:, ::-1]))
    assert held_back(EWMA(), seconds, NODES).static == held_back(EWMA(), later, NODES).static


def test_who_knows_the_times_is_told_better_and_who_waits_for_one_is_told_worse():
    seconds = clusters(3, 200)
    good, bad = (held_back(rule, seconds, NODES) for rule in (Oracle(objective="throughput"), FixedCount(workers=1)))
    assert good.against_static.above
    assert (good.doubt, good.worse) == (None, False)
    assert bad.worse
    assert bad.doubt is not None
    assert bad.doubt.startswith("in 50 rounds held back it was worse than always waiting for")


def test_the_constant_itself_and_few_rounds_cannot_be_told():
    seconds = clusters(4, 100)
    static = held_back(EWMA(), seconds, NODES).static
    same = held_back(FixedCount(workers=static), seconds, NODES)
    assert (same.ratio, same.interval) == (1, (1, 1))
    few = held_back(EWMA(), seconds[:20], NODES)
    assert (few.rounds, few.interval) == (5, None)
    for found in (same, few):
        assert not found.worse
        assert f"{found.rounds} rounds held back cannot tell it from always waiting for {found.static} workers" in str(
            found.doubt
        )


def test_it_reads_what_it_writes():
    for interval in ((0.9, 1.2), None):
        found = HeldBack(rounds=9, static=3, ratio=1.1, interval=interval)
        assert HeldBack.model_validate_json(found.model_dump_json()) == found
