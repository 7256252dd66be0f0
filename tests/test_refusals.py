"""Users' servers, models and protocols that break the contract are refused with place and remedy, not computed into something wrong."""

import itertools
import math
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fred
from fred import Cluster, Contention, Cost, CutoffRule, Fault, FredError, Layout, Model, Protocol, Server
from fred.components import registry
from fred.prediction.contract import Round
from fred.running.execution import check, execute
from fred.specification.loading import Scenario
from fred.specification.stopping import Stop
from tests.program import fred_command, refusal
from tests.worlds import constant, make_run, record

PLACE = r"\(.*test_refusals\.py, line \d+\)"  # the place of the fault


@pytest.fixture(autouse=True)
def _allow_own_classes():
    registry.allow_import([__name__])


def own_class(name: str) -> dict:
    return {"name": f"{__name__}:{name}", "learning_rate": 0.1}


def check_refusal(run: Any, message: str, executed: bool = False) -> None:
    with pytest.raises(FredError, match=message) as error:
        (execute if executed else check)("run", run, 0)
    assert "\n" not in str(error.value)


class Wrong(Model):
    """Forgets a class, has one number for all classes, or is made for inputs in a row."""

    fault: str = "class"

    def init(self, key, input_shape, outputs):
        return {"w": jnp.zeros((64, outputs) if self.fault == "flat" else (*input_shape, outputs - 1))}

    def apply(self, params, inputs):
        outputs = inputs @ params["w"]
        return outputs.sum(-1) if self.fault == "scalars" else outputs


CLASSES = {"name": "synthetic-classification", "features": 8, "classes": 4}
EXPECTED = r"for 2 examples; expected \[2, 4\]: one number for each of the 4 classes"


@pytest.mark.parametrize(
    ("fault", "data", "message"),
    [
        (
            "flat",
            "digits",
            rf"model `.*:Wrong` cannot take these inputs, here 2 examples, \[2, 8, 8, 1\] {PLACE}: TypeError: dot",
        ),
        ("class", CLASSES, rf"run `run`: .*Wrong` gives \[2, 3\] {EXPECTED}"),
        ("scalars", CLASSES, rf"run `run`: .*Wrong` gives \[2\] {EXPECTED}"),
    ],
)
def test_models_must_take_the_inputs_and_give_a_number_for_each_class(fault, data, message):
    check_refusal(make_run(task={"data": data, "model": {"name": f"{__name__}:Wrong", "fault": fault}}), message)


def update(function: Any) -> dict[str, Any]:
    return {"apply_update": lambda self, state, grads, timestamp, worker: function(self, state, grads)}


def with_total(self, params, workers):
    return Server.init(self, params, workers).replace(total=jnp.int32(0))


STEP_BACK = "returns a clock of 7 for a clock of 7; every update must advance it by one"
SERVERS: dict[str, tuple[dict[str, Any], str]] = {  # name -> methods, and the refusal
    "StandsStill": (update(lambda self, state, grads: state.replace(params=grads)), f"`apply_update` of .*StandsStill` {STEP_BACK}"),
    "Jumps": ({"apply_round": lambda self, state, total, timestamp, count: self.step(self.step(state, total), total)},
              "`apply_round` of .*Jumps` returns a clock of 9 for a clock of 7"),
    "Forgets": (update(lambda *_: None), "`apply_update` of .*Forgets` returns nothing; a `return` is missing"),
    "ReturnsParameters": (update(lambda self, state, grads: self.step(state, grads).params),
                          "returns dict; expected the new state, such as `self.step"),
    "AddsAField": (update(lambda self, state, grads: self.step(state, grads).replace(last=grads)),
                   r"returns a state with .*'last'.*; expected the fields that `init` made"),
    "AsksInPython": (update(lambda self, state, grads: self.step(state, grads, scale=math.sqrt(state.clock))),
                     rf"the value of a traced array {PLACE}; expected `jnp\.where` instead of `if`"),
    "Widens": (  # makes fractions of a whole number
        {"init": with_total} | update(lambda self, state, grads: self.step(state, grads).replace(total=state.total + 0.5)),
        "changes the shapes or types in `total`: .*int32.* became .*float32"),
}  # fmt: skip
for name, (methods, _) in SERVERS.items():
    globals()[name] = type(name, (Server,), {"__module__": __name__, "__doc__": "Breaks the contract.", **methods})


@pytest.mark.parametrize("name", SERVERS)
def test_updates_must_return_a_state_a_step_later(name):
    check_refusal(make_run(own_class(name)), SERVERS[name][1])


class Scaled(Server):
    """Sends signs, and one scale for all of them."""

    def send(self, memory, params, grads):
        return {"signs": jax.tree.map(jnp.sign, grads), "scale": jnp.float32(0.1)}, memory

    def apply_update(self, state, message, timestamp, worker):
        return self.step(state, message["signs"], scale=message["scale"])


