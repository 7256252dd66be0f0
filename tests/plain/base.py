"""The base of all recomputations: plain steps with an algorithm's learning rate, and the hooks of other rules."""

from typing import Any, NamedTuple

from fred.specification.shape import Run
from tests.recompute import PlainSGD


class Context(NamedTuple):
    """The run that a recomputation is of, its seed, and which replica of how many it recomputes."""

    run: Run
    seed: int
    replica: int = 0
    replicas: int = 1

    @property
    def algorithm(self) -> Any:
        """Return the algorithm's options."""
        return self.run.algorithm

    @property
    def workers(self) -> int:
        """Return the number of workers."""
        return self.run.cluster.size


class Plain(PlainSGD):
    """One replica of an algorithm: by default, plain steps with its learning rate."""

    tolerance = 1e-5  # relative error that single precision may cause
    own_steps = True  # plain steps in their place come to something else

    def __init__(self, params: dict, context: Context):
        super().__init__(params, context.algorithm.learning_rate)
        self.context, self.algorithm = context, context.algorithm

    @property
    def reached(self) -> bool:
        """Return True if every case of the rule has happened."""
        return True

    @staticmethod
    def model(params: dict) -> dict:
        """Return the model that gradients are computed at."""
        return params

    @staticmethod
    def sent_message(worker: int, params: dict, message: dict) -> dict:
        """Return what a worker sends, given the parameters that it has read and its gradient."""
        return message


class PlainRounds(Plain):
    """Plain steps with single gradients, and another rule (`of_round`) for rounds."""

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        """Step with one gradient, or with a round's sum of pseudo-gradients."""
        if count:
            self.of_round(grads)
        else:
            self.local_step(grads)

    def local_step(self, grads: dict) -> None:
        """Make a worker's own step."""
        self.params = {k: p - self.rate * grads[k] for k, p in self.params.items()}

    def of_round(self, total: dict) -> None:
        """Step with a round; here the sum of pseudo-gradients is subtracted."""
        self.params = {k: p - total[k] for k, p in self.params.items()}


def with_its_worker(worker: int, params: dict, message: dict) -> dict:
    """Return a message together with the number of the worker that sends it."""
    return message | {"worker": worker}


def with_read_params(worker: int, params: dict, message: dict) -> dict:
    """Return a message together with the parameters that it was computed at."""
    return message | {f"read {k}": p for k, p in params.items()}
