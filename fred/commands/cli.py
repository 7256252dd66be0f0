"""The command line. Heavy modules are imported only when they are needed."""

import argparse
import importlib
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from fred import __version__
from fred.base import process
from fred.base.errors import FredError, lacks_memory, warnings_in_one_line
from fred.commands import command_options, run
from fred.components import registry
from fred.running import pool

_USER_ERROR = 2  # exit code of every error that a user can fix
_LAZY_COMMANDS = {  # command -> (its module, imported only when the command is used; its summary)
    "completion": (
        "fred.commands.completion",
        "print a script with which a shell completes FRED's commands, options and scenarios",
    ),
    "cutoffs": ("fred.commands.cutoffs", "compare cutoff rules on a recorded trace: the throughput of each"),
    "diagnose": (
        "fred.commands.diagnose",
        "report from a recorded trace how much a cluster loses to slow workers, and what helps",
    ),
    "draw": ("fred.commands.draw", "redraw a result's figures: as PDF, one column wide, or for another part of the timeline"),
    "export": ("fred.commands.export", "write a run as a trace for https://ui.perfetto.dev: a timeline to zoom and search"),
    "fit": ("fred.commands.fit", "describe the compute times of a trace, and fit a cluster that behaves like it"),
    "fit-network": ("fred.commands.fit_network", "fit latency, bandwidth and allreduces to measured times of communication"),
    "list": ("fred.commands.listing", "list the components that a scenario can name, or describe one of them"),
    "new": ("fred.commands.new", "start a scenario of your own: a commented template, or a copy of one that comes with FRED"),
    "plan": (
        "fred.commands.plan",
        "find the protocol that reaches a target first on a cluster, or how many of N + b workers to wait for",
    ),
    "record": ("fred.commands.print_recorder", "print a file that records step times without waits in a training loop"),
    "report": ("fred.commands.report", "write an HTML report of a result folder"),
    "scenarios": (
        "fred.commands.scenarios",
        "list the scenarios that come with FRED and what to look for in each, or print one",
    ),
    "train-cutoff": ("fred.commands.train_cutoff", "train a model of a trace's compute times that chooses cutoffs"),
}
_FIRST_STEPS = """\
first steps:
  fred quickstart       run six algorithms on a cluster with stragglers
  fred scenarios        list other scenarios; `fred run systems/ssp` runs one
  fred new mine.yaml    write a scenario to edit; `fred run mine.yaml` runs it
"""
_CLOSED_PIPE = 141  # the usual exit code for a closed pipe
_VIEWERS = ("compare", "draw", "export", "report", "show")  # they run no code of a user


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments, run the command, and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if "_ARGCOMPLETE" in os.environ:  # a shell asks, not a person
        from fred.commands.completion import answer

        return answer(_parser)
    try:
        parser = _parser(arguments)
        if not arguments:
            parser.print_help(sys.stderr)
            return _USER_ERROR
        options, unknown = parser.parse_known_args(arguments)
        if unknown:
            options.parser.refuse(unknown)
        with process.raise_interrupts(), pool.ended(), warnings_in_one_line(), _foreign_content_refused(arguments):
            code = int(options.command(options))
            sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of the output, such as `head`, has closed the pipe; Python still flushes at its exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _CLOSED_PIPE
    except UnicodeEncodeError as error:
        print(f"fred: the output has characters that {error.encoding} lacks: set PYTHONIOENCODING=utf-8", file=sys.stderr)
        return _USER_ERROR
    except OSError as error:
        print(f"fred: cannot write: {error.strerror or error}", file=sys.stderr)
        return _USER_ERROR
    except FredError as error:
        print("\n".join((f"fred: {error}", *getattr(error, "__notes__", ()), *_remedy(error, arguments))), file=sys.stderr)
        return _USER_ERROR
    except (MemoryError, ImportError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        print(f"fred: not enough memory: {error}", file=sys.stderr)
        return _USER_ERROR
    except KeyboardInterrupt as error:
        code = process.exit_code()
        print(f"\nfred: {'; '.join(('interrupted', *process.notes_of(error)))}", file=sys.stderr)
        return code


@contextmanager
def _foreign_content_refused(arguments: Sequence[str]) -> Iterator[None]:
    """Raise FredError, in a `with` block, if a command that only shows results fails because of their content.

    Digests tell whether a file has changed, not who signed it. So a file with the right digest can have any content.
    """
    try:
        yield
    except UnicodeEncodeError:  # of the output: `main` reports it
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        if arguments[0] not in _VIEWERS or sys.flags.dev_mode:
            raise
        raise FredError(
            f"`fred {shlex.join(arguments)}` found other content than `fred run` writes ({type(error).__name__}: {error}): run "
            "the scenario again with `--fresh`; if the error remains, `python -X dev -m fred` shows its place in FRED"
        ) from error


def _remedy(error: FredError, arguments: Sequence[str]) -> list[str]:
    """Return a line with the corrected command if the error carries the options that fix it; else no line."""
    fix: Sequence[str] = getattr(error, "fix", ())
    if not fix:
        return []
    from fred.commands.completion import command

    return [f"fred: {'this works' if getattr(error, 'works', False) else 'next'}: {command(arguments, fix)}"]


class _Parser(argparse.ArgumentParser):
    """An argument parser that reports each error in one line, with a remedy."""

    def __init__(self, **options: Any):
        super().__init__(allow_abbrev=False, **options)
        self.set_defaults(parser=self)  # each command sets its own parser

    def error(self, message: str) -> NoReturn:
        """Exit with the message, and the help to read."""
        self.exit(_USER_ERROR, f"{self.prog}: {message}; see `{self.prog} --help`\n")

    def refuse(self, words: Sequence[str]) -> NoReturn:
        """Exit with a message that names the unknown arguments and suggests the nearest option."""
        hint = registry.nearest(words[0].split("=")[0], self._option_string_actions).removesuffix("?")
        self.error(f"unrecognized arguments: {' '.join(words)}{hint}")


def _refuse(word: str, commands: Iterable[str]) -> None:
    """Raise FredError for an unknown command, with the nearest command or scenario as a suggestion."""
    from fred.specification import shipped

    matches = [name for name in shipped.names() if word in (name, name.rpartition("/")[2])]
    if matches or word.endswith((".yaml", ".yml")):
        raise FredError(f"there is no command `{word}`; did you mean `fred run {matches[0] if matches else word}`?")
    raise FredError(f"there is no command `{word}`{registry.nearest(word, commands)}; `fred --help` lists them")


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of a command line; it has the options of a lazy command only if the first argument names that."""
    parser = _Parser(
        prog="fred",
        description="Deterministic simulator of distributed SGD.",
        epilog=_FIRST_STEPS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fred {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    example = "run FRED's main example: the same as `fred run quickstart`, with two processes if there are two cores"
    run.add_options(_add_command(commands, "run", "run a scenario and write its results"))
    run.add_options(_add_command(commands, "quickstart", example), example=True)
    verify = _add_command(commands, "verify", "run a result's manifest again and compare it bit by bit", command=_verify)
    verify.add_argument("folder", type=Path, help="result folder")
    command_options.add_quiet(verify, writes=False)
    registry.add_import_option(verify, "the scenario")

    show = _add_command(commands, "show", "print a result folder's table again", command=_show)
    show.add_argument("folder", type=Path, help="result folder")
    show.add_argument("--latex", action="store_true", help="print LaTeX tabulars for a paper, with the rules of booktabs")

    compare = _add_command(commands, "compare", "compare result folders: numbers, digests, figures", command=_compare)
    compare.add_argument("folders", type=Path, nargs="+", help="two or more result folders")
    compare.add_argument("-o", "--out", type=Path, metavar="DIR", help="folder for a table and figures of all results together")
    command_options.add_quiet(compare)

    _add_lazy_commands(commands, arguments[:1])

    _add_command(commands, "schema", "print the JSON Schema of scenario files", command=_schema)
    if arguments and not arguments[0].startswith("-") and arguments[0] not in commands.choices:
        _refuse(arguments[0], commands.choices)
    return parser


def _add_command(commands: "argparse._SubParsersAction[_Parser]", name: str, summary: str, **defaults: Any) -> _Parser:
    """Return the parser of a new command, which sets these defaults."""
    command = commands.add_parser(name, help=summary, description=summary)
    command.set_defaults(**defaults)
    return command


def _add_lazy_commands(commands: "argparse._SubParsersAction[_Parser]", requested: Sequence[str]) -> None:
    """Add all commands of other modules, and import those that are requested."""
    for name, (module, summary) in _LAZY_COMMANDS.items():
        command = _add_command(commands, name, summary)
        if name in requested:
            implementation = importlib.import_module(module)
            implementation.add_options(command)
            command.set_defaults(command=implementation.run)


def _verify(options: argparse.Namespace) -> int:
    from fred.base.progress import of_runs
    from fred.results.verify import verify

    with of_runs(quiet=options.quiet) as progress:
        verdict, message = verify(options.folder, options.imports, progress)
    print(message, file=sys.stderr if verdict else sys.stdout)
    return verdict


def _show(options: argparse.Namespace) -> int:
    from fred.commands import printing
    from fred.results.folder import load_result

    result = load_result(options.folder)
    if options.latex:
        from fred.views.table import tabular

        print("\n\n".join(map(tabular, printing.tables(result, options.folder))))
    else:
        printing.print_summary(result, options.folder)
    return 0


def _compare(options: argparse.Namespace) -> int:
    from fred.commands import printing
    from fred.results.compare import compare

    comparison = compare(*options.folders)
    if options.out:
        printing.save_comparison(comparison, options.out)
    if options.out and options.quiet:
        print(options.out)
    else:
        printing.print_comparison(comparison)
    return 0


def _schema(options: argparse.Namespace) -> int:
    import json

    from fred.specification.schema import scenario_schema

    print(json.dumps(scenario_schema(), indent=2))
    return 0
