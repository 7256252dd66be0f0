"""DiLoCo and its kin: other programs' golden numbers, what they are the same as, NumPy's word on each, times and bytes."""

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
from fred.running.execution import execute
from fred.schedule.schedule import Verb
from fred.systems.streaming_diloco import Streaming
from tests.recompute import largest_relative_error
from tests.worlds import LAYERS, make_run, same

WORKERS = 4
UNEQUAL = {"workers": WORKERS, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.7}}
NETWORK = {"latency": {"name": "exponential", "scale": 0.02}, "bandwidth": 1e5}
RATE = 0.125  # by which numbers are multiplied without being rounded


def outcome(algorithm: Any, protocol: Any = None, cluster: Any = UNEQUAL, inline: bool = False, **options: Any) -> Outcome:
    algorithm = {"learning_rate": RATE, **({"name": algorithm} if isinstance(algorithm, str) else algorithm)}
    options = {"stop": {"gradients": 160}, **options}
    return execute("run", make_run(algorithm, protocol=protocol, cluster=cluster, **options), 3, inline)


class TwoNumbers(Model):
    """Two layers of one number each, both 1 at first, of which every gradient is 2; evaluated one by one."""

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        return {"l0": {"x": jnp.ones(1)}, "l1": {"x": jnp.ones(1)}}

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        both = params["l0"]["x"] + params["l1"]["x"]
        shown = jax.lax.stop_gradient(jnp.concatenate((2 * both, params["l0"]["x"])))
        return jnp.broadcast_to(shown, (len(inputs), 2)).at[:, 0].add((2 * both - jax.lax.stop_gradient(2 * both))[0])


class Locally(Streaming):
    """Streaming, of which the first worker's own model is shown."""

    def layout(self, cluster: Cluster) -> Layout:
        return super().layout(cluster)._replace(answer=range(1))


def two_numbers(protocol: Any, updates: int, faults: Any = ()) -> list[tuple[float, float]]:
    """Both numbers after each update of two workers that take a second for each."""
    found = outcome(
        {"name": "streaming-diloco", "learning_rate": 1.0, "outer_rate": 2.0, "outer": "sgd"},
        protocol,
        {"workers": 2, "compute": {"name": "constant", "seconds": 1.0}, "faults": list(faults)},
        task={"data": {"name": "noise", "deviation": 0}, "model": TwoNumbers(), "loss": "value", "batch_size": 1},
        stop={"seconds": updates + 1},
        evaluate={"every_seconds": 0.5},
    )
    seen = found.metrics[found.metrics["virtual_seconds"] % 1 == 0.5]
    return list(zip(seen["error"], seen["loss"] / 2 - seen["error"], strict=True))


def column(text: str) -> list[float]:
    return [float(each) for each in text.split()]


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
    (0, 1.0): (" ".join(str(1 - 2 * n) for n in range(16)),) * 2,
    (1, 0.0): (
        "1 -1 -3 -7 -9 -11 -13 -15 -17 -27 -29 -31 -33 -35 -37 -47",
        "1 -1 -3 -5 -7 -9 -19 -21 -23 -25 -27 -29 -39 -41 -43 -45",
    ),
    (1, 1.0): (" ".join(str(1 - 2 * n) for n in range(16)),) * 2,
}
COMMON = {  # after updates 3, 6, 9 and 12
    (0, 0.0): [(-11, 1), (-11, -23), (-35, -23), (-35, -47)],
    (0, 0.5): [(-11, 1), (-11, -23), (-29, -23), (-29, -35)],
    (0, 1.0): [(-11, 1), (-11, -23), (-23, -23), (-23, -23)],
    (1, 0.0): [(-7, 1), (-7, -19), (-27, -19), (-27, -39)],
    (1, 1.0): [(-7, 1), (-7, -19), (-23, -19), (-23, -23)],
}


@pytest.mark.parametrize(("delay", "mixing"), TORCHFT)
def test_streaming_is_torchfts(delay, mixing):
    options = {"period": 6, "fragments": 2, "delay": delay, "mixing": mixing, "cut": "layers"}
    own = two_numbers(Locally(**options), 15)
    assert [list(each) for each in zip(*own, strict=True)] == [column(each) for each in TORCHFT[delay, mixing]]
    common = two_numbers({"name": "streaming", **options}, 12)
    assert [common[updates] for updates in (3, 6, 9, 12)] == COMMON[delay, mixing]


