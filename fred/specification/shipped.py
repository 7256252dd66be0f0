"""The scenarios that come with FRED, which are named without path or suffix: `quickstart`, `systems/ssp`."""

from collections.abc import Iterable
from pathlib import Path

from fred.components import registry
from fred.components.input_path import SHIPPED
from fred.errors import FredError

FOLDER = SHIPPED
SCHEMA = FOLDER / "schema.json"
LOOK_FOR = "# Look for: "  # how their first lines begin


def names() -> list[str]:
    """The names of all, those of no folder first.

    >>> from fred.specification import shipped
    >>> shipped.names()[:4]
    ['learning-rates', 'learning-rules', 'quickstart', 'backup-workers/clipping']
    """
    found = [path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.glob("**/*.yaml")]
    return sorted(found, key=lambda name: (name.count("/"), name))


def file_of(name: str) -> Path:
    """The file of the scenario of this name. Raises FredError with the nearest one."""
    if name not in names():
        raise FredError(f"{name}: no scenario of this name comes with FRED{_nearest(name)}; `fred scenarios` lists them")
    return FOLDER / f"{name}.yaml"


def located(path: Path) -> Path:
    """The file that is meant by a path, or by the name of a shipped scenario. What exists under a path goes before a name.

    Args:
        path: as the user wrote it, seen from the current folder.

    Raises FredError, with the nearest file or name, where there is neither.
    """
    try:
        there = bool(path.lstat())
    except (FileNotFoundError, NotADirectoryError):
        there = False
    except (OSError, ValueError):  # whoever reads it says what is wrong with it
        return path
    if str(path) in names() and (not there or path.is_dir()):
        return file_of(str(path))
    if not there:
        beside = [str(each) for each in path.parent.glob("*.yaml")] if path.parent.is_dir() else []
        raise FredError(
            f"cannot read {path}: No such file, and no scenario of this name comes with FRED"
            f"{_nearest(str(path), beside)}; `fred scenarios` lists those that do, `fred new FILE` begins one of your own"
        )
    return path


def name_of(file: Path) -> str:
    """The name of a shipped scenario's file, however it was reached; of any other one, nothing."""
    folder, found = FOLDER.resolve(), file.resolve()
    name = found.relative_to(folder).with_suffix("").as_posix() if found.is_relative_to(folder) else ""
    return name if name in names() else ""


def promise(name: str) -> str:
    """What to look for in a shipped scenario: its comment before the first key, as one line.

    >>> from fred.specification import shipped
    >>> shipped.promise("workloads/sentences")
    'gradients within the same virtual time (throughput); who waits for all waits for whoever has drawn the longest ...'
    """
    lines = []
    for line in file_of(name).read_text(encoding="utf-8").splitlines():
        if not line.startswith("#") or "yaml-language-server" in line:
            break
        lines.append(line.removeprefix(LOOK_FOR).lstrip("# "))
    return " ".join(lines)


def _nearest(word: str, beside: Iterable[str] = ()) -> str:
    """A suggestion: a scenario that has this last name, in whichever folder; else what is spelt most nearly so."""
    bare = word.removesuffix(".yaml").removeprefix("scenarios/")
    same = [name for name in names() if bare == name or bare.rpartition("/")[2] == name.rpartition("/")[2]]
    if same:
        return f"; did you mean {' or '.join(f'`{name}`' for name in same)}?"
    return registry.nearest(word, beside) or registry.nearest(bare, names())
