"""Paths of input files and folders that a scenario names, relative to its folder. Reading a result does not need them."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, SerializationInfo, ValidationInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from fred.base.errors import FredError

SHIPPED = Path(__file__).parents[1] / "scenarios"  # in a checkout, a link to `scenarios/` next to `fred/`


class UnreadError(FredError):
    """Error of a check that needs an input file or a class of the user's while a result is read, which must work without."""


class InputPath(str):
    """Type of an option: the path of a file or folder, relative to the current folder.

    Paths in a scenario file are relative to its folder, those in a manifest to the result's folder.

    >>> from fred.components.component import Component
    >>> class Listed(Component):
    ...     file: InputPath
    >>> listed = Listed.model_validate({"file": "names.txt"}, context={"folder": Path("inputs")})
    >>> listed.file, listed.model_dump(context={"paths": lambda path: path.relative_to(Path("results"))})
    ('inputs/names.txt', {'file': '../inputs/names.txt'})
    """

    words: ClassVar[tuple[str, ...]] = ()  # values that are not paths
    place: Path  # absolute
    relative: bool  # as the user wrote it
    recorded: str  # path in the manifest; empty: the path comes from a scenario
    unread: bool  # True: a result is read, which must not read inputs

    def __new__(cls, text: str, folder: Path = Path(), recorded: bool = False) -> Self:
        """Return the path `text`, relative to `folder`; `recorded`: from a manifest, whose folder is that of the result."""
        is_word = text in cls.words
        relative, recorded = not is_word and not Path(text).is_absolute(), recorded and not is_word
        path = folder / text if relative else Path(text)
        # A recorded path leads out of the result's folder by `..`, so it is shortened.
        new = super().__new__(cls, _relative_to_current(path) if relative and recorded else str(path))
        new.place = Path(os.path.normpath(_absolute(path))) if recorded else _absolute(path)
        new.relative, new.recorded, new.unread = relative, text if recorded else "", recorded
        return new

    @classmethod
    def validate(cls, value: Any, info: ValidationInfo) -> Self:
        """Return the path, relative to the folder in pydantic's context. Raises ValueError for anything but a path.

        Args:
            value: the option's value in a scenario, a manifest or a program.
            info: pydantic's context, with `folder` (default: the current one), and `recorded` if a manifest is read.
        """
        context = info.context or {}
        if isinstance(value, cls):
            return value if context.get("recorded") else value.readable_copy()
        if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
            raise PydanticCustomError("path", "expected the path of a file or folder")
        return cls(str(value), Path(context.get("folder", ".")), bool(context.get("recorded")))

    def readable_copy(self) -> Self:
        """Return the same path, for a run that reads it."""
        new = type(self)(str(self))
        vars(new).update(vars(self), unread=False)
        return new

    def located(self) -> Path:
        """Return the path to open. Raises FredError if it belongs to a result and no longer exists."""
        if self.unread:
            raise UnreadError(f"{self} is not read when a result is read")
        if not self.recorded:
            return self._path_to_open
        name = self.place.name
        # Either the input or the result may have moved. A file that FRED ships is recorded relative to `SHIPPED`.
        for path in (self._path_to_open, SHIPPED / self.recorded, Path(name)):
            with suppress(OSError):  # a name may be too long
                if path.exists():
                    return path
        raise FredError(
            f"cannot read {self}: No such file or folder, nor a {name} in the current folder; bring it back, or start the "
            "command in the folder that holds it"
        )

    def relative_to(self, folder: Path) -> str:
        """Return the path relative to a folder.

        An absolute path stays as the user wrote it. A file that FRED ships is relative to FRED's scenarios.

        Args:
            folder: a folder, such as that of a result.
        """
        if not self.relative:
            return str(self)
        place = self.place.parent.resolve() / self.place.name  # a file that is a link itself keeps its name
        shipped = SHIPPED.resolve()
        if place.is_relative_to(shipped):
            return place.relative_to(shipped).as_posix()
        return Path(os.path.relpath(place, folder.resolve())).as_posix()

    @property
    def _path_to_open(self) -> Path:
        """The path to open, even if the current folder has changed."""
        return Path(self) if not self.relative or _absolute(Path(self)) == self.place else self.place

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(
            cls.validate, serialization=core_schema.plain_serializer_function_ser_schema(_serialize, info_arg=True)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string", "format": "path"}


def file_instead(options: Any, info: ValidationInfo, key: str, option: str) -> Path | None:
    """Return the file that options name in place of the option that it holds; None if they name none.

    Raises ValueError if both are given, FredError if the file belonged to a result and is gone.

    Args:
        options: what a component's validator gets before the fields are read.
        info: pydantic's context, as in `InputPath.validate`.
        key: option that names the file.
        option: option that the file's content becomes.
    """
    if not isinstance(options, dict) or not options.get(key):
        return None
    if options.get(option):
        raise ValueError(f"give `{option}` or `{key}`, not both")
    return InputPath.validate(options[key], info).located()


def name_alone(path: InputPath) -> str:
    """Return the file name alone, which does not depend on the inputs' folder."""
    return path.place.name


def no_path(path: InputPath) -> str:
    """Return an empty text: paths are not part of an identity, because the digest of the content is."""
    return ""


def _serialize(path: InputPath, info: SerializationInfo) -> str:
    """Return a path as the context's function `paths` writes it; by default the path to open."""
    write: Callable[[InputPath], str] | None = (info.context or {}).get("paths")
    return write(path) if write else str(path._path_to_open)


def _absolute(path: Path) -> Path:
    try:
        return path.absolute()
    except FileNotFoundError:  # the current folder is gone
        return path


def _relative_to_current(path: Path) -> str:
    try:
        return os.path.relpath(path)
    except FileNotFoundError:
        return str(path)
