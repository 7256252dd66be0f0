"""A study: its files, its command, and its page."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fred.views.figures import Picture
from reproductions.common import ROOT, fill, store, write_page

Tables = Mapping[str, pd.DataFrame]  # measured ones, by the ends of their names


@dataclass(frozen=True)
class Study:
    """A question, the tables that were measured to answer it, and the page that is made of them.

    Args:
        name: of the study's folder; with hyphens, of its results.
        question: title of the page.
        tables: ends of the names of the measured tables; "" is `NAME.csv`, "tuning" is `NAME-tuning.csv`.
        core_hours: time of all measurements on one core, where it was not recorded.
        root: of the repository; tests have others.
    """

    name: str
    question: str
    tables: tuple[str, ...] = ("",)
    core_hours: float | None = None
    root: Path = ROOT

    def path(self, end: str = "", suffix: str = ".csv") -> Path:
        """Return the path of a result.

        Args:
            end: of the name.
            suffix: of the file.

        >>> Study("outer_momentum", "?").path("tuning").name
        'outer-momentum-tuning.csv'
        """
        return self.root / "results" / "studies" / f"{'-'.join(filter(None, (self.name.replace('_', '-'), end)))}{suffix}"

    @property
    def page(self) -> Path:
        """Return the path of the page."""
        return self.path(suffix=".md")

    @property
    def folder(self) -> Path:
        """Return the folder of unfinished parts, which no commit holds."""
        return self.root / "results" / self.name.replace("_", "-")

    @property
    def measured(self) -> bool:
        """Return True if all tables exist."""
        return all(self.path(end).is_file() for end in self.tables)

    def write(self, end: str, table: pd.DataFrame) -> None:
        """Write a measured table.

        Args:
            end: of its name.
            table: rows.
        """
        store(self.path(end), table)

    def read_tables(self) -> dict[str, pd.DataFrame]:
        """Return the measured tables, by the ends of their names."""
        return {end: read_table(self.path(end)) for end in self.tables}

    def fill(self, parts: Mapping[str, object]) -> str:
        """Return the page: `page.md` of the study's folder with these tables and numbers.

        Args:
            parts: by the names that `page.md` has in braces.
        """
        return fill(ROOT / "studies" / self.name / "page.md", question=self.question, **parts)

    def run(
        self,
        measure: Callable[[], object],
        text: Callable[[Tables], str],
        draw: Callable[[Tables], Picture] | None = None,
    ) -> None:
        """Run the study's command: measure, unless only the page is wanted; then write the figure and the page.

        Args:
            measure: makes all measurements.
            text: returns the page.
            draw: returns the figure.
        """
        parser = argparse.ArgumentParser(prog=f"python -m studies.{self.name}", description=self.question)
        parser.add_argument("--report", action="store_true", help="measure nothing: the page from the last measurements")
        if not parser.parse_args().report:
            measure()
        tables = self.read_tables()
        if draw:
            draw(tables).save(self.path(suffix=".svg"))
        print(f"wrote {write_page(self.page, text(tables))}")


def read_table(path: Path) -> pd.DataFrame:
    """Read a measured table; no edge is an empty string, no number a NaN.

    Args:
        path: of the file.
    """
    table = pd.read_csv(path)
    return table.assign(edges=table["edges"].astype(object).fillna("")) if "edges" in table else table
