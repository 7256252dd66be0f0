"""Measure how often waiting is seen in simulated step times: `python -m studies.waiting` prints the table of a page.

The page is "Read trace files". The seed of a log gives its number of iterations and workers, speeds and deviations. Thresholds
were chosen on other seeds than those of the table. It takes a minute on one core.
"""

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fred.traces.waiting import find_waiting

Floats = NDArray[np.float64]
Make = Callable[[np.random.Generator, int, int], Floats]  # from iterations and workers
DEVELOPED, REPORTED = 60_000, 71_000  # first seeds: thresholds are chosen on one, the table is of the other
LOGS = 300  # of each kind
_STATES = ("certain", "possible", "groups", "no")


def equal(rng: np.random.Generator, iterations: int, workers: int) -> Floats:
    """Return compute times of equal workers, s."""
    return rng.uniform(0.1, 1) * rng.lognormal(0, rng.uniform(0.01, 0.2), (iterations, workers))


def one_slow(rng: np.random.Generator, iterations: int, workers: int) -> Floats:
    """Return compute times of which one worker's are longer."""
    return equal(rng, iterations, workers) * np.where(np.arange(workers) == 0, rng.uniform(1.1, 3), 1)


def different(rng: np.random.Generator, iterations: int, workers: int) -> Floats:
    """Return compute times of workers with different speeds."""
    return equal(rng, iterations, workers) * rng.uniform(1, 2, workers)


def spells(rng: np.random.Generator, iterations: int, workers: int) -> Floats:
    """Return compute times of workers that are slow in spells."""
    state = np.cumsum(rng.random((iterations, workers)) < 1 / rng.uniform(5, 50), axis=0) % 4 == 1
    return equal(rng, iterations, workers) * np.where(state, rng.uniform(1.3, 3), 1)


def tails(rng: np.random.Generator, iterations: int, workers: int) -> Floats:
    """Return compute times with a heavy tail."""
    return rng.uniform(0.1, 1) * (1 + rng.uniform(0.02, 0.5) * rng.pareto(rng.uniform(1.5, 4), (iterations, workers)))


def exponential(rng: np.random.Generator, iterations: int, workers: int) -> Floats:
    """Return compute times of a constant and an exponential part."""
    return rng.uniform(0.1, 1) + rng.exponential(rng.uniform(0.01, 0.5), (iterations, workers))


def following(rng: np.random.Generator, iterations: int, workers: int) -> Floats:
    """Return compute times that follow the last one of the same worker."""
    shocks, pace = rng.normal(0, rng.uniform(0.01, 0.1), (iterations, workers)), rng.uniform(-0.1, 0.95)
    for i in range(1, iterations):
        shocks[i] += pace * shocks[i - 1]
    return rng.uniform(0.1, 1) * np.exp(shocks)


def _shared(factor: Callable[[np.random.Generator, int], Floats]) -> Make:
    """Return a kind whose times are all longer by a factor of the iteration."""
    return lambda rng, iterations, workers: different(rng, iterations, workers) * factor(rng, iterations)[:, None]


def _stalls(rng: np.random.Generator, iterations: int) -> Floats:
    return np.where(rng.random(iterations) < rng.uniform(0.01, 0.1), rng.uniform(2, 10), 1)


def _regular(rng: np.random.Generator, iterations: int) -> Floats:
    return np.where(np.arange(iterations) % rng.integers(10, 50) == 0, rng.uniform(2, 10), 1)


def _drift(rng: np.random.Generator, iterations: int) -> Floats:
    return np.linspace(1, rng.uniform(1, 2), iterations)


def _change(rng: np.random.Generator, iterations: int) -> Floats:
    return np.where(np.arange(iterations) < rng.uniform(0.2, 0.8) * iterations, 1, rng.uniform(0.5, 2))


def _slow_wave(rng: np.random.Generator, iterations: int) -> Floats:
    return 1 + rng.uniform(0.05, 0.3) * np.sin(2 * np.pi * np.arange(iterations) / rng.uniform(40, 200))


def fast_wave(rng: np.random.Generator, iterations: int, workers: int) -> Floats:
    """Return compute times with a wave of all workers, a few iterations long."""
    wave = 1 + rng.uniform(0.05, 0.4) * np.sin(2 * np.pi * np.arange(iterations) / rng.uniform(3, 10))
    return rng.lognormal(-1, rng.uniform(0.005, 0.05), (iterations, workers)) * wave[:, None]


