"""Examples divided among workers: disjoint parts that are all of them, drawn from as a second program draws."""

from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fred
from fred.base.errors import FredError
from fred.running.execution import check, execute
from fred.running.problem import Problem
from fred.schedule.minibatches import Minibatches, Parts, Sampling, batch_indices, divide, divide_by_quantity, divide_by_shares
from tests.philox import plain_word
from tests.recompute import PlainSGD, largest_relative_error, recompute
from tests.worlds import TASK, make_run

WITHIN: tuple[Sampling, ...] = ("replacement", "shuffled")


def part_of(parts: Parts, worker: int) -> list[int]:
    return parts.order[parts.begins[worker] : parts.begins[worker + 1]].tolist()


def plain_parts(seed: int, examples: int, workers: int, labels: list[int] | None) -> list[list[int]]:
    """Return the parts as documented, in plain integers."""
    words = [plain_word(seed, "division", 0, example) for example in range(examples)]
    order = sorted(range(examples), key=words.__getitem__)
    if labels is not None:
        order.sort(key=labels.__getitem__)
    bounds = [number * examples // workers for number in range(workers + 1)]
    return [order[begin:end] for begin, end in pairwise(bounds)]


@given(workers=st.integers(1, 9), more=st.integers(0, 40), seed=st.integers(0, 99), labelled=st.booleans(), data=st.data())
def test_parts_are_equal_disjoint_and_all_there_is(workers, more, seed, labelled, data):
    examples = workers + more
    labels = data.draw(st.lists(st.integers(0, 3), min_size=examples, max_size=examples)) if labelled else None
    parts = divide(seed, examples, workers, labels)
    own = [part_of(parts, worker) for worker in range(workers)]
    assert own == plain_parts(seed, examples, workers, labels)
    assert sorted(chain.from_iterable(own)) == list(range(examples))
    assert max(map(len, own)) - min(map(len, own)) <= 1
    if labels is not None:
        ranges = [sorted(labels[example] for example in part) for part in own]
        assert all(one[-1] <= other[0] for one, other in pairwise(ranges)), "in the order of the labels"


@given(
    labels=st.lists(st.integers(0, 3), min_size=9, max_size=60),
    workers=st.integers(1, 9),
    concentration=st.sampled_from([0.01, 0.3, 5.0, 1e6]),
    seed=st.integers(0, 99),
)
def test_shares_are_disjoint_all_there_is_and_nobody_has_nothing(labels, workers, concentration, seed):
    parts = divide_by_shares(seed, labels, workers, concentration)
    own = [part_of(parts, worker) for worker in range(workers)]
    assert sorted(chain.from_iterable(own)) == list(range(len(labels)))
    assert all(own)


@given(
    workers=st.integers(1, 9), more=st.integers(0, 40), concentration=st.sampled_from([0.01, 0.3, 1e6]), seed=st.integers(0, 99)
)
def test_parts_of_random_size_are_disjoint_all_there_is_and_none_is_empty(workers, more, concentration, seed):
    parts = divide_by_quantity(seed, workers + more, workers, concentration)
    own = [part_of(parts, worker) for worker in range(workers)]
    assert sorted(chain.from_iterable(own)) == list(range(workers + more)) and all(own)


@pytest.mark.parametrize("concentration", [0.2, 1.0, 10.0])
def test_random_sizes_are_as_uneven_as_a_dirichlet_distribution_says(concentration):
    """The expected sum of squared shares of n workers is (alpha + 1) / (n alpha + 1)."""
    shares = [np.diff(divide_by_quantity(seed, 10_000, 5, concentration).begins) / 10_000 for seed in range(400)]
    assert np.mean(np.square(shares).sum(1)) == pytest.approx((concentration + 1) / (5 * concentration + 1), rel=0.05)


@pytest.mark.parametrize("concentration", [0.2, 1.0, 10.0])
def test_shares_are_as_uneven_as_a_dirichlet_distribution_says(concentration):
    """The expected sum of squared shares of n workers is (alpha + 1) / (n alpha + 1)."""
    labels, workers = np.repeat(np.arange(400), 200), 5
    order, begins = divide_by_shares(1, labels, workers, concentration)
    counts = np.array([np.bincount(labels[part], minlength=400) for part in np.split(order, begins[1:-1])])
    expected = (concentration + 1) / (workers * concentration + 1)
    assert np.mean(((counts / 200) ** 2).sum(axis=0)) == pytest.approx(expected, rel=0.05)


@given(
    sampling=st.sampled_from(WITHIN),
    workers=st.integers(1, 5),
    more=st.integers(0, 30),
    batch=st.integers(1, 6),
    seed=st.integers(0, 99),
    step=st.integers(0, 300),
)
def test_each_minibatch_is_what_a_second_program_draws_from_the_workers_own_part(sampling, workers, more, batch, seed, step):
    examples = workers + more
    parts = divide(seed, examples, workers)
    everybody = np.arange(workers)
    options = {"batch_size": batch, "examples": examples, "workers": workers, "parts": parts}
    ours = batch_indices(seed, everybody, step, sampling=sampling, **options)
    for worker in range(workers):
        own = part_of(parts, worker)
        expected = []
        for position in range(batch):
            if sampling == "replacement":
                expected.append(own[plain_word(seed, "minibatch", step, worker * batch + position) * len(own) // 2**32])
            else:
                epoch, rank = divmod(step * batch + position, len(own))
                words = {example: plain_word(seed, "shuffle", epoch, example) for example in own}
                expected.append(sorted(own, key=words.__getitem__)[rank])
        assert ours[worker].tolist() == expected
        one = Minibatches(seed, batch, examples, sampling, workers, parts).one(worker, step, 0)
        assert one.tolist() == expected


@pytest.mark.parametrize("sampling", WITHIN)
def test_where_none_is_asked_for_there_is_none(sampling):
    nobody = np.zeros(0, np.int64)
    parts = divide(2, 40, 3)
    own = batch_indices(2, nobody, nobody, batch_size=4, examples=40, sampling=sampling, workers=3, parts=parts)
    assert own.shape == (0, 4)


@pytest.mark.parametrize("workers", [1, 3])
def test_shuffled_shows_a_worker_its_part_once_per_epoch(workers):
    parts = divide(2, 40, workers)
    for worker in range(workers):
        own = part_of(parts, worker)
        steps = np.arange(3 * len(own))  # minibatches of 4: 12 epochs
        options = {"batch_size": 4, "examples": 40, "sampling": "shuffled", "workers": workers, "parts": parts}
        seen = batch_indices(2, worker, steps, **options).ravel().reshape(12, len(own))
        assert (np.sort(seen, axis=1) == sorted(own)).all()
        assert len(np.unique(seen, axis=0)) == 12, "in another order each time"


def test_a_run_on_divided_data_is_what_numpy_says():
    run = make_run("asgd", task={**TASK, "division": "by-label", "sampling": "shuffled"})
    replayed, inline = (execute("run", run, 3, each) for each in (False, True))
    assert replayed.params_digest == inline.params_digest
    assert run.task is not None
    data = run.task.data.load(3).train
    labels = [set(data.answers[part].tolist()) for part in plain_parts(3, len(data), 4, data.answers.tolist())]
    assert max(map(len, labels)) < 4, "nobody has all classes"
    parts = divide(3, len(data), 4, data.answers)
    options: dict[str, Any] = {"batch_size": 4, "examples": len(data), "sampling": "shuffled", "workers": 4, "parts": parts}
    initial = {k: v.astype(float) for k, v in replayed.initial.items()}
    schedule = replayed.schedule.frame()
    (params,) = recompute(
        schedule, [PlainSGD(initial, 0.1)], data.inputs, data.answers, lambda *key: batch_indices(3, *key, **options)
    )
    assert largest_relative_error(replayed.final, params) < 1e-4


REGRESSION = {**TASK, "data": {"name": "synthetic-regression", "examples": 400, "evaluation": 50}, "model": "softmax"}


@pytest.mark.parametrize(
    ("task", "workers", "message"),
    [
        ({**TASK, "division": "divided", "sampling": "sequential"}, 2, "`sampling: sequential` goes through all examples in"),
        ({**TASK, "division": "divided"}, 601, "examples cannot be divided among 601 workers: take `division: shared`"),
        ({**REGRESSION, "division": "by-label"}, 2, "`division: by-label` needs classes, .*: take `divided`"),
    ],
)
def test_data_that_cannot_be_divided_are_refused(task, workers, message):
    with pytest.raises(FredError, match=message):
        check("run", make_run("asgd", task=task, cluster={"workers": workers}), 0)


@pytest.mark.parametrize("evaluate", [{"target_error": 1.0}, {"target_error": 12}])
def test_a_share_of_the_examples_is_below_one(evaluate):
    with pytest.raises(FredError, match=r"`target_error` is \d+; expected a share of the examples, below 1, such as 0\.12"):
        check("run", make_run("asgd", task=TASK, evaluate=evaluate), 0)
    check("run", make_run("asgd", task={**REGRESSION, "model": "softmax"}, evaluate=evaluate), 0)


def test_each_owner_keeps_its_examples(tmp_path):
    inputs, answers = np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1])
    data = fred.arrays(tmp_path / "owned", (inputs, answers), (inputs, answers), owners=[5, 9, 5, 2, 9, 5])
    plain = fred.arrays(tmp_path / "plain", (inputs, answers), (inputs, answers))
    assert data.load(0).digest != plain.load(0).digest
    run = make_run("asgd", task={**TASK, "data": data, "division": "by-owner"}, cluster={"workers": 3})
    assert run.task is not None
    parts = Problem(run.task, run, 0).parts
    assert parts is not None and [part_of(parts, worker) for worker in range(3)] == [[3], [0, 2, 5], [1, 4]]
    for workers, owned, message in ((2, data, "have 3 owners, and there are 2"), (3, plain, "name no owners")):
        wrong = make_run("asgd", task={**TASK, "data": owned, "division": "by-owner"}, cluster={"workers": workers})
        with pytest.raises(FredError, match=message):
            check("run", wrong, 0)
    with pytest.raises(FredError, match=r"owners are .*; expected a whole number for each of 6"):
        fred.arrays(tmp_path / "wrong", (inputs, answers), (inputs, answers), owners=[1, 2])
