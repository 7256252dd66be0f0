"""Random streams, minibatches and the division of examples: published vectors, second programs in plain integers, closed forms."""

import hashlib
from collections.abc import Sequence
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fred
from fred import Cluster, FredError, Verb
from fred.base import numerics
from fred.running.execution import check
from fred.running.model_training import Problem
from fred.schedule.minibatches import Minibatches, Parts, Sampling, batch_indices, divide, divide_by_quantity, divide_by_shares
from tests.worlds import TASK, fitting_protocol, make_run, record

SAMPLINGS: tuple[Sampling, ...] = ("replacement", "shuffled", "sequential")
SEEDS, WORDS = st.integers(0, 99), st.integers(0, 2**32 - 1)
REGRESSION = {**TASK, "data": {"name": "synthetic-regression", "examples": 400, "evaluation": 50}}


def plain_word(seed: int, purpose: str, entity: int, position: int) -> int:
    """One word of a stream, by Philox4x32-10 as its authors print it, one number after the other."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    keys = [int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")]
    x = [position // 4, entity, 0, 0]
    for _ in range(10):
        first, second = x[0] * 0xD2511F53, x[2] * 0xCD9E8D57
        x = [second // 2**32 ^ x[1] ^ keys[0], second % 2**32, first // 2**32 ^ x[3] ^ keys[1], first % 2**32]
        keys = [(keys[0] + 0x9E3779B9) % 2**32, (keys[1] + 0xBB67AE85) % 2**32]
    return x[position % 4]


def test_philox_reproduces_the_vectors_that_its_authors_published():
    all_bits, pi = 0xFFFFFFFF, (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    for key, counter, words in (  # kat_vectors of Random123, philox4x32-10
        ((0, 0), (0,) * 4, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((all_bits,) * 2, (all_bits,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        ((0xA4093822, 0x299F31D0), pi, (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ):
        assert numerics.philox(key, *counter).tolist() == list(words), key


@given(st.sampled_from(["minibatch", "any"]), WORDS, WORDS, st.integers(0, 10**6), st.integers(1, 13))
def test_draws_are_the_same_one_by_one_in_runs_and_in_plain_integers(purpose, seed, entity, start, count):
    expected = [plain_word(seed, purpose, entity, position) for position in range(start, start + count)]
    assert numerics.words(seed, purpose, entity, start + np.arange(count)).tolist() == expected
    assert numerics.word_runs(seed, purpose, entity, start, count).tolist() == expected
    several = numerics.word_runs(seed, purpose, np.array([entity, 5]), np.array([start, 4 * start]), 8)
    assert several[0, :count].tolist() == expected[:8]
    assert several[1, 0] == plain_word(seed, purpose, 5, 4 * start)
    pairs = [[plain_word(seed, purpose, entity, 2 * (start + i) + half) >> 6 for half in (0, 1)] for i in range(count)]
    uniforms = [(2 * (high * 2**26 + low) + 1) / 2**53 for high, low in pairs]
    assert numerics.uniforms(seed, purpose, entity, start, count).tolist() == uniforms
    assert numerics.uniforms(seed, purpose, np.array([7, entity, 9]), start, count)[1].tolist() == uniforms
    iterator = numerics.iterate_uniforms(seed, purpose, entity)
    assert list(islice(iterator, 600)) == numerics.uniforms(seed, purpose, entity, 0, 600).tolist()


def plain_indices(
    sampling: Sampling,
    seed: int,
    worker: int,
    step: int,
    ordinal: int,
    batch: int,
    workers: int,
    part: Sequence[int],
    is_divided: bool,
) -> list[int]:
    """One minibatch as the documentation says, one example after the other."""
    result = []
    for i in range(batch):
        if sampling == "replacement":
            result.append(part[plain_word(seed, "minibatch", step, worker * batch + i) * len(part) // 2**32])
        elif sampling == "shuffled":
            epoch, rank = divmod((step if is_divided else step * workers + worker) * batch + i, len(part))
            words = {example: plain_word(seed, "shuffle", epoch, example) for example in part}
            result.append(sorted(part, key=words.__getitem__)[rank])
        else:
            full_batches = len(part) // batch or 1
            result.append((ordinal % full_batches * batch + i) % len(part))
    return result


STEPS = st.integers(0, 300) | st.integers(0, 10**6)
KEYS = st.lists(st.tuples(st.integers(0, 4), STEPS, STEPS), min_size=1, max_size=8)  # worker, step, ordinal


def test_two_regimes_alike_draw_from_streams_of_their_own():
    slow = {"name": "markov-switching", "slowdown": 4.0, "fast_seconds": 1.0, "slow_seconds": 0.5}
    cluster = Cluster(workers=4, compute={"name": "constant", "seconds": 0.01}, contention=[slow, slow])
    schedule = record(fitting_protocol("asynchronous", cluster), cluster, gradients=1000)
    factors = {round((row.end_ns - row.begin_ns) / 1e7, 6) for row in schedule if row.verb == Verb.PUSH}
    assert factors > {1.0, 4.0, 16.0}, "one is slow, or both"


def parts_of(division: Parts) -> list[list[int]]:
    return [division.order[begin:end].tolist() for begin, end in pairwise(division.begins)]


def plain_parts(seed: int, examples: int, workers: int, labels: list[int] | None) -> list[list[int]]:
    """Return the parts as documented, in plain integers."""
    words = [plain_word(seed, "division", 0, example) for example in range(examples)]
    order = sorted(range(examples), key=words.__getitem__)
    if labels is not None:
        order.sort(key=labels.__getitem__)
    bounds = [number * examples // workers for number in range(workers + 1)]
    return [order[begin:end] for begin, end in pairwise(bounds)]


@given(st.integers(1, 9), st.integers(0, 40), SEEDS, st.booleans(), st.data())
def test_parts_are_equal_disjoint_and_all_there_is(workers, extra, seed, labelled, data):
    examples = workers + extra
    labels = data.draw(st.lists(st.integers(0, 3), min_size=examples, max_size=examples)) if labelled else None
    parts = parts_of(divide(seed, examples, workers, labels))
    assert parts == plain_parts(seed, examples, workers, labels)
    assert sorted(chain.from_iterable(parts)) == list(range(examples))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(st.lists(st.integers(0, 3), min_size=9, max_size=60), st.integers(1, 9), st.sampled_from([0.01, 0.3, 5.0, 1e6]), SEEDS)
def test_random_parts_are_disjoint_all_there_is_and_none_is_empty(labels, workers, concentration, seed):
    by_quantity = divide_by_quantity(seed, len(labels), workers, concentration)
    for division in (by_quantity, divide_by_shares(seed, labels, workers, concentration)):
        parts = parts_of(division)
        assert sorted(chain.from_iterable(parts)) == list(range(len(labels)))
        assert len(parts) == workers and all(parts)


@pytest.mark.slow
@pytest.mark.parametrize("concentration", [0.2, 1.0, 10.0])
def test_random_parts_are_as_uneven_as_a_dirichlet_distribution_says(concentration):
    """The expected sum of squared shares of n workers is (alpha + 1) / (n alpha + 1)."""
    squares = pytest.approx((concentration + 1) / (5 * concentration + 1), rel=0.05)
    sizes = [np.diff(divide_by_quantity(seed, 10_000, 5, concentration).begins) / 10_000 for seed in range(400)]
    assert np.mean(np.square(sizes).sum(1)) == squares
    labels = np.repeat(np.arange(400), 200)
    order, begins = divide_by_shares(1, labels, 5, concentration)
    counts = np.array([np.bincount(labels[part], minlength=400) for part in np.split(order, begins[1:-1])])
    assert np.mean(((counts / 200) ** 2).sum(axis=0)) == squares


def test_a_class_whose_shares_all_vanish_is_divided_equally():
    """With this label and seed, both gamma variates of concentration 0.01 are too small for a float."""
    order, begins = divide_by_shares(1, np.full(100, 791451), 2, 0.01)
    assert begins.tolist() == [0, 50, 100] and sorted(order.tolist()) == [*range(100)]


@settings(max_examples=60)
@given(st.sampled_from(SAMPLINGS), WORDS, st.integers(1, 9), st.integers(1, 30), st.integers(1, 5), KEYS, st.booleans())
def test_every_minibatch_is_what_a_second_program_draws_in_any_order(sampling, seed, batch, examples, workers, keys, divided):
    """Minibatches are drawn from all examples, or from the worker's part."""
    divided = divided and sampling != "sequential"
    examples = max(examples, workers) * (2000 if sampling == "replacement" and not divided else 1)
    division = divide(seed, examples, workers) if divided else None
    parts: list[Any] = parts_of(division) if division else [range(examples)] * workers
    keys = [(worker % workers, step, ordinal) for worker, step, ordinal in keys]
    batches = Minibatches(seed, batch, examples, sampling, workers, division)
    together = batches.indices(*np.array(keys).T)
    assert together.shape == (len(keys), batch)
    options: dict[str, Any] = {"batch_size": batch, "examples": examples, "workers": workers, "parts": division}
    for indices, (worker, step, ordinal) in zip(together.tolist(), keys, strict=True):
        assert indices == plain_indices(sampling, seed, worker, step, ordinal, batch, workers, parts[worker], divided)
        assert indices == batches.minibatch(worker, step, ordinal).tolist()
        assert indices == batch_indices(seed, worker, step, sampling=sampling, ordinal=ordinal, **options).tolist()
        ahead = batch_indices(seed, worker, step + 9, sampling=sampling, ordinal=ordinal, **options)
        assert batches.minibatch(worker, step + 9, ordinal).tolist() == ahead.tolist(), "drawn ahead"
        key = [plain_word(seed, "training", worker, 2 * step + number) for number in (0, 1)]
        assert fred.key_words(seed, worker, step).tolist() == key
    nobody = np.zeros(0, np.int64)
    assert batch_indices(seed, nobody, nobody, sampling=sampling, ordinal=nobody, **options).shape == (0, batch)


