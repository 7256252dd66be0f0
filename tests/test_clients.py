"""Rounds of sampled clients: identities between federated systems, who is sampled and awaited, and what is held in memory."""

import numpy as np
import pytest

import fred
from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.learning.data.dataset import loaded
from fred.outcomes.outcome import Outcome
from fred.protocols.client_rounds import ClientRounds
from fred.running import checks
from fred.running.execution import check, execute
from fred.running.problem import Problem
from fred.schedule.minibatches import divide
from fred.schedule.schedule import Schedule, Verb
from fred.views.perfetto import _named
from tests.recompute import measured
from tests.worlds import LAYERS, TASK, make_run, record

SIX = {"workers": 6, "speeds": [1, 1, 1, 0.5, 0.3, 2], "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.7}}
WHOLE_BATCH = {**TASK, "data": {**TASK["data"], "examples": 164}, "batch_size": 64, "sampling": "sequential"}


def outcome(algorithm, protocol, updates, task=TASK, cluster=SIX, **options) -> Outcome:
    algorithm = {"name": algorithm, "learning_rate": 0.1, **options}
    return execute("run", make_run(algorithm, protocol=protocol, cluster=cluster, stop={"updates": updates}, task=task), 3)


def rounds(**options):
    return {"name": "client-rounds", **options}


def times(schedule: Schedule) -> list[int]:
    return schedule["time_ns"][schedule.rows(Verb.COMMIT)].tolist()


def close(a: Outcome, b: Outcome) -> bool:
    return all(np.allclose(a.final[k], b.final[k], rtol=1e-5, atol=1e-6) for k in a.final)


def test_fedavg_of_all_clients_with_one_step_is_synchronous_sgd():
    federated, plain = outcome("fedavg", rounds(period=1), 7 * 20), outcome("ssgd", "synchronous", 20)
    assert times(federated.schedule) == times(plain.schedule) and close(federated, plain)
    federated, plain = outcome("fedavg", rounds(period=1), 70, WHOLE_BATCH), outcome("ssgd", "synchronous", 10, WHOLE_BATCH)
    assert close(federated, plain), "with the whole batch"


def test_spare_clients_are_backup_workers():
    federated = outcome("fedavg", rounds(period=1, clients=4, spare=2), 5 * 20)
    plain = outcome("ssgd", {"name": "synchronous", "backup_workers": 2, "late": "interrupt"}, 20)
    assert times(federated.schedule) == times(plain.schedule) and close(federated, plain)
    counts, others = federated.schedule.counts(), plain.schedule.counts()
    assert counts["dropped"] > 20 and {**counts, "updates": 0} == {**others, "updates": 0}


@pytest.mark.parametrize(
    ("algorithm", "options", "protocol"),
    [("fedprox", {"mu": 0.0}, {}), ("fednova", {}, {"work": "equal", "normalized": True}), ("fedavg", {}, {"work": "speed"})],
)
def test_without_what_sets_it_apart_it_is_fedavg_to_the_last_bit(algorithm, options, protocol):
    cluster = {**SIX, "speeds": [1] * 6}
    plain = outcome("fedavg", rounds(clients=3, period=4), 60, cluster=cluster)
    other = outcome(algorithm, rounds(clients=3, period=4, **protocol), 60, cluster=cluster, **options)
    assert (other.schedule.digest(), other.params_digest) == (plain.schedule.digest(), plain.params_digest)


def test_without_drift_scaffold_is_fedavg():
    task = {**WHOLE_BATCH, "batch_size": 100}  # every gradient is that of all examples
    plain, corrected = (outcome(name, rounds(period=3), 19 * 10, task) for name in ("fedavg", "scaffold"))
    assert close(plain, corrected)


def test_with_drift_control_variates_help():
    task = {**TASK, "division": "by-label"}
    plain, corrected = (outcome(name, rounds(period=10), 61 * 10, task) for name in ("fedavg", "scaffold"))
    assert corrected.metrics["loss"].iloc[-1] < 0.9 * plain.metrics["loss"].iloc[-1]


def test_a_scaffold_message_has_twice_the_bytes():
    sizes = [outcome(name, rounds(), 61, TASK).schedule["bytes"].sum() for name in ("fedavg", "scaffold")]
    assert sizes[1] == 2 * sizes[0] > 0


def sampled(protocol: ClientRounds, cluster: Cluster, seconds: float = 2000.0, **options) -> list[int]:
    """The clients of all rounds, one after the other."""
    schedule = record(protocol, cluster, seconds=seconds, **options)
    return schedule["worker"][schedule.rows(Verb.ADD)].tolist()


def test_samples_are_uniform_or_in_proportion_to_speed_and_have_nobody_twice():
    cluster = Cluster(workers=10, speeds=[1.0] * 5 + [3.0] * 5, compute={"name": "constant", "seconds": 0.3})
    for sampling, expected in (("uniform", 0.5), ("speed", 0.75)):
        own = sampled(ClientRounds(clients=1, period=1, sampling=sampling), cluster)
        share = np.mean(np.array(own) >= 5)
        assert abs(share - expected) < 4 * np.sqrt(0.25 / len(own)), sampling
    four = np.array(sampled(ClientRounds(clients=4, period=1), cluster)[:4000]).reshape(-1, 4)
    assert (np.diff(np.sort(four)) > 0).all() and len(np.unique(four)) == 10


def test_the_size_of_a_client_is_the_number_of_its_examples():
    task = {**TASK, "division": "dirichlet", "concentration": 0.2}
    run = make_run("fedavg", protocol=rounds(clients=2, sampling="size", work="size", period=6), cluster=SIX, task=task)
    assert run.task is not None
    problem = Problem(run.task, run, 3)
    sizes = np.array(problem.sizes.examples)
    assert sizes.sum() == len(problem.data.train) and sizes.max() > 2 * sizes.min()
    schedule = execute("run", run, 3).schedule
    own, pushed = (schedule["worker"][schedule.rows(verb)] for verb in (Verb.ADD, Verb.PUSH))
    made = np.split(pushed, np.flatnonzero(np.diff(schedule.rows(Verb.PUSH)) > 2) + 1)  # by turn
    expected = np.maximum(1, np.rint(6 * sizes / sizes.mean()))
    assert [(each[0], len(each)) for each in made[:-1]] == [(worker, expected[worker]) for worker in own[: len(made) - 1]]
    weights = schedule["weight"][schedule.rows(Verb.ADD)]
    assert weights.tolist() == (sizes / sizes.mean())[own].tolist()
    for commit in schedule.rows(Verb.COMMIT):
        joined = [row for row in schedule.rows(Verb.ADD) if row < commit][-2:]
        assert schedule["weight"][commit] * schedule["weight"][joined].sum() == pytest.approx(1), "a mean"


def test_a_round_ends_at_its_deadline_but_waits_for_its_minimum():
    cluster = Cluster(workers=4, times=[1.0, 2.0, 3.0, 10.0])
    for minimum, ends in ((1, 2.5), (3, 3.0), (4, 10.0)):
        schedule = record(ClientRounds(period=1, deadline=2.5, minimum=minimum), cluster, seconds=11)
        assert times(schedule)[0] == ends * 1e9, minimum
    late = record(ClientRounds(period=1, deadline=2.5, late="finish"), cluster, seconds=4)
    drops = late.rows(Verb.DROP)
    assert late["worker"][drops].tolist() == [2, 2] and late["time_ns"][drops].tolist() == [3e9, 3e9], "it finished in vain"
    pulls = late.rows(Verb.PULL)
    again = late["worker"][pulls[(late["time_ns"][pulls] == 2.5e9) & (late["messages"][pulls] > 0)]]
    assert again.tolist() == [0, 1], "late clients are busy"


def test_only_available_clients_are_sampled_and_the_server_waits_for_enough():
    away = [{"name": "outage", "workers": [0, 1], "begin": 0.0, "end": 50.0}]
    cluster = Cluster(workers=4, compute={"name": "constant", "seconds": 1.0}, faults=away)
    assert set(sampled(ClientRounds(clients=2, period=1), cluster, seconds=49.5)) == {2, 3}
    waiting = record(ClientRounds(clients=3, period=1, minimum=3), cluster, seconds=60)
    assert times(waiting)[0] == 51e9


def test_steps_of_late_clients_are_not_computed_and_no_model_is_held_for_a_client():
    run = make_run("fedavg", protocol=rounds(clients=3, spare=30, period=5), cluster={**SIX, "workers": 400, "speeds": []})
    schedule = execute("run", run, 3).schedule
    assert schedule.counts()["dropped"] > 5 * schedule.counts()["gradients"] / 3
    assert schedule.replicas == 2 and len(schedule.rows(Verb.PUSH)) == schedule.counts()["gradients"]


@pytest.mark.parametrize("task", [{**TASK, "division": "by-quantity"}, {**LAYERS, "division": "by-label"}, TASK])
def test_each_client_has_a_loss_and_an_error_of_its_own(task):
    protocol = rounds(clients=2, spare=2, period=3)
    result = fred.run(fred.scenario(_run(protocol, task)))
    frame, counts, schedule = (
        result.by_worker("fedavg"),
        result.outcome("fedavg").schedule.counts(),
        result.outcomes[0].schedule,
    )
    assert frame["gradients"].sum() == counts["gradients"] and frame["dropped"].sum() == counts["dropped"] > 0
    assert frame["gradients"].tolist() == np.bincount(schedule["worker"][schedule.rows(Verb.PUSH)], minlength=6).tolist()
    if "division" not in task:
        assert list(frame) == ["worker", "gradients", "dropped"]
        return
    given = result.outcomes[0].run.task
    assert given is not None
    data, final = loaded(given.data, 0).train, result.outcomes[0].final
    loss, error = measured(final, data.inputs, data.answers)
    assert np.average(frame["loss"], weights=frame["examples"]) == pytest.approx(loss, rel=1e-5)
    assert np.average(frame["error"], weights=frame["examples"]) == pytest.approx(error)
    if task["division"] == "by-label":
        own = divide(0, len(data), 6, data.answers).order[: frame["examples"][0]]
        assert frame["error"][0] == pytest.approx(measured(final, data.inputs[own], data.answers[own])[1])


def _run(protocol, task):
    algorithm = {"name": "fedavg", "learning_rate": 0.1}
    return {"task": task, "cluster": SIX, "algorithm": algorithm, "protocol": protocol, "stop": {"updates": 61}}


def test_memories_that_do_not_fit_are_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(checks, "memory_here", lambda: 5000.0)
    cluster = {"workers": 40}
    check("run", make_run("fedavg", cluster=cluster), 0)
    with pytest.raises(FredError, match=r"`scaffold` stores 0.0 MB for each of 40 workers, .*; use a smaller model"):
        check("run", make_run("scaffold", cluster=cluster), 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"clients": 3, "spare": 2}, r"samples 5 clients"), ({"clients": 2, "minimum": 3}, r"`minimum` \(3\) must be at most")],
)
def test_rounds_that_cannot_be_are_refused(options, message):
    with pytest.raises(FredError, match=message):
        make_run("fedavg", protocol=rounds(**options))


def test_the_layout_of_clients_is_local_but_sends_no_models():
    layout = fred.Layout.clients()
    assert layout.local(2) and layout.local(1000) and not layout.models_only(2)


def test_the_model_in_which_clients_take_their_steps_is_of_all_workers():
    schedule = outcome("fedavg", rounds(clients=2), 21).schedule
    assert [_named(schedule, cell) for cell in (0, 1)] == ["of all workers", "of the server"]
