"""Systems that average some coordinates at a time, perhaps late: what they are the same as, and NumPy's word on each."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fred import streams
from fred.outcomes.outcome import Outcome
from fred.protocols.late_averaging import LateAveraging
from fred.running.execution import execute
from fred.schedule.schedule import Verb, What
from tests.recompute import PlainSGD, by_plain, largest_relative_error
from tests.worlds import make_run, record

RATE = 0.125
NETWORK = {"latency": {"name": "constant", "seconds": 0.02}, "bandwidth": 1e4}
CLUSTER = {"workers": 4, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.5}, "network": NETWORK}
NUMBERS = {"biases": 4, "weights": 32}


def outcome(algorithm: Any, protocol: Any = None, inline: bool = False, **options: Any) -> Outcome:
    algorithm = {"learning_rate": RATE, **({"name": algorithm} if isinstance(algorithm, str) else algorithm)}
    options = {"cluster": CLUSTER, "stop": {"gradients": 120}, **options}
    return execute("run", make_run(algorithm, protocol=protocol, **options), 3, inline)


class PlainMasked(PlainSGD):
    """Averages are of masked coordinates; `change` says what of a change in the meantime is added to a late one."""

    parts, fresh, ahead = 3, False, 0.0

    def __init__(self, params: dict, rate: float):
        super().__init__(params, rate)
        self.averages = self.updates = 0
        self.drift: dict[str, Any] = dict.fromkeys(params, 0.0)

    def mask(self, k: str) -> np.ndarray:
        """As the stream says, which jax goes on from; arrays in the order of their names."""
        words = jnp.asarray(streams.words(3, "algorithm", 0, np.arange(2)).astype(np.uint32))
        division, part = (self.averages, 0) if self.fresh else divmod(self.averages, self.parts)
        key = jax.random.fold_in(jax.random.wrap_key_data(words, impl="threefry2x32"), division)
        draws = np.asarray(jax.random.uniform(jax.random.fold_in(key, list(NUMBERS).index(k)), (NUMBERS[k],)))
        return (np.argsort(np.argsort(draws)) % self.parts == part).reshape(self.params[k].shape)

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        if not count:
            self.updates += 1
            super().update(grads, staleness)
            return
        self.drift = {k: np.where(self.mask(k), self.change(self.drift[k], g), self.drift[k]) for k, g in grads.items()}

    def change(self, drift: Any, new: np.ndarray) -> np.ndarray:
        return new

    def meet(self, mixed: dict, keep: float, weight: float) -> None:
        assert (keep, weight) == (0.0, 1.0)
        merged = {k: mixed[k] - self.ahead * self.drift[k] for k in mixed}
        self.params = {k: np.where(self.mask(k), merged[k], own) for k, own in self.params.items()}
        self.averages += 1


class PlainAddBack(PlainMasked):
    """The change since is added, 0.75 of it."""

    ahead = 0.75


class PlainAveraged(PlainMasked):
    """The changes' moving average is."""

    ahead = 1.0

    def change(self, drift: Any, new: np.ndarray) -> np.ndarray:
        beta = 0.99 - 0.49 * (1 + math.cos(math.pi * min(1, self.updates / 1000))) / 2
        return np.asarray(beta * drift + (1 - beta) * new)


class PlainFresh(PlainMasked):
    """Masks are drawn anew each time, and the change since is added."""

    fresh, ahead = True, 1.0


PLAIN: dict[str, tuple[dict[str, Any], dict[str, Any], type[PlainMasked]]] = {
    "at once": ({"name": "sparta"}, {"every": 2}, PlainMasked),
    "late": ({"name": "sparta"}, {"delay": 3}, PlainMasked),
    "add-back": ({"name": "async-mesh", "average_changes": False, "ahead": 0.75}, {"delay": 3}, PlainAddBack),
    "moving average": ({"name": "async-mesh"}, {"delay": 2, "every": 2}, PlainAveraged),
    "when it comes": ({"name": "loscar"}, {}, PlainFresh),
}


@pytest.mark.one_in(8)
@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("name", PLAIN)
def test_servers_are_what_they_say(name, inline):
    algorithm, protocol, plain = PLAIN[name]
    found = outcome({**algorithm, "parts": 3}, protocol, inline)
    servers = [plain({k: v.astype(float) for k, v in found.initial.items()}, RATE) for _ in range(4)]
    finals = by_plain(found, servers)
    mean = {k: np.mean([params[k] for params in finals], axis=0) for k in found.final}
    assert largest_relative_error(found.final, mean) < 1e-4
    assert found.metrics["loss"].iloc[-1] < 0.8 * found.metrics["loss"].iloc[0]
    assert min(server.averages for server in servers) >= 7


class TestSame:
    """To the last bit."""

    def test_sparta_in_one_part_is_parameter_averaging(self):
        sparta, local = outcome({"name": "sparta", "parts": 1}), outcome("local-sgd", {"period": 1})
        assert sparta.params_digest == local.params_digest
        assert sparta.schedule.end_ns == local.schedule.end_ns
        assert sparta.schedule["bytes"].sum() == local.schedule["bytes"].sum()

    def test_late_means_that_are_not_moved_on_are_spartas(self):
        late = outcome({"name": "sparta", "parts": 3}, {"delay": 3})
        assert outcome({"name": "async-mesh", "parts": 3, "ahead": 0.0}, {"delay": 3}).params_digest == late.params_digest

    def test_masks_follow_the_seed(self):
        run = make_run({"name": "sparta", "learning_rate": RATE, "parts": 3}, cluster=CLUSTER)
        state = execute("run", run, 0).params_digest, execute("run", run, 0).params_digest
        assert state[0] == state[1] != execute("run", run, 1).params_digest


class TestTraffic:
    """A part of the coordinates is a part of the bytes."""

    def test_each_average_has_the_bytes_of_its_coordinates(self):
        """Of 32 and 4 coordinates in 3 parts: 11 + 2, 11 + 1, 10 + 1; in a ring of four each worker sends 1.5 times that."""
        schedule = outcome({"name": "sparta", "parts": 3}).schedule
        sent = schedule["bytes"][schedule.rows(Verb.SYNC)].reshape(-1, 4)
        assert (sent == sent[:, :1]).all()
        assert sent[:9, 0].tolist() == [78, 72, 66] * 3

    def test_nobody_waits_for_what_comes_in_time(self):
        constant = {**CLUSTER, "compute": {"name": "constant", "seconds": 0.5}}
        at_once, late, never = (
            outcome({"name": "sparta", "parts": 3}, {"delay": delay}, cluster=constant, stop={"seconds": 10.0})
            for delay in (0, 1, None)
        )
        done = [each.schedule.counts()["gradients"] for each in (at_once, late, never)]
        assert done[0] < done[1] == done[2] == 4 * 19  # at 10 s the time is up

    def test_averages_are_one_after_the_other(self):
        """Each takes 1.5 s, and one is due every 0.5 s."""
        network = {"bandwidth": 1e6, "message_bytes": 1_000_000}
        cluster = make_run(cluster={"workers": 4, "compute": {"name": "constant", "seconds": 0.5}, "network": network}).cluster
        schedule = record(LateAveraging(delay=4), cluster, seconds=30.0)
        moving = schedule.intervals.only(What.COLLECTIVE)
        own = moving.worker == 0
        begin, end = moving.begin_ns[own], moving.end_ns[own]
        assert set((end - begin).tolist()) == {1_500_000_000}
        assert (begin[1:] >= end[:-1]).all()
        assert len(begin) == 19
