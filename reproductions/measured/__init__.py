"""FRED's times of communication beside measured ones."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.fitting.communication import Unknowns, errors, fit, held_out, predicted
from fred.fitting.measurements import Measurement, read
from fred.views import figures
from fred.views.figures import Picture
from reproductions.common import RESULTS, say, table, write
from reproductions.measured.sources import FOLDER, SOURCES, Source, settings

FILE = RESULTS / "measured.csv"
OWN = (FOLDER / "gloo-emulated.csv", FOLDER / "public.csv")  # after which no constant was changed: `public`
_NEAR = 0.15
_MARKS = "osD^vP*X<>hd"
_COLORS = {"gloo-emulated": "#E69F00", "public": "0.2"}  # others: those of the shared tables
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


def training() -> None:
    """Do nothing: there is nothing to train."""


def report() -> str:
    """Write the page and the figure from the CSV file; return the page's path."""
    found = pd.read_csv(FILE)
    picture(found).save(RESULTS / "measured.svg")
    return write("measured", _text(found))


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
    """Return the measurements of each library and operation of each file, with what was fitted to them."""
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
    out = {f"without its {way}": held_out(own, keys, source.form, source.constants) for way, keys in settings(own).items()}
    fitted = fit(own, source.form, source.constants)
    refitted = "; ".join(f"{name} {value:.4g}" for name, value in fitted.constants.items())
    for place, row in enumerate(_described(source.name, group)):
        yield {**row, "refitted": refitted, **{name: values[place] for name, values in out.items()}}


def _described(name: str, group: Group) -> Iterator[dict[str, object]]:
    for each, error in zip(group.measurements, group.errors, strict=True):
        yield {
            "name": name,
            "nodes": each.nodes,
            "bytes": each.size,
            "latency": each.latency,
            "bandwidth": each.bandwidth,
            "predicted": predicted(each, group.unknowns),
            "error": error,
            "fitted": _fitted(group.unknowns),
        }


def _fitted(unknowns: Unknowns) -> str:
    units = {"latency": (1e3, "ms"), "bandwidth": (8e-9, "Gbit/s"), "window": (2**-20, "MiB")}
    values = ((name, getattr(unknowns, name), *units[name]) for name in unknowns.fitted)
    return "; ".join(f"{name} {value * factor:.3g} {unit}" for name, value, factor, unit in values) or "nothing"


def _overview(group: Group) -> tuple[object, ...]:
    return (group.name, len(group.measurements), _fitted(group.unknowns), *_summary(group.errors, _fitted(group.unknowns)))


def _summary(off: Floats, fitted: str = "") -> tuple[str, str, str]:
    """Return the median error, the share within 15 %, and the largest error; dashes if as many numbers were fitted."""
    if len(off) <= len(fitted.split(";")) and fitted not in ("", "nothing"):
        return "–", "–", "–"
    worst = off[np.argmax(np.abs(np.log1p(np.maximum(off, -0.999))))]
    return f"{np.median(np.abs(off)):.1%}", f"{np.mean(np.abs(off) <= _NEAR):.0%}", f"{worst:+.0%}"


def _line(row: dict[str, object]) -> tuple[object, ...]:
    given = ["–" if value is None else f"{value:.4g}" for value in (row["latency"], row["bandwidth"])]
    measured = float(str(row["predicted"])) / (1 + float(str(row["error"])))
    values = (f"{row['bytes']:.0f}", *given, f"{row['predicted']:.4g}", f"{measured:.4g}", f"{row['error']:+.1%}")
    return (row["name"], row["nodes"], *values)


def picture(found: pd.DataFrame) -> Picture:
    """Draw predicted against measured times, by source."""
    with figures.style():
        drawn = Picture(figsize=(6.4, 6.6), layout="constrained")
        axis = drawn.subplots()
        for mark, (name, own) in zip(_MARKS * 9, found.groupby("name", sort=False), strict=False):
            color = next((color for start, color in _COLORS.items() if str(name).startswith(start)), "#0072B2")
            measured = own["predicted"] / (1 + own["error"])
            axis.plot(measured, own["predicted"], mark, label=name, color=color, markersize=4, alpha=0.8)
        ends = [found["predicted"].min() / 1.5, found["predicted"].max() * 1.5]
        for factor, dashes in ((1.0, "-"), (1 + _NEAR, ":"), (1 / (1 + _NEAR), ":")):
            axis.plot(ends, [factor * end for end in ends], dashes, color="0.5", linewidth=0.8, zorder=0)
        axis.set(xscale="log", yscale="log", xlabel="measured, s", ylabel="predicted, s", xlim=ends, ylim=ends)
        drawn.legend(loc="outside lower center", ncols=2, fontsize=7)
        return drawn


