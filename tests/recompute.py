"""A plain NumPy program that knows nothing of FRED but its files' format, and recomputes a run from the schedule alone."""

import numpy as np
import pandas as pd


def gradient(params: dict, inputs: np.ndarray, answers: np.ndarray) -> dict:
    """Gradient of the mean cross-entropy of a ReLU network with layers `layer0`, `layer1`, ..., in double precision."""
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

    def update(self, grads: dict, staleness: int, count: int = 1) -> None:
        step = self.rate * self.scale(staleness)
        self.params = self.params | {k: self.params[k] - step * g for k, g in grads.items()}


class PlainShard(PlainSGD):
    """One server's equal part of every array; steps are as long as gradients took part [PSP-SGD, algorithm 1, line 13]."""

    def __init__(self, params: dict, rate: float, number: int, servers: int):
        super().__init__(self.cut(params, number, servers), rate)
        self.like = params

    def update(self, grads: dict, staleness: int, count: int = 1) -> None:
        self.params = {k: p - self.rate * count * grads[k] for k, p in self.params.items()}

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


class PlainPush(PlainSGD):
    """Push-sum: parameters beside a weight `w` that is mixed but not learned."""

    def __init__(self, params: dict, rate: float):
        super().__init__(params | {"w": np.float64(1.0)}, rate)

    @staticmethod
    def model(params: dict) -> dict:
        return {k: p / params["w"] for k, p in params.items() if k != "w"}


class PlainFASGD(PlainSGD):
    """Odena 2016, eqs. 4-8, with v an average of the standard deviation."""

    def __init__(self, params: dict, rate: float, gamma: float, beta: float, epsilon: float, v0: float):
        super().__init__(params, rate)
        self.gamma, self.beta, self.epsilon = gamma, beta, epsilon
        self.n = {k: np.zeros_like(p) for k, p in params.items()}
        self.b = {k: np.zeros_like(p) for k, p in params.items()}
        self.v = {k: np.full_like(p, v0) for k, p in params.items()}

    def update(self, grads: dict, staleness: int, count: int = 1) -> None:
        params = {}
        for k, g in grads.items():
            self.n[k] = self.gamma * self.n[k] + (1 - self.gamma) * g**2
            self.b[k] = self.gamma * self.b[k] + (1 - self.gamma) * g
            deviation = np.sqrt(self.n[k] - self.b[k] ** 2 + self.epsilon)
            self.v[k] = self.beta * self.v[k] + (1 - self.beta) * deviation
            params[k] = self.params[k] - self.rate / (self.v[k] * max(staleness, 1)) * g
        self.params = params


def recompute(schedule: pd.DataFrame, servers: list, inputs: np.ndarray, answers: np.ndarray, minibatch, model=dict) -> list:
    """Walk through the rows and do what they say; `minibatch(worker, step)` gives example indices.

    One server per replica; several PlainShards hold parts of the parameters. `model` makes the model of a replica's
    parameters. Returns each replica's parameters at the end.
    """
    sharded = isinstance(servers[0], PlainShard)
    mailboxes: dict = {}  # number -> replica -> (parameters, clock); a mix has replica None
    owner: dict = {}
    joined: list = [[] for _ in servers]
    clocks = [0] * len(servers)

    def gradient_of(row) -> tuple:
        """The gradient, and the timestamp of the replica's part of what it was computed at."""
        indices = minibatch(row.worker, row.step)
        if not sharded:
            params, timestamp = mailboxes[row.mailbox][row.replica]
            return gradient(model(params), inputs[indices], answers[indices]), timestamp
        known = sorted(number for number in mailboxes if owner[number] == row.worker and number <= row.mailbox)
        parts = {replica: part for number in known for replica, part in mailboxes[number].items()}  # later ones win
        params = PlainShard.join([parts[replica][0] for replica in range(len(servers))], servers[0].like)
        grads = gradient(params, inputs[indices], answers[indices])
        return PlainShard.cut(grads, row.replica, len(servers)), parts[row.replica][1]

    for row in schedule.itertuples():
        if row.verb == "PULL" and row.mailbox >= 0:
            mailboxes.setdefault(row.mailbox, {})[row.replica] = (servers[row.replica].params, clocks[row.replica])
            owner[row.mailbox] = row.worker
        elif row.verb in ("PUSH", "ADD"):
            grads, timestamp = gradient_of(row)
            assert (timestamp, clocks[row.replica] - timestamp) == (row.timestamp, row.staleness)
            if row.verb == "PUSH":
                servers[row.replica].update(grads, row.staleness)
                clocks[row.replica] += 1
            else:
                joined[row.replica].append(grads)
        elif row.verb == "COMMIT":
            parts, joined[row.replica] = joined[row.replica], []
            assert np.isclose(row.weight, 1 / len(parts))
            mean = {k: row.weight * sum(grads[k] for grads in parts) for k in parts[0]}
            servers[row.replica].update(mean, 0, len(parts))
            clocks[row.replica] += 1
        elif row.verb == "MIX":
            (source, _), *_ = mailboxes[row.source].values()
            before = mailboxes.get(row.mailbox, {None: (dict.fromkeys(source, 0.0), None)})[None][0]
            mailboxes[row.mailbox] = {None: ({k: before[k] + row.weight * source[k] for k in source}, None)}
        elif row.verb == "SYNC":
            (mixed, _), *_ = mailboxes[row.mailbox].values()
            own = servers[row.replica].params
            servers[row.replica].params = {k: row.keep * own[k] + row.weight * mixed[k] for k in own}
            clocks[row.replica] += 1
    return [server.params for server in servers]


def largest_relative_error(params: dict, reference: dict) -> float:
    """Of the largest deviation to the largest parameter, over all arrays."""
    return max(np.abs(params[k] - reference[k]).max() / max(np.abs(reference[k]).max(), 1e-30) for k in reference)
