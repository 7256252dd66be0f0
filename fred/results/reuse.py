"""Reuse of earlier work on a result: which units are cached, why others are not, and what an interrupted run leaves."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from fred.base import ownership
from fred.base.words import briefly
from fred.running import stored, work
from fred.running.unit import Unit


def reusable(units: list[Unit], stage: Path, path: Path) -> list[Unit]:
    """Return the units that need not be computed again: in the unfinished folder, or in the result that it will replace.

    Args:
        units: units that may be there.
        stage: the unfinished folder, to which units of the result are linked.
        path: path of the result.
    """
    kept = []
    for unit in units:
        if stored.whole(unit, stage / unit.folder):
            kept.append(unit)
        elif stored.whole(unit, path / unit.folder):
            shutil.rmtree(stage / unit.folder, ignore_errors=True)
            (stage / unit.folder).mkdir(parents=True)
            for name in [*stored.read(path / unit.folder, unit.run).about.files, stored.ABOUT]:
                stored.link(path / unit.folder / name, stage / unit.folder / name)
            kept.append(unit)
    return kept


def reasons_against(units: list[Unit], stage: Path, path: Path) -> dict[Unit, str]:
    """Return the reasons why existing or begun units cannot be reused; an empty reason if nothing exists.

    Args:
        units: units that cannot be reused.
        stage: the unfinished folder.
        path: path of the result.
    """
    found = {}
    for unit in units:
        reasons = [stored.objection(unit, place / unit.folder) for place in (stage, path)]
        reasons.append(unit.unknown if work.begun(unit, stage) else "")
        found[unit] = next(filter(None, reasons), "")
    return found


def recomputed_lines(reasons: Mapping[Unit, str], units: list[Unit]) -> tuple[str, ...]:
    """Return a line for each reason for which units were computed again.

    Args:
        reasons: the reason by unit.
        units: units of the result, computed or reused.
    """
    said: dict[str, list[str]] = {}
    for unit in units:
        if reasons.get(unit):
            said.setdefault(reasons[unit], []).append(f"{unit.name} with seed {unit.seed}")
    return tuple(f"{briefly(names, most=3)} computed again: {reason}" for reason, names in said.items())


def remains(units: list[Unit], number: int, stage: Path, path: Path) -> str:
    """Return, in words, what an interrupted run leaves; empty if nothing.

    Args:
        units: units that may be there.
        number: number of units of a complete run.
        stage: the unfinished folder.
        path: path of the result.
    """
    if not ownership.is_marked(stage, ownership.UNFINISHED):
        return f"the result is complete: {path}"
    done = sum(stored.lasting(unit, stage / unit.folder) for unit in units)  # incomplete ones have been removed
    begun = sum(work.begun(unit, stage) and not unit.unknown for unit in units)
    if done or begun:
        part = f", and part of {begun}" if begun else ""
        return f"{done} of {number} units are kept{part}; the same command goes on from there"
    for unit in units:
        if (stage / unit.folder / stored.ABOUT).exists():
            return f"finished units will be computed again: {stored.objection(unit, stage / unit.folder)}"
    return ""
