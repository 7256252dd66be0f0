"""Replayed updates against the limit, a bare compiled loop of the same gradient and update; against inline; many workers."""

import statistics
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Row, medians, record
from fred.cluster.cluster import Cluster
from fred.cluster.contention import RandomDelays
from fred.learning.loss import CrossEntropy, Loss
from fred.learning.models.built_in_models import MLP, Transformer
from fred.learning.models.model import Model
from fred.learning.server import Server, State
from fred.protocols.asynchronous import Asynchronous
from fred.protocols.gates import Gated, Statistical
from fred.protocols.gossip import Exponential, Gossip
from fred.protocols.local_steps import OuterSteps
from fred.protocols.protocol import Protocol
from fred.replay.arithmetic import Arithmetic
from fred.replay.helpers import replay
from fred.replay.interpreter import Interpreter, jitted
from fred.replay.lower import lower
from fred.replay.machine import ReplayProgress, compiled
from fred.replay.phases import Op, Program
from fred.schedule.minibatches import Minibatches
from fred.schedule.schedule import Schedule
from fred.systems.ad_psgd import Pairwise
from fred.systems.asgd import BFASGD, FASGD, SASGD
from fred.systems.decentralized import SGP
from fred.systems.diloco import DiLoCo
from fred.systems.psp import PSPSGD, Partial
from fred.systems.wagma_sgd import GroupAveraging
from fred.timing.recorder import Listener

EXAMPLES = 4000  # random ones: their values make no difference to the time
SMALL, LARGE, DEEP = (64, 32, 10), (784, 200, 10), (784, 200, 200, 200, 10)
LIMITS = {(8, 16): 1.15, (32, 4): 1.1, (1, 128): 1.3, (128, 250): 1.1}  # (batch size, workers) -> largest ratio, large model
TRANSFORMERS = ((2, 64), (4, 128))  # layers, width
CONTEXT, TOKENS = 64, 64


class Work(NamedTuple):
    """A model, and examples for it."""

    model: Model
    inputs: NDArray[Any]
    answers: NDArray[Any]
    outputs: int