def test_a_task_is_divided_as_it_says():
    options: dict[str, Any] = {"batch_size": 4, "examples": 500, "workers": 4}
    answers = np.arange(500) % 4
    for division, parts in (
        ({"division": "divided"}, divide(3, 500, 4)),
        ({"division": "by-label"}, divide(3, 500, 4, answers)),
        ({"division": "by-quantity", "concentration": 0.3}, divide_by_quantity(3, 500, 4, 0.3)),
        ({"division": "dirichlet", "concentration": 0.3}, divide_by_shares(3, answers, 4, 0.3)),
    ):
        run: Any = make_run("asgd", task={**TASK, **division, "sampling": "shuffled"})
        problem: Any = Problem(run.task, run, 3)
        assert parts_of(problem.parts) == parts_of(parts)
        indices = batch_indices(3, np.arange(4), 7, sampling="shuffled", parts=parts, **options)
        assert (problem.batches.indices(np.arange(4), 7, 0) == indices).all()


def test_data_that_cannot_be_divided_are_refused():
    for task, workers, message in (
        ({**TASK, "division": "divided", "sampling": "sequential"}, 2, "`sampling: sequential` goes through all examples in"),
        ({**TASK, "division": "divided"}, 601, "examples cannot be divided among 601 workers: take `division: shared`"),
        ({**REGRESSION, "division": "by-label"}, 2, "`division: by-label` needs classes, .*: take `divided`"),
    ):
        with pytest.raises(FredError, match=message):
            check("run", make_run("asgd", task=task, cluster={"workers": workers}), 0)


