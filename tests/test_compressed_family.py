"""Systems of which a codec is part: what they are the same as, and NumPy's word on each."""

import math
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy import fft

from fred import batch_indices
from fred.errors import FredError
from fred.outcomes.outcome import Outcome
from fred.running.execution import execute
from fred.schedule.schedule import Verb
from tests.coding import Feedback, only_largest, rounded
from tests.recompute import PlainSGD, largest_relative_error, recompute
from tests.worlds import TASK, make_run, same

RATE = 0.125
NETWORK = {"latency": {"name": "exponential", "scale": 0.02}, "bandwidth": 1e5}
CLUSTER = {"workers": 4, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.7}, "network": NETWORK}


def outcome(algorithm: Any, protocol: Any = None, inline: bool = False, **options: Any) -> Outcome:
    algorithm = {"learning_rate": RATE, **({"name": algorithm} if isinstance(algorithm, str) else algorithm)}
    options = {"cluster": CLUSTER, "stop": {"gradients": 160}, **options}
    return execute("run", make_run(algorithm, protocol=protocol, **options), 3, inline)


def replicas(found: Outcome, plain: type[PlainSGD], **how: Any) -> list[dict]:
    """What NumPy makes of the schedule; `how` workers send."""
    assert found.run.task is not None
    data, size = found.run.task.data.load(3).train, found.run.task.batch_size
    initial = {k: v.astype(float) for k, v in found.initial.items()}
    servers = [plain(initial, RATE) for _ in range(found.schedule.replicas)]

    def minibatch(worker: int, step: int) -> np.ndarray:
        return batch_indices(3, worker, step, batch_size=size, examples=len(data))

    return recompute(found.schedule.frame(), servers, data.inputs, data.answers, minibatch, **how)


class Moved(PlainSGD):
    """Rounds are differences, of which 0.75 is subtracted."""

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        rate = 0.75 if count else self.rate
        self.params = {k: p - rate * grads[k] for k, p in self.params.items()}


class AlongSigns(PlainSGD):
    """Steps of one length in every direction."""

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        super().update({k: np.sign(g) for k, g in grads.items()}, staleness, count)


def quantised_largest(worker: int, count: int, whole: dict) -> dict:
    """A quarter of each array's numbers, as four levels."""
    sent = {}
    for k, v in whole.items():
        kept = only_largest(v.ravel(), max(1, round(v.size / 4)))
        scale = np.abs(kept).max()
        sent[k] = np.where(kept == 0, 0.0, rounded(kept / scale, np.linspace(-1, 1, 4)) * scale).reshape(v.shape)
    return sent


def three_waves(worker: int, count: int, whole: dict) -> dict:
    return {k: fft.idctn(_three(fft.dctn(v, norm="ortho")), norm="ortho") for k, v in whole.items()}


def _three(waves: np.ndarray) -> np.ndarray:
    return only_largest(waves.ravel(), 3).reshape(waves.shape)


class TestSparseLoCo:
    """Differences, the largest of them."""

    CODEC = {"name": "top-k", "share": 0.25, "values": {"name": "low-bit", "bits": 2, "zero": False}, "error_feedback": 0.95}

    @pytest.mark.one_in(4)
    @pytest.mark.parametrize("inline", [False, True])
    def test_it_is_what_it_says(self, inline):
        found = outcome({"name": "sparseloco", "outer_rate": 0.75, "codec": self.CODEC}, {"period": 4}, inline)
        feedback = Feedback(quantised_largest, 0.95)
        *_, answer = replicas(found, Moved, differ=feedback)
        assert largest_relative_error(found.final, answer) < 1e-4
        assert found.metrics["loss"].iloc[-1] < 0.8 * found.metrics["loss"].iloc[0]
        assert min(feedback.count.values()) >= 9

    def test_uncoded_it_is_diloco_without_momentum(self):
        diloco = outcome({"name": "diloco", "outer_rate": 0.75, "outer": "sgd"})
        assert same(outcome({"name": "sparseloco", "outer_rate": 0.75, "codec": None}), diloco)

    def test_its_messages_are_gathered(self):
        """Of 64 of 4,096 numbers each has 12 bits of place and 2 of size, and a scale belongs to each chunk."""
        codec = make_run({"name": "sparseloco", "learning_rate": 0.1}).algorithm.codec
        assert codec.size(np.zeros(3 * 4096)) == 3 * (64 * (12 + 2) + 32) // 8
        found = outcome({"name": "sparseloco", "codec": self.CODEC}, {"period": 4})
        size = math.ceil((8 * (2 + 5) + 32 + 1 * (2 + 2) + 32) / 8)  # of 32 numbers and of 4
        adds = found.schedule.rows(Verb.ADD)
        assert set(found.schedule["bytes"][adds].tolist()) == {3 * size}


