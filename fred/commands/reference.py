"""The reference of a component, generated from its class: as text for the terminal, and as Markdown."""

import importlib
import inspect
import json
import re
import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fred.components import registry
from fred.components.component import Component, without_example
from fred.components.one_of import KIND_KEY, OneOf

KINDS = {  # kind -> (title, what it defines, where a scenario has it: {} stands for the component)
    "algorithm": ("Algorithms", "what an update does to the parameters", "algorithm: {}"),
    "codec": ("Codecs", "the compression of messages", "algorithm: {codec: {}}"),
    "protocol": ("Protocols", "which workers wait for which", "protocol: {}"),
    "cutoff": (
        "Cutoff rules",
        "the number of workers that a round waits for, or its deadline",
        "protocol: {name: cutoff, rule: {}}",
    ),
    "topology": ("Topologies", "which workers are neighbours", "protocol: {name: gossip, topology: {}}"),
    "selection": ("Selection rules", "which worker comes next", "protocol: {name: dispatcher, selection: {}}"),
    "gate": ("Gates", "which messages between workers and servers pass", "protocol: {name: gated, fetch_gate: {}}"),
    "contention": ("Contention", "temporary slowdowns of workers", "cluster: {contention: [{}]}"),
    "fault": (
        "Faults",
        "which workers or servers are offline and when, and which messages are lost",
        "cluster: {faults: [{}]}",
    ),
    "latency": ("Latencies", "durations", "cluster: {compute: {}}"),
    "model": ("Models", "the trained model", "task: {model: {}}"),
    "loss": ("Losses", "the quantity that training minimises", "task: {loss: {}}"),
    "data": ("Data", "training and evaluation examples", "task: {data: {}}"),
}
_TYPES = {
    "number": "number",
    "integer": "whole number",
    "string": "text",
    "boolean": "true or false",
    "array": "list",
    "object": "mapping",
}
_LIMITS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
_NO_LIMIT = 2**31  # a limit this large is not worth showing
_WIDEST = 100  # columns


@dataclass(frozen=True)
class Option:
    """One option of a component."""

    name: str
    values: str  # its type and limits
    default: str
    meaning: str  # its description, with the unit


@dataclass(frozen=True)
class Reference:
    """The description of one component."""

    kind: str
    name: str
    summary: str
    details: str  # the further paragraphs of its docstring
    rule: str  # of an algorithm: its formulas
    options: tuple[Option, ...]
    source: str
    example: str  # how a scenario names it
    place: str  # of its class: in its namespace, or `module:Class`

    def text(self) -> str:
        """Return the text that `fred list KIND NAME` prints."""
        blocks = [
            f"{self.name} ({self.kind}): {KINDS[self.kind][1]}",
            _wrap(self.summary),
            *map(_wrap, _paragraphs(self.details)),
        ]
        blocks += [textwrap.indent(self.rule, "    ")] if self.rule else []
        blocks += ["\n".join(["options:", *_option_texts(self.options)])] if self.options else ["It has no options."]
        last = (
            [f"example:  {self.example}"] + ([f"source:   {self.source}"] if self.source else []) + [f"class:    {self.place}"]
        )
        return "\n\n".join([*blocks, "\n".join(last)])

    def markdown(self) -> str:
        """Return a section of its kind's Markdown page."""
        blocks = [f"## {self.name}", self.summary, self.details]
        blocks += [f"```text\n{self.rule}\n```"] if self.rule else []
        rows = [
            f"| `{option.name}` | {_cell(option.values)} | {_cell(option.default)} | {_cell(option.meaning)} |"
            for option in self.options
        ]
        blocks += (
            ["\n".join(["| option | values | default | meaning |", "|---|---|---|---|", *rows])] if rows else ["No options."]
        )
        blocks += [
            f"```yaml\n{self.example}\n```",
            f"- class: `{self.place}`" + (f"\n- source: {self.source}" if self.source else ""),
        ]
        return "\n\n".join(filter(None, blocks)) + "\n"


def reference(kind: str, name: str) -> Reference:
    """Return the description of a component. Raises FredError if there is none of this name.

    Args:
        kind: the kind, a table of the registry.
        name: its name in that table; or `module:Class`, from a module that was allowed.

        >>> from fred.commands.reference import reference
        >>> print(reference("latency", "uniform").text())
        uniform (latency): durations
        <BLANKLINE>
        Any duration between two bounds, equally likely.
        <BLANKLINE>
        options:
          low   number, at least 0; required, such as 0.1
                shortest duration, s
          high  number, at least 0; required, such as 0.3
                longest duration, s
        <BLANKLINE>
        example:  cluster: {compute: {name: uniform, low: 0.1, high: 0.3}}
        class:    fred.latency.Uniform
    """
    cls = registry.lookup(kind, name)
    place = f"{cls.__module__}:{cls.__qualname__}"
    _, _, details = without_example(inspect.cleandoc(cls.__doc__ or "")).partition("\n\n")
    properties = cls.model_json_schema()["properties"] if cls.model_fields else {}
    options = tuple(Option(key, _values(field, properties[key]), default(cls, key, field), str(field.description))
                    for key, field in cls.model_fields.items())  # fmt: skip
    is_user_class = ":" in name  # a user's class, `module:Class`
    return Reference(
        kind,
        name,
        summary=inspect.cleandoc(cls.__doc__ or "").split("\n")[0] if is_user_class else registry.summary(place),
        details=details,
        rule=getattr(cls, "rule", ""),
        options=options,
        source=source(cls),
        example=_example(kind, name, cls),
        place=place if is_user_class else f"fred.{registry.NAMESPACES[kind]}.{cls.__qualname__}",
    )


