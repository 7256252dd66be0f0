"""Simulated staleness [Chen et al. 2017, section 2.1, appendix A.1; docs/errata.md, item 22]: serial SGD with old gradients.

Example: all updates but the first use gradients at parameters that are 20 updates old, always or on average.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 1},
    ...     "stop": {"updates": 1000},
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... }
    >>> def told(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol={"name": "fixed-lag", "lag": 20, **protocol})).summary
    ...     return summary[["staleness_mean", "staleness_max"]].round(1).iloc[0].tolist()
    >>> told()
    [19.8, 20.0]
    >>> told(drawn_from=5)
    [19.8, 60.0]
    >>> told(drawn_from=21)
    [19.5, 155.0]
    >>> told(ramp=1000)
    [9.5, 19.0]
"""

from itertools import count

from pydantic import Field, model_validator

from fred import streams
from fred.cluster.network import NOTHING
from fred.components.component import Count, Whole
from fred.protocols.protocol import Protocol
from fred.timing.copies import Copy
from fred.timing.simulation import Process, Simulation


class FixedLag(Protocol):
    """Every update uses a gradient at parameters of `lag` updates ago, always or (`drawn_from`) on average.

    Models wait in a queue of `lag` + 1, the oldest first; each update uses one, and the newest parameters join. By default it
    uses the oldest model, so the lag is constant. With `drawn_from: m` it uses one of the m oldest, each with probability 1/m.
    A gradient's lag is then `lag` + 1 - m + k with probability (1 - 1/m)^k / m, k = 0, 1, ...: the mean is `lag`, the standard
    deviation is the square root of m (m - 1). m = `lag` + 1 gives the geometric distribution of as many asynchronous workers,
    of which each is equally likely to be next. The first models are all the initial parameters.

    While the lag is ramped up, update t has lag x t / ramp. Workers take turns in reading, which only decides who draws the
    examples: compute times and the network are not used. With n workers and a constant lag of n - 1 this is asynchronous SGD
    in lockstep.
    """

    has_clock = False

    lag: Whole = Field(0, description="age of the parameters, updates; with `drawn_from` its mean", examples=[20])
    ramp: Whole = Field(0, description="updates over which the lag grows from 0")
    drawn_from: Count = Field(
        1, description="m: each update draws one of the m oldest waiting gradients; 1: the lag is constant; at most `lag` + 1"
    )

    @model_validator(mode="after")
    def _so_many_wait(self) -> "FixedLag":
        if self.drawn_from > self.lag + 1:
            raise ValueError(
                f"`drawn_from` ({self.drawn_from}) must not exceed `lag` + 1 ({self.lag + 1}), as many gradients as wait"
            )
        return self

    def start(self, sim: Simulation) -> None:
        sim.process(self._updates(sim))

    def _updates(self, sim: Simulation) -> Process:
        models = list[tuple[int, Copy]]()  # who has read them, for updates to come
        foreseen = 0  # updates whose models have been read
        oldest, draws = self.drawn_from, streams.one_by_one(sim.seed, "lag")
        for update in count():
            while foreseen - self._lag(foreseen) == update:
                reader = foreseen % sim.workers
                models.append((reader, sim.read(reader, sent=False)))
                foreseen += 1
            worker, model = models.pop(int(next(draws) * min(oldest, len(models))) if oldest > 1 else 0)
            gradient = sim.compute(worker, model, duration=0)
            yield gradient.finished
            sim.push(gradient, cost=NOTHING)

    def _lag(self, update: int) -> int:
        """Return how old this update's gradient is if the lag is constant; it grows by at most 1 from one to the next."""
        grown = self.lag if update >= self.ramp else self.lag * update // self.ramp
        return min(grown, update)
