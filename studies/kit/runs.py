"""Parts of a study: a file each, in worker processes, so that an interrupted study goes on; their CPU time is recorded."""

import multiprocessing
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pandas as pd

from fred.base.process import cores
from reproductions.common import say, store
from studies.kit.study import Study, read_table

SECONDS = "seconds"  # end of the name of the table with the seconds of all parts


def parts(
    study: Study, measure: Callable[..., pd.DataFrame], items: Iterable[tuple[Any, ...]], end: str = ""
) -> list[pd.DataFrame]:
    """Return a table for each part, in the order of the parts; those that have a file are not measured again.

    A line says so. After a change of the study, remove its folder in `results/`: a part does not know how it was made.

    Args:
        study: the study.
        measure: returns a part's table; a function of a module, since worker processes import it.
        items: arguments of the function for each part, whose words also name its file.
        end: of the files' names, where several functions have the same parts.
    """
    study.folder.mkdir(parents=True, exist_ok=True)
    todo = {part_path(study, item, end): item for item in items}
    missing = {path: item for path, item in todo.items() if not path.is_file()}
    if len(missing) < len(todo):
        print(f"{len(todo) - len(missing)} of {len(todo)} parts are there; to measure them again, remove {study.folder}")
    with ProcessPoolExecutor(min(cores(), max(1, len(missing))), multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(_measured, measure, part) for part in missing.items()]):
            path, seconds = future.result()
            _record(study, path.stem, seconds)
            say(path.stem)
    return [read_table(path) for path in todo]


def part_path(study: Study, item: tuple[Any, ...], end: str = "") -> Path:
    """Return the file of a part.

    Args:
        study: the study.
        item: arguments of the part.
        end: of the file's name.
    """
    words = "-".join(str(word) for word in (*item, end) if word != "")
    return study.folder / f"{words.replace(', ', '-').replace(' ', '-').lower()}.csv"


def _measured(measure: Callable[..., pd.DataFrame], part: tuple[Path, tuple[Any, ...]]) -> tuple[Path, float]:
    path, item = part
    begin = time.process_time()
    table = measure(*item)
    unfinished = path.with_suffix(".unfinished")
    store(unfinished, table)
    unfinished.replace(path)
    return path, time.process_time() - begin


def _record(study: Study, part: str, seconds: float) -> None:
    path = study.path(SECONDS)
    table = pd.DataFrame([{"part": part, "seconds": round(seconds, 1)}])
    earlier = read_table(path) if path.is_file() else table[:0]
    store(path, pd.concat([earlier[earlier["part"] != part], table]), None)
