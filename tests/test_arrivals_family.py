"""Systems whose centre moves whenever a difference arrives: other programs' clocks, what they are the same as, NumPy's word."""

from typing import Any, ClassVar

import numpy as np
import pytest

from fred.cluster.cluster import Cluster
from fred.errors import FredError
from fred.outcomes.outcome import Outcome
from fred.protocols.local_servers import LocalServers
from fred.running.execution import execute
from fred.schedule.layout import Layout
from fred.schedule.schedule import Verb
from tests.recompute import PlainSGD, by_plain, largest_relative_error
from tests.worlds import make_run, same

UNEQUAL = {"workers": 4, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.7}}
NETWORK = {"latency": {"name": "exponential", "scale": 0.02}, "bandwidth": 1e5}
RATE = 0.125
EACH = {"name": "buffered", "period": 3, "buffer": 1}


def outcome(algorithm: Any, protocol: Any = None, cluster: Any = UNEQUAL, inline: bool = False, **options: Any) -> Outcome:
    algorithm = {"learning_rate": RATE, **({"name": algorithm} if isinstance(algorithm, str) else algorithm)}
    options = {"stop": {"gradients": 160}, **options}
    return execute("run", make_run(algorithm, protocol=protocol, cluster=cluster, **options), 3, inline)


def constant(*seconds: float) -> dict[str, Any]:
    return {"workers": len(seconds), "times": list(seconds), "compute": {"name": "constant", "seconds": 1.0}}


def moved(found: Outcome) -> list[float]:
    """When the centre moved, s."""
    rows = found.schedule.rows(Verb.COMMIT)
    return (found.schedule["time_ns"][rows] / 1e9).round(6).tolist()


class TestClocks:
    """Of google-deepmind/asyncdiloco's simulator: four workers, 20 steps each, and half a second of grace."""

    WORKERS = constant(0.58, 0.75, 1.51, 3.33)

    def test_asyncdiloco(self):
        found = outcome("easgd", EACH | {"period": 20, "grace": 0.5}, self.WORKERS, stop={"gradients": 8100})
        times = moved(found)
        assert [times[40 * n - 1] for n in range(1, 11)] == [
            *(209.0, 406.4, 603.8),  # every 800 local steps, as its notebook prints them
            *(801.4, 999.0, 1207.8, 1404.2, 1600.6, 1800.2, 1998.6),  # as ten lines of Python go on
        ]

    def test_its_synchronous_rounds(self):
        found = outcome("diloco", {"period": 20}, self.WORKERS, stop={"gradients": 170})
        assert moved(found) == [66.6, 133.2], "80 steps"

    def test_who_waits_for_nobody_has_not_waited(self):
        """Worker 1 comes 0.4 s after worker 0; then nobody is near: they start at 2.4 s, and from then on at once."""
        found = outcome("easgd", EACH | {"period": 2, "grace": 0.5}, constant(1.0, 1.2), stop={"seconds": 7.5})
        assert moved(found) == [2.0, 2.4, 4.4, 4.8, 6.8, 7.2]
        alone = outcome("easgd", EACH | {"period": 2, "grace": 0.5}, constant(1.0, 10.0), stop={"seconds": 7.5})
        assert moved(alone) == [2.0, 4.0, 6.0]

    def test_steps_are_as_many_as_a_worker_is_fast(self):
        found = outcome("easgd", EACH | {"period": 8, "paced": True}, constant(1.0, 2.0, 3.0), stop={"seconds": 33.5})
        schedule, rows = found.schedule, found.schedule.rows(Verb.ADD)
        times = [(schedule["time_ns"][rows][schedule["worker"][rows] == worker] / 1e9).tolist() for worker in range(3)]
        assert times == [[8, 16, 24, 32], [8, 16, 24, 32], [9, 18, 27]], "8, 4 and 3 steps, the last rounded up"


