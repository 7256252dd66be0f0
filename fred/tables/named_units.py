"""Units in the names of columns, such as `begin_ms`, `Start (h)` and `upload_mbps`, and units of bandwidths."""

import itertools
import re
from collections.abc import Callable, Iterator

Unit = Callable[[str], float | None]  # factor of a unit; None for another word
_PREFIXES = {"": 1, "k": 10**3, "K": 10**3, "m": 10**6, "M": 10**6, "g": 10**9, "G": 10**9, "t": 10**12, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_SIZES = {"b": 1 / 8, "bit": 1 / 8, "bits": 1 / 8, "Bit": 1 / 8, "B": 1, "Byte": 1, "byte": 1, "bytes": 1, "Bytes": 1}
_PER_SECOND = ("ps", "/s", "/sec", "/second", "_per_s", "_per_sec", "_per_second", "_s", "")
BANDWIDTHS = {  # unit -> bytes/s; `b` is a bit, `B` a byte; a single letter without a prefix or a time is no bandwidth
    f"{prefix}{size}{per}": factor * share
    for (prefix, factor), (size, share), per in itertools.product((_PREFIXES | _BINARY).items(), _SIZES.items(), _PER_SECOND)
    if prefix or per or len(size) > 1
} | {"GbE": 0.125e9, "MB/S": 10**6, "GB/S": 10**9, "KB/S": 10**3}
_PRICE = re.compile(r"(?:(cents?|ct|¢)|usd|us\$|dollars?|eur|euros?|[$€]|)(?:\s*(?:/|_?per_?)\s*([a-z]+))?")
_HOURS = {"h": 1, "hr": 1, "hour": 1, "second": 1 / 3600, "minute": 1 / 60, "day": 24, "week": 168, "month": 730, "year": 8760}
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
    """Return the factor from a unit to a price per hour in the currency; None for another word. A month has 730 hours.

    Args:
        unit: the unit.

    >>> [price_in(unit) for unit in ("USD", "$/hour", "cents", "per_day", "EUR/month", "gb")]
    [1.0, 1.0, 0.01, 0.041666666666666664, 0.0013698630136986301, None]
    """
    match = _PRICE.fullmatch(unit.lower())
    if not match or not unit or (match[2] or "h") not in _HOURS:
        return None
    return (0.01 if match[1] else 1.0) / _HOURS[match[2] or "h"]


def to_snake_case(name: str) -> str:
    """Return a column's name in lower case, with underscores between its words.

    Args:
        name: the name.

    >>> to_snake_case("SpotPrice"), to_snake_case("Prob Started"), to_snake_case("start-time")
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
    yield to_snake_case(name), 1.0
    for stem, unit in split_name(name):
        if (value := factor(unit)) is not None:
            yield to_snake_case(stem), value


def split_name(name: str) -> Iterator[tuple[str, str]]:
    """Yield the ways to divide a column's name into a name and a last part, which may be a unit.

    Args:
        name: the name.

    >>> list(split_name("Start (h)")), list(split_name("upload_mbps"))
    ([('Start', 'h'), ('Start', 'h')], [('upload', 'mbps')])
    """
    if match := _BRACKETS.fullmatch(name.strip()):
        yield match[1], match[2]
    for mark in re.finditer(r"[\s_.-]+|(?<=[a-z])(?=[A-Z])", name.strip()):
        yield name.strip()[: mark.start()], name.strip()[mark.end() :].strip("()[]")
