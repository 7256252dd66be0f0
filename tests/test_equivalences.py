"""Runs that must be the same: by theory (one table of pairs of systems), by construction, or whatever else runs."""

import itertools
from typing import Any

import numpy as np
import pytest

import fred.replay.phases
from fred.components import registry
from fred.outcomes.outcome import Outcome
from fred.results import experiment
from fred.running.checkpoints import Checkpoint, Following
from fred.running.execution import execute
from fred.schedule.schedule import Schedule, Verb
from fred.specification.loading import Scenario
from fred.specification.shape import Run
from fred.specification.stopping import Evaluate
from tests.cases import CASES, SEED, options
from tests.plain import PLAIN_CLASSES
from tests.plain.base import Plain
from tests.recompute import largest_relative_error
from tests.worlds import COMPUTE, LAYERS, NETWORK, TASK, UNEQUAL, constant, make_run, mostly_slow, outcome, same_outcome

World = dict[str, Any]


def equal(workers: int, **options: Any) -> World:
    return {"cluster": constant(*[0.125] * workers, **options)}


def linked_world(workers: int) -> World:
    return {"cluster": UNEQUAL | NETWORKED | {"workers": workers}}


def stop_after(seconds: float) -> World:
    return {"stop": {"seconds": seconds}}


NETWORKED = {"network": NETWORK | {"message_bytes": 144}}
SINGLE: World = {"cluster": {"workers": 1, "compute": COMPUTE}}
BYTES: World = {"cluster": UNEQUAL | {"network": NETWORK}}  # of the algorithms' messages
LINKED, FOUR = linked_world(4), equal(4)
LATE: World = {"cluster": UNEQUAL | {"workers": 5, "network": {"latency": NETWORK["latency"]}}}
SINGLE_24 = equal(1) | stop_after(3.0625)  # 24 updates
HALVING = {"cluster": constant(0.25, 0.5, 1.0)} | stop_after(8.1)  # 2 s are eight, four and two updates
_DROPS = "dropcompute / micro_batches=1 average=done threshold"
_DEADLINE = "cutoff-sgd / cutoff rule={'name':'deadline','seconds'"

