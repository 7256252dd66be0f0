"""`fred train-cutoff`: train a model of a trace's compute times, and save it."""

import argparse
import sys
import time
from pathlib import Path

from pydantic import ValidationError

from fred.base.disk import check_places
from fred.base.errors import FredError
from fred.base.progress import bars
from fred.commands import command_options, trace_options
from fred.components import registry
from fred.prediction.deep import saved
from fred.prediction.deep.rule import DMM, train_best
from fred.traces.doubts import refuse_doubtful
from fred.traces.trace import Trace, find_groups

RULES = ("dmm", "dmm-plain", "dmm-printed")
_TRAINING = {"steps": int, "learning_rate": float, "window": int, "seed": int}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the trace, the output file, and the training."""
    trace_options.add_options(parser)
    parser.add_argument(
        "-o", "--out", type=Path, required=True, metavar="FILE.npz", help="file for the model; FILE.json describes it"
    )
    parser.add_argument("--rule", choices=RULES, default="dmm", help="kind of model (default: dmm)")
    parser.add_argument("--alone", action="store_true", help="train the network alone, without mixing in a hidden Markov model")
    parser.add_argument("--train", type=int, metavar="N", help="train on the first N iterations (default: all)")
    parser.add_argument(
        "--even-if-worse",
        action="store_true",
        help="write the model even if it is worse than the best static cutoff in the last quarter of the iterations",
    )
    command_options.add_quiet(parser)
    for name, kind in _TRAINING.items():
        field = DMM.model_fields[name]
        help_ = f"{field.description} (default: {field.default})"
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar="N", help=help_)


def run(options: argparse.Namespace) -> int:
    """Train with a progress bar, write the model, and print how good it is. Raises FredError."""
    rule = _rule(options)
    _check_free(options.out)
    trace = trace_options.read_trace(options)
    refuse_doubtful(trace)
    seconds = trace.seconds[: _iterations(options.train, trace)]
    node_of = find_groups(seconds) if trace.node_of is None else trace.node_of
    start = time.perf_counter()
    with bars(quiet=options.quiet) as show:
        try:
            trained = train_best(rule, seconds, node_of, lambda share: show("training", share))
        except ValueError as error:
            raise FredError(f"{trace.source}: {error}") from error
    held_back = trained.record.held_back
    assert held_back is not None
    if held_back.is_significantly_worse and not options.even_if_worse:
        raise FredError(
            f"{trace.source}: the model is not written: {held_back.doubt}; train on more iterations, use "
            f"{{name: count, workers: {held_back.static}}} instead, or write it anyway with --even-if-worse"
        )
    trained.save(options.out)
    for line in [options.out] if options.quiet else _summary(options, trace, trained, time.perf_counter() - start):
        print(line)
    if held_back.doubt:
        print(f"fred: {options.out}: {held_back.doubt}", file=sys.stderr)
    return 0


def _rule(options: argparse.Namespace) -> DMM:
    """Return the untrained rule with the options of a command line. Raises FredError."""
    values = {name: getattr(options, name) for name in (*_TRAINING, "alone") if getattr(options, name) is not None}
    try:
        return registry.lookup("cutoff", options.rule).model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        expected = first["msg"].replace("Input should be", "expected")
        raise FredError(f"--{str(first['loc'][0]).replace('_', '-')} {first['input']}: {expected}") from None


def _check_free(path: Path) -> None:
    """Raise FredError if the model cannot be written to this path, or would replace a file that is none."""
    if path.suffix != ".npz":
        raise FredError(f"--out {path}: expected a name that ends in .npz")
    files = path, path.with_suffix(".json")
    check_places(*files)
    for file in files:
        if not file.exists():
            continue
        try:
            saved.load(path)  # reads both files: only a complete model may be replaced
        except ValueError:
            raise FredError(
                f"{file} exists and is not a FRED model; choose another file with --out, or remove this one"
            ) from None


def _iterations(number: int | None, trace: Trace) -> int:
    """Return the number of iterations to train on, by default all. Raises FredError."""
    if number is None:
        return trace.iterations
    if not 0 < number <= trace.iterations:
        raise FredError(f"--train {number}: {trace.source} has {trace.iterations} iterations")
    return number


def _summary(options: argparse.Namespace, trace: Trace, trained: saved.Trained, seconds: float) -> list[str]:
    facts, held_back = trained.record, trained.record.held_back
    assert held_back is not None
    nodes = "given" if trace.node_of is not None else "found"
    names = trace.node_names
    return [
        *trace.remarks,
        *trace.warnings,
        f"trained on {options.train or trace.iterations} iterations of {facts.workers} workers, "
        f"{max(facts.nodes) + 1} nodes ({nodes}{': ' if names else ''}{names}), in {seconds:.0f} s",
        f"loss per observed time: {facts.curve[0]:.3f} in the first 50 steps, {facts.curve[-1]:.3f} in the last",
        f"the model is {facts.parts}",
        f"in the last {held_back.rounds} iterations against always waiting for {held_back.static}: {held_back.against_static}",
        f"model: {options.out}, digest {trained.digest[:16]}",
        f"in a scenario: protocol: {{name: cutoff, rule: {{name: {options.rule}, model: {options.out}}}}}",
    ]
