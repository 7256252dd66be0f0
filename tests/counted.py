"""A count of the units that are computed."""

from typing import Any

import pytest

from fred.running import work
from fred.running.execution import execute


class Counted:
    """The units that are computed, by folder; at one of them an exception can be raised."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stopped_at: int = 1000, by: type[BaseException] = KeyboardInterrupt):
        self.units: list[str] = []

        def counted(name: str, run: Any, seed: int, *more: Any) -> Any:
            if len(self.units) == stopped_at:
                raise by("stopped")
            self.units.append(f"{name}/seed-{seed}")
            return execute(name, run, seed, *more)

        monkeypatch.setattr(work, "execute", counted)
