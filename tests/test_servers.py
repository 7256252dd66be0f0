"""Protocols with servers: closed forms, equivalences of schedules, and second programs."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fred import Central, Cluster, FredError, Process, Simulation, Verb
from fred.base import numerics
from fred.commands.printing import print_summary
from fred.outcomes.outcome import run_times, summarise
from fred.protocols.asynchronous import Asynchronous, Dispatcher
from fred.protocols.gates import Gated, Periodic
from fred.protocols.synchronous import Synchronous
from fred.results import experiment
from fred.schedule.staleness import by_block, of_gradients
from fred.schedule.traffic import copies
from fred.specification.loading import validated
from fred.systems.pipelines import FixedLag
from fred.systems.psp import Partial, StaleSynchronous
from fred.systems.softsync import Softsync
from fred.timing.queued_links import QueuedLinks
from tests.worlds import CLUSTERS, COMPUTE, constant, make_run, outcome, record

DECISIVE = ["worker", "step", "timestamp", "staleness"]
LAYERS: dict[str, Any] = {"clocks": "each", "cut": "layers", "overlap": True}
NETWORK = {"latency": {"name": "exponential", "scale": 0.02}, "bandwidth": 1e5, "server_bandwidth": 2e5}
CLUSTER = Cluster(workers=5, compute=COMPUTE, network=NETWORK)


def test_these_are_the_same_to_the_last_bit():
    for protocol, like in (
        (Asynchronous(clocks="each", cut="layers"), Asynchronous()),
        (Asynchronous(**LAYERS, pulls="at-once"), Asynchronous()),
        (Softsync(n=1, afterwards="wait"), Synchronous()),
        (Softsync(n=1, afterwards="wait", **LAYERS), Synchronous()),
        (Softsync(n=5, afterwards="wait"), Asynchronous()),
        (Softsync(n=4), Asynchronous()),
        (StaleSynchronous(bound=0), StaleSynchronous(bound=0, cache=False)),
        (Gated(), Asynchronous()),
        (Gated(unsent="mean", **LAYERS), Asynchronous()),
    ):
        assert record(protocol, CLUSTER, 150).digest() == record(like, CLUSTER, 150).digest(), protocol


class TestServersWithClocksOfTheirOwn:
    """A gradient takes 0.9 s: forward 3 x 0.1 s, backward 3 x 0.2 s."""

    def test_blocks_are_delivered_after_their_backward_pass_and_late_ones_delay_the_forward_pass(self):
        """Blocks arrive in turn at 0.2, 0.4 and 0.6 s; the forward pass is past them at 0.3, 0.5 and 0.7 s."""
        for latency, options, seconds in (
            (0.0, {}, [0.9, 0.9, 0.9]),
            (0.0, {"overlap": True}, [0.5, 0.7, 0.9]),
            (0.2, {"overlap": True}, [1.1, 1.3, 1.5]),
            (0.2, {"overlap": True, "pulls": "at-once"}, [0.9, 1.1, 1.3]),
            (0.2, {}, [1.7] * 3),
            (0.2, {"pulls": "at-once"}, [1.3] * 3),
        ):
            cluster = Cluster(**constant(0.9, servers=3, network={"latency": {"name": "constant", "seconds": latency}}))
            schedule = record(Asynchronous(clocks="each", cut="layers", **options), cluster, gradients=2)
            pushes = schedule.rows(Verb.PUSH)[:3]
            assert schedule["block"][pushes].tolist() == [2, 1, 0]
            assert (schedule["time_ns"][pushes] / 1e9).tolist() == pytest.approx(seconds), options

    def test_a_gradient_takes_as_long_as_it_would_without_waiting(self):
        cluster = constant(0.9, 0.9, servers=3, network={"latency": {"name": "constant", "seconds": 0.2}})
        run = outcome("asgd", {"name": "asynchronous", **LAYERS}, cluster, task=None, stop={"updates": 9})
        schedule = run.schedule
        assert set(run_times(schedule, run.run.cluster)["seconds"]) == {0.9}
        rows, pulls = schedule.rows(Verb.PUSH), schedule.rows(Verb.PULL)
        assert (schedule["end_ns"][rows] <= schedule["time_ns"][rows]).all()
        assert (np.diff(schedule["block"][pulls[schedule["worker"][pulls] == 0]]) % 3 == 1).all(), "forwards"

    @pytest.mark.slow
    def test_the_top_layer_is_fresher_by_what_the_paper_measured(self):
        """Chen et al. 2017, table 1: of 18 layers and 40 workers, 14.54 at the top and 38.97 at the bottom."""
        cluster = Cluster(workers=40, servers=18, compute=COMPUTE)
        means = by_block(record(Asynchronous(**LAYERS), cluster, gradients=1200))["mean"].to_numpy()
        passed = 1 / 3 + 2 / 3 * (18 - np.arange(18)) / 18  # of a step, when the block is pushed; in all of it there are 39
        assert means == pytest.approx(39 * passed, rel=0.03)
        assert means[[17, 0]] == pytest.approx([14.54, 38.97], rel=0.03)

    def test_a_block_cannot_be_used_before_it_is_ready(self):
        def work(protocol: Central, sim: Simulation) -> Process:
            gradient = yield from protocol.compute(sim, 0, (yield from protocol.fetch(sim, 0)))
            yield sim.env.after(gradient.ready_at(2) - sim.now)
            sim.push(gradient, block=2)
            sim.push(gradient, block=1)

        class Hasty(Central):
            def start(self, sim: Simulation) -> None:
                sim.process(work(self, sim))

        with pytest.raises(FredError, match=r"used at 0.5 s, before it is finished at 0.7 s"):
            record(Hasty(**LAYERS), Cluster(**constant(0.9, servers=3)), gradients=2)


class TestSoftsync:
    @settings(max_examples=15)
    @given(cluster=CLUSTERS, n=st.integers(1, 7), afterwards=st.sampled_from(["wait", "go-on"]), seed=st.integers(0, 9))
    def test_every_update_has_so_many_gradients_and_who_waits_gets_the_update(self, cluster, n, afterwards, seed):
        n = min(n, cluster.size)
        schedule = record(Softsync(n=n, afterwards=afterwards), cluster, gradients=60, seed=seed)
        assert set(schedule.ledger.gradients_per_update().tolist()) == {cluster.size // n}
        updates, clock, waiting = 0, [0] * cluster.size, list[int]()  # the update that the worker's last gradient was part of
        for row in schedule if afterwards == "wait" else ():
            if row.verb == Verb.PULL:
                assert row.timestamp >= clock[row.worker]
            elif row.verb in (Verb.ADD, Verb.PUSH):
                waiting.append(row.worker)
            if row.verb in (Verb.COMMIT, Verb.PUSH):
                updates += 1
                while waiting:
                    clock[waiting.pop()] = updates

    def test_thirty_workers_gradients_are_as_stale_as_the_paper_measured(self):
        """Zhang et al. 2016, section 2: with n = 1 it is 0, 1 or 2; while one computes, each of the 29 others delivers once."""
        cluster = Cluster(workers=30, compute={"name": "lognormal", "median": 0.1, "sigma": 0.1})
        for n in (1, 15):
            stale = of_gradients(record(Softsync(n=n), cluster, gradients=6000))[600:]
            assert stale.mean() == pytest.approx(29 / (30 // n), rel=0.01) and stale.max() <= 2 * n
            assert n > 1 or set(stale.tolist()) == {0, 1, 2}


@pytest.mark.parametrize("kind", [Gated, Dispatcher])
class TestPeriods:
    CLUSTER = Cluster(**constant(*[0.1] * 5))

    def test_gradients_between_two_pushes_make_one_update(self, kind):
        for pending, weight in ((None, 1.0), ("mean", 1 / 3)):
            schedule = record(kind(push_gate=Periodic(k=3), unsent=pending), self.CLUSTER, gradients=75)
            adds, commits = schedule.rows(Verb.ADD), schedule.rows(Verb.COMMIT)
            assert len(adds) == 3 * len(commits) > 0 and (schedule["weight"][commits] == weight).all()
            steps, worker = (schedule[name][adds].reshape(-1, 3) for name in ("step", "worker"))
            assert (np.diff(steps) == 1).all() and (worker == worker[:, :1]).all()
            assert (steps[:, 2] % 3 == 0).all(), "the first gradient, and then every third, is sent"
            assert (schedule["messages"][adds].reshape(-1, 3) == [0, 0, 1]).all()
            assert (schedule["step"][schedule.rows(Verb.PUSH)] == 0).all(), "the first one is sent alone"

    def test_parameters_are_fetched_before_every_kth_gradient_and_the_last_gradient_may_be_applied_again(self, kind):
        fetched, repeated = (
            record(kind(**options), self.CLUSTER, gradients=75)
            for options in (
                {"fetch_gate": {"name": "periodic", "k": 4}},
                {"push_gate": {"name": "periodic", "k": 3}, "unsent": "apply-again"},
            )
        )
        pushes = repeated.rows(Verb.PUSH)
        for worker in range(5):
            rows = fetched.rows(Verb.PUSH)
            mailboxes = fetched["mailbox"][rows[fetched["worker"][rows] == worker]]
            assert (np.diff(mailboxes) > 0).tolist() == [step % 4 == 0 for step in range(1, len(mailboxes))]
            steps = repeated["step"][pushes[repeated["worker"][pushes] == worker]]
            assert steps.tolist() == [number // 3 * 3 for number in range(len(steps))]
        assert len(repeated.rows(Verb.DROP)) == (repeated["messages"][pushes] == 0).sum()


class TestFixedLag:
    def test_with_n_workers_and_lag_n_less_one_it_is_asynchronous_in_lockstep(self):
        """One worker without lag is serial SGD. All columns that decide the parameters are equal, so they are equal."""
        for workers in (1, 4):
            cluster = Cluster(**constant(*[0.1] * workers))
            lagged, asynchronous = (record(protocol, cluster, 60) for protocol in (FixedLag(lag=workers - 1), Asynchronous()))
            a, b = (schedule.frame().query("verb == 'PUSH'").reset_index() for schedule in (lagged, asynchronous))
            assert a[DECISIVE].equals(b[DECISIVE]) and len(a) >= 60

    def test_old_gradients_by_a_queue_of_models(self):
        """The queue loses one of its oldest models in every update, and a gradient is computed at it."""
        draws = numerics.uniforms(5, "lag", 0, 0, 100)
        for lag, oldest, ramp, workers in (
            (9, 4, 0, 1),
            (9, 4, 30, 1),
            (9, 4, 0, 3),
            (0, 1, 0, 1),
            (4, 1, 12, 1),
            (9, 1, 3, 1),
        ):
            queue, read, steps, expected = list[tuple[int, int]](), 0, [0] * workers, []
            for update in range(100):
                while read - min(lag, lag * read // max(ramp, 1), read) <= update:  # when a constant lag would have it read
                    queue.append((read % workers, update))
                    read += 1
                worker, born = queue.pop(int(draws[update] * min(oldest, len(queue))))
                expected.append((worker, steps[worker], born, update - born))
                steps[worker] += 1
            protocol = FixedLag(lag=lag, drawn_from=oldest, ramp=ramp)
            schedule = record(protocol, Cluster(workers=workers), gradients=100, seed=5)
            pushes = schedule.rows(Verb.PUSH)
            assert not schedule["messages"].any()
            assert np.transpose([schedule[name][pushes] for name in DECISIVE]).tolist() == list(map(list, expected))
            assert len({age for *_, age in expected}) > (8 if oldest > 1 else lag)


class TestSSPCache:
    @settings(max_examples=30)
    @given(cluster=CLUSTERS, bound=st.integers(0, 4), seed=st.integers(0, 9))
    def test_what_is_read_has_all_updates_that_it_must_have(self, cluster, bound, seed):
        """Step c needs those of steps up to c - bound - 1 [Ho et al. 2013, section 3]; the worker fetches only if it has to."""
        schedule = record(StaleSynchronous(bound=bound), cluster, gradients=80, seed=seed)
        steps_done = [0] * cluster.size
        cached = [-1] * cluster.size  # the number of everybody's steps that the cache is sure to have
        for row in schedule:
            if row.verb == Verb.PULL:
                assert row.step == 0 or cached[row.worker] < row.step - bound, "what it had would have done"
                assert row.step - min(steps_done) <= bound, "no worker begins a step more than the bound ahead"
                cached[row.worker] = min(steps_done)
            elif row.verb == Verb.PUSH:
                assert cached[row.worker] >= row.step - bound
                steps_done[row.worker] = row.step + 1

    def test_without_a_bound_it_is_asynchronous_on_the_first_parameters(self):
        cluster = Cluster(workers=5, compute=COMPUTE)
        cached, asynchronous = (record(protocol, cluster, 200) for protocol in (StaleSynchronous(bound=None), Asynchronous()))
        pushes, plain_pushes = cached.rows(Verb.PUSH), asynchronous.rows(Verb.PUSH)
        assert len(cached.rows(Verb.PULL)) == 5 and not cached["timestamp"][pushes].any()
        assert all(
            (cached[name][pushes] == asynchronous[name][plain_pushes]).all()
            for name in ("time_ns", "worker", "step", "begin_ns")
        )


def test_a_server_that_is_always_late_is_never_heard_by_who_drops_late_blocks(monkeypatch):
    download = QueuedLinks.download

    def delayed(links: QueuedLinks, worker: int, size: int, server: int | None = None) -> int:
        return download(links, worker, size, server) + (50_000_000 if server == 7 else 0)

    monkeypatch.setattr(QueuedLinks, "download", delayed)
    cluster = Cluster(workers=8, servers=8, compute=COMPUTE, network={"latency": {"name": "constant", "seconds": 0.002}})
    for late, oldest in (("drop", 199), ("keep", 1)):
        schedule = record(Partial(blocks_percent=75, late_blocks=late), cluster, gradients=200 * 8)
        assert by_block(schedule)["max"].tolist() == pytest.approx([0] * 7 + [oldest], abs=1)


class TestCopies:
    def test_counted_by_a_walk_through_the_rows(self):
        for protocol in (
            *(
                Gated(push_gate=Periodic(k=3), fetch_gate=Periodic(k=2)),
                Gated(push_gate=Periodic(k=2), unsent="apply-again"),
                Dispatcher(push_gate=Periodic(k=3), fetch_gate=Periodic(k=2)),
            ),
            StaleSynchronous(bound=2),
        ):
            schedule = record(protocol, CLUSTER, 120)
            gradients: dict[tuple[int, int], list[int]] = {}  # gradient -> mailbox, messages
            for row in schedule:
                if row.verb in (Verb.PUSH, Verb.ADD, Verb.DROP):
                    gradients.setdefault((row.worker, row.step), [row.mailbox, 0])[1] += row.messages
            table = copies(schedule)
            assert table["potential"].tolist() == list(range(1, len(gradients) + 1))
            assert table["pushes"].tolist() == np.cumsum([messages > 0 for _, messages in gradients.values()]).tolist()
            mailboxes = [mailbox for mailbox, _ in gradients.values()]
            assert table["fetches"].tolist() == [len(set(mailboxes[: n + 1])) for n in range(len(mailboxes))]
            assert (table["fetched_bytes"] == 1000 * table["fetches"]).all()
            assert (table["pushed_bytes"] == 1000 * table["pushes"]).all()

    def test_blocks_of_one_model_are_one_copy_and_without_a_server_there_is_none(self):
        table = copies(record(Gated(fetch_gate=Periodic(k=3), **LAYERS), Cluster(workers=3, servers=4, compute=COMPUTE), 60))
        assert (table["pushes"] == table["potential"]).all()
        assert table["fetches"].iloc[-1] == pytest.approx(table["potential"].iloc[-1] / 3, abs=3)
        assert (table["fetched_bytes"] == 1000 * table["fetches"]).all()
        run = outcome("d-psgd", task=None)
        assert summarise(run)["copies"] == {"potential": None, "pushes": None, "fetches": None}

    def test_what_was_not_sent_is_drawn_and_staleness_by_block_is_printed(self, tmp_path, capsys):
        options = {"task": None, "cluster": {"workers": 3, "servers": 2, "compute": COMPUTE}, "stop": {"gradients": 60}}
        runs = {
            "sharded": {"name": "asynchronous", **LAYERS},
            "rare": {"name": "gated", "fetch_gate": {"name": "periodic", "k": 4}},
        }
        documents = {name: make_run(protocol=protocol, **options).model_dump() for name, protocol in runs.items()}
        result = experiment.run(validated({"runs": documents}, str))
        lines = {line.get_label(): np.asarray(line.get_ydata())[-1] for line in result.plot("copies").axes[0].get_lines()}
        fetches = result.summary.set_index("name")["copies_fetches"]
        assert [lines[name] for name in runs] == [fetches[name] for name in runs]
        print_summary(result, tmp_path)
        means = by_block(result.outcome("sharded").schedule)["mean"]
        printed = capsys.readouterr().out.split("staleness by block")[1]
        assert re.search(rf"sharded\D+{means[0]:.1f}\D+{means[1]:.1f}", printed) and "copies" in result.pictures()
        assert "copies" not in experiment.run(validated({"runs": {"sharded": documents["sharded"]}}, str)).pictures()
