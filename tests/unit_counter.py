"""A count of the units that are computed."""

import time
from typing import Any

import pytest

from fred.running import execution
from fred.running.execution import execute


class UnitCounter:
    """Count the units that this process computes, by folder; raise an exception at unit number `interrupt_at`.

    It pauses (s) before each unit, so that another process can take the next.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        interrupt_at: int = 1000,
        by: type[BaseException] = KeyboardInterrupt,
        pause: float = 0.0,
    ):
        self.units: list[str] = []

        def execute_counted(name: str, run: Any, seed: int, *args: Any) -> Any:
            if len(self.units) == interrupt_at:
                raise by("stopped")
            self.units.append(f"{name}/seed-{seed}")
            time.sleep(pause)
            return execute(name, run, seed, *args)

        monkeypatch.setattr(execution, "execute", execute_counted)
