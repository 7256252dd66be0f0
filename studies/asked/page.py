"""The page and its figure: systems compared over the seeds, with intervals; the comparisons of one question are a family."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base.errors import listed
from fred.base.intervals import Verdict
from fred.views.figures import Picture, style
from studies.asked import setup
from studies.asked.setup import AS_MANY, BASE, BUDGET, CASES, CONTROL, STUDY, SYSTEMS
from studies.kit import effort, figure, pages
from studies.kit.comparison import TRIALS
from studies.kit.difference import Difference
from studies.kit.pages import count, table
from studies.kit.study import Tables
from studies.kit.tuning import REPORTED

MARGIN = float(np.log(1.1))  # a time that is longer by less is as good
ROUNDS = [name for name, system in SYSTEMS.items() if system.rounds]
ALWAYS = [name for name, system in SYSTEMS.items() if not system.rounds]
COMPARED = [name for name in SYSTEMS if name != BASE]
DROPPING = ("spare", "deadline", "by speed")  # systems that leave slow clients out
SORTED, SESSIONS = "slow-differ", "sessions"  # cases
_HOME = ("case", "fastest", "s", "as good", "open", f"`{BASE}`, s", "fewest uploads", "fairest: worst tenth")
_EQUAL = ("case", "fastest rounds, clients", "s", "FedBuff, as many, s", "all, s", "as many / rounds", "all / as many")
Values = NDArray[np.float64]  # [seeds]
_ByCase = dict[str, dict[str, Difference]]


class Results:
    """The measurements, by case, system and way to choose settings.

    Args:
        rows: a row for each case, system, way and seed.
    """

    def __init__(self, rows: pd.DataFrame):
        self._rows = {key: table.sort_values("seed") for key, table in rows.groupby(["case", "system", "way"])}

    def values(self, case: str, system: str, column: str, way: str = "tuned") -> Values:
        """Return one measured column of a system in a case [seeds]. A target that was missed counts as reached at the end.

        Args:
            case: name.
            system: name.
            column: name.
            way: how settings were chosen, `tuned` or `one setting`.
        """
        values = self._rows[case, system, way][column].to_numpy(float)
        return np.where(np.isfinite(values), values, BUDGET if column == "target_seconds" else np.nan)

    def missed(self, case: str, system: str, way: str = "tuned") -> int:
        """Return the number of seeds with which a system missed the target."""
        return int(self._rows[case, system, way]["target_seconds"].isna().sum())

    def logs(self, case: str, system: str, way: str = "tuned") -> Values:
        """Return the logarithms of times to the target [seeds]."""
        return np.asarray(np.log(self.values(case, system, "target_seconds", way)), float)

    def seconds(self, case: str, system: str, way: str = "tuned") -> float:
        """Return the geometric mean of times to the target."""
        return float(np.exp(self.logs(case, system, way).mean()))

    def fastest(self, case: str, systems: Sequence[str] = tuple(SYSTEMS), way: str = "tuned") -> str:
        """Return the system with the least geometric mean of times to the target in a case."""
        return min(systems, key=lambda system: self.logs(case, system, way).mean())

    def time_ratios(self, case: str) -> dict[str, Difference]:
        """Return the logarithm of each other system's time to the target over that of a uniform sample: a family."""
        base = self.logs(case, BASE)
        return Difference.family({system: self.logs(case, system) - base for system in COMPARED})

    def less_fair(self, case: str) -> dict[str, Difference]:
        """Return the error of each other system's worst tenth of the clients, less that of a uniform sample: a family."""
        base = self.values(case, BASE, "worst_error")
        return Difference.family({system: self.values(case, system, "worst_error") - base for system in COMPARED})

    def as_good(self, case: str) -> dict[str, Verdict]:
        """Return whether each other system's time is at most 10 % longer than that of the fastest in a case: a family."""
        first = self.fastest(case)
        rivals = {name: self.logs(case, name) - self.logs(case, first) for name in SYSTEMS if name != first}
        return {name: difference.below(MARGIN) for name, difference in Difference.family(rivals, [MARGIN]).items()}

    def without_rounds(self) -> dict[tuple[str, str], Difference]:
        """Return the logarithm of the time of each system without rounds over that of the fastest rounds: one family."""
        best = {case: self.logs(case, self.fastest(case, ROUNDS)) for case in CASES}
        pairs = ((system, case) for system in ALWAYS for case in CASES)
        return Difference.family({(system, case): self.logs(case, system) - best[case] for system, case in pairs})

    def failed_tuning(self) -> dict[tuple[str, str], Difference]:
        """Return the logarithm of the tuned time over that with one setting for all cases where it is surely longer."""
        pairs = ((system, case) for system in SYSTEMS for case in CASES)
        ratios = {pair: self.logs(pair[1], pair[0]) - self.logs(pair[1], pair[0], "one setting") for pair in pairs}
        families = {pair: Difference.family({pair: ratio})[pair] for pair, ratio in ratios.items()}
        return {pair: ratio for pair, ratio in families.items() if ratio.lower == Verdict.NO}

    def of_concurrency(self) -> list[dict[str, Difference]]:
        """Return times of FedBuff with as many clients over those of the fastest rounds, and with all over these: families."""
        few = {case: self.logs(case, AS_MANY) for case in CASES}
        equal = {case: few[case] - self.logs(case, self.fastest(case, ROUNDS)) for case in CASES}
        return [Difference.family(equal), Difference.family({case: self.logs(case, "FedBuff") - few[case] for case in CASES})]

    def concurrency(self) -> Iterator[list[str]]:
        """Yield, for each case, the times of rounds and of FedBuff with as many and with all clients, and their ratios."""
        equal, gains = self.of_concurrency()
        for case in CASES:
            rounds, gain = self.fastest(case, ROUNDS), equal[case].mean.value + gains[case].mean.value
            share = f"{gains[case].mean.value / gain:.0%}" if equal[case].lower == Verdict.YES else "–"
            times = [self.time(case, system) for system in (rounds, AS_MANY, "FedBuff")]
            ratios = equal[case].ratio, gains[case].ratio
            yield [f"`{case}`", f"{rounds}, {CONTROL.at_work[case]}", *times, *ratios, share]

    def uploads(self, case: str, system: str) -> float:
        """Return the mean number of messages to the server until the target, at the run's mean rate."""
        messages = self.values(case, system, "messages_to_servers")
        return float((messages * self.values(case, system, "target_seconds") / BUDGET).mean())

    def cheapest(self, case: str) -> str:
        """Return the system with the fewest messages to the server until the target, of those that always reach it."""
        reaching = [name for name in SYSTEMS if not self.missed(case, name)]
        return min(reaching or list(SYSTEMS), key=lambda name: self.uploads(case, name))

    def fairest(self, case: str) -> str:
        """Return the system with the least mean error of the worst tenth of the clients."""
        return min(SYSTEMS, key=lambda name: float(self.values(case, name, "worst_error").mean()))

    def time(self, case: str, system: str, way: str = "tuned") -> str:
        """Return the geometric mean of times to the target, and the number of seeds that missed it."""
        return f"{self.seconds(case, system, way):.0f}{self._misses(case, system, way)}"

    def times(self, case: str, system: str) -> str:
        """Return the time to the target with tuned settings, and with one setting for all cases."""
        return f"{self.time(case, system)} / {self.time(case, system, 'one setting')}"

    def error(self, case: str, system: str) -> str:
        """Return the mean error of the worst tenth of the clients."""
        return f"{self.values(case, system, 'worst_error').mean():.2f}"

    def fair(self, case: str, system: str) -> str:
        """Return the errors of the mean client and of the worst tenth, and the share of clients that took part."""
        mean, share = (self.values(case, system, column).mean() for column in ("client_error", "took_part"))
        return f"{mean:.2f} / {self.error(case, system)} / {100 * share:.0f} %"

    def messages(self, case: str, system: str) -> str:
        """Return the number of messages to the server until the target."""
        return f"{self.uploads(case, system):,.0f}{self._misses(case, system)}"

    def _misses(self, case: str, system: str, way: str = "tuned") -> str:
        late = self.missed(case, system, way)
        return f" ({late} missed)" if late else ""

    def home(self) -> Iterator[list[str]]:
        """Yield, for each case, the fastest system, those as good, the cheapest, and the fairest."""
        for case in CASES:
            first, answers = self.fastest(case), self.as_good(case)
            as_good, unknown = ([name for name in answers if answers[name] == word] for word in (Verdict.YES, Verdict.OPEN))
            cheap, fair = self.cheapest(case), self.fairest(case)
            ends = [self.time(case, BASE), f"{cheap}, {self.uploads(case, cheap):,.0f}", f"{fair}, {self.error(case, fair)}"]
            yield [f"`{case}`", f"**{first}**", self.time(case, first), listed(as_good), listed(unknown), *ends]

    def verdicts(self) -> Iterator[list[str]]:
        """Yield a row for each question, with the answer in each case."""
        quicker, unfair, always = self.families()
        for system in ALWAYS:
            yield [f"Is {system} sooner than the fastest rounds?", *(always[system, case].lower.value for case in CASES)]
        for word, families in (("sooner", quicker), ("fairer", unfair)):
            for system in DROPPING:
                yield [f"Is `{system}` {word} than `{BASE}`?", *(families[case][system].lower.value for case in CASES)]

    def families(self) -> tuple[_ByCase, _ByCase, dict[tuple[str, str], Difference]]:
        """Return `time_ratios` and `less_fair` of all cases, and `without_rounds`."""
        quicker, unfair = {case: self.time_ratios(case) for case in CASES}, {case: self.less_fair(case) for case in CASES}
        return quicker, unfair, self.without_rounds()


