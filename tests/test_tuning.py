"""The search for settings: the same number of points for all, and the best of a grid that has one valley."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from studies.tuning import Settings, Tuned, search, tuned

pytestmark = pytest.mark.filterwarnings("error")


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(1, 40), st.randoms(use_true_random=False))
def test_every_search_has_the_same_number_of_points(sizes: list[int], points: int, random: Any) -> None:
    knobs = {f"knob{number}": range(size) for number, size in enumerate(sizes)}
    found = search(lambda some: [random.random() for _ in some], knobs, points)
    assert len(found) == min(points, int(np.prod(sizes)))


@pytest.mark.parametrize("valley", list(itertools.product(range(5), range(7))))
def test_a_search_walks_down_to_the_valley_wherever_it_is(valley: tuple[int, int]) -> None:
    knobs = {"a": range(5), "b": range(7)}
    found = search(lambda some: [abs(a - valley[0]) + 2 * abs(b - valley[1]) for a, b in some], knobs, 20)
    assert min(found, key=found.__getitem__) == valley


def test_the_choice_is_by_the_mean_over_seeds_among_those_kept() -> None:
    values = {1: [0.0, 9.0, 9.0], 2: [1.0, 1.0, 1.0], 3: [2.0, 0.0, 0.0]}  # by setting: with seeds 1, 2, 3

    def measure(some: Sequence[Settings], seeds: Sequence[int]) -> NDArray[np.float64]:
        return np.array([[values[each["a"]][seed - 1] for seed in seeds] for each in some])

    assert tuned(measure, {"a": [1, 2, 3]}, kept=3) == Tuned({"a": 3}, 2 / 3, 3, ("a",))
    assert tuned(measure, {"a": [1, 2, 3]}, kept=2) == Tuned({"a": 2}, 1.0, 3, ())


def test_what_diverged_is_never_chosen() -> None:
    def measure(some: Sequence[Settings], seeds: Sequence[int]) -> NDArray[np.float64]:
        return np.array([[np.nan if each["a"] < 3 else each["a"] for _ in seeds] for each in some])

    assert tuned(measure, {"a": [1, 2, 3, 4]}).settings == {"a": 3}