# An algorithm with its options / its protocol's options == another.
ROWS: list[tuple[str, World]] = [  # the same schedules of servers that do the same
    ("ssgd / backup_workers=0 late=interrupt == ssgd / backup_workers=0 late=finish", {}),
    # A model that became old on its way is computed at as well: with `finish` the worker learns it at the delivery.
    ("rennala / batch=1 late=finish == ssgd / backup_workers=4 late=finish", linked_world(5)),
    ("rennala / batch=1 late=interrupt == ssgd / backup_workers=4 late=interrupt", linked_world(5)),
    ("ringmaster / threshold=1000000 == asgd", LINKED),
    ("k-batch-async / gradients=1 == asgd", {}),
    ("ssp / bound=None cache=False == asgd", LINKED),
    ("b-fasgd == fasgd", LINKED),
    ("dropcompute / micro_batches=1 threshold=1e6 == allreduce-sgd", LINKED),
    (f"{_DROPS}=0.01 == {_DEADLINE}:0.01}}", {}),
    (f"{_DROPS}=0.1 == {_DEADLINE}:0.1}}", LINKED),
    ("dropcompute / micro_batches=3 threshold=1e6 == dropcompute / micro_batches=3 threshold=1e6 average=done", LINKED),
    ("dbw / cutoff rule={'name':'count','workers':3} == cutoff-sgd / cutoff rule={'name':'count','workers':3}", LINKED),
    ("diloco / period=5 paced=True == diloco / period=5", equal(4, **NETWORKED)),
    ("diloco / period=8 paced=True == diloco / every=2.0", HALVING),
    ("diloco / period=16 paced=True pace_seconds=0.125 == diloco / every=2.0", HALVING),
]
BITS: list[tuple[str, World]] = [  # the same parameters, to the last bit, and rounds at the same times
    ("mindflayer / limit=1e6 == ssgd", {}),
    ("cutoff-sgd / cutoff rule=all == ssgd", {}),
    ("cutoff-sgd / cutoff rule={'name':'count','workers':3} == m-sync / backup_workers=1 late=interrupt", {}),
    ("ata == ssgd", equal(5)),
    ("ata / gradients=4 == rennala / batch=4", SINGLE),
    ("ringmaster / threshold=1 == rennala / batch=1", {}),
    ("rennala / batch=1 == m-sync / backup_workers=3 late=interrupt", {}),
    ("k-async / gradients=4 afterwards=wait == ssgd", {}),
    ("clipped-asgd length=1e9 == asgd", equal(2)),
    ("picky-sgd distance=1e9 == asgd", equal(2)),
    ("delay-adaptive == asgd", equal(2)),
    ("dc-asgd compensation=9.0 == asgd", SINGLE),
    ("sasgd == asgd", SINGLE),
    ("exponential == asgd", SINGLE),
    ("ringleader == asgd", SINGLE),
    ("ringleader / synchronous == ssgd", {}),  # no gradient belongs to one worker: the table stays empty
    ("ia2sgd / synchronous == ssgd", {}),
    ("ringmaster-lmo optimizer=sgd == ringmaster", {"task": LAYERS}),
    ("allreduce-sgd == ssgd", FOUR),
    ("psp-sgd learning_rate=0.03125 == ssgd", {}),
    ("extrapolated ahead=0.0 / fixed-lag lag=4 == asgd / fixed-lag lag=4", {}),
    ("pipemare warm_up=0 / fixed-lag lag=4 == asgd / fixed-lag lag=4", {}),
    ("async-batch / steps=1 == asgd", LINKED | stop_after(5.0)),
    ("sgp / topology=complete order=update-first == d-psgd / topology=complete order=update-first", {}),  # 1/4 is exact
    ("adacomm / period=5 adapt_every=60 == local-sgd / period=5", {}),
    ("stsyn / period=5 enough=4 == local-sgd / period=5", equal(4, **NETWORKED)),
    ("swarm-sgd / period=3 == local-sgd / period=3", linked_world(2)),
    ("noloco / period=3 == bmuf block_momentum=0.5 block_rate=0.7 / period=3", linked_world(2)),
    ("slowmo slow_momentum=0.75 / period=5 == bmuf / period=5", {}),  # 1 - 1 / workers
    ("snoo outer_rate=1.0 outer_momentum=0.75 / period=5 == bmuf nesterov=True / period=5", {}),
    ("sparta parts=1 == local-sgd / period=1", BYTES),
    ("des-loc first_every=64 second_every=64 / period=5 == local-sgd optimizer=adam / period=5", {}),
    ("streaming-diloco / period=5 fragments=1 == diloco / period=5", LINKED),
    ("eager-diloco / period=5 == diloco / period=5", SINGLE),
    ("palsgd / period=5 pulls=0.0 == diloco / period=5", {}),
    ("sparseloco outer_rate=0.75 codec=None / period=5 == diloco outer_rate=0.75 outer=sgd / period=5", {}),
]
_DELAYED = "delayed-nesterov momentum=0.75 gathered=1 outer_rate=0.5"
_SGD = "{'name':'sgd','momentum':0.75,'nesterov':True}"
_WAVES = "{'name':'dct','kept':1000000,'error_feedback':0.999}"
_MEETING = "weights=metropolis order=update-first"
CLOSE: list[tuple[str, World]] = [  # the same but for rounding, and rounds at the same times
    ("malenia == ssgd", equal(5)),  # adds shares instead of dividing at the end
    ("ia2sgd == asgd", SINGLE),  # its mean changes by differences
    ("dbw == allreduce-sgd", equal(4, **NETWORKED)),
    ("psp-sgd learning_rate=0.03125 == ssgd", {"cluster": UNEQUAL | {"servers": 3}, "stop": {"updates": 15}}),
    ("sgp / topology=ring order=update-first == d-psgd / topology=ring order=update-first", LATE),  # weights are sent, too
    ("wagma-sgd / group_size=4 == allreduce-sgd", FOUR | stop_after(2.05)),
    (f"choco-sgd / topology=ring consensus=1.0 == d-psgd / topology=ring {_MEETING}", BYTES),
    ("async-local / steps=1 == asgd", LINKED | stop_after(5.0)),
    ("birch-local / total=4 == ssgd learning_rate=0.5", FOUR | stop_after(2.05)),
    ("cycle / group_size=4 == ssgd learning_rate=0.5", FOUR | stop_after(2.05)),
    ("downpour == asgd", LINKED | stop_after(5.0)),
    ("bmuf block_momentum=0.0 / period=5 == local-sgd / period=5", {}),
    ("snoo outer_momentum=0.0 outer_rate=1.0 == asgd", SINGLE),
    ("diloco outer_rate=1.0 outer=sgd / period=5 == local-sgd / period=5", FOUR | stop_after(3.8)),
    ("diloco outer_rate=1.0 outer=sgd / period=1 == allreduce-sgd", FOUR | stop_after(2.05)),
    ("diloco outer_rate=0.5 / period=5 == snoo outer_rate=0.5 outer_momentum=0.9 / period=5", FOUR | stop_after(3.8)),
    ("edit temperature=1e9 longest=1e9 outer=sgd / period=5 == diloco outer=sgd / period=5", {}),
    (f"{_DELAYED} / buffer=1 period=3 == diloco outer={_SGD} outer_rate=0.5 / buffered buffer=1 period=3", {}),
    ("fedbuff / buffer=1 period=3 == asgd", SINGLE_24),
    ("fedasync mixing=1.0 / buffer=1 period=3 == asgd", SINGLE_24),
    ("delayed-nesterov momentum=0.0 outer_rate=1.0 / buffer=1 period=3 == asgd", SINGLE_24),
    # Minibatches of three and three workers: no sum of gradients is 0.
    (f"demo codec={_WAVES} == allreduce-sgd optimizer=sign_sgd", equal(3) | {"task": TASK | {"batch_size": 3}}),
]
TIMES: list[tuple[str, World]] = [  # rounds at the same times; parameters differ, or take long to compile
    ("diloco outer_rate=1.0 outer=sgd / period=5 == local-sgd / period=5", LINKED | stop_after(5.0)),
    ("async-mesh parts=3 ahead=0.0 / delay=3 == sparta parts=3 / delay=3", LINKED),
]
QUICK = "k-async", "streaming-diloco", "async-local / steps=1 == asgd", "cutoff-sgd / cutoff rule=all"


