"""Step times of trainings, measured by others, and FRED's."""

import csv
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from scipy.optimize import brentq

import fred
from fred.cluster.bandwidths import PRESETS, SPEEDS

FILE = Path(__file__).parent / "steps.csv"
ALGORITHMS = {"ddp": "allreduce-sgd", "servers": "ssgd", "local SGD": "local-sgd", "DiLoCo": "diloco"}
FORECASTS = ("ring", "nccl", "nccl with buckets")  # options of the network
_SHARES = (0.05, 2.0)  # of the nominal bandwidth, between which one is fitted
_SAME_CARD = 0.02  # a bandwidth that differs from a card's by less is the card's
_EQUAL, _TIE = 0.05, 0.01  # two measured times that differ by less are not ranked; predicted ones are not told apart


class Step(NamedTuple):
    """The step time of a training.

    Args:
        source: where it was measured.
        system: `ddp` for allreduces of gradients in each step, `servers` for as many parameter servers as workers, which hold
            equal parts, `local SGD` or `DiLoCo`.
        program: what ran, such as `Horovod`, and the model if the source has several.
        members: number of workers.
        size: bytes of the model.
        bandwidth: of each worker, bytes/s; of a machine, if its workers pass one message on to the next.
        period: steps from one averaging to the next.
        buckets: parts in which gradients are averaged; 1: after the backward pass.
        compute: time of a step without communication, s.
        seconds: measured time of a step, the mean over a period, s.
        is_blind: True if it was predicted before it was read.
    """

    source: str
    system: str
    program: str
    members: int
    size: int
    bandwidth: float
    period: int
    buckets: int
    compute: float
    seconds: float
    is_blind: bool


