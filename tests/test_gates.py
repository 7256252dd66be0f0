"""Gates, FRED's and the user's own: their offers, the runs that follow from their answers, and refusals."""

import sys
from typing import Any, ClassVar

import numpy as np
import pytest

from fred import Gate, Offer, batch_indices
from fred.base import streams
from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.components import registry
from fred.outcomes.outcome import Outcome
from fred.protocols.dispatcher import Dispatcher
from fred.protocols.gate_rules import Periodic
from fred.protocols.gated import Gated
from fred.running.execution import execute
from fred.schedule.schedule import Schedule, Verb
from tests.recompute import gradient, largest_relative_error
from tests.worlds import COMPUTE, make_run, record, rows_of, same

SEED, WORKERS, UPDATES = 4, 5, 250
KINDS = pytest.mark.parametrize("kind", ["gated", "dispatcher"])


@pytest.fixture(autouse=True)
def users_gates():
    registry.allow_import(["tests.users"])


class Never(Gate):
    """Nothing passes."""

    def passes(self, offer: Offer) -> bool:
        return False


class Noted(Gate):
    """Passes half of all offers, and notes them."""

    asked: ClassVar[list[Offer]] = []

    def passes(self, offer: Offer) -> bool:
        self.asked.append(offer)
        return offer.draw < 0.5


def used(schedule: Schedule, *columns: str) -> list[tuple[int, ...]]:
    rows = schedule.rows(Verb.PUSH)
    return list(zip(*(schedule[column][rows].tolist() for column in columns), strict=True))


class TestAGateOfTheUsersOwn:
    def outcome(self, **protocol: Any) -> Outcome:
        run = make_run("asgd", cluster={"workers": WORKERS}, protocol=protocol, stop={"updates": UPDATES})
        replayed, inline = (execute("run", run, SEED, each) for each in (False, True))
        assert same(replayed, inline)
        return replayed

    @pytest.mark.parametrize("gated", ["fetch", "push", "push fetch"])
    def test_it_decides_as_in_a_program_that_acts_out_the_dispatcher(self, gated):
        gates = {f"{way}_gate": {"name": "tests.users:Choosy", "oldest": 6} for way in gated.split()}
        outcome = self.outcome(name="dispatcher", **gates)
        params, ages, sent = self.acted_out(outcome, "push" in gated, "fetch" in gated)
        assert used(outcome.schedule, "staleness") == [(age,) for age in ages]
        counted = outcome.schedule["messages"][outcome.schedule.rows(Verb.PUSH)] > 0
        assert counted.tolist() == sent
        assert sum(sent) < 0.8 * len(sent) or "push" not in gated
        assert largest_relative_error(outcome.final, params) < 1e-4

    def acted_out(self, outcome: Outcome, push: bool, fetch: bool) -> tuple[dict, list[int], list[bool]]:
        """Parameters, and of each update its staleness and whether its gradient was sent."""
        assert outcome.run.task is not None
        data = outcome.run.task.data.load(SEED).train
        params = {name: array.astype(float) for name, array in outcome.initial.items()}
        draws = {way: [iter(streams.uniforms(SEED, f"{way} gate", w, 0, 300)) for w in range(WORKERS)] for way in gate_ways()}
        local, read, steps = [params] * WORKERS, [0] * WORKERS, [0] * WORKERS
        withheld = {way: [0] * WORKERS for way in gate_ways()}
        last: list[tuple[dict, int]] = [({}, 0)] * WORKERS
        ages, sent = [], []

        def passes(way: str, w: int, age: int) -> bool:
            lucky = next(draws[way][w]) < 0.5 and w == 0
            found = lucky or age > 6 or withheld[way][w] >= 3
            withheld[way][w] = 0 if found else withheld[way][w] + 1
            return found

        for clock, u in enumerate(streams.uniforms(SEED, "dispatch", 0, 0, UPDATES)):
            w = int(u * WORKERS)
            sends = not push or steps[w] == 0 or passes("push", w, clock - read[w])
            if sends:
                indices = batch_indices(SEED, w, steps[w], batch_size=4, examples=len(data))
                last[w] = gradient(local[w], data.inputs[indices], data.answers[indices]), read[w]
            steps[w] += 1
            grads, born = last[w]
            params = {name: values - 0.1 * grads[name] for name, values in params.items()}
            ages.append(clock - born)
            sent.append(sends)
            if not fetch or passes("fetch", w, clock + 1 - read[w]):
                local[w], read[w] = params, clock + 1
        return params, ages, sent

    @KINDS
    @pytest.mark.parametrize("way", ["push", "fetch"])
    def test_odenas_rule_of_ones_own_is_freds(self, kind, way):
        own, option, named = (
            execute("run", make_run("b-fasgd", protocol={"name": kind, **gate}, stop={"gradients": 120}), SEED)
            for gate in (
                {f"{way}_gate": "tests.users:Measured"},
                {f"c_{way}": 0.2},
                {f"{way}_gate": {"name": "statistical", "c": 0.2}},
            )
        )
        assert same(own, option)
        assert same(named, option)

    @KINDS
    def test_periods_as_a_gate_are_periods_as_an_option(self, kind):
        cluster = Cluster(workers=4, compute=COMPUTE)
        protocol = registry.lookup("protocol", kind)
        options = protocol(k_push=3, k_fetch=2), protocol(push_gate=Periodic(k=3), fetch_gate=Periodic(k=2))
        assert len({record(each, cluster, 100).digest() for each in options}) == 1
        assert options[1].sends_sums and not protocol(push_gate=Never()).sends_sums

    @KINDS
    def test_the_first_message_passes_whatever_the_gate_says(self, kind):
        protocol = registry.lookup("protocol", kind)(push_gate=Never(), fetch_gate=Never())
        cluster = {"workers": 3, "compute": COMPUTE}
        schedule = execute("run", make_run(protocol=protocol, cluster=cluster, stop={"updates": 60}, task=None), 0).schedule
        assert {step for (step,) in used(schedule, "step")} == {0}
        assert len(schedule.rows(Verb.PULL)) == 3
        assert schedule["messages"][schedule.rows(Verb.PUSH)].sum() == 3

    def test_who_comes_back_fetches_and_its_first_push_passes(self):
        away = {"name": "outage", "workers": [0], "begin": 2.0, "end": 3.0}
        cluster = Cluster(workers=2, compute={"name": "constant", "seconds": 0.4}, faults=[away])
        schedule = record(Gated(push_gate=Never(), fetch_gate=Never()), cluster, seconds=6)
        pulls = schedule.rows(Verb.PULL)
        found = list(zip(*(schedule[name][pulls].tolist() for name in ("time_ns", "worker")), strict=True))
        assert found == [(0, 0), (0, 1), (3_000_000_000, 0)]
        steps = [step for step, worker in used(schedule, "step", "worker") if worker == 0]
        assert steps == sorted(steps)
        assert len(set(steps)) == 2


