"""How a command line says which trace to read, and how: the options of `Reading`, and how workers sit on nodes."""

import argparse
from pathlib import Path
from typing import Any, get_args

from fred.errors import FredError
from fred.traces.reading import Nodes, Reading, read
from fred.traces.trace import Trace


def add_options(parser: argparse.ArgumentParser) -> None:
    """The trace as an argument, and one option for each of `Reading`'s."""
    parser.add_argument("trace", type=Path, help="CSV or Parquet file; `example`: one that comes with FRED")
    for name, field in Reading.model_fields.items():
        words = _words(field.annotation) if name not in ("columns", "longest") else []
        parser.add_argument(
            f"--{name}",
            choices=words or None,
            metavar=None if words else {"columns": "OURS=THEIRS,..."}.get(name, name.upper()),
            help=f"{field.description}" + (f" (default: {field.default})" if field.default else ""),
        )
    parser.add_argument(
        "--nodes", metavar="N[,N...]", help="machines, among which the workers are spread evenly; or how many each has"
    )


def _words(annotation: Any) -> list[str]:
    """What may be said, of a `Literal` that may be left out."""
    return [word for part in get_args(annotation) for word in (get_args(part) or [part]) if isinstance(word, str)]


def from_options(options: argparse.Namespace) -> Trace:
    """The trace that a command line asks for. Raises FredError."""
    return read(options.trace, None if options.nodes is None else _nodes(options.nodes), **reading(options))


def reading(options: argparse.Namespace) -> dict[str, Any]:
    """Those of `Reading`'s options that a command line gives. Raises FredError."""
    given = {name: getattr(options, name) for name in Reading.model_fields if getattr(options, name) is not None}
    return given | ({"columns": _pairs(given["columns"])} if "columns" in given else {})


def _pairs(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(ours and theirs for ours, _, theirs in pairs):
        raise FredError(f"--columns {text}: expected OURS=THEIRS, separated by commas, such as iteration=step,worker=rank")
    return {ours.strip(): theirs.strip() for ours, _, theirs in pairs}


def _nodes(text: str) -> Nodes:
    try:
        sizes = [int(size) for size in text.split(",")]
    except ValueError:
        raise FredError(
            f"--nodes {text}: expected a number of nodes, or the number of workers on each, such as 4,4,2"
        ) from None
    return sizes[0] if len(sizes) == 1 else sizes
