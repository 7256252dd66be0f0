"""The page and its figure, from the losses that were measured."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from fred.base.intervals import Mean, Verdict
from reproductions.common import table
from studies.low_communication.cases import HERE, LEARNERS, NARROW, availability, heard, heard_without_failures
from studies.low_communication.claims import CLAIMS
from studies.low_communication.compared import KINDS, MARGIN, Key, above, against, beside, best, ends, final, keys
from studies.low_communication.facts import facts
from studies.low_communication.figure import draw
from studies.low_communication.measure import GOODPUT, KEPT, LOSSES, POINTS, ROOT, TRIED
from studies.low_communication.systems import SYSTEMS

QUESTION = "Which low-communication system where?"
PAGE, FIGURE = LOSSES.with_suffix(".md"), LOSSES.with_suffix(".svg")
_OF_GOODPUT = (
    "learners",
    "each there, closed form",
    "measured",
    "heard of without failures, closed form",
    "measured",
    "heard of with failures, closed form",
    "measured",
    "loss without failures",
    "with",
)


def write() -> str:
    """Write the figure and the page; return its path, from the repository on."""
    losses = pd.read_csv(LOSSES)
    draw(above(losses)).save(FIGURE)
    PAGE.write_text(text(losses, pd.read_csv(TRIED), pd.read_csv(GOODPUT)), encoding="utf-8")
    return str(PAGE.relative_to(ROOT))


def text(losses: pd.DataFrame, tried: pd.DataFrame, goodput: pd.DataFrame) -> str:
    """Return the page.

    Args:
        losses: one row for each case, system, seed and time.
        tried: one row for each case, system and point that was tried.
        goodput: one row for each run and seed.
    """
    losses = final(above(losses))
    tables = {
        "home": table(("Mbit/s", "workers", "best", "loss", "as good", "open", "one setting for all"), home_rows(losses)),
        "claims": table(("the papers' claim", "arXiv", *Verdict, "here"), claim_rows(losses)),
        "systems": table(("system", "idea", "knobs"), system_rows()),
        "momenta": table(("system", *(f"{key.megabits:,}, {key.workers}" for key in keys(KINDS[:2]))), momentum_rows(tried)),
        "goodput": table(_OF_GOODPUT, goodput_rows(goodput)),
    }
    for number, kind in enumerate(KINDS):
        tables |= {
            f"losses_{number}": table(("system", *_widths(kind)), loss_rows(losses, kind)),
            f"differences_{number}": table(("system", *_widths(kind)), difference_rows(losses, kind)),
        }
    for number, workers in enumerate(("alike", "one slow")):
        tables[f"settings_{number}"] = table(("system", *_widths((workers, "tuned"))), setting_rows(tried, workers))
    numbers: dict[str, object] = {"margin": MARGIN, "points": POINTS, "kept": KEPT}
    return (HERE / "page.md").read_text(encoding="utf-8").format(**tables, **numbers, **facts(losses, tried))


def _widths(kind: tuple[str, str]) -> list[str]:
    return [f"{key.megabits:,}" for key in keys([kind])]


def home_rows(losses: pd.DataFrame) -> Iterator[list[object]]:
    """Yield for each case which system to choose.

    Args:
        losses: as `final` returns them; on bigrams above the least possible loss.
    """
    for key in keys():
        first, verdicts = best(losses, key), beside(losses, key)
        others = [", ".join(each for each in verdicts if verdicts[each] == one) for one in (Verdict.YES, Verdict.OPEN)]
        found = f"{ends(losses, key, first).mean():.3f}"
        yield [f"{key.megabits:,}", key.said, f"**{first}**", found, *(names or "none" for names in others), _one(losses, key)]


def _one(losses: pd.DataFrame, key: Key) -> str:
    """Return the system that is best with one setting for all cases, and its loss."""
    if key.way == "unforeseen" or key.megabits == NARROW:
        return "–"
    same = key._replace(way="one setting")
    first = best(losses, same)
    return f"{first}, {ends(losses, same, first).mean():.3f}"


def claim_rows(losses: pd.DataFrame) -> Iterator[list[object]]:
    """Yield for each claim in how many cases it holds, does not hold, or is open.

    Args:
        losses: as above.
    """
    for claim in CLAIMS:
        verdicts = claim.verdicts(losses)
        counts = [verdicts.count(each) for each in Verdict]
        yield [f"{claim.says} ({claim.system} / {claim.other})", claim.paper, *counts, claim.judged(verdicts)]


def system_rows() -> Iterator[list[object]]:
    """Yield each system's idea and its knobs."""
    for name, system in SYSTEMS.items():
        yield [f"`{name}`", system.about, "; ".join(f"{knob} {_values(own)}" for knob, own in system.knobs.items())]


