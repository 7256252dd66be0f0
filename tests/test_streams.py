"""The random streams: published test vectors, independence of everything but (seed, purpose, entity, position)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fred.base import streams


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [  # kat_vectors of Random123, philox4x32-10
        ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0xA4093822, 0x299F31D0),
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_reproduces_the_published_vectors(key, counter, words):
    assert streams.philox(key, *counter).tolist() == list(words)


@given(start=st.integers(0, 10_000), count=st.integers(1, 50), entity=st.integers(0, 2**31), seed=st.integers(0, 2**31))
def test_a_draw_does_not_depend_on_how_it_is_asked_for(start, count, entity, seed):
    block = streams.uniforms(seed, "test", entity, start, count)
    one_by_one = [streams.uniforms(seed, "test", entity, start + i, 1)[0] for i in range(count)]
    beside_others = streams.uniforms(seed, "test", np.array([7, entity, 9]), start, count)[1]
    assert block.tolist() == one_by_one == beside_others.tolist()


def test_uniforms_are_uniform_and_streams_unrelated():
    draws = streams.uniforms(1, "test", np.arange(50), 0, 2000)
    assert stats.kstest(draws.ravel(), "uniform").pvalue > 1e-3
    assert draws.min() > 0
    assert draws.max() < 1
    for other in (streams.uniforms(2, "test", np.arange(50), 0, 2000), streams.uniforms(1, "other", np.arange(50), 0, 2000)):
        assert abs(np.corrcoef(draws.ravel(), other.ravel())[0, 1]) < 0.02
    between = np.corrcoef(draws)
    assert np.abs(between - np.eye(50)).max() < 0.12


def test_words_are_even():
    words = streams.words(3, "test", np.arange(100)[:, None], np.arange(1000))
    assert stats.chisquare(np.bincount((words >> np.uint64(28)).ravel().astype(int), minlength=16)).pvalue > 1e-3
