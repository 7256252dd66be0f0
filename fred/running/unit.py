"""The unit of work: one run with one seed, identified by a hash of everything its outcome depends on."""

import hashlib
import json
import uuid
from dataclasses import dataclass, field
from typing import Any

from fred.base import environment
from fred.components import own_code, registry
from fred.components.agreement import code_of_fred
from fred.components.component import objects_of, own_classes
from fred.components.input_path import no_path
from fred.learning.data.dataset import data_digest
from fred.specification.run_names import blamed
from fred.specification.shape import Run


@dataclass(frozen=True)
class Unit:
    """One run with one seed. Raises FredError if its data cannot be read.

    Args:
        name: name of the run, and of its folder in a result.
        run: specification of the run.
        seed: seed of this repetition.
        inline: True if timing and arithmetic are computed at once.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2}, algorithm={"name": "asgd", "learning_rate": 0.1}, stop={"updates": 4}
    ... )
    >>> one, same, other = (Unit("asgd", scenario.runs["asgd"], seed) for seed in (0, 0, 1))
    >>> one.identity == same.identity, one.identity == other.identity
    (True, False)
    """

    name: str
    run: Run
    seed: int
    inline: bool = False
    data: str | None = field(init=False, compare=False)  # SHA-256; None: no data, or data generated from options and seed
    environment: dict[str, str] = field(init=False, compare=False)  # numeric environment
    unknown: str = field(init=False, compare=False)  # why its identity is incomplete, hence not cached
    identity: str = field(init=False, compare=False)  # SHA-256 of everything that its outcome depends on

    def __post_init__(self) -> None:
        """Determine everything now that is sent along: later, or in another process, the user's modules may differ."""
        with blamed(self.name, self.run):
            object.__setattr__(self, "data", data_digest(self.run.task.data) if self.run.task else None)
        modules = {name.partition(":")[0] for name in own_classes(self.run)}
        object.__setattr__(self, "environment", environment.describe())
        unread = [f"the content of `{each.kind}` cannot be read" for each in objects_of(self.run) if not each.digest]
        object.__setattr__(self, "unknown", next(iter(unread), own_code.unknown(modules) if modules else ""))
        object.__setattr__(self, "identity", self._identity())

    @property
    def folder(self) -> str:
        """Return the path of its files in a result folder."""
        return f"{self.name}/seed-{self.seed}"

    @property
    def own(self) -> bool:
        """Return True if the user's own classes take part."""
        return bool(own_classes(self.run))

    def _identity(self) -> str:
        facts = {
            "name": self.name,
            "run": self.run.model_dump(mode="json", context={"paths": no_path}),
            "seed": self.seed,
            "inline": self.inline,
            "data": self.data,
            **circumstances(self.own, bool(objects_of(self.run))),
            "unknown": uuid.uuid4().hex if self.unknown else "",  # never the same twice
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def circumstances(own: bool, objects: bool = False) -> dict[str, Any]:
    """Return everything except the specification that the bits depend on.

    Args:
        own: True if the user's own classes take part.
        objects: True if objects of other libraries take part.
    """
    return {
        "environment": environment.describe(),
        "fred": code_of_fred(),
        "own": own_code.facts() if own or registry.imported() else {},
        "installed": own_code.installed() if own or objects else [],
    }
