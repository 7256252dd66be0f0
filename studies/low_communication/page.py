"""The page and its figure: systems compared over the seeds, with a margin that is the noise of the tuning."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base.errors import listed
from fred.base.intervals import Verdict
from fred.learning.data.language import Bigrams
from fred.views.figures import Picture, style
from studies.kit import effort, figure
from studies.kit.difference import Difference
from studies.kit.pages import by_case, count, table
from studies.kit.study import Tables
from studies.kit.tuning import REPORTED
from studies.low_communication.cases import CASES, ROUNDS, TASK
from studies.low_communication.measure import FINALISTS, POINTS, SEARCHES, STUDY
from studies.low_communication.systems import SYSTEMS

BASE = "diloco"  # with which the others are compared
_HOME = ("gradients in an allreduce", "best", "loss", "as good", "open", "behind")
Losses = NDArray[np.float64]  # [seeds]


@lru_cache
def least_loss(seed: int) -> float:
    """Return the least possible loss of a seed's data, nats."""
    return Bigrams(**{key: value for key, value in TASK["data"].items() if key != "name"}).entropy(seed)


class Results:
    """The losses above the least possible one, by case, system and search.

    Args:
        rows: a row for each case, system, search and seed.
    """

    def __init__(self, rows: pd.DataFrame):
        above = rows.assign(loss=rows["loss"] - rows["seed"].map(least_loss))
        self._by_search = {
            key: group.sort_values("seed")["loss"].to_numpy(float) for key, group in above.groupby(["case", "system", "search"])
        }
        measured = [case for case in CASES if (case, list(SYSTEMS)[-1], "second") in self._by_search]
        self.cases = sorted(measured, key=lambda case: (CASES[case].slow, -CASES[case].transfer))

    def losses(self, case: str, system: str) -> Losses:
        """Return the mean of the losses that the choices of both searches end with [seeds]."""
        return np.asarray(np.mean([self._by_search[case, system, search] for search in SEARCHES], axis=0))

    def luck(self, case: str, system: str) -> float:
        """Return the mean loss with the choice of the first search less that with the choice of the second."""
        first, second = (self._by_search[case, system, search].mean() for search in SEARCHES)
        return float(first - second)

    @property
    def margin(self) -> float:
        """Return the difference of two systems that the luck of their searches alone exceeds in 5 % of comparisons.

        A search's result has the variance E d^2 / 2, with d the difference of two searches; the mean of two has half of it, and
        the difference of two such means E d^2 / 2 again.
        """
        return self.margin_of(SYSTEMS)

    def margin_of(self, systems: Iterable[str]) -> float:
        """Return the margin that follows from the searches of some systems."""
        lucks = np.array([self.luck(case, system) for system in systems for case in self.cases])
        return float(1.96 * np.sqrt(np.mean(lucks**2) / 2))

    def best_system(self, case: str) -> str:
        """Return the system with the least mean loss."""
        return min(SYSTEMS, key=lambda system: self.losses(case, system).mean())

    def difference_to_best(self, case: str) -> dict[str, Difference]:
        """Return the other systems' losses less that of the best one: a family."""
        first = self.best_system(case)
        rivals = {name: self.losses(case, name) - self.losses(case, first) for name in SYSTEMS if name != first}
        return Difference.family(rivals, [self.margin])

    def difference_to_base(self, system: str) -> dict[str, Difference]:
        """Return a system's losses less those of DiLoCo, by case: a family."""
        differences = {case: self.losses(case, system) - self.losses(case, BASE) for case in self.cases}
        return Difference.family(differences, [self.margin, -self.margin])

    def home(self) -> Iterator[list[str]]:
        """Yield, for each case, the best system, those as good, open ones, and those behind."""
        for case in self.cases:
            first, family = self.best_system(case), self.difference_to_best(case)
            groups = [[name for name in family if family[name].below(self.margin) == word] for word in _ORDER]
            loss = f"{self.losses(case, first).mean():.3f}"
            yield [case, f"**{first}**", loss, *(listed(group) or "none" for group in groups)]

    def verdicts(self) -> Iterator[list[str]]:
        """Yield, for each system, in how many cases it is ahead of DiLoCo, as good, or behind by more than the margin."""
        for system in SYSTEMS:
            if system != BASE:
                family = self.difference_to_base(system).values()
                ahead = count(difference.below(-self.margin) for difference in family)
                yield [
                    system,
                    ahead,
                    count(difference.below(self.margin) for difference in family),
                    *_extremes(self.difference_to_base(system)),
                ]


_ORDER = (Verdict.YES, Verdict.OPEN, Verdict.NO)


def _extremes(family: dict[str, Difference]) -> list[str]:
    ends = [min(family, key=lambda case: family[case].mean.value), max(family, key=lambda case: family[case].mean.value)]
    return [f"{family[case].mean.value:+.3f} ({case})" for case in ends]


