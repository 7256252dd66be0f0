"""Recorded rounds of 30 workers on three nodes, and rules that predict the next one."""

import hashlib
import math
from typing import Any

import numpy as np

from fred.prediction.auto import Auto
from fred.prediction.closed_loop import run
from fred.prediction.contract import CutoffRule, Round
from fred.prediction.hmm import HMM
from fred.prediction.predictive import EWMA, Elfving, Empirical, Predictor
from fred.prediction.simple_rules import DynamicBackup, FixedCount, FixedCountOrDeadline, FixedDeadline, MADDeadline

NODES = np.arange(30) // 10
RULES = {
    "count": FixedCount(workers=20),
    "empirical": Empirical(),
    "ewma": EWMA(by="count"),
    "worker-ewma": EWMA(of="worker", by="count"),
    "hmm": HMM(by="count"),
    "worker-hmm": HMM(of="worker", by="count"),
    "backup": DynamicBackup(noise=2.0),
    "auto": Auto(),
    "deadline": FixedDeadline(seconds=1.3),
    "mad-deadline": MADDeadline(),
    "worker-mad-deadline": MADDeadline(of="worker", k=1.0, window=5),
    "elfving-deadline": Elfving(by="deadline"),
    "empirical-deadline": Empirical(by="deadline"),
    "ewma-deadline": EWMA(by="deadline"),
    "hmm-deadline": HMM(by="deadline"),
    "count-or-deadline": FixedCountOrDeadline(workers=20, seconds=1.5),
    "elfving-either": Elfving(by="count-or-deadline"),
    "empirical-either": Empirical(),
    "ewma-either": EWMA(),
    "hmm-either": HMM(),
}


def clusters(seed: int, iterations: int, slow: float = 2.0, dwell: int = 15) -> np.ndarray:
    """Times of 30 workers with medians of their own on three nodes, which are slow now and then: s [iterations, workers]."""
    rng = np.random.default_rng(seed)
    switches = rng.random((iterations, 3)) < 1 / dwell
    state = (np.cumsum(switches, axis=0) + rng.integers(0, 2, 3)) % 2
    medians = np.exp(0.1 * np.random.default_rng(99).standard_normal(30))
    return medians * np.exp(0.15 * rng.standard_normal((iterations, 30)) + math.log(slow) * state[:, NODES])


def rounds_of(seed: int, iterations: int = 60) -> np.ndarray:
    """Log-normal times of 30 workers, s; the first node is slow every other 20 rounds."""
    slow = np.where((np.arange(30) < 10) & (np.arange(iterations) // 20 % 2 == 0)[:, None], 3.0, 1.0)
    return np.random.default_rng(seed).lognormal(0, 0.3, (iterations, 30)) * slow


def check_dropped_times_do_not_matter(rule: CutoffRule, seconds: np.ndarray, node_of: np.ndarray) -> None:
    """However late a dropped worker is, its round's cutoff and all later ones are the same, and so is when they end."""
    first = run(rule, seconds, node_of, warm_up=0)
    dropped = seconds.argsort(axis=1).argsort(axis=1) >= first.cutoff[:, None]
    assert dropped.sum() > len(seconds)
    inflated = np.where(dropped, seconds * np.random.default_rng(0).uniform(1, 5, seconds.shape), seconds)
    second = run(rule, inflated, node_of, warm_up=0)
    assert np.array_equal(second.cutoff, first.cutoff)
    assert np.array_equal(second.time, first.time)


def expectations() -> str:
    """Digest of what every rule expects in rounds of 30 workers, and of what training finds."""
    seconds, digest = np.rint(rounds_of(8, 60) * 1e6) / 1e6, hashlib.sha256()
    for rule in (
        *RULES.values(),
        HMM(passes=3),
        HMM(of="worker", states=2, passes=2),
        FixedCount(),
        FixedDeadline(),
        FixedCountOrDeadline(),
    ):
        trained = rule.trained(seconds, NODES)
        digest.update(trained.model_dump_json().encode())
        chooser: Any = trained.start(NODES)
        for row in (seconds * 1e9).astype(np.int64):
            this = Round.from_choice(row, chooser.choose(row))
            digest.update(str(this.cutoff).encode())
            chooser.observe(this.observed, this.in_time)
        digest.update(chooser.expected().tobytes() if isinstance(chooser, Predictor) else b"")
    return digest.hexdigest()