def test_a_target_error_is_a_share_of_the_examples_where_there_are_classes():
    for target in (1.0, 12):
        with pytest.raises(FredError, match=r"`target_error` is \d+; expected a share of the examples, below 1, such as 0\.12"):
            check("run", make_run("asgd", task=TASK, evaluate={"target_error": target}), 0)
        check("run", make_run("asgd", task=REGRESSION, evaluate={"target_error": target}), 0)


def test_each_owner_keeps_its_examples(tmp_path):
    inputs, answers, owners = np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1]), [5, 9, 5, 2, 9, 5]
    data = fred.arrays(tmp_path / "owned", (inputs, answers), (inputs, answers), owners=owners)
    unowned = fred.arrays(tmp_path / "plain", (inputs, answers), (inputs, answers))
    assert data.load(0).digest != unowned.load(0).digest
    run: Any = make_run("asgd", task={**TASK, "data": data, "division": "by-owner"}, cluster={"workers": 3})
    parts: Any = Problem(run.task, run, 0).parts
    assert parts_of(parts) == [[3], [0, 2, 5], [1, 4]]
    for workers, owned, message in ((2, data, "have 3 owners, and there are 2"), (3, unowned, "name no owners")):
        wrong = make_run("asgd", task={**TASK, "data": owned, "division": "by-owner"}, cluster={"workers": workers})
        with pytest.raises(FredError, match=message):
            check("run", wrong, 0)
    with pytest.raises(FredError, match=r"owners are .*; expected a whole number for each of 6"):
        fred.arrays(tmp_path / "wrong", (inputs, answers), (inputs, answers), owners=[1, 2])