def _text(found: pd.DataFrame) -> str:
    ways = [name for name in found.columns if name.startswith("without")]
    shared = found[found["name"].isin([source.name for source in SOURCES])]
    rows, held = [], []
    for name, own in found.groupby("name", sort=False):
        rows.append((name, len(own), own["fitted"].iloc[0], *_summary(own["error"].to_numpy(), own["fitted"].iloc[0])))
    for name, own in shared.groupby("name", sort=False):
        constants = own["refitted"].fillna("").iloc[0] or "none"
        for way in ways:
            if own[way].notna().any():
                held.append((name, len(own), constants, way.removeprefix("without its "), *_summary(own[way].to_numpy())))
    return _TEXT.format(
        points=len(found),
        overview=table(("measurements", "points", "fitted here", "median error", "within 15 %", "worst"), rows),
        held=table(("measurements", "points", "constants", "left out", "median error", "within 15 %", "worst"), held),
    )


_TEXT = """# Measured times of communication, and FRED's

Made by `python -m reproductions measured` from the CSV file beside this page. For {points} measurements of others, and of a
network emulated here, it compares the measured time with the one that FRED predicts from size, members, latency and bandwidth.
`python -m reproductions measured --points FILE` does the same for any table.

![predicted against measured](measured.svg)

The dotted lines are 15 % off.

## Predictions with FRED's constants

Where a table does not give the latency or the bandwidth, it is fitted once for each row of this table ("fitted here").

{overview}

## How well the constants hold where they were not fitted

The constants in `fred/cluster/libraries.py` were fitted to the first six tables. Here they are fitted anew without one setting
(a pair of delay and bandwidth, a number of nodes, or a receiver), which is then predicted; so for each setting in turn. A
latency or bandwidth that only the setting itself can tell is fitted to it.

{held}

## What the predictions are made of

- **NCCL, allreduce**: 2 (n - 1) / n of the model at 1.011 times its bytes, and 4 latencies whatever the number of members.
  Two constants. The 4 was found by looking at all rows; a tree of that depth would have 4 to 10.
- **Point to point**: the message, after a slow start from ten segments of 8,949 bytes for each connection, at most at a window
  of 3 MiB for each round trip. These are Linux's defaults; NCCL has 16 connections on Amazon's machines, Gloo has one, and asks
  for each message first, which costs a round trip. No constant was fitted.
- **Between regions**: the smaller of a bandwidth and window / round trip, both fitted to this table. Pairs with equal round
  trips differ by up to 1.45 times, so no function of the round trip is within 15 % for all.
- **Allreduce in use**: 18.2 allreduces, one after the other, each with the latencies above; with 16 nodes each takes the
  2 (n - 1) latencies of a ring. One constant, and the 16, which only the 16 nodes tell.
- **Sharded servers in use**: all-to-all and allgather at 1.31 times the bytes, with 3 latencies for each other member. Two
  constants.
- **Gloo's collectives**: from its source code (a ring with segments of 1 MiB that the receiver must have asked for; a broadcast
  along a binomial tree), with 1.25 times the bytes in rings and 1.5 in all-to-all. These two constants were fitted to
  `gloo-emulated.csv`: torch 2.13 with Gloo between network namespaces of one machine, joined by the switch in
  `reproductions/measured/emulator`, which delays and shapes what each receiver gets. Real TCP, no real network; the two cores
  were shared with other work, so single rows are up to a fifth too slow, those at 2 Gbit/s most. Allgather and all-to-all
  include the allocation of their results, which is much of the time with two members.
- **`public`** are rows typed from issues of other repositories at GitHub, which the names say. All constants were fixed, in
  form and value, before they were looked up, and nothing was changed afterwards. A dash stands where as many numbers were
  fitted as there are points. Single rows are predicted from the nominal bandwidth, without a latency. At 40 Gbit/s Gloo
  ran on one core, which limits it to a quarter of the network.

## What this does not show

Operations of NCCL other than allreduce and point to point are forms without a measurement alone. No step time of a whole
training with all inputs was found, so the overlap of communication with computation (`buckets`) is as before: not measured.
"""
