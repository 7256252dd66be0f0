"""The page and its figure: two groups of systems compared by law of times, over the seeds and over the laws."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base.intervals import Verdict
from fred.views.figures import Picture, style
from studies.asynchrony.setup import CASE, POINTS, ROUNDS, STALE, STUDY, SYSTEMS
from studies.kit import effort, figure
from studies.kit.difference import Difference
from studies.kit.pages import by_case, count, table
from studies.kit.study import Tables
from studies.kit.tuning import REPORTED

Key = tuple[bool, str, str]  # of a case: messages, task, law of times
_ALL_MESSAGES = (False, True)  # messages are free, or take time
MESSAGES = {"messages free": (False,), "messages cost": (True,)}


class Question(NamedTuple):
    """Two groups of systems; is the second one faster?"""

    words: str
    slow: tuple[str, ...]
    fast: tuple[str, ...]


QUESTIONS = {
    "stale": Question("no stale / stale gradients", tuple(name for name in SYSTEMS if name not in STALE), STALE),
    "waiting": Question("rounds / no waiting", ROUNDS, tuple(name for name in SYSTEMS if name not in ROUNDS)),
}


class Results:
    """The times by case and system. In each case its fastest system on the tuning seeds stands for a group.

    Args:
        rows: a row for each case, system and seed.
        last: True if the last of several systems that tie on the tuning seeds is taken instead of the first.
    """

    def __init__(self, rows: pd.DataFrame, last: bool = False):
        self.cases: dict[Key, pd.DataFrame] = dict(list(rows.groupby(CASE, sort=False)))  # type: ignore[arg-type]
        self.laws = list(dict.fromkeys(law for _, _, law in self.cases))
        self.columns = list(dict.fromkeys((messages, task) for messages, task, _ in self.cases))
        self._last = last

    def tied(self, key: Key, group: Sequence[str]) -> list[str]:
        """Return the systems of a group with the least time on the tuning seeds, in the order of the tables."""
        scores = self.cases[key].drop_duplicates("system").set_index("system")["tuning_seconds"][list(group)]
        return list(scores.index[scores == scores.min()])

    def seconds(self, key: Key, system: str) -> NDArray[np.float64]:
        """Return a system's times in a case [seeds], s; infinite where it missed the target."""
        case = self.cases[key]
        return case[case["system"] == system].sort_values("seed")["seconds"].to_numpy(float)

    def family(self, question: Question, groups: Mapping[str, Sequence[Key]]) -> dict[str, Difference]:
        """Return the logarithm of the first group's time over that of the second, in the mean over some cases: a family.

        Args:
            question: whose groups are compared.
            groups: cases over which a mean is taken, by name.
        """
        logs, missed = dict[str, NDArray[np.float64]](), dict[str, str]()
        for name, keys in groups.items():
            seconds = np.array([[self.seconds(key, self._fastest(key, group)) for group in question[1:]] for key in keys])
            budgets = np.array([self.cases[key]["budget"].iloc[0] for key in keys])[:, None, None]
            slow, fast = np.minimum(seconds, budgets).swapaxes(0, 1)
            logs[name] = np.log(slow / fast).mean(axis=0)
            missed[name] = "".join(sign for sign, late in zip("><", np.isinf(seconds).any(axis=(0, 2)), strict=True) if late)
        return Difference.family(logs, missed=missed)

    def _fastest(self, key: Key, group: Sequence[str]) -> str:
        return self.tied(key, group)[-1 if self._last else 0]

    def by_law(self, question: Question, messages: Sequence[bool] = _ALL_MESSAGES) -> dict[str, Difference]:
        """Return the means over a law's cases: a family.

        Args:
            question: whose groups are compared.
            messages: whether messages take time.
        """
        keys = {law: [key for key in self.cases if key[2] == law and key[0] in messages] for law in self.laws}
        return self.family(question, keys)

    def by_case(self, question: Question) -> dict[tuple[str, str], Difference]:
        """Return the ratios of all cases by column and law; those of a column are a family."""
        ratios = dict[tuple[str, str], Difference]()
        for column in self.columns:
            family = self.family(question, {law: [(*column, law)] for law in self.laws})
            ratios |= {(heading(column), law): ratio for law, ratio in family.items()}
        return ratios

    def over_laws(self, question: Question, messages: Sequence[bool] = _ALL_MESSAGES, omitted: str = "") -> Difference:
        """Return the mean with the laws as the unit: its interval is for a law that was not measured.

        Args:
            question: whose groups are compared.
            messages: whether messages take time.
            omitted: law that is left out; empty: none.
        """
        ratios = [ratio for law, ratio in self.by_law(question, messages).items() if law != omitted]
        missed = "".join(sign for sign in "><" if any(sign in ratio.bound for ratio in ratios))
        return Difference.family({"": np.array([ratio.mean.value for ratio in ratios])}, missed={"": missed})[""]

    def over_seeds(self, question: Question) -> Difference:
        """Return the mean over all cases with the seeds as the unit: its interval is for these laws alone."""
        return self.family(question, {"": [*self.cases]})[""]

    def shares(self, key: Key) -> dict[str, float]:
        """Return each system's median time over the least one in a case; infinite if most seeds missed the target."""
        medians = {name: float(np.quantile(self.seconds(key, name), 0.5, method="inverted_cdf")) for name in SYSTEMS}
        return {name: median / min(medians.values()) for name, median in medians.items()}

    def near(self, keys: Iterable[Key]) -> str:
        """Return the systems that are within 10 % of the best in most cases, and in how many."""
        counts = Counter(name for key in keys for name, share in self.shares(key).items() if share <= 1.1)
        return ", ".join(name for name in SYSTEMS if counts[name] == max(counts.values())) + f" ({max(counts.values())})"

    def home(self) -> Iterator[list[str]]:
        """Yield a row for each law of times, and the means: with the laws as the unit, and with the seeds."""
        families = [self.by_law(question) for question in QUESTIONS.values()]
        for law in self.laws:
            yield [law, *(family[law].ratio for family in families), self.near(key for key in self.cases if key[2] == law)]
        means = [("mean, for another law", _ALL_MESSAGES), *((f"... {words}", costs) for words, costs in MESSAGES.items())]
        for words, messages in means:
            cells = [self.over_laws(question, messages).ratio for question in QUESTIONS.values()]
            yield [words, *cells, self.near(key for key in self.cases if key[0] in messages)]
        cells = [self.over_seeds(question).ratio for question in QUESTIONS.values()]
        yield ["mean, for these laws", *cells, self.near(self.cases)]

    def ranks(self) -> Iterator[list[object]]:
        """Yield in how many cases each system is near the best, and never misses, and the median of its time over the best."""
        shares = pd.DataFrame([self.shares(key) for key in self.cases])
        for name in SYSTEMS:
            reached = sum(bool(np.isfinite(self.seconds(key, name)).all()) for key in self.cases)
            median = float(np.quantile(shares[name], 0.5, method="inverted_cdf"))
            yield [name, int((shares[name] <= 1.1).sum()), reached, f"{median:.2f}"]