class TestSame:
    def test_momentum_of_one_difference_is_nesterovs(self):
        nesterov = {"name": "sgd", "momentum": 0.75, "nesterov": True}
        delayed = outcome({"name": "delayed-nesterov", "momentum": 0.75, "gathered": 1, "outer_rate": 0.5}, EACH)
        outer = outcome({"name": "diloco", "outer": nesterov, "outer_rate": 0.5}, EACH)
        assert largest_relative_error(delayed.final, outer.final) < 1e-5, "sums in another order"
        assert delayed.schedule.digest() == outer.schedule.digest()

    @pytest.mark.parametrize(
        "algorithm",
        ["fedbuff", {"name": "fedasync", "mixing": 1.0}, {"name": "delayed-nesterov", "momentum": 0.0, "outer_rate": 1.0}],
    )
    def test_a_worker_alone_goes_its_own_way(self, algorithm):
        alone = {"workers": 1, "compute": {"name": "constant", "seconds": 0.1}}
        found = outcome(algorithm, EACH, alone, stop={"seconds": 3.05})
        assert largest_relative_error(found.final, outcome("asgd", None, alone, stop={"seconds": 3.05}).final) < 1e-5

    def test_fedasyncs_exponent_changes_values_and_no_times(self):
        found = outcome({"name": "fedasync", "mixing": 0.5, "exponent": 0.0}, EACH)
        twice = outcome({"name": "fedasync", "mixing": 0.5, "exponent": 0.5}, EACH)
        assert found.schedule.digest() == twice.schedule.digest()
        assert found.params_digest != twice.params_digest

    @pytest.mark.one_in(6)
    @pytest.mark.parametrize("name", ["fedbuff", "fedasync", "delayed-nesterov", "cgad", "heloco"])
    def test_inline_is_replay(self, name):
        replayed, inline = (
            outcome(name, {"period": 2, "grace": 0.05}, inline=each, stop={"gradients": 60}) for each in (False, True)
        )
        assert same(replayed, inline)


class PlainFedBuff(PlainSGD):
    """Differences over the root of 1 + their staleness."""

    def contribution(self, message: dict, staleness: int) -> dict:
        return {k: 0.8 * m / np.sqrt(1 + staleness) for k, m in message.items()}

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        if not count:
            super().update(grads, staleness)
            return
        self.params = {k: p - grads[k] for k, p in self.params.items()}


class PlainFedAsync(PlainFedBuff):
    """A share of the way to a model, which is where the worker began, less what its steps have taken away."""

    def __init__(self, params: dict, rate: float):
        super().__init__(params, rate)
        self.history = [params]

    def contribution(self, message: dict, staleness: int) -> dict:
        began = self.history[len(self.history) - 1 - staleness]
        share = 0.7 * (1 + staleness) ** -0.6
        return {k: share * (p - (began[k] - message[k])) for k, p in self.params.items()}

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        super().update(grads, staleness, count)
        self.history.append(self.params)


class PlainDelayed(PlainSGD):
    """Algorithm 3, line by line, with N = 3 and c = 0.2."""

    def __init__(self, params: dict, rate: float):
        super().__init__(params, rate)
        self.t, self.momentum, self.buffer = 0, dict.fromkeys(params, 0.0), dict.fromkeys(params, 0.0)

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        if not count:
            super().update(grads, staleness)
            return
        self.buffer = {k: b + grads[k] for k, b in self.buffer.items()}
        share = 0.2
        if (self.t + 1) % 3 == 0:
            self.momentum = {k: 0.9 * m + self.buffer[k] / 3 for k, m in self.momentum.items()}
            self.buffer, share = dict.fromkeys(self.buffer, 0.0), 1 - 0.2 * 3 + 0.2
        self.params = {k: p - 0.5 * (share * 0.9 * self.momentum[k] + grads[k] / 3) for k, p in self.params.items()}
        self.t += 1


class PlainLocal(PlainSGD):
    """Delayed Nesterov of N = 3, at rate 0.5 with momentum 0.9, on workers' servers."""

    rate_momentum_n: ClassVar[tuple[float, float, int]] = 0.5, 0.9, 3

    def __init__(self, params: dict, rate: float):
        super().__init__(params, rate)
        self.recent: list[dict] = []
        self.momentum = dict.fromkeys(params, 0.0)

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        if not count:
            super().update(grads, staleness)
            return
        rate, momentum, n = self.rate_momentum_n
        self.recent.append(grads)
        step = {k: rate * g / n for k, g in grads.items()}
        if len(self.recent) == n:
            for k in self.params:
                self.momentum[k] = momentum * self.momentum[k] + sum(each[k] for each in self.recent) / n
                step[k] = step[k] + rate * momentum * self.momentum[k]
            self.recent = []
        self.params = {k: p - step[k] for k, p in self.params.items()}


