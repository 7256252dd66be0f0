"""Two seeded fuzzers, `make fuzz`: python -m tests.fuzz [agreement] [refusal] [--count N] [--first SEED] [--jobs N].

`agreement`: random runs (algorithm x protocol x optimizer x model x batch size x cluster), replayed and inline: the same bits?
`refusal`: scenario files with random mistakes in them: refused in one FredError within seconds, or valid and runnable?
"""

import argparse
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fred import registry
from fred.errors import FredError
from fred.execution import Outcome, check, execute
from fred.loading import load, validated
from fred.scenario import Run

ROOT = Path(__file__).parent.parent

OWN = ("PlainConvolution", "Flax", "Attention", "Recurrent")
ALGORITHMS = tuple(registry.REGISTRY["algorithm"])
OPTIMIZERS = (
    *("sgd", "adam", "adamw", "lamb", "lars", "rmsprop", "adagrad", "novograd", "fromage", "lion", "yogi", "radam", "nadam"),
    *("adabelief", "adan", "rprop", "sm3", "signum", "adamax", "amsgrad", "optimistic_adam_v2", "sign_sgd", "noisy_sgd"),
)
BEFORE = ("clip_by_global_norm", "adaptive_grad_clip", "centralize", "clip_by_block_rms", "normalize_by_update_norm", "ema", "trace")
OPTIONS = {"clip_by_global_norm": {"max_norm": 1.0}, "adaptive_grad_clip": {"clipping": 0.1}, "ema": {"decay": 0.9}}
OPTIONS |= {"clip_by_block_rms": {"threshold": 0.1}, "trace": {"decay": 0.5}, "noisy_sgd": {"eta": 0.01, "gamma": 0.5}}


def random_run(seed: int) -> tuple[Run, int]:
    """A valid run and the seed to run it with, both functions of `seed`."""
    draw = np.random.default_rng(seed)
    while True:
        try:
            run = validated({"runs": {"run": specification(draw)}}, str).runs["run"]
            run.cluster.loads(0)
            return run, int(draw.integers(2**32))
        except FredError:
            continue


def specification(draw: np.random.Generator) -> dict[str, Any]:
    """A run, perhaps one that does not fit together."""

    def one(*options: Any) -> Any:
        return options[draw.integers(len(options))]

    def between(low: int, high: int) -> int:
        return int(draw.integers(low, high + 1))

    def transformation(name: str) -> dict[str, Any]:
        return {"name": name, **OPTIONS.get(name, {})}

    workers = one(1, 2, 3, 4, 5, 8, 16)
    name = one(*ALGORITHMS)
    algorithm: dict[str, Any] = {"name": name, "learning_rate": float(10 ** draw.uniform(-3, 0))}
    if one(True, False):
        chain = [transformation(one(*OPTIMIZERS))]
        algorithm["optimizer"] = [transformation(one(*BEFORE)), *chain] if one(True, False, False) else chain
    if name == "fasgd" or name == "b-fasgd":
        algorithm["variant"] = one("std", "published-code", "literal")
    usual = registry.lookup("algorithm", name).protocol
    protocol = usual if one(True, True, False) else one(*registry.REGISTRY["protocol"])
    return {
        "task": _task(one, between),
        "cluster": _cluster(draw, one, workers, protocol),
        "algorithm": algorithm,
        "protocol": {"name": protocol, **_protocol_options(one, between, protocol, workers)},
        "stop": {one("updates", "gradients"): between(5, 60)},
        "evaluate": {"points": between(1, 6)},
    }


def _task(one: Callable[..., Any], between: Callable[[int, int], int]) -> dict[str, Any]:
    hidden = [between(1, 24) for _ in range(between(0, 2))]
    mlp = {"name": "mlp", "hidden": hidden or [7], "activation": one("relu", "tanh", "sigmoid", "gelu")}
    model = one(mlp, mlp, "softmax", {"name": "cnn", "channels": [3], "hidden": 5, "kernel": 2}, f"tests.users:{one(*OWN)}")
    flat = one(
        {"name": "synthetic-classification", "examples": 300, "evaluation": 90, "features": between(1, 40), "classes": 3},
        {"name": "synthetic-regression", "examples": 300, "evaluation": 90, "features": between(1, 9), "outputs": between(1, 3)},
    )
    data = one("digits", flat) if model in (mlp, "softmax") else "digits"
    task = {"data": data, "model": model, "batch_size": one(1, 1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 64)}
    task |= {"sampling": one("replacement", "shuffled", "sequential"), "replicas_start": one("equal", "equal", "apart")}
    return task