def outcomes(text: str, world: World, **overrides: Any) -> list[Outcome]:
    return [
        outcome(options(algorithm), options(protocol) or None, **{"stop": {"gradients": 60}} | world | overrides)
        for algorithm, _, protocol in [side.partition(" / ") for side in text.split(" == ")]
    ]


def parameters(table: list[tuple[str, World]], slow: bool = False) -> list[Any]:
    marks: list[Any] = [pytest.mark.slow if slow and not text.startswith(QUICK) else () for text, _ in table]
    return [pytest.param(text, world, marks=mark, id=text) for (text, world), mark in zip(table, marks, strict=True)]


def arithmetic(run: Run) -> Any:
    reference = PLAIN_CLASSES[registry.name_of("algorithm", run.algorithm)]
    return reference if reference.own_steps else Plain


def moments(schedule: Schedule, *verbs: Verb) -> list[int]:
    """Return the times of rounds, or without rounds of meetings, or without both of updates, ns."""
    rows = next(rows for verb in verbs or (Verb.COMMIT, Verb.SYNC, Verb.PUSH) if len(rows := schedule.rows(verb)))
    return np.unique(schedule["time_ns"][rows]).tolist()


@pytest.mark.parametrize(("text", "world"), parameters(ROWS))
def test_schedules_are_the_same(text, world):
    left, right = outcomes(text, world, task=None)
    assert arithmetic(left.run) is arithmetic(right.run)
    assert left.schedule_digest == right.schedule_digest
    assert left.schedule.counts()["updates"] > 4


# Timing follows values, or one side has rounds and the other one updates.
UNTIMED = "adacomm", "dbw", "fedbuff", "fedasync", "delayed-nesterov momentum=0.0", "snoo outer_momentum=0.0 outer_rate=1.0 =="


@pytest.mark.parametrize(("text", "world"), parameters([row for row in BITS + CLOSE + TIMES if not row[0].startswith(UNTIMED)]))
def test_rounds_are_at_the_same_times(text, world):
    left, right = outcomes(text, world, task=None)
    verbs = [Verb.SYNC] if text.startswith("choco") else []  # it also COMMITs what neighbours know of each model
    assert moments(left.schedule, *verbs) == moments(right.schedule, *verbs)
    assert left.schedule.end_ns == right.schedule.end_ns


