"""Wait-avoiding group model averaging SGD [Li, Ben-Nun, Dryden, Di Girolamo, Alistarh, Hoefler 2021, algorithm 2]."""

from typing import ClassVar

from fred.learning.server import Server


class WAGMASGD(Server):
    """Every worker steps its own model, and averages it with its group's, wherever the others have got to."""

    protocol: ClassVar[str] = "group-averaging"
