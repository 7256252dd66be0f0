"""The rules of gates [Odena 2016, sections 2.3 and 3; Dean et al. 2012], which let pushes and fetches pass, or not.

>>> Periodic(k=3).passes(Offer(worker=0, number=6)), Periodic(k=3).passes(Offer(worker=0, number=7))
(True, False)
>>> [Statistical(c=0.1).passes(Offer(worker=0, number=1, draw=0.5, measured=v)) for v in (0.05, 0.2)]
[False, True]
"""

from abc import abstractmethod
from typing import ClassVar, Literal, NamedTuple

from pydantic import Field

from fred.base.errors import FredError
from fred.components.component import Component, Count

Unsent = Literal["apply-again", "sum", "mean"]  # the fate of gradients that do not pass


class Offer(NamedTuple):
    """A push or a fetch on which a gate decides.

    Args:
        worker: its number, from 0.
        number: messages that the worker has offered before, from 1; of pushes, since its last crash.
        withheld: how many of them in a row, up to now, did not pass.
        seconds: virtual time; 0 where the protocol has no clock.
        updates: how many updates servers have made.
        staleness: how many of them since the worker's parameters were read, as servers are told; of several blocks the oldest.
        draw: uniform on (0, 1), a function of the seed, the worker and the message.
        measured: the algorithm's statistic, where the gate asks for it.

        >>> import fred
        >>> offer = fred.Offer(worker=3, number=7, staleness=12, draw=0.25)
        >>> offer.draw < 1 / offer.staleness
        False
        >>> offer.statistic
        Traceback (most recent call last):
        fred.FredError: the gate asks for the statistic, which only gates get whose `needs_values` is True
    """

    worker: int
    number: int
    withheld: int = 0
    seconds: float = 0.0
    updates: int = 0
    staleness: int = 0
    draw: float = 0.5
    measured: float | None = None

    @property
    def statistic(self) -> float:
        """The algorithm's statistic at this moment (see `Server.statistic`): of `b-fasgd` the mean of v."""
        if self.measured is None:
            raise FredError("the gate asks for the statistic, which only gates get whose `needs_values` is True")
        return self.measured


class Gate(Component):
    """Decides which of the workers' pushes or fetches pass.

    A custom gate: parameters are fetched when they are 10 updates old, and now and then before.
        >>> import fred
        >>> class Stale(fred.Gate):
        ...     '''Passes what is too old, and of the rest some by chance.'''
        ...     oldest: int = 10
        ...     by_chance: float = 0.05
        ...     def passes(self, offer):
        ...         return offer.staleness >= self.oldest or offer.draw < self.by_chance
        >>> scenario = fred.scenario({
        ...     "cluster": {"workers": 4},
        ...     "stop": {"updates": 1000},
        ...     "protocol": {"name": "dispatcher", "fetch_gate": Stale()},
        ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
        ... })
        >>> fred.run(scenario).summary[["copies_fetches", "staleness_mean"]].round(1).values.tolist()
        [[324.0, 6.3]]
    """

    unsent: ClassVar[Unsent] = "apply-again"  # of gradients that do not pass, where the protocol does not say

    @property
    def needs_values(self) -> bool:
        """Return True if the gate asks for the algorithm's statistic, so that timing depends on learning."""
        return False

    @abstractmethod
    def passes(self, offer: Offer) -> bool:
        """Return True if a message passes; FRED asks for each but a worker's first, which always passes.

        The answer may depend on the options and the offer only, so that a repeated run gets the same answers.

        Args:
            offer: the message, and the state of the run at this moment.
        """


class Periodic(Gate):
    """Lets every k-th message pass."""

    unsent: ClassVar[Unsent] = "sum"

    k: Count = Field(description="a worker's first message passes, then every k-th", examples=[4])

    def passes(self, offer: Offer) -> bool:
        return offer.number % self.k == 0


class Statistical(Gate):
    """Lets a message pass with probability 1 / (1 + c / (v + epsilon)), v the algorithm's statistic: B-FASGD's rule, eq. 9."""

    c: float = Field(gt=0, description="how hard messages are restrained", examples=[0.1])
    epsilon: float = Field(1e-4, gt=0, description="added to the statistic")

    @property
    def needs_values(self) -> bool:
        return True

    def passes(self, offer: Offer) -> bool:
        return offer.draw < 1 / (1 + self.c / (offer.statistic + self.epsilon))
