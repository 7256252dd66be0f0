"""What a slow network costs in the simulation: virtual time of a step, which published measurements can be held against."""

from collections.abc import Iterator

from benchmarks.common import Row, record
from fred.cluster.cluster import Cluster
from fred.protocols.local_steps import LocalSteps
from fred.protocols.protocol import Protocol
from fred.protocols.synchronous import Allreduce
from fred.schedule.schedule import Verb

PARAMETERS, WORKERS, STEP = 30_800_000, 4, 0.0252  # of 32 bits each; s of computing
PERIODS = (1, 8, 32, 128)
MEGABITS = (50, 200, 1000, 5000)  # a second, of every worker's link


def rows() -> Iterator[Row]:
    """Yield mean milliseconds per step of Allreduce-SGD and local SGD, by ring collectives without latency."""
    for megabits in MEGABITS:
        for name, protocol in (
            ("Allreduce-SGD", Allreduce()),
            *((f"local SGD, H = {h}", LocalSteps(period=h)) for h in PERIODS),
        ):
            milliseconds = 1000 * seconds_per_step(protocol, megabits)
            yield Row(f"virtual time: {name}, 4 workers, 30.8 M, {megabits:,} Mbit/s", milliseconds, "ms/step")


def seconds_per_step(protocol: Protocol, megabits: float) -> float:
    """Return the time of a step, s, in a run of whole periods."""
    network = {"bandwidth": megabits * 1e6 / 8, "message_bytes": 4 * PARAMETERS, "collective": "ring"}
    cluster = Cluster(workers=WORKERS, compute={"name": "constant", "seconds": STEP}, network=network)
    steps = 2 * max(PERIODS)
    recorder, end = record(cluster, protocol, 1, gradients=WORKERS * (steps + 1))  # the last begins when all is over
    schedule = recorder.schedule(end)
    return float(schedule["begin_ns"][schedule.rows(Verb.PUSH, Verb.ADD)].max()) / 1e9 / steps
