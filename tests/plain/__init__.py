"""Recomputations by NumPy of every algorithm and codec, from their papers' rules and the recorded schedule alone.

Each file of this folder has a table `PLAIN`: an algorithm's name and the class that recomputes one replica of it.
"""

import importlib
import pkgutil
from typing import Any, NamedTuple

import numpy as np

from fred import batch_indices
from fred.components import registry
from fred.outcomes.outcome import Outcome
from tests.plain.base import Given, Plain
from tests.plain.codecs import Coded
from tests.recompute import PlainEqual, PlainLayers, recompute

PLAIN: dict[str, type[Plain]] = {}
for _found in pkgutil.iter_modules(__path__):
    _own = getattr(importlib.import_module(f"{__name__}.{_found.name}"), "PLAIN", {})
    assert not PLAIN.keys() & _own.keys(), f"recomputed twice: {PLAIN.keys() & _own.keys()}"
    PLAIN |= _own


class Recomputed(NamedTuple):
    """The result of a recomputation."""

    params: dict  # of the model that is evaluated
    models: list[dict]  # of the replicas of which it is the mean
    servers: list  # of each block of each replica


def recomputed(outcome: Outcome, plain: type[Plain] | None = None) -> Recomputed:
    """Recompute a run; `plain`: by another rule than its algorithm's own."""
    run, seed, blocks = outcome.run, outcome.seed, outcome.schedule.blocks
    assert run.task is not None
    name = registry.name_of("algorithm", run.algorithm)
    plain = plain or PLAIN[name]
    layout, data = run.protocol.layout(run.cluster), run.task.data.load(seed).train
    initial = {k: v.astype(float) for k, v in outcome.initial.items()}
    cut: Any = PlainLayers if layout.cut == "layers" else PlainEqual
    servers = []
    for replica in range(layout.replicas):
        for block in range(blocks):
            part = cut.cut(initial, block, blocks) if blocks > 1 else initial
            server: Any = plain(dict(part), Given(run, seed, replica, layout.replicas))
            server.like, server.cut, server.join = initial, cut.cut, cut.join
            servers.append(server)
    send, differ = _senders(outcome, plain, layout.local(run.cluster.size))
    size = run.task.batch_size

    def minibatch(worker: int, step: int) -> np.ndarray:
        indices = batch_indices(seed, worker, step, batch_size=size, examples=len(data))
        return indices[indices >= 0]  # without padding

    frame = outcome.schedule.frame()
    final = recompute(frame, servers, data.inputs, data.answers, minibatch, plain.model, send, differ)
    whole = [cut.join(final[at : at + blocks], initial) if blocks > 1 else final[at] for at in range(0, len(final), blocks)]
    answers = [whole[replica] for replica in layout.answer]
    mean = {k: np.mean([each[k] for each in answers], axis=0) for k in answers[0]}
    return Recomputed(plain.model(mean), [plain.model(each) for each in answers], servers)


def _senders(outcome: Outcome, plain: type[Plain], local: bool) -> tuple[Any, Any]:
    """Return what workers send of gradients, and of pseudo-gradients; their own steps' gradients are not coded."""
    codec = outcome.run.algorithm.codec
    coded = Coded(codec, registry.name_of("codec", codec), outcome.seed) if codec else lambda worker, message: message

    def uncoded(worker: int, params: dict, message: dict) -> dict:
        return plain.sent(worker, params, message)

    def sent(worker: int, params: dict, message: dict) -> dict:
        return plain.sent(worker, params, coded(worker, message))

    return (uncoded if local else sent), sent