def text(tables: Tables) -> str:
    """Return the page.

    Args:
        tables: the measurements, and the points that were tried.
    """
    results, trials = Results(tables[""]), tables[TRIALS]
    quicker, unfair, always = results.families()
    errors = {"error of the worst tenth": [difference for case in CASES for difference in unfair[case].values()]}
    times = {f"time over that of `{BASE}`": [difference for case in CASES for difference in quicker[case].values()]}
    times |= {"time without rounds over that with": [*always.values()]}
    times |= {"time at equal concurrency over that of rounds": [*results.of_concurrency()[0].values()]}
    parts = {
        "home": table(_HOME, results.home()),
        "concurrency": table((*_EQUAL, "share of concurrency"), results.concurrency()),
        "verdicts": table(("question", *CASES), results.verdicts()),
        "times": _by_case(SYSTEMS, results.times),
        "ratios": _by_case(COMPARED, lambda case, system: quicker[case][system].ratio),
        "against": _by_case(ALWAYS, lambda case, system: always[system, case].ratio),
        "fair": _by_case(SYSTEMS, results.fair),
        "less_fair": _by_case(COMPARED, lambda case, system: unfair[case][system].cell(2)),
        "uploads": _by_case(SYSTEMS, results.messages),
        "systems": table(("system", "whom the server asks, and waits for", "knobs"), _systems()),
        "cases": table(("case", "data and devices"), ([f"`{name}`", case.description] for name, case in CASES.items())),
        "effort": effort.block(STUDY, REPORTED, errors, times, trials),
    }
    return STUDY.fill(parts | constants() | facts(results))


