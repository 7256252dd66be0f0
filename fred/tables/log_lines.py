"""Lines of logs: their process and time, and the numbers with names in them, such as `step: 3, time: 402.1 ms`.

Launchers write the rank before a line: torchrun and `srun --label`, `mpirun --tag-output`, Ray, pdsh, Docker and Kubernetes.
Loggers write a time, a level and their name. The rest has names and values, in JSON or in words.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fred.tables.content import Content

RANK, LOCAL_RANK, HOST, WORKER = "rank", "local_rank", "host", "worker"  # names of values that launchers give
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[()][A-Z0-9]")
_MOST_CHARACTERS = 20_000  # of a line; the rest is ignored
_TIME_WORDS = r"ms|msecs?|milliseconds?|us|µs|μs|usecs?|ns|s|secs?|seconds?"
_WORK = r"its?|iters?|iterations?|steps?|batch(?:es)?|samples?|tokens?|tok|images?|imgs?|examples?|sequences?|seqs?|epochs?"
_UNIT = rf"(?:{_TIME_WORDS})(?:/(?:{_WORK}))?|(?:{_WORK})/(?:s|sec|second|gpu/s|s/gpu)"
_NUMBER = re.compile(
    r"(?<![\w.])(?P<number>\d+:\d\d(?::\d\d)?(?:\.\d+)?"
    r"|[-+]?(?:\d{1,3}(?:,\d{3})+(?!\d|,\d)(?:\.\d+)?|\d+,\d+(?!\d|,\d)|\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\b)"
    rf"(?: ?(?P<unit>(?:{_UNIT})(?![\w/=:(])|%|(?<=\d)/(?:s|sec|step)\b)|(?P<other>[A-Za-z]\w*))?"
)
_BEFORE_NAME = re.compile(r"[|;,\t{}\"<>]|\s{2,}|\][\s:]|\s[-–]\s|[:.!] (?=[A-Za-z])")
_PAIR = re.compile(r"(?<![\w.])([A-Za-z_][\w.]*)=(\"[^\"]*\"|'[^']*'|[A-Za-z_][^\s,|;\])]*)")
_TIME_HEADS = re.compile(r"\btimes?\s*\((ms|s|us)\)\s*[|:]")
_BAR = re.compile(r"\b(\d+)/(\d+)\s*(?:\[[\d:]+<|\[[=>.\s]*\]|[━╸╺─\s]{4,})")
_BRACKETS = re.compile(r"\b(?:Epoch|Train)\D{0,12}?(?P<epoch>\d+)\]?\s*\[\s*(?P<step>\d+)/\d+")  # Epoch: [0][ 10/500]
_DATE = r"\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_STEP_WORDS = r"step|iter|epoch|batch|stage|layer|loss|top|val|train|it\d"
_COUNTS = re.compile(r"(?:step|iteration|iter|batch|update|epoch)$", re.IGNORECASE)
_NAMED_STEP = re.compile(r"\b(?:step|iter|iteration|epoch)\b", re.IGNORECASE)
_MESSAGES = ("message", "msg", "log", "text")  # names of a logger's words in JSON
_LEVEL = r"(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|NOTICE|debug|info)"
_NUMBERED_HOST = r"[A-Za-z](?:[^\W\d]|[.-])*\d[\w.-]*"  # no digit before the first: linear time in a long word
_PREFIXES = tuple(
    re.compile(pattern)
    for pattern in (
        r"\[?[\w@.-]*[Rr]ank[ :=]?(?P<rank>\d+)(?:\s*/\s*\d+)?(?:\s*\|\s*[Ll]ocal [Rr]ank\s*\d+)?\]:?\s*",
        r"\(?[Rr]ank[ :=]?(?P<rank>\d+)\)?(?:\s*[:|]|\t)\s*",
        r"\[[\w@.-]*?(?:@|,|(?<=\[))(?:\d+,)?(?P<rank>\d+)\]<(?:std(?:out|err))>:\s*",
        r"\[(?:default|[a-z_]*?)(?P<local_rank>\d+)\]:\s*",
        r"(?P<rank>\d{1,6}):(?=\s|\[|$)\s*",
        r"\[(?P<number>\d{1,9})\]:?\s+",
        r"\((?P<worker>[A-Za-z_][\w.]* pid=\d+(?:, ip=[\w.:]+)?)\)\s*",
        r"\[pod/(?P<host>[\w.-]+)/[\w.-]+\]\s*",
        rf"(?P<host>(?!{_STEP_WORDS}|\w*\.py){_NUMBERED_HOST}):(?P<local_rank>\d\d?)\s+(?=\S)",
        rf"(?P<host>(?!{_STEP_WORDS})[A-Za-z][\w.-]*/\d+)\s+(?=\S)",
        rf"(?P<host>(?!{_STEP_WORDS}){_NUMBERED_HOST})(?::\s|\s+\|\s)\s*",
        rf"[\[(]?(?P<moment>{_DATE})[\])]?(?:\s*[-|:,](?=\s))?\s*",
        r"[IWEF]\d{4} (?P<clock>\d\d:\d\d:\d\d\.\d+)\s+(?:\d+\s+)?[\w./<>-]+:\d+\]\s*",
        r"\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?(?:\s*[-|:])?\s+",
        rf"\[?{_LEVEL}\]?(?::[\w.]+:|\s*[:|-])?\s+",
        rf"{_LEVEL}:[\w.]*:\s*",
        rf"[A-Za-z_][\w.]*\s+-\s+{_LEVEL}\s+-\s+",
        r"\[[A-Za-z][\w./:-]*\](?=[\s\[(])\s*",
        r"\[NeMo [A-Z] [^\]]*\]\s*",
        r"[-|]\s+",
    )
)


@dataclass
class Line:
    """A line of a log.

    Args:
        number: its number in the file, from 1.
        text: the line without colours and without what launchers and loggers write before it.
        source: what they say: `rank`, `local_rank`, `host` or `worker`.
        moment: date and time of the line, as it is written; empty if it has none.
        values: numbers and words by name, in order; a number has its unit.
        is_bar: True for a progress bar.
    """

    number: int
    text: str
    source: dict[str, str] = field(default_factory=dict)
    moment: str = ""
    values: dict[str, str] = field(default_factory=dict)
    is_bar: bool = False


def parse_lines(text: str) -> Iterator[Line]:
    r"""Yield the lines of a log. A progress bar that is written again and again is a line each time.

    Args:
        text: the log.

    >>> line, = parse_lines("[rank3]:2026-05-03 10:00:00,123 - INFO - \x1b[32mstep:  7  loss: 8.1  time: 402.1 ms\x1b[0m")
    >>> line.source, line.values
    ({'rank': '3'}, {'step': '7', 'loss': '8.1', 'time': '402.1 ms'})
    """
    for number, raw in enumerate(text.split("\n"), 1):
        for part in raw.split("\r"):
            if part and not part.isspace():
                yield _parse_line(number, _ANSI.sub("", part[:_MOST_CHARACTERS]).strip())


def sample_lines(file: Content, lines: int = 200) -> str:
    """Return the first lines of a text, and as many from its middle: logs often begin with hundreds of options.

    Args:
        file: the text.
        lines: number of lines from each part.
    """
    if file.kind != "text":
        return ""
    half = len(file.data) // 2
    middle = file.data[half : half + 2**15].decode(errors="replace").split("\n")[1:]
    return "\n".join([*file.head.split("\n")[:lines], *middle[:lines]])


def _parse_line(number: int, text: str) -> Line:
    """Return a line with the source, moment and values in it."""
    line, step = Line(number, text), ""
    if text[:1] not in "{":  # nothing stands before JSON
        for _ in range(8):  # prefixes of launchers and loggers, in any order
            match = next((match for pattern in _PREFIXES if (match := pattern.match(line.text))), None)
            if match is None or not match[0]:
                break
            fields = {name: value for name, value in match.groupdict().items() if value}
            line.moment = fields.pop("moment", line.moment).replace(",", ".")
            fields.pop("clock", None)
            if bare_number := fields.pop("number", ""):  # a rank, or the step of JAX's loggers, which stands after a date
                is_rank = line.text == text or _NAMED_STEP.search(line.text)  # first, or before a step with a name
                fields, step = ({RANK: bare_number}, "") if is_rank else ({}, bare_number)
            # The outermost launcher counts, but the innermost rank.
            line.source = {**fields, **line.source, **({RANK: fields[RANK]} if RANK in fields else {})}
            line.text = line.text[match.end() :]
    words, record = _split_record(line.text)
    words = " ".join([words, *(record.pop(name).strip() for name in _MESSAGES if name in record)])
    line.values = {**({"step": step} if step else {}), **_parse_values(words), **record}
    if bar := _BAR.search(words):
        line.is_bar = True
        line.values = {"bar step": bar[1], "bar steps": bar[2], **line.values}
    if brackets := _BRACKETS.search(words):
        line.values = {**brackets.groupdict(), **line.values}
    if not line.moment and (date := re.search(_DATE, line.text)):
        line.moment = date[0].replace(",", ".")
    return line


def _split_record(text: str) -> tuple[str, dict[str, str]]:
    """Return the words of a line, and the values of the JSON or of the Python dictionary in it."""
    begin, end = text.find("{"), text.rfind("}")
    if begin < 0 or end < begin:
        return text, {}
    for parse in (json.loads, ast.literal_eval):
        try:
            record = parse(text[begin : end + 1])
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(record, Mapping):
            return text[:begin], dict(_flatten(record))
    return text, {}


def _flatten(record: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}/")
        elif isinstance(value, str | int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", str(value)


def _parse_values(text: str) -> dict[str, str]:
    """Return the numbers in words by name, with their units, and words after `name=`."""
    values = {match[1]: match[2].strip("\"'") for match in _PAIR.finditer(text)}
    for pattern in (_PAIR, re.compile(_DATE)):  # their digits are no numbers
        text = pattern.sub(lambda match: " " * len(match[0]), text)
    times_head = _TIME_HEADS.search(text)  # as Megatron's `time (ms) |`: the unit of all numbers after it
    gap_start = 0
    for match in _NUMBER.finditer(text):
        gap, gap_start = text[gap_start : match.start()], match.end()  # the name is the end of the gap between two numbers
        name = _BEFORE_NAME.split(gap.rstrip(" \t:=(["))[-1].strip(" :=([/-@*#~+]).>%")
        if name.count("(") > name.count(")"):  # that was stripped as punctuation
            name += ")"
        if name.count("[") > name.count("]"):
            name += "]"
        unit = match["unit"] or match["other"] or ""
        if not name and ("/" in unit or _stands_alone(text, match)):
            name = unit if "/" in unit else "time"  # a rate such as `2.4 s/it` is named by its unit
        if not name or not name[0].isalpha():
            continue
        number = match["number"]
        if _COUNTS.search(name):  # 1,000 steps; a comma in a time may stand before decimals
            number = number.replace(",", "")
        if times_head and match.start() > times_head.start() and "(" not in name:
            name = f"{name} ({times_head[1]})"
        values.setdefault(name, f"{number} {unit}".strip())
    return values


def _stands_alone(text: str, match: re.Match[str]) -> bool:
    """Return True for a duration without a name, such as `| 402.1 ms |` or `step 3: 402.1 ms`."""
    if not match["unit"] or not re.fullmatch(_TIME_WORDS, match["unit"]):
        return False
    before, after = text[: match.start()].rstrip(), text[match.end() :].lstrip()
    return before[-1:] in ("|", ",", ";", ":", "]", "-") and (not after or after[0] in "|,;")
