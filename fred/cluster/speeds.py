"""Bandwidths by the names of network cards: Ethernet [IEEE 802.3], and four lanes of InfiniBand [IBTA's roadmap]."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

SPEEDS = {  # name -> bytes/s, before headers
    "1GbE": 0.125e9,
    "10GbE": 1.25e9,
    "25GbE": 3.125e9,
    "40GbE": 5e9,
    "100GbE": 12.5e9,
    "200GbE": 25e9,
    "400GbE": 50e9,
    "EDR": 12.5e9,
    "HDR": 25e9,
    "NDR": 50e9,
}


def bytes_per_second(value: Any) -> Any:
    """Return the bandwidth of a card in bytes/s, or a number as it is.

    Args:
        value: name of a card, or a number.

    Raises ValueError for another name.

    >>> bytes_per_second("10GbE"), bytes_per_second(1e6)
    (1250000000.0, 1000000.0)
    """
    if not isinstance(value, str) or _is_number(value):
        return value
    if value not in SPEEDS:
        raise ValueError(f"unknown card `{value}`; expected bytes/s, or one of {', '.join(SPEEDS)}")
    return SPEEDS[value]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


Bandwidth = Annotated[
    float,
    Field(gt=0),
    BeforeValidator(bytes_per_second),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"enum": list(SPEEDS)}]}),
]
