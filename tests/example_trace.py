"""Write the trace that comes with FRED: eight workers on four nodes, one of which is slow in spells.

Run `python -m tests.example_trace`; then `python -m tests.golden`, because a pinned model is trained on it.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import fred

FILE = Path(fred.__file__).parent / "traces" / "example.csv"
ITERATIONS, WORKERS, NODES = 240, 8, 4
SPELLS = ((38, 56), (83, 107), (131, 146), (172, 198), (217, 230))  # first iteration of each, and the one after its last
NODE, SLOWDOWN = 2, 2.5  # slow node, and its slowdown in spells
SPREAD = 0.05  # standard deviation of log times


def seconds() -> NDArray[np.float64]:
    """Return the times, s [iterations, workers]."""
    times = np.exp(SPREAD * np.random.default_rng(8).standard_normal((ITERATIONS, WORKERS)))
    of_node = np.arange(WORKERS) * NODES // WORKERS == NODE
    for first, end in SPELLS:
        times[first:end, of_node] *= SLOWDOWN
    return times


def text() -> str:
    """Return the text of the file."""
    rows = (
        f"{iteration},{worker},{time:.3f},{worker * NODES // WORKERS}\n"
        for iteration, times in enumerate(seconds())
        for worker, time in enumerate(times)
    )
    return f"iteration,worker,seconds,node\n{''.join(rows)}"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
    print(f"wrote {FILE}")
