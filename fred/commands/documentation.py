"""Two Markdown pages of the documentation: algorithms and protocols, and optimizers.

The page of algorithms and protocols is generated from their classes and from the scenarios that use them; the page of the
optimizers that a scenario can name, from the signatures of optax's and FRED's functions.
"""

import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optax
from pydantic.fields import FieldInfo

from fred.base.errors import FredError
from fred.commands.reference import choices, default, source
from fred.components import registry
from fred.components.component import Component, without_example
from fred.learning import beyond_optax
from fred.learning.optimizer import Transformation, find_function
from fred.learning.server import Family
from fred.specification.loading import load

_COMPONENTS_HEAD = """# Algorithms and protocols

`fred list --markdown` prints this page from FRED's classes: to change it, edit them and run `make golden`. An *algorithm*
defines what an update does to the parameters. A *protocol* defines which workers wait for which. An algorithm can run
with protocols other than its own.

In the rules, `w` are the parameters, and `w_i` those of worker i where each worker has its own. `g` is a gradient: the mean
over a minibatch, at the parameters that the worker read `tau` updates earlier. `step(g)` is the step that the optimizer
computes from `g`: rate x g for plain `sgd`. Operations are elementwise.
"""
_OPTIMIZERS_HEAD = """# Optimizers

This page is generated from optax {version} and FRED's own additions. It lists the names that
`optimizer: {{name: ..., options}}` of an algorithm accepts, alone or in a list. The learning rate belongs to the algorithm, so
exactly one optimizer in a list must take it: those that do are marked with a star.
[optax's reference](https://optax.readthedocs.io) describes its optimizers.
"""
_TITLES = {"algorithm": "Algorithms", "protocol": "Protocols"}


def components_page(scenarios: Path) -> str:
    """Return the page of algorithms and protocols.

    Args:
        scenarios: folder of scenario files; links to them are relative to the working directory.
    """
    usage = _Usage(scenarios)
    lines = [_COMPONENTS_HEAD]
    for kind, title in _TITLES.items():
        base = registry.base(kind)
        lines += [f"## {title}", *_options(base, Component)]
        families = _families(kind, _user_classes(base))
        lines += [
            f"- {family}: {', '.join(f'[{name}](#{name})' for name in names)}" for family, names in families.items() if family
        ]
        for family, names in families.items():
            lines += [f"\n## {family}\n"] if family else []
            for cls, name in ((registry.lookup(kind, name), name) for name in names):
                lines += [f"### {name}\n", *_entry(cls), *usage.lines(cls), *_options(cls, base)]
    return "\n".join(lines)


def _families(kind: str, user_classes: list[str]) -> dict[str, list[str]]:
    """Return all names of a kind by family, the user's own classes included."""
    names = list(registry.REGISTRY[kind])
    if kind != "algorithm":
        return {"": [*names, *user_classes]}
    members = {family: [name for name in names if registry.lookup(kind, name).family is family] for family in Family}
    return {family: names for family, names in (members | {Family.OWN: user_classes}).items() if names}


def _user_classes(base: type[Component]) -> list[str]:
    """Return the user's classes of this kind, as `module:Class`, from the modules named with --allow-import."""
    classes = [cls for module in registry.imported() for _, cls in inspect.getmembers(sys.modules[module], inspect.isclass)]
    classes = [cls for cls in classes if issubclass(cls, base) and cls.__module__ in registry.imported()]
    return [f"{cls.__module__}:{cls.__name__}" for cls in classes if not inspect.isabstract(cls)]


def _entry(cls: type[Any]) -> Iterator[str]:
    """Yield the lines that describe a class: its docstring, its rule, its source, and the effect of faults."""
    yield without_example(inspect.getdoc(cls) or "") + "\n"
    if rule := getattr(cls, "rule", ""):
        yield f"```text\n{rule}\n```\n"
    if cited := source(cls):
        yield f"- source: {cited}"
    if faults := getattr(cls, "faults", ""):
        yield f"- faults: {faults}"


