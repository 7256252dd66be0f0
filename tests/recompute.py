"""A plain NumPy program that knows nothing of FRED but its files' format, and recomputes a run from the schedule alone.

Only `recompute_by` knows where a run has its data and its minibatches.
"""

from typing import Any

import numpy as np
import pandas as pd

from fred import batch_indices
from fred.outcomes.outcome import Outcome


def measure(params: dict, inputs: np.ndarray, answers: np.ndarray) -> tuple[float, float]:
    """Return the mean cross-entropy of a network, as `gradient` has it, and the share of wrong answers."""
    if "weights" in params:
        params = {f"layer0/{name}": values for name, values in params.items()}
    z = inputs.reshape(len(inputs), -1).astype(float)
    for i in range(len(params) // 2):
        z = (np.maximum(z, 0) if i else z) @ params[f"layer{i}/weights"] + params[f"layer{i}/biases"]
    z = z - z.max(axis=1, keepdims=True)
    losses = np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(z)), answers]
    return float(losses.mean()), float((z.argmax(axis=1) != answers).mean())


def gradient(params: dict, inputs: np.ndarray, answers: np.ndarray) -> dict:
    """Gradient of the mean cross-entropy of a ReLU network with layers `layer0`, `layer1`, ..., or one alone, in double precision."""
    if "weights" in params:
        layered = gradient({f"layer0/{name}": values for name, values in params.items()}, inputs, answers)
        return {name: layered[f"layer0/{name}"] for name in params}
    depth = len(params) // 2
    activations = [inputs.reshape(len(inputs), -1).astype(float)]
    for i in range(depth):
        z = activations[-1] @ params[f"layer{i}/weights"] + params[f"layer{i}/biases"]
        activations.append(np.maximum(z, 0) if i < depth - 1 else z)
    scores = np.exp(activations[-1] - activations[-1].max(axis=1, keepdims=True))
    delta = scores / scores.sum(axis=1, keepdims=True)
    delta[np.arange(len(answers)), answers] -= 1
    delta /= len(answers)
    result = {}
    for i in reversed(range(depth)):
        result[f"layer{i}/weights"] = activations[i].T @ delta
        result[f"layer{i}/biases"] = delta.sum(axis=0)
        delta = (delta @ params[f"layer{i}/weights"].T) * (activations[i] > 0)
    return result


class PlainSGD:
    """theta <- theta - rate x scale(staleness) x g, for single gradients and for the mean of a round."""

    def __init__(self, params: dict, rate: float, scale=lambda staleness: 1.0):
        self.params, self.rate, self.scale = params, rate, scale

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        """Update with one message, or (`count` > 0) with the total of a round."""
        step = self.rate * self.scale(staleness)
        self.params = self.params | {k: self.params[k] - step * g for k, g in grads.items()}

    def contribution(self, message: dict, staleness: int) -> dict:
        """Return the part of a message that joins a round."""
        return message

    def published(self) -> dict:
        """Return the model that workers read."""
        return self.params

    def meet(self, mixed: dict, keep: float, weight: float) -> None:
        """Synchronise with a mailbox."""
        self.params = {k: keep * array + weight * mixed[k] for k, array in self.params.items()}


