"""Comparison of cutoff rules on a recorded trace.

`compare` trains the rules on the first iterations and runs them on the others. `rolling` trains on all rounds so far, runs on
the next block, and repeats (rolling-origin evaluation). A short trace gives more counted rounds that way than by one split,
and more training times [Tashman 2000, International Journal of Forecasting 16(4)].
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fred.base.errors import FredError
from fred.base.intervals import Ratio
from fred.base.progress import Show
from fred.cluster.contention import NodeOf
from fred.components import registry
from fred.prediction import closed_loop
from fred.prediction.auto import Auto
from fred.prediction.closed_loop import Rounds
from fred.prediction.contract import AllWorkers, CutoffRule, Oracle
from fred.prediction.simple_rules import FixedCount, FixedDeadline
from fred.traces.doubts import refuse_doubtful
from fred.traces.trace import Trace, find_groups

RULES = (  # the default rules
    *("all", "count", "deadline", "count-or-deadline", "mad-deadline", "elfving", "empirical", "ewma", "hmm", "auto"),
    "oracle-throughput",
)
_SHORT: dict[str, Callable[[], CutoffRule]] = {
    "dmm-alone": lambda: registry.lookup("cutoff", "dmm")(alone=True),
    "oracle-throughput": lambda: Oracle(objective="throughput"),
}
_LIMITS = ("all", "oracle", "oracle-throughput")  # baselines and bounds that rules are compared with
_CHOOSES = "auto"  # the rule that chooses among the others
_FEWEST_ROUNDS = 60  # counted rounds needed for a verdict
_WORTH_IT = 1.02  # throughput, relative to waiting for all, from which a cutoff is worth it


@dataclass(frozen=True)
class Comparison:
    """The results of the rules on the part of a trace that they were not trained on."""

    trace: Trace
    train: int  # iterations trained on; initially, where rules are trained several times
    warm_up: int  # iterations before each evaluation that wait for all workers and do not count
    groups: int
    groups_inferred: bool  # from the compute times; False: given in the trace
    waiting_for_all: Rounds
    rounds: dict[str, Rounds]  # by rule, its choice in each counted round
    trained: int = 1  # number of trainings
    doubts: tuple[str, ...] = ()  # warnings about the rules, in words

    @cached_property
    def rules(self) -> dict[str, dict[str, float]]:
        """Return the summary of each rule, as by `Rounds.summary`."""
        return {name: rounds.summary() for name, rounds in self.rounds.items()}

    @property
    def counted_rounds(self) -> int:
        """Return the number of counted rounds."""
        return len(self.waiting_for_all.cutoff)

    @cached_property
    def real_rules(self) -> list[str]:
        """Return the rules that use only past rounds; the others are baselines or bounds."""
        return [name for name in self.rounds if name not in _LIMITS]

    @cached_property
    def best_rule(self) -> str | None:
        """Return the real rule with the most gradients per second; one that chooses among others only if it is alone."""
        candidates = [name for name in self.real_rules if name != _CHOOSES] or self.real_rules
        return max(candidates, key=lambda name: self.rules[name]["throughput"], default=None)

    @cached_property
    def recommended_rule(self) -> str | None:
        """Return the rule that chooses among the others, unless it is significantly worse than the best; else the best rule."""
        chooses = _CHOOSES in self.rounds and not self.ratios["best"][_CHOOSES].below
        return _CHOOSES if chooses else self.best_rule

    @cached_property
    def ratios(self) -> dict[str, dict[str, Ratio]]:
        """Return each rule's throughput relative to `all`, `best` and, if it was run, `count`: by reference, then by rule."""
        references = {
            "all": self.waiting_for_all,
            "best": self.rounds.get(self.best_rule or ""),
            "count": self.rounds.get("count"),
        }
        return {
            reference: {name: by_rule.ratio_to(rounds) for name, by_rule in self.rounds.items()}
            for reference, rounds in references.items()
            if rounds is not None
        }

    def verdict(self) -> str:
        """Return a sentence that says how much a cutoff gains over waiting for all workers, and with which rule."""
        summary = self.waiting_for_all.summary()
        baseline = summary["throughput"]
        bound = f"the round-by-round oracle: {1 / summary['of_oracle'] - 1:+.1%}"
        waiting = f"waiting for all {self.trace.seconds.shape[1]} workers"
        if self.recommended_rule is None:
            return f"{waiting.capitalize()}: {baseline:,.4g} gradients/s; {bound}."
        gain = self.ratios["all"][self.recommended_rule]
        rate = self.rules[self.recommended_rule]["throughput"]
        return (
            f"{self._worth(gain)}: `{self.recommended_rule}` does {rate:,.4g} gradients/s, {waiting} {baseline:,.4g} "
            f"({gain}; {bound}).{self._comparison_with_best()}"
        )

    def _worth(self, gain: Ratio) -> str:
        """Return the words for a gain over waiting for all."""
        if self.counted_rounds < _FEWEST_ROUNDS:
            return (
                f"These {self.counted_rounds} rounds cannot tell yet whether a cutoff saves time; "
                f"{_FEWEST_ROUNDS} that count are needed"
            )
        if gain.above:
            return f"A cutoff saves {'time' if gain.value >= _WORTH_IT else 'little time'} here"
        if gain.below or gain.low == gain.high:
            return "A cutoff saves no time here"
        if gain.high < _WORTH_IT:
            return "A cutoff saves little or no time here"
        return f"These {self.counted_rounds} rounds cannot tell whether a cutoff saves time"

    def _comparison_with_best(self) -> str:
        """Compare the rule that chooses with the best single rule, and name the rules indistinguishable from the best."""
        words = ""
        ratios = self.ratios["best"]
        if self.best_rule != self.recommended_rule:
            words = f" The best single rule is `{self.best_rule}` (`{_CHOOSES}` against it: {ratios[_CHOOSES]})."
        elif _CHOOSES in ratios and self.best_rule != _CHOOSES:
            words = f" `{_CHOOSES}` is worse ({ratios[_CHOOSES]})."
        rivals = [name for name in self.real_rules if name not in (self.best_rule, _CHOOSES)]
        indistinguishable = [f"`{name}`" for name in rivals if not ratios[name].below]
        if indistinguishable:
            words += f" These {self.counted_rounds} rounds cannot tell {', '.join(indistinguishable)} from `{self.best_rule}`."
        return words

    def json(self) -> str:
        """Return all of it as one JSON object; an interval is null where there are too few rounds for one."""
        trace = {
            "trace": self.trace.source,
            "digest": self.trace.digest,
            "notes": (*self.trace.notes, *self.trace.warnings),
            "repairs": self.trace.repairs,
        }
        settings = {"train": self.train, "trained": self.trained, "warm_up": self.warm_up, "rounds": self.counted_rounds}
        rules = {
            name: summary | {f"against_{reference}": _ratio_json(ratios[name]) for reference, ratios in self.ratios.items()}
            for name, summary in self.rules.items()
        }
        results = {
            "doubts": self.doubts,
            "groups": self.groups,
            "best": self.best_rule,
            "recommended": self.recommended_rule,
            "verdict": self.verdict(),
        }
        return json.dumps({**trace, **settings, **results, "rules": rules}, indent=2)


