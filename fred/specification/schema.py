"""The JSON Schema of scenario files, with which editors complete and check them."""

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from fred.components import registry
from fred.components.component import ONE_OF, without_example
from fred.specification.loading import Scenario
from fred.specification.shape import Run
from fred.specification.source import OF_ALL
from fred.specification.sweep import Sweep

_OWN = {"type": "string", "pattern": "^[\\w.]+:\\w+$", "description": "a class of your own, `module:Class`"}


def scenario_schema() -> dict[str, Any]:
    """Return the JSON Schema: every key with its description, and every component name with its options."""
    classes = {kind: {name: registry.lookup(kind, name) for name in table} for kind, table in registry.REGISTRY.items()}
    models: list[type[BaseModel]] = [Run, Scenario, Sweep, *(cls for table in classes.values() for cls in table.values())]
    mapping, combined = models_json_schema([(model, "validation") for model in dict.fromkeys(models)])
    definitions = combined["$defs"]
    for kind, table in classes.items():
        options = [
            _named(name, definitions[mapping[cls, "validation"]["$ref"].rsplit("/", 1)[1]]) for name, cls in table.items()
        ]
        definitions[kind] = {"anyOf": [{"enum": list(table)}, *options]}
    definitions = _resolved(definitions)
    for kind in classes:
        definitions[kind]["anyOf"] += [_OWN, {"type": "object", "properties": {"name": _OWN}, "required": ["name"]}]
    shared = definitions["Run"]
    shared["properties"]["sweep"] = {
        "$ref": "#/$defs/Sweep",
        "description": "sweep: one run for each of several values of a setting",
    }
    whole = definitions["Scenario"]["properties"]
    runs = {
        "type": "object",
        "additionalProperties": {"anyOf": [shared, {"type": "null"}]},
        "description": whole["runs"]["description"],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "FRED scenario",
        "type": "object",
        "properties": {**{key: whole[key] for key in OF_ALL}, **shared["properties"], "runs": runs},
        "additionalProperties": False,
        "$defs": definitions,
    }


def _resolved(schema: Any) -> Any:
    """Return the schema with references in place of the components' placeholders.

    No key is required, since a file may set it for all runs or for each run.
    """
    if isinstance(schema, list):
        return [_resolved(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: _resolved(value) for key, value in schema.items() if key not in (ONE_OF, "required")}
    if isinstance(said := result.get("description"), str):
        result["description"] = without_example(said)
    return {"$ref": f"#/$defs/{schema[ONE_OF]}", **result} if ONE_OF in schema else result


def _named(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a component's options with its name among them."""
    properties = {"name": {"const": name}, **options.get("properties", {})}
    return {**options, "title": name, "properties": properties}
