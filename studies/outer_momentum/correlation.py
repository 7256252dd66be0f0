"""The correlation of successive pseudo-gradients, measured in a run of DiLoCo without momentum."""

from typing import ClassVar, Literal

import fred  # isort: skip  # before jax
import jax
import jax.numpy as jnp

from fred.learning.server import Scalar, State
from fred.protocols.local_steps import OuterSteps
from fred.systems.diloco import DiLoCo
from fred.timing.simulation import Process, Simulation
from studies.outer_momentum.cases import SECONDS, TUNING, Case

_HEARD: list[float] = []  # by the protocol in this process


class Correlated(DiLoCo):
    """DiLoCo that adds up the products of successive pseudo-gradients."""

    has_statistic: ClassVar[bool] = True

    def init(self, params: fred.Params, workers: int) -> State:
        nothing = jax.tree.map(jnp.zeros_like, params)
        zero = jnp.float32(0.0)
        return super().init(params, workers).replace(last=nothing, products=zero, squares=zero, before=zero)

    def apply_round(self, state: State, total: fred.Message, timestamp: Scalar, count: Scalar) -> State:
        """Make an outer step."""
        later = state.clock > 0
        products = state.products + _product(total, state.last)
        squares = state.squares + jnp.where(later, _product(total, total), 0.0)
        before = state.before + _product(state.last, state.last)
        stepped = super().apply_round(state, total, timestamp, count)
        return stepped.replace(last=total, products=products, squares=squares, before=before)

    def statistic(self, state: State) -> Scalar:
        """Return the correlation at distance one so far."""
        return state.products / jnp.sqrt(jnp.maximum(state.squares * state.before, 1e-30))


class Listening(OuterSteps):
    """`outer-steps` that notes the correlation after each outer step."""

    asks_for: ClassVar[Literal["statistic", "loss"]] = "statistic"

    @property
    def needs_values(self) -> bool:
        return True

    def start(self, sim: Simulation) -> None:
        super().start(sim)
        sim.process(self._listen(sim))

    def _listen(self, sim: Simulation) -> Process:
        yield 1_000_000  # a millisecond after each outer step
        while True:
            yield round(self.period * SECONDS * 1e9)
            _HEARD.append(sim.statistic(sim.global_replica))


def correlation(case: Case, rate: float, outer_rate: float) -> float:
    """Return the correlation of successive mean pseudo-gradients of DiLoCo without momentum.

    Args:
        case: the case, whose system need not be DiLoCo.
        rate: inner learning rate.
        outer_rate: outer learning rate.
    """
    algorithm = Correlated(optimizer=case.inner, outer={"name": "sgd"}, outer_rate=outer_rate, learning_rate=rate)
    protocol = Listening(period=case.period)
    settings = case.settings | {"cluster": {"workers": case.workers, "compute": {"name": "constant", "seconds": SECONDS}}}
    found = []
    for seed in TUNING:
        _HEARD.clear()
        fred.run(fred.scenario(settings, seeds=[seed], algorithm=algorithm, protocol=protocol))
        found.append(_HEARD[-1])
    return float(sum(found) / len(found))


def _product(one: fred.Message, other: fred.Message) -> Scalar:
    return sum(jnp.vdot(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))
