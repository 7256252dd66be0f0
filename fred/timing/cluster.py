"""The simulated machines: how many workers, how fast each is, and how they reach the servers."""

from functools import cached_property

from pydantic import Field, model_validator

from fred.component import Component
from fred.timing.latency import AnyLatency, Constant, Latency, Positive
from fred.timing.network import Network


class Group(Component):
    """Workers of one kind."""

    workers: int = Field(ge=1, examples=[4])
    speed: Positive = Field(1.0, description="compute times are divided by it")
    compute: AnyLatency | None = Field(None, description="of this group; absent: the cluster's")


class Cluster(Component):
    """Workers with their compute times, and the network between them and the servers."""

    workers: int | None = Field(None, ge=1, description="how many; may be left out where `groups` says it", examples=[4])
    compute: AnyLatency = Field(Constant(seconds=1.0), description="time of one gradient at speed 1, s")
    speeds: tuple[Positive, ...] = Field((), description="one per worker; absent: all 1")
    groups: tuple[Group, ...] = Field((), description="kinds of workers, in the order of their numbers")
    network: Network | None = Field(None, description="absent: messages take no time")

    @model_validator(mode="after")
    def _consistent(self) -> "Cluster":
        if not self.groups and self.workers is None:
            raise ValueError("needs `workers` or `groups`")
        grouped = sum(group.workers for group in self.groups)
        if self.groups and self.workers not in (None, grouped):
            raise ValueError(f"`groups` hold {grouped} workers, but `workers` says {self.workers}")
        if self.groups and self.speeds:
            raise ValueError("give `speeds` or `groups`, not both")
        if self.speeds and len(self.speeds) != self.size:
            raise ValueError(f"{self.size} workers need as many `speeds`, not {len(self.speeds)}")
        return self

    @cached_property
    def size(self) -> int:
        """Number of workers."""
        return self.workers or sum(group.workers for group in self.groups)

    def latencies(self) -> list[Latency]:
        """Compute time of each worker at speed 1."""
        if not self.groups:
            return [self.compute] * self.size
        return [group.compute or self.compute for group in self.groups for _ in range(group.workers)]

    def worker_speeds(self) -> list[float]:
        """Speed of each worker."""
        if self.groups:
            return [group.speed for group in self.groups for _ in range(group.workers)]
        return list(self.speeds) or [1.0] * self.size
