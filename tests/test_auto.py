"""The rule that chooses among rules: its bound on any rounds, the candidates that it follows, and its training."""

import math
from typing import Any

import numpy as np
import pytest

from fred.base.errors import FredError
from fred.prediction import closed_loop
from fred.prediction.auto import Auto
from fred.prediction.contract import Chooser, CutoffRule, Round
from fred.prediction.following import MEMORY, RATE
from fred.prediction.hmm import HMM
from fred.prediction.predictive import EWMA
from fred.prediction.simple_rules import FixedCount, FixedCountOrDeadline, FixedDeadline
from tests.rounds import NODES, check_dropped_times_do_not_matter, clusters, rounds_of
from tests.worlds import make_run

FEW, MANY = 18, 29  # of 30 workers


def two_candidates(**options: Any) -> Auto:
    return Auto(candidates=(FixedCount(workers=FEW), FixedCount(workers=MANY)), **options)


def play(chooser: Any, row: np.ndarray) -> Round:
    """Let the chooser choose in a round of these times, s, and observe it."""
    times = np.maximum((row * 1e9).astype(np.int64), 1)
    this = Round.from_choice(times, chooser.choose(times))
    chooser.observe(this.observed, this.in_time)
    return this


def play_rounds(rule: Auto, seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, for rounds from the third on, weights before and gains after, both [rounds, candidates], and c [rounds]."""
    chooser: Any = rule.start(np.zeros(seconds.shape[1], np.int64))
    weights, gains, numbers = [], [], []
    for row in seconds:
        weights.append(chooser.weights)
        numbers.append(len(play(chooser, row).first))
        gains.append(chooser.gains)
    return np.array(weights)[2:], np.array(gains)[2:], np.array(numbers)[2:]


def round_times(rounds: np.ndarray, seed: int = 0) -> np.ndarray:
    """Times of 30 workers, of which ten are three times as slow in these rounds, s: [rounds, workers]."""
    slow = np.where(rounds[:, None] & (np.arange(30) >= 20), 3.0, 1.0)
    return np.random.default_rng(seed).lognormal(0, 0.05, (len(rounds), 30)) * slow


def throughput(rule: CutoffRule, seconds: np.ndarray) -> float:
    return closed_loop.run(rule, seconds, NODES).summary()["throughput"]


def alone_and_looking(number: int, seconds: np.ndarray) -> list[closed_loop.Rounds]:
    """Return the rounds of a fixed count, and of a rule that chooses it alone."""
    fixed = FixedCount(workers=number)
    return [closed_loop.run(rule, seconds, NODES) for rule in (fixed, Auto(candidates=(fixed,)))]


@pytest.mark.parametrize("seed", range(6))
def test_its_loss_against_any_sequence_of_candidates_is_within_the_bound(seed):
    """Few and many are right by turns, or at random; the best sequence with S changes by brute force."""
    rng = np.random.default_rng(seed)
    turns = np.arange(240) // rng.integers(1, 60) % 2 == rng.integers(0, 2) if seed % 3 else rng.random(240) < 0.5
    weights, gains, _ = play_rounds(two_candidates(seed=seed), round_times(turns, seed))
    means, spread = math.fsum((weights * gains).sum(axis=1)), ((gains.max(axis=1) - gains.min(axis=1)) ** 2).sum()
    best = np.zeros((1, 2))  # the most that is reached with so many changes, by the last candidate [changes, candidates]
    for row in gains:
        moved = np.vstack([np.full((1, 2), -np.inf), best[:, ::-1]])
        best = np.maximum(np.vstack([best, np.full((1, 2), -np.inf)]), moved)[:8] + row
    for changes, reached in enumerate(best.max(axis=1)):
        stays = (len(gains) - changes - 1) * math.log(MEMORY / (MEMORY - 1))
        prior = (changes + 1) * math.log(2) + changes * math.log(MEMORY) + stays
        assert reached - means <= prior / RATE + RATE / 8 * spread + 1e-9


class TestFollowing:
    def test_of_two_it_follows_the_better_one_and_loses_little(self):
        for slow, best_number in ((True, FEW), (False, MANY)):
            seconds = round_times(np.full(600, slow))
            assert (play_rounds(two_candidates(), seconds)[2][60:] == best_number).mean() > 0.96
            assert throughput(two_candidates(), seconds) > 0.97 * throughput(FixedCount(workers=best_number), seconds)

    def test_gains_are_what_the_rounds_would_have_come_to(self):
        """c less the pace so far times x_(c), per worker; the pace by NumPy."""
        seconds = round_times(np.zeros(50, bool))
        _, gains, numbers = play_rounds(two_candidates(weights=(1e-12, 1.0)), seconds)
        assert set(numbers) == {MANY}  # which shows what few would have come to
        ordered = np.sort((seconds * 1e9).astype(np.int64), axis=1) / 1e9
        mean, expected = ordered[1, MANY - 1], []
        for row in ordered[2:]:
            expected.append((FEW - MANY / mean * row[FEW - 1]) / 30)
            mean += (row[MANY - 1] - mean) / 20
        assert gains[:, 0] == pytest.approx(expected, rel=1e-6)

    def test_identical_candidates_are_as_one_of_them(self):
        seconds = rounds_of(3, 150)
        single, several = (closed_loop.run(Auto(candidates=(EWMA(),) * number), seconds, NODES) for number in (1, 3))
        assert np.array_equal(single.cutoff, several.cutoff)
        assert np.array_equal(single.time, several.time)

    @pytest.mark.slow
    def test_a_change_of_the_better_candidate_is_noticed(self):
        """The longer wait becomes worse: it shows at once. It becomes better: that shows at the next look, in a hundred rounds."""
        for first, after, delay, seed in ((*case, seed) for case in ((False, FEW, 10), (True, MANY, 110)) for seed in range(4)):
            numbers = play_rounds(
                two_candidates(seed=seed), round_times(np.where(np.arange(560) < 300, first, not first), seed)
            )[2]
            assert next(at for at in range(298, 550) if (numbers[at : at + 10] == after).all()) - 298 <= delay

    def test_it_chooses_among_deadlines_and_counts(self):
        seconds = round_times(np.ones(500, bool))
        rule = Auto(candidates=(FixedDeadline(seconds=4.0), FixedCount(workers=29), FixedDeadline(seconds=1.2)))
        assert (play_rounds(rule, seconds)[2][100:] <= 20).mean() > 0.9
        check_dropped_times_do_not_matter(two_candidates(), seconds, NODES)

    def test_a_candidate_is_not_judged_before_it_is_ready(self):
        """It learns for 20 rounds and keeps its weight in them, though it waits for a worker that is always late."""

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
                return Learning()

        chooser: Any = Auto(candidates=(FixedCount(workers=3), Learner())).start(np.zeros(4, np.int64))
        for _ in range(70):
            assert chooser.weights == pytest.approx([0.5, 0.5])
            play(chooser, np.array([1.0, 1.1, 1.2, 9.0]))
        assert chooser.weights == pytest.approx([0.5, 0.5])


class TestLooking:
    def test_looking_for_missing_workers_costs_a_hundredth_at_most(self):
        """A third of the workers is always three times as slow; all could pay if they came by 1.5 times the time of the others."""
        fixed, looking = alone_and_looking(20, round_times(np.ones(900, bool)))
        for start in range(0, 780):
            part = slice(start, start + 100)
            assert looking.time[part].sum() <= 1.012 * fixed.time[part].sum()  # noise of single rounds beside it
        looks = np.flatnonzero(looking.time > 1.3 * fixed.time)
        assert 3 <= len(looks) <= 8  # it does look, less and less often
        assert looks[-1] - looks[-2] > 2 * (looks[1] - looks[0])

    @pytest.mark.slow
    @pytest.mark.parametrize("number", [3, 14])
    def test_no_round_waits_longer_than_twice_what_rounds_usually_take(self, number):
        """This holds for any slowdown of some workers and for each candidate; the usual time of the other workers is 1 s."""
        for factor in (1.0, 4.0, 1000.0):
            seconds = round_times(np.zeros(250, bool))
            seconds[100:, :number] *= factor
            for rule in (Auto(), Auto(candidates=(FixedCount(workers=30),))):
                assert (closed_loop.run(rule, seconds, NODES).time <= 2.4e9).all(), factor  # usual times are estimated

    def test_it_looks_further_than_before_also_if_the_pace_changes(self):
        """All take 1.8 times as long in every other 30 rounds, one worker is gone: looking for it takes no gradients away."""
        slow = np.where(np.arange(900) // 30 % 2, 1.8, 1.0)[:, None]
        seconds = np.random.default_rng(0).lognormal(0, 0.03, (900, 30)) * slow
        seconds[:, 4] *= 100
        fixed, looking = alone_and_looking(29, seconds)
        assert (looking.cutoff < 29).mean() <= 0.05
        for start in range(0, 780, 20):
            part = slice(start, start + 100)
            rate, other = (rounds.cutoff[part].sum() / rounds.time[part].sum() for rounds in (looking, fixed))
            assert rate >= 0.985 * other

    @pytest.mark.slow
    @pytest.mark.parametrize("change", ["a worker is gone", "four drift away", "another node is slow", "half come nearer"])
    def test_in_no_window_it_is_far_behind_averages_after_changes_that_training_did_not_see(self, change):
        seconds = np.random.default_rng(3).lognormal(0, 0.08, (420, 30))
        after, workers = np.arange(420)[:, None] >= 200, np.arange(30)
        seconds *= {
            "a worker is gone": np.where(after & (workers == 7), 1000, 1),
            "four drift away": np.where(workers < 4, 3.5 ** np.clip((np.arange(420) - 200) / 150, 0, 1)[:, None], 1),
            "another node is slow": np.where(np.where(after, 1, 0) == NODES, 2.5, 1),
            "half come nearer": np.where(workers < 15, 1, np.where(after, 1.5, 4.0)),
        }[change]
        rules = Auto().trained(seconds[:150], NODES), EWMA(of="worker").trained(seconds[:150], NODES)
        auto, other = (closed_loop.run(rule, seconds[150:], NODES, 20) for rule in rules)
        for start in range(0, 150, 10):
            part = slice(start, start + 100)
            rate, least = (int(rounds.cutoff[part].sum()) / rounds.time[part].sum() for rounds in (auto, other))
            assert rate > 0.96 * least


SECONDS = clusters(5, 480, slow=3.0, dwell=30)


@pytest.fixture(scope="module")
def trained() -> Auto:
    return Auto().trained(SECONDS[:400], NODES)


class TestTraining:
    @pytest.mark.slow
    def test_it_judges_candidates_by_rounds_that_they_have_not_learnt_from(self, trained):
        early, _ = closed_loop.split_rounds(SECONDS[:400])
        assert len(early) == 300
        rules = [rule.trained(early, NODES).unwatched() for rule in Auto().candidates]
        rates = [closed_loop.run(rule, SECONDS[280:400], NODES, 20).summary()["throughput"] for rule in rules]
        assert trained.held_back == pytest.approx(np.array(rates) / max(rates))
        assert math.fsum(trained.weights) == pytest.approx(1.0)
        for number, rule in ((0, FixedCountOrDeadline()), (-1, HMM())):
            assert trained.candidates[number] == rule.trained(SECONDS[:400], NODES), "again, on everything"

    @pytest.mark.slow
    def test_it_does_about_as_well_as_the_best_candidate(self, trained):
        rest, weighed = SECONDS[380:], zip(trained.candidates, trained.weights, strict=True)
        assert throughput(trained, rest) > 0.97 * max(throughput(rule, rest) for rule, weight in weighed if weight)

    def test_rounds_held_back_weigh_as_if_they_had_been_played(self):
        """Four rounds are held back, and three numbers compete: NumPy computes exponential weights with the rate of all rounds."""
        seconds, counts = rounds_of(1, 15), np.array([20, 20, 21])
        trained = Auto(candidates=tuple(FixedCount(workers=count) for count in counts.tolist())).trained(seconds, NODES)
        ends = np.sort(seconds[11:], axis=1)[:, counts - 1]
        weights = np.exp(RATE * ((counts - (4 * counts / ends.sum(axis=0)).max() * ends) / 30).sum(axis=0))
        assert trained.weights == pytest.approx(0.999 * weights / weights.sum() + 0.001 / 3, rel=1e-5)

    def test_untrained_it_leaves_out_candidates_that_must_be_trained(self):
        chooser: Any = Auto().start(NODES)
        assert len(chooser.weights) == len(Auto().candidates) - 2  # the best number and the best deadline
        assert np.ptp(chooser.weights) == 0


def test_options_that_do_not_fit_are_refused():
    for options, message in (
        ({"weights": [0.5]}, "`weights` must be as many as there are `candidates`"),
        ({"candidates": ["ewma"], "weights": [0.0]}, "at least one of `weights` must be more than 0"),
        ({"excesses": [1.0, 2.0]}, "`excesses` must be 250 numbers"),
        ({"candidates": []}, "found 0 items; expected at least 1"),
        ({"candidates": ["ewmas"]}, "did you mean"),
        ({"candidates": ["count"]}, "`count` needs `workers`"),
        ({"candidates": [{"name": "count", "workers": 5}]}, r"`workers` \(5\) must not exceed"),
    ):
        with pytest.raises(FredError, match=message):
            make_run("cutoff-sgd", protocol={"name": "cutoff", "rule": {"name": "auto", **options}})
    with pytest.raises(ValueError, match="no candidate can be trained on 1 iterations"):
        Auto(candidates=(HMM(),)).trained(rounds_of(1, 1), NODES)