def _by_case(systems: Iterable[str], cell: Callable[[str, str], str]) -> str:
    return pages.by_case(CASES, systems, cell)


def _systems() -> Iterator[list[str]]:
    for name, system in SYSTEMS.items():
        yield [name, system.description, ", ".join(knob.replace("_", " ") for knob in system.knobs)]


def constants() -> dict[str, object]:
    """Return the numbers of the cases that the page has."""
    numbers = {name: value for name, value in vars(setup).items() if name.isupper() and isinstance(value, int | float)}
    return {"base": BASE, **{name.lower(): f"{value:g}" for name, value in numbers.items()}}


def facts(results: Results) -> dict[str, str]:
    """Return the numbers in the page's sentences.

    Args:
        results: the measurements.
    """
    (equal, _), failures = results.of_concurrency(), results.failed_tuning()
    spare = results.logs(SESSIONS, AS_MANY) - results.logs(SESSIONS, "spare", "one setting")
    uploads = {case: [f"{results.uploads(case, name):,.0f}" for name in ("FedBuff", "spare")] for case in (SORTED, SESSIONS)}
    means = {name: np.mean([np.log(results.seconds(case, name, "one setting")) for case in CASES]) for name in SYSTEMS}
    best = min(means, key=means.__getitem__)
    return {
        "usual_uploads": listed([f"{fedbuff} for {spare} in `{case}`" for case, (fedbuff, spare) in uploads.items()]),
        "fastest": ", ".join(results.fastest(case) for case in CASES),
        "fastest_rounds": ", ".join(results.fastest(case, ROUNDS) for case in CASES),
        "uniform_missed": str(sum(results.missed(case, BASE) for case in CASES if CASES[case].devices != "alike")),
        "against_count": str(len(ALWAYS) * len(CASES)),
        "equal_count": count(equal[case].lower for case in CASES if CASES[case].devices != "alike"),
        "one_setting": f"{best}, {np.exp(means[best]):.0f} s",
        "failed": listed([f"`{system}` in `{case}`: {ratio.ratio}" for (system, case), ratio in failures.items()]),
        "spare_tuned": results.time(SESSIONS, "spare"),
        "spare_once": results.time(SESSIONS, "spare", "one setting"),
        "equal_spare": Difference.family({SESSIONS: spare})[SESSIONS].ratio,
    }


def draw(tables: Tables) -> Picture:
    """Draw times to the target, and errors of the worst tenth of the clients.

    Args:
        tables: the measurements.
    """
    results, labels = Results(tables[""]), {name: case.description for name, case in CASES.items()}
    with style():
        picture = Picture(figsize=(10, 4.9), layout="constrained")
        panels = picture.subplots(1, 2, sharey=True)
        for axes, column in zip(panels, ("target_seconds", "worst_error"), strict=True):
            values = partial(results.values, column=column)
            figure.panel(axes, [*SYSTEMS, AS_MANY], labels, values, geometric=column == "target_seconds")
        panels[0].set_xticks([10, 30, 100, BUDGET], ["10", "30", "100", f"{BUDGET:.0f} or missed"])
        panels[0].minorticks_off()
        panels[0].set_xlabel("s to the target")
        panels[1].set_xlabel("error of the worst tenth of the clients, at the end")
        picture.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return picture