def gate_ways() -> tuple[str, str]:
    """The two ways of messages."""
    return "push", "fetch"


class TestWhatAGateIsAsked:
    NETWORK = {"latency": {"name": "constant", "seconds": 0.05}}

    def asked(self, protocol: Any, **cluster: Any) -> tuple[list[Offer], Schedule]:
        Noted.asked.clear()
        schedule = record(protocol, Cluster(workers=3, compute=COMPUTE, **cluster), 90, seed=SEED)
        return list(Noted.asked), schedule

    @pytest.mark.parametrize("servers", [1, 3])
    def test_of_a_push_what_the_schedule_says_later(self, servers):
        """Without a network a gradient is used at the moment of the gate's answer."""
        clocks = "each" if servers > 1 else "one"
        offers, schedule = self.asked(Gated(push_gate=Noted(), unsent="sum", clocks=clocks), servers=servers)
        rows = [row for row in rows_of(schedule) if row.verb in ("PUSH", "ADD") and row.messages and not row.block]
        sent = {(row.worker, row.step): row for row in rows}
        withheld, compared = [0, 0, 0], 0
        for offer in offers:
            assert offer.withheld == withheld[offer.worker]
            withheld[offer.worker] = 0 if offer.draw < 0.5 else offer.withheld + 1
            if row := sent.get((offer.worker, offer.number)):
                assert offer.draw < 0.5
                assert (round(offer.seconds * 1e9), offer.staleness) == (row.time_ns, row.staleness)
                assert offer.updates == row.timestamp + row.staleness
                compared += 1
        assert compared > 30
        for worker in range(3):
            own = [offer for offer in offers if offer.worker == worker]
            assert [offer.number for offer in own] == list(range(1, len(own) + 1))
            assert [offer.draw for offer in own] == streams.uniforms(SEED, "push gate", worker, 0, len(own)).tolist()

    def test_of_a_fetch_how_old_the_workers_parameters_are(self):
        offers, schedule = self.asked(Gated(fetch_gate=Noted()), network=self.NETWORK)
        pulls, pushes = schedule.rows(Verb.PULL), schedule.rows(Verb.PUSH)
        for offer in offers:
            now = round(offer.seconds * 1e9)
            before = pulls[(schedule["worker"][pulls] == offer.worker) & (schedule["time_ns"][pulls] < now)]
            done = int((schedule["time_ns"][pushes] <= now).sum())
            assert offer.updates == done
            assert offer.staleness == done - schedule["timestamp"][before[-1]]
        assert max(offer.staleness for offer in offers) > 5

    def test_where_fetches_are_stamped_as_published_it_is_told_so(self):
        told, true = (
            [offer.staleness for offer in self.asked(Gated(fetch_gate=Noted(), stamp=stamp))[0]]
            for stamp in ("published", "read")
        )
        assert len(told) == len(true)
        assert max(told) < max(true)

    def test_without_a_clock_no_time_passes(self):
        offers, _ = self.asked(Dispatcher(fetch_gate=Noted()))
        assert {offer.seconds for offer in offers} == {0.0}
        assert [offer.updates for offer in offers] == list(range(1, len(offers) + 1))