class TestDeMo:
    """Waves of momenta."""

    THREE: ClassVar[dict[str, Any]] = {  # so that no sum of gradients is 0, whose sign rounding would decide
        "cluster": CLUSTER | {"workers": 3},
        "task": TASK | {"batch_size": 3},
    }

    @pytest.mark.one_in(4)
    @pytest.mark.parametrize("inline", [False, True])
    def test_it_is_what_it_says(self, inline):
        codec = {"name": "dct", "kept": 3, "error_feedback": 0.9}
        found = outcome({"name": "demo", "learning_rate": RATE, "codec": codec}, None, inline, **self.THREE)
        answer = replicas(found, AlongSigns, send=Feedback(three_waves, 0.9))[0]
        assert largest_relative_error(found.final, answer) < 1e-4
        assert found.metrics["loss"].iloc[-1] < 0.8 * found.metrics["loss"].iloc[0]

    def test_with_all_waves_nothing_is_left_over(self):
        """It is signed SGD then, but for the rounding of what is transformed and back."""
        demo = outcome({"name": "demo", "codec": {"name": "dct", "kept": 10**6, "error_feedback": 0.999}}, **self.THREE)
        signed = outcome({"name": "allreduce-sgd", "optimizer": "sign_sgd"}, **self.THREE)
        assert largest_relative_error(demo.final, signed.final) < 1e-4


class Known(PlainSGD):
    """Rounds are what a worker has sent, which is taken away."""

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        rate = 1.0 if count else self.rate
        self.params = {k: p - rate * grads[k] for k, p in self.params.items()}


class TestChoco:
    """Gossip of differences."""

    @pytest.mark.one_in(4)
    @pytest.mark.parametrize("topology", ["ring", "star"])
    @pytest.mark.parametrize("inline", [False, True])
    def test_it_is_what_it_says(self, topology, inline):
        algorithm = {
            "name": "choco-sgd",
            "codec": {"name": "top-k", "share": 0.25, "values": {"name": "low-bit", "bits": 2, "zero": False}},
        }
        found = outcome(algorithm, {"topology": topology, "consensus": 0.25}, inline, stop={"gradients": 100})
        own, known = np.split(np.array(replicas(found, Known, differ=lambda *what: quantised_largest(0, 0, what[2]))), 2)
        mean = {k: np.mean([params[k] for params in own], axis=0) for k in found.final}
        assert largest_relative_error(found.final, mean) < 1e-4
        assert len(known) == 4
        assert found.metrics["loss"].iloc[-1] < 0.8 * found.metrics["loss"].iloc[0]

    @pytest.mark.parametrize("topology", ["ring", "star"])
    def test_uncoded_it_is_gossip(self, topology):
        """But for rounding: a model less another, plus that."""
        gossip = outcome("d-psgd", {"name": "gossip", "topology": topology, "weights": "metropolis", "order": "update-first"})
        choco = outcome("choco-sgd", {"topology": topology, "consensus": 1.0})
        assert largest_relative_error(choco.final, gossip.final) < 1e-5
        assert choco.schedule.end_ns == gossip.schedule.end_ns
        assert choco.schedule["bytes"].sum() == gossip.schedule["bytes"].sum()

    def test_what_it_sends_has_the_codecs_bytes(self):
        found = outcome({"name": "choco-sgd", "codec": "sign"}, {"topology": "star"})
        size = math.ceil((32 + 32 + 4 + 32) / 8)
        pulls = found.schedule.rows(Verb.PULL)
        known = pulls[found.schedule["bytes"][pulls] > 0]
        assert set(found.schedule["bytes"][known].tolist()) == {size, 3 * size}
        assert found.schedule["replica"][known].min() == 4

    def test_who_does_not_hear_everything_is_refused(self):
        with pytest.raises(FredError, match="changes from iteration"):
            outcome("choco-sgd", {"topology": {"name": "exponential", "neighbours": 1}})