def compare(
    trace: Trace,
    train: int,
    names: Sequence[str] = RULES,
    warm_up: int = closed_loop.WARM_UP,
    progress: Show = lambda step, share: None,
    extra_rules: Mapping[str, CutoffRule] = {},
) -> Comparison:
    """Train every rule on the first `train` iterations and run it in closed loop on the others.

    `extra_rules` maps names to rules with options. Raises FredError for unknown rules, for too few iterations, if a rule cannot
    work on this trace, and if its times cannot be compute times, such as times that contain waiting.
    """
    refuse_doubtful(trace)
    if train < 1 or warm_up < 0 or trace.iterations - train <= warm_up:
        raise FredError(
            f"{trace.source} has {trace.iterations} iterations: expected 1 or more to train on ({train}), 0 or more to warm up "
            f"({warm_up}), and at least one to count after them"
        )
    seconds, rest = np.split(trace.seconds, [train])
    rules = {name: rule_named(name) for name in names} | dict(extra_rules)
    node_of = nodes_of(trace, train)
    waiting_for_all = closed_loop.run(AllWorkers(), rest, node_of, warm_up)
    rounds, doubts = train_and_run(rules, seconds, rest, node_of, warm_up, progress)
    return Comparison(
        trace=trace,
        train=train,
        warm_up=warm_up,
        groups=len(np.unique(node_of)),
        groups_inferred=trace.node_of is None,
        waiting_for_all=waiting_for_all,
        rounds=rounds,
        doubts=doubts,
    )


def nodes_of(trace: Trace, train: int) -> NodeOf:
    """Return the node of each worker [workers]: as given in the trace, or found in its first `train` iterations."""
    return find_groups(trace.seconds[:train]) if trace.node_of is None else trace.node_of