def test_who_crashes_takes_what_the_other_has_as_in_torchfts_failure_test():
    """The second replica dies before the second meeting, and is back after the ninth update: -35 and -29, and on as if nothing was."""

    class Other(Locally):
        def layout(self, cluster: Cluster) -> Layout:
            return super().layout(cluster)._replace(answer=range(1, 2))

    options = {"period": 6, "fragments": 2, "cut": "layers", "elastic": True}
    away = [{"name": "outage", "workers": [1], "begin": 5.25, "end": 9.25}]
    other = two_numbers(Other(**options), 15, away)
    assert other[5] == (-15, -9)
    assert other[6:9] == [(-15, -9)] * 3, "away"
    assert other[9] == (-35, -29)
    without = two_numbers(Locally(**options), 15)
    assert other[10:] == without[10:]
    assert (
        two_numbers({"name": "streaming", **options}, 12, away)[:10] == two_numbers({"name": "streaming", **options}, 12)[:10]
    )


PLAIN_OUTER = {"outer_rate": 1.0, "outer": "sgd"}


@pytest.mark.slow
class TestSame:
    ROUNDS: ClassVar[Any] = {"workers": 4, "compute": {"name": "constant", "seconds": 0.1}}, {"seconds": 4.05}  # 8 of 5 updates

    def after_rounds(self, algorithm: Any, period: int | None = 5) -> Params:
        cluster, stop = self.ROUNDS
        return outcome(algorithm, period and {"period": period}, cluster, stop=stop).final

    def test_with_plain_steps_of_rate_1_it_is_local_sgd(self):
        plain = {"name": "diloco", **PLAIN_OUTER}
        assert largest_relative_error(self.after_rounds(plain), self.after_rounds("local-sgd")) < 1e-5
        times = []
        for algorithm in (plain, "local-sgd"):
            schedule = outcome(algorithm, {"period": 5}, UNEQUAL | {"network": NETWORK}, stop={"seconds": 9}).schedule
            times.append(np.unique(schedule["time_ns"][schedule.rows(Verb.SYNC)]).tolist())
        assert times[0] == times[1]
        assert len(times[0]) > 5

    def test_where_all_meet_after_each_update_it_is_synchronous(self):
        diloco = self.after_rounds({"name": "diloco", **PLAIN_OUTER}, 1)
        assert largest_relative_error(diloco, self.after_rounds("allreduce-sgd", None)) < 1e-5

    def test_it_is_snoo_whose_workers_hold_the_outer_optimizer(self):
        diloco = self.after_rounds({"name": "diloco", "outer_rate": 0.5})
        snoo = self.after_rounds({"name": "snoo", "outer_rate": 0.5, "outer_momentum": 0.9})
        assert largest_relative_error(diloco, snoo) < 1e-5

    def test_one_fragment_without_delay_is_diloco(self):
        cluster = UNEQUAL | {"network": NETWORK}
        streaming = outcome("streaming-diloco", {"period": 5, "fragments": 1}, cluster)
        diloco = outcome("diloco", {"period": 5}, cluster)
        assert streaming.params_digest == diloco.params_digest
        assert streaming.schedule.end_ns == diloco.schedule.end_ns

    @pytest.mark.parametrize("eager", [False, True])
    def test_eager_of_one_worker(self, eager):
        """Whose own difference counts at once, as in DiLoCo; or a round late, which is another thing."""
        alone = UNEQUAL | {"workers": 1}
        found = outcome("eager-diloco", {"period": 5, "eager": eager}, alone)
        assert (found.params_digest == outcome("diloco", {"period": 5}, alone).params_digest) == eager

    @pytest.mark.parametrize("inline", [False, True])
    def test_paced_is_to_meet_by_time_where_all_times_fit(self, inline):
        """2 s are eight, four and two updates."""
        cluster = {"workers": 3, "speeds": [1.0, 0.5, 0.25], "compute": {"name": "constant", "seconds": 0.25}}
        paced, timed, alone = (
            outcome("diloco", protocol, cluster, inline, stop={"seconds": 8.1})
            for protocol in ({"period": 8, "paced": True}, {"every": 2.0}, {"period": 16, "paced": True, "pace_seconds": 0.125})
        )
        assert same(paced, timed) and same(paced, alone)
        made = np.bincount(paced.schedule["worker"][paced.schedule.rows(Verb.PUSH)])
        assert made.tolist() == [32, 16, 8]

    def test_pacing_equal_workers_changes_nothing(self):
        cluster = UNEQUAL | {"network": NETWORK}
        assert same(outcome("diloco", {"period": 5, "paced": True}, cluster), outcome("diloco", {"period": 5}, cluster))

    def test_palsgd_without_pulls_is_diloco(self):
        palsgd, diloco = (outcome(name, {"period": 5, "pulls": 0.0}) for name in ("palsgd", "diloco"))
        assert palsgd.params_digest == diloco.params_digest

    def test_edit_that_guards_against_nothing_is_diloco(self):
        """Weights are alike at a great temperature, and nothing is as long as that."""
        edit = outcome({"name": "edit", "temperature": 1e9, "longest": 1e9, "outer": "sgd"}, {"period": 5})
        diloco = outcome({"name": "diloco", "outer": "sgd"}, {"period": 5})
        assert largest_relative_error(edit.final, diloco.final) < 1e-5


