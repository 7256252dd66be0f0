"""The scenarios that come with FRED. Their names have no path and no suffix: `quickstart`, `systems/ssp`."""

from collections.abc import Iterable
from pathlib import Path

from fred.base.errors import FredError
from fred.components import registry
from fred.components.input_path import SHIPPED

FOLDER = SHIPPED
SCHEMA = FOLDER / "schema.json"
LOOK_FOR = "# Look for: "  # the start of their first lines


def names() -> list[str]:
    """Return the names of all shipped scenarios, those outside folders first.
    >>> from fred.specification import shipped
    >>> shipped.names()[:4]
    ['cost', 'fair-links', 'learning-rates', 'learning-rules']
    """
    paths = [path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.glob("**/*.yaml")]
    return sorted(paths, key=lambda name: (name.count("/"), name))


def file_of(name: str) -> Path:
    """Return the file of a shipped scenario. Raises FredError, with the nearest name, if there is none."""
    if name not in names():
        raise FredError(f"{name}: no scenario of this name comes with FRED{_nearest(name)}; `fred scenarios` lists them")
    return FOLDER / f"{name}.yaml"


def located(path: Path) -> Path:
    """Return the file that a path or the name of a shipped scenario refers to. An existing file takes precedence over a name.

    Args:
        path: what the user wrote; relative to the current folder.

    Raises FredError, with the nearest file or name, if there is neither.
    """
    try:
        is_present = bool(path.lstat())
    except (FileNotFoundError, NotADirectoryError):
        is_present = False
    except (OSError, ValueError):  # reading the file will report what is wrong with it
        return path
    if str(path) in names() and (not is_present or path.is_dir()):
        return file_of(str(path))
    if path.is_dir():
        inside = ", ".join(str(file) for file in sorted(path.glob("*.yaml"))[:3]) or "FILE; `fred new FILE` starts one"
        raise FredError(f"{path} is a folder; expected a scenario file, such as {inside}")
    if not is_present:
        files = [str(file) for file in path.parent.glob("*.yaml")] if path.parent.is_dir() else []
        raise FredError(
            f"cannot read {path}: No such file, and no scenario of this name comes with FRED"
            f"{_nearest(str(path), files)}; `fred scenarios` lists those that do, `fred new FILE` starts one of your own"
        )
    return path


def name_of(file: Path) -> str:
    """Return the name of a shipped scenario from its file, links resolved; empty for any other file."""
    folder, path = FOLDER.resolve(), file.resolve()
    name = path.relative_to(folder).with_suffix("").as_posix() if path.is_relative_to(folder) else ""
    return name if name in names() else ""


def promise(name: str) -> str:
    """Return what to look for in a shipped scenario: its comment before the first key, as one line.
    >>> from fred.specification import shipped
    >>> shipped.promise("workloads/sentences")
    'compare the gradients in the same virtual time (throughput). Waiting for all means waiting for the longest ...'
    """
    lines = []
    for line in file_of(name).read_text(encoding="utf-8").splitlines():
        if not line.startswith("#") or "yaml-language-server" in line:
            break
        lines.append(line.removeprefix(LOOK_FOR).lstrip("# "))
    return " ".join(lines)


def _nearest(word: str, files: Iterable[str] = ()) -> str:
    """Return a suggestion: the scenarios of this name in any folder, or else the nearest spelling."""
    bare = word.removesuffix(".yaml").removeprefix("scenarios/")
    namesakes = [name for name in names() if bare == name or bare.rpartition("/")[2] == name.rpartition("/")[2]]
    if namesakes:
        return f"; did you mean {' or '.join(f'`{name}`' for name in namesakes)}?"
    return registry.nearest(word, files) or registry.nearest(bare, names())
