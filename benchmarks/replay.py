"""Replayed updates against the limit, a bare compiled loop of the same gradient and update; against inline; many workers."""

import statistics
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.common import Row, medians
from fred.inline import Inline
from fred.learning.data.sampling import Minibatches
from fred.learning.lower import lower
from fred.learning.models.mlp import MLP
from fred.learning.problem import Loss
from fred.learning.replay import replay
from fred.learning.server import Server
from fred.learning.servers.fasgd import FASGD
from fred.learning.servers.sasgd import SASGD
from fred.recorder import Recorder
from fred.schedule import Schedule, Verb
from fred.timing.cluster import Cluster
from fred.timing.protocols.asynchronous import Asynchronous
from fred.timing.simulation import Simulation

EXAMPLES = 4000  # random ones: their values make no difference to the time
SMALL, LARGE = (64, 32, 10), (784, 200, 10)
LIMITS = {(8, 16): 1.35, (32, 4): 1.2}  # (batch size, workers) -> largest ratio


class Case:
    """An asynchronous run ready to be replayed, its limit, and the same inline."""

    def __init__(
        self, widths: tuple[int, ...], batch_size: int, workers: int, server: Server, updates: int, marks: tuple[int, ...] = ()
    ):
        rng = np.random.default_rng(0)
        self.server, self.updates, self.workers = server, updates, workers
        self.loss = Loss(MLP(hidden=widths[1:-1]), classifies=True)
        self.params = self.loss.model.init(jax.random.key(0), widths[:1], widths[-1])
        inputs = jnp.asarray(rng.normal(size=(EXAMPLES, widths[0])), jnp.float32)
        self.examples = inputs, jnp.asarray(rng.integers(0, widths[-1], EXAMPLES), jnp.int32)
        self.batches = Minibatches(0, batch_size, EXAMPLES, "replacement", workers)
        schedule = self.record(Recorder(workers, updates=updates))
        pushes = schedule.rows(Verb.PUSH)
        self.program = lower(schedule, np.array([*(pushes[mark] for mark in marks), len(schedule)]))
        self.timestamps = jnp.asarray(schedule["timestamp"][pushes], jnp.int32)
        self.indices = jnp.asarray(self.batches.indices(schedule["worker"][pushes], schedule["step"][pushes], 0))
        self._bare = jax.jit(self._bare_loop)

    def record(self, recorder: Recorder) -> Schedule:
        cluster = Cluster(workers=self.workers, compute={"name": "lognormal", "median": 1.0, "sigma": 0.3})
        simulation = Simulation(cluster, recorder, seed=0, model_bytes=0)
        Asynchronous().start(simulation)
        simulation.run()
        return recorder.schedule(simulation.now)

    def _bare_loop(self, state, examples, indices, timestamps):
        def update(state, row):
            grads = self.loss.gradient(state.params, examples, row[0])
            return self.server.apply_update(state, grads, row[1], 0), None

        return jax.lax.scan(update, state, (indices, timestamps))[0]

    def limit(self) -> None:
        """The same number of the same gradients and updates, minibatches given, nothing else."""
        state = self._bare(self.server.init(self.params), self.examples, self.indices, self.timestamps)
        jax.block_until_ready(state)

    def replay(self) -> None:
        """Everything that replaying takes, drawing the minibatches included."""
        for state in replay(self.program, self.server, self.loss, self.params, self.examples, self.batches):
            jax.block_until_ready(state)

    def later(self) -> float:
        """Seconds that replaying takes from the mark to the end."""
        states = replay(self.program, self.server, self.loss, self.params, self.examples, self.batches)
        jax.block_until_ready(next(states))
        start = time.perf_counter()
        jax.block_until_ready(next(states))
        return time.perf_counter() - start

    def lowering(self) -> None:
        """Recording the schedule and turning it into a program."""
        schedule = self.record(Recorder(self.workers, updates=self.updates))
        lower(schedule, np.array([len(schedule)]))

    def inline(self) -> None:
        """Recording and computing at once."""
        parts = {"server": self.server, "loss": self.loss, "params": self.params, "examples": self.examples}
        never = {"observe": lambda _: False, "every": ("updates", 10**9)}
        inline = Inline(self.workers, self.updates, np.inf, batches=self.batches, **parts, **never)
        self.record(inline)
        jax.block_until_ready(inline.state)


def rows() -> Iterator[Row]:
    """Ratios to the limit for two models, three splits of 128 examples, two algorithms."""
    for widths, updates in ((SMALL, 20_000), (LARGE, 4_000)):
        for batch_size, workers in ((1, 128), (8, 16), (32, 4)):
            for algorithm in (SASGD, FASGD):
                case = Case(widths, batch_size, workers, algorithm(learning_rate=0.01), updates)
                bare, replayed, lowered = medians([case.limit, case.replay, case.lowering])
                name = f"{'-'.join(map(str, widths))}, {batch_size} x {workers} workers, {algorithm.__name__}"
                yield Row(f"replay / limit: {name}", replayed / bare, "x", LIMITS.get((batch_size, workers)))
                if batch_size == 8:
                    yield Row(f"  limit: {name}", bare / updates * 1e6, "us/update")
                    yield Row(f"  recording + lowering: {name}", lowered / updates * 1e6, "us/update")
                    few = Case(widths, batch_size, workers, algorithm(learning_rate=0.01), 2_000)
                    inline, again = medians([few.inline, few.replay], rounds=3)
                    yield Row(f"  inline / replay: {name}", inline / again, "x")
    yield from many_workers()


def many_workers() -> Iterator[Row]:
    """Cost of an update with 10,000 workers against 4: updates 20,000 to 50,000, when each worker has been served before."""
    for algorithm in (SASGD, FASGD):
        cases = [Case(LARGE, 8, workers, algorithm(learning_rate=0.01), 50_000, marks=(20_000,)) for workers in (4, 10_000)]
        few, many = (
            statistics.median(each) for each in zip(*([case.later() for case in cases] for _ in range(3)), strict=True)
        )
        yield Row(f"update with 10,000 workers / with 4: 784-200-10, batch 8, {algorithm.__name__}", many / few, "x", 1.3)
