"""Comparison of everything that determines the bits in two processes: FRED's code, the user's, the numeric environment."""

from fred.base import environment
from fred.components import own_code
from fred.running.unit import code_of_fred


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


def _difference(name: str, expected: str, found: str) -> str:
    if name == "FRED":  # the digest would tell the user nothing
        return f"FRED's code is not the same (version {found.split()[0]} there, {expected.split()[0]} here)"
    return f"{name} is {found!r} there, {expected!r} here"
