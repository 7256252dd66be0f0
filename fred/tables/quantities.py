"""Numbers as people and programs write them: with units, as durations or dates; units in names of columns, and common names."""

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Unit = Literal["s", "ms", "us", "ns"]
PER_SECOND: dict[Unit, float] = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
WORDS: dict[Unit, str] = {  # patterns of the words for a unit
    "s": "s|secs?|seconds?",
    "ms": "ms|msecs?|millis|milliseconds?",
    "us": "us|µs|μs|usecs?|micros|microseconds?",
    "ns": "ns|nsecs?|nanos|nanoseconds?",
}
_LONG_UNITS = {"min|mins|minutes?": 60.0, "h|hrs?|hours?": 3600.0, "d|days?": 86400.0}
_SHORT_UNITS = {words: 1 / PER_SECOND[unit] for unit, words in WORDS.items()}
_TIMES = {re.compile(words): seconds for words, seconds in {**_SHORT_UNITS, **_LONG_UNITS}.items()}
_MOST_DIGITS, _MOST_LETTERS = 18, 60  # of a whole number; letters of a duration
MISSING = ("", "na", "n/a", "nan", "null", "none", "-", "<na>", "nat")  # in lower case; they mean: not measured
_NUMBER = r"[-+]?(?:\d[\d.,'\u00a0\u202f]*|[.,]\d+)(?:[eE][-+]?\d+)?|[-+]?\d{1,3}(?: \d{3})+(?:[.,]\d+)?"
_QUANTITY = re.compile(rf"({_NUMBER})\s*\[?\(?([^\W\d_/%][\w/]*|[µμ]s|%)?\)?\]?")
_PARTS = re.compile(r"([\d.]+)\s*(days?|d|hours?|hrs?|h|minutes?|mins?|min|m|seconds?|secs?|ms|us|µs|ns|s)\b[\s,]*")
_CLOCK = re.compile(r"([-+]?)(?:P?(\d+)\s*(?:days?|d|-)[ ,]*)?(?:(\d+):)?(\d{1,2}):(\d{1,2}(?:[.,]\d+)?)")
_ISO_DURATION = re.compile(r"P(?:(\d+)D)?T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?")
_GROUPS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?([eE][-+]?\d+)?")
_ISO = re.compile(r"\d{4}[-/]\d\d[-/]\d\d([ T](\d\d:?|\d:)\d\d(:?\d\d([.,]\d+)?)?)?\s*(Z|UTC|[+-]\d\d(:?\d\d)?)?")
_DAY = r"(?P<first>\d{1,2})(?P<mark>[/.])(?P<second>\d{1,2})[/.](?P<year>\d{4}|\d\d)"
_TIME = r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<seconds>\d\d(?:\.\d+)?))?\s*(?P<half>[AaPp][Mm])?"
_SLASHED = re.compile(rf"{_DAY}(?:[ ,T]+{_TIME})?")


class Numbers(NamedTuple):
    """The numbers in a column of text.

    Args:
        values: the numbers, NaN for missing ones.
        unit: `s` if the cells had units of time or were durations; empty if they had none.
        notes: the interpretation of commas, in words.
    """

    values: NDArray[np.float64]
    unit: str
    notes: tuple[str, ...] = ()


class CellError(ValueError):
    """A cell that is not what its column holds.

    Args:
        row: number of the cell, from 0.
        expected: description of the expected content.
        ambiguous: what may have two meanings, for which a command can decide: `comma`, or `date`.
    """

    def __init__(self, row: int, expected: str, ambiguous: Literal["", "comma", "date"] = ""):
        super().__init__(f"row {row}: expected {expected}")
        self.row, self.expected, self.ambiguous = row, expected, ambiguous


def is_missing(cell: str | None) -> bool:
    """Return True for a cell that means: not measured.

    Args:
        cell: text of the cell.
    """
    return cell is None or cell.strip().lower() in MISSING


def is_number(cell: str) -> bool:
    """Return True for a plain number.

    Args:
        cell: text of the cell.

    >>> [is_number(cell) for cell in ("1.5", "1e-3", "1_5", "1,5", "fast")]
    [True, True, False, False, False]
    """
    try:
        float(cell)
    except ValueError:
        return False
    return cell.isascii() and "_" not in cell  # float() accepts underscores


def is_count(cell: str) -> bool:
    """Return True for a whole number without a sign, of at most 18 digits, so that it fits in 64 bits.

    Args:
        cell: text of the cell.

    >>> [is_count(cell) for cell in ("12", "-1", "1.0", "²", "9" * 5000)]
    [True, False, False, False, False]
    """
    return len(cell) <= _MOST_DIGITS and cell.isascii() and cell.isdigit()


