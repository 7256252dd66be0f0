"""`fred fit-network`: fit a network to measured times of communication, which `--only` selects."""

import argparse
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fred.base import disk
from fred.base.errors import FredError, briefly, listed
from fred.commands import command_options
from fred.components.registry import nearest
from fred.fitting.communication import (
    NEAR_ERROR,
    FittedNetwork,
    HeldOut,
    Judgement,
    fit_network,
    judge,
    judge_network,
    judge_presets,
    worst_error,
)
from fred.fitting.measurement import LIBRARY_NAMES, Measurement, recognise_operations
from fred.fitting.measurements import FORMATS, explain_several, list_unknowns, read_file
from fred.specification.text import written
from fred.views.table import NONE, Cell, Table, show, terminal

UNKNOWN = "unknown"
_FIELDS = {"library": "library", "operation": "operation", "nodes": "nodes", "source": "where"}
_FACTORS = {"delay_ms": ("latency", 1e-3), "gbit_per_s": ("bandwidth", 1e9 / 8)}  # to s and bytes/s
NAMES = (*_FIELDS, *_FACTORS)


def select(measurements: Sequence[Measurement], only: Mapping[str, str]) -> list[Measurement]:
    """Return the measurements with all of some values.

    Args:
        measurements: of any libraries and clusters.
        only: values by FRED's names of columns; `unknown` selects rows without a source, a delay or a bandwidth.

    Raises FredError for a name that is unknown, and for a value that no measurement has.

    >>> rows = [Measurement("nccl", "allreduce", 4, 2**27, 0.3, latency=latency) for latency in (None, 0.001)]
    >>> [row.latency for row in select(rows, {"delay_ms": "1"})], [row.latency for row in select(rows, {"delay_ms": "unknown"})]
    ([0.001], [None])
    """
    selection = list(measurements)
    for name, value in only.items():
        if name not in NAMES:
            raise FredError(f"--only {name}={value}: unknown{nearest(name, NAMES)}; expected some of {listed(NAMES)}")
        values = list(dict.fromkeys(describe(measurement, name) for measurement in selection))
        selection = [measurement for measurement in selection if _matches(measurement, name, value)]
        if not selection:
            raise FredError(f"--only {name}={value}: no such row; `{name}` is {briefly(values, 12)}")
    return selection


def describe(measurement: Measurement, name: str) -> str:
    """Return a value of a measurement as `--only` has it.

    Args:
        measurement: the measurement.
        name: FRED's name of the column.

    >>> describe(Measurement("nccl", "allreduce", 4, 2**27, 0.3, latency=0.001), "delay_ms")
    '1'
    """
    if name in _FIELDS:
        return str(getattr(measurement, _FIELDS[name])) or UNKNOWN
    key, factor = _FACTORS[name]
    value = getattr(measurement, key)
    return UNKNOWN if value is None else f"{value / factor:.6g}"


def list_networks(measurements: Sequence[Measurement]) -> list[str]:
    """Return the values of `--only` that select one network each, the network of most rows first.

    Args:
        measurements: of several libraries or clusters; those without a network, such as rates, are left out.

    >>> rows = [Measurement("nccl", "allreduce", 4, 2**27, 0.3, latency=latency) for latency in (None, 0.001, 0.001)]
    >>> list_networks(rows)
    ['delay_ms=1', 'delay_ms=unknown']
    """
    names = [name for name in NAMES if name not in ("operation", "nodes")]
    names = [name for name in names if len({describe(measurement, name) for measurement in measurements}) > 1]
    candidates = [
        ",".join(f"{name}={describe(measurement, name)}" for name in names)
        for measurement in measurements
        if not measurement.is_rate and measurement.library != "in use" and "," not in measurement.where
    ]
    return sorted(dict.fromkeys(filter(None, candidates)), key=candidates.count, reverse=True)


def _matches(measurement: Measurement, name: str, value: str) -> bool:
    """Return True if a measurement has a value."""
    text = describe(measurement, name)
    if name == "library":
        return LIBRARY_NAMES.get(value.lower(), value) == text
    if name == "operation":
        return text in (value, *recognise_operations(value))
    try:
        return math.isclose(float(value), float(text), rel_tol=1e-5)
    except ValueError:
        return value == text


