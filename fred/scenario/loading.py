"""Scenario files: YAML with line numbers -> shared settings merged with each run's -> a checked Scenario, or a clear error."""

import copy
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from fred import registry
from fred.component import Component, options_of
from fred.errors import FredError, quoted
from fred.registry import nearest
from fred.scenario.shape import Run, Scenario
from fred.scenario.sweep import Point, Sweep, name_of

Keys = tuple[str | int, ...]  # where a value stands in a document
_Setting = tuple[Keys, Any, str]  # where, what, and how it was said
_OF_THE_FILE = ("title", "seeds", "runs")  # keys that are not settings of each run
_MOST_VALUES = 1_000_000  # in one file, aliases written out
_RUN_NAME = re.compile(r"(?!(?:figures|summary\.json|summary\.csv|manifest\.json)$)(?![-.]*$)[-.\w]{1,60}")


def load(path: str | Path, settings: Iterable[str] = (), imports: Iterable[str] = ()) -> Scenario:
    """Read a scenario file; `settings` are `key.path=value` overrides, `imports` the user's modules it may name.

    Raises FredError with the file, line, key, value and expectation of everything that is wrong.
    """
    registry.allow_import(imports)
    path = Path(path)
    source = _Source(path, *_parse(path), [_setting(text) for text in settings])
    return validated(source.specification(), source.locate, folder=path.parent)


def validated(specification: Any, locate: Callable[[Keys], str], folder: Path = Path()) -> Scenario:
    """The scenario of a specification whose runs are complete. Raises FredError listing whatever is wrong with it."""
    try:
        return Scenario.model_validate(specification, context={"folder": folder})
    except ValidationError as error:
        lines = [f"{locate(keys)}: {problem}" for keys, problem in _problems(error.errors())]
        raise FredError("\n".join(dict.fromkeys(lines))) from None


def validated_anew(part: Any, keys: Keys = ()) -> Any:
    """A scenario, or a part of one, checked again to its last part: there are ways around validation. Raises FredError."""
    if isinstance(part, Mapping):
        return {key: validated_anew(value, (*keys, key)) for key, value in part.items()}
    if isinstance(part, tuple):
        return tuple(validated_anew(value, (*keys, number)) for number, value in enumerate(part))
    if not isinstance(part, Component):
        return part
    options = {name: validated_anew(option, (*keys, name)) for name, option in options_of(part).items()}
    try:
        return type(part).model_validate(options)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, where))}: {problem}" for where, problem in _problems(error.errors(), keys)]
        raise FredError("\n".join(dict.fromkeys(lines))) from None


def merged(base: Any, override: Any) -> Any:
    """Mappings merge key by key; one that names another component than the base does, or anything else, takes its place."""
    if isinstance(base, str) and isinstance(override, dict):
        base = {"name": base}
    elif isinstance(base, dict) and isinstance(override, str) and base.get("name", override) == override:
        override = {"name": override}
    if not isinstance(base, dict) or not isinstance(override, dict):
        return copy.deepcopy(override)
    if "name" in base and override.get("name", base["name"]) != base["name"]:
        return copy.deepcopy(override)
    return {key: merged(base.get(key), override[key]) if key in override else copy.deepcopy(base[key]) for key in base} | {
        key: copy.deepcopy(value) for key, value in override.items() if key not in base
    }


def scenario(settings: Mapping[str, Any] | None = None, **more: Any) -> Scenario:
    """A scenario of what a file would hold, as mappings: `fred.scenario(algorithm="asgd", cluster={"workers": 4}, ...)`.

    Parts may be objects of FRED's classes, too. Raises FredError with the key, value and expectation of all that is wrong.
    """
    document = {key: _as_in_a_file(value) for key, value in {**(settings or {}), **more}.items()}
    source = _Source(None, document, {(): 0}, [])
    return validated(source.specification(), source.locate)


def replaced(original: Scenario, settings: Mapping[str, Any]) -> Scenario:
    """The same with other settings, by `key.path` for all runs or `runs.NAME.key.path` for one. Raises FredError."""
    document = original.model_dump(mode="json", exclude={"points", "best"})
    changes: list[_Setting] = [(_keys(path), _as_in_a_file(value), f"{path}={value}") for path, value in settings.items()]
    source = _Source(None, document, {(): 0}, changes)
    return validated(source.specification() | {"points": original.points, "best": original.best}, source.locate)


def _as_in_a_file(value: Any) -> Any:
    if isinstance(value, Component):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {key: _as_in_a_file(each) for key, each in value.items()}
    return [_as_in_a_file(each) for each in value] if isinstance(value, list | tuple) else value