@pytest.mark.parametrize(("text", "world"), parameters(BITS + CLOSE, slow=True))
def test_parameters_are_the_same(text, world):
    left, right = outcomes(text, world)
    assert left.schedule.end_ns == right.schedule.end_ns
    if (text, world) in BITS:
        assert left.params_digest == right.params_digest
    assert largest_relative_error(left.final, right.final) < (1e-4 if text.startswith("demo") else 1e-5)
    assert largest_relative_error(left.final, left.initial) > 0.1, "the run moved the parameters"
    if world == BYTES:
        assert left.schedule["bytes"].sum() == right.schedule["bytes"].sum() > 0


def test_synchronous_sgd_with_n_workers_and_batch_m_is_sgd_with_batch_nm():
    task, full_batch = TASK | {"batch_size": 3}, TASK | {"batch_size": 18}
    many, single, asynchronous = (
        outcome(name, None, {"workers": workers, "compute": COMPUTE}, 7, task=task, stop={"updates": 25})
        for name, workers, task in (("ssgd", 6, task), ("ssgd", 1, full_batch), ("asgd", 1, full_batch))
    )
    assert many.params_digest == single.params_digest == asynchronous.params_digest
    assert many.metrics[["updates", "loss", "error"]].equals(single.metrics[["updates", "loss", "error"]])


def inline_is_replay(run: Run) -> bool:
    return same_outcome(execute("run", run, 2), execute("run", run, 2, inline=True))


