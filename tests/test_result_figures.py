"""A result's figures are the same files whoever draws them, and all there whatever becomes of the others."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

import fred
from fred.results import figure_files
from fred.results.result import Result
from fred.running import pool
from fred.views.figures import FORMATS, Picture
from tests.worlds import TASK

pytestmark = pytest.mark.slow

CLUSTER = {"workers": 3, "compute": {"name": "exponential", "scale": 0.1}, "network": {"bandwidth": 1e6}}
SETTINGS: dict[str, Any] = {
    "cluster": CLUSTER,
    "stop": {"gradients": 60},
    "seeds": [1, 2],
    "task": TASK,
    "evaluate": {"points": 4},
}
RATES = {"over": {"algorithm.learning_rate": [0.01, 0.1]}, "best": "loss"}


@pytest.fixture(scope="module", params=["runs", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("sweep", "peers"))])
def result(request: pytest.FixtureRequest) -> Result:
    own: dict[str, Any]
    if request.param == "runs":
        own = {"runs": {name: {"algorithm": {"name": name, "learning_rate": 0.1}} for name in ("asgd", "ssgd")}}
    elif request.param == "sweep":
        own = {"algorithm": {"name": "asgd"}, "sweep": RATES}
    else:
        own = {"algorithm": {"name": "ad-psgd", "learning_rate": 0.1}}
    return fred.run(fred.scenario({**SETTINGS, **own}))


@pytest.fixture
def another() -> Iterator[None]:
    """One process is there beside this one."""
    pool.end()
    with pool.ended():
        pool.begin(1)
        yield


def drawn(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture
def alone(result: Result, tmp_path: Path) -> dict[str, bytes]:
    """Return the files of one process that saves one picture after the other."""
    (tmp_path / "alone").mkdir()
    for name, draw in result.pictures().items():
        draw().save(tmp_path / "alone" / f"{name}.svg")
    return drawn(tmp_path / "alone")


def test_another_process_draws_the_same(result, alone, another, tmp_path):
    folder = tmp_path / "figures"
    folder.mkdir()
    [other] = pool.submit(figure_files._taken, [(result, folder, 0.0)])
    assert sorted(other.result()) == sorted(result.pictures())
    assert drawn(folder) == alone


def wait_for_one(folder: Path) -> None:
    """Until somebody else has begun to draw."""
    deadline = time.monotonic() + 60
    while not drawn(folder):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_who_draws_beside_is_waited_for(result, alone, another, tmp_path, monkeypatch):
    monkeypatch.setattr(figure_files, "_same_everywhere", lambda result: True)
    pool.submit(os.getpid, [()])[0].result()  # it is alive
    assert pool.number() == 1
    with figure_files.drawn(result, tmp_path / "figures"):
        wait_for_one(tmp_path / "figures")
    assert drawn(tmp_path / "figures") == alone


def test_nobody_draws_on_where_something_goes_wrong_meanwhile(result, another, tmp_path, monkeypatch):
    monkeypatch.setattr(figure_files, "_same_everywhere", lambda result: True)
    pool.submit(os.getpid, [()])[0].result()

    def fail() -> None:
        with figure_files.drawn(result, tmp_path / "figures"):
            wait_for_one(tmp_path / "figures")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    number = len(drawn(tmp_path / "figures"))
    time.sleep(0.5)  # in which it would draw some more
    assert len(drawn(tmp_path / "figures")) == number


def test_a_picture_that_somebody_has_begun_is_left_to_him(result, tmp_path):
    [first, *others] = result.pictures()
    (tmp_path / f"{first}.svg").write_text("begun")
    assert sorted(figure_files._taken(result, tmp_path, 0.5)) == sorted(others)
    assert (tmp_path / f"{first}.svg").read_text() == "begun"


def test_two_begin_apart(result, tmp_path):
    names = [*result.pictures()]
    firsts = []
    for share in (0.0, 0.5, 1.0):
        folder = tmp_path / str(share)
        folder.mkdir()
        firsts.append(figure_files._taken(result, folder, share)[0])
    assert firsts == [names[0], names[round(len(names) / 2)], names[-1]]


@pytest.mark.parametrize("end", ["dies", "waits", "has drawn"])
def test_whatever_becomes_of_another_all_are_drawn(result, alone, tmp_path, monkeypatch, end):
    folder, other = tmp_path / "figures", Future[list[str]]()
    [first, *_] = result.pictures()

    def told(*_: Any) -> list[Future[list[str]]]:
        if end == "waits":
            return [other]
        other.set_running_or_notify_cancel()
        (folder / f"{first}.svg").write_bytes(alone[f"{first}.svg"] if end == "has drawn" else b"half")
        other.set_result([first]) if end == "has drawn" else other.set_exception(RuntimeError("killed"))
        return [other]

    monkeypatch.setattr(pool, "submit", told)
    monkeypatch.setattr(figure_files, "_same_everywhere", lambda result: True)
    with figure_files.drawn(result, folder):
        pass
    assert drawn(folder) == alone


def test_where_matplotlib_has_been_told_how_things_look_nobody_else_draws(result, another, tmp_path, monkeypatch):
    """As it may have been wherever it is loaded, which it is here."""
    told = list[Any]()
    monkeypatch.setattr(pool, "submit", lambda do, arguments: [*map(told.append, arguments)])
    with figure_files.drawn(result, tmp_path / "figures"):
        pass
    assert not told


@pytest.mark.parametrize("ending", FORMATS)
def test_a_picture_is_laid_out_once_and_is_what_it_would_be_if_it_were_drawn_twice(result, tmp_path, monkeypatch, ending):
    once, twice = tmp_path / f"once.{ending}", tmp_path / f"twice.{ending}"
    for draw in result.pictures().values():
        draw().save(once)
        with monkeypatch.context() as patched:
            patched.setattr(Picture, "draw", Figure.draw)
            draw().save(twice)
        assert once.read_bytes() == twice.read_bytes()