class PlainDESLOC(PlainSGD):
    """Adam, whose moments `m` and `v` are averaged every second and every third time."""

    def __init__(self, params: dict, rate: float):
        super().__init__(params | {f"{moment} {k}": np.zeros_like(p) for moment in "mv" for k, p in params.items()}, rate)
        self.steps = self.averages = 0

    @staticmethod
    def model(params: dict) -> dict:
        return {k: p for k, p in params.items() if " " not in k}

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        self.steps += 1
        for k, g in grads.items():
            m = 0.9 * self.params[f"m {k}"] + 0.1 * g
            v = 0.999 * self.params[f"v {k}"] + 0.001 * g**2
            step = m / (1 - 0.9**self.steps) / (np.sqrt(v / (1 - 0.999**self.steps)) + 1e-8)
            self.params = self.params | {k: self.params[k] - self.rate * step, f"m {k}": m, f"v {k}": v}

    def meet(self, mixed: dict, keep: float, weight: float) -> None:
        before, self.averages = self.params, self.averages + 1
        super().meet(mixed, keep, weight)
        kept = [moment for moment, every in (("m", 2), ("v", 3)) if self.averages % every]
        self.params = self.params | {k: p for k, p in before.items() if k.split()[0] in kept and " " in k}


class TestDESLOC:
    """Moments that are averaged seldom."""

    OPTIONS: ClassVar[dict[str, Any]] = {"name": "des-loc", "first_every": 2, "second_every": 3}

    @pytest.mark.one_in(4)
    @pytest.mark.parametrize("inline", [False, True])
    def test_it_is_what_it_says(self, inline):
        found = outcome(self.OPTIONS, {"period": 3}, inline)
        finals = replicas(found, PlainDESLOC, model=PlainDESLOC.model)
        mean = {k: np.mean([params[k] for params in finals], axis=0) for k in found.final}
        assert largest_relative_error(found.final, mean) < 1e-3  # of small gradients epsilon is a large part
        assert found.metrics["loss"].iloc[-1] < 0.8 * found.metrics["loss"].iloc[0]

    def test_moments_that_never_meet_are_local_adams(self):
        adam = outcome({"name": "local-sgd", "optimizer": "adam"}, {"period": 5})
        seldom = outcome({"name": "des-loc", "first_every": 64, "second_every": 64}, {"period": 5})
        assert seldom.params_digest == adam.params_digest
        assert seldom.schedule.digest() == adam.schedule.digest()

    def test_an_average_has_the_bytes_of_what_is_averaged(self):
        """In a ring of four each worker sends 1.5 times that: models in every average, moments where it is their turn."""
        schedule = outcome(self.OPTIONS, {"period": 3}).schedule
        sent = schedule["bytes"][schedule.rows(Verb.SYNC)].reshape(-1, 4)
        assert (sent == sent[:, :1]).all()
        parts = np.array([1, 2, 2, 2, 1, 3] * 3)[: len(sent)]
        assert len(sent) >= 12
        assert sent[:, 0].tolist() == (1.5 * 4 * 36 * parts).tolist()

    @pytest.mark.parametrize("optimizer", ["sgd", "rmsprop"])
    def test_who_has_no_moments_is_refused(self, optimizer):
        with pytest.raises(FredError, match="first and second moments"):
            outcome({**self.OPTIONS, "optimizer": optimizer})

    @pytest.mark.one_in(4)
    @pytest.mark.parametrize("algorithm", ["des-loc", "sgp"])
    def test_differences_are_of_models_whatever_lies_beside_these(self, algorithm):
        one, other = (outcome(algorithm, "elastic", inline) for inline in (False, True))
        assert same(one, other)
        assert np.isfinite(one.metrics["loss"]).all()
