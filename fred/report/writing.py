"""A scenario as it can be written into a file and run again: what its runs share once, the rest under each of them."""

import io
from typing import Any

from ruamel.yaml import YAML

from fred.specification.loading import Scenario

_MOST = 100_000  # letters on a page


def as_yaml(scenario: Scenario) -> str:
    """A file's text. Read again, it is the same scenario; a sweep's points are runs in it.

    Args:
        scenario: whose comment comes first.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     comment="Who is first?", algorithm="ssgd", cluster={"workers": 4}, stop={"updates": 8}
    ... )
    >>> print(as_yaml(scenario).splitlines()[0])
    # Who is first?
    """
    document = scenario.model_dump(mode="json", exclude={"points", "best", "comment"}, exclude_defaults=True)
    brief = document.pop("runs")
    for name, run in scenario.runs.items():  # an algorithm may have its protocol do otherwise than usual
        brief[name]["protocol"] = run.model_dump(mode="json", include={"protocol"})["protocol"]
    runs = _swept(scenario, brief)
    shared = _shared(list(runs.values())) if len(runs) > 1 else {}
    whole = {**document, **shared, "runs": {name: _rest(own, shared) for name, own in runs.items()}}
    text = io.StringIO()
    yaml = YAML()
    yaml.width, yaml.default_flow_style, yaml.allow_unicode = 110, None, True
    yaml.dump(whole, text)
    comment = "".join(f"# {line}".rstrip() + "\n" for line in scenario.comment.splitlines())
    return comment + text.getvalue()


def _swept(scenario: Scenario, runs: dict[str, Any]) -> dict[str, Any]:
    """Points of a sweep as one run with a `sweep`, in the order of the scenario."""
    found: dict[str, Any] = {}
    for name in scenario.runs:
        point = scenario.points.get(name)
        if point is None:
            found[name] = runs[name]
        else:
            found.setdefault(point.of, []).append((runs[name], point.values))
    for name, points in found.items():
        if isinstance(points, list):
            sweep = {"over": [values for _, values in points], **({"best": scenario.best} if scenario.best else {})}
            found[name] = {**_shared([run for run, _ in points]), "sweep": sweep}
    return found


def bounded(text: str) -> str:
    """What a page has room for; of a longer text the beginning, and where the rest is."""
    return text if len(text) <= _MOST else text[:_MOST].rsplit("\n", 1)[0] + "\n# ... the rest is in manifest.json\n"


def _shared(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """What all these mappings have alike, as deep as they are of the same component."""
    first, *others = parts
    found = {}
    for key, value in first.items():
        own = [other.get(key) for other in others]
        if all(each == value for each in own):
            found[key] = value
        elif isinstance(value, dict) and all(isinstance(each, dict) and each.get("name") == value.get("name") for each in own):
            found[key] = _shared([value, *own])
    return {key: value for key, value in found.items() if value != {}}


def _rest(own: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    """What is not shared."""
    left = {}
    for key, value in own.items():
        if key not in shared:
            left[key] = value
        elif isinstance(value, dict) and (more := _rest(value, shared[key])):
            left[key] = more
    return left
