"""Decoupled DiLoCo: learners never wait, and the server needs a quorum [Decoupled DiLoCo 2026, arXiv:2604.21428].

Example: a minute in which three learners take 0.5 s for each gradient, and the fourth 2 s; the server asks every 4 s.
    >>> import fred
    >>> scenario = fred.scenario({
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "protocol": {"name": "quorum", "period": 8},
    ...     "algorithm": {"name": "decoupled-diloco", "learning_rate": 0.1},
    ... })
    >>> fred.run(scenario).summary[["gradients_applied", "messages_to_servers"]].iloc[0].tolist()
    [386, 56]
    >>> in_parts = scenario.replace({"protocol.fragments": 4})  # a quarter of the model is asked for every second
    >>> fred.run(in_parts).summary[["gradients_applied", "messages_to_servers"]].iloc[0].tolist()
    [386, 232]
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, ClassVar

from pydantic import Field

from fred.base.imports import jax, jnp
from fred.cluster.cluster import Cluster
from fred.cluster.durations import NEVER
from fred.cluster.network import NOTHING
from fred.components.component import NANOSECONDS, Count
from fred.learning.server import Family, Message, Scalar, State
from fred.protocols.local_steps import compose_replica
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Cut, Layout
from fred.systems.diloco import DiLoCo
from fred.timing.copies import Copy, Gradient
from fred.timing.simulation import Process, Simulation


class DecoupledDiLoCo(DiLoCo):
    """DiLoCo with a quorum: an outer step needs only K of the N learners; directions and lengths are averaged separately.

    Each pseudo-gradient is weighted by its number of local updates. The outer step of an array has the mean direction and the
    mean length. The paper takes plain means of embeddings; FRED treats all arrays alike.

    The mean of two orthogonal pseudo-gradients of lengths 1 and 3 has length 2 and points half-way between them:

        >>> from fred.systems.decoupled_diloco import DecoupledDiLoCo
        >>> import jax
        >>> import jax.numpy as jnp
        >>> server = DecoupledDiLoCo(learning_rate=0.1, outer_rate=1.0, outer="sgd")
        >>> state = server.init({"w": jnp.zeros(2)}, workers=2)
        >>> parts = [server.contribute(state, {"w": jnp.array(d)}, timestamp=0, worker=0) for d in ([1.0, 0.0], [0.0, 3.0])]
        >>> mean = jax.tree.map(lambda first, second: (first + second) / 2, *parts)
        >>> [round(float(value), 3) for value in server.apply_round(state, mean, timestamp=0, count=2).params["w"]]
        [-1.414, -1.414]
    """

    name = "decoupled-diloco"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)                     (all the time; w_i <- w when it comes)
D_i = w when it came - w_i;  s_i its steps (of the learners that answer in time)
D <- (sum of s_i |D_i|) / (sum of s_i) x unit(sum of s_i unit(D_i))
w <- w - outer step(D)"""
    protocol = "quorum"

    def contribute(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> Message:
        """Return the length and the direction of each array of the `message`, a pseudo-gradient."""
        lengths = jax.tree.map(lambda leaf: jnp.sqrt(jnp.square(leaf).sum()), message)
        return {"lengths": lengths, "ways": jax.tree.map(_unit, message)}

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Step the outer optimizer along the mean of all directions, with the mean of all lengths."""
        mean = jax.tree.map(lambda length, direction: length * _unit(direction), total["lengths"], total["ways"])
        return super().apply_round(state, mean, timestamp, count)


def _unit(array: jax.Array) -> jax.Array:
    """Return the array scaled to length 1; zeros stay zeros."""
    length = jnp.sqrt(jnp.square(array).sum())
    return array / jnp.where(length > 0, length, 1.0)


class Quorum(Protocol):
    """The server regularly requests pseudo-gradients, and steps with those of a quorum of K learners after a grace time.

    A round lasts until K learners have answered, and at least for the time of `overlap` updates. The server steps with the mean
    of the answers, weighted by their numbers of updates, and sends the new model to all learners. They continue from it when
    it arrives, and still use the gradient that they are computing then. A learner without an update since its last model
    answers after its next update. An answer that arrives after the end of its round is wasted. A learner that is asked again
    before the new model has arrived answers with its whole change since the last model it received. If the model is cut into
    fragments, each has rounds of its own, H / P updates after those of the fragment before.
    """

    name = "quorum"
    faults: ClassVar[str] = (
        "No worker waits for a crashed one; a returning one reads the server model, and its unsent work is lost. "
        "All stop when a quorum will never be available again."
    )

    period: Count = Field(default=8, description="H: time between two requests, in mean updates of the fastest learner")
    fragments: Count = Field(default=1, description="P: parts of the model, each of which is requested once in H updates")
    cut: Cut = Field(default="parts", description="fragments are equal `parts` of every array, or whole `layers`")
    quorum: Count = Field(default=1, description="K: answers that the server needs for a step")
    overlap: Annotated[float, Field(ge=0)] = Field(
        default=2.0, description="tau: shortest time for answers, in mean updates of the fastest learner"
    )

    def check(self, cluster: Cluster) -> None:
        if self.quorum > cluster.size:
            raise ValueError(f"`quorum` ({self.quorum}) must not exceed the number of workers ({cluster.size})")

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.centred(cluster.size)._replace(blocks=self.fragments, cut=self.cut)

    def start(self, sim: Simulation) -> None:
        fragments: list[_Fragment] = []  # every fragment holds this list, as answers need the whole model
        fragments += [_Fragment(sim, self, block, fragments) for block in range(self.fragments)]
        for worker in range(sim.workers):
            sim.work(worker, partial(self._work, sim, worker, fragments))
        for fragment in fragments:
            sim.process(fragment.rounds())

    def _work(self, sim: Simulation, worker: int, fragments: list[_Fragment]) -> Process:
        try:
            for fragment in () if _is_hopeless(fragments) else fragments:
                yield from fragment.receive(worker)
            while not _is_hopeless(fragments):
                gradient = sim.compute(worker, compose_replica(sim, worker, worker))
                yield gradient.finished
                for block in range(self.fragments):
                    sim.push(gradient, worker, NOTHING, block)
                for fragment in fragments:
                    fragment.count_update(worker)
            # It waits for ever, so that the report of the standstill names it.
            yield from sim.wait(worker, sim.env.event(), "enough learners for a quorum")
        finally:
            for fragment in fragments:
                fragment.leave(worker)


def _is_hopeless(fragments: list[_Fragment]) -> bool:
    """Return True if some fragment can never reach its quorum again."""
    return any(fragment.is_hopeless() for fragment in fragments)


class _Fragment:
    """The rounds of one block: the server requests, collects, steps and sends."""

    def __init__(self, sim: Simulation, protocol: Quorum, block: int, fragments: list[_Fragment]):
        self._sim, self._block, self._fragments = sim, block, fragments
        self._quorum = protocol.quorum
        update_time = NANOSECONDS / max(sim.cluster.worker_rates())  # of the fastest learner
        self._period, self._overlap = round(protocol.period * update_time), round(protocol.overlap * update_time)
        self._first_request = round((block + 1) * protocol.period / protocol.fragments * update_time)
        self._received: dict[int, Copy] = {}  # of available learners: the last model received
        self._steps = [0] * sim.workers  # updates of each learner since then
        self._pending: set[int] = set()  # learners that answer after their next update
        self._answers: list[tuple[Gradient, int]] = []  # with their numbers of steps
        self._phase = 0  # rises when a round begins, and when answers to it no longer count: odd while they do
        self._complete = sim.env.event()

    def is_hopeless(self) -> bool:
        """Return True if the quorum can never be reached: too few learners have answered or will rejoin."""
        sim = self._sim
        if sim.faultless:
            return False
        answered = {pseudo_gradient.worker for pseudo_gradient, _ in self._answers}
        reachable = answered | {worker for worker in range(sim.workers) if sim.back(worker, sim.now) < NEVER}
        return len(reachable) < self._quorum

    def leave(self, worker: int) -> None:
        """Forget a crashed learner's model, and its answer on the way."""
        self._received.pop(worker, None)
        self._steps[worker] = 0
        # During a round its answer on the way is lost, so it answers again after it rejoins.
        if self._phase % 2 and worker not in {pseudo_gradient.worker for pseudo_gradient, _ in self._answers}:
            self._pending.add(worker)

    def receive(self, worker: int) -> Process:
        """Receive the server's fragment and continue from it."""
        model: Copy = yield from self._sim.pull(worker, self._sim.global_replica, block=self._block)
        self._sim.sync(worker, model, block=self._block)
        self._received[worker], self._steps[worker] = model, 0

    def count_update(self, worker: int) -> None:
        """Count one more update of a `worker`, which answers if it has been asked."""
        self._steps[worker] += 1
        if worker in self._pending:
            self._answer(worker)

    def rounds(self) -> Process:
        sim = self._sim
        yield self._first_request
        while True:
            yield 0  # after everything else that happens now
            begin, self._phase, self._complete = sim.now, self._phase + 1, sim.env.event()
            self._pending = set(range(sim.workers))
            for worker in range(sim.workers):
                if self._steps[worker]:
                    self._answer(worker)
            yield from sim.wait("the server", self._complete, f"{self._quorum} answers")
            yield max(0, begin + self._overlap - sim.now)
            self._step()
            yield max(0, begin + self._period - sim.now)

    def _answer(self, worker: int) -> None:
        """Start to send the change of a learner's fragment since it received the last one."""
        sim = self._sim
        self._pending.discard(worker)
        received = [fragment._received[worker] for fragment in self._fragments]
        start_model = received[0] if len(received) == 1 else sim.compose(worker, received)
        pseudo_gradient = sim.pseudo_gradient(worker, start_model, compose_replica(sim, worker, worker))
        sim.process(self._send(pseudo_gradient, self._steps[worker], self._phase), worker)

    def _send(self, pseudo_gradient: Gradient, steps: int, phase: int) -> Process:
        """Send an answer after `steps` local steps. It counts if it arrives in the phase of its request."""
        yield from self._sim.send(pseudo_gradient, block=self._block if len(self._fragments) > 1 else None)
        if phase != self._phase:
            self._sim.drop(pseudo_gradient, self._sim.global_replica, block=self._block)
            return
        self._answers.append((pseudo_gradient, steps))
        if len(self._answers) == self._quorum:
            self._complete.succeed()

    def _step(self) -> None:
        """Step with all answers that have arrived, and send the new fragment to all available learners."""
        sim, answers = self._sim, self._answers
        self._pending, self._answers, self._phase = set(), [], self._phase + 1
        for pseudo_gradient, steps in answers:
            sim.add(pseudo_gradient, sim.global_replica, block=self._block, weight=float(steps))
        sim.commit(sim.global_replica, self._block, weight=1 / sum(steps for _, steps in answers))
        for worker in self._received:
            sim.process(self.receive(worker), worker)