def test_messages_of_another_shape_cannot_be_divided_among_servers_nor_more_servers_than_layers_be_served():
    assert execute("run", make_run(own_class("Scaled")), 0).schedule.counts()["gradients"] == 60
    several = make_run(own_class("Scaled"), cluster={"workers": 4, "servers": 2}, protocol="partial")
    check_refusal(several, r"messages of .*Scaled` are not shaped like the parameters.*`cluster.servers` must be 1")
    by_layer = {"name": "asynchronous", "clocks": "each", "cut": "layers"}
    three = make_run(cluster={"workers": 2, "servers": 3}, protocol=by_layer)
    check_refusal(three, r"the model's layers .* are fewer than 3 servers")


HALF: Any = 1.5
SIZES = {  # what is no size -> its words
    "half": (0.5, "0.5 bytes, of type float"),
    "true": (True, "True bytes, of type bool"),
    "array": (jnp.int32(5), r"Array\(5, dtype=int32.*\) bytes, of type ArrayImpl"),
    "below": (-3, "-3 bytes"),
    "beyond": (2**48 + 1, "281474976710657 bytes"),
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
def test_a_size_that_cannot_be_one_is_refused_before_anything_runs(size):
    for published, function in enumerate(("sent_bytes", "published_bytes")):
        words = rf"`{function}` of `.*Says` says that something has {SIZES[size][1]}; expected a whole number, 0 to 2\*\*48$"
        check_refusal(make_run({**own_class("Says"), "size": size, "published": published}), words)


class Does(Protocol):
    """Does what a function below does: its name and its arguments, with colons between them."""

    deed: str = ""

    def layout(self, cluster):
        return Layout.central(3) if "a_block" in self.deed else super().layout(cluster)

    def start(self, sim):
        function, *words = self.deed.split(":")
        sim.process(globals()[function](sim, *words))


def finish_gradient(sim, duration=None):
    gradient = sim.compute(0, sim.read(0), duration)
    yield gradient.finished
    return gradient


def sends(sim, verb, name):
    size = SIZES[name][0]
    gradient = sim.compute(0, (yield from sim.pull(0, size=size if verb == "pull" else None)))
    yield gradient.finished
    if verb == "send":
        yield from sim.send(gradient, size=size)
    if verb in (arguments := {"transfer": (0, 1), "allreduce": (2,), "publish": (0, 1)}):
        getattr(sim, verb)(*arguments[verb], size=size)
    sim.push(gradient)


@pytest.mark.parametrize("verb", ["pull", "send", "transfer", "allreduce", "publish"])
def test_a_protocols_size_that_cannot_be_one_is_refused_with_and_without_a_network(verb):
    for (size, (_, words)), network in itertools.product(SIZES.items(), (None, {"bandwidth": 1e6})):
        with pytest.raises(FredError, match=f"^the protocol says that something has {words}; expected a whole number"):
            record(Does(deed=f"sends:{verb}:{size}"), Cluster(workers=2, network=network))


MISCOUNTS: dict[str, tuple[dict[str, Any], str]] = {  # options of `push`, or of `publish`, and the refusal
    "bytes": ({"cost": Cost(0, -5, 1)}, "worker 0's PUSH at 1 s has bytes -5; expected 0 or more"),
    "messages": ({"cost": Cost(0, 5, -1)}, "worker 0's PUSH at 1 s has messages -1; expected 0 or more"),
    "replica": ({"replica": -1}, "worker 0's PUSH at 1 s has replica -1; expected 0 to 0"),
    "blocks": ({"block": -1}, "worker 0's PUSH at 1 s has block -1; expected 0 to 0"),
    "half": ({"cost": Cost(0, HALF, 1)}, rf"a number that is not whole where ns, bytes, .* are counted {PLACE}$"),
    "beyond": ({"cost": Cost(0, 10**30, 1)}, rf"and bandwidths \(bytes/s\), and costs \(bytes\) {PLACE}$"),
    "copies": ({"copies": -2}, "worker 0's PULL at 1 s has messages -2; expected 0 or more"),
    "half copies": ({"copies": HALF}, rf"a number that is not whole where ns, bytes, .* are counted {PLACE}$"),
}


def miscounts(sim, name):
    gradient = yield from finish_gradient(sim)
    options, _ = MISCOUNTS[name]
    if "copies" in options:
        sim.publish(0, **options)
    sim.push(gradient, **options if "copies" not in options else {})


@pytest.mark.parametrize("name", MISCOUNTS)
def test_what_cannot_be_counted_is_refused_for_what_it_is(name):
    protocol = {"name": f"{__name__}:Does", "deed": f"miscounts:{name}"}
    check_refusal(
        make_run(task=None, cluster=constant(1.0), protocol=protocol, stop={"updates": 1}), MISCOUNTS[name][1], executed=True
    )


def in_seconds(sim):
    sim.push((yield from finish_gradient(sim, 0.5)))


def forever(sim):
    while sim.clock() < 1:
        yield sim.env.after(0)


def hasty(sim, dropped):
    gradient = sim.compute(0, sim.read(0))
    if dropped == "dropped":
        sim.drop(gradient)
    sim.push(gradient)
    yield gradient.finished


def never_commits(sim):
    while True:
        sim.add((yield from finish_gradient(sim)))


def computes_at_a_block(sim):
    yield sim.compute(0, sim.read(0, block=1)).finished


def synchronises_a_block_with_another(sim):
    sim.sync(0, sim.read(0, block=1), replica=0, block=2)
    yield from finish_gradient(sim)


def test_deeds_of_a_protocol_that_make_no_sense_are_refused():
    early = "worker 0's gradient 0 is used at 0 s, before it is finished at 1 s: the protocol must wait for its `finished`"
    for deed, message in {
        "forever": "virtual time stands still at 0 s, and events there add no row to the schedule",
        "hasty:whole": early,
        "hasty:dropped": "used at 0 s, before it is finished",
        "never_commits": "1,999 gradients were added to a round, and no round was ever committed",
        "computes_at_a_block": "a copy of block 1 stands for a whole model, which has 3 blocks: `compose`",
        "synchronises_a_block_with_another": "a copy of block 1 is used where block 2 is needed",
    }.items():
        with pytest.raises(FredError, match=message):
            record(Does(deed=deed), Cluster(workers=1), seconds=2000 if deed == "never_commits" else np.inf)
    assert record(Does(deed="never_commits"), Cluster(workers=1), seconds=20).counts()["updates"] == 0, "a long first round"
    run = make_run(task=None, protocol={"name": f"{__name__}:Does", "deed": "in_seconds"})
    check_refusal(run, r"a number that is not whole where ns, .* are counted", executed=True)


class LaidOut(Protocol):
    """Its layout is anything."""

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
    "Layout(1, range(1), range(1), 2.0)": "`layout` returns blocks=2.0; expected a whole number, 1 or more",
    "Layout(2, range(5, 6), range(0))": r"answer=range\(5, 6\); expected numbers of its replicas, from 0 to 1",
    "Layout(2, range(2), range(-1, 1))": r"on_servers=range\(-1, 1\); expected numbers of its replicas, from 0 to 1",
    "Layout(2, (0, 1), range(0))": r"answer=\(0, 1\); expected a range of replicas",
    "Layout(3, range(0, 3, 2), range(0))": r"answer=range\(0, 3, 2\); expected a range of replicas, one after the other",
    "Layout(2, range(0), range(0))": "an empty `answer`; expected one replica or more",
    "Layout(1, range(1), range(1), 2, 'foo')": "cut='foo'; expected one of parts, layers",
    "{}['here']": r"KeyError: 'here' \(.*, line \d+\)$",
}


