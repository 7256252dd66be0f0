"""FRED's times of communication beside measured ones."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.fitting.communication import NEAR, Judgement, errors, fit, held_out_errors, judge
from fred.fitting.measurement import Measurement
from fred.fitting.measurements import read
from fred.views import comparison_figures
from fred.views.figures import Picture
from reproductions.common import RESULTS, say, write
from reproductions.measured import page, steps
from reproductions.measured.page import summary
from reproductions.measured.sources import FOLDER, SOURCES, TRIED, Source, settings

_FILES = ("", "-steps", "-bandwidths", "-tried", "-presets")
FILE, STEPS, SHARES, OTHERS, JUDGED = (RESULTS / f"measured{name}.csv" for name in _FILES)
# No constant was changed after `gloo-held-out` and `public` were read.
OWN = (FOLDER / "gloo-emulated.csv", FOLDER / "gloo-held-out.csv", FOLDER / "public.csv")
_COLORS = {  # by the beginning of the name; others: those of the shared tables
    "gloo-emulated": "#E69F00",
    "gloo-held-out": "#D55E00",
    "public": "0.2",
    "Adnan082": "#0072B2",
    "HKBU": "#E69F00",
    "Oneflow": "#009E73",
    "pytorch": "0.2",
    "horovod": "#CC79A7",
}
Floats = NDArray[np.float64]


def timing() -> None:
    """Predict every measurement, with FRED's constants and with those fitted to the others; write the CSV file."""
    rows: list[dict[str, object]] = []
    for source in SOURCES:
        say(source.name)
        rows += _rows(source)
    for group in groups(OWN):
        rows += group.rows()
    pd.DataFrame(rows).to_csv(FILE, index=False, float_format="%.6g")
    say("step times of trainings")
    trained = list(steps.read())
    steps.table_of(trained).to_csv(STEPS, index=False, float_format="%.6g")
    shares = [{"name": name, **row} for name, own in steps.programs(trained) for row in steps.transferred(own)]
    pd.DataFrame(shares).to_csv(SHARES, index=False, float_format="%.6g")
    pd.DataFrame(steps.judged_by_presets(trained)).to_csv(JUDGED, index=False, float_format="%.6g")
    say("other forms")
    pd.DataFrame([row for source in TRIED for row in _tried(source)]).to_csv(OTHERS, index=False, float_format="%.6g")


def training() -> None:
    """Do nothing: there is nothing to train."""


def report() -> str:
    """Write the page and the figure from the CSV file; return the page's path."""
    found, trained = pd.read_csv(FILE), pd.read_csv(STEPS)
    picture(found).save(RESULTS / "measured.svg")
    picture(page.drawn(trained)).save(RESULTS / "measured-steps.svg")
    return write("measured", page.text(found, trained, *map(pd.read_csv, (SHARES, OTHERS, JUDGED))))


def groups(paths: Iterable[Path]) -> Iterator[Judgement]:
    """Yield a judgement of each library and operation of each file."""
    for path in paths:
        for judgement in judge(read(path)):
            yield replace(judgement, name=f"{path.stem}: {judgement.name}")


def _rows(source: Source) -> Iterator[dict[str, object]]:
    """Yield a row for each measurement of a source, with its errors when its settings were left out of all fits."""
    own = source.measurements()
    judgement = Judgement(source.name, own, fit(own))
    ways = settings(own).items()
    unseen = {"number of nodes": source.unseen}
    out = {
        f"without its {way}": held_out_errors(own, keys, source.form, source.constants, unseen.get(way)) for way, keys in ways
    }
    out["plain"] = _plain(source, own)
    fitted = fit(own, source.form, source.constants)
    refitted = "; ".join(f"{name} {value:.4g}" for name, value in fitted.constants.items())
    for place, row in enumerate(judgement.rows()):
        yield {**row, "refitted": refitted, **{name: values[place] for name, values in out.items()}}


def _tried(source: Source) -> Iterator[dict[str, object]]:
    """Yield the errors of another form, and of those it is compared with, when a setting is left out."""
    own = source.measurements()
    constants = fit(own, source.form, source.constants).constants
    named = "; ".join(f"{name} {value:.3g}" for name, value in constants.items()) or "none"
    for way, keys in settings(own).items():
        off = held_out_errors(own, keys, source.form, source.constants)
        yield {"name": source.name, "constants": named, "left out": way, **dict(zip(page.COLUMNS, summary(off), strict=True))}


def _plain(source: Source, own: Sequence[Measurement]) -> Floats:
    """Return the errors of a plainer model: FRED's default, or one bandwidth between regions."""
    if own[0].is_rate:
        own = [replace(each, latency=0.0) for each in own]
    elif source.plain is None:
        return np.full(len(own), np.nan)
    return errors(own, fit(own, source.plain), source.plain)


def picture(found: pd.DataFrame) -> Picture:
    """Draw predicted against measured times, by source."""
    names = dict.fromkeys(map(str, found["name"]))
    starts = _COLORS.items()
    colors = {name: next((color for start, color in starts if name.startswith(start)), "#0072B2") for name in names}
    return comparison_figures.picture(found, NEAR, colors)
