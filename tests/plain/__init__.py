"""Recomputations by NumPy of every algorithm and codec, from their papers' rules and the recorded schedule alone.

Each file of this folder has a table `PLAIN_CLASSES`: an algorithm's name and the class that recomputes one replica of it.
"""

import importlib
import pkgutil
from typing import Any, NamedTuple

import numpy as np

from fred import batch_indices
from fred.components import registry
from fred.outcomes.outcome import Outcome
from tests.plain.base import Context, Plain
from tests.plain.codecs import Coded
from tests.recompute import PlainEqual, PlainLayers, recompute

PLAIN_CLASSES: dict[str, type[Plain]] = {}
for _module in pkgutil.iter_modules(__path__):
    _systems = getattr(importlib.import_module(f"{__name__}.{_module.name}"), "PLAIN_CLASSES", {})
    assert not PLAIN_CLASSES.keys() & _systems.keys(), f"recomputed twice: {PLAIN_CLASSES.keys() & _systems.keys()}"
    PLAIN_CLASSES |= _systems


class Recomputed(NamedTuple):
    """The result of a recomputation."""

    params: dict  # of the model that is evaluated
    models: list[dict]  # of the replicas of which it is the mean
    servers: list  # of each block of each replica


def recompute_run(outcome: Outcome, system: type[Plain] | None = None) -> Recomputed:
    """Recompute a run; `system`: by another rule than that of its algorithm."""
    run, seed, blocks = outcome.run, outcome.seed, outcome.schedule.blocks
    assert run.task is not None
    name = registry.name_of("algorithm", run.algorithm)
    system = system or PLAIN_CLASSES[name]
    layout, data = run.protocol.layout(run.cluster), run.task.data.load(seed).train
    initial = {k: v.astype(float) for k, v in outcome.initial.items()}
    cut: Any = PlainLayers if layout.cut == "layers" else PlainEqual
    servers = []
    for replica in range(layout.replicas):
        for block in range(blocks):
            part = cut.cut(initial, block, blocks) if blocks > 1 else initial
            server: Any = system(dict(part), Context(run, seed, replica, layout.replicas))
            server.like, server.cut, server.join = initial, cut.cut, cut.join
            servers.append(server)
    send, differ = _senders(outcome, system, layout.local(run.cluster.size))
    size = run.task.batch_size

    def minibatch(worker: int, step: int) -> np.ndarray:
        indices = batch_indices(seed, worker, step, batch_size=size, examples=len(data))
        return indices[indices >= 0]  # without padding

    frame = outcome.schedule.frame()
    final = recompute(frame, servers, data.inputs, data.answers, minibatch, system.model, send, differ)
    models = [cut.join(final[at : at + blocks], initial) if blocks > 1 else final[at] for at in range(0, len(final), blocks)]
    answers = [models[replica] for replica in layout.answer]
    mean = {k: np.mean([model[k] for model in answers], axis=0) for k in answers[0]}
    return Recomputed(system.model(mean), [system.model(model) for model in answers], servers)


def _senders(outcome: Outcome, system: type[Plain], local: bool) -> tuple[Any, Any]:
    """Return what workers send of gradients, and of pseudo-gradients; their own steps' gradients are not coded."""
    codec = outcome.run.algorithm.codec
    coded = Coded(codec, registry.name_of("codec", codec), outcome.seed) if codec else lambda worker, message: message

    def uncoded(worker: int, params: dict, message: dict) -> dict:
        return system.sent_message(worker, params, message)

    def coded_message(worker: int, params: dict, message: dict) -> dict:
        return system.sent_message(worker, params, coded(worker, message))

    return (uncoded if local else coded_message), coded_message
