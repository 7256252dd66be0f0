"""Random valid scenarios from the schema that editors use, each a function of one seed. A new component of FRED is drawn without being listed here."""

import contextlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from fred.base.errors import FredError
from fred.learning.from_optax import known
from fred.learning.optimizer import Transformation
from fred.running.execution import check
from fred.specification.loading import load
from fred.specification.schema import scenario_schema
from fred.specification.shape import Run
from tests.draws import Draws
from tests.random_scenarios import write_files

Schema = dict[str, Any]
TRIES = 100  # of documents, and of changes to each that does not fit together
REALS = (0.01, 0.1, 0.3, 0.5, 1.0, 1.5, 4.0)
FILES = {"examples.npz": "examples.npz", "mine.txt": "mine.txt", "example": "trace.csv"}  # instead of what the schema names


def random_run(seed: int, folder: Path) -> tuple[Run, int]:
    """Return a valid run and its seed, of the first document that FRED accepts; `folder` gets the files that it names."""
    draws, path = Draws(seed), folder / "scenario.yaml"
    write_files(folder)
    for _ in range(TRIES):
        document = Document(draws).whole()
        for _ in range(TRIES):
            path.write_text(json.dumps(document), encoding="utf-8")
            try:
                scenario = load(path)
                (name, run), (number,) = next(iter(scenario.runs.items())), scenario.seeds
                check(name, run, number)
                return run, number
            except FredError as refused:
                if not _mended(document, str(refused)):
                    break
    raise AssertionError(f"{TRIES} documents in a row are refused; the last is {path.read_text(encoding='utf-8')}")


def _mended(document: Schema, refusal: str) -> bool:
    """Take out what a refusal names first, or the part that it lies in; whether it named something but the run's usual parts."""
    named = re.search(r":1: ([\w.-]+): |`(\w+\.[\w.]+)", refusal)
    keys = (named[1] or named[2]).partition(":")[0].split(".") if named else []
    while len(keys) > 1:
        part: Any = document
        with contextlib.suppress(KeyError, IndexError, TypeError, ValueError):
            for key in keys[:-1]:
                part = part[int(key) if isinstance(part, list) else key]
            del part[int(keys[-1]) if isinstance(part, list) else keys[-1]]
            return True
        keys.pop()
    return bool(keys) and keys[0] in ("task", "protocol", "evaluate") and document.pop(keys[0], None) is not None


@cache
def _definitions() -> dict[str, Schema]:
    return scenario_schema()["$defs"]


@cache
def _optimizers() -> list[str]:
    """Return optax's names of whatever takes a learning rate and needs no other option."""
    usable = []
    for name in known():
        with contextlib.suppress(ValueError):
            if Transformation(name=name).takes_rate:
                usable.append(name)
    return usable


class _NoValueError(Exception):
    """The schema does not say enough to draw a value."""


class Document:
    """A scenario whose values the schema allows; of what may be left out it says a share of its own."""

    def __init__(self, draws: Draws):
        self.draws = draws
        self.share = draws.one(0.0, 0.03, 0.1, 0.3)

    def whole(self) -> Schema:
        """Return a scenario of one short run, perhaps one that does not fit together."""
        parts = ["Cluster", "Evaluate", "algorithm", *self.draws.one([], ["protocol"]), *self.draws.one([], ["Task"], ["Task"])]
        document = {part.lower(): self.value(_definitions()[part], part) for part in parts}
        document["cluster"]["workers"] = self.draws.one(1, 2, 3, 4, 6, 8)
        limits = self.draws.one({}, {"seconds": 30}) | self.draws.one({"gradients": 40}, {"updates": self.draws.between(1, 20)})
        seeds, end = [self.draws.between(0, 2**32 - 1)], self.draws.one(0.5, 2.0, 10.0)
        dense = {"stop": {"seconds": end}, "evaluate": {"every_seconds": end / 50}}  # several within one phase of a replay
        return document | {"stop": limits, "seeds": seeds} | self.draws.one({}, {}, dense)

    def value(self, schema: Schema, name: str) -> Any:
        """Return a value of this schema, for the option of this name. Raises _NoValueError."""
        if "$ref" in schema:
            return self.value(_definitions()[schema["$ref"].rpartition("/")[2]], name)
        if name in ("optimizer", "outer"):
            schema = {"type": "string"}
        if "anyOf" in schema:
            return self.value(self.draws.one(*filter(_can_be_drawn, schema["anyOf"])), name)
        if "const" in schema or "enum" in schema:
            return self.draws.one(*schema.get("enum", [schema.get("const")]))
        return getattr(self, f"_{schema.get('type', 'any')}")(schema, name)

    def _object(self, schema: Schema, name: str) -> Schema:
        chosen: Schema = {}
        for option, own in schema.get("properties", {}).items():
            if "default" not in _whole(own) or self.draws.numbers.random() < self.share:
                with contextlib.suppress(_NoValueError):
                    chosen[option] = self.value(own, option if option != "name" else name)
        return chosen

    def _array(self, schema: Schema, name: str) -> list[Any]:
        if "prefixItems" in schema:
            return [self.value(own, name) for own in schema["prefixItems"]]
        least = schema.get("minItems", 1)
        return [
            self.value(schema["items"], name)
            for _ in range(self.draws.between(least, min(least + 2, schema.get("maxItems", 9))))
        ]

    def _string(self, schema: Schema, name: str) -> str:
        if schema.get("format") == "path":
            return FILES.get("".join(schema.get("examples", ())), "") or _none()
        if name in ("optimizer", "outer"):
            return self.draws.one(*_optimizers())
        return schema.get("default") or _none()

    def _integer(self, schema: Schema, name: str) -> int:
        least = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
        return min(self.draws.between(least, least + self.draws.one(2, 6, 12)), schema.get("maximum", least + 12))

    def _number(self, schema: Schema, name: str) -> float:
        least, most = schema.get("minimum", -1.0), schema.get("maximum", 1e9)
        over, under = schema.get("exclusiveMinimum", -2.0), schema.get("exclusiveMaximum", 1e10)
        fitting = [number for number in REALS if least <= number <= most and over < number < under]
        return self.draws.one(*fitting) if fitting else _none()

    def _boolean(self, schema: Schema, name: str) -> bool:
        return self.draws.one(True, False)

    def _null(self, schema: Schema, name: str) -> None:
        return None

    def _any(self, schema: Schema, name: str) -> Any:
        return _none()


def _none() -> Any:
    raise _NoValueError


def _can_be_drawn(schema: Schema) -> bool:
    """Return whether it names no class of a user's own."""
    own = _whole(schema).get("properties", {}).get("name", schema)
    return "pattern" not in _whole(own)


def _whole(schema: Schema) -> Schema:
    """Return a schema with what the definition says that it refers to."""
    return _definitions()[schema["$ref"].rpartition("/")[2]] | schema if "$ref" in schema else schema
