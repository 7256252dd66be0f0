"""`fred list`: list the components that a scenario can name, or describe one of them.

`fred list python` does the same for the public names of `import fred`, from their signatures and docstrings.
"""

import argparse
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fred
from fred.base.errors import FredError
from fred.commands.scenarios import entry
from fred.components import registry
from fred.components.registry import nearest

_PYTHON, _PRESETS = "python", "presets"
_KINDS = {word: kind for kind, word in registry.NAMESPACES.items()}
_QUALIFIER = re.compile(r"\b(?:[A-Za-z_]\w*\.)+(\w+)")  # a type's name after its module


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose the entries."""
    parser.add_argument(
        "kind",
        nargs="?",
        help="a kind, such as `latency`; or a NAME that only one kind has; `presets`: networks by name; "
        "or `python`: the public names of `import fred`",
    )
    parser.add_argument("component", nargs="?", metavar="NAME", help="describe the component of this name, or `module:Class`")
    parser.add_argument(
        "--markdown",
        type=Path,
        metavar="DIR",
        help="print a page of all algorithms and protocols instead, "
        "with their rules and options; it links to the scenarios in DIR",
    )
    registry.add_import_option(parser, "the page and its scenarios")


def run(options: argparse.Namespace) -> int:
    """Print the requested list, page or description. Raises FredError for unknown names."""
    registry.allow_import(options.imports)
    if options.markdown:
        from fred.commands.documentation import components_page

        print(components_page(options.markdown), end="")
    elif options.kind == _PYTHON:
        print(describe(options.component) if options.component else list_names())
    elif options.kind == _PRESETS:
        print(list_presets(options.component))
    elif options.kind is None or (options.component is None and options.kind in _KINDS):
        print("\n".join(map(_table, [options.kind] if options.kind else _KINDS)))
    else:
        _print_component(*_component(options.kind, options.component))
    return 0


def _table(word: str) -> str:
    kind = _KINDS[word]
    tables = _by_family(word) if kind == "algorithm" else {word: list(registry.REGISTRY[kind])}
    return "\n".join(line for title, names in tables.items() for line in [f"{title}:", *_entries(kind, names)])


def _by_family(word: str) -> dict[str, list[str]]:
    """Return the names of the algorithms of each family, in alphabetical order, without importing their classes."""
    from fred.learning.server import Family  # which takes a fifth of a second

    names: dict[str, list[str]] = {family.name: [] for family in Family}
    for page in sorted(registry.entries(), key=lambda page: page.name):
        if page.kind == "algorithm":
            names[page.family].append(page.name)
    return {f"{word}, {family[:1].lower()}{family[1:]}": names[family.name] for family in Family if names[family.name]}


def _entries(kind: str, names: list[str]) -> Iterator[str]:
    for name in names:
        yield entry(f"  {name:<26}", registry.summary(registry.REGISTRY[kind][name]))


def _print_component(kind: str, name: str) -> None:
    from fred.commands.reference import reference

    print(reference(kind, name).text())


def _component(word: str, name: str | None) -> tuple[str, str]:
    """Return the kind and name of the requested component. Raises FredError if none or several match."""
    if word in _KINDS:
        assert name is not None  # `run` lists a kind without a name
        kind = _KINDS[word]
        if name in registry.REGISTRY[kind] or ":" in name:
            return kind, name
        hints = [f"there is {_with_article(other)} `{name}`: `{_command(other)} {name}`" for other in _kinds_of(name)]
        hint = "; ".join(hints) or f"`{_command(kind)}` lists them{registry.nearest(name, registry.REGISTRY[kind])}"
        raise FredError(f"there is no {kind} `{name}`; {hint}")
    if word in registry.REGISTRY or name is not None:  # `codec` is a kind, listed as `codecs`
        hint = f": `{_command(word)}`" if word in registry.REGISTRY else registry.nearest(word, _KINDS)
        raise FredError(f"there is no kind `{word}`{hint}; known: {', '.join(_KINDS)}")
    if len(kinds := _kinds_of(word)) == 1:
        return kinds[0], word
    if kinds:
        raise FredError(f"`{word}` is {' and '.join(map(_with_article, kinds))}; choose one: `{_command(kinds[0])} {word}`")
    names = [*_KINDS, _PYTHON, _PRESETS, *(name for names in registry.REGISTRY.values() for name in names)]
    raise FredError(f"there is no kind and no component `{word}`{registry.nearest(word, names)}; kinds: {', '.join(_KINDS)}")


def _kinds_of(name: str) -> list[str]:
    return [kind for kind, names in registry.REGISTRY.items() if name in names]


def _command(kind: str) -> str:
    return f"fred list {registry.NAMESPACES[kind]}"


def _with_article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def list_presets(only: str | None = None) -> str:
    """Return a list of the networks that a scenario can name, each with its options, its error, and its source.

    Args:
        only: name of the only one to list; None: all.

    Raises FredError for an unknown name.

    >>> print(list_presets("ethernet-25"))
    presets:
      ethernet-25     14.5 Gbit/s, latency 0.05 ms, collective nccl, buckets ddp
                      error: median 3 %, worst 7 % too fast, 3 steps; over RDMA up to 33 % too slow
                      from: Horovod over TCP, 16 GPUs
    """
    from fred.cluster.bandwidths import PRESETS  # here, since they load half a second of tables and of NumPy
    from fred.cluster.network import Network

    if only is not None and only not in PRESETS:
        raise FredError(f"there is no preset `{only}`{nearest(only, PRESETS)}; known: {', '.join(PRESETS)}")
    lines = ["presets:"]
    for name, preset in PRESETS.items() if only is None else [(only, PRESETS[only])]:
        network = Network(name=name).effective
        assert network.bandwidth is not None
        parts = [f"{network.bandwidth * 8e-9:.3g} Gbit/s", f"latency {1e3 * network.latency.mean:.3g} ms"]
        parts += [f"{option} {preset.options[option]}" for option in ("collective", "buckets") if option in preset.options]
        parts += [f"window {network.window / 2**20:.3g} MiB, sharing {network.sharing}"] if network.window else []
        for head, text in ((name, ", ".join(parts)), ("", f"error: {preset.error}"), ("", f"from: {preset.source}")):
            lines.append(f"  {head:<16}{text}")
    return "\n".join(lines)


def list_names() -> str:
    """Return a list of all public names, each with the first line of its docstring.

    >>> next(line for line in list_names().splitlines() if "Contention" in line)
    '  Contention        A regime; several may be at work at once.'
    """
    names = sorted(dir(fred), key=str.lower)
    return "\n".join(["python:", *(f"  {name:<18}{_first_line(name)}".rstrip() for name in names)])


def describe(name: str) -> str:
    """Return the signature and docstring of a public name, and those of its methods and properties.

    Raises FredError if there is no such name.

    Args:
        name: the name, as in `fred.NAME`.
    """
    if name not in dir(fred):
        available = ", ".join(sorted(dir(fred), key=str.lower))
        raise FredError(f"there is no `fred.{name}`{nearest(name, dir(fred))}; known: {available}")
    public = getattr(fred, name)
    if inspect.ismodule(public):
        members = ", ".join(member for member in dir(public) if not member.startswith("_"))
        return f"fred.{name}\n{textwrap.indent(inspect.getdoc(public) or '', '    ')}\n\n{textwrap.fill(members)}"
    if not _is_from_fred(public):
        return f"fred.{name} = {public}"
    blocks = [_description(f"fred.{name}", public)]
    if inspect.isclass(public):
        blocks += [textwrap.indent(_description(f".{attribute}", member), "    ") for attribute, member in _members(public)]
    return "\n\n".join(blocks)


def _first_line(name: str) -> str:
    public = getattr(fred, name)
    return (inspect.getdoc(public) or "").split("\n")[0] if _is_from_fred(public) or inspect.ismodule(public) else f"= {public}"


def _is_from_fred(public: Any) -> bool:
    return (inspect.isclass(public) or inspect.isfunction(public)) and public.__module__.startswith("fred.")


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield public methods and properties that have docstrings: those of the class, then those of its bases in FRED."""
    members: dict[str, Any] = {}
    for base in filter(_is_from_fred, cls.__mro__):
        attributes = {name: member for name, member in vars(base).items() if not name.startswith("_")}
        members |= {name: member for name, member in attributes.items() if name not in members}
    yield from ((name, member) for name, member in members.items() if _is_documented(member))


def _is_documented(member: Any) -> bool:
    member = getattr(member, "__func__", member)
    return bool(inspect.getdoc(member)) and (inspect.isroutine(member) or isinstance(member, property))


def _description(name: str, thing: Any) -> str:
    return f"{name}{_signature(thing)}\n{textwrap.indent(inspect.getdoc(thing) or '', '    ')}"


def _signature(thing: Any) -> str:
    """Return a callable's signature with types without their modules; empty for properties, and for models with options."""
    call: Callable[..., Any] = getattr(thing, "__func__", thing)
    if isinstance(thing, property) or (inspect.isclass(thing) and hasattr(thing, "model_fields")):
        return ""
    try:
        return _QUALIFIER.sub(r"\1", str(inspect.signature(call)))
    except (TypeError, ValueError):
        return ""
