"""`make house`: the house in numbers and as the picture in docs/architecture.md, from the text of its files.

A room is a folder of `fred/` with all that is in it, or a file next to them; an arrow goes from one to another whose code it
imports, a floor is as high as the longest way down. An arrow up is an import that closes a circle of rooms; a lazy circle is
one of files that exists only because some imports stand inside functions.
"""

import ast
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.patches import FancyBboxPatch

from fred.views.figures import COLOURS, Picture, style

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "fred"
Graph = dict[str, set[str]]  # who imports whom
_ARROW = {"arrowstyle": "->", "color": "#888888"}


class Import(NamedTuple):
    """One file imports another."""

    file: str
    other: str
    lazy: bool  # inside a function


@cache
def files() -> dict[str, Path]:
    """Return every file of FRED by its module's name."""
    paths = {path: path.relative_to(ROOT).with_suffix("").parts for path in sorted(SOURCE.rglob("*.py"))}
    return {".".join(parts[:-1] if parts[-1] == "__init__" else parts): path for path, parts in paths.items()}


@cache
def trees() -> dict[Path, ast.Module]:
    """Return every file of FRED, parsed."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in files().values()}


@cache
def imports() -> list[Import]:
    """Return every import of one of FRED's modules by another, once."""
    modules, result = files(), set[Import]()
    for name, path in modules.items():
        for node, lazy in statements(trees()[path].body):
            result.update(Import(name, other, lazy) for other in _modules_named(node, modules) if other != name)
    return sorted(result)


def statements(body: Iterable[ast.AST], lazy: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Yield all statements; `lazy`: those in functions, or for type checkers alone, which do not run when a file is loaded."""
    for node in body:
        yield node, lazy
        for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        inside = lazy or for_types or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from statements(getattr(node, field, ()), inside)


def _modules_named(node: ast.AST, modules: dict[str, Path]) -> Iterator[str]:
    """Yield the modules of FRED that a statement imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in modules)
    if isinstance(node, ast.ImportFrom) and node.module in modules:
        for alias in node.names:
            module = f"{node.module}.{alias.name}"
            yield module if module in modules else str(node.module)


def room_of(module: str) -> str:
    """Return the folder of `fred/` that a module lies in, or the module's file if it lies in none."""
    return files()[module].relative_to(SOURCE).parts[0]


def rooms(edges: list[Import]) -> Graph:
    """Return the rooms that each room imports from."""
    graph: Graph = {room_of(module): set() for module in files()}
    for edge in edges:
        if room_of(edge.file) != room_of(edge.other):
            graph[room_of(edge.file)].add(room_of(edge.other))
    return graph


def circles(graph: Graph) -> list[set[str]]:
    """Return the groups of two nodes or more that all reach each other."""

    def reach(start: str) -> set[str]:
        reached, fresh = set[str](), {start}
        while fresh:
            fresh = {other for node in fresh for other in graph.get(node, ())} - reached
            reached |= fresh
        return reached

    reached = {node: reach(node) for node in graph}
    groups = {frozenset(other for other in reached[node] if node in reached[other]) for node in graph}
    return [set(group) for group in sorted(groups, key=sorted) if len(group) > 1]


def graph_of_files(edges: list[Import], lazy: bool) -> Graph:
    """Return the files that each file imports; `lazy`: also inside functions."""
    graph: Graph = {module: set() for module in files()}
    for edge in edges:
        if lazy or not edge.lazy:
            graph[edge.file].add(edge.other)
    return graph


def floors(graph: Graph) -> dict[str, int]:
    """Return the length of the longest way down from each node. Raises CycleError for a circle."""
    height: dict[str, int] = {}
    for node in TopologicalSorter(graph).static_order():
        height[node] = 1 + max((height[other] for other in graph.get(node, ())), default=0)
    return height


def twice() -> list[str]:
    """Return the file names that several rooms have, `__init__.py` aside. Namespaces, next to the rooms, may share theirs."""
    names = Counter(path.name for path in files().values() if path.parent != SOURCE)
    return sorted(name for name, times in names.items() if times > 1 and name != "__init__.py")


def sizes_of_rooms() -> Counter[str]:
    """Return the number of files in each room, `__init__.py` aside."""
    return Counter(room_of(module) for module, path in files().items() if path.name != "__init__.py")


