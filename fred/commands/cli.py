"""The command line. Nothing heavy is imported before it is needed."""

import argparse
import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from fred import __version__
from fred.components import registry
from fred.errors import FredError
from fred.process import interruption
from fred.process.cores import cores
from fred.running import companions

if TYPE_CHECKING:
    from fred.results.result import Result

_CANNOT = 2  # exit code of everything that a user can mend
_ELSEWHERE = {  # command -> where it is, imported when it is asked for; its summary
    "completion": ("fred.commands.completion", "print what makes a shell complete FRED's commands, options and scenarios"),
    "cutoffs": ("fred.commands.cutoffs", "what every rule for the cutoff would make of a recorded trace"),
    "diagnose": ("fred.commands.diagnose", "say what a cluster loses to slow workers, and what helps, from a recorded trace"),
    "draw": ("fred.commands.draw", "draw a result's figures anew: as PDF, as wide as a column, another part of the timeline"),
    "export": ("fred.commands.export", "write a run as a trace that https://ui.perfetto.dev opens: a timeline to zoom"),
    "fit": ("fred.commands.fit", "say what a trace of run-times looks like, and which cluster behaves like it"),
    "list": ("fred.commands.listing", "list what a scenario can name, or say all about one of them"),
    "new": ("fred.commands.new", "begin a scenario of your own: a file with comments, or a copy of one that comes with FRED"),
    "plan": ("fred.commands.plan", "which protocol reaches a target first on a cluster; how many of N + b workers to wait for"),
    "report": ("fred.commands.report", "write a result folder's page, to look at in a browser"),
    "scenarios": ("fred.commands.scenarios", "list the scenarios that come with FRED, and what to look for; or print one"),
    "train-cutoff": ("fred.commands.train_cutoff", "train a model of a trace's run-times, by which cutoffs are chosen"),
}
_FIRST_STEPS = """\
first steps:
  fred quickstart           six algorithms on a cluster with stragglers; a table, and figures in results/quickstart/
  fred scenarios            what else comes with FRED; `fred run systems/ssp` runs one
  fred new mine.yaml        a scenario of your own, with comments; then `fred run mine.yaml`
"""
_UNREAD = 141  # as of any program whose reader is gone
_EXIT_CODES = (
    "Exit codes: 0 done; 2 something is wrong that you can mend; 130 interrupted by Ctrl-C (SIGINT), 143 by `kill` (SIGTERM), "
    "with a word on what is kept, from which the same command goes on."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments, do what they say, return the exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if "_ARGCOMPLETE" in os.environ:  # a shell asks, not a person
        from fred.commands.completion import answer

        return answer(_parser)
    try:
        parser = _parser(arguments)
        if not arguments:
            parser.print_help(sys.stderr)
            return _CANNOT
        options, more = parser.parse_known_args(arguments)
        if more:
            options.asked.refuse(more)
        with interruption.heeded(), companions.ended():
            code = int(options.command(options))
            sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever reads this has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _UNREAD
    except OSError as error:
        print(f"fred: cannot write: {error.strerror or error}", file=sys.stderr)
        return _CANNOT
    except FredError as error:
        print("\n".join((f"fred: {error}", *getattr(error, "__notes__", ()), *_remedy(error, arguments))), file=sys.stderr)
        return _CANNOT
    except MemoryError as error:
        print(f"fred: not enough memory: {error}", file=sys.stderr)
        return _CANNOT
    except KeyboardInterrupt as error:
        code = interruption.exit_code()
        print(f"\nfred: {'; '.join(('interrupted', *interruption.said_by(error)))}", file=sys.stderr)
        return code


def _remedy(error: FredError, arguments: Sequence[str]) -> list[str]:
    """Return the command that would work, where the error knows the options that it needs."""
    fix: Sequence[str] = getattr(error, "fix", ())
    if not fix:
        return []
    from fred.commands.suggestion import command

    return [f"fred: {'this works' if getattr(error, 'works', False) else 'next'}: {command(arguments, fix)}"]


class _Parser(argparse.ArgumentParser):
    """One whose refusals are a line that says what to do, as FRED's own are."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.set_defaults(asked=self)  # of a command its own

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and where to read more."""
        self.exit(_CANNOT, f"{self.prog}: {message}; see `{self.prog} --help`\n")

    def refuse(self, words: Sequence[str]) -> NoReturn:
        """Say what is not known here, and what may be meant."""
        hint = registry.nearest(words[0].split("=")[0], self._option_string_actions).removesuffix("?")
        self.error(f"unrecognized arguments: {' '.join(words)}{hint}")


def _refuse(word: str, known: Iterable[str]) -> None:
    """Refuse what is no command, with what may be meant. Raises FredError."""
    from fred.specification import shipped

    if word.endswith((".yaml", ".yml")) or word in shipped.names():
        raise FredError(f"there is no command `{word}`; did you mean `fred run {word}`?")
    raise FredError(f"there is no command `{word}`{registry.nearest(word, known)}; `fred --help` lists them")


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="fred",
        description="Deterministic simulator of distributed SGD.",
        epilog=_FIRST_STEPS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fred {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    _add_run(commands)
    verify = commands.add_parser("verify", help="run a result's manifest again and compare bit by bit")
    verify.set_defaults(command=_verify)
    verify.add_argument("folder", type=Path, help="result folder")
    registry.add_import_option(verify, "the scenario")

    show = commands.add_parser("show", help="print a result folder's table again")
    show.set_defaults(command=_show)
    show.add_argument("folder", type=Path, help="result folder")
    show.add_argument("--latex", action="store_true", help="for a paper: tabulars, with booktabs' rules")
    registry.add_import_option(show, "the result")

    compare = commands.add_parser("compare", help="put result folders side by side: numbers, digests, figures")
    compare.set_defaults(command=_compare)
    compare.add_argument("folders", type=Path, nargs="+", help="two result folders or more")
    compare.add_argument("--out", type=Path, metavar="DIR", help="folder for a table and figures of all of them")
    registry.add_import_option(compare, "the results")

    _add_elsewhere(commands, arguments[:1])

    schema = commands.add_parser("schema", help="print the JSON Schema of scenario files")
    schema.set_defaults(command=_schema)
    if arguments and not arguments[0].startswith("-") and arguments[0] not in commands.choices:
        _refuse(arguments[0], commands.choices)
    return parser


def _add_elsewhere(commands: "argparse._SubParsersAction[_Parser]", asked: Sequence[str]) -> None:
    for name, (module, summary) in _ELSEWHERE.items():
        command = commands.add_parser(name, help=summary, description=summary)
        if name in asked:
            own = importlib.import_module(module)
            own.add_options(command)
            command.set_defaults(command=own.run)


def _add_run(commands: "argparse._SubParsersAction[_Parser]") -> None:
    run = commands.add_parser("run", help="run a scenario and write its results", epilog=_EXIT_CODES)
    run.add_argument("scenario", type=Path, nargs="?", help="YAML file, or the name of one that `fred scenarios` lists")
    _add_run_options(run, jobs=1)
    example = "run FRED's main example: `fred run quickstart --jobs 2`, where there are two cores"
    quickstart = commands.add_parser("quickstart", help=example, epilog=_EXIT_CODES)
    quickstart.set_defaults(scenario=Path("quickstart"))
    _add_run_options(quickstart, jobs=min(2, cores()))


def _add_run_options(run: argparse.ArgumentParser, jobs: int) -> None:
    run.set_defaults(command=_run, usual_jobs=jobs)
    run.add_argument("--set", action="append", default=[], metavar="KEY.PATH=VALUE", help="override a setting (in every run)")
    run.add_argument("--seed", type=int, action="append", metavar="N", help="run with this seed only; may be repeated")
    run.add_argument("--only", action="append", default=[], metavar="RUN", help="run only this one; may be repeated")
    run.add_argument("--out", type=Path, metavar="DIR", help="result folder (default: results/<scenario>)")
    run.add_argument("--inline", action="store_true", help="compute while simulating instead of replaying afterwards")
    run.add_argument("--jobs", type=_jobs, metavar="N", help="so many runs at a time, or `all` that there are cores for")
    run.add_argument("--dask", default="", metavar="ADDRESS", help="run on the cluster of the Dask scheduler at this address")
    run.add_argument("--no-report", dest="report", action="store_false", help="without the page to look at, report.html")
    run.add_argument("--fresh", action="store_true", help="do everything anew, also what is there or compiled from before")
    registry.add_import_option(run, "the scenario")


def _jobs(text: str) -> int:
    if text == "all":
        return cores()
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}; expected a number of processes, or `all`")
    return int(text)


def _run(options: argparse.Namespace) -> int:
    from fred.files import staging

    if options.scenario is None:
        raise FredError(
            "expected a scenario: a YAML file, or the name of one that comes with FRED, as in `fred run quickstart`; "
            "`fred scenarios` lists these, `fred new FILE` begins one of your own"
        )
    only = tuple(dict.fromkeys(options.only))
    out = options.out or Path("results") / ".".join((options.scenario.stem, *only))
    with interruption.saying(lambda: staging.left(out)):
        outcome = _into(out, only, options)
    with interruption.saying(lambda: f"the result is complete: {out}"):
        from fred.commands import printing

        companions.end()  # here, where an interrupt hears that all is done
        printing.print_summary(outcome, out)
        sys.stdout.flush()
    return 0


def _into(out: Path, only: tuple[str, ...], options: argparse.Namespace) -> "Result":
    from fred.files import staging

    jobs = options.jobs or (1 if options.dask else options.usual_jobs)
    all_to_do = not options.imports and not options.dask and (options.fresh or staging.is_free(out))
    one = len(only) == len(options.seed or ()) == 1  # perhaps many, if it is swept
    if all_to_do and jobs == 2 and not one:  # what more processes could be at, only the scenario says
        companions.begin(1)
    from fred.process.progress import of_runs
    from fred.running.units import doubts_of, number_at_first, number_of_units
    from fred.specification.loading import load
    from fred.specification.shipped import located

    settings = options.set + ([f"seeds={options.seed}"] if options.seed else [])
    file = located(options.scenario)
    scenario = load(file, settings, options.imports)
    for doubt in doubts_of(scenario, only):
        print(f"fred: {doubt}", file=sys.stderr)
    if all_to_do:
        companions.begin(min(jobs, number_at_first(scenario, only)) - 1)
    from fred.results import experiment  # which brings jax, and takes as long as they do to start

    with of_runs(number_of_units(scenario, only)) as progress:
        return experiment.run(
            scenario, only, options.inline, progress, out, jobs, options.dask, options.fresh, file, options.report
        )


def _verify(options: argparse.Namespace) -> int:
    from fred.process.progress import of_runs
    from fred.results.verify import verify

    with of_runs() as progress:
        verdict, message = verify(options.folder, options.imports, progress)
    print(message, file=sys.stderr if verdict else sys.stdout)
    return verdict


def _show(options: argparse.Namespace) -> int:
    from fred.commands import printing
    from fred.results.folder import load_result

    registry.allow_import(options.imports)
    result = load_result(options.folder)
    if options.latex:
        from fred.views.latex import tabular

        print("\n\n".join(map(tabular, printing.tables(result, options.folder))))
    else:
        printing.print_summary(result, options.folder)
    return 0


def _compare(options: argparse.Namespace) -> int:
    from fred.commands import printing
    from fred.results.compare import Compared

    registry.allow_import(options.imports)
    compared = Compared(options.folders)
    if options.out:
        printing.save_comparison(compared, options.out)
    printing.print_comparison(compared)
    return 0


def _schema(options: argparse.Namespace) -> int:
    import json

    from fred.specification.schema import scenario_schema

    print(json.dumps(scenario_schema(), indent=2))
    return 0
