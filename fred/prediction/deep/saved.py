"""A trained model on disk: arrays in an NPZ file, and a JSON file next to it with everything else."""

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

from fred.base import disk
from fred.base.errors import FredError
from fred.components.component import Count, Natural, Positive
from fred.prediction.closed_loop import HeldBack
from fred.prediction.contract import By, Objective
from fred.prediction.hmm import HMM

FORMAT = 3
SHIPPED = Path(__file__).with_name("shipped.npz")  # made by `make golden` for the cluster of scenarios/systems/cutoff-sgd.yaml
Variant = Literal["shared", "plain", "printed"]


class ModelRecord(BaseModel):
    """The record of a trained model, apart from its parameters."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    format: int = FORMAT
    fred: str  # version
    environment: dict[str, str]
    variant: Variant
    workers: Count  # number of workers in the trace
    nodes: list[Natural]  # the node of each worker of the trace
    window: Count  # rounds
    normaliser: Positive  # twice the mean time of the trace, s
    objective: Objective  # default for rules without one
    by: By = "count-or-deadline"  # default for rules without one
    plainer: HMM | None = None  # a hidden Markov model of the same trace
    share: Annotated[float, Field(ge=0, le=1)] = 0.0  # weight of the plainer model in the prediction
    pace: tuple[Positive, Positive]  # best static cutoff: share of the workers, mean time in units of the normaliser
    bounds: tuple[float, float]  # range of nodes' mean (log) times in the trace, in these units; beliefs are clipped to it
    trace: str  # digest of the compute times of training
    steps: int
    learning_rate: float
    seed: int
    restart: Natural  # which of several trainings
    curve: list[float]  # loss per observed time, means of 50 steps, rounded: the last bits depend on the process
    held_back: HeldBack | None = None  # result in the last quarter of the trace; None: not evaluated
    digest: str = ""  # of the parameters and of everything that sets how they are used

    @property
    def parts(self) -> str:
        """Describe the parts of the model."""
        if self.variant != "shared":
            return "the network"
        if self.share == 0:
            return "its network alone"
        if self.share == 1:
            return "a hidden Markov model alone: its network is unused, as it gained nothing over that in held-out rounds"
        return f"its network and a hidden Markov model, which has a weight of {self.share:.0%}"

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if len(self.nodes) != self.workers or max(self.nodes) >= self.workers:
            raise ValueError(f"`nodes` must list the node number, from 0, of each of the {self.workers} workers")
        if self.bounds[0] > self.bounds[1]:
            raise ValueError("`bounds` must be in ascending order")
        if self.share and self.plainer is None:
            raise ValueError("`share` needs a `plainer` model; there is none")
        return self


@dataclass(frozen=True, eq=False)
class Trained:
    """The parameters of a trained model, with their record."""

    record: ModelRecord
    params: dict[str, dict[str, NDArray[np.float32]]]

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of the parameters and of everything that sets how they are used."""
        facts_of_training = "format", "variant", "workers", "nodes", "window", "normaliser", "trace"
        names = *facts_of_training, "objective", "by", "share", "pace", "bounds"
        plainer = self.record.plainer and self.record.plainer.model_dump(exclude_defaults=True)
        facts = json.dumps([*(getattr(self.record, name) for name in names), plainer])
        total = hashlib.sha256(facts.encode())
        for name, array in sorted(self._arrays_by_name().items()):
            total.update(f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return total.hexdigest()

    def with_record(self, **facts: Any) -> Self:
        """Return the same model with other facts in its record.

        Args:
            facts: values by the name of a field of `ModelRecord`, such as `objective`, `by` or `held_back`.
        """
        return replace(self, record=self.record.model_copy(update=facts))

    def without_plainer(self) -> Self:
        """Return the same model without a plainer model."""
        return self.mixed_with(None, 0.0)

    def mixed_with(self, plainer: HMM | None, share: float) -> Self:
        """Return the same model with a plainer model that has this weight in the prediction."""
        return self.with_record(plainer=plainer if share else None, share=share)

    def _arrays_by_name(self) -> dict[str, NDArray[np.float32]]:
        return {f"{layer}/{name}": np.asarray(array) for layer, arrays in self.params.items() for name, array in arrays.items()}

    def save(self, path: Path) -> None:
        """Write `path` (.npz) and its JSON file, each completely or not at all. Raises FredError."""
        record = self.record.model_copy(update={"digest": self.digest})
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(prefix=".fred-", dir=path.parent) as folder:
                npz_file, json_file = Path(folder) / path.name, Path(folder) / path.with_suffix(".json").name
                np.savez(npz_file, allow_pickle=False, **self._arrays_by_name())
                json_file.write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8")
                npz_file.replace(path)
                json_file.replace(path.with_suffix(".json"))
        except OSError as error:
            raise FredError(f"cannot write {path}: {error.strerror or error}") from error


_FILES: dict[Path, tuple[tuple[int, ...], Trained]] = {}  # models and the stamps of their files


def load_cached(path: Path) -> Trained:
    """Return a saved model, cached as long as its files do not change. Raises ValueError."""
    try:
        stats = path.stat(), path.with_suffix(".json").stat()
    except (OSError, ValueError) as error:  # a folder may have no name
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"cannot read {path}: {reason}; `fred train-cutoff` writes such a file") from None
    stamp = tuple(fact for stat in stats for fact in (stat.st_mtime_ns, stat.st_size))
    if path not in _FILES or _FILES[path][0] != stamp:
        _FILES[path] = stamp, load(path)
    return _FILES[path][1]


def load(path: Path) -> Trained:
    """Read files written by `save`. Raises ValueError for anything else, and for two files that do not belong together."""
    try:
        record = _read_record(path.with_suffix(".json"))
        arrays = disk.arrays(path)
    except FredError as error:
        raise ValueError(f"{error}; expected what `fred train-cutoff` writes") from None
    if record.format != FORMAT:
        raise ValueError(f"{path} has format {record.format}; this version reads format {FORMAT}")
    params: dict[str, dict[str, Any]] = {}
    for name, array in arrays.items():
        layer, _, part = name.partition("/")
        params.setdefault(layer, {})[part] = array
    trained = Trained(record, params)
    if trained.digest != record.digest:
        raise ValueError(f"{path} is not what its .json says (their digests differ); was one of them changed?")
    return trained


def _read_record(path: Path) -> ModelRecord:
    try:
        return ModelRecord.model_validate_json(disk.text(path))
    except ValidationError as error:
        problem = error.errors()[0]
        raise FredError(f"cannot read {path}: {'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None
