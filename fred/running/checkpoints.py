"""Checkpoints on disk: every array that the rest of a run needs, and what was measured up to there."""

import json
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import jax
import numpy as np

from fred.replay.machine import Mark
from fred.replay.memory import Memory
from fred.replay.snapshot import plain, taken
from fred.running.execution import Checkpoint, Kept

EVERY = 30.0  # seconds, at least, between two of a unit
FILE = "checkpoint.npz"


def save(folder: Path, identity: str, checkpoint: Checkpoint) -> None:
    """Replace the unit's checkpoint."""
    facts, arrays = _taken(checkpoint.reached)
    about = {"identity": identity, "facts": facts, "measured": [_hexed(point) for point in checkpoint.measured]}
    named = {f"leaf-{number}": leaf for number, leaf in enumerate(arrays)}
    new = folder / f"new-{FILE}"
    np.savez(new, allow_pickle=False, about=np.array(json.dumps(about)), **named)
    new.replace(folder / FILE)


def load(folder: Path, identity: str) -> Checkpoint | None:
    """The unit's checkpoint, if there is a whole one."""
    try:
        with np.load(folder / FILE, allow_pickle=False) as stored:
            about = json.loads(str(stored["about"]))
            leaves = [stored[f"leaf-{number}"] for number in range(len(stored.files) - 1)]
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None
    if about["identity"] != identity:
        return None
    measured = [{name: float.fromhex(value) for name, value in point.items()} for point in about["measured"]]
    return Checkpoint(measured, Kept(about["facts"], leaves))


def _taken(reached: Mark | Kept | Memory) -> tuple[dict[str, Any], list[np.ndarray]]:
    """What JSON holds, and arrays."""
    if isinstance(reached, Mark):
        return {"phase": reached.phase}, [plain(leaf) for leaf in jax.tree.leaves(reached.carry)]
    return taken(reached) if isinstance(reached, Memory) else reached


def _hexed(point: dict[str, float]) -> dict[str, str]:
    """Numbers that JSON cannot hold included."""
    return {name: float(value).hex() for name, value in point.items()}
