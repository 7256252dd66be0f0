"""A batch size per worker: means over workers weighted by examples, recomputed by NumPy, and the same bits in every way to run."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fred import FredError, Protocol, Schedule, Verb, batch_indices
from fred.components import registry
from fred.outcomes.outcome import Outcome
from fred.replay import arithmetic
from fred.running import model_training
from fred.running.checkpoints import Checkpoint, Following
from fred.running.execution import check, execute
from fred.running.recording import Recording
from fred.schedule.minibatches import divide
from fred.schedule.schedule import What
from tests.plain import recompute_run
from tests.recompute import PlainSGD, gradient, largest_relative_error, recompute_by
from tests.threaded_replay import ThreadedReplay
from tests.worlds import RATE, TASK, UNEQUAL, make_run, outcome, same_outcome

SIZES = [6, 2, 3, 5]  # their mean is 4, the batch size of TASK
BACKUP = {"name": "synchronous", "backup_workers": 1}
NETWORK = {"latency": {"name": "exponential", "scale": 0.02}, "bandwidth": 1e5}


def task_with_sizes(sizes: Any, **task: Any) -> dict[str, Any]:
    return {**TASK, "batch_size": sizes, **task}


def run_sized(algorithm: Any = "ssgd", protocol: Any = None, sizes: Any = SIZES, **options: Any) -> Outcome:
    return outcome(algorithm, protocol, **{"stop": {"gradients": 60}, "task": task_with_sizes(sizes), **options})


def weights_of(schedule: Schedule, verb: str) -> list[tuple[int, float]]:
    frame: Any = schedule.frame()
    return [(row.worker, row.weight) for row in frame[frame["verb"] == verb].itertuples()]


class Given(Protocol):
    """Rounds of two gradients with given weights."""

    weights: tuple[float, float]

    def start(self, sim):
        sim.process(self.work(sim))

    def work(self, sim):
        while True:
            computed = [sim.compute(worker, sim.read(worker)) for worker in range(2)]
            yield sim.env.all_of([computation.finished for computation in computed])
            for computation, weight in zip(computed, self.weights, strict=True):
                sim.add(computation, weight=weight)
            sim.commit()


@pytest.fixture(autouse=True)
def _allow_own_classes():
    registry.allow_import([__name__])


def given_run(*weights: float, **options: Any) -> Any:
    protocol = {"name": f"{__name__}:Given", "weights": weights}
    return make_run("ssgd", protocol=protocol, cluster=UNEQUAL | {"workers": 2}, **options)


class TestMinibatches:
    @given(
        st.lists(st.integers(1, 9), min_size=1, max_size=5), st.sampled_from(["replacement", "shuffled"]), st.integers(0, 99)
    )
    def test_workers_together_see_the_examples_of_one_worker_with_the_sum_of_their_sizes(self, sizes, sampling, step):
        options: dict[str, Any] = {"examples": 50, "sampling": sampling}
        minibatches = batch_indices(3, np.arange(len(sizes)), step, batch_size=sizes, **options)
        assert minibatches.shape == (len(sizes), max(sizes))
        assert [(row >= 0).sum() for row in minibatches] == sizes
        together = minibatches[minibatches >= 0].tolist()  # row by row
        assert together == batch_indices(3, 0, step, batch_size=sum(sizes), **options).tolist()

    def test_equal_sizes_in_a_list_draw_the_minibatches_of_one_number(self):
        for sampling in ("replacement", "shuffled", "sequential"):
            for parts in (None, divide(3, 90, 3)) if sampling != "sequential" else (None,):
                options: dict[str, Any] = {"examples": 90, "sampling": sampling, "workers": 3, "parts": parts, "ordinal": 4}
                expected = batch_indices(3, np.arange(3), 5, batch_size=8, **options)
                assert (batch_indices(3, np.arange(3), 5, batch_size=[8, 8, 8], **options) == expected).all()

    def test_a_worker_goes_through_its_own_part_in_steps_of_its_own_size(self):
        parts, sizes = divide(3, 90, 3), [5, 10, 30]
        options: dict[str, Any] = {"batch_size": sizes, "examples": 90, "sampling": "shuffled", "parts": parts}
        for worker, size in enumerate(sizes):
            part = parts.order[parts.begins[worker] : parts.begins[worker + 1]]
            epoch = batch_indices(3, worker, np.arange(30 // size), **options)
            assert sorted(epoch[epoch >= 0]) == sorted(part)

    def test_sequential_minibatches_of_different_sizes_are_refused(self):
        with pytest.raises(FredError, match="`sampling: sequential` needs one size"):
            batch_indices(0, 0, 0, batch_size=[1, 2], examples=9, sampling="sequential")


class TestRounds:
    @pytest.mark.parametrize("protocol", ["synchronous", "allreduce"])
    def test_workers_make_the_steps_of_one_worker_with_all_their_examples(self, protocol):
        options: dict[str, Any] = {"stop": {"updates": 20}, "evaluate": {"points": 1}}
        several, equal = (run_sized(protocol=protocol, sizes=sizes, **options) for sizes in (SIZES, 4))
        single = run_sized(protocol=protocol, sizes=sum(SIZES), cluster={"workers": 1}, **options)
        assert largest_relative_error(several.final, single.final) < 1e-6
        assert largest_relative_error(several.final, equal.final) < 1e-6, "the same examples in all"
        assert largest_relative_error(several.final, several.initial) > 0.1

    @pytest.mark.parametrize(("algorithm", "protocol"), [("ssgd", None), ("ssgd", BACKUP), ("asgd", None)])
    def test_equal_sizes_in_a_list_leave_the_bits_of_one_number(self, algorithm, protocol):
        assert same_outcome(run_sized(algorithm, protocol, [4, 4, 4, 4]), run_sized(algorithm, protocol, 4))

    def test_gradients_join_with_their_examples_over_the_mean_number(self):
        schedule = run_sized(protocol=BACKUP).schedule
        adds = weights_of(schedule, "ADD")
        assert all(weight == SIZES[worker] / 4 for worker, weight in adds)
        rounds = [adds[at : at + 3] for at in range(0, len(adds), 3)]
        for members, (_, weight) in zip(rounds, weights_of(schedule, "COMMIT"), strict=True):
            assert weight == 1 / sum(SIZES[worker] / 4 for worker, _ in members)

    @pytest.mark.parametrize(
        ("algorithm", "protocol"),
        [("ssgd", {"name": "eager"}), ("mindflayer", {"name": "time-limited", "trials": [1, 2, 3, 1], "limit": 100.0})],
    )
    def test_a_fixed_divisor_counts_examples(self, algorithm, protocol):
        """Over a whole round: the sum of examples x gradients is divided by the number of planned examples."""
        trials = protocol.get("trials", [1, 1, 1, 1])
        cluster = {"workers": 4, "compute": {"name": "constant", "seconds": 1.0}}
        schedule = run_sized(algorithm, protocol, cluster=cluster).schedule
        ((_, weight),) = set(weights_of(schedule, "COMMIT"))
        planned = sum(trial * size for trial, size in zip(trials, SIZES, strict=True))
        for worker, factor in weights_of(schedule, "ADD"):
            assert factor * weight == pytest.approx(SIZES[worker] / planned)

    def test_planned_gradients_of_dropcompute_are_planned_examples(self):
        run = {"name": "drop-compute", "micro_batches": 3, "threshold": 0.25}
        planned, done = (run_sized("dropcompute", {**run, "average": average}).schedule for average in ("planned", "done"))
        assert {weight for _, weight in weights_of(planned, "COMMIT")} == {1 / 12}
        commit_weights = np.array([weight for _, weight in weights_of(done, "COMMIT")])
        rows = iter(weights_of(done, "ADD"))
        for total in 1 / commit_weights:
            while total > 1e-9:
                total -= next(rows)[1]
            assert total == pytest.approx(0)

    @pytest.mark.parametrize(
        ("algorithm", "protocol"),
        [
            ("async-batch", None),
            ("asgd", {"name": "gated", "push_gate": {"name": "periodic", "k": 3}, "unsent": "sum"}),
            ("asgd", "asynchronous"),
        ],
    )
    def test_sums_of_one_worker_have_no_weights(self, algorithm, protocol):
        schedule = run_sized(algorithm, protocol).schedule
        assert {weight for verb in ("ADD", "PUSH") for _, weight in weights_of(schedule, verb)} == {1.0}

    def test_a_restored_job_counts_no_gradient_of_a_lost_round(self):
        failures = {"recorded": [[0, 0.95, 1.0], [1, 2.05, 2.2]], "checkpoint": {"every_updates": 1}}
        cluster = {"workers": 4, "speeds": [10, 5, 1 / 0.3, 2.5], "compute": {"name": "constant", "seconds": 1.0}}
        schedule = run_sized(cluster=cluster | {"failures": failures}).schedule
        assert {weight for _, weight in weights_of(schedule, "COMMIT")} == {0.25}
        assert (schedule.intervals.what == What.UNDONE).sum() == 2


class TestWays:
    """Each algorithm's own rule in NumPy, from the rows; the same bits replayed, inline, in several processes and resumed."""

    @pytest.mark.parametrize(
        ("algorithm", "protocol", "cluster"),
        [
            ("asgd", None, {}),
            ("ssgd", BACKUP, {"network": NETWORK}),
            pytest.param("psp-sgd", {"name": "partial", "gradients": 3}, {"servers": 3}, marks=pytest.mark.slow),
            (
                "b-fasgd",
                {
                    "name": "gated",
                    "push_gate": {"name": "statistical", "c": 0.2},
                    "fetch_gate": {"name": "statistical", "c": 0.4},
                },
                {},
            ),
            ("async-batch", None, {}),
            ("malenia", None, {}),
        ],
    )
    def test_all_ways_agree(self, algorithm, protocol, cluster, monkeypatch):
        options: dict[str, Any] = {"cluster": {**UNEQUAL, **cluster}, "algorithm": algorithm, "protocol": protocol}
        inline = run_sized(**options, inline=True)
        assert largest_relative_error(inline.final, recompute_run(inline).params) < 1e-5
        stored = list[Checkpoint]()
        replayed = execute("run", inline.run, 3, following=Following(save=stored.append))
        assert same_outcome(inline, replayed)
        assert same_outcome(replayed, execute("run", inline.run, 3, following=Following(resumed=stored[0])))
        if not inline.run.protocol.needs_values:
            monkeypatch.setattr(model_training, "replay", ThreadedReplay(2, 40))
            assert same_outcome(replayed, execute("run", inline.run, 3))

    def test_costly_gradients_have_the_same_bits(self, monkeypatch):
        usual = run_sized()
        monkeypatch.setattr(arithmetic, "_EXPENSIVE", 0)
        assert same_outcome(usual, run_sized())

    @pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 3.0)])
    def test_messages_with_weights_of_the_protocol_count_as_one_each(self, weights):
        run = given_run(*weights, task=task_with_sizes([6, 2]))
        replayed = execute("run", run, 3)
        assert same_outcome(replayed, execute("run", run, 3, inline=True))
        (expected,) = recompute_by(replayed, [PlainSGD({k: v.astype(float) for k, v in replayed.initial.items()}, 0.1)])
        assert largest_relative_error(replayed.final, expected) < 1e-5
        assert {weight for _, weight in weights_of(replayed.schedule, "COMMIT")} == {1 / len(weights)}

    def test_an_asynchronous_server_applies_each_mean_as_it_is(self):
        run = run_sized("asgd", stop={"updates": 1}, evaluate={"points": 1})
        row = next(row for row in run.schedule if row.verb == Verb.PUSH)
        data: Any = run.run.task and run.run.task.data.load(3).train
        minibatch = batch_indices(3, row.worker, row.step, batch_size=SIZES, examples=len(data))[: SIZES[row.worker]]
        grads = gradient(run.initial, data.inputs[minibatch], data.answers[minibatch])
        expected = {k: run.initial[k] - RATE * grads[k] for k in grads}
        assert largest_relative_error(run.final, expected) < 1e-6

    def test_a_part_of_its_own_serves_each_worker_at_its_own_size(self):
        task = task_with_sizes(SIZES, division="divided", sampling="shuffled")
        assert same_outcome(run_sized(task=task), run_sized(task=task, inline=True))


