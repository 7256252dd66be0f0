"""FRED's times of communication beside measured ones."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.fitting.communication import NEAR_ERROR, Judgement, errors, fit, held_out_errors, judge
from fred.fitting.measurement import Measurement
from fred.fitting.measurements import read
from fred.views import comparison_figures
from fred.views.figures import Picture
from reproductions.common import RESULTS, say, store, write
from reproductions.measured import page, steps
from reproductions.measured.page import summary
from reproductions.measured.sources import ALTERNATIVES, FOLDER, SOURCES, Source, settings

_FILES = ("", "-steps", "-bandwidths", "-tried", "-presets")
FILE, STEPS, SHARES, FORMS, JUDGED = (RESULTS / f"measured{name}.csv" for name in _FILES)
# No constant was changed after `gloo-held-out` and `public` were read.
COLLECTED = (FOLDER / "gloo-emulated.csv", FOLDER / "gloo-held-out.csv", FOLDER / "public.csv")
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
    for group in groups(COLLECTED):
        rows += group.rows()
    store(FILE, rows)
    say("step times of trainings")
    trained = list(steps.read_steps())
    store(STEPS, steps.table_of(trained))
    shares = [
        {"name": name, **row} for name, program_steps in steps.programs(trained) for row in steps.transferred(program_steps)
    ]
    store(SHARES, shares)
    store(JUDGED, steps.judged_by_presets(trained))
    say("other forms")
    store(FORMS, (row for source in ALTERNATIVES for row in _form_rows(source)))


def report() -> str:
    """Write the page and the figure from the CSV file; return the page's path."""
    collectives, trained = pd.read_csv(FILE), pd.read_csv(STEPS)
    picture(collectives).save(RESULTS / "measured.svg")
    picture(page.rows_to_draw(trained)).save(RESULTS / "measured-steps.svg")
    return write("measured", page.text(collectives, trained, *map(pd.read_csv, (SHARES, FORMS, JUDGED))))


def groups(paths: Iterable[Path]) -> Iterator[Judgement]:
    """Yield a judgement of each library and operation of each file."""
    for path in paths:
        for judgement in judge(read(path)):
            yield replace(judgement, name=f"{path.stem}: {judgement.name}")


def _rows(source: Source) -> Iterator[dict[str, object]]:
    """Yield a row for each measurement of a source, with its errors when its settings were left out of all fits."""
    measurements = source.measurements()
    judgement = Judgement(source.name, measurements, fit(measurements))
    ways = settings(measurements).items()
    forms = {"number of nodes": source.blind_form}
    out = {
        f"without its {way}": held_out_errors(measurements, keys, source.form, source.constants, forms.get(way))
        for way, keys in ways
    }
    out["plain"] = _plainer_errors(source, measurements)
    fitted = fit(measurements, source.form, source.constants)
    refitted = "; ".join(f"{name} {value:.4g}" for name, value in fitted.constants.items())
    for place, row in enumerate(judgement.rows()):
        yield {**row, "refitted": refitted, **{name: values[place] for name, values in out.items()}}


def _form_rows(source: Source) -> Iterator[dict[str, object]]:
    """Yield the errors of another form, and of those it is compared with, when a setting is left out."""
    measurements = source.measurements()
    constants = fit(measurements, source.form, source.constants).constants
    named = "; ".join(f"{name} {value:.3g}" for name, value in constants.items()) or "none"
    for way, keys in settings(measurements).items():
        deviations = held_out_errors(measurements, keys, source.form, source.constants)
        yield {
            "name": source.name,
            "constants": named,
            "left out": way,
            **dict(zip(page.COLUMNS, summary(deviations), strict=True)),
        }


def _plainer_errors(source: Source, measurements: Sequence[Measurement]) -> Floats:
    """Return the errors of a plainer model: FRED's default, or one bandwidth between regions."""
    if measurements[0].is_rate:
        measurements = [replace(measurement, latency=0.0) for measurement in measurements]
    elif source.plain_form is None:
        return np.full(len(measurements), np.nan)
    return errors(measurements, fit(measurements, source.plain_form), source.plain_form)


def picture(rows: pd.DataFrame) -> Picture:
    """Draw predicted against measured times, by source."""
    names = dict.fromkeys(map(str, rows["name"]))
    starts = _COLORS.items()
    colors = {name: next((color for start, color in starts if name.startswith(start)), "#0072B2") for name in names}
    return comparison_figures.picture(rows, NEAR_ERROR, colors)