def read_steps(path: Path = FILE) -> Iterator[Step]:
    """Yield the steps in a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield Step(
                row["source"],
                row["system"],
                row["program"],
                members=int(row["members"]),
                size=int(row["bytes"]),
                bandwidth=float(row["gbit_per_s"]) * 1e9 / 8,
                period=int(row["period"]),
                buckets=int(row["buckets"]),
                compute=float(row["compute_ms"]) / 1e3,
                seconds=float(row["milliseconds"]) / 1e3,
                is_blind=row["blind"] == "yes",
            )


def predicted(step: Step, collective: str, buckets: int = 1) -> float:
    """Return the time of a step that FRED simulates, s.

    Args:
        step: its `seconds` are not used.
        collective, buckets: options of the network.
    """
    network = {"bandwidth": step.bandwidth, "collective": collective, "buckets": buckets, "message_bytes": step.size}
    compute = {"name": "constant", "seconds": step.compute}
    servers = {"servers": step.members} if step.system == "servers" else {}
    network |= {"server_bandwidth": step.bandwidth} if servers else {}
    algorithm = ALGORITHMS[step.system]
    averages_each = step.system in ("ddp", "servers")
    updates = 1 if averages_each else step.members * step.period + (algorithm == "diloco")  # in a period; an outer step is one
    ends = []
    for periods in (1, 2):
        scenario = fred.scenario(
            cluster={"workers": step.members, "compute": compute, "network": network, **servers},
            stop={"updates": updates * periods + (not averages_each)},
            algorithm={"name": algorithm, "learning_rate": 0.1},
            **({} if averages_each else {"protocol": {"period": step.period}}),
        )
        ends.append(float(fred.run(scenario).summary["virtual_seconds"].iloc[0]))
    return (ends[1] - ends[0]) / step.period


def table_of(steps: Sequence[Step]) -> pd.DataFrame:
    """Return the steps with the predicted times, s; one column for each of `FORECASTS`."""
    rows = []
    for step in steps:
        times = (predicted(step, "ring"), predicted(step, "nccl"), predicted(step, "nccl", step.buckets))
        rows.append({**step._asdict(), **dict(zip(FORECASTS, times, strict=True))})
    return pd.DataFrame(rows)


def transferred(steps: Sequence[Step]) -> Iterator[dict[str, object]]:
    """Yield how well steps are predicted by the bandwidth that another one tells: with `buckets`, and without.

    Args:
        steps: of one program on one network; the bandwidth is fitted to the largest model, with the most members.
    """
    largest = max(steps, key=lambda step: (step.size, step.members))
    for overlaps in (True, False):

        def error(share: float, step: Step = largest, overlaps: bool = overlaps) -> float:
            buckets = step.buckets if overlaps else 1
            return predicted(step._replace(bandwidth=step.bandwidth * share), "nccl", buckets) / step.seconds - 1

        if error(_SHARES[0]) * error(_SHARES[1]) > 0:
            continue  # no bandwidth explains it
        share = brentq(error, *_SHARES, xtol=1e-3)
        for step in steps:
            if step is not largest:
                yield {
                    "overlaps": overlaps,
                    "share": share,
                    "members": step.members,
                    "bytes": step.size,
                    "error": error(share, step),
                }


def judged_by_presets(steps: Sequence[Step]) -> Iterator[dict[str, object]]:
    """Yield how well steps whose gradients are averaged in parts are predicted by the presets for cards of their bandwidth.

    Args:
        steps: steps of any programs.
    """
    for name, preset in PRESETS.items():
        card = SPEEDS.get(preset.options["bandwidth"], math.nan)
        for step in steps:
            if step.system == "ddp" and step.buckets > 1 and abs(step.bandwidth / card - 1) < _SAME_CARD:
                scenario = fred.scenario(
                    cluster={
                        "workers": step.members,
                        "compute": {"name": "constant", "seconds": step.compute},
                        "network": {"name": name, "message_bytes": step.size},
                    },
                    stop={"updates": 1},
                    algorithm={"name": "allreduce-sgd", "learning_rate": 0.1},
                )
                seconds = float(fred.run(scenario).summary["virtual_seconds"].iloc[0])
                program = f"{step.source.split('/')[0]}: {step.program.split(',')[0]}"
                yield {"preset": name, "program": program, "error": seconds / step.seconds - 1}


def programs(steps: Sequence[Step]) -> Iterator[tuple[str, Sequence[Step]]]:
    """Yield programs that overlap communication with the backward pass, and their steps with several models on one network."""
    groups: dict[tuple[str, str, float], list[Step]] = defaultdict(list)
    for step in steps:
        if step.system == "ddp":
            groups[step.source, step.program.split(",")[0], step.bandwidth].append(step)
    for (source, program, bandwidth), program_steps in groups.items():
        if len({step.size for step in program_steps}) > 1 and max(step.buckets for step in program_steps) > 1:
            yield f"{source}: {program}, {bandwidth * 8e-9:g} Gbit/s", program_steps


def ranked(steps: pd.DataFrame, forecast: str) -> tuple[int, int, int]:
    """Return how many pairs of steps at one bandwidth are ranked as measured, have equal predictions, and are ranked wrongly.

    Pairs of which the slower one is measured as less than 5 % slower are left out. Predicted times that differ by less than
    1 % count as equal.

    Args:
        steps: steps of one source, as from `table_of`.
        forecast: column with the predicted times.

    >>> steps = pd.DataFrame({"bandwidth": 1, "seconds": [1.0, 1.01, 2.0], "nccl": [1.0, 3.0, 2.0]})
    >>> ranked(steps, "nccl")
    (1, 0, 1)
    """
    right = ties = wrong = 0
    for _, group in steps.groupby("bandwidth"):
        for faster, slower in combinations(sorted(group[["seconds", forecast]].itertuples(index=False, name=None)), 2):
            if slower[0] / faster[0] > 1 + _EQUAL:
                right += slower[1] / faster[1] > 1 + _TIE
                ties += 1 / (1 + _TIE) <= slower[1] / faster[1] <= 1 + _TIE
                wrong += slower[1] / faster[1] < 1 / (1 + _TIE)
    return int(right), int(ties), int(wrong)
