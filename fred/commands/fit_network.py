"""`fred fit-network`: fit a network to measured times of communication."""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fred.base import places
from fred.commands import shared_options
from fred.fitting.communication import FittedNetwork, fit_network
from fred.fitting.measurements import read
from fred.specification.text import written
from fred.views.table import Cell, Table, show, terminal

_MARK = "fitted by fred fit-network"
_NEAR = 0.15


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the file of measurements and the output."""
    parser.description = (
        "Fit latency, bandwidth and the algorithm of allreduces to measured times of NCCL's or Gloo's operations, and print "
        "the `network:` block of a scenario, with its errors."
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="CSV table, or the log of a program of nccl-tests")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="YAML file for the `network:` block")
    shared_options.add_quiet(parser)


def run(options: argparse.Namespace) -> int:
    """Read the measurements, fit the network, then write and print it. Raises FredError."""
    if options.out:
        places.check_free(options.out, lambda beginning: beginning.startswith(f"# {_MARK}".encode()))
    fitted = fit_network(read(options.file))
    block = {"network": fitted.options}
    if options.out:
        places.write(options.out, written(block, f"{_MARK}, from {options.file}").encode())
    if options.out and options.quiet:
        print(options.out)
    else:
        _print(fitted)
        print(written(block), end="")
    return 0


def _print(fitted: FittedNetwork) -> None:
    """Print how far the predictions are off."""
    console = terminal()
    for sentence in _sentences(fitted):
        console.print(sentence, highlight=False, markup=False)
    rows = [_row(name, off) for name, off in fitted.errors.items()]
    show(Table(["operation", "median error", "within 15 %", "worst"], rows, "times predicted by the network below"), console)
    if fitted.tried:
        rows = [_row(name, off, strong=name == fitted.collective) for name, off in fitted.tried.items()]
        caption = "each size and number of members is predicted by a fit to the others"
        show(Table(["allreduce", "median error", "within 15 %", "worst"], rows, "algorithms of allreduces", caption), console)


def _sentences(fitted: FittedNetwork) -> list[str]:
    off = np.abs(np.concatenate(list(fitted.errors.values())))
    near = f"{np.sum(off <= _NEAR)} of {len(off)} times are predicted within 15 %"
    good = bool(np.median(off) <= _NEAR)
    sentences = [f"{near}." if good else f"DO NOT RELY on this network: only {near}."]
    if not fitted.tried:
        sentences.append("With allreduces of one number of members, algorithms cannot be told apart: measure several.")
    return sentences


def _row(name: str, off: NDArray[np.float64], strong: bool = False) -> list[Cell | str]:
    worst = off[np.argmax(np.abs(off))]
    texts = (name, f"{np.median(np.abs(off)):.1%}", f"{np.mean(np.abs(off) <= _NEAR):.0%}", f"{worst:+.0%}")
    return [Cell(text, strong=strong) for text in texts]
