"""`fred draw`: redraw figures of a result: for a paper, as PDF, for some runs, for other times and workers."""

import argparse
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fred.base.disk import FIGURES, check_free
from fred.base.errors import FredError
from fred.components import registry
from fred.views.view import AXES, LEARNING, WIDTHS, View

if TYPE_CHECKING:
    from collections.abc import Callable

    from fred.results.result import Result
    from fred.views.figures import Picture

_FORMATS = ("svg", "pdf", "png")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command.

    Args:
        parser: the parser of this command.
    """
    parser.epilog = "For example: fred draw results/quickstart timeline --begin 10 --end 12 --workers 0-3,12 --out paper"
    parser.add_argument("folder", type=Path, help="result folder")
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help="loss, timeline, ... (default: all figures of the folder)")
    parser.add_argument(
        "-o", "--out", type=Path, required=True, metavar="DIR", help="folder for the files, created if it does not exist"
    )
    parser.add_argument("--replace", action="store_true", help="replace existing files")
    parser.add_argument("--format", choices=_FORMATS, default="svg", help="kind of file (default: svg)")
    parser.add_argument(
        "--width", choices=WIDTHS, help="width for a paper: one column (3.5 in) or two (7.2 in), without a title"
    )
    parser.add_argument("--only", action="append", default=[], metavar="RUN", help="draw only this run; may be repeated")
    learning = parser.add_argument_group("loss and error")
    learning.add_argument(
        "--against",
        action="append",
        choices=AXES,
        help="horizontal axis of a panel, instead of updates and seconds; may be repeated",
    )
    timeline = parser.add_argument_group("timeline")
    timeline.add_argument(
        "--begin",
        type=float,
        metavar="SECONDS",
        help="start, in virtual time (default: the start of the run, or just before the first fault)",
    )
    timeline.add_argument(
        "--end", type=float, metavar="SECONDS", help="end, in virtual time (default: about six gradients later)"
    )
    timeline.add_argument(
        "--workers",
        type=_parse_workers,
        metavar="LIST",
        help="workers to show, such as 0-7,12 (default: up to 16, evenly spaced)",
    )


def run(options: argparse.Namespace) -> int:
    """Draw all figures, then write them. If one cannot be drawn, none is written.

    Args:
        options: options of the command line.
    """
    from fred.base.staging import convert_errors
    from fred.results.folder import load_result

    axes = tuple(dict.fromkeys(options.against or View().against))
    view = View(width=options.width, against=axes, begin=options.begin, end=options.end, workers=options.workers)
    pictures = _pictures(load_result(options.folder), options.only, view)
    names = list(dict.fromkeys(options.figures or pictures))
    _check(names, list(pictures), options)
    files = _files(names, options)
    drawings = {file: pictures[name]() for name, file in files.items()}
    with convert_errors(options.out):
        options.out.mkdir(parents=True, exist_ok=True)
        for file, picture in drawings.items():
            picture.save(file)
            print(file)
    return 0


def _pictures(result: "Result", only: list[str], view: View) -> "dict[str, Callable[[], Picture]]":
    """Return the figures that can be drawn of these runs; each run keeps its colour from the whole result."""
    from fred.running.units import SelectedRuns
    from fred.views.pictures import coloured

    names = SelectedRuns(result.scenario, only).names
    selection = replace(result, outcomes=[outcome for outcome in result.outcomes if outcome.name in names])
    return selection.pictures(coloured(result, view))


def _check(names: list[str], available: list[str], options: argparse.Namespace) -> None:
    """Raise FredError for figures that do not exist, and for options that apply to none of the figures."""
    for name in names:
        if name not in available:
            hint = f"there are {', '.join(available)}" if available else "there are none"
            raise FredError(f"these runs have no figure `{name}`{registry.nearest(name, available)}; {hint}")
    for option in ("begin", "end", "workers"):
        if getattr(options, option) is not None and "timeline" not in names:
            raise FredError(f"--{option} is for the timeline, which is not among these figures: {', '.join(names)}")
    if options.against and not set(names) & set(LEARNING):
        raise FredError(f"--against is for {', '.join(LEARNING)}, none of which is among these figures: {', '.join(names)}")


def _files(names: list[str], options: argparse.Namespace) -> dict[str, Path]:
    """Return the output file of each figure. Raises FredError if other data would be overwritten."""
    if options.out.suffix[1:].lower() in _FORMATS and not options.out.is_dir():
        raise FredError(
            f"--out {options.out}: expected a folder; its files are named after the figures, and --format sets their format"
        )
    if options.out.resolve() == (options.folder / FIGURES).resolve():
        raise FredError(f"{options.out} is part of the result, which `fred verify` checks; choose another folder with --out")
    files = {name: options.out / f"{name}.{options.format}" for name in names}
    existing = [file for file in files.values() if file.exists()]
    if existing and not options.replace:
        raise FredError(f"{existing[0]} already exists; choose another folder with --out, or replace it with --replace")
    for file in files.values():  # --replace allows any file but those of a result
        check_free(file, lambda _: True)
    return files


def _parse_workers(text: str) -> tuple[int, ...]:
    """Return the numbers in a list such as `0-3,12`, each once."""
    numbers = list[int]()
    for part in text.split(","):
        bounds = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part.strip(), re.ASCII)
        first, last = (int(bounds[1]), int(bounds[2] or bounds[1])) if bounds else (1, 0)
        if first > last:
            raise argparse.ArgumentTypeError(f"found {text!r}; expected numbers of workers, such as 0-7,12")
        numbers += range(first, last + 1)
    return tuple(dict.fromkeys(numbers))