def scenario(**options: Any) -> Scenario:
    algorithm = {"name": "asgd", "learning_rate": 0.1}
    return fred.scenario({"cluster": {"workers": 2}, "algorithm": algorithm, "stop": {"updates": 3}, **options})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_that_is_none_is_refused_with_the_scenario(layout):
    with pytest.raises(FredError, match=LAYOUTS[layout]) as error:
        scenario(protocol={"name": f"{__name__}:LaidOut", "returned": layout})
    assert "\n" not in str(error.value)


def raises(*_: Any) -> Any:
    raise KeyError("here")


for name, base in {"NoProtocol": Protocol, "NoRule": CutoffRule, "NoRegime": Contention, "NoFault": Fault}.items():
    methods = dict.fromkeys(("start", "check") if base is Protocol else ("start",), raises)
    globals()[name] = type(name, (base,), {"__module__": __name__, "__doc__": "Cannot begin.", **methods})


def test_errors_of_own_classes_are_refusals_of_the_scenario_and_freds_own_stay_as_they_are(monkeypatch):
    wrong: list[Any] = [{"protocol": f"{__name__}:NoProtocol"}, {"protocol": {"name": "cutoff", "rule": f"{__name__}:NoRule"}}]
    of_cluster = {"contention": "NoRegime", "faults": "NoFault"}
    wrong += [{"cluster": {"workers": 2, kind: [f"{__name__}:{name}"]}} for kind, name in of_cluster.items()]
    for options in wrong:
        with pytest.raises(FredError, match=rf"KeyError: 'here' {PLACE}$") as error:
            scenario(**options)
        assert "\n" not in str(error.value)
    monkeypatch.setattr("fred.specification.shape.check_layout", {}.__getitem__)
    with pytest.raises(KeyError):
        scenario()


