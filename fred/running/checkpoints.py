"""Checkpoints of replays on disk: every array that the rest of a run needs, and what was measured up to there."""

import json
from pathlib import Path
from zipfile import BadZipFile

import jax
import jax.numpy as jnp
import numpy as np

from fred.replay.machine import Mark
from fred.running.execution import Checkpoint, Kept

EVERY = 30.0  # seconds, at least, between two of a unit
FILE = "checkpoint.npz"


def save(folder: Path, identity: str, checkpoint: Checkpoint) -> None:
    """Replace the unit's checkpoint; one of an inline run is not kept, for the simulation would have to start anew anyway."""
    if not isinstance(checkpoint.reached, Mark):
        return
    phase, carry = checkpoint.reached
    arrays = {f"leaf-{number}": _plain(leaf) for number, leaf in enumerate(jax.tree.leaves(carry))}
    about = {"identity": identity, "phase": phase, "measured": [_hexed(point) for point in checkpoint.measured]}
    new = folder / f"new-{FILE}"
    np.savez(new, allow_pickle=False, about=np.array(json.dumps(about)), **arrays)
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
    return Checkpoint(measured, Kept(about["phase"], leaves))


def _plain(leaf: jax.Array) -> np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def _hexed(point: dict[str, float]) -> dict[str, str]:
    """Numbers that JSON cannot hold included."""
    return {name: float(value).hex() for name, value in point.items()}
