"""The rule that chooses among rules: its bound on any rounds, whom it follows and how soon it turns, what it writes down."""

import math
from typing import Any

import numpy as np
import pytest
import yaml  # type: ignore[import-untyped]

from fred.base.errors import FredError
from fred.components import registry
from fred.prediction import closed_loop
from fred.prediction.auto import Auto
from fred.prediction.contract import Chooser, CutoffRule, Deadline, Round
from fred.prediction.ewma import EWMA
from fred.prediction.fixed import FixedCount, FixedCountOrDeadline
from fred.prediction.following import MEMORY, RATE, Following
from fred.prediction.hmm import HiddenMarkov
from tests.rounds import NODES, check_dropped_times_do_not_matter, clusters, rounds_of
from tests.worlds import make_run

FEW, MANY = 18, 29  # of 30 workers


def two(**options: Any) -> Auto:
    """Return two numbers."""
    return Auto(candidates=(FixedCount(workers=FEW), FixedCount(workers=MANY)), **options)


def lived(rule: Auto, seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights before each round that could be judged, what it reckoned as gains there, both [rounds, candidates], and c [rounds]."""
    chooser: Any = rule.start(np.zeros(seconds.shape[1], np.int64))
    weights, gains, chosen = [], [], []
    for row in np.maximum((seconds * 1e9).astype(np.int64), 1):
        weights.append(chooser.weights)
        this = Round.of(row, chooser.choose(row))
        chooser.observe(this.seen, this.taken)
        gains.append(chooser.gains)
        chosen.append(len(this.first))
    return np.array(weights)[2:], np.array(gains)[2:], np.array(chosen)[2:]


def late(rounds: np.ndarray, seed: int = 0) -> np.ndarray:
    """Times of 30 workers, of which ten are three times as slow in these rounds, s: [rounds, workers]."""
    slow = np.where(rounds[:, None] & (np.arange(30) >= 20), 3.0, 1.0)
    return np.random.default_rng(seed).lognormal(0, 0.05, (len(rounds), 30)) * slow


@pytest.mark.parametrize("seed", range(12))
def test_its_loss_against_any_sequence_of_candidates_is_within_the_bound(seed):
    """Rounds in which now few and now many are right, at random and against it; the best sequence with S changes by brute force."""
    rng = np.random.default_rng(seed)
    length = rng.integers(1, 60)
    seconds = late(np.arange(240) // length % 2 == rng.integers(0, 2) if seed % 3 else rng.random(240) < 0.5, seed)
    weights, gains, _ = lived(two(seed=seed), seconds)
    means, spread = math.fsum((weights * gains).sum(axis=1)), ((gains.max(axis=1) - gains.min(axis=1)) ** 2).sum()
    best = np.full((1, 2), 0.0)  # the most that is reached with so many changes, by who is followed last: [changes, candidates]
    for own in gains:
        moved = np.vstack([np.full((1, 2), -np.inf), best[:, ::-1]])
        best = np.maximum(np.vstack([best, np.full((1, 2), -np.inf)]), moved)[:8] + own
    for changes, reached in enumerate(best.max(axis=1)):
        stays = (len(gains) - changes - 1) * math.log(MEMORY / (MEMORY - 1))
        prior = (changes + 1) * math.log(2) + changes * math.log(MEMORY) + stays
        assert reached - means <= prior / RATE + RATE / 8 * spread + 1e-9


def test_weights_against_it_stay_within_the_bound():
    """Whoever has more weight is the wrong one: times are made as it goes."""
    chooser: Any = two().start(np.zeros(30, np.int64))
    means, sums, spread = 0.0, np.zeros(2), 0.0
    for number in range(400):
        row = (late(np.array([chooser.weights[1] > 0.5]), number)[0] * 1e9).astype(np.int64)
        before = chooser.weights
        this = Round.of(row, chooser.choose(row))
        chooser.observe(this.seen, this.taken)
        means, sums = means + float(before @ chooser.gains), sums + chooser.gains
        spread += float(np.ptp(chooser.gains)) ** 2
    prior = math.log(2) + 399 * math.log(MEMORY / (MEMORY - 1))
    assert sums.max() - means <= prior / RATE + RATE / 8 * spread


@pytest.mark.parametrize("slow", [True, False])
def test_of_two_it_follows_the_better_one_and_loses_little(slow):
    seconds = late(np.full(600, slow))
    chosen = lived(two(), seconds)[2]
    better = FEW if slow else MANY
    assert (chosen[60:] == better).mean() > 0.96
    alone = closed_loop.run(FixedCount(workers=better), seconds, NODES).summary()["throughput"]
    assert closed_loop.run(two(), seconds, NODES).summary()["throughput"] > 0.97 * alone


def test_gains_that_are_seen_are_what_the_rounds_would_have_come_to():
    """c less the pace so far times x_(c), per worker; the pace by NumPy."""
    seconds = late(np.zeros(50, bool))
    _, gains, chosen = lived(two(weights=(1e-12, 1.0)), seconds)
    assert set(chosen) == {MANY}  # which shows what few would have come to
    ordered = np.sort((seconds * 1e9).astype(np.int64), axis=1) / 1e9
    mean, expected = ordered[1, MANY - 1], []
    for row in ordered[2:]:
        expected.append((FEW - MANY / mean * row[FEW - 1]) / 30)
        mean += (row[MANY - 1] - mean) / 20
    assert gains[:, 0] == pytest.approx(expected, rel=1e-6)


def test_identical_candidates_are_as_one_of_them():
    seconds = rounds_of(3, 150)
    one = closed_loop.run(Auto(candidates=(EWMA(),)), seconds, NODES)
    several = closed_loop.run(Auto(candidates=(EWMA(), EWMA(), EWMA())), seconds, NODES)
    assert np.array_equal(one.cutoff, several.cutoff)
    assert np.array_equal(one.time, several.time)


@pytest.mark.parametrize(("first", "within"), [(False, 10), (True, 110)])
def test_a_change_of_who_is_best_is_noticed(first, within):
    """The longer wait becomes worse: it shows at once. It becomes better: that shows when next looked for, in a hundred rounds."""
    delays = []
    for seed in range(4):
        rounds = np.where(np.arange(560) < 300, first, not first)
        chosen = lived(two(seed=seed), late(rounds, seed))[2]
        after = FEW if not first else MANY
        delays.append(next(at for at in range(298, 550) if (chosen[at : at + 10] == after).all()) - 298)
    assert max(delays) <= within


def test_looking_who_is_still_there_costs_a_hundredth_at_most():
    """A third of the workers is always three times as slow; all could pay if they came by 1.5 times the time of the others."""
    seconds = late(np.ones(900, bool))
    alone = closed_loop.run(FixedCount(workers=20), seconds, NODES)
    found = closed_loop.run(Auto(candidates=(FixedCount(workers=20),)), seconds, NODES)
    for start in range(0, 780):
        part = slice(start, start + 100)
        assert found.time[part].sum() <= 1.012 * alone.time[part].sum()  # noise of single rounds beside it
    assert (found.time > 1.3 * alone.time).sum() >= 8  # it does look


@pytest.mark.parametrize("number", [3, 14])
@pytest.mark.parametrize("factor", [1.0, 4.0, 1000.0])
def test_no_round_waits_longer_than_twice_what_rounds_usually_take(factor, number):
    """However slow some workers become, and whoever is followed; the others have usual times of 1 s."""
    seconds = late(np.zeros(400, bool))
    seconds[150:, :number] *= factor
    for rule in (Auto(), Auto(candidates=(FixedCount(workers=30),))):
        found = closed_loop.run(rule, seconds, NODES)
        assert (found.time <= 2.4e9).all()  # usual times are estimated


def test_it_looks_further_than_before_also_when_the_pace_changes():
    """All take 1.8 times as long in every other 30 rounds, one worker is gone: looking for it takes no gradients away."""
    slow = np.where(np.arange(900) // 30 % 2, 1.8, 1.0)[:, None]
    seconds = np.random.default_rng(0).lognormal(0, 0.03, (900, 30)) * slow
    seconds[:, 4] *= 100
    alone, found = (
        closed_loop.run(rule, seconds, NODES) for rule in (FixedCount(workers=29), Auto(candidates=(FixedCount(workers=29),)))
    )
    short = found.cutoff < 29
    assert short.sum() <= 0.05 * len(short)
    for start in range(0, 780, 20):
        part = slice(start, start + 100)
        own, theirs = (each.cutoff[part].sum() / each.time[part].sum() for each in (found, alone))
        assert own >= 0.985 * theirs


def _gone(seconds: np.ndarray) -> None:
    seconds[200:, 7] *= 1000


def _drifting(seconds: np.ndarray) -> None:
    seconds[200:, :4] *= np.exp(np.minimum(np.arange(220) / 150, 1) * np.log(3.5))[:, None]


def _other_node(seconds: np.ndarray) -> None:
    seconds[:200, NODES == 0] *= 2.5
    seconds[200:, NODES == 1] *= 2.5


def _back_again(seconds: np.ndarray) -> None:
    seconds[:, 15:] *= np.where(np.arange(420) < 200, 4.0, 1.5)[:, None]


@pytest.mark.parametrize("change", [_gone, _drifting, _other_node, _back_again])
def test_in_no_window_it_is_far_behind_what_goes_on_as_usual(change):
    """A worker is gone, four drift away, another node is slow, half of the workers come back nearer: what training had not."""
    seconds = np.random.default_rng(3).lognormal(0, 0.08, (420, 30))
    change(seconds)
    auto, other = (
        closed_loop.run(rule.trained(seconds[:150], NODES), seconds[150:], NODES, 20) for rule in (Auto(), EWMA(of="worker"))
    )
    for start in range(0, 150, 10):
        own, theirs = (
            int(each.cutoff[start : start + 100].sum()) / each.time[start : start + 100].sum() for each in (auto, other)
        )
        assert own > 0.96 * theirs


class TestTraining:
    SECONDS = clusters(5, 480, slow=3.0, dwell=30)
    FOUND = Auto().trained(SECONDS[:400], NODES)

    def test_it_judges_candidates_by_rounds_that_they_have_not_learnt_from(self):
        early, _ = closed_loop.split(self.SECONDS[:400])
        assert len(early) == 300
        rates = [
            closed_loop.run(rule.trained(early, NODES).unwatched(), self.SECONDS[280:400], NODES, 20).summary()["throughput"]
            for rule in Auto().candidates
        ]
        assert self.FOUND.held_back == pytest.approx(np.array(rates) / max(rates))
        assert math.fsum(self.FOUND.weights) == pytest.approx(1.0)

    def test_all_are_trained_again_on_everything(self):
        assert self.FOUND.candidates[0] == FixedCountOrDeadline().trained(self.SECONDS[:400], NODES)
        assert self.FOUND.candidates[-1] == HiddenMarkov().trained(self.SECONDS[:400], NODES)

    def test_it_does_about_as_well_as_the_best_candidate(self):
        rest = self.SECONDS[380:]
        rates = [
            closed_loop.run(rule, rest, NODES).summary()["throughput"]
            for rule, weight in zip(self.FOUND.candidates, self.FOUND.weights, strict=True)
            if weight
        ]
        assert closed_loop.run(self.FOUND, rest, NODES).summary()["throughput"] > 0.97 * max(rates)

    def test_what_it_found_survives_yaml(self):
        def dumped(rule: CutoffRule) -> dict[str, Any]:
            return {"name": "auto", **rule.model_dump(mode="json")}

        written = yaml.safe_load(yaml.safe_dump(dumped(self.FOUND)))
        again = registry.lookup("cutoff", "auto").model_validate({key: own for key, own in written.items() if key != "name"})
        assert again == self.FOUND
        rest = self.SECONDS[400:]
        one, other = (closed_loop.run(rule, rest, NODES).cutoff for rule in (again, self.FOUND))
        assert np.array_equal(one, other)

    def test_rounds_held_back_weigh_as_if_they_had_been_played(self):
        """Of four that are held back, three numbers: by NumPy, exponential weights with the rate of all rounds."""
        seconds, counts = rounds_of(1, 15), np.array([20, 20, 21])
        found = Auto(candidates=tuple(FixedCount(workers=each) for each in counts.tolist())).trained(seconds, NODES)
        ends = np.sort(seconds[11:], axis=1)[:, counts - 1]
        gains = (counts - (4 * counts / ends.sum(axis=0)).max() * ends) / 30
        weights = np.exp(RATE * gains.sum(axis=0))
        assert found.weights == pytest.approx(0.999 * weights / weights.sum() + 0.001 / 3, rel=1e-5)

    def test_too_few_rounds_for_any_candidate_are_refused(self):
        with pytest.raises(ValueError, match="no candidate can be trained on 1 iterations"):
            Auto(candidates=(HiddenMarkov(),)).trained(rounds_of(1, 1), NODES)


class Until(CutoffRule):
    """The same deadline in every round."""

    seconds: float

    def start(self, node_of):
        return _Until(Deadline.after(self.seconds))


class _Until(Chooser):
    def __init__(self, deadline):
        self._deadline = deadline

    def choose(self, times):
        return self._deadline


def test_it_chooses_among_deadlines_and_numbers():
    seconds = late(np.ones(500, bool))
    rule = Auto(candidates=(Until(seconds=4.0), FixedCount(workers=29), Until(seconds=1.2)))
    assert (lived(rule, seconds)[2][100:] <= 20).mean() > 0.9
    check_dropped_times_do_not_matter(two(), seconds, NODES)


def test_untrained_it_leaves_out_who_must_be_trained():
    chooser: Any = Auto().start(NODES)
    assert len(chooser.weights) == len(Auto().candidates) - 2  # the best number and the best deadline
    assert np.ptp(chooser.weights) == 0
    with pytest.raises(ValueError, match="`count` needs `workers`"):
        Auto(candidates=(FixedCount(),)).start(NODES)
    with pytest.raises(ValueError, match=r"`workers` \(31\) must not exceed"):  # given, so not left out
        Auto(candidates=(FixedCount(workers=31), FixedCount(workers=3))).start(NODES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": [0.5]}, "`weights` must be as many as there are `candidates`"),
        ({"candidates": ["ewma"], "weights": [0.0]}, "at least one of `weights` must be more than 0"),
        ({"excesses": [1.0, 2.0]}, "`excesses` must be 250 numbers"),
        ({"candidates": []}, "at least 1 item"),
        ({"candidates": ["ewmas"]}, "did you mean"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(FredError, match=message):
        make_run("cutoff-sgd", protocol={"name": "cutoff", "rule": {"name": "auto", **options}})


@pytest.mark.parametrize("watched", [False, True])
def test_who_waits_for_all_until_it_knows_enough_is_not_judged_by_that(watched):
    """A candidate that learns for 20 rounds keeps its weight in them, though it waits for a worker that is always late."""

    class Learning(Chooser):
        rounds = 0

        @property
        def ready(self):
            return self.rounds >= 20

        def choose(self, times):
            return 3 if self.ready else 4

        def observe(self, times, finished):
            self.rounds += 1

    class Learner(CutoffRule):
        def start(self, node_of):
            averages = FixedCount(workers=3).start(node_of)
            weights = np.array([0.99, 0.01])
            return Following((Learning(), averages), weights, 4, None, (0, "watched"), first=0) if watched else Learning()

    chooser: Any = Auto(candidates=(FixedCount(workers=3), Learner())).start(np.zeros(4, np.int64))
    times = np.array([10, 11, 12, 90]) * 10**8
    for _ in range(20):
        assert chooser.weights == pytest.approx([0.5, 0.5])
        this = Round.of(times, chooser.choose(times))
        chooser.observe(this.seen, this.taken)
    for _ in range(0 if watched else 50):  # who is watched looks for the missing by itself
        this = Round.of(times, chooser.choose(times))
        chooser.observe(this.seen, this.taken)
    assert chooser.weights == pytest.approx([0.5, 0.5])
