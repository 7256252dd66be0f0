"""The page on measured times: its tables and its text."""

from collections import defaultdict
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.fitting.communication import NEAR_ERROR, worst_error
from reproductions.common import fill, table
from reproductions.measured import streams
from reproductions.measured.sources import FOLDER
from reproductions.measured.steps import FORECASTS, ranked

Floats = NDArray[np.float64]
COLUMNS = ("median error", "within 15 %", "worst")


def summary(errors: Floats, fitted: str = "") -> tuple[str, str, str]:
    """Return the median error, the share within 15 %, and the largest error; dashes if as many numbers were fitted.

    Args:
        errors: predicted / measured - 1.
        fitted: names of the fitted numbers, separated by semicolons, or `nothing`.

    >>> summary(np.array([-0.1, 0.3, 0.02]))
    ('10.0%', '67%', '+30%')
    """
    if len(errors) <= len(fitted.split(";")) and fitted not in ("", "nothing"):
        return "–", "–", "–"
    return f"{np.median(np.abs(errors)):.1%}", f"{np.mean(np.abs(errors) <= NEAR_ERROR):.0%}", f"{worst_error(errors):+.0%}"


def rows_to_draw(trained: pd.DataFrame) -> pd.DataFrame:
    """Return the steps as rows to draw: predictions with `nccl`, and with buckets where gradients are averaged in parts.

    Args:
        trained: as from `steps.table_of`.
    """
    forecast = np.where(trained["buckets"] > 1, trained[FORECASTS[2]], trained[FORECASTS[1]])
    return pd.DataFrame({"name": _groups(trained), "predicted": forecast, "measured": trained["seconds"]})


def text(
    collectives: pd.DataFrame, trained: pd.DataFrame, shares: pd.DataFrame, forms: pd.DataFrame, presets: pd.DataFrame
) -> str:
    """Return the page.

    Args:
        collectives: errors of collectives and messages, one row for each measurement.
        trained: step times, as from `steps.table_of`.
        shares: errors with the bandwidths that other steps tell.
        forms: errors of other forms.
        presets: errors of presets.
    """
    first = pd.read_csv(FOLDER / "predicted-first.csv")
    grid = trained[trained["source"] == _GRID]
    return fill(
        Path(__file__).with_name("page.md"),
        points=len(collectives),
        steps=len(trained),
        overview=table(("measurements", "points", "fitted here", *COLUMNS), _overview(collectives)),
        held=table(("measurements", "constants", "left out", *COLUMNS), _left_out(collectives)),
        plain=table(("measurements", "predicted by", *COLUMNS), _plainer(collectives)),
        first=table(("source", "points", "given", *COLUMNS), _blind(first)),
        streams=table(_STREAMS, _streamed(streams.table_of())),
        trained=table(("training", "points", "blind", *FORECASTS), _trained(trained)),
        ranked=table(
            ("pairs", "predicted by", "ranked as measured", "not told apart", "ranked wrongly"),
            [
                (pairs, f"`{forecast}`", *ranked(rows, forecast))
                for pairs, rows in (("all", grid), ("averaging in every step", grid[grid["period"] == 1]))
                for forecast in FORECASTS
            ],
        ),
        presets=table(
            ("preset", "program", "steps", *COLUMNS),
            [
                (f"`{name}`", program, len(rows), *summary(rows["error"].to_numpy()))
                for (name, program), rows in presets.groupby(["preset", "program"], sort=False)
            ],
        ),
        shares=table(("program", "others", "share with `buckets`", "error", "share without", "error"), _shares(shares)),
        merged=_merged(shares[shares["overlaps"]]),
        late=_merged(shares[~shares["overlaps"]]),
        hidden=table(
            ("model", "GPUs", "one allreduce", "hidden by MG-WFBP", "hidden in FRED", "by single tensors"), _hidden(trained)
        ),
        tried=table(("measurements, form", "constants", "left out", *COLUMNS), forms.fillna("none").itertuples(index=False)),
        own=f"{100 * _own_error():.1f} %",
        floor=f"{100 * _floor(collectives):.1f} %",
    )


