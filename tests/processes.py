"""The processes of this machine, from Linux's /proc."""

from pathlib import Path


def children(process: int) -> set[int]:
    """Return the processes that a process has started; none if it has ended."""
    try:
        return set(map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()))
    except (FileNotFoundError, ProcessLookupError):
        return set()