class TestCounts:
    def test_timing_is_that_of_one_number(self):
        uniform, several = (
            Recording(make_run("asgd", task=task_with_sizes(sizes), cluster=UNEQUAL), 3).schedule() for sizes in (4, SIZES)
        )
        assert uniform.digest() == several.digest()

    def test_tokens_are_those_of_each_gradient(self):
        data = {"name": "bigrams", "vocabulary": 9, "context": 7, "examples": 60, "evaluation": 10}
        task = {"data": data, "model": "token-scores", "batch_size": [3, 1]}
        run = make_run(
            "asgd", task=task, cluster=UNEQUAL | {"workers": 2}, stop={"gradients": 9}, evaluate={"every_gradients": 2}
        )
        outcome = execute("run", run, 3)
        workers = [row.worker for row in outcome.schedule if row.verb == Verb.PUSH]
        expected = np.cumsum([0, *(7 * [3, 1][worker] for worker in workers)])
        assert outcome.metrics["tokens"].tolist() == expected[[0, 2, 4, 6, 8, 9]].tolist()


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (
                {"task": task_with_sizes([4, 8])},
                "`batch_size` has 2 numbers; expected one for each of the 4 workers, or one number",
            ),
            ({"task": task_with_sizes([])}, "`batch_size` has 0 numbers"),
            (
                {"task": task_with_sizes([], data="bigrams", model="token-scores"), "stop": {"tokens": 9}},
                "`batch_size` has 0 numbers",
            ),
            (
                {"task": task_with_sizes(SIZES, sampling="sequential")},
                "give `batch_size` one number, or take another `sampling`",
            ),
            ({"algorithm": "diloco"}, "average models of their own, without weights by examples"),
            ({"algorithm": "dbw"}, "must be means of the same number of examples"),
            (
                {"task": task_with_sizes(SIZES, data="bigrams", model="token-scores"), "stop": {"tokens": 9}},
                "stop by `gradients` instead",
            ),
        ],
    )
    def test_what_cannot_be_weighted_is_refused_and_one_number_cures_it(self, options, message):
        options = {"algorithm": "ssgd", "task": task_with_sizes(SIZES), **options}
        with pytest.raises(FredError, match=message):
            make_run(**options)
        make_run(**options | {"task": options["task"] | {"batch_size": 4}})

    def test_models_that_look_at_whole_minibatches_are_refused(self):
        registry.allow_import(["tests.test_own_models"])
        task = task_with_sizes(SIZES, model="tests.test_own_models:Dropped")
        with pytest.raises(FredError, match=r"model `.*Dropped` .* padded .*: give `task.batch_size` one number"):
            check("run", make_run(task=task), 3)
        check("run", make_run(task={**task, "batch_size": [4, 4, 4, 4]}), 3)