OPTIMIZERS: list[tuple[str, Any]] = [
    *(("asgd", "sgd"), ("sasgd", {"name": "sgd", "momentum": 0.9}), ("fasgd", "adam"), ("asgd", "rmsprop")),
    *(("exponential", {"name": "sgd", "momentum": 0.9, "nesterov": True}), ("ssgd", {"name": "adamw", "weight_decay": 0.1})),
    ("sasgd", [{"name": "clip_by_global_norm", "max_norm": 0.5}, "sgd"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "optimizer"), OPTIMIZERS)
def test_inline_is_replay_with_every_optimizer(name, optimizer):
    assert inline_is_replay(make_run({"name": name, "learning_rate": 0.02, "optimizer": optimizer}))


def test_inline_is_replay_however_examples_are_sampled():
    digests = set()
    for sampling in ("replacement", "shuffled", "sequential"):
        run = make_run(task=TASK | {"sampling": sampling})
        assert inline_is_replay(run), sampling
        digests.add(execute("run", run, 2).params_digest)
    assert len(digests) == 3


ENDS = {  # name -> its protocol and cluster
    "asgd": (None, SINGLE["cluster"]),
    "ssgd": (None, FOUR["cluster"]),
    "b-fasgd": (
        {"push_gate": {"name": "statistical", "c": 0.1}, "fetch_gate": {"name": "statistical", "c": 0.1}},
        {"workers": 3, "compute": COMPUTE},
    ),
    "psp-sgd": ({"gradients": 2}, {"workers": 4, "servers": 3, "compute": COMPUTE}),
    "d-psgd": (None, SINGLE["cluster"]),
    "wagma-sgd": (None, constant(0.1, 0.25)),
    "ad-psgd": (None, {"workers": 4, "compute": COMPUTE}),
}
STOPS = {"gradients": 60, "target_loss": 1.2}, {"updates": 10}, {"seconds": 2}
CADENCES = {"every_gradients": 3}, {"every_updates": 2}, {"every_seconds": 0.5}


@pytest.mark.parametrize(("number", "name"), mostly_slow(enumerate(ENDS), list(enumerate(ENDS))[:4]))
def test_wherever_a_run_ends_inline_and_replay_end_there_and_have_measured_it(number, name):
    """Runs end within a moment, on a multiple of the spacing, or between two points, in pairs as in a Latin square."""
    protocol, cluster = ENDS[name]
    for k, stop in enumerate(STOPS):
        options = {"stop": stop, "evaluate": CADENCES[(number + k) % 3]}
        replayed, inline = (outcome(name, protocol, cluster, 2, inline, **options) for inline in (False, True))
        assert same_outcome(replayed, inline), options
        assert replayed.metrics["loss"].notna().all()
        for count in ("updates", "gradients"):
            assert replayed.metrics[count].iloc[-1] == replayed.schedule.counts()[count]


@pytest.mark.parametrize("cadence", [{"every_updates": 5}, {"every_gradients": 9}, {"every_seconds": 0.17}])
def test_target_loss_stops_the_run_where_it_is_first_seen(cadence):
    free = execute("run", make_run("asgd", stop={"gradients": 600}, evaluate=cadence), 0)
    for inline in (False, True):
        reached = execute("run", make_run("asgd", stop={"gradients": 600, "target_loss": 0.5}, evaluate=cadence), 0, inline)
        losses = reached.metrics["loss"].to_numpy()
        assert losses[-1] <= 0.5 < losses[:-1].min()
        assert reached.schedule.counts()["updates"] == reached.metrics["updates"].iloc[-1] < 600
        assert free.metrics["loss"].iloc[: len(losses)].tolist() == losses.tolist()
        for column in ("worker", "step", "time_ns", "verb"):
            assert (reached.schedule[column] == free.schedule[column][: len(reached.schedule)]).all()


def test_measuring_changes_nothing():
    few, many = (execute("run", make_run(evaluate=cadence), 4) for cadence in ({"points": 1}, {"every_updates": 1}))
    assert few.params_digest == many.params_digest
    assert len(few.metrics) == 2
    assert len(many.metrics) == 61
    assert few.metrics["loss"].tolist() == many.metrics["loss"].iloc[[0, -1]].tolist()


def test_chunks_and_phases_change_nothing(monkeypatch):
    run = make_run("sasgd", stop={"gradients": 300})
    uninterrupted = execute("run", run, 4)
    monkeypatch.setattr(fred.replay.phases, "LONGEST_PHASE", 5)
    monkeypatch.setattr(fred.replay.phases, "LONGEST_PHASE", 5)
    monkeypatch.setattr(fred.replay.phases, "_INDICES", 1)
    assert same_outcome(uninterrupted, execute("run", run, 4))


def test_a_run_does_not_depend_on_what_else_is_run():
    runs = {name: make_run(name, stop={"gradients": 24}) for name in ("asgd", "ssgd", "local-sgd")}
    together = experiment.run(Scenario(seeds=(1, 2), runs=runs))
    backwards = experiment.run(Scenario(seeds=(1, 2), runs=dict(reversed(runs.items()))), only=["ssgd", "asgd"])
    single = experiment.run(Scenario(seeds=(2,), runs=runs), only=["local-sgd"])
    for name, seed in itertools.product(("asgd", "ssgd"), (1, 2)):
        assert same_outcome(together.outcome(name, seed), backwards.outcome(name, seed))
    assert same_outcome(single.outcome("local-sgd", 2), together.outcome("local-sgd", 2))


def test_algorithms_see_the_same_times_and_minibatches():
    frames = [outcome(name, task=None).schedule.frame().query("verb == 'PUSH' or verb == 'ADD'") for name in ("asgd", "ssgd")]
    lengths: list[Any] = [frame.set_index(["worker", "step"]).eval("end_ns - begin_ns") for frame in frames]
    shared = lengths[0].index.intersection(lengths[1].index)
    assert len(shared) > 40
    assert lengths[0][shared].equals(lengths[1][shared])


def test_evaluations_see_a_replica_that_changes_without_an_instruction():
    """A delivered mean replaces a replica's version: no arithmetic happens, but its parameters are others."""
    case = next(case for case in CASES if case.kind == "protocol" and case.name == "straggler-tolerant")
    stop = case.run.stop.model_copy(update={"gradients": None, "seconds": 0.46})
    run = case.run.model_copy(update={"evaluate": Evaluate(every_seconds=0.01), "stop": stop})
    replayed, inline = execute("run", run, SEED), execute("run", run, SEED, inline=True)
    assert same_outcome(replayed, inline)
    saved = list[Checkpoint]()
    execute("run", run, SEED, following=Following(save=saved.append))
    assert saved
    assert all(
        same_outcome(inline, execute("run", run, SEED, following=Following(resumed=checkpoint))) for checkpoint in saved[-5:]
    )