def heading(column: tuple[bool, str]) -> str:
    """Return the words for the cases of one task, with messages that are free or cost time."""
    messages, task = column
    return f"{task}{', messages cost' * messages}"


def text(tables: Tables) -> str:
    """Return the page.

    Args:
        tables: one row for each case, system and seed; and one for each case and system.
    """
    results, tuning = Results(tables[""]), tables["tuning"]
    families = {name: results.by_case(question) for name, question in QUESTIONS.items()}
    titles = [question.words for question in QUESTIONS.values()]
    columns = [heading(column) for column in results.columns]
    parts: dict[str, object] = {
        "home": table(("gradients take", *titles, "fastest most often"), results.home()),
        "systems": table(("system", "within 10 % of the best", "always there", "median of time / best"), results.ranks()),
        "effort": _effort(results, tuning),
        "cases": len(results.cases),
        "points": POINTS,
        **facts(results, Results(tables[""], last=True), tuning),
    }
    for name, family in families.items():
        parts[name] = by_case(columns, results.laws, partial(_cell, family), "gradients take")
    return STUDY.fill(parts)


def _cell(family: Mapping[tuple[str, str], Difference], column: str, law: str) -> str:
    return family[column, law].ratio


def _effort(results: Results, tuning: pd.DataFrame) -> str:
    halves: dict[str, Collection[Difference | float]] = {}
    for question in QUESTIONS.values():
        halves[f"{question.words}, by law"] = results.by_law(question).values()
        halves[f"{question.words}, by case"] = results.by_case(question).values()
        halves[f"{question.words}, for another law"] = [results.over_laws(question)]
    return effort.block(STUDY, REPORTED, {}, halves, tuning.assign(chosen=True), [*CASE, "system"])


