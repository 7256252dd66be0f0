"""Folders that somebody has written: results that were tampered with, skilfully, every digest made to fit; files of data."""

import json
import struct
from pathlib import Path

import numpy as np

from fred.base import inputs
from fred.results import folder
from fred.running.stored import AboutUnit


def resigned(out: Path) -> None:
    """Bring the digests of files up to date, and units' own summaries to what summary.json says of them."""
    for row in json.loads((out / "summary.json").read_text()):
        own = out / row["name"] / f"seed-{row['seed']}"
        about = json.loads((own / "unit.json").read_text())
        about["files"] = {name: inputs.digest(own / name) for name in about["files"]}
        (own / "unit.json").write_text(AboutUnit.model_validate(about | {"summary": row}).signed().model_dump_json())
    resigned_manifest(out)


def resigned_manifest(out: Path) -> None:
    """Bring the manifest's digests up to date."""
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["files"] = {name: inputs.digest(out / name) for name in manifest["files"]}
    (out / "manifest.json").write_text(json.dumps(manifest | {"digest": folder._digest(manifest)}))


def idx(file: Path, numbers: np.ndarray) -> None:
    """Bytes in MNIST's format."""
    header = struct.pack(f">HBB{numbers.ndim}I", 0, 8, numbers.ndim, *numbers.shape)
    file.write_bytes(header + numbers.astype(np.uint8).tobytes())