def perceptron(widths: tuple[int, ...]) -> Work:
    """Return a perceptron with these widths, from inputs to classes."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(EXAMPLES, widths[0]))
    return Work(MLP(hidden=widths[1:-1]), inputs, rng.integers(0, widths[-1], EXAMPLES), widths[-1])


def transformer(layers: int, width: int) -> Work:
    """Return a transformer with four heads on sequences of tokens."""
    tokens = np.random.default_rng(0).integers(0, TOKENS, (EXAMPLES, CONTEXT + 1))
    return Work(Transformer(layers=layers, width=width, heads=4), tokens[:, :-1], tokens[:, 1:], TOKENS)


class Case:
    """A run ready to be replayed; its limit, a bare loop of as many gradients and updates; and the same inline."""

    def __init__(
        self,
        work: Work,
        batch_size: int,
        cluster: Cluster,
        server: Server,
        gradients: int,
        protocol: Protocol | None = None,
        marks: tuple[int, ...] = (),
    ):
        self.server, self.gradients, self.cluster, self.protocol = server, gradients, cluster, protocol or Asynchronous()
        self.layout = self.protocol.layout(cluster)
        loss = Loss(work.model, CrossEntropy())
        self.params = loss.model.init(jax.random.key(0), work.inputs.shape[1:], work.outputs)
        context = CONTEXT if work.inputs.dtype.kind == "i" else 1
        self.arithmetic = Arithmetic.build(server, loss, self.params, self.layout, cluster.size, batch_size, context)
        self.examples = jnp.asarray(work.inputs, jnp.float32), jnp.asarray(work.answers, jnp.int32)
        self.batches = Minibatches(0, batch_size, EXAMPLES, "replacement", cluster.size)
        schedule = self.inline() if self.protocol.needs_values else self.record()
        uses = schedule.ledger.uses
        self.program = self.lowered(schedule, np.array([*(uses[mark] for mark in marks), len(schedule)]))
        uses = uses[np.sort(np.unique(schedule.ledger.gradients, return_index=True)[1])]
        self.timestamps = jnp.asarray(np.arange(len(uses)) - schedule["staleness"][uses], jnp.int32)
        self.indices = jnp.asarray(self.batches.indices(schedule["worker"][uses], schedule["step"][uses], 0))
        self._bare = jax.jit(self._bare_loop)
        self._delayed = jax.jit(self._delayed_loop, donate_argnums=1)
        self._separate = jax.jit(self._separate_loop, donate_argnums=1)

    def record(self, listener: Listener | None = None) -> Schedule:
        """Return the schedule."""
        recorder, end = record(self.cluster, self.protocol, gradients=self.gradients, listener=listener)
        return recorder.schedule(end)

    def lowered(self, schedule: Schedule, marks: NDArray[np.int64]) -> Program:
        """Return the program."""
        arithmetic = self.arithmetic
        return lower(schedule, marks, arithmetic.blocks.group_of_each, arithmetic.hooks, turns=arithmetic.stores_gradients)

    def _bare_loop(self, state, examples, indices, timestamps):
        def update(state, row):
            grads = self.arithmetic.loss.gradient(self.server.model(state.params), examples, row[0])
            return self.server.apply_update(state, grads, row[1], 0), None

        return jax.lax.scan(update, state, (indices, timestamps))[0]

    def start(self) -> State:
        """Return the server's state."""
        return self.server.init(self.params, self.cluster.size)

    def limit(self) -> None:
        """Compute as many of the same gradients and updates, minibatches given, and nothing else."""
        state = self._bare(self.start(), self.examples, self.indices, self.timestamps)
        jax.block_until_ready(state)

    def floor(self) -> None:
        """Run the limit's loop with each gradient stored for as many updates as workers: the least cost of staleness."""
        stored = jax.tree.map(lambda leaf: jnp.zeros((self.cluster.size, *leaf.shape)), self.params)
        state = self._delayed(self.start(), stored, self.examples, self.indices, self.timestamps)
        jax.block_until_ready(state)

    def _delayed_loop(self, state, stored, examples, indices, timestamps):
        def update(carry, row):
            state, stored = carry
            grads = jax.tree.map(lambda leaf: leaf[row[2]], stored)
            state = self.server.apply_update(state, grads, row[1], 0)
            new = self.arithmetic.loss.gradient(state.params, examples, row[0])
            return (state, jax.tree.map(lambda leaf, g: leaf.at[row[2]].set(g), stored, new)), None

        slots = jnp.arange(len(indices)) % self.cluster.size
        return jax.lax.scan(update, (state, stored), (indices, timestamps, slots))[0]

    def run_separate_models(self) -> None:
        """Run the limit's loop with parameters for each worker, which are never averaged."""
        models = jax.tree.map(lambda leaf: jnp.stack([leaf] * self.cluster.size), self.params)
        jax.block_until_ready(self._separate(self.start(), models, self.examples, self.indices, self.timestamps))

    def _separate_loop(self, state, models, examples, indices, timestamps):
        def update(models, row):
            worker = row[2]
            params = jax.tree.map(lambda leaf: leaf[worker], models)
            grads = self.arithmetic.loss.gradient(params, examples, row[0])
            new = self.server.apply_update(state.replace(params=params), grads, row[1], 0).params
            return jax.tree.map(lambda leaf, leaf_params: leaf.at[worker].set(leaf_params), models, new), None

        return jax.lax.scan(update, models, (indices, timestamps, jnp.arange(len(indices)) % self.cluster.size))[0]

    def mixing(self) -> None:
        """Run the program's mixes alone, of flat models: each reads its sources and writes one, about the least they can do."""
        (registers,) = self.program.registers
        size = sum(leaf.size for leaf in jax.tree.leaves(self.params))
        rows = jax.block_until_ready(jnp.zeros((registers, size)))
        for kind, operands in self.program.operands.items():
            if kind.op == Op.MIX:
                for count in np.unique(operands["count"]).tolist():
                    rows_of_count = operands["count"] == count
                    sources, weights = (operands[name][rows_of_count, :count] for name in ("sources", "weights"))
                    rows = self._mixed(rows, sources, weights.astype(np.float32), operands["into"][rows_of_count])
        jax.block_until_ready(rows)

    @staticmethod
    @partial(jax.jit, donate_argnums=0)
    def _mixed(rows, sources, weights, targets):
        def mix(i, rows):
            parts = [rows[sources[i, k]] * weights[i, k] for k in range(sources.shape[1])]
            return rows.at[targets[i]].set(sum(parts[1:], parts[0]))

        return jax.lax.fori_loop(0, len(targets), mix, rows)

    def _marks(self, cores: int = 1) -> Iterator[ReplayProgress]:
        return replay(self.program, self.arithmetic, [self.params], self.examples, self.batches, cores=cores)

    def replay(self, cores: int = 1) -> None:
        """Replay the whole program, drawing the minibatches included."""
        for mark in self._marks(cores):
            jax.block_until_ready(mark.carry)

    def time_second_half(self) -> float:
        """Return the seconds that replaying takes from the mark to the end."""
        marks = self._marks()
        jax.block_until_ready(next(marks).carry)
        start = time.perf_counter()
        jax.block_until_ready(next(marks).carry)
        return time.perf_counter() - start

    def lowering(self) -> None:
        """Record the schedule, and turn it into a program."""
        schedule = self.record()
        self.lowered(schedule, np.array([len(schedule)]))

    def inline(self) -> Schedule:
        """Record and compute at the same time."""
        models = [self.params]
        interpreter = Interpreter(self.arithmetic, models, self.layout.replicas, self.examples, self.batches)
        schedule = self.record(interpreter)
        jax.block_until_ready(interpreter.memory.states)
        return schedule

    def by_hand(self) -> None:
        """Run B-FASGD as a handwritten loop of the same jitted steps, in a schedule's order."""
        steps, state = jitted(self.arithmetic), self.start()
        parameters_of: dict[int, tuple[Any, int]] = {}  # worker -> parameters, clock
        for number in range(self.gradients):
            worker = number % self.cluster.size
            params, timestamp = parameters_of.get(worker, (state.params, 0))
            (message,), _ = steps["message"]([params], self.examples, self.indices[number], ())
            float(steps["statistic"](state)), float(steps["statistic"](state))  # one for each gate
            state = steps["apply"](state, message.values, timestamp, worker)
            parameters_of[worker] = state.params, number + 1
        jax.block_until_ready(state)


