"""FRED's times of communication beside measured ones."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.fitting.communication import Unknowns, errors, fit, held_out_errors, predict_seconds
from fred.fitting.measurement import Measurement
from fred.fitting.measurements import read
from fred.views import figures
from fred.views.figures import Picture
from reproductions.common import RESULTS, say, table, write
from reproductions.measured import page, steps
from reproductions.measured.page import NEAR, summary
from reproductions.measured.sources import FOLDER, SOURCES, TRIED, Source, settings

FILE, STEPS, SHARES, OTHERS = (RESULTS / f"measured{name}.csv" for name in ("", "-steps", "-bandwidths", "-tried"))
# No constant was changed after `gloo-held-out` and `public` were read.
OWN = (FOLDER / "gloo-emulated.csv", FOLDER / "gloo-held-out.csv", FOLDER / "public.csv")
_NO_LATENCY = 1e-6  # s; the times do not tell a smaller one
_MARKS = "osD^vP*X<>hdp8"
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


class Group(NamedTuple):
    """Measurements of one operation in one file, and what FRED predicts."""

    name: str
    measurements: Sequence[Measurement]
    unknowns: Unknowns

    @property
    def errors(self) -> Floats:
        """Return predicted / measured - 1 of each measurement."""
        return errors(self.measurements, self.unknowns)


def timing() -> None:
    """Predict every measurement, with FRED's constants and with those fitted to the others; write the CSV file."""
    rows: list[dict[str, object]] = []
    for source in SOURCES:
        say(source.name)
        rows += _rows(source)
    for group in groups(OWN):
        rows += _described(group.name, group)
    pd.DataFrame(rows).to_csv(FILE, index=False, float_format="%.6g")
    say("step times of trainings")
    trained = list(steps.read())
    steps.table_of(trained).to_csv(STEPS, index=False, float_format="%.6g")
    shares = [{"name": name, **row} for name, own in steps.programs(trained) for row in steps.transferred(own)]
    pd.DataFrame(shares).to_csv(SHARES, index=False, float_format="%.6g")
    say("other forms")
    pd.DataFrame([row for source in TRIED for row in _tried(source)]).to_csv(OTHERS, index=False, float_format="%.6g")


def training() -> None:
    """Do nothing: there is nothing to train."""


def report() -> str:
    """Write the page and the figure from the CSV file; return the page's path."""
    found, trained = pd.read_csv(FILE), pd.read_csv(STEPS)
    picture(found).save(RESULTS / "measured.svg")
    picture(page.drawn(trained)).save(RESULTS / "measured-steps.svg")
    return write("measured", page.text(found, trained, pd.read_csv(SHARES), pd.read_csv(OTHERS)))


def points(paths: Sequence[Path]) -> str:
    """Predict the measurements in any files, print the errors, and write a page with a figure; return its path.

    Latencies and bandwidths that the files do not give are fitted, once for each library and operation of a file.
    """
    found = groups(paths)
    rows = [row for group in found for row in _described(group.name, group)]
    overview = table(("measurements", "points", "fitted", "median error", "within 15 %", "worst"), map(_overview, found))
    print(overview)
    picture(pd.DataFrame(rows)).save(RESULTS / "measured-points.svg")
    each = table(
        ("measurements", "nodes", "bytes", "delay, s", "bytes/s", "predicted, s", "measured, s", "error"), map(_line, rows)
    )
    text = f"# Measured and predicted times\n\n![predicted and measured](measured-points.svg)\n\n{overview}\n\n{each}\n"
    return write("measured-points", text)


def groups(paths: Iterable[Path]) -> list[Group]:
    """Return the measurements of each library and operation of each file, and the latencies and bandwidths fitted to them."""
    found = []
    for path in paths:
        everything = read(path)
        for source in dict.fromkeys(each.source for each in everything):
            own = [each for each in everything if each.source == source]
            found.append(Group(f"{path.stem}: {source}", own, fit(own)))
    return found


def _rows(source: Source) -> Iterator[dict[str, object]]:
    """Yield a row for each measurement of a source, with its errors when its settings were left out of all fits."""
    own = source.measurements()
    group = Group(source.name, own, fit(own))
    ways = settings(own).items()
    unseen = {"number of nodes": source.unseen}
    out = {
        f"without its {way}": held_out_errors(own, keys, source.form, source.constants, unseen.get(way)) for way, keys in ways
    }
    out["plain"] = _plain(source, own)
    fitted = fit(own, source.form, source.constants)
    refitted = "; ".join(f"{name} {value:.4g}" for name, value in fitted.constants.items())
    for place, row in enumerate(_described(source.name, group)):
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


def _described(name: str, group: Group) -> Iterator[dict[str, object]]:
    for each, error in zip(group.measurements, group.errors, strict=True):
        yield {
            "name": name,
            "nodes": each.nodes,
            "bytes": each.size,
            "latency": each.latency,
            "bandwidth": each.bandwidth,
            "predicted": predict_seconds(each, group.unknowns),
            "error": error,
            "fitted": _fitted(group.unknowns),
        }


def _fitted(unknowns: Unknowns) -> str:
    units = {"latency": (1e3, "ms"), "bandwidth": (8e-9, "Gbit/s"), "window": (2**-20, "MiB")}
    values = [(name, getattr(unknowns, name), *units[name]) for name in unknowns.fitted]
    if unknowns.latency < _NO_LATENCY:
        values = [each for each in values if each[0] != "latency"]
    return "; ".join(f"{name} {value * factor:.3g} {unit}" for name, value, factor, unit in values) or "nothing"


def _overview(group: Group) -> tuple[object, ...]:
    return (group.name, len(group.measurements), _fitted(group.unknowns), *summary(group.errors, _fitted(group.unknowns)))


def _line(row: dict[str, object]) -> tuple[object, ...]:
    given = ["–" if value is None else f"{value:.4g}" for value in (row["latency"], row["bandwidth"])]
    measured = float(str(row["predicted"])) / (1 + float(str(row["error"])))
    values = (f"{row['bytes']:.0f}", *given, f"{row['predicted']:.4g}", f"{measured:.4g}", f"{row['error']:+.1%}")
    return (row["name"], row["nodes"], *values)


def picture(found: pd.DataFrame) -> Picture:
    """Draw predicted against measured times, by source."""
    with figures.style():
        drawn = Picture(figsize=(7.2, 7.4), layout="constrained")
        axis = drawn.subplots()
        for mark, (name, own) in zip(_MARKS * 9, found.groupby("name", sort=False), strict=False):
            color = next((color for start, color in _COLORS.items() if str(name).startswith(start)), "#0072B2")
            measured = own["predicted"] / (1 + own["error"])
            axis.plot(measured, own["predicted"], mark, label=name, color=color, markersize=4, alpha=0.8)
        ends = [found["predicted"].min() / 1.5, found["predicted"].max() * 1.5]
        for factor, dashes in ((1.0, "-"), (1 + NEAR, ":"), (1 / (1 + NEAR), ":")):
            axis.plot(ends, [factor * end for end in ends], dashes, color="0.5", linewidth=0.8, zorder=0)
        axis.set(xscale="log", yscale="log", xlabel="measured, s", ylabel="predicted, s", xlim=ends, ylim=ends)
        drawn.legend(loc="outside lower center", ncols=2, fontsize=6.5)
        return drawn
