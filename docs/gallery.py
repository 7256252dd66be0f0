"""The pictures of the gallery, from short runs of scenarios that come with FRED. `make images` draws them.

`python docs/gallery.py [NAME ...]` draws some of them, or all.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import fred
from fred.views.pictures import drawable
from fred.views.view import View

IMAGES = Path(__file__).parent / "images"
_INCHES = 2.9  # of a card of the page, so that letters of 7 points are as large as the page's small print


class Drawn(NamedTuple):
    """A picture: its scenario, its figure, and its changes to the scenario.

    Args:
        scenario: name of a scenario.
        figure: name of a figure of its result.
        runs: the runs that are drawn; empty: all.
        settings: overrides as after `--set`.
        against: horizontal axis of curves.
        workers: the workers on a timeline; None: all.
    """

    scenario: str
    figure: str
    runs: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    against: str = "seconds"
    workers: tuple[int, ...] | None = None


_TIMING = ("task=null", "evaluate={}")  # for clusters in which the size of the model does not matter
PICTURES = {
    "ssgd": Drawn(
        "systems/ssgd",
        "timeline",
        ("all-18", "backup-2"),
        ("seeds=[1]", "stop={seconds: 5}"),
        workers=(2, 5, 8, 11, 14, 17),
    ),
    "cutoff-sgd": Drawn("systems/cutoff-sgd", "pace", ("all", "elfving", "dmm"), (*_TIMING, "seeds=[1]")),
    "quickstart-asgd": Drawn("quickstart", "staleness", ("asgd",), _TIMING),
    "ringmaster": Drawn("systems/ringmaster", "workers-time", (), (*_TIMING, "seeds=[1]")),
    "learning-rates": Drawn("learning-rates", "sweep", (), ("seeds=[1]",)),
    "delays": Drawn("systems/delays", "error", ("asgd", "delay-adaptive", "clipped", "picky"), ("seeds=[1]",), "updates"),
    "pipelines": Drawn("systems/pipelines", "error", (), ("seeds=[1]",), "updates"),
    "diloco": Drawn(
        "systems/diloco",
        "timeline",
        ("allreduce", "diloco", "streaming"),
        ("seeds=[1]", "stop={seconds: 10}"),
        workers=(0, 1, 2, 3),
    ),
    "d-psgd": Drawn("systems/d-psgd", "disagreement", (), ("seeds=[1]", "stop={updates: 800}"), "updates"),
    "local-sgd": Drawn("systems/local-sgd", "workers-time", (), ("seeds=[1]",)),
    "clients": Drawn("systems/clients", "error", ("all-100", "spare-30", "deadline"), ("seeds=[1]",)),
    "codecs": Drawn("systems/codecs", "error", ("as-it-is", "sign", "sign-feedback", "top-k-feedback"), ("seeds=[1]",)),
    "cost": Drawn("cost", "cost", (), ("seeds=[1]",)),
    "faults": Drawn("systems/faults", "pace", ("wait-for-all", "two-backups", "asynchronous"), (*_TIMING, "seeds=[1]")),
}


@dataclass(frozen=True)
class _Card(View):
    """A view that fits a card of the page."""

    @property
    def inches(self) -> float:
        """Return the width of a card."""
        return _INCHES


def draw(name: str, folder: Path = IMAGES) -> Path:
    """Draw a picture from runs of its own, and return its file.

    Args:
        name: its name in `PICTURES`.
        folder: an existing folder.
    """
    each, file = PICTURES[name], folder / f"gallery-{name}.svg"
    result = fred.run(fred.load(each.scenario, each.settings), each.runs)
    view = _Card(width="one", against=(each.against,), workers=each.workers)
    drawable(result, view)[each.figure]().save(file)
    return file


if __name__ == "__main__":
    wanted = sys.argv[1:] or [*PICTURES]
    if unknown := [name for name in wanted if name not in PICTURES]:
        sys.exit(f"no picture {', '.join(unknown)}; there are {', '.join(PICTURES)}")
    for name in wanted:
        draw(name)