def workers(number: int, **options: object) -> Cluster:
    """Return a cluster without a network."""
    return Cluster(workers=number, compute={"name": "lognormal", "median": 1.0, "sigma": 0.3}, **options)


def rows() -> Iterator[Row]:
    """Yield ratios to the limit of the large perceptron with batches of 8, and of transformers."""
    yield from perceptrons(LARGE, 4_000, [(8, 16)])
    yield from language()


def long_rows() -> Iterator[Row]:
    """Yield ratios to the limit for two models, three splits of 128 examples, two algorithms; then the hard systems."""
    yield from perceptrons(SMALL, 20_000, [(1, 128), (8, 16), (32, 4)])
    yield from perceptrons(LARGE, 4_000, [split for split in LIMITS if split != (8, 16)])
    yield from rates()
    yield from systems()
    yield from local_steps()
    yield from many_workers()


def perceptrons(widths: tuple[int, ...], updates: int, splits: list[tuple[int, int]]) -> Iterator[Row]:
    """Yield ratios to the limit of two algorithms for each batch size and number of workers."""
    for batch_size, number in splits:
        for algorithm in (SASGD, FASGD):
            case = Case(perceptron(widths), batch_size, workers(number), algorithm(learning_rate=0.01), updates)
            bare, replayed, lowered, floor = medians([case.limit, case.replay, case.lowering, case.floor])
            name = f"{'-'.join(map(str, widths))}, {batch_size} x {number} workers, {algorithm.__name__}"
            yield Row(f"replay / limit: {name}", replayed / bare, "x", LIMITS[batch_size, number] if widths == LARGE else None)
            yield Row(f"  a bare loop that keeps each gradient / limit: {name}", floor / bare, "x")
            if batch_size == 8:
                yield Row(f"  limit: {name}", bare / updates * 1e6, "us/update")
                yield Row(f"  recording + lowering: {name}", lowered / updates * 1e6, "us/update")
                few = Case(perceptron(widths), batch_size, workers(number), algorithm(learning_rate=0.01), 2_000)
                inline, replayed_few = medians([few.inline, few.replay], rounds=3)
                yield Row(f"  inline / replay: {name}", inline / replayed_few, "x")


def rates() -> Iterator[Row]:
    """Yield the number of programs that are compiled for eight learning rates of one run."""
    compiled.cache_clear()
    for rate in np.geomspace(0.001, 0.1, 8).tolist():
        Case(perceptron(SMALL), 8, workers(16), FASGD(learning_rate=rate), 500).replay()
    yield Row("programs compiled for eight rates of one run", compiled.cache_info().misses, "", 1)


