"""Network cards, at which messages queue, and links with occasional slowdowns."""

from collections.abc import Callable

from fred.cluster.contention import Load, Loads
from fred.cluster.latency import NEVER
from fred.components.component import NANOSECONDS
from fred.timing.loop import Loop


class Card:
    """One direction of a link or of a network card: a first-come-first-served queue.

    Example: 2 MB at 1 MB/s, then 1 MB that arrives a second later.
        >>> card = Card(1e6)
        >>> card.passes(now=0, size=2_000_000), card.takes(now=1_000_000_000, size=1_000_000)
        (2000000000, (2000000000, 3000000000))
    """

    def __init__(self, bandwidth: float | None):
        self.bandwidth = bandwidth  # bytes/s; None: unlimited
        self.free_at = 0  # time (ns) at which the last message accepted so far has passed

    def passes(self, now: int, size: int) -> int:
        """Return the time (ns) at which a message of `size` bytes that reaches the card at `now` has passed it."""
        if self.bandwidth is None:
            return now
        begin = self.free_at if self.free_at > now else now  # three times as fast as `max`
        self.free_at = begin + round(size / self.bandwidth * NANOSECONDS)
        return self.free_at

    def takes(self, now: int, size: int) -> tuple[int, int]:
        """Return the times (ns) at which a message of `size` bytes, at the card at `now`, begins and ends to pass it."""
        begin = now if self.bandwidth is None else max(self.free_at, now)
        return begin, self.passes(now, size)


class Slowness:
    """The slowdowns of the links of workers or of servers."""

    def __init__(self, env: Loop, loads: list[Load], owners: int):
        self._env = env
        self._loads = Loads(loads)
        # Loads with their own `delay` slow down latency only: a message is delayed once.
        self._passing = Loads([load for load in loads if type(load).delay is Load.delay])
        self._messages = [0] * owners

    def latency(self, owner: int, base: int) -> int:
        """Return the latency (ns) of a message of `owner` sent now, after slowdowns; `base` is the latency without them."""
        number, now = self._messages[owner], self._env._now
        self._messages[owner] += 1
        return self._loads.finish(owner, number, now, base) - now

    def slowdown(self, owner: int, now: int) -> tuple[float, int]:
        """Return the current factor on transfer times of the owner's link, and the time (ns) until which it holds."""
        return self._passing.slowdown(owner, now)

    def stretch(self, owner: int, begin: int) -> float:
        """Return the factor on the whole of a transfer that begins at `begin`, ns."""
        return self._passing.stretch(owner, begin)

    def passed(self, owner: int, begin: int, work: int) -> int:
        """Return the time (ns) at which `work` ns at full speed have passed the owner's link, starting at `begin`."""
        return self._passing.finish(owner, 0, begin, work) if begin < NEVER else begin


class SlowCard(Card):
    """A card whose owner's link slows down from time to time."""

    def __init__(self, bandwidth: float | None, slowness: Slowness, owner: int):
        super().__init__(bandwidth)
        self._slowness, self._owner = slowness, owner

    def passes(self, now: int, size: int) -> int:
        if self.bandwidth is None:
            return now
        work = round(size / self.bandwidth * NANOSECONDS)
        self.free_at = self._slowness.passed(self._owner, max(self.free_at, now), work)
        return self.free_at


class SharedCard(Card):
    """A worker's link combined with its node's shared card: a message passes both at the same time.

    >>> link, card = Card(1e6), Card(4e6)
    >>> SharedCard(link, card).passes(now=0, size=2_000_000), card.free_at
    (2000000000, 500000000)
    """

    def __init__(self, link: Card, card: Card):
        super().__init__(link.bandwidth)
        self._link, self._card = link, card

    def passes(self, now: int, size: int) -> int:
        return max(self._link.passes(now, size), self._card.passes(now, size))


class ServerCard(Card):
    """A server's card, at which messages wait while the server is offline."""

    def __init__(self, card: Card, back: Callable[[int], int]):
        super().__init__(card.bandwidth)
        self._card, self._back = card, back

    def passes(self, now: int, size: int) -> int:
        return self._card.passes(self._back(now), size)


def card_of(bandwidth: float | None, slowness: Slowness | None, owner: int) -> Card:
    """Return a card of this bandwidth: a `SlowCard` of `owner` if there are slowdowns, else a plain `Card`."""
    return Card(bandwidth) if slowness is None else SlowCard(bandwidth, slowness, owner)