class PlainGlobal(PlainLocal):
    """The same, of N = 2, at rate 0.8 with momentum 0.4, on the last server."""

    rate_momentum_n = 0.8, 0.4, 2


class PlainCGAD(PlainSGD):
    """Adam, of differences that fade."""

    def __init__(self, params: dict, rate: float):
        super().__init__(params, rate)
        self.t, self.first, self.second = 0, dict.fromkeys(params, 0.0), dict.fromkeys(params, 0.0)

    def contribution(self, message: dict, staleness: int) -> dict:
        left = np.exp(-0.2 * staleness) * (0.5 * (1 + np.cos(np.pi * staleness / 4)) if staleness < 4 else 0.0)
        return {k: left * m for k, m in message.items()}

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        if not count:
            super().update(grads, staleness)
            return
        self.t += 1
        for k, p in self.params.items():
            self.first[k] = 0.9 * self.first[k] + 0.1 * grads[k]
            self.second[k] = 0.999 * self.second[k] + 0.001 * grads[k] ** 2
            mean, square = self.first[k] / (1 - 0.9**self.t), self.second[k] / (1 - 0.999**self.t)
            self.params = self.params | {k: p - 0.05 * mean / (np.sqrt(square) + 1e-8)}


class PlainHeLoCo(PlainSGD):
    """The rule's three cases, array by array."""

    cases: set[str] = set()

    def __init__(self, params: dict, rate: float):
        super().__init__(params, rate)
        self.momentum = {k: np.zeros_like(p) for k, p in params.items()}

    def contribution(self, message: dict, staleness: int) -> dict:
        return {k: self.corrected(d, self.momentum[k]) for k, d in message.items()}

    def corrected(self, d: Any, m: Any) -> Any:
        if not m.any():
            return d
        length, pace = np.linalg.norm(d), np.linalg.norm(m)
        cosine, sure = (d * m).sum() / (length * pace), length / (length + pace)
        if cosine >= 0.9:
            self.cases.add("agrees")
            return d
        if cosine < 0:
            self.cases.add("opposes")
            along = cosine * length * m / pace
            return d - min(-0.5 * cosine * sure, 0.3) * along
        self.cases.add("is turned")
        share = min(0.8 * (1 - cosine) * sure, 1)
        way = (1 - share) * d / length + share * m / pace
        return length * way / np.linalg.norm(way)

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        if not count:
            super().update(grads, staleness)
            return
        self.momentum = {k: 0.6 * m + 0.4 * grads[k] for k, m in self.momentum.items()}
        self.params = {k: p - 0.5 * (grads[k] + 0.6 * self.momentum[k]) for k, p in self.params.items()}


