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

    def update(self, grads: dict, staleness: int) -> None:
        self.params = {k: p - self.rate * self.scale(staleness) * grads[k] for k, p in self.params.items()}


class PlainFASGD(PlainSGD):
    """Odena 2016, eqs. 4-8, with v an average of the standard deviation."""

    def __init__(self, params: dict, rate: float, gamma: float, beta: float, epsilon: float, v0: float):
        super().__init__(params, rate)
        self.gamma, self.beta, self.epsilon = gamma, beta, epsilon
        self.n = {k: np.zeros_like(p) for k, p in params.items()}
        self.b = {k: np.zeros_like(p) for k, p in params.items()}
        self.v = {k: np.full_like(p, v0) for k, p in params.items()}

    def update(self, grads: dict, staleness: int) -> None:
        params = {}
        for k, g in grads.items():
            self.n[k] = self.gamma * self.n[k] + (1 - self.gamma) * g**2
            self.b[k] = self.gamma * self.b[k] + (1 - self.gamma) * g
            deviation = np.sqrt(self.n[k] - self.b[k] ** 2 + self.epsilon)
            self.v[k] = self.beta * self.v[k] + (1 - self.beta) * deviation
            params[k] = self.params[k] - self.rate / (self.v[k] * max(staleness, 1)) * g
        self.params = params


def recompute(schedule: pd.DataFrame, server: PlainSGD, inputs: np.ndarray, answers: np.ndarray, minibatch) -> dict:
    """Walk through the rows and do what they say; `minibatch(worker, step)` gives example indices."""
    mailboxes: dict = {}
    joined: list = []
    clock = 0
    for row in schedule.itertuples():
        if row.verb == "PULL":
            mailboxes[row.mailbox] = (server.params, clock)
        elif row.verb in ("PUSH", "ADD"):
            params, timestamp = mailboxes[row.mailbox]
            assert (timestamp, clock - timestamp) == (row.timestamp, row.staleness)
            indices = minibatch(row.worker, row.step)
            grads = gradient(params, inputs[indices], answers[indices])
            if row.verb == "PUSH":
                server.update(grads, clock - timestamp)
                clock += 1
            else:
                joined.append(grads)
        elif row.verb == "COMMIT":
            assert np.isclose(row.weight, 1 / len(joined))
            server.update({k: row.weight * sum(grads[k] for grads in joined) for k in joined[0]}, 0)
            clock, joined = clock + 1, []
    return server.params


def largest_relative_error(params: dict, reference: dict) -> float:
    """Of the largest deviation to the largest parameter, over all arrays."""
    return max(np.abs(params[k] - reference[k]).max() / max(np.abs(reference[k]).max(), 1e-30) for k in reference)
