"""What reproductions share: where results go, Markdown tables, progress lines."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "reproductions"
_STARTED = time.monotonic()


def say(text: str) -> None:
    """A progress line with the time since the start."""
    print(f"[{time.monotonic() - _STARTED:6.0f} s] {text}", flush=True)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; numbers to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    numeric = [all(row[i][:1].isdigit() or row[i][:1] in ".-–+" for row in cells) for i in range(len(header))]
    rule = ["---:" if right else "---" for right in numeric]
    return "\n".join("| " + " | ".join(row) + " |" for row in (list(header), rule, *cells))
