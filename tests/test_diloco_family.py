"""DiLoCo and other servers of pseudo-gradients: golden numbers of other programs, times and bytes."""

import math
import re
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fred import Cluster, Layout, Model, Params
from fred.base.errors import FredError
from fred.outcomes.outcome import Outcome
from fred.schedule.schedule import Schedule, Verb
from fred.systems.halos import LocalServers
from fred.systems.streaming_diloco import Streaming
from tests.worlds import LAYERS, NETWORK, UNEQUAL, constant, outcome, sized_schedule


class TwoNumbers(Model):
    """Two layers of one number each, both 1 at first, of which every gradient is 2; evaluated one by one."""

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        return {"l0": {"x": jnp.ones(1)}, "l1": {"x": jnp.ones(1)}}

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        total = params["l0"]["x"] + params["l1"]["x"]
        outputs = jax.lax.stop_gradient(jnp.concatenate((2 * total, params["l0"]["x"])))
        return jnp.broadcast_to(outputs, (len(inputs), 2)).at[:, 0].add((2 * total - jax.lax.stop_gradient(2 * total))[0])


class Locally(Streaming):
    worker: int = 0

    def layout(self, cluster: Cluster) -> Layout:
        return super().layout(cluster)._replace(answer=range(self.worker, self.worker + 1))


def run_two_numbers(protocol: Any, updates: int, faults: Any = ()) -> list[tuple[float, float]]:
    run = outcome(
        {"name": "streaming-diloco", "learning_rate": 1.0, "outer_rate": 2.0, "outer": "sgd"},
        protocol,
        constant(1.0, 1.0, faults=list(faults)),
        task={"data": {"name": "noise", "deviation": 0}, "model": TwoNumbers(), "loss": "value", "batch_size": 1},
        stop={"seconds": updates + 1},
        evaluate={"every_seconds": 0.5},
        inline=True,
    )
    points = run.metrics[run.metrics["virtual_seconds"] % 1 == 0.5]
    return list(zip(points["error"], points["loss"] / 2 - points["error"], strict=True))


# Of torchft's regression fixtures, checked by hand: what the first number, and the second one, are after each update.
TORCHFT = {
    (0, 0.0): (
        "1 -1 -3 -11 -13 -15 -17 -19 -21 -35 -37 -39 -41 -43 -45 -59",
        "1 -1 -3 -5 -7 -9 -23 -25 -27 -29 -31 -33 -47 -49 -51 -53",
    ),
    (0, 0.5): (
        "1 -1 -3 -8 -10 -12 -14 -16 -18 -24.5 -26.5 -28.5 -30.5 -32.5 -34.5 -40.25",
        "1 -1 -3 -5 -7 -9 -17 -19 -21 -23 -25 -27 -32 -34 -36 -38",
    ),
    (1, 0.0): (
        "1 -1 -3 -7 -9 -11 -13 -15 -17 -27 -29 -31 -33 -35 -37 -47",
        "1 -1 -3 -5 -7 -9 -19 -21 -23 -25 -27 -29 -39 -41 -43 -45",
    ),
    (1, 1.0): (" ".join(str(1 - 2 * n) for n in range(16)),) * 2,
}
COMMON = {  # after updates 3, 6, 9 and 12
    (0, 0.0): [(-11, 1), (-11, -23), (-35, -23), (-35, -47)],
    (0, 0.5): [(-11, 1), (-11, -23), (-29, -23), (-29, -35)],
    (1, 0.0): [(-7, 1), (-7, -19), (-27, -19), (-27, -39)],
    (1, 1.0): [(-7, 1), (-7, -19), (-23, -19), (-23, -23)],
}
FRAGMENTS = {"period": 6, "fragments": 2, "cut": "layers"}


@pytest.mark.parametrize(("delay", "mixing"), TORCHFT)
def test_streaming_is_torchfts(delay, mixing):
    options = FRAGMENTS | {"delay": delay, "mixing": mixing}
    columns = [[float(number) for number in text.split()] for text in TORCHFT[delay, mixing]]
    assert run_two_numbers(Locally(**options), 15) == list(zip(*columns, strict=True))
    common = run_two_numbers({"name": "streaming", **options}, 12)
    assert [common[updates] for updates in (3, 6, 9, 12)] == COMMON[delay, mixing]