def _cluster(draw: np.random.Generator, one: Callable[..., Any], workers: int, protocol: str) -> dict[str, Any]:
    compute = one({"name": "constant", "seconds": 0.1}, {"name": "lognormal", "median": 0.1, "sigma": float(draw.uniform(0, 1))})
    cluster: dict[str, Any] = {"workers": workers, "compute": compute}
    if one(True, False):
        latency = {"name": "exponential", "scale": 0.05}
        cluster["network"] = {"latency": latency, "bandwidth": 1e5, **one({}, {"server_bandwidth": 2e5})}
    if one(True, False, False):
        cluster["contention"] = [{"name": "random-delays", "workers": 1, "delay": {"name": "constant", "seconds": 0.3}}]
    if protocol in ("partial", "synchronous", "asynchronous", "cutoff"):
        cluster["servers"] = one(1, 1, 2, 3)
    return cluster


def _protocol_options(
    one: Callable[..., Any], between: Callable[[int, int], int], protocol: str, workers: int
) -> dict[str, Any]:
    return {
        "gated": {"c_push": one(0.0, 0.2), "c_fetch": one(0.0, 0.3)},
        "partial": {"gradients": between(1, workers), "blocks_percent": one(40, 70, 100)},
        "synchronous": {"backup_workers": between(0, workers - 1)},
        "stale-synchronous": {"bound": between(0, 3)},
        "cutoff": {"rule": one("all", "elfving", "oracle", {"name": "static", "workers": between(1, workers)})},
        "gossip": {"topology": one("ring", "complete", "star"), "order": one("mix-first", "step-first")},
        "group-averaging": {"group_size": one(1, 2, 4), "period": between(1, 6)},
    }.get(protocol, {})


def disagreement(seed: int) -> str:
    """What differs between a random run replayed and inline; nothing if nothing does."""
    run, number = random_run(seed)
    outcomes: list[Outcome | str] = []
    for inline in (False, True):
        try:
            outcomes.append(execute("run", run, number, inline))
        except FredError as error:
            outcomes.append(str(error))
    one, other = outcomes
    if isinstance(one, str) or isinstance(other, str):
        return "" if one == other else f"one is refused: {one if isinstance(one, str) else other}"
    differing = [name for name in ("params_digest", "data_digest") if getattr(one, name) != getattr(other, name)]
    differing += [] if one.schedule.digest() == other.schedule.digest() else ["schedule"]
    differing += [] if one.metrics.equals(other.metrics) else ["metrics"]
    return ", ".join(differing)


NASTY = (
    *("", "~", "true", "[]", "{}", "[[]]", "{name: }", "{name: [1]}", "{name: {name: x}}", "- 1", "? 1", "*a", "&a [*a]", "<<: 1"),
    *("-1", "0", "1", "1.5", "-0.0", "1e-320", "1e-9", "1e9", "1e30", "1e400", ".nan", ".inf", "-.inf", "0x7fffffffffffffff"),
    *("2147483647", "9223372036854775808", "9" * 5000, "0x" + "f" * 6000, "1_000", "0o17", "1:30", "2001-99-99", "2001-01-01"),
    *("!!bool maybe", "!!int x", "!!float ''", "!!binary x", "!!python/object/apply:os.getcwd []", "!!set {a}", "!!omap [a: 1]"),
    *('"\\ud800"', '"\\x00"', '"\\x1b[31m"', "ß😀", "a" * 3000, "../../etc/passwd", "/dev/zero", "os:system", "tests.users:Flax"),
    *("asgd", "wagma-sgd", "gossip", "complete", "mnist", "cnn", "pareto", "empirical", "adam", "shuffled", "apart"),
)
SECONDS = 20  # for one scenario


