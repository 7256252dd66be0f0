"""The content of a scenario file, merged with settings and expanded sweeps; it knows where in the file each value stands."""

import copy
import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fred.base.errors import FredError, quoted
from fred.components.component import Object, nearest_inside
from fred.components.problems import problems
from fred.components.registry import nearest
from fred.specification.run_names import is_valid_name, name_of_only_run
from fred.specification.shape import Run
from fred.specification.sweep import Point, Sweep, name_of
from fred.specification.text import Keys, read_yaml

Setting = tuple[Keys, Any, str]  # keys, value, and the text that the user wrote
OF_ALL = ("title", "comment", "seeds", "report_seeds", "until", "baseline")  # keys of the whole scenario, not of a run
_OF_THE_FILE = (*OF_ALL, "runs")
_PLACE = re.compile("[0-9]{1,9}")  # index in a list
_MOST_BITS = 4096


class Source:
    """The content of a scenario file or mapping, its line numbers, and the settings that override it.

    Args:
        path: the file; None: there is no file.
        document: its content.
        lines: the line of each value in the file.
        settings: overrides, in order.
        comment: the comment at the start of the file.
    """

    def __init__(
        self,
        path: Path | None,
        document: dict[str, Any],
        lines: dict[Keys, int],
        settings: list[Setting],
        comment: str = "",
    ):
        self.path, self.document, self._lines, self._comment = path, document, lines, comment
        self._settings = settings
        self._points: dict[str, Point] = {}
        long_integers = (_long_integers(document), *(_long_integers(value, keys) for keys, value, _ in settings))
        first_keys = next(itertools.chain(*long_integers), None)
        if first_keys is not None:
            raise FredError(f"{self.locate(first_keys)}: found a number with thousands of digits; expected a smaller number")
        self.best_at: Keys = ("sweep", "best")  # keys of the criterion for the best points
        expected = (*_OF_THE_FILE, *Run.model_fields, "sweep")
        for key in self.document:
            if key not in expected:
                hint = nearest(str(key), expected) or nearest_inside(Run, key)
                raise FredError(f"{self.locate((key,))}: unknown key `{key}`{hint}; expected {', '.join(expected)}")
        self.runs = self._named_runs()

    def specification(self) -> dict[str, Any]:
        """Return the file merged with the settings: every run is complete, and sweeps are expanded. Raises FredError."""
        result: dict[str, Any] = {"comment": self._comment} if self._comment else {}
        result |= {key: self.document[key] for key in OF_ALL if key in self.document}
        shared = {key: value for key, value in self.document.items() if key not in _OF_THE_FILE}
        result["runs"] = {name: merged(shared, settings) for name, settings in self.runs.items()}
        for keys, value, text in self._settings:
            if keys[0] in OF_ALL:
                _assign(result, keys, value, text)
            elif keys[0] != "runs":
                swept = [run for run in result["runs"].values() if run.get("sweep")] if keys[0] == "sweep" else []
                for run in swept or result["runs"].values():
                    _assign(run, keys, value, text)
            elif len(keys) > 2 and keys[1] in self.runs:
                _assign(result["runs"][keys[1]], keys[2:], value, text)
            else:
                raise FredError(f"{text}: expected runs.NAME.key=value with NAME one of {', '.join(self.runs)}")
        return self._expand_sweeps(result)

    def _expand_sweeps(self, specification: dict[str, Any]) -> dict[str, Any]:
        """Return the specification with one run for each point of every sweep. Raises FredError."""
        runs: dict[str, Any] = {}
        for name, run in specification["runs"].items():
            sweep = self._read_sweep(name, run.pop("sweep", None))
            if sweep is None:
                runs[name] = run
                continue
            self._record_criterion(specification, name, sweep.best)
            for number, values in enumerate(sweep.points()):
                point = self._name_of(name, values)
                if point in runs:
                    raise FredError(
                        f"{self.locate(('runs', name, 'sweep'))}: two points have the name {point}; change one of them"
                    )
                self._points[point] = Point(of=name, values=values, later=sweep.comes_later(values))
                runs[point] = copy.deepcopy(run)
                for key, value in values.items():
                    # `over` is a grid or a list of points
                    keys_in_over = (key,) if isinstance(sweep.over, dict) else (number, key)
                    place = self.locate(("runs", name, "sweep", "over", *keys_in_over))
                    _assign(runs[point], keys_of(key), copy.deepcopy(value), text=place)
        return specification | {"runs": runs, "points": self._points} if self._points else specification

    def _name_of(self, run: str, values: dict[str, Any]) -> str:
        """Return the name of a point. Objects whose content cannot be read are numbered."""
        point = name_of(run, values)
        if not any(isinstance(value, Object) and not value.digest for value in values.values()):
            return point
        numbered = (f"{point}-{number}" for number in itertools.count(2))
        return next(name for name in itertools.chain([point], numbered) if name not in self._points)

    def _record_criterion(self, specification: dict[str, Any], name: str, best: str | None) -> None:
        """Record the criterion for the best points. Raises FredError if two sweeps name different criteria."""
        if best is None:
            return
        if specification.setdefault("best", best) != best:
            other = specification["best"]
            place = self.locate(("runs", name, "sweep", "best"))
            raise FredError(
                f"{place}: found {quoted(best)}; another run's sweep has {quoted(other)}: all sweeps must have the same"
            )
        self.best_at = ("runs", name, "sweep", "best")

    def _read_sweep(self, name: str, sweep: Any) -> Sweep | None:
        """Return the sweep of a run from its settings, or None. Raises FredError."""
        if sweep is None:
            return None
        try:
            return Sweep.model_validate(sweep)
        except ValidationError as error:
            mistakes = problems(error.errors(), Sweep, ("runs", name, "sweep"))
            raise FredError(*dict.fromkeys(f"{self.locate(keys)}: {message}" for keys, message in mistakes)) from None

    def locate(self, keys: Keys) -> str:
        """Return the place of a value as `file:line: key.path`, or the text of the setting that set it.

        A value without a line of its own has the line of the innermost mapping around it.
        """
        keys, is_of_run = self._swept_keys(keys), keys[:1] == ("runs",)
        text = self._setting_text(keys, is_of_run)
        return self._nearest_in_file(keys, is_of_run) if text is None else text

    def _swept_keys(self, keys: Keys) -> Keys:
        """Return the keys of a value of a point in the file: in its run, or in the sweep that set it."""
        if keys[:1] != ("runs",) or len(keys) == 1 or keys[1] not in self._points:
            return keys
        point = self._points[str(keys[1])]
        path = ".".join(map(str, keys[2:])) + "."
        swept = next((key for key in point.values if path.startswith(f"{key}.")), None)
        return ("runs", point.of, *(("sweep", "over", swept) if swept else keys[2:] or ("sweep",)))

    def _setting_text(self, keys: Keys, is_of_run: bool) -> str | None:
        """Return the text of the setting that set a value, or its keys if the text has none; None if no setting did."""
        for setting_keys, _, text in reversed(self._settings):  # of two for one key, the last one counts
            # A setting has the keys of a value, or for all runs those after `runs.NAME`.
            if _overlap(keys, self._created_keys(setting_keys)) or (
                is_of_run and _overlap(keys[2:], self._created_keys(setting_keys, keys[:2]))
            ):
                is_of_all_runs = is_of_run and setting_keys[:1] != ("runs",)
                return text if "=" in text else ".".join(map(str, keys[2:] if is_of_all_runs else keys))
        return None

    def _nearest_in_file(self, keys: Keys, is_of_run: bool) -> str:
        """Return the place of a value in the file, or of the innermost mapping around it, in its run or for all runs."""
        candidates = [keys[2:], keys] if is_of_run else [keys]
        depth, candidate = max(
            ((self._depth(candidate_keys), candidate_keys) for candidate_keys in candidates),
            key=lambda pair: (pair[0] == len(pair[1]), pair[0]),  # a value that is there itself, else the innermost mapping
        )
        if self.path is None:
            return ".".join(map(str, candidate)) or "the scenario"
        line = self._lines[candidate[:depth]]
        return f"{self.path}:{line}: {'.'.join(map(str, candidate)) or 'the file'}"

    def _created_keys(self, keys: Keys, run: Keys = ()) -> Keys:
        """Return the keys of the outermost value that a setting adds to the file, or to a run in it.

        This is the setting's own value, or the first mapping that must be created for it.
        """
        return keys[: 1 + max(self._depth(keys), self._depth((*run, *keys)) - len(run))]

    def _depth(self, keys: Keys) -> int:
        """Return how many of these keys exist in the file or mapping."""
        if self.path is None:
            return _depth(self.document, keys)
        return next(n for n in range(len(keys), -1, -1) if keys[:n] in self._lines)

    def _named_runs(self) -> dict[str, Any]:
        """Return the settings of each run by its name: those under `runs`, or none for the only run. Raises FredError."""
        runs = self.document.get("runs")
        if "runs" not in self.document:
            return {name_of_only_run(self.document.get("algorithm")): {}}
        if not isinstance(runs, dict) or not runs:
            value = f"a list of {len(runs)}" if isinstance(runs, list) and runs else quoted(runs)[:80]
            example = "`{'mine': {'algorithm': ...}}`" if self.path is None else "`mine: {algorithm: ...}`"
            raise FredError(
                f"{self.locate(('runs',))}: found {value}; expected run names, each with what it overrides, such as {example}"
            )
        for name, settings in runs.items():
            if isinstance(settings, dict) and "name" in settings:
                example = f"`algorithm: {{name: {quoted(settings['name'])}, ...}}`"
                if isinstance(settings["name"], type) or self.path is None:
                    example = f"`{{'{name}': {{'algorithm': ...}}}}`"
                raise FredError(
                    f"{self.locate(('runs', name))}: found a component; expected settings with their names, such as {example}"
                )
            if not is_valid_name(name):
                raise FredError(
                    f"{self.locate(('runs', name))}: a run's name has at most 60 letters, digits, `-`, `_` and `.`, and does "
                    "not start with `-` or `.`; `figures` and the names of the result's files are reserved"
                )
            if settings is not None and not isinstance(settings, dict):
                raise FredError(
                    f"{self.locate(('runs', name))}: found {quoted(settings)}; expected settings that this run overrides"
                )
        return {name: settings or {} for name, settings in runs.items()}


