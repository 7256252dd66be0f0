"""Clipped asynchronous SGD with old gradients [arXiv:2606.13287], on the quadratic of an incompletely described audit."""

from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy import special

import fred
from fred.base import numerics
from fred.learning.data.dataset import Dataset, Examples
from reproductions.common import RESULTS, fill, near, say, store, table, write

FILE = RESULTS / "clipped.csv"
REFERENCE = {4: 1.0, 8: 1.15, 16: 2.12}  # by delay, how many times as good clipping is, by the audit
NEAR = 0.1  # of the reference
_DIMENSION, _RATE, _LENGTH, _SCALE = 8, 0.03, 1.0, 0.3
_UPDATES, _SEEDS = (100, 200, 300, 500, 1000), tuple(range(1, 11))
_STARTS = {"x of length 1": 8**-0.5, "all x = 1": 1.0, "all x = 3": 3.0}
_LAWS = {
    "Student t, 2 degrees": ("student", 2.0, _SCALE),
    "Student t, 2.5 degrees": ("student", 2.5, _SCALE),
    "Student t, 3 degrees": ("student", 3.0, _SCALE),
    "Student t, 3 degrees, deviation 0.3": ("student", 3.0, _SCALE / 3**0.5),
    "Pareto, exponent 1.5": ("pareto", 1.5, _SCALE),
    "Pareto, exponent 2": ("pareto", 2.0, _SCALE),
    "Pareto, exponent 2.5": ("pareto", 2.5, _SCALE),
}
_PARTS = (0.1, 0.01)  # of the first loss


class Tails(fred.Data):
    """Noise with heavy tails, on either side of 0, without which a model is evaluated."""

    generated: ClassVar[bool] = True

    law: Literal["student", "pareto"]
    exponent: float
    scale: float

    def load(self, seed: int) -> Dataset:
        """Return 10,000 draws of as many numbers as the quadratic has."""
        u = numerics.uniforms(seed, "data/noise", np.arange(10_000), 0, _DIMENSION)
        draws = special.stdtrit(self.exponent, u)
        if self.law == "pareto":
            draws = np.sign(u - 0.5) * ((1 - np.abs(2 * u - 1)) ** (-1 / self.exponent) - 1)
        draws -= draws.mean(axis=0)
        nothing = Examples(np.zeros((1, _DIMENSION), np.float32), np.zeros((1, 2), np.float32))
        return Dataset(Examples((self.scale * draws).astype(np.float32), np.zeros((len(u), 2), np.float32)), nothing, 2)


class Diagonal(fred.Model):
    """f(x) = sum of a_i x_i^2 / 2, a_i evenly from 1 to 4; to its gradient the inputs are added. The second output is 2 f."""

    start: float  # of all numbers

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Any:
        return {"x": jnp.full(_DIMENSION, self.start)}

    def apply(self, params: Any, inputs: jax.Array) -> jax.Array:
        x = params["x"]
        value = (jnp.linspace(1.0, 4.0, _DIMENSION) * x * x).sum() / 2
        twice = jnp.full(len(inputs), jax.lax.stop_gradient(2 * value))
        return jnp.stack((value + (inputs * x).sum(-1), twice), axis=-1)


def training() -> None:
    """Run each reading of the noise, from each start: some minutes."""
    rows = []
    for noise, start in product(_LAWS, _STARTS):
        rows.append(measure_reading(noise, start).assign(noise=noise, start=start))
        say(f"{noise}, {start}")
    store(FILE, pd.concat(rows), "%.5g")