OWN = """
from fred import Gate
class Odd(Gate):
    "Answers in words."
    def passes(self, offer):
        return "yes"
class Curious(Gate):
    "Does not say that it asks."
    def passes(self, offer):
        return offer.statistic > 1
class Faulty(Gate):
    "Fails."
    def passes(self, offer):
        return offer.draw < 1 / (offer.number - 3)
class Lacking(Gate):
    "Has nothing to say."
"""


class TestRefusals:
    @pytest.fixture(autouse=True)
    def files(self, tmp_path, monkeypatch):
        (tmp_path / "own_gates.py").write_text(OWN)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(registry, "_importable", {})
        monkeypatch.delitem(sys.modules, "own_gates", raising=False)
        registry.allow_import(["own_gates", "tests.users"])

    @pytest.mark.parametrize(
        ("protocol", "message"),
        [
            ({"fetch_gate": "own_gates:Lacking"}, "`own_gates:Lacking` lacks `passes`"),
            ({"fetch_gate": "tests.users:Flax"}, "is not a class derived from .*Gate, as every gate is"),
            ({"fetch_gate": "perodic"}, "did you mean `periodic`"),
            ({"fetch_gate": "periodic", "k_fetch": 2}, "`k`"),
            ({"fetch_gate": {"name": "periodic", "k": 2}, "k_fetch": 2}, "give `fetch_gate` or `k_fetch`, not both"),
            ({"push_gate": {"name": "periodic", "k": 2}, "c_push": 0.1}, "give `push_gate` or `c_push`, not both"),
            ({"fetch_gate": {"name": "statistical", "c": 0}}, "greater than 0"),
            ({"fetch_gate": "tests.users:Measured"}, "a statistic that this algorithm does not have"),
            ({"push_gate": {"name": "statistical", "c": 1}}, "a statistic that this algorithm does not have"),
        ],
    )
    def test_what_cannot_be_is_refused_before_the_run(self, protocol, message):
        with pytest.raises(FredError, match=message):
            make_run("asgd", protocol={"name": "gated", **protocol})

    @pytest.mark.parametrize(
        ("gate", "message"),
        [
            ("Odd", "run `here`: gate `own_gates:Odd` answers 'yes'; expected True or False"),
            ("Curious", "run `here`: the gate asks for the statistic, which only gates get whose `needs_values` is True"),
            ("Faulty", r"run `here`, with `own_gates:Faulty`: ZeroDivisionError: .*own_gates.py, line 14\)"),
        ],
    )
    @KINDS
    def test_what_goes_wrong_during_the_run_is_one_line(self, kind, gate, message):
        run = make_run("asgd", protocol={"name": kind, "fetch_gate": f"own_gates:{gate}"})
        with pytest.raises(FredError, match=message) as error:
            execute("here", run, 0)
        assert "\n" not in str(error.value)


def test_numpys_truth_is_truth():
    class Numbers(Gate):
        """Answers with a number of NumPy's kind."""

        def passes(self, offer: Offer) -> bool:
            return np.float64(offer.draw) < 0.5  # type: ignore[return-value]

    assert len(record(Gated(fetch_gate=Numbers()), Cluster(workers=2, compute=COMPUTE), 40).rows(Verb.PULL)) < 38


@KINDS
@pytest.mark.parametrize("unsent", ["apply-again", "sum"])
def test_a_gate_that_stays_closed_ends_the_run(kind, unsent, monkeypatch):
    """Otherwise a run that stops after a number of gradients would never end."""
    monkeypatch.setattr("fred.protocols.gates._MOST_WITHHELD", 50)
    protocol = registry.lookup("protocol", kind)(push_gate=Never(), unsent=unsent)
    with pytest.raises(FredError, match="passed none of worker 0's last 50 gradients; expected a gate that opens again"):
        record(protocol, Cluster(workers=1, compute=COMPUTE), gradients=90)
