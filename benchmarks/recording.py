"""How fast schedules are recorded."""

from collections.abc import Iterator

from benchmarks.common import Row, medians
from fred.component import Component
from fred.recorder import Recorder
from fred.timing.cluster import Cluster
from fred.timing.protocols.asynchronous import Asynchronous
from fred.timing.protocols.synchronous import Synchronous
from fred.timing.simulation import Simulation

STEPS = 200_000


def record(protocol: Component, workers: int, network: dict | None = None) -> None:
    """An asynchronous or synchronous run of STEPS gradients, timing only."""
    compute = {"name": "lognormal", "median": 0.1, "sigma": 0.3}
    cluster = Cluster(workers=workers, compute=compute, network=network)
    recorder = Recorder(workers, gradients=STEPS)
    simulation = Simulation(cluster, recorder, seed=0, model_bytes=1000)
    protocol.start(simulation)
    simulation.run()


def rows() -> Iterator[Row]:
    """Worker steps per second."""
    for name, protocol, workers, network, limit in (
        ("asynchronous, 16 workers", Asynchronous(), 16, None, 150_000),
        ("asynchronous, 1,000 workers", Asynchronous(), 1000, None, 150_000),
        ("synchronous, 16 workers", Synchronous(), 16, None, 150_000),
        ("synchronous, 2 of 16 as backup", Synchronous(backup_workers=2), 16, None, None),
        ("asynchronous, 16 workers, contended card", Asynchronous(), 16, {"server_bandwidth": 1e6}, None),
    ):
        (seconds,) = medians([lambda p=protocol, w=workers, n=network: record(p, w, n)], rounds=3)
        yield Row(f"recording: {name}", STEPS / seconds, "steps/s", limit, at_least=True)
