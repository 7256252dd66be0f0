"""Paths of files and folders that a scenario names: seen from its folder, and needed by runs alone, not by their results."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, SerializationInfo, ValidationInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from fred.base.errors import FredError

SHIPPED = Path(__file__).parents[1] / "scenarios"  # in a checkout a link to `scenarios/`, which lies beside `fred/`


class UnreadError(FredError):
    """A check asks for the content of an input where a result is read, which needs none of them."""


class InputPath(str):
    """Type of an option: the path of a file or folder, as it is seen from the current folder.

    A scenario file's paths are relative to its folder, a manifest's to the folder in which the result lies.

    >>> from fred.components.component import Component
    >>> class Listed(Component):
    ...     file: InputPath
    >>> listed = Listed.model_validate({"file": "names.txt"}, context={"folder": Path("inputs")})
    >>> listed.file, listed.model_dump(context={"paths": lambda path: path.seen_from(Path("results"))})
    ('inputs/names.txt', {'file': '../inputs/names.txt'})
    """

    words: ClassVar[tuple[str, ...]] = ()  # values that are no paths
    place: Path  # absolute
    relative: bool  # as the user wrote it
    recorded: str  # as a manifest has it; empty: it was read from a scenario
    unread: bool  # whether the result is only looked at

    def __new__(cls, text: str, folder: Path = Path(), recorded: bool = False) -> Self:
        word = text in cls.words
        relative, recorded = not word and not Path(text).is_absolute(), recorded and not word
        path = folder / text if relative else Path(text)
        new = super().__new__(cls, _from_here(path) if relative and recorded else str(path))
        new.place = Path(os.path.normpath(_absolute(path))) if recorded else _absolute(path)
        new.relative, new.recorded, new.unread = relative, text if recorded else "", recorded
        return new

    @classmethod
    def of(cls, value: Any, info: ValidationInfo) -> Self:
        """Return the path as seen from the folder that pydantic's context names. Raises ValueError for anything else.

        Args:
            value: as a scenario, a manifest or a program has it.
            info: with `folder` (default: the current one), and `recorded`, if it is a manifest that is read.
        """
        context = info.context or {}
        if isinstance(value, cls):
            return value if context.get("recorded") else value.again()
        if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
            raise PydanticCustomError("path", "expected the path of a file or folder")
        return cls(str(value), Path(context.get("folder", ".")), bool(context.get("recorded")))

    def again(self) -> Self:
        """Return the same path, for a run that reads it."""
        new = type(self)(str(self))
        vars(new).update(vars(self), unread=False)
        return new

    def located(self) -> Path:
        """Return where to open it. Raises FredError if it belongs to a result and is not there any more."""
        if self.unread:
            raise UnreadError(f"{self} is not read where a result is looked at")
        if not self.recorded:
            return self._here
        name = self.place.name
        for path in (self._here, SHIPPED / self.recorded, Path(name)):
            with suppress(OSError):  # a name may be too long
                if path.exists():
                    return path
        raise FredError(
            f"cannot read {self}: No such file or folder, nor a {name} in the current folder; bring it back, or start the "
            "command in the folder that holds it"
        )

    def seen_from(self, folder: Path) -> str:
        """Return the path relative to a folder; an absolute one as the user wrote it, one of FRED's own as FRED names it.

        Args:
            folder: such as the one in which a result will lie.
        """
        if not self.relative:
            return str(self)
        place, shipped = self.place.parent.resolve() / self.place.name, SHIPPED.resolve()
        if place.is_relative_to(shipped):
            return place.relative_to(shipped).as_posix()
        return Path(os.path.relpath(place, folder.resolve())).as_posix()

    @property
    def _here(self) -> Path:
        """The path by which this process opens it, in whatever folder it stands by now."""
        return Path(self) if not self.relative or _absolute(Path(self)) == self.place else self.place

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(
            cls.of, serialization=core_schema.plain_serializer_function_ser_schema(_written, info_arg=True)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string", "format": "path"}


def name_alone(path: InputPath) -> str:
    """Write a path so that it is the same wherever the inputs lie."""
    return path.place.name


def no_path(path: InputPath) -> str:
    """Write a path as what takes no part in an identity: the digest of its content does."""
    return ""


def _written(path: InputPath, info: SerializationInfo) -> str:
    """Write a path as the context's `paths` say; by default as this process opens it."""
    how: Callable[[InputPath], str] | None = (info.context or {}).get("paths")
    return how(path) if how else str(path._here)


def _absolute(path: Path) -> Path:
    try:
        return path.absolute()
    except FileNotFoundError:  # the current folder is gone
        return path


def _from_here(path: Path) -> str:
    try:
        return os.path.relpath(path)
    except FileNotFoundError:
        return str(path)
