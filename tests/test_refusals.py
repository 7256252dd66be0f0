"""What breaks the contract is refused with what, where, and what to do; not computed into something wrong."""

import math

import jax
import jax.numpy as jnp
import pytest

import fred
from fred.cluster.cluster import Cluster
from fred.components import registry
from fred.errors import FredError
from fred.learning.models.model import Model
from fred.learning.server import Server
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


class Widens(Server):
    """Makes whole numbers of what were none."""

    def init(self, params, workers):
        return super().init(params, workers).replace(total=jnp.int32(0))

    def apply_update(self, state, grads, timestamp, worker):
        return self.step(state, grads).replace(total=state.total + 0.5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("StandsStill", "`apply_update` of .*StandsStill` makes 7 of a clock of 7; every update advances it by one"),
        ("Jumps", "`apply_round` of .*Jumps` makes 9 of a clock of 7"),
        ("Forgets", "`apply_update` of .*Forgets` returns nothing; a `return` is missing"),
        ("ReturnsParameters", "returns dict; expected the new state, such as `self.step"),
        ("AddsAField", r"returns a state with .*'last'.*; expected the fields that `init` made"),
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


class Halves(Server):
    """Says that half a byte is sent."""

    def sent_bytes(self, message):
        return 0.5


def test_a_size_that_cannot_be_one_is_refused_before_anything_runs():
    with pytest.raises(FredError, match=r"`sent_bytes` of `.*Halves` says that something has 0.5 bytes; expected a whole"):
        check("run", make_run(own("Halves")), 0)


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
    with pytest.raises(FredError, match="virtual time stands still at 0 s, and nothing comes of what happens then"):
        record(Forever(), Cluster(workers=1))
    with pytest.raises(FredError, match="used at 0 s, before it is finished"):
        record(Dropped(), Cluster(workers=1))
    run = make_run("asgd", task=None, protocol=f"{__name__}:InSeconds")
    with pytest.raises(FredError, match="a time that is not a whole number of nanoseconds"):
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