def parse_numbers(cells: Sequence[str | None], units: Mapping[str, float] | None = None, comma: bool = False) -> Numbers:
    """Return the numbers in the cells of a column. Raises CellError for the first cell that is none.

    Cells with a unit are converted to the base unit; either all cells of a column have one, or none.

    Args:
        cells: texts.
        units: factors by unit; default: those of time, so that the base unit is a second.
        comma: True if a comma that may stand before decimals or between thousands stands before decimals.

    >>> parse_numbers(["408ms", "0.61s", None]).values.tolist()
    [0.408, 0.61, nan]
    >>> parse_numbers(["0 days 00:00:00.408381", "1:02:03"]).values.tolist()
    [0.408381, 3723.0]
    >>> parse_numbers(["0,4084", "1,5"]).values.tolist(), parse_numbers(["1,633.5", "12"]).values.tolist()
    ([0.4084, 1.5], [1633.5, 12.0])
    >>> parse_numbers(["5 Mbit/s"], {"Mbit/s": 125_000.0}).values.tolist()
    [625000.0]
    """
    texts = ["" if is_missing(cell) else str(cell).strip() for cell in cells]
    quantities = [_split_quantity(text) for text in texts]
    decimal, notes = _find_decimal_mark(quantities, comma)
    values, has_unit = np.full(len(texts), math.nan), np.zeros(len(texts), bool)
    for row, (text, quantity) in enumerate(zip(texts, quantities, strict=True)):
        if not text:
            continue
        digits, unit = quantity or ("", "")
        value = _to_float(digits, decimal) if quantity else None
        if value is not None and unit:
            factor = _find_factor(unit, units)
            # Divided by 1000, 408 ms are exactly the float 0.408; multiplied by 0.001, which is no float, they may be another.
            value = None if factor is None else value * factor if factor >= 1 else value / round(1 / factor)
        if value is None and units is None:
            value, unit = _parse_duration(text), "s"  # such as 1:02:03
        if value is None:
            raise CellError(row, "a number" if units is None else f"a number, or one with a unit such as {next(iter(units))}")
        values[row], has_unit[row] = value, bool(unit)
    is_filled = np.array([bool(text) for text in texts])
    if has_unit.any() and not has_unit[is_filled].all():
        raise CellError(int(np.argmax(is_filled & ~has_unit)), "a number with a unit, as in the other rows")
    return Numbers(values, "s" if has_unit.any() else "", notes)


def normalize_decimals(cells: Sequence[str], comma: bool = False) -> list[str]:
    """Return a column with a point before decimals and no commas in its numbers. Raises CellError for an unclear comma.

    Args:
        cells: texts; those that are no numbers stay as they are.
        comma: as in `parse_numbers`.

    >>> normalize_decimals(["1,234", "0,987 us", "fast, or slow"]), normalize_decimals(["1,633.5"])
    (['1.234', '0.987 us', 'fast, or slow'], ['1633.5'])
    """
    quantities = [_split_quantity(cell.strip()) for cell in cells]
    decimal, _ = _find_decimal_mark(quantities, comma)
    texts = list[str]()
    for cell, (digits, unit) in zip(cells, (quantity or ("", "") for quantity in quantities), strict=True):
        value = _to_float(digits, decimal) if "," in digits else None
        texts.append(cell if value is None else f"{value!r} {unit}".strip())
    return texts


def is_moment(cell: str) -> bool:
    """Return True for a date with a time of day.

    Args:
        cell: text of the cell.

    >>> [is_moment(cell) for cell in ("2026-05-03T10:00:00Z", "6/21/2025 10:54", "2026-05-03", "10:54")]
    [True, True, False, False]
    """
    text = cell.strip()
    match = _SLASHED.fullmatch(text)
    return bool((match and match["hour"]) or (len(text) > 10 and _ISO.fullmatch(text)))  # a date alone has 10 characters


def parse_moments(cells: Sequence[str | None]) -> NDArray[np.float64]:
    """Return dates as seconds since 1970, NaN for missing ones. Raises CellError for the first cell that is no date.

    Dates without a zone count as UTC. The other dates of the column show which part of `6/7/2025` is the day.

    Args:
        cells: texts.

    >>> (parse_moments(["2026-05-03T10:00:00Z", "2026-05-03 12:00:01+02:00"]) - 1777802400).tolist()
    [0.0, 1.0]
    >>> parse_moments(["6/21/2025 10:54", "6/22/2025 10:54"]).tolist()
    [1750503240.0, 1750589640.0]
    """
    texts = ["" if is_missing(cell) else str(cell).strip() for cell in cells]
    days_first = _are_days_first(texts)
    values = np.full(len(texts), math.nan)
    for row, text in enumerate(texts):
        if text and (value := _parse_moment(text, days_first)) is None:
            raise CellError(row, "a date and a time")
        if text:
            values[row] = value
    return values


