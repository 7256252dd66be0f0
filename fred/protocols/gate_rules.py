"""Gates, which decide whether pushes and fetches pass [Odena 2016, sections 2.3 and 3; Dean et al. 2012].

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

Unsent = Literal["apply-again", "sum", "mean"]  # treatment of gradients that do not pass


class Offer(NamedTuple):
    """A push or a fetch on which a gate decides.

    Args:
        worker: its number, from 0.
        number: number of messages that the worker offered before, from 1; of pushes, since its last crash.
        withheld: number of messages in a row, before this one, that did not pass.
        seconds: virtual time; 0 if the protocol has no clock.
        updates: number of updates that the servers have made.
        staleness: number of updates since the worker's parameters were read, by their timestamp; the largest of all blocks.
        draw: uniform on (0, 1), a function of the seed, the worker and the message.
        measured: the algorithm's statistic; None if the gate does not ask for it.

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
        """Return the algorithm's current statistic (see `Server.statistic`), such as the mean of v of `b-fasgd`."""
        if self.measured is None:
            raise FredError("the gate asks for the statistic, which only gates get whose `needs_values` is True")
        return self.measured


class Gate(Component):
    """A rule that decides which of the workers' pushes or fetches pass.

    Example, a gate that fetches parameters once they are 10 updates old, and by chance before:
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

    unsent: ClassVar[Unsent] = "apply-again"  # default for gradients that do not pass

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
    """A gate that lets every k-th message pass."""

    unsent: ClassVar[Unsent] = "sum"

    k: Count = Field(description="a worker's first message passes, then every k-th", examples=[4])

    def passes(self, offer: Offer) -> bool:
        return offer.number % self.k == 0


class Statistical(Gate):
    """B-FASGD's gate, eq. 9: a message passes with probability 1 / (1 + c / (v + epsilon)), v the algorithm's statistic."""

    c: float = Field(gt=0, description="strength: with a larger c, fewer messages pass", examples=[0.1])
    epsilon: float = Field(default=1e-4, gt=0, description="added to the statistic")

    @property
    def needs_values(self) -> bool:
        return True

    def passes(self, offer: Offer) -> bool:
        return offer.draw < 1 / (1 + self.c / (offer.statistic + self.epsilon))
