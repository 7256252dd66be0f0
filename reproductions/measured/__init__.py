"""FRED's times of communication beside measured ones."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
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
OWN = (FOLDER / "gloo-emulated.csv", FOLDER / "public.csv")  # no constant was changed after `public` was read
_NEAR = 0.15
_NO_LATENCY = 1e-6  # s; the times do not tell a smaller one
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
    out = {f"without its {way}": held_out(own, keys, source.form, source.constants, unseen.get(way)) for way, keys in ways}
    out["plain"] = _plain(source, own)
    fitted = fit(own, source.form, source.constants)
    refitted = "; ".join(f"{name} {value:.4g}" for name, value in fitted.constants.items())
    for place, row in enumerate(_described(source.name, group)):
        yield {**row, "refitted": refitted, **{name: values[place] for name, values in out.items()}}


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
            "predicted": predicted(each, group.unknowns),
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
    head = ("measurements", "points")
    rows = [
        (name, len(own), own["fitted"].iloc[0], *_summary(own["error"].to_numpy(), own["fitted"].iloc[0]))
        for name, own in found.groupby("name", sort=False)
    ]
    held = [
        (name, own["refitted"].fillna("none").iloc[0], way.removeprefix("without its "), *_summary(own[way].to_numpy()))
        for name, own in found.groupby("name", sort=False)
        for way in ways
        if own[way].notna().any()
    ]
    plain = [
        (name, _PLAIN[str(name)], *_summary(own["plain"].to_numpy()))
        for name, own in found.groupby("name", sort=False)
        if own["plain"].notna().any()
    ]
    columns = ("median error", "within 15 %", "worst")
    return _TEXT.format(
        points=len(found),
        overview=table((*head, "fitted here", *columns), rows),
        held=table(("measurements", "constants", "left out", *columns), held),
        plain=table(("measurements", "predicted by", *columns), plain),
    )


_PLAIN = {
    "NCCL, allreduce": "`collective: ring`",
    "NCCL, between regions": "one bandwidth",
    "allreduce in use": "one allreduce",
    "sharded servers in use": "one allreduce",
}
_TEXT = """# Measured times of communication, and FRED's

Made by `python -m reproductions measured` from the CSV file beside this page. For {points} measurements, by others and over a
network emulated on one machine, it compares the measured time with the one that FRED predicts from size, members, latency and
bandwidth. `python -m reproductions measured --points FILE` does the same for any table.

![predicted against measured](measured.svg)

The dotted lines are 15 % off. The first six tables are results of BinhangYuan/tc_cluster_setting, at GitHub: on machines of
Amazon's cloud (p3.2xlarge), and between regions.

## Predictions with FRED's constants

Latencies and bandwidths that a table does not give are fitted, once for each row ("fitted here"). They also take up whatever
else costs time, so rows from the same cloud differ. The constants were fitted to these tables, but for `public`.

{overview}

## How well the constants hold where they were not fitted

Here the constants of `fred/cluster/libraries.py` are fitted again without one setting (a pair of delay and bandwidth, a number
of nodes, or a receiver), which is then predicted; so for each setting in turn. The latency and bandwidth of the rows that give
neither (8 of the 32, 3 of each 15 in use) are fitted to these rows even so, since nothing else tells them.

{held}

That allreduces in use go around a ring with 16 nodes is known from the 16 nodes alone. So it is not used where these are left
out, and they are then up to 70 % off.

## Plainer models

{plain}

## What the predictions are made of

- **NCCL, allreduce**: 2 (n - 1) / n of the model at 1.011 times its bytes, and 4 latencies, however many members beyond three.
  Two constants. That the number of latencies does not grow was found by looking at all rows.
- **Point to point**: one latency (Gloo asks for each message first: two), and the message, at most at a window of 3 MiB for
  each round trip, after a slow start from ten segments of 8,949 bytes. These are Linux's defaults for one connection; NCCL has
  16 on Amazon's machines. No constant was fitted.
- **Between regions**: the smaller of a bandwidth and window / round trip, both fitted to this table. Pairs with equal round
  trips differ by up to 1.5 times, so no function of the round trip is within 15 % for all.
- **Allreduce in use**: 18.2 allreduces, one after the other, each with the latencies above; with 16 nodes each takes the
  2 (n - 1) latencies of a ring. One constant, and the 16.
- **Sharded servers in use**: all-to-all and allgather at 1.31 times the bytes, with 3 latencies for each other member. Two
  constants.
- **Gloo's collectives**: from its source code (a ring with segments of 1 MiB that the receiver must have asked for; a broadcast
  along a binomial tree), with 1.25 times the bytes in rings and 1.5 in all-to-all. These two constants were fitted to
  `gloo-emulated.csv`: torch 2.13 with Gloo between network namespaces of one machine, joined by the switch in
  `reproductions/measured/emulator`, which delays and shapes what each receiver gets. Real TCP, no real network; the machine had
  other work, too. Its allgather and all-to-all take up to 63 % longer than predicted, most with two members; why is not known.
- **`public`** are rows typed from issues of other repositories at GitHub, which the names say: those rows that the search which
  found them showed. All constants were fixed before, in form and value. One change came later, for another reason: a message
  from point to point costs a latency with NCCL, too; none of these rows has one. Single rows are predicted from the nominal
  bandwidth, without a latency. At 40 Gbit/s Gloo ran on one core, which limits it to a quarter of the network.

## What this does not show

NCCL's operations other than allreduce and point to point are forms without a measurement. No step time of a whole training
with all inputs was found, so the overlap of communication with computation (`buckets`) is as before: not measured.
"""
