"""Shortened scenarios that come with FRED, compared with pins by FRED's plugin for pytest, as in a user's project."""

import json

import pytest

import fred
from tests.golden import GOLDEN, SCENARIOS, SHORTENED, names
from tests.worlds import mostly_slow

PINNED = [name for name in names() if name.rpartition("/")[0] in SHORTENED]


@pytest.mark.parametrize("name", mostly_slow(PINNED, ["quickstart/fasgd"]))
def test_a_shortened_run_is_the_pinned_one(fred_pin, name):
    scenario, _, run = name.rpartition("/")
    fred_pin(fred.run(fred.load(SCENARIOS / f"{scenario}.yaml", SHORTENED[scenario][0]), only=run))


@pytest.mark.parametrize("name", PINNED)
def test_a_pin_holds_the_digests_that_are_compared_on_other_cpus(request, name):
    file = (
        request.path.parent / "pins" / f"test_shortened.test_a_shortened_run_is_the_pinned_one[{name.replace('/', '%2F')}].json"
    )
    pinned = json.loads(file.read_text(encoding="utf-8"))["runs"].values()
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))["digests"][name]
    assert [(pin["schedule"], pin["params"]) for pin in pinned] == [(golden["schedule"][:16], golden["params"][:16])]
