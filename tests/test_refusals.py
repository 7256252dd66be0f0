"""What breaks the contract is refused with what, where, and what to do; not computed into something wrong."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fred
from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.cluster.contention import Contention
from fred.cluster.faults import Fault
from fred.cluster.network import Cost
from fred.components import registry
from fred.learning.models.model import Model
from fred.learning.server import Server
from fred.prediction.contract import CutoffRule, Round
from fred.protocols.protocol import Protocol
from fred.running.execution import check, execute
from fred.schedule.layout import Layout
from fred.specification.loading import Scenario
from fred.specification.shape import Stop
from tests.worlds import make_run, record


@pytest.fixture(autouse=True)
def _allowed():
    registry.allow_import([__name__])


def own(name: str) -> dict:
    return {"name": f"{__name__}:{name}", "learning_rate": 0.1}


class OneTooFew(Model):
    """Forgets a class."""

    def init(self, key, input_shape, outputs):
        return {"w": jax.random.normal(key, (*input_shape, outputs - 1))}

    def apply(self, params, inputs):
        return inputs @ params["w"]


class Scalars(OneTooFew):
    """One number for all classes."""

    def apply(self, params, inputs):
        return (inputs @ params["w"]).sum(-1)


class Flat(OneTooFew):
    """Made for inputs in a row."""

    def init(self, key, input_shape, outputs):
        return {"w": jnp.zeros((64, outputs))}


def test_a_model_that_cannot_take_the_inputs_is_told_what_they_are():
    run = make_run("asgd", task={"data": "digits", "model": f"{__name__}:Flat"})
    expected = r"model `.*:Flat` cannot take these inputs, here 2 examples, \[2, 8, 8, 1\] \(.*test_refusals\.py, line \d+\): TypeError: dot"
    with pytest.raises(FredError, match=expected):
        check("run", run, 0)


@pytest.mark.parametrize(("name", "found"), [("OneTooFew", r"\[2, 3\]"), ("Scalars", r"\[2\]")])
def test_outputs_must_fit_the_classes(name, found):
    data = {"name": "synthetic-classification", "features": 8, "classes": 4}
    run = make_run("asgd", task={"data": data, "model": f"{__name__}:{name}"})
    expected = rf"run `run`: .*{name}` gives {found} for 2 examples; expected \[2, 4\]: one number for each of the 4 classes"
    with pytest.raises(FredError, match=expected):
        check("run", run, 0)


class StandsStill(Server):
    """Never advances its clock."""

    def apply_update(self, state, grads, timestamp, worker):
        return state.replace(params=jax.tree.map(lambda p, g: p - 0.1 * g, state.params, grads))


class Jumps(Server):
    """Advances its clock twice in rounds."""

    def apply_round(self, state, total, timestamp, count):
        return self.step(self.step(state, total), total)


class Forgets(Server):
    """Has no `return`."""

    def apply_update(self, state, grads, timestamp, worker):
        self.step(state, grads)


class ReturnsParameters(Server):
    """Returns the parameters instead of the state."""

    def apply_update(self, state, grads, timestamp, worker):
        return self.step(state, grads).params


class AddsAField(Server):
    """Remembers something that `init` knows nothing of."""

    def apply_update(self, state, grads, timestamp, worker):
        return self.step(state, grads).replace(last=grads)


class TakesTooLittle(Server):
    """Is not told of workers."""

    def apply_update(self, state, grads, timestamp):  # type: ignore[override]
        return self.step(state, grads)


class AsksInPython(Server):
    """Wants to know a number while it is traced."""

    def apply_update(self, state, grads, timestamp, worker):
        return self.step(state, grads, scale=1 / math.sqrt(1 + state.clock - timestamp))


class Widens(Server):
    """Makes whole numbers of what were none."""

    def init(self, params, workers):
        return super().init(params, workers).replace(total=jnp.int32(0))

    def apply_update(self, state, grads, timestamp, worker):
        return self.step(state, grads).replace(total=state.total + 0.5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "StandsStill",
            "`apply_update` of .*StandsStill` returns a clock of 7 for a clock of 7; every update must advance it by one",
        ),
        ("Jumps", "`apply_round` of .*Jumps` returns a clock of 9 for a clock of 7"),
        ("Forgets", "`apply_update` of .*Forgets` returns nothing; a `return` is missing"),
        ("ReturnsParameters", "returns dict; expected the new state, such as `self.step"),
        ("AddsAField", r"returns a state with .*'last'.*; expected the fields that `init` made"),
        (
            "TakesTooLittle",
            r"must take \(self, state, message, timestamp, worker\): too many .* \(.*test_refusals\.py, line \d+\)",
        ),
        (
            "AsksInPython",
            r"the value of a traced array \(.*test_refusals\.py, line \d+\); expected `jnp\.where` instead of `if`",
        ),
        ("Widens", "changes the shapes or types in `total`: .*int32.* became .*float32"),
    ],
)
def test_updates_must_return_a_state_a_step_later(name, message):
    with pytest.raises(FredError, match=message):
        check("run", make_run(own(name)), 0)


class Scaled(Server):
    """Sends signs, and one scale for all of them."""

    def send(self, memory, params, grads):
        return {"signs": jax.tree.map(jnp.sign, grads), "scale": jnp.float32(0.1)}, memory

    def apply_update(self, state, message, timestamp, worker):
        return self.step(state, message["signs"], scale=message["scale"])


def test_messages_of_another_shape_cannot_be_divided_among_servers():
    assert execute("run", make_run(own("Scaled")), 0).schedule.counts()["gradients"] == 60
    several = make_run(own("Scaled"), cluster={"workers": 4, "servers": 2}, protocol="partial")
    with pytest.raises(
        FredError, match=r"messages of .*Scaled` are not shaped like the parameters.*`cluster.servers` must be 1"
    ):
        check("run", several, 0)


SIZES = {  # what is no size -> how it is said
    "half": (0.5, "0.5 bytes, of type float"),
    "true": (True, "True bytes, of type bool"),
    "text": ("5", "'5' bytes, of type str"),
    "array": (jnp.int32(5), r"Array\(5, dtype=int32.*\) bytes, of type ArrayImpl"),
    "below": (-3, "-3 bytes"),
    "beyond": (2**48 + 1, "281474976710657 bytes"),
    "far": (10**30, "10{30} bytes"),
}


class Says(Server):
    """Says that something else is sent."""

    size: str = "half"
    published: bool = False

    def sent_bytes(self, message):
        return 4 if self.published else SIZES[self.size][0]

    def published_bytes(self, params):
        return SIZES[self.size][0] if self.published else 4


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("published", [False, True])
def test_a_size_that_cannot_be_one_is_refused_before_anything_runs(size, published):
    who = "published_bytes" if published else "sent_bytes"
    expected = rf"`{who}` of `.*Says` says that something has {SIZES[size][1]}; expected a whole number, 0 to 2\*\*48$"
    with pytest.raises(FredError, match=expected):
        check("run", make_run({**own("Says"), "size": size, "published": published}), 0)


class Sends(Protocol):
    """Tells a verb another size."""

    verb: str = "send"
    size: str = "half"

    def start(self, sim):
        sim.process(self._work(sim, SIZES[self.size][0]))

    def _work(self, sim, size):
        gradient = sim.compute(0, (yield from sim.pull(0, size=size if self.verb == "pull" else None)))
        yield gradient.finished
        if self.verb == "send":
            yield from sim.send(gradient, size=size)
        if self.verb == "transfer":
            yield sim.transfer(0, 1, size=size)
        if self.verb == "allreduce":
            sim.allreduce(2, size=size)
        if self.verb == "publish":
            sim.publish(0, copies=1, size=size)
        sim.push(gradient)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("verb", ["pull", "send", "transfer", "allreduce", "publish"])
@pytest.mark.parametrize("network", [None, {"bandwidth": 1e6}], ids=["at-once", "network"])
def test_a_protocol_that_says_one_is_refused_with_and_without_a_network(size, verb, network):
    expected = f"^the protocol says that something has {SIZES[size][1]}; expected a whole number"
    with pytest.raises(FredError, match=expected):
        record(Sends(verb=verb, size=size), Cluster(workers=2, network=network))


HALF: Any = (1.5, 1)  # bytes, messages


class Miscounts(Protocol):
    """Says what cannot be."""

    what: str = ""

    def start(self, sim):
        sim.process(self._work(sim))

    def _work(self, sim):
        gradient = sim.compute(0, sim.read(0))
        yield gradient.finished
        costs = {"cost": Cost(0, -5, 1), "messages": Cost(0, 5, -1), "half": Cost(0, *HALF), "beyond": Cost(0, 10**30, 1)}
        if self.what == "copies":
            sim.publish(0, copies=-2)
        if self.what == "half-copies":
            sim.publish(0, copies=1.5)
        places = {"replica": (-1, 0), "block": (0, -1)}
        replica, block = places.get(self.what, (0, 0))
        sim.push(gradient, replica=replica, block=block, cost=costs.get(self.what))


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("cost", "worker 0's PUSH at 1 s has bytes -5; expected 0 or more"),
        ("messages", "worker 0's PUSH at 1 s has messages -1; expected 0 or more"),
        ("copies", "worker 0's PULL at 1 s has messages -2; expected 0 or more"),
        ("replica", "worker 0's PUSH at 1 s has replica -1; expected 0 to 0"),
        ("block", "worker 0's PUSH at 1 s has block -1; expected 0 to 0"),
        ("half", r"a number that is not whole where ns, bytes, .* are counted \(.*test_refusals.py, line \d+\)$"),
        ("half-copies", r"a number that is not whole where ns, bytes, .* are counted \(.*test_refusals.py, line \d+\)$"),
        ("beyond", r"and bandwidths \(bytes/s\), and costs \(bytes\) \(.*test_refusals.py, line \d+\)$"),
    ],
)
def test_what_cannot_be_counted_is_refused_for_what_it_is(what, message):
    compute = {"name": "constant", "seconds": 1.0}
    protocol = {"name": f"{__name__}:Miscounts", "what": what}
    run = make_run("asgd", task=None, cluster={"workers": 1, "compute": compute}, protocol=protocol, stop={"updates": 1})
    with pytest.raises(FredError, match=message):
        execute("run", run, 0)


class LaidOut(Protocol):
    """Returns something as its layout, or raises."""

    returned: str = "None"

    def layout(self, cluster):
        return eval(self.returned)

    def start(self, sim):
        sim.process(sim.present(0))


LAYOUTS = {
    "None": "`layout` returns None; expected a `Layout`",
    "(1, range(1), range(1))": r"`layout` returns \(1, range\(0, 1\), range\(0, 1\)\); expected a `Layout`",
    "Layout(0, range(0), range(0))": "`layout` returns replicas=0; expected a whole number, 1 or more",
    "Layout(True, range(1), range(1))": "`layout` returns replicas=True; expected a whole number, 1 or more",
    "Layout(1, range(1), range(1), 0)": "`layout` returns blocks=0; expected a whole number, 1 or more",
    "Layout(1, range(1), range(1), 2.0)": "`layout` returns blocks=2.0; expected a whole number, 1 or more",
    "Layout(2, range(5, 6), range(0))": r"answer=range\(5, 6\); expected numbers of its replicas, from 0 to 1",
    "Layout(2, range(2), range(-1, 1))": r"on_servers=range\(-1, 1\); expected numbers of its replicas, from 0 to 1",
    "Layout(2, (0, 1), range(0))": r"answer=\(0, 1\); expected a range of replicas",
    "Layout(3, range(0, 3, 2), range(0))": r"answer=range\(0, 3, 2\); expected a range of replicas, one after the other",
    "Layout(2, range(0), range(0))": "an empty `answer`; expected one replica or more",
    "Layout(1, range(1), range(1), 2, 'foo')": "cut='foo'; expected one of parts, layers",
    "{}['here']": r"KeyError: 'here' \(.*, line \d+\)$",
}


class Raises(Protocol):
    """Cannot say on which clusters it runs."""

    def check(self, cluster):
        raise KeyError("here")

    def start(self, sim):
        raise NotImplementedError


class NoRule(CutoffRule):
    """Cannot begin."""

    def start(self, node_of):
        raise KeyError("here")


@pytest.mark.parametrize("number", [2.0, None, "2", True, 0, 4, -1])
def test_a_cutoff_that_is_no_number_of_workers_is_refused(number):
    with pytest.raises(FredError, match=f"wants to wait for {number!r} workers; expected 1 to 3, as many as there are"):
        Round.of(np.array([1, 2, 3]), number)
    two: Any = np.int64(2)
    assert Round.of(np.array([1, 2, 3]), two).cutoff == 2


class NoRegime(Contention):
    """Cannot begin."""

    def start(self, seed, name, node_of):
        raise KeyError("here")


class NoFault(Fault):
    """Cannot begin."""

    def start(self, seed, name, workers, servers):
        raise KeyError("here")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_that_is_none_is_refused_with_the_scenario(layout):
    with pytest.raises(FredError, match=LAYOUTS[layout]) as refused:
        scenario(protocol={"name": f"{__name__}:LaidOut", "returned": layout})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "options",
    [
        {"protocol": f"{__name__}:Raises"},
        {"protocol": {"name": "cutoff", "rule": f"{__name__}:NoRule"}},
        {"cluster": {"workers": 2, "contention": [f"{__name__}:NoRegime"]}},
        {"cluster": {"workers": 2, "faults": [f"{__name__}:NoFault"]}},
    ],
    ids=["protocol", "cutoff", "contention", "fault"],
)
def test_errors_of_own_classes_are_refusals_of_the_scenario(options):
    with pytest.raises(FredError, match=r"KeyError: 'here' \(.*test_refusals.py, line \d+\)$") as refused:
        scenario(**options)
    assert "\n" not in str(refused.value)


def test_errors_of_freds_own_while_a_scenario_is_checked_stay_as_they_are(monkeypatch):
    monkeypatch.setattr("fred.specification.shape.check_layout", {}.__getitem__)
    with pytest.raises(KeyError):
        scenario()


def scenario(**options: Any) -> Scenario:
    """A small one."""
    algorithm = {"name": "asgd", "learning_rate": 0.1}
    return fred.scenario({"cluster": {"workers": 2}, "algorithm": algorithm, "stop": {"updates": 3}, **options})


def test_more_servers_than_layers_are_refused_before_anything_runs():
    one = make_run(
        "asgd", cluster={"workers": 2, "servers": 3}, protocol={"name": "asynchronous", "clocks": "each", "cut": "layers"}
    )
    with pytest.raises(FredError, match=r"the model's layers .* are fewer than 3 servers"):
        check("run", one, 0)


class Partly(Protocol):
    """Computes at one block of three."""

    def layout(self, cluster):
        return Layout.central(3)

    def start(self, sim):
        sim.compute(0, sim.read(0, block=1))


class Elsewhere(Partly):
    """Synchronises one block with another's copy."""

    def start(self, sim):
        sim.sync(0, sim.read(0, block=1), replica=0, block=2)


