"""Simulated staleness [Chen et al. 2017, section 2.1, appendix A.1]: serial SGD with gradients that are so many updates old.

Example: every update but the first ones is made with a gradient at parameters so much older.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 1},
    ...     "stop": {"updates": 100},
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... }
    >>> def told(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["updates", "staleness_mean", "staleness_max"]].round(2).iloc[0].tolist()
    >>> told(name="fixed-lag", lag=20)
    [100.0, 17.9, 20.0]
    >>> told(name="fixed-lag", lag=20, ramp=100)
    [100.0, 9.5, 19.0]
"""

from collections import deque
from itertools import count

from pydantic import Field

from fred.cluster.network import NOTHING
from fred.components.component import Whole
from fred.protocols.protocol import Protocol
from fred.timing.copies import Copy
from fred.timing.simulation import Process, Simulation


class FixedLag(Protocol):
    """Every update uses a gradient at the parameters of `lag` updates ago, or at the first ones as long as there are none.

    While the lag is ramped up, update t has lag x t / ramp. Workers take turns, which only decides who draws the examples:
    compute times and the network are not used. With n workers and lag n - 1 it is asynchronous SGD in lockstep.
    """

    has_clock = False

    lag: Whole = Field(0, description="age of the parameters, updates", examples=[20])
    ramp: Whole = Field(0, description="updates over which the lag grows from 0")

    def start(self, sim: Simulation) -> None:
        sim.process(self._updates(sim))

    def _updates(self, sim: Simulation) -> Process:
        models: deque[Copy] = deque()  # for the updates to come
        foreseen = 0  # updates whose models have been read
        for update in count():
            while foreseen - self._lag(foreseen) == update:
                models.append(sim.read(foreseen % sim.workers, sent=False))
                foreseen += 1
            gradient = sim.compute(update % sim.workers, models.popleft(), duration=0)
            yield gradient.finished
            sim.push(gradient, cost=NOTHING)

    def _lag(self, update: int) -> int:
        """How old this update's gradient is; it grows by at most 1 from one to the next."""
        grown = self.lag if update >= self.ramp else self.lag * update // self.ramp
        return min(grown, update)