CONSTANT = {"name": "constant", "seconds": 0.5}


@pytest.mark.slow
class TestTimes:
    """Four workers that take 0.5 s for a gradient, one of them 1 s; a ring of 6 messages."""

    SLOW = {"workers": 4, "speeds": [1, 1, 1, 0.5], "compute": CONSTANT}

    def steps(self, found: Outcome) -> list[float]:
        schedule = found.schedule
        return (schedule["time_ns"][schedule.rows(Verb.COMMIT)] / 1e9).round(6).tolist()

    def test_a_round_is_the_slowest_workers_steps_and_a_collective(self):
        cluster = self.SLOW | {"network": {"latency": {"name": "constant", "seconds": 0.1}}}
        assert self.steps(outcome("diloco", {"period": 3}, cluster, stop={"seconds": 8}))[:2] == [3.6, 7.2]

    def test_by_time_the_fast_make_more_steps(self):
        """They meet at the first end of an update after 2.2 s: 2.5 s, of the slow 3 s."""
        found = outcome("edit", {"every": 2.2}, self.SLOW, stop={"seconds": 6.25})
        assert self.steps(found) == [3.0, 6.0]
        pushed = found.schedule["worker"][found.schedule.rows(Verb.PUSH)]
        assert np.bincount(pushed[found.schedule["time_ns"][found.schedule.rows(Verb.PUSH)] <= 3e9]).tolist() == [5, 5, 5, 3]

    @pytest.mark.parametrize(("latency", "ends"), [(0.1, [3.0, 6.0]), (0.5, [4.0, 8.0])])
    def test_what_does_not_fit_behind_the_steps_is_waited_for(self, latency, ends):
        """Each has two updates of the slow, 2 s, time; six messages take 0.6 s, or 3 s."""
        cluster = self.SLOW | {"network": {"latency": {"name": "constant", "seconds": latency}}}
        found = outcome(
            "streaming-diloco", {"period": 3, "fragments": 1, "delay": 2}, cluster, stop={"seconds": 8.25}, task=LAYERS
        )
        schedule, syncs = found.schedule, found.schedule.rows(Verb.SYNC)
        last = schedule["time_ns"][syncs][schedule["worker"][syncs] == 3] / 1e9
        assert last[:2].round(6).tolist() == ends

    QUORUM: ClassVar[Any] = {"workers": 4, "speeds": [1, 1, 1, 0.2], "compute": CONSTANT}  # the slow one takes 2.5 s

    @pytest.mark.parametrize("overlap", [0.0, 1.0])
    def test_who_answers_within_the_time_of_grace_counts(self, overlap):
        """Asked at 2, 4, ... s, when the fast have made four updates; the slow answers at 2.5 s, which half a second waits for."""
        protocol = {"period": 4, "quorum": 3, "overlap": overlap}
        schedule = outcome("decoupled-diloco", protocol, self.QUORUM, stop={"seconds": 11.25}).schedule
        commits, adds = schedule.rows(Verb.COMMIT), schedule.rows(Verb.ADD)
        counts = np.diff(np.searchsorted(adds, commits), prepend=0).tolist()
        assert (schedule["time_ns"][commits] / 1e9)[:1].tolist() == [2.0 + overlap / 2]
        assert counts[0] == (4 if overlap else 3)
        first = adds[: counts[0]]
        assert schedule["weight"][first].tolist() == [4.0] * 3 + ([1.0] if overlap else []), "updates"
        assert not len(schedule.rows(Verb.DROP)), "who is too late does not answer any more"

    def test_each_fragment_is_asked_for_by_itself(self):
        """Four of them in four updates' time, 2 s: one each 0.5 s, though it takes 1 s until the slow could have answered."""
        protocol = {"period": 4, "fragments": 4, "quorum": 3, "overlap": 2.0}
        found = outcome("decoupled-diloco", protocol, self.QUORUM, stop={"seconds": 4.75})
        schedule, commits = found.schedule, found.schedule.rows(Verb.COMMIT)
        assert (schedule["time_ns"][commits] / 1e9).tolist() == [1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5]
        assert schedule["block"][commits].tolist() == [0, 1, 2, 3, 0, 1, 2]
        adds = schedule.rows(Verb.ADD)
        first = adds[schedule["block"][adds] == 3][:4]
        assert schedule["weight"][first].tolist() == [4.0] * 3 + [1.0], "asked at 2 s; the slow has made one update at 2.5 s"
        parameters = sum(int(each.size) for each in found.initial.values())
        per_fragment = [schedule["bytes"][adds[schedule["block"][adds] == block][0]] for block in range(4)]
        assert sum(per_fragment) == 4 * parameters

    def test_paced_workers_make_as_many_updates_as_they_are_fast(self):
        """4 s of eight, four and three updates (8 / 3 rounded up), of which the last takes 4.5 s."""
        cluster = {
            "workers": 3,
            "speeds": [1.0, 0.5, 1 / 3],
            "compute": CONSTANT,
            "network": {"latency": {"name": "constant", "seconds": 0.1}},
        }
        found = outcome("diloco", {"period": 8, "paced": True}, cluster, stop={"seconds": 15})
        assert self.steps(found) == [4.9, 9.8, 14.7], "4.5 s, and a ring of four messages"
        adds = found.schedule.rows(Verb.PUSH)
        assert np.bincount(found.schedule["worker"][adds])[:3].tolist() == [24, 12, 9]

    def test_learners_never_wait(self):
        cluster = self.QUORUM | {"network": {"latency": {"name": "constant", "seconds": 0.7}}}
        found = outcome("decoupled-diloco", {"period": 4, "quorum": 4}, cluster, stop={"seconds": 50})
        times = found.summary["workers_time"]
        assert times["waiting"] < 0.01
        assert times["network"] == pytest.approx(0.7 / 50, abs=0.003), "the first model"

    def test_the_others_go_on_without_who_has_crashed(self):
        """Half of the time half of the learners are away; one answer is enough, and all who are there compute all the time."""
        away = [{"name": "outage", "workers": [0, 1], "begin": 9.1, "end": 29.1}]
        found = outcome(
            "decoupled-diloco", {"period": 4}, {"workers": 4, "compute": CONSTANT, "faults": away}, stop={"seconds": 40}
        )
        schedule, rows = found.schedule, found.schedule.rows(Verb.ADD)
        times = schedule["time_ns"][rows] / 1e9
        during = (times > 9.1) & (times < 29.1)
        assert set(schedule["worker"][rows][during].tolist()) == {2, 3}
        assert set(schedule["worker"][rows][times > 33].tolist()) == {0, 1, 2, 3}
        assert len(schedule.rows(Verb.PUSH)) == 4 * 79 - 2 * 40, "each half second, but for 20 s of two, and what was lost"

    def test_a_quorum_that_can_never_be_met_again_is_told(self):
        """Asked every 2 s; one of three has left at 5.1 s, before it could answer at 6 s."""
        leaves = [{"name": "outage", "workers": [1], "begin": 5.1}]
        cluster = {"workers": 3, "compute": CONSTANT, "faults": leaves}
        protocol = {"period": 4, "quorum": 3, "overlap": 0.0}
        found = outcome("decoupled-diloco", protocol, cluster, stop={"seconds": 40.0})
        assert self.steps(found) == [2.0, 4.0]
        expected = "nothing can happen any more after 6 s: .*the server waits for 3 answers; worker 1 does not come back"
        assert re.match(expected, found.schedule.standstill)
        with pytest.raises(FredError, match=expected):
            outcome("decoupled-diloco", protocol, cluster, stop={"updates": 400})
        enough = outcome("decoupled-diloco", protocol | {"quorum": 2}, cluster, stop={"seconds": 40.0})
        assert self.steps(enough) == [float(time) for time in range(2, 40, 2)]

    def test_a_quorum_of_more_than_all_is_refused(self):
        with pytest.raises(FredError, match=r"`quorum` \(9\) must not exceed the number of workers \(3\)"):
            outcome("decoupled-diloco", {"quorum": 9}, {"workers": 3, "compute": CONSTANT})

    def test_who_crashes_while_its_answer_is_on_its_way_is_asked_again(self):
        """Asked at 2 s, away from 2.1 to 3.1 s, while its answer would have come at 2.2 s; back, it has made an update at 3.8 s."""
        cluster = {
            "workers": 1,
            "compute": CONSTANT,
            "network": {"latency": {"name": "constant", "seconds": 0.2}},
            "faults": [{"name": "outage", "workers": [0], "begin": 2.1, "end": 3.1}],
        }
        found = outcome("decoupled-diloco", {"period": 4, "overlap": 0.0}, cluster, stop={"seconds": 9.0})
        assert self.steps(found)[:1] == [4.0], "0.2 s for the model, 0.5 for an update, 0.2 for the answer"

    def test_a_pull_takes_no_time(self):
        found = outcome("palsgd", {"period": 10, "pulls": 0.5}, {"workers": 1, "compute": CONSTANT}, stop={"seconds": 400.25})
        kept = found.schedule["keep"][found.schedule.rows(Verb.SYNC)]
        gradients, pulls = len(found.schedule.rows(Verb.PUSH)), int((kept == 1).sum())
        assert gradients == 800, "one each half second"
        assert abs(pulls - gradients) < 4 * math.sqrt(2 * 800), "half of the steps, to four standard deviations"

    def test_fragments_are_sent_one_by_one(self):
        """A network of two layers, 8 x 6 + 6 and 6 x 4 + 4 numbers, in a ring of two: each sends half of each, twice."""
        cluster = {"workers": 2, "compute": CONSTANT, "network": {"bandwidth": 1e5}}
        protocol = {"period": 4, "fragments": 2, "cut": "layers"}
        found = outcome("streaming-diloco", protocol, cluster, stop={"seconds": 5}, task=LAYERS)
        adds = found.schedule.rows(Verb.ADD)[:4]
        assert found.schedule["bytes"][adds].tolist() == [4 * 54] * 2 + [4 * 28] * 2
        assert found.schedule["block"][adds].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ({"name": "streaming", "period": 5}, r"`period` \(5\) must be a multiple of `fragments` \(2\)"),
        ({"name": "streaming", "period": 6, "delay": 3}, r"`delay` \(3\) must be less than `period` / `fragments` \(3\)"),
        ({"name": "streaming", "mixing": 1.5}, "mixing"),
        ({"name": "outer-steps", "pulls": 1.0}, "pulls"),
        ({"name": "outer-steps", "every": 0}, "every"),
        ({"name": "outer-steps", "every": 1.0, "paced": True}, "`paced` and `every` both set"),
        ({"name": "outer-steps", "pace_seconds": 1.0}, "`pace_seconds` needs `paced: true`"),
    ],
)
def test_what_cannot_be_is_refused(protocol, said):
    with pytest.raises(FredError, match=said):
        outcome("diloco", protocol)


def test_an_outer_optimizer_needs_its_rate():
    with pytest.raises(FredError, match="exactly one transformation must take the learning rate"):
        outcome({"name": "diloco", "outer": {"name": "clip", "max_delta": 1.0}})