def test_a_copy_must_have_the_blocks_that_are_used():
    with pytest.raises(FredError, match="a copy of block 1 stands for a whole model, which has 3 blocks: `compose`"):
        record(Partly(), Cluster(workers=1))
    with pytest.raises(FredError, match="a copy of block 1 is used where block 2 is needed"):
        record(Elsewhere(), Cluster(workers=1))


class Forever(Protocol):
    """Waits for what never comes, without letting time pass."""

    def start(self, sim):
        sim.process(self._work(sim))

    def _work(self, sim):
        while sim.clock() < 1:
            yield sim.env.after(0)


class Dropped(Protocol):
    """Pushes what it has dropped before it was finished."""

    def start(self, sim):
        gradient = sim.compute(0, sim.read(0))
        sim.drop(gradient)
        sim.push(gradient)


class InSeconds(Protocol):
    """Gives durations in seconds."""

    def start(self, sim):
        sim.process(self._work(sim))

    def _work(self, sim):
        gradient = sim.compute(0, sim.read(0), 0.5)
        yield gradient.finished
        sim.push(gradient)


def test_time_must_pass_in_whole_nanoseconds():
    with pytest.raises(FredError, match="virtual time stands still at 0 s, and events there add no row to the schedule"):
        record(Forever(), Cluster(workers=1))
    with pytest.raises(FredError, match="used at 0 s, before it is finished"):
        record(Dropped(), Cluster(workers=1))
    run = make_run("asgd", task=None, protocol=f"{__name__}:InSeconds")
    with pytest.raises(FredError, match=r"a number that is not whole where ns, .* are counted"):
        execute("run", run, 0)