def is_date(cell: str) -> bool:
    """Return True for a date, with or without a time of day.

    Args:
        cell: text of the cell.

    >>> [is_date(cell) for cell in ("2026-05-03", "6/21/2025", "2026-05-03 10:54", "20260503", "10:54")]
    [True, True, True, False, False]
    """
    return bool(_ISO.fullmatch(cell.strip()) or _SLASHED.fullmatch(cell.strip()))


def seconds_in(unit: str) -> float | None:
    """Return the seconds in a unit of time; None for another word.

    Args:
        unit: the unit, such as `ms` or `hours`.

    >>> seconds_in("ms"), seconds_in("hours"), seconds_in("mbps")
    (0.001, 3600.0, None)
    """
    return _find_factor(unit, None)


def unit_in(text: str) -> Unit | None:
    """Return the unit of time that a text names, as `[ms]` in a row of units; None if it names none.

    Args:
        text: a cell.
    """
    word = text.strip().strip("[]()").strip().lower()
    return next((unit for unit, words in WORDS.items() if word and re.fullmatch(words, word)), None)


def _split_quantity(text: str) -> tuple[str, str] | None:
    """Return the digits, with all their marks, and the unit; None for a text that is no number."""
    match = _QUANTITY.fullmatch(text)
    if match:
        return match[1], match[2] or ""
    return (text, "") if text and is_number(text) else None  # such as inf


def _find_decimal_mark(quantities: Sequence[tuple[str, str] | None], comma: bool) -> tuple[str, tuple[str, ...]]:
    """Return what stands before decimals in a column, and a note if it has commas. Raises CellError if that is not clear."""
    texts = [quantity[0] for quantity in quantities if quantity]
    texts_with_comma = [text for text in texts if "," in text]
    if not texts_with_comma:
        return ".", ()
    may_be_thousands = all(_GROUPS.fullmatch(text) for text in texts_with_comma)
    if may_be_thousands and any("." in text or text.count(",") > 1 for text in texts):  # no number has two decimal marks
        return ".", ("commas between thousands",)
    # 1,633 alone may be 1633 or 1.633. A 4084 in the same column shows that thousands have no separator, so the comma stands
    # before decimals; a 969 shows nothing, because it would look the same either way.
    other_digits = [digits for text in texts if "," not in text and (digits := text.lstrip("+-0"))]
    is_clear = comma and not other_digits
    if may_be_thousands and not is_clear and not any(len(digits) > 3 for digits in other_digits):
        row = next(row for row, quantity in enumerate(quantities) if quantity and "," in quantity[0])
        raise CellError(row, "a number whose comma is clear: 1633 or 1.633, without separators of thousands", "comma")
    return ",", ("decimals after a comma",)


def _to_float(text: str, decimal: str) -> float | None:
    """Return the number in a text with this decimal mark; None if its separators of thousands are out of place."""
    separator = "," if decimal == "." else "."
    digits = re.sub(r"(?<=\d)['\u00a0\u202f ](?=\d{3})", "", text)  # 1'234 and 1 234
    if separator in digits:
        integer, _, fraction = digits.partition(decimal)
        if separator in fraction or not re.fullmatch(rf"[-+]?\d{{1,3}}(\{separator}\d{{3}})+", integer):
            if decimal == "," and "," not in digits and is_number(digits):
                return float(digits)  # a number with a point, in a column with commas
            return None
        digits = integer.replace(separator, "") + (f".{fraction}" if fraction else "")
    digits = digits.replace(decimal, ".")
    return float(digits) if is_number(digits) else None


def _find_factor(unit: str, units: Mapping[str, float] | None) -> float | None:
    if units is not None:
        return units.get(unit, units.get(unit.lower()))
    return next((factor for words, factor in _TIMES.items() if words.fullmatch(unit.lower())), None)


