"""The command line: run, verify, cutoffs, fit, train-cutoff, list, schema. Nothing heavy is imported before it is needed."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fred import __version__, registry
from fred.errors import FredError

_CANNOT = 2  # exit code of everything that a user can mend
_WITH_A_TRACE = {  # command -> where it is, imported when it is asked for
    "cutoffs": ("fred.prediction.command", "what every rule for the cutoff would make of a recorded trace"),
    "fit": ("fred.fitting.command", "say what a trace of run-times looks like, and which cluster behaves like it"),
    "train-cutoff": ("fred.prediction.deep.command", "train a model of a trace's run-times, by which cutoffs are chosen"),
}
_UNREAD = 141  # as of any program whose reader is gone


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments, do what they say, return the exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser(arguments).parse_args(arguments)
    try:
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
        print(f"fred: {error}", file=sys.stderr)
        return _CANNOT
    except MemoryError as error:
        print(f"fred: not enough memory: {error}", file=sys.stderr)
        return _CANNOT
    except KeyboardInterrupt:
        print("\nfred: interrupted; nothing was written", file=sys.stderr)
        return 130


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fred", description="Deterministic simulator of distributed SGD.")
    parser.add_argument("--version", action="version", version=f"fred {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run a scenario file and write its results")
    run.set_defaults(command=_run)
    run.add_argument("scenario", type=Path, help="YAML file")
    run.add_argument("--set", action="append", default=[], metavar="KEY.PATH=VALUE", help="override a setting (in every run)")
    run.add_argument("--seed", type=int, action="append", metavar="N", help="run with this seed only; may be repeated")
    run.add_argument("--only", action="append", default=[], metavar="RUN", help="run only this one; may be repeated")
    run.add_argument("--out", type=Path, metavar="DIR", help="result folder (default: results/<scenario>)")
    run.add_argument("--inline", action="store_true", help="compute while simulating instead of replaying afterwards")
    registry.add_import_option(run, "the scenario")

    verify = commands.add_parser("verify", help="run a result's manifest again and compare bit by bit")
    verify.set_defaults(command=_verify)
    verify.add_argument("folder", type=Path, help="result folder")
    registry.add_import_option(verify, "the scenario")

    for name, (module, summary) in _WITH_A_TRACE.items():
        command = commands.add_parser(name, help=summary, description=summary)
        if name in arguments[:1]:
            own = importlib.import_module(module)
            own.add_options(command)
            command.set_defaults(command=own.run)

    known = commands.add_parser("list", help="list what a scenario can name")
    known.set_defaults(command=_list)
    known.add_argument("kind", nargs="?", choices=sorted(registry.REGISTRY), help="one kind only")

    schema = commands.add_parser("schema", help="print the JSON Schema of scenario files")
    schema.set_defaults(command=_schema)
    return parser


def _run(options: argparse.Namespace) -> int:
    from fred.results import folder, report, result
    from fred.scenario.loading import load

    settings = options.set + ([f"seeds={options.seed}"] if options.seed else [])
    scenario = load(options.scenario, settings, options.imports)
    only = tuple(dict.fromkeys(options.only))
    out = options.out or Path("results") / ".".join((options.scenario.stem, *only))
    folder.check_free(out)
    with report.progress() as progress:
        outcome = result.run(scenario, only, options.inline, progress)
    folder.save(outcome, out, options.inline)
    report.print_summary(outcome, out)
    return 0


def _verify(options: argparse.Namespace) -> int:
    from fred.results import report
    from fred.results.verify import verify

    with report.progress() as progress:
        verdict, message = verify(options.folder, options.imports, progress)
    print(message, file=sys.stderr if verdict else sys.stdout)
    return verdict


def _list(options: argparse.Namespace) -> int:
    for kind in [options.kind] if options.kind else registry.REGISTRY:
        print(f"{kind}:")
        for name, target in registry.REGISTRY[kind].items():
            print(f"  {name:<26}{registry.summary(target)}")
    return 0


def _schema(options: argparse.Namespace) -> int:
    import json

    from fred.scenario.schema import scenario_schema

    print(json.dumps(scenario_schema(), indent=2))
    return 0
