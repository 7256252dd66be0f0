"""Progress on the terminal, for whatever takes long."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

Show = Callable[[str, float], None]  # what is being done, and the share of it that is done


@contextmanager
def bars() -> Iterator[Show]:
    """A bar for each thing that is being done, while it is; silent without a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: float) -> None:
            if what not in tasks:
                tasks[what] = shown.add_task(what, total=1.0)
            shown.update(tasks[what], completed=done, visible=done < 1)

        yield show