def test_a_cutoff_that_is_no_number_of_workers_is_refused():
    numbers: tuple[Any, ...] = (2.0, None, "2", True, 0, 4)
    for number in numbers:
        with pytest.raises(FredError, match=f"wants to wait for {number!r} workers; expected 1 to 3, as many as there are"):
            Round.from_choice(np.array([1, 2, 3]), number)
    assert Round.from_choice(np.array([1, 2, 3]), np.int64(2)).cutoff == 2  # type: ignore[arg-type]


def test_copies_of_runs_are_validated_and_so_is_what_went_around_validation():
    run = make_run()
    assert run.model_copy(update={"stop": {"updates": 3}}).stop == Stop(updates=3)
    with pytest.raises(ValueError, match="unknown key `updats`"):
        run.model_copy(update={"stop": {"updats": 3}})
    unchecked = Scenario(runs={"good": run})
    unchecked.runs["bad"] = run.model_construct(**{**vars(run), "stop": Stop.model_construct()})
    with pytest.raises(FredError, match=r"runs.bad.stop.*needs at least one of `updates`, `gradients`, `seconds`"):
        fred.run(unchecked)
    del unchecked.runs["bad"]
    object.__setattr__(unchecked.runs["good"].algorithm, "learning_rate", math.nan)
    with pytest.raises(FredError, match="learning_rate"):
        fred.run(unchecked)


@pytest.mark.parametrize(
    ("command", "cure"),
    [
        ("run mine.yaml --set stop.seconds=90min", "expected a number; times are in seconds, without a unit: 5400"),
        ("run open.yaml", "the text ends within a list, a mapping or a quotation; close it with"),
        ("run tab.yaml", "tab.yaml:2: not valid YAML: found a tab; indent with spaces"),
        ("run .", ". is a folder; expected a scenario file, such as mine.yaml"),
        ("show .", "; there is results/mine"),
        ("show empty", "; there is results/mine"),
        ("run mine.yaml --import broken", "`broken` imports it; install it into this Python ("),
        ("run mine.yaml --import nowhere", "expected nowhere.py in this folder, or an installed package"),
    ],
)
def test_a_mistake_is_refused_with_its_whole_cure(tmp_path, monkeypatch, command, cure):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("algorithm: {name: asgd, learning_rate: 0.1}\ncluster: {workers: 2}\nstop: {updates: 4}\n")
    Path("open.yaml").write_text("{ not yaml: [\n")
    Path("tab.yaml").write_text("algorithm:\n\tname: asgd\n")
    Path("broken.py").write_text("import no_such_library\n")
    Path("empty").mkdir()
    if "results" in cure:
        fred.run("mine.yaml", out="results/mine", report=False)
    assert cure in refusal(*command.split())


_WITH_LISTS = {  # scenarios with an option that is a list, OPTION
    "failures": "cluster: {workers: 2, failures: {OPTION, checkpoint: {every_updates: 2}}}\nalgorithm: {name: ssgd, learning_rate: 1}",
    "edges": "cluster: {workers: 3}\nalgorithm: {name: d-psgd, learning_rate: 1}\nprotocol: {topology: {name: edges, OPTION}}",
    "hinge": "cluster: {workers: 2}\nalgorithm: {name: fedasync, learning_rate: 0.1, OPTION}\ntask: {data: digits, model: softmax}",
    "hidden": "cluster: {workers: 2}\nalgorithm: {name: asgd, learning_rate: 0.1}\ntask: {data: digits, model: {name: mlp, OPTION}}",
    "seeds": "cluster: {workers: 2}\nalgorithm: {name: asgd, learning_rate: 0.1}\nOPTION",
}


@pytest.mark.parametrize(
    ("scenario", "option"),
    [
        *(("failures", f"at_updates: {value}") for value in ("3", "[3]", "[a]", "[[3, 0]]", "[[3, 0, 1.0, 2]]", "[3, 0, 1.0]")),
        *(("failures", f"recorded: {value}") for value in ("3", "[3]")),
        *((name, f"{name}: {value}") for name in ("edges", "hinge") for value in ("3", "[3]")),
        ("hidden", "hidden: 32"),
        ("seeds", "seeds: 3"),
    ],
)
def test_a_printed_list_runs_as_it_is_printed(tmp_path, monkeypatch, scenario, option):
    monkeypatch.chdir(tmp_path)
    text = f"{_WITH_LISTS[scenario]}\nstop: {{updates: 4}}\n"
    Path("mine.yaml").write_text(text.replace("OPTION", option))
    cures = re.findall(r"such as `([^`]+)`", fred_command("run", "mine.yaml").err)
    assert len(set(cures)) == 1
    Path("mine.yaml").write_text(text.replace("OPTION", cures[0]))
    assert fred_command("run", "mine.yaml", "--no-report").code == 0
