"""How a command line says which trace to read, and how: the options of `Reading`, and how workers sit on nodes."""

import argparse
from pathlib import Path
from typing import Any, get_args

from fred.errors import FredError
from fred.traces.mending import Mend
from fred.traces.reading import Nodes, Reading, read
from fred.traces.roles import Role, Unit
from fred.traces.trace import Trace

_SHOWN = {"columns": "OURS=THEIRS,...", "longest": "SECONDS"}
_WORDS = {"unit": get_args(Unit), "mend": get_args(Mend)}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the trace as an argument, and one option for each of `Reading`'s.

    Args:
        parser: of a command.
    """
    parser.add_argument(
        "trace",
        type=Path,
        nargs="+",
        help="CSV, Parquet, lines of JSON, or JSON of PyTorch's profiler; several files of one trace; `example`: FRED's own",
    )
    for name, field in Reading.model_fields.items():
        ours = f"; ours: {', '.join(get_args(Role))}" if name == "columns" else ""
        parser.add_argument(
            f"--{name}",
            choices=_WORDS.get(name),
            metavar=_SHOWN.get(name),
            help=f"{field.description}{ours}" + (f" (default: {field.default})" if field.default else ""),
        )
    parser.add_argument(
        "--nodes", metavar="N[,N...]", help="machines, among which the workers are spread evenly; or how many each has"
    )


def from_options(options: argparse.Namespace) -> Trace:
    """Return the trace that a command line asks for. Raises FredError.

    Args:
        options: of a command with these options.
    """
    nodes = None if options.nodes is None else _nodes(options.nodes)
    return read(*options.trace, nodes=nodes, **reading(options))


def reading(options: argparse.Namespace) -> dict[str, Any]:
    """Return those of `Reading`'s options that a command line gives. Raises FredError.

    Args:
        options: of a command with these options.
    """
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
