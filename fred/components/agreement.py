"""Comparison of everything that determines the bits in two processes: FRED's code, the user's, the numeric environment."""

import hashlib
from functools import cache
from pathlib import Path

from fred.base import environment
from fred.base.version import __version__
from fred.components import own_code


def here() -> dict[str, str]:
    """Return everything that determines the bits in this process, except the user's own code."""
    return {"FRED": code_of_fred(), **environment.describe()}


def objection(expected: dict[str, str], code: dict[str, str]) -> str:
    """Return the differences between another process and this one, in words; empty if both would compute the same bits.

    Args:
        expected: the result of `here` in the other process.
        code: digests of the user's own code there; only parts that both processes have are compared.

    >>> objection(here(), {})
    ''
    """
    found, own = here(), own_code.facts()
    differing = [name for name in expected | found if expected.get(name) != found.get(name)]
    said = [_difference(name, expected.get(name, "usual"), found.get(name, "usual")) for name in differing]
    return "; ".join([*said, *(f"the {name} is not the same" for name in code if own.get(name, code[name]) != code[name])])


def code_of_fred() -> str:
    """Return FRED's version, and the SHA-256 of its sources."""
    return f"{__version__} {_digest_of_fred()}"


@cache
def _digest_of_fred() -> str:
    sha, folder = hashlib.sha256(), Path(__file__).parents[1]
    for file in sorted(folder.rglob("*.py")):
        sha.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return sha.hexdigest()


def _difference(name: str, expected: str, found: str) -> str:
    if name == "FRED":  # the digest would tell the user nothing
        return f"FRED's code is not the same (version {found.split()[0]} there, {expected.split()[0]} here)"
    return f"{name} is {found!r} there, {expected!r} here"
