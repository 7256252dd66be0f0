"""A scenario as a YAML file that can be run again: shared settings once, the rest under each run."""

import io
from typing import Any

from ruamel.yaml import YAML

from fred.components.input_path import name_alone
from fred.specification.text import first_comment


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
    how: dict[str, Any] = {"mode": "json", "context": {"paths": name_alone}}
    document = scenario.model_dump(**how, exclude={"points", "best", "comment"}, exclude_defaults=True)
    brief = document.pop("runs")
    for name, run in scenario.runs.items():
        brief[name].pop("protocol", None)
        if not run.has_usual_protocol:  # an algorithm may change its protocol's defaults, so write all options
            brief[name]["protocol"] = run.model_dump(**how, include={"protocol"})["protocol"]
    runs = _swept(scenario, brief)
    shared = _shared(list(runs.values())) if len(runs) > 1 else {}
    whole = {**document, **shared, "runs": {name: _rest(own, shared) for name, own in runs.items()}}
    text, yaml = _Bounded(most), YAML()
    yaml.width, yaml.default_flow_style, yaml.allow_unicode = 110, None, True
    comment = "".join(f"# {line}".rstrip() + "\n" for line in scenario.comment.split("\n")) if scenario.comment else ""
    if first_comment(comment) != scenario.comment:  # such as one with an empty line at its end
        comment, whole = "", {"comment": scenario.comment, **whole}
    try:
        yaml.dump(whole, text)
    except _EnoughError:
        return f"{comment}{text.getvalue()}\n# ... the rest is in manifest.json\n"
    return comment + text.getvalue()


def _swept(scenario: Any, runs: dict[str, Any]) -> dict[str, Any]:
    """Return the runs with all points of a sweep merged into one run with a `sweep`, in the order of the scenario."""
    best = {"best": scenario.best} if scenario.best else {}
    members: dict[str, list[str]] = {}
    for name in scenario.runs:
        members.setdefault(scenario.run_of(name), []).append(name)
    found = {}
    for name, own in members.items():
        over = [scenario.points[each].model_dump(mode="json")["values"] for each in own if each in scenario.points]
        found[name] = {**_shared([runs[each] for each in own]), **({"sweep": {"over": over, **best}} if over else {})}
    return found


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
    first, *others = parts
    found: dict[str, Any] = {}
    for key, value in first.items():
        own = [other.get(key) for other in others]
        alike = [each for each in own if isinstance(each, dict) and isinstance(value, dict)]
        if all(each == value for each in own):
            found[key] = value
        elif len(alike) == len(own) and all(each.get("name") == value.get("name") for each in alike):
            found[key] = _shared([value, *alike])
    return {key: value for key, value in found.items() if value != {}}


def _rest(own: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a mapping that are not shared."""
    left = {}
    for key, value in own.items():
        if key not in shared:
            left[key] = value
        elif isinstance(value, dict) and (more := _rest(value, shared[key])):
            left[key] = more
    return left
