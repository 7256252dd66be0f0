"""Systems of which a codec is part: what they are the same as, and NumPy's word on each."""

import math
from typing import Any, ClassVar

import numpy as np
import pytest

from fred.base.errors import FredError
from fred.outcomes.outcome import Outcome
from fred.running.execution import execute
from fred.schedule.schedule import Verb
from tests.recompute import largest_relative_error
from tests.worlds import TASK, make_run, same

pytestmark = pytest.mark.slow

RATE = 0.125
NETWORK = {"latency": {"name": "exponential", "scale": 0.02}, "bandwidth": 1e5}
CLUSTER = {"workers": 4, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.7}, "network": NETWORK}


def outcome(algorithm: Any, protocol: Any = None, inline: bool = False, **options: Any) -> Outcome:
    algorithm = {"learning_rate": RATE, **({"name": algorithm} if isinstance(algorithm, str) else algorithm)}
    options = {"cluster": CLUSTER, "stop": {"gradients": 160}, **options}
    return execute("run", make_run(algorithm, protocol=protocol, **options), 3, inline)


class TestSparseLoCo:
    """Differences, the largest of them."""

    CODEC = {"name": "top-k", "share": 0.25, "values": {"name": "low-bit", "bits": 2, "zero": False}, "error_feedback": 0.95}

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

    def test_with_all_waves_nothing_is_left_over(self):
        """It is signed SGD then, but for the rounding of what is transformed and back."""
        demo = outcome({"name": "demo", "codec": {"name": "dct", "kept": 10**6, "error_feedback": 0.999}}, **self.THREE)
        signed = outcome({"name": "allreduce-sgd", "optimizer": "sign_sgd"}, **self.THREE)
        assert largest_relative_error(demo.final, signed.final) < 1e-4


class TestChoco:
    """Gossip of differences."""

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


class TestDESLOC:
    """Moments that are averaged seldom."""

    OPTIONS: ClassVar[dict[str, Any]] = {"name": "des-loc", "first_every": 2, "second_every": 3}

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