def _depth(document: Any, keys: Keys) -> int:
    """Return how many of these keys exist in a document.
    >>> _depth({"cluster": {"speeds": [1.0, 2.0]}}, ("cluster", "speeds", 2))
    2
    """
    for depth, key in enumerate(keys):
        if not (isinstance(document, dict) and key in document) and not _in_list(document, key):
            return depth
        document = document[key]
    return len(keys)


def _overlap(keys: Keys, others_keys: Keys) -> bool:
    """Return True if one of two non-empty paths leads to or through the other.

    If `others_keys` has no list indices, those in `keys` are ignored.
    """
    if not any(isinstance(key, int) for key in others_keys):
        keys = tuple(key for key in keys if not isinstance(key, int))
    return bool(keys) and all(a == b for a, b in zip(keys, others_keys, strict=False))


def merged(base: Any, override: Any) -> Any:
    """Return `override` merged into `base`.

    Mappings merge key by key, unless the override names another component. Any other override replaces the base.
    """
    if isinstance(base, str | type) and isinstance(override, dict):
        base = {"name": base}
    elif isinstance(base, dict) and isinstance(override, str | type) and base.get("name", override) == override:
        override = {"name": override}
    if not isinstance(base, dict) or not isinstance(override, dict):
        return copy.deepcopy(override)
    if "name" in base and override.get("name", base["name"]) != base["name"]:
        return copy.deepcopy(override)
    return {key: merged(base.get(key), override[key]) if key in override else copy.deepcopy(base[key]) for key in base} | {
        key: copy.deepcopy(value) for key, value in override.items() if key not in base
    }


