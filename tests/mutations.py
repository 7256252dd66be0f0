"""Scenario files with mistakes in them, each a function of one seed; for the fuzzer of refusals."""

import re
from pathlib import Path

import numpy as np

_SCENARIOS = Path(__file__).parent.parent / "scenarios"

_VALUES = r"""|~|true|[]|{}|[[]]|{name: }|{name: [1]}|{name: {name: x}}|- 1|? 1|*a|&a [*a]|<<: 1|-1|0|1|1.5|-0.0|1e-320|1e-9
1e9|1e30|1e400|.nan|.inf|-.inf|0x7fffffffffffffff|2147483647|9223372036854775808|NINES|HEX|1_000|0o17|1:30
2001-99-99|2001-01-01|!!bool maybe|!!int x|!!float ''|!!binary x|!!python/object/apply:os.getcwd []|!!set {a}
!!omap [a: 1]|"\ud800"|"\x00"|"\x1b[31m"|ß😀|LONG|../../etc/passwd|/dev/zero|os:system|tests.users:Flax|asgd
wagma-sgd|gossip|complete|mnist|cnn|pareto|empirical|adam|shuffled|apart"""
_LONG = {"NINES": "9" * 5000, "HEX": "0x" + "f" * 6000, "LONG": "a" * 3000}
NASTY = tuple(_LONG.get(value, value) for value in _VALUES.replace("\n", "|").split("|"))


def mutate(seed: int) -> str:
    """A scenario file with one to three mistakes."""
    draw = np.random.default_rng(seed)
    files = sorted(_SCENARIOS.rglob("*.yaml"))
    lines = files[draw.integers(len(files))].read_text(encoding="utf-8").splitlines()
    for _ in range(draw.integers(1, 4)):
        at, other = (int(number) for number in draw.integers(len(lines), size=2))
        nasty = NASTY[draw.integers(len(NASTY))]
        values = list(re.finditer(r"(?<=[:\[,{] )[^,\]\[{}#]+|[\w.+-]+", lines[at]))
        if draw.random() < 0.7 and values:
            place = values[draw.integers(len(values))]
            lines[at] = lines[at][: place.start()] + nasty + lines[at][place.end() :]
        else:
            lines = _edit(lines, at, other, nasty, int(draw.integers(8))) or lines
    return "\n".join(lines) + "\n"


def _edit(lines: list[str], at: int, other: int, nasty: str, kind: int) -> list[str]:
    """The lines after an accident of some kind at one of them."""
    before, line, after = lines[:at], lines[at], lines[at + 1 :]
    cut, moved = line[: other % (len(line) + 1)], [lines[other], line]
    middle = [moved, [], [line.replace(":", "", 1)], ["  " + line], [cut], [f"{nasty}: {nasty}", line], [line.lstrip()]]
    return before + middle[kind] + after if kind < len(middle) else before