def lengths(rng: np.random.Generator, iterations: int, workers: int) -> Floats:
    """Return compute times of inputs whose length all workers share."""
    shared = rng.lognormal(-1, rng.uniform(0.1, 0.4), (iterations, 1))
    return shared * rng.lognormal(0, rng.uniform(0.005, 0.03), (iterations, workers))


def few_lengths(rng: np.random.Generator, iterations: int, workers: int) -> Floats:
    """Return compute times of inputs that have one of a few lengths, which all workers share."""
    shared = rng.choice(rng.uniform(0.2, 1, rng.integers(2, 5)), (iterations, 1))
    return shared * rng.lognormal(0, rng.uniform(0.005, 0.03), (iterations, workers))


def _pauses(low: int, high: int, steps: tuple[int, ...]) -> Make:
    """Return a kind in which workers pause regularly, one some iterations after the other."""

    def make(rng: np.random.Generator, iterations: int, workers: int) -> Floats:
        period = int(rng.integers(low, high))
        turns = np.add.outer(np.arange(iterations), int(rng.choice(steps)) * np.arange(workers)) % period == 0
        varied = rng.lognormal(0, rng.choice([0, 0.3]), (iterations, workers))
        return equal(rng, iterations, workers) + rng.uniform(0.1, 2) * turns * varied

    return make


def _rare_pauses(rng: np.random.Generator, iterations: int, workers: int) -> Floats:
    return equal(rng, iterations, workers) + rng.uniform(0.2, 2) * (
        rng.random((iterations, workers)) < rng.uniform(0.005, 0.05)
    )


def _late_change(rng: np.random.Generator, iterations: int, workers: int) -> Floats:
    times = equal(rng, iterations, workers)
    times[int(rng.uniform(0.3, 0.9) * iterations) :, 0] *= rng.uniform(1.3, 3)
    return times


def _waits(kind: Make) -> Make:
    """Return a kind whose times end when the slowest worker arrives; clocks are inexact, rounded, or exact."""

    def make(rng: np.random.Generator, iterations: int, workers: int) -> Floats:
        times = kind(rng, iterations, workers).max(axis=1, keepdims=True).repeat(workers, axis=1)
        typical = float(np.median(np.abs(times - np.median(times)))) or 0.01 * float(times.mean())
        error = rng.choice([0.01, 0.05, 0.15]) * typical
        digits = max(1, int(np.ceil(-np.log10(typical))) + 1)
        inexact = np.abs(times + rng.normal(0, error, times.shape))
        return np.maximum(np.round(inexact, digits) if rng.random() < 0.3 else inexact, 1e-9)

    return make