class PlainEqual(PlainSGD):
    """One server's equal part of every array."""

    def __init__(self, params: dict, rate: float, number: int, servers: int):
        super().__init__(self.cut(params, number, servers), rate)
        self.like = params

    @staticmethod
    def cut(params: dict, number: int, servers: int) -> dict:
        """The number-th of equal runs of every array's elements."""
        sizes = {k: -(-p.size // servers) for k, p in params.items()}
        return {
            k: np.resize(np.append(p, [0] * servers), sizes[k] * servers).reshape(servers, -1)[number]
            for k, p in params.items()
        }

    @staticmethod
    def join(shards: list, like: dict) -> dict:
        """Arrays shaped `like` these from all servers' parts."""
        return {k: np.concatenate([shard[k] for shard in shards])[: p.size].reshape(p.shape) for k, p in like.items()}


class PlainLayers:
    """Cuts parameters into the layers of several servers."""

    @staticmethod
    def cut(params: dict, number: int, servers: int) -> dict:
        """Return as many layers as there are servers."""
        assert len({k.split("/")[0] for k in params}) == servers
        return {k: p for k, p in params.items() if k.startswith(f"layer{number}/")}

    @staticmethod
    def join(shards: list, like: dict) -> dict:
        """All layers."""
        return {k: p for shard in shards for k, p in shard.items()}


def recompute(
    schedule: pd.DataFrame,
    servers: list,
    inputs: np.ndarray,
    answers: np.ndarray,
    minibatch,
    model=dict,
    send=lambda worker, params, message: message,
    differ=None,
) -> list:
    """Walk through the rows and do what they say; `minibatch(worker, step)` gives example indices.

    One server per replica, or one per block of the only replica. `model` makes the model of a replica's parameters, `send`
    what a worker sends (`differ`, of differences, if that is another thing). Returns each server's parameters at the end.
    """
    blocks = int(schedule["block"].max()) + 1
    mailboxes: dict = {}  # number -> block -> (parameters, clock)
    contributions: list = [[] for _ in servers]
    clocks = [0] * len(servers)
    sent: dict = {}  # messages by worker and step, or by mailboxes

    def read_params(mailbox: int) -> dict:
        parts = [mailboxes[mailbox][block][0] for block in range(blocks)]
        return parts[0] if blocks == 1 else servers[0].join(parts, servers[0].like)

    def message_of(row) -> dict:
        key = (row.worker, row.step) if row.step >= 0 else ("pseudo-gradient", row.worker, row.source, row.mailbox)
        if key not in sent and row.step < 0:
            before, after = model(read_params(row.source)), model(read_params(row.mailbox))
            sent[key] = (differ or send)(row.worker, before, {k: before[k] - after[k] for k in before})
        elif key not in sent:
            indices, params = minibatch(*key), model(read_params(row.mailbox))
            sent[key] = send(row.worker, params, gradient(params, inputs[indices], answers[indices]))
        message = sent[key]
        origin = row.mailbox if row.step >= 0 else row.source
        cell = row.replica * blocks + row.block
        timestamp = mailboxes[origin][row.block][1]
        assert (timestamp, clocks[cell] - timestamp) == (row.timestamp, row.staleness)
        return message if blocks == 1 else servers[0].cut(message, row.block, blocks)

    row: Any
    for row in schedule.itertuples():
        cell = row.replica * blocks + row.block
        if row.verb == "PULL":
            mailboxes[row.mailbox] = {row.block: (servers[cell].published(), clocks[cell])}
        elif row.verb == "PUSH":
            servers[cell].update(message_of(row), row.staleness)
        elif row.verb == "ADD":
            part = servers[cell].contribution(message_of(row), row.staleness)
            contributions[cell].append({k: row.weight * p for k, p in part.items()})
        elif row.verb == "COMMIT":
            parts, contributions[cell] = contributions[cell], []
            total = {k: row.weight * sum(part[k] for part in parts) for k in (parts[0] if parts else servers[cell].params)}
            servers[cell].update(total, 0, len(parts))
        elif row.verb == "MIX":
            source, clock = mailboxes[row.source][row.block]
            zeros = dict.fromkeys(source, 0.0)
            before, clock = mailboxes.setdefault(row.mailbox, {}).get(row.block, (zeros, clock))  # the first source's clock
            mailboxes[row.mailbox][row.block] = {k: before[k] + row.weight * source[k] for k in source}, clock
        elif row.verb == "SYNC":
            servers[cell].meet(mailboxes[row.mailbox][row.block][0], row.keep, row.weight)
        clocks[cell] += row.verb in ("PUSH", "COMMIT", "SYNC")
    return [server.params for server in servers]


def recompute_by(outcome: Outcome, servers: list, model=dict) -> list:
    """Parameters of each of these servers at the end of a run; `model` makes the model of a replica's parameters."""
    assert outcome.run.task is not None
    data = outcome.run.task.data.load(outcome.seed).train
    intervals: Any = outcome.schedule.interval_frame()
    skips = [row for row in intervals.itertuples() if row.what == "SKIPPED"]
    begins = outcome.schedule.frame().query("verb in ('PUSH', 'ADD')").groupby(["worker", "step"])["begin_ns"].first()

    def minibatches(worker: int, step: int) -> int:
        begin = begins[worker, step]
        return step + sum(row.other for row in skips if row.worker == worker and row.begin_ns <= begin)

    sizes = outcome.run.task.batch_size

    def minibatch(worker: int, step: int) -> np.ndarray:
        indices = batch_indices(outcome.seed, worker, minibatches(worker, step), batch_size=sizes, examples=len(data))
        return indices[indices >= 0]  # without padding

    return recompute(outcome.schedule.frame(), servers, data.inputs, data.answers, minibatch, model=model)


def largest_relative_error(params: dict, reference: dict) -> float:
    """Return the largest deviation over the largest parameter, over all arrays."""
    return max(np.abs(params[k] - reference[k]).max() / max(np.abs(reference[k]).max(), 1e-30) for k in reference)
