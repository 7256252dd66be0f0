"""The JSON Schema of scenario files, with which editors complete and check them."""

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from fred.cluster.bandwidths import SPEEDS
from fred.components import registry
from fred.components.component import without_example
from fred.components.one_of import KIND_KEY
from fred.specification.loading import Scenario
from fred.specification.shape import Run
from fred.specification.source import OF_ALL
from fred.specification.sweep import Sweep

_USER_CLASSES: dict[str, Any] = {
    "own": {"type": "string", "pattern": "^[\\w.]+:[\\w-]+$", "description": "a class of your own, `module:Class`"},
    "own-with-options": {"type": "object", "properties": {"name": {"$ref": "#/$defs/own"}}, "required": ["name"]},
}

_CARD = {"enum": list(SPEEDS)}  # a network card, written once


def scenario_schema() -> dict[str, Any]:
    """Return the JSON Schema: every key with its description, and every component name with its options."""
    classes = {kind: {name: registry.lookup(kind, name) for name in table} for kind, table in registry.REGISTRY.items()}
    models: list[type[BaseModel]] = [Run, Scenario, Sweep, *(cls for table in classes.values() for cls in table.values())]
    mapping, combined = models_json_schema([(model, "validation") for model in dict.fromkeys(models)])
    definitions = combined["$defs"]
    for kind, table in classes.items():
        options = [
            _with_name(name, definitions[mapping[cls, "validation"]["$ref"].rsplit("/", 1)[1]]) for name, cls in table.items()
        ]
        definitions[kind] = {"anyOf": [{"enum": list(table)}, *options]}
    definitions = _resolved(definitions)
    _share_equal_options([choice for kind in classes for choice in definitions[kind]["anyOf"][1:]], definitions)
    definitions |= {**_USER_CLASSES, "card": _CARD}
    for kind in classes:
        definitions[kind]["anyOf"] += [{"$ref": f"#/$defs/{name}"} for name in _USER_CLASSES]
    shared = definitions["Run"]["properties"]
    shared["sweep"] = {
        "$ref": "#/$defs/Sweep",
        "description": "sweep: one run for each of several values of a setting",
    }
    scenario_properties = definitions["Scenario"]["properties"]
    runs = {
        "type": "object",
        "additionalProperties": {"anyOf": [{"$ref": "#/$defs/Run"}, {"type": "null"}]},
        "description": scenario_properties["runs"]["description"],
    }
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "FRED scenario",
        "type": "object",
        "properties": {**{key: scenario_properties[key] for key in OF_ALL}, **shared, "runs": runs},
        "additionalProperties": False,
    }
    return {**schema, "$defs": {name: definitions[name] for name in sorted(_reachable(schema, definitions))}}


def _resolved(schema: Any) -> Any:
    """Return the schema with references in place of the components' placeholders.

    No key is required, since a file may set it for all runs or for each run.
    """
    if isinstance(schema, list):
        return [_resolved(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema == _CARD:
        return {"$ref": "#/$defs/card"}
    result = {key: _resolved(value) for key, value in schema.items() if key not in (KIND_KEY, "required")}
    if isinstance(description := result.get("description"), str):
        result["description"] = without_example(description)
    return {"$ref": f"#/$defs/{schema[KIND_KEY]}", **result} if KIND_KEY in schema else result


def _with_name(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a component's options with its name among them."""
    properties = {"name": {"const": name}, **options.get("properties", {})}
    return {**options, "title": name, "properties": properties}


def _share_equal_options(components: list[dict[str, Any]], definitions: dict[str, Any]) -> None:
    """Move options that are equal in several components, in name and schema, into shared definitions."""
    components_by_option = defaultdict[tuple[str, str], list[dict[str, Any]]](list)  # their properties
    for component in components:
        for option, option_schema in component["properties"].items():
            if set(option_schema) - {"const", "$ref"}:  # a constant or a reference alone is short already
                components_by_option[option, json.dumps(option_schema)].append(component["properties"])
    variants = defaultdict[str, int](int)
    for (option, option_schema), components_properties in components_by_option.items():
        if len(components_properties) > 1:
            variants[option] += 1
            name = f"{option}.{variants[option]}"
            definitions[name] = json.loads(option_schema)
            for properties in components_properties:
                properties[option] = {"$ref": f"#/$defs/{name}"}


def _reachable(schema: Any, definitions: dict[str, Any]) -> set[str]:
    """Return the names of the definitions that a schema refers to, also through other definitions."""
    names, waiting = set[str](), [schema]
    while waiting:
        new = set(_references(waiting.pop())) - names
        names |= new
        waiting += [definitions[name] for name in new]
    return names


def _references(schema: Any) -> Iterator[str]:
    """Yield the name of each definition that is referred to in a schema."""
    if isinstance(schema, dict):
        if isinstance(target := schema.get("$ref"), str):
            yield target.removeprefix("#/$defs/")
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from _references(part)
