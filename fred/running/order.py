"""Orders to other processes: facts by which a process checks that it would compute the same results."""

import os
import pickle
import platform
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, NamedTuple

from fred.base import cached, compiled
from fred.base.errors import FredError
from fred.components import agreement, own_code, registry
from fred.running.unit import Unit


class Order(NamedTuple):
    """Facts sent to another process together with units."""

    imports: Sequence[str]
    expected: dict[str, str]  # must be the same there
    own: bool  # True if the user's own classes take part
    code: dict[str, str]  # modules of these classes and the files they read; must be the same in a process that has them
    number: str  # identifies the experiment
    cached: bool  # True if previously compiled programs may be used

    @classmethod
    def of(cls, units: Sequence[Unit]) -> "Order":
        """Return the order for these units, which will be computed elsewhere."""
        own = any(unit.own for unit in units)
        code = own_code.facts() if own else {}
        return cls(registry.imported(), agreement.here(), own, code, uuid.uuid4().hex, compiled.folder() is not None)

    def heeded(self) -> AbstractContextManager[None]:
        """Return a context that uses cached compiled programs only if the experiment allows it, however old the process."""
        return nullcontext() if self.cached else compiled.unused()

    def unpacked(self, packed: bytes) -> Any:
        """Return the unpickled content, in another process. Raises FredError in a process that would compute other results."""
        registry.allow_import(self.imports)
        self._compare()
        _forget_once(self.number, self.own)
        try:
            content = pickle.loads(packed)
        except (ImportError, AttributeError) as error:
            raise FredError(
                f"the user's classes cannot be loaded there ({error}); put them into a module, and allow it"
            ) from error
        self._compare()  # with modules that unpickling has loaded
        return content

    def _compare(self) -> None:
        try:
            differing = agreement.objection(self.expected, self.code)
        except FredError as error:  # nothing can be computed there
            differing = str(error)
        if differing:
            who = f"process {os.getpid()} on {platform.node()}"
            late = self.expected.get("unprepared")  # of the process that gives the order
            cure = "import fred before jax here" if late else "restart it with the same code and settings"
            raise FredError(f"{who} would compute other results: {differing}; {cure}")


@lru_cache(maxsize=1)
def _forget_once(number: str, own: bool) -> None:
    """Clear caches when the experiment is not the last one of this process."""
    cached.forget(compiled=own)
