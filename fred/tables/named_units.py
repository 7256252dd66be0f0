"""Units in the names of columns, such as `begin_ms`, `Start (h)` and `upload_mbps`, and units of bandwidths."""

import itertools
import re
from collections.abc import Callable, Iterator

Unit = Callable[[str], float | None]  # factor of a unit; None for another word
_PREFIXES = {"": 1, "k": 10**3, "K": 10**3, "m": 10**6, "M": 10**6, "g": 10**9, "G": 10**9, "t": 10**12, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_SIZES = {"b": 1 / 8, "bit": 1 / 8, "bits": 1 / 8, "Bit": 1 / 8, "B": 1, "Byte": 1, "byte": 1, "bytes": 1, "Bytes": 1}
_PER_SECOND = ("ps", "/s", "/sec", "/second", "_per_s", "_per_sec", "_per_second", "_s", "")
BANDWIDTHS = {  # unit -> bytes/s; `b` is a bit, `B` a byte
    f"{prefix}{size}{per}": factor * share
    for (prefix, factor), (size, share), per in itertools.product((_PREFIXES | _BINARY).items(), _SIZES.items(), _PER_SECOND)
    if prefix or per or len(size) > 1
} | {"GbE": 0.125e9, "MB/S": 10**6, "GB/S": 10**9, "KB/S": 10**3}
_CURRENCY = re.compile(r"(usd|us\$|dollars?|eur|euros?|[$€])(\s*(/|per|_per_)\s*(h|hr|hour))?")
_UNCLEAR = re.compile(r"[KMGT]BPS")
_BRACKETS = re.compile(r"(.*?)[\s_]*[\[(]\s*([^\[\]()]+?)\s*[\])]")


def bandwidth_in(unit: str) -> float | None:
    """Return the bytes/s of a unit of bandwidth; None for another word, and for `MBPS`, which may mean bits or bytes.

    Args:
        unit: the unit.

    >>> [bandwidth_in(unit) for unit in ("mbps", "MBps", "gbit_per_s", "kB/s", "MBPS", "speed")]
    [125000.0, 1000000, 125000000.0, 1000, None, None]
    """
    return None if _UNCLEAR.fullmatch(unit) else BANDWIDTHS.get(unit, BANDWIDTHS.get(unit.lower()))


def price_in(unit: str) -> float | None:
    """Return 1 for a currency, also per hour, whose name does not change a price; None for another word.

    Args:
        unit: the unit.
    """
    return 1.0 if _CURRENCY.fullmatch(unit.lower()) else None


def plain(name: str) -> str:
    """Return a column's name in lower case, with underscores between its words.

    Args:
        name: the name.

    >>> plain("SpotPrice"), plain("Prob Started"), plain("start-time")
    ('spot_price', 'prob_started', 'start_time')
    """
    words = re.sub(r"([a-z])([A-Z])", r"\1_\2", name)
    return re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")


def split_unit(name: str, factor: Unit) -> Iterator[tuple[str, float]]:
    """Yield ways to read a column's name as a plain name and the factor of a unit: without one first.

    Args:
        name: the name.
        factor: function that returns the factor of a unit.

    >>> from fred.tables.quantities import seconds_in
    >>> list(split_unit("down_ms", seconds_in))
    [('down_ms', 1.0), ('down', 0.001)]
    """
    yield plain(name), 1.0
    if (match := _BRACKETS.fullmatch(name.strip())) and (value := factor(match[2])) is not None:
        yield plain(match[1]), value
    for mark in re.finditer(r"[\s_.-]+|(?<=[a-z])(?=[A-Z])", name.strip()):
        word = name.strip()[mark.end() :].strip("()[]")
        if (value := factor(word)) is not None:
            yield plain(name.strip()[: mark.start()]), value