def text(tables: Tables) -> str:
    """Return the page.

    Args:
        tables: the losses, and the points that were tried.
    """
    results, trials = Results(tables[""]), tables["tuning"]
    choices = trials[trials["chosen"]]
    differences = {system: results.difference_to_base(system) for system in SYSTEMS if system != BASE}
    every = [difference for family in differences.values() for difference in family.values()]
    families: dict[str, list[Difference | float]] = {
        "loss less that of the best, nats": [
            difference for case in results.cases for difference in results.difference_to_best(case).values()
        ],
        "loss less that of DiLoCo, nats": [*every],
        "the same, with the luck of the searches": [difference.half + results.margin for difference in every],
    }
    of_systems = ([f"`{name}`", system.description, system.base or "the middle"] for name, system in SYSTEMS.items())
    of_verdicts = ("system", "ahead of DiLoCo", "as good or better", "least difference", "largest")
    parts: dict[str, object] = {
        "home": table(_HOME, results.home()),
        "verdicts": table(of_verdicts, results.verdicts()),
        "losses": by_case(results.cases, SYSTEMS, lambda case, system: f"{results.losses(case, system).mean():.3f}"),
        "differences": by_case(results.cases, differences, lambda case, system: differences[system][case].cell()),
        "luck": by_case(results.cases, SYSTEMS, lambda case, system: f"{results.luck(case, system):+.3f}"),
        "settings": by_case(results.cases, SYSTEMS, partial(_settings, choices)),
        "systems": table(("system", "idea", "search begins at"), of_systems),
        "effort": effort.block(STUDY, REPORTED, families, trials=trials, by=["case", "system", "search"]),
    }
    return STUDY.fill(parts | facts(results, trials))


def facts(results: Results, trials: pd.DataFrame) -> dict[str, object]:
    """Return the numbers in the page's sentences.

    Args:
        results: the losses.
        trials: the points that were tried.
    """
    choices = trials[trials["chosen"]].drop_duplicates(["case", "system", "search"])
    lucks = [abs(results.luck(case, system)) for case in results.cases for system in SYSTEMS]
    as_good = Counter(dict.fromkeys(SYSTEMS, 0))
    for case in results.cases:
        as_good[results.best_system(case)] += 1
        as_good.update(
            name
            for name, difference in results.difference_to_best(case).items()
            if difference.below(results.margin) == Verdict.YES
        )
    return {
        "take_home": "; ".join(_in_words(results, case) for case in results.cases),
        "cases": len(results.cases),
        "all_cases": len(CASES),
        "margin": f"{results.margin:.3f}",
        "margin_rest": f"{results.margin_of(name for name in SYSTEMS if name != 'sparseloco'):.3f}",
        "median_luck": f"{np.median(lucks):.3f}",
        "largest_luck": f"{max(lucks):.3f}",
        "same": f"{sum(luck == 0 for luck in lucks)} of {len(lucks)}",
        "good": ", ".join(f"`{name}` {number}" for name, number in as_good.most_common()),
        "momentum": _momentum(choices),
        "nested": _nested(results, trials),
        "edges_of_periods": int(choices["edges"].str.contains("period|every").sum()),
        "points": POINTS,
        "finalists": FINALISTS,
        "rounds": ROUNDS,
    }


def _in_words(results: Results, case: str) -> str:
    family = results.difference_to_best(case)
    as_good = [name for name in family if family[name].below(results.margin) == Verdict.YES]
    return f"{case}: {results.best_system(case)}{f', as good: {listed(as_good)}' * bool(as_good)}"


def _settings(choices: pd.DataFrame, case: str, system: str) -> str:
    rows = choices[(choices["case"] == case) & (choices["system"] == system)].drop_duplicates("search")
    cells = [" ".join(_word(value) for value in json.loads(words).values()) for words in rows["settings"]]
    return "; ".join(f"{cell}{'*' * bool(edges)}" for cell, edges in zip(cells, rows["edges"], strict=True))


def _word(value: object) -> str:
    return "/".join(f"{part:g}" for part in value) if isinstance(value, list) else f"{value:g}"


def _momentum(choices: pd.DataFrame) -> str:
    """Return how often each outer momentum was chosen, of the systems that have it."""
    momenta = Counter(f"{point['outer'][0]:g}" for point in map(json.loads, choices["settings"]) if "outer" in point)
    return ", ".join(f"{momentum} in {momenta[momentum]}" for momentum in sorted(momenta))


def _nested(results: Results, trials: pd.DataFrame) -> str:
    """Return how DiLoCo compares with local SGD, which it contains: in the tuning, and on the reported seeds."""
    full = trials.groupby(["case", "search", "system", "settings"]).agg(loss=("loss", "mean"), chosen=("chosen", "first"))
    scores = full[full["chosen"]].reset_index().set_index(["case", "search", "system"])["loss"].unstack()
    count_worse = (scores["diloco"] > scores["local-sgd"] + 1e-9).sum()
    values = [results.difference_to_base("local-sgd")[case].mean.value for case in results.cases]
    ends = f"{min(values):+.3f} to {max(values):+.3f}"
    return f"in {count_worse} of {len(scores)} searches; on the reported seeds local SGD ends {ends} from it"


def draw(tables: Tables) -> Picture:
    """Draw the losses less those of DiLoCo, a panel for workers alike and one for one slow worker.

    Args:
        tables: the losses, and the points that were tried.
    """
    results = Results(tables[""])
    compared = [name for name in SYSTEMS if name != BASE]
    with style():
        picture = Picture(figsize=(10, 4.4), layout="constrained")
        panels = picture.subplots(1, 2, sharey=True)
        for axes, slow in zip(panels, (False, True), strict=True):
            cases = {case: f"{CASES[case].transfer} gradients" for case in results.cases if CASES[case].slow == slow}
            figure.panel(axes, compared, cases, lambda case, name: results.losses(case, name) - results.losses(case, BASE))
            axes.axvspan(-results.margin, results.margin, color="0.9", zorder=0)
            axes.axvline(0, color="0.5", lw=0.8)
            axes.set_title("one worker four times as slow" if slow else "four workers alike")
            axes.set_xlabel("loss less that of DiLoCo, nats")
        handles = panels[0].get_legend_handles_labels()
        picture.legend(*handles, loc="outside lower center", ncols=4, title="an allreduce takes")
    return picture
