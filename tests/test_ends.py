"""The end of a run: the same in a replay and inline, and the limit that it reports."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fred.commands import printing
from fred.outcomes.outcome import Outcome, summarise
from fred.results import experiment
from fred.running.execution import execute
from fred.specification.loading import Scenario
from tests.worlds import COMPUTE, make_run, same_outcome

EQUAL = {"workers": 2, "compute": {"name": "constant", "seconds": 1.0}}  # every update at a multiple of many spacings
SINGLE = {**EQUAL, "workers": 1}
UNEVEN = {"workers": 3, "compute": {**COMPUTE, "median": 1.0}}
CADENCES = st.one_of(
    st.fixed_dictionaries({"every_updates": st.integers(1, 9)}),
    st.fixed_dictionaries({"every_gradients": st.integers(1, 9)}),
    st.fixed_dictionaries({"every_seconds": st.sampled_from([0.2, 0.25, 0.7, 1.0, 1.5, 3.0, 40.0])}),
    st.fixed_dictionaries({"points": st.integers(1, 12)}),
)
SECONDS = st.sampled_from([0.5, 1.0, 2.5, 4.0, 6.1, 7.0])
LIMITS = {"updates": st.integers(1, 12), "gradients": st.integers(1, 20), "seconds": SECONDS}


def run_both_ways(cluster: dict[str, Any], **options: Any) -> tuple[Outcome, Outcome]:
    run = make_run(options.pop("algorithm", "asgd"), cluster=cluster, **options)
    return execute("run", run, 3), execute("run", run, 3, inline=True)


def end_of(outcome: Outcome) -> tuple[float, int]:
    return summarise(outcome)["virtual_seconds"], outcome.schedule.counts()["updates"]


@pytest.mark.slow
@settings(max_examples=12)
@given(
    st.sampled_from(["asgd", "asgd", "ssgd", "d-psgd"]),
    st.sampled_from([EQUAL, SINGLE, UNEVEN]),
    CADENCES,
    st.fixed_dictionaries({}, optional=LIMITS).filter(bool),
    st.integers(0, 12),
)
def test_a_run_with_a_target_is_the_whole_run_up_to_the_first_point_that_reaches_it(
    algorithm, cluster, evaluate, limits, where
):
    if algorithm == "d-psgd":
        cluster = UNEVEN
    full, inline = run_both_ways(cluster, algorithm=algorithm, evaluate=evaluate, stop=limits)
    assert same_outcome(full, inline)
    losses = full.metrics["loss"].tolist()
    target = {0: 100.0, 1: 1e-9}.get(where, losses[where % len(losses)])  # at once, never, or somewhere
    first = next((number for number, loss in enumerate(losses) if number > 0 and loss <= target), len(losses) - 1)
    replayed, inline = run_both_ways(cluster, algorithm=algorithm, evaluate=evaluate, stop={**limits, "target_loss": target})
    assert replayed.metrics.equals(full.metrics[: first + 1])
    assert same_outcome(replayed, inline)
    assert summarise(replayed) == summarise(inline)
    if first < len(losses) - 1:
        assert end_of(replayed)[0] == replayed.metrics["virtual_seconds"].iloc[-1]
    elif target < min(losses[1:], default=math.inf):
        assert replayed.schedule.digest() == full.schedule.digest()


BY_HAND: list[tuple[Any, Any, tuple[float, int]]] = [  # an update each second, and a target that is reached at the first look
    ({"every_updates": 2}, {"seconds": 2.5}, (2.0, 2)),  # though no other update comes before the time is over
    ({"every_seconds": 1.0}, {"seconds": 2.5}, (1.0, 0)),  # just before the update at 1 s
    ({"every_seconds": 1.2}, {"seconds": 1.9}, (1.2, 1)),  # at a moment after which nothing happens
    ({"every_seconds": 1.0}, {"updates": 1}, (1.0, 1)),  # the end itself, after its update
    ({"every_seconds": 1.0}, {"seconds": 1.0}, (1.0, 0)),
    ({"every_updates": 9}, {"seconds": 2.5}, (2.5, 2)),
    ({"every_seconds": 1e-9}, {"seconds": 1e-6}, (1e-9, 0)),  # each moment
]


def test_a_run_ends_at_the_first_look_that_finds_its_target_reached():
    for evaluate, stop, end in BY_HAND:
        replayed, inline = run_both_ways(SINGLE, evaluate=evaluate, stop={**stop, "target_loss": 100.0})
        assert end_of(replayed) == end_of(inline) == end, (evaluate, stop)
        assert same_outcome(replayed, inline), (evaluate, stop)


LOOKS = {"evaluate": {"every_updates": 2}}
ENDS: list[tuple[dict[str, Any], str]] = [
    ({"stop": {"updates": 3, "seconds": 9.0}, "task": None}, "updates"),
    ({"stop": {"updates": 30, "seconds": 2.5}, "task": None}, "seconds"),
    ({"stop": {"updates": 30, "gradients": 2}, "task": None}, "gradients"),
    ({"stop": {"updates": 2, "gradients": 2}, "task": None}, "updates"),
    ({"stop": {"updates": 5, "target_loss": 100.0}, **LOOKS}, "target_loss"),
    ({"stop": {"seconds": 2.5, "target_loss": 100.0}, **LOOKS}, "target_loss"),
    ({"stop": {"updates": 5, "target_loss": 1e-9}}, "updates"),
    (
        {
            "stop": {"seconds": 9.0},
            "cluster": {**SINGLE, "faults": [{"name": "outage", "workers": [0], "begin": 2.5}]},
            "task": None,
        },
        "standstill",
    ),
]


def test_the_summary_says_which_limit_ended_a_run():
    for options, limit in ENDS:
        run = make_run(**{"cluster": SINGLE, **options})
        assert {summarise(execute("run", run, 3, inline))["ended_by"] for inline in (False, True)} == {limit}, options


def print_runs(runs: dict[str, Any], capsys: pytest.CaptureFixture, seeds: tuple[int, ...] = (0,)) -> list[list[str]]:
    runs_of = {name: make_run(task=None, **options) for name, options in runs.items()}
    capsys.readouterr()
    printing.print_summary(experiment.run(Scenario(seeds=seeds, runs=runs_of)), Path("here"))
    lines = [re.split(r"  +", line.strip()) for line in capsys.readouterr().out.splitlines()]
    return [cells for cells in lines if cells[0] in ("run", *runs)]


def test_the_limit_is_printed_where_there_is_more_than_one_and_counted_where_seeds_differ(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    second = {"stop": {"seconds": 2.0}, "cluster": SINGLE}
    header, *rows = print_runs({"sooner": {"stop": {"updates": 3, "seconds": 9.0}, "cluster": SINGLE}, "later": second}, capsys)
    assert [cells[header.index("ended by")] for cells in rows] == ["updates", "seconds"]
    assert all("ended by" not in cells for cells in print_runs({"later": second}, capsys))
    random = {"cluster": {**UNEVEN, "workers": 1}, "stop": {"updates": 9}}
    ends = [execute("run", make_run(task=None, **random), seed).summary["virtual_seconds"] for seed in (1, 2, 3)]
    seeds = tuple(seed for _, seed in sorted(zip(ends, (1, 2, 3), strict=True)))
    limit = {"updates": 9, "seconds": sum(sorted(ends)[1:]) / 2}
    header, cells = print_runs({"random": {**random, "stop": limit}}, capsys, seeds)
    assert cells[header.index("ended by")] == "updates (2), seconds (1)"