def setting(text: str) -> Setting:
    """Return the keys, value and text of a `--set` option. Raises FredError."""
    path, equals, value = text.partition("=")
    if not equals or not all(path.split(".")):
        raise FredError(f"--set {text}: expected key.path=value, such as algorithm.learning_rate=0.1")
    parsed, _ = read_yaml(value, lambda _: f"--set {text}: the value is not valid YAML")
    return keys_of(path), parsed, f"--set {text}"


def keys_of(path: str) -> Keys:
    """Return the keys in `key.path`; numbers are indices of lists."""
    return tuple(int(key) if _PLACE.fullmatch(key) else key for key in path.split("."))


def _long_integers(value: Any, keys: Keys = ()) -> Iterator[Keys]:
    """Yield the keys of integers that are too long for Python to print, which no error message could quote."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        yield keys
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _long_integers(item, (*keys, number))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _long_integers(key, keys)
            yield from _long_integers(item, (*keys, key))


def _assign(run: dict[str, Any], keys: Keys, value: Any, text: str) -> None:
    """Set a value in a run, and create mappings on the way where needed. Raises FredError, which begins with `text`."""
    place: Any = run
    for key, following in itertools.pairwise(keys):
        inner = place.get(key) if isinstance(place, dict) else place[key] if _in_list(place, key) else None
        if isinstance(inner, str | type):
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


def put_back(run: dict[str, Any], other: Mapping[str, Any], keys: Keys) -> None:
    """Give a run the value that another has at these keys, or at the first of them that leads no further.

    >>> run, other = {"stop": {"updates": 3}, "task": {"l2": 1.0}}, {"stop": {"updates": 9}, "task": None}
    >>> put_back(run, other, ("stop", "updates")), put_back(run, other, ("task", "l2")), run
    (None, None, {'stop': {'updates': 9}, 'task': None})
    """
    place: Any = run
    source: Any = other
    for key in keys[:-1]:  # `key` ends as the first one that leads no further in the other run, or else as the last one
        if not isinstance(source.get(key) if isinstance(source, dict) else source[key], dict | list):
            break
        place, source = place[key], source[key]
    else:
        key = keys[-1]
    if isinstance(source, dict) and key not in source:
        place.pop(key, None)  # such as a usual protocol, which stands nowhere
    else:
        place[key] = source[key]


def _in_list(place: Any, key: str | int) -> bool:
    return isinstance(place, list) and isinstance(key, int) and key < len(place)
