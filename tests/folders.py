"""Result folders as tests write, read and forge them, with every digest made to fit; files of data."""

import hashlib
import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fred.base import disk
from fred.base.disk import MANIFEST
from fred.results.folder import read_manifest


@contextmanager
def undrawn_results() -> Iterator[None]:
    """Write results without figures and page in a `with` block; for fixtures of a whole module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fred.results.folder.figures_drawn", lambda *_: nullcontext())
        patch.setattr("fred.results.folder.page", lambda *_: "")
        yield


def digests(out: Path) -> dict[str, dict[str, Any]]:
    """Return the digests of all units of a result."""
    return {row.folder: row.digests.model_dump() for row in read_manifest(out)[1]}


def resign(out: Path) -> None:
    """Bring the digests of files up to date, and units' own summaries to what summary.json says of them."""
    for row in json.loads((out / "summary.json").read_text()):
        resign_unit(out / row["name"] / f"seed-{row['seed']}", summary=row)
    resign_manifest(out)


def resign_unit(folder: Path, **changes: Any) -> None:
    """Change a unit's record, and bring its digests up to date, whatever else is wrong."""
    record = json.loads((folder / "unit.json").read_text()) | changes
    record["files"] = {name: disk.digest(folder / name) for name in record["files"]}
    (folder / "unit.json").write_text(_sign(record))


def resign_manifest(out: Path) -> None:
    """Bring the manifest's digests up to date."""
    manifest = json.loads((out / MANIFEST).read_text())
    manifest["files"] = {name: disk.digest(out / name) for name in manifest["files"]}
    (out / MANIFEST).write_text(_sign(manifest))


def _sign(document: dict[str, Any]) -> str:
    covered = json.dumps({name: value for name, value in document.items() if name != "digest"}, sort_keys=True)
    return json.dumps(document | {"digest": hashlib.sha256(covered.encode()).hexdigest()})


def idx(file: Path, numbers: np.ndarray) -> None:
    """Write bytes in MNIST's format."""
    header = struct.pack(f">HBB{numbers.ndim}I", 0, 8, numbers.ndim, *numbers.shape)
    file.write_bytes(header + numbers.astype(np.uint8).tobytes())
