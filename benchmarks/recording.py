"""How fast schedules are recorded."""

import multiprocessing
import resource
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from types import SimpleNamespace

import simpy

from benchmarks.common import Row, medians, record
from fred.cluster.cluster import Cluster
from fred.cluster.durations import durations
from fred.cluster.latency import LogNormal
from fred.protocols.asynchronous import Asynchronous
from fred.protocols.gossip import Gossip
from fred.protocols.local_steps import OuterSteps
from fred.protocols.protocol import Protocol
from fred.protocols.synchronous import Cutoff, Synchronous
from fred.systems.ringmaster import BoundedDelay
from fred.systems.wagma_sgd import GroupAveraging
from fred.timing.copies import Copy, Gradient
from fred.timing.loop import Loop
from fred.timing.recorder import _ROW as ROW

STEPS = 200_000
_COMPUTE = {"name": "lognormal", "median": 0.1, "sigma": 0.3}


def record_run(protocol: Protocol, workers: int, network: dict | None = None, gradients: int = STEPS, nodes: int = 1) -> None:
    """Record a run of this number of gradients, timing only."""
    record(Cluster(workers=workers, nodes=nodes, compute=_COMPUTE, network=network), protocol, gradients=gradients)


def bare(workers: int) -> None:
    """Run as many steps of bare SimPy processes, each with two timeouts: FRED's durations, and 0."""
    latency = LogNormal(median=0.1, sigma=0.3)
    env = simpy.Environment(initial_time=0)

    def work(draw: Callable[[], int]) -> Generator[simpy.Event, None, None]:
        while True:
            yield env.timeout(draw())
            yield env.timeout(0)

    for draw in durations(0, "compute", [latency] * workers, [1.0] * workers):
        env.process(work(draw))
    for _ in range(2 * STEPS):
        env.step()


def by_one_function(workers: int) -> None:
    """Make the asynchronous rows, copies and gradients in one function without calls, checks or a protocol."""
    latency, env, ends = LogNormal(median=0.1, sigma=0.3), Loop(), SimpleNamespace(full=False)
    table, steps, latest = bytearray(), [0] * workers, [Gradient(0, 0, Copy(0, 0), 0, 0)] * workers
    clock = mailboxes = 0

    def work(worker: int, draw: Callable[[], int]) -> Generator[int, None, None]:
        nonlocal clock, mailboxes, table
        while True:
            now, copy, step = env._now, Copy(mailboxes, clock), steps[worker]
            mailboxes += 1
            table += ROW.pack(now, 0, worker, 0, 0, copy.mailbox, -1, step, clock, 0, now, now, 1000, 1, 1.0, 0.0)
            steps[worker] = step + 1
            duration = draw()
            latest[worker] = gradient = Gradient(worker, step, copy, now, now + duration)
            yield duration
            end, late = env._now, clock - copy.timestamp
            part = (copy.mailbox, -1, gradient.step, copy.timestamp, late, gradient.begin, end)
            table += ROW.pack(end, 1, worker, 0, 0, *part, 1000, 1, 1.0, 0.0)
            clock += 1
            ends.full = clock >= STEPS

    for worker, draw in enumerate(durations(0, "compute", [latency] * workers, [1.0] * workers)):
        env.process(work(worker, draw))
    while not ends.full:
        env.happen(STEPS, ends)


def rows() -> Iterator[Row]:
    """Yield worker steps per second, and their distance from bare SimPy."""
    for name, protocol, workers, network, limit in (
        ("synchronous, 16 workers", Synchronous(), 16, None, 3.3),
        ("synchronous, 2 of 16 as backup", Synchronous(backup_workers=2), 16, None, None),
        ("asynchronous, 16 workers, contended card", Asynchronous(), 16, {"server_bandwidth": 1e6}, 5),
    ):
        floor, seconds = medians([partial(bare, workers), partial(record_run, protocol, workers, network)], rounds=3)
        yield Row(f"recording: {name}", STEPS / seconds, "steps/s")
        yield Row("  recording / bare SimPy", seconds / floor, "x", limit)
    for workers in (16, 1000):
        ways = (bare, by_one_function, partial(record_run, Asynchronous()))
        floor, least, recorded = medians([partial(way, workers) for way in ways])
        yield Row(f"bare SimPy, two timeouts in each step: {workers:,} workers", STEPS / floor, "steps/s")
        yield Row(f"recording: asynchronous, {workers:,} workers", STEPS / recorded, "steps/s")
        # The limit is not kept. A worker's loop without `fetch`, `compute` and `deliver` took 1.64, one that also writes its
        # rows itself 1.47 (1.95 and 1.72 with 1,000 workers). Both are special cases of what protocols are written in.
        yield Row(f"recording / bare SimPy: asynchronous, {workers:,} workers", recorded / floor, "x", 1.5)
        yield Row("  the same rows, copies and gradients made by one function", least / floor, "x")
    yield from sharing()


