"""Four seeded fuzzers, `make fuzz`: python -m tests.fuzz [schema] [sharing] [refusal] [whole] [--count N] [--first SEED] [--jobs N]
[--with FAMILY ...].

`schema`: valid runs of whatever the editors' schema of scenarios allows, replayed and inline: the same bits?
`sharing`: the same runs, replayed by one to three executors: the same bits?
`refusal`: scenario files with random mistakes in them: refused in one FredError within seconds, or valid and runnable?
`whole`: random valid scenario files through the command line, in every way that should not matter: the same, and lawful?
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any
from unittest import mock

from fred.base.errors import FredError
from fred.components import registry
from fred.outcomes.outcome import Outcome
from fred.running import model_training
from fred.running.execution import check, execute
from fred.specification.loading import load
from tests import conftest  # noqa: F401  tells all processes where JAX keeps what it has compiled
from tests.draws import FAMILIES
from tests.end_to_end import TooSlow, check_scenario, time_limit
from tests.mutations import mutate
from tests.random_scenarios import random_run
from tests.threaded_replay import ThreadedReplay
from tests.worlds import same_outcome

SECONDS = 300  # for one scenario, replayed and inline, on a machine that may stall


def disagreement(seed: int, forced: Collection[str] = ()) -> str:
    """Return the difference between a random run replayed and inline; empty if there is none."""
    outcomes: list[Outcome | str] = []
    with time_limit(SECONDS), tempfile.TemporaryDirectory() as scratch:
        run, number = random_run(seed, Path(scratch), forced)
        for inline in (False, True):
            try:
                outcomes.append(execute("run", run, number, inline))
            except FredError as error:
                outcomes.append(str(error))
    first, second = outcomes
    if isinstance(first, str) or isinstance(second, str):
        return "" if first == second else f"one is refused: {first if isinstance(first, str) else second}"
    return "" if same_outcome(first, second) and first.data_digest == second.data_digest else "other bits"


def sharing(seed: int, forced: Collection[str] = ()) -> str:
    """Return the difference between a random run replayed by one process and by one to three executors; empty if none."""
    with time_limit(4 * SECONDS), tempfile.TemporaryDirectory() as scratch:
        run, number = random_run(seed, Path(scratch), forced)
        try:
            single = execute("run", run, number)
        except FredError:
            return ""
        for processes in (1, 2, 3):
            with mock.patch.object(model_training, "replay", ThreadedReplay(processes, stretch=10 ** (seed % 3 + 1))):
                if not same_outcome(single, execute("run", run, number)):
                    return f"{processes} executors"
    return ""


def refusal(seed: int) -> str:
    """Return the fault in the refusal or run of a mutated scenario file; empty if there is none."""
    with time_limit(SECONDS), tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "mutated.yaml"
        path.write_text(mutate(seed), encoding="utf-8", errors="surrogatepass")
        try:
            scenario = load(path)
            name, run = next(iter(scenario.runs.items()))
            if seed % 10 == 0:
                check(name, run, scenario.seeds[0])
            few = run.stop.model_copy(update={"gradients": min(40, run.stop.gradients or 40), "target_loss": None})
            if not run.protocol.needs_values:
                timing = {"task": None, "stop": few, "evaluate": {"points": 1}}
                execute(name, run.model_copy(update=timing), scenario.seeds[0])
        except FredError as error:
            if len(str(error)) > 20_000 or not str(error).replace("\n", "").isprintable():
                return f"its message is {len(str(error))} characters long, or cannot be printed"
    return ""


CHECKS: dict[str, tuple[Callable[..., Any], int]] = {  # and how many, usually
    "schema": (disagreement, 1_000),
    "sharing": (sharing, 300),
    "refusal": (refusal, 10_000),
    "whole": (check_scenario, 3_000),
}


def _check(task: tuple[str, int, Collection[str]]) -> tuple[int, str]:
    """Return the seed and the fault of its case."""
    name, seed, forced = task
    try:
        problem = CHECKS[name][0](seed, forced) if forced else CHECKS[name][0](seed)
        return seed, problem if isinstance(problem, str) else ""
    except (Exception, TooSlow):
        return seed, traceback.format_exc()


def _search(name: str, seeds: range, jobs: int, forced: Collection[str]) -> list[int]:
    """The seeds that fail a check."""
    failing: list[int] = []
    start = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(jobs, registry.allow_import, (["tests.users"],), 50) as pool:
        for done, (seed, problem) in enumerate(pool.imap_unordered(_check, ((name, seed, forced) for seed in seeds)), 1):
            if problem:
                failing.append(seed)
                print(f"{name}, seed {seed}: {problem}", flush=True)
            if done % 100 == 0 or done == len(seeds):
                seconds = time.monotonic() - start
                print(f"{name}: {done} of {len(seeds)} in {seconds:.0f} s, {len(failing)} fail: {sorted(failing)}", flush=True)
    return failing


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=f"which, of {', '.join(CHECKS)} (default: all)")
    parser.add_argument("--count", type=int, help="how many cases of each")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes (default: one per core)")
    parser.add_argument(
        "--with",
        nargs="+",
        dest="forced",
        default=(),
        choices=FAMILIES,
        help="features that all cases of `schema` and `sharing` have",
    )
    options = parser.parse_args()
    seeds = {name: range(options.first, options.first + (options.count or usual)) for name, (_, usual) in CHECKS.items()}
    failing = [_search(name, seeds[name], options.jobs, options.forced) for name in options.checks or CHECKS]
    return int(any(failing))


if __name__ == "__main__":
    sys.exit(_main())
