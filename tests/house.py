"""`make house`: the house in numbers and as the picture in docs/architecture.md, from the text of its files.

A room is a folder of `fred/` with all that is in it, or a file beside them; an arrow goes from one to another whose code it
imports, a floor is as high as the longest way down. An arrow up is an import that closes a circle of rooms; a lazy circle is
one of files that exists only because some imports stand inside functions.
"""

import ast
import statistics
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

from matplotlib.patches import FancyBboxPatch

from fred.views.figures import COLOURS, Picture, style
from tests.writing import named_parameters, written

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "fred"
Graph = dict[str, set[str]]  # who imports whom
_ARROW = {"arrowstyle": "->", "color": "#888888"}


class Import(NamedTuple):
    """One file imports another."""

    file: str
    other: str
    lazy: bool  # inside a function


def module_of(path: Path) -> str:
    """The name under which a file is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def files() -> dict[str, Path]:
    """Every module of FRED, by name."""
    return {module_of(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imports() -> list[Import]:
    """Every import of one of FRED's modules by another, once."""
    known, found = files(), set()
    for name, path in known.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        at_load = {id(node) for node in _at_load(tree)}
        for node in ast.walk(tree):
            for other in _named(node, known):
                if other != name:
                    found.add(Import(name, other, id(node) not in at_load))
    return sorted(found)


def _at_load(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run when a file is loaded; not those in functions, or for type checkers alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from _at_load(node)


def _named(node: ast.AST, known: dict[str, Path]) -> Iterator[str]:
    """The modules of FRED that a statement imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in known)
    if isinstance(node, ast.ImportFrom) and node.module in known:
        for alias in node.names:
            within = f"{node.module}.{alias.name}"
            yield within if within in known else str(node.module)


def room_of(module: str) -> str:
    """The folder of `fred/` that a module lies in, or the module itself if it lies in none."""
    inside = files()[module].relative_to(SOURCE)
    return inside.parts[0]


def rooms(found: list[Import]) -> Graph:
    """Return the rooms that each room imports from."""
    graph: Graph = {room_of(module): set() for module in files()}
    for each in found:
        if room_of(each.file) != room_of(each.other):
            graph[room_of(each.file)].add(room_of(each.other))
    return graph


def circles(graph: Graph) -> list[set[str]]:
    """Groups of nodes that all reach each other [Tarjan 1972], of more than one."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(node: str) -> None:
        numbers[node] = lowest[node] = len(numbers)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in numbers:
                visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in stack:
                lowest[node] = min(lowest[node], numbers[other])
        if lowest[node] == numbers[node]:
            group = set(stack[stack.index(node) :])
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(group)

    for node in sorted(graph):
        if node not in numbers:
            visit(node)
    return found


def of_files(found: list[Import], lazy: bool) -> Graph:
    """Return the files that each file imports; `lazy`: also inside functions."""
    graph: Graph = {module: set() for module in files()}
    for each in found:
        if lazy or not each.lazy:
            graph[each.file].add(each.other)
    return graph


def floors(graph: Graph) -> dict[str, int]:
    """Return the length of the longest way down from each node. Raises CycleError for a circle."""
    height: dict[str, int] = {}
    for node in TopologicalSorter(graph).static_order():
        height[node] = 1 + max((height[other] for other in graph.get(node, ())), default=0)
    return height


def twice() -> list[str]:
    """File names that several rooms have, `__init__.py` aside."""
    names = Counter(path.name for path in files().values())
    return sorted(name for name, times in names.items() if times > 1 and name != "__init__.py")


def draw(graph: Graph, sizes: Counter[str], path: Path) -> None:
    """Folders floor by floor, as wide as they have files, and an arrow to those directly below that a room needs."""
    height = {room: floor for room, floor in floors(graph).items() if (SOURCE / room).is_dir()}
    with style():
        picture = Picture(figsize=(9.2, 0.52 * len(set(height.values()))), layout="constrained")
        axis = picture.subplots()
        middle: dict[str, tuple[float, int]] = {}
        for row, floor in enumerate(sorted(set(height.values()))):
            there = sorted(room for room, own in height.items() if own == floor)
            widths = [5 + sizes[room] / 2 for room in there]
            left = -(sum(widths) + 2 * (len(there) - 1)) / 2
            for room, width in zip(there, widths, strict=True):
                middle[room] = left + width / 2, row
                axis.add_patch(
                    FancyBboxPatch(
                        (left, row - 0.26), width, 0.52, "round,pad=0.05", facecolor="#dbe9f6", edgecolor=COLOURS[0], zorder=2
                    )
                )
                axis.text(left + width / 2, row, f"{room}  {sizes[room]}", ha="center", va="center", zorder=3)
                left += width + 2
        for room, (x, row) in middle.items():
            for other in sorted(graph[room] & middle.keys()):
                if not any(other in graph[between] for between in graph[room] & middle.keys()):  # else it is needed anyway
                    to = middle[other]
                    axis.annotate("", (to[0], to[1] + 0.32), (x, row - 0.32), arrowprops=_ARROW, zorder=1)
        axis.set(xlim=(-24, 24), ylim=(-0.6, len(set(height.values())) - 0.4))
        axis.axis("off")
        picture.save(path)


def draw_rooms(path: Path) -> None:
    """Draw the rooms, floor by floor, and which imports from which."""
    draw(rooms([each for each in imports() if not each.lazy]), sizes_of_rooms(), path)


def sizes_of_rooms() -> Counter[str]:
    """Return how many files each room has, `__init__.py` apart."""
    return Counter(room_of(module) for module, path in files().items() if path.name != "__init__.py")


def main() -> None:
    """Print all of it, and draw."""
    found = imports()
    at_load = [each for each in found if not each.lazy]
    graph, own, tests = rooms(at_load), written(SOURCE), written(ROOT / "tests")
    sizes = sizes_of_rooms()
    up = circles(graph)
    lazy = circles(of_files(found, lazy=True))
    bodies = sorted(own.bodies)
    named, there = named_parameters(SOURCE)
    room, size = sizes.most_common(1)[0]
    print(
        f"{len(own.files)} files, {sum(own.files):,} lines, median {statistics.median(own.files):.0f}, longest {max(own.files)}"
    )
    print(
        f"bodies of functions: {bodies[len(bodies) // 2]} / {bodies[len(bodies) * 9 // 10]} / {bodies[-1]} lines (median, 90 %, longest)"
    )
    print(f"docstrings : code {own.docstrings / own.code:.2f}, tests : source {sum(tests.files) / sum(own.files):.2f}")
    print(f"parameters named in docstrings: {named} of {there}, {named / there:.2f}")
    print(
        f"{len(graph)} rooms ({sum(SOURCE.joinpath(each).is_dir() for each in graph)} of them folders), the largest {room}: {size} files"
    )
    print(f"{sum(map(len, graph.values()))} arrows at load, {sum(map(len, rooms(found).values()))} with those inside functions")
    print(
        f"floors {max(floors(graph).values()) if not up else '-'}; circles of rooms {len(up)}, of files {len(circles(of_files(found, lazy=False)))}"
    )
    print(
        f"circles of files with what is imported inside functions: {'; '.join(', '.join(sorted(each)) for each in lazy) or 'none'}"
    )
    print(f"file names that are there twice: {', '.join(twice()) or 'none'}")
    if not up:
        draw_rooms(ROOT / "docs" / "images" / "rooms.svg")


if __name__ == "__main__":
    main()
