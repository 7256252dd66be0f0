"""Differences between the settings of runs of the same name."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fred.base import ownership
from fred.base.errors import quoted
from fred.base.words import briefly
from fred.specification.loading import Scenario
from fred.specification.shape import Run

_LONGEST = 60  # characters of a value


def recorded(run: Run, beside: Path = Path()) -> dict[str, Any]:
    """Return a run's settings as a manifest records them.

    Args:
        run: the run.
        beside: folder that paths of input files are relative to.
    """
    return run.model_dump(mode="json", context={"paths": lambda path: path.seen_from(beside)})


def differing(one: Mapping[str, Mapping[str, Any]], other: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a text for each setting in which runs of the same name differ, with both values and the names of the runs.

    Args:
        one: settings by the name of the run.
        other: the same of another result.

    >>> one = {"asgd": {"stop": {"updates": 40}, "cluster": {"workers": 8}}, "ssgd": {"cluster": {"workers": 8}}}
    >>> other = {"asgd": {"stop": {"updates": 20}, "cluster": {"workers": 16}}, "ssgd": {"cluster": {"workers": 16}}}
    >>> differing(one, other)
    ['stop.updates 40 and 20 (asgd)', 'cluster.workers 8 and 16']
    """
    shared = [name for name in one if name in other]
    runs: dict[str, list[str]] = {}
    for name in shared:
        for text in _differences(one[name], other[name]):
            runs.setdefault(text, []).append(name)
    return [text if len(own) == len(shared) else f"{text} ({', '.join(own)})" for text, own in runs.items()]


def replaced(scenario: Scenario, out: Path) -> list[str]:
    """Return a line if runs of the scenario will replace a result at its place whose runs have other settings.

    Args:
        scenario: the scenario that will run.
        out: the place of its result.
    """
    path = Path(os.path.realpath(out))
    old = ownership.manifest_of(path).get("scenario")
    runs = old.get("runs") if isinstance(old, dict) else None
    if not isinstance(runs, dict):
        return []
    found = differing(runs, {name: recorded(run, path.parent) for name, run in scenario.runs.items()})
    if not found:
        return []
    shown = briefly(found, between="; ")
    return [f"{out} has a result with other settings, which this run replaces; another --out keeps it: {shown}"]


def _differences(one: Any, other: Any, key: str = "") -> Iterator[str]:
    """Yield each setting that differs; of components with different names only the names."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from _differences(*pair, f"{key}.{number}")
        return
    if not isinstance(one, dict) or not isinstance(other, dict):
        if one != other:
            yield f"{key} {_brief(one)} and {_brief(other)}"
        return
    names = ["name"] if one.get("name") != other.get("name") else list(dict.fromkeys((*one, *other)))
    for name in names:
        yield from _differences(one.get(name), other.get(name), f"{key}.{name}".lstrip("."))


def _brief(value: Any) -> str:
    if value is None:
        return "absent"
    text = value if isinstance(value, str) else quoted(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