class _Source:
    """What a scenario file holds, its line numbers, and the settings that override it; or the same without a file."""

    def __init__(
        self, path: Path | None, document: dict[str, Any], lines: dict[Keys, int], settings: list[tuple[Keys, Any, str]]
    ):
        self.path, self.document, self._lines = path, document, lines
        self._settings = settings
        self._points: dict[str, Point] = {}
        known = (*_OF_THE_FILE, *Run.model_fields, "sweep")
        for key in self.document:
            if key not in known:
                raise FredError(
                    f"{self.locate((key,))}: unknown key `{key}`{nearest(str(key), known)}; expected {', '.join(known)}"
                )
        self.runs = self._named_runs()

    def specification(self) -> dict[str, Any]:
        """What the file and the settings say, every run complete."""
        result: dict[str, Any] = {key: self.document[key] for key in ("title", "seeds") if key in self.document}
        shared = {key: value for key, value in self.document.items() if key not in _OF_THE_FILE}
        result["runs"] = {name: merged(shared, own) for name, own in self.runs.items()}
        for keys, value, text in self._settings:
            if keys[0] in ("title", "seeds"):
                _assign(result, keys, value, text)
            elif keys[0] != "runs":
                for run in result["runs"].values():
                    _assign(run, keys, value, text)
            elif len(keys) > 2 and keys[1] in self.runs:
                _assign(result["runs"][keys[1]], keys[2:], value, text)
            else:
                raise FredError(f"{text}: expected runs.NAME.key=value with NAME one of {', '.join(self.runs)}")
        return self._swept(result)

    def _swept(self, specification: dict[str, Any]) -> dict[str, Any]:
        """Each run that has a `sweep`, once for each of its points."""
        runs: dict[str, Any] = {}
        for name, run in specification["runs"].items():
            sweep = self._sweep(name, run.pop("sweep", None))
            if sweep is None:
                runs[name] = run
                continue
            specification["best"] = sweep.best
            for values in sweep.points():
                point = name_of(name, values)
                if point in runs:
                    raise FredError(f"{self.locate(('runs', name, 'sweep'))}: it has two points that are called {point}")
                self._points[point] = Point(of=name, values=values)
                runs[point] = copy.deepcopy(run)
                for key, value in values.items():
                    _assign(runs[point], _keys(key), copy.deepcopy(value), f"sweep {key}")
        return specification | {"runs": runs, "points": self._points} if self._points else specification

    def _sweep(self, name: str, sweep: Any) -> Sweep | None:
        if sweep is None:
            return None
        try:
            return Sweep.model_validate(sweep)
        except ValidationError as error:
            problems = _problems(error.errors(), ("runs", name, "sweep"))
            raise FredError("\n".join(dict.fromkeys(f"{self.locate(keys)}: {said}" for keys, said in problems))) from None

    def locate(self, keys: Keys) -> str:
        """`file:line: key.path` of a value of the specification; the deepest enclosing line if the value has none."""
        if keys[:1] == ("runs",) and len(keys) > 1 and keys[1] in self._points:
            point = self._points[str(keys[1])]
            swept = next((key for key in point.values if ".".join(map(str, keys[2:])).startswith(key)), None)
            keys = ("runs", point.of, *(("sweep", "over", swept) if swept else keys[2:]))
        for own, _, text in self._settings:
            if _overlap(keys, self._made(own)) or (keys[:1] == ("runs",) and _overlap(keys[2:], self._made(own, keys[:2]))):
                return f"{text}"
        candidates = [keys[2:], keys] if keys[:1] == ("runs",) else [keys]
        depth, candidate = max(((self._depth(each), each) for each in candidates), key=lambda found: found[0])
        if self.path is None:
            return ".".join(map(str, keys)) or "the scenario"
        line = self._lines[candidate[:depth]]
        return f"{self.path}:{line}: {'.'.join(map(str, candidate)) or 'the file'}"

    def _made(self, own: Keys, run: Keys = ()) -> Keys:
        """What a setting brings into a file (or into a run of it): with its value, the mappings that it makes on the way."""
        return own[: 1 + max(self._depth(own), self._depth((*run, *own)) - len(run))]

    def _depth(self, keys: Keys) -> int:
        return next(n for n in range(len(keys), -1, -1) if keys[:n] in self._lines)

    def _named_runs(self) -> dict[str, Any]:
        runs = self.document.get("runs")
        if "runs" not in self.document:
            algorithm = self.document.get("algorithm")
            name = algorithm.get("name") if isinstance(algorithm, dict) else algorithm
            name = str(name or "run").split(":")[-1]
            return {name if _RUN_NAME.fullmatch(name) else "run": {}}
        if not isinstance(runs, dict) or not runs:
            raise FredError(f"{self.locate(('runs',))}: found {quoted(runs)}; expected run names, each with what it overrides")
        for name, own in runs.items():
            if not isinstance(name, str) or not _RUN_NAME.fullmatch(name):
                raise FredError(
                    f"{self.locate(('runs', name))}: a run's name is made of letters, digits, `-`, `_` and `.`, 60 at most; "
                    "`figures` and the names of the result's files are taken"
                )
            if own is not None and not isinstance(own, dict):
                raise FredError(
                    f"{self.locate(('runs', name))}: found {quoted(own)}; expected settings that this run overrides"
                )
        return {name: own or {} for name, own in runs.items()}


