"""Systems whose server model moves at each arrival: compared with clocks of other programs, with other systems, with NumPy."""

from typing import Any

import pytest

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.outcomes.outcome import Outcome
from fred.running.execution import execute
from fred.schedule.layout import Layout
from fred.schedule.schedule import Verb
from fred.systems.halos import LocalServers
from tests.recompute import largest_relative_error
from tests.worlds import make_run

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
    """Return the times at which the server model moved, s."""
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

    def test_grace_gives_back_the_wait_and_no_time_of_messages(self):
        """One worker, 0.25 s each way: it fetches, steps twice, sends, and so on, as without grace."""
        cluster = constant(1.0) | {"network": {"latency": {"name": "constant", "seconds": 0.25}}}
        found = outcome("easgd", EACH | {"period": 2, "grace": 0.5}, cluster, stop={"seconds": 11.0})
        assert moved(found) == [2.5, 5.0, 7.5, 10.0]
        assert moved(found) == moved(outcome("easgd", EACH | {"period": 2}, cluster, stop={"seconds": 11.0}))

    def test_steps_are_as_many_as_a_worker_is_fast(self):
        found = outcome("easgd", EACH | {"period": 8, "paced": True}, constant(1.0, 2.0, 3.0), stop={"seconds": 33.5})
        schedule, rows = found.schedule, found.schedule.rows(Verb.ADD)
        times = [(schedule["time_ns"][rows][schedule["worker"][rows] == worker] / 1e9).tolist() for worker in range(3)]
        assert times == [[8, 16, 24, 32], [8, 16, 24, 32], [9, 18, 27]], "8, 4 and 3 steps, the last rounded up"


@pytest.mark.slow
class TestSame:
    def test_momentum_of_one_pseudo_gradient_is_nesterovs(self):
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


@pytest.mark.slow
class TestServersOfServers:
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
