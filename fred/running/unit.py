"""The unit of work: one run with one seed, identified by a hash of everything its outcome depends on."""

import hashlib
import json
import uuid
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from fred.components import own_code, registry
from fred.components.component import own_classes
from fred.components.input_path import no_path
from fred.learning.data.dataset import data_digest
from fred.process import environment
from fred.specification.blame import blamed
from fred.specification.shape import Run
from fred.version import __version__


@dataclass(frozen=True)
class Unit:
    """One run with one seed. Raises FredError where its data cannot be read.

    Args:
        name: the run's, and of its folder in a result.
        run: all that is asked for.
        seed: of which it is one repetition.
        inline: how it is computed.

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
    data: str | None = field(init=False, compare=False)  # SHA-256; None: there are none, or they follow from options and seed
    environment: dict[str, str] = field(init=False, compare=False)  # the numeric one
    unknown: str = field(init=False, compare=False)  # why nobody can tell whether it has been done before, if so
    identity: str = field(init=False, compare=False)  # SHA-256 of everything that its outcome depends on

    def __post_init__(self) -> None:
        """Find out now what is sent along: later, or in another process, other modules of the user's may be loaded."""
        with blamed(self.name, self.run):
            object.__setattr__(self, "data", data_digest(self.run.task.data) if self.run.task else None)
        modules = {name.partition(":")[0] for name in own_classes(self.run)}
        object.__setattr__(self, "environment", environment.describe())
        object.__setattr__(self, "unknown", own_code.unknown(modules) if modules else "")
        object.__setattr__(self, "identity", self._identity())

    @property
    def folder(self) -> str:
        """Where, in a result folder, its files lie."""
        return f"{self.name}/seed-{self.seed}"

    @property
    def own(self) -> bool:
        """Whether classes of the user's own take part."""
        return bool(own_classes(self.run))

    def _identity(self) -> str:
        facts = {
            "name": self.name,
            "run": self.run.model_dump(mode="json", context={"paths": no_path}),
            "seed": self.seed,
            "inline": self.inline,
            "data": self.data,
            **circumstances(self.own),
            "unknown": uuid.uuid4().hex if self.unknown else "",  # never the same twice
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def circumstances(own: bool) -> dict[str, Any]:
    """Return what bits depend on beside what is asked for.

    Args:
        own: whether classes of the user's own take part.
    """
    return {
        "environment": environment.describe(),
        "fred": code_of_fred(),
        "own": own_code.facts() if own or registry.imported() else {},
        "installed": own_code.installed() if own else [],
    }


def code_of_fred() -> str:
    """FRED's version, and SHA-256 of its sources."""
    return f"{__version__} {_digest_of_fred()}"


@cache
def _digest_of_fred() -> str:
    sha, folder = hashlib.sha256(), Path(__file__).parents[1]
    for file in sorted(folder.rglob("*.py")):
        sha.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return sha.hexdigest()
