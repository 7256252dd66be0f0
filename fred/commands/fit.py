"""`fred fit`: name the slow workers of a trace, and fit a cluster that behaves like it."""

import argparse
from pathlib import Path
from typing import Any

from fred.base.progress import bars
from fred.commands import command_options, trace_options
from fred.fitting import fit_report
from fred.fitting.fitted import fit
from fred.traces.reading import EXAMPLE


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the trace and the output."""
    trace_options.add_options(parser)
    parser.add_argument("-o", "--out", type=Path, metavar="DIR", help="folder for cluster.yaml, fit.json and a figure")
    parser.add_argument("--json", action="store_true", help="print everything as JSON instead of tables")
    command_options.add_quiet(parser)


def run(options: argparse.Namespace) -> int:
    """Read the trace, fit a cluster, then write and print the findings. Raises FredError."""
    if options.out:
        fit_report.check_free(options.out)
    trace = trace_options.read_trace(options)
    with bars(quiet=options.quiet) as show:
        fitted = fit(trace, _latency_options(options), lambda share: show("fitting", share))
    if options.out:
        fit_report.save(fitted, options.out)
    if options.json:
        print(fit_report.as_json(fitted))
    elif options.out and options.quiet:
        print(options.out)
    else:
        fit_report.print_report(fitted)
    return 0


def _latency_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options with which a cluster file in any folder reads this trace: its paths are absolute."""
    file, *further_files = (str(path) if str(path) == EXAMPLE else str(path.resolve()) for path in options.trace)
    return {"file": file, **({"more": further_files} if further_files else {}), **trace_options.reading_options(options)}
