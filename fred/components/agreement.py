"""Comparison of everything that determines the bits in two processes: FRED's code, the user's, the numeric environment."""

import hashlib
from functools import cache
from pathlib import Path

from fred.base import environment
from fred.base.environment import __version__
from fred.components import own_code


def local_facts() -> dict[str, str]:
    """Return everything that determines the bits in this process, except the user's own code."""
    return {"FRED": code_of_fred(), **environment.describe()}


def objection(expected: dict[str, str], code: dict[str, str]) -> str:
    """Return the differences between another process and this one, in words; empty if both would compute the same bits.

    Args:
        expected: the result of `local_facts` in the other process.
        code: digests of the user's own code there; only parts that both processes have are compared.

    >>> objection(local_facts(), {})
    ''
    """
    local, local_code = local_facts(), own_code.facts()
    differing = [name for name in expected | local if expected.get(name) != local.get(name)]
    reasons = [_difference(name, expected.get(name, "usual"), local.get(name, "usual")) for name in differing]
    reasons += [f"the {name} is not the same" for name in code if local_code.get(name, code[name]) != code[name]]
    return "; ".join(reasons)


def code_of_fred() -> str:
    """Return FRED's version, and the SHA-256 of its sources."""
    return f"{__version__} {_digest_of_fred()}"


@cache
def _digest_of_fred() -> str:
    sha, folder = hashlib.sha256(), Path(__file__).parents[1]
    for file in sorted(folder.rglob("*.py")):
        sha.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return sha.hexdigest()


def _difference(name: str, expected: str, local: str) -> str:
    if name == "FRED":  # the digest would tell the user nothing
        return f"FRED's code is not the same (version {local.split()[0]} there, {expected.split()[0]} here)"
    return f"{name} is {local!r} there, {expected!r} here"
