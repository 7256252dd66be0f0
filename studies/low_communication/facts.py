"""The numbers of the page's sentences."""

from collections.abc import Sequence

import pandas as pd

from studies.low_communication.cases import MEGABITS, NARROW, SECONDS
from studies.low_communication.compared import KINDS, Key, best, ends, keys
from studies.low_communication.systems import PERIODS, SYSTEMS, TIMES

WIDE = tuple(each for each in MEGABITS if each != NARROW)  # with bigrams
ROUNDS = ("local-sgd", "diloco", "diloco-by-time", "a-edit")  # that wait for an allreduce of everything
_GRADIENT = 0.25  # s
_OF_MOMENTUM = {"outer", "momentum"}  # knobs that begin with no momentum


def facts(losses: pd.DataFrame, tried: pd.DataFrame) -> dict[str, object]:
    """Return the numbers by the names that the page has for them.

    Args:
        losses: as `final` returns them; on bigrams above the least possible loss.
        tried: one row for each case, system and point that was tried.
    """
    found: dict[str, object] = {f"seconds_{width}": f"{seconds:g}" for width, seconds in SECONDS.items()}
    found |= {f"gradients_{width}": f"{seconds / _GRADIENT:,.0f}" for width, seconds in SECONDS.items()}
    for system in SYSTEMS:
        name = system.replace("-", "_")
        found[f"{name}_narrow"] = f"{_end(losses, Key(NARROW, *KINDS[0]), system):.3f}"
        wide = [listed([f"{_end(losses, key, system):.3f}" for key in keys([kind], WIDE)]) for kind in KINDS]
        found |= {f"{name}_wide_{number}": words for number, words in enumerate(wide)} | {f"{name}_wide": wide[0]}
    found["best_0"] = listed([best(losses, key) for key in keys(KINDS[:1])])
    return found | _rounds(losses) | _one_setting(losses) | _choices(tried)


def _rounds(losses: pd.DataFrame) -> dict[str, object]:
    """Return how far systems with rounds are from the best and from each other where all workers are alike."""
    gaps, ranges = list[float](), list[float]()
    for key in keys(KINDS[:1], WIDE):
        own = [_end(losses, key, system) for system in ROUNDS]
        gaps.append(max(own) - _end(losses, key, best(losses, key)))
        ranges.append(max(own) - min(own))
    return {"rounds_gap": f"{max(gaps):.3f}", "rounds_range": f"{max(ranges):.3f}"}


def _one_setting(losses: pd.DataFrame) -> dict[str, object]:
    """Return the system with the least mean loss with one setting, that loss, and its mean loss with tuned settings."""
    tuned = list(keys(KINDS[:2], WIDE))
    ones = {system: _mean(losses, [key._replace(way="one setting") for key in tuned], system) for system in SYSTEMS}
    first = min(ones, key=ones.__getitem__)
    return {"one_best": first, "one_loss": f"{ones[first]:.3f}", "one_tuned": f"{_mean(losses, tuned, first):.3f}"}


def _choices(tried: pd.DataFrame) -> dict[str, object]:
    """Return how often each momentum was chosen, and how often a knob's least or largest value."""
    found: dict[str, object] = {}
    twice = (tried["workers"] == "alike") & tried["system"].isin([name for name, own in SYSTEMS.items() if own.if_alike])
    chosen = tried[tried["chosen"] & ~twice]
    with_momentum = chosen[chosen["system"].isin([name for name, own in SYSTEMS.items() if "outer" in own.knobs])]
    found["choices_momentum"] = len(with_momentum)
    counts = with_momentum["momentum"].value_counts()
    found |= {f"momentum_{mu * 10:g}": int(counts.get(mu, 0)) for mu in (0.0, 0.5, 0.9)}
    found["tuned_cases"] = len(list(keys(KINDS[:2])))
    found["edit_plain"] = int((chosen[chosen["system"] == "a-edit"]["temperature"] > 1).sum())
    edges = [set(str(each).split()) for each in chosen["edges"].fillna("")]
    found |= {"choices": len(chosen), "at_edges": sum(map(bool, edges))}
    found["without_momentum"] = int(
        sum(zero and bool(own & _OF_MOMENTUM) for zero, own in zip(chosen["momentum"] == 0, edges, strict=True))
    )
    found["rates_at_edges"] = sum("rate" in each for each in edges)
    periods = chosen[[bool(own & {"period", "every"}) for own in edges]]
    longest = (periods["period"] == max(PERIODS)) | (periods["every"] == max(TIMES))
    return found | {"longest_periods": int(longest.sum()), "shortest_periods": int((~longest).sum())}


def listed(words: Sequence[str]) -> str:
    """Return the words as a list in a sentence.

    >>> listed(["0.1", "0.2", "0.3"])
    '0.1, 0.2 and 0.3'
    """
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _end(losses: pd.DataFrame, key: Key, system: str) -> float:
    return float(ends(losses, key, system).mean())


def _mean(losses: pd.DataFrame, some: Sequence[Key], system: str) -> float:
    return sum(_end(losses, key, system) for key in some) / len(some)