def measure_reading(noise: str, start: str, seeds: Iterable[int] = _SEEDS) -> pd.DataFrame:
    """Return medians over seeds, by delay and method: the loss after N updates, and the updates to a part of the first loss.

    Args:
        noise: one of the readings.
        start: where from.
        seeds: of the noise.
    """
    law, exponent, scale = _LAWS[noise]
    runs = {f"{method}-{delay}": _run(method, delay) for delay in REFERENCE for method in ("vanilla", "clipped")}
    scenario = fred.scenario(
        cluster={"workers": 1},
        task={"data": Tails(law=law, exponent=exponent, scale=scale), "model": Diagonal(start=_STARTS[start])}
        | {"loss": "value", "batch_size": 1},
        stop={"updates": _UPDATES[-1]},
        evaluate={"every_updates": 5},
        seeds=list(seeds),
        runs=runs,
    )
    metrics = fred.run(scenario).metrics
    rows = []
    for name in runs:
        method, delay = name.split("-")
        loss = metrics[metrics["run"] == name].pivot(index="updates", columns="seed", values="loss")
        rows += [(int(delay), method, f"loss after {at} updates", loss.loc[at].median()) for at in _UPDATES]
        rows += [(int(delay), method, f"updates to {part:.0%} of the first loss", _reached(loss, part)) for part in _PARTS]
    return pd.DataFrame(rows, columns=["delay", "method", "measure", "median"])


def _run(method: str, delay: int) -> dict[str, Any]:
    algorithm = {"name": "clipped-asgd", "learning_rate": _RATE, "length": _LENGTH}
    if method == "vanilla":
        algorithm = {"name": "asgd", "learning_rate": _RATE / delay}
    return {"algorithm": algorithm, "protocol": {"name": "fixed-lag", "lag": delay}}


def _reached(loss: pd.DataFrame, part: float) -> float:
    """Return the median over seeds of the updates until the loss first came down to this part of the first (or infinity)."""
    low = loss <= part * loss.iloc[0]
    return float(low.idxmax().where(low.any(), np.inf).median())


def report() -> str:
    """Write clipped.md from the measurements."""
    return write("clipped", text())


def text() -> str:
    """Return the page."""
    ways = ratios(pd.read_csv(FILE))
    agree_later = ways[[all(near(row[delay], REFERENCE[delay], NEAR) for delay in (8, 16)) for _, row in ways.iterrows()]]
    agree = ways[[all(near(row[delay], expected, NEAR) for delay, expected in REFERENCE.items()) for _, row in ways.iterrows()]]
    distances = np.abs(np.log(ways[list(REFERENCE)] / list(REFERENCE.values()))).max(axis=1)
    nearest = ways.loc[distances.sort_values().index[:5]]
    medians = ways.groupby("measure", sort=False)[list(REFERENCE)].median()
    delays = [f"delay {delay}" for delay in REFERENCE]
    reference = ("reference", "", "", *(f"{expected:g}x" for expected in REFERENCE.values()), "")
    return fill(
        Path(__file__).with_suffix(".md"),
        readings=len(ways),
        noises=len(_LAWS),
        starts=len(_STARTS),
        measures=ways["measure"].nunique(),
        agree=len(agree),
        later=len(agree_later),
        later_rows=table(("noise", "start", "ratio of", *delays, "agrees"), _rows(agree_later))
        if len(agree_later)
        else "None.",
        seeds=len(_SEEDS),
        nearest=table(("noise", "start", "ratio of", *delays, "agrees"), [reference, *_rows(nearest)]),
        grows=sum(row[16] > row[8] > row[4] for _, row in ways.iterrows()),
        medians=table(("ratio of", *delays), ((name, *(f"{ratio:.3g}x" for ratio in row)) for name, row in medians.iterrows())),
        wins=", ".join(f"{(ways[delay] > 1).sum()} at delay {delay}" for delay in REFERENCE),
    )


def ratios(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return vanilla SGD's cost over that of clipping: a row for each noise, start and measure, a column per delay."""
    keys = ["noise", "start", "measure"]
    wide = measurements.pivot(index=[*keys, "delay"], columns="method", values="median")
    return (wide["vanilla"] / wide["clipped"]).unstack("delay").reset_index()


def _rows(ways: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    for _, row in ways.iterrows():
        agrees = all(near(row[delay], expected, NEAR) for delay, expected in REFERENCE.items())
        yield (
            row["noise"],
            row["start"],
            row["measure"],
            *(f"{row[delay]:.3g}x" for delay in REFERENCE),
            "yes" if agrees else "no",
        )