def _values(values: Sequence[object]) -> str:
    if len(values) > 5:
        return f"{values[0]:g} to {values[-1]:g}"
    return ", ".join(_said(each) for each in values)


def _said(value: object) -> str:
    return " / ".join(f"{each:g}" for each in value) if isinstance(value, tuple) else f"{value:g}"


def difference_rows(losses: pd.DataFrame, kind: tuple[str, str]) -> Iterator[list[object]]:
    """Yield each system's loss less DiLoCo's at all bandwidths.

    Args:
        losses: as above.
        kind: workers, and how settings were chosen.
    """
    for system in SYSTEMS:
        if system != "diloco":
            yield [system, *(each.said() for each in against(losses, system, "diloco", keys([kind])).values())]


def loss_rows(losses: pd.DataFrame, kind: tuple[str, str]) -> Iterator[list[object]]:
    """Yield each system's loss at all bandwidths, and that with one setting for all cases.

    Args:
        losses: as above.
        kind: workers, and how settings were chosen.
    """
    for system, own in SYSTEMS.items():
        yield [system, *(_loss(losses, key, system, "loss") for key in keys([kind]))]
        if own.own_models:
            yield [f"{system}, mean model", *(_loss(losses, key, system, "mean_loss") for key in keys([kind]))]


def _loss(losses: pd.DataFrame, key: Key, system: str, column: str) -> str:
    found = f"{ends(losses, key, system, column).mean():.3f}"
    if key.way == "unforeseen" or key.megabits == NARROW:
        return found
    return f"{found} / {ends(losses, key._replace(way='one setting'), system, column).mean():.3f}"


def momentum_rows(tried: pd.DataFrame) -> Iterator[list[object]]:
    """Yield for each system with an outer momentum what the best point of each momentum has more than the best of all.

    Args:
        tried: one row for each case, system and point that was tried.
    """
    for system, known in SYSTEMS.items():
        if "outer" in known.knobs and not known.if_alike:
            own = tried[tried["system"] == system]
            yield [system, *(_by_momentum(own, key) for key in keys(KINDS[:2]))]


def _by_momentum(own: pd.DataFrame, key: Key) -> str:
    case = own[(own["workers"] == key.workers) & (own["megabits"] == key.megabits)]
    least = case.groupby("momentum")["first_loss"].min()
    return " / ".join(f"{each:.3f}" for each in least - least.min())


def setting_rows(tried: pd.DataFrame, workers: str) -> Iterator[list[object]]:
    """Yield each system's chosen setting, with the knobs whose least or largest value it has.

    Args:
        tried: one row for each case, system and point that was tried.
        workers: `alike` or `one slow`.
    """
    chosen = tried[tried["chosen"] & (tried["workers"] == workers)]
    cells = {(row["system"], row["megabits"]): _setting(row) for row in chosen.to_dict("records")}
    for system in SYSTEMS:
        yield [system, *(cells[system, key.megabits] for key in keys([(workers, "tuned")]))]


_KNOBS = ("rate", "period", "every", "momentum", "outer_rate", "memory", "kept", "temperature", "longest")


def _setting(row: Mapping[Hashable, Any]) -> str:
    edges = row["edges"].split() if isinstance(row["edges"], str) else []
    at_end = {"momentum" if edge == "outer" else edge for edge in edges}
    return " / ".join(f"{row[knob]:g}" + "\\*" * (knob in at_end) for knob in _KNOBS if pd.notna(row[knob]))


def goodput_rows(goodput: pd.DataFrame) -> Iterator[list[object]]:
    """Yield the goodput of the same chips in 1 to 8 learners: shares of the gradients made without failures.

    Args:
        goodput: one row for each run and seed.
    """
    runs = {str(name): own.sort_values("seed") for name, own in goodput.groupby("name")}
    for learners in LEARNERS:
        usual, failing = runs[f"{learners}-learners"], runs[f"{learners}-learners-failing"]
        made, *known = (
            _share(own[column], usual["gradients_applied"])
            for own, column in ((failing, "gradients_applied"), (usual, "heard"), (failing, "heard"))
        )
        closed = [f"{share(learners):.3f}" for share in (heard_without_failures, heard)]
        loss = [f"{own['loss'].mean():.3f}" for own in (usual, failing)]
        yield [learners, f"{availability(learners):.3f}", made, closed[0], known[0], closed[1], known[1], *loss]


def _share(own: "pd.Series[float]", of: "pd.Series[float]") -> str:
    shares = own.to_numpy(float) / of.to_numpy(float)
    low, high = Mean.estimate(shares).interval()
    return f"{shares.mean():.3f} ({low:.3f} to {high:.3f})"
