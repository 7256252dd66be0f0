"""Links that differ from the others of a network: inside nodes, of some servers, and at some times."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from fred.cluster.bandwidths import Bandwidth
from fred.cluster.contention import Contention
from fred.cluster.latency import AnyLatency, Constant
from fred.components.component import Component, Natural
from fred.components.one_of import OneOf


class Within(Component):
    """The links between workers of one node."""

    latency: AnyLatency = Field(default=Constant(seconds=0.0), description="propagation time of one message, s")
    bandwidth: Bandwidth | None = Field(
        default=None, description="worker's bandwidth inside its node, bytes/s; absent: unlimited"
    )


class SomeServers(Component):
    """Servers with links different from the others'."""

    servers: tuple[Natural, ...] = Field(min_length=1, description="numbers of the servers, from 0", examples=[[0]])
    latency: AnyLatency | None = Field(
        default=None, description="propagation time of messages to them, s; absent: the network's"
    )
    pull_latency: AnyLatency | None = Field(
        default=None, description="propagation time of messages from them, s; absent: `latency` here, or the network's"
    )
    bandwidth: Bandwidth | None = Field(default=None, description="bandwidth of each card, bytes/s; absent: `server_bandwidth`")

    @model_validator(mode="after")
    def _differ(self) -> "SomeServers":
        if self.latency is None and self.pull_latency is None and self.bandwidth is None:
            raise ValueError("give `latency`, `pull_latency` or `bandwidth`, in which these servers differ from the others")
        return self


class SlowLinks(Component):
    """A contention regime that slows links down instead of processors."""

    of: Literal["workers", "servers"] = Field(
        default="workers", description="owners of the links; each server is on its own node"
    )
    regime: Annotated[Contention, OneOf("contention")] = Field(
        description="regime that multiplies latencies and transfer times; its delays are added to single messages",
        examples=[{"name": "job", "nodes": [0], "slowdown": 2.0}],
    )
