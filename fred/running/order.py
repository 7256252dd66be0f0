"""What another process is told beside its units, by which it finds out whether it would come to the same."""

import os
import pickle
import platform
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, NamedTuple

from fred.components import own_code, registry
from fred.errors import FredError
from fred.process import compiled, remembered
from fred.running import agreement
from fred.running.unit import Unit


class Order(NamedTuple):
    """What another process is told beside its units."""

    imports: Sequence[str]
    expected: dict[str, str]  # what has to be the same there
    own: bool  # whether classes of the user's own take part
    code: dict[str, str]  # these classes' modules and what they read; where a process has them, they have to be the same
    number: str  # of the experiment
    cached: bool  # whether programs that were compiled before may be used

    @classmethod
    def of(cls, units: Sequence[Unit]) -> "Order":
        """Make the order for these units, which are to be computed elsewhere."""
        own = any(unit.own for unit in units)
        code = own_code.facts() if own else {}
        return cls(registry.imported(), agreement.here(), own, code, uuid.uuid4().hex, compiled.folder() is not None)

    def heeded(self) -> AbstractContextManager[None]:
        """While it lasts, what was compiled before is used only where the experiment may, by however old a process."""
        return nullcontext() if self.cached else compiled.unused()

    def unpacked(self, packed: bytes) -> Any:
        """What was pickled here, in another process. Raises FredError in one that would come to something else."""
        registry.allow_import(self.imports)
        self._compare()
        _forget_once(self.number, self.own)
        try:
            content = pickle.loads(packed)
        except (ImportError, AttributeError) as error:
            raise FredError(
                f"the user's classes cannot be loaded there ({error}); put them into a module, and allow it"
            ) from error
        self._compare()  # with modules that were loaded by this alone
        return content

    def _compare(self) -> None:
        try:
            differing = agreement.objection(self.expected, self.code)
        except FredError as error:  # nothing can be computed there
            differing = str(error)
        if differing:
            who = f"process {os.getpid()} on {platform.node()}"
            raise FredError(f"{who} would not come to the same: {differing}; start it anew, with the same code and settings")


@lru_cache(maxsize=1)
def _forget_once(number: str, own: bool) -> None:
    """When an experiment is not the one that this process was at last."""
    remembered.forget(compiled=own)
