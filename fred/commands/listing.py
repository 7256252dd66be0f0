"""`fred list`: list the components that a scenario can name, or describe one; `python` lists the names in `import fred`."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from fred.base.errors import FredError
from fred.commands.scenarios import entry
from fred.components import pages, registry

_PYTHON = "python"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose the entries."""
    parser.add_argument(
        "kind",
        nargs="?",
        help="a kind, such as `latency`; or a NAME that only one kind has; or `python`: the public names of `import fred`",
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
        from fred.commands.documentation import page

        print(page(options.markdown), end="")
    elif options.kind == _PYTHON:
        from fred.commands import public

        print(public.text(options.component) if options.component else public.listed())
    elif options.kind is None or (options.component is None and options.kind in registry.REGISTRY):
        print("\n".join(map(_table, [options.kind] if options.kind else registry.REGISTRY)))
    else:
        _explain(*_found(options.kind, options.component))
    return 0


def _table(kind: str) -> str:
    tables = _by_family() if kind == "algorithm" else {kind: list(registry.REGISTRY[kind])}
    return "\n".join(line for title, names in tables.items() for line in [f"{title}:", *_entries(kind, names)])


def _by_family() -> dict[str, list[str]]:
    """Return the names of the algorithms of each family, in alphabetical order, without making their classes."""
    from fred.systems.rows import FAMILIES  # which takes a fifth of a second

    families: dict[str, list[str]] = {key: [] for key in FAMILIES}
    for name, (row, _) in sorted(pages.of_algorithms().items()):
        families[row["family"]].append(name)
    return {f"algorithm, {FAMILIES[key][:1].lower()}{FAMILIES[key][1:]}": names for key, names in families.items() if names}


def _entries(kind: str, names: list[str]) -> Iterator[str]:
    for name in names:
        yield entry(f"  {name:<26}", registry.summary(registry.REGISTRY[kind][name]))


def _explain(kind: str, name: str) -> None:
    from fred.commands.reference import reference

    print(reference(kind, name).text())


def _found(kind: str, name: str | None) -> tuple[str, str]:
    """Return the kind and name of the requested component. Raises FredError if none or several match."""
    if kind in registry.REGISTRY:
        assert name is not None
        if name in registry.REGISTRY[kind] or ":" in name:
            return kind, name
        others = [f"there is {_a(other)} `{name}`: `fred list {other} {name}`" for other in _kinds_of(name)]
        hint = "; ".join(others) or f"`fred list {kind}` lists them{registry.nearest(name, registry.REGISTRY[kind])}"
        raise FredError(f"there is no {kind} `{name}`; {hint}")
    if name is not None:
        raise FredError(f"there is no kind `{kind}`{registry.nearest(kind, registry.REGISTRY)}; known: {_kinds()}")
    if len(found := _kinds_of(kind)) == 1:
        return found[0], kind
    if found:
        raise FredError(f"`{kind}` is {' and '.join(map(_a, found))}; choose one: `fred list {found[0]} {kind}`")
    known = [*registry.REGISTRY, _PYTHON, *(each for names in registry.REGISTRY.values() for each in names)]
    raise FredError(f"there is no kind and no component `{kind}`{registry.nearest(kind, known)}; kinds: {_kinds()}")


def _kinds_of(name: str) -> list[str]:
    return [kind for kind, names in registry.REGISTRY.items() if name in names]


def _kinds() -> str:
    return ", ".join(registry.REGISTRY)


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