def test_a_crashed_worker_takes_the_model_of_the_other_as_in_torchfts_failure_test():
    """The second replica dies before the second meeting, and rejoins after the ninth update: -35 and -29, then as without."""
    options = FRAGMENTS | {"elastic": True}
    outages = [{"name": "outage", "workers": [1], "begin": 5.25, "end": 9.25}]
    other, undisturbed = run_two_numbers(Locally(worker=1, **options), 15, outages), run_two_numbers(Locally(**options), 15)
    assert other[5] == (-15, -9)
    assert other[6:9] == [(-15, -9)] * 3, "away"
    assert other[9] == (-35, -29)
    assert other[10:] == undisturbed[10:]
    common = [run_two_numbers({"name": "streaming", **options}, 12, faults)[:10] for faults in (outages, ())]
    assert common[0] == common[1]


def steps(schedule: Schedule) -> list[float]:
    return (schedule["time_ns"][schedule.rows(Verb.COMMIT)] / 1e9).round(6).tolist()


def record_timing(algorithm: str, protocol: Any, cluster: Any, seconds: float) -> Schedule:
    return outcome(algorithm, protocol, cluster, stop={"seconds": seconds}, task=None).schedule


def latency(seconds: float) -> dict[str, Any]:
    return {"network": {"latency": {"name": "constant", "seconds": seconds}}}


SLOW = constant(0.5, 0.5, 0.5, 1.0)


class TestRounds:
    def test_a_round_is_the_slowest_workers_steps_and_a_collective(self):
        assert steps(record_timing("diloco", {"period": 3}, SLOW | latency(0.1), 8.0))[:2] == [3.6, 7.2]

    def test_by_time_the_fast_make_more_steps(self):
        """They meet at the first end of an update after 2.2 s: 2.5 s, of the slow 3 s."""
        schedule = record_timing("edit", {"every": 2.2}, SLOW, 6.25)
        assert steps(schedule) == [3.0, 6.0]
        pushes = schedule.rows(Verb.PUSH)
        assert np.bincount(schedule["worker"][pushes[schedule["time_ns"][pushes] <= 3e9]]).tolist() == [5, 5, 5, 3]

    @pytest.mark.parametrize(("seconds", "ends"), [(0.1, [3.0, 6.0]), (0.5, [4.0, 8.0])])
    def test_an_allreduce_longer_than_the_steps_behind_which_it_hides_is_waited_for(self, seconds, ends):
        """Each has two updates of the slow, 2 s, time; six messages take 0.6 s, or 3 s."""
        schedule = record_timing("streaming-diloco", {"period": 3, "fragments": 1, "delay": 2}, SLOW | latency(seconds), 8.25)
        syncs = schedule.rows(Verb.SYNC)
        assert (schedule["time_ns"][syncs][schedule["worker"][syncs] == 3] / 1e9)[:2].round(6).tolist() == ends

    def test_paced_workers_make_updates_in_proportion_to_their_speed(self):
        """4 s of eight, four and three updates (8 / 3 rounded up), of which the last takes 4.5 s."""
        schedule = record_timing("diloco", {"period": 8, "paced": True}, constant(0.5, 1.0, 1.5) | latency(0.1), 15.0)
        assert steps(schedule) == [4.9, 9.8, 14.7], "4.5 s, and a ring of four messages"
        assert np.bincount(schedule["worker"][schedule.rows(Verb.PUSH)])[:3].tolist() == [24, 12, 9]

    def test_a_pull_takes_no_time(self):
        schedule = record_timing("palsgd", {"period": 10, "pulls": 0.5}, constant(0.5), 400.25)
        pulls = int((schedule["keep"][schedule.rows(Verb.SYNC)] == 1).sum())
        assert len(schedule.rows(Verb.PUSH)) == 800, "one each half second"
        assert abs(pulls - 800) < 4 * math.sqrt(2 * 800), "half of the steps, to four standard deviations"

    def test_fragments_are_sent_one_by_one(self):
        """A network of two layers, 8 x 6 + 6 and 6 x 4 + 4 numbers, in a ring of two: each sends half of each, twice."""
        cluster = constant(0.5, 0.5, network={"bandwidth": 1e5})
        protocol = {"period": 4, "fragments": 2, "cut": "layers"}
        schedule = sized_schedule("streaming-diloco", protocol, cluster, stop={"seconds": 5}, task=LAYERS)
        adds = schedule.rows(Verb.ADD)[:4]
        assert schedule["bytes"][adds].tolist() == [4 * 54] * 2 + [4 * 28] * 2
        assert schedule["block"][adds].tolist() == [0, 0, 1, 1]