def draw_rooms(path: Path) -> None:
    """Draw folders floor by floor, as wide as they have files, and an arrow to those directly below that a room needs."""
    graph, sizes = rooms([edge for edge in imports() if not edge.lazy]), sizes_of_rooms()
    height = {room: floor for room, floor in floors(graph).items() if (SOURCE / room).is_dir()}
    with style():
        picture = Picture(figsize=(9.2, 0.52 * len(set(height.values()))), layout="constrained")
        axis = picture.subplots()
        middle: dict[str, tuple[float, int]] = {}
        for row, floor in enumerate(sorted(set(height.values()))):
            names = sorted(room for room, level in height.items() if level == floor)
            widths = [5 + sizes[room] / 2 for room in names]
            left = -(sum(widths) + 2 * (len(names) - 1)) / 2
            for room, width in zip(names, widths, strict=True):
                middle[room] = left + width / 2, row
                look: dict[str, Any] = {"facecolor": "#dbe9f6", "edgecolor": COLOURS[0], "zorder": 2}
                axis.add_patch(FancyBboxPatch((left, row - 0.26), width, 0.52, "round,pad=0.05", **look))
                axis.text(left + width / 2, row, f"{room}  {sizes[room]}", ha="center", va="center", zorder=3)
                left += width + 2
        for room, (x, row) in middle.items():
            for other in sorted(graph[room] & middle.keys()):
                if not any(other in graph[via] for via in graph[room] & middle.keys()):  # else it is needed anyway
                    to = middle[other]
                    axis.annotate("", (to[0], to[1] + 0.32), (x, row - 0.32), arrowprops=_ARROW, zorder=1)
        axis.set(xlim=(-24, 24), ylim=(-0.6, len(set(height.values())) - 0.4))
        axis.axis("off")
        picture.save(path)


def docstring_of(node: ast.AST) -> range:
    """Return the lines of a node's docstring."""
    body = getattr(node, "body", None)
    first = body[0] if isinstance(body, list) and body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return range(first.lineno, (first.end_lineno or first.lineno) + 1)
    return range(0)


class Writing(NamedTuple):
    """Lines of files, of functions without docstrings, of docstrings, and of code: neither blank, comment nor docstring."""

    files: list[int]
    bodies: list[int]
    docstrings: int
    code: int


def count_lines(folder: Path) -> Writing:
    """Return the line counts of all Python files below a folder."""
    counts = Writing([], [], 0, 0)
    docstrings = code = 0
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        counts.files.append(text.count("\n"))
        documented: set[int] = set()
        for node in ast.walk(ast.parse(text)):
            line_numbers = set(docstring_of(node))
            documented |= line_numbers
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                counts.bodies.append((node.end_lineno or 0) - node.body[0].lineno + 1 - len(line_numbers))
        docstrings += len(documented)
        lines = enumerate(text.splitlines(), start=1)
        code += sum(bool(line.strip()) and line.lstrip()[0] != "#" and number not in documented for number, line in lines)
    return counts._replace(docstrings=docstrings, code=code)


def main() -> None:
    """Print all numbers, and draw."""
    edges = imports()
    graph = rooms([edge for edge in edges if not edge.lazy])
    source, tests = count_lines(SOURCE), count_lines(ROOT / "tests")
    sizes, up, lazy = sizes_of_rooms(), circles(graph), circles(graph_of_files(edges, lazy=True))
    bodies = sorted(source.bodies)
    room, size = sizes.most_common(1)[0]
    folders = sum((SOURCE / room).is_dir() for room in graph)
    print(
        f"{len(source.files)} files, {sum(source.files):,} lines, median {statistics.median(source.files):.0f}, longest {max(source.files)}"
    )
    median, decile = bodies[len(bodies) // 2], bodies[len(bodies) * 9 // 10]
    print(f"bodies of functions: {median} / {decile} / {bodies[-1]} lines (median, 90 %, longest)")
    print(f"docstrings : code {source.docstrings / source.code:.2f}, tests : source {sum(tests.files) / sum(source.files):.2f}")
    print(f"{len(graph)} rooms ({folders} of them folders), the largest {room}: {size} files")
    print(f"{sum(map(len, graph.values()))} arrows at load, {sum(map(len, rooms(edges).values()))} with those inside functions")
    circles_of_files = len(circles(graph_of_files(edges, lazy=False)))
    print(f"floors {max(floors(graph).values()) if not up else '-'}; circles of rooms {len(up)}, of files {circles_of_files}")
    listed = "; ".join(", ".join(sorted(circle)) for circle in lazy) or "none"
    print(f"circles of files with what is imported inside functions: {listed}")
    print(f"file names that are there twice: {', '.join(twice()) or 'none'}")
    if not up:
        draw_rooms(ROOT / "docs" / "images" / "rooms.svg")


if __name__ == "__main__":
    main()
