"""`fred fit-network`: fit a network to measured times of communication."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fred.base import places
from fred.commands import command_options
from fred.fitting.communication import FittedNetwork, fit_network
from fred.fitting.measurement import Measurement
from fred.fitting.measurements import FORMATS, MeasuredFile, read_file
from fred.specification.text import written
from fred.views.table import Cell, Table, show, terminal

_MARK = "fitted by fred fit-network"
_NEAR = 0.15


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the files of measurements, what the files do not say, and the output."""
    parser.description = (
        "Fit latency, bandwidth and the algorithm of allreduces to times of operations of NCCL, Gloo or MPI, and print "
        "the `network:` block of a scenario, with its errors."
    )
    tools = ", ".join(form.tool for form in FORMATS)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help=f"one or more files: tables, or output of {tools}")
    parser.add_argument(
        "--columns",
        metavar="OURS=THEIRS,...",
        help="columns of a table; OURS is bytes, megabytes, microseconds, milliseconds, nodes, ...",
    )
    parser.add_argument(
        "--values",
        metavar="NAME=VALUE,...",
        help="what the files do not say; NAME is nodes, operation, library, delay_ms or gbit_per_s",
    )
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="YAML file for the `network:` block")
    command_options.add_quiet(parser)


def run(options: argparse.Namespace) -> int:
    """Read the measurements, fit the network, then write and print it. Raises FredError."""
    if options.out:
        places.check_free(options.out, lambda beginning: beginning.startswith(f"# {_MARK}".encode()))
    columns = (
        command_options.parse_pairs("--columns", options.columns, "bytes=msg,milliseconds=took") if options.columns else {}
    )
    values = command_options.parse_pairs("--values", options.values, "nodes=8,operation=allreduce") if options.values else {}
    files = [read_file(path, columns, values) for path in options.files]
    measurements = [measurement for file in files for measurement in file.measurements]
    fitted = fit_network(measurements)
    block = {"network": fitted.options}
    if options.out:
        names = ", ".join(str(path) for path in options.files)
        shared = "".join(f"; {sentence}" for sentence in _sentences_of_ranks(measurements)[:1])
        places.write(options.out, written(block, f"{_MARK}, from {names}{shared}").encode())
    if options.out and options.quiet:
        print(options.out)
    else:
        _print(fitted, files)
        print(written(block), end="")
    return 0


def _print(fitted: FittedNetwork, files: Sequence[MeasuredFile]) -> None:
    """Print a summary of each file, and how far the predictions are off."""
    console = terminal()
    measurements = [measurement for file in files for measurement in file.measurements]
    for sentence in [*(file.sentence for file in files), *_sentences(fitted), *_sentences_of_ranks(measurements)]:
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)
    rows = [_error_row(name, errors) for name, errors in fitted.errors.items()]
    show(Table(["operation", "median error", "within 15 %", "worst"], rows, "times predicted by the network below"), console)
    if fitted.algorithm_errors:
        rows = [_error_row(name, errors, strong=name == fitted.collective) for name, errors in fitted.algorithm_errors.items()]
        caption = "each allreduce is predicted by a fit to other measurements"
        show(Table(["allreduce", "median error", "within 15 %", "worst"], rows, "algorithms of allreduces", caption), console)


def _sentences(fitted: FittedNetwork) -> list[str]:
    errors = np.abs(np.concatenate(list(fitted.errors.values())))
    if len(errors) == 1:
        return ["The bandwidth follows from one time and the latency: no other time tests it.", *_doubts_of_algorithm(fitted)]
    near = f"{np.sum(errors <= _NEAR)} of {len(errors)} times are predicted within 15 %"
    reliable = bool(np.median(errors) <= _NEAR)
    return [f"{near}." if reliable else f"DO NOT RELY on this network: only {near}.", *_doubts_of_algorithm(fitted)]


def _doubts_of_algorithm(fitted: FittedNetwork) -> list[str]:
    """Return a sentence if the measurements do not tell the algorithm of allreduces."""
    if "allreduce" not in fitted.errors:
        return [f"No allreduce was measured: `collective: {fitted.collective}` is the usual one, not a result."]
    if fitted.algorithm_errors:
        return []
    return [
        "With allreduces of one number of members, all algorithms fit alike: "
        "measure several, such as 2 and 4 machines, or times between two, and give all files."
    ]


def _sentences_of_ranks(measurements: Sequence[Measurement]) -> list[str]:
    """Return what ranks that share a machine mean for the network, and what to run for one between machines."""
    shared = [row for row in measurements if row.machines and row.nodes > row.machines]
    if not shared:
        return []
    largest = max(shared, key=lambda row: row.nodes)
    ranks, machines = largest.nodes // largest.machines, largest.machines
    inside = ": the links inside one machine, not a network between machines" if machines == 1 else ""
    command = (
        f": `mpirun -np {max(2, machines)} -N 1 all_reduce_perf -b 8 -e 1G -f 2 -g 1`" if largest.library == "nccl" else ""
    )
    return [
        f"{largest.nodes} ranks on {machines} machine{'s' * (machines > 1)}: each rank is a member, a worker in a scenario; "
        f"latency and bandwidth are those of a rank among all, with {ranks} ranks on each machine{inside}.",
        f"For a network whose members are machines, measure one rank on each{command}.",
    ]


def _error_row(name: str, errors: NDArray[np.float64], strong: bool = False) -> list[Cell | str]:
    worst = errors[np.argmax(np.abs(errors))]
    texts = (name, f"{np.median(np.abs(errors)):.1%}", f"{np.mean(np.abs(errors) <= _NEAR):.0%}", f"{worst:+.0%}")
    return [Cell(text, strong=strong) for text in texts]
