"""Options of the commands that read a trace.

There is one for each option of `Reading`, and one for the assignment of workers to nodes.
"""

import argparse
from pathlib import Path
from typing import Any, get_args

from fred.base.errors import FredError
from fred.commands.command_options import parse_pairs
from fred.traces.reading import Mend, Nodes, Reading, read
from fred.traces.roles import Role
from fred.traces.trace import Trace

_METAVARS = {"columns": "OURS=THEIRS,...", "longest": "SECONDS", "only": "COLUMN=VALUE,..."}
_EXAMPLES = {"columns": "iteration=step,worker=rank", "only": "metric=step_time"}
_CHOICES = {"unit": ("s", "ms", "us", "ns"), "mend": get_args(Mend)}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the trace as an argument, and one option for each option of `Reading`.

    Args:
        parser: the parser of a command.
    """
    parser.add_argument(
        "trace",
        type=Path,
        nargs="+",
        help="files of one trace, a folder or archive: logs, tables, exports of profilers, trackers; `example`: FRED's own",
    )
    for name, field in Reading.model_fields.items():
        roles = f"; OURS is one of {', '.join(get_args(Role))}" if name == "columns" else ""
        parser.add_argument(
            f"--{name}",
            choices=_CHOICES.get(name),
            metavar=_METAVARS.get(name),
            help=f"{field.description}{roles}" + (f" (default: {field.default})" if field.default else ""),
        )
    parser.add_argument(
        "--nodes",
        metavar="N[,N...]",
        help="number of nodes that share the workers evenly; or the number of workers on each node",
    )


def read_trace(options: argparse.Namespace) -> Trace:
    """Return the trace that a command line asks for. Raises FredError.

    Args:
        options: the parsed options, those of `add_options` among them.
    """
    nodes = None if options.nodes is None else _parse_nodes(options.nodes)
    return read(*options.trace, nodes=nodes, **reading_options(options))


def reading_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of `Reading` that a command line gives. Raises FredError.

    Args:
        options: the parsed options, those of `add_options` among them.
    """
    values = {name: getattr(options, name) for name in Reading.model_fields if getattr(options, name) is not None}
    return values | {
        name: parse_pairs(f"--{name}", values[name], example) for name, example in _EXAMPLES.items() if name in values
    }


def _parse_nodes(text: str) -> Nodes:
    """Return the number of nodes, or the number of workers on each of several. Raises FredError."""
    try:
        sizes = [int(size) for size in text.split(",")]
    except ValueError:
        raise FredError(
            f"--nodes {text}: expected a number of nodes, or the number of workers on each, such as 4,4,2"
        ) from None
    return sizes[0] if len(sizes) == 1 else sizes