def page(kind: str) -> str:
    """Return a Markdown page of all components of a kind."""
    title, definition, _ = KINDS[kind]
    names = registry.REGISTRY[kind]
    contents = "\n".join(f"- [{name}](#{name}): {registry.summary(target)}" for name, target in names.items())
    note = f"Made from FRED's classes: `fred list {registry.NAMESPACES[kind]} NAME` prints the same."
    head = f"# {title}\n\n{note} They define {definition}.\n\n{contents}\n"
    return "\n".join([head, *(reference(kind, name).markdown() for name in names)])


def source(cls: type[Component]) -> str:
    """Return the source that the docstring of a class's module cites for it.

    The source is the row of this class in the docstring's table, or else the text in brackets in its first line.
    """
    text = inspect.getdoc(importlib.import_module(cls.__module__)) or ""
    titles = {cls.__name__, vars(cls).get("name")}
    for names, cited in re.findall(r"^\| (.*?) +\| (.*?) *\|$", text, re.MULTILINE):
        if titles & set(names.split(", ")):
            return str(cited)
    bracket = re.search(r"\[(.*)\]", text.partition("\n")[0])
    return bracket[1] if bracket else ""


def default(cls: type[Component], name: str, field: FieldInfo) -> str:
    """Return the default of an option, or an example value if it is required.

    Args:
        cls: the component that has the option.
        name: the name of the option.
        field: its pydantic field.
    """
    if field.is_required():
        return f"required, such as {_flow(field.examples[0])}" if field.examples else "required"
    if field.get_default() in (None, "", ()):
        return ""
    # A dump has the default as a scenario writes it: components as mappings, tuples as lists.
    value = BaseModel.model_copy(cls.example(), update={name: field.get_default()}).model_dump(mode="json")[name]
    parts = [
        part.get("name", part) if isinstance(part, dict) else part for part in (value if isinstance(value, list) else [value])
    ]
    return f"`{', '.join(part if isinstance(part, str) else json.dumps(part) for part in parts)}`"


def choices(field: FieldInfo) -> list[str]:
    """Return the names that an option accepts, if they form a fixed list.

    Args:
        field: its pydantic field.
    """
    if get_origin(field.annotation) is Literal:
        return list(get_args(field.annotation))
    return [name for part in field.metadata if isinstance(part, OneOf) for name in registry.REGISTRY[part.kind]]


def _values(field: FieldInfo, schema: dict[str, Any]) -> str:
    """Return the type of an option and its limits, in words."""
    if get_origin(field.annotation) is Literal:
        return ", ".join(choices(field))
    words = ", ".join(dict.fromkeys(part for alternative in schema.get("anyOf", [schema]) for part in _type_words(alternative)))
    return words or "mapping"


def _type_words(schema: dict[str, Any]) -> Iterator[str]:
    """Yield the type in a JSON Schema without alternatives, and its limits, in words."""
    if KIND_KEY in schema:
        yield f"{schema[KIND_KEY]}, by name or with options"
    elif schema.get("type") == "array":
        yield f"list of: {', '.join(_type_words(schema.get('items', {}))) or 'values'}"
    elif "enum" in schema:
        yield ", ".join(map(str, schema["enum"]))
    elif schema.get("type") in _TYPES:
        yield _TYPES[schema["type"]]
    yield from (f"{words} {schema[key]:.12g}" for key, words in _LIMITS.items() if abs(schema.get(key, _NO_LIMIT)) < _NO_LIMIT)


def _example(kind: str, name: str, cls: type[Component]) -> str:
    """Return a line of YAML in which a scenario names the component, with the example values of its options."""
    examples = {key: field.examples[0] for key, field in cls.model_fields.items() if field.examples}
    component = _flow({"name": name, **examples} if examples else name)
    return KINDS[kind][2].replace("{}", component)


def _flow(value: Any) -> str:
    """Return a value as one line of YAML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_flow, value)) + "]"
    is_plain = isinstance(value, str) and re.fullmatch(r"[a-z][\w.:-]*\w", value) and value not in ("true", "false", "null")
    return value if is_plain else json.dumps(value)


def _option_texts(options: tuple[Option, ...]) -> Iterator[str]:
    """Yield for each option a line with its values and its default, and its meaning, indented."""
    width = max(len(option.name) for option in options) + 2
    for option in options:
        value = option.default.strip("`")
        suffix = "" if not value else f"; {value}" if value.startswith("required") else f"; default: {value}"
        yield f"  {option.name:<{width}}{option.values}{suffix}"
        yield textwrap.indent(
            textwrap.fill(option.meaning, max(20, _width() - width - 2), break_on_hyphens=False), " " * (width + 2)
        )


def _paragraphs(text: str) -> list[str]:
    return text.split("\n\n") if text else []


def _wrap(paragraph: str) -> str:
    """Return a paragraph wrapped to the terminal; formulas, tables and lists stay as they are."""
    return paragraph if paragraph.startswith((" ", "|", "-")) else textwrap.fill(paragraph, _width(), break_on_hyphens=False)


def _width() -> int:
    """Return the columns of a terminal's line; 80 if there is no terminal."""
    return min(_WIDEST, shutil.get_terminal_size().columns)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