class TestQuorum:
    """Learners that take 0.5 s for a gradient, one of them 2.5 s."""

    CLUSTER: ClassVar[Any] = constant(0.5, 0.5, 0.5, 2.5)

    def run(self, protocol: Any, cluster: Any, seconds: float) -> Outcome:
        return outcome("decoupled-diloco", {"period": 4} | protocol, cluster, stop={"seconds": seconds}, task=None)

    @pytest.mark.parametrize("overlap", [0.0, 1.0])
    def test_answers_within_the_time_of_grace_count(self, overlap):
        """Asked at 2, 4, ... s, when the fast have made four updates; the slow answers at 2.5 s, which half a second waits for."""
        schedule = self.run({"quorum": 3, "overlap": overlap}, self.CLUSTER, 11.25).schedule
        commits, adds = schedule.rows(Verb.COMMIT), schedule.rows(Verb.ADD)
        assert steps(schedule)[0] == 2.0 + overlap / 2
        assert schedule["weight"][adds[adds < commits[0]]].tolist() == [4.0] * 3 + ([1.0] if overlap else []), "updates"
        assert not len(schedule.rows(Verb.DROP)), "a learner that is too late does not answer any more"

    def test_each_fragment_is_asked_for_by_itself(self):
        """Four of them in four updates' time, 2 s: one each 0.5 s, though it takes 1 s until the slow could have answered."""
        protocol = {"period": 4, "fragments": 4, "quorum": 3, "overlap": 2.0}
        schedule = sized_schedule("decoupled-diloco", protocol, self.CLUSTER, stop={"seconds": 4.75})
        commits, adds = schedule.rows(Verb.COMMIT), schedule.rows(Verb.ADD)
        assert steps(schedule) == [1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5]
        assert schedule["block"][commits].tolist() == [0, 1, 2, 3, 0, 1, 2]
        first = adds[schedule["block"][adds] == 3][:4]
        assert schedule["weight"][first].tolist() == [4.0] * 3 + [1.0], "asked at 2 s; the slow has made one update at 2.5 s"
        assert sum(schedule["bytes"][adds[schedule["block"][adds] == block][0]] for block in range(4)) == 4 * 36

    def test_learners_never_wait(self):
        times = self.run({"quorum": 4}, self.CLUSTER | latency(0.7), 50.0).summary["workers_time"]
        assert times["waiting"] < 0.01
        assert times["network"] == pytest.approx(0.7 / 50, abs=0.003), "the first model"

    def test_the_others_go_on_without_crashed_learners(self):
        """Half of the time half of the learners are away; one answer is enough, and all that are there compute all the time."""
        outages = [{"name": "outage", "workers": [0, 1], "begin": 9.1, "end": 29.1}]
        schedule = self.run({}, constant(0.5, 0.5, 0.5, 0.5, faults=outages), 40.0).schedule
        adds = schedule.rows(Verb.ADD)
        times, workers = schedule["time_ns"][adds] / 1e9, schedule["worker"][adds]
        assert set(workers[(times > 9.1) & (times < 29.1)].tolist()) == {2, 3}
        assert set(workers[times > 33].tolist()) == {0, 1, 2, 3}
        assert len(schedule.rows(Verb.PUSH)) == 4 * 79 - 2 * 40, "each half second, but for 20 s of two, and lost work"

    def test_a_quorum_that_can_never_be_met_again_is_reported(self):
        """Asked every 2 s; one of three has left at 5.1 s, before it could answer at 6 s."""
        leaves = constant(0.5, 0.5, 0.5, faults=[{"name": "outage", "workers": [1], "begin": 5.1}])
        protocol = {"quorum": 3, "overlap": 0.0}
        schedule = self.run(protocol, leaves, 40.0).schedule
        assert steps(schedule) == [2.0, 4.0]
        expected = "nothing can happen any more after 6 s: .*the server waits for 3 answers; worker 1 does not come back"
        assert re.match(expected, schedule.standstill)
        with pytest.raises(FredError, match=expected):
            outcome("decoupled-diloco", {"period": 4} | protocol, leaves, stop={"updates": 400}, task=None)
        assert steps(self.run(protocol | {"quorum": 2}, leaves, 40.0).schedule) == [float(time) for time in range(2, 40, 2)]

    def test_a_learner_that_crashes_while_its_answer_is_on_its_way_is_asked_again(self):
        """Asked at 2 s, away from 2.1 to 3.1 s, while its answer would have come at 2.2 s; back, it has made an update at 3.8 s."""
        cluster = constant(0.5, faults=[{"name": "outage", "workers": [0], "begin": 2.1, "end": 3.1}]) | latency(0.2)
        schedule = self.run({"overlap": 0.0}, cluster, 9.0).schedule
        assert steps(schedule)[:1] == [4.0], "0.2 s for the model, 0.5 for an update, 0.2 for the answer"


