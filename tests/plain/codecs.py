"""Codecs as NumPy has them, in double precision; of FRED only the streams are used that random draws follow from."""

from collections import defaultdict
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from scipy import fft

from fred.base import numerics

Array = NDArray[Any]


def round_to_levels(values: Array, levels: Array) -> Array:
    """Round to the nearest of some levels, which ascend; in the middle to the upper one."""
    places = (values[..., None] >= (levels[1:] + levels[:-1]) / 2).sum(-1)
    return np.asarray(levels[places])


def only_largest(values: Array, count: int) -> Array:
    """Return zeros but for the `count` numbers of largest size."""
    indices = np.argsort(-np.abs(values), kind="stable")[:count]
    result = np.zeros_like(values)
    result[indices] = values[indices]
    return result


class Coded:
    """Any codec of FRED's with its options: codes messages array by array, with an error memory for each worker."""

    def __init__(self, codec: Any, name: str, seed: int):
        self.codec, self.seed = codec, seed
        self.rule = getattr(self, name.replace("-", "_"))
        self.rest: dict[int, dict] = defaultdict(dict)
        self.count: dict[int, int] = defaultdict(int)
        self.right: dict[tuple[int, str], Array] = {}  # PowerSGD's Q

    def __call__(self, worker: int, message: dict) -> dict:
        """Return what arrives in place of a worker's message."""
        decay = float(self.codec.error_feedback)
        corrected = {k: g + decay * self.rest[worker].get(k, 0.0) for k, g in message.items()}
        sent = {k: self.array(worker, number, k, corrected[k]) for number, k in enumerate(sorted(corrected))}
        self.rest[worker] = {k: corrected[k] - sent[k] for k in corrected}
        self.count[worker] += 1
        return sent

    def array(self, worker: int, number: int, k: str, values: Array) -> Array:
        """Return what arrives in place of an array."""
        if self.rule in (self.power_sgd, self.dct):
            return self.rule(worker, number, k, values)
        flat = values.ravel()
        chunk = self.codec.chunk if isinstance(self.codec.chunk, int) else flat.size
        parts = np.split(flat, range(chunk, flat.size, chunk))
        draws = self.draws(worker, number, (len(parts), min(chunk, flat.size))) if self.codec.draws else parts
        arrived = [self.rule(self.codec, part, part_draws[: part.size]) for part, part_draws in zip(parts, draws, strict=True)]
        return np.concatenate(arrived).reshape(values.shape)

    def draws(self, worker: int, number: int, shape: tuple[int, int]) -> Array:
        """Return the uniform numbers of an array's chunks, which follow from the worker's stream."""
        words = jnp.asarray(numerics.words(self.seed, "codec", worker, np.arange(2)).astype(np.uint32))
        key = jax.random.fold_in(jax.random.wrap_key_data(words, impl="threefry2x32"), self.count[worker])
        return np.asarray(jax.random.uniform(jax.random.fold_in(key, number), shape))

    @staticmethod
    def float(codec: Any, values: Array, _: Array) -> Array:
        """Round as ml_dtypes does."""
        name = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}.get(codec.format, codec.format)
        kind = np.dtype(getattr(ml_dtypes, name, name))  # NumPy itself has float16 and float32
        limit = float(ml_dtypes.finfo(kind).max)
        scale = np.abs(values).max() / limit if codec.scaled else 1.0
        return np.clip(values / scale, -limit, limit).astype(kind).astype(float) * scale

    @staticmethod
    def e3m0(codec: Any, values: Array, _: Array) -> Array:
        """Round to 0 and seven powers of two, times the largest number."""
        scale = np.abs(values).max()
        return np.sign(values) * round_to_levels(np.abs(values) / scale, np.array([0, *2.0 ** np.arange(-6, 1)])) * scale

    @staticmethod
    def low_bit(codec: Any, values: Array, _: Array) -> Array:
        """Round to evenly spaced levels."""
        scale = max(np.abs(values).max(), 1e-300)
        return round_to_levels(values / scale, np.linspace(-1, 1, 2**codec.bits - codec.zero)) * scale

    @staticmethod
    def sign(codec: Any, values: Array, _: Array) -> Array:
        """Take the signs, and the mean size."""
        return np.where(values < 0, -1, 1) * np.abs(values).mean()

    @staticmethod
    def qsgd(codec: Any, values: Array, draws: Array) -> Array:
        """Round at random to one of the two nearest levels."""
        norm = np.linalg.norm(values) or 1.0
        steps = np.abs(values) / norm * codec.levels
        return np.sign(values) * (np.floor(steps) + (draws < steps % 1)) / codec.levels * norm

    @classmethod
    def top_k(cls, codec: Any, values: Array, _: Array) -> Array:
        """Take the largest, which may be rounded."""
        largest = only_largest(values, max(1, round(codec.share * values.size)))
        if codec.values is None:
            return largest
        return np.where(largest == 0, 0.0, cls.low_bit(codec.values, largest, largest))

    @staticmethod
    def random_k(codec: Any, values: Array, draws: Array) -> Array:
        """Take those with the largest draws, in their mean as large as all."""
        count = max(1, round(codec.share * values.size))
        factor = values.size / count if codec.unbiased else 1.0
        return np.where(only_largest(draws, count) > 0, factor * values, 0.0)

    def power_sgd(self, worker: int, number: int, k: str, values: Array) -> Array:
        """Iterate once from the last message's Q, and multiply P and the new Q [arXiv:1905.13727, algorithm 1]."""
        rank = self.codec.rank
        if values.ndim < 2 or rank * sum(values.shape) >= values.size:
            return values
        if (worker, k) not in self.right:
            key = jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), number)
            self.right[worker, k] = np.asarray(jax.random.normal(key, (values.shape[1], rank)), float)
        left = np.linalg.qr(values @ self.right[worker, k])[0]  # P Q^T does not depend on the signs of P's columns
        right = self.right[worker, k] = values.T @ left
        return left @ right.T

    def dct(self, worker: int, number: int, k: str, values: Array) -> Array:
        """Take the largest waves of each square of a matrix, or of each part of a vector."""
        matrix = values.reshape(-1, values.shape[-1])
        high, wide = (
            max(divisor for divisor in range(1, self.codec.chunk + 1) if side % divisor == 0) for side in matrix.shape
        )
        result = np.zeros_like(matrix)
        for row in range(0, matrix.shape[0], high):
            for column in range(0, matrix.shape[1], wide):
                part = np.s_[row : row + high, column : column + wide]
                waves = fft.dctn(matrix[part], norm="ortho")
                largest = only_largest(waves.ravel(), min(self.codec.kept, high * wide)).reshape(waves.shape)
                result[part] = fft.idctn(largest, norm="ortho")
        return result.reshape(values.shape)