_MARK = "fitted by fred fit-network"
_ERRORS = "name,nodes,bytes,"  # beginning of a file of errors
_COLUMNS = ("median error", "within 15 %", "worst")
_UNTESTED = "As many numbers are fitted as there are times: no time tests them."
_NEAREST = 2  # presets that are compared
_MOST_SETTINGS = 12  # of one operation, of one kind, that have rows of their own


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the files of measurements, what the files do not say, and the output."""
    parser.description = (
        "Fit latency, bandwidth and the algorithm of allreduces to times of operations of NCCL, Gloo or MPI, and print "
        "the `network:` block of a scenario, with its errors. Times of several networks are compared with predictions."
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
    parser.add_argument(
        "--only",
        metavar="NAME=VALUE,...",
        help="only times with these values, such as those of one network; NAME is library, operation, nodes, source, delay_ms "
        "or gbit_per_s, whose VALUE may be `unknown`",
    )
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="YAML file for the `network:` block")
    parser.add_argument(
        "--errors", type=Path, metavar="FILE.csv", help="table with the prediction of each time; FILE.svg is its figure"
    )
    command_options.add_quiet(parser)


def run(options: argparse.Namespace) -> int:
    """Read the measurements, fit a network or judge several, then write and print the result. Raises FredError."""
    _check_places(options)
    columns = (
        command_options.parse_pairs("--columns", options.columns, "bytes=msg,milliseconds=took") if options.columns else {}
    )
    values = command_options.parse_pairs("--values", options.values, "nodes=8,operation=allreduce") if options.values else {}
    only = command_options.parse_pairs("--only", options.only, "delay_ms=1,gbit_per_s=5") if options.only else {}
    files = [read_file(path, columns, values) for path in options.files]
    measurements = select([measurement for file in files for measurement in file.measurements], only)
    why_several = explain_several(measurements)  # empty if they are of one network
    cure = _choose_network(options, measurements) if why_several else ""
    if why_several and options.out:
        raise FredError(f"{why_several}; --out needs one network{cure or '; without it, FRED prints the errors'}")
    fitted = None if why_several else fit_network(measurements)
    judgements = judge_network(fitted, measurements) if fitted else judge(measurements)
    _write_files(options, fitted, judgements)
    outputs = [path for path in (options.out, options.errors) if path]
    if outputs and options.quiet:
        print(*outputs, sep="\n")
        return 0
    _print_sentences([file.sentence for file in files])
    if options.only:
        number = sum(len(file.measurements) for file in files)
        _print_sentences([f"chosen: {len(measurements)} of {number} times, with {options.only}"])
    if fitted:
        _print_network(fitted, measurements)
        print(written({"network": fitted.options}), end="")
    else:
        _print_judgements(judgements, f"No `network:` block: {why_several}{cure}")
    return 0


def _check_places(options: argparse.Namespace) -> None:
    """Raise FredError for a file that cannot be written, or that this command did not write."""
    if options.out:
        disk.check_free(options.out, lambda beginning: beginning.startswith(f"# {_MARK}".encode()))
    if options.errors:
        if options.errors.suffix != ".csv":
            raise FredError(f"--errors {options.errors}: expected a name that ends in .csv, such as {options.errors.stem}.csv")
        has_table = options.errors.exists()  # of an earlier command, as the next line checks; then the figure is its, too
        disk.check_free(options.errors, lambda beginning: beginning.startswith(_ERRORS.encode()), "--errors")
        disk.check_free(options.errors.with_suffix(".svg"), lambda _: has_table, "--errors")


def _write_files(options: argparse.Namespace, fitted: FittedNetwork | None, judgements: Sequence[Judgement]) -> None:
    """Write the `network:` block, and the errors with their figure, as far as they were asked for."""
    if options.out and fitted:
        names = ", ".join(str(path) for path in options.files)
        measurements = [measurement for judgement in judgements for measurement in judgement.measurements]
        shared = "".join(f"; {sentence}" for sentence in _sentences_of_ranks(measurements)[:1])
        disk.write(options.out, written({"network": fitted.options}, f"{_MARK}, from {names}{shared}").encode())
    if options.errors:
        import pandas as pd  # this and Matplotlib take a second

        from fred.views.comparison_figures import picture

        rows = pd.DataFrame([row for judgement in judgements for row in judgement.rows()])
        disk.write(options.errors, rows.to_csv(index=False, float_format="%.6g").encode())
        picture(rows, NEAR_ERROR).save(options.errors.with_suffix(".svg"))


def _choose_network(options: argparse.Namespace, measurements: Sequence[Measurement]) -> str:
    """Return how to choose one network, with a command that works; empty: no choice gives one."""
    for choice in list_networks(measurements):
        only = ",".join([*([options.only] if options.only else []), choice])
        try:
            fit_network(select(measurements, command_options.parse_pairs("--only", choice, "delay_ms=1")))
        except FredError:
            continue
        arguments = {"columns": options.columns, "values": options.values, "only": only, "out": options.out}
        words = [word for name, value in arguments.items() if value for word in (f"--{name}", str(value))]
        return f"; choose one, as in: {shlex.join(['fred', 'fit-network', *map(str, options.files), *words])}"
    return ""


def _print_sentences(sentences: Sequence[str]) -> None:
    for sentence in sentences:
        terminal().print(sentence, highlight=False, markup=False, soft_wrap=True)


def _print_network(fitted: FittedNetwork, measurements: Sequence[Measurement]) -> None:
    """Print how far the predictions by one network are off."""
    _print_sentences([*_sentences(fitted), *_sentences_of_ranks(measurements)])
    rows = [_error_row([name], errors) for name, errors in fitted.errors.items()]
    show(Table(["operation", *_COLUMNS], rows, "times predicted by the network below"), terminal())
    if fitted.algorithm_errors:
        rows = [
            _error_row([name], errors, strong=name == fitted.collective) for name, errors in fitted.algorithm_errors.items()
        ]
        caption = "each allreduce is predicted by a fit to other measurements"
        show(Table(["allreduce", *_COLUMNS], rows, "algorithms of allreduces", caption), terminal())
    presets = judge_presets(measurements) if list_unknowns(measurements) else {}
    if presets:
        rows = [_error_row([name], errors) for name, errors in list(presets.items())[:_NEAREST]]
        caption = "nothing is fitted; `fred list presets` has what they are made of"
        show(Table(["preset", *_COLUMNS], rows, "allreduces predicted by the nearest presets", caption), terminal())


def _print_judgements(judgements: Sequence[Judgement], why_no_block: str) -> None:
    """Print how far predictions of several networks are off: of all times, and of each setting by a fit to the others."""
    tested = [judgement.errors for judgement in judgements if judgement.is_tested]
    reliability = _sentence_of_errors(np.concatenate(tested), "these predictions") if tested else _UNTESTED
    _print_sentences([reliability, why_no_block])
    rows = [
        _error_row(
            [judgement.name, str(len(judgement.measurements)), judgement.fitted],
            judgement.errors if judgement.is_tested else np.array([]),
        )
        for judgement in judgements
    ]
    caption = "what the rows do not give is fitted, once for each row of this table"
    show(Table(["measurements", "times", "fitted", *_COLUMNS], rows, "predicted times", caption, words=3), terminal())
    rows = [row for judgement in judgements for row in _held_out_rows(judgement)]
    if rows:
        caption = (
            "fitted to the other settings, as far as anything is; what only this setting leaves open, to it; –: too few times"
        )
        title = "each setting left out in turn"
        show(Table(["measurements", "left out", "times", *_COLUMNS], rows, title, caption, words=2), terminal())


def _held_out_rows(judgement: Judgement) -> Iterator[list[Cell | str]]:
    """Yield a row for each setting; one row for all settings of a kind if they are many."""
    settings = list(judgement.held_out())
    for way in dict.fromkeys(setting.way for setting in settings):
        of_way = [setting for setting in settings if setting.way == way]
        if len(of_way) > _MOST_SETTINGS:
            errors = np.concatenate([setting.errors for setting in of_way])
            of_way = [HeldOut(way, f"{len(of_way)} settings in turn: {way}", errors)]
        for setting in of_way:
            yield _error_row([judgement.name, setting.setting, str(len(setting.errors))], setting.errors)


def _sentences(fitted: FittedNetwork) -> list[str]:
    """Return how well the network predicts the times to which it is fitted, and doubts about the algorithm of allreduces."""
    errors = np.concatenate(list(fitted.errors.values()))
    if len(errors) == 1:
        return ["The bandwidth follows from one time and the latency: no other time tests it.", *_doubts_of_algorithm(fitted)]
    return [_sentence_of_errors(errors, "this network"), *_doubts_of_algorithm(fitted)]


def _sentence_of_errors(errors: NDArray[np.float64], subject: str) -> str:
    """Return how many times are predicted well, and a warning if they are few."""
    count = f"{np.sum(np.abs(errors) <= NEAR_ERROR)} of {len(errors)} times are predicted within 15 %"
    is_reliable = bool(np.median(np.abs(errors)) <= NEAR_ERROR)
    return f"{count}." if is_reliable else f"DO NOT RELY on {subject}: only {count}."


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


def _error_row(words: Sequence[str], errors: NDArray[np.float64], strong: bool = False) -> list[Cell | str]:
    """Return a row of a table: words, and the errors in three numbers, or dashes without errors."""
    texts = [NONE] * len(_COLUMNS)  # median error, share within 15 %, worst error
    if len(errors):
        absolute = np.abs(errors)
        texts = [f"{np.median(absolute):.1%}", f"{np.mean(absolute <= NEAR_ERROR):.0%}", f"{worst_error(errors):+.0%}"]
    return [Cell(text, strong=strong) for text in (*words, *texts)]