PLAIN: dict[str, tuple[dict[str, Any], dict[str, Any], Any]] = {
    "fedbuff": ({"server_rate": 0.8}, {"buffer": 3, "period": 3}, PlainFedBuff),
    "fedasync": ({"mixing": 0.7, "exponent": 0.6}, EACH, PlainFedAsync),
    "delayed-nesterov": ({"outer_rate": 0.5, "gathered": 3, "spread": 0.2}, EACH, PlainDelayed),
    "cgad": ({"outer_rate": 0.05, "fading": 0.2, "cutoff": 4}, EACH | {"paced": True}, PlainCGAD),
    "heloco": (
        {"outer_rate": 0.5, "momentum": 0.6, "agreeing": 0.9, "turn": 0.8, "shrink": 0.5, "most": 0.3},
        EACH,
        PlainHeLoCo,
    ),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("name", PLAIN)
def test_they_are_what_numpy_says(name, inline):
    options, protocol, plain = PLAIN[name]
    PlainHeLoCo.cases.clear()
    found = outcome({"name": name, **options}, protocol, UNEQUAL | {"network": NETWORK}, inline)
    initial = {k: v.astype(float) for k, v in found.initial.items()}
    finals = by_plain(found, [plain(dict(initial), RATE) for _ in range(found.schedule.replicas)])
    assert largest_relative_error(found.final, finals[-1]) < 1e-4
    assert largest_relative_error(found.final, initial) > 0.1
    assert found.metrics["loss"].iloc[-1] < 0.9 * found.metrics["loss"].iloc[0]
    assert PlainHeLoCo.cases == ({"agrees", "opposes", "is turned"} if name == "heloco" else set())
    assert found.schedule["staleness"][found.schedule.rows(Verb.ADD)].max() >= 4 or name == "fedbuff"


HALOS = {
    **{"name": "halos", "outer_rate": 0.5, "momentum": 0.9, "gathered": 3},
    **{"global_rate": 0.8, "global_momentum": 0.4, "global_gathered": 2},
}


class TestServersOfServers:
    @pytest.mark.parametrize("inline", [False, True])
    def test_they_are_what_numpy_says(self, inline):
        cluster = UNEQUAL | {"network": NETWORK, "servers": 3}
        found = outcome(HALOS, {"period": 3, "pushes": 4, "mixing": 0.25}, cluster, inline)
        initial = {k: v.astype(float) for k, v in found.initial.items()}
        own = [PlainSGD(initial, RATE) for _ in range(found.schedule.workers)]
        last = by_plain(found, [*own, PlainLocal(initial, RATE), PlainLocal(initial, RATE), PlainGlobal(initial, RATE)])[-1]
        assert largest_relative_error(found.final, last) < 1e-4
        assert largest_relative_error(found.final, initial) > 0.1
        assert found.schedule["replica"].max() == len(own) + 2

    def test_a_local_server_that_keeps_everything_for_itself_is_delayed_nesterov(self):
        class Alone(LocalServers):
            """Of which the local server's model is shown."""

            def layout(self, cluster: Cluster) -> Layout:
                return super().layout(cluster)._replace(answer=range(cluster.size, cluster.size + 1))

        options = {"outer_rate": 0.5, "momentum": 0.4, "gathered": 3}
        cluster = UNEQUAL | {"network": NETWORK}
        alone = outcome({"name": "halos", **options}, Alone(period=4, paced=False, pushes=1000), cluster)
        delayed = outcome({"name": "delayed-nesterov", **options}, {"period": 4, "buffer": 1}, cluster)
        assert alone.params_digest == delayed.params_digest
        assert alone.schedule.end_ns == delayed.schedule.end_ns


def test_who_sends_models_sends_no_gradients():
    """8 x 4 + 4 numbers of four bytes."""
    schedule = outcome("fedasync", None, UNEQUAL | {"network": NETWORK}).schedule
    assert set(schedule["bytes"][schedule.rows(Verb.ADD)].tolist()) == {4 * 36}


@pytest.mark.parametrize(
    ("algorithm", "limit"),
    [
        ({"name": "delayed-nesterov", "gathered": 5, "spread": 0.26}, "0.25 with N = 5"),
        ({"name": "delayed-nesterov", "spread": 0.51}, "0.5 with N = 3"),
        ({"name": "halos", "spread": 0.07}, "0.06667 with N = 16"),
        ({"name": "halos", "gathered": 1, "global_gathered": 3, "spread": 0.6}, "0.5 with N = 3"),
    ],
)
def test_no_step_goes_against_the_momentum(algorithm, limit):
    cluster = UNEQUAL | {"workers": 3}
    with pytest.raises(FredError, match=rf"`spread` .* must not exceed 1 / \(N - 1\), {limit} .*against the momentum"):
        outcome(algorithm, None, cluster)
    at_the_limit = {"name": "delayed-nesterov", "gathered": 5, "spread": 0.25}
    make_run({"learning_rate": RATE, **at_the_limit}, cluster=cluster)


@pytest.mark.parametrize(("protocol", "said"), [({"grace": 0}, "grace"), ({"paced": 3}, "paced"), ({"period": 0}, "period")])
def test_what_cannot_be_is_refused(protocol, said):
    with pytest.raises(FredError, match=said):
        outcome("fedbuff", protocol)
