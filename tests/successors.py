"""Systems as short as users would write them, for what no system of FRED needs of the contract."""

from typing import Any

import jax
import jax.numpy as jnp

from fred import NOTHING, Cluster, Copy, Layout, Message, Params, Process, Protocol, Scalar, Server, Simulation, State


class Fragments(Protocol):
    """Streaming DiLoCo's idea [Douillard et al. 2025, arXiv:2501.18512]: replicas average one block at a time, in turn."""

    blocks: int = 2
    cut: str = "layers"

    def layout(self, cluster: Cluster) -> Layout:
        everybody = range(cluster.size)
        return Layout(cluster.size, everybody, range(0), self.blocks, "layers" if self.cut == "layers" else "parts")

    def start(self, sim: Simulation) -> None:
        sim.process(self._rounds(sim))

    def _rounds(self, sim: Simulation) -> Process:
        turn = 0
        while True:
            gradients = []
            for worker in range(sim.workers):
                blocks = [sim.read(worker, worker, sent=False, block=block) for block in range(self.blocks)]
                gradients.append(sim.begin(worker, sim.compose(worker, blocks)))
            yield sim.env.timeout(max(gradient.end for gradient in gradients) - sim.now)
            for gradient in gradients:
                for block in range(self.blocks):
                    sim.push(gradient, gradient.worker, NOTHING, block)
            block, turn = turn, (turn + 1) % self.blocks
            copies = [sim.read(worker, worker, sent=False, block=block) for worker in range(sim.workers)]
            operation = sim.allreduce(sim.workers, size=sim.sizes.model.blocks[block])
            yield operation.over
            mean = sim.mix(0, [(copy, 1 / sim.workers) for copy in copies], block)
            for worker in range(sim.workers):
                sim.sync(worker, mean, cost=operation.cost, block=block)


class ShardedRounds(Protocol):
    """DiLoCo's rounds on servers that hold a block each: a pseudo-gradient goes to all of them in turn, as one message."""

    def layout(self, cluster: Cluster) -> Layout:
        server = range(cluster.size, cluster.size + 1)
        return Layout(cluster.size + 1, server, server, cluster.servers)

    def start(self, sim: Simulation) -> None:
        sim.process(self._meetings(sim))

    def _meetings(self, sim: Simulation) -> Process:
        while True:
            yield sim.env.all_of([sim.process(self._turn(sim, worker)) for worker in range(sim.workers)])

    def _turn(self, sim: Simulation, worker: int) -> Process:
        before = yield from self._pull(sim, worker)
        for block in range(sim.servers):
            sim.sync(worker, before, block=block)
        gradient = sim.compute(worker, self._own_copy(sim, worker))
        yield gradient.finished
        for block in range(sim.servers):
            sim.push(gradient, worker, NOTHING, block)
        pseudo_gradient = sim.pseudo_gradient(worker, before, self._own_copy(sim, worker))
        for block in range(sim.servers):
            yield from sim.send(pseudo_gradient, block)
            sim.push(pseudo_gradient, sim.global_replica, block=block)

    def _pull(self, sim: Simulation, worker: int) -> Process:
        """Update all blocks of the server model at the same time."""
        copies, waits = zip(
            *(sim.read_block(worker, block, replica=sim.global_replica) for block in range(sim.servers)), strict=True
        )
        yield max(waits)
        return sim.compose(worker, copies)

    def _own_copy(self, sim: Simulation, worker: int) -> Copy:
        return sim.compose(worker, [sim.read(worker, worker, sent=False, block=block) for block in range(sim.servers)])


class TopK(Server):
    """The largest entries only, with error feedback [Stich, Cordonnier, Jaggi 2018, arXiv:1809.07599, algorithm 1]."""

    share: float = 0.25  # of each array's entries

    def memory(self, params: Params) -> Any:
        return jax.tree.map(jnp.zeros_like, params)

    def send(self, memory: Any, params: Params, grads: Params) -> tuple[Message, Any]:
        total = jax.tree.map(jnp.add, memory, grads)
        message = jax.tree.map(self._largest, total)
        return message, jax.tree.map(jnp.subtract, total, message)

    def sent_bytes(self, message: Message) -> int:
        """Return the bytes of each kept entry and its index: the arrays also hold the zeros in between."""
        return sum(8 * (leaf.size - self._left_out(leaf)) for leaf in jax.tree.leaves(message))

    def _left_out(self, array: jax.Array) -> int:
        return round((1 - self.share) * (array.size - 1))

    def _largest(self, array: jax.Array) -> jax.Array:
        size = jnp.sort(jnp.abs(array).ravel())
        return jnp.where(jnp.abs(array) >= size[self._left_out(array)], array, 0.0)


class Averaged(Server):
    """SGD whose answer is a moving average of the parameters [Polyak, Juditsky 1992], without the bias of its beginning."""

    decay: float = 0.9

    def init(self, params: Params, workers: int) -> State:
        return super().init(params, workers).replace(average=jax.tree.map(jnp.zeros_like, params))

    def apply_update(self, state: State, grads: Params, timestamp: Scalar, worker: Scalar) -> State:
        state = self.step(state, grads)
        average = jax.tree.map(lambda a, p: self.decay * a + (1 - self.decay) * p, state.average, state.params)
        return state.replace(average=average)

    def evaluated(self, state: State) -> Params:
        weight = 1 - self.decay ** jnp.maximum(state.clock, 1)
        return jax.tree.map(lambda a, p: jnp.where(state.clock > 0, a / weight, p), state.average, state.params)


class Quantised(Server):
    """Workers read parameters rounded to a grid; what rounding took away is added to what the next one reads."""

    grid: float = 0.05

    def init(self, params: Params, workers: int) -> State:
        return super().init(params, workers).replace(rest=jax.tree.map(jnp.zeros_like, params))

    def publish(self, state: State, worker: Scalar) -> tuple[Params, State]:
        exact = jax.tree.map(jnp.add, state.params, state.rest)
        rounded = jax.tree.map(lambda leaf: self.grid * jnp.round(leaf / self.grid), exact)
        return rounded, state.replace(rest=jax.tree.map(jnp.subtract, exact, rounded))

    def published_bytes(self, params: Params) -> int:
        """A byte for each number."""
        return sum(leaf.size for leaf in jax.tree.leaves(params))