class _Usage:
    """The scenario that shows each class, and the protocols that each algorithm is run with.

    A scenario with the name of the class comes first, then one in `systems/`, then any other.
    """

    def __init__(self, scenarios: Path):
        self._best: dict[type[Any], Path] = {}
        self._protocols: dict[type[Any], list[str]] = {}
        for path in sorted(scenarios.rglob("*.yaml"), key=lambda path: (path.parent.name != "systems", path)):
            for run in load(path).runs.values():
                for kind, component in (("algorithm", run.algorithm), ("protocol", run.protocol)):
                    # The first file counts, unless a later one has the name of the component.
                    if registry.name_of(kind, component) == path.stem or type(component) not in self._best:
                        self._best[type(component)] = path
                self._protocols.setdefault(type(run.algorithm), []).append(registry.name_of("protocol", run.protocol))

    def lines(self, cls: type[Any]) -> Iterator[str]:
        """Yield the lines of the page that name the protocols and the scenario of a class."""
        if protocol := getattr(cls, "protocol", ""):
            names = dict.fromkeys([protocol, *sorted(self._protocols.get(cls, ()))])
            yield f"- protocol: {', in scenarios also '.join(f'[{name}](#{name})' for name in names)}"
        if cls in self._best:
            path = self._best[cls]
            first = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# Look for: ")
            yield f"- scenario: [{path.name}]({Path(os.path.relpath(path)).as_posix()}), look for: {first}"


def _options(cls: type[Component], base: type[Component]) -> Iterator[str]:
    """Yield a table of the options that `base` lacks or gives another default."""
    inherited = {name: field.get_default() for name, field in base.model_fields.items()}
    fields = {
        name: field
        for name, field in cls.model_fields.items()
        if name not in inherited or field.get_default() != inherited[name]
    }
    if fields:
        yield "\n| option | default | meaning |\n|---|---|---|"
    for name, field in fields.items():
        meaning = f"{field.description}{_list_choices(field)}".replace("|", "\\|")
        yield f"| `{name}` | {default(cls, name, field)} | {meaning} |"
    yield ""


def _list_choices(field: FieldInfo) -> str:
    names = choices(field)
    return f": {', '.join(f'`{name}`' for name in names)}" if names else ""


def optimizers_page() -> str:
    """Return the page of optimizers: a table each for optax, `optax.contrib`, and FRED's own."""
    blocks = [_OPTIMIZERS_HEAD.format(version=optax.__version__)]
    for title, module in (("optax", optax), ("optax.contrib", optax.contrib), ("FRED's own", beyond_optax)):
        rows = "\n".join(_row(name) for name in optimizer_names(module))
        blocks.append(f"## {title}\n\n| name | options, with their defaults |\n|---|---|\n{rows}\n")
    return "\n".join(blocks)


def optimizer_names(module: Any) -> Iterator[str]:
    """Yield the names of a module's optimizers and transformations that a scenario file can express with their options.

    Args:
        module: optax, optax.contrib, or the module of FRED's own additions.

        >>> import optax
        >>> from fred.commands.documentation import optimizer_names
        >>> [name in optimizer_names(optax) for name in ("adam", "lbfgs")], "muon" in optimizer_names(optax.contrib)
        ([True, False], True)
    """
    for name in sorted(vars(module)):
        if callable(find_function(name)) and not inspect.isclass(find_function(name)) and not name.startswith("_"):
            try:
                Transformation(name=name, **dict.fromkeys(_required_options(name), 1.0))
            except (FredError, ValueError):  # a required option is no number, such as a function: a file cannot have it
                continue
            yield name


def _required_options(name: str) -> list[str]:
    """Return the names of the options without a default, except the learning rate."""
    options = inspect.signature(find_function(name)).parameters.values()
    return [option.name for option in options if option.default is option.empty and option.name != Transformation.reserved]


def _row(name: str) -> str:
    """Return the row of an optimizer; a star marks one that takes the learning rate."""
    options = inspect.signature(find_function(name)).parameters.values()
    cells = [_option(option) for option in options if option.name != Transformation.reserved]
    star = " *" if any(option.name == Transformation.reserved for option in options) else ""
    return f"| `{name}`{star} | {', '.join(cells) or 'none'} |"


def _option(option: inspect.Parameter) -> str:
    """Return an option as `name = default`; a default that a file cannot express, such as a function, appears as `...`."""
    if option.default is option.empty:
        return f"`{option.name}`, required"
    simple = option.default is None or isinstance(option.default, int | float | str | tuple)
    return f"`{option.name} = {option.default if simple else '...'}`"
