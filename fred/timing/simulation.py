"""The verbs that protocols call; the cluster and the network determine how long each takes."""

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from fred.cluster.cluster import Cluster
from fred.cluster.contention import Loads
from fred.cluster.durations import durations
from fred.cluster.faults import Span
from fred.cluster.network import NOTHING, Cost
from fred.schedule.layout import Sizes
from fred.schedule.schedule import NONE, UNENDING, What
from fred.timing.averaging import Averaging
from fred.timing.averaging import Operation as Operation  # protocols find it here
from fred.timing.copies import Copy, Gradient
from fred.timing.loop import After, Wait
from fred.timing.recorder import Recorder
from fred.timing.sending import bytes_of, with_repeats
from fred.timing.world import Process as Process  # protocols find it here


class Simulation(Averaging):
    """The simulation of one run: gradients that workers compute at copies of the parameters, messages, effects on replicas.

    A message has the `size`, bytes, given to a verb, or else the usual one: the value in `sizes` for models, workers' messages
    and each block of them (a number applies to all), scaled to parameters of `message_bytes` if the network sets that.

    Args:
        cluster: the machines.
        recorder: writes the schedule, and tells when it is full.
        seed: seed of all random draws.
        sizes: bytes of models and messages.
        weights: weight of each worker's gradients in means over workers, 1 on average [workers]; empty: all are 1.

    A protocol receives one in `start`. Without a protocol it is driven by hand:

        >>> import fred
        >>> cluster = fred.Cluster(workers=1, compute={"name": "constant", "seconds": 0.5})
        >>> sim = fred.Simulation(cluster, fred.Recorder(1, fred.Layout.central(), updates=2), seed=0)
        >>> def work(worker):
        ...     while True:
        ...         model = yield from sim.pull(worker)
        ...         gradient = sim.compute(worker, model)
        ...         yield gradient.finished
        ...         yield from sim.send(gradient)
        ...         sim.push(gradient)
        >>> _ = sim.process(work(0))
        >>> sim.run()
        >>> [(row.time_ns, fred.Verb(row.verb).name) for row in sim.schedule()]
        [(0, 'PULL'), (500000000, 'PUSH'), (500000000, 'PULL'), (1000000000, 'PUSH')]
    """

    def __init__(self, cluster: Cluster, recorder: Recorder, seed: int, sizes: Sizes | int = 0, weights: Sequence[float] = ()):
        super().__init__(cluster, recorder, seed, sizes)
        self.weights = weights or (1.0,) * cluster.size
        self._model_blocks = self.blocks if self.blocks > 1 else 0  # blocks in a copy of a whole model; 0: not split
        self._durations = durations(seed, "compute", cluster.latencies(), cluster.worker_speeds())
        self._loads = Loads(cluster.loads(seed)) if cluster.contention else None
        self._steps, self._latest = recorder.steps, recorder.latest  # of each worker: gradients begun, and the last one
        self._attempts: dict[tuple[int, int], list[Span]] = {}  # lost attempts at a gradient, by worker and step

    @property
    def global_replica(self) -> int:
        """Return the number of the server's or global model's replica, where workers have replicas, too: theirs come first."""
        return self.workers

    # Actions of workers, including the network.

    def pull(
        self, worker: int, replica: int = 0, size: int | None = None, block: int = 0, server: int | None = None
    ) -> Generator[Wait, Any, Copy]:
        """Read the parameters that the servers have now; ends when they have arrived. The request itself takes no time.

        Args:
            worker: number of the reader, from 0 (as in all verbs).
            replica: number of the replica to read, see `Layout` (as in all verbs).
            size: bytes; default: the usual size of a model, or of the block.
            block: its number, if replicas are split into blocks.
            server: number of the server that holds all of it; default: each server holds a part.
        """
        now = self.env._now
        # A size of the protocol changes the bytes, but not the usual number of messages.
        sent, messages = self._down[block] if size is None else (bytes_of(size, 0), self._down[block][1])
        if server is not None:
            messages = 1
        if self.links is None:
            return self.record.pull(now, worker, replica, block, self._steps[worker], now, sent, messages)
        wait = self.links.download(worker, sent, server)
        if not self.faultless:
            sent, messages = with_repeats(sent, messages, self.links.pop_repeats())
        copy = self.record.pull(now, worker, replica, block, self._steps[worker], self._end(wait), sent, messages)
        yield wait
        return copy

    def pull_between(self, worker: int, replica: int, server: int, receiver: int) -> Generator[Wait, Any, Copy]:
        """Send the current parameters of one server to another; ends when they have arrived.

        Args:
            worker: the worker recorded as reader.
            replica: number of the replica that is read.
            server, receiver: numbers of the two servers.
        """
        now, size = self.env._now, self.sizes.model.total
        wait = 0 if self.links is None else self.links.send_between_servers(server, receiver, size)
        copy = self.record.pull(now, worker, replica, 0, self._steps[worker], self._end(wait), size, 1)
        yield wait
        return copy

    def _end(self, wait: Wait) -> int:
        """Return when a read ends, ns, for the next row; if that is not known yet, the row receives it later."""
        if isinstance(wait, int):
            return min(self.env._now + wait, UNENDING)
        row = len(self.record)
        wait.callbacks.append(lambda _: self.record.set_arrival(row, self.env._now))
        return UNENDING

    def duration(self, worker: int) -> int:
        """Return how long the next gradient of `worker` takes if it begins now, ns: a random draw, plus any slowdown."""
        duration = self._durations[worker]()
        if self._loads is None:
            return duration
        return self._loads.finish(worker, self._steps[worker], self.env._now, duration) - self.env._now

    def begin(self, worker: int, copy: Copy, duration: int | None = None, done: int = 0) -> Gradient:
        """Begin a gradient now, or `done` ns ago, without an event for its end.

        Args:
            worker: computes it, on its next minibatch.
            copy: the parameters at which it is computed: a whole model.
            duration: ns in total; default: the worker's next draw.
            done: ns of the duration that are already over.
        """
        step, now, record = self._steps[worker], self.env._now, self.record
        if self._model_blocks and len(copy.timestamps) < self._model_blocks:
            raise copy.incomplete(self._model_blocks)
        if duration is None:
            duration = self._durations[worker]() if self._loads is None else self.duration(worker)
        self._steps[worker] = step + 1
        gradient = Gradient(worker, step, copy, now - done, now - done + duration)
        if self._latest[worker].due > 0:  # its last gradient is still to be used or dropped
            record.retain(self._latest[worker])
        self._latest[worker] = gradient
        if self._lives is not None and not self._lives.hold(gradient):  # no main process that a crash would end
            self._delay(gradient)
        if record.listener is not None:
            record.watch(gradient)
        return gradient

    def compute(self, worker: int, copy: Copy, duration: int | None = None) -> Gradient:
        """Begin a gradient of `worker` at `copy`; wait for its `finished`.

        `duration`, ns, defaults to the worker's next draw.
        """
        gradient = self.begin(worker, copy, duration)
        gradient.finished = After(self.env, gradient.end - self.env._now)
        return gradient

    def _delay(self, gradient: Gradient) -> None:
        """Compute a gradient again after each time that its worker was offline: set its times, and store the lost attempts."""
        assert self._faults is not None
        work, attempts = gradient.end - gradient.begin, list[Span]()  # includes contention
        gradient.begin, gradient.end = self._faults.undisturbed(
            (gradient.worker,), gradient.begin, lambda _: work, attempts.append
        )
        if attempts:
            self._attempts[gradient.worker, gradient.step] = attempts

    def _settle(self, gradient: Gradient) -> None:
        """Record the lost attempts at a gradient that has reached a server or is dropped."""
        assert self._lives is not None
        self._lives.release(gradient)
        if self.record.full:  # the attempts stay for `_open_intervals`
            return
        for begin, end in self._attempts.pop((gradient.worker, gradient.step), ()):
            if begin < self.now:  # a dropped gradient leaves out later attempts
                self.record.record_interval(What.LOST, begin, min(end, self.now), worker=gradient.worker)

    def _open_intervals(self) -> Iterator[tuple[int, ...]]:
        """Yield the intervals until now that are in no row yet: gradients, lost attempts, and messages to servers."""
        for (worker, _), attempts in self._attempts.items():
            for begin, end in attempts:
                if begin < self.now:
                    yield What.LOST, begin, min(end, self.now), NONE, worker, NONE
        for gradient in self.record.in_flight():
            begin, end, worker = gradient.begin, min(gradient.end, self.now), gradient.worker
            if begin < end:
                yield What.COMPUTING, begin, end, NONE, worker, NONE
            is_sending = gradient.underway and gradient.due > 0  # a row still has to use it
            if is_sending and end < (sending_end := self._sends_until(worker, end)):
                yield What.SENDING, end, sending_end, NONE, worker, NONE

    def _sends_until(self, worker: int, begin: int) -> int:
        """Return the time (ns) at which a message in transit ends: now, or when its worker crashed."""
        if self._lives is None or self._faults is None or not self._lives.lives(worker):
            return self.now
        return min(self.now, self._faults.offline_interval("worker", worker, begin)[0])

    def _lose(self, gradient: Gradient) -> None:
        """Drop a gradient whose worker has crashed, and end its message."""
        if gradient.underway and gradient.end < self.now:
            self.record.record_interval(What.SENDING, gradient.end, self.now, worker=gradient.worker)
        self.drop(gradient, cost=NOTHING)

    def pseudo_gradient(self, worker: int, before: Copy, after: Copy) -> Gradient:
        """Return the pseudo-gradient of local steps: the model before minus the model after, a message like a gradient.

        Args:
            worker: the worker that took the steps.
            before, after: its models before and after the steps.
        """
        for copy in (before, after):
            if len(copy.timestamps) < self._model_blocks:
                raise copy.incomplete(self._model_blocks)
        pseudo_gradient = Gradient(worker, NONE, after, self.now, self.now, source=before)
        self.record.watch(pseudo_gradient)
        return pseudo_gradient

    def clock(self, replica: int = 0, block: int = 0) -> int:
        """Return the number of changes of a `block` of a `replica`."""
        return self.record.clocks[replica * self.record.layout.blocks + block]

    # Immediate effects on a replica.

    def read(
        self,
        worker: int,
        replica: int = 0,
        arrival: int | None = None,
        sent: bool = True,
        block: int = 0,
        size: int | None = None,
    ) -> Copy:
        """Return the current parameters, `sent` by all servers or already present.

        They arrive at `arrival`, ns (default: at once).

        Args:
            worker, replica: reader, and replica that is read.
            block: its number, if replicas are split into blocks.
            size: bytes; default: the usual size of a model, or of the block.
        """
        now = self.env._now
        size, messages = self._read_cost(block, size) if sent else (0, 0)
        arrival = now if arrival is None else arrival
        return self.record.pull(now, worker, replica, block, self._steps[worker], min(arrival, UNENDING), size, messages)

    def own(self, worker: int) -> Copy:
        """Return the `worker`'s own replica in its current state; nothing is sent."""
        now = self.env._now
        return self.record.pull(now, worker, worker, 0, self._steps[worker], now, 0, 0)

    def local_steps(self, worker: int, number: int) -> Process:
        """Update the `worker`'s own replica a `number` of times, each time with a gradient at its current parameters.

        For single steps, these three lines in the protocol itself are 6 % faster.
        """
        for _ in range(number):
            gradient = self.compute(worker, self.own(worker))
            yield gradient.finished
            self.push(gradient, worker, NOTHING)

    def take_steps(self, gradients: Sequence[Gradient], pseudo_gradient: Gradient, replica: int) -> None:
        """Make local steps of a worker now, in a `replica` that several workers use one after the other.

        The steps start from the model before `pseudo_gradient`, which then leads to the model after them. So a run holds no
        model for each worker, and computes no steps of workers whose pseudo-gradients are dropped.

        Args:
            gradients: the worker's gradients, finished, in order; they are computed where the steps before have led.
            pseudo_gradient: that of these steps.
            replica: number of the replica.
        """
        worker = pseudo_gradient.worker
        assert pseudo_gradient.source is not None
        self.sync(worker, pseudo_gradient.source, replica=replica)
        for gradient in gradients:
            gradient.copy = self.read(worker, replica, sent=False)
            self.push(gradient, replica, NOTHING)
        pseudo_gradient.copy = self.read(worker, replica, sent=False)
        self.record.watch(pseudo_gradient)  # again: its key contains the mailbox of its copy, which is new

    def publish(
        self,
        worker: int,
        copies: int,
        parts: int = 1,
        block: int = 0,
        size: int | None = None,
        replica: int | None = None,
    ) -> Copy:
        """Return a `block` of a `replica`, by default the `worker`'s own, as sent to a number of other workers.

        Args:
            copies: number of receivers.
            parts: messages to each of them.
            replica: its number.
            size: bytes for each receiver, which also determine the duration of `transfer`; default: the usual size.
        """
        now = self.now
        repeats = 0 if self.links is None else self.links.announce(worker, copies)
        message_bytes = bytes_of(size, self.sizes.model.blocks[block])
        self._published[worker] = len(self.record), message_bytes  # for `transfer`: the row written below
        sent, messages = (copies + repeats) * message_bytes, copies * parts + repeats
        replica = worker if replica is None else replica
        return self.record.pull(now, worker, replica, block, self._steps[worker], now, sent, messages)

    def read_block(
        self, worker: int, server: int, sent: bool = True, replica: int = 0, size: int | None = None
    ) -> tuple[Copy, Wait]:
        """Return a server's current block of a replica, sent to a worker (or already there), and what to wait for.

        Args:
            worker, replica: reader, and replica that is read.
            server: number of the server, and of its block.
            sent: False if the block is already there.
            size: bytes; default: the block's usual size.
        """
        wait: Wait = 0
        if sent and self.links is not None:
            wait = self.links.download(worker, bytes_of(size, self.sizes.model.blocks[server]), server)
        return self.read(worker, replica, self._end(wait), sent, server, size), wait

    def compose(self, worker: int, copies: Sequence[Copy]) -> Copy:
        """Return a model of `worker` assembled from `copies`, one of each block."""
        return self.record.compose(self.now, worker, copies)

    def stamp(self, copy: Copy) -> Copy:
        """Return `copy` with the servers' current clocks, so that they take it for their current parameters."""
        return copy.stamped([self.clock(block=block) for block in range(self.blocks)])

    def push(self, gradient: Gradient, replica: int = 0, cost: Cost | None = None, block: int = 0) -> None:
        """Apply `gradient` as one update of a `block` of a `replica`. Raises FredError if it is not finished.

        `cost` is that of its message; default: one message to each server, or as given to `send`.
        """
        now = self.env._now
        if gradient.end > now and gradient.ready_at(block) > now:
            raise gradient.unfinished(now, block)
        size, messages = self._up[block] if cost is None and not gradient.sent else self._charged(gradient, block, cost, now)
        if self._lives is not None:
            self._settle(gradient)
        self.record.push(now, gradient, replica, block, size, messages)

    def add(
        self, gradient: Gradient, replica: int = 0, cost: Cost | None = None, block: int = 0, weight: float | None = None
    ) -> None:
        """Add `gradient`, times `weight`, to the open round of a `block` of a `replica`; `cost` as in `push`.

        The weight defaults to that of its worker: the number of examples in its minibatch over the workers' mean number.
        """
        now = self.env._now  # repeats lines of `push`: a shared function takes 1 % more time in either
        if gradient.end > now and gradient.ready_at(block) > now:
            raise gradient.unfinished(now, block)
        size, messages = self._up[block] if cost is None and not gradient.sent else self._charged(gradient, block, cost, now)
        if self._lives is not None:
            self._settle(gradient)
        # By default a gradient has its worker's weight in the sum, and counts as much in the number that commit divides by.
        # With a weight of its own it counts as one message.
        counts_as = self.weights[gradient.worker] if weight is None else 1.0
        self.record.add(now, gradient, replica, block, counts_as if weight is None else weight, size, messages, counts_as)

    def commit(self, replica: int = 0, block: int = 0, weight: float | None = None) -> None:
        """Apply the round's sum times `weight` as one update; default: 1 / the sum of what its messages count as.

        The default gives their mean. Messages with the default weight count in proportion to their examples, others as one.
        The round is that of a `block` of a `replica`; a new one opens.
        """
        self.record.commit(self.now, replica, block, weight)

    def mix(self, worker: int, parts: Sequence[tuple[Copy, float]], block: int = 0) -> Copy:
        """Return the weighted sum of models, added in this order by `worker` (or by several workers together).

        Args:
            parts: copies and their weights, which need not sum to 1.
            block: number of the models' block, if replicas are split into blocks.
        """
        return self.record.mix(self.env._now, worker, parts, block)

    def sync(
        self,
        worker: int,
        copy: Copy,
        keep: float = 0.0,
        weight: float = 1.0,
        cost: Cost = NOTHING,
        replica: int | None = None,
        block: int = 0,
    ) -> None:
        """Replace a `replica` (default: the worker's own) by keep x itself + weight x copy; `cost` is what the worker sent.

        Args:
            worker: the worker that does it.
            copy: the model that is mixed in; only its `block`, if replicas are split into blocks.
            keep, weight: factors of the old value and of the copy; by default the copy replaces the old value.
        """
        replica = worker if replica is None else replica
        if cost.nanoseconds:
            self.record.record_collective(self.env._now - cost.moving, self.env._now, worker)
        self.record.sync(self.env._now, worker, replica, block, copy, keep, weight, cost.bytes, cost.messages)

    def drop(
        self,
        gradient: Gradient,
        replica: int = 0,
        cost: Cost | None = None,
        block: int = 0,
        during: Operation | None = None,
    ) -> None:
        """Discard `gradient`; if it is still being computed, the computation ends now.

        `replica`, `block` and `cost` describe the wasted message, as in `push`.

        Args:
            during: the collective operation that has begun, in which its worker takes part without the gradient.
        """
        now = self.now
        if during is None:
            size, messages = self._charged(gradient, block, cost, now)
        else:
            size, messages = during.cost.bytes, during.cost.messages
            self._join_operation(gradient.worker, during)
        if self._lives is not None:
            self._settle(gradient)
            gradient.begin = min(gradient.begin, now)  # it begins later if its worker is offline now
        self.record.drop(now, gradient, replica, block, size, messages)
        gradient.dropped = True

    def abort(self, gradient: Gradient) -> None:
        """Discard `gradient`: at no cost while it is still being computed, at the cost of its message once it has been sent."""
        self.drop(gradient, cost=NOTHING if self.now < gradient.end else None)

    def statistic(self, replica: int = 0) -> float:
        """Return the algorithm's statistic on which timing depends (see Server.statistic).

        For several blocks it is their mean, weighted by size. It is known for each `replica`, in protocols whose
        `needs_values` is True.
        """
        if self.blocks == 1:
            return self.record.statistic(replica, 0)
        return sum(share * self.record.statistic(replica, block) for block, share in enumerate(self.shares))

    def loss(self) -> float:
        """Return the loss that an evaluation would find now; known in protocols whose `needs_values` is True."""
        return self.record.loss()
