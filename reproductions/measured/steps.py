"""Step times of trainings, measured by others, and FRED's."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import fred

FILE = Path(__file__).parent / "steps.csv"
ALGORITHMS = {"ddp": "allreduce-sgd", "local SGD": "local-sgd", "DiLoCo": "diloco"}


class Step(NamedTuple):
    """The step time of a training.

    Args:
        source: where it was measured.
        system: `ddp` for all that average gradients in each step, `local SGD` or `DiLoCo`.
        program: what ran, such as `Horovod`.
        members: number of workers.
        size: bytes of the model.
        bandwidth: of each worker, bytes/s.
        period: steps from one averaging to the next.
        buckets: parts in which gradients are averaged; 1: after the backward pass.
        compute: time of a step without communication, s; None: not read yet.
        seconds: measured time of a step, the mean over a period, s; None: not read yet.
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
    compute: float | None
    seconds: float | None
    is_blind: bool


def read(path: Path = FILE) -> Iterator[Step]:
    """Yield the steps in a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            times = (float(row[name]) / 1e3 if row[name] else None for name in ("compute_ms", "milliseconds"))
            numbers = (int(row["members"]), int(row["bytes"]), float(row["gbit_per_s"]) * 1e9 / 8, int(row["period"]))
            yield Step(
                row["source"], row["system"], row["program"], *numbers, int(row["buckets"]), *times, row["blind"] == "yes"
            )


def predicted(step: Step, collective: str, buckets: int = 1) -> float:
    """Return the time of a step that FRED simulates, s.

    Args:
        step: its `seconds` are not used.
        collective, buckets: options of the network.
    """
    assert step.compute is not None
    network = {"bandwidth": step.bandwidth, "collective": collective, "buckets": buckets, "message_bytes": step.size}
    compute = {"name": "constant", "seconds": step.compute}
    algorithm = ALGORITHMS[step.system]
    averages_each = algorithm == "allreduce-sgd"
    updates = 1 if averages_each else step.members * step.period + (algorithm == "diloco")  # in a period; an outer step is one
    ends = []
    for periods in (1, 2):
        scenario = fred.scenario(
            cluster={"workers": step.members, "compute": compute, "network": network},
            stop={"updates": updates * periods + (not averages_each)},
            algorithm={"name": algorithm, "learning_rate": 0.1},
            **({} if averages_each else {"protocol": {"period": step.period}}),
        )
        ends.append(float(fred.run(scenario).summary["virtual_seconds"].iloc[0]))
    return (ends[1] - ends[0]) / step.period
