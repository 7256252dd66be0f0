"""What each rule for the cutoff would have made of a recorded trace."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from fred.components import registry
from fred.errors import FredError
from fred.prediction import closed_loop
from fred.prediction.best_static import BestStatic
from fred.prediction.closed_loop import Rounds
from fred.prediction.contract import AllWorkers, CutoffRule, Oracle, StaticCutoff
from fred.prediction.ewma import EWMA
from fred.process.progress import Show
from fred.traces.groups import find_groups
from fred.traces.trace import Trace

RULES = ("all", "static", "elfving", "empirical", "ewma", "node-ewma", "hmm", "oracle-throughput")  # by default
_SHORT: dict[str, Callable[[], CutoffRule]] = {
    "static": BestStatic,
    "node-ewma": lambda: EWMA(of="node"),
    "oracle-throughput": lambda: Oracle(objective="throughput"),
}
_LIMITS = ("all", "oracle", "oracle-throughput")  # what rules are compared with
_WORTH_IT = 1.02  # times the throughput of waiting for all
_FEW = 50  # rounds, of which the verdict says that they are few


@dataclass(frozen=True)
class Comparison:
    """What the rules came to on the part of a trace that they were not trained on."""

    trace: Trace
    train: int  # iterations trained on
    warm_up: int  # iterations after them that do not count
    groups: int
    found: bool  # whether the groups were found in the run-times, not told
    waiting_for_all: dict[str, float]  # the summary of that rule
    rounds: dict[str, Rounds]  # by rule, what it chose in each counted round

    @cached_property
    def rules(self) -> dict[str, dict[str, float]]:
        """What each rule came to, as `Rounds.summary` says."""
        return {name: rounds.summary() for name, rounds in self.rounds.items()}

    @property
    def counted(self) -> int:
        """Rounds that count."""
        return self.trace.iterations - self.train - self.warm_up

    def verdict(self) -> str:
        """In words, what a cutoff would win over waiting for all workers."""
        plain, every = self.waiting_for_all["throughput"], self.trace.seconds.shape[1]
        bound = f"who knew each round's times in advance: {1 / self.waiting_for_all['of_oracle'] - 1:+.1%}"
        real = {name: each for name, each in self.rules.items() if name not in _LIMITS}
        if not real:
            return f"Waiting for all {every} workers: {plain:,.4g} gradients/s; {bound}."
        best = max(real, key=lambda name: real[name]["throughput"])
        ratio = real[best]["throughput"] / plain
        worth = f"A cutoff {'pays' if ratio >= _WORTH_IT else 'wins little' if ratio > 1 else 'wins nothing'} here"
        hint = f" {self.counted} rounds are few to judge by." if self.counted < _FEW else ""
        return (
            f"{worth}: `{best}` does {real[best]['throughput']:,.4g} gradients/s, waiting for all {every} workers {plain:,.4g} "
            f"({ratio - 1:+.1%}; {bound}).{hint}"
        )

    def json(self) -> str:
        """All of it as one JSON object."""
        about = {"trace": self.trace.source, "digest": self.trace.digest, "repairs": self.trace.repairs}
        settings = {"train": self.train, "warm_up": self.warm_up, "rounds": self.counted, "groups": self.groups}
        return json.dumps({**about, **settings, "verdict": self.verdict(), "rules": self.rules}, indent=2)


def compare(
    trace: Trace,
    train: int,
    names: Sequence[str] = RULES,
    warm_up: int = closed_loop.WARM_UP,
    progress: Show = lambda what, share: None,
    more: Mapping[str, CutoffRule] = {},
) -> Comparison:
    """Train what must be trained on the first `train` iterations, and run every rule in closed loop on the others.

    `more`: rules with options, by what to call them. Raises FredError for unknown rules and too few iterations, and if a rule
    cannot work there.
    """
    if train < 1 or warm_up < 0 or trace.iterations - train <= warm_up:
        raise FredError(
            f"{trace.source} has {trace.iterations} iterations: expected 1 or more to train on ({train}), 0 or more to warm up "
            f"({warm_up}), and at least one to count after them"
        )
    rules = {
        name: _warmed_up(rule, warm_up) for name, rule in ({name: rule_named(name) for name in names} | dict(more)).items()
    }
    seconds, rest = np.split(trace.seconds, [train])
    node_of = find_groups(seconds) if trace.node_of is None else trace.node_of
    every = closed_loop.run(AllWorkers(), rest, node_of, warm_up).summary()
    rounds = {}
    for name, rule in rules.items():
        try:
            rounds[name] = _tried(name, rule, (seconds, rest), node_of, warm_up, progress)
        except ValueError as error:
            raise FredError(f"rule `{name}`: {error}") from error
    return Comparison(trace, train, warm_up, len(np.unique(node_of)), trace.node_of is None, every, rounds)


def rule_named(name: str) -> CutoffRule:
    """The rule that the command line calls so, as yet untrained. Raises FredError."""
    head, _, number = name.partition(":")
    if head == "static" and number:
        if not re.fullmatch("[1-9][0-9]{,8}", number):
            raise FredError(f"rule `{name}`: expected a number of workers after `static:`")
        return StaticCutoff(workers=int(number))
    if name in _SHORT:
        return _SHORT[name]()
    if ":" not in name and name not in registry.REGISTRY["cutoff"]:
        known = dict.fromkeys([*registry.REGISTRY["cutoff"], *_SHORT])
        raise FredError(f"no rule `{name}`; expected some of {', '.join(known)}, static:N{registry.nearest(name, known)}")
    try:
        rule = registry.lookup("cutoff", name)()
    except ValidationError as error:
        raise FredError(f"rule `{name}` has options without defaults; only a scenario can name it") from error
    assert isinstance(rule, CutoffRule)
    return rule


def _warmed_up(rule: CutoffRule, warm_up: int) -> CutoffRule:
    """The rule, with no more rounds to warm up in than do not count."""
    own = getattr(rule, "warm_up", warm_up)
    return rule if own <= warm_up else rule.model_copy(update={"warm_up": warm_up})


def _tried(
    name: str,
    rule: CutoffRule,
    seconds: tuple[NDArray[np.float64], NDArray[np.float64]],
    node_of: NDArray[np.int64],
    warm_up: int,
    progress: Show,
) -> Rounds:
    train, rest = seconds
    progress(f"{name}, training", 0.0)
    trained = rule.trained(train, node_of, lambda share: progress(f"{name}, training", share))
    progress(f"{name}, training", 1.0)
    return closed_loop.run(trained, rest, node_of, warm_up, lambda share: progress(name, share))