def systems() -> Iterator[Row]:
    """Yield PSP-SGD and WAGMA against the limit of as many gradients, and B-FASGD inline against a handwritten loop."""
    partly = Partial(gradients=12, blocks_percent=75)
    groups = GroupAveraging(group_size=4, period=10)
    equal = Cluster(workers=16, compute={"name": "constant", "seconds": 0.4})
    delayed = equal.model_copy(update={"contention": (RandomDelays(workers=2, seconds=0.32),)})
    for name, cluster, server, protocol in (
        ("PSP-SGD, 4 servers", workers(16, servers=4), PSPSGD(learning_rate=0.001), partly),
        ("PSP-SGD, 4 servers, all waited for", workers(16, servers=4), PSPSGD(learning_rate=0.001), Partial()),
        ("WAGMA-SGD, groups of 4", equal, Server(learning_rate=0.01), groups),
        ("WAGMA-SGD, groups of 4, 2 of 16 delayed at each step", delayed, Server(learning_rate=0.01), groups),
        ("SGP, exponential graph", workers(16), SGP(learning_rate=0.01), Gossip(topology=Exponential())),
        ("AD-PSGD", workers(16), Server(learning_rate=0.01), Pairwise()),
    ):
        case = Case(perceptron(LARGE), 8, cluster, server, 4_000, protocol)
        bare, replayed = medians([case.limit, case.replay])
        limit = 2.0 if name.startswith("PSP") else None
        yield Row(f"replay / limit: 784-200-10, 8 x 16 workers, {name}", replayed / bare, "x", limit)
        if name.startswith("WAGMA"):
            separate, mixing, replayed = medians([case.run_separate_models, case.mixing, case.replay])
            yield Row("  replay / a bare loop over 16 separate models", replayed / separate, "x", 1.4)
            yield Row("    its floor: that loop, and the mixes' models read and written", 1 + mixing / separate, "x")
            yield Row("    replay / that floor", replayed / (separate + mixing), "x", 1.1)
    shards = Case(
        perceptron(DEEP), 8, workers(16, servers=4), SASGD(learning_rate=0.01), 4_000, Asynchronous(clocks="each", cut="layers")
    )
    bare, replayed = medians([shards.limit, shards.replay])
    yield Row(
        f"replay / limit: {'-'.join(map(str, DEEP))}, 8 x 16 workers, SASGD, a server for each layer", replayed / bare, "x", 1.5
    )
    for widths in (SMALL, LARGE):
        case = Case(
            perceptron(widths),
            8,
            workers(16),
            BFASGD(learning_rate=0.01),
            2_000,
            Gated(push_gate=Statistical(c=1e-9), fetch_gate=Statistical(c=1e-9)),
        )
        inline, by_hand = medians([case.inline, case.by_hand], rounds=3)
        limit = 1.3 if widths == LARGE else None
        yield Row(f"B-FASGD inline / loop by hand: {'-'.join(map(str, widths))}", inline / by_hand, "x", limit)


def language() -> Iterator[Row]:
    """Yield ratios of transformers on minibatches of 8 x 64 tokens."""
    for (layers, width), updates in zip(TRANSFORMERS, (100, 24), strict=True):
        case = Case(transformer(layers, width), 8, workers(4), SASGD(learning_rate=0.01), updates)
        bare, replayed = medians([case.limit, case.replay])
        name = f"transformer, {layers} layers of width {width}, 8 x {CONTEXT} tokens, 4 workers"
        yield Row(f"replay / limit: {name}", replayed / bare, "x", 1.15)
        yield Row(f"  limit: {name}", bare / updates * 1e3, "ms/update")


def local_steps() -> Iterator[Row]:
    """Yield ratios of DiLoCo with 64 workers of 100,000 parameters each."""
    case = Case(perceptron((784, 126, 10)), 8, workers(64), DiLoCo(learning_rate=0.01), 64 * 50 * 4, OuterSteps(period=50))
    separate, bare, replayed = medians([case.run_separate_models, case.limit, case.replay], rounds=3)
    name = "DiLoCo, 784-126-10, 64 workers, 4 rounds of 50 updates"
    yield Row(f"replay / a bare loop over 64 separate models: {name}", replayed / separate, "x", 1.1)
    yield Row("  replay / limit, which has one model", replayed / bare, "x")


def many_workers() -> Iterator[Row]:
    """Yield the cost of an update with 10,000 workers against 4, once each worker has been served."""
    for algorithm in (SASGD, FASGD):
        server = algorithm(learning_rate=0.01)
        cases = [Case(perceptron(LARGE), 8, workers(number), server, 50_000, marks=(20_000,)) for number in (4, 10_000)]
        few, many = (
            statistics.median(seconds)
            for seconds in zip(*([case.time_second_half() for case in cases] for _ in range(3)), strict=True)
        )
        yield Row(f"update with 10,000 workers / with 4: 784-200-10, batch 8, {algorithm.__name__}", many / few, "x", 1.1)