def _parse_duration(text: str) -> float | None:
    """Return a duration such as `0 days 00:00:00.4`, `1m 3.5s` or `PT0.4S`, s; None for other texts."""
    if len(text) > _MOST_LETTERS:  # the patterns are slow in long texts
        return None
    if match := _CLOCK.fullmatch(text):
        sign, days, hours, minutes, seconds = match.groups()
        total = int(days or 0) * 86400 + int(hours or 0) * 3600 + int(minutes) * 60 + float(seconds.replace(",", "."))
        return -total if sign == "-" else total
    if (match := _ISO_DURATION.fullmatch(text)) and any(match.groups()):
        return sum(float(part or 0) * factor for part, factor in zip(match.groups(), (86400, 3600, 60, 1), strict=True))
    parts = _PARTS.findall(text)  # number and unit of each; `m` is a minute among them
    if len(parts) < 2 or _PARTS.sub("", text).strip() or not all(is_number(number) for number, _ in parts):
        return None
    return math.fsum(float(number) * (60.0 if unit == "m" else _find_factor(unit, None) or math.nan) for number, unit in parts)


def _are_days_first(texts: Sequence[str]) -> bool:
    """Return True if the days of slashed dates precede the months. Raises CellError if no date of the column shows it."""
    matches = [(row, match) for row, text in enumerate(texts) if (match := _SLASHED.fullmatch(text))]
    if not matches or matches[0][1]["mark"] == ".":  # 21.6.2025 is written with the day first everywhere
        return True
    largest_first, largest_second = (max(int(match[part]) for _, match in matches) for part in ("first", "second"))
    if largest_first <= 12 and largest_second <= 12 and any(match["first"] != match["second"] for _, match in matches):
        raise CellError(matches[0][0], "a date of which day and month can be told apart, such as 2025-06-21 10:54", "date")
    return largest_first > 12


def _parse_moment(text: str, days_first: bool) -> float | None:
    """Return a date in s since 1970; None for another text."""
    try:
        if match := _SLASHED.fullmatch(text):
            first, second = int(match["first"]), int(match["second"])
            day, month = (first, second) if days_first else (second, first)
            year, half = match["year"], (match["half"] or "").lower()
            hour = int(match["hour"] or 0) % (12 if half else 24) + (12 if half == "pm" else 0)
            full_year = int(year) + (2000 if len(year) == 2 else 0)
            moment = datetime(full_year, month, day, hour, int(match["minute"] or 0), tzinfo=UTC)
            return (moment + timedelta(seconds=float(match["seconds"] or 0))).timestamp()
        if not _ISO.fullmatch(text):
            return None
        padded = re.sub(r"[ T](?=\d:)", " 0", text)  # `fromisoformat` refuses 8:54, "/" and "UTC"
        moment = datetime.fromisoformat(padded.replace("/", "-").replace("UTC", "+00:00").replace(" +", "+").replace(",", "."))
    except (ValueError, OverflowError):
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


UnitFactor = Callable[[str], float | None]  # factor of a unit; None for another word
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


@lru_cache(4096)  # logs have the same names in each of a million lines
def to_snake_case(name: str) -> str:
    """Return a column's name in lower case, with words joined by underscores.

    Args:
        name: name of the column.

    >>> to_snake_case("Step Time (ms)"), to_snake_case("globalStep"), to_snake_case("GPU0Time"), to_snake_case("down (µs)")
    ('step_time_ms', 'global_step', 'gpu0_time', 'down_µs')
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[\W_]+", "_", words).strip("_").lower()


def split_unit(name: str, factor: UnitFactor) -> Iterator[tuple[str, float]]:
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


MACHINES = (
    *("worker_id", "node", "node_id", "nodeid", "node_name", "host", "hostname", "host_name", "machine", "machine_id"),
    *("rank", "gpu", "gpu_id", "device", "device_id", "instance", "instance_id", "server", "name", "component", "id"),
    *("vm", "vm_id", "vm_name", "cid", "client", "client_id", "phone", "user", "user_id", "member", "member_id", "worker"),
)
VAGUE_NAMES = ("id", "name", "component", "user", "user_id")  # other columns have these names, too
CHOICES = (  # words in names of columns that tell which rows are meant
    *("state", "status", "event", "type", "kind", "action", "condition", "result", "sku", "product", "zone", "region"),
    *("location", "model", "instance", "meter", "service", "tier", "offer", "plan", "gpu", "size"),
)
BEGINS = ("begin", "begin_time", "begins", "start", "start_time", "started", "started_at", "starts", "since", "from")
ARRIVALS = (
    *("on", "online", "connected", "connect", "arrival", "arrived", "joined", "join", "launch", "launched", "launch_time"),
    "login",
)
DEPARTURES = (
    *("off", "offline", "disconnected", "disconnect", "departure", "departed", "left", "leave", "logout"),
    *("preempted", "preempted_at", "terminated", "terminated_at", "termination_time", "evicted", "evicted_at"),
)
ENDS = ("end", "end_time", "ended", "ended_at", "ends", "stop", "stop_time", "stopped", "until", "to", "finish", "finished")