def train_and_run(
    rules: Mapping[str, CutoffRule],
    seconds: NDArray[np.float64],
    rest: NDArray[np.float64],
    node_of: NodeOf,
    warm_up: int,
    progress: Show,
) -> tuple[dict[str, Rounds], tuple[str, ...]]:
    """Train every rule on `seconds` and run it on `rest`, s [iterations, workers]; return rounds and warnings.

    Raises FredError if a rule cannot be trained or cannot work on these workers.
    """
    trained: dict[str, CutoffRule] = {}
    rounds = {}
    for name in sorted(rules, key=lambda name: isinstance(rules[name], Auto)):  # `auto` last: it uses the trained others
        rule, show_training = closed_loop.warmed_up(rules[name], warm_up), partial(progress, f"{name}, training")
        if isinstance(rule, Auto):
            rule = rule.watching(*(earlier for earlier in trained.values() if earlier.holds_back))
        show_training(0.0)
        try:
            trained[name] = rule.trained(seconds, node_of, show_training)
            show_training(1.0)
            rounds[name] = closed_loop.run(trained[name], rest, node_of, warm_up, partial(progress, name))
        except ValueError as error:
            raise FredError(f"rule `{name}`: {error}") from error
    doubts = (f"rule `{name}`: {doubt}" for name, rule in trained.items() for doubt in rule.doubts())
    return {name: rounds[name] for name in rules}, tuple(doubts)  # in the order of the caller


def rule_named(name: str) -> CutoffRule:
    """Return the untrained rule of this command-line name. Raises FredError."""
    head, _, number = name.partition(":")  # as in `count:24` or `deadline:1.5`
    if head == "count" and number:
        if not re.fullmatch("[1-9][0-9]{,8}", number):
            raise FredError(f"rule `{name}`: expected a number of workers after `count:`")
        return FixedCount(workers=int(number))
    if head == "deadline" and number:
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", number) or not float(number):
            raise FredError(f"rule `{name}`: expected seconds after `deadline:`")
        return FixedDeadline(seconds=float(number))
    if name in _SHORT:
        return _SHORT[name]()
    if ":" not in name and name not in registry.REGISTRY["cutoff"]:
        names = dict.fromkeys([*registry.REGISTRY["cutoff"], *_SHORT])
        choices = ", ".join((*names, "count:N", "deadline:SECONDS"))
        raise FredError(f"no rule `{name}`; expected some of {choices}{registry.nearest(name, names)}")
    cls = registry.lookup("cutoff", name)
    try:
        rule = cls()
    except FredError as error:
        raise FredError(f"rule `{name}` has options without defaults; give them in a scenario") from error
    assert isinstance(rule, CutoffRule)
    return rule


def _ratio_json(ratio: Ratio) -> dict[str, Any]:
    return {"ratio": ratio.value, "interval": ratio.interval}


def rolling(
    trace: Trace,
    first: int,
    block: int,
    names: Sequence[str] = RULES,
    warm_up: int = closed_loop.WARM_UP,
    progress: Show = lambda step, share: None,
) -> Comparison:
    """Train on the first iterations and run on the next block; then train on all so far, and so on to the end.

    Every iteration after the first ones counts once. Rules restart in each block and warm up in the last iterations before
    it, which wait for all workers.

    Args:
        trace: recorded compute times.
        first: number of iterations in the first training.
        block: number of iterations between trainings; the last block may have fewer.
        names: names of the rules, as on the command line.
        warm_up: maximum number of warm-up iterations before each block.
        progress: called with a description of the current step and the share of it that is done.

    Raises FredError for unknown rules and impossible numbers, if a rule cannot work on this trace, and if its times cannot be
    compute times, such as times that contain waiting.
    """
    refuse_doubtful(trace)
    if not 1 <= first < trace.iterations or block < 1 or warm_up < 0:
        raise FredError(
            f"{trace.source} has {trace.iterations} iterations: expected 1 or more to train on at first ({first}) and one more "
            f"to count, blocks of 1 or more ({block}), 0 or more to warm up ({warm_up})"
        )
    rules = {name: rule_named(name) for name in names}
    waiting_for_all: list[Rounds] = []
    parts: dict[str, list[Rounds]] = {name: [] for name in rules}
    doubts: dict[str, None] = {}  # a set in order: the same doubt may return in each block
    origins = range(first, trace.iterations, block)
    for origin in origins:
        node_of, warm_up_rounds = nodes_of(trace, origin), min(warm_up, origin)
        block_seconds = trace.seconds[origin - warm_up_rounds : origin + block]
        waiting_for_all.append(closed_loop.run(AllWorkers(), block_seconds, node_of, warm_up_rounds))
        outcomes, warnings = train_and_run(rules, trace.seconds[:origin], block_seconds, node_of, warm_up_rounds, progress)
        doubts |= dict.fromkeys(warnings)
        for name, rounds in outcomes.items():
            parts[name].append(rounds)
    return Comparison(
        trace=trace,
        train=first,
        warm_up=warm_up,
        groups=len(np.unique(node_of)),  # as inferred from the most iterations, those before the last block
        groups_inferred=trace.node_of is None,
        waiting_for_all=Rounds.concatenate(waiting_for_all),
        rounds={name: Rounds.concatenate(blocks) for name, blocks in parts.items()},
        trained=len(origins),
        doubts=tuple(doubts),
    )
