"""Asynchronous pairwise averaging [Lian, Zhang, Zhang, Liu 2018, algorithm 1]: models meet in pairs."""

from functools import partial

import simpy

from fred import streams
from fred.layout import Layout
from fred.timing.cluster import Cluster
from fred.timing.network import NOTHING
from fred.timing.protocol import Protocol
from fred.timing.simulation import Process, Simulation


class Pairwise(Protocol):
    """Even workers are active: once per gradient, while it is computed, each averages its model with a random odd worker's.

    The models are exchanged one after the other, and both are replaced by their mean when the exchange is over. An odd
    worker averages with one other at a time, in the order in which they asked; it never asks, so nobody waits in a circle.
    """

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.peers(cluster.size)

    def start(self, sim: Simulation) -> None:
        passive = {worker: simpy.Resource(sim.env) for worker in range(1, sim.workers, 2)}
        for worker in range(sim.workers):
            sim.work(worker, partial(self._work, sim, worker, passive))

    def _work(self, sim: Simulation, worker: int, passive: dict[int, simpy.Resource]) -> Process:
        step = 0
        while True:
            gradient = sim.compute(worker, sim.own(worker))
            averaging = worker not in passive and passive and sim.process(self._average(sim, worker, step, passive))
            yield gradient.finished
            if averaging:
                yield averaging
            sim.push(gradient, worker, NOTHING)
            step += 1

    def _average(self, sim: Simulation, worker: int, step: int, passive: dict[int, simpy.Resource]) -> Process:
        word = int(streams.words(sim.seed, "partner", worker, step))
        partner = 2 * (word * len(passive) >> 32) + 1
        with passive[partner].request() as turn:
            yield from sim.wait(worker, turn, f"worker {partner}, which averages with another")
            yield sim.transfer(worker, partner)
            yield sim.transfer(partner, worker)
            pair = [(sim.publish(each, 1), 0.5) for each in (worker, partner)]
            mean = sim.mix(worker, pair)
            for each in (worker, partner):
                sim.sync(each, mean)
