"""YAML files: their values with line numbers, errors that name the line, and scenarios written as YAML."""

import io
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from fred.base import disk
from fred.base.errors import FredError, quoted
from fred.components.component import is_user_class
from fred.components.input_path import name_alone

Keys = tuple[str | int, ...]  # the keys that lead to a value in a document
_MOST_VALUES = 1_000_000  # in one file, with aliases expanded
_FIRST_COMMENT = re.compile(r"\ufeff?\s*((?:[ \t]*#[^\n]*(?:\n|$))*)")
_DUPLICATE = re.compile(r'found duplicate key "([^"]*)" .*', re.DOTALL)
_CURES = {  # ruamel's words -> what to do
    "found character '\\t'": "found a tab; indent with spaces",
    "found '<stream end>'": "the text ends within a list, a mapping or a quotation; close it with `]`, `}` or a quote",
    "found unexpected end of stream": "the text ends within a quotation; close it with a quote",
}
_FOR_EDITORS = "yaml-language-server:"


def parse(path: Path) -> tuple[dict[str, Any], dict[Keys, int], str]:
    """Return a file's mapping, the lines of its values, and the text of its first comment. Raises FredError."""
    piped = path.is_relative_to("/dev/fd") or path == Path("/dev/stdin")
    text = disk.text(path, piped)
    document, lines = read_yaml(text, lambda line: f"{path}:{line}: not valid YAML")
    if not isinstance(document, dict):
        raise FredError(f"{path}:1: expected a mapping such as `algorithm: asgd`, found {quoted(document)}")
    return document, lines, first_comment(text)


def first_comment(text: str) -> str:
    r"""Return the comment at the start of a text, without lines for editors.

    Args:
        text: the text of a scenario file.

    >>> first_comment("# Look for: the fastest run.\n# yaml-language-server: $schema=schema.json\n\n# no more\ntitle: one\n")
    'Look for: the fastest run.'
    """
    comment = _FIRST_COMMENT.match(text)
    lines = [line.strip().removeprefix("#").strip() for line in comment[1].splitlines()] if comment else []
    return "\n".join(line for line in lines if not line.startswith(_FOR_EDITORS)).strip("\n")


def written(document: dict[str, Any], *comments: str) -> str:
    """Return a document as YAML text, with comments at the top.

    Args:
        document: the content, made of mappings, lists, strings and numbers.
        comments: one line each, without `#`.

    >>> print(written({"cluster": {"workers": 2, "speeds": [1.0, 0.5]}}, "two of them"), end="")
    # two of them
    cluster:
      workers: 2
      speeds: [1.0, 0.5]
    """
    yaml: Any = YAML(typ="safe", pure=True)
    yaml.default_flow_style, yaml.width, yaml.sort_base_mapping_type_on_output = None, 120, False
    buffer = io.StringIO()
    yaml.dump(document, buffer)
    return "".join(f"# {comment}\n" for comment in comments) + buffer.getvalue()


def read_yaml(text: str, where: Callable[[int], str]) -> tuple[Any, dict[Keys, int]]:
    """Return the content of a YAML text and the lines of its values. Raises FredError if it is invalid or too large.

    Args:
        text: the YAML text.
        where: function from a line number to the start of an error message.
    """
    yaml = YAML(typ="safe", pure=True)
    try:
        # A mapping's value is yielded twice, so this stops at a number of values between the limit and its double.
        lines = dict(itertools.islice(_lines(yaml.compose(text), ()), 2 * _MOST_VALUES))
        if len(lines) >= _MOST_VALUES:
            raise FredError(f"{where(1)}: it has more than {_MOST_VALUES:,} values, with aliases expanded")
        return yaml.load(text), lines
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = _DUPLICATE.sub(r"the key `\1` is there twice", error.problem or error.context or "")
        reason = next((cure for words, cure in _CURES.items() if words in reason), reason)
        raise FredError(f"{where(mark.line + 1 if mark else 1)}: {reason}") from None
    except RecursionError:
        raise FredError(f"{where(1)}: it is nested too deeply, or contains itself") from None
    except FredError:
        raise
    except Exception as error:  # such as a control character, an impossible date, `!!bool maybe`: each is a different exception
        reason = [*str(error).strip().splitlines(), ""][0]
        is_explained = isinstance(error, (YAMLError, ValueError, TypeError)) and reason
        raise FredError(f"{where(1)}: {reason if is_explained else f'a value that does not fit its tag: {reason}'}") from None


