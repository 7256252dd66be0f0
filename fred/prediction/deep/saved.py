"""A trained model on disk: arrays in NPZ, everything else in JSON beside it, and where both come from."""

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fred.components.component import Count, Whole
from fred.errors import FredError
from fred.files import inputs
from fred.prediction.contract import By, Objective
from fred.prediction.held_back import HeldBack
from fred.prediction.hmm import HiddenMarkov

FORMAT = 3
SHIPPED = Path(__file__).with_name("shipped.npz")  # made by `make golden`; of the cluster of scenarios/systems/cutoff-sgd.yaml
Variant = Literal["shared", "plain", "printed"]
Positive = Annotated[float, Field(gt=0)]


class AboutModel(BaseModel):
    """What is known of a trained model beside its parameters."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    format: int = FORMAT
    fred: str  # version
    environment: dict[str, str]
    variant: Variant
    workers: Count  # of the trace
    nodes: list[Whole]  # the node of each worker of the trace
    window: Count  # rounds
    normaliser: Positive  # twice the mean time of the trace, s
    objective: Objective  # that a rule has which does not say
    by: By = "count-or-deadline"  # likewise
    plainer: HiddenMarkov | None = None  # of the same trace, asked as well
    share: Annotated[float, Field(ge=0, le=1)] = 0.0  # of what is expected that is the plainer model's
    pace: tuple[Positive, Positive]  # of the best static cutoff: share of the workers, mean time in these units
    bounds: tuple[float, float]  # of nodes' mean (log) times in the trace, in these units; none of another is believed
    trace: str  # digest of the run-times that it was trained on
    steps: int
    learning_rate: float
    seed: int
    restart: Whole  # which training of several
    curve: list[float]  # loss per observed time, means of 50 steps, to four places, as its last bits depend on the process
    held_back: HeldBack | None = None  # what it came to in the last quarter of the trace; none: nobody has looked
    digest: str = ""  # of the parameters and of what decides how they are used

    @property
    def parts(self) -> str:
        """Say what the model is made of."""
        if self.variant != "shared":
            return "the network"
        if self.share == 0:
            return "its network alone"
        if self.share == 1:
            return "a hidden Markov model alone: its network is not asked, as in rounds held back it won nothing beside that"
        return f"its network and a hidden Markov model, which counts for {self.share:.0%}"

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if len(self.nodes) != self.workers or max(self.nodes) >= self.workers:
            raise ValueError(f"`nodes` must be the numbers, from 0, of the nodes of {self.workers} workers")
        if self.bounds[0] > self.bounds[1]:
            raise ValueError("`bounds` must be in order")
        if self.share and self.plainer is None:
            raise ValueError("`share` is of a `plainer` model; there is none")
        return self


@dataclass(frozen=True, eq=False)
class Trained:
    """Parameters and where they come from."""

    about: AboutModel
    params: dict[str, dict[str, NDArray[np.float32]]]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the parameters and of what decides how they are used."""
        trained = "format", "variant", "workers", "nodes", "window", "normaliser", "trace"
        names = *trained, "objective", "by", "share", "pace", "bounds"
        plainer = self.about.plainer and self.about.plainer.model_dump(exclude_defaults=True)
        known = json.dumps([*(getattr(self.about, name) for name in names), plainer])
        total = hashlib.sha256(known.encode())
        for name, array in sorted(self._named().items()):
            total.update(f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return total.hexdigest()

    def aiming_at(self, objective: Objective) -> "Trained":
        """The same for another objective."""
        return replace(self, about=self.about.model_copy(update={"objective": objective}))

    def waiting(self, by: By) -> "Trained":
        """The same with rounds that end in another way."""
        return replace(self, about=self.about.model_copy(update={"by": by}))

    def alone(self) -> "Trained":
        """The same without a plainer model."""
        return self.beside(None, 0.0)

    def beside(self, plainer: HiddenMarkov | None, share: float) -> "Trained":
        """The same with a share of what a plainer model expects."""
        return replace(self, about=self.about.model_copy(update={"plainer": plainer if share else None, "share": share}))

    def judged(self, held_back: HeldBack) -> Self:
        """The same, with what it came to in rounds held back."""
        return replace(self, about=self.about.model_copy(update={"held_back": held_back}))

    def _named(self) -> dict[str, NDArray[np.float32]]:
        return {f"{layer}/{name}": np.asarray(array) for layer, arrays in self.params.items() for name, array in arrays.items()}

    def save(self, path: Path) -> None:
        """Write PATH (.npz) and its JSON, each whole or not at all. Raises FredError."""
        about = self.about.model_copy(update={"digest": self.digest})
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(prefix=".fred-", dir=path.parent) as folder:
                arrays, text = Path(folder) / path.name, Path(folder) / path.with_suffix(".json").name
                np.savez(arrays, allow_pickle=False, **self._named())
                text.write_text(about.model_dump_json(indent=2) + "\n", encoding="utf-8")
                arrays.replace(path)
                text.replace(path.with_suffix(".json"))
        except OSError as error:
            raise FredError(f"cannot write {path}: {error.strerror or error}") from error


def load(path: Path) -> Trained:
    """Read what `save` wrote. ValueError for anything else, and for files that do not belong together."""
    try:
        about = _about(path.with_suffix(".json"))
        named = inputs.arrays(path)
    except FredError as error:
        raise ValueError(f"{error}; expected what `fred train-cutoff` writes") from None
    if about.format != FORMAT:
        raise ValueError(f"{path} has format {about.format}; this version reads format {FORMAT}")
    params: dict[str, dict[str, Any]] = {}
    for name, array in named.items():
        layer, _, part = name.partition("/")
        params.setdefault(layer, {})[part] = array
    trained = Trained(about, params)
    if trained.digest != about.digest:
        raise ValueError(f"{path} is not what its .json says (their digests differ); was one of them changed?")
    return trained


def _about(path: Path) -> AboutModel:
    try:
        return AboutModel.model_validate_json(inputs.text(path))
    except ValidationError as error:
        first = error.errors()[0]
        raise FredError(f"cannot read {path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