def _overview(collectives: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    """Yield a row for each table of measurements: the numbers fitted to it, and its errors."""
    for name, rows in collectives.groupby("name", sort=False):
        fitted = rows["fitted"].iloc[0]
        yield (name, len(rows), fitted, *summary(rows["error"].to_numpy(), fitted))


def _left_out(collectives: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    """Yield a row for each table of measurements and way to leave a setting out of the fit."""
    for name, rows in collectives.groupby("name", sort=False):
        for way in rows.columns:
            if way.startswith("without") and rows[way].notna().any():
                constants = rows["refitted"].fillna("none").iloc[0]
                yield (name, constants, way.removeprefix("without its "), *summary(rows[way].to_numpy()))


def _plainer(collectives: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    """Yield a row for each table of measurements that a plainer model predicts, too."""
    for name, rows in collectives.groupby("name", sort=False):
        if rows["plain"].notna().any():
            yield (name, _PLAINER[str(name)], *summary(rows["plain"].to_numpy()))


def _groups(trained: pd.DataFrame) -> pd.Series:
    """Return the name of the training that each step belongs to."""
    program = trained["program"].str.split(",").str[0]
    subject = program.where(trained["program"] != "its own", trained["system"])
    width = (trained["bandwidth"] * 8e-9).map("{:g} Gbit/s".format)
    return trained["source"] + ": " + subject + np.where(trained["source"] == _GRID, "", ", " + width)


def _trained(trained: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    """Yield a row for each training: median and worst error of each forecast."""
    for name, rows in trained.groupby(_groups(trained), sort=False):
        errors = [(rows[forecast] / rows["seconds"] - 1).to_numpy() for forecast in FORECASTS]
        blind = "yes" if rows["is_blind"].all() else "no"
        yield (name, len(rows), blind, *(f"{np.median(np.abs(values)):.0%} ({worst_error(values):+.0%})" for values in errors))


def _shares(shares: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    """Yield a row for each program: shares of the bandwidth, and errors of the other steps, with `buckets` and without."""
    for name, rows in shares.groupby("name", sort=False):
        cells: list[str] = []
        for overlaps in (True, False):
            part = rows[rows["overlaps"] == overlaps]
            share, errors = part["share"].to_numpy(), part["error"].to_numpy()
            cells += (
                [f"{share[0]:.2f}", f"{np.median(np.abs(errors)):.0%} ({worst_error(errors):+.0%})"] if len(errors) else "––"
            )
        yield (name, len(rows) // rows["overlaps"].nunique(), *cells)


def _merged(shares: pd.DataFrame) -> str:
    """Return the median error of the programs that merge gradients."""
    merges = shares["name"].str.contains("MG-WFBP|Horovod")
    return f"{100 * shares.loc[merges, 'error'].abs().median():.0f} %"


def _blind(first: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    for (name, how), rows in first.groupby(["source", "how"], sort=False):
        yield (name, len(rows), how, *summary((rows["predicted_s"] / rows["measured_s"] - 1).to_numpy()))


def _streamed(rows: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    """Yield a row for each pair of regions: its rates, and the errors of those predicted."""
    receivers = rows["receiver"] + np.where(rows["bytes"].notna(), ", first 200 MiB", "")
    for (sender, receiver), pair in rows.groupby([rows["sender"], receivers], sort=False):
        errors = [" ".join(f"{value:+.0%}" for value in pair[name] / pair["mbit_per_s"] - 1) for name in streams.FORECASTS]
        rates = [" ".join(f"{value:.0f}" for value in pair[name]) for name in ("mbit_per_s", "retransmits")]
        yield (f"{sender} to {receiver}", f"{pair['own_round_trip_ms'].mean():.0f}", *rates, *errors)


def _own_error() -> float:
    """Return the median error of connections' rates with their own round trips."""
    rows = streams.table_of()
    return float((rows["own"] / rows["mbit_per_s"] - 1).abs().median())


def _hidden(trained: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    """Yield how much communication is hidden behind the backward pass, ms: measured, and with `buckets`."""
    steps: dict[tuple[str, int], dict[str, dict[Hashable, Any]]] = defaultdict(dict)
    for row in trained.to_dict("records"):
        if row["source"] == _LAYERS and row["system"] == "ddp" and row["bandwidth"] < _SLOW:
            program, model = row["program"].split(", ")
            steps[model, row["members"]][program] = row
    for (model, members), rows in steps.items():
        single, merged = rows["one allreduce"]["seconds"], rows["MG-WFBP"]
        hidden = merged["nccl"] - merged[FORECASTS[2]]
        times = (single, single - merged["seconds"], hidden, single - rows["WFBP"]["seconds"])
        yield (model, members, *(round(1e3 * seconds) for seconds in times))


def _floor(collectives: pd.DataFrame) -> float:
    """Return half of the median difference between pairs of regions that are neighbours in round trip."""
    pairs = collectives[collectives["name"] == "NCCL, between regions"].sort_values("latency")
    logs = np.log(pairs["predicted"] / (1 + pairs["error"]) / pairs["latency"])
    return float(np.median(np.exp(np.abs(np.diff(logs)) / 2)) - 1)


_GRID, _LAYERS = "Adnan082/diloco-measured", "HKBU-HPML/ddl-benchmarks"
_STREAMS = ("from, to", "round trip, ms", "Mbit/s", "sent again", "error", "error with its own round trip")
_SLOW = 2e9  # bytes/s; below: the network limits, above: the bus within a machine
_PLAINER = {
    "NCCL, allreduce": "`collective: ring`",
    "NCCL, between regions": "one bandwidth",
    "allreduce in use": "one allreduce",
    "sharded servers in use": "one allreduce",
}
