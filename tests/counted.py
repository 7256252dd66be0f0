"""Who watches which units are computed."""

from typing import Any

import pytest

from fred.running import work
from fred.running.execution import execute


class Counted:
    """Which units are computed, and on which one somebody stops it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stopped_at: int = 1000, by: type[BaseException] = KeyboardInterrupt):
        self.units: list[str] = []

        def counted(name: str, run: Any, seed: int, *more: Any) -> Any:
            if len(self.units) == stopped_at:
                raise by("stopped")
            self.units.append(f"{name}/seed-{seed}")
            return execute(name, run, seed, *more)

        monkeypatch.setattr(work, "execute", counted)
