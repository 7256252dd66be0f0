"""Random options from the schema that editors use. A new component of FRED is drawn without being listed here."""

import contextlib
from collections.abc import Collection, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from fred.base.errors import FredError
from fred.learning.optimizer import Transformation, public_names
from fred.specification.schema import scenario_schema
from tests.draws import Draws

Schema = dict[str, Any]
REALS = (0.01, 0.1, 0.3, 0.5, 1.0, 1.5, 4.0)
FILES = {"examples.npz": "examples.npz", "mine.txt": "mine.txt", "example": "trace.csv"}  # instead of what the schema names
FIRST = (  # of a chain of optax's transformations
    *("centralize", "normalize_by_update_norm", {"name": "ema", "decay": 0.9}, {"name": "trace", "decay": 0.5}),
    *({"name": "clip_by_global_norm", "max_norm": 1.0}, {"name": "adaptive_grad_clip", "clipping": 0.1}),
    {"name": "clip_by_block_rms", "threshold": 0.1},
)
DECAY = {"name": "exponential_decay", "decay_rate": 0.9, "transition_steps": 7}
WARM_UP = {"name": "linear_schedule", "init_value": 0.1, "end_value": 1, "transition_steps": 5}


def draw_options(
    draws: Draws, kind: str, name: str, share: float, likely: Collection[str] = (), excluded: Collection[str] = ()
) -> Schema:
    """Return a component's name, its required options, most of the `likely` ones, and a share of those not left out."""
    (schema,) = (definition for definition in _definitions()[kind]["anyOf"] if definition.get("title") == name)
    chances = dict.fromkeys(likely, 0.7) | dict.fromkeys(excluded, 0.0)
    return Drawing(draws, share).options(schema, name, chances)


def draw_part(draws: Draws, part: str, share: float) -> Schema:
    """Return a part of a scenario, such as a Task, with a share of its options."""
    return Drawing(draws, share).options(_definitions()[part], part)


@cache
def _definitions() -> dict[str, Schema]:
    return scenario_schema()["$defs"]


@cache
def optimizers() -> list[str]:
    """Return optax's names of whatever takes a learning rate and needs no other option."""
    usable = []
    for name in public_names():
        with contextlib.suppress(FredError):
            if Transformation(name=name).takes_rate:
                usable.append(name)
    return usable


class _NoValueError(Exception):
    """The schema does not say enough to draw a value."""


class Drawing:
    """Values that a schema allows, of which `share` is the share of optional ones."""

    def __init__(self, draws: Draws, share: float):
        self.draws, self.share = draws, share

    def options(self, schema: Schema, name: str, chances: Mapping[str, float] = MappingProxyType({})) -> Schema:
        """Return the options of a component of this name; `chances` of those that are not drawn like the others."""
        result: Schema = {}
        for option, subschema in schema.get("properties", {}).items():
            if "default" not in _resolve(subschema) or self.draws.numbers.random() < chances.get(option, self.share):
                with contextlib.suppress(_NoValueError):
                    result[option] = self.value(subschema, option if option != "name" else name)
        return result

    def value(self, schema: Schema, name: str) -> Any:
        """Return a value of this schema, for the option of this name. Raises _NoValueError."""
        if "$ref" in schema and name not in ("optimizer", "outer", "schedule"):
            return self.value(_resolve(schema), name)
        if name in ("optimizer", "outer"):
            last = self.draws.choose(*optimizers())
            return self.draws.choose(last, last, [self.draws.choose(*FIRST), last])
        if name == "schedule":
            return self.draws.choose(DECAY, WARM_UP, [DECAY, WARM_UP])
        if "anyOf" in schema:
            return self.value(self.draws.choose(*filter(_is_drawable, schema["anyOf"])), name)
        if "const" in schema or "enum" in schema:
            return self.draws.choose(*schema.get("enum", [schema.get("const")]))
        match schema.get("type"):
            case "object":
                return self.options(schema, name)
            case "array":
                return self._array(schema, name)
            case "integer":
                return self._integer(schema)
            case "number":
                return self._number(schema)
            case "boolean":
                return self.draws.choose(True, False)
            case "null":
                return None
            case "string" if schema.get("format") == "path":
                text = FILES.get("".join(schema.get("examples", ())))
            case "string":
                text = schema.get("default")
            case _:
                text = None
        if not text:
            raise _NoValueError
        return text

    def _array(self, schema: Schema, name: str) -> list[Any]:
        if "prefixItems" in schema:
            return [self.value(item, name) for item in schema["prefixItems"]]
        least = schema.get("minItems", 1)
        number = self.draws.integer(least, min(least + 2, schema.get("maxItems", 9)))
        return [self.value(schema["items"], name) for _ in range(number)]

    def _integer(self, schema: Schema) -> int:
        least = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
        return min(self.draws.integer(least, least + self.draws.choose(2, 6, 12)), schema.get("maximum", least + 12))

    def _number(self, schema: Schema) -> float:
        least, most = schema.get("minimum", -1.0), schema.get("maximum", 1e9)
        lower, upper = schema.get("exclusiveMinimum", -2.0), schema.get("exclusiveMaximum", 1e10)
        fitting = [number for number in REALS if least <= number <= most and lower < number < upper]
        if not fitting:
            raise _NoValueError
        return self.draws.choose(*fitting)


def _is_drawable(schema: Schema) -> bool:
    """Return whether it names no class of a user's own."""
    return "pattern" not in _resolve(_resolve(schema).get("properties", {}).get("name", schema))


def _resolve(schema: Schema) -> Schema:
    """Return a schema with what the definition says that it refers to."""
    if "$ref" not in schema:
        return schema
    return _definitions()[schema["$ref"].rpartition("/")[2]] | {key: value for key, value in schema.items() if key != "$ref"}