class TestGrace:
    """Buffers of one pseudo-gradient; first as in google-deepmind/asyncdiloco's simulator: four workers, 20 steps each."""

    def times(self, cluster: Any, algorithm: str = "easgd", **options: Any) -> list[float]:
        seconds, buffered = options.pop("seconds"), {"name": "buffered", "buffer": 1}
        return steps(record_timing(algorithm, buffered | options if algorithm == "easgd" else options, cluster, seconds))

    def test_asyncdiloco(self):
        workers = constant(0.58, 0.75, 1.51, 3.33)
        times = self.times(workers, period=20, grace=0.5, seconds=2000.0)
        assert [times[40 * n - 1] for n in range(1, 11)] == [
            *(209.0, 406.4, 603.8),  # every 800 local steps, as its notebook prints them
            *(801.4, 999.0, 1207.8, 1404.2, 1600.6, 1800.2, 1998.6),  # as ten lines of Python go on
        ]
        assert self.times(workers, "diloco", period=20, seconds=140.0) == [66.6, 133.2], "its synchronous rounds: 80 steps"

    def test_a_worker_that_waits_for_nobody_has_not_waited(self):
        """Worker 1 comes 0.4 s after worker 0; later no other worker is near. They start at 2.4 s, and from then on at once."""
        assert self.times(constant(1.0, 1.2), period=2, grace=0.5, seconds=7.5) == [2.0, 2.4, 4.4, 4.8, 6.8, 7.2]
        assert self.times(constant(1.0, 10.0), period=2, grace=0.5, seconds=7.5) == [2.0, 4.0, 6.0]

    def test_grace_gives_back_the_wait_since_the_last_arrival_of_the_own_group(self):
        """Worker 1 arrives at 3 s, after the grace of worker 0 has ended at this time, and begins a group of its own."""
        assert self.times(constant(0.5, 0.75), period=4, grace=1.0, seconds=7.1) == [2.0, 3.0, 4.5, 6.25, 7.0]

    def test_grace_gives_back_the_wait_and_no_time_of_messages(self):
        """One worker, 0.25 s each way: it fetches, steps twice, sends, and so on, as without grace."""
        cluster = constant(1.0) | latency(0.25)
        for grace in ({"grace": 0.5}, {}):
            assert self.times(cluster, period=2, seconds=11.0, **grace) == [2.5, 5.0, 7.5, 10.0], grace  # type: ignore[arg-type]

    def test_the_number_of_steps_is_in_proportion_to_a_workers_speed(self):
        schedule = record_timing(
            "easgd", {"name": "buffered", "buffer": 1, "period": 8, "paced": True}, constant(1.0, 2.0, 3.0), 33.5
        )
        rows = schedule.rows(Verb.ADD)
        times = [(schedule["time_ns"][rows][schedule["worker"][rows] == worker] / 1e9).tolist() for worker in range(3)]
        assert times == [[8, 16, 24, 32], [8, 16, 24, 32], [9, 18, 27]], "8, 4 and 3 steps, the last rounded up"


@pytest.mark.slow
def test_halos_of_a_local_server_that_is_never_mixed_is_delayed_nesterov():
    class Alone(LocalServers):
        def layout(self, cluster: Cluster) -> Layout:
            return super().layout(cluster)._replace(answer=range(cluster.size, cluster.size + 1))

    options, cluster = {"outer_rate": 0.5, "momentum": 0.4, "gathered": 3}, UNEQUAL | {"network": NETWORK}
    unmixed = outcome({"name": "halos", **options}, Alone(period=4, paced=False, pushes=1000), cluster)
    delayed = outcome({"name": "delayed-nesterov", **options}, {"period": 4, "buffer": 1}, cluster)
    assert unmixed.params_digest == delayed.params_digest
    assert unmixed.schedule.end_ns == delayed.schedule.end_ns
