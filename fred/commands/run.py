"""`fred run` and `fred quickstart`. Heavy modules are imported only when they are needed."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fred.base import process
from fred.base.errors import FredError
from fred.base.process import cores
from fred.commands import command_options
from fred.components import registry
from fred.running import pool

if TYPE_CHECKING:
    from fred.results.result import Result

_EXIT_CODES = (
    "Exit codes: 0 success; 2 an error that you can fix; 130 interrupted by Ctrl-C (SIGINT), 143 by `kill` (SIGTERM). "
    "After an interrupt FRED reports which finished runs are stored; the same command resumes from them."
)


def add_options(parser: argparse.ArgumentParser, example: bool = False) -> None:
    """Add the options of the command.

    Args:
        parser: parser of the command.
        example: True for `fred quickstart`, which runs FRED's main example, with two processes if there are two cores.
    """
    if example:
        parser.set_defaults(scenario=Path("quickstart"))
    else:
        parser.add_argument("scenario", type=Path, nargs="?", help="YAML file, or the name of one that `fred scenarios` lists")
    parser.set_defaults(command=run, usual_jobs=min(2, cores()) if example else 1)
    parser.epilog = _EXIT_CODES
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY.PATH=VALUE", help="override a setting (in every run)"
    )
    parser.add_argument("--seed", type=int, action="append", metavar="N", help="run only this seed; may be repeated")
    parser.add_argument(
        "--only", action="append", default=[], metavar="RUN", help="run only the run of this name; may be repeated"
    )
    parser.add_argument("-o", "--out", type=Path, metavar="DIR", help="result folder (default: results/<scenario>)")
    parser.add_argument(
        "--inline",
        action="store_true",
        help="compute gradients during the simulation instead of replaying the schedule afterwards",
    )
    parser.add_argument("--jobs", type=command_options.parse_jobs, metavar="N", help="number of processes; `all`: one per core")
    parser.add_argument(
        "--explain", action="store_true", help="run nothing: print whether several processes would share each run, and how fast"
    )
    parser.add_argument(
        "--dask", default="", metavar="ADDRESS", help="run on the Dask cluster whose scheduler has this address"
    )
    parser.add_argument("--no-report", dest="report", action="store_false", help="do not write the HTML report, report.html")
    parser.add_argument(
        "--fresh", action="store_true", help="run everything again: use neither earlier results nor the compilation cache"
    )
    command_options.add_quiet(parser)
    registry.add_import_option(parser, "the scenario")


def run(options: argparse.Namespace) -> int:
    """Run a scenario, write its results, and print a summary; with `--explain`, only tell how processes would share the runs.

    Args:
        options: options of the command line.
    """
    from fred.base import staging

    if options.scenario is None:
        raise FredError(
            "expected a scenario: a YAML file, or the name of one that comes with FRED, as in `fred run quickstart`; "
            "`fred scenarios` lists these, `fred new FILE` starts one of your own"
        )
    only = tuple(dict.fromkeys(options.only))
    if options.explain:
        from fred.commands.explain import explain

        return explain(options.scenario, _settings(options), only, options.imports, options.quiet)
    out = options.out or Path("results") / ".".join((options.scenario.stem, *only))
    with process.add_note(lambda: staging.describe_remains(out)):
        outcome = _run_scenario(out, only, options)
    with process.add_note(lambda: f"the result is complete: {out}"):
        from fred.commands import printing

        pool.end()  # inside this `with`, so that an interrupt reports the complete result
        printing.print_summary(outcome, out, options.quiet)
        sys.stdout.flush()
    return 0


def _settings(options: argparse.Namespace) -> list[str]:
    """Return the settings to override; with --seed, these seeds alone, not as many as `until` asks for."""
    return options.set + ([f"seeds={options.seed}", "until=null"] if options.seed else [])


def _run_scenario(out: Path, only: tuple[str, ...], options: argparse.Namespace) -> "Result":
    from fred.base import staging

    jobs = options.jobs or (1 if options.dask else options.usual_jobs)
    may_start_early = not options.imports and not options.dask and (options.fresh or staging.is_vacant(out))
    single_run = len(only) == len(options.seed or ()) == 1  # if it is swept, its further units start a process below
    # A process takes about as long to start as the imports below, so both happen at the same time. With two jobs the second
    # process starts even before the scenario is read, which tells how many are of use. With stored results none starts early:
    # there may be nothing to compute. Nor with modules of the user's: these may change the environment that processes inherit.
    if may_start_early and jobs == 2 and not single_run:
        pool.begin(1)
    from fred.base.progress import of_runs
    from fred.running.units import SelectedRuns
    from fred.specification.effects import unused_options
    from fred.specification.loading import load
    from fred.specification.shipped import located

    settings = _settings(options)
    file = located(options.scenario)
    scenario = load(file, settings, options.imports)
    selected = SelectedRuns(scenario, only)
    if may_start_early:
        pool.begin(min(jobs, selected.count) - 1)  # in all, with the one above
    from fred.results import experiment  # takes about as long as the processes take to start

    experiment.check_place(out, file)
    for line in (*selected.doubts, *unused_options(scenario.runs), *experiment.describe_replacement(scenario, out)):
        print(f"fred: {line}", file=sys.stderr)
    with of_runs(selected.count, options.quiet) as progress:
        run_options = {"fresh": options.fresh, "inline": options.inline, "file": file, "report": options.report}
        return experiment.run(scenario, only, out=out, jobs=jobs, dask=options.dask, progress=progress, **run_options)