class Hasty(Protocol):
    """Pushes what is still being computed."""

    def start(self, sim):
        sim.push(sim.compute(0, sim.read(0)))


class NeverCommits(Protocol):
    """Adds, and adds."""

    def start(self, sim):
        sim.process(self._work(sim))

    def _work(self, sim):
        while True:
            gradient = sim.compute(0, sim.read(0))
            yield gradient.finished
            sim.add(gradient)


def test_a_gradient_is_used_when_it_is_finished():
    expected = "worker 0's gradient 0 is used at 0 s, before it is finished at 1 s: the protocol must wait for its `finished`"
    with pytest.raises(FredError, match=expected):
        record(Hasty(), Cluster(workers=1))


def test_rounds_must_end():
    with pytest.raises(FredError, match="1,999 gradients were added to a round, and no round was ever committed"):
        record(NeverCommits(), Cluster(workers=1), seconds=2000)
    assert record(NeverCommits(), Cluster(workers=1), seconds=20).counts()["updates"] == 0, "the first may just be long"


class TestChanges:
    def test_a_copy_is_validated(self):
        run = make_run("asgd")
        assert run.model_copy(update={"stop": {"updates": 3}}).stop == Stop(updates=3)
        with pytest.raises(ValueError, match="unknown key `updats`"):
            run.model_copy(update={"stop": {"updats": 3}})

    def test_what_went_around_validation_is_found_before_anything_runs(self):
        scenario = Scenario(runs={"good": make_run("asgd")})
        scenario.runs["bad"] = make_run("asgd").model_construct(**{**vars(make_run("asgd")), "stop": Stop.model_construct()})
        with pytest.raises(FredError, match=r"runs.bad.stop.*needs at least one of `updates`, `gradients`, `seconds`"):
            fred.run(scenario)
        scenario = Scenario(runs={"good": make_run("asgd")})
        object.__setattr__(scenario.runs["good"].algorithm, "learning_rate", math.nan)
        with pytest.raises(FredError, match="learning_rate"):
            fred.run(scenario)