def mutated(seed: int) -> str:
    """A scenario file with a few mistakes, a function of `seed`."""
    draw = np.random.default_rng(seed)
    files = sorted((ROOT / "scenarios").rglob("*.yaml"))
    lines = files[draw.integers(len(files))].read_text(encoding="utf-8").splitlines()
    for _ in range(draw.integers(1, 4)):
        at, other = (int(each) for each in draw.integers(len(lines), size=2))
        nasty = NASTY[draw.integers(len(NASTY))]
        values = list(re.finditer(r"(?<=[:\[,{] )[^,\]\[{}#]+|[\w.+-]+", lines[at]))
        if draw.random() < 0.7 and values:
            place = values[draw.integers(len(values))]
            lines[at] = lines[at][: place.start()] + nasty + lines[at][place.end() :]
            continue
        edits: list[Callable[[], Any]] = [
            lambda: lines.insert(at, lines[other]),
            lambda: lines.pop(at) if len(lines) > 1 else None,
            lambda: lines.__setitem__(at, lines[at].replace(":", "", 1)),
            lambda: lines.__setitem__(at, "  " + lines[at]),
            lambda: lines.__setitem__(at, lines[at][: other % (len(lines[at]) + 1)]),
            lambda: lines.insert(at, f"{nasty}: {nasty}"),
            lambda: lines.__setitem__(at, lines[at].lstrip()),
            lambda: lines.__setitem__(slice(at, None), []) if at else None,
        ]
        edits[draw.integers(len(edits))]()
    return "\n".join(lines) + "\n"


def refusal(seed: int) -> str:
    """What is wrong with how a mutated scenario file is refused, or runs; nothing if nothing is."""
    signal.signal(signal.SIGALRM, _too_slow)
    signal.alarm(SECONDS)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "mutated.yaml"
        path.write_text(mutated(seed), encoding="utf-8", errors="surrogatepass")
        try:
            scenario = load(path)
            name, run = next(iter(scenario.runs.items()))
            if seed % 10 == 0:
                check(name, run, scenario.seeds[0])
            few = run.stop.model_copy(update={"gradients": min(40, run.stop.gradients or 40)})
            if not run.protocol.needs_values:
                execute(name, run.model_copy(update={"task": None, "stop": few}), scenario.seeds[0])
        except FredError as error:
            if len(str(error)) > 20_000 or not str(error).replace("\n", "").isprintable():
                return f"its message is {len(str(error))} characters long, or cannot be printed"
        finally:
            signal.alarm(0)
    return ""


def _too_slow(*_: Any) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


CHECKS = {"agreement": (disagreement, 1_000), "refusal": (refusal, 10_000)}  # and how many, usually


def _checked(task: tuple[str, int]) -> tuple[int, str]:
    name, seed = task
    try:
        return seed, CHECKS[name][0](seed)
    except Exception:
        return seed, traceback.format_exc()


def _search(name: str, seeds: range, jobs: int) -> list[int]:
    """The seeds that fail a check."""
    found: list[int] = []
    start = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(jobs, registry.allow_import, (["tests.users"],), 50) as pool:
        for done, (seed, problem) in enumerate(pool.imap_unordered(_checked, ((name, seed) for seed in seeds)), 1):
            if problem:
                found.append(seed)
                print(f"{name}, seed {seed}: {problem}", flush=True)
            if done % 100 == 0:
                print(f"{name}: {done} of {len(seeds)}, {len(found)} fail, {time.monotonic() - start:.0f} s", flush=True)
    print(f"{name}: {len(seeds)} cases, {len(found)} fail{': ' + ' '.join(map(str, sorted(found))) if found else ''}", flush=True)
    return found


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=f"which, of {', '.join(CHECKS)} (default: all)")
    parser.add_argument("--count", type=int, help="how many cases of each")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes (default: one per core)")
    options = parser.parse_args()
    found = [
        _search(name, range(options.first, options.first + (options.count or CHECKS[name][1])), options.jobs)
        for name in options.checks or CHECKS
    ]
    return int(any(found))


if __name__ == "__main__":
    sys.exit(_main())
