"""The failures of one run: when the job fails next, and when all its workers have a machine again."""

from collections import Counter
from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from itertools import groupby
from typing import NamedTuple

from fred.base import numerics
from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.cluster.durations import NEVER, durations
from fred.cluster.failures import Failures
from fred.cluster.latency import Latency, draw_positive
from fred.components.component import NANOSECONDS


class Outage(NamedTuple):
    """The time from a failure until the job goes on, in ns."""

    workers: list[int]  # that failed
    detected: int
    complete: int  # all workers have a machine; NEVER: there are not enough
    loaded: int
    ready_times: tuple[int, ...] = ()  # when each of these workers has a machine again; empty: no machine is broken


class _Failure(NamedTuple):
    """Workers that fail together, and when their machines are repaired if a crew begins at a given time, ns."""

    workers: list[int]
    repaired: Callable[[int], int] | None  # None: nothing is broken


class Failing:
    """The failures of one run, and its machines: those of the workers, spares, and machines under repair.

    The times of failures count the time during which machines can fail: `resume` tells when it begins again.

    Args:
        failures: causes of failures, and times until the job goes on.
        cluster: number of workers, their nodes and regions.
        seed: seed of the run.

    Example: two workers fail after 10 s and 16 s; their machines are back 5 s later.
        >>> cluster = Cluster(workers=2, failures={"recorded": [(1, 10, 15), (0, 16, 21)], "checkpoint": {"every_updates": 1}})
        >>> failing = Failing(cluster.failures, cluster, seed=0)
        >>> failing.resume(0)
        >>> when = failing.next_failure()
        >>> when / 1e9, failing.fail(when).complete / 1e9
        (10.0, 15.0)
    """

    def __init__(self, failures: Failures, cluster: Cluster, seed: int):
        self._failures = failures
        self._domains = [cause.domains(cluster.node_of, cluster.region_of) for cause in failures.causes]
        self._up = [self._draws(seed, f"failure {i} up", cause.times, i) for i, cause in enumerate(failures.causes)]
        self._repair = [
            self._draws(seed, f"failure {i} repair", cause.repair, i) if cause.repair else []
            for i, cause in enumerate(failures.causes)
        ]
        self._machines = list(range(cluster.size))  # number of each worker's machine
        self._rates = {i: self._draw_rates(seed, i, cause.rate) for i, cause in enumerate(failures.causes) if cause.rate}
        # Heap of the next strike of each cause at each of its domains: exposed time, ns, cause and domain. Time is exposed
        # while machines can fail.
        self._coming = [(self._draw_time(i, j), i, j) for i, domains in enumerate(self._domains) for j in range(len(domains))]
        heapify(self._coming)
        self._recorded = _group_recorded(failures)  # last first
        self._exposed = self._since = 0  # exposed time before the job last went on, ns; when that was
        self._detect, self._join, self._load = (
            durations(seed, f"failures {name}", [latency], [1.0])[0]
            for name, latency in (("detect", failures.detect), ("join", failures.join), ("load", failures.load))
        )
        self._free = [(0, cluster.size + spare) for spare in range(failures.spares)]  # heap: when a machine is free, its number
        self._crews = [0] * (failures.crews or 0)  # heap: when each crew is free
        self._failed = Counter[int]()  # number of failures of each machine

    def resume(self, now: int) -> None:
        """Let machines fail again from `now` on, ns."""
        self._since = now

    def next_failure(self) -> int:
        """Return when the job fails next, ns; NEVER if it does not."""
        drawn_time = self._since + (self._coming[0][0] - self._exposed) if self._coming else NEVER
        return min(drawn_time, self._next_recorded())

    def add(self, now: int, workers: list[int], repair: int) -> None:
        """Let these workers' machines fail `now`, and be repaired `repair` ns later."""
        self._recorded.append((now, now + repair, workers))

    def fail(self, now: int) -> Outage:
        """Let the next machines fail `now`, ns; return when the job goes on.

        Workers, in the order of their numbers, take the machines that are free first. Without enough machines, the job does not
        go on.
        """
        failure = self._strike(now)
        detected = now + self._detect()
        if failure.repaired is None:
            return Outage(failure.workers, detected, detected, detected + self._load())
        self._send_to_repair(failure, detected)
        ready_times, machine_of = [NEVER] * len(failure.workers), dict[int, int]()
        for i, worker in enumerate(failure.workers):
            if not self._free:
                return Outage(failure.workers, detected, NEVER, NEVER, tuple(ready_times))
            free_at, machine_of[worker] = heappop(self._free)
            ready_times[i] = max(detected, free_at)
        self._replace(machine_of)
        complete = max(ready_times)
        return Outage(failure.workers, detected, complete, complete + self._join() + self._load(), tuple(ready_times))

    def _next_recorded(self) -> int:
        """Return when the next recorded failure strikes, ns; one while the job stops strikes when the job goes on."""
        return max(self._recorded[-1][0], self._since) if self._recorded else NEVER

    def _strike(self, now: int) -> _Failure:
        """Return the next failure, and draw when its cause strikes the same workers again."""
        is_recorded = self._next_recorded() <= now
        self._exposed += now - self._since
        if is_recorded:
            _, up, workers = self._recorded.pop()
            return _Failure(workers, lambda begin: max(begin, up))
        exposed, cause, domain = self._coming[0]
        # At the rate of the machines that fail; `_replace` changes the time if others replace them.
        heapreplace(self._coming, (exposed + max(1, self._draw_time(cause, domain)), cause, domain))
        workers = self._domains[cause][domain].tolist()
        repair = self._repair[cause][domain] if self._repair[cause] else None
        return _Failure(workers, repair and (lambda begin: begin + repair()))

    def _send_to_repair(self, failure: _Failure, now: int) -> None:
        """Repair broken machines that are not retired, as soon as a crew is free; note when they can be used again.

        One crew repairs all machines that fail together.
        """
        assert failure.repaired is not None
        repaired = failure.repaired(max(now, self._crews[0]) if self._crews else now)  # no crews: any number of repairs
        if self._crews:
            heapreplace(self._crews, repaired)
        for worker in failure.workers:
            machine = self._machines[worker]
            self._failed[machine] += 1
            if self._failed[machine] != self._failures.retire_after:
                heappush(self._free, (repaired, machine))

    def _draw_time(self, cause: int, domain: int) -> int:
        """Draw the exposed time until a cause strikes the present machines of a domain, ns."""
        time = self._up[cause][domain]()
        return round(time / self._mean_rate(cause, domain)) if cause in self._rates else time

    def _mean_rate(self, cause: int, domain: int) -> float:
        """Return the rate at which a cause strikes a domain: the mean of its machines'."""
        workers = self._domains[cause][domain].tolist()
        return sum(self._rates[cause][self._machines[worker]] for worker in workers) / len(workers)

    def _replace(self, machine_of: dict[int, int]) -> None:
        """Give workers these machines, and let the machines fail as often as their own rates say."""
        changed_workers = {worker for worker, machine in machine_of.items() if self._machines[worker] != machine}
        affected = [  # coming strikes, by their position in the heap
            (position, cause, domain)
            for position, (_, cause, domain) in enumerate(self._coming if changed_workers else ())
            if cause in self._rates and not changed_workers.isdisjoint(self._domains[cause][domain].tolist())
        ]
        old_rates = [self._mean_rate(cause, domain) for _, cause, domain in affected]
        self._machines[:] = [machine_of.get(worker, machine) for worker, machine in enumerate(self._machines)]
        for (position, cause, domain), old_rate in zip(affected, old_rates, strict=True):
            # The same share of the machine's life is left: exact for exponential times, and the usual rule (accelerated
            # failure times) for others.
            remaining = (self._coming[position][0] - self._exposed) * (old_rate / self._mean_rate(cause, domain))
            self._coming[position] = self._exposed + round(remaining), cause, domain
        if affected:
            heapify(self._coming)

    def _draw_rates(self, seed: int, cause: int, rate: Latency) -> list[float]:
        """Return the rate of each machine: one for all machines of a domain, and one for each spare. Raises FredError."""
        domains, spares = self._domains[cause], self._failures.spares
        u = numerics.uniforms(seed, f"failure {cause} rate", 0, 0, len(domains) + spares)
        try:
            draws = draw_positive("rate", rate, u)
        except ValueError as error:
            raise FredError(f"`cluster.failures.causes.{cause}`: {error}") from error
        rates = [1.0] * len(self._machines) + draws[len(domains) :]  # spares have the numbers after the workers' machines
        for domain, draw in zip(domains, draws, strict=False):
            for worker in domain.tolist():
                rates[worker] = draw
        return rates

    def _draws(self, seed: int, purpose: str, latency: Latency, cause: int) -> list[Callable[[], int]]:
        """Return, for each domain of a cause, a function that draws its next duration, ns."""
        domains = len(self._domains[cause])
        return durations(seed, purpose, [latency] * domains, [1.0] * domains)


def _group_recorded(failures: Failures) -> list[tuple[int, int, list[int]]]:
    """Return recorded failures, last first: when they are down and up, ns, and the workers that fail together."""
    times = sorted((round(down * NANOSECONDS), round(up * NANOSECONDS), worker) for worker, down, up in failures.recorded)
    groups = groupby(times, key=lambda down_up_worker: down_up_worker[:2])
    return [(down, up, sorted({worker for _, _, worker in group})) for (down, up), group in groups][::-1]
