"""Tables in a terminal: at every width no number is cut, no line is too long, and each row keeps its own cells."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fred.views.table import Cell, Table, show

NUMBERS = st.one_of(
    st.floats(-1e6, 1e6).map("{:,.4g}".format),
    st.integers(0, 10**6).map("{:,}".format),
    st.tuples(st.integers(0, 99), st.integers(0, 9), st.integers(0, 99)).map(lambda n: f"{n[0]} ({n[1]} to {n[2]})"),
)


@st.composite
def tables(draw) -> Table:
    columns, rows = draw(st.integers(1, 14)), draw(st.integers(1, 12))
    headings = [
        "run",
        *(
            draw(
                st.sampled_from(
                    ["loss", "gradients per second", "to target", "a-run-with-a-name-of-fifty-six-letters-as-a-sweep-has-them"]
                )
            )
            for _ in range(columns)
        ),
    ]
    return Table(
        headings, [[f"run-{row}", *(draw(NUMBERS) for _ in range(columns))] for row in range(rows)], "a title", "a caption"
    )


@given(tables(), st.integers(40, 140))
def test_no_number_is_cut_at_any_width(table, width):
    text = shown(table, width)
    assert max(map(len, text.splitlines())) <= width
    for row in table.cells:
        assert row[0].text in text
        for cell in row[1:]:
            for part in cell.text.replace(" (", "\n(").split("\n"):
                assert re.search(rf"(^|\s){re.escape(part)}(\s|$)", text), (part, text)


def test_it_takes_the_first_form_that_fits():
    table = Table(["run", "gradients per second", "loss"], [["a", "12.5 (11.5 to 13.5)", "0.1"], ["b", "9", "0.2"]])
    assert [len(lines(table, width)) for width in (60, 32, 26)] == [4, 4, 6], "whole; intervals below; headings, too"
    assert lines(table, 32)[0].split() == ["run", "gradients", "per", "second", "loss"]
    few = Table(["run", *(f"column {i}" for i in range(9))], [[name, *(f"{i}.25" for i in range(9))] for name in "ab"])
    turned = lines(few, 40)
    assert turned[0].split() == ["run", "a", "b"]
    assert turned[2].split() == ["column", "0", "0.25", "0.25"]
    many = Table(few.columns, [[str(row), *(f"{i}.25" for i in range(9))] for row in range(20)])
    assert [line.split()[0] for line in lines(many, 40)].count("7") == 3, "in three parts, all with the names"


def test_what_stands_out_is_bold_only_in_a_terminal():
    table = Table(["run", "loss"], [["a", Cell("0.1", strong=True)]])
    console = Console(width=60, force_terminal=True, color_system="standard")
    with console.capture() as captured:
        show(table, console)
    assert re.search(r"\x1b\[1m *0\.1\x1b\[0m", captured.get())
    assert "\x1b" not in shown(table, 60)


@pytest.mark.parametrize(("cells", "kept"), [(("a", "-"), ["run", "one", "two"]), (("–", ""), ["run", "two"])])
def test_columns_without_anything_are_left_out(cells, kept):
    table = Table(["run", "one", "two"], [["a", cells[0], "1"], ["b", cells[1], "2"]]).without_empty()
    assert list(table.columns) == kept


def test_the_name_of_a_run_is_broken_after_a_comma():
    turned = lines(Table(["run", *"abcdefgh"], [["asgd,learning_rate=0.001", *("0.25" for _ in range(8))]]), 40)
    assert [line.split()[-1] for line in turned[:2]] == ["asgd,", "learning_rate=0.001"]


def shown(table: Table, width: int) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        show(table, console)
    return captured.get()


def lines(table: Table, width: int) -> list[str]:
    return [line for line in shown(table, width).splitlines() if line.strip()]
