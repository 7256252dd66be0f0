"""Whether another process would come to the same bits: by FRED's code, the user's own, and the numeric environment."""

from fred.components import own_code
from fred.outcomes.unit import code_of_fred
from fred.process import environment


def here() -> dict[str, str]:
    """What, beside the user's own code, decides the bits in this process."""
    return {"FRED": code_of_fred(), **environment.describe()}


def objection(expected: dict[str, str]) -> str:
    """What differs in this process from what is expected; empty if nothing does. Of the user's code what both have counts.

    Args:
        expected: facts by name, as `here` and the user's own code give them in another process.

    >>> objection(here())
    ''
    """
    found = here() | own_code.facts()
    differing = [name for name, value in expected.items() if found.get(name, value) != value]
    return "; ".join(_difference(name, expected[name], found[name]) for name in differing)


def _difference(name: str, expected: str, found: str) -> str:
    """In words; without the digests of the user's code and of variables."""
    if name == "FRED":
        return f"FRED's code is not the same (version {found.split()[0]} there, {expected.split()[0]} here)"
    return f"the {name} is not the same" if " " in name else f"{name} is {found!r} there, {expected!r} here"