def _overlap(keys: Keys, own: Keys) -> bool:
    """Whether one of two non-empty paths leads to or through the other; what the path calls one thing may be one of a list."""
    if not any(isinstance(key, int) for key in own):
        keys = tuple(key for key in keys if not isinstance(key, int))
    return bool(keys) and all(a == b for a, b in zip(keys, own, strict=False))


def _parse(path: Path) -> tuple[dict[str, Any], dict[Keys, int]]:
    try:
        if path.exists() and not path.is_file() and not path.is_relative_to("/dev/fd") and path != Path("/dev/stdin"):
            raise FredError(f"cannot read {path}: it is not a file")
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise FredError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    document, lines = _yaml(text, lambda line: f"{path}:{line}: not valid YAML")
    if not isinstance(document, dict):
        raise FredError(f"{path}:1: expected a mapping such as `algorithm: asgd`, found {quoted(document)}")
    return document, lines


def _yaml(text: str, where: Callable[[int], str]) -> tuple[Any, dict[Keys, int]]:
    """The content of a YAML text, and the lines of its values. Raises FredError for what YAML, or FRED, cannot read."""
    yaml = YAML(typ="safe", pure=True)
    try:
        lines = dict(itertools.islice(_lines(yaml.compose(text), ()), 2 * _MOST_VALUES))
        if len(lines) >= _MOST_VALUES:
            raise FredError(
                f"{where(1)}: it holds more than {_MOST_VALUES:,} values, counting each alias as what it stands for"
            )
        return yaml.load(text), lines
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise FredError(f"{where(mark.line + 1 if mark else 1)}: {error.problem or error.context}") from None
    except RecursionError:
        raise FredError(f"{where(1)}: it is nested too deeply, or contains itself") from None
    except FredError:
        raise
    except Exception as error:  # a control character, an impossible date, `!!bool maybe`: the parser has an error for each
        reason = [*str(error).strip().splitlines(), ""][0]
        known = isinstance(error, (YAMLError, ValueError, TypeError)) and reason
        raise FredError(f"{where(1)}: {reason if known else f'a value that does not fit its tag: {reason}'}") from None


def _lines(node: Node | None, keys: Keys) -> Iterator[tuple[Keys, int]]:
    if node is None:
        return
    yield keys, node.start_mark.line + 1
    if isinstance(node, MappingNode):
        for key, value in node.value:
            str(key.value).encode()  # a lone surrogate, which nothing can print or write: a ValueError
            yield from _lines(value, (*keys, key.value))
            yield (*keys, key.value), key.start_mark.line + 1
    elif isinstance(node, SequenceNode):
        for index, value in enumerate(node.value):
            yield from _lines(value, (*keys, index))
    else:
        str(node.value).encode()


def _setting(text: str) -> _Setting:
    path, equals, value = text.partition("=")
    if not equals or not all(path.split(".")):
        raise FredError(f"--set {text}: expected key.path=value, such as algorithm.learning_rate=0.1")
    parsed, _ = _yaml(value, lambda _: f"--set {text}: the value is not valid YAML")
    return _keys(path), parsed, f"--set {text}"


def _keys(path: str) -> Keys:
    return tuple(int(key) if key.isdecimal() else key for key in path.split("."))


def _assign(run: dict[str, Any], keys: Keys, value: Any, text: str) -> None:
    """Put the value at its place in a run, making mappings on the way."""
    place: Any = run
    for key, following in itertools.pairwise(keys):
        inner = place.get(key) if isinstance(place, dict) else place[key] if _in_list(place, key) else None
        if isinstance(inner, str):
            inner = {"name": inner}  # a bare name gets options
        elif inner is None and not isinstance(following, int):
            inner = {}
        if not isinstance(inner, (dict, list)):
            raise FredError(f"{text}: `{key}` has no `{following}`")
        _put(place, key, inner, text)
        place = inner
    _put(place, keys[-1], value, text)


def _put(place: Any, key: str | int, value: Any, text: str) -> None:
    if isinstance(place, list) and not _in_list(place, key):
        raise FredError(f"{text}: the list has {len(place)} items, counted from 0; there is no item {key}")
    place[key] = value


def _in_list(place: Any, key: str | int) -> bool:
    return isinstance(place, list) and isinstance(key, int) and key < len(place)


def _problems(errors: Iterable[Any], prefix: Keys = ()) -> Iterator[tuple[Keys, str]]:
    """Where each error is, and what to say about it; those inside a component come out one by one."""
    for error in errors:
        context = error.get("ctx", {})
        keys = (*prefix, *error["loc"], *([context["key"]] if "key" in context else []))
        if "nested" in context:
            yield from _problems(context["nested"], keys)
        elif error["type"] == "too_short" and error["ctx"]["actual_length"] < len(error["input"]):
            continue  # items that failed were not counted; they have errors of their own
        elif error["type"] == "missing":
            yield keys, f"missing key `{keys[-1]}`"
        elif error["type"] in ("unknown_key", "component"):
            yield keys, error["msg"]
        else:
            expectation = error["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
            found = "" if isinstance(error["input"], (dict, list)) else f"found {quoted(error['input'])}; "
            yield keys, found + expectation