def facts(results: Results, other: Results, tuning: pd.DataFrame) -> dict[str, object]:
    """Return the numbers in the page's sentences.

    Args:
        results: the times.
        other: the same, with ties decided the other way.
        tuning: a row for each case and system.
    """
    groups = [group for question in QUESTIONS.values() for group in question[1:]]
    edges = tuning["edges"].str.split().explode().dropna()
    parts: dict[str, object] = {
        "choices": len(tuning),
        "rate_edges": (edges == "learning_rate").sum(),
        "size_edges": (edges != "learning_rate").sum(),
        "ties": sum(len(results.tied(key, group)) > 1 for key in results.cases for group in groups),
        "tie_choices": len(results.cases) * len(groups),
    }
    for name, question in QUESTIONS.items():
        laws, other_laws = results.by_law(question), other.by_law(question)
        left_out = {law: results.over_laws(question, omitted=law) for law in laws}
        least = min(left_out, key=lambda law: left_out[law].mean.value)
        parts |= {
            f"{name}_faster": _list_laws(laws, Verdict.YES),
            f"{name}_slower": _list_laws(laws, Verdict.NO),
            f"{name}_changed": sum(laws[law].lower != other_laws[law].lower for law in laws),
            f"{name}_count": count(ratio.lower for ratio in results.by_case(question).values()),
            f"{name}_all": _words(results.over_laws(question)),
            f"{name}_other": _words(other.over_laws(question)),
            f"{name}_least": f'{_words(left_out[least])} without "{least}"',
            **{f"{name}_{key[9:]}": _words(results.over_laws(question, value)) for key, value in MESSAGES.items()},
        }
    return parts


def _list_laws(laws: Mapping[str, Difference], answer: Verdict) -> str:
    words = (f"{law} ({np.exp(ratio.mean.value):.2f})" for law, ratio in laws.items() if ratio.lower == answer)
    return "; ".join(words) or "none"


def _words(ratio: Difference) -> str:
    return ratio.ratio.replace("**", "").replace("< ", "at most ").replace("> ", "at least ")


def draw(tables: Tables) -> Picture:
    """Draw the ratios of both questions by law, with free and with costly messages.

    Args:
        tables: one row for each case, system and seed; and one for each case and system.
    """
    results = Results(tables[""])
    with style():
        picture = Picture(figsize=(10.5, 4.4), layout="constrained")
        panels = picture.subplots(1, 2, sharey=True)
        for axes, question in zip(panels, QUESTIONS.values(), strict=True):
            families = {words: results.by_law(question, messages) for words, messages in MESSAGES.items()}
            figure.intervals(axes, results.laws, families, ratios=True)
            axes.set_xscale("log")
            axes.set_xticks([0.5, 1, 2, 4], ["0.5", "1", "2", "4"])
            axes.minorticks_off()
            axes.set_xlabel(f"time, {question.words}")
        picture.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return picture
