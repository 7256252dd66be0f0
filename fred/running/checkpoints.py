"""Checkpoints of a run: every array that the rest of it needs, and all measurements so far; in memory and on disk.

A checkpoint is written at an evaluation point, as plain arrays and JSON, because a pickle would execute code when it is read.
Measurements are hexadecimal numbers, which keep all bits, and NaN: a resumed run has the bits of an undisturbed one. A damaged
checkpoint only costs time, so it is deleted, and the run starts from the beginning.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fred.base import disk
from fred.base.disk import CHECKPOINT
from fred.base.errors import FredError
from fred.base.progress import Measured
from fred.base.types import OnProgress

if TYPE_CHECKING:  # it imports jax
    from fred.replay.memory import Snapshot

INTERVAL = 30.0  # least number of seconds between two checkpoints of a unit


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run at an evaluation point, in memory or from a file, from which it resumes with the same bits.

    Args:
        measured: loss, error and other measurements, at each point so far.
        reached: arrays and facts from which the replay or interpreter resumes.
    """

    measured: Measured
    reached: "Snapshot"


@dataclass(frozen=True)
class Following:
    """Callbacks of a run for progress and checkpoints, and the checkpoint from which it resumes.

    Args:
        progress: called with the fraction done, after each evaluation.
        save: called with a checkpoint at evaluation points, except the last one; None: no checkpoints.
        resumed: the checkpoint from which the run resumes; None: it starts from the beginning.
        due: returns True if a checkpoint is due; called before each.
        evaluated: called with all measurements so far, after each evaluation.
    """

    progress: OnProgress = lambda _: None
    save: Callable[[Checkpoint], None] | None = None
    resumed: Checkpoint | None = None
    due: Callable[[], bool] = lambda: True
    evaluated: Callable[[Measured], None] = lambda _: None

    def report(self, fraction: float, measured: Measured) -> None:
        """Report progress after an evaluation.

        Args:
            fraction: the fraction done.
            measured: the measurements at each point so far.
        """
        self.progress(fraction)
        self.evaluated(measured)


def save(folder: Path, identity: str, checkpoint: Checkpoint) -> None:
    """Replace the unit's checkpoint.

    Args:
        folder: working folder of the unit.
        identity: identity of the unit, to which the checkpoint belongs.
        checkpoint: progress of the unit; numbers keep all their bits.
    """
    facts, arrays = checkpoint.reached
    header = {"identity": identity, "facts": facts, "measured": [_hexed(point) for point in checkpoint.measured]}
    named = {f"leaf-{number}": leaf for number, leaf in enumerate(arrays)}
    disk.write_arrays(folder / CHECKPOINT, {"about": np.frombuffer(json.dumps(header).encode(), np.uint8), **named})


def load(folder: Path, identity: str) -> Checkpoint | None:
    """Return the unit's checkpoint, if there is one. A damaged one is deleted, with a message.

    Args:
        folder: working folder of the unit.
        identity: identity of the unit; a checkpoint of another unit is ignored and kept.
    """
    file = folder / CHECKPOINT
    if not file.exists():
        return None
    from fred.replay.memory import Snapshot  # imports jax

    try:
        named = disk.arrays(file, disk.ANY_NUMBER)
        header = json.loads(named.pop("about").tobytes())
        leaves = [named[f"leaf-{number}"] for number in range(len(named))]
        if header["identity"] != identity:
            return None
        measured = [{name: float.fromhex(value) for name, value in point.items()} for point in header["measured"]]
        return Checkpoint(measured, Snapshot(header["facts"], leaves))
    except (FredError, ValueError, KeyError, TypeError, AttributeError):
        print(f"fred: {file} is damaged or from another version: this run starts from the beginning", file=sys.stderr)
        file.unlink()
        return None


def _hexed(point: dict[str, float]) -> dict[str, str]:
    """Return numbers as hexadecimal text, which includes those that JSON lacks."""
    return {name: float(value).hex() for name, value in point.items()}
