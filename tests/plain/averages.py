"""Algorithms whose workers average models of their own, perhaps in part, late, or with momentum."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fred.base import numerics
from tests.plain.base import Context, Plain


class PlainOuter(Plain):
    """An average is where the outer optimizer's gradient, x_0 less it, leads."""

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        self.before, self.momentum = params, dict.fromkeys(params, 0.0)

    def meet(self, mixed: dict, keep: float, weight: float) -> None:
        super().meet(mixed, keep, weight)
        self.params = {k: self.before[k] - self.outer(k, self.before[k] - p) for k, p in self.params.items()}
        self.before = self.params

    def outer(self, k: str, pseudo_gradient: Any) -> Any:
        raise NotImplementedError


class PlainBMUF(PlainOuter):
    """Momentum of what a block of steps has changed, by default of 1 - 1 / workers."""

    def outer(self, k: str, pseudo_gradient: Any) -> Any:
        momentum = 1 - 1 / self.context.workers if self.algorithm.block_momentum is None else self.algorithm.block_momentum
        change = self.algorithm.block_rate * pseudo_gradient
        self.momentum[k] = momentum * self.momentum[k] + change
        return change + momentum * self.momentum[k] if self.algorithm.nesterov else self.momentum[k]


class PlainNoLoCo(PlainOuter):
    """The paper's rule with its two messages: the pair's mean change, and where the pair began on average."""

    def outer(self, k: str, pseudo_gradient: Any) -> Any:
        change = -self.algorithm.block_rate * pseudo_gradient  # eta (mean d + mean q - q), of q - (mean d + mean q)
        self.momentum[k] = self.algorithm.block_momentum * self.momentum[k] + change
        return -self.momentum[k]


class PlainSNOO(PlainOuter):
    """SGD with Nesterov momentum."""

    def outer(self, k: str, pseudo_gradient: Any) -> Any:
        self.momentum[k] = self.algorithm.outer_momentum * self.momentum[k] + pseudo_gradient
        return self.algorithm.outer_rate * (pseudo_gradient + self.algorithm.outer_momentum * self.momentum[k])


class PlainSlowMo(PlainOuter):
    """Slow momentum in units of gradients; the rate may decay with every update of the worker."""

    updates = 0

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        decay = self.algorithm.schedule[0].arguments if self.algorithm.schedule else {"decay_rate": 1.0, "transition_steps": 1}
        self.rate = self.algorithm.learning_rate * decay["decay_rate"] ** (self.updates / decay["transition_steps"])
        self.updates += 1
        super().update(grads, staleness)

    def outer(self, k: str, pseudo_gradient: Any) -> Any:
        self.momentum[k] = self.algorithm.slow_momentum * self.momentum[k] + pseudo_gradient / self.rate
        return self.algorithm.slow_rate * self.rate * self.momentum[k]


class PlainMasked(Plain):
    """Averages of masked coordinates: SPARTA."""

    fresh, ahead = False, 0.0

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        self.averages = self.updates = 0
        self.drift: dict[str, Any] = dict.fromkeys(params, 0.0)

    def mask(self, k: str) -> np.ndarray:
        """Draw the coordinates of the next average from the stream; arrays are numbered in the order of their names."""
        words = jnp.asarray(numerics.words(self.context.seed, "algorithm", 0, np.arange(2)).astype(np.uint32))
        division, part = (self.averages, 0) if self.fresh else divmod(self.averages, self.algorithm.parts)
        key = jax.random.fold_in(jax.random.wrap_key_data(words, impl="threefry2x32"), division)
        subkey, values = jax.random.fold_in(key, sorted(self.params).index(k)), self.params[k]
        draws = np.asarray(jax.random.uniform(subkey, (values.size,)))
        return (np.argsort(np.argsort(draws)) % self.algorithm.parts == part).reshape(values.shape)

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        if not count:
            self.updates += 1
            super().update(grads, staleness)
            return
        self.drift = {k: np.where(self.mask(k), self.change(self.drift[k], g), self.drift[k]) for k, g in grads.items()}

    def change(self, drift: Any, new: np.ndarray) -> np.ndarray:
        return new

    def meet(self, mixed: dict, keep: float, weight: float) -> None:
        assert (keep, weight) == (0.0, 1.0)
        merged = {k: mixed[k] - self.ahead * self.drift[k] for k in mixed}
        self.params = {k: np.where(self.mask(k), merged[k], local) for k, local in self.params.items()}
        self.averages += 1

    @property
    def reached(self) -> bool:
        return self.averages >= 7


class PlainMesh(PlainMasked):
    """AsyncMesh: late means are moved on by the last change, or by the moving average of changes."""

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        self.ahead = self.algorithm.ahead

    def change(self, drift: Any, new: np.ndarray) -> np.ndarray:
        if not self.algorithm.average_changes:
            return new
        beta = 0.99 - 0.49 * (1 + math.cos(math.pi * min(1, self.updates / 1000))) / 2
        return np.asarray(beta * drift + (1 - beta) * new)


class PlainFresh(PlainMasked):
    """LOSCAR: every average has a new mask, and the change since is added."""

    fresh = True

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context)
        self.ahead = self.algorithm.ahead


class PlainDESLOC(Plain):
    """Adam, whose moments `m` and `v` are averaged more rarely than the parameters."""

    tolerance = 1e-4  # epsilon is a large part of small gradients

    def __init__(self, params: dict, context: Context):
        moments = {f"{moment} {k}": np.zeros_like(p) for moment in "mv" for k, p in params.items()}
        super().__init__(params | moments, context)
        self.steps = self.averages = 0

    @staticmethod
    def model(params: dict) -> dict:
        return {k: p for k, p in params.items() if " " not in k}

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        self.steps += 1
        for k, g in grads.items():
            m = 0.9 * self.params[f"m {k}"] + 0.1 * g
            v = 0.999 * self.params[f"v {k}"] + 0.001 * g**2
            step = m / (1 - 0.9**self.steps) / (np.sqrt(v / (1 - 0.999**self.steps)) + 1e-8)
            self.params = self.params | {k: self.params[k] - self.rate * step, f"m {k}": m, f"v {k}": v}

    def meet(self, mixed: dict, keep: float, weight: float) -> None:
        before, self.averages = self.params, self.averages + 1
        super().meet(mixed, keep, weight)
        every = {"m": self.algorithm.first_every, "v": self.algorithm.second_every}
        skipped = [moment for moment, number in every.items() if self.averages % number]
        self.params = self.params | {k: p for k, p in before.items() if k.split()[0] in skipped and " " in k}

    @property
    def reached(self) -> bool:
        return self.averages > max(self.algorithm.first_every, self.algorithm.second_every)


class PlainPush(Plain):
    """Push-sum: parameters and a weight `w` that is mixed but not learned."""

    def __init__(self, params: dict, context: Context):
        super().__init__(params | {"w": np.float64(1.0)}, context)

    @staticmethod
    def model(params: dict) -> dict:
        return {k: p / params["w"] for k, p in params.items() if k != "w"}


PLAIN_CLASSES = {
    "bmuf": PlainBMUF,
    "slowmo": PlainSlowMo,
    "snoo": PlainSNOO,
    "noloco": PlainNoLoCo,
    "sparta": PlainMasked,
    "async-mesh": PlainMesh,
    "loscar": PlainFresh,
    "des-loc": PlainDESLOC,
    "sgp": PlainPush,
}
