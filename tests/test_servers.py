"""Protocols with servers: closed forms, equivalences bit for bit, and recomputation by NumPy."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fred import batch_indices
from fred.base import streams
from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.commands.printing import print_summary
from fred.outcomes.measures import copies, run_times, summarise
from fred.outcomes.staleness import by_block, of_gradients
from fred.protocols.asynchronous import Asynchronous
from fred.protocols.central import Central
from fred.protocols.dispatcher import Dispatcher
from fred.protocols.gated import Gated
from fred.protocols.protocol import Protocol
from fred.protocols.synchronous import Synchronous
from fred.results import experiment
from fred.running.execution import execute
from fred.schedule.schedule import Schedule, Verb
from fred.specification.loading import validated
from fred.systems.pipelines import FixedLag
from fred.systems.psp import Partial
from fred.systems.softsync import Softsync
from fred.systems.ssp import StaleSynchronous
from fred.timing.queued_links import QueuedLinks
from fred.timing.simulation import Process, Simulation
from tests import worlds
from tests.plain import recomputed
from tests.recompute import gradient, largest_relative_error
from tests.worlds import CLUSTERS, COMPUTE, make_run, record, same

LAYERS: dict[str, Any] = {"clocks": "each", "cut": "layers", "overlap": True}
NETWORK = {"latency": {"name": "exponential", "scale": 0.02}, "bandwidth": 1e5, "server_bandwidth": 2e5}
BUSY = Cluster(workers=5, compute=COMPUTE, network=NETWORK)
LOCKSTEP = Cluster(workers=5, compute={"name": "constant", "seconds": 0.1})


def seconds(schedule: Schedule, *verbs: Verb) -> list[float]:
    return (schedule["time_ns"][schedule.rows(*verbs)] / 1e9).tolist()


@pytest.mark.parametrize(
    ("protocol", "like"),
    [
        (Asynchronous(clocks="each", cut="layers"), Asynchronous()),
        (Asynchronous(**LAYERS, pulls="at-once"), Asynchronous()),
        (Softsync(n=1, afterwards="wait"), Synchronous()),
        (Softsync(n=1, afterwards="wait", **LAYERS), Synchronous()),
        (Softsync(n=5, afterwards="wait"), Asynchronous()),
        (Softsync(n=4), Asynchronous()),
        (StaleSynchronous(bound=None, cache=False), Asynchronous()),
        (StaleSynchronous(bound=0), StaleSynchronous(bound=0, cache=False)),
        (Gated(), Asynchronous()),
        (Gated(unsent="mean", **LAYERS), Asynchronous()),
    ],
    ids=str,
)
def test_these_are_the_same_to_the_last_bit(protocol, like):
    assert record(protocol, BUSY, 150).digest() == record(like, BUSY, 150).digest()


class TestServersWithClocksOfTheirOwn:
    """A gradient takes 0.9 s: forward 3 x 0.1 s, backward 3 x 0.2 s."""

    def first(self, latency: float = 0.0, **options: Any) -> list[float]:
        """Return the times at which blocks 2, 1 and 0 of the first gradient take effect, s."""
        network = {"latency": {"name": "constant", "seconds": latency}}
        cluster = Cluster(workers=1, servers=3, compute={"name": "constant", "seconds": 0.9}, network=network)
        schedule = record(Asynchronous(clocks="each", cut="layers", **options), cluster, gradients=2)
        pushes = schedule.rows(Verb.PUSH)[:3]
        assert schedule["block"][pushes].tolist() == [2, 1, 0]
        return (schedule["time_ns"][pushes] / 1e9).tolist()

    def test_blocks_are_delivered_as_soon_as_the_backward_pass_has_passed_them(self):
        assert self.first() == [0.9, 0.9, 0.9]
        assert self.first(overlap=True) == [0.5, 0.7, 0.9]

    def test_the_forward_pass_waits_for_blocks_that_are_late(self):
        """In turn they come at 0.2, 0.4 and 0.6 s; the forward pass is past them at 0.3, 0.5 and 0.7 s."""
        assert self.first(0.2, overlap=True) == pytest.approx([1.1, 1.3, 1.5])
        assert self.first(0.2, overlap=True, pulls="at-once") == pytest.approx([0.9, 1.1, 1.3])
        assert self.first(0.2) == pytest.approx([1.7] * 3)
        assert self.first(0.2, pulls="at-once") == pytest.approx([1.3] * 3)

    def test_a_gradient_takes_as_long_as_it_would_without_waiting(self):
        network = {"latency": {"name": "constant", "seconds": 0.2}}
        cluster = {"workers": 2, "servers": 3, "compute": {"name": "constant", "seconds": 0.9}, "network": network}
        run = make_run(task=None, protocol={"name": "asynchronous", **LAYERS}, cluster=cluster, stop={"updates": 9})
        outcome = execute("run", run, 0)
        assert set(run_times(outcome.schedule, outcome.run.cluster)["seconds"]) == {0.9}
        rows = outcome.schedule.rows(Verb.PUSH)
        assert (outcome.schedule["end_ns"][rows] <= outcome.schedule["time_ns"][rows]).all()
        pulls = outcome.schedule.rows(Verb.PULL)
        assert (np.diff(outcome.schedule["block"][pulls[outcome.schedule["worker"][pulls] == 0]]) % 3 == 1).all(), "forwards"

    def test_the_top_layer_is_fresher_by_what_the_paper_measured(self):
        """Chen et al. 2017, table 1: of 18 layers and 40 workers, 14.54 at the top and 38.97 at the bottom."""
        cluster = Cluster(workers=40, servers=18, compute=COMPUTE)
        found = by_block(record(Asynchronous(**LAYERS), cluster, gradients=2000))
        passed = 1 / 3 + 2 / 3 * (18 - np.arange(18)) / 18  # of a step, when the block is pushed; in all of it there are 39
        assert found["mean"].to_numpy() == pytest.approx(39 * passed, rel=0.03)
        assert found["mean"].iloc[[17, 0]].to_numpy() == pytest.approx([14.54, 38.97], rel=0.03)

    def test_a_block_cannot_be_used_before_it_is_ready(self):
        class Hasty(Central):
            def start(self, sim: Simulation) -> None:
                sim.process(self._work(sim))

            def _work(self, sim: Simulation) -> Process:
                gradient = yield from self.compute(sim, 0, (yield from self.fetch(sim, 0)))
                yield sim.env.after(gradient.ready_at(2) - sim.now)
                sim.push(gradient, block=2)
                sim.push(gradient, block=1)

        cluster = Cluster(workers=1, servers=3, compute={"name": "constant", "seconds": 0.9})
        with pytest.raises(FredError, match=r"used at 0.5 s, before it is finished at 0.7 s"):
            record(Hasty(**LAYERS), cluster, gradients=2)

    @pytest.mark.parametrize(
        ("algorithm", "protocol"),
        [("asgd", {"name": "asynchronous"}), ("softsync-sgd", {"name": "softsync", "n": 2})],
        ids=["asynchronous", "softsync"],
    )
    def test_layers_on_servers_are_what_their_schedule_says(self, algorithm, protocol):
        cluster = {"workers": 5, "servers": 2, "compute": COMPUTE, "network": NETWORK}
        run = make_run(algorithm, task=worlds.LAYERS, protocol={**protocol, **LAYERS}, cluster=cluster, stop={"gradients": 100})
        replayed, inline = (execute("run", run, 2, each) for each in (False, True))
        assert same(replayed, inline)
        assert largest_relative_error(replayed.final, recomputed(replayed).params) < 1e-4
        assert np.ptp(by_block(replayed.schedule)["mean"]) > 0.3
        assert [each["block"] for each in summarise(replayed)["staleness_by_block"]] == [0, 1]

    @pytest.mark.parametrize("options", [{"overlap": True}, {"overlap": True, "clocks": "each"}])
    def test_overlap_needs_layers(self, options):
        with pytest.raises(FredError, match="`overlap` needs `clocks: each` and `cut: layers`"):
            make_run(protocol={"name": "asynchronous", **options})


class TestSoftsync:
    @settings(max_examples=15)
    @given(cluster=CLUSTERS, n=st.integers(1, 7), afterwards=st.sampled_from(["wait", "go-on"]), seed=st.integers(0, 9))
    def test_every_update_has_so_many_gradients_and_who_waits_gets_the_update(self, cluster, n, afterwards, seed):
        n = min(n, cluster.size)
        needed = cluster.size // n
        schedule = record(Softsync(n=n, afterwards=afterwards), cluster, gradients=60, seed=seed)
        ledger = schedule.ledger
        assert set(ledger.gradients_per_update().tolist()) == {needed}
        if afterwards == "go-on":
            return
        clock = [0] * cluster.size  # of the update that the worker's last gradient was part of
        updates = 0
        waiting: list[int] = []
        for verb, worker, timestamp in zip(*(schedule[name].tolist() for name in ("verb", "worker", "timestamp")), strict=True):
            if verb == Verb.PULL:
                assert timestamp >= clock[worker]
            elif verb in (Verb.ADD, Verb.PUSH):
                waiting.append(worker)
            if verb in (Verb.COMMIT, Verb.PUSH):
                updates += 1
                for each in waiting:
                    clock[each] = updates
                waiting.clear()

    @pytest.mark.parametrize("n", [1, 15])
    def test_thirty_workers_gradients_are_as_stale_as_the_paper_measured(self, n):
        """Zhang et al. 2016, section 2: with n = 1 staleness is 0, 1 or 2; its mean is about n, and hardly any is above 2 n.

        While a gradient is computed each of the 29 others delivers one, on average, and every floor(30 / n) are an update.
        """
        cluster = Cluster(workers=30, compute={"name": "lognormal", "median": 0.1, "sigma": 0.1})
        stale = of_gradients(record(Softsync(n=n), cluster, gradients=6000))[600:]
        assert stale.mean() == pytest.approx(29 / (30 // n), rel=0.01)
        assert stale.max() <= 2 * n
        assert n > 1 or set(stale.tolist()) == {0, 1, 2}

    def test_it_refuses_more_updates_than_gradients(self):
        with pytest.raises(FredError, match="`n` \\(9\\) must not exceed the number of workers"):
            make_run("softsync-sgd", protocol={"name": "softsync", "n": 9})


class TestPeriods:
    def schedule(self, protocol: Protocol) -> Schedule:
        return record(protocol, LOCKSTEP, gradients=75)

    @pytest.mark.parametrize("kind", [Gated, Dispatcher])
    @pytest.mark.parametrize(("unsent", "weight"), [(None, 1.0), ("mean", 1 / 3)])
    def test_gradients_between_two_pushes_make_one_update(self, kind, unsent, weight):
        schedule = self.schedule(kind(k_push=3, unsent=unsent))
        joined = schedule.rows(Verb.ADD)
        commits = schedule.rows(Verb.COMMIT)
        assert len(joined) == 3 * len(commits) > 0
        assert (schedule["weight"][commits] == weight).all()
        for at in joined.reshape(-1, 3):
            first, last = at[0], at[-1]
            assert np.unique(schedule["worker"][at]).size == 1
            assert schedule["step"][at].tolist() == list(range(schedule["step"][first], schedule["step"][last] + 1))
            assert schedule["step"][last] % 3 == 0, "the first gradient, and then every third, is sent"
            assert schedule["messages"][at].tolist() == [0, 0, 1]
        assert (schedule["step"][schedule.rows(Verb.PUSH)] == 0).all(), "the first one is sent alone"

    @pytest.mark.parametrize("kind", [Gated, Dispatcher])
    def test_parameters_are_fetched_before_every_kth_gradient(self, kind):
        schedule = self.schedule(kind(k_fetch=4))
        pushes = schedule.rows(Verb.PUSH)
        for worker in range(5):
            own = pushes[schedule["worker"][pushes] == worker]
            assert (np.diff(schedule["mailbox"][own]) > 0).tolist() == [(step + 1) % 4 == 0 for step in range(len(own) - 1)]

    @pytest.mark.parametrize("kind", [Gated, Dispatcher])
    def test_or_the_last_gradient_is_applied_again(self, kind):
        schedule = self.schedule(kind(k_push=3, unsent="apply-again"))
        pushes = schedule.rows(Verb.PUSH)
        assert (schedule["step"][pushes] % 3 == 0).all()
        for worker in range(5):
            steps = schedule["step"][pushes[schedule["worker"][pushes] == worker]]
            assert steps.tolist() == [number // 3 * 3 for number in range(len(steps))]
        assert len(schedule.rows(Verb.DROP)) == (schedule["messages"][pushes] == 0).sum()

    def test_a_statistic_or_a_period_opens_a_gate_not_both(self):
        with pytest.raises(FredError, match="give `c_push` or `k_push`, not both"):
            make_run("b-fasgd", protocol={"name": "gated", "c_push": 0.1, "k_push": 2})

    @pytest.mark.parametrize(
        ("algorithm", "options"),
        [
            ("asgd", {"name": "gated", "k_push": 3, "k_fetch": 2}),
            ("b-fasgd", {"name": "dispatcher", "c_push": 0.1, "c_fetch": 0.3}),
        ],
    )
    def test_what_servers_do_is_what_their_schedule_says(self, algorithm, options):
        outcome = execute("run", make_run(algorithm, protocol=options, stop={"gradients": 100}), 4)
        assert largest_relative_error(outcome.final, recomputed(outcome).params) < 1e-4
        counted = summarise(outcome)["copies"]
        assert 0 < counted["pushes"] < counted["potential"] > counted["fetches"] > 0


class TestFixedLag:
    def ages(self, lag: int, ramp: int = 0, workers: int = 1) -> list[int]:
        schedule = record(FixedLag(lag=lag, ramp=ramp), Cluster(workers=workers), gradients=30)
        assert not schedule["messages"].any()
        return schedule["staleness"][schedule.rows(Verb.PUSH)].tolist()

    def test_gradients_are_as_old_as_said_and_get_there_linearly(self):
        assert self.ages(0) == [0] * 30
        assert self.ages(4) == [0, 1, 2, 3] + [4] * 26
        assert self.ages(4, ramp=12) == [update // 3 for update in range(12)] + [4] * 18
        assert self.ages(9, ramp=3) == [min(update, 9) for update in range(30)], "never older than the first parameters"

    @pytest.mark.parametrize("workers", [1, 4])
    def test_with_n_workers_and_lag_n_less_one_it_is_asynchronous_in_lockstep(self, workers):
        """With one worker and no lag it is serial SGD. What decides the parameters is the same, so they are."""
        cluster = Cluster(workers=workers, compute={"name": "constant", "seconds": 0.1})
        lagged, plain = (record(each, cluster, 60) for each in (FixedLag(lag=workers - 1), Asynchronous()))
        for column in ("worker", "step", "timestamp", "staleness"):
            found, expected = (each[column][each.rows(Verb.PUSH)].tolist() for each in (lagged, plain))
            assert found == expected

    @pytest.mark.parametrize("oldest", [1, 4, 21])
    def test_lags_that_vary_have_the_mean_and_the_distribution_that_is_said(self, oldest):
        stale = of_gradients(record(FixedLag(lag=20, drawn_from=oldest), Cluster(workers=1), gradients=21_000))[1000:]
        assert stale.mean() == pytest.approx(20, abs=0.2)
        assert stale.std() == pytest.approx(np.sqrt(oldest * (oldest - 1)), rel=0.05)
        for k in range(6):
            assert (stale == 21 - oldest + k).mean() == pytest.approx((1 - 1 / oldest) ** k / oldest, abs=0.01)

    @pytest.mark.parametrize(("ramp", "workers"), [(0, 1), (30, 1), (0, 3)])
    def test_old_gradients_by_a_queue_in_numpy(self, ramp, workers):
        """In every update a queue of models loses one of its four oldest ones, at which a gradient is computed."""
        protocol = {"name": "fixed-lag", "lag": 9, "drawn_from": 4, "ramp": ramp}
        run = make_run("asgd", protocol=protocol, cluster={"workers": workers}, stop={"updates": 100})
        outcome, inline = (execute("run", run, 5, each) for each in (False, True))
        assert same(outcome, inline)
        assert run.task is not None
        data = run.task.data.load(5).train
        params = {name: array.astype(float) for name, array in outcome.initial.items()}
        draws = streams.uniforms(5, "lag", 0, 0, 100)
        queue, read, steps, ages = list[tuple[int, int, dict]](), 0, [0] * workers, []
        for update in range(100):
            while read - min(9, 9 * read // max(ramp, 1), read) <= update:  # when a constant lag would have it read
                queue.append((read % workers, update, params))
                read += 1
            worker, born, old = queue.pop(int(draws[update] * min(4, len(queue))))
            indices = batch_indices(5, worker, steps[worker], batch_size=4, examples=len(data))
            grads = gradient(old, data.inputs[indices], data.answers[indices])
            params = {name: values - 0.1 * grads[name] for name, values in params.items()}
            steps[worker] += 1
            ages.append(update - born)
        assert outcome.schedule["staleness"][outcome.schedule.rows(Verb.PUSH)].tolist() == ages
        assert len(set(ages)) > 8
        assert largest_relative_error(outcome.final, params) < 1e-4

    def test_no_more_gradients_can_be_drawn_from_than_wait(self):
        with pytest.raises(FredError, match=r"`drawn_from` \(6\) must not exceed `lag` \+ 1 \(5\)"):
            make_run(protocol={"name": "fixed-lag", "lag": 4, "drawn_from": 6})


class TestSSPCache:
    @settings(max_examples=30)
    @given(cluster=CLUSTERS, bound=st.integers(0, 4), seed=st.integers(0, 9))
    def test_what_is_read_has_all_updates_that_it_must_have(self, cluster, bound, seed):
        """In step c those of steps up to c - bound - 1 [Ho et al. 2013, section 3]; and it is fetched only where it must be."""
        schedule = record(StaleSynchronous(bound=bound), cluster, gradients=80, seed=seed)
        finished, holds = (
            [0] * cluster.size,
            [-1] * cluster.size,
        )  # steps, and how many of everybody's the cache is sure to have
        for verb, worker, step in zip(*(schedule[name].tolist() for name in ("verb", "worker", "step")), strict=True):
            if verb == Verb.PULL:
                assert step == 0 or holds[worker] < step - bound, "what it had would have done"
                holds[worker] = min(finished)
            elif verb == Verb.PUSH:
                assert holds[worker] >= step - bound
                finished[worker] = step + 1

    def test_it_saves_fetches_and_nothing_else(self):
        cached, fresh = (record(StaleSynchronous(bound=3, cache=cache), BUSY, 400) for cache in (True, False))
        counted = [copies(each).iloc[-1] for each in (cached, fresh)]
        assert counted[0]["fetches"] < counted[0]["potential"] / 2
        assert counted[1]["fetches"] == counted[1]["potential"]
        assert counted[0]["pushes"] == counted[0]["potential"]

    def test_without_a_bound_it_is_asynchronous_on_the_first_parameters(self):
        quick = Cluster(workers=5, compute=COMPUTE)
        cached = record(StaleSynchronous(bound=None), quick, 200)
        plain = record(Asynchronous(), quick, 200)
        assert len(cached.rows(Verb.PULL)) == 5
        rows = [each.rows(Verb.PUSH) for each in (cached, plain)]
        assert not cached["timestamp"][rows[0]].any()
        for column in ("time_ns", "worker", "step", "begin_ns", "end_ns"):
            assert (cached[column][rows[0]] == plain[column][rows[1]]).all()


@pytest.mark.parametrize(("late", "oldest"), [("drop", 399), ("keep", 1)])
def test_a_server_that_is_always_late_is_never_heard_by_who_drops_late_blocks(monkeypatch, late, oldest):
    download = QueuedLinks.download

    def delayed(links: QueuedLinks, worker: int, size: int, server: int | None = None) -> int:
        return download(links, worker, size, server) + (50_000_000 if server == 7 else 0)

    monkeypatch.setattr(QueuedLinks, "download", delayed)
    cluster = Cluster(workers=8, servers=8, compute=COMPUTE, network={"latency": {"name": "constant", "seconds": 0.002}})
    schedule = record(Partial(blocks_percent=75, late_blocks=late), cluster, gradients=400 * 8)
    assert by_block(schedule)["max"].tolist() == pytest.approx([0] * 7 + [oldest], abs=1)


class TestCopies:
    def test_counted_by_a_walk_through_the_rows(self):
        for protocol in (Gated(k_push=3, k_fetch=2), Gated(k_push=2, unsent="apply-again"), StaleSynchronous(bound=2)):
            schedule = record(protocol, BUSY, 120)
            seen: dict[tuple[int, int], list[int]] = {}  # gradient -> mailbox, messages
            for row in schedule:
                if row.verb in (Verb.PUSH, Verb.ADD, Verb.DROP):
                    seen.setdefault((row.worker, row.step), [row.mailbox, 0])[1] += row.messages
            counted = copies(schedule)
            assert counted["potential"].tolist() == list(range(1, len(seen) + 1))
            assert counted["pushes"].tolist() == np.cumsum([messages > 0 for _, messages in seen.values()]).tolist()
            mailboxes = [mailbox for mailbox, _ in seen.values()]
            assert counted["fetches"].tolist() == [len(set(mailboxes[: n + 1])) for n in range(len(mailboxes))]
            assert (counted["fetched_bytes"] == 1000 * counted["fetches"]).all()
            assert (counted["pushed_bytes"] == 1000 * counted["pushes"]).all()

    def test_blocks_of_one_model_are_one_copy(self):
        cluster = Cluster(workers=3, servers=4, compute=COMPUTE)
        counted = copies(record(Gated(k_fetch=3, **LAYERS), cluster, 60))
        assert (counted["pushes"] == counted["potential"]).all()
        assert counted["fetches"].iloc[-1] == pytest.approx(counted["potential"].iloc[-1] / 3, abs=3)
        assert (counted["fetched_bytes"] == 1000 * counted["fetches"]).all()

    def test_where_nothing_is_pushed_to_a_server_there_is_nothing_to_count(self):
        outcome = execute("run", make_run("d-psgd", task=None), 0)
        assert summarise(outcome)["copies"] == {"potential": None, "pushes": None, "fetches": None}


def test_what_was_not_sent_is_drawn_and_staleness_by_block_is_printed(tmp_path, capsys):
    options = {"task": None, "cluster": {"workers": 3, "servers": 2, "compute": COMPUTE}, "stop": {"gradients": 60}}
    runs = {"sharded": {"name": "asynchronous", **LAYERS}, "rare": {"name": "gated", "k_fetch": 4}}
    written = {name: make_run(protocol=protocol, **options).model_dump() for name, protocol in runs.items()}
    both = experiment.run(validated({"runs": written}, str))
    assert "copies" in both.pictures()
    lines = {line.get_label(): np.asarray(line.get_ydata())[-1] for line in both.plot("copies").axes[0].get_lines()}
    fetches = both.summary.set_index("name")["copies_fetches"]
    assert [lines[name] for name in runs] == [fetches[name] for name in runs]
    print_summary(both, tmp_path)
    printed = capsys.readouterr().out
    means = by_block(both.outcome("sharded").schedule)["mean"]
    assert re.search(rf"sharded\D+{means[0]:.1f}\D+{means[1]:.1f}", printed.split("staleness by block")[1])
    everything = experiment.run(validated({"runs": {"sharded": written["sharded"]}}, str))
    assert "copies" not in everything.pictures()
