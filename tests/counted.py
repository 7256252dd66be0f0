"""A count of the units that are computed."""

import time
from typing import Any

import pytest

from fred.running import work
from fred.running.execution import execute


class Counted:
    """The units that are computed in this process, by folder; at one of them an exception can be raised.

    Before each of them it pauses, s, so that another process can take the next.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        stopped_at: int = 1000,
        by: type[BaseException] = KeyboardInterrupt,
        pause: float = 0.0,
    ):
        self.units: list[str] = []

        def counted(name: str, run: Any, seed: int, *more: Any) -> Any:
            if len(self.units) == stopped_at:
                raise by("stopped")
            self.units.append(f"{name}/seed-{seed}")
            time.sleep(pause)
            return execute(name, run, seed, *more)

        monkeypatch.setattr(work, "execute", counted)