def _meets(kind: Make) -> Make:
    """Return a kind in which all workers meet every 2 to 20 iterations, from a random one on."""

    def make(rng: np.random.Generator, iterations: int, workers: int) -> Floats:
        times = kind(rng, iterations, workers)
        every = int(rng.integers(2, min(20, iterations // 4) + 1))
        phase = int(rng.integers(every))
        for begin in range(phase, iterations - every + 1, every):
            sums = times[begin : begin + every].sum(axis=0)
            times[begin + every - 1] += sums.max() - sums
        error = 0.1 * rng.random() * float(np.std(kind(rng, 50, workers)[:, -1]))
        return np.maximum(times + rng.normal(0, error, times.shape), 1e-9)

    return make


def bad_clocks(rng: np.random.Generator, iterations: int, workers: int) -> Floats:
    """Return times with waiting whose clocks are worse than steps differ: an error ends one and begins the next."""
    times = one_slow(rng, iterations, workers).max(axis=1, keepdims=True)
    error = rng.uniform(1, 3) * float(np.std(times))
    return np.maximum(times + np.diff(rng.normal(0, error, (iterations + 1, workers)), axis=0), 1e-9)


def groups(rng: np.random.Generator, iterations: int, workers: int) -> Floats:
    """Return times of workers that wait within groups of two to four."""
    size = int(rng.integers(2, 5))
    pace = equal(rng, iterations, max(2, workers // size))
    times = pace.repeat(size, axis=1)
    return np.maximum(times + rng.normal(0, 0.02 * float(np.std(pace)), times.shape), 1e-9)


COMPUTE: dict[str, Make] = {
    **{"equal": equal, "one slow": one_slow, "different": different, "spells": spells, "heavy tails": tails},
    **{"exponential": exponential, "following": following, "rare pauses": _rare_pauses, "late change": _late_change},
    **{"stalls of all": _shared(_stalls), "regular stalls of all": _shared(_regular), "drift of all": _shared(_drift)},
    **{"change of all": _shared(_change), "slow wave of all": _shared(_slow_wave)},
    **{"rounded": lambda rng, iterations, workers: np.maximum(np.round(different(rng, iterations, workers), 2), 0.01)},
    "a pair": lambda rng, iterations, _: different(rng, iterations, 2),
    "pauses by turns": _pauses(10, 30, (1, 2, 3)),
}
OFTEN: dict[str, Make] = {"often, by turns": _pauses(2, 10, (1, 3)), "often, all at once": _pauses(2, 10, (0,))}
LENGTHS: dict[str, Make] = {"lengths": lengths, "few lengths": few_lengths}
WAITS: dict[str, Make] = {
    f"waits, {name}": _waits(COMPUTE[name])
    for name in (
        "equal",
        "one slow",
        "different",
        "spells",
        "heavy tails",
        "following",
        "stalls of all",
        "drift of all",
        "a pair",
    )
}
MEETS: dict[str, Make] = {f"meets, {name}": _meets(COMPUTE[name]) for name in ("equal", "one slow", "spells", "different")}
TABLE: tuple[tuple[str, dict[str, Make], tuple[int, int]], ...] = (
    ("compute times: slow workers, spells, stalls of all, drifts, heavy tails, rare pauses", COMPUTE, (10, 300)),
    ("pauses in each 2nd to 9th iteration, by turns or of all", OFTEN, (10, 300)),
    ("compute times of inputs whose length all workers share", LENGTHS, (10, 300)),
    ("a wave of all workers, a few iterations long", {"fast wave": fast_wave}, (10, 300)),
    ("waiting in each step, with inexact or rounded clocks", WAITS, (10, 300)),
    ("waiting every 2 to 20 iterations; 100 iterations or more", MEETS, (100, 300)),
    ("the same; 10 to 40 iterations", MEETS, (10, 40)),
    ("waiting in each step, clocks worse than the steps differ", {"bad clocks": bad_clocks}, (10, 300)),
    ("waiting within groups", {"groups": groups}, (10, 300)),
)


def states(make: Make, first: int, logs: int, iterations: tuple[int, int]) -> list[str]:
    """Return what is seen in logs of a kind: `certain`, `possible`, `groups` or `no`.

    Args:
        make: the kind.
        first: seed of the first log; the others follow.
        logs: number of logs.
        iterations: fewest and most iterations of a log; workers are 2 to 16.
    """
    answers: list[str] = []
    for seed in range(first, first + logs):
        rng = np.random.default_rng(seed)
        size = int(rng.integers(*iterations, endpoint=True)), int(rng.integers(2, 16, endpoint=True))
        answers.append(find_waiting(make(rng, *size)).state)
    return answers


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m studies.waiting", description="how often is waiting seen in step times?")
    parser.add_argument("--seed", type=int, default=REPORTED, help="seed of the first log of each kind (default: %(default)s)")
    parser.add_argument("--logs", type=int, default=LOGS, help="logs of each kind (default: %(default)s)")
    parser.add_argument("--kinds", action="store_true", help="a row for each kind")
    options = parser.parse_args()
    print("| logs | kinds | no verdict | may contain waiting | groups | nothing |\n|---|---|---|---|---|---|")
    for name, kinds, iterations in TABLE:
        answers = {kind: states(make, options.seed, options.logs, iterations) for kind, make in kinds.items()}
        rows = answers if options.kinds else {name: [state for several in answers.values() for state in several]}
        for row, several in rows.items():
            shares = [100 * several.count(state) / len(several) for state in _STATES]
            cells = [
                row,
                str(1 if options.kinds else len(kinds)),
                *(f"{share:.0f}" if share > 10 else f"{share:.2g}" for share in shares),
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