def long_rows() -> Iterator[Row]:
    """Yield what takes a minute or more."""
    yield from aborting()
    yield from large()


def sharing() -> Iterator[Row]:
    """Yield the time of messages on links that are shared fairly and are busy for most of the time, in bare SimPy's steps."""
    groups = GroupAveraging(group_size=8, period=None)
    cards = {"bandwidth": 2.5e4, "server_bandwidth": 8e5}
    for name, protocol, messages, workers, nodes, network, limit in (  # messages for each step
        ("16 workers", Asynchronous(), 2, 16, 1, {"server_bandwidth": 2e5}, 20),
        ("64 workers on 8 nodes", Asynchronous(), 2, 64, 8, {**cards, "node_bandwidth": 1e5}, 50),
        ("a ring of 64 workers", Gossip(topology="ring"), 2, 64, 1, {"bandwidth": 2.5e4}, 50),
        ("groups of 8 workers on 8 nodes", groups, 3, 64, 8, {"bandwidth": 2.5e4, "node_bandwidth": 1e5}, 50),
        ("1,000 workers", Asynchronous(), 2, 1000, 1, {"bandwidth": 2.5e4, "server_bandwidth": 1.25e7}, 170),
    ):
        steps = STEPS // 10
        recorded = partial(record_run, protocol, workers, {"sharing": "fair", **network}, steps, nodes)
        floor, seconds = medians([partial(bare, workers), recorded], rounds=3)
        yield Row(f"recording, links shared fairly: {name}", messages * steps / seconds, "messages/s")
        yield Row("  a message / a step of bare SimPy", seconds / (messages * steps) / (floor / STEPS), "x", limit)


def aborting() -> Iterator[Row]:
    """Yield the cost of aborting, in runs without and with aborted work; many short runs in turn."""
    for name, workers, limit, baseline, variant in (
        ("Ringmaster, no R / asynchronous", 16, 0.98, Asynchronous(), BoundedDelay(threshold=10**9)),
        ("Ringmaster, no R / asynchronous", 1000, 0.98, Asynchronous(), BoundedDelay(threshold=10**9)),
        ("synchronous, interrupt / finish", 16, 0.98, Synchronous(), Synchronous(late="interrupt")),
        ("Ringmaster, R = 2,000 / asynchronous", 1000, 0.6, Asynchronous(), BoundedDelay(threshold=2000)),
        ("Ringmaster, R = 1,000 / asynchronous", 1000, 0.6, Asynchronous(), BoundedDelay(threshold=1000)),
    ):
        baseline_seconds, variant_seconds = medians(
            [partial(record_run, protocol, workers, None, STEPS // 4) for protocol in (baseline, variant)], rounds=21
        )
        yield Row(f"recording: {name}, {workers:,} workers", baseline_seconds / variant_seconds, "x", limit, at_least=True)


def large() -> Iterator[Row]:
    """Yield whole runs of the size of the papers' clusters, and larger; each in a process of its own, for its memory."""
    for name, protocol, workers, gradients in (
        ("WAGMA-SGD, 1,024 workers, 1,000 iterations", GroupAveraging(), 1024, 1024 * 1000),
        ("Cutoff SGD, oracle, 2,175 workers, 1,000 rounds", Cutoff(rule={"name": "oracle"}), 2175, None),
        ("Cutoff SGD, Elfving, 2,175 workers, 1,000 rounds", Cutoff(rule={"name": "elfving"}), 2175, None),
        ("DiLoCo, 64 workers, 200 rounds of 50 updates", OuterSteps(period=50), 64, 64 * 200 * 50),
        ("ASGD, 100,000 workers, 1,000,000 updates", Asynchronous(), 100_000, 1_000_000),
    ):
        seconds, memory = measure_run(protocol, workers, gradients)
        yield Row(f"timing only: {name}", seconds, "s")
        yield Row("  its memory", memory, "GiB", 4 if workers == 100_000 else None)


def measure_run(protocol: Protocol, workers: int, gradients: int | None) -> tuple[float, float]:
    """Return seconds and GiB of a run in a process of its own; without a number of gradients, of 1,000 updates."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measure, protocol, workers, gradients).result()


def _measure(protocol: Protocol, workers: int, gradients: int | None) -> tuple[float, float]:
    start = time.perf_counter()
    limits = {"updates": 1000} if gradients is None else {"gradients": gradients}
    recorder, end = record(Cluster(workers=workers, compute=_COMPUTE), protocol, **limits)
    recorder.schedule(end).counts()
    return time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
