"""Minibatches and the streams they come from: a second program in plain integers, chi-square tests, what workers see together."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from fred.base import streams
from fred.cluster.cluster import Cluster
from fred.learning.data.synthetic import SyntheticClassification
from fred.protocols.synchronous import Synchronous
from fred.schedule.minibatches import Minibatches, Sampling, batch_indices
from tests.philox import plain_word
from tests.worlds import COMPUTE, fitting, record

SAMPLINGS: tuple[Sampling, ...] = ("replacement", "shuffled", "sequential")


def plain_indices(
    sampling: Sampling, seed: int, worker: int, step: int, ordinal: int, batch: int, examples: int, workers: int
) -> list[int]:
    """One minibatch as the documentation says, one example after the other."""
    result = []
    for i in range(batch):
        if sampling == "replacement":
            result.append(plain_word(seed, "minibatch", step, worker * batch + i) * examples // 2**32)
        elif sampling == "shuffled":
            epoch, rank = divmod((step * workers + worker) * batch + i, examples)
            words = [plain_word(seed, "shuffle", epoch, example) for example in range(examples)]
            result.append(sorted(range(examples), key=words.__getitem__)[rank])
        else:
            whole = examples // batch or 1
            result.append((ordinal % whole * batch + i) % examples)
    return result


@given(
    sampling=st.sampled_from(SAMPLINGS),
    seed=st.integers(0, 2**32 - 1),
    batch=st.integers(1, 9),
    examples=st.integers(1, 30),
    workers=st.integers(1, 5),
    data=st.data(),
)
def test_every_minibatch_is_what_a_second_program_draws(sampling, seed, batch, examples, workers, data):
    worker, step = data.draw(st.integers(0, workers - 1)), data.draw(st.integers(0, 10**6))
    ordinal = data.draw(st.integers(0, 10**6))
    ours = batch_indices(
        seed, worker, step, batch_size=batch, examples=examples, sampling=sampling, workers=workers, ordinal=ordinal
    )
    assert ours.tolist() == plain_indices(sampling, seed, worker, step, ordinal, batch, examples, workers)


@pytest.mark.parametrize(("batch", "examples"), [(8, 7), (5, 100), (32, 60_000)])  # 8 and 32: words four at a time
def test_replacement_is_uniform_and_each_example_independent_of_the_one_before(batch, examples):
    seen = batch_indices(11, np.arange(20), np.arange(300)[:, None], batch_size=batch, examples=examples)
    buckets = min(examples, 50)
    bucket = seen.astype(np.int64) * buckets // examples
    sizes = np.bincount(np.arange(examples) * buckets // examples)  # not all the same where they do not divide the examples
    assert stats.chisquare(np.bincount(bucket.ravel(), minlength=buckets), seen.size * sizes / examples).pvalue > 1e-3
    for before, after in (  # within a minibatch, between workers, between steps
        (seen[..., :-1], seen[..., 1:]),
        (seen[:, :-1], seen[:, 1:]),
        (seen[:-1], seen[1:]),
    ):
        low, high = before.ravel() < examples // 2, after.ravel() < examples // 2
        table = [[(low & high).sum(), (low & ~high).sum()], [(~low & high).sum(), (~low & ~high).sum()]]
        assert stats.chi2_contingency(table).pvalue > 1e-3


def test_all_orders_of_an_epoch_are_equally_likely():
    positions = batch_indices(5, 0, np.arange(6000), batch_size=4, examples=4, sampling="shuffled")
    counts = dict.fromkeys(itertools.permutations(range(4)), 0)
    for order in positions.tolist():
        counts[tuple(order)] += 1
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3
    following = [[0] * 4 for _ in range(4)]  # the last of an epoch and the first of the next have nothing to do with each other
    for epoch, after in itertools.pairwise(positions.tolist()):
        following[epoch[-1]][after[0]] += 1
    assert stats.chi2_contingency(following).pvalue > 1e-3


@given(
    workers=st.integers(1, 6),
    batch=st.integers(1, 7),
    examples=st.integers(1, 40),
    seed=st.integers(0, 99),
    epochs=st.integers(1, 4),
)
def test_shuffled_shows_every_example_once_per_epoch_to_one_worker_or_another(workers, batch, examples, seed, epochs):
    """Also where neither minibatches nor steps end with an epoch."""
    batches = Minibatches(seed, batch, examples, "shuffled", workers)
    steps = -(-examples * epochs // (batch * workers))
    seen: list[int] = []
    for step in range(steps):
        for worker in range(workers):
            seen += batches.one(worker, step, 0).tolist()
    for epoch in range(epochs):
        assert sorted(seen[epoch * examples : (epoch + 1) * examples]) == list(range(examples))


def test_a_synchronous_run_over_shuffled_examples_goes_through_all_of_them_in_each_epoch():
    """500 examples to train on, 4 workers with batches of 5: 25 rounds make an epoch, in whatever order gradients come."""
    cluster = Cluster.model_validate({"workers": 4, "compute": COMPUTE})
    examples = 500
    rows = record(Synchronous(), cluster, gradients=200, seed=3).frame()
    adds, rounds = rows[rows["verb"] == "ADD"], 0
    seen: list[int] = []
    for worker, step in zip(adds["worker"], adds["step"], strict=True):
        indices = batch_indices(3, worker, step, batch_size=5, examples=examples, sampling="shuffled", workers=4)
        seen += indices.tolist()
        rounds += worker == 0
    assert (rounds, len(seen)) == (50, 1000)
    assert sorted(seen[:examples]) == sorted(seen[examples:]) == list(range(examples))


@given(
    sampling=st.sampled_from(SAMPLINGS),
    workers=st.integers(1, 6),
    batch=st.integers(1, 8),
    rounds=st.integers(1, 5),
    rest=st.integers(0, 20),
    step=st.integers(0, 5000),
    seed=st.integers(0, 99),
)
def test_n_workers_with_batches_of_m_see_what_one_with_batches_of_n_m_sees(sampling, workers, batch, rounds, rest, step, seed):
    examples = rounds * workers * batch + (0 if sampling == "sequential" else rest)  # it leaves out what makes no minibatch
    many: list[int] = []
    for worker in range(workers):
        ordinal = step * workers + worker
        options = {"batch_size": batch, "examples": examples, "workers": workers}
        many += batch_indices(seed, worker, step, sampling=sampling, ordinal=ordinal, **options).tolist()
    one = batch_indices(seed, 0, step, batch_size=workers * batch, examples=examples, sampling=sampling, ordinal=step)
    assert many == one.tolist()


@given(batch=st.integers(1, 9), examples=st.integers(1, 60))
def test_sequential_goes_through_the_file_in_order_and_begins_again_without_an_incomplete_minibatch(batch, examples):
    batches = Minibatches(0, batch, examples, "sequential", 3)
    whole = examples // batch
    assume(whole > 0)
    seen: list[int] = []
    for ordinal in range(2 * whole):
        seen += batches.one(ordinal % 3, 77 - ordinal, ordinal).tolist()  # whoever's gradient comes next
    assert seen == 2 * list(range(whole * batch))


@given(
    sampling=st.sampled_from(SAMPLINGS),
    asked=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 300), st.integers(0, 300)), min_size=1, max_size=20),
    batch=st.integers(1, 5),
    examples=st.integers(1, 50),
)
def test_one_minibatch_is_the_same_whenever_and_after_whichever_others_it_is_asked_for(sampling, asked, batch, examples):
    batches = Minibatches(4, batch, examples, sampling, 4)
    workers, steps, ordinals = (np.array(column) for column in zip(*asked, strict=True))
    together = batches.indices(workers, steps, ordinals)
    assert together.shape == (len(asked), batch)
    for expected, (worker, step, ordinal) in zip(together, asked, strict=True):
        alone = batches.one(worker, step, ordinal)
        fresh = Minibatches(4, batch, examples, sampling, 4).one(worker, step, ordinal)
        assert alone.tolist() == fresh.tolist() == expected.tolist()


@given(
    purpose=st.sampled_from(["minibatch", "shuffle", "any"]),
    seed=st.integers(0, 2**32 - 1),
    entity=st.integers(0, 2**32 - 1),
    start=st.integers(0, 10**6),
    count=st.integers(1, 13),
)
def test_words_are_the_same_one_by_one_in_runs_and_in_plain_integers(purpose, seed, entity, start, count):
    plain = [plain_word(seed, purpose, entity, position) for position in range(start, start + count)]
    assert streams.words(seed, purpose, entity, start + np.arange(count)).tolist() == plain
    assert streams.word_runs(seed, purpose, entity, start, count).tolist() == plain
    several = streams.word_runs(seed, purpose, np.array([entity, 5]), np.array([start, 4 * start]), 8)
    assert several[0, :count].tolist() == plain[:8]
    assert several[1, 0] == plain_word(seed, purpose, 5, 4 * start)


def test_no_two_purposes_of_a_run_share_a_stream(monkeypatch):
    """All purposes for which runs draw numbers, collected while they do, give unrelated words: none equal, none correlated."""
    drawn: dict[tuple[int, str], None] = {}
    real = streams.stream_key

    def recording(seed: int, purpose: str) -> tuple[int, int]:
        drawn[seed, purpose] = None
        return real(seed, purpose)

    monkeypatch.setattr(streams, "stream_key", recording)
    contention = [{"name": "markov-switching", "slowdown": 4.0, "fast_seconds": 1.0, "slow_seconds": 0.5}] * 2
    contention += [{"name": "random-delays", "workers": 1, "seconds": 0.1}]
    network = {"latency": {"name": "exponential", "scale": 0.01}}
    cluster = Cluster.model_validate({"workers": 4, "compute": COMPUTE, "network": network, "contention": contention})
    drawn.clear()  # checking the cluster draws, too
    for protocol in ("asynchronous", "pairwise", "gossip", "gated", "dispatcher"):
        record(fitting(protocol, cluster), cluster, gradients=8, seed=1)
    for sampling in SAMPLINGS:
        Minibatches(1, 4, 100, sampling, 4).one(0, 0, 0)
    SyntheticClassification().load(1)
    purposes = {purpose for _, purpose in drawn}
    assert {"minibatch", "shuffle", "compute", "uplink", "downlink", "peers", "partner", "dispatch"} <= purposes
    assert {"contention 0", "contention 1", "contention 2"} <= {purpose[:12] for purpose in purposes}
    assert {seed for seed, _ in drawn} == {1}
    several = [(seed, purpose) for seed in (1, 2) for purpose in sorted(purposes)]
    assert len({real(*each) for each in several}) == len(several)
    words: NDArray[np.float64] = np.stack([streams.words(*each, 3, np.arange(4000)) for each in several]).astype(float)
    assert np.unique(words).size > 0.9999 * words.size, "the same words"
    assert np.abs(np.corrcoef(words) - np.eye(len(several))).max() < 0.08  # 5 deviations