def _lines(node: Node | None, keys: Keys) -> Iterator[tuple[Keys, int]]:
    """Yield the keys and the line of each value; for a mapping's value then again, with the line of its key, which counts."""
    if node is None:
        return
    yield keys, node.start_mark.line + 1
    if isinstance(node, MappingNode):
        for key, value in node.value:
            str(key.value).encode()  # raises ValueError for a lone surrogate, which cannot be printed
            yield from _lines(value, (*keys, key.value))
            yield (*keys, key.value), key.start_mark.line + 1
    elif isinstance(node, SequenceNode):
        for index, value in enumerate(node.value):
            yield from _lines(value, (*keys, index))
    else:
        str(node.value).encode()


def as_yaml(scenario: Any, most: int | None = None) -> str:
    """Return a scenario as YAML. Read again in the folder of its input files, it gives the same scenario.

    Args:
        scenario: a `Scenario`, whose own methods call this.
        most: approximate number of letters after which the text is cut, and a line says where the rest is; None: no limit.
    >>> import fred
    >>> scenario = fred.scenario(
    ...     comment="Who?", algorithm={"name": "ssgd", "learning_rate": 1.0}, cluster={"workers": 4}, stop={"updates": 8}
    ... )
    >>> print(as_yaml(scenario).splitlines()[0])
    # Who?
    """
    options: dict[str, Any] = {"mode": "json", "context": {"paths": name_alone}}
    document = scenario.model_dump(**options, exclude={"points", "best", "comment"}, exclude_defaults=True)
    settings_of_runs = document.pop("runs")
    for name, run in scenario.runs.items():
        settings_of_runs[name].pop("protocol", None)
        # An algorithm may change its protocol's defaults, so all options are written. A result can be read without the user's
        # class, which alone knows its usual protocol, so with such a class the protocol is always written.
        if is_user_class(type(run.algorithm)) or not run.has_usual_protocol:
            settings_of_runs[name]["protocol"] = run.model_dump(**options, include={"protocol"})["protocol"]
    runs = _swept(scenario, settings_of_runs)
    shared = _shared(list(runs.values())) if len(runs) > 1 else {}
    content = {**document, **shared, "runs": {name: _rest(settings, shared) for name, settings in runs.items()}}
    text, yaml = _Bounded(most), YAML()
    yaml.width, yaml.default_flow_style, yaml.allow_unicode = 110, None, True
    comment = "".join(f"# {line}".rstrip() + "\n" for line in scenario.comment.split("\n")) if scenario.comment else ""
    if first_comment(comment) != scenario.comment:  # such as one with an empty line at its end
        comment, content = "", {"comment": scenario.comment, **content}
    try:
        yaml.dump(content, text)
    except _EnoughError:
        return f"{comment}{text.getvalue()}\n# ... the rest is in manifest.json\n"
    return comment + text.getvalue()


def _swept(scenario: Any, runs: dict[str, Any]) -> dict[str, Any]:
    """Return the runs with all points of a sweep merged into one run with a `sweep`, in the order of the scenario."""
    best = {"best": scenario.best} if scenario.best else {}
    members: dict[str, list[str]] = {}
    for name in scenario.runs:
        members.setdefault(scenario.run_of(name), []).append(name)
    merged_runs = {}
    for name, points in members.items():
        values = [scenario.points[point].model_dump(mode="json")["values"] for point in points if point in scenario.points]
        merged_runs[name] = {
            **_shared([runs[point] for point in points]),
            **({"sweep": {"over": values, **best}} if values else {}),
        }
    return merged_runs


class _Bounded(io.StringIO):
    """A text buffer that raises _EnoughError once it holds more than `most` letters."""

    def __init__(self, most: int | None):
        super().__init__()
        self.most = most

    def write(self, text: str) -> int:
        """Append text. Raises _EnoughError."""
        if self.most is not None and self.tell() > self.most:
            raise _EnoughError
        return super().write(text)


class _EnoughError(Exception):
    pass


def _shared(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the entries that all these mappings share, in depth where they name the same component."""
    first, *other_parts = parts
    entries: dict[str, Any] = {}
    for key, value in first.items():
        values = [other.get(key) for other in other_parts]
        mappings = [item for item in values if isinstance(item, dict) and isinstance(value, dict)]
        if all(item == value for item in values):
            entries[key] = value
        elif len(mappings) == len(values) and all(item.get("name") == value.get("name") for item in mappings):
            entries[key] = _shared([value, *mappings])
    return {key: value for key, value in entries.items() if value != {}}


def _rest(settings: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a mapping that are not shared."""
    rest = {}
    for key, value in settings.items():
        if key not in shared:
            rest[key] = value
        elif isinstance(value, dict) and (inner_rest := _rest(value, shared[key])):
            rest[key] = inner_rest
    return rest
