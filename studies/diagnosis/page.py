"""The page of the study, made from its table."""

from pathlib import Path

import pandas as pd

from fred.diagnosis.findings import CANNOT_TELL, LITTLE_GAIN, SAVES, SAVES_LITTLE
from fred.diagnosis.remedies import RULE
from studies.diagnosis.clusters import ROUNDS, WORKERS
from studies.diagnosis.measure import FOUND

PAGE = FOUND.with_suffix(".md")
_TEMPLATE = Path(__file__).with_name("page.md")


def wrong(found: pd.DataFrame) -> "pd.Series[bool]":
    """Return which verdicts are wrong: time is said to be saved and is not, or little, and it is more than that.

    Args:
        found: a row for each trace.
    """
    saves = (found["verdict"] == SAVES) & (found["true"] <= 1)
    return saves | ((found["verdict"] == SAVES_LITTLE) & (found["true"] >= LITTLE_GAIN))


def text(found: pd.DataFrame) -> str:
    """Return the page.

    Args:
        found: a row for each trace.
    """
    spells, steady = found[found["spells"]], found[~found["spells"]]
    rows = [_row(own, _name(own.iloc[0])) for _, own in spells.groupby("cluster")]
    rows.append(_row(spells, "**all with spells**"))
    seen = spells[spells["seen"] > 0]
    rows.append(_row(seen, "those with a spell in the record"))
    rows += [_row(steady, "without spells")] if len(steady) else []
    numbers = {"number": len(spells), "clusters": spells["cluster"].nunique(), "rounds": ROUNDS, "workers": WORKERS}
    return _TEMPLATE.read_text(encoding="utf-8").format(**numbers, rule=RULE, table="\n".join(rows))


def _name(first: "pd.Series") -> str:
    return f"{first['who']}, {first['times']:.1f} times slower, every {first['cycle']:.0f} rounds"


def _row(own: pd.DataFrame, name: str) -> str:
    inside = (own["low"] <= own["true"]) & (own["true"] <= own["high"])
    above = own["true"] > own["high"]
    cells = (
        name,
        str(len(own)),
        f"{100 * (own['true'].mean() - 1):+.1f} %",
        f"{100 * (own[RULE].mean() - 1):+.1f} %",
        f"{inside.mean():.1%}",
        f"{above.mean():.1%}",
        f"{(own['verdict'] == SAVES).mean():.0%}",
        f"{(own['verdict'] == SAVES_LITTLE).mean():.0%}",
        f"{(own['verdict'] == CANNOT_TELL).mean():.0%}",
        f"{wrong(own).mean():.1%}",
    )
    return f"| {' | '.join(cells)} |"
